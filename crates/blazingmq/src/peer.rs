//! What the leader knows of each peer: [`Peer`].
//!
//! ```text
//!              registers                a gap                needs compacted records
//!    Absent ─────────────► Flow ◄──────────────► Probe ──────────────────────────────► Fetch
//!      ▲                     ▲      a place is found                                     │
//!      └── link down ────────┴───────────────────────────────────────────────────────────┘ acknowledged, failed
//! ```
//!
//! Links are sessions: what is sent arrives in order until the link drops, so nothing is ever sent twice on suspicion.
//! After a drop the peer registers again and says where its ledger ends.

use hustings_core::Priority;
use std::collections::VecDeque;

/// How records are sent to a peer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Pace {
    /// It has not registered in this session.
    Absent,
    /// The last common record is unknown: one message with records, then silence, until an answer.
    Probe,
    /// The ledger is in step: records flow ahead of their acknowledgements, remembered by (last index, cost in bytes).
    Flow {
        /// Oldest first.
        inflight: VecDeque<(u64, usize)>,
    },
    /// The peer fetches a snapshot through this index; no records are sent.
    Fetch {
        /// The last index that the snapshot covers.
        pending: u64,
    },
}

/// One peer, as the leader sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Peer {
    /// Its log equals the leader's up to here, durably.
    pub stored: u64,
    /// The next index to send.
    pub next: u64,
    /// How entries are sent to it.
    pub pace: Pace,
    /// Whether it was heard since the last quorum check.
    pub is_active: bool,
    /// Whether it was not heard between the last two.
    pub was_silent: bool,
    /// The highest commit that it was told.
    pub told_commit: u64,
    /// The highest round of reads that it confirmed.
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
            stored: 0,
            next: 1,
            pace: Pace::Absent,
            is_active: true,
            was_silent: false,
            told_commit: 0,
            round: 0,
            priority: Priority::Normal,
            ready_checks: 0,
        }
    }

    /// Its ledger equals the leader's up to `index`; says whether that is news.
    pub fn on_stored(&mut self, index: u64) -> bool {
        let is_news = index > self.stored;
        self.stored = self.stored.max(index);
        self.next = self.next.max(index + 1);
        if let Pace::Flow { inflight } = &mut self.pace {
            while inflight.front().is_some_and(|(last, _)| *last <= index) {
                inflight.pop_front();
            }
        }
        is_news
    }

    /// A quorum check ends, and the next begins.
    pub fn end_check(&mut self) {
        self.was_silent = !self.is_active;
        self.is_active = false;
    }

    /// Whether it was silent for an election timeout, and still is.
    pub fn is_silent(&self) -> bool {
        self.was_silent && !self.is_active
    }

    /// The link is down. What it stores it keeps; whether it still knows its leader is to be heard.
    pub fn become_absent(&mut self) {
        self.next = self.stored + 1;
        self.pace = Pace::Absent;
    }

    /// It registered: it may have been reborn with less than it stored, if its disk was lost.
    pub fn become_registered(&mut self) {
        *self = Peer { is_active: true, round: self.round, priority: self.priority, ..Peer::new() };
    }

    /// Records flow ahead from now on.
    pub fn become_flow(&mut self) {
        self.next = self.stored + 1;
        self.pace = Pace::Flow { inflight: VecDeque::new() };
    }

    /// The last common record is searched for below `next`.
    pub fn become_probe(&mut self, next: u64) {
        self.next = next.max(self.stored + 1);
        self.pace = Pace::Probe;
    }

    /// The peer fetches a snapshot through `pending`. It needs it, so it stores no more than that, whatever it once said.
    pub fn become_fetch(&mut self, pending: u64) {
        self.stored = self.stored.min(pending);
        self.next = pending + 1;
        self.pace = Pace::Fetch { pending };
    }

    /// Whether as much is under way as may be. Nothing under way is never too much: one message always goes.
    pub fn is_full(&self, messages_max: usize, bytes_max: usize) -> bool {
        match &self.pace {
            Pace::Flow { inflight } => {
                let bytes: usize = inflight.iter().map(|(_, bytes)| bytes).sum();
                !inflight.is_empty() && (inflight.len() >= messages_max || bytes >= bytes_max)
            }
            Pace::Absent | Pace::Probe | Pace::Fetch { .. } => true,
        }
    }

    /// Records up to `last` leave.
    ///
    /// # Panics
    /// When the peer is not in step: it is sent no more than one message of records, as a probe.
    pub fn on_sent(&mut self, last: u64, bytes: usize) {
        let Pace::Flow { inflight } = &mut self.pace else { unreachable!("records flow only to a peer in step") };
        inflight.push_back((last, bytes));
        self.next = last + 1;
    }

    /// What must hold.
    ///
    /// # Panics
    /// When it does not.
    pub fn assert_invariants(&self) {
        assert!(self.stored < self.next, "what is stored was sent: {} < {}", self.stored, self.next);
        if let Pace::Fetch { pending } = self.pace {
            assert_eq!(self.next, pending + 1, "after a snapshot comes the record behind it");
        }
    }
}

impl Default for Peer {
    fn default() -> Peer {
        Peer::new()
    }
}
