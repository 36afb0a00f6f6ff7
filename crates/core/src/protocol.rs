//! The one trait: [`Protocol`]. A protocol is a value; give it an input, it returns effects; it never does anything.
//!
//! ```text
//!                  Input                                    Effects, in order
//!    message from a peer  ─┐                        ┌─►  Persist      (barrier for what rests on it)
//!    timer fired           ─┤   ┌────────────────┐   ├─►  Send         to a peer, or to itself
//!    link went up / down  ─┼──►│  P: Protocol   │───┼─►  Apply        a committed entry
//!    propose / read       ─┤   │  (plain value) │   ├─►  Reply        to a ticket
//!    admin request        ─┘   └────────────────┘   ├─►  SetTimer / CancelTimer
//!                                                   └─►  Announce     role, term, leader, and why
//! ```
//!
//! Read next: [`crate::replica`], which runs a protocol beside a state machine for every host.

use crate::options;
use crate::{
    Cluster, Contradiction, Durable, Entry, EntryKind, Lsn, Membership, NodeId, Origin, Record, SnapshotReference,
    Stamp, Status, Term, Timing, Transition, Wire,
};
use bytes::Bytes;
use std::fmt::{self, Debug};
use std::hash::Hash;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// The guarantees that a protocol expects of its links.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Links {
    /// Loss, reordering and duplicates are tolerated.
    Any,
    /// First in, first out, until the link goes down: a gap, a duplicate or a loss *is* link-down.
    Session,
}

/// The order in which slots of the log are filled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Slots {
    /// Slots are filled one after the other: a place names an entry and everything before it.
    InOrder,
    /// Each by itself, perhaps with holes, and again under a later term with the same value once it is chosen (Paxos).
    /// A slot is chosen by the smallest group that meets every majority: half of an even number of voters.
    Independent,
}

/// A leader election with replication, as a plain value. See the module documentation and `docs/adr/0001`.
///
/// The smallest one, of a cluster with a single member:
///
/// ```
/// use hustings_core::options::{self, Switch};
/// use hustings_core::{
///     Cluster, Durable, Effect, Effects, EntryKind, Input, Links, Lsn, NodeId, Origin, Proposal, Protocol, Record, Role,
///     Stamp, Status,
/// };
///
/// #[derive(Clone, PartialEq, Eq, Hash, Debug)]
/// struct Alone(Status);
///
/// #[derive(Clone, Default, Debug)]
/// struct NoOptions;
///
/// impl options::Options for NoOptions {
///     const SWITCHES: &'static [Switch] = &[];
///
///     fn set(&mut self, _: &str, _: &str) -> Option<()> {
///         None
///     }
///
///     fn is_laboratory(&self) -> bool {
///         false
///     }
/// }
///
/// impl Protocol for Alone {
///     type Message = u64;
///     type Timer = ();
///     type Options = NoOptions;
///
///     const NAME: &'static str = "alone";
///     const LINKS: Links = Links::Any;
///     const SYMMETRIC: bool = true;
///
///     fn start(cluster: Cluster, _: NoOptions, recovered: Durable, _: &mut Effects<Alone>) -> Alone {
///         let last = recovered.last();
///         Alone(Status {
///             role: Role::Leader,
///             term: last.term,
///             leader: Some(cluster.me),
///             last,
///             commit: last.index,
///             first_index: 1,
///             is_suspended: false,
///             membership: cluster.membership,
///         })
///     }
///
///     fn step(&mut self, input: Input<Alone>, out: &mut Effects<Alone>) {
///         let Input::Propose(proposals) = input else { return };
///         for proposal in proposals {
///             let lsn = Lsn::new(self.0.term.0, self.0.last.index + 1);
///             let entry = proposal.into_entry(lsn);
///             // The host applies it when its record is durable, and not before.
///             out.persist(Record::Put(entry.clone()));
///             out.apply(entry);
///             (self.0.last, self.0.commit) = (lsn, lsn.index);
///         }
///     }
///
///     fn status(&self) -> Status {
///         self.0.clone()
///     }
///
///     fn assert_invariants(&self) {
///         assert_eq!(self.0.commit, self.0.last.index, "nobody else has to agree");
///     }
/// }
///
/// let mut n1 = Alone::start(Cluster::of(1, 1), NoOptions, Durable::default(), &mut Effects::new());
/// let origin = Origin { node: NodeId(1), incarnation: 1, sequence: 1 };
/// let proposal = Proposal { origin, kind: EntryKind::Command, stamp: Stamp::NONE, payload: "hello".into() };
/// let mut effects = Effects::new();
/// n1.step(Input::Propose(vec![proposal]), &mut effects);
/// assert!(matches!(effects.as_slice(), [Effect::Persist(_), Effect::Apply(_)]));
/// assert_eq!(n1.status().commit, 1);
/// ```
pub trait Protocol: Clone + Eq + Hash + Debug + Sized + Send + 'static {
    /// The messages that peers exchange.
    type Message: Clone + Ord + Hash + Debug + Wire + Send + 'static;
    /// The timers it sets; each variant's documentation says why it exists.
    type Timer: Copy + Ord + Hash + Debug + Send + 'static;
    /// Switches of this protocol alone.
    type Options: options::Options;

    /// The name by which users choose it.
    const NAME: &'static str;
    /// The guarantees that it expects of its links.
    const LINKS: Links;
    /// Whether no rule orders node ids, so that a checker may rename them.
    const SYMMETRIC: bool;
    /// The order in which it fills slots; judges compare entries accordingly.
    const SLOTS: Slots = Slots::InOrder;

    /// The value at birth or rebirth, from what was durable.
    fn start(cluster: Cluster, options: Self::Options, recovered: Durable, out: &mut Effects<Self>) -> Self;

    /// Takes one input. Never blocks, never fails, never looks around.
    ///
    /// # Panics
    /// When an impossible state is reached: going on would be unsafe.
    fn step(&mut self, input: Input<Self>, out: &mut Effects<Self>);

    /// The value seen from outside.
    fn status(&self) -> Status;

    /// The freshness of what a disk holds, as this protocol's elections compare it: of several disks the highest holds everything that any
    /// of them saw committed. It says nothing where slots are [`Slots::Independent`]: there each slot is compared by itself.
    fn freshness(held: &Durable) -> (Term, Lsn) {
        (Term::ZERO, held.last())
    }

    /// For judges: the highest index that this leader could commit now, and has not; `None` after every step of a sound
    /// protocol. Only protocols that commit by counting say it.
    fn overdue_commit(&self) -> Option<u64> {
        None
    }

    /// Another member's entry where one is committed here, until more is committed. Once it [is certain](Contradiction::is_certain) that two
    /// histories exist, the replica gives it nothing more that others say, no timer, and hands nothing on that it sends.
    fn contradiction(&self) -> Option<Contradiction> {
        None
    }

    /// Asserts the invariants, at a cost proportional to what the step touched.
    ///
    /// # Panics
    /// When one of them is violated.
    fn assert_invariants(&self);
}

/// Whether a link carries messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LinkState {
    /// Messages flow, in a new session.
    Up,
    /// The connection is gone: the peer's process or machine is, or the network.
    Down,
}

/// The state of the disk as the host's probe sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DiskHealth {
    /// Writes have not become durable for too long.
    Stalled,
    /// Writes become durable in time again.
    Recovered,
}

/// A proposal on its way into the log.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Proposal {
    /// The proposer, which waits for the outcome.
    pub origin: Origin,
    /// The kind of the payload.
    pub kind: EntryKind,
    /// Reading of the log's clock at the time of the proposal.
    pub stamp: Stamp,
    /// The encoded command or membership change.
    pub payload: Bytes,
}

impl Proposal {
    /// The entry that this proposal becomes at `lsn`.
    pub fn into_entry(self, lsn: Lsn) -> Entry {
        let Proposal { origin, kind, stamp, payload } = self;
        Entry { lsn, kind, origin, stamp, payload }
    }
}

/// Names one request, so that its answer finds its way. Unique per attempt (RH-3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ticket {
    /// A proposal, named by its origin.
    Proposal(Origin),
    /// A linearizable barrier asked for by `node`.
    Read {
        /// The node whose clients wait.
        node: NodeId,
        /// Number of the barrier at that node.
        number: u64,
    },
    /// An administrator's request, numbered by the host.
    Admin(u64),
}

/// The reason why something was *definitely* not done.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Refusal {
    /// This node does not lead; perhaps this one does.
    NotLeader(Option<NodeId>),
    /// Leadership is being handed over; ask again in a moment.
    Transferring,
    /// Too much is outstanding already.
    Overloaded,
    /// The leader has not committed an entry of its own term yet; ask again in a moment.
    NotReady,
    /// The change of membership cannot be made.
    Membership(crate::MembershipRefusal, String),
    /// A change of membership is under way already.
    MembershipPending,
    /// The one to lead is not a voter, is not known or does not answer.
    BadTransferee(NodeId),
    /// The hand-over did not happen in time; the old leader serves on.
    TransferTimedOut,
    /// This member is a witness: it votes and holds no data.
    IsWitness,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotLeader(Some(leader)) => write!(f, "this node does not lead; {leader} does"),
            Refusal::NotLeader(None) => f.write_str("there is no leader"),
            Refusal::Transferring => f.write_str("leadership is being handed over"),
            Refusal::Overloaded => f.write_str("too many requests"),
            Refusal::NotReady => f.write_str("the new leader is not ready yet"),
            Refusal::Membership(_, what) => f.write_str(what),
            Refusal::MembershipPending => f.write_str("another membership change is under way"),
            Refusal::BadTransferee(node) => write!(f, "{node} cannot be handed leadership"),
            Refusal::TransferTimedOut => f.write_str("the hand-over timed out"),
            Refusal::IsWitness => {
                f.write_str("this member is a witness, which votes and holds no data: ask another member")
            }
        }
    }
}

/// The answer to a ticket.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Outcome {
    /// The request was carried out.
    Done,
    /// It was *definitely* not done.
    Refused(Refusal),
    /// It was *perhaps* done: nobody knows.
    Unknown,
}

/// Requests of an administrator to a protocol.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Admin {
    /// Campaign now, without waiting for an election timeout.
    Campaign,
    /// Stop leading, hand over to the best follower.
    Resign,
    /// Hand over to this one.
    Transfer(NodeId),
    /// Treat the leader as unknown (RQ-2).
    ForgetLeader,
}

/// Inputs of a protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input<P: Protocol> {
    /// A peer (or the node itself) said something.
    Message {
        /// The sender, as the link knows it.
        from: NodeId,
        /// The message, decoded by the host.
        message: P::Message,
    },
    /// A timer fired. Never one that was cancelled or armed again since.
    Timer(P::Timer),
    /// A link went up or down.
    Link {
        /// The peer at the other end.
        peer: NodeId,
        /// The state that the link is in now.
        state: LinkState,
    },
    /// Proposals, in the order in which they shall stand in the log.
    Propose(Vec<Proposal>),
    /// A linearizable barrier: answered by [`Effect::ReadAt`] or a refusal.
    Read {
        /// Ticket of the read, unique per attempt.
        ticket: Ticket,
    },
    /// The host cut a snapshot of its own state machine and holds it durably: the log below may go.
    Compact(SnapshotReference),
    /// A snapshot asked for by [`Effect::FetchSnapshot`] is complete and durable; a witness's is one of its own through the same place.
    SnapshotReady(SnapshotReference),
    /// It could not be fetched: its owner is gone or has a newer one.
    SnapshotFailed(SnapshotReference),
    /// The state machine has been rebuilt from a snapshot.
    SnapshotInstalled(Lsn),
    /// An administrator asks for something.
    Admin {
        /// The ticket under which it is answered.
        ticket: Ticket,
        /// The administrator's request to the protocol.
        request: Admin,
    },
    /// New ranges for heartbeats and elections; timers already set keep theirs.
    Retime(Timing),
    /// The disk's health changed.
    Health(DiskHealth),
}

/// The record that must be durable before an effect becomes visible to the world.
///
/// Symbolic on purpose: a protocol value holds no record numbers, so equal states stay equal for a checker. The host
/// numbers records and resolves these names when the effect is emitted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RestsOn {
    /// The last record emitted so far: the default, and always safe.
    LastRecord,
    /// The promise in force, the last truncation or snapshot, and the slot with this index.
    Entry(u64),
    /// The promise in force at that moment.
    Promise,
    /// No record: the effect is visible at once.
    Nothing,
}

/// Effects that a protocol asks its host for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect<P: Protocol> {
    /// Make this record durable.
    Persist(Record),
    /// Say this to a peer; or to itself, which is how a node counts its own vote, append or accept.
    Send {
        /// The receiver; may be this node itself.
        to: NodeId,
        /// The message, which the host encodes.
        message: P::Message,
        /// The record that must be durable first.
        rests_on: RestsOn,
    },
    /// Apply a committed entry. Rests on its own slot.
    Apply(Entry),
    /// Replace the state machine by this snapshot. Rests on the last record.
    Restore(SnapshotReference),
    /// Fetch this snapshot from a peer; answered by [`Input::SnapshotReady`] or [`Input::SnapshotFailed`].
    FetchSnapshot {
        /// The peer that has it.
        from: NodeId,
        /// The snapshot to fetch.
        reference: SnapshotReference,
    },
    /// The reads behind this ticket are linearizable once everything up to `index` is applied.
    ReadAt {
        /// The ticket of the reads.
        ticket: Ticket,
        /// Index of the last entry that must be applied first.
        index: u64,
    },
    /// Answer a ticket: refusals of any kind, and outcomes of administrators' requests. A proposal's success is its
    /// application.
    Reply {
        /// The ticket that is answered.
        ticket: Ticket,
        /// The outcome of the request.
        outcome: Outcome,
    },
    /// Arm (or arm again) a timer; the host draws the time from the range.
    SetTimer {
        /// The timer to arm.
        timer: P::Timer,
        /// Range from which the host draws the time until it fires.
        after: RangeInclusive<Duration>,
    },
    /// Disarm a timer; it will not fire.
    CancelTimer(P::Timer),
    /// Role, term or leader changed.
    Announce(Transition),
    /// A membership took effect, by the entry at this index (0 at birth). Ordered with `Apply`.
    Reconfigure {
        /// The membership that is in force now.
        membership: Arc<Membership>,
        /// Index of the entry that changed it; 0 at birth.
        index: u64,
    },
}

/// Effects in causal order. `Persist` stands directly before the first effect that depends on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effects<P: Protocol>(Vec<Effect<P>>);

impl<P: Protocol> Default for Effects<P> {
    fn default() -> Effects<P> {
        Effects(Vec::new())
    }
}

impl<P: Protocol> Effects<P> {
    /// An empty list of effects.
    pub fn new() -> Effects<P> {
        Effects::default()
    }

    /// Emits [`Effect::Persist`] for a record.
    pub fn persist(&mut self, record: Record) {
        self.0.push(Effect::Persist(record));
    }

    /// Emits a message that rests on everything before it.
    pub fn send(&mut self, to: NodeId, message: P::Message) {
        self.send_resting_on(RestsOn::LastRecord, to, message);
    }

    /// Emits a message that rests on exactly this.
    pub fn send_resting_on(&mut self, rests_on: RestsOn, to: NodeId, message: P::Message) {
        self.0.push(Effect::Send { to, message, rests_on });
    }

    /// Emits [`Effect::Apply`] for a committed entry.
    pub fn apply(&mut self, entry: Entry) {
        self.0.push(Effect::Apply(entry));
    }

    /// Answers a ticket with this outcome.
    pub fn reply(&mut self, ticket: Ticket, outcome: Outcome) {
        self.0.push(Effect::Reply { ticket, outcome });
    }

    /// Refuses a ticket: *definitely* not done.
    pub fn refuse(&mut self, ticket: Ticket, refusal: Refusal) {
        self.reply(ticket, Outcome::Refused(refusal));
    }

    /// Arms a timer, or arms it again.
    pub fn set_timer(&mut self, timer: P::Timer, after: RangeInclusive<Duration>) {
        self.0.push(Effect::SetTimer { timer, after });
    }

    /// Disarms a timer: it will not fire.
    pub fn cancel_timer(&mut self, timer: P::Timer) {
        self.0.push(Effect::CancelTimer(timer));
    }

    /// Announces a change of role, term or leader.
    pub fn announce(&mut self, transition: Transition) {
        self.0.push(Effect::Announce(transition));
    }

    /// Emits an effect of any kind.
    pub fn push(&mut self, effect: Effect<P>) {
        self.0.push(effect);
    }

    /// Takes all effects out, keeping the allocation.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Effect<P>> {
        self.0.drain(..)
    }

    /// The effects emitted so far, in order.
    pub fn as_slice(&self) -> &[Effect<P>] {
        &self.0
    }

    /// Whether no effect was emitted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<P: Protocol> IntoIterator for Effects<P> {
    type Item = Effect<P>;
    type IntoIter = std::vec::IntoIter<Effect<P>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
