//! The value: [`Zab`], its state, its one dispatcher, and what is always true of it.
//! Its moves between phases are in [`crate::roles`].
//!
//! In the house's words: looking, and leading before the epoch is promised, is `Candidate`; then `Synchronizing`; then `Leader`.
//! Read next: [`crate::vote`], [`crate::election`].

use crate::election::Looking;
use crate::laboratory::Defect;
use crate::learner::Learner;
use crate::message::{Message, Notification};
use crate::options::Options;
use crate::vote::Vote;
use hustings_core::leading::{HandingOver, Node, Office, Reading, Replicating};
use hustings_core::protocol::{DiskHealth, LinkState};
use hustings_core::quorum::Verdict;
use hustings_core::{
    Admin, Cluster, Contradiction, Durable, Effects, Input, Links, Log, Lsn, NodeId, Priority, Protocol, Reason,
    RestsOn, Role, SnapshotReference, Status, Term,
};
use std::collections::BTreeSet;

pub use crate::timer::Timer;

/// The phase of a server that has found its leader (§5.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// The epoch is being agreed upon.
    Discovery,
    /// History is being brought in line.
    Synchronization,
    /// Proposals are broadcast: the leader serves.
    Broadcast,
}

/// State of a server that follows a leader.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Following {
    pub(crate) leader: NodeId,
    pub(crate) phase: Phase,
    /// The final vote, with which those who look are answered.
    pub(crate) vote: Vote,
    /// Whether the leader was heard within the shortest election timeout, or is not expected yet.
    pub(crate) is_leader_fresh: bool,
    /// Whether this server held more than the leader when it settled for it.
    pub(crate) is_ahead: bool,
}

/// State of a server that leads, elected or established.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Leading {
    pub(crate) phase: Phase,
    /// Whether the epoch is fixed, and its number with it.
    pub(crate) is_epoch_fixed: bool,
    pub(crate) vote: Vote,
    /// Leader-only state of every protocol. Its peers are the followers, and this node itself.
    pub(crate) office: Office<Learner>,
    /// Last index of the history with which the epoch began: zxid counters count from here.
    pub(crate) epoch_start: u64,
    pub(crate) lost: Lost,
}

/// Losses of a leader since something was committed last.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Lost {
    /// The commit index at that time.
    pub(crate) commit: u64,
    /// Number of connections that ended because a follower was not heard in time.
    pub(crate) connections: usize,
}

/// The present role of a node, with the state that only this role has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum RoleState {
    Looking(Box<Looking>),
    Following(Following),
    Leading(Box<Leading>),
}

/// A ZAB node as a plain value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Zab {
    /// The base that all protocols share. Its promise is acceptedEpoch, the highest epoch promised by accepting a LEADERINFO; its leader is known from
    /// UPTODATE on, when it serves; what it installs is what its state machine is being rebuilt from.
    pub(crate) node: Node,
    pub(crate) options: Options,
    /// currentEpoch as it is on disk: the epoch of the last leader whose NEWLEADER was accepted.
    pub(crate) established: Term,
    pub(crate) role_state: RoleState,
    /// The logical clock of elections, from 0 in each life.
    pub(crate) round: u64,
    /// The number of the last connection to a leader in this life.
    pub(crate) connection: u64,
    /// Members that may be connected, but nothing was heard of them in this life.
    pub(crate) unmet: BTreeSet<NodeId>,
    /// The last leader handed over to this node.
    pub(crate) is_successor: bool,
    /// Its last attempt to lead found no quorum that answered in time, or its own disk did not: somebody else may try first.
    pub(crate) gives_way: bool,
    /// Attempts to lead that came to nothing, one after the other, counted to `VAIN_ATTEMPTS_MAX`.
    pub(crate) vain_attempts: u8,
    /// The snapshot that is being fetched.
    pub(crate) fetching: Option<SnapshotReference>,
}

impl Protocol for Zab {
    type Message = Message;
    type Timer = Timer;
    type Options = Options;

    const NAME: &'static str = "zab";
    const LINKS: Links = Links::Session;
    /// Ties go to the largest id.
    const SYMMETRIC: bool = false;

    fn start(cluster: Cluster, options: Options, recovered: Durable, out: &mut Effects<Zab>) -> Zab {
        let established = recovered.established;
        let (node, recorded) = Node::recover(cluster, recovered, out);
        let promised = node.promise.term;
        assert!(promised >= node.log.last().term, "acceptedEpoch is at least the epoch of the last zxid (Z8)");
        assert!(promised >= established, "acceptedEpoch is at least currentEpoch (Z8)");
        let mut value = Zab {
            options,
            established,
            role_state: RoleState::Looking(Box::new(Looking::unborn(node.me))),
            node,
            round: 0,
            connection: 0,
            unmet: BTreeSet::new(),
            is_successor: false,
            gives_way: false,
            vain_attempts: 0,
            fetching: None,
        };
        // Entries that a recorded commit covers were committed, and a change in them is in force.
        value.apply_through(recorded, out);
        value.unmet = value.node.membership.everyone().filter(|id| *id != value.node.me).collect();
        // The article: "every server looks for a leader at start".
        value.become_looking(Reason::Started, out);
        value
    }

    fn step(&mut self, input: Input<Zab>, out: &mut Effects<Zab>) {
        match input {
            Input::Message { from, message } if from == self.node.me => self.on_own_message(message, out),
            Input::Message { from, message } => self.on_message(from, message, out),
            Input::Timer(Timer::Resend) => self.on_resend_timer(out),
            Input::Timer(Timer::Speak) => self.on_speak_timer(out),
            Input::Timer(Timer::Finalize) => self.on_finalize_timer(out),
            Input::Timer(Timer::InitLimit) => self.on_init_limit(out),
            Input::Timer(Timer::Silence) => self.on_silence(out),
            Input::Timer(Timer::Freshness) => self.on_freshness_timer(),
            Input::Timer(Timer::Ping) => self.on_ping_timer(out),
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
            Input::Health(DiskHealth::Recovered) => self.on_disk_recovered(out),
        }
    }

    fn status(&self) -> Status {
        self.node.status(self.role(), self.node.leader)
    }

    /// The freshness as votes compare it: currentEpoch, then the last zxid ([`crate::vote::Vote`]).
    fn freshness(held: &Durable) -> (Term, Lsn) {
        let last = held.last();
        (held.established.max(last.term), last)
    }

    fn contradiction(&self) -> Option<Contradiction> {
        self.node.contradiction
    }

    fn overdue_commit(&self) -> Option<u64> {
        self.committable().filter(|_| self.is_serving())
    }

    fn assert_invariants(&self) {
        self.node.assert_invariants();
        assert!(
            self.node.promise.term >= self.current_epoch(),
            "acceptedEpoch >= currentEpoch >= epoch of the last zxid (Z8)"
        );
        match &self.role_state {
            RoleState::Leading(leading) => {
                assert!(leading.office.peers.contains_key(&self.node.me), "a leader counts itself");
                leading.office.peers.values().for_each(Learner::assert_invariants);
                let last = self.node.log.last().index;
                assert!(
                    leading.office.peers.values().all(|learner| learner.known.stored <= last),
                    "nobody stores what the leader never wrote"
                );
                let serves = leading.phase == Phase::Broadcast;
                assert_eq!(
                    self.node.leader == Some(self.node.me),
                    serves,
                    "a leader is known from NEWLEADER's quorum on"
                );
                assert!(!serves || self.established == self.node.promise.term, "a leader serves in its own epoch");
            }
            RoleState::Following(following) => {
                assert!(following.leader != self.node.me, "nobody follows itself");
                assert!(self.node.leader != Some(self.node.me), "only a leader leads");
            }
            RoleState::Looking(_) => assert_eq!(self.node.leader, None, "who looks has no leader"),
        }
    }
}

impl Zab {
    // --- Questions. ----------------------------------------------------------------------------------------------

    pub(crate) fn role(&self) -> Role {
        match &self.role_state {
            RoleState::Looking(_) if self.node.membership.is_voter(self.node.me) => Role::Candidate,
            RoleState::Looking(_) | RoleState::Following(_) => Role::Follower,
            RoleState::Leading(leading) => match leading.phase {
                Phase::Discovery => Role::Candidate,
                Phase::Synchronization => Role::Synchronizing,
                Phase::Broadcast => Role::Leader,
            },
        }
    }

    /// The log, for inspection.
    pub fn log(&self) -> &Log {
        &self.node.log
    }

    /// The logical clock of elections, for inspection.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// The phase, unless this node looks for a leader.
    pub fn phase(&self) -> Option<Phase> {
        match &self.role_state {
            RoleState::Looking(_) => None,
            RoleState::Following(following) => Some(following.phase),
            RoleState::Leading(leading) => Some(leading.phase),
        }
    }

    /// The leader that this node has settled to follow, whether or not that one serves already.
    pub fn chosen(&self) -> Option<NodeId> {
        match &self.role_state {
            RoleState::Looking(_) => None,
            RoleState::Following(following) => Some(following.leader),
            RoleState::Leading(_) => Some(self.node.me),
        }
    }

    /// This leader's state of `peer`; `None` unless this node leads and the peer follows it.
    pub fn learner(&self, peer: NodeId) -> Option<&Learner> {
        match &self.role_state {
            RoleState::Leading(leading) => leading.office.peers.get(&peer),
            _ => None,
        }
    }

    pub(crate) fn learner_mut(&mut self, peer: NodeId) -> Option<&mut Learner> {
        match &mut self.role_state {
            RoleState::Leading(leading) => leading.office.peers.get_mut(&peer),
            _ => None,
        }
    }

    /// currentEpoch: the newest leader whose history this node holds.
    ///
    /// `[OURS]` An entry of epoch e stands behind all of the history with which e began, so a log that ends in e is as good
    /// as an acknowledged NEWLEADER of e. ZooKeeper refuses to start on such a disk (ZOOKEEPER-2307); the crash that leaves it
    /// is an ordinary one, between the entries and the epoch.
    pub fn current_epoch(&self) -> Term {
        self.established.max(self.node.log.last().term)
    }

    pub(crate) fn has_defect(&self, defect: Defect) -> bool {
        let is_published = matches!(defect, Defect::EpochBeforeEntries | Defect::UnsyncedNewLeaderAck);
        self.options.defect == Some(defect) || (is_published && self.options.as_published)
    }

    pub(crate) fn is_leading(&self) -> bool {
        matches!(self.role_state, RoleState::Leading(_))
    }

    /// Whether this node is an established leader.
    pub(crate) fn is_serving(&self) -> bool {
        matches!(&self.role_state, RoleState::Leading(leading) if leading.phase == Phase::Broadcast)
    }

    /// Whether this node may lead: also connected to a quorum, and fetching nothing.
    pub(crate) fn may_lead(&self) -> bool {
        self.node.may_lead() && self.is_connected_to_quorum() && self.fetching.is_none()
    }

    /// The priority that it reports: [`Priority::Never`] while it cannot lead.
    pub(crate) fn said_priority(&self) -> Priority {
        if self.may_lead() { self.node.priority() } else { Priority::Never }
    }

    /// Whether a quorum could follow this node, by what it knows of its connections.
    ///
    /// `[OURS]` ZooKeeper's server wants to lead all servers that it reaches, and a server that hears both it and a better connected one
    /// votes for the larger id, in vain, again and again (`scenarios/chain`). Here it has weight 0 until it reaches a quorum. Freshness
    /// orders the servers that remain, and nothing rests on the result of an election: discovery refuses a leader whose quorum knows more.
    fn is_connected_to_quorum(&self) -> bool {
        self.node.membership.verdict(|id| Some(!self.node.links_down.contains(&id))) == Verdict::Won
    }

    /// Whether this node was a member and is none any more: it looks for nobody.
    pub(crate) fn is_retired(&self) -> bool {
        !self.node.membership.has(self.node.me) && self.node.me.0 < self.node.membership.next_id
    }

    // --- Messages. -----------------------------------------------------------------------------------------------

    /// Takes a message to itself, sent once a record is durable; from an earlier epoch it means nothing.
    fn on_own_message(&mut self, message: Message, out: &mut Effects<Zab>) {
        match message {
            _ if message.epoch() != Some(self.node.promise.term) || !self.is_leading() => {}
            Message::AckEpoch { .. } => self.on_own_promise(out),
            Message::AckNewLeader { index, .. } => self.on_ack_new_leader(self.node.me, index, out),
            Message::Ack { index, .. } => self.on_ack(self.node.me, index, out),
            other => unreachable!("a node never says {other:?} to itself"),
        }
    }

    fn on_message(&mut self, from: NodeId, message: Message, out: &mut Effects<Zab>) {
        self.on_sign_of_life(from, out);
        if message.epoch().is_some_and(|epoch| !self.node.promise.term.may_follow(epoch)) {
            return;
        }
        if let Message::Notification(Notification { round, vote, .. }) = &message
            && !(Term(self.round).may_follow(Term(*round)) && self.node.promise.term.may_follow(vote.epoch))
        {
            // Rounds count up like terms, and a leap is damage: adopted and said again, it would end the number space.
            return;
        }
        match message {
            Message::Notification(notification) => self.on_notification(from, notification, out),
            Message::FollowerInfo { connection, accepted } => self.on_follower_info(from, connection, accepted, out),
            Message::Goodbye { connection } => self.on_goodbye(from, connection, out),
            message if message.is_from_leader() => self.on_leader_message(from, message, out),
            message => self.on_learner_message(from, message, out),
        }
    }

    /// Takes a message of the leader, if it is of the present connection.
    fn on_leader_message(&mut self, from: NodeId, message: Message, out: &mut Effects<Zab>) {
        let RoleState::Following(following) = &mut self.role_state else { return };
        if following.leader != from || message.connection() != Some(self.connection) {
            return;
        }
        let phase = following.phase;
        following.is_leader_fresh = true;
        out.set_timer(Timer::Silence, self.node.timing.election());
        out.set_timer(Timer::Freshness, self.node.timing.election_min..=self.node.timing.election_min);
        if let Message::LeaderInfo { epoch, .. } = message {
            return self.on_leader_info(from, epoch, out);
        }
        if phase == Phase::Discovery || message.epoch() != Some(self.node.promise.term) {
            return;
        }
        match message {
            Message::Diff { .. } => self.on_diff(out),
            Message::Truncate { to, .. } => self.on_truncate(to, out),
            Message::Snapshot { reference, .. } => self.on_snapshot(from, reference, out),
            Message::Proposal { previous, entries, commit, .. } => {
                self.on_proposal(from, previous, entries, commit, out)
            }
            Message::NewLeader { .. } => self.on_new_leader(from, out),
            Message::UpToDate { commit, .. } => self.on_up_to_date(from, commit, out),
            Message::Commit { commit, .. } => self.on_commit(commit, out),
            Message::Ping { round, .. } => self.on_ping(from, round, out),
            Message::Handover { .. } => self.on_handover(from),
            other => unreachable!("{other:?} does not come from a leader"),
        }
    }

    fn on_learner_message(&mut self, from: NodeId, message: Message, out: &mut Effects<Zab>) {
        let epoch = self.node.promise.term;
        let RoleState::Leading(leading) = &mut self.role_state else { return };
        let Some(learner) = leading.office.peers.get_mut(&from) else { return };
        if Some(learner.connection) != message.connection() || message.epoch() != Some(epoch) {
            return;
        }
        learner.known.is_active = true;
        match message {
            Message::AckEpoch { current, is_promise, last, commit, priority, .. } => {
                self.on_ack_epoch(from, current, is_promise, last, commit, priority, out)
            }
            Message::AckNewLeader { index, .. } => self.on_ack_new_leader(from, index, out),
            Message::Ack { index, .. } => self.on_ack(from, index, out),
            Message::Pong { round, priority, is_installing, .. } => {
                self.on_pong(from, round, priority, is_installing, out)
            }
            other => unreachable!("{other:?} does not come from a learner"),
        }
    }

    // --- Goodbyes. -----------------------------------------------------------------------------------------------

    pub(crate) fn say_goodbye(&self, to: NodeId, connection: u64, out: &mut Effects<Zab>) {
        if to != self.node.me && !self.node.links_down.contains(&to) {
            out.send_resting_on(RestsOn::Nothing, to, Message::Goodbye { connection });
        }
    }

    /// The other side ended the connection.
    fn on_goodbye(&mut self, from: NodeId, number: u64, out: &mut Effects<Zab>) {
        match &mut self.role_state {
            RoleState::Looking(looking) => {
                looking.callers.remove(&from);
            }
            RoleState::Following(following) if following.leader == from && self.connection == number => {
                self.become_looking(Reason::LeaderResigned(from), out)
            }
            RoleState::Following(_) => {}
            RoleState::Leading(leading) => {
                if leading.office.peers.get(&from).is_some_and(|learner| learner.connection == number) {
                    leading.office.peers.remove(&from);
                }
            }
        }
    }
}
