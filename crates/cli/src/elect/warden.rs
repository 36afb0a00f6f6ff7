//! The warden as the sidecar has it, from its start to its end: [`Warden`].

use super::own::Own;
use anyhow::{Context, Result, bail};
use hustings_election::supervisor::{
    Before, CELL, Cage, Say, Tell, WARDEN, end_descendants_of, end_group, is_group_gone, this_program,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Command;
use tokio::sync::mpsc;

/// Time that the warden may take to come up, and to start the command.
pub(super) const WARDEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that the warden has for ending what runs before the stop, and for saying so.
const PREPARED_DELAY: Duration = Duration::from_millis(50);
/// Lines that wait for a warden which does not read.
const LINES_MAX: usize = 64;

/// The means that hold the command's processes together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Containment {
    /// Their process group, and the warden as their reaper.
    Group,
    /// A control group, too.
    ControlGroup,
    /// A PID namespace, whose first process is the warden.
    Namespace,
}

/// The process that ends the command in time.
pub(super) struct Warden {
    pub(super) process: Own,
    lines: Lines<BufReader<OwnedReadHalf>>,
    /// Messages that came while another one was awaited.
    heard: VecDeque<Tell>,
    /// Lines for it, which a task of its own writes: one that stands still holds nobody up.
    writing: mpsc::Sender<String>,
    /// Cage of the command's processes, once it runs.
    pub(super) cage: Option<Cage>,
    /// The first process of the namespace that the command runs in, if it has one. Process numbers that the warden tells are
    /// of that namespace, and mean somebody else here.
    cell: Option<OwnedFd>,
    /// Processes of the command that this process may not kill, and that have to end by themselves: another user's.
    foreign: Vec<OwnedFd>,
    /// Whether it has reaped all that the command had started, and has left no orphan to this process.
    pub(super) has_reaped: bool,
}

/// A socket that a warden calls this process at, in a directory of its own: where TMPDIR says, or where else there is room for one.
fn warden_socket() -> Result<(TempDir, PathBuf, UnixListener)> {
    let mut whys = Vec::new();
    for place in [std::env::temp_dir(), "/tmp".into(), "/dev/shm".into(), "/run".into()] {
        let made = tempfile::Builder::new().prefix("hustings-run-").tempdir_in(&place).and_then(|directory| {
            let path = directory.path().join("warden");
            let listener = UnixListener::bind(&path)?;
            Ok((directory, path, listener))
        });
        match made {
            Ok(made) => return Ok(made),
            Err(error) => whys.push(format!("{}: {error}", place.display())),
        }
    }
    bail!("no place for the warden's socket, which takes a directory with a short name (TMPDIR): {}", whys.join("; "))
}

impl Warden {
    /// Starts one that waits to be told.
    pub(super) async fn start(containment: Containment) -> Result<Warden> {
        let (directory, path, listener) = warden_socket()?;
        let is_first = containment == Containment::Namespace;
        let verb = if is_first { CELL } else { WARDEN };
        let mut command = Command::from(this_program());
        command.arg(verb).arg(&path).kill_on_drop(true);
        let mut process = Own::start(&mut command).context("the warden cannot be started")?;
        let accepted = tokio::select! {
            accepted = tokio::time::timeout(WARDEN_TIMEOUT, listener.accept()) => accepted.context("the warden is silent")?,
            ended = process.child.wait() => bail!("the warden has ended at its start: {}", ended?),
        };
        let stream = accepted?.0;
        let cell =
            is_first.then(|| pidfd_of(&stream)).transpose().context("the warden of a namespace has no number")?;
        let (reading, writing) = stream.into_split();
        let (sender, lines_to_write) = mpsc::channel(LINES_MAX);
        tokio::spawn(write(writing, lines_to_write));
        // Both ends are there: the socket's name is not needed any more, and a killed sidecar would leave it behind.
        directory.close().context("the warden's socket cannot be removed")?;
        let lines = BufReader::new(reading).lines();
        Ok(Warden {
            process,
            lines,
            heard: VecDeque::new(),
            writing: sender,
            cage: None,
            cell,
            foreign: Vec::new(),
            has_reaped: false,
        })
    }

    /// Tells it something, and does not wait; says whether it may hear of it: it is there, and not so many lines wait for it.
    pub(super) fn say(&self, say: &Say) -> bool {
        let mut line = serde_json::to_string(say).expect("plain values are JSON");
        line.push('\n');
        self.writing.try_send(line).is_ok()
    }

    /// The warden's next message; an error when it is gone.
    pub(super) async fn hear(&mut self) -> Result<Tell> {
        match self.heard.pop_front() {
            Some(tell) => Ok(tell),
            None => self.hear_next().await,
        }
    }

    async fn hear_next(&mut self) -> Result<Tell> {
        let line = self.lines.next_line().await?.context("the warden is gone")?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Lets it run a shell command before the stop; says what that did instead of ending well. Whatever else is told meanwhile is heard later.
    pub(super) async fn prepare(&mut self, before: Before) -> Option<String> {
        let within = Duration::from_micros(before.within_micros);
        if !self.say(&Say::Before(Box::new(before))) {
            return Some("is not run: the warden does not read".to_owned());
        }
        let prepared = async {
            loop {
                match self.hear_next().await {
                    Ok(Tell::Prepared { instead }) => return instead,
                    Ok(other) => self.heard.push_back(other),
                    // That the warden is gone is heard once more.
                    Err(_) => return Some("has ended with the warden".to_owned()),
                }
            }
        };
        tokio::time::timeout(within + PREPARED_DELAY, prepared)
            .await
            .unwrap_or_else(|_| Some(format!("took longer than {within:?}, and the warden does not say so")))
    }

    /// Whether nothing of the command acts any more.
    pub(super) fn has_ended(&self, group: i32) -> bool {
        match &self.cell {
            // The kernel says that it has ended once all the others in there have.
            Some(cell) => has_ended(cell),
            None => {
                let is_caught = self.cage.as_ref().is_none_or(Cage::is_empty);
                is_group_gone(group) && is_caught && self.foreign.iter().all(has_ended)
            }
        }
    }

    /// It has said that the command has ended: it had reaped all that the command had started by then, and has nothing left to do.
    pub(super) async fn is_done(&mut self) {
        // It dies while the election is released; one that has ended already needs no signal.
        self.has_reaped = self.process.child.start_kill().is_ok() && self.cell.is_none();
        if self.cell.is_some() {
            // The child started the first process of the namespace, which comes to this one as an orphan once the child is gone.
            let _ = self.process.child.wait().await;
        }
    }

    /// Kills what the warden has started, and the warden with it; what may not be killed is waited for later.
    pub(super) fn replace(&mut self, group: i32) {
        self.foreign.extend(self.process.child.id().into_iter().flat_map(end_descendants_of));
        self.end(group);
        // One that is gone needs no signal.
        let _ = self.process.child.start_kill();
    }

    /// Kills what is left of the command.
    pub(super) fn end(&self, group: i32) {
        if let Some(cell) = &self.cell {
            // A process that has ended needs no signal.
            let _ = pidfd_send_signal(cell, rustix::process::Signal::KILL);
            return;
        }
        end_group(group);
        self.cage.iter().for_each(Cage::kill);
    }
}

/// Writes lines until nobody has any more, or nobody reads.
async fn write(mut socket: OwnedWriteHalf, mut lines: mpsc::Receiver<String>) {
    while let Some(line) = lines.recv().await {
        if socket.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The process at the other end, by its number in this namespace.
fn pidfd_of(stream: &UnixStream) -> Result<OwnedFd> {
    let pid = stream.peer_cred()?.pid().and_then(Pid::from_raw).context("its process is not known")?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut asked = [PollFd::new(process, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&at_once)).is_ok_and(|ready| ready > 0)
}
