//! Replicas with hosts that do everything in memory, for stories: messages in a bag, disks that can be held, timers fired by
//! hand, time that passes when told.

#![allow(dead_code, reason = "each test file uses its own part of the support")]

use bytes::{Buf, Bytes};
use hustings_core::replica::ReplicaState;
use hustings_core::replica::{
    Action, Birth, Event, Policy, Replica, ReplicaMessage, ReplicaTimer, Request, SnapshotContents,
};
use hustings_core::{
    ApplyVersion, Cluster, Durable, EntryKind, Limits, LinkState, Lsn, MembershipChange, NodeId, Record, Refusal, Role,
    SnapshotError, SnapshotReference, StateMachine, Wire,
};
use hustings_raft::{Message, Options, Raft, Timer};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Writes down its commands, and drops what it has written at `forget`; `lease 10` expires when ten milliseconds of log time have passed, `keep 10` puts it off.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Book {
    pub lines: Vec<String>,
    pub micros: u64,
    pub due: Option<u64>,
    /// Whether it writes in capitals, as its second rules have it.
    pub is_loud: bool,
}

impl StateMachine for Book {
    type Response = usize;
    type View = Book;

    const VERSION_MAX: ApplyVersion = ApplyVersion(2);

    fn adopt(&mut self, version: ApplyVersion) {
        self.is_loud = version >= ApplyVersion(2);
    }

    fn advance(&mut self, elapsed: Duration) {
        self.micros += u64::try_from(elapsed.as_micros()).expect("stories are short");
        if self.due.take_if(|due| *due <= self.micros).is_some() {
            self.lines.push("expired".into());
        }
    }

    fn apply(&mut self, _: Lsn, payload: &Bytes) -> usize {
        let line = String::from_utf8(payload.to_vec()).expect("stories are text");
        if line == "forget" {
            self.lines.clear();
        }
        if let Some((_, millis)) = line.split_once(' ').filter(|(word, _)| ["lease", "keep"].contains(word)) {
            self.due = Some(self.micros + 1_000 * millis.parse::<u64>().expect("milliseconds"));
        }
        self.lines.push(if self.is_loud { line.to_uppercase() } else { line });
        self.lines.len()
    }

    fn freeze(&self) -> Book {
        self.clone()
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.due.map(|due| Duration::from_micros(due.saturating_sub(self.micros)))
    }

    fn encode(view: &Book, sink: &mut dyn FnMut(Bytes)) {
        sink(Bytes::copy_from_slice(&view.micros.to_le_bytes()));
        sink(Bytes::copy_from_slice(&view.due.unwrap_or(0).to_le_bytes()));
        sink(Bytes::from(view.lines.join("\n")));
    }

    fn decode(snapshot: &mut dyn Buf) -> Result<Book, SnapshotError> {
        let short = |_| SnapshotError { what: "it is cut off".into() };
        let micros = snapshot.try_get_u64_le().map_err(short)?;
        let due = Some(snapshot.try_get_u64_le().map_err(short)?).filter(|due| *due > 0);
        let text = snapshot.copy_to_bytes(snapshot.remaining());
        let text = std::str::from_utf8(&text).map_err(|_| SnapshotError { what: "no text".into() })?;
        Ok(Book { lines: text.lines().map(str::to_string).collect(), micros, due, is_loud: false })
    }
}

/// The end of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    Applied,
    Reconfigured,
    Refused(Refusal),
    Unknown,
    /// A read, with what it saw.
    Saw(Vec<String>),
}

pub type Said = ReplicaMessage<Message>;

pub struct Host {
    pub replica: Replica<Raft, Book>,
    pub durable: Durable,
    pub proposals: BTreeMap<u64, Vec<Ended>>,
    pub reads: BTreeMap<u64, Vec<Ended>>,
    pub armed: BTreeMap<ReplicaTimer<Timer>, Duration>,
    pub cut: Option<SnapshotContents<Book>>,
    unsynced: VecDeque<(u64, Record)>,
    is_disk_held: bool,
    are_loads_held: bool,
    /// It applies a slice when the story says so, and no more.
    is_slow: bool,
    load: Option<SnapshotReference>,
    next_proposal: u64,
    next_read: u64,
    files: BTreeMap<Lsn, Bytes>,
    receiving: Vec<u8>,
    /// Chunks that have come and wait for the disk; `None` while each is stored at once.
    pub unstored: Option<Vec<(SnapshotReference, u64, Bytes)>>,
    /// How much of a snapshot it reads for one answer.
    pub chunk_bytes: usize,
    /// Whether the next snapshot that it has stored whole is not what it should be.
    pub damages: bool,
    /// The highest apply version of its build.
    pub can: ApplyVersion,
    pub stopped: Option<String>,
    /// (index, digest) of its state, at the entries where states are compared.
    pub digests: Vec<(u64, u64)>,
}

impl Host {
    fn store(&mut self, reference: SnapshotReference, offset: u64, bytes: &Bytes) -> Vec<Event<Raft, Book>> {
        if offset == 0 {
            self.receiving.clear();
        }
        self.receiving.extend_from_slice(bytes);
        let mut events = vec![Event::ChunkStored { bytes: bytes.len() as u64 }];
        if self.receiving.len() as u64 == reference.bytes && std::mem::take(&mut self.damages) {
            self.receiving.clear();
            events.push(Event::SnapshotStored(Err(reference)));
        } else if self.receiving.len() as u64 == reference.bytes {
            self.files.insert(reference.lsn, Bytes::from(std::mem::take(&mut self.receiving)));
            events.push(Event::SnapshotStored(Ok(reference)));
        }
        events
    }
}

pub struct Hosts {
    pub hosts: BTreeMap<u64, Host>,
    pub bag: VecDeque<(u64, u64, Said)>,
    /// Every message that was ever sent.
    pub sent: Vec<(u64, u64, Said)>,
    cut: BTreeSet<(u64, u64)>,
}

fn birth(cluster: Cluster, recovered: Durable, can: ApplyVersion, policy: Policy) -> Birth<Raft, Book> {
    let (options, machine, state) = (Options::default(), Book::default(), ReplicaState::default());
    Birth {
        cluster,
        options,
        recovered,
        blank: Book::default(),
        is_witness: false,
        machine,
        state,
        incarnation: 1,
        policy,
        can,
    }
}

/// Three replicas as they are by default.
pub fn three() -> Hosts {
    Hosts::new(Cluster::of(3, 1), Policy::default())
}

/// Three replicas of which the last is a witness; the others cut a snapshot after eight entries and keep none behind it.
pub fn three_with_witness() -> Hosts {
    let cluster = Cluster::of(3, 1);
    let mut membership = (*cluster.membership).clone();
    membership.members.get_mut(&NodeId(3)).expect("n3 is a member").is_witness = true;
    let limits = Limits { trailing_entries: 0, ..cluster.limits };
    Hosts::new(
        Cluster { membership: membership.into(), limits, ..cluster },
        Policy { entries_max: 8, ..Policy::default() },
    )
}

/// A snapshot is due after every second entry, and nothing is kept below it.
pub fn cutting() -> Hosts {
    let limits = Limits { trailing_entries: 0, ..Limits::default() };
    let policy = Policy { entries_max: 2, ..Policy::default() };
    Hosts::new(Cluster { limits, ..Cluster::of(3, 1) }, policy)
}

/// A snapshot with this in it, which n1 has cut and n3 lacks, is on its way to be offered; and the last entry that it covers.
pub fn offering(text: &str) -> (Hosts, Lsn) {
    let mut hosts = cutting();
    hosts.elect(1);
    hosts.isolate(3);
    hosts.propose(1, text);
    hosts.settle();
    let lsn = hosts.finish_cut(1);
    hosts.heal();
    hosts.fire(1, ReplicaTimer::Protocol(Timer::Heartbeat));
    (hosts, lsn)
}

/// Whether this is a request on its way to the leader.
pub fn is_forward(said: &Said) -> bool {
    matches!(said, ReplicaMessage::Forward { .. })
}

impl Hosts {
    pub fn new(cluster: Cluster, policy: Policy) -> Hosts {
        let mut hosts = Hosts { hosts: BTreeMap::new(), bag: VecDeque::new(), sent: Vec::new(), cut: BTreeSet::new() };
        for id in cluster.membership.everyone().collect::<Vec<_>>() {
            let birth = birth(Cluster { me: id, ..cluster.clone() }, Durable::default(), ApplyVersion::FIRST, policy);
            let mut actions = Vec::new();
            let host = Host {
                replica: Replica::start(birth, &mut actions),
                durable: Durable::default(),
                proposals: BTreeMap::new(),
                reads: BTreeMap::new(),
                armed: BTreeMap::new(),
                cut: None,
                unsynced: VecDeque::new(),
                is_disk_held: false,
                are_loads_held: false,
                is_slow: false,
                load: None,
                next_proposal: 1,
                next_read: 1,
                files: BTreeMap::new(),
                receiving: Vec::new(),
                unstored: None,
                chunk_bytes: 16,
                damages: false,
                can: ApplyVersion::FIRST,
                stopped: None,
                digests: Vec::new(),
            };
            hosts.hosts.insert(id.0, host);
            hosts.act(id.0, actions);
        }
        hosts
    }

    pub fn host(&self, id: u64) -> &Host {
        &self.hosts[&id]
    }

    pub fn host_mut(&mut self, id: u64) -> &mut Host {
        self.hosts.get_mut(&id).expect("a host")
    }

    pub fn lines(&self, id: u64) -> &[String] {
        &self.host(id).replica.machine().lines
    }

    pub fn role(&self, id: u64) -> Role {
        self.host(id).replica.role()
    }

    /// Number of times that a command is in the log of this node, applied or not.
    pub fn copies(&self, id: u64, text: &str) -> usize {
        self.host(id).replica.protocol().log().iter().filter(|entry| entry.payload == text).count()
    }

    // --- Verbs. --------------------------------------------------------------------------------------------------

    pub fn step(&mut self, id: u64, event: Event<Raft, Book>) {
        let mut actions = Vec::new();
        let host = self.host_mut(id);
        match host.is_slow {
            true => host.replica.step_within_slice(event, &mut actions),
            false => host.replica.step(event, &mut actions),
        }
        self.act(id, actions);
    }

    /// From here on this node applies what is committed when [`Hosts::slice`] says so.
    pub fn slow_down(&mut self, id: u64) {
        self.host_mut(id).is_slow = true;
    }

    /// This node applies one slice.
    pub fn slice(&mut self, id: u64) {
        let mut actions = Vec::new();
        self.host_mut(id).replica.next_slice(&mut actions);
        self.act(id, actions);
    }

    pub fn fire(&mut self, id: u64, timer: ReplicaTimer<Timer>) {
        assert!(self.host_mut(id).armed.remove(&timer).is_some(), "{timer:?} is not armed at n{id}");
        self.step(id, Event::Timer(timer));
    }

    /// Every node's stickiness ends, this one campaigns, and all is delivered.
    pub fn elect(&mut self, id: u64) {
        for other in self.hosts.keys().copied().collect::<Vec<_>>() {
            if self.host(other).armed.contains_key(&ReplicaTimer::Protocol(Timer::Stickiness)) {
                self.fire(other, ReplicaTimer::Protocol(Timer::Stickiness));
            }
        }
        self.fire(id, ReplicaTimer::Protocol(Timer::Election));
        self.settle();
        assert_eq!(self.role(id), Role::Leader, "n{id} was to lead");
    }

    pub fn heartbeat(&mut self, id: u64) {
        self.fire(id, ReplicaTimer::Protocol(Timer::Heartbeat));
        self.settle();
    }

    fn request(&mut self, id: u64, kind: EntryKind, payload: Bytes) -> u64 {
        let host = self.host_mut(id);
        let number = host.next_proposal;
        host.next_proposal += 1;
        self.step(id, Event::Propose(vec![Request { id: number, kind, payload }]));
        number
    }

    /// A client of this node proposes; nothing is delivered yet.
    pub fn propose(&mut self, id: u64, text: &str) -> u64 {
        self.request(id, EntryKind::Command, Bytes::copy_from_slice(text.as_bytes()))
    }

    pub fn change(&mut self, id: u64, change: &MembershipChange) -> u64 {
        self.request(id, EntryKind::Membership, change.to_bytes())
    }

    pub fn read(&mut self, id: u64) -> u64 {
        let host = self.host_mut(id);
        let number = host.next_read;
        host.next_read += 1;
        self.step(id, Event::Read(vec![number]));
        number
    }

    /// The outcome of a proposal, which ends at most once; `None` while it waits.
    pub fn outcome(&self, id: u64, number: u64) -> Option<Ended> {
        let ends = self.host(id).proposals.get(&number)?;
        assert_eq!(ends.len(), 1, "n{id} answers a client once: {ends:?}");
        Some(ends[0].clone())
    }

    pub fn pass(&mut self, id: u64, millis: u64) {
        self.step(id, Event::Elapsed(millis * 1_000));
    }

    pub fn hold_disk(&mut self, id: u64) {
        self.host_mut(id).is_disk_held = true;
    }

    pub fn release_disk(&mut self, id: u64) {
        self.host_mut(id).is_disk_held = false;
        self.act(id, Vec::new());
    }

    /// Snapshots that are complete take as long to load as the story wants.
    pub fn hold_loads(&mut self, id: u64) {
        self.host_mut(id).are_loads_held = true;
    }

    pub fn release_loads(&mut self, id: u64) {
        self.host_mut(id).are_loads_held = false;
        self.act(id, Vec::new());
    }

    /// This node is started again, by a build that can apply up to this version.
    pub fn rebuild(&mut self, id: u64, can: u32) {
        let policy = Policy::default();
        let host = self.host_mut(id);
        let (cluster, recovered) = (Cluster::of(3, id), host.durable.clone());
        let mut actions = Vec::new();
        host.replica = Replica::start(birth(cluster, recovered, ApplyVersion(can), policy), &mut actions);
        (host.can, host.stopped) = (ApplyVersion(can), None);
        host.armed.clear();
        host.unsynced.clear();
        self.act(id, actions);
    }

    /// This node's host tells who is connected to it, and what their builds can.
    pub fn tell_who_is_able(&mut self, id: u64) {
        let connected = self.hosts.iter().filter(|(other, _)| **other != id && !self.cut.contains(&(id, **other)));
        let able = connected.map(|(other, host)| (NodeId(*other), host.can)).collect();
        self.step(id, Event::Able(able));
        self.settle();
    }

    pub fn version(&self, id: u64) -> u32 {
        self.host(id).replica.version().0
    }

    pub fn isolate(&mut self, id: u64) {
        for other in self.hosts.keys().filter(|other| **other != id) {
            self.cut.extend([(id, *other), (*other, id)]);
        }
    }

    pub fn heal(&mut self) {
        self.cut.clear();
    }

    pub fn link_down(&mut self, at: u64, peer: u64) {
        self.step(at, Event::Link { peer: NodeId(peer), state: LinkState::Down });
    }

    pub fn deliver(&mut self, from: u64, to: u64, message: Said) {
        // As on the wire: what cannot be decoded never arrives.
        let message = Said::decode(message.to_bytes()).expect("a message that was sent can be read");
        self.step(to, Event::Peer { from: NodeId(from), message });
    }

    /// Delivers what is in the bag, and what that leads to, until nothing moves.
    pub fn settle(&mut self) {
        let mut steps = 0;
        while let Some((from, to, message)) = self.bag.pop_front() {
            steps += 1;
            assert!(steps < 100_000, "messages never stop");
            if !self.cut.contains(&(from, to)) && self.hosts.contains_key(&to) {
                self.deliver(from, to, message);
            }
        }
    }

    /// What this node has just forwarded is committed while it is cut off, and comes back to it inside a snapshot alone.
    pub fn forward_comes_back_inside_a_snapshot(&mut self, id: u64, leader: u64) {
        let forward = self.bag.pop_front().expect("it goes to the leader");
        self.isolate(id);
        self.deliver(forward.0, forward.1, forward.2);
        self.settle();
        self.finish_cut(leader);
        self.heal();
        for _ in 0..3 {
            self.heartbeat(leader);
        }
    }

    /// The snapshot that this node is cutting is complete.
    pub fn finish_cut(&mut self, id: u64) -> Lsn {
        let host = self.host_mut(id);
        let contents = host.cut.take().expect("a snapshot was due");
        let mut bytes = Vec::new();
        contents.encode(&mut |chunk| bytes.extend_from_slice(&chunk));
        let (lsn, membership) = (contents.lsn, contents.membership.clone());
        let reference = SnapshotReference { lsn, membership, bytes: bytes.len() as u64, digest: 7 };
        host.files.insert(lsn, bytes.into());
        self.step(id, Event::SnapshotCut(Some(reference)));
        lsn
    }

    /// The disk stores what waits for it, and what comes from now on at once.
    pub fn release_stores(&mut self, id: u64) {
        for (reference, offset, bytes) in self.host_mut(id).unstored.take().expect("stores are held") {
            for event in self.host_mut(id).store(reference, offset, &bytes) {
                self.step(id, event);
            }
        }
    }

    /// Delivers what is under way until something like this is.
    pub fn deliver_until(&mut self, is_it: impl Fn(&Said) -> bool) {
        while !self.bag.iter().any(|(_, _, said)| is_it(said)) {
            let (from, to, said) = self.bag.pop_front().expect("it comes");
            self.deliver(from, to, said);
        }
    }

    /// Removes a snapshot from a node's disk.
    pub fn remove_snapshot(&mut self, id: u64, lsn: Lsn) {
        self.hosts.get_mut(&id).expect("a host").files.remove(&lsn).expect("it was there");
    }

    // --- What a host does. ---------------------------------------------------------------------------------------

    fn act(&mut self, id: u64, actions: Vec<Action<Raft, Book>>) {
        let host = self.hosts.get_mut(&id).expect("a host");
        let mut events = VecDeque::new();
        for action in actions {
            let end = |ends: &mut BTreeMap<u64, Vec<Ended>>, request, ended| {
                ends.entry(request).or_default().push(ended);
            };
            match action {
                Action::Persist(number, record) => host.unsynced.push_back((number, record)),
                Action::Send(to, message) => {
                    self.sent.push((id, to.0, message.clone()));
                    self.bag.push_back((id, to.0, message));
                }
                Action::SetTimer(timer, after) => drop(host.armed.insert(timer, *after.start())),
                Action::CancelTimer(timer) => drop(host.armed.remove(&timer)),
                Action::Applied { request, .. } => end(&mut host.proposals, request, Ended::Applied),
                Action::Reconfigured { request, .. } => end(&mut host.proposals, request, Ended::Reconfigured),
                Action::Refused { request, refusal } => end(&mut host.proposals, request, Ended::Refused(refusal)),
                Action::Unknown { request } => end(&mut host.proposals, request, Ended::Unknown),
                Action::Readable { requests, view, .. } => {
                    for request in requests {
                        end(&mut host.reads, request, Ended::Saw(view.0.0.lines.clone()));
                    }
                }
                Action::Unreadable { requests } => {
                    requests
                        .into_iter()
                        .for_each(|request| end(&mut host.reads, request, Ended::Refused(Refusal::IsWitness)));
                }
                Action::CutSnapshot(contents) => host.cut = Some(contents),
                Action::StoreChunk { reference, offset, bytes } => match &mut host.unstored {
                    Some(unstored) => unstored.push((reference, offset, bytes)),
                    None => events.extend(host.store(reference, offset, &bytes)),
                },
                Action::ReadChunk { to, lsn, offset, .. } => {
                    let start = usize::try_from(offset).expect("small files");
                    let bytes =
                        host.files.get(&lsn).map(|file| file.slice(start..file.len().min(start + host.chunk_bytes)));
                    events.push_back(Event::ChunkRead { to, lsn, offset, bytes });
                }
                Action::LoadSnapshot(reference) => host.load = Some(reference),
                Action::AdminEnded { .. } | Action::Announce(_) | Action::Membership(_) | Action::Version(_) => {}
                Action::Digest(contents) => host.digests.push((contents.lsn.index, contents.digest())),
                Action::Stop { why } => host.stopped = Some(why),
            }
        }
        if !host.is_disk_held && !host.unsynced.is_empty() {
            let mut last = 0;
            for (number, record) in host.unsynced.drain(..) {
                host.durable.absorb(record);
                last = number;
            }
            events.push_front(Event::Durable(last));
        }
        if let Some(reference) = host.load.take_if(|_| !host.are_loads_held) {
            let mut bytes = host.files[&reference.lsn].clone();
            let (machine, state) =
                SnapshotContents::<Book>::decode(&mut bytes).expect("what was encoded can be decoded");
            events.push_back(Event::SnapshotLoaded { lsn: reference.lsn, machine: machine.into(), state });
        }
        for event in events {
            self.step(id, event);
        }
    }
}
