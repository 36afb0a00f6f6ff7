//! A PID namespace for a command: its first process is the warden, and when that ends the kernel ends everything in it.
//! [`run_cell`].
//!
//! ```text
//!   sidecar ─► cell ─► │ warden, 1 ─► shim ─exec─► COMMAND, and all that comes of it │
//!      └── pidfd ──────┼───► SIGKILL: all of them, and the pidfd says when the last one is gone
//! ```
//!
//! A process in it cannot leave it: neither by a session of its own, nor by losing its parents. It sees its own process numbers,
//! and a `/proc` of its own. Needs the right to make namespaces: root (with CAP_SYS_ADMIN), or a kernel that lets users
//! make namespaces of users; then the namespace knows this user alone, and programs that change theirs (`sudo`) do not work.

use super::{EXIT_SUPERVISOR, WARDEN};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::UnshareFlags;
use std::io::{Error, Result, Write};
use std::process::{ExitCode, Stdio};

/// The hidden verb: `hustings __cell SOCKET`.
pub const CELL: &str = "__cell";

/// Arguments that tell the cell, and its first process, that nothing is to be run.
const TRY: &str = "--try";
const INSIDE: &str = "--inside";

/// Makes a namespace whose first process is the warden of this socket; ends with it.
pub fn run_cell(arguments: &[String]) -> ExitCode {
    super::keep_name();
    let [what] = arguments else { return ExitCode::from(EXIT_SUPERVISOR) };
    let made = match what.as_str() {
        INSIDE => settle().map(|()| ExitCode::SUCCESS),
        TRY => enter().and_then(|()| run(&[CELL, INSIDE])),
        socket => enter().and_then(|()| run(&[WARDEN, socket, CELL])),
    };
    made.unwrap_or_else(|error| {
        // The caller that tries a cell reads it; the exit code says the same.
        let _ = writeln!(std::io::stderr(), "{error}");
        ExitCode::from(EXIT_SUPERVISOR)
    })
}

/// Whether a cell can be made here.
///
/// # Errors
/// Why not, in words.
pub fn try_cell() -> Result<()> {
    let tried = super::this_program().args([CELL, TRY]).stdin(Stdio::null()).output()?;
    match tried.status.success() {
        true => Ok(()),
        false => Err(Error::other(String::from_utf8_lossy(&tried.stderr).trim().to_owned())),
    }
}

/// The first process of the namespace takes it over: `/proc` shows what is in it.
pub(super) fn settle() -> Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(|error| why("/proc cannot be mounted in it", error))
}

/// Puts all that this process starts from now on into a namespace of its own.
fn enter() -> Result<()> {
    let wanted = UnshareFlags::NEWPID | UnshareFlags::NEWNS;
    match unshare(wanted) {
        Err(Errno::PERM) => enter_as_user(wanted)?,
        other => other.map_err(|error| why("no PID namespace can be made", error))?,
    }
    // Mounts that are made here are not seen outside; those that are made there, are.
    let quiet = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", quiet).map_err(|error| why("its mounts cannot be kept apart", error))
}

/// Enters with the rights of a user, in a namespace of users that knows this one alone.
fn enter_as_user(wanted: UnshareFlags) -> Result<()> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let made = unshare(wanted | UnshareFlags::NEWUSER);
    made.map_err(|error| why("neither a PID namespace nor one of users can be made", error))?;
    let write = |path: &str, text: String| {
        std::fs::write(path, text).map_err(|error| Error::new(error.kind(), format!("{path}: {error}")))
    };
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    write("/proc/self/gid_map", format!("{group} {group} 1"))
}

#[expect(
    deprecated,
    reason = "it is deprecated for sharing no files, which is not asked for here; its successor is unsafe"
)]
fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    rustix::thread::unshare(flags)
}

/// Runs this program again, as the first process of the namespace.
fn run(arguments: &[&str]) -> Result<ExitCode> {
    let ended = super::this_program().args(arguments).status()?;
    Ok(ExitCode::from(ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(EXIT_SUPERVISOR)))
}

fn why(what: &str, error: Errno) -> Error {
    Error::new(Error::from(error).kind(), format!("{what}: {error}"))
}
