//! `measure compare`: the same loads on several systems in turn, round after round, in one window; then medians.
//!
//! A noisy minute is shared by all, and the share of the processors that others took stands beside each figure. Every system of
//! etcd's API gets a new cluster each round; ZooKeeper's ensemble stays, so that Java has compiled what it runs.

use crate::drive_zookeeper;
use anyhow::{Context, Result, bail};
use clap::{Arg, ArgAction, Command, value_parser};
use comfy_table::{CellAlignment, Table, presets};
use hustings_testbed::{Cluster, Program, Zookeeper};
use serde_json::{Value, json};
use std::str::FromStr;

/// The load of a measurement: a verb, and the number of clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Load {
    verb: Verb,
    clients: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Put,
    /// Linearizable; for ZooKeeper a `sync` and a `getData`.
    Get,
    /// The value that the asked member has.
    LocalGet,
}

impl Verb {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Verb::Put => "put",
            Verb::Get => "get",
            Verb::LocalGet => "local-get",
        }
    }

    /// The verb in the words of `hustings bench`.
    fn words(self) -> &'static [&'static str] {
        match self {
            Verb::Put => &["put"],
            Verb::Get => &["get"],
            Verb::LocalGet => &["get", "--consistency", "serializable"],
        }
    }
}

impl FromStr for Verb {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Verb> {
        let known = [Verb::Put, Verb::Get, Verb::LocalGet].into_iter().find(|verb| verb.name() == text);
        known.with_context(|| format!("{text:?} is no load; there are put, get and local-get"))
    }
}

impl FromStr for Load {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Load> {
        let (verb, clients) = text.split_once(':').with_context(|| format!("{text:?} has no clients; write put:64"))?;
        let clients = clients.parse().ok().filter(|clients| *clients > 0);
        Ok(Load { verb: verb.parse()?, clients: clients.with_context(|| format!("{text:?}: clients are 1 or more"))? })
    }
}

/// The arguments of this sub-command alone.
pub(crate) fn arguments(command: Command) -> Command {
    let number = |name: &'static str, default: &'static str| {
        Arg::new(name).long(name).default_value(default).value_parser(value_parser!(u32).range(1..))
    };
    command
        .arg(number("rounds", "5").help("Each load once on each system; the figures are medians of so many"))
        .arg(number("seconds", "5").help("How long each load runs, after a second of warming up"))
        .arg(number("value-size", "256").help("Bytes of a value"))
        .arg(
            Arg::new("loads")
                .long("loads")
                .value_delimiter(',')
                .default_value("put:1,put:64,put:256,get:256")
                .value_parser(|text: &str| text.parse::<Load>().map_err(|error| error.to_string()))
                .help("put, get or local-get (not linearizable), each with its clients"),
        )
        .arg(
            Arg::new("zookeeper")
                .long("zookeeper")
                .action(ArgAction::SetTrue)
                .help("Measure an ensemble of ZooKeeper too (Debian's package, or HUSTINGS_TEST_ZOOKEEPER)"),
        )
        .arg(
            Arg::new("output")
                .long("output")
                .short('o')
                .default_value("table")
                .value_parser(["table", "json"])
                .help("A table for people, JSON for programs"),
        )
}

/// The programs that are compared, and how.
pub(crate) struct Comparison<'a> {
    pub(crate) binary: &'a str,
    pub(crate) programs: Vec<(&'a str, Program)>,
    pub(crate) with_zookeeper: bool,
    pub(crate) loads: Vec<Load>,
    pub(crate) rounds: u32,
    pub(crate) seconds: u32,
    pub(crate) value_size: u32,
}

/// One load on one system, every round of it.
struct Row {
    load: usize,
    system: String,
    runs: Vec<Value>,
}

impl Row {
    fn values(&self, field: &str) -> Vec<f64> {
        let mut values: Vec<f64> = self.runs.iter().filter_map(|run| run[field].as_f64()).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    fn median(&self, field: &str) -> f64 {
        median(&self.values(field))
    }

    fn errors(&self) -> u64 {
        self.runs.iter().filter_map(|run| run["errors"].as_u64()).sum()
    }
}

/// The middle one, or the mean of the two in the middle.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted {
        [] => f64::NAN,
        _ if sorted.len() % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Runs all of it, and says what came out.
///
/// # Errors
/// A system does not start, or a load fails.
pub(crate) async fn run(comparison: Comparison<'_>, as_json: bool) -> Result<()> {
    let Comparison { binary, programs, with_zookeeper, loads, rounds, seconds, value_size } = &comparison;
    let mut systems: Vec<String> = programs.iter().map(|(name, _)| (*name).to_owned()).collect();
    let ensemble = if *with_zookeeper { Some(Zookeeper::start_to_be_measured(3).await?) } else { None };
    systems.extend(ensemble.iter().map(|_| "zookeeper".to_owned()));
    let mut rows: Vec<Row> = (0..loads.len())
        .flat_map(|load| systems.iter().map(move |system| Row { load, system: system.clone(), runs: Vec::new() }))
        .collect();
    let mut note = |load: usize, system: &str, run: Value| {
        rows.iter_mut()
            .filter(|row| row.load == load && row.system == system)
            .for_each(|row| row.runs.push(run.clone()));
    };
    for round in 0..*rounds {
        for (name, program) in programs {
            let cluster = Cluster::start(program.clone(), 3).await?;
            for (position, load) in loads.iter().enumerate() {
                let mut command = std::process::Command::new(binary);
                command.arg("bench").args(load.verb.words()).args(["-o", "json"]);
                command.args(["--endpoints", &cluster.endpoints().join(",")]);
                // The same keys and values for all, and others in each round.
                command.args(["--seed", &round.to_string(), "--value-size", &value_size.to_string()]);
                command.args(["--clients", &load.clients.to_string(), "--seconds", &seconds.to_string()]);
                note(position, name, answer(&mut command)?);
            }
        }
        if let Some(ensemble) = &ensemble {
            for (position, load) in loads.iter().enumerate() {
                let mut command = std::process::Command::new(std::env::current_exe()?);
                command.args([drive_zookeeper::NAME, load.verb.name(), "--hosts", &ensemble.hosts()]);
                command.args(["--seed", &round.to_string(), "--value-size", &value_size.to_string()]);
                command.args(["--clients", &load.clients.to_string(), "--seconds", &seconds.to_string()]);
                note(position, "zookeeper", answer(&mut command)?);
            }
        }
    }
    if as_json {
        println!("{}", told(&comparison, &rows))
    } else {
        println!("{}", shown(&comparison, &rows))
    }
    Ok(())
}

/// Runs a driver and reads its answer.
fn answer(command: &mut std::process::Command) -> Result<Value> {
    let output = command.output().with_context(|| format!("cannot run {:?}", command.get_program()))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Ratio to the system that stands first, at the same load.
fn of_the_first(rows: &[Row], row: &Row) -> f64 {
    let first = rows.iter().find(|other| other.load == row.load).map_or(f64::NAN, |first| first.median("per_second"));
    row.median("per_second") / first
}

/// The object of `-o json`: medians, and every run.
fn told(comparison: &Comparison<'_>, rows: &[Row]) -> Value {
    let row = |row: &Row| {
        let load = &comparison.loads[row.load];
        let rates = row.values("per_second");
        json!({
            "load": load.verb.name(),
            "clients": load.clients,
            "system": row.system,
            "per_second": median(&rates),
            "per_second_lowest": rates.first(),
            "per_second_highest": rates.last(),
            "of_the_first": of_the_first(rows, row),
            "p50_ms": row.median("p50_ms"),
            "p99_ms": row.median("p99_ms"),
            "p99.9_ms": row.median("p99.9_ms"),
            "server_cpu_micros_per_request": row.median("server_cpu_micros_per_request"),
            "cpu_others_share": row.median("cpu_others_share"),
            "errors": row.errors(),
            "runs": row.runs,
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Comparison",
        "rounds": comparison.rounds,
        "seconds": comparison.seconds,
        "value_size": comparison.value_size,
        "cores": std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
    })
}

/// The table for people.
fn shown(comparison: &Comparison<'_>, rows: &[Row]) -> String {
    let first = rows.first().map_or("", |row| row.system.as_str());
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "load".to_owned(),
        "system".into(),
        "per second".into(),
        "lowest..highest".into(),
        format!("of {first}"),
        "p50 ms".into(),
        "p99 ms".into(),
        "p99.9 ms".into(),
        "servers µs".into(),
        "others".into(),
        "errors".into(),
    ]);
    for row in rows {
        let load = &comparison.loads[row.load];
        let rates = row.values("per_second");
        let at = |place: Option<&f64>| place.map_or_else(String::new, |rate| format!("{rate:.0}"));
        table.add_row([
            format!("{} {}", load.verb.name(), load.clients),
            row.system.clone(),
            format!("{:.0}", median(&rates)),
            format!("{}..{}", at(rates.first()), at(rates.last())),
            format!("{:.2}", of_the_first(rows, row)),
            format!("{:.2}", row.median("p50_ms")),
            format!("{:.2}", row.median("p99_ms")),
            format!("{:.2}", row.median("p99.9_ms")),
            format!("{:.1}", row.median("server_cpu_micros_per_request")),
            format!("{:.0} %", row.median("cpu_others_share") * 100.0),
            row.errors().to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!(
        "medians of {} rounds of {} s, alternating, closed loops; 3 nodes and the driver on this machine of {cores} cores; values of {} bytes\n\n{table}",
        comparison.rounds, comparison.seconds, comparison.value_size
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_read_or_refused_with_the_remedy() {
        assert_eq!("local-get:8".parse::<Load>().ok(), Some(Load { verb: Verb::LocalGet, clients: 8 }));
        let told = |text: &str| text.parse::<Load>().map_err(|error| error.to_string()).expect_err("it is none");
        assert!(told("put").contains("put:64") && told("put:0").contains("1 or more"));
        assert!(told("take:1").contains("put, get and local-get"));
    }

    #[test]
    fn a_row_has_medians_and_its_ratio_to_the_first() {
        let row = |system: &str, rates: &[f64]| {
            let runs = rates.iter().map(|rate| json!({ "per_second": rate, "errors": 1 })).collect();
            Row { load: 0, system: system.into(), runs }
        };
        let rows = [row("ours", &[300.0, 100.0, 200.0]), row("theirs", &[50.0, 150.0])];
        assert_eq!((rows[0].median("per_second"), rows[1].median("per_second")), (200.0, 100.0));
        assert_eq!((of_the_first(&rows, &rows[0]), of_the_first(&rows, &rows[1])), (1.0, 0.5));
        assert_eq!(rows[1].errors(), 2);
    }
}
