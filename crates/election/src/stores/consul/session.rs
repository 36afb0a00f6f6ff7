//! One session for all candidates of a process at one cluster: [`Session`].

use super::http::{Consul, Failure};
use crate::clock::boot_micros;
use crate::seat::{Key, Line, Told};
use hustings_lease::{Profile, Sight};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// The longest wait between two tries to reach the cluster.
const RETRY_MAX: Duration = Duration::from_millis(200);

/// A session as Consul granted it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Held {
    pub(super) id: String,
    /// When the last request left that is known to have opened or extended it, in microseconds of boot time.
    pub(super) since_micros: u64,
}

/// The session of a process.
pub(super) struct Session {
    pub(super) consul: Consul,
    ttl: Duration,
    state: Mutex<State>,
    /// Wakes the keeper: a candidate wants a renewal, or doubts the session. It renews, and so finds out.
    demand: Notify,
    /// When the last renewal left that was answered; 0 when there is no session.
    renewed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    held: Option<Held>,
    /// When the renewal left that has no answer yet.
    in_flight_micros: Option<u64>,
    seats: BTreeMap<Key, Line>,
}

impl Session {
    pub(super) fn new(endpoints: &[String], ttl: Duration) -> Session {
        Session {
            consul: Consul::new(endpoints),
            ttl,
            state: Mutex::default(),
            demand: Notify::new(),
            renewed: watch::Sender::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn held(&self) -> Option<Held> {
        self.state().held.clone()
    }

    /// How long a read may wait for a change.
    pub(super) fn wait(&self) -> Duration {
        self.ttl / 2
    }

    /// How long one request may take.
    pub(super) fn patience(&self) -> Duration {
        self.ttl / 10
    }

    pub(super) fn add(&self, line: Line) {
        self.state().seats.insert(line.key, line);
        self.demand.notify_one();
    }

    pub(super) fn remove(&self, key: Key) {
        self.state().seats.remove(&key);
    }

    /// Something speaks against the session: the keeper finds out.
    pub(super) fn suspect(&self) {
        self.demand.notify_one();
    }

    /// The moment from which a renewal counts that is asked for now, and whether its answer is there already: a renewal that
    /// left after `last`, the one that is on its way, or one that leaves at once.
    pub(super) fn renewal_after(&self, last: u64) -> (u64, bool) {
        let state = self.state();
        if let Some(held) = state.held.as_ref().filter(|held| held.since_micros > last) {
            return (held.since_micros, true);
        }
        if let Some(sent) = state.in_flight_micros.filter(|sent| *sent > last) {
            return (sent, false);
        }
        let now = boot_micros();
        self.demand.notify_one();
        (now, false)
    }

    /// Waits for the answer to a renewal that left at this moment or later. False when there is no session any more.
    pub(super) async fn renewed_since(&self, sent: u64) -> bool {
        let mut renewed = self.renewed.subscribe();
        let answered = renewed.wait_for(|since| *since == 0 || *since >= sent).await;
        answered.is_ok_and(|since| *since != 0)
    }

    fn set_held(&self, held: Option<Held>) {
        let since = held.as_ref().map_or(0, |held| held.since_micros);
        let mut state = self.state();
        state.in_flight_micros = None;
        state.held = held;
        self.renewed.send_replace(since);
    }

    /// What was seen with a session that is gone was perhaps not all: everybody looks.
    fn interrupt(&self) {
        self.state().seats.values().for_each(|seat| seat.saw(Sight::Interrupted));
    }

    pub(super) async fn destroy(&self) {
        if let Some(held) = self.held() {
            // It ends by itself, too.
            let _ = self.consul.destroy_session(&held.id).await;
        }
    }
}

/// Keeps the session alive for as long as the engine lives; opens another one when it is gone.
pub(super) async fn keep(session: Arc<Session>, told: UnboundedSender<Told>) {
    let profile = Profile::CONSUL;
    if session.ttl < profile.ttl_min {
        let why = format!(
            "the time to live {:?} is below {:?}, the least that Consul grants: raise the time to live",
            session.ttl, profile.ttl_min
        );
        // Nobody may stand, and nobody is left to tell.
        let _ = told.send(Told::Refused(why));
        return;
    }
    let (mut is_open, mut failures) = (false, 0_u32);
    while !told.is_closed() {
        let sent = boot_micros();
        let why = match timeout(session.patience() * 2, session.consul.create_session(session.ttl)).await {
            Ok(Ok(id)) => {
                session.set_held(Some(Held { id, since_micros: sent }));
                failures = 0;
                if !std::mem::replace(&mut is_open, true) {
                    warn_of_version(&session).await;
                    let _ = told.send(Told::Opened(session.ttl));
                }
                tokio::select! {
                    () = renew_until_gone(&session) => session.interrupt(),
                    () = told.closed() => return,
                }
                // A store that ends all sessions at once is not asked without pause.
                tokio::time::sleep(RETRY_MAX / 10).await;
                continue;
            }
            Ok(Err(Failure::Refused(why))) if !is_open => {
                let _ = told.send(Told::Refused(format!("no session is opened: {why}")));
                return;
            }
            Ok(Err(failure)) => failure.to_string(),
            Err(_) => {
                session.consul.move_on();
                format!("{:?} accept, and do not answer", session.consul.endpoints())
            }
        };
        failures += 1;
        if failures.is_power_of_two() {
            tracing::warn!(store = ?session.consul.endpoints(), failures, "no session: {why}");
        }
        tokio::time::sleep((RETRY_MAX / 10 * failures.min(10)).min(RETRY_MAX)).await;
    }
}

/// Renews in time and on demand. Returns when the session is gone.
async fn renew_until_gone(session: &Session) {
    let mut pause = session.ttl / 4;
    loop {
        // A session without candidates is let go.
        let is_idle = session.state().seats.is_empty();
        tokio::select! {
            () = tokio::time::sleep(pause), if !is_idle => {}
            () = session.demand.notified() => {}
        }
        let Some(held) = session.held() else { return };
        let sent = boot_micros();
        session.state().in_flight_micros = Some(sent);
        pause = match timeout(session.patience(), session.consul.renew_session(&held.id)).await {
            Ok(Ok(true)) => {
                session.set_held(Some(Held { since_micros: sent, ..held }));
                session.ttl / 4
            }
            Ok(Ok(false)) => return session.set_held(None),
            // Whether it was renewed nobody knows: again until it is, or is gone.
            Ok(Err(failure)) => {
                tracing::debug!("no renewal: {failure}");
                session.state().in_flight_micros = None;
                RETRY_MAX
            }
            Err(_) => {
                session.consul.move_on();
                session.state().in_flight_micros = None;
                RETRY_MAX
            }
        };
    }
}

async fn warn_of_version(session: &Session) {
    let Ok(Some(version)) = timeout(session.patience(), session.consul.version()).await else { return };
    if version.starts_with("0.") {
        tracing::warn!(
            %version,
            "this Consul may answer consistent reads with old state when a server has just started (consul#2644), and knows \
             transactions since 0.7 only: upgrade it to 1.0 or later"
        );
    }
}
