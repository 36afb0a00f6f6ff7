//! `torture`: breaks a real cluster under load and judges it.
//!
//! ```text
//!   torture --binary target/debug/hustings --protocol raft --nodes 3 --seconds 60 --seed 1
//!   torture --faults kill,pause,cut --seconds 20        some kinds only
//!   torture --seed 7 --plan > storm; torture --script storm
//! ```
//!
//! Exit codes: 0 everything held, 1 something did not, 2 the run could not be made.

use anyhow::{Context, Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hustings_torture::plan::plan;
use hustings_torture::{Kind, Logs, Script, Torture, run};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

fn command() -> Command {
    let all = Kind::ALL.map(|kind| kind.to_string()).join(",");
    let option = |name: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name).long(name).default_value(default).help(help)
    };
    let number = |name, default, help| option(name, default, help).value_parser(value_parser!(u64));
    Command::new("torture")
        .about("Breaks a real cluster under load and judges what its clients saw")
        .arg(option("binary", "target/debug/hustings", "The program to run"))
        .arg(option("protocol", "raft", "Which protocol"))
        .arg(number("nodes", "3", "How many members").value_parser(value_parser!(u64).range(2..=7)))
        .arg(number("seconds", "60", "How long the load goes on"))
        .arg(number("seed", "1", "Decides which faults come when"))
        .arg(number("clients", "6", "How many clients").value_parser(value_parser!(u64).range(1..=256)))
        .arg(number("keys", "8", "On how many keys").value_parser(value_parser!(u64).range(1..)))
        .arg(number("ballast", "0", "So many keys of 256 bytes stand in the store before anything begins"))
        .arg(
            Arg::new("newer")
                .long("newer")
                .value_parser(value_parser!(PathBuf))
                .help("The newer build that the members are upgraded to, one after the other"),
        )
        .arg(
            Arg::new("faults")
                .long("faults")
                .value_delimiter(',')
                .value_parser(|word: &str| word.parse::<Kind>())
                .help(format!("Kinds of faults [default: those that need no root; all: {all}]")),
        )
        .arg(Arg::new("script").long("script").conflicts_with("faults").help("Do what this file says instead"))
        .arg(Arg::new("keep-logs").long("keep-logs").action(ArgAction::SetTrue).help("Leave the nodes' logs behind"))
        .arg(Arg::new("plan").long("plan").action(ArgAction::SetTrue).help("Print the script and do nothing"))
}

fn script_of(matches: &ArgMatches) -> Result<Script> {
    let number = |name: &str| *matches.get_one::<u64>(name).expect("it has a default");
    if let Some(path) = matches.get_one::<String>("script") {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        return Script::parse(&text).with_context(|| path.clone());
    }
    let kinds: Vec<Kind> = match matches.get_many::<Kind>("faults") {
        Some(kinds) => kinds.copied().collect(),
        None => Kind::WITHOUT_ROOT.to_vec(),
    };
    let mut script = plan(number("seed"), usize::try_from(number("nodes"))?, number("seconds"), &kinds)?;
    if matches.contains_id("newer") {
        script.upgrade(number("nodes"), Duration::from_secs(number("seconds")));
    }
    Ok(script)
}

fn main() -> ExitCode {
    match torture(&command().get_matches()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("torture: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn torture(matches: &ArgMatches) -> Result<bool> {
    let number = |name: &str| *matches.get_one::<u64>(name).expect("it has a default");
    let text = |name: &str| matches.get_one::<String>(name).expect("it has a default").clone();
    let script = script_of(matches)?;
    print!("# torture --protocol {} --nodes {} --seed {}\n{script}", text("protocol"), number("nodes"), number("seed"));
    if matches.get_flag("plan") {
        return Ok(true);
    }
    let binary = PathBuf::from(text("binary"));
    if !binary.exists() {
        bail!("there is no {}: build it with `cargo build -p hustings`, or name it with --binary", binary.display());
    }
    let torture = Torture {
        binary,
        protocol: text("protocol"),
        nodes: usize::try_from(number("nodes"))?,
        length: Duration::from_secs(number("seconds")),
        seed: number("seed"),
        clients: number("clients"),
        keys: number("keys"),
        script,
        ballast: number("ballast"),
        newer: matches.get_one("newer").cloned(),
        logs: if matches.get_flag("keep-logs") { Logs::Keep } else { Logs::Remove },
    };
    // The plan waits for tools and processes on its own thread; clients and proxies must not wait with it.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
    let report = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut say = |line: &str| println!("{line}");
        tokio::select! {
            report = run(&torture, &mut say) => report,
            // All started processes end and all mounts are undone on the way out.
            _ = terminate.recv() => bail!("told to stop"),
            _ = interrupt.recv() => bail!("interrupted"),
        }
    })?;
    println!("{report}");
    Ok(report.violations.is_empty())
}
