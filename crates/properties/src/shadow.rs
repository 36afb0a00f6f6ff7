//! The state that a member's disk must hold: [`Shadow`].
//!
//! It follows a member's records as they are emitted and as they become durable, without their payloads. After a restart the
//! member must hold a fold of some of its records: all that were reported durable, and perhaps the next few (ST-01, EL-01).

use crate::Violation;
use hustings_core::{Durable, Lsn, NodeId, Promise, Record, Term};
use std::collections::{BTreeMap, VecDeque};

/// A record without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Fact {
    Promise(Promise),
    Established(Term),
    Put(Lsn),
    TruncateFrom(u64),
    Snapshot(Lsn),
    Nothing,
}

impl Fact {
    fn of(record: &Record) -> Fact {
        match record {
            Record::Promise(promise) => Fact::Promise(*promise),
            Record::Established(term) => Fact::Established(*term),
            Record::Put(entry) => Fact::Put(entry.lsn),
            Record::TruncateFrom(index) => Fact::TruncateFrom(*index),
            Record::Snapshot(reference) => Fact::Snapshot(reference.lsn),
            Record::Committed(_) => Fact::Nothing,
        }
    }
}

/// The fold of facts: [`Durable`] without payloads.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Fold {
    /// The promise recorded last.
    pub promise: Promise,
    /// The term established last.
    pub established: Term,
    /// The last entry that the newest snapshot covers.
    pub snapshot: Lsn,
    /// Places of the entries above the snapshot, by index.
    pub slots: BTreeMap<u64, Lsn>,
}

impl Fold {
    fn absorb(&mut self, fact: Fact) {
        match fact {
            Fact::Promise(promise) => self.promise = promise,
            Fact::Established(term) => self.established = term,
            Fact::Put(lsn) if lsn.index > self.snapshot.index => drop(self.slots.insert(lsn.index, lsn)),
            Fact::TruncateFrom(index) => drop(self.slots.split_off(&index)),
            Fact::Snapshot(lsn) if lsn.index >= self.snapshot.index => {
                self.slots = self.slots.split_off(&(lsn.index + 1));
                self.snapshot = lsn;
            }
            Fact::Put(_) | Fact::Snapshot(_) | Fact::Nothing => {}
        }
    }

    /// Whether it holds this entry, or a snapshot that covers it.
    pub fn holds(&self, lsn: Lsn) -> bool {
        lsn.index <= self.snapshot.index || self.slots.get(&lsn.index) == Some(&lsn)
    }

    /// The end of its log.
    pub fn last(&self) -> Lsn {
        self.slots.values().next_back().copied().unwrap_or(self.snapshot).max(self.snapshot)
    }

    /// The place of the entry at `index`; at the end of the snapshot, the snapshot's own place.
    pub fn slot(&self, index: u64) -> Option<Lsn> {
        if index == self.snapshot.index { Some(self.snapshot) } else { self.slots.get(&index).copied() }
    }

    fn is_what(&self, durable: &Durable) -> bool {
        self.promise == durable.promise
            && self.established == durable.established
            && self.snapshot == durable.snapshot.as_ref().map_or(Lsn::ZERO, |reference| reference.lsn)
            && self.slots.len() == durable.entries.len()
            && self.slots.values().eq(durable.entries.values().map(|entry| &entry.lsn))
    }
}

impl From<&Durable> for Fold {
    fn from(durable: &Durable) -> Fold {
        Fold {
            promise: durable.promise,
            established: durable.established,
            snapshot: durable.snapshot.as_ref().map_or(Lsn::ZERO, |reference| reference.lsn),
            slots: durable.entries.values().map(|entry| (entry.lsn.index, entry.lsn)).collect(),
        }
    }
}

/// One member's records, as they were emitted and as they became durable.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Shadow {
    emitted: Fold,
    durable: Fold,
    pending: VecDeque<(u64, Fact)>,
}

impl Shadow {
    /// The fold of all that it wrote, durable or not.
    pub fn emitted(&self) -> &Fold {
        &self.emitted
    }

    /// The fold of all that was reported durable.
    pub fn durable(&self) -> &Fold {
        &self.durable
    }

    pub(crate) fn on_record(&mut self, number: u64, record: &Record) {
        let fact = Fact::of(record);
        self.emitted.absorb(fact);
        self.pending.push_back((number, fact));
    }

    pub(crate) fn on_durable(&mut self, number: u64) {
        while self.pending.front().is_some_and(|(pending, _)| *pending <= number) {
            if let Some((_, fact)) = self.pending.pop_front() {
                self.durable.absorb(fact);
            }
        }
    }

    /// The member came back with this.
    pub(crate) fn on_restart(&mut self, node: NodeId, recovered: &Durable) -> Result<(), Violation> {
        let mut fold = self.durable.clone();
        let mut more = self.pending.drain(..).map(|(_, fact)| fact);
        while !fold.is_what(recovered) {
            let Some(fact) = more.next() else {
                drop(more);
                let holds = Fold::from(recovered);
                let held = std::mem::replace(&mut self.durable, holds.clone());
                self.emitted = holds.clone();
                return Err(Violation::of(
                    "durable-survives",
                    format!(
                        "{node} was told that promise {:?}, snapshot {}, log end {} are durable, and came back with promise \
                         {:?}, snapshot {}, log end {}",
                        held.promise,
                        held.snapshot,
                        held.last(),
                        holds.promise,
                        holds.snapshot,
                        holds.last()
                    ),
                ));
            };
            fold.absorb(fact);
        }
        drop(more);
        self.emitted = fold.clone();
        self.durable = fold;
        Ok(())
    }
}
