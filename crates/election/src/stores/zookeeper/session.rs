//! One session for all candidates of a process at one ensemble: [`Session`].

use super::connection::{Connection, Dial, Unusable};
use super::probe::{self, Facts};
use super::wire::SessionId;
use crate::address::Secret;
use crate::clock::{boot_micros, micros};
use crate::seat::{DriverEvent, Key, Line};
use crate::stores::troubles::Troubles;
use crate::wire::Wire;
use hustings_lease::{Observation, Profile};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// The longest wait between two tries to reach the ensemble.
const RETRY_MAX: Duration = Duration::from_millis(200);
/// Pause after a member does not admit the user, and did before.
const DENIED_RETRY: Duration = Duration::from_secs(2);
/// A connection that did not last so long was of no use.
const SHORT_LIVED: Duration = Duration::from_secs(1);
/// The longest that a member may take to answer.
const PATIENCE_MAX: Duration = Duration::from_secs(2);

/// The session of a process.
pub(super) struct Session {
    endpoints: Vec<String>,
    wire: Arc<Wire>,
    user: Option<Secret>,
    ttl: Duration,
    facts: OnceLock<Facts>,
    /// Timeout that the first session was granted with.
    granted: OnceLock<Duration>,
    state: Mutex<State>,
    /// Wakes the keeper: another session is wanted.
    demand: Notify,
    /// Number of connections so far.
    connections: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    connection: Option<Connection>,
    session: Option<SessionId>,
    last_zxid: i64,
    proof: Proof,
    /// The session is to be replaced by another one.
    is_worn: bool,
    seats: BTreeMap<Key, Line>,
    /// Candidates that have an entry on this session, or may have.
    holders: BTreeSet<Key>,
}

/// The moment since which a session is known to have been extended, by all that was written on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Proof {
    since_micros: u64,
    /// Departure and answer of the last write that is not proven yet; on the present connection.
    pending: Option<(u64, u64)>,
}

impl Proof {
    /// A write was answered that left at this moment. It proves an earlier one that was answered so long before.
    fn on_answer(&mut self, sent: u64, now: u64, spacing: u64) {
        match self.pending {
            Some((before, answered)) if sent >= answered.saturating_add(spacing) => {
                self.since_micros = self.since_micros.max(before);
                self.pending = Some((sent, now));
            }
            Some(_) => {}
            None => self.pending = Some((sent, now)),
        }
    }
}

impl Session {
    pub(super) fn new(endpoints: &[String], wire: Wire, user: Option<Secret>, ttl: Duration) -> Session {
        Session {
            endpoints: endpoints.to_vec(),
            wire: Arc::new(wire),
            user,
            ttl,
            facts: OnceLock::new(),
            granted: OnceLock::new(),
            state: Mutex::default(),
            demand: Notify::new(),
            connections: watch::Sender::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    pub(super) fn wire(&self) -> &Wire {
        &self.wire
    }

    pub(super) fn user(&self) -> Option<&Secret> {
        self.user.as_ref()
    }

    pub(super) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The ensemble's profile, as far as it was asked.
    pub(super) fn profile(&self) -> Profile {
        let tick = self.facts.get().map_or(Profile::ZOOKEEPER.hold_off, |facts| facts.tick);
        Profile { ttl_min: tick * 2, hold_off: tick, ..Profile::ZOOKEEPER }
    }

    /// The connection of now.
    pub(super) fn connection(&self) -> Option<Connection> {
        self.state().connection.clone()
    }

    /// Moment since which the session is known to have been extended; now, if there is none.
    pub(super) fn proven_micros(&self) -> u64 {
        let state = self.state();
        if state.session.is_some() { state.proof.since_micros } else { boot_micros() }
    }

    /// The present connection, for a candidate that is about to enter the queue: on a session that has time left, or holds entries.
    pub(super) async fn fresh(&self) -> Option<Connection> {
        let mut connections = self.connections.subscribe();
        {
            let mut state = self.state();
            let age = boot_micros().saturating_sub(state.proof.since_micros);
            if !state.holders.is_empty() || age < micros(self.ttl / 10) {
                return state.connection.clone();
            }
            connections.mark_unchanged();
            state.is_worn = true;
            self.demand.notify_one();
        }
        connections.changed().await.ok()?;
        self.connection()
    }

    /// A write on this connection was answered that left at this moment.
    pub(super) fn on_written(&self, connection: &Connection, sent: u64) {
        let mut state = self.state();
        if state.connection.as_ref().is_some_and(|now| now.is(connection)) {
            let error = u64::from(hustings_lease::Timing::default().rate_error_millionths);
            let spacing = micros(self.profile().hold_off) * (1_000_000 + error) / (1_000_000 - error) + 1_000;
            state.proof.on_answer(sent, boot_micros(), spacing);
        }
    }

    /// This candidate may have an entry from now on, or has none any more.
    pub(super) fn set_holds(&self, key: Key, holds: bool) {
        let mut state = self.state();
        if holds {
            state.holders.insert(key)
        } else {
            state.holders.remove(&key)
        };
    }

    /// A member said that the session of this connection has expired.
    pub(super) fn lose(&self, connection: &Connection) {
        let mut state = self.state();
        if state.session.as_ref() == Some(connection.session()) {
            state.session = None;
        }
        connection.abandon();
    }

    pub(super) fn add(&self, line: Line) {
        self.state().seats.insert(line.key, line);
    }

    pub(super) fn remove(&self, key: Key) {
        let mut state = self.state();
        state.seats.remove(&key);
        state.holders.remove(&key);
    }

    pub(super) async fn close(&self) {
        if let Some(connection) = self.connection() {
            connection.close().await;
        }
    }

    fn patience(&self) -> Duration {
        (self.ttl / 8).min(PATIENCE_MAX)
    }
}

/// Keeps the session alive for as long as the engine lives; moves on when a member is silent.
pub(super) async fn keep(session: Arc<Session>, told: UnboundedSender<DriverEvent>) {
    if let Err(why) = session.wire.connector() {
        let _ = told.send(DriverEvent::Refused(why));
        return;
    }
    let (mut is_open, mut failures, mut silent_since) = (false, 0_u32, Instant::now());
    let troubles = Troubles::of(format!("zookeeper://{}", session.endpoints.join(",")));
    // Not everybody at the first one.
    let first = rand::random_range(0..session.endpoints.len());
    for member in (0..session.endpoints.len()).cycle().skip(first) {
        if told.is_closed() {
            return;
        }
        if silent_since.elapsed() > session.ttl * 2 {
            // The session has ended, and perhaps the ensemble is another one that has seen less: it would refuse for ever.
            let mut state = session.state();
            (state.session, state.last_zxid) = (None, 0);
        }
        let opened = match learn(&session).await {
            Ok(()) => open(&session, &session.endpoints[member]).await,
            Err(why) => Err(why),
        };
        let connection = match opened {
            Ok(connection) => connection,
            Err(Unusable::ForGood(why)) => {
                let _ = told.send(DriverEvent::Refused(why));
                return;
            }
            Err(Unusable::Denied(why)) if !is_open => {
                let _ = told.send(DriverEvent::Denied(why));
                return;
            }
            Err(Unusable::Denied(why)) => {
                troubles.begin(&why);
                tokio::time::sleep(DENIED_RETRY).await;
                continue;
            }
            // The next one is a new session.
            Err(Unusable::Expired) => continue,
            Err(Unusable::Because(why)) => {
                failures += 1;
                if failures.is_power_of_two() {
                    tracing::warn!(store = ?session.endpoints, failures, "no session: {why}");
                }
                tokio::time::sleep(pause_after(failures)).await;
                continue;
            }
        };
        troubles.end();
        let opened_at = Instant::now();
        if !is_open {
            is_open = true;
            let _ = told.send(DriverEvent::Opened(connection.granted()));
        }
        tokio::select! {
            () = connection.over() => {}
            () = until_worn(&session) => connection.close().await,
            () = told.closed() => return,
        }
        silent_since = Instant::now();
        {
            let mut state = session.state();
            state.connection = None;
            state.last_zxid = state.last_zxid.max(connection.last_zxid());
        }
        // One that takes everybody in and serves nobody is not asked without pause.
        failures = if opened_at.elapsed() < SHORT_LIVED { failures + 1 } else { 0 };
        tokio::time::sleep(pause_after(failures)).await;
    }
}

/// Pause between two tries to reach the ensemble: the longer, the more of them failed in a row.
fn pause_after(failures: u32) -> Duration {
    RETRY_MAX / 10 * failures.min(10)
}

/// Waits until another session is wanted.
async fn until_worn(session: &Session) {
    loop {
        session.demand.notified().await;
        let mut state = session.state();
        // Since then somebody may have entered the queue.
        if state.is_worn && state.holders.is_empty() {
            state.session = None;
            return;
        }
    }
}

/// Once, before anybody stands.
async fn learn(session: &Session) -> Result<(), Unusable> {
    if session.facts.get().is_some() {
        return Ok(());
    }
    let facts = probe::learn(&session.wire, &session.endpoints, session.patience()).await?;
    for version in &facts.versions {
        if let Some(fault) = probe::fault_of(version) {
            tracing::warn!(%version, "this ZooKeeper has a known fault: {fault}");
        }
    }
    let _ = session.facts.set(facts);
    Ok(())
}

/// Opens a session, or goes on with the one that there is.
async fn open(session: &Session, endpoint: &str) -> Result<Connection, Unusable> {
    let (known, last_zxid) = {
        let state = session.state();
        (state.session.clone(), state.last_zxid)
    };
    let sent = boot_micros();
    let dial = Dial {
        wire: &session.wire,
        endpoint,
        user: session.user.as_ref().map(|user| user.0.as_str()),
        session: known.as_ref(),
        last_zxid,
        // Members may be set to grant different ones at the least, and candidates count with the first.
        ttl: session.granted.get().copied().unwrap_or(session.ttl),
        patience: session.patience(),
    };
    let connection = match Connection::open(dial).await {
        Err(Unusable::Expired) if known.is_none() => {
            return Err(Unusable::Because(format!("{endpoint}: it grants no session")));
        }
        Err(Unusable::Expired) => {
            session.state().session = None;
            return Err(Unusable::Expired);
        }
        opened => opened?,
    };
    let granted = connection.granted();
    let counted_with = *session.granted.get_or_init(|| granted);
    if granted < counted_with {
        let why = format!("a session of {granted:?} was granted where one of {counted_with:?} was before: start again");
        return Err(Unusable::ForGood(why));
    }
    let mut state = session.state();
    state.proof.pending = None;
    if known.as_ref() != Some(connection.session()) {
        state.proof.since_micros = sent;
    }
    state.session = Some(connection.session().clone());
    state.is_worn = false;
    // Before anybody can ask on the new connection: renewals on the one before count no more.
    for seat in state.seats.values() {
        seat.saw(Observation::Interrupted);
    }
    state.connection = Some(connection.clone());
    drop(state);
    session.connections.send_modify(|count| *count += 1);
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::Proof;

    #[test]
    fn a_write_is_proven_by_a_later_one_a_tick_after_its_answer() {
        let mut proof = Proof { since_micros: 5, pending: None };
        proof.on_answer(100, 110, 50);
        proof.on_answer(159, 165, 50);
        assert_eq!(proof, Proof { since_micros: 5, pending: Some((100, 110)) });
        proof.on_answer(160, 170, 50);
        assert_eq!(proof, Proof { since_micros: 100, pending: Some((160, 170)) });
        proof.pending = None;
        proof.on_answer(900, 910, 50);
        assert_eq!(proof.since_micros, 100, "nothing on a new connection proves what was written on the old one");
    }
}
