//! Messages between TRex nodes: [`Message`]. §1.4 of `docs/protocols/rules`, with its `[NORM]` additions.

use crate::Accept;
use bytes::{Bytes, BytesMut};
use hustings_core::wire::{
    EntryShape, SnapshotReferenceShape, check_numbers, encode_shape, payloads_of, present, priority_number,
    priority_numbered,
};
use hustings_core::{Entry, EntryKind, Priority, SnapshotReference, Term, Wire, WireError};
use prost::Message as _;

/// A leader's sign of life: the weak evidence. No clock is in it (TH-6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Heartbeat {
    /// The ballot of the leader that sends this, or that is answered.
    pub ballot: Term,
    /// Number of the heartbeat in that ballot; only grows.
    pub counter: u64,
}

impl Heartbeat {
    /// Whether one node can have come from this heartbeat to the other: a leap of the counter is damage, and would hide
    /// all later heartbeats of the leader for ever.
    pub(crate) fn may_become(self, other: Heartbeat) -> bool {
        let before = if self.ballot == other.ballot { self.counter } else { 0 };
        Term(before).may_follow(Term(other.counter))
    }
}

/// A polled node's word on leaders (TH-4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Says {
    /// I hear no leader.
    Silent,
    /// I hear a leader.
    Hears,
    /// I am the leader.
    Leads,
}

/// A message between TRex nodes, or from a node to itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    /// The low-ball prepare: ballot (0,0), which nobody can promise. Asks for evidence of a leader.
    LowBall {
        /// Number of the asker's poll (TH-5).
        poll: u64,
    },
    /// The refusal of a low-ball prepare, with the evidence.
    LowBallNack {
        /// Number of the poll that is answered.
        poll: u64,
        /// The ballot that the responder has promised.
        promised: Term,
        /// The last slot that it has committed: the strong evidence.
        committed: u64,
        /// The last heartbeat that it saw: the weak evidence.
        heartbeat: Heartbeat,
        /// Whether it hears or is a leader.
        says: Says,
    },
    /// Promise this ballot, and say what you accepted from this slot on.
    Prepare {
        /// The asker's new ballot.
        ballot: Term,
        /// The first slot asked about; all behind it are.
        from: u64,
    },
    /// The ballot is promised. To itself: this node's own promise is durable.
    PrepareAck {
        /// The ballot of the candidate that asked.
        ballot: Term,
        /// The first slot that was asked about.
        from: u64,
        /// Last slot that the answer covers; `u64::MAX` is without end.
        through: u64,
        /// The values accepted there, by ascending slot.
        accepted: Vec<Entry>,
    },
    /// Not promised: a higher ballot is, or the slot is committed.
    PrepareNack {
        /// The ballot of the candidate that asked.
        ballot: Term,
        /// The ballot that the responder has promised.
        promised: Term,
        /// The last slot that it has committed.
        committed: u64,
    },
    /// Accept these values. Without any: only the commit is news.
    Accept {
        /// The ballot of the leader that sends this, or that is answered.
        ballot: Term,
        /// Accepts of consecutive slots.
        accepts: Vec<Accept>,
        /// The last slot that the leader has committed.
        commit: u64,
    },
    /// Accepted, durably. To itself: the leader's own accepts are. Without any slot, only the commit is news.
    AcceptAck {
        /// The ballot of the leader that sends this, or that is answered.
        ballot: Term,
        /// The first slot that was accepted.
        from: u64,
        /// The last slot; the one before `from` when there is none.
        through: u64,
        /// The last slot that the sender has committed, and holds durably. Between it and `from` there may be holes.
        committed: u64,
    },
    /// Not accepted, or not heard: a higher ballot is promised, or the slots are committed.
    AcceptNack {
        /// The ballot of the leader that sends this, or that is answered.
        ballot: Term,
        /// The ballot that the responder has promised.
        promised: Term,
        /// The last slot that it has committed.
        committed: u64,
    },
    /// The heartbeat: I lead, and this slot is committed.
    Commit {
        /// The leader's ballot, and the number of this heartbeat.
        heartbeat: Heartbeat,
        /// The last slot that the leader has committed.
        slot: u64,
        /// The last slot that it knows the receiver to have accepted.
        stored: u64,
        /// Whether the receiver is to answer; one that knows more, or has promised more, answers always.
        asks: bool,
    },
    /// HeartbeatAck: I hear you (TL-10).
    CommitAck {
        /// The ballot of the leader that sends this, or that is answered.
        ballot: Term,
        /// Number of the heartbeat that is answered.
        counter: u64,
        /// The last slot that the responder has committed.
        committed: u64,
        /// Behind the leader's commit, everything through here has arrived; it may not be durable yet.
        held: u64,
        /// The sender's priority as a leader.
        priority: Priority,
    },
    /// Asks for the values that were committed after this slot.
    RetransmitRequest {
        /// The last slot that the sender has committed.
        committed: u64,
        /// The ballot that it has promised.
        promised: Term,
    },
    /// The committed values that were asked for.
    RetransmitResponse {
        /// Entries of consecutive slots, all committed.
        entries: Vec<Entry>,
        /// The last slot that the responder has committed.
        committed: u64,
    },
    /// The slots that you asked for are trimmed: fetch this snapshot.
    Snapshot {
        /// The snapshot to fetch.
        reference: SnapshotReference,
    },
    /// `[OURS]` Take over at once.
    Handover {
        /// The ballot of the leader that sends this, or that is answered.
        ballot: Term,
    },
}

impl Message {
    /// The highest ballot that the message speaks of.
    pub fn ballot(&self) -> Term {
        match self {
            Message::LowBall { .. } => Term::ZERO,
            Message::RetransmitResponse { entries, .. } => {
                entries.iter().map(|entry| entry.lsn.term).max().unwrap_or_default()
            }
            Message::LowBallNack { promised, heartbeat, .. } => heartbeat.ballot.max(*promised),
            Message::PrepareNack { ballot, promised, .. } | Message::AcceptNack { ballot, promised, .. } => {
                *ballot.max(promised)
            }
            Message::Commit { heartbeat, .. } => heartbeat.ballot,
            Message::RetransmitRequest { promised, .. } => *promised,
            Message::Snapshot { reference } => reference.lsn.term,
            Message::Prepare { ballot, .. }
            | Message::PrepareAck { ballot, .. }
            | Message::Accept { ballot, .. }
            | Message::AcceptAck { ballot, .. }
            | Message::CommitAck { ballot, .. }
            | Message::Handover { ballot } => *ballot,
        }
    }
}

/// One flat shape for all kinds: fields that a kind does not use cost nothing on the wire.
#[derive(Clone, PartialEq, prost::Message)]
struct Shape {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(uint64, tag = "2")]
    ballot: u64,
    #[prost(uint64, tag = "3")]
    promised: u64,
    #[prost(uint64, tag = "4")]
    committed: u64,
    #[prost(uint64, tag = "5")]
    from: u64,
    #[prost(uint64, tag = "6")]
    through: u64,
    #[prost(uint64, tag = "7")]
    counter: u64,
    #[prost(uint32, tag = "8")]
    choice: u32,
    #[prost(message, repeated, tag = "9")]
    entries: Vec<EntryShape>,
    #[prost(message, optional, tag = "10")]
    snapshot: Option<SnapshotReferenceShape>,
    /// A heartbeat that wants no answer. Builds that do not know it answer all the same.
    #[prost(bool, tag = "11")]
    is_quiet: bool,
}

/// Slots in ascending order between two others.
fn ascending(shapes: Vec<EntryShape>, from: u64, through: u64) -> Result<Vec<Entry>, WireError> {
    let mut next = Some(from);
    let mut entries = Vec::with_capacity(shapes.len());
    for shape in shapes {
        let entry = Entry::try_from(shape)?;
        let index = entry.lsn.index;
        if next.is_none_or(|next| index < next) || index > through || index == 0 {
            return Err(WireError(format!("slot {index} is out of order")));
        }
        next = index.checked_add(1);
        entries.push(entry);
    }
    Ok(entries)
}

/// Slots that follow each other.
fn consecutive(shapes: Vec<EntryShape>) -> Result<Vec<Entry>, WireError> {
    let entries = ascending(shapes, 1, u64::MAX - 1)?;
    if entries.windows(2).any(|pair| pair[1].lsn.index != pair[0].lsn.index + 1) {
        return Err(WireError("slots with a hole between them".into()));
    }
    Ok(entries)
}

/// Ballots of a promise's answer are below the one that was promised.
fn older_than(ballot: Term, entries: Vec<Entry>) -> Result<Vec<Entry>, WireError> {
    match entries.iter().find(|entry| entry.lsn.term > ballot) {
        Some(entry) => Err(WireError(format!("{} cannot have been accepted before ballot {ballot}", entry.lsn))),
        None => Ok(entries),
    }
}

/// A range of slots that is not empty.
fn range(from: u64, through: u64) -> Result<(u64, u64), WireError> {
    if from == 0 || through < from {
        return Err(WireError(format!("slots {from} through {through} are none")));
    }
    Ok((from, through))
}

impl Wire for Message {
    fn encode(&self, out: &mut BytesMut) {
        let shape = match self {
            Message::LowBall { poll } => Shape { kind: 1, counter: *poll, ..Shape::default() },
            Message::LowBallNack { poll, promised, committed, heartbeat, says } => Shape {
                kind: 2,
                from: *poll,
                promised: promised.0,
                committed: *committed,
                ballot: heartbeat.ballot.0,
                counter: heartbeat.counter,
                choice: match says {
                    Says::Silent => 0,
                    Says::Hears => 1,
                    Says::Leads => 2,
                },
                ..Shape::default()
            },
            Message::Prepare { ballot, from } => Shape { kind: 3, ballot: ballot.0, from: *from, ..Shape::default() },
            Message::PrepareAck { ballot, from, through, accepted } => Shape {
                kind: 4,
                ballot: ballot.0,
                from: *from,
                through: *through,
                entries: accepted.iter().map(EntryShape::from).collect(),
                ..Shape::default()
            },
            Message::PrepareNack { ballot, promised, committed } => {
                Shape { kind: 5, ballot: ballot.0, promised: promised.0, committed: *committed, ..Shape::default() }
            }
            Message::Accept { ballot, accepts, commit } => Shape {
                kind: 6,
                ballot: ballot.0,
                committed: *commit,
                entries: accepts.iter().map(|accept| EntryShape::from(accept.entry())).collect(),
                ..Shape::default()
            },
            Message::AcceptAck { ballot, from, through, committed } => Shape {
                kind: 7,
                ballot: ballot.0,
                from: *from,
                through: *through,
                committed: *committed,
                ..Shape::default()
            },
            Message::AcceptNack { ballot, promised, committed } => {
                Shape { kind: 8, ballot: ballot.0, promised: promised.0, committed: *committed, ..Shape::default() }
            }
            Message::Commit { heartbeat, slot, stored, asks } => Shape {
                kind: 9,
                is_quiet: !asks,
                ballot: heartbeat.ballot.0,
                counter: heartbeat.counter,
                committed: *slot,
                through: *stored,
                ..Shape::default()
            },
            Message::CommitAck { ballot, counter, committed, held, priority } => Shape {
                kind: 10,
                ballot: ballot.0,
                counter: *counter,
                committed: *committed,
                through: *held,
                choice: priority_number(*priority),
                ..Shape::default()
            },
            Message::RetransmitRequest { committed, promised } => {
                Shape { kind: 11, committed: *committed, promised: promised.0, ..Shape::default() }
            }
            Message::RetransmitResponse { entries, committed } => Shape {
                kind: 12,
                committed: *committed,
                entries: entries.iter().map(EntryShape::from).collect(),
                ..Shape::default()
            },
            Message::Snapshot { reference } => Shape { kind: 13, snapshot: Some(reference.into()), ..Shape::default() },
            Message::Handover { ballot } => Shape { kind: 14, ballot: ballot.0, ..Shape::default() },
        };
        encode_shape(&shape, out);
    }

    fn visit_payloads(&mut self, visit: &mut dyn FnMut(EntryKind, &mut Bytes)) {
        match self {
            Message::PrepareAck { accepted: entries, .. } | Message::RetransmitResponse { entries, .. } => {
                payloads_of(entries, visit)
            }
            Message::Accept { accepts, .. } => accepts.iter_mut().for_each(|accept| accept.visit_payload(visit)),
            _ => {}
        }
    }

    fn decode(bytes: Bytes) -> Result<Message, WireError> {
        let shape = Shape::decode(bytes)?;
        // A promise's answer may go through without end; everything else is counted.
        let through = if shape.kind == 4 { 0 } else { shape.through };
        check_numbers([shape.from, through, shape.committed, shape.counter])?;
        let (ballot, promised, committed) = (Term(shape.ballot), Term(shape.promised), shape.committed);
        Ok(match shape.kind {
            1 => Message::LowBall { poll: shape.counter },
            2 => Message::LowBallNack {
                poll: shape.from,
                promised,
                committed,
                heartbeat: Heartbeat { ballot, counter: shape.counter },
                says: match shape.choice {
                    0 => Says::Silent,
                    1 => Says::Hears,
                    2 => Says::Leads,
                    other => return Err(WireError(format!("what is said of leaders is of unknown kind {other}"))),
                },
            },
            3 => {
                let (from, _) = range(shape.from, u64::MAX)?;
                Message::Prepare { ballot, from }
            }
            4 => {
                let (from, through) = range(shape.from, shape.through)?;
                let accepted = older_than(ballot, ascending(shape.entries, from, through)?)?;
                let is_page = accepted.last().is_some_and(|entry| entry.lsn.index == through);
                if through != u64::MAX && !is_page {
                    return Err(WireError(format!("an answer through {through} that says nothing of it")));
                }
                Message::PrepareAck { ballot, from, through, accepted }
            }
            5 => Message::PrepareNack { ballot, promised, committed },
            6 => {
                let entries = consecutive(shape.entries)?;
                if let Some(entry) = entries.iter().find(|entry| entry.lsn.term != ballot) {
                    return Err(WireError(format!("{} is not of ballot {ballot}", entry.lsn)));
                }
                Message::Accept {
                    ballot,
                    accepts: entries.into_iter().map(Accept::received).collect(),
                    commit: committed,
                }
            }
            7 => {
                // The range may be empty, and begins somewhere all the same.
                let (from, _) = range(shape.from, shape.through.saturating_add(1))?;
                Message::AcceptAck { ballot, from, through: shape.through, committed }
            }
            8 => Message::AcceptNack { ballot, promised, committed },
            9 => Message::Commit {
                heartbeat: Heartbeat { ballot, counter: shape.counter },
                slot: committed,
                stored: shape.through,
                asks: !shape.is_quiet,
            },
            10 => Message::CommitAck {
                ballot,
                counter: shape.counter,
                committed,
                held: shape.through,
                priority: priority_numbered(shape.choice)?,
            },
            11 => Message::RetransmitRequest { committed, promised },
            12 => Message::RetransmitResponse { entries: consecutive(shape.entries)?, committed },
            13 => Message::Snapshot { reference: present(shape.snapshot, "snapshot")?.try_into()? },
            14 => Message::Handover { ballot },
            other => return Err(WireError(format!("a TRex message of unknown kind {other}"))),
        })
    }
}
