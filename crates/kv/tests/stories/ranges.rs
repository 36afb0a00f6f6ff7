//! Ranges, with etcd's options and quirks.

use crate::common::*;
use hustings_kv::*;

/// a..e, values in another order than the keys.
fn alphabet() -> Store {
    let mut store = Store::new();
    for (key, value) in [("a", "3"), ("b", "1"), ("c", "2"), ("d", "0"), ("e", "4")] {
        store.put(key, value);
    }
    store
}

fn ask(store: &Store, change: impl FnOnce(&mut Range)) -> RangeResponse {
    let mut request = range("a", "\0");
    change(&mut request);
    store.view().range(&request).expect("readable")
}

#[test]
fn the_end_says_whether_it_is_a_key_a_range_or_all_from_the_key_on() {
    let store = alphabet();
    assert_eq!(keys(&ask(&store, |r| r.range_end = bytes(""))), ["a"]);
    assert_eq!(keys(&ask(&store, |r| r.range_end = bytes("c"))), ["a", "b"]);
    assert_eq!(keys(&ask(&store, |r| r.key = bytes("d"))), ["d", "e"]);
    assert_eq!(keys(&ask(&store, |r| r.key = bytes("\0"))).len(), 5);
    let inverted = ask(&store, |r| (r.key, r.range_end) = (bytes("z"), bytes("a")));
    assert_eq!((inverted.count, inverted.kvs.len()), (0, 0));
    assert_eq!(ask(&store, |r| (r.key, r.range_end) = (bytes("a"), bytes("a"))).count, 0);
}

#[test]
fn a_limit_cuts_and_tells_but_the_count_is_of_all() {
    let store = alphabet();
    let cut = ask(&store, |r| r.limit = 2);
    assert_eq!((keys(&cut), cut.more, cut.count), (vec!["a".to_string(), "b".to_string()], true, 5));
    let whole = ask(&store, |r| r.limit = 5);
    assert_eq!((whole.kvs.len(), whole.more), (5, false));
    assert_eq!(ask(&store, |r| r.limit = -1).kvs.len(), 5);
    let everything = ask(&store, |r| (r.key, r.limit) = (bytes("\0"), 1));
    assert_eq!((everything.kvs.len(), everything.more, everything.count), (1, true, 5));
    let huge = ask(&store, |r| r.limit = i64::MAX);
    assert_eq!((huge.kvs.len(), huge.more), (5, false));
}

#[test]
fn counting_alone_returns_no_keys_and_no_more() {
    let answer = ask(&alphabet(), |r| (r.count_only, r.limit) = (true, 2));
    assert_eq!((answer.count, answer.kvs.len(), answer.more), (5, 0, false));
}

#[test]
fn keys_only_leaves_the_values_out() {
    let answer = ask(&alphabet(), |r| r.keys_only = true);
    assert!(answer.kvs.iter().all(|kv| kv.value.is_empty() && kv.version == 1));
}

#[test]
fn an_order_looks_at_all_keys_before_the_limit_cuts() {
    let store = alphabet();
    let by_value = |order: SortOrder| {
        keys(&ask(&store, |r| {
            (r.limit, r.sort_target, r.sort_order) = (2, SortTarget::Value.into(), order.into());
        }))
    };
    assert_eq!(by_value(SortOrder::Ascend), ["d", "b"]);
    assert_eq!(by_value(SortOrder::Descend), ["e", "a"]);
    // A target without an order sorts after the cut: of the first three by key, the lowest two. (etcd does so.)
    assert_eq!(by_value(SortOrder::None), ["b", "c"]);
}

#[test]
fn keys_can_be_ordered_by_each_of_their_numbers() {
    let mut store = alphabet();
    store.put("b", "9");
    let first = |target: SortTarget| {
        keys(&ask(&store, |r| {
            (r.limit, r.sort_target, r.sort_order) = (1, target.into(), SortOrder::Descend.into());
        }))
    };
    assert_eq!(first(SortTarget::Key), ["e"]);
    assert_eq!(first(SortTarget::Version), ["b"]);
    assert_eq!(first(SortTarget::Create), ["e"]);
    assert_eq!(first(SortTarget::Mod), ["b"]);
}

#[test]
fn filters_leave_out_by_revision_and_leave_the_count() {
    let mut store = alphabet();
    store.put("a", "again");
    assert_eq!(keys(&ask(&store, |r| r.min_mod_revision = 5)), ["a", "d", "e"]);
    assert_eq!(keys(&ask(&store, |r| r.max_mod_revision = 3)), ["b"]);
    assert_eq!(keys(&ask(&store, |r| r.min_create_revision = 5)), ["d", "e"]);
    assert_eq!(keys(&ask(&store, |r| r.max_create_revision = 2)), ["a"]);
    let cut = ask(&store, |r| (r.limit, r.min_mod_revision) = (1, 4));
    assert_eq!((keys(&cut), cut.more, cut.count), (vec!["a".to_string()], true, 5));
}

#[test]
fn an_older_revision_is_answered_with_the_present_one_in_the_header() {
    let mut store = alphabet();
    store.delete("a", "c");
    let old = ask(&store, |r| r.revision = 3);
    assert_eq!((keys(&old), old.revision), (vec!["a".to_string(), "b".to_string()], 7));
    assert_eq!(ask(&store, |r| r.revision = -5).kvs.len(), 3);
    let future = Range { revision: 99, ..range("a", "") };
    assert_eq!(store.view().range(&future), Err(KvError::FutureRevision { revision: 7 }));
}
