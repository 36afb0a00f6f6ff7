//! The `hustings` binary: one node, a local cluster, and the client's side of both.
//!
//! What to read next: [`settings`] (flags, environment, file, defaults), [`serve`] (one node), [`up`] (a local cluster),
//! [`protocols`] (the one place that names a protocol).

mod protocols;
mod serve;
mod settings;
mod up;

use clap::Command;
use std::process::ExitCode;

/// Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 no quorum or timeout, 5 auth (see the manual).
mod exit {
    pub(crate) const FAILURE: u8 = 1;
}

fn command() -> Command {
    Command::new("hustings")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Leader election and state-machine replication")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(up::command())
        .subcommand(serve::command())
        .subcommand(settings::config_command())
}

fn main() -> ExitCode {
    // A panic in any thread ends the process: a half-alive node is worse than a dead one (house §7.9).
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    let matches = command().get_matches();
    let result = match matches.subcommand() {
        Some(("up", matches)) => up::run(matches),
        Some(("serve", matches)) => serve::run(matches),
        Some(("config", matches)) => settings::run_config(matches),
        _ => unreachable!("clap requires one of the subcommands above"),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hustings: {error:#}");
            ExitCode::from(exit::FAILURE)
        }
    }
}
