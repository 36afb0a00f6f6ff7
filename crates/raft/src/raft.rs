//! The value: [`Raft`], its state, its one dispatcher, and what is always true of it.
//! Its moves between roles are in [`crate::roles`].
//!
//! The dispatcher checks terms (RT-1, RT-2), then calls one leaf per message; leaves do not look at terms again.
//! Read next: [`crate::election`].

use crate::election::Campaign;
use crate::laboratory::Defect;
use crate::message::Message;
use hustings_core::leading::{Following, HandingOver, Leads, Node, Office, Progress, Reading, Replicating};
use hustings_core::protocol::{DiskHealth, LinkState};
use hustings_core::{
    Admin, Cluster, Contradiction, Durable, Effects, Input, Links, Log, Membership, NodeId, Outcome, Promise, Protocol,
    Reason, RestsOn, Role, Status, Tally, Ticket,
};
use std::collections::BTreeMap;
use std::sync::Arc;

pub use crate::options::Options;
pub use crate::timer::Timer;

/// The role, with the state that only it has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum RoleState {
    Follower,
    PreCandidate { tally: Tally },
    Candidate { tally: Tally },
    Leader(Box<Office<Progress>>),
}

/// A Raft node as a plain value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Raft {
    pub(crate) node: Node,
    pub(crate) options: Options,
    pub(crate) role_state: RoleState,
    /// Whether the leader was heard within the shortest election timeout.
    pub(crate) is_leader_fresh: bool,
    /// Candidates that were refused a pre-vote only because the leader was fresh: they get another answer when its link drops.
    pub(crate) refused_while_fresh: BTreeMap<NodeId, crate::message::VoteRequest>,
    /// Campaigns left that follow each other after a short jitter instead of an election timeout, after a link-down.
    pub(crate) eager_campaigns: u8,
    /// The leader whose link dropped, while that is why this node campaigns.
    pub(crate) lost_leader: Option<NodeId>,
    /// Whether this node asked for leadership and did not get it, and nobody leads since: its preference yields (RV-10).
    pub(crate) has_lost: bool,
}

impl Protocol for Raft {
    type Message = Message;
    type Timer = Timer;
    type Options = Options;

    const NAME: &'static str = "raft";
    const LINKS: Links = Links::Any;
    const SYMMETRIC: bool = false;

    fn start(cluster: Cluster, options: Options, recovered: Durable, out: &mut Effects<Raft>) -> Raft {
        let (node, recorded) = Node::recover(cluster, recovered, out);
        let mut raft = Raft {
            node,
            options,
            role_state: RoleState::Follower,
            is_leader_fresh: false,
            refused_while_fresh: BTreeMap::new(),
            eager_campaigns: 0,
            lost_leader: None,
            has_lost: false,
        };
        raft.announce_start(out);
        // Entries that a recorded commit covers were committed, and a change in them is in force (RH-9).
        raft.apply_through(recorded, out);
        raft.arm_election(out);
        if raft.node.is_alone() && (raft.may_campaign() || raft.has(Defect::CampaignsAlone)) {
            raft.campaign(Campaign::for_real(Reason::Alone), out);
        }
        raft
    }

    fn step(&mut self, input: Input<Raft>, out: &mut Effects<Raft>) {
        match input {
            Input::Message { from, message } if from == self.node.me => self.on_own_message(message, out),
            Input::Message { from, message } => self.on_message(from, message, out),
            Input::Timer(Timer::Election) => self.on_election_timer(out),
            Input::Timer(Timer::Stickiness) => self.is_leader_fresh = false,
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
            Input::SnapshotFailed(reference) => self.on_snapshot_failed(reference, out),
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

    fn overdue_commit(&self) -> Option<u64> {
        self.committable()
    }

    fn assert_invariants(&self) {
        self.node.assert_invariants();
        assert!(self.node.log.last().term <= self.node.promise.term, "no entry is of a term beyond the promise");
        match &self.role_state {
            RoleState::Leader(office) => {
                assert_eq!(self.node.leader, Some(self.node.me), "a leader follows itself");
                assert!(
                    self.node.log.last().term == self.node.promise.term,
                    "a leader's log ends in its own term (RV-8)"
                );
                office.peers.values().for_each(Progress::assert_invariants);
                assert!(
                    office.peers.values().all(|peer| peer.known.stored <= self.node.log.last().index),
                    "nobody matches beyond the leader's log (RI-12)"
                );
            }
            RoleState::Candidate { .. } => {
                assert_eq!(self.node.promise.vote, Some(self.node.me), "a candidate votes for itself");
                assert_eq!(self.node.leader, None, "a candidate follows nobody");
            }
            RoleState::PreCandidate { .. } => assert_eq!(self.node.leader, None, "a pre-candidate follows nobody"),
            RoleState::Follower => assert_ne!(self.node.leader, Some(self.node.me), "only a leader leads"),
        }
    }
}

impl Raft {
    // --- Questions. ----------------------------------------------------------------------------------------------

    /// The membership that decides: the one in force.
    pub(crate) fn deciding(&self) -> Arc<Membership> {
        if self.has(Defect::JointByUnion) && self.node.membership.is_joint() {
            return Arc::new(Membership::of_voters(self.node.membership.all_voters()));
        }
        self.node.membership.clone()
    }

    /// Whether this defect is planted in the node.
    pub(crate) fn has(&self, defect: Defect) -> bool {
        self.options.defect == Some(defect)
    }

    pub(crate) fn role(&self) -> Role {
        match self.role_state {
            RoleState::Follower => Role::Follower,
            RoleState::PreCandidate { .. } => Role::PreCandidate,
            RoleState::Candidate { .. } => Role::Candidate,
            RoleState::Leader(_) => Role::Leader,
        }
    }

    /// The log, for inspection.
    pub fn log(&self) -> &Log {
        &self.node.log
    }

    /// The term and vote, for inspection.
    pub fn promise(&self) -> Promise {
        self.node.promise
    }

    /// This leader's state of `peer`; `None` unless this node leads and sends to it.
    pub fn progress_of(&self, peer: NodeId) -> Option<&Progress> {
        self.office()?.peers.get(&peer)
    }

    /// Whether this node may campaign (RV-1).
    pub(crate) fn may_campaign(&self) -> bool {
        self.node.may_lead() && !matches!(self.role_state, RoleState::Leader(_))
    }

    // --- Terms: RT-1 to RT-5. ------------------------------------------------------------------------------------

    /// Takes a message to itself, sent once a record is durable; from an earlier term or role it means nothing (RH-19).
    fn on_own_message(&mut self, message: Message, out: &mut Effects<Raft>) {
        if message.term() != self.node.promise.term {
            return;
        }
        match message {
            Message::VoteReply(reply) => self.on_vote_reply(self.node.me, reply, out),
            Message::Matched { index, .. } => self.on_matched(self.node.me, index, out),
            other => unreachable!("a node never says {other:?} to itself"),
        }
    }

    fn on_message(&mut self, from: NodeId, message: Message, out: &mut Effects<Raft>) {
        let term = message.term();
        let is_refused = message.is_from_leader() && self.node.is_contradicted_by(from, term);
        if is_refused || !self.node.promise.term.may_follow(term) {
            return;
        }
        match message {
            Message::PreVote(request) => return self.on_pre_vote(from, request, out),
            Message::PreVoteReply(reply) => return self.on_pre_vote_reply(from, reply, out),
            // Refused without taking over the term: a rejoining or removed node disturbs nobody (RLV-1, RLV-2).
            Message::Vote(request) if self.is_sticky_to(&request) => return self.refuse_vote(from, &request, out),
            // A voter that sticks to its leader refuses in its own, lower term: the refusal still counts.
            Message::VoteReply(reply) => return self.on_vote_reply(from, reply, out),
            Message::Matched { index, .. }
                if term < self.node.promise.term && self.has(Defect::CountsStaleAcknowledgements) =>
            {
                return self.on_matched(from, index, out);
            }
            message if term < self.node.promise.term => return self.on_older_term(from, message, out),
            _ => {}
        }
        if term > self.node.promise.term && self.role() == Role::Leader && self.has(Defect::LeadsOnInLaterTerms) {
            self.enter_term(term, None, out);
        } else if term > self.node.promise.term {
            let leader = message.is_from_leader().then_some(from);
            self.become_follower(term, leader, Reason::HigherTerm(from), out);
        } else if message.is_from_leader() {
            if matches!(self.role_state, RoleState::Leader(_)) {
                // This node leads the term, so a peer that says otherwise lies or is broken; that is no reason to end.
                return;
            }
            self.follow(from, out);
        }
        match message {
            Message::Vote(request) => self.on_vote(from, request, out),
            Message::Append { previous, entries, commit, .. } => self.on_append(from, previous, entries, commit, out),
            Message::Matched { index, .. } => self.on_matched(from, index, out),
            Message::Rejected { index, hint_index, hint_term, .. } => {
                self.on_rejected(from, index, hint_index, hint_term, out)
            }
            Message::Commit { index, .. } => self.on_commit(index, out),
            Message::Heartbeat { commit, position, .. } => self.on_heartbeat(from, commit, position, out),
            Message::HeartbeatReply { position, priority, is_installing, .. } => {
                self.on_heartbeat_reply(from, position, priority, is_installing, out)
            }
            Message::Snapshot { reference, .. } => self.on_snapshot(from, reference, out),
            Message::SnapshotFailed { lsn, .. } => {
                if let Some(progress) = self.progress_mut(from) {
                    progress.on_fetch_failed(lsn.index);
                }
            }
            Message::TimeoutNow { .. } => self.on_timeout_now(from, out),
            Message::PreVote(_) | Message::PreVoteReply(_) | Message::VoteReply(_) => {
                unreachable!("answered above, whatever their term")
            }
        }
    }

    /// An older term (RT-2): a deposed leader, or one that a node in a later term cannot follow, learns the later term.
    fn on_older_term(&mut self, from: NodeId, message: Message, out: &mut Effects<Raft>) {
        let term = self.node.promise.term;
        match message {
            Message::Append { .. } | Message::Heartbeat { .. } | Message::Snapshot { .. } | Message::Commit { .. } => {
                let reply = Message::Rejected { term, index: 0, hint_index: 0, hint_term: None };
                out.send_resting_on(RestsOn::Nothing, from, reply);
            }
            Message::Vote(request) => self.refuse_vote(from, &request, out),
            _ => {}
        }
    }

    // --- Links, disk, administrators. ----------------------------------------------------------------------------

    fn on_link_up(&mut self, peer: NodeId, out: &mut Effects<Raft>) {
        self.node.links_down.remove(&peer);
        // A node that comes back learns at once which node leads (BlazingMQ rule 27).
        self.send_heartbeat_to(peer, out);
    }

    fn on_link_down(&mut self, peer: NodeId, out: &mut Effects<Raft>) {
        self.node.links_down.insert(peer);
        match &mut self.role_state {
            RoleState::Leader(office) => {
                if let Some(progress) = office.peers.get_mut(&peer) {
                    // Messages in flight are lost (RA-9).
                    progress.become_probe(progress.known.stored + 1);
                }
            }
            _ if self.node.leader == Some(peer) => self.on_leader_link_down(peer, out),
            _ => self.on_voter_link_down(out),
        }
    }

    /// The disk does not answer: a leader gives way while its messages still do (ADR 31).
    fn on_disk_stalled(&mut self, out: &mut Effects<Raft>) {
        self.node.is_disk_stalled = true;
        match self.role_state {
            RoleState::Leader(_) => self.hand_over_and_follow(Reason::DiskStalled, out),
            // Asked while the disk still answered; to win now would be to lead without being able to write.
            RoleState::PreCandidate { .. } | RoleState::Candidate { .. } => {
                self.become_follower(self.node.promise.term, None, Reason::DiskStalled, out);
            }
            RoleState::Follower => {}
        }
    }

    fn on_asked_to_forget(&mut self, ticket: Ticket, out: &mut Effects<Raft>) {
        // On leaders and candidates it changes nothing (RQ-2).
        if matches!(self.role_state, RoleState::Follower) && self.node.leader.is_some() {
            self.forget_leader(Reason::LeaderForgotten, out);
        }
        out.reply(ticket, Outcome::Done);
    }
}
