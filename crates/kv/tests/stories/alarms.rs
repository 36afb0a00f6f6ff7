//! Alarms and what they refuse.

use crate::common::*;
use hustings_kv::*;

#[test]
fn a_full_store_refuses_what_takes_space_and_lets_delete() {
    let mut store = Store::new();
    store.put("a", "1");
    let alarm = Alarm { member: 1, kind: AlarmKind::NoSpace };
    let raised = store.alarm(AlarmKind::NoSpace, true);
    assert_eq!(raised, Ok(Response::Alarm { revision: 2, alarms: vec![alarm] }));
    assert_eq!(store.view().alarms(), [alarm]);
    assert_eq!(store.run(Command::Put(put("b", ""))), Err(KvError::NoSpace));
    assert_eq!(store.grant(1, 10), Err(KvError::NoSpace));
    // As etcd: a put in either branch is enough.
    let hidden = branches(Vec::new(), vec![Request::Range(range("a", ""))], vec![Request::Put(put("b", ""))]);
    assert_eq!(store.txn(hidden), Err(KvError::NoSpace));
    store.txn(txn(vec![Request::DeleteRange(delete("a", ""))])).expect("deleting makes room");
    store.compact(3).expect("so does compacting");
    store.alarm(AlarmKind::NoSpace, false).expect("cleared");
    store.put("b", "1");
}

#[test]
fn a_corrupt_cluster_refuses_everything_but_alarms() {
    let mut store = Store::new();
    store.alarm(AlarmKind::Corrupt, true).expect("raised");
    assert_eq!(store.run(Command::Put(put("b", ""))), Err(KvError::Corrupt));
    assert_eq!(store.run(Command::DeleteRange(delete("b", ""))), Err(KvError::Corrupt));
    assert_eq!(store.txn(txn(Vec::new())), Err(KvError::Corrupt));
    assert_eq!(store.compact(1), Err(KvError::Corrupt));
    assert_eq!((store.grant(1, 10), store.revoke(1)), (Err(KvError::Corrupt), Err(KvError::Corrupt)));
    store.alarm(AlarmKind::Corrupt, false).expect("cleared");
    store.put("b", "1");
}

#[test]
fn clearing_an_alarm_that_does_not_stand_changes_nothing() {
    let mut store = Store::new();
    assert_eq!(store.alarm(AlarmKind::NoSpace, false), Ok(Response::Alarm { revision: 1, alarms: vec![] }));
    assert_eq!(store.alarm(AlarmKind::None, true), Ok(Response::Alarm { revision: 1, alarms: vec![] }));
    assert_eq!(store.view().alarms(), []);
}
