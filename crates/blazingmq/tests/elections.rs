//! Elections, by the names of the scenarios in `docs/protocols/rules` (EL-1 to EL-10) and by what is ours.

mod support;

use hustings_blazingmq::{Healing, Message, Options, Quorums, Timer};
use hustings_core::protocol::DiskHealth;
use hustings_core::{
    Admin, Change, Cluster, Durable, Input, Lsn, MembershipChange, NodeId, Outcome, Priority, Protocol, Role, Term,
};
use support::{Theatre, Verbs as _, cast, history, one};

fn is_scouting(message: &Message) -> bool {
    matches!(message, Message::Scouting { .. })
}

fn is_proposal(message: &Message) -> bool {
    matches!(message, Message::Proposal { .. })
}

fn is_support(message: &Message) -> bool {
    matches!(message, Message::Support { .. })
}

fn is_heartbeat(message: &Message) -> bool {
    matches!(message, Message::Heartbeat { .. })
}

fn is_cession(message: &Message) -> bool {
    matches!(message, Message::Cession { .. })
}

#[test]
fn the_first_to_wait_long_enough_scouts_proposes_heals_and_leads() {
    // Goal: rules 3 to 16. Method: five nodes are born; n1's initial wait ends first.
    let mut theatre = cast(5);
    theatre.elect(1);
    assert_eq!(theatre.leaders(), [1]);
    assert!((1..=5).all(|id| theatre.term(id) == 1 && theatre.follows(id) == Some(1) && theatre.commit(id) == 1));
    assert_eq!(theatre.value(1).healing(), Healing::LeaderHealed);
    assert!((2..=5).all(|id| theatre.value(id).healing() == Healing::FollowerHealed));
    assert_eq!(theatre.value(1).supporters().len(), 5);
}

#[test]
fn el_1_a_node_that_was_cut_off_disturbs_nobody_when_it_is_back() {
    // Goal: EL-1. Method: four nodes, n1 leads; n2 is cut off, scouts for a while, and comes back.
    let mut theatre = cast(4);
    theatre.elect(1);
    let term = theatre.term(1);
    for other in [1, 3, 4] {
        theatre.sever(2, other);
    }
    for _ in 0..5 {
        theatre.fire(2, Timer::Wait);
        assert_eq!(theatre.role(2), Role::PreCandidate);
        theatre.settle();
        theatre.fire_if_armed(2, Timer::Scouting);
    }
    assert_eq!((theatre.term(2), theatre.role(2)), (term, Role::Follower), "scouting raises no term (E7)");
    theatre.said.clear();
    for other in [1, 3, 4] {
        theatre.join(2, other);
    }
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.term(1), theatre.follows(2)), (vec![1], term, Some(1)));
    assert_eq!(theatre.count(2, is_support), 1, "unsolicited (rule 16 c)");
    assert!(theatre.value(1).supporters().contains(&NodeId(2)));
}

#[test]
fn el_1_without_scouting_it_deposes_the_leader() {
    // Goal: EL-1, the naive mode. Method: the same without scouting; n2's term grows, and its answer to the first
    // heartbeat deposes n1.
    let mut theatre = Theatre::new(Cluster::of(4, 1), Options { scouting: false, ..Options::default() });
    theatre.elect(1);
    for other in [1, 3, 4] {
        theatre.sever(2, other);
    }
    for _ in 0..3 {
        theatre.fire(2, Timer::Wait);
        theatre.fire_if_armed(2, Timer::Election);
    }
    assert!(theatre.term(2) > theatre.term(1));
    theatre.join(1, 2);
    theatre.settle();
    assert_eq!(theatre.leaders(), [], "its HeartbeatResponse names a later term");
}

#[test]
fn el_2_one_broken_link_does_not_make_leadership_alternate() {
    // Goal: EL-2. Method: only the link between n1, who leads, and n2 is cut; n2 scouts again and again.
    let mut theatre = cast(4);
    theatre.elect(1);
    let term = theatre.term(1);
    theatre.sever(1, 2);
    for _ in 0..10 {
        theatre.fire(2, Timer::Wait);
        theatre.settle();
        theatre.fire_if_armed(2, Timer::Scouting);
    }
    assert!(theatre.count(2, is_scouting) >= 20);
    assert_eq!((theatre.leaders(), theatre.follows(2)), (vec![1], None));
    assert!((1..=4).all(|id| theatre.term(id) == term));
}

#[test]
fn el_3_of_two_candidates_of_a_term_the_loser_follows_and_supports_the_winner() {
    // Goal: EL-3. Method: n2 and n3 have both won their scouting before either proposal arrives; n1 and n4 hear n2
    // first.
    let mut theatre = cast(4);
    theatre.fire(2, Timer::Wait);
    theatre.fire(3, Timer::Wait);
    for candidate in [2, 3] {
        for voter in [1, 4] {
            theatre.pick(candidate, voter, is_scouting);
            theatre.pick(voter, candidate, |message| matches!(message, Message::ScoutingReply { .. }));
        }
    }
    assert_eq!((theatre.role(2), theatre.role(3)), (Role::Candidate, Role::Candidate));
    for voter in [1, 4] {
        theatre.pick(2, voter, is_proposal);
        theatre.pick(voter, 2, is_support);
    }
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.follows(3), theatre.term(3)), (vec![2], Some(2), 1));
    assert_eq!(theatre.value(2).supporters().len(), 4);
}

#[test]
fn el_3_a_split_vote_keeps_the_term_and_the_next_election_uses_the_next() {
    // Goal: EL-3, the variant. Method: n1 supports n2 and n4 supports n3.
    let mut theatre = cast(4);
    theatre.fire(2, Timer::Wait);
    theatre.fire(3, Timer::Wait);
    for candidate in [2, 3] {
        for voter in [1, 4] {
            theatre.pick(candidate, voter, is_scouting);
            theatre.pick(voter, candidate, |message| matches!(message, Message::ScoutingReply { .. }));
        }
    }
    theatre.pick(2, 1, is_proposal);
    theatre.pick(3, 4, is_proposal);
    theatre.settle();
    assert_eq!(theatre.leaders(), []);
    assert!((1..=4).all(|id| theatre.term(id) == 1), "the term is kept (rule 15)");
    theatre.elect(2);
    assert_eq!((theatre.leaders(), theatre.term(2)), (vec![2], 2));
}

#[test]
fn el_4_a_stale_leader_learns_the_later_term_and_follows() {
    // Goal: EL-4. Method: n1 is cut off silently and goes on leading; n2 is elected; first n3 reaches n1 again, then
    // all do.
    let mut theatre = cast(4);
    theatre.elect(1);
    theatre.isolate(1);
    theatre.silence(&[2, 3, 4]);
    theatre.fire(2, Timer::Wait);
    theatre.settle();
    assert_eq!(theatre.leaders(), [1, 2], "of different terms");
    let term = theatre.term(2);
    // Only n1 and n3, in the session that they had.
    theatre.deliver(1, 3, Message::Heartbeat { term: Term(1), round: 0, commit: 1, is_active: true, asks: true });
    let (_, _, answer) = theatre.said.last().expect("n3 answers").clone();
    assert!(matches!(answer, Message::Heard { term: later, .. } if later == Term(term)), "{answer:?}");
    theatre.said.clear();
    theatre.deliver(3, 1, answer);
    assert_eq!((theatre.role(1), theatre.term(1)), (Role::Follower, term));
    assert_eq!(theatre.count(1, is_cession), 3);
    theatre.settle();
    assert_eq!(theatre.follows(3), Some(2), "the cession of n1 is not n2's");
    theatre.heal();
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.follows(1), theatre.term(1)), (vec![2], Some(2), term));
    assert!(theatre.value(2).supporters().contains(&NodeId(1)));
}

#[test]
fn a_leader_ignores_support_of_a_later_term() {
    // Goal: the deviation from rule 14, which has it step down. Method: n1 leads without n4, which answers it out of term 9
    // whatever can be answered in an election; then it answers a heartbeat, and that counts.
    let mut theatre = cast(4);
    theatre.cut(1, 4);
    theatre.elect(1);
    let (term, supporters) = (theatre.term(1), [1, 2, 3].map(NodeId));
    assert_eq!((theatre.role(1), theatre.value(1).supporters()), (Role::Leader, supporters.to_vec()));
    let later = Term(9);
    for answer in [
        Message::Support { term: later },
        Message::ScoutingReply { term: later, round: true, will_vote: true, commit: Lsn::ZERO },
        Message::Refusal { term: later, proposed: Term(term) },
    ] {
        theatre.deliver(4, 1, answer.clone());
        theatre.settle();
        assert_eq!((theatre.role(1), theatre.term(1)), (Role::Leader, term), "{answer:?}");
        assert_eq!(theatre.value(1).supporters(), supporters, "{answer:?}");
    }
    assert_eq!(theatre.count(1, is_cession), 0);
    theatre.propose(1, "x");
    assert!((1..=3).all(|id| theatre.lines(id) == ["x"]), "and it serves");
    theatre.deliver(4, 1, Message::Heard { term: later, round: 0, priority: Priority::Normal, is_installing: false });
    assert_eq!((theatre.role(1), theatre.term(1)), (Role::Follower, later.0), "it hears of a later term by this alone");
}

#[test]
fn el_5_a_node_that_joins_is_told_at_once_and_supports_unasked() {
    // Goal: EL-5. Method: n4 is down while n1 is elected, and comes; then n2 goes.
    let mut theatre = cast(4);
    theatre.kill(4);
    theatre.elect(1);
    assert_eq!(theatre.value(1).supporters(), [NodeId(1), NodeId(2), NodeId(3)]);
    theatre.enter(4, Durable::default());
    theatre.said.clear();
    for other in 1..=3 {
        theatre.join(4, other);
    }
    assert_eq!(theatre.count(1, is_heartbeat), 1, "without waiting for the period");
    theatre.settle();
    assert_eq!((theatre.follows(4), theatre.term(4)), (Some(1), 1));
    assert_eq!(theatre.value(1).supporters().len(), 4);
    theatre.kill(2);
    assert_eq!(theatre.leaders(), [1], "three of four support it");
}

#[test]
fn el_6_a_leader_that_cannot_go_on_says_so_and_nobody_waits_for_its_silence() {
    // Goal: EL-6. Method: the leader's disk stalls: it hands over, and tells that it is not available.
    let mut theatre = cast(4);
    theatre.elect(1);
    theatre.input(1, Input::Health(DiskHealth::Stalled));
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.term(2)), (vec![2], 2), "without any timer");
    assert!((1..=4).all(|id| theatre.follows(id) == Some(2)));
}

#[test]
fn el_7_a_leader_below_a_quorum_stands_down_and_cedes() {
    // Goal: EL-7. Method: four nodes, n4 never came; then n2 goes.
    let mut theatre = cast(4);
    theatre.kill(4);
    theatre.elect(1);
    theatre.kill(2);
    theatre.settle();
    assert_eq!(theatre.role(1), Role::Follower);
    assert_eq!(theatre.follows(3), None, "it heard the cession");
    assert!(theatre.is_armed(3, Timer::Wait));
}

#[test]
fn el_7_a_supporter_whose_link_drops_counts_when_it_is_back() {
    // Goal: rules 26 and 27: nobody is elected by links that are down. Method: of five, n2 supports n1 and its link drops
    // before n3's support comes; n4 and n5 hear nothing.
    let mut theatre = cast(5);
    theatre.cut(1, 5);
    theatre.fire(1, Timer::Wait);
    for scouted in [2, 3, 4] {
        theatre.pick(1, scouted, is_scouting);
        theatre.pick(scouted, 1, |_| true);
    }
    theatre.cut(1, 4);
    theatre.pick(1, 2, is_proposal);
    theatre.pick(1, 3, is_proposal);
    theatre.pick(2, 1, is_support);
    theatre.link_down(1, 2);
    theatre.pick(3, 1, is_support);
    assert_eq!(theatre.role(1), Role::Candidate, "n1 and n3 are no quorum of five");
    theatre.link_up(1, 2);
    assert_eq!(theatre.role(1), Role::Synchronizing, "n2 is heard again, and supports it still");
}

#[test]
fn el_8_a_crash_does_not_make_a_node_support_twice() {
    // Goal: EL-8 with a durable term. Method: n2 supports n1 in term 1 and crashes before anything is in its ledger; n3
    // tries.
    let mut theatre = cast(3);
    theatre.cut(1, 3);
    theatre.fire(1, Timer::Wait);
    theatre.pick(1, 2, is_scouting);
    theatre.pick(2, 1, |_| true);
    theatre.pick(1, 2, is_proposal);
    assert_eq!(theatre.promise(2), (1, Some(1)));
    theatre.cut(1, 2);
    theatre.restart(2);
    assert_eq!(theatre.term(2), 1, "it is reborn in the term in which it voted");
    theatre.fire(3, Timer::Wait);
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.term(3)), (vec![], 0), "term 1 is refused, and n3 keeps its own");
    theatre.fire(3, Timer::Scouting);
    theatre.fire(3, Timer::Wait);
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.term(3)), (vec![3], 2), "the refusal told which term can be had");
}

#[test]
fn el_8_as_published_it_does() {
    // Goal: EL-8 in faithful mode: E1 is violated. Method: the same, with the term in the ledger alone.
    let mut theatre = Theatre::new(Cluster::of(3, 1), Options { as_published: true, ..Options::default() });
    theatre.cut(1, 3);
    theatre.fire(1, Timer::Wait);
    theatre.pick(1, 2, is_scouting);
    theatre.pick(2, 1, |_| true);
    theatre.pick(1, 2, is_proposal);
    theatre.pick(2, 1, is_support);
    assert_eq!(theatre.role(1), Role::Synchronizing);
    theatre.cut(1, 2);
    theatre.restart_unseen(2);
    theatre.fire(3, Timer::Wait);
    theatre.settle();
    assert_eq!(theatre.annals.reigns[&1].len(), 2, "two leaders of term 1");
}

#[test]
fn el_9_leaders_of_one_term_stand_down_and_the_next_term_is_another() {
    // Goal: EL-9 and §1.10/1. Method: as published, two nodes lead term 1; then they meet.
    let mut theatre = Theatre::new(Cluster::of(3, 1), Options { as_published: true, ..Options::default() });
    theatre.cut(1, 3);
    theatre.fire(1, Timer::Wait);
    theatre.pick(1, 2, is_scouting);
    theatre.pick(2, 1, |_| true);
    theatre.pick(1, 2, is_proposal);
    theatre.pick(2, 1, is_support);
    theatre.cut(1, 2);
    theatre.restart_unseen(2);
    theatre.fire(3, Timer::Wait);
    theatre.settle();
    theatre.said.clear();
    theatre.deliver(3, 1, Message::Heartbeat { term: Term(1), round: 0, commit: 0, is_active: true, asks: true });
    assert_eq!((theatre.role(1), theatre.value(1).breaches()), (Role::Follower, 1));
    assert_eq!(theatre.count(1, is_heartbeat), 0, "no endless exchange");
    theatre.deliver(1, 3, Message::Heartbeat { term: Term(1), round: 0, commit: 0, is_active: false, asks: true });
    assert_eq!(theatre.role(3), Role::Follower);
}

#[test]
fn el_10_an_answer_to_the_round_before_does_not_count() {
    // Goal: EL-10. Method: n3's yes comes after n2's round has ended and the next has begun.
    let mut theatre = cast(3);
    theatre.cut(2, 1);
    theatre.fire(2, Timer::Wait);
    theatre.pick(2, 3, is_scouting);
    let (_, _, late) = theatre.table.pop_back().expect("n3 has answered");
    theatre.table.clear();
    theatre.fire(2, Timer::Scouting);
    theatre.fire(2, Timer::Wait);
    theatre.deliver(3, 2, late);
    assert_eq!(theatre.role(2), Role::PreCandidate, "it still waits for an answer to this round");
}

#[test]
fn a_voter_that_lost_its_leader_answers_again() {
    // Goal: ADR 30. Method: n1 dies; n2 sees it first, and asks n3 while that still follows n1.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.actors.remove(&1);
    theatre.link_down(2, 1);
    theatre.fire(2, Timer::Wait);
    theatre.settle();
    assert_eq!(theatre.leaders(), []);
    theatre.link_down(3, 1);
    theatre.settle();
    assert_eq!(theatre.leaders(), [2], "without another timer");
}

#[test]
fn a_tentative_leader_that_never_speaks_is_given_up() {
    // Goal: rule 23 for a tentative leader. Method: n2 supports n1, and n1 dies silently.
    let mut theatre = cast(3);
    theatre.fire(1, Timer::Wait);
    theatre.pick(1, 2, is_scouting);
    theatre.pick(2, 1, |_| true);
    theatre.pick(1, 2, is_proposal);
    assert_eq!((theatre.value(2).tentative(), theatre.follows(2)), (Some(NodeId(1)), None));
    theatre.table.clear();
    theatre.isolate(1);
    theatre.fire(2, Timer::Silence);
    theatre.fire(2, Timer::Wait);
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.term(2)), (vec![2], 2));
}

#[test]
fn a_heartbeat_of_a_later_term_moves_even_a_sticky_follower() {
    // Goal: rule 17, §1.10/8. Method: n3 follows n1 and hears n2 of a later term.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.deliver(2, 3, Message::Heartbeat { term: Term(7), round: 0, commit: 0, is_active: false, asks: true });
    assert_eq!((theatre.follows(3), theatre.term(3)), (Some(2), 7));
    assert_eq!(theatre.count(3, |message| matches!(message, Message::Support { term } if *term == Term(7))), 1);
}

#[test]
fn a_leader_that_nobody_answers_steps_down() {
    // Goal: §1.10/7. Method: all links are cut silently; two checks pass.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(1);
    theatre.fire(1, Timer::QuorumCheck);
    assert_eq!(theatre.leaders(), [1]);
    theatre.fire(1, Timer::QuorumCheck);
    assert_eq!(theatre.leaders(), []);
}

#[test]
fn a_quorum_above_all_voters_forbids_leadership() {
    // Goal: §1.2 quorum, CS-9. Method: three nodes that want four votes.
    let quorums = Quorums { vote: 4, ..Quorums::default() };
    let mut theatre = Theatre::new(Cluster::of(3, 1), Options { quorums, ..Options::default() });
    theatre.elect(1);
    assert_eq!((theatre.leaders(), theatre.term(1)), (vec![], 0));
}

#[test]
fn the_literal_rule_keeps_the_smallest_ids_from_leading() {
    // Goal: §1.7. Method: `selfNode < proposedNode` in the laboratory: n1 gets no yes, n3 gets all.
    let mut theatre = Theatre::new(Cluster::of(3, 1), Options { seed_literal: true, ..Options::default() });
    theatre.elect(1);
    assert_eq!(theatre.leaders(), []);
    theatre.elect(3);
    assert_eq!(theatre.leaders(), [3]);
}

#[test]
fn who_must_not_lead_asks_and_proposes_nothing() {
    // Goal: priorities. Method: n1 is `never`; it asks both others who votes, and the yes of both makes no candidate of it.
    let mut theatre = cast(3);
    theatre.enter_as(Cluster { priority: Priority::Never, ..Cluster::of(3, 1) }, Durable::default());
    theatre.fire(1, Timer::Wait);
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.count(1, is_scouting), theatre.count(1, is_proposal)), (vec![], 2, 0));
}

#[test]
fn leadership_is_handed_over_and_nobody_sticks_to_the_old_leader() {
    // Goal: transfer `[OURS]`. Method: n1 leads and hands over to n3.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.propose(1, "x");
    let ticket = theatre.admin(1, Admin::Transfer(NodeId(3)));
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.term(3)), (vec![3], 2));
    assert_eq!(theatre.outcome(1, ticket), Some(&Outcome::Done));
    assert_eq!(theatre.count(3, is_scouting), 0);
}

#[test]
fn nobody_leads_by_a_membership_two_changes_old() {
    // Goal: the fence of `membership.rs`. Method: n3 misses how n4 and n5 are removed; n1 and n2 know.
    let mut theatre = cast(5);
    theatre.elect(1);
    theatre.isolate(3);
    theatre.change(1, &one(Change::Remove(NodeId(5))));
    theatre.change(1, &one(Change::Remove(NodeId(4))));
    assert_eq!(theatre.commit(2), 3);
    theatre.heal();
    theatre.table.clear();
    let members = theatre.value(3).status().membership.clone();
    assert_eq!(members.voters.len(), 5, "it has not heard");
    theatre.silence(&[1, 2, 3]);
    let proposal = Message::Proposal { term: Term(9), is_transfer: true, commit: Lsn::new(1, 1) };
    theatre.said.clear();
    theatre.deliver(3, 2, proposal);
    assert_eq!((theatre.term(2), theatre.count(2, is_support)), (1, 0));
    assert_eq!(theatre.count(2, |message| matches!(message, Message::Refusal { .. })), 1);
}

#[test]
fn what_is_asked_of_several_members_at_once_is_refused() {
    // Goal: one voter at a time. Method: two steps in one change.
    let mut theatre = cast(3);
    theatre.elect(1);
    let change = MembershipChange::of([Change::Remove(NodeId(2)), Change::Remove(NodeId(3))]);
    let origin = theatre.change(1, &change);
    assert!(theatre.refusal(1, origin).is_some());
}

#[test]
fn a_term_file_behind_its_ledger_does_not_matter() {
    // Goal: §1.9, load the larger of both. Method: a node whose ledger is of term 4 and whose promise was lost.
    let mut theatre = cast(3);
    let mut durable = history(4, &[1, 4]);
    durable.promise = Default::default();
    theatre.enter(1, durable);
    assert_eq!(theatre.term(1), 4);
}
