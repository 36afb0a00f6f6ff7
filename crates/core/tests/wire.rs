//! Every decoder of shared words: arbitrary bytes never panic, arbitrary values come back, absurd fields are refused.
//!
//! A value that was decoded may be encoded and decoded again without a difference, also when it came from a byte that flipped: a node
//! that writes down what it heard must not write down something else.

use bytes::Bytes;
use hustings_core::replica::ReplicaMessage;
use hustings_core::replica::applied_requests::settled;
use hustings_core::replica::message::{ForwardedRequest, Position};
use hustings_core::{
    EntryKind, Membership, MembershipChange, MembershipRefusal, NodeId, Record, Refusal, SnapshotReference, Wire,
};
use hustings_stage::arbitrary::{change, lsn, membership, payload, record, reference};
use hustings_stage::golden;
use hustings_stage::wire::{nested, number};
use proptest::collection::vec;
use proptest::prelude::*;
use std::fmt::Debug;

/// Replica messages around a protocol whose messages are memberships: any `Wire` will do.
type Message = ReplicaMessage<Membership>;

fn refusal() -> impl Strategy<Value = Refusal> {
    let rules = vec![
        MembershipRefusal::NoVoters,
        MembershipRefusal::NotSimple,
        MembershipRefusal::AlreadyJoint,
        MembershipRefusal::NotJoint,
        MembershipRefusal::NotFound,
        MembershipRefusal::Taken,
        MembershipRefusal::NotLearner,
        MembershipRefusal::NotReady,
    ];
    prop_oneof![
        Just(Refusal::NotLeader(None)),
        (1..=u64::MAX).prop_map(|id| Refusal::NotLeader(Some(NodeId(id)))),
        Just(Refusal::Transferring),
        Just(Refusal::Overloaded),
        Just(Refusal::NotReady),
        Just(Refusal::MembershipPending),
        any::<u64>().prop_map(|id| Refusal::BadTransferee(NodeId(id))),
        Just(Refusal::TransferTimedOut),
        (prop::sample::select(rules), ".{0,20}").prop_map(|(rule, what)| Refusal::Membership(rule, what)),
    ]
}

fn forwarded() -> impl Strategy<Value = ForwardedRequest> {
    let command = payload().prop_map(|payload| (EntryKind::Command, payload));
    let membership = change().prop_map(|change| (EntryKind::Membership, change.to_bytes()));
    let settled = any::<u64>().prop_map(|through| (0, (EntryKind::Blank, settled(through))));
    prop_oneof![(1..=1_u64 << 62, prop_oneof![command, membership]), settled]
        .prop_map(|(sequence, (kind, payload))| ForwardedRequest { sequence, kind, payload })
}

fn position() -> impl Strategy<Value = Position> {
    (any::<[u64; 3]>(), [0..=1_u64 << 55, 0..=1 << 55, 0..=1 << 55]).prop_map(|([node, storage, process], numbers)| {
        let [boots, one, other] = numbers;
        Position { node: NodeId(node), storage, boots, process, born_with: one.min(other), batches: one.max(other) }
    })
}

fn message() -> impl Strategy<Value = Message> {
    let some = any::<u64>;
    prop_oneof![
        membership().prop_map(ReplicaMessage::Protocol),
        (some(), vec(forwarded(), 0..4))
            .prop_map(|(incarnation, requests)| ReplicaMessage::Forward { incarnation, requests }),
        (some(), some(), refusal()).prop_map(|(incarnation, sequence, refusal)| ReplicaMessage::ForwardRefused {
            incarnation,
            sequence,
            refusal
        }),
        some().prop_map(|number| ReplicaMessage::AskRead { number }),
        (some(), some()).prop_map(|(number, index)| ReplicaMessage::ReadAt { number, index }),
        some().prop_map(|number| ReplicaMessage::ReadRefused { number }),
        (lsn(), any::<u32>(), some()).prop_map(|(lsn, digest, offset)| ReplicaMessage::AskChunk {
            lsn,
            digest,
            offset
        }),
        (lsn(), some(), payload()).prop_map(|(lsn, offset, bytes)| ReplicaMessage::Chunk { lsn, offset, bytes }),
        lsn().prop_map(|lsn| ReplicaMessage::ChunkGone { lsn }),
        any::<u64>().prop_map(|sent_micros| ReplicaMessage::Ping { sent_micros }),
        any::<u64>().prop_map(|sent_micros| ReplicaMessage::Pong { sent_micros }),
        (some(), some()).prop_map(|(index, digest)| ReplicaMessage::Digest { index, digest }),
        vec(position(), 0..4).prop_map(ReplicaMessage::Durable),
    ]
}

/// Decoding does not panic; what it accepts is stable.
fn is_stable<T: Wire + PartialEq + Debug>(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(value) = T::decode(Bytes::copy_from_slice(bytes)) {
        prop_assert_eq!(T::decode(value.to_bytes()), Ok(value));
    }
    Ok(())
}

fn all_are_stable(bytes: &[u8]) -> Result<(), TestCaseError> {
    is_stable::<Record>(bytes)?;
    is_stable::<Membership>(bytes)?;
    is_stable::<MembershipChange>(bytes)?;
    is_stable::<SnapshotReference>(bytes)?;
    is_stable::<Message>(bytes)
}

/// A valid encoding after rot: one byte changed, some cut off.
fn damaged(bytes: &Bytes, at: prop::sample::Index, flip: u8, keep: prop::sample::Index) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if !bytes.is_empty() {
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        bytes.truncate(keep.index(bytes.len() + 1).max(at + 1));
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..300)) {
        all_are_stable(&bytes)?;
    }

    #[test]
    fn damaged_encodings_never_panic(
        record in record(),
        change in change(),
        message in message(),
        at: prop::sample::Index,
        flip: u8,
        keep: prop::sample::Index,
    ) {
        for bytes in [record.to_bytes(), change.to_bytes(), message.to_bytes()] {
            all_are_stable(&damaged(&bytes, at, flip, keep))?;
        }
    }

    #[test]
    fn records_come_back(record in record()) {
        prop_assert_eq!(Record::decode(record.to_bytes()), Ok(record));
    }

    #[test]
    fn changes_come_back(change in change()) {
        prop_assert_eq!(MembershipChange::decode(change.to_bytes()), Ok(change));
    }

    #[test]
    fn snapshot_references_come_back(reference in reference()) {
        prop_assert_eq!(SnapshotReference::decode(reference.to_bytes()), Ok(reference));
    }

    #[test]
    fn replica_messages_come_back(message in message()) {
        prop_assert_eq!(Message::decode(message.to_bytes()), Ok(message));
    }

    /// A field that a later version added is skipped.
    #[test]
    fn unknown_fields_are_skipped(record in record(), change in change(), extra in vec(any::<u8>(), 0..10)) {
        let later = |bytes: Bytes| Bytes::from([bytes.to_vec(), nested(99, &extra)].concat());
        prop_assert_eq!(Record::decode(later(record.to_bytes())), Ok(record));
        prop_assert_eq!(MembershipChange::decode(later(change.to_bytes())), Ok(change));
    }
}

fn refused<T: Wire + Debug>(bytes: Vec<u8>, why: &str) {
    let error = T::decode(Bytes::from(bytes)).expect_err(why).to_string();
    assert!(error.contains(why), "`{error}` does not say `{why}`");
}

#[test]
fn nothing_at_all_is_no_record_and_no_message() {
    refused::<Record>(vec![], "kind");
    refused::<Message>(vec![], "kind");
    refused::<SnapshotReference>(vec![], "membership");
}

#[test]
fn absurd_records_are_refused() {
    let put = |fields: &[Vec<u8>]| nested(3, &fields.concat());
    refused::<Record>(put(&[number(1, 5)]), "index 0");
    refused::<Record>(put(&[number(2, 1), number(3, 4)]), "unknown kind 4");
    refused::<Record>(nested(5, &[number(1, 1), number(2, 1)].concat()), "membership");
    refused::<Record>(number(77, 1), "kind");
}

#[test]
fn absurd_changes_are_refused() {
    let step = |fields: &[Vec<u8>]| nested(1, &fields.concat());
    refused::<MembershipChange>(step(&[number(1, 1)]), "0 cannot be a member's id");
    refused::<MembershipChange>(step(&[number(1, 1), number(2, 1 << 32)]), "cannot be a member's id");
    refused::<MembershipChange>(step(&[number(1, 9), number(2, 1)]), "unknown kind 9");
    refused::<MembershipChange>(step(&[number(1, 4), number(2, 1)]), "`member` is missing");
    refused::<MembershipChange>(number(2, 4), "unknown kind 4");
}

#[test]
fn memberships_that_contradict_themselves_are_refused() {
    let next = |id| number(7, id);
    let cases: [(&str, Vec<u8>); 9] = [
        ("a voter that learns", [number(1, 1), number(3, 1), next(2)].concat()),
        ("an outgoing voter that learns", [number(1, 2), number(2, 1), number(3, 1), next(3)].concat()),
        ("one waits to learn that never voted", [number(1, 1), number(2, 1), number(4, 2), next(3)].concat()),
        ("it leaves by itself what it never entered", [number(1, 1), number(5, 1), next(2)].concat()),
        ("a member beyond the next id", [number(1, 1), nested(6, &number(1, 5)), next(2)].concat()),
        ("a voter beyond the next id", [number(1, 5), next(2)].concat()),
        ("a learner beyond the next id", [number(1, 1), number(3, 9), next(2)].concat()),
        ("a voter of number zero", [number(1, 0), number(1, 1), next(2)].concat()),
        ("a voter whose id is damage", [number(1, u64::MAX - 1), next(u64::MAX)].concat()),
    ];
    for (what, bytes) in cases {
        let decoded = Membership::decode(Bytes::from(bytes));
        assert!(decoded.is_err(), "{what}: {decoded:?}");
    }
}

#[test]
fn absurd_replica_messages_are_refused() {
    let forward = |fields: &[Vec<u8>]| nested(2, &nested(2, &fields.concat()));
    refused::<Message>(forward(&[number(1, 1), number(2, 0)]), "not forwarded");
    refused::<Message>(forward(&[number(1, 1), number(2, 3)]), "not forwarded");
    refused::<Message>(forward(&[number(1, 1), number(2, 7)]), "unknown kind 7");
    let bad_change = nested(1, &number(1, 1));
    refused::<Message>(forward(&[number(1, 1), number(2, 2), nested(3, &bad_change)]), "member's id");
    refused::<Message>(nested(3, &number(3, 50)), "unknown kind 50");
    refused::<Message>(nested(3, &number(3, 110)), "unknown kind 110");
    for sequence in [0, (1 << 62) + 1, u64::MAX] {
        refused::<Message>(forward(&[number(1, sequence), number(2, 1)]), "counted up from 1");
    }
    refused::<Message>(number(77, 1), "kind");
    let durable = |fields: &[Vec<u8>]| nested(13, &nested(1, &[&[number(1, 2)], fields].concat().concat()));
    refused::<Message>(durable(&[number(5, u64::MAX)]), "n2 has no");
    refused::<Message>(durable(&[number(3, 1 << 56)]), "n2 has no");
    refused::<Message>(durable(&[number(4, 7), number(5, 6)]), "began with 7");
}

/// Goal: what earlier builds sent and stored is read by this one. Method: samples of every kind that were written then.
#[test]
fn words_of_earlier_builds_mean_the_same() {
    fn check<T: Wire + Debug>(name: &str, values: impl Strategy<Value = T>) {
        golden::check(name, values, T::to_bytes, |bytes| T::decode(bytes).map_err(|error| error.to_string()));
    }
    check("replica-messages", message());
    check("records", record());
    check("membership-changes", change());
    check("memberships", membership());
}
