//! Arbitrary values of the words that all protocols share, for property tests: strategies of proptest.
//!
//! Read next: [`crate::wire`], the properties that hold for every message made of them.

use bytes::Bytes;
use hustings_core::wire::NUMBER_MAX;
use hustings_core::{
    Change, Entry, EntryKind, Lsn, Member, Membership, MembershipChange, NodeId, Origin, Passage, Promise, Record,
    SnapshotReference, Stamp, Term,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

/// Steps from their text: `v1 l2 r3 u4` adds a voter and a learner, removes a member and describes one.
///
/// # Panics
/// When a word is no step.
pub fn steps(text: &str) -> Vec<Change> {
    let step = |word: &str| {
        let (kind, number) = word.split_at(1);
        let id = NodeId(number.parse().expect("a letter and a number"));
        match kind {
            "v" => Change::AddVoter(id),
            "l" => Change::AddLearner(id),
            "r" => Change::Remove(id),
            "u" => Change::Describe(id, Member { name: format!("described {number}"), ..Member::default() }),
            other => panic!("{other} is no step"),
        }
    };
    text.split_whitespace().map(step).collect()
}

/// Texts of so many steps about the nodes with these ids, as [`steps`] reads them.
pub fn steps_text(ids: RangeInclusive<u64>, count: Range<usize>) -> impl Strategy<Value = String> {
    let word = (prop::sample::select(vec!["v", "l", "r", "u"]), ids).prop_map(|(kind, id)| format!("{kind}{id}"));
    vec(word, count).prop_map(|words| words.join(" "))
}

/// Any membership that can be reached by changes, half of them joint.
pub fn membership() -> impl Strategy<Value = Membership> {
    let changes = (steps_text(2..=10, 0..20), steps_text(2..=10, 0..8), any::<bool>(), any::<bool>());
    let primaries = vec((0..9_u32, 1..=2_u64), 0..6);
    (changes, vec(member(), 0..4), primaries).prop_map(
        |((before, joint, is_joint, auto_leave), described, primaries)| {
            let start = Membership::of_voters([NodeId(1)]);
            let mut now = steps(&before)
                .into_iter()
                .fold(start, |now, step| now.after_simple(&[step]).expect("n1 stays a voter, one changes at most"));
            if is_joint {
                now = now.after_entering(&steps(&joint), auto_leave).expect("n1 stays a voter");
            }
            now.members.values_mut().zip(described).for_each(|(member, described)| *member = described);
            primaries.into_iter().fold(now, |now, (partition, primary)| {
                let primary = NodeId(primary.min(now.next_id - 1));
                now.with_primaries(&[(partition, primary)].into())
            })
        },
    )
}

/// Any description of a member.
pub fn member() -> impl Strategy<Value = Member> {
    let urls = || vec("[a-z0-9:/.]{0,20}", 0..3);
    (".{0,12}", urls(), urls(), any::<Option<u64>>(), any::<[bool; 2]>()).prop_map(
        |(name, peer_urls, client_urls, storage_incarnation, [wants_vote, is_witness])| Member {
            name,
            peer_urls,
            client_urls,
            storage_incarnation,
            wants_vote,
            is_witness,
        },
    )
}

/// Any change of membership, also one that is refused.
pub fn change() -> impl Strategy<Value = MembershipChange> {
    let id = || (1..=u64::from(u32::MAX)).prop_map(NodeId);
    let step = prop_oneof![
        id().prop_map(Change::AddVoter),
        id().prop_map(Change::AddLearner),
        id().prop_map(Change::Remove),
        (id(), member()).prop_map(|(id, member)| Change::Describe(id, member)),
    ];
    let passages = vec![Passage::Auto, Passage::JointImplicit, Passage::JointExplicit, Passage::Leave];
    (vec(step, 0..6), prop::sample::select(passages)).prop_map(|(steps, passage)| MembershipChange { steps, passage })
}

/// A strategy for numbers that are counted up from 1.
pub fn counted() -> impl Strategy<Value = u64> {
    prop_oneof![0..=NUMBER_MAX, 0..=9_u64, Just(NUMBER_MAX)]
}

/// Any place in the history.
pub fn lsn() -> impl Strategy<Value = Lsn> {
    (any::<u64>(), counted()).prop_map(|(term, index)| Lsn::new(term, index))
}

/// Payloads of fewer than 40 bytes.
pub fn payload() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

/// Any reading of the replicated clock.
pub fn stamp() -> impl Strategy<Value = Stamp> {
    (any::<u64>(), any::<u64>()).prop_map(|(term, micros)| Stamp { term: Term(term), micros })
}

/// Any entry of the log.
pub fn entry() -> impl Strategy<Value = Entry> {
    let kinds = vec![EntryKind::Blank, EntryKind::Command, EntryKind::Membership, EntryKind::Protocol];
    let origin = (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(node, incarnation, sequence)| Origin {
        node: NodeId(node),
        incarnation,
        sequence,
    });
    (any::<u64>(), 1..=NUMBER_MAX, prop::sample::select(kinds), origin, stamp(), payload()).prop_map(
        |(term, index, kind, origin, stamp, payload)| Entry {
            lsn: Lsn::new(term, index),
            kind,
            origin,
            stamp,
            payload,
        },
    )
}

/// Any reference to a snapshot.
pub fn reference() -> impl Strategy<Value = SnapshotReference> {
    (lsn(), membership(), counted(), any::<u32>()).prop_map(|(lsn, membership, bytes, digest)| SnapshotReference {
        lsn,
        membership: Arc::new(membership),
        bytes,
        digest,
    })
}

/// Any record of a disk.
pub fn record() -> impl Strategy<Value = Record> {
    let promise = (any::<u64>(), any::<Option<u64>>());
    prop_oneof![
        promise.prop_map(|(term, vote)| Record::Promise(Promise { term: Term(term), vote: vote.map(NodeId) })),
        any::<u64>().prop_map(|term| Record::Established(Term(term))),
        entry().prop_map(Record::Put),
        any::<u64>().prop_map(Record::TruncateFrom),
        reference().prop_map(Record::Snapshot),
        lsn().prop_map(Record::Committed),
    ]
}
