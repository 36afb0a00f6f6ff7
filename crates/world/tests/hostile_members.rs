//! Nothing that a member says beside its protocol ends another. Goal: forwarded proposals, questions for reads and parts of snapshots are
//! input of a peer, too, and a member may be faulty or foreign. Method: a small cluster of replicas with a store runs; of every such message
//! that arrives, each number is replaced by extreme ones and each field left out, and what can be decoded is told to a copy of the receiver,
//! which then runs on for a while. `HUSTINGS_LIES` makes it longer.

use super::hostile::{Dice, VOTERS, damaged};
use bytes::{Bytes, BytesMut};
use hustings_core::protocol::LinkState;
use hustings_core::replica::{
    Action, ApplyVersion, Birth, Event, Policy, Replica, ReplicaMessage, ReplicaState, ReplicaTimer, Request,
    RequestId, SnapshotContents,
};
use hustings_core::{Cluster, Durable, EntryKind, Limits, Lsn, NodeId, Protocol, Role, SnapshotReference, Wire};
use hustings_kv::{Command, KvStore, Put};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

const TURNS: u64 = 3_000;
/// Bytes of a part of a snapshot: a snapshot has several.
const CHUNK_BYTES: usize = 48;

type Said<P> = ReplicaMessage<<P as Protocol>::Message>;

/// A replica with what a host keeps for it. The disk is instant, also for snapshots.
#[derive(Clone)]
struct Member<P: Protocol> {
    replica: Replica<P, KvStore>,
    armed: BTreeSet<ReplicaTimer<P::Timer>>,
    own: VecDeque<Event<P, KvStore>>,
    said: Vec<(NodeId, Said<P>)>,
    snapshots: BTreeMap<(Lsn, u32), Bytes>,
    fetched: BytesMut,
    proposed: RequestId,
    asked: RequestId,
    /// Number of clients that were told that their write is done, or their read.
    answered: u64,
}

impl<P: Protocol> Member<P> {
    /// A member that is the only one, and leads.
    fn alone() -> Member<P> {
        let mut member = Member::of(1, 1);
        while member.replica.role() != Role::Leader {
            let timer = *member.armed.first().expect("a member alone waits for its election");
            member.fire(timer);
        }
        member
    }

    fn of(voters: u64, me: u64) -> Member<P> {
        let limits = Limits { trailing_entries: 1, message_bytes_max: 400, ..Limits::default() };
        let mut out = Vec::new();
        let birth = Birth {
            cluster: Cluster { limits, ..Cluster::of(voters, me) },
            options: P::Options::default(),
            recovered: Durable::default(),
            machine: KvStore::new(),
            blank: KvStore::new(),
            is_witness: false,
            state: ReplicaState::default(),
            incarnation: me,
            policy: Policy { entries_max: 6, ..Policy::default() },
            can: ApplyVersion::FIRST,
        };
        let replica = Replica::start(birth, &mut out);
        let mut member = Member {
            replica,
            armed: BTreeSet::new(),
            own: VecDeque::new(),
            said: Vec::new(),
            snapshots: BTreeMap::new(),
            fetched: BytesMut::new(),
            proposed: 0,
            asked: 0,
            answered: 0,
        };
        member.carry_out(out);
        member
    }

    fn hear(&mut self, event: Event<P, KvStore>) {
        self.own.push_back(event);
        while let Some(event) = self.own.pop_front() {
            let mut out = Vec::new();
            self.replica.step(event, &mut out);
            self.carry_out(out);
        }
    }

    fn carry_out(&mut self, out: Vec<Action<P, KvStore>>) {
        for action in out {
            match action {
                Action::Persist(number, _) => self.own.push_back(Event::Durable(number)),
                Action::Send(to, message) => {
                    assert_ne!(to, self.replica.me(), "it says to itself what no host delivers: {message:?}");
                    self.said.push((to, message));
                }
                Action::SetTimer(timer, _) => drop(self.armed.insert(timer)),
                Action::CancelTimer(timer) => drop(self.armed.remove(&timer)),
                Action::Applied { .. } => self.answered += 1,
                Action::Readable { requests, .. } => self.answered += requests.len() as u64,
                Action::CutSnapshot(contents) => self.cut(&contents),
                Action::StoreChunk { reference, offset, bytes } => {
                    self.own.push_back(Event::ChunkStored { bytes: bytes.len() as u64 });
                    self.store(reference, offset, &bytes);
                }
                Action::ReadChunk { to, lsn, digest, offset } => {
                    let whole = self.snapshots.get(&(lsn, digest));
                    let rest = whole
                        .and_then(|whole| whole.get(usize::try_from(offset).ok()?..))
                        .filter(|rest| !rest.is_empty());
                    let bytes = rest.map(|rest| Bytes::copy_from_slice(&rest[..rest.len().min(CHUNK_BYTES)]));
                    self.own.push_back(Event::ChunkRead { to, lsn, offset, bytes });
                }
                Action::LoadSnapshot(reference) => {
                    let mut bytes = self.snapshots[&(reference.lsn, reference.digest)].clone();
                    let (machine, state) =
                        SnapshotContents::<KvStore>::decode(&mut bytes).expect("its digest was right");
                    self.own.push_back(Event::SnapshotLoaded { lsn: reference.lsn, machine: Box::new(machine), state });
                }
                Action::Stop { why } => panic!("a word of a peer stops it: {why}"),
                _ => {}
            }
        }
    }

    fn cut(&mut self, contents: &SnapshotContents<KvStore>) {
        let mut whole = BytesMut::new();
        contents.encode(&mut |bytes| whole.extend_from_slice(&bytes));
        let whole = whole.freeze();
        let (lsn, membership, digest) = (contents.lsn, contents.membership.clone(), crc32c::crc32c(&whole));
        let reference = SnapshotReference { lsn, membership, bytes: whole.len() as u64, digest };
        self.snapshots.insert((lsn, digest), whole);
        self.own.push_back(Event::SnapshotCut(Some(reference)));
    }

    /// Keeps a part that was fetched, as a file would: where it belongs.
    fn store(&mut self, reference: SnapshotReference, offset: u64, bytes: &[u8]) {
        let end = usize::try_from(offset).expect("offsets of parts are checked") + bytes.len();
        assert!(end as u64 <= reference.bytes, "a part behind the end of {reference:?} was kept");
        self.fetched.truncate(usize::try_from(offset).expect("checked above"));
        self.fetched.resize(end - bytes.len(), 0);
        self.fetched.extend_from_slice(bytes);
        if end as u64 == reference.bytes {
            let whole = std::mem::take(&mut self.fetched).freeze();
            let is_right = crc32c::crc32c(&whole) == reference.digest;
            let stored = if is_right { Ok(reference.clone()) } else { Err(reference.clone()) };
            if is_right {
                self.snapshots.insert((reference.lsn, reference.digest), whole);
            }
            self.own.push_back(Event::SnapshotStored(stored));
        }
    }

    fn fire(&mut self, timer: ReplicaTimer<P::Timer>) {
        // What is under way to the disk may cancel it.
        self.hear(Event::Elapsed(10_000));
        if self.armed.remove(&timer) {
            self.hear(Event::Timer(timer));
        }
    }

    fn write(&mut self) {
        self.proposed += 1;
        let (key, value) =
            (Bytes::from(format!("k{}", self.proposed % 7)), Bytes::from_static(b"a value of some bytes"));
        let payload = Command::Put(Put { key, value, ..Put::default() }).to_payload();
        self.hear(Event::Propose(vec![Request { id: self.proposed, kind: EntryKind::Command, payload }]));
    }

    fn read(&mut self) {
        self.asked += 1;
        self.hear(Event::Read(vec![self.asked]));
    }

    /// Hears something from a peer, and runs on.
    fn live_with(&mut self, from: NodeId, said: Said<P>, honest: Said<P>) {
        self.hear(Event::Peer { from, message: said });
        self.armed.clone().into_iter().for_each(|timer| self.fire(timer));
        self.write();
        self.read();
        self.hear(Event::Peer { from, message: honest.clone() });
        for state in [LinkState::Down, LinkState::Up] {
            self.hear(Event::Link { peer: from, state });
        }
        self.hear(Event::Peer { from, message: honest });
        self.armed.clone().into_iter().for_each(|timer| self.fire(timer));
    }
}

/// The name of a message's kind, without its fields.
fn kind_of<M: std::fmt::Debug>(message: &ReplicaMessage<M>) -> String {
    format!("{message:?}").chars().take_while(|letter| letter.is_alphanumeric()).collect()
}

/// What was tried in one run: what ended a member, the kinds that were changed, and how many changes were told.
#[derive(Default)]
struct Tried {
    ended: BTreeSet<String>,
    kinds: BTreeMap<String, usize>,
    /// Number of entries that a member alone applied of what was forwarded to it.
    applied: u64,
}

/// Runs a cluster, and tells copies of its members what no honest member would say.
fn torment<P: Protocol>(seed: u64, tried: &mut Tried) {
    let mut dice = Dice(seed);
    let mut members: BTreeMap<u64, Member<P>> = (1..=VOTERS).map(|id| (id, Member::of(VOTERS, id))).collect();
    let alone = Member::<P>::alone();
    let mut under_way: VecDeque<(u64, u64, Said<P>)> = VecDeque::new();
    let mut cut: Option<u64> = None;
    for _ in 0..TURNS {
        let id = dice.below(VOTERS) + 1;
        let member = members.get_mut(&id).expect("every voter has a member");
        match dice.below(100) {
            0..=79 if !under_way.is_empty() => {
                let (from, to, message) = under_way.pop_front().expect("it is not empty");
                if cut.is_some_and(|alone| alone == from || alone == to) {
                    continue;
                }
                let member = members.get_mut(&to).expect("messages go to members");
                if !matches!(message, ReplicaMessage::Protocol(_)) {
                    for bytes in damaged(&message.to_bytes()).expect("messages are protobuf") {
                        let Ok(said) = Said::<P>::decode(bytes.into()) else { continue };
                        *tried.kinds.entry(kind_of(&said)).or_default() += 1;
                        let (mut copy, mut single) = (member.clone(), alone.clone());
                        let life = AssertUnwindSafe(|| {
                            copy.live_with(NodeId(from), said.clone(), message.clone());
                            // Among three nobody acknowledges what a copy appends. Alone it applies what is forwarded to it.
                            if let ReplicaMessage::Forward { .. } = said {
                                let before = single.replica.applied().index;
                                single.live_with(NodeId(2), said.clone(), message.clone());
                                single.replica.applied().index - before
                            } else {
                                0
                            }
                        });
                        match catch_unwind(life) {
                            Ok(applied) => tried.applied += applied,
                            Err(_) => {
                                let role = member.replica.role();
                                tried.ended.insert(format!("{role:?} heard {said:?} for {message:?}"));
                            }
                        }
                    }
                }
                member.hear(Event::Peer { from: NodeId(from), message });
            }
            80..=85 => {
                let armed: Vec<_> = member.armed.iter().copied().collect();
                if let Some(at) = dice.below(8).checked_rem(armed.len() as u64) {
                    member.fire(armed[usize::try_from(at).expect("few timers")]);
                }
            }
            86..=91 => member.write(),
            92..=95 => member.read(),
            97 => {
                // One member is cut off, or comes back and fetches a snapshot.
                let (alone, state) = match cut.take() {
                    Some(alone) => (alone, LinkState::Up),
                    None => (id, LinkState::Down),
                };
                cut = (state == LinkState::Down).then_some(alone);
                under_way.retain(|(from, to, _)| *from != alone && *to != alone);
                for other in (1..=VOTERS).filter(|other| *other != alone) {
                    for (at, peer) in [(alone, other), (other, alone)] {
                        let peer = NodeId(peer);
                        members.get_mut(&at).expect("a voter").hear(Event::Link { peer, state });
                    }
                }
            }
            _ => {}
        }
        for (id, member) in &mut members {
            under_way.extend(member.said.drain(..).map(|(to, message)| (*id, to.0, message)));
        }
    }
    let answered: u64 = members.values().map(|member| member.answered).sum();
    assert!(answered > 20, "{}: {answered} answers to clients are few", P::NAME);
}

fn nobody_is_ended<P: Protocol>() {
    let wanted = std::env::var("HUSTINGS_LIES").map_or(0, |text| text.parse().expect("a number of lies"));
    let mut tried = Tried::default();
    for seed in 1.. {
        if seed > 4 && tried.kinds.values().sum::<usize>() >= wanted {
            break;
        }
        torment::<P>(u64::wrapping_mul(seed, 0x9E37_79B9_7F4A_7C15), &mut tried);
    }
    println!("{}: members said what no member says: {:?}", P::NAME, tried.kinds);
    for kind in ["Forward", "AskRead", "ReadAt", "AskChunk", "Chunk"] {
        let count = tried.kinds.get(kind).copied().unwrap_or_default();
        assert!(count >= 50, "{}: {kind} was changed {count} times", P::NAME);
    }
    assert!(tried.applied > 1_000, "{}: of what was forwarded {} were applied", P::NAME, tried.applied);
    let told: Vec<&String> = tried.ended.iter().take(12).collect();
    assert!(tried.ended.is_empty(), "{}: {} things ended a member: {told:#?}", P::NAME, tried.ended.len());
}

under_each_protocol! { no_word_between_replicas_ends_a_member: nobody_is_ended; }
