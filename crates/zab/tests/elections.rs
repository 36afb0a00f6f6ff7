//! Elections and discovery, by the names of the scenarios in `docs/protocols/rules` (ZB-1 to ZB-5, ZB-8, ZB-9) and by what is ours.

mod support;

use hustings_core::{
    Admin, Change, Cluster, Durable, Lsn, MembershipChange, NodeId, Outcome, Priority, Protocol, Role, Term,
};
use hustings_zab::{Message, Notification, Options, ServerState, Standing, Timer, Vote};
use support::{Theatre, Verbs as _, cast, history};

fn vote(leader: u64, epoch: u64) -> Vote {
    Vote { leader: NodeId(leader), epoch: Term(epoch), last: Lsn::ZERO, standing: Standing::Normal }
}

fn says(state: ServerState, vote: Vote, round: u64) -> Message {
    Message::Notification(Notification { state, vote, round, commit: Lsn::ZERO, is_answer: true })
}

/// These nodes start from these disks; the others are down.
fn started(voters: u64, disks: &[(u64, Durable)]) -> Theatre {
    let mut theatre = cast(voters);
    theatre.actors.clear();
    theatre.table.clear();
    for (id, durable) in disks {
        theatre.enter(*id, durable.clone());
    }
    theatre
}

#[test]
fn zb_1_a_fresh_cluster_elects_as_soon_as_two_agree_and_the_third_joins() {
    // Goal: ZB-1. Method: n1 and n2 start; n3 is not there, and they know that only after finalizeWait.
    let mut theatre = started(3, &[(1, Durable::default()), (2, Durable::default())]);
    theatre.settle();
    assert_eq!(theatre.leaders(), [], "n3 might still speak");
    theatre.fire(1, Timer::Finalize);
    theatre.fire(2, Timer::Finalize);
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.term(2), theatre.leader_of(1)), (vec![2], 1, Some(2)));
    theatre.enter(3, Durable::default());
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.leader_of(3), theatre.term(3)), (vec![2], Some(2), 1));
    assert_eq!(theatre.actor(2).transitions.len(), 4, "nobody disturbed the leader");
}

#[test]
fn a_quorum_whose_other_voters_are_gone_does_not_wait() {
    // Goal: ours; finalizeWait is for those who might speak. Method: the link to n3 is known to be down.
    let mut theatre = cast(3);
    theatre.settle();
    assert_eq!(theatre.leaders(), [3]);
    theatre.kill(3);
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.term(2)), (vec![2], 2), "no timer had to fire");
}

#[test]
fn whoever_has_not_heard_the_leader_either_joins_the_first_that_looks() {
    // Goal: ours; a leader that stands still is replaced when the first follower misses it. Method: n3 leads and says nothing more; n1
    // looks, and n2, whose own timeout is longer, looks with it only once the shortest one has passed.
    let mut theatre = cast(3);
    theatre.settle();
    assert_eq!(theatre.leaders(), [3]);
    theatre.isolate(3);
    theatre.fire(1, Timer::Silence);
    theatre.settle();
    assert_eq!(theatre.leader_of(2), Some(3), "it may hear the leader yet");
    theatre.fire(2, Timer::Freshness);
    assert_eq!(theatre.leader_of(2), Some(3), "nobody has asked it since");
    theatre.fire(1, Timer::Resend);
    theatre.settle();
    theatre.fire(2, Timer::Finalize);
    theatre.fire(1, Timer::Finalize);
    theatre.settle();
    assert_eq!((theatre.leader_of(1), theatre.leader_of(2)), (Some(2), Some(2)));
}

#[test]
fn one_that_hears_its_leader_is_moved_by_nobody() {
    // Goal: a voter that is cut off from the leader alone disturbs no reign. Method: n1 looks and looks; n2 hears n3's PING in between.
    let mut theatre = cast(3);
    theatre.settle();
    theatre.cut(1, 3);
    theatre.fire(1, Timer::Silence);
    theatre.settle();
    theatre.fire(2, Timer::Freshness);
    theatre.heartbeat(3);
    for _ in 0..3 {
        theatre.fire_if_armed(1, Timer::Resend);
        theatre.settle();
    }
    assert_eq!((theatre.leaders(), theatre.leader_of(2), theatre.leader_of(1)), (vec![3], Some(3), None));
}

#[test]
fn one_that_only_the_hub_votes_for_gives_way_to_it() {
    // Goal: found by a guided search: n1 alone hears both others and votes for n3, the larger of two equals; n3 does not hear n5, and n5,
    // which reaches no quorum, votes for n1. Method: n2 and n4 are gone; votes are said again and again.
    let mut theatre = started(5, &[1, 3, 5].map(|id| (id, Durable::default())));
    for id in [1, 3, 5] {
        theatre.link_down(id, 2);
        theatre.link_down(id, 4);
    }
    // n3 heard n5 once, and so presumes that it is there.
    let nobody = Vote { standing: Standing::Never, ..vote(5, 0) };
    theatre.deliver(5, 3, says(ServerState::Looking, nobody, 1));
    theatre.link_down(5, 3);
    theatre.cut(3, 5);
    theatre.settle();
    assert_eq!(theatre.leaders(), []);
    for _ in 0..8 {
        for id in [1, 3, 5] {
            theatre.fire_if_armed(id, Timer::Resend);
            theatre.settle();
        }
    }
    assert_eq!(theatre.leaders(), [1]);
}

#[test]
fn a_vote_counts_whatever_its_zxid() {
    // Goal: rule 4 of fast leader election, by which ZooKeeper ignores a vote without a valid zxid. Here each is valid, and the
    // smallest is that of an empty history. Method: n1 holds nothing, and hears n2 alone.
    for (epoch, last) in [(0, Lsn::ZERO), (0, Lsn::new(0, 1)), (3, Lsn::new(3, 7)), (3, Lsn::new(3, 1 << 40))] {
        let mut theatre = started(3, &[(1, Durable::default())]);
        theatre.deliver(2, 1, says(ServerState::Looking, Vote { last, ..vote(2, epoch) }, 1));
        theatre.fire(1, Timer::Finalize);
        assert_eq!(theatre.value(1).chosen(), Some(NodeId(2)), "{last:?} of epoch {epoch}");
    }
}

#[test]
fn of_two_members_none_is_elected_alone() {
    // Goal: rule 11 of fast leader election is left out: no oracle stands in for the other of two. Method: n2 leads and dies, and n1
    // waits for longer and longer; then n2 is back.
    let mut theatre = cast(2);
    theatre.settle();
    theatre.propose(2, "x");
    let (leaders, disk) = (theatre.leaders(), theatre.actor(2).durable.clone());
    assert_eq!((leaders, theatre.lines(1)), (vec![2], vec!["x".to_string()]));
    theatre.kill(2);
    for _ in 0..20 {
        theatre.settle();
        theatre.fire_if_armed(1, Timer::Resend);
        theatre.fire_if_armed(1, Timer::Finalize);
    }
    assert_eq!((theatre.leaders(), theatre.value(1).chosen()), (vec![], None));
    theatre.enter(2, disk);
    theatre.join(1, 2);
    theatre.settle();
    assert_eq!(theatre.leaders().len(), 1, "the two agree at once");
}

#[test]
fn zb_2_the_freshest_history_wins_whatever_its_id() {
    // Goal: ZB-2. Method: n1 holds more of epoch 4 than n2, and n3 a longer log of epoch 3.
    let disks = [
        (1, history(4, 4, &[3, 3, 4, 4, 4, 4])),
        (2, history(4, 4, &[3, 3, 4])),
        (3, history(3, 3, &[3, 3, 3, 3, 3, 3, 3, 3])),
    ];
    let mut theatre = started(3, &disks);
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.term(1)), (vec![1], 5));
    assert!((1..=3).all(|id| theatre.last(id) == Lsn::new(4, 6) && theatre.commit(id) == 6));
    assert!(theatre.count(1, |message| matches!(message, Message::Diff { .. })) == 1, "n2 gets a DIFF");
    let cut = Lsn::new(3, 2);
    assert_eq!(theatre.count(1, |m| matches!(m, Message::Truncate { to, .. } if *to == cut)), 1, "n3 a TRUNC");
}

#[test]
fn zb_3_a_late_joiner_takes_the_round_of_those_who_have_settled() {
    // Goal: ZB-3. Method: n3 leads in a late round after several elections; n1 restarts with round 1.
    let mut theatre = cast(3);
    theatre.settle();
    for _ in 0..3 {
        theatre.fire(3, Timer::QuorumCheck);
        theatre.fire(3, Timer::QuorumCheck);
        theatre.settle();
    }
    let (leaders, term, round) = (theatre.leaders(), theatre.term(3), theatre.value(3).round());
    assert!(round > 3, "several elections: {round}");
    theatre.restart(1);
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.term(3)), (leaders, term), "no new election");
    assert_eq!((theatre.leader_of(1), theatre.value(1).round()), (Some(3), round));
}

#[test]
fn a_round_stays_where_a_member_was_described_and_not_where_the_voters_changed() {
    // Goal: RV-9. Method: n4 leads and dies. n2 holds a change that is committed, and learns of the commit by n3's vote.
    let described = Change::Describe(NodeId(3), hustings_core::Member { name: "c".into(), ..Default::default() });
    for (change, new_rounds) in [(described, 1), (Change::Remove(NodeId(1)), 2)] {
        let mut theatre = cast(4);
        theatre.settle();
        let (round, commit) = (theatre.value(2).round(), theatre.commit(2));
        theatre.change_quietly(4, &MembershipChange::of([change]));
        theatre.settle_until(4, |said| matches!(said, Message::Commit { .. }));
        theatre.lose(|_, to, said| to == 2 && matches!(said, Message::Commit { .. }));
        theatre.settle();
        assert_eq!((theatre.commit(2), theatre.commit(3)), (commit, commit + 1));
        theatre.kill(4);
        theatre.settle();
        assert_eq!((theatre.commit(2), theatre.value(2).round() - round), (commit + 1, new_rounds));
    }
}

#[test]
fn zb_4_a_dead_leader_is_not_followed_on_hearsay() {
    // Goal: ZB-4. Method: n3 looks; n1 says that it follows n2, and n2 says nothing, however often n1 repeats itself.
    let mut theatre = started(3, &[(3, Durable::default())]);
    for _ in 0..3 {
        theatre.deliver(1, 3, says(ServerState::Following, vote(2, 0), 7));
        theatre.fire(3, Timer::Resend);
    }
    assert_eq!(theatre.value(3).chosen(), None);
    theatre.deliver(2, 3, says(ServerState::Leading, vote(2, 0), 7));
    assert_eq!(theatre.value(3).chosen(), Some(NodeId(2)), "its own word counts");
}

#[test]
fn zb_5_nobody_leads_because_others_remember_an_earlier_round() {
    // Goal: ZB-5 (ZOOKEEPER-1514). Method: n3 is in round 2 and hears twice that it leads in round 1.
    let mut theatre = started(3, &[(3, Durable::default())]);
    theatre.deliver(1, 3, says(ServerState::Looking, vote(1, 0), 2));
    assert_eq!(theatre.value(3).round(), 2);
    theatre.deliver(1, 3, says(ServerState::Following, vote(3, 0), 1));
    theatre.deliver(2, 3, says(ServerState::Following, vote(3, 0), 1));
    assert_eq!((theatre.value(3).chosen(), theatre.value(3).round()), (None, 2));
}

#[test]
fn who_follows_one_that_was_carried_into_a_later_round_votes_again() {
    // Goal: nobody waits for one that never heard its vote. Method: n1 settles for n3; before n1's vote arrives, n2 carries n3
    // into a later round, where that vote is void, and dies. n3 still wants to lead, and only n1 can elect it.
    let mut theatre = started(3, &[(1, Durable::default()), (3, Durable::default())]);
    theatre.pick(3, 1, |message| matches!(message, Message::Notification(_)));
    theatre.fire(1, Timer::Finalize);
    assert_eq!((theatre.value(1).chosen(), theatre.value(1).round()), (Some(NodeId(3)), 1));
    theatre.deliver(2, 3, says(ServerState::Looking, vote(2, 0), 5));
    theatre.settle();
    assert_eq!((theatre.value(3).chosen(), theatre.value(3).round()), (None, 5), "n2 might still speak");
    assert_eq!((theatre.value(1).chosen(), theatre.value(1).round()), (None, 5), "n1 has voted again");
    theatre.fire(3, Timer::Finalize);
    theatre.fire(1, Timer::Finalize);
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.leader_of(1)), (vec![3], Some(3)), "no vain wait had to end");
}

#[test]
fn zb_8_an_old_leader_without_followers_resigns_and_commits_nothing() {
    // Goal: ZB-8. Method: n5 loses three of its four followers; they elect n4.
    let mut theatre = cast(5);
    theatre.settle();
    theatre.propose(5, "before");
    for id in [2, 3, 4] {
        theatre.cut(5, id);
        theatre.cut(1, id);
        theatre.link_down(id, 5);
        theatre.link_down(id, 1);
    }
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.term(4)), (vec![4, 5], 2));
    theatre.propose(5, "in vain");
    assert_eq!(theatre.commit(5), 1, "two of five hold it");
    for id in [1, 2, 3, 4] {
        theatre.fire_if_armed(5, Timer::Ping);
        let _ = id;
    }
    theatre.fire(5, Timer::QuorumCheck);
    theatre.fire(5, Timer::QuorumCheck);
    assert_eq!(theatre.leaders(), [4], "it resigned by itself");
    theatre.heal();
    for id in [2, 3, 4] {
        for other in [1, 5] {
            theatre.link_down(other, id);
            theatre.link_up(id, other);
            theatre.link_up(other, id);
        }
    }
    theatre.settle();
    assert_eq!(theatre.leaders(), [4]);
    theatre.propose(4, "after");
    assert!((1..=5).all(|id| theatre.lines(id) == ["before", "after"]), "what was in vain is gone everywhere");
}

#[test]
fn a_follower_that_promised_a_later_epoch_refuses_an_earlier_leader() {
    // Goal: ZB-8's second half, §5.8 rule 5. Method: n1 accepted epoch 4 and is told to follow a leader of epoch 3.
    let mut theatre = started(3, &[(1, history(4, 2, &[2]))]);
    theatre.deliver(3, 1, says(ServerState::Leading, vote(3, 3), 1));
    theatre.deliver(2, 1, says(ServerState::Following, vote(3, 3), 1));
    assert_eq!(theatre.value(1).chosen(), Some(NodeId(3)));
    theatre.deliver(3, 1, Message::LeaderInfo { connection: 1, epoch: Term(3) });
    assert_eq!((theatre.value(1).chosen(), theatre.term(1)), (None, 4));
    assert_eq!(theatre.count(1, |message| matches!(message, Message::AckEpoch { .. })), 0, "it promised nothing");
}

#[test]
fn zb_9_an_epoch_is_promised_once() {
    // Goal: ZB-9. Method: n1 accepted epoch 4 from somebody who died; n3 proposes 4 too, having not known of n1.
    let mut theatre = started(3, &[(1, history(4, 3, &[3]))]);
    theatre.deliver(3, 1, says(ServerState::Leading, vote(3, 3), 1));
    theatre.deliver(2, 1, says(ServerState::Following, vote(3, 3), 1));
    theatre.deliver(3, 1, Message::LeaderInfo { connection: 1, epoch: Term(4) });
    let is_no_promise = |message: &Message| matches!(message, Message::AckEpoch { is_promise: false, .. });
    assert_eq!(theatre.count(1, is_no_promise), 1, "ZooKeeper's -1: it follows and does not count");
}

#[test]
fn a_promise_leaves_only_once_it_is_durable() {
    // Goal: §5.2, "durable before use". Method: n1's disk is held while it is told of an epoch.
    let mut theatre = cast(3);
    theatre.hold_disk(1);
    theatre.settle();
    assert_eq!(theatre.count(1, |message| matches!(message, Message::AckEpoch { .. })), 0);
    theatre.sync_now(1);
    assert!(theatre.count(1, |message| matches!(message, Message::AckEpoch { .. })) > 0);
    assert_eq!(theatre.leader_of(1), Some(3));
}

/// n1, n2 and n3 of five, of which n1 and n3 do not hear each other.
fn chain() -> Theatre {
    chain_of(&[1, 2, 3].map(|id| (id, Durable::default())))
}

fn chain_of(disks: &[(u64, Durable)]) -> Theatre {
    let mut theatre = started(5, disks);
    theatre.cut(1, 3);
    theatre.table.retain(|(from, to, _)| (*from, *to) != (1, 3) && (*from, *to) != (3, 1));
    theatre
}

#[test]
fn who_reaches_no_quorum_asks_for_no_votes() {
    // Goal: in a chain the middle one leads, and not the larger id at its end, which no quorum can follow: 65 of 142 graphs of
    // four members failed by that. Method: everybody is told which links are down.
    let mut theatre = chain();
    for (at, peer) in [(1, 3), (3, 1), (1, 4), (1, 5), (2, 4), (2, 5), (3, 4), (3, 5)] {
        theatre.link_down(at, peer);
    }
    theatre.settle();
    assert_eq!(theatre.value(2).chosen(), Some(NodeId(2)), "all three agree");
    // The ends hear no quorum that does, and ask once more.
    theatre.fire(1, Timer::Resend);
    theatre.fire(3, Timer::Resend);
    theatre.settle();
    assert_eq!(theatre.leaders(), [2]);
    assert!([1, 3].iter().all(|id| theatre.leader_of(*id) == Some(2)));
}

#[test]
fn a_promise_that_came_to_nothing_keeps_nobody_from_its_own_choice() {
    // Goal: found by a guided search: the end of a chain had promised an epoch in which nobody ever led, and the middle, which it
    // voted for, spoke of an earlier one until its own was agreed upon. Method: n1 had promised epoch 2, everybody holds 1's.
    let mut theatre = chain_of(&[1, 2, 3].map(|id| (id, history(if id == 1 { 2 } else { 1 }, 1, &[1]))));
    for (at, peer) in [(1, 3), (3, 1), (1, 4), (1, 5), (2, 4), (2, 5), (3, 4), (3, 5)] {
        theatre.link_down(at, peer);
    }
    theatre.settle();
    assert_eq!(theatre.value(2).chosen(), Some(NodeId(2)), "all three agree");
    theatre.fire(1, Timer::Resend);
    theatre.fire(3, Timer::Resend);
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.term(2)), (vec![2], 3), "above what was promised");
    assert!([1, 3].iter().all(|id| theatre.leader_of(*id) == Some(2)));
}

#[test]
fn who_missed_an_epoch_and_nothing_in_it_leads_those_who_did_not() {
    // Goal: found by a guided search: the hub of a star held all that the others held, which had established one epoch more; it could not
    // lead them, nor any of them. Method: the middle of a chain.
    let mut theatre =
        chain_of(&[1, 2, 3].map(|id| if id == 2 { (id, history(1, 1, &[1])) } else { (id, history(2, 2, &[1])) }));
    for (at, peer) in [(1, 3), (3, 1), (1, 4), (1, 5), (2, 4), (2, 5), (3, 4), (3, 5)] {
        theatre.link_down(at, peer);
    }
    theatre.settle();
    theatre.fire(1, Timer::Resend);
    theatre.fire(3, Timer::Resend);
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.term(2)), (vec![2], 3));
    assert!([1, 3].iter().all(|id| theatre.leader_of(*id) == Some(2)));
}

#[test]
fn who_missed_an_epoch_does_not_lead_over_less_than_it_holds() {
    // Goal: the epoch still comes first where the logs differ: what the later one left out was not committed. Method: the same, and the
    // middle holds one message more of its own epoch.
    let mut theatre =
        chain_of(&[1, 2, 3].map(|id| if id == 2 { (id, history(1, 1, &[1, 1])) } else { (id, history(2, 2, &[1])) }));
    for (at, peer) in [(1, 3), (3, 1), (1, 4), (1, 5), (2, 4), (2, 5), (3, 4), (3, 5)] {
        theatre.link_down(at, peer);
    }
    theatre.settle();
    theatre.fire(1, Timer::Resend);
    theatre.fire(3, Timer::Resend);
    theatre.settle();
    assert_eq!(theatre.leaders(), []);
}

#[test]
fn a_connection_that_never_came_is_as_good_as_one_that_went_down() {
    // Goal: the same from a cold start, where no link goes down because none was up. Method: two waits are in vain.
    let mut theatre = chain();
    theatre.settle();
    assert_eq!(theatre.leaders(), []);
    for id in [3, 1, 2, 3, 1, 2] {
        theatre.fire_if_armed(id, Timer::Resend);
        theatre.settle();
    }
    for id in [1, 2, 3] {
        theatre.fire_if_armed(id, Timer::Finalize);
    }
    theatre.settle();
    assert_eq!(theatre.leaders(), [2]);
}

#[test]
fn a_follower_does_not_wait_for_one_that_would_rather_not_lead() {
    // Goal: n2 chose n3 just before n3 learned that it reaches no quorum. Method: n3's later word arrives while n2 waits for
    // LEADERINFO.
    let mut theatre = started(3, &[(2, Durable::default())]);
    theatre.deliver(3, 2, says(ServerState::Looking, vote(3, 0), 1));
    theatre.fire_if_armed(2, Timer::Finalize);
    assert_eq!(theatre.value(2).chosen(), Some(NodeId(3)));
    let weightless = Vote { standing: Standing::Never, ..vote(3, 0) };
    theatre.deliver(3, 2, says(ServerState::Looking, weightless, 1));
    assert_eq!(theatre.value(2).chosen(), Some(NodeId(3)), "a word of the same round may be an old one");
    theatre.deliver(3, 2, says(ServerState::Looking, weightless, 2));
    assert_eq!(theatre.value(2).chosen(), None);
}

#[test]
fn two_strangers_that_look_do_not_answer_each_other_for_ever() {
    // Goal: found by seeds: two nodes, each no voter in the other's eyes, never stopped. Method: n9 asks n1, which looks too.
    let mut theatre = started(3, &[(1, Durable::default())]);
    let question =
        Notification { state: ServerState::Looking, vote: vote(9, 0), round: 1, commit: Lsn::ZERO, is_answer: false };
    theatre.said.clear();
    theatre.deliver(9, 1, Message::Notification(question));
    assert_eq!(theatre.said.len(), 1, "a question is answered");
    theatre.deliver(9, 1, Message::Notification(Notification { is_answer: true, ..question }));
    assert_eq!(theatre.said.len(), 1, "an answer is not");
}

#[test]
fn a_voter_that_others_have_not_heard_of_is_told_that_they_vote_for_it() {
    // Goal: found by seed 213 of three members: n4 had become a voter while n3 was away, and needed n3's vote, which n3 told
    // only to nodes it knew to be voters. Method: n4 is added without n3; n1 dies; n2, n3 and n4 are three of four.
    let mut theatre = cast(3);
    theatre.settle();
    theatre.kill(3);
    theatre.settle();
    theatre.change(2, &MembershipChange::of([Change::AddVoter(NodeId(4))]));
    let born = Cluster { me: NodeId(4), ..Cluster::of(3, 1) };
    theatre.enter_as(born, Durable::default());
    for id in [1, 2] {
        theatre.link_up(id, 4);
        theatre.link_up(4, id);
    }
    theatre.settle();
    let voters = theatre.value(4).status().membership.voters.len();
    assert_eq!((theatre.leader_of(4), voters), (Some(2), 4));
    theatre.kill(1);
    theatre.fire(2, Timer::QuorumCheck);
    assert_eq!(theatre.leaders(), [], "two of four");
    theatre.enter(3, Durable::default());
    for (one, other) in [(3, 2), (3, 4), (2, 3), (4, 3)] {
        theatre.link_up(one, other);
    }
    theatre.settle();
    for id in [3, 2, 4] {
        theatre.fire_if_armed(id, Timer::Finalize);
    }
    theatre.settle();
    assert_eq!(theatre.leaders(), [4], "the largest id of equal histories");
    assert_eq!(theatre.leader_of(3), Some(4));
}

#[test]
fn a_removed_member_tells_those_who_wait_for_it_that_it_is_removed() {
    // Goal: found by seed 44 of five members: n1 lost with a crash that n2's removal was committed, and waited for n2's vote for
    // ever. Method: two members, of which the leader leaves; n1's disk knows no commit.
    let mut theatre = cast(2);
    theatre.settle();
    assert_eq!(theatre.leaders(), [2]);
    theatre.change(2, &MembershipChange::of([Change::Remove(NodeId(2))]));
    assert_eq!(theatre.leaders(), [1]);
    let durable = Durable { committed: Lsn::ZERO, ..theatre.actor(1).durable.clone() };
    theatre.table.clear();
    theatre.enter(1, durable);
    assert_eq!(theatre.leaders(), [], "it believes that it needs n2");
    theatre.settle();
    assert_eq!(theatre.leaders(), [1]);
    assert_eq!(theatre.value(2).chosen(), None);
}

#[test]
fn leadership_is_handed_over_to_whom_the_operator_names() {
    // Goal: graceful transfer. Method: n3 leads by its id, and n1 has the smallest.
    let mut theatre = cast(3);
    theatre.settle();
    theatre.propose(3, "x");
    let ticket = theatre.admin(3, Admin::Transfer(NodeId(1)));
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.outcome(3, ticket)), (vec![1], Some(&Outcome::Done)));
    assert_eq!(theatre.term(1), 2, "one election");
    theatre.propose(1, "y");
    assert!((1..=3).all(|id| theatre.lines(id) == ["x", "y"]));
}

#[test]
fn a_far_successor_is_elected_before_its_own_vote_has_come() {
    // Goal: found on five continents: while the votes of the successor were under way, the others elected the old leader again, for
    // ever. Method: whatever n1 says stays under way until the others have waited for a voter that might know better.
    let mut theatre = cast(5);
    theatre.settle();
    theatre.propose(5, "x");
    let ticket = theatre.admin(5, Admin::Transfer(NodeId(1)));
    let others_talk = |theatre: &mut Theatre| {
        while let Some(at) = theatre.table.iter().position(|(from, _, _)| *from != 1) {
            let (from, to, message) = theatre.table.remove(at).expect("it was found there");
            theatre.deliver(from, to, message);
        }
    };
    others_talk(&mut theatre);
    (2..=5).for_each(|id| theatre.fire_if_armed(id, Timer::Finalize));
    others_talk(&mut theatre);
    assert!((2..=5).all(|id| theatre.value(id).chosen() == Some(NodeId(1))));
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.outcome(5, ticket)), (vec![1], Some(&Outcome::Done)));
    assert_eq!(theatre.term(1), 2, "one election");
}

#[test]
fn who_must_never_lead_does_not_and_who_is_preferred_does_among_equals() {
    // Goal: priorities. Method: n3 may never lead, n1 is preferred.
    let mut theatre = cast(3);
    theatre.actors.clear();
    theatre.table.clear();
    for (id, priority) in [(1, Priority::Preferred), (2, Priority::Normal), (3, Priority::Never)] {
        theatre.enter_as(Cluster { priority, ..Cluster::of(3, id) }, Durable::default());
    }
    theatre.settle();
    assert_eq!(theatre.leaders(), [1]);
    theatre.kill(1);
    theatre.settle();
    assert_eq!(theatre.leaders(), [2], "and never n3, whose id is larger");
}

#[test]
fn zb_11_a_spent_counter_ends_the_epoch_and_no_zxid_is_used_twice() {
    // Goal: ZB-11 (ZOOKEEPER-1277). Method: an epoch has three zxids.
    let mut theatre = Theatre::new(Cluster::of(3, 1), Options { counter_max: 3, ..Options::default() });
    theatre.settle();
    for text in ["a", "b", "c"] {
        theatre.propose(3, text);
    }
    assert_eq!((theatre.leaders(), theatre.term(3)), (vec![3], 2), "it resigned, and was elected again");
    theatre.propose(3, "d");
    assert_eq!(theatre.last(3), Lsn::new(2, 4));
    assert!((1..=3).all(|id| theatre.lines(id) == ["a", "b", "c", "d"]));
    assert_eq!(theatre.role(3), Role::Leader);
}
