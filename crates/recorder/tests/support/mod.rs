//! Three values in memory, each recorded, with a network that delays, cuts and reorders as the protocol allows, drawn from a seed;
//! members are killed and born again from what they had written.

use bytes::Bytes;
use hustings_core::protocol::{Admin, Effect, Effects, Input, LinkState, Links, Proposal, Ticket};
use hustings_core::{
    Cluster, Durable, EntryKind, Lsn, NodeId, Origin, Protocol, Role, SnapshotReference, Stamp, Transition,
};
use hustings_recorder::{Life, Recorded, RecordedOptions, Recorder, Recording, Tape};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

pub(crate) const SECRET: &[u8] = b"what a client wrote and nobody else may read";
pub(crate) const RING_BYTES: u64 = 64 << 20;

/// Numbers that look like chance, the same for the same seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// A member: its value, its disk, its recorder.
struct Member<P: Protocol> {
    value: Recorded<P>,
    durable: Durable,
    armed: BTreeSet<P::Timer>,
    applied: Lsn,
    _recorder: Recorder,
}

pub(crate) struct Town<'a, P: Protocol> {
    directory: &'a Path,
    options: P::Options,
    members: BTreeMap<NodeId, Member<P>>,
    wires: BTreeMap<(NodeId, NodeId), VecDeque<P::Message>>,
    linked: BTreeSet<(NodeId, NodeId)>,
    announced: BTreeMap<NodeId, Vec<Transition>>,
    proposed: u64,
    compactions: usize,
}

pub(crate) fn ids() -> [NodeId; 3] {
    [1, 2, 3].map(NodeId)
}

impl<'a, P: Protocol> Town<'a, P> {
    pub(crate) fn found(directory: &'a Path, options: P::Options) -> Town<'a, P> {
        let mut town = Town {
            directory,
            options,
            members: BTreeMap::new(),
            wires: BTreeMap::new(),
            linked: BTreeSet::new(),
            announced: BTreeMap::new(),
            proposed: 0,
            compactions: 0,
        };
        for id in ids() {
            town.bear(id, Durable::default());
        }
        town
    }

    fn bear(&mut self, id: NodeId, durable: Durable) {
        let life = Life { member_id: id.0, name: id.to_string(), protocol: P::NAME.into(), ..Life::default() };
        let tape = Tape::new();
        let directory = self.directory.join(id.to_string());
        let recorder = Recorder::start(tape.clone(), &directory, life, RING_BYTES).expect("it can be");
        let options = RecordedOptions { tape: Some(tape), inner: self.options.clone() };
        let mut effects = Effects::new();
        let value = Recorded::<P>::start(Cluster::of(3, id.0), options, durable.clone(), &mut effects);
        let applied = durable.snapshot.as_ref().map_or(Lsn::ZERO, |snapshot| snapshot.lsn);
        self.members.insert(id, Member { value, durable, armed: BTreeSet::new(), applied, _recorder: recorder });
        self.carry_out(id, effects);
        for peer in ids() {
            if peer != id && self.members.contains_key(&peer) {
                self.link(id, peer, LinkState::Up);
            }
        }
    }

    fn kill(&mut self, id: NodeId) -> Durable {
        for peer in ids().into_iter().filter(|peer| *peer != id) {
            self.link(id, peer, LinkState::Down);
        }
        self.members.remove(&id).expect("it lives").durable
    }

    fn link(&mut self, one: NodeId, other: NodeId, state: LinkState) {
        for (id, peer) in [(one, other), (other, one)] {
            let is_news = match state {
                LinkState::Up => self.linked.insert((id, peer)),
                LinkState::Down => self.linked.remove(&(id, peer)),
            };
            self.wires.remove(&(id, peer));
            if is_news {
                self.tell(id, Input::Link { peer, state });
            }
        }
    }

    fn tell(&mut self, id: NodeId, input: Input<Recorded<P>>) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let mut effects = Effects::new();
        member.value.step(input, &mut effects);
        self.carry_out(id, effects);
    }

    fn carry_out(&mut self, id: NodeId, effects: Effects<Recorded<P>>) {
        let mut own = VecDeque::new();
        let mut installed = None;
        for effect in effects {
            let member = self.members.get_mut(&id).expect("it speaks");
            match effect {
                Effect::Persist(record) => member.durable.absorb(record),
                Effect::Send { to, message, .. } if to == id => own.push_back(message),
                Effect::Send { to, message, .. } => {
                    if self.linked.contains(&(id, to)) {
                        self.wires.entry((id, to)).or_default().push_back(message);
                    }
                }
                Effect::SetTimer { timer, .. } => drop(member.armed.insert(timer)),
                Effect::CancelTimer(timer) => drop(member.armed.remove(&timer)),
                Effect::Announce(transition) => self.announced.entry(id).or_default().push(transition),
                Effect::Apply(entry) => member.applied = entry.lsn,
                Effect::FetchSnapshot { reference, .. } => installed = Some(reference),
                Effect::Restore(reference) => member.applied = reference.lsn,
                Effect::ReadAt { .. } | Effect::Reply { .. } | Effect::Reconfigure { .. } => {}
            }
        }
        for message in own {
            self.tell(id, Input::Message { from: id, message });
        }
        if let Some(reference) = installed {
            let lsn = reference.lsn;
            self.tell(id, Input::SnapshotReady(reference));
            self.tell(id, Input::SnapshotInstalled(lsn));
        }
    }

    /// Something happens.
    pub(crate) fn go_on(&mut self, dice: &mut Dice) {
        let id = ids()[dice.below(3)];
        match dice.below(1_000) {
            0..600 => self.deliver(dice),
            600..750 => self.fire(id, dice),
            750..900 => self.propose(id),
            900..940 => self.tell(id, Input::Read { ticket: Ticket::Read { node: id, number: self.proposed } }),
            940..950 => {
                self.tell(id, Input::Admin { ticket: Ticket::Admin(1), request: Admin::Transfer(ids()[dice.below(3)]) })
            }
            950..975 => {
                let peer = ids()[dice.below(3)];
                if peer != id && self.members.contains_key(&id) && self.members.contains_key(&peer) {
                    let is_up = self.linked.contains(&(id, peer));
                    self.link(id, peer, if is_up { LinkState::Down } else { LinkState::Up });
                }
            }
            975..985 => self.compact(id),
            _ => {
                if self.members.contains_key(&id) {
                    let durable = self.kill(id);
                    self.bear(id, durable);
                }
            }
        }
    }

    fn deliver(&mut self, dice: &mut Dice) {
        let busy: Vec<_> = self.wires.iter().filter(|(_, wire)| !wire.is_empty()).map(|(ends, _)| *ends).collect();
        if busy.is_empty() {
            return;
        }
        let (from, to) = busy[dice.below(busy.len())];
        let wire = self.wires.get_mut(&(from, to)).expect("it is busy");
        let place = if P::LINKS == Links::Any { dice.below(wire.len().min(3)) } else { 0 };
        let message = wire.remove(place).expect("it is there");
        self.tell(to, Input::Message { from, message });
    }

    fn fire(&mut self, id: NodeId, dice: &mut Dice) {
        let Some(member) = self.members.get_mut(&id).filter(|member| !member.armed.is_empty()) else { return };
        let timer = *member.armed.iter().nth(dice.below(member.armed.len())).expect("one of them");
        member.armed.remove(&timer);
        self.tell(id, Input::Timer(timer));
    }

    fn propose(&mut self, id: NodeId) {
        self.proposed += 1;
        let origin = Origin { node: id, incarnation: 1, sequence: self.proposed };
        let payload = Bytes::from_static(SECRET).slice(..self.proposed as usize % SECRET.len());
        let proposal = Proposal { origin, kind: EntryKind::Command, stamp: Stamp::NONE, payload };
        self.tell(
            id,
            Input::Propose(vec![proposal.clone(), Proposal { payload: Bytes::from_static(SECRET), ..proposal }]),
        );
    }

    /// The member's host has cut a snapshot of everything that is applied.
    fn compact(&mut self, id: NodeId) {
        let Some(member) = self.members.get(&id) else { return };
        let lsn = member.applied;
        if lsn.index > member.durable.snapshot_index() {
            let membership = member.value.status().membership;
            self.compactions += 1;
            self.tell(id, Input::Compact(SnapshotReference { lsn, membership, bytes: 100, digest: 7 }));
        }
    }
}

/// Runs, and gives back all lives that were recorded, with how many transitions were announced.
pub(crate) fn lives_of<P: Protocol>(seed: u64, steps: usize) -> (Vec<Recording>, usize) {
    lives_with::<P>(seed, steps, P::Options::default())
}

/// The same of a protocol with these options.
pub(crate) fn lives_with<P: Protocol>(seed: u64, steps: usize, options: P::Options) -> (Vec<Recording>, usize) {
    let directory = tempfile::tempdir().expect("there is room");
    let announced = recorded_in::<P>(directory.path(), seed, steps, options);
    let lives = ids().into_iter().flat_map(|id| {
        let path = directory.path().join(id.to_string());
        Recording::open(&path).expect("it was recorded")
    });
    (lives.collect(), announced)
}

/// Runs; the recordings of each member stay in a directory of its name. Returns how many transitions were announced.
fn recorded_in<P: Protocol>(directory: &Path, seed: u64, steps: usize, options: P::Options) -> usize {
    let mut dice = Dice(seed);
    let mut town = Town::<P>::found(directory, options);
    for _ in 0..steps {
        town.go_on(&mut dice);
    }
    let announced: Vec<_> = town.announced.values().flatten().cloned().collect();
    assert!(announced.iter().any(|transition| transition.to == Role::Leader), "somebody led");
    assert!(town.members.values().any(|member| member.applied > Lsn::ZERO), "something was applied");
    assert!(town.compactions > 0, "somebody has compacted");
    announced.len()
}
