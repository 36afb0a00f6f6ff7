//! The settings of a run: [`Settings`], with the genuine tool's names and defaults
//! (`docs/protocols/rules/maelstrom.md`, §3.7).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Microseconds in a second.
pub const SECOND: u64 = 1_000_000;

/// The requests that clients make.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Workload {
    /// Registers that are read, written, and compared and set.
    LinKv,
    /// Requests that get the same value back.
    Echo,
    /// Ids that nobody else gets.
    UniqueIds,
    /// Transactions that read lists and append to them.
    TxnListAppend,
    /// Transactions that read and write registers.
    TxnRwRegister,
    /// Messages that everybody gets.
    Broadcast,
    /// A set that only grows.
    GSet,
    /// A counter that goes up and down.
    PnCounter,
}

/// The faults that occur.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Nemesis {
    /// The genuine tool's four partitions.
    Partition,
    /// A link is cut in one direction only.
    OneWay,
    /// `kill -9`, then a restart with the data kept.
    Kill,
    /// Power is cut: what was not synced is gone. In virtual time only.
    Power,
    /// A process stands still for a while (SIGSTOP, then SIGCONT).
    Pause,
    /// A fifth of all messages between nodes is lost.
    Loss,
    /// A fifth of all messages between nodes arrives twice.
    Duplicate,
}

/// The latency of messages between nodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Distribution {
    /// It is always the mean.
    Constant,
    /// It is uniform from nothing to twice the mean.
    Uniform,
    /// It is exponential with this mean.
    Exponential,
}

macro_rules! names {
    ($type:ident, $what:literal, $($variant:ident = $name:literal),+) => {
        impl $type {
            /// All names, for help texts.
            pub const NAMES: &'static [&'static str] = &[$($name),+];
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($type::$variant => $name),+ })
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(name: &str) -> Result<$type, String> {
                match name {
                    $($name => Ok($type::$variant),)+
                    _ => Err(format!("there is no {} `{name}`; choose among {}", $what, $type::NAMES.join(", "))),
                }
            }
        }
    };
}

names!(
    Workload,
    "workload",
    LinKv = "lin-kv",
    Echo = "echo",
    UniqueIds = "unique-ids",
    TxnListAppend = "txn-list-append",
    TxnRwRegister = "txn-rw-register",
    Broadcast = "broadcast",
    GSet = "g-set",
    PnCounter = "pn-counter"
);
names!(
    Nemesis,
    "nemesis",
    Partition = "partition",
    OneWay = "one-way",
    Kill = "kill",
    Power = "power",
    Pause = "pause",
    Loss = "loss",
    Duplicate = "duplicate"
);
names!(Distribution, "latency distribution", Constant = "constant", Uniform = "uniform", Exponential = "exponential");

/// The partitions that the partition nemesis chooses among.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Targets {
    /// All four of the genuine tool.
    All,
    /// Only the ring of majorities: with three nodes, no pair can complete a round trip.
    Rings,
}

/// The settings of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The requests that clients make.
    pub workload: Workload,
    /// Number of nodes, n0 to n(N-1).
    pub nodes: usize,
    /// Threads that do one operation at a time.
    pub concurrency: usize,
    /// Operations per second over all threads; 0 for none.
    pub rate: f64,
    /// Duration of the load, in microseconds.
    pub time_limit: u64,
    /// The mean latency between nodes, in microseconds.
    pub latency: u64,
    /// The distribution of the latency.
    pub distribution: Distribution,
    /// The faults that occur.
    pub nemeses: BTreeSet<Nemesis>,
    /// The mean time between two of a nemesis's moves, in microseconds.
    pub nemesis_interval: u64,
    /// The partitions that may occur.
    pub targets: Targets,
    /// Operations of a transaction at most.
    pub max_txn_length: u64,
    /// Writes of a transaction workload to one key at most.
    pub max_writes_per_key: u64,
    /// Keys that a transaction workload uses at a time.
    pub key_count: u64,
    /// The seed of all chances.
    pub seed: u64,
}

impl Settings {
    /// The genuine tool's defaults with this many nodes, except that each node has as many threads as the workload needs.
    pub fn new(workload: Workload, nodes: usize, seed: u64) -> Settings {
        Settings {
            workload,
            nodes,
            concurrency: 2 * nodes,
            rate: 5.0,
            time_limit: 60 * SECOND,
            latency: 0,
            distribution: Distribution::Constant,
            nemeses: BTreeSet::new(),
            nemesis_interval: 10 * SECOND,
            targets: Targets::All,
            max_txn_length: 4,
            max_writes_per_key: 16,
            key_count: 5,
            seed,
        }
    }

    /// Refuses settings that cannot work.
    ///
    /// # Errors
    /// In words, what cannot work and what to give instead.
    pub fn check(&self) -> Result<(), String> {
        let Settings { nodes, concurrency, .. } = self;
        if *nodes == 0 || *concurrency == 0 {
            return Err("there must be a node and a thread: give --node-count and --concurrency at least 1".into());
        }
        if self.workload == Workload::LinKv && concurrency % (2 * nodes) != 0 {
            return Err(format!(
                "lin-kv needs a multiple of {} threads, twice the nodes, not {concurrency}: give --concurrency 2n or 4n",
                2 * nodes
            ));
        }
        if !(0.0..=1e6).contains(&self.rate) {
            return Err(format!("a rate of {} operations per second is none", self.rate));
        }
        Ok(())
    }

    /// After so many microseconds a client gives up: ten mean latencies and at least a second in lin-kv, else five seconds.
    pub fn patience(&self) -> u64 {
        match self.workload {
            Workload::LinKv => (10 * self.latency).max(SECOND),
            _ => 5 * SECOND,
        }
    }
}
