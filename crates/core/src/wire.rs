//! Encoding of the shared types: protobuf, so that versions can add fields and old nodes skip them.
//!
//! The structs here are private shapes of the wire; every decoder checks what it reads and answers with an error, never
//! a panic. Protocol messages are built the same way in each protocol's `message.rs`, from [`EntryShape`] and its
//! siblings.

use crate::{
    Assignment, Change, Entry, EntryKind, Lsn, Member, Membership, MembershipChange, NodeId, Origin, Passage, Priority,
    Promise, Record, SnapshotReference, Stamp, Term,
};
use bytes::{Bytes, BytesMut};
use prost::Message as _;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Bytes that are not what they should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WireError(pub String);

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "undecodable bytes: {}", self.0)
    }
}

impl std::error::Error for WireError {}

impl From<prost::DecodeError> for WireError {
    fn from(error: prost::DecodeError) -> WireError {
        WireError(error.to_string())
    }
}

/// Something that travels or is stored.
pub trait Wire: Sized {
    /// Appends the encoding to `out`.
    fn encode(&self, out: &mut BytesMut);
    /// Reads all of `bytes`; payloads inside stay slices of it. Never panics.
    fn decode(bytes: Bytes) -> Result<Self, WireError>;

    /// Shows the payload of each entry inside, with its kind, to a caller that keeps messages without what clients
    /// wrote. A message that carries no entries shows nothing.
    fn visit_payloads(&mut self, _visit: &mut dyn FnMut(EntryKind, &mut Bytes)) {}

    /// Encodes this into bytes of its own.
    fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::new();
        self.encode(&mut out);
        out.freeze()
    }
}

/// Shows the payloads of entries: for [`Wire::visit_payloads`].
pub fn payloads_of(entries: &mut [Entry], visit: &mut dyn FnMut(EntryKind, &mut Bytes)) {
    entries.iter_mut().for_each(|entry| visit(entry.kind, &mut entry.payload));
}

/// Reads a field that must be there.
pub fn present<T>(field: Option<T>, name: &str) -> Result<T, WireError> {
    field.ok_or_else(|| WireError(format!("the field `{name}` is missing")))
}

/// Above everything that is counted up from 1: entries, rounds, heartbeats, bytes of a snapshot. A larger number is damage;
/// one more than any that is let in never overflows.
pub const NUMBER_MAX: u64 = 1 << 62;

/// Refuses numbers that nothing is ever counted up to.
pub fn check_numbers(numbers: impl IntoIterator<Item = u64>) -> Result<(), WireError> {
    match numbers.into_iter().find(|number| *number > NUMBER_MAX) {
        Some(number) => Err(WireError(format!("nothing is ever counted up to {number}"))),
        None => Ok(()),
    }
}

/// The wire shape of an [`Entry`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct EntryShape {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    index: u64,
    #[prost(uint32, tag = "3")]
    kind: u32,
    #[prost(uint64, tag = "4")]
    node: u64,
    #[prost(uint64, tag = "5")]
    incarnation: u64,
    #[prost(uint64, tag = "6")]
    sequence: u64,
    // Tag 7 held time differences in format 1.
    #[prost(bytes = "bytes", tag = "8")]
    payload: Bytes,
    #[prost(uint64, tag = "9")]
    stamp_term: u64,
    #[prost(uint64, tag = "10")]
    stamp_micros: u64,
}

/// The highest member id: ids are small and counted up, so a larger one is damage.
const ID_MAX: u64 = u32::MAX as u64;

const KINDS: [EntryKind; 4] = [EntryKind::Blank, EntryKind::Command, EntryKind::Membership, EntryKind::Protocol];

/// The number of a kind on the wire.
pub fn kind_number(kind: EntryKind) -> u32 {
    match kind {
        EntryKind::Blank => 0,
        EntryKind::Command => 1,
        EntryKind::Membership => 2,
        EntryKind::Protocol => 3,
    }
}

/// The kind with this number on the wire.
pub fn kind_numbered(number: u32) -> Result<EntryKind, WireError> {
    let kind = usize::try_from(number).ok().and_then(|number| KINDS.get(number));
    kind.copied().ok_or_else(|| WireError(format!("an entry of unknown kind {number}")))
}

impl From<&Entry> for EntryShape {
    fn from(entry: &Entry) -> EntryShape {
        EntryShape {
            term: entry.lsn.term.0,
            index: entry.lsn.index,
            kind: kind_number(entry.kind),
            node: entry.origin.node.0,
            incarnation: entry.origin.incarnation,
            sequence: entry.origin.sequence,
            payload: entry.payload.clone(),
            stamp_term: entry.stamp.term.0,
            stamp_micros: entry.stamp.micros,
        }
    }
}

impl TryFrom<EntryShape> for Entry {
    type Error = WireError;

    fn try_from(shape: EntryShape) -> Result<Entry, WireError> {
        if shape.index == 0 {
            return Err(WireError("an entry at index 0".into()));
        }
        check_numbers([shape.index])?;
        Ok(Entry {
            lsn: Lsn::new(shape.term, shape.index),
            kind: kind_numbered(shape.kind)?,
            origin: Origin { node: NodeId(shape.node), incarnation: shape.incarnation, sequence: shape.sequence },
            stamp: Stamp { term: Term(shape.stamp_term), micros: shape.stamp_micros },
            payload: shape.payload,
        })
    }
}

/// The wire shape of a [`Member`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct MemberShape {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, repeated, tag = "3")]
    peer_urls: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    client_urls: Vec<String>,
    #[prost(uint64, optional, tag = "5")]
    storage_incarnation: Option<u64>,
    #[prost(bool, tag = "6")]
    wants_vote: bool,
    #[prost(bool, tag = "7")]
    is_witness: bool,
}

impl MemberShape {
    fn of(id: NodeId, member: &Member) -> MemberShape {
        let Member { name, peer_urls, client_urls, storage_incarnation, wants_vote, is_witness } = member.clone();
        MemberShape { id: id.0, name, peer_urls, client_urls, storage_incarnation, wants_vote, is_witness }
    }

    fn into_member(self) -> (NodeId, Member) {
        let MemberShape { id, name, peer_urls, client_urls, storage_incarnation, wants_vote, is_witness } = self;
        (NodeId(id), Member { name, peer_urls, client_urls, storage_incarnation, wants_vote, is_witness })
    }
}

/// The wire shape of a [`Membership`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct MembershipShape {
    #[prost(uint64, repeated, tag = "1")]
    voters: Vec<u64>,
    #[prost(uint64, repeated, tag = "2")]
    outgoing: Vec<u64>,
    #[prost(uint64, repeated, tag = "3")]
    learners: Vec<u64>,
    #[prost(uint64, repeated, tag = "4")]
    learners_next: Vec<u64>,
    #[prost(bool, tag = "5")]
    auto_leave: bool,
    #[prost(message, repeated, tag = "6")]
    members: Vec<MemberShape>,
    #[prost(uint64, tag = "7")]
    next_id: u64,
    #[prost(message, repeated, tag = "8")]
    assignments: Vec<AssignmentShape>,
}

/// The wire shape of an [`Assignment`], with its partition.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AssignmentShape {
    #[prost(uint32, tag = "1")]
    partition: u32,
    #[prost(uint64, tag = "2")]
    primary: u64,
    #[prost(uint64, tag = "3")]
    lease: u64,
}

impl From<&Membership> for MembershipShape {
    fn from(membership: &Membership) -> MembershipShape {
        let numbers = |ids: &std::collections::BTreeSet<NodeId>| ids.iter().map(|id| id.0).collect();
        MembershipShape {
            voters: numbers(&membership.voters),
            outgoing: numbers(&membership.outgoing),
            learners: numbers(&membership.learners),
            learners_next: numbers(&membership.learners_next),
            auto_leave: membership.auto_leave,
            members: membership.members.iter().map(|(id, member)| MemberShape::of(*id, member)).collect(),
            next_id: membership.next_id,
            assignments: membership.assignments.iter().map(AssignmentShape::of).collect(),
        }
    }
}

impl AssignmentShape {
    fn of((partition, assignment): (&u32, &Assignment)) -> AssignmentShape {
        AssignmentShape { partition: *partition, primary: assignment.primary.0, lease: assignment.lease }
    }

    fn into_assignment(self) -> (u32, Assignment) {
        (self.partition, Assignment { primary: NodeId(self.primary), lease: self.lease })
    }
}

impl TryFrom<MembershipShape> for Membership {
    type Error = WireError;

    fn try_from(shape: MembershipShape) -> Result<Membership, WireError> {
        let ids = |numbers: Vec<u64>| numbers.into_iter().map(NodeId).collect();
        let membership = Membership {
            voters: ids(shape.voters),
            outgoing: ids(shape.outgoing),
            learners: ids(shape.learners),
            learners_next: ids(shape.learners_next),
            auto_leave: shape.auto_leave,
            members: shape.members.into_iter().map(MemberShape::into_member).collect::<BTreeMap<_, _>>(),
            next_id: shape.next_id,
            assignments: shape.assignments.into_iter().map(AssignmentShape::into_assignment).collect(),
        };
        let sane = membership.voters.is_disjoint(&membership.learners)
            && membership.outgoing.is_disjoint(&membership.learners)
            && membership.learners_next.is_subset(&membership.outgoing)
            && (membership.is_joint() || !membership.auto_leave)
            && membership.next_id <= ID_MAX + 1
            && membership.everyone().chain(membership.members.keys().copied()).all(|id| {
                // Ids are counted up from 1, so one that was not given out yet is nobody's.
                id.0 > 0 && id.0 < membership.next_id
            })
            // A primary was a member once, and leases are counted up from 1.
            && membership.assignments.values().all(|assignment| {
                (1..membership.next_id).contains(&assignment.primary.0) && (1..u64::MAX).contains(&assignment.lease)
            });
        if sane { Ok(membership) } else { Err(WireError("a membership that contradicts itself".into())) }
    }
}

/// Entries that directly follow each other and `previous`, with terms that never fall and none above the leader's.
pub fn consecutive(shapes: Vec<EntryShape>, previous: Lsn, term: Term) -> Result<Vec<Entry>, WireError> {
    let mut before = previous;
    let mut entries = Vec::with_capacity(shapes.len());
    for shape in shapes {
        let entry = Entry::try_from(shape)?;
        let is_next = before.index.checked_add(1) == Some(entry.lsn.index);
        if !is_next || entry.lsn.term < before.term || entry.lsn.term > term {
            return Err(WireError(format!("entry {} cannot follow {before} in term {term}", entry.lsn)));
        }
        before = entry.lsn;
        entries.push(entry);
    }
    Ok(entries)
}

/// The number of a priority on the wire.
pub fn priority_number(priority: Priority) -> u32 {
    match priority {
        Priority::Never => 0,
        Priority::Normal => 1,
        Priority::Preferred => 2,
    }
}

/// The priority with this number on the wire.
pub fn priority_numbered(number: u32) -> Result<Priority, WireError> {
    match number {
        0 => Ok(Priority::Never),
        1 => Ok(Priority::Normal),
        2 => Ok(Priority::Preferred),
        other => Err(WireError(format!("a priority of unknown kind {other}"))),
    }
}

/// A snapshot that a leader of `term` names: nothing of a later term is in it.
pub fn snapshot_within(shape: Option<SnapshotReferenceShape>, term: Term) -> Result<SnapshotReference, WireError> {
    let reference: SnapshotReference = present(shape, "snapshot")?.try_into()?;
    if reference.lsn.term > term {
        return Err(WireError(format!("a snapshot through {} cannot come in term {term}", reference.lsn)));
    }
    Ok(reference)
}

/// The wire shape of a [`SnapshotReference`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct SnapshotReferenceShape {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    index: u64,
    #[prost(message, optional, tag = "3")]
    membership: Option<MembershipShape>,
    #[prost(uint64, tag = "4")]
    bytes: u64,
    #[prost(uint32, tag = "5")]
    digest: u32,
}

impl From<&SnapshotReference> for SnapshotReferenceShape {
    fn from(reference: &SnapshotReference) -> SnapshotReferenceShape {
        SnapshotReferenceShape {
            term: reference.lsn.term.0,
            index: reference.lsn.index,
            membership: Some(MembershipShape::from(&*reference.membership)),
            bytes: reference.bytes,
            digest: reference.digest,
        }
    }
}

impl TryFrom<SnapshotReferenceShape> for SnapshotReference {
    type Error = WireError;

    fn try_from(shape: SnapshotReferenceShape) -> Result<SnapshotReference, WireError> {
        let membership = Membership::try_from(present(shape.membership, "membership")?)?;
        check_numbers([shape.index, shape.bytes])?;
        Ok(SnapshotReference {
            lsn: Lsn::new(shape.term, shape.index),
            membership: Arc::new(membership),
            bytes: shape.bytes,
            digest: shape.digest,
        })
    }
}

impl Wire for SnapshotReference {
    fn encode(&self, out: &mut BytesMut) {
        encode_shape(&SnapshotReferenceShape::from(self), out);
    }

    fn decode(bytes: Bytes) -> Result<SnapshotReference, WireError> {
        SnapshotReferenceShape::decode(bytes)?.try_into()
    }
}

impl Wire for Membership {
    fn encode(&self, out: &mut BytesMut) {
        encode_shape(&MembershipShape::from(self), out);
    }

    fn decode(bytes: Bytes) -> Result<Membership, WireError> {
        MembershipShape::decode(bytes)?.try_into()
    }
}

/// Appends the encoding of a shape; a growing buffer always has room.
pub fn encode_shape(shape: &impl prost::Message, out: &mut BytesMut) {
    out.reserve(shape.encoded_len());
    shape.encode(out).expect("a growing buffer has room");
}

#[derive(Clone, PartialEq, prost::Message)]
struct ChangeShape {
    #[prost(message, repeated, tag = "1")]
    steps: Vec<StepShape>,
    #[prost(uint32, tag = "2")]
    passage: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StepShape {
    /// 1 voter, 2 learner, 3 removed, 4 described.
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(uint64, tag = "2")]
    id: u64,
    #[prost(message, optional, tag = "3")]
    member: Option<MemberShape>,
}

impl Wire for MembershipChange {
    fn encode(&self, out: &mut BytesMut) {
        let step = |step: &Change| match step {
            Change::AddVoter(id) => StepShape { kind: 1, id: id.0, member: None },
            Change::AddLearner(id) => StepShape { kind: 2, id: id.0, member: None },
            Change::Remove(id) => StepShape { kind: 3, id: id.0, member: None },
            Change::Describe(id, member) => StepShape { kind: 4, id: id.0, member: Some(MemberShape::of(*id, member)) },
        };
        let passage = match self.passage {
            Passage::Auto => 0,
            Passage::JointImplicit => 1,
            Passage::JointExplicit => 2,
            Passage::Leave => 3,
        };
        encode_shape(&ChangeShape { steps: self.steps.iter().map(step).collect(), passage }, out);
    }

    fn decode(bytes: Bytes) -> Result<MembershipChange, WireError> {
        let shape = ChangeShape::decode(bytes)?;
        let step = |step: StepShape| match step.kind {
            _ if step.id == 0 || step.id > ID_MAX => Err(WireError(format!("{} cannot be a member's id", step.id))),
            1 => Ok(Change::AddVoter(NodeId(step.id))),
            2 => Ok(Change::AddLearner(NodeId(step.id))),
            3 => Ok(Change::Remove(NodeId(step.id))),
            4 => Ok(Change::Describe(NodeId(step.id), present(step.member, "member")?.into_member().1)),
            other => Err(WireError(format!("a membership step of unknown kind {other}"))),
        };
        let passage = match shape.passage {
            0 => Passage::Auto,
            1 => Passage::JointImplicit,
            2 => Passage::JointExplicit,
            3 => Passage::Leave,
            other => return Err(WireError(format!("a membership passage of unknown kind {other}"))),
        };
        Ok(MembershipChange { steps: shape.steps.into_iter().map(step).collect::<Result<_, _>>()?, passage })
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct RecordShape {
    #[prost(oneof = "RecordKind", tags = "1, 2, 3, 4, 5, 6")]
    kind: Option<RecordKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum RecordKind {
    #[prost(message, tag = "1")]
    Promise(PromiseShape),
    #[prost(uint64, tag = "2")]
    Established(u64),
    #[prost(message, tag = "3")]
    Put(EntryShape),
    #[prost(uint64, tag = "4")]
    TruncateFrom(u64),
    #[prost(message, tag = "5")]
    Snapshot(SnapshotReferenceShape),
    #[prost(message, tag = "6")]
    Committed(LsnShape),
}

#[derive(Clone, PartialEq, prost::Message)]
struct PromiseShape {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, optional, tag = "2")]
    vote: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LsnShape {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    index: u64,
}

impl Wire for Record {
    fn encode(&self, out: &mut BytesMut) {
        let kind = match self {
            Record::Promise(promise) => {
                RecordKind::Promise(PromiseShape { term: promise.term.0, vote: promise.vote.map(|id| id.0) })
            }
            Record::Established(term) => RecordKind::Established(term.0),
            Record::Put(entry) => RecordKind::Put(entry.into()),
            Record::TruncateFrom(index) => RecordKind::TruncateFrom(*index),
            Record::Snapshot(reference) => RecordKind::Snapshot(reference.into()),
            Record::Committed(lsn) => RecordKind::Committed(LsnShape { term: lsn.term.0, index: lsn.index }),
        };
        encode_shape(&RecordShape { kind: Some(kind) }, out);
    }

    fn visit_payloads(&mut self, visit: &mut dyn FnMut(EntryKind, &mut Bytes)) {
        if let Record::Put(entry) = self {
            visit(entry.kind, &mut entry.payload);
        }
    }

    fn decode(bytes: Bytes) -> Result<Record, WireError> {
        Ok(match present(RecordShape::decode(bytes)?.kind, "kind")? {
            RecordKind::Promise(PromiseShape { term, vote }) => {
                Record::Promise(Promise { term: Term(term), vote: vote.map(NodeId) })
            }
            RecordKind::Established(term) => Record::Established(Term(term)),
            RecordKind::Put(entry) => Record::Put(entry.try_into()?),
            RecordKind::TruncateFrom(index) => Record::TruncateFrom(index),
            RecordKind::Snapshot(reference) => Record::Snapshot(reference.try_into()?),
            RecordKind::Committed(LsnShape { term, index }) => Record::Committed(Lsn::new(term, index)),
        })
    }
}
