//! Calls that took long, told to the log as etcd tells them: [`SlowCalls`].
//!
//! A member with too much to do has thousands of them a second, and a log that grows with the load is load itself. So a line is written
//! once a second at most, with the number of those that were left out since the last one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pause between two lines, milliseconds.
const PAUSE_MILLIS: u64 = 1_000;

/// Methods whose callers ask to wait.
const WAITING: [&str; 2] = ["/v3electionpb.Election/Campaign", "/v3lockpb.Lock/Lock"];

/// Tells the log of calls that took long.
pub(crate) struct SlowCalls {
    /// How long a call may take; zero: nothing is told.
    limit: Duration,
    started: Instant,
    /// Milliseconds from the start after which the next line may be written.
    next_millis: AtomicU64,
    /// Slow calls of which nothing was told since the last line.
    untold: AtomicU64,
}

impl SlowCalls {
    /// Tells of calls that take this long; of none if it is zero.
    pub(crate) fn new(limit: Duration) -> SlowCalls {
        SlowCalls { limit, started: Instant::now(), next_millis: AtomicU64::new(0), untold: AtomicU64::new(0) }
    }

    /// Takes the end of a call that has one answer.
    pub(crate) fn on_answer(&self, method: &str, code: usize, took: Duration) {
        if self.limit.is_zero() || took < self.limit || WAITING.contains(&method) {
            return;
        }
        if let Some(others) = self.others_if_due(self.started.elapsed()) {
            let (took_ms, expected_ms) = (took.as_secs_f64() * 1e3, self.limit.as_secs_f64() * 1e3);
            tracing::warn!(method, code, took_ms, expected_ms, others, "a request took too long");
        }
    }

    /// The number of slow calls since the last line, if the next one is due; else this one is counted.
    fn others_if_due(&self, now: Duration) -> Option<u64> {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let next = self.next_millis.load(Ordering::Relaxed);
        let then = now.saturating_add(PAUSE_MILLIS);
        // Of several at once one writes the line.
        let is_mine =
            now >= next && self.next_millis.compare_exchange(next, then, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !is_mine {
            self.untold.fetch_add(1, Ordering::Relaxed);
        }
        is_mine.then(|| self.untold.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_second_tells_how_many_were_left_out() {
        let slow = SlowCalls::new(Duration::from_millis(300));
        let at = |millis| slow.others_if_due(Duration::from_millis(millis));
        assert_eq!([at(0), at(1), at(999)], [Some(0), None, None]);
        assert_eq!([at(1_000), at(1_500), at(9_000)], [Some(2), None, Some(1)]);
    }
}
