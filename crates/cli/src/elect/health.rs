//! Whether this process may lead, as a command and the callers of its socket say: [`keep`].

use super::own::{Own, reap_orphans};
use super::watchman::Board;
use crate::logging::say_aside as say;
use hustings_election::Office;
use hustings_election::supervisor::end_group;
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
    // Once, until it says yes again.
    let mut is_told = false;
    let mut answer = Box::pin(ask(command.as_deref(), &board, Duration::ZERO));
    loop {
        office.say_healthy(noes < UNHEALTHY_AFTER && *said.borrow_and_update());
        tokio::select! {
            said = &mut answer => {
                noes = if said.is_ok() { 0 } else { noes.saturating_add(1) };
                let says_no = said.err().filter(|_| noes >= UNHEALTHY_AFTER);
                if let Some(why) = says_no.as_ref().filter(|_| !is_told) {
                    say(format_args!("not healthy: the --health-command {why}"));
                }
                is_told = says_no.is_some();
                answer.set(ask(command.as_deref(), &board, EVERY));
            }
            // The board holds the other end.
            changed = said.changed() => if changed.is_err() { return },
        }
    }
}

/// Asks once more, after a pause; never answers without a command. An error says what the command did instead of saying yes.
async fn ask(command: Option<&str>, board: &Board, pause: Duration) -> Result<(), String> {
    let Some(command) = command else { return std::future::pending().await };
    tokio::time::sleep(pause).await;
    ended(&mut board.told_to(shell(command)), EVERY).await
}

/// A command of the shell that reads nothing, and is a group of its own.
fn shell(command: &str) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).stdin(Stdio::null()).kill_on_drop(true).process_group(0);
    shell
}

/// Waits until a command of [`shell`] has ended well, and says what it did instead. One that takes longer is killed with all that it
/// has started.
async fn ended(command: &mut Command, within: Duration) -> Result<(), String> {
    // Processes that earlier ones have left behind, and that have ended since.
    reap_orphans();
    let mut own = Own::start(command).map_err(|error| format!("cannot be started: {error}"))?;
    let ended = tokio::time::timeout(within, own.child.wait()).await;
    if ended.is_err() {
        own.number.and_then(|pid| i32::try_from(pid).ok()).into_iter().for_each(end_group);
    }
    match ended {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("ended with {status}")),
        Ok(Err(error)) => Err(format!("cannot be waited for: {error}")),
        Err(_) => Err(format!("took longer than {within:?}")),
    }
}
