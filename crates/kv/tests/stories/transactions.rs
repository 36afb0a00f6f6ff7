//! Transactions and the checks before them.

use crate::common::*;
use hustings_kv::*;

fn write(key: &str) -> Request {
    Request::Put(put(key, "x"))
}

fn look(key: &str) -> Request {
    Request::Range(range(key, ""))
}

fn erase(key: &str, end: &str) -> Request {
    Request::DeleteRange(delete(key, end))
}

fn inner(success: Vec<Request>, failure: Vec<Request>) -> Request {
    Request::Txn(branches(Vec::new(), success, failure))
}

#[test]
fn each_step_sees_the_steps_before_it_and_inner_compares_see_none() {
    let mut store = Store::new();
    store.put("a", "1");
    let is_there = compare("n", Comparison::Greater, CompareTarget::Create(0));
    let nested = Request::Txn(branches(vec![is_there], vec![write("yes")], vec![write("no")]));
    let answer = store.txn(txn(vec![look("a"), write("n"), look("n"), nested])).expect("runs");
    assert_eq!(answer.revision, 3);
    let [
        OperationResponse::Range(before),
        OperationResponse::Put(put),
        OperationResponse::Range(after),
        OperationResponse::Txn(nested),
    ] = &answer.results[..]
    else {
        panic!("four results: {answer:?}")
    };
    assert_eq!((before.revision, put.revision, after.revision, after.count), (2, 3, 3, 1));
    // As etcd: the inner header is empty.
    assert_eq!((nested.revision, nested.succeeded), (0, false));
    assert!(store.value("no").is_some() && store.value("yes").is_none());
}

#[test]
fn an_older_revision_is_read_beside_fresh_writes() {
    let mut store = Store::new();
    store.put("a", "old");
    let old = Request::Range(Range { revision: 2, ..range("a", "") });
    let answer = store.txn(txn(vec![write("a"), old])).expect("runs");
    let OperationResponse::Range(old) = &answer.results[1] else { panic!("a range") };
    assert_eq!(&old.kvs[0].value[..], b"old");
}

#[test]
fn a_transaction_that_changes_nothing_takes_no_revision() {
    let mut store = Store::new();
    let answer = store.txn(txn(vec![erase("nobody", "")])).expect("runs");
    assert_eq!((answer.revision, store.revision()), (1, 1));
    let OperationResponse::DeleteRange(erased) = &answer.results[0] else { panic!("a deletion") };
    assert_eq!(erased.revision, 1);
}

#[test]
fn a_missing_key_has_numbers_of_zero_and_no_value() {
    let mut store = Store::new();
    let mut holds = |comparison, target| {
        let compare = compare("nobody", comparison, target);
        store.txn(branches(vec![compare], Vec::new(), Vec::new())).expect("runs").succeeded
    };
    assert!(holds(Comparison::Equal, CompareTarget::Version(0)));
    assert!(holds(Comparison::Equal, CompareTarget::Create(0)));
    assert!(holds(Comparison::Less, CompareTarget::Mod(1)));
    assert!(holds(Comparison::Equal, CompareTarget::Lease(0)));
    assert!(!holds(Comparison::Equal, CompareTarget::Value(bytes(""))));
    assert!(!holds(Comparison::NotEqual, CompareTarget::Value(bytes("x"))));
}

#[test]
fn a_compare_with_a_range_must_hold_for_every_key() {
    let mut store = Store::new();
    store.put("a", "5");
    store.put("b", "7");
    let mut holds = |comparison, value: &str| {
        let whole = Compare { range_end: bytes("c"), ..compare("a", comparison, CompareTarget::Value(bytes(value))) };
        store.txn(branches(vec![whole], Vec::new(), Vec::new())).expect("runs").succeeded
    };
    assert!(holds(Comparison::Greater, "4"));
    assert!(!holds(Comparison::Greater, "5"));
    assert!(holds(Comparison::NotEqual, "6"));
}

#[test]
fn a_transaction_changes_all_or_nothing() {
    let mut store = Store::new();
    store.put("a", "1");
    store.put("a", "2");
    store.compact(3).expect("compacted");
    let reads_at = |revision| Request::Range(Range { revision, ..range("a", "") });
    let with_lease = Request::Put(Put { lease: 77, ..put("c", "") });
    let keeping = Request::Put(Put { ignore_value: true, ..put("nobody", "") });
    let failures = [
        (reads_at(2), KvError::Compacted { compact_revision: 3 }),
        (reads_at(9), KvError::FutureRevision { revision: 3 }),
        (with_lease, KvError::LeaseNotFound),
        (keeping, KvError::KeyNotFound),
        (inner(vec![reads_at(2)], Vec::new()), KvError::Compacted { compact_revision: 3 }),
    ];
    for (failing, error) in failures {
        assert_eq!(store.txn(txn(vec![write("w"), failing])), Err(error));
        assert_eq!((store.value("w"), store.revision()), (None, 3));
    }
}

#[test]
fn what_the_branch_not_taken_asks_is_not_checked() {
    let mut store = Store::new();
    let impossible = Request::Put(Put { lease: 77, ..put("c", "") });
    store.txn(branches(Vec::new(), vec![write("w")], vec![impossible])).expect("runs");
}

#[test]
fn a_read_only_transaction_is_answered_by_a_view() {
    let mut store = Store::new();
    store.put("a", "1");
    let reading = txn(vec![look("a"), inner(vec![look("a")], Vec::new())]);
    let from_view = store.view().read_txn(&reading);
    assert_eq!(from_view, store.txn(reading));
    assert_eq!(from_view.expect("runs").revision, 2);
    assert_eq!(store.view().read_txn(&txn(vec![write("a")])), Err(KvError::Malformed));
}

// AP-09. The expectations were seen on etcd 3.5.1.
#[test]
fn a_key_written_twice_is_refused_before_proposing_where_etcd_does() {
    let duplicate = Err(CheckError::DuplicateKey);
    let cases = [
        (vec![write("a"), write("a")], duplicate),
        (vec![erase("a", ""), write("a")], duplicate),
        (vec![write("b"), erase("a", "c")], duplicate),
        (vec![write("c"), erase("a", "c")], Ok(())),
        (vec![erase("a", ""), erase("a", "")], Ok(())),
        (vec![inner(vec![write("x")], vec![write("x")])], Ok(())),
        (vec![inner(vec![write("x")], vec![write("y")]), write("y")], duplicate),
        (vec![inner(vec![write("s")], vec![]), inner(vec![], vec![write("s")])], duplicate),
        (vec![inner(vec![write("s")], vec![]), inner(vec![write("s")], vec![write("s")])], duplicate),
        (vec![inner(vec![erase("x", "")], vec![]), inner(vec![write("x")], vec![])], duplicate),
        // etcd does not look the other way round, nor through the end "\0".
        (vec![inner(vec![write("x")], vec![]), inner(vec![erase("x", "")], vec![])], Ok(())),
        (vec![erase("\0", "\0"), write("q")], Ok(())),
        (vec![erase("q", "\0"), write("q")], Ok(())),
    ];
    for (requests, expected) in cases {
        assert_eq!(check_txn(&txn(requests.clone()), 128), expected, "{requests:?}");
    }
}

#[test]
fn a_key_deleted_and_written_in_one_revision_starts_anew() {
    let mut store = Store::new();
    store.put("q", "old");
    store.put("r", "old");
    let answer = store.txn(txn(vec![erase("\0", "\0"), write("q")])).expect("runs");
    assert_eq!(answer.revision, 4);
    let kv = store.view().range(&range("q", "")).expect("readable").kvs.remove(0);
    assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (4, 4, 1));
    assert_eq!(store.view().key_count(), 1);
    let keeping = Request::Put(Put { ignore_value: true, ..put("q", "") });
    store.txn(txn(vec![erase("\0", "\0"), keeping])).expect("etcd would not survive this");
    assert_eq!(store.value("q"), Some(bytes("")));
}

#[test]
fn too_many_operations_are_refused_inner_ones_counted() {
    let many = |count: usize| (0..count).map(|n| write(&format!("k{n}"))).collect::<Vec<_>>();
    assert_eq!(check_txn(&txn(many(128)), 128), Ok(()));
    assert_eq!(check_txn(&txn(many(129)), 128), Err(CheckError::TooManyOperations));
    let nested = |count| txn(vec![inner(many(count), Vec::new())]);
    assert_eq!(check_txn(&nested(127), 128), Ok(()));
    assert_eq!(check_txn(&nested(128), 128), Err(CheckError::TooManyOperations));
}

/// Goal: a tree of short lists is no way around the bound of each list. Method: eight in each, six deep, which etcd admits.
#[test]
fn a_tree_of_short_lists_is_refused_for_all_its_operations() {
    let tree = |depth: usize| {
        (1..depth).fold(txn(vec![look("a"); 8]), |txn, _| branches(vec![], vec![Request::Txn(txn); 8], vec![]))
    };
    assert_eq!(check_txn(&tree(4), 128), Ok(()), "of 4,680 operations");
    assert_eq!(check_txn(&tree(5), 128), Err(CheckError::TooManyOperations), "of 37,448");
    let compares = vec![compare("a", Comparison::Equal, CompareTarget::Version(0)); 100];
    let comparing = branches(compares, vec![], vec![]);
    assert_eq!(check_txn(&txn(vec![Request::Txn(comparing); 28]), 128), Ok(()));
    let deep = branches(vec![], vec![Request::Txn(tree(3)); 7], vec![Request::Txn(tree(3)); 8]);
    assert_eq!(check_txn(&deep, 128), Err(CheckError::TooManyOperations), "both branches count");
}

#[test]
fn whatever_passes_the_check_the_log_can_carry() {
    let nest = |depth: usize| {
        (1..depth).fold(txn(vec![look("a")]), |txn, _| branches(vec![], vec![Request::Txn(txn)], vec![]))
    };
    let deepest = (1..200).take_while(|depth| check_txn(&nest(*depth), 1_000).is_ok()).last().expect("some pass");
    let command = Command::Txn(nest(deepest));
    assert_eq!(Command::from_payload(&command.to_payload()), Some(command));
    assert!(deepest >= 32, "{deepest}");
}

#[test]
fn contradictions_are_refused_before_proposing() {
    let with_value = Put { ignore_value: true, ..put("k", "v") };
    assert_eq!(check_put(&with_value), Err(CheckError::ValueProvided));
    let with_lease = Put { ignore_lease: true, lease: 1, ..put("k", "") };
    assert_eq!(check_put(&with_lease), Err(CheckError::LeaseProvided));
    assert_eq!(check_put(&put("", "")), Err(CheckError::EmptyKey));
    assert_eq!(check_range(&range("", "")), Err(CheckError::EmptyKey));
    assert_eq!(check_delete_range(&delete("", "")), Err(CheckError::EmptyKey));
    let hollow = Txn { success: vec![Operation { request: None }], ..Txn::default() };
    assert_eq!(check_txn(&hollow, 128), Err(CheckError::EmptyOperation));
}
