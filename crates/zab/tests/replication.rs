//! Synchronisation and broadcast: ZB-6, ZB-7, ZB-10, and what is ours.

mod support;

use hustings_core::{
    Change, Cluster, Input, Limits, Lsn, MembershipChange, NodeId, Outcome, Protocol, Refusal, Role, SnapshotReference,
    Ticket,
};
use hustings_zab::{Message, Notification, Options, Timer};
use support::{End, Theatre, Verbs as _, cast, history};

/// n3 leads n1 and n2.
fn ruled() -> Theatre {
    let mut theatre = cast(3);
    theatre.settle();
    assert_eq!(theatre.leaders(), [3]);
    theatre
}

/// Everybody's link to this one is there again.
fn reconnect(theatre: &mut Theatre, id: u64) {
    for other in theatre.ids().into_iter().filter(|other| *other != id) {
        theatre.link_up(other, id);
        theatre.link_up(id, other);
    }
    theatre.settle();
}

#[test]
fn zb_6_what_only_a_dead_leader_logged_is_cut_off_when_it_returns() {
    // Goal: ZB-6. Method: n3 logs a proposal that nobody gets, and dies; n2 leads without it.
    let mut theatre = ruled();
    theatre.propose(3, "kept");
    theatre.isolate(3);
    theatre.propose_quietly(3, "gone");
    let durable = theatre.actor(3).durable.clone();
    theatre.kill(3);
    theatre.heal();
    theatre.settle();
    theatre.propose(2, "new");
    theatre.enter(3, durable);
    reconnect(&mut theatre, 3);
    assert!((1..=3).all(|id| theatre.lines(id) == ["kept", "new"]));
    assert_eq!(theatre.count(2, |message| matches!(message, Message::Truncate { .. })), 1);
    assert_eq!(theatre.last(3), Lsn::new(2, 2));
}

#[test]
fn zb_7_an_uncommitted_tail_on_the_freshest_log_is_delivered_by_all() {
    // Goal: ZB-7. Method: a proposal reaches n2's disk and no acknowledgement reaches n3, which dies.
    let mut theatre = ruled();
    theatre.cut(3, 1);
    theatre.cut_one_way(2, 3);
    theatre.propose(3, "tail");
    assert_eq!((theatre.commit(3), theatre.last(2).index), (0, 1));
    theatre.kill(3);
    theatre.heal();
    theatre.settle();
    assert_eq!((theatre.leaders(), theatre.term(2)), (vec![2], 2), "the freshest leads");
    assert!([1, 2].into_iter().all(|id| theatre.lines(id) == ["tail"]));
}

#[test]
fn a_tail_that_lived_through_an_election_is_cut_off_in_memory_and_on_disk() {
    // Goal: ZOOKEEPER-2845, whose server kept its tree over an election and voted with that, although its log held more. Method: n3
    // logs two proposals that nobody gets, loses its quorum, and looks for a leader without a restart; n2 leads with a shorter history,
    // so nothing overwrites the last of the tail.
    let mut theatre = ruled();
    theatre.propose(3, "kept");
    theatre.isolate(3);
    theatre.propose_quietly(3, "gone");
    theatre.propose_quietly(3, "gone as well");
    theatre.fire(3, Timer::QuorumCheck);
    theatre.fire(3, Timer::QuorumCheck);
    let tail = theatre.last(3);
    assert_eq!((theatre.role(3), tail, theatre.commit(3)), (Role::Candidate, Lsn::new(1, 3), 1));
    for id in [1, 2] {
        theatre.link_down(id, 3);
        theatre.link_down(3, id);
    }
    theatre.settle();
    theatre.propose(2, "new");
    assert_eq!((theatre.leaders(), theatre.lines(2)), (vec![2], vec!["kept".into(), "new".into()]));
    theatre.said.clear();
    theatre.heal();
    reconnect(&mut theatre, 3);
    let is_vote_with_its_tail = |said: &Message| match said {
        Message::Notification(Notification { vote, .. }) => (vote.leader, vote.last) == (NodeId(3), tail),
        _ => false,
    };
    assert!(theatre.count(3, is_vote_with_its_tail) > 0, "with all that its log holds, and not with what it applied");
    assert_eq!(theatre.count(2, |said| matches!(said, Message::Truncate { .. })), 1);
    assert_eq!((theatre.leaders(), theatre.terms(3)), (vec![2], theatre.terms(2)), "the newer epoch wins");
    assert_eq!(theatre.actor(3).durable.entries, theatre.actor(2).durable.entries, "on disk as well");
    // It starts again, and n2 dies: of two equals n3 has the higher id, and leads with n1's history.
    theatre.restart(3);
    theatre.kill(2);
    for _ in 0..3 {
        for id in [1, 3] {
            theatre.fire_if_armed(id, Timer::Resend);
            theatre.settle();
        }
    }
    theatre.propose(3, "later");
    assert!([1, 3].into_iter().all(|id| theatre.lines(id) == ["kept", "new", "later"]));
}

#[test]
fn zb_10_a_crash_at_any_record_of_synchronisation_breaks_nothing() {
    // Goal: ZB-10. Method: n1 lacks everything; it joins, and its disk ends after any number of records: a promise, entries, the
    // epoch. It comes back, and every two of the three govern in turn.
    let prepared = || {
        let mut theatre = cast(3);
        theatre.kill(1);
        theatre.settle();
        for text in ["a", "b", "c"] {
            theatre.propose(3, text);
        }
        theatre
    };
    let mut rehearsal = prepared();
    rehearsal.enter(1, Default::default());
    reconnect(&mut rehearsal, 1);
    let written = rehearsal.actor(1).written;
    assert!(written >= 6, "a promise, three entries, a commit, an epoch: {written}");
    let mut tried = 0;
    for records in 0..=written {
        for end in [End::AtOnce, End::Lingering] {
            for absent in [2, 3] {
                let mut theatre = prepared();
                theatre.enter(1, Default::default());
                theatre.end_disk_after(1, records, end);
                reconnect(&mut theatre, 1);
                let (current, last) = (theatre.actor(1).durable.established, theatre.actor(1).durable.entries.len());
                assert!(current.0 == 0 || last == 3, "the epoch vouches for the whole history");
                theatre.restart(1);
                theatre.kill(absent);
                theatre.settle();
                for id in [1, 2, 3].into_iter().filter(|id| *id != absent) {
                    theatre.link_up(id, 4 - id);
                    theatre.fire_if_armed(id, Timer::Resend);
                    theatre.settle();
                    theatre.fire_if_armed(id, Timer::Finalize);
                    theatre.settle();
                }
                let leader = theatre.leaders();
                assert_eq!(leader.len(), 1, "records {records}, {end:?}, without n{absent}");
                theatre.propose(leader[0], "d");
                assert_eq!(theatre.lines(1), ["a", "b", "c", "d"], "records {records}, {end:?}, without n{absent}");
                tried += 1;
            }
        }
    }
    println!("{tried} crashes");
}

#[test]
fn an_acknowledgement_waits_for_the_disk_and_a_commit_for_a_quorum_of_them() {
    // Goal: §5.10 rules 1 to 3. Method: both followers' disks are held, then the leader's.
    let mut theatre = ruled();
    theatre.hold_disk(1);
    theatre.hold_disk(2);
    theatre.propose(3, "x");
    assert_eq!(theatre.commit(3), 0);
    theatre.sync_now(1);
    assert_eq!((theatre.commit(3), theatre.commit(1)), (1, 1));
    theatre.sync_now(2);
    theatre.hold_disk(3);
    theatre.propose(3, "y");
    assert_eq!(theatre.commit(3), 2, "the two others are a quorum; the leader's own copy is not counted yet");
    assert_eq!(theatre.lines(3), ["x"], "nor applied");
    theatre.sync_now(3);
    assert_eq!(theatre.lines(3), ["x", "y"]);
}

#[test]
fn a_lost_window_ends_the_connection_and_the_follower_gets_it_all_again() {
    // Goal: a whole window lost is survived. Method: small messages, a small window, and the link breaks under them.
    let limits = Limits { message_bytes_max: 1, inflight_messages_max: 4, ..Limits::default() };
    let mut theatre = Theatre::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    theatre.settle();
    let texts: Vec<String> = (0..20).map(|at| at.to_string()).collect();
    for text in &texts {
        theatre.propose_quietly(3, text);
    }
    let under_way = theatre.table.iter().filter(|(_, to, what)| *to == 1 && matches!(what, Message::Proposal { .. }));
    assert_eq!(under_way.count(), 4, "the window bounds what is on its way");
    theatre.table.retain(|(from, to, _)| (*from, *to) != (3, 1));
    theatre.link_down(1, 3);
    theatre.link_down(3, 1);
    theatre.link_up(1, 3);
    theatre.link_up(3, 1);
    theatre.settle();
    theatre.fire_if_armed(1, Timer::Resend);
    theatre.settle();
    assert_eq!(theatre.leaders(), [3]);
    assert!((1..=3).all(|id| theatre.lines(id) == texts));
}

/// n3 leads, and has compacted its log behind three entries but for so many; n1, which has none of them, is offered the snapshot.
fn offered_a_snapshot(trailing_entries: u64) -> Theatre {
    let limits = Limits { trailing_entries, ..Limits::default() };
    let mut theatre = Theatre::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    theatre.settle();
    theatre.kill(1);
    for text in ["a", "b", "c"] {
        theatre.propose(3, text);
    }
    theatre.compact(3);
    theatre.enter(1, Default::default());
    reconnect(&mut theatre, 1);
    theatre
}

#[test]
fn who_is_behind_the_log_fetches_a_snapshot_and_goes_on_from_there() {
    // Goal: SNAP by reference. Method: n1 is away while the others compact.
    let mut theatre = offered_a_snapshot(0);
    assert_eq!(theatre.leader_of(1), None, "it serves nothing before it has the state");
    theatre.finish_fetch(1);
    assert_eq!(theatre.leader_of(1), Some(3));
    let restored: Option<&SnapshotReference> = theatre.actor(1).restored.as_ref();
    assert_eq!(restored.map(|reference| reference.lsn), Some(Lsn::new(1, 3)));
    theatre.propose(3, "d");
    assert_eq!(theatre.lines(1), ["d"]);
}

#[test]
fn behind_an_earlier_snapshot_than_was_offered_come_the_entries_that_are_still_there() {
    // Goal: H8. Method: n1 had begun to fetch a snapshot through 2 when that through 3 was cut; the log still goes back to 2.
    let mut theatre = offered_a_snapshot(1);
    theatre.finish_earlier_fetch(1, Lsn::new(1, 2));
    theatre.heartbeat(3);
    assert_eq!(theatre.count(3, |message| matches!(message, Message::Snapshot { .. })), 1, "another one is not needed");
    assert_eq!((theatre.leader_of(1), theatre.commit(1), theatre.lines(1)), (Some(3), 3, vec!["c".to_string()]));
}

#[test]
fn an_earlier_snapshot_that_brings_nothing_is_not_installed() {
    // Goal: the commit never goes back. Method: while n1 fetched the earlier one, another leader's log brought it as far.
    let limits = Limits { trailing_entries: 0, ..Limits::default() };
    let mut theatre = Theatre::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    theatre.settle();
    theatre.propose(3, "a");
    theatre.propose(3, "b");
    let durable = theatre.actor(1).durable.clone();
    theatre.kill(1);
    theatre.propose(3, "c");
    theatre.compact(3);
    theatre.enter(1, durable);
    reconnect(&mut theatre, 1);
    let commit = theatre.commit(1);
    theatre.finish_earlier_fetch(1, Lsn::new(1, 1));
    assert!(theatre.actor(1).restored.is_none() && theatre.commit(1) >= commit);
    theatre.heartbeat(3);
    theatre.finish_fetch(1);
    assert_eq!((theatre.leader_of(1), theatre.commit(1)), (Some(3), 3));
}

#[test]
fn a_snapshot_that_could_not_be_had_is_offered_again() {
    // Goal: no loop and no end. Method: the fetch fails once; a PONG says that nothing is being installed.
    let limits = Limits { trailing_entries: 0, ..Limits::default() };
    let mut theatre = Theatre::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    theatre.settle();
    theatre.kill(1);
    theatre.propose(3, "a");
    theatre.compact(3);
    theatre.enter(1, Default::default());
    reconnect(&mut theatre, 1);
    let reference = theatre.actor(1).fetching.clone().expect("a fetch is under way");
    theatre.input(1, Input::SnapshotFailed(reference));
    theatre.settle();
    assert_eq!(theatre.count(3, |message| matches!(message, Message::Snapshot { .. })), 1);
    theatre.heartbeat(3);
    assert_eq!(theatre.count(3, |message| matches!(message, Message::Snapshot { .. })), 2);
    theatre.finish_fetch(1);
    assert_eq!((theatre.leader_of(1), theatre.commit(1)), (Some(3), 1));
}

#[test]
fn a_read_is_answered_once_a_quorum_has_confirmed_the_leader() {
    // Goal: linearizable reads. Method: nobody answers; then one does.
    let mut theatre = ruled();
    theatre.propose(3, "x");
    theatre.cut(3, 1);
    theatre.cut_one_way(2, 3);
    let ticket = theatre.read(3, 1);
    theatre.settle();
    assert_eq!(theatre.read_index(3, ticket), None);
    theatre.heal();
    theatre.heartbeat(3);
    assert_eq!(theatre.read_index(3, ticket), Some(1));
    let refused = theatre.read(1, 2);
    let not_leader = Outcome::Refused(Refusal::NotLeader(Some(NodeId(3))));
    assert_eq!(theatre.outcome(1, refused), Some(&not_leader));
}

#[test]
fn a_leader_without_a_quorum_of_pings_resigns_and_refuses_its_readers() {
    // Goal: §5.7. Method: nobody answers for two checks while a read waits.
    let mut theatre = ruled();
    theatre.isolate(3);
    let ticket: Ticket = theatre.read(3, 1);
    theatre.fire(3, Timer::QuorumCheck);
    theatre.fire(3, Timer::QuorumCheck);
    assert_eq!(theatre.role(3), Role::Candidate);
    assert_eq!(theatre.outcome(3, ticket), Some(&Outcome::Refused(Refusal::NotLeader(None))));
}

#[test]
fn an_observer_is_sent_everything_and_decides_nothing() {
    // Goal: observers. Method: n4 joins as a learner; then both voters besides the leader are gone.
    let mut theatre = ruled();
    let change = MembershipChange::of([Change::AddLearner(NodeId(4))]);
    theatre.change(3, &change);
    theatre.enter(4, Default::default());
    reconnect(&mut theatre, 4);
    theatre.propose(3, "x");
    assert_eq!((theatre.lines(4), theatre.leader_of(4)), (vec!["x".to_string()], Some(3)));
    assert_eq!(theatre.role(4), Role::Follower);
    theatre.isolate(1);
    theatre.isolate(2);
    theatre.propose(3, "y");
    assert_eq!((theatre.commit(3), theatre.last(4).index), (2, 3), "it holds it, and that is not counted");
}

#[test]
fn a_removed_follower_hears_so_and_looks_for_nobody() {
    // Goal: MB-05. Method: n1 is removed.
    let mut theatre = ruled();
    theatre.change(3, &MembershipChange::of([Change::Remove(NodeId(1))]));
    theatre.settle();
    assert!(!theatre.value(1).status().membership.has(NodeId(1)));
    assert_eq!(theatre.value(1).chosen(), None);
    let said = theatre.said.len();
    theatre.input(1, Input::Timer(Timer::Transfer));
    assert!(!theatre.is_armed(1, Timer::Resend) && theatre.said.len() == said, "it asks nobody");
    theatre.propose(3, "x");
    assert_eq!(theatre.commit(2), 2);
}

#[test]
fn a_removed_leader_commits_its_removal_and_hands_over() {
    // Goal: MB-04. Method: n3 removes itself.
    let mut theatre = ruled();
    theatre.change(3, &MembershipChange::of([Change::Remove(NodeId(3))]));
    theatre.settle();
    let leaders = theatre.leaders();
    assert!(leaders == [1] || leaders == [2], "one of the two others: {leaders:?}");
    theatre.propose(leaders[0], "x");
    assert_eq!((theatre.lines(1), theatre.lines(2)), (vec!["x".to_string()], vec!["x".to_string()]));
}

#[test]
fn one_change_of_membership_at_a_time() {
    // Goal: RM-2, RM-3. Method: a second change while the first waits for its quorum; and two voters in one change.
    let mut theatre = ruled();
    theatre.isolate(3);
    theatre.change(3, &MembershipChange::of([Change::AddLearner(NodeId(4))]));
    let second = theatre.change(3, &MembershipChange::of([Change::AddLearner(NodeId(5))]));
    assert_eq!(theatre.refusal(3, second), Some(Refusal::MembershipPending));
    theatre.heal();
    let both = MembershipChange::of([Change::Remove(NodeId(1)), Change::Remove(NodeId(2))]);
    let refused = theatre.change(3, &both);
    assert!(theatre.refusal(3, refused).is_some());
}

/// Delivers what is on the table over these links, but for what is held back; and gives that back.
fn run(
    theatre: &mut Theatre,
    is_open: impl Fn(u64, u64) -> bool,
    is_slow: impl Fn(u64, u64, &Message) -> bool,
) -> Vec<(u64, u64, Message)> {
    let mut slow = Vec::new();
    while let Some((from, to, message)) = theatre.table.pop_front() {
        if is_slow(from, to, &message) {
            slow.push((from, to, message));
        } else if is_open(from.min(to), from.max(to)) {
            theatre.deliver(from, to, message);
        }
    }
    slow
}

fn is_history(message: &Message) -> bool {
    use Message::{NewLeader, Ping, Proposal, Truncate};
    matches!(message, Truncate { .. } | Proposal { .. } | NewLeader { .. } | Ping { .. })
}

/// Of five, n1 and n2 hold one entry more than n3, n4 and n5, which cannot reach them: n5 is elected, promised, and about to
/// synchronise its followers.
fn about_to_be_left_behind() -> Theatre {
    let mut theatre = cast(5);
    for (ids, terms) in [(&[1, 2][..], &[1, 1, 1][..]), (&[3, 4, 5], &[1, 1])] {
        ids.iter().for_each(|id| theatre.enter(*id, history(1, 1, terms)));
    }
    theatre.table.clear();
    for (a, b) in [(3, 1), (3, 2), (4, 1), (4, 2), (5, 1), (5, 2), (1, 2)] {
        theatre.link_down(a, b);
        theatre.link_down(b, a);
    }
    theatre.table.clear();
    for id in [3, 4, 5] {
        theatre.fire_if_armed(id, Timer::Resend);
    }
    let is_slow = |from: u64, _: u64, message: &Message| from == 5 && is_history(message);
    run(&mut theatre, |a, b| a >= 3 && b >= 3, is_slow);
    assert_eq!((theatre.value(5).chosen(), theatre.role(5)), (Some(NodeId(5)), Role::Synchronizing));
    theatre
}

/// n3 and n4 lose n5 and reach n1, which is fresher, leads, and commits all three entries.
fn a_fresher_one_leads(theatre: &mut Theatre) {
    for id in [3, 4] {
        theatre.link_down(id, 5);
        theatre.link_down(5, id);
        theatre.link_up(id, 1);
        theatre.link_up(1, id);
    }
    for _ in 0..5 {
        for id in [1, 3, 4] {
            theatre.fire_if_armed(id, Timer::Resend);
            theatre.fire_if_armed(id, Timer::Finalize);
        }
        run(theatre, |a, b| [1, 3, 4].contains(&a) && [1, 3, 4].contains(&b), |_, _, _| false);
    }
    assert_eq!((theatre.role(1), theatre.commit(1)), (Role::Leader, 3));
}

#[test]
fn a_leader_that_was_left_behind_cuts_off_nothing_that_is_committed() {
    // Goal: `to < commit` proves the leader stale. Method: n2 follows n5, whose TRUNC is slow; meanwhile n1 commits, and n2
    // hears of it before the TRUNC comes.
    let mut theatre = about_to_be_left_behind();
    theatre.link_up(5, 2);
    theatre.link_up(2, 5);
    theatre.fire_if_armed(2, Timer::Resend);
    theatre.fire_if_armed(5, Timer::Ping);
    let late = run(&mut theatre, |a, b| (a, b) == (2, 5), |from, _, message| from == 5 && is_history(message));
    assert!(late.iter().any(|(_, _, message)| matches!(message, Message::Truncate { .. })));
    a_fresher_one_leads(&mut theatre);
    theatre.link_up(1, 2);
    theatre.link_up(2, 1);
    run(&mut theatre, |a, b| (a, b) == (1, 2), |_, _, _| false);
    assert_eq!((theatre.commit(2), theatre.value(2).chosen()), (3, Some(NodeId(5))), "it knows, and follows n5 still");
    for (from, to, message) in late {
        theatre.deliver(from, to, message);
    }
    assert_eq!((theatre.value(2).chosen(), theatre.last(2).index), (None, 3), "it looks for another leader");
}

#[test]
fn a_follower_that_knows_of_a_later_commit_ends_the_reign_that_lacks_it() {
    // Goal: ACKEPOCH says the commit. Method: n2 hears of n1's commit first, and n5, which was promised before, invites it
    // afterwards: nothing is slow.
    let mut theatre = about_to_be_left_behind();
    a_fresher_one_leads(&mut theatre);
    theatre.link_up(1, 2);
    run(&mut theatre, |a, b| (a, b) == (1, 2), |from, _, _| from == 2);
    theatre.link_down(2, 1);
    assert_eq!(theatre.commit(2), 3);
    theatre.fire_if_armed(2, Timer::Resend);
    theatre.link_up(5, 2);
    theatre.link_up(2, 5);
    theatre.fire_if_armed(5, Timer::Ping);
    run(&mut theatre, |a, b| (a, b) == (2, 5), |_, _, _| false);
    assert_eq!((theatre.value(5).chosen(), theatre.last(2).index), (None, 3), "n5 gave way, and n2 lost nothing");
}
