//! Messages between GMT-2000 nodes: [`Message`].
//!
//! ELECT, VOTE and LEAD are the text's; the others are ours and carry acknowledgements, refusals, snapshots and hand-overs.

use bytes::{Bytes, BytesMut};
use hustings_core::wire::{
    EntryShape, SnapshotReferenceShape, check_numbers, consecutive, encode_shape, payloads_of, present,
    priority_number, priority_numbered, snapshot_within,
};
use hustings_core::{Entry, EntryKind, Lsn, NodeId, Priority, SnapshotReference, Term, Wire, WireError};
use prost::Message as _;

/// A server's claim in an election: the last message that it saw, and its standing as a leader.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Claim {
    /// The end of its log: the text's (term, msg).
    pub last: Lsn,
    /// Its priority as a leader; [`Priority::Never`] also while it cannot lead.
    pub priority: Priority,
    /// The present leader asked it to take over.
    pub is_successor: bool,
    /// The last term that it led; zero if none. The highest on a slate is the text's "old leader".
    pub reign: Term,
    /// Whether a majority had claimed in its last election, which nobody won: then it hears enough nodes to win the next.
    pub hears_majority: bool,
    /// Ballots in a row in which it voted for itself, and lost.
    pub losses: u8,
}

/// A message between GMT-2000 nodes, or from a node to itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    /// An election is on, and this is the last message I saw. Promises nothing.
    Elect {
        /// Number of the election; zero in the published form, which does not number them.
        ballot: Term,
        /// The sender's claim to leadership: its log, its priority, and whom it has led.
        claim: Claim,
        /// The last message that the sender knows to be committed.
        commit: Lsn,
    },
    /// The sender's one vote of this ballot. To itself: its vote is durable.
    Vote {
        /// Number of the election; zero in the published form.
        ballot: Term,
        /// The node that is voted for.
        choice: NodeId,
        /// The claim of the one it is for.
        claim: Lsn,
    },
    /// I lead; my entries come after the message before.
    Lead {
        /// The leader's term: the ballot that it won.
        term: Term,
        /// The message before the entries, so that gaps are seen.
        previous: Lsn,
        /// Contiguous messages; none in a heartbeat.
        entries: Vec<Entry>,
        /// The leader's commit index.
        commit: u64,
        /// Set in a heartbeat, which wants an answer: the highest round of reads not confirmed yet.
        round: Option<u64>,
    },
    /// I follow: answers a heartbeat.
    Heard {
        /// The term of the leader that sends this, or that is answered.
        term: Term,
        /// The round of the heartbeat.
        round: u64,
        /// The sender's priority as a leader.
        priority: Priority,
        /// Whether it is fetching or installing a snapshot.
        is_installing: bool,
    },
    /// Acknowledges: my log equals yours up to here, durably. To itself: the leader's own copy.
    Stored {
        /// The term of the leader that sends this, or that is answered.
        term: Term,
        /// Last index that is stored.
        index: u64,
    },
    /// The message before the entries is missing here, or is another one.
    Gap {
        /// The term of the leader that sends this, or that is answered.
        term: Term,
        /// The previous index that was refused.
        index: u64,
        /// A guess of the last agreement.
        hint_index: u64,
        /// The term at `hint_index`; `None` when it is compacted away.
        hint_term: Option<Term>,
    },
    /// I voted in a later ballot and cannot follow you.
    Obsolete {
        /// The later ballot in which the sender voted.
        term: Term,
    },
    /// Messages that you need are compacted away: fetch this snapshot instead.
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
        /// The last message that the snapshot covers.
        lsn: Lsn,
    },
    /// Take over: start an election as my successor.
    Handover {
        /// The term of the leader that sends this, or that is answered.
        term: Term,
    },
}

impl Message {
    /// The number that the message carries: the ballot of an election, else the term of a leader.
    pub fn term(&self) -> Term {
        match self {
            Message::Elect { ballot, .. } | Message::Vote { ballot, .. } => *ballot,
            Message::Lead { term, .. }
            | Message::Heard { term, .. }
            | Message::Stored { term, .. }
            | Message::Gap { term, .. }
            | Message::Obsolete { term }
            | Message::Snapshot { term, .. }
            | Message::SnapshotFailed { term, .. }
            | Message::Handover { term } => *term,
        }
    }

    /// Whether this is a message that only leaders send.
    pub fn is_from_leader(&self) -> bool {
        matches!(self, Message::Lead { .. } | Message::Snapshot { .. } | Message::Handover { .. })
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
    commit_term: u64,
    #[prost(uint64, tag = "6")]
    commit_index: u64,
    #[prost(uint32, tag = "7")]
    priority: u32,
    #[prost(bool, tag = "8")]
    flag: bool,
    #[prost(uint64, tag = "9")]
    node: u64,
    #[prost(uint64, optional, tag = "10")]
    round: Option<u64>,
    #[prost(uint64, tag = "11")]
    hint_index: u64,
    #[prost(uint64, optional, tag = "12")]
    hint_term: Option<u64>,
    #[prost(message, repeated, tag = "13")]
    entries: Vec<EntryShape>,
    #[prost(message, optional, tag = "14")]
    snapshot: Option<SnapshotReferenceShape>,
    #[prost(uint64, tag = "15")]
    reign: u64,
    #[prost(bool, tag = "16")]
    hears_majority: bool,
    #[prost(uint32, tag = "17")]
    losses: u32,
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
            Message::Elect { claim, commit, .. } => Shape {
                commit_term: commit.term.0,
                commit_index: commit.index,
                priority: priority_number(claim.priority),
                flag: claim.is_successor,
                reign: claim.reign.0,
                hears_majority: claim.hears_majority,
                losses: u32::from(claim.losses),
                ..Shape::of(1, term).at(claim.last)
            },
            Message::Vote { choice, claim, .. } => Shape { node: choice.0, ..Shape::of(2, term).at(*claim) },
            Message::Lead { previous, entries, commit, round, .. } => Shape {
                commit_index: *commit,
                round: *round,
                entries: entries.iter().map(EntryShape::from).collect(),
                ..Shape::of(3, term).at(*previous)
            },
            Message::Heard { round, priority, is_installing, .. } => Shape {
                round: Some(*round),
                priority: priority_number(*priority),
                flag: *is_installing,
                ..Shape::of(4, term)
            },
            Message::Stored { index, .. } => Shape { place_index: *index, ..Shape::of(5, term) },
            Message::Gap { index, hint_index, hint_term, .. } => Shape {
                place_index: *index,
                hint_index: *hint_index,
                hint_term: hint_term.map(|term| term.0),
                ..Shape::of(6, term)
            },
            Message::Obsolete { .. } => Shape::of(7, term),
            Message::Snapshot { reference, .. } => Shape { snapshot: Some(reference.into()), ..Shape::of(8, term) },
            Message::SnapshotFailed { lsn, .. } => Shape::of(9, term).at(*lsn),
            Message::Handover { .. } => Shape::of(10, term),
        };
        encode_shape(&shape, out);
    }

    fn visit_payloads(&mut self, visit: &mut dyn FnMut(EntryKind, &mut Bytes)) {
        if let Message::Lead { entries, .. } = self {
            payloads_of(entries, visit);
        }
    }

    fn decode(bytes: Bytes) -> Result<Message, WireError> {
        let shape = Shape::decode(bytes)?;
        check_numbers([shape.place_index, shape.commit_index, shape.hint_index, shape.round.unwrap_or(0)])?;
        let (term, place) = (Term(shape.term), shape.place());
        Ok(match shape.kind {
            1 => Message::Elect {
                ballot: term,
                claim: Claim {
                    last: place,
                    priority: priority_numbered(shape.priority)?,
                    is_successor: shape.flag,
                    reign: Term(shape.reign),
                    hears_majority: shape.hears_majority,
                    losses: u8::try_from(shape.losses).unwrap_or(u8::MAX),
                },
                commit: Lsn::new(shape.commit_term, shape.commit_index),
            },
            2 => Message::Vote { ballot: term, choice: NodeId(shape.node), claim: place },
            3 => Message::Lead {
                term,
                previous: place,
                entries: consecutive(shape.entries, place, term)?,
                commit: shape.commit_index,
                round: shape.round,
            },
            4 => Message::Heard {
                term,
                round: present(shape.round, "round")?,
                priority: priority_numbered(shape.priority)?,
                is_installing: shape.flag,
            },
            5 => Message::Stored { term, index: place.index },
            6 => Message::Gap {
                term,
                index: place.index,
                hint_index: shape.hint_index,
                hint_term: shape.hint_term.map(Term),
            },
            7 => Message::Obsolete { term },
            8 => Message::Snapshot { term, reference: snapshot_within(shape.snapshot, term)? },
            9 => Message::SnapshotFailed { term, lsn: place },
            10 => Message::Handover { term },
            other => return Err(WireError(format!("a GMT-2000 message of unknown kind {other}"))),
        })
    }
}
