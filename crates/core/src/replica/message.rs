//! Messages between replicas, beside those of their protocols: [`ReplicaMessage`].

use crate::membership::MembershipRefusal;
use crate::protocol::Refusal;
use crate::wire::{encode_shape, kind_number, kind_numbered, present};
use crate::{EntryKind, Lsn, NodeId, Wire, WireError};
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message as _;

/// A proposal on its way to the leader.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ForwardedRequest {
    /// Its number at its origin.
    pub sequence: u64,
    /// The kind of the payload.
    pub kind: EntryKind,
    /// The encoded command or membership change.
    pub payload: Bytes,
}

/// A message from one replica to another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ReplicaMessage<M> {
    /// A message between the protocols inside.
    Protocol(M),
    /// Propose these for my clients.
    Forward {
        /// The number of the sender's life, as in [`crate::Origin`].
        incarnation: u64,
        /// The proposals, in the order of their numbers.
        requests: Vec<ForwardedRequest>,
    },
    /// One of them was *definitely* not appended.
    ForwardRefused {
        /// The number of the life in which the origin proposed it, as in [`crate::Origin`].
        incarnation: u64,
        /// The proposal's number at its origin.
        sequence: u64,
        /// The reason for the refusal.
        refusal: Refusal,
    },
    /// Asks from which index on reads are linearizable.
    AskRead {
        /// Number of this question, unique per attempt.
        number: u64,
    },
    /// Reads are linearizable once this index is applied.
    ReadAt {
        /// Number of the question that is answered.
        number: u64,
        /// The index to apply first.
        index: u64,
    },
    /// Ask the leader; it is not me, or not yet.
    ReadRefused {
        /// Number of the question that is answered.
        number: u64,
    },
    /// Send me the bytes of this snapshot from here on.
    AskChunk {
        /// The last entry that the snapshot covers.
        lsn: Lsn,
        /// CRC32C of the snapshot.
        digest: u32,
        /// Offset of the first byte wanted.
        offset: u64,
    },
    /// The bytes of a snapshot that were asked for.
    Chunk {
        /// The last entry that the snapshot covers.
        lsn: Lsn,
        /// Offset of the first byte.
        offset: u64,
        /// The bytes, as many as the sender puts into one chunk.
        bytes: Bytes,
    },
    /// I do not have it any more.
    ChunkGone {
        /// The last entry that the snapshot covers.
        lsn: Lsn,
    },
    /// Between hosts: echo this at once, so that I can measure the round trip.
    Ping {
        /// Time of sending, in microseconds of the sender's clock.
        sent_micros: u64,
    },
    /// Between hosts: the answer to a ping.
    Pong {
        /// The time from the ping, unchanged.
        sent_micros: u64,
    },
    /// Between hosts, from version 3 of the peer protocol on: my state at an entry where states are compared.
    Digest {
        /// Index of the entry behind which states are compared.
        index: u64,
        /// Digest of the state behind that entry.
        digest: u64,
    },
    /// Between hosts, from version 3 on: how much is durable at me and, as far as I have heard, at others.
    Durable(Vec<Position>),
}

/// The amount of a member's log that is durable, as that member reported it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position {
    /// Id of the member whose position this is.
    pub node: NodeId,
    /// Its storage incarnation: another directory has positions of its own.
    pub storage: u64,
    /// Number of the start in which it said so, from 1.
    pub boots: u64,
    /// The number that this start drew: a copy of the directory may have been started as often.
    pub process: u64,
    /// Number of batches that its log had when that start began, all durable.
    pub born_with: u64,
    /// Number of batches that were durable. Only grows, whatever a protocol truncates.
    pub batches: u64,
}

impl Position {
    /// Returns the position if a log can reach it. Numbers that no log ever reaches would have the member's links refused for good.
    ///
    /// # Errors
    /// More starts or batches than a log has in a thousand years, or fewer batches than its start began with.
    pub fn checked(self) -> Result<Position, WireError> {
        let Position { node, boots, born_with, batches, .. } = self;
        if born_with > batches {
            return Err(WireError(format!("start {boots} of {node} began with {born_with} batches and has {batches}")));
        }
        if batches > BATCHES_MAX || boots > BATCHES_MAX {
            return Err(WireError(format!(
                "{node} has no {batches} batches in start {boots}: at most {BATCHES_MAX} of both"
            )));
        }
        Ok(self)
    }

    /// Positions as bytes, on the wire and in a file.
    pub fn encode_all(positions: &[Position]) -> Bytes {
        positions_shape(positions).encode_to_vec().into()
    }

    /// Reads the encoding of [`Position::encode_all`].
    ///
    /// # Errors
    /// Anything else, and more than a cluster has members.
    pub fn decode_all(bytes: Bytes) -> Result<Vec<Position>, WireError> {
        positions_shaped(DurableShape::decode(bytes)?)
    }
}

fn positions_shape(positions: &[Position]) -> DurableShape {
    let shape = |position: &Position| {
        let Position { node: NodeId(node), storage, boots, process, born_with, batches } = *position;
        PositionShape { node, storage, boots, process, born_with, batches }
    };
    DurableShape { positions: positions.iter().map(shape).collect() }
}

fn positions_shaped(DurableShape { positions }: DurableShape) -> Result<Vec<Position>, WireError> {
    if positions.len() > POSITIONS_MAX {
        return Err(WireError(format!("{} positions at once, at most {POSITIONS_MAX}", positions.len())));
    }
    let position = |shape: PositionShape| {
        let PositionShape { node, storage, boots, process, born_with, batches } = shape;
        Position { node: NodeId(node), storage, boots, process, born_with, batches }.checked()
    };
    positions.into_iter().map(position).collect()
}

#[derive(Clone, PartialEq, prost::Message)]
struct Envelope {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    #[prost(bytes = "bytes", tag = "1")]
    Protocol(Bytes),
    #[prost(message, tag = "2")]
    Forward(ForwardShape),
    #[prost(message, tag = "3")]
    ForwardRefused(RefusedShape),
    #[prost(uint64, tag = "4")]
    AskRead(u64),
    #[prost(message, tag = "5")]
    ReadAt(ReadAtShape),
    #[prost(uint64, tag = "6")]
    ReadRefused(u64),
    #[prost(message, tag = "7")]
    AskChunk(ChunkShape),
    #[prost(message, tag = "8")]
    Chunk(ChunkShape),
    #[prost(message, tag = "9")]
    ChunkGone(ChunkShape),
    #[prost(uint64, tag = "10")]
    Ping(u64),
    #[prost(uint64, tag = "11")]
    Pong(u64),
    #[prost(message, tag = "12")]
    Digest(DigestShape),
    #[prost(message, tag = "13")]
    Durable(DurableShape),
}

#[derive(Clone, PartialEq, prost::Message)]
struct DigestShape {
    #[prost(uint64, tag = "1")]
    index: u64,
    #[prost(fixed64, tag = "2")]
    digest: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DurableShape {
    #[prost(message, repeated, tag = "1")]
    positions: Vec<PositionShape>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct PositionShape {
    #[prost(uint64, tag = "1")]
    node: u64,
    #[prost(fixed64, tag = "2")]
    storage: u64,
    #[prost(uint64, tag = "3")]
    boots: u64,
    #[prost(uint64, tag = "4")]
    born_with: u64,
    #[prost(uint64, tag = "5")]
    batches: u64,
    #[prost(fixed64, tag = "6")]
    process: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ForwardShape {
    #[prost(uint64, tag = "1")]
    incarnation: u64,
    #[prost(message, repeated, tag = "2")]
    requests: Vec<RequestShape>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RequestShape {
    #[prost(uint64, tag = "1")]
    sequence: u64,
    #[prost(uint32, tag = "2")]
    kind: u32,
    #[prost(bytes = "bytes", tag = "3")]
    payload: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RefusedShape {
    #[prost(uint64, tag = "1")]
    incarnation: u64,
    #[prost(uint64, tag = "2")]
    sequence: u64,
    #[prost(uint32, tag = "3")]
    code: u32,
    #[prost(uint64, tag = "4")]
    node: u64,
    #[prost(string, tag = "5")]
    what: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ReadAtShape {
    #[prost(uint64, tag = "1")]
    number: u64,
    #[prost(uint64, tag = "2")]
    index: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ChunkShape {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    index: u64,
    #[prost(uint32, tag = "3")]
    digest: u32,
    #[prost(uint64, tag = "4")]
    offset: u64,
    #[prost(bytes = "bytes", tag = "5")]
    bytes: Bytes,
}

/// Codes from here on are refusals of a membership change, by rule.
const MEMBERSHIP_CODES: u32 = 100;

const MEMBERSHIP_RULES: [MembershipRefusal; 10] = [
    MembershipRefusal::NoVoters,
    MembershipRefusal::NotSimple,
    MembershipRefusal::AlreadyJoint,
    MembershipRefusal::NotJoint,
    MembershipRefusal::NotFound,
    MembershipRefusal::Taken,
    MembershipRefusal::NotLearner,
    MembershipRefusal::NotReady,
    MembershipRefusal::TooLarge,
    MembershipRefusal::Witness,
];

fn refusal_numbers(refusal: &Refusal) -> (u32, u64, String) {
    match refusal {
        Refusal::NotLeader(leader) => (1, leader.map_or(0, |id| id.0), String::new()),
        Refusal::Transferring => (2, 0, String::new()),
        Refusal::Overloaded => (3, 0, String::new()),
        Refusal::NotReady => (4, 0, String::new()),
        Refusal::MembershipPending => (5, 0, String::new()),
        Refusal::BadTransferee(node) => (6, node.0, String::new()),
        Refusal::TransferTimedOut => (7, 0, String::new()),
        Refusal::IsWitness => (8, 0, String::new()),
        Refusal::Membership(rule, what) => {
            let position = MEMBERSHIP_RULES.iter().position(|known| known == rule).expect("all rules are listed");
            (MEMBERSHIP_CODES + u32::try_from(position).expect("few rules"), 0, what.clone())
        }
    }
}

fn refusal_numbered(code: u32, node: u64, what: String) -> Result<Refusal, WireError> {
    Ok(match code {
        1 => Refusal::NotLeader((node != 0).then_some(NodeId(node))),
        2 => Refusal::Transferring,
        3 => Refusal::Overloaded,
        4 => Refusal::NotReady,
        5 => Refusal::MembershipPending,
        6 => Refusal::BadTransferee(NodeId(node)),
        7 => Refusal::TransferTimedOut,
        8 => Refusal::IsWitness,
        code => {
            let position = code.checked_sub(MEMBERSHIP_CODES).and_then(|position| usize::try_from(position).ok());
            let rule = position.and_then(|position| MEMBERSHIP_RULES.get(position));
            let rule = rule.ok_or_else(|| WireError(format!("a refusal of unknown kind {code}")))?;
            Refusal::Membership(*rule, what)
        }
    })
}

/// The most requests in one message of forwarded proposals: what a node keeps outstanding.
const FORWARDED_MAX: usize = 1 << 17;

/// The most positions in one message: far more than a cluster has members.
pub const POSITIONS_MAX: usize = 1_024;

/// A batch takes a sync, and a thousand years have fewer microseconds.
const BATCHES_MAX: u64 = 1 << 55;

/// No node numbers as many requests in one life.
const SEQUENCE_MAX: u64 = 1 << 62;

/// The key of the envelope's field 1, length-delimited.
const PROTOCOL_FIELD: u8 = 0x0a;
/// Bytes kept free for a length that is known only afterwards: a varint may have leading zero groups.
const LENGTH_BYTES: usize = 5;

/// Writes `Kind::Protocol` without encoding the message into a buffer of its own first: nearly all traffic is this.
fn encode_protocol(message: &impl Wire, out: &mut BytesMut) {
    out.put_u8(PROTOCOL_FIELD);
    let start = out.len();
    out.put_slice(&[0; LENGTH_BYTES]);
    message.encode(out);
    let length = out.len() - start - LENGTH_BYTES;
    assert!(length < 1 << 35, "messages are bounded far below 32 GiB");
    for position in 0..LENGTH_BYTES {
        let more = if position + 1 < LENGTH_BYTES { 0x80 } else { 0 };
        out[start + position] = (length >> (7 * position) & 0x7f) as u8 | more;
    }
}

impl<M: Wire> Wire for ReplicaMessage<M> {
    fn encode(&self, out: &mut BytesMut) {
        if let ReplicaMessage::Protocol(message) = self {
            return encode_protocol(message, out);
        }
        let chunk =
            |lsn: &Lsn, digest, offset, bytes| ChunkShape { term: lsn.term.0, index: lsn.index, digest, offset, bytes };
        let kind = match self {
            ReplicaMessage::Protocol(_) => unreachable!("encoded above"),
            ReplicaMessage::Forward { incarnation, requests } => Kind::Forward(ForwardShape {
                incarnation: *incarnation,
                requests: requests
                    .iter()
                    .map(|request| RequestShape {
                        sequence: request.sequence,
                        kind: kind_number(request.kind),
                        payload: request.payload.clone(),
                    })
                    .collect(),
            }),
            ReplicaMessage::ForwardRefused { incarnation, sequence, refusal } => {
                let (code, node, what) = refusal_numbers(refusal);
                let (incarnation, sequence) = (*incarnation, *sequence);
                Kind::ForwardRefused(RefusedShape { incarnation, sequence, code, node, what })
            }
            ReplicaMessage::AskRead { number } => Kind::AskRead(*number),
            ReplicaMessage::ReadAt { number, index } => Kind::ReadAt(ReadAtShape { number: *number, index: *index }),
            ReplicaMessage::ReadRefused { number } => Kind::ReadRefused(*number),
            ReplicaMessage::AskChunk { lsn, digest, offset } => {
                Kind::AskChunk(chunk(lsn, *digest, *offset, Bytes::new()))
            }
            ReplicaMessage::Chunk { lsn, offset, bytes } => Kind::Chunk(chunk(lsn, 0, *offset, bytes.clone())),
            ReplicaMessage::ChunkGone { lsn } => Kind::ChunkGone(chunk(lsn, 0, 0, Bytes::new())),
            ReplicaMessage::Ping { sent_micros } => Kind::Ping(*sent_micros),
            ReplicaMessage::Pong { sent_micros } => Kind::Pong(*sent_micros),
            ReplicaMessage::Digest { index, digest } => Kind::Digest(DigestShape { index: *index, digest: *digest }),
            ReplicaMessage::Durable(positions) => Kind::Durable(positions_shape(positions)),
        };
        encode_shape(&Envelope { kind: Some(kind) }, out);
    }

    fn decode(bytes: Bytes) -> Result<ReplicaMessage<M>, WireError> {
        Ok(match present(Envelope::decode(bytes)?.kind, "kind")? {
            Kind::Protocol(bytes) => ReplicaMessage::Protocol(M::decode(bytes)?),
            Kind::Forward(ForwardShape { incarnation, requests }) => {
                if requests.len() > FORWARDED_MAX {
                    return Err(WireError(format!(
                        "{} requests in one message, at most {FORWARDED_MAX}",
                        requests.len()
                    )));
                }
                let request = |shape: RequestShape| match kind_numbered(shape.kind)? {
                    // A notice that its origin waits no longer for older proposals: no proposal itself, and so without a number.
                    kind @ EntryKind::Blank if shape.sequence == 0 && shape.payload.len() == 8 => {
                        Ok(ForwardedRequest { sequence: 0, kind, payload: shape.payload })
                    }
                    _ if !(1..=SEQUENCE_MAX).contains(&shape.sequence) => {
                        Err(WireError(format!("a request numbered {}: they are counted up from 1", shape.sequence)))
                    }
                    kind @ (EntryKind::Command | EntryKind::Membership) => {
                        if kind == EntryKind::Membership {
                            crate::MembershipChange::decode(shape.payload.clone())?;
                        }
                        Ok(ForwardedRequest { sequence: shape.sequence, kind, payload: shape.payload })
                    }
                    kind => Err(WireError(format!("{kind:?} entries are not forwarded"))),
                };
                let requests = requests.into_iter().map(request).collect::<Result<_, WireError>>()?;
                ReplicaMessage::Forward { incarnation, requests }
            }
            Kind::ForwardRefused(RefusedShape { incarnation, sequence, code, node, what }) => {
                let refusal = refusal_numbered(code, node, what)?;
                ReplicaMessage::ForwardRefused { incarnation, sequence, refusal }
            }
            Kind::AskRead(number) => ReplicaMessage::AskRead { number },
            Kind::ReadAt(ReadAtShape { number, index }) => ReplicaMessage::ReadAt { number, index },
            Kind::ReadRefused(number) => ReplicaMessage::ReadRefused { number },
            Kind::AskChunk(shape) => {
                let (lsn, digest, offset) = (Lsn::new(shape.term, shape.index), shape.digest, shape.offset);
                ReplicaMessage::AskChunk { lsn, digest, offset }
            }
            Kind::Chunk(shape) => {
                let lsn = Lsn::new(shape.term, shape.index);
                ReplicaMessage::Chunk { lsn, offset: shape.offset, bytes: shape.bytes }
            }
            Kind::ChunkGone(shape) => ReplicaMessage::ChunkGone { lsn: Lsn::new(shape.term, shape.index) },
            Kind::Ping(sent_micros) => ReplicaMessage::Ping { sent_micros },
            Kind::Pong(sent_micros) => ReplicaMessage::Pong { sent_micros },
            Kind::Digest(DigestShape { index, digest }) => ReplicaMessage::Digest { index, digest },
            Kind::Durable(shape) => ReplicaMessage::Durable(positions_shaped(shape)?),
        })
    }
}
