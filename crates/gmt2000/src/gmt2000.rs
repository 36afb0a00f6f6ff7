//! The value: [`Gmt2000`], its state, its one dispatcher, and the moves between roles.
//!
//! ```text
//!                 silence, link down,                every claim heard, or            a majority of
//!                 an ELECT from elsewhere            a round trip passed              identical votes
//!    ┌─────────► Watching ───────────────► Voting ───────────────────► Watching ────────────────────► Leader
//!    │              ▲      (slate: claims)            (one durable vote)   (board: votes)                │
//!    │              └──────────────────────── LEAD of this ballot or a later one ────────────────────────┤
//!    └── born, with its ballot and log                                    later ballot, no quorum, handed over
//! ```
//!
//! The text's two machines run in one value: [`crate::elector`] is WATCHING and VOTING, [`crate::candidate`] is FOLLOWER and
//! LEADER. What to read next: [`crate::elector`].

use crate::elector::{Ballot, Standing};
use crate::laboratory::Defect;
use crate::message::Message;
use crate::peer::Peer;
use crate::published::Published;
use crate::read::Reads;
use crate::transfer::Transfer;
use hustings_core::options::{self, Switch};
use hustings_core::protocol::{DiskHealth, LinkState};
use hustings_core::{
    Admin, Cluster, Durable, Effect, Effects, EntryKind, Input, Limits, Links, Log, Lsn, Membership, NodeId, Outcome,
    Patience, Priority, Promise, Protocol, Reason, Record, RestsOn, Role, SnapshotReference, Status, Term, Ticket,
    Timing, Transition,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// GMT-2000's switches.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Options {
    /// Elect exactly as the note of 2000 does: no ballots, votes that exclude nothing and survive nothing. Two leaders in one
    /// term are reachable without a crash or a loss (§4.6 of the protocol notes). For the laboratory only.
    pub as_published: bool,
    /// A planted defect. For proofs that the judge convicts; no server takes one.
    pub defect: Option<Defect>,
}

impl Options {
    /// The published form.
    pub const PUBLISHED: Options = Options { as_published: true, defect: None };
}

impl options::Options for Options {
    const SWITCHES: &'static [Switch] = &[];

    fn set(&mut self, _: &str, _: &str) -> Option<()> {
        None
    }

    fn is_laboratory(&self) -> bool {
        self.as_published || self.defect.is_some()
    }
}

/// The alarms that GMT-2000 sets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// The elector's timer while it is WATCHING: nobody was heard, or the last election led to nothing.
    Watch,
    /// The elector's timer while it is VOTING: a round trip has passed since the own ELECT.
    Round,
    /// The leader was last heard exactly the shortest election timeout ago: from now on an ELECT moves this node.
    Freshness,
    /// The leader speaks.
    Heartbeat,
    /// The leader counts whom it heard.
    QuorumCheck,
    /// A hand-over took too long.
    Transfer,
}

/// What only a leader knows.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Leader {
    pub(crate) peers: BTreeMap<NodeId, Peer>,
    pub(crate) reads: Reads,
    pub(crate) transfer: Option<Transfer>,
    /// The last index that may hold a change of membership: no other starts before it is applied.
    pub(crate) pending_change: u64,
    /// The index of this leader's first own message: reads, changes and older messages wait for its commit.
    pub(crate) first_own: u64,
    /// The bytes of proposals beyond the commit.
    pub(crate) uncommitted_bytes: usize,
}

/// What a node is at, with the state that only that has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Part {
    Watching,
    Voting,
    Leader(Box<Leader>),
}

/// A GMT-2000 node as a plain value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Gmt2000 {
    pub(crate) me: NodeId,
    pub(crate) timing: Timing,
    pub(crate) priority: Priority,
    pub(crate) limits: Limits,
    /// The last ballot that this node voted in or follows the winner of, and its vote in it.
    pub(crate) promise: Promise,
    pub(crate) log: Log,
    pub(crate) commit: u64,
    pub(crate) snapshot: Option<SnapshotReference>,
    pub(crate) membership: Arc<Membership>,
    pub(crate) part: Part,
    /// The election that is on, or the last one that was.
    pub(crate) ballot: Ballot,
    pub(crate) leader: Option<NodeId>,
    /// The last term that this node led in this life.
    pub(crate) reign: Term,
    /// Whether a majority had claimed when this node's last election was over; no more once there is a leader.
    pub(crate) hears_majority: bool,
    /// Ballots in a row in which it voted for itself, and lost.
    pub(crate) losses: u8,
    /// Whether the leader was heard within the shortest election timeout.
    pub(crate) is_leader_fresh: bool,
    /// Whether less than a round trip has passed since the last own ELECT: the text allows no second one.
    pub(crate) is_round_on: bool,
    /// An election that this node wants to start as soon as the round trip has passed.
    pub(crate) wanted: Option<(Reason, Standing)>,
    /// Peers whose connection is known to be gone.
    pub(crate) links_down: BTreeSet<NodeId>,
    /// Elections left that follow each other after a short jitter instead of an election timeout, after a link-down.
    pub(crate) eager_rounds: u8,
    /// The leader whose link dropped, while that is why this node elects.
    pub(crate) lost_leader: Option<NodeId>,
    /// The snapshot that is being fetched or installed: no candidacy, no new one.
    pub(crate) installing: Option<SnapshotReference>,
    /// Who waits to hear how a hand-over ended.
    pub(crate) transfer_ticket: Option<(NodeId, Ticket)>,
    /// Whether this node, which must never lead, leads all the same until another has caught up: it holds what those who may
    /// lead lack, and nobody gives entries without leading.
    pub(crate) is_caretaker: bool,
    /// Whether it refused somebody for want of what it holds, and nobody leads since.
    pub(crate) has_refused_for_log: bool,
    pub(crate) patience: Patience,
    pub(crate) is_disk_stalled: bool,
    /// The elector and the candidate of the published form, which then replace ours.
    pub(crate) published: Option<Box<Published>>,
    /// What is wrong with it on purpose.
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
        let Cluster { me, membership, timing, priority, limits } = cluster;
        let Durable { promise, snapshot, entries, committed, established: _ } = recovered;
        let base = snapshot.as_ref().map_or(Lsn::ZERO, |reference| reference.lsn);
        let membership = snapshot.as_ref().map_or(membership, |reference| reference.membership.clone());
        let mut log = Log::after(base);
        for entry in entries.into_values() {
            let last = log.last();
            if entry.lsn.index != last.index + 1 || entry.lsn.term < last.term {
                // What a crash in the middle of a step's records left unconnected was never acknowledged.
                out.persist(Record::TruncateFrom(entry.lsn.index));
                break;
            }
            log.append(entry);
        }
        let published = options.as_published.then(Box::default);
        // In the published form nothing but the log survives, and the log tells only which term was last seen in it.
        let promise = if options.as_published { Promise::without_vote(log.last().term) } else { promise };
        let mut node = Gmt2000 {
            me,
            timing,
            priority,
            limits,
            promise,
            log,
            commit: base.index,
            snapshot,
            membership,
            part: Part::Watching,
            ballot: Ballot::numbered(promise.term),
            leader: None,
            reign: Term::ZERO,
            hears_majority: false,
            losses: 0,
            is_leader_fresh: false,
            is_round_on: false,
            wanted: None,
            links_down: BTreeSet::new(),
            eager_rounds: 0,
            lost_leader: None,
            installing: None,
            transfer_ticket: None,
            is_caretaker: false,
            has_refused_for_log: false,
            patience: Patience::new(),
            is_disk_stalled: false,
            published,
            defect: options.defect,
        };
        node.announce(Role::Follower, Reason::Started, out);
        // A recorded commit is a lower bound: what it covers was committed, and a change in it is in force.
        let recorded = committed.index.min(node.log.last().index);
        node.apply_through(recorded, out);
        node.watch_initially(out);
        if node.is_alone() && node.may_lead() && node.published.is_none() {
            node.start_election(Reason::Alone, Standing::Ordinary, out);
        }
        node
    }

    fn step(&mut self, input: Input<Gmt2000>, out: &mut Effects<Gmt2000>) {
        match input {
            Input::Message { from, message } if from == self.me => self.on_own_message(message, out),
            Input::Message { from, message } => self.on_message(from, message, out),
            Input::Alarm(Timer::Watch) => self.on_watch_alarm(out),
            Input::Alarm(Timer::Round) => self.on_round_alarm(out),
            Input::Alarm(Timer::Freshness) => self.on_freshness_alarm(out),
            Input::Alarm(Timer::Heartbeat) => self.on_heartbeat_alarm(out),
            Input::Alarm(Timer::QuorumCheck) => self.on_quorum_check(out),
            Input::Alarm(Timer::Transfer) => self.on_transfer_alarm(out),
            Input::Link { peer, state: LinkState::Up } => self.on_link_up(peer, out),
            Input::Link { peer, state: LinkState::Down } => self.on_link_down(peer, out),
            Input::Propose(proposals) => self.on_propose(proposals, out),
            Input::Read { ticket } => self.on_read(ticket, out),
            Input::Compact(reference) => self.on_compact(reference, out),
            Input::SnapshotReady(reference) => self.on_snapshot_ready(reference, out),
            Input::SnapshotFailed(reference) => self.on_snapshot_failed(reference, out),
            Input::SnapshotInstalled(lsn) => self.on_snapshot_installed(lsn),
            Input::Admin { ticket, request: Admin::Campaign } => self.on_asked_to_campaign(ticket, out),
            Input::Admin { ticket, request: Admin::Resign } => self.on_asked_to_resign(ticket, out),
            Input::Admin { ticket, request: Admin::Transfer(to) } => self.on_asked_to_transfer(ticket, to, out),
            Input::Admin { ticket, request: Admin::ForgetLeader } => self.on_asked_to_forget(ticket, out),
            Input::Retime(timing) => self.timing = timing,
            Input::Health(DiskHealth::Stalled) => self.on_disk_stalled(out),
            Input::Health(DiskHealth::Recovered) => self.is_disk_stalled = false,
        }
    }

    fn status(&self) -> Status {
        Status {
            role: self.role(),
            term: self.promise.term,
            leader: self.leader,
            last: self.log.last(),
            commit: self.commit,
            first_index: self.log.first_index(),
            membership: self.membership.clone(),
        }
    }

    fn assert_invariants(&self) {
        assert!(self.log.base().index <= self.commit, "only what is committed is compacted");
        assert!(self.commit <= self.log.last().index, "what is committed is in the log");
        assert!(self.log.last().term <= self.promise.term, "no message is of a term beyond the ballot");
        if let Part::Leader(leader) = &self.part {
            assert_eq!(self.leader, Some(self.me), "a leader follows itself");
            assert!(self.log.last().term == self.promise.term, "a leader's log ends in its own term");
            leader.peers.values().for_each(Peer::assert_invariants);
            assert!(
                leader.peers.values().all(|peer| peer.stored <= self.log.last().index),
                "nobody stores what the leader never wrote"
            );
        } else {
            assert_ne!(self.leader, Some(self.me), "only a leader leads");
        }
        if self.published.is_none() && matches!(self.part, Part::Voting) {
            assert_eq!(self.leader, None, "who votes follows nobody");
            assert!(self.ballot.number > self.promise.term, "nobody votes twice in a ballot (G2)");
        }
    }
}

impl Gmt2000 {
    // --- Questions. ----------------------------------------------------------------------------------------------

    pub(crate) fn role(&self) -> Role {
        match self.part {
            Part::Leader(_) => Role::Leader,
            Part::Voting => Role::Candidate,
            Part::Watching if self.is_awaiting_votes() || self.is_voting_as_published() => Role::Candidate,
            Part::Watching => Role::Follower,
        }
    }

    /// The log, for inspection.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The ballot and vote, for inspection.
    pub fn promise(&self) -> Promise {
        self.promise
    }

    /// What this node, as leader, knows of `peer`.
    pub fn peer(&self, peer: NodeId) -> Option<&Peer> {
        match &self.part {
            Part::Leader(leader) => leader.peers.get(&peer),
            _ => None,
        }
    }

    pub(crate) fn is_leading(&self) -> bool {
        matches!(self.part, Part::Leader(_))
    }

    /// The place of the commit.
    pub(crate) fn committed(&self) -> Lsn {
        let term = self.log.term_at(self.commit).expect("the commit is at or above the compaction point");
        Lsn { term, index: self.commit }
    }

    /// Whether this node is the only one to ask.
    pub(crate) fn is_alone(&self) -> bool {
        self.membership.is_voter(self.me) && self.membership.all_voters().count() == 1
    }

    /// Whether this node may lead: a voter, willing, able to write, with a complete state machine.
    pub(crate) fn may_lead(&self) -> bool {
        self.membership.is_voter(self.me)
            && (self.priority != Priority::Never || self.is_caretaker)
            && self.installing.is_none()
            && !self.is_disk_stalled
    }

    /// Whether this defect is planted.
    pub(crate) fn has_defect(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    // --- Messages. -----------------------------------------------------------------------------------------------

    /// What the node says to itself once a record is durable; from an earlier ballot it means nothing.
    fn on_own_message(&mut self, message: Message, out: &mut Effects<Gmt2000>) {
        if message.term() != self.promise.term {
            return;
        }
        match message {
            Message::Vote { choice, claim, .. } => self.on_own_vote(choice, claim, out),
            Message::Stored { index, .. } => self.on_stored(self.me, index, out),
            other => unreachable!("a node never says {other:?} to itself"),
        }
    }

    fn on_message(&mut self, from: NodeId, message: Message, out: &mut Effects<Gmt2000>) {
        let term = message.term();
        if !self.promise.term.may_follow(term) {
            return;
        }
        match message {
            Message::Elect { claim, .. } if self.published.is_some() => self.on_elect_as_published(from, claim, out),
            Message::Vote { claim, .. } if self.published.is_some() => self.on_vote_as_published(from, claim, out),
            Message::Elect { ballot, claim, commit } => self.on_elect(from, ballot, claim, commit, out),
            Message::Vote { ballot, claim, .. } => self.on_vote(from, ballot, claim, out),
            Message::Obsolete { term } => self.on_obsolete(from, term, out),
            message if message.is_from_leader() => self.on_leader_message(from, message, out),
            message if term == self.promise.term => self.on_answer(from, message, out),
            // An answer to an earlier reign, or to one that this node never had.
            _ => {}
        }
    }

    /// A LEAD below the ballot is obsolete; one at or above it is followed, whatever this node was at (§4.4 c, d).
    fn on_leader_message(&mut self, from: NodeId, message: Message, out: &mut Effects<Gmt2000>) {
        let term = message.term();
        if term < self.promise.term {
            if self.published.is_none() {
                out.send_resting_on(RestsOn::Nothing, from, Message::Obsolete { term: self.promise.term });
            }
            return;
        }
        if self.is_leading() && term == self.promise.term && self.published.is_none() {
            // This node leads the term (G1), so whoever says otherwise lies or is broken; that is no reason to end.
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
            Message::SnapshotFailed { lsn, .. } => self.on_snapshot_refused(from, lsn),
            other => unreachable!("{other:?} is not an answer"),
        }
    }

    // --- Moves. --------------------------------------------------------------------------------------------------

    /// The only way into a later ballot, with or without a vote in it: recorded at once.
    pub(crate) fn enter_ballot(&mut self, promise: Promise, out: &mut Effects<Gmt2000>) {
        assert!(promise.term > self.promise.term, "ballots only grow");
        self.promise = promise;
        if self.published.is_none() {
            out.persist(Record::Promise(promise));
        }
    }

    /// A leader spoke in this ballot or a later one.
    fn follow(&mut self, leader: NodeId, term: Term, out: &mut Effects<Gmt2000>) {
        if matches!(self.part, Part::Voting) && term == self.promise.term && self.is_ballot_pressing() {
            // It said this before it heard of the election that it has asked for.
            return;
        }
        let because = if term > self.promise.term { Reason::HigherTerm(leader) } else { Reason::LeaderHeard(leader) };
        let is_news = term > self.promise.term || self.leader != Some(leader) || !matches!(self.part, Part::Watching);
        if is_news {
            self.become_follower(term, Some(leader), because, out);
        } else {
            self.hear_leader(out);
        }
    }

    /// Follows `leader`, or waits for one, in `term`.
    pub(crate) fn become_follower(
        &mut self,
        term: Term,
        leader: Option<NodeId>,
        because: Reason,
        out: &mut Effects<Gmt2000>,
    ) {
        let from = self.role();
        if term > self.promise.term {
            self.enter_ballot(Promise::without_vote(term), out);
        }
        self.leave_part(out);
        self.leader = leader;
        if leader.is_some() {
            self.wanted = None;
            self.ballot = Ballot::numbered(self.promise.term);
        }
        self.announce(from, because, out);
        self.end_transfer(out);
        if leader.is_some() {
            self.hear_leader(out);
        } else {
            self.is_leader_fresh = false;
            self.watch(out);
        }
    }

    fn hear_leader(&mut self, out: &mut Effects<Gmt2000>) {
        self.eager_rounds = 0;
        self.lost_leader = None;
        self.hears_majority = false;
        self.losses = 0;
        self.is_caretaker = false;
        self.has_refused_for_log = false;
        // A hand-over that waits for the round trip to pass is this leader's own wish, whatever it says meanwhile.
        let is_passing = |(_, standing): &(Reason, Standing)| *standing != Standing::Successor;
        self.wanted.take_if(|wanted| is_passing(wanted));
        if self.ballot.number > self.promise.term && !self.is_ballot_pressing() {
            // Whoever called that election hears this leader as well, or will call again.
            self.ballot = Ballot::numbered(self.promise.term);
        }
        self.hear_leader_as_published();
        self.is_leader_fresh = true;
        out.set_timer(Timer::Freshness, self.timing.election_min..=self.timing.election_min);
        if !self.is_voting_as_published() {
            self.watch(out);
        }
    }

    /// Drops what only the present part has, and tells those who wait for it.
    pub(crate) fn leave_part(&mut self, out: &mut Effects<Gmt2000>) {
        let Part::Leader(leader) = std::mem::replace(&mut self.part, Part::Watching) else { return };
        self.leader = None;
        if self.ballot.number <= self.promise.term {
            // The ballot that it won is closed: votes that come late must not elect it a second time.
            self.ballot = Ballot::numbered(self.promise.term);
        }
        out.cancel_timer(Timer::Heartbeat);
        out.cancel_timer(Timer::QuorumCheck);
        // The alarm of a hand-over stays: whoever asked for it hears how it ended even if nobody leads.
        for ticket in leader.reads.into_tickets() {
            out.refuse(ticket, hustings_core::Refusal::NotLeader(None));
        }
    }

    pub(crate) fn announce(&self, from: Role, because: Reason, out: &mut Effects<Gmt2000>) {
        out.announce(Transition {
            node: self.me,
            from,
            to: self.role(),
            term: self.promise.term,
            leader: self.leader,
            lsn: self.log.last(),
            because,
        });
    }

    // --- Commit, the same for leaders and followers. -------------------------------------------------------------

    /// Everything through `index` is committed: it is applied, in order; a membership among it takes effect.
    pub(crate) fn apply_through(&mut self, index: u64, out: &mut Effects<Gmt2000>) {
        if index <= self.commit {
            return;
        }
        assert!(index <= self.log.last().index, "a commit beyond the log: a majority holds what this node lost");
        let first = self.commit + 1;
        self.commit = index;
        // Before any later entry, so that whoever holds a second change of membership knows that the first is in force.
        out.persist(Record::Committed(self.committed()));
        for index in first..=index {
            let entry = self.log.entry(index).expect("entries above the compaction point are held").clone();
            if entry.kind == EntryKind::Membership {
                self.apply_membership(&entry, out);
            }
            out.apply(entry);
        }
    }

    // --- Links, disk, administrators. ----------------------------------------------------------------------------

    fn on_link_up(&mut self, peer: NodeId, out: &mut Effects<Gmt2000>) {
        self.links_down.remove(&peer);
        // A node that comes back learns at once whom to follow.
        self.send_heartbeat_to(peer, out);
    }

    fn on_link_down(&mut self, peer: NodeId, out: &mut Effects<Gmt2000>) {
        self.links_down.insert(peer);
        match &mut self.part {
            Part::Leader(leader) => {
                if let Some(peer) = leader.peers.get_mut(&peer) {
                    // What was in flight is lost.
                    peer.become_probe(peer.stored + 1);
                }
            }
            // The note knows only silence.
            _ if self.published.is_some() => {}
            _ if self.leader == Some(peer) => self.on_leader_link_down(peer, out),
            _ => self.settle_slate(out),
        }
    }

    /// The disk does not answer: a leader gives way while its messages still do (house §7.3).
    fn on_disk_stalled(&mut self, out: &mut Effects<Gmt2000>) {
        self.is_disk_stalled = true;
        if self.is_leading() {
            self.hand_over_and_follow(Reason::DiskStalled, out);
        }
    }

    fn on_asked_to_forget(&mut self, ticket: Ticket, out: &mut Effects<Gmt2000>) {
        // On leaders and voters it changes nothing.
        if matches!(self.part, Part::Watching) && self.leader.is_some() {
            let from = self.role();
            self.leader = None;
            self.is_leader_fresh = false;
            self.announce(from, Reason::LeaderForgotten, out);
        }
        out.reply(ticket, Outcome::Done);
    }

    pub(crate) fn reconfigure(&mut self, membership: Arc<Membership>, index: u64, out: &mut Effects<Gmt2000>) {
        self.membership = membership.clone();
        out.push(Effect::Reconfigure { membership, index });
    }
}
