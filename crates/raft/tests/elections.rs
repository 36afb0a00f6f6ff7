//! Stories of elections: RV-1 to RV-10, and the suites of etcd/raft that pin them.

mod support;

use hustings_core::{Admin, Cluster, NodeId, Outcome, Priority, Role};
use hustings_raft::{Message, Options, Timer};
use support::{Theatre, Verbs as _, cast, history};

#[test]
fn a_plain_election_ends_with_one_leader_and_a_committed_blank() {
    // Goal: the plainest path. Method: n1's timer fires; everything is delivered.
    let mut theatre = cast(3);
    theatre.fire(1, Timer::Election);
    theatre.settle();
    assert_eq!(theatre.leaders(), [1]);
    for id in 1..=3 {
        assert_eq!((theatre.term(id), theatre.commit(id), theatre.leader_of(id)), (1, 1, Some(1)));
    }
}

#[test]
fn a_vote_counts_only_once_it_is_durable() {
    // Goal: EL-01, the candidate's side. Method: hold the candidate's disk; nobody hears of its candidacy.
    let mut theatre = cast(3);
    theatre.hold_disk(1);
    theatre.fire(1, Timer::Election);
    theatre.settle();
    assert_eq!(theatre.role(1), Role::Candidate);
    assert_eq!(theatre.term(2), 0, "the request rests on the candidate's own promise");
    theatre.release_disk(1);
    theatre.settle();
    assert_eq!(theatre.leaders(), [1]);
}

#[test]
fn a_vote_survives_a_crash() {
    // Goal: EL-01, the voter's side. Method: n2 votes for n1, its disk held; it crashes before the sync and votes for n3.
    let mut theatre = cast(3);
    theatre.keep_losing(|_, _, message| matches!(message, Message::Append { .. }));
    theatre.cut(1, 3);
    theatre.hold_disk(2);
    theatre.fire(1, Timer::Election);
    theatre.settle();
    assert_eq!(theatre.role(1), Role::Candidate, "the grant rests on the vote's record");
    theatre.release_disk(2);
    theatre.settle();
    assert_eq!(theatre.role(1), Role::Leader);
    theatre.isolate(1);
    theatre.restart(2);
    theatre.heal();
    theatre.isolate(1);
    theatre.fire(3, Timer::Election);
    theatre.settle();
    assert_eq!((theatre.role(3), theatre.term(3)), (Role::Follower, 1), "n2 remembers term 1, so n3's first try fails");
    theatre.fire(3, Timer::Election);
    theatre.settle();
    assert_eq!((theatre.role(3), theatre.term(3)), (Role::Leader, 2));
}

#[test]
fn a_single_voter_leads_once_its_own_vote_is_durable() {
    let theatre = cast(1);
    assert_eq!((theatre.leaders(), theatre.commit(1)), (vec![1], 1));
}

#[test]
fn a_node_that_comes_back_changes_no_term() {
    // Goal: raft_prevote_rejoin, RLV-1. Method: n3 is alone for a hundred timeouts, then heals.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(3);
    for _ in 0..100 {
        theatre.forget_freshness(3);
        theatre.fire(3, Timer::Election);
        theatre.settle();
    }
    theatre.heal();
    theatre.heartbeat(1);
    assert_eq!((theatre.term(1), theatre.term(3), theatre.leaders()), (1, 1, vec![1]));
    assert_eq!(theatre.leader_of(3), Some(1));
}

#[test]
fn voters_that_hear_their_leader_refuse_others_without_moving() {
    // Goal: RV-3. Method: n3 loses only its link to the leader and campaigns.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.cut(1, 3);
    theatre.forget_freshness(3);
    theatre.fire(3, Timer::Election);
    theatre.settle();
    assert_eq!((theatre.role(3), theatre.term(2), theatre.term(3)), (Role::PreCandidate, 1, 1));
    assert_eq!(theatre.leader(), 1);
}

#[test]
fn a_leader_that_hears_no_quorum_steps_down_in_its_term() {
    // Goal: raft_checkquorum_stepdown, PC-05. Method: two silent intervals.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(1);
    theatre.fire(1, Timer::QuorumCheck);
    theatre.fire(1, Timer::QuorumCheck);
    assert_eq!((theatre.role(1), theatre.term(1), theatre.leader_of(1)), (Role::Follower, 1, None));
}

#[test]
fn an_expired_voter_can_elect_while_another_still_refuses() {
    // Goal: `checkquorum` of etcd/raft: one voter's lease has passed, the other's has not.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(1);
    theatre.fire(1, Timer::QuorumCheck);
    theatre.fire(1, Timer::QuorumCheck);
    assert_eq!(theatre.role(1), Role::Follower);
    theatre.heal();
    theatre.forget_freshness(2);
    theatre.fire(2, Timer::Election);
    theatre.settle();
    let because = &theatre.actor(2).transitions.iter().rev().find(|t| t.to == Role::Leader).expect("n2 won").because;
    assert_eq!(because.to_string(), "vote won {n1 n2}", "n3 stuck to its leader");
    assert_eq!((theatre.leader(), theatre.term(2)), (2, 2));
}

#[test]
fn a_dead_leaders_survivors_elect_at_once() {
    // Goal: a crash that the kernel reports needs no timeout. Method: both links drop, n2's short timer fires.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.kill(1);
    theatre.fire(2, Timer::Election);
    theatre.settle();
    assert_eq!((theatre.leader(), theatre.term(2)), (2, 2));
}

#[test]
fn a_voter_that_refused_for_its_leaders_sake_answers_again_when_the_leader_dies() {
    // Goal: ADR 30. Method: n2 sees the death first; n3 refuses, then sees it too.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(1);
    theatre.link_down(2, 1);
    theatre.fire(2, Timer::Election);
    theatre.settle();
    assert_eq!(theatre.role(2), Role::PreCandidate, "n3 still hears n1");
    theatre.kill(1);
    theatre.settle();
    assert_eq!((theatre.leader(), theatre.term(2)), (2, 2));
}

#[test]
fn refusals_for_a_dead_leaders_sake_do_not_end_an_eager_campaign() {
    // Goal: five nodes; all others still hear the leader when n2 asks, then see it die a moment later.
    let mut theatre = cast(5);
    theatre.elect(1);
    theatre.isolate(1);
    theatre.link_down(2, 1);
    theatre.fire(2, Timer::Election);
    theatre.settle();
    assert_eq!(theatre.role(2), Role::PreCandidate, "three refusals, but none is final");
    theatre.kill(1);
    theatre.settle();
    assert_eq!((theatre.leader(), theatre.term(2)), (2, 2));
}

#[test]
fn a_broken_link_does_not_disturb_a_leader_whom_a_majority_hears() {
    // Goal: PC-03. Method: n3's link to the leader breaks visibly; it asks as often as it may.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.cut(1, 3);
    theatre.link_down(3, 1);
    theatre.link_down(1, 3);
    for _ in 0..50 {
        theatre.fire(3, Timer::Election);
        theatre.settle();
        theatre.heartbeat(1);
    }
    assert_eq!((theatre.leader(), theatre.term(1), theatre.term(2), theatre.term(3)), (1, 1, 1, 1));
}

#[test]
fn a_behind_candidate_is_refused_and_the_fresher_wins() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(2);
    theatre.propose(1, "x");
    theatre.heal();
    theatre.kill(1);
    theatre.fire(2, Timer::Election);
    theatre.settle();
    assert_eq!(theatre.role(2), Role::PreCandidate, "n3 holds more");
    theatre.fire(3, Timer::Election);
    theatre.settle();
    assert_eq!((theatre.leader(), theatre.commit(2), theatre.commit(3)), (3, 3, 3));
}

#[test]
fn logs_decide_who_may_lead() {
    // Goal: the up-to-date table of the paper tests (Raft §5.4.1), all rows.
    let rows: [(&[u64], u64, u64, bool); 8] = [
        (&[1], 1, 1, true),
        (&[1], 1, 2, true),
        (&[1, 1], 1, 1, false),
        (&[1], 2, 1, true),
        (&[1], 2, 2, true),
        (&[1, 1], 2, 1, true),
        (&[2], 1, 1, false),
        (&[2, 2], 1, 2, false),
    ];
    for (own, term, index, grants) in rows {
        let mut theatre = cast(3);
        theatre.enter(2, history(3, None, own));
        let last = hustings_core::Lsn::new(term, index);
        let request = hustings_raft::VoteRequest {
            term: hustings_core::Term(4),
            last,
            commit: hustings_core::Lsn::ZERO,
            priority: Priority::Normal,
            is_transfer: false,
        };
        theatre.deliver(1, 2, Message::Vote(request));
        let replies = theatre.take_messages();
        let granted =
            replies.iter().any(|(_, _, message)| matches!(message, Message::VoteReply(reply) if reply.is_granted));
        assert_eq!(granted, grants, "own {own:?} against {last}");
    }
}

#[test]
fn a_node_votes_once_and_repeats_that_vote() {
    let mut theatre = cast(3);
    let request = |priority| hustings_raft::VoteRequest {
        term: hustings_core::Term(1),
        last: hustings_core::Lsn::ZERO,
        commit: hustings_core::Lsn::ZERO,
        priority,
        is_transfer: false,
    };
    for (from, grants) in [(1, true), (3, false), (1, true)] {
        theatre.deliver(from, 2, Message::Vote(request(Priority::Normal)));
        let replies = theatre.take_messages();
        let [(2, to, Message::VoteReply(reply))] = &replies[..] else { panic!("one reply, not {replies:?}") };
        assert_eq!((*to, reply.is_granted), (from, grants));
    }
}

#[test]
fn late_and_double_votes_of_another_campaign_do_not_count() {
    // Goal: EL-03, EL-04. Method: keep the grants of term 1, campaign again, deliver them twice.
    let mut theatre =
        Theatre::new(Cluster::of(5, 1), Options { pre_vote: false, check_quorum: true, ..Options::default() });
    theatre.fire(1, Timer::Election);
    let requests = theatre.take_messages();
    for (from, to, message) in requests.into_iter().take(2) {
        theatre.deliver(from, to, message);
    }
    let grants = theatre.take_messages();
    assert_eq!(grants.len(), 2);
    theatre.fire(1, Timer::Election);
    theatre.take_messages();
    for (from, to, message) in grants.iter().chain(&grants).cloned() {
        theatre.deliver(from, to, message);
    }
    assert_eq!((theatre.role(1), theatre.term(1)), (Role::Candidate, 2));
}

#[test]
fn a_candidate_follows_a_leader_of_its_own_term() {
    // Goal: RT-5. Method: n1 and n3 campaign in one term; n1 wins; its blank reaches n3.
    let mut theatre =
        Theatre::new(Cluster::of(3, 1), Options { pre_vote: false, check_quorum: true, ..Options::default() });
    theatre.fire(1, Timer::Election);
    theatre.fire(3, Timer::Election);
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.term(3), theatre.leader_of(3)), (vec![1], 1, Some(1)));
}

#[test]
fn a_node_in_a_later_term_frees_itself_from_an_old_leader() {
    // Goal: RT-2 a. Method: n3 went to term 5 on its own; the leader of term 1 speaks to it.
    let mut theatre =
        Theatre::new(Cluster::of(3, 1), Options { pre_vote: false, check_quorum: true, ..Options::default() });
    theatre.elect(1);
    theatre.isolate(3);
    for _ in 0..4 {
        theatre.fire(3, Timer::Election);
    }
    theatre.settle();
    theatre.heal();
    theatre.heartbeat(1);
    assert_eq!((theatre.role(1), theatre.term(1)), (Role::Follower, 5));
}

#[test]
fn an_absurd_term_is_ignored() {
    // Goal: "term jump" in docs/protocols/rules/failures.md.
    let mut theatre = cast(3);
    theatre.elect(1);
    for term in [u64::MAX, u64::MAX - 1, (1 << 63) - 1] {
        let message = Message::Heartbeat { term: hustings_core::Term(term), commit: 0, position: 0 };
        theatre.deliver(3, 2, message);
    }
    assert_eq!((theatre.term(2), theatre.leader_of(2)), (1, Some(1)));
}

#[test]
fn the_preferred_member_campaigns_first_and_gets_leadership_back() {
    let mut cluster = Cluster::of(3, 1);
    cluster.priority = Priority::Normal;
    let mut theatre = Theatre::new(cluster.clone(), Options::default());
    let preferred = Cluster { me: NodeId(3), priority: Priority::Preferred, ..cluster };
    theatre.enter_as(preferred, history(0, None, &[]));
    // A longer log overrides preference, equal logs do not (RV-10).
    theatre.cut(1, 2);
    theatre.fire(1, Timer::Election);
    theatre.settle();
    assert_eq!(theatre.role(1), Role::PreCandidate, "n3 stands back for nobody that holds no more than itself");
    theatre.heal();
    theatre.fire(3, Timer::Election);
    theatre.settle();
    assert_eq!(theatre.leader(), 3);
    theatre.transfer(3, 1);
    theatre.settle();
    assert_eq!(theatre.leader(), 1);
    for _ in 0..5 {
        if theatre.role(1) == Role::Leader {
            theatre.heartbeat(1);
            theatre.fire(1, Timer::QuorumCheck);
            theatre.settle();
        }
    }
    assert_eq!(theatre.leader(), 3, "leadership returns to the one that is preferred");
}

#[test]
fn one_that_never_leads_still_votes() {
    let cluster = Cluster { priority: Priority::Never, ..Cluster::of(3, 1) };
    let mut theatre = cast(3);
    theatre.enter_as(cluster, history(0, None, &[]));
    theatre.fire(1, Timer::Election);
    theatre.settle();
    assert_eq!(theatre.role(1), Role::Follower);
    theatre.cut(2, 3);
    theatre.fire(2, Timer::Election);
    theatre.settle();
    assert_eq!(theatre.leader(), 2);
}

#[test]
fn a_forgotten_leader_lets_an_up_to_date_peer_win() {
    // Goal: `forget_leader_prevote_checkquorum`.
    let mut theatre = cast(3);
    theatre.elect(1);
    let ticket = theatre.admin(3, Admin::ForgetLeader);
    assert_eq!(theatre.outcome(3, ticket), Some(&Outcome::Done));
    theatre.forget_freshness(2);
    theatre.fire(2, Timer::Election);
    theatre.settle();
    assert_eq!((theatre.leader(), theatre.term(2)), (2, 2));
}

#[test]
fn a_heartbeat_brings_a_forgotten_leader_back() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.admin(3, Admin::ForgetLeader);
    assert_eq!(theatre.leader_of(3), None);
    theatre.heartbeat(1);
    assert_eq!(theatre.leader_of(3), Some(1));
}

#[test]
fn a_stalled_disk_gives_leadership_away_and_does_not_take_it() {
    // Goal: ST-07; ADR 31.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.input(1, hustings_core::Input::Health(hustings_core::DiskHealth::Stalled));
    theatre.settle();
    assert_ne!(theatre.leader(), 1);
    theatre.forget_freshness(1);
    theatre.fire(1, Timer::Election);
    theatre.settle();
    assert_ne!(theatre.role(1), Role::PreCandidate, "one that cannot write does not campaign");
}

#[test]
fn a_disk_that_stalls_while_its_node_asks_ends_the_campaign() {
    // Goal: ST-07. Seed 1165 of the proving ground: n1 asks, its disk stalls, the answers come, and it must not campaign.
    for pre_vote in [true, false] {
        let mut theatre = Theatre::new(Cluster::of(3, 1), Options { pre_vote, ..Options::default() });
        theatre.fire(1, Timer::Election);
        assert_ne!(theatre.role(1), Role::Follower);
        theatre.input(1, hustings_core::Input::Health(hustings_core::DiskHealth::Stalled));
        theatre.settle();
        assert_eq!(theatre.role(1), Role::Follower, "with pre-vote {pre_vote}");
    }
}

#[test]
fn commit_knowledge_travels_with_votes() {
    // Goal: RV-9. Method: n2 holds the entry but not its commit; the candidate knows.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre
        .keep_losing(|_, to, message| to == 2 && matches!(message, Message::Commit { .. } | Message::Heartbeat { .. }));
    theatre.propose(1, "x");
    assert_eq!((theatre.commit(2), theatre.commit(3)), (1, 2));
    theatre.lose_nothing();
    theatre.kill(1);
    theatre.fire(3, Timer::Election);
    let asked = theatre.take_messages();
    for (from, to, message) in asked {
        theatre.deliver(from, to, message);
    }
    assert_eq!(theatre.commit(2), 2);
}
