//! What the leader knows of each peer: [`Progress`].
//!
//! ```text
//!            rejected, link down                 needs compacted entries
//!    Replicate ───────────────► Probe ─────────────────────────► Snapshot
//!        ▲                        │ matched                         │ matched, failed
//!        └────────────────────────┘◄────────────────────────────────┘
//! ```
//!
//! Sources: RA-4 to RA-9, RI-13, RI-14; etcd/raft `tracker`.

use hustings_core::Priority;
use std::collections::VecDeque;

/// How entries are sent to a peer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// The point of agreement is unknown: one message per heartbeat round.
    Probe {
        /// A probe is out; wait for its answer or the next heartbeat's.
        is_paused: bool,
    },
    /// The log matches: messages flow ahead of their acknowledgements.
    Replicate(Window),
    /// The peer fetches a snapshot through this index; nothing else is sent.
    Snapshot {
        /// The last index that the snapshot covers.
        pending: u64,
    },
}

/// Messages of entries in flight, by the last index of each, bounded in number and bytes.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Window {
    inflight: VecDeque<(u64, usize)>,
    bytes: usize,
}

impl Window {
    /// Adds a message that ends at `last`.
    ///
    /// # Panics
    /// When indices do not ascend (RI-14).
    pub fn add(&mut self, last: u64, bytes: usize) {
        assert!(self.inflight.back().is_none_or(|(before, _)| *before < last), "in-flight indices ascend");
        self.inflight.push_back((last, bytes));
        self.bytes += bytes;
    }

    /// Frees messages that end at or below `index`.
    pub fn free_through(&mut self, index: u64) {
        while let Some((last, bytes)) = self.inflight.front().copied()
            && last <= index
        {
            self.inflight.pop_front();
            self.bytes -= bytes;
        }
    }

    /// Whether no further message may be sent. An empty window is never full: one message always goes.
    pub fn is_full(&self, messages_max: usize, bytes_max: usize) -> bool {
        !self.inflight.is_empty() && (self.inflight.len() >= messages_max || self.bytes >= bytes_max)
    }

    /// Messages in flight.
    pub fn len(&self) -> usize {
        self.inflight.len()
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.inflight.is_empty()
    }
}

/// One peer, as the leader sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Progress {
    /// Its log matches the leader's up to here, durably.
    pub matched: u64,
    /// The next index to send.
    pub next: u64,
    /// How entries are sent to it.
    pub state: State,
    /// Messages of entries that may be in flight to it: one after a refusal, one more for each acknowledgement.
    ///
    /// Where messages overtake each other, every message behind the late one is refused, and any acknowledgement ends the
    /// probe. A whole window at once would then cost a window for each pair of answers, and each of those another.
    pub pace: usize,
    /// Whether it was heard since the last quorum check.
    pub is_active: bool,
    /// The highest commit that it was told.
    pub told_commit: u64,
    /// The highest read position that it confirmed (RR-1).
    pub position: u64,
    /// How much it should lead.
    pub priority: Priority,
    /// Quorum checks in a row that found it caught up: a preferred peer gets leadership when it is ready, not when it blinks.
    pub ready_checks: u32,
}

impl Progress {
    /// A peer of which nothing is known but that the log may end at `last` (RM-7).
    pub fn new(last: u64) -> Progress {
        Progress {
            matched: 0,
            next: last + 1,
            state: State::Probe { is_paused: false },
            pace: usize::MAX,
            is_active: true,
            told_commit: 0,
            position: 0,
            priority: Priority::Normal,
            ready_checks: 0,
        }
    }

    /// The log matches up to `index`; says whether that is news.
    pub fn on_matched(&mut self, index: u64) -> bool {
        let is_news = index > self.matched;
        self.matched = self.matched.max(index);
        self.pace = self.pace.saturating_add(usize::from(is_news));
        match &mut self.state {
            State::Replicate(window) => window.free_through(index),
            // It has what it fetched, or more: whether the log can go on from there, or it takes another one, is found anew.
            State::Snapshot { pending } if index >= *pending => self.become_probe(index + 1),
            State::Snapshot { .. } => return is_news,
            State::Probe { .. } => {}
        }
        self.next = self.next.max(index + 1);
        is_news
    }

    /// Entries flow ahead from now on.
    pub fn become_replicate(&mut self) {
        self.next = self.matched + 1;
        self.state = State::Replicate(Window::default());
    }

    /// The point of agreement must be found, from `next` on.
    pub fn become_probe(&mut self, next: u64) {
        self.next = next.max(self.matched + 1);
        self.state = State::Probe { is_paused: false };
    }

    /// The peer fetches a snapshot through `pending`.
    pub fn become_snapshot(&mut self, pending: u64) {
        self.next = pending + 1;
        self.state = State::Snapshot { pending };
    }

    /// The peer refused entries after `rejected`; `candidate` is the leader's guess of the last agreement (RA-4).
    /// Says whether the refusal was news: stale ones change nothing.
    pub fn on_rejected(&mut self, rejected: u64, candidate: u64) -> bool {
        match self.state {
            State::Replicate(_) if rejected > self.matched => {
                self.become_probe(self.matched + 1);
                self.pace = 1;
                true
            }
            State::Probe { .. } if Some(rejected) == self.next.checked_sub(1) => {
                let before = self.next;
                self.become_probe(rejected.min(candidate.saturating_add(1)));
                // It lacks what it once acknowledged: asking again at the speed of the link would not bring it back.
                self.state = State::Probe { is_paused: self.next == before };
                true
            }
            _ => false,
        }
    }

    /// A heartbeat was answered: a probe may go again.
    pub fn unpause(&mut self) {
        if let State::Probe { is_paused } = &mut self.state {
            *is_paused = false;
        }
    }

    /// What must hold (RI-13).
    ///
    /// # Panics
    /// When it does not.
    pub fn assert_invariants(&self) {
        assert!(self.matched < self.next, "what matches was sent: {} < {}", self.matched, self.next);
        if let State::Snapshot { pending } = self.state {
            assert_eq!(self.next, pending + 1, "after a snapshot comes the entry behind it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_refusal_messages_flow_one_by_one_and_each_acknowledgement_lets_one_more_go() {
        let mut peer = Progress::new(10);
        peer.become_replicate();
        assert!(peer.on_rejected(7, 3));
        assert_eq!(peer.pace, 1);
        assert!(peer.on_matched(1));
        assert!(!peer.on_matched(1), "the same acknowledgement again is no news");
        assert_eq!(peer.pace, 2);
    }

    #[test]
    fn a_peer_that_lost_what_it_acknowledged_is_asked_once_a_heartbeat() {
        let mut peer = Progress::new(10);
        assert!(peer.on_matched(10));
        peer.become_probe(11);
        assert!(peer.on_rejected(10, 4));
        assert_eq!(peer.state, State::Probe { is_paused: true });
        peer.unpause();
        assert_eq!(peer.state, State::Probe { is_paused: false });
    }

    #[test]
    fn a_peer_that_holds_more_than_its_snapshot_is_probed_behind_it() {
        // The log may be compacted beyond both: what it needs then is found anew, and no invariant is broken meanwhile.
        let mut peer = Progress::new(10);
        peer.become_snapshot(20);
        assert!(peer.on_matched(15));
        peer.assert_invariants();
        assert!(matches!(peer.state, State::Snapshot { pending: 20 }));
        assert!(peer.on_matched(25));
        peer.assert_invariants();
        assert!(matches!(peer.state, State::Probe { .. }) && peer.next == 26);
    }
}
