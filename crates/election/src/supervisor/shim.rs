//! The moment between fork and exec, as a program of its own: it dies with its parent, then becomes COMMAND.

use super::Cage;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The hidden verb: `hustings __shim WARDEN CAGE COMMAND...`; a cage of `-` is none.
pub const SHIM: &str = "__shim";

/// Becomes COMMAND; returns only if that cannot be.
///
/// Exit codes: 127 when there is no such command, 126 when it cannot be run, 125 when the warden is gone.
pub fn run_shim(arguments: &[String]) -> ExitCode {
    let [warden, cage, command, rest @ ..] = arguments else { return ExitCode::from(super::EXIT_SUPERVISOR) };
    let warden = warden.parse().ok().and_then(Pid::from_raw);
    if set_parent_process_death_signal(Some(Signal::KILL)).is_err() || warden.is_none() || getppid() != warden {
        // The warden died before the signal was set: nobody would end what starts now.
        return ExitCode::from(super::EXIT_SUPERVISOR);
    }
    if cage != "-"
        && let Err(error) = Cage::at(cage).enter()
    {
        say(&format!("the command cannot be put into its control group: {error}"));
        return ExitCode::from(super::EXIT_SUPERVISOR);
    }
    let error = Command::new(command).args(rest).exec();
    say(&format!("cannot run {command}: {error}"));
    ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
}

/// Prints the reason for a reader, if there is one; the exit code says the same.
pub(super) fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "hustings: {what}");
}
