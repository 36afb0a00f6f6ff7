//! The value: [`BlazingMq`], its state, its one dispatcher, and the moves between roles.
//!
//! ```text
//!             nobody leads            a quorum would         a quorum does           its term's start is
//!    Follower ────────────► Scouting ──────────────► Candidate ─────────► Leader,    ──committed────► Leader,
//!       ▲  (random wait)  (nothing promised)     (term durable)         collecting,                  active
//!       │                                                           pulling, starting
//!       └────────────────── a heartbeat of this term or a later one; no quorum; handed over ─────────────┘
//! ```
//!
//! A follower follows a *tentative* leader (it supported one that has not spoken yet) or a confirmed one, never both
//! (E4). What to read next: [`crate::elector`].

use crate::healing::Stage;
use crate::laboratory::Defect;
use crate::message::Message;
use crate::options::Options;
use crate::peer::Peer;
use crate::read::Reads;
use crate::transfer::Transfer;
use hustings_core::protocol::{DiskHealth, LinkState};
use hustings_core::quorum::Verdict;
use hustings_core::{
    Admin, Cluster, Durable, Effect, Effects, EntryKind, Input, Limits, Links, Log, Lsn, Membership, NodeId, Patience,
    Priority, Promise, Protocol, Reason, Record, Refusal, Role, SnapshotReference, Status, Tally, Term, Timing,
    Transition,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The alarms that BlazingMQ sets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// The initial wait and the random wait: nobody leads, and it is this node's turn to scout (rule 3).
    Wait,
    /// The leader, tentative or confirmed, was last heard too long ago (rule 23).
    Silence,
    /// The result of a scouting is due (rule 7).
    Scouting,
    /// The result of a proposal is due (rule 15).
    Election,
    /// The leader speaks (rule 24).
    Heartbeat,
    /// The leader counts whom it heard.
    QuorumCheck,
    /// The watchdog of a new leader's healing (§2.6).
    Healing,
    /// A hand-over took too long.
    Transfer,
}

/// What only a leader knows.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Leader {
    /// How far its healing is.
    pub(crate) stage: Stage,
    /// Where the ledgers of those end that have registered in this reign.
    pub(crate) lsns: BTreeMap<NodeId, Lsn>,
    /// Who supports it, itself included (E4).
    pub(crate) supporters: BTreeSet<NodeId>,
    pub(crate) peers: BTreeMap<NodeId, Peer>,
    pub(crate) reads: Reads,
    pub(crate) transfer: Option<Transfer>,
    /// The last index that may hold a change of membership: no other starts before it is applied.
    pub(crate) pending_change: u64,
    /// The last index that may name primaries: they are not named again before it is applied.
    pub(crate) pending_primaries: u64,
    /// The index of the start of this leader's term; beyond everything until it is written.
    pub(crate) first_own: u64,
    /// The bytes of proposals beyond the commit.
    pub(crate) uncommitted_bytes: usize,
}

/// What a node is at, with the state that only that has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Part {
    Follower,
    Scouting { term: Term, tally: Tally },
    Candidate { tally: Tally },
    Leader(Box<Leader>),
}

/// A BlazingMQ node as a plain value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BlazingMq {
    pub(crate) me: NodeId,
    pub(crate) timing: Timing,
    pub(crate) priority: Priority,
    pub(crate) limits: Limits,
    pub(crate) options: Options,
    /// The elector's term, durable `[OURS]`. To raise it is to vote; for whom is written for those who judge.
    pub(crate) promise: Promise,
    pub(crate) log: Log,
    pub(crate) commit: u64,
    pub(crate) snapshot: Option<SnapshotReference>,
    pub(crate) membership: Arc<Membership>,
    /// The last change of membership that is in force here stands at this index or below.
    pub(crate) membership_index: u64,
    pub(crate) part: Part,
    pub(crate) leader: Option<NodeId>,
    pub(crate) tentative: Option<NodeId>,
    /// Whether the leader said that it is healed and serves.
    pub(crate) is_leader_active: bool,
    /// The highest term that somebody answered with: no scouting below it can succeed.
    pub(crate) term_seen: Term,
    /// Which of two consecutive rounds of scouting is the last.
    pub(crate) round: bool,
    /// Peers whose connection is known to be gone.
    pub(crate) links_down: BTreeSet<NodeId>,
    /// Peers that said that they are not available.
    pub(crate) unavailable: BTreeSet<NodeId>,
    /// Scoutings answered with no because this node followed a leader: answered again when it loses that leader.
    pub(crate) refused_scouts: BTreeMap<NodeId, (Term, bool, Lsn)>,
    /// Rounds left that follow each other after a short jitter instead of a random wait, after a link-down.
    pub(crate) eager_rounds: u8,
    /// The leader whose link dropped, while that is why this node scouts.
    pub(crate) lost_leader: Option<NodeId>,
    /// The snapshot that is being fetched or installed: no candidacy, no new one.
    pub(crate) installing: Option<SnapshotReference>,
    /// Who waits to hear how a hand-over ended.
    pub(crate) transfer_ticket: Option<(NodeId, hustings_core::Ticket)>,
    /// Whether this node, which must never lead, leads all the same until another has caught up: it holds what those who may
    /// lead lack, and nobody gives entries without leading.
    pub(crate) is_caretaker: bool,
    /// Whether it refused somebody for want of what it holds, and nobody leads since.
    pub(crate) has_refused_for_log: bool,
    pub(crate) patience: Patience,
    pub(crate) is_disk_stalled: bool,
    /// Leaders of the own term that this node met while it led: a breach of E1 (§1.10/1).
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
        let Cluster { me, membership, timing, priority, limits } = cluster;
        let Durable { promise, snapshot, entries, committed, established: _ } = recovered;
        let base = snapshot.as_ref().map_or(Lsn::ZERO, |reference| reference.lsn);
        // Who joins is told the members of today and replays the ledger from its beginning: primaries come from there
        // alone.
        let membership = match membership.assignments.is_empty() {
            true => membership,
            false => Arc::new(Membership { assignments: BTreeMap::new(), ..(*membership).clone() }),
        };
        let founding = membership.clone();
        let membership = snapshot.as_ref().map_or(membership, |reference| reference.membership.clone());
        // Below a snapshot nobody knows where the last change stood: if there was one, it may be the end.
        let membership_index = if membership.decides_as(&founding) { 0 } else { base.index };
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
        // §1.9: as published, the ledger's last record is all that tells the term.
        let ledger_term = Promise::without_vote(log.last().term);
        let promise = if options.as_published || promise.term < ledger_term.term { ledger_term } else { promise };
        let mut node = BlazingMq {
            me,
            timing,
            priority,
            limits,
            options,
            promise,
            log,
            commit: base.index,
            snapshot,
            membership,
            membership_index,
            part: Part::Follower,
            leader: None,
            tentative: None,
            is_leader_active: false,
            term_seen: Term::ZERO,
            round: false,
            links_down: BTreeSet::new(),
            unavailable: BTreeSet::new(),
            refused_scouts: BTreeMap::new(),
            eager_rounds: 0,
            lost_leader: None,
            installing: None,
            transfer_ticket: None,
            is_caretaker: false,
            has_refused_for_log: false,
            patience: Patience::new(),
            is_disk_stalled: false,
            breaches: 0,
        };
        node.announce(Role::Follower, Reason::Started, out);
        // A recorded commit is a lower bound: what it covers was committed, and a change in it is in force.
        let recorded = committed.index.min(node.log.last().index);
        node.apply_through(recorded, out);
        node.wait_initially(out);
        if node.is_alone() && node.may_lead() {
            node.become_candidate(Reason::Alone, false, out);
        }
        node
    }

    fn step(&mut self, input: Input<BlazingMq>, out: &mut Effects<BlazingMq>) {
        match input {
            Input::Message { from, message } if from == self.me => self.on_own_message(message, out),
            Input::Message { from, message } => self.on_message(from, message, out),
            Input::Alarm(Timer::Wait) => self.on_wait_alarm(out),
            Input::Alarm(Timer::Silence) => self.on_silence_alarm(out),
            Input::Alarm(Timer::Scouting) => self.on_scouting_alarm(out),
            Input::Alarm(Timer::Election) => self.on_election_alarm(out),
            Input::Alarm(Timer::Heartbeat) => self.on_heartbeat_alarm(out),
            Input::Alarm(Timer::QuorumCheck) => self.on_quorum_check(out),
            Input::Alarm(Timer::Healing) => self.on_healing_alarm(out),
            Input::Alarm(Timer::Transfer) => self.on_transfer_alarm(out),
            Input::Link { peer, state: LinkState::Up } => self.on_link_up(peer, out),
            Input::Link { peer, state: LinkState::Down } => self.on_link_down(peer, out),
            Input::Propose(proposals) => self.on_propose(proposals, out),
            Input::Read { ticket } => self.on_read(ticket, out),
            Input::Compact(reference) => self.on_compact(reference, out),
            Input::SnapshotReady(reference) => self.on_snapshot_ready(reference, out),
            Input::SnapshotFailed(reference) => self.on_snapshot_failed(reference, out),
            Input::SnapshotInstalled(lsn) => self.on_snapshot_installed(lsn, out),
            Input::Admin { ticket, request: Admin::Campaign } => self.on_asked_to_campaign(ticket, out),
            Input::Admin { ticket, request: Admin::Resign } => self.on_asked_to_resign(ticket, out),
            Input::Admin { ticket, request: Admin::Transfer(to) } => self.on_asked_to_transfer(ticket, to, out),
            Input::Admin { ticket, request: Admin::ForgetLeader } => self.on_asked_to_forget(ticket, out),
            Input::Retime(timing) => self.timing = timing,
            Input::Health(DiskHealth::Stalled) => self.on_disk_stalled(out),
            Input::Health(DiskHealth::Recovered) => self.on_disk_recovered(out),
        }
    }

    fn status(&self) -> Status {
        Status {
            role: self.role(),
            term: self.promise.term,
            leader: self.active_leader(),
            last: self.log.last(),
            commit: self.commit,
            first_index: self.log.first_index(),
            membership: self.membership.clone(),
        }
    }

    fn assert_invariants(&self) {
        assert!(self.log.base().index <= self.commit, "only what is committed is compacted");
        assert!(self.commit <= self.log.last().index, "what is committed is in the ledger");
        assert!(self.leader.is_none() || self.tentative.is_none(), "a leader is tentative or confirmed (E4)");
        assert!(self.log.last().term <= self.promise.term, "no record is of a term beyond the own (§2.8/5)");
        match &self.part {
            Part::Leader(leader) => {
                assert_eq!(self.leader, Some(self.me), "a leader follows itself (E4)");
                assert!(leader.supporters.contains(&self.me), "a leader supports itself (E4)");
                leader.peers.values().for_each(Peer::assert_invariants);
                let is_started = matches!(leader.stage, Stage::Starting | Stage::Active);
                assert!(
                    !is_started || self.log.last().term == self.promise.term,
                    "a leader that has started ends its ledger in its own term"
                );
                assert!(
                    leader.stage != Stage::Active || self.commit >= leader.first_own,
                    "an active leader's start is committed (C7)"
                );
            }
            Part::Scouting { .. } | Part::Candidate { .. } => {
                assert_eq!((self.leader, self.tentative), (None, None), "who asks follows nobody");
            }
            Part::Follower => assert_ne!(self.leader, Some(self.me), "only a leader leads"),
        }
    }
}

/// Which of the quorums decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Vote,
    Sync,
    Commit,
}

impl BlazingMq {
    // --- Questions. ----------------------------------------------------------------------------------------------

    pub(crate) fn role(&self) -> Role {
        match &self.part {
            Part::Leader(leader) if leader.stage == Stage::Active => Role::Leader,
            Part::Leader(_) => Role::Synchronizing,
            Part::Candidate { .. } => Role::Candidate,
            Part::Scouting { .. } => Role::PreCandidate,
            Part::Follower => Role::Follower,
        }
    }

    /// The leader that requests may go to: an elected one that is not healed yet serves nobody (§2.4, leaderStatus).
    pub(crate) fn active_leader(&self) -> Option<NodeId> {
        self.leader.filter(|leader| self.is_leader_active || *leader == self.me)
    }

    /// Whether this defect is planted.
    pub(crate) fn has(&self, defect: Defect) -> bool {
        self.options.defect == Some(defect)
    }

    /// The ledger, for inspection.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The term and whom this node supported in it, for inspection.
    pub fn promise(&self) -> Promise {
        self.promise
    }

    /// The leader that this node supported and that has not spoken yet.
    pub fn tentative(&self) -> Option<NodeId> {
        self.tentative
    }

    /// The leader that this node follows, healed or not.
    pub fn follows(&self) -> Option<NodeId> {
        self.leader
    }

    /// Who supports this node, if it leads.
    pub fn supporters(&self) -> Vec<NodeId> {
        match &self.part {
            Part::Leader(leader) => leader.supporters.iter().copied().collect(),
            _ => Vec::new(),
        }
    }

    /// How often this node, leading, met a leader of its own term: never, unless terms were forgotten (E1).
    pub fn breaches(&self) -> u32 {
        self.breaches
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

    /// Whether the start of this leader's term is written: the ledger takes records.
    pub(crate) fn is_started(&self) -> bool {
        matches!(&self.part, Part::Leader(leader) if matches!(leader.stage, Stage::Starting | Stage::Active))
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

    fn knob(&self, kind: Kind) -> usize {
        match kind {
            Kind::Vote => self.options.quorums.vote,
            Kind::Sync => self.options.quorums.sync,
            Kind::Commit => self.options.quorums.commit,
        }
    }

    /// What the answers so far decide: a majority at least, and as many as the operator wants. Each node counts once.
    pub(crate) fn verdict(&self, kind: Kind, answer: impl Fn(NodeId) -> Option<bool>) -> Verdict {
        let needed = self.knob(kind);
        let count = |said: bool| self.membership.all_voters().filter(|id| answer(*id) == Some(said)).count();
        let lost = self.membership.all_voters().count() < needed + count(false);
        match self.membership.verdict(&answer) {
            Verdict::Won if count(true) >= needed => Verdict::Won,
            Verdict::Lost => Verdict::Lost,
            _ if lost => Verdict::Lost,
            _ => Verdict::Pending,
        }
    }

    /// The highest value that a quorum has reached.
    pub(crate) fn reached(&self, kind: Kind, value: impl Fn(NodeId) -> u64) -> u64 {
        let majority = self.membership.reached(&value);
        let Some(needed) = self.knob(kind).checked_sub(1) else { return majority };
        let mut values: Vec<u64> = self.membership.all_voters().map(&value).collect();
        values.sort_unstable_by(|a, b| b.cmp(a));
        majority.min(values.get(needed).copied().unwrap_or(0))
    }

    // --- Messages. -----------------------------------------------------------------------------------------------

    /// What the node says to itself once a record is durable; from an earlier term it means nothing.
    fn on_own_message(&mut self, message: Message, out: &mut Effects<BlazingMq>) {
        if message.term() != self.promise.term {
            return;
        }
        match message {
            Message::Support { term } => self.on_support(self.me, term, out),
            Message::Ack { index, .. } => self.on_ack(self.me, index, out),
            other => unreachable!("a node never says {other:?} to itself"),
        }
    }

    fn on_message(&mut self, from: NodeId, message: Message, out: &mut Effects<BlazingMq>) {
        let term = message.term();
        if !self.promise.term.may_follow(term) {
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
            Message::Heartbeat { round, commit, is_active, .. } => {
                self.on_heartbeat(from, term, round, commit, is_active, out)
            }
            Message::Heard { .. } if term > self.promise.term => self.on_stale_notice(from, term, out),
            Message::Cession { .. } => self.on_cession(from, term, out),
            Message::NodeStatus { is_available } => self.on_node_status(from, is_available, out),
            message if term == self.promise.term && self.leader == Some(from) => {
                self.on_leader_message(from, message, out)
            }
            message if term == self.promise.term && self.is_leading() => self.on_answer(from, message, out),
            // Not my leader, or an answer to another reign: dropped (§2.7, rule 4).
            _ => {}
        }
    }

    /// From the node that this one follows, in its term.
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

    /// To this leader, in its term.
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
            // What another leader of this term would say: dropped (§2.7, rule 3).
            _ => {}
        }
    }

    // --- Moves. --------------------------------------------------------------------------------------------------

    /// The only way into a later term: recorded at once `[OURS]` (§1.9).
    pub(crate) fn enter_term(&mut self, promise: Promise, out: &mut Effects<BlazingMq>) {
        let may_repeat = self.has(Defect::SupportsTwice) && promise.term == self.promise.term;
        assert!(promise.term > self.promise.term || may_repeat, "terms only grow (E3)");
        self.promise = promise;
        if !self.options.as_published && !may_repeat {
            out.persist(Record::Promise(promise));
        }
    }

    /// Drops what only the present part has, and tells those who wait for it.
    pub(crate) fn leave_part(&mut self, out: &mut Effects<BlazingMq>) {
        match std::mem::replace(&mut self.part, Part::Follower) {
            Part::Follower => {}
            Part::Scouting { .. } => out.cancel_timer(Timer::Scouting),
            Part::Candidate { .. } => out.cancel_timer(Timer::Election),
            Part::Leader(leader) => {
                self.leader = None;
                for timer in [Timer::Heartbeat, Timer::QuorumCheck, Timer::Healing] {
                    out.cancel_timer(timer);
                }
                // The alarm of a hand-over stays: whoever asked for it hears how it ended even if nobody leads.
                for ticket in leader.reads.into_tickets() {
                    out.refuse(ticket, Refusal::NotLeader(None));
                }
            }
        }
    }

    pub(crate) fn announce(&self, from: Role, because: Reason, out: &mut Effects<BlazingMq>) {
        out.announce(Transition {
            node: self.me,
            from,
            to: self.role(),
            term: self.promise.term,
            leader: self.active_leader(),
            lsn: self.log.last(),
            because,
        });
    }

    // --- Commit, the same for leaders and followers. -------------------------------------------------------------

    /// Everything through `index` is committed: it is applied, in order; a membership among it takes effect.
    pub(crate) fn apply_through(&mut self, index: u64, out: &mut Effects<BlazingMq>) {
        if index <= self.commit {
            return;
        }
        assert!(index <= self.log.last().index, "a commit beyond the ledger: a quorum holds what this node lost");
        let first = self.commit + 1;
        self.commit = index;
        // Before any later entry, so that whoever holds a second change of membership knows that the first is in force.
        out.persist(Record::Committed(self.committed()));
        for index in first..=index {
            let entry = self.log.entry(index).expect("entries above the compaction point are held").clone();
            match entry.kind {
                EntryKind::Membership => self.apply_membership(&entry, out),
                EntryKind::Protocol => self.apply_primaries(&entry, out),
                EntryKind::Blank | EntryKind::Command => {}
            }
            out.apply(entry);
        }
    }

    /// Commit knowledge spreads with elections, so that nobody elects by a membership that was left behind.
    pub(crate) fn learn_commit(&mut self, commit: Lsn, out: &mut Effects<BlazingMq>) {
        let is_known = self.is_leading() || commit.index <= self.commit;
        if !is_known && self.log.has(commit) && self.installing.is_none() {
            self.apply_through(commit.index, out);
        }
    }

    pub(crate) fn reconfigure(&mut self, membership: Arc<Membership>, index: u64, out: &mut Effects<BlazingMq>) {
        self.membership = membership.clone();
        out.push(Effect::Reconfigure { membership, index });
    }
}
