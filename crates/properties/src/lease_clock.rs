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
    /// True time at which each command was first written down at a place, by index and digest of the command.
    written: BTreeMap<(u64, u64), u64>,
    /// The least of (log time - true time at the proposal) over all commands so far, in millionths of microseconds.
    floor: Option<i128>,
    /// The place that brought the floor down last.
    at: u64,
    judged: u64,
    /// The fastest clock that any host has had, in millionths of true time.
    rate: u64,
}

impl Default for LeaseClock {
    fn default() -> LeaseClock {
        LeaseClock { written: BTreeMap::new(), floor: None, at: 0, judged: 0, rate: TRUE_RATE }
    }
}

impl LeaseClock {
    /// A host's clock runs at this speed, in millionths of true time.
    pub fn on_rate(&mut self, rate: u64) {
        if rate > self.rate {
            self.rate = rate;
            // Judged by another measure from here on.
            self.floor = None;
        }
    }

    /// A member writes a command down at a place, at true time `now`, in microseconds.
    pub fn on_written(&mut self, index: u64, digest: u64, now: u64) {
        if index + REMEMBERED > self.judged {
            self.written.entry((index, digest)).or_insert(now);
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
            let lead = self.lead(clock, *proposed);
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
        let ahead_micros = (self.lead(clock, now) - floor) / i128::from(TRUE_RATE);
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

    fn lead(&self, clock: Duration, now: u64) -> i128 {
        let micros = i128::try_from(clock.as_micros()).expect("the log's clock counts microseconds in 64 bits");
        micros * i128::from(TRUE_RATE) - i128::from(self.rate) * i128::from(now)
    }
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
        clock.on_rate(1_100_000);
        clock.on_written(1, 7, 0);
        assert_eq!(clock.on_applied(1, 7, Duration::ZERO, 0), Ok(()));
        assert_eq!(clock.on_clock(Duration::from_secs(11), 10 * SECOND), Ok(()));
        assert!(clock.on_clock(Duration::from_secs(12), 10 * SECOND).is_err());
    }
}
