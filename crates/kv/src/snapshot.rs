//! The store as bytes, and back.
//!
//! ```text
//!   magic (8)  format (4)
//!   block*     length (4)  checksum (4)  records, each with its length in front
//!   end        length 0    checksum
//! ```
//!
//! Numbers are little-endian; a checksum is CRC32C over all bytes of records up to here, so that a missing, repeated or moved
//! block shows. Blocks are about 256 KiB: a chunk each for the sink. Records come as: one `Meta`, users and roles if there ever
//! were some, leases, alarms, then the history in order, from which the other orders follow. An unknown format is refused; an
//! unknown field is ignored.
//!
//! Decoding trusts nothing: no length is believed beyond the bytes that are there, nothing is allocated by a count, and each
//! fact that `apply` relies on is checked ([`crate::restored`]). The memory that a store needs beside its bytes (tree nodes) is
//! needed here too.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hustings_core::{SnapshotError, SnapshotFile};
use prost::{Message, Oneof};
use std::sync::Arc;

use crate::{
    AlarmKind, KeyValue, View,
    large::{LARGE_BYTES_MIN, Large},
    lease::ttl_duration,
    restored::Restored,
    store::Revision,
    users::Users,
    users_record::{RoleRecord, UserRecord, UsersRecord},
};

const MAGIC: &[u8; 8] = b"hust-kv\0";
const FORMAT: u32 = 1;
const BLOCK_BYTES: usize = 256 * 1024;
/// A block that holds one record alone is longer. The longest record is a role: a thousand permissions, of 16 KiB at most now, and once of as
/// much as a request may have.
const BLOCK_BYTES_MAX: usize = 2 << 30;
/// Bytes of a block's length and checksum.
const BLOCK_HEADER_BYTES: usize = 8;
/// Greatest counter that is decoded: above this none can overflow in the lifetime of anything.
pub(crate) const COUNTER_MAX: i64 = i64::MAX / 2;
/// Greatest counter with which a store may begin, of another one's state: what it counts from there on is decoded for ever.
pub(crate) const BEGINNING_MAX: i64 = i64::MAX / 4;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Record {
    #[prost(oneof = "RecordKind", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub(crate) kind: Option<RecordKind>,
}

impl From<RecordKind> for Record {
    fn from(kind: RecordKind) -> Record {
        Record { kind: Some(kind) }
    }
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum RecordKind {
    #[prost(message, tag = "1")]
    Meta(MetaRecord),
    #[prost(message, tag = "2")]
    Lease(LeaseRecord),
    #[prost(message, tag = "3")]
    Alarm(AlarmRecord),
    #[prost(message, tag = "4")]
    Version(VersionRecord),
    #[prost(message, tag = "5")]
    Users(UsersRecord),
    #[prost(message, tag = "6")]
    User(UserRecord),
    #[prost(message, tag = "7")]
    Role(RoleRecord),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MetaRecord {
    #[prost(int64, tag = "1")]
    pub(crate) revision: i64,
    #[prost(int64, tag = "2")]
    pub(crate) compact_revision: i64,
    #[prost(bool, tag = "3")]
    pub(crate) is_cleaning: bool,
    #[prost(int64, tag = "4")]
    pub(crate) cleaning_main: i64,
    #[prost(int64, tag = "5")]
    pub(crate) cleaning_sub: i64,
    #[prost(uint64, tag = "6")]
    pub(crate) clock_seconds: u64,
    #[prost(uint32, tag = "7")]
    pub(crate) clock_nanos: u32,
    #[prost(uint64, tag = "8")]
    pub(crate) versions: u64,
    #[prost(uint64, tag = "9")]
    pub(crate) leases: u64,
    #[prost(uint64, tag = "10")]
    pub(crate) alarms: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseRecord {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
    #[prost(int64, tag = "2")]
    pub(crate) ttl: i64,
    #[prost(uint64, tag = "3")]
    pub(crate) deadline_seconds: u64,
    #[prost(uint32, tag = "4")]
    pub(crate) deadline_nanos: u32,
    /// The time to live, where it is less than those seconds; 0: it is not.
    #[prost(uint64, tag = "5")]
    pub(crate) ttl_millis: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AlarmRecord {
    #[prost(uint64, tag = "1")]
    pub(crate) member: u64,
    #[prost(enumeration = "AlarmKind", tag = "2")]
    pub(crate) kind: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct VersionRecord {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) value: Bytes,
    #[prost(int64, tag = "3")]
    pub(crate) create_revision: i64,
    #[prost(int64, tag = "4")]
    pub(crate) mod_revision: i64,
    #[prost(int64, tag = "5")]
    pub(crate) sub: i64,
    #[prost(int64, tag = "6")]
    pub(crate) version: i64,
    #[prost(int64, tag = "7")]
    pub(crate) lease: i64,
}

/// Large values, and where each stands among the bytes that a view was encoded to.
pub(crate) type Places = Vec<(Arc<Large>, u64)>;

/// Encodes a view, a chunk at a time.
pub(crate) fn encode(view: &View, sink: &mut dyn FnMut(Bytes)) -> Places {
    let mut places = Vec::new();
    let cleaning = view.cleaning.unwrap_or(Revision::first(0));
    let mut blocks = begin(
        view,
        MetaRecord {
            is_cleaning: view.cleaning.is_some(),
            cleaning_main: cleaning.main,
            cleaning_sub: cleaning.sub,
            versions: view.history.len() as u64,
            ..MetaRecord::of(view)
        },
        sink,
    );
    for version in view.history.iter() {
        let KeyValue { key, value, create_revision, mod_revision, version: count, lease } = version.kv();
        let sub = version.revision().sub;
        let numbers = VersionRecord { create_revision, mod_revision, sub, version: count, lease, ..Default::default() };
        // Bytes behind the value in its record: fields are written in the order of their tags.
        let behind = version.large().map(|large| (large, value.len() + numbers.encoded_len()));
        let end = blocks.push(RecordKind::Version(VersionRecord { key, value, ..numbers }));
        places.extend(behind.map(|(large, length)| (large.clone(), end - length as u64)));
    }
    blocks.finish();
    places
}

/// Encodes all of a view but its history, of which so many versions are kept elsewhere: what a compaction has left to remove is
/// not among them.
pub(crate) fn encode_rest(view: &View, versions: u64, sink: &mut dyn FnMut(Bytes)) {
    begin(view, MetaRecord { versions, ..MetaRecord::of(view) }, sink).finish();
}

impl MetaRecord {
    /// The record of a view, without the history.
    fn of(view: &View) -> MetaRecord {
        MetaRecord {
            revision: view.revision,
            compact_revision: view.compact_revision,
            clock_seconds: view.clock.as_secs(),
            clock_nanos: view.clock.subsec_nanos(),
            leases: view.leases.len() as u64,
            alarms: view.alarms.len() as u64,
            ..MetaRecord::default()
        }
    }
}

/// Encodes all that stands before the history.
fn begin<'s>(view: &View, meta: MetaRecord, sink: &'s mut dyn FnMut(Bytes)) -> BlockWriter<'s> {
    let mut header = BytesMut::with_capacity(MAGIC.len() + 4);
    header.put_slice(MAGIC);
    header.put_u32_le(FORMAT);
    let begun = header.len() as u64;
    sink(header.freeze());

    let mut blocks = BlockWriter { block: empty_block(), begun, checksum: 0, sink };
    blocks.push(RecordKind::Meta(meta));
    if view.users != Users::default() {
        blocks.push(RecordKind::Users(UsersRecord::of(&view.users)));
        for (name, user) in view.users.users.iter() {
            blocks.push(RecordKind::User(UserRecord::of(name, user)));
        }
        for (name, role) in view.users.roles.iter() {
            blocks.push(RecordKind::Role(RoleRecord::of(name, role)));
        }
    }
    for (id, lease) in &view.leases {
        blocks.push(RecordKind::Lease(LeaseRecord {
            id: *id,
            ttl: lease.ttl,
            deadline_seconds: lease.deadline.as_secs(),
            deadline_nanos: lease.deadline.subsec_nanos(),
            ttl_millis: match lease.length == ttl_duration(lease.ttl) {
                true => 0,
                false => lease.length.as_millis() as u64,
            },
        }));
    }
    for alarm in &view.alarms {
        blocks.push(RecordKind::Alarm(AlarmRecord { member: alarm.member, kind: alarm.kind.into() }));
    }
    blocks
}

struct BlockWriter<'s> {
    block: BytesMut,
    /// Place in the file at which the block begins.
    begun: u64,
    checksum: u32,
    sink: &'s mut dyn FnMut(Bytes),
}

fn empty_block() -> BytesMut {
    let mut block = BytesMut::with_capacity(BLOCK_HEADER_BYTES + BLOCK_BYTES);
    block.put_bytes(0, BLOCK_HEADER_BYTES);
    block
}

impl BlockWriter<'_> {
    /// Adds a record; says where it ends.
    fn push(&mut self, kind: RecordKind) -> u64 {
        let record = Record { kind: Some(kind) };
        let length = record.encoded_len();
        if self.block.len() > BLOCK_HEADER_BYTES && self.block.len() + length > BLOCK_BYTES {
            self.seal();
        }
        self.block.reserve(length + prost::length_delimiter_len(length));
        record.encode_length_delimited(&mut self.block).expect("the block has room for the record");
        self.begun + self.block.len() as u64
    }

    fn seal(&mut self) {
        let mut block = std::mem::replace(&mut self.block, empty_block());
        let records = &block[BLOCK_HEADER_BYTES..];
        self.checksum = crc32c::crc32c_append(self.checksum, records);
        let length =
            u32::try_from(records.len()).expect("a block holds one record or 256 KiB, and a record fits a log entry");
        block[..4].copy_from_slice(&length.to_le_bytes());
        block[4..8].copy_from_slice(&self.checksum.to_le_bytes());
        self.begun += block.len() as u64;
        (self.sink)(block.freeze());
    }

    fn finish(mut self) {
        if self.block.len() > BLOCK_HEADER_BYTES {
            self.seal();
        }
        // The end is a block without records.
        self.block.truncate(BLOCK_HEADER_BYTES);
        self.seal();
    }
}

/// The file that a snapshot is read from, and where in it this part begins.
pub(crate) type Source<'f> = Option<(&'f Arc<dyn SnapshotFile>, u64)>;

/// Rebuilds a view from a snapshot. Large values stay in the file, where there is one.
pub(crate) fn decode(snapshot: &mut dyn Buf, source: Source<'_>) -> Result<View, SnapshotError> {
    let (restored, end) = decode_records(snapshot, source)?;
    restored.finish().map_err(|what| SnapshotError { what: format!("{what}, at the end, offset {end}") })
}

/// All records that there are, and where they end.
pub(crate) fn decode_records(snapshot: &mut dyn Buf, source: Source<'_>) -> Result<(Restored, u64), SnapshotError> {
    let mut reader = BlockReader { snapshot, offset: 0, checksum: 0 };
    reader.read_header()?;
    let mut restored = Restored::default();
    while let Some(mut block) = reader.read_block()? {
        let end = reader.offset;
        let whole = block.clone();
        // A value is a slice of its block: where it stands there is where it stands in the file.
        let place = |value: &Bytes| {
            let (file, start) = source.filter(|_| value.len() >= LARGE_BYTES_MIN)?;
            let inside = (value.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
            let is_slice = inside + value.len() <= whole.len();
            is_slice.then(|| Large::on_file(value, file.clone(), start + end - whole.len() as u64 + inside as u64))
        };
        while block.has_remaining() {
            let offset = end - block.remaining() as u64;
            let refuse = |what: &str| SnapshotError { what: format!("{what}, in the record at offset {offset}") };
            let record = Record::decode_length_delimited(&mut block).map_err(|error| refuse(&error.to_string()))?;
            restored.add_placed(record, place).map_err(refuse)?;
        }
    }
    Ok((restored, reader.offset))
}

struct BlockReader<'b> {
    snapshot: &'b mut dyn Buf,
    offset: u64,
    checksum: u32,
}

impl BlockReader<'_> {
    fn refuse(&self, what: String) -> SnapshotError {
        SnapshotError { what: format!("{what}, at offset {}", self.offset) }
    }

    fn take(&mut self, length: usize, what: &str) -> Result<Bytes, SnapshotError> {
        let there = self.snapshot.remaining();
        if there < length {
            return Err(self.refuse(format!("the snapshot ends inside {what}: {length} bytes needed, {there} there")));
        }
        self.offset += length as u64;
        Ok(self.snapshot.copy_to_bytes(length))
    }

    fn read_header(&mut self) -> Result<(), SnapshotError> {
        let mut header = self.take(MAGIC.len() + 4, "the header")?;
        self.offset = 0;
        if header.split_to(MAGIC.len()) != MAGIC[..] {
            return Err(self.refuse("this is no snapshot of a key-value store".into()));
        }
        self.offset = MAGIC.len() as u64;
        let format = header.get_u32_le();
        if format != FORMAT {
            return Err(
                self.refuse(format!("snapshot format {format} is not known here, {FORMAT} is: use a newer version"))
            );
        }
        self.offset = MAGIC.len() as u64 + 4;
        Ok(())
    }

    /// The records of the next block, or `None` at the end.
    fn read_block(&mut self) -> Result<Option<Bytes>, SnapshotError> {
        let mut header = self.take(BLOCK_HEADER_BYTES, "a block's header")?;
        let length = header.get_u32_le() as usize;
        let checksum = header.get_u32_le();
        if length > BLOCK_BYTES_MAX {
            return Err(self.refuse(format!("a block of {length} bytes is longer than any that is written")));
        }
        let records = self.take(length, "a block")?;
        self.checksum = crc32c::crc32c_append(self.checksum, &records);
        if checksum != self.checksum {
            return Err(self.refuse(format!("the checksum of the {length} bytes before does not fit")));
        }
        if length > 0 {
            return Ok(Some(records));
        }
        match self.snapshot.remaining() {
            0 => Ok(None),
            rest => Err(self.refuse(format!("{rest} bytes follow the end"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hustings_core::{Lsn, StateMachine, Term};
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::rules::VERSION_MAX;
    use crate::users::{Accounts, AccountsChange, Named, Permission, RolePermission};
    use crate::{Advance, Command, Compact, DeleteRange, KvStore, LeaseKeepAlive, LeaseRevoke, Put};

    fn number() -> impl Strategy<Value = i64> {
        prop_oneof![4 => 0..8_i64, 1 => any::<i64>(), 1 => Just(i64::MAX), 1 => Just(COUNTER_MAX), 1 => Just(-1_i64)]
    }

    prop_compose! {
        fn meta(versions: u64, leases: u64)(
            numbers in [number(), number(), number(), number()], is_cleaning: bool, clock_seconds: u64, clock_nanos: u32,
        ) -> RecordKind {
            let [revision, compact_revision, cleaning_main, cleaning_sub] = numbers;
            let clock_nanos = clock_nanos % 1_100_000_000;
            RecordKind::Meta(MetaRecord {
                revision, compact_revision, is_cleaning, cleaning_main, cleaning_sub, clock_seconds, clock_nanos,
                versions, leases, alarms: 0,
            })
        }
    }

    prop_compose! {
        fn version()(key in "[ab]{0,1}", value in "[x]{0,1}", numbers in [number(), number(), number(), number(), number()]) -> RecordKind {
            let [create_revision, mod_revision, sub, version, lease] = numbers;
            let (key, value) = (key.into(), value.into());
            RecordKind::Version(VersionRecord { key, value, create_revision, mod_revision, sub, version, lease })
        }
    }

    prop_compose! {
        fn lease()(id in number(), ttl in number(), deadline_seconds: u64) -> RecordKind {
            RecordKind::Lease(LeaseRecord { id, ttl, deadline_seconds, deadline_nanos: 0, ttl_millis: 0 })
        }
    }

    /// Goal: what was written is read again, however large it became. Method: a role of sixty permissions, each as long as a request may be,
    /// which is more than a block was read of once.
    #[test]
    fn a_role_of_many_long_permissions_is_read_again() {
        let mut store = KvStore::new();
        store.adopt(VERSION_MAX);
        let mut run = |index, change| {
            let command = Command::Accounts(Accounts { change: Some(change) });
            store.apply(Lsn::new(1, index), &command.to_payload()).expect("it is done");
        };
        run(1, AccountsChange::RoleAdd(Named { name: "r".into() }));
        for number in 0..60 {
            let key = Bytes::from([&[number][..], &[b'k'; 1_500_000]].concat());
            let permission = Some(Permission { kind: 2, key, range_end: Bytes::new() });
            run(2 + u64::from(number), AccountsChange::RoleGrant(RolePermission { role: "r".into(), permission }));
        }
        let mut bytes = BytesMut::new();
        KvStore::encode(&store.freeze(), &mut |chunk| bytes.extend_from_slice(&chunk));
        assert!(bytes.len() > 85 << 20);
        let read = KvStore::decode(&mut bytes.freeze()).expect("it is read");
        assert!(read.freeze().users() == store.freeze().users());
    }

    fn snapshot_of(records: Vec<RecordKind>) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.put_slice(MAGIC);
        bytes.put_u32_le(FORMAT);
        let mut sink = |chunk: Bytes| bytes.extend_from_slice(&chunk);
        let mut blocks = BlockWriter { block: empty_block(), begun: 0, checksum: 0, sink: &mut sink };
        for record in records {
            blocks.push(record);
        }
        blocks.finish();
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        // Goal: a snapshot whose checksums fit may still lie.
        // Method: arbitrary records under correct checksums; what is accepted must then take every kind of command.
        #[test]
        fn a_lying_snapshot_is_refused_or_harmless(
            records in (0..4_u64, 0..2_u64).prop_flat_map(|(versions, leases)| (
                meta(versions, leases), vec(lease(), leases as usize), vec(version(), versions as usize),
            )),
        ) {
            let (meta, leases, versions) = records;
            let records = [meta].into_iter().chain(leases).chain(versions).collect();
            let Ok(mut store) = KvStore::decode(&mut &snapshot_of(records)[..]) else { return Ok(()) };
            let key = Bytes::from_static(b"a");
            let commands = [
                Command::Put(Put { key: key.clone(), lease: 1, ..Put::default() }),
                Command::Put(Put { key: key.clone(), ..Put::default() }),
                Command::LeaseKeepAlive(LeaseKeepAlive { ids: vec![1, 2] }),
                Command::Compact(Compact { revision: store.view().revision() }),
                Command::Advance(Advance {}),
                Command::DeleteRange(DeleteRange { key: key.clone(), range_end: Bytes::from_static(b"\0"), prev_kv: true }),
                Command::LeaseRevoke(LeaseRevoke { id: 1 }),
            ];
            for command in commands {
                store.advance(Duration::from_secs(1));
                let _ = store.apply(Lsn { term: Term(1), index: 1 }, &command.to_payload());
            }
            prop_assert!(crate::hash_kv(&store.freeze(), 0).is_ok());
        }
    }

    // Goal: a large store does not become one allocation.
    #[test]
    fn chunks_are_about_256_kib() {
        let mut store = KvStore::new();
        for index in 0..2_000_u64 {
            let put = Put { key: index.to_string().into(), value: vec![7; 1_000].into(), ..Put::default() };
            store.apply(Lsn { term: Term(1), index }, &Command::Put(put).to_payload()).expect("a put");
        }
        let mut sizes = Vec::new();
        encode(&store.freeze(), &mut |chunk| sizes.push(chunk.len()));
        assert!(sizes.len() > 8, "2 MB are several chunks: {sizes:?}");
        assert!(sizes.iter().all(|size| *size <= BLOCK_HEADER_BYTES + BLOCK_BYTES), "none is longer: {sizes:?}");
    }

    #[test]
    fn an_error_names_the_thing_and_its_offset() {
        let foreign = decode(&mut &b"SQLite format 3\0"[..], None).expect_err("a foreign file");
        assert_eq!(foreign.what, "this is no snapshot of a key-value store, at offset 0");
        let mut bytes = snapshot_of(vec![RecordKind::Alarm(AlarmRecord { member: 1, kind: 1 })]);
        let misplaced = decode(&mut &bytes[..], None).expect_err("no description");
        assert_eq!(misplaced.what, "a record before the one that describes the store, in the record at offset 20");
        bytes[8] = 9;
        let newer = decode(&mut &bytes[..], None).expect_err("a newer format");
        assert_eq!(newer.what, "snapshot format 9 is not known here, 1 is: use a newer version, at offset 8");
    }
}
