//! Stories of elections: RV-1 to RV-10, and the suites of etcd/raft that pin them.

mod support;

use hustings_core::{Admin, Cluster, NodeId, Outcome, Priority, Role};
use hustings_raft::{Message, Options, Timer};
use support::{Stage, history, stage};

#[test]
fn a_plain_election_ends_with_one_leader_and_a_committed_blank() {
    // Goal: the plainest path. Method: n1's timer fires; everything is delivered.
    let mut stage = stage(3);
    stage.fire(1, Timer::Election);
    stage.settle();
    assert_eq!(stage.leaders(), [1]);
    for id in 1..=3 {
        assert_eq!((stage.term(id), stage.commit(id), stage.leader_of(id)), (1, 1, Some(1)));
    }
}

#[test]
fn a_vote_counts_only_once_it_is_durable() {
    // Goal: EL-01, the candidate's side. Method: hold the candidate's disk; nobody hears of its candidacy.
    let mut stage = stage(3);
    stage.hold_disk(1);
    stage.fire(1, Timer::Election);
    stage.settle();
    assert_eq!(stage.role(1), Role::Candidate);
    assert_eq!(stage.term(2), 0, "the request rests on the candidate's own promise");
    stage.release_disk(1);
    stage.settle();
    assert_eq!(stage.leaders(), [1]);
}

#[test]
fn a_vote_survives_a_crash() {
    // Goal: EL-01, the voter's side. Method: n2 votes for n1, its disk held; it crashes before the sync and votes for n3.
    let mut stage = stage(3);
    stage.lose(|_, _, message| matches!(message, Message::Append { .. }));
    stage.cut(1, 3);
    stage.hold_disk(2);
    stage.fire(1, Timer::Election);
    stage.settle();
    assert_eq!(stage.role(1), Role::Candidate, "the grant rests on the vote's record");
    stage.release_disk(2);
    stage.settle();
    assert_eq!(stage.role(1), Role::Leader);
    stage.isolate(1);
    stage.restart(2);
    stage.heal();
    stage.isolate(1);
    stage.fire(3, Timer::Election);
    stage.settle();
    assert_eq!((stage.role(3), stage.term(3)), (Role::Follower, 1), "n2 remembers term 1, so n3's first try fails");
    stage.fire(3, Timer::Election);
    stage.settle();
    assert_eq!((stage.role(3), stage.term(3)), (Role::Leader, 2));
}

#[test]
fn a_single_voter_leads_once_its_own_vote_is_durable() {
    let stage = stage(1);
    assert_eq!((stage.leaders(), stage.commit(1)), (vec![1], 1));
}

#[test]
fn a_node_that_comes_back_changes_no_term() {
    // Goal: raft_prevote_rejoin, RLV-1. Method: n3 is alone for a hundred timeouts, then heals.
    let mut stage = stage(3);
    stage.elect(1);
    stage.isolate(3);
    for _ in 0..100 {
        stage.forget_freshness(3);
        stage.fire(3, Timer::Election);
        stage.settle();
    }
    stage.heal();
    stage.heartbeat(1);
    assert_eq!((stage.term(1), stage.term(3), stage.leaders()), (1, 1, vec![1]));
    assert_eq!(stage.leader_of(3), Some(1));
}

#[test]
fn voters_that_hear_their_leader_refuse_others_without_moving() {
    // Goal: RV-3. Method: n3 loses only its link to the leader and campaigns.
    let mut stage = stage(3);
    stage.elect(1);
    stage.cut(1, 3);
    stage.forget_freshness(3);
    stage.fire(3, Timer::Election);
    stage.settle();
    assert_eq!((stage.role(3), stage.term(2), stage.term(3)), (Role::PreCandidate, 1, 1));
    assert_eq!(stage.leader(), 1);
}

#[test]
fn a_leader_that_hears_no_quorum_steps_down_in_its_term() {
    // Goal: raft_checkquorum_stepdown, PC-05. Method: two silent intervals.
    let mut stage = stage(3);
    stage.elect(1);
    stage.isolate(1);
    stage.fire(1, Timer::QuorumCheck);
    stage.fire(1, Timer::QuorumCheck);
    assert_eq!((stage.role(1), stage.term(1), stage.leader_of(1)), (Role::Follower, 1, None));
}

#[test]
fn an_expired_voter_can_elect_while_another_still_refuses() {
    // Goal: `checkquorum` of etcd/raft: one voter's lease has passed, the other's has not.
    let mut stage = stage(3);
    stage.elect(1);
    stage.isolate(1);
    stage.fire(1, Timer::QuorumCheck);
    stage.fire(1, Timer::QuorumCheck);
    assert_eq!(stage.role(1), Role::Follower);
    stage.heal();
    stage.forget_freshness(2);
    stage.fire(2, Timer::Election);
    stage.settle();
    let because = &stage.member(2).transitions.iter().rev().find(|t| t.to == Role::Leader).expect("n2 won").because;
    assert_eq!(because.to_string(), "vote won {n1 n2}", "n3 stuck to its leader");
    assert_eq!((stage.leader(), stage.term(2)), (2, 2));
}

#[test]
fn a_dead_leaders_survivors_elect_at_once() {
    // Goal: a crash that the kernel reports needs no timeout. Method: both links drop, n2's short timer fires.
    let mut stage = stage(3);
    stage.elect(1);
    stage.kill(1);
    stage.fire(2, Timer::Election);
    stage.settle();
    assert_eq!((stage.leader(), stage.term(2)), (2, 2));
}

#[test]
fn a_voter_that_refused_for_its_leaders_sake_answers_again_when_the_leader_dies() {
    // Goal: ADR 30. Method: n2 sees the death first; n3 refuses, then sees it too.
    let mut stage = stage(3);
    stage.elect(1);
    stage.isolate(1);
    stage.link_down(2, 1);
    stage.fire(2, Timer::Election);
    stage.settle();
    assert_eq!(stage.role(2), Role::PreCandidate, "n3 still hears n1");
    stage.kill(1);
    stage.settle();
    assert_eq!((stage.leader(), stage.term(2)), (2, 2));
}

#[test]
fn refusals_for_a_dead_leaders_sake_do_not_end_an_eager_campaign() {
    // Goal: five nodes; all others still hear the leader when n2 asks, then see it die a moment later.
    let mut stage = stage(5);
    stage.elect(1);
    stage.isolate(1);
    stage.link_down(2, 1);
    stage.fire(2, Timer::Election);
    stage.settle();
    assert_eq!(stage.role(2), Role::PreCandidate, "three refusals, but none is final");
    stage.kill(1);
    stage.settle();
    assert_eq!((stage.leader(), stage.term(2)), (2, 2));
}

#[test]
fn a_broken_link_does_not_disturb_a_leader_whom_a_majority_hears() {
    // Goal: PC-03. Method: n3's link to the leader breaks visibly; it asks as often as it may.
    let mut stage = stage(3);
    stage.elect(1);
    stage.cut(1, 3);
    stage.link_down(3, 1);
    stage.link_down(1, 3);
    for _ in 0..50 {
        stage.fire(3, Timer::Election);
        stage.settle();
        stage.heartbeat(1);
    }
    assert_eq!((stage.leader(), stage.term(1), stage.term(2), stage.term(3)), (1, 1, 1, 1));
}

#[test]
fn a_behind_candidate_is_refused_and_the_fresher_wins() {
    let mut stage = stage(3);
    stage.elect(1);
    stage.isolate(2);
    stage.propose(1, "x");
    stage.heal();
    stage.kill(1);
    stage.fire(2, Timer::Election);
    stage.settle();
    assert_eq!(stage.role(2), Role::PreCandidate, "n3 holds more");
    stage.fire(3, Timer::Election);
    stage.settle();
    assert_eq!((stage.leader(), stage.commit(2), stage.commit(3)), (3, 3, 3));
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
        let mut stage = stage(3);
        stage.start(2, history(3, None, own));
        let last = hustings_core::Lsn::new(term, index);
        let request = hustings_raft::VoteRequest {
            term: hustings_core::Term(4),
            last,
            commit: hustings_core::Lsn::ZERO,
            priority: Priority::Normal,
            is_transfer: false,
        };
        stage.deliver(1, 2, Message::Vote(request));
        let replies = stage.take_messages();
        let granted =
            replies.iter().any(|(_, _, message)| matches!(message, Message::VoteReply(reply) if reply.is_granted));
        assert_eq!(granted, grants, "own {own:?} against {last}");
    }
}

#[test]
fn a_node_votes_once_and_repeats_that_vote() {
    let mut stage = stage(3);
    let request = |priority| hustings_raft::VoteRequest {
        term: hustings_core::Term(1),
        last: hustings_core::Lsn::ZERO,
        commit: hustings_core::Lsn::ZERO,
        priority,
        is_transfer: false,
    };
    for (from, grants) in [(1, true), (3, false), (1, true)] {
        stage.deliver(from, 2, Message::Vote(request(Priority::Normal)));
        let replies = stage.take_messages();
        let [(2, to, Message::VoteReply(reply))] = &replies[..] else { panic!("one reply, not {replies:?}") };
        assert_eq!((*to, reply.is_granted), (from, grants));
    }
}

#[test]
fn late_and_double_votes_of_another_campaign_do_not_count() {
    // Goal: EL-03, EL-04. Method: keep the grants of term 1, campaign again, deliver them twice.
    let mut stage =
        Stage::new(Cluster::of(5, 1), Options { pre_vote: false, check_quorum: true, ..Options::default() });
    stage.fire(1, Timer::Election);
    let requests = stage.take_messages();
    for (from, to, message) in requests.into_iter().take(2) {
        stage.deliver(from, to, message);
    }
    let grants = stage.take_messages();
    assert_eq!(grants.len(), 2);
    stage.fire(1, Timer::Election);
    stage.take_messages();
    for (from, to, message) in grants.iter().chain(&grants).cloned() {
        stage.deliver(from, to, message);
    }
    assert_eq!((stage.role(1), stage.term(1)), (Role::Candidate, 2));
}

#[test]
fn a_candidate_follows_a_leader_of_its_own_term() {
    // Goal: RT-5. Method: n1 and n3 campaign in one term; n1 wins; its blank reaches n3.
    let mut stage =
        Stage::new(Cluster::of(3, 1), Options { pre_vote: false, check_quorum: true, ..Options::default() });
    stage.fire(1, Timer::Election);
    stage.fire(3, Timer::Election);
    stage.settle();
    assert_eq!((stage.leaders(), stage.term(3), stage.leader_of(3)), (vec![1], 1, Some(1)));
}

#[test]
fn a_node_in_a_later_term_frees_itself_from_an_old_leader() {
    // Goal: RT-2 a. Method: n3 went to term 5 on its own; the leader of term 1 speaks to it.
    let mut stage =
        Stage::new(Cluster::of(3, 1), Options { pre_vote: false, check_quorum: true, ..Options::default() });
    stage.elect(1);
    stage.isolate(3);
    for _ in 0..4 {
        stage.fire(3, Timer::Election);
    }
    stage.settle();
    stage.heal();
    stage.heartbeat(1);
    assert_eq!((stage.role(1), stage.term(1)), (Role::Follower, 5));
}

#[test]
fn an_absurd_term_is_ignored() {
    // Goal: "term jump" in docs/protocols/rules/failures.md.
    let mut stage = stage(3);
    stage.elect(1);
    for term in [u64::MAX, u64::MAX - 1, (1 << 63) - 1] {
        let message = Message::Heartbeat { term: hustings_core::Term(term), commit: 0, position: 0 };
        stage.deliver(3, 2, message);
    }
    assert_eq!((stage.term(2), stage.leader_of(2)), (1, Some(1)));
}

#[test]
fn the_preferred_member_campaigns_first_and_gets_leadership_back() {
    let mut cluster = Cluster::of(3, 1);
    cluster.priority = Priority::Normal;
    let mut stage = Stage::new(cluster.clone(), Options::default());
    let preferred = Cluster { me: NodeId(3), priority: Priority::Preferred, ..cluster };
    stage.start_as(3, preferred, history(0, None, &[]));
    // A longer log overrides preference, equal logs do not (RV-10).
    stage.cut(1, 2);
    stage.fire(1, Timer::Election);
    stage.settle();
    assert_eq!(stage.role(1), Role::PreCandidate, "n3 stands back for nobody that holds no more than itself");
    stage.heal();
    stage.fire(3, Timer::Election);
    stage.settle();
    assert_eq!(stage.leader(), 3);
    stage.transfer(3, 1);
    stage.settle();
    assert_eq!(stage.leader(), 1);
    for _ in 0..5 {
        if stage.role(1) == Role::Leader {
            stage.heartbeat(1);
            stage.fire(1, Timer::QuorumCheck);
            stage.settle();
        }
    }
    assert_eq!(stage.leader(), 3, "leadership returns to the one that is preferred");
}

#[test]
fn one_that_never_leads_still_votes() {
    let cluster = Cluster { priority: Priority::Never, ..Cluster::of(3, 1) };
    let mut stage = stage(3);
    stage.start_as(1, cluster, history(0, None, &[]));
    stage.fire(1, Timer::Election);
    stage.settle();
    assert_eq!(stage.role(1), Role::Follower);
    stage.cut(2, 3);
    stage.fire(2, Timer::Election);
    stage.settle();
    assert_eq!(stage.leader(), 2);
}

#[test]
fn a_forgotten_leader_lets_an_up_to_date_peer_win() {
    // Goal: `forget_leader_prevote_checkquorum`.
    let mut stage = stage(3);
    stage.elect(1);
    let ticket = stage.admin(3, 1, Admin::ForgetLeader);
    assert_eq!(stage.outcome(3, ticket), Some(&Outcome::Done));
    stage.forget_freshness(2);
    stage.fire(2, Timer::Election);
    stage.settle();
    assert_eq!((stage.leader(), stage.term(2)), (2, 2));
}

#[test]
fn a_heartbeat_brings_a_forgotten_leader_back() {
    let mut stage = stage(3);
    stage.elect(1);
    stage.admin(3, 1, Admin::ForgetLeader);
    assert_eq!(stage.leader_of(3), None);
    stage.heartbeat(1);
    assert_eq!(stage.leader_of(3), Some(1));
}

#[test]
fn a_stalled_disk_gives_leadership_away_and_does_not_take_it() {
    // Goal: ST-07; ADR 31.
    let mut stage = stage(3);
    stage.elect(1);
    stage.input(1, hustings_core::Input::Health(hustings_core::DiskHealth::Stalled));
    stage.settle();
    assert_ne!(stage.leader(), 1);
    stage.forget_freshness(1);
    stage.fire(1, Timer::Election);
    stage.settle();
    assert_ne!(stage.role(1), Role::PreCandidate, "one that cannot write does not campaign");
}

#[test]
fn a_disk_that_stalls_while_its_node_asks_ends_the_campaign() {
    // Goal: ST-07. Seed 1165 of the proving ground: n1 asks, its disk stalls, the answers come, and it must not campaign.
    for pre_vote in [true, false] {
        let mut stage = Stage::new(Cluster::of(3, 1), Options { pre_vote, ..Options::default() });
        stage.fire(1, Timer::Election);
        assert_ne!(stage.role(1), Role::Follower);
        stage.input(1, hustings_core::Input::Health(hustings_core::DiskHealth::Stalled));
        stage.settle();
        assert_eq!(stage.role(1), Role::Follower, "with pre-vote {pre_vote}");
    }
}

#[test]
fn commit_knowledge_travels_with_votes() {
    // Goal: RV-9. Method: n2 holds the entry but not its commit; the candidate knows.
    let mut stage = stage(3);
    stage.elect(1);
    stage.lose(|_, to, message| to == 2 && matches!(message, Message::Commit { .. } | Message::Heartbeat { .. }));
    stage.propose(1, "x");
    assert_eq!((stage.commit(2), stage.commit(3)), (1, 2));
    stage.lose_nothing();
    stage.kill(1);
    stage.fire(3, Timer::Election);
    let asked = stage.take_messages();
    for (from, to, message) in asked {
        stage.deliver(from, to, message);
    }
    assert_eq!(stage.commit(2), 2);
}
