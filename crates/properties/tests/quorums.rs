//! Goal: every node that is named in a quorum had it on disk, by the protocol's own quorums. Method: histories told by hand.

use hustings_core::quorum::Quorums;
use hustings_core::{Durable, Entry, Lsn, Membership, NodeId, Promise, Reason, Record, Role, Status, Term, Transition};
use hustings_properties::{Chronicle, Rules, Violation};
use std::sync::Arc;

const END: Lsn = Lsn::new(1, 1);

/// The first of so many voters leads, and says that the entry is committed.
fn leader_of(voters: u64) -> Status {
    Status {
        role: Role::Leader,
        term: Term(1),
        leader: Some(NodeId(1)),
        last: END,
        commit: 1,
        first_index: 1,
        is_suspended: false,
        membership: Arc::new(Membership::of_voters((1..=voters).map(NodeId))),
    }
}

/// The first `holders` of five members have the entry on disk, and the first says that it is committed.
fn committed_by(quorums: Quorums, holders: u64) -> Result<(), Violation> {
    let mut chronicle = Chronicle::new(Rules { quorums, ..Rules::default() });
    for node in (1..=holders).map(NodeId) {
        chronicle.on_record(node, 1, &Record::Put(Entry::blank(END)))?;
        chronicle.on_durable(node, 1);
    }
    chronicle.on_status(NodeId(1), &leader_of(5), None)
}

fn property(verdict: Result<(), Violation>) -> Option<&'static str> {
    verdict.err().map(|violation| violation.property)
}

#[test]
fn what_is_committed_stands_on_as_many_disks_as_accept() {
    let two_of_five = Quorums::Flexible { promise: 4, accept: 2 };
    assert_eq!(property(committed_by(two_of_five, 2)), None);
    assert_eq!(property(committed_by(two_of_five, 1)), Some("commit-on-quorum"));
    assert_eq!(property(committed_by(Quorums::Majority, 3)), None);
    assert_eq!(property(committed_by(Quorums::Majority, 2)), Some("commit-on-quorum"));
}

/// n1 comes to lead term 2, because of this; n2 has what its disk was told of.
fn led_because(because: Reason, on_disk_of_n2: u64) -> Option<&'static str> {
    let mut chronicle = Chronicle::new(Rules::default());
    for node in [NodeId(1), NodeId(2)] {
        chronicle.on_record(node, 1, &Record::Put(Entry::blank(END))).expect("all hold the same");
        let promise = Record::Promise(Promise::without_vote(Term(2)));
        chronicle.on_record(node, 2, &promise).expect("terms grow");
    }
    chronicle.on_durable(NodeId(1), 2);
    chronicle.on_durable(NodeId(2), on_disk_of_n2);
    let (node, term, leader, lsn) = (NodeId(1), Term(2), Some(NodeId(1)), END);
    let transition = Transition { node, from: Role::Candidate, to: Role::Synchronizing, term, leader, lsn, because };
    property(chronicle.on_transition(&transition))
}

#[test]
fn whoever_is_said_to_have_promised_has_it_on_disk() {
    let both = || Reason::Promised(vec![NodeId(1), NodeId(2)]);
    assert_eq!(led_because(both(), 2), None);
    assert_eq!(led_because(both(), 1), Some("votes-are-durable"));
}

#[test]
fn whoever_is_said_to_hold_the_history_has_it_on_disk() {
    let both = || Reason::Synchronized(vec![NodeId(1), NodeId(2)]);
    assert_eq!(led_because(both(), 1), None);
    assert_eq!(led_because(both(), 0), Some("history-is-durable"));
}

/// Three members, of which n2 and n3 were given new disks; whoever of them has the entry on disk by then, and afterwards, is told.
/// What is violated when n1 says that it is committed.
fn committed_beside_new_disks(before: &[u64], afterwards: &[u64]) -> Option<&'static str> {
    let mut chronicle = Chronicle::new(Rules::default());
    let write = |chronicle: &mut Chronicle, node: u64| {
        chronicle.on_record(NodeId(node), 1, &Record::Put(Entry::blank(END))).expect("all hold the same");
        chronicle.on_durable(NodeId(node), 1);
    };
    write(&mut chronicle, 1);
    before.iter().for_each(|node| write(&mut chronicle, *node));
    chronicle.on_wiped(NodeId(2));
    chronicle.on_wiped(NodeId(3));
    afterwards.iter().for_each(|node| write(&mut chronicle, *node));
    property(chronicle.on_status(NodeId(1), &leader_of(3), None))
}

/// Goal: a disk that was lost excuses what its member had said by then, and nothing that it says since. Method: two of three lose theirs,
/// and the third commits: by the word of one that held the entry then, of one that holds it now, and of nobody.
#[test]
fn a_disk_that_was_lost_excuses_nothing_that_comes_after_it() {
    assert_eq!(committed_beside_new_disks(&[2], &[]), None);
    assert_eq!(committed_beside_new_disks(&[], &[3]), None);
    assert_eq!(committed_beside_new_disks(&[], &[]), Some("commit-on-quorum"));
}

/// Goal: a disk that has damaged what was on it may bring back less, once that is known to be so; another one may not. Method: a member
/// that comes back with nothing.
#[test]
fn only_a_damaged_disk_may_bring_back_less() {
    let come_back = |is_damaged: bool| {
        let mut chronicle = Chronicle::new(Rules::default());
        chronicle.on_record(NodeId(1), 1, &Record::Put(Entry::blank(END))).expect("it is alone");
        chronicle.on_durable(NodeId(1), 1);
        if is_damaged {
            chronicle.excuse(NodeId(1));
        }
        property(chronicle.on_restart(NodeId(1), &Durable::default()))
    };
    assert_eq!(come_back(false), Some("durable-survives"));
    assert_eq!(come_back(true), None);
}
