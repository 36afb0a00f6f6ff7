//! One lease for all candidates of a process at one cluster: [`Session`].

use super::reach::{Reach, Unreached, is_denial};
use super::short;
use super::watches::Watches;
use crate::clock::{boot_micros, micros};
use crate::seat::DriverEvent;
use crate::stores::shared_lease::SharedLease;
use crate::stores::troubles::Troubles;
use hustings_api::client::{CutShort, Options};
use hustings_api::etcdserverpb::{LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, StatusRequest};
use hustings_api::{Client, EtcdError};
use hustings_lease::Profile;
use hustings_tls::Obstacle;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, timeout};

/// The longest wait between two tries to reach the cluster.
const RETRY_MAX: Duration = Duration::from_millis(200);

/// Pause after a cluster does not admit the user, and did before: each try costs it a password's comparison.
const DENIED_RETRY: Duration = Duration::from_secs(2);

/// Pause between two proofs of the user: tokens end after a while, after five minutes by default.
const PROVE_EVERY: Duration = Duration::from_secs(60);

/// Time for which a cluster of ours may grant whole seconds before a caller that asked for less than one is refused.
const ROUNDS_FOR: Duration = Duration::from_secs(10);

/// The session of a process.
pub(super) struct Session {
    pub(super) reach: Reach,
    ttl: Duration,
    /// Time to live that the first lease was granted with.
    granted: OnceLock<Duration>,
    client: Mutex<Option<Client>>,
    /// The lease that all candidates stand on.
    pub(super) lease: SharedLease<i64>,
    /// The watches of all candidates.
    pub(super) watches: Watches,
    /// Whether the cluster admits the user, as it was told last.
    troubles: Troubles,
}

impl Session {
    pub(super) fn new(reach: Reach, ttl: Duration) -> Session {
        Session {
            granted: OnceLock::new(),
            troubles: Troubles::of(reach.endpoints.join(",")),
            reach,
            ttl,
            client: Mutex::default(),
            lease: SharedLease::new(),
            watches: Watches::default(),
        }
    }

    /// Pause between two renewals when no candidate asks for one.
    fn renewal(&self) -> Duration {
        self.ttl / 4
    }

    /// Time that one request of the session may take.
    pub(super) fn patience(&self) -> Duration {
        self.ttl / 10
    }

    /// Time that a lease lives after its last renewal, and the time that the next one is asked for: members may be set to grant different
    /// ones at the least, and candidates count with the first.
    pub(super) fn longest(&self) -> Duration {
        self.granted.get().copied().unwrap_or(self.ttl)
    }

    /// The way to the cluster.
    pub(super) fn client(&self) -> Option<Client> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Goes on at another member. Candidates hear of it once requests and watches go there: their leases do, and a watch that stays behind
    /// may be silent for as long as that member is ill.
    fn set_client(&self, client: Option<Client>) {
        let is_there = client.is_some();
        self.watches.move_on();
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client;
        if is_there {
            self.lease.interrupt();
        }
    }

    /// This lease is gone; the keeper, which may be asleep, finds out.
    pub(super) fn lose(&self, lease: i64) {
        if self.lease.lose(&lease) {
            self.lease.suspect();
        }
    }

    /// Lets a lease go for which no answer has come for as long as it lives, and asks for its end: that may arrive where answers are late.
    fn give_up_overdue(&self) {
        let ttl = self.longest();
        let (Some(id), Some(client)) = (self.lease.take_overdue(ttl), self.client()) else { return };
        self.lease.interrupt();
        tokio::spawn(timeout(ttl, async move {
            let _ = client.lease().lease_revoke(LeaseRevokeRequest { id }).await;
        }));
    }

    pub(super) async fn revoke(&self) {
        let (Some(client), Some(held)) = (self.client(), self.lease.held()) else { return };
        let _ = client.lease().lease_revoke(LeaseRevokeRequest { id: held.lease }).await;
    }
}

/// Keeps the session alive for as long as the engine lives: connects, grants, renews; moves on when a member is silent.
pub(super) async fn keep(session: std::sync::Arc<Session>, profile: Profile, told: UnboundedSender<DriverEvent>) {
    let proving = async {
        loop {
            tokio::time::sleep(PROVE_EVERY).await;
            let Some(client) = session.client() else { continue };
            match session.reach.authenticate(&client).await {
                Ok(()) => session.troubles.end(),
                Err(why) => session.troubles.begin(&why.to_string()),
            }
        }
    };
    tokio::select! {
        () = keep_on(&session, profile, told) => {}
        () = proving => {}
    }
}

async fn keep_on(session: &Session, profile: Profile, told: UnboundedSender<DriverEvent>) {
    let (mut is_open, mut failures) = (false, 0_u32);
    if let Err(why) = session.reach.connector().map(drop).and_then(|()| session.reach.password().map(drop)) {
        let _ = told.send(DriverEvent::Refused(why));
        return;
    }
    while !told.is_closed() {
        match connect(session).await {
            Ok(()) => {}
            Err(Unreached::Denied(why)) if !is_open => {
                let _ = told.send(DriverEvent::Denied(why));
                return;
            }
            Err(Unreached::Denied(why)) => {
                session.troubles.begin(&why);
                tokio::time::sleep(DENIED_RETRY).await;
                continue;
            }
            Err(Unreached::ForNow(why)) => {
                failures += 1;
                if failures.is_power_of_two() {
                    tracing::warn!(store = ?session.reach.endpoints, failures, "no session: {why}");
                }
                tokio::time::sleep((RETRY_MAX / 10 * failures.min(10)).min(RETRY_MAX)).await;
                continue;
            }
        }
        warn_of_version(session, profile).await;
        loop {
            session.give_up_overdue();
            if session.lease.held().is_none() {
                match grant(session, profile).await {
                    Ok(ttl) if !is_open => {
                        (is_open, failures) = (true, 0);
                        let _ = told.send(DriverEvent::Opened(ttl));
                    }
                    Ok(_) => {
                        failures = 0;
                        session.troubles.end();
                    }
                    Err(Denied::Unadmitted(why)) if !is_open => {
                        let _ = told.send(DriverEvent::Denied(why));
                        return;
                    }
                    Err(Denied::Unadmitted(why)) => {
                        session.troubles.begin(&why);
                        tokio::time::sleep(DENIED_RETRY).await;
                        break;
                    }
                    Err(Denied::ForGood(why)) => {
                        let _ = told.send(DriverEvent::Refused(why));
                        return;
                    }
                    Err(Denied::ForNow(why)) => {
                        failures += 1;
                        // While a cluster elects its leader that is nothing to speak of.
                        if failures > 2 && failures.is_power_of_two() {
                            tracing::warn!(store = ?session.reach.endpoints, failures, "no session: {why}");
                        }
                        tokio::time::sleep((RETRY_MAX / 10 * failures.min(10)).min(RETRY_MAX)).await;
                        break;
                    }
                }
            }
            if renew_on(session).await.is_err() {
                break;
            }
            // The lease is gone, and every entry with it; another one is asked for on the same connection.
            session.lease.interrupt();
        }
        move_on(session).await;
    }
}

pub(super) async fn connect(session: &Session) -> Result<(), Unreached> {
    if let Some(client) = session.client() {
        let proven = session.reach.authenticate(&client).await;
        if matches!(proven, Err(Unreached::Denied(_))) {
            // The password may have been replaced: the next connection reads it again.
            session.set_client(None);
        }
        return proven;
    }
    let patience = session.patience();
    let options = Options {
        connect_timeout: patience.min(Duration::from_secs(2)),
        keep_alive_interval: Duration::from_secs(5),
        keep_alive_timeout: patience,
        ..Options::default()
    };
    session.set_client(Some(session.reach.connect_with(options).await?));
    Ok(())
}

/// The next member, if one accepts; else the first that does, later.
async fn move_on(session: &Session) {
    let Some(mut client) = session.client() else { return };
    let moved = timeout(session.patience(), client.move_on()).await;
    session.set_client(matches!(moved, Ok(Ok(()))).then_some(client));
}

async fn warn_of_version(session: &Session, profile: Profile) {
    let Some(client) = session.client().filter(|_| profile.name == "etcd") else { return };
    let Ok(Ok(status)) = timeout(session.patience(), client.maintenance().status(StatusRequest {})).await else {
        return;
    };
    let version = status.into_inner().version;
    if let Some(fault) = faults_of(&version) {
        tracing::warn!(%version, "{fault}");
    }
}

/// The faults of this version of etcd that elections meet, and the first version of the same line that has none of them; `None` for a
/// sound one, and for one that is no version.
fn faults_of(version: &str) -> Option<String> {
    let numbers = version.split(['-', '+']).next()?;
    let mut parts = numbers.split('.').map(|part| part.parse::<u32>().ok());
    let (major, minor, patch) = (parts.next()??, parts.next()??, parts.next()??);
    // Of each line: the first one in which the lease of a deposed leader's client is not renewed, and in which no revoked lease is.
    let (renews, revives) = match (major, minor) {
        (3, 4) => (31, 38),
        (3, 5) => (13, 23),
        (3, 6) => (0, 5),
        (3, 0..4) | (0..3, _) => (u32::MAX, u32::MAX),
        _ => (0, 0),
    };
    let mut faults = Vec::new();
    if patch < renews {
        faults.push("lets a member that was deposed as leader renew leases (etcd#17465): two may lead");
    }
    if patch < revives {
        faults.push("lets a revoked lease be renewed (etcd#20616)");
    }
    let sound = if revives == u32::MAX { "3.5.23".to_owned() } else { format!("{major}.{minor}.{revives}") };
    let is_sound = faults.is_empty();
    (!is_sound).then(|| format!("this etcd {}: upgrade it to {sound} or later", faults.join(", and ")))
}

/// The reason why there is no lease.
#[derive(Debug)]
pub(super) enum Denied {
    ForNow(String),
    ForGood(String),
    /// The user may not have one.
    Unadmitted(String),
}

async fn grant(session: &Session, profile: Profile) -> Result<Duration, Denied> {
    let client = session.client().ok_or_else(|| Denied::ForNow("no connection".to_owned()))?;
    let (lease, granted, sent) = match session.ttl.subsec_nanos() > 0 && profile == Profile::HUSTINGS {
        true => grant_millis(session, &client).await?,
        false => {
            let sent = boot_micros();
            let (lease, granted) = grant_seconds(session, &client).await?;
            (lease, granted, sent)
        }
    };
    // The granted time may be more than was asked for, and is what candidates count with, now and later.
    let counted_with = *session.granted.get_or_init(|| granted);
    if granted < counted_with {
        // Nobody may stand on it.
        let _ = timeout(session.patience(), client.lease().lease_revoke(LeaseRevokeRequest { id: lease })).await;
        let why = format!("a lease of {granted:?} was granted where one of {counted_with:?} was before: start again");
        return Err(Denied::ForGood(why));
    }
    session.lease.granted(lease, sent);
    Ok(granted)
}

/// A lease with a part of a second: its id, for how long, and when the request left.
async fn grant_millis(session: &Session, client: &Client) -> Result<(i64, Duration, u64), Denied> {
    let begun = Instant::now();
    loop {
        let sent = boot_micros();
        let asked = timeout(session.patience() * 2, short::grant(&session.reach, client, session.longest()));
        let (lease, granted) = asked.await.unwrap_or_else(|_| Err(Denied::ForNow("no answer".to_owned())))?;
        // While a member may be of an older build, whole seconds are granted. A cluster that was just founded knows soon.
        let is_rounded = session.ttl < Duration::from_secs(1) && granted > session.ttl && granted.subsec_nanos() == 0;
        if !is_rounded || begun.elapsed() > ROUNDS_FOR {
            return Ok((lease, granted, sent));
        }
        let _ = client.lease().lease_revoke(LeaseRevokeRequest { id: lease }).await;
        tokio::time::sleep(RETRY_MAX).await;
    }
}

/// Words of a refusal, or of the cause of a broken connection.
fn words(reach: &Reach, status: &tonic::Status) -> String {
    let end = CutShort::told_by(status);
    let remedy = match Obstacle::behind(status) {
        None if end == Some(CutShort::NoHttp2) && !reach.is_in_tls() => {
            "; does its port speak TLS? then say so: `?cacert=FILE` behind the store's URL"
        }
        None if end == Some(CutShort::Unasked) && reach.is_in_tls() => {
            "; does it ask for a certificate? then give cert=FILE and key=FILE behind the `?` of the store's URL"
        }
        // The others are told by the handshake itself.
        _ => "",
    };
    let mut all = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        let inner = error.to_string();
        if !all.contains(&inner) {
            all = format!("{all}: {inner}");
        }
        source = error.source();
    }
    format!("{all}{remedy}")
}

async fn grant_seconds(session: &Session, client: &Client) -> Result<(i64, Duration), Denied> {
    // Stores count whole seconds; a part of one is granted as a whole.
    let seconds = i64::try_from(session.longest().as_secs_f64().ceil() as u64).unwrap_or(i64::MAX);
    let asked =
        timeout(session.patience(), client.lease().lease_grant(LeaseGrantRequest { ttl: seconds, id: 0 })).await;
    let answer = match asked {
        Err(_) => return Err(Denied::ForNow("no answer".to_owned())),
        Ok(Err(status)) => {
            let why = format!("no lease of {seconds} s is granted: {}", words(&session.reach, &status));
            if let Some(EtcdError::InvalidAuthToken | EtcdError::AuthOldRevision) = EtcdError::of(&status) {
                return Err(Denied::ForNow(why));
            }
            if is_denial(&status) {
                let needs = "leases are every user's: see who this is with `hustings user get`";
                return Err(Denied::Unadmitted(session.reach.denial(&status, needs)));
            }
            return Err(match status.code() {
                tonic::Code::InvalidArgument | tonic::Code::OutOfRange | tonic::Code::Unimplemented => {
                    Denied::ForGood(why)
                }
                _ => Denied::ForNow(why),
            });
        }
        Ok(Ok(answer)) => answer.into_inner(),
    };
    Ok((answer.id, Duration::from_secs(answer.ttl.unsigned_abs())))
}

/// Renews on one stream. `Ok`: the lease is gone. `Err`: this member does not answer.
async fn renew_on(session: &Session) -> Result<(), ()> {
    let outcome = renew_until(session).await;
    session.lease.unanswered();
    outcome
}

async fn renew_until(session: &Session) -> Result<(), ()> {
    let (Some(client), Some(held)) = (session.client(), session.lease.held()) else { return Err(()) };
    let patience = session.patience();
    let (requests, outgoing) = tokio::sync::mpsc::channel(4);
    let outgoing = tokio_stream::wrappers::ReceiverStream::new(outgoing);
    let leave = || {
        let sent = session.lease.leaves();
        requests.try_send(LeaseKeepAliveRequest { id: held.lease }).map_err(drop).map(|()| sent)
    };
    let mut sent = leave()?;
    let opened = timeout(patience, client.lease().lease_keep_alive(outgoing)).await.map_err(drop)?;
    let mut answers = opened.map_err(drop)?.into_inner();
    loop {
        // One question at a time: an answer belongs to the question before it.
        let answer = timeout(patience, answers.message()).await.map_err(drop)?.map_err(drop)?.ok_or(())?;
        if answer.ttl <= 0 {
            session.lose(held.lease);
            return Ok(());
        }
        session.lease.extended(&held.lease, sent);
        let pause = Duration::from_micros((sent + micros(session.renewal())).saturating_sub(boot_micros()));
        // A session without candidates is let go: what a request left behind that was given up ends with the lease.
        let is_idle = session.lease.is_idle();
        tokio::select! {
            () = tokio::time::sleep(pause), if !is_idle => {}
            () = session.lease.demanded() => if session.lease.held().is_none() {
                // Somebody else was told that it is gone.
                return Ok(());
            },
        }
        sent = leave()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each version hears of all its faults, and of the version of its own line that has none. Method: both sides of each edge.
    #[test]
    fn versions_of_etcd_are_told_what_they_have_and_what_helps() {
        let told = |version: &str| faults_of(version).unwrap_or_default();
        for (version, faults, sound) in [
            ("3.3.27", 2, "3.5.23"),
            ("3.4.30", 2, "3.4.38"),
            ("3.4.31", 1, "3.4.38"),
            ("3.5.1", 2, "3.5.23"),
            ("3.5.13", 1, "3.5.23"),
            ("3.6.0", 1, "3.6.5"),
            ("3.6.4-rc.1", 1, "3.6.5"),
        ] {
            let said = told(version);
            assert_eq!(said.matches("etcd#").count(), faults, "{version}: {said}");
            assert!(said.ends_with(&format!("upgrade it to {sound} or later")), "{version}: {said}");
        }
        for version in ["3.4.38", "3.5.23", "3.6.5", "3.6.5-x", "3.7.0", "4.0.0", "", "3.5", "unknown"] {
            assert_eq!(told(version), "", "{version}");
        }
    }
}
