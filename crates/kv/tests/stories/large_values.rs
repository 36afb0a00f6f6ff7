//! Values of 4 KiB and more leave memory when a snapshot's file holds them.

use std::fmt::{self, Debug};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::{Buf, Bytes};
use hustings_core::{SnapshotError, SnapshotFile, StateMachine};

use crate::common::*;
use hustings_kv::*;

/// Bytes before the store in a snapshot's file.
const BEFORE: &[u8] = b"sessions";

/// A file in memory that counts what is asked of it.
#[derive(Default)]
struct File {
    bytes: Mutex<Vec<u8>>,
    reads: AtomicUsize,
}

impl File {
    fn reads(&self) -> usize {
        self.reads.swap(0, Ordering::Relaxed)
    }
}

impl Debug for File {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("/data/n1/snapshot")
    }
}

impl SnapshotFile for File {
    fn read(&self, offset: u64, length: usize) -> Result<Bytes, SnapshotError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let bytes = self.bytes.lock().expect("no test panics with it");
        let found = bytes.get(offset as usize..offset as usize + length);
        found.map(Bytes::copy_from_slice).ok_or_else(|| SnapshotError { what: "it ends early".into() })
    }
}

/// Cuts a snapshot, whose file the store goes on with.
fn cut(view: &View) -> Arc<File> {
    let file = Arc::new(File::default());
    let mut bytes = BEFORE.to_vec();
    let once_durable = KvStore::encode_to_file(view, &mut |chunk| bytes.extend_from_slice(&chunk));
    *file.bytes.lock().expect("nobody else has it") = bytes;
    let held: Arc<dyn SnapshotFile> = file.clone();
    once_durable.expect("a store leaves large values there")(&held, BEFORE.len() as u64);
    file
}

/// A store as a restarted member has it.
fn restored(file: &Arc<File>) -> KvStore {
    let bytes = file.bytes.lock().expect("no test panics with it").clone();
    let held: Arc<dyn SnapshotFile> = file.clone();
    let mut rest = &bytes[BEFORE.len()..];
    let store = KvStore::decode_from_file(&mut rest, &held, BEFORE.len() as u64).expect("it was encoded so");
    assert!(!rest.has_remaining());
    store
}

/// A large value of this letter.
fn large(letter: &str) -> String {
    letter.repeat(5_000)
}

/// Small and large ones, written over and deleted.
fn filled() -> Store {
    let mut store = Store::new();
    for round in 0..3 {
        for key in 0..40 {
            let value = if key % 2 == 0 { large(&format!("{round}")) } else { format!("{round}") };
            store.put(&format!("k{key:02}"), &value);
        }
    }
    store.delete("k04", "k08");
    store
}

/// Goal: nothing can be told from where a value is. Method: the same store, one with its large values on file, one read back
/// from that file, asked the same.
#[test]
fn where_a_value_is_makes_no_difference() {
    let in_memory = filled();
    let moved = filled();
    let file = cut(&moved.view());
    assert_eq!(file.reads(), 0);
    let read_back = restored(&file);
    assert_eq!(file.reads(), 0, "a start reads values, and keeps their places");
    for view in [moved.view(), read_back.freeze()] {
        let same = in_memory.view();
        assert_eq!(view, same);
        assert_eq!((view.size_bytes(), KvStore::digest(&view)), (same.size_bytes(), KvStore::digest(&same)));
        assert_eq!(hash_kv(&view, 0), hash_kv(&same, 0));
        assert_eq!(snapshot(&view), snapshot(&same));
        assert_eq!(events(&view, 2, &KeyRange::all()), events(&same, 2, &KeyRange::all()));
        for range in [
            range("k00", "k99"),
            Range { revision: 50, ..range("k00", "k99") },
            Range { sort_target: SortTarget::Value.into(), sort_order: SortOrder::Descend.into(), ..range("k", "l") },
        ] {
            assert_eq!(view.range(&range), same.range(&range));
        }
        assert!(file.reads() > 0, "large values came from the file");
        assert_eq!(view.range(&Range { keys_only: true, ..range("k00", "k99") }).expect("readable").kvs.len(), 36);
        assert_eq!(file.reads(), 0, "nobody asked for a value");
    }
}

/// Goal: what applies entries waits for no disk. Method: everything that tells what was there before, of values on file; the
/// answers are read where somebody waits for them.
#[test]
fn what_was_there_before_is_read_by_whoever_waits_for_it() {
    let mut store = filled();
    let file = cut(&store.view());
    let previous = |answer: Outcome| match answer.expect("runs").answered().expect("readable") {
        Response::Put(put) => put.prev_kv.into_iter().collect(),
        Response::DeleteRange(deleted) => deleted.prev_kvs,
        other => panic!("it answered {other:?}"),
    };
    let put = store.run(Command::Put(Put { prev_kv: true, ..put("k00", "new") }));
    let delete = store.run(Command::DeleteRange(DeleteRange { prev_kv: true, ..delete("k10", "k13") }));
    let txn = store.txn(txn(vec![
        Request::Range(range("k20", "")),
        Request::Put(Put { prev_kv: true, ..crate::common::put("k20", "new") }),
    ]));
    assert_eq!(file.reads(), 0, "applied without a look at the file");
    assert_eq!(previous(put).iter().map(|kv| &kv.value).collect::<Vec<_>>(), [&large("2")]);
    let deleted: Vec<Bytes> = previous(delete).into_iter().map(|kv| kv.value).collect();
    assert_eq!(deleted, [large("2"), "2".into(), large("2")]);
    let answered = txn.expect("runs").answered().expect("readable");
    let OperationResponse::Range(read) = &answered.results[0] else { panic!("{answered:?}") };
    let OperationResponse::Put(put) = &answered.results[1] else { panic!("{answered:?}") };
    assert_eq!(read.kvs[0].value, large("2"));
    assert_eq!(put.prev_kv.as_ref().map(|kv| &kv.value[..]), Some(large("2").as_bytes()));
    assert_eq!(file.reads(), 5);
}

/// Goal: a transaction decides by a value on file as by any other, and seldom reads it. Method: each comparison with values that are
/// equal, that differ at the first byte, at the last, in length; each compared with a store in memory.
#[test]
fn a_transaction_compares_a_value_on_file() {
    use Comparison::{Equal, Greater, Less, NotEqual};
    let (mut store, mut in_memory) = (filled(), filled());
    let file = cut(&store.view());
    let last = format!("{}3", &large("2")[1..]);
    let longer = format!("{}2", large("2"));
    let tie = "2".repeat(64);
    for (target, reads_for_equality, reads_for_order) in [
        (large("2"), 1, 1),
        (large("1"), 0, 0),
        (large("3"), 0, 0),
        (last, 0, 1),
        (longer, 0, 1),
        ("2".to_owned(), 0, 0),
        (tie, 0, 0),
        (String::new(), 0, 0),
    ] {
        for (comparison, reads) in [
            (Equal, reads_for_equality),
            (NotEqual, reads_for_equality),
            (Greater, reads_for_order),
            (Less, reads_for_order),
        ] {
            let txn = || {
                let compare = compare("k02", comparison, CompareTarget::Value(bytes(&target)));
                branches(vec![compare], Vec::new(), Vec::new())
            };
            let same = in_memory.txn(txn()).expect("runs").succeeded;
            assert_eq!(store.txn(txn()).expect("runs").succeeded, same, "{comparison:?} {} bytes", target.len());
            assert_eq!(file.reads(), reads, "{comparison:?} {} bytes", target.len());
        }
    }
}

/// Goal: no client makes a member's loop read many values. Method: a comparison that only reading decides, of one key and of all,
/// priced for its proposer.
#[test]
fn a_comparison_that_reads_many_values_is_refused_to_its_proposer() {
    let store = filled();
    cut(&store.view());
    let compare = |key, end| {
        let target = CompareTarget::Value(bytes(&large("2")));
        let compare = Compare { range_end: bytes(end), ..compare(key, Comparison::Greater, target) };
        Command::Txn(branches(vec![compare], Vec::new(), Vec::new()))
    };
    assert!(compare("k02", "").may_cost_much(), "it is priced");
    assert!(store.view().cost(&compare("k02", ""), COST_MAX).is_ok());
    let many = |key: &str| {
        let target = CompareTarget::Value(bytes(&format!("{}1", "2".repeat(4_999))));
        crate::common::compare(key, Comparison::Greater, target)
    };
    let all = [
        "k00", "k02", "k08", "k10", "k12", "k14", "k16", "k18", "k20", "k22", "k24", "k26", "k28", "k30", "k32", "k34",
        "k36",
    ];
    let command =
        |keys: &[&str]| Command::Txn(branches(keys.iter().map(|key| many(key)).collect(), Vec::new(), Vec::new()));
    assert!(store.view().cost(&command(&all[..16]), COST_MAX).is_ok());
    assert_eq!(store.view().cost(&command(&all), COST_MAX), Err(KvError::TooCostly));
    let in_memory = filled().view().cost(&command(&all), COST_MAX);
    assert_eq!(in_memory, Err(KvError::TooCostly), "other members may have them on file");
}

/// Goal: a new lease for a large value costs no read. Method: a put that keeps the value.
#[test]
fn a_put_that_keeps_the_value_does_not_read_it() {
    let mut store = filled();
    let file = cut(&store.view());
    store.grant(7, 10).expect("granted");
    let kept = Put { key: bytes("k02"), ignore_value: true, lease: 7, ..Put::default() };
    store.run(Command::Put(kept)).expect("the key is there");
    assert_eq!(file.reads(), 0);
    assert_eq!(store.value("k02"), Some(bytes(&large("2"))));
    let next = cut(&store.view());
    assert_eq!(store.value("k02"), Some(bytes(&large("2"))));
    assert_eq!(next.reads(), 1, "both versions have moved");
}

/// Goal: an answer is weighed before it is read. Method: a selection of what is on file.
#[test]
fn a_selection_tells_its_size_without_reading() {
    let store = filled();
    let file = cut(&store.view());
    let selection = store.view().select(&range("k00", "k03")).expect("readable");
    assert_eq!((selection.keys(), selection.bytes()), (3, 3 * 3 + 5_000 + 1 + 5_000));
    assert!(selection.asks_disk() && file.reads() == 0);
    assert_eq!(selection.answer(), store.view().range(&range("k00", "k03")).expect("readable"));
    let without = store.view().select(&Range { keys_only: true, ..range("k00", "k03") }).expect("readable");
    assert_eq!((without.bytes(), without.asks_disk()), (9, false));
}

/// Goal: no file is held for longer than somebody needs it. Method: a second snapshot takes the values over; a view of the old
/// days keeps what only it still has.
#[test]
fn a_newer_snapshot_takes_the_values_over() {
    let mut store = filled();
    let first = cut(&store.view());
    let old = store.view();
    store.delete("k", "l");
    store.compact(store.revision()).expect("in the past");
    store.settle();
    store.put("after", &large("3"));
    let second = cut(&store.view());
    assert_eq!(store.value("after"), Some(bytes(&large("3"))));
    assert_eq!((first.reads(), second.reads()), (0, 1));
    assert_eq!(old.range(&range("k00", "")).expect("readable").kvs[0].value, large("2"));
    assert_eq!(first.reads(), 1, "the old view reads on");
    drop(old);
    assert_eq!(Arc::strong_count(&first), 1, "nobody needs the first file any more");
}

/// Goal: what the disk damaged is never served. Method: one bit of a value, turned; and a file that has lost its end.
#[test]
fn a_damaged_value_ends_the_process_and_says_where() {
    for is_short in [false, true] {
        let store = filled();
        let file = cut(&store.view());
        {
            let mut bytes = file.bytes.lock().expect("no test panics with it");
            let middle = bytes.windows(4_096).rposition(|window| window == [b'2'; 4_096]).expect("a large value");
            bytes[middle] ^= 1;
            if is_short {
                bytes.truncate(middle);
            }
        }
        let told = catch_unwind(AssertUnwindSafe(|| store.view().range(&range("k38", "")))).expect_err("not served");
        let said = told.downcast_ref::<String>().expect("a sentence");
        assert!(said.starts_with("/data/n1/snapshot: the"), "{said}");
        assert!(said.contains(if is_short { "it ends early" } else { "rejoin as a new member" }), "{said}");
    }
}
