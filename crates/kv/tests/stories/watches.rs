//! The reads of a watch hub.

use crate::common::*;
use hustings_kv::*;

#[test]
fn events_come_in_order_each_with_what_was_before() {
    let mut store = Store::new();
    store.put("a", "1");
    store.put("b", "1");
    store.put("a", "2");
    store.delete("a", "");
    let view = store.view();
    let seen = events(&view, 1, &between("a", ""));
    let kinds: Vec<_> = seen.iter().map(|event| (event.kind, event.kv.mod_revision)).collect();
    assert_eq!(kinds, [(EventKind::Put, 2), (EventKind::Put, 4), (EventKind::Delete, 5)]);
    let before: Vec<_> = seen.iter().map(|event| view.prev_kv(event).map(|kv| kv.value)).collect();
    assert_eq!(before, [None, Some(bytes("1")), Some(bytes("2"))]);
    let deleted = KeyValue { key: bytes("a"), mod_revision: 5, ..KeyValue::default() };
    assert_eq!(seen[2].kv, deleted);
}

/// Goal: as in etcd, a key that one transaction deletes and writes begins anew; its put has nothing before it.
#[test]
fn a_key_that_is_deleted_and_written_at_once_has_nothing_before_it() {
    let mut store = Store::new();
    store.put("b", "old");
    let anew = vec![Request::DeleteRange(DeleteRange { key: bytes("a"), range_end: bytes("\0"), prev_kv: false })];
    let anew = anew.into_iter().chain([Request::Put(put("b", "new"))]).collect();
    store.txn(txn(anew)).expect("runs");
    let view = store.view();
    let seen = events(&view, 3, &between("a", "c"));
    let before: Vec<_> = seen.iter().map(|event| (event.kind, view.prev_kv(event).map(|kv| kv.value))).collect();
    assert_eq!(before, [(EventKind::Delete, Some(bytes("old"))), (EventKind::Put, None)]);
}

#[test]
fn the_events_of_one_revision_are_never_split() {
    let mut store = Store::new();
    let many = (0..50).map(|n| Request::Put(put(&format!("k{n:02}"), "x"))).collect();
    store.txn(txn(many)).expect("runs");
    store.put("later", "x");
    let part = store.view().events_since(2, &KeyRange::all(), 3).expect("there");
    assert_eq!((part.events.len(), part.next_revision), (50, 3));
    let rest = store.view().events_since(3, &KeyRange::all(), 3).expect("there");
    assert_eq!((rest.events.len(), rest.next_revision), (1, 4));
}

#[test]
fn a_narrow_watch_reads_a_long_history_in_parts() {
    let mut store = Store::new();
    for n in 0..5_000 {
        store.put(&format!("noise{}", n % 7), "x");
    }
    store.put("signal", "x");
    let view = store.view();
    let first = view.events_since(1, &between("s", "t"), 10).expect("there");
    assert!(first.events.is_empty() && first.next_revision < view.revision(), "bounded work: {first:?}");
    assert_eq!(events(&view, 1, &between("s", "t")).len(), 1);
    // A single key is found at once.
    assert_eq!(view.events_since(1, &between("signal", ""), 10).expect("there").events.len(), 1);
}

// AP-03.
#[test]
fn a_start_in_the_future_delivers_nothing_below_itself() {
    let mut store = Store::new();
    store.put("a", "1");
    let early = store.view().events_since(100, &KeyRange::all(), 10).expect("there");
    assert_eq!((early.events.len(), early.next_revision), (0, 100));
}

// AP-06: as etcd 3.5.
#[test]
fn start_zero_means_the_next_revision_and_a_negative_one_all_history() {
    let mut store = Store::new();
    store.put("a", "1");
    store.put("a", "2");
    let view = store.view();
    assert_eq!(view.watch_start(0), 4);
    assert_eq!(view.watch_start(-1), -1);
    assert_eq!(events(&view, -1, &KeyRange::all()).len(), 2);
    store.compact(2).expect("compacted");
    let gone = store.view().events_since(-1, &KeyRange::all(), 10);
    assert_eq!(gone, Err(Compacted { compact_revision: 2 }));
}

// AP-06.
#[test]
fn a_range_without_an_end_and_one_with_the_end_zero_differ() {
    let mut store = Store::new();
    for key in ["a", "b", "c"] {
        store.put(key, "1");
    }
    let view = store.view();
    assert_eq!(events(&view, 1, &between("b", "")).len(), 1);
    assert_eq!(events(&view, 1, &between("b", "\0")).len(), 2);
    assert_eq!(events(&view, 1, &between("c", "a")).len(), 0);
}

// AP-02: compact at a tombstone, watch from there.
#[test]
fn a_watch_from_the_compact_revision_sees_the_deletion_that_happened_there() {
    let mut store = Store::new();
    store.put("a", "1");
    store.delete("a", "");
    store.put("b", "1");
    store.compact(3).expect("compacted");
    store.settle();
    let view = store.view();
    let seen = events(&view, 3, &between("a", ""));
    assert_eq!(seen.iter().map(|event| event.kind).collect::<Vec<_>>(), [EventKind::Delete]);
    assert_eq!(view.prev_kv(&seen[0]), None, "what was before is compacted");
    let below = view.events_since(2, &KeyRange::all(), 10);
    assert_eq!(below, Err(Compacted { compact_revision: 3 }));
    store.compact(4).expect("compacted");
    store.settle();
    assert_eq!(store.view().version_count(), 1, "the next compaction takes the tombstone");
}

/// Goal: an answer is bounded in bytes as well as in events, and splits no revision.
#[test]
fn large_events_come_in_small_portions() {
    let mut store = Store::new();
    for key in ["a", "b", "a", "b"] {
        store.put(key, &"x".repeat(1_000));
    }
    store.txn(txn(vec![Request::Put(put("a", "y")), Request::Put(put("b", "y"))])).expect("runs");
    let view = store.view();
    let portion = Portion { events: 100, bytes: 1_500 };
    for (keys, counts) in [(KeyRange::all(), vec![2, 2, 2]), (between("a", ""), vec![2, 1])] {
        let (mut from, mut found) = (2, Vec::new());
        while from <= view.revision() {
            let events = view.events_within(from, &keys, portion).expect("not compacted");
            found.push(events.events.len());
            from = events.next_revision;
        }
        assert_eq!(found, counts);
    }
}
