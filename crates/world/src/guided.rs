//! Search instead of luck: [`Search`] keeps the plans whose runs reached something new, changes them a little, and runs on.
//!
//! A plan is data ([`crate::seed::Plan`]), so it can be changed: a fault moved to just after somebody changed role, a link made
//! slow for a moment, a campaign added, two plans spliced, faults left out, another seed for the same faults. A plan that
//! reaches something that no run before it reached ([`crate::coverage`]) joins the corpus; plans that brought much and were
//! rarely chosen are chosen next.
//!
//! Equal seeds and budgets give equal searches. One run in four is drawn from a fresh seed, so a search is never worse than
//! plain seeds by much.
//!
//! Source: the idea is that of coverage-guided fuzzers (AFL); Ozkan et al., "Randomized testing of distributed systems with
//! probabilistic guarantees", 2018, on why a few well-placed delays find most ordering bugs.

mod situations;

use crate::command::{Command, Target};
use crate::coverage::Coverage;
use crate::dice::Dice;
use crate::digested::Service;
use crate::drawing::takes_promises;
use crate::journal::Line;
use crate::machine::Plants;
use crate::seed::{End, Plan, Report, run_covered};
use crate::sickness::{draw_illness, draw_outstanding};
use hustings_core::replica::backlog::SLICE_COST;
use hustings_core::{Protocol, Role, Transition};
use std::collections::VecDeque;

/// Plans that are kept; of more, those that brought least are forgotten.
const CORPUS_MAX: usize = 4_000;
/// One run in so many is drawn afresh.
const FRESH_EVERY: u64 = 4;
/// One run in so many, of those without a sick member at the end, is judged in peace as well.
const PEACE_EVERY: u64 = 4;
/// Plans among which the most promising is chosen.
const TOURNAMENT: u64 = 8;
/// Changes that one child has at most.
const CHANGES_MAX: u64 = 4;
/// Faults of one plan.
const FAULTS_MAX: usize = 120;
/// Longest time from a change of role to the fault that is placed after it, in microseconds.
const SOON: u64 = 60_000;

/// Microseconds of faults in each run of a search that looks for a defect.
const FIND_SAFETY: u64 = 20_000_000;

/// Runs of such a search with three members, and as many with five.
const FIND_RUNS: u64 = 4_000;

/// The run in which a search found a defect.
#[derive(Clone, Debug)]
pub struct Found {
    /// The run, in words.
    pub scheduler: String,
    /// The property that fell.
    pub property: &'static str,
    /// The plan of the run.
    pub plan: Plan,
}

/// Searches until a property falls, with three members and then with five.
pub fn find<P: Protocol, S: Service>(options: &P::Options, plants: Plants) -> Option<Found> {
    [3, 5].into_iter().find_map(|nodes| {
        let mut search = Search::new(1, nodes, FIND_SAFETY);
        (1..=FIND_RUNS).find_map(|run| {
            let (plan, report) = search.step::<P, S>(options, plants);
            let (_, violation) = report.violation?;
            let scheduler = format!("run {run} of a search, {nodes} members");
            Some(Found { scheduler, property: violation.property, plan })
        })
    })
}

/// A plan that reached something new.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The plan of the run.
    pub plan: Plan,
    /// Number of facts that its run was the first to reach.
    pub brought: u32,
    /// The changes of role in its run.
    turns: Vec<Turn>,
    chosen: u32,
}

/// Somebody changes role, at this microsecond: to lead or to seek it (`rises`), or to follow.
#[derive(Clone, Copy, Debug)]
struct Turn {
    at: u64,
    who: Target,
    rises: bool,
}

/// A moment of a plan's run, in microseconds, and who changed role just before.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at: u64,
    turned: Option<Target>,
}

/// Spares quorums, as seeds do: of fewer than three members a wiped one takes a quorum's promises with it, and so do two of more; a disk
/// that lies may do the same.
fn spare_quorums(plan: &mut Plan) {
    let mut wipes_left = usize::from(plan.settings.nodes >= 3);
    plan.faults.retain(|(_, command)| {
        let is_wipe = takes_promises(command);
        let stays = !is_wipe || wipes_left > 0;
        wipes_left -= usize::from(is_wipe && stays);
        stays
    });
}

/// A search that goes on, run by run.
pub struct Search {
    dice: Dice,
    seed: u64,
    nodes: u64,
    safety: u64,
    runs: u64,
    reached: Coverage,
    corpus: Vec<Kept>,
    /// Plans that were handed to it and are run before any of its own.
    handed: VecDeque<Plan>,
    /// Whether a vote is a promise on disk; a published form may write down none.
    pub are_votes_promises: bool,
    /// So many founding members of each cluster are witnesses; always fewer than half.
    pub witnesses: u64,
}

impl Search {
    /// A search from this seed, over clusters of `nodes` members and runs of `safety` microseconds of faults.
    pub fn new(seed: u64, nodes: u64, safety: u64) -> Search {
        let dice = Dice::new(seed, 30, nodes);
        Search {
            dice,
            seed,
            nodes,
            safety,
            runs: 0,
            reached: Coverage::default(),
            corpus: Vec::new(),
            handed: VecDeque::new(),
            are_votes_promises: true,
            witnesses: 0,
        }
    }

    /// Hands it plans that an earlier search kept: it runs them first, to their end, and keeps again what reaches something new. So a corpus
    /// that is handed over loses what has become superfluous, and the search goes on where the other one ended.
    pub fn hand(&mut self, plans: impl IntoIterator<Item = Plan>) {
        self.handed.extend(plans);
    }

    /// The plans that were handed to it and not run yet.
    pub fn handed(&self) -> impl Iterator<Item = &Plan> {
        self.handed.iter()
    }

    /// Number of runs so far.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Number of facts reached so far.
    pub fn reached(&self) -> u32 {
        self.reached.count()
    }

    /// The plans that reached something new.
    pub fn corpus(&self) -> &[Kept] {
        &self.corpus
    }

    /// One more run: the plan, and how it ended.
    pub fn step<P: Protocol, S: Service>(&mut self, options: &P::Options, plants: Plants) -> (Plan, Report) {
        let handed = self.handed.pop_front();
        let is_handed = handed.is_some();
        let mut plan = handed.unwrap_or_else(|| self.next_plan());
        plan.settings.rules.votes_are_promises = self.are_votes_promises;
        self.runs += 1;
        // Peace takes longer than most wars.
        let is_short = !is_handed && plan.sick.is_empty() && self.dice.below(PEACE_EVERY) > 0;
        let end = if is_short { End::Faults } else { End::Peace };
        let (report, coverage) = run_covered::<P, S>(&plan, options, plants, end);
        let brought = self.reached.add(&coverage);
        if brought > 0 {
            let turns = report.journal.lines.iter().filter_map(|(at, line)| match line {
                Line::Transition(Transition { node, from, to, .. }) if *at < plan.safety => {
                    Some(Turn { at: *at, who: Target::Node(node.0), rises: from != to && *to != Role::Follower })
                }
                _ => None,
            });
            let turns = turns.collect();
            self.corpus.push(Kept { plan: plan.clone(), brought, turns, chosen: 0 });
            if self.corpus.len() > CORPUS_MAX {
                self.corpus.sort_by_key(|kept| std::cmp::Reverse(kept.brought));
                self.corpus.truncate(CORPUS_MAX * 3 / 4);
            }
        }
        (plan, report)
    }

    fn next_plan(&mut self) -> Plan {
        if self.corpus.is_empty() || self.dice.below(FRESH_EVERY) == 0 {
            // A seed of its own for each, apart from those of other searches.
            let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(self.runs);
            // Smaller clusters and shorter runs are sooner over, and much needs no more.
            let nodes = if self.dice.below(2) == 0 { self.nodes } else { 1 + self.dice.below(self.nodes) };
            let safety = self.safety / [1, 2, 4, 8][self.dice.below(4) as usize];
            let mut plan = Plan::draw(seed, nodes, safety).with_witnesses(self.witnesses);
            if self.dice.below(2) == 0 {
                plan.sick = draw_illness(&mut self.dice, &plan.settings);
            }
            if self.dice.below(2) == 0 {
                plan.settings.priorities = draw_outstanding(&mut self.dice, nodes);
            }
            for _ in 0..self.dice.below(3) {
                self.change_settings(&mut plan);
            }
            return plan;
        }
        let parent = self.choose();
        let mut plan = self.corpus[parent].plan.clone();
        for _ in 0..1 + self.dice.below(CHANGES_MAX) {
            self.change(&mut plan, parent);
        }
        plan.faults.sort_by_key(|(at, _)| *at);
        plan.faults.truncate(FAULTS_MAX);
        spare_quorums(&mut plan);
        plan
    }

    /// The most promising of a few: it brought much, and was rarely chosen.
    fn choose(&mut self) -> usize {
        let mut best = self.dice.below(self.corpus.len() as u64) as usize;
        for _ in 1..TOURNAMENT {
            let other = self.dice.below(self.corpus.len() as u64) as usize;
            let promise = |at: usize| f64::from(self.corpus[at].brought + 1) / f64::from(self.corpus[at].chosen + 1);
            if promise(other) > promise(best) {
                best = other;
            }
        }
        self.corpus[best].chosen += 1;
        best
    }

    /// A moment at which something could matter: just after somebody changed role, or any.
    fn moment(&mut self, parent: usize, safety: u64) -> Moment {
        self.moment_among(parent, safety, |_| true)
    }

    /// A moment after a turn of this kind.
    fn moment_among(&mut self, parent: usize, safety: u64, is_of_kind: fn(&Turn) -> bool) -> Moment {
        let soon = [1_000, 8_000, SOON, SOON * 10][self.dice.below(4) as usize];
        let turns: Vec<Turn> = self.corpus[parent].turns.iter().copied().filter(is_of_kind).collect();
        let (at, turned) = match self.dice.pick(&turns) {
            Some(turn) if self.dice.below(4) > 0 => (turn.at + self.dice.below(soon), Some(turn.who)),
            _ => (self.dice.below(safety), None),
        };
        Moment { at: at.min(safety), turned }
    }

    fn node(&mut self, plan: &Plan) -> Target {
        Target::Node(1 + self.dice.below(plan.settings.nodes))
    }

    /// Draws the leader, the member that has just changed role, or anybody.
    fn who(&mut self, plan: &Plan, moment: Moment) -> Target {
        match self.dice.below(3) {
            0 => Target::Leader,
            1 => moment.turned.unwrap_or_else(|| self.node(plan)),
            _ => self.node(plan),
        }
    }

    /// Makes one small change to a plan.
    fn change(&mut self, plan: &mut Plan, parent: usize) {
        let faults = plan.faults.len() as u64;
        match self.dice.below(18) {
            // The same faults under other delays.
            0 => plan.settings.seed = self.dice.throw() >> 1,
            1 if faults > 1 => {
                let from = self.dice.below(faults) as usize;
                let count = 1 + self.dice.below(faults / 3 + 1) as usize;
                plan.faults.drain(from..(from + count).min(plan.faults.len()));
            }
            2 | 3 if faults > 0 => {
                let moved = self.dice.below(faults) as usize;
                plan.faults[moved].0 = self.moment(parent, plan.safety).at;
            }
            4 if faults > 0 => {
                // A window of faults again, later or earlier.
                let from = self.dice.below(faults) as usize;
                let window: Vec<(u64, Command)> = plan.faults[from..].iter().take(6).cloned().collect();
                let (first, to) = (window[0].0, self.moment(parent, plan.safety).at);
                let again = |at: u64| (to + at.saturating_sub(first)).min(plan.safety);
                plan.faults.extend(window.into_iter().map(|(at, command)| (again(at), command)));
            }
            5 => {
                let other = self.dice.below(self.corpus.len() as u64) as usize;
                let at = self.dice.below(plan.safety);
                plan.faults.retain(|(when, _)| *when < at);
                let rest = self.corpus[other].plan.faults.iter().filter(|(when, _)| *when >= at);
                plan.faults.extend(rest.cloned());
            }
            6 => plan.sick = draw_illness(&mut self.dice, &plan.settings),
            7 => self.change_settings(plan),
            8 | 9 => self.add_wild(plan, parent),
            10 => self.add_alone(plan, parent, Search::add_rift),
            11 => self.add_alone(plan, parent, Search::add_reigns),
            12 | 13 => self.add_alone(plan, parent, Search::add_desertion),
            14 => self.add_alone(plan, parent, Search::add_late_word),
            15 => self.add_alone(plan, parent, Search::add_teaching),
            16 => self.add_alone(plan, parent, Search::add_hiding),
            _ => {
                let at = self.moment(parent, plan.safety).at;
                let drawn = plan.draw_fault(&mut self.dice, at);
                plan.faults.extend(drawn);
            }
        }
    }

    fn change_settings(&mut self, plan: &mut Plan) {
        let (dice, settings) = (&mut self.dice, &mut plan.settings);
        match dice.below(8) {
            0 => {
                settings.quality.delay_min = dice.between(50, 20_000);
                settings.quality.delay_max = settings.quality.delay_min + dice.between(0, 40_000);
            }
            1 => settings.quality.loss = if dice.below(2) == 0 { 0 } else { dice.below(100_000) as u32 },
            2 => settings.disk.sync_max = 100 + dice.below(60_000),
            3 => {
                settings.policy.entries_max = [5, 20, 60, 800][dice.below(4) as usize];
                settings.limits.trailing_entries = [0, 5, 60][dice.below(3) as usize];
                // One command in a turn, now and then: what is committed is applied later.
                settings.policy.slice_cost = if settings.limits.trailing_entries == 5 { 1 } else { SLICE_COST };
            }
            4 => settings.limits.message_bytes_max = [1, 200, 1 << 20][dice.below(3) as usize],
            5 => {
                // Nobody writes, or hardly anybody: what needs the next request to go on stands still.
                settings.load.clients = [0, 3, 5][dice.below(3) as usize];
                settings.load.pause = dice.between(50_000, 5_000_000);
            }
            6 => settings.load.rivals = dice.below(4),
            _ => {
                settings.priorities = draw_outstanding(dice, settings.nodes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::DiskFault;

    /// Goal: no plan takes away what its cluster needs to be safe. Method: two members wiped, of one and of five; the rest stays.
    #[test]
    fn no_plan_wipes_a_quorum() {
        let left = |nodes: u64| {
            let mut plan = Plan::draw(1, nodes, 1_000_000);
            plan.faults =
                vec![(1, Command::Wipe(Target::Node(1))), (2, Command::Disk(Target::Node(2), DiskFault::Lie))];
            plan.faults.push((3, Command::Heal));
            spare_quorums(&mut plan);
            plan.faults.len()
        };
        assert_eq!((left(1), left(2), left(3), left(5)), (1, 1, 2, 2));
    }
}
