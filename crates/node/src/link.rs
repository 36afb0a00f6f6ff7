//! Peer links: one connection per pair, dialled by the smaller id, with a handshake and bounded buffers both ways.
//!
//! ```text
//!    loop ── Outbox (bytes, bounded) ──► writer task ──► socket ──► reader task ── Arrival ──► loop of the peer
//! ```
//!
//! Everything here runs on the loop's own thread, apart from clients, so that no flood of requests reaches an election
//! (house §7.8). A link that breaks is announced the moment the kernel says so: a killed process is noticed in microseconds.

use crate::counters::Counters;
use crate::frame::{Greeting, Hello, LinkError, Welcome, put_frame, take_frame};
use bytes::BytesMut;
use hustings_core::replica::ReplicaMessage;
use hustings_core::{ClusterId, Membership, NodeId, Wire};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

/// A stranger has this long to say who it is (SE-13).
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// A dial has this long to be answered.
const DIAL_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause after a failed dial grows from the first to the second.
const DIAL_PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));
/// A node with the larger id dials only when it has waited this long to be dialled.
const LONELY_AFTER: Duration = Duration::from_secs(1);
/// Bytes that may wait for a slow peer; beyond, its link is cut and it starts over, so that memory is bounded.
const OUTBOX_BYTES_MAX: usize = 128 << 20;
/// A read buffer's size, and how little of it may be left before the next is taken.
const READ_BYTES: usize = 64 << 10;
const READ_BYTES_MIN: usize = 4 << 10;
/// Handshakes under way at once.
const HANDSHAKES_MAX: usize = 64;

/// What links tell the loop.
pub(crate) enum Arrival<M> {
    /// A link is up, in a new session.
    Up { peer: NodeId, session: u64, hello: Hello, outbox: Rc<Outbox> },
    /// A peer said something.
    Message { peer: NodeId, session: u64, message: ReplicaMessage<M> },
    /// A link is gone.
    Down { peer: NodeId, session: u64 },
    /// A peer says that this node was removed from the cluster.
    Removed { by: String },
}

/// Bytes on their way to a peer.
pub(crate) struct Outbox {
    buffer: RefCell<BytesMut>,
    filled: Notify,
    is_closed: Cell<bool>,
    is_ending: Cell<bool>,
}

impl Outbox {
    fn new() -> Rc<Outbox> {
        Rc::new(Outbox {
            buffer: RefCell::new(BytesMut::new()),
            filled: Notify::new(),
            is_closed: Cell::new(false),
            is_ending: Cell::new(false),
        })
    }

    /// Queues a message; a peer that cannot keep up loses its link.
    pub(crate) fn put<M: Wire>(&self, message: &ReplicaMessage<M>) {
        if self.is_closed.get() {
            return;
        }
        let mut buffer = self.buffer.borrow_mut();
        let was_empty = buffer.is_empty();
        put_frame(&mut buffer, |out| message.encode(out));
        if buffer.len() > OUTBOX_BYTES_MAX {
            drop(buffer);
            self.close();
        } else if was_empty {
            self.filled.notify_one();
        }
    }

    /// Ends the link once what is queued in this turn has left: the last word to a peer that was removed.
    pub(crate) fn end(&self) {
        self.is_ending.set(true);
        self.filled.notify_one();
    }

    /// Ends the link.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        self.buffer.borrow_mut().clear();
        self.filled.notify_one();
    }
}

/// Who may be spoken to, as the replica's membership says.
pub(crate) struct Gatekeeper {
    pub(crate) cluster_id: ClusterId,
    pub(crate) me: NodeId,
    pub(crate) protocol: &'static str,
    pub(crate) hello: Hello,
    pub(crate) founding: Membership,
    pub(crate) membership: Arc<Membership>,
    /// Where to dial members that the membership does not know yet.
    pub(crate) hints: Membership,
    /// The latest life of each peer's storage that was seen: (incarnation, boots).
    seen: BTreeMap<NodeId, (Option<u64>, u64)>,
    /// The newest session of each peer that is connected.
    connected: BTreeMap<NodeId, u64>,
}

impl Gatekeeper {
    pub(crate) fn new(hello: Hello, protocol: &'static str, founding: Membership, hints: Membership) -> Gatekeeper {
        Gatekeeper {
            cluster_id: hello.cluster_id,
            me: hello.from,
            protocol,
            hello,
            membership: Arc::new(founding.clone()),
            founding,
            hints,
            seen: BTreeMap::new(),
            connected: BTreeMap::new(),
        }
    }

    /// Why a peer is refused, in words that name the thing and the remedy.
    fn refusal(&mut self, hello: &Hello) -> Option<String> {
        let Hello { cluster_id, from, to, protocol, boots, member } = hello;
        if protocol != self.protocol {
            return Some(format!(
                "this cluster runs `{}` and {from} was started with `{protocol}`: start all members with the same --protocol",
                self.protocol
            ));
        }
        if *cluster_id != self.cluster_id {
            return Some(format!(
                "this is cluster {} and {from} belongs to {cluster_id}: check its --initial-cluster and --initial-cluster-token, or its data directory",
                self.cluster_id
            ));
        }
        if *to != self.me {
            return Some(format!("this is {} and not {to}: check the peer addresses", self.me));
        }
        if *from == self.me {
            return Some(format!("two nodes run as {from}: stop one of them"));
        }
        if from.0 < self.membership.next_id && !self.membership.has(*from) {
            return Some(removed_text(*from));
        }
        let known = self.membership.members.get(from).and_then(|known| known.incarnation);
        if let (Some(known), Some(theirs)) = (known, member.incarnation)
            && known != theirs
        {
            return Some(format!(
                "the data directory of {from} is not the one that the cluster knows (storage {theirs:016x}, known {known:016x}): its promises are lost, so it may not vote; remove the member and add it again"
            ));
        }
        if let Some((incarnation, _)) = self.seen.get(from)
            && *incarnation != member.incarnation
        {
            return Some(format!(
                "{from} was seen here with another data directory: it lost its promises, so it may not vote; remove the member and add it again"
            ));
        }
        if let Some((_, seen)) = self.seen.get(from)
            && boots < seen
        {
            return Some(format!(
                "the data directory of {from} is an old copy (start {boots} after start {seen} was seen): remove the member and add it again"
            ));
        }
        self.seen.insert(*from, (member.incarnation, *boots));
        None
    }

    /// What is said to whoever says hello.
    fn answer(&mut self, hello: &Hello) -> Greeting {
        if hello.from.0 == 0 {
            return self.welcome(hello);
        }
        match self.refusal(hello) {
            Some(refusal) => Greeting::Refusal(refusal),
            None => Greeting::Hello(self.hello_to(hello.from)),
        }
    }

    fn hello_to(&self, peer: NodeId) -> Hello {
        Hello { to: peer, ..self.hello.clone() }
    }

    /// Answers a node that was added and asks who it is.
    fn welcome(&self, hello: &Hello) -> Greeting {
        let is_asking = |urls: &[String]| urls.iter().any(|url| hello.member.peer_urls.contains(url));
        match self.membership.members.iter().find(|(_, member)| is_asking(&member.peer_urls)) {
            Some((you, _)) => Greeting::Welcome(Welcome {
                cluster_id: self.cluster_id,
                you: *you,
                founding: self.founding.clone(),
                membership: (*self.membership).clone(),
            }),
            None => Greeting::Refusal(format!(
                "no member has the peer URL {}: add it first (`hustings member add`, or `etcdctl member add`)",
                hello.member.peer_urls.join(", ")
            )),
        }
    }

    /// A link ended; one that was replaced leaves its successor's mark alone.
    fn forget_session(&mut self, peer: NodeId, session: u64) {
        if self.connected.get(&peer) == Some(&session) {
            self.connected.remove(&peer);
        }
    }

    /// Whether the peer is a member, or may become one that this node has not heard of yet.
    fn knows(&self, peer: NodeId) -> bool {
        self.membership.has(peer) || peer.0 >= self.membership.next_id
    }

    fn addresses_of(&self, peer: NodeId) -> Vec<String> {
        let known = self.membership.members.get(&peer).or_else(|| self.hints.members.get(&peer));
        known.map(|member| member.peer_urls.clone()).unwrap_or_default()
    }
}

const REMOVED: &str = "was removed from the cluster";

fn removed_text(node: NodeId) -> String {
    format!("{node} {REMOVED}: add it again as a new member, with an empty data directory")
}

/// The host and port of a peer URL.
pub(crate) fn address_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

/// All peer links of a node.
pub(crate) struct Links<M> {
    gatekeeper: Rc<RefCell<Gatekeeper>>,
    arrivals: mpsc::Sender<Arrival<M>>,
    counters: Arc<Counters>,
    frame_bytes_max: usize,
    sessions: Rc<Cell<u64>>,
    dialled: RefCell<BTreeMap<NodeId, tokio::task::AbortHandle>>,
    handshakes: Rc<Cell<usize>>,
}

impl<M: Wire + 'static> Links<M> {
    pub(crate) fn new(
        gatekeeper: Rc<RefCell<Gatekeeper>>,
        arrivals: mpsc::Sender<Arrival<M>>,
        counters: Arc<Counters>,
        frame_bytes_max: usize,
    ) -> Rc<Links<M>> {
        Rc::new(Links {
            gatekeeper,
            arrivals,
            counters,
            frame_bytes_max,
            sessions: Rc::new(Cell::new(0)),
            dialled: RefCell::default(),
            handshakes: Rc::default(),
        })
    }

    /// Accepts peers on a listener until the loop ends. No error ends it: a listener that dies is a node that no one can
    /// rejoin (BI-01).
    pub(crate) fn listen(self: &Rc<Self>, listener: TcpListener) {
        let links = self.clone();
        spawn_local(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, from)) if links.handshakes.get() < HANDSHAKES_MAX => {
                        links.handshakes.set(links.handshakes.get() + 1);
                        let links = links.clone();
                        spawn_local(async move {
                            let result = links.clone().accept(stream).await;
                            if let Err(error) = result {
                                Counters::add(&links.counters.links_refused, 1);
                                tracing::warn!(%from, "peer connection ended: {error}");
                            }
                        });
                    }
                    Ok(_) => tracing::warn!("too many handshakes at once: a peer connection is dropped"),
                    Err(error) => {
                        // Out of descriptors, most likely: a pause, not a spin.
                        tracing::warn!("cannot accept a peer connection: {error}");
                        sleep(DIAL_PAUSE.1).await;
                    }
                }
            }
        });
    }

    /// Dials whom the membership names and hangs up on nobody: a peer that was removed is told so by its handshake.
    pub(crate) fn follow_membership(self: &Rc<Self>) {
        let (me, peers) = {
            let gatekeeper = self.gatekeeper.borrow();
            let mut peers: BTreeSet<NodeId> = gatekeeper.membership.everyone().collect();
            peers.extend(gatekeeper.hints.everyone().filter(|peer| peer.0 >= gatekeeper.membership.next_id));
            (gatekeeper.me, peers)
        };
        let mut dialled = self.dialled.borrow_mut();
        // The task of a peer that was removed ends by itself when its link does: its last message must still leave.
        dialled.retain(|_, task| !task.is_finished());
        for peer in peers.into_iter().filter(|peer| *peer != me) {
            dialled.entry(peer).or_insert_with(|| spawn_local(self.clone().dial(peer)).abort_handle());
        }
    }

    async fn accept(self: Rc<Self>, mut stream: TcpStream) -> Result<(), LinkError> {
        let mut buffer = BytesMut::new();
        let greeting = timeout(HANDSHAKE_TIMEOUT, Greeting::read(&mut stream, &mut buffer)).await;
        self.handshakes.set(self.handshakes.get() - 1);
        let greeting = greeting.map_err(|_| LinkError::Stranger("it said nothing".into()))??;
        let Greeting::Hello(hello) = greeting else {
            return Err(LinkError::Stranger("it did not begin with a hello".into()));
        };
        let answer = self.gatekeeper.borrow_mut().answer(&hello);
        let mut out = BytesMut::new();
        answer.put(&mut out);
        stream.write_all(&out).await?;
        match answer {
            Greeting::Refusal(why) => Err(LinkError::Stranger(format!("refused: {why}"))),
            Greeting::Welcome(_) => Ok(()),
            Greeting::Hello(_) => self.run(stream, buffer, hello).await,
        }
    }

    async fn dial(self: Rc<Self>, peer: NodeId) {
        let mut pause = DIAL_PAUSE.0;
        let mut last_refusal = String::new();
        let is_larger = self.gatekeeper.borrow().me > peer;
        if is_larger {
            sleep(LONELY_AFTER).await;
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
                match self.clone().dial_once(peer, address_of(&url)).await {
                    Ok(()) => pause = DIAL_PAUSE.0,
                    Err(LinkError::Refused(why)) if why != last_refusal => {
                        tracing::error!(%peer, "{why}");
                        if why.contains(REMOVED) {
                            // The loop decides what to do about it.
                            let _ = self.arrivals.send(Arrival::Removed { by: why.clone() }).await;
                        }
                        last_refusal = why;
                    }
                    Err(error) => tracing::debug!(%peer, %url, "no link: {error}"),
                }
            }
            sleep(pause).await;
            pause = if is_larger { LONELY_AFTER } else { (pause * 2).min(DIAL_PAUSE.1) };
        }
    }

    fn is_connected(&self, peer: NodeId) -> bool {
        self.gatekeeper.borrow().connected.contains_key(&peer)
    }

    async fn dial_once(self: Rc<Self>, peer: NodeId, address: &str) -> Result<(), LinkError> {
        let late = |_| LinkError::Io(std::io::ErrorKind::TimedOut.into());
        let mut stream = timeout(DIAL_TIMEOUT, TcpStream::connect(address)).await.map_err(late)??;
        let mut out = BytesMut::new();
        let hello = self.gatekeeper.borrow().hello_to(peer);
        Greeting::Hello(hello).put(&mut out);
        stream.write_all(&out).await?;
        let mut buffer = BytesMut::new();
        match timeout(HANDSHAKE_TIMEOUT, Greeting::read(&mut stream, &mut buffer)).await.map_err(late)?? {
            Greeting::Hello(hello) if hello.from == peer => {
                let refusal = self.gatekeeper.borrow_mut().refusal(&hello);
                if let Some(why) = refusal {
                    return Err(LinkError::Refused(why));
                }
                self.run(stream, buffer, hello).await
            }
            Greeting::Hello(hello) => Err(LinkError::Stranger(format!("{} answered in place of {peer}", hello.from))),
            Greeting::Refusal(why) => Err(LinkError::Refused(why)),
            Greeting::Welcome(_) => Err(LinkError::Stranger("it welcomed a node that is a member".into())),
        }
    }

    /// A link in both directions until either breaks.
    async fn run(self: Rc<Self>, stream: TcpStream, buffer: BytesMut, hello: Hello) -> Result<(), LinkError> {
        stream.set_nodelay(true)?;
        let (peer, session) = (hello.from, self.sessions.get() + 1);
        self.sessions.set(session);
        let outbox = Outbox::new();
        let (reading, writing) = stream.into_split();
        self.gatekeeper.borrow_mut().connected.insert(peer, session);
        let up = Arrival::Up { peer, session, hello, outbox: outbox.clone() };
        let result = if self.arrivals.send(up).await.is_ok() {
            tokio::select! {
                result = self.read(reading, buffer, peer, session) => result,
                result = self.write(writing, &outbox) => result,
            }
        } else {
            Ok(())
        };
        outbox.is_closed.set(true);
        self.gatekeeper.borrow_mut().forget_session(peer, session);
        // Nobody hears this when the loop has ended, and nobody needs to.
        let _ = self.arrivals.send(Arrival::Down { peer, session }).await;
        result
    }

    async fn read(
        &self,
        mut reading: OwnedReadHalf,
        mut buffer: BytesMut,
        peer: NodeId,
        session: u64,
    ) -> Result<(), LinkError> {
        loop {
            while let Some(frame) = take_frame(&mut buffer, self.frame_bytes_max)? {
                let message = ReplicaMessage::decode(frame)?;
                if self.arrivals.send(Arrival::Message { peer, session, message }).await.is_err() {
                    return Ok(());
                }
            }
            // Entries keep slices of this buffer, so a fresh one is only taken when this one is nearly used up.
            if buffer.capacity() - buffer.len() < READ_BYTES_MIN {
                buffer.reserve(READ_BYTES);
            }
            let read = reading.read_buf(&mut buffer).await?;
            if read == 0 {
                return Err(LinkError::Closed);
            }
            Counters::add(&self.counters.peer_bytes_received, read as u64);
        }
    }

    async fn write(&self, mut writing: OwnedWriteHalf, outbox: &Outbox) -> Result<(), LinkError> {
        let mut out = BytesMut::new();
        loop {
            out.clear();
            std::mem::swap(&mut *outbox.buffer.borrow_mut(), &mut out);
            if outbox.is_closed.get() {
                return Err(LinkError::Closed);
            }
            if out.is_empty() && outbox.is_ending.get() {
                return Err(LinkError::Closed);
            }
            if out.is_empty() {
                outbox.filled.notified().await;
                continue;
            }
            writing.write_all(&out).await?;
            Counters::add(&self.counters.peer_bytes_sent, out.len() as u64);
        }
    }
}
