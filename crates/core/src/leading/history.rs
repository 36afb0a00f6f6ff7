//! The questions that every kind of log answers, so that snapshots, statuses and transitions are the same for all: [`History`].

use crate::{Entry, Log, Lsn, Record, Term};
use std::fmt::Debug;
use std::hash::Hash;

/// The entries that a node holds above its last snapshot, in order ([`Log`]) or slot by slot (Paxos' journal).
pub trait History: Clone + Eq + Hash + Debug {
    /// The place before the first entry: the compaction point.
    fn base(&self) -> Lsn;
    /// Term and index of the last entry.
    fn last(&self) -> Lsn;
    /// The term at `index`; `None` where nothing is held.
    fn term_at(&self, index: u64) -> Option<Term>;
    /// Forgets entries up to and including `index`, which is committed; keeps its term.
    fn compact_through(&mut self, index: u64);
    /// The highest index at which the entries behind it, up to and including `through`, cost more than `bytes_max` together with
    /// its own; 0 where all of them fit.
    fn beyond(&self, through: u64, bytes_max: usize) -> u64;
    /// Everything up to `lsn` is in a snapshot that comes from elsewhere. Gives the record that cuts off what stood
    /// behind it, unless that stays.
    fn restart_after(&mut self, lsn: Lsn) -> Option<Record>;

    /// Whether exactly this place is held.
    fn has(&self, lsn: Lsn) -> bool {
        self.term_at(lsn.index) == Some(lsn.term)
    }
}

/// Computes [`History::beyond`], given the entries from the last to the first.
pub fn index_beyond<'e>(entries: impl Iterator<Item = &'e Entry>, bytes_max: usize) -> u64 {
    let mut bytes = 0;
    let mut summed = entries.map(|entry| {
        bytes += entry.cost();
        (entry.lsn.index, bytes)
    });
    summed.find(|(_, bytes)| *bytes > bytes_max).map_or(0, |(index, _)| index)
}

impl History for Log {
    fn base(&self) -> Lsn {
        Log::base(self)
    }

    fn last(&self) -> Lsn {
        Log::last(self)
    }

    fn term_at(&self, index: u64) -> Option<Term> {
        Log::term_at(self, index)
    }

    fn compact_through(&mut self, index: u64) {
        Log::compact_through(self, index);
    }

    fn beyond(&self, through: u64, bytes_max: usize) -> u64 {
        if self.bytes() <= bytes_max {
            // All of it is within the bound, and mostly is: no need to look at each entry.
            return 0;
        }
        index_beyond(self.iter().rev().skip_while(|entry| entry.lsn.index > through), bytes_max)
    }

    fn restart_after(&mut self, lsn: Lsn) -> Option<Record> {
        *self = Log::after(lsn);
        Some(Record::TruncateFrom(lsn.index + 1))
    }
}
