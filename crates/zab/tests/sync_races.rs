//! Schedules of synchronisation that broke ZooKeeper: ZB-12, ZB-13, ZB-14, and what `docs/protocols/zab.md` says of others.

mod support;

use hustings_core::{Admin, Cluster, Entry, Input, Limits, Lsn, NodeId, Role, SnapshotReference, Term};
use hustings_zab::learner::Stage;
use hustings_zab::{Message, Options, Timer};
use support::{End, Theatre, Verbs as _, cast};

/// Everybody's link to this one is there again, and everybody hears it.
fn reconnect(theatre: &mut Theatre, id: u64) {
    for other in theatre.ids().into_iter().filter(|other| *other != id) {
        theatre.link_up(other, id);
        theatre.link_up(id, other);
    }
}

#[test]
fn zb_12_a_commit_between_newleader_and_uptodate_finds_its_proposal() {
    // Goal: ZOOKEEPER-4394. Method: the follower hears DIFF, PROPOSAL, NEWLEADER, COMMIT, PROPOSAL, UPTODATE: "b" is under way
    // when n1 joins, and commits while n1's disk is still writing what precedes NEWLEADER. ZooKeeper's follower had dropped "b"
    // from its list at NEWLEADER, found nothing for the COMMIT, and ended.
    let mut theatre = cast(3);
    theatre.kill(1);
    theatre.settle();
    theatre.propose(3, "a");
    theatre.hold_disk(2);
    theatre.propose(3, "b");
    theatre.enter(1, Default::default());
    reconnect(&mut theatre, 1);
    theatre.settle_until(3, |message| matches!(message, Message::NewLeader { .. }));
    theatre.hold_disk(1);
    theatre.settle();
    assert_eq!(
        (theatre.commit(3), theatre.last(1).index),
        (1, 2),
        "n1 has it all, not yet on disk, and \"b\" is under way"
    );

    theatre.sync_now(2);
    assert_eq!((theatre.commit(3), theatre.leader_of(1)), (2, None));
    let connection = theatre.value(3).learner(NodeId(1)).expect("it is connected").connection;
    theatre.deliver(3, 1, Message::Commit { connection, epoch: Term(1), commit: 2 });
    theatre.propose(3, "c");
    assert_eq!((theatre.commit(1), theatre.last(1).index), (2, 3), "the COMMIT found its proposal");
    assert!(theatre.lines(1).is_empty(), "and is applied no sooner than it is on disk");

    theatre.sync_now(1);
    assert_eq!((theatre.leader_of(1), theatre.lines(1)), (Some(3), vec!["a".into(), "b".into(), "c".into()]));
    assert_eq!(theatre.count(1, |message| matches!(message, Message::FollowerInfo { .. })), 1, "in one connection");
}

/// n1 lacks "a" and "b", which n2 and n3 committed. n3 dies, and n1 is n2's quorum of epoch 2; n1's disk takes `records` more
/// and n1 loses its power. Then n2 dies, and n3 comes back. Gives back whether somebody was told to cut off what is committed,
/// and the cluster.
fn bounced_in_synchronization(options: Options, records: usize, end: End) -> (bool, Theatre) {
    let mut theatre = Theatre::new(Cluster::of(3, 1), options);
    theatre.settle();
    let empty = theatre.actor(1).durable.clone();
    theatre.kill(1);
    // n3's disk takes both entries, and no longer the note that they are committed: ACKEPOCH will not say so.
    theatre.end_disk_after(3, 2, End::Lingering);
    for text in ["a", "b"] {
        theatre.propose_quietly(3, text);
    }
    theatre.settle();
    assert_eq!((theatre.commit(2), theatre.commit(3)), (2, 2));
    let full = theatre.actor(3).durable.clone();
    assert_eq!((full.entries.len(), full.committed.index), (2, 0));
    theatre.kill(3);
    theatre.settle();
    theatre.enter(1, empty);
    theatre.end_disk_after(1, records, end);
    reconnect(&mut theatre, 1);
    govern(&mut theatre);
    theatre.restart(1);
    theatre.kill(2);
    theatre.settle();
    theatre.enter(3, full);
    reconnect(&mut theatre, 3);
    (govern(&mut theatre), theatre)
}

/// Lets those who live elect somebody; ends at the first TRUNC, and says so.
fn govern(theatre: &mut Theatre) -> bool {
    for timer in [Timer::Resend, Timer::Finalize, Timer::Resend, Timer::Finalize] {
        for id in theatre.ids() {
            theatre.fire_if_armed(id, timer);
        }
        while let Some((from, to, message)) = theatre.table.pop_front() {
            if matches!(message, Message::Truncate { .. }) {
                return true;
            }
            theatre.deliver(from, to, message);
        }
    }
    false
}

/// The numbers of records after which n1 may lose its power, and the two ways in which it does.
fn bounces() -> impl Iterator<Item = (usize, End)> {
    (0..=6).flat_map(|records| [End::AtOnce, End::Lingering].map(|end| (records, end)))
}

#[test]
fn zb_13_a_follower_that_is_bounced_in_synchronization_vouches_for_nothing_that_it_lost() {
    // Goal: ZOOKEEPER-4785. Method: n1 is bounced after every record of a DIFF whose acknowledgement makes the quorum of epoch 2.
    // ZooKeeper's follower had written currentEpoch, and acknowledged, while its transactions were still in memory: with the later
    // epoch and the shorter log it was elected, and cut off everybody else's.
    let mut governed = 0;
    for (records, end) in bounces() {
        let (cuts, mut theatre) = bounced_in_synchronization(Options::default(), records, end);
        assert!(!cuts, "n1 is bounced after {records} records, {end:?}");
        let leaders = theatre.leaders();
        assert_eq!(leaders.len(), 1, "after {records} records, {end:?}");
        theatre.propose(leaders[0], "c");
        assert!([1, 3].into_iter().all(|id| theatre.lines(id) == ["a", "b", "c"]), "after {records} records, {end:?}");
        governed += 1;
    }
    assert_eq!(governed, 14);
}

#[test]
fn zb_13_as_published_the_bounced_follower_is_elected_and_cuts_off_what_is_committed() {
    let cuts = bounces().filter(|(records, end)| bounced_in_synchronization(Options::PUBLISHED, *records, *end).0);
    assert!(cuts.count() > 0, "the schedule of ZOOKEEPER-4785 loses nothing even in the published form");
}

/// Of five, n1 and n2 are away while "a" and "b" are committed. n1 comes back, gets both by DIFF and "c" by broadcast, and leads
/// next.
fn synchronized_one_leads() -> Theatre {
    let mut theatre = cast(5);
    theatre.settle();
    let empty = theatre.actor(1).durable.clone();
    theatre.kill(1);
    theatre.kill(2);
    for text in ["a", "b"] {
        theatre.propose(5, text);
    }
    theatre.enter(1, empty);
    reconnect(&mut theatre, 1);
    theatre.settle();
    assert_eq!(
        theatre.count(5, |message| matches!(message, Message::Diff { .. })),
        5,
        "n1 was brought up by a DIFF, too"
    );
    theatre.propose(5, "c");
    theatre.admin(5, Admin::Transfer(NodeId(1)));
    assert!(!govern(&mut theatre), "nobody has too much");
    assert_eq!(theatre.leaders(), [1]);
    theatre
}

#[test]
fn zb_14_what_a_leader_was_brought_up_with_it_hands_on_without_a_hole() {
    // Goal: ZOOKEEPER-4925. Method: n2, which lacks everything, is brought up by n1, which got its first entries in its own
    // synchronisation. ZooKeeper 3.9.3 had committed those without noting them in the list from which a leader answers; the next
    // stale follower got what came after, and nobody missed the rest.
    let mut theatre = synchronized_one_leads();
    theatre.enter(2, Default::default());
    reconnect(&mut theatre, 2);
    theatre.settle();
    theatre.propose(1, "d");
    assert_eq!(theatre.count(1, |message| matches!(message, Message::Snapshot { .. })), 0, "by entries, not by a copy");
    assert!((1..=5).all(|id| theatre.value(id).log().last() == theatre.last(1)));
    assert_eq!(theatre.lines(2), ["a", "b", "c", "d"]);
}

#[test]
fn zb_14_a_follower_takes_no_proposal_behind_a_hole() {
    // Goal: the other half of ZOOKEEPER-4925: under no leader is a hole written. Method: n1 says the third entry first.
    let mut theatre = synchronized_one_leads();
    theatre.enter(2, Default::default());
    reconnect(&mut theatre, 2);
    theatre.settle_until(1, |message| matches!(message, Message::Proposal { .. }));
    let is_history = |from: u64, to: u64, message: &Message| {
        (from, to) == (1, 2) && matches!(message, Message::Proposal { .. } | Message::NewLeader { .. })
    };
    theatre.lose(is_history);
    theatre.settle();
    let (epoch, role) = (Term(theatre.term(1)), theatre.role(1));
    assert_eq!(role, Role::Leader);
    let connection = theatre.value(1).learner(NodeId(2)).expect("it is connected").connection;
    let (previous, third) = (Lsn::new(1, 2), Entry::blank(Lsn::new(1, 3)));
    theatre.deliver(1, 2, Message::Proposal { connection, epoch, previous, entries: vec![third], commit: 3 });
    assert_eq!((theatre.last(2), theatre.commit(2)), (Lsn::ZERO, 0), "nothing is written, and nothing committed");
    theatre.settle();
    reconnect(&mut theatre, 2);
    theatre.settle();
    assert_eq!(theatre.lines(2), ["a", "b", "c"], "and it gets all of it in another connection");
}

/// n1 lacks everything, and the log of n3, which leads, begins behind a snapshot: n1 is fetching it.
fn fetching() -> Theatre {
    let limits = Limits { trailing_entries: 0, ..Limits::default() };
    let mut theatre = Theatre::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    theatre.kill(1);
    theatre.settle();
    for text in ["a", "b"] {
        theatre.propose(3, text);
    }
    theatre.compact(3);
    theatre.enter(1, Default::default());
    reconnect(&mut theatre, 1);
    theatre.settle();
    assert!(theatre.actor(1).fetching.is_some());
    theatre
}

#[test]
fn newleader_does_not_overtake_a_snapshot() {
    // Goal: ZOOKEEPER-3104. Method: n1 is told NEWLEADER by hand while it fetches; the leader says it only afterwards.
    let mut theatre = fetching();
    let is_told = |theatre: &Theatre| {
        theatre.said.iter().any(|(_, to, message)| *to == 1 && matches!(message, Message::NewLeader { .. }))
    };
    let vouches = |theatre: &Theatre| theatre.count(1, |message| matches!(message, Message::AckNewLeader { .. }));
    assert!(!is_told(&theatre), "the leader waits");
    let connection = theatre.value(3).learner(NodeId(1)).expect("it is connected").connection;
    theatre.deliver(3, 1, Message::NewLeader { connection, epoch: Term(1) });
    assert_eq!((vouches(&theatre), theatre.actor(1).durable.established), (0, Term(0)), "and so does the follower");
    theatre.finish_fetch(1);
    assert!(is_told(&theatre) && vouches(&theatre) == 1);
    assert_eq!((theatre.leader_of(1), theatre.commit(1)), (Some(3), 2));
}

#[test]
fn an_entry_behind_a_snapshot_ends_the_fetch_of_it() {
    // Goal: nothing of a session is passed over. Found by a hostile reader: where an answer to a ping was said before SNAP came, the leader
    // may send SNAP twice, and then the entries behind what had come of the first. Method: the second one is said by hand.
    let mut theatre = fetching();
    theatre.finish_fetch(1);
    theatre.propose_quietly(3, "c");
    theatre.settle_until(3, |message| matches!(message, Message::Proposal { .. }));
    let connection = theatre.value(3).learner(NodeId(1)).expect("it is connected").connection;
    let offered =
        SnapshotReference { lsn: Lsn::new(1, 3), ..theatre.actor(1).restored.clone().expect("it has the first") };
    theatre.deliver(3, 1, Message::Snapshot { connection, epoch: Term(1), reference: offered.clone() });
    assert!(theatre.actor(1).fetching.is_some(), "it fetches");
    theatre.settle();
    assert_eq!((theatre.last(1), theatre.commit(1)), (Lsn::new(1, 3), 3), "what comes behind is written");
    theatre.input(1, Input::SnapshotReady(offered.clone()));
    assert_ne!(theatre.actor(1).restored, Some(offered), "and nobody wants the second one any more");
}

#[test]
fn one_that_acknowledges_newleader_without_what_it_stands_behind_is_let_go() {
    let mut theatre = fetching();
    theatre.keep_losing(|from, _, message| from == 1 && matches!(message, Message::AckNewLeader { .. }));
    theatre.finish_fetch(1);
    let learner = |theatre: &Theatre| theatre.value(3).learner(NodeId(1)).map(|learner| learner.stage);
    assert_eq!(learner(&theatre), Some(Stage::Told { end: 2 }), "its acknowledgement was lost");
    let connection = theatre.value(3).learner(NodeId(1)).expect("it is connected").connection;
    theatre.deliver(1, 3, Message::AckNewLeader { connection, epoch: Term(1), index: 1 });
    assert_eq!(learner(&theatre), None);
}

#[test]
fn a_snapshot_that_did_not_come_whole_leaves_the_log_as_it_was() {
    // Goal: ZOOKEEPER-3642. Method: the leader dies in the middle of SNAP; the next one is told of nothing that n1 does not hold.
    let mut theatre = fetching();
    theatre.kill(3);
    assert_eq!((theatre.last(1), theatre.actor(1).durable.snapshot.is_none()), (Lsn::ZERO, true));
    assert!(!govern(&mut theatre));
    assert_eq!((theatre.leaders(), theatre.lines(1)), (vec![2], vec!["a".into(), "b".into()]));
}

#[test]
fn a_leader_waits_no_longer_than_an_election_timeout_for_an_epoch() {
    // Goal: there is no maxTimeToWaitForEpoch, because the wait has an end. Method: no follower reaches n3, which was elected.
    let mut theatre = cast(3);
    while let Some((from, to, message)) = theatre.table.pop_front() {
        if !matches!(message, Message::FollowerInfo { .. }) {
            theatre.deliver(from, to, message);
        }
    }
    assert_eq!((theatre.value(3).chosen(), theatre.leaders()), (Some(NodeId(3)), vec![]));
    theatre.fire(3, Timer::InitLimit);
    for id in [1, 2] {
        theatre.fire(id, Timer::Silence);
    }
    assert!(!govern(&mut theatre));
    assert_eq!(theatre.leaders().len(), 1, "one that is heard is elected next");
}
