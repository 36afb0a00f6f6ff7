//! Ranges of keys, found by a key that they hold: [`Intervals`].
//!
//! A treap: a search tree by range whose shape is that of random insertions, whatever the order of real ones. Each node knows where
//! the last range below it ends, so that a search leaves out all that ends before the key, as it leaves out all that begins behind it.
//! The interval trees that are published for Rust try every range that begins before the key, want limits that are copied as
//! numbers are, or cannot be changed once they are built.

use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;

/// Where a range ends: the first place that is out of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Limit {
    Key(Bytes),
    /// The range ends behind all keys.
    Infinity,
}

impl Limit {
    fn is_behind(&self, key: &[u8]) -> bool {
        match self {
            Limit::Key(end) => *key < end[..],
            Limit::Infinity => true,
        }
    }
}

/// The first key of a range, and its end.
pub(super) type Interval = (Bytes, Limit);

/// A map from ranges to values, of which those are found quickly that hold a key.
pub(super) struct Intervals<V> {
    root: Link<V>,
    /// Nobody outside can tell which shape a choice of ranges leads to.
    hasher: RandomState,
}

type Link<V> = Option<Box<Node<V>>>;

struct Node<V> {
    interval: Interval,
    value: V,
    /// No node below has a higher one.
    priority: u64,
    /// The last end of this range and those below.
    last: Limit,
    /// Ranges before this one.
    left: Link<V>,
    /// Ranges behind this one.
    right: Link<V>,
}

impl<V> Default for Intervals<V> {
    fn default() -> Intervals<V> {
        Intervals { root: None, hasher: RandomState::new() }
    }
}

impl<V: Default> Intervals<V> {
    /// The value of a range, which is made where there is none.
    pub(super) fn entry(&mut self, interval: &Interval) -> &mut V {
        if self.get_mut(interval).is_none() {
            let (interval, last, priority) = (interval.clone(), interval.1.clone(), self.hasher.hash_one(interval));
            let (before, behind) = split(self.root.take(), &interval);
            let node = Node { interval, value: V::default(), priority, last, left: None, right: None };
            self.root = join(join(before, Some(Box::new(node))), behind);
        }
        self.get_mut(interval).unwrap_or_else(|| unreachable!("it is there, or was made a moment ago"))
    }
}

impl<V> Intervals<V> {
    /// The value of a range.
    pub(super) fn get_mut(&mut self, interval: &Interval) -> Option<&mut V> {
        let mut link = &mut self.root;
        while let Some(node) = link {
            link = match interval.cmp(&node.interval) {
                std::cmp::Ordering::Less => &mut node.left,
                std::cmp::Ordering::Equal => return Some(&mut node.value),
                std::cmp::Ordering::Greater => &mut node.right,
            };
        }
        None
    }

    /// Takes a range away, with its value.
    pub(super) fn remove(&mut self, interval: &Interval) {
        remove(&mut self.root, interval);
    }

    /// Visits the values of all ranges that hold the key.
    pub(super) fn for_each_around(&self, key: &[u8], mut visit: impl FnMut(&V)) {
        visit_around(&self.root, key, &mut visit);
    }
}

impl<V> Node<V> {
    /// Looks anew at where the ranges below end.
    fn update(&mut self) {
        let below = [&self.left, &self.right].into_iter().flatten().map(|node| &node.last).max();
        self.last = below.into_iter().chain([&self.interval.1]).max().unwrap_or(&self.interval.1).clone();
    }
}

/// The nodes before a place, and the others.
fn split<V>(link: Link<V>, place: &Interval) -> (Link<V>, Link<V>) {
    let Some(mut node) = link else { return (None, None) };
    if node.interval < *place {
        let (before, behind) = split(node.right.take(), place);
        node.right = before;
        node.update();
        (Some(node), behind)
    } else {
        let (before, behind) = split(node.left.take(), place);
        node.left = behind;
        node.update();
        (before, Some(node))
    }
}

/// One tree of two, of which the second is behind the first.
fn join<V>(before: Link<V>, behind: Link<V>) -> Link<V> {
    match (before, behind) {
        (Some(mut one), Some(mut other)) => {
            let mut top = if one.priority >= other.priority {
                one.right = join(one.right.take(), Some(other));
                one
            } else {
                other.left = join(Some(one), other.left.take());
                other
            };
            top.update();
            Some(top)
        }
        (one, other) => one.or(other),
    }
}

fn remove<V>(link: &mut Link<V>, interval: &Interval) {
    let Some(node) = link else { return };
    match interval.cmp(&node.interval) {
        std::cmp::Ordering::Less => remove(&mut node.left, interval),
        std::cmp::Ordering::Greater => remove(&mut node.right, interval),
        std::cmp::Ordering::Equal => {
            *link = join(node.left.take(), node.right.take());
            return;
        }
    }
    node.update();
}

fn visit_around<V>(link: &Link<V>, key: &[u8], visit: &mut impl FnMut(&V)) {
    let Some(node) = link.as_deref().filter(|node| node.last.is_behind(key)) else { return };
    visit_around(&node.left, key, visit);
    if node.interval.0[..] <= *key {
        if node.interval.1.is_behind(key) {
            visit(&node.value);
        }
        visit_around(&node.right, key, visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(start: u32, end: u32) -> Interval {
        (Bytes::copy_from_slice(&start.to_be_bytes()), Limit::Key(Bytes::copy_from_slice(&end.to_be_bytes())))
    }

    fn depth<V>(link: &Link<V>) -> usize {
        link.as_ref().map_or(0, |node| 1 + depth(&node.left).max(depth(&node.right)))
    }

    /// Nodes that a search for the key looks at.
    fn looks<V>(link: &Link<V>, key: &[u8]) -> usize {
        match link {
            None => 0,
            Some(node) if !node.last.is_behind(key) => 1,
            Some(node) if node.interval.0[..] > *key => 1 + looks(&node.left, key),
            Some(node) => 1 + looks(&node.left, key) + looks(&node.right, key),
        }
    }

    #[test]
    fn a_hundred_thousand_ranges_in_order_make_no_list_and_a_key_behind_them_looks_at_few() {
        let mut intervals: Intervals<u32> = Intervals::default();
        for start in 0..100_000 {
            *intervals.entry(&interval(2 * start, 2 * start + 2)) = start;
        }
        let depth = depth(&intervals.root);
        assert!(depth < 100, "about forty are usual, and it is {depth}");
        for key in [0, 1, 99_999, 150_000, 199_999] {
            let (bytes, mut found) = (u32::to_be_bytes(key), Vec::new());
            intervals.for_each_around(&bytes, |start| found.push(*start));
            assert_eq!(found, [key / 2]);
            let looks = looks(&intervals.root, &bytes);
            assert!(looks < 200, "{looks} of 100,000");
        }
        assert_eq!(looks(&intervals.root, &u32::to_be_bytes(200_000)), 1, "all of them end before");
        for start in (0..100_000).rev() {
            intervals.remove(&interval(2 * start, 2 * start + 2));
        }
        assert!(intervals.root.is_none());
    }
}
