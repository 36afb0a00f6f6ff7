//! One command that runs only while its process leads: what the sidecar, its warden and the shim share.
//!
//! ```text
//!   sidecar ── times, at each renewal ─────► warden ──► shim ──exec──► COMMAND
//!      │  ◄── started, receipts, ended ────────┤ a thread, a session and a process of its own
//!      │                                       ├ at U - s - k it asks the group to stop, at U - k it kills all that is left
//!      └ no receipt: kills the group itself    └ sidecar gone: kills at once, reaps, and releases: the last will
//! ```
//!
//! When one of the three is paused or killed, the two others end what runs: a sidecar that is stopped is not needed, a warden that
//! is stopped is replaced by the sidecar at the deadline, and COMMAND dies with the warden, by the parent-death signal that the
//! shim sets before it becomes COMMAND. In a control group ([`Cage`]) all that COMMAND has started is found also when its parents
//! are gone; in a PID namespace ([`run_cell`]) the kernel ends it with the warden. Without either, the sidecar inherits what a killed
//! warden leaves behind ([`adopt_orphans`]), whatever group or session it is in, and ends it.
//!
//! One window stays open: when all of them are frozen together (a virtual machine, a freezer), COMMAND may run on thawing until the
//! timer of one of them does. Only the token closes that window.

mod cage;
mod cell;
mod shim;
mod tree;
mod warden;

pub use cage::Cage;
pub use cell::{CELL, run_cell, try_cell};
pub use shim::{SHIM, run_shim};
pub use tree::{adopt_orphans, children, end_descendants_of, end_group, end_orphans, is_group_gone, reap_orphans};
pub use warden::{WARDEN, run_warden};

use crate::clock::boot_micros;
use crate::will::Will;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The variable in which a command finds the sidecar's socket.
pub const SOCKET: &str = "HUSTINGS_SOCKET";

/// Exit code of the parts when they cannot do their work.
pub const EXIT_SUPERVISOR: u8 = 125;

/// This program once more, with arguments still to be given: the very file that runs, also when an upgrade has put another one in its
/// place, or nothing.
pub fn this_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(std::env::args_os().next().unwrap_or_else(|| "hustings".into()));
    command
}

/// Lets the system show this process by the name that it was called by: what [`this_program`] starts is `exe` otherwise.
pub fn keep_name() {
    let called = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&called).file_name().unwrap_or_default().as_encoded_bytes();
    // The kernel keeps fifteen bytes; without a name the old one stays.
    if let Some(name) = CString::new(&name[..name.len().min(15)]).ok().filter(|name| !name.is_empty()) {
        let _ = rustix::thread::set_name(&name);
    }
}

/// A message of the sidecar to the warden, a line of JSON each.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Say {
    /// Start this command; it is said once.
    Start(Box<Start>),
    /// The belief lasts longer: new moments of boot time.
    Times(Times),
    /// Run this before COMMAND is asked to stop; the answer is [`Tell::Prepared`].
    Before(Box<Before>),
    /// Stop now: ask the group, and kill what is left after so many microseconds, or at the kill moment if that is sooner.
    Stop {
        /// The time that COMMAND gets.
        grace_micros: u64,
    },
    /// Send the group this signal.
    Signal(i32),
}

/// The command to run, and what it needs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Start {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Variables of its environment.
    pub environment: BTreeMap<String, String>,
    /// Moments until which it may run.
    pub times: Times,
    /// Will that releases the election when the sidecar is gone.
    pub will: Option<Will>,
    /// Control group that holds it together beside its process group.
    pub cage: Option<Cage>,
}

/// A shell command that runs before COMMAND is asked to stop. It ends with all that COMMAND has started, if it has not by then.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Before {
    /// The command, for the shell.
    pub command: String,
    /// Variables of its environment.
    pub environment: BTreeMap<String, String>,
    /// The time that it may take.
    pub within_micros: u64,
}

/// Moments of boot time, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Times {
    /// Ask the group to stop.
    pub stop_micros: u64,
    /// Kill what is left.
    pub kill_micros: u64,
}

impl Times {
    /// The moments for a belief that lasts so many microseconds from now.
    pub fn of(remaining_micros: u64, grace_micros: u64, margin_micros: u64) -> Times {
        Times::until(boot_micros() + remaining_micros, grace_micros, margin_micros)
    }

    /// The moments for a belief that lasts until this one.
    pub(crate) fn until(until_micros: u64, grace_micros: u64, margin_micros: u64) -> Times {
        let kill_micros = until_micros.saturating_sub(margin_micros);
        Times { stop_micros: kill_micros.saturating_sub(grace_micros), kill_micros }
    }

    /// Whether the group has been asked to stop by now, or is just about to be.
    pub fn is_stop_due(&self) -> bool {
        self.stop_micros <= boot_micros()
    }

    /// Kills the group after this time, or sooner if that was due.
    pub fn end_within(&mut self, left: std::time::Duration) {
        let left_micros = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
        self.kill_micros = self.kill_micros.min(boot_micros().saturating_add(left_micros));
    }

    /// Time until the group is killed.
    pub fn until_kill(&self) -> std::time::Duration {
        std::time::Duration::from_micros(self.kill_micros.saturating_sub(boot_micros()))
    }
}

/// A message of the warden to the sidecar.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Tell {
    /// COMMAND runs, as the leader of this process group.
    Started {
        /// Id of the process group.
        group: i32,
    },
    /// These times are in force.
    Noted(Times),
    /// The command before the stop has ended.
    Prepared {
        /// What it did instead of ending well, in words; `None` if it did.
        instead: Option<String>,
    },
    /// COMMAND and all that it started have ended and are reaped.
    Ended {
        /// Its exit code, or 128 and the number of the signal that ended it.
        code: u8,
        /// Whether the warden had asked it to stop, because the moment for that had come and nobody had told it of a later one.
        at_deadline: bool,
    },
    /// COMMAND could not be started.
    Failed {
        /// The system's reason, in words.
        why: String,
    },
}
