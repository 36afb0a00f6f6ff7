//! Discovery of its own id by a node that was added to a running cluster: [`discover`].

use crate::frame::{Build, Greeting, Hello, LinkError, Welcome};
use crate::handshake::greet;
use crate::peer_stream::PeerStream;
use crate::secret::{self, ClusterSecret};
use bytes::{Bytes, BytesMut};
use hustings_core::{ApplyVersion, ClusterId, Member, NodeId};
use hustings_tls::Connector;
use std::time::Duration;
use tokio::time::timeout;

/// One member has this long to answer.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The reason why nobody told this node its id.
#[derive(Debug, thiserror::Error)]
#[error("no member of the cluster could say who this node is:{}", .tried.iter().map(|(url, why)| format!("\n  {url}: {why}")).collect::<String>())]
pub struct DiscoveryError {
    /// Each peer URL and its answer.
    pub tried: Vec<(String, String)>,
}

/// Asks the members at `peer_urls`, one after the other, which member has the peer URLs of `member`, for a node that can apply
/// entries by versions up to `can`.
///
/// # Errors
/// When nobody answers, or nobody knows those URLs: the member must be added first.
pub async fn discover(
    peer_urls: &[String],
    member: &Member,
    protocol: &str,
    can: ApplyVersion,
    secret: Option<&ClusterSecret>,
    tls: Option<&Connector>,
) -> Result<Welcome, DiscoveryError> {
    let hello = Hello {
        cluster_id: ClusterId(0),
        from: NodeId(0),
        to: NodeId(0),
        protocol: protocol.into(),
        boots: 0,
        starts: Vec::new(),
        lifeline: Bytes::new(),
        process: 0,
        nonce: secret::nonce(),
        build: Build::this(can),
        born_with: 0,
        durable: 0,
        member: member.clone(),
    };
    ask_all(peer_urls, &hello, secret, tls).await
}

/// Says this hello to the members at `peer_urls`, one after the other, until one answers who the members are.
pub(crate) async fn ask_all(
    peer_urls: &[String],
    hello: &Hello,
    secret: Option<&ClusterSecret>,
    tls: Option<&Connector>,
) -> Result<Welcome, DiscoveryError> {
    let mut tried = Vec::new();
    for url in peer_urls.iter().filter(|url| !hello.member.peer_urls.contains(url)) {
        let hello = Hello { nonce: secret::nonce(), ..hello.clone() };
        match timeout(TIMEOUT, ask(url, hello, secret, tls)).await {
            Ok(Ok(welcome)) => return Ok(welcome),
            Ok(Err(error)) => tried.push((url.clone(), error.to_string())),
            Err(_) => tried.push((url.clone(), "no answer".into())),
        }
    }
    Err(DiscoveryError { tried })
}

async fn ask(
    url: &str,
    hello: Hello,
    secret: Option<&ClusterSecret>,
    tls: Option<&Connector>,
) -> Result<Welcome, LinkError> {
    let (mut stream, _) = PeerStream::dialled(url, tls).await?;
    match greet(&mut stream, &mut BytesMut::new(), &Greeting::Hello(hello), secret).await? {
        Greeting::Welcome(welcome) => Ok(welcome),
        Greeting::Refusal(refusal) => Err(LinkError::Refused(refusal)),
        _ => Err(LinkError::Stranger("it answered a question with a greeting".into())),
    }
}
