//! The nodes of a [`Tree`](super::Tree): search, insertion, removal; what happens inside a leaf is in [`super::leaf`].

use std::cmp::Ordering;

use arrayvec::ArrayVec;
use triomphe::Arc;

use super::leaf::{LEAF_VERSIONS, Leaf};
use crate::{order::Order, version::Version};

/// So many entries take 744 bytes of 768 in the order by key, 536 of 640 by revision, and 952 of 1,024 by both.
const INNER_ENTRIES: usize = 13;

/// A leaf or an inner node, shared until it changes.
pub(super) enum Node<O: Order> {
    Leaf(Arc<Leaf<O>>),
    Inner(Arc<Inner<O>>),
}

/// Nodes in their order; at least one.
pub(super) struct Inner<O: Order>(ArrayVec<Entry<O>, INNER_ENTRIES>);

/// A node below an inner one.
pub(super) struct Entry<O: Order> {
    /// No version below stands before it, and none below the entries before this one stands at it or behind it. That of the first entry
    /// of a node is not read: every place before the second one's belongs to it.
    pub(super) lowest: O::Mark,
    /// Number of versions below.
    pub(super) length: usize,
    pub(super) node: Node<O>,
}

/// The leaf where a place is, and the nodes directly before and behind it.
struct Way<'t, O: Order> {
    leaf: &'t Leaf<O>,
    before: Option<&'t Node<O>>,
    behind: Option<&'t Node<O>>,
}

/// The result of an insertion.
pub(super) enum Inserted<O: Order> {
    Added,
    /// There was one at this place.
    Replaced(Version),
    /// The node was full, and this goes behind it.
    Split(Entry<O>),
}

impl<O: Order> Node<O> {
    pub(super) fn empty() -> Node<O> {
        Node::Leaf(Arc::new(Leaf::new(ArrayVec::new())))
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
            Node::Leaf(leaf) => leaf.versions().len(),
            Node::Inner(inner) => inner.0.len(),
        }
    }

    /// Number of versions or entries that it can hold.
    fn room(&self) -> usize {
        match self {
            Node::Leaf(_) => LEAF_VERSIONS,
            Node::Inner(_) => INNER_ENTRIES,
        }
    }

    /// Number of versions in it and below.
    fn length(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.versions().len(),
            Node::Inner(inner) => inner.0.iter().map(|entry| entry.length).sum(),
        }
    }

    // --- Search. -------------------------------------------------------------------------------------------------

    pub(super) fn get(&self, place: O::Place<'_>) -> Option<&Version> {
        let mut node = self;
        loop {
            match node {
                Node::Leaf(leaf) => return leaf.find(place).ok().map(|at| &leaf.versions()[at]),
                Node::Inner(inner) => node = &inner.0[inner.entry_at(place)].node,
            }
        }
    }

    pub(super) fn get_mut(&mut self, place: O::Place<'_>) -> Option<&mut Version> {
        let mut node = self;
        loop {
            match node {
                Node::Leaf(leaf) => {
                    let at = leaf.find(place).ok()?;
                    return Some(Arc::make_mut(leaf).version_mut(at));
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
                        + match leaf.find(place) {
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

    /// The last version at or before a place.
    pub(super) fn last_until(&self, place: O::Place<'_>) -> Option<&Version> {
        let Way { leaf, before, .. } = self.way_to(place);
        let until = match leaf.find(place) {
            Ok(at) => at + 1,
            Err(at) => at,
        };
        let here = until.checked_sub(1).and_then(|at| leaf.versions().get(at));
        here.or_else(|| before.and_then(Node::last))
    }

    /// The first version at or behind a place.
    pub(super) fn first_from(&self, place: O::Place<'_>) -> Option<&Version> {
        let Way { leaf, behind, .. } = self.way_to(place);
        let (Ok(at) | Err(at)) = leaf.find(place);
        leaf.versions().get(at).or_else(|| behind.and_then(Node::first))
    }

    fn way_to(&self, place: O::Place<'_>) -> Way<'_, O> {
        let (mut node, mut before, mut behind) = (self, None, None);
        loop {
            match node {
                Node::Leaf(leaf) => return Way { leaf, before, behind },
                Node::Inner(inner) => {
                    let at = inner.entry_at(place);
                    before = at.checked_sub(1).map(|at| &inner.0[at].node).or(before);
                    behind = inner.0.get(at + 1).map(|entry| &entry.node).or(behind);
                    node = &inner.0[at].node;
                }
            }
        }
    }

    fn first(&self) -> Option<&Version> {
        let mut node = self;
        loop {
            match node {
                Node::Leaf(leaf) => return leaf.versions().first(),
                Node::Inner(inner) => node = &inner.0.first()?.node,
            }
        }
    }

    fn last(&self) -> Option<&Version> {
        let mut node = self;
        loop {
            match node {
                Node::Leaf(leaf) => return leaf.versions().last(),
                Node::Inner(inner) => node = &inner.0.last()?.node,
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
                let at = leaf.find(place).ok()?;
                Some(Arc::make_mut(leaf).remove(at))
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
                Arc::make_mut(leaf).join(Arc::make_mut(&mut other));
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

impl<O: Order> Inner<O> {
    pub(super) fn entries(&self) -> &[Entry<O>] {
        &self.0
    }

    /// Index of the entry below which a place is.
    fn entry_at(&self, place: O::Place<'_>) -> usize {
        // The mark of the first is not read.
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
        // The node before it has split. Where more went behind than stayed, it grows downwards, and the row takes it along.
        let grows_downwards = self.0[at - 1].length < entry.length;
        let kept = match at {
            1 => 1,
            INNER_ENTRIES if grows_downwards => INNER_ENTRIES - 1,
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
        } else if 2 * entry.node.width() <= entry.node.room() {
            self.join_neighbour(at);
        }
        Some(removed)
    }

    /// A node that is half empty joins the one before or behind it, where that leaves some room: the next ones may be put there.
    fn join_neighbour(&mut self, at: usize) {
        let most = self.0[at].node.room() * 4 / 5;
        let has_room = |first: usize| {
            let both = self.0.get(first..first + 2);
            both.is_some_and(|both| both[0].node.width() + both[1].node.width() <= most)
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
                assert!(is_root || !leaf.versions().is_empty());
                leaf.assert_invariants();
                0
            }
            Node::Inner(inner) => {
                assert!(!inner.0.is_empty() && (!is_root || inner.0.len() > 1));
                let depths: Vec<usize> = inner.0.iter().map(|entry| entry.node.assert_invariants(false)).collect();
                assert!(depths.iter().all(|depth| *depth == depths[0]), "all leaves are equally deep");
                assert!(inner.0.iter().all(|entry| entry.length == entry.node.length()));
                for two in inner.0.windows(2) {
                    let (before, behind) = (two[0].node.last(), two[1].node.first());
                    let (before, behind) = before.zip(behind).expect("no node but the root is empty");
                    assert_eq!(O::compare_mark(&two[1].lowest, O::place(before)), Ordering::Greater);
                    assert_ne!(O::compare_mark(&two[1].lowest, O::place(behind)), Ordering::Greater);
                }
                depths[0] + 1
            }
        }
    }

    /// Bytes of all nodes, for as many as their versions and entries have room for.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Node::Leaf(_) => size_of::<Leaf<O>>(),
            Node::Inner(inner) => size_of::<Inner<O>>() + inner.0.iter().map(|entry| entry.node.bytes()).sum::<usize>(),
        }
    }
}
