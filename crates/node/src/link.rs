//! Peer links: one connection per pair, dialled by the smaller id, with bounded buffers both ways.
//!
//! ```text
//!    loop ── Outbox (bytes, bounded) ──► socket ──► reader task ── Arrival ──► loop of the peer
//!                     └── what would block ──► writer task ──┘
//! ```
//!
//! The loop writes to the socket itself at the end of its turn; the writer task takes over when the peer is slow.
//!
//! Everything here runs on the loop's own thread, apart from clients, so that no flood of requests reaches an election (ADR 33). The other
//! end is identified before, at the [`crate::door`]. A link that breaks is announced the moment the kernel says so, and beside each
//! link stands a [`crate::lifeline`], whose end is heard in a fraction of a millisecond.

mod ends;

use crate::counters::{Counters, PeerCounters};
use crate::discovery::discover;
use crate::door::{Answered, Caller, Door};
use crate::frame::{Greeting, Hello, LinkError, MAGIC, Refusal, put_frame, take_frame};
use crate::gatekeeper::{Answer, Gatekeeper};
use crate::handshake::say;
use crate::lifeline::{Expected, Holder, Outlived};
use crate::peer_stream::{PeerStream, Reading, Writing};
use crate::reach::Reach;
use crate::timers::boot_micros;
use bytes::{Buf, BytesMut};
use hustings_core::replica::ReplicaMessage;
use hustings_core::{NodeId, Wire};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_local;
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
/// Pause between two looks of a dial that waits for another one.
const CROSSED_PAUSE: Duration = Duration::from_millis(5);
/// Bytes that may wait for a slow peer; beyond, its link is cut and it starts over, so that memory is bounded.
const OUTBOX_BYTES_MAX: usize = 128 << 20;
/// A read buffer's size, and how little of it may be left before the next is taken.
const READ_BYTES: usize = 64 << 10;
const READ_BYTES_MIN: usize = 4 << 10;
/// Outbox memory that is kept for the next messages once all is sent.
const OUTBOX_KEPT_MAX: usize = 4 << 20;
/// Longest time that sent bytes may stay unacknowledged before the kernel gives a link up: else a peer whose machine vanished
/// would keep its dead link for a quarter of an hour, and its new one out.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(5);
/// The least time between two questions about members that this node has not heard of.
const ASK_PAUSE: Duration = Duration::from_secs(1);

/// News from the links to the loop.
pub(crate) enum Arrival<M> {
    /// A link is up, in a new session.
    Up { peer: NodeId, session: u64, hello: Box<Hello>, outbox: Rc<Outbox> },
    /// A peer said something.
    Message { peer: NodeId, session: u64, message: ReplicaMessage<M> },
    /// A link is gone.
    Down { peer: NodeId, session: u64, why: String },
    /// A peer says that this node was removed from the cluster.
    Removed { why: String },
    /// A peer says that this node's directory lacks what it has acknowledged.
    RolledBack { why: String },
    /// A peer says that the cluster knows this node with another directory.
    AnotherDirectory { why: String },
}

/// Bytes on their way to a peer.
pub(crate) struct Outbox {
    buffer: RefCell<BytesMut>,
    writing: Writing,
    counters: Arc<Counters>,
    of_peer: Arc<PeerCounters>,
    /// The writer task has something to do: bytes that did not leave at once, or the end.
    needs_writer: Notify,
    is_closed: Cell<bool>,
    is_ending: Cell<bool>,
}

/// The part of an outbox's bytes that was written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flushed {
    All,
    /// The peer reads slowly: the rest waits until the socket takes more.
    Some,
}

impl Outbox {
    fn new(writing: Writing, counters: Arc<Counters>, peer: NodeId) -> Rc<Outbox> {
        let of_peer = counters.of_peer(peer);
        Rc::new(Outbox {
            buffer: RefCell::new(BytesMut::new()),
            writing,
            counters,
            of_peer,
            needs_writer: Notify::new(),
            is_closed: Cell::new(false),
            is_ending: Cell::new(false),
        })
    }

    /// The peer answered a question of the link; the round trip took this many microseconds.
    pub(crate) fn on_round_trip(&self, micros: u64) {
        self.of_peer.on_round_trip(micros);
    }

    /// Queues a message until [`Outbox::flush`]; a peer that cannot keep up loses its link.
    pub(crate) fn put<M: Wire>(&self, message: &ReplicaMessage<M>) {
        if self.is_closed.get() {
            return;
        }
        let mut buffer = self.buffer.borrow_mut();
        put_frame(&mut buffer, |out| message.encode(out));
        if buffer.len() > OUTBOX_BYTES_MAX {
            drop(buffer);
            self.close();
        }
    }

    /// Sends what is queued as far as the peer takes it now, and leaves the rest to the writer task.
    pub(crate) fn flush(&self) {
        // The writer task meets the same error and tells it.
        if !matches!(self.try_write(), Ok(Flushed::All)) {
            self.needs_writer.notify_one();
        }
    }

    fn try_write(&self) -> io::Result<Flushed> {
        if self.counters.cut.is_cut() {
            return Ok(Flushed::Some);
        }
        let mut buffer = self.buffer.borrow_mut();
        while !buffer.is_empty() {
            let written = match self.writing.try_write(&buffer) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Flushed::Some),
                Err(error) => return Err(error),
            };
            Counters::add(&self.counters.peer_bytes_sent, written as u64);
            Counters::add(&self.of_peer.bytes_sent, written as u64);
            match written == buffer.len() {
                true if buffer.capacity() > OUTBOX_KEPT_MAX => *buffer = BytesMut::new(),
                true => buffer.clear(),
                false => buffer.advance(written),
            }
        }
        match self.writing.try_flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Flushed::Some),
            flushed => flushed.map(|()| Flushed::All),
        }
    }

    /// Ends the link once what is queued in this turn has left: the last word to a peer that was removed.
    pub(crate) fn end(&self) {
        self.is_ending.set(true);
        self.needs_writer.notify_one();
    }

    /// Ends the link and drops what was not sent.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        self.buffer.borrow_mut().clear();
        self.needs_writer.notify_one();
    }

    /// Writes what the loop could not until the link ends.
    async fn write(&self) -> Result<(), LinkError> {
        loop {
            if self.is_closed.get() {
                return Err(LinkError::Closed);
            }
            match self.try_write()? {
                Flushed::All if self.is_ending.get() => return Err(LinkError::Closed),
                Flushed::All => self.needs_writer.notified().await,
                Flushed::Some if self.counters.cut.is_cut() => tokio::select! {
                    () = self.counters.cut.healed() => {}
                    () = self.needs_writer.notified() => {}
                },
                // A link that is closed meanwhile ends at once, not when its peer reads on.
                Flushed::Some => tokio::select! {
                    ready = self.writing.writable() => ready?,
                    () = self.needs_writer.notified() => {}
                },
            }
        }
    }
}

/// All peer links of a node.
pub(crate) struct Links<M> {
    gatekeeper: Rc<RefCell<Gatekeeper>>,
    arrivals: mpsc::Sender<Arrival<M>>,
    counters: Arc<Counters>,
    door: Arc<Door>,
    pub(crate) frame_bytes_max: usize,
    sessions: Rc<Cell<u64>>,
    dialled: RefCell<BTreeMap<NodeId, tokio::task::AbortHandle>>,
    /// Moment since which this node dials, or has the link that it dialled.
    dialled_at: RefCell<BTreeMap<NodeId, Instant>>,
    /// Whether somebody is being asked about a member that this node has not heard of.
    is_asking: Cell<bool>,
    /// Holds this node's lifelines; `None` where the system does not let it.
    holder: Option<Holder>,
    outlived: RefCell<Outlived>,
}

impl<M: Wire + 'static> Links<M> {
    pub(crate) fn new(
        gatekeeper: Rc<RefCell<Gatekeeper>>,
        arrivals: mpsc::Sender<Arrival<M>>,
        counters: Arc<Counters>,
        door: Arc<Door>,
        holder: io::Result<Holder>,
        frame_bytes_max: usize,
    ) -> Rc<Links<M>> {
        let holder = holder.inspect_err(|error| {
            tracing::info!("no lifelines are held, so peers may hear later that this process died: {error}");
        });
        Rc::new(Links {
            gatekeeper,
            arrivals,
            counters,
            door,
            frame_bytes_max,
            sessions: Rc::new(Cell::new(0)),
            dialled: RefCell::default(),
            dialled_at: RefCell::default(),
            is_asking: Cell::new(false),
            holder: holder.ok(),
            outlived: RefCell::default(),
        })
    }

    /// Hears who has said hello at the door, until the loop ends.
    pub(crate) fn receive(self: &Rc<Self>, mut callers: mpsc::Receiver<Caller>) {
        let links = self.clone();
        spawn_local(async move {
            while let Some(caller) = callers.recv().await {
                let links = links.clone();
                spawn_local(async move {
                    let from = caller.from;
                    if let Err(error) = links.accept(caller).await {
                        links.door.complain(from, &error.to_string());
                    }
                });
            }
        });
    }

    /// Dials all members and hangs up on nobody: a peer that was removed is told so by its handshake.
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

    async fn accept(self: &Rc<Self>, caller: Caller) -> Result<(), LinkError> {
        let Caller { from, stream, buffer, hello, shown } = caller;
        let mut stream = stream.unpack()?;
        if hello.from.0 == 0 {
            let answer = self.gatekeeper.borrow().welcome(&hello, shown.as_ref());
            say(&mut stream, &answer).await?;
            return match answer {
                Greeting::Refusal(refusal) => Err(LinkError::Declined(refusal)),
                _ => Ok(()),
            };
        }
        if matches!(self.gatekeeper.borrow().admit(&hello, shown.as_ref()), Answer::Admitted) {
            while self.crosses(hello.from) {
                if self.is_connected(hello.from) {
                    // By this node's own dial, which counts.
                    return Ok(());
                }
                sleep(CROSSED_PAUSE).await;
            }
        }
        let admission = self.gatekeeper.borrow().admit(&hello, shown.as_ref());
        if let Answer::Refused(refusal) = &admission
            && self.is_of_a_stranded_member(&hello)
        {
            self.counters.of_peer(hello.from).reach.set(Reach::IsRefused(refusal.why.clone()));
        }
        match &admission {
            Answer::Unknown(_) => self.ask_about_members(),
            Answer::Occupied(_) => self.probe(hello.from),
            Answer::Admitted | Answer::Refused(_) => {}
        }
        let expected = self.door.lifelines.expect();
        let mut answer = self.gatekeeper.borrow().answer(&hello, admission);
        if let Greeting::Hello(own) = &mut answer {
            own.lifeline = expected.token();
        }
        say(&mut stream, &answer).await?;
        match answer {
            Greeting::Refusal(refusal) => Err(LinkError::Declined(refusal)),
            _ => {
                self.door.trust(from.ip());
                let ended = self.clone().run(stream, buffer, hello, expected).await;
                // Without a secret anybody could dial and say so.
                if let Err(LinkError::Refused(Refusal { is_of_another_directory: true, why, .. })) = &ended
                    && self.door.secret.is_some()
                {
                    let _ = self.arrivals.send(Arrival::AnotherDirectory { why: why.clone() }).await;
                }
                match ended {
                    // A member's link that ended is not a caller that was turned away.
                    Err(LinkError::Closed | LinkError::Died | LinkError::Io(_)) => Ok(()),
                    ended => ended,
                }
            }
        }
    }

    /// Whether this node dials the peer that dials it, or has just done so.
    fn crosses(&self, peer: NodeId) -> bool {
        let since = self.dialled_at.borrow().get(&peer).map(Instant::elapsed);
        is_crossed(self.gatekeeper.borrow().me, peer, since)
    }

    /// Whether a refused greeting tells of the member that it names: while that one is connected, it is somebody else's.
    fn is_of_a_stranded_member(&self, hello: &Hello) -> bool {
        let gatekeeper = self.gatekeeper.borrow();
        hello.cluster_id == gatekeeper.cluster_id
            && gatekeeper.membership.has(hello.from)
            && !gatekeeper.is_connected(hello.from)
    }

    /// Asks the members that this node knows who the others are, one question at a time.
    fn ask_about_members(self: &Rc<Self>) {
        if self.is_asking.replace(true) {
            return;
        }
        let links = self.clone();
        spawn_local(async move {
            let (urls, hello) = {
                let gatekeeper = links.gatekeeper.borrow();
                (gatekeeper.known_urls(), gatekeeper.hello_to_strangers())
            };
            let (secret, tls) = (links.door.secret.clone(), links.door.tls.connector.clone());
            let asking = async move {
                let Hello { member, protocol, build, .. } = &hello;
                discover(&urls, member, protocol, build.can, secret.as_ref(), tls.as_ref()).await
            };
            match links.door.run(asking).await {
                Ok(Ok(welcome)) => {
                    links.gatekeeper.borrow_mut().learn(welcome);
                    links.follow_membership();
                }
                Ok(Err(error)) => tracing::debug!("nobody says who the members are: {error}"),
                Err(error) => tracing::debug!("nobody can be asked who the members are: {error}"),
            }
            sleep(ASK_PAUSE).await;
            links.is_asking.set(false);
        });
    }

    /// Finds out whether a link lives: a machine that lost its power answers with a reset when it is back.
    fn probe(&self, peer: NodeId) {
        if let Some(outbox) = self.gatekeeper.borrow().outbox_of(peer) {
            outbox.put(&ReplicaMessage::<M>::Ping { sent_micros: boot_micros() });
            outbox.flush();
        }
    }

    async fn dial(self: Rc<Self>, peer: NodeId) {
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

    fn is_connected(&self, peer: NodeId) -> bool {
        self.gatekeeper.borrow().is_connected(peer)
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
            Greeting::Refusal(refusal) => Err(LinkError::Refused(refusal)),
            _ => Err(LinkError::Stranger("it did not answer a greeting with one".into())),
        }
    }

    /// A link in both directions until either breaks.
    async fn run(
        self: Rc<Self>,
        stream: PeerStream,
        buffer: BytesMut,
        hello: Hello,
        mut expected: Expected,
    ) -> Result<(), LinkError> {
        stream.socket().set_nodelay(true)?;
        socket2::SockRef::from(stream.socket()).set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))?;
        let from = stream.socket().peer_addr().ok();
        let (peer, process, session) = (hello.from, hello.process, self.sessions.get() + 1);
        self.sessions.set(session);
        let (reading, writing) = stream.split();
        let outbox = Outbox::new(writing, self.counters.clone(), peer);
        self.gatekeeper.borrow_mut().connect(&hello, session, outbox.clone());
        outbox.of_peer.reach.on_up();
        self.tell_of_idle_connections(peer, process);
        spawn_local(self.clone().hold_lifeline(hello.clone(), session, from));
        let up = Arrival::Up { peer, session, hello: Box::new(hello), outbox: outbox.clone() };
        let result = if self.arrivals.send(up).await.is_ok() {
            tokio::select! {
                biased;
                result = self.read(reading, buffer, peer, session) => result,
                result = outbox.write() => result,
                () = self.hear_end(peer, process, &mut expected) => Err(LinkError::Died),
            }
        } else {
            Ok(())
        };
        outbox.is_closed.set(true);
        self.gatekeeper.borrow_mut().disconnect(peer, session);
        let why = result.as_ref().err().map_or_else(|| "the connection ended".to_owned(), LinkError::to_string);
        if !self.is_connected(peer) {
            outbox.of_peer.reach.set(match &result {
                Err(LinkError::Refused(refusal)) => Reach::RefusesThis(refusal.why.clone()),
                _ => Reach::Away(why.clone()),
            });
        }
        // Nobody hears this when the loop has ended, and nobody needs to.
        let _ = self.arrivals.send(Arrival::Down { peer, session, why }).await;
        self.holder.as_ref().inspect(|holder| holder.release(session));
        result
    }

    async fn read(
        &self,
        mut reading: Reading,
        mut buffer: BytesMut,
        peer: NodeId,
        session: u64,
    ) -> Result<(), LinkError> {
        let of_peer = self.counters.of_peer(peer);
        loop {
            // No frame begins so: its length would be beyond all bounds. It is the dialler, which does not take this node for a peer.
            let is_greeting = buffer.starts_with(MAGIC);
            if is_greeting && let Some((greeting, _)) = Greeting::take(&mut buffer)? {
                return match greeting {
                    Greeting::Refusal(refusal) => Err(LinkError::Refused(refusal)),
                    _ => Err(LinkError::Stranger("it greeted twice".into())),
                };
            }
            while !is_greeting && let Some(frame) = take_frame(&mut buffer, self.frame_bytes_max)? {
                let message = ReplicaMessage::decode(frame)?;
                if self.arrivals.send(Arrival::Message { peer, session, message }).await.is_err() {
                    return Ok(());
                }
            }
            // Entries keep slices of this buffer, so a fresh one is only taken when this one is nearly used up.
            if buffer.capacity() - buffer.len() < READ_BYTES_MIN {
                buffer.reserve(READ_BYTES);
            }
            let read = reading.read(&mut buffer).await?;
            if read == 0 {
                return Err(LinkError::Closed);
            }
            self.counters.cut.healed().await;
            of_peer.reach.on_heard();
            Counters::add(&self.counters.peer_bytes_received, read as u64);
            Counters::add(&of_peer.bytes_received, read as u64);
        }
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
