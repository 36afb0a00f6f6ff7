//! Finds the followers that an event concerns: by single key, by prefix, and by any other range.
//!
//! A key finds its followers with one look-up, and those of its prefixes by a walk down the ordered prefixes, with no more steps
//! than the key has bytes, and those of ranges that are neither by a search that leaves out what ends before it. So a hundred thousand watches of
//! other keys cost an event nothing. Followers of the same keys are an ordered set: that a stream with a hundred thousand of them ends is heard by nobody.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use bytes::Bytes;
use hustings_api::client::prefix_end;

use crate::context::following::Registration;
use crate::watch::intervals::{Interval, Intervals, Limit};

type Followers = BTreeSet<Registration>;

/// Followers by what they follow.
#[derive(Default)]
pub(crate) struct Index {
    keys: HashMap<Bytes, Followers>,
    prefixes: BTreeMap<Bytes, Followers>,
    /// Ranges that are neither. One that holds no key has no followers.
    ranges: Intervals<Followers>,
}

/// The range as the tree has it; `None` where it holds no key.
fn interval((key, end): &(Bytes, Bytes)) -> Option<Interval> {
    match end[..] == [0] {
        true => Some((key.clone(), Limit::Infinity)),
        false => (key < end).then(|| (key.clone(), Limit::Key(end.clone()))),
    }
}

enum Kind {
    Key,
    Prefix,
    Range,
}

fn kind((key, end): &(Bytes, Bytes)) -> Kind {
    match () {
        () if end.is_empty() => Kind::Key,
        () if !key.is_empty() && *end == prefix_end(key) && end[..] != [0] => Kind::Prefix,
        () => Kind::Range,
    }
}

impl Index {
    /// Adds a follower of a key and an end, as requests write them.
    pub(crate) fn insert(&mut self, registration: Registration, bounds: &(Bytes, Bytes)) {
        let key = bounds.0.clone();
        match kind(bounds) {
            Kind::Key => self.keys.entry(key).or_default().insert(registration),
            Kind::Prefix => self.prefixes.entry(key).or_default().insert(registration),
            Kind::Range => interval(bounds).is_some_and(|range| self.ranges.entry(&range).insert(registration)),
        };
    }

    /// Removes what was inserted.
    pub(crate) fn remove(&mut self, registration: Registration, bounds: &(Bytes, Bytes)) {
        let is_left = |followers: &mut Followers| {
            followers.remove(&registration);
            followers.is_empty()
        };
        match kind(bounds) {
            Kind::Key if self.keys.get_mut(&bounds.0).is_some_and(is_left) => drop(self.keys.remove(&bounds.0)),
            Kind::Prefix if self.prefixes.get_mut(&bounds.0).is_some_and(is_left) => {
                drop(self.prefixes.remove(&bounds.0));
            }
            Kind::Range => {
                if let Some(range) = interval(bounds)
                    && self.ranges.get_mut(&range).is_some_and(is_left)
                {
                    self.ranges.remove(&range);
                }
            }
            Kind::Key | Kind::Prefix => {}
        }
    }

    /// Visits the followers of a key, each once.
    pub(crate) fn for_each(&self, key: &[u8], mut visit: impl FnMut(Registration)) {
        let mut visit_all = |followers: &Followers| followers.iter().copied().for_each(&mut visit);
        self.keys.get(key).into_iter().for_each(&mut visit_all);
        // The prefixes of a key in descending order: each look finds one, or what is left of the key where none can be longer.
        let mut bound = Bound::Included(key);
        while let Some((prefix, followers)) = self.prefixes.range::<[u8], _>((Bound::Unbounded, bound)).next_back() {
            let common = prefix.iter().zip(key).take_while(|(one, other)| one == other).count();
            bound = match common == prefix.len() {
                true => {
                    visit_all(followers);
                    Bound::Excluded(&key[..common])
                }
                false => Bound::Included(&key[..common]),
            };
        }
        self.ranges.for_each_around(key, visit_all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hustings_kv::KeyRange;
    use proptest::prelude::*;

    proptest! {
        /// Goal: the index finds exactly those whose range contains the key, after any insertions and removals.
        #[test]
        fn an_event_finds_exactly_its_followers(
            ranges in proptest::collection::vec((proptest::collection::vec(0u8..3, 1..4), proptest::collection::vec(0u8..3, 0..4), any::<bool>(), any::<bool>()), 0..20),
            key in proptest::collection::vec(0u8..3, 1..5),
        ) {
            let mut index = Index::default();
            let mut expected = Vec::new();
            for (number, (start, end, is_prefix, is_removed)) in ranges.into_iter().enumerate() {
                let end = match (is_prefix, &end[..]) {
                    (true, _) => prefix_end(&start),
                    (false, [2, 2, ..]) => Bytes::from_static(&[0]),
                    (false, end) => Bytes::copy_from_slice(end),
                };
                let bounds = (Bytes::from(start), end);
                index.insert(number as u64, &bounds);
                if is_removed {
                    index.remove(number as u64, &bounds);
                } else if KeyRange::new(bounds.0, bounds.1).contains(&key) {
                    expected.push(number as u64);
                }
            }
            let mut found = Vec::new();
            index.for_each(&key, |follower| found.push(follower));
            found.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }
}
