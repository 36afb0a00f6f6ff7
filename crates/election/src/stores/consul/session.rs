//! One session for all candidates of a process at one cluster: [`Session`].

use super::http::{Consul, Failure, Place};
use crate::clock::boot_micros;
use crate::seat::DriverEvent;
use crate::stores::shared_lease::SharedLease;
use crate::stores::troubles::Troubles;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::timeout;

/// The longest wait between two tries to reach the cluster.
const RETRY_MAX: Duration = Duration::from_millis(200);
/// Pause after an agent does not admit the user, and did before.
const DENIED_RETRY: Duration = Duration::from_secs(2);

/// The session of a process.
pub(super) struct Session {
    pub(super) consul: Consul,
    ttl: Duration,
    /// The session's id, and what all candidates stand on.
    pub(super) lease: SharedLease<String>,
}

impl Session {
    pub(super) fn new(place: &Place, ttl: Duration) -> Session {
        Session { consul: Consul::new(place), ttl, lease: SharedLease::new() }
    }

    /// Time that a read may wait for a change.
    pub(super) fn wait(&self) -> Duration {
        self.ttl / 2
    }

    /// Time that one request may take.
    pub(super) fn patience(&self) -> Duration {
        self.ttl / 10
    }

    pub(super) async fn destroy(&self) {
        if let Some(held) = self.lease.held() {
            // It ends by itself, too.
            let _ = self.consul.destroy_session(&held.lease).await;
        }
    }
}

/// Keeps the session alive for as long as the engine lives; opens another one when it is gone.
pub(super) async fn keep(session: Arc<Session>, told: UnboundedSender<DriverEvent>) {
    if let Err(why) = session.consul.check() {
        let _ = told.send(DriverEvent::Refused(why));
        return;
    }
    let (mut is_open, mut failures) = (false, 0_u32);
    let troubles = Troubles::of(format!("consul://{}", session.consul.endpoints().join(",")));
    while !told.is_closed() {
        let sent = boot_micros();
        let why = match timeout(session.patience() * 2, session.consul.create_session(session.ttl)).await {
            Ok(Ok(id)) => {
                session.lease.granted(id, sent);
                failures = 0;
                troubles.end();
                if !std::mem::replace(&mut is_open, true) {
                    warn_of_version(&session).await;
                    let _ = told.send(DriverEvent::Opened(session.ttl));
                }
                tokio::select! {
                    () = renew_until_gone(&session) => session.lease.interrupt(),
                    () = told.closed() => return,
                }
                // A store that ends all sessions at once is not asked without pause.
                tokio::time::sleep(RETRY_MAX / 10).await;
                continue;
            }
            Ok(Err(Failure::Refused(why))) if !is_open => {
                let _ = told.send(DriverEvent::Refused(format!("no session is opened: {why}")));
                return;
            }
            Ok(Err(Failure::Untimely(why))) => {
                let _ = told.send(DriverEvent::Untimely(format!(
                    "no session of {:?} is opened: {why}; give a time to live within these bounds (--ttl): session_ttl_min of the \
                     servers says the least",
                    session.ttl
                )));
                return;
            }
            Ok(Err(Failure::Denied(why))) if !is_open => {
                let _ = told.send(DriverEvent::Denied(format!("no session is opened: {why}")));
                return;
            }
            Ok(Err(Failure::Denied(why))) => {
                troubles.begin(&why);
                tokio::time::sleep(DENIED_RETRY).await;
                continue;
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
async fn renew_until_gone(session: &Arc<Session>) {
    let mut pause = session.ttl / 4;
    loop {
        // A session without candidates is let go.
        let is_idle = session.lease.is_idle();
        tokio::select! {
            () = tokio::time::sleep(pause), if !is_idle => {}
            () = session.lease.demanded() => {}
        }
        if let Some(id) = session.lease.take_overdue(session.ttl) {
            // That may arrive where answers are late.
            let (session, patience) = (session.clone(), session.ttl);
            tokio::spawn(timeout(patience, async move {
                let _ = session.consul.destroy_session(&id).await;
            }));
            return;
        }
        let Some(held) = session.lease.held() else { return };
        let sent = session.lease.leaves();
        pause = match timeout(session.patience(), session.consul.renew_session(&held.lease)).await {
            Ok(Ok(true)) => {
                session.lease.extended(&held.lease, sent);
                session.ttl / 4
            }
            Ok(Ok(false)) => {
                session.lease.lose(&held.lease);
                return;
            }
            // Whether it was renewed nobody knows: again until it is, or is gone.
            Ok(Err(failure)) => {
                tracing::debug!("no renewal: {failure}");
                session.lease.unanswered();
                RETRY_MAX
            }
            Err(_) => {
                session.consul.move_on();
                session.lease.unanswered();
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

#[cfg(test)]
mod tests {
    use super::super::fake::Agent;
    use super::*;
    use crate::Election;
    use tokio::sync::mpsc::unbounded_channel;

    /// The first word of a session of ten seconds at this agent.
    async fn told_at(agent: &Agent) -> DriverEvent {
        let election = Election::open(&format!("consul://{}/billing", agent.host)).expect("the URL is right");
        let session = Arc::new(Session::new(&Place::of(election.store()), Duration::from_secs(10)));
        let (tell, mut told) = unbounded_channel();
        tokio::spawn(keep(session, tell));
        timeout(Duration::from_secs(20), told.recv()).await.expect("it says something").expect("it goes on")
    }

    /// Goal: a process that starts in a busy moment waits until that is over. Method: the agent says that too much is asked of it, and then
    /// opens a session.
    #[tokio::test]
    async fn an_agent_that_is_asked_too_much_is_asked_again() {
        let mut agent = Agent::answers(&[
            ("429 Too Many Requests", "Your IP is issuing too many concurrent connections"),
            ("200 OK", "{\"ID\":\"s1\"}"),
            ("200 OK", "{}"),
        ]);
        let told = told_at(&agent).await;
        assert!(matches!(told, DriverEvent::Opened(_)), "{told:?}");
        let asked = agent.asked_so_far();
        assert!(asked[..2].iter().all(|request| request.starts_with("PUT /v1/session/create")), "{asked:?}");
    }
}
