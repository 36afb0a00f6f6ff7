//! Does a [`Command`] to a world: [`World::apply`].

use crate::command::{Command, DiskFault, Expectation, Target};
use crate::dice::Dice;
use crate::digested::Service;
use crate::journal::Line;
use crate::liveness::live;
use crate::load::Asked;
use crate::machine::{Life, Machine};
use crate::network::Quality;
use crate::world::{EventKind, World};
use hustings_core::replica::Event;
use hustings_core::{
    Admin, Change, EntryKind, Member, Membership, MembershipChange, NodeId, Passage, Protocol, Role, Timing, Wire,
};
use hustings_kv::{LeaseGrant, Put};
use hustings_properties::Violation;
use hustings_wal::sim::{Faults, Loss};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// Microseconds after which `settle` looks again.
pub const SETTLE_STEP: u64 = 10_000;
/// Sectors by which a misdirected write misses.
const ASTRAY: u64 = 3;

impl<P: Protocol, S: Service> World<P, S> {
    /// Does this to the world.
    ///
    /// # Errors
    /// A property that does not hold, an expectation that is not met.
    pub fn apply(&mut self, command: &Command) -> Result<(), Violation> {
        let is_fault = !matches!(
            command,
            Command::Wait(_) | Command::Settle(_) | Command::Peace(_) | Command::Expect(_) | Command::Mark
        );
        if is_fault {
            self.journal.note(self.now, Line::Fault(command.to_string()));
            let text = command.to_string();
            let mut words = text.split(' ');
            let name = match (words.next(), words.nth(1)) {
                (Some("disk"), Some(fault)) => format!("disk {fault}"),
                (Some(first), _) => first.to_string(),
                (None, _) => String::new(),
            };
            if self.coverage.is_some() {
                let mut hasher = DefaultHasher::new();
                name.hash(&mut hasher);
                self.cover_moment(hasher.finish());
            }
            *self.counts.faults.entry(name).or_default() += 1;
        }
        match command {
            Command::Wait(micros) => return self.run_until(self.now + micros),
            Command::Settle(micros) => return self.settle(*micros),
            Command::Peace(sick) => return live(self, sick),
            Command::Crash(who) => self.each(*who, |world, at| world.end(at, true)),
            Command::PowerOff(who) => self.each(*who, |world, at| {
                world.machines[at].is_powered_off = true;
                world.end(at, false);
            }),
            Command::Restart(who) => self.each(*who, World::restart),
            Command::Pause(who) => self.each(*who, |world, at| world.machines[at].is_paused = true),
            Command::Resume(who) => self.each(*who, World::resume),
            Command::Mute(from, to) => self.pairs(*from, *to, |world, from, to| world.network.set_cut(from, to, true)),
            Command::Cut(one, other) => self.pairs(*one, *other, World::cut),
            Command::Isolate(who) => self.each(*who, |world, at| {
                (0..world.machines.len()).filter(|peer| *peer != at).for_each(|peer| world.cut(at, peer));
            }),
            Command::Partition(groups) => self.partition(groups),
            Command::Slow(from, to, min, max) => {
                self.pairs(*from, *to, |world, from, to| world.network.set_slow(from, to, Some((*min, *max))));
            }
            Command::Delay(from, to, which, micros) => {
                self.pairs(*from, *to, |world, from, to| {
                    for (arrow, later) in world.network.delay_flight(from, to, *which, *micros) {
                        world.journal.arrow_arrives(arrow, later);
                    }
                });
            }
            Command::Heal => {
                self.network.heal();
                self.network.quality = self.settings.quality;
                self.reconnect();
            }
            Command::Mend(one, other) => {
                self.pairs(*one, *other, |world, one, other| {
                    world.network.set_cut(one, other, false);
                    world.network.set_cut(other, one, false);
                    world.network.set_slow(one, other, None);
                    world.network.set_slow(other, one, None);
                });
                self.reconnect();
            }
            Command::Reset(one, other) => self.pairs(*one, *other, World::break_connection),
            Command::Links { delay_min, delay_max, loss, duplicates } => {
                self.network.quality =
                    Quality { delay_min: *delay_min, delay_max: *delay_max, loss: *loss, duplicates: *duplicates };
            }
            Command::Disk(who, fault) => self.each(*who, |world, at| world.fault_disk(at, *fault)),
            Command::Wipe(who) => self.each(*who, World::wipe),
            Command::Clock(who, rate) => {
                self.each(*who, |world, at| {
                    // Time that has passed counts at the old speed: convert it to as much at the new one.
                    let (now, rate, machine) = (world.now, (*rate).max(1), &mut world.machines[at]);
                    let untold = now.saturating_sub(machine.told_elapsed_at).saturating_mul(machine.rate) / rate;
                    machine.told_elapsed_at = now.saturating_sub(untold);
                    machine.rate = rate;
                });
                let fastest = self.machines.iter().map(|machine| machine.rate).max();
                self.lease_clock.on_rate(fastest.unwrap_or_default(), self.now);
            }
            Command::Suspend(who, micros) => self.each(*who, |world, at| {
                world.machines[at].is_paused = true;
                let life = world.machines[at].lives;
                world.at(world.now + micros, EventKind::Wake(at, life));
            }),
            Command::Transfer(who) => self.each(*who, |world, to| {
                let to = world.machines[to].id;
                world.ask_leader(Admin::Transfer(to));
            }),
            Command::Resign(who) => self.each(*who, |world, at| world.ask(at, Admin::Resign)),
            Command::Campaign(who) => self.each(*who, |world, at| world.ask(at, Admin::Campaign)),
            Command::ForgetLeader(who) => self.each(*who, |world, at| world.ask(at, Admin::ForgetLeader)),
            Command::Retime(who, percent) => self.each(*who, |world, at| world.retime(at, *percent)),
            Command::Operator(who) => self.operator = *who,
            Command::Pace(micros) => self.set_pace(*micros),
            Command::Damage(from, to, count) => {
                self.pairs(*from, *to, |world, from, to| world.network.damage(from, to, *count));
            }
            Command::Remove(who) => self.each(*who, |world, at| {
                let id = world.machines[at].id;
                world.change(&MembershipChange::of([Change::Remove(id)]));
            }),
            Command::Join => self.join(),
            Command::Voters(who) => self.set_voters(who),
            Command::Put(key, value, at) => {
                let at = at.map_or_else(|| self.leader_position(), |who| self.chosen(who).first().copied());
                if let Some(at) = at.filter(|at| self.machines[*at].is_up()) {
                    let put = Put { key: key.clone().into(), value: value.clone().into(), ..Put::default() };
                    self.propose(at, Asked::Operator, EntryKind::Command, hustings_kv::Command::Put(put).to_payload());
                }
            }
            Command::Get(key, at) => {
                let at = at.map_or_else(|| self.leader_position(), |who| self.chosen(who).first().copied());
                if let Some(at) = at.filter(|at| self.machines[*at].is_up() && !self.machines[*at].is_paused) {
                    self.read_for_operator(at, key);
                }
            }
            Command::Lease(id, seconds) => {
                if let Some(at) = self.leader_position() {
                    let ttl = i64::try_from(*seconds).unwrap_or(i64::MAX);
                    let grant = hustings_kv::Command::LeaseGrant(LeaseGrant { id: *id, ttl });
                    self.propose(at, Asked::Operator, EntryKind::Command, grant.to_payload());
                }
            }
            Command::Expect(expectation) => return self.expect(expectation),
            Command::Mark => self.mark(),
        }
        self.record_members();
        self.record_links();
        self.verdict.clone()
    }

    // --- Whom. ---------------------------------------------------------------------------------------------------

    pub(crate) fn leader_position(&self) -> Option<usize> {
        self.leader().and_then(|leader| self.position(leader))
    }

    /// Positions of those that a selector names now.
    pub(crate) fn chosen(&self, who: Target) -> Vec<usize> {
        let leader = self.leader_position();
        let others = (0..self.machines.len()).filter(|at| Some(*at) != leader);
        match who {
            Target::Node(id) => self.position(NodeId(id)).into_iter().collect(),
            Target::Leader => leader.into_iter().collect(),
            Target::Follower(number) => others.skip(number.saturating_sub(1) as usize).take(1).collect(),
            Target::Others => others.collect(),
            Target::Wiped => (0..self.machines.len()).filter(|at| self.machines[*at].is_stranger).collect(),
            Target::All => (0..self.machines.len()).collect(),
        }
    }

    fn each(&mut self, who: Target, mut act: impl FnMut(&mut World<P, S>, usize)) {
        for at in self.chosen(who) {
            act(self, at);
        }
    }

    fn pairs(&mut self, one: Target, other: Target, mut act: impl FnMut(&mut World<P, S>, usize, usize)) {
        let others = self.chosen(other);
        for one in self.chosen(one) {
            for other in others.iter().filter(|other| **other != one) {
                act(self, one, *other);
            }
        }
    }

    // --- Processes. ----------------------------------------------------------------------------------------------

    fn restart(&mut self, at: usize) {
        if self.machines[at].is_up() || matches!(self.machines[at].life, Life::Refused(_)) {
            return;
        }
        self.start(at);
    }

    pub(crate) fn resume(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        if !std::mem::take(&mut machine.is_paused) {
            return;
        }
        let mut stash: Vec<EventKind<P::Timer>> = std::mem::take(&mut machine.stash).into();
        // A host that wakes late hears its peers first; a worse one believes its timers. Both must be safe.
        let timers_first = self.dice.chance(300_000);
        stash.sort_by_key(|what| matches!(what, EventKind::Timer(..)) != timers_first);
        for what in stash {
            self.at(self.now, what);
        }
        self.record_member(at);
    }

    fn cut(&mut self, one: usize, other: usize) {
        self.network.set_cut(one, other, true);
        self.network.set_cut(other, one, true);
    }

    fn partition(&mut self, groups: &[Vec<Target>]) {
        let groups: Vec<BTreeSet<usize>> =
            groups.iter().map(|group| group.iter().flat_map(|who| self.chosen(*who)).collect()).collect();
        for one in 0..self.machines.len() {
            for other in 0..self.machines.len() {
                let is_together = groups.iter().any(|group| group.contains(&one) && group.contains(&other));
                if one != other && !is_together {
                    self.network.set_cut(one, other, true);
                }
            }
        }
    }

    /// Every running pair that is not connected connects again.
    fn reconnect(&mut self) {
        for one in 0..self.machines.len() {
            for other in one + 1..self.machines.len() {
                let are_up = self.machines[one].is_up() && self.machines[other].is_up();
                if are_up && !self.network.is_connected(one, other) {
                    self.connect_soon(one, other);
                }
            }
        }
    }

    // --- Disks. --------------------------------------------------------------------------------------------------

    fn fault_disk(&mut self, at: usize, fault: DiskFault) {
        let machine = &mut self.machines[at];
        let life = machine.lives;
        let next = |count: u64| Some(machine.disk.operations() + count.max(1));
        match fault {
            DiskFault::Stall => machine.is_stalled = true,
            DiskFault::Lie => machine.lies = true,
            DiskFault::Recover => {
                machine.pace = self.settings.disk;
                machine.lies = false;
                // What a power cut has taken does not come back.
                if !machine.is_powered_off && !machine.disk.is_off() && std::mem::take(&mut machine.has_lied) {
                    machine.disk.flush();
                }
                if std::mem::take(&mut machine.is_stalled) {
                    self.at(self.now, EventKind::Synced(at, life));
                }
            }
            DiskFault::Slow(micros) => {
                machine.pace.sync_min = micros / 2;
                machine.pace.sync_max = micros;
            }
            DiskFault::Full(bytes) => {
                let space_bytes = Some(machine.disk.used_bytes() + bytes);
                machine.disk.plan(Faults { space_bytes, ..Faults::default() });
            }
            DiskFault::Roomy => machine.disk.plan(Faults::default()),
            DiskFault::Fail(operation) => {
                let fails_at = next(operation);
                machine.disk.plan(Faults { fails_at, ..Faults::default() });
            }
            DiskFault::CrashAt(operation) => {
                let crash_at = next(operation);
                machine.disk.plan(Faults { crash_at, ..Faults::default() });
            }
            DiskFault::Misdirect(operation) => {
                let misdirected_at = next(operation).map(|operation| (operation, ASTRAY));
                machine.disk.plan(Faults { misdirected_at, ..Faults::default() });
            }
            DiskFault::Rot(read) => {
                let rots_read = Some(machine.disk.reads() + read.max(1));
                machine.disk.plan(Faults { rots_read, ..Faults::default() });
            }
        }
    }

    fn wipe(&mut self, at: usize) {
        self.end(at, true);
        let seed = self.dice.throw();
        let machine = &mut self.machines[at];
        machine.disk = hustings_wal::SimulatedDisk::new(seed);
        machine.life = Life::Down;
        machine.is_stranger = true;
        machine.is_powered_off = false;
        (machine.lies, machine.has_lied) = (false, false);
        self.judge.on_wiped(machine.id);
    }

    /// Prepares the disk for a restart: after a power cut it has what had been synced and some of the rest.
    pub(crate) fn prepare_disk(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        let loss = match std::mem::take(&mut machine.is_powered_off) || machine.disk.is_off() {
            true => *machine.dice.pick(&[Loss::Each, Loss::EachTorn, Loss::Everything]).unwrap_or(&Loss::Each),
            false => Loss::Nothing,
        };
        machine.disk.restart(loss);
    }

    // --- Operators. ----------------------------------------------------------------------------------------------

    fn ask(&mut self, at: usize, admin: Admin) {
        self.order += 1;
        let request = self.order;
        if self.machines[at].is_up() && !self.machines[at].is_paused {
            self.step(at, Event::Admin { request, admin });
        }
    }

    fn ask_leader(&mut self, admin: Admin) {
        if let Some(at) = self.leader_position() {
            self.ask(at, admin);
        }
    }

    /// The member's times are so many hundredths of the settings' from now on.
    fn retime(&mut self, at: usize, percent: u64) {
        let Timing { heartbeat, election_min, election_max } = self.settings.timing_of(at);
        let part = |duration: Duration| duration * u32::try_from(percent).unwrap_or(u32::MAX) / 100;
        let timing =
            Timing { heartbeat: part(heartbeat), election_min: part(election_min), election_max: part(election_max) };
        if self.machines[at].is_up() && !self.machines[at].is_paused {
            self.step(at, Event::Retime(timing));
        }
    }

    /// Proposes the change at the member that the operator asks; one that does not lead forwards it.
    fn change(&mut self, change: &MembershipChange) {
        let asked = self.chosen(self.operator).into_iter().find(|at| self.machines[*at].is_open());
        if let Some(at) = asked.or_else(|| self.leader_position())
            && !self.machines[at].is_paused
        {
            self.propose(at, Asked::Operator, EntryKind::Membership, change.to_bytes());
        }
    }

    pub(crate) fn present_membership(&self) -> Option<Arc<Membership>> {
        let at = self.leader_position()?;
        Some(self.machines[at].replica.as_ref()?.membership().clone())
    }

    fn join(&mut self) {
        let Some(membership) = self.present_membership() else { return };
        // Ids are never reused, so every earlier one has its machine.
        let id = NodeId(membership.next_id.max(self.machines.len() as u64 + 1));
        let member = Member { name: id.to_string(), wants_vote: true, ..Member::default() };
        let steps = [Change::AddLearner(id), Change::Describe(id, member)];
        self.change(&MembershipChange::of(steps));
        let founding = self.founding.clone();
        let mut machine: Machine<P, S> = Machine::new(id, self.settings.seed, founding, self.settings.disk);
        machine.plants = self.machines.first().map(|machine| machine.plants).unwrap_or_default();
        self.machines.push(machine);
        self.network.grow(self.machines.len());
        self.measure_distances();
        self.start(self.machines.len() - 1);
    }

    fn set_voters(&mut self, who: &[Target]) {
        let Some(membership) = self.present_membership() else { return };
        let wanted: BTreeSet<NodeId> =
            who.iter().flat_map(|who| self.chosen(*who)).map(|at| self.machines[at].id).collect();
        let added = wanted.difference(&membership.voters).map(|id| Change::AddVoter(*id));
        let removed = membership.voters.difference(&wanted).map(|id| Change::Remove(*id));
        let change = MembershipChange { steps: added.chain(removed).collect(), passage: Passage::JointImplicit };
        self.change(&change);
    }

    // --- What must be true. --------------------------------------------------------------------------------------

    fn mark(&mut self) {
        self.marked_elections = self.counts.elections;
        self.counts.outage_max = 0;
    }

    fn expect(&mut self, expectation: &Expectation) -> Result<(), Violation> {
        let unmet = |what: String| Err(Violation::of("expectation", what));
        match expectation {
            Expectation::Leader(who) => {
                let leader = self.leader_position();
                if leader.is_none_or(|leader| !self.chosen(*who).contains(&leader)) {
                    let leads = self.leader().map_or("nobody".to_owned(), |leader| leader.to_string());
                    return unmet(format!("{who} was to lead, and {leads} does"));
                }
            }
            Expectation::NoLeader => {
                if let Some(leader) = self.leader() {
                    return unmet(format!("nobody was to lead, and {leader} does"));
                }
            }
            Expectation::Changes(least, most) => {
                let changes = self.counts.elections - self.marked_elections;
                if changes < *least || changes > *most {
                    return unmet(format!(
                        "leadership was to change {least} to {most} times, and did so {changes} times"
                    ));
                }
            }
            Expectation::Outage(micros) => {
                let waiting = self.load.waiting_since().map_or(0, |since| self.now - since);
                let outage = self.counts.outage_max.max(waiting);
                if outage > *micros {
                    let (is, may) = (outage / 1_000, micros / 1_000);
                    return unmet(format!("clients were to wait at most {may} ms, and waited {is} ms"));
                }
            }
            Expectation::Lease(id) if self.has_lease(*id) != Some(true) => {
                return unmet(format!("lease {id} was to live"));
            }
            Expectation::NoLease(id) if self.has_lease(*id) != Some(false) => {
                return unmet(format!("lease {id} was to be gone, and a leader was to know it"));
            }
            Expectation::Lease(_) | Expectation::NoLease(_) => {}
            Expectation::Same => return self.expect_same(),
            Expectation::Refused(who) => {
                for at in self.chosen(*who) {
                    if !matches!(self.machines[at].life, Life::Refused(_)) {
                        return unmet(format!("{} was to refuse its disk", self.machines[at].id));
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a lease lives in the state of the leader; `None` when nobody leads.
    fn has_lease(&self, id: i64) -> Option<bool> {
        let leader = self.machines[self.leader_position()?].replica.as_ref()?;
        Some(S::look(&leader.machine().inner().freeze()).has_lease(id))
    }

    /// Members in force that run hold and have applied the same.
    pub(crate) fn expect_same(&self) -> Result<(), Violation> {
        let Some(leader) = self.leader_position() else {
            return Err(Violation::of("expectation", "all were to be the same, and nobody leads"));
        };
        let Some(first) = &self.machines[leader].replica else { return Ok(()) };
        let membership = first.membership();
        for machine in self.machines.iter().filter(|machine| membership.has(machine.id) && !machine.is_stranger) {
            let Some(replica) = &machine.replica else { continue };
            let (one, other) = (first.applied(), replica.applied());
            // A witness follows the log, and holds no state.
            let has_state = !first.is_witness() && !replica.is_witness();
            if one != other || has_state && first.machine() != replica.machine() {
                let what = format!("{} applied {one}, {} applied {other}", first.me(), machine.id);
                return Err(Violation::of("expectation", format!("all were to be the same: {what}")));
            }
        }
        Ok(())
    }

    /// Lets time pass until a leader serves and everybody connected holds the same.
    fn settle(&mut self, at_most: u64) -> Result<(), Violation> {
        let deadline = self.now + at_most;
        while self.now < deadline {
            self.run_until(self.now + SETTLE_STEP)?;
            if self.is_settled() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether a leader serves and everybody connected holds the same.
    pub fn is_settled(&self) -> bool {
        self.expect_same().is_ok() && self.is_committed_to_the_end()
    }

    /// Whether the leader has committed and applied all of its log.
    fn is_committed_to_the_end(&self) -> bool {
        self.leader_position().and_then(|at| self.machines[at].replica.as_ref()).is_some_and(|replica| {
            let status = replica.status();
            status.role == Role::Leader
                && status.commit == status.last.index
                && status.last.term == status.term
                && replica.applied().index == status.commit
        })
    }
}

impl Dice {
    /// Dice that do not depend on what is thrown elsewhere.
    pub fn fork(&mut self) -> Dice {
        Dice::new(self.throw(), 0, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use hustings_kv::KvStore;
    use hustings_raft::{Options, Raft};

    /// Goal: newcomers of a world begin as a host's do (M9): with the members that founded the cluster, and not with those of today. Method: n1
    /// is removed, and n4 joins.
    #[test]
    fn a_newcomer_begins_with_the_members_that_founded_the_cluster() {
        let mut world = World::<Raft, KvStore>::new(Settings::new(3, 1), Options::default()).expect("it starts");
        let days =
            [Command::Settle(5_000_000), Command::Remove(Target::Node(1)), Command::Settle(5_000_000), Command::Join];
        for command in days.iter().chain(&[Command::Settle(5_000_000)]) {
            world.apply(command).expect("nothing is violated");
        }
        let today = world.present_membership().expect("somebody leads");
        assert!(!today.voters.contains(&NodeId(1)) && today.is_voter(NodeId(4)), "{today:?}");
        let newcomer = &world.machines[3];
        assert_eq!((newcomer.id, &newcomer.founding.voters), (NodeId(4), &(1..=3).map(NodeId).collect()));
    }
}
