//! The settings of a world: [`Settings`].

use crate::network::Quality;
use hustings_core::replica::Policy;
use hustings_core::{Limits, Priority, Timing};
use hustings_properties::Rules;
use std::time::Duration;

/// Durations of a disk's syncs, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DiskPace {
    /// Duration of the fastest sync.
    pub sync_min: u64,
    /// Duration of the slowest sync.
    pub sync_max: u64,
}

impl Default for DiskPace {
    fn default() -> DiskPace {
        DiskPace { sync_min: 80, sync_max: 250 }
    }
}

/// The load that clients put on a world.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LoadSettings {
    /// Clients; each does one operation at a time. 0 is a world without load.
    pub clients: u64,
    /// Keys that they share.
    pub keys: u64,
    /// The mean pause between two operations of one client, in microseconds.
    pub pause: u64,
    /// Microseconds after which a client gives up and does not know how its operation ended.
    pub patience: u64,
    /// Streams of all changes, each at a member of its own choice.
    pub watchers: u64,
    /// Rivals for one lock that lives on a lease.
    pub rivals: u64,
    /// Candidates for one election. They ask several times a second, so they stand only where messages and leaders hold as much
    /// as they usually do; elsewhere they would crowd clients out.
    pub candidates: u64,
    /// Bytes of a value beyond the number that it is.
    pub value_bytes: u64,
    /// A client stays with the member beside which it stands, while that one runs; else it moves now and then.
    pub stays: bool,
}

impl Default for LoadSettings {
    /// Ten operations a second by five clients.
    fn default() -> LoadSettings {
        LoadSettings {
            clients: 5,
            keys: 4,
            pause: 500_000,
            patience: 5_000_000,
            watchers: 1,
            rivals: 0,
            candidates: 0,
            value_bytes: 0,
            stays: false,
        }
    }
}

/// The settings of a world.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Settings {
    /// Voters at the beginning, n1 to nN.
    pub nodes: u64,
    /// Seed that all chances come from.
    pub seed: u64,
    /// Heartbeat and election ranges.
    pub timing: Timing,
    /// Ranges of each member, by its position, where members measured a network of their own; empty: all have `timing`.
    pub timings: Vec<Timing>,
    /// Bounds on messages and memory.
    pub limits: Limits,
    /// Policy by which snapshots are cut.
    pub policy: Policy,
    /// Quality of an ordinary link.
    pub quality: Quality,
    /// Pace of an ordinary disk.
    pub disk: DiskPace,
    /// Load of the clients.
    pub load: LoadSettings,
    /// Priorities of members that have one, by position from 0.
    pub priorities: Vec<Priority>,
    /// Founding members that vote and hold no state, by position from 0; fewer than half.
    pub witnesses: Vec<usize>,
    /// The regions in which members stand, by position from 0 and then from the first again; none: all in one place.
    pub regions: Vec<usize>,
    /// Properties that are this protocol's own.
    pub rules: Rules,
    /// Whether the first in line after a leader draws its timers as a server's host does ([`hustings_core::Succession`]).
    pub has_succession: bool,
    /// Delay in microseconds after which a supervisor restarts a process that ended by itself.
    pub restart_after: u64,
}

/// Room for a few chunks, so that disks set the pace of fetches now and then.
const FETCH_BYTES_MAX: u64 = 32 << 10;

impl Settings {
    /// An ordinary world of `nodes` members.
    pub fn new(nodes: u64, seed: u64) -> Settings {
        Settings {
            nodes,
            seed,
            timing: Timing::new(Duration::from_millis(100), Duration::from_millis(1_000)),
            timings: Vec::new(),
            limits: Limits { trailing_entries: 50, ..Limits::default() },
            policy: Policy {
                entries_max: 400,
                bytes_max: 1 << 20,
                fetch_bytes_max: FETCH_BYTES_MAX,
                ..Policy::default()
            },
            quality: Quality::default(),
            disk: DiskPace::default(),
            load: LoadSettings::default(),
            priorities: Vec::new(),
            witnesses: Vec::new(),
            regions: Vec::new(),
            rules: Rules::default(),
            has_succession: false,
            restart_after: 500_000,
        }
    }

    /// Ranges of the member at this position.
    pub(crate) fn timing_of(&self, at: usize) -> Timing {
        self.timings.get(at).copied().unwrap_or(self.timing)
    }

    /// Number of candidates that stand.
    pub(crate) fn candidates(&self) -> usize {
        let usual = Limits::default();
        let has_room = self.limits.message_bytes_max == usual.message_bytes_max
            && self.limits.uncommitted_bytes_max == usual.uncommitted_bytes_max;
        if has_room { self.load.candidates as usize } else { 0 }
    }

    /// Microseconds that a message from one member to another takes because of where they stand.
    pub(crate) fn distance(&self, one: usize, other: usize) -> u64 {
        let region = |at: usize| self.regions.get(at % self.regions.len().max(1)).copied();
        match (region(one), region(other)) {
            (Some(one), Some(other)) => crate::regions::round_trip(one, other) / 2,
            _ => 0,
        }
    }

    /// The longest election timeout, in microseconds.
    pub fn election_max(&self) -> u64 {
        let own = self.timings.iter().map(|timing| timing.election_max);
        micros(own.fold(self.timing.election_max, Duration::max))
    }
}

/// Microseconds, as a world counts time.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
