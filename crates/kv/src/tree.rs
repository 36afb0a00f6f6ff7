//! A persistent tree of versions, in an [`Order`].
//!
//! ```text
//!   inner node   lowest place, number of versions, node │ … up to 13
//!   leaf         head, version │ … up to 19         a pointer, and four bytes of the place, which is read from the version
//! ```
//!
//! A clone copies a root, and the changes of one copy are not seen by the other: a change copies the nodes on its way that somebody
//! else holds. Leaves hold no keys, since a store has millions of versions in three orders: keys beside the pointers, in nodes that were
//! half full where keys came in their order, cost 150 bytes a version. This costs 17 in each order where keys come in rows, and about 30
//! where they come in any order (decision record 42). Each entry of an inner node knows how many versions are below it, so that a count of
//! a range of any length looks at two paths.
//!
//! A leaf that is full splits where it grows in a row, and else in the middle: keys that come in rows, upwards or downwards, fill their
//! leaves. A node that is half empty joins a neighbour that has room for both.
//!
//! It deliberately knows nothing of revisions or keys: those are in [`crate::order`].

mod leaf;
mod node;

use std::ops::Bound;

use node::{Inserted, Node};

use crate::{order::Order, version::Version};

/// Versions in an order, each at a place of its own.
pub(crate) struct Tree<O: Order> {
    root: Node<O>,
    length: usize,
}

impl<O: Order> Tree<O> {
    /// A tree without versions.
    pub(crate) fn new() -> Tree<O> {
        Tree { root: Node::empty(), length: 0 }
    }

    /// Number of versions in the tree.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// The version at a place.
    pub(crate) fn get(&self, place: O::Place<'_>) -> Option<&Version> {
        self.root.get(place)
    }

    /// The version at a place, to be replaced by another one of the same place.
    pub(crate) fn get_mut(&mut self, place: O::Place<'_>) -> Option<&mut Version> {
        self.root.get_mut(place)
    }

    /// Puts a version at its place; what stood there is returned.
    pub(crate) fn insert(&mut self, version: Version) -> Option<Version> {
        match self.root.insert(version) {
            Inserted::Replaced(before) => return Some(before),
            Inserted::Added => {}
            Inserted::Split(split) => self.root.grow(split),
        }
        self.length += 1;
        None
    }

    /// Takes the version at a place out.
    pub(crate) fn remove(&mut self, place: O::Place<'_>) -> Option<Version> {
        let removed = self.root.remove(place)?;
        self.root.shrink();
        self.length -= 1;
        Some(removed)
    }

    /// The last version at or before a place.
    pub(crate) fn last_until(&self, place: O::Place<'_>) -> Option<&Version> {
        self.root.last_until(place)
    }

    /// The first version at or behind a place.
    pub(crate) fn first_from(&self, place: O::Place<'_>) -> Option<&Version> {
        self.root.first_from(place)
    }

    /// Number of versions between two bounds.
    pub(crate) fn count(&self, (start, end): (Bound<O::Place<'_>>, Bound<O::Place<'_>>)) -> usize {
        self.end(end).saturating_sub(self.start(start))
    }

    /// The versions between two bounds, in their order.
    pub(crate) fn range(&self, (start, end): (Bound<O::Place<'_>>, Bound<O::Place<'_>>)) -> Versions<'_, O> {
        let (start, end) = (self.start(start), self.end(end));
        Versions::new(&self.root, start, end.saturating_sub(start))
    }

    /// All versions, in their order.
    pub(crate) fn iter(&self) -> Versions<'_, O> {
        Versions::new(&self.root, 0, self.length)
    }

    fn start(&self, bound: Bound<O::Place<'_>>) -> usize {
        match bound {
            Bound::Unbounded => 0,
            Bound::Included(place) => self.root.rank(place, false),
            Bound::Excluded(place) => self.root.rank(place, true),
        }
    }

    fn end(&self, bound: Bound<O::Place<'_>>) -> usize {
        match bound {
            Bound::Unbounded => self.length,
            Bound::Included(place) => self.root.rank(place, true),
            Bound::Excluded(place) => self.root.rank(place, false),
        }
    }
}

impl<O: Order> Clone for Tree<O> {
    fn clone(&self) -> Tree<O> {
        Tree { root: self.root.clone(), length: self.length }
    }
}

impl<O: Order> PartialEq for Tree<O> {
    fn eq(&self, other: &Tree<O>) -> bool {
        self.length == other.length && (self.root.is_same(&other.root) || self.iter().eq(other.iter()))
    }
}

impl<O: Order> Eq for Tree<O> {}

impl<O: Order> std::hash::Hash for Tree<O> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_usize(self.length);
        self.iter().for_each(|version| version.hash(state));
    }
}

impl<O: Order> std::fmt::Debug for Tree<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// So many versions of a tree, one after the other.
pub(crate) struct Versions<'t, O: Order> {
    /// The inner nodes that lead to the leaf, each with the entries that are still to come.
    path: Vec<std::slice::Iter<'t, node::Entry<O>>>,
    leaf: std::slice::Iter<'t, Version>,
    left: usize,
}

impl<'t, O: Order> Versions<'t, O> {
    fn new(root: &'t Node<O>, start: usize, length: usize) -> Versions<'t, O> {
        let mut versions = Versions { path: Vec::new(), leaf: [].iter(), left: length };
        if length > 0 {
            versions.descend(root, start);
        }
        versions
    }

    /// Goes down to the leaf with the version that so many of this node stand before.
    fn descend(&mut self, mut node: &'t Node<O>, mut before: usize) {
        loop {
            match node {
                Node::Leaf(leaf) => {
                    self.leaf = leaf.versions()[before..].iter();
                    return;
                }
                Node::Inner(inner) => {
                    let (at, rest) = inner.entry_of(before);
                    let entries = inner.entries();
                    self.path.push(entries[at + 1..].iter());
                    (node, before) = (&entries[at].node, rest);
                }
            }
        }
    }
}

impl<'t, O: Order> Iterator for Versions<'t, O> {
    type Item = &'t Version;

    fn next(&mut self) -> Option<&'t Version> {
        self.left = self.left.checked_sub(1)?;
        loop {
            if let Some(version) = self.leaf.next() {
                return Some(version);
            }
            match self.path.last_mut()?.next() {
                Some(entry) => self.descend(&entry.node, 0),
                None => {
                    self.path.pop();
                }
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<O: Order> ExactSizeIterator for Versions<'_, O> {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        order::{ByKey, ByRevision},
        store::Revision,
        version::Numbers,
    };

    /// A key in the order of its number; every second one begins as the one before it.
    fn name(key: u16) -> Vec<u8> {
        format!("pods/{:05}{}", key / 2, if key.is_multiple_of(2) { "" } else { "/log" }).into()
    }

    /// A version of a key, the later the higher the number.
    fn version(key: u16, count: i64) -> Version {
        written_again(key, count, count)
    }

    /// The same of a key that was created before.
    fn written_again(key: u16, count: i64, created: i64) -> Version {
        let numbers = Numbers { main: count + 1, sub: 0, create_revision: created + 1, count, lease: 0 };
        Version::new(&name(key), b"value", numbers)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(u16),
        Take(u16),
        /// Puts these in their order, upwards or downwards.
        Run(u16, u16, bool),
        TakeRun(u16, u16),
        /// Keeps a copy, which must stay as it is.
        Keep,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let key = || 0..800_u16;
        let step = prop_oneof![
            6 => key().prop_map(Step::Put),
            6 => key().prop_map(Step::Take),
            2 => (key(), 1..400_u16, any::<bool>()).prop_map(|(from, many, up)| Step::Run(from, many, up)),
            2 => (key(), 1..400_u16).prop_map(|(from, many)| Step::TakeRun(from, many)),
            1 => Just(Step::Keep),
        ];
        prop::collection::vec(step, 1..60)
    }

    type Model = BTreeMap<Vec<u8>, Version>;

    fn assert_same(tree: &Tree<ByKey>, model: &Model) {
        tree.root.assert_invariants(true);
        assert_eq!(tree.len(), model.len());
        assert!(tree.iter().eq(model.values()));
        assert_eq!(tree.iter().len(), model.len());
    }

    fn assert_found(tree: &Tree<ByKey>, model: &Model, from: u16, to: u16) {
        let (from, to) = (name(from.min(to)), name(from.max(to)));
        let bounds = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        let wanted: Vec<&Version> = model.range::<[u8], _>(bounds).map(|(_, version)| version).collect();
        assert_eq!(tree.range(bounds).collect::<Vec<_>>(), wanted);
        assert_eq!(tree.count(bounds), wanted.len());
        assert_eq!(tree.get(&from), model.get(&from[..]));
        let onwards = (Bound::Included(&from[..]), Bound::Unbounded);
        assert_eq!(tree.first_from(&from), model.range::<[u8], _>(onwards).next().map(|(_, version)| version));
        let until = (Bound::Unbounded, Bound::Included(&from[..]));
        assert_eq!(tree.last_until(&from), model.range::<[u8], _>(until).next_back().map(|(_, version)| version));
        let behind = (Bound::Excluded(&from[..]), Bound::Unbounded);
        assert!(tree.range(behind).eq(model.range::<[u8], _>(behind).map(|(_, version)| version)));
        assert!(tree.range(until).eq(model.range::<[u8], _>(until).map(|(_, version)| version)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Goal: it answers as a sorted map does, and copies stay as they were. Method: any steps, the standard library's map beside it.
        #[test]
        fn it_is_a_sorted_map_whose_copies_stay(steps in steps(), asked in prop::collection::vec(0..900_u16, 8)) {
            let (mut tree, mut model) = (Tree::<ByKey>::new(), Model::new());
            let mut kept = Vec::new();
            for (count, step) in (1..).zip(steps) {
                let put = |key: u16, tree: &mut Tree<ByKey>, model: &mut Model| {
                    let new = version(key, count);
                    assert_eq!(tree.insert(new.clone()), model.insert(name(key), new));
                };
                let take = |key: u16, tree: &mut Tree<ByKey>, model: &mut Model| {
                    assert_eq!(tree.remove(&name(key)), model.remove(&name(key)));
                };
                match step {
                    Step::Put(key) => put(key, &mut tree, &mut model),
                    Step::Take(key) => take(key, &mut tree, &mut model),
                    Step::Run(from, many, true) => (from..from + many).for_each(|key| put(key, &mut tree, &mut model)),
                    Step::Run(from, many, false) => {
                        (from..from + many).rev().for_each(|key| put(key, &mut tree, &mut model));
                    }
                    Step::TakeRun(from, many) => (from..from + many).for_each(|key| take(key, &mut tree, &mut model)),
                    Step::Keep => kept.push((tree.clone(), model.clone())),
                }
                assert_same(&tree, &model);
            }
            asked.windows(2).for_each(|asked| assert_found(&tree, &model, asked[0], asked[1]));
            kept.iter().for_each(|(tree, model)| assert_same(tree, model));
        }
    }

    #[test]
    fn a_version_is_replaced_in_one_copy_alone() {
        let mut tree = Tree::<ByKey>::new();
        (0..500).for_each(|key| assert_eq!(tree.insert(version(key, 1)), None));
        let kept = tree.clone();
        *tree.get_mut(&name(77)).expect("it was put") = version(77, 2);
        assert_eq!(tree.get_mut(&name(900)), None);
        let counts = |tree: &Tree<ByKey>| tree.get(&name(77)).map(Version::count);
        assert_eq!((counts(&tree), counts(&kept)), (Some(2), Some(1)));
        assert!(tree != kept && tree.len() == kept.len());
    }

    /// Goal: revisions are found on both sides of what a head can hold. Method: those around 2^32 and its double, in a scattered order, each
    /// asked for with its neighbours, there or not.
    #[test]
    fn revisions_of_any_size_are_found() {
        let around = [1_i64 << 32, 2 << 32, 1 << 62].into_iter().flat_map(|middle| middle - 20..middle + 20);
        let all: Vec<Revision> = around.flat_map(|main| (0..3).map(move |sub| Revision { main, sub })).collect();
        let (there, mut tree) = (|at: usize| !at.is_multiple_of(5), Tree::<ByRevision>::new());
        for at in (0..all.len()).map(|at| at * 7 % all.len()).filter(|at| there(*at)) {
            let Revision { main, sub } = all[at];
            let numbers = Numbers { main, sub, create_revision: 1, count: 1, lease: 0 };
            assert_eq!(tree.insert(Version::new(b"key", b"value", numbers)), None);
            tree.root.assert_invariants(true);
        }
        let place = |version: Option<&Version>| version.map(Version::revision);
        for at in 0..all.len() {
            let before = (0..=at).rev().find(|at| there(*at)).map(|at| all[at]);
            let behind = (at..all.len()).find(|at| there(*at)).map(|at| all[at]);
            assert_eq!(place(tree.get(all[at])), Some(all[at]).filter(|_| there(at)));
            assert_eq!((place(tree.last_until(all[at])), place(tree.first_from(all[at]))), (before, behind));
        }
    }

    fn bytes_each(tree: &Tree<ByKey>) -> f64 {
        tree.root.bytes() as f64 / tree.len() as f64
    }

    /// Keys that are put in this order, and the bytes of nodes for each.
    fn put(keys: impl IntoIterator<Item = u16>) -> (Tree<ByKey>, f64) {
        let mut tree = Tree::<ByKey>::new();
        for (count, key) in (1..).zip(keys) {
            let created = tree.get(&name(key)).map_or(count, |before: &Version| before.create_revision() - 1);
            tree.insert(written_again(key, count, created));
        }
        let each = bytes_each(&tree);
        (tree, each)
    }

    /// Goal: keys that come in rows fill the nodes, and no order makes many nodes of few keys. Method: rows upwards and downwards, alone, two
    /// at once, and one downwards behind any number of keys that are there; keys in a scattered order; a row of children whose parents are
    /// written before each of them.
    #[test]
    fn no_order_of_keys_costs_much() {
        let most = |limit: f64, keys: &mut dyn Iterator<Item = u16>| {
            let (_, each) = put(keys);
            assert!(each <= limit, "{each} bytes, and {limit} at most");
        };
        most(18.0, &mut (0..20_000));
        most(19.0, &mut (0..20_000).rev());
        most(19.0, &mut (0..5_000).flat_map(|key| [key, 5_000 + key]));
        most(19.0, &mut (0..5_000).flat_map(|key| [4_999 - key, 9_999 - key]));
        for before in (0..40).chain((200..3_500).step_by(13)) {
            most(22.0, &mut (0..before).chain((before..before + 5_000).rev()));
            most(22.0, &mut (before..before + 5_000).chain((0..before).rev()));
        }
        most(26.0, &mut (0..100).flat_map(|tenant| (tenant * 100..tenant * 100 + 100).rev()));
        most(34.0, &mut (0..20_000_u32).map(|key| (key * 7_919 % 20_011) as u16));
        most(34.0, &mut (0..10_000).step_by(2).chain((0..10_000).flat_map(|key| [key & !1, key])));
    }

    /// Goal: what is removed leaves no nodes that are almost empty. Method: every version of a row but each fifth goes, in three orders.
    #[test]
    fn removal_leaves_no_empty_nodes() {
        let orders: [fn(u16) -> u16; 3] = [|at| at, |at| 9_999 - at, |at| (u32::from(at) * 7_919 % 10_000) as u16];
        for order in orders {
            let (mut tree, _) = put(0..10_000);
            for key in (0..10_000).map(order).filter(|key| !key.is_multiple_of(5)) {
                assert!(tree.remove(&name(key)).is_some());
            }
            tree.root.assert_invariants(true);
            let each = bytes_each(&tree);
            assert!(each <= 40.0, "{each} bytes");
        }
    }
}
