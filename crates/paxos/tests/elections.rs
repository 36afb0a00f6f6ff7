//! Polls, take-overs and step-downs as stories. Goal: the named scenarios of `docs/protocols/rules` (§1.10) that are about
//! who leads. Method: values in memory, timers fired by hand.

mod support;

use hustings_core::protocol::DiskHealth;
use hustings_core::{Admin, Cluster, Input, NodeId, Outcome, Priority, Refusal, Role, Term};
use hustings_paxos::{Message, Options, Timer};
use support::{Theatre, Verbs as _, ballot, cast, journal};

fn is_low_ball(message: &Message) -> bool {
    matches!(message, Message::LowBall { .. })
}

fn is_prepare(message: &Message) -> bool {
    matches!(message, Message::Prepare { .. })
}

/// n1 leads; nothing is under way.
fn led(voters: u64) -> Theatre {
    let mut theatre = cast(voters);
    theatre.elect(1);
    theatre.heartbeat(1);
    assert_eq!(theatre.leaders(), [1]);
    theatre
}

/// trex_cold_start_three.
#[test]
fn of_three_that_start_cold_the_first_to_wake_leads_by_a_no_op() {
    let mut theatre = led(3);
    assert_eq!((theatre.commit(1), theatre.lines(1).len()), (1, 0), "a no-op in the first slot");
    theatre.heartbeat(1);
    for id in 1..=3 {
        assert_eq!((theatre.promised(id), theatre.commit(id)), (ballot(1, 1), 1));
        assert_eq!(theatre.leader_of(id), Some(1));
    }
}

/// trex_link_cut_weak_evidence; TI-8, TV-1.
#[test]
fn who_alone_does_not_hear_the_leader_is_told_by_another_and_stays() {
    let mut theatre = led(3);
    theatre.cut(1, 2);
    for _ in 0..20 {
        theatre.heartbeat(1);
        theatre.elect(2);
        assert_eq!(theatre.role(2), Role::Follower);
    }
    assert_eq!(theatre.count(2, is_prepare), 0, "never a real ballot");
    assert_eq!(theatre.count(2, is_low_ball), 40);
    assert!((1..=3).all(|id| theatre.promised(id) == ballot(1, 1)));
    assert_eq!(theatre.leaders(), [1]);
}

/// trex_link_cut_strong_evidence; TF-5.
#[test]
fn who_is_told_of_a_later_commit_catches_up_and_stays() {
    let mut theatre = led(3);
    theatre.cut(1, 2);
    theatre.propose(1, "one");
    theatre.heartbeat(1);
    assert_eq!((theatre.commit(3), theatre.commit(2)), (2, 1));
    theatre.elect(2);
    assert_eq!((theatre.role(2), theatre.commit(2)), (Role::Follower, 2));
    assert_eq!(theatre.lines(2), ["one"]);
    assert_eq!(theatre.count(2, is_prepare), 0);
    assert_eq!(theatre.count(2, |said| matches!(said, Message::RetransmitRequest { .. })), 1);
}

/// trex_minority_never_goes_high; TI-9.
#[test]
fn a_minority_polls_for_ever_and_promises_nothing() {
    let mut theatre = led(5);
    for inside in [4, 5] {
        for outside in 1..=3 {
            theatre.cut(inside, outside);
        }
    }
    for _ in 0..50 {
        theatre.elect(4);
        theatre.elect(5);
    }
    assert!((1..=5).all(|id| theatre.promised(id) == ballot(1, 1)));
    theatre.heal();
    theatre.heartbeat(1);
    theatre.heartbeat(1);
    assert!((1..=5).all(|id| theatre.leader_of(id) == Some(1)), "and follows again, without an election");
    assert_eq!(theatre.count(4, is_prepare) + theatre.count(5, is_prepare), 0);
}

/// trex_insufficient_weak_evidence: one newer heartbeat among five is a complicated partition; a duel is preferred to a
/// halt.
#[test]
fn of_five_one_witness_is_not_enough_to_keep_quiet() {
    let mut theatre = led(5);
    for peer in [2, 4, 5] {
        theatre.cut(1, peer);
    }
    theatre.cut(2, 5);
    theatre.heartbeat(1);
    theatre.elect(2);
    assert_eq!(theatre.role(2), Role::Leader);
    theatre.heal();
    theatre.heartbeat(1);
    theatre.propose(2, "after");
    theatre.heartbeat(2);
    theatre.heartbeat(2);
    assert_eq!(theatre.leaders(), [2]);
    assert!((1..=5).all(|id| theatre.lines(id) == ["after"]), "both outcomes hold the same values");
}

/// trex_paused_follower_wakes; TH-4, TV-4.
#[test]
fn a_follower_that_wakes_late_is_told_by_the_leader_itself() {
    let mut theatre = led(3);
    theatre.isolate(3);
    // Its timer before the heartbeats that wait for it.
    theatre.fire(1, Timer::Heartbeat);
    theatre.lose(|_, to, _| to == 2);
    theatre.elect(2);
    assert_eq!((theatre.role(2), theatre.leaders()), (Role::Follower, vec![1]));
    assert_eq!(theatre.leader_of(2), Some(1), "and hears it again");
    assert_eq!(theatre.count(2, is_prepare), 0);
}

/// trex_stale_poll_reply; TH-5.
#[test]
fn an_answer_to_an_earlier_poll_counts_for_nothing() {
    let mut theatre = cast(3);
    theatre.isolate(1);
    theatre.fire(2, Timer::Deadline);
    theatre.settle_until(3, |said| matches!(said, Message::LowBallNack { .. }));
    let at = theatre.table.iter().position(|(from, to, _)| (*from, *to) == (3, 2)).expect("it answers");
    let (_, _, late) = theatre.table.remove(at).expect("it is there");
    theatre.cut(2, 3);
    theatre.fire(2, Timer::Deadline);
    theatre.deliver(3, 2, late);
    theatre.fire_if_armed(2, Timer::Grace);
    assert_eq!(theatre.role(2), Role::PreCandidate, "the poll before is over");
}

/// TI-8: the node that is polled is afterwards as it was before.
#[test]
fn a_poll_changes_nobody_but_who_asks() {
    let mut theatre = led(3);
    let before: Vec<_> = [1, 3].map(|id| (theatre.promised(id), theatre.role(id), theatre.last(id))).to_vec();
    theatre.isolate(1);
    theatre.fire(2, Timer::Deadline);
    theatre.settle();
    let after: Vec<_> = [1, 3].map(|id| (theatre.promised(id), theatre.role(id), theatre.last(id))).to_vec();
    assert_eq!(before, after);
}

/// TH-7: a node that promised waits for the candidate.
#[test]
fn a_promise_ends_the_own_poll() {
    let mut theatre = cast(3);
    theatre.fire(3, Timer::Deadline);
    theatre.lose(|_, _, _| true);
    theatre.elect(2);
    assert_eq!((theatre.role(3), theatre.leaders()), (Role::Follower, vec![2]));
}

/// TH-16, TF-1: followers that promised more do not hear the deposed leader.
#[test]
fn a_deposed_leader_keeps_nobody_quiet() {
    let mut theatre = led(3);
    theatre.cut(1, 2);
    theatre.cut(1, 3);
    theatre.elect(2);
    assert_eq!(theatre.role(1), Role::Leader, "it does not know yet");
    theatre.cut(2, 3);
    theatre.heal();
    theatre.fire(1, Timer::Heartbeat);
    theatre.pick(1, 3, |said| matches!(said, Message::Commit { .. }));
    assert_eq!(theatre.leader_of(3), Some(2));
    theatre.settle();
    assert_eq!(theatre.leaders(), [2], "a quorum refused it");
}

/// trex_star_quorum_loss; TL-10, TH-17.
#[test]
fn in_a_star_the_one_in_the_middle_leads_in_the_end() {
    let mut theatre = led(5);
    for a in [1, 3, 4, 5] {
        for b in [1, 3, 4, 5].into_iter().filter(|b| *b > a) {
            theatre.cut(a, b);
        }
    }
    // One check takes note, the next one acts.
    for _ in 0..2 {
        theatre.fire_if_armed(1, Timer::QuorumCheck);
        theatre.fire_if_armed(1, Timer::Heartbeat);
        theatre.settle();
    }
    assert_eq!(theatre.leaders(), Vec::<u64>::new(), "n1 hears only n2");
    theatre.elect(2);
    theatre.propose(2, "at last");
    assert_eq!((theatre.leaders(), theatre.lines(2)), (vec![2], vec!["at last".to_string()]));
}

/// The link of the leader drops at everybody: no deadline is waited for, and the ranks keep the peace.
#[test]
fn a_leader_whose_process_dies_is_replaced_at_once() {
    let mut theatre = led(3);
    theatre.propose(1, "kept");
    theatre.kill(1);
    theatre.fire(2, Timer::Deadline);
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.lines(2)), (vec![2], vec!["kept".to_string()]));
}

/// The same, but only one link dropped: a node that still hears the leader keeps the other quiet.
#[test]
fn one_link_that_drops_deposes_nobody() {
    let mut theatre = led(3);
    theatre.sever(1, 2);
    theatre.fire(2, Timer::Deadline);
    theatre.settle();
    assert_eq!(theatre.role(2), Role::PreCandidate, "n3 may be the next to lose it, and would say so");
    for _ in 0..8 {
        theatre.heartbeat(1);
        theatre.elect(2);
    }
    assert_eq!((theatre.role(2), theatre.leaders()), (Role::Follower, vec![1]));
    assert_eq!(theatre.count(2, is_prepare), 0);
}

/// trex_even_nodes_split, the second half: the leader and one follower commit, the other two cannot elect.
#[test]
fn half_of_four_commits_and_half_of_four_cannot_elect() {
    let mut theatre = led(4);
    for a in [1, 2] {
        for b in [3, 4] {
            theatre.cut(a, b);
        }
    }
    theatre.propose(1, "by two");
    assert_eq!(theatre.lines(1), ["by two"]);
    for _ in 0..10 {
        theatre.elect(3);
        theatre.elect(4);
        theatre.heartbeat(1);
        theatre.fire_if_armed(1, Timer::QuorumCheck);
        theatre.settle();
    }
    assert_eq!((theatre.leaders(), theatre.promised(3)), (vec![1], ballot(1, 1)));
    theatre.heal();
    theatre.heartbeat(1);
    assert!((1..=4).all(|id| theatre.lines(id) == ["by two"]));
}

/// trex_even_nodes_split, the first half: a split outcome is an outcome.
#[test]
fn a_candidate_that_half_refuses_gives_up_at_once() {
    let mut theatre = Theatre::new(Cluster::of(4, 1), Options { low_ball: false, ..Options::default() });
    // n3 asks with a higher ballot than n2, and reaches only n1.
    theatre.fire(2, Timer::Deadline);
    theatre.fire(3, Timer::Deadline);
    theatre.pick(3, 1, is_prepare);
    theatre.lose(|from, to, said| from == 3 && (to == 2 || to == 4) && is_prepare(said));
    theatre.settle();
    assert_eq!(theatre.role(2), Role::Follower, "n1 and n3 refused; n2 and n4 are no majority");
    theatre.fire(3, Timer::Deadline);
    theatre.settle();
    assert_eq!(theatre.leaders(), [3], "it asks again with the same ballot");
    assert_eq!(theatre.promised(3), ballot(1, 3));
}

/// trex_promise_repair; TL-9.
#[test]
fn an_acceptor_with_a_stray_promise_is_won_back() {
    let mut theatre = cast(3);
    theatre.enter(3, journal(ballot(3, 3), &[], 0));
    theatre.elect(1);
    // It heard of the stray promise in the poll, and is above it at once; so let it be lost after the election.
    let above = theatre.promised(1);
    assert!(above > ballot(3, 3));
    theatre.propose(1, "value");
    theatre.enter(3, journal(ballot(9, 3), &[], 0));
    theatre.propose(1, "more");
    theatre.heartbeat(1);
    assert_eq!(theatre.lines(1), ["value", "more"], "a quorum is left");
    theatre.fire(1, Timer::QuorumCheck);
    theatre.settle();
    theatre.heartbeat(1);
    theatre.heartbeat(1);
    assert!((1..=3).all(|id| theatre.promised(id) == ballot(10, 1)), "all promise again");
    assert!((1..=3).all(|id| theatre.lines(id) == ["value", "more"]), "and no value changed");
}

/// A single voter needs nobody.
#[test]
fn alone_it_leads_at_once() {
    let mut theatre = cast(1);
    theatre.settle();
    theatre.propose(1, "mine");
    assert_eq!((theatre.leaders(), theatre.lines(1)), (vec![1], vec!["mine".to_string()]));
}

#[test]
fn leadership_is_handed_over_without_a_poll() {
    let mut theatre = led(3);
    theatre.propose(1, "before");
    let ticket = theatre.admin(1, Admin::Transfer(NodeId(3)));
    theatre.settle();
    theatre.heartbeat(3);
    assert_eq!((theatre.leaders(), theatre.outcome(1, ticket)), (vec![3], Some(&Outcome::Done)));
    assert_eq!(theatre.count(3, is_low_ball), 0);
}

#[test]
fn who_must_never_lead_never_asks() {
    let mut theatre = cast(3);
    let cluster = Cluster { priority: Priority::Never, ..Cluster::of(3, 2) };
    theatre.enter_as(cluster, Default::default());
    theatre.elect(2);
    assert_eq!((theatre.role(2), theatre.promised(2)), (Role::Follower, Term::ZERO));
    theatre.elect(1);
    assert_eq!(theatre.leaders(), [1]);
}

#[test]
fn who_cannot_write_any_more_wins_no_poll() {
    // Goal: ADR 31. Method: n2 polls, its disk stalls, and the answers come.
    let mut theatre = led(3);
    theatre.kill(1);
    theatre.fire(2, Timer::Deadline);
    theatre.input(2, Input::Health(DiskHealth::Stalled));
    let promised = theatre.promised(2);
    theatre.settle();
    assert_eq!((theatre.role(2), theatre.promised(2)), (Role::Follower, promised), "it promises itself nothing");
    let ticket = theatre.admin(2, Admin::Campaign);
    assert_eq!(theatre.outcome(2, ticket), Some(&Outcome::Refused(Refusal::BadTransferee(NodeId(2)))));
    theatre.elect(3);
    assert_eq!(theatre.leaders(), [3]);
}

#[test]
fn a_stray_promise_is_won_back_under_a_load_that_never_ends() {
    // Goal: TL-9 does not wait for a pause that never comes. Method: n3 has promised a ballot of its own that leads
    // nowhere; proposals are always under way when the quorum is checked.
    let mut theatre = led(3);
    theatre.deliver(3, 1, Message::AcceptNack { ballot: theatre.promised(1), promised: ballot(9, 3), committed: 0 });
    let before = theatre.promised(1);
    theatre.propose_quietly(1, "under way");
    theatre.fire(1, Timer::QuorumCheck);
    let origin = theatre.propose_quietly(1, "asked for a moment's patience");
    assert_eq!(theatre.refusal(1, origin), Some(Refusal::NotReady));
    theatre.settle();
    theatre.heartbeat(1);
    assert!(theatre.promised(1) > before, "a ballot above the stray promise");
    assert_eq!((theatre.leaders(), theatre.lines(1)), (vec![1], vec!["under way".to_string()]));
}
