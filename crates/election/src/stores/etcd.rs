//! Hustings and etcd: a queue of keys on the lease of a session.
//!
//! ```text
//!   NAME/<lease in hex>    an entry; the one with the least create revision leads, and that revision is its token
//!   NAME.note              what the last leader left: why it ended, who shall be next
//!   NAME.generation        raised by hand when the store's history was replaced; absent is 0
//!   NAME.history           who led, and how each tenure ended
//!   NAME.wish              what an operator wants of the leader
//!   NAME.fence.<lease>     written where nobody knows whether an entry was: a request that is done late finds it changed, and does nothing
//! ```
//!
//! Entries are those of `etcdctl elect` and of every client's `concurrency.Election`, which may be rivals. The rules are our
//! own: the server's Campaign call may answer late, and what it answers may be old.
//!
//! A member of Hustings that runs in this very process is asked over a connection in memory (`Election::inside`), by the same
//! rules: that it leads its cluster is no lease.
//!
//! Promises of the store. Hustings: renewals are committed, and the log's clock ends leases, also across changes of its
//! leader. etcd: its leader renews leases in its memory; versions below 3.4.31 and 3.5.13 let a deposed leader renew, and those
//! below 3.4.38, 3.5.23 and 3.6.5 let a revoked lease be renewed.

mod http;
mod keys;
pub(crate) mod observe;
mod reach;
mod requests;
mod seat;
mod session;
mod short;
mod tether;
mod watches;
mod will;

pub(crate) use will::Will;

use crate::address::StoreAddress;
use crate::seat::{DriverEvent, Later, Seat, Sitter, Store};
use hustings_lease::Profile;
use reach::Reach;
use session::Session;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// Whether the user of this address can say its password.
///
/// # Errors
/// In words.
pub(super) fn check_user(address: &StoreAddress) -> Result<(), String> {
    Reach::new(address).password().map(drop)
}

/// One process' session at a cluster.
pub(crate) struct EtcdStore {
    profile: Profile,
    session: Arc<Session>,
    is_tethered: bool,
}

impl EtcdStore {
    pub(crate) fn new(profile: Profile, address: &StoreAddress, ttl: Duration, is_tethered: bool) -> EtcdStore {
        EtcdStore { profile, session: Arc::new(Session::new(Reach::new(address), ttl)), is_tethered }
    }
}

impl Store for EtcdStore {
    fn profile(&self) -> Profile {
        self.profile
    }

    fn open(&mut self, told: UnboundedSender<DriverEvent>) {
        if self.is_tethered {
            tokio::spawn(tether::keep(self.session.clone()));
        }
        tokio::spawn(session::keep(self.session.clone(), self.profile, told));
    }

    fn seat(&mut self, sitter: Sitter) -> Box<dyn Seat> {
        self.session.lease.add(sitter.line.clone());
        Box::new(seat::EtcdSeat::new(self.session.clone(), sitter))
    }

    fn close(&mut self) -> Later<'_, ()> {
        Box::pin(self.session.revoke())
    }
}
