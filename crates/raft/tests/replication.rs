//! Stories of replication, commit, reads and flow control: RA, RC, RR, RF, and the figures of the paper.

mod support;

use hustings_core::{Cluster, Limits, Lsn, NodeId, Refusal, Role, Term};
use hustings_raft::{Message, Options, Timer};
use support::{Theatre, Verbs as _, cast, history};

#[test]
fn a_write_is_applied_everywhere_in_the_same_order() {
    let mut theatre = cast(3);
    theatre.elect(1);
    for text in ["a", "b", "c"] {
        theatre.propose(1, text);
    }
    let applied = |id: u64| theatre.actor(id).applied.clone();
    assert_eq!(applied(1).len(), 4);
    assert_eq!((applied(1), applied(2)), (applied(2), applied(3)));
}

#[test]
fn an_old_terms_entry_does_not_commit_by_counting() {
    // Goal: raft_old_term_not_counted, Raft figure 8, RP-01. Method: terms [1, 2], a leader of term 3, two voters.
    let mut theatre = Theatre::new(Cluster::of(2, 1), Options::default());
    theatre.enter(1, history(2, None, &[1, 2]));
    theatre.enter(2, history(2, None, &[]));
    theatre.keep_losing(|from, _, message| from == 2 && matches!(message, Message::Matched { .. }));
    theatre.elect(1);
    assert_eq!((theatre.term(1), theatre.commit(1)), (3, 0));
    for (index, commit) in [(1, 0), (2, 0), (3, 3)] {
        theatre.deliver(2, 1, Message::Matched { term: Term(3), index });
        assert_eq!(theatre.commit(1), commit, "after {index}");
    }
}

#[test]
fn a_newer_uncommitted_tail_is_overwritten() {
    // Goal: raft_newer_uncommitted_overwritten.
    let mut theatre =
        Theatre::new(Cluster::of(5, 1), Options { pre_vote: false, check_quorum: false, ..Options::default() });
    theatre.enter(1, history(1, None, &[1]));
    theatre.enter(2, history(1, None, &[1]));
    theatre.enter(3, history(2, None, &[2]));
    for id in [4, 5] {
        theatre.enter(id, history(2, Some(3), &[]));
    }
    theatre.fire(1, Timer::Election);
    theatre.settle();
    assert_eq!((theatre.role(1), theatre.term(1)), (Role::Follower, 2), "n3, n4 and n5 refuse");
    theatre.fire(1, Timer::Election);
    theatre.settle();
    assert_eq!((theatre.role(1), theatre.term(1)), (Role::Leader, 3));
    for id in 1..=5 {
        assert_eq!(theatre.terms(id), [1, 3], "n{id}");
    }
}

#[test]
fn an_older_append_does_not_truncate() {
    // Goal: raft_reordered_append_no_truncate, RH-11, RP-05.
    let mut theatre = cast(3);
    theatre.elect(1);
    let mut older = None;
    for text in ["2", "3", "4", "5", "6"] {
        theatre.propose_quietly(1, text);
        let messages = theatre.take_messages();
        older = older.or_else(|| messages.iter().find(|(_, to, _)| *to == 2).cloned());
        theatre.table.extend(messages);
        theatre.settle();
    }
    let before = theatre.terms(2);
    let (from, to, message) = older.expect("an append was sent");
    theatre.deliver(from, to, message);
    theatre.settle();
    assert_eq!(theatre.terms(2), before);
    assert_eq!(theatre.value(1).progress_of(NodeId(2)).expect("a peer").known.stored, 6);
}

#[test]
fn a_refusal_finds_the_last_agreement_in_one_round() {
    // Goal: raft_fast_reject_table. (leader's terms, follower's terms, hint (term, index), next probe's previous).
    type Row = (&'static [u64], &'static [u64], (u64, u64), (u64, u64));
    let rows: [Row; 6] = [
        (&[1, 2, 2, 4, 4, 4, 4], &[1, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3], (3, 7), (2, 3)),
        (&[1, 2, 2, 3, 4, 4, 4, 5], &[1, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3], (3, 8), (3, 4)),
        (&[1, 1, 1, 1], &[1, 2, 2, 4], (1, 1), (1, 1)),
        (&[1, 1, 1, 4, 5], &[1, 1, 1, 4], (4, 4), (4, 4)),
        (&[2, 5, 5, 5, 5, 5, 5, 5, 5], &[2, 4, 4, 4, 4, 4], (4, 6), (2, 1)),
        (&[2, 2, 2, 2, 2], &[2, 4, 4, 4, 4, 4, 4, 4], (2, 1), (2, 1)),
    ];
    for (leaders, followers, hint, probe) in rows {
        let mut theatre =
            Theatre::new(Cluster::of(2, 1), Options { pre_vote: false, check_quorum: false, ..Options::default() });
        let last = *leaders.last().expect("a log").max(followers.last().expect("a log"));
        theatre.enter(1, history(last, Some(1), leaders));
        theatre.enter(2, history(last, Some(1), followers));
        // The follower would refuse the vote of a shorter log; this is about replication, so it grants by hand.
        theatre.fire(1, Timer::Election);
        theatre.take_messages();
        let term = theatre.term(1);
        let grant =
            hustings_raft::VoteReply { term: Term(term), campaign: Term(term), is_granted: true, commit: Lsn::ZERO };
        theatre.deliver(2, 1, Message::VoteReply(grant));
        let appends = theatre.take_messages();
        // The probe goes to the end of the log before the leader's own blank.
        let (_, _, probe_message) = appends.iter().find(|(_, to, _)| *to == 2).cloned().expect("a probe");
        theatre.deliver(1, 2, probe_message);
        let replies = theatre.take_messages();
        let (_, _, reply) = replies.last().cloned().expect("an answer");
        if let Message::Rejected { hint_index, hint_term, .. } = &reply {
            assert_eq!((hint_term.expect("not compacted").0, *hint_index), hint, "{leaders:?} / {followers:?}");
            theatre.deliver(2, 1, reply);
            let next = theatre.take_messages();
            let Some((_, _, Message::Append { previous, .. })) = next.last() else { panic!("a second probe") };
            assert_eq!((previous.term.0, previous.index), probe, "{leaders:?} / {followers:?}");
        } else {
            panic!("{leaders:?} / {followers:?}: the first probe was to be refused");
        }
    }
}

#[test]
fn figure_seven_heals_with_one_refusal_per_follower() {
    // Goal: raft_figure7_recovery. Seven logs, n1 elected for term 8; afterwards all are equal.
    let logs: [&[u64]; 7] = [
        &[1, 1, 1, 4, 4, 5, 5, 6, 6, 6],
        &[1, 1, 1, 4, 4, 5, 5, 6, 6],
        &[1, 1, 1, 4],
        &[1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
        &[1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7, 7, 7],
        &[1, 1, 1, 4, 4, 4, 4],
        &[1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
    ];
    let mut theatre = Theatre::new(Cluster::of(7, 1), Options::default());
    for (id, terms) in (1..).zip(logs) {
        theatre.enter(id, history(7, None, terms));
    }
    theatre.elect(1);
    theatre.propose(1, "x");
    for id in 2..=7 {
        assert_eq!(theatre.terms(id), [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 8, 8], "n{id}");
        assert_eq!(theatre.commit(id), 12, "n{id}");
    }
}

#[test]
fn a_leader_counts_itself_only_when_its_own_copy_is_durable() {
    // Goal: RC-2. Method: hold the leader's disk; one follower is not enough.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(3);
    theatre.hold_disk(1);
    theatre.propose(1, "x");
    assert_eq!(theatre.commit(1), 1, "one of three holds it durably");
    theatre.release_disk(1);
    theatre.settle();
    assert_eq!(theatre.commit(1), 2);
}

#[test]
fn two_followers_commit_without_the_leaders_disk_and_it_applies_once_its_own_copy_is_durable() {
    // Goal: the leader's and the followers' syncs overlap; apply of entry i rests on Put(i).
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.hold_disk(1);
    theatre.propose(1, "x");
    assert_eq!((theatre.commit(1), theatre.actor(2).applied.len(), theatre.actor(1).applied.len()), (2, 2, 1));
    theatre.release_disk(1);
    assert_eq!(theatre.actor(1).applied.len(), 2);
}

#[test]
fn an_acknowledgement_waits_for_the_followers_disk() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(3);
    theatre.hold_disk(2);
    theatre.propose(1, "x");
    assert_eq!(theatre.commit(1), 1);
    theatre.release_disk(2);
    theatre.settle();
    assert_eq!(theatre.commit(1), 2);
}

#[test]
fn a_whole_window_lost_is_found_and_sent_again() {
    // Goal: raft_window_full_all_lost, RH-14.
    let limits = Limits { inflight_messages_max: 3, message_bytes_max: 1, ..Limits::default() };
    let mut theatre = Theatre::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    theatre.elect(1);
    theatre.propose(1, "warm");
    theatre.keep_losing(|_, to, message| to == 3 && matches!(message, Message::Append { .. } | Message::Commit { .. }));
    for text in ["a", "b", "c", "d", "e", "f"] {
        theatre.propose(1, text);
    }
    assert_eq!((theatre.commit(1), theatre.last(3).index), (8, 2));
    theatre.lose_nothing();
    theatre.heartbeat(1);
    assert_eq!((theatre.last(3).index, theatre.commit(3)), (8, 8));
}

#[test]
fn messages_that_overtake_each_other_do_not_multiply() {
    // Goal: seed 489 of the proving ground, 1.2 million messages for five joiners. Method: n3 lacks 300 entries of a
    // message each, on a network that delivers in no order.
    let limits = Limits { message_bytes_max: 1, ..Limits::default() };
    let mut theatre = Theatre::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    theatre.elect(1);
    theatre.isolate(3);
    for _ in 0..300 {
        theatre.propose(1, "x");
    }
    theatre.heal();
    let (mut delivered, mut draw) = (0_usize, 7_usize);
    while theatre.last(3) != theatre.last(1) {
        theatre.fire(1, Timer::Heartbeat);
        while !theatre.table.is_empty() {
            delivered += 1;
            assert!(
                delivered < 6_000,
                "at n3's index {}: more than twenty messages for each entry",
                theatre.last(3).index
            );
            draw = draw * 1_103_515_245 % 2_147_483_647;
            let (from, to, message) = theatre.table.remove(draw % theatre.table.len()).expect("it is on the table");
            theatre.deliver(from, to, message);
        }
    }
}

#[test]
fn the_window_holds_back_what_a_slow_peer_cannot_take() {
    let limits = Limits { inflight_messages_max: 2, ..Limits::default() };
    let mut theatre = Theatre::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    theatre.elect(1);
    theatre.hold_disk(3);
    for text in ["a", "b", "c", "d"] {
        theatre.propose(1, text);
    }
    assert_eq!((theatre.commit(1), theatre.last(3).index), (5, 3), "two messages in flight, no more");
    theatre.release_disk(3);
    theatre.settle();
    assert_eq!(theatre.last(3).index, 5);
}

#[test]
fn a_tail_that_cannot_commit_is_bounded() {
    // Goal: RP-08, RF-1: over the limit is refused; one large proposal is accepted when nothing is outstanding.
    let limits = Limits { uncommitted_bytes_max: 10, ..Limits::default() };
    let mut theatre = Theatre::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    theatre.elect(1);
    theatre.isolate(1);
    let large = theatre.propose_quietly(1, "twelve bytes");
    let second = theatre.propose_quietly(1, "x");
    assert_eq!((theatre.refusal(1, large), theatre.refusal(1, second)), (None, Some(Refusal::Overloaded)));
    theatre.heal();
    theatre.heartbeat(1);
    assert_eq!(theatre.commit(1), 2);
    let third = theatre.propose(1, "x");
    assert_eq!(theatre.refusal(1, third), None, "what is committed no longer counts");
}

#[test]
fn a_lost_commit_arrives_with_the_next_heartbeat_and_never_above_the_match() {
    // Goal: `lagging_commit`, RC-3, RH-17.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.keep_losing(|_, to, message| to == 3 && matches!(message, Message::Commit { .. }));
    theatre.propose(1, "x");
    assert_eq!(theatre.commit(3), 1);
    theatre.heartbeat(1);
    assert_eq!(theatre.commit(3), 2);
    for (_, _, message) in &theatre.said {
        let Message::Commit { index, .. } = message else { continue };
        assert!(*index <= 2);
    }
}

#[test]
fn a_link_that_comes_back_resumes_where_the_peer_is() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(3);
    for text in ["a", "b", "c"] {
        theatre.propose(1, text);
    }
    theatre.link_down(1, 3);
    theatre.heal();
    theatre.link_up(1, 3);
    theatre.settle();
    assert_eq!((theatre.last(3).index, theatre.commit(3)), (4, 4));
}

// --- Reads. ------------------------------------------------------------------------------------------------------

#[test]
fn a_read_waits_until_a_quorum_confirms_the_leader() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.propose(1, "x");
    let read = theatre.read(1, 1);
    assert_eq!(theatre.read_index(1, read), None);
    theatre.settle();
    assert_eq!(theatre.read_index(1, read), Some(2));
}

#[test]
fn a_new_leader_serves_no_read_before_its_first_commit() {
    // Goal: RH-10, RP-02. Method: the blank cannot commit; the read waits, then is released.
    let mut theatre = cast(3);
    theatre.keep_losing(|_, _, message| matches!(message, Message::Matched { .. }));
    theatre.elect(1);
    let read = theatre.read(1, 1);
    theatre.heartbeat(1);
    assert_eq!((theatre.commit(1), theatre.read_index(1, read)), (0, None));
    theatre.lose_nothing();
    theatre.heartbeat(1);
    theatre.heartbeat(1);
    assert_eq!((theatre.commit(1), theatre.read_index(1, read)), (1, Some(1)));
}

#[test]
fn a_single_voter_serves_no_read_before_its_first_commit() {
    // Goal: RH-8, RP-14.
    let mut theatre = Theatre::new(Cluster::of(1, 1), Options::default());
    theatre.propose(1, "x");
    let durable = theatre.actor(1).durable.clone();
    theatre.enter(1, durable);
    let read = theatre.read(1, 1);
    assert_eq!(theatre.read_index(1, read), Some(3), "after its own blank, which commits what it had acknowledged");
}

#[test]
fn answers_to_an_old_read_do_not_confirm_a_newer_one() {
    // Goal: raft_read_index_retry_stale, RH-3. Method: delay the answers to A; n1 is deposed unknowingly; B must not pass.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.read(1, 1);
    let heartbeats = theatre.take_messages();
    for (from, to, message) in heartbeats {
        theatre.deliver(from, to, message);
    }
    let delayed = theatre.take_messages();
    theatre.isolate(1);
    theatre.elect(2);
    theatre.propose(2, "newer");
    let stale = theatre.read(1, 2);
    theatre.take_messages();
    for (from, to, message) in delayed {
        theatre.deliver(from, to, message);
    }
    assert_eq!(theatre.read_index(1, stale), None);
}

#[test]
fn a_deposed_leader_refuses_the_reads_that_wait() {
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(1);
    let read = theatre.read(1, 1);
    theatre.elect(2);
    theatre.heal();
    theatre.heartbeat(2);
    assert!(theatre.outcome(1, read).is_some());
    assert_eq!(theatre.read_index(1, read), None);
}

#[test]
fn a_commit_is_recorded_before_the_entries_that_follow_it() {
    // Goal: RM-3: a node that holds a second change knows that the first is in force. Method: one append brings an
    // entry that is committed and one that is not; the committed one is recorded as such before the other is put.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.isolate(3);
    theatre.propose(1, "committed");
    theatre.hold_disk(1);
    theatre.cut(1, 2);
    theatre.propose_quietly(1, "not committed");
    theatre.heal();
    let before = theatre.actor(3).records.len();
    theatre.heartbeat(1);
    let written: Vec<String> = theatre.actor(3).records[before..].iter().map(|record| format!("{record:?}")).collect();
    let place = |text: &str| written.iter().position(|record| record.contains(text)).expect(text);
    assert!(place("Committed(1:2)") < place("not committed"), "{written:#?}");
    assert!(place("b\"committed") < place("Committed(1:2)"), "{written:#?}");
}

#[test]
fn a_peer_that_refuses_beyond_all_indices_changes_nothing() {
    // Goal: BI-03, in the one state in which a refusal is believed: while the peer is probed.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.link_down(1, 3);
    let index = u64::MAX;
    theatre.deliver_undecoded(3, 1, Message::Rejected { term: Term(1), index, hint_index: index, hint_term: None });
    theatre.settle();
    assert_eq!(theatre.leader(), 1);
}

#[test]
fn absurd_fields_change_nothing() {
    // Goal: BI-03.
    let mut theatre = cast(3);
    theatre.elect(1);
    let (term, before) = (Term(1), theatre.commit(2));
    let hostile = [
        Message::Commit { term, index: u64::MAX },
        Message::Heartbeat { term, commit: u64::MAX, position: u64::MAX },
        Message::Append { term, previous: Lsn::new(1, u64::MAX), entries: vec![], commit: u64::MAX },
        Message::Append { term, previous: Lsn::new(9, 1), entries: vec![], commit: 0 },
    ];
    for message in hostile {
        theatre.deliver_undecoded(1, 2, message);
    }
    for message in [
        Message::Matched { term, index: u64::MAX },
        Message::Rejected { term, index: u64::MAX, hint_index: u64::MAX, hint_term: None },
        Message::HeartbeatReply {
            term,
            position: u64::MAX,
            priority: hustings_core::Priority::Normal,
            is_installing: true,
        },
    ] {
        theatre.deliver_undecoded(3, 1, message);
    }
    // Answers repeat what is absurd, so no wire could carry them either.
    while let Some((from, to, message)) = theatre.table.pop_front() {
        theatre.deliver_undecoded(from, to, message);
    }
    assert_eq!((theatre.commit(2), theatre.leader()), (before, 1));
}

#[test]
fn a_peer_whose_whole_window_was_lost_and_compacted_gets_the_snapshot() {
    // Goal: RH-14 and RA-7 together. The storm `non-sticky-leader`: n3 is away for a minute, hears heartbeats again, and what it
    // should have had is neither on its way any more nor in the leader's log.
    let limits = Limits { trailing_entries: 0, ..Limits::default() };
    let mut theatre = Theatre::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    theatre.elect(1);
    theatre.propose(1, "all have this");
    theatre.isolate(3);
    theatre.propose(1, "lost on the way");
    theatre.propose(1, "and this");
    theatre.compact(1);
    theatre.heal();
    theatre.heartbeat(1);
    assert!(theatre.actor(3).fetching.is_some(), "n3 is offered the snapshot");
    theatre.finish_fetch(3);
    theatre.heartbeat(1);
    assert_eq!(theatre.last(3), theatre.last(1));
}

#[test]
fn a_new_leader_counts_what_it_inherits() {
    // Goal: RF-1 over a change of leaders. Method: a hundred bytes may be uncommitted; n1 is elected again with eighty that
    // nobody acknowledges.
    let limits = Limits { uncommitted_bytes_max: 100, ..Limits::default() };
    let mut theatre = Theatre::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    theatre.elect(1);
    theatre.keep_losing(|_, _, message| matches!(message, Message::Matched { .. }));
    theatre.propose(1, &"x".repeat(80));
    theatre.elect(2);
    let origin = theatre.propose(2, &"y".repeat(40));
    assert_eq!(theatre.refusal(2, origin), Some(Refusal::Overloaded));
}
