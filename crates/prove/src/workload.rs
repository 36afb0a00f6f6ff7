//! `hustings workload`: a bench for Maelstrom nodes, ours or anybody's, with the genuine tool's flags and exit codes.

use crate::files;
use crate::maelstrom::{NodeSettings, node_arguments, protocol, simulate_maelstrom, timing};
use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hustings_console::exit::{Code, Exit};
use hustings_maelstrom::bench::history::History;
use hustings_maelstrom::bench::processes::{self, Program};
use hustings_maelstrom::bench::report::{Report, Verdict};
use hustings_maelstrom::bench::settings::{Distribution, Nemesis, Settings, Targets, Workload};
use std::path::{Path, PathBuf};

/// The names under which clap finds this command.
pub const NAMES: [&str; 2] = ["workload", "bench-maelstrom"];

const MICROS: f64 = 1e6;

/// The command line of `workload`.
pub fn command() -> Command {
    let option = |name: &'static str, value: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).default_value(default).help(help)
    };
    let number = |name: &'static str, default: &'static str, help: &'static str| {
        option(name, "N", default, help).value_parser(value_parser!(u64))
    };
    let fraction = |name: &'static str, value: &'static str, default: &'static str, help: &'static str| {
        option(name, value, default, help).value_parser(value_parser!(f64))
    };
    Command::new(NAMES[0])
        .visible_alias(NAMES[1])
        .about("Torment Maelstrom nodes and judge what their clients saw (exit codes 0 valid, 1 invalid, 2 unknown, 254, 255)")
        .arg(option("workload", "NAME", "lin-kv", "What clients do").short('w').value_parser(|name: &str| name.parse::<Workload>()))
        .arg(
            Arg::new("bin")
                .long("bin")
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .help("The node to test; without it, `hustings maelstrom` of this binary"),
        )
        .arg(Arg::new("arguments").last(true).num_args(0..).requires("bin").help("The node's own arguments"))
        .arg(
            Arg::new("restart-arg")
                .long("restart-arg")
                .value_name("ARG")
                .action(ArgAction::Append)
                .requires("bin")
                .allow_hyphen_values(true)
                .help("A further argument of a node that starts again after a kill"),
        )
        .arg(
            Arg::new("virtual")
                .long("virtual")
                .action(ArgAction::SetTrue)
                .conflicts_with("bin")
                .help("Run our nodes inside this process, in virtual time"),
        )
        .args(node_arguments())
        .arg(number("node-count", "3", "Nodes, n0 to n(N-1)").value_parser(value_parser!(u64).range(1..=25)))
        .arg(option("concurrency", "N|Nn", "2n", "Threads, or so many per node"))
        .arg(fraction("rate", "PER-SECOND", "5", "Operations per second over all threads"))
        .arg(fraction("time-limit", "SECONDS", "60", "How long the load lasts"))
        .arg(fraction("latency", "MS", "0", "Mean latency between nodes, in milliseconds"))
        .arg(
            option("latency-dist", "NAME", "constant", "constant, uniform or exponential")
                .value_parser(|name: &str| name.parse::<Distribution>()),
        )
        .arg(
            Arg::new("nemesis")
                .long("nemesis")
                .value_name("NAMES")
                .value_delimiter(',')
                .action(ArgAction::Append)
                .value_parser(|name: &str| name.parse::<Nemesis>())
                .help("partition; beyond the genuine tool: one-way, kill, power (virtual only), pause, loss, duplicate"),
        )
        .arg(fraction("nemesis-interval", "SECONDS", "10", "Mean time between two moves of a nemesis"))
        .arg(Arg::new("rings").long("rings").action(ArgAction::SetTrue).help("Partition into rings of majorities only"))
        .arg(number("max-txn-length", "4", "Operations of a transaction at most"))
        .arg(number("max-writes-per-key", "16", "Writes of transactions to one key at most"))
        .arg(number("key-count", "5", "Keys that transactions use at a time"))
        .arg(number("test-count", "1", "Runs, each with the next seed"))
        .arg(Arg::new("seed").long("seed").value_name("N").value_parser(value_parser!(u64)).help("Where all chances come from"))
        .arg(
            Arg::new("store")
                .long("store")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("Keep histories and the nodes' logs here; without it, only those of runs that are not valid"),
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_parser(["text", "json"])
                .default_value("text")
                .help("For people or for programs"),
        )
}

fn bad(what: impl Into<String>) -> anyhow::Error {
    Exit::with(Code::BadArguments, what)
}

/// Runs `hustings workload`; an error carries the exit code.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let first = settings(matches).map_err(bad)?;
    let node = NodeSettings {
        protocol: protocol(matches),
        data_dir: None,
        may_resume: false,
        timing: timing(matches).map_err(|misfit| bad(misfit.to_string()))?,
    };
    let is_json = matches.get_one::<String>("output").is_some_and(|format| format == "json");
    if let Some(store) = matches.get_one::<PathBuf>("store") {
        files::check_directory("store", store).map_err(|error| Exit::with(Code::Broken, error.to_string()))?;
    }
    let mut worst = Verdict::Valid;
    let mut failed = 0;
    let count = *matches.get_one::<u64>("test-count").expect("it has a default");
    for run in 0..count {
        let settings = Settings { seed: first.seed.wrapping_add(run), ..first.clone() };
        let seed = settings.seed;
        let (report, history, directory) =
            one(matches, &node, settings).map_err(|error| Exit::with(Code::Broken, format!("{error:#}")))?;
        match is_json {
            true => println!("{}", report.to_json()),
            false => println!("{report}"),
        }
        let verdict = report.verdict();
        worst = worst.max(verdict);
        failed += u64::from(verdict != Verdict::Valid);
        let is_kept = matches.contains_id("store") || verdict != Verdict::Valid;
        if is_kept {
            let file = directory.join("history.jsonl");
            // Not 1, which says that the history is invalid.
            std::fs::write(&file, history.lines().join("\n") + "\n")
                .map_err(|error| Exit::with(Code::Broken, format!("cannot write {}: {error}", file.display())))?;
            eprintln!("seed {seed}: the history is in {}", file.display());
        } else if let Err(error) = std::fs::remove_dir_all(&directory) {
            eprintln!("cannot remove {}: {error}", directory.display());
        }
    }
    match worst {
        Verdict::Valid => Ok(()),
        worst => {
            let what = format!("{failed} of {count} runs not valid");
            let code = match worst {
                Verdict::Valid => Code::Done,
                Verdict::Invalid => Code::Failed,
                Verdict::Unknown => Code::Unknown,
                Verdict::Broken => Code::Broken,
            };
            Err(Exit::with(code, what))
        }
    }
}

/// One run; gives back the directory of its own in which processes left what they wrote.
fn one(matches: &ArgMatches, node: &NodeSettings, settings: Settings) -> Result<(Report, History, PathBuf)> {
    let name = format!("{}-{}-{}", settings.workload, settings.seed, std::process::id());
    let directory = match matches.get_one::<PathBuf>("store") {
        Some(store) => store.join(name),
        None => std::env::temp_dir().join(format!("hustings-workload-{name}")),
    };
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let (report, history) = if matches.get_flag("virtual") {
        simulate_maelstrom(node, settings)
    } else {
        let program = program(matches, node, &directory)?;
        processes::run(settings, program).context("the processes cannot be run")?
    };
    Ok((report, history, directory))
}

fn program(matches: &ArgMatches, node: &NodeSettings, directory: &Path) -> Result<Program> {
    let texts = |name: &str| matches.get_many::<String>(name).into_iter().flatten().cloned().collect::<Vec<_>>();
    let logs = Some(directory.to_path_buf());
    if let Some(path) = matches.get_one::<PathBuf>("bin") {
        // As the genuine tool resolves it: against the working directory, never along PATH (MP-1).
        let path = path.canonicalize().with_context(|| format!("there is no {}", path.display()))?;
        return Ok(Program { path, arguments: texts("arguments"), restart_arguments: texts("restart-arg"), logs });
    }
    let millis = |duration: std::time::Duration| duration.as_millis().to_string();
    let data_dir = directory.join("data").to_string_lossy().into_owned();
    let arguments = [
        "maelstrom".into(),
        "--protocol".into(),
        node.protocol.clone(),
        "--heartbeat-interval".into(),
        millis(node.timing.heartbeat),
        "--election-timeout".into(),
        millis(node.timing.election_min),
        "--data-dir".into(),
        data_dir,
    ];
    Ok(Program {
        path: std::env::current_exe()?,
        arguments: arguments.into(),
        restart_arguments: vec!["--resume".into()],
        logs,
    })
}

/// Reads the flags; in words, what is wrong with them.
fn settings(matches: &ArgMatches) -> Result<Settings, String> {
    let number = |name: &str| *matches.get_one::<u64>(name).expect("it has a default");
    let fraction = |name: &str| *matches.get_one::<f64>(name).expect("it has a default");
    let time = |name: &str, micros: f64| match fraction(name) * micros {
        time if (0.0..=MICROS * 86_400.0 * 7.0).contains(&time) => Ok(time as u64),
        _ => Err(format!("--{name} {}: give a number from 0 to a week", fraction(name))),
    };
    let nodes = usize::try_from(number("node-count")).expect("clap bounds it");
    let threads = matches.get_one::<String>("concurrency").expect("it has a default");
    let concurrency = match threads.strip_suffix('n') {
        Some(each) => each.parse::<usize>().ok().and_then(|each| each.checked_mul(nodes)),
        None => threads.parse().ok(),
    };
    let concurrency = concurrency.filter(|threads| *threads <= 10_000);
    let concurrency =
        concurrency.ok_or_else(|| format!("--concurrency {threads}: give a number, or 4n for four per node"))?;
    let settings = Settings {
        concurrency,
        rate: fraction("rate"),
        time_limit: time("time-limit", MICROS)?,
        latency: time("latency", MICROS / 1e3)?,
        distribution: *matches.get_one::<Distribution>("latency-dist").expect("it has a default"),
        nemeses: matches.get_many::<Nemesis>("nemesis").into_iter().flatten().copied().collect(),
        nemesis_interval: time("nemesis-interval", MICROS)?.max(1_000),
        targets: if matches.get_flag("rings") { Targets::Rings } else { Targets::All },
        max_txn_length: number("max-txn-length").max(1),
        max_writes_per_key: number("max-writes-per-key").max(1),
        key_count: number("key-count").max(1),
        ..Settings::new(
            *matches.get_one::<Workload>("workload").expect("it has a default"),
            nodes,
            matches.get_one::<u64>("seed").copied().unwrap_or_else(|| u64::from(rand::random::<u32>())),
        )
    };
    settings.check()?;
    if settings.nemeses.contains(&Nemesis::Power) && !matches.get_flag("virtual") {
        return Err("the nemesis `power` cannot cut a real machine's power: add --virtual, or use kill".into());
    }
    Ok(settings)
}
