//! What goes into a replica and what comes out: [`Event`], [`Action`].
//!
//! What to read next: [`super`], the replica itself.

use super::{ApplyVersion, RecordNumber, ReplicaMessage, ReplicaState, RequestId, SnapshotContents};
use crate::protocol::{Admin, DiskHealth, LinkState, Outcome, Protocol, Refusal};
use crate::{EntryKind, Lsn, Membership, NodeId, Record, SnapshotReference, StateMachine, Timing, Transition};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// An alarm of the protocol or of the replica around it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Alarm<T> {
    /// The protocol's own.
    Protocol(T),
    /// Forwarded proposals or a read barrier may have been lost: ask again.
    Retry,
    /// Something in the state machine falls due in log time: let the log's clock advance.
    Deadline,
    /// A chunk of a snapshot may have been lost: ask again.
    Chunk,
}

/// A proposal as a client made it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its number.
    pub id: RequestId,
    /// [`EntryKind::Command`] or [`EntryKind::Membership`].
    pub kind: EntryKind,
    /// The command, or the encoded [`crate::MembershipChange`].
    pub payload: Bytes,
}

/// What a replica is told.
#[derive(Clone, Debug)]
pub enum Event<P: Protocol, S: StateMachine> {
    /// A peer (or the node itself) said something.
    Peer {
        /// Who, as the link knows it.
        from: NodeId,
        /// What.
        message: ReplicaMessage<P::Message>,
    },
    /// An alarm rang.
    Alarm(Alarm<P::Timer>),
    /// A link changed.
    Link {
        /// To whom.
        peer: NodeId,
        /// What it is now.
        state: LinkState,
    },
    /// All records up to this number are durable.
    Durable(RecordNumber),
    /// So many microseconds passed on the machine's boot clock since the host said so last. Told before proposals.
    Elapsed(u64),
    /// Clients propose.
    Propose(Vec<Request>),
    /// Clients want to read what is linearizable from now on.
    Read(Vec<RequestId>),
    /// A client no longer waits for its proposal: it is forgotten, not undone.
    Abandon(RequestId),
    /// An administrator asks.
    Admin {
        /// The host's number for it.
        request: RequestId,
        /// What is asked.
        admin: Admin,
    },
    /// A snapshot of the own state machine is complete and durable; or could not be made (`None`).
    SnapshotCut(Option<SnapshotReference>),
    /// A fetched snapshot is complete, verified and durable; or its bytes are not what this reference says.
    SnapshotStored(Result<SnapshotReference, SnapshotReference>),
    /// What is inside a snapshot, decoded off the loop.
    SnapshotLoaded {
        /// What it covers.
        lsn: Lsn,
        /// The state.
        machine: Box<S>,
        /// The replica's own part of it.
        state: ReplicaState,
    },
    /// A chunk of one of the own snapshots that a peer asked for; `None` when it is not held any more.
    ChunkRead {
        /// Who asked.
        to: NodeId,
        /// Which snapshot.
        lsn: Lsn,
        /// From which byte on.
        offset: u64,
        /// The bytes.
        bytes: Option<Bytes>,
    },
    /// New heartbeat and election ranges.
    Retime(Timing),
    /// Which members are connected, and the highest version that each can apply. Told again and again.
    Able(BTreeMap<NodeId, ApplyVersion>),
    /// The members' states should be compared. Means nothing to who does not lead.
    Compare,
    /// The disk's health changed.
    Health(DiskHealth),
}

/// What a replica wants done, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action<P: Protocol, S: StateMachine> {
    /// Write this record; say [`Event::Durable`] when it and all before it are on disk.
    Persist(RecordNumber, Record),
    /// Send this to a peer. Messages to the node itself never leave the replica.
    Send(NodeId, ReplicaMessage<P::Message>),
    /// Arm (or arm again) an alarm.
    SetTimer(Alarm<P::Timer>, RangeInclusive<Duration>),
    /// Disarm an alarm.
    CancelTimer(Alarm<P::Timer>),
    /// A proposal was applied, here and at a quorum.
    Applied {
        /// Which.
        request: RequestId,
        /// At which place in history.
        lsn: Lsn,
        /// What the state machine says.
        response: S::Response,
    },
    /// A change of membership took effect.
    Reconfigured {
        /// Which proposal.
        request: RequestId,
        /// The membership it led to.
        membership: Arc<Membership>,
    },
    /// A proposal was *definitely* not done.
    Refused {
        /// Which.
        request: RequestId,
        /// Why.
        refusal: Refusal,
    },
    /// A proposal was *perhaps* done.
    Unknown {
        /// Which.
        request: RequestId,
    },
    /// These reads may be served from this view.
    Readable {
        /// Which.
        requests: Vec<RequestId>,
        /// The last entry that the view contains.
        applied: Lsn,
        /// The state.
        view: ViewOf<S>,
    },
    /// An administrator's request ended.
    AdminEnded {
        /// Which.
        request: RequestId,
        /// How.
        outcome: Outcome,
    },
    /// Role, term or leader changed.
    Announce(Transition),
    /// A membership took effect: dial, or hang up.
    Membership(Arc<Membership>),
    /// From here on entries are applied by the rules of this version: say so to peers.
    Version(ApplyVersion),
    /// Digest this off the loop and tell the leader: all members do so at this entry.
    Digest(SnapshotContents<S>),
    /// Stop the node: it cannot apply the next entry, and nothing comes out of this replica any more. The text names the thing and
    /// the remedy.
    Stop {
        /// Why.
        why: String,
    },
    /// Encode and store a snapshot off the loop, then say [`Event::SnapshotCut`].
    CutSnapshot(SnapshotContents<S>),
    /// Store a chunk of a fetched snapshot; after the last one verify, sync and say [`Event::SnapshotStored`].
    StoreChunk {
        /// Which snapshot.
        reference: SnapshotReference,
        /// At which byte.
        offset: u64,
        /// What.
        bytes: Bytes,
    },
    /// Read a chunk of an own snapshot, then say [`Event::ChunkRead`].
    ReadChunk {
        /// Who asks.
        to: NodeId,
        /// Which snapshot.
        lsn: Lsn,
        /// Its digest: a snapshot of another digest is another snapshot.
        digest: u32,
        /// From which byte on.
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
