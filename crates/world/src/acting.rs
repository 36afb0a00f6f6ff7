//! Carries out a replica's actions: records go to the disk, messages to the network, answers to clients.

use crate::digested::{self, Digested, Service};
use crate::journal::{Arrow, Line};
use crate::machine::{self, Job, Machine};
use crate::network::{Delivery, Flight};
use crate::world::{EventKind, World};
use hustings_core::protocol::LinkState;
use hustings_core::replica::{Action, Event, ReplicaMessage, SnapshotContents};
use hustings_core::{
    EntryKind, Lsn, Membership, NodeId, Origin, Protocol, Record, Role, SnapshotReference, Transition, Wire,
};
use hustings_properties::{LeaseClock, Violation};
use hustings_wal::{Stored, WalError};

/// Every so many messages one is encoded and decoded, as a wire would.
const WIRE_EVERY: u64 = 64;
/// Bytes of one chunk of a snapshot, at the least: where values are larger, a chunk has one.
const CHUNK_BYTES: u64 = 4 << 10;
/// Snapshots that are kept.
const KEPT: usize = 3;
/// One that a peer reads from is kept for so long after its last question, in microseconds, as a server keeps it.
const PINNED_FOR: u64 = 30_000_000;
/// Duration of work off the loop, in microseconds: shortest and longest.
const WORK: (u64, u64) = (100, 3_000);

impl<P: Protocol, S: Service> World<P, S> {
    pub(crate) fn judged(&mut self, verdict: Result<(), Violation>) {
        if self.verdict.is_ok() {
            self.verdict = verdict;
        }
    }

    pub(crate) fn act(&mut self, at: usize) {
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            self.act_once(at, action);
        }
        self.actions = actions;
        self.look_at(at);
        self.begin_sync(at);
        self.record_member(at);
    }

    /// Dispatches one action: one arm per kind.
    fn act_once(&mut self, at: usize, action: Action<P, Digested<S>>) {
        let id = self.machines[at].id;
        match action {
            Action::Persist(number, record) => {
                if let Record::Put(entry) = &record
                    && entry.kind == EntryKind::Command
                {
                    self.lease_clock.on_written(entry.lsn.index, digested::digest_of(&entry.payload), self.now);
                }
                let record = self.machines[at].written(record);
                let verdict = self.judge.on_record(id, number, &record);
                self.judged(verdict);
                let again = self.machines[at].written_again(&record);
                self.machines[at].unsynced.push((number, record));
                if let Some(again) = again {
                    let verdict = self.judge.on_record(id, number, &again);
                    self.judged(verdict);
                    self.machines[at].unsynced.push((number, again));
                }
            }
            Action::Send(to, message) => self.send(at, to, message),
            Action::SetTimer(timer, after) => {
                let (now, machine) = (self.now, &mut self.machines[at]);
                let after = match &machine.replica {
                    Some(replica) if self.settings.has_succession => {
                        machine.succession.part(&timer, after, id, replica.membership())
                    }
                    _ => after,
                };
                let deadline = now + machine.draw(&after);
                if machine.is_timer_lost() {
                    machine.disarm(timer);
                } else if let Some(when) = machine.arm(timer, deadline) {
                    let life = machine.lives;
                    self.at(when, EventKind::Timer(at, life, timer));
                }
            }
            Action::CancelTimer(timer) => self.machines[at].disarm(timer),
            Action::Applied { request, response, .. } => self.on_applied(at, request, &response),
            Action::Reconfigured { request, membership } => self.on_reconfigured(at, request, &membership),
            Action::Refused { request, refusal } => {
                let origin = Origin { node: id, incarnation: self.machines[at].incarnation, sequence: request };
                let verdict = self.judge.on_refused(origin);
                self.judged(verdict);
                self.on_refused(at, request, &refusal);
            }
            Action::Unknown { request } => self.on_unknown(at, request),
            Action::Readable { requests, view, .. } => {
                for request in requests {
                    self.on_readable(at, request, S::look(view_inside::<S>(&view.0.0)));
                }
            }
            Action::Unreadable { requests } => requests.into_iter().for_each(|request| self.on_unreadable(at, request)),
            Action::AdminEnded { outcome, .. } => {
                self.journal.note(self.now, Line::Host(id, format!("answers its operator: {outcome:?}")));
            }
            Action::Announce(mut transition) => {
                if self.machines[at].plants.announces_old_term {
                    self.announce_old_term(&mut transition);
                }
                let verdict = self.judge.on_transition(&transition);
                self.judged(verdict);
                self.counts.on_transition(&transition);
                self.machines[at].succession.note(&transition);
                self.journal.note(self.now, Line::Transition(transition));
            }
            Action::Membership(membership) => self.on_membership(at, &membership),
            Action::Version(_) | Action::Digest(_) => {}
            Action::Stop { why } => unreachable!("members of one build can apply what one of them proposes: {why}"),
            Action::CutSnapshot(contents) => self.work(at, Job::Cut(contents)),
            Action::StoreChunk { reference, offset, bytes } => self.work(at, Job::Store { reference, offset, bytes }),
            Action::ReadChunk { to, lsn, digest, offset } => self.work(at, Job::Read { to, lsn, digest, offset }),
            Action::LoadSnapshot(reference) => self.work(at, Job::Load(reference)),
        }
    }

    /// A planted defect: who comes to lead names the term of somebody who led before it.
    fn announce_old_term(&self, transition: &mut Transition) {
        let Transition { node, from, to, term, .. } = transition;
        let before = self.judge.leaders().range(..*term).rev().find(|(_, leader)| *leader != node);
        if let Some((before, _)) = before.filter(|_| from != to && matches!(to, Role::Leader | Role::Synchronizing)) {
            *term = *before;
        }
    }

    /// Notes what the member says of itself now.
    fn look_at(&mut self, at: usize) {
        let machine = &self.machines[at];
        let Some(replica) = &machine.replica else { return };
        let (status, applied) = (replica.status(), replica.applied().index);
        let has_news = applied != machine.applied && !replica.is_witness();
        let state = has_news.then(|| (applied, replica.machine().digest()));
        let id = machine.id;
        let (has_moved, overdue) = (applied != machine.applied, replica.protocol().overdue_commit());
        let contradiction = replica.contradiction();
        if !replica.is_witness() {
            let verdict = follow(&mut self.lease_clock, applied, replica.machine(), self.now);
            self.judged(verdict);
        }
        let commit = status.commit;
        if let Some(found) = contradiction.filter(|found| found.is_certain) {
            let what = format!("{id} has {} committed, and {} holds {}", found.ours, found.by, found.theirs);
            self.judged(Err(Violation::of("one-history", what)));
        }
        if let Some(index) = overdue {
            let what = format!("{id} leads, knows that a quorum holds {index}, and says that {commit} is committed");
            self.judged(Err(Violation::of("commits-what-is-held", what)));
        }
        let status = self.machines[at].told(status);
        let verdict = self.judge.on_status(id, &status, state);
        self.judged(verdict);
        self.on_commit(commit);
        if has_moved {
            self.machines[at].applied = applied;
            self.feed_watchers(at);
        }
    }

    fn on_membership(&mut self, at: usize, membership: &Membership) {
        let id = self.machines[at].id;
        if id.0 < membership.next_id && !membership.has(id) {
            self.machines[at].is_removed = true;
            self.journal.note(self.now, Line::Host(id, "is not a member any more".into()));
        }
        // Where nobody may lead there is no leader ever again, and so no change that could mend it.
        let founders = (0..self.settings.nodes as usize).any(|at| self.may_ever_lead(at));
        let may_lead = |id: &NodeId| self.position(*id).is_some_and(|at| self.may_ever_lead(at));
        if founders && !membership.voters.iter().any(may_lead) {
            let what = format!("{id} is told of voters of whom none may lead: {:?}", membership.voters);
            self.judged(Err(Violation::of("somebody-may-lead", what)));
        }
    }

    fn send(&mut self, at: usize, to: NodeId, message: ReplicaMessage<P::Message>) {
        let Some(peer) = self.position(to) else { return };
        self.counts.messages += 1;
        if self.weighs_messages {
            self.counts.bytes += message.to_bytes().len() as u64;
        }
        if self.counts.messages.is_multiple_of(WIRE_EVERY) {
            let again = ReplicaMessage::<P::Message>::decode(message.to_bytes());
            if again.as_ref() != Ok(&message) {
                let what = format!("{message:?} is read from its bytes as {again:?}");
                self.judged(Err(Violation::of("wire-round-trip", what)));
            }
        }
        let from = self.machines[at].id;
        if self.journal.shows_messages {
            let what = format!("{message:?}");
            self.journal.note(self.now, Line::Message { from, to, what });
        }
        let draws_arrow = self.journal.arrows_max > 0;
        let kind = || match &message {
            ReplicaMessage::Protocol(message) => first_word(&format!("{message:?}")),
            other => first_word(&format!("{other:?}")),
        };
        let arrow = draws_arrow.then(|| Arrow {
            from,
            to,
            sent_at: self.now,
            arrived_at: None,
            lost_at: Some(self.now),
            kind: kind(),
        });
        let arrow = arrow.map(|arrow| self.journal.draw(arrow));
        if self.network.take_damage(at, peer) {
            return self.damage(at, peer, &message);
        }
        match self.network.delivery(at, peer, self.now) {
            Delivery::Arrives(when, again) => {
                self.journal.arrow_arrives(arrow, when);
                if let Some(again) = again {
                    let second = self.journal.second_copy(arrow, again);
                    self.take_off(at, peer, again, second, message.clone());
                }
                self.take_off(at, peer, when, arrow, message);
            }
            Delivery::Lost => self.counts.lost += 1,
            Delivery::Breaks(when) => {
                self.counts.lost += 1;
                let session = self.network.session(at, peer);
                self.at(when, EventKind::Break(at, peer, session));
            }
        }
    }

    /// Other bytes arrive than were sent. Nobody ends by reading them; a host's checksum does not match, and it ends the
    /// connection.
    fn damage(&mut self, from: usize, to: usize, message: &ReplicaMessage<P::Message>) {
        let mut bytes = message.to_bytes().to_vec();
        let places = bytes.len() as u64;
        for _ in 0..1 + self.dice.below(4) {
            let place = self.dice.below(places.max(1)) as usize;
            if let Some(byte) = bytes.get_mut(place) {
                *byte ^= 1 << self.dice.below(8);
            }
        }
        let _ = ReplicaMessage::<P::Message>::decode(bytes.into());
        self.counts.lost += 1;
        self.break_connection(from, to);
    }

    fn take_off(
        &mut self,
        from: usize,
        to: usize,
        arrives_at: u64,
        arrow: Option<usize>,
        message: ReplicaMessage<P::Message>,
    ) {
        let session = self.network.session(from, to);
        let slot = self.network.take_off(Flight { from, to, session, message, arrives_at, arrow });
        self.at(arrives_at, EventKind::Deliver(slot));
    }

    /// Both ends see the connection end, and dial again.
    pub(crate) fn break_connection(&mut self, one: usize, other: usize) {
        if self.network.disconnect(one, other) {
            for (at, peer) in [(one, other), (other, one)] {
                let delay = self.network.delay(at, peer);
                self.tell_link(at, peer, LinkState::Down, delay);
            }
            let delay = self.network.quality.delay_max + 2 * self.network.distance(one, other);
            self.at(self.now + delay + 10_000, EventKind::Connect(one.min(other), one.max(other)));
        }
    }

    // --- Disks. --------------------------------------------------------------------------------------------------

    /// Group commit, as the host does it: what arrives while one sync runs is written by the next.
    fn begin_sync(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        if machine.syncing.is_some() || machine.unsynced.is_empty() {
            return;
        }
        let Some(wal) = &mut machine.wal else { return };
        let mut wants_sync = false;
        let mut last = 0;
        let mut result = Ok(());
        for (number, record) in machine.unsynced.drain(..) {
            last = number;
            wants_sync |= record.wants_sync();
            result = result.and_then(|()| wal.append(&record));
        }
        if let Err(error) = result.and_then(|()| wal.write()) {
            return self.on_disk_error(at, &error);
        }
        if !wants_sync {
            return;
        }
        machine.syncing = Some(last);
        let (pace, life) = (machine.pace, machine.lives);
        let after = machine.dice.between(pace.sync_min, pace.sync_max);
        machine.sync_due = self.now + after;
        machine.stalled_since.get_or_insert(self.now);
        if machine.plants.answers_early {
            self.at(self.now, EventKind::Early(at, life, last));
        }
        self.at(self.now + after, EventKind::Synced(at, life));
    }

    /// A planted defect: the host says "durable" while the disk is still busy.
    pub(crate) fn on_early(&mut self, at: usize, last: u64) {
        self.judge.on_durable(self.machines[at].id, last);
        self.step(at, Event::Durable(last));
    }

    pub(crate) fn on_synced(&mut self, at: usize) {
        let now = self.now;
        let machine = &mut self.machines[at];
        if machine.is_stalled {
            return;
        }
        let Some(wal) = &mut machine.wal else { return };
        let Some(last) = machine.syncing.take() else { return };
        machine.stalled_since = None;
        self.counts.syncs += 1;
        machine.has_lied |= machine.lies;
        machine.disk.lie(machine.lies || machine.plants.lying_sync);
        let synced = wal.sync();
        machine.disk.lie(false);
        if let Err(error) = synced {
            let swallows = machine.plants.swallows_sync_errors;
            if !swallows {
                return self.on_disk_error(at, &error);
            }
        }
        let (id, life) = (machine.id, machine.lives);
        if machine.is_paused {
            // The kernel has synced; the process hears of it when it goes on.
            machine.syncing = Some(last);
            return self.at(now + 10_000, EventKind::Synced(at, life));
        }
        self.judge.on_durable(id, last);
        let unwritten = u64::from(self.machines[at].plants.counts_unwritten);
        self.step(at, Event::Durable(last + unwritten));
    }

    pub(crate) fn on_disk_error(&mut self, at: usize, error: &WalError) {
        self.fail(at, &error.to_string());
    }

    // --- Work off the loop. --------------------------------------------------------------------------------------

    fn work(&mut self, at: usize, job: Job<S>) {
        let machine = &mut self.machines[at];
        machine.jobs.push_back(job);
        self.begin_work(at);
    }

    fn begin_work(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        if !machine.is_working && !machine.jobs.is_empty() {
            machine.is_working = true;
            let (after, life) = (machine.dice.between(WORK.0, WORK.1), machine.lives);
            self.at(self.now + after, EventKind::Worked(at, life));
        }
    }

    pub(crate) fn on_worked(&mut self, at: usize) {
        let (now, machine) = (self.now, &mut self.machines[at]);
        let life = machine.lives;
        if machine.is_stalled || machine.is_paused {
            return self.at(now + 10_000, EventKind::Worked(at, life));
        }
        machine.is_working = false;
        let Some(job) = machine.jobs.pop_front() else { return };
        let chunk_bytes = self.settings.load.value_bytes.max(CHUNK_BYTES) as usize;
        let stored_bytes = match &job {
            Job::Store { bytes, .. } => Some(bytes.len() as u64),
            _ => None,
        };
        let done = done(machine, job, chunk_bytes, now);
        if let Some(bytes) = stored_bytes.filter(|_| done.is_ok()) {
            self.step(at, Event::ChunkStored { bytes });
        }
        match done {
            Ok(Some(event)) => {
                match &event {
                    Event::SnapshotCut(_) => self.counts.snapshots += 1,
                    Event::SnapshotLoaded { .. } => self.counts.installs += 1,
                    _ => {}
                }
                self.step(at, event);
            }
            Ok(None) => {}
            Err(why) => self.fail(at, &why),
        }
        if self.machines[at].is_up() {
            self.begin_work(at);
        }
    }
}

type JobEvent<P, S> = Event<P, Digested<S>>;

/// The snapshot thread's work; `None` if nothing is to be told of it.
fn done<P: Protocol, S: Service>(
    machine: &mut Machine<P, S>,
    job: Job<S>,
    chunk_bytes: usize,
    now: u64,
) -> Result<Option<JobEvent<P, S>>, String> {
    let Some(store) = &machine.store else { return Ok(None) };
    let words = |error: WalError| error.to_string();
    Ok(match job {
        Job::Cut(contents) => match cut::<S>(store, &contents, &|lsn, digest| machine.is_pinned(lsn, digest, now)) {
            Ok(reference) => Some(Event::SnapshotCut(Some(reference))),
            // As the host does it: no room now is no reason to end.
            Err(error) if error.is_full() => {
                store.discard(contents.lsn).map_err(words)?;
                Some(Event::SnapshotCut(None))
            }
            Err(error) => return Err(words(error)),
        },
        Job::Store { reference, offset, bytes } => match store.store_chunk(&reference, offset, &bytes) {
            Ok(Stored::More) => None,
            Ok(Stored::Complete) => Some(Event::SnapshotStored(Ok(reference))),
            Ok(Stored::Corrupt) => Some(Event::SnapshotStored(Err(reference))),
            Err(error) if error.is_full() => Some(Event::SnapshotStored(Err(reference))),
            Err(error) => return Err(words(error)),
        },
        Job::Read { to, lsn, digest, offset } => {
            machine.pins.insert(to, (lsn, digest, now + PINNED_FOR));
            let bytes = match store.read_chunk(lsn, digest, offset, chunk_bytes) {
                Err(_) if !store.is_newest(lsn, digest) => None,
                read => read.map_err(words)?,
            };
            Some(Event::ChunkRead { to, lsn, offset, bytes })
        }
        Job::Load(reference) => {
            let (state_machine, state) = machine::load::<S>(store, &reference)?;
            let lsn: Lsn = reference.lsn;
            Some(Event::SnapshotLoaded { lsn, machine: Box::new(state_machine), state })
        }
    })
}

fn cut<S: Service>(
    store: &hustings_wal::SnapshotStore,
    contents: &SnapshotContents<Digested<S>>,
    is_pinned: &dyn Fn(Lsn, u32) -> bool,
) -> Result<SnapshotReference, WalError> {
    let mut writer = store.writer(contents.lsn, contents.membership.clone())?;
    let mut result = Ok(());
    contents.encode(&mut |chunk| {
        if result.is_ok() {
            result = writer.write(&chunk);
        }
    });
    result?;
    let reference = writer.finish()?;
    store.keep_newest_and(KEPT, &reference, is_pinned)?;
    Ok(reference)
}

fn view_inside<S: Service>(
    view: &<Digested<S> as hustings_core::StateMachine>::View,
) -> &<S as hustings_core::StateMachine>::View {
    view.inside()
}

/// Shows the judge of leases what a member has applied.
fn follow<S: Service>(judge: &mut LeaseClock, applied: u64, state: &Digested<S>, now: u64) -> Result<(), Violation> {
    if applied <= judge.judged() {
        return Ok(());
    }
    for (index, digest, clock) in state.latest_above(judge.judged()) {
        judge.on_applied(index, digest, clock, now)?;
    }
    judge.on_clock(state.clock(), now)
}

/// The first word of a value's debug form: the name of its variant.
pub(crate) fn first_word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric()).collect()
}
