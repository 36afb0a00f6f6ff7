//! ZAB's messages on the wire: arbitrary bytes never panic, messages come back, absurd fields are refused.

use hustings_core::wire::NUMBER_MAX;
use hustings_core::{Entry, Lsn, NodeId, Priority, Term, Wire};
use hustings_stage::arbitrary::{counted, entry, lsn, reference};
use hustings_stage::golden;
use hustings_stage::wire::{self as suite, nested, number};
use hustings_zab::{Message, Notification, ServerState, Standing, Vote};
use proptest::collection::vec;
use proptest::prelude::*;

fn priority() -> impl Strategy<Value = Priority> {
    prop::sample::select(vec![Priority::Never, Priority::Normal, Priority::Preferred])
}

fn notification() -> impl Strategy<Value = Message> {
    let states = vec![ServerState::Looking, ServerState::Following, ServerState::Leading];
    let standings = vec![Standing::Never, Standing::Normal, Standing::Preferred, Standing::Successor];
    let vote =
        (counted(), counted(), lsn(), prop::sample::select(standings)).prop_map(|(leader, epoch, last, standing)| {
            Vote { leader: NodeId(leader), epoch: Term(epoch), last, standing }
        });
    (prop::sample::select(states), vote, counted(), lsn(), any::<bool>()).prop_map(
        |(state, vote, round, commit, is_answer)| {
            Message::Notification(Notification { state, vote, round, commit, is_answer })
        },
    )
}

/// Entries that follow the one before and each other, as a leader sends them.
fn proposal() -> impl Strategy<Value = Message> {
    let entries = vec((entry(), 0..3_u64), 0..5);
    (0..NUMBER_MAX / 2, 0..NUMBER_MAX / 2, entries, counted(), counted()).prop_map(
        |(term, index, entries, commit, connection)| {
            let previous = Lsn::new(term, index);
            let mut last = previous;
            let mut follow = |(entry, leap): (Entry, u64)| {
                last = Lsn::new(last.term.0 + leap, last.index + 1);
                Entry { lsn: last, ..entry }
            };
            let entries: Vec<Entry> = entries.into_iter().map(&mut follow).collect();
            Message::Proposal { connection, epoch: last.term, previous, entries, commit }
        },
    )
}

/// Messages of a connection: (which, connection, epoch, a number, a place, a flag, a priority).
fn plain() -> impl Strategy<Value = Message> {
    (0..14_u8, counted(), counted().prop_map(Term), counted(), lsn(), any::<bool>(), priority()).prop_map(
        |(which, connection, epoch, number, last, flag, priority)| match which {
            0 => Message::FollowerInfo { connection, accepted: epoch },
            1 => Message::LeaderInfo { connection, epoch },
            2 => {
                let current = Term(number);
                let commit = Lsn::new(connection, number);
                Message::AckEpoch { connection, epoch, current, is_promise: flag, last, commit, priority }
            }
            3 => Message::Diff { connection, epoch },
            4 => Message::Truncate { connection, epoch, to: last },
            5 => Message::NewLeader { connection, epoch },
            6 => Message::AckNewLeader { connection, epoch, index: number },
            7 => Message::UpToDate { connection, epoch, commit: number },
            8 => Message::Ack { connection, epoch, index: number },
            9 => Message::Commit { connection, epoch, commit: number },
            10 => Message::Ping { connection, epoch, round: number },
            11 => Message::Pong { connection, epoch, round: number, priority, is_installing: flag },
            12 => Message::Handover { connection, epoch },
            _ => Message::Goodbye { connection },
        },
    )
}

fn message() -> impl Strategy<Value = Message> {
    // No snapshot is from a later epoch than the leader that offers it.
    let snapshot = (counted(), counted(), reference()).prop_map(|(connection, epoch, reference)| Message::Snapshot {
        connection,
        epoch: Term(epoch.max(reference.lsn.term.0)),
        reference,
    });
    prop_oneof![notification(), proposal(), plain(), snapshot]
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

    /// A gap between entries, a term that falls back, or one that the leader has not reached.
    #[test]
    fn entries_that_do_not_follow_are_refused(proposal in proposal(), at: prop::sample::Index, damage in 0..3) {
        let Message::Proposal { connection, epoch, previous, mut entries, commit } = proposal else {
            unreachable!("it is a PROPOSAL")
        };
        prop_assume!(!entries.is_empty());
        let at = at.index(entries.len());
        let lsn = &mut entries[at].lsn;
        match damage {
            0 => lsn.index += 1,
            1 => lsn.term = Term(epoch.0 + 1),
            _ => {
                prop_assume!(previous.term.0 > 0);
                lsn.term = Term(previous.term.0 - 1);
            }
        }
        let bytes = Message::Proposal { connection, epoch, previous, entries, commit }.to_bytes();
        prop_assert!(Message::decode(bytes).is_err());
    }
}

#[test]
fn absurd_fields_are_refused() {
    let refused = suite::refused::<Message>;
    let entry = |term, index, kind| nested(13, &[number(1, term), number(2, index), number(3, kind)].concat());
    refused(&[], "unknown kind 0");
    refused(&[number(1, 18)], "unknown kind 18");
    refused(&[number(1, 1), number(11, 3)], "server state of unknown kind 3");
    refused(&[number(1, 1), number(10, 4)], "standing of unknown kind 4");
    refused(&[number(1, 15), number(10, 3)], "priority of unknown kind 3");
    refused(&[number(1, 7), number(3, 1)], "`snapshot` is missing");
    refused(&[number(1, 8), number(3, 1), entry(1, 0, 0)], "index 0");
    refused(&[number(1, 8), number(3, 1), entry(1, 2, 0)], "cannot follow");
    refused(&[number(1, 8), number(3, 1), entry(2, 1, 0)], "cannot follow");
    refused(&[number(1, 8), number(3, 9), number(5, u64::MAX)], "ever counted up to");
}

#[test]
fn messages_of_earlier_builds_mean_the_same() {
    golden::check("zab-messages", message(), Wire::to_bytes, |bytes| {
        Message::decode(bytes).map_err(|error| error.to_string())
    });
}
