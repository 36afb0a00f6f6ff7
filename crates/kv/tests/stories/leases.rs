//! Leases, on the log's clock.

use std::time::Duration;

use crate::common::*;
use hustings_core::{ApplyVersion, StateMachine};
use hustings_kv::*;

#[test]
fn a_lease_takes_its_keys_with_it_in_one_revision() {
    let mut store = Store::new();
    assert_eq!(store.grant(7, 10), Ok(Response::LeaseGrant { revision: 1, id: 7, ttl: 10 }));
    store.put_with_lease("b", 7).expect("put");
    store.put_with_lease("a", 7).expect("put");
    store.put("free", "1");
    store.wait(9.999_999);
    assert!(store.value("a").is_some());
    store.wait(0.000_001);
    assert_eq!((store.value("a"), store.value("b"), store.revision()), (None, None, 5));
    let seen = events(&store.view(), 5, &KeyRange::all());
    assert_eq!(seen.iter().map(|event| &event.kv.key[..]).collect::<Vec<_>>(), [b"a", b"b"]);
    assert!(store.value("free").is_some());
    assert_eq!(store.view().lease_time_to_live(7, LeaseKeys::Omit), None);
}

#[test]
fn each_expired_lease_takes_a_revision_of_its_own() {
    let mut store = Store::new();
    for id in 1..=3 {
        store.grant(id, 5).expect("granted");
    }
    store.put_with_lease("a", 1).expect("put");
    store.put_with_lease("b", 2).expect("put");
    store.wait(6.0);
    assert_eq!(store.revision(), 5, "two with keys, one without");
}

#[test]
fn revoking_deletes_and_a_second_time_finds_nothing() {
    let mut store = Store::new();
    store.grant(5, 100).expect("granted");
    store.put_with_lease("a", 5).expect("put");
    assert_eq!(store.revoke(5), Ok(Response::LeaseRevoke { revision: 3 }));
    assert_eq!(store.value("a"), None);
    assert_eq!(store.revoke(5), Err(KvError::LeaseNotFound));
    assert_eq!(store.keep_alive(5), None);
}

/// Goal: leases that nobody ends fill the store, and the quota ends them before the memory does. Method: a thousand of them, of which half
/// are revoked and the rest expire.
#[test]
fn a_lease_counts_in_the_size_of_the_store() {
    let mut store = Store::new();
    let size = |store: &Store| store.view().size_bytes();
    let empty = size(&store);
    for id in 1..=1_000 {
        store.grant(id, 60).expect("granted");
    }
    let full = size(&store) - empty;
    assert!(full >= 200 * 1_000, "a lease takes some 200 bytes, and a thousand count {full} together");
    for id in 1..=500 {
        store.revoke(id).expect("it is there");
    }
    assert_eq!(size(&store) - empty, full / 2);
    store.wait(61.0);
    assert_eq!(size(&store), empty);
}

#[test]
fn grants_are_refused_that_etcd_refuses() {
    let mut store = Store::new();
    store.grant(5, 100).expect("granted");
    assert_eq!(store.grant(5, 100), Err(KvError::LeaseExists));
    assert_eq!(store.grant(0, 100), Err(KvError::LeaseNotFound), "the server picks ids");
    assert_eq!(store.grant(6, LEASE_TTL_SECONDS_MAX + 1), Err(KvError::LeaseTtlTooLarge));
    assert!(store.grant(-6, LEASE_TTL_SECONDS_MAX).is_ok());
    assert_eq!(store.grant(8, 0), Ok(Response::LeaseGrant { revision: 1, id: 8, ttl: 1 }));
    assert_eq!(store.put_with_lease("a", 77), Err(KvError::LeaseNotFound));
}

#[test]
fn a_put_moves_the_key_to_its_lease_and_without_one_lets_go() {
    let mut store = Store::new();
    store.grant(1, 100).expect("granted");
    store.grant(2, 100).expect("granted");
    let attached = |store: &Store, id| store.view().lease_time_to_live(id, LeaseKeys::List).expect("there").keys;
    store.put_with_lease("k", 1).expect("put");
    store.put_with_lease("k", 2).expect("put");
    assert_eq!((attached(&store, 1), attached(&store, 2)), (vec![], vec![bytes("k")]));
    store.revoke(1).expect("revoked");
    assert!(store.value("k").is_some());
    store.put("k", "free");
    assert_eq!(attached(&store, 2), Vec::<bytes::Bytes>::new());
    store.put_with_lease("k", 2).expect("put");
    store.delete("k", "");
    store.revoke(2).expect("revoked");
    assert_eq!(store.revision(), 6, "the revoked lease had nothing to delete");
}

// AP-15: one outcome at the edge.
#[test]
fn a_renewed_lease_lives_its_whole_time_and_a_due_one_is_not_renewed() {
    let mut store = Store::new();
    store.grant(1, 10).expect("granted");
    store.put_with_lease("k", 1).expect("put");
    store.wait(9.999_999);
    assert_eq!(store.keep_alive(1), Some(10));
    store.wait(9.999_999);
    assert!(store.value("k").is_some());
    store.wait(0.000_001);
    assert_eq!(store.keep_alive(1), None);
    assert_eq!(store.value("k"), None);
}

// TM-08, and AP-14 and AP-15 while leases wait for their turn.
#[test]
fn a_mass_expiry_goes_in_steps_and_nobody_uses_a_lease_that_waits() {
    let mut store = Store::new();
    let count = 3 * LEASES_PER_STEP as i64;
    for id in 1..=count {
        store.grant(id, 10).expect("granted");
        store.put_with_lease(&format!("k{id}"), id).expect("put");
    }
    store.wait(60.0);
    let left = |store: &Store| store.view().key_count() as i64;
    assert_eq!(left(&store), count - LEASES_PER_STEP as i64);
    assert_eq!(store.kv.next_deadline(), Some(Duration::ZERO));

    // The last ones are due and still wait. A keep-alive, itself a step, finds them gone; so does a put.
    assert_eq!(store.view().leases(), Vec::<i64>::new());
    assert!(store.value(&format!("k{count}")).is_some());
    assert_eq!(store.keep_alive(count), None);
    let now = left(&store);
    assert!(now < count - LEASES_PER_STEP as i64 && now > 0, "each command does a little of it: {now} are left");
    // Reusing a waiting id starts anew, without the old keys.
    for id in 1..=LEASES_PER_STEP as i64 {
        store.grant(count + id, 10).expect("granted");
    }
    store.run(Command::Advance(Advance {})).expect("runs");
    assert_eq!((left(&store), store.kv.next_deadline()), (0, Some(Duration::from_secs(10))));
}

#[test]
fn an_id_that_is_granted_again_while_it_waits_does_not_inherit_keys() {
    let mut store = Store::new();
    let count = 3 * LEASES_PER_STEP as i64;
    for id in 1..=count {
        store.grant(id, 10).expect("granted");
    }
    store.put_with_lease("old", count).expect("put");
    store.wait(10.0);
    assert_eq!(store.put_with_lease("late", count), Err(KvError::LeaseNotFound));
    let mut waiting = Store::new();
    for id in 1..=count {
        waiting.grant(id, 10).expect("granted");
    }
    waiting.put_with_lease("old", count).expect("put");
    waiting.wait(10.0);
    waiting.grant(count, 50).expect("the old one is over");
    assert_eq!(waiting.value("old"), None);
    let fresh = waiting.view().lease_time_to_live(count, LeaseKeys::List).expect("there");
    assert_eq!((fresh.granted_ttl, fresh.keys.len()), (50, 0));
}

#[test]
fn the_next_deadline_is_the_earliest_lease() {
    let mut store = Store::new();
    assert_eq!(store.kv.next_deadline(), None);
    store.grant(1, 30).expect("granted");
    store.grant(2, 10).expect("granted");
    store.wait(4.0);
    assert_eq!(store.kv.next_deadline(), Some(Duration::from_secs(6)));
    store.keep_alive(2);
    assert_eq!(store.view().leases(), [2, 1]);
    store.wait(10.0);
    assert_eq!(store.view().leases(), [1]);
    assert_eq!(store.kv.next_deadline(), Some(Duration::from_secs(16)));
}

#[test]
fn a_clock_that_jumps_to_the_end_of_time_ends_all_leases_and_no_more() {
    let mut store = Store::new();
    store.grant(1, LEASE_TTL_SECONDS_MAX).expect("granted");
    store.kv.advance(Duration::MAX);
    store.kv.advance(Duration::MAX);
    assert_eq!((store.view().leases(), store.kv.next_deadline()), (vec![], None));
    store.grant(2, 100).expect("granted");
    assert_eq!(store.keep_alive(2), None, "at the end of time everything is due");
}

/// Goal: a lease may live for milliseconds, and only where every member can count them. Method: the same
/// command by the first rules, by the second, and by a member that takes over from a snapshot.
#[test]
fn a_lease_lives_for_milliseconds_from_the_second_version_on() {
    let grant = Command::ShortLeaseGrant(ShortLeaseGrant { id: 7, ttl_millis: 300 });
    let mut store = Store::new();
    assert_eq!(store.run(grant.clone()), Err(KvError::Malformed), "a build of the first rules does not know it");

    store.kv.adopt(ApplyVersion(2));
    store.grant(6, 5).expect("granted");
    assert_eq!(store.view().version_needed(), ApplyVersion(1), "builds of the first rules count whole seconds, too");
    let answer = store.run(grant).expect("it is granted");
    assert_eq!(store.view().version_needed(), ApplyVersion(2));
    assert!(matches!(answer, Response::LeaseGrant { ttl: 1, .. }), "etcd's calls tell whole seconds: {answer:?}");
    let granted = store.view().lease_time_to_live(7, LeaseKeys::Omit).expect("it lives").granted;
    assert_eq!(granted, Duration::from_millis(300));
    store.wait(0.2);
    assert_eq!(store.keep_alive(7), Some(1));
    let mut bytes = Vec::new();
    KvStore::encode(&store.view(), &mut |part| bytes.extend(part));
    let mut heir = Store::new();
    heir.kv = KvStore::decode(&mut &bytes[..]).expect("a snapshot of ours");
    heir.kv.adopt(ApplyVersion(2));
    assert_eq!(KvStore::digest(&heir.view()), KvStore::digest(&store.view()));
    for store in [&mut store, &mut heir] {
        store.wait(0.25);
        assert_eq!(store.keep_alive(7), Some(1), "a renewal counts anew");
        store.wait(0.299);
        assert!(store.view().has_lease(7));
        store.wait(0.001);
        assert!(!store.view().has_lease(7) && store.keep_alive(7).is_none());
    }
}
