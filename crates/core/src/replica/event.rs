//! Inputs and outputs of a replica: [`Event`], [`Action`].
//!
//! Read next: [`super`], the replica itself.

use super::{ApplyVersion, RecordNumber, ReplicaMessage, ReplicaState, RequestId, SnapshotContents};
use crate::protocol::{Admin, DiskHealth, LinkState, Outcome, Protocol, Refusal};
use crate::{EntryKind, Lsn, Membership, NodeId, Record, SnapshotReference, StateMachine, Timing, Transition};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// A timer of the protocol or of the replica around it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ReplicaTimer<T> {
    /// A timer that the protocol set.
    Protocol(T),
    /// Forwarded proposals or a read barrier may have been lost: ask again.
    Retry,
    /// A proposal was refused by a leader that is busy for a moment: ask it again.
    Again,
    /// Something in the state machine falls due in log time: let the log's clock advance.
    Deadline,
    /// A chunk of a snapshot may have been lost: ask again.
    Chunk,
}

/// A proposal as a client made it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The client's number for it, unique in this life of the node.
    pub id: RequestId,
    /// The kind of the payload: [`EntryKind::Command`] or [`EntryKind::Membership`].
    pub kind: EntryKind,
    /// The command, or the encoded [`crate::MembershipChange`].
    pub payload: Bytes,
}

/// Inputs of a replica.
#[derive(Clone, Debug)]
pub enum Event<P: Protocol, S: StateMachine> {
    /// A peer (or the node itself) said something.
    Peer {
        /// The sender, as the link knows it.
        from: NodeId,
        /// The message, of the protocol or of the replica around it.
        message: ReplicaMessage<P::Message>,
    },
    /// A timer that was armed fired.
    Timer(ReplicaTimer<P::Timer>),
    /// A link went up or down.
    Link {
        /// The peer at the other end.
        peer: NodeId,
        /// The state that the link is in now.
        state: LinkState,
    },
    /// All records up to this number are durable.
    Durable(RecordNumber),
    /// Microseconds that passed on the machine's boot clock since the last such event. Told before proposals.
    Elapsed(u64),
    /// Clients propose these, in this order.
    Propose(Vec<Request>),
    /// Clients want to read what is linearizable from now on.
    Read(Vec<RequestId>),
    /// A client no longer waits for its proposal: it is forgotten, not undone.
    Abandon(RequestId),
    /// The clients of these reads no longer wait: they are forgotten, in one pass over those that do.
    AbandonReads(BTreeSet<RequestId>),
    /// An administrator asks for something.
    Admin {
        /// The host's number for it.
        request: RequestId,
        /// The administrator's request, as the protocol takes it.
        admin: Admin,
    },
    /// A snapshot of this node's state machine is complete and durable; or could not be made (`None`).
    SnapshotCut(Option<SnapshotReference>),
    /// A fetched snapshot is complete, verified and durable; or its bytes are not what this reference says.
    SnapshotStored(Result<SnapshotReference, SnapshotReference>),
    /// The host no longer holds a chunk that was to be stored: it was given to its file, or refused. Comes once for each chunk.
    ChunkStored {
        /// Length of the chunk, in bytes.
        bytes: u64,
    },
    /// The content of a snapshot, decoded off the loop.
    SnapshotLoaded {
        /// The last entry that it covers.
        lsn: Lsn,
        /// The state machine inside it.
        machine: Box<S>,
        /// The replica's own part of it.
        state: ReplicaState,
    },
    /// A chunk of one of this node's snapshots that a peer asked for; `None` when it is not held any more.
    ChunkRead {
        /// The peer that asked.
        to: NodeId,
        /// The last entry that the snapshot covers.
        lsn: Lsn,
        /// Offset of the chunk in the snapshot, in bytes.
        offset: u64,
        /// The chunk; `None` when the snapshot is not held any more.
        bytes: Option<Bytes>,
    },
    /// New heartbeat and election ranges.
    Retime(Timing),
    /// The members that are connected, with the highest version that each can apply. Told again and again.
    Able(BTreeMap<NodeId, ApplyVersion>),
    /// The members' states should be compared. Means nothing to a node that does not lead.
    Compare,
    /// The disk's health changed: it stalled or recovered.
    Health(DiskHealth),
}

/// Outputs of a replica, to be carried out in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action<P: Protocol, S: StateMachine> {
    /// Write this record; feed [`Event::Durable`] when it and all before it are on disk.
    Persist(RecordNumber, Record),
    /// Send this to a peer. Messages to the node itself never leave the replica.
    Send(NodeId, ReplicaMessage<P::Message>),
    /// Arm (or arm again) a timer.
    SetTimer(ReplicaTimer<P::Timer>, RangeInclusive<Duration>),
    /// Disarm a timer: it must not fire any more.
    CancelTimer(ReplicaTimer<P::Timer>),
    /// A proposal was applied, here and at a quorum.
    Applied {
        /// The host's number of the client's proposal.
        request: RequestId,
        /// Term and index of the entry that held it.
        lsn: Lsn,
        /// The state machine's response to the command.
        response: S::Response,
    },
    /// A change of membership took effect.
    Reconfigured {
        /// The host's number of the client's proposal.
        request: RequestId,
        /// The membership it led to.
        membership: Arc<Membership>,
    },
    /// A proposal was *definitely* not done.
    Refused {
        /// The host's number of the client's proposal.
        request: RequestId,
        /// The reason for the refusal.
        refusal: Refusal,
    },
    /// A proposal was *perhaps* done.
    Unknown {
        /// The host's number of the client's proposal.
        request: RequestId,
    },
    /// These reads may be served from this view.
    Readable {
        /// The reads that may be served.
        requests: Vec<RequestId>,
        /// The last entry that the view contains.
        applied: Lsn,
        /// The view from which they are served.
        view: ViewOf<S>,
    },
    /// These reads cannot be served here: this member is a witness, and holds no state.
    Unreadable {
        /// The reads that are refused.
        requests: Vec<RequestId>,
    },
    /// An administrator's request ended.
    AdminEnded {
        /// The host's number for it.
        request: RequestId,
        /// The outcome of the request.
        outcome: Outcome,
    },
    /// Role, term or leader changed.
    Announce(Transition),
    /// A membership took effect: dial new members, hang up on removed ones.
    Membership(Arc<Membership>),
    /// From here on entries are applied by the rules of this version: say so to peers.
    Version(ApplyVersion),
    /// Digest this off the loop and tell the leader: all members do so at this entry.
    Digest(SnapshotContents<S>),
    /// Stop the node: it cannot apply the next entry, and nothing comes out of this replica any more.
    Stop {
        /// The reason and the remedy, in words for the operator.
        why: String,
    },
    /// Encode and store a snapshot off the loop, then say [`Event::SnapshotCut`].
    CutSnapshot(SnapshotContents<S>),
    /// Store a chunk of a fetched snapshot, then say [`Event::ChunkStored`]; after the last one verify, sync and say
    /// [`Event::SnapshotStored`] too.
    StoreChunk {
        /// The snapshot being fetched.
        reference: SnapshotReference,
        /// Offset of the chunk in the snapshot, in bytes.
        offset: u64,
        /// Bytes of the chunk.
        bytes: Bytes,
    },
    /// Read a chunk of one of this node's snapshots, then say [`Event::ChunkRead`].
    ReadChunk {
        /// The peer that asks.
        to: NodeId,
        /// The last entry that the snapshot covers.
        lsn: Lsn,
        /// CRC32C of the snapshot: one with another digest is another snapshot.
        digest: u32,
        /// Offset of the chunk in the snapshot, in bytes.
        offset: u64,
    },
    /// Decode this stored snapshot off the loop, then say [`Event::SnapshotLoaded`].
    LoadSnapshot(SnapshotReference),
}

/// A view that is equal only to itself: actions are compared in tests, states are not.
#[derive(Clone, Debug)]
pub struct ViewOf<S: StateMachine>(pub View<S>);

/// The view behind a [`ViewOf`].
#[derive(Clone)]
pub struct View<S: StateMachine>(pub S::View);

impl<S: StateMachine> std::fmt::Debug for View<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("view")
    }
}

impl<S: StateMachine> PartialEq for ViewOf<S> {
    fn eq(&self, _: &ViewOf<S>) -> bool {
        true
    }
}

impl<S: StateMachine> Eq for ViewOf<S> {}
