//! The part that every host runs: a protocol beside a state machine, [`Replica`].
//!
//! The replica owns what all protocols need and none should write again: the gate that holds effects back until the records they rest on
//! are durable ([`gate`]), tickets and forwarding to the leader ([`proposals`]), recognition of second copies ([`applied_requests`]), the clock of
//! leases ([`clock`]), read barriers ([`reads`]), snapshots ([`snapshots`]), and the version of the rules by which entries are applied
//! ([`versions`]). It is a plain value like the protocol inside: an [`Event`] goes in, [`Action`]s come out, and the host does them.
//!
//! ```text
//!    Event ──► Replica ──► P::step ──► Effects ──► gate ──► Action
//!                 │                                  │
//!                 └── tickets, reads, snapshots      └── Apply ──► S::apply
//! ```
//!
//! Read next: `crates/node`, the host that does the actions for real.

pub mod application;
pub mod applied_requests;
pub mod backlog;
pub mod birth;
pub mod clock;
pub mod contents;
mod deadlines;
pub mod digests;
pub mod event;
pub mod gate;
pub mod message;
pub mod proposals;
pub mod reads;
pub mod replicated;
pub mod snapshots;
pub mod state_machine;
pub mod succession;
pub mod versions;
pub mod witness;

use crate::laboratory::Defect;
use crate::protocol::{Effect, Effects, Input, LinkState, Outcome, Protocol, Refusal, RestsOn, Ticket};
use crate::{
    Contradiction, Entry, EntryKind, Lsn, Membership, NodeId, Origin, Record, Role, Stamp, StateMachine, Status,
    Timing, Transition,
};
use applied_requests::AppliedRequests;
use backlog::Backlog;
pub use birth::Birth;
use bytes::Bytes;
use clock::Clock;
pub use contents::{ReplicaState, SnapshotContents};
use deadlines::DeadlineTimer;
pub use event::{Action, Event, ReplicaTimer, Request, View, ViewOf};
use gate::{Gate, Gated};
pub use message::ReplicaMessage;
use proposals::Proposals;
use reads::Reads;
pub use snapshots::Policy;
use snapshots::Snapshots;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
pub use versions::ApplyVersion;
use witness::Blank;

/// Numbers records in the order of their emission, from 1 in each life of a replica.
pub type RecordNumber = u64;

/// A host's name for one client request. Proposals are numbered consecutively from 1 in each life of a replica; reads
/// and administrators' requests have counters of their own.
pub type RequestId = u64;

/// A protocol and a state machine, and what stands between them and clients.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Replica<P: Protocol, S: StateMachine> {
    me: NodeId,
    incarnation: u64,
    timing: Timing,
    protocol: P,
    machine: S,
    /// The state of an empty log, which a witness keeps.
    blank: Blank<S>,
    is_witness: bool,
    applied_requests: AppliedRequests,
    gate: Gate<P>,
    backlog: Backlog,
    applied: Lsn,
    membership: Arc<Membership>,
    /// Index of the entry that brought this membership into force, until that is applied; then, and at birth, 0.
    reconfigured_at: u64,
    role: Role,
    leader: Option<NodeId>,
    clock: Clock,
    deadline: DeadlineTimer,
    proposals: Proposals,
    reads: Reads,
    snapshots: Snapshots,
    /// Version of the rules by which entries are applied; `can` is the highest that this build can.
    version: ApplyVersion,
    can: ApplyVersion,
    /// An entry asked for a version that this build cannot apply: nothing happens any more.
    has_stopped: bool,
    /// Messages of the protocol to itself, which it hears after everything before them was carried out.
    own_messages: VecDeque<P::Message>,
    /// The leader changed in this step; acted upon once the step's own effects are carried out, for the same reason.
    is_leader_news: bool,
    /// Numbers pile up above a gap in what was applied of this life; seen to at the end of the step.
    is_settling: bool,
    /// A planted defect, in the laboratory.
    defect: Option<Defect>,
}

impl<P: Protocol, S: StateMachine> Replica<P, S> {
    /// Takes one event, and applies all that it lets be applied.
    ///
    /// # Panics
    /// When the protocol reaches an impossible state.
    pub fn step(&mut self, event: Event<P, S>, out: &mut Vec<Action<P, S>>) {
        self.step_within_slice(event, out);
        self.catch_up(out);
    }

    fn catch_up(&mut self, out: &mut Vec<Action<P, S>>) {
        while self.is_behind() {
            self.next_slice(out);
        }
        self.backlog.begin_slice();
    }

    /// Whether committed entries wait for the next slice.
    pub fn is_behind(&self) -> bool {
        !self.has_stopped && !self.snapshots.is_loading() && !self.backlog.is_empty()
    }

    /// Number of committed entries that wait for a slice, or for a snapshot that is being loaded.
    pub fn behind(&self) -> usize {
        self.backlog.len()
    }

    /// Begins the next slice, and applies what has waited for it, as far as the slice goes. For hosts that take events by
    /// [`Replica::step_within_slice`]: once before the events that they take together.
    ///
    /// # Panics
    /// As [`Replica::step`].
    pub fn next_slice(&mut self, out: &mut Vec<Action<P, S>>) {
        self.backlog.begin_slice();
        if self.is_behind() {
            self.apply_waiting(out);
            self.after_applying(out);
            self.hear_own_messages(out);
        }
    }

    /// Applies what waits, in order, until the slice is spent or a snapshot must be loaded first.
    fn apply_waiting(&mut self, out: &mut Vec<Action<P, S>>) {
        while self.is_behind() {
            let Some(gated) = self.backlog.next() else { return };
            self.release_next(gated, out);
        }
    }

    /// Takes one event. Entries that it lets be applied beyond this slice wait for [`Replica::next_slice`].
    ///
    /// # Panics
    /// As [`Replica::step`].
    pub fn step_within_slice(&mut self, event: Event<P, S>, out: &mut Vec<Action<P, S>>) {
        if self.has_stopped || self.is_left_out(&event, out) {
            return;
        }
        match event {
            Event::Peer { from, message } => self.on_message(from, message, out),
            Event::Timer(ReplicaTimer::Protocol(timer)) => self.feed(Input::Timer(timer), out),
            Event::Timer(ReplicaTimer::Retry) => self.on_retry(out),
            Event::Timer(ReplicaTimer::Again) => self.on_again(out),
            Event::Timer(ReplicaTimer::Deadline) => self.on_deadline(out),
            Event::Timer(ReplicaTimer::Chunk) => self.on_chunk_overdue(out),
            Event::Link { peer, state } => self.on_link(peer, state, out),
            Event::Durable(number) => self.on_durable(number, out),
            Event::Elapsed(micros) => {
                self.clock.on_elapsed(micros);
                self.snapshots.on_elapsed(micros);
            }
            Event::Propose(requests) => self.on_propose(requests, out),
            Event::Read(requests) => self.on_read(requests, out),
            Event::Abandon(request) => self.proposals.forget(request),
            Event::AbandonReads(requests) => self.abandon_reads(&requests, out),
            Event::Admin { request, admin } => {
                self.feed(Input::Admin { ticket: Ticket::Admin(request), request: admin }, out)
            }
            Event::SnapshotCut(reference) => self.on_snapshot_cut(reference, out),
            Event::SnapshotStored(stored) => self.on_snapshot_stored(stored, out),
            Event::ChunkStored { bytes } => self.on_chunk_stored(bytes, out),
            Event::SnapshotLoaded { lsn, machine, state } => self.on_snapshot_loaded(lsn, *machine, state, out),
            Event::ChunkRead { to, lsn, offset, bytes } => self.on_chunk_read(to, lsn, offset, bytes, out),
            Event::Retime(timing) => {
                self.timing = timing;
                self.feed(Input::Retime(timing), out)
            }
            Event::Able(able) => self.on_able(&able, out),
            Event::Compare => self.on_compare(out),
            Event::Health(health) => self.feed(Input::Health(health), out),
        }
        self.hear_own_messages(out);
    }

    /// Whether it is certain that two histories exist: this node takes part in neither. Its log stays as it is, and clients wait as
    /// without a leader; no quorum may be had with it.
    fn is_aside(&self) -> bool {
        self.protocol.contradiction().is_some_and(|found| found.is_certain)
    }

    /// Whether this is an event that would let a node take part that stands aside; an operator's request is answered.
    fn is_left_out(&self, event: &Event<P, S>, out: &mut Vec<Action<P, S>>) -> bool {
        if !self.is_aside() {
            return false;
        }
        match event {
            Event::Admin { request, .. } => {
                let outcome = Outcome::Refused(Refusal::NotLeader(None));
                out.push(Action::AdminEnded { request: *request, outcome });
                true
            }
            Event::Peer { .. } | Event::Timer(ReplicaTimer::Protocol(_)) | Event::Link { .. } | Event::Health(_) => {
                true
            }
            _ => false,
        }
    }

    /// Numbers records from 1 again if all of them are durable: for checkers, which must see replicas that behave alike
    /// as equal.
    pub fn forget_numbers(&mut self) {
        self.gate.forget_numbers();
    }

    /// The protocol value, for inspection.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// Another member's entry where one is committed here, until more is committed.
    pub fn contradiction(&self) -> Option<Contradiction> {
        self.protocol.contradiction()
    }

    /// The status of the protocol inside.
    pub fn status(&self) -> Status {
        self.protocol.status()
    }

    /// The state machine, for inspection.
    pub fn machine(&self) -> &S {
        &self.machine
    }

    /// The last entry that was applied.
    pub fn applied(&self) -> Lsn {
        self.applied
    }

    /// How far this node has fetched a snapshot: the last index that it holds, and the bytes of it that have come. Zeros while there is none
    /// to fetch; a fetch that waits for another source counts.
    pub fn fetched(&self) -> (u64, u64) {
        self.snapshots.fetched()
    }

    /// This node's id, unique in its cluster and never reused.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// The role of this node.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The leader that it follows (itself when leading); `None` if it knows none.
    pub fn leader(&self) -> Option<NodeId> {
        self.leader
    }

    /// The membership as of the last applied entry.
    pub fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    /// Proposals that were applied, for inspection.
    pub fn applied_requests(&self) -> &AppliedRequests {
        &self.applied_requests
    }

    /// Proposals of this node's clients that have no outcome yet.
    pub fn outstanding(&self) -> usize {
        self.proposals.len()
    }

    /// Gives the protocol one input and carries out what it wants.
    fn feed(&mut self, input: Input<P>, out: &mut Vec<Action<P, S>>) {
        let mut effects = Effects::new();
        self.protocol.step(input, &mut effects);
        self.protocol.assert_invariants();
        self.carry_out(effects, out);
    }

    /// One flat dispatcher: what is visible at once happens at once, the rest waits at the gate.
    fn carry_out(&mut self, effects: Effects<P>, out: &mut Vec<Action<P, S>>) {
        for effect in effects {
            match effect {
                Effect::Persist(record) => {
                    if let Record::Put(entry) = &record {
                        self.clock.on_written(entry);
                    }
                    let number = self.gate.number(&record);
                    out.push(Action::Persist(number, record));
                }
                // Also the messages of the step that found two histories.
                Effect::Send { .. } if self.is_aside() => {}
                Effect::Send { to, message, rests_on } => {
                    let is_early = self.defect.is_some_and(|defect| defect.sends_early(to == self.me, rests_on));
                    let rests_on = if is_early { RestsOn::Nothing } else { rests_on };
                    if let Some(gated) = self.gate.send(to, message, rests_on) {
                        self.release(gated, out);
                    }
                }
                Effect::Apply(entry) => {
                    if let Some(gated) = self.gate.apply(entry) {
                        self.release(gated, out);
                    }
                }
                Effect::Reconfigure { membership, index } => {
                    if let Some(gated) = self.gate.reconfigure(membership, index) {
                        self.release(gated, out);
                    }
                }
                Effect::Restore(reference) => {
                    if let Some(gated) = self.gate.restore(reference) {
                        self.release(gated, out);
                    }
                }
                Effect::FetchSnapshot { from, reference } => self.fetch(from, reference, out),
                Effect::ReadAt { ticket, index } => self.on_read_at(ticket, index, out),
                Effect::Reply { ticket, outcome } => self.on_outcome(ticket, outcome, out),
                Effect::SetTimer { timer, after } => out.push(Action::SetTimer(ReplicaTimer::Protocol(timer), after)),
                Effect::CancelTimer(timer) => out.push(Action::CancelTimer(ReplicaTimer::Protocol(timer))),
                Effect::Announce(transition) => self.on_transition(transition, out),
            }
        }
        self.after_applying(out);
    }

    fn release(&mut self, gated: Gated<P>, out: &mut Vec<Action<P, S>>) {
        match gated {
            // Also what was said before and rests on a record that has become durable now: an acknowledgement makes a quorum.
            Gated::Send(..) if self.is_aside() => {}
            Gated::Send(to, message) if to == self.me => self.own_messages.push_back(message),
            Gated::Send(to, message) => out.push(Action::Send(to, ReplicaMessage::Protocol(message))),
            gated if self.snapshots.is_loading() || self.backlog.must_wait() => self.backlog.push(gated),
            gated => self.release_next(gated, out),
        }
    }

    /// Carries out an application that waits for nothing.
    fn release_next(&mut self, gated: Gated<P>, out: &mut Vec<Action<P, S>>) {
        match gated {
            Gated::Send(..) => unreachable!("messages never wait for applications"),
            Gated::Apply(entry) => self.apply(entry, out),
            Gated::Reconfigure(membership, index) => self.on_reconfigured(membership, index, out),
            Gated::Restore(reference) => self.load(reference, out),
        }
    }

    /// Hears the messages to itself. Last in a step, since their effects must not overtake those emitted before.
    fn hear_own_messages(&mut self, out: &mut Vec<Action<P, S>>) {
        loop {
            if std::mem::take(&mut self.is_leader_news) {
                self.on_leader_changed(out);
            } else if std::mem::take(&mut self.is_settling) {
                self.settle_requests(out);
            } else if let Some(message) = self.own_messages.pop_front() {
                self.feed(Input::Message { from: self.me, message }, out);
            } else {
                return;
            }
        }
    }

    fn on_durable(&mut self, number: RecordNumber, out: &mut Vec<Action<P, S>>) {
        for gated in self.gate.on_durable(number) {
            self.release(gated, out);
        }
        self.after_applying(out);
    }

    fn apply(&mut self, entry: Entry, out: &mut Vec<Action<P, S>>) {
        if self.stops_at(&entry, out) {
            return;
        }
        let Entry { lsn, kind, origin, stamp, payload } = entry;
        assert_eq!(lsn.index, self.applied.index + 1, "entries are applied in order, without gaps");
        self.applied = lsn;
        self.snapshots.on_applied(payload.len());
        if stamp != Stamp::NONE {
            if self.deadline == DeadlineTimer::Advancing {
                self.deadline = DeadlineTimer::Disarmed;
            }
            // Once per batch, mostly: what was proposed together shows the same time.
            let elapsed = self.clock.on_applied(stamp);
            if elapsed > Duration::ZERO && !self.is_witness {
                application::call(|| of_entry("advance", lsn, &payload), || self.machine.advance(elapsed));
                self.backlog.spend(self.machine.last_cost());
            }
        }
        let mine = origin.node == self.me && origin.incarnation == self.incarnation;
        let has_reconfigured = std::mem::take(&mut self.reconfigured_at) == lsn.index;
        if kind == EntryKind::Command {
            self.proposals.on_forward_applied(&origin);
        }
        match kind {
            EntryKind::Command if self.is_witness => {
                // It was proposed here before this member knew what it is, and others computed the answer.
                if mine && self.proposals.take(origin.sequence) {
                    out.push(Action::Unknown { request: origin.sequence });
                }
            }
            EntryKind::Command if self.applied_requests.admit(origin) => {
                let response =
                    application::call(|| of_entry("apply", lsn, &payload), || self.machine.apply(lsn, &payload));
                self.backlog.spend(self.machine.last_cost());
                if mine && self.proposals.take(origin.sequence) {
                    out.push(Action::Applied { request: origin.sequence, lsn, response });
                }
                self.is_settling |= mine && self.applied_requests.has_gap(self.me, self.incarnation);
            }
            EntryKind::Command => {
                // A second copy, or one so old that it cannot be told from one: its first outcome stands, if anybody
                // saw it.
                if mine && self.proposals.take(origin.sequence) {
                    out.push(Action::Unknown { request: origin.sequence });
                }
            }
            EntryKind::Membership => {
                if mine && self.proposals.take(origin.sequence) {
                    let (request, membership) = (origin.sequence, self.membership.clone());
                    // One that could not be made any more changed nothing; a second copy of it may yet be made.
                    out.push(match has_reconfigured {
                        true => Action::Reconfigured { request, membership },
                        false => Action::Unknown { request },
                    });
                }
            }
            EntryKind::Blank if origin == Origin::NOBODY => {
                self.on_raise(&payload, out);
                self.on_compare_applied(&payload, out);
            }
            EntryKind::Blank => self.applied_requests.on_blank(origin, &payload),
            EntryKind::Protocol => {}
        }
    }

    /// Follows up on a run of applied entries: reads that waited, snapshots that are due, a deadline that moved.
    fn after_applying(&mut self, out: &mut Vec<Action<P, S>>) {
        self.serve_reads(out);
        self.cut_if_due(out);
        self.arm_deadline(out);
    }

    fn on_message(&mut self, from: NodeId, message: ReplicaMessage<P::Message>, out: &mut Vec<Action<P, S>>) {
        match message {
            ReplicaMessage::Protocol(message) => self.feed(Input::Message { from, message }, out),
            ReplicaMessage::Forward { incarnation, requests } => self.on_forward(from, incarnation, requests, out),
            ReplicaMessage::ForwardRefused { incarnation, sequence, refusal } => {
                if incarnation == self.incarnation {
                    self.on_refused(sequence, refusal, out);
                }
            }
            ReplicaMessage::AskRead { number } => {
                self.feed(Input::Read { ticket: Ticket::Read { node: from, number } }, out)
            }
            ReplicaMessage::ReadAt { number, index } => self.on_barrier(number, index, out),
            ReplicaMessage::ReadRefused { number } => self.on_barrier_refused(number, out),
            ReplicaMessage::AskChunk { lsn, digest, offset } => {
                self.on_chunk_asked(from, lsn, digest, offset, out);
            }
            ReplicaMessage::Chunk { lsn, offset, bytes } => self.on_chunk(from, lsn, offset, bytes, out),
            ReplicaMessage::ChunkGone { lsn } => self.on_chunk_gone(from, lsn, out),
            // Between hosts: a value has no clock to measure with.
            ReplicaMessage::Ping { .. }
            | ReplicaMessage::Pong { .. }
            | ReplicaMessage::Digest { .. }
            | ReplicaMessage::Durable { .. } => {}
        }
    }

    fn on_link(&mut self, peer: NodeId, state: LinkState, out: &mut Vec<Action<P, S>>) {
        self.feed(Input::Link { peer, state }, out);
        // A request on its way to the leader may have died with the link; it is recognised if it did not.
        if Some(peer) == self.leader && state == LinkState::Up {
            self.send_again(out);
        }
        if state == LinkState::Down {
            self.on_fetch_source_down(peer, out);
        }
    }

    fn on_transition(&mut self, transition: Transition, out: &mut Vec<Action<P, S>>) {
        let was_leading = self.role == Role::Leader;
        let (old_leader, term) = (self.leader, transition.term);
        self.role = transition.to;
        self.leader = transition.leader;
        out.push(Action::Announce(transition));
        match self.role {
            Role::Leader if !was_leading => self.clock.lead(term),
            Role::Leader => {}
            _ => self.clock.follow(),
        }
        if self.role != Role::Leader && self.deadline != DeadlineTimer::Disarmed {
            self.deadline = DeadlineTimer::Disarmed;
            out.push(Action::CancelTimer(ReplicaTimer::Deadline));
        }
        if (self.role == Role::Leader) != was_leading {
            self.proposals.forget_forwarded();
        }
        // A new leader's first entry must be in the log before the proposals that waited for it.
        self.is_leader_news |= self.leader != old_leader || (self.role == Role::Leader) != was_leading;
    }

    /// The answers to tickets that a protocol gives itself.
    fn on_outcome(&mut self, ticket: Ticket, outcome: Outcome, out: &mut Vec<Action<P, S>>) {
        match ticket {
            Ticket::Admin(request) => out.push(Action::AdminEnded { request, outcome }),
            Ticket::Read { node, number } if node == self.me => self.on_barrier_refused(number, out),
            Ticket::Read { node, number } => out.push(Action::Send(node, ReplicaMessage::ReadRefused { number })),
            Ticket::Proposal(origin) => {
                let Outcome::Refused(refusal) = outcome else {
                    unreachable!("the outcome of an accepted proposal is its application");
                };
                self.refuse_origin(origin, refusal, out);
            }
        }
    }

    fn refuse_origin(&mut self, origin: Origin, refusal: Refusal, out: &mut Vec<Action<P, S>>) {
        if origin == Origin::NOBODY {
            // The next deadline is looked for in a moment, by the retry timer of a waiting node or by the next entry.
            self.deadline = DeadlineTimer::Disarmed;
            return;
        }
        if origin.node != self.me {
            self.proposals.on_forward_refused(origin, &refusal);
            let Origin { node, incarnation, sequence } = origin;
            out.push(Action::Send(node, ReplicaMessage::ForwardRefused { incarnation, sequence, refusal }));
        } else if origin.incarnation == self.incarnation {
            self.on_refused(origin.sequence, refusal, out);
        }
    }
}

/// Says at which entry a method of the application panicked.
fn of_entry(method: &str, lsn: Lsn, payload: &Bytes) -> String {
    format!(
        "{method} panicked at entry {lsn}, a command of {} bytes; every member applies it, and again at each start: give it an error as \
         its answer, and start that build",
        payload.len()
    )
}
