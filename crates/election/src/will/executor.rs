//! This process' side of its helper: [`Bequest`].

use super::Will;
use super::helper::{Say, VARIABLE, is_helper, is_ready};
use crate::clock::{boot_micros, micros};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Pause between two looks after a helper, which is at most started again as often.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// Sends wills to the helper; `None` before the first.
static SAYING: Mutex<Option<Sender<Say>>> = Mutex::new(None);
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// Checks that a helper can carry out wills of this process.
///
/// # Errors
/// The remedy.
pub(crate) fn check() -> Result<(), String> {
    match is_ready() && !is_helper() {
        true => Ok(()),
        false => {
            Err("a last will needs a helper process: call hustings_election::will::helper() first in main".to_owned())
        }
    }
}

/// A will that the helper has for as long as this value lives, and the process.
#[derive(Debug)]
pub(crate) struct Bequest(u64);

impl Bequest {
    /// Tells the helper of it; starts one if there is none.
    pub(crate) fn of(will: Will) -> Bequest {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        say(Say::Add { number, will: Box::new(will) });
        Bequest(number)
    }
}

impl Drop for Bequest {
    fn drop(&mut self) {
        say(Say::Drop { number: self.0 });
    }
}

fn say(say: Say) {
    let mut saying = SAYING.lock().unwrap_or_else(PoisonError::into_inner);
    if saying.is_none() {
        let (sender, said) = channel();
        let started = std::thread::Builder::new().name("last-wills".to_owned()).spawn(move || keep(&said));
        match started {
            Ok(_) => *saying = Some(sender),
            Err(error) => return tracing::warn!(%error, "no thread for last wills: leases end by their time"),
        }
    }
    // The thread ends with the process.
    let _ = saying.as_ref().map(|saying| saying.send(say));
}

/// Tells the helper what is said, and starts another one when it is gone.
fn keep(said: &Receiver<Say>) {
    let (mut helper, mut wills): (Option<Helper>, BTreeMap<u64, String>) = (None, BTreeMap::new());
    let mut failures = 0_u32;
    // One that could not be started, or died at once, is tried again once in a while, and not for each will.
    let mut start_at_micros = 0;
    loop {
        let line = match said.recv_timeout(LOOK_AFTER) {
            Ok(say) => Some(take_in(&mut wills, &say)),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let is_well =
            helper.as_mut().is_some_and(|helper| helper.lives() && line.is_none_or(|line| helper.tell(&line)));
        if is_well || wills.is_empty() || boot_micros() < start_at_micros {
            continue;
        }
        start_at_micros = boot_micros() + micros(LOOK_AFTER);
        helper = match Helper::start(&wills) {
            Ok(helper) => {
                failures = 0;
                Some(helper)
            }
            Err(error) => {
                failures += 1;
                if failures.is_power_of_two() {
                    tracing::warn!(%error, failures, "no helper for last wills: leases end by their time");
                }
                None
            }
        };
    }
}

/// Notes what was said, and gives it as a line.
fn take_in(wills: &mut BTreeMap<u64, String>, say: &Say) -> String {
    let line = serde_json::to_string(say).expect("plain values are JSON") + "\n";
    match say {
        Say::Add { number, .. } => drop(wills.insert(*number, line.clone())),
        Say::Drop { number } => drop(wills.remove(number)),
    }
    line
}

struct Helper {
    process: Child,
    socket: UnixStream,
}

impl Helper {
    /// Starts this program once more, as a helper with the wills that there are.
    fn start(wills: &BTreeMap<u64, String>) -> std::io::Result<Helper> {
        let (mut socket, theirs) = UnixStream::pair()?;
        // The wills wait for it, as far as there is room: this process may end before it has started.
        let lines: Vec<u8> = wills.values().flat_map(|line| line.bytes()).collect();
        socket.set_nonblocking(true)?;
        let mut sent = 0;
        while let Ok(count @ 1..) = socket.write(&lines[sent..]) {
            sent += count;
        }
        socket.set_nonblocking(false)?;
        let mut arguments = std::env::args_os();
        let name = arguments.next().unwrap_or_else(|| "/proc/self/exe".into());
        // With the same arguments: a program that looks at them first comes to the same place.
        let process = Command::new("/proc/self/exe")
            .arg0(name)
            .args(arguments)
            .env(VARIABLE, std::process::id().to_string())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // A process that waits for the end of this one's output shall not wait for its helper.
            .stdout(Stdio::from(pidfd_open(getpid(), PidfdFlags::empty())?))
            .stderr(Stdio::null())
            .spawn()?;
        socket.write_all(&lines[sent..])?;
        Ok(Helper { process, socket })
    }

    fn lives(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// False when it is gone.
    fn tell(&mut self, line: &str) -> bool {
        self.socket.write_all(line.as_bytes()).is_ok()
    }
}
