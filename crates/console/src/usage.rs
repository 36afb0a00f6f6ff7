//! The use of this machine's processors: [`Usage`], from `/proc`.
//!
//! A figure from a busy machine should say so. The servers that are measured are the processes that listen at their addresses
//! ([`listening_at`]), so their share means something only when driver and servers run on one machine.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{ToSocketAddrs, UdpSocket};
use std::time::Duration;

/// The kernel's unit of processor time in `/proc`; 100 per second on every Linux that this runs on.
const TICK: Duration = Duration::from_millis(10);

/// Processor time, as sums since boot or as differences.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    all: Duration,
    idle: Duration,
    own: Duration,
    /// Time of each server that is measured, by its process id. In a difference: of those that ran from its beginning to its end.
    servers: BTreeMap<u32, Duration>,
}

impl Usage {
    /// The use up to now; `servers` are the processes that are measured.
    pub fn now(servers: &BTreeSet<u32>) -> Usage {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let ticks: Vec<u32> = stat
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(1)
            // Guest time is contained in user time.
            .take(8)
            .filter_map(|tick| tick.parse().ok())
            .collect();
        let idle = ticks.get(3).copied().unwrap_or(0) + ticks.get(4).copied().unwrap_or(0);
        let mut usage = Usage { all: TICK * ticks.iter().sum::<u32>(), idle: TICK * idle, ..Usage::default() };
        usage.own = process(std::process::id()).unwrap_or_default();
        usage.servers = servers.iter().filter_map(|pid| Some((*pid, process(*pid)?))).collect();
        usage
    }

    /// The use after `before`, as a difference.
    #[must_use]
    pub fn since(self, before: &Usage) -> Usage {
        Usage {
            all: self.all.saturating_sub(before.all),
            idle: self.idle.saturating_sub(before.idle),
            own: self.own.saturating_sub(before.own),
            servers: self
                .servers
                .into_iter()
                .filter_map(|(pid, used)| Some((pid, used.saturating_sub(*before.servers.get(&pid)?))))
                .collect(),
        }
    }

    /// Whether a server was measured: one that runs on this machine, in a difference from its beginning to its end.
    pub fn has_servers(&self) -> bool {
        !self.servers.is_empty()
    }

    /// Processor time of all measured servers on this machine.
    pub fn servers(&self) -> Duration {
        self.servers.values().sum()
    }

    /// Share of the processors' time that nobody used, from 0 to 1.
    pub fn idle_share(&self) -> f64 {
        self.idle.as_secs_f64() / self.all.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Share that this process used, from 0 to 1.
    pub fn own_share(&self) -> f64 {
        self.own.as_secs_f64() / self.all.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Share that neither this process nor a server used, from 0 to 1, without the idle part.
    pub fn others_share(&self) -> f64 {
        let busy = self.all.saturating_sub(self.idle);
        let others = busy.saturating_sub(self.own).saturating_sub(self.servers());
        others.as_secs_f64() / self.all.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// The time that a process has used.
fn process(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may contain anything.
    let (_, tail) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let ticks: u32 = fields.get(11)?.parse::<u32>().ok()? + fields.get(12)?.parse::<u32>().ok()?;
    Some(TICK * ticks)
}

/// The processes of this machine that listen at these addresses, `host:port` or with a scheme. Empty when they are elsewhere, or
/// belong to a user whose processes this one may not look into.
pub fn listening_at<'a>(addresses: impl IntoIterator<Item = &'a str>) -> BTreeSet<u32> {
    let ports: BTreeSet<u16> = addresses.into_iter().filter_map(port_on_this_machine).collect();
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let sockets: BTreeSet<String> = tables
        .iter()
        .flat_map(|table| table.lines().filter_map(listener))
        .filter(|(port, _)| ports.contains(port))
        .map(|(_, inode)| format!("socket:[{inode}]"))
        .collect();
    let mut found = BTreeSet::new();
    if sockets.is_empty() {
        return found;
    }
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let files = std::fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        let mut names = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        if pid != std::process::id() && names.any(|name| name.to_str().is_some_and(|name| sockets.contains(name))) {
            found.insert(pid);
        }
    }
    found
}

/// The port of an address, if its host is this machine: only an address of one's own can be bound.
fn port_on_this_machine(address: &str) -> Option<u16> {
    let address = address.split_once("://").map_or(address, |(_, rest)| rest);
    let found = address.to_socket_addrs().ok()?.next()?;
    UdpSocket::bind((found.ip(), 0)).ok().map(|_| found.port())
}

/// Port and inode of a line in the kernel's table of sockets, if somebody listens there.
fn listener(line: &str) -> Option<(u16, &str)> {
    const LISTENS: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, port) = fields.get(1)?.rsplit_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    (*fields.get(3)? == LISTENS).then_some((port, *fields.get(9)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_meanwhile_takes_nothing_from_the_others() {
        let at = |all: u64, servers: &[(u32, u64)]| Usage {
            all: Duration::from_secs(all),
            servers: servers.iter().map(|(pid, used)| (*pid, Duration::from_secs(*used))).collect(),
            ..Usage::default()
        };
        // One uses three seconds; one that had used a hundred ends; one begins.
        let used = at(20, &[(1, 13), (3, 2)]).since(&at(10, &[(1, 10), (2, 100)]));
        assert_eq!(used.servers(), Duration::from_secs(3));
        assert!((used.others_share() - 0.7).abs() < 1e-9, "what is left is others': {}", used.others_share());
    }

    #[test]
    fn a_listener_s_process_is_found_by_its_line_and_its_address() {
        let line = "   1: 0100007F:0947 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000 100 0 0 10 0";
        assert_eq!(listener(line), Some((2375, "4711")));
        assert_eq!(listener(&line.replace(" 0A ", " 01 ")), None, "a connection is no listener");
        assert_eq!(port_on_this_machine("http://127.0.0.1:2379"), Some(2379));
        assert_eq!(port_on_this_machine("192.0.2.1:2379"), None, "an address for documents is nobody's");
    }
}
