//! BlazingMQ's messages on the wire: arbitrary bytes never panic, messages come back, absurd fields are refused.

use hustings_blazingmq::Message;
use hustings_core::wire::NUMBER_MAX;
use hustings_core::{Entry, Lsn, Priority, Term, Wire};
use hustings_stage::arbitrary::{counted, entry, lsn, reference};
use hustings_stage::golden;
use hustings_stage::wire::{self as suite, nested, number};
use proptest::collection::vec;
use proptest::prelude::*;

fn priority() -> impl Strategy<Value = Priority> {
    prop::sample::select(vec![Priority::Never, Priority::Normal, Priority::Preferred])
}

/// A place, and records that follow it and each other.
fn tail() -> impl Strategy<Value = (Lsn, Vec<Entry>)> {
    let entries = vec((entry(), 0..3_u64), 0..5);
    (0..NUMBER_MAX / 2, 0..NUMBER_MAX / 2, entries).prop_map(|(term, index, entries)| {
        let previous = Lsn::new(term, index);
        let mut last = previous;
        let mut follow = |(entry, leap): (Entry, u64)| {
            last = Lsn::new(last.term.0 + leap, last.index + 1);
            Entry { lsn: last, ..entry }
        };
        (previous, entries.into_iter().map(&mut follow).collect())
    })
}

fn end_of(previous: Lsn, entries: &[Entry]) -> Lsn {
    entries.last().map_or(previous, |entry| entry.lsn)
}

fn records() -> impl Strategy<Value = Message> {
    (tail(), counted()).prop_map(|((previous, entries), commit)| Message::Records {
        term: end_of(previous, &entries).term,
        previous,
        entries,
        commit,
    })
}

fn pulled() -> impl Strategy<Value = Message> {
    (tail(), counted(), 0..9_u64).prop_map(|((previous, entries), commit, more)| {
        let end = end_of(previous, &entries);
        let last = Lsn::new(end.term.0, end.index + more);
        Message::Pulled { term: end.term, previous, entries, last, commit }
    })
}

fn message() -> impl Strategy<Value = Message> {
    let term = || counted().prop_map(Term);
    let some = counted;
    let flag = any::<bool>;
    let elector = prop_oneof![
        (term(), flag(), lsn()).prop_map(|(term, round, commit)| Message::Scouting { term, round, commit }),
        (term(), flag(), flag(), lsn()).prop_map(|(term, round, will_vote, commit)| Message::ScoutingReply {
            term,
            round,
            will_vote,
            commit
        }),
        (term(), flag(), lsn()).prop_map(|(term, is_transfer, commit)| Message::Proposal { term, is_transfer, commit }),
        term().prop_map(|term| Message::Support { term }),
        (term(), term()).prop_map(|(term, proposed)| Message::Refusal { term, proposed }),
        (term(), some(), some(), flag(), flag()).prop_map(|(term, round, commit, is_active, asks)| {
            Message::Heartbeat { term, round, commit, is_active, asks }
        }),
        (term(), some(), priority(), flag()).prop_map(|(term, round, priority, is_installing)| Message::Heard {
            term,
            round,
            priority,
            is_installing
        }),
        term().prop_map(|term| Message::Cession { term }),
        flag().prop_map(|is_available| Message::NodeStatus { is_available }),
    ];
    // No snapshot is from a later term than the leader that it is sent to or by.
    let of_reference = |build: fn(Term, hustings_core::SnapshotReference) -> Message| {
        (some(), reference()).prop_map(move |(term, reference)| build(Term(term.max(reference.lsn.term.0)), reference))
    };
    let ledger = prop_oneof![
        term().prop_map(|term| Message::LsnRequest { term }),
        (term(), lsn()).prop_map(|(term, last)| Message::Registration { term, last }),
        (term(), lsn()).prop_map(|(term, after)| Message::Pull { term, after }),
        pulled(),
        (term(), lsn()).prop_map(|(term, hint)| Message::PullGap { term, hint }),
        of_reference(|term, reference| Message::PullSnapshot { term, reference }),
        records(),
        (term(), some()).prop_map(|(term, index)| Message::Ack { term, index }),
        (term(), lsn()).prop_map(|(term, hint)| Message::Gap { term, hint }),
        of_reference(|term, reference| Message::Snapshot { term, reference }),
        (term(), lsn()).prop_map(|(term, lsn)| Message::SnapshotFailed { term, lsn }),
        term().prop_map(|term| Message::Handover { term }),
    ];
    prop_oneof![elector, ledger]
}

#[test]
fn arbitrary_bytes_never_panic() {
    suite::arbitrary_bytes_never_panic::<Message>();
}

#[test]
fn a_damaged_message_never_panics() {
    suite::damaged_messages_never_panic(message());
}

#[test]
fn messages_come_back() {
    suite::messages_come_back(message());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// A gap between records, a term that falls back, or one that the leader has not reached.
    #[test]
    fn records_that_do_not_follow_are_refused(records in records(), at: prop::sample::Index, damage in 0..3) {
        let Message::Records { term, previous, mut entries, commit } = records else { unreachable!("they are records") };
        prop_assume!(!entries.is_empty());
        let at = at.index(entries.len());
        let lsn = &mut entries[at].lsn;
        match damage {
            0 => lsn.index += 1,
            1 => lsn.term = Term(term.0 + 1),
            _ => {
                prop_assume!(previous.term.0 > 0);
                lsn.term = Term(previous.term.0 - 1);
            }
        }
        let bytes = Message::Records { term, previous, entries, commit }.to_bytes();
        prop_assert!(Message::decode(bytes).is_err());
    }
}

#[test]
fn absurd_fields_are_refused() {
    let refused = suite::refused::<Message>;
    let entry = |term, index, kind| nested(12, &[number(1, term), number(2, index), number(3, kind)].concat());
    refused(&[], "unknown kind 0");
    refused(&[number(1, 22)], "unknown kind 22");
    refused(&[number(1, 7), number(8, 3)], "priority of unknown kind 3");
    refused(&[number(1, 15), number(2, 1)], "`snapshot` is missing");
    refused(&[number(1, 19), number(2, 1)], "`snapshot` is missing");
    refused(&[number(1, 16), number(2, 1), entry(1, 0, 0)], "index 0");
    refused(&[number(1, 16), number(2, 1), entry(1, 2, 0)], "cannot follow");
    refused(&[number(1, 16), number(2, 1), entry(2, 1, 0)], "cannot follow");
    refused(&[number(1, 13), number(2, 1), entry(1, 1, 0)], "cannot hold");
}

#[test]
fn messages_of_earlier_builds_mean_the_same() {
    golden::check("blazingmq-messages", message(), Wire::to_bytes, |bytes| {
        Message::decode(bytes).map_err(|error| error.to_string())
    });
}
