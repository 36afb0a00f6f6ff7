//! The leader's duties, by the names of the scenarios in `docs/protocols/rules` (PT-1, PT-5, PT-6): node health, primaries,
//! leases.

mod support;

use hustings_blazingmq::{Message, NodeHealth, Options, Placement, Timer};
use hustings_core::protocol::DiskHealth;
use hustings_core::{
    Admin, Assignment, Change, Cluster, EntryKind, Input, Limits, NodeId, Outcome, Priority, Protocol as _, Role,
};
use support::{Theatre, Verbs as _, cast, one};

/// A cast of this many voters, with three partitions.
fn divided(voters: u64, placement: Placement) -> Theatre {
    let limits = Limits { trailing_entries: 0, ..Limits::default() };
    let options = Options { partitions: 3, placement, ..Options::default() };
    Theatre::new(Cluster { limits, ..Cluster::of(voters, 1) }, options)
}

/// The assignments in a node's ledger: (primary, lease) by partition.
fn assigned(theatre: &Theatre, id: u64) -> Vec<(u64, u64)> {
    let membership = theatre.value(id).status().membership;
    membership.assignments.values().map(|assignment| (assignment.primary.0, assignment.lease)).collect()
}

/// The node that may write in each partition, as a node sees it.
fn primaries(theatre: &Theatre, id: u64) -> Vec<Option<u64>> {
    theatre.value(id).partitions().values().map(|partition| partition.primary.map(|id| id.0)).collect()
}

fn health(theatre: &Theatre, at: u64, of: u64) -> NodeHealth {
    theatre.value(at).health_of(NodeId(of))
}

/// An election timeout passes at a leader whose followers answer.
fn check_quorum(theatre: &mut Theatre, leader: u64) {
    theatre.heartbeat(leader);
    theatre.fire(leader, Timer::QuorumCheck);
    theatre.settle();
}

#[test]
fn the_start_of_a_term_names_the_primaries() {
    // Goal: §3.1, rules 2 and 3. Method: a leader of three partitions is elected.
    let mut theatre = divided(3, Placement::Leader);
    theatre.elect(2);
    assert!((1..=3).all(|id| assigned(&theatre, id) == [(2, 1); 3]));
    assert_eq!(theatre.value(2).log().len(), 1, "the record that starts the term names them");
    assert!(theatre.value(2).is_healthy());
}

#[test]
fn without_partitions_nothing_is_named() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.kill(3);
    theatre.settle();
    let entries = theatre.value(1).log().iter();
    assert_eq!(entries.map(|entry| entry.kind).collect::<Vec<_>>(), [EntryKind::Blank]);
}

#[test]
fn pt_1_a_primary_that_crashes_is_replaced_under_a_higher_lease() {
    // Goal: PT-1. Method: n1, leader and primary, dies; the others see orphans at once; n2 is elected.
    let mut theatre = divided(3, Placement::Leader);
    theatre.elect(1);
    theatre.kill(1);
    assert_eq!(primaries(&theatre, 3), [None; 3], "orphans, without waiting for a leader (rule 5)");
    assert_eq!(assigned(&theatre, 3), [(1, 1); 3], "and the lease is kept");
    theatre.fire(2, Timer::Wait);
    theatre.settle();
    assert_eq!(theatre.leaders(), [2]);
    assert!((2..=3).all(|id| assigned(&theatre, id) == [(2, 2); 3]));
    assert_eq!(primaries(&theatre, 3), [Some(2); 3]);
}

#[test]
fn a_primary_that_is_no_leader_is_replaced_when_its_link_drops() {
    // Goal: §3.1, rule 3, an update under an active leader. Method: partitions are spread; n3 dies.
    let mut theatre = divided(3, Placement::LeastAssigned);
    theatre.elect(1);
    check_quorum(&mut theatre, 1);
    assert_eq!(assigned(&theatre, 2), [(1, 1), (2, 1), (3, 1)], "the fewest each");
    theatre.kill(3);
    theatre.settle();
    assert_eq!(assigned(&theatre, 2), [(1, 1), (2, 1), (1, 2)]);
    assert_eq!(health(&theatre, 1, 3), NodeHealth::Unavailable);
    assert!(!theatre.value(1).is_healthy());
}

#[test]
fn a_primary_that_falls_silent_is_replaced_after_an_election_timeout() {
    let mut theatre = divided(3, Placement::LeastAssigned);
    theatre.elect(1);
    check_quorum(&mut theatre, 1);
    theatre.isolate(3);
    theatre.heartbeat(1);
    assert_eq!((assigned(&theatre, 2)[2], health(&theatre, 1, 3)), ((3, 1), NodeHealth::Available), "not yet");
    check_quorum(&mut theatre, 1);
    assert_eq!((assigned(&theatre, 2)[2], health(&theatre, 1, 3)), ((1, 2), NodeHealth::Unavailable));
}

#[test]
fn a_primary_whose_disk_stalls_is_replaced_at_once() {
    let mut theatre = divided(3, Placement::LeastAssigned);
    theatre.elect(1);
    check_quorum(&mut theatre, 1);
    theatre.input(2, Input::Health(DiskHealth::Stalled));
    theatre.settle();
    assert_eq!(assigned(&theatre, 3), [(1, 1), (1, 2), (3, 1)]);
    theatre.input(2, Input::Health(DiskHealth::Recovered));
    theatre.settle();
    check_quorum(&mut theatre, 1);
    assert_eq!(health(&theatre, 1, 2), NodeHealth::Available);
    assert_eq!(assigned(&theatre, 3)[1], (1, 2), "what works is not moved back");
}

#[test]
fn a_leader_that_hands_over_stays_primary() {
    // Goal: §3.1, rule 1, "current primary available: keep node and lease". Method: leadership moves, nobody is lost.
    let mut theatre = divided(3, Placement::Leader);
    theatre.elect(1);
    let ticket = theatre.admin(1, Admin::Transfer(NodeId(2)));
    theatre.settle();
    theatre.heartbeat(2);
    check_quorum(&mut theatre, 2);
    assert_eq!((theatre.outcome(1, ticket), theatre.leaders()), (Some(&Outcome::Done), vec![2]));
    assert_eq!(assigned(&theatre, 3), [(1, 1); 3]);
}

#[test]
fn pt_5_an_old_lease_is_refused() {
    // Goal: PT-5. Method: after PT-1, n1 works on in the name of its old lease; n3 asks its ledger.
    let mut theatre = divided(3, Placement::Leader);
    theatre.elect(1);
    theatre.kill(1);
    theatre.fire(2, Timer::Wait);
    theatre.settle();
    let claim = |node: u64, lease: u64| Assignment { primary: NodeId(node), lease };
    let membership = theatre.value(3).status().membership;
    let refusal = membership.admits(0, claim(1, 1)).expect_err("its lease is over");
    assert_eq!(refusal.known, Some(claim(2, 2)));
    assert_eq!(membership.admits(0, claim(2, 2)), Ok(()));
}

#[test]
fn pt_6_a_primary_that_was_replaced_unseen_does_not_trust_itself() {
    // Goal: PT-6 `[OURS]`: it does not end itself, and is nobody's primary. Method: n1 is cut from the others, who
    // elect n2; n1 has not noticed, then loses its quorum, then returns.
    let mut theatre = divided(3, Placement::Leader);
    theatre.elect(1);
    theatre.isolate(1);
    theatre.silence(&[2, 3]);
    theatre.fire(2, Timer::Wait);
    theatre.settle();
    assert_eq!(assigned(&theatre, 2), [(1, 1); 3], "whom n2 has not found silent yet keeps its partitions");
    check_quorum(&mut theatre, 2);
    check_quorum(&mut theatre, 2);
    assert_eq!(assigned(&theatre, 2), [(2, 2); 3]);
    for _ in 0..2 {
        theatre.fire_if_armed(1, Timer::QuorumCheck);
    }
    assert_eq!(theatre.role(1), Role::Follower);
    assert_eq!(primaries(&theatre, 1), [None; 3], "no leader confirms it");
    theatre.heal();
    theatre.settle();
    theatre.heartbeat(2);
    assert_eq!(assigned(&theatre, 1), [(2, 2); 3]);
    assert_eq!(primaries(&theatre, 1), [Some(2); 3]);
}

#[test]
fn leases_survive_snapshots_and_restarts() {
    // Goal: what is replicated is in the snapshot. Method: n3 loses its disk and fetches a snapshot; then all restart.
    let mut theatre = divided(3, Placement::Leader);
    theatre.elect(1);
    theatre.propose(1, "a");
    theatre.kill(3);
    theatre.settle();
    theatre.compact(1);
    theatre.enter(3, Default::default());
    (1..=2).for_each(|id| theatre.join(id, 3));
    theatre.settle();
    assert_eq!(health(&theatre, 1, 3), NodeHealth::Starting);
    theatre.finish_fetch(3);
    assert_eq!(assigned(&theatre, 3), [(1, 1); 3]);
    (1..=3).for_each(|id| theatre.restart(id));
    assert!((1..=3).all(|id| assigned(&theatre, id) == [(1, 1); 3]), "before anybody leads");
}

#[test]
fn a_removed_primary_is_replaced() {
    let mut theatre = divided(4, Placement::LeastAssigned);
    theatre.elect(1);
    check_quorum(&mut theatre, 1);
    assert_eq!(assigned(&theatre, 1), [(1, 1), (2, 1), (3, 1)]);
    theatre.change(1, &one(Change::Remove(NodeId(3))));
    assert_eq!(assigned(&theatre, 2)[2], (4, 2), "the one with none");
}

#[test]
fn who_joins_counts_leases_from_the_beginning() {
    // Goal: found by a seed (1 of three nodes, three partitions): a newcomer was told today's members with their
    // leases, replayed the ledger on top, and counted every lease twice. Method: n4 joins after two primaries of each
    // partition.
    let mut theatre = divided(3, Placement::Leader);
    theatre.elect(1);
    theatre.kill(1);
    theatre.fire(2, Timer::Wait);
    theatre.settle();
    theatre.change(2, &one(Change::AddVoter(NodeId(4))));
    let membership = theatre.value(2).status().membership;
    theatre.enter_as(Cluster { me: NodeId(4), membership, ..Cluster::of(4, 4) }, Default::default());
    (2..=3).for_each(|id| theatre.join(id, 4));
    theatre.settle();
    assert_eq!(assigned(&theatre, 4), [(2, 2); 3]);
}

#[test]
fn who_is_elected_and_not_healed_yet_is_nobodys_primary() {
    // Goal: an old ledger gives nobody a partition. Method: n1, primary by its ledger, was replaced while it was away;
    // it is elected, and learns.
    let mut theatre = divided(3, Placement::Leader);
    theatre.elect(1);
    let durable = theatre.actor(1).durable.clone();
    theatre.kill(1);
    theatre.fire(2, Timer::Wait);
    theatre.settle();
    theatre.enter(1, durable);
    theatre.kill(2);
    theatre.join(1, 3);
    theatre.table.clear();
    theatre.fire_if_armed(3, Timer::Silence);
    theatre.fire(1, Timer::Wait);
    theatre.settle();
    theatre.fire(1, Timer::Wait);
    theatre.settle_until(3, |message| matches!(message, Message::Registration { .. }));
    assert_eq!((theatre.role(1), primaries(&theatre, 1)), (Role::Synchronizing, vec![None; 3]));
    theatre.settle();
    assert_eq!((theatre.role(1), assigned(&theatre, 1)), (Role::Leader, vec![(1, 3); 3]));
}

#[test]
fn who_never_leads_may_still_be_a_primary() {
    let options = Options { partitions: 3, placement: Placement::LeastAssigned, ..Options::default() };
    let mut theatre = Theatre::new(Cluster::of(3, 1), options);
    theatre.enter_as(Cluster { me: NodeId(3), priority: Priority::Never, ..Cluster::of(3, 3) }, Default::default());
    theatre.elect(1);
    check_quorum(&mut theatre, 1);
    assert_eq!(assigned(&theatre, 1), [(1, 1), (2, 1), (3, 1)]);
}

#[test]
fn the_ledger_says_who_is_next_when_a_naming_was_not_committed() {
    // Goal: (partition, lease) names one node for ever, also across a naming that was in doubt. Method: n1 names itself
    // for n3's partition and dies before it knows it committed; n2 holds that record and leads.
    let mut theatre = divided(3, Placement::LeastAssigned);
    theatre.elect(1);
    check_quorum(&mut theatre, 1);
    let durable = theatre.actor(3).durable.clone();
    theatre.kill(3);
    theatre.settle_until(1, |message| matches!(message, Message::Records { .. }));
    theatre.pick(1, 2, |message| matches!(message, Message::Records { .. }));
    theatre.kill(1);
    theatre.enter(3, durable);
    theatre.join(2, 3);
    theatre.fire(2, Timer::Wait);
    theatre.settle();
    check_quorum(&mut theatre, 2);
    check_quorum(&mut theatre, 2);
    let ledger = assigned(&theatre, 2);
    assert_eq!((ledger[1], theatre.leaders()), ((2, 1), vec![2]));
    assert!(ledger[2].1 >= 3 && ledger[0].1 == 2, "n1 had lease 2 of the third partition, in doubt: {ledger:?}");
    assert_eq!(assigned(&theatre, 3), ledger);
}
