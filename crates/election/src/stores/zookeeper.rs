//! ZooKeeper: a queue of ephemeral sequential nodes, each on the session of its process.
//!
//! ```text
//!   /NAME/_c_UUID-latch-NUMBER   an entry; the one with the least number leads, and the transaction that created it is its token
//!   /NAME.note                   what the last leader left: why it ended, who shall be next
//!   /NAME.generation             raised by hand when the store's history was replaced; absent is 0
//!   /NAME.history                who led, and how each tenure ended
//!   /NAME.wish                   what an operator wants of the leader
//! ```
//!
//! Entries are named as Curator's `LeaderLatch` names its own, which may be a rival, as may every recipe whose nodes end in the
//! counter. The client is our own, and small: a renewal counts only together with the next one *on the same connection*, so
//! each answer must belong to a connection.
//!
//! Promises of the store:
//!
//! - Writes are committed by a quorum, in one order. Reads are answered by the member alone that is asked, and may be old. So a
//!   look begins with a write that changes nothing, and reads behind it.
//! - A session ends no earlier than its time to live after the *leader* heard of it. Followers answer pings alone, and tell the
//!   leader with its next ping, each half tick, whom they have heard; a write that is passed on tells nothing of that. So a
//!   renewal is a write to the entry's own node, which cannot be done when the entry is gone, and what it proves is the renewal
//!   before it, a tick or more older. The opening of a session is proven at once: it is a committed transaction.
//! - An entry's generation is the one that was in force when it was created: both are transactions, and their numbers tell.
//! - The tick is not told by the protocol: see [`probe`]. Where it cannot be learnt, 2 s or more are assumed; let the servers
//!   answer `conf` for shorter waits.
//! - Versions below 3.8.4 and 3.9.2 can lose committed transactions when a follower crashes while it catches up
//!   (ZOOKEEPER-4785), 3.9.3 by another fault (ZOOKEEPER-4925): a warning says so at the start.
//!
//! In TLS (`secureClientPort`) where the URL says so: see [`crate::address`].

mod connection;
mod follow;
mod nodes;
pub(crate) mod observe;
mod probe;
mod seat;
mod session;
mod will;
mod wire;

pub(crate) use will::Will;

use crate::address::{Secret, Security, StoreAddress};
use crate::seat::{DriverEvent, Later, Seat, Sitter, Store};
use crate::wire::Wire;
use hustings_lease::Profile;
use session::Session;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// One process' session at an ensemble.
pub(crate) struct ZookeeperStore {
    session: Arc<Session>,
}

impl ZookeeperStore {
    pub(crate) fn new(address: &StoreAddress, ttl: Duration) -> ZookeeperStore {
        ZookeeperStore {
            session: Arc::new(Session::new(&address.endpoints, wire_of(&address.security), user_of(address), ttl)),
        }
    }
}

impl Store for ZookeeperStore {
    fn profile(&self) -> Profile {
        self.session.profile()
    }

    fn open(&mut self, told: UnboundedSender<DriverEvent>) {
        tokio::spawn(session::keep(self.session.clone(), told));
    }

    fn seat(&mut self, sitter: Sitter) -> Box<dyn Seat> {
        self.session.add(sitter.line.clone());
        Box::new(seat::ZookeeperSeat::new(self.session.clone(), sitter))
    }

    fn close(&mut self) -> Later<'_, ()> {
        Box::pin(self.session.close())
    }
}

/// The way to an ensemble, whose protocol has no name in ALPN.
fn wire_of(security: &Security) -> Wire {
    Wire::new(security, "store", &[])
}

/// `USER:PASSWORD`, as ZooKeeper's digest scheme has it.
fn user_of(address: &StoreAddress) -> Option<Secret> {
    let (user, password) = address.user.as_ref()?;
    Some(Secret(format!("{user}:{}", password.as_ref().map_or("", |password| &password.0))))
}
