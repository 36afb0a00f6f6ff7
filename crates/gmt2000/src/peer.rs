//! What the leader knows of each peer: [`Peer`].
//!
//! ```text
//!             a gap, link down               needs compacted messages
//!      Flow ───────────────────► Probe ──────────────────────────────► Fetch
//!        ▲                         │ stored                              │ stored, failed
//!        └─────────────────────────┘◄────────────────────────────────────┘
//! ```
//!
//! A probe that is lost is not sent again by a clock of its own: every heartbeat names the message before the next one, and
//! so is a probe itself.

use hustings_core::Priority;
use std::collections::VecDeque;

/// How entries are sent to a peer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Pace {
    /// The last common message is unknown: one LEAD with entries, then heartbeats, until an answer.
    Probe {
        /// Entries are out; wait for an answer.
        is_out: bool,
    },
    /// The log is in step: LEADs flow ahead of their acknowledgements, remembered by (last index, cost in bytes).
    Flow {
        /// Oldest first.
        inflight: VecDeque<(u64, usize)>,
    },
    /// The peer fetches a snapshot through this index; no entries are sent.
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
    /// LEADs with entries that may be under way to it: one after a gap, one more for each acknowledgement. Where messages
    /// overtake each other a whole window at once would show a gap for each of its LEADs, and each of those cost a window.
    pub under_way_max: usize,
    /// Whether it was heard since the last quorum check.
    pub is_active: bool,
    /// The highest commit that it was told.
    pub told_commit: u64,
    /// The highest round of reads that it confirmed.
    pub round: u64,
    /// How much it should lead.
    pub priority: Priority,
    /// Quorum checks in a row that found it caught up: leadership goes to a preferred peer that stays, not to one that blinks.
    pub ready_checks: u32,
}

impl Peer {
    /// A peer of which nothing is known but that its log may end at `last`.
    pub fn new(last: u64) -> Peer {
        Peer {
            stored: 0,
            next: last + 1,
            pace: Pace::Probe { is_out: false },
            under_way_max: usize::MAX,
            is_active: true,
            told_commit: 0,
            round: 0,
            priority: Priority::Normal,
            ready_checks: 0,
        }
    }

    /// Its log equals the leader's up to `index`; says whether that is news.
    pub fn on_stored(&mut self, index: u64) -> bool {
        let is_news = index > self.stored;
        self.stored = self.stored.max(index);
        self.under_way_max = self.under_way_max.saturating_add(usize::from(is_news));
        self.next = self.next.max(index + 1);
        if let Pace::Flow { inflight } = &mut self.pace {
            while inflight.front().is_some_and(|(last, _)| *last <= index) {
                inflight.pop_front();
            }
        }
        is_news
    }

    /// LEADs flow ahead from now on.
    pub fn become_flow(&mut self) {
        self.next = self.stored + 1;
        self.pace = Pace::Flow { inflight: VecDeque::new() };
    }

    /// The last common message must be found, from `next` downwards.
    pub fn become_probe(&mut self, next: u64) {
        self.next = next.max(self.stored + 1);
        self.pace = Pace::Probe { is_out: false };
    }

    /// The peer fetches a snapshot through `pending`.
    pub fn become_fetch(&mut self, pending: u64) {
        self.next = pending + 1;
        self.pace = Pace::Fetch { pending };
    }

    /// The peer lacks the message at `refused`; `guess` is where the logs may agree. Says whether the news counted.
    pub fn on_gap(&mut self, refused: u64, guess: u64) -> bool {
        let is_news = match self.pace {
            Pace::Flow { .. } => refused > self.stored,
            Pace::Probe { .. } => Some(refused) == self.next.checked_sub(1) && refused > self.stored,
            Pace::Fetch { .. } => false,
        };
        if is_news {
            if matches!(self.pace, Pace::Flow { .. }) {
                self.under_way_max = 1;
            }
            self.become_probe(refused.min(guess.saturating_add(1)));
        }
        is_news
    }

    /// Whether as much is under way as may be. Nothing under way is never too much: one LEAD always goes.
    pub fn is_full(&self, messages_max: usize, bytes_max: usize) -> bool {
        match &self.pace {
            Pace::Probe { is_out } => *is_out,
            Pace::Flow { inflight } => {
                let bytes: usize = inflight.iter().map(|(_, bytes)| bytes).sum();
                let messages_max = messages_max.min(self.under_way_max);
                !inflight.is_empty() && (inflight.len() >= messages_max || bytes >= bytes_max)
            }
            Pace::Fetch { .. } => true,
        }
    }

    /// A LEAD with entries up to `last` leaves.
    ///
    /// # Panics
    /// When the peer fetches a snapshot: it is sent no entries.
    pub fn on_sent(&mut self, last: u64, bytes: usize) {
        match &mut self.pace {
            Pace::Probe { is_out } => *is_out = true,
            Pace::Flow { inflight } => {
                inflight.push_back((last, bytes));
                self.next = last + 1;
            }
            Pace::Fetch { .. } => unreachable!("a peer that fetches a snapshot is sent no entries"),
        }
    }

    /// What must hold.
    ///
    /// # Panics
    /// When it does not.
    pub fn assert_invariants(&self) {
        assert!(self.stored < self.next, "what is stored was sent: {} < {}", self.stored, self.next);
        if let Pace::Fetch { pending } = self.pace {
            assert_eq!(self.next, pending + 1, "after a snapshot comes the message behind it");
        }
    }
}
