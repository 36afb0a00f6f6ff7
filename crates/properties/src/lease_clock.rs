//! The clock of leases against true time: [`LeaseClock`].
//!
//! A lease that entry *i* grants ends when the log's clock has moved on by its time to live. So no lease ends early if, from
//! the moment at which entry *i* was proposed, log time moves on by no more than true time does. That is asked of every
//! command, since any of them may grant or renew.
//!
//! It deliberately does not ask whether leases end at all; that is liveness, and the scheduler's question.

use crate::Violation;
use std::collections::BTreeMap;
use std::time::Duration;

/// Microseconds by which a command may move log time beyond true time before it is convicted: a host's reading lags.
const SLACK_MICROS: i128 = 2_000;
/// Places below the last judged one whose proposals are remembered.
const REMEMBERED: u64 = 10_000;
/// The speed of true time, in millionths.
const TRUE_RATE: u64 = 1_000_000;

/// Log time of one cluster, judged against true time.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LeaseClock {
    /// By how much log time might have moved on when each command was first written down at a place, by index and digest of the
    /// command; in millionths of microseconds.
    written: BTreeMap<(u64, u64), u128>,
    /// The least of (log time - what it might have moved on until the proposal) over all commands so far, in the same unit.
    floor: Option<i128>,
    /// The place that brought the floor down last.
    at: u64,
    judged: u64,
    /// The fastest clock that any host has now, in millionths of true time.
    rate: u64,
    /// Since when, and by how much log time might have moved on until then.
    since: (u64, u128),
}

impl Default for LeaseClock {
    fn default() -> LeaseClock {
        LeaseClock { written: BTreeMap::new(), floor: None, at: 0, judged: 0, rate: TRUE_RATE, since: (0, 0) }
    }
}

impl LeaseClock {
    /// From true time `now` on, in microseconds, the fastest clock of a host runs at this speed, in millionths of true time; a slower
    /// one than true time's excuses nothing.
    pub fn on_rate(&mut self, rate: u64, now: u64) {
        self.since = (now, self.elapsed(now));
        self.rate = rate.max(TRUE_RATE);
    }

    /// By how much log time may have moved on at true time `now`.
    fn elapsed(&self, now: u64) -> u128 {
        let (since, elapsed) = self.since;
        elapsed + u128::from(self.rate) * u128::from(now.saturating_sub(since))
    }

    /// A member writes a command down at a place, at true time `now`, in microseconds.
    pub fn on_written(&mut self, index: u64, digest: u64, now: u64) {
        if index + REMEMBERED > self.judged {
            let elapsed = self.elapsed(now);
            self.written.entry((index, digest)).or_insert(elapsed);
        }
    }

    /// A member has applied a command, which left log time at `clock`, at true time `now`, in microseconds.
    ///
    /// # Errors
    /// Since an earlier command was proposed, log time has moved on by more than true time.
    pub fn on_applied(&mut self, index: u64, digest: u64, clock: Duration, now: u64) -> Result<(), Violation> {
        if index <= self.judged {
            return Ok(());
        }
        self.on_clock(clock, now)?;
        self.judged = index;
        if let Some(proposed) = self.written.get(&(index, digest)) {
            let lead = lead(clock, *proposed);
            if self.floor.is_none_or(|floor| lead < floor) {
                self.floor = Some(lead);
                self.at = index;
            }
        }
        if index.is_multiple_of(REMEMBERED) {
            self.written = self.written.split_off(&(index - REMEMBERED / 2, 0));
        }
        Ok(())
    }

    /// Log time stands at `clock` at a member that has applied all that was judged.
    ///
    /// # Errors
    /// As above.
    pub fn on_clock(&self, clock: Duration, now: u64) -> Result<(), Violation> {
        let Some(floor) = self.floor else { return Ok(()) };
        let ahead_micros = (lead(clock, self.elapsed(now)) - floor) / i128::from(TRUE_RATE);
        if ahead_micros <= SLACK_MICROS {
            return Ok(());
        }
        let what = format!(
            "log time stands at {clock:?}: since the command at {} was proposed it has moved on {} ms more than true time",
            self.at,
            ahead_micros / 1_000
        );
        Err(Violation::of("leases-last", what))
    }

    /// The last place that was judged.
    pub fn judged(&self) -> u64 {
        self.judged
    }
}

/// Log time beyond what it may have moved on, in millionths of microseconds.
fn lead(clock: Duration, elapsed: u128) -> i128 {
    let micros = i128::try_from(clock.as_micros()).expect("the log's clock counts microseconds in 64 bits");
    micros * i128::from(TRUE_RATE) - i128::try_from(elapsed).expect("worlds last for hours")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn log_time_may_stand_still_but_not_run_ahead_of_a_command() {
        let mut clock = LeaseClock::default();
        clock.on_written(1, 7, 10 * SECOND);
        assert_eq!(clock.on_applied(1, 7, Duration::from_secs(100), 11 * SECOND), Ok(()));
        assert_eq!(clock.on_clock(Duration::from_secs(101), 20 * SECOND), Ok(()));
        assert_eq!(clock.on_clock(Duration::from_secs(110), 20 * SECOND), Ok(()));
        let violation = clock.on_clock(Duration::from_secs(111), 20 * SECOND).expect_err("a second too much");
        assert_eq!(violation.property, "leases-last");
    }

    #[test]
    fn a_fast_clock_is_no_violation() {
        let mut clock = LeaseClock::default();
        clock.on_rate(1_100_000, 0);
        clock.on_written(1, 7, 0);
        assert_eq!(clock.on_applied(1, 7, Duration::ZERO, 0), Ok(()));
        assert_eq!(clock.on_clock(Duration::from_secs(11), 10 * SECOND), Ok(()));
        assert!(clock.on_clock(Duration::from_secs(12), 10 * SECOND).is_err());
    }

    /// Goal: a clock that was fast once excuses nothing later. Method: ten seconds of a fast clock, and ten without.
    #[test]
    fn a_clock_that_was_fast_once_excuses_nothing_later() {
        let mut clock = LeaseClock::default();
        clock.on_written(1, 7, 0);
        assert_eq!(clock.on_applied(1, 7, Duration::ZERO, 0), Ok(()));
        clock.on_rate(1_100_000, 0);
        clock.on_rate(900_000, 10 * SECOND);
        assert_eq!(clock.on_clock(Duration::from_secs(21), 20 * SECOND), Ok(()), "a second more in the first ten");
        assert!(clock.on_clock(Duration::from_secs(22), 20 * SECOND).is_err());
    }
}
