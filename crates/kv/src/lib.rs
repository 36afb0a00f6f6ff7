//! etcd's key-value semantics as a pure, deterministic state machine.
//!
//! A [`KvStore`] is a value: committed commands go in ([`Command`]), results come out ([`Outcome`]), and at any moment a
//! [`View`] can be taken of it in constant time, for reads, watches and snapshots beside the loop. It implements the MVCC
//! of etcd 3.5 (revisions, transactions, watches, compaction, leases, alarms) as `etcd` 3.5.1 was seen to behave; where
//! it differs on purpose, the module says so.
//!
//! ```text
//!   Command ──► KvStore::apply ──► Outcome          View::range, read_txn, events_since, leases, hash_kv
//!                    │                                ▲
//!                    └────────── freeze: O(1) ────────┘
//! ```
//!
//! Deliberately absent: the network, clocks and randomness (time comes as elapsed time in entries, ids come in commands),
//! how a caller proves who it is, and the wire format of etcd's API, which the server translates.
//!
//! Commands go in, and a view of the result keeps what it saw:
//!
//! ```
//! use hustings_core::{Lsn, StateMachine};
//! use hustings_kv::{Command, KeyRange, KvStore, Put, Range};
//!
//! let mut store = KvStore::new();
//! let mut put = |index, value: &'static str| {
//!     let put = Put { key: "color".into(), value: value.into(), ..Put::default() };
//!     store.apply(Lsn::new(1, index), &Command::Put(put).to_payload()).expect("a put is not refused");
//!     store.view().clone()
//! };
//! let (red, blue) = (put(1, "red"), put(2, "blue"));
//! let range = Range { key: "color".into(), ..Range::default() };
//! assert_eq!(red.range(&range).expect("the present can be read").kvs[0].value, "red");
//! assert_eq!(blue.range(&range).expect("the present can be read").kvs[0].value, "blue");
//! // A watcher that has seen the first revision of the key gets the second.
//! let events = blue.events_since(red.revision() + 1, &KeyRange::all(), 10).expect("nothing is compacted");
//! assert_eq!(events.events.len(), 1);
//! assert_eq!(events.events[0].kv.value, "blue");
//! ```
//!
//! Read on in the order of the modules.

pub mod command;
pub mod response;

mod large;

mod version;

mod store;

mod order;

mod tree;

pub mod range;

pub mod rules;

pub mod cost;

pub mod txn;

pub mod check;

pub mod watch;

pub mod lease;

pub mod users;

pub mod permission;

pub mod queue;

mod compact;

pub mod hash;

mod snapshot;

mod restored;

pub mod parts;

mod users_record;

pub mod machine;

pub use check::{CheckError, check_delete_range, check_put, check_range, check_txn};
pub use command::{
    Advance, AlarmChange, AlarmKind, Command, Compact, Compare, CompareTarget, Comparison, DeleteRange, LeaseGrant,
    LeaseKeepAlive, LeaseRevoke, Operation, Put, RaiseRevision, Range, Request, ShortLeaseGrant, SortOrder, SortTarget,
    Txn,
};
pub use cost::{COST_MAX, DELETIONS_MAX};
pub use hash::{KvHash, hash_kv};
pub use lease::{KEYS_PER_STEP, LEASE_TTL_SECONDS_MAX, LEASES_PER_STEP, LeaseKeys, LeaseStatus};
pub use machine::KvStore;
pub use parts::{ForeignUsers, Restoration};
pub use permission::{Caller, Need};
pub use range::{KeyRange, Selection};
pub use response::{
    Alarm, DeferredRange, DeleteRangeResponse, KeyValue, KvError, OperationResponse, Outcome, PutResponse,
    RangeResponse, Response, TxnResponse,
};
pub use rules::Rules;
pub use store::View;
pub use users::{
    Accounts, AccountsChange, AccountsError, AuthDisable, AuthEnable, Named, Permission, PermissionKind, ROOT,
    RolePermission, UserPassword, UserRole, Users,
};
pub use watch::{Compacted, Event, EventKind, Events, Portion, UnreadEvent, UnreadEvents};

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
