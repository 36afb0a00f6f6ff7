//! The forms in which leases are usually built, to the letter, each with the defect that it has. For comparison only.
//!
//! | value | what is believed | what happens | repaired |
//! |---|---|---|---|
//! | [`Register`], [`Reading::AsFound`] | a majority is enough to read | a value that was read is gone again | write back before answering |
//! | [`Register`], read then write | a reader of "vacant" may write | two winners | compare-and-swap: [`crate::StoreModel`] |
//! | [`Redlock`] | a majority of independent masters is a lock | a master's clock jumps; a holder sleeps | log time; a [`crate::FenceGate`] |
//! | [`WallLease`] | `renewTime` says when a lease ends | a wall clock is set: two leaders | versions observed on one's own clock |
//! | [`SuspendedClock::Monotonic`] | the clock measures the lease | it stood still in suspend | the boot-time clock |
//! | [`Stopping::AtTheLoss`] | stop when the lease is lost | the successor works already | [`crate::Timing`]: ended before U |
//! | [`Office::WithoutRaising`] | the gate refuses old tokens | not before the first new one came | [`crate::FenceGate::raise`] first |
//!
//! `crates/lease/tests/published.rs` tells the eight stories, broken and repaired.
//!
//! Source: "Leader and Followers", "Why quorum reads and writes are not enough"; `docs/leadership.md`, "Why not simpler".

use crate::store::CandidateId;
use crate::timing::{Timing, micros};
use std::time::Duration;

/// The treatment of the newest value that a majority showed to a reader.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reading {
    /// It is answered at once: it may be on one replica only.
    AsFound,
    /// Writes it to a majority first.
    WritesBack,
}

/// A register on replicas, read and written by majorities.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Register<V> {
    /// Version and value on each replica.
    replicas: Vec<(u64, V)>,
}

impl<V: Clone> Register<V> {
    /// A register that has this value on all its replicas.
    pub fn new(replicas: usize, value: V) -> Register<V> {
        Register { replicas: vec![(1, value); replicas] }
    }

    /// Writes a value that reaches these replicas, and says whether they are a majority. A write that reaches fewer has
    /// failed, and is there all the same.
    pub fn write(&mut self, value: V, version: u64, reaches: &[usize]) -> bool {
        for replica in reaches.iter().copied() {
            if self.replicas.get(replica).is_some_and(|(known, _)| *known < version) {
                self.replicas[replica] = (version, value.clone());
            }
        }
        reaches.len() * 2 > self.replicas.len()
    }

    /// Reads the newest value of these replicas; `None` if they are no majority.
    pub fn read(&mut self, from: &[usize], reading: Reading) -> Option<(u64, V)> {
        if from.len() * 2 <= self.replicas.len() {
            return None;
        }
        let found = from.iter().filter_map(|replica| self.replicas.get(*replica));
        let (version, value) = found.max_by_key(|(version, _)| *version)?.clone();
        if reading == Reading::WritesBack {
            self.write(value.clone(), version, from);
        }
        Some((version, value))
    }
}

/// One of the masters of a [`Redlock`]: by its own clock, a key that ends.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Master {
    holder: Option<CandidateId>,
    /// End of the key, by the master's own clock.
    ends: u64,
    /// Microseconds by which its clock is ahead.
    ahead: u64,
}

/// Independent masters, a majority of which is the lock.
///
/// Source: the algorithm of that name in the documentation of Redis; Kleppmann, "How to do distributed locking".
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Redlock {
    masters: Vec<Master>,
    ttl: u64,
}

impl Redlock {
    /// A lock of this many masters, with this time to live.
    pub fn new(masters: usize, ttl: Duration) -> Redlock {
        Redlock { masters: vec![Master::default(); masters], ttl: micros(ttl) }
    }

    /// Asks these masters at true time `now`, in microseconds; until when the lock is valid, if a majority gave it.
    pub fn acquire(&mut self, who: &CandidateId, now: u64, reaches: &[usize]) -> Option<u64> {
        let mut given = 0;
        for master in reaches.iter().copied() {
            let Some(master) = self.masters.get_mut(master) else { continue };
            let clock = now + master.ahead;
            if master.holder.is_none() || master.ends <= clock || master.holder.as_ref() == Some(who) {
                (master.holder, master.ends) = (Some(who.clone()), clock + self.ttl);
                given += 1;
            }
        }
        (given * 2 > self.masters.len()).then_some(now + self.ttl)
    }

    /// Somebody sets a master's clock.
    pub fn set_clock(&mut self, master: usize, ahead: Duration) {
        if let Some(master) = self.masters.get_mut(master) {
            master.ahead = micros(ahead);
        }
    }
}

/// A record whose end everybody computes from the time that its holder wrote, and from their own wall clocks.
///
/// Source: `kubert`, `kube-leader-election`, the leader election of the Python client of Kubernetes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WallLease {
    holder: Option<CandidateId>,
    renewed: u64,
    ttl: u64,
}

impl WallLease {
    /// A record without a holder.
    pub fn new(ttl: Duration) -> WallLease {
        WallLease { holder: None, renewed: 0, ttl: micros(ttl) }
    }

    /// Takes or renews the record, by the caller's own wall clock in microseconds; says whether it is the holder now.
    pub fn acquire(&mut self, who: &CandidateId, wall: u64) -> bool {
        let is_own = self.holder.as_ref() == Some(who);
        if self.holder.is_none() || is_own || self.renewed + self.ttl <= wall {
            (self.holder, self.renewed) = (Some(who.clone()), wall);
            return true;
        }
        false
    }

    /// Whether a holder that renewed at this time of its own wall clock believes that it leads.
    pub fn believes(&self, renewed: u64, wall: u64) -> bool {
        wall < renewed + self.ttl
    }
}

/// The clock that measures a lease, on a machine that was suspended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SuspendedClock {
    /// `CLOCK_MONOTONIC`: what `std::time::Instant` reads on Linux.
    Monotonic,
    /// `CLOCK_BOOTTIME`, which goes on in suspend.
    Boot,
}

impl SuspendedClock {
    /// Its reading after the machine has been up for this long, of which it was suspended for that long.
    pub fn read(self, since_boot: u64, suspended: u64) -> u64 {
        match self {
            SuspendedClock::Monotonic => since_boot - suspended,
            SuspendedClock::Boot => since_boot,
        }
    }
}

/// The time when a leader that cannot renew begins to stop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stopping {
    /// It stops when the lease is lost (`consul lock`, stop hooks of controllers).
    AtTheLoss,
    /// It begins so early that all has ended before.
    BeforeTheEnd,
}

impl Stopping {
    /// Begin and end of the stop of an application that takes the whole grace and margin, after its last renewal left.
    pub fn span(self, timing: &Timing, renewed: u64) -> (u64, u64) {
        let needed = micros(timing.stop_before_end());
        let end = renewed + micros(timing.validity());
        match self {
            Stopping::AtTheLoss => (end, end + needed),
            Stopping::BeforeTheEnd => (end - needed.min(end), end),
        }
    }
}

/// The first act of a new leader.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Office {
    /// It reads, and its first write raises the gate.
    WithoutRaising,
    /// It raises the gate, and reads then.
    Raises,
}
