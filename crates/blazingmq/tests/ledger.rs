//! The ledger, by the names of the scenarios in `docs/protocols/rules` (CS-1 to CS-12): healing, records, commits, reads,
//! members, snapshots.

mod support;

use hustings_blazingmq::{Healing, Message, Options, Quorums, Timer};
use hustings_core::{
    Change, Cluster, Durable, Limits, Lsn, Member, Membership, MembershipChange, NodeId, Passage, Protocol, Refusal,
    Role, Term,
};
use std::sync::Arc;
use support::{Theatre, Verbs as _, cast, history, one};

fn is_pull(message: &Message) -> bool {
    matches!(message, Message::Pull { .. })
}

fn is_records(message: &Message) -> bool {
    matches!(message, Message::Records { .. })
}

fn is_registration(message: &Message) -> bool {
    matches!(message, Message::Registration { .. })
}

/// Three nodes with these ledgers, by the terms of their records.
fn ledgers(term: u64, of: [&[u64]; 3]) -> Theatre {
    let mut theatre = cast(3);
    for (id, terms) in (1..).zip(of) {
        theatre.restart_unseen(id);
        theatre.enter(id, history(term, terms));
    }
    theatre
}

/// Scouting and proposal run to their end, and nothing else: this node is elected and collects LSNs.
fn win(theatre: &mut Theatre, id: u64, voter: u64) {
    theatre.fire(id, Timer::Wait);
    theatre.pick(id, voter, |message| matches!(message, Message::Scouting { .. }));
    theatre.pick(voter, id, |message| matches!(message, Message::ScoutingReply { .. }));
    theatre.pick(id, voter, |message| matches!(message, Message::Proposal { .. }));
    theatre.pick(voter, id, |message| matches!(message, Message::Support { .. }));
    assert_eq!(theatre.role(id), Role::Synchronizing);
}

#[test]
fn cs_1_a_stale_leader_is_ordered_out() {
    // Goal: CS-1. Method: n1 leads and is cut off; n2 is elected and commits; n1 writes on; then they meet.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(1);
    theatre.propose(1, "lost");
    theatre.silence(&[2, 3]);
    theatre.fire(2, Timer::Wait);
    theatre.settle();
    theatre.propose(2, "kept");
    let stale = Message::Records { term: Term(1), previous: Lsn::new(1, 1), entries: vec![], commit: 1 };
    let before = theatre.last(3);
    theatre.deliver(1, 3, stale);
    assert_eq!(theatre.last(3), before, "its source is not n3's leader");
    theatre.heal();
    theatre.settle();
    theatre.heartbeat(2);
    assert_eq!((theatre.role(1), theatre.term(1)), (Role::Follower, 2));
    assert_eq!((theatre.lines(1), theatre.last(1)), (vec!["kept".to_string()], theatre.last(2)));
}

#[test]
fn cs_2_the_most_up_to_date_follower_supplies_the_state() {
    // Goal: CS-2. Method: n1 ends at (7, 2), the others at (7, 9); n1 is elected.
    let full = [7; 9];
    let mut theatre = ledgers(7, [&full[..2], &full, &full]);
    win(&mut theatre, 1, 2);
    assert_eq!(theatre.value(1).healing(), Healing::LeaderCollecting);
    theatre.settle();
    assert_eq!(theatre.count(1, is_pull), 1);
    assert_eq!((theatre.leaders(), theatre.last(1), theatre.commit(1)), (vec![1], Lsn::new(8, 10), 10));
    assert!((2..=3).all(|id| theatre.last(id) == Lsn::new(8, 10)));
    assert!((2..=3).all(|id| theatre.value(id).healing() == Healing::FollowerHealed));
}

#[test]
fn cs_2_it_comes_in_as_many_messages_as_it_needs() {
    let limits = Limits { message_bytes_max: 1, ..Limits::default() };
    let mut theatre = Theatre::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    theatre.enter(1, history(7, &[]));
    theatre.enter(2, history(7, &[7; 9]));
    theatre.enter(3, history(7, &[]));
    theatre.elect(1);
    assert_eq!(theatre.count(1, is_pull), 9);
    assert_eq!(theatre.last(3), Lsn::new(8, 10));
}

#[test]
fn cs_3_the_own_ledger_wins_ties() {
    let full = [7; 9];
    let mut theatre = ledgers(7, [&full, &full, &full]);
    theatre.elect(3);
    assert_eq!((theatre.leaders(), theatre.count(3, is_pull)), (vec![3], 0));
}

#[test]
fn cs_4_an_advisory_whose_commit_was_lost_is_in_the_next_term() {
    // Goal: CS-4. Method: n2 holds (3, 5), which the dead n1 committed; n3 leads next, and holds (3, 4).
    let mut theatre = ledgers(3, [&[], &[1, 2, 3, 3, 3], &[1, 2, 3, 3]]);
    theatre.kill(1);
    theatre.elect(3);
    assert_eq!((theatre.leaders(), theatre.terms(3)), (vec![3], vec![1, 2, 3, 3, 3, 4]));
}

#[test]
fn cs_5_an_advisory_of_a_minority_is_cut_back() {
    // Goal: CS-5. Method: n1 wrote (3, 5) and nobody received it; n2 leads; n1 returns.
    let mut theatre = ledgers(3, [&[1, 2, 3, 3, 3], &[1, 2, 3, 3], &[1, 2, 3, 3]]);
    let durable = theatre.actor(1).durable.clone();
    theatre.kill(1);
    theatre.elect(2);
    theatre.enter(1, durable);
    theatre.join(1, 2);
    theatre.join(1, 3);
    theatre.settle();
    assert_eq!((theatre.terms(1), theatre.commit(1)), (vec![1, 2, 3, 3, 4], 5));
}

#[test]
fn what_the_new_leader_holds_and_the_highest_lsn_does_not_goes() {
    // Goal: the leader's own tail. Method: n1 holds much of term 2 that nobody else does; n2 has one record of term 3.
    let mut theatre = ledgers(3, [&[1, 2, 2, 2, 2, 2], &[1, 1, 3], &[1, 1, 3]]);
    theatre.elect(1);
    assert_eq!((theatre.leaders(), theatre.terms(1)), (vec![1], vec![1, 1, 3, 4]));
    assert!((2..=3).all(|id| theatre.terms(id) == [1, 1, 3, 4]));
}

#[test]
fn cs_6_records_of_whom_one_does_not_follow_are_dropped() {
    // Goal: CS-6, with contiguity in place of the gate. Method: a restarted n3 hears records before any heartbeat.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.propose(1, "x");
    theatre.restart_unseen(3);
    theatre.propose(1, "y");
    assert_eq!(theatre.lines(3).len(), theatre.commit(3).saturating_sub(1) as usize);
    assert!(theatre.last(3).index < theatre.last(1).index, "n3 follows nobody yet");
    theatre.heartbeat(1);
    assert_eq!(theatre.last(3), theatre.last(1));
    theatre.heartbeat(1);
    assert_eq!(theatre.lines(3), ["x", "y"]);
}

#[test]
fn cs_7_a_source_that_dies_is_replaced() {
    // Goal: CS-7. Method: n2 is best; its link drops before it has answered, and n3's LSN is known.
    let full = [7; 9];
    let mut theatre = ledgers(7, [&full[..2], &full, &full[..5]]);
    win(&mut theatre, 1, 2);
    theatre.settle_until(1, is_pull);
    assert_eq!(theatre.value(1).healing(), Healing::LeaderPulling);
    theatre.pick(3, 1, is_registration);
    theatre.kill(2);
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.last(1)), (vec![1], Lsn::new(8, 6)), "the state of n3");
}

#[test]
fn cs_7_without_another_answer_a_leader_that_lost_its_quorum_stands_down() {
    let full = [7; 9];
    let mut theatre = ledgers(7, [&full[..2], &full, &full[..5]]);
    theatre.isolate(3);
    win(&mut theatre, 1, 2);
    theatre.settle_until(1, is_pull);
    theatre.kill(2);
    assert_eq!(theatre.role(1), Role::Follower);
}

#[test]
fn cs_8_a_late_joiner_finds_the_leader_starting() {
    // Goal: CS-8. Method: the disks are held, so the start is not committed; n3 registers meanwhile.
    let mut theatre = cast(3);
    theatre.kill(3);
    win(&mut theatre, 1, 2);
    theatre.hold_disk(1);
    theatre.hold_disk(2);
    theatre.settle();
    assert_eq!(theatre.value(1).healing(), Healing::LeaderStarting);
    theatre.enter(3, Durable::default());
    theatre.join(3, 1);
    theatre.join(3, 2);
    theatre.settle();
    assert_eq!((theatre.last(3), theatre.commit(1)), (Lsn::new(1, 1), 0), "one of three holds the start durably");
    theatre.release_disk(2);
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.commit(3)), (vec![1], 1));
}

#[test]
fn cs_9_a_commit_quorum_of_all_waits_for_all() {
    // Goal: CS-9 with separate knobs. Method: three nodes, all of which must hold a record; one is cut off.
    let quorums = Quorums { commit: 3, ..Quorums::default() };
    let mut theatre = Theatre::new(Cluster::of(3, 1), Options { quorums, ..Options::default() });
    theatre.elect(1);
    theatre.isolate(3);
    theatre.propose(1, "x");
    assert_eq!((theatre.leaders(), theatre.commit(1)), (vec![1], 1));
    theatre.heal();
    theatre.settle();
    assert_eq!(theatre.commit(1), 2);
}

#[test]
fn cs_10_a_gap_is_refused_so_the_highest_lsn_misses_nothing() {
    // Goal: CS-10. Method: n2 misses (1, 2), which n3 acknowledges; then a record that follows it reaches n2 alone; n1
    // dies.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.sever(1, 2);
    theatre.propose(1, "committed");
    assert_eq!(theatre.commit(1), 2);
    theatre.deliver(1, 2, Message::Heartbeat { term: Term(1), round: 0, commit: 0, is_active: true, asks: true });
    let gap = hustings_core::Entry::blank(Lsn::new(1, 3));
    let records = Message::Records { term: Term(1), previous: Lsn::new(1, 2), entries: vec![gap], commit: 2 };
    theatre.deliver(1, 2, records);
    assert_eq!(theatre.last(2), Lsn::new(1, 1), "its last is not what the record follows");
    theatre.kill(1);
    theatre.fire_if_armed(2, Timer::Wait);
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.lines(2)), (vec![2], vec!["committed".to_string()]));
}

#[test]
fn cs_11_an_acknowledgement_that_comes_twice_counts_once() {
    let mut theatre = cast(5);
    theatre.elect(1);
    (3..=5).for_each(|id| theatre.isolate(id));
    theatre.propose(1, "x");
    theatre.deliver(2, 1, Message::Ack { term: Term(1), index: 2 });
    theatre.deliver(2, 1, Message::Ack { term: Term(1), index: 2 });
    assert_eq!(theatre.commit(1), 1, "two of five hold it");
}

#[test]
fn cs_12_a_leader_that_follows_another_begins_anew() {
    // Goal: CS-12. Method: an active leader hears a heartbeat of a later term.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.propose(1, "x");
    theatre.deliver(2, 1, Message::Heartbeat { term: Term(6), round: 0, commit: 0, is_active: false, asks: true });
    assert_eq!((theatre.value(1).healing(), theatre.follows(1)), (Healing::FollowerWaiting, Some(2)));
    assert_eq!(theatre.count(1, is_registration), 1);
}

#[test]
fn elected_is_not_yet_ready() {
    // Goal: C7. Method: n1 is elected and its proposals come before its start is committed.
    let mut theatre = cast(3);
    win(&mut theatre, 1, 2);
    let origin = theatre.propose_quietly(1, "x");
    assert_eq!(theatre.refusal(1, origin), Some(Refusal::NotReady));
    let read = theatre.read(1, 1);
    assert_eq!(theatre.read_index(1, read), None);
    assert_eq!(theatre.value(1).status().leader, Some(NodeId(1)));
    theatre.pick(1, 2, |message| matches!(message, Message::Heartbeat { .. }));
    assert_eq!(theatre.value(2).status().leader, None, "n2 follows it, and sends it nothing yet");
    theatre.settle();
    assert_eq!(theatre.role(1), Role::Leader);
    assert_eq!((theatre.read_index(1, read), theatre.value(2).status().leader), (Some(1), Some(NodeId(1))));
}

#[test]
fn a_copy_counts_only_once_it_is_durable() {
    // Goal: acknowledgements rest on the records that they name. Method: two disks are held, the leader's among them.
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
fn a_whole_window_that_is_lost_with_its_session_is_sent_again() {
    // Goal: flow control. Method: windows of two messages; thirty proposals; n3's session ends with its window full.
    let limits = Limits { inflight_messages_max: 2, message_bytes_max: 200, ..Limits::default() };
    let mut theatre = Theatre::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    theatre.elect(1);
    for number in 0..30 {
        theatre.propose_quietly(1, &number.to_string());
    }
    assert!(theatre.count(1, is_records) < 40, "two windows of two, and what elections need");
    theatre.sever(1, 3);
    theatre.settle();
    assert_eq!(theatre.lines(2).len(), 30);
    theatre.join(1, 3);
    theatre.settle();
    assert_eq!(theatre.lines(3).len(), 30);
}

#[test]
fn a_deposed_leader_confirms_no_read() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(1);
    theatre.silence(&[2, 3]);
    theatre.fire(2, Timer::Wait);
    theatre.settle();
    assert_eq!(theatre.leaders(), [1, 2]);
    theatre.propose(2, "new");
    let ticket = theatre.read(1, 1);
    theatre.settle();
    theatre.heal();
    theatre.settle();
    assert_eq!(theatre.read_index(1, ticket), None);
    assert!(theatre.outcome(1, ticket).is_some(), "it is refused, to be asked elsewhere");
}

#[test]
fn a_read_waits_for_a_majority_that_was_asked_after_it_came() {
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

fn without_trail(voters: u64) -> Theatre {
    let limits = Limits { trailing_entries: 0, ..Limits::default() };
    Theatre::new(Cluster { limits, ..Cluster::of(voters, 1) }, Options::default())
}

#[test]
fn who_is_behind_the_ledger_fetches_the_snapshot_and_goes_on() {
    let mut theatre = without_trail(3);
    theatre.elect(1);
    theatre.isolate(3);
    theatre.propose(1, "a");
    theatre.propose(1, "b");
    theatre.compact(1);
    theatre.heal();
    theatre.settle();
    assert!(theatre.actor(3).fetching.is_some());
    theatre.finish_fetch(3);
    theatre.propose(1, "c");
    let restored = theatre.actor(3).restored.as_ref().expect("it was restored");
    assert_eq!((restored.lsn, theatre.last(3), theatre.lines(3)), (Lsn::new(1, 3), Lsn::new(1, 4), vec!["c".into()]));
    theatre.restart(3);
    theatre.settle();
    assert_eq!(theatre.commit(3), 4, "snapshot and ledger are on its disk");
}

#[test]
fn a_new_leader_without_the_base_fetches_the_snapshot_of_the_best() {
    // Goal: §2.8 rule 4, "the full state only where the base is missing". Method: n2 and n3 have compacted what n1
    // lacks.
    let mut theatre = without_trail(3);
    theatre.elect(2);
    theatre.isolate(1);
    theatre.propose(2, "a");
    theatre.propose(2, "b");
    theatre.compact(2);
    theatre.compact(3);
    theatre.propose(2, "c");
    theatre.heal();
    theatre.table.clear();
    theatre.kill(2);
    theatre.silence(&[1, 3]);
    theatre.fire(1, Timer::Wait);
    theatre.settle();
    assert_eq!(theatre.value(1).healing(), Healing::LeaderPulling);
    theatre.finish_fetch(1);
    assert_eq!((theatre.leaders(), theatre.last(1)), (vec![1], Lsn::new(2, 5)));
    assert_eq!(theatre.lines(1), ["c"], "the rest is in the snapshot");
}

#[test]
fn a_new_leader_whose_record_at_the_base_is_another_fetches_the_snapshot() {
    // Goal: the same where the base is missing though it is no longer than the ledger. Method: n1 led alone, and holds records that
    // nobody else has at the places that n2 and n3 have compacted since.
    let mut theatre = without_trail(3);
    theatre.elect(1);
    theatre.isolate(1);
    for line in ["x", "y", "z"] {
        theatre.propose(1, line);
    }
    theatre.elect(2);
    theatre.propose(2, "a");
    theatre.compact(2);
    theatre.compact(3);
    theatre.propose(2, "b");
    theatre.kill(2);
    theatre.heal();
    theatre.restart(1);
    theatre.settle();
    theatre.silence(&[1, 3]);
    // The first scouting teaches n1 the term.
    theatre.fire(1, Timer::Wait);
    theatre.settle();
    theatre.fire(1, Timer::Scouting);
    theatre.fire(1, Timer::Wait);
    theatre.settle();
    assert!(theatre.actor(1).fetching.is_some());
    theatre.finish_fetch(1);
    assert_eq!(theatre.leaders(), [1]);
    assert_eq!(theatre.lines(1), ["b"], "the rest is in the snapshot");
}

#[test]
fn a_snapshot_that_cannot_be_had_is_offered_again() {
    let mut theatre = without_trail(3);
    theatre.elect(1);
    theatre.isolate(3);
    theatre.propose(1, "a");
    theatre.compact(1);
    theatre.heal();
    theatre.settle();
    let reference = theatre.actor_mut(3).fetching.take().expect("it fetches");
    theatre.input(3, hustings_core::Input::SnapshotFailed(reference));
    theatre.settle();
    theatre.heartbeat(1);
    theatre.finish_fetch(3);
    assert_eq!(theatre.last(3), theatre.last(1));
}

#[test]
fn who_registers_before_it_is_a_member_is_asked_again() {
    // Goal: found by a seed (33 of five nodes): the newcomer registered before its leader had applied its addition.
    // Method: n4 follows n1 first, and is added afterwards.
    let mut theatre = cast(3);
    theatre.elect(1);
    let founding = Arc::new(Membership::of_voters((1..=4).map(NodeId)));
    theatre.enter_as(Cluster { me: NodeId(4), membership: founding, ..Cluster::of(4, 4) }, Durable::default());
    theatre.join(1, 4);
    theatre.settle();
    assert_eq!(theatre.follows(4), Some(1));
    theatre.change(1, &one(Change::AddVoter(NodeId(4))));
    theatre.heartbeat(1);
    assert_eq!(theatre.last(4), theatre.last(1));
}

#[test]
fn a_member_is_added_as_a_learner_catches_up_and_votes() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.propose(1, "x");
    let member = Member { name: "n4".into(), wants_vote: true, ..Member::default() };
    let steps = [Change::AddLearner(NodeId(4)), Change::Describe(NodeId(4), member)];
    theatre.change(1, &MembershipChange::of(steps));
    let founding = Arc::new(Membership::of_voters((1..=3).map(NodeId)));
    theatre.enter_as(Cluster { me: NodeId(4), membership: founding, ..Cluster::of(3, 1) }, Durable::default());
    (1..=3).for_each(|id| theatre.join(id, 4));
    theatre.settle();
    assert!((1..=4).all(|id| theatre.value(id).status().membership.is_voter(NodeId(4))));
    theatre.kill(1);
    theatre.fire(4, Timer::Wait);
    theatre.settle();
    assert_eq!(theatre.leaders(), [4], "three of four elect");
}

#[test]
fn only_one_voter_changes_at_a_time() {
    let mut theatre = cast(3);
    theatre.elect(1);
    let joint = MembershipChange { passage: Passage::JointImplicit, ..one(Change::Remove(NodeId(3))) };
    let origin = theatre.change(1, &joint);
    assert!(matches!(theatre.refusal(1, origin), Some(Refusal::Membership(..))));
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
    assert_eq!((theatre.leaders(), theatre.role(1)), (vec![2], Role::Follower));
    theatre.propose(2, "x");
    assert_eq!(theatre.lines(3), ["x"]);
}

#[test]
fn answers_from_another_reign_count_for_nothing() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(1);
    theatre.propose(1, "x");
    let (last, commit) = (theatre.last(1).index, theatre.commit(1));
    for term in [0, 2] {
        theatre.deliver(2, 1, Message::Ack { term: Term(term), index: last });
    }
    theatre.deliver(2, 1, Message::Ack { term: Term(1), index: last + 5 });
    assert_eq!(theatre.commit(1), commit, "of no reign, of a later one, of what was never written");
}

#[test]
fn a_leader_whose_source_dies_in_mid_pull_goes_on_from_where_its_ledger_ends() {
    // Goal: a new leader never pulls from itself. Method: messages hold one record; n1 cut its own tail back for n3's better
    // ledger and has one of its two records when n3 dies. Its own LSN is the cut one now, and n2 has another.
    let limits = Limits { message_bytes_max: 1, ..Limits::default() };
    let mut theatre = Theatre::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    theatre.table.clear();
    for (id, terms) in [(1, &[1, 1, 1, 1, 1, 2, 2][..]), (2, &[1, 1, 1, 1, 1]), (3, &[1, 1, 1, 1, 1, 1, 3])] {
        theatre.enter(id, history(3, terms));
    }
    theatre.table.clear();
    theatre.fire(1, Timer::Wait);
    theatre.settle_until(3, is_registration);
    theatre.pick(3, 1, is_registration);
    while theatre.last(1) != Lsn::new(1, 6) {
        let (from, to, message) = theatre.table.pop_front().expect("it pulls until it has the first of them");
        theatre.deliver(from, to, message);
    }
    theatre.kill(3);
    theatre.settle();
    theatre.propose(1, "served");
    assert_eq!((theatre.role(1), theatre.lines(1), theatre.lines(2)), {
        (Role::Leader, vec!["served".to_string()], vec!["served".to_string()])
    });
}
