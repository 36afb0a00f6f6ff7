//! A script from a seed: [`plan`]. The same seed, size, length and kinds give the same script, on any machine.
//!
//! Faults come one after the other, each with its end, and now and then the next begins before the last has ended. Half of
//! them hit the leader of that moment. Every kind that was asked for comes before any comes again.

use crate::script::{Act, Script, Step};
use anyhow::{Result, bail};
use hustings_world::dice::Dice;
use hustings_world::{Command, DiskFault, Target};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Calm before the first fault, so that there is something to lose.
const CALM_FIRST_MS: u64 = 800;
/// Calm after the last fault, within the time of the run.
const CALM_LAST_MS: u64 = 1_200;
/// The longest fault and the longest calm after it: what one fault may take.
const FAULT_MS: (u64, u64) = (600, 2_400);
const CALM_MS: (u64, u64) = (200, 900);
/// A frozen disk counts as stalled after a second: shorter ones show little.
const FREEZE_MS: (u64, u64) = (1_500, 3_000);
/// Chance, in a million, that the next fault begins in the middle of the last.
const OVERLAP: u32 = 300_000;
/// Chance, in a million, that a kill or a power cut hits everybody at once.
const EVERYBODY: u32 = 150_000;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// SIGKILL, and a start some time later.
    Kill,
    /// SIGSTOP, and SIGCONT some time later.
    Pause,
    /// No byte passes between these members, and nobody is told.
    Cut,
    /// No byte passes in one direction.
    OneWay,
    /// All bytes take longer.
    Delay,
    /// A connection breaks, and both ends see it.
    Reset,
    /// The other end stops reading.
    HalfOpen,
    /// Few bytes pass per second.
    Bandwidth,
    /// The file system is frozen.
    DiskFreeze,
    /// The file system is full.
    DiskFull,
    /// The power goes: what was not synced is lost.
    PowerCut,
    /// The n-th write or sync fails, or ends the process.
    Syscall,
    /// Every sync takes longer.
    SlowDisk,
    /// Hardly a file or connection can be opened.
    Descriptors,
    /// Old revisions are compacted.
    Compact,
    /// A member is removed, and joins again with an empty directory.
    Replace,
}

impl Kind {
    /// All kinds, those that need no root first.
    pub const ALL: [Kind; 16] = [
        Kind::Kill,
        Kind::Pause,
        Kind::Cut,
        Kind::OneWay,
        Kind::Delay,
        Kind::Reset,
        Kind::HalfOpen,
        Kind::Bandwidth,
        Kind::Descriptors,
        Kind::Compact,
        Kind::Replace,
        Kind::SlowDisk,
        Kind::DiskFreeze,
        Kind::DiskFull,
        Kind::PowerCut,
        Kind::Syscall,
    ];

    /// Faults of processes and links, which need no root.
    pub const WITHOUT_ROOT: &'static [Kind] = Kind::ALL.split_at(11).0;

    fn name(self) -> &'static str {
        match self {
            Kind::Kill => "kill",
            Kind::Pause => "pause",
            Kind::Cut => "cut",
            Kind::OneWay => "one-way",
            Kind::Delay => "delay",
            Kind::Reset => "reset",
            Kind::HalfOpen => "half-open",
            Kind::Bandwidth => "bandwidth",
            Kind::DiskFreeze => "disk-freeze",
            Kind::DiskFull => "disk-full",
            Kind::PowerCut => "power-cut",
            Kind::Syscall => "syscall",
            Kind::SlowDisk => "slow-disk",
            Kind::Descriptors => "descriptors",
            Kind::Compact => "compact",
            Kind::Replace => "replace",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(word: &str) -> Result<Kind, String> {
        Kind::ALL.into_iter().find(|kind| kind.name() == word).ok_or_else(|| {
            let names = Kind::ALL.map(Kind::name);
            let nearest = hustings_world::parse::nearest(word, &names);
            format!("`{word}` is no kind of fault; did you mean `{nearest}`? There are {}", names.join(", "))
        })
    }
}

/// Draws a script for `nodes` members and `seconds` seconds, of these kinds.
///
/// # Errors
/// When the time does not hold every kind once.
pub fn plan(seed: u64, nodes: usize, seconds: u64, kinds: &[Kind]) -> Result<Script> {
    if kinds.is_empty() {
        bail!("no kind of fault is asked for: give --faults at least one");
    }
    let mut draw = Draw { dice: Dice::new(seed, u64::from_be_bytes(*b"torturer"), nodes as u64), nodes };
    let (mut steps, mut order, mut used) = (Vec::new(), Vec::new(), 0);
    let (mut now, end) = (CALM_FIRST_MS, (seconds * 1_000).saturating_sub(CALM_LAST_MS));
    loop {
        if order.is_empty() {
            order = kinds.to_vec();
        }
        let at = draw.dice.below(order.len() as u64) as usize;
        let kind = order.swap_remove(at);
        let (low, high) = if kind == Kind::DiskFreeze { FREEZE_MS } else { FAULT_MS };
        let ends = now + draw.dice.between(low, high);
        if ends > end {
            break;
        }
        let (begins, relief) = draw.fault(kind);
        steps.push(Step { at: Duration::from_millis(now), act: begins });
        steps.extend(relief.into_iter().map(|act| Step { at: Duration::from_millis(ends), act }));
        used += 1;
        now = match draw.dice.chance(OVERLAP) {
            true => now.midpoint(ends),
            false => ends + draw.dice.between(CALM_MS.0, CALM_MS.1),
        };
    }
    if used < kinds.len() {
        bail!("{seconds} s hold {used} of {} kinds of faults: give more --seconds or fewer --faults", kinds.len());
    }
    steps.sort_by_key(|step| step.at);
    Ok(Script { steps })
}

struct Draw {
    dice: Dice,
    nodes: usize,
}

impl Draw {
    fn node(&mut self) -> Target {
        Target::Node(self.dice.between(1, self.nodes as u64))
    }

    fn victim(&mut self) -> Target {
        if self.dice.chance(500_000) { Target::Leader } else { self.node() }
    }

    /// Two that are not the same: a leader and those who follow, or two by name.
    fn pair(&mut self) -> (Target, Target) {
        match self.dice.below(4) {
            0 => (Target::Leader, Target::Others),
            1 => (Target::Others, Target::Leader),
            _ => {
                let one = self.dice.between(1, self.nodes as u64);
                let other = (one + self.dice.below(self.nodes as u64 - 1)) % self.nodes as u64 + 1;
                (Target::Node(one), Target::Node(other))
            }
        }
    }

    /// Draws the act that begins a fault, and those that end it.
    fn fault(&mut self, kind: Kind) -> (Act, Vec<Act>) {
        let heal = || vec![Act::Shared(Command::Heal)];
        let restart = Act::Shared(Command::Restart(Target::All));
        let recover = Act::Shared(Command::Disk(Target::All, DiskFault::Recover));
        match kind {
            Kind::Kill => {
                let who = if self.dice.chance(EVERYBODY) { Target::All } else { self.victim() };
                (Act::Shared(Command::Crash(who)), vec![restart])
            }
            Kind::Pause => {
                (Act::Shared(Command::Pause(self.victim())), vec![Act::Shared(Command::Resume(Target::All))])
            }
            Kind::Cut => match self.dice.below(2) {
                0 => (Act::Shared(Command::Isolate(self.victim())), heal()),
                _ => {
                    let (one, other) = self.pair();
                    (Act::Shared(Command::Cut(one, other)), heal())
                }
            },
            Kind::OneWay => {
                let (from, to) = self.pair();
                (Act::Shared(Command::Mute(from, to)), heal())
            }
            Kind::Delay => {
                let least = self.dice.between(1, 30) * 1_000;
                let links = |delay_min, delay_max| Command::Links { delay_min, delay_max, loss: 0, duplicates: 0 };
                let most = least + self.dice.between(1, 60) * 1_000;
                (Act::Shared(links(least, most)), vec![Act::Shared(links(0, 0))])
            }
            Kind::Reset => {
                let (one, other) = self.pair();
                (Act::Shared(Command::Reset(one, other)), Vec::new())
            }
            Kind::HalfOpen => {
                let (from, to) = self.pair();
                (Act::HalfOpen(from, to), heal())
            }
            Kind::Bandwidth => {
                let (from, to) = self.pair();
                (Act::Bandwidth(from, to, self.dice.between(2, 60) * 1_000), heal())
            }
            Kind::DiskFreeze => (Act::Shared(Command::Disk(self.victim(), DiskFault::Stall)), vec![recover]),
            Kind::DiskFull => {
                let left = self.dice.below(64) * 4_096;
                let roomy = Act::Shared(Command::Disk(Target::All, DiskFault::Roomy));
                (Act::Shared(Command::Disk(self.victim(), DiskFault::Full(left))), vec![roomy, restart])
            }
            Kind::PowerCut => {
                let who = if self.dice.chance(EVERYBODY) { Target::All } else { self.victim() };
                (Act::Shared(Command::PowerOff(who)), vec![restart])
            }
            Kind::Syscall => {
                let operation = self.dice.between(1, 200);
                let fault = match self.dice.below(2) {
                    0 => DiskFault::Fail(operation),
                    _ => DiskFault::CrashAt(operation),
                };
                (Act::Shared(Command::Disk(self.victim(), fault)), vec![recover, restart])
            }
            Kind::SlowDisk => {
                let micros = self.dice.between(2, 120) * 1_000;
                (Act::Shared(Command::Disk(self.victim(), DiskFault::Slow(micros))), vec![recover])
            }
            Kind::Descriptors => {
                let left = self.dice.below(6);
                (Act::Descriptors(self.victim(), Some(left)), vec![Act::Descriptors(Target::All, None)])
            }
            Kind::Compact => (Act::Compact, Vec::new()),
            Kind::Replace => (Act::Replace(self.victim()), Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_script_and_the_script_can_be_given_back() {
        let one = plan(7, 5, 60, &Kind::ALL).expect("a minute is enough");
        assert_eq!(one, plan(7, 5, 60, &Kind::ALL).expect("again"));
        assert_ne!(one, plan(8, 5, 60, &Kind::ALL).expect("another"));
        assert_eq!(Script::parse(&one.to_string()).expect("it reads"), one);
    }

    #[test]
    fn a_plan_that_cannot_hold_every_kind_is_refused() {
        let refusal = plan(1, 3, 5, &Kind::ALL).expect_err("five seconds are too few").to_string();
        assert!(refusal.contains("give more --seconds or fewer --faults"), "{refusal}");
    }

    #[test]
    fn a_misspelt_kind_is_told_its_neighbour() {
        assert!("disk-ful".parse::<Kind>().expect_err("it is wrong").contains("did you mean `disk-full`?"));
    }
}
