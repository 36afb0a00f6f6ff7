//! Messages between ZAB nodes: [`Message`].
//!
//! The names are ZooKeeper's packets (§5.6); what is ours carries snapshots by reference, hand-overs and the end of a connection,
//! which in ZooKeeper is a closed socket.

use crate::vote::{ServerState, Standing, Vote};
use bytes::{Bytes, BytesMut};
use hustings_core::wire::{
    EntryShape, SnapshotReferenceShape, check_numbers, consecutive, encode_shape, payloads_of, snapshot_within,
};
use hustings_core::{Entry, EntryKind, Lsn, NodeId, Priority, SnapshotReference, Term, Wire, WireError};
use prost::Message as _;

/// A vote in fast leader election (§5.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Notification {
    /// The sender's state: looking, following or leading.
    pub state: ServerState,
    /// Its proposal, or the vote that it has settled for.
    pub vote: Vote,
    /// The sender's round of election.
    pub round: u64,
    /// The last zxid that the sender knows to be committed.
    pub commit: Lsn,
    /// Whether it answers another one: an answer is never answered, or two servers that are strangers to each other never stop.
    pub is_answer: bool,
}

/// A message between ZAB nodes, or from a node to itself.
///
/// `connection` is the follower's number of its connection to the leader; `epoch` is the leader's.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    /// A vote, or an answer to one. Promises nothing.
    Notification(Notification),
    /// FOLLOWERINFO, also of observers: I follow you; this is the newest epoch that I accepted.
    FollowerInfo {
        /// The follower's number of the connection.
        connection: u64,
        /// acceptedEpoch of the sender.
        accepted: Term,
    },
    /// LEADERINFO, the paper's NEWEPOCH: I lead, and this is the epoch to promise.
    LeaderInfo {
        /// The follower's number of the connection.
        connection: u64,
        /// The leader's new epoch.
        epoch: Term,
    },
    /// ACKEPOCH: I promise this epoch. To itself: the leader's own promise is durable.
    AckEpoch {
        /// The follower's number of the connection.
        connection: u64,
        /// The epoch of the leader that sends this, or that is answered.
        epoch: Term,
        /// currentEpoch of the sender.
        current: Term,
        /// False of one that had accepted this epoch before: ZooKeeper's -1.
        is_promise: bool,
        /// Last zxid of the sender.
        last: Lsn,
        /// `[OURS]` What it knows to be committed: a leader that lacks it has been left behind.
        commit: Lsn,
        /// Its priority as a leader; [`Priority::Never`] also while it cannot lead.
        priority: Priority,
    },
    /// DIFF: your log is a beginning of mine.
    Diff {
        /// The follower's number of the connection.
        connection: u64,
        /// The epoch of the leader that sends this, or that is answered.
        epoch: Term,
    },
    /// TRUNC: cut your log back to this.
    Truncate {
        /// The follower's number of the connection.
        connection: u64,
        /// The epoch of the leader that sends this, or that is answered.
        epoch: Term,
        /// The zxid that stays last.
        to: Lsn,
    },
    /// SNAP: fetch this snapshot instead.
    Snapshot {
        /// The follower's number of the connection.
        connection: u64,
        /// The epoch of the leader that sends this, or that is answered.
        epoch: Term,
        /// The snapshot to fetch.
        reference: SnapshotReference,
    },
    /// PROPOSAL, of one or more entries.
    Proposal {
        /// The follower's number of the connection.
        connection: u64,
        /// The epoch of the leader that sends this, or that is answered.
        epoch: Term,
        /// The place before the first entry.
        previous: Lsn,
        /// Entries in the order of the log, without a gap.
        entries: Vec<Entry>,
        /// The leader's commit index.
        commit: u64,
    },
    /// NEWLEADER: this is all of my history.
    NewLeader {
        /// The follower's number of the connection.
        connection: u64,
        /// The epoch of the leader that sends this, or that is answered.
        epoch: Term,
    },
    /// The acknowledgement of NEWLEADER. To itself: the leader's own history is durable.
    AckNewLeader {
        /// The follower's number of the connection.
        connection: u64,
        /// The epoch of the leader that sends this, or that is answered.
        epoch: Term,
        /// Last index of the sender's log.
        index: u64,
    },
    /// UPTODATE: your log is synchronised; serve.
    UpToDate {
        /// The follower's number of the connection.
        connection: u64,
        /// The epoch of the leader that sends this, or that is answered.
        epoch: Term,
        /// The index through which the follower's log is committed.
        commit: u64,
    },
    /// ACK of everything up to here. To itself: the leader's own copy.
    Ack {
        /// The follower's number of the connection.
        connection: u64,
        /// The epoch of the leader that sends this, or that is answered.
        epoch: Term,
        /// Last index that is stored.
        index: u64,
    },
    /// COMMIT, and INFORM to observers.
    Commit {
        /// The follower's number of the connection.
        connection: u64,
        /// The epoch of the leader that sends this, or that is answered.
        epoch: Term,
        /// Last index that is committed.
        commit: u64,
    },
    /// PING: I still lead.
    Ping {
        /// The follower's number of the connection.
        connection: u64,
        /// The epoch of the leader that sends this, or that is answered.
        epoch: Term,
        /// The highest round of reads not confirmed yet.
        round: u64,
    },
    /// The answer to PING.
    Pong {
        /// The follower's number of the connection.
        connection: u64,
        /// The epoch of the leader that sends this, or that is answered.
        epoch: Term,
        /// The round of the PING.
        round: u64,
        /// The sender's priority as a leader.
        priority: Priority,
        /// Whether it is fetching or installing a snapshot.
        is_installing: bool,
    },
    /// I resign in your favour.
    Handover {
        /// The follower's number of the connection.
        connection: u64,
        /// The epoch of the leader that sends this, or that is answered.
        epoch: Term,
    },
    /// The connection has ended: I lead no more, or follow no more.
    Goodbye {
        /// The follower's number of the connection.
        connection: u64,
    },
}

impl Message {
    /// The connection that the message belongs to, if any.
    pub fn connection(&self) -> Option<u64> {
        match self {
            Message::Notification(_) => None,
            Message::FollowerInfo { connection, .. }
            | Message::LeaderInfo { connection, .. }
            | Message::AckEpoch { connection, .. }
            | Message::Diff { connection, .. }
            | Message::Truncate { connection, .. }
            | Message::Snapshot { connection, .. }
            | Message::Proposal { connection, .. }
            | Message::NewLeader { connection, .. }
            | Message::AckNewLeader { connection, .. }
            | Message::UpToDate { connection, .. }
            | Message::Ack { connection, .. }
            | Message::Commit { connection, .. }
            | Message::Ping { connection, .. }
            | Message::Pong { connection, .. }
            | Message::Handover { connection, .. }
            | Message::Goodbye { connection } => Some(*connection),
        }
    }

    /// The leader's epoch, of messages that belong to one.
    pub fn epoch(&self) -> Option<Term> {
        match self {
            Message::Notification(_) | Message::FollowerInfo { .. } | Message::Goodbye { .. } => None,
            Message::LeaderInfo { epoch, .. }
            | Message::AckEpoch { epoch, .. }
            | Message::Diff { epoch, .. }
            | Message::Truncate { epoch, .. }
            | Message::Snapshot { epoch, .. }
            | Message::Proposal { epoch, .. }
            | Message::NewLeader { epoch, .. }
            | Message::AckNewLeader { epoch, .. }
            | Message::UpToDate { epoch, .. }
            | Message::Ack { epoch, .. }
            | Message::Commit { epoch, .. }
            | Message::Ping { epoch, .. }
            | Message::Pong { epoch, .. }
            | Message::Handover { epoch, .. } => Some(*epoch),
        }
    }

    /// Whether this is a message that only leaders send.
    pub fn is_from_leader(&self) -> bool {
        matches!(
            self,
            Message::LeaderInfo { .. }
                | Message::Diff { .. }
                | Message::Truncate { .. }
                | Message::Snapshot { .. }
                | Message::Proposal { .. }
                | Message::NewLeader { .. }
                | Message::UpToDate { .. }
                | Message::Commit { .. }
                | Message::Ping { .. }
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
    connection: u64,
    #[prost(uint64, tag = "3")]
    epoch: u64,
    #[prost(uint64, tag = "4")]
    place_term: u64,
    #[prost(uint64, tag = "5")]
    place_index: u64,
    #[prost(uint64, tag = "6")]
    commit_term: u64,
    #[prost(uint64, tag = "7")]
    commit_index: u64,
    #[prost(uint64, tag = "8")]
    number: u64,
    #[prost(bool, tag = "9")]
    flag: bool,
    #[prost(uint32, tag = "10")]
    rank: u32,
    #[prost(uint32, tag = "11")]
    state: u32,
    #[prost(uint64, tag = "12")]
    node: u64,
    #[prost(message, repeated, tag = "13")]
    entries: Vec<EntryShape>,
    #[prost(message, optional, tag = "14")]
    snapshot: Option<SnapshotReferenceShape>,
}

const STATES: [ServerState; 3] = [ServerState::Looking, ServerState::Following, ServerState::Leading];
const STANDINGS: [Standing; 4] = [Standing::Never, Standing::Normal, Standing::Preferred, Standing::Successor];
const PRIORITIES: [Priority; 3] = [Priority::Never, Priority::Normal, Priority::Preferred];

/// The value with this number on the wire.
fn numbered<T: Copy>(values: &[T], number: u32, what: &str) -> Result<T, WireError> {
    let value = usize::try_from(number).ok().and_then(|number| values.get(number));
    value.copied().ok_or_else(|| WireError(format!("a {what} of unknown kind {number}")))
}

impl Shape {
    fn of(kind: u32, connection: u64, epoch: Term) -> Shape {
        Shape { kind, connection, epoch: epoch.0, ..Shape::default() }
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
        let base = |kind| Shape::of(kind, self.connection().unwrap_or(0), self.epoch().unwrap_or(Term::ZERO));
        let shape = match self {
            Message::Notification(Notification { state, vote, round, commit, is_answer }) => Shape {
                epoch: vote.epoch.0,
                node: vote.leader.0,
                rank: vote.standing as u32,
                state: *state as u32,
                number: *round,
                flag: *is_answer,
                commit_term: commit.term.0,
                commit_index: commit.index,
                ..base(1).at(vote.last)
            },
            Message::FollowerInfo { accepted, .. } => Shape { number: accepted.0, ..base(2) },
            Message::LeaderInfo { .. } => base(3),
            Message::AckEpoch { current, is_promise, last, commit, priority, .. } => Shape {
                number: current.0,
                flag: *is_promise,
                commit_term: commit.term.0,
                commit_index: commit.index,
                rank: *priority as u32,
                ..base(4).at(*last)
            },
            Message::Diff { .. } => base(5),
            Message::Truncate { to, .. } => base(6).at(*to),
            Message::Snapshot { reference, .. } => Shape { snapshot: Some(reference.into()), ..base(7) },
            Message::Proposal { previous, entries, commit, .. } => Shape {
                commit_index: *commit,
                entries: entries.iter().map(EntryShape::from).collect(),
                ..base(8).at(*previous)
            },
            Message::NewLeader { .. } => base(9),
            Message::AckNewLeader { index, .. } => Shape { place_index: *index, ..base(10) },
            Message::UpToDate { commit, .. } => Shape { commit_index: *commit, ..base(11) },
            Message::Ack { index, .. } => Shape { place_index: *index, ..base(12) },
            Message::Commit { commit, .. } => Shape { commit_index: *commit, ..base(13) },
            Message::Ping { round, .. } => Shape { number: *round, ..base(14) },
            Message::Pong { round, priority, is_installing, .. } => {
                Shape { number: *round, rank: *priority as u32, flag: *is_installing, ..base(15) }
            }
            Message::Handover { .. } => base(16),
            Message::Goodbye { .. } => base(17),
        };
        encode_shape(&shape, out);
    }

    fn visit_payloads(&mut self, visit: &mut dyn FnMut(EntryKind, &mut Bytes)) {
        if let Message::Proposal { entries, .. } = self {
            payloads_of(entries, visit);
        }
    }

    fn decode(bytes: Bytes) -> Result<Message, WireError> {
        let shape = Shape::decode(bytes)?;
        check_numbers([shape.connection, shape.place_index, shape.commit_index])?;
        let (connection, epoch, place) = (shape.connection, Term(shape.epoch), shape.place());
        let priority = || numbered(&PRIORITIES, shape.rank, "priority");
        Ok(match shape.kind {
            1 => Message::Notification(Notification {
                state: numbered(&STATES, shape.state, "server state")?,
                vote: Vote {
                    leader: NodeId(shape.node),
                    epoch,
                    last: place,
                    standing: numbered(&STANDINGS, shape.rank, "standing")?,
                },
                round: shape.number,
                commit: Lsn::new(shape.commit_term, shape.commit_index),
                is_answer: shape.flag,
            }),
            2 => Message::FollowerInfo { connection, accepted: Term(shape.number) },
            3 => Message::LeaderInfo { connection, epoch },
            4 => Message::AckEpoch {
                connection,
                epoch,
                current: Term(shape.number),
                is_promise: shape.flag,
                last: place,
                commit: Lsn::new(shape.commit_term, shape.commit_index),
                priority: priority()?,
            },
            5 => Message::Diff { connection, epoch },
            6 => Message::Truncate { connection, epoch, to: place },
            7 => Message::Snapshot { connection, epoch, reference: snapshot_within(shape.snapshot, epoch)? },
            8 => Message::Proposal {
                connection,
                epoch,
                previous: place,
                entries: consecutive(shape.entries, place, epoch)?,
                commit: shape.commit_index,
            },
            9 => Message::NewLeader { connection, epoch },
            10 => Message::AckNewLeader { connection, epoch, index: place.index },
            11 => Message::UpToDate { connection, epoch, commit: shape.commit_index },
            12 => Message::Ack { connection, epoch, index: place.index },
            13 => Message::Commit { connection, epoch, commit: shape.commit_index },
            14 => Message::Ping { connection, epoch, round: shape.number },
            15 => Message::Pong {
                connection,
                epoch,
                round: shape.number,
                priority: priority()?,
                is_installing: shape.flag,
            },
            16 => Message::Handover { connection, epoch },
            17 => Message::Goodbye { connection },
            other => return Err(WireError(format!("a ZAB message of unknown kind {other}"))),
        })
    }
}
