//! Raft's messages on the wire: arbitrary bytes never panic, arbitrary messages come back, absurd fields are refused.

use hustings_core::wire::NUMBER_MAX;
use hustings_core::{Entry, Lsn, Priority, Term, Wire};
use hustings_raft::{Message, VoteReply, VoteRequest};
use hustings_stage::arbitrary::{counted, entry, lsn, reference};
use hustings_stage::golden;
use hustings_stage::wire::{self as suite, nested, number};
use proptest::collection::vec;
use proptest::prelude::*;

fn priority() -> impl Strategy<Value = Priority> {
    prop::sample::select(vec![Priority::Never, Priority::Normal, Priority::Preferred])
}

fn request() -> impl Strategy<Value = VoteRequest> {
    (counted(), lsn(), lsn(), priority(), any::<bool>()).prop_map(|(term, last, commit, priority, is_transfer)| {
        VoteRequest { term: Term(term), last, commit, priority, is_transfer }
    })
}

fn reply() -> impl Strategy<Value = VoteReply> {
    (counted(), counted(), any::<bool>(), lsn()).prop_map(|(term, campaign, is_granted, commit)| VoteReply {
        term: Term(term),
        campaign: Term(campaign),
        is_granted,
        commit,
    })
}

/// Entries that follow `previous` and each other, as a leader sends them.
fn append() -> impl Strategy<Value = Message> {
    let entries = vec((entry(), 0..3_u64), 0..5);
    (0..NUMBER_MAX / 2, 0..NUMBER_MAX / 2, entries, counted()).prop_map(|(term, index, entries, commit)| {
        let previous = Lsn::new(term, index);
        let mut last = previous;
        let entries: Vec<Entry> = entries
            .into_iter()
            .map(|(entry, leap)| {
                last = Lsn::new(last.term.0 + leap, last.index + 1);
                Entry { lsn: last, ..entry }
            })
            .collect();
        Message::Append { term: last.term, previous, entries, commit }
    })
}

fn message() -> impl Strategy<Value = Message> {
    let term = || counted().prop_map(Term);
    let some = counted;
    prop_oneof![
        request().prop_map(Message::PreVote),
        reply().prop_map(Message::PreVoteReply),
        request().prop_map(Message::Vote),
        reply().prop_map(Message::VoteReply),
        append(),
        (term(), some()).prop_map(|(term, index)| Message::Matched { term, index }),
        (term(), some(), some(), prop::option::of(counted())).prop_map(|(term, index, hint_index, hint_term)| {
            Message::Rejected { term, index, hint_index, hint_term: hint_term.map(Term) }
        }),
        (term(), some()).prop_map(|(term, index)| Message::Commit { term, index }),
        (term(), some(), some()).prop_map(|(term, commit, position)| Message::Heartbeat { term, commit, position }),
        (term(), some(), priority(), any::<bool>()).prop_map(|(term, position, priority, is_installing)| {
            Message::HeartbeatReply { term, position, priority, is_installing }
        }),
        // No snapshot is from a later term than the leader that offers it.
        (some(), reference())
            .prop_map(|(term, reference)| Message::Snapshot { term: Term(term.max(reference.lsn.term.0)), reference }),
        (term(), lsn()).prop_map(|(term, lsn)| Message::SnapshotFailed { term, lsn }),
        term().prop_map(|term| Message::TimeoutNow { term }),
    ]
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

    /// Entries that leave a hole, go back in terms, or are of a term that their leader has not reached.
    #[test]
    fn entries_that_do_not_follow_are_refused(append in append(), at: prop::sample::Index, index: bool, raise: bool) {
        let Message::Append { term, previous, mut entries, commit } = append else { unreachable!("it is an append") };
        prop_assume!(!entries.is_empty());
        let at = at.index(entries.len());
        let lsn = &mut entries[at].lsn;
        match (index, raise) {
            (true, true) => lsn.index += 1,
            (true, false) => lsn.index -= 1,
            (false, true) => lsn.term = Term(term.0 + 1),
            (false, false) => {
                prop_assume!(previous.term.0 > 0);
                lsn.term = Term(previous.term.0 - 1);
            }
        }
        let bytes = Message::Append { term, previous, entries, commit }.to_bytes();
        prop_assert!(Message::decode(bytes).is_err());
    }
}

#[test]
fn absurd_fields_are_refused() {
    let refused = suite::refused::<Message>;
    let entry = |term, index, kind| nested(12, &[number(1, term), number(2, index), number(3, kind)].concat());
    refused(&[], "unknown kind 0");
    refused(&[number(1, 14)], "unknown kind 14");
    refused(&[number(1, 11), number(2, 1)], "`snapshot` is missing");
    refused(&[number(1, 5), number(2, 1), entry(1, 0, 0)], "index 0");
    refused(&[number(1, 5), number(2, 1), entry(1, 1, 4)], "unknown kind 4");
    refused(&[number(1, 5), number(2, 1), entry(1, 2, 0)], "cannot follow");
    refused(&[number(1, 5), number(2, 1), entry(2, 1, 0)], "cannot follow");
    refused(&[number(1, 5), number(2, 9), number(3, 3), entry(2, 1, 0)], "cannot follow");
    refused(&[number(1, 5), number(2, 9), number(4, u64::MAX)], "ever counted up to");
}

#[test]
fn messages_of_earlier_builds_mean_the_same() {
    golden::check("raft-messages", message(), Wire::to_bytes, |bytes| {
        Message::decode(bytes).map_err(|error| error.to_string())
    });
}
