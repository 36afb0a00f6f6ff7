//! How a node dials its peers, for as long as they are members: when it tries, how long it pauses, and whose dial counts when two cross.

use super::{Arrival, Links};
use crate::counters::Counters;
use crate::door::Answered;
use crate::frame::{Greeting, Hello, LinkError, Refusal};
use crate::gatekeeper::Answer;
use crate::handshake::say;
use crate::peer_stream::PeerStream;
use crate::reach::Reach;
use bytes::BytesMut;
use hustings_core::{NodeId, Wire};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep};

/// Time in which a node is told that it is refused.
const REFUSAL_MAX: Duration = Duration::from_secs(1);

/// The pause after a failed dial grows from the first to the second.
const DIAL_PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));
/// A node with the larger id dials only when it has waited this long to be dialled.
const LONELY_AFTER: Duration = Duration::from_secs(1);
/// But so soon when it has just started: a peer that ran before pauses between its dials, up to a quarter of a second, and until
/// the two hear each other the next crash may find no majority. Not at once: where all start together, dials would cross.
const LONELY_AT_FIRST: Duration = Duration::from_millis(20);
/// Time for which, when both ends dial at once, the dial of the smaller id counts, if it comes to anything, and the other is
/// dropped. Else each end would take the connection that came last to it, not the same one at both, and both would break.
const CROSSED_WITHIN: Duration = Duration::from_secs(2);

impl<M: Wire + 'static> Links<M> {
    pub(super) async fn dial(self: Rc<Self>, peer: NodeId) {
        let mut last_refusal = String::new();
        let of_peer = self.counters.of_peer(peer);
        let is_larger = self.gatekeeper.borrow().me > peer;
        let first_pause = if is_larger { LONELY_AFTER } else { DIAL_PAUSE.0 };
        let mut pause = first_pause;
        if is_larger {
            sleep(LONELY_AT_FIRST).await;
        }
        loop {
            while self.is_connected(peer) {
                sleep(LONELY_AFTER).await;
            }
            if !self.gatekeeper.borrow().knows(peer) {
                return;
            }
            // No borrow of the gatekeeper may outlive a statement: the next await lets other links at it.
            let urls = self.gatekeeper.borrow().addresses_of(peer);
            for url in urls {
                self.dialled_at.borrow_mut().insert(peer, Instant::now());
                let dialled = self.clone().dial_once(peer, &url).await;
                self.dialled_at.borrow_mut().remove(&peer);
                if let Err(error) = &dialled
                    && !self.is_connected(peer)
                {
                    of_peer.reach.set(match error {
                        LinkError::Refused(refusal) => Reach::RefusesThis(refusal.why.clone()),
                        LinkError::Unwelcome(refusal) => Reach::IsRefused(refusal.why.clone()),
                        error => Reach::Away(format!("{url}: {error}")),
                    });
                }
                match dialled {
                    Ok(()) => pause = first_pause,
                    Err(LinkError::Refused(refusal)) if refusal.why != last_refusal => {
                        tracing::error!(peer = self.gatekeeper.borrow().name_of(peer), "{refusal}");
                        if refusal.is_removed {
                            // The loop decides what to do about it.
                            let _ = self.arrivals.send(Arrival::Removed { why: refusal.why.clone() }).await;
                        }
                        if refusal.is_rolled_back {
                            let _ = self.arrivals.send(Arrival::RolledBack { why: refusal.why.clone() }).await;
                        }
                        // Without a secret anybody could answer so.
                        if refusal.is_of_another_directory && self.door.secret.is_some() {
                            let _ = self.arrivals.send(Arrival::AnotherDirectory { why: refusal.why.clone() }).await;
                        }
                        last_refusal = refusal.why;
                    }
                    Err(LinkError::Unwelcome(refusal)) if refusal.why != last_refusal => {
                        tracing::error!(peer = self.gatekeeper.borrow().name_of(peer), "{refusal}");
                        last_refusal = refusal.why;
                    }
                    Err(error) => {
                        Counters::add(&of_peer.send_failures, 1);
                        tracing::debug!(peer = self.gatekeeper.borrow().name_of(peer), %url, "no link: {error}");
                    }
                }
            }
            sleep(pause).await;
            pause = if is_larger { LONELY_AFTER } else { (pause * 2).min(DIAL_PAUSE.1) };
        }
    }

    async fn dial_once(self: Rc<Self>, peer: NodeId, url: &str) -> Result<(), LinkError> {
        let expected = self.door.lifelines.expect();
        let hello = Hello { lifeline: expected.token(), ..self.gatekeeper.borrow().hello_to(peer) };
        let Answered { stream, buffer, greeting, shown } = self.door.dial(url.to_owned(), hello).await?;
        let mut stream = stream.unpack()?;
        match greeting {
            Greeting::Hello(hello) if hello.from == peer => {
                if self.is_connected(peer) && self.gatekeeper.borrow().me > peer {
                    // The peer's own dial came first.
                    return Ok(());
                }
                let admission = self.gatekeeper.borrow().admit(&hello, shown.as_ref());
                if let Answer::Occupied(_) = admission {
                    self.probe(peer);
                }
                match admission.refusal() {
                    Some(refusal) => {
                        // It took this node for a peer, and is told why it is not taken for one. It need not hear it.
                        let _ = tokio::time::timeout(REFUSAL_MAX, tell_and_hear_out(&mut stream, &refusal)).await;
                        Err(LinkError::Unwelcome(refusal))
                    }
                    None => {
                        self.dialled_at.borrow_mut().insert(peer, Instant::now());
                        self.run(stream, buffer, hello, expected).await
                    }
                }
            }
            Greeting::Hello(hello) => {
                let name_of = |id| self.gatekeeper.borrow().name_of(id);
                Err(LinkError::Stranger(format!("{} answered in place of {}", name_of(hello.from), name_of(peer))))
            }
            Greeting::Refusal(refusal) => {
                Err(LinkError::Refused(self.gatekeeper.borrow().believed(peer, shown.as_ref(), refusal)))
            }
            _ => Err(LinkError::Stranger("it did not answer a greeting with one".into())),
        }
    }

    /// Whether this node dials the peer that dials it, or has just done so.
    pub(super) fn crosses(&self, peer: NodeId) -> bool {
        let since = self.dialled_at.borrow().get(&peer).map(Instant::elapsed);
        is_crossed(self.gatekeeper.borrow().me, peer, since)
    }
}

/// Tells why a node is refused, and reads what it says until it hangs up: a connection that is dropped with unread bytes loses the words.
async fn tell_and_hear_out(stream: &mut PeerStream, refusal: &Refusal) -> Result<(), LinkError> {
    say(stream, &Greeting::Refusal(refusal.clone())).await?;
    stream.shutdown().await?;
    let mut unread = BytesMut::new();
    while stream.read_buf(&mut unread).await? > 0 {
        unread.clear();
    }
    Ok(())
}

/// Whether `peer` dials while this node, which has the smaller id, dials it or has just done so.
fn is_crossed(me: NodeId, peer: NodeId, dialled_since: Option<Duration>) -> bool {
    me < peer && dialled_since.is_some_and(|since| since < CROSSED_WITHIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_dials_that_cross_the_smaller_id_s_counts_for_a_while() {
        let (small, large) = (NodeId(1), NodeId(2));
        let (young, old) = (Some(CROSSED_WITHIN / 2), Some(CROSSED_WITHIN));
        assert!(is_crossed(small, large, young));
        assert!(!is_crossed(large, small, young), "the larger one takes what it is offered");
        assert!(!is_crossed(small, large, old), "its own dial hangs, or its link is dead and only the other end knows");
        assert!(!is_crossed(small, large, None));
    }
}
