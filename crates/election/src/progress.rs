//! Whether the work of a leader goes on: [`Ticker`].
//!
//! A process whose work hangs renews its lease all the same, for the renewals have a thread of their own. With
//! [`crate::Named::progress`] they depend on the work: it ticks, or its leadership ends.

use crate::clock::{boot_micros, micros};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// Says that the work of a candidate goes on. Clones tell of the same work, and may be given to the threads that do it.
#[derive(Clone, Debug)]
pub struct Ticker(Arc<Progress>);

#[derive(Debug)]
struct Progress {
    /// The longest that may pass between two ticks of a leader; `None`: as long as it likes.
    at_most: Option<Duration>,
    /// The last tick, in microseconds of boot time.
    ticked_micros: AtomicU64,
    /// A leadership was lost, and nothing has ticked since.
    is_stalled: watch::Sender<bool>,
}

impl Ticker {
    pub(crate) fn new(at_most: Option<Duration>) -> Ticker {
        let (ticked_micros, is_stalled) = (AtomicU64::new(0), watch::Sender::new(false));
        Ticker(Arc::new(Progress { at_most, ticked_micros, is_stalled }))
    }

    /// The work has come a step further. Costs an atomic and the clock; without [`crate::Named::progress`] it is of no use and
    /// does no harm.
    pub fn tick(&self) {
        self.0.ticked_micros.fetch_max(boot_micros(), Ordering::AcqRel);
        if *self.0.is_stalled.borrow() {
            self.0.is_stalled.send_replace(false);
        }
    }

    /// A tenure begins: the moment at which a tick must have come, if one must.
    pub(crate) fn begin(&self) -> Option<u64> {
        let at_most = self.0.at_most?;
        let now = boot_micros();
        self.0.ticked_micros.fetch_max(now, Ordering::AcqRel);
        Some(now.saturating_add(micros(at_most)))
    }

    /// A moment at which a tick must have come is there: the next such moment, or `None` if it did not come.
    pub(crate) fn next_look(&self, due: u64, now: u64) -> Option<u64> {
        let at_most = micros(self.0.at_most?);
        let next = self.0.ticked_micros.load(Ordering::Acquire).saturating_add(at_most);
        if next > now {
            return Some(next);
        }
        // The whole process stood still, or its machine: nobody could have ticked.
        if now - due > at_most / 2 {
            return Some(now.saturating_add(at_most));
        }
        self.0.is_stalled.send_replace(true);
        // A tick of this moment may have seen that nothing was stalled, and be the last one.
        if self.0.ticked_micros.load(Ordering::Acquire).saturating_add(at_most) > now {
            self.0.is_stalled.send_replace(false);
        }
        None
    }

    pub(crate) fn is_stalled(&self) -> bool {
        *self.0.is_stalled.borrow()
    }

    /// Waits until the work ticks again that has lost a leadership.
    pub(crate) async fn goes_on(&self) {
        let mut stalled = self.0.is_stalled.subscribe();
        // This value holds the other end.
        let _ = stalled.wait_for(|is_stalled| !is_stalled).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = 1_000_000_000;

    fn begun() -> (Ticker, u64) {
        let ticker = Ticker::new(Some(Duration::from_micros(STEP)));
        let due = ticker.begin().expect("there is a gate");
        (ticker, due)
    }

    #[test]
    fn who_ticks_in_time_is_looked_at_again_and_who_does_not_has_stalled() {
        let (ticker, due) = begun();
        ticker.tick();
        assert!(ticker.next_look(due - 1, due - 1).is_some_and(|next| next >= due) && !ticker.is_stalled());
        assert!(ticker.next_look(due + 1_000_000, due + 1_000_000).is_none() && ticker.is_stalled());
        ticker.tick();
        assert!(!ticker.is_stalled(), "it goes on");
    }

    #[test]
    fn who_stood_still_as_a_whole_gets_its_time_anew() {
        let (ticker, due) = begun();
        let woke = due + STEP * 3;
        assert_eq!(ticker.next_look(due, woke), Some(woke + STEP));
        assert!(ticker.next_look(woke + STEP, woke + STEP + 1).is_none(), "once");
    }

    #[test]
    fn who_may_tick_whenever_it_likes_is_never_looked_at() {
        let ticker = Ticker::new(Some(Duration::MAX));
        assert_eq!(ticker.begin(), Some(u64::MAX));
        assert_eq!(ticker.next_look(5, boot_micros()), Some(u64::MAX));
    }

    #[test]
    fn without_a_gate_nothing_is_looked_at() {
        assert_eq!(Ticker::new(None).begin(), None);
    }
}
