//! Measures how fast network and disk are while the node works: [`Pace`], and what follows for the timing.
//!
//! A round trip goes from loop to loop, through both queues, so that it contains what load does to it. Every two seconds each
//! peer is asked for one; the disk's flushes are counted anyway. Of both the last minute counts: the slowest
//! hundredth of flushes, and the slowest round trip but for one in twenty.
//!
//! Source: TRex article, "Leader Failover Timeouts"; the arithmetic is [`Timing::warnings`] and [`Timing::fitting`].

use crate::config::TimingMode;
use crate::counters::{Counters, SYNC_BUCKETS_MICROS, micros};
use hustings_core::{Timing, timing::Misfit};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Sweeps of the loop between two questions to the peers.
const ASK_EVERY: u64 = 4;
/// Sweeps between two looks at what was measured.
const LOOK_EVERY: u64 = 20;
/// Round trips that are remembered: a minute of two peers, and more of fewer.
const ROUND_TRIPS_MAX: usize = 60;
/// Round trips without which nothing is said.
const ROUND_TRIPS_MIN: usize = 8;
/// Looks that are remembered of the disk: a minute.
const WINDOWS_MAX: usize = 6;

type Buckets = [u64; SYNC_BUCKETS_MICROS.len() + 1];

/// The latest measurements of network and disk.
pub(crate) struct Pace {
    mode: TimingMode,
    timing: Timing,
    round_trips: VecDeque<u64>,
    /// The disk's counts at the last looks, oldest first.
    windows: VecDeque<Buckets>,
    sweeps: u64,
    told: Vec<Misfit>,
}

/// The result of a look at the measurements.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Finding {
    /// Warnings that were not given yet.
    pub(crate) warnings: Vec<Misfit>,
    /// Ranges to take from now on.
    pub(crate) timing: Option<Timing>,
}

impl Pace {
    pub(crate) fn new(mode: TimingMode, timing: Timing) -> Pace {
        Pace { mode, timing, round_trips: VecDeque::new(), windows: VecDeque::new(), sweeps: 0, told: Vec::new() }
    }

    /// The loop sweeps; says whether peers are to be asked.
    pub(crate) fn on_sweep(&mut self) -> bool {
        self.sweeps += 1;
        self.sweeps.is_multiple_of(ASK_EVERY)
    }

    /// Notes a round trip to a peer, in microseconds.
    pub(crate) fn on_round_trip(&mut self, micros: u64) {
        if self.round_trips.len() >= ROUND_TRIPS_MAX {
            self.round_trips.pop_front();
        }
        self.round_trips.push_back(micros);
    }

    /// A look at what was measured, now and then.
    pub(crate) fn look(&mut self, counters: &Counters) -> Option<Finding> {
        if !self.sweeps.is_multiple_of(LOOK_EVERY) {
            return None;
        }
        let now = std::array::from_fn(|bucket| counters.syncs[bucket].load(Ordering::Relaxed));
        let flush = Duration::from_micros(slowest_flush(self.windows.front().unwrap_or(&[0; _]), &now));
        if self.windows.len() >= WINDOWS_MAX {
            self.windows.pop_front();
        }
        self.windows.push_back(now);
        if self.round_trips.len() < ROUND_TRIPS_MIN {
            return None;
        }
        let mut sorted: Vec<u64> = self.round_trips.iter().copied().collect();
        sorted.sort_unstable();
        // Slower ones were a pause of somebody: of a few, one, and of a minute of two peers, three.
        let round_trip_micros = sorted[(sorted.len() - 1) * 19 / 20];
        let round_trip = Duration::from_micros(round_trip_micros);
        counters.round_trip_micros.store(round_trip_micros, Ordering::Relaxed);
        counters.flush_micros.store(micros(flush), Ordering::Relaxed);
        Some(self.judge(round_trip, flush))
    }

    fn judge(&mut self, round_trip: Duration, flush: Duration) -> Finding {
        let mut finding = Finding::default();
        if let TimingMode::Auto { election_min } = &self.mode {
            let fitting = Timing::fitting(round_trip, flush, election_min);
            let (old, new) = (self.timing.election_min, fitting.election_min);
            // Not for every breath of the network.
            if new > old * 5 / 4 || new < old * 3 / 4 || fitting.heartbeat != self.timing.heartbeat {
                self.timing = fitting;
                finding.timing = Some(fitting);
            }
        }
        let warnings = self.timing.warnings(round_trip, flush);
        let is_new = |warning: &&Misfit| !self.told.iter().any(|told| kind_of(told) == kind_of(warning));
        finding.warnings = warnings.iter().filter(is_new).cloned().collect();
        self.told = warnings;
        finding
    }
}

/// The rule that is broken, without the figures.
fn kind_of(misfit: &Misfit) -> &str {
    misfit.0.split('(').next().unwrap_or_default()
}

/// The bound below which all but a hundredth of the flushes between two counts lie, in microseconds.
fn slowest_flush(before: &Buckets, now: &Buckets) -> u64 {
    let counts: Vec<u64> = now.iter().zip(before).map(|(now, before)| now.saturating_sub(*before)).collect();
    let total: u64 = counts.iter().sum();
    let mut seen = 0;
    for (bucket, count) in counts.iter().enumerate() {
        seen += count;
        if total > 0 && seen * 100 >= total * 99 {
            let last = SYNC_BUCKETS_MICROS[SYNC_BUCKETS_MICROS.len() - 1] * 2;
            return SYNC_BUCKETS_MICROS.get(bucket).copied().unwrap_or(last);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn after_a_minute(mode: TimingMode, round_trip: Duration, flush: Duration) -> (Pace, Vec<Finding>) {
        let (counters, mut findings) = (Counters::default(), Vec::new());
        let mut pace = Pace::new(mode, Timing::default());
        for _ in 0..120 {
            if pace.on_sweep() {
                pace.on_round_trip(round_trip.as_micros() as u64);
                counters.on_sync(flush);
            }
            findings.extend(pace.look(&counters));
        }
        (pace, findings)
    }

    #[test]
    fn a_good_network_draws_no_warning() {
        let (_, findings) = after_a_minute(TimingMode::Fixed, MS / 5, MS);
        assert!(!findings.is_empty() && findings.iter().all(|finding| *finding == Finding::default()));
    }

    #[test]
    fn a_slow_network_is_told_once_with_the_arithmetic() {
        let (_, findings) = after_a_minute(TimingMode::Fixed, 90 * MS, 12 * MS);
        let warnings: Vec<&Misfit> = findings.iter().flat_map(|finding| &finding.warnings).collect();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].0.contains("3.5 × round trip (90ms) + flush (16ms) = 331ms"), "{}", warnings[0]);
        assert!(findings.iter().all(|finding| finding.timing.is_none()), "fixed is fixed");
    }

    #[test]
    fn auto_takes_what_fits_within_its_bounds_and_then_rests() {
        let (pace, findings) = after_a_minute(TimingMode::Auto { election_min: 100 * MS..=400 * MS }, 40 * MS, 12 * MS);
        let taken: Vec<Timing> = findings.iter().filter_map(|finding| finding.timing).collect();
        assert_eq!(taken.len(), 1);
        assert_eq!((taken[0].heartbeat, taken[0].election_min), (20 * MS, 312 * MS));
        assert!(pace.timing.warnings(40 * MS, 16 * MS).is_empty());
        let (_, findings) = after_a_minute(TimingMode::Auto { election_min: 100 * MS..=400 * MS }, 200 * MS, 12 * MS);
        assert!(findings.iter().any(|finding| !finding.warnings.is_empty()), "bounds that are too tight are told");
    }
}
