//! What the leader knows of each peer: [`Peer`].
//!
//! Accepts flow ahead of their acknowledgements, in a window of messages and bytes. Links lose: each heartbeat asks how
//! far what was sent before it has come, and whatever has not is sent again, identically (TL-7). What is committed is
//! not sent but asked for.

use hustings_core::Priority;
use std::collections::VecDeque;

/// One peer, as the leader sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Peer {
    /// The next slot to send.
    pub next: u64,
    /// Messages under way: (last slot, cost in bytes), oldest first.
    pub inflight: VecDeque<(u64, usize)>,
    /// It has committed, or accepted in this ballot, everything through here, durably.
    pub stored: u64,
    /// It has committed everything through here.
    pub committed: u64,
    /// The heartbeat that asks about what was sent before it, and the last slot of that.
    pub mark: Option<(u64, u64)>,
    /// Whether it was heard since the last quorum check (TL-10).
    pub is_active: bool,
    /// The highest heartbeat that it answered.
    pub round: u64,
    /// How much it should lead.
    pub priority: Priority,
    /// Quorum checks in a row that found it caught up: leadership goes to a preferred peer that stays, not to one that
    /// blinks.
    pub ready_checks: u32,
}

impl Peer {
    /// A peer of which nothing is known.
    pub fn new() -> Peer {
        Peer {
            next: 1,
            inflight: VecDeque::new(),
            stored: 0,
            committed: 0,
            mark: None,
            is_active: true,
            round: 0,
            priority: Priority::Normal,
            ready_checks: 0,
        }
    }

    /// Everything is sent again from here on.
    pub fn rewind(&mut self, next: u64) {
        self.next = next;
        self.inflight.clear();
        self.mark = None;
    }

    /// These slots arrived, durably.
    pub fn on_stored(&mut self, from: u64, through: u64) {
        if from <= self.stored + 1 {
            self.stored = self.stored.max(through);
        }
        self.inflight.retain(|(last, _)| *last < from || *last > through);
    }

    /// It committed through here, and all of it is on its disk.
    pub fn on_committed_durably(&mut self, index: u64) {
        self.stored = self.stored.max(index);
        self.on_committed(index);
    }

    /// It committed through here.
    pub fn on_committed(&mut self, index: u64) {
        self.committed = self.committed.max(index);
        self.inflight.retain(|(last, _)| *last > index);
    }

    /// Whether as much is under way as may be. Nothing under way is never too much: one message always goes.
    pub fn is_full(&self, messages_max: usize, bytes_max: usize) -> bool {
        let bytes: usize = self.inflight.iter().map(|(_, bytes)| bytes).sum();
        !self.inflight.is_empty() && (self.inflight.len() >= messages_max || bytes >= bytes_max)
    }

    /// Slots through `last` leave.
    pub fn on_sent(&mut self, last: u64, bytes: usize) {
        self.inflight.push_back((last, bytes));
        self.next = last + 1;
    }
}

impl Default for Peer {
    fn default() -> Peer {
        Peer::new()
    }
}
