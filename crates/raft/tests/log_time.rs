//! Stories of the log's clock: leases end when their time is up, at the same entry everywhere, and never before.

mod hosts;

use hosts::{Ended, Hosts, three};
use hustings_core::replica::{Policy, ReplicaTimer};
use hustings_core::{Cluster, EntryKind, Limits, NodeId, Refusal};
use hustings_raft::Timer;
use std::time::Duration;

#[test]
fn a_refused_proposal_gives_its_time_back() {
    // Goal: log time is never lost. Method: the leader is overloaded when the proposal that carries the time comes.
    let limits = Limits { uncommitted_bytes_max: 4, ..Limits::default() };
    let mut hosts = Hosts::new(Cluster { limits, ..Cluster::of(3, 1) }, Policy::default());
    hosts.elect(1);
    hosts.propose(1, "first");
    hosts.pass(1, 7);
    let refused = hosts.propose(1, "second");
    assert_eq!(hosts.outcome(1, refused), Some(Ended::Refused(Refusal::Overloaded)));
    hosts.settle();
    hosts.pass(1, 2);
    hosts.propose(1, "third");
    hosts.settle();
    for id in 1..=3 {
        let book = hosts.host(id).replica.machine();
        assert_eq!((book.lines.len(), book.micros), (2, 9_000), "n{id}: seven and two milliseconds");
    }
}

#[test]
fn a_proposal_refused_during_a_hand_over_gives_its_time_back() {
    let mut hosts = three();
    hosts.elect(1);
    hosts.isolate(3);
    let transfer = hustings_core::Admin::Transfer(NodeId(3));
    hosts.step(1, hustings_core::replica::Event::Admin { request: 1, admin: transfer });
    hosts.pass(1, 5);
    let waits = hosts.propose(1, "x");
    assert_eq!(hosts.outcome(1, waits), None, "it passes, so the client is not bothered");
    hosts.fire(1, ReplicaTimer::Protocol(Timer::Transfer));
    hosts.fire(1, ReplicaTimer::Retry);
    hosts.settle();
    assert_eq!(hosts.outcome(1, waits), Some(Ended::Applied));
    assert_eq!(hosts.host(2).replica.machine().micros, 5_000);
}

fn blanks_with_time(hosts: &Hosts, id: u64) -> Vec<u64> {
    let log = hosts.host(id).replica.protocol().log();
    let blank = |entry: &&hustings_core::Entry| entry.kind == EntryKind::Blank && entry.stamp.micros > 0;
    log.iter().filter(blank).map(|entry| entry.stamp.micros).collect()
}

#[test]
fn a_deadline_moves_the_log_once_and_everybody_expires_at_the_same_entry() {
    let mut hosts = three();
    hosts.elect(1);
    hosts.propose(1, "lease 10");
    hosts.settle();
    assert_eq!(hosts.host(1).armed.get(&ReplicaTimer::Deadline), Some(&Duration::from_millis(10)));
    assert!(!hosts.host(2).armed.contains_key(&ReplicaTimer::Deadline), "only a leader's time is the log's");
    hosts.pass(1, 10);
    hosts.fire(1, ReplicaTimer::Deadline);
    // On its way; nothing else is proposed before it is applied.
    hosts.pass(1, 1);
    assert!(!hosts.host(1).armed.contains_key(&ReplicaTimer::Deadline));
    hosts.settle();
    assert_eq!(blanks_with_time(&hosts, 1), [10_000]);
    for id in 1..=3 {
        assert_eq!(hosts.lines(id), ["lease 10", "expired"], "n{id}");
    }
    assert!(!hosts.host(1).armed.contains_key(&ReplicaTimer::Deadline), "nothing falls due any more");
}

#[test]
fn a_later_deadline_is_found_when_the_timer_fires_early() {
    // Goal: keep-alives arm nothing. Method: put the lease off; the old timer fires, finds it not due and looks again.
    let mut hosts = three();
    hosts.elect(1);
    hosts.propose(1, "lease 10");
    hosts.settle();
    hosts.pass(1, 4);
    hosts.propose(1, "keep 12");
    hosts.settle();
    assert_eq!(hosts.host(1).armed.get(&ReplicaTimer::Deadline), Some(&Duration::from_millis(10)), "as it was");
    hosts.pass(1, 6);
    hosts.fire(1, ReplicaTimer::Deadline);
    assert_eq!(blanks_with_time(&hosts, 1), [] as [u64; 0]);
    assert_eq!(
        hosts.host(1).armed.get(&ReplicaTimer::Deadline),
        Some(&Duration::from_millis(6)),
        "what is left of twelve"
    );
    hosts.pass(1, 6);
    hosts.fire(1, ReplicaTimer::Deadline);
    hosts.settle();
    assert_eq!(hosts.lines(2), ["lease 10", "keep 12", "expired"]);
}

#[test]
fn a_leader_change_lengthens_a_lease_and_never_shortens_it() {
    // Goal: ADR 3. Method: eight of ten milliseconds pass; the next leader heard of the lease one later.
    let mut hosts = three();
    hosts.elect(1);
    hosts.propose(1, "lease 10");
    hosts.settle();
    hosts.pass(1, 8);
    hosts.isolate(1);
    hosts.pass(2, 7);
    hosts.elect(2);
    assert_eq!(
        hosts.host(2).armed.get(&ReplicaTimer::Deadline),
        Some(&Duration::from_millis(3)),
        "one more than is left"
    );
    hosts.pass(2, 2);
    hosts.propose(2, "x");
    hosts.settle();
    assert_eq!(hosts.lines(3), ["lease 10", "x"]);
    hosts.pass(2, 1);
    hosts.propose(2, "y");
    hosts.settle();
    assert_eq!(hosts.lines(3), ["lease 10", "x", "expired", "y"]);
}

#[test]
fn leaders_that_change_faster_than_a_lease_runs_do_not_keep_it_alive() {
    // Goal: a lease ends when it is due. Method: nobody writes; each of many leaders hands over before the lease is due.
    let mut hosts = three();
    hosts.elect(1);
    hosts.propose(1, "lease 10");
    hosts.settle();
    for leader in [2, 3, 1, 2] {
        (1..=3).for_each(|id| hosts.pass(id, 3));
        hosts.elect(leader);
        hosts.settle();
    }
    if hosts.host(2).armed.contains_key(&ReplicaTimer::Deadline) {
        hosts.fire(2, ReplicaTimer::Deadline);
    }
    hosts.settle();
    for id in 1..=3 {
        assert_eq!(hosts.lines(id), ["lease 10", "expired"], "n{id}, twelve of its ten milliseconds later");
    }
}

#[test]
fn a_leader_writes_the_time_down_every_few_seconds_while_a_lease_lives() {
    // Goal: restarts of all members lose seconds and no more. Method: a lease of a minute; only the first timer fires.
    let mut hosts = three();
    hosts.elect(1);
    hosts.propose(1, "lease 60000");
    hosts.settle();
    assert_eq!(hosts.host(1).armed.get(&ReplicaTimer::Deadline), Some(&Duration::from_secs(5)));
    hosts.pass(1, 5_000);
    hosts.fire(1, ReplicaTimer::Deadline);
    hosts.settle();
    assert_eq!(blanks_with_time(&hosts, 1), [5_000_000]);
    assert_eq!(hosts.host(3).replica.machine().micros, 5_000_000);
}
