//! The leader's state of each peer: [`Peer`].
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

use hustings_core::Limits;
use hustings_core::leading::{Known, Window};

/// The way records are sent to a peer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Pace {
    /// It has not registered in this session.
    Absent,
    /// The last common record is unknown: one message with records, then silence, until an answer.
    Probe,
    /// The ledger is in step: records flow ahead of their acknowledgements.
    Flow(Window),
    /// The peer fetches a snapshot through this index; no records are sent.
    Fetch {
        /// The last index that the snapshot covers.
        pending: u64,
    },
}

/// One peer, as the leader sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Peer {
    /// Its state as far as it is the same under every protocol.
    pub known: Known,
    /// The next index to send.
    pub next: u64,
    /// The way records are sent to it now.
    pub pace: Pace,
    /// Whether it was not heard between the last two quorum checks.
    pub was_silent: bool,
    /// The highest commit index that was sent to it.
    pub told_commit: u64,
}

impl Peer {
    /// A peer of which nothing is known.
    pub fn new() -> Peer {
        Peer { known: Known::default(), next: 1, pace: Pace::Absent, was_silent: false, told_commit: 0 }
    }

    /// Its ledger equals the leader's up to `index`; says whether that is news.
    pub fn on_stored(&mut self, index: u64) -> bool {
        let is_news = index > self.known.stored;
        self.known.stored = self.known.stored.max(index);
        self.next = self.next.max(index + 1);
        if let Pace::Flow(window) = &mut self.pace {
            window.free_through(index);
        }
        is_news
    }

    /// A quorum check ends, and the next begins; a peer that keeps up stores everything up to `wanted`.
    pub fn end_check(&mut self, wanted: u64) {
        self.was_silent = !self.known.end_check(self.known.stored >= wanted);
    }

    /// Whether the heartbeat that leaves now must ask it for an answer, as [`Known::asks`] says: always while it is out of step.
    pub fn asks(&mut self, round: u64, last: u64) -> bool {
        let asks = self.known.asks(round, round, last);
        asks || !matches!(self.pace, Pace::Flow(_))
    }

    /// Whether it was silent for an election timeout, and still is.
    pub fn is_silent(&self) -> bool {
        self.was_silent && !self.known.is_active
    }

    /// Notes that the link is down. The peer keeps what it stores; whether it still knows its leader has to be heard.
    pub fn become_absent(&mut self) {
        self.next = self.known.stored + 1;
        self.pace = Pace::Absent;
    }

    /// It registered: it may have been reborn with less than it stored, if its disk was lost.
    pub fn become_registered(&mut self) {
        let Known { round, priority, .. } = self.known;
        *self = Peer { known: Known { round, priority, ..Known::default() }, ..Peer::new() };
    }

    /// Records flow ahead from now on.
    pub fn become_flow(&mut self) {
        self.next = self.known.stored + 1;
        self.pace = Pace::Flow(Window::default());
    }

    /// The last common record is searched for below `next`.
    pub fn become_probe(&mut self, next: u64) {
        self.next = next.max(self.known.stored + 1);
        self.pace = Pace::Probe;
    }

    /// The peer fetches a snapshot through `pending`. It needs it, so it stores no more than that, whatever it once said.
    pub fn become_fetch(&mut self, pending: u64) {
        self.known.stored = self.known.stored.min(pending);
        self.next = pending + 1;
        self.pace = Pace::Fetch { pending };
    }

    /// Whether no further message may be sent: the window is full, or there is none. An empty window is never full.
    pub fn is_full(&self, limits: &Limits) -> bool {
        match &self.pace {
            Pace::Flow(window) => window.is_full(usize::MAX, limits),
            Pace::Absent | Pace::Probe | Pace::Fetch { .. } => true,
        }
    }

    /// Records up to `last` leave.
    ///
    /// # Panics
    /// When the peer is not in step: it is sent no more than one message of records, as a probe.
    pub fn on_sent(&mut self, last: u64, bytes: usize) {
        let Pace::Flow(window) = &mut self.pace else { unreachable!("records flow only to a peer in step") };
        window.add(last, bytes);
        self.next = last + 1;
    }

    /// Asserts the invariants.
    ///
    /// # Panics
    /// When one of them is violated.
    pub fn assert_invariants(&self) {
        assert!(self.known.stored < self.next, "what is stored was sent: {} < {}", self.known.stored, self.next);
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
