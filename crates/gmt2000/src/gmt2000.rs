//! The value: [`Gmt2000`], its state, its one dispatcher, and what is always true of it.
//! Its moves between roles are in [`crate::roles`].
//!
//! The text's two machines run in one value: [`crate::elector`] is WATCHING and VOTING, [`crate::candidate`] is FOLLOWER and
//! LEADER. Read next: [`crate::elector`].

use crate::elector::{Ballot, Standing};
use crate::laboratory::Defect;
use crate::message::Message;
use crate::published::Published;
use hustings_core::leading::{Following, HandingOver, Leads, Node, Office, Progress, Reading, Replicating};
use hustings_core::protocol::{DiskHealth, LinkState};
use hustings_core::{
    Admin, Cluster, Contradiction, Durable, Effects, Input, Links, Log, NodeId, Outcome, Promise, Protocol, Reason,
    RestsOn, Role, Status, Term, Ticket,
};

use std::collections::BTreeSet;

pub use crate::options::Options;
pub use crate::timer::Timer;

/// The present role of a node, with the state that only this role has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum RoleState {
    Watching,
    Voting,
    Leader(Box<Office<Progress>>),
}

/// A GMT-2000 node as a plain value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Gmt2000 {
    /// The base; its promise is the last ballot that this node voted in or follows the winner of, and its vote in it.
    pub(crate) node: Node,
    pub(crate) role_state: RoleState,
    /// The election that is on, or the last one that was.
    pub(crate) ballot: Ballot,
    /// The last term that this node led in this life.
    pub(crate) reign: Term,
    /// Whether a majority had claimed when this node's last election was over; no more once there is a leader.
    pub(crate) hears_majority: bool,
    /// Ballots in a row in which it voted for itself, and lost.
    pub(crate) losses: u8,
    /// Nodes that are no voters as far as this node knows, and that claimed more than it holds since it last followed a leader.
    pub(crate) strangers: BTreeSet<NodeId>,
    /// Whether the leader was heard within the shortest election timeout.
    pub(crate) is_leader_fresh: bool,
    /// The ballot of the last own ELECT, while less than a round trip has passed since: the text allows no second one.
    pub(crate) calling: Option<Term>,
    /// An election that this node wants to start as soon as the round trip has passed.
    pub(crate) wanted: Option<(Reason, Standing)>,
    /// Elections left that follow each other after a short jitter instead of an election timeout, after a link-down.
    pub(crate) eager_rounds: u8,
    /// The leader whose link dropped, while that is why this node elects.
    pub(crate) lost_leader: Option<NodeId>,
    /// The elector and the candidate of the published form, which then replace ours.
    pub(crate) published: Option<Box<Published>>,
    /// A planted defect, in the laboratory.
    pub(crate) defect: Option<Defect>,
}

impl Protocol for Gmt2000 {
    type Message = Message;
    type Timer = Timer;
    type Options = Options;

    const NAME: &'static str = "gmt2000";
    const LINKS: Links = Links::Any;
    /// Ties go to the smallest id.
    const SYMMETRIC: bool = false;

    fn start(cluster: Cluster, options: Options, recovered: Durable, out: &mut Effects<Gmt2000>) -> Gmt2000 {
        let (mut node, recorded) = Node::recover(cluster, recovered, out);
        if options.as_published {
            // Nothing but the log survives, and the log tells only which term was last seen in it.
            node.promise = Promise::without_vote(node.log.last().term);
        }
        let mut value = Gmt2000 {
            role_state: RoleState::Watching,
            ballot: Ballot::numbered(node.promise.term),
            node,
            reign: Term::ZERO,
            hears_majority: false,
            losses: 0,
            strangers: BTreeSet::new(),
            is_leader_fresh: false,
            calling: None,
            wanted: None,
            eager_rounds: 0,
            lost_leader: None,
            published: options.as_published.then(Box::default),
            defect: options.defect,
        };
        value.announce_start(out);
        // Messages that a recorded commit covers were committed, and a change in them is in force.
        value.apply_through(recorded, out);
        value.watch_initially(out);
        if value.node.is_alone() && value.node.may_lead() && value.published.is_none() {
            value.start_election(Reason::Alone, Standing::Ordinary, out);
        }
        value
    }

    fn step(&mut self, input: Input<Gmt2000>, out: &mut Effects<Gmt2000>) {
        match input {
            Input::Message { from, message } if from == self.node.me => self.on_own_message(message, out),
            Input::Message { from, message } => self.on_message(from, message, out),
            Input::Timer(Timer::Watch) => self.on_watch_timer(out),
            Input::Timer(Timer::Round) => self.on_round_timer(out),
            Input::Timer(Timer::Freshness) => self.on_freshness_timer(out),
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
        assert!(self.node.log.last().term <= self.node.promise.term, "no message is of a term beyond the ballot");
        if let RoleState::Leader(office) = &self.role_state {
            assert_eq!(self.node.leader, Some(self.node.me), "a leader follows itself");
            assert!(self.node.log.last().term == self.node.promise.term, "a leader's log ends in its own term");
            office.peers.values().for_each(Progress::assert_invariants);
            assert!(
                office.peers.values().all(|peer| peer.known.stored <= self.node.log.last().index),
                "nobody stores what the leader never wrote"
            );
        } else {
            assert_ne!(self.node.leader, Some(self.node.me), "only a leader leads");
        }
        if self.published.is_none() && matches!(self.role_state, RoleState::Voting) {
            assert_eq!(self.node.leader, None, "who votes follows nobody");
            assert!(self.ballot.number > self.node.promise.term, "nobody votes twice in a ballot (G2)");
        }
    }
}

impl Gmt2000 {
    // --- Questions. ----------------------------------------------------------------------------------------------

    pub(crate) fn role(&self) -> Role {
        match self.role_state {
            RoleState::Leader(_) => Role::Leader,
            RoleState::Voting => Role::Candidate,
            RoleState::Watching if self.is_awaiting_votes() || self.is_voting_as_published() => Role::Candidate,
            RoleState::Watching => Role::Follower,
        }
    }

    /// The log, for inspection.
    pub fn log(&self) -> &Log {
        &self.node.log
    }

    /// The ballot and vote, for inspection.
    pub fn promise(&self) -> Promise {
        self.node.promise
    }

    /// This leader's state of `peer`; `None` unless this node leads and sends to it.
    pub fn peer(&self, peer: NodeId) -> Option<&Progress> {
        self.office()?.peers.get(&peer)
    }

    pub(crate) fn is_leading(&self) -> bool {
        matches!(self.role_state, RoleState::Leader(_))
    }

    /// Whether this node's form is for the laboratory: what it leads to is a finding.
    pub(crate) fn is_laboratory(&self) -> bool {
        self.defect.is_some() || self.published.is_some()
    }

    /// Whether this defect is planted in the node.
    pub(crate) fn has_defect(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    // --- Messages. -----------------------------------------------------------------------------------------------

    /// Takes a message to itself, sent once a record is durable; from an earlier ballot it means nothing.
    fn on_own_message(&mut self, message: Message, out: &mut Effects<Gmt2000>) {
        if message.term() != self.node.promise.term {
            return;
        }
        match message {
            Message::Vote { choice, claim, .. } => self.on_own_vote(choice, claim, out),
            Message::Stored { index, .. } => self.on_stored(self.node.me, index, out),
            other => unreachable!("a node never says {other:?} to itself"),
        }
    }

    fn on_message(&mut self, from: NodeId, message: Message, out: &mut Effects<Gmt2000>) {
        let term = message.term();
        if !self.node.promise.term.may_follow(term) {
            return;
        }
        match message {
            Message::Elect { claim, .. } if self.published.is_some() => self.on_elect_as_published(from, claim, out),
            Message::Vote { claim, .. } if self.published.is_some() => self.on_vote_as_published(from, claim, out),
            Message::Elect { ballot, claim, commit } => self.on_elect(from, ballot, claim, commit, out),
            Message::Vote { ballot, claim, .. } => self.on_vote(from, ballot, claim, out),
            Message::Obsolete { term } => self.on_obsolete(from, term, out),
            message if message.is_from_leader() => self.on_leader_message(from, message, out),
            message if term == self.node.promise.term => self.on_answer(from, message, out),
            // An answer to an earlier reign, or to one that this node never had.
            _ => {}
        }
    }

    /// A LEAD below the ballot is obsolete; one at or above it is followed, whatever this node was at (§4.4 c, d).
    fn on_leader_message(&mut self, from: NodeId, message: Message, out: &mut Effects<Gmt2000>) {
        let term = message.term();
        if self.node.is_contradicted_by(from, term) {
            return;
        }
        if term < self.node.promise.term {
            if self.published.is_none() {
                out.send_resting_on(RestsOn::Nothing, from, Message::Obsolete { term: self.node.promise.term });
            }
            return;
        }
        if self.is_leading() && term == self.node.promise.term && self.published.is_none() {
            // This node leads the term (G1), so a peer that says otherwise lies or is broken; that is no reason to end.
            return;
        }
        self.follow(from, term, out);
        match message {
            Message::Lead { previous, entries, commit, round, .. } => {
                self.on_lead(from, previous, entries, commit, round, out)
            }
            Message::Snapshot { reference, .. } => self.on_snapshot(from, reference, out),
            Message::Handover { .. } => self.on_handover(from, out),
            other => unreachable!("{other:?} does not come from a leader"),
        }
    }

    fn on_answer(&mut self, from: NodeId, message: Message, out: &mut Effects<Gmt2000>) {
        match message {
            Message::Heard { round, priority, is_installing, .. } => {
                self.on_heard(from, round, priority, is_installing, out)
            }
            Message::Stored { index, .. } => self.on_stored(from, index, out),
            Message::Gap { index, hint_index, hint_term, .. } => self.on_gap(from, index, hint_index, hint_term, out),
            Message::SnapshotFailed { lsn, .. } => {
                if let Some(peer) = self.peer_mut(from) {
                    peer.on_fetch_failed(lsn.index);
                }
            }
            other => unreachable!("{other:?} is not an answer"),
        }
    }

    // --- Links, disk, administrators. ----------------------------------------------------------------------------

    fn on_link_up(&mut self, peer: NodeId, out: &mut Effects<Gmt2000>) {
        self.node.links_down.remove(&peer);
        // A node that comes back learns at once which node leads.
        self.send_heartbeat_to(peer, out);
    }

    fn on_link_down(&mut self, peer: NodeId, out: &mut Effects<Gmt2000>) {
        self.node.links_down.insert(peer);
        match &mut self.role_state {
            RoleState::Leader(office) => {
                if let Some(peer) = office.peers.get_mut(&peer) {
                    // Messages in flight are lost.
                    peer.become_probe(peer.known.stored + 1);
                }
            }
            // The note knows only silence.
            _ if self.published.is_some() => {}
            _ if self.node.leader == Some(peer) => self.on_leader_link_down(peer, out),
            _ => self.settle_slate(out),
        }
    }

    /// The disk does not answer: a leader gives way while its messages still do (ADR 31).
    fn on_disk_stalled(&mut self, out: &mut Effects<Gmt2000>) {
        self.node.is_disk_stalled = true;
        if self.is_leading() {
            self.hand_over_and_follow(Reason::DiskStalled, out);
        }
    }

    fn on_asked_to_forget(&mut self, ticket: Ticket, out: &mut Effects<Gmt2000>) {
        // On leaders and voters it changes nothing.
        if matches!(self.role_state, RoleState::Watching) && self.node.leader.is_some() {
            self.forget_leader(Reason::LeaderForgotten, out);
        }
        out.reply(ticket, Outcome::Done);
    }
}
