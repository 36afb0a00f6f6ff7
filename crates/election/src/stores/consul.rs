//! Consul: a race for a key that a session locks.
//!
//! ```text
//!   NAME              locked by the session of the leader; the index of the write that locked it is its token
//!   NAME.note         what the last leader left: why it ended, who shall be next
//!   NAME.generation   raised by hand when the store's history was replaced; absent is 0
//!   NAME.history      who led, and how each tenure ended
//!   NAME.wish         what an operator wants of the leader
//!   NAME.fence        written where nobody knows whether the key was locked: a request that is done late finds it changed, and does nothing
//! ```
//!
//! Any program that locks the same key may be a rival. Sessions have no checks, for gossip must not depose a leader, and no
//! lock delay, for a belief ends before its lease does. The access token is `CONSUL_HTTP_TOKEN` of the environment, as for
//! Consul's own programs; it needs `session:write` for the agent's node and `key:write` for what begins with NAME.
//! Observers ask by `PUT`, too, for what stands beside the record is read in a transaction: `allow_write_http_from` must let them.
//!
//! Promises of the store:
//!
//! - Writes, and reads that are `consistent`, are linearizable. A transaction compares indexes and locks in one step.
//! - Consul's leader ends a session no earlier than twice its time to live after it was renewed. Renewals live in the leader's
//!   memory; a new leader counts anew. So a vanished holder is succeeded after one to two times to live, and a leader that was
//!   deposed and does not know yet can answer a renewal to no effect for less than the second one.
//! - A time to live has 10 s at least, and 24 h at most, unless the servers are told otherwise (`session_ttl_min`): less does not
//!   help here, and where more is asked for, the campaign ends with what the servers say.
//! - `LockIndex`, which Consul proposes for fencing, begins again at 1 when the key was deleted; the index of writes never does.
//! - Before 1.0 consistent reads could be old when a server had just started (consul#2644): a warning says so at the start.
//!   Transactions came with 0.7.
//!
//! In TLS where the URL or Consul's own variables say so: see [`crate::address`]. An agent of the same machine is asked best.

mod dialler;
#[cfg(test)]
mod fake;
mod follow;
mod http;
pub(crate) mod observe;
mod record;
mod seat;
mod session;
mod will;

pub(crate) use will::Will;

use crate::address::StoreAddress;
use crate::seat::{DriverEvent, Later, Seat, Sitter, Store};
use http::Place;
use hustings_lease::Profile;
use session::Session;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// One process' session at a cluster.
pub(crate) struct ConsulStore {
    session: Arc<Session>,
}

impl ConsulStore {
    pub(crate) fn new(address: &StoreAddress, ttl: Duration) -> ConsulStore {
        ConsulStore { session: Arc::new(Session::new(&Place::of(address), ttl)) }
    }
}

impl Store for ConsulStore {
    fn profile(&self) -> Profile {
        Profile::CONSUL
    }

    fn open(&mut self, told: UnboundedSender<DriverEvent>) {
        tokio::spawn(session::keep(self.session.clone(), told));
    }

    fn seat(&mut self, sitter: Sitter) -> Box<dyn Seat> {
        self.session.lease.add(sitter.line.clone());
        Box::new(seat::ConsulSeat::new(self.session.clone(), sitter))
    }

    fn close(&mut self) -> Later<'_, ()> {
        Box::pin(self.session.destroy())
    }
}
