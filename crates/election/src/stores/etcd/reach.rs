//! The way to a cluster: its endpoints, its TLS settings, and the user that asks.
//!
//! The user stands in the URL. Its password stands there, too, or in the variable `HUSTINGS_PASSWORD`, or in the first line of the
//! file that `HUSTINGS_PASSWORD_FILE` names, which is read for each connection: it may be replaced while a process runs.

use crate::address::{Secret, Security, StoreAddress, decoded};
use crate::observe::StoreError;
use hustings_api::client::{ALPN, ConnectError, Options};
use hustings_api::inside::Inside;
use hustings_api::{Client, EtcdError};
use hustings_tls::Connector;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::time::timeout;
use tonic::{Code, Status};

/// Time that a member may take to look at a password.
const PATIENCE: Duration = Duration::from_secs(5);

/// The reason why a cluster cannot be asked, in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Unreached {
    /// It does not answer, or not yet.
    ForNow(String),
    /// It does not admit the user.
    Denied(String),
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Unreached::ForNow(why) | Unreached::Denied(why)) = self;
        why.fmt(f)
    }
}

impl From<Unreached> for StoreError {
    fn from(unreached: Unreached) -> StoreError {
        match unreached {
            Unreached::ForNow(why) => StoreError::Silent(why),
            Unreached::Denied(why) => StoreError::Denied(why),
        }
    }
}

/// Whether a member wants another proof of the user, and has done nothing.
pub(super) fn lacks_proof(status: &Status) -> bool {
    EtcdError::of(status).is_some_and(EtcdError::asks_for_a_token)
}

/// Whether a member says that the user is not who it says, or may not. A proof that has ended is none of that: it is given
/// anew.
pub(super) fn is_denial(status: &Status) -> bool {
    match EtcdError::of(status) {
        Some(EtcdError::InvalidAuthToken | EtcdError::AuthOldRevision) => false,
        Some(EtcdError::AuthFailed | EtcdError::NoPasswordUser | EtcdError::UserEmpty) => true,
        _ => matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied),
    }
}

/// The way to a cluster, and the user that asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Reach {
    pub(super) endpoints: Vec<String>,
    #[serde(default)]
    security: Security,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<(String, Option<Secret>)>,
    /// The member of this process, which no other process can reach.
    #[serde(skip)]
    pub(super) inside: Option<Inside>,
    /// Connector made of the files, once it was asked for.
    #[serde(skip)]
    connector: OnceLock<Connector>,
}

impl PartialEq for Reach {
    fn eq(&self, other: &Reach) -> bool {
        (&self.endpoints, &self.security, &self.user) == (&other.endpoints, &other.security, &other.user)
    }
}

impl Eq for Reach {}

impl Reach {
    pub(crate) fn new(address: &StoreAddress) -> Reach {
        let user = address
            .user
            .as_ref()
            .map(|(name, password)| (decoded(name), password.as_ref().map(|password| Secret(decoded(&password.0)))));
        Reach {
            endpoints: address.endpoints.clone(),
            security: address.security.clone(),
            user,
            inside: address.inside.clone(),
            connector: OnceLock::new(),
        }
    }

    /// The way to the cluster with the password in it, for a process that has other variables.
    pub(super) fn complete(&self) -> Reach {
        let password = self.password().ok().flatten().map(|(_, password)| Secret(password));
        let user = self.user.as_ref().map(|(name, _)| (name.clone(), password));
        Reach { user, ..self.clone() }
    }

    /// The user that asks, and its password; `None` if the URL names none.
    ///
    /// # Errors
    /// There is no password, in words.
    pub(super) fn password(&self) -> Result<Option<(String, String)>, String> {
        let Some((name, given)) = &self.user else { return Ok(None) };
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let password = match (given, variable("HUSTINGS_PASSWORD"), variable("HUSTINGS_PASSWORD_FILE")) {
            (Some(Secret(password)), _, _) => password.clone(),
            (None, Some(password), _) => password,
            (None, None, Some(path)) => {
                let read = std::fs::read_to_string(&path);
                let read = read.map_err(|error| format!("HUSTINGS_PASSWORD_FILE: {path} cannot be read: {error}"))?;
                read.lines().next().unwrap_or_default().to_owned()
            }
            (None, None, None) => String::new(),
        };
        match password.is_empty() {
            true => Err(format!(
                "there is no password for {name}: give it in HUSTINGS_PASSWORD, or in a file that HUSTINGS_PASSWORD_FILE names"
            )),
            false => Ok(Some((name.clone(), password))),
        }
    }

    /// The connector for TLS; `None` for plain text.
    ///
    /// # Errors
    /// A file cannot be read or is not what it should be.
    pub(super) fn connector(&self) -> Result<Option<&Connector>, String> {
        let Some(tls) = self.security.tls() else { return Ok(None) };
        if let Some(connector) = self.connector.get() {
            return Ok(Some(connector));
        }
        let made = tls.connector("store", &[ALPN])?;
        Ok(Some(self.connector.get_or_init(|| made)))
    }

    /// A connection to the first member that accepts.
    pub(super) async fn connect(&self) -> Result<Client, Unreached> {
        self.connect_with(Options::default()).await
    }

    /// Connects with other waits.
    pub(super) async fn connect_with(&self, options: Options) -> Result<Client, Unreached> {
        let tls = self.connector().map_err(Unreached::ForNow)?.cloned();
        let options = Options { tls, inside: self.inside.clone(), ..options };
        let client = Client::connect_with(&self.endpoints, options).await;
        let client = client.map_err(|error: ConnectError| Unreached::ForNow(error.to_string()))?;
        let Some((name, password)) = self.password().map_err(Unreached::ForNow)? else { return Ok(client) };
        let client = client.as_user(name, password);
        self.authenticate(&client).await?;
        Ok(client)
    }

    /// Proves who asks, within a time.
    ///
    /// # Errors
    /// In words.
    pub(super) async fn authenticate(&self, client: &Client) -> Result<(), Unreached> {
        let Some((name, _)) = &self.user else { return Ok(()) };
        let unadmitted = |why: &str| format!("{}: {name} is not admitted: {why}", self.endpoints.join(","));
        match timeout(PATIENCE, client.authenticate()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(status)) if is_denial(&status) => Err(Unreached::Denied(format!(
                "{}; check the name in the URL, and its password there, in HUSTINGS_PASSWORD or in the file that \
                 HUSTINGS_PASSWORD_FILE names",
                unadmitted(status.message())
            ))),
            Ok(Err(status)) => Err(Unreached::ForNow(unadmitted(status.message()))),
            Err(_) => Err(Unreached::ForNow(unadmitted(&format!("no answer within {PATIENCE:?}")))),
        }
    }

    /// Words for a user that may not do this, with the remedy. `needs`: what a role must be granted.
    pub(super) fn denial(&self, status: &Status, needs: &str) -> String {
        let (store, said) = (self.endpoints.join(","), status.message());
        match &self.user {
            None => format!(
                "{store}: users count there, and none was named: {said}; name one in the URL, as in hustings://USER@HOST, and \
                 its password in HUSTINGS_PASSWORD"
            ),
            Some((name, _)) => format!("{store}: {name} may not do this: {said}; {needs}"),
        }
    }

    /// Whether it is spoken to in TLS.
    pub(super) fn is_in_tls(&self) -> bool {
        self.security.tls().is_some()
    }

    /// An endpoint as a URL.
    pub(super) fn url(&self, endpoint: &str) -> String {
        let scheme = if self.is_in_tls() { "https" } else { "http" };
        if endpoint.contains("://") { endpoint.to_owned() } else { format!("{scheme}://{endpoint}") }
    }
}
