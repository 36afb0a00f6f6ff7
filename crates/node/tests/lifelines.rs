//! Goal: a member hears at once that a peer's process has died, and believes nobody else who says so. Method: the peer is written
//! by another hand: a listener at its address, with a link and lifelines.

use crate::support::greeting::{Greeting, HELLO, hear, hello, say};
use crate::support::lifelines::until_all_hold_lifelines;
use crate::support::{Troupe, in_time};
use bytes::Bytes;
use hustings_core::NodeId;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const TOKEN: &[u8; 16] = b"a token of m2's ";

/// A peer of m1 that is not of this build.
struct Peer {
    listener: TcpListener,
    m1: SocketAddr,
}

impl Peer {
    /// m1 runs, and m2 is this.
    async fn beside(troupe: &mut Troupe) -> Peer {
        let listener = TcpListener::bind(troupe.addresses[&NodeId(2)]).await.expect("it is free");
        troupe.start(NodeId(1)).expect("a founder starts");
        Peer { listener, m1: troupe.addresses[&NodeId(1)] }
    }

    /// Takes m1's dial, and offers this token in the life with this number; gives the link and the token that m1 offers.
    async fn take_link(&self, process: u64, token: &'static [u8]) -> (TcpStream, Bytes) {
        let (mut link, _) = in_time(self.listener.accept()).await.expect("m1 dials");
        let heard = hear(&mut link).await;
        assert_eq!((heard.kind, heard.lifeline.len()), (HELLO, 16), "m1 offers a lifeline");
        let own = hello("raft", 2, NodeId(1));
        say(&mut link, &Greeting { process, lifeline: Bytes::from_static(token), ..own }).await;
        (link, heard.lifeline)
    }

    /// Holds a lifeline at m1.
    async fn hold(&self, token: &[u8]) -> TcpStream {
        let mut line = TcpStream::connect(self.m1).await.expect("m1 listens");
        line.write_all(&[&b"lifeline"[..], token].concat()).await.expect("m1 takes it");
        line
    }
}

/// Closes a lifeline, and waits until m1 has heard that and closed its own end.
async fn end(mut line: TcpStream) {
    line.shutdown().await.expect("it is open");
    // With a reset, where m1 had not read everything.
    assert!(!matches!(in_time(line.read(&mut [0])).await, Ok(1..)), "m1 says nothing on it");
}

/// Reads until the other end has closed.
async fn has_ended(link: &mut TcpStream) {
    let mut bytes = Vec::new();
    // With a reset, where it had not heard everything.
    let _ = in_time(link.read_to_end(&mut bytes)).await;
}

/// Hears `count` more portions of what m1 says without being asked: it looks for a leader.
async fn still_hears(link: &mut TcpStream, count: u32) {
    for _ in 0..count {
        let read = in_time(link.read(&mut [0; 4096])).await.expect("the link is up");
        assert_ne!(read, 0, "the link has ended");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_holds_a_lifeline_beside_each_link_for_as_long_as_it_runs() {
    // Goal: the other end hears when m1 dies, and that it did not when it stops. Method: m2 offers a token, and m1 shows it and says
    // nothing more until it stops.
    let mut troupe = Troupe::of(2);
    let peer = Peer::beside(&mut troupe).await;
    let (mut link, _) = peer.take_link(5, TOKEN).await;
    let (mut line, _) = in_time(peer.listener.accept()).await.expect("m1 dials again");
    let mut shown = [0; 24];
    in_time(line.read_exact(&mut shown)).await.expect("it shows the token");
    assert_eq!((&shown[..8], &shown[8..]), (&b"lifeline"[..], &TOKEN[..]));
    still_hears(&mut link, 2).await;
    troupe.stop(NodeId(1)).await;
    assert_eq!(in_time(line.read(&mut [0])).await.expect("good-bye"), 1);
    assert_eq!(in_time(line.read(&mut [0])).await.expect("a plain end"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_lifeline_ends_its_link() {
    // Goal: a death is heard before the link itself ends. Method: m2's lifeline ends while its link stays open.
    let mut troupe = Troupe::of(2);
    let peer = Peer::beside(&mut troupe).await;
    let (mut link, token) = peer.take_link(5, b"").await;
    let line = peer.hold(&token).await;
    still_hears(&mut link, 2).await;
    end(line).await;
    has_ended(&mut link).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_outlived_its_lifeline_is_not_taken_for_dead_again() {
    // Goal: a firewall that ends idle connections breaks a link once and no more. Method: m2 lives on after the end of its lifeline,
    // which ends again; then another process of m2 comes, whose lifeline counts.
    let mut troupe = Troupe::of(2);
    let peer = Peer::beside(&mut troupe).await;
    let (mut link, token) = peer.take_link(5, b"").await;
    end(peer.hold(&token).await).await;
    has_ended(&mut link).await;
    let (mut link, token) = peer.take_link(5, b"").await;
    end(peer.hold(&token).await).await;
    still_hears(&mut link, 4).await;
    drop(link);
    let (mut link, token) = peer.take_link(6, b"").await;
    end(peer.hold(&token).await).await;
    has_ended(&mut link).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_ends_a_link() {
    // Goal: a stranger cannot say that a member died. Method: lifelines with tokens that m1 did not offer, one that was used, one that
    // is never finished, and bytes on the real one.
    let mut troupe = Troupe::of(2);
    let peer = Peer::beside(&mut troupe).await;
    let (mut link, token) = peer.take_link(5, b"").await;
    let mut line = peer.hold(&token).await;
    // The first is heard after the real one, which has taken its place when that token is shown again.
    for guessed in [&[0; 16], &token[..], &token[..7], b""] {
        end(peer.hold(guessed).await).await;
    }
    still_hears(&mut link, 3).await;
    line.write_all(b"bytes that nobody says").await.expect("m1 takes them");
    end(line).await;
    still_hears(&mut link, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_member_holds_a_lifeline_at_each_other_one() {
    // Goal: each death is heard by all, whoever dialled whom. Method: the tables of the threads that hold lifelines.
    until_all_hold_lifelines(&Troupe::started(3)).await;
}
