//! Peer links: one connection per pair, dialled by the smaller id, with bounded buffers both ways.
//!
//! ```text
//!    loop ── Outbox (messages, bounded) ──► socket ──► reader task ── Arrival ──► loop of the peer
//!              └── what would block, or take long ──► writer task ──┘
//! ```
//!
//! The loop writes to the socket itself at the end of its turn; the writer task takes over when the peer is slow, or when there is
//! more than a turn may write.
//!
//! Everything here runs on the loop's own thread, apart from clients, so that no flood of requests reaches an election (ADR 33). The other
//! end is identified before, at the [`crate::door`]. A link that breaks is announced the moment the kernel says so, and beside each
//! link stands a [`crate::lifeline`], whose end is heard in a fraction of a millisecond.

mod dialling;
mod ends;
mod outbox;

use crate::counters::Counters;
use crate::discovery::ask_all;
use crate::door::{Caller, Door};
use crate::frame::{Greeting, Hello, LinkError, MAGIC, Refusal, take_frame};
use crate::gatekeeper::{Answer, Gatekeeper};
use crate::handshake::say;
use crate::lifeline::{Expected, Holder, Outlived};
use crate::peer_stream::{PeerStream, Reading};
use crate::reach::Reach;
use crate::timers::boot_micros;
use bytes::BytesMut;
use hustings_core::replica::ReplicaMessage;
use hustings_core::{NodeId, Wire};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};

pub(crate) use outbox::Outbox;

/// Pause between two looks of a dial that waits for another one.
const CROSSED_PAUSE: Duration = Duration::from_millis(5);
/// A read buffer's size, and how little of it may be left before the next is taken.
const READ_BYTES: usize = 64 << 10;
const READ_BYTES_MIN: usize = 4 << 10;
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

    /// Receives the callers that have said hello at the door, until the loop ends.
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
        self.forget_removed();
        let mut dialled = self.dialled.borrow_mut();
        // The task of a peer that was removed ends by itself when its link does: its last message must still leave.
        dialled.retain(|_, task| !task.is_finished());
        for peer in peers.into_iter().filter(|peer| *peer != me) {
            dialled.entry(peer).or_insert_with(|| spawn_local(self.clone().dial(peer)).abort_handle());
        }
    }

    /// What was known of members that were removed is of no use to anybody, and ids are not given again.
    fn forget_removed(&self) {
        let membership = {
            let mut gatekeeper = self.gatekeeper.borrow_mut();
            gatekeeper.forget_removed();
            gatekeeper.membership.clone()
        };
        self.counters.forget_peers(|peer| membership.has_removed(peer));
        self.outlived.borrow_mut().forget(|peer| membership.has_removed(peer));
    }

    async fn accept(self: &Rc<Self>, caller: Caller) -> Result<(), LinkError> {
        let Caller { from, stream, buffer, hello, shown } = caller;
        let mut stream = stream.unpack()?;
        if hello.from.0 == 0 || hello.to.0 == 0 {
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
                (gatekeeper.known_urls(), gatekeeper.hello_to(NodeId(0)))
            };
            let (secret, tls) = (links.door.secret.clone(), links.door.tls.connector.clone());
            let asking = async move { ask_all(&urls, &hello, secret.as_ref(), tls.as_ref()).await };
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
            outbox.put(ReplicaMessage::<M>::Ping { sent_micros: boot_micros() });
            outbox.flush();
        }
    }

    fn is_connected(&self, peer: NodeId) -> bool {
        self.gatekeeper.borrow().is_connected(peer)
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
            let mut death = pin!(self.hear_end(peer, process, &mut expected));
            let ended = tokio::select! {
                biased;
                result = self.read(reading, buffer, peer, session) => result,
                result = outbox.write() => result,
                () = &mut death => Err(LinkError::Died),
            };
            // A loop that was busy finds both ends, and the lifeline's says more.
            let has_died = poll_fn(|context| Poll::Ready(death.as_mut().poll(context).is_ready()));
            let is_end = matches!(ended, Err(LinkError::Closed | LinkError::Io(_)));
            if is_end && has_died.await { Err(LinkError::Died) } else { ended }
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
