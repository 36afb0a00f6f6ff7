//! Commands and snapshots that earlier builds stored are read by this one, and mean the same.

use bytes::{Bytes, BytesMut};
use hustings_core::{Lsn, StateMachine};
use hustings_kv::*;
use hustings_stage::golden;
use proptest::prelude::*;
use std::time::Duration;

/// Every command, with every field that it has set to something.
fn commands() -> Vec<Command> {
    let text = Bytes::from_static;
    let put =
        Put { key: text(b"k"), value: text(b"v"), lease: 7, prev_kv: true, ignore_value: true, ignore_lease: true };
    let delete = DeleteRange { key: text(b"a"), range_end: text(b"z"), prev_kv: true };
    let range = Range {
        key: text(b"a"),
        range_end: text(b"z"),
        limit: 3,
        revision: 4,
        sort_order: SortOrder::Descend as i32,
        sort_target: SortTarget::Mod as i32,
        keys_only: true,
        count_only: true,
        min_mod_revision: 5,
        max_mod_revision: 6,
        min_create_revision: 7,
        max_create_revision: 8,
    };
    let targets = [
        CompareTarget::Version(1),
        CompareTarget::Create(2),
        CompareTarget::Mod(3),
        CompareTarget::Value(text(b"v")),
        CompareTarget::Lease(7),
    ];
    let compare = |target| Compare {
        comparison: Comparison::NotEqual as i32,
        key: text(b"k"),
        range_end: text(b"l"),
        target: Some(target),
    };
    let txn = Txn {
        compare: targets.into_iter().map(compare).collect(),
        success: vec![Request::Put(put.clone()).into(), Request::Range(range).into()],
        failure: vec![Request::DeleteRange(delete.clone()).into(), Request::Txn(Txn::default()).into()],
    };
    vec![
        Command::Put(put),
        Command::DeleteRange(delete),
        Command::Txn(txn),
        Command::Compact(Compact { revision: 9 }),
        Command::LeaseGrant(LeaseGrant { id: 7, ttl: 60 }),
        Command::LeaseRevoke(LeaseRevoke { id: 7 }),
        Command::LeaseKeepAlive(LeaseKeepAlive { ids: vec![7, 8] }),
        Command::Alarm(AlarmChange { raise: true, member: 3, kind: AlarmKind::NoSpace as i32 }),
        Command::Advance(Advance {}),
        Command::ShortLeaseGrant(ShortLeaseGrant { id: 7, ttl_millis: 300 }),
        Command::RaiseRevision(RaiseRevision { revision: 1_000_000 }),
    ]
}

/// Every change of users and roles.
fn changes() -> Vec<AccountsChange> {
    let text = Bytes::from_static;
    let named = |name: &str| Named { name: name.into() };
    let with_role = || UserRole { user: "root".into(), role: "root".into() };
    let permission = Permission { kind: PermissionKind::Write as i32, key: text(b"a"), range_end: text(b"z") };
    let granted = |permission| RolePermission { role: "r".into(), permission: Some(permission) };
    let password = |hash| UserPassword { name: "root".into(), hash, no_password: false };
    vec![
        AccountsChange::UserAdd(password(text(b"$2b$04$hash"))),
        AccountsChange::UserAdd(UserPassword { name: "ann".into(), hash: Bytes::new(), no_password: true }),
        AccountsChange::UserGrantRole(with_role()),
        AccountsChange::RoleAdd(named("r")),
        AccountsChange::RoleGrant(granted(permission.clone())),
        AccountsChange::UserGrantRole(UserRole { user: "ann".into(), role: "r".into() }),
        AccountsChange::Enable(AuthEnable { token_key: text(b"sesame") }),
        AccountsChange::UserChangePassword(password(text(b"$2b$04$other"))),
        AccountsChange::RoleRevoke(granted(permission)),
        AccountsChange::UserRevokeRole(UserRole { user: "ann".into(), role: "r".into() }),
        AccountsChange::RoleDelete(named("r")),
        AccountsChange::UserDelete(named("ann")),
        AccountsChange::Disable(AuthDisable {}),
    ]
}

#[test]
fn commands_of_earlier_builds_mean_the_same() {
    let decode = |bytes| Command::from_payload(&bytes).ok_or_else(|| "it is no command".to_string());
    golden::check("commands", prop::sample::select(commands()), Command::to_payload, decode);
}

#[test]
fn changes_of_users_of_earlier_builds_mean_the_same() {
    let decode = |bytes| match Command::from_payload(&bytes) {
        Some(Command::Accounts(Accounts { change: Some(change) })) => Ok(change),
        _ => Err("it is no change of users".to_string()),
    };
    let encode = |change: &AccountsChange| Command::Accounts(Accounts { change: Some(change.clone()) }).to_payload();
    golden::check("users", prop::sample::select(changes()), encode, decode);
}

#[test]
fn callers_of_earlier_builds_mean_the_same() {
    let callers = vec![Caller { user: "ann".into(), proven_at: 7, is_member: false }, Caller::member()];
    let encode = |caller: &Caller| Command::Advance(Advance {}).to_payload_by(Some(caller));
    let decode = |bytes| Command::with_caller(&bytes).and_then(|(_, caller)| caller).ok_or("nobody".to_string());
    golden::check("callers", prop::sample::select(callers), encode, decode);
}

/// A small store with a bit of everything: versions, a tombstone, a lease with a key, an alarm, a compaction under way.
fn store() -> KvStore {
    let mut store = KvStore::new();
    store.advance(Duration::from_millis(1_500));
    let text = Bytes::from_static;
    let put = |key, value, lease| Command::Put(Put { key: text(key), value: text(value), lease, ..Put::default() });
    for command in [
        Command::LeaseGrant(LeaseGrant { id: 7, ttl: 60 }),
        put(b"a", b"1", 0),
        put(b"a", b"2", 7),
        put(b"b", b"1", 0),
        Command::DeleteRange(DeleteRange { key: text(b"b"), ..DeleteRange::default() }),
        Command::Compact(Compact { revision: 3 }),
        Command::Alarm(AlarmChange { raise: true, member: 3, kind: AlarmKind::NoSpace as i32 }),
    ] {
        store.apply(Lsn::new(1, 1), &command.to_payload()).expect("it can be done");
    }
    store
}

/// A store with root, a user with a role, and the checks on.
fn with_users() -> KvStore {
    let mut store = KvStore::new();
    store.adopt(KvStore::VERSION_MAX);
    for change in changes().into_iter().take(7) {
        let command = Command::Accounts(Accounts { change: Some(change) });
        store.apply(Lsn::new(1, 1), &command.to_payload()).expect("it can be done");
    }
    store
}

#[test]
fn snapshots_of_earlier_builds_mean_the_same() {
    let encode = |store: &KvStore| {
        let mut bytes = BytesMut::new();
        KvStore::encode(&store.freeze(), &mut |chunk| bytes.extend_from_slice(&chunk));
        bytes.freeze()
    };
    // `Debug` shows the rules too, which are this build's: what the store holds is shown by its digest and hash.
    struct Shown(KvStore);
    impl std::fmt::Debug for Shown {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            let view = self.0.freeze();
            let hash = hash_kv(&view, 0).expect("the present can be hashed");
            let (leases, alarms) = (view.leases(), view.alarms());
            if *view.users() != Users::default() {
                return write!(f, "WithUsers {:?} {:016x}", view.users(), KvStore::digest(&view));
            }
            write!(f, "Store {hash:?} {leases:?} {alarms:?} {:016x} {:?}", KvStore::digest(&view), view.clock())
        }
    }
    let decode = |mut bytes: Bytes| KvStore::decode(&mut bytes).map(Shown).map_err(|error| error.to_string());
    let stores = prop_oneof![Just(()).prop_map(|()| Shown(store())), Just(()).prop_map(|()| Shown(with_users()))];
    golden::check("snapshots", stores, |Shown(store)| encode(store), decode);
}
