//! Stories of membership, transfer and snapshots: RM, RX, RS.

mod support;

use hustings_core::{
    Admin, Change, Cluster, Durable, Limits, MembershipChange, MembershipRefusal, NodeId, Outcome, Passage, Priority,
    Refusal, Role,
};
use hustings_raft::{Message, Options, Timer};
use std::collections::BTreeSet;
use support::{Theatre, Verbs as _, cast, one};

fn ids(numbers: &[u64]) -> BTreeSet<NodeId> {
    numbers.iter().copied().map(NodeId).collect()
}

fn explicitly(steps: impl IntoIterator<Item = Change>) -> MembershipChange {
    MembershipChange { steps: steps.into_iter().collect(), passage: Passage::JointExplicit }
}

/// A node that was added: it starts empty, with the founding membership, and hears the leader.
fn join(theatre: &mut Theatre, id: u64) {
    theatre.enter(id, Durable::default());
    let leader = theatre.leader();
    theatre.heartbeat(leader);
    theatre.heartbeat(leader);
}

#[test]
fn a_voter_is_added_directly_and_catches_up() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.propose(1, "x");
    theatre.change(1, &one(Change::AddVoter(NodeId(4))));
    join(&mut theatre, 4);
    assert_eq!(theatre.membership(4).voters, ids(&[1, 2, 3, 4]));
    assert_eq!(theatre.last(4), theatre.last(1));
}

#[test]
fn a_learner_decides_nothing_and_never_campaigns() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.change(1, &one(Change::AddLearner(NodeId(4))));
    join(&mut theatre, 4);
    assert_eq!(theatre.membership(4).learners, ids(&[4]));
    theatre.forget_freshness(4);
    theatre.fire(4, Timer::Election);
    assert_eq!(theatre.role(4), Role::Follower);
    theatre.isolate(2);
    theatre.cut(1, 3);
    let before = theatre.commit(1);
    theatre.propose(1, "x");
    assert_eq!(theatre.commit(1), before, "a learner's copy does not count");
}

#[test]
fn a_learner_is_promoted_only_when_it_has_caught_up() {
    // Goal: MB-07.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.change(1, &one(Change::AddLearner(NodeId(4))));
    let early = theatre.change(1, &one(Change::AddVoter(NodeId(4))));
    assert!(matches!(theatre.refusal(1, early), Some(Refusal::Membership(MembershipRefusal::NotReady, _))));
    join(&mut theatre, 4);
    let ready = theatre.change(1, &one(Change::AddVoter(NodeId(4))));
    assert_eq!(theatre.refusal(1, ready), None);
    assert_eq!(theatre.membership(1).voters, ids(&[1, 2, 3, 4]));
}

#[test]
fn a_learner_that_asked_for_a_vote_gets_it_once_it_has_caught_up() {
    // Goal: MB-06: a mistyped address costs no quorum; a right one leads to a vote without another command.
    let mut theatre = cast(3);
    theatre.elect(1);
    let member = hustings_core::Member { wants_vote: true, ..Default::default() };
    theatre.change(1, &MembershipChange::of([Change::AddLearner(NodeId(4)), Change::Describe(NodeId(4), member)]));
    assert_eq!(theatre.membership(1).voters, ids(&[1, 2, 3]));
    join(&mut theatre, 4);
    theatre.propose(1, "x");
    assert_eq!(theatre.membership(1).voters, ids(&[1, 2, 3, 4]));
    assert!(!theatre.membership(1).members[&NodeId(4)].wants_vote);
}

#[test]
fn a_learner_must_vote_once_it_may_be_needed() {
    // Goal: raft_learner_must_vote, RH-4. Voters 1, 2; learner 3 is promoted on {1, 2} and does not know; 1 dies.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.change(1, &one(Change::AddLearner(NodeId(3))));
    assert_eq!(theatre.membership(1).voters, ids(&[1, 2]));
    theatre.isolate(3);
    theatre.change(1, &one(Change::AddVoter(NodeId(3))));
    assert_eq!(theatre.membership(2).voters, ids(&[1, 2, 3]));
    theatre.heal();
    theatre.kill(1);
    theatre.fire(2, Timer::Election);
    theatre.settle();
    assert_eq!(theatre.leader(), 2);
    assert_eq!(theatre.membership(3).voters, ids(&[1, 2, 3]));
}

#[test]
fn one_change_at_a_time_and_none_before_the_first_own_commit() {
    // Goal: RM-1, RM-2, MB-01.
    let mut theatre = cast(3);
    theatre.keep_losing(|_, _, message| matches!(message, Message::Matched { .. }));
    theatre.elect(1);
    let early = theatre.change(1, &one(Change::AddLearner(NodeId(4))));
    assert_eq!(theatre.refusal(1, early), Some(Refusal::NotReady));
    theatre.lose_nothing();
    theatre.heartbeat(1);
    theatre.heartbeat(1);
    theatre.isolate(1);
    let first = theatre.change_quietly(1, &one(Change::AddLearner(NodeId(4))));
    let second = theatre.change_quietly(1, &one(Change::AddLearner(NodeId(5))));
    assert_eq!((theatre.refusal(1, first), theatre.refusal(1, second)), (None, Some(Refusal::MembershipPending)));
}

#[test]
fn ids_are_never_used_twice() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.change(1, &one(Change::AddLearner(NodeId(4))));
    theatre.change(1, &one(Change::Remove(NodeId(4))));
    let again = theatre.change(1, &one(Change::AddLearner(NodeId(4))));
    assert!(matches!(theatre.refusal(1, again), Some(Refusal::Membership(MembershipRefusal::Taken, _))));
    let stranger = theatre.change(1, &one(Change::Remove(NodeId(9))));
    assert!(matches!(theatre.refusal(1, stranger), Some(Refusal::Membership(MembershipRefusal::NotFound, _))));
}

#[test]
fn several_voters_change_jointly_and_the_joint_state_is_left_by_itself() {
    // Goal: confchange_v2_add_double_auto, RM-5.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.change(1, &MembershipChange::of([Change::AddVoter(NodeId(4)), Change::AddVoter(NodeId(5))]));
    for id in [4, 5] {
        theatre.enter(id, Durable::default());
    }
    for _ in 0..3 {
        theatre.heartbeat(1);
    }
    for id in 1..=5 {
        let membership = theatre.membership(id);
        assert_eq!((&membership.voters, membership.is_joint()), (&ids(&[1, 2, 3, 4, 5]), false), "n{id}");
    }
}

#[test]
fn an_explicit_joint_state_stays_until_it_is_left() {
    // Goal: confchange_v2_add_single_explicit.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.change(1, &explicitly([Change::AddLearner(NodeId(4))]));
    assert!(theatre.membership(2).is_joint());
    let other = theatre.change(1, &one(Change::AddLearner(NodeId(5))));
    assert!(matches!(theatre.refusal(1, other), Some(Refusal::Membership(MembershipRefusal::AlreadyJoint, _))));
    theatre.change(1, &MembershipChange::leave());
    assert!(!theatre.membership(2).is_joint());
    let again = theatre.change(1, &MembershipChange::leave());
    assert!(matches!(theatre.refusal(1, again), Some(Refusal::Membership(MembershipRefusal::NotJoint, _))));
}

#[test]
fn a_joint_decision_needs_both_majorities() {
    // Goal: RM-4. {1,2,3} and {1,4,5}: with 2 and 3 silent nothing commits, however many of the new ones answer.
    let mut theatre = cast(3);
    theatre.elect(1);
    let steps = [4, 5].map(|id| Change::AddVoter(NodeId(id))).into_iter();
    let steps = steps.chain([2, 3].map(|id| Change::Remove(NodeId(id))));
    theatre.change(1, &explicitly(steps));
    for id in [4, 5] {
        theatre.enter(id, Durable::default());
    }
    for _ in 0..3 {
        theatre.heartbeat(1);
    }
    let before = theatre.commit(1);
    theatre.isolate(2);
    theatre.cut(1, 3);
    theatre.propose(1, "x");
    assert_eq!(theatre.commit(1), before);
    theatre.heal();
    theatre.heartbeat(1);
    assert_eq!(theatre.commit(1), before + 1);
}

#[test]
fn the_leader_is_replaced_in_one_joint_change() {
    // Goal: raft_joint_replace_leader.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.change(1, &explicitly([Change::Remove(NodeId(1)), Change::AddVoter(NodeId(4))]));
    join(&mut theatre, 4);
    theatre.transfer(1, 4);
    theatre.settle();
    assert_eq!(theatre.leader(), 4);
    theatre.change(4, &MembershipChange::leave());
    theatre.heartbeat(4);
    assert_eq!(theatre.membership(4).voters, ids(&[2, 3, 4]));
    assert_eq!(theatre.membership(1).voters, ids(&[2, 3, 4]), "whoever is removed hears so");
    theatre.forget_freshness(1);
    theatre.fire(1, Timer::Election);
    assert_eq!(theatre.role(1), Role::Follower);
}

#[test]
fn a_removed_leader_hands_over_at_once() {
    // Goal: MB-04, RH-6.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.heartbeat(1);
    theatre.change(1, &one(Change::Remove(NodeId(1))));
    assert_ne!(theatre.leader(), 1);
    assert_eq!(theatre.membership(2).voters, ids(&[2, 3]));
}

#[test]
fn a_removed_node_disturbs_nobody() {
    // Goal: MB-05, RLV-2. Method: removed while partitioned; it comes back and asks.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(3);
    theatre.change(1, &one(Change::Remove(NodeId(3))));
    theatre.heal();
    let term = theatre.term(1);
    for _ in 0..10 {
        theatre.forget_freshness(3);
        theatre.fire(3, Timer::Election);
        theatre.settle();
    }
    assert_eq!((theatre.leader(), theatre.term(1), theatre.term(2)), (1, term, term));
}

#[test]
fn a_smaller_quorum_releases_a_waiting_read() {
    // Goal: RR-5, test_read_when_quorum_becomes_less.
    let mut theatre = cast(2);
    theatre.elect(1);
    theatre.change_quietly(1, &one(Change::Remove(NodeId(2))));
    let read = theatre.read(1, 1);
    let messages = theatre.take_messages();
    // Only the acknowledgement of the change arrives; the answers to the heartbeats are lost.
    for (from, to, message) in messages {
        if matches!(message, Message::Append { .. }) {
            theatre.deliver(from, to, message);
        }
    }
    theatre.settle();
    assert!(theatre.read_index(1, read).is_some());
}

// --- Transfer. ---------------------------------------------------------------------------------------------------

#[test]
fn leadership_goes_to_a_caught_up_follower_without_a_pre_vote() {
    let mut theatre = cast(3);
    theatre.elect(1);
    let ticket = theatre.transfer(1, 3);
    theatre.settle();
    assert_eq!((theatre.leader(), theatre.outcome(1, ticket)), (3, Some(&Outcome::Done)));
}

#[test]
fn a_candidate_steps_back_where_the_voters_changed_and_not_where_a_member_was_described() {
    // Goal: RV-9. Method: leadership is handed to n2. It holds a change that is committed, and learns of the commit by n3's vote.
    let described = Change::Describe(NodeId(3), hustings_core::Member { name: "c".into(), ..Default::default() });
    for (change, leader, expected) in
        [(MembershipChange::of([described]), Some(2), 3), (one(Change::AddVoter(NodeId(4))), None, 2)]
    {
        let mut theatre = cast(3);
        theatre.elect(1);
        theatre.keep_losing(|_, to, message| {
            to == 2 && matches!(message, Message::Commit { .. } | Message::Heartbeat { .. })
        });
        theatre.change(1, &change);
        assert_eq!((theatre.commit(2), theatre.commit(3)), (1, 2));
        theatre.transfer(1, 2);
        theatre.settle();
        assert_eq!((theatre.commit(2), theatre.term(2)), (expected, 2));
        assert_eq!(theatre.leaders().last().copied().filter(|id| *id == 2), leader);
    }
}

#[test]
fn a_lagging_target_is_brought_up_first_and_proposals_wait() {
    // Goal: raft_transfer_slow_then_timeout, first half.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(3);
    theatre.propose(1, "x");
    theatre.heal();
    theatre.transfer(1, 3);
    let refused = theatre.propose_quietly(1, "y");
    assert_eq!(theatre.refusal(1, refused), Some(Refusal::Transferring));
    theatre.heartbeat(1);
    assert_eq!((theatre.leader(), theatre.last(3)), (3, theatre.last(1)));
}

#[test]
fn a_dead_target_costs_one_timeout_and_the_leader_serves_on() {
    // Goal: EL-11, raft_transfer_slow_then_timeout, second half.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(3);
    let ticket = theatre.transfer(1, 3);
    theatre.fire(1, Timer::Transfer);
    assert_eq!(theatre.outcome(1, ticket), Some(&Outcome::Refused(Refusal::TransferTimedOut)));
    let accepted = theatre.propose(1, "x");
    assert_eq!((theatre.refusal(1, accepted), theatre.leader()), (None, 1));
}

#[test]
fn whoever_asked_for_a_hand_over_hears_of_it_even_if_nobody_leads_afterwards() {
    // Goal: a whole cluster is stopped at once. Method: the successor campaigns, deposes the old leader, and dies.
    let mut theatre = cast(3);
    theatre.elect(1);
    let ticket = theatre.transfer(1, 3);
    let orders = theatre.take_messages();
    for (from, to, message) in orders {
        theatre.deliver(from, to, message);
    }
    let requests = theatre.take_messages();
    for (from, to, message) in requests.into_iter().filter(|(_, to, _)| *to == 1) {
        theatre.deliver(from, to, message);
    }
    assert_eq!((theatre.role(1), theatre.leader_of(1)), (Role::Follower, None));
    theatre.kill(3);
    theatre.kill(2);
    theatre.fire(1, Timer::Transfer);
    assert_eq!(theatre.outcome(1, ticket), Some(&Outcome::Refused(Refusal::TransferTimedOut)));
}

#[test]
fn learners_strangers_and_itself_are_no_targets() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.change(1, &one(Change::AddLearner(NodeId(4))));
    for target in [4, 9] {
        let ticket = theatre.transfer(1, target);
        assert_eq!(theatre.outcome(1, ticket), Some(&Outcome::Refused(Refusal::BadTransferee(NodeId(target)))));
    }
    theatre.transfer(1, 1);
    assert_eq!(theatre.leader(), 1);
}

#[test]
fn removing_the_target_aborts_the_hand_over() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(3);
    theatre.change_quietly(1, &one(Change::Remove(NodeId(3))));
    let ticket = theatre.transfer(1, 3);
    theatre.settle();
    assert!(matches!(theatre.outcome(1, ticket), Some(Outcome::Refused(_))));
    let accepted = theatre.propose(1, "x");
    assert_eq!(theatre.refusal(1, accepted), None);
}

#[test]
fn resigning_picks_the_follower_that_holds_most() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(2);
    theatre.propose(1, "x");
    theatre.heal();
    theatre.admin(1, Admin::Resign);
    theatre.settle();
    assert_eq!(theatre.leader(), 3);
}

// --- Snapshots. --------------------------------------------------------------------------------------------------

fn compacting_theatre() -> Theatre {
    let limits = Limits { trailing_entries: 0, ..Limits::default() };
    Theatre::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default())
}

#[test]
fn a_peer_behind_the_log_fetches_a_snapshot_and_goes_on() {
    // Goal: slow_follower_after_compaction, raft_snapshot_via_append_response, RH-15.
    let mut theatre = compacting_theatre();
    theatre.elect(1);
    theatre.isolate(3);
    for text in ["a", "b"] {
        theatre.propose(1, text);
    }
    theatre.compact(1);
    theatre.heal();
    theatre.heartbeat(1);
    assert!(theatre.actor(3).fetching.is_some());
    theatre.finish_fetch(3);
    assert_eq!((theatre.commit(3), theatre.actor(3).restored.as_ref().map(|r| r.lsn)), (3, Some(theatre.last(1))));
    let progress = theatre.value(1).progress_of(NodeId(3)).expect("a peer");
    assert!(matches!(progress.pace, hustings_core::leading::Pace::Flow(_)), "without another write");
    theatre.propose(1, "c");
    assert_eq!(theatre.commit(3), 4);
}

#[test]
fn a_snapshot_that_cannot_be_had_is_offered_again() {
    let mut theatre = compacting_theatre();
    theatre.elect(1);
    theatre.isolate(3);
    theatre.propose(1, "a");
    theatre.compact(1);
    theatre.heal();
    theatre.heartbeat(1);
    let reference = theatre.actor_mut(3).fetching.take().expect("a fetch");
    theatre.input(3, hustings_core::Input::SnapshotFailed(reference));
    theatre.settle();
    theatre.propose(1, "b");
    theatre.compact(1);
    theatre.heartbeat(1);
    theatre.finish_fetch(3);
    assert_eq!(theatre.commit(3), theatre.commit(1));
}

#[test]
fn an_old_snapshot_is_ignored_and_a_node_that_installs_does_not_campaign() {
    // Goal: RS-1, RS-2.
    let mut theatre = compacting_theatre();
    theatre.elect(1);
    theatre.isolate(3);
    theatre.propose(1, "a");
    theatre.compact(1);
    theatre.heal();
    theatre.heartbeat(1);
    let reference = theatre.actor(3).fetching.clone().expect("a fetch");
    theatre.forget_freshness(3);
    theatre.fire(3, Timer::Election);
    assert_eq!(theatre.role(3), Role::Follower);
    theatre.finish_fetch(3);
    let before = theatre.terms(3);
    theatre.heartbeat(1);
    theatre.deliver(1, 3, Message::Snapshot { term: hustings_core::Term(theatre.term(1)), reference });
    theatre.settle();
    assert_eq!((theatre.terms(3), theatre.actor(3).fetching.is_none()), (before, true));
}

#[test]
fn a_newcomer_takes_a_snapshot_from_before_it_was_added() {
    // Goal: RS-1, refined. Method: the log below n4's addition is compacted, and the only snapshot is older than that.
    let mut theatre = compacting_theatre();
    theatre.elect(1);
    theatre.propose(1, "a");
    theatre.compact(1);
    theatre.change(1, &one(Change::AddLearner(NodeId(4))));
    join(&mut theatre, 4);
    assert!(theatre.actor(4).fetching.is_some(), "nothing newer can be had until the next one is cut");
    theatre.finish_fetch(4);
    assert_eq!((theatre.last(4), theatre.membership(4).learners.clone()), (theatre.last(1), ids(&[4])));
}

#[test]
fn a_node_is_reborn_from_its_snapshot_and_what_follows() {
    let mut theatre = compacting_theatre();
    theatre.elect(1);
    theatre.change(1, &one(Change::AddLearner(NodeId(4))));
    theatre.propose(1, "a");
    theatre.compact(1);
    theatre.propose(1, "b");
    let (last, membership) = (theatre.last(1), theatre.membership(1));
    theatre.restart(1);
    assert_eq!((theatre.last(1), theatre.membership(1)), (last, membership));
}

#[test]
fn one_simple_passage_is_enough_for_one_voter() {
    let change = MembershipChange { steps: vec![Change::AddVoter(NodeId(4))], passage: Passage::JointImplicit };
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.change(1, &change);
    assert!(!theatre.membership(1).is_joint(), "an implicit joint change leaves by itself");
    assert_eq!(theatre.membership(1).voters, ids(&[1, 2, 3, 4]));
}

#[test]
fn what_stands_behind_a_removal_commits_with_it() {
    // Goal: RM-8. Method: of two, n2 acknowledges its own removal and nothing behind it; n1 alone decides from then on.
    let mut theatre = cast(2);
    theatre.elect(1);
    theatre.change_quietly(1, &one(Change::Remove(NodeId(2))));
    theatre.propose_quietly(1, "behind");
    let first = theatre
        .take_messages()
        .into_iter()
        .find(|(_, to, message)| *to == 2 && matches!(message, Message::Append { entries, .. } if entries.len() == 1));
    let (from, to, message) = first.expect("the removal is sent before what comes behind it");
    theatre.deliver(from, to, message);
    theatre.settle();
    assert_eq!(theatre.membership(1).voters, ids(&[1]));
    assert_eq!(theatre.commit(1), theatre.last(1).index);
}

#[test]
fn the_last_voter_that_may_lead_stays() {
    // Goal: nothing is final that nobody could ever mend. Method: n2 and n3 must never lead, and say so.
    let mut theatre = cast(3);
    for id in [2, 3] {
        let never = Cluster { me: NodeId(id), priority: Priority::Never, ..Cluster::of(3, 1) };
        theatre.enter_as(never, Durable::default());
    }
    theatre.elect(1);
    theatre.heartbeat(1);
    let refused = theatre.change(1, &one(Change::Remove(NodeId(1))));
    assert!(matches!(theatre.refusal(1, refused), Some(Refusal::Membership(MembershipRefusal::NoVoters, _))));
    let fine = theatre.change(1, &one(Change::Remove(NodeId(3))));
    assert_eq!(theatre.refusal(1, fine), None);
}

#[test]
fn a_single_voter_that_must_never_lead_starts_and_follows() {
    let never = Cluster { priority: Priority::Never, ..Cluster::of(1, 1) };
    let mut theatre = Theatre::new(never, Options::default());
    theatre.fire(1, Timer::Election);
    theatre.settle();
    assert_eq!(theatre.role(1), Role::Follower);
}
