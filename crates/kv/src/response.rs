//! The results of commands and reads, typed, and errors that the server maps to etcd's strings.
//!
//! Every result carries the revision that etcd would put into its header. The maps from [`KvError`] to gRPC codes and
//! `etcdserver:` strings are the server's; each variant names the string that it stands for.
//!
//! Read next: [`crate::range`] and [`crate::txn`], which make most of these.

use std::sync::Arc;

use bytes::Bytes;

use crate::{Range, View, version::Version};

/// One version of a key.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct KeyValue {
    /// Bytes of the key.
    pub key: Bytes,
    /// Bytes of the value.
    pub value: Bytes,
    /// The revision that created the key; 0 in a tombstone.
    pub create_revision: i64,
    /// The revision that wrote this version.
    pub mod_revision: i64,
    /// Number of writes of the key since it was created, from 1; 0 marks a tombstone.
    pub version: i64,
    /// The lease that the key is attached to; 0 for none.
    pub lease: i64,
}

impl KeyValue {
    /// Whether this version says "deleted here".
    pub fn is_tombstone(&self) -> bool {
        self.version == 0
    }
}

/// The answer to one command: a result, or an error that changed nothing.
pub type Outcome = Result<Response, KvError>;

/// The result of one command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Response {
    /// The result of a put.
    Put(PutResponse),
    /// The result of a deletion.
    DeleteRange(DeleteRangeResponse),
    /// The result of a transaction.
    Txn(TxnResponse),
    /// The result of a compaction.
    Compact {
        /// The store's present revision.
        revision: i64,
    },
    /// The result of a new lease.
    LeaseGrant {
        /// The store's present revision.
        revision: i64,
        /// Id of the lease.
        id: i64,
        /// The time to live that was granted, seconds.
        ttl: i64,
    },
    /// The result of a revoked lease.
    LeaseRevoke {
        /// The revision after its keys went.
        revision: i64,
    },
    /// The result of renewed leases.
    LeaseKeepAlive {
        /// The store's present revision.
        revision: i64,
        /// Per asked id, in the order asked: the time to live in seconds, `None` when there is no such lease.
        renewed: Vec<(i64, Option<i64>)>,
    },
    /// The result of an alarm raised or cleared.
    Alarm {
        /// The store's present revision.
        revision: i64,
        /// The alarm concerned; empty when one was to be cleared that was not raised.
        alarms: Vec<Alarm>,
    },
    /// The result of a change of users or roles.
    Accounts {
        /// The store's present revision.
        revision: i64,
        /// The auth revision after the change.
        auth_revision: u64,
    },
    /// The result of [`crate::Advance`] and [`crate::RaiseRevision`].
    Advance {
        /// The store's present revision.
        revision: i64,
    },
}

/// The result of a put.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PutResponse {
    /// The revision that wrote the key.
    pub revision: i64,
    /// The previous value, if it was asked for and there was one.
    pub prev_kv: Option<KeyValue>,
    /// The previous value, where the disk must be asked for it: see [`Response::answered`].
    pub(crate) deferred: Option<Version>,
}

/// The result of a deletion.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeleteRangeResponse {
    /// The revision that deleted, or the present one if nothing was there.
    pub revision: i64,
    /// Number of keys that were deleted.
    pub deleted: i64,
    /// The previous values, by key, if they were asked for.
    pub prev_kvs: Vec<KeyValue>,
    /// The previous values, where the disk must be asked for some of them: see [`Response::answered`].
    pub(crate) deferred: Vec<Version>,
}

/// The result of a read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RangeResponse {
    /// The present revision, also when an older one was read.
    pub revision: i64,
    /// The keys asked for.
    pub kvs: Vec<KeyValue>,
    /// Whether `limit` cut the answer.
    pub more: bool,
    /// Number of keys that the range has at the revision read, without regard to the limit and the filters.
    pub count: i64,
}

/// The result of a transaction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TxnResponse {
    /// The revision after the transaction; 0 in a transaction inside a transaction, as in etcd, whose inner headers are empty.
    pub revision: i64,
    /// Whether all compares held.
    pub succeeded: bool,
    /// One per operation of the branch that ran.
    pub results: Vec<OperationResponse>,
}

/// The result of one step of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OperationResponse {
    /// The result of a read.
    Range(RangeResponse),
    /// The result of a put.
    Put(PutResponse),
    /// The result of a deletion.
    DeleteRange(DeleteRangeResponse),
    /// The result of a transaction inside the transaction.
    Txn(TxnResponse),
    /// A read of several keys that has not been carried out: see [`Response::answered`].
    Deferred(DeferredRange),
}

/// A read inside a transaction, and the state that it reads: the one that the steps before it left.
///
/// All members apply the transaction, one of them has a client that waits: only there the answer is built.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeferredRange {
    pub(crate) view: Arc<View>,
    pub(crate) range: Range,
    pub(crate) present: i64,
}

impl DeferredRange {
    /// Most keys that it reads, as far as that is known without reading.
    pub fn keys_max(&self) -> usize {
        self.view.key_count()
    }

    /// Reads the range.
    ///
    /// # Errors
    /// None that the transaction was not refused with.
    pub fn answer(&self) -> Result<RangeResponse, KvError> {
        self.view.range_at(&self.range, self.present)
    }
}

impl Response {
    /// The store's revision after the command.
    pub fn revision(&self) -> i64 {
        match self {
            Response::Put(put) => put.revision,
            Response::DeleteRange(deleted) => deleted.revision,
            Response::Txn(txn) => txn.revision,
            Response::Compact { revision }
            | Response::LeaseGrant { revision, .. }
            | Response::LeaseRevoke { revision }
            | Response::LeaseKeepAlive { revision, .. }
            | Response::Alarm { revision, .. }
            | Response::Accounts { revision, .. }
            | Response::Advance { revision } => *revision,
        }
    }

    /// Whether [`Response::answered`] has something to read.
    pub fn is_deferred(&self) -> bool {
        match self {
            Response::Put(put) => put.deferred.is_some(),
            Response::DeleteRange(deleted) => !deleted.deferred.is_empty(),
            Response::Txn(txn) => txn.is_deferred(),
            _ => false,
        }
    }

    /// Whether [`Response::answered`] reads more than single keys.
    pub fn has_deferred_ranges(&self) -> bool {
        matches!(self, Response::Txn(txn) if txn.has_deferred_ranges())
    }

    /// Bytes of what puts and deletions found, which [`Response::answered`] reads into memory.
    pub fn deferred_bytes(&self) -> usize {
        match self {
            Response::Put(put) => put.deferred_bytes(),
            Response::DeleteRange(deleted) => deleted.deferred_bytes(),
            Response::Txn(txn) => txn.deferred_bytes(),
            _ => 0,
        }
    }

    /// Carries out the reads that were put off until somebody asks. May take long: not for the loop.
    ///
    /// # Errors
    /// As [`DeferredRange::answer`].
    pub fn answered(self) -> Outcome {
        match self {
            Response::Put(put) => Ok(Response::Put(put.answered())),
            Response::DeleteRange(deleted) => Ok(Response::DeleteRange(deleted.answered())),
            Response::Txn(txn) => Ok(Response::Txn(txn.answered()?)),
            other => Ok(other),
        }
    }
}

impl PutResponse {
    fn deferred_bytes(&self) -> usize {
        self.deferred.as_ref().map_or(0, Version::contents_length)
    }

    fn answered(self) -> PutResponse {
        let prev_kv = self.deferred.as_ref().map(Version::kv).or(self.prev_kv);
        PutResponse { prev_kv, deferred: None, ..self }
    }
}

impl DeleteRangeResponse {
    fn deferred_bytes(&self) -> usize {
        self.deferred.iter().map(Version::contents_length).sum()
    }

    fn answered(self) -> DeleteRangeResponse {
        match self.deferred.is_empty() {
            true => self,
            false => DeleteRangeResponse {
                prev_kvs: self.deferred.iter().map(Version::kv).collect(),
                deferred: Vec::new(),
                ..self
            },
        }
    }
}

impl TxnResponse {
    fn is_deferred(&self) -> bool {
        self.results.iter().any(|result| match result {
            OperationResponse::Deferred(_) => true,
            OperationResponse::Put(put) => put.deferred.is_some(),
            OperationResponse::DeleteRange(deleted) => !deleted.deferred.is_empty(),
            OperationResponse::Txn(inner) => inner.is_deferred(),
            OperationResponse::Range(_) => false,
        })
    }

    fn deferred_bytes(&self) -> usize {
        let bytes = |result: &OperationResponse| match result {
            OperationResponse::Put(put) => put.deferred_bytes(),
            OperationResponse::DeleteRange(deleted) => deleted.deferred_bytes(),
            OperationResponse::Txn(inner) => inner.deferred_bytes(),
            OperationResponse::Range(_) | OperationResponse::Deferred(_) => 0,
        };
        self.results.iter().map(bytes).sum()
    }

    fn has_deferred_ranges(&self) -> bool {
        self.results.iter().any(|result| match result {
            OperationResponse::Deferred(deferred) => !deferred.range.range_end.is_empty(),
            OperationResponse::Txn(inner) => inner.has_deferred_ranges(),
            _ => false,
        })
    }

    /// Carries out the reads that were put off until somebody asks.
    ///
    /// # Errors
    /// As [`DeferredRange::answer`].
    pub fn answered(self) -> Result<TxnResponse, KvError> {
        let answer = |result| match result {
            OperationResponse::Deferred(deferred) => deferred.answer().map(OperationResponse::Range),
            OperationResponse::Put(put) => Ok(OperationResponse::Put(put.answered())),
            OperationResponse::DeleteRange(deleted) => Ok(OperationResponse::DeleteRange(deleted.answered())),
            OperationResponse::Txn(inner) => inner.answered().map(OperationResponse::Txn),
            other => Ok(other),
        };
        let results = self.results.into_iter().map(answer).collect::<Result<_, _>>()?;
        Ok(TxnResponse { results, ..self })
    }
}

/// An alarm that stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Alarm {
    /// The member that it is about.
    pub member: u64,
    /// Kind of the alarm.
    pub kind: crate::AlarmKind,
}

/// The reason why a command or a read was refused; nothing changed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum KvError {
    /// The bytes are no command, or the command lacks a part: the proposer is at fault.
    #[error("the command's bytes are malformed")]
    Malformed,
    /// `etcdserver: key is not provided`.
    #[error("key is not provided")]
    EmptyKey,
    /// `etcdserver: key not found`: `ignore_value` or `ignore_lease` on a key that does not exist, or an empty operation.
    #[error("key not found")]
    KeyNotFound,
    /// `etcdserver: mvcc: required revision has been compacted`.
    #[error("required revision has been compacted, the oldest is {compact_revision}")]
    Compacted {
        /// The oldest revision that can be read.
        compact_revision: i64,
    },
    /// `etcdserver: mvcc: required revision is a future revision`.
    #[error("required revision is a future revision, the present one is {revision}")]
    FutureRevision {
        /// The store's present revision.
        revision: i64,
    },
    /// `etcdserver: requested lease not found`.
    #[error("requested lease not found")]
    LeaseNotFound,
    /// `etcdserver: lease already exists`.
    #[error("lease already exists")]
    LeaseExists,
    /// `etcdserver: too large lease TTL`.
    #[error("too large lease TTL")]
    LeaseTtlTooLarge,
    /// `etcdserver: mvcc: database space exceeded`: a [`crate::AlarmKind::NoSpace`] alarm stands.
    #[error("database space exceeded")]
    NoSpace,
    /// One request may not touch so much: [`crate::COST_MAX`]. etcd has no such bound.
    #[error(
        "the request touches more keys than one request may: delete up to {} keys, compare fewer, or do it in parts",
        crate::DELETIONS_MAX
    )]
    TooCostly,
    /// More alarms stand than there can be members.
    #[error("too many alarms stand")]
    TooManyAlarms,
    /// The caller, or a change of users, was refused.
    #[error(transparent)]
    Accounts(#[from] crate::AccountsError),
    /// `etcdserver: corrupt cluster`: a [`crate::AlarmKind::Corrupt`] alarm stands.
    #[error("corrupt cluster")]
    Corrupt,
}
