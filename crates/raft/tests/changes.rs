//! Stories of changes of membership that pass through `hustings_core::Replica`: what a client hears is true of its change.

mod hosts;

use hosts::{Ended, Said, cutting, is_forward, three};
use hustings_core::replica::{ReplicaMessage, ReplicaTimer};
use hustings_core::{Change, Entry, EntryKind, Lsn, MembershipChange, NodeId, Origin, Passage, Refusal, Wire};
use hustings_raft::Message;

#[test]
fn a_change_of_membership_is_never_sent_again_and_ends_unknown() {
    // Goal: what cannot be told from a second copy. Method: the forward is lost; timers fire; a new leader comes.
    let mut hosts = three();
    hosts.elect(1);
    let change = MembershipChange::of([Change::AddLearner(NodeId(4))]);
    let request = hosts.change(2, &change);
    let command = hosts.propose(2, "x");
    hosts.bag.clear();
    for _ in 0..3 {
        hosts.fire(2, ReplicaTimer::Retry);
    }
    hosts.bag.clear();
    assert_eq!(hosts.outcome(2, request), None, "the leader lives, and may have it");
    hosts.isolate(1);
    hosts.elect(3);
    assert_eq!((hosts.outcome(2, request), hosts.outcome(2, command)), (Some(Ended::Unknown), Some(Ended::Applied)));
    let times = hosts.sent.iter().filter(|(_, _, said)| carries(said, &change)).count();
    assert_eq!(times, 1, "once, to the leader that is gone");
    assert!(!hosts.host(3).replica.membership().has(NodeId(4)));
}

fn carries(said: &Said, change: &MembershipChange) -> bool {
    let ReplicaMessage::Forward { requests, .. } = said else { return false };
    requests.iter().any(|request| request.kind == EntryKind::Membership && request.payload == change.to_bytes())
}

#[test]
fn a_change_that_no_leader_has_seen_waits_for_the_first() {
    let mut hosts = three();
    let request = hosts.change(2, &MembershipChange::of([Change::AddLearner(NodeId(4))]));
    hosts.elect(1);
    hosts.heartbeat(1);
    // The new leader was not ready for it at once; then it was.
    while hosts.outcome(2, request).is_none() {
        hosts.fire(2, ReplicaTimer::Retry);
        hosts.settle();
    }
    assert_eq!(hosts.outcome(2, request), Some(Ended::Reconfigured));
    assert!(hosts.host(2).replica.membership().is_learner(NodeId(4)));
}

#[test]
fn a_refusal_reaches_the_client_behind_the_follower() {
    let mut hosts = three();
    hosts.elect(1);
    let request = hosts.change(2, &MembershipChange::of([Change::Remove(NodeId(9))]));
    hosts.settle();
    assert!(matches!(hosts.outcome(2, request), Some(Ended::Refused(Refusal::Membership(..)))));
}

#[test]
fn a_change_that_can_no_longer_be_made_when_it_is_applied_is_not_told_as_made() {
    // Goal: Reconfigured is true. Method: the leader has written a change that begins a joint phase, and n2's behind it.
    let mut hosts = three();
    hosts.elect(1);
    hosts.settle();
    let joint = MembershipChange { steps: vec![Change::AddVoter(NodeId(4))], passage: Passage::JointExplicit };
    let late = MembershipChange::of([Change::AddLearner(NodeId(5))]);
    let request = hosts.change(2, &late);
    hosts.bag.clear();
    let status = hosts.host(1).replica.status();
    let (term, previous) = (status.term, status.last);
    let written = |offset: u64, node: u64, sequence: u64, change: &MembershipChange| Entry {
        kind: EntryKind::Membership,
        origin: Origin { node: NodeId(node), incarnation: 1, sequence },
        payload: change.to_bytes(),
        ..Entry::blank(Lsn { term, index: previous.index + offset })
    };
    let entries = vec![written(1, 1, 70, &joint), written(2, 2, request, &late)];
    let append = Message::Append { term, previous, entries, commit: previous.index + 2 };
    hosts.deliver(1, 2, ReplicaMessage::Protocol(append));
    assert_eq!(hosts.outcome(2, request), Some(Ended::Unknown));
    let membership = hosts.host(2).replica.membership();
    assert!(membership.is_voter(NodeId(4)) && !membership.has(NodeId(5)), "the first holds alone: {membership:?}");
}

#[test]
fn a_copy_of_a_forwarded_change_is_answered_by_nobody() {
    // Goal: Refused is definite. Method: the network delivers n2's change twice; the second copy comes while the first is under
    // way, and a third when it is done, before n2 has heard of that.
    let mut hosts = three();
    hosts.elect(1);
    let request = hosts.change(2, &MembershipChange::of([Change::AddLearner(NodeId(4))]));
    let copy = hosts.bag.iter().find(|(_, _, said)| is_forward(said)).cloned().expect("a forward");
    hosts.deliver(copy.0, copy.1, copy.2.clone());
    hosts.deliver(copy.0, copy.1, copy.2.clone());
    hosts.isolate(2);
    hosts.settle();
    hosts.heal();
    hosts.deliver(copy.0, copy.1, copy.2);
    hosts.heartbeat(1);
    hosts.heartbeat(1);
    assert!(matches!(hosts.outcome(2, request), Some(Ended::Reconfigured)), "{:?}", hosts.outcome(2, request));
}

#[test]
fn a_change_that_came_back_inside_a_snapshot_may_have_been_made() {
    let mut hosts = cutting();
    hosts.elect(1);
    let request = hosts.change(3, &MembershipChange::of([Change::AddLearner(NodeId(4))]));
    hosts.forward_comes_back_inside_a_snapshot(3, 1);
    assert_eq!(hosts.outcome(3, request), Some(Ended::Unknown));
}
