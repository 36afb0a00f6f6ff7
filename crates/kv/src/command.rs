//! The commands that clients may give the store, as the log carries them.
//!
//! The words are those of etcd 3.5's API (`Range`, `Put`, `DeleteRange`, `Txn`, `Compaction`, leases, alarms), the types are
//! ours: the server translates, so that a log written today does not change when the API's generated code does. Encoded as
//! protobuf, so that fields can be added; an unknown field is ignored, an unknown command is refused by `apply`.
//!
//! It deliberately does not check anything: the checks that etcd makes before it proposes stand in [`crate::check`], the
//! checks that depend on the state in [`crate::txn`].
//!
//! Read next: [`crate::response`], what comes back; [`crate::store`], how it is done.

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

use crate::permission::Caller;
use crate::users::Accounts;

/// One entry of the log.
#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(oneof = "Command", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12")]
    command: Option<Command>,
    /// The caller; missing: nobody said. Without meaning while users do not count.
    #[prost(message, optional, tag = "100")]
    caller: Option<Caller>,
}

/// A command: what one log entry asks for.
#[derive(Clone, PartialEq, Oneof)]
pub enum Command {
    /// Writes one key and its value.
    #[prost(message, tag = "1")]
    Put(Put),
    /// Deletes a key or a range of keys.
    #[prost(message, tag = "2")]
    DeleteRange(DeleteRange),
    /// Compares, then runs one of two lists of operations, in one revision.
    #[prost(message, tag = "3")]
    Txn(Txn),
    /// Forgets the history below a revision.
    #[prost(message, tag = "4")]
    Compact(Compact),
    /// Creates a lease with a time to live.
    #[prost(message, tag = "5")]
    LeaseGrant(LeaseGrant),
    /// Ends a lease and deletes its keys.
    #[prost(message, tag = "6")]
    LeaseRevoke(LeaseRevoke),
    /// Renews leases, many at once.
    #[prost(message, tag = "7")]
    LeaseKeepAlive(LeaseKeepAlive),
    /// Raises or clears an alarm.
    #[prost(message, tag = "8")]
    Alarm(AlarmChange),
    /// Does nothing by itself: carries elapsed time to an idle store, and lets due work go on.
    #[prost(message, tag = "9")]
    Advance(Advance),
    /// Creates a lease that lives for milliseconds. Refused before the second apply version ([`crate::rules`]).
    #[prost(message, tag = "10")]
    ShortLeaseGrant(ShortLeaseGrant),
    /// Changes users or roles. Refused before the third apply version ([`crate::rules`]).
    #[prost(message, tag = "11")]
    Accounts(Accounts),
    /// Lets the revision begin above another store's. Refused before the third apply version ([`crate::rules`]).
    #[prost(message, tag = "12")]
    RaiseRevision(RaiseRevision),
}

impl Command {
    /// The bytes that the log carries.
    pub fn to_payload(&self) -> Bytes {
        self.to_payload_by(None)
    }

    /// The bytes that the log carries for a caller.
    pub fn to_payload_by(&self, caller: Option<&Caller>) -> Bytes {
        Envelope { command: Some(self.clone()), caller: caller.cloned() }.encode_to_vec().into()
    }

    /// Reads what [`Command::to_payload`] wrote; `None` for anything else. Never panics; nesting deeper than the codec's limit is refused.
    pub fn from_payload(payload: &Bytes) -> Option<Command> {
        Command::with_caller(payload).map(|(command, _)| command)
    }

    /// Decodes as [`Command::from_payload`], with the caller.
    pub fn with_caller(payload: &Bytes) -> Option<(Command, Option<Caller>)> {
        let Envelope { command, caller } = Envelope::decode(payload.clone()).ok()?;
        Some((command?, caller))
    }
}

/// The fields of a put.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Put {
    /// The key; never empty.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The value to write.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    /// The lease to attach the key to; 0 detaches it.
    #[prost(int64, tag = "3")]
    pub lease: i64,
    /// Return what was there before.
    #[prost(bool, tag = "4")]
    pub prev_kv: bool,
    /// Keep the present value; refused when the key does not exist.
    #[prost(bool, tag = "5")]
    pub ignore_value: bool,
    /// Keep the present lease; refused when the key does not exist.
    #[prost(bool, tag = "6")]
    pub ignore_lease: bool,
}

/// Deletes a key or a range of keys.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct DeleteRange {
    /// The first key; never empty.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Empty for one key, `"\0"` for all keys from `key` on, else the first key that is out.
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    /// Return what was there before.
    #[prost(bool, tag = "3")]
    pub prev_kv: bool,
}

/// Reads a key or a range of keys.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Range {
    /// The first key; never empty.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Empty for one key, `"\0"` for all keys from `key` on, else the first key that is out.
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    /// Most keys to return; 0 or less means all.
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// The revision to read at; 0 or less means the present one.
    #[prost(int64, tag = "4")]
    pub revision: i64,
    /// Order in which to return them.
    #[prost(enumeration = "SortOrder", tag = "5")]
    pub sort_order: i32,
    /// Property to order by.
    #[prost(enumeration = "SortTarget", tag = "6")]
    pub sort_target: i32,
    /// Leave the values empty.
    #[prost(bool, tag = "7")]
    pub keys_only: bool,
    /// Return the count alone.
    #[prost(bool, tag = "8")]
    pub count_only: bool,
    /// Leave out keys modified before this revision; 0 means no bound.
    #[prost(int64, tag = "9")]
    pub min_mod_revision: i64,
    /// Leave out keys modified after this revision; 0 means no bound.
    #[prost(int64, tag = "10")]
    pub max_mod_revision: i64,
    /// Leave out keys created before this revision; 0 means no bound.
    #[prost(int64, tag = "11")]
    pub min_create_revision: i64,
    /// Leave out keys created after this revision; 0 means no bound.
    #[prost(int64, tag = "12")]
    pub max_create_revision: i64,
}

/// The order of a range's answer; the numbers are etcd's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Enumeration)]
#[repr(i32)]
pub enum SortOrder {
    /// In the store's own order: by key, ascending.
    None = 0,
    /// The lowest comes first.
    Ascend = 1,
    /// The highest comes first.
    Descend = 2,
}

/// The property that a range's answer is ordered by; the numbers are etcd's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Enumeration)]
#[repr(i32)]
pub enum SortTarget {
    /// By the key, byte by byte.
    Key = 0,
    /// By how often the key was written since it was created.
    Version = 1,
    /// The revision that created the key.
    Create = 2,
    /// The revision that last wrote the key.
    Mod = 3,
    /// By the value, byte by byte.
    Value = 4,
}

/// Compares, then runs one of two lists of operations, in one revision.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Txn {
    /// All must hold for `success` to run.
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    /// Runs when all compares hold.
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<Operation>,
    /// Runs when one compare does not hold.
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<Operation>,
}

/// One condition of a transaction: it must hold for every key of its range.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Compare {
    /// Relation that the key's property must have to `target`.
    #[prost(enumeration = "Comparison", tag = "1")]
    pub comparison: i32,
    /// The first key; never empty.
    #[prost(bytes = "bytes", tag = "2")]
    pub key: Bytes,
    /// The end of the range, as in [`Range::range_end`].
    #[prost(bytes = "bytes", tag = "3")]
    pub range_end: Bytes,
    /// The property and what it is compared with; missing means version 0.
    #[prost(oneof = "CompareTarget", tags = "4, 5, 6, 7, 8")]
    pub target: Option<CompareTarget>,
}

/// Relation of a property to its target; the numbers are etcd's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Enumeration)]
#[repr(i32)]
pub enum Comparison {
    /// The property equals the target.
    Equal = 0,
    /// The property is greater than the target.
    Greater = 1,
    /// The property is less than the target.
    Less = 2,
    /// The property differs from the target.
    NotEqual = 3,
}

/// The property that a [`Compare`] looks at, with the value to compare it with.
#[derive(Clone, PartialEq, Eq, Hash, Oneof)]
pub enum CompareTarget {
    /// Number of writes since creation; 0 for a key that does not exist.
    #[prost(int64, tag = "4")]
    Version(i64),
    /// Creating revision; 0 for a key that does not exist.
    #[prost(int64, tag = "5")]
    Create(i64),
    /// Last writing revision; 0 for a key that does not exist.
    #[prost(int64, tag = "6")]
    Mod(i64),
    /// Value; never holds for a key that does not exist.
    #[prost(bytes = "bytes", tag = "7")]
    Value(Bytes),
    /// Attached lease; 0 for none.
    #[prost(int64, tag = "8")]
    Lease(i64),
}

/// One step of a transaction.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Operation {
    /// The work of the step; a step without one is refused.
    #[prost(oneof = "Request", tags = "1, 2, 3, 4")]
    pub request: Option<Request>,
}

/// The work of one step of a transaction.
#[derive(Clone, PartialEq, Eq, Hash, Oneof)]
pub enum Request {
    /// Reads a range of keys.
    #[prost(message, tag = "1")]
    Range(Range),
    /// Writes one key, with its value and perhaps a lease.
    #[prost(message, tag = "2")]
    Put(Put),
    /// Deletes a range of keys.
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRange),
    /// A transaction inside the transaction; its compares see the state before the outermost one.
    #[prost(message, tag = "4")]
    Txn(Txn),
}

impl From<Request> for Operation {
    fn from(request: Request) -> Operation {
        Operation { request: Some(request) }
    }
}

/// Forgets the history below a revision.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Compact {
    /// The oldest revision that stays readable.
    #[prost(int64, tag = "1")]
    pub revision: i64,
}

/// The fields of a new lease.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct LeaseGrant {
    /// The lease's id; not 0, the server picks ids.
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// Time to live, seconds; less than 1 counts as 1. The server raises it to its own minimum.
    #[prost(int64, tag = "2")]
    pub ttl: i64,
}

/// Creates a lease that lives for milliseconds.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct ShortLeaseGrant {
    /// The lease's id; not 0, the server picks ids.
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// Time to live, milliseconds; less than 1 counts as 1. The server raises it to its own minimum.
    #[prost(uint64, tag = "2")]
    pub ttl_millis: u64,
}

/// Ends a lease and deletes its keys.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct LeaseRevoke {
    /// Id of the lease.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// The fields of a renewal of leases.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct LeaseKeepAlive {
    /// The leases' ids; each is answered, in this order.
    #[prost(int64, repeated, tag = "1")]
    pub ids: Vec<i64>,
}

/// Raises or clears an alarm.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct AlarmChange {
    /// True raises, false clears.
    #[prost(bool, tag = "1")]
    pub raise: bool,
    /// The member that the alarm is about.
    #[prost(uint64, tag = "2")]
    pub member: u64,
    /// The kind of alarm.
    #[prost(enumeration = "AlarmKind", tag = "3")]
    pub kind: i32,
}

/// A kind of alarm; the numbers are etcd's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Enumeration)]
#[repr(i32)]
pub enum AlarmKind {
    /// No alarm; a request for it changes nothing.
    None = 0,
    /// A member's quota is used up: puts and new leases are refused.
    NoSpace = 1,
    /// A member's data differs from the others': everything is refused.
    Corrupt = 2,
}

/// Raises the revision to this one where it is below: a revision that another store gave out as a fencing token, or as that of
/// a lock, does not come again here. Nothing else changes: no change has one of the revisions between.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct RaiseRevision {
    /// The least revision from here on, at most [`RaiseRevision::MAX`].
    #[prost(int64, tag = "1")]
    pub revision: i64,
}

impl RaiseRevision {
    /// The highest revision: no store has counted so far, and counting on from here takes longer than it matters.
    pub const MAX: i64 = 1 << 56;
}

/// Does nothing by itself.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Advance {}
