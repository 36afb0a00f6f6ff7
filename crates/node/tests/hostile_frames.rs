//! Goal: whatever strangers write to peer ports ends nobody, moves no term, changes nothing that is applied and gets no byte in
//! return but refusals and challenges, under each protocol. Method: three members that know a secret; strangers from many addresses
//! that know the cluster's id, its members and its language write random, damaged and well-formed frames, with and without a greeting.
//!
//! `HUSTINGS_LIES=1000000 cargo test --release -p hustings-node --test stories hostile_frames:: -- --nocapture` writes so many frames for each
//! protocol.

use crate::support::greeting::{CHALLENGE, Greeting, PROOF, REFUSAL, framed, hello};
use crate::support::{Counter, Troupe, in_time, propose, read, secret};
use bytes::Bytes;
use hustings_blazingmq::BlazingMq;
use hustings_core::replica::message::{ForwardedRequest, ReplicaMessage};
use hustings_core::{
    Cluster, Durable, Effect, Effects, EntryKind, Input, Lsn, NodeId, Origin, Proposal, Protocol, Stamp, Timing, Wire,
};
use hustings_gmt2000::Gmt2000;
use hustings_node::NodeConfig;
use hustings_paxos::Paxos;
use hustings_raft::Raft;
use hustings_zab::Zab;
use prost::Message as _;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

/// Number of frames for each protocol, unless `HUSTINGS_LIES` says another.
const FRAMES: u64 = 20_000;
/// Strangers that write at the same time.
const STRANGERS: u64 = 12;
/// Number of addresses that a stranger comes from.
const ADDRESSES: u64 = 200;
/// Most frames of one connection.
const FRAMES_OF_A_CONNECTION_MAX: u64 = 64;
/// Most bytes that a stranger is told at one connection: a challenge and a refusal.
const TOLD_MAX: usize = 2_048;

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.below(all.len() as u64)).expect("it is an index")]
    }
}

/// Messages as members send them: of a value of this protocol that alone stands for election, leads if it can, and is written to.
fn genuine<P: Protocol>() -> Vec<Bytes> {
    let (me, mut said) = (NodeId(1), BTreeSet::new());
    for size in [1, 3] {
        let mut out = Effects::new();
        let mut value = P::start(Cluster::of(size, 1), P::Options::default(), Durable::default(), &mut out);
        let (mut armed, mut own) = (BTreeSet::new(), VecDeque::new());
        for turn in 0..200 {
            for effect in std::mem::take(&mut out) {
                match effect {
                    Effect::Send { to, message, .. } => {
                        said.insert(ReplicaMessage::Protocol(message.clone()).to_bytes());
                        if to == me {
                            own.push_back(message);
                        }
                    }
                    Effect::SetTimer { timer, .. } => drop(armed.insert(timer)),
                    Effect::CancelTimer(timer) => drop(armed.remove(&timer)),
                    _ => {}
                }
            }
            if let Some(message) = own.pop_front() {
                value.step(Input::Message { from: me, message }, &mut out);
            } else if turn % 2 == 0 {
                let origin = Origin { node: me, incarnation: 1, sequence: turn };
                let payload = Bytes::from_static(b"forged");
                let proposal = Proposal { origin, kind: EntryKind::Command, stamp: Stamp::NONE, payload };
                value.step(Input::Propose(vec![proposal]), &mut out);
            } else if let Some(timer) = armed.pop_first() {
                value.step(Input::Timer(timer), &mut out);
            }
        }
    }
    assert!(said.len() > 3, "{}: {} messages are few", P::NAME, said.len());
    let payload = Bytes::from_static(b"forged");
    let request = ForwardedRequest { sequence: 1, kind: EntryKind::Command, payload };
    let lsn = Lsn::default();
    let between_replicas: [ReplicaMessage<P::Message>; 6] = [
        ReplicaMessage::Forward { incarnation: 1, requests: vec![request] },
        ReplicaMessage::AskRead { number: 1 },
        ReplicaMessage::AskChunk { lsn, digest: 0, offset: 0 },
        ReplicaMessage::Chunk { lsn, offset: u64::MAX, bytes: Bytes::from_static(b"forged") },
        ReplicaMessage::Ping { sent_micros: 1 },
        ReplicaMessage::Digest { index: 1, digest: 1 },
    ];
    said.extend(between_replicas.iter().map(Wire::to_bytes));
    said.into_iter().collect()
}

/// A stranger: what it knows, and what it has done.
struct Stranger {
    dice: Dice,
    protocol: &'static str,
    addresses: BTreeMap<NodeId, SocketAddr>,
    genuine: Arc<Vec<Bytes>>,
}

impl Stranger {
    /// How it begins: with nothing, with noise, with a hello as a member or as nobody, or with a hello and a proof that proves nothing.
    fn opening(&mut self, at: NodeId) -> Vec<u8> {
        let from = *self.dice.pick(&[1, 2, 3, 4, u64::MAX]);
        let boots = *self.dice.pick(&[0, 1, 1 << 40, u64::MAX]);
        let greeting = Greeting { boots, process: self.dice.next(), ..hello(self.protocol, from, at) };
        let greeted = [&b"hustings"[..], &framed(&greeting.encode_to_vec())].concat();
        let proof = Greeting { version: 2, kind: PROOF, proof: vec![7; 32].into(), ..Greeting::default() };
        match self.dice.below(6) {
            0 => Vec::new(),
            1 => b"hustings".to_vec(),
            2 => b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            3 => greeted,
            _ => [&greeted[..], &b"hustings"[..], &framed(&proof.encode_to_vec())].concat(),
        }
    }

    fn frame(&mut self) -> Vec<u8> {
        let well_formed = self.dice.pick(&self.genuine).clone();
        let mut bytes = well_formed.to_vec();
        match self.dice.below(4) {
            0 => framed(&bytes).to_vec(),
            1 => {
                for _ in 0..=self.dice.below(4) {
                    let at = usize::try_from(self.dice.below(bytes.len() as u64)).expect("it is an index");
                    bytes[at] = self.dice.next() as u8;
                }
                framed(&bytes).to_vec()
            }
            2 => {
                let noise: Vec<u8> = (0..self.dice.below(200)).map(|_| self.dice.next() as u8).collect();
                framed(&noise).to_vec()
            }
            _ => {
                // A length that nothing keeps, or a checksum of something else.
                let mut frame = framed(&bytes).to_vec();
                let at = usize::try_from(self.dice.below(8)).expect("it is an index");
                frame[at] ^= 1 << self.dice.below(8);
                frame
            }
        }
    }

    /// Says what it likes over one connection, and gives the number of frames that the port took, and all that it was told.
    async fn call(&mut self) -> (u64, Vec<u8>) {
        let ids: Vec<NodeId> = self.addresses.keys().copied().collect();
        let at = *self.dice.pick(&ids);
        let socket = TcpSocket::new_v4().expect("a socket");
        // The connection leaves nothing behind: a million of them would use up all ports.
        socket.set_zero_linger().expect("it lingers not");
        let own = Ipv4Addr::new(127, 0, 1, u8::try_from(1 + self.dice.below(ADDRESSES)).expect("few addresses"));
        socket.bind((IpAddr::V4(own), 0).into()).expect("an address of this machine");
        let Ok(Ok(mut stream)) =
            tokio::time::timeout(Duration::from_secs(5), socket.connect(self.addresses[&at])).await
        else {
            return (0, Vec::new());
        };
        let mut bytes = self.opening(at);
        let mut ends = vec![bytes.len()];
        for _ in 0..=self.dice.below(FRAMES_OF_A_CONNECTION_MAX) {
            bytes.extend(self.frame());
            ends.push(bytes.len());
        }
        let mut written = 0;
        while written < bytes.len() {
            match stream.write(&bytes[written..]).await {
                Ok(0) | Err(_) => break,
                Ok(some) => written += some,
            }
        }
        let frames = ends[1..].iter().filter(|end| **end <= written).count() as u64;
        let _ = stream.shutdown().await;
        let mut told = Vec::new();
        // A connection that is reset has told what it told.
        let _ = in_time(stream.read_to_end(&mut told)).await;
        (frames, told)
    }
}

/// Asserts that there is nothing in it but refusals and challenges that name nobody.
fn tells_nothing(mut told: &[u8]) {
    assert!(told.len() < TOLD_MAX, "a stranger was told {} bytes", told.len());
    while !told.is_empty() {
        let Some(rest) = told.strip_prefix(b"hustings") else { panic!("{told:?} is no greeting") };
        // What was cut off in its middle by a reset cannot be read.
        let Some((head, rest)) = rest.split_at_checked(8) else { return };
        let length = u32::from_le_bytes(head[..4].try_into().expect("four bytes")) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else { return };
        let greeting = Greeting::decode(payload).expect("a greeting");
        assert!([REFUSAL, CHALLENGE].contains(&greeting.kind), "{greeting:?}");
        told = rest;
    }
}

async fn nobody_is_moved<P: Protocol>() {
    let wanted = std::env::var("HUSTINGS_LIES").map_or(FRAMES, |text| text.parse().expect("a number of frames"));
    let mut troupe = Troupe::of(3);
    for id in troupe.founding.voters.clone() {
        // An election for want of a processor would be no stranger's work.
        let timing = Timing::new(Duration::from_millis(200), Duration::from_secs(4));
        let config = NodeConfig { secret: Some(secret()), timing, ..troupe.config_of(id) };
        let node = hustings_node::start::<P, Counter>(config, P::Options::default(), Counter::default());
        troupe.running.insert(id, node.expect("it starts").handle);
    }
    let leader = troupe.leader().await;
    assert_eq!(propose(troupe.handle(leader), "x").await, 1);
    let (term, membership) = (troupe.handle(leader).status().term, troupe.handle(leader).status().membership);

    let (genuine, frames) = (Arc::new(genuine::<P>()), Arc::new(AtomicU64::new(0)));
    let strangers = (1..=STRANGERS).map(|number| {
        let (frames, dice) = (Arc::clone(&frames), Dice(u64::wrapping_mul(number, 0x9E37_79B9_7F4A_7C15)));
        let addresses = troupe.addresses.clone();
        let mut stranger = Stranger { dice, protocol: P::NAME, addresses, genuine: Arc::clone(&genuine) };
        tokio::spawn(async move {
            while frames.load(Ordering::Relaxed) < wanted {
                let (some, told) = stranger.call().await;
                tells_nothing(&told);
                frames.fetch_add(some, Ordering::Relaxed);
            }
        })
    });
    for stranger in strangers.collect::<Vec<_>>() {
        stranger.await.expect("a stranger was told nothing");
    }
    println!("{}: {} frames of strangers", P::NAME, frames.load(Ordering::Relaxed));

    for (number, handle) in (2..).zip(troupe.running.values()) {
        assert_eq!(propose(handle, "x").await, number, "it serves");
        let status = handle.status();
        assert_eq!((status.term, status.leader), (term, Some(leader)), "no term moved");
        assert_eq!(status.membership.voters, membership.voters);
        let counted = read(handle).await;
        assert_eq!((counted.of("forged"), counted.total()), (0, number), "nothing was placed in the log");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_move_nothing_under_raft() {
    nobody_is_moved::<Raft>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_move_nothing_under_gmt2000() {
    nobody_is_moved::<Gmt2000>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_move_nothing_under_blazingmq() {
    nobody_is_moved::<BlazingMq>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_move_nothing_under_zab() {
    nobody_is_moved::<Zab>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_move_nothing_under_paxos() {
    nobody_is_moved::<Paxos>().await;
}
