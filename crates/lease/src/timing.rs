//! The times of a lease: how long a leader may believe, and when it must stop: [`Timing`].
//!
//! ```text
//!   sent                                        U-s-k          U-k     U = sent + H
//!    │◄── r ──►│◄── r ──►│◄── r ──►│               │◄─── s ───►│◄─ k ─►│
//!    └─ renewal leaves   └─ the next ones          └─ stop     └─ all  └─ belief ends; the store frees the
//!                                                     begins      ended   lease no earlier
//! ```

use crate::store::{Profile, Renewal};
use std::fmt;
use std::time::Duration;

const MILLION: u64 = 1_000_000;
/// The longest time to live: a year.
pub const TTL_MAX: Duration = Duration::from_secs(365 * 86_400);

/// The times of one election, for one candidate.
///
/// Source: `docs/leadership.md`, "The sum".
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Timing {
    /// T: the time to live as the store granted it, which may differ from what was asked for.
    pub ttl: Duration,
    /// ρ: the most by which the rate of any clock may differ from true time, in millionths; below a million.
    pub rate_error_millionths: u32,
    /// g: the coarsest step of the clocks that are read.
    pub granularity: Duration,
    /// s: the time that the application gets to stop by itself.
    pub stop_grace: Duration,
    /// k: the time that killing takes, after which nothing of the application acts any more.
    pub kill_margin: Duration,
    /// r: the interval at which the lease is renewed.
    pub renewal: Duration,
}

/// Times that do not fit together; says the sum and the remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misfit(pub String);

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Misfit {}

impl Default for Timing {
    /// A time to live of 10 s.
    fn default() -> Timing {
        Timing::with_ttl(Duration::from_secs(10))
    }
}

impl Timing {
    /// The defaults for a granted time to live: ρ 1 %, g 1 ms, s 2 s, k 0.5 s, r a fifth of it.
    pub fn with_ttl(ttl: Duration) -> Timing {
        Timing {
            ttl,
            rate_error_millionths: 10_000,
            granularity: Duration::from_millis(1),
            stop_grace: Duration::from_secs(2),
            kill_margin: Duration::from_millis(500),
            renewal: ttl / 5,
        }
    }

    /// The defaults for a store: as [`Timing::with_ttl`], but renewals no closer than the store can count them.
    pub fn for_store(ttl: Duration, profile: &Profile) -> Timing {
        let timing = Timing::with_ttl(ttl);
        Timing { renewal: timing.renewal.max(timing.spacing(profile)), ..timing }
    }

    /// H: the time for which, after a request left, its sender may rely on the lease that the request granted.
    ///
    /// `H = T·(1-ρ)/(1+ρ) - g`, and zero where that is negative. The lease is free no earlier than T/(1+ρ) of true time
    /// after the request left, by anybody's count; belief ends after H/(1-ρ) of true time at the latest.
    pub fn validity(&self) -> Duration {
        self.validity_at(self.rate_error_millionths)
    }

    pub(crate) fn validity_at(&self, rate_error_millionths: u32) -> Duration {
        let error = u64::from(rate_error_millionths).min(MILLION);
        let scaled = micros(self.ttl) as u128 * u128::from(MILLION - error) / u128::from(MILLION + error);
        let scaled = u64::try_from(scaled).expect("no more than the time to live, which fits");
        Duration::from_micros(scaled).saturating_sub(self.granularity)
    }

    /// s + k: the time before the end of its validity at which a leader begins to stop.
    pub fn stop_before_end(&self) -> Duration {
        self.stop_grace + self.kill_margin
    }

    /// Time after which an unanswered or refused request is repeated.
    pub fn retry(&self) -> Duration {
        self.renewal / 4
    }

    /// Time that a driver waits for an answer before it says that the outcome is unknown: so that two lost renewals in
    /// a row, each repeated after [`Self::retry`], depose nobody.
    pub fn patience(&self) -> Duration {
        self.renewal / 2
    }

    /// Least time between two renewals, so that each is counted: for relayed ones a tick of the store, on any clock.
    pub fn spacing(&self, profile: &Profile) -> Duration {
        match profile.renewal {
            Renewal::Committed | Renewal::LeaderMemory => Duration::ZERO,
            Renewal::Relayed => {
                let error = u64::from(self.rate_error_millionths).min(MILLION - 1);
                let scaled =
                    micros(profile.hold_off) as u128 * u128::from(MILLION + error) / u128::from(MILLION - error);
                Duration::from_micros(u64::try_from(scaled).unwrap_or(u64::MAX)) + self.granularity
            }
        }
    }

    /// Refuses times with which a leader could not stop before its lease ends, or would lose it to one lost renewal.
    ///
    /// # Errors
    /// H < s + k + 3r; a time to live below the store's least; a rate error of 100 % or more; renewals all the time, or
    /// closer together than the store can count them. The error shows the sum.
    pub fn check(&self, profile: &Profile) -> Result<(), Misfit> {
        if u64::from(self.rate_error_millionths) >= MILLION {
            return Err(Misfit("the clock rate error is 100 % or more: a real one is about 1 %".into()));
        }
        if self.ttl > TTL_MAX {
            return Err(Misfit(format!("the time to live {:?} is above a year", self.ttl)));
        }
        if self.ttl < profile.ttl_min {
            return Err(Misfit(format!(
                "the time to live {:?} is below {:?}, the least that {} grants: raise the time to live",
                self.ttl, profile.ttl_min, profile.name
            )));
        }
        let spacing = self.spacing(profile).max(Duration::from_millis(1));
        if self.renewal < spacing {
            return Err(Misfit(format!(
                "a renewal every {:?} is closer than {spacing:?}, below which {} cannot count them: renew less often",
                self.renewal, profile.name
            )));
        }
        let (validity, parts) =
            (self.validity(), [self.stop_grace, self.kill_margin, self.renewal, self.renewal, self.renewal]);
        let needed = parts.iter().try_fold(Duration::ZERO, |sum, part| sum.checked_add(*part)).unwrap_or(Duration::MAX);
        if validity < needed {
            let percent = f64::from(self.rate_error_millionths) / 10_000.0;
            return Err(Misfit(format!(
                "the lease is too short: a leader may rely on {validity:?} (time to live {:?}, clocks within {percent} %, \
                 steps of {:?}), and needs {needed:?} (stop grace {:?} + kill margin {:?} + 3 renewals every {:?}): \
                 raise the time to live, or lower one of the others",
                self.ttl, self.granularity, self.stop_grace, self.kill_margin, self.renewal
            )));
        }
        Ok(())
    }
}

/// A duration in whole microseconds; what does not fit is the largest number.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_seconds_are_good_for_nine_point_eight() {
        let timing = Timing::default();
        assert_eq!(timing.validity(), Duration::from_micros(9_800_980));
        assert_eq!(timing.check(&Profile::HUSTINGS), Ok(()));
    }

    #[test]
    fn a_lease_too_short_to_stop_in_is_refused_with_the_sum() {
        let refused = Timing::with_ttl(Duration::from_secs(5)).check(&Profile::HUSTINGS).unwrap_err().0;
        for part in ["4.89999s", "5.5s", "2s", "500ms", "1s", "raise"] {
            assert!(refused.contains(part), "{part} is missing in: {refused}");
        }
    }

    #[test]
    fn belief_ends_before_the_lease_on_the_worst_clocks() {
        // Method: the holder's clock is as slow, the store's as fast as allowed; compare in true time, in picoseconds.
        for ttl in [1_001, 9_999, 10_000, 86_400_000] {
            for rate in [0, 1, 10_000, 333_333] {
                let ttl = Duration::from_millis(ttl);
                let timing =
                    Timing { rate_error_millionths: rate, granularity: Duration::ZERO, ..Timing::with_ttl(ttl) };
                let (held, freed) = (micros(timing.validity()) as u128, micros(ttl) as u128);
                let (slow, fast) = (u128::from(1_000_000 - rate), u128::from(1_000_000 + rate));
                assert!(held * fast <= freed * slow, "{timing:?}");
            }
        }
    }

    #[test]
    fn renewals_that_a_store_cannot_count_are_refused() {
        let timing = Timing::with_ttl(Duration::from_secs(10));
        assert!(timing.check(&Profile::ZOOKEEPER).unwrap_err().0.contains("renew less often"));
        assert_eq!(Timing::for_store(Duration::from_secs(10), &Profile::ZOOKEEPER).check(&Profile::ZOOKEEPER), Ok(()));
    }

    #[test]
    fn no_time_whatever_panics() {
        for duration in [Duration::ZERO, Duration::from_micros(1), Duration::MAX] {
            for rate in [0, 1_000_000, u32::MAX] {
                let timing = Timing {
                    rate_error_millionths: rate,
                    granularity: duration,
                    stop_grace: duration,
                    kill_margin: duration,
                    renewal: duration,
                    ttl: duration,
                };
                let _ = (timing.validity(), timing.check(&Profile::ZOOKEEPER), timing.check(&Profile::HUSTINGS));
            }
        }
    }
}
