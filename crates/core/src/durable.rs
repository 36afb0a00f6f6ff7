//! State that must survive a crash: [`Record`], and the fold of all records, [`Durable`].

use crate::{Entry, Lsn, Membership, Promise, Term};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A snapshot by name: the place it covers, and the length and checksum by which it is known to be complete. Its bytes live with the host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SnapshotReference {
    /// The last entry that it covers.
    pub lsn: Lsn,
    /// The membership in force at that place.
    pub membership: Arc<Membership>,
    /// Length of the encoded snapshot, in bytes.
    pub bytes: u64,
    /// CRC32C of the encoded snapshot.
    pub digest: u32,
}

/// The union of what the protocols must never forget.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Record {
    /// A new promise: nobody of an older term is helped, and one vote in this term.
    Promise(Promise),
    /// The last term whose leader this node has synchronised with (ZAB's currentEpoch, BlazingMQ's snapshot term).
    Established(Term),
    /// Fills or replaces one slot; never truncates.
    Put(Entry),
    /// Empties the slot `from` and all above.
    TruncateFrom(u64),
    /// All slots up to its place are in this snapshot; slots above stay.
    Snapshot(SnapshotReference),
    /// All up to here is committed. Never synced alone: it rides in the batch of any later record.
    Committed(Lsn),
}

impl Record {
    /// Whether the record by itself asks for a sync. A commit index does not: it may fall back at a restart (RH-9).
    pub fn wants_sync(&self) -> bool {
        !matches!(self, Record::Committed(_))
    }
}

/// The fold of a node's records: what it is born with after a crash. Holes are legal.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Durable {
    /// The promise recorded last.
    pub promise: Promise,
    /// The last term whose leader this node has synchronised with.
    pub established: Term,
    /// The newest snapshot; `None` if there never was one.
    pub snapshot: Option<SnapshotReference>,
    /// Entries above the snapshot, by index.
    pub entries: BTreeMap<u64, Entry>,
    /// The last commit that reached the disk.
    pub committed: Lsn,
}

impl Durable {
    /// Takes in the next record.
    ///
    /// # Panics
    /// When a promise would move backwards or a vote would be taken back: the protocol that emitted it is broken, and
    /// going on would elect two leaders.
    pub fn absorb(&mut self, record: Record) {
        match record {
            Record::Promise(promise) => {
                assert!(
                    self.promise.may_become(&promise),
                    "promises only grow and votes stay: {:?} cannot become {promise:?}",
                    self.promise
                );
                self.promise = promise;
            }
            Record::Established(term) => {
                assert!(term >= self.established, "the established term only grows");
                self.established = term;
            }
            Record::Put(entry) => {
                if entry.lsn.index > self.snapshot_index() {
                    self.entries.insert(entry.lsn.index, entry);
                }
            }
            Record::TruncateFrom(index) => drop(self.entries.split_off(&index)),
            Record::Snapshot(reference) => {
                if self.snapshot.as_ref().is_none_or(|old| old.lsn.index <= reference.lsn.index) {
                    self.entries = self.entries.split_off(&(reference.lsn.index + 1));
                    self.committed = self.committed.max(reference.lsn);
                    self.snapshot = Some(reference);
                }
            }
            Record::Committed(lsn) => {
                if lsn.index > self.committed.index {
                    self.committed = lsn;
                }
            }
        }
    }

    /// Index that the snapshot covers; 0 without one.
    pub fn snapshot_index(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |reference| reference.lsn.index)
    }

    /// The last place in history, for protocols that fill slots in order: what stands behind a gap, or behind an entry of a later
    /// term, was never acknowledged.
    pub fn last(&self) -> Lsn {
        let mut last = self.snapshot.as_ref().map_or(Lsn::ZERO, |reference| reference.lsn);
        for entry in self.entries.values() {
            if entry.lsn.index != last.index + 1 || entry.lsn.term < last.term {
                break;
            }
            last = entry.lsn;
        }
        last
    }

    /// Whether nothing was ever recorded: a blank disk.
    pub fn is_blank(&self) -> bool {
        *self == Durable::default()
    }
}

impl FromIterator<Record> for Durable {
    fn from_iter<I: IntoIterator<Item = Record>>(records: I) -> Durable {
        let mut durable = Durable::default();
        records.into_iter().for_each(|record| durable.absorb(record));
        durable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    fn put(term: u64, index: u64) -> Record {
        Record::Put(Entry::blank(Lsn::new(term, index)))
    }

    fn snapshot(term: u64, index: u64) -> Record {
        let membership = Arc::new(Membership::of_voters([NodeId(1)]));
        Record::Snapshot(SnapshotReference { lsn: Lsn::new(term, index), membership, bytes: 0, digest: 0 })
    }

    #[test]
    fn a_put_replaces_one_slot_and_leaves_the_rest() {
        let durable: Durable = [put(1, 1), put(1, 2), put(1, 4), put(2, 1)].into_iter().collect();
        let slots: Vec<_> = durable.entries.values().map(|entry| entry.lsn).collect();
        assert_eq!(slots, [Lsn::new(2, 1), Lsn::new(1, 2), Lsn::new(1, 4)]);
    }

    #[test]
    fn a_snapshot_swallows_the_slots_below_and_keeps_those_above() {
        let durable: Durable = [put(1, 1), put(1, 2), put(1, 3), snapshot(1, 2), put(1, 1)].into_iter().collect();
        assert_eq!(durable.entries.keys().copied().collect::<Vec<_>>(), [3]);
        assert_eq!(durable.committed, Lsn::new(1, 2));
    }

    #[test]
    fn the_last_place_is_before_what_a_crash_left_unconnected() {
        let last = |records: Vec<Record>| records.into_iter().collect::<Durable>().last();
        assert_eq!(last(vec![put(1, 1), put(2, 2), put(2, 4)]), Lsn::new(2, 2), "a gap");
        assert_eq!(last(vec![put(3, 1), put(2, 2)]), Lsn::new(3, 1), "an older term behind a newer one");
        assert_eq!(last(vec![snapshot(2, 5), put(2, 6)]), Lsn::new(2, 6));
        assert_eq!(last(vec![snapshot(2, 5), put(2, 7)]), Lsn::new(2, 5));
        assert_eq!(last(Vec::new()), Lsn::ZERO);
    }

    #[test]
    #[should_panic(expected = "votes stay")]
    fn a_vote_taken_back_is_an_impossible_state() {
        let _: Durable =
            [Record::Promise(Promise::vote(Term(1), NodeId(1))), Record::Promise(Promise::vote(Term(1), NodeId(2)))]
                .into_iter()
                .collect();
    }
}
