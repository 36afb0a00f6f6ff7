//! A leaf of a [`Tree`](super::Tree): pointers to versions, and a head of each.
//!
//! A search that read the place of each version on its way would wait for memory four or five times: versions stand all over a store of
//! millions. So a leaf keeps four bytes of each place, those behind what all its places have in common, and a search looks at one
//! version or two.

use std::{cmp::Ordering, marker::PhantomData};

use arrayvec::ArrayVec;
use triomphe::Arc;

use super::node::{Entry, Inserted, Node};
use crate::{order::Order, version::Version};

/// So many pointers and heads take 256 bytes, with a count of holders and three numbers.
pub(super) const LEAF_VERSIONS: usize = 19;

/// Versions in their order.
pub(super) struct Leaf<O: Order> {
    versions: ArrayVec<Version, LEAF_VERSIONS>,
    /// The heads of the versions, in the same order.
    heads: ArrayVec<u32, LEAF_VERSIONS>,
    /// How much all places have in common; the heads begin behind it.
    common: u32,
    order: PhantomData<O>,
}

impl<O: Order> Leaf<O> {
    /// These versions, which are in their order.
    pub(super) fn new(versions: ArrayVec<Version, LEAF_VERSIONS>) -> Leaf<O> {
        let mut leaf = Leaf { versions, heads: ArrayVec::new(), common: 0, order: PhantomData };
        leaf.take_heads();
        leaf
    }

    pub(super) fn versions(&self) -> &[Version] {
        &self.versions
    }

    /// A version, to be replaced by another one of the same place.
    pub(super) fn version_mut(&mut self, at: usize) -> &mut Version {
        &mut self.versions[at]
    }

    /// Index of the version at a place, or the one that it would have.
    pub(super) fn find(&self, place: O::Place<'_>) -> Result<usize, usize> {
        let head = O::head(place, self.common);
        let first = self.heads.partition_point(|other| *other < head);
        let alike = self.heads[first..].partition_point(|other| *other == head);
        let Some(one) = self.neighbour(first) else { return Err(0) };
        if !O::is_alike(one, place, self.common) {
            // It is before or behind all of them: what they have in common, it has not.
            return Err(if O::compare(one, place) == Ordering::Less { self.versions.len() } else { 0 });
        }
        let among = self.versions[first..first + alike].binary_search_by(|version| O::compare(version, place));
        among.map(|at| first + at).map_err(|at| first + at)
    }

    /// The version at an index, or the last one: a search has looked at it.
    fn neighbour(&self, at: usize) -> Option<&Version> {
        self.versions.get(at).or(self.versions.last())
    }

    pub(super) fn insert(&mut self, version: Version) -> Inserted<O> {
        let at = match self.find(O::place(&version)) {
            Ok(at) => return Inserted::Replaced(std::mem::replace(&mut self.versions[at], version)),
            Err(at) => at,
        };
        if !self.versions.is_full() {
            self.put(at, version);
            return Inserted::Added;
        }
        let (kept, goes_behind) = self.split_for(at);
        let mut behind = Leaf::<O>::new(self.versions.drain(kept..).collect());
        if kept < LEAF_VERSIONS {
            self.take_heads();
        }
        match goes_behind {
            true => behind.put(at - kept, version),
            false => self.put(at, version),
        }
        // The one that was put first there may be the first of a row that goes downwards: the room before it is that leaf's.
        let before = self.versions.last().filter(|_| goes_behind && at == kept);
        let lowest = before.map_or_else(|| O::mark(&behind.versions[0]), O::mark_behind);
        Inserted::Split(Entry { lowest, length: behind.versions.len(), node: Node::Leaf(Arc::new(behind)) })
    }

    fn put(&mut self, at: usize, version: Version) {
        let place = O::place(&version);
        let is_alike = self.neighbour(at).is_some_and(|one| O::is_alike(one, place, self.common));
        let head = O::head(place, self.common);
        self.versions.insert(at, version);
        match is_alike && self.versions.len() > 2 {
            true => self.heads.insert(at, head),
            // Two versions give a first `common`, and one that has less in common with them another.
            false => self.take_heads(),
        }
    }

    pub(super) fn remove(&mut self, at: usize) -> Version {
        self.heads.remove(at);
        let removed = self.versions.remove(at);
        let is_at_end = at == 0 || at == self.versions.len();
        if let [first, .., last] = &self.versions[..]
            && is_at_end
            && O::common(first, last) > self.common
        {
            self.take_heads();
        }
        removed
    }

    /// Takes over what another leaf behind this one holds; there is room for both.
    pub(super) fn join(&mut self, behind: &mut Leaf<O>) {
        self.versions.extend(behind.versions.drain(..));
        self.take_heads();
    }

    /// Looks at all versions, and takes the heads behind what they have in common now.
    fn take_heads(&mut self) {
        self.common = match &self.versions[..] {
            [first, .., last] => O::common(first, last),
            // One alone has nothing in common with others.
            _ => 0,
        };
        self.heads = self.versions.iter().map(|version| O::head(O::place(version), self.common)).collect();
    }

    /// How many versions of a full leaf stay in it when one is put at an index, and whether that one goes to those that do not.
    ///
    /// One that is put beside the newest is taken for the next of a row that goes on, upwards or downwards, in the part where it stands
    /// at the end.
    fn split_for(&self, at: usize) -> (usize, bool) {
        if at == 0 || at == LEAF_VERSIONS {
            return (at, at > 0);
        }
        let newest = (0..LEAF_VERSIONS).max_by_key(|other| O::age(&self.versions[*other]));
        match newest {
            Some(newest) if newest + 1 == at => (at, false),
            Some(newest) if newest == at => (at, true),
            _ => (LEAF_VERSIONS / 2, at >= LEAF_VERSIONS / 2),
        }
    }
}

impl<O: Order> Clone for Leaf<O> {
    fn clone(&self) -> Leaf<O> {
        Leaf { versions: self.versions.clone(), heads: self.heads.clone(), common: self.common, order: PhantomData }
    }
}

#[cfg(test)]
impl<O: Order> Leaf<O> {
    pub(super) fn assert_invariants(&self) {
        let pairs = self.versions.windows(2);
        pairs.for_each(|two| assert_eq!(O::compare(&two[0], O::place(&two[1])), Ordering::Less));
        assert_eq!(self.heads.len(), self.versions.len());
        for (version, head) in self.versions.iter().zip(&self.heads) {
            assert!(O::is_alike(&self.versions[0], O::place(version), self.common));
            assert!(*head == O::head(O::place(version), self.common));
        }
    }
}
