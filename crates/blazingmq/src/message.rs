//! Messages between BlazingMQ nodes: [`Message`].
//!
//! The elector's eight messages (§1.3 of `docs/protocols/rules`), the ledger's (§2.5) and, marked `[OURS]`, a refusal and a
//! hand-over. `[OURS]` Every request and answer of the ledger carries the term, so that none is matched to another
//! reign.

use bytes::{Bytes, BytesMut};
use hustings_core::wire::{
    EntryShape, SnapshotReferenceShape, check_numbers, consecutive, encode_shape, payloads_of, priority_number,
    priority_numbered, snapshot_within,
};
use hustings_core::{Entry, EntryKind, Lsn, Priority, SnapshotReference, Term, Wire, WireError};
use prost::Message as _;

/// A message between BlazingMQ nodes, or from a node to itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    /// If I proposed this term, would you support me? Promises nothing.
    Scouting {
        /// The term that would be proposed; the sender's own is lower.
        term: Term,
        /// Flag of the round that asks; consecutive rounds have different ones (EL-10).
        round: bool,
        /// The last record that the sender knows to be committed.
        commit: Lsn,
    },
    /// The answer to a scouting.
    ScoutingReply {
        /// The responder's own term.
        term: Term,
        /// The round of the question.
        round: bool,
        /// Whether it would support the asker.
        will_vote: bool,
        /// The last record that the responder knows to be committed.
        commit: Lsn,
    },
    /// Support me in this term.
    Proposal {
        /// The candidate's new term.
        term: Term,
        /// `[OURS]` The leader asked it to take over: nobody sticks to that leader.
        is_transfer: bool,
        /// The last record that the candidate knows to be committed.
        commit: Lsn,
    },
    /// ElectionResponse: I support you in this term. To itself: this node's term is durable. Unsolicited, by a node
    /// that joins.
    Support {
        /// The term in which the sender supports the candidate.
        term: Term,
    },
    /// `[OURS]` I do not support you; in the published form a refusal is silence.
    Refusal {
        /// The responder's own term.
        term: Term,
        /// The term that was proposed.
        proposed: Term,
    },
    /// I lead this term.
    Heartbeat {
        /// The term of the leader that sends this, or that is answered.
        term: Term,
        /// The highest round of reads that is not confirmed yet.
        round: u64,
        /// The index through which the receiver's ledger is committed.
        commit: u64,
        /// Whether the leader is healed and serves (C7).
        is_active: bool,
        /// Whether a follower is to answer; one of a later term answers always.
        asks: bool,
    },
    /// HeartbeatResponse. In a later term: you are stale. `[OURS]` In the same: I follow you.
    Heard {
        /// The responder's term: the leader's, or a later one.
        term: Term,
        /// The round of the heartbeat.
        round: u64,
        /// The sender's priority as a leader.
        priority: Priority,
        /// Whether it is fetching or installing a snapshot.
        is_installing: bool,
    },
    /// I do not lead any more.
    Cession {
        /// The term in which the sender led.
        term: Term,
    },
    /// ElectorNodeStatus: I can, or cannot, lead or hold anything.
    NodeStatus {
        /// Whether it can do so.
        is_available: bool,
    },
    /// FollowerLSNRequest: asks for the last place in the receiver's ledger.
    LsnRequest {
        /// The term of the leader that sends this, or that is answered.
        term: Term,
    },
    /// RegistrationRequest and FollowerLSNResponse: I follow, and my ledger ends here.
    Registration {
        /// The term of the leader that sends this, or that is answered.
        term: Term,
        /// The last place in its ledger, durably.
        last: Lsn,
    },
    /// FollowerClusterStateRequest: asks for the records after this place in the receiver's ledger.
    Pull {
        /// The term of the leader that sends this, or that is answered.
        term: Term,
        /// A place in the leader's ledger.
        after: Lsn,
    },
    /// The answer to a pull: the records after that place.
    Pulled {
        /// The term of the leader that sends this, or that is answered.
        term: Term,
        /// The place before the entries.
        previous: Lsn,
        /// Records in the order of the ledger, without a gap.
        entries: Vec<Entry>,
        /// The last place in the responder's ledger.
        last: Lsn,
        /// The highest index that the responder knows to be committed.
        commit: u64,
    },
    /// That place is not in my ledger.
    PullGap {
        /// The term of the leader that sends this, or that is answered.
        term: Term,
        /// A place of mine at which we may agree.
        hint: Lsn,
    },
    /// The records after it are compacted away here: fetch this snapshot first.
    PullSnapshot {
        /// The term of the leader that sends this, or that is answered.
        term: Term,
        /// The snapshot to fetch.
        reference: SnapshotReference,
    },
    /// The next records of the ledger.
    Records {
        /// The term of the leader that sends this, or that is answered.
        term: Term,
        /// `[OURS]` The place before the entries, so that gaps are seen.
        previous: Lsn,
        /// Records in the order of the ledger, without a gap.
        entries: Vec<Entry>,
        /// The leader's commit index.
        commit: u64,
    },
    /// LeaderAdvisoryAck: my ledger equals yours up to here, durably. To itself: the leader's own copy.
    Ack {
        /// The term of the leader that sends this, or that is answered.
        term: Term,
        /// Last index that is stored.
        index: u64,
    },
    /// `[OURS]` The place before the records is not in my ledger.
    Gap {
        /// The term of the leader that sends this, or that is answered.
        term: Term,
        /// A place of mine at which we may agree, durably.
        hint: Lsn,
    },
    /// Records that you need are compacted away: fetch this snapshot instead.
    Snapshot {
        /// The term of the leader that sends this, or that is answered.
        term: Term,
        /// The snapshot to fetch.
        reference: SnapshotReference,
    },
    /// The snapshot cannot be had: offer another.
    SnapshotFailed {
        /// The term of the leader that sends this, or that is answered.
        term: Term,
        /// The last record that the snapshot covers.
        lsn: Lsn,
    },
    /// `[OURS]` Take over: propose at once.
    Handover {
        /// The term of the leader that sends this, or that is answered.
        term: Term,
    },
}

impl Message {
    /// The term that the message carries (§1.3); zero in a node's status.
    pub fn term(&self) -> Term {
        match self {
            Message::NodeStatus { .. } => Term::ZERO,
            Message::Scouting { term, .. }
            | Message::ScoutingReply { term, .. }
            | Message::Proposal { term, .. }
            | Message::Support { term }
            | Message::Refusal { term, .. }
            | Message::Heartbeat { term, .. }
            | Message::Heard { term, .. }
            | Message::Cession { term }
            | Message::LsnRequest { term }
            | Message::Registration { term, .. }
            | Message::Pull { term, .. }
            | Message::Pulled { term, .. }
            | Message::PullGap { term, .. }
            | Message::PullSnapshot { term, .. }
            | Message::Records { term, .. }
            | Message::Ack { term, .. }
            | Message::Gap { term, .. }
            | Message::Snapshot { term, .. }
            | Message::SnapshotFailed { term, .. }
            | Message::Handover { term } => *term,
        }
    }

    /// Whether this is a message that only leaders send to those who follow them.
    pub fn is_of_reign(&self) -> bool {
        matches!(
            self,
            Message::Heartbeat { .. }
                | Message::LsnRequest { .. }
                | Message::Pull { .. }
                | Message::Records { .. }
                | Message::Snapshot { .. }
                | Message::Handover { .. }
        )
    }
}

/// One flat shape for all kinds: fields that a kind does not use cost nothing on the wire.
#[derive(Clone, PartialEq, prost::Message)]
struct Shape {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(uint64, tag = "2")]
    term: u64,
    #[prost(uint64, tag = "3")]
    place_term: u64,
    #[prost(uint64, tag = "4")]
    place_index: u64,
    #[prost(uint64, tag = "5")]
    last_term: u64,
    #[prost(uint64, tag = "6")]
    last_index: u64,
    #[prost(uint64, tag = "7")]
    commit: u64,
    #[prost(uint32, tag = "8")]
    priority: u32,
    #[prost(bool, tag = "9")]
    flag: bool,
    #[prost(bool, tag = "10")]
    parity: bool,
    #[prost(uint64, tag = "11")]
    round: u64,
    #[prost(message, repeated, tag = "12")]
    entries: Vec<EntryShape>,
    #[prost(message, optional, tag = "13")]
    snapshot: Option<SnapshotReferenceShape>,
    /// A heartbeat that wants no answer. Builds that do not know it answer all the same.
    #[prost(bool, tag = "14")]
    is_quiet: bool,
}

impl Shape {
    fn of(kind: u32, term: Term) -> Shape {
        Shape { kind, term: term.0, ..Shape::default() }
    }

    fn at(self, place: Lsn) -> Shape {
        Shape { place_term: place.term.0, place_index: place.index, ..self }
    }

    fn place(&self) -> Lsn {
        Lsn::new(self.place_term, self.place_index)
    }
}

impl Wire for Message {
    fn encode(&self, out: &mut BytesMut) {
        let term = self.term();
        let shape = match self {
            Message::Scouting { round, commit, .. } => Shape { parity: *round, ..Shape::of(1, term).at(*commit) },
            Message::ScoutingReply { round, will_vote, commit, .. } => {
                Shape { parity: *round, flag: *will_vote, ..Shape::of(2, term).at(*commit) }
            }
            Message::Proposal { is_transfer, commit, .. } => {
                Shape { flag: *is_transfer, ..Shape::of(3, term).at(*commit) }
            }
            Message::Support { .. } => Shape::of(4, term),
            Message::Refusal { proposed, .. } => Shape { last_term: proposed.0, ..Shape::of(5, term) },
            Message::Heartbeat { round, commit, is_active, asks, .. } => {
                Shape { round: *round, commit: *commit, flag: *is_active, is_quiet: !asks, ..Shape::of(6, term) }
            }
            Message::Heard { round, priority, is_installing, .. } => Shape {
                round: *round,
                priority: priority_number(*priority),
                flag: *is_installing,
                ..Shape::of(7, term)
            },
            Message::Cession { .. } => Shape::of(8, term),
            Message::NodeStatus { is_available } => Shape { flag: *is_available, ..Shape::of(9, term) },
            Message::LsnRequest { .. } => Shape::of(10, term),
            Message::Registration { last, .. } => Shape::of(11, term).at(*last),
            Message::Pull { after, .. } => Shape::of(12, term).at(*after),
            Message::Pulled { previous, entries, last, commit, .. } => Shape {
                entries: entries.iter().map(EntryShape::from).collect(),
                last_term: last.term.0,
                last_index: last.index,
                commit: *commit,
                ..Shape::of(13, term).at(*previous)
            },
            Message::PullGap { hint, .. } => Shape::of(14, term).at(*hint),
            Message::PullSnapshot { reference, .. } => {
                Shape { snapshot: Some(reference.into()), ..Shape::of(15, term) }
            }
            Message::Records { previous, entries, commit, .. } => Shape {
                entries: entries.iter().map(EntryShape::from).collect(),
                commit: *commit,
                ..Shape::of(16, term).at(*previous)
            },
            Message::Ack { index, .. } => Shape { place_index: *index, ..Shape::of(17, term) },
            Message::Gap { hint, .. } => Shape::of(18, term).at(*hint),
            Message::Snapshot { reference, .. } => Shape { snapshot: Some(reference.into()), ..Shape::of(19, term) },
            Message::SnapshotFailed { lsn, .. } => Shape::of(20, term).at(*lsn),
            Message::Handover { .. } => Shape::of(21, term),
        };
        encode_shape(&shape, out);
    }

    fn visit_payloads(&mut self, visit: &mut dyn FnMut(EntryKind, &mut Bytes)) {
        if let Message::Pulled { entries, .. } | Message::Records { entries, .. } = self {
            payloads_of(entries, visit);
        }
    }

    fn decode(bytes: Bytes) -> Result<Message, WireError> {
        let shape = Shape::decode(bytes)?;
        check_numbers([shape.place_index, shape.last_index, shape.commit, shape.round])?;
        let (term, place) = (Term(shape.term), shape.place());
        Ok(match shape.kind {
            1 => Message::Scouting { term, round: shape.parity, commit: place },
            2 => Message::ScoutingReply { term, round: shape.parity, will_vote: shape.flag, commit: place },
            3 => Message::Proposal { term, is_transfer: shape.flag, commit: place },
            4 => Message::Support { term },
            5 => Message::Refusal { term, proposed: Term(shape.last_term) },
            6 => Message::Heartbeat {
                term,
                round: shape.round,
                commit: shape.commit,
                is_active: shape.flag,
                asks: !shape.is_quiet,
            },
            7 => Message::Heard {
                term,
                round: shape.round,
                priority: priority_numbered(shape.priority)?,
                is_installing: shape.flag,
            },
            8 => Message::Cession { term },
            9 => Message::NodeStatus { is_available: shape.flag },
            10 => Message::LsnRequest { term },
            11 => Message::Registration { term, last: place },
            12 => Message::Pull { term, after: place },
            13 => {
                let last = Lsn::new(shape.last_term, shape.last_index);
                let entries = consecutive(shape.entries, place, term)?;
                let end = entries.last().map_or(place, |entry| entry.lsn);
                if last < end || last.index < end.index || last.term > term {
                    return Err(WireError(format!("a ledger that ends at {last} cannot hold {end} in term {term}")));
                }
                Message::Pulled { term, previous: place, entries, last, commit: shape.commit }
            }
            14 => Message::PullGap { term, hint: place },
            15 => Message::PullSnapshot { term, reference: snapshot_within(shape.snapshot, term)? },
            16 => Message::Records {
                term,
                previous: place,
                entries: consecutive(shape.entries, place, term)?,
                commit: shape.commit,
            },
            17 => Message::Ack { term, index: place.index },
            18 => Message::Gap { term, hint: place },
            19 => Message::Snapshot { term, reference: snapshot_within(shape.snapshot, term)? },
            20 => Message::SnapshotFailed { term, lsn: place },
            21 => Message::Handover { term },
            other => return Err(WireError(format!("a BlazingMQ message of unknown kind {other}"))),
        })
    }
}
