//! The cost of one command, and who pays for a read.

use crate::common::*;
use hustings_core::{ApplyVersion, Lsn, StateMachine, Term};
use hustings_kv::*;

/// A store with so many keys, `k00000` onwards.
fn filled(keys: u64) -> Store {
    let mut store = Store::new();
    for number in 0..keys {
        store.put(&format!("k{number:05}"), "v");
    }
    store
}

fn delete_all() -> DeleteRange {
    DeleteRange { prev_kv: false, ..delete("k", "l") }
}

/// Goal: a deletion is atomic, and so it is bounded: up to the bound it runs in one revision, above it nothing is deleted.
#[test]
fn a_deletion_runs_whole_or_is_refused_before_its_first_write() {
    let mut store = filled(DELETIONS_MAX);
    store.put("k99999", "one too many");
    let full = store.kv.clone();
    assert_eq!(store.run(Command::DeleteRange(delete_all())), Err(KvError::TooCostly));
    let write = Request::Put(put("a", "x"));
    let transaction = txn(vec![write, Request::DeleteRange(delete_all())]);
    assert_eq!(store.txn(transaction), Err(KvError::TooCostly));
    assert!(store.kv == full, "what is refused changes nothing");
    store.delete("k99999", "");
    let before = store.revision();
    match store.run(Command::DeleteRange(delete_all())) {
        Ok(Response::DeleteRange(deleted)) => assert_eq!(deleted.deleted as u64, DELETIONS_MAX),
        other => panic!("a deletion answered {other:?}"),
    }
    assert_eq!(store.revision(), before + 1, "in one revision");
}

/// Goal: comparisons over ranges are paid for, those of inner transactions too, and those that do not hold.
#[test]
fn comparisons_over_ranges_count() {
    let mut store = filled(2_000);
    let all =
        |target| Compare { range_end: "l".into(), ..compare("k", Comparison::Greater, CompareTarget::Mod(target)) };
    let many = |count, target| vec![all(target); count];
    assert!(store.txn(branches(many(79, 0), vec![Request::Put(put("a", "x"))], vec![])).is_ok());
    let refused = branches(many(81, 0), vec![Request::Put(put("b", "x"))], vec![]);
    assert_eq!(store.txn(refused), Err(KvError::TooCostly));
    let inner = Request::Txn(branches(many(40, 0), vec![], vec![]));
    let refused = branches(many(40, 0), vec![inner.clone(), inner.clone()], vec![]);
    assert_eq!(store.txn(refused), Err(KvError::TooCostly));
    // A comparison stops at the first key that does not hold.
    assert!(store.txn(branches(many(128, i64::MAX), vec![], vec![])).is_ok());
    assert_eq!(store.value("b"), None);
}

/// Goal: what a proposer is told a command costs is what applying it is judged by.
#[test]
fn the_cost_is_known_before() {
    let store = filled(100);
    let view = store.view();
    let deletion = Command::DeleteRange(delete_all());
    assert_eq!(view.cost(&deletion, COST_MAX), Ok(100 * 16));
    assert_eq!(view.cost(&deletion, 1_000), Err(KvError::TooCostly), "no further than asked");
    assert!(deletion.may_cost_much() && !Command::Put(put("a", "b")).may_cost_much());
    let many = |count| Command::Txn(txn(vec![Request::Txn(txn(vec![Request::Put(put("a", "b")); 100])); count]));
    assert!(!many(3).may_cost_much() && many(4).may_cost_much(), "an inner transaction counts beside its operations");
    let inner = Request::Txn(txn(vec![Request::DeleteRange(delete("a", "b"))]));
    assert!(Command::Txn(txn(vec![inner])).may_cost_much());
    assert!(view.cost(&Command::Put(put("a", "b")), COST_MAX).is_ok_and(|cost| cost < 100));
    let mut leased = Store::new();
    leased.grant(7, 10).expect("granted");
    for key in ["a", "b", "c"] {
        leased.put_with_lease(key, 7).expect("put");
    }
    let revoke = |id| Command::LeaseRevoke(LeaseRevoke { id });
    assert_eq!(leased.view().cost(&revoke(7), COST_MAX), Ok(1 + 3 * 30));
    assert_eq!(leased.view().cost(&revoke(8), COST_MAX), Ok(1));
    let kept = LeaseKeepAlive { ids: vec![1; 100_000] };
    assert_eq!(view.cost(&Command::LeaseKeepAlive(kept.clone()), COST_MAX), Err(KvError::TooCostly));
    let mut store = store;
    assert_eq!(store.run(Command::LeaseKeepAlive(kept)), Err(KvError::TooCostly));
}

/// Goal: what an entry says costs a member something also where nothing of it is done: an empty transaction in a transaction, and a branch
/// that is not taken.
#[test]
fn what_is_not_done_costs_too() {
    let mut store = Store::new();
    let empty = vec![Request::Txn(Txn::default()); 4_000];
    store.txn(branches(Vec::new(), empty.clone(), empty.clone())).expect("it is done");
    let least = 3 * 8_000;
    assert!(store.kv.last_cost() >= least, "{}", store.kv.last_cost());
    let command = Command::Txn(txn(empty));
    assert!(command.may_cost_much());
    assert!(store.view().cost(&command, COST_MAX).is_ok_and(|cost| cost >= least / 2));
}

/// Goal: a range in a transaction is read when somebody asks, and sees what the steps before it left and no later one.
#[test]
fn a_range_in_a_transaction_is_read_when_somebody_asks() {
    let mut store = filled(3);
    let all = || Request::Range(range("k", "l"));
    let response = store.txn(txn(vec![
        all(),
        Request::DeleteRange(delete("k00001", "")),
        all(),
        Request::Put(put("k00007", "new")),
        Request::Txn(txn(vec![all()])),
    ]));
    let response = response.expect("runs");
    assert!(Response::Txn(response.clone()).is_deferred(), "nothing is read when it is applied");
    store.delete("k", "l");
    let answered = response.answered().expect("readable");
    let read = |result: &OperationResponse| match result {
        OperationResponse::Range(range) => range.clone(),
        other => panic!("a range answered {other:?}"),
    };
    let keys = |range: &RangeResponse| range.kvs.iter().map(|kv| kv.key.clone()).collect::<Vec<_>>();
    assert_eq!(keys(&read(&answered.results[0])), ["k00000", "k00001", "k00002"]);
    assert_eq!(keys(&read(&answered.results[2])), ["k00000", "k00002"]);
    let OperationResponse::Txn(inner) = &answered.results[4] else { panic!("a transaction") };
    assert_eq!(keys(&read(&inner.results[0])), ["k00000", "k00002", "k00007"]);
    assert_eq!((read(&answered.results[0]).revision, read(&answered.results[2]).revision), (4, 5));
}

/// Goal: a lease with more keys than one step may delete is over at once, and its keys go in a few steps.
#[test]
fn a_lease_with_many_keys_ends_in_steps() {
    let rest = 100;
    let keys = KEYS_PER_STEP + rest;
    for is_revoked in [true, false] {
        let mut store = Store::new();
        store.grant(7, 10).expect("granted");
        for number in 0..keys {
            store.put_with_lease(&format!("k{number:05}"), 7).expect("put");
        }
        let revision = store.revision();
        match is_revoked {
            true => drop(store.revoke(7).expect("revoked")),
            false => store.wait(10.0),
        }
        assert_eq!((store.view().key_count(), store.revision()), (rest, revision + 1));
        assert_eq!(store.kv.next_deadline(), Some(std::time::Duration::ZERO), "the rest does not wait for anybody");
        assert!(store.view().is_lease_ending(7) && !store.view().has_lease(7));
        assert_eq!(store.put_with_lease("late", 7), Err(KvError::LeaseNotFound));
        assert_eq!(store.keep_alive(7), None);
        let restored = KvStore::decode(&mut &snapshot(&store.view())[..]).expect("our own snapshot");
        assert!(restored == store.kv);
        store.wait(0.001);
        assert_eq!((store.view().key_count(), store.view().is_lease_ending(7)), (0, false));
        assert!(store.grant(7, 10).is_ok());
    }
}

/// Goal: a lease whose keys are still going cannot be granted anew: it would inherit them.
#[test]
fn a_lease_that_is_ending_is_not_granted_anew() {
    let mut store = Store::new();
    store.grant(7, 10).expect("granted");
    for number in 0..2 * KEYS_PER_STEP + 100 {
        store.put_with_lease(&format!("k{number:05}"), 7).expect("put");
    }
    store.revoke(7).expect("revoked");
    assert_eq!(store.grant(7, 10), Err(KvError::LeaseExists));
    store.wait(0.001);
    assert!(store.grant(7, 10).is_ok());
    assert_eq!(store.view().key_count(), 0);
}

/// Goal: alarms, through which each command looks, are as many as members may have.
#[test]
fn alarms_are_bounded() {
    let mut store = Store::new();
    let raise = |member| Command::Alarm(AlarmChange { raise: true, member, kind: AlarmKind::NoSpace.into() });
    let raised = (0..1_000).filter(|member| store.run(raise(*member)).is_ok()).count();
    assert_eq!((raised, store.view().alarms().len()), (256, 256));
    assert!(store.run(raise(3)).is_ok(), "one that stands is raised again");
}

/// Goal: a budget changes with the apply version and at its entry, not with the build. Method: a build that knows a tighter
/// second set of rules, before and after it adopts them.
#[test]
fn the_budget_is_that_of_the_apply_version() {
    static RULES: [Rules; 2] = [Rules::FIRST, Rules { cost_max: 1_600, ..Rules::FIRST }];
    let mut next = KvStore::knowing(&RULES);
    let mut apply = |command: Command| next.apply(Lsn { term: Term(1), index: 1 }, &command.to_payload());
    for number in 0..101 {
        apply(Command::Put(put(&format!("k{number:03}"), "v"))).expect("a put is cheap");
    }
    let today = next.clone();
    next.adopt(ApplyVersion(2));
    let all = Command::DeleteRange(delete_all());
    assert_eq!(next.view().cost(&all, COST_MAX), Err(KvError::TooCostly), "proposers look at the same rules");
    let apply_to = |mut store: KvStore| store.apply(Lsn { term: Term(1), index: 2 }, &all.to_payload());
    assert!(apply_to(today).is_ok());
    assert_eq!(apply_to(next), Err(KvError::TooCostly));
}
