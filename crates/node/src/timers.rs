//! Timers on the machine's monotonic clock: [`Timers`].

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;
use tokio::time::Instant;

/// The armed timers and their deadlines. A timer that is armed again or disarmed never fires at its old time.
pub(crate) struct Timers<T> {
    armed: BTreeMap<T, Instant>,
    /// The earliest of them, kept so that the common case, re-arming a later one, does not search.
    earliest: Option<Instant>,
}

impl<T: Ord + Copy> Timers<T> {
    pub(crate) fn new() -> Timers<T> {
        Timers { armed: BTreeMap::new(), earliest: None }
    }

    /// Arms `timer`, at a time drawn from the range.
    pub(crate) fn arm(&mut self, timer: T, after: &RangeInclusive<Duration>, now: Instant) {
        let (low, high) = (*after.start(), *after.end());
        let jitter = if high > low { rand::random_range(Duration::ZERO..=high - low) } else { Duration::ZERO };
        let at = now + low + jitter;
        let before = self.armed.insert(timer, at);
        if before.is_some() && before == self.earliest {
            self.search();
        } else {
            self.earliest = Some(self.earliest.map_or(at, |earliest| earliest.min(at)));
        }
    }

    /// Disarms `timer`; it does not fire any more.
    pub(crate) fn disarm(&mut self, timer: T) {
        let before = self.armed.remove(&timer);
        if before.is_some() && before == self.earliest {
            self.search();
        }
    }

    fn search(&mut self) {
        self.earliest = self.armed.values().min().copied();
    }

    /// Deadline of the next timer; `None` if none is armed.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.earliest
    }

    /// Takes the timer that is overdue the longest.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<T> {
        if self.earliest.is_none_or(|earliest| earliest > now) {
            return None;
        }
        let (timer, _) = self.armed.iter().min_by_key(|(_, at)| **at).map(|(timer, at)| (*timer, *at))?;
        self.armed.remove(&timer);
        self.search();
        Some(timer)
    }
}

/// The clock that leases are measured by (TM-02).
pub(crate) use hustings_recorder::boot_micros;

/// Changes how eagerly the kernel runs this thread, by this many steps of niceness, where it is allowed: less is sooner.
///
/// The disk thread's syncs and the loop's elections should not queue behind this machine's other work: beside two busy
/// processes a sync of 0.1 ms was seen to take 8 ms, nearly all of it waiting for a processor. Without the privilege nothing
/// changes and nothing is lost.
pub(crate) fn prefer_this_thread(steps: i32) -> bool {
    let changed = rustix::process::nice(steps);
    if let Err(error) = &changed {
        tracing::debug!("thread priority stays as it is: {error}");
    }
    changed.is_ok()
}

/// The eagerness with which the kernel runs the loop's thread.
///
/// With few requests the loop is eager: a heartbeat or an election should not queue behind this machine's other work. With
/// many it is not: an eager thread is run the moment anything arrives, in the middle of its own clients' threads, and so
/// takes few inputs per turn; that costs a fifth of the puts at 256 clients (19,700 instead of 24,700 per second, each for
/// 68 us of processor time instead of 54).
pub(crate) struct Eagerness {
    is_eager: bool,
    /// Whether the kernel lets this thread be eager.
    is_allowed: bool,
}

impl Eagerness {
    const STEPS: i32 = -5;

    /// The eagerness of the present thread, which begins without requests.
    pub(crate) fn of_this_thread() -> Eagerness {
        let is_allowed = prefer_this_thread(Eagerness::STEPS);
        Eagerness { is_eager: true, is_allowed }
    }

    pub(crate) fn set(&mut self, is_eager: bool) {
        if self.is_allowed && self.is_eager != is_eager {
            self.is_eager = is_eager;
            prefer_this_thread(if is_eager { Eagerness::STEPS } else { -Eagerness::STEPS });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(now: Instant, millis: u64) -> (RangeInclusive<Duration>, Instant) {
        let after = Duration::from_millis(millis);
        (after..=after, now + after)
    }

    #[test]
    fn a_timer_that_is_armed_again_or_disarmed_never_fires_at_its_old_time() {
        let now = Instant::now();
        let mut timers = Timers::new();
        let (soon, soon_at) = at(now, 10);
        let (late, late_at) = at(now, 20);
        timers.arm("election", &soon, now);
        timers.arm("heartbeat", &soon, now);
        timers.arm("election", &late, now);
        timers.disarm("heartbeat");
        assert_eq!((timers.next(), timers.take_due(soon_at)), (Some(late_at), None));
        assert_eq!((timers.take_due(late_at), timers.next()), (Some("election"), None));
    }

    #[test]
    fn timers_fire_in_the_order_of_their_times() {
        let now = Instant::now();
        let mut timers = Timers::new();
        for (name, millis) in [("c", 30), ("a", 10), ("b", 20)] {
            timers.arm(name, &at(now, millis).0, now);
        }
        let late = now + Duration::from_secs(1);
        let order: Vec<_> = std::iter::from_fn(|| timers.take_due(late)).collect();
        assert_eq!(order, ["a", "b", "c"]);
    }

    #[test]
    fn a_drawn_time_lies_in_its_range() {
        let now = Instant::now();
        for _ in 0..100 {
            let mut timers = Timers::new();
            timers.arm((), &(Duration::from_millis(5)..=Duration::from_millis(9)), now);
            let drawn = timers.next().unwrap() - now;
            assert!(drawn >= Duration::from_millis(5) && drawn <= Duration::from_millis(9));
        }
    }
}
