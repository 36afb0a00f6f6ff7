//! A cluster of ZAB values in memory, for stories: messages on a table, alarms rung by hand, disks as records.
//!
//! A disk is instant unless a story holds it or ends it; what rests on a record then waits behind it, as at a host. Whatever
//! a story does, the annals see to it that nothing that must hold for ever is contradicted.

#![allow(dead_code, reason = "each test file uses its own part of the support")]

use bytes::Bytes;
use hustings_core::protocol::LinkState;
use hustings_core::replica::gate::{Gate, Gated};
use hustings_core::{
    Admin, Change, Cluster, Durable, Effect, Effects, Entry, EntryKind, Input, Lsn, MembershipChange, NodeId, Origin,
    Outcome, Promise, Proposal, Protocol, Record, Refusal, Role, SnapshotReference, Stamp, Term, Ticket, Transition,
    Wire,
};
use hustings_zab::{Message, Options, Timer, Zab};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What must hold over all lives of all nodes.
#[derive(Default)]
pub struct Annals {
    /// Z1: who led each term.
    pub reigns: BTreeMap<u64, BTreeSet<u64>>,
    /// One history: what was applied at each index, wherever.
    pub committed: BTreeMap<u64, Entry>,
}

/// What happens to a node whose disk takes no more records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Nothing that it would have said after the last durable record is ever said.
    AtOnce,
    /// It runs on, with a disk that never answers.
    Lingering,
}

pub struct Actor {
    pub value: Zab,
    pub durable: Durable,
    pub applied: Vec<Entry>,
    pub replies: Vec<(Ticket, Outcome)>,
    pub reads: Vec<(Ticket, u64)>,
    pub transitions: Vec<Transition>,
    pub armed: BTreeSet<Timer>,
    pub fetching: Option<SnapshotReference>,
    pub restored: Option<SnapshotReference>,
    /// Records that became durable in this life.
    pub written: usize,
    pub is_dead: bool,
    gate: Gate<Zab>,
    unsynced: VecDeque<(u64, Record)>,
    own: VecDeque<Message>,
    is_disk_held: bool,
    end: Option<(usize, End)>,
}

pub struct Theatre {
    pub actors: BTreeMap<u64, Actor>,
    /// (from, to, what), in the order in which it was said.
    pub table: VecDeque<(u64, u64, Message)>,
    /// Everything that ever reached the table.
    pub said: Vec<(u64, u64, Message)>,
    pub annals: Annals,
    cut: BTreeSet<(u64, u64)>,
    cluster: Cluster,
    options: Options,
    sequence: u64,
}

/// This many voters, n1 to nN, as they are by default.
pub fn cast(voters: u64) -> Theatre {
    Theatre::new(Cluster::of(voters, 1), Options::default())
}

impl Theatre {
    pub fn new(cluster: Cluster, options: Options) -> Theatre {
        let ids: Vec<u64> = cluster.membership.everyone().map(|id| id.0).collect();
        let mut theatre = Theatre {
            actors: BTreeMap::new(),
            table: VecDeque::new(),
            said: Vec::new(),
            annals: Annals::default(),
            cut: BTreeSet::new(),
            cluster,
            options,
            sequence: 0,
        };
        for id in ids {
            theatre.enter(id, Durable::default());
        }
        theatre
    }

    /// A node is born, or reborn, with what its disk holds.
    pub fn enter(&mut self, id: u64, durable: Durable) {
        let cluster = Cluster { me: NodeId(id), ..self.cluster.clone() };
        self.enter_as(cluster, durable);
    }

    pub fn enter_as(&mut self, cluster: Cluster, durable: Durable) {
        let id = cluster.me.0;
        let mut out = Effects::new();
        let value = Zab::start(cluster, self.options.clone(), durable.clone(), &mut out);
        let actor = Actor {
            value,
            durable,
            applied: Vec::new(),
            replies: Vec::new(),
            reads: Vec::new(),
            transitions: Vec::new(),
            armed: BTreeSet::new(),
            fetching: None,
            restored: None,
            written: 0,
            is_dead: false,
            gate: Gate::new(),
            unsynced: VecDeque::new(),
            own: VecDeque::new(),
            is_disk_held: false,
            end: None,
        };
        self.actors.insert(id, actor);
        self.carry_out(id, out);
        self.hear_own(id);
    }

    /// A node dies at once and is reborn from its disk; what was on its way to it is lost.
    pub fn restart(&mut self, id: u64) {
        let durable = self.actors[&id].durable.clone();
        self.table.retain(|(_, to, _)| *to != id);
        self.enter(id, durable);
    }

    /// A process dies and everybody hears of it, as the kernel tells them.
    pub fn kill(&mut self, id: u64) {
        self.actors.remove(&id);
        self.table.retain(|(from, to, _)| *from != id && *to != id);
        for other in self.ids() {
            self.link_down(other, id);
        }
    }

    // --- Questions. ----------------------------------------------------------------------------------------------

    pub fn ids(&self) -> Vec<u64> {
        self.actors.keys().copied().collect()
    }

    pub fn actor(&self, id: u64) -> &Actor {
        &self.actors[&id]
    }

    fn actor_mut(&mut self, id: u64) -> &mut Actor {
        self.actors.get_mut(&id).expect("an actor of this theatre")
    }

    pub fn value(&self, id: u64) -> &Zab {
        &self.actors[&id].value
    }

    pub fn role(&self, id: u64) -> Role {
        self.value(id).status().role
    }

    pub fn term(&self, id: u64) -> u64 {
        self.value(id).status().term.0
    }

    pub fn commit(&self, id: u64) -> u64 {
        self.value(id).status().commit
    }

    pub fn last(&self, id: u64) -> Lsn {
        self.value(id).log().last()
    }

    pub fn leader_of(&self, id: u64) -> Option<u64> {
        self.value(id).status().leader.map(|id| id.0)
    }

    pub fn leaders(&self) -> Vec<u64> {
        self.ids().into_iter().filter(|id| self.role(*id) == Role::Leader).collect()
    }

    pub fn is_armed(&self, id: u64, timer: Timer) -> bool {
        self.actor(id).armed.contains(&timer)
    }

    /// How many messages of this kind a node said.
    pub fn count(&self, from: u64, is_it: impl Fn(&Message) -> bool) -> usize {
        self.said.iter().filter(|(who, _, what)| *who == from && is_it(what)).count()
    }

    pub fn outcome(&self, id: u64, ticket: Ticket) -> Option<&Outcome> {
        self.actor(id).replies.iter().rev().find(|(answered, _)| *answered == ticket).map(|(_, outcome)| outcome)
    }

    pub fn refusal(&self, id: u64, origin: Origin) -> Option<Refusal> {
        match self.outcome(id, Ticket::Proposal(origin)) {
            Some(Outcome::Refused(refusal)) => Some(refusal.clone()),
            _ => None,
        }
    }

    pub fn read_index(&self, id: u64, ticket: Ticket) -> Option<u64> {
        self.actor(id).reads.iter().find(|(answered, _)| *answered == ticket).map(|(_, index)| *index)
    }

    /// Commands that a node applied, as text.
    pub fn lines(&self, id: u64) -> Vec<String> {
        let commands = self.actor(id).applied.iter().filter(|entry| entry.kind == EntryKind::Command);
        commands.map(|entry| String::from_utf8_lossy(&entry.payload).into_owned()).collect()
    }

    // --- Verbs. --------------------------------------------------------------------------------------------------

    pub fn input(&mut self, id: u64, input: Input<Zab>) {
        self.step(id, input);
        self.hear_own(id);
    }

    fn step(&mut self, id: u64, input: Input<Zab>) {
        let actor = self.actor_mut(id);
        if actor.is_dead {
            return;
        }
        let mut out = Effects::new();
        actor.value.step(input, &mut out);
        actor.value.assert_invariants();
        self.carry_out(id, out);
    }

    /// What a node says to itself is heard last in a step.
    fn hear_own(&mut self, id: u64) {
        while let Some(message) = self.actors.get_mut(&id).and_then(|actor| actor.own.pop_front()) {
            self.step(id, Input::Message { from: NodeId(id), message });
        }
    }

    pub fn ring(&mut self, id: u64, timer: Timer) {
        assert!(self.actor_mut(id).armed.remove(&timer), "{timer:?} is not armed at n{id}");
        self.input(id, Input::Alarm(timer));
    }

    pub fn ring_if_armed(&mut self, id: u64, timer: Timer) {
        if self.is_armed(id, timer) {
            self.ring(id, timer);
        }
    }

    pub fn heartbeat(&mut self, id: u64) {
        self.ring(id, Timer::Ping);
        self.settle();
    }

    fn put(&mut self, id: u64, kind: EntryKind, payload: Bytes) -> Origin {
        self.sequence += 1;
        let origin = Origin { node: NodeId(id), incarnation: 1, sequence: self.sequence };
        self.input(id, Input::Propose(vec![Proposal { origin, kind, stamp: Stamp::NONE, payload }]));
        origin
    }

    pub fn propose_quietly(&mut self, id: u64, text: &str) -> Origin {
        self.put(id, EntryKind::Command, Bytes::copy_from_slice(text.as_bytes()))
    }

    pub fn propose(&mut self, id: u64, text: &str) -> Origin {
        let origin = self.propose_quietly(id, text);
        self.settle();
        origin
    }

    pub fn change_quietly(&mut self, id: u64, change: &MembershipChange) -> Origin {
        self.put(id, EntryKind::Membership, change.to_bytes())
    }

    pub fn change(&mut self, id: u64, change: &MembershipChange) -> Origin {
        let origin = self.change_quietly(id, change);
        self.settle();
        origin
    }

    pub fn read(&mut self, id: u64, number: u64) -> Ticket {
        let ticket = Ticket::Read { node: NodeId(id), number };
        self.input(id, Input::Read { ticket });
        ticket
    }

    pub fn admin(&mut self, id: u64, request: Admin) -> Ticket {
        self.sequence += 1;
        let ticket = Ticket::Admin(self.sequence);
        self.input(id, Input::Admin { ticket, request });
        ticket
    }

    pub fn cut_one_way(&mut self, from: u64, to: u64) {
        self.cut.insert((from, to));
    }

    pub fn cut(&mut self, a: u64, b: u64) {
        self.cut_one_way(a, b);
        self.cut_one_way(b, a);
    }

    pub fn isolate(&mut self, id: u64) {
        for other in self.ids().into_iter().filter(|other| *other != id) {
            self.cut(id, other);
        }
    }

    pub fn heal(&mut self) {
        self.cut.clear();
    }

    pub fn link_down(&mut self, at: u64, peer: u64) {
        self.input(at, Input::Link { peer: NodeId(peer), state: LinkState::Down });
    }

    pub fn link_up(&mut self, at: u64, peer: u64) {
        self.input(at, Input::Link { peer: NodeId(peer), state: LinkState::Up });
    }

    pub fn hold_disk(&mut self, id: u64) {
        self.actor_mut(id).is_disk_held = true;
    }

    pub fn release_disk(&mut self, id: u64) {
        self.actor_mut(id).is_disk_held = false;
        self.sync(id);
    }

    /// The disk takes this many more records, and no more.
    pub fn end_disk_after(&mut self, id: u64, records: usize, end: End) {
        let actor = self.actor_mut(id);
        actor.end = Some((actor.written + records, end));
    }

    pub fn deliver(&mut self, from: u64, to: u64, message: Message) {
        if self.actors.contains_key(&to) {
            // As on the wire: what cannot be decoded never arrives.
            let message = Message::decode(message.to_bytes()).expect("what was said can be read");
            self.input(to, Input::Message { from: NodeId(from), message });
        }
    }

    /// Delivers what is on the table, and what that leads to, until nothing moves.
    pub fn settle(&mut self) {
        let mut steps = 0;
        while let Some((from, to, message)) = self.table.pop_front() {
            steps += 1;
            assert!(steps < 100_000, "messages never stop");
            if !self.cut.contains(&(from, to)) {
                self.deliver(from, to, message);
            }
        }
    }

    /// Delivers the first message on the table from one to the other that this is true of.
    pub fn pick(&mut self, from: u64, to: u64, is_it: impl Fn(&Message) -> bool) {
        let at = self.table.iter().position(|(a, b, message)| (*a, *b) == (from, to) && is_it(message));
        let at = at.unwrap_or_else(|| panic!("nothing like it from n{from} to n{to}: {:#?}", self.table));
        let (from, to, message) = self.table.remove(at).expect("it was found there");
        self.deliver(from, to, message);
    }

    /// The snapshot that this node fetches arrives whole, and is installed.
    pub fn finish_fetch(&mut self, id: u64) {
        let reference = self.actor_mut(id).fetching.take().expect("a fetch is under way");
        let lsn = reference.lsn;
        self.input(id, Input::SnapshotReady(reference));
        self.input(id, Input::SnapshotInstalled(lsn));
        self.settle();
    }

    /// The node cuts a snapshot of what it has applied.
    pub fn compact(&mut self, id: u64) {
        let status = self.value(id).status();
        let term = self.value(id).log().term_at(status.commit).expect("the commit is in the log");
        let lsn = Lsn { term, index: status.commit };
        let reference = SnapshotReference { lsn, membership: status.membership, bytes: 1, digest: 1 };
        self.input(id, Input::Compact(reference));
    }

    // --- What a host does. ---------------------------------------------------------------------------------------

    fn carry_out(&mut self, id: u64, effects: Effects<Zab>) {
        for effect in effects {
            let actor = self.actors.get_mut(&id).expect("an actor");
            let free = match effect {
                Effect::Persist(record) => {
                    let number = actor.gate.number(&record);
                    match actor.end {
                        Some((after, End::AtOnce)) if actor.written == after => {
                            actor.is_dead = true;
                            return;
                        }
                        Some((after, End::Lingering)) if actor.written == after => actor.is_disk_held = true,
                        _ => {}
                    }
                    actor.unsynced.push_back((number, record));
                    if !actor.is_disk_held {
                        self.sync(id);
                    }
                    continue;
                }
                Effect::Send { to, message, rests_on } => actor.gate.send(to, message, rests_on),
                Effect::Apply(entry) => actor.gate.apply(entry),
                Effect::Reconfigure { membership, index } => actor.gate.reconfigure(membership, index),
                Effect::Restore(reference) => actor.gate.restore(reference),
                Effect::FetchSnapshot { reference, .. } => {
                    actor.fetching = Some(reference);
                    None
                }
                Effect::ReadAt { ticket, index } => {
                    actor.reads.push((ticket, index));
                    None
                }
                Effect::Reply { ticket, outcome } => {
                    actor.replies.push((ticket, outcome));
                    None
                }
                Effect::SetTimer { timer, .. } => {
                    actor.armed.insert(timer);
                    None
                }
                Effect::CancelTimer(timer) => {
                    actor.armed.remove(&timer);
                    None
                }
                Effect::Announce(transition) => {
                    if transition.to == Role::Leader {
                        let reign = self.annals.reigns.entry(transition.term.0).or_default();
                        reign.insert(id);
                        assert!(self.options.as_published || reign.len() == 1, "Z1: two leaders: {reign:?}");
                    }
                    actor.transitions.push(transition);
                    None
                }
            };
            if let Some(gated) = free {
                self.release(id, gated);
            }
        }
    }

    fn sync(&mut self, id: u64) {
        let actor = self.actors.get_mut(&id).expect("an actor");
        let mut last = 0;
        for (number, record) in actor.unsynced.drain(..) {
            actor.durable.absorb(record);
            actor.written += 1;
            last = number;
        }
        for gated in actor.gate.on_durable(last) {
            self.release(id, gated);
        }
    }

    /// Says so when the disk was held.
    pub fn sync_now(&mut self, id: u64) {
        self.release_disk(id);
        self.hear_own(id);
        self.settle();
    }

    fn release(&mut self, id: u64, gated: Gated<Zab>) {
        match gated {
            Gated::Send(to, message) => {
                if to.0 == id {
                    return self.actor_mut(id).own.push_back(message);
                }
                self.said.push((id, to.0, message.clone()));
                self.table.push_back((id, to.0, message));
            }
            Gated::Apply(entry) => {
                let known = self.annals.committed.entry(entry.lsn.index).or_insert_with(|| entry.clone());
                assert!(
                    self.options.as_published || *known == entry,
                    "n{id} applies {entry:?} where {known:?} was applied before"
                );
                self.actor_mut(id).applied.push(entry);
            }
            Gated::Reconfigure(_) => {}
            Gated::Restore(reference) => self.actor_mut(id).restored = Some(reference),
        }
    }
}

/// What a node wrote before the story begins: acceptedEpoch, currentEpoch, and entries of these epochs.
pub fn history(accepted: u64, current: u64, epochs: &[u64]) -> Durable {
    let promise = Record::Promise(Promise::without_vote(Term(accepted)));
    let puts = (1..).zip(epochs).map(|(index, term)| Record::Put(Entry::blank(Lsn::new(*term, index))));
    [promise].into_iter().chain(puts).chain([Record::Established(Term(current))]).collect()
}

pub fn one(step: Change) -> MembershipChange {
    MembershipChange::of([step])
}
