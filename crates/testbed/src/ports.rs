//! Ports of this machine for processes and listeners of tests.

use anyhow::{Result, bail};
use std::net::TcpListener;
use std::ops::Range;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ports that are given out: below those that the kernel gives to connections, which would take one away before the node that
/// it was chosen for can listen there.
const PORTS: Range<u32> = 10_240..32_000;

/// Held while a port is tried and while a process begins. Between `fork` and `exec` a child holds every socket of its parent: a
/// port that was tried in that moment would stay taken for as long as the child needs to begin.
static TRYING_OR_STARTING: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    // The lock guards no value that a panic could leave half written.
    TRYING_OR_STARTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A port that nobody listens on and that no connection will be given, different from those of earlier calls; other processes
/// begin their search elsewhere.
///
/// # Errors
/// No port is free.
pub fn free_port() -> Result<u16> {
    free_ports(1)
}

/// The first of `count` such ports in a row.
///
/// # Errors
/// No such row is free.
pub fn free_ports(count: u16) -> Result<u16> {
    let _alone = alone();
    let (first, listeners) = free_listeners(count)?;
    // Closed before another process may begin.
    drop(listeners);
    Ok(first)
}

/// A listener on such a port of 127.0.0.1, for use in this process: nobody can come between the trial and the use.
///
/// # Errors
/// No port is free.
pub fn free_listener() -> Result<TcpListener> {
    let _alone = alone();
    let (_, mut listeners) = free_listeners(1)?;
    Ok(listeners.remove(0))
}

/// Free listeners in a row, for callers that are [`alone`].
fn free_listeners(count: u16) -> Result<(u16, Vec<TcpListener>)> {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    for _ in PORTS {
        let number = std::process::id().wrapping_mul(64).wrapping_add(GIVEN.fetch_add(count.into(), Ordering::Relaxed));
        let first = u16::try_from(PORTS.start + number % PORTS.len() as u32)?;
        let listeners: std::io::Result<Vec<_>> =
            (first..first + count).map(|port| TcpListener::bind(("127.0.0.1", port))).collect();
        if let Ok(listeners) = listeners {
            return Ok((first, listeners));
        }
    }
    bail!("no {count} ports in a row from {} to {} are free", PORTS.start, PORTS.end)
}

/// Starts a process while no port is tried; returns once the process has its own program, and so none of our sockets.
///
/// # Errors
/// As [`Command::spawn`].
pub fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let _alone = alone();
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::{free_listener, free_port, spawn};
    use std::net::TcpListener;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Ports are asked for while other threads start processes without pause; each must be free when it is given.
    #[test]
    fn a_process_that_begins_takes_no_port_along() {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let mut child = spawn(&mut Command::new("true")).expect("`true` starts");
                    child.wait().expect("`true` ends");
                }
            });
            let given: Result<Vec<TcpListener>, String> = (0..2_000)
                .map(|_| {
                    let port = free_port().map_err(|error| error.to_string())?;
                    TcpListener::bind(("127.0.0.1", port)).map_err(|error| format!("{port}: {error}"))
                })
                .collect();
            is_over.store(true, Ordering::Relaxed);
            given.expect("every port that is given is free");
        });
    }

    #[test]
    fn a_listener_keeps_its_port() {
        let listener = free_listener().expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        assert!(TcpListener::bind(("127.0.0.1", port)).is_err());
        assert_ne!(free_port().expect("another one is free"), port);
    }
}
