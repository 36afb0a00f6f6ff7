//! `hustings compare`: all protocols under the same storms, in figures.
//!
//! Every protocol plays every storm with the same seeds: the same network, disks, clients and faults. A row is a protocol; what
//! a gap between two reigns is, [`hustings_world::laboratory`] says. Virtual time: the figures are exactly repeatable.

use super::{charts, files, is_json};
use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hustings_console::exit::{Code, Exit};
use hustings_core::Protocol;
use hustings_kv::KvStore;
use hustings_protocols::{self as protocols, Subject, Visit};
use hustings_world::laboratory::{Figures, measure};
use hustings_world::{Script, parse};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most seeds of a storm: more take days.
const SEEDS_MAX: u64 = 1_000_000;

/// The command line of `compare`.
pub fn command() -> Command {
    let number =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).value_parser(value_parser!(u64)).help(help);
    let path = |name: &'static str| Arg::new(name).long(name).value_parser(value_parser!(PathBuf));
    Command::new("compare")
        .about("All protocols under the same storms and seeds, in figures")
        .after_help("Times to a new leader count from the moment when no leader could serve any more.")
        .arg(Arg::new("storm").long("storm").default_value("all").help("A storm by name, or all"))
        .arg(path("storms").value_name("DIR").default_value("scenarios").help("Where storms are: DIR/<name>/storm.txt"))
        .arg(
            number("seeds", "So many seeds of every storm")
                .value_parser(value_parser!(u64).range(1..=SEEDS_MAX))
                .default_value("20"),
        )
        .arg(number("jobs", "Threads; no more than there are cores").default_value("2"))
        .arg(super::protocols_argument())
        .arg(
            Arg::new("as-published")
                .long("as-published")
                .action(ArgAction::SetTrue)
                .help("The forms in which the protocols were published, with their defects"),
        )
        .arg(path("report").value_name("FILE.html").help("Write the tables as a page with charts"))
        .arg(hustings_console::output_argument())
}

/// The results of one protocol in all runs of one storm.
#[derive(Default)]
pub(crate) struct Row {
    pub(crate) runs: u64,
    pub(crate) changes: u64,
    /// Times to the first leader, in microseconds.
    first: Vec<u64>,
    /// Gaps after the first reign that ended, in microseconds.
    pub(crate) gaps: Vec<u64>,
    /// The same in round trips and in election timeouts of their own run.
    round_trips: Vec<f64>,
    timeouts: Vec<f64>,
    election_messages: Vec<u64>,
    election_bytes: Vec<u64>,
    leaderless: u64,
    simulated: u64,
    messages: u64,
    bytes: u64,
    syncs: u64,
    committed: u64,
    /// The longest gap, ended or not, after the first reign.
    longest: u64,
    never: u64,
    pub(crate) violations: BTreeMap<String, u64>,
}

impl Row {
    fn take(&mut self, script: &Script, figures: &Figures) {
        let quality = script.settings.quality;
        let round_trip = (quality.delay_min + quality.delay_max).max(1) as f64;
        let timeout = script.settings.timing.election_min.as_micros() as f64;
        self.runs += 1;
        self.changes += figures.leader_changes();
        self.first.extend(figures.gaps.first().map(|gap| gap.micros));
        for gap in figures.gaps.iter().skip(1).filter(|gap| gap.is_change) {
            self.gaps.push(gap.micros);
            self.round_trips.push(gap.micros as f64 / round_trip);
            self.timeouts.push(gap.micros as f64 / timeout);
            self.election_messages.push(gap.messages);
            self.election_bytes.push(gap.bytes);
        }
        self.leaderless += figures.leaderless;
        self.simulated += figures.simulated;
        self.messages += figures.messages;
        self.bytes += figures.bytes;
        self.syncs += figures.syncs;
        self.committed += figures.committed;
        let ended = figures.gaps.iter().skip(1).map(|gap| gap.micros).max().unwrap_or_default();
        self.longest = self.longest.max(ended).max(figures.unended);
        self.never += u64::from(figures.unended > 0);
        if let Some(violation) = &figures.violation {
            *self.violations.entry(violation.property.to_string()).or_default() += 1;
        }
    }

    fn merge(&mut self, other: &Row) {
        self.runs += other.runs;
        self.changes += other.changes;
        self.first.extend(&other.first);
        self.gaps.extend(&other.gaps);
        self.round_trips.extend(&other.round_trips);
        self.timeouts.extend(&other.timeouts);
        self.election_messages.extend(&other.election_messages);
        self.election_bytes.extend(&other.election_bytes);
        self.leaderless += other.leaderless;
        self.simulated += other.simulated;
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.syncs += other.syncs;
        self.committed += other.committed;
        self.longest = self.longest.max(other.longest);
        self.never += other.never;
        for (property, count) in &other.violations {
            *self.violations.entry(property.clone()).or_default() += count;
        }
    }

    pub(crate) fn violated(&self) -> u64 {
        self.violations.values().sum()
    }

    /// The names of columns, for people, and what stands in them.
    pub(crate) fn cells(&self) -> Vec<(&'static str, String)> {
        let per = |what: u64, of: u64| what as f64 / of.max(1) as f64;
        let two = |values: &[f64], scale: f64, digits: usize| {
            let (median, high) = (quantile(values, 0.5), quantile(values, 0.99));
            match (median, high) {
                (Some(median), Some(high)) => format!("{:.digits$} / {:.digits$}", median / scale, high / scale),
                _ => "-".into(),
            }
        };
        let floats = |values: &[u64]| values.iter().map(|value| *value as f64).collect::<Vec<_>>();
        vec![
            ("leader changes", format!("{}", self.changes)),
            ("first leader ms p50/p99", two(&floats(&self.first), 1_000.0, 0)),
            ("new leader ms p50/p99", two(&floats(&self.gaps), 1_000.0, 1)),
            ("in round trips", two(&self.round_trips, 1.0, 1)),
            ("in timeouts", two(&self.timeouts, 1.0, 2)),
            ("no leader %", format!("{:.2}", 100.0 * per(self.leaderless, self.simulated))),
            ("longest without s", format!("{:.2}", self.longest as f64 / 1e6)),
            ("messages/election", two(&floats(&self.election_messages), 1.0, 0)),
            ("KiB/election", two(&floats(&self.election_bytes), 1024.0, 1)),
            ("messages/commit", format!("{:.1}", per(self.messages, self.committed))),
            ("bytes/commit", format!("{:.0}", per(self.bytes, self.committed))),
            ("syncs/commit", format!("{:.2}", per(self.syncs, self.committed))),
            ("violations", format!("{}", self.violated())),
        ]
    }

    fn json(&self) -> Value {
        let median_and_high = |values: &[f64]| json!([quantile(values, 0.5), quantile(values, 0.99)]);
        let floats = |values: &[u64]| values.iter().map(|value| *value as f64).collect::<Vec<_>>();
        json!({
            "runs": self.runs,
            "leader_changes": self.changes,
            "first_leader_micros": median_and_high(&floats(&self.first)),
            "new_leader_micros": median_and_high(&floats(&self.gaps)),
            "new_leader_round_trips": median_and_high(&self.round_trips),
            "new_leader_election_timeouts": median_and_high(&self.timeouts),
            "leaderless_micros": self.leaderless,
            "simulated_micros": self.simulated,
            "ended_without_leader": self.never,
            "longest_without_leader_micros": self.longest,
            "messages_per_election": median_and_high(&floats(&self.election_messages)),
            "bytes_per_election": median_and_high(&floats(&self.election_bytes)),
            "messages": self.messages,
            "bytes": self.bytes,
            "syncs": self.syncs,
            "committed": self.committed,
            "violations": self.violations,
        })
    }
}

/// The value below which this share of the values lies; `None` of nothing.
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(place).copied()
}

struct Measuring<'a> {
    script: &'a Script,
}

impl Visit for Measuring<'_> {
    type Out = Figures;

    fn visit<P>(self, options: P::Options) -> Figures
    where
        P: Protocol + Sync,
        P::Options: Sync,
        P::Message: Sync,
        P::Timer: Sync,
    {
        measure::<P, KvStore>(self.script, &options)
    }
}

fn storms_in(directory: &Path, wanted: &str) -> Result<Vec<(String, Script)>> {
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("reading {}: give the directory of the storms with --storms", directory.display()))?;
    let mut storms = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let file = path.join("storm.txt");
        if file.is_file() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
            let script = Script::parse(&text)
                .map_err(|error| Exit::with(Code::Usage, format!("{}: {error}", file.display())))?;
            storms.push((name, script));
        }
    }
    storms.sort_by(|(one, _), (other, _)| one.cmp(other));
    if storms.is_empty() {
        return Err(Exit::with(Code::Usage, super::play::no_storms(directory)));
    }
    let names: Vec<&str> = storms.iter().map(|(name, _)| name.as_str()).collect();
    if wanted != "all" && !names.contains(&wanted) {
        let nearest = parse::nearest(wanted, &names);
        return Err(Exit::with(Code::Usage, format!("there is no storm `{wanted}`; did you mean `{nearest}`?")));
    }
    storms.retain(|(name, _)| wanted == "all" || name == wanted);
    Ok(storms)
}

/// Runs `hustings compare`: the same storms and seeds for several protocols.
pub fn run(matches: &ArgMatches) -> Result<()> {
    super::keep_quiet_about_findings();
    let number = |name: &str| matches.get_one::<u64>(name).copied().unwrap_or(1).max(1);
    let is_published = matches.get_flag("as-published");
    let Some(directory) = matches.get_one::<PathBuf>("storms") else {
        return Err(Exit::with(Code::Usage, "no storms are named"));
    };
    let wanted = matches.get_one::<String>("storm").map_or("all", String::as_str);
    let storms = storms_in(directory, wanted)?;
    let names = super::protocols_of(matches);
    let seeds = number("seeds");
    if let Some(path) = matches.get_one::<PathBuf>("report") {
        files::check_file("report", path)?;
    }
    // Protocol after protocol, of each storm after storm, of each seed after seed.
    let runs = names.len() as u64 * storms.len() as u64 * seeds;
    let run_of = |place: u64| {
        let (pair, seed) = ((place / seeds) as usize, place % seeds + 1);
        (pair / storms.len(), pair % storms.len(), seed)
    };
    let bar = ProgressBar::new(runs);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} runs  {elapsed} of {duration}") {
        bar.set_style(style);
    }
    let (next, rows) = (AtomicU64::new(0), Mutex::new(BTreeMap::<(usize, usize), Row>::new()));
    let failure: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..super::threads(number("jobs"), runs) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    if place >= runs {
                        return;
                    }
                    let (name, storm, seed) = run_of(place);
                    let mut script = storms[storm].1.clone();
                    script.settings.seed = seed;
                    // A published form may write down no votes at all; what follows from that is more telling.
                    script.settings.rules.votes_are_promises = !is_published;
                    let subject = Subject { is_published, ..Subject::named(&names[name]) };
                    match protocols::visit(&subject, Measuring { script: &script }) {
                        Ok(figures) => {
                            let mut rows = rows.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                            rows.entry((name, storm)).or_default().take(&script, &figures);
                        }
                        Err(error) => {
                            *failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
                        }
                    }
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    if let Some(error) = failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        return Err(error);
    }
    let rows = rows.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut totals: Vec<Row> = names.iter().map(|_| Row::default()).collect();
    for ((name, _), row) in &rows {
        totals[*name].merge(row);
    }
    if is_json(matches) {
        let by_protocol = names.iter().enumerate().map(|(which, name)| {
            let storms = storms
                .iter()
                .enumerate()
                .filter_map(|(storm, (title, _))| rows.get(&(which, storm)).map(|row| (title.clone(), row.json())));
            (name.clone(), json!({ "all": totals[which].json(), "storms": storms.collect::<serde_json::Map<_, _>>() }))
        });
        let protocols: serde_json::Map<String, Value> = by_protocol.collect();
        println!("{}", json!({ "apiVersion": "v1", "kind": "Comparison", "seeds": seeds, "protocols": protocols }));
    } else {
        print_tables(&names, &storms, &totals, &rows, seeds);
    }
    if let Some(path) = matches.get_one::<PathBuf>("report") {
        let page = charts::page(&names, &storms, &totals, &rows, seeds)?;
        files::write(path, &page)?;
    }
    let violated: u64 = totals.iter().map(Row::violated).sum();
    match violated {
        0 => Ok(()),
        _ => Err(Exit::with(Code::Failed, format!("{violated} runs violated a property"))),
    }
}

fn print_tables(
    names: &[String],
    storms: &[(String, Script)],
    totals: &[Row],
    rows: &BTreeMap<(usize, usize), Row>,
    seeds: u64,
) {
    println!("{} storms, {seeds} seeds each\n", storms.len());
    let columns: Vec<&str> = totals.first().map(Row::cells).unwrap_or_default().iter().map(|(name, _)| *name).collect();
    print!("{:<24}", "");
    names.iter().for_each(|name| print!("{name:>19}"));
    println!();
    for (place, column) in columns.iter().enumerate() {
        print!("{column:<24}");
        totals.iter().for_each(|row| print!("{:>19}", row.cells()[place].1));
        println!();
    }
    println!("\nno leader, seconds per run (and leader changes per run)");
    for (storm, (title, _)) in storms.iter().enumerate() {
        print!("{title:<24}");
        for which in 0..names.len() {
            match rows.get(&(which, storm)) {
                Some(row) => {
                    let runs = row.runs.max(1) as f64;
                    let seconds = row.leaderless as f64 / 1e6 / runs;
                    print!("{:>19}", format!("{seconds:.2} ({:.2})", row.changes as f64 / runs));
                }
                None => print!("{:>19}", "-"),
            }
        }
        println!();
    }
}

impl Row {
    /// One run of which so much passed without a leader.
    #[cfg(test)]
    pub(crate) fn without_leader_for(micros: u64) -> Row {
        Row { runs: 1, leaderless: micros, ..Row::default() }
    }

    /// Mean seconds without a leader in a run.
    pub(crate) fn leaderless_seconds(&self) -> f64 {
        self.leaderless as f64 / 1e6 / self.runs.max(1) as f64
    }
}
