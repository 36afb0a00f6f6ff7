//! Alarms on a host's clock of microseconds: [`Alarms`].

use crate::dice::Dice;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Armed alarms. One that is armed again or disarmed never rings at its old time.
#[derive(Clone, Debug)]
pub struct Alarms<T> {
    armed: BTreeMap<T, u64>,
}

impl<T: Ord + Copy> Default for Alarms<T> {
    fn default() -> Alarms<T> {
        Alarms { armed: BTreeMap::new() }
    }
}

impl<T: Ord + Copy> Alarms<T> {
    /// Arms an alarm, at a time drawn from the range.
    pub fn arm(&mut self, alarm: T, after: &RangeInclusive<Duration>, now: u64, dice: &mut Dice) {
        let micros = |duration: &Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX / 4);
        self.armed.insert(alarm, now + dice.between(micros(after.start()), micros(after.end())));
    }

    /// Disarms an alarm.
    pub fn disarm(&mut self, alarm: T) {
        self.armed.remove(&alarm);
    }

    /// Time at which the next one rings; `None` if none is armed.
    pub fn next(&self) -> Option<u64> {
        self.armed.values().min().copied()
    }

    /// Takes the one that is overdue the longest.
    pub fn take_due(&mut self, now: u64) -> Option<T> {
        let (alarm, at) = self.armed.iter().min_by_key(|(_, at)| **at).map(|(alarm, at)| (*alarm, *at))?;
        (at <= now).then(|| {
            self.armed.remove(&alarm);
            alarm
        })
    }
}
