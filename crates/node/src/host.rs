//! The loop that owns a replica: [`Host`].
//!
//! It waits for anything, takes everything that is there, steps the replica once for each, and then does what came out: one
//! batch for the disk thread, one write per peer. Events that arrive while the disk syncs are the next batch.

use crate::config::OnFatal;
use crate::counters::Counters;
use crate::disk::{Batch, DiskNews, DiskThread};
use crate::gatekeeper::Gatekeeper;
use crate::handle::{Applied, Call, Happening, NodeStatus, Readable, RequestError};
use crate::link::{Arrival, Links, Outbox};
use crate::loop_timer::LoopTimer;
use crate::node::or_fatal;
use crate::pace::Pace;
use crate::snapshots::{SnapshotJob, SnapshotJobs, SnapshotNews};
use crate::timers::{Eagerness, Timers, boot_micros};
use hustings_core::protocol::LinkState;
use hustings_core::replica::{Action, Event, RecordNumber, Replica, ReplicaMessage, ReplicaTimer, Request, RequestId};
use hustings_core::{
    Change, EntryKind, Membership, MembershipChange, NodeId, Outcome, Protocol, SnapshotReference, StateMachine,
    Succession, Wire,
};
use hustings_recorder::{Mark, Tape};
use hustings_wal::Disk;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::Instant;

mod acting;
mod integrity;
mod news;
mod noting;
mod reading;
mod upkeep;

use integrity::Integrity;
use news::News;
use noting::Noting;
pub(crate) use noting::clock_offset_micros;
use upkeep::Describing;

/// Inputs taken in one turn before what they led to is sent out.
const TURN_MAX: usize = 512;
/// A turn that has stepped for so long takes no further input: heartbeats and timers have the next one.
const TURN_MICROS_MAX: u64 = 10_000;
/// Payload bytes of this node's clients' proposals after which a turn takes no further input.
const TURN_PROPOSED_BYTES_MAX: usize = 8 << 20;
/// A timer this late means that the process was held up: what peers said meanwhile is heard first.
const LATE: Duration = Duration::from_millis(20);
/// Most clients that may wait for the outcome of a proposal, and most that may wait for a read; further ones are refused at once.
const WAITING_MAX: usize = 65_536;
/// Committed entries that may wait to be applied here before this node takes no more proposals: as in etcd.
const BEHIND_MAX: usize = 5_000;
/// How often waiters that gave up are swept out and members are reconciled.
const SWEEP_EVERY: Duration = Duration::from_millis(500);
/// As many requests and applied entries between two sweeps are many.
const REQUESTS_MANY: u64 = 3_000;

/// Everything a loop is connected to.
pub(crate) struct Wiring<P: Protocol, S: StateMachine> {
    pub(crate) disk: DiskThread,
    pub(crate) disk_queue: mpsc::UnboundedReceiver<DiskNews>,
    pub(crate) files: Arc<dyn Disk>,
    pub(crate) snapshot_jobs: SnapshotJobs<S>,
    pub(crate) snapshot_queue: mpsc::UnboundedReceiver<SnapshotNews<S>>,
    pub(crate) links: Rc<Links<P::Message>>,
    pub(crate) gatekeeper: Rc<RefCell<Gatekeeper>>,
    pub(crate) arrival_queue: mpsc::Receiver<Arrival<P::Message>>,
    pub(crate) call_queue: mpsc::Receiver<Call<S>>,
    pub(crate) status: watch::Sender<NodeStatus>,
    pub(crate) applied: watch::Sender<u64>,
    pub(crate) happenings: broadcast::Sender<Happening>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) disk_stall_after: Duration,
    pub(crate) compare_states_every: Option<Duration>,
    pub(crate) pace: Pace,
    pub(crate) clock: LoopTimer,
    pub(crate) on_fatal: OnFatal,
    pub(crate) on_removed: OnFatal,
    pub(crate) tape: Option<Tape>,
    /// The wall clock less the boot clock, in microseconds, before the recording began.
    pub(crate) clock_offset_micros: i64,
}

type Answer<T> = oneshot::Sender<Result<T, RequestError>>;

/// The caller that waits for the outcome of a proposal.
enum Proposer<S: StateMachine> {
    Client(Answer<Applied<S::Response>>),
    Operator(Answer<Arc<Membership>>),
    /// The node itself, keeping the membership's names and addresses true.
    Reconciliation,
}

impl<S: StateMachine> Proposer<S> {
    fn fail(self, error: RequestError) {
        // An answer that nobody waits for any more is not an error.
        match self {
            Proposer::Client(answer) => drop(answer.send(Err(error))),
            Proposer::Operator(answer) => drop(answer.send(Err(error))),
            Proposer::Reconciliation => {}
        }
    }

    fn has_given_up(&self) -> bool {
        match self {
            Proposer::Client(answer) => answer.is_closed(),
            Proposer::Operator(answer) => answer.is_closed(),
            Proposer::Reconciliation => false,
        }
    }
}

/// The reason for which a turn begins.
enum Heard<P: Protocol, S: StateMachine> {
    Disk(DiskNews),
    Peer(Arrival<P::Message>),
    Snapshot(SnapshotNews<S>),
    /// `None` when nobody holds a handle any more.
    Call(Option<Call<S>>),
    Time(std::io::Result<()>),
    /// The last turn left something to do.
    Nothing,
}

struct Link {
    session: u64,
    outbox: Rc<Outbox>,
    hello: crate::frame::Hello,
    /// Whether the peer's own word on its peer URLs was taken over in this life of it.
    is_introduced: bool,
}

pub(crate) struct Host<P: Protocol, S: StateMachine> {
    replica: Replica<P, S>,
    wiring: Wiring<P, S>,
    timers: Timers<ReplicaTimer<P::Timer>>,
    links: BTreeMap<NodeId, Link>,
    proposers: HashMap<RequestId, Proposer<S>>,
    readers: HashMap<RequestId, Answer<Readable<S::View>>>,
    admins: HashMap<RequestId, oneshot::Sender<Outcome>>,
    next_proposal: RequestId,
    next_request: RequestId,
    /// Proposals and reads of this turn, handed to the replica together.
    proposals: Vec<Request>,
    proposed_bytes: usize,
    reads: Vec<RequestId>,
    actions: Vec<Action<P, S>>,
    batch: Batch,
    /// The last snapshot that a record names, until that record is durable and older files may go.
    unpruned: Option<(RecordNumber, SnapshotReference)>,
    boot_micros: u64,
    next_sweep: Instant,
    eagerness: Eagerness,
    /// Requests since the last sweep, and what was applied at that.
    requests_since_sweep: u64,
    applied_at_sweep: u64,
    is_disk_stalled: bool,
    describing: Describing,
    integrity: Integrity,
    news: News,
    /// Changes that nobody was told of yet, and the leader of the last one.
    untold: Vec<Happening>,
    leader_seen: Option<NodeId>,
    /// The members in the order in which they ask once the leader falls silent.
    succession: Succession,
    noting: Noting,
    told_applied: u64,
    stopping: Option<oneshot::Sender<()>>,
    has_ended: bool,
}

impl<P: Protocol, S: StateMachine> Host<P, S> {
    pub(crate) fn new(replica: Replica<P, S>, wiring: Wiring<P, S>) -> Host<P, S> {
        let integrity = Integrity::new(wiring.compare_states_every);
        let noting = Noting::new(wiring.clock_offset_micros);
        Host {
            replica,
            wiring,
            timers: Timers::new(),
            links: BTreeMap::new(),
            proposers: HashMap::new(),
            readers: HashMap::new(),
            admins: HashMap::new(),
            next_proposal: 1,
            next_request: 1,
            proposals: Vec::new(),
            proposed_bytes: 0,
            reads: Vec::new(),
            actions: Vec::new(),
            batch: Vec::new(),
            unpruned: None,
            boot_micros: boot_micros(),
            next_sweep: Instant::now() + SWEEP_EVERY,
            eagerness: Eagerness::of_this_thread(),
            requests_since_sweep: 0,
            applied_at_sweep: 0,
            is_disk_stalled: false,
            describing: Describing::default(),
            integrity,
            news: News::new(),
            untold: Vec::new(),
            leader_seen: None,
            succession: Succession::default(),
            noting,
            told_applied: 0,
            stopping: None,
            has_ended: false,
        }
    }

    /// Runs until stopped, or until nobody holds a handle; gives back the caller that waits to hear that all of the node is gone.
    pub(crate) async fn run(mut self, first: Vec<Action<P, S>>) -> Option<oneshot::Sender<()>> {
        self.actions = first;
        self.turn_out();
        while !self.has_ended {
            let wake = self.timers.next().map_or(self.next_sweep, |next| next.min(self.next_sweep));
            let is_behind = self.replica.is_behind();
            if is_behind {
                // Between two slices of what is to be applied the links have a turn: what they read is heard below.
                tokio::task::yield_now().await;
            }
            let heard = tokio::select! { biased;
                Some(news) = self.wiring.disk_queue.recv() => Heard::Disk(news),
                Some(arrival) = self.wiring.arrival_queue.recv() => Heard::Peer(arrival),
                Some(news) = self.wiring.snapshot_queue.recv() => Heard::Snapshot(news),
                call = self.wiring.call_queue.recv() => Heard::Call(call),
                reached = self.wiring.clock.reach(wake) => Heard::Time(reached),
                () = std::future::ready(()), if is_behind => Heard::Nothing,
            };
            let woken = Instant::now();
            self.begin_turn(wake, woken);
            self.take(heard);
            self.begin_slice();
            self.take_what_is_there();
            self.fire_due_timers().await;
            self.turn_out();
            self.end_turn(woken);
        }
        self.tell_transitions();
        if self.stopping.is_some() {
            self.hand_over_batch();
            self.say_last_words();
        }
        self.wiring.status.send_modify(|status| (status.role, status.leader) = (hustings_core::Role::Follower, None));
        tracing::info!(node = self.own_name(), "stopped");
        self.stopping.take()
    }

    fn take(&mut self, heard: Heard<P, S>) {
        match heard {
            Heard::Disk(news) => self.on_disk(news),
            Heard::Peer(arrival) => self.on_arrival(arrival),
            Heard::Snapshot(news) => self.on_snapshot(news),
            Heard::Call(Some(call)) => self.on_call(call),
            Heard::Call(None) => self.has_ended = true,
            Heard::Time(Err(error)) => {
                (self.wiring.on_fatal)(&format!("the kernel's timer failed: {error}"));
                self.has_ended = true;
            }
            Heard::Time(Ok(())) | Heard::Nothing => {}
        }
    }

    fn take_what_is_there(&mut self) {
        let until = boot_micros() + TURN_MICROS_MAX;
        for _ in 0..TURN_MAX {
            if self.boot_micros >= until || self.proposed_bytes >= TURN_PROPOSED_BYTES_MAX {
                break;
            }
            if self.hear_disk_or_peer() {
                continue;
            }
            if let Ok(news) = self.wiring.snapshot_queue.try_recv() {
                self.on_snapshot(news);
            } else if let Ok(call) = self.wiring.call_queue.try_recv() {
                self.on_call(call);
            } else {
                break;
            }
        }
        self.hand_over_requests();
    }

    /// Takes the next word of the disk, or else of a peer; says whether there was one.
    fn hear_disk_or_peer(&mut self) -> bool {
        if let Ok(news) = self.wiring.disk_queue.try_recv() {
            self.on_disk(news);
        } else if let Ok(arrival) = self.wiring.arrival_queue.try_recv() {
            self.on_arrival(arrival);
        } else {
            return false;
        }
        true
    }

    /// A host that wakes late hears what its peers said before it believes its own timers (ADR 29).
    async fn fire_due_timers(&mut self) {
        let now = Instant::now();
        if self.timers.next().is_some_and(|next| now.saturating_duration_since(next) > LATE) {
            for _ in 0..3 {
                tokio::task::yield_now().await;
                // All of it, however long that takes, and nothing of clients.
                for _ in 0..TURN_MAX {
                    if !self.hear_disk_or_peer() {
                        break;
                    }
                }
            }
        }
        while let Some(timer) = self.timers.take_due(Instant::now()) {
            self.step(Event::Timer(timer));
        }
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP_EVERY;
            self.sweep();
        }
    }

    // --- In. -----------------------------------------------------------------------------------------------------

    fn step(&mut self, event: Event<P, S>) {
        if self.has_ended {
            // After a panic or a failed disk nothing that this value says may reach the world.
            return;
        }
        let now = boot_micros();
        let elapsed = now.saturating_sub(self.boot_micros);
        self.boot_micros = now;
        let (replica, actions) = (&mut self.replica, &mut self.actions);
        let stepped = or_fatal(&self.wiring.on_fatal, || {
            if elapsed > 0 {
                replica.step_within_slice(Event::Elapsed(elapsed), actions);
            }
            replica.step_within_slice(event, actions);
        });
        if stepped.is_none() {
            self.actions.clear();
            self.has_ended = true;
            return;
        }
        self.act();
    }

    fn on_disk(&mut self, news: DiskNews) {
        match news {
            DiskNews::Durable { number, batches } => {
                self.wiring.gatekeeper.borrow_mut().hello.durable = batches;
                self.step(Event::Durable(number));
                if let Some((_, reference)) = self.unpruned.take_if(|(record, _)| *record <= number) {
                    self.hand_to_snapshots(SnapshotJob::Prune(reference));
                }
            }
            DiskNews::Failed(error) => {
                (self.wiring.on_fatal)(&format!("the disk failed: {error}"));
                self.has_ended = true;
            }
        }
    }

    fn on_arrival(&mut self, arrival: Arrival<P::Message>) {
        match arrival {
            Arrival::Message { peer, session, message } => {
                if let Some(link) = self.links.get(&peer).filter(|link| link.session == session) {
                    match message {
                        ReplicaMessage::Ping { sent_micros } => {
                            link.outbox.put(pong::<P>(sent_micros));
                            self.mark_clock_of(peer, sent_micros);
                        }
                        ReplicaMessage::Pong { sent_micros } => {
                            let micros = boot_micros().saturating_sub(sent_micros);
                            if !link.outbox.of_peer.reach.was_still_since(sent_micros) {
                                link.outbox.on_round_trip(micros);
                                self.wiring.pace.on_round_trip(micros);
                            }
                        }
                        ReplicaMessage::Digest { index, digest } => self.on_digest_of(peer, index, digest),
                        ReplicaMessage::Durable(positions) => self.on_positions(positions),
                        message => self.step(Event::Peer { from: peer, message }),
                    }
                }
            }
            Arrival::Up { peer, session, hello, outbox } => {
                self.mark(|host| Mark::LinkUp { peer: host.name_of(peer) });
                let link = Link { session, outbox, hello: *hello, is_introduced: false };
                // So that its clock is known soon; it may be another start of its machine.
                link.outbox.put(ping::<P>());
                self.noting.clocks.remove(&peer);
                if let Some(old) = self.links.insert(peer, link) {
                    old.outbox.close();
                    self.step(Event::Link { peer, state: LinkState::Down });
                }
                self.step(Event::Link { peer, state: LinkState::Up });
                self.end_if_removed(peer);
                self.on_introduced(peer);
                self.reconcile();
            }
            Arrival::Down { peer, session, why } => {
                self.mark(|host| Mark::LinkDown { peer: host.name_of(peer), why });
                if self.links.get(&peer).is_some_and(|link| link.session == session) {
                    self.links.remove(&peer);
                    self.integrity.remember_soon();
                    self.step(Event::Link { peer, state: LinkState::Down });
                }
            }
            Arrival::RolledBack { why } => self.on_rolled_back(&why),
            // One of several voters cannot lead, and waits. The only voter leads, beside the cluster that lives.
            Arrival::AnotherDirectory { why } if self.wiring.gatekeeper.borrow().is_the_only_voter() => {
                self.on_rolled_back(&format!(
                    "{why}. This directory was begun as a cluster of one, beside the one that lives: what was written into it since is in it alone (`hustings recover` makes a cluster of it), and it serves no more"
                ));
            }
            Arrival::AnotherDirectory { .. } => {}
            Arrival::Removed { why } => {
                // The peers know better than this node's log: it is out, and says so to its operator, and to the client that asked for it
                // here.
                self.wiring.status.send_modify(|status| {
                    let left = MembershipChange::of([Change::Remove(status.me)]);
                    if let Ok(membership) = status.membership.after(&left) {
                        status.membership = Arc::new(membership);
                    }
                });
                (self.wiring.on_removed)(&why);
                self.has_ended = true;
            }
        }
    }

    fn on_call(&mut self, call: Call<S>) {
        self.requests_since_sweep += 1;
        match call {
            Call::Propose { reply, .. }
                if self.proposers.len() >= WAITING_MAX || self.replica.behind() > BEHIND_MAX =>
            {
                drop(reply.send(Err(RequestError::QueueFull)));
            }
            Call::Read { reply } if self.readers.len() >= WAITING_MAX => {
                drop(reply.send(Err(RequestError::QueueFull)));
            }
            Call::Propose { payload, reply } => {
                let proposer = Proposer::Client(reply);
                self.propose(EntryKind::Command, payload, proposer);
                Counters::add(&self.wiring.counters.proposals, 1);
            }
            Call::ChangeMembership { change, reply } => {
                self.propose(EntryKind::Membership, change.to_bytes(), Proposer::Operator(reply));
            }
            Call::Read { reply } => {
                let request = self.number_request();
                self.readers.insert(request, reply);
                self.reads.push(request);
            }
            Call::ReadLocal { reply } => {
                let _ = reply.send(self.readable_now());
            }
            Call::Admin { admin, reply } => {
                self.mark(|host| Mark::Asked { what: host.in_words(&admin) });
                let request = self.number_request();
                self.admins.insert(request, reply);
                self.step(Event::Admin { request, admin });
            }
            Call::Stop { reply } => {
                self.stopping = Some(reply);
                self.has_ended = true;
            }
        }
    }

    fn number_request(&mut self) -> RequestId {
        self.next_request += 1;
        self.next_request - 1
    }

    fn propose(&mut self, kind: EntryKind, payload: bytes::Bytes, proposer: Proposer<S>) {
        let id = self.next_proposal;
        self.next_proposal += 1;
        self.proposers.insert(id, proposer);
        self.proposed_bytes += payload.len();
        self.proposals.push(Request { id, kind, payload });
    }

    fn hand_over_requests(&mut self) {
        if !self.proposals.is_empty() {
            let proposals = std::mem::take(&mut self.proposals);
            self.proposed_bytes = 0;
            self.step(Event::Propose(proposals));
        }
        if !self.reads.is_empty() {
            let reads = std::mem::take(&mut self.reads);
            self.step(Event::Read(reads));
        }
    }

    fn on_snapshot(&mut self, news: SnapshotNews<S>) {
        match news {
            SnapshotNews::Cut(reference) => {
                Counters::add(&self.wiring.counters.snapshots_cut, 1);
                self.step(Event::SnapshotCut(Some(reference)));
            }
            SnapshotNews::NotRemembered(why) => self.on_not_remembered(&why),
            SnapshotNews::NotCut(why) => {
                tracing::warn!(node = self.own_name(), "no snapshot was cut: {why}");
                self.step(Event::SnapshotCut(None));
            }
            SnapshotNews::Stored(reference) => self.step(Event::SnapshotStored(reference)),
            SnapshotNews::ChunkStored(bytes) => self.step(Event::ChunkStored { bytes }),
            SnapshotNews::ChunkRead { to, lsn, offset, bytes } => {
                self.step(Event::ChunkRead { to, lsn, offset, bytes });
            }
            SnapshotNews::Loaded { lsn, machine, state } => {
                let before = self.replica.machine().freeze();
                self.step(Event::SnapshotLoaded { lsn, machine, state });
                self.hand_to_snapshots(SnapshotJob::LetGo(before));
            }
            SnapshotNews::Digest { index, digest } => self.on_digest(index, digest),
            SnapshotNews::Failed(why) => {
                (self.wiring.on_fatal)(&format!("a snapshot could not be handled: {why}"));
                self.has_ended = true;
            }
        }
    }
}

pub(super) fn ping<P: Protocol>() -> ReplicaMessage<P::Message> {
    ReplicaMessage::Ping { sent_micros: boot_micros() }
}

fn pong<P: Protocol>(sent_micros: u64) -> ReplicaMessage<P::Message> {
    ReplicaMessage::Pong { sent_micros }
}
