//! Messages between Raft nodes: [`Message`].

use bytes::{Bytes, BytesMut};
use hustings_core::wire::{
    EntryShape, SnapshotReferenceShape, check_numbers, consecutive, encode_shape, payloads_of, priority_number,
    priority_numbered, snapshot_within,
};
use hustings_core::{Entry, EntryKind, Lsn, Priority, SnapshotReference, Term, Wire, WireError};
use prost::Message as _;

/// Asks for a vote, or whether one would be given.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VoteRequest {
    /// The term of the campaign: in a pre-vote one above the sender's own.
    pub term: Term,
    /// The end of the candidate's log.
    pub last: Lsn,
    /// The last entry that the candidate knows to be committed (RV-9).
    pub commit: Lsn,
    /// The candidate's priority as a leader (RV-10).
    pub priority: Priority,
    /// The leader asked for this campaign: stickiness does not apply (RV-7).
    pub is_transfer: bool,
}

/// The answer to a [`VoteRequest`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VoteReply {
    /// The voter's own term.
    pub term: Term,
    /// The term that was asked for: answers to another campaign are not counted.
    pub campaign: Term,
    /// Whether the vote is given.
    pub is_granted: bool,
    /// The last entry that the voter knows to be committed (RV-9).
    pub commit: Lsn,
}

/// A message between Raft nodes, or from a node to itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    /// Would you vote for me? Changes nothing anywhere.
    PreVote(VoteRequest),
    /// The answer to a pre-vote.
    PreVoteReply(VoteReply),
    /// Vote for me in this term.
    Vote(VoteRequest),
    /// The answer; to itself it is the node's own vote, once that is durable.
    VoteReply(VoteReply),
    /// Entries, after the place where leader and follower should agree.
    Append {
        /// The term in which the sender leads.
        term: Term,
        /// The place before the entries.
        previous: Lsn,
        /// Contiguous entries; may be none, to probe.
        entries: Vec<Entry>,
        /// The leader's commit index.
        commit: u64,
    },
    /// The log matches up to here, durably; to itself it counts the leader's own copy.
    Matched {
        /// The term in which the follower answers.
        term: Term,
        /// Last index that matches.
        index: u64,
    },
    /// The log differs before the entries.
    Rejected {
        /// The term in which the follower answers.
        term: Term,
        /// The previous index that was refused.
        index: u64,
        /// A guess of the last agreement (RA-3); the term is absent when it is compacted away.
        hint_index: u64,
        /// The term at `hint_index`; `None` when it is compacted away.
        hint_term: Option<Term>,
    },
    /// This much of what you hold is committed. No answer.
    Commit {
        /// The term in which the sender leads.
        term: Term,
        /// Never above what the receiver is known to hold (RC-3).
        index: u64,
    },
    /// I still lead; `position` names the reads to confirm.
    Heartbeat {
        /// The term in which the sender leads.
        term: Term,
        /// Index that is committed, as in [`Message::Commit`].
        commit: u64,
        /// The highest read position not confirmed yet (RR-1).
        position: u64,
    },
    /// I follow you: the answer to a heartbeat.
    HeartbeatReply {
        /// The term in which the follower answers.
        term: Term,
        /// The position of the heartbeat.
        position: u64,
        /// The follower's priority as a leader.
        priority: Priority,
        /// Whether it is fetching or installing a snapshot.
        is_installing: bool,
    },
    /// Entries that you need are compacted away: fetch this snapshot instead.
    Snapshot {
        /// The term in which the sender leads.
        term: Term,
        /// The snapshot to fetch.
        reference: SnapshotReference,
    },
    /// The snapshot cannot be had: offer another.
    SnapshotFailed {
        /// The term in which the follower answers.
        term: Term,
        /// The last entry that the snapshot covers.
        lsn: Lsn,
    },
    /// Asks the receiver to campaign at once, as the leader's successor (RV-7).
    TimeoutNow {
        /// The term in which the sender leads.
        term: Term,
    },
}

impl Message {
    /// The sender's term; for vote requests the term of the campaign.
    pub fn term(&self) -> Term {
        match self {
            Message::PreVote(request) | Message::Vote(request) => request.term,
            Message::PreVoteReply(reply) | Message::VoteReply(reply) => reply.term,
            Message::Append { term, .. }
            | Message::Matched { term, .. }
            | Message::Rejected { term, .. }
            | Message::Commit { term, .. }
            | Message::Heartbeat { term, .. }
            | Message::HeartbeatReply { term, .. }
            | Message::Snapshot { term, .. }
            | Message::SnapshotFailed { term, .. }
            | Message::TimeoutNow { term } => *term,
        }
    }

    /// Whether this is a message that only leaders send.
    pub fn is_from_leader(&self) -> bool {
        matches!(
            self,
            Message::Append { .. }
                | Message::Commit { .. }
                | Message::Heartbeat { .. }
                | Message::Snapshot { .. }
                | Message::TimeoutNow { .. }
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
    commit_term: u64,
    #[prost(uint64, tag = "6")]
    commit_index: u64,
    #[prost(uint32, tag = "7")]
    priority: u32,
    #[prost(bool, tag = "8")]
    flag: bool,
    #[prost(uint64, tag = "9")]
    campaign: u64,
    #[prost(uint64, tag = "10")]
    hint_index: u64,
    #[prost(uint64, optional, tag = "11")]
    hint_term: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    entries: Vec<EntryShape>,
    #[prost(message, optional, tag = "13")]
    snapshot: Option<SnapshotReferenceShape>,
}

impl Shape {
    fn of_request(kind: u32, request: &VoteRequest) -> Shape {
        Shape {
            kind,
            term: request.term.0,
            place_term: request.last.term.0,
            place_index: request.last.index,
            commit_term: request.commit.term.0,
            commit_index: request.commit.index,
            priority: priority_number(request.priority),
            flag: request.is_transfer,
            ..Shape::default()
        }
    }

    fn of_reply(kind: u32, reply: &VoteReply) -> Shape {
        Shape {
            kind,
            term: reply.term.0,
            campaign: reply.campaign.0,
            flag: reply.is_granted,
            commit_term: reply.commit.term.0,
            commit_index: reply.commit.index,
            ..Shape::default()
        }
    }

    fn place(&self) -> Lsn {
        Lsn::new(self.place_term, self.place_index)
    }

    fn commit(&self) -> Lsn {
        Lsn::new(self.commit_term, self.commit_index)
    }

    fn into_request(self) -> Result<VoteRequest, WireError> {
        Ok(VoteRequest {
            term: Term(self.term),
            last: self.place(),
            commit: self.commit(),
            priority: priority_numbered(self.priority)?,
            is_transfer: self.flag,
        })
    }

    fn into_reply(self) -> VoteReply {
        let commit = self.commit();
        VoteReply { term: Term(self.term), campaign: Term(self.campaign), is_granted: self.flag, commit }
    }
}

impl Wire for Message {
    fn encode(&self, out: &mut BytesMut) {
        let shape = match self {
            Message::PreVote(request) => Shape::of_request(1, request),
            Message::PreVoteReply(reply) => Shape::of_reply(2, reply),
            Message::Vote(request) => Shape::of_request(3, request),
            Message::VoteReply(reply) => Shape::of_reply(4, reply),
            Message::Append { term, previous, entries, commit } => Shape {
                kind: 5,
                term: term.0,
                place_term: previous.term.0,
                place_index: previous.index,
                commit_index: *commit,
                entries: entries.iter().map(EntryShape::from).collect(),
                ..Shape::default()
            },
            Message::Matched { term, index } => {
                Shape { kind: 6, term: term.0, place_index: *index, ..Shape::default() }
            }
            Message::Rejected { term, index, hint_index, hint_term } => Shape {
                kind: 7,
                term: term.0,
                place_index: *index,
                hint_index: *hint_index,
                hint_term: hint_term.map(|term| term.0),
                ..Shape::default()
            },
            Message::Commit { term, index } => {
                Shape { kind: 8, term: term.0, commit_index: *index, ..Shape::default() }
            }
            Message::Heartbeat { term, commit, position } => {
                Shape { kind: 9, term: term.0, commit_index: *commit, place_index: *position, ..Shape::default() }
            }
            Message::HeartbeatReply { term, position, priority, is_installing } => Shape {
                kind: 10,
                term: term.0,
                place_index: *position,
                priority: priority_number(*priority),
                flag: *is_installing,
                ..Shape::default()
            },
            Message::Snapshot { term, reference } => {
                Shape { kind: 11, term: term.0, snapshot: Some(reference.into()), ..Shape::default() }
            }
            Message::SnapshotFailed { term, lsn } => {
                Shape { kind: 12, term: term.0, place_term: lsn.term.0, place_index: lsn.index, ..Shape::default() }
            }
            Message::TimeoutNow { term } => Shape { kind: 13, term: term.0, ..Shape::default() },
        };
        encode_shape(&shape, out);
    }

    fn visit_payloads(&mut self, visit: &mut dyn FnMut(EntryKind, &mut Bytes)) {
        if let Message::Append { entries, .. } = self {
            payloads_of(entries, visit);
        }
    }

    fn decode(bytes: Bytes) -> Result<Message, WireError> {
        let shape = Shape::decode(bytes)?;
        check_numbers([shape.place_index, shape.commit_index, shape.hint_index])?;
        let (term, place) = (Term(shape.term), shape.place());
        Ok(match shape.kind {
            1 => Message::PreVote(shape.into_request()?),
            2 => Message::PreVoteReply(shape.into_reply()),
            3 => Message::Vote(shape.into_request()?),
            4 => Message::VoteReply(shape.into_reply()),
            5 => {
                let commit = shape.commit_index;
                let entries = consecutive(shape.entries, place, term)?;
                Message::Append { term, previous: place, entries, commit }
            }
            6 => Message::Matched { term, index: place.index },
            7 => Message::Rejected {
                term,
                index: place.index,
                hint_index: shape.hint_index,
                hint_term: shape.hint_term.map(Term),
            },
            8 => Message::Commit { term, index: shape.commit_index },
            9 => Message::Heartbeat { term, commit: shape.commit_index, position: place.index },
            10 => Message::HeartbeatReply {
                term,
                position: place.index,
                priority: priority_numbered(shape.priority)?,
                is_installing: shape.flag,
            },
            11 => Message::Snapshot { term, reference: snapshot_within(shape.snapshot, term)? },
            12 => Message::SnapshotFailed { term, lsn: place },
            13 => Message::TimeoutNow { term },
            other => return Err(WireError(format!("a Raft message of unknown kind {other}"))),
        })
    }
}
