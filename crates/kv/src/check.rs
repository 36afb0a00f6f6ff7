//! The checks that a server makes before it proposes, with the rules and in the order of etcd 3.5's gRPC layer.
//!
//! These are pure functions of the request. A refused request never reaches the log, so `apply` need not repeat them; it
//! only makes sure that nothing it is given can make it fail half-way.
//!
//! Source: the behaviour of `checkTxnRequest` and `checkIntervals` in etcd 3.5, and of a running etcd 3.5.1.

use std::collections::BTreeSet;

use crate::{DeleteRange, Operation, Put, Range, Request, Txn};

/// Greatest depth of transactions inside each other: what the codec of the log decodes.
const NESTING_MAX: usize = 32;

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
pub fn check_txn(txn: &Txn, limit: usize) -> Result<(), CheckError> {
    check_operations(txn, limit, NESTING_MAX)?;
    for branch in [&txn.success, &txn.failure] {
        Writes::of(branch)?;
    }
    Ok(())
}

fn check_operations(txn: &Txn, limit: usize, nesting: usize) -> Result<(), CheckError> {
    let longest = txn.compare.len().max(txn.success.len()).max(txn.failure.len());
    if longest > limit || nesting == 0 {
        return Err(CheckError::TooManyOperations);
    }
    if txn.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(CheckError::EmptyKey);
    }
    for operation in txn.success.iter().chain(&txn.failure) {
        match &operation.request {
            None => return Err(CheckError::EmptyOperation),
            Some(Request::Range(range)) => check_range(range)?,
            Some(Request::Put(put)) => check_put(put)?,
            Some(Request::DeleteRange(delete)) => check_delete_range(delete)?,
            Some(Request::Txn(inner)) => check_operations(inner, limit - longest, nesting - 1)?,
        }
    }
    Ok(())
}

/// The keys that a branch writes.
#[derive(Default)]
struct Writes<'t> {
    puts: BTreeSet<&'t [u8]>,
    deletes: Vec<&'t DeleteRange>,
}

impl<'t> Writes<'t> {
    /// Collects what a branch and its inner transactions write, in etcd's order: this level's deletions, the inner
    /// transactions, this level's puts. The order shows: of two inner transactions, the second's puts are held against the
    /// first's deletions, not the other way round.
    fn of(operations: &'t [Operation]) -> Result<Writes<'t>, CheckError> {
        let mut writes = Writes::default();
        for operation in operations {
            if let Some(Request::DeleteRange(delete)) = &operation.request {
                writes.deletes.push(delete);
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
        if self.deletes.iter().any(|delete| is_deleted(delete, key)) || !self.puts.insert(key) {
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
        self.deletes.extend(success.deletes);
        self.deletes.extend(failure.deletes);
        Ok(())
    }
}

/// Whether a deletion hits a key, as etcd's check sees it: the end `"\0"` is taken literally, so that "everything from the
/// key on" hits nothing. Such a transaction is accepted (seen on etcd 3.5.1), and its operations run in their order.
fn is_deleted(delete: &DeleteRange, key: &[u8]) -> bool {
    match delete.range_end.is_empty() {
        true => delete.key == key,
        false => &delete.key[..] <= key && key < &delete.range_end[..],
    }
}
