//! A leader's state of each server that follows it: [`Learner`]. ZooKeeper's "learner handler".
//!
//! ```text
//!    FOLLOWERINFO      LEADERINFO          ACKEPOCH          DIFF, TRUNC, SNAP       NEWLEADER        ACK
//!   ─────────────► Met ──────────► Informed ──────► Promised ───────────────► Syncing ────────► Told ─────► Synced
//! ```
//!
//! One learner is one connection: the follower numbers them, every message carries the number, and what belongs to an earlier
//! one means nothing. So a follower that looked for a leader again and came back is a new learner.

use hustings_core::leading::{Known, Window};
use hustings_core::{Limits, Lsn, Term};

/// The progress of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// FOLLOWERINFO came; the epoch is not fixed yet.
    Met,
    /// LEADERINFO was sent; its ACKEPOCH has not come yet.
    Informed,
    /// ACKEPOCH came; synchronisation waits for a quorum of them.
    Promised,
    /// History up to this index is being sent.
    Syncing {
        /// Last index of the leader's history when synchronisation began.
        end: u64,
    },
    /// NEWLEADER was sent, and is not acknowledged yet.
    Told {
        /// Last index of the history that it stands behind.
        end: u64,
    },
    /// NEWLEADER is acknowledged: from here on its acknowledgements count.
    Synced,
}

/// One connection, as the leader sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Learner {
    /// The follower's number for it.
    pub connection: u64,
    /// The progress of this connection.
    pub stage: Stage,
    /// The epoch that the follower had accepted when it connected.
    pub accepted: Term,
    /// Whether its ACKEPOCH was a promise: one that had accepted the same epoch before does not count (§5.8 rule 5).
    pub has_promised: bool,
    /// The last zxid of its log, as its ACKEPOCH said.
    pub last: Lsn,
    /// Its state as far as it is the same under every protocol; what it stores counts once it is synced.
    pub known: Known,
    /// The next index to send.
    pub next: u64,
    /// Messages of entries on their way.
    pub inflight: Window,
    /// It fetches a snapshot through this index; no entries are sent.
    pub fetching: Option<u64>,
    /// The highest commit index that was sent to it.
    pub told_commit: u64,
}

impl Learner {
    /// One that has just connected.
    pub fn met(connection: u64, accepted: Term) -> Learner {
        Learner {
            connection,
            stage: Stage::Met,
            accepted,
            has_promised: false,
            last: Lsn::ZERO,
            known: Known::default(),
            next: 1,
            inflight: Window::default(),
            fetching: None,
            told_commit: 0,
        }
    }

    /// Whether it is sent new proposals.
    pub fn is_forwarded(&self) -> bool {
        self.stage >= Stage::Syncing { end: 0 }
    }

    /// Whether its acknowledgements count.
    pub fn is_synced(&self) -> bool {
        self.stage == Stage::Synced
    }

    /// The last index that counts as stored by it: 0 until it is synced.
    pub fn counted(&self) -> u64 {
        if self.is_synced() { self.known.stored } else { 0 }
    }

    /// Whether the ping that leaves now must ask it for an answer, as [`Known::asks`] says: always until it is in step.
    pub fn asks(&mut self, round: u64, last: u64) -> bool {
        let asks = self.known.asks(round, round, last);
        asks || !self.is_synced() || self.fetching.is_some()
    }

    /// It holds everything up to `index`.
    pub fn on_stored(&mut self, index: u64) {
        self.known.stored = self.known.stored.max(index);
        self.next = self.next.max(index + 1);
        self.inflight.free_through(index);
        if self.fetching.is_some_and(|pending| pending <= index) {
            self.fetching = None;
        }
    }

    /// A message of entries up to `last` leaves.
    pub fn on_sent(&mut self, last: u64, bytes: usize) {
        self.inflight.add(last, bytes);
        self.next = last + 1;
    }

    /// It fetches a snapshot through `pending`; what was under way it ignores.
    pub fn become_fetch(&mut self, pending: u64) {
        self.inflight = Window::default();
        self.fetching = Some(pending);
        self.next = self.next.max(pending + 1);
    }

    /// Whether no further message may be sent. An empty window is never full.
    pub fn is_full(&self, limits: &Limits) -> bool {
        self.inflight.is_full(usize::MAX, limits)
    }

    /// Asserts the invariants.
    ///
    /// # Panics
    /// When one of them is violated.
    pub fn assert_invariants(&self) {
        assert!(self.known.stored < self.next, "what is stored was sent: {} < {}", self.known.stored, self.next);
    }
}

impl AsRef<Known> for Learner {
    fn as_ref(&self) -> &Known {
        &self.known
    }
}

impl AsMut<Known> for Learner {
    fn as_mut(&mut self) -> &mut Known {
        &mut self.known
    }
}
