//! Whether this process may lead, as a command and the callers of its socket say: [`keep`].

use super::own::{Own, reap_orphans};
use super::watchman::Board;
use hustings_election::Office;
use hustings_election::supervisor::{SHIM, end_group};
use std::ffi::OsStr;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Pause between two health checks.
const EVERY: Duration = Duration::from_secs(1);
/// Number of answers in a row that say no, before they are believed.
const UNHEALTHY_AFTER: u32 = 2;

/// Tells the candidate what the health command and the callers say: it may lead only while neither says no. Runs beside the
/// command and beside a campaign, so that a check that hangs holds up nothing.
///
/// A caller's no counts until a caller says yes. The command's first answer is awaited before the candidate stands.
pub(crate) async fn keep(office: Office, command: Option<String>, board: Board) {
    let mut said = board.health();
    let mut noes = if command.is_some() { UNHEALTHY_AFTER } else { 0 };
    let mut answer = Box::pin(ask(command.as_deref(), &board, Duration::ZERO));
    loop {
        office.say_healthy(noes < UNHEALTHY_AFTER && *said.borrow_and_update());
        tokio::select! {
            is_yes = &mut answer => {
                noes = if is_yes { 0 } else { noes.saturating_add(1) };
                answer.set(ask(command.as_deref(), &board, EVERY));
            }
            // The board holds the other end.
            changed = said.changed() => if changed.is_err() { return },
        }
    }
}

/// Asks once more, after a pause; never answers without a command.
async fn ask(command: Option<&str>, board: &Board, pause: Duration) -> bool {
    let Some(command) = command else { return std::future::pending().await };
    tokio::time::sleep(pause).await;
    succeeds(&mut board.told_to(shell(command)), EVERY).await
}

/// A command of the shell that reads nothing.
pub(crate) fn shell(command: &str) -> Command {
    aside("/bin/sh", &["-c", command])
}

/// A program beside the command: it reads nothing, and is a group of its own.
fn aside(program: impl AsRef<OsStr>, arguments: &[&str]) -> Command {
    let mut aside = Command::new(program);
    aside.args(arguments).stdin(Stdio::null()).kill_on_drop(true).process_group(0);
    aside
}

/// As [`shell`], one that ends when this process does. Before it is the shell it is this program, for some milliseconds.
///
/// # Errors
/// This program's own file is not known.
pub(crate) fn dies_with_us(command: &str) -> std::io::Result<Command> {
    let (program, me) = (std::env::current_exe()?, std::process::id().to_string());
    Ok(aside(program, &[SHIM, &me, "-", "/bin/sh", "-c", command]))
}

/// Whether a command of [`shell`] ends well, in time. One that does not is killed with all that it has started.
pub(crate) async fn succeeds(command: &mut Command, within: Duration) -> bool {
    ended(command, within, false).await
}

/// As [`succeeds`], of a command beside whose successor nothing may run: what it has started ends with it.
pub(crate) async fn succeeds_alone(command: &mut Command, within: Duration) -> bool {
    ended(command, within, true).await
}

async fn ended(command: &mut Command, within: Duration, is_alone: bool) -> bool {
    // Processes that earlier ones have left behind, and that have ended since.
    reap_orphans();
    let Ok(mut own) = Own::start(command) else { return false };
    let ended = tokio::time::timeout(within, own.child.wait()).await;
    if ended.is_err() || is_alone {
        own.number.and_then(|pid| i32::try_from(pid).ok()).into_iter().for_each(end_group);
    }
    matches!(ended, Ok(Ok(status)) if status.success())
}
