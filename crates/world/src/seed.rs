//! A run drawn from a seed: [`Plan`], [`run`].
//!
//! A seed first draws what this run is about: which kinds of faults there are at all, how often, how good links and disks are
//! (a swarm: no run has everything, all runs together do). Then it draws the faults themselves, as commands with times. A
//! *safety phase* with faults is followed by a *liveness phase* without: everything is healed and started, and a connected
//! majority must serve within [`LIVENESS_TIMEOUTS`] longest election timeouts, and end up equal.
//!
//! A plan is data. So what a run failed of can be looked for by leaving out one fault after the other ([`shrink`]), and what
//! remains prints as a script.
//!
//! Source: Groce et al., "Swarm Testing", 2012; Zeller, "Simplifying and Isolating Failure-Inducing Input", 2002.

use crate::command::{Command, DiskFault, Expectation, Who};
use crate::coverage::Coverage;
use crate::dice::Dice;
use crate::journal::{Counts, Journal};
use crate::machine::Plants;
use crate::network::Quality;
use crate::script::Script;
use crate::settings::{DiskPace, Settings};
use crate::witness::Service;
use crate::world::World;
use hustings_core::Protocol;
use hustings_core::replica::Policy;
use hustings_properties::Violation;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;

/// Longest election timeouts within which a healed cluster must serve.
pub const LIVENESS_TIMEOUTS: u64 = 10;

/// What goes wrong, and for how long, before it is made good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Crash,
    PowerOff,
    AllPowerOff,
    Pause,
    Isolate,
    Split,
    Mute,
    Cut,
    Reset,
    BadLinks,
    DiskStall,
    DiskSlow,
    DiskFull,
    DiskFail,
    DiskCrashAt,
    Rot,
    Clock,
    Suspend,
    Transfer,
    Campaign,
    Membership,
    Wipe,
}

const KINDS: [Kind; 22] = [
    Kind::Crash,
    Kind::PowerOff,
    Kind::AllPowerOff,
    Kind::Pause,
    Kind::Isolate,
    Kind::Split,
    Kind::Mute,
    Kind::Cut,
    Kind::Reset,
    Kind::BadLinks,
    Kind::DiskStall,
    Kind::DiskSlow,
    Kind::DiskFull,
    Kind::DiskFail,
    Kind::DiskCrashAt,
    Kind::Rot,
    Kind::Clock,
    Kind::Suspend,
    Kind::Transfer,
    Kind::Campaign,
    Kind::Membership,
    Kind::Wipe,
];

/// A run before it is run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// How the world is made.
    pub settings: Settings,
    /// What is done to it and when, in microseconds, in order.
    pub faults: Vec<(u64, Command)>,
    /// How long the safety phase takes, in microseconds.
    pub safety: u64,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The property that did not hold, and when.
    pub violation: Option<(u64, Violation)>,
    /// Numbers.
    pub counts: Counts,
    /// Equal for equal runs.
    pub fingerprint: u64,
    /// Virtual time, in microseconds.
    pub simulated: u64,
    /// The story.
    pub journal: Journal,
}

/// Members that a cluster may have beyond those it began with.
const JOINED_MAX: u64 = 3;
/// Beyond those, somebody new in so many microseconds at most: a machine in a crowd of removed ones is no user's day.
const JOIN_EVERY: u64 = 30_000_000;

struct Drawing<'a> {
    dice: Dice,
    faults: Vec<(u64, Command)>,
    nodes: u64,
    safety: u64,
    kinds: Vec<Kind>,
    has_wiped: bool,
    /// Who is a member, as far as a plan can know, and how many there ever were.
    present: BTreeSet<u64>,
    ever: u64,
    settings: &'a Settings,
}

impl Drawing<'_> {
    fn who(&mut self) -> Who {
        match self.dice.below(3) {
            0 => Who::Leader,
            _ => self.node(),
        }
    }

    fn node(&mut self) -> Who {
        // Now and then somebody who may have left.
        let place = self.dice.below(self.present.len() as u64 + 1) as usize;
        let left = 1 + self.dice.below(self.ever);
        Who::Node(self.present.iter().nth(place).copied().unwrap_or(left))
    }

    fn other(&mut self, than: Who) -> Who {
        loop {
            let other = self.node();
            if other != than || self.ever == 1 {
                return other;
            }
        }
    }

    fn push(&mut self, at: u64, command: Command) {
        match &command {
            // Clusters stay as large as people run them.
            Command::Join if self.present.len() as u64 >= self.nodes + JOINED_MAX => return,
            Command::Join if self.ever >= self.nodes + JOINED_MAX + self.safety / JOIN_EVERY => return,
            Command::Join => {
                self.ever += 1;
                self.present.insert(self.ever);
            }
            Command::Remove(Who::Node(id)) => {
                self.present.remove(id);
            }
            Command::Voters(voters) => {
                let named = |who: &Who| if let Who::Node(id) = who { Some(*id) } else { None };
                self.present = voters.iter().filter_map(named).collect();
            }
            _ => {}
        }
        self.faults.push((at.min(self.safety), command));
    }

    /// One fault at `at`, and its end.
    fn draw(&mut self, at: u64) {
        let Some(kind) = self.dice.pick(&self.kinds).copied() else { return };
        // Half of all faults end before an election could; some last long.
        let election = self.settings.election_max();
        let lasts = match self.dice.below(4) {
            0 => self.dice.between(1_000, election / 4),
            1 | 2 => self.dice.between(election / 4, election * 3),
            _ => self.dice.between(election * 3, election * 15),
        };
        let end = at + lasts;
        // What is made good must be what went wrong: a member by name.
        let node = self.node();
        match kind {
            Kind::Crash => {
                let who = self.who();
                self.push(at, Command::Crash(who));
                self.push(end, Command::Restart(Who::All));
            }
            Kind::PowerOff => {
                self.push(at, Command::PowerOff(node));
                self.push(end, Command::Restart(node));
            }
            Kind::AllPowerOff => {
                self.push(at, Command::PowerOff(Who::All));
                self.push(at + lasts.min(2_000_000), Command::Restart(Who::All));
            }
            Kind::Pause => {
                let who = self.who();
                self.push(at, Command::Pause(who));
                self.push(end, Command::Resume(Who::All));
            }
            Kind::Isolate => {
                let who = self.who();
                self.push(at, Command::Isolate(who));
                self.push(end, Command::Heal);
            }
            Kind::Split => {
                let mut groups = [Vec::new(), Vec::new()];
                for id in 1..=self.nodes {
                    groups[self.dice.below(2) as usize].push(Who::Node(id));
                }
                if self.dice.below(3) == 0 {
                    // One member sees both sides.
                    let bridge = self.node();
                    groups.iter_mut().for_each(|group| group.push(bridge));
                }
                self.push(at, Command::Partition(groups.to_vec()));
                self.push(end, Command::Heal);
            }
            Kind::Mute => {
                let from = self.who();
                let to = if self.dice.below(3) == 0 { Who::All } else { self.node() };
                self.push(at, Command::Mute(from, to));
                self.push(end, Command::Heal);
            }
            Kind::Cut => {
                let other = self.other(node);
                self.push(at, Command::Cut(node, other));
                self.push(end, Command::Mend(node, other));
            }
            Kind::Reset => {
                let (one, other) = (self.who(), if self.dice.below(3) == 0 { Who::All } else { self.node() });
                self.push(at, Command::Reset(one, other));
            }
            Kind::BadLinks => {
                let delay_min = self.dice.between(100, 5_000);
                // Sometimes a message arrives when its term is long over.
                let spread = if self.dice.below(4) == 0 { election * 3 } else { election / 8 };
                let command = Command::Links {
                    delay_min,
                    delay_max: delay_min + self.dice.between(1_000, spread),
                    loss: self.dice.below(200_000) as u32,
                    duplicates: self.dice.below(200_000) as u32,
                };
                self.push(at, command);
                self.push(end, Command::Heal);
            }
            Kind::DiskStall => {
                let who = self.who();
                self.push(at, Command::Disk(who, DiskFault::Stall));
                self.push(end, Command::Disk(Who::All, DiskFault::Recover));
            }
            Kind::DiskSlow => {
                let slow = self.dice.between(5_000, 150_000);
                self.push(at, Command::Disk(node, DiskFault::Slow(slow)));
                self.push(end, Command::Disk(node, DiskFault::Recover));
            }
            Kind::DiskFull => {
                let bytes = self.dice.below(100_000);
                self.push(at, Command::Disk(node, DiskFault::Full(bytes)));
                self.push(end, Command::Disk(node, DiskFault::Roomy));
            }
            Kind::DiskFail => {
                let (who, operation) = (self.who(), self.dice.between(1, 30));
                self.push(at, Command::Disk(who, DiskFault::Fail(operation)));
            }
            Kind::DiskCrashAt => {
                let (who, operation) = (self.who(), self.dice.between(1, 40));
                self.push(at, Command::Disk(who, DiskFault::CrashAt(operation)));
                self.push(end, Command::Restart(Who::All));
            }
            Kind::Rot => {
                let read = self.dice.between(1, 200);
                self.push(at, Command::Disk(node, DiskFault::Rot(read)));
                self.push(at, Command::Crash(node));
                self.push(end, Command::Restart(node));
            }
            Kind::Clock => {
                let rate = self.dice.between(900_000, 1_100_000);
                self.push(at, Command::Clock(node, rate));
                self.push(end, Command::Clock(node, 1_000_000));
            }
            Kind::Suspend => {
                let who = self.who();
                self.push(at, Command::Suspend(who, lasts));
            }
            Kind::Transfer => self.push(at, Command::Transfer(node)),
            Kind::Campaign => self.push(at, Command::Campaign(node)),
            Kind::Membership => self.draw_change(at, end, node),
            Kind::Wipe if !self.has_wiped => {
                self.has_wiped = true;
                self.push(at, Command::Wipe(node));
                self.push(at + lasts / 2, Command::Remove(node));
                self.push(end, Command::Join);
            }
            Kind::Wipe => {}
        }
    }
}

impl Drawing<'_> {
    /// A change of membership, or several.
    fn draw_change(&mut self, at: u64, end: u64, node: Who) {
        match self.dice.below(6) {
            0 => self.push(at, Command::Join),
            1 => {
                self.push(at, Command::Join);
                self.push(end, Command::Remove(node));
            }
            2 => {
                let who = self.who();
                self.push(at, Command::Join);
                self.push(end, Command::Remove(who));
            }
            3 | 4 => {
                // Several at once, through a joint change: perhaps with somebody new, perhaps while somebody is unreachable.
                self.push(at, Command::Join);
                let known: Vec<u64> = self.present.iter().copied().collect();
                let voters: Vec<Who> = known.into_iter().filter(|_| self.dice.below(3) > 0).map(Who::Node).collect();
                if voters.len() > 1 {
                    if self.dice.below(2) == 0 {
                        let other = self.node();
                        self.push(end, Command::Isolate(other));
                        self.push(end + self.settings.election_max() * 2, Command::Heal);
                    }
                    self.push(end, Command::Voters(voters));
                }
            }
            _ => {
                // One after the other, right after somebody new leads.
                let other = self.other(node);
                let soon = at + self.dice.below(100_000);
                self.push(at, Command::Campaign(node));
                self.push(soon, Command::Join);
                self.push(soon, Command::Remove(other));
                let sooner_or_later = soon + self.dice.below(20_000);
                self.push(sooner_or_later, Command::Remove(node));
                self.push(end, Command::Join);
            }
        }
    }
}

impl Plan {
    /// What this seed does to a cluster of `nodes` in `safety` microseconds.
    pub fn draw(seed: u64, nodes: u64, safety: u64) -> Plan {
        let mut dice = Dice::new(seed, 20, nodes);
        let mut settings = Settings::new(nodes, seed);
        let delay_min = dice.between(50, 2_000);
        settings.quality = Quality {
            delay_min,
            delay_max: delay_min + dice.between(0, 20_000),
            loss: if dice.below(2) == 0 { 0 } else { dice.below(50_000) as u32 },
            duplicates: if dice.below(2) == 0 { 0 } else { dice.below(50_000) as u32 },
        };
        settings.disk = DiskPace { sync_min: 80, sync_max: 100 + dice.below(10_000) };
        settings.policy = Policy { entries_max: dice.between(20, 800), bytes_max: 1 << 20 };
        settings.limits.trailing_entries = dice.below(100);
        if dice.below(4) == 0 {
            // So that what is acknowledged ends anywhere in a log, and not with its last entry.
            settings.limits.message_bytes_max = dice.between(1, 2_000) as usize;
        }
        settings.load.rivals = dice.below(3);
        settings.load.watchers = 1 + dice.below(2);
        let mut kinds = KINDS.to_vec();
        kinds.retain(|_| dice.below(2) == 0);
        let gap = [300_000, 2_000_000, 10_000_000, 30_000_000][dice.below(4) as usize];
        let mut drawing = Drawing {
            dice,
            faults: Vec::new(),
            nodes,
            safety,
            kinds,
            has_wiped: false,
            present: (1..=nodes).collect(),
            ever: nodes,
            settings: &settings,
        };
        let mut at = 2_000_000;
        while at < safety {
            drawing.draw(at);
            at += drawing.dice.between(gap / 10, gap * 2);
        }
        let mut faults = drawing.faults;
        faults.sort_by_key(|(at, _)| *at);
        Plan { settings, faults, safety }
    }

    /// Draws one more fault at `at`, of any kind, and what makes it good again.
    pub(crate) fn draw_fault(&self, dice: &mut Dice, at: u64) -> Vec<(u64, Command)> {
        let joined = self.faults.iter().filter(|(_, command)| *command == Command::Join).count() as u64;
        let mut drawing = Drawing {
            dice: dice.clone(),
            faults: Vec::new(),
            nodes: self.settings.nodes,
            safety: self.safety,
            kinds: KINDS.to_vec(),
            has_wiped: self.faults.iter().any(|(_, command)| matches!(command, Command::Wipe(_))),
            present: (1..=self.settings.nodes + joined).collect(),
            ever: self.settings.nodes + joined,
            settings: &self.settings,
        };
        drawing.draw(at);
        *dice = drawing.dice;
        drawing.faults
    }

    /// The run as a script that `play` takes.
    pub fn script(&self, headline: Vec<String>) -> Script {
        let mut commands = Vec::new();
        let mut now = 0;
        for (at, command) in &self.faults {
            if *at > now {
                commands.push(Command::Wait(at - now));
                now = *at;
            }
            commands.push(command.clone());
        }
        if self.safety > now {
            commands.push(Command::Wait(self.safety - now));
        }
        commands.extend(mend());
        commands.push(Command::Settle(self.settings.election_max() * LIVENESS_TIMEOUTS));
        commands.push(Command::Expect(Expectation::Same));
        Script { headline, settings: self.settings.clone(), commands }
    }
}

/// What makes everything good again.
fn mend() -> [Command; 7] {
    [
        Command::Heal,
        Command::Disk(Who::All, DiskFault::Recover),
        Command::Disk(Who::All, DiskFault::Roomy),
        Command::Clock(Who::All, 1_000_000),
        Command::Resume(Who::All),
        Command::Restart(Who::All),
        Command::Mark,
    ]
}

/// Runs a plan.
pub fn run<P: Protocol, S: Service>(plan: &Plan, options: &P::Options, plants: Plants, arrows_max: usize) -> Report {
    run_with::<P, S>(plan, options, plants, arrows_max, None).0
}

/// Runs a plan and notes what it reaches.
pub(crate) fn run_covered<P: Protocol, S: Service>(
    plan: &Plan,
    options: &P::Options,
    plants: Plants,
) -> (Report, Coverage) {
    let (report, coverage) = run_with::<P, S>(plan, options, plants, 0, Some(Box::default()));
    (report, coverage.map_or_else(Coverage::default, |coverage| *coverage))
}

fn run_with<P: Protocol, S: Service>(
    plan: &Plan,
    options: &P::Options,
    plants: Plants,
    arrows_max: usize,
    coverage: Option<Box<Coverage>>,
) -> (Report, Option<Box<Coverage>>) {
    let mut world: Option<World<P, S>> = None;
    let verdict = std::panic::catch_unwind(AssertUnwindSafe(|| -> Result<(), Violation> {
        let world = world.insert(World::new(plan.settings.clone(), options.clone())?);
        world.plant(plants);
        world.coverage = coverage;
        world.journal.arrows_max = arrows_max;
        for (at, command) in &plan.faults {
            world.run_until(*at)?;
            world.apply(command)?;
        }
        world.run_until(plan.safety)?;
        live(world)
    }));
    let verdict = verdict.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_string()));
        Err(Violation::of("assertions", text.unwrap_or_else(|| "a panic without words".into())))
    });
    let seed = plan.settings.seed;
    let Some(mut world) = world else {
        let (counts, journal) = (Counts::default(), Journal::default());
        let violation = verdict.err().map(|violation| (0, violation));
        return (Report { seed, violation, counts, fingerprint: 0, simulated: 0, journal }, None);
    };
    let now = world.now();
    let coverage = world.coverage.take();
    let report = Report {
        seed,
        violation: verdict.err().map(|violation| (now, violation)),
        counts: std::mem::take(&mut world.counts),
        fingerprint: world.fingerprint(),
        simulated: now,
        journal: std::mem::take(&mut world.journal),
    };
    (report, coverage)
}

/// The liveness phase, and what is judged at the end.
fn live<P: Protocol, S: Service>(world: &mut World<P, S>) -> Result<(), Violation> {
    mend().iter().try_for_each(|command| world.apply(command))?;
    if !world.has_quorum() {
        // Wiped and refused disks are gone for good, and a majority may be among them: then there is nothing to expect.
        return linearizable(world);
    }
    let (healed_at, completed) = (world.now(), world.counts.completed);
    let deadline = healed_at + world.settings.election_max() * LIVENESS_TIMEOUTS;
    let has_load = world.settings.load.clients > 0;
    while world.now() < deadline && (has_load && world.counts.completed == completed || world.leader().is_none()) {
        world.run_until(world.now() + 20_000)?;
    }
    if has_load && world.counts.completed == completed && world.has_quorum() {
        let what = format!(
            "all is healed since {} s, and for {} longest election timeouts no client got an answer",
            healed_at / 1_000_000,
            LIVENESS_TIMEOUTS
        );
        return Err(Violation::of("serves-when-healed", what));
    }
    world.end_load();
    let deadline = world.now() + world.settings.load.patience + world.settings.election_max() * LIVENESS_TIMEOUTS;
    while world.now() < deadline && !(world.is_load_settled() && world.expect_same().is_ok()) {
        world.run_until(world.now() + 50_000)?;
    }
    // A removal that was under way when all was healed may have left a wiped disk in the majority.
    if world.has_quorum() {
        world.expect_same()?;
        world.expect_leases_end()?;
    }
    linearizable(world)
}

fn linearizable<P: Protocol, S: Service>(world: &World<P, S>) -> Result<(), Violation> {
    hustings_properties::check(&world.history()).map_err(|story| Violation::of("linearizable", story.to_string()))
}

/// The smallest plan found that still violates the same property: faults are left out one after the other, at most `tries` runs.
pub fn shrink<P: Protocol, S: Service>(
    plan: &Plan,
    options: &P::Options,
    plants: Plants,
    property: &str,
    mut tries: u32,
) -> Plan {
    let fails = |plan: &Plan| -> Option<u64> {
        let report = run::<P, S>(plan, options, plants, 0);
        report.violation.filter(|(_, violation)| violation.property == property).map(|(at, _)| at)
    };
    let mut best = plan.clone();
    // Nothing after the violation matters.
    if let Some(at) = fails(&best) {
        best.faults.retain(|(when, _)| *when <= at);
    }
    let mut size = best.faults.len().div_ceil(2);
    while size > 0 && tries > 0 {
        let mut start = 0;
        let mut has_shrunk = false;
        while start < best.faults.len() && tries > 0 {
            let mut candidate = best.clone();
            let end = (start + size).min(candidate.faults.len());
            candidate.faults.drain(start..end);
            tries -= 1;
            if let Some(at) = fails(&candidate) {
                candidate.faults.retain(|(when, _)| *when <= at);
                candidate.safety = candidate.safety.min(at + 1);
                // A shorter safety phase changes what comes later: it is kept only if it still fails.
                if fails(&candidate).is_none() {
                    candidate.safety = best.safety;
                }
                best = candidate;
                has_shrunk = true;
            } else {
                start += size;
            }
        }
        if !has_shrunk || size > 1 {
            size = if size == 1 { 0 } else { size / 2 };
        }
    }
    best
}
