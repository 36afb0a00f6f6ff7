//! The `hustings` binary: one node, a local cluster, and the client's side of both.
//!
//! Read next: [`settings`] (flags, environment, file, defaults), [`serve`] (one node), [`up`] (a local cluster),
//! `hustings_protocols` (the one place that names a protocol), `hustings_prove` (the proving ground).

/// Instead of the standard library's, which panics when nobody reads any more.
macro_rules! println {
    ($($word:tt)*) => { hustings_console::println!($($word)*) };
}

/// Instead of the standard library's, which panics when nobody hears any more.
macro_rules! eprintln {
    ($($word:tt)*) => { hustings_console::eprintln!($($word)*) };
}

/// As [`println`], without an end of line.
macro_rules! print {
    ($($word:tt)*) => { hustings_console::print!($($word)*) };
}

mod bench;
mod client;
mod copy;
mod credentials;
mod descriptors;
mod elect;
mod environment;
mod examples;
mod hints;
mod http;
mod huge_pages;
mod inspect;
mod keys;
mod logging;
mod member;
mod output;
mod recover;
mod replay;
mod report;
mod serve;
mod settings;
mod snapshots;
mod status;
mod up;
mod upkeep;
mod url_users;
mod why;

use clap::Command;
use exit::{Code, Exit};
use hustings_console::exit;
use hustings_election::supervisor;
use hustings_protocols as protocols;
use hustings_prove::{self as prove, maelstrom, workload};
use mimalloc::MiMalloc;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn command() -> Command {
    let command = Command::new("hustings")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Leader election and state-machine replication")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(up::command())
        .subcommand(maelstrom::command())
        .subcommand(workload::command())
        .subcommand(serve::command())
        .subcommand(settings::config_command())
        .subcommands(client::commands())
        .subcommands(credentials::commands())
        .subcommands(upkeep::commands())
        .subcommands(copy::commands())
        .subcommand(elect::run::command())
        .subcommands(elect::verbs::commands())
        .subcommand(why::command())
        .subcommand(replay::command())
        .subcommand(report::command())
        .subcommand(inspect::command())
        .subcommand(recover::command())
        .subcommand(bench::command())
        .subcommand(prove::simulate::command())
        .subcommand(prove::check::command())
        .subcommand(prove::play::command())
        .subcommand(prove::compare::command())
        .subcommand(prove::lab::command())
        .subcommand(prove::convict::command())
        .subcommand(prove::regions::command())
        .subcommands(examples::commands());
    examples::with_examples(command)
}

fn main() -> ExitCode {
    // A sidecar starts this program, too: before anything else, for it must come up at once.
    let arguments: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    match arguments.split_first() {
        Some((verb, rest)) if verb == supervisor::SHIM => return supervisor::run_shim(rest),
        Some((verb, rest)) if verb == supervisor::CELL => return supervisor::run_cell(rest),
        Some((verb, rest)) if verb == supervisor::WARDEN => return supervisor::run_warden(rest),
        _ => {}
    }
    supervisor::keep_name();
    // A panic in any thread ends the process: a half-alive node is worse than a dead one (ADR 34).
    hustings_console::set_farewell(logging::finish);
    std::panic::set_hook(Box::new(|panic| {
        let (thread, backtrace) = (std::thread::current(), Backtrace::capture());
        let mut words = format!("thread '{}' {panic}", thread.name().unwrap_or("<unnamed>"));
        if backtrace.status() == BacktraceStatus::Captured {
            words = format!("{words}\nstack backtrace:\n{backtrace}");
        }
        hustings_console::last_words(move || {
            hustings_console::write_error(format_args!("\n{words}"));
            logging::finish();
        });
        let why = panic.to_string();
        hustings_console::last_words(move || hustings_recorder::note_panic(&why));
        std::process::abort();
    }));
    let matches =
        command().try_get_matches_from(as_ours(std::env::args_os().collect(), is_service())).unwrap_or_else(|error| {
            let is_workload = arguments.first().is_some_and(|verb| workload::NAMES.contains(&verb.as_str()));
            let code = if is_workload { Code::BadArguments } else { Code::Usage };
            output::say_usage(hints::hinted(error), code)
        });
    let refused = environment::check(&matches);
    let result = match matches.subcommand() {
        _ if refused.is_err() => refused,
        Some(("run", matches)) => return ExitCode::from(elect::run::run(matches)),
        Some(("lock", matches)) => return ExitCode::from(elect::run::lock(matches)),
        Some((verb @ ("elect" | "observe"), matches)) => on_this_thread(elect::verbs::run(verb, matches)),
        Some(("why", matches)) => on_runtime_of(1, why::run(matches)),
        Some(("replay", matches)) => replay::run(matches),
        Some(("report", matches)) => on_runtime_of(1, report::run(matches)),
        Some(("up", matches)) => up::run(matches),
        Some(("maelstrom", matches)) => maelstrom::run(matches),
        Some(("workload", matches)) => workload::run(matches),
        Some(("serve", matches)) => serve::run(matches),
        Some(("config", matches)) => settings::run_config(matches),
        Some(("simulate", matches)) => prove::simulate::run(matches),
        Some(("check", matches)) => prove::check::run(matches),
        Some(("play", matches)) => match replay::script::named(matches) {
            Some((path, text)) => replay::script::play(&path, &text, matches),
            None => prove::play::run(matches),
        },
        Some(("compare", matches)) => prove::compare::run(matches),
        Some(("lab", matches)) => prove::lab::run(matches),
        Some(("convict", matches)) => prove::convict::run(matches),
        Some(("regions", matches)) => prove::regions::run(matches),
        Some((verb @ ("completions" | "manual"), matches)) => examples::run(verb, matches, command()),
        Some(("inspect", matches)) => inspect::run(matches),
        Some(("recover", matches)) => recover::run(matches),
        Some(("snapshot", matches)) if matches.subcommand_name() != Some("save") => snapshots::run(matches),
        Some((verb @ ("import" | "export"), matches)) => on_runtime_of(1, copy::run(verb, matches)),
        Some(("bench", matches)) => on_runtime_of(bench::threads(matches), bench::run(matches)),
        Some((verb, matches)) => on_runtime_of(1, client::run(verb, matches)),
        None => unreachable!("clap requires a subcommand"),
    };
    logging::finish();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = error.downcast_ref::<Exit>().map_or(Code::Failed, |exit| exit.code).number();
            output::say_error(&matches, code, &format!("{error:#}"));
            ExitCode::from(code)
        }
    }
}

/// Whether a supervisor has started this process, or somebody who has told it settings of etcd's server.
fn is_service() -> bool {
    let is_etcds = |name: &str| name.starts_with("ETCD_");
    std::env::vars_os().any(|(name, _)| name == "NOTIFY_SOCKET" || name.to_str().is_some_and(is_etcds))
}

/// The command line as clap knows it. Called by the name of etcd this program serves, so that a link of that name is enough
/// for a unit; so it does when a unit of etcd calls it by its own name, with flags of etcd in the place of a verb or, as a
/// service, with nothing. Flags of `serve` may begin with one dash, as in Go.
fn as_ours(mut arguments: Vec<OsString>, is_service: bool) -> Vec<OsString> {
    let name = arguments.first().and_then(|path| Path::new(path).file_name());
    let serves = match arguments.get(1).map(|first| first.to_str().unwrap_or("")) {
        None => is_service,
        Some("-h" | "-help" | "--help" | "-V" | "-version" | "--version") => false,
        Some(first) => first.starts_with('-'),
    };
    if serves || name.is_some_and(|name| name == "etcd") {
        arguments.insert(1, "serve".into());
    }
    if arguments.get(1).is_some_and(|verb| verb == "serve") {
        for argument in arguments.iter_mut().skip(2) {
            let text = argument.to_str().unwrap_or("");
            let is_flag =
                text.len() > 2 && text.starts_with('-') && text[1..].starts_with(|c: char| c.is_ascii_alphabetic());
            if is_flag {
                *argument = format!("-{text}").into();
            }
        }
    }
    arguments
}

/// Runs a command on the main thread: the election's own thread does the work, and a signal is heard without waking a worker.
fn on_this_thread(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

fn on_runtime_of(threads: usize, work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_sidecar_ends_with_the_supervisor_s_code() {
        assert_eq!(Code::Sidecar.number(), supervisor::EXIT_SUPERVISOR);
    }

    /// Goal: no help shows a password that stands in the environment. Method: whatever reads a variable, in all commands, hides its value, or
    /// the variable is one of those that hold none.
    #[test]
    fn no_help_shows_a_value_that_may_be_a_secret() {
        const SHOWN: [&str; 2] = ["HUSTINGS_ENDPOINTS", "HUSTINGS_ETCD_PASSWORD_FILE"];
        let (mut commands, mut hidden) = (vec![command()], std::collections::BTreeSet::new());
        while let Some(command) = commands.pop() {
            for argument in command.get_arguments() {
                let variable = argument.get_env().map(|variable| variable.to_string_lossy().into_owned());
                let Some(variable) = variable.filter(|variable| !SHOWN.contains(&variable.as_str())) else { continue };
                assert!(argument.is_hide_env_values_set(), "{variable} is shown by `{}`", command.get_name());
                hidden.insert(variable);
            }
            commands.extend(command.get_subcommands().cloned());
        }
        assert!(hidden.contains("HUSTINGS_PASSWORD") && hidden.contains("HUSTINGS_STORE"), "{hidden:?}");
    }

    #[test]
    fn flags_of_etcd_in_the_place_of_a_verb_serve() {
        let ours = |line: &str, is_service| {
            let words = as_ours(line.split(' ').map(OsString::from).collect(), is_service);
            words.iter().map(|word| word.to_str().expect("text")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            ours("/usr/bin/hustings -name m1 --data-dir /d", false),
            "/usr/bin/hustings serve --name m1 --data-dir /d"
        );
        assert_eq!(ours("/usr/bin/etcd --name m1", false), "/usr/bin/etcd serve --name m1");
        assert_eq!(ours("hustings", true), "hustings serve", "a unit without arguments");
        assert_eq!(ours("hustings", false), "hustings", "somebody at a terminal, who gets help");
        for line in ["hustings --help", "hustings -h", "hustings --version", "hustings -V", "hustings get k"] {
            assert_eq!(ours(line, true), line);
        }
    }
}
