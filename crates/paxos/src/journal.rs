//! The values that this node has accepted, slot by slot: [`Journal`].
//!
//! Unlike a log it may have holes, and a slot's ballot may be replaced by a higher one until the slot is committed
//! (TI-3). Through the commit it has none, and nothing changes any more (TI-7).

use hustings_core::leading::History;
use hustings_core::leading::history::index_beyond;
use hustings_core::{Entry, Lsn, Record, Term};
use std::collections::BTreeMap;

/// Accepted slots above the compaction point.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Journal {
    base: Lsn,
    slots: BTreeMap<u64, Entry>,
}

impl Journal {
    /// A journal that has accepted nothing after `base`.
    pub fn after(base: Lsn) -> Journal {
        Journal { base, slots: BTreeMap::new() }
    }

    /// The last place that was compacted away.
    pub fn base(&self) -> Lsn {
        self.base
    }

    /// Index of the first slot that is (or would be) held.
    pub fn first_index(&self) -> u64 {
        self.base.index + 1
    }

    /// The highest slot in which something was accepted, with its ballot.
    pub fn last(&self) -> Lsn {
        self.slots.values().next_back().map_or(self.base, |entry| entry.lsn)
    }

    /// The value accepted in a slot; `None` if there is none, or it is trimmed.
    pub fn slot(&self, index: u64) -> Option<&Entry> {
        self.slots.get(&index)
    }

    /// Ballot at which a slot was accepted; of the base, its own.
    pub fn ballot_at(&self, index: u64) -> Option<Term> {
        if index == self.base.index { Some(self.base.term) } else { self.slots.get(&index).map(|entry| entry.lsn.term) }
    }

    /// Fills or replaces a slot.
    ///
    /// # Panics
    /// When the slot is compacted away, or held at a higher ballot: what was accepted is given up for nothing older
    /// (TI-3).
    pub fn put(&mut self, entry: Entry) {
        let index = entry.lsn.index;
        assert!(index > self.base.index, "slot {index} is compacted away");
        let held = self.ballot_at(index);
        assert!(held.is_none_or(|held| held <= entry.lsn.term), "slot {index} is held at {held:?} already (TI-3)");
        self.slots.insert(index, entry);
    }

    /// The highest slot, `through` at most, such that all after `index` through it are held at this ballot.
    pub fn run_at(&self, index: u64, through: u64, ballot: Term) -> u64 {
        let mut end = index;
        if through <= index {
            return index;
        }
        for (slot, entry) in self.slots.range(index + 1..=through) {
            if *slot != end + 1 || entry.lsn.term != ballot {
                break;
            }
            end = *slot;
        }
        end
    }

    /// Slots `from..=through`, at most `bytes_max` of cost; the first always fits. Says whether that is all there is.
    pub fn slice(&self, from: u64, through: u64, bytes_max: usize) -> (Vec<Entry>, bool) {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        if from > through {
            return (taken, true);
        }
        for entry in self.slots.range(from..=through).map(|(_, entry)| entry) {
            bytes += entry.cost();
            if bytes > bytes_max && !taken.is_empty() {
                return (taken, false);
            }
            taken.push(entry.clone());
        }
        (taken, true)
    }

    /// Whether the slots after `index`, through `through`, cost more than this many bytes.
    pub fn is_longer_than(&self, bytes_max: usize, index: u64, through: u64) -> bool {
        let mut bytes = 0;
        let mut is_reached = |entry: &Entry| {
            bytes += entry.cost();
            bytes > bytes_max
        };
        index < through && self.slots.range(index + 1..=through).any(|(_, entry)| is_reached(entry))
    }

    /// All slots held, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.slots.values()
    }
}

impl History for Journal {
    fn base(&self) -> Lsn {
        self.base
    }

    fn last(&self) -> Lsn {
        Journal::last(self)
    }

    fn term_at(&self, index: u64) -> Option<Term> {
        self.ballot_at(index)
    }

    fn compact_through(&mut self, index: u64) {
        if let Some(term) = self.ballot_at(index) {
            self.restart_after(Lsn { term, index });
        }
    }

    fn beyond(&self, through: u64, bytes_max: usize) -> u64 {
        index_beyond(self.slots.range(..=through).rev().map(|(_, entry)| entry), bytes_max)
    }

    /// Values accepted behind it stay: an acceptor forgets nothing.
    fn restart_after(&mut self, lsn: Lsn) -> Option<Record> {
        self.slots = self.slots.split_off(&(lsn.index + 1));
        self.base = lsn;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(slots: &[(u64, u64)]) -> Journal {
        let mut journal = Journal::default();
        for (term, index) in slots {
            journal.put(Entry::blank(Lsn::new(*term, *index)));
        }
        journal
    }

    #[test]
    fn slots_are_filled_in_any_order_and_replaced_by_higher_ballots() {
        let journal = journal(&[(1, 3), (1, 1), (2, 3)]);
        assert_eq!((journal.last(), journal.ballot_at(2)), (Lsn::new(2, 3), None));
    }

    #[test]
    #[should_panic(expected = "TI-3")]
    fn what_was_accepted_is_given_up_for_nothing_older() {
        journal(&[(2, 1), (1, 1)]);
    }

    #[test]
    fn a_run_ends_at_the_first_hole_or_other_ballot() {
        let journal = journal(&[(2, 1), (2, 2), (1, 3), (2, 4), (2, 6)]);
        assert_eq!(
            (journal.run_at(0, 9, Term(2)), journal.run_at(3, 9, Term(2)), journal.run_at(9, 9, Term(2))),
            (2, 4, 9)
        );
        assert_eq!(journal.run_at(0, 1, Term(2)), 1);
    }
}
