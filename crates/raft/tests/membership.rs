//! Stories of membership, transfer and snapshots: RM, RX, RS.

mod support;

use hustings_core::{
    Admin, Change, Cluster, MembershipChange, MembershipRefusal, NodeId, Outcome, Passage, Priority, Refusal, Role,
};
use hustings_raft::{Message, Options, Timer};
use support::{Stage, add_learner, add_voter, explicitly, history, ids, membership_of, remove, stage};

/// A node that was added: it starts empty, with the founding membership, and hears the leader.
fn join(stage: &mut Stage, id: u64) {
    let cluster = hustings_core::Cluster { me: NodeId(id), ..hustings_core::Cluster::of(3, 1) };
    stage.start_as(id, cluster, history(0, None, &[]));
    let leader = stage.leader();
    stage.heartbeat(leader);
    stage.heartbeat(leader);
}

#[test]
fn a_voter_is_added_directly_and_catches_up() {
    let mut stage = stage(3);
    stage.elect(1);
    stage.propose(1, "x");
    stage.change(1, add_voter(4));
    join(&mut stage, 4);
    assert_eq!(membership_of(&stage, 4).voters, ids(&[1, 2, 3, 4]));
    assert_eq!(stage.last(4), stage.last(1));
}

#[test]
fn a_learner_decides_nothing_and_never_campaigns() {
    let mut stage = stage(3);
    stage.elect(1);
    stage.change(1, add_learner(4));
    join(&mut stage, 4);
    assert_eq!(membership_of(&stage, 4).learners, ids(&[4]));
    stage.forget_freshness(4);
    stage.fire(4, Timer::Election);
    assert_eq!(stage.role(4), Role::Follower);
    stage.isolate(2);
    stage.cut(1, 3);
    let before = stage.commit(1);
    stage.propose(1, "x");
    assert_eq!(stage.commit(1), before, "a learner's copy does not count");
}

#[test]
fn a_learner_is_promoted_only_when_it_has_caught_up() {
    // Goal: MB-07.
    let mut stage = stage(3);
    stage.elect(1);
    stage.change(1, add_learner(4));
    let early = stage.change(1, add_voter(4));
    assert!(matches!(stage.refusal(1, early), Some(Refusal::Membership(MembershipRefusal::NotReady, _))));
    join(&mut stage, 4);
    let ready = stage.change(1, add_voter(4));
    assert_eq!(stage.refusal(1, ready), None);
    assert_eq!(membership_of(&stage, 1).voters, ids(&[1, 2, 3, 4]));
}

#[test]
fn a_learner_that_asked_for_a_vote_gets_it_once_it_has_caught_up() {
    // Goal: MB-06: a mistyped address costs no quorum; a right one leads to a vote without another command.
    let mut stage = stage(3);
    stage.elect(1);
    let member = hustings_core::Member { wants_vote: true, ..Default::default() };
    stage.change(1, MembershipChange::of([Change::AddLearner(NodeId(4)), Change::Describe(NodeId(4), member)]));
    assert_eq!(membership_of(&stage, 1).voters, ids(&[1, 2, 3]));
    join(&mut stage, 4);
    stage.propose(1, "x");
    assert_eq!(membership_of(&stage, 1).voters, ids(&[1, 2, 3, 4]));
    assert!(!membership_of(&stage, 1).members[&NodeId(4)].wants_vote);
}

#[test]
fn a_learner_must_vote_once_it_may_be_needed() {
    // Goal: raft_learner_must_vote, RH-4. Voters 1, 2; learner 3 is promoted on {1, 2} and does not know; 1 dies.
    let mut stage = stage(3);
    stage.elect(1);
    stage.change(1, MembershipChange::of([Change::AddLearner(NodeId(3))]));
    assert_eq!(membership_of(&stage, 1).voters, ids(&[1, 2]));
    stage.isolate(3);
    stage.change(1, add_voter(3));
    assert_eq!(membership_of(&stage, 2).voters, ids(&[1, 2, 3]));
    stage.heal();
    stage.kill(1);
    stage.fire(2, Timer::Election);
    stage.settle();
    assert_eq!(stage.leader(), 2);
    assert_eq!(membership_of(&stage, 3).voters, ids(&[1, 2, 3]));
}

#[test]
fn one_change_at_a_time_and_none_before_the_first_own_commit() {
    // Goal: RM-1, RM-2, MB-01.
    let mut stage = stage(3);
    stage.lose(|_, _, message| matches!(message, Message::Matched { .. }));
    stage.elect(1);
    let early = stage.change(1, add_learner(4));
    assert_eq!(stage.refusal(1, early), Some(Refusal::NotReady));
    stage.lose_nothing();
    stage.heartbeat(1);
    stage.heartbeat(1);
    stage.isolate(1);
    let first = stage.change_quietly(1, add_learner(4));
    let second = stage.change_quietly(1, add_learner(5));
    assert_eq!((stage.refusal(1, first), stage.refusal(1, second)), (None, Some(Refusal::MembershipPending)));
}

#[test]
fn ids_are_never_used_twice() {
    let mut stage = stage(3);
    stage.elect(1);
    stage.change(1, add_learner(4));
    stage.change(1, remove(4));
    let again = stage.change(1, add_learner(4));
    assert!(matches!(stage.refusal(1, again), Some(Refusal::Membership(MembershipRefusal::Taken, _))));
    let stranger = stage.change(1, remove(9));
    assert!(matches!(stage.refusal(1, stranger), Some(Refusal::Membership(MembershipRefusal::NotFound, _))));
}

#[test]
fn several_voters_change_jointly_and_the_joint_state_is_left_by_itself() {
    // Goal: confchange_v2_add_double_auto, RM-5.
    let mut stage = stage(3);
    stage.elect(1);
    stage.change(1, MembershipChange::of([Change::AddVoter(NodeId(4)), Change::AddVoter(NodeId(5))]));
    for id in [4, 5] {
        let cluster = hustings_core::Cluster { me: NodeId(id), ..hustings_core::Cluster::of(3, 1) };
        stage.start_as(id, cluster, history(0, None, &[]));
    }
    for _ in 0..3 {
        stage.heartbeat(1);
    }
    for id in 1..=5 {
        let membership = membership_of(&stage, id);
        assert_eq!((&membership.voters, membership.is_joint()), (&ids(&[1, 2, 3, 4, 5]), false), "n{id}");
    }
}

#[test]
fn an_explicit_joint_state_stays_until_it_is_left() {
    // Goal: confchange_v2_add_single_explicit.
    let mut stage = stage(3);
    stage.elect(1);
    stage.change(1, explicitly([Change::AddLearner(NodeId(4))]));
    assert!(membership_of(&stage, 2).is_joint());
    let other = stage.change(1, add_learner(5));
    assert!(matches!(stage.refusal(1, other), Some(Refusal::Membership(MembershipRefusal::AlreadyJoint, _))));
    stage.change(1, MembershipChange::leave());
    assert!(!membership_of(&stage, 2).is_joint());
    let again = stage.change(1, MembershipChange::leave());
    assert!(matches!(stage.refusal(1, again), Some(Refusal::Membership(MembershipRefusal::NotJoint, _))));
}

#[test]
fn a_joint_decision_needs_both_majorities() {
    // Goal: RM-4. {1,2,3} and {1,4,5}: with 2 and 3 silent nothing commits, however many of the new ones answer.
    let mut stage = stage(3);
    stage.elect(1);
    let steps = [4, 5].map(|id| Change::AddVoter(NodeId(id))).into_iter();
    let steps = steps.chain([2, 3].map(|id| Change::Remove(NodeId(id))));
    stage.change(1, explicitly(steps));
    for id in [4, 5] {
        let cluster = hustings_core::Cluster { me: NodeId(id), ..hustings_core::Cluster::of(3, 1) };
        stage.start_as(id, cluster, history(0, None, &[]));
    }
    for _ in 0..3 {
        stage.heartbeat(1);
    }
    let before = stage.commit(1);
    stage.isolate(2);
    stage.cut(1, 3);
    stage.propose(1, "x");
    assert_eq!(stage.commit(1), before);
    stage.heal();
    stage.heartbeat(1);
    assert_eq!(stage.commit(1), before + 1);
}

#[test]
fn the_leader_is_replaced_in_one_joint_change() {
    // Goal: raft_joint_replace_leader.
    let mut stage = stage(3);
    stage.elect(1);
    stage.change(1, explicitly([Change::Remove(NodeId(1)), Change::AddVoter(NodeId(4))]));
    join(&mut stage, 4);
    stage.transfer(1, 4);
    stage.settle();
    assert_eq!(stage.leader(), 4);
    stage.change(4, MembershipChange::leave());
    stage.heartbeat(4);
    assert_eq!(membership_of(&stage, 4).voters, ids(&[2, 3, 4]));
    assert_eq!(membership_of(&stage, 1).voters, ids(&[2, 3, 4]), "whoever is removed hears so");
    stage.forget_freshness(1);
    stage.fire(1, Timer::Election);
    assert_eq!(stage.role(1), Role::Follower);
}

#[test]
fn a_removed_leader_hands_over_at_once() {
    // Goal: MB-04, RH-6.
    let mut stage = stage(3);
    stage.elect(1);
    stage.heartbeat(1);
    stage.change(1, remove(1));
    assert_ne!(stage.leader(), 1);
    assert_eq!(membership_of(&stage, 2).voters, ids(&[2, 3]));
}

#[test]
fn a_removed_node_disturbs_nobody() {
    // Goal: MB-05, RLV-2. Method: removed while partitioned; it comes back and asks.
    let mut stage = stage(3);
    stage.elect(1);
    stage.isolate(3);
    stage.change(1, remove(3));
    stage.heal();
    let term = stage.term(1);
    for _ in 0..10 {
        stage.forget_freshness(3);
        stage.fire(3, Timer::Election);
        stage.settle();
    }
    assert_eq!((stage.leader(), stage.term(1), stage.term(2)), (1, term, term));
}

#[test]
fn a_smaller_quorum_releases_a_waiting_read() {
    // Goal: RR-5, test_read_when_quorum_becomes_less.
    let mut stage = stage(2);
    stage.elect(1);
    stage.change_quietly(1, remove(2));
    let read = stage.read(1, 1);
    let messages = stage.take_messages();
    // Only the acknowledgement of the change arrives; the answers to the heartbeats are lost.
    for (from, to, message) in messages {
        if matches!(message, Message::Append { .. }) {
            stage.deliver(from, to, message);
        }
    }
    stage.settle();
    assert!(stage.read_index(1, read).is_some());
}

// --- Transfer. ---------------------------------------------------------------------------------------------------

#[test]
fn leadership_goes_to_a_caught_up_follower_without_a_pre_vote() {
    let mut stage = stage(3);
    stage.elect(1);
    let ticket = stage.transfer(1, 3);
    stage.settle();
    assert_eq!((stage.leader(), stage.outcome(1, ticket)), (3, Some(&Outcome::Done)));
}

#[test]
fn a_candidate_steps_back_where_the_voters_changed_and_not_where_a_member_was_described() {
    // Goal: RV-9. Method: leadership is handed to n2. It holds a change that is committed, and learns of the commit by n3's vote.
    let described = Change::Describe(NodeId(3), hustings_core::Member { name: "c".into(), ..Default::default() });
    for (change, leader, expected) in [(MembershipChange::of([described]), Some(2), 3), (add_voter(4), None, 2)] {
        let mut stage = stage(3);
        stage.elect(1);
        stage.lose(|_, to, message| to == 2 && matches!(message, Message::Commit { .. } | Message::Heartbeat { .. }));
        stage.change(1, change);
        assert_eq!((stage.commit(2), stage.commit(3)), (1, 2));
        stage.transfer(1, 2);
        stage.settle();
        assert_eq!((stage.commit(2), stage.term(2)), (expected, 2));
        assert_eq!(stage.leaders().last().copied().filter(|id| *id == 2), leader);
    }
}

#[test]
fn a_lagging_target_is_brought_up_first_and_proposals_wait() {
    // Goal: raft_transfer_slow_then_timeout, first half.
    let mut stage = stage(3);
    stage.elect(1);
    stage.isolate(3);
    stage.propose(1, "x");
    stage.heal();
    stage.transfer(1, 3);
    let refused = stage.propose_quietly(1, "y");
    assert_eq!(stage.refusal(1, refused), Some(Refusal::Transferring));
    stage.heartbeat(1);
    assert_eq!((stage.leader(), stage.last(3)), (3, stage.last(1)));
}

#[test]
fn a_dead_target_costs_one_timeout_and_the_leader_serves_on() {
    // Goal: EL-11, raft_transfer_slow_then_timeout, second half.
    let mut stage = stage(3);
    stage.elect(1);
    stage.isolate(3);
    let ticket = stage.transfer(1, 3);
    stage.fire(1, Timer::Transfer);
    assert_eq!(stage.outcome(1, ticket), Some(&Outcome::Refused(Refusal::TransferTimedOut)));
    let accepted = stage.propose(1, "x");
    assert_eq!((stage.refusal(1, accepted), stage.leader()), (None, 1));
}

#[test]
fn whoever_asked_for_a_hand_over_hears_of_it_even_if_nobody_leads_afterwards() {
    // Goal: a whole cluster is stopped at once. Method: the successor campaigns, deposes the old leader, and dies.
    let mut stage = stage(3);
    stage.elect(1);
    let ticket = stage.transfer(1, 3);
    let orders = stage.take_messages();
    for (from, to, message) in orders {
        stage.deliver(from, to, message);
    }
    let requests = stage.take_messages();
    for (from, to, message) in requests.into_iter().filter(|(_, to, _)| *to == 1) {
        stage.deliver(from, to, message);
    }
    assert_eq!((stage.role(1), stage.leader_of(1)), (Role::Follower, None));
    stage.kill(3);
    stage.kill(2);
    stage.fire(1, Timer::Transfer);
    assert_eq!(stage.outcome(1, ticket), Some(&Outcome::Refused(Refusal::TransferTimedOut)));
}

#[test]
fn learners_strangers_and_itself_are_no_targets() {
    let mut stage = stage(3);
    stage.elect(1);
    stage.change(1, add_learner(4));
    for target in [4, 9] {
        let ticket = stage.transfer(1, target);
        assert_eq!(stage.outcome(1, ticket), Some(&Outcome::Refused(Refusal::BadTransferee(NodeId(target)))));
    }
    stage.transfer(1, 1);
    assert_eq!(stage.leader(), 1);
}

#[test]
fn removing_the_target_aborts_the_hand_over() {
    let mut stage = stage(3);
    stage.elect(1);
    stage.isolate(3);
    stage.change_quietly(1, remove(3));
    let ticket = stage.transfer(1, 3);
    stage.settle();
    assert!(matches!(stage.outcome(1, ticket), Some(Outcome::Refused(_))));
    let accepted = stage.propose(1, "x");
    assert_eq!(stage.refusal(1, accepted), None);
}

#[test]
fn resigning_picks_the_follower_that_holds_most() {
    let mut stage = stage(3);
    stage.elect(1);
    stage.isolate(2);
    stage.propose(1, "x");
    stage.heal();
    stage.admin(1, 7, Admin::Resign);
    stage.settle();
    assert_eq!(stage.leader(), 3);
}

// --- Snapshots. --------------------------------------------------------------------------------------------------

fn compacting_stage() -> Stage {
    let limits = hustings_core::Limits { trailing_entries: 0, ..Default::default() };
    Stage::new(hustings_core::Cluster { limits, ..hustings_core::Cluster::of(3, 1) }, Default::default())
}

#[test]
fn a_peer_behind_the_log_fetches_a_snapshot_and_goes_on() {
    // Goal: slow_follower_after_compaction, raft_snapshot_via_append_response, RH-15.
    let mut stage = compacting_stage();
    stage.elect(1);
    stage.isolate(3);
    for text in ["a", "b"] {
        stage.propose(1, text);
    }
    stage.compact(1);
    stage.heal();
    stage.heartbeat(1);
    assert!(stage.member(3).fetching.is_some());
    stage.finish_fetch(3);
    stage.settle();
    assert_eq!((stage.commit(3), stage.member(3).restored.as_ref().map(|r| r.lsn)), (3, Some(stage.last(1))));
    let progress = stage.raft(1).progress_of(NodeId(3)).expect("a peer");
    assert!(matches!(progress.pace, hustings_core::leading::Pace::Flow(_)), "without another write");
    stage.propose(1, "c");
    assert_eq!(stage.commit(3), 4);
}

#[test]
fn a_snapshot_that_cannot_be_had_is_offered_again() {
    let mut stage = compacting_stage();
    stage.elect(1);
    stage.isolate(3);
    stage.propose(1, "a");
    stage.compact(1);
    stage.heal();
    stage.heartbeat(1);
    let (_, reference) = stage.members.get_mut(&3).expect("a member").fetching.take().expect("a fetch");
    stage.input(3, hustings_core::Input::SnapshotFailed(reference));
    stage.settle();
    stage.propose(1, "b");
    stage.compact(1);
    stage.heartbeat(1);
    stage.finish_fetch(3);
    stage.settle();
    assert_eq!(stage.commit(3), stage.commit(1));
}

#[test]
fn an_old_snapshot_is_ignored_and_a_node_that_installs_does_not_campaign() {
    // Goal: RS-1, RS-2.
    let mut stage = compacting_stage();
    stage.elect(1);
    stage.isolate(3);
    stage.propose(1, "a");
    stage.compact(1);
    stage.heal();
    stage.heartbeat(1);
    let (_, reference) = stage.member(3).fetching.clone().expect("a fetch");
    stage.forget_freshness(3);
    stage.fire(3, Timer::Election);
    assert_eq!(stage.role(3), Role::Follower);
    stage.finish_fetch(3);
    stage.settle();
    let before = stage.terms(3);
    stage.heartbeat(1);
    stage.deliver(1, 3, Message::Snapshot { term: hustings_core::Term(stage.term(1)), reference });
    stage.settle();
    assert_eq!((stage.terms(3), stage.member(3).fetching.is_none()), (before, true));
}

#[test]
fn a_newcomer_takes_a_snapshot_from_before_it_was_added() {
    // Goal: RS-1, refined. Method: the log below n4's addition is compacted, and the only snapshot is older than that.
    let mut stage = compacting_stage();
    stage.elect(1);
    stage.propose(1, "a");
    stage.compact(1);
    stage.change(1, add_learner(4));
    join(&mut stage, 4);
    assert!(stage.member(4).fetching.is_some(), "nothing newer can be had until the next one is cut");
    stage.finish_fetch(4);
    stage.settle();
    assert_eq!((stage.last(4), membership_of(&stage, 4).learners.clone()), (stage.last(1), ids(&[4])));
}

#[test]
fn a_node_is_reborn_from_its_snapshot_and_what_follows() {
    let mut stage = compacting_stage();
    stage.elect(1);
    stage.change(1, add_learner(4));
    stage.propose(1, "a");
    stage.compact(1);
    stage.propose(1, "b");
    let (last, membership) = (stage.last(1), membership_of(&stage, 1));
    stage.restart(1);
    assert_eq!((stage.last(1), membership_of(&stage, 1)), (last, membership));
}

#[test]
fn one_simple_passage_is_enough_for_one_voter() {
    let change = MembershipChange { steps: vec![Change::AddVoter(NodeId(4))], passage: Passage::JointImplicit };
    let mut stage = stage(3);
    stage.elect(1);
    stage.change(1, change);
    assert!(!membership_of(&stage, 1).is_joint(), "an implicit joint change leaves by itself");
    assert_eq!(membership_of(&stage, 1).voters, ids(&[1, 2, 3, 4]));
}

#[test]
fn what_stands_behind_a_removal_commits_with_it() {
    // Goal: RM-8. Method: of two, n2 acknowledges its own removal and nothing behind it; n1 alone decides from then on.
    let mut stage = stage(2);
    stage.elect(1);
    stage.change_quietly(1, remove(2));
    stage.propose_quietly(1, "behind");
    let first = stage
        .take_messages()
        .into_iter()
        .find(|(_, to, message)| *to == 2 && matches!(message, Message::Append { entries, .. } if entries.len() == 1));
    let (from, to, message) = first.expect("the removal is sent before what comes behind it");
    stage.deliver(from, to, message);
    stage.settle();
    assert_eq!(membership_of(&stage, 1).voters, ids(&[1]));
    assert_eq!(stage.commit(1), stage.last(1).index);
}

#[test]
fn the_last_voter_that_may_lead_stays() {
    // Goal: nothing is final that nobody could ever mend. Method: n2 and n3 must never lead, and say so.
    let mut stage = stage(3);
    for id in [2, 3] {
        let never = Cluster { me: NodeId(id), priority: Priority::Never, ..Cluster::of(3, 1) };
        stage.start_as(id, never, history(0, None, &[]));
    }
    stage.elect(1);
    stage.heartbeat(1);
    let refused = stage.change(1, remove(1));
    assert!(matches!(stage.refusal(1, refused), Some(Refusal::Membership(MembershipRefusal::NoVoters, _))));
    let fine = stage.change(1, remove(3));
    assert_eq!(stage.refusal(1, fine), None);
}

#[test]
fn a_single_voter_that_must_never_lead_starts_and_follows() {
    let never = Cluster { priority: Priority::Never, ..Cluster::of(1, 1) };
    let mut stage = Stage::new(never, Options::default());
    stage.fire(1, Timer::Election);
    stage.settle();
    assert_eq!(stage.role(1), Role::Follower);
}
