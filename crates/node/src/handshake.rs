//! How two ends of a connection find out who the other one is: hello, challenge and proof, and how many such talks go on at once.

use crate::frame::{Challenge, Greeting, LinkError, Refusal};
use crate::peer_stream::PeerStream;
use crate::secret::{ClusterSecret, Side};
use bytes::BytesMut;
use std::collections::BTreeMap;
use std::net::IpAddr;
use tokio::io::AsyncWriteExt;

/// Handshakes under way at once, and how many of them with one address. One more, and the oldest is dropped: a peer says hello
/// at once, so who has been silent the longest is a stranger.
const HANDSHAKES_MAX: usize = 64;
const HANDSHAKES_PER_ADDRESS_MAX: usize = 16;

/// Connections whose other end has not said who it is.
#[derive(Default)]
pub(crate) struct Handshakes {
    pub(crate) next: u64,
    /// Oldest first, each with the task to end.
    pub(crate) underway: BTreeMap<u64, (IpAddr, tokio::task::AbortHandle)>,
}

impl Handshakes {
    /// Makes room for one more: a crowd of silent strangers drops its own oldest, and only then anybody's.
    pub(crate) fn make_room(&mut self, address: IpAddr) {
        let of_address = self.underway.iter().filter(|(_, (from, _))| *from == address);
        let oldest = match of_address.clone().count() >= HANDSHAKES_PER_ADDRESS_MAX {
            true => of_address.map(|(number, _)| *number).next(),
            false if self.underway.len() >= HANDSHAKES_MAX => self.underway.keys().next().copied(),
            false => None,
        };
        if let Some((from, task)) = oldest.and_then(|number| self.underway.remove(&number)) {
            tracing::warn!(%from, "too many handshakes at once: the oldest silent peer connection is dropped");
            task.abort();
        }
    }
}

pub(crate) async fn say(stream: &mut PeerStream, greeting: &Greeting) -> Result<(), LinkError> {
    let mut out = BytesMut::new();
    greeting.put(&mut out);
    Ok(stream.write_all(&out).await?)
}

/// Says hello, proves the cluster secret if asked for it, and gives back what is said then.
pub(crate) async fn greet(
    stream: &mut PeerStream,
    buffer: &mut BytesMut,
    hello: &Greeting,
    secret: Option<&ClusterSecret>,
) -> Result<Greeting, LinkError> {
    say(stream, hello).await?;
    let (answer, _) = Greeting::read(stream, buffer).await?;
    match (answer, secret) {
        (Greeting::Challenge(Challenge { nonce, proof }), Some(secret)) => {
            let said = hello.to_bytes();
            if !secret.is_proven(Side::Acceptor, &said, &nonce, &proof) {
                return Err(LinkError::Stranger("it does not know the cluster secret".into()));
            }
            say(stream, &Greeting::Proof(secret.prove(Side::Dialler, &said, &nonce))).await?;
            Ok(Greeting::read(stream, buffer).await?.0)
        }
        (Greeting::Challenge(_), None) => Err(LinkError::Refused(Refusal::because(
            "the cluster has a secret and this node was started without: give it the same --cluster-secret-file".into(),
        ))),
        (Greeting::Hello(_) | Greeting::Welcome(_), Some(_)) => Err(LinkError::Refused(Refusal::because(
            "the peer was started without a cluster secret: give all members the same --cluster-secret-file".into(),
        ))),
        // Whoever sits at that address may say so; what ends a node or condemns its directory must be proven to come from a member.
        (Greeting::Refusal(refusal), Some(_)) => Ok(Greeting::Refusal(Refusal::because(refusal.why))),
        (answer, _) => Ok(answer),
    }
}
