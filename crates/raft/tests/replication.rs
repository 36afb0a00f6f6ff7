//! Stories of replication, commit, reads and flow control: RA, RC, RR, RF, and the figures of the paper.

mod support;

use hustings_core::{Cluster, Limits, Lsn, NodeId, Refusal, Role, Term};
use hustings_raft::{Message, Options, Timer};
use support::{Stage, history, stage};

#[test]
fn a_write_is_applied_everywhere_in_the_same_order() {
    let mut stage = stage(3);
    stage.elect(1);
    for text in ["a", "b", "c"] {
        stage.propose(1, text);
    }
    let applied = |id: u64| stage.member(id).applied.clone();
    assert_eq!(applied(1).len(), 4);
    assert_eq!((applied(1), applied(2)), (applied(2), applied(3)));
}

#[test]
fn an_old_terms_entry_does_not_commit_by_counting() {
    // Goal: raft_old_term_not_counted, Raft figure 8, RP-01. Method: terms [1, 2], a leader of term 3, two voters.
    let mut stage = Stage::new(Cluster::of(2, 1), Options::default());
    stage.start(1, history(2, None, &[1, 2]));
    stage.start(2, history(2, None, &[]));
    stage.lose(|from, _, message| from == 2 && matches!(message, Message::Matched { .. }));
    stage.elect(1);
    assert_eq!((stage.term(1), stage.commit(1)), (3, 0));
    for (index, commit) in [(1, 0), (2, 0), (3, 3)] {
        stage.deliver(2, 1, Message::Matched { term: Term(3), index });
        assert_eq!(stage.commit(1), commit, "after {index}");
    }
}

#[test]
fn a_newer_uncommitted_tail_is_overwritten() {
    // Goal: raft_newer_uncommitted_overwritten.
    let mut stage =
        Stage::new(Cluster::of(5, 1), Options { pre_vote: false, check_quorum: false, ..Options::default() });
    stage.start(1, history(1, None, &[1]));
    stage.start(2, history(1, None, &[1]));
    stage.start(3, history(2, None, &[2]));
    for id in [4, 5] {
        stage.start(id, history(2, Some(3), &[]));
    }
    stage.fire(1, Timer::Election);
    stage.settle();
    assert_eq!((stage.role(1), stage.term(1)), (Role::Follower, 2), "n3, n4 and n5 refuse");
    stage.fire(1, Timer::Election);
    stage.settle();
    assert_eq!((stage.role(1), stage.term(1)), (Role::Leader, 3));
    for id in 1..=5 {
        assert_eq!(stage.terms(id), [1, 3], "n{id}");
    }
}

#[test]
fn an_older_append_does_not_truncate() {
    // Goal: raft_reordered_append_no_truncate, RH-11, RP-05.
    let mut stage = stage(3);
    stage.elect(1);
    let mut older = None;
    for text in ["2", "3", "4", "5", "6"] {
        stage.propose_quietly(1, text);
        let messages = stage.take_messages();
        older = older.or_else(|| messages.iter().find(|(_, to, _)| *to == 2).cloned());
        stage.bag.extend(messages);
        stage.settle();
    }
    let before = stage.terms(2);
    let (from, to, message) = older.expect("an append was sent");
    stage.deliver(from, to, message);
    stage.settle();
    assert_eq!(stage.terms(2), before);
    assert_eq!(stage.raft(1).progress_of(NodeId(2)).expect("a peer").known.stored, 6);
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
        let mut stage =
            Stage::new(Cluster::of(2, 1), Options { pre_vote: false, check_quorum: false, ..Options::default() });
        let last = *leaders.last().expect("a log").max(followers.last().expect("a log"));
        stage.start(1, history(last, Some(1), leaders));
        stage.start(2, history(last, Some(1), followers));
        // The follower would refuse the vote of a shorter log; this is about replication, so it grants by hand.
        stage.fire(1, Timer::Election);
        stage.take_messages();
        let term = stage.term(1);
        let grant =
            hustings_raft::VoteReply { term: Term(term), campaign: Term(term), is_granted: true, commit: Lsn::ZERO };
        stage.deliver(2, 1, Message::VoteReply(grant));
        let appends = stage.take_messages();
        // The probe goes to the end of the log before the leader's own blank.
        let (_, _, probe_message) = appends.iter().find(|(_, to, _)| *to == 2).cloned().expect("a probe");
        stage.deliver(1, 2, probe_message);
        let replies = stage.take_messages();
        let (_, _, reply) = replies.last().cloned().expect("an answer");
        if let Message::Rejected { hint_index, hint_term, .. } = &reply {
            assert_eq!((hint_term.expect("not compacted").0, *hint_index), hint, "{leaders:?} / {followers:?}");
            stage.deliver(2, 1, reply);
            let next = stage.take_messages();
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
    let mut stage = Stage::new(Cluster::of(7, 1), Options::default());
    for (id, terms) in (1..).zip(logs) {
        stage.start(id, history(7, None, terms));
    }
    stage.elect(1);
    stage.propose(1, "x");
    for id in 2..=7 {
        assert_eq!(stage.terms(id), [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 8, 8], "n{id}");
        assert_eq!(stage.commit(id), 12, "n{id}");
    }
}

#[test]
fn a_leader_counts_itself_only_when_its_own_copy_is_durable() {
    // Goal: RC-2. Method: hold the leader's disk; one follower is not enough.
    let mut stage = stage(3);
    stage.elect(1);
    stage.isolate(3);
    stage.hold_disk(1);
    stage.propose(1, "x");
    assert_eq!(stage.commit(1), 1, "one of three holds it durably");
    stage.release_disk(1);
    stage.settle();
    assert_eq!(stage.commit(1), 2);
}

#[test]
fn two_followers_commit_without_the_leaders_disk_and_it_applies_once_its_own_copy_is_durable() {
    // Goal: the leader's and the followers' syncs overlap; apply of entry i rests on Put(i).
    let mut stage = stage(3);
    stage.elect(1);
    stage.hold_disk(1);
    stage.propose(1, "x");
    assert_eq!((stage.commit(1), stage.member(2).applied.len(), stage.member(1).applied.len()), (2, 2, 1));
    stage.release_disk(1);
    assert_eq!(stage.member(1).applied.len(), 2);
}

#[test]
fn an_acknowledgement_waits_for_the_followers_disk() {
    let mut stage = stage(3);
    stage.elect(1);
    stage.isolate(3);
    stage.hold_disk(2);
    stage.propose(1, "x");
    assert_eq!(stage.commit(1), 1);
    stage.release_disk(2);
    stage.settle();
    assert_eq!(stage.commit(1), 2);
}

#[test]
fn a_whole_window_lost_is_found_and_sent_again() {
    // Goal: raft_window_full_all_lost, RH-14.
    let limits = Limits { inflight_messages_max: 3, message_bytes_max: 1, ..Limits::default() };
    let mut stage = Stage::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    stage.elect(1);
    stage.propose(1, "warm");
    stage.lose(|_, to, message| to == 3 && matches!(message, Message::Append { .. } | Message::Commit { .. }));
    for text in ["a", "b", "c", "d", "e", "f"] {
        stage.propose(1, text);
    }
    assert_eq!((stage.commit(1), stage.last(3).index), (8, 2));
    stage.lose_nothing();
    stage.heartbeat(1);
    assert_eq!((stage.last(3).index, stage.commit(3)), (8, 8));
}

#[test]
fn messages_that_overtake_each_other_do_not_multiply() {
    // Goal: seed 489 of the proving ground, 1.2 million messages for five joiners. Method: n3 lacks 300 entries of a
    // message each, on a network that delivers in no order.
    let limits = Limits { message_bytes_max: 1, ..Limits::default() };
    let mut stage = Stage::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    stage.elect(1);
    stage.isolate(3);
    for _ in 0..300 {
        stage.propose(1, "x");
    }
    stage.heal();
    let (mut delivered, mut draw) = (0_usize, 7_usize);
    while stage.last(3) != stage.last(1) {
        stage.fire(1, Timer::Heartbeat);
        while !stage.bag.is_empty() {
            delivered += 1;
            assert!(
                delivered < 6_000,
                "at n3's index {}: more than twenty messages for each entry",
                stage.last(3).index
            );
            draw = draw * 1_103_515_245 % 2_147_483_647;
            let (from, to, message) = stage.bag.remove(draw % stage.bag.len()).expect("it is in the bag");
            stage.deliver(from, to, message);
        }
    }
}

#[test]
fn the_window_holds_back_what_a_slow_peer_cannot_take() {
    let limits = Limits { inflight_messages_max: 2, ..Limits::default() };
    let mut stage = Stage::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    stage.elect(1);
    stage.hold_disk(3);
    for text in ["a", "b", "c", "d"] {
        stage.propose(1, text);
    }
    assert_eq!((stage.commit(1), stage.last(3).index), (5, 3), "two messages in flight, no more");
    stage.release_disk(3);
    stage.settle();
    assert_eq!(stage.last(3).index, 5);
}

#[test]
fn a_tail_that_cannot_commit_is_bounded() {
    // Goal: RP-08, RF-1: over the limit is refused; one large proposal is accepted when nothing is outstanding.
    let limits = Limits { uncommitted_bytes_max: 10, ..Limits::default() };
    let mut stage = Stage::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    stage.elect(1);
    stage.isolate(1);
    let large = stage.propose_quietly(1, "twelve bytes");
    let second = stage.propose_quietly(1, "x");
    assert_eq!((stage.refusal(1, large), stage.refusal(1, second)), (None, Some(Refusal::Overloaded)));
    stage.heal();
    stage.heartbeat(1);
    assert_eq!(stage.commit(1), 2);
    let third = stage.propose(1, "x");
    assert_eq!(stage.refusal(1, third), None, "what is committed no longer counts");
}

#[test]
fn a_lost_commit_arrives_with_the_next_heartbeat_and_never_above_the_match() {
    // Goal: `lagging_commit`, RC-3, RH-17.
    let mut stage = stage(3);
    stage.elect(1);
    stage.lose(|_, to, message| to == 3 && matches!(message, Message::Commit { .. }));
    stage.propose(1, "x");
    assert_eq!(stage.commit(3), 1);
    stage.heartbeat(1);
    assert_eq!(stage.commit(3), 2);
    for (_, _, message) in &stage.dropped {
        let Message::Commit { index, .. } = message else { continue };
        assert!(*index <= 2);
    }
}

#[test]
fn a_link_that_comes_back_resumes_where_the_peer_is() {
    let mut stage = stage(3);
    stage.elect(1);
    stage.isolate(3);
    for text in ["a", "b", "c"] {
        stage.propose(1, text);
    }
    stage.link_down(1, 3);
    stage.heal();
    stage.input(1, hustings_core::Input::Link { peer: NodeId(3), state: hustings_core::LinkState::Up });
    stage.settle();
    assert_eq!((stage.last(3).index, stage.commit(3)), (4, 4));
}

// --- Reads. ------------------------------------------------------------------------------------------------------

#[test]
fn a_read_waits_until_a_quorum_confirms_the_leader() {
    let mut stage = stage(3);
    stage.elect(1);
    stage.propose(1, "x");
    let read = stage.read(1, 1);
    assert_eq!(stage.read_index(1, read), None);
    stage.settle();
    assert_eq!(stage.read_index(1, read), Some(2));
}

#[test]
fn a_new_leader_serves_no_read_before_its_first_commit() {
    // Goal: RH-10, RP-02. Method: the blank cannot commit; the read waits, then is released.
    let mut stage = stage(3);
    stage.lose(|_, _, message| matches!(message, Message::Matched { .. }));
    stage.elect(1);
    let read = stage.read(1, 1);
    stage.heartbeat(1);
    assert_eq!((stage.commit(1), stage.read_index(1, read)), (0, None));
    stage.lose_nothing();
    stage.heartbeat(1);
    stage.heartbeat(1);
    assert_eq!((stage.commit(1), stage.read_index(1, read)), (1, Some(1)));
}

#[test]
fn a_single_voter_serves_no_read_before_its_first_commit() {
    // Goal: RH-8, RP-14.
    let mut stage = Stage::new(Cluster::of(1, 1), Options::default());
    stage.propose(1, "x");
    let durable = stage.member(1).durable.clone();
    stage.start(1, durable);
    let read = stage.read(1, 1);
    assert_eq!(stage.read_index(1, read), Some(3), "after its own blank, which commits what it had acknowledged");
}

#[test]
fn answers_to_an_old_read_do_not_confirm_a_newer_one() {
    // Goal: raft_read_index_retry_stale, RH-3. Method: delay the answers to A; n1 is deposed unknowingly; B must not pass.
    let mut stage = stage(3);
    stage.elect(1);
    stage.read(1, 1);
    let heartbeats = stage.take_messages();
    for (from, to, message) in heartbeats {
        stage.deliver(from, to, message);
    }
    let delayed = stage.take_messages();
    stage.isolate(1);
    stage.elect(2);
    stage.propose(2, "newer");
    let stale = stage.read(1, 2);
    stage.take_messages();
    for (from, to, message) in delayed {
        stage.deliver(from, to, message);
    }
    assert_eq!(stage.read_index(1, stale), None);
}

#[test]
fn a_deposed_leader_refuses_the_reads_that_wait() {
    let mut stage = stage(3);
    stage.elect(1);
    stage.isolate(1);
    let read = stage.read(1, 1);
    stage.elect(2);
    stage.heal();
    stage.heartbeat(2);
    assert!(stage.outcome(1, read).is_some());
    assert_eq!(stage.read_index(1, read), None);
}

#[test]
fn a_commit_is_recorded_before_the_entries_that_follow_it() {
    // Goal: RM-3: a node that holds a second change knows that the first is in force. Method: one append brings an
    // entry that is committed and one that is not; the committed one is recorded as such before the other is put.
    let mut stage = stage(3);
    stage.elect(1);
    stage.isolate(3);
    stage.propose(1, "committed");
    stage.hold_disk(1);
    stage.cut(1, 2);
    stage.propose_quietly(1, "not committed");
    stage.heal();
    let before = stage.records(3).len();
    stage.heartbeat(1);
    let written: Vec<String> = stage.records(3)[before..].iter().map(|record| format!("{record:?}")).collect();
    let place = |text: &str| written.iter().position(|record| record.contains(text)).expect(text);
    assert!(place("Committed(1:2)") < place("not committed"), "{written:#?}");
    assert!(place("b\"committed") < place("Committed(1:2)"), "{written:#?}");
}

#[test]
fn a_peer_that_refuses_beyond_all_indices_changes_nothing() {
    // Goal: BI-03, in the one state in which a refusal is believed: while the peer is probed.
    let mut stage = stage(3);
    stage.elect(1);
    stage.link_down(1, 3);
    let index = u64::MAX;
    stage.deliver(3, 1, Message::Rejected { term: Term(1), index, hint_index: index, hint_term: None });
    stage.settle();
    assert_eq!(stage.leader(), 1);
}

#[test]
fn absurd_fields_change_nothing() {
    // Goal: BI-03.
    let mut stage = stage(3);
    stage.elect(1);
    let (term, before) = (Term(1), stage.commit(2));
    let hostile = [
        Message::Commit { term, index: u64::MAX },
        Message::Heartbeat { term, commit: u64::MAX, position: u64::MAX },
        Message::Append { term, previous: Lsn::new(1, u64::MAX), entries: vec![], commit: u64::MAX },
        Message::Append { term, previous: Lsn::new(9, 1), entries: vec![], commit: 0 },
    ];
    for message in hostile {
        stage.deliver(1, 2, message);
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
        stage.deliver(3, 1, message);
    }
    stage.settle();
    assert_eq!((stage.commit(2), stage.leader()), (before, 1));
}

#[test]
fn a_peer_whose_whole_window_was_lost_and_compacted_gets_the_snapshot() {
    // Goal: RH-14 and RA-7 together. The storm `non-sticky-leader`: n3 is away for a minute, hears heartbeats again, and what it
    // should have had is neither on its way any more nor in the leader's log.
    let limits = Limits { trailing_entries: 0, ..Limits::default() };
    let mut stage = Stage::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    stage.elect(1);
    stage.propose(1, "all have this");
    stage.isolate(3);
    stage.propose(1, "lost on the way");
    stage.propose(1, "and this");
    stage.compact(1);
    stage.heal();
    stage.heartbeat(1);
    assert!(stage.member(3).fetching.is_some(), "n3 is offered the snapshot");
    stage.finish_fetch(3);
    stage.settle();
    stage.heartbeat(1);
    assert_eq!(stage.last(3), stage.last(1));
}

#[test]
fn a_new_leader_counts_what_it_inherits() {
    // Goal: RF-1 over a change of leaders. Method: a hundred bytes may be uncommitted; n1 is elected again with eighty that
    // nobody acknowledges.
    let limits = Limits { uncommitted_bytes_max: 100, ..Limits::default() };
    let mut stage = Stage::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    stage.elect(1);
    stage.lose(|_, _, message| matches!(message, Message::Matched { .. }));
    stage.propose(1, &"x".repeat(80));
    stage.elect(2);
    let origin = stage.propose(2, &"y".repeat(40));
    assert_eq!(stage.refusal(2, origin), Some(Refusal::Overloaded));
}
