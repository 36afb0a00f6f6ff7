//! An application's own report of its health, and how long its candidate stands back: [`Condition`].

use crate::clock::{boot_micros, micros, sleep_until};
use crate::engine::Order;
use crate::seat::Key;
use hustings_lease::Input;
use hustings_lease::candidate::Health;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, WeakUnboundedSender};
use tokio::sync::watch;

/// The condition of one application, shared by all campaigns of its candidate. It outlives them: a candidate that was unhealthy
/// when its leadership ended is unhealthy at the next campaign, too.
#[derive(Clone, Debug)]
pub(crate) struct Condition(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: watch::Sender<State>,
    /// Candidates that stand, or wait for their turn to stand, and the way to each.
    standing: Mutex<Vec<(Key, WeakUnboundedSender<Order>)>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    is_healthy: bool,
    /// Moment of boot time before which it does not stand for election, in microseconds.
    rests_until_micros: u64,
}

impl Condition {
    /// Healthy, until somebody says otherwise.
    pub(crate) fn new() -> Condition {
        let state = watch::Sender::new(State { is_healthy: true, rests_until_micros: 0 });
        Condition(Arc::new(Shared { state, standing: Mutex::default() }))
    }

    fn standing(&self) -> MutexGuard<'_, Vec<(Key, WeakUnboundedSender<Order>)>> {
        self.0.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The application says how it is; each of its candidates hears news.
    pub(crate) fn say(&self, is_healthy: bool) {
        let standing = self.standing();
        let is_news =
            self.0.state.send_if_modified(|state| std::mem::replace(&mut state.is_healthy, is_healthy) != is_healthy);
        if is_news {
            for (key, orders) in standing.iter() {
                if let Some(orders) = orders.upgrade() {
                    // An engine that has ended has no candidates.
                    let _ = orders.send(Order::Input(*key, self.input()));
                }
            }
        }
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.0.state.borrow().is_healthy
    }

    /// The same, as a candidate is told.
    pub(crate) fn input(&self) -> Input {
        Input::Health(if self.is_healthy() { Health::Healthy } else { Health::Unhealthy })
    }

    /// From now on it does not stand for election for so long.
    pub(crate) fn rest(&self, time: Duration) {
        let until = boot_micros() + micros(time);
        self.0.state.send_modify(|state| state.rests_until_micros = state.rests_until_micros.max(until));
    }

    /// Time for which it stands back now, healthy or not; `None` if it may stand.
    pub(crate) fn stands_back(&self) -> Option<Duration> {
        let State { is_healthy, rests_until_micros } = *self.0.state.borrow();
        let left = Duration::from_micros(rests_until_micros.saturating_sub(boot_micros()));
        (!is_healthy || !left.is_zero()).then_some(left)
    }

    /// Waits until it may stand.
    pub(crate) async fn may_stand(&self) {
        let mut state = self.0.state.subscribe();
        while let Some(left) = self.stands_back() {
            let until = boot_micros() + micros(left);
            tokio::select! {
                // This value holds the other end.
                _ = state.changed() => {}
                () = sleep_until(until), if !left.is_zero() => {}
            }
        }
    }

    /// A candidate stands: it hears news as long as the presence lives.
    pub(crate) fn present(&self, key: Key, orders: &UnboundedSender<Order>) -> Presence {
        self.standing().push((key, orders.downgrade()));
        Presence { condition: self.clone(), key }
    }
}

/// One candidate that hears of its application's condition.
#[derive(Debug)]
pub(crate) struct Presence {
    pub(crate) condition: Condition,
    key: Key,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.condition.standing().retain(|(key, _)| *key != self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn is_waiting(condition: &Condition) -> bool {
        tokio::select! {
            biased;
            () = condition.may_stand() => false,
            () = std::future::ready(()) => true,
        }
    }

    #[tokio::test]
    async fn who_is_unhealthy_or_rests_does_not_stand_until_both_are_over() {
        // Goal: neither news of health ends a rest, nor the end of a rest makes anybody healthy. Method: what waits is looked at
        // once after each step; the rest is an hour, and is then taken back.
        let condition = Condition::new();
        assert_eq!(condition.stands_back(), None);
        condition.may_stand().await;
        condition.say(false);
        assert_eq!(condition.stands_back(), Some(Duration::ZERO), "until it is healthy");
        assert!(is_waiting(&condition).await);
        condition.rest(Duration::from_secs(3_600));
        condition.say(true);
        assert!(condition.stands_back() > Some(Duration::from_secs(3_500)));
        assert!(is_waiting(&condition).await, "healthy, and standing back");
        let waits = condition.may_stand();
        condition.0.state.send_modify(|state| state.rests_until_micros = 0);
        waits.await;
    }

    #[test]
    fn news_come_to_those_who_stand_and_only_news() {
        let condition = Condition::new();
        let (orders, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let presence = condition.present(Key(7), &orders);
        for is_healthy in [true, false, false, true] {
            condition.say(is_healthy);
        }
        let mut seen = Vec::new();
        while let Ok(Order::Input(key, Input::Health(health))) = heard.try_recv() {
            seen.push((key, health));
        }
        assert_eq!(seen, [(Key(7), Health::Unhealthy), (Key(7), Health::Healthy)]);
        drop(presence);
        condition.say(false);
        assert!(heard.try_recv().is_err(), "it has left");
    }
}
