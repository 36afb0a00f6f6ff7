//! Sending entries to a follower: [`Window`], and over links that lose, reorder and duplicate, [`Progress`].
//!
//! ```text
//!            refused, link down                  needs compacted entries
//!      Flow ───────────────────► Probe ──────────────────────────────► Fetch
//!        ▲                         │ stored                              │ stored, failed
//!        └─────────────────────────┘◄────────────────────────────────────┘
//! ```
//!
//! Sources: RA-4 to RA-9, RI-13, RI-14; etcd/raft `tracker`.

use super::Known;
use crate::{Entry, Limits, Log, Lsn};
use std::collections::VecDeque;

/// Messages of entries in flight, by the last index of each, bounded in number and bytes.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Window {
    /// (last index, cost in bytes), oldest first.
    inflight: VecDeque<(u64, usize)>,
    bytes: usize,
}

impl Window {
    /// A message leaves that ends at `last`.
    ///
    /// # Panics
    /// When indices do not ascend (RI-14).
    pub fn add(&mut self, last: u64, bytes: usize) {
        assert!(self.inflight.back().is_none_or(|(before, _)| *before < last), "in-flight indices ascend");
        self.inflight.push_back((last, bytes));
        self.bytes += bytes;
    }

    /// Messages that end at or below `index` have arrived.
    pub fn free_through(&mut self, index: u64) {
        while let Some((last, bytes)) = self.inflight.front().copied()
            && last <= index
        {
            self.inflight.pop_front();
            self.bytes -= bytes;
        }
    }

    /// Whether no further message may be sent. An empty window is never full: one message always goes.
    pub fn is_full(&self, messages_max: usize, limits: &Limits) -> bool {
        let messages_max = messages_max.min(limits.inflight_messages_max);
        !self.inflight.is_empty() && (self.inflight.len() >= messages_max || self.bytes >= limits.inflight_bytes_max)
    }

    /// Number of messages in flight.
    pub fn len(&self) -> usize {
        self.inflight.len()
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.inflight.is_empty()
    }
}

/// The way entries are sent to a follower over links that lose messages.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Pace {
    /// The point of agreement is unknown: one message of entries, then silence, until an answer.
    Probe {
        /// Whether entries were sent and the answer is awaited.
        is_paused: bool,
    },
    /// The log is in step: messages flow ahead of their acknowledgements.
    Flow(Window),
    /// The follower fetches a snapshot through this index; no entries are sent.
    Fetch {
        /// The last index that the snapshot covers.
        pending: u64,
    },
}

/// One follower, as its leader sees it over links that lose.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Progress {
    /// Its state as far as it is the same under every protocol.
    pub known: Known,
    /// The next index to send.
    pub next: u64,
    /// The way entries are sent to it now.
    pub pace: Pace,
    /// Messages of entries that may be in flight to it: one after a refusal, one more for each acknowledgement.
    ///
    /// Where messages overtake each other, every message behind the late one is refused, and any acknowledgement ends the
    /// probe. A whole window at once would then cost a window for each pair of answers, and each of those another.
    pub in_flight_max: usize,
    /// The highest commit index that was sent to it.
    pub told_commit: u64,
}

/// The next thing to send to a follower.
pub enum Portion {
    /// Entries behind this place; perhaps none, to probe.
    Entries {
        /// The place before them.
        previous: Lsn,
        /// Contiguous entries, the first right behind `previous`.
        entries: Vec<Entry>,
        /// Whether an answer must come before the next message.
        is_probe: bool,
    },
    /// The snapshot: entries that it needs are compacted away.
    Snapshot,
}

impl Progress {
    /// A follower of which nothing is known but that its log may end at `last` (RM-7).
    pub fn new(last: u64) -> Progress {
        let pace = Pace::Probe { is_paused: false };
        Progress { known: Known::default(), next: last + 1, pace, in_flight_max: usize::MAX, told_commit: 0 }
    }

    /// Its log equals the leader's up to `index`; says whether that is news.
    pub fn on_stored(&mut self, index: u64) -> bool {
        let is_news = index > self.known.stored;
        self.known.stored = self.known.stored.max(index);
        self.in_flight_max = self.in_flight_max.saturating_add(usize::from(is_news));
        match &mut self.pace {
            Pace::Flow(window) => window.free_through(index),
            // It has what it fetched, or more: whether the log can go on from there, or it takes another one, is found
            // anew.
            Pace::Fetch { pending } if index >= *pending => self.become_probe(index + 1),
            Pace::Fetch { .. } => return is_news,
            Pace::Probe { .. } => {}
        }
        self.next = self.next.max(index + 1);
        is_news
    }

    /// Entries flow ahead from now on.
    pub fn become_flow(&mut self) {
        self.next = self.known.stored + 1;
        self.pace = Pace::Flow(Window::default());
    }

    /// The point of agreement must be found, from `next` on.
    pub fn become_probe(&mut self, next: u64) {
        self.next = next.max(self.known.stored + 1);
        self.pace = Pace::Probe { is_paused: false };
    }

    /// The follower fetches a snapshot through `pending`.
    pub fn become_fetch(&mut self, pending: u64) {
        self.next = pending + 1;
        self.pace = Pace::Fetch { pending };
    }

    /// The snapshot through `index` could not be had. Not in a tight loop: the answer to the next heartbeat leads to
    /// another offer.
    pub fn on_fetch_failed(&mut self, index: u64) {
        self.known.is_active = true;
        if self.pace == (Pace::Fetch { pending: index }) {
            self.become_probe(self.known.stored + 1);
            self.pace = Pace::Probe { is_paused: true };
        }
    }

    /// Whether the heartbeat that leaves now must ask it for an answer, as [`Known::asks`] says: always while it is out of step.
    pub fn asks(&mut self, round: u64, last: u64) -> bool {
        let asks = self.known.asks(round, round, last);
        asks || !matches!(self.pace, Pace::Flow(_))
    }

    /// Lets a probe go again, since a heartbeat was answered.
    pub fn unpause(&mut self) {
        if let Pace::Probe { is_paused } = &mut self.pace {
            *is_paused = false;
        }
    }

    /// Whether nothing may be sent now: an answer is awaited, the window is full, or nothing is left.
    pub fn is_paused(&self, last: u64, limits: &Limits) -> bool {
        match &self.pace {
            Pace::Probe { is_paused } => *is_paused,
            Pace::Flow(window) => self.next > last || window.is_full(self.in_flight_max, limits),
            Pace::Fetch { .. } => true,
        }
    }

    /// RA-6: the next message of entries, which counts as sent: a probe at a time, or optimistically until the window is
    /// full; RA-7: a snapshot where entries are gone. `None` when nothing may be sent now.
    pub fn next_portion(&mut self, log: &Log, commit: u64, limits: &Limits) -> Option<Portion> {
        if self.is_paused(log.last().index, limits) {
            return None;
        }
        let Some(previous) = log.place_before(self.next) else { return Some(Portion::Snapshot) };
        let entries = log.slice(self.next, usize::MAX, limits.message_bytes_max);
        let end = previous.index + entries.len() as u64;
        let is_probe = match &mut self.pace {
            Pace::Probe { is_paused } => {
                *is_paused = true;
                true
            }
            Pace::Flow(window) => {
                window.add(end, entries.iter().map(Entry::cost).sum());
                self.next = end + 1;
                false
            }
            Pace::Fetch { .. } => unreachable!("a follower that fetches a snapshot is sent no entries"),
        };
        self.told_commit = self.told_commit.max(commit.min(end));
        Some(Portion::Entries { previous, entries, is_probe })
    }

    /// Asserts the invariants (RI-13).
    ///
    /// # Panics
    /// When one of them is violated.
    pub fn assert_invariants(&self) {
        assert!(self.known.stored < self.next, "what is stored was sent: {} < {}", self.known.stored, self.next);
        if let Pace::Fetch { pending } = self.pace {
            assert_eq!(self.next, pending + 1, "after a snapshot comes the entry behind it");
        }
    }
}

impl AsRef<Known> for Progress {
    fn as_ref(&self) -> &Known {
        &self.known
    }
}

impl AsMut<Known> for Progress {
    fn as_mut(&mut self) -> &mut Known {
        &mut self.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(entries: u64) -> Log {
        let mut log = Log::default();
        (1..=entries).for_each(|index| log.append(Entry::blank(Lsn::new(1, index))));
        log
    }

    fn sent(progress: &mut Progress, log: &Log) -> Option<(u64, usize, bool)> {
        let limits = Limits { message_bytes_max: 1, ..Limits::default() };
        match progress.next_portion(log, 0, &limits)? {
            Portion::Entries { previous, entries, is_probe } => Some((previous.index, entries.len(), is_probe)),
            Portion::Snapshot => None,
        }
    }

    #[test]
    fn a_probe_waits_for_its_answer_and_then_entries_flow() {
        let log = log(3);
        let mut progress = Progress::new(0);
        assert_eq!(sent(&mut progress, &log), Some((0, 1, true)));
        assert_eq!(sent(&mut progress, &log), None, "an answer is awaited");
        assert!(progress.on_stored(1));
        progress.become_flow();
        assert_eq!(sent(&mut progress, &log), Some((1, 1, false)));
        assert_eq!(sent(&mut progress, &log), Some((2, 1, false)), "ahead of the acknowledgement");
        assert_eq!(sent(&mut progress, &log), None, "nothing is left");
    }

    #[test]
    fn a_full_window_opens_with_each_acknowledgement() {
        let limits = Limits { inflight_messages_max: 2, ..Limits::default() };
        let mut window = Window::default();
        assert!(!window.is_full(0, &limits), "one message always goes");
        window.add(1, 10);
        window.add(2, 10);
        assert!(window.is_full(usize::MAX, &limits));
        window.free_through(1);
        assert!(!window.is_full(usize::MAX, &limits) && window.is_full(1, &limits));
        let narrow = Limits { inflight_bytes_max: 10, ..limits };
        assert!(window.is_full(usize::MAX, &narrow), "bytes count as well");
    }

    #[test]
    fn a_follower_that_holds_more_than_its_snapshot_is_probed_behind_it() {
        // The log may be compacted beyond both: what it needs then is found anew, and no invariant is broken meanwhile.
        let mut progress = Progress::new(10);
        progress.become_fetch(20);
        assert!(progress.on_stored(15));
        progress.assert_invariants();
        assert_eq!(progress.pace, Pace::Fetch { pending: 20 });
        assert!(progress.on_stored(25));
        progress.assert_invariants();
        assert!(matches!(progress.pace, Pace::Probe { .. }) && progress.next == 26);
    }

    #[test]
    fn a_snapshot_that_failed_is_offered_again_only_after_a_heartbeat() {
        let mut progress = Progress::new(10);
        progress.become_fetch(20);
        progress.on_fetch_failed(19);
        assert_eq!(progress.pace, Pace::Fetch { pending: 20 }, "that was another one");
        progress.on_fetch_failed(20);
        assert_eq!(progress.pace, Pace::Probe { is_paused: true });
        progress.unpause();
        assert!(!progress.is_paused(10, &Limits::default()));
    }

    #[test]
    fn what_is_compacted_away_comes_by_snapshot() {
        let mut log = log(5);
        log.compact_through(3);
        let mut progress = Progress::new(0);
        let portion = progress.next_portion(&log, 0, &Limits::default());
        assert!(matches!(portion, Some(Portion::Snapshot)));
    }
}
