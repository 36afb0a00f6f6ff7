//! Nothing that a peer says ends anybody. Goal: an impossible state of one's own is a crash, bad input from a peer never is (style 15), in
//! all five protocols. Method: a small cluster runs; of every message that arrives, each number is replaced by extreme ones, and what can
//! be decoded is told to a copy of the receiver, which then runs on for a while: its timers fire, it is asked to write and to read, and the
//! honest message comes after all. `HUSTINGS_LIES` makes it longer.

use hustings_core::protocol::LinkState;
use hustings_core::{
    Cluster, Durable, Effect, Effects, EntryKind, Input, Limits, Lsn, NodeId, Origin, Proposal, Protocol, Role,
    SnapshotReference, Stamp, Ticket, Wire,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) const VOTERS: u64 = 3;
const TURNS: u64 = 2_000;

/// Numbers that overflow, that lie far beyond anything, and that are just out of place.
fn extremes(number: u64) -> Vec<u64> {
    let near = [number.wrapping_add(1), number.wrapping_sub(1), number.wrapping_add(1_000)];
    let far = [0, 1, 1 << 20, 1 << 40, (1 << 40) ^ number, (1 << 62) - 1, 1 << 62, 1 << 63, u64::MAX - 1, u64::MAX];
    near.into_iter().chain(far).filter(|other| *other != number).collect()
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let (mut number, mut shift) = (0u64, 0);
    loop {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= u64::from(byte & 0x7F).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}

fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number & 0x7F) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The same protobuf message with one number changed, or one field left out, in every possible way.
pub(crate) fn damaged(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut at, mut all) = (0, Vec::new());
    while at < bytes.len() {
        let start = at;
        let key = varint(bytes, &mut at)?;
        let (before, value) = (&bytes[..at], at);
        let mut splice = |middle: &[u8], end: usize| all.push([before, middle, &bytes[end..]].concat());
        match key & 7 {
            0 => {
                let number = varint(bytes, &mut at)?;
                for other in extremes(number) {
                    let mut changed = Vec::new();
                    put_varint(other, &mut changed);
                    splice(&changed, at);
                }
            }
            2 => {
                let length = usize::try_from(varint(bytes, &mut at)?).ok()?;
                let end = at.checked_add(length).filter(|end| *end <= bytes.len())?;
                for inner in damaged(&bytes[at..end]).unwrap_or_default() {
                    let mut changed = Vec::new();
                    put_varint(inner.len() as u64, &mut changed);
                    changed.extend(inner);
                    splice(&changed, end);
                }
                at = end;
            }
            5 => at = at.checked_add(4).filter(|end| *end <= bytes.len())?,
            1 => {
                at = at.checked_add(8).filter(|end| *end <= bytes.len())?;
                let number = u64::from_le_bytes(bytes[value..at].try_into().expect("eight bytes"));
                extremes(number).iter().for_each(|other| splice(&other.to_le_bytes(), at));
            }
            _ => return None,
        }
        assert!(value <= at, "fields have an end");
        all.push([&bytes[..start], &bytes[at..]].concat());
    }
    Some(all)
}

/// A node with what a host keeps for it. The disk is instant.
#[derive(Clone)]
struct Node<P: Protocol> {
    me: NodeId,
    value: P,
    armed: BTreeSet<P::Timer>,
    own: VecDeque<Input<P>>,
    said: Vec<(NodeId, P::Message)>,
}

impl<P: Protocol> Node<P> {
    fn new(me: u64) -> Node<P> {
        let limits = Limits { trailing_entries: 1, message_bytes_max: 400, ..Limits::default() };
        let cluster = Cluster { limits, ..Cluster::of(VOTERS, me) };
        let mut out = Effects::new();
        let value = P::start(cluster, P::Options::default(), Durable::default(), &mut out);
        let mut node = Node { me: NodeId(me), value, armed: BTreeSet::new(), own: VecDeque::new(), said: Vec::new() };
        node.carry_out(out);
        node
    }

    fn input(&mut self, input: Input<P>) {
        self.own.push_back(input);
        while let Some(input) = self.own.pop_front() {
            let mut out = Effects::new();
            self.value.step(input, &mut out);
            self.value.assert_invariants();
            self.carry_out(out);
        }
    }

    fn carry_out(&mut self, out: Effects<P>) {
        for effect in out {
            match effect {
                Effect::Send { to, message, .. } if to == self.me => {
                    self.own.push_back(Input::Message { from: to, message })
                }
                Effect::Send { to, message, .. } => self.said.push((to, message)),
                Effect::SetTimer { timer, .. } => drop(self.armed.insert(timer)),
                Effect::CancelTimer(timer) => drop(self.armed.remove(&timer)),
                Effect::FetchSnapshot { reference, .. } => self.own.push_back(Input::SnapshotReady(reference)),
                Effect::Restore(reference) => self.own.push_back(Input::SnapshotInstalled(reference.lsn)),
                _ => {}
            }
        }
    }

    fn fire(&mut self, timer: P::Timer) {
        if self.armed.remove(&timer) {
            self.input(Input::Timer(timer));
        }
    }

    fn propose(&mut self, sequence: u64) {
        let origin = Origin { node: self.me, incarnation: 1, sequence };
        let payload = bytes::Bytes::from_static(b"x");
        self.input(Input::Propose(vec![Proposal { origin, kind: EntryKind::Command, stamp: Stamp::NONE, payload }]));
    }

    fn compact(&mut self) {
        let status = self.value.status();
        // The last entry is committed in the leader's own term; the term of an older entry only the protocol knows.
        if status.commit > 0 && status.commit == status.last.index {
            let reference = SnapshotReference { lsn: status.last, membership: status.membership, bytes: 1, digest: 1 };
            self.input(Input::Compact(reference));
        }
    }

    /// Hears something from a peer, and runs on.
    fn live_with(&mut self, from: NodeId, said: P::Message, honest: P::Message) {
        self.input(Input::Message { from, message: said });
        for timer in self.armed.clone() {
            self.fire(timer);
        }
        self.propose(9_999);
        self.input(Input::Read { ticket: Ticket::Read { node: self.me, number: 9_999 } });
        self.input(Input::Message { from, message: honest.clone() });
        self.input(Input::Link { peer: from, state: LinkState::Down });
        self.input(Input::Link { peer: from, state: LinkState::Up });
        self.input(Input::Message { from, message: honest });
        for timer in self.armed.clone() {
            self.fire(timer);
        }
    }
}

pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Runs a cluster, and tells copies of its nodes what no honest peer would say. Gives back what ended one, and how much
/// was tried.
fn torment<P: Protocol>(seed: u64) -> (BTreeSet<String>, usize) {
    let mut dice = Dice(seed);
    let mut nodes: BTreeMap<u64, Node<P>> = (1..=VOTERS).map(|id| (id, Node::new(id))).collect();
    let mut table: VecDeque<(u64, u64, P::Message)> = VecDeque::new();
    let (mut ended, mut tried, mut sequence) = (BTreeSet::new(), 0, 0);
    let mut cut: Option<u64> = None;
    let mut has_led = false;
    for _ in 0..TURNS {
        let id = dice.below(VOTERS) + 1;
        let node = nodes.get_mut(&id).expect("every voter has a node");
        match dice.below(100) {
            0..=79 if !table.is_empty() => {
                let (from, to, message) = table.pop_front().expect("the table is not empty");
                if cut.is_some_and(|alone| alone == from || alone == to) {
                    continue;
                }
                let node = nodes.get_mut(&to).expect("messages go to members");
                for bytes in damaged(&message.to_bytes()).expect("messages are protobuf") {
                    let Ok(said) = P::Message::decode(bytes.into()) else { continue };
                    tried += 1;
                    let mut copy = node.clone();
                    let life = AssertUnwindSafe(|| copy.live_with(NodeId(from), said.clone(), message.clone()));
                    if catch_unwind(life).is_err() {
                        ended.insert(format!("{:?} heard {said:?} for {message:?}", node.value.status().role));
                    }
                }
                node.input(Input::Message { from: NodeId(from), message });
            }
            80..=85 => {
                let armed: Vec<P::Timer> = node.armed.iter().copied().collect();
                if let Some(at) = dice.below(8).checked_rem(armed.len() as u64) {
                    node.fire(armed[usize::try_from(at).expect("few timers")]);
                }
            }
            86..=95 => {
                sequence += 1;
                node.propose(sequence);
            }
            96 => node.compact(),
            97 => {
                // One node is cut off, or comes back.
                let (alone, state) = match cut.take() {
                    Some(alone) => (alone, LinkState::Up),
                    None => (id, LinkState::Down),
                };
                cut = (state == LinkState::Down).then_some(alone);
                table.retain(|(from, to, _)| *from != alone && *to != alone);
                for other in (1..=VOTERS).filter(|other| *other != alone) {
                    for (at, peer) in [(alone, other), (other, alone)] {
                        let peer = NodeId(peer);
                        nodes.get_mut(&at).expect("a voter").input(Input::Link { peer, state });
                    }
                }
            }
            _ => {}
        }
        for (id, node) in &mut nodes {
            table.extend(node.said.drain(..).map(|(to, message)| (*id, to.0, message)));
        }
        table.retain(|(_, to, _)| *to <= VOTERS);
        has_led |= nodes.values().any(|node| node.value.status().role == Role::Leader);
    }
    let last: Lsn = nodes.values().map(|node| node.value.status().last).max().expect("there are nodes");
    assert!(last.index > 5, "{}: the cluster came to {last} and no further", P::NAME);
    assert!(has_led, "{}: nobody ever led", P::NAME);
    (ended, tried)
}

fn nobody_is_ended<P: Protocol>() {
    let wanted = std::env::var("HUSTINGS_LIES").map_or(0, |text| text.parse().expect("a number of lies"));
    let (mut ended, mut tried) = (BTreeSet::new(), 0);
    for seed in 1.. {
        if seed > 4 && tried >= wanted {
            break;
        }
        let (some, count) = torment::<P>(u64::wrapping_mul(seed, 0x9E37_79B9_7F4A_7C15));
        ended.extend(some);
        tried += count;
    }
    println!("{}: {tried} things were said that nobody says", P::NAME);
    assert!(tried > 10_000, "{}: only {tried} things were tried", P::NAME);
    let told: Vec<&String> = ended.iter().take(12).collect();
    assert!(ended.is_empty(), "{}: {} of {tried} ended a node: {told:#?}", P::NAME, ended.len());
}

under_each_protocol! { no_number_of_a_peer_ends_a_node: nobody_is_ended; }
