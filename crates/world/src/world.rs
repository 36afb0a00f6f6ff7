//! A whole cluster as one value in virtual time: [`World`].
//!
//! Members run the production code (see [`crate::machine`]); what is simulated is everything around them. A scheduler lets
//! time pass ([`World::run_until`]) and does things to it ([`crate::faults`]); after every step the judge looks at what is
//! new. Equal settings and equal calls give equal runs.
//!
//! ```text
//!   queue: (when, what) ──► on_due ──► Replica::step ──► act: records → disk, messages → network, answers → clients
//!                                                         └──► Chronicle: is this still a correct cluster?
//! ```
//!
//! Read next: [`crate::acting`], what becomes of a replica's actions.

use crate::command::Target;
use crate::coverage::{self, Coverage, Standing};
use crate::dice::Dice;
use crate::digested::{Digested, Service};
use crate::journal::{Counts, Journal, Line};
use crate::load::Load;
use crate::machine::{Life, Machine, Plants};
use crate::network::Network;
use crate::recording::Recording;
use crate::settings::Settings;
use hustings_core::protocol::{DiskHealth, LinkState};
use hustings_core::replica::{Action, Event, Replica, ReplicaMessage, ReplicaTimer};
use hustings_core::{Cluster, Limits, Links, Membership, NodeId, Priority, Protocol};
use hustings_properties::{Chronicle, LeaseClock, Violation};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Longest silence of a disk before its host says so, in microseconds.
const STALL_AFTER: u64 = 200_000;
/// More events in a second of virtual time than a correct cluster has by itself, more for an operation of a client that ended well than
/// any takes, and what may exceed both.
const EVENTS_PER_SECOND: u64 = 20_000;
const EVENTS_PER_OPERATION: u64 = 100;
const EVENTS_SLACK: u64 = 200_000;
/// Number of events after which a guard is asked again.
const GUARDED_EVENTS: u64 = 64;
/// Time until a member applies the next slice of what is committed, in microseconds.
const SLICE_MICROS: u64 = 1_000;
/// Microseconds that a connection takes to come up again, shortest and longest.
const RECONNECT: (u64, u64) = (1_000, 20_000);

/// An event that is due at some moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum EventKind<T> {
    /// A message may arrive, by its slot.
    Deliver(u32),
    /// A timer may be due.
    Timer(usize, u32, ReplicaTimer<T>),
    /// A disk has synced.
    Synced(usize, u32),
    /// A host claims that a disk has synced up to a record, before it has.
    Early(usize, u32, u64),
    /// Work off the loop is done.
    Worked(usize, u32),
    /// A member applies the next slice of what is committed.
    Slice(usize, u32),
    /// The host looks whether its disk answers.
    Watch(usize, u32),
    /// A member hears of its link.
    Link(usize, u32, usize, LinkState),
    /// A loss in a session is noticed: the connection breaks.
    Break(usize, usize, u32),
    /// Two members try to connect.
    Connect(usize, usize),
    /// A client does something.
    Client(usize),
    /// A client gives up.
    Patience(usize, u64),
    /// A request reaches a member.
    Call(usize, usize, u64),
    /// A rival for the lock does something.
    Rival(usize),
    /// A member notices that a rival has given a call up.
    Forsaken(usize),
    /// A candidate for the election does what is due.
    Candidate(usize),
    /// Something happens to a candidate.
    Mishap(usize),
    /// A machine that slept goes on.
    Wake(usize, u32),
    /// A supervisor starts the process again.
    Restart(usize, u32),
}

/// Says whether a run may go on whose members' disks hold so many bytes together.
pub type Guard = Box<dyn FnMut(u64) -> Result<(), Violation> + Send>;

/// An event in the queue: its moment, its order among equals, and what is due.
type Due<T> = Reverse<(u64, u64, EventKind<T>)>;

/// A cluster, its network, its disks, its clients and its judge.
pub struct World<P: Protocol, S: Service> {
    /// Settings that it was made with.
    pub settings: Settings,
    /// The story of the run, in words.
    pub journal: Journal,
    /// Whether the bytes of every message are counted: it costs an encoding each.
    pub weighs_messages: bool,
    /// The numbers of the run.
    pub counts: Counts,
    pub(crate) options: P::Options,
    pub(crate) now: u64,
    pub(crate) order: u64,
    pub(crate) queue: BinaryHeap<Due<P::Timer>>,
    /// The founding membership: every member's disk is made with it, whenever the member joins, as hosts do it.
    pub(crate) founding: Arc<Membership>,
    pub(crate) machines: Vec<Machine<P, S>>,
    pub(crate) network: Network<ReplicaMessage<P::Message>>,
    pub(crate) judge: Chronicle,
    pub(crate) lease_clock: LeaseClock,
    pub(crate) load: Load,
    pub(crate) dice: Dice,
    pub(crate) actions: Vec<Action<P, Digested<S>>>,
    pub(crate) verdict: Result<(), Violation>,
    pub(crate) marked_elections: u64,
    /// The member that the operator asks for changes of membership.
    pub(crate) operator: Target,
    /// Defects of hosts, disks and what all protocols share.
    plants: Plants,
    /// Facts that the run reached; `None` if nobody wants to know.
    pub coverage: Option<Box<Coverage>>,
    /// Members' states over time; `None` if nobody wants to draw them; see [`World::start_recording`].
    pub recording: Option<Box<Recording>>,
    /// Asked all the time whether the run may go on, also within a command; what it says against it ends the run as a violation does.
    /// `None`: a run takes what it takes.
    pub guard: Option<Guard>,
}

impl<P: Protocol, S: Service> World<P, S> {
    /// A world in which all members were just started for the first time.
    ///
    /// # Errors
    /// A violation in the very first step.
    pub fn new(settings: Settings, options: P::Options) -> Result<World<P, S>, Violation> {
        World::planted(settings, options, Plants::default())
    }

    /// As [`World::new`], with defects.
    ///
    /// # Errors
    /// A violation in the very first step.
    pub fn planted(settings: Settings, options: P::Options, plants: Plants) -> Result<World<P, S>, Violation> {
        let (nodes, seed) = (settings.nodes as usize, settings.seed);
        let mut founding = Membership::of_voters((1..=settings.nodes).map(NodeId));
        for (at, member) in founding.members.values_mut().enumerate() {
            member.is_witness = settings.witnesses.contains(&at);
        }
        let founding = Arc::new(founding);
        let machine = |id| Machine::new(NodeId(id), seed, founding.clone(), settings.disk);
        let machines = (1..=settings.nodes).map(machine).collect();
        let network = Network::new(nodes, P::LINKS, settings.quality, Dice::new(seed, 3, 0));
        let mut world = World {
            load: Load::new(&settings, plants),
            lease_clock: LeaseClock::default(),
            judge: Chronicle::new(settings.rules.of::<P>(&options)),
            journal: Journal::default(),
            weighs_messages: false,
            counts: Counts::default(),
            options,
            now: 0,
            order: 0,
            queue: BinaryHeap::new(),
            founding,
            machines,
            network,
            dice: Dice::new(seed, 4, 0),
            actions: Vec::new(),
            verdict: Ok(()),
            marked_elections: 0,
            operator: Target::Leader,
            plants,
            coverage: None,
            recording: None,
            guard: None,
            settings,
        };
        world.measure_distances();
        for at in 0..nodes {
            world.start(at);
        }
        world.start_load();
        world.verdict.clone()?;
        Ok(world)
    }

    /// Lays the links between where members stand.
    pub(crate) fn measure_distances(&mut self) {
        let size = self.machines.len();
        for (from, to) in (0..size).flat_map(|from| (0..size).map(move |to| (from, to))) {
            self.network.set_distance(from, to, self.settings.distance(from, to));
        }
    }

    /// Microseconds since the beginning.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The judge, for inspection.
    pub fn judge(&self) -> &Chronicle {
        &self.judge
    }

    /// Lets time pass until this moment, in microseconds.
    ///
    /// # Errors
    /// The first property that does not hold any more.
    pub fn run_until(&mut self, until: u64) -> Result<(), Violation> {
        while self.is_due(until) {
            self.run_one()?;
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// Whether something happens before that time.
    pub fn is_due(&self, until: u64) -> bool {
        self.queue.peek().is_some_and(|Reverse((at, _, _))| *at <= until)
    }

    /// Lets the next thing happen.
    ///
    /// # Errors
    /// The first property that does not hold any more.
    pub fn run_one(&mut self) -> Result<(), Violation> {
        let Some(Reverse((at, _, what))) = self.queue.pop() else { return Ok(()) };
        self.now = self.now.max(at);
        self.counts.events += 1;
        let explained = self.now / 1_000_000 * EVENTS_PER_SECOND + self.counts.completed * EVENTS_PER_OPERATION;
        if self.counts.events > EVENTS_SLACK + explained {
            let what =
                format!("{} events within {} s: members talk without end", self.counts.events, self.now / 1_000_000);
            self.verdict = Err(Violation::of("no-storm", what));
        }
        self.on_due(what);
        if self.counts.events.is_multiple_of(GUARDED_EVENTS) && self.verdict.is_ok() {
            self.ask_guard();
        }
        self.verdict.clone()
    }

    fn ask_guard(&mut self) {
        let Some(mut guard) = self.guard.take() else { return };
        self.verdict = guard(self.disk_bytes());
        self.guard = Some(guard);
    }

    pub(crate) fn at(&mut self, when: u64, what: EventKind<P::Timer>) {
        self.order += 1;
        self.queue.push(Reverse((when, self.order, what)));
    }

    /// Dispatches an event that is due: one arm per kind. An event of a paused member waits until it goes on.
    fn on_due(&mut self, what: EventKind<P::Timer>) {
        match what {
            EventKind::Deliver(slot) => self.on_arrival(slot),
            EventKind::Timer(at, life, timer) if self.lives(at, life) => self.on_timer(at, timer),
            EventKind::Synced(at, life) if self.lives(at, life) => self.on_synced(at),
            EventKind::Early(at, life, last) if self.lives(at, life) => self.on_early(at, last),
            EventKind::Worked(at, life) if self.lives(at, life) => self.on_worked(at),
            EventKind::Slice(at, life) if self.lives(at, life) => self.on_slice(at),
            EventKind::Watch(at, life) if self.lives(at, life) => self.on_watch(at),
            EventKind::Link(at, life, peer, state) if self.lives(at, life) => self.on_link(at, peer, state),
            EventKind::Wake(at, life) if self.lives(at, life) => self.resume(at),
            EventKind::Break(one, other, session) if self.network.session(one, other) == session => {
                self.break_connection(one, other)
            }
            EventKind::Connect(one, other) => self.on_connect(one, other),
            EventKind::Client(client) => self.on_client(client),
            EventKind::Patience(client, number) => self.on_patience(client, number),
            EventKind::Call(at, client, number) => self.on_call(at, client, number),
            EventKind::Rival(rival) => self.on_rival(rival),
            EventKind::Candidate(candidate) => self.on_candidate(candidate),
            EventKind::Mishap(candidate) => self.on_mishap(candidate),
            EventKind::Forsaken(rival) => self.on_forsaken(rival),
            EventKind::Restart(at, life) if self.machines[at].lives == life && !self.machines[at].is_up() => {
                self.start(at)
            }
            // Meant for an earlier life of the member.
            EventKind::Timer(..)
            | EventKind::Synced(..)
            | EventKind::Early(..)
            | EventKind::Worked(..)
            | EventKind::Slice(..)
            | EventKind::Watch(..)
            | EventKind::Link(..)
            | EventKind::Wake(..) => {}
            EventKind::Break(..) | EventKind::Restart(..) => {}
        }
    }

    fn lives(&self, at: usize, life: u32) -> bool {
        self.machines[at].lives == life && self.machines[at].is_up()
    }

    /// Keeps what concerns a paused member; says whether it did.
    pub(crate) fn is_stashed(&mut self, at: usize, what: EventKind<P::Timer>) -> bool {
        let machine = &mut self.machines[at];
        if machine.is_paused {
            machine.stash.push_back(what);
        }
        machine.is_paused
    }

    // --- Members. ------------------------------------------------------------------------------------------------

    /// Starts a member's process.
    pub(crate) fn start(&mut self, at: usize) {
        self.prepare_disk(at);
        let settings = &self.settings;
        let cluster = Cluster {
            me: self.machines[at].id,
            membership: self.machines[at].founding.clone(),
            timing: settings.timing_of(at),
            priority: settings.priorities.get(at).copied().unwrap_or(Priority::Normal),
            limits: Limits { ..settings.limits },
            defect: self.plants.defect,
        };
        let (options, policy) = (self.options.clone(), settings.policy);
        let machine = &mut self.machines[at];
        machine.plants = self.plants;
        let id = machine.id;
        let recovered = match machine.recover(cluster, options, policy) {
            Ok(recovered) => recovered,
            Err(why) => {
                machine.life = Life::Refused(why.clone());
                self.journal.note(self.now, Line::Host(id, format!("does not start: {why}")));
                self.record_member(at);
                return;
            }
        };
        machine.life = Life::Up;
        machine.told_elapsed_at = self.now;
        machine.applied = 0;
        if self.machines[at].disk.is_damaged() {
            self.judge.excuse(id);
        }
        if self.machines[at].has_lied && self.judge.brings_back_less(id, &recovered.durable) {
            return self.turn_away(at);
        }
        // It has all that it said: from now on its disk is held to that, if it lies no more.
        self.machines[at].has_lied &= self.machines[at].lies;
        if let Err(violation) = self.judge.on_restart(id, &recovered.durable) {
            self.verdict = Err(violation);
            return;
        }
        let mut actions = std::mem::take(&mut self.actions);
        let replica = hustings_core::Replica::start(recovered.birth, &mut actions);
        self.actions = actions;
        self.machines[at].replica = Some(replica);
        let life = self.machines[at].lives;
        self.act(at);
        self.at(self.now + STALL_AFTER, EventKind::Watch(at, life));
        for peer in 0..self.machines.len() {
            if peer != at && self.machines[peer].is_up() {
                self.connect_soon(at, peer);
            }
        }
    }

    /// A member whose disk has lied came back without what it had said to be durable. Here its peers know all that it had said (at real
    /// members they know what they have heard): they refuse it, it ends, and only another member can take its place.
    fn turn_away(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        machine.end();
        machine.life = Life::Refused("it brought back less than it had said to be durable".into());
        machine.is_stranger = true;
        let id = machine.id;
        self.judge.on_wiped(id);
        self.journal.note(self.now, Line::Host(id, "ends: its peers refuse it, because its disk has lied".into()));
        self.record_member(at);
    }

    /// Ends a member's process. Peers hear of it if the machine goes on (`is_seen`).
    pub(crate) fn end(&mut self, at: usize, is_seen: bool) {
        if !self.machines[at].is_up() {
            return;
        }
        for asked in self.machines[at].end() {
            self.on_lost_answer(asked);
        }
        self.record_member(at);
        for peer in 0..self.machines.len() {
            if peer == at || !self.network.is_connected(at, peer) {
                continue;
            }
            self.network.disconnect(at, peer);
            if is_seen && !self.network.is_cut(at, peer) {
                let delay = self.network.delay(at, peer);
                self.tell_link(peer, at, LinkState::Down, delay);
            } else {
                // The peer goes on sending into the void until a new connection replaces the old one.
                self.network.set_half_open(at, peer);
            }
        }
    }

    /// A member that cannot go on: an impossible disk, or one that failed.
    pub(crate) fn fail(&mut self, at: usize, why: &str) {
        let id = self.machines[at].id;
        self.journal.note(self.now, Line::Host(id, format!("ends: {why}")));
        self.end(at, true);
        let (life, after) = (self.machines[at].lives, self.settings.restart_after);
        self.at(self.now + after, EventKind::Restart(at, life));
    }

    pub(crate) fn step(&mut self, at: usize, event: Event<P, Digested<S>>) {
        if self.verdict.is_err() {
            return;
        }
        let machine = &mut self.machines[at];
        let Some(replica) = &mut machine.replica else { return };
        self.counts.steps += 1;
        let rate = machine.rate << u32::from(self.plants.doubles_time);
        let elapsed = (self.now - machine.told_elapsed_at).saturating_mul(rate) / 1_000_000;
        if elapsed > 0 {
            machine.told_elapsed_at = self.now;
            replica.step_within_slice(Event::Elapsed(elapsed), &mut self.actions);
        }
        if !replica.is_behind() {
            // Each event is a turn of its own.
            replica.next_slice(&mut self.actions);
        }
        let Some(coverage) = &mut self.coverage else {
            replica.step_within_slice(event, &mut self.actions);
            self.act(at);
            return self.await_slice(at);
        };
        let (before, heard) = (replica.status(), coverage::kind_of(&event));
        replica.step_within_slice(event, &mut self.actions);
        let after = replica.status();
        coverage.on_step(at, &before, heard, &after, &self.actions);
        let has_turned = before.role != after.role;
        self.act(at);
        if has_turned {
            self.cover_moment(heard);
        }
        self.await_slice(at);
    }

    /// Has entries that are committed and not applied yet applied in a moment.
    fn await_slice(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        if !machine.is_slicing && machine.replica.as_ref().is_some_and(Replica::is_behind) {
            machine.is_slicing = true;
            let life = machine.lives;
            self.at(self.now + SLICE_MICROS, EventKind::Slice(at, life));
        }
    }

    fn on_slice(&mut self, at: usize) {
        let (now, machine) = (self.now, &mut self.machines[at]);
        let life = machine.lives;
        if machine.is_paused {
            return self.at(now + 10_000, EventKind::Slice(at, life));
        }
        machine.is_slicing = false;
        let Some(replica) = &mut machine.replica else { return };
        replica.next_slice(&mut self.actions);
        self.act(at);
        self.await_slice(at);
    }

    /// Adds to the coverage how all members stand now.
    pub(crate) fn cover_moment(&mut self, what: u64) {
        let Some(mut coverage) = self.coverage.take() else { return };
        let standing = |machine: &Machine<P, S>| Standing {
            status: machine.replica.as_ref().map(Replica::status),
            condition: u8::from(machine.is_paused)
                | u8::from(machine.is_stalled) << 1
                | u8::from(machine.is_removed) << 2,
        };
        let members: Vec<Standing> = self.machines.iter().map(standing).collect();
        coverage.on_moment(what, &members);
        self.coverage = Some(coverage);
    }

    // --- What is due. --------------------------------------------------------------------------------------------

    fn on_arrival(&mut self, slot: u32) {
        if let Some(later) = self.network.arrives_later(slot, self.now) {
            return self.at(later, EventKind::Deliver(slot));
        }
        let Some(flight) = self.network.land(slot) else { return };
        let (from, to) = (flight.from, flight.to);
        let is_current = self.network.session(from, to) == flight.session && self.network.is_connected(from, to);
        if !is_current || self.network.is_cut(from, to) || !self.machines[to].is_up() {
            self.counts.lost += 1;
            self.journal.arrow_is_lost(flight.arrow, self.now);
            if is_current && P::LINKS == Links::Session {
                // On its way when the cut came. Messages behind it must not arrive as if nothing were missing.
                self.network.lose_in_session(from, to);
                self.break_connection(from, to);
            }
            return;
        }
        if self.machines[to].is_paused {
            let slot = self.network.take_off(flight);
            self.is_stashed(to, EventKind::Deliver(slot));
            return;
        }
        let from = self.machines[from].id;
        self.journal.arrow_arrives(flight.arrow, self.now);
        self.step(to, Event::Peer { from, message: flight.message });
    }

    fn on_timer(&mut self, at: usize, timer: ReplicaTimer<P::Timer>) {
        let (now, life) = (self.now, self.machines[at].lives);
        let machine = &mut self.machines[at];
        let Some(position) = machine.timers.iter().position(|armed| armed.timer == timer) else { return };
        let armed = &mut machine.timers[position];
        if armed.queued > now {
            return;
        }
        if armed.deadline > now {
            armed.queued = armed.deadline;
            let deadline = armed.deadline;
            return self.at(deadline, EventKind::Timer(at, life, timer));
        }
        if self.is_stashed(at, EventKind::Timer(at, life, timer)) {
            return;
        }
        self.machines[at].timers.swap_remove(position);
        self.step(at, Event::Timer(timer));
    }

    /// The host's own look at its disk, as `node` does it: silent for too long is stalled.
    fn on_watch(&mut self, at: usize) {
        let (now, life) = (self.now, self.machines[at].lives);
        let machine = &mut self.machines[at];
        let is_silent = machine.stalled_since.is_some_and(|since| now - since >= STALL_AFTER);
        if is_silent != machine.told_stalled && !machine.is_paused {
            machine.told_stalled = is_silent;
            let health = if is_silent { DiskHealth::Stalled } else { DiskHealth::Recovered };
            self.step(at, Event::Health(health));
        }
        self.at(now + STALL_AFTER / 2, EventKind::Watch(at, life));
    }

    pub(crate) fn tell_link(&mut self, at: usize, peer: usize, state: LinkState, after: u64) {
        let life = self.machines[at].lives;
        self.at(self.now + after, EventKind::Link(at, life, peer, state));
    }

    fn on_link(&mut self, at: usize, peer: usize, state: LinkState) {
        let life = self.machines[at].lives;
        if self.is_stashed(at, EventKind::Link(at, life, peer, state)) {
            return;
        }
        // Late news of an old connection: the new one is there already, and was told of before. A host knows by the number of
        // the session that this is no news, under every kind of links.
        let is_overtaken = state == LinkState::Down && self.network.is_connected(at, peer);
        let peer = self.machines[peer].id;
        self.step(at, Event::Link { peer, state });
        if is_overtaken {
            self.step(at, Event::Link { peer, state: LinkState::Up });
        }
    }

    pub(crate) fn connect_soon(&mut self, one: usize, other: usize) {
        // Each says hello before either says more.
        let greeting = self.network.distance(one, other) + self.network.distance(other, one);
        let after = greeting + self.dice.between(RECONNECT.0, RECONNECT.1);
        self.at(self.now + after, EventKind::Connect(one.min(other), one.max(other)));
    }

    fn on_connect(&mut self, one: usize, other: usize) {
        let is_possible = |machine: &Machine<P, S>| machine.is_up() && !machine.is_stranger;
        if !is_possible(&self.machines[one]) || !is_possible(&self.machines[other]) {
            return;
        }
        if self.network.is_cut(one, other) || self.network.is_cut(other, one) {
            // The dialler goes on dialling.
            return self.at(self.now + 50_000, EventKind::Connect(one, other));
        }
        if self.network.take_half_open(one, other) || self.network.disconnect(one, other) {
            // One end had not noticed that the old connection is gone.
            self.tell_link(one, other, LinkState::Down, 0);
            self.tell_link(other, one, LinkState::Down, 0);
        }
        self.network.connect(one, other);
        self.tell_link(one, other, LinkState::Up, 0);
        self.tell_link(other, one, LinkState::Up, 0);
    }

    /// The defects of hosts that are planted in this world.
    pub(crate) fn plants(&self) -> Plants {
        self.plants
    }
}
