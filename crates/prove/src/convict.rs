//! `hustings convict`: how soon a search finds each planted defect, beside plain seeds.
//!
//! Every defect is looked for in several rounds, each from a seed of its own, and what is told is the median. A side ends as soon
//! as its median is decided: once more than half of its rounds found nothing, the median is beyond the budget; and a plain round
//! that takes longer than the median can still become is not finished.
//!
//! The other way round, [`by_property`]: which defects make each property fall.

mod by_property;

use super::{common, is_json, lists_plants, plants_of, plants_of_candidates, subject_of};
use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hustings_console::exit::{Code, Exit};
use hustings_core::Protocol;
use hustings_kv::KvStore;
use hustings_protocols::{self as protocols, Subject, Visit};
use hustings_world::Plants;
use hustings_world::guided::Search;
use hustings_world::seed::{Plan, run as run_seed};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

/// Virtual time of faults in each run, in microseconds: of a search, and of a plain seed.
const GUIDED_SAFETY: u64 = 20_000_000;
const PLAIN_SAFETY: u64 = 60_000_000;
/// Seeds of one round lie apart from those of the next.
const ROUND_SEEDS: u64 = 10_000_000;
/// Plain seeds get no less than this, however soon a search was through.
const PLAIN_LEAST: Duration = Duration::from_secs(1);

/// Defects that were once in this code and stand here again, by the findings that `docs/planted-defects.md` tells of.
const PUT_BACK: [(&str, &str); 13] = [
    ("leads-on-after-later", "P1"),
    ("loses-time-with-reigns", "P2"),
    ("pins-fetches", "P3"),
    ("commits-once", "P4"),
    ("never-yields", "P5"),
    ("takes-no-care", "M1"),
    ("removes-last-leader", "M2"),
    ("campaigns-alone", "M3"),
    ("trusts-stale-place", "M4"),
    ("truncates-committed", "M5"),
    ("insists-on-preference", "M6"),
    ("adopts-without-trace", "L1"),
    ("stamps-differences", "L2"),
];

fn finding_of(defect: &str) -> Option<&'static str> {
    PUT_BACK.iter().find(|(name, _)| *name == defect).map(|(_, finding)| *finding)
}

/// The command line of `convict`.
pub fn command() -> Command {
    let duration = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("DURATION").value_parser(value_parser!(humantime::Duration)).help(help)
    };
    let number = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_parser(value_parser!(u64).range(1..)).help(help)
    };
    common(
        Command::new("convict")
            .about("Plant each defect and look for it: by a guided search and by plain seeds, in processor time")
            .after_help(
                "Prints one row of a Markdown table for each defect. Exit code 1 when a search did not find one.",
            ),
    )
    .mut_arg("plant", |plant| plant.action(ArgAction::Append).help("Only this defect; may be given several times"))
    .arg(
        Arg::new("put-back")
            .long("put-back")
            .action(ArgAction::SetTrue)
            .conflicts_with("plant")
            .help("Only the defects that were once in this code"),
    )
    .arg(
        Arg::new("by-property")
            .long("by-property")
            .action(ArgAction::SetTrue)
            .conflicts_with_all(["plant", "put-back", "rounds", "plain-budget", "plain-times"])
            .help("Tell which defects make each property fall; --budget is the processor time for each defect"),
    )
    .arg(number("rounds", "Searches for each defect, each from a seed of its own; medians are told").default_value("5"))
    .arg(duration("budget", "Processor time that one search may take").default_value("10m"))
    .arg(duration("plain-budget", "Processor time that the plain seeds of one round may take [default: --budget]"))
    .arg(number(
        "plain-times",
        "Plain seeds take at most so many times as long as the median search, one second at least",
    ))
    .arg(number("jobs", "Threads; each plays rounds, and measures its own processor time").default_value("1"))
    .arg(
        Arg::new("nodes")
            .long("nodes")
            .value_parser(value_parser!(u64).range(1..=99))
            .default_value("5")
            .help("Voters at the beginning"),
    )
}

/// A way of looking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Guided,
    Plain,
}

/// The result of one round: found or not, in how much processor time and how many runs.
#[derive(Clone, Debug)]
struct Looked {
    found: Option<&'static str>,
    took: Duration,
    runs: u64,
}

/// Looks for one defect, in one round and one way.
struct Look<'a> {
    subject: &'a Subject,
    way: Way,
    nodes: u64,
    round: u64,
    budget: Duration,
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Plays a run again with nothing planted: the property that falls all the same.
struct Soundly<'a> {
    plan: &'a Plan,
}

impl Visit for Soundly<'_> {
    type Out = Option<&'static str>;

    fn visit<P: Protocol>(self, options: P::Options) -> Option<&'static str> {
        let report = run_seed::<P, KvStore>(self.plan, &options, Plants::default(), 0);
        report.violation.map(|(_, violation)| violation.property)
    }
}

/// What falls in this run although nothing is planted: then it convicts no defect, and is a finding of its own.
fn falls_soundly(planted: &Subject, plan: &Plan) -> Option<&'static str> {
    // A published form falls by itself.
    if planted.is_published {
        return None;
    }
    let sound = Subject { plant: None, ..planted.clone() };
    protocols::visit(&sound, Soundly { plan }).ok().flatten()
}

fn look(budget: Duration, mut one: impl FnMut(u64) -> Option<&'static str>) -> Looked {
    let begun = processor_time();
    let mut runs = 0;
    loop {
        let found = one(runs);
        runs += 1;
        let took = processor_time().saturating_sub(begun);
        if found.is_some() || took > budget {
            return Looked { found, took, runs };
        }
    }
}

impl Look<'_> {
    fn with<P: Protocol>(self, options: &P::Options) -> Looked {
        let plants = self.subject.plant.as_deref().and_then(Plants::named).unwrap_or_default();
        let mut search = Search::new(self.round, self.nodes, GUIDED_SAFETY);
        let first = self.round * ROUND_SEEDS + 1;
        look(self.budget, |run| {
            let (plan, report) = match self.way {
                Way::Guided => search.step::<P, KvStore>(options, plants),
                Way::Plain => {
                    let plan = Plan::draw(first + run, self.nodes, PLAIN_SAFETY);
                    let report = run_seed::<P, KvStore>(&plan, options, plants, 0);
                    (plan, report)
                }
            };
            let property = report.violation.map(|(_, violation)| violation.property)?;
            let Some(sound) = falls_soundly(self.subject, &plan) else { return Some(property) };
            self.tell_of_sound_members(run, first, sound);
            None
        })
    }
}

impl Look<'_> {
    /// A run that convicts where nothing is planted is worth more than the conviction that it was taken for.
    fn tell_of_sound_members(&self, run: u64, first: u64, property: &str) {
        let (flags, nodes) = (self.subject.flags(), self.nodes);
        let again = match self.way {
            Way::Guided => format!("--guided --seed {} --seeds {}", self.round, run + 1),
            Way::Plain => format!("--seed {} --minutes 1", first + run),
        };
        eprintln!(
            "hustings: `{property}` falls in this run with nothing planted, too: `hustings simulate {flags} --nodes {nodes} {again} --script FILE`, then play FILE without the defect"
        );
    }
}

impl Visit for Look<'_> {
    type Out = Looked;

    fn visit<P: Protocol>(self, options: P::Options) -> Looked {
        self.with::<P>(&options)
    }
}

/// The rounds of one way of looking that were played, of so many, within so much processor time each.
#[derive(Clone, Debug)]
struct Side {
    looks: Vec<Looked>,
    rounds: usize,
    budget: Duration,
}

impl Side {
    /// The round that took the median time; `None` where that is beyond the budget.
    fn median(&self) -> Option<&Looked> {
        let mut found: Vec<&Looked> = self.looks.iter().filter(|looked| looked.found.is_some()).collect();
        found.sort_by_key(|looked| looked.took);
        found.get(self.rounds / 2).copied()
    }

    /// Whether more than half of the rounds found nothing.
    fn is_beyond_budget(&self) -> bool {
        let missed = self.looks.iter().filter(|looked| looked.found.is_none()).count();
        missed * 2 > self.rounds
    }

    /// The median, or the budget where it is beyond that.
    fn at_least(&self) -> Duration {
        self.median().map_or(self.budget, |looked| looked.took)
    }

    fn is_in_all_rounds(&self) -> bool {
        self.looks.len() == self.rounds && self.looks.iter().all(|looked| looked.found.is_some())
    }

    fn told(&self) -> String {
        match self.median() {
            None => format!("> {} s", seconds(self.budget)),
            Some(looked) => format!("{} s, {} runs", seconds(looked.took), looked.runs),
        }
    }
}

/// Seconds with as many digits as mean something.
fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let digits = if seconds < 1.0 { 2 } else { usize::from(seconds < 100.0 && seconds.fract() > 0.0) };
    format!("{seconds:.digits$}")
}

/// The bounds of a comparison: members, rounds, and processor time.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    nodes: u64,
    rounds: usize,
    jobs: usize,
    budget: Duration,
    plain_budget: Duration,
    plain_times: Option<u32>,
}

impl Bounds {
    fn of(matches: &ArgMatches) -> Bounds {
        let number = |name: &str| matches.get_one::<u64>(name).copied();
        let count = |name: &str| number(name).and_then(|count| usize::try_from(count).ok()).unwrap_or(1);
        let duration = |name: &str| matches.get_one::<humantime::Duration>(name).map(|duration| **duration);
        let budget = duration("budget").unwrap_or_default();
        Bounds {
            nodes: number("nodes").unwrap_or(1),
            rounds: count("rounds"),
            jobs: count("jobs"),
            budget,
            plain_budget: duration("plain-budget").unwrap_or(budget),
            plain_times: number("plain-times").map(|times| u32::try_from(times).unwrap_or(u32::MAX)),
        }
    }

    /// Time that plain seeds may take beside such a search.
    fn beside(&self, guided: &Side) -> Duration {
        let most = self.plain_times.map_or(self.plain_budget, |times| guided.at_least().saturating_mul(times));
        most.max(PLAIN_LEAST).min(self.plain_budget)
    }

    /// Plays rounds until the median is decided.
    fn play(&self, planted: &Subject, way: Way, budget: Duration) -> Result<Side> {
        struct State {
            begun: usize,
            side: Side,
            error: Option<anyhow::Error>,
        }
        let side = Side { looks: Vec::new(), rounds: self.rounds, budget };
        let state = Mutex::new(State { begun: 0, side, error: None });
        let lock = || state.lock().expect("nobody panics while holding it: runs catch their panics");
        let work = || loop {
            let (round, budget) = {
                let mut state = lock();
                if state.begun == self.rounds || state.side.is_beyond_budget() || state.error.is_some() {
                    return;
                }
                state.begun += 1;
                let enough = if way == Way::Plain { state.side.at_least() } else { budget };
                (state.begun as u64, enough)
            };
            let looked = protocols::visit(planted, Look { subject: planted, way, nodes: self.nodes, round, budget });
            let mut state = lock();
            match looked {
                Ok(looked) => state.side.looks.push(looked),
                Err(error) => state.error = Some(error),
            }
        };
        std::thread::scope(|scope| {
            (0..self.jobs.min(self.rounds)).for_each(|_| drop(scope.spawn(work)));
        });
        let State { side, error, .. } = state.into_inner().expect("every thread has ended well");
        error.map_or(Ok(side), Err)
    }
}

/// One defect under one protocol, looked for both ways.
struct Row {
    defect: String,
    protocol: String,
    guided: Side,
    plain: Side,
}

impl Row {
    /// Time of plain seeds as a multiple of the search's; `None` where the search did not find the defect.
    fn times(&self) -> Option<f64> {
        let guided = self.guided.median()?.took.as_secs_f64();
        Some(self.plain.at_least().as_secs_f64() / guided.max(1e-6))
    }

    fn properties(&self) -> BTreeSet<&'static str> {
        self.guided.looks.iter().filter_map(|looked| looked.found).collect()
    }

    fn markdown(&self) -> String {
        let names: Vec<String> = self.properties().into_iter().map(|name| format!("`{name}`")).collect();
        let missed = if self.guided.is_in_all_rounds() { String::new() } else { self.rounds_found() };
        let at_least = if self.plain.median().is_none() { "> " } else { "" };
        let times = self.times().map_or(String::new(), |times| format!("{at_least}{times:.1}"));
        format!(
            "| {} | `{}` | {} | {} | {}{missed} | {} | {times} |",
            finding_of(&self.defect).unwrap_or_default(),
            self.defect,
            self.protocol,
            names.join(", "),
            self.guided.told(),
            self.plain.told(),
        )
    }

    fn rounds_found(&self) -> String {
        let found = self.guided.looks.iter().filter(|looked| looked.found.is_some()).count();
        format!(", found in {found} of {}", self.guided.looks.len())
    }

    fn json(&self) -> serde_json::Value {
        let seconds = |side: &Side| side.looks.iter().map(|looked| looked.took.as_secs_f64()).collect::<Vec<_>>();
        let found = |side: &Side| side.looks.iter().filter(|looked| looked.found.is_some()).count();
        let median = |side: &Side| side.median().map(|looked| looked.took.as_secs_f64());
        json!({
            "defect": self.defect, "finding": finding_of(&self.defect), "properties": self.properties(),
            "guided_found": found(&self.guided), "guided_seconds": seconds(&self.guided),
            "guided_median": median(&self.guided), "guided_budget": self.guided.budget.as_secs_f64(),
            "plain_found": found(&self.plain), "plain_seconds": seconds(&self.plain),
            "plain_median": median(&self.plain), "plain_budget": self.plain.budget.as_secs_f64(),
            "ratio": self.times(),
        })
    }
}

/// The defects that are asked for.
fn wanted(matches: &ArgMatches, subject: &Subject) -> Result<Vec<String>> {
    let known: Vec<String> = plants_of(&subject.protocol).into_iter().map(str::to_owned).collect();
    if matches.get_flag("put-back") {
        return Ok(known.into_iter().filter(|name| finding_of(name).is_some()).collect());
    }
    let Some(named) = matches.get_many::<String>("plant") else { return Ok(known) };
    let named: BTreeSet<&String> = named.collect();
    for name in &named {
        super::check_plant(&Subject { plant: Some((*name).clone()), ..subject.clone() })?;
    }
    Ok(known.into_iter().chain(plants_of_candidates()).filter(|name| named.contains(name)).collect())
}

/// Runs `hustings convict --by-property`.
fn tell_by_property(matches: &ArgMatches, subject: &Subject, bounds: &Bounds) -> Result<()> {
    let matrix = by_property::gather(subject, bounds.nodes, bounds.budget, bounds.jobs)?;
    match is_json(matches) {
        true => println!("{}", matrix.json()),
        false => print!("{}", matrix.markdown()),
    }
    let missing = matrix.missing();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Exit::with(Code::Failed, format!("nothing made {} fall", missing.join(", ")))),
    }
}

/// Runs `hustings convict`: how soon each planted defect is found.
pub fn run(matches: &ArgMatches) -> Result<()> {
    super::keep_quiet_about_findings();
    let subject = subject_of(matches)?;
    if lists_plants(&subject) {
        return Ok(());
    }
    let bounds = Bounds::of(matches);
    if matches.get_flag("by-property") {
        return tell_by_property(matches, &subject, &bounds);
    }
    let names = wanted(matches, &subject)?;
    if !is_json(matches) {
        println!("| Finding | Defect | Protocol | Property that fell | Guided | Plain seeds | Times |");
        println!("|---|---|---|---|---|---|---|");
    }
    let mut rows: Vec<Row> = Vec::new();
    for defect in names {
        let planted = Subject { plant: Some(defect.clone()), ..subject.clone() };
        let guided = bounds.play(&planted, Way::Guided, bounds.budget)?;
        let plain = bounds.play(&planted, Way::Plain, bounds.beside(&guided))?;
        let row = Row { defect, protocol: subject.protocol.clone(), guided, plain };
        if !is_json(matches) {
            println!("{}", row.markdown());
        }
        rows.push(row);
    }
    let missed: Vec<&str> =
        rows.iter().filter(|row| row.guided.median().is_none()).map(|row| row.defect.as_str()).collect();
    let mut times: Vec<f64> = rows.iter().filter_map(Row::times).collect();
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2);
    if is_json(matches) {
        let defects: Vec<serde_json::Value> = rows.iter().map(Row::json).collect();
        println!(
            "{}",
            json!({
                "apiVersion": "v1", "kind": "Conviction", "protocol": subject.protocol, "nodes": bounds.nodes,
                "rounds": bounds.rounds, "defects": defects, "median_ratio": median,
            })
        );
    } else if let Some(median) = median {
        let (found, all) = (times.len(), rows.len());
        println!(
            "\nFound {found} of {all}; plain seeds took {median:.1} times as long or more, in the median of those."
        );
    }
    match missed.is_empty() {
        true => Ok(()),
        false => {
            Err(Exit::with(Code::Failed, format!("a search did not find {} within its budget", missed.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(rounds: usize, found_after: &[u64], missed: usize) -> Side {
        let round = |found, seconds| Looked { found, took: Duration::from_secs(seconds), runs: seconds };
        let mut looks: Vec<Looked> = found_after.iter().map(|seconds| round(Some("linearizable"), *seconds)).collect();
        looks.extend((0..missed).map(|_| round(None, 60)));
        Side { looks, rounds, budget: Duration::from_secs(60) }
    }

    /// Goal: a median is that of all rounds, and not of those that found something. Method: three sides of five rounds.
    #[test]
    fn rounds_that_found_nothing_count_in_the_median() {
        let took = |side: &Side| side.median().map(|looked| looked.took.as_secs());
        assert_eq!(took(&side(5, &[9, 1, 4], 2)), Some(9), "two rounds took longer than 60 s");
        assert_eq!(took(&side(5, &[9, 1, 4, 5, 3], 0)), Some(4));
        assert_eq!(took(&side(5, &[1, 2], 3)), None, "the median is beyond the budget");
        assert_eq!(side(5, &[1, 2], 3).told(), "> 60 s");
    }

    /// Goal: no round is played that cannot change the median. Method: a side of five rounds after each of three misses.
    #[test]
    fn three_misses_of_five_decide() {
        assert!(!side(5, &[], 2).is_beyond_budget());
        assert!(side(5, &[], 3).is_beyond_budget());
    }

    /// Goal: every finding that is put back can be planted. Method: the plants of all five protocols.
    #[test]
    fn what_is_put_back_can_be_planted() {
        let known: BTreeSet<&str> = protocols::NAMES.iter().flat_map(|name| plants_of(name)).collect();
        for (name, finding) in PUT_BACK {
            assert!(known.contains(name), "{finding}: nobody knows `{name}`");
        }
    }
}
