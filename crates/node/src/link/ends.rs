//! How the two ends of a link hear that the other's process has died: a lifeline each, held at the other end.
//!
//! Read next: [`crate::lifeline`], which says why.

use super::Links;
use crate::frame::Hello;
use crate::lifeline::Expected;
use crate::peer_stream::address_of;
use crate::secret;
use hustings_core::{NodeId, Wire};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// Pause before a peer's names are looked up again that were not found.
const LOOK_UP_AGAIN_AFTER: Duration = Duration::from_secs(5);

async fn addresses_of(urls: Vec<String>) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for url in &urls {
        addresses.extend(tokio::net::lookup_host(address_of(url)).await.into_iter().flatten());
    }
    addresses
}

impl<M: Wire + 'static> Links<M> {
    /// Holds this node's end of a lifeline beside a link, for as long as that is up.
    ///
    /// `from` is the other end of the link: there, or at one of the peer's URLs, its peer port is to be found.
    pub(super) async fn hold_lifeline(self: Rc<Self>, hello: Hello, session: u64, from: Option<SocketAddr>) {
        let Some(holder) = self.holder.as_ref().filter(|_| hello.lifeline.len() == secret::NONCE) else { return };
        let urls = self.gatekeeper.borrow().addresses_of(hello.from);
        let urls = if urls.is_empty() { hello.member.peer_urls } else { urls };
        let named = loop {
            // Names are resolved elsewhere: the loop waits for nobody.
            let Ok(named) = self.door.run(addresses_of(urls.clone())).await else { return };
            if !named.is_empty() {
                break named;
            }
            // Who resolves names may be away for a while, and the link dials no second time while it is up.
            tokio::time::sleep(LOOK_UP_AGAIN_AFTER).await;
            if !self.gatekeeper.borrow().is_session(hello.from, session) {
                return;
            }
        };
        let seen = from.into_iter().flat_map(|from| named.iter().map(move |at| SocketAddr::new(from.ip(), at.port())));
        let mut addresses: Vec<SocketAddr> = seen.collect();
        addresses.extend(&named);
        let mut known = BTreeSet::new();
        addresses.retain(|address| known.insert(*address));
        if self.gatekeeper.borrow().is_session(hello.from, session) {
            holder.hold(session, addresses, hello.lifeline);
        }
    }

    /// Waits until the peer's lifeline ends, if that tells anything of this process.
    pub(super) async fn hear_end(&self, peer: NodeId, process: u64, expected: &mut Expected) {
        expected.ended(&self.counters.cut).await;
        if self.outlived.borrow().has(peer, process) {
            std::future::pending::<()>().await;
        }
        self.outlived.borrow_mut().on_end(peer, process);
    }

    /// Tells once that a process lives whose lifeline has ended.
    pub(super) fn tell_of_idle_connections(&self, peer: NodeId, process: u64) {
        if self.outlived.borrow_mut().on_up(peer, process) {
            tracing::warn!(
                peer = self.gatekeeper.borrow().name_of(peer),
                "its lifeline ended, and its process lives: something between the members ends connections that are idle; \
                 lifelines of this process are no longer heeded, so its death may be heard some milliseconds later"
            );
        }
    }
}
