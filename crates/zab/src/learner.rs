//! What a leader knows of each server that follows it: [`Learner`]. ZooKeeper's "learner handler".
//!
//! ```text
//!    FOLLOWERINFO      LEADERINFO          ACKEPOCH          DIFF, TRUNC, SNAP       NEWLEADER        ACK
//!   ─────────────► Met ──────────► Informed ──────► Promised ───────────────► Syncing ────────► Told ─────► Synced
//! ```
//!
//! One learner is one connection: the follower numbers them, every message carries the number, and what belongs to an earlier
//! one means nothing. So a follower that looked for a leader again and came back is a new learner.

use hustings_core::{Lsn, Priority, Term};
use std::collections::VecDeque;

/// How far a connection has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// FOLLOWERINFO came; the epoch is not fixed yet.
    Met,
    /// LEADERINFO was sent.
    Informed,
    /// ACKEPOCH came; synchronisation waits for a quorum of them.
    Promised,
    /// History up to this index is being sent.
    Syncing {
        /// Where the leader's history ended when synchronisation began.
        end: u64,
    },
    /// NEWLEADER was sent.
    Told,
    /// NEWLEADER is acknowledged: from here on its acknowledgements count.
    Synced,
}

/// One connection, as the leader sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Learner {
    /// The follower's number for it.
    pub connection: u64,
    /// How far it has come.
    pub stage: Stage,
    /// The epoch that the follower had accepted when it connected.
    pub accepted: Term,
    /// Whether its ACKEPOCH was a promise: one that had accepted the same epoch before does not count (§5.8 rule 5).
    pub has_promised: bool,
    /// Where its log ended at ACKEPOCH.
    pub last: Lsn,
    /// Its log equals the leader's up to here, durably; counts once it is synced.
    pub stored: u64,
    /// The next index to send.
    pub next: u64,
    /// Messages of entries on their way: (last index, cost in bytes), oldest first.
    pub inflight: VecDeque<(u64, usize)>,
    /// It fetches a snapshot through this index; no entries are sent.
    pub fetching: Option<u64>,
    /// Whether it was heard since the last quorum check.
    pub is_active: bool,
    /// The highest commit that it was told.
    pub told_commit: u64,
    /// The highest round of reads that it confirmed.
    pub round: u64,
    /// How much it should lead.
    pub priority: Priority,
    /// Quorum checks in a row that found it caught up: leadership goes to a preferred server that stays, not to one that blinks.
    pub ready_checks: u32,
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
            stored: 0,
            next: 1,
            inflight: VecDeque::new(),
            fetching: None,
            is_active: true,
            told_commit: 0,
            round: 0,
            priority: Priority::Normal,
            ready_checks: 0,
        }
    }

    /// Whether it is sent what is proposed.
    pub fn is_forwarded(&self) -> bool {
        self.stage >= Stage::Syncing { end: 0 }
    }

    /// Whether its acknowledgements count.
    pub fn is_synced(&self) -> bool {
        self.stage == Stage::Synced
    }

    /// What it holds for the purposes of a commit.
    pub fn counted(&self) -> u64 {
        if self.is_synced() { self.stored } else { 0 }
    }

    /// It holds everything up to `index`.
    pub fn on_stored(&mut self, index: u64) {
        self.stored = self.stored.max(index);
        self.next = self.next.max(index + 1);
        while self.inflight.front().is_some_and(|(last, _)| *last <= index) {
            self.inflight.pop_front();
        }
        if self.fetching.is_some_and(|pending| pending <= index) {
            self.fetching = None;
        }
    }

    /// A message of entries up to `last` leaves.
    pub fn on_sent(&mut self, last: u64, bytes: usize) {
        self.inflight.push_back((last, bytes));
        self.next = last + 1;
    }

    /// Whether as much is under way as may be. Nothing under way is never too much.
    pub fn is_full(&self, messages_max: usize, bytes_max: usize) -> bool {
        let bytes: usize = self.inflight.iter().map(|(_, bytes)| bytes).sum();
        !self.inflight.is_empty() && (self.inflight.len() >= messages_max || bytes >= bytes_max)
    }

    /// What must hold.
    ///
    /// # Panics
    /// When it does not.
    pub fn assert_invariants(&self) {
        assert!(self.stored < self.next, "what is stored was sent: {} < {}", self.stored, self.next);
    }
}
