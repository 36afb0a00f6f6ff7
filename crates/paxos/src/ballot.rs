//! Ballots, quorums, promises, and the one way to an [`Accept`].
//!
//! A ballot is a [`Term`] packed of counter and node (§1.2): one node never uses one twice, so (slot, ballot) names at
//! most one value (TI-4). A leader proposes in a slot only what the promises for *exactly its ballot* allow (TI-5). The
//! types say so: an [`Accept`] is made of a [`Prepared`] slot, and only [`Promises::prepared`] gives one out, once a
//! promise quorum covers the slot. To raise a ballot is to begin with no promises, so to raise it without a prepare
//! round (TH-1, TH-2) is to have nothing to say.
//!
//! *Covers*: a node that answers a prepare from slot s on reports everything that it accepted there, through some slot;
//! the last answer of a node covers all slots without end, for it had accepted nothing there and will not in a lower
//! ballot.

use crate::laboratory::Published;
use bytes::Bytes;
use hustings_core::{Entry, EntryKind, Lsn, Membership, NodeId, Term};
use std::collections::BTreeMap;

/// The ballot of `node` after all of these.
pub fn ballot_above(highest: Term, node: NodeId) -> Term {
    Term::packed(highest.counter() + 1, node.0)
}

/// The highest value that so many voters have reached; 0 when there are not so many.
pub fn reached(membership: &Membership, needed: usize, value: impl Fn(NodeId) -> u64) -> u64 {
    let mut values: Vec<u64> = membership.all_voters().map(value).collect();
    values.sort_unstable_by(|a, b| b.cmp(a));
    needed.checked_sub(1).and_then(|place| values.get(place).copied()).unwrap_or(0)
}

/// A proposal for one slot: the value, at the ballot at which a promise quorum prepared the slot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Accept(Entry);

impl Accept {
    /// The value for a prepared slot; its place in history becomes the slot's.
    pub fn of(slot: Prepared, value: Entry) -> Accept {
        let Prepared { ballot, slot } = slot;
        Accept(Entry { lsn: Lsn { term: ballot, index: slot }, ..value })
    }

    /// An accept that a peer made and sent, taken as it came.
    pub(crate) fn received(entry: Entry) -> Accept {
        Accept(entry)
    }

    /// A value at a ballot that nobody prepared: what both published versions do (TH-1, TH-2).
    pub(crate) fn forged(_: Published, entry: Entry) -> Accept {
        Accept(entry)
    }

    /// The value with its place.
    pub fn entry(&self) -> &Entry {
        &self.0
    }

    /// The entry inside, by value.
    pub fn into_entry(self) -> Entry {
        self.0
    }

    /// Shows the value's payload: an accept that is kept without it is never proposed.
    pub(crate) fn visit_payload(&mut self, visit: &mut dyn FnMut(EntryKind, &mut Bytes)) {
        visit(self.0.kind, &mut self.0.payload);
    }
}

/// A slot that a promise quorum has prepared for a ballot. Made by [`Promises::prepared`] alone; used up by
/// [`Accept::of`].
#[derive(PartialEq, Eq, Debug)]
pub struct Prepared {
    ballot: Term,
    slot: u64,
}

/// The promises for one ballot of this node, from one slot on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Promises {
    ballot: Term,
    from: u64,
    /// Last slot through which each node's answers report what it accepted; `u64::MAX` is without end.
    covered: BTreeMap<NodeId, u64>,
    /// Reported values: of each slot the one of the highest ballot.
    accepted: BTreeMap<u64, Entry>,
}

impl Promises {
    /// Nobody has promised anything yet.
    pub fn new(ballot: Term, from: u64) -> Promises {
        Promises { ballot, from, covered: BTreeMap::new(), accepted: BTreeMap::new() }
    }

    /// The ballot that was promised.
    pub fn ballot(&self) -> Term {
        self.ballot
    }

    /// Takes in an answer; says whether it is news. An answer that leaves a gap to the node's last one is dropped.
    pub fn take(&mut self, node: NodeId, from: u64, through: u64, accepted: Vec<Entry>) -> bool {
        let known = self.covered_by(node);
        if from > known.saturating_add(1) || (self.covered.contains_key(&node) && through <= known) {
            return false;
        }
        for entry in accepted {
            let slot = entry.lsn.index;
            if self.accepted.get(&slot).is_none_or(|known| known.lsn.term < entry.lsn.term) {
                self.accepted.insert(slot, entry);
            }
        }
        self.covered.insert(node, through);
        true
    }

    /// Asks no more about slots before this one, which are committed.
    pub fn start_at(&mut self, slot: u64) {
        self.from = self.from.max(slot);
        self.forget_through(slot - 1);
    }

    /// Last slot that this node's answers cover, or that is committed.
    pub fn covered_by(&self, node: NodeId) -> u64 {
        self.covered.get(&node).copied().unwrap_or(0).max(self.from - 1)
    }

    /// Nodes that have answered at all.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.covered.keys().copied().collect()
    }

    /// Last slot that this many voters have answered for.
    pub fn frontier(&self, membership: &Membership, needed: usize) -> u64 {
        reached(membership, needed, |id| self.covered_by(id))
    }

    /// The highest slot in which anybody accepted anything.
    pub fn highest_accepted(&self) -> u64 {
        self.accepted.keys().next_back().copied().unwrap_or(0)
    }

    /// The slot, if so many voters of this membership have prepared it.
    pub fn prepared(&self, slot: u64, membership: &Membership, needed: usize) -> Option<Prepared> {
        let is_covered = slot >= self.from && self.frontier(membership, needed) >= slot;
        is_covered.then_some(Prepared { ballot: self.ballot, slot })
    }

    /// The value that must be proposed in a prepared slot: of the highest ballot that was reported (TR-3 b).
    pub fn value_at(&self, slot: u64) -> Option<Entry> {
        self.accepted.get(&slot).cloned()
    }

    /// Forgets the values of slots up to this one, which are committed.
    pub fn forget_through(&mut self, slot: u64) {
        self.accepted = self.accepted.split_off(&(slot + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voters(count: u64) -> Membership {
        Membership::of_voters((1..=count).map(NodeId))
    }

    #[test]
    fn a_slot_is_prepared_by_a_quorum_that_covers_it_and_by_nothing_less() {
        let mut promises = Promises::new(Term::packed(2, 1), 5);
        assert!(promises.take(NodeId(1), 5, u64::MAX, vec![]));
        assert_eq!(promises.prepared(5, &voters(3), 2), None);
        assert!(promises.take(NodeId(2), 5, 6, vec![Entry::blank(Lsn::new(1, 6))]));
        assert!(promises.prepared(6, &voters(3), 2).is_some());
        assert_eq!(promises.prepared(7, &voters(3), 2), None, "an answer that ends at 6 says nothing of 7");
        assert_eq!(promises.prepared(4, &voters(3), 2), None, "what was not asked about is not prepared");
        assert!(!promises.take(NodeId(2), 8, 9, vec![]), "a gap is dropped");
        assert!(promises.take(NodeId(2), 7, u64::MAX, vec![]));
        assert!(promises.prepared(700, &voters(3), 2).is_some());
    }

    #[test]
    fn of_what_was_reported_the_highest_ballot_counts() {
        let mut promises = Promises::new(Term::packed(9, 1), 1);
        promises.take(NodeId(1), 1, u64::MAX, vec![Entry::blank(Lsn { term: Term::packed(3, 2), index: 1 })]);
        promises.take(NodeId(2), 1, u64::MAX, vec![Entry::blank(Lsn { term: Term::packed(2, 3), index: 1 })]);
        assert_eq!(promises.value_at(1).map(|entry| entry.lsn.term), Some(Term::packed(3, 2)));
        assert_eq!(promises.value_at(2), None);
    }
}
