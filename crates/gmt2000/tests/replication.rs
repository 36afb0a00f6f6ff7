//! The log under LEAD: acknowledgements, commits, cut-backs, reads; members and snapshots.

mod support;

use hustings_core::{
    Change, Cluster, Limits, Lsn, Member, Membership, MembershipChange, NodeId, Passage, Protocol, Refusal, Role, Term,
};
use hustings_gmt2000::{Message, Options, Timer};
use std::sync::Arc;
use support::{Theatre, Verbs as _, cast, history, is_lead, one};

#[test]
fn a_proposal_is_applied_everywhere_once_a_majority_stored_it() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(3);
    theatre.propose(1, "x");
    assert_eq!((theatre.lines(1), theatre.lines(2)), (vec!["x".to_string()], vec!["x".to_string()]));
    theatre.isolate(2);
    theatre.propose(1, "y");
    assert_eq!(theatre.commit(1), 2, "one of three is no majority");
    theatre.heal();
    theatre.heartbeat(1);
    assert!((1..=3).all(|id| theatre.lines(id) == ["x", "y"]), "a heartbeat finds every gap");
}

#[test]
fn a_copy_counts_only_once_it_is_durable() {
    // Goal: acknowledgements rest on the messages that they name. Method: two disks are held, the leader's among them.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.hold_disk(1);
    theatre.hold_disk(2);
    theatre.propose(1, "x");
    assert_eq!((theatre.commit(1), theatre.last(3).index), (1, 2), "one of three holds it durably");
    theatre.release_disk(2);
    theatre.settle();
    assert_eq!(theatre.commit(1), 2, "the leader's own copy is not needed");
    assert!(theatre.lines(1).is_empty(), "but it applies only what it holds");
    theatre.release_disk(1);
    assert_eq!(theatre.lines(1), ["x"]);
}

#[test]
fn nothing_older_commits_by_counting() {
    // Goal: Raft's figure 8 in GMT-2000's words. Method: n1 has a message of term 2 on a majority, elected in a later ballot; a
    // message of term 3 on another node could still replace it.
    let mut theatre = cast(5);
    theatre.actors.clear();
    (1..=3).for_each(|id| theatre.enter(id, history(4, None, &[1, 2])));
    theatre.enter(4, history(4, None, &[1]));
    theatre.enter(5, history(4, None, &[1, 3]));
    theatre.isolate(5);
    theatre.hold_disk(2);
    theatre.hold_disk(3);
    theatre.hold_disk(4);
    theatre.elect(1);
    assert_eq!(theatre.leaders(), [], "no vote is durable");
    (2..=4).for_each(|id| theatre.release_disk(id));
    (2..=4).for_each(|id| theatre.hold_disk(id));
    theatre.settle();
    assert_eq!(theatre.leaders(), [1]);
    theatre.heartbeat(1);
    assert_eq!(theatre.commit(1), 0, "the message of term 2 is on three of five, and commits nothing");
    (2..=4).for_each(|id| theatre.release_disk(id));
    theatre.settle();
    assert_eq!(theatre.commit(1), 3, "with the first own message everything before it");
    theatre.heal();
    theatre.heartbeat(1);
    theatre.heartbeat(1);
    assert_eq!(theatre.last(5), theatre.last(1), "the lonely message of term 3 is cut back");
}

#[test]
fn a_tail_that_differs_is_cut_back_to_the_last_common_message() {
    let mut theatre = cast(3);
    theatre.actors.clear();
    theatre.enter(1, history(4, None, &[1, 1, 4, 4]));
    theatre.enter(2, history(4, None, &[1, 1, 4, 4]));
    theatre.enter(3, history(4, None, &[1, 1, 2, 2, 3, 3, 3]));
    theatre.elect(1);
    theatre.heartbeat(1);
    let terms: Vec<u64> = theatre.value(3).log().iter().map(|entry| entry.lsn.term.0).collect();
    assert_eq!(terms, [1, 1, 4, 4, 5]);
    assert_eq!(theatre.commit(3), 5);
}

#[test]
fn lost_reordered_and_repeated_leads_do_no_harm() {
    // Goal: links may do anything. Method: thirty proposals whose messages come last first, every third is lost, all twice.
    let mut theatre = cast(3);
    theatre.elect(1);
    for number in 0..30 {
        theatre.propose_quietly(1, &number.to_string());
    }
    let table: Vec<_> = theatre.table.drain(..).collect();
    for (at, (from, to, message)) in table.into_iter().rev().enumerate() {
        if at % 3 != 0 {
            theatre.deliver(from, to, message.clone());
            theatre.deliver(from, to, message);
        }
    }
    theatre.settle();
    theatre.heartbeat(1);
    theatre.heartbeat(1);
    assert!((1..=3).all(|id| theatre.lines(id).len() == 30), "{:?}", theatre.value(1).peer(NodeId(2)));
}

#[test]
fn a_restarted_follower_goes_on_where_its_disk_ends() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.propose(1, "x");
    theatre.hold_disk(3);
    theatre.propose(1, "y");
    theatre.restart(3);
    assert_eq!(theatre.last(3).index, 2);
    theatre.propose(1, "z");
    theatre.heartbeat(1);
    assert_eq!(theatre.lines(3), ["x", "y", "z"]);
}

#[test]
fn a_read_waits_for_a_majority_that_was_asked_after_it_came() {
    // Goal: linearizable reads. Method: answers to an earlier heartbeat come after the read.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.propose(1, "x");
    theatre.fire(1, Timer::Heartbeat);
    let early: Vec<_> = theatre.table.drain(..).collect();
    let ticket = theatre.read(1, 1);
    let asked: Vec<_> = theatre.table.drain(..).collect();
    early.into_iter().for_each(|(from, to, message)| theatre.deliver(from, to, message));
    theatre.settle();
    assert_eq!(theatre.read_index(1, ticket), None, "those were not asked for it");
    asked.into_iter().for_each(|(from, to, message)| theatre.deliver(from, to, message));
    theatre.settle();
    assert_eq!(theatre.read_index(1, ticket), Some(2));
}

#[test]
fn a_deposed_leader_confirms_no_read() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(1);
    theatre.silence(&[2, 3]);
    theatre.fire(2, Timer::Watch);
    theatre.pass_round();
    assert_eq!(theatre.leaders(), [1, 2]);
    theatre.propose(2, "new");
    let ticket = theatre.read(1, 1);
    theatre.settle();
    theatre.heal();
    theatre.heartbeat(1);
    assert_eq!(theatre.read_index(1, ticket), None);
    assert!(theatre.outcome(1, ticket).is_some(), "it is refused, to be asked elsewhere");
}

#[test]
fn a_read_before_the_first_own_commit_waits_for_it() {
    let mut theatre = cast(3);
    (1..=3).for_each(|id| theatre.silence(&[id]));
    theatre.fire(1, Timer::Watch);
    while theatre.leaders().is_empty() {
        let (from, to, message) = theatre.table.pop_front().expect("the election goes on");
        theatre.deliver(from, to, message);
    }
    let ticket = theatre.read(1, 1);
    assert_eq!(theatre.read_index(1, ticket), None);
    theatre.settle();
    assert_eq!(theatre.read_index(1, ticket), Some(1));
}

#[test]
fn a_leader_without_a_majority_steps_down() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.fire(1, Timer::QuorumCheck);
    theatre.isolate(1);
    theatre.fire(1, Timer::QuorumCheck);
    assert_eq!((theatre.role(1), theatre.leader_of(1)), (Role::Follower, None));
    let origin = theatre.propose(1, "x");
    assert_eq!(theatre.refusal(1, origin), Some(Refusal::NotLeader(None)));
}

#[test]
fn messages_that_overtake_each_other_do_not_multiply() {
    // Method: n3 lacks 300 messages of a LEAD each, on a network that delivers in no order.
    let limits = Limits { message_bytes_max: 1, ..Limits::default() };
    let mut theatre = Theatre::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    theatre.elect(1);
    theatre.isolate(3);
    for _ in 0..300 {
        theatre.propose(1, "x");
    }
    theatre.heal();
    let (mut delivered, mut draw) = (0_usize, 7_usize);
    while theatre.last(3) != theatre.last(1) {
        theatre.fire(1, Timer::Heartbeat);
        while !theatre.table.is_empty() {
            delivered += 1;
            assert!(delivered < 6_000, "at {}: more than twenty messages for each that n3 lacks", theatre.last(3));
            draw = draw * 1_103_515_245 % 2_147_483_647;
            let (from, to, message) = theatre.table.remove(draw % theatre.table.len()).expect("it is on the table");
            theatre.deliver(from, to, message);
        }
    }
}

fn without_trail(voters: u64) -> Theatre {
    let limits = Limits { trailing_entries: 0, ..Limits::default() };
    Theatre::new(Cluster { limits, ..Cluster::of(voters, 1) }, Options::default())
}

#[test]
fn who_is_behind_the_log_fetches_the_snapshot_and_goes_on() {
    let mut theatre = without_trail(3);
    theatre.elect(1);
    theatre.isolate(3);
    theatre.propose(1, "a");
    theatre.propose(1, "b");
    theatre.compact(1);
    theatre.heal();
    theatre.heartbeat(1);
    theatre.heartbeat(1);
    assert!(theatre.actor(3).fetching.is_some());
    theatre.finish_fetch(3);
    theatre.propose(1, "c");
    let restored = theatre.actor(3).restored.as_ref().expect("it was restored");
    assert_eq!((restored.lsn, theatre.last(3), theatre.lines(3)), (Lsn::new(1, 3), Lsn::new(1, 4), vec!["c".into()]));
    theatre.restart(3);
    theatre.heartbeat(1);
    assert_eq!(theatre.commit(3), 4, "snapshot and log are on its disk");
}

#[test]
fn a_snapshot_that_cannot_be_had_is_offered_again() {
    let mut theatre = without_trail(3);
    theatre.elect(1);
    theatre.isolate(3);
    theatre.propose(1, "a");
    theatre.compact(1);
    theatre.heal();
    theatre.heartbeat(1);
    let reference = theatre.actor(3).fetching.clone().expect("it fetches");
    theatre.input(3, hustings_core::Input::SnapshotFailed(reference));
    theatre.settle();
    theatre.restart(3);
    theatre.heartbeat(1);
    theatre.heartbeat(1);
    theatre.finish_fetch(3);
    assert_eq!(theatre.last(3), theatre.last(1));
}

#[test]
fn a_snapshot_that_was_overtaken_by_another_leads_to_a_newer_one() {
    // Goal: found by a storm (seed 13447). Method: n3 is offered a snapshot; before it has it, the leader compacts further and an
    // acknowledgement beyond the offer comes, of what an earlier leader had sent.
    let mut theatre = without_trail(3);
    theatre.elect(1);
    theatre.isolate(3);
    for number in 0..4 {
        theatre.propose(1, &number.to_string());
    }
    theatre.compact(1);
    theatre.heal();
    theatre.heartbeat(1);
    theatre.isolate(3);
    for number in 0..4 {
        theatre.propose(1, &number.to_string());
    }
    theatre.compact(1);
    let offered = theatre.actor(3).fetching.clone().expect("it was offered one").lsn.index;
    theatre.deliver(3, 1, Message::Stored { term: Term(1), index: offered + 1 });
    theatre.heal();
    theatre.restart(3);
    theatre.heartbeat(1);
    theatre.heartbeat(1);
    theatre.finish_fetch(3);
    assert_eq!(theatre.last(3), theatre.last(1));
}

#[test]
fn a_member_is_added_as_a_learner_catches_up_and_votes() {
    // Goal: membership, one voter at a time, by `wants_vote`. Method: n4 joins three.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.propose(1, "x");
    let member = Member { name: "n4".into(), wants_vote: true, ..Member::default() };
    let steps = [Change::AddLearner(NodeId(4)), Change::Describe(NodeId(4), member)];
    theatre.change(1, &MembershipChange::of(steps));
    let founding = Arc::new(Membership::of_voters((1..=3).map(NodeId)));
    theatre.enter_as(Cluster { me: NodeId(4), membership: founding, ..Cluster::of(3, 1) }, Default::default());
    theatre.heartbeat(1);
    theatre.heartbeat(1);
    assert!((1..=4).all(|id| theatre.value(id).status().membership.is_voter(NodeId(4))));
    theatre.isolate(1);
    theatre.silence(&[2, 3, 4]);
    theatre.fire(4, Timer::Watch);
    theatre.pass_round();
    assert_eq!(theatre.leaders(), [1, 2], "three of four elect");
}

#[test]
fn only_one_voter_changes_at_a_time() {
    let mut theatre = cast(3);
    theatre.elect(1);
    let two = MembershipChange::of([Change::Remove(NodeId(2)), Change::Remove(NodeId(3))]);
    let joint = MembershipChange { passage: Passage::JointImplicit, ..one(Change::Remove(NodeId(3))) };
    for change in [two, joint] {
        let origin = theatre.change(1, &change);
        assert!(matches!(theatre.refusal(1, origin), Some(Refusal::Membership(..))));
    }
    theatre.isolate(1);
    theatre.change(1, &one(Change::Remove(NodeId(3))));
    let second = theatre.change(1, &one(Change::Remove(NodeId(2))));
    assert_eq!(theatre.refusal(1, second), Some(Refusal::MembershipPending));
}

#[test]
fn a_removed_leader_hands_over_and_leaves() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.heartbeat(1);
    theatre.change(1, &one(Change::Remove(NodeId(1))));
    theatre.pass_round();
    theatre.pass_round();
    assert_eq!((theatre.leaders(), theatre.role(1)), (vec![2], Role::Follower));
    theatre.propose(2, "x");
    assert_eq!(theatre.lines(3), ["x"]);
}

#[test]
fn a_removed_member_disturbs_nobody() {
    let mut theatre = cast(4);
    theatre.elect(1);
    theatre.isolate(4);
    theatre.change(1, &one(Change::Remove(NodeId(4))));
    theatre.heal();
    let term = theatre.term(1);
    theatre.silence(&[4]);
    theatre.fire(4, Timer::Watch);
    theatre.pass_round();
    theatre.fire_if_armed(4, Timer::Watch);
    theatre.pass_round();
    assert_eq!((theatre.leaders(), theatre.term(2), theatre.leader_of(2)), (vec![1], term, Some(1)));
}

#[test]
fn answers_from_another_reign_count_for_nothing() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(1);
    theatre.propose(1, "x");
    let (last, commit) = (theatre.last(1).index, theatre.commit(1));
    for term in [0, 2] {
        theatre.deliver(2, 1, Message::Stored { term: Term(term), index: last });
    }
    theatre.deliver(2, 1, Message::Stored { term: Term(1), index: last + 5 });
    assert_eq!(theatre.commit(1), commit, "of no reign, of a later one, of what was never written");
    assert!(theatre.count(1, is_lead) > 0);
}
