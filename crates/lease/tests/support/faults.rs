//! Faults of a run and their times.

use super::{Dice, MILLISECOND, SECOND};
use hustings_lease::store::Renewal;
use hustings_lease::{Defect, Profile};

/// The faults that may occur in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Faults {
    /// No faults: messages are quick, clocks are within their error.
    None,
    /// Everything that the rules assume may happen (A1 to A4 hold).
    Assumed,
    /// Those, and again and again winners are asked to step down before they act.
    Hasty,
    /// Those of [`Faults::Assumed`], and clocks that err by more than is assumed.
    WildClocks,
    /// Those, and a deposed leader of the store renews leases, to no effect.
    Deposed,
    /// Those, and the store forgets what it had acknowledged; the generation is not raised.
    Forgotten,
    /// Those, and then the generation is raised.
    Restored,
    /// Those, and somebody deletes or erases the record by hand.
    ByHand,
}

impl Faults {
    /// Whether the store forgets what it acknowledged, or somebody else edits the record (A2 or A4 does not hold).
    pub fn break_the_word(self) -> bool {
        matches!(self, Faults::Forgotten | Faults::Restored | Faults::ByHand)
    }

    /// Whether one believer at a time is promised under these faults.
    pub fn keep_p1(self) -> bool {
        matches!(self, Faults::None | Faults::Assumed | Faults::Hasty)
    }
}

/// One thing that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mishap {
    /// The process stands still, its clock does not.
    Pause(usize, u64),
    /// The machine is suspended for this long.
    Suspend(usize, u64),
    /// Nothing passes between the host and the store.
    Cut(usize, u64),
    /// The process dies; another one starts after this time.
    Crash(usize, u64),
    /// The application says that it is unhealthy for this long.
    Sick(usize, u64),
    /// An operator asks the leader to step down.
    StepDown,
    /// An operator asks every candidate that has won and does not act yet to step down.
    Hasten,
    /// The leader is asked to hand over to this host's candidate, which dies at once if the second is not zero.
    HandOver(usize, u64),
    /// The store has no leader for this long.
    StoreLeader(u64),
    /// The member that clients are connected to crashes.
    LoseTouches,
    /// Leases last longer than they must.
    Lenient(u64),
    /// The store's leader is deposed, and answers renewals for this long, to no effect.
    Depose(u64),
    Remember,
    Restore,
    Raise,
    Delete,
    Erase,
}

/// Draws faults and their times for one run.
pub fn draw(faults: Faults, profile: &Profile, hosts: usize, end: u64, dice: &mut Dice) -> Vec<(u64, Mishap)> {
    if faults == Faults::None {
        return Vec::new();
    }
    let mut found = Vec::new();
    for _ in 0..dice.between(2, 9) {
        let at = dice.between(SECOND, end - SECOND);
        found.push((at, one(profile, hosts, dice)));
    }
    let late = dice.between(end / 2, end - SECOND);
    match faults {
        Faults::Deposed => {
            found.push((dice.between(5 * SECOND, end / 2), Mishap::Depose(dice.between(8, 20) * SECOND)))
        }
        Faults::Forgotten | Faults::Restored => {
            found.push((dice.between(2 * SECOND, end / 2), Mishap::Remember));
            found.push((late, Mishap::Restore));
            if faults == Faults::Restored {
                found.push((late + 1, Mishap::Raise));
            }
        }
        Faults::ByHand => {
            for _ in 0..dice.between(1, 3) {
                let mishap = if dice.one_in(2) { Mishap::Delete } else { Mishap::Erase };
                found.push((dice.between(5 * SECOND, end - SECOND), mishap));
            }
        }
        Faults::Hasty => {
            found.extend((0..40).map(|_| (dice.between(SECOND, end - SECOND), Mishap::Hasten)));
        }
        Faults::None | Faults::Assumed | Faults::WildClocks => {}
    }
    found.sort_by_key(|(at, _)| *at);
    found
}

fn one(profile: &Profile, hosts: usize, dice: &mut Dice) -> Mishap {
    let host = dice.below(hosts as u64) as usize;
    let short = dice.between(10 * MILLISECOND, 4 * SECOND);
    let long = dice.between(2 * SECOND, 25 * SECOND);
    let time = if dice.one_in(2) { short } else { long };
    match dice.below(13) {
        0 | 1 => Mishap::Pause(host, time),
        2 | 3 => Mishap::Suspend(host, time),
        4 | 5 => Mishap::Cut(host, time),
        6 | 7 => Mishap::Crash(host, time),
        8 => Mishap::Sick(host, long),
        9 => Mishap::StepDown,
        10 => Mishap::HandOver(host, if dice.one_in(2) { long } else { 0 }),
        11 => Mishap::StoreLeader(short),
        _ if profile.renewal == Renewal::Relayed => Mishap::LoseTouches,
        _ => Mishap::Lenient(time.min(10 * SECOND)),
    }
}

/// The state of a run's network.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Of a hundred messages, this many are lost.
    pub lost: u64,
    pub doubled: u64,
    /// One in so many takes up to `long`.
    pub slow_one_in: u64,
    pub usual: u64,
    pub long: u64,
}

impl Weather {
    pub const FINE: Weather = Weather { lost: 0, doubled: 0, slow_one_in: u64::MAX, usual: 5 * MILLISECOND, long: 0 };

    pub fn draw(faults: Faults, dice: &mut Dice) -> Weather {
        if faults == Faults::None || dice.one_in(4) {
            return Weather::FINE;
        }
        Weather {
            lost: dice.below(25),
            doubled: dice.below(20),
            slow_one_in: dice.between(3, 30),
            usual: dice.between(1, 300) * MILLISECOND,
            long: dice.between(SECOND, 14 * SECOND),
        }
    }

    pub fn delay(&self, dice: &mut Dice) -> u64 {
        let most = if dice.one_in(self.slow_one_in) { self.long } else { self.usual };
        dice.between(200, most.max(200))
    }
}

/// Whether the defect can show on this profile at all.
pub fn concerns(defect: Defect, profile: &Profile) -> bool {
    match defect {
        Defect::BelievesTheEvent | Defect::OverwritesOnConflict => {
            profile.contend == hustings_lease::store::Contend::Race
        }
        Defect::ClearsWithoutHavingLed | Defect::ClearsForEver => !profile.hold_off.is_zero(),
        _ => true,
    }
}
