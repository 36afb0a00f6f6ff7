//! Stories of a node that has more to apply than one turn allows. Goal: everybody else has a turn between two slices, and nobody sees
//! anything but the order of the log. Method: slices of one command.

mod hosts;

use hosts::{Ended, Hosts};
use hustings_core::replica::Policy;
use hustings_core::{Cluster, Limits};

/// Three nodes of which n2 lacks five commands, hears of all of them at once, and applies one in a turn.
fn behind(policy: Policy) -> Hosts {
    let limits = Limits { trailing_entries: 0, ..Limits::default() };
    let mut hosts = Hosts::new(Cluster { limits, ..Cluster::of(3, 1) }, Policy { slice_cost: 1, ..policy });
    hosts.elect(1);
    hosts.isolate(2);
    for text in ["a", "b", "c", "d", "e"] {
        hosts.propose(1, text);
        hosts.settle();
    }
    hosts.heal();
    hosts.slow_down(2);
    hosts
}

fn hears_of_all(hosts: &mut Hosts) {
    for _ in 0..3 {
        hosts.heartbeat(1);
    }
}

#[test]
fn what_is_committed_is_applied_in_order_and_a_slice_in_a_turn() {
    let mut hosts = behind(Policy::default());
    hears_of_all(&mut hosts);
    assert_eq!(hosts.lines(2), ["a"]);
    let read = hosts.read(2);
    hosts.settle();
    // A later command stands behind those that wait.
    hosts.propose(1, "f");
    hosts.settle();
    hosts.heartbeat(1);
    for applied in 2..=6 {
        assert!(hosts.host(2).replica.is_behind() && hosts.lines(2).len() == applied - 1);
        hosts.slice(2);
        let is_read = hosts.host(2).reads.contains_key(&read);
        assert!(hosts.lines(2).len() == applied && is_read == (applied >= 5), "{applied}: {is_read}");
    }
    assert_eq!(hosts.lines(2), ["a", "b", "c", "d", "e", "f"]);
    assert!(!hosts.host(2).replica.is_behind());
    let seen = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
    assert_eq!(hosts.host(2).reads[&read], [Ended::Saw(seen)]);
}

#[test]
fn one_that_is_behind_may_become_leader_and_answers_what_it_has_applied() {
    // Goal: a leader that applies late loses and doubles nothing. Method: n2 is elected while it is behind.
    let mut hosts = behind(Policy::default());
    hears_of_all(&mut hosts);
    hosts.elect(2);
    let mine = hosts.propose(2, "mine");
    hosts.settle();
    assert!(hosts.outcome(2, mine).is_none(), "it is committed, and not applied here");
    while hosts.host(2).replica.is_behind() {
        hosts.slice(2);
    }
    assert_eq!(hosts.outcome(2, mine), Some(Ended::Applied));
    hosts.heartbeat(2);
    for id in 1..=3 {
        assert_eq!(hosts.lines(id), ["a", "b", "c", "d", "e", "mine"], "n{id}");
    }
}

#[test]
fn a_snapshot_comes_to_one_that_is_behind_and_what_follows_it_waits() {
    // Goal: a snapshot replaces the state only when all before it is applied, or is in it. Method: n2 is behind when it gets one
    // that holds all of it; two commands follow.
    let mut hosts = behind(Policy { entries_max: 2, ..Policy::default() });
    hosts.finish_cut(1);
    hears_of_all(&mut hosts);
    for text in ["f", "g"] {
        hosts.propose(1, text);
        hosts.settle();
        hosts.heartbeat(1);
    }
    for _ in 0..8 {
        hosts.slice(2);
        hosts.settle();
    }
    assert!(!hosts.host(2).replica.is_behind());
    assert_eq!(hosts.lines(2), ["a", "b", "c", "d", "e", "f", "g"]);
}
