//! The process that ends COMMAND in time, also when the sidecar cannot: [`run_warden`]. One thread, no runtime.

use super::tree::{adopt_orphans, end_descendants, reap};
use super::{Before, CELL, Cage, EXIT_SUPERVISOR, SHIM, SOCKET, Say, Start, Tell, Times, cell, shim};
use crate::clock::{boot_micros, fire_once};
use crate::lines::Lines;
use crate::stores::bequeathed::GIVEN_UP_AFTER;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process_group, pidfd_open, setsid, waitpid};
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

/// The hidden verb: `hustings __warden SOCKET`, and a word behind it in a cell.
pub const WARDEN: &str = "__warden";

/// Waits on the socket to be told what to run, runs it, ends it in time.
pub fn run_warden(arguments: &[String]) -> ExitCode {
    super::keep_name();
    let (socket, settled) = match arguments {
        [socket] => (socket, Ok(())),
        // Before anything is asked of `/proc`, which is that of another namespace still.
        [socket, word] if word == CELL => (socket, cell::settle()),
        _ => return ExitCode::from(EXIT_SUPERVISOR),
    };
    match settled.and_then(|()| Warden::new(socket)).and_then(Warden::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            shim::say(&format!("the warden of a command failed: {error}"));
            end_descendants(|_, _| {});
            ExitCode::from(EXIT_SUPERVISOR)
        }
    }
}

struct Running {
    group: Pid,
    handle: OwnedFd,
    /// `None` once it was asked to stop.
    stop_micros: Option<u64>,
    /// Whether it was asked by this process, at that moment.
    at_deadline: bool,
    kill_micros: u64,
    will: Option<crate::will::Will>,
    cage: Option<Cage>,
}

/// The command before the stop, while it runs.
struct Preparing {
    group: Pid,
    handle: OwnedFd,
    /// The time that it may take, the moment at which that is over, and whether it is.
    within: Duration,
    until_micros: u64,
    is_over: bool,
}

struct Warden {
    lines: Lines,
    timer: OwnedFd,
    running: Option<Running>,
    preparing: Option<Preparing>,
}

impl Warden {
    fn new(socket: &str) -> std::io::Result<Warden> {
        // Signals of the sidecar's terminal are the sidecar's; orphans of COMMAND come here to be ended and reaped.
        setsid()?;
        adopt_orphans()?;
        let lines = Lines::new(UnixStream::connect(socket)?)?;
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Warden { lines, timer, running: None, preparing: None })
    }

    fn run(mut self) -> std::io::Result<()> {
        loop {
            let has_ended = self.wait()?;
            // What runs before the stop may outlast COMMAND, which it has told to end perhaps.
            match has_ended {
                true if self.preparing.is_some() => self.on_prepared(),
                true => return self.on_ended(),
                false => {}
            }
            // What the sidecar has said until this moment is read before anything is done by it: a renewal that was told in time stops nobody,
            // wherever this process stood still.
            let now = boot_micros();
            if !self.read_lines()? {
                return self.on_orphaned();
            }
            self.look_at_clock(now);
        }
    }

    /// Waits until there is a line to read, what is awaited has ended (COMMAND, or what runs before its stop), or a moment has come; says
    /// whether it was the end.
    fn wait(&mut self) -> std::io::Result<bool> {
        let mut asked = vec![
            PollFd::from_borrowed_fd(self.lines.socket().as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.timer.as_fd(), PollFlags::IN),
        ];
        let preparing = self.preparing.as_ref().map(|preparing| &preparing.handle);
        if let Some(handle) = preparing.or(self.running.as_ref().map(|running| &running.handle)) {
            asked.push(PollFd::from_borrowed_fd(handle.as_fd(), PollFlags::IN));
        }
        match poll(&mut asked, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(asked.get(2).is_some_and(|one| !one.revents().is_empty()))
    }

    /// False when the sidecar is gone.
    fn read_lines(&mut self) -> std::io::Result<bool> {
        let (said, is_open) = self.lines.read()?;
        for say in said {
            self.on_said(say)?;
        }
        Ok(is_open)
    }

    fn on_said(&mut self, say: Say) -> std::io::Result<()> {
        match say {
            Say::Start(start) => return self.start(start),
            Say::Times(times) => {
                if let Some(running) = &mut self.running {
                    running.stop_micros = running.stop_micros.map(|_| times.stop_micros);
                    // A command that was asked to stop gets no more time.
                    if running.stop_micros.is_some() {
                        running.kill_micros = times.kill_micros;
                    }
                }
                self.tell(&Tell::Noted(times));
            }
            Say::Before(before) => return self.prepare(*before),
            Say::Stop { grace_micros } => {
                if let Some(running) = &mut self.running {
                    running.stop_micros = None;
                    running.kill_micros = running.kill_micros.min(boot_micros() + grace_micros);
                    signal(running.group, Signal::TERM);
                }
            }
            Say::Signal(number) => {
                if let (Some(running), Some(number)) = (&self.running, Signal::from_named_raw(number)) {
                    signal(running.group, number);
                }
            }
        }
        self.set_timer();
        Ok(())
    }

    fn start(&mut self, start: Box<Start>) -> std::io::Result<()> {
        let Start { command, environment, times, will, cage } = *start;
        let child = match shim_in(cage.as_ref()).args(command).envs(environment).spawn() {
            Ok(child) => child,
            Err(error) => {
                self.tell(&Tell::Failed { why: error.to_string() });
                return Ok(());
            }
        };
        let group = Pid::from_child(&child);
        let handle = pidfd_open(group, PidfdFlags::empty())?;
        let Times { stop_micros, kill_micros } = times;
        self.running = Some(Running {
            group,
            handle,
            stop_micros: Some(stop_micros),
            at_deadline: false,
            kill_micros,
            will,
            cage,
        });
        self.tell(&Tell::Started { group: group.as_raw_nonzero().get() });
        self.set_timer();
        Ok(())
    }

    fn prepare(&mut self, before: Before) -> std::io::Result<()> {
        let Before { command, environment, within_micros } = before;
        let cage = self.running.as_ref().and_then(|running| running.cage.as_ref());
        let mut shell = shim_in(cage);
        let spawned = shell.args(["/bin/sh", "-c", &command]).envs(environment).stdin(Stdio::null()).spawn();
        let child: Child = match spawned {
            Ok(child) => child,
            Err(error) => {
                self.tell(&Tell::Prepared { instead: Some(format!("cannot be started: {error}")) });
                return Ok(());
            }
        };
        let group = Pid::from_child(&child);
        let handle = pidfd_open(group, PidfdFlags::empty())?;
        let (within, until_micros) =
            (Duration::from_micros(within_micros), boot_micros().saturating_add(within_micros));
        self.preparing = Some(Preparing { group, handle, within, until_micros, is_over: false });
        self.set_timer();
        Ok(())
    }

    /// What ran before the stop has ended, and its group ends with it; what else it has left behind ends as what COMMAND has.
    fn on_prepared(&mut self) {
        let Some(Preparing { group, within, is_over, .. }) = self.preparing.take() else { return };
        signal(group, Signal::KILL);
        let ended = waitpid(Some(group), WaitOptions::NOHANG).ok().flatten();
        let status = ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw()));
        let instead = match status {
            Some(status) if status.success() => None,
            _ if is_over => Some(format!("took longer than {within:?}")),
            Some(status) => Some(format!("ended with {status}")),
            None => Some("cannot be waited for".to_owned()),
        };
        self.tell(&Tell::Prepared { instead });
    }

    /// Does what is due at this moment, however late.
    fn look_at_clock(&mut self, now: u64) {
        if let Some(running) = &mut self.running {
            if running.stop_micros.is_some_and(|stop| stop <= now) {
                (running.stop_micros, running.at_deadline) = (None, true);
                signal(running.group, Signal::TERM);
            }
            if running.kill_micros <= now {
                signal(running.group, Signal::KILL);
                running.cage.iter().for_each(Cage::kill);
                // A process that left the group is found through this process, its reaper. COMMAND's own end comes as any other.
                running.kill_micros = now + 1_000;
                // Nothing runs before the stop any more.
                self.preparing.iter_mut().for_each(|preparing| preparing.until_micros = now);
            }
        }
        if let Some(preparing) = self.preparing.as_mut().filter(|preparing| preparing.until_micros <= now) {
            signal(preparing.group, Signal::KILL);
            (preparing.until_micros, preparing.is_over) = (now + 1_000, true);
        }
        self.set_timer();
    }

    fn set_timer(&self) {
        // A moment that passed long ago is due, too: 0 sets no timer.
        let next = |running: &Running| running.stop_micros.unwrap_or(u64::MAX).min(running.kill_micros).max(1);
        let prepared = self.preparing.as_ref().map(|preparing| preparing.until_micros.max(1));
        let next = self.running.as_ref().map(next).into_iter().chain(prepared).min().unwrap_or(0);
        let _ = fire_once(&self.timer, next);
    }

    /// COMMAND has ended: so does all that it started, before anybody hears of it.
    fn on_ended(mut self) -> std::io::Result<()> {
        let at_deadline = self.running.as_ref().is_some_and(|running| running.at_deadline);
        let code = self.end_all();
        self.tell(&Tell::Ended { code, at_deadline });
        Ok(())
    }

    fn end_all(&mut self) -> u8 {
        let group = self.running.as_ref().map(|running| running.group);
        let mut code = 0;
        let mut note = |pid: Pid, ended: u8| {
            if Some(pid) == group {
                code = ended;
            }
        };
        // COMMAND's own end, before anybody else is killed.
        reap(&mut note);
        end_descendants(&mut note);
        if let Some(cage) = self.running.as_ref().and_then(|running| running.cage.as_ref()) {
            cage.end();
            // Processes that died in it are reaped too.
            end_descendants(&mut note);
        }
        code
    }

    /// The sidecar is gone: nothing renews the lease, and nobody else will release it.
    fn on_orphaned(mut self) -> std::io::Result<()> {
        if let Some(running) = &self.running {
            signal(running.group, Signal::KILL);
        }
        self.end_all();
        let Some(Running { will, cage, .. }) = self.running else { return Ok(()) };
        // The sidecar, which made it, cannot take it away any more.
        cage.iter().for_each(Cage::remove);
        let Some(will) = will else { return Ok(()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let _ = tokio::time::timeout(GIVEN_UP_AFTER, will.carry_out("the sidecar was killed")).await;
        });
        Ok(())
    }

    fn tell(&mut self, tell: &Tell) {
        let mut line = serde_json::to_string(tell).expect("plain values are JSON");
        line.push('\n');
        // A sidecar that does not read acts by its own clock.
        let _ = self.lines.socket().write_all(line.as_bytes());
    }
}

/// The shim of a command that runs in a group of its own, in this cage if there is one, and dies with this process.
fn shim_in(cage: Option<&Cage>) -> Command {
    let me = rustix::process::getpid().as_raw_nonzero().to_string();
    let mut shim = super::this_program();
    shim.args([SHIM, &me])
        .arg(cage.map_or("-".as_ref(), |cage| cage.directory().as_os_str()))
        // Of a sidecar around this one, which serves another election.
        .env_remove(SOCKET)
        .process_group(0);
    shim
}

fn signal(group: Pid, signal: Signal) {
    // Nobody of it may be left.
    let _ = kill_process_group(group, signal);
}
