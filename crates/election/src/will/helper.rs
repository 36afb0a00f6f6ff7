//! The process that outlives another one and carries out its wills: [`helper`].
//!
//! ```text
//!   program ── add, drop: a line each ──► helper (the same program, its own session)
//!      │                                    │ holds the program's pidfd
//!      └ ends, however it does ───────────► └ reads what was said last, releases each tenure, ends
//! ```
//!
//! A pidfd tells that a process has ended: all threads of it, and not before. A connection that closes would not do: programs
//! close what they like, and live. So nothing is released while the program lives, be it stopped, frozen, or stuck in the
//! kernel; then the lease ends by its time.

use super::Will;
use crate::lines::Lines;
use crate::stores::bequeathed::GIVEN_UP_AFTER;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::setsid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::JoinSet;

/// The process whose helper this one is.
pub(super) const VARIABLE: &str = "HUSTINGS_WILLS_OF";

/// Most wills that are carried out at a time.
const AT_A_TIME: usize = 64;

/// Whether this program becomes its own helper when it is started so.
static IS_READY: AtomicBool = AtomicBool::new(false);

/// A message of the program to its helper, a line of JSON each.
#[derive(Serialize, Deserialize)]
pub(super) enum Say {
    /// From now on there is this will.
    Add { number: u64, will: Box<Will> },
    /// It is not needed any more.
    Drop { number: u64 },
}

/// Makes [`crate::Election::with_will`] possible: to be called first in `main`, before anything else happens.
///
/// A program that has such elections starts itself once more, as the helper that outlives it. In that process this call does
/// not return; in every other it does nothing.
pub fn helper() {
    match std::env::var(VARIABLE) {
        Err(_) => IS_READY.store(true, Ordering::Release),
        Ok(_) => std::process::exit(match run() {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("hustings: the helper that carries out last wills failed: {error}");
                1
            }
        }),
    }
}

/// Whether [`helper`] was called.
pub(super) fn is_ready() -> bool {
    IS_READY.load(Ordering::Acquire)
}

/// Whether this process was started as a helper, and does not know it.
pub(super) fn is_helper() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

fn run() -> std::io::Result<()> {
    // Signals of a terminal are for the program; the leader of a group already gets none.
    let _ = setsid();
    // Handed over by the program itself: a number could be another process' by now, and this one another's child.
    let pidfd = std::io::stdout().as_fd().try_clone_to_owned()?;
    let kind = std::fs::read_link("/proc/self/fd/1")?;
    if !kind.to_string_lossy().contains("pidfd") {
        return Err(std::io::Error::other("it was not started by the library: nothing is released"));
    }
    let mut wills = Wills::new(UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?))?;
    if !wills.wait_for(&pidfd)? {
        return Ok(());
    }
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(wills.carry_out());
    Ok(())
}

/// The wills that the program has sent so far.
struct Wills {
    lines: Lines,
    wills: BTreeMap<u64, Box<Will>>,
}

impl Wills {
    fn new(socket: UnixStream) -> std::io::Result<Wills> {
        Ok(Wills { lines: Lines::new(socket)?, wills: BTreeMap::new() })
    }

    /// Waits until the program has ended. False if it lives, and will never need its helper again.
    fn wait_for(&mut self, pidfd: &OwnedFd) -> std::io::Result<bool> {
        let mut is_open = true;
        loop {
            let mut asked = vec![PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
            if is_open {
                asked.push(PollFd::from_borrowed_fd(self.lines.socket().as_fd(), PollFlags::IN));
            }
            match poll(&mut asked, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let has_ended = asked[0].revents().contains(PollFlags::IN);
            // Its last words lie in the socket, also after its end.
            is_open = is_open && self.read()?;
            if has_ended {
                return Ok(true);
            }
            if !is_open && self.wills.is_empty() {
                return Ok(false);
            }
        }
    }

    /// Takes in what was said; false when nothing more will be.
    fn read(&mut self) -> std::io::Result<bool> {
        let (said, is_open) = self.lines.read()?;
        for say in said {
            match say {
                Say::Add { number, will } => drop(self.wills.insert(number, will)),
                Say::Drop { number } => drop(self.wills.remove(&number)),
            }
        }
        Ok(is_open)
    }

    async fn carry_out(self) {
        let mut tasks = JoinSet::new();
        for will in self.wills.into_values() {
            if tasks.len() == AT_A_TIME {
                tasks.join_next().await;
            }
            tasks.spawn(async move {
                // Whether it worked is not told: the lease ends, too.
                let _ = tokio::time::timeout(GIVEN_UP_AFTER, will.carry_out("its process is gone")).await;
            });
        }
        while tasks.join_next().await.is_some() {}
    }
}
