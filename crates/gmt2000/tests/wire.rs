//! GMT-2000's messages on the wire: arbitrary bytes never panic, messages come back, absurd fields are refused.

use hustings_core::wire::NUMBER_MAX;
use hustings_core::{Entry, Lsn, NodeId, Priority, Term, Wire};
use hustings_gmt2000::{Claim, Message};
use hustings_stage::arbitrary::{counted, entry, lsn, reference};
use hustings_stage::golden;
use hustings_stage::wire::{self as suite, nested, number};
use proptest::collection::vec;
use proptest::prelude::*;

fn priority() -> impl Strategy<Value = Priority> {
    prop::sample::select(vec![Priority::Never, Priority::Normal, Priority::Preferred])
}

/// Messages that follow the one before and each other, as a leader sends them.
fn lead() -> impl Strategy<Value = Message> {
    let entries = vec((entry(), 0..3_u64), 0..5);
    (0..NUMBER_MAX / 2, 0..NUMBER_MAX / 2, entries, counted(), prop::option::of(counted())).prop_map(
        |(term, index, entries, commit, round)| {
            let previous = Lsn::new(term, index);
            let mut last = previous;
            let mut follow = |(entry, leap): (Entry, u64)| {
                last = Lsn::new(last.term.0 + leap, last.index + 1);
                Entry { lsn: last, ..entry }
            };
            let entries: Vec<Entry> = entries.into_iter().map(&mut follow).collect();
            Message::Lead { term: last.term, previous, entries, commit, round }
        },
    )
}

fn message() -> impl Strategy<Value = Message> {
    let term = || counted().prop_map(Term);
    let some = counted;
    prop_oneof![
        (term(), lsn(), priority(), any::<bool>(), term(), any::<bool>(), any::<u8>(), lsn()).prop_map(
            |(ballot, last, priority, is_successor, reign, hears_majority, losses, commit)| {
                let claim = Claim { last, priority, is_successor, reign, hears_majority, losses };
                Message::Elect { ballot, claim, commit }
            }
        ),
        (term(), some(), lsn()).prop_map(|(ballot, choice, claim)| Message::Vote {
            ballot,
            choice: NodeId(choice),
            claim
        }),
        lead(),
        (term(), some(), priority(), any::<bool>()).prop_map(|(term, round, priority, is_installing)| Message::Heard {
            term,
            round,
            priority,
            is_installing
        }),
        (term(), some()).prop_map(|(term, index)| Message::Stored { term, index }),
        (term(), some(), some(), prop::option::of(counted())).prop_map(|(term, index, hint_index, hint_term)| {
            Message::Gap { term, index, hint_index, hint_term: hint_term.map(Term) }
        }),
        term().prop_map(|term| Message::Obsolete { term }),
        // No snapshot is from a later term than the leader that offers it.
        (some(), reference())
            .prop_map(|(term, reference)| Message::Snapshot { term: Term(term.max(reference.lsn.term.0)), reference }),
        (term(), lsn()).prop_map(|(term, lsn)| Message::SnapshotFailed { term, lsn }),
        term().prop_map(|term| Message::Handover { term }),
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

    /// A gap between messages, a term that falls back, or one that the leader has not reached.
    #[test]
    fn messages_that_do_not_follow_are_refused(lead in lead(), at: prop::sample::Index, damage in 0..3) {
        let Message::Lead { term, previous, mut entries, commit, round } = lead else { unreachable!("it is a LEAD") };
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
        let bytes = Message::Lead { term, previous, entries, commit, round }.to_bytes();
        prop_assert!(Message::decode(bytes).is_err());
    }
}

#[test]
fn absurd_fields_are_refused() {
    let refused = suite::refused::<Message>;
    let entry = |term, index, kind| nested(13, &[number(1, term), number(2, index), number(3, kind)].concat());
    refused(&[], "unknown kind 0");
    refused(&[number(1, 11)], "unknown kind 11");
    refused(&[number(1, 1), number(7, 3)], "priority of unknown kind 3");
    refused(&[number(1, 4), number(2, 1), number(7, 1)], "`round` is missing");
    refused(&[number(1, 8), number(2, 1)], "`snapshot` is missing");
    refused(&[number(1, 3), number(2, 1), entry(1, 0, 0)], "index 0");
    refused(&[number(1, 3), number(2, 1), entry(1, 2, 0)], "cannot follow");
    refused(&[number(1, 3), number(2, 1), entry(2, 1, 0)], "cannot follow");
    refused(&[number(1, 3), number(2, 9), number(4, u64::MAX)], "ever counted up to");
}

#[test]
fn messages_of_earlier_builds_mean_the_same() {
    golden::check("gmt2000-messages", message(), Wire::to_bytes, |bytes| {
        Message::decode(bytes).map_err(|error| error.to_string())
    });
}
