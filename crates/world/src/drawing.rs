//! Faults drawn one after the other, each with what makes it good again: [`Drawing`].

use crate::command::{Command, DiskFault, Target};
use crate::dice::Dice;
use crate::settings::Settings;
use std::collections::BTreeSet;

/// The kind of a fault, which lasts until it is made good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Crash,
    PowerOff,
    AllPowerOff,
    Pause,
    Isolate,
    Split,
    Mute,
    Cut,
    Reset,
    BadLinks,
    DiskStall,
    DiskSlow,
    DiskFull,
    DiskFail,
    DiskCrashAt,
    Rot,
    Clock,
    Suspend,
    Transfer,
    Campaign,
    Membership,
    Wipe,
    SlowLink,
    Damage,
    Resign,
    ForgetLeader,
    Retime,
    Operator,
    Pace,
}

pub(crate) const KINDS: [Kind; 29] = [
    Kind::Crash,
    Kind::PowerOff,
    Kind::AllPowerOff,
    Kind::Pause,
    Kind::Isolate,
    Kind::Split,
    Kind::Mute,
    Kind::Cut,
    Kind::Reset,
    Kind::BadLinks,
    Kind::DiskStall,
    Kind::DiskSlow,
    Kind::DiskFull,
    Kind::DiskFail,
    Kind::DiskCrashAt,
    Kind::Rot,
    Kind::Clock,
    Kind::Suspend,
    Kind::Transfer,
    Kind::Campaign,
    Kind::Membership,
    Kind::Wipe,
    Kind::SlowLink,
    Kind::Damage,
    Kind::Resign,
    Kind::ForgetLeader,
    Kind::Retime,
    Kind::Operator,
    Kind::Pace,
];

/// Members that a cluster may have beyond those it began with.
const JOINED_MAX: u64 = 3;
/// Beyond those, somebody new in so many microseconds at most: a machine in a crowd of removed ones is unrealistic.
const JOIN_EVERY: u64 = 30_000_000;

/// One of so many members that lose their promises has a disk that lies until the power goes; the others have a blank one.
const LIARS: u64 = 3;

/// Whether a command takes a member's promises, or may do so.
pub(crate) fn takes_promises(command: &Command) -> bool {
    matches!(command, Command::Wipe(_) | Command::Disk(_, DiskFault::Lie))
}

/// Draws the faults of one plan.
pub(crate) struct Drawing<'a> {
    pub(crate) dice: Dice,
    pub(crate) faults: Vec<(u64, Command)>,
    pub(crate) nodes: u64,
    pub(crate) safety: u64,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) has_wiped: bool,
    /// The members, as far as a plan can know them, and how many there ever were.
    pub(crate) present: BTreeSet<u64>,
    pub(crate) ever: u64,
    pub(crate) settings: &'a Settings,
}

impl Drawing<'_> {
    fn who(&mut self) -> Target {
        match self.dice.below(3) {
            0 => Target::Leader,
            _ => self.node(),
        }
    }

    fn node(&mut self) -> Target {
        // Now and then somebody who may have left.
        let place = self.dice.below(self.present.len() as u64 + 1) as usize;
        let left = 1 + self.dice.below(self.ever);
        Target::Node(self.present.iter().nth(place).copied().unwrap_or(left))
    }

    fn other(&mut self, than: Target) -> Target {
        loop {
            let other = self.node();
            if other != than || self.ever == 1 {
                return other;
            }
        }
    }

    fn push(&mut self, at: u64, command: Command) {
        match &command {
            // Clusters stay as large as people run them.
            Command::Join if self.present.len() as u64 >= self.nodes + JOINED_MAX => return,
            Command::Join if self.ever >= self.nodes + JOINED_MAX + self.safety / JOIN_EVERY => return,
            Command::Join => {
                self.ever += 1;
                self.present.insert(self.ever);
            }
            Command::Remove(Target::Node(id)) => {
                self.present.remove(id);
            }
            Command::Voters(voters) => {
                let named = |who: &Target| if let Target::Node(id) = who { Some(*id) } else { None };
                self.present = voters.iter().filter_map(named).collect();
            }
            _ => {}
        }
        self.faults.push((at.min(self.safety), command));
    }

    /// One fault at `at`, and its end.
    pub(crate) fn draw(&mut self, at: u64) {
        let Some(kind) = self.dice.pick(&self.kinds).copied() else { return };
        // Half of all faults end before an election could; some last long.
        let election = self.settings.election_max();
        let lasts = match self.dice.below(4) {
            0 => self.dice.between(1_000, election / 4),
            1 | 2 => self.dice.between(election / 4, election * 3),
            _ => self.dice.between(election * 3, election * 15),
        };
        let end = at + lasts;
        // A fault must be made good where it was done: at a member by name.
        let node = self.node();
        match kind {
            Kind::Crash => {
                let who = self.who();
                self.push(at, Command::Crash(who));
                self.push(end, Command::Restart(Target::All));
            }
            Kind::PowerOff => {
                self.push(at, Command::PowerOff(node));
                self.push(end, Command::Restart(node));
            }
            Kind::AllPowerOff => {
                self.push(at, Command::PowerOff(Target::All));
                self.push(at + lasts.min(2_000_000), Command::Restart(Target::All));
            }
            Kind::Pause => {
                let who = self.who();
                self.push(at, Command::Pause(who));
                self.push(end, Command::Resume(Target::All));
            }
            Kind::Isolate => {
                let who = self.who();
                self.push(at, Command::Isolate(who));
                self.push(end, Command::Heal);
            }
            Kind::Split => {
                let mut groups = [Vec::new(), Vec::new()];
                for id in 1..=self.nodes {
                    groups[self.dice.below(2) as usize].push(Target::Node(id));
                }
                if self.dice.below(3) == 0 {
                    // One member sees both sides.
                    let bridge = self.node();
                    groups.iter_mut().for_each(|group| group.push(bridge));
                }
                self.push(at, Command::Partition(groups.to_vec()));
                self.push(end, Command::Heal);
            }
            Kind::Mute => {
                let from = self.who();
                let to = if self.dice.below(3) == 0 { Target::All } else { self.node() };
                self.push(at, Command::Mute(from, to));
                self.push(end, Command::Heal);
            }
            Kind::Cut => {
                let other = self.other(node);
                self.push(at, Command::Cut(node, other));
                self.push(end, Command::Mend(node, other));
            }
            Kind::Reset => {
                let (one, other) = (self.who(), if self.dice.below(3) == 0 { Target::All } else { self.node() });
                self.push(at, Command::Reset(one, other));
            }
            Kind::BadLinks => {
                let delay_min = self.dice.between(100, 5_000);
                // Sometimes a message arrives when its term is long over.
                let spread = if self.dice.below(4) == 0 { election * 3 } else { election / 8 };
                let command = Command::Links {
                    delay_min,
                    delay_max: delay_min + self.dice.between(1_000, spread),
                    loss: self.dice.below(200_000) as u32,
                    duplicates: self.dice.below(200_000) as u32,
                };
                self.push(at, command);
                self.push(end, Command::Heal);
            }
            Kind::DiskStall => {
                let who = self.who();
                self.push(at, Command::Disk(who, DiskFault::Stall));
                self.push(end, Command::Disk(Target::All, DiskFault::Recover));
            }
            Kind::DiskSlow => {
                let slow = self.dice.between(5_000, 150_000);
                self.push(at, Command::Disk(node, DiskFault::Slow(slow)));
                self.push(end, Command::Disk(node, DiskFault::Recover));
            }
            Kind::DiskFull => {
                let bytes = self.dice.below(100_000);
                self.push(at, Command::Disk(node, DiskFault::Full(bytes)));
                self.push(end, Command::Disk(node, DiskFault::Roomy));
            }
            Kind::DiskFail => {
                let (who, operation) = (self.who(), self.dice.between(1, 30));
                self.push(at, Command::Disk(who, DiskFault::Fail(operation)));
            }
            Kind::DiskCrashAt => {
                let (who, operation) = (self.who(), self.dice.between(1, 40));
                self.push(at, Command::Disk(who, DiskFault::CrashAt(operation)));
                self.push(end, Command::Restart(Target::All));
            }
            Kind::Rot => {
                let read = self.dice.between(1, 200);
                self.push(at, Command::Disk(node, DiskFault::Rot(read)));
                self.push(at, Command::Crash(node));
                self.push(end, Command::Restart(node));
            }
            Kind::Clock => {
                let rate = self.dice.between(900_000, 1_100_000);
                self.push(at, Command::Clock(node, rate));
                self.push(end, Command::Clock(node, 1_000_000));
            }
            Kind::Suspend => {
                let who = self.who();
                self.push(at, Command::Suspend(who, lasts));
            }
            Kind::Transfer => self.push(at, Command::Transfer(node)),
            Kind::Campaign => self.push(at, Command::Campaign(node)),
            Kind::Membership => self.draw_change(at, end, node),
            // Of fewer than three a wiped one takes a quorum's promises with it.
            Kind::Wipe if !self.has_wiped && self.nodes >= 3 => {
                self.has_wiped = true;
                if lasts.is_multiple_of(LIARS) {
                    self.push(at, Command::Disk(node, DiskFault::Lie));
                    self.push(at + lasts / 4, Command::PowerOff(node));
                    self.push(at + lasts / 2, Command::Disk(node, DiskFault::Recover));
                    self.push(at + lasts / 2, Command::Restart(node));
                } else {
                    self.push(at, Command::Wipe(node));
                }
                self.push(at + lasts / 2, Command::Remove(node));
                self.push(end, Command::Join);
            }
            Kind::Wipe => {}
            Kind::SlowLink | Kind::Damage | Kind::Resign | Kind::ForgetLeader => self.draw_disturbance(kind, at, end),
            Kind::Retime | Kind::Operator | Kind::Pace => self.draw_habit(kind, at, end),
        }
    }

    /// Draws what concerns one link, or one leadership.
    fn draw_disturbance(&mut self, kind: Kind, at: u64, end: u64) {
        let (who, node) = (self.who(), self.node());
        match kind {
            Kind::SlowLink => {
                let delay = self.dice.between(5_000, self.settings.election_max() * 3);
                self.push(at, Command::Slow(who, node, delay, delay + 1_000));
                self.push(end, Command::Mend(who, node));
                // The leader may lead no more.
                self.push(end, Command::Heal);
            }
            Kind::Damage => {
                let count = self.dice.between(1, 5);
                self.push(at, Command::Damage(who, node, count));
            }
            Kind::ForgetLeader => self.push(at, Command::ForgetLeader(node)),
            _ => self.push(at, Command::Resign(Target::Leader)),
        }
    }

    /// Draws a change of how the cluster is run or used.
    fn draw_habit(&mut self, kind: Kind, at: u64, end: u64) {
        let node = self.node();
        match kind {
            Kind::Retime => {
                // Never slower than what the judge of liveness reckons with.
                let percent = self.dice.between(40, 100);
                self.push(at, Command::Retime(node, percent));
                self.push(end, Command::Retime(node, 100));
            }
            Kind::Operator => {
                self.push(at, Command::Operator(node));
                self.push(end, Command::Operator(Target::Leader));
            }
            _ => {
                // A burst, or hardly anybody.
                let pause = [20_000, 100_000, 3_000_000, 20_000_000][self.dice.below(4) as usize];
                self.push(at, Command::Pace(pause));
                self.push(end, Command::Pace(self.settings.load.pause));
            }
        }
    }
}

impl Drawing<'_> {
    /// A change of membership, or several.
    fn draw_change(&mut self, at: u64, end: u64, node: Target) {
        match self.dice.below(6) {
            0 => self.push(at, Command::Join),
            1 => {
                self.push(at, Command::Join);
                self.push(end, Command::Remove(node));
            }
            2 => {
                let who = self.who();
                self.push(at, Command::Join);
                self.push(end, Command::Remove(who));
            }
            3 | 4 => {
                // Several at once, through a joint change: perhaps with somebody new, perhaps while somebody is unreachable.
                self.push(at, Command::Join);
                let known: Vec<u64> = self.present.iter().copied().collect();
                let voters: Vec<Target> =
                    known.into_iter().filter(|_| self.dice.below(3) > 0).map(Target::Node).collect();
                if voters.len() > 1 {
                    if self.dice.below(2) == 0 {
                        let other = self.node();
                        self.push(end, Command::Isolate(other));
                        self.push(end + self.settings.election_max() * 2, Command::Heal);
                    }
                    self.push(end, Command::Voters(voters));
                }
            }
            _ => {
                // One after the other, right after somebody new leads.
                let other = self.other(node);
                let soon = at + self.dice.below(100_000);
                self.push(at, Command::Campaign(node));
                self.push(soon, Command::Join);
                self.push(soon, Command::Remove(other));
                let sooner_or_later = soon + self.dice.below(20_000);
                self.push(sooner_or_later, Command::Remove(node));
                self.push(end, Command::Join);
            }
        }
    }
}
