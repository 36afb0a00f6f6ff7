//! Finds the followers that an event concerns: by single key, by prefix, and by any other range.
//!
//! A key finds its followers with one look-up, and one more per distinct length of a prefix that somebody follows; only
//! ranges that are neither are tried one by one. So a thousand watches of other keys cost an event nothing.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use hustings_api::client::prefix_end;
use hustings_kv::KeyRange;

use crate::context::following::Registration;

/// Followers by what they follow.
#[derive(Default)]
pub(crate) struct Index {
    keys: HashMap<Bytes, Vec<Registration>>,
    prefixes: HashMap<Bytes, Vec<Registration>>,
    /// Number of prefixes of each length.
    prefix_lengths: BTreeMap<usize, usize>,
    /// Ranges that are neither, each with its followers.
    ranges: BTreeMap<(Bytes, Bytes), (KeyRange, Vec<Registration>)>,
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
        // Copies: a slice would keep the frame that it came in.
        let key = Bytes::copy_from_slice(&bounds.0);
        match kind(bounds) {
            Kind::Key => self.keys.entry(key).or_default().push(registration),
            Kind::Prefix => {
                let length = key.len();
                let followers = self.prefixes.entry(key).or_default();
                if followers.is_empty() {
                    *self.prefix_lengths.entry(length).or_default() += 1;
                }
                followers.push(registration);
            }
            Kind::Range => {
                let end = Bytes::copy_from_slice(&bounds.1);
                let range = KeyRange::new(key.clone(), end.clone());
                self.ranges.entry((key, end)).or_insert_with(|| (range, Vec::new())).1.push(registration);
            }
        }
    }

    /// Removes what was inserted.
    pub(crate) fn remove(&mut self, registration: Registration, bounds: &(Bytes, Bytes)) {
        match kind(bounds) {
            Kind::Key => {
                remove_from(&mut self.keys, &bounds.0, registration);
            }
            Kind::Prefix => {
                let length = bounds.0.len();
                if remove_from(&mut self.prefixes, &bounds.0, registration)
                    && let Some(count) = self.prefix_lengths.get_mut(&length)
                {
                    *count -= 1;
                    if *count == 0 {
                        self.prefix_lengths.remove(&length);
                    }
                }
            }
            Kind::Range => {
                if let Some((_, followers)) = self.ranges.get_mut(bounds) {
                    followers.retain(|follower| *follower != registration);
                    if followers.is_empty() {
                        self.ranges.remove(bounds);
                    }
                }
            }
        }
    }

    /// Visits the followers of a key, each once.
    pub(crate) fn for_each(&self, key: &[u8], mut visit: impl FnMut(Registration)) {
        let mut visit_all =
            |followers: Option<&Vec<Registration>>| followers.into_iter().flatten().copied().for_each(&mut visit);
        visit_all(self.keys.get(key));
        for length in self.prefix_lengths.range(..=key.len()).map(|(length, _)| *length) {
            visit_all(self.prefixes.get(&key[..length]));
        }
        for (range, followers) in self.ranges.values() {
            if range.contains(key) {
                visit_all(Some(followers));
            }
        }
    }
}

/// Removes a follower; says whether it was the last one of its key.
fn remove_from(map: &mut HashMap<Bytes, Vec<Registration>>, key: &Bytes, registration: Registration) -> bool {
    let Some(followers) = map.get_mut(key) else { return false };
    if let Some(place) = followers.iter().position(|follower| *follower == registration) {
        followers.swap_remove(place);
    }
    let is_last = followers.is_empty();
    if is_last {
        map.remove(key);
    }
    is_last
}

#[cfg(test)]
mod tests {
    use super::*;
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
                let end = if is_prefix { prefix_end(&start) } else { end.into() };
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
