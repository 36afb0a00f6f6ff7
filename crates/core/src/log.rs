//! The log in memory since the last snapshot: [`Entry`], [`Log`].

use crate::{Lsn, NodeId, Term};
use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;

/// The node that first proposed an entry and the proposal's number there, so that it can be answered and a second copy
/// recognised (ADR 36, `Replica`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Origin {
    /// The node whose client proposed it.
    pub node: NodeId,
    /// The boot of that node: counters start again with each.
    pub incarnation: u64,
    /// The proposal's number at that node in that boot, from 1.
    pub sequence: u64,
}

impl Origin {
    /// The origin of an entry that nobody waits for: a leader's blank, an advance of the clock.
    pub const NOBODY: Origin = Origin { node: NodeId(0), incarnation: 0, sequence: 0 };
}

/// The kind of an entry, which says how to read its payload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EntryKind {
    /// No payload: a new leader's first entry, or log time passing.
    Blank,
    /// A command of the state machine.
    Command,
    /// A [`crate::MembershipChange`]; the protocol interprets it.
    Membership,
    /// An entry that only the protocol itself interprets.
    Protocol,
}

/// A reading of the log's clock, and the reign in which a leader took it.
///
/// Absolute, so that entries which reach the log twice over, or by the hand of another leader, cannot count the same time
/// twice. See [`crate::replica::clock`] for the rules.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Stamp {
    /// The term of the leader that proposed the entry; an entry that a later leader proposes again keeps it.
    pub term: Term,
    /// Microseconds of log time; 0 where no reading was taken.
    pub micros: u64,
}

impl Stamp {
    /// No reading: what protocols append by themselves carries none.
    pub const NONE: Stamp = Stamp { term: Term(0), micros: 0 };
}

/// One slot of the replicated log.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// Term and index of this entry.
    pub lsn: Lsn,
    /// The kind of the payload.
    pub kind: EntryKind,
    /// The node that proposed it, and the proposal's number there; [`Origin::NOBODY`] if nobody waits for it.
    pub origin: Origin,
    /// Reading of the log's clock when a leader proposed it.
    pub stamp: Stamp,
    /// The encoded command; cheap to clone.
    pub payload: Bytes,
}

/// Bytes that an entry costs besides its payload; a bound on memory must count them, or empty commands are free.
const ENTRY_OVERHEAD: usize = 96;

impl Entry {
    /// A blank of `term` at `index`, proposed by nobody.
    pub fn blank(lsn: Lsn) -> Entry {
        Entry { lsn, kind: EntryKind::Blank, origin: Origin::NOBODY, stamp: Stamp::NONE, payload: Bytes::new() }
    }

    /// Bytes that this entry costs in memory and messages.
    pub fn cost(&self) -> usize {
        self.payload.len() + ENTRY_OVERHEAD
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.lsn)?;
        match self.kind {
            EntryKind::Blank => write!(f, " blank"),
            EntryKind::Command => write!(f, " {:?}", self.payload),
            EntryKind::Membership => write!(f, " membership"),
            EntryKind::Protocol => write!(f, " protocol"),
        }
    }
}

/// Contiguous entries since the last compaction, with the place before the first, counted in bytes.
///
/// The term before the first entry survives compaction (RS-3): without it the first entry could not be checked.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Log {
    base: Lsn,
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl Log {
    /// An empty log that continues after `base`.
    pub fn after(base: Lsn) -> Log {
        Log { base, entries: VecDeque::new(), bytes: 0 }
    }

    /// The place before the first entry: the compaction point.
    pub fn base(&self) -> Lsn {
        self.base
    }

    /// Index of the first entry that is (or would be) held.
    pub fn first_index(&self) -> u64 {
        self.base.index + 1
    }

    /// The last place in history.
    pub fn last(&self) -> Lsn {
        self.entries.back().map_or(self.base, |entry| entry.lsn)
    }

    /// Memory cost of all entries, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of entries in memory.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no entry is in memory.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Term of the entry at `index`; `None` below the compaction point and above the end.
    pub fn term_at(&self, index: u64) -> Option<Term> {
        if index == self.base.index { Some(self.base.term) } else { self.entry(index).map(|entry| entry.lsn.term) }
    }

    /// Whether the log holds an entry with exactly this term and index.
    pub fn has(&self, lsn: Lsn) -> bool {
        self.term_at(lsn.index) == Some(lsn.term)
    }

    /// The place before `index`; `None` where it is compacted away.
    pub fn place_before(&self, index: u64) -> Option<Lsn> {
        let before = index.checked_sub(1)?;
        self.term_at(before).map(|term| Lsn { term, index: before })
    }

    /// The entry at `index`, if held.
    pub fn entry(&self, index: u64) -> Option<&Entry> {
        let offset = index.checked_sub(self.first_index())?;
        self.entries.get(usize::try_from(offset).ok()?)
    }

    /// Entries from `from` on, at most `count` and at most `bytes_max` of cost; the first always fits (RF-1).
    ///
    /// # Panics
    /// When `from` is compacted away: the caller must send a snapshot instead.
    pub fn slice(&self, from: u64, count: usize, bytes_max: usize) -> Vec<Entry> {
        assert!(
            from >= self.first_index(),
            "entries from {from} on are compacted: the log starts at {}",
            self.first_index()
        );
        let start = usize::try_from(from - self.first_index()).expect("a log in memory has fewer entries than usize");
        if start >= self.entries.len() {
            return Vec::new();
        }
        let end = self.entries.len().min(start.saturating_add(count));
        let mut taken = Vec::with_capacity((end - start).min(1024));
        let mut bytes = 0;
        for entry in self.entries.range(start..end) {
            bytes += entry.cost();
            if bytes > bytes_max && !taken.is_empty() {
                break;
            }
            taken.push(entry.clone());
        }
        taken
    }

    /// Appends the next entry.
    ///
    /// # Panics
    /// When `entry` does not directly follow the last, or is of an older term: logs are contiguous and terms in them
    /// grow.
    pub fn append(&mut self, entry: Entry) {
        let last = self.last();
        assert!(entry.lsn.index == last.index + 1, "entry {:?} does not follow {last:?}", entry.lsn);
        assert!(entry.lsn.term >= last.term, "entry {:?} is of an older term than {last:?}", entry.lsn);
        self.bytes += entry.cost();
        self.entries.push_back(entry);
    }

    /// Removes the entry at `index` and all after it.
    ///
    /// # Panics
    /// When `index` is at or below the compaction point: what a snapshot covers is committed.
    pub fn truncate_from(&mut self, index: u64) {
        assert!(
            index > self.base.index,
            "cannot truncate from {index}: all up to {} is in a snapshot",
            self.base.index
        );
        while self.last().index >= index {
            let removed = self.entries.pop_back().expect("the last index is above the base, so an entry is held");
            self.bytes -= removed.cost();
        }
    }

    /// Forgets entries up to and including `index`; keeps its term. Indices below the compaction point change nothing.
    ///
    /// # Panics
    /// When `index` is beyond the end.
    pub fn compact_through(&mut self, index: u64) {
        assert!(index <= self.last().index, "cannot compact through {index}: the log ends at {:?}", self.last());
        while self.base.index < index {
            let removed = self.entries.pop_front().expect("the base is below the end, so an entry is held");
            self.bytes -= removed.cost();
            self.base = removed.lsn;
        }
    }

    /// The highest index at or below `index` whose term is at most `term`, with its term: the guess of a last agreement
    /// (RA-3, RA-4). The term is `None` when the walk reaches what was compacted away.
    pub fn last_at_most(&self, index: u64, term: Term) -> (u64, Option<Term>) {
        let mut at = index.min(self.last().index);
        loop {
            match self.term_at(at) {
                None => return (at, None),
                Some(found) if found <= term => return (at, Some(found)),
                Some(_) if at == 0 => return (0, Some(Term::ZERO)),
                Some(_) => at -= 1,
            }
        }
    }

    /// All entries held, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(terms: &[u64]) -> Log {
        let mut log = Log::default();
        for (offset, term) in terms.iter().enumerate() {
            log.append(Entry::blank(Lsn::new(*term, offset as u64 + 1)));
        }
        log
    }

    #[test]
    fn compaction_keeps_the_term_before_the_first_entry() {
        let mut log = log(&[1, 1, 2, 3]);
        log.compact_through(3);
        assert_eq!((log.base(), log.first_index(), log.last()), (Lsn::new(2, 3), 4, Lsn::new(3, 4)));
        assert_eq!((log.term_at(3), log.term_at(2), log.term_at(5)), (Some(Term(2)), None, None));
    }

    #[test]
    fn bytes_are_counted_in_and_out() {
        let mut log = log(&[1, 1, 2]);
        let full = log.bytes();
        log.truncate_from(3);
        log.compact_through(1);
        assert_eq!(log.bytes() * 3, full);
        log.truncate_from(2);
        assert_eq!((log.bytes(), log.is_empty()), (0, true));
    }

    #[test]
    fn the_first_entry_of_a_slice_always_fits() {
        let log = log(&[1, 1, 1]);
        assert_eq!(log.slice(1, 10, 1).len(), 1);
        assert_eq!(log.slice(2, 10, usize::MAX).len(), 2);
        assert_eq!(log.slice(4, 10, usize::MAX).len(), 0);
    }

    #[test]
    #[should_panic(expected = "does not follow")]
    fn a_gap_is_impossible() {
        log(&[1]).append(Entry::blank(Lsn::new(1, 3)));
    }

    #[test]
    #[should_panic(expected = "is in a snapshot")]
    fn what_a_snapshot_covers_is_never_truncated() {
        let mut log = log(&[1, 1]);
        log.compact_through(2);
        log.truncate_from(2);
    }
}
