//! TRex' messages on the wire: arbitrary bytes never panic, messages come back, absurd fields are refused.

use bytes::Bytes;
use hustings_core::wire::NUMBER_MAX;
use hustings_core::{Entry, Lsn, Priority, Term, Wire};
use hustings_paxos::Message;
use hustings_paxos::message::{Heartbeat, Says};
use hustings_stage::arbitrary::{counted, entry, reference};
use hustings_stage::golden;
use hustings_stage::wire::{self as suite, nested, number};
use proptest::collection::vec;
use proptest::prelude::*;

fn term() -> impl Strategy<Value = Term> {
    counted().prop_map(Term)
}

fn heartbeat() -> impl Strategy<Value = Heartbeat> {
    (term(), counted()).prop_map(|(ballot, counter)| Heartbeat { ballot, counter })
}

/// Slots in order from a first one on, each with a ballot not above the last.
fn slots(is_dense: bool) -> impl Strategy<Value = (Term, u64, Vec<Entry>)> {
    (1..NUMBER_MAX / 2, 1..NUMBER_MAX / 2, vec((entry(), 0..3_u64, 0..9_u64), 0..5)).prop_map(
        move |(ballot, first, entries)| {
            let mut next = first;
            let mut place = |(entry, leap, age): (Entry, u64, u64)| {
                let index = if is_dense { next } else { next + leap };
                next = index + 1;
                Entry { lsn: Lsn::new(if is_dense { ballot } else { ballot.saturating_sub(age) }, index), ..entry }
            };
            let entries = entries.into_iter().map(&mut place).collect();
            (Term(ballot), first, entries)
        },
    )
}

/// As a leader says it: only bytes can make one up here, for an accept is built from promises alone.
fn accept_bytes(ballot: Term, entries: &[Entry], commit: u64) -> Bytes {
    let shape = entries.iter().flat_map(|entry| {
        let fields = [number(1, entry.lsn.term.0), number(2, entry.lsn.index), number(3, 0)];
        nested(9, &fields.concat())
    });
    let head = [number(1, 6), number(2, ballot.0), number(4, commit)].concat();
    Bytes::from(head.into_iter().chain(shape).collect::<Vec<u8>>())
}

fn message() -> impl Strategy<Value = Message> {
    let some = counted;
    let says = prop::sample::select(vec![Says::Silent, Says::Hears, Says::Leads]);
    let priority = prop::sample::select(vec![Priority::Never, Priority::Normal, Priority::Preferred]);
    prop_oneof![
        some().prop_map(|poll| Message::LowBall { poll }),
        (some(), term(), some(), heartbeat(), says).prop_map(|(poll, promised, committed, heartbeat, says)| {
            Message::LowBallNack { poll, promised, committed, heartbeat, says }
        }),
        (term(), 1..NUMBER_MAX).prop_map(|(ballot, from)| Message::Prepare { ballot, from }),
        slots(false).prop_map(|(ballot, from, accepted)| Message::PrepareAck {
            ballot,
            from,
            through: u64::MAX,
            accepted
        }),
        (term(), term(), some()).prop_map(|(ballot, promised, committed)| Message::PrepareNack {
            ballot,
            promised,
            committed
        }),
        (slots(true), some()).prop_map(|((ballot, _, entries), commit)| {
            Message::decode(accept_bytes(ballot, &entries, commit)).expect("a sound accept")
        }),
        (term(), 1..NUMBER_MAX / 2, some(), some()).prop_map(|(ballot, from, more, committed)| Message::AcceptAck {
            ballot,
            from,
            through: (from - 1).saturating_add(more).min(NUMBER_MAX),
            committed
        }),
        (term(), term(), some()).prop_map(|(ballot, promised, committed)| Message::AcceptNack {
            ballot,
            promised,
            committed
        }),
        (heartbeat(), some(), some(), proptest::bool::ANY)
            .prop_map(|(heartbeat, slot, stored, asks)| Message::Commit { heartbeat, slot, stored, asks }),
        (term(), some(), some(), some(), priority).prop_map(|(ballot, counter, committed, held, priority)| {
            Message::CommitAck { ballot, counter, committed, held, priority }
        }),
        (some(), term()).prop_map(|(committed, promised)| Message::RetransmitRequest { committed, promised }),
        (slots(true), some())
            .prop_map(|((_, _, entries), committed)| Message::RetransmitResponse { entries, committed }),
        reference().prop_map(|reference| Message::Snapshot { reference }),
        term().prop_map(|ballot| Message::Handover { ballot }),
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

    /// A hole between slots, or a slot of another ballot.
    #[test]
    fn accepts_that_do_not_belong_together_are_refused(
        (ballot, _, mut entries) in slots(true),
        at: prop::sample::Index,
        is_hole: bool,
    ) {
        if entries.len() < 2 {
            return Ok(());
        }
        let at = at.index(entries.len() - 1);
        match is_hole {
            true => entries[at].lsn.index += 1,
            false => entries[at].lsn.term = Term(ballot.0 + 1),
        }
        prop_assert!(Message::decode(accept_bytes(ballot, &entries, 0)).is_err());
    }
}

#[test]
fn absurd_fields_are_refused() {
    let refused = suite::refused::<Message>;
    let entry = |term, index| nested(9, &[number(1, term), number(2, index), number(3, 0)].concat());
    refused(&[], "unknown kind 0");
    refused(&[number(1, 15)], "unknown kind 15");
    refused(&[number(1, 2), number(8, 3)], "of leaders is of unknown kind 3");
    refused(&[number(1, 3)], "are none");
    refused(&[number(1, 4), number(2, 5), number(5, 3), number(6, 2)], "are none");
    refused(&[number(1, 4), number(2, 5), number(5, 3), number(6, 9), entry(5, 2)], "out of order");
    refused(&[number(1, 4), number(2, 5), number(5, 3), number(6, 9), entry(6, 4)], "cannot have been accepted");
    refused(&[number(1, 6), number(2, 5), entry(4, 1)], "not of ballot");
    refused(&[number(1, 10), number(8, 3)], "priority of unknown kind 3");
    refused(&[number(1, 12), entry(1, 1), entry(1, 3)], "hole between");
    refused(&[number(1, 13)], "`snapshot` is missing");
}

#[test]
fn messages_of_earlier_builds_mean_the_same() {
    golden::check("paxos-messages", message(), Wire::to_bytes, |bytes| {
        Message::decode(bytes).map_err(|error| error.to_string())
    });
}
