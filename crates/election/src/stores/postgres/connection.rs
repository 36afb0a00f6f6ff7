//! One connection to the primary, kept: [`Link`].

use super::Place;
use super::faults::{fault_of, is_denial, is_final, is_standby, remedy, words};
use super::secured::{Secured, Securing};
use super::statements::{RIGHTS, SCHEMA};
use crate::address::Security;
use crate::stores::record::{Fault, Hints, Troubles};
use crate::wire::Wire;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Config, Socket};

/// Pause between two rounds over all servers.
const RETRY: Duration = Duration::from_millis(100);
/// Pause after a server refuses the user, and did not before.
const DENIED_RETRY: Duration = Duration::from_secs(2);

/// The state that requests and the keeper of the connection share.
pub(super) struct Link {
    wire: Wire,
    connected: Mutex<Option<Connected>>,
    opened: watch::Sender<Opened>,
    hints: Hints,
    troubles: Troubles,
    warned: Mutex<BTreeSet<String>>,
}

/// A connection, and who wants to know whether it still answers.
#[derive(Clone)]
struct Connected {
    client: Arc<Client>,
    suspected: Arc<Notify>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Opened {
    NotYet,
    Once,
    Never(Fault),
}

impl Link {
    pub(super) fn new(shown: String, security: &Security) -> Link {
        Link {
            wire: Wire::new(security, "postgres", &[]),
            connected: Mutex::default(),
            opened: watch::Sender::new(Opened::NotYet),
            hints: Hints::default(),
            troubles: Troubles::of(shown),
            warned: Mutex::default(),
        }
    }

    fn connected(&self) -> MutexGuard<'_, Option<Connected>> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn client(&self) -> Result<Arc<Client>, Fault> {
        let connected = self.connected().clone().filter(|connected| !connected.client.is_closed());
        connected.map(|connected| connected.client).ok_or_else(|| {
            let why = self.troubles.now().unwrap_or_else(|| "the connection is gone; another one is opened".to_owned());
            Fault::Unreachable(why)
        })
    }

    /// Lets the connection end: the task that reads from it holds this value, which holds the client.
    pub(super) fn close(&self) {
        *self.connected() = None;
    }

    /// Waits until a server has been reached once.
    pub(super) async fn opened(&self) -> Result<(), Fault> {
        let mut opened = self.opened.subscribe();
        match opened.wait_for(|opened| *opened != Opened::NotYet).await.map(|opened| opened.clone()) {
            Ok(Opened::Never(why)) => Err(why),
            // The sender lives as long as this value.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Translates the error of a failed request; a server that is no primary is left.
    pub(super) fn fault(&self, error: &tokio_postgres::Error) -> Fault {
        let fault = fault_of(error);
        if is_standby(error) || matches!(fault, Fault::Unknown(_)) {
            self.suspect();
        }
        fault
    }

    /// Makes the keeper ask whether the server still answers.
    pub(super) fn suspect(&self) {
        if let Some(connected) = &*self.connected() {
            connected.suspected.notify_one();
        }
    }

    pub(super) fn hints(&self) -> &Hints {
        &self.hints
    }

    pub(super) fn troubles(&self) -> &Troubles {
        &self.troubles
    }

    fn warn_once(&self, warning: String) {
        let is_new = self.warned.lock().unwrap_or_else(PoisonError::into_inner).insert(warning.clone());
        if is_new {
            tracing::warn!("{warning}");
        }
    }
}

/// The reason why a server cannot be used.
enum Denied {
    ForNow(String),
    ForGood(Fault),
}

/// Connects, and connects again, to the server that is the primary.
pub(super) async fn keep(link: Arc<Link>, place: Place, ttl: Duration) {
    if let Err(why) = link.wire.connector() {
        let _ = link.opened.send_replace(Opened::Never(Fault::Refused(why)));
        return;
    }
    let patience = (ttl / 4).clamp(Duration::from_millis(200), Duration::from_secs(2));
    for turn in 0.. {
        let endpoint = &place.endpoints[turn % place.endpoints.len()];
        let connected = timeout(patience, connect(&link, &place, endpoint, patience)).await;
        let denied = match connected {
            Ok(Ok((client, mut hearing))) => {
                link.troubles.end();
                let connected = Connected { client: Arc::new(client), suspected: Arc::default() };
                *link.connected() = Some(connected.clone());
                let _ = link.opened.send_replace(Opened::Once);
                // Earlier changes were not heard of.
                link.hints.ring_all();
                let why = lasts(&connected, &mut hearing, patience).await;
                *link.connected() = None;
                // Requests that wait for an answer wait no longer.
                hearing.abort();
                Denied::ForNow(format!("{endpoint}: {why}"))
            }
            Ok(Err(denied)) => denied,
            Err(_) => Denied::ForNow(format!("{endpoint} does not answer within {patience:?}")),
        };
        match denied {
            Denied::ForGood(fault) if *link.opened.borrow() == Opened::NotYet => {
                let _ = link.opened.send_replace(Opened::Never(fault));
                return;
            }
            Denied::ForGood(fault) => {
                link.troubles.begin(&fault.to_string());
                tokio::time::sleep(DENIED_RETRY).await;
            }
            Denied::ForNow(why) => link.troubles.begin(&why),
        }
        if (turn + 1) % place.endpoints.len() == 0 {
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// Waits until the connection has ended, or the server does not answer any more, or is no primary; says which.
async fn lasts(connected: &Connected, hearing: &mut JoinHandle<()>, patience: Duration) -> String {
    loop {
        tokio::select! {
            _ = &mut *hearing => return "the connection ended".to_owned(),
            () = connected.suspected.notified() => {
                let asked = connected.client.query_typed("SELECT pg_is_in_recovery()", &[]);
                match timeout(patience, asked).await {
                    Ok(Ok(rows)) if rows.first().and_then(|row| row.try_get(0).ok()) == Some(false) => {}
                    Ok(Ok(_)) => return "it is no primary any more".to_owned(),
                    Ok(Err(error)) => return words(&error),
                    Err(_) => return format!("no answer within {patience:?}"),
                }
            }
        }
    }
}

/// A connection to this server, if it is a primary, with all that elections need there.
async fn connect(
    link: &Arc<Link>,
    place: &Place,
    endpoint: &str,
    patience: Duration,
) -> Result<(Client, JoinHandle<()>), Denied> {
    let (host, port) = endpoint.rsplit_once(':').unwrap_or((endpoint, "5432"));
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let user = place.user.clone().or_else(|| variable("PGUSER")).or_else(|| variable("USER"));
    let user = user.unwrap_or_else(|| "postgres".to_owned());
    let password = place.password.as_ref().map(|secret| secret.0.clone()).or_else(|| variable("PGPASSWORD"));
    let mut config = Config::new();
    config.host(host.trim_matches(['[', ']'])).port(port.parse().unwrap_or(5432));
    config.user(&user).dbname(&place.database).application_name("hustings-election");
    config.connect_timeout(patience).tcp_user_timeout(patience * 2).keepalives_idle(Duration::from_secs(5));
    if let Some(password) = password {
        config.password(password);
    }
    let connector = link.wire.connector().map_err(Denied::ForNow)?.cloned();
    config.ssl_mode(if connector.is_some() { SslMode::Require } else { SslMode::Disable });
    let is_encrypted = connector.is_some();
    let denied = |what: &str, error: &tokio_postgres::Error| {
        let words = format!("{}{}", words(error), remedy(error, is_encrypted));
        let why = format!("{endpoint}: {what}, user {user:?}, database {:?}: {words}", place.database);
        match is_final(error) {
            true if is_denial(error) => Denied::ForGood(Fault::Denied(why)),
            true => Denied::ForGood(Fault::Refused(why)),
            false => Denied::ForNow(why),
        }
    };
    let securing = Securing { connector, host: host.to_owned() };
    let (client, connection) = config.connect(securing).await.map_err(|error| denied("no connection", &error))?;
    // Ends when the client is dropped.
    let hearing = tokio::spawn(hear(link.clone(), connection));
    let about = About::of(&client).await.map_err(|error| denied("no answer", &error))?;
    if about.is_standby {
        return Err(Denied::ForNow(format!("{endpoint} is a standby or read-only: a primary is wanted")));
    }
    if !about.has_tables {
        make_tables(&client, &user, endpoint).await?;
    }
    check_rights(&client, &user, endpoint).await?;
    for warning in about.warnings(endpoint).into_iter().chain(plain_text_warning(&place.security, endpoint)) {
        link.warn_once(warning);
    }
    if let Err(error) = client.batch_execute("LISTEN hustings_elections").await {
        tracing::debug!(%error, "no hints from {endpoint}: changes are found by reading");
    }
    Ok((client, hearing))
}

/// Reads from the connection until it ends.
async fn hear(link: Arc<Link>, mut connection: tokio_postgres::Connection<Socket, Secured>) {
    while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(heard) = message {
            link.hints.ring(heard.payload());
        }
    }
}

/// A warning about plain text that nobody asked for: libpq would have tried TLS first. Nobody listens on the way to this machine.
fn plain_text_warning(security: &Security, endpoint: &str) -> Option<String> {
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host).trim_matches(['[', ']']);
    let is_here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    (*security == Security::Unsaid && !is_here).then(|| {
        format!(
            "{endpoint} is spoken to in plain text: say `?sslmode=verify-full&sslrootcert=FILE` behind the URL, or \
             `?sslmode=disable` where that is meant"
        )
    })
}

/// The facts that a server tells about itself.
struct About {
    is_standby: bool,
    has_tables: bool,
    fsync: String,
    full_page_writes: String,
    synchronous_commit: String,
    synchronous_standbys: String,
    followers: i64,
}

impl About {
    async fn of(client: &Client) -> Result<About, tokio_postgres::Error> {
        let rows = client
            .query_typed(
                "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on', \
                 to_regclass('hustings_elections') IS NOT NULL AND to_regclass('hustings_tokens') IS NOT NULL, \
                 current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'), \
                 current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication)",
                &[],
            )
            .await?;
        let row = &rows[0];
        Ok(About {
            is_standby: row.try_get(0)?,
            has_tables: row.try_get(1)?,
            fsync: row.try_get(2)?,
            full_page_writes: row.try_get(3)?,
            synchronous_commit: row.try_get(4)?,
            synchronous_standbys: row.try_get(5)?,
            followers: row.try_get(6)?,
        })
    }

    /// Warnings about settings that are known to break what elections promise.
    fn warnings(&self, endpoint: &str) -> Vec<String> {
        let mut all = Vec::new();
        for (name, value) in [("fsync", &self.fsync), ("full_page_writes", &self.full_page_writes)] {
            if value == "off" {
                all.push(format!(
                    "{endpoint} has {name} = off: after a crash it may have forgotten who leads, and two may; switch it on"
                ));
            }
        }
        if self.synchronous_commit == "off" {
            all.push(format!(
                "{endpoint} has synchronous_commit = off: after a crash it has forgotten the last writes, and two may lead; \
                 switch it on, at least for this role (ALTER ROLE ... SET synchronous_commit = on)"
            ));
        }
        let waits_for_standbys = !self.synchronous_standbys.is_empty() && self.synchronous_commit != "local";
        if self.followers > 0 && !waits_for_standbys {
            all.push(format!(
                "{endpoint} has standbys and waits for none of them: a failover may forget who leads, and two may until the \
                 first one's lease ends; set synchronous_standby_names. Tokens grow all the same"
            ));
        }
        all
    }
}

async fn make_tables(client: &Client, user: &str, endpoint: &str) -> Result<(), Denied> {
    // Two who make the same table at the same time get in each other's way: the second one finds it.
    let made = match client.batch_execute(SCHEMA).await {
        Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => client.batch_execute(SCHEMA).await,
        made => made,
    };
    let Err(error) = made else { return Ok(()) };
    let why = format!("{endpoint}: the table of elections cannot be made: {}", words(&error));
    match is_final(&error) {
        true => Err(Denied::ForGood(Fault::Denied(format!(
            "{why}; let somebody who may execute: {SCHEMA} {}",
            RIGHTS.replace("USER", user)
        )))),
        false => Err(Denied::ForNow(why)),
    }
}

async fn check_rights(client: &Client, user: &str, endpoint: &str) -> Result<(), Denied> {
    let asked = client
        .query_typed(
            "SELECT has_table_privilege('hustings_elections', 'SELECT') AND has_table_privilege('hustings_elections', 'INSERT') \
             AND has_table_privilege('hustings_elections', 'UPDATE') AND has_sequence_privilege('hustings_tokens', 'USAGE'), \
             (SELECT count(*) FROM information_schema.columns WHERE table_name = 'hustings_elections' AND column_name IN \
             ('election', 'holder', 'life', 'value', 'priority', 'token', 'generation', 'ttl_ms', 'note', 'wish', 'history', \
             'raised', 'timeline', 'version'))",
            &[],
        )
        .await;
    let rows = asked.map_err(|error| Denied::ForNow(format!("{endpoint}: {}", words(&error))))?;
    let row = &rows[0];
    if !row.try_get::<_, bool>(0).unwrap_or(false) {
        let grants = RIGHTS.replace("USER", user);
        return Err(Denied::ForGood(Fault::Denied(format!(
            "{endpoint}: {user:?} may not use the tables of elections; let their owner execute: {grants}"
        ))));
    }
    if row.try_get::<_, i64>(1).unwrap_or(0) < 14 {
        return Err(Denied::ForGood(Fault::Refused(format!(
            "{endpoint}: the table hustings_elections is somebody else's, it lacks our columns; choose another database, or \
             another schema by the role's search_path"
        ))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_over_a_network_is_told_unless_it_was_asked_for() {
        let warned = |security: Security, endpoint: &str| plain_text_warning(&security, endpoint).is_some();
        assert!(warned(Security::Unsaid, "10.0.0.1:5432") && warned(Security::Unsaid, "[2001:db8::1]:5432"));
        assert!(!warned(Security::Plain, "10.0.0.1:5432") && !warned(Security::Tls(Default::default()), "db:5432"));
        assert!(["localhost:5432", "127.0.0.1:1", "[::1]:1"].iter().all(|here| !warned(Security::Unsaid, here)));
    }
}
