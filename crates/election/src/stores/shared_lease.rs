//! One lease that all candidates of a process share at a store, and who waits for its renewals: [`SharedLease`].

use crate::clock::{boot_micros, micros};
use crate::seat::{Key, Line};
use hustings_lease::{Answer, Observation};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// A lease as the store granted it; `L` is the store's name for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Held<L> {
    pub(crate) lease: L,
    /// Departure of the last request that is known to have granted or extended it, in microseconds of boot time.
    pub(crate) since_micros: u64,
}

/// The lease of a session. The session's keeper tells it what the store says; candidates ask it for renewals.
pub(crate) struct SharedLease<L> {
    state: Mutex<State<L>>,
    /// Wakes the keeper: a candidate wants a renewal, or doubts the session. It renews, and so finds out.
    demand: Notify,
    /// Departure of the last renewal that was answered, in microseconds; 0 when there is no lease.
    renewed: watch::Sender<u64>,
}

struct State<L> {
    held: Option<Held<L>>,
    /// Departure of the renewal that has no answer yet; `None` if there is none.
    in_flight_micros: Option<u64>,
    /// Somebody wants a renewal that has not left. However many do, one serves them all.
    is_wanted: bool,
    seats: BTreeMap<Key, Line>,
}

impl<L: Clone + PartialEq> SharedLease<L> {
    pub(crate) fn new() -> SharedLease<L> {
        let state = State { held: None, in_flight_micros: None, is_wanted: false, seats: BTreeMap::new() };
        SharedLease { state: Mutex::new(state), demand: Notify::new(), renewed: watch::Sender::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State<L>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn held(&self) -> Option<Held<L>> {
        self.state().held.clone()
    }

    /// Another candidate shares it.
    pub(crate) fn add(&self, line: Line) {
        self.state().seats.insert(line.key, line);
        self.suspect();
    }

    pub(crate) fn remove(&self, key: Key) {
        self.state().seats.remove(&key);
    }

    /// Whether nobody shares it.
    pub(crate) fn is_idle(&self) -> bool {
        self.state().seats.is_empty()
    }

    /// Something speaks against the session, or a renewal is wanted: the keeper finds out.
    pub(crate) fn suspect(&self) {
        self.state().is_wanted = true;
        self.demand.notify_one();
    }

    /// Waits until somebody wants a renewal that has not left yet.
    pub(crate) async fn demanded(&self) {
        while !self.state().is_wanted {
            self.demand.notified().await;
        }
    }

    /// Departure of the last renewal that was answered, in microseconds; 0 while there is no lease.
    pub(crate) fn renewals(&self) -> watch::Receiver<u64> {
        self.renewed.subscribe()
    }

    /// Lets everybody look again: what was seen with a lease, or on a connection, that is gone was perhaps not all.
    pub(crate) fn interrupt(&self) {
        self.state().seats.values().for_each(|seat| seat.saw(Observation::Interrupted));
    }

    // The keeper.

    /// The store granted this lease to a request that left at this moment.
    pub(crate) fn granted(&self, lease: L, sent: u64) {
        let mut state = self.state();
        state.in_flight_micros = None;
        state.held = Some(Held { lease, since_micros: sent });
        self.renewed.send_replace(sent);
    }

    /// A renewal leaves now; gives the moment.
    pub(crate) fn leaves(&self) -> u64 {
        let mut state = self.state();
        let sent = boot_micros();
        (state.in_flight_micros, state.is_wanted) = (Some(sent), false);
        sent
    }

    /// The renewal that left at this moment was answered.
    pub(crate) fn extended(&self, lease: &L, sent: u64) {
        let mut state = self.state();
        state.in_flight_micros = None;
        if let Some(held) = state.held.as_mut().filter(|held| held.lease == *lease) {
            held.since_micros = sent;
            self.renewed.send_replace(sent);
        }
    }

    /// The renewal on its way will have no answer.
    pub(crate) fn unanswered(&self) {
        self.state().in_flight_micros = None;
    }

    /// The store said that this lease is gone, or nobody can say any more that it is not. False if it is known already.
    pub(crate) fn lose(&self, lease: &L) -> bool {
        let mut state = self.state();
        let is_held = state.held.as_ref().is_some_and(|held| held.lease == *lease);
        if is_held {
            (state.held, state.in_flight_micros) = (None, None);
            self.renewed.send_replace(0);
        }
        is_held
    }

    /// The lease, given up: its last renewal that was answered left longer ago than it lives, so that nobody leads by it any more. Requests
    /// that arrive and whose answers come too late would keep it, and with it the place of a candidate that cannot lead.
    pub(crate) fn take_overdue(&self, ttl: Duration) -> Option<L> {
        let held = self.held().filter(|held| held.since_micros.saturating_add(micros(ttl)) < boot_micros())?;
        self.lose(&held.lease).then_some(held.lease)
    }

    // Candidates.

    /// The lease on which a request may stand that is asked for now, and the moment from which that one counts. A lease that is granted
    /// before the request's turn comes was asked for earlier, and would count for too long: the request stands on this one or on none.
    pub(crate) fn footing(&self) -> (Option<L>, u64) {
        self.held().map_or_else(|| (None, boot_micros()), |held| (Some(held.lease), held.since_micros))
    }

    /// Whether this is still the lease of the session.
    pub(crate) fn is_held(&self, lease: &L) -> bool {
        self.held().is_some_and(|held| held.lease == *lease)
    }

    /// The moment from which a renewal counts that is asked for now, and whether its answer is there already: a renewal that
    /// left after `last`, the one that is on its way, or one that leaves at once.
    pub(crate) fn renewal_after(&self, last: u64) -> (u64, bool) {
        let mut state = self.state();
        if let Some(held) = state.held.as_ref().filter(|held| held.since_micros > last) {
            return (held.since_micros, true);
        }
        if let Some(sent) = state.in_flight_micros.filter(|sent| *sent > last) {
            return (sent, false);
        }
        let now = boot_micros();
        state.is_wanted = true;
        self.demand.notify_one();
        (now, false)
    }

    /// The answer of a renewal that counts from this moment to a candidate whose place stands on the lease `own`.
    pub(crate) async fn renewed(
        &self,
        (from, is_answered): (u64, bool),
        patience: Duration,
        own: impl FnOnce() -> Option<L>,
    ) -> Answer {
        let is_renewed = is_answered
            || match timeout(patience, self.renewed_since(from)).await {
                Ok(is_renewed) => is_renewed,
                Err(_) => return Answer::Unknown,
            };
        match is_renewed && own().is_none_or(|own| self.is_held(&own)) {
            true => Answer::Renewed,
            false => Answer::Gone,
        }
    }

    /// Waits for the answer to a renewal that left at this moment or later. False when there is no lease any more.
    async fn renewed_since(&self, sent: u64) -> bool {
        let mut renewed = self.renewed.subscribe();
        let answered = renewed.wait_for(|since| *since == 0 || *since >= sent).await;
        answered.is_ok_and(|since| *since != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the keeper has something to do at this moment.
    async fn is_demanded(lease: &SharedLease<i64>) -> bool {
        tokio::select! {
            biased;
            () = lease.demanded() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn one_renewal_serves_all_who_ask_at_once() {
        // Goal: a renewal is a write at the store, and a thousand candidates of a process cost no more of them than one.
        let lease = SharedLease::new();
        lease.granted(7, boot_micros());
        let last = boot_micros();
        let asked: Vec<u64> = (0..100).map(|_| lease.renewal_after(last).0).collect();
        assert!(is_demanded(&lease).await, "somebody asked");
        let sent = lease.leaves();
        assert!(asked.iter().all(|from| *from <= sent), "nobody counts from before its question");
        assert!(!is_demanded(&lease).await, "one serves them all");
        lease.extended(&7, sent);
        assert_eq!(lease.renewal_after(last), (sent, true), "and whoever asks a little later");
        assert!(!is_demanded(&lease).await);
        assert!(!lease.renewal_after(sent).1 && is_demanded(&lease).await, "the next question is a new one");
    }
}
