//! A Maelstrom node as a value: [`Node`]. A line or the time goes in, lines come out.
//!
//! Before `init` it has no name: messages of peers are kept for later (MN-2). After it, it is a member of a cluster of
//! all named nodes, a [`Replica`] of [`Store`] above a [`Storage`]. Its host says what time it is, prints what is in
//! [`Output`], and calls [`Node::sync`] when [`Node::wants_sync`]: what does not rest on the disk is out before.
//!
//! Every request gets at most one reply (MC-3). A definite error is said only where nothing was proposed, or as the outcome of
//! applying the very entry (MC-4, MC-5); what is perhaps done is error 13 or 0.
//!
//! Read next: [`crate::stdio`], which hosts a node for real, and [`crate::bench::virtual_time`], which hosts many.

mod acting;

use crate::connection::{Connections, News, Packet};
use crate::dice::Dice;
use crate::envelope::{Body, Envelope, body, code, error};
use crate::request::{Form, Now, Request, understand};
use crate::storage::{Place, Storage, StorageError};
use crate::store::{Question, Store};
use crate::timers::Timers;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hustings_core::protocol::{LinkState, Links};
use hustings_core::replica::ReplicaState;
use hustings_core::replica::{Action, Birth, Event, Policy, RecordNumber, Replica, ReplicaMessage, ReplicaTimer};
use hustings_core::{
    Cluster, ClusterId, EntryKind, Limits, Member, Membership, NodeId, Priority, Protocol, Timing, Wire,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Messages of peers that are kept until `init`.
const EARLY_MAX: usize = 1_000;
/// Requests that may wait for an outcome; beyond, they are refused at once.
const WAITING_MAX: usize = 10_000;
/// After so many microseconds a request without an outcome is answered with what is known: nothing. Clients give up after
/// five seconds at the latest, and must not hear very late answers (MP-7).
const PATIENCE: u64 = 4_000_000;
/// Microseconds after `init` within which a node speaks to peers. The genuine tool gets to know its nodes one after the
/// other, and never again listens to one that named another too soon (MP-6); nothing tells a node when all are known
/// but a request of a client or word from a peer, which had a reason of its own.
const QUIET: u64 = 3_000_000;
/// The type of a peer's message.
const PEER: &str = "peer";

/// The settings of a node.
#[derive(Clone, Debug)]
pub struct Setup<P: Protocol> {
    /// The options of its protocol.
    pub options: P::Options,
    /// Heartbeat and election ranges.
    pub timing: Timing,
    /// The place where it keeps what it must not forget.
    pub place: Place,
    /// Whether it may go on with the data of an earlier life there.
    pub may_resume: bool,
    /// Bounds after which a snapshot is cut.
    pub policy: Policy,
    /// Entries that stay in memory below a snapshot.
    pub trailing_entries: u64,
    /// The seed for the jitter of its timers.
    pub seed: u64,
}

impl<P: Protocol> Setup<P> {
    /// In memory, with a heartbeat of 100 ms and an election timeout from 1 s on: round trips of 200 ms are common here.
    pub fn new(seed: u64) -> Setup<P> {
        Setup {
            options: P::Options::default(),
            timing: Timing::new(std::time::Duration::from_millis(100), std::time::Duration::from_secs(1)),
            place: Place::Memory,
            may_resume: false,
            policy: Policy { entries_max: 1_000, ..Policy::default() },
            trailing_entries: 200,
            seed,
        }
    }
}

/// The output of a node.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Output {
    /// Lines for standard output, in order.
    pub lines: Vec<String>,
    /// Lines for people, on standard error.
    pub notes: Vec<String>,
}

impl Output {
    fn say(&mut self, src: &str, dest: &str, body: Body) {
        self.lines.push(Envelope { src: src.into(), dest: dest.into(), body }.line());
    }

    fn reply(&mut self, src: &str, client: &str, msg_id: i64, mut body: Body) {
        body.insert("in_reply_to".into(), json!(msg_id));
        self.say(src, client, body);
    }
}

/// A Maelstrom node under the protocol `P`.
pub struct Node<P: Protocol> {
    setup: Setup<P>,
    early: Vec<Envelope>,
    running: Option<Box<Running<P>>>,
}

/// A client that waits for its answer.
struct Waiting<F> {
    client: String,
    msg_id: i64,
    form: F,
    until: u64,
}

/// A node that knows who it is.
struct Running<P: Protocol> {
    name: String,
    /// Names of all nodes in order: member n is at position n - 1.
    names: Vec<String>,
    boots: u64,
    generated: u64,
    has_topology: bool,
    replica: Replica<P, Store>,
    storage: Storage,
    /// The last record that was appended, and the last that is durable.
    appended: RecordNumber,
    durable: RecordNumber,
    wants_sync: bool,
    timers: Timers<ReplicaTimer<P::Timer>>,
    /// Connections for protocols that need links on which nothing is lost: this network has none of its own.
    connections: Option<Connections>,
    /// While nothing shows that the tool knows all nodes: until when peers hear nothing.
    quiet_until: Option<u64>,
    dice: Dice,
    changes: BTreeMap<u64, Waiting<Form>>,
    looks: BTreeMap<u64, Waiting<(Question, Form)>>,
    next_change: u64,
    next_look: u64,
    /// Events of the storage that the replica has yet to hear.
    news: VecDeque<Event<P, Store>>,
    actions: Vec<Action<P, Store>>,
}

impl<P: Protocol> Node<P> {
    /// A node that waits for `init`.
    pub fn new(setup: Setup<P>) -> Node<P> {
        Node { setup, early: Vec::new(), running: None }
    }

    /// Takes a line, at this microsecond of the host's clock.
    ///
    /// # Errors
    /// When the disk fails: the process must end.
    pub fn on_line(&mut self, now: u64, line: &str, out: &mut Output) -> Result<(), StorageError> {
        match Envelope::parse(line) {
            Ok(envelope) => self.on_envelope(now, envelope, out),
            Err(why) => {
                out.notes.push(format!("a line is ignored: {why}"));
                Ok(())
            }
        }
    }

    fn on_envelope(&mut self, now: u64, envelope: Envelope, out: &mut Output) -> Result<(), StorageError> {
        match (envelope.kind(), &mut self.running) {
            ("init", None) => self.on_init(now, &envelope, out),
            (PEER, None) => {
                if self.early.len() < EARLY_MAX {
                    self.early.push(envelope);
                }
                Ok(())
            }
            (PEER, Some(running)) => running.on_peer(now, &envelope, out),
            // Exactly one `init_ok` (MC-2).
            ("init", Some(_)) => Ok(()),
            // An answer to something that this node never asked.
            _ if envelope.in_reply_to().is_some() => Ok(()),
            (_, running) => {
                let Some(msg_id) = envelope.msg_id() else { return Ok(()) };
                match running {
                    Some(running) => running.on_request(now, envelope.src, msg_id, &envelope.body, out),
                    None => {
                        let refusal = error(code::UNAVAILABLE, "not initialised yet");
                        out.reply(&envelope.dest, &envelope.src, msg_id, refusal);
                        Ok(())
                    }
                }
            }
        }
    }

    fn on_init(&mut self, now: u64, envelope: &Envelope, out: &mut Output) -> Result<(), StorageError> {
        let msg_id = envelope.msg_id().unwrap_or_default();
        let name = envelope.body.get("node_id").and_then(Value::as_str).unwrap_or_default().to_string();
        let listed = envelope.body.get("node_ids").and_then(Value::as_array);
        let mut names: Vec<String> =
            listed.into_iter().flatten().filter_map(|name| name.as_str().map(str::to_string)).collect();
        names.sort();
        names.dedup();
        if !names.contains(&name) {
            let refusal = error(code::MALFORMED, "`init` needs `node_ids` with `node_id` among them");
            out.reply(&name, &envelope.src, msg_id, refusal);
            return Ok(());
        }
        match Running::start(now, &self.setup, &name, names, out) {
            Ok(mut running) => {
                let me = running.replica.me();
                out.notes.push(format!("{name} is member {me} of {:?}, life {}", running.names, running.boots));
                out.reply(&name, &envelope.src, msg_id, body(json!({"type": "init_ok"})));
                for early in std::mem::take(&mut self.early) {
                    running.on_peer(now, &early, out)?;
                }
                self.running = Some(running);
                Ok(())
            }
            Err(failure) => {
                // The test that gets this answer aborts, and says why.
                out.notes.push(failure.to_string());
                out.reply(&name, &envelope.src, msg_id, error(code::ABORT, failure.to_string()));
                Ok(())
            }
        }
    }

    /// Time at which the node wants to be called next; `None` before `init`.
    pub fn next_timer(&self) -> Option<u64> {
        let running = self.running.as_ref()?;
        let patience = |until: Option<u64>| until.unwrap_or(u64::MAX);
        let change = patience(running.changes.values().next().map(|waiting| waiting.until));
        let look = patience(running.looks.values().next().map(|waiting| waiting.until));
        let tick = patience(running.next_connection_tick());
        Some(running.timers.next().unwrap_or(u64::MAX).min(change).min(look).min(tick))
    }

    /// Fires what is due. Lines that have arrived come first (ADR 29).
    ///
    /// # Errors
    /// When the disk fails: the process must end.
    pub fn on_time(&mut self, now: u64, out: &mut Output) -> Result<(), StorageError> {
        let Some(running) = &mut self.running else { return Ok(()) };
        while let Some(timer) = running.timers.take_due(now) {
            running.step(now, Event::Timer(timer), out)?;
        }
        running.on_connection_tick(now, out)?;
        running.lose_patience(now, out)
    }

    /// Whether an effect waits for the disk.
    pub fn wants_sync(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.wants_sync)
    }

    /// The last record that the next [`Node::sync`] makes durable.
    pub fn appended(&self) -> RecordNumber {
        self.running.as_ref().map_or(0, |running| running.appended)
    }

    /// Makes everything so far durable and does what waited for it.
    ///
    /// # Errors
    /// When the disk fails: the process must end.
    pub fn sync(&mut self, now: u64, out: &mut Output) -> Result<(), StorageError> {
        let Some(running) = &mut self.running else { return Ok(()) };
        running.storage.sync()?;
        running.wants_sync = false;
        running.durable = running.appended;
        running.step(now, Event::Durable(running.appended), out)
    }

    /// Whether clients wait for an answer.
    pub fn is_busy(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.changes.is_empty() || !running.looks.is_empty())
    }

    /// The replica inside, for tests; `None` before `init`.
    pub fn replica(&self) -> Option<&Replica<P, Store>> {
        self.running.as_ref().map(|running| &running.replica)
    }
}

impl<P: Protocol> Running<P> {
    fn start(
        now: u64,
        setup: &Setup<P>,
        name: &str,
        names: Vec<String>,
        out: &mut Output,
    ) -> Result<Box<Running<P>>, StorageError> {
        let position = names.iter().position(|other| other == name).expect("the caller looked");
        let me = NodeId(position as u64 + 1);
        let founders = names.iter().map(|name| Member { name: name.clone(), ..Member::default() });
        let founding = Membership::founded_by(founders);
        // FNV-1a: a directory of a cluster with other nodes is another cluster's.
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let cluster_id = ClusterId(names.join(" ").bytes().fold(0xcbf2_9ce4_8422_2325, hash));
        let (storage, recovered) =
            Storage::open(&setup.place, name, me, cluster_id, P::NAME, &founding, setup.may_resume)?;
        let (machine, state) = match &recovered.durable.snapshot {
            Some(reference) => storage.load(reference)?,
            None => (Store::new(), ReplicaState::default()),
        };
        let birth = Birth {
            cluster: Cluster {
                me,
                membership: Arc::new(founding),
                timing: setup.timing,
                priority: Priority::default(),
                limits: Limits { trailing_entries: setup.trailing_entries, ..Limits::default() },
                defect: None,
            },
            options: setup.options.clone(),
            recovered: recovered.durable,
            machine,
            blank: Store::new(),
            is_witness: false,
            state,
            incarnation: recovered.boots,
            policy: setup.policy,
            can: hustings_core::ApplyVersion::FIRST,
        };
        let mut actions = Vec::new();
        let replica = Replica::start(birth, &mut actions);
        let peers = (1..=names.len() as u64).map(NodeId).filter(|peer| *peer != me);
        let connections = (P::LINKS == Links::Session).then(|| Connections::new(recovered.boots, peers));
        let mut running = Box::new(Running {
            name: name.into(),
            names,
            boots: recovered.boots,
            generated: 0,
            has_topology: false,
            replica,
            storage,
            appended: 0,
            durable: 0,
            wants_sync: false,
            timers: Timers::default(),
            connections,
            quiet_until: Some(now + QUIET),
            dice: Dice::new(setup.seed, me.0 + (recovered.boots << 8)),
            changes: BTreeMap::new(),
            looks: BTreeMap::new(),
            next_change: 1,
            next_look: 1,
            news: VecDeque::new(),
            actions,
        });
        running.act(now, out)?;
        running.hear_news(now, out)?;
        Ok(running)
    }

    // --- In. -----------------------------------------------------------------------------------------------------

    fn on_peer(&mut self, now: u64, envelope: &Envelope, out: &mut Output) -> Result<(), StorageError> {
        let position = self.names.iter().position(|name| *name == envelope.src);
        let Some(peer) = position.map(|position| NodeId(position as u64 + 1)) else {
            out.notes.push(format!("a message of {:?} is ignored: it is no member", envelope.src));
            return Ok(());
        };
        self.quiet_until = None;
        let Some(connections) = &mut self.connections else {
            let data = envelope.body.get("data").and_then(Value::as_str).unwrap_or_default();
            return self.on_message(now, peer, data, out);
        };
        let (news, answer) = connections.on_packet(now, peer, packet_of(&envelope.body));
        if let Some(packet) = answer {
            self.post(peer, packet, out);
        }
        for piece in news {
            match piece {
                News::Up => self.step(now, Event::Link { peer, state: LinkState::Up }, out)?,
                News::Down => self.step(now, Event::Link { peer, state: LinkState::Down }, out)?,
                News::Message(data) => self.on_message(now, peer, &data, out)?,
            }
        }
        Ok(())
    }

    fn on_message(&mut self, now: u64, from: NodeId, data: &str, out: &mut Output) -> Result<(), StorageError> {
        let bytes = STANDARD.decode(data).ok();
        match bytes.and_then(|bytes| ReplicaMessage::<P::Message>::decode(Bytes::from(bytes)).ok()) {
            Some(message) => self.step(now, Event::Peer { from, message }, out),
            None => {
                out.notes.push(format!("a message of {from} is ignored: it cannot be decoded"));
                Ok(())
            }
        }
    }

    /// `None` for protocols that take any link.
    fn next_connection_tick(&self) -> Option<u64> {
        let tick = self.connections.as_ref()?.next_tick();
        Some(tick.max(self.quiet_until.unwrap_or_default()))
    }

    fn on_connection_tick(&mut self, now: u64, out: &mut Output) -> Result<(), StorageError> {
        if self.next_connection_tick().is_none_or(|tick| tick > now) {
            return Ok(());
        }
        self.quiet_until = None;
        let Some(connections) = &mut self.connections else { return Ok(()) };
        let (down, packets) = connections.on_tick(now);
        for (peer, packet) in packets {
            self.post(peer, packet, out);
        }
        for peer in down {
            self.step(now, Event::Link { peer, state: LinkState::Down }, out)?;
        }
        Ok(())
    }

    fn name_of(&self, peer: NodeId) -> Option<&String> {
        self.names.get(usize::try_from(peer.0).ok()?.checked_sub(1)?)
    }

    fn post(&self, peer: NodeId, packet: Packet, out: &mut Output) {
        let Some(name) = self.name_of(peer) else { return };
        let Packet { from, to, is_up, acknowledged, message } = packet;
        let (number, data) = message.unzip();
        let content = json!({"type": PEER, "from": from, "to": to, "is_up": is_up, "acknowledged": acknowledged, "number": number, "data": data});
        out.say(&self.name, name, body(content));
    }

    fn on_request(
        &mut self,
        now: u64,
        client: String,
        msg_id: i64,
        request: &Body,
        out: &mut Output,
    ) -> Result<(), StorageError> {
        let until = now + PATIENCE;
        self.quiet_until = None;
        match understand(request, self.has_topology) {
            Request::Now(now) => {
                let answer = self.answer_now(now);
                out.reply(&self.name, &client, msg_id, answer);
            }
            Request::Refused(code, why) => out.reply(&self.name, &client, msg_id, error(code, why)),
            Request::Change(..) | Request::Look(..) if self.replica.leader().is_none() => {
                // Nothing was appended or forwarded, so this is definite.
                out.reply(&self.name, &client, msg_id, error(code::UNAVAILABLE, "no leader is known"));
            }
            Request::Change(..) | Request::Look(..) if self.changes.len() + self.looks.len() >= WAITING_MAX => {
                out.reply(&self.name, &client, msg_id, error(code::UNAVAILABLE, "too many requests"));
            }
            Request::Change(command, form) => {
                let id = self.next_change;
                self.next_change += 1;
                self.changes.insert(id, Waiting { client, msg_id, form, until });
                let payload = command.encode();
                let request = hustings_core::replica::Request { id, kind: EntryKind::Command, payload };
                self.step(now, Event::Propose(vec![request]), out)?;
            }
            Request::Look(question, form) => {
                let id = self.next_look;
                self.next_look += 1;
                self.looks.insert(id, Waiting { client, msg_id, form: (question, form), until });
                self.step(now, Event::Read(vec![id]), out)?;
            }
        }
        Ok(())
    }

    fn answer_now(&mut self, request: Now) -> Body {
        body(match request {
            Now::Echo(value) => json!({"type": "echo_ok", "echo": value}),
            Now::Generate => {
                self.generated += 1;
                // A life's number is durable before its first line, so that no other life makes the same id.
                json!({"type": "generate_ok", "id": format!("{}-{}-{}", self.name, self.boots, self.generated)})
            }
            Now::Topology => {
                self.has_topology = true;
                json!({"type": "topology_ok"})
            }
        })
    }

    /// Answers clients that waited too long that nobody knows; a read that was not answered has definitely done nothing.
    fn lose_patience(&mut self, now: u64, out: &mut Output) -> Result<(), StorageError> {
        while let Some(first) = self.changes.first_entry().filter(|first| first.get().until <= now) {
            let (id, waiting) = first.remove_entry();
            let answer = error(code::TIMEOUT, "no outcome in time");
            out.reply(&self.name, &waiting.client, waiting.msg_id, answer);
            self.step(now, Event::Abandon(id), out)?;
        }
        while let Some(first) = self.looks.first_entry().filter(|first| first.get().until <= now) {
            let (id, waiting) = first.remove_entry();
            let answer = error(code::UNAVAILABLE, "no leader confirmed this read in time");
            out.reply(&self.name, &waiting.client, waiting.msg_id, answer);
            self.step(now, Event::AbandonReads([id].into()), out)?;
        }
        Ok(())
    }

    fn step(&mut self, now: u64, event: Event<P, Store>, out: &mut Output) -> Result<(), StorageError> {
        // Nothing in the store ever falls due: the log's clock need not be told of time that passed.
        self.replica.step(event, &mut self.actions);
        self.act(now, out)?;
        self.hear_news(now, out)
    }

    fn hear_news(&mut self, now: u64, out: &mut Output) -> Result<(), StorageError> {
        while let Some(event) = self.news.pop_front() {
            self.replica.step(event, &mut self.actions);
            self.act(now, out)?;
        }
        Ok(())
    }
}

/// A peer's packet; what is missing or absurd in it makes one of no known connection, which comes to nothing.
fn packet_of(body: &Body) -> Packet {
    let number = |field: &str| body.get(field).and_then(Value::as_u64);
    let data = body.get("data").and_then(Value::as_str).map(str::to_string);
    Packet {
        from: number("from").unwrap_or_default(),
        to: number("to").unwrap_or_default(),
        is_up: body.get("is_up").and_then(Value::as_bool).unwrap_or_default(),
        acknowledged: number("acknowledged").unwrap_or_default(),
        message: number("number").zip(data),
    }
}
