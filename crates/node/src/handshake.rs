//! The handshake, in which two ends of a connection find out who the other one is: hello, challenge and proof; and its limits.

use crate::frame::{Challenge, Greeting, Hello, LinkError, Refusal};
use crate::peer_stream::PeerStream;
use crate::secret::{self, ClusterSecret, Side};
use bytes::BytesMut;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use tokio::io::AsyncWriteExt;

/// Handshakes under way at once, and how many of them with one address. One more, and the oldest is dropped: a peer says hello
/// at once, so the caller that has been silent the longest is a stranger.
const HANDSHAKES_MAX: usize = 64;
const HANDSHAKES_PER_ADDRESS_MAX: usize = 16;
/// Addresses that members have come from and that are remembered.
const FAMILIAR_MAX: usize = 64;

/// Connections whose other end has not said who it is.
#[derive(Default)]
pub(crate) struct Handshakes {
    next: u64,
    /// Oldest first, each with the task to end.
    underway: BTreeMap<u64, (IpAddr, tokio::task::AbortHandle)>,
    /// Addresses that members have come from, with the number of the last such talk: strangers from elsewhere do not take their room.
    familiar: BTreeMap<IpAddr, u64>,
}

impl Handshakes {
    /// The number of one more, for which room was made: a crowd of silent strangers drops its own oldest, and only then that of
    /// others, and nobody's from where a member has come from.
    pub(crate) fn make_room(&mut self, address: IpAddr) -> u64 {
        self.next += 1;
        let address = site(address);
        let of_address = self.underway.iter().filter(|(_, (from, _))| *from == address);
        let strangers = self.underway.iter().filter(|(_, (from, _))| !self.familiar.contains_key(from));
        let oldest = match of_address.clone().count() >= HANDSHAKES_PER_ADDRESS_MAX {
            true => of_address.map(|(number, _)| *number).next(),
            false if self.familiar.contains_key(&address) => None,
            false if strangers.clone().count() >= HANDSHAKES_MAX => strangers.map(|(number, _)| *number).next(),
            false => None,
        };
        if let Some((_, task)) = oldest.and_then(|number| self.underway.remove(&number)) {
            task.abort();
        }
        self.next
    }

    /// A handshake goes on in this task.
    pub(crate) fn begin(&mut self, number: u64, address: IpAddr, task: tokio::task::AbortHandle) {
        // One that has ended already has nobody to remove it.
        if !task.is_finished() {
            self.underway.insert(number, (site(address), task));
        }
    }

    pub(crate) fn end(&mut self, number: u64) {
        self.underway.remove(&number);
    }

    /// A member has come from this address. Where too many have, the one that nobody has come from for the longest is forgotten.
    pub(crate) fn trust(&mut self, address: IpAddr) {
        let address = site(address);
        self.next += 1;
        if self.familiar.len() >= FAMILIAR_MAX && !self.familiar.contains_key(&address) {
            let oldest = self.familiar.iter().min_by_key(|(_, at)| **at).map(|(address, _)| *address);
            oldest.and_then(|oldest| self.familiar.remove(&oldest));
        }
        self.familiar.insert(address, self.next);
    }
}

/// The addresses that one stranger can have for the asking, as one: an address of IPv4, or the first of the 2^64 of a network of IPv6.
pub fn site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

pub(crate) async fn say(stream: &mut PeerStream, greeting: &Greeting) -> Result<(), LinkError> {
    let mut out = BytesMut::new();
    greeting.put(&mut out);
    stream.write_all(&out).await?;
    // In TLS that may have sealed it alone, and some who speak hang up then.
    Ok(stream.flush().await?)
}

/// Hears who dials; with a cluster secret, proven.
pub(crate) async fn hear(
    stream: &mut PeerStream,
    buffer: &mut BytesMut,
    secret: Option<&ClusterSecret>,
) -> Result<Hello, LinkError> {
    let (Greeting::Hello(hello), said) = Greeting::read(stream, buffer).await? else {
        return Err(LinkError::Stranger("it did not begin with a hello".into()));
    };
    let Some(secret) = secret else { return Ok(hello) };
    let nonce = secret::nonce();
    let proof = secret.prove(Side::Acceptor, &said, &nonce);
    say(stream, &Greeting::Challenge(Challenge { nonce: nonce.clone(), proof })).await?;
    match Greeting::read(stream, buffer).await?.0 {
        Greeting::Proof(proof) if secret.is_proven(Side::Dialler, &said, &nonce, &proof) => Ok(hello),
        _ => {
            let why = "it does not know the cluster secret: give all members the same --cluster-secret-file";
            say(stream, &Greeting::Refusal(Refusal::because(why.into()))).await?;
            Err(LinkError::Stranger(why.into()))
        }
    }
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
        // Anybody at that address may say so; a message that ends a node or condemns its directory must be proven to come from a member.
        (Greeting::Refusal(refusal), Some(_)) => Ok(Greeting::Refusal(Refusal::because(refusal.why))),
        (answer, _) => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no member loses its room because of which address it has. Method: one with the lowest comes now and then while
    /// as many others as are remembered come and go.
    #[test]
    fn the_address_that_was_quiet_the_longest_is_forgotten() {
        let mut handshakes = Handshakes::default();
        let address = |number: u8| IpAddr::from([10, 0, 0, number]);
        let count = u8::try_from(FAMILIAR_MAX).expect("few");
        for number in 1..=count {
            handshakes.trust(address(number));
        }
        // One that is known already takes nobody's place.
        handshakes.trust(address(1));
        assert_eq!(handshakes.familiar.len(), FAMILIAR_MAX);
        handshakes.trust(address(count + 1));
        let is_familiar = |number: u8| handshakes.familiar.contains_key(&address(number));
        assert!(is_familiar(1) && is_familiar(count + 1) && !is_familiar(2) && is_familiar(3));
    }
}
