//! `hustings simulate`: what seeds draw, judged at every step.

use super::corpus::Corpus;
use super::picture::{Run, Time};
use super::{common, files, is_json, report, subject_of};
use crate::interruption::Interruption;
use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hustings_console::exit::{Code, Exit};
use hustings_core::quorum::may_be_witnesses;
use hustings_core::{Protocol, Slots};
use hustings_kv::KvStore;
use hustings_protocols::{self as protocols, Subject, Visit};
use hustings_world::guided::Search;
use hustings_world::seed::{Plan, Report, run as run_seed, shrink};
use hustings_world::{Counts, Plants};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Runs that a shrinking may take.
const SHRINK_RUNS: u32 = 400;
/// Lines of a story that are printed.
const STORY_LINES: usize = 60;
/// Runs of a search, unless it is said.
const GUIDED_RUNS: u64 = 10_000;
/// Microseconds of faults in each run of a search, unless it is said.
const GUIDED_SAFETY: u64 = 20_000_000;

/// Most virtual hours of faults in a run: all of them are drawn before it begins.
const HOURS_MAX: u64 = 1_000;

/// The command line of `simulate`.
pub fn command() -> Command {
    let number =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).value_parser(value_parser!(u64)).help(help);
    common(
        Command::new("simulate")
            .about("Run clusters in virtual time under faults that a seed draws; every step is judged")
            .after_help("A seed that fails prints its story and a script for `hustings play`."),
    )
    .arg(number("nodes", "Voters at the beginning").default_value("3"))
    .arg(number("seed", "One seed").conflicts_with("from"))
    .arg(number("seeds", "So many seeds, from --from on; the last one is followed by 0"))
    .arg(number("from", "The first of many seeds").default_value("1"))
    .arg(
        number("minutes", "Virtual minutes of faults per seed")
            .value_parser(value_parser!(u64).range(..=HOURS_MAX * 60))
            .conflicts_with("hours"),
    )
    .arg(number("hours", "Virtual hours of faults per seed").value_parser(value_parser!(u64).range(..=HOURS_MAX)))
    .arg(number("witnesses", "So many of them vote and hold no data: fewer than half").default_value("0"))
    .arg(number("jobs", "Threads; no more than there are cores").default_value("1"))
    .arg(
        Arg::new("guided")
            .long("guided")
            .action(ArgAction::SetTrue)
            .help("Search: change the runs that reached something new, and run on; --seed is where it begins, --seeds how many runs"),
    )
    .arg(
        Arg::new("corpus")
            .long("corpus")
            .value_name("DIRECTORY")
            .requires("guided")
            .value_parser(value_parser!(PathBuf))
            .help(
                "Begin with the runs that are kept here, and keep those that reach something new in their place, as scripts for \
                 `hustings play`",
            ),
    )
    .arg(
        Arg::new("for")
            .long("for")
            .value_name("DURATION")
            .value_parser(value_parser!(humantime::Duration))
            .conflicts_with("seeds")
            .help("As many seeds as fit into this time, like 30m"),
    )
    .arg(super::report_argument("Draw the run (the failing one, or the last) as a space-time diagram"))
    .arg(
        Arg::new("script")
            .long("script")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Write the run as a script for `hustings play`"),
    )
}

/// The sums over all runs of a simulation.
#[derive(Default)]
struct Tally {
    counts: Counts,
    simulated: u64,
    runs: u64,
    took: Duration,
}

struct Simulation<'a> {
    subject: &'a Subject,
    nodes: u64,
    witnesses: u64,
    /// The first seed, and how many there are; `None` is as many as fit.
    first_seed: u64,
    seeds: Option<u64>,
    safety: u64,
    jobs: u64,
    /// Time after which no further seed is begun.
    lasts: Duration,
    is_json: bool,
    report: Option<PathBuf>,
    script: Option<PathBuf>,
    guided: Option<Guided>,
    interruption: Interruption,
}

/// A search, and how far it goes.
struct Guided {
    seed: u64,
    /// `None` is as many as fit.
    runs: Option<u64>,
    corpus: Option<PathBuf>,
}

/// Runs `hustings simulate`: random faults from seeds, judged at every step.
pub fn run(matches: &ArgMatches) -> Result<()> {
    super::keep_quiet_about_findings();
    let subject = subject_of(matches)?;
    if super::lists_plants(&subject) {
        return Ok(());
    }
    super::check_plant(&subject)?;
    let number = |name: &str| matches.get_one::<u64>(name).copied();
    let minutes = number("minutes").or_else(|| number("hours").map(|hours| hours * 60)).unwrap_or(5);
    let lasts = matches.get_one::<humantime::Duration>("for").map(|duration| **duration);
    let (first_seed, seeds) = match (number("seed"), number("from").unwrap_or(1)) {
        (Some(seed), _) => (seed, Some(1)),
        (None, from) if lasts.is_some() => (from, None),
        (None, from) => (from, Some(number("seeds").unwrap_or(1))),
    };
    let is_guided = matches.get_flag("guided");
    if !is_guided && number("seed").is_some() && number("seeds").is_some() {
        return Err(Exit::with(
            Code::Usage,
            "--seed is one seed and --seeds are many: give one of them (with --guided, both)",
        ));
    }
    let search = || Guided {
        seed: number("seed").unwrap_or(1),
        runs: if lasts.is_some() { None } else { Some(number("seeds").unwrap_or(GUIDED_RUNS)) },
        corpus: matches.get_one("corpus").cloned(),
    };
    let guided = is_guided.then(search);
    // A search makes many short runs.
    let safety = match (is_guided, number("minutes"), number("hours")) {
        (true, None, None) => GUIDED_SAFETY,
        _ => minutes * 60_000_000,
    };
    let simulation = Simulation {
        subject: &subject,
        nodes: number("nodes").unwrap_or(3),
        witnesses: number("witnesses").unwrap_or(0),
        first_seed,
        seeds,
        safety,
        guided,
        jobs: number("jobs").unwrap_or(1).max(1),
        lasts: lasts.unwrap_or(Duration::MAX),
        is_json: is_json(matches),
        report: matches.get_one("report").cloned(),
        script: matches.get_one("script").cloned(),
        interruption: Interruption::listen()?,
    };
    if !(1..=99).contains(&simulation.nodes) {
        return Err(Exit::with(Code::Usage, "a cluster has 1 to 99 members"));
    }
    if !may_be_witnesses(simulation.witnesses as usize, simulation.nodes as usize) {
        return Err(Exit::with(Code::Usage, "witnesses hold no data: they must be fewer than half of the members"));
    }
    if let Some(path) = &simulation.script {
        files::check_file("script", path)?;
    }
    if let Some(path) = &simulation.report {
        files::check_file("report", path)?;
    }
    if let Some(path) = simulation.guided.as_ref().and_then(|guided| guided.corpus.as_ref()) {
        files::check_directory("corpus", path)?;
    }
    protocols::visit(&subject, simulation)?
}

/// The end of a simulation that made no run.
fn no_run(is_interrupted: bool) -> anyhow::Error {
    match is_interrupted {
        true => Exit::with(Code::Interrupted, "interrupted before the first run"),
        false => Exit::with(Code::Unjudged, "no run was made"),
    }
}

/// The end of one that was asked to end before all was run.
fn interrupted_if(is_interrupted: bool, runs: u64) -> Result<()> {
    match is_interrupted {
        true => Err(Exit::with(Code::Interrupted, format!("interrupted after {runs} runs"))),
        false => Ok(()),
    }
}

impl Visit for Simulation<'_> {
    type Out = Result<()>;

    fn visit<P>(self, options: P::Options) -> Result<()>
    where
        P: Protocol + Sync,
        P::Options: Sync,
        P::Message: Sync,
        P::Timer: Sync,
    {
        self.work::<P>(options)
    }
}

impl Simulation<'_> {
    fn plan(&self, seed: u64) -> Plan {
        let mut plan = Plan::draw(seed, self.nodes, self.safety).with_witnesses(self.witnesses);
        // A published form may write down no votes at all; what follows from that is more telling than that it is so.
        plan.settings.rules.votes_are_promises = !self.subject.is_published;
        plan
    }

    fn work<P>(self, options: P::Options) -> Result<()>
    where
        P: Protocol + Sync,
        P::Options: Sync,
    {
        let plants = self.subject.plant.as_deref().and_then(Plants::named).unwrap_or_default();
        if let Some(guided) = &self.guided {
            return self.search::<P>(guided, &options, plants);
        }
        let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let results: Mutex<(Counts, u64, u64, Option<Report>)> = Mutex::default();
        let bar = self.seeds.map_or_else(ProgressBar::no_length, ProgressBar::new);
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds  {elapsed} of {duration}  {msg}") {
            bar.set_style(style);
        }
        if self.is_json || self.seeds.is_some_and(|seeds| seeds < 2) {
            bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        let place_of = |report: &Report| report.seed.wrapping_sub(self.first_seed);
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..super::threads(self.jobs, self.seeds.unwrap_or(u64::MAX)) {
                scope.spawn(|| {
                    loop {
                        let place = next.fetch_add(1, Ordering::Relaxed);
                        let is_last = self.seeds.is_some_and(|seeds| place >= seeds);
                        let is_enough = is_over.load(Ordering::Relaxed) || self.interruption.is_asked();
                        if is_last || is_enough || start.elapsed() > self.lasts {
                            return;
                        }
                        // Seed 0 follows the last one.
                        let plan = self.plan(self.first_seed.wrapping_add(place));
                        let report = run_seed::<P, KvStore>(&plan, &options, plants, 0);
                        bar.inc(1);
                        let mut results = results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        results.0.add(&report.counts);
                        results.1 += report.simulated;
                        results.2 += 1;
                        if report.violation.is_some() {
                            is_over.store(true, Ordering::Relaxed);
                        }
                        // The failure of the lowest seed is told, in whichever thread it was found.
                        let is_told = |told: &Report| told.violation.is_some() && place_of(told) < place_of(&report);
                        let is_worth_telling = report.violation.is_some() || results.3.is_none();
                        if is_worth_telling && !results.3.as_ref().is_some_and(is_told) {
                            results.3 = Some(report);
                        }
                    }
                });
            }
        });
        bar.finish_and_clear();
        let took = start.elapsed();
        let (counts, simulated, runs, last) = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_interrupted = self.interruption.end();
        let Some(last) = last else { return Err(no_run(is_interrupted)) };
        let plan = self.plan(last.seed);
        let tally = Tally { counts, simulated, runs, took };
        self.conclude::<P>(plan, &last, &tally, &options, plants)?;
        let is_short = self.seeds.is_none_or(|seeds| runs < seeds);
        interrupted_if(is_interrupted && is_short, runs)
    }

    /// Tells how a simulation ended: numbers, and of a run that failed the shortest story that was found.
    fn conclude<P>(&self, plan: Plan, last: &Report, tally: &Tally, options: &P::Options, plants: Plants) -> Result<()>
    where
        P: Protocol,
    {
        let (shortest, violation) = match &last.violation {
            Some((at, violation)) => {
                let shortest = shrink::<P, KvStore>(&plan, options, plants, violation, SHRINK_RUNS);
                (shortest, Some((*at, violation.clone())))
            }
            None => (plan, None),
        };
        self.tell(tally, last.fingerprint, violation.as_ref());
        let headline = vec![
            format!(
                "hustings {} simulate {} --nodes {} {}",
                env!("CARGO_PKG_VERSION"),
                self.subject.flags(),
                self.nodes,
                match &self.guided {
                    Some(guided) => format!("--guided --seed {}, run {}", guided.seed, tally.runs),
                    None => format!("--seed {}", last.seed),
                }
            ),
            violation.as_ref().map_or("All properties held.".into(), |(_, violation)| violation.property.to_string()),
        ];
        let script = shortest.script(headline);
        if let Some(path) = &self.script {
            files::write(path, &script.to_string())?;
        }
        if let Some(path) = &self.report {
            let drawn = run_seed::<P, KvStore>(&shortest, options, plants, 1);
            let run = Run {
                subject: self.subject.flags(),
                packs_terms: P::SLOTS == Slots::Independent,
                nodes: self.nodes,
                end: drawn.simulated,
                journal: &drawn.journal,
                recording: drawn.recording.as_deref(),
                violation: drawn.violation.clone(),
                steps: Vec::new(),
                stopped: None,
                time: Time::Virtual,
            };
            report::write(path, &script.headline.join(" · "), &run, report::Shown::End, &script.to_string())?;
        }
        let Some((_, mut violation)) = violation else {
            if !self.is_json {
                println!("all properties held");
            }
            return Ok(());
        };
        if !self.is_json {
            let again = run_seed::<P, KvStore>(&shortest, options, plants, 0);
            println!("\nThe shortest story found ({} faults):", shortest.faults.len());
            let lines = &again.journal.lines;
            for (at, line) in &lines[lines.len().saturating_sub(STORY_LINES)..] {
                println!("{:>12.3} s  {line}", *at as f64 / 1e6);
            }
            // The violation that is told last is that of the story above it, and not that of the run that was shortened.
            violation = again.violation.map_or(violation, |(_, violation)| violation);
            println!("\nThe same run as a script for `hustings play {}`:\n\n{script}", self.subject.flags());
        }
        let which = match self.guided {
            Some(_) => format!("run {}", tally.runs),
            None => format!("seed {}", last.seed),
        };
        Err(Exit::with(Code::Failed, format!("{which}: {violation}")))
    }

    /// Runs a search, one run after the other, until it has found something or its budget is spent.
    fn search<P>(&self, guided: &Guided, options: &P::Options, plants: Plants) -> Result<()>
    where
        P: Protocol,
    {
        let mut search = Search::new(guided.seed, self.nodes, self.safety);
        search.are_votes_promises = !self.subject.is_published;
        search.witnesses = self.witnesses;
        let corpus = guided.corpus.as_ref().map(|folder| Corpus { folder, protocol: &self.subject.protocol });
        if let Some(corpus) = &corpus {
            search.hand(corpus.read()?);
        }
        let bar = guided.runs.map_or_else(ProgressBar::no_length, ProgressBar::new);
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} runs  {elapsed} of {duration}  {msg}") {
            bar.set_style(style);
        }
        if self.is_json {
            bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        let start = Instant::now();
        let mut tally = Tally::default();
        let mut last = None;
        // The same rule as for seeds: where there is no time for a run there is none.
        while guided.runs.is_none_or(|runs| tally.runs < runs)
            && start.elapsed() <= self.lasts
            && !self.interruption.is_asked()
        {
            let (plan, report) = search.step::<P, KvStore>(options, plants);
            tally.counts.add(&report.counts);
            tally.simulated += report.simulated;
            tally.runs += 1;
            bar.inc(1);
            bar.set_message(format!("{} facts reached, {} runs kept", search.reached(), search.corpus().len()));
            let is_found = report.violation.is_some();
            last = Some((plan, report));
            if is_found {
                break;
            }
        }
        bar.finish_and_clear();
        let is_interrupted = self.interruption.end();
        let Some((plan, last)) = last else { return Err(no_run(is_interrupted)) };
        tally.took = start.elapsed();
        if !self.is_json {
            println!("{:<28} {}", "facts reached", search.reached());
            println!("{:<28} {}", "runs kept", search.corpus().len());
        }
        if let Some(corpus) = &corpus {
            corpus.write(&search)?;
        }
        self.conclude::<P>(plan, &last, &tally, options, plants)?;
        interrupted_if(is_interrupted, tally.runs)
    }

    fn tell(&self, tally: &Tally, fingerprint: u64, violation: Option<&(u64, hustings_properties::Violation)>) {
        let Tally { counts, simulated, runs, took } = tally;
        let (simulated, runs) = (*simulated, *runs);
        let per = |count: u64, of: u64| if of == 0 { 0.0 } else { count as f64 / of as f64 };
        let speed = simulated as f64 / took.as_micros().max(1) as f64;
        let steps = counts.steps as f64 / took.as_secs_f64().max(1e-9);
        if self.is_json {
            let object = json!({
                "apiVersion": "v1", "kind": "Simulation", "protocol": self.subject.protocol, "nodes": self.nodes, "first_seed": self.first_seed, "seeds": runs,
                "simulated_seconds": simulated / 1_000_000, "seconds": took.as_secs_f64(), "speed": speed,
                "steps": counts.steps, "steps_per_second": steps, "events": counts.events, "messages": counts.messages,
                "lost": counts.lost, "syncs": counts.syncs, "completed": counts.completed,
                "indefinite": counts.indefinite, "elections": counts.elections, "campaigns": counts.campaigns,
                "snapshots": counts.snapshots, "installs": counts.installs, "watched": counts.watched, "locks": counts.locks,
                "tenures": counts.tenures,
                "unavailable_seconds": counts.unavailable as f64 / 1e6, "outage_max_seconds": counts.outage_max as f64 / 1e6,
                "messages_per_operation": per(counts.messages, counts.completed), "faults": counts.faults,
                "fingerprint": format!("{fingerprint:016x}"),
                "violation": violation.map(|(at, violation)| json!({
                    "at_seconds": *at as f64 / 1e6, "property": violation.property, "what": violation.what })),
            });
            println!("{object}");
            return;
        }
        let faults: u64 = counts.faults.values().sum();
        let mut rows = vec![
            ["seeds".into(), runs.to_string()],
            ["virtual time".into(), format!("{} s, {speed:.0} times real time", simulated / 1_000_000)],
            ["steps of replicas".into(), format!("{}, {steps:.0} a second", counts.steps)],
            ["operations that ended well".into(), counts.completed.to_string()],
            ["of unknown end".into(), counts.indefinite.to_string()],
            [
                "messages".into(),
                format!(
                    "{}, {:.1} an operation, {} lost",
                    counts.messages,
                    per(counts.messages, counts.completed),
                    counts.lost
                ),
            ],
            ["syncs".into(), format!("{}, {:.1} an operation", counts.syncs, per(counts.syncs, counts.completed))],
            ["leaders elected".into(), format!("{}, of {} campaigns", counts.elections, counts.campaigns)],
            ["snapshots".into(), format!("{} cut, {} installed", counts.snapshots, counts.installs)],
            ["events watched".into(), counts.watched.to_string()],
            ["locks taken".into(), counts.locks.to_string()],
            ["tenures of candidates".into(), counts.tenures.to_string()],
            ["unavailable".into(), format!("{} s", counts.unavailable / 1_000_000)],
            ["faults".into(), faults.to_string()],
        ];
        for (fault, count) in &counts.faults {
            rows.push([format!("  {fault}"), count.to_string()]);
        }
        rows.push(["fingerprint of the last".into(), format!("{fingerprint:016x}")]);
        for row in rows {
            println!("{:<28} {}", row[0], row[1]);
        }
    }
}
