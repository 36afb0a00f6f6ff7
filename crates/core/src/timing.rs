//! Heartbeat and election ranges, and when they make sense: [`Timing`].

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The heartbeat interval of a leader, and the silence that followers tolerate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Timing {
    /// A leader speaks at least this often.
    pub heartbeat: Duration,
    /// The shortest silence after which a follower may campaign; also the period of a leader's quorum check.
    pub election_min: Duration,
    /// The longest silence; hosts draw the real one between both.
    pub election_max: Duration,
}

impl Default for Timing {
    /// 50 ms and 250 to 500 ms.
    fn default() -> Timing {
        Timing::new(Duration::from_millis(50), Duration::from_millis(250))
    }
}

/// A pair of ranges that cannot work, or will not work well; says the arithmetic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misfit(pub String);

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The longest that the shortest silence may be; the longest may be twice that. Nobody waits longer for a leader, and sums of it stay far
/// from where a clock ends.
const ELECTION_MAX: Duration = Duration::from_secs(86_400);

impl Timing {
    /// A heartbeat period and an election timeout, meaning `election` to twice `election` as in etcd.
    pub fn new(heartbeat: Duration, election: Duration) -> Timing {
        Timing { heartbeat, election_min: election, election_max: election * 2 }
    }

    /// The range from which an election timer is drawn.
    pub fn election(&self) -> RangeInclusive<Duration> {
        self.election_min..=self.election_max
    }

    /// Refuses ranges that can never work: a zero heartbeat, an empty range, more than a day, an election timeout below three heartbeats (UP-06).
    pub fn check(&self) -> Result<(), Misfit> {
        if self.heartbeat.is_zero() {
            return Err(Misfit("the heartbeat interval is zero: give it at least 1 ms".into()));
        }
        let bounds = [(self.election_min, ELECTION_MAX), (self.election_max, ELECTION_MAX * 2)];
        if let Some((found, longest)) = bounds.into_iter().find(|(found, longest)| found > longest) {
            return Err(Misfit(format!("an election timeout of {found:?} is too long: give at most {longest:?}")));
        }
        if self.election_min >= self.election_max {
            let (low, high) = (self.election_min, self.election_max);
            return Err(Misfit(format!(
                "the election range {low:?}..{high:?} is empty: without a spread all nodes campaign at once"
            )));
        }
        if self.election_min < self.heartbeat * 3 {
            let (election, heartbeat) = (self.election_min, self.heartbeat);
            return Err(Misfit(format!(
                "the election timeout ({election:?}) is below three heartbeat intervals (3 × {heartbeat:?}): one late heartbeat would depose a healthy leader"
            )));
        }
        Ok(())
    }

    /// Finds ranges that work badly with this round trip and flush time, both measured under load.
    ///
    /// Source: TRex article, "Leader Failover Timeouts": minimum > 3.5 round trips + flush; spread > 10 round trips.
    pub fn warnings(&self, round_trip: Duration, flush: Duration) -> Vec<Misfit> {
        let mut found = Vec::new();
        let needed = round_trip * 7 / 2 + flush;
        if self.election_min <= needed {
            found.push(Misfit(format!(
                "the election timeout ({:?}) is not above 3.5 × round trip ({round_trip:?}) + flush ({flush:?}) = {needed:?}",
                self.election_min
            )));
        }
        let spread = self.election_max.saturating_sub(self.election_min);
        if spread <= round_trip * 10 {
            found.push(Misfit(format!(
                "the election spread ({spread:?}) is not above 10 × round trip ({round_trip:?}) = {:?}",
                round_trip * 10
            )));
        }
        found
    }

    /// Ranges for a network with this round trip and a disk with this flush time that keep the rule twice over, with
    /// the shortest election timeout within `bounds`.
    ///
    /// The heartbeat is a fifth of the lower bound whatever was measured: members measure differently, and none may
    /// depose a leader because the two disagree about the network.
    ///
    /// Source: TRex article, "Leader Failover Timeouts".
    pub fn fitting(round_trip: Duration, flush: Duration, bounds: &RangeInclusive<Duration>) -> Timing {
        let needed = (round_trip * 7 / 2 + flush) * 2;
        let election_min = needed.min(*bounds.end()).max(*bounds.start()).min(ELECTION_MAX);
        // A round trip beyond the bounds is no distance that a cluster can be led over.
        let spread = election_min.max(round_trip.min(*bounds.end()) * 20);
        let election_max = (election_min + spread).min(ELECTION_MAX * 2);
        Timing { heartbeat: *bounds.start() / 5, election_min, election_max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_default_works_on_a_local_network() {
        let timing = Timing::default();
        assert_eq!(timing.check(), Ok(()));
        assert_eq!(timing.warnings(MS / 2, 5 * MS), vec![]);
    }

    #[test]
    fn what_cannot_work_is_refused_with_the_arithmetic() {
        assert!(Timing::new(Duration::ZERO, 100 * MS).check().is_err());
        assert!(Timing::new(50 * MS, 149 * MS).check().unwrap_err().0.contains("three heartbeat intervals"));
        let endless = Timing::new(Duration::from_millis(u64::MAX / 10), Duration::from_millis(u64::MAX));
        assert!(endless.check().unwrap_err().0.contains("give at most 86400s"));
        let flat = Timing { election_max: 250 * MS, ..Timing::default() };
        assert!(flat.check().unwrap_err().0.contains("empty"));
    }

    #[test]
    fn what_fits_draws_no_warning_and_stays_within_bounds() {
        let bounds = 100 * MS..=5_000 * MS;
        for (round_trip, flush) in [(MS / 10, MS), (80 * MS, 10 * MS), (300 * MS, 200 * MS)] {
            let timing = Timing::fitting(round_trip, flush, &bounds);
            assert_eq!((timing.check(), timing.warnings(round_trip, flush)), (Ok(()), vec![]));
            assert!(bounds.contains(&timing.election_min), "{timing:?}");
        }
        assert_eq!(Timing::fitting(MS / 10, MS, &bounds).election_min, 100 * MS);
        assert_eq!(Timing::fitting(4_000 * MS, MS, &bounds).election_min, 5_000 * MS);
        let hour = Timing::fitting(3_600_000 * MS, MS, &bounds);
        assert_eq!(hour.election_max, 105_000 * MS);
    }

    #[test]
    fn a_slow_network_draws_both_warnings() {
        assert_eq!(Timing::default().warnings(80 * MS, 10 * MS).len(), 2);
    }
}
