//! A server that runs beside a test: [`Process`].

use crate::spawn;
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A child process with a log. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command; what it says goes to the end of the log.
    ///
    /// # Errors
    /// The program or the log cannot be opened; names it.
    pub fn start(command: &mut Command, log: &Path) -> Result<Process> {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = spawn(command).with_context(|| format!("cannot run {}", command.get_program().display()))?;
        Ok(Process { child, log: log.to_owned() })
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// The process has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).context("a process has a number")?;
        kill_process(pid, signal).with_context(|| format!("no signal reaches it; its log: {}", self.log.display()))
    }

    /// File of its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// `kill -9`; the process is gone when this returns.
    pub fn kill(&mut self) {
        // One that has ended already is as dead as it gets.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Memory that a line of `/proc/PID/status` tells of a process (`VmRSS` now, `VmHWM` at most), MiB; `None` where it has ended.
pub fn memory_mib(pid: u32, line: &str) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let told = status.lines().find_map(|told| told.strip_prefix(line)?.strip_prefix(':'))?;
    let kib: u64 = told.split_whitespace().next()?.parse().ok()?;
    Some(kib as f64 / 1_024.0)
}
