//! The replicated store as the services use it: [`Backend`].
//!
//! A node's [`Handle`] is one; tests put a store without a cluster in its place. Static dispatch, so the seam costs nothing.
//!
//! Read next: [`crate::context`], which bounds these calls in time and turns their errors into etcd's.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use hustings_core::{Admin, Membership, MembershipChange};
use hustings_kv::{KvStore, Outcome, View};
use hustings_node::{Applied, Handle, Happening, NodeStatus, Readable, RequestError};
use tokio::sync::{broadcast, watch};

/// A replicated key-value store, seen from one member.
pub trait Backend: Clone + Send + Sync + 'static {
    /// Replicates a command and applies it.
    fn propose(&self, payload: Bytes) -> impl Future<Output = Result<Applied<Outcome>, RequestError>> + Send;

    /// A view that contains everything acknowledged anywhere before the call (linearizable).
    fn read(&self) -> impl Future<Output = Result<Readable<View>, RequestError>> + Send;

    /// A view of what this member has applied (serializable): at least everything it has answered itself.
    fn read_local(&self) -> impl Future<Output = Result<Readable<View>, RequestError>> + Send;

    /// Changes the membership; answers the one that resulted.
    fn change_membership(
        &self,
        change: MembershipChange,
    ) -> impl Future<Output = Result<Arc<Membership>, RequestError>> + Send;

    /// Asks the protocol itself for something.
    fn admin(&self, admin: Admin) -> impl Future<Output = Result<(), RequestError>> + Send;

    /// The member as it sees itself now; called for each request, so it must be cheap.
    fn status(&self) -> NodeStatus;

    /// Follows the status; the latest wins.
    fn status_changes(&self) -> watch::Receiver<NodeStatus>;

    /// Follows the index of the last applied entry; the latest wins.
    fn applied_changes(&self) -> watch::Receiver<u64>;

    /// Every transition from now on, with its reason.
    fn happenings(&self) -> broadcast::Receiver<Happening>;
}

impl Backend for Handle<KvStore> {
    fn propose(&self, payload: Bytes) -> impl Future<Output = Result<Applied<Outcome>, RequestError>> + Send {
        Handle::propose(self, payload)
    }

    fn read(&self) -> impl Future<Output = Result<Readable<View>, RequestError>> + Send {
        Handle::read(self)
    }

    fn read_local(&self) -> impl Future<Output = Result<Readable<View>, RequestError>> + Send {
        Handle::read_local(self)
    }

    fn change_membership(
        &self,
        change: MembershipChange,
    ) -> impl Future<Output = Result<Arc<Membership>, RequestError>> + Send {
        Handle::change_membership(self, change)
    }

    fn admin(&self, admin: Admin) -> impl Future<Output = Result<(), RequestError>> + Send {
        Handle::admin(self, admin)
    }

    fn status(&self) -> NodeStatus {
        Handle::status(self)
    }

    fn status_changes(&self) -> watch::Receiver<NodeStatus> {
        Handle::status_changes(self)
    }

    fn applied_changes(&self) -> watch::Receiver<u64> {
        Handle::applied_changes(self)
    }

    fn happenings(&self) -> broadcast::Receiver<Happening> {
        Handle::happenings(self)
    }
}
