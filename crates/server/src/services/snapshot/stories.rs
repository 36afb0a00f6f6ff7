//! Goal: a state is the same after it was a file; a file that was changed is refused; no bytes do harm.
//! Method: drawn commands for the state; drawn changes of the file; files as etcd could never write them, with every sum in order.

use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use hustings_api::{etcdserverpb as pb, mvccpb};
use hustings_bolt::Writer;
use hustings_core::{ApplyVersion, Lsn, Member, Membership, StateMachine};
use hustings_kv::{
    Accounts, AccountsChange, Advance, AlarmChange, AuthEnable, Command, Compact, DeleteRange, KvStore, LeaseGrant,
    LeaseKeepAlive, LeaseRevoke, Named, Operation, Permission, Put, RaiseRevision, Request, RolePermission,
    ShortLeaseGrant, Txn, UserPassword, UserRole, hash_kv,
};
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;

use super::schema::{self, Lease, Place, Role, User};
use super::write::{Contents, file_bytes};
use super::{DigestCheck, Origin, Snapshot, SnapshotFileError, read_snapshot};

fn store() -> KvStore {
    let mut store = KvStore::new();
    store.adopt(ApplyVersion(3));
    store
}

fn apply(store: &mut KvStore, command: Command) {
    let _ = store.apply(Lsn::new(1, 1), &command.to_payload_by(Some(&hustings_kv::Caller::member())));
}

fn contents(store: &KvStore) -> Contents {
    let member =
        |name: &str| Member { name: name.into(), peer_urls: vec![format!("http://{name}")], ..Member::default() };
    let membership = Membership::founded_by([member("n1"), member("n2")]);
    Contents { cluster_id: 1, member_id: 2, term: 3, index: 4, membership, view: StateMachine::freeze(store) }
}

/// The state as a file.
fn file(store: &KvStore) -> Bytes {
    let (contents, mut file) = (contents(store), Vec::new());
    let layout = contents.measure(&|| true).expect("it is wanted");
    contents.send(layout, &|| true, &mut |part| file.extend_from_slice(&part)).expect("it is wanted");
    assert_eq!(file.len() as u64, file_bytes(layout), "it is as long as was announced");
    file.into()
}

/// Goal: a file that nobody wants any more is not read to its end, which takes a minute of a processor where it has gigabytes. Method: a
/// history of a thousand versions, and a reader that goes when ten were read, while pages are counted and while they are sent.
#[test]
fn a_file_that_nobody_wants_any_more_ends() {
    let mut store = store();
    for number in 0..1_000_u32 {
        let (key, value) = (number.to_be_bytes().to_vec().into(), vec![b'v'; 1_000].into());
        apply(&mut store, Command::Put(Put { key, value, ..Put::default() }));
    }
    let contents = contents(&store);
    let layout = contents.measure(&|| true).expect("it is wanted");
    let read = Cell::new(0);
    let goes_after_ten = || read.replace(read.get() + 1) < 10;
    assert!(contents.measure(&goes_after_ten).is_none());
    assert_eq!(read.get(), 11);
    read.set(0);
    let mut sent = 0;
    assert!(contents.send(layout, &goes_after_ten, &mut |part| sent += part.len()).is_none());
    assert_eq!((read.get(), sent), (11, 0), "ten versions fill no part");
}

fn read(file: &Bytes, check: DigestCheck) -> Result<Snapshot, SnapshotFileError> {
    read_snapshot(file, file.len() as u64, check)
}

fn key() -> impl Strategy<Value = Bytes> {
    "[a-c]{1,2}".prop_map(Bytes::from)
}

fn command() -> impl Strategy<Value = Command> {
    let put = || (key(), vec(any::<u8>(), 0..40), prop_oneof![Just(0), Just(7), Just(-7)]);
    let put = || put().prop_map(|(key, value, lease)| Put { key, value: value.into(), lease, ..Put::default() });
    let operation = |put| Operation { request: Some(Request::Put(put)) };
    let success = vec(put(), 1..4).prop_map(move |puts| puts.into_iter().map(operation).collect());
    let account = |change| Command::Accounts(Accounts { change: Some(change) });
    let name = || prop_oneof![Just("root".to_owned()), Just("ann".to_owned())];
    prop_oneof![
        6 => put().prop_map(Command::Put),
        2 => success.prop_map(|success| Command::Txn(Txn { success, ..Txn::default() })),
        3 => (key(), key()).prop_map(|(key, range_end)| Command::DeleteRange(DeleteRange { key, range_end, prev_kv: false })),
        2 => (1..30_i64).prop_map(|revision| Command::Compact(Compact { revision })),
        1 => (2..60_i64).prop_map(|revision| Command::RaiseRevision(RaiseRevision { revision })),
        2 => (1..90_i64).prop_map(|ttl| Command::LeaseGrant(LeaseGrant { id: 7, ttl })),
        1 => (1..9_000_u64).prop_map(|ttl_millis| Command::ShortLeaseGrant(ShortLeaseGrant { id: -7, ttl_millis })),
        1 => Just(Command::LeaseRevoke(LeaseRevoke { id: 7 })),
        1 => (0..3_i32).prop_map(|kind| Command::Alarm(AlarmChange { raise: true, member: 5, kind })),
        1 => name().prop_map(move |name| account(AccountsChange::UserAdd(UserPassword { name, hash: "$2a$".into(), no_password: false }))),
        1 => name().prop_map(move |name| account(AccountsChange::RoleAdd(Named { name }))),
        1 => (name(), name()).prop_map(move |(user, role)| account(AccountsChange::UserGrantRole(UserRole { user, role }))),
        1 => (name(), key(), 0..3_i32).prop_map(move |(role, key, kind)| account(AccountsChange::RoleGrant(RolePermission {
            role, permission: Some(Permission { kind, key, range_end: Bytes::new() }),
        }))),
        1 => Just(account(AccountsChange::Enable(AuthEnable { token_key: "secret".into() }))),
    ]
}

fn filled(commands: Vec<(Command, u64)>) -> KvStore {
    let mut store = store();
    for (command, millis) in commands {
        store.advance(Duration::from_millis(millis));
        apply(&mut store, command);
    }
    store
}

proptest! {
    #[test]
    fn a_state_is_read_back_whole(commands in vec((command(), 0..3_000_u64), 0..60)) {
        let mut store = filled(commands);
        let read_back = read(&file(&store), DigestCheck::Required).unwrap();
        prop_assert_eq!(&read_back.origin, &Origin::Hustings { cluster_id: 1, member_id: 2 });
        prop_assert_eq!((read_back.term, read_back.index), (3, 4));
        prop_assert_eq!(hash_kv(read_back.store.view(), 0), hash_kv(store.view(), 0));
        // The rest of a compaction is not in the file; nor is it in the store in the end.
        for _ in 0..100 {
            apply(&mut store, Command::Advance(Advance {}));
        }
        let (before, after) = (StateMachine::freeze(&store), StateMachine::freeze(&read_back.store));
        prop_assert_eq!(KvStore::digest(&after), KvStore::digest(&before));
    }

    #[test]
    fn a_changed_file_is_refused(commands in vec((command(), 0..10_u64), 0..20), place: prop::sample::Index) {
        let whole = file(&filled(commands));
        let mut changed = whole.to_vec();
        changed[place.index(whole.len())] ^= 1;
        prop_assert!(read(&changed.into(), DigestCheck::Required).is_err());
        prop_assert!(read(&whole.slice(..place.index(whole.len())), DigestCheck::Required).is_err());
    }

    #[test]
    fn garbage_is_refused(mut garbage in vec(any::<u8>(), 0..1_200), is_first_format: bool) {
        if is_first_format && garbage.len() > 8 {
            garbage[..8].copy_from_slice(b"hust-snp");
        }
        let garbage = Bytes::from(garbage);
        prop_assert!(read(&garbage, DigestCheck::Required).is_err());
        prop_assert!(read(&garbage, DigestCheck::Skipped).is_err());
    }

    /// Nobody checks the digest here: damage is found, or it does no harm.
    #[test]
    fn no_bytes_do_harm(commands in vec((command(), 0..10_u64), 0..20), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..9)) {
        let mut file = file(&filled(commands)).to_vec();
        for (place, byte) in changes {
            let place = place.index(file.len());
            file[place] = byte;
        }
        if let Ok(snapshot) = read(&file.into(), DigestCheck::Skipped) {
            use_it(snapshot.store);
        }
    }
}

/// Checks that an accepted store takes every kind of command.
fn use_it(mut store: KvStore) {
    let key = Bytes::from_static(b"a");
    store.adopt(ApplyVersion(3));
    for command in [
        Command::Put(Put { key: key.clone(), lease: 7, ..Put::default() }),
        Command::LeaseKeepAlive(LeaseKeepAlive { ids: vec![7, -7] }),
        Command::Compact(Compact { revision: store.view().revision() }),
        Command::DeleteRange(DeleteRange { key, range_end: Bytes::from_static(b"\0"), prev_kv: true }),
        Command::LeaseRevoke(LeaseRevoke { id: 7 }),
        Command::Advance(Advance {}),
    ] {
        store.advance(Duration::from_secs(1));
        apply(&mut store, command);
    }
    assert!(hash_kv(store.view(), 0).is_ok());
    let again = read(&file(&store), DigestCheck::Required).unwrap();
    assert_eq!(hash_kv(again.store.view(), 0), hash_kv(store.view(), 0));
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// A file with these buckets, as etcd writes it.
fn file_of(buckets: &[(&str, Entries)]) -> Bytes {
    let fill = |writer: &mut Writer<'_>| {
        for (name, entries) in buckets {
            let mut entries = entries.clone();
            entries.sort();
            entries.dedup_by(|a, b| a.0 == b.0);
            writer.bucket(name.as_bytes());
            entries.iter().for_each(|(key, value)| writer.entry(key, value));
        }
    };
    let mut measuring = Writer::measure();
    fill(&mut measuring);
    let layout = measuring.finish();
    let mut file = Vec::new();
    let mut sink = |part: Bytes| file.extend_from_slice(&part);
    let mut writer = Writer::begin(layout, &mut sink);
    fill(&mut writer);
    writer.finish();
    file.into()
}

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![8 => 0..9_i64, 1 => any::<i64>(), 1 => Just(i64::MAX), 1 => Just(-1)]
}

prop_compose! {
    fn version()(main in number(), sub in 0..2_i64, is_tombstone: bool, numbers in [number(), number(), number()], key in "[ab]{0,1}", fits: bool) -> (Vec<u8>, Vec<u8>) {
        let [create_revision, mod_revision, lease] = numbers;
        let mod_revision = if fits { main } else { mod_revision };
        let kv = mvccpb::KeyValue { key: key.into(), create_revision, mod_revision, version: 1, value: "x".into(), lease };
        (Place { main, sub, is_tombstone }.encode(), kv.encode_to_vec())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_lying_snapshot_of_etcd_is_refused_or_harmless(
        versions in vec(version(), 0..6), compactions in [number(), number()],
        leases in vec((number(), number()), 0..3), revision in number(), index in number(), term in number(),
    ) {
        let place = |main| Place { main, sub: 0, is_tombstone: false }.encode();
        let lease = |(id, ttl): &(i64, i64)| (id.to_be_bytes().to_vec(), Lease { id: *id, ttl: *ttl }.encode_to_vec());
        let user = User { name: "ann".into(), roles: vec!["none".into()], ..User::default() };
        let file = file_of(&[
            (schema::KEY, versions),
            (schema::LEASE, leases.iter().map(lease).collect()),
            (schema::AUTH, vec![(schema::AUTH_REVISION.into(), revision.to_be_bytes().into())]),
            (schema::AUTH_USERS, vec![(b"ann".into(), user.encode_to_vec())]),
            (schema::META, vec![
                (schema::FINISHED_COMPACTION.into(), place(compactions[0])),
                (schema::SCHEDULED_COMPACTION.into(), place(compactions[1])),
                (schema::CONSISTENT_INDEX.into(), index.to_be_bytes().into()),
                (schema::TERM.into(), term.to_be_bytes().into()),
            ]),
        ]);
        if let Ok(snapshot) = read(&file, DigestCheck::Skipped) {
            use_it(snapshot.store);
        }
    }
}

/// Goal: each refusal names the thing and the place.
#[test]
fn refusals_name_the_bucket_and_the_key() {
    let refusal = |buckets: &[(&str, Entries)]| {
        let mut all = buckets.to_vec();
        if !all.iter().any(|(name, _)| *name == schema::KEY) {
            all.push((schema::KEY, Vec::new()));
        }
        read(&file_of(&all), DigestCheck::Skipped).unwrap_err().to_string()
    };
    let entry = |key: &[u8], value: &[u8]| vec![(key.to_vec(), value.to_vec())];
    let place = Place { main: 5, sub: 0, is_tombstone: false }.encode();
    let of_six =
        mvccpb::KeyValue { key: "a".into(), mod_revision: 6, version: 1, ..Default::default() }.encode_to_vec();
    let alarm = pb::AlarmMember { member_id: 1, alarm: 9 }.encode_to_vec();
    for (buckets, said) in [
        ((schema::KEY, entry(b"a", b"")), "in the bucket \"key\", key \"a\": it is no place in a history"),
        ((schema::KEY, entry(&place, &of_six)), "its value is of another revision"),
        (
            (schema::KEY, entry(&place, b"\xff")),
            "in the bucket \"key\", key \"\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x05_",
        ),
        (
            (schema::LEASE, entry(b"1", &Lease { id: 1, ttl: -5 }.encode_to_vec())),
            "in the bucket \"lease\", key \"1\": ",
        ),
        ((schema::META, entry(schema::TERM, b"1")), "in the bucket \"meta\", key \"term\": it is no number"),
        ((schema::META, entry(schema::TERM, &[255; 8])), "the place 18446744073709551615:0 in a log is out of range"),
        // Nobody could be added to a cluster that begins there.
        (
            (schema::META, entry(schema::TERM, &((1_u64 << 40) + 1).to_be_bytes())),
            "the place 1099511627777:0 in a log is out of range",
        ),
        (
            (schema::META, entry(schema::STORAGE_VERSION, b"4.0.0")),
            "storage version \"4.0.0\", and those of 3.5 to 3.7",
        ),
        ((schema::AUTH_USERS, entry(b"ann", &User::default().encode_to_vec())), "key \"ann\": it is another user's"),
        ((schema::AUTH_ROLES, entry(b"ann", &Role::default().encode_to_vec())), "key \"ann\": it is another role's"),
        ((schema::ALARM, entry(&alarm, b"")), "in the bucket \"alarm\""),
        ((schema::OURS, entry(b"tail", b"")), "in the bucket \"hustings\", key \"tail\""),
    ] {
        let refusal = refusal(&[buckets]);
        assert!(refusal.contains(said), "{refusal} instead of {said}");
    }
    // A database of something else.
    let other = read(&file_of(&[("widgets", Vec::new())]), DigestCheck::Skipped);
    assert!(matches!(other, Err(SnapshotFileError::NotASnapshot)));
}

/// Goal: a key whose lease is missing, and a compaction that etcd had begun, are what etcd would make of them.
#[test]
fn what_etcd_had_not_finished_is_finished() {
    let version = |main, version| {
        let kv = mvccpb::KeyValue {
            key: "a".into(),
            create_revision: 2,
            mod_revision: main,
            version,
            value: "x".into(),
            lease: 9,
        };
        (Place { main, sub: 0, is_tombstone: false }.encode(), kv.encode_to_vec())
    };
    let place = Place { main: 4, sub: 0, is_tombstone: false }.encode();
    let file = file_of(&[
        (schema::KEY, vec![version(2, 1), version(3, 2), version(5, 3)]),
        (schema::META, vec![(schema::SCHEDULED_COMPACTION.into(), place)]),
    ]);
    let mut snapshot = read(&file, DigestCheck::Skipped).unwrap();
    assert_eq!(snapshot.notes[0], "1 keys named leases that do not exist: they have none now");
    assert_eq!((snapshot.store.view().revision(), snapshot.store.view().compact_revision()), (5, 4));
    assert_eq!(snapshot.store.view().version_count(), 3);
    apply(&mut snapshot.store, Command::Advance(Advance {}));
    assert_eq!(snapshot.store.view().version_count(), 2, "revision 2 cannot be read any more");
}
