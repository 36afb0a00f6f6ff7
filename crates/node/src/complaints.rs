//! A port's log lines about callers that it turns away: [`Complaints`].
//!
//! A stranger decides how often it comes and, by its name, what is said of it. So each thing is told once for as long as it
//! goes on, with a count, and only a bounded number of different things at a time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Pause before the same thing is told again.
const TELL_INTERVAL: Duration = Duration::from_secs(10);
/// Different things that are told within one interval.
const DIFFERENT_MAX: usize = 8;

/// The refusals that a port has logged, and how many like them it has not.
#[derive(Debug)]
pub struct Complaints {
    of: &'static str,
    told: BTreeMap<String, LastLine>,
}

#[derive(Debug)]
struct LastLine {
    at: Instant,
    since: u64,
}

impl Complaints {
    /// Begins with nobody turned away; `of` names the callers in log lines.
    pub fn new(of: &'static str) -> Complaints {
        Complaints { of, told: BTreeMap::new() }
    }

    /// Tells the operator, unless the same was told a moment ago, or too many other things.
    pub fn tell(&mut self, from: SocketAddr, why: &str) {
        if let Some(count) = self.count(why, Instant::now()) {
            // It stays one line, whatever a stranger says of itself.
            let why = why.replace(char::is_control, " ");
            tracing::warn!(%from, count, "{} was turned away: {why}", self.of);
        }
    }

    /// Number of refusals that the line stands for; `None` if it is not written now.
    fn count(&mut self, why: &str, now: Instant) -> Option<u64> {
        // Times and ports differ from one to the next, and it is the same thing.
        let key: String = why.chars().filter(|character| !character.is_ascii_digit()).collect();
        let is_over = |told: &LastLine| now.duration_since(told.at) >= TELL_INTERVAL;
        if let Some(told) = self.told.get_mut(&key) {
            told.since += 1;
            if !is_over(told) {
                return None;
            }
            told.at = now;
            return Some(std::mem::take(&mut told.since));
        }
        if self.told.len() >= DIFFERENT_MAX {
            self.told.retain(|_, told| !is_over(told));
        }
        if self.told.len() >= DIFFERENT_MAX {
            return None;
        }
        self.told.insert(key, LastLine { at: now, since: 0 });
        Some(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_told_of_in_few_lines() {
        let (mut complaints, start) = (Complaints::new("somebody"), Instant::now());
        let second = Duration::from_secs(1);
        assert_eq!(complaints.count("it speaks no TLS", start), Some(1));
        assert!((0..1_000).all(|_| complaints.count("it speaks no TLS", start + second).is_none()));
        assert_eq!(complaints.count("it speaks no TLS", start + 10 * second), Some(1_001), "with a count");

        let names = (0..1_000).filter(|name| complaints.count(&"x".repeat(*name), start + second).is_some());
        assert_eq!(names.count(), 7, "who takes another name each time is not told of each time");
        assert_eq!(complaints.count("it expired 7 seconds ago", start + 21 * second), Some(1));
        assert_eq!(complaints.count("it expired 8 seconds ago", start + 22 * second), None, "the same");
        assert!(complaints.told.len() < 3, "and not remembered");
    }
}
