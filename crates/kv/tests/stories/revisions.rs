//! Revisions, versions and deletions.

use crate::common::*;
use hustings_core::StateMachine;
use hustings_kv::*;

fn read(store: &Store, key: &str) -> KeyValue {
    store.view().range(&range(key, "")).expect("readable").kvs.remove(0)
}

#[test]
fn a_new_store_stands_at_revision_one() {
    assert_eq!(Store::new().revision(), 1);
    assert_eq!(Store::new().view().compact_revision(), -1);
}

#[test]
fn a_key_counts_its_versions_until_it_is_deleted() {
    let mut store = Store::new();
    assert_eq!(store.put("k", "1"), 2);
    assert_eq!(store.put("k", "2"), 3);
    let kv = read(&store, "k");
    assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (2, 3, 2));
    assert_eq!(store.delete("k", "").revision, 4);
    store.put("k", "3");
    let kv = read(&store, "k");
    assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (5, 5, 1));
}

#[test]
fn deleting_nothing_takes_no_revision() {
    let mut store = Store::new();
    store.put("k", "1");
    let answer = store.delete("other", "");
    assert_eq!((answer.revision, answer.deleted, store.revision()), (2, 0, 2));
}

#[test]
fn a_deleted_range_takes_one_revision_and_returns_what_was_there() {
    let mut store = Store::new();
    for key in ["a", "b", "c"] {
        store.put(key, key);
    }
    let answer = store.delete("a", "c");
    assert_eq!((answer.revision, answer.deleted), (5, 2));
    assert_eq!(answer.prev_kvs.iter().map(|kv| &kv.value[..]).collect::<Vec<_>>(), [b"a", b"b"]);
    assert_eq!(store.view().key_count(), 1);
}

#[test]
fn a_put_can_keep_the_value_or_the_lease_of_a_key_that_exists() {
    let mut store = Store::new();
    store.grant(7, 100).expect("granted");
    store.put_with_lease("k", 7).expect("put");
    let keep_value = Put { ignore_value: true, prev_kv: true, ..put("k", "") };
    let Ok(Response::Put(answer)) = store.run(Command::Put(keep_value)) else { panic!("a put") };
    assert_eq!(answer.prev_kv.expect("asked for").lease, 7);
    assert_eq!((&read(&store, "k").value[..], read(&store, "k").lease), (&b"leased"[..], 0));

    store.put_with_lease("k", 7).expect("put");
    store.run(Command::Put(Put { ignore_lease: true, ..put("k", "new") })).expect("put");
    assert_eq!((&read(&store, "k").value[..], read(&store, "k").lease), (&b"new"[..], 7));

    let missing = Put { ignore_value: true, ..put("nobody", "") };
    assert_eq!(store.run(Command::Put(missing)), Err(KvError::KeyNotFound));
}

#[test]
fn a_view_stays_as_it_was() {
    let mut store = Store::new();
    store.put("k", "old");
    let view = store.view();
    store.put("k", "new");
    store.delete("\0", "\0");
    store.compact(4).expect("compacted");
    store.settle();
    assert_eq!(&view.range(&range("k", "")).expect("readable").kvs[0].value[..], b"old");
    assert_eq!((view.revision(), view.key_count()), (2, 1));
}

#[test]
fn an_empty_key_is_refused() {
    let mut store = Store::new();
    assert_eq!(store.run(Command::Put(put("", "v"))), Err(KvError::EmptyKey));
    assert_eq!(store.run(Command::DeleteRange(delete("", "x"))), Err(KvError::EmptyKey));
    assert_eq!(store.view().range(&range("", "x")), Err(KvError::EmptyKey));
}

// The payload may be a slice of a large batch: the store must not keep the batch alive.
#[test]
fn stored_bytes_are_copies_of_the_payload() {
    let mut store = KvStore::new();
    let batch = Command::Put(put("key", "value")).to_payload();
    let lsn = hustings_core::Lsn { term: hustings_core::Term(1), index: 1 };
    store.apply(lsn, &batch).expect("put");
    assert!(batch.is_unique(), "nothing refers to the payload any more");
}

#[test]
fn the_size_grows_with_writes_and_shrinks_with_compaction() {
    let mut store = Store::new();
    for _ in 0..100 {
        store.put("k", &"v".repeat(1_000));
    }
    let full = store.view().size_bytes();
    assert!(full > 100_000);
    store.compact(store.revision()).expect("compacted");
    store.settle();
    assert!(store.view().size_bytes() < full / 50);
    store.delete("k", "");
    store.compact(store.revision()).expect("compacted");
    store.put("k", "");
    store.delete("k", "");
    store.put("other", "");
    store.compact(store.revision()).expect("compacted");
    store.settle();
    assert_eq!(store.view().version_count(), 1);
}
