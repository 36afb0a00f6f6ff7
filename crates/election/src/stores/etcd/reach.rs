//! How a cluster is reached: its endpoints, in TLS or not, and who asks.
//!
//! The user stands in the URL. Its password stands there, too, or in the variable `HUSTINGS_PASSWORD`, or in the first line of the
//! file that `HUSTINGS_PASSWORD_FILE` names, which is read for each connection: it may be replaced while a process runs.

use crate::address::{Secret, StoreAddress, StoreTls, decoded};
use hustings_api::Client;
use hustings_api::client::{self, ConnectError, Options};
use hustings_tls::{Connector, Identity, Pair, Trust};
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;
use std::time::Duration;
use tokio::time::timeout;

/// How long a member may take to look at a password.
const PATIENCE: Duration = Duration::from_secs(5);

/// A cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Reach {
    pub(super) endpoints: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tls: Option<StoreTls>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<(String, Option<Secret>)>,
    /// What the files make, once it was asked for.
    #[serde(skip)]
    connector: OnceLock<Connector>,
}

impl PartialEq for Reach {
    fn eq(&self, other: &Reach) -> bool {
        (&self.endpoints, &self.tls, &self.user) == (&other.endpoints, &other.tls, &other.user)
    }
}

impl Eq for Reach {}

impl Reach {
    pub(crate) fn new(address: &StoreAddress) -> Reach {
        let user = address
            .user
            .as_ref()
            .map(|(name, password)| (decoded(name), password.as_ref().map(|password| Secret(decoded(&password.0)))));
        Reach { endpoints: address.endpoints.clone(), tls: address.tls.clone(), user, connector: OnceLock::new() }
    }

    /// The same, with the password in it, for a process that has other variables.
    pub(super) fn complete(&self) -> Reach {
        let password = self.password().ok().flatten().map(|(_, password)| Secret(password));
        let user = self.user.as_ref().map(|(name, _)| (name.clone(), password));
        Reach { user, ..self.clone() }
    }

    /// Who asks, and its password.
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

    /// How it is spoken to in TLS, if it is.
    ///
    /// # Errors
    /// A file cannot be read or is not what it should be.
    pub(super) fn connector(&self) -> Result<Option<&Connector>, String> {
        let Some(tls) = &self.tls else { return Ok(None) };
        if let Some(connector) = self.connector.get() {
            return Ok(Some(connector));
        }
        let identity = match (&tls.cert, &tls.key) {
            (Some(certificate), Some(key)) => {
                Some(Identity::Files(Pair { certificate: certificate.clone(), key: key.clone() }))
            }
            _ => None,
        };
        let trust = match (tls.skips_verification, &tls.cacert) {
            (true, _) => Trust::Anybody,
            (false, Some(ca)) => Trust::Authority(ca.clone()),
            (false, None) => Trust::Machine,
        };
        let made = client::tls(trust, identity).map_err(|error| error.to_string())?;
        Ok(Some(self.connector.get_or_init(|| made)))
    }

    /// A connection to the first member that accepts.
    pub(super) async fn connect(&self) -> Result<Client, String> {
        self.connect_with(Options::default()).await
    }

    /// The same, with other waits.
    pub(super) async fn connect_with(&self, options: Options) -> Result<Client, String> {
        let options = Options { tls: self.connector()?.cloned(), ..options };
        let client = Client::connect_with(&self.endpoints, options).await;
        let client = client.map_err(|error: ConnectError| error.to_string())?;
        let Some((name, password)) = self.password()? else { return Ok(client) };
        let client = client.as_user(name, password);
        self.authenticate(&client).await?;
        Ok(client)
    }

    /// Proves who asks, within a time.
    ///
    /// # Errors
    /// In words.
    pub(super) async fn authenticate(&self, client: &Client) -> Result<(), String> {
        let Some((name, _)) = &self.user else { return Ok(()) };
        match timeout(PATIENCE, client.authenticate()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(status)) => Err(format!("{name} is not admitted: {}", status.message())),
            Err(_) => Err(format!("{name} is not admitted: no answer within {PATIENCE:?}")),
        }
    }

    /// An endpoint as a URL.
    pub(super) fn url(&self, endpoint: &str) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        if endpoint.contains("://") { endpoint.to_owned() } else { format!("{scheme}://{endpoint}") }
    }
}
