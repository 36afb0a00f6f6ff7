//! The value: [`Paxos`], its state, its one dispatcher, and what is always true of it.
//! Its moves between roles are in [`crate::roles`].
//!
//! The acceptor (TA-1 to TA-8) is the same in every role. Read next: [`crate::ballot`].

use crate::ballot::Promises;
use crate::catch_up::OwnDisk;
use crate::journal::Journal;
use crate::laboratory::Defect;
use crate::low_ball::Poll;
use crate::message::{Heartbeat, Message};
use crate::peer::Peer;
use crate::{Accept, ballot};
use hustings_core::leading::{Adopting, HandingOver, Leads, Node, Office, Reading};
use hustings_core::protocol::{DiskHealth, LinkState};
use hustings_core::{
    Admin, Cluster, Contradiction, Durable, Effects, EntryKind, Input, Links, Lsn, NodeId, Promise, Protocol, Reason,
    Record, Role, Slots, Status, Term,
};
use std::collections::{BTreeMap, BTreeSet};

pub use crate::options::Options;
pub use crate::timer::Timer;

/// The progress of a reign.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// Promises of a quorum are awaited.
    Preparing,
    /// Values of the in-flight range are proposed again.
    Recovering,
    /// All of them are committed, and a value of its own behind them.
    Leading,
}

/// State of a node with a ballot of its own.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Reign {
    pub(crate) ballot: Term,
    pub(crate) stage: Stage,
    pub(crate) promises: Promises,
    /// Nodes that have promised a higher ballot.
    pub(crate) refusers: BTreeSet<NodeId>,
    /// The commit at the last quorum check.
    pub(crate) commit_at_check: u64,
    /// Nothing was committed between the last two quorum checks.
    pub(crate) is_stuck: bool,
    /// Prepare rounds without a quorum.
    pub(crate) rounds: u8,
    /// Values in flight, by slot: proposed in this ballot and not committed.
    pub(crate) proposed: BTreeMap<u64, Accept>,
    /// Nodes that accepted a value in flight, durably, by slot.
    pub(crate) votes: BTreeMap<u64, BTreeSet<NodeId>>,
    /// The last slot proposed in this ballot, or committed before.
    pub(crate) end: u64,
    /// The number of the last heartbeat.
    pub(crate) counter: u64,
    /// Leader-only state of every protocol. Its pending change is the fence: nothing behind it is proposed before it is
    /// committed. Its first slot is the first that nobody had used, and `u64::MAX` until it is proposed.
    pub(crate) office: Office<Peer>,
    /// Proposals pause until nothing is under way: promises are to be repaired (TL-9).
    pub(crate) is_pausing: bool,
}

impl Reign {
    /// As published: a ballot that nobody was asked about, with the promises of the last one.
    pub(crate) fn forge_promises(&mut self, ballot: Term, from: u64, everybody: Vec<NodeId>) {
        self.ballot = ballot;
        self.promises = Promises::new(ballot, from);
        for node in everybody {
            self.promises.take(node, from, u64::MAX, Vec::new());
        }
        self.refusers.clear();
        self.proposed.clear();
        self.votes.clear();
        self.office.peers.values_mut().for_each(|peer| peer.rewind(from));
    }
}

/// The present role of a node, with the state that only this role has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum RoleState {
    Follower,
    Polling(Poll),
    Reign(Box<Reign>),
}

/// A TRex Paxos node as a plain value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Paxos {
    /// The base that all protocols share. Its promise is the highest ballot promised, by a prepare or by an accept (TI-1); its log is the journal.
    pub(crate) node: Node<Journal>,
    pub(crate) options: Options,
    pub(crate) role_state: RoleState,
    /// The last heartbeat seen, or sent: the weak evidence (TH-6, TH-4).
    pub(crate) heartbeat: Heartbeat,
    /// The number of the last poll (TH-5).
    pub(crate) poll: u64,
    /// The highest ballot that somebody else said to have promised.
    pub(crate) ballot_seen: Term,
    /// Polls that were told of a leader: told again when this node loses it.
    pub(crate) told_polls: BTreeMap<NodeId, u64>,
    /// The leader whose link dropped, while that is why this node polls.
    pub(crate) lost_leader: Option<NodeId>,
    /// Polls left that follow each other quickly after a link-down.
    pub(crate) eager_rounds: u8,
    /// The commit by which each member's answer to a poll was strong evidence, the last time (TF-5).
    pub(crate) evidence: BTreeMap<NodeId, u64>,
    /// The member whose snapshot is fetched, or was fetched last.
    pub(crate) source: Option<NodeId>,
    /// The member whose snapshot could not be had: the next offer of another one comes before its own.
    pub(crate) failed_source: Option<NodeId>,
    /// The node that was asked for committed slots, and the last heartbeat then.
    pub(crate) asked: Option<(NodeId, Heartbeat)>,
    /// How far its own disk is, so that what it asks for does not pile up in memory.
    pub(crate) disk: OwnDisk,
}

impl Protocol for Paxos {
    type Message = Message;
    type Timer = Timer;
    type Options = Options;

    const NAME: &'static str = "paxos";
    const LINKS: Links = Links::Any;
    /// Ballots are ordered by node.
    const SYMMETRIC: bool = false;
    const SLOTS: Slots = Slots::Independent;

    fn start(cluster: Cluster, options: Options, recovered: Durable, out: &mut Effects<Paxos>) -> Paxos {
        let Durable { promise, snapshot, entries, committed, established: _ } = recovered;
        let mut journal = Journal::after(snapshot.as_ref().map_or(Lsn::ZERO, |reference| reference.lsn));
        // Values learnt as committed may be of a ballot above the promise; if the record of the commit was lost, only
        // this keeps an older accept out of the slot (TI-3).
        let highest = entries.values().map(|entry| entry.lsn.term).max().unwrap_or_default();
        entries.into_values().for_each(|entry| journal.put(entry));
        let promise = if promise.term < highest {
            // TI-1: on disk before anything that is said in this ballot rests on it.
            let raised = Promise::without_vote(highest);
            out.persist(Record::Promise(raised));
            raised
        } else {
            promise
        };
        let mut value = Paxos {
            node: Node::new(cluster, promise, journal, snapshot),
            options,
            role_state: RoleState::Follower,
            heartbeat: Heartbeat::default(),
            poll: 0,
            ballot_seen: Term::ZERO,
            told_polls: BTreeMap::new(),
            lost_leader: None,
            eager_rounds: 0,
            evidence: BTreeMap::new(),
            source: None,
            failed_source: None,
            asked: None,
            disk: OwnDisk::default(),
        };
        value.announce_start(out);
        // A recorded commit is a lower bound: what it covers was committed, and a change in it is in force.
        let mut held = value.node.commit;
        while held < committed.index && value.node.log.slot(held + 1).is_some() {
            held += 1;
        }
        value.apply_through(held, out);
        value.set_deadline(out);
        if value.node.is_alone() && value.node.may_lead() {
            value.take_over(Reason::Alone, out);
        }
        value
    }

    fn step(&mut self, input: Input<Paxos>, out: &mut Effects<Paxos>) {
        match input {
            Input::Message { from, message } if from == self.node.me => self.on_own_message(message, out),
            Input::Message { from, message } => self.on_message(from, message, out),
            Input::Timer(Timer::Deadline) => self.on_deadline(out),
            Input::Timer(Timer::Grace) => self.on_grace(out),
            Input::Timer(Timer::Heartbeat) => self.on_heartbeat_timer(out),
            Input::Timer(Timer::QuorumCheck) => self.on_quorum_check(out),
            Input::Timer(Timer::Transfer) => self.on_transfer_timer(out),
            Input::Timer(Timer::Patience) => self.on_patience_timer(out),
            Input::Link { peer, state: LinkState::Up } => self.on_link_up(peer, out),
            Input::Link { peer, state: LinkState::Down } => self.on_link_down(peer, out),
            Input::Propose(proposals) => self.on_propose(proposals, out),
            Input::Read { ticket } => self.on_read(ticket, out),
            Input::Compact(reference) => self.node.on_compact(reference, out),
            Input::SnapshotReady(reference) => self.on_snapshot_ready(reference, out),
            Input::SnapshotFailed(reference) => self.on_snapshot_failed(&reference),
            Input::SnapshotInstalled(lsn) => self.on_snapshot_installed(lsn, out),
            Input::Admin { ticket, request: Admin::Campaign } => self.on_asked_to_campaign(ticket, out),
            Input::Admin { ticket, request: Admin::Resign } => self.on_asked_to_resign(ticket, out),
            Input::Admin { ticket, request: Admin::Transfer(to) } => self.on_asked_to_transfer(ticket, to, out),
            Input::Admin { ticket, request: Admin::ForgetLeader } => self.on_asked_to_forget(ticket, out),
            Input::Retime(timing) => self.node.timing = timing,
            Input::Health(DiskHealth::Stalled) => self.on_disk_stalled(out),
            Input::Health(DiskHealth::Recovered) => self.node.is_disk_stalled = false,
        }
    }

    fn status(&self) -> Status {
        self.node.status(self.role(), self.node.leader)
    }

    fn contradiction(&self) -> Option<Contradiction> {
        self.node.contradiction
    }

    fn assert_invariants(&self) {
        self.node.assert_invariants();
        match &self.role_state {
            RoleState::Reign(reign) => {
                assert_eq!(reign.ballot, self.node.promise.term, "whoever has promised more leads no more (TH-15)");
                assert_eq!(reign.promises.ballot(), reign.ballot, "the promises are for this ballot (TI-5)");
                assert_eq!(reign.proposed.len(), reign.votes.len(), "votes are on what is in flight");
                assert!(
                    reign.stage == Stage::Preparing || self.node.leader == Some(self.node.me),
                    "a leader follows itself"
                );
                assert!(
                    reign.stage != Stage::Leading || self.node.commit >= reign.office.first_own,
                    "a leader has recovered"
                );
                let first = reign.proposed.keys().next();
                assert!(first.is_none_or(|first| *first > self.node.commit), "what is committed is not in flight");
                assert!(self.node.installing.is_none(), "whoever needs a snapshot does not lead");
            }
            RoleState::Polling(_) => assert_eq!(self.node.leader, None, "who asks follows nobody"),
            RoleState::Follower => assert_ne!(self.node.leader, Some(self.node.me), "only a leader leads"),
        }
    }
}

impl Paxos {
    // --- Questions. ----------------------------------------------------------------------------------------------

    pub(crate) fn role(&self) -> Role {
        match &self.role_state {
            RoleState::Follower => Role::Follower,
            RoleState::Polling(_) => Role::PreCandidate,
            RoleState::Reign(reign) => match reign.stage {
                Stage::Preparing => Role::Candidate,
                Stage::Recovering => Role::Synchronizing,
                Stage::Leading => Role::Leader,
            },
        }
    }

    pub(crate) fn reign(&self) -> Option<&Reign> {
        match &self.role_state {
            RoleState::Reign(reign) => Some(reign),
            _ => None,
        }
    }

    pub(crate) fn reign_mut(&mut self) -> Option<&mut Reign> {
        match &mut self.role_state {
            RoleState::Reign(reign) => Some(reign),
            _ => None,
        }
    }

    /// The reign, if it is past its prepare round.
    pub(crate) fn leading(&self) -> Option<&Reign> {
        self.reign().filter(|reign| reign.stage != Stage::Preparing)
    }

    /// Whether this defect is planted in the node.
    pub(crate) fn has(&self, defect: Defect) -> bool {
        self.options.defect == Some(defect)
    }

    /// The journal, for inspection.
    pub fn journal(&self) -> &Journal {
        &self.node.log
    }

    /// The highest ballot promised, for inspection.
    pub fn promised(&self) -> Term {
        self.node.promise.term
    }

    /// This leader's state of `peer`; `None` unless this node has a reign and knows it.
    pub fn peer(&self, peer: NodeId) -> Option<&Peer> {
        self.office()?.peers.get(&peer)
    }

    /// Promises needed of the voters in force.
    pub(crate) fn promises_needed(&self) -> usize {
        self.options.quorums.promises(self.node.membership.all_voters().count())
    }

    /// Accepts needed of the voters in force.
    pub(crate) fn accepts_needed(&self) -> usize {
        self.options.quorums.accepts(self.node.membership.all_voters().count())
    }

    /// Number of voters of which this holds.
    pub(crate) fn count_voters(&self, is_it: impl Fn(NodeId) -> bool) -> usize {
        self.node.membership.all_voters().filter(|id| is_it(*id)).count()
    }

    /// The highest ballot that this node knows of (TF-8).
    pub(crate) fn next_ballot(&self) -> Term {
        ballot::ballot_above(self.node.promise.term.max(self.node.committed().term).max(self.ballot_seen), self.node.me)
    }

    // --- Messages. -----------------------------------------------------------------------------------------------

    /// Takes a message to itself, sent once a record is durable; from an earlier ballot it means nothing.
    fn on_own_message(&mut self, message: Message, out: &mut Effects<Paxos>) {
        match message {
            Message::PrepareAck { ballot, from, .. } => {
                let (accepted, _) = self.node.log.slice(from, u64::MAX, usize::MAX);
                self.on_prepare_ack(self.node.me, ballot, from, u64::MAX, accepted, out);
            }
            Message::AcceptAck { ballot, from, through, committed } => {
                self.on_accept_ack(self.node.me, ballot, from, through, committed, out)
            }
            Message::RetransmitRequest { committed, .. } => self.on_disk_reached(committed, out),
            other => unreachable!("a node never says {other:?} to itself"),
        }
    }

    fn on_message(&mut self, from: NodeId, message: Message, out: &mut Effects<Paxos>) {
        let sane = |ballot: Term| self.node.promise.term.may_follow(ballot);
        if !sane(message.ballot()) {
            return;
        }
        match message {
            Message::LowBall { poll } => self.on_low_ball(from, poll, out),
            Message::LowBallNack { poll, promised, committed, heartbeat, says } => {
                self.on_low_ball_nack(from, poll, promised, committed, heartbeat, says, out)
            }
            Message::Prepare { ballot, from: slot } => self.on_prepare(from, ballot, slot, out),
            Message::PrepareAck { ballot, from: slot, through, accepted } => {
                self.on_prepare_ack(from, ballot, slot, through, accepted, out)
            }
            Message::PrepareNack { ballot, promised, committed } => {
                self.on_prepare_nack(from, ballot, promised, committed, out)
            }
            Message::Accept { ballot, accepts, commit } => self.on_accept(from, ballot, accepts, commit, out),
            Message::AcceptAck { ballot, from: slot, through, committed } => {
                self.on_accept_ack(from, ballot, slot, through, committed, out)
            }
            Message::AcceptNack { ballot, promised, committed } => {
                self.on_accept_nack(from, ballot, promised, committed, out)
            }
            Message::Commit { heartbeat, slot, stored, asks } => {
                self.on_commit(from, heartbeat, slot, stored, asks, out)
            }
            Message::CommitAck { ballot, counter, committed, held, priority } => {
                self.on_commit_ack(from, ballot, counter, committed, held, priority, out)
            }
            Message::RetransmitRequest { committed, promised } => {
                self.on_retransmit_request(from, committed, promised, out)
            }
            Message::RetransmitResponse { entries, committed } => {
                self.on_retransmit_response(from, entries, committed, out)
            }
            Message::Snapshot { reference } => self.on_snapshot(from, reference, out),
            Message::Handover { ballot } => self.on_handover(from, ballot, out),
        }
    }

    // --- Commit, the same for leaders and followers. -------------------------------------------------------------

    /// Everything through `index` is chosen: it is applied, in order; a membership among it takes effect.
    pub(crate) fn apply_through(&mut self, index: u64, out: &mut Effects<Paxos>) {
        while self.node.commit < index {
            let next = self.node.commit + 1;
            let entry = self.node.log.slot(next).expect("what is committed has no holes (TI-7)").clone();
            let is_of_this_reign = self.reign().is_none_or(|reign| entry.lsn.term <= reign.ballot);
            assert!(
                is_of_this_reign || self.leads_on_after_later(),
                "whoever learns what a later ballot chose leads no more (TF-2)"
            );
            self.node.commit = next;
            // One record for a run, but before a change of membership takes effect.
            if next == index || entry.kind == EntryKind::Membership {
                out.persist(Record::Committed(entry.lsn));
            }
            if entry.kind == EntryKind::Membership {
                self.apply_membership(&entry, out);
            }
            out.apply(entry);
        }
    }
}
