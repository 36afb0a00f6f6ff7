//! The connections to members of a store, and TLS on them where that is wanted. [`Wire`].

use crate::address::Security;
use hustings_tls::Connector;
use std::sync::OnceLock;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection, in TLS or not.
pub(crate) type Stream = Box<dyn Duplex>;

/// A stream that can be read from and written to.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// The way to a store.
#[derive(Debug)]
pub(crate) struct Wire {
    security: Security,
    /// Names the settings that an error says would mend it.
    of: &'static str,
    protocols: &'static [&'static str],
    /// Connector made of the files, once it was asked for.
    connector: OnceLock<Connector>,
}

impl Wire {
    /// The way to a store whose settings are called as `of` says, and which speaks this on top of TLS. No file is read yet.
    pub(crate) fn new(security: &Security, of: &'static str, protocols: &'static [&'static str]) -> Wire {
        Wire { security: security.clone(), of, protocols, connector: OnceLock::new() }
    }

    #[cfg(feature = "zookeeper")]
    pub(crate) fn security(&self) -> &Security {
        &self.security
    }

    /// The connector, where TLS is wanted.
    ///
    /// # Errors
    /// A file cannot be read or is not what it should be.
    pub(crate) fn connector(&self) -> Result<Option<&Connector>, String> {
        let Some(tls) = self.security.tls() else { return Ok(None) };
        if let Some(connector) = self.connector.get() {
            return Ok(Some(connector));
        }
        let made = tls.connector(self.of, self.protocols)?;
        Ok(Some(self.connector.get_or_init(|| made)))
    }

    /// Connects to a member at `HOST:PORT`. The caller bounds the time.
    ///
    /// # Errors
    /// Nobody accepts there, or TLS does not come about.
    #[cfg(any(feature = "consul", feature = "zookeeper"))]
    pub(crate) async fn dial(&self, endpoint: &str) -> std::io::Result<Stream> {
        let connector = self.connector().map_err(std::io::Error::other)?;
        let stream = tokio::net::TcpStream::connect(endpoint).await?;
        // Requests are small, and waited for.
        stream.set_nodelay(true)?;
        let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
        Ok(match connector {
            Some(connector) => Box::new(connector.connect(host, stream).await?.0),
            None => Box::new(stream),
        })
    }
}
