//! Low numbers in the process's table of descriptors, kept for links to peers: [`LowNumbers`].
//!
//! When a process dies, the kernel closes its descriptors one after the other, by their numbers. A peer hears of the death
//! when its own link is closed: behind a thousand clients that takes 20 ms and more, and all the while nobody elects. A new
//! descriptor gets the lowest free number, so a link to a peer that came back would stand behind every client that came
//! before. Some low numbers are therefore held, by descriptors that lead nowhere, and each new link takes one of them.
//!
//! Read next: [`crate::link`].

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::{DupFlags, dup3};
use rustix::process::{Resource, getrlimit};

/// Numbers that are held: for the links of a large cluster, each of which may be broken and made a few times.
const HELD_MAX: u64 = 12;
/// And no larger part than this of the descriptors that the process may have.
const PART: u64 = 32;

/// Low numbers that no link has yet.
pub(crate) struct LowNumbers {
    held: BTreeMap<i32, OwnedFd>,
}

impl LowNumbers {
    /// Holds the lowest numbers that are free now. Where none can be had, links stand where they come to stand.
    pub(crate) fn held() -> LowNumbers {
        let mut numbers = LowNumbers { held: BTreeMap::new() };
        numbers.refill();
        numbers
    }

    /// Holds as many as at first again, and lower ones in place of higher ones where such are free by now.
    pub(crate) fn refill(&mut self) {
        let held_max = getrlimit(Resource::Nofile).current.map_or(HELD_MAX, |limit| HELD_MAX.min(limit / PART));
        while let Ok(nowhere) = File::open("/dev/null") {
            let nowhere = OwnedFd::from(nowhere);
            let highest = self.held.last_key_value().map_or(i32::MAX, |(number, _)| *number);
            let is_full = self.held.len() as u64 >= held_max;
            if is_full && nowhere.as_raw_fd() > highest {
                return;
            }
            if is_full {
                self.held.pop_last();
            }
            self.held.insert(nowhere.as_raw_fd(), nowhere);
        }
    }

    /// This connection under the lowest number that is held, if that is lower than its own.
    pub(crate) fn lower(&mut self, socket: std::net::TcpStream) -> std::net::TcpStream {
        let Some((number, mut low)) = self.held.pop_first() else { return socket };
        if number < socket.as_raw_fd() && dup3(&socket, &mut low, DupFlags::CLOEXEC).is_ok() {
            return low.into();
        }
        self.held.insert(number, low);
        socket
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// Two ends of a connection.
    fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let dialled = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        (dialled, listener.accept().expect("one calls").0)
    }

    #[test]
    fn a_link_that_comes_after_many_clients_stands_before_them() {
        // Goal: the kernel closes links first. Method: clients come after the numbers are held, and links, again and again, after them;
        // each link is heard as before, under its new number.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut numbers = LowNumbers::held();
        assert!(numbers.held.len() > 1, "some are held");
        let clients: Vec<_> = (0..100).map(|_| connection(&listener)).collect();
        let lowest_client = clients.iter().map(|(_, accepted)| accepted.as_raw_fd()).min().expect("there are some");
        for round in 0..100 {
            let (mut peer, link) = connection(&listener);
            let (before, mut link) = (link.as_raw_fd(), numbers.lower(link));
            assert!(link.as_raw_fd() < lowest_client, "round {round}: from {before} to {}", link.as_raw_fd());
            peer.write_all(b"ask").expect("it is open");
            let mut heard = [0; 3];
            link.read_exact(&mut heard).expect("it is open");
            drop(link);
            assert_eq!(&heard, b"ask");
            assert_eq!(peer.read(&mut heard).expect("it has ended"), 0);
            numbers.refill();
        }
    }
}
