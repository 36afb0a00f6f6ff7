//! Stories of `hustings_core::Replica` around Raft: what stands between a protocol and its clients.
//!
//! They live here and not in `core` because `core` knows no protocol; Raft is the one that exists.

mod hosts;

use bytes::Bytes;
use hosts::{Ended, Hosts, Said, cutting, is_forward, offering, three};
use hustings_core::replica::{Event, Policy, ReplicaMessage, ReplicaTimer};
use hustings_core::{Admin, Change, Cluster, Limits, Lsn, MembershipChange, NodeId, Refusal, Term};
use hustings_raft::{Message, Timer};

// --- At most once. -----------------------------------------------------------------------------------------------

/// Barriers of a node's first life are numbered from here on: each life has numbers of its own.
const LIFE: u64 = 1 << 40;

#[test]
fn a_refusal_of_a_second_copy_is_not_told_as_certain() {
    // Goal: Refused means definitely not done. Method: the first copy may be in the leader's log; the second is refused.
    let mut hosts = three();
    hosts.elect(1);
    let request = hosts.propose(3, "x");
    hosts.fire(3, ReplicaTimer::Retry);
    let copies =
        hosts.bag.iter().filter(|(from, _, said)| *from == 3 && matches!(said, ReplicaMessage::Forward { .. }));
    assert_eq!(copies.count(), 2, "it was sent again");
    hosts.bag.clear();
    let refusal = Refusal::Overloaded;
    hosts.deliver(1, 3, ReplicaMessage::ForwardRefused { incarnation: 1, sequence: request, refusal });
    assert_eq!(hosts.outcome(3, request), Some(Ended::Unknown));
}

#[test]
fn slow_disks_do_not_multiply_the_log() {
    // Goal: one entry per put. Method: no disk answers while n2 sends its command again and again; then only n2's does
    // not, so that the others have applied the command and n2 has not.
    let mut hosts = three();
    hosts.elect(1);
    let late = |hosts: &mut Hosts, text: &str, slow: &[u64]| {
        slow.iter().for_each(|id| hosts.hold_disk(*id));
        let request = hosts.propose(2, text);
        hosts.settle();
        for _ in 0..3 {
            hosts.fire(2, ReplicaTimer::Retry);
            hosts.settle();
        }
        slow.iter().for_each(|id| hosts.release_disk(*id));
        hosts.settle();
        hosts.heartbeat(1);
        (hosts.outcome(2, request), hosts.copies(1, text))
    };
    assert_eq!(late(&mut hosts, "all are slow", &[1, 2, 3]), (Some(Ended::Applied), 1));
    assert_eq!(late(&mut hosts, "one is slow", &[2]), (Some(Ended::Applied), 1));
}

#[test]
fn a_proposal_that_a_leader_refused_for_the_moment_is_taken_when_it_comes_again() {
    // Goal: what a leader remembers is what it has appended. Method: n2's command comes in the middle of a hand-over that fails.
    let mut hosts = three();
    hosts.elect(1);
    let transfer = Admin::Transfer(NodeId(3));
    hosts.isolate(3);
    hosts.step(1, Event::Admin { request: 1, admin: transfer });
    let request = hosts.propose(2, "x");
    hosts.settle();
    assert_eq!((hosts.outcome(2, request), hosts.copies(1, "x")), (None, 0), "refused for the moment");
    hosts.fire(1, ReplicaTimer::Protocol(Timer::Transfer));
    hosts.fire(2, ReplicaTimer::Retry);
    hosts.settle();
    hosts.heartbeat(1);
    assert_eq!((hosts.outcome(2, request), hosts.copies(1, "x")), (Some(Ended::Applied), 1));
}

#[test]
fn a_forwarded_proposal_that_is_sent_again_is_applied_once() {
    // Goal: RL-1. Method: n3 has the command in its log when it begins to lead, without knowing it committed, and n2, who does
    // not know what became of it, sends it again; both copies are committed.
    let mut hosts = three();
    hosts.elect(1);
    let request = hosts.propose(2, "x");
    let forward = hosts.bag.pop_front().expect("it goes to the leader");
    hosts.deliver(forward.0, forward.1, forward.2);
    let append = hosts.bag.iter().find(|(_, to, _)| *to == 3).cloned().expect("it goes to n3");
    hosts.deliver(append.0, append.1, append.2);
    hosts.bag.clear();
    hosts.isolate(1);
    hosts.elect(3);
    hosts.settle();
    hosts.heal();
    hosts.heartbeat(3);
    assert_eq!(hosts.copies(3, "x"), 2, "the story needs a second copy");
    for id in 1..=3 {
        assert_eq!(hosts.lines(id), ["x"], "n{id}");
    }
    assert_eq!(hosts.outcome(2, request), Some(Ended::Applied));
}

#[test]
fn a_new_leader_gets_what_the_old_one_may_have_lost_and_nobody_applies_it_twice() {
    // Goal: a forward that died with its leader, or did not. Method: one command reached a quorum, one nobody.
    let mut hosts = three();
    hosts.elect(1);
    let kept = hosts.propose(2, "kept");
    hosts.settle();
    let lost = hosts.propose(2, "lost");
    hosts.bag.clear();
    let forwarded = hosts.sent.iter().find(|(from, _, said)| *from == 2 && is_forward(said)).cloned();
    hosts.isolate(1);
    hosts.elect(3);
    assert_eq!(hosts.outcome(2, kept), Some(Ended::Applied));
    assert_eq!(hosts.outcome(2, lost), Some(Ended::Applied), "sent again as soon as the new leader is known");
    let (from, _, copy) = forwarded.expect("it was forwarded");
    hosts.deliver(from, 3, copy);
    hosts.settle();
    assert_eq!(hosts.copies(3, "kept"), 1, "n3 has applied it: a late copy costs no place in the log");
    for id in 2..=3 {
        assert_eq!(hosts.lines(id), ["kept", "lost"], "n{id}");
    }
}

#[test]
fn a_proposal_without_a_leader_waits_for_one() {
    let mut hosts = three();
    let requests = [hosts.propose(2, "a"), hosts.propose(3, "b"), hosts.propose(2, "c")];
    hosts.settle();
    assert!(!hosts.sent.iter().any(|(_, _, said)| is_forward(said)), "nobody to send it to");
    assert_eq!(hosts.outcome(2, requests[0]), None);
    hosts.elect(1);
    assert_eq!(hosts.outcome(2, requests[0]), Some(Ended::Applied));
    assert_eq!(hosts.outcome(3, requests[1]), Some(Ended::Applied));
    assert_eq!(hosts.outcome(2, requests[2]), Some(Ended::Applied));
    let of_n2: Vec<_> = hosts.lines(1).iter().filter(|line| *line != "b").collect();
    assert_eq!(of_n2, ["a", "c"], "in the order in which its clients came");
}

#[test]
fn a_client_that_gives_up_is_forgotten_and_not_undone() {
    let mut hosts = three();
    let request = hosts.propose(2, "x");
    hosts.step(2, Event::Abandon(request));
    hosts.elect(1);
    hosts.fire(2, ReplicaTimer::Retry);
    hosts.settle();
    assert_eq!((hosts.outcome(2, request), hosts.lines(1).len()), (None, 0), "nobody waits, so nothing is sent");
    let request = hosts.propose(2, "y");
    hosts.step(2, Event::Abandon(request));
    hosts.settle();
    assert_eq!((hosts.outcome(2, request), hosts.lines(2)), (None, &["y".to_string()][..]));
}

#[test]
fn a_lost_proposal_costs_no_later_snapshot_anything() {
    // Goal: what was lost is forgotten in time. Method: a command of n2 is lost and its client gives up; a second one is lost, and its client waits; many more
    // are applied, first under another leader and then under n2 itself.
    let mut hosts = three();
    hosts.elect(1);
    let lost = hosts.propose(2, "lost");
    hosts.bag.clear();
    hosts.step(2, Event::Abandon(lost));
    let remembered = |hosts: &Hosts, id| -> usize {
        hosts.host(id).replica.applied_requests().to_parts().map(|(_, _, _, above)| above.len()).sum()
    };
    let write = |hosts: &mut Hosts, leader| {
        for number in 0..1_000 {
            hosts.propose(2, &format!("{number}"));
            hosts.settle();
        }
        hosts.heartbeat(leader);
    };
    write(&mut hosts, 1);
    for id in 1..=3 {
        assert_eq!((remembered(&hosts, id), hosts.lines(id).len()), (0, 1_000), "n{id}");
    }
    let waiting = hosts.propose(2, "waiting");
    hosts.bag.clear();
    write(&mut hosts, 1);
    assert_eq!(remembered(&hosts, 3), 1_000, "it may still come");
    hosts.fire(2, ReplicaTimer::Retry);
    hosts.fire(2, ReplicaTimer::Retry);
    hosts.settle();
    hosts.heartbeat(1);
    assert_eq!(hosts.outcome(2, waiting), Some(Ended::Applied));
    hosts.elect(2);
    hosts.isolate(2);
    let lost = hosts.propose(2, "lost with its leader");
    hosts.step(2, Event::Abandon(lost));
    hosts.settle();
    hosts.elect(3);
    hosts.heal();
    hosts.heartbeat(3);
    hosts.elect(2);
    write(&mut hosts, 2);
    for id in 1..=3 {
        assert_eq!((remembered(&hosts, id), hosts.copies(id, "lost with its leader")), (0, 0), "n{id}");
    }
}

// --- Reads. ------------------------------------------------------------------------------------------------------

#[test]
fn of_a_removed_member_three_numbers_stay() {
    // Goal: the table of applied requests drops nobody, because a copy of a forward may come when its origin is gone. That costs three
    // numbers for each member that ever was, however much it proposed. Method: n3 forwards many commands, one of them twice; then n3
    // is removed, and the copy comes.
    let mut hosts = three();
    hosts.elect(1);
    for number in 1..=20 {
        hosts.propose(3, &format!("line {number}"));
        hosts.settle();
    }
    hosts.propose(3, "twice");
    let copy = hosts.bag.iter().find(|(_, to, said)| *to == 1 && is_forward(said)).expect("it is under way").clone();
    hosts.settle();
    hosts.change(1, &MembershipChange::of([Change::Remove(NodeId(3))]));
    hosts.settle();
    hosts.heartbeat(1);
    let kept = |id: u64| {
        let parts = hosts.host(id).replica.applied_requests().to_parts();
        parts.filter(|(node, ..)| *node == 3).collect::<Vec<_>>()
    };
    for id in [1, 2] {
        assert!(!hosts.host(id).replica.status().membership.has(NodeId(3)));
        assert_eq!(kept(id), [(3, 1, 21, vec![])], "node, life, and the last of its numbers, and none above it");
    }
    hosts.deliver(copy.0, copy.1, copy.2);
    hosts.settle();
    hosts.heartbeat(1);
    assert!([1, 2].into_iter().all(|id| hosts.lines(id).iter().filter(|line| *line == "twice").count() == 1));
}

#[test]
fn a_new_leader_is_asked_for_a_barrier_under_a_new_number() {
    // Goal: RH-3, RR-2. Method: the question to the old leader is answered late; the answer confirms nothing.
    let mut hosts = three();
    hosts.elect(1);
    let read = hosts.read(2);
    hosts.bag.clear();
    hosts.isolate(1);
    hosts.elect(3);
    hosts.propose(3, "newer");
    let asked: Vec<(u64, u64)> = hosts
        .sent
        .iter()
        .filter_map(|(_, to, said)| match said {
            ReplicaMessage::AskRead { number } => Some((*to, *number)),
            _ => None,
        })
        .collect();
    assert_eq!(asked, [(1, LIFE + 1), (3, LIFE + 2)]);
    hosts.settle();
    assert_eq!(hosts.host(2).reads[&read].len(), 1, "served once, by the new leader");
    // A second read shows that a late answer to another question is not taken for its own.
    let second = hosts.read(2);
    hosts.bag.clear();
    hosts.deliver(1, 2, ReplicaMessage::ReadAt { number: LIFE + 1, index: 0 });
    assert_eq!(hosts.host(2).reads.get(&second), None, "an answer to another question");
    hosts.fire(2, ReplicaTimer::Retry);
    hosts.fire(2, ReplicaTimer::Retry);
    hosts.settle();
    assert_eq!(hosts.host(2).reads.get(&second), Some(&vec![Ended::Saw(vec!["newer".into()])]));
}

#[test]
fn reads_that_come_while_a_barrier_is_under_way_wait_for_the_next() {
    let mut hosts = three();
    hosts.elect(1);
    let early = hosts.read(2);
    let question = hosts.bag.pop_front().expect("the question");
    hosts.deliver(question.0, question.1, question.2);
    // Between the two a write is acknowledged, so the second may not be served by the first one's barrier.
    let late = hosts.read(2);
    hosts.settle();
    let numbers = |said: &Said| matches!(said, ReplicaMessage::AskRead { .. });
    assert_eq!(hosts.sent.iter().filter(|(_, _, said)| numbers(said)).count(), 2);
    for read in [early, late] {
        assert_eq!(hosts.host(2).reads.get(&read), Some(&vec![Ended::Saw(vec![])]));
    }
}

#[test]
fn a_read_is_served_only_when_this_node_has_applied_what_was_confirmed() {
    let mut hosts = three();
    hosts.elect(1);
    hosts.hold_disk(2);
    hosts.propose(1, "x");
    hosts.settle();
    assert_eq!((hosts.lines(1).len(), hosts.lines(2).len()), (1, 0));
    let read = hosts.read(2);
    hosts.settle();
    assert_eq!(hosts.host(2).reads.get(&read), None, "confirmed, but not applied here");
    hosts.release_disk(2);
    assert_eq!(hosts.host(2).reads.get(&read), Some(&vec![Ended::Saw(vec!["x".into()])]));
}

#[test]
fn reads_whose_clients_gave_up_are_forgotten_wherever_they_wait() {
    // Goal: a replica keeps no read that nobody waits for, or they add up for as long as nobody leads. Method: n2's clients give up
    // before there is a leader, while the leader's answer is lost, while others wait for the next barrier, and while n2 has not applied
    // what was confirmed; no such read is asked for again or served, and the others are.
    let mut hosts = three();
    let gone = |hosts: &mut Hosts, reads: &[u64]| hosts.step(2, Event::AbandonReads(reads.iter().copied().collect()));
    let asked = |hosts: &Hosts| {
        hosts.sent.iter().filter(|(from, _, said)| *from == 2 && matches!(said, ReplicaMessage::AskRead { .. })).count()
    };
    let saw = |hosts: &Hosts, read| hosts.host(2).reads.get(&read).map(Vec::len);
    let early: Vec<u64> = (0..100).map(|_| hosts.read(2)).collect();
    gone(&mut hosts, &early);
    hosts.elect(1);
    hosts.fire(2, ReplicaTimer::Retry);
    hosts.settle();
    assert_eq!(asked(&hosts), 0, "nobody waits for a barrier");

    let [first, second, third] = [0; 3].map(|_| hosts.read(2));
    hosts.bag.clear();
    gone(&mut hosts, &[first, second]);
    assert_eq!(asked(&hosts), 2, "those who wait for the next barrier do not wait for one that nobody needs");
    hosts.settle();
    assert_eq!([first, second, third].map(|read| saw(&hosts, read)), [None, None, Some(1)]);

    hosts.hold_disk(2);
    hosts.propose(1, "x");
    hosts.settle();
    let [given_up, kept] = [0; 2].map(|_| hosts.read(2));
    hosts.settle();
    gone(&mut hosts, &[given_up]);
    hosts.release_disk(2);
    assert_eq!([given_up, kept].map(|read| saw(&hosts, read)), [None, Some(1)]);
}

// --- Order. ------------------------------------------------------------------------------------------------------

#[test]
fn what_a_node_says_to_itself_does_not_overtake_what_waits_before_it() {
    // Goal: effects never overtake. Method: the leader's disk is held while both followers commit `a` and one gets `b`; the
    // sync releases "I hold b", which commits it, before the application of `a` that waits behind.
    let mut hosts = three();
    hosts.elect(1);
    hosts.hold_disk(1);
    hosts.propose(1, "a");
    hosts.propose(1, "b");
    let both = std::mem::take(&mut hosts.bag);
    let (of_a, of_b): (Vec<_>, Vec<_>) = both.into_iter().partition(|(_, _, said)| last_index(said) == Some(2));
    hosts.bag.extend(of_a);
    hosts.settle();
    assert_eq!((hosts.lines(2), hosts.lines(1).len()), (&["a".to_string()][..], 0), "committed, not durable here");
    hosts.isolate(3);
    hosts.bag.extend(of_b);
    hosts.settle();
    assert_eq!(hosts.lines(2), ["a"], "one of three holds b durably");
    hosts.release_disk(1);
    assert_eq!(hosts.lines(1), ["a", "b"]);
    hosts.settle();
    assert_eq!(hosts.lines(2), ["a", "b"]);
}

fn last_index(said: &Said) -> Option<u64> {
    let ReplicaMessage::Protocol(Message::Append { entries, .. }) = said else { return None };
    entries.last().map(|entry| entry.lsn.index)
}

// --- Snapshots. --------------------------------------------------------------------------------------------------

#[test]
fn a_snapshot_remembers_what_was_applied_so_that_a_late_copy_changes_nothing() {
    // Goal: sessions are part of a snapshot. Method: n3 learns of n2's command only by a snapshot; then a copy of it comes.
    let mut hosts = cutting();
    hosts.elect(1);
    hosts.isolate(3);
    hosts.propose(2, "x");
    let (from, to, copy) = hosts.bag.iter().find(|(_, _, said)| is_forward(said)).cloned().expect("a forward");
    hosts.settle();
    let lsn = hosts.finish_cut(1);
    hosts.heal();
    for _ in 0..3 {
        hosts.heartbeat(1);
    }
    assert_eq!((hosts.host(3).replica.applied(), hosts.lines(3)), (lsn, &["x".to_string()][..]));
    let chunks = hosts.sent.iter().filter(|(_, to, said)| *to == 3 && matches!(said, ReplicaMessage::Chunk { .. }));
    assert!(chunks.count() > 1, "it came in more than one piece");
    assert_eq!(to, 1, "it was on its way to the old leader");
    hosts.elect(3);
    hosts.deliver(from, 3, copy);
    hosts.settle();
    hosts.heartbeat(3);
    for id in 1..=3 {
        assert_eq!(hosts.lines(id), ["x"], "n{id}");
    }
}

#[test]
fn a_client_whose_proposal_came_back_inside_a_snapshot_hears_that_it_may_have_been_done() {
    let mut hosts = cutting();
    hosts.elect(1);
    let request = hosts.propose(3, "x");
    hosts.forward_comes_back_inside_a_snapshot(3, 1);
    assert_eq!((hosts.lines(3), hosts.outcome(3, request)), (&["x".to_string()][..], Some(Ended::Unknown)));
}

#[test]
fn what_is_committed_while_a_snapshot_loads_is_applied_after_it() {
    // Goal: RS-2. Method: n3 holds the snapshot, and its loading takes until more has been committed there.
    let mut hosts = cutting();
    hosts.elect(1);
    hosts.isolate(3);
    hosts.propose(1, "a");
    hosts.settle();
    hosts.finish_cut(1);
    hosts.propose(1, "b");
    hosts.settle();
    hosts.heal();
    hosts.hold_loads(3);
    hosts.heartbeat(1);
    hosts.heartbeat(1);
    hosts.propose(1, "c");
    hosts.settle();
    hosts.heartbeat(1);
    assert_eq!(
        (hosts.host(3).replica.status().commit, hosts.lines(3).len()),
        (3, 0),
        "b is committed, and there is nothing to apply it to"
    );
    hosts.release_loads(3);
    assert_eq!(hosts.lines(3), ["a", "b"]);
    hosts.heartbeat(1);
    assert_eq!(hosts.lines(3), ["a", "b", "c"]);
}

#[test]
fn chunks_of_another_snapshot_or_from_another_place_are_ignored() {
    // The offer and the first question, but no answer yet.
    let (mut hosts, lsn) = offering("a");
    hosts.deliver_until(|said| matches!(said, ReplicaMessage::AskChunk { .. }));
    let junk = || Bytes::from_static(b"not yours");
    for (from, lsn, offset, bytes) in [
        (2, lsn, 0, junk()),
        (1, Lsn::new(9, 9), 0, junk()),
        (1, lsn, 1 << 40, junk()),
        (1, lsn, u64::MAX, junk()),
        (1, lsn, 0, Bytes::new()),
    ] {
        hosts.deliver(from, 3, ReplicaMessage::Chunk { lsn, offset, bytes });
    }
    for _ in 0..3 {
        hosts.heartbeat(1);
    }
    assert_eq!(hosts.lines(3), ["a"]);
    assert_eq!(hosts.host(3).replica.status().term, Term(1));
}

#[test]
fn a_source_that_answers_nothing_is_given_up_for_another() {
    // Goal: a fetch outlives neither its source's silence nor its reign. Method: n3 fetches n1's snapshot; n1's process stands
    // still, though its links are up, and n2 leads, which can commit nothing without n3.
    let mut hosts = cutting();
    hosts.elect(1);
    hosts.isolate(3);
    hosts.propose(1, "a");
    hosts.settle();
    hosts.heartbeat(1);
    hosts.finish_cut(1);
    hosts.finish_cut(2);
    hosts.heal();
    hosts.fire(1, ReplicaTimer::Protocol(Timer::Heartbeat));
    hosts.deliver_until(|said| matches!(said, ReplicaMessage::AskChunk { .. }));
    hosts.isolate(1);
    hosts.elect(2);
    for _ in 0..3 {
        hosts.fire(3, ReplicaTimer::Chunk);
        hosts.settle();
    }
    for _ in 0..3 {
        hosts.heartbeat(2);
    }
    hosts.propose(2, "b");
    hosts.settle();
    hosts.heartbeat(2);
    assert_eq!((hosts.lines(2), hosts.lines(3)), (&["a".to_string(), "b".to_string()][..], hosts.lines(2)));
}

#[test]
fn a_fetch_goes_on_where_it_stood_when_the_same_snapshot_is_offered_again() {
    // Goal: nothing is fetched twice. Method: after the first chunk n1's link drops; it is back, and offers the same again.
    let (mut hosts, _) = offering("a");
    let is_second = |said: &Said| matches!(said, ReplicaMessage::AskChunk { offset, .. } if *offset > 0);
    hosts.deliver_until(is_second);
    hosts.bag.clear();
    hosts.link_down(3, 1);
    hosts.link_down(1, 3);
    let before = hosts.sent.len();
    for _ in 0..4 {
        hosts.heartbeat(1);
    }
    assert_eq!(hosts.lines(3), ["a"]);
    let is_first = |said: &Said| matches!(said, ReplicaMessage::AskChunk { offset: 0, .. });
    assert!(!hosts.sent[before..].iter().any(|(_, _, said)| is_first(said)), "it is asked for the rest alone");
}

#[test]
fn what_was_refused_for_good_does_not_happen_when_a_copy_of_it_comes_later() {
    // Goal: Refused is definite. Method: n1 has too much to do when n2's proposal comes, and the network delivers that a second
    // time when there is room again, and a third time in n1's next reign.
    let limits = Limits { uncommitted_bytes_max: 4, ..Limits::default() };
    let mut hosts = Hosts::new(Cluster { limits, ..Cluster::of(3, 1) }, Policy::default());
    hosts.elect(1);
    hosts.settle();
    let refused = hosts.propose(2, "second");
    let copy = hosts.bag.iter().find(|(_, _, said)| is_forward(said)).cloned().expect("a forward");
    hosts.bag.clear();
    hosts.propose(1, "first");
    hosts.deliver(copy.0, copy.1, copy.2.clone());
    hosts.settle();
    assert_eq!(hosts.outcome(2, refused), Some(Ended::Refused(Refusal::Overloaded)));
    hosts.deliver(copy.0, copy.1, copy.2.clone());
    hosts.settle();
    hosts.elect(3);
    hosts.elect(1);
    hosts.deliver(copy.0, copy.1, copy.2);
    hosts.settle();
    assert_eq!(hosts.lines(1), ["first"]);
}
