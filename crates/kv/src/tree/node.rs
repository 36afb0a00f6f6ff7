//! The nodes of a [`Tree`](super::Tree): search, insertion, removal.

use std::cmp::Ordering;

use arrayvec::ArrayVec;
use triomphe::Arc;

use crate::{order::Order, version::Version};

/// So many pointers, their number and a count of holders take 160 bytes.
pub(super) const LEAF_VERSIONS: usize = 18;
/// So many entries with a key each take 744 bytes, of 768.
const INNER_ENTRIES: usize = 13;
/// Who has fewer joins a neighbour that has room for both.
const FEW: usize = 4;

/// A leaf or an inner node, shared until it changes.
pub(super) enum Node<O: Order> {
    Leaf(Arc<Leaf>),
    Inner(Arc<Inner<O>>),
}

/// Versions in their order.
#[derive(Clone)]
pub(super) struct Leaf(ArrayVec<Version, LEAF_VERSIONS>);

/// Nodes in their order; at least one.
pub(super) struct Inner<O: Order>(ArrayVec<Entry<O>, INNER_ENTRIES>);

/// A node below an inner one.
pub(super) struct Entry<O: Order> {
    /// No version below stands before it, and none of the entries before this one at or behind it. That of the first entry of a node says
    /// nothing: what stands before all others is put there.
    lowest: O::Mark,
    /// Number of versions below.
    length: usize,
    pub(super) node: Node<O>,
}

/// What an insertion did.
pub(super) enum Inserted<O: Order> {
    Added,
    /// There was one at this place.
    Replaced(Version),
    /// The node was full, and this goes behind it.
    Split(Entry<O>),
}

impl<O: Order> Node<O> {
    pub(super) fn empty() -> Node<O> {
        Node::Leaf(Arc::new(Leaf(ArrayVec::new())))
    }

    pub(super) fn is_same(&self, other: &Node<O>) -> bool {
        match (self, other) {
            (Node::Leaf(one), Node::Leaf(other)) => Arc::ptr_eq(one, other),
            (Node::Inner(one), Node::Inner(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Number of versions or entries directly in it.
    fn width(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.0.len(),
            Node::Inner(inner) => inner.0.len(),
        }
    }

    /// Number of versions in it and below.
    fn length(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.0.len(),
            Node::Inner(inner) => inner.0.iter().map(|entry| entry.length).sum(),
        }
    }

    // --- Search. -------------------------------------------------------------------------------------------------

    pub(super) fn get(&self, place: O::Place<'_>) -> Option<&Version> {
        let mut node = self;
        loop {
            match node {
                Node::Leaf(leaf) => return leaf.find::<O>(place).ok().map(|at| &leaf.0[at]),
                Node::Inner(inner) => node = &inner.0[inner.entry_at(place)].node,
            }
        }
    }

    pub(super) fn get_mut(&mut self, place: O::Place<'_>) -> Option<&mut Version> {
        let mut node = self;
        loop {
            match node {
                Node::Leaf(leaf) => {
                    let at = leaf.find::<O>(place).ok()?;
                    return Some(&mut Arc::make_mut(leaf).0[at]);
                }
                Node::Inner(inner) => {
                    let at = inner.entry_at(place);
                    node = &mut Arc::make_mut(inner).0[at].node;
                }
            }
        }
    }

    /// Number of versions before a place, the one that stands there included or not.
    pub(super) fn rank(&self, place: O::Place<'_>, is_included: bool) -> usize {
        let (mut node, mut before) = (self, 0);
        loop {
            match node {
                Node::Leaf(leaf) => {
                    return before
                        + match leaf.find::<O>(place) {
                            Ok(at) => at + usize::from(is_included),
                            Err(at) => at,
                        };
                }
                Node::Inner(inner) => {
                    let at = inner.entry_at(place);
                    before += inner.0[..at].iter().map(|entry| entry.length).sum::<usize>();
                    node = &inner.0[at].node;
                }
            }
        }
    }

    /// The version that so many stand before.
    pub(super) fn nth(&self, mut before: usize) -> Option<&Version> {
        let mut node = self;
        loop {
            match node {
                Node::Leaf(leaf) => return leaf.0.get(before),
                Node::Inner(inner) => {
                    let at;
                    (at, before) = inner.entry_of(before);
                    node = &inner.0[at].node;
                }
            }
        }
    }

    // --- Insertion. ----------------------------------------------------------------------------------------------

    pub(super) fn insert(&mut self, version: Version) -> Inserted<O> {
        match self {
            Node::Leaf(leaf) => Arc::make_mut(leaf).insert(version),
            Node::Inner(inner) => Arc::make_mut(inner).insert(version),
        }
    }

    /// A root that was split becomes one entry beside the other.
    pub(super) fn grow(&mut self, split: Entry<O>) {
        let first = Entry { lowest: split.lowest.clone(), length: self.length(), node: self.clone() };
        *self = Node::Inner(Arc::new(Inner(ArrayVec::from_iter([first, split]))));
    }

    // --- Removal. ------------------------------------------------------------------------------------------------

    pub(super) fn remove(&mut self, place: O::Place<'_>) -> Option<Version> {
        match self {
            Node::Leaf(leaf) => {
                let at = leaf.find::<O>(place).ok()?;
                Some(Arc::make_mut(leaf).0.remove(at))
            }
            Node::Inner(inner) => Arc::make_mut(inner).remove(place),
        }
    }

    /// A root with one entry is that entry.
    pub(super) fn shrink(&mut self) {
        while let Node::Inner(inner) = self {
            *self = match &inner.0[..] {
                [] => Node::empty(),
                [only] => only.node.clone(),
                _ => return,
            };
        }
    }

    /// Takes over what a neighbour behind it holds; there is room for both.
    fn join(&mut self, behind: Entry<O>) {
        match (self, behind.node) {
            (Node::Leaf(leaf), Node::Leaf(mut other)) => {
                Arc::make_mut(leaf).0.extend(Arc::make_mut(&mut other).0.drain(..));
            }
            (Node::Inner(inner), Node::Inner(mut other)) => {
                let other = Arc::make_mut(&mut other);
                // It is the first no longer.
                other.0[0].lowest = behind.lowest;
                Arc::make_mut(inner).0.extend(other.0.drain(..));
            }
            _ => unreachable!("all leaves are equally deep"),
        }
    }
}

impl Leaf {
    pub(super) fn versions(&self) -> &[Version] {
        &self.0
    }

    /// Index of the version at a place, or the one that it would have.
    fn find<O: Order>(&self, place: O::Place<'_>) -> Result<usize, usize> {
        self.0.binary_search_by(|version| O::compare(version, place))
    }

    fn insert<O: Order>(&mut self, version: Version) -> Inserted<O> {
        let at = match self.find::<O>(O::place(&version)) {
            Ok(at) => return Inserted::Replaced(std::mem::replace(&mut self.0[at], version)),
            Err(at) => at,
        };
        if !self.0.is_full() {
            self.0.insert(at, version);
            return Inserted::Added;
        }
        let (kept, goes_behind) = self.split_for(at);
        let mut behind = Leaf(self.0.drain(kept..).collect());
        match goes_behind {
            true => behind.0.insert(at - kept, version),
            false => self.0.insert(at, version),
        }
        Inserted::Split(Entry {
            lowest: O::mark(&behind.0[0]),
            length: behind.0.len(),
            node: Node::Leaf(Arc::new(behind)),
        })
    }
}

impl Leaf {
    /// How many versions of a full leaf stay in it when one is put at an index, and whether that one goes to those that do not.
    ///
    /// One that was put beside the newest of its side is taken for the next of a row that goes on, upwards or downwards: the row keeps
    /// the leaf.
    fn split_for(&self, at: usize) -> (usize, bool) {
        let age = |at: &usize| self.0[*at].revision();
        let (before, behind) = ((0..at).max_by_key(age), (at..LEAF_VERSIONS).max_by_key(age));
        let is_upwards = before.map(|newest| newest + 1) == Some(at);
        let is_downwards = behind == Some(at);
        match (before, behind) {
            (None, _) => (0, false),
            (_, None) => (LEAF_VERSIONS, true),
            (Some(last), Some(next)) if is_upwards && age(&last) > age(&next) => (at, false),
            (Some(last), Some(next)) if is_downwards && age(&last) < age(&next) => (at, true),
            _ => (LEAF_VERSIONS / 2, at >= LEAF_VERSIONS / 2),
        }
    }
}

impl<O: Order> Inner<O> {
    pub(super) fn entries(&self) -> &[Entry<O>] {
        &self.0
    }

    /// Index of the entry below which a place is.
    fn entry_at(&self, place: O::Place<'_>) -> usize {
        // The mark of the first says nothing.
        self.0[1..].partition_point(|entry| O::compare_mark(&entry.lowest, place) != Ordering::Greater)
    }

    /// Index of the entry with the version that so many stand before, and how many of those are below the entry; of the last one, if
    /// there are not so many.
    pub(super) fn entry_of(&self, mut before: usize) -> (usize, usize) {
        let last = self.0.len() - 1;
        for (at, entry) in self.0[..last].iter().enumerate() {
            match before.checked_sub(entry.length) {
                Some(rest) => before = rest,
                None => return (at, before),
            }
        }
        (last, before)
    }

    fn insert(&mut self, version: Version) -> Inserted<O> {
        let at = self.entry_at(O::place(&version));
        let entry = &mut self.0[at];
        match entry.node.insert(version) {
            Inserted::Added => entry.length += 1,
            replaced @ Inserted::Replaced(_) => return replaced,
            Inserted::Split(split) => {
                entry.length = entry.length + 1 - split.length;
                return self.insert_entry(at + 1, split);
            }
        }
        Inserted::Added
    }

    fn insert_entry(&mut self, at: usize, entry: Entry<O>) -> Inserted<O> {
        if !self.0.is_full() {
            self.0.insert(at, entry);
            return Inserted::Added;
        }
        let kept = match at {
            // Nothing is put before the first: all that was in it was split off, where keys come downwards.
            1 => 1,
            INNER_ENTRIES => INNER_ENTRIES,
            _ => INNER_ENTRIES / 2,
        };
        let mut behind = Inner(self.0.drain(kept..).collect());
        match at.checked_sub(kept) {
            Some(at) => behind.0.insert(at, entry),
            None => self.0.insert(at, entry),
        }
        let lowest = behind.0[0].lowest.clone();
        let node = Node::Inner(Arc::new(behind));
        Inserted::Split(Entry { lowest, length: node.length(), node })
    }

    fn remove(&mut self, place: O::Place<'_>) -> Option<Version> {
        let at = self.entry_at(place);
        let entry = &mut self.0[at];
        let removed = entry.node.remove(place)?;
        entry.length -= 1;
        if entry.length == 0 {
            self.0.remove(at);
        } else if entry.node.width() < FEW {
            self.join_neighbour(at);
        }
        Some(removed)
    }

    /// A node with little in it joins the one before or behind it, where that has room.
    fn join_neighbour(&mut self, at: usize) {
        let room = match self.0[at].node {
            Node::Leaf(_) => LEAF_VERSIONS,
            Node::Inner(_) => INNER_ENTRIES,
        };
        let has_room = |first: usize| {
            let both = self.0.get(first..first + 2);
            both.is_some_and(|both| both[0].node.width() + both[1].node.width() <= room)
        };
        let Some(first) =
            at.checked_sub(1).filter(|first| has_room(*first)).or(Some(at)).filter(|first| has_room(*first))
        else {
            return;
        };
        let behind = self.0.remove(first + 1);
        self.0[first].length += behind.length;
        self.0[first].node.join(behind);
    }
}

impl<O: Order> Clone for Node<O> {
    fn clone(&self) -> Node<O> {
        match self {
            Node::Leaf(leaf) => Node::Leaf(leaf.clone()),
            Node::Inner(inner) => Node::Inner(inner.clone()),
        }
    }
}

impl<O: Order> Clone for Inner<O> {
    fn clone(&self) -> Inner<O> {
        Inner(self.0.clone())
    }
}

impl<O: Order> Clone for Entry<O> {
    fn clone(&self) -> Entry<O> {
        Entry { lowest: self.lowest.clone(), length: self.length, node: self.node.clone() }
    }
}

#[cfg(test)]
impl<O: Order> Node<O> {
    /// Asserts the invariants of this node and all below; gives the depth of its leaves.
    pub(super) fn assert_invariants(&self, is_root: bool) -> usize {
        match self {
            Node::Leaf(leaf) => {
                assert!(is_root || !leaf.0.is_empty());
                let pairs = leaf.0.windows(2);
                pairs.for_each(|two| assert_eq!(O::compare(&two[0], O::place(&two[1])), Ordering::Less));
                0
            }
            Node::Inner(inner) => {
                assert!(!inner.0.is_empty() && (!is_root || inner.0.len() > 1));
                let depths: Vec<usize> = inner.0.iter().map(|entry| entry.node.assert_invariants(false)).collect();
                assert!(depths.iter().all(|depth| *depth == depths[0]), "all leaves are equally deep");
                assert!(inner.0.iter().all(|entry| entry.length == entry.node.length()));
                for two in inner.0.windows(2) {
                    let (before, behind) = (two[0].node.end(-1), two[1].node.end(0));
                    assert_eq!(O::compare_mark(&two[1].lowest, O::place(before)), Ordering::Greater);
                    assert_ne!(O::compare_mark(&two[1].lowest, O::place(behind)), Ordering::Greater);
                }
                depths[0] + 1
            }
        }
    }

    /// Its first version, or its last.
    fn end(&self, at: isize) -> &Version {
        let at = if at < 0 { self.length() - 1 } else { 0 };
        self.nth(at).expect("no node but the root is empty")
    }

    pub(super) fn leaves(&self) -> usize {
        match self {
            Node::Leaf(_) => 1,
            Node::Inner(inner) => inner.0.iter().map(|entry| entry.node.leaves()).sum(),
        }
    }
}
