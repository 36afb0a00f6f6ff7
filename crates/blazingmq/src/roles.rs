//! Roles: every way into one and out of it. The reasons to move are in [`crate::elector`], [`crate::scouting`] and
//! [`crate::candidate`].
//!
//! ```text
//!             nobody leads            a quorum would         a quorum does           its term's start is
//!    Follower ────────────► Scouting ──────────────► Candidate ─────────► Leader,    ──committed────► Leader,
//!       ▲  (random wait)  (nothing promised)     (term durable)         collecting,                  active
//!       │                                                           pulling, starting
//!       └────────────────── a heartbeat of this term or a later one; no quorum; handed over ─────────────┘
//! ```
//!
//! Each move announces why, and arms the timers of the new role. Sources: the article, "Elector State Machine"; rules 5 to 24 of
//! `docs/protocols/rules`.

use crate::blazingmq::{BlazingMq, Leader, RoleState, Timer};
use crate::healing::Stage;
use crate::laboratory::Defect;
use crate::message::Message;
use crate::peer::Peer;
use hustings_core::leading::{Leads, Office};
use hustings_core::tally::Vote;
use hustings_core::{Effects, NodeId, Promise, Reason, Record, RestsOn, Role, Tally, Term};
use std::collections::{BTreeMap, BTreeSet};

impl BlazingMq {
    /// The first role, with what was recovered.
    pub(crate) fn announce_start(&mut self, out: &mut Effects<BlazingMq>) {
        self.announce(Role::Follower, Reason::Started, out);
    }

    /// The only way into a later term: recorded at once `[OURS]` (§1.9).
    pub(crate) fn enter_term(&mut self, promise: Promise, out: &mut Effects<BlazingMq>) {
        let may_repeat = self.has(Defect::SupportsTwice) && promise.term == self.node.promise.term;
        assert!(promise.term > self.node.promise.term || may_repeat, "terms only grow (E3)");
        self.node.promise = promise;
        if !self.options.as_published && !may_repeat {
            out.persist(Record::Promise(promise));
        }
    }

    /// Rules 16 a and c, 17, 18, 19: follows a leader of this term or a later one, supports it unasked, and registers
    /// (§2.8/8).
    pub(crate) fn follow(&mut self, leader: NodeId, term: Term, out: &mut Effects<BlazingMq>) {
        let from = self.role();
        let was_leading = self.is_leading();
        let is_later = term > self.node.promise.term;
        if is_later {
            self.enter_term(Promise::without_vote(term), out);
        }
        let is_solicited = self.tentative == Some(leader) && !is_later;
        self.leave_role(out);
        self.tentative = None;
        self.node.leader = Some(leader);
        self.is_leader_active = false;
        self.term_seen = Term::ZERO;
        self.refused_scouts.clear();
        self.eager_rounds = 0;
        self.lost_leader = None;
        self.node.is_caretaker = false;
        self.node.has_noted_that_others_lack = false;
        out.cancel_timer(Timer::Wait);
        let because = if is_later { Reason::HigherTerm(leader) } else { Reason::LeaderHeard(leader) };
        self.announce(from, because, out);
        self.hear_leader(out);
        if was_leading {
            // Rule 19: a node that still follows this one looks for the new leader.
            self.broadcast(Message::Cession { term }, out);
        }
        if !is_solicited {
            // Rule 16 c and its like, also after rule 19 `[OURS]` (§1.10/9).
            out.send_resting_on(RestsOn::Promise, leader, Message::Support { term });
        }
        self.register(leader, out);
    }

    /// The leader serves (§2.8, rule 11): from now on requests go to it.
    pub(crate) fn see_leader_active(&mut self, out: &mut Effects<BlazingMq>) {
        let Some(leader) = self.node.leader.filter(|leader| *leader != self.node.me && !self.is_leader_active) else {
            return;
        };
        self.is_leader_active = true;
        self.announce(self.role(), Reason::LeaderHeard(leader), out);
        self.node.end_transfer(out);
    }

    /// Rules 9 and 10: a tentative leader, until it speaks.
    pub(crate) fn support(&mut self, candidate: NodeId, term: Term, out: &mut Effects<BlazingMq>) {
        let from = self.role();
        let had_leader = self.node.leader.is_some();
        self.enter_term(Promise::vote(term, candidate), out);
        self.leave_role(out);
        self.node.leader = None;
        self.is_leader_active = false;
        self.tentative = Some(candidate);
        self.refused_scouts.clear();
        if had_leader || from != self.role() {
            self.announce(from, Reason::HigherTerm(candidate), out);
        }
        out.cancel_timer(Timer::Wait);
        self.hear_leader(out);
        out.send_resting_on(RestsOn::Promise, candidate, Message::Support { term });
    }

    /// The leader was heard: its silence begins anew.
    pub(crate) fn hear_leader(&mut self, out: &mut Effects<BlazingMq>) {
        out.set_timer(Timer::Silence, self.node.timing.election_min..=self.node.timing.election_min);
    }

    /// Forgets the leader that this node follows, and answers the scouts that it refused because of that.
    pub(crate) fn lose_leader(&mut self, because: Reason, out: &mut Effects<BlazingMq>) {
        self.tentative = None;
        out.cancel_timer(Timer::Silence);
        if self.node.leader.take().is_none() {
            return;
        }
        self.is_leader_active = false;
        self.announce(self.role(), because, out);
        for (from, (term, round, commit)) in std::mem::take(&mut self.refused_scouts) {
            self.answer_scouting(from, term, round, commit, out);
        }
    }

    /// Rule 3: asks whether a proposal of a later term would be supported.
    pub(crate) fn become_scout(&mut self, because: Reason, out: &mut Effects<BlazingMq>) {
        let from = self.role();
        self.leave_role(out);
        self.node.leader = None;
        self.tentative = None;
        self.is_leader_active = false;
        out.cancel_timer(Timer::Silence);
        out.cancel_timer(Timer::Wait);
        self.round = !self.round;
        let term = self.next_term();
        let mut tally = Tally::new();
        tally.record(self.node.me, Vote::Granted, &self.node.membership);
        self.role_state = RoleState::Scouting { term, tally };
        self.announce(from, because, out);
        // Drawn anew for each: where answers take longer than the shortest timeout, they come in time to a later one.
        out.set_timer(Timer::Scouting, self.node.timing.election());
        let question = Message::Scouting { term, round: self.round, commit: self.node.committed() };
        for voter in self.node.other_voters() {
            // Rests on nothing: a question, not a promise.
            out.send_resting_on(RestsOn::Nothing, voter, question.clone());
        }
        self.settle_scouting(out);
    }

    /// Nobody promised enough: follows nobody, and waits.
    pub(crate) fn end_scouting(&mut self, out: &mut Effects<BlazingMq>) {
        let RoleState::Scouting { tally, .. } = &self.role_state else { return };
        let because = Reason::PollLost { granted: tally.granted(), refused: tally.refused() };
        let from = self.role();
        self.leave_role(out);
        self.announce(from, because, out);
        self.wait(out);
    }

    /// Rule 6: raises the term, durably, and proposes itself in it.
    pub(crate) fn become_candidate(&mut self, because: Reason, is_transfer: bool, out: &mut Effects<BlazingMq>) {
        let from = self.role();
        let term = match self.role_state {
            RoleState::Scouting { term, .. } if term > self.node.promise.term => term,
            _ => self.next_term(),
        };
        self.leave_role(out);
        self.node.leader = None;
        self.tentative = None;
        self.is_leader_active = false;
        self.refused_scouts.clear();
        self.role_state = RoleState::Candidate { tally: Tally::new() };
        self.enter_term(Promise::vote(term, self.node.me), out);
        self.announce(from, because, out);
        for timer in [Timer::Wait, Timer::Silence] {
            out.cancel_timer(timer);
        }
        out.set_timer(Timer::Election, self.node.timing.election());
        let commit = self.node.committed();
        for voter in self.node.other_voters() {
            out.send_resting_on(RestsOn::Promise, voter, Message::Proposal { term, is_transfer, commit });
        }
        // This node's own support counts once the term is durable, like everyone else's.
        out.send_resting_on(RestsOn::Promise, self.node.me, Message::Support { term });
    }

    pub(crate) fn give_up(&mut self, out: &mut Effects<BlazingMq>) {
        let RoleState::Candidate { tally } = &self.role_state else { return };
        let because = Reason::VoteLost { granted: tally.granted(), refused: tally.refused() };
        let from = self.role();
        self.leave_role(out);
        self.announce(from, because, out);
        self.wait(out);
    }

    /// Rule 13: elected, and not yet ready: the ledger heals first (§2.8).
    pub(crate) fn become_leader(&mut self, because: Reason, out: &mut Effects<BlazingMq>) {
        if !self.node.may_lead() {
            return self.give_up(out);
        }
        let from = self.role();
        let RoleState::Candidate { tally } = &self.role_state else { unreachable!("only a candidate wins") };
        let supporters = tally.granted().into_iter().filter(|id| !self.node.links_down.contains(id)).collect();
        self.leave_role(out);
        let peers = self.node.membership.everyone().map(|peer| (peer, Peer::new())).collect();
        self.role_state = RoleState::Leader(Box::new(Leader {
            office: Office::unready(peers),
            stage: Stage::Collecting,
            lsns: BTreeMap::from([(self.node.me, self.node.log.last())]),
            spent_sources: BTreeSet::new(),
            supporters,
            pending_primaries: 0,
        }));
        self.node.leader = Some(self.node.me);
        self.is_leader_active = false;
        self.term_seen = Term::ZERO;
        self.eager_rounds = 0;
        self.lost_leader = None;
        self.announce(from, because, out);
        self.node.end_transfer(out);
        out.cancel_timer(Timer::Wait);
        out.cancel_timer(Timer::Silence);
        out.set_timer(Timer::Heartbeat, self.node.timing.heartbeat..=self.node.timing.heartbeat);
        out.set_timer(Timer::QuorumCheck, self.node.timing.election_min..=self.node.timing.election_min);
        out.set_timer(Timer::Healing, self.node.timing.election_max..=self.node.timing.election_max);
        self.send_heartbeats(out);
        self.settle_collection(out);
    }

    /// §2.8, rule 6: the start is committed, and the leader serves (C7). Followers see it by that commit, or by a
    /// heartbeat.
    pub(crate) fn become_active_if_started(&mut self, out: &mut Effects<BlazingMq>) {
        let commit = self.node.commit;
        let RoleState::Leader(leader) = &mut self.role_state else { return };
        if leader.stage != Stage::Starting || commit < leader.office.first_own {
            return;
        }
        leader.stage = Stage::Active;
        out.cancel_timer(Timer::Healing);
        self.announce(Role::Synchronizing, Reason::LeaderHeard(self.node.me), out);
        self.tend_partitions(out);
    }

    /// Rule 20: follows nobody, waits, and says so to everybody.
    pub(crate) fn step_down(&mut self, because: Reason, out: &mut Effects<BlazingMq>) {
        let from = self.role();
        let everybody: Vec<NodeId> = self.others_reached();
        self.leave_role(out);
        self.announce(from, because, out);
        self.wait(out);
        for peer in everybody {
            out.send_resting_on(RestsOn::Promise, peer, Message::Cession { term: self.node.promise.term });
        }
    }

    /// Follows the successor that was told to take over, once it is elected. Nobody else is told.
    pub(crate) fn give_way(&mut self, because: Reason, out: &mut Effects<BlazingMq>) {
        let from = self.role();
        self.leave_role(out);
        self.announce(from, because, out);
        self.wait_initially(out);
    }

    /// Drops what only the present role has, and tells those who wait for it.
    fn leave_role(&mut self, out: &mut Effects<BlazingMq>) {
        match std::mem::replace(&mut self.role_state, RoleState::Follower) {
            RoleState::Follower => {}
            RoleState::Scouting { .. } => out.cancel_timer(Timer::Scouting),
            RoleState::Candidate { .. } => out.cancel_timer(Timer::Election),
            RoleState::Leader(leader) => {
                self.node.leader = None;
                for timer in [Timer::Heartbeat, Timer::QuorumCheck, Timer::Healing] {
                    out.cancel_timer(timer);
                }
                // The timer of a hand-over stays: its requester hears how it ended even if nobody leads.
                leader.office.reads.refuse_all(out);
            }
        }
    }
}
