//! Encoding of notes: protobuf, so that later builds can add fields and older ones pass over them.

use crate::mark::{Mark, MarkShape};
use crate::mask::{Zeroes, hide};
use bytes::{Bytes, BytesMut};
use hustings_core::protocol::{Admin, DiskHealth, Input, LinkState, Proposal, Ticket};
use hustings_core::wire::{EntryShape, present, priority_number, priority_numbered};
use hustings_core::{
    Cluster, Durable, Entry, Limits, Lsn, Membership, NodeId, Protocol, Record, SnapshotReference, Timing, Wire,
    WireError,
};
use prost::Message as _;
use std::sync::Arc;
use std::time::Duration;

use crate::fingerprint;

/// The process and the member that a file is about; the first note of every file.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Life {
    /// Id of the cluster.
    #[prost(uint64, tag = "1")]
    pub cluster_id: u64,
    /// Id of the member.
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    /// Name of the member.
    #[prost(string, tag = "3")]
    pub name: String,
    /// The protocol, as `--protocol` takes it.
    #[prost(string, tag = "4")]
    pub protocol: String,
    /// Its options, as `--protocol-options` takes them.
    #[prost(string, tag = "5")]
    pub options: String,
    /// Version of the build that ran.
    #[prost(string, tag = "6")]
    pub build: String,
    /// Id of the process.
    #[prost(uint32, tag = "7")]
    pub process_id: u32,
    /// The kernel's name for the time since the machine was started: two clocks with the same one are the same clock.
    #[prost(string, tag = "8")]
    pub boot_id: String,
    /// Reading of the boot clock when the file was begun, in microseconds.
    #[prost(uint64, tag = "9")]
    pub boot_micros: u64,
    /// Reading of the wall clock at that moment, in microseconds since 1970.
    #[prost(uint64, tag = "10")]
    pub unix_micros: u64,
    /// Whether the file goes on where the one before it ended.
    #[prost(bool, tag = "11")]
    pub is_continued: bool,
    /// The settings that were given, one a line, without the values of secrets.
    #[prost(string, repeated, tag = "12")]
    pub settings: Vec<String>,
}

impl Life {
    /// Whether the other one is about the same process of the same member.
    pub(crate) fn is_same_process(&self, other: &Life) -> bool {
        let process = |life: &Life| (life.cluster_id, life.member_id, life.process_id);
        process(self) == process(other) && self.boot_id == other.boot_id
    }
}

/// One note, with the time at which it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// The boot clock, in microseconds.
    pub at_micros: u64,
    /// The content of the note.
    pub kind: NoteKind,
}

/// The content of a note.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoteKind {
    /// A process, at the beginning of each file.
    Life(Life),
    /// The settings and state that the protocol started from, and the fingerprint of its first answer.
    Birth(Birth, u64),
    /// An input of the protocol, and the fingerprint of its answer; `None` when it did not return.
    Told(RecordedInput, Option<u64>),
    /// An observation of the host.
    Mark(Mark),
}

/// The settings and state that a protocol started from.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Birth {
    #[prost(uint64, tag = "1")]
    me: u64,
    #[prost(bytes = "bytes", tag = "2")]
    membership: Bytes,
    #[prost(message, optional, tag = "3")]
    timing: Option<TimingShape>,
    #[prost(uint32, tag = "4")]
    priority: u32,
    #[prost(uint64, repeated, tag = "5")]
    limits: Vec<u64>,
    /// The records whose fold is what was durable.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    records: Vec<Bytes>,
    /// Entries that were left out, because they would have filled the ring: such a birth cannot be repeated.
    #[prost(uint64, tag = "7")]
    left_out: u64,
}

/// An input that needs something before it.
pub(crate) enum HostInput {
    /// A timer with this fingerprint, which was set.
    Timer(u64),
    /// A snapshot of what was applied.
    Compact,
    /// A snapshot has come, or has not, that was asked for.
    Fetched,
    /// A snapshot was installed that was to be.
    Installed(Lsn),
    /// Any other input: nothing need come before it.
    Other,
}

impl HostInput {
    /// Why no host says it, where what it needs is missing.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            HostInput::Timer(_) => "no such timer is set here",
            HostInput::Compact => "what the snapshot holds is not applied here",
            HostInput::Fetched => "no such snapshot was asked for here",
            HostInput::Installed(_) => "no such snapshot was to be installed here",
            HostInput::Other => "",
        }
    }
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct TimingShape {
    #[prost(uint64, tag = "1")]
    heartbeat_micros: u64,
    #[prost(uint64, tag = "2")]
    election_min_micros: u64,
    #[prost(uint64, tag = "3")]
    election_max_micros: u64,
}

/// An input, without what clients wrote.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RecordedInput {
    #[prost(uint32, tag = "1")]
    kind: u32,
    /// A peer, a ticket's node, an admin's transferee.
    #[prost(uint64, tag = "2")]
    node: u64,
    /// A ticket's number, a timer's fingerprint, a place's index.
    #[prost(uint64, tag = "3")]
    number: u64,
    #[prost(uint32, tag = "4")]
    choice: u32,
    #[prost(bytes = "bytes", tag = "5")]
    message: Bytes,
    #[prost(message, repeated, tag = "6")]
    proposals: Vec<EntryShape>,
    #[prost(message, optional, tag = "7")]
    timing: Option<TimingShape>,
    #[prost(uint64, tag = "8")]
    term: u64,
}

/// Entries of a birth that are kept; a ring of the ordinary size holds twenty times as many bytes.
const ENTRIES_MAX: usize = 20_000;

impl TimingShape {
    fn of(timing: &Timing) -> TimingShape {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        TimingShape {
            heartbeat_micros: micros(timing.heartbeat),
            election_min_micros: micros(timing.election_min),
            election_max_micros: micros(timing.election_max),
        }
    }

    fn timing(&self) -> Timing {
        Timing {
            heartbeat: Duration::from_micros(self.heartbeat_micros),
            election_min: Duration::from_micros(self.election_min_micros),
            election_max: Duration::from_micros(self.election_max_micros),
        }
    }
}

/// Encodes the settings and state that a protocol starts from.
pub(crate) fn birth(cluster: &Cluster, durable: &Durable) -> Birth {
    let Limits {
        message_bytes_max,
        inflight_messages_max,
        inflight_bytes_max,
        uncommitted_bytes_max,
        trailing_entries,
    } = cluster.limits;
    let sizes = [message_bytes_max, inflight_messages_max, inflight_bytes_max, uncommitted_bytes_max];
    let mut records = vec![Record::Promise(durable.promise), Record::Established(durable.established)];
    records.extend(durable.snapshot.clone().map(Record::Snapshot));
    records.extend(durable.entries.values().take(ENTRIES_MAX).cloned().map(Record::Put));
    records.push(Record::Committed(durable.committed));
    let hidden = |mut record: Record| {
        record.visit_payloads(&mut hide);
        record.to_bytes()
    };
    Birth {
        me: cluster.me.0,
        membership: cluster.membership.to_bytes(),
        timing: Some(TimingShape::of(&cluster.timing)),
        priority: priority_number(cluster.priority),
        limits: sizes.into_iter().map(|size| size as u64).chain([trailing_entries]).collect(),
        records: records.into_iter().map(hidden).collect(),
        left_out: durable.entries.len().saturating_sub(ENTRIES_MAX) as u64,
    }
}

impl Birth {
    /// Entries that were left out; none, when the birth can be repeated.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The settings and state for a value that is born again.
    pub(crate) fn repeat(&self, zeroes: &mut Zeroes) -> Result<(Cluster, Durable), WireError> {
        let membership = Arc::new(Membership::decode(self.membership.clone())?);
        let timing = present(self.timing.as_ref(), "timing")?.timing();
        let [message_bytes_max, inflight_messages_max, inflight_bytes_max, uncommitted_bytes_max, trailing_entries] =
            self.limits[..]
        else {
            return Err(WireError("limits of another kind".into()));
        };
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let limits = Limits {
            message_bytes_max: size(message_bytes_max),
            inflight_messages_max: size(inflight_messages_max),
            inflight_bytes_max: size(inflight_bytes_max),
            uncommitted_bytes_max: size(uncommitted_bytes_max),
            trailing_entries,
        };
        let priority = priority_numbered(self.priority)?;
        let cluster = Cluster { me: NodeId(self.me), membership, timing, priority, limits, defect: None };
        let mut durable = Durable::default();
        for bytes in &self.records {
            let mut record = Record::decode(bytes.clone())?;
            shown(&mut record, zeroes)?;
            // Out of order, such records would end this process; nobody wrote them so.
            let is_fit = match &record {
                Record::Promise(promise) => durable.promise.may_become(promise),
                Record::Established(term) => *term >= durable.established,
                _ => true,
            };
            if !is_fit {
                return Err(WireError("records in an order in which nobody writes them".into()));
            }
            durable.absorb(record);
        }
        Ok((cluster, durable))
    }
}

fn shown<W: Wire>(thing: &mut W, zeroes: &mut Zeroes) -> Result<(), WireError> {
    let mut wrong = None;
    thing.visit_payloads(&mut |kind, payload| {
        if let Err(error) = zeroes.show(kind, payload) {
            wrong = Some(error);
        }
    });
    wrong.map_or(Ok(()), Err)
}

/// Encodes an input of the protocol.
pub(crate) fn told<P: Protocol>(input: &Input<P>) -> RecordedInput {
    match input {
        Input::Message { from, message } => {
            let mut message = message.clone();
            message.visit_payloads(&mut hide);
            RecordedInput { kind: 1, node: from.0, message: message.to_bytes(), ..RecordedInput::default() }
        }
        Input::Timer(timer) => RecordedInput { kind: 2, number: fingerprint::of(timer), ..RecordedInput::default() },
        Input::Link { peer, state } => RecordedInput {
            kind: 3,
            node: peer.0,
            choice: u32::from(*state == LinkState::Up),
            ..RecordedInput::default()
        },
        Input::Propose(proposals) => {
            let hidden = |proposal: &Proposal| {
                let mut entry = proposal.clone().into_entry(Lsn::new(0, 1));
                hide(entry.kind, &mut entry.payload);
                EntryShape::from(&entry)
            };
            RecordedInput { kind: 4, proposals: proposals.iter().map(hidden).collect(), ..RecordedInput::default() }
        }
        Input::Read { ticket } => RecordedInput { kind: 5, ..of_ticket(ticket) },
        Input::Compact(reference) => {
            RecordedInput { kind: 6, message: reference.to_bytes(), ..RecordedInput::default() }
        }
        Input::SnapshotReady(reference) => {
            RecordedInput { kind: 7, message: reference.to_bytes(), ..RecordedInput::default() }
        }
        Input::SnapshotFailed(reference) => {
            RecordedInput { kind: 8, message: reference.to_bytes(), ..RecordedInput::default() }
        }
        Input::SnapshotInstalled(lsn) => {
            RecordedInput { kind: 9, number: lsn.index, term: lsn.term.0, ..RecordedInput::default() }
        }
        Input::Admin { ticket, request } => {
            let (choice, to) = match request {
                Admin::Campaign => (1, 0),
                Admin::Resign => (2, 0),
                Admin::Transfer(to) => (3, to.0),
                Admin::ForgetLeader => (4, 0),
            };
            RecordedInput { kind: 10, choice, term: to, ..of_ticket(ticket) }
        }
        Input::Retime(timing) => {
            RecordedInput { kind: 11, timing: Some(TimingShape::of(timing)), ..RecordedInput::default() }
        }
        Input::Health(health) => {
            RecordedInput { kind: 12, choice: u32::from(*health == DiskHealth::Recovered), ..RecordedInput::default() }
        }
    }
}

fn of_ticket(ticket: &Ticket) -> RecordedInput {
    match ticket {
        Ticket::Proposal(origin) => {
            let entry = Entry { origin: *origin, ..Entry::blank(Lsn::new(0, 1)) };
            RecordedInput { proposals: vec![EntryShape::from(&entry)], ..RecordedInput::default() }
        }
        Ticket::Read { node, number } => RecordedInput { node: node.0, number: *number, ..RecordedInput::default() },
        Ticket::Admin(number) => RecordedInput { number: *number, ..RecordedInput::default() },
    }
}

/// Kinds of inputs in a word each, in the order of [`RecordedInput::kind`] from 1.
pub const INPUT_WORDS: [&str; 12] = [
    "message",
    "timer",
    "link",
    "proposals",
    "read",
    "compaction",
    "snapshot",
    "snapshot",
    "snapshot",
    "request",
    "timing",
    "disk",
];

impl RecordedInput {
    /// In one word, for people.
    pub fn word(&self) -> &'static str {
        let place = usize::try_from(self.kind).unwrap_or(0).wrapping_sub(1);
        INPUT_WORDS.get(place).copied().unwrap_or("something new")
    }

    /// Sender and fingerprint of the message, if the input is one.
    pub(crate) fn heard<P: Protocol>(&self) -> Option<(u64, u64)> {
        let mut message = (self.kind == 1).then(|| P::Message::decode(self.message.clone()).ok()).flatten()?;
        shown(&mut message, &mut Zeroes::default()).ok()?;
        Some((self.node, fingerprint::of(&message)))
    }

    /// The class of the input: whether a host does it only after its protocol has asked for it, or has come so far.
    pub(crate) fn host_input(&self) -> HostInput {
        match self.kind {
            2 => HostInput::Timer(self.number),
            6 => HostInput::Compact,
            7 | 8 => HostInput::Fetched,
            9 => HostInput::Installed(Lsn::new(self.term, self.number)),
            _ => HostInput::Other,
        }
    }

    /// Reference of a snapshot, if the input has one that can be read.
    pub(crate) fn reference(&self) -> Option<SnapshotReference> {
        matches!(self.kind, 6..=8).then(|| SnapshotReference::decode(self.message.clone()).ok()).flatten()
    }

    /// Reference of the snapshot that the host has cut, if that is the input.
    pub(crate) fn cut_snapshot(&self) -> Option<&Bytes> {
        (self.kind == 6).then_some(&self.message)
    }

    /// Reference of the snapshot that has come from another member, if that is the input.
    pub(crate) fn ready_snapshot(&self) -> Option<&Bytes> {
        (self.kind == 7).then_some(&self.message)
    }

    /// The input for a value of this protocol; timers are looked up by their fingerprint.
    pub(crate) fn repeat<P: Protocol>(
        &self,
        zeroes: &mut Zeroes,
        timer: impl FnOnce(u64) -> Option<P::Timer>,
    ) -> Result<Input<P>, WireError> {
        let reference = || SnapshotReference::decode(self.message.clone());
        Ok(match self.kind {
            1 => {
                let mut message = P::Message::decode(self.message.clone())?;
                shown(&mut message, zeroes)?;
                Input::Message { from: NodeId(self.node), message }
            }
            2 => Input::Timer(
                timer(self.number).ok_or_else(|| WireError("a timer fired that this value has not set".into()))?,
            ),
            3 => {
                let state = if self.choice == 1 { LinkState::Up } else { LinkState::Down };
                Input::Link { peer: NodeId(self.node), state }
            }
            4 => {
                let mut proposals = Vec::with_capacity(self.proposals.len());
                for shape in &self.proposals {
                    let Entry { kind, origin, stamp, mut payload, .. } = Entry::try_from(shape.clone())?;
                    zeroes.show(kind, &mut payload)?;
                    proposals.push(Proposal { origin, kind, stamp, payload });
                }
                Input::Propose(proposals)
            }
            5 => Input::Read { ticket: Ticket::Read { node: NodeId(self.node), number: self.number } },
            6 => Input::Compact(reference()?),
            7 => Input::SnapshotReady(reference()?),
            8 => Input::SnapshotFailed(reference()?),
            9 => Input::SnapshotInstalled(Lsn::new(self.term, self.number)),
            10 => Input::Admin { ticket: Ticket::Admin(self.number), request: self.admin()? },
            11 => Input::Retime(present(self.timing.as_ref(), "timing")?.timing()),
            12 => Input::Health(if self.choice == 1 { DiskHealth::Recovered } else { DiskHealth::Stalled }),
            other => return Err(WireError(format!("an input of unknown kind {other}"))),
        })
    }

    fn admin(&self) -> Result<Admin, WireError> {
        Ok(match self.choice {
            1 => Admin::Campaign,
            2 => Admin::Resign,
            3 => Admin::Transfer(NodeId(self.term)),
            4 => Admin::ForgetLeader,
            other => return Err(WireError(format!("a request of unknown kind {other}"))),
        })
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct NoteShape {
    #[prost(uint64, tag = "1")]
    at_micros: u64,
    #[prost(message, optional, tag = "2")]
    life: Option<Life>,
    #[prost(message, optional, tag = "3")]
    birth: Option<Birth>,
    #[prost(message, optional, tag = "4")]
    told: Option<RecordedInput>,
    #[prost(fixed64, optional, tag = "5")]
    answer: Option<u64>,
    #[prost(message, optional, tag = "6")]
    mark: Option<MarkShape>,
}

impl Wire for Note {
    fn encode(&self, out: &mut BytesMut) {
        let mut shape = NoteShape { at_micros: self.at_micros, ..NoteShape::default() };
        match &self.kind {
            NoteKind::Life(life) => shape.life = Some(life.clone()),
            NoteKind::Birth(birth, answer) => (shape.birth, shape.answer) = (Some(birth.clone()), Some(*answer)),
            NoteKind::Told(told, answer) => (shape.told, shape.answer) = (Some(told.clone()), *answer),
            NoteKind::Mark(mark) => shape.mark = Some(mark.into()),
        }
        hustings_core::wire::encode_shape(&shape, out);
    }

    fn decode(bytes: Bytes) -> Result<Note, WireError> {
        let NoteShape { at_micros, life, birth, told, answer, mark } = NoteShape::decode(bytes)?;
        let kind = match (life, birth, told, mark) {
            (Some(life), None, None, None) => NoteKind::Life(life),
            (None, Some(birth), None, None) => NoteKind::Birth(birth, present(answer, "answer")?),
            (None, None, Some(told), None) => NoteKind::Told(told, answer),
            (None, None, None, Some(mark)) => NoteKind::Mark(mark.try_into()?),
            _ => return Err(WireError("a note of no kind, or of two".into())),
        };
        Ok(Note { at_micros, kind })
    }
}
