//! An application's handle to a running node: [`Handle`].
//!
//! Cheap to clone; every method may be called from any task. Dropping a future abandons the request: it is forgotten, not
//! undone.

use bytes::Bytes;
use hustings_core::{
    Admin, ApplyVersion, ClusterId, Lsn, Membership, MembershipChange, NodeId, Outcome, Refusal, Role, StateMachine,
    Term, Transition,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

/// A command that was applied, here and at a quorum.
#[derive(Clone, Debug)]
pub struct Applied<R> {
    /// Place of the entry in history.
    pub lsn: Lsn,
    /// The state machine's response.
    pub response: R,
}

/// A view that may be read.
#[derive(Clone)]
pub struct Readable<V> {
    /// The last entry that the view contains.
    pub applied: Lsn,
    /// View of the state.
    pub view: V,
}

/// The reason why a request has no result.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RequestError {
    /// *Definitely* not done.
    #[error("{0}")]
    Refused(Refusal),
    /// *Definitely* not done: this node's queue is full.
    #[error("this node has too many requests waiting; try again later")]
    QueueFull,
    /// *Perhaps* done: the leader was lost, or the proposal was too old to be told from a second copy.
    #[error("the outcome is unknown: the request may or may not have been applied")]
    Unknown,
    /// The node has stopped; *perhaps* done.
    #[error("the node has stopped")]
    Stopped,
}

/// A node as it sees itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeStatus {
    /// Id of this node.
    pub me: NodeId,
    /// Id of the cluster.
    pub cluster_id: ClusterId,
    /// Name of the protocol.
    pub protocol: &'static str,
    /// Its present role.
    pub role: Role,
    /// The term it is in.
    pub term: Term,
    /// Leader that it follows (itself when leading); `None` if it knows of none.
    pub leader: Option<NodeId>,
    /// The end of its log.
    pub last: Lsn,
    /// The highest index it knows to be committed.
    pub commit: u64,
    /// The last entry that was applied here.
    pub applied: Lsn,
    /// The membership in force.
    pub membership: Arc<Membership>,
    /// Whether its disk answers.
    pub is_disk_healthy: bool,
    /// Version of the rules by which it applies entries.
    pub version: ApplyVersion,
    /// Told by the leader: members whose state differed from that of most when states were last compared; `NodeId(0)` when nobody
    /// can say which is right.
    pub differing: BTreeSet<NodeId>,
    /// The entry at which this leader last compared states; 0 before that.
    pub compared_at: u64,
}

/// A transition, and when this node saw it.
#[derive(Clone, Debug)]
pub struct Happening {
    /// Moment by the wall clock, for people.
    pub at: SystemTime,
    /// The change and its reason.
    pub transition: Transition,
}

/// A request of the handle to the loop.
pub(crate) enum Call<S: StateMachine> {
    Propose { payload: Bytes, reply: oneshot::Sender<Result<Applied<S::Response>, RequestError>> },
    ChangeMembership { change: MembershipChange, reply: oneshot::Sender<Result<Arc<Membership>, RequestError>> },
    Read { reply: oneshot::Sender<Result<Readable<S::View>, RequestError>> },
    ReadLocal { reply: oneshot::Sender<Readable<S::View>> },
    Admin { admin: Admin, reply: oneshot::Sender<Outcome> },
    Stop { reply: oneshot::Sender<()> },
}

/// A handle to a running node; clones share it.
pub struct Handle<S: StateMachine> {
    pub(crate) calls: mpsc::Sender<Call<S>>,
    pub(crate) status: watch::Receiver<NodeStatus>,
    pub(crate) applied: watch::Receiver<u64>,
    pub(crate) happenings: broadcast::Sender<Happening>,
}

impl<S: StateMachine> Clone for Handle<S> {
    fn clone(&self) -> Handle<S> {
        Handle {
            calls: self.calls.clone(),
            status: self.status.clone(),
            applied: self.applied.clone(),
            happenings: self.happenings.clone(),
        }
    }
}

impl<S: StateMachine> Handle<S> {
    /// Replicates a command and applies it; any node may be asked.
    ///
    /// Waits as long as it takes: bound it with a timeout of your own. Commands are applied at most once.
    ///
    /// # Errors
    /// [`RequestError::Refused`] and [`RequestError::QueueFull`] mean *definitely* not done, the others *perhaps*.
    pub async fn propose(&self, payload: Bytes) -> Result<Applied<S::Response>, RequestError> {
        let (reply, answer) = oneshot::channel();
        self.submit(Call::Propose { payload, reply })?;
        answer.await.unwrap_or(Err(RequestError::Stopped))
    }

    /// Changes the membership; the one that resulted comes back once it is in force.
    ///
    /// There is one change at a time, a leader's own notes of names and addresses among them: this one waits for those before it.
    ///
    /// # Errors
    /// As [`Handle::propose`].
    pub async fn change_membership(&self, change: MembershipChange) -> Result<Arc<Membership>, RequestError> {
        let (mut status, mut applied) = (self.status.clone(), self.applied.clone());
        loop {
            status.borrow_and_update();
            applied.borrow_and_update();
            let (reply, answer) = oneshot::channel();
            self.submit(Call::ChangeMembership { change: change.clone(), reply })?;
            match answer.await.unwrap_or(Err(RequestError::Stopped)) {
                // It is applied here, too, or another leader comes.
                Err(RequestError::Refused(Refusal::MembershipPending)) => {
                    let changed = tokio::select! {
                        changed = status.changed() => changed,
                        changed = applied.changed() => changed,
                    };
                    changed.map_err(|_| RequestError::Stopped)?;
                }
                outcome => return outcome,
            }
        }
    }

    /// A view that contains everything that was acknowledged anywhere before this call (linearizable).
    ///
    /// # Errors
    /// [`RequestError::QueueFull`] and [`RequestError::Stopped`].
    pub async fn read(&self) -> Result<Readable<S::View>, RequestError> {
        let (reply, answer) = oneshot::channel();
        self.submit(Call::Read { reply })?;
        answer.await.unwrap_or(Err(RequestError::Stopped))
    }

    /// A view of what this node has applied so far (serializable): perhaps stale, always available.
    ///
    /// # Errors
    /// [`RequestError::QueueFull`] and [`RequestError::Stopped`].
    pub async fn read_local(&self) -> Result<Readable<S::View>, RequestError> {
        let (reply, answer) = oneshot::channel();
        self.submit(Call::ReadLocal { reply })?;
        answer.await.map_err(|_| RequestError::Stopped)
    }

    /// Asks the protocol to campaign, resign, transfer or forget.
    ///
    /// # Errors
    /// The protocol's refusal, or [`RequestError::Unknown`].
    pub async fn admin(&self, admin: Admin) -> Result<(), RequestError> {
        let (reply, answer) = oneshot::channel();
        self.submit(Call::Admin { admin, reply })?;
        match answer.await {
            Ok(Outcome::Done) => Ok(()),
            Ok(Outcome::Refused(refusal)) => Err(RequestError::Refused(refusal)),
            Ok(Outcome::Unknown) => Err(RequestError::Unknown),
            Err(_) => Err(RequestError::Stopped),
        }
    }

    /// The node as it sees itself now.
    pub fn status(&self) -> NodeStatus {
        self.status.borrow().clone()
    }

    /// Follows the node's role, term, leader, membership and disk; the latest wins.
    ///
    /// The positions in it are those of the moment that it is looked at, but nobody is woken when only they change: follow
    /// [`Handle::applied_changes`] for that.
    pub fn status_changes(&self) -> watch::Receiver<NodeStatus> {
        self.status.clone()
    }

    /// Follows the index of the last applied entry; the latest wins. Wakes after each batch.
    pub fn applied_changes(&self) -> watch::Receiver<u64> {
        self.applied.clone()
    }

    /// Every transition from now on, with its reason.
    pub fn happenings(&self) -> broadcast::Receiver<Happening> {
        self.happenings.subscribe()
    }

    /// Stops the node: what is durable stays, requests that wait end as [`RequestError::Stopped`].
    pub async fn stop(&self) {
        let (reply, answer) = oneshot::channel();
        if self.calls.send(Call::Stop { reply }).await.is_ok() {
            // An error means that the loop ended first, which is what was wanted.
            let _ = answer.await;
        }
    }

    fn submit(&self, call: Call<S>) -> Result<(), RequestError> {
        self.calls.try_send(call).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => RequestError::QueueFull,
            mpsc::error::TrySendError::Closed(_) => RequestError::Stopped,
        })
    }
}
