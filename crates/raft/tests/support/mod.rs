//! A cluster of Raft values in memory, for stories: messages in a bag, timers fired by hand, disks folded.
//!
//! Disks are instant unless a story holds one; then effects wait behind their records as a host makes them wait.

#![allow(dead_code, reason = "each test file uses its own part of the support")]

use bytes::Bytes;
use hustings_core::protocol::LinkState;
use hustings_core::replica::gate::{Gate, Gated};
use hustings_core::{
    Admin, Change, Cluster, Durable, Effect, Effects, Entry, EntryKind, Input, Lsn, Membership, MembershipChange,
    NodeId, Origin, Outcome, Passage, Proposal, Protocol, Record, Refusal, Role, SnapshotReference, Stamp, Term,
    Ticket, Transition, Wire,
};
use hustings_raft::{Message, Options, Raft, Timer};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

pub struct Member {
    pub raft: Raft,
    pub durable: Durable,
    pub applied: Vec<Entry>,
    pub replies: Vec<(Ticket, Outcome)>,
    pub reads: Vec<(Ticket, u64)>,
    pub transitions: Vec<Transition>,
    pub armed: BTreeSet<Timer>,
    pub fetching: Option<(NodeId, SnapshotReference)>,
    pub restored: Option<SnapshotReference>,
    /// Records that became durable in this life.
    pub written: usize,
    pub is_dead: bool,
    records: Vec<Record>,
    gate: Gate<Raft>,
    unsynced: VecDeque<(u64, Record)>,
    is_disk_held: bool,
    end: Option<(usize, End)>,
}

/// The end of a node whose disk takes no more records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It dies at once: nothing is sent that it would have said after the last durable record.
    AtOnce,
    /// It runs on with a disk that never answers: what rests on nothing is still said.
    Lingering,
}

/// Facts that may never be contradicted, over all lives of all nodes; every step of every story is checked against them.
#[derive(Default)]
pub struct Chronicle {
    /// RI-1: the leader of each term.
    pub reigns: BTreeMap<u64, u64>,
    /// RI-5: the entry that was committed at each index, at whichever node.
    pub committed: BTreeMap<u64, Entry>,
    /// RI-8: the vote of each (node, term).
    pub votes: BTreeMap<(u64, u64), u64>,
}

impl Chronicle {
    fn on_leader(&mut self, term: u64, id: u64) {
        let leader = *self.reigns.entry(term).or_insert(id);
        assert_eq!(leader, id, "two leaders in term {term} (RI-1)");
    }

    fn on_committed(&mut self, id: u64, entry: &Entry) {
        let known = self.committed.entry(entry.lsn.index).or_insert_with(|| entry.clone());
        assert_eq!(known, entry, "n{id} applies something else at {} (RI-5)", entry.lsn.index);
    }

    fn on_vote(&mut self, id: u64, term: u64, candidate: u64) {
        let voted = *self.votes.entry((id, term)).or_insert(candidate);
        assert_eq!(voted, candidate, "n{id} voted twice in term {term} (RI-8)");
    }
}

pub struct Stage {
    pub members: BTreeMap<u64, Member>,
    pub bag: VecDeque<(u64, u64, Message)>,
    pub dropped: Vec<(u64, u64, Message)>,
    cut: BTreeSet<(u64, u64)>,
    cluster: Cluster,
    options: Options,
    sequence: u64,
    filter: Option<fn(u64, u64, &Message) -> bool>,
    pub chronicle: Chronicle,
}

pub fn stage(voters: u64) -> Stage {
    Stage::new(Cluster::of(voters, 1), Options::default())
}

impl Stage {
    pub fn new(cluster: Cluster, options: Options) -> Stage {
        let ids: Vec<u64> = cluster.membership.everyone().map(|id| id.0).collect();
        let mut stage = Stage {
            members: BTreeMap::new(),
            bag: VecDeque::new(),
            dropped: Vec::new(),
            cut: BTreeSet::new(),
            cluster,
            options,
            sequence: 0,
            filter: None,
            chronicle: Chronicle::default(),
        };
        for id in ids {
            stage.start(id, Durable::default());
        }
        stage
    }

    /// Starts (or restarts) a node from what is durable.
    pub fn start(&mut self, id: u64, durable: Durable) {
        let cluster = Cluster { me: NodeId(id), ..self.cluster.clone() };
        self.start_as(id, cluster, durable);
    }

    pub fn start_as(&mut self, id: u64, cluster: Cluster, durable: Durable) {
        let mut out = Effects::new();
        let raft = Raft::start(cluster, self.options.clone(), durable.clone(), &mut out);
        let member = Member {
            raft,
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
            records: Vec::new(),
            gate: Gate::new(),
            unsynced: VecDeque::new(),
            is_disk_held: false,
            end: None,
        };
        self.members.insert(id, member);
        self.carry_out(id, out);
    }

    /// Kills a node at once and starts it again from its disk; what was not synced is lost, messages to it too.
    pub fn restart(&mut self, id: u64) {
        let durable = self.members[&id].durable.clone();
        self.bag.retain(|(_, to, _)| *to != id);
        self.start(id, durable);
    }

    /// Every record that this life of a node emitted.
    pub fn records(&self, id: u64) -> &[Record] {
        &self.members[&id].records
    }

    pub fn raft(&self, id: u64) -> &Raft {
        &self.members[&id].raft
    }

    pub fn member(&self, id: u64) -> &Member {
        &self.members[&id]
    }

    pub fn role(&self, id: u64) -> Role {
        self.raft(id).status().role
    }

    pub fn term(&self, id: u64) -> u64 {
        self.raft(id).status().term.0
    }

    pub fn commit(&self, id: u64) -> u64 {
        self.raft(id).status().commit
    }

    pub fn last(&self, id: u64) -> Lsn {
        self.raft(id).log().last()
    }

    pub fn leader_of(&self, id: u64) -> Option<u64> {
        self.raft(id).status().leader.map(|id| id.0)
    }

    pub fn terms(&self, id: u64) -> Vec<u64> {
        self.raft(id).log().iter().map(|entry| entry.lsn.term.0).collect()
    }

    pub fn leaders(&self) -> Vec<u64> {
        self.members.keys().copied().filter(|id| self.role(*id) == Role::Leader).collect()
    }

    pub fn leader(&self) -> u64 {
        let leaders = self.leaders();
        assert_eq!(leaders.len(), 1, "exactly one leader, not {leaders:?}");
        leaders[0]
    }

    // --- Verbs. --------------------------------------------------------------------------------------------------

    pub fn input(&mut self, id: u64, input: Input<Raft>) {
        let mut out = Effects::new();
        let member = self.members.get_mut(&id).expect("a member of the stage");
        if member.is_dead {
            return;
        }
        member.raft.step(input, &mut out);
        member.raft.assert_invariants();
        self.carry_out(id, out);
    }

    pub fn fire(&mut self, id: u64, timer: Timer) {
        assert!(self.members[&id].armed.contains(&timer), "{timer:?} is not armed at n{id}");
        self.members.get_mut(&id).expect("a member").armed.remove(&timer);
        self.input(id, Input::Timer(timer));
    }

    /// The shortest election timeout passes at this node without a word from the leader.
    pub fn forget_freshness(&mut self, id: u64) {
        if self.members[&id].armed.contains(&Timer::Stickiness) {
            self.fire(id, Timer::Stickiness);
        }
    }

    /// Every node's stickiness ends, this one campaigns, and all is delivered.
    pub fn elect(&mut self, id: u64) {
        for other in self.members.keys().copied().collect::<Vec<_>>() {
            self.forget_freshness(other);
        }
        self.fire(id, Timer::Election);
        self.settle();
        assert_eq!(self.role(id), Role::Leader, "n{id} was to lead: {:?}", self.members[&id].transitions.last());
    }

    pub fn heartbeat(&mut self, id: u64) {
        self.fire(id, Timer::Heartbeat);
        self.settle();
    }

    pub fn propose_quietly(&mut self, id: u64, text: &str) -> Origin {
        self.sequence += 1;
        let origin = Origin { node: NodeId(id), incarnation: 1, sequence: self.sequence };
        let payload = Bytes::copy_from_slice(text.as_bytes());
        self.input(
            id,
            Input::Propose(vec![Proposal { origin, kind: EntryKind::Command, stamp: Stamp::NONE, payload }]),
        );
        origin
    }

    pub fn propose(&mut self, id: u64, text: &str) -> Origin {
        let origin = self.propose_quietly(id, text);
        self.settle();
        origin
    }

    pub fn change_quietly(&mut self, id: u64, change: MembershipChange) -> Origin {
        self.sequence += 1;
        let origin = Origin { node: NodeId(id), incarnation: 1, sequence: self.sequence };
        let (kind, payload) = (EntryKind::Membership, change.to_bytes());
        self.input(id, Input::Propose(vec![Proposal { origin, kind, stamp: Stamp::NONE, payload }]));
        origin
    }

    pub fn change(&mut self, id: u64, change: MembershipChange) -> Origin {
        let origin = self.change_quietly(id, change);
        self.settle();
        origin
    }

    pub fn read(&mut self, id: u64, number: u64) -> Ticket {
        let ticket = Ticket::Read { node: NodeId(id), number };
        self.input(id, Input::Read { ticket });
        ticket
    }

    pub fn admin(&mut self, id: u64, number: u64, request: Admin) -> Ticket {
        let ticket = Ticket::Admin(number);
        self.input(id, Input::Admin { ticket, request });
        ticket
    }

    pub fn transfer(&mut self, from: u64, to: u64) -> Ticket {
        self.admin(from, 1, Admin::Transfer(NodeId(to)))
    }

    pub fn outcome(&self, id: u64, ticket: Ticket) -> Option<&Outcome> {
        self.members[&id].replies.iter().rev().find(|(answered, _)| *answered == ticket).map(|(_, outcome)| outcome)
    }

    pub fn refusal(&self, id: u64, origin: Origin) -> Option<Refusal> {
        match self.outcome(id, Ticket::Proposal(origin)) {
            Some(Outcome::Refused(refusal)) => Some(refusal.clone()),
            _ => None,
        }
    }

    pub fn read_index(&self, id: u64, ticket: Ticket) -> Option<u64> {
        self.members[&id].reads.iter().find(|(answered, _)| *answered == ticket).map(|(_, index)| *index)
    }

    pub fn cut_one_way(&mut self, from: u64, to: u64) {
        self.cut.insert((from, to));
    }

    pub fn cut(&mut self, a: u64, b: u64) {
        self.cut_one_way(a, b);
        self.cut_one_way(b, a);
    }

    pub fn isolate(&mut self, id: u64) {
        for other in self.members.keys().copied().collect::<Vec<_>>() {
            if other != id {
                self.cut(id, other);
            }
        }
    }

    pub fn heal(&mut self) {
        self.cut.clear();
    }

    /// Messages for which this says true are lost.
    pub fn lose(&mut self, filter: fn(u64, u64, &Message) -> bool) {
        self.filter = Some(filter);
    }

    pub fn lose_nothing(&mut self) {
        self.filter = None;
    }

    pub fn link_down(&mut self, at: u64, peer: u64) {
        self.input(at, Input::Link { peer: NodeId(peer), state: LinkState::Down });
    }

    /// A process dies: everybody hears of it, as the kernel tells them.
    pub fn kill(&mut self, id: u64) {
        self.members.remove(&id);
        self.bag.retain(|(from, to, _)| *from != id && *to != id);
        for other in self.members.keys().copied().collect::<Vec<_>>() {
            self.link_down(other, id);
        }
    }

    pub fn hold_disk(&mut self, id: u64) {
        self.members.get_mut(&id).expect("a member").is_disk_held = true;
    }

    pub fn release_disk(&mut self, id: u64) {
        self.members.get_mut(&id).expect("a member").is_disk_held = false;
        self.sync(id);
    }

    /// The disk takes this many more records, and no more.
    pub fn end_disk_after(&mut self, id: u64, records: usize, end: End) {
        let member = self.members.get_mut(&id).expect("a member");
        member.end = Some((member.written + records, end));
    }

    /// The oldest record of a held disk becomes durable, alone.
    pub fn sync_one(&mut self, id: u64) {
        self.sync_up_to(id, 1);
    }

    pub fn unsynced(&self, id: u64) -> usize {
        self.members[&id].unsynced.len()
    }

    pub fn is_armed(&self, id: u64, timer: Timer) -> bool {
        self.members[&id].armed.contains(&timer)
    }

    pub fn deliver(&mut self, from: u64, to: u64, message: Message) {
        if self.members.contains_key(&to) {
            self.input(to, Input::Message { from: NodeId(from), message });
        }
    }

    /// Delivers what is in the bag, and what that leads to, until nothing moves.
    pub fn settle(&mut self) {
        let mut steps = 0;
        while let Some((from, to, message)) = self.bag.pop_front() {
            steps += 1;
            assert!(steps < 100_000, "messages never stop");
            if self.cut.contains(&(from, to)) || self.filter.is_some_and(|filter| filter(from, to, &message)) {
                self.dropped.push((from, to, message));
                continue;
            }
            self.deliver(from, to, message);
        }
    }

    /// Takes all messages out of the bag, to be delivered by hand.
    pub fn take_messages(&mut self) -> Vec<(u64, u64, Message)> {
        self.bag.drain(..).collect()
    }

    // --- What a host does. ---------------------------------------------------------------------------------------

    fn carry_out(&mut self, id: u64, effects: Effects<Raft>) {
        for effect in effects {
            let member = self.members.get_mut(&id).expect("a member");
            let free = match effect {
                Effect::Persist(record) => {
                    member.records.push(record.clone());
                    let number = member.gate.number(&record);
                    match member.end {
                        Some((after, End::AtOnce)) if member.written == after => {
                            member.is_dead = true;
                            return;
                        }
                        Some((after, End::Lingering)) if member.written == after => member.is_disk_held = true,
                        _ => {}
                    }
                    member.unsynced.push_back((number, record));
                    if !member.is_disk_held {
                        self.sync(id);
                    }
                    continue;
                }
                Effect::Send { to, message, rests_on } => member.gate.send(to, message, rests_on),
                Effect::Apply(entry) => member.gate.apply(entry),
                Effect::Reconfigure { membership, index } => member.gate.reconfigure(membership, index),
                Effect::Restore(reference) => member.gate.restore(reference),
                Effect::FetchSnapshot { from, reference } => {
                    member.fetching = Some((from, reference));
                    continue;
                }
                Effect::ReadAt { ticket, index } => {
                    member.reads.push((ticket, index));
                    continue;
                }
                Effect::Reply { ticket, outcome } => {
                    member.replies.push((ticket, outcome));
                    continue;
                }
                Effect::SetTimer { timer, .. } => {
                    member.armed.insert(timer);
                    continue;
                }
                Effect::CancelTimer(timer) => {
                    member.armed.remove(&timer);
                    continue;
                }
                Effect::Announce(transition) => {
                    if transition.to == Role::Leader {
                        self.chronicle.on_leader(transition.term.0, id);
                    }
                    member.transitions.push(transition);
                    continue;
                }
            };
            if let Some(gated) = free {
                self.release(id, gated);
            }
        }
    }

    fn sync(&mut self, id: u64) {
        self.sync_up_to(id, usize::MAX);
    }

    fn sync_up_to(&mut self, id: u64, count: usize) {
        let member = self.members.get_mut(&id).expect("a member");
        let mut last = 0;
        let count = count.min(member.unsynced.len());
        for (number, record) in member.unsynced.drain(..count) {
            member.durable.absorb(record);
            member.written += 1;
            last = number;
        }
        if last > 0 {
            for gated in member.gate.on_durable(last) {
                self.release(id, gated);
            }
        }
    }

    fn release(&mut self, id: u64, gated: Gated<Raft>) {
        match &gated {
            Gated::Send(to, Message::VoteReply(reply)) if reply.is_granted => {
                self.chronicle.on_vote(id, reply.campaign.0, to.0);
            }
            Gated::Apply(entry) => self.chronicle.on_committed(id, entry),
            _ => {}
        }
        match gated {
            Gated::Send(to, message) if to.0 == id => {
                self.input(id, Input::Message { from: to, message });
            }
            Gated::Send(to, message) => self.bag.push_back((id, to.0, message)),
            Gated::Apply(entry) => self.members.get_mut(&id).expect("a member").applied.push(entry),
            Gated::Reconfigure(..) => {}
            Gated::Restore(reference) => self.members.get_mut(&id).expect("a member").restored = Some(reference),
        }
    }

    /// The snapshot that this node fetches arrives whole, and is installed.
    pub fn finish_fetch(&mut self, id: u64) {
        let (_, reference) =
            self.members.get_mut(&id).expect("a member").fetching.take().expect("a fetch is under way");
        let lsn = reference.lsn;
        self.input(id, Input::SnapshotReady(reference));
        self.input(id, Input::SnapshotInstalled(lsn));
    }

    /// The node cuts a snapshot of what it has applied.
    pub fn compact(&mut self, id: u64) {
        let raft = self.raft(id);
        let index = raft.status().commit;
        let term = raft.log().term_at(index).expect("the commit is in the log");
        let membership = raft.status().membership;
        let lsn = Lsn { term, index };
        self.input(id, Input::Compact(SnapshotReference { lsn, membership, bytes: 1, digest: 1 }));
    }
}

/// The disk of a node before the story begins: a promise, and entries of these terms.
pub fn history(term: u64, vote: Option<u64>, terms: &[u64]) -> Durable {
    let promise = hustings_core::Promise { term: Term(term), vote: vote.map(NodeId) };
    let puts = (1..).zip(terms).map(|(index, term)| Record::Put(Entry::blank(Lsn::new(*term, index))));
    std::iter::once(Record::Promise(promise)).chain(puts).collect()
}

pub fn add_voter(id: u64) -> MembershipChange {
    MembershipChange::of([Change::AddVoter(NodeId(id))])
}

pub fn add_learner(id: u64) -> MembershipChange {
    MembershipChange::of([Change::AddLearner(NodeId(id))])
}

pub fn remove(id: u64) -> MembershipChange {
    MembershipChange::of([Change::Remove(NodeId(id))])
}

pub fn explicitly(steps: impl IntoIterator<Item = Change>) -> MembershipChange {
    MembershipChange { steps: steps.into_iter().collect(), passage: Passage::JointExplicit }
}

pub fn ids(numbers: &[u64]) -> BTreeSet<NodeId> {
    numbers.iter().copied().map(NodeId).collect()
}

pub fn membership_of(stage: &Stage, id: u64) -> Arc<Membership> {
    stage.raft(id).status().membership
}
