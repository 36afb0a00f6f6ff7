//! The leader's state of each peer: [`Peer`].
//!
//! Accepts flow ahead of their acknowledgements, in a window of messages and bytes. Links lose: each heartbeat asks how
//! far the accepts sent before it have come, and those that have not are sent again, identically (TL-7). Committed
//! slots are not sent but asked for.
//!
//! The window frees only by what the peer's disk holds: it bounds what the peer must keep in memory while its disk hangs, or is slower
//! than the load. The answer to a heartbeat waits for no disk; it decides what is sent again, and nothing else.

use hustings_core::leading::Known;
use std::collections::VecDeque;

/// One peer, as the leader sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Peer {
    /// Its state as far as it is the same under every protocol. It has committed, or accepted in this ballot,
    /// everything that it stores, durably; its rounds are heartbeats.
    pub known: Known,
    /// The next slot to send.
    pub next: u64,
    /// Messages under way to its disk: (last slot, cost in bytes), oldest first.
    pub inflight: VecDeque<(u64, usize)>,
    /// It has committed everything through here, perhaps in memory only.
    pub committed: u64,
    /// The heartbeat that asks about what was sent before it, and the last slot of that.
    pub mark: Option<(u64, u64)>,
    /// The first slot that was sent while its link was down: that and what was sent after it never arrived.
    pub lost_from: Option<u64>,
}

impl Peer {
    /// A peer of which nothing is known.
    pub fn new() -> Peer {
        let inflight = VecDeque::new();
        Peer { known: Known::default(), next: 1, inflight, committed: 0, mark: None, lost_from: None }
    }

    /// Whether the heartbeat that leaves now must ask it for an answer, as [`Known::asks`] says: always while something is under
    /// way, or while it has not said that it committed what the leader has.
    pub fn asks(&mut self, counter: u64, wanted: u64, end: u64, commit: u64) -> bool {
        let asks = self.known.asks(counter, wanted, end);
        asks || self.mark.is_some() || !self.inflight.is_empty() || self.committed < commit
    }

    /// Everything is sent again from here on. What was sent before that stays under way: the peer has it, or will ask for it.
    pub fn rewind(&mut self, next: u64) {
        self.next = next;
        self.inflight.retain(|(last, _)| *last < next);
        self.mark = None;
    }

    /// Its link is up again, and everything is sent again from here on. What was under way when the link broke may have arrived, and wait
    /// for its disk; what was sent since has not.
    pub fn on_link_up(&mut self, next: u64) {
        if let Some(lost_from) = self.lost_from.take() {
            self.inflight.retain(|(last, _)| *last < lost_from);
        }
        self.rewind(next);
    }

    /// Frees the window of these slots, which arrived, durably.
    pub fn on_stored(&mut self, from: u64, through: u64) {
        if from <= self.known.stored + 1 {
            self.known.stored = self.known.stored.max(through);
        }
        let stored = self.known.stored;
        self.inflight.retain(|(last, _)| *last > stored && (*last < from || *last > through));
    }

    /// It committed through here, and all of it is on its disk: frees the window of that.
    pub fn on_committed_durably(&mut self, index: u64) {
        self.on_committed(index);
        self.on_stored(0, index);
    }

    /// It committed through here, perhaps in memory only: the window stays.
    pub fn on_committed(&mut self, index: u64) {
        self.committed = self.committed.max(index);
    }

    /// Whether no further message may be sent. An empty window is never full: one message always goes.
    pub fn is_full(&self, messages_max: usize, bytes_max: usize) -> bool {
        let bytes: usize = self.inflight.iter().map(|(_, bytes)| bytes).sum();
        !self.inflight.is_empty() && (self.inflight.len() >= messages_max || bytes >= bytes_max)
    }

    /// Slots through `last` leave. Those that its disk holds already wait for nothing.
    pub fn on_sent(&mut self, last: u64, bytes: usize) {
        if last > self.known.stored {
            self.inflight.push_back((last, bytes));
        }
        self.next = last + 1;
    }
}

impl Default for Peer {
    fn default() -> Peer {
        Peer::new()
    }
}

impl AsRef<Known> for Peer {
    fn as_ref(&self) -> &Known {
        &self.known
    }
}

impl AsMut<Known> for Peer {
    fn as_mut(&mut self) -> &mut Known {
        &mut self.known
    }
}
