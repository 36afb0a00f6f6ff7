//! A connection for one request of our own server's HTTP API, apart from the channel for etcd's calls: [`dial`].

use super::reach::Reach;
use hustings_api::dial;
use hyper::body::Body;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;

/// An open connection to a member.
pub(super) struct Dialled<B> {
    pub(super) sender: SendRequest<B>,
    /// Drives the connection; it ends with the sender.
    pub(super) driving: JoinHandle<()>,
    /// Address of this end.
    pub(super) from: SocketAddr,
    /// Value of the request's `Host`.
    pub(super) host: String,
}

/// Connects to this member.
///
/// # Errors
/// Why it cannot be reached.
pub(super) async fn dial<B>(reach: &Reach, endpoint: &str) -> Result<Dialled<B>, String>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    if let Some(inside) = &reach.inside {
        let stream = inside.connect().map_err(|error| error.to_string())?;
        return shake_hands(stream, SocketAddr::from(([127, 0, 0, 1], 0)), endpoint.to_owned()).await;
    }
    let url = reach.url(endpoint);
    let stream = dial::dial(&url, reach.connector()?).await.map_err(|error| error.to_string())?;
    let (from, host) = (stream.from, dial::authority_of(&url).to_owned());
    shake_hands(stream, from, host).await
}

async fn shake_hands<B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    from: SocketAddr,
    host: String,
) -> Result<Dialled<B>, String>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let shaken = handshake(TokioIo::new(stream)).await;
    let (sender, connection) = shaken.map_err(|error| error.to_string())?;
    let driving = tokio::spawn(async move {
        // The caller learns of its end.
        let _ = connection.with_upgrades().await;
    });
    Ok(Dialled { sender, driving, from, host })
}
