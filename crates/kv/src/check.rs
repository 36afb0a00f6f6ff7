//! The checks that a server makes before it proposes, with the rules and in the order of etcd 3.5's gRPC layer.
//!
//! These are pure functions of the request. A refused request never reaches the log, so `apply` need not repeat them; it
//! only makes sure that nothing it is given can make it fail half-way.
//!
//! Source: the behaviour of `checkTxnRequest` and `checkIntervals` in etcd 3.5, and of a running etcd 3.5.1.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::{DeleteRange, Operation, Put, Range, Request, Txn};

/// Greatest depth of transactions inside each other: what the codec of the log decodes.
const NESTING_MAX: usize = 32;

/// Compares and operations of a whole transaction, inner ones included, for each that one list may have: etcd bounds the lists along
/// each path alone, and a tree of short lists has hundreds of thousands.
const LISTS_MAX: usize = 64;

/// The reason why a request must not be proposed; each stands for an error string of etcd.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum CheckError {
    /// `etcdserver: key is not provided`.
    #[error("key is not provided")]
    EmptyKey,
    /// `etcdserver: too many operations in txn request`.
    #[error("too many operations in txn request")]
    TooManyOperations,
    /// `etcdserver: duplicate key given in txn request`.
    #[error("duplicate key given in txn request")]
    DuplicateKey,
    /// `etcdserver: value is provided`: together with `ignore_value`.
    #[error("value is provided")]
    ValueProvided,
    /// `etcdserver: lease is provided`: together with `ignore_lease`.
    #[error("lease is provided")]
    LeaseProvided,
    /// `etcdserver: key not found`: an operation that asks for nothing.
    #[error("key not found")]
    EmptyOperation,
}

/// Checks a read of keys. An unknown order or target is not refused, as in etcd 3.5.1; it orders nothing.
pub fn check_range(range: &Range) -> Result<(), CheckError> {
    if range.key.is_empty() { Err(CheckError::EmptyKey) } else { Ok(()) }
}

/// Checks a put of a key.
pub fn check_put(put: &Put) -> Result<(), CheckError> {
    match () {
        () if put.key.is_empty() => Err(CheckError::EmptyKey),
        () if put.ignore_value && !put.value.is_empty() => Err(CheckError::ValueProvided),
        () if put.ignore_lease && put.lease != 0 => Err(CheckError::LeaseProvided),
        () => Ok(()),
    }
}

/// Checks a deletion of keys.
pub fn check_delete_range(delete: &DeleteRange) -> Result<(), CheckError> {
    if delete.key.is_empty() { Err(CheckError::EmptyKey) } else { Ok(()) }
}

/// Checks a transaction: its size, each of its operations, then that no key is written twice.
///
/// `limit` bounds the longest of the three lists; an inner transaction has what the outer ones left of it (etcd's default
/// is 128).
///
/// Deviation: all lists together have at most 64 times as many. etcd has no such bound.
pub fn check_txn(txn: &Txn, limit: usize) -> Result<(), CheckError> {
    let mut left = limit.saturating_mul(LISTS_MAX);
    check_operations(txn, limit, NESTING_MAX, &mut left)?;
    for branch in [&txn.success, &txn.failure] {
        Writes::of(branch)?;
    }
    Ok(())
}

fn check_operations(txn: &Txn, limit: usize, nesting: usize, left: &mut usize) -> Result<(), CheckError> {
    let longest = txn.compare.len().max(txn.success.len()).max(txn.failure.len());
    if longest > limit || nesting == 0 {
        return Err(CheckError::TooManyOperations);
    }
    let all = txn.compare.len() + txn.success.len() + txn.failure.len();
    *left = left.checked_sub(all).ok_or(CheckError::TooManyOperations)?;
    if txn.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(CheckError::EmptyKey);
    }
    for operation in txn.success.iter().chain(&txn.failure) {
        match &operation.request {
            None => return Err(CheckError::EmptyOperation),
            Some(Request::Range(range)) => check_range(range)?,
            Some(Request::Put(put)) => check_put(put)?,
            Some(Request::DeleteRange(delete)) => check_delete_range(delete)?,
            Some(Request::Txn(inner)) => check_operations(inner, limit - longest, nesting - 1, left)?,
        }
    }
    Ok(())
}

/// The keys that a branch writes.
#[derive(Default)]
struct Writes<'t> {
    puts: BTreeSet<&'t [u8]>,
    deletes: Deletions<'t>,
}

impl<'t> Writes<'t> {
    /// Collects what a branch and its inner transactions write, in etcd's order: this level's deletions, the inner
    /// transactions, this level's puts. The order shows: of two inner transactions, the second's puts are held against the
    /// first's deletions, not the other way round.
    fn of(operations: &'t [Operation]) -> Result<Writes<'t>, CheckError> {
        let mut writes = Writes::default();
        for operation in operations {
            if let Some(Request::DeleteRange(delete)) = &operation.request {
                writes.deletes.add(delete);
            }
        }
        for operation in operations {
            if let Some(Request::Txn(inner)) = &operation.request {
                writes.add_inner(Writes::of(&inner.success)?, Writes::of(&inner.failure)?)?;
            }
        }
        for operation in operations {
            if let Some(Request::Put(put)) = &operation.request {
                writes.add_put(&put.key)?;
            }
        }
        Ok(writes)
    }

    fn add_put(&mut self, key: &'t [u8]) -> Result<(), CheckError> {
        if self.deletes.hit(key) || !self.puts.insert(key) {
            return Err(CheckError::DuplicateKey);
        }
        Ok(())
    }

    /// Adds what the two branches of an inner transaction write: both may put the same key, for only one of them runs.
    fn add_inner(&mut self, success: Writes<'t>, failure: Writes<'t>) -> Result<(), CheckError> {
        for key in &success.puts {
            self.add_put(key)?;
        }
        for key in &failure.puts {
            if success.puts.contains(key) {
                continue;
            }
            self.add_put(key)?;
        }
        self.deletes.add_all(success.deletes);
        self.deletes.add_all(failure.deletes);
        Ok(())
    }
}

/// The keys that deletions hit, as etcd's check sees it: the end `"\0"` is taken literally, so that "everything from the key on" hits
/// nothing. Such a transaction is accepted (seen on etcd 3.5.1), and its operations run in their order.
#[derive(Default)]
struct Deletions<'t> {
    keys: BTreeSet<&'t [u8]>,
    /// Ranges that do not touch, each with its end.
    ranges: BTreeMap<&'t [u8], &'t [u8]>,
}

impl<'t> Deletions<'t> {
    fn add(&mut self, delete: &'t DeleteRange) {
        match delete.range_end.is_empty() {
            true => drop(self.keys.insert(&delete.key)),
            false => self.add_range(&delete.key, &delete.range_end),
        }
    }

    fn add_all(&mut self, other: Deletions<'t>) {
        self.keys.extend(other.keys);
        other.ranges.into_iter().for_each(|(begin, end)| self.add_range(begin, end));
    }

    /// Adds a range; those that it touches become one with it.
    fn add_range(&mut self, mut begin: &'t [u8], mut end: &'t [u8]) {
        if end <= begin {
            return;
        }
        if let Some((before, its_end)) = self.ranges.range::<[u8], _>(up_to(begin)).next_back()
            && *its_end >= begin
        {
            (begin, end) = (before, end.max(its_end));
        }
        while let Some((touched, its_end)) = self.ranges.range::<[u8], _>(up_from(begin, end)).next() {
            let touched = *touched;
            end = end.max(its_end);
            self.ranges.remove(touched);
        }
        self.ranges.insert(begin, end);
    }

    fn hit(&self, key: &[u8]) -> bool {
        let before = || self.ranges.range::<[u8], _>(up_to(key)).next_back();
        self.keys.contains(key) || before().is_some_and(|(_, end)| key < *end)
    }
}

/// The bounds of all up to an end, with it.
fn up_to(end: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Unbounded, Bound::Included(end))
}

/// The bounds of all between two keys, with both.
fn up_from<'b>(begin: &'b [u8], end: &'b [u8]) -> (Bound<&'b [u8]>, Bound<&'b [u8]>) {
    (Bound::Included(begin), Bound::Included(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = String> {
        prop::sample::select(vec!["\0", "a", "ab", "b", "c", "d", "e", "f"]).prop_map(str::to_owned)
    }

    /// Whether one deletion hits a key, as etcd's check sees it.
    fn hits((begin, end): &(String, String), key: &str) -> bool {
        match end.is_empty() {
            true => begin == key,
            false => begin.as_str() <= key && key < end.as_str(),
        }
    }

    proptest! {
        /// Goal: deletions that are kept as few ranges hit what they hit one by one, in whatever order they come.
        #[test]
        fn deletions_together_hit_what_each_hits(
            deletions in proptest::collection::vec((key(), prop_oneof![Just(String::new()), key()]), 0..8),
            key in key(),
        ) {
            let all: Vec<DeleteRange> = deletions
                .iter()
                .map(|(key, end)| DeleteRange { key: key.clone().into(), range_end: end.clone().into(), ..Default::default() })
                .collect();
            let (mut together, mut half) = (Deletions::default(), Deletions::default());
            all.iter().step_by(2).for_each(|delete| together.add(delete));
            all.iter().skip(1).step_by(2).for_each(|delete| half.add(delete));
            together.add_all(half);
            prop_assert_eq!(together.hit(key.as_bytes()), deletions.iter().any(|deletion| hits(deletion, &key)));
            let ends: Vec<_> = together.ranges.iter().collect();
            prop_assert!(ends.windows(2).all(|two| two[0].1 < two[1].0), "ranges that touch are one: {ends:?}");
        }
    }
}
