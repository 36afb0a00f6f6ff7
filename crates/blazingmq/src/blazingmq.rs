//! The value: [`BlazingMq`], its state, its one dispatcher, and what is always true of it.
//! Its moves between roles are in [`crate::roles`].
//!
//! A follower follows a *tentative* leader (it supported one that has not spoken yet) or a confirmed one, never both
//! (E4). Read next: [`crate::elector`].

use crate::healing::Stage;
use crate::laboratory::Defect;
use crate::message::Message;
use crate::options::Options;
use crate::peer::Peer;
use hustings_core::leading::{Following, HandingOver, Leads, Node, Office, Reading, Replicating};
use hustings_core::protocol::{DiskHealth, LinkState};
use hustings_core::quorum::Verdict;
use hustings_core::{
    Admin, Cluster, Contradiction, Durable, Effects, Input, Links, Log, Lsn, Membership, NodeId, Promise, Protocol,
    Reason, Role, Status, Tally, Term,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use crate::timer::Timer;

/// State that only a leader has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Leader {
    /// The progress of its healing.
    pub(crate) stage: Stage,
    /// Last place in the ledger of each node that has registered in this reign.
    pub(crate) lsns: BTreeMap<NodeId, Lsn>,
    /// Nodes that could not give what this leader lacks, since it last learned anything: others are asked before them.
    pub(crate) spent_sources: BTreeSet<NodeId>,
    /// Nodes that support it, itself included (E4).
    pub(crate) supporters: BTreeSet<NodeId>,
    /// Leader-only state of every protocol; the index of its first entry is `u64::MAX` until its term is started.
    pub(crate) office: Office<Peer>,
    /// The last index that may name primaries: they are not named again before it is applied.
    pub(crate) pending_primaries: u64,
}

/// The present role of a node, with the state that only this role has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum RoleState {
    Follower,
    Scouting { term: Term, tally: Tally },
    Candidate { tally: Tally },
    Leader(Box<Leader>),
}

/// A BlazingMQ node as a plain value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BlazingMq {
    /// The base that all protocols share. Its promise is the elector's term, durable `[OURS]`: to raise it is to vote; the vote in it is written
    /// down for judges.
    pub(crate) node: Node,
    pub(crate) options: Options,
    pub(crate) role_state: RoleState,
    pub(crate) tentative: Option<NodeId>,
    /// Whether the leader said that it is healed and serves.
    pub(crate) is_leader_active: bool,
    /// The highest term that somebody answered with: no scouting below it can succeed.
    pub(crate) term_seen: Term,
    /// Flag of the latest round of scouting; consecutive rounds have different ones.
    pub(crate) round: bool,
    /// Peers that said that they are not available.
    pub(crate) unavailable: BTreeSet<NodeId>,
    /// Scoutings answered with no because this node followed a leader: answered again when it loses that leader.
    pub(crate) refused_scouts: BTreeMap<NodeId, (Term, bool, Lsn)>,
    /// Rounds left that follow each other after a short jitter instead of a random wait, after a link-down.
    pub(crate) eager_rounds: u8,
    /// The leader whose link dropped, while that is why this node scouts.
    pub(crate) lost_leader: Option<NodeId>,
    /// Leaders of its own term that this node met while it led: a breach of E1 (§1.10/1).
    pub(crate) breaches: u32,
}

impl Protocol for BlazingMq {
    type Message = Message;
    type Timer = Timer;
    type Options = Options;

    const NAME: &'static str = "blazingmq";
    const LINKS: Links = Links::Session;
    /// Equal LSNs go to the smallest id, and after a link-down ids rank who asks first.
    const SYMMETRIC: bool = false;

    fn start(cluster: Cluster, options: Options, recovered: Durable, out: &mut Effects<BlazingMq>) -> BlazingMq {
        // A node that joins is told the members of today and replays the ledger from its beginning: primaries come from
        // there alone.
        let mut founding = cluster.membership.clone();
        if !founding.assignments.is_empty() {
            founding = Arc::new(Membership { assignments: BTreeMap::new(), ..(*founding).clone() });
        }
        let cluster = Cluster { membership: founding.clone(), ..cluster };
        let (mut node, recorded) = Node::recover(cluster, recovered, out);
        // §1.9: as published, the ledger's last record is all that tells the term.
        let ledger_term = node.log.last().term;
        if options.as_published || node.promise.term < ledger_term {
            node.promise = Promise::without_vote(ledger_term);
        }
        let mut value = BlazingMq {
            node,
            options,
            role_state: RoleState::Follower,
            tentative: None,
            is_leader_active: false,
            term_seen: Term::ZERO,
            round: false,
            unavailable: BTreeSet::new(),
            refused_scouts: BTreeMap::new(),
            eager_rounds: 0,
            lost_leader: None,
            breaches: 0,
        };
        value.announce_start(out);
        // Records that a recorded commit covers were committed, and a change in them is in force.
        value.apply_through(recorded, out);
        value.wait_initially(out);
        if value.node.is_alone() && value.node.may_lead() {
            value.become_candidate(Reason::Alone, false, out);
        }
        value
    }

    fn step(&mut self, input: Input<BlazingMq>, out: &mut Effects<BlazingMq>) {
        match input {
            Input::Message { from, message } if from == self.node.me => self.on_own_message(message, out),
            Input::Message { from, message } => self.on_message(from, message, out),
            Input::Timer(Timer::Wait) => self.on_wait_timer(out),
            Input::Timer(Timer::Silence) => self.on_silence_timer(out),
            Input::Timer(Timer::Scouting) => self.on_scouting_timer(out),
            Input::Timer(Timer::Election) => self.on_election_timer(out),
            Input::Timer(Timer::Heartbeat) => self.on_heartbeat_timer(out),
            Input::Timer(Timer::QuorumCheck) => self.on_quorum_check(out),
            Input::Timer(Timer::Healing) => self.on_healing_timer(out),
            Input::Timer(Timer::Transfer) => self.on_transfer_timer(out),
            Input::Timer(Timer::Patience) => self.on_patience_timer(out),
            Input::Link { peer, state: LinkState::Up } => self.on_link_up(peer, out),
            Input::Link { peer, state: LinkState::Down } => self.on_link_down(peer, out),
            Input::Propose(proposals) => self.on_propose(proposals, out),
            Input::Read { ticket } => self.on_read(ticket, out),
            Input::Compact(reference) => self.node.on_compact(reference, out),
            Input::SnapshotReady(reference) => self.on_snapshot_ready(reference, out),
            Input::SnapshotFailed(reference) => self.on_snapshot_failed(reference, out),
            Input::SnapshotInstalled(lsn) => self.on_snapshot_installed(lsn, out),
            Input::Admin { ticket, request: Admin::Campaign } => self.on_asked_to_campaign(ticket, out),
            Input::Admin { ticket, request: Admin::Resign } => self.on_asked_to_resign(ticket, out),
            Input::Admin { ticket, request: Admin::Transfer(to) } => self.on_asked_to_transfer(ticket, to, out),
            Input::Admin { ticket, request: Admin::ForgetLeader } => self.on_asked_to_forget(ticket, out),
            Input::Retime(timing) => self.node.timing = timing,
            Input::Health(DiskHealth::Stalled) => self.on_disk_stalled(out),
            Input::Health(DiskHealth::Recovered) => self.on_disk_recovered(out),
        }
    }

    fn status(&self) -> Status {
        self.node.status(self.role(), self.active_leader())
    }

    fn contradiction(&self) -> Option<Contradiction> {
        self.node.contradiction
    }

    fn overdue_commit(&self) -> Option<u64> {
        self.committable().filter(|_| self.is_started())
    }

    fn assert_invariants(&self) {
        self.node.assert_invariants();
        assert!(self.node.leader.is_none() || self.tentative.is_none(), "a leader is tentative or confirmed (E4)");
        assert!(
            self.node.log.last().term <= self.node.promise.term,
            "no record has a later term than this node (§2.8/5)"
        );
        match &self.role_state {
            RoleState::Leader(leader) => {
                assert_eq!(self.node.leader, Some(self.node.me), "a leader follows itself (E4)");
                assert!(leader.supporters.contains(&self.node.me), "a leader supports itself (E4)");
                leader.office.peers.values().for_each(Peer::assert_invariants);
                let is_started = matches!(leader.stage, Stage::Starting | Stage::Active);
                assert!(
                    !is_started || self.node.log.last().term == self.node.promise.term,
                    "a leader that has started ends its ledger in its own term"
                );
                assert!(
                    leader.stage != Stage::Active || self.node.commit >= leader.office.first_own,
                    "an active leader's start is committed (C7)"
                );
            }
            RoleState::Scouting { .. } | RoleState::Candidate { .. } => {
                assert_eq!((self.node.leader, self.tentative), (None, None), "who asks follows nobody");
            }
            RoleState::Follower => assert_ne!(self.node.leader, Some(self.node.me), "only a leader leads"),
        }
    }
}

/// The quorums that an operator may raise, by what they decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Vote,
    Sync,
    Commit,
}

impl BlazingMq {
    // --- Questions. ----------------------------------------------------------------------------------------------

    pub(crate) fn role(&self) -> Role {
        match &self.role_state {
            RoleState::Leader(leader) if leader.stage == Stage::Active => Role::Leader,
            RoleState::Leader(_) => Role::Synchronizing,
            RoleState::Candidate { .. } => Role::Candidate,
            RoleState::Scouting { .. } => Role::PreCandidate,
            RoleState::Follower => Role::Follower,
        }
    }

    /// The leader that requests may go to: an elected one that is not healed yet serves nobody (§2.4, leaderStatus).
    pub(crate) fn active_leader(&self) -> Option<NodeId> {
        self.node.leader.filter(|leader| self.is_leader_active || *leader == self.node.me)
    }

    /// Whether this defect is planted in the node.
    pub(crate) fn has(&self, defect: Defect) -> bool {
        self.options.defect == Some(defect)
    }

    /// The ledger, for inspection.
    pub fn log(&self) -> &Log {
        &self.node.log
    }

    /// The term, and the node that this one supported in it, for inspection.
    pub fn promise(&self) -> Promise {
        self.node.promise
    }

    /// The leader that this node supported and that has not spoken yet.
    pub fn tentative(&self) -> Option<NodeId> {
        self.tentative
    }

    /// The leader that this node follows, healed or not.
    pub fn follows(&self) -> Option<NodeId> {
        self.node.leader
    }

    /// Nodes that support this one, if it leads; empty otherwise.
    pub fn supporters(&self) -> Vec<NodeId> {
        match &self.role_state {
            RoleState::Leader(leader) => leader.supporters.iter().copied().collect(),
            _ => Vec::new(),
        }
    }

    /// Number of leaders of its own term that this node met while leading: 0, unless terms were forgotten (E1).
    pub fn breaches(&self) -> u32 {
        self.breaches
    }

    /// This leader's state of `peer`; `None` unless this node leads and knows it.
    pub fn peer(&self, peer: NodeId) -> Option<&Peer> {
        self.office()?.peers.get(&peer)
    }

    pub(crate) fn is_leading(&self) -> bool {
        matches!(self.role_state, RoleState::Leader(_))
    }

    /// Whether the start of this leader's term is written: the ledger takes records.
    pub(crate) fn is_started(&self) -> bool {
        matches!(&self.role_state, RoleState::Leader(leader) if matches!(leader.stage, Stage::Starting | Stage::Active))
    }

    fn knob(&self, kind: Kind) -> usize {
        match kind {
            Kind::Vote => self.options.quorums.vote,
            Kind::Sync => self.options.quorums.sync,
            Kind::Commit => self.options.quorums.commit,
        }
    }

    /// The result of a vote so far: it takes a majority at least, and as many as the operator wants. Each node counts once.
    pub(crate) fn verdict(&self, kind: Kind, answer: impl Fn(NodeId) -> Option<bool>) -> Verdict {
        let needed = self.knob(kind);
        let count = |said: bool| self.node.membership.all_voters().filter(|id| answer(*id) == Some(said)).count();
        let lost = self.node.membership.all_voters().count() < needed + count(false);
        match self.node.membership.verdict(&answer) {
            Verdict::Won if count(true) >= needed => Verdict::Won,
            Verdict::Lost => Verdict::Lost,
            _ if lost => Verdict::Lost,
            _ => Verdict::Pending,
        }
    }

    /// The highest value that a quorum has reached.
    pub(crate) fn reached(&self, kind: Kind, value: impl Fn(NodeId) -> u64) -> u64 {
        let majority = self.node.membership.reached(&value);
        let Some(needed) = self.knob(kind).checked_sub(1) else { return majority };
        let mut values: Vec<u64> = self.node.membership.all_voters().map(&value).collect();
        values.sort_unstable_by(|a, b| b.cmp(a));
        majority.min(values.get(needed).copied().unwrap_or(0))
    }

    // --- Messages. -----------------------------------------------------------------------------------------------

    /// Takes a message to itself, sent once a record is durable; from an earlier term it means nothing.
    fn on_own_message(&mut self, message: Message, out: &mut Effects<BlazingMq>) {
        if message.term() != self.node.promise.term {
            return;
        }
        match message {
            Message::Support { term } => self.on_support(self.node.me, term, out),
            Message::Ack { index, .. } => self.on_ack(self.node.me, index, out),
            other => unreachable!("a node never says {other:?} to itself"),
        }
    }

    fn on_message(&mut self, from: NodeId, message: Message, out: &mut Effects<BlazingMq>) {
        let term = message.term();
        let is_refused = message.is_of_reign() && self.node.is_contradicted_by(from, term);
        if is_refused || !self.node.promise.term.may_follow(term) {
            return;
        }
        match message {
            Message::Scouting { round, commit, .. } => self.on_scouting(from, term, round, commit, out),
            Message::ScoutingReply { round, will_vote, commit, .. } => {
                self.on_scouting_reply(from, term, round, will_vote, commit, out)
            }
            Message::Proposal { is_transfer, commit, .. } => self.on_proposal(from, term, is_transfer, commit, out),
            Message::Support { .. } => self.on_support(from, term, out),
            Message::Refusal { proposed, .. } => self.on_refusal(from, term, proposed, out),
            Message::Heartbeat { round, commit, is_active, asks, .. } => {
                self.on_heartbeat(from, term, round, commit, is_active, asks, out)
            }
            Message::Heard { .. } if term > self.node.promise.term => self.on_stale_notice(from, term, out),
            Message::Cession { .. } => self.on_cession(from, term, out),
            Message::NodeStatus { is_available } => self.on_node_status(from, is_available, out),
            message if term == self.node.promise.term && self.node.leader == Some(from) => {
                self.on_leader_message(from, message, out)
            }
            message if term == self.node.promise.term && self.is_leading() => self.on_answer(from, message, out),
            // Not my leader, or an answer to another reign: dropped (§2.7, rule 4).
            _ => {}
        }
    }

    /// Takes a message from the node that this one follows, in its term.
    fn on_leader_message(&mut self, from: NodeId, message: Message, out: &mut Effects<BlazingMq>) {
        self.hear_leader(out);
        match message {
            Message::LsnRequest { .. } => self.register(from, out),
            Message::Pull { after, .. } => self.on_pull(from, after, out),
            Message::Records { previous, entries, commit, .. } => self.on_records(from, previous, entries, commit, out),
            Message::Snapshot { reference, .. } => self.on_snapshot(from, reference, out),
            Message::Handover { .. } => self.on_handover(from, out),
            // An answer to this node's own reign, which is over.
            _ => {}
        }
    }

    /// Takes an answer to this leader, in its term.
    fn on_answer(&mut self, from: NodeId, message: Message, out: &mut Effects<BlazingMq>) {
        match message {
            Message::Heard { round, priority, is_installing, .. } => {
                self.on_heard(from, round, priority, is_installing, out)
            }
            Message::Registration { last, .. } => self.on_registration(from, last, out),
            Message::Pulled { previous, entries, last, commit, .. } => {
                self.on_pulled(from, previous, entries, last, commit, out)
            }
            Message::PullGap { hint, .. } => self.on_pull_gap(from, hint, out),
            Message::PullSnapshot { reference, .. } => self.on_pull_snapshot(from, reference, out),
            Message::Ack { index, .. } => self.on_ack(from, index, out),
            Message::Gap { hint, .. } => self.place_peer(from, hint, out),
            Message::SnapshotFailed { .. } => self.on_snapshot_refused(from, out),
            // A message from another leader of this term: dropped (§2.7, rule 3).
            _ => {}
        }
    }

    // --- What has been committed. --------------------------------------------------------------------------------

    /// Commit knowledge spreads with elections, so that nobody elects by a membership that was left behind.
    pub(crate) fn learn_commit(&mut self, commit: Lsn, out: &mut Effects<BlazingMq>) {
        let is_known = self.is_leading() || commit.index <= self.node.commit;
        if !is_known && self.node.log.has(commit) && self.node.installing.is_none() {
            self.apply_through(commit.index, out);
        }
    }
}
