//! How a cluster is reached: its endpoints, in TLS or not.

use crate::address::{StoreAddress, StoreTls};
use hustings_api::Client;
use hustings_api::client::{self, ConnectError, Options};
use hustings_tls::{Connector, Identity, Pair, Trust};
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// A cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Reach {
    pub(super) endpoints: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tls: Option<StoreTls>,
    /// What the files make, once it was asked for.
    #[serde(skip)]
    connector: OnceLock<Connector>,
}

impl PartialEq for Reach {
    fn eq(&self, other: &Reach) -> bool {
        (&self.endpoints, &self.tls) == (&other.endpoints, &other.tls)
    }
}

impl Eq for Reach {}

impl Reach {
    pub(crate) fn new(address: &StoreAddress) -> Reach {
        Reach { endpoints: address.endpoints.clone(), tls: address.tls.clone(), connector: OnceLock::new() }
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
        Client::connect_with(&self.endpoints, options).await.map_err(|error: ConnectError| error.to_string())
    }

    /// An endpoint as a URL.
    pub(super) fn url(&self, endpoint: &str) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        if endpoint.contains("://") { endpoint.to_owned() } else { format!("{scheme}://{endpoint}") }
    }
}
