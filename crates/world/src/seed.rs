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

use crate::command::Command;
use crate::coverage::Coverage;
use crate::dice::Dice;
use crate::digested::Service;
use crate::drawing::{Drawing, KINDS, takes_promises};
use crate::journal::{Counts, Journal};
pub use crate::liveness::LIVENESS_TIMEOUTS;
use crate::liveness::{linearizable, live};
use crate::machine::Plants;
use crate::network::Quality;
use crate::panics::caught;
use crate::recording::Recording;
use crate::script::Script;
use crate::settings::{DiskPace, Settings};
use crate::sickness::{draw_priorities, draw_sickness};
use crate::world::World;
use hustings_core::Protocol;
use hustings_core::quorum::may_be_witnesses;
use hustings_core::replica::Policy;
use hustings_properties::Violation;

/// A run before it is run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Settings of the world.
    pub settings: Settings,
    /// The faults and their moments, in microseconds, in order.
    pub faults: Vec<(u64, Command)>,
    /// Duration of the safety phase, in microseconds.
    pub safety: u64,
    /// Faults of one member while all others are well, and must serve all the same.
    pub sick: Vec<Command>,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed of its plan.
    pub seed: u64,
    /// The property that did not hold, and when.
    pub violation: Option<(u64, Violation)>,
    /// Numbers of the run.
    pub counts: Counts,
    /// Equal for equal runs.
    pub fingerprint: u64,
    /// Virtual time, in microseconds.
    pub simulated: u64,
    /// The story of the run.
    pub journal: Journal,
    /// Members' states, where arrows were asked for.
    pub recording: Option<Box<Recording>>,
}

impl Plan {
    /// Draws the plan of this seed for a cluster of `nodes`, with `safety` microseconds of faults.
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
        settings.policy = Policy { entries_max: dice.between(20, 800), ..settings.policy };
        settings.limits.trailing_entries = dice.below(100);
        if dice.below(4) == 0 {
            // So that what is acknowledged ends anywhere in a log, and not with its last entry.
            settings.limits.message_bytes_max = dice.between(1, 2_000) as usize;
        }
        settings.load.rivals = dice.below(3);
        settings.load.watchers = 1 + dice.below(2);
        if dice.below(4) == 0 {
            settings.load.value_bytes = [100, 2_000, 12_000][dice.below(3) as usize];
        }
        if dice.below(4) == 0 {
            // A leader that soon has enough: clients hear that it is overloaded.
            settings.limits.uncommitted_bytes_max = dice.between(1, 5_000) as usize;
        }
        if dice.below(4) == 0 {
            settings.priorities = draw_priorities(&mut dice, nodes);
        }
        let mut of_candidates = Dice::new(seed, 21, nodes);
        if of_candidates.below(3) == 0 {
            settings.load.candidates = of_candidates.between(2, 3);
        }
        settings.has_succession = Dice::new(seed, 25, nodes).below(2) == 0;
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
        let sick = draw_sickness(&mut drawing.dice, &settings);
        Plan { settings, faults, safety, sick }
    }

    /// The same with so many founding members as witnesses, the last ones; always fewer than half.
    pub fn with_witnesses(mut self, witnesses: u64) -> Plan {
        let nodes = self.settings.nodes;
        let most = (0..=witnesses.min(nodes))
            .rev()
            .find(|count| may_be_witnesses(*count as usize, nodes as usize))
            .unwrap_or(0);
        self.settings.witnesses = (0..nodes as usize).skip((nodes - most) as usize).collect();
        self
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
            has_wiped: self.faults.iter().any(|(_, command)| takes_promises(command)),
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
        let mut members = self.settings.nodes;
        for (at, command) in &self.faults {
            // Also where no time passes: what is due by then happens before it.
            commands.push(Command::Wait(at.saturating_sub(now)));
            now = now.max(*at);
            members += u64::from(*command == Command::Join);
            // A change of the plan may have left out the `join` of a member that a later fault names.
            commands.extend(command.among(members));
        }
        commands.push(Command::Wait(self.safety.saturating_sub(now)));
        commands.extend(Command::Peace(self.sick.clone()).among(members));
        Script { headline, settings: self.settings.clone(), commands }
    }

    /// The plan whose script this is, or `None` where the script has a line that no plan has: plans wait and do things until `peace`.
    pub fn of_script(script: &Script) -> Option<Plan> {
        let (Command::Peace(sick), before) = script.commands.split_last()? else { return None };
        let (mut faults, mut now) = (Vec::new(), 0_u64);
        for command in before {
            match command {
                Command::Wait(micros) => now = now.checked_add(*micros)?,
                Command::Settle(_) | Command::Mark | Command::Expect(_) | Command::Peace(_) => return None,
                other => faults.push((now, other.clone())),
            }
        }
        Some(Plan { settings: script.settings.clone(), faults, safety: now, sick: sick.clone() })
    }
}

/// The point to which a run goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// It goes on until all has been well for a while.
    Peace,
    /// It ends at its last fault: what is wrong by then is found sooner.
    Faults,
}

/// Runs a plan to its end, or until a property falls.
pub fn run<P: Protocol, S: Service>(plan: &Plan, options: &P::Options, plants: Plants, arrows_max: usize) -> Report {
    run_with::<P, S>(plan, options, plants, arrows_max, End::Peace, None).0
}

/// Runs a plan and notes what it reaches.
pub(crate) fn run_covered<P: Protocol, S: Service>(
    plan: &Plan,
    options: &P::Options,
    plants: Plants,
    end: End,
) -> (Report, Coverage) {
    let (report, coverage) = run_with::<P, S>(plan, options, plants, 0, end, Some(Box::default()));
    (report, coverage.map_or_else(Coverage::default, |coverage| *coverage))
}

fn run_with<P: Protocol, S: Service>(
    plan: &Plan,
    options: &P::Options,
    plants: Plants,
    arrows_max: usize,
    end: End,
    coverage: Option<Box<Coverage>>,
) -> (Report, Option<Box<Coverage>>) {
    let mut world: Option<World<P, S>> = None;
    let verdict = caught(|| -> Result<(), Violation> {
        let world = world.insert(World::planted(plan.settings.clone(), options.clone(), plants)?);
        world.coverage = coverage;
        if arrows_max > 0 {
            world.start_recording();
        }
        for (at, command) in &plan.faults {
            world.run_until(*at)?;
            world.apply(command)?;
        }
        world.run_until(plan.safety)?;
        match end {
            End::Peace => live(world, &plan.sick),
            End::Faults => linearizable(world),
        }
    });
    let verdict = verdict.unwrap_or_else(|words| Err(Violation::of("assertions", words)));
    let seed = plan.settings.seed;
    let Some(mut world) = world else {
        let (counts, journal) = (Counts::default(), Journal::default());
        let violation = verdict.err().map(|violation| (0, violation));
        return (Report { seed, violation, counts, fingerprint: 0, simulated: 0, journal, recording: None }, None);
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
        recording: world.recording.take(),
    };
    (report, coverage)
}

/// Whether two runs fell to the same: to one property and, where a property stands for many things, for the same words but numbers.
fn is_alike(one: &Violation, other: &Violation) -> bool {
    let stands_for_many = matches!(one.property, "assertions" | "expectation");
    let words =
        |violation: &Violation| violation.what.chars().filter(|letter| !letter.is_ascii_digit()).collect::<String>();
    one.property == other.property && (!stands_for_many || words(one) == words(other))
}

/// The smallest plan found that still falls to the same violation: faults are left out one after the other, at most `tries` runs.
pub fn shrink<P: Protocol, S: Service>(
    plan: &Plan,
    options: &P::Options,
    plants: Plants,
    found: &Violation,
    mut tries: u32,
) -> Plan {
    let fails = |plan: &Plan| -> Option<u64> {
        let report = run::<P, S>(plan, options, plants, 0);
        report.violation.filter(|(_, violation)| is_alike(violation, found)).map(|(at, _)| at)
    };
    let mut best = plan.clone();
    // Nothing after the violation matters.
    if let Some(at) = fails(&best) {
        best.faults.retain(|(when, _)| *when <= at);
    }
    if !best.sick.is_empty() && tries > 0 {
        tries -= 1;
        let candidate = Plan { sick: Vec::new(), ..best.clone() };
        if fails(&candidate).is_some() {
            best = candidate;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Target;

    /// Goal: the script of a plan is one that `play` takes, whatever a search left out of the plan. Method: the `join` of n4 is
    /// gone, and faults name n4.
    #[test]
    fn the_script_of_a_plan_names_nobody_who_never_joins() {
        let mut plan = Plan::draw(1, 3, 1_000_000);
        let (ours, stranger) = (Target::Node(1), Target::Node(4));
        plan.faults = vec![
            (1, Command::Crash(stranger)),
            (2, Command::Partition(vec![vec![ours, stranger], vec![Target::Node(2)]])),
            (3, Command::Operator(stranger)),
            (4, Command::Voters(vec![ours, stranger])),
            (5, Command::Join),
            (6, Command::Crash(stranger)),
        ];
        plan.sick = vec![Command::Isolate(stranger), Command::Crash(Target::Node(5))];
        let script = plan.script(Vec::new());
        let told = script.to_string();
        assert_eq!(Script::parse(&told).map_err(|error| error.to_string()), Ok(script), "{told}");
        for (line, count) in [
            ("partition n1 | n2", 1),
            ("operator leader", 1),
            ("voters n1", 1),
            ("crash n4", 1),
            ("peace isolate n4", 1),
        ] {
            assert_eq!(told.lines().filter(|told| *told == line).count(), count, "{line} in {told}");
        }
    }

    /// Goal: what a search kept can be handed to another one. Method: plans of seeds, told as scripts, read again and told again; and a story,
    /// which is no plan.
    #[test]
    fn a_plan_that_is_told_is_read_again() {
        for seed in 1..=50 {
            let plan = Plan::draw(seed, 3, 20_000_000);
            let again = Plan::of_script(&plan.script(Vec::new())).expect("it is a plan's");
            // What names members that are not there yet is in no script.
            let (mut members, mut faults) = (3, Vec::new());
            for (at, command) in &plan.faults {
                members += u64::from(*command == Command::Join);
                faults.extend(command.among(members).map(|command| (*at, command)));
            }
            assert_eq!(again, Plan { faults, ..plan }, "seed {seed}");
        }
        let story = Script::parse("cluster 3\nsettle 5s\ncrash leader\nexpect changes 1").expect("it is a story");
        assert_eq!(Plan::of_script(&story), None);
        let without_end = Script::parse("cluster 3\nwait 5s\ncrash leader").expect("it is a story");
        assert_eq!(Plan::of_script(&without_end), None);
    }
}
