//! Compaction and the hash.

use std::time::Duration;

use crate::common::*;
use hustings_core::StateMachine;
use hustings_kv::*;

#[test]
fn a_compaction_refuses_what_is_below_and_keeps_the_newest() {
    let mut store = Store::new();
    store.put("a", "1");
    store.put("a", "2");
    store.put("a", "3");
    assert_eq!(store.compact(3), Ok(Response::Compact { revision: 4 }));
    let read_at = |store: &Store, revision| store.view().range(&Range { revision, ..range("a", "") });
    assert_eq!(read_at(&store, 2), Err(KvError::Compacted { compact_revision: 3 }));
    for _ in 0..2 {
        assert_eq!(&read_at(&store, 3).expect("readable").kvs[0].value[..], b"2");
        assert_eq!(&read_at(&store, 4).expect("readable").kvs[0].value[..], b"3");
        store.settle();
    }
    assert_eq!(store.view().version_count(), 2);
}

#[test]
fn compacting_the_future_or_the_compacted_is_refused() {
    let mut store = Store::new();
    store.put("a", "1");
    assert_eq!(store.compact(3), Err(KvError::FutureRevision { revision: 2 }));
    // As etcd: the first compaction may be at 0, and takes nothing.
    assert!(store.compact(0).is_ok());
    assert_eq!(store.compact(0), Err(KvError::Compacted { compact_revision: 0 }));
    assert!(store.compact(2).is_ok());
    assert_eq!(store.compact(2), Err(KvError::Compacted { compact_revision: 2 }));
    assert_eq!(store.compact(-4), Err(KvError::Compacted { compact_revision: 2 }));
}

// Goal: a large compaction stalls no entry. Method: count what each step removes.
#[test]
fn history_is_removed_a_little_with_each_entry() {
    let mut store = Store::new();
    for _ in 0..10_000 {
        store.put("k", "v");
    }
    let full = store.view().version_count();
    store.compact(store.revision()).expect("compacted");
    assert_eq!(store.view().version_count(), full, "the compaction itself removes nothing");
    assert_eq!(store.kv.next_deadline(), Some(Duration::ZERO));
    store.put("k", "v");
    let removed = full + 1 - store.view().version_count();
    assert!((16..=64).contains(&removed), "a put removed {removed}");
    let mut steps = 0;
    while store.kv.next_deadline().is_some() {
        store.run(Command::Advance(Advance {})).expect("runs");
        steps += 1;
    }
    assert!((3..=6).contains(&steps), "idle entries took {steps} steps");
    assert_eq!(store.view().version_count(), 2);
}

// Goal: seed 147 of five nodes, in which an idle leader wrote blanks without end. Method: nothing but time passes.
#[test]
fn time_alone_ends_a_removal() {
    let mut store = Store::new();
    for _ in 0..2_000 {
        store.put("k", "v");
    }
    store.compact(store.revision()).expect("compacted");
    let mut ticks = 0;
    while store.kv.next_deadline().is_some() {
        store.kv.advance(Duration::from_micros(1));
        ticks += 1;
        assert!(ticks < 100, "an idle leader would tell the time for ever");
    }
    assert_eq!(store.view().version_count(), 1);
}

#[test]
fn the_hash_does_not_depend_on_how_far_the_removal_is() {
    let mut store = Store::new();
    for n in 0..3_000 {
        store.put(&format!("k{}", n % 40), "v");
        if n % 100 == 0 {
            store.delete("k1", "k2");
        }
    }
    store.compact(2_000).expect("compacted");
    let early = hash_kv(&store.view(), 2_500).expect("readable");
    store.settle();
    store.put("another", "v");
    assert_eq!(hash_kv(&store.view(), 2_500), Ok(early));
    assert_eq!((early.compact_revision, early.hash_revision), (2_000, 2_500));
    assert_ne!(hash_kv(&store.view(), 0).expect("readable").hash, early.hash);
    assert_eq!(hash_kv(&store.view(), 1_999), Err(KvError::Compacted { compact_revision: 2_000 }));
    let future = KvError::FutureRevision { revision: store.revision() };
    assert_eq!(hash_kv(&store.view(), 99_999), Err(future));
}

// RP-10.
#[test]
fn one_different_byte_makes_a_different_hash() {
    let hash_of = |value| {
        let mut store = Store::new();
        store.put("a", value);
        hash_kv(&store.view(), 0).expect("readable").hash
    };
    assert_eq!(hash_of("1"), hash_of("1"));
    assert_ne!(hash_of("1"), hash_of("2"));
}

#[test]
fn a_snapshot_taken_during_the_removal_goes_on_where_it_was() {
    let mut store = Store::new();
    for n in 0..5_000 {
        store.put(&format!("k{}", n % 10), "v");
    }
    store.grant(1, 60).expect("granted");
    store.put_with_lease("leased", 1).expect("put");
    store.alarm(AlarmKind::NoSpace, true).expect("raised");
    store.compact(4_000).expect("compacted");
    store.run(Command::Advance(Advance {})).expect("runs");
    store.wait(1.5);
    let mut restored = KvStore::decode(&mut &snapshot(&store.view())[..]).expect("readable");
    assert!(restored == store.kv);
    assert_eq!(restored.next_deadline(), Some(Duration::ZERO));
    std::mem::swap(&mut restored, &mut store.kv);
    store.settle();
    assert_eq!(store.view().lease_time_to_live(1, LeaseKeys::List).expect("there").keys, [bytes("leased")]);
}

/// Goal: a store that goes on as a new cluster gives out no revision twice. Method: what is below is compacted, what lives stays
/// as it was, and the next change is above all.
#[test]
fn a_bumped_store_goes_on_above_and_forgets_below() {
    let mut store = Store::new();
    for (key, value) in [("a", "1"), ("a", "2"), ("b", "1")] {
        store.put(key, value);
    }
    store.delete("b", "");
    assert!(store.kv.bump_revision(u64::MAX).is_err() && store.kv.bump_revision(i64::MAX as u64).is_err());
    assert_eq!(store.revision(), 5, "nothing was changed");
    store.kv.bump_revision(1_000).expect("there is room");
    store.settle();
    assert_eq!((store.revision(), store.view().compact_revision(), store.view().version_count()), (1_005, 1_005, 1));
    let old = store.view().range(&range("a", "")).expect("readable").kvs[0].clone();
    assert_eq!((old.create_revision, old.mod_revision, &old.value[..]), (2, 3, &b"2"[..]));
    let read_at = |revision| store.view().range(&Range { revision, ..range("a", "") });
    assert_eq!(read_at(1_004), Err(KvError::Compacted { compact_revision: 1_005 }));
    store.put("c", "1");
    assert_eq!(store.revision(), 1_006);
}

/// Goal: no store begins so high that it counts beyond what any member reads: none would come up again after the next change. Method: the
/// highest revision that it may be raised to, and one more; then a change, and the state is saved and read. Of a foreign store its revision,
/// its users' and the count of a key.
#[test]
fn a_store_begins_low_enough_to_go_on() {
    let mut store = Store::new();
    store.put("a", "1");
    let highest = i64::MAX as u64 / 4;
    assert!(store.kv.bump_revision(highest - 1).is_err());
    store.kv.bump_revision(highest - 2).expect("there is room");
    store.put("a", "2");
    let restored = KvStore::decode(&mut &snapshot(&store.view())[..]).expect("readable");
    assert_eq!(restored.view().revision(), i64::MAX / 4 + 1);

    assert!(Restoration::of_foreign(i64::MAX / 4 + 1, 0).is_err());
    let mut foreign = Restoration::of_foreign(7, 0).expect("it is low");
    let users = ForeignUsers { is_enabled: false, revision: u64::MAX / 2, token_key: bytes("") };
    assert!(foreign.users(users).is_err());
    let kv = KeyValue {
        key: bytes("a"),
        create_revision: 2,
        mod_revision: 2,
        version: i64::MAX / 4 + 1,
        ..KeyValue::default()
    };
    assert!(foreign.version(0, kv).is_err_and(|refusal| refusal.to_string().contains("too high to go on from")));
}

/// Goal: history and rest, kept apart, are the same store. Method: the rest as bytes, the history one by one, while a compaction is
/// under way; then once with a version too few.
#[test]
fn a_store_in_two_parts_is_the_same_store() {
    let mut store = Store::new();
    store.grant(1, 60).expect("a lease");
    store.put_with_lease("leased", 1).expect("the lease is there");
    for number in 0..3_000 {
        store.put("a", &number.to_string());
    }
    store.delete("a", "");
    store.compact(2_500).expect("it is compacted");
    let view = store.kv.freeze();
    let versions: Vec<(i64, KeyValue)> = view.retained().map(|(sub, kv)| (sub, kv.clone())).collect();
    assert!(versions.len() < view.version_count(), "what is left to remove is left out");
    let mut rest = Vec::new();
    view.encode_rest(versions.len() as u64, &mut |piece| rest.extend_from_slice(&piece));
    let restored = |versions: &[(i64, KeyValue)]| {
        let mut restoration = Restoration::resume(&mut &rest[..]).expect("it was just encoded");
        for (sub, kv) in versions {
            restoration.version(*sub, kv.clone()).expect("they come in their order");
        }
        restoration.finish()
    };
    let (restored_store, _) = restored(&versions).expect("it is whole");
    store.settle();
    assert_eq!(KvStore::digest(&restored_store.freeze()), KvStore::digest(&store.kv.freeze()));
    let missing = restored(&versions[1..]).expect_err("one is missing");
    assert_eq!(missing.what, "versions are missing");
    let mut twice = Restoration::resume(&mut &rest[..]).expect("it was just encoded");
    twice.version(0, versions[1].1.clone()).expect("it is the first");
    let refused = twice.version(0, versions[1].1.clone()).expect_err("it is the same");
    assert!(refused.what.starts_with("a version out of order, at revision "), "{}", refused.what);
}
