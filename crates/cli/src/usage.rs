//! Who used this machine's processors: [`Usage`], from `/proc`.
//!
//! A figure from a busy machine should say so. Servers are told by the name of their process (`hustings`, `etcd`, and `java` for ZooKeeper), so the
//! shares mean something only when driver and servers run on one machine.

use std::time::Duration;

/// The kernel's unit of processor time in `/proc`; 100 per second on every Linux that this runs on.
const TICK: Duration = Duration::from_millis(10);

/// Processor time, as sums since boot or as differences.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    all: Duration,
    idle: Duration,
    own: Duration,
    /// Of all servers on this machine.
    pub(crate) servers: Duration,
}

impl Usage {
    pub(crate) fn now() -> Usage {
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
        let own_pid = std::process::id();
        let mut usage = Usage { all: TICK * ticks.iter().sum::<u32>(), idle: TICK * idle, ..Usage::default() };
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let Some((name, used)) = process(pid) else { continue };
            if pid == own_pid {
                usage.own += used;
            } else if ["hustings", "etcd", "java"].contains(&name.as_str()) {
                usage.servers += used;
            }
        }
        usage
    }

    pub(crate) fn since(self, before: &Usage) -> Usage {
        Usage {
            all: self.all.saturating_sub(before.all),
            idle: self.idle.saturating_sub(before.idle),
            own: self.own.saturating_sub(before.own),
            servers: self.servers.saturating_sub(before.servers),
        }
    }

    /// What nobody used.
    pub(crate) fn idle_share(&self) -> f64 {
        self.idle.as_secs_f64() / self.all.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// What this process used.
    pub(crate) fn own_share(&self) -> f64 {
        self.own.as_secs_f64() / self.all.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// What neither this process nor a server used.
    pub(crate) fn others_share(&self) -> f64 {
        let busy = self.all.saturating_sub(self.idle);
        let others = busy.saturating_sub(self.own).saturating_sub(self.servers);
        others.as_secs_f64() / self.all.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// The name of a process and the time it has used.
fn process(pid: u32) -> Option<(String, Duration)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may contain anything.
    let (head, tail) = stat.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_string();
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let ticks: u32 = fields.get(11)?.parse::<u32>().ok()? + fields.get(12)?.parse::<u32>().ok()?;
    Some((name, TICK * ticks))
}
