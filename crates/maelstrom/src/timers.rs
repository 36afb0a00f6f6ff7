//! Timers on a host's clock of microseconds: [`Timers`].

use crate::dice::Dice;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Armed timers. One that is armed again or disarmed never fires at its old time.
#[derive(Clone, Debug)]
pub struct Timers<T> {
    armed: BTreeMap<T, u64>,
}

impl<T: Ord + Copy> Default for Timers<T> {
    fn default() -> Timers<T> {
        Timers { armed: BTreeMap::new() }
    }
}

impl<T: Ord + Copy> Timers<T> {
    /// Arms a timer, at a time drawn from the range.
    pub fn arm(&mut self, timer: T, after: &RangeInclusive<Duration>, now: u64, dice: &mut Dice) {
        let micros = |duration: &Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX / 4);
        self.armed.insert(timer, now + dice.between(micros(after.start()), micros(after.end())));
    }

    /// Disarms a timer: it does not fire any more.
    pub fn disarm(&mut self, timer: T) {
        self.armed.remove(&timer);
    }

    /// Time at which the next one fires; `None` if none is armed.
    pub fn next(&self) -> Option<u64> {
        self.armed.values().min().copied()
    }

    /// Takes the one that is overdue the longest.
    pub fn take_due(&mut self, now: u64) -> Option<T> {
        let (timer, at) = self.armed.iter().min_by_key(|(_, at)| **at).map(|(timer, at)| (*timer, *at))?;
        (at <= now).then(|| {
            self.armed.remove(&timer);
            timer
        })
    }
}
