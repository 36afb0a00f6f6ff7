//! `hustings convict`: how soon a search finds each planted defect, beside plain seeds.

use super::{common, exit, is_json, plants_of, subject_of};
use crate::output::table;
use crate::protocols::{self, Subject, Visit};
use anyhow::Result;
use clap::{Arg, ArgMatches, Command, value_parser};
use hustings_core::Protocol;
use hustings_kv::KvStore;
use hustings_world::guided::Search;
use hustings_world::plants::{Forgetful, Moody};
use hustings_world::seed::{Plan, run as run_seed};
use hustings_world::{Plants, Service};
use serde_json::json;
use std::time::Duration;

/// Virtual time of faults in each run, in microseconds: of a search, and of a plain seed.
const GUIDED_SAFETY: u64 = 20_000_000;
const PLAIN_SAFETY: u64 = 60_000_000;
/// Seeds of one round lie apart from those of the next.
const ROUND_SEEDS: u64 = 10_000_000;

/// The command line of `convict`.
pub(crate) fn command() -> Command {
    common(
        Command::new("convict")
            .about("Plant each defect and look for it: by a guided search and by plain seeds, in processor time")
            .after_help("Exit code 1 when a search did not find a defect within its budget."),
    )
    .arg(
        Arg::new("rounds")
            .long("rounds")
            .value_parser(value_parser!(u64).range(1..))
            .default_value("5")
            .help("Searches for each defect, each from a seed of its own; medians are told"),
    )
    .arg(
        Arg::new("budget")
            .long("budget")
            .value_name("DURATION")
            .value_parser(value_parser!(humantime::Duration))
            .default_value("10m")
            .help("Processor time that one search may take"),
    )
    .arg(
        Arg::new("nodes")
            .long("nodes")
            .value_parser(value_parser!(u64).range(1..=99))
            .default_value("5")
            .help("Voters at the beginning"),
    )
}

/// What one way of looking took: found or not, in how much processor time and how many runs.
#[derive(Clone, Debug)]
struct Looked {
    found: Option<&'static str>,
    took: Duration,
    runs: u64,
}

/// Looks for one defect, once guided and once plainly.
struct Look<'a> {
    subject: &'a Subject,
    nodes: u64,
    round: u64,
    budget: Duration,
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
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
    fn with<P: Protocol, S: Service>(self, options: &P::Options) -> (Looked, Looked) {
        let plants = self.subject.plant.as_deref().and_then(Plants::named).unwrap_or_default();
        let mut search = Search::new(self.round, self.nodes, GUIDED_SAFETY);
        let guided = look(self.budget, |_| {
            let (_, report) = search.step::<P, S>(options, plants);
            report.violation.map(|(_, violation)| violation.property)
        });
        let first = self.round * ROUND_SEEDS + 1;
        let plain = look(self.budget, |run| {
            let plan = Plan::draw(first + run, self.nodes, PLAIN_SAFETY);
            let report = run_seed::<P, S>(&plan, options, plants, 0);
            report.violation.map(|(_, violation)| violation.property)
        });
        (guided, plain)
    }
}

impl Visit for Look<'_> {
    type Out = (Looked, Looked);

    fn visit<P: Protocol>(self, options: P::Options) -> (Looked, Looked) {
        match self.subject.plant.as_deref() {
            Some(Moody::NAME) => self.with::<P, Moody>(&options),
            Some(Forgetful::NAME) => self.with::<P, Forgetful>(&options),
            _ => self.with::<P, KvStore>(&options),
        }
    }
}

/// Runs `hustings convict`.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    super::keep_quiet_about_findings();
    let subject = subject_of(matches)?;
    super::check_plant(&subject)?;
    let rounds = *matches.get_one::<u64>("rounds").expect("it has a default");
    let nodes = *matches.get_one::<u64>("nodes").expect("it has a default");
    let budget = **matches.get_one::<humantime::Duration>("budget").expect("it has a default");
    let names = match subject.plant.as_deref() {
        Some(name) => plants_of(&subject.protocol).into_iter().filter(|known| *known == name).collect(),
        None => plants_of(&subject.protocol),
    };
    let (mut rows, mut objects, mut missed) = (Vec::new(), Vec::new(), Vec::new());
    for name in names {
        let planted = Subject { plant: Some(name.to_string()), ..subject.clone() };
        let mut looks = Vec::new();
        for round in 1..=rounds {
            let look = Look { subject: &planted, nodes, round, budget };
            looks.push(protocols::visit(&planted, look)?);
        }
        let (guided, plain): (Vec<Looked>, Vec<Looked>) = looks.into_iter().unzip();
        if guided.iter().any(|looked| looked.found.is_none()) {
            missed.push(name);
        }
        let (one, other) = (told(&guided), told(&plain));
        let ratio = median(&plain).as_secs_f64() / median(&guided).as_secs_f64().max(1e-6);
        let properties = guided.iter().filter_map(|looked| looked.found).collect::<std::collections::BTreeSet<_>>();
        let properties = properties.into_iter().collect::<Vec<_>>().join(", ");
        if is_json(matches) {
            let seconds = |looks: &[Looked]| looks.iter().map(|looked| looked.took.as_secs_f64()).collect::<Vec<_>>();
            let found = |looks: &[Looked]| looks.iter().filter(|looked| looked.found.is_some()).count();
            objects.push(json!({
                "defect": name, "guided_found": found(&guided), "guided_seconds": seconds(&guided),
                "plain_found": found(&plain), "plain_seconds": seconds(&plain), "ratio": ratio,
            }));
        } else {
            eprintln!("{name:<30} guided {one:<24} plain {other:<24} {ratio:>8.1}  {properties}");
        }
        rows.push(vec![name.to_string(), one, other, format!("{ratio:.1}"), properties]);
    }
    if is_json(matches) {
        println!("{}", json!({ "protocol": subject.protocol, "nodes": nodes, "rounds": rounds, "defects": objects }));
    } else {
        println!("{}", table(&["defect", "guided", "plain seeds", "plain / guided", "properties"], rows));
    }
    match missed.is_empty() {
        true => Ok(()),
        false => Err(exit(1, format!("a search did not find {} within its budget", missed.join(", ")))),
    }
}

fn median(looks: &[Looked]) -> Duration {
    let mut times: Vec<Duration> = looks.iter().map(|looked| looked.took).collect();
    times.sort();
    times[times.len() / 2]
}

/// The median time and how many rounds found it, if not all.
fn told(looks: &[Looked]) -> String {
    let found = looks.iter().filter(|looked| looked.found.is_some()).count();
    let mut runs: Vec<u64> = looks.iter().map(|looked| looked.runs).collect();
    runs.sort_unstable();
    let all = format!("{:.2} s, {} runs", median(looks).as_secs_f64(), runs[runs.len() / 2]);
    if found == looks.len() { all } else { format!("{all}, found {found} of {}", looks.len()) }
}
