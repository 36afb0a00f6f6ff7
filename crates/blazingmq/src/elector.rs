//! The elector: choosing the leader to follow, and giving it up. Rules 1, 3 and 16 to 27 of `docs/protocols/rules`.
//!
//! Source: the article, "Elector State Machine" and the two walk-throughs; §1.5 of `docs/protocols/rules`. A confirmed leader is
//! followed until it is silent, its link drops, it cedes, or a *heartbeat* of a later term comes: proposals and
//! scoutings move nobody (E6).
//!
//! `[OURS]` Every heartbeat that asks is answered, so that a leader notices that it is alone (§1.10/7); a heartbeat of this
//! node's term ends the wait for another tentative leader at once (rule 16 d waits out its silence); leaders of one
//! term stand down (§1.10/1); links that drop lead to scouting in the order of ids instead of a random wait.

use crate::blazingmq::{BlazingMq, Kind, RoleState, Timer};
use crate::message::Message;
use hustings_core::leading::{Leads, Replicating};
use hustings_core::quorum::Verdict;
use hustings_core::{Effects, NodeId, Outcome, Priority, Promise, Reason, RestsOn, Term, Ticket};
use std::time::Duration;

/// Rounds after a link-down that follow each other quickly; then the usual pace.
const EAGER_ROUNDS: u8 = 5;

impl BlazingMq {
    // --- Waiting. ------------------------------------------------------------------------------------------------

    /// Rule 1: the initial wait, longer than the random one (§1.10/12) and with jitter (§1.10/10).
    pub(crate) fn wait_initially(&mut self, out: &mut Effects<BlazingMq>) {
        out.set_timer(Timer::Wait, self.node.timing.election());
    }

    /// `RW`: the random wait before the next scouting. Preferred nodes wait less.
    pub(crate) fn wait(&mut self, out: &mut Effects<BlazingMq>) {
        out.cancel_timer(Timer::Silence);
        if self.eager_rounds > 0 {
            self.eager_rounds -= 1;
            return out.set_timer(Timer::Wait, self.node.timing.heartbeat / 2..=self.node.timing.heartbeat * 3 / 2);
        }
        self.lost_leader = None;
        let spread = self.node.timing.election_max.saturating_sub(self.node.timing.election_min);
        let longest = if self.node.priority() == Priority::Preferred { spread / 4 } else { spread };
        out.set_timer(Timer::Wait, Duration::ZERO..=longest);
    }

    /// Rule 3: nobody leads, so this node scouts; with a leader or a tentative one it does nothing.
    pub(crate) fn on_wait_timer(&mut self, out: &mut Effects<BlazingMq>) {
        if !matches!(self.role_state, RoleState::Follower) || self.node.leader.is_some() || self.tentative.is_some() {
            return;
        }
        if self.node.may_lead() {
            let because = self.lost_leader.map_or(Reason::ElectionTimeout, Reason::LinkDown);
            return self.seek_leadership(because, out);
        }
        // A learner, or one that must not lead: it may become able.
        let was_led = self.lost_leader.take().is_some();
        if self.node.has_noted_that_others_lack && !was_led {
            // Nobody else leads within a whole timeout, because of the change of members that only this node knows.
            self.node.take_care();
            if self.node.may_lead() {
                return self.seek_leadership(Reason::ElectionTimeout, out);
            }
        }
        if !was_led {
            self.ask_who_votes(out);
        }
        self.wait_initially(out);
    }

    /// Rule 23: the leader, tentative or not, was silent for too long.
    pub(crate) fn on_silence_timer(&mut self, out: &mut Effects<BlazingMq>) {
        if matches!(self.role_state, RoleState::Follower) {
            self.lose_leader(Reason::ElectionTimeout, out);
            self.wait(out);
        }
    }

    // --- Heartbeats. ---------------------------------------------------------------------------------------------

    /// Rules 16 to 19: a heartbeat confirms the leader, or makes this node follow or depose another.
    #[expect(clippy::too_many_arguments, reason = "the fields of one message")]
    pub(crate) fn on_heartbeat(
        &mut self,
        from: NodeId,
        term: Term,
        round: u64,
        commit: u64,
        is_active: bool,
        asks: bool,
        out: &mut Effects<BlazingMq>,
    ) {
        if term < self.node.promise.term {
            if self.is_leading() {
                // Rule 19: follow me.
                return self.send_heartbeat_to(from, out);
            }
            // Rules 17 and 18: you are stale.
            return self.answer_heartbeat(from, round, out);
        }
        if self.is_leading() && term == self.node.promise.term {
            return self.on_equal_leader(out);
        }
        let is_followed = self.node.leader == Some(from) && term == self.node.promise.term;
        if is_followed {
            // Rule 16 b.
            self.hear_leader(out);
        } else {
            self.follow(from, term, out);
        }
        if is_active {
            self.see_leader_active(out);
        }
        if commit <= self.node.log.last().index {
            // The leader names what it knows this node to hold.
            self.apply_through(commit, out);
        }
        if asks && (is_followed || round > 0) {
            // A node that has just begun to follow has registered, which is an answer as well.
            self.answer_heartbeat(from, round, out);
        }
    }

    /// Confirms the leader's reign, or tells a stale one the later term. Rests on the term.
    fn answer_heartbeat(&mut self, leader: NodeId, round: u64, out: &mut Effects<BlazingMq>) {
        let (priority, is_installing) = (self.node.said_priority(), self.node.installing.is_some());
        let heard = Message::Heard { term: self.node.promise.term, round, priority, is_installing };
        out.send_resting_on(RestsOn::Promise, leader, heard);
    }

    /// `[OURS]` E1 is broken: somebody forgot a term. Both stand down, and the next term is another (§1.10/1).
    fn on_equal_leader(&mut self, out: &mut Effects<BlazingMq>) {
        self.breaches = self.breaches.saturating_add(1);
        self.step_down(Reason::LeaderForgotten, out);
    }

    /// Rule 21: a follower of a later term says that this leader is stale. Anybody else only learns that there is such
    /// a term.
    pub(crate) fn on_stale_notice(&mut self, from: NodeId, term: Term, out: &mut Effects<BlazingMq>) {
        self.term_seen = self.term_seen.max(term);
        if self.is_leading() {
            self.enter_term(Promise::without_vote(term), out);
            self.step_down(Reason::HigherTerm(from), out);
        }
    }

    // --- Standing down. ------------------------------------------------------------------------------------------

    /// Everybody that this node sends to: members, and nodes that left while it leads.
    pub(crate) fn others_reached(&self) -> Vec<NodeId> {
        self.node.membership.everyone().filter(|peer| *peer != self.node.me).collect()
    }

    pub(crate) fn broadcast(&self, message: Message, out: &mut Effects<BlazingMq>) {
        for peer in self.others_reached() {
            out.send_resting_on(RestsOn::Promise, peer, message.clone());
        }
    }

    /// Rule 22: the leader leads no more.
    pub(crate) fn on_cession(&mut self, from: NodeId, term: Term, out: &mut Effects<BlazingMq>) {
        match self.role_state {
            RoleState::Follower if term >= self.node.promise.term => {
                let is_mine = self.node.leader == Some(from) || self.tentative == Some(from);
                if is_mine {
                    self.lose_leader(Reason::ElectionTimeout, out);
                    self.wait(out);
                }
            }
            RoleState::Leader(_) if term <= self.node.promise.term => self.send_heartbeat_to(from, out),
            _ => {}
        }
    }

    // --- Links and node status: rules 25 to 27. ------------------------------------------------------------------
    // Deviation: answers to a scouting of a node whose link drops still count (rule 25 takes them away): they promise nothing.
    // Support counts again once the link is back (rule 26 takes it away for good): it is durable.

    pub(crate) fn on_link_up(&mut self, peer: NodeId, out: &mut Effects<BlazingMq>) {
        self.node.links_down.remove(&peer);
        self.unavailable.remove(&peer);
        if self.node.is_disk_stalled {
            out.send_resting_on(RestsOn::Nothing, peer, Message::NodeStatus { is_available: false });
        }
        // Rule 27: it learns at once which node leads. It is no supporter before it says so.
        self.send_heartbeat_to(peer, out);
        // A node that has not been asked yet is asked now; one that has answered counts again.
        self.ask_again(peer, out);
        self.settle_election(out);
    }

    pub(crate) fn on_link_down(&mut self, peer: NodeId, out: &mut Effects<BlazingMq>) {
        self.node.links_down.insert(peer);
        self.refused_scouts.remove(&peer);
        match &mut self.role_state {
            RoleState::Leader(_) => self.on_supporter_lost(peer, out),
            RoleState::Scouting { .. } | RoleState::Candidate { .. } => self.hasten_if_all_answered(out),
            RoleState::Follower if self.node.leader == Some(peer) => self.on_leader_link_down(peer, out),
            RoleState::Follower if self.tentative == Some(peer) => {
                self.lose_leader(Reason::LinkDown(peer), out);
                self.wait(out);
            }
            RoleState::Follower => {}
        }
    }

    /// The link to the leader has ended (rule 25). `[OURS]` All survivors see it at once, so they scout in the order of their ids, the first at once.
    fn on_leader_link_down(&mut self, leader: NodeId, out: &mut Effects<BlazingMq>) {
        self.eager_rounds = EAGER_ROUNDS;
        self.lost_leader = Some(leader);
        self.lose_leader(Reason::LinkDown(leader), out);
        let start = self.node.turn_after(leader);
        out.set_timer(Timer::Wait, start..=start);
    }

    /// Rule 27: one supporter fewer; below a quorum the leader stands down at once.
    fn on_supporter_lost(&mut self, peer: NodeId, out: &mut Effects<BlazingMq>) {
        let RoleState::Leader(leader) = &mut self.role_state else { return };
        leader.supporters.remove(&peer);
        leader.lsns.remove(&peer);
        if let Some(peer) = leader.office.peers.get_mut(&peer) {
            // Records in flight are lost; it registers when it is back.
            peer.become_absent();
        }
        let RoleState::Leader(leader) = &self.role_state else { return };
        let supporters = &leader.supporters;
        if self.verdict(Kind::Vote, |id| supporters.contains(&id).then_some(true)) != Verdict::Won {
            let heard = supporters.iter().copied().collect();
            return self.step_down(Reason::QuorumLost(heard), out);
        }
        self.on_source_lost(peer, out);
        self.tend_partitions(out);
    }

    /// ElectorNodeStatus: as a link that drops or comes back, but for the messages on it (rule 25).
    pub(crate) fn on_node_status(&mut self, from: NodeId, is_available: bool, out: &mut Effects<BlazingMq>) {
        if is_available {
            self.unavailable.remove(&from);
            return;
        }
        self.unavailable.insert(from);
        if matches!(self.role_state, RoleState::Follower)
            && (self.node.leader == Some(from) || self.tentative == Some(from))
        {
            self.lose_leader(Reason::DiskStalled, out);
            self.wait(out);
        }
        self.tend_partitions(out);
    }

    /// The disk does not answer: a leader gives way while its messages still do (ADR 31), and everybody hears of
    /// it.
    pub(crate) fn on_disk_stalled(&mut self, out: &mut Effects<BlazingMq>) {
        self.node.is_disk_stalled = true;
        if self.is_leading() {
            self.hand_over_and_follow(Reason::DiskStalled, out);
        }
        for peer in self.others_reached() {
            out.send_resting_on(RestsOn::Nothing, peer, Message::NodeStatus { is_available: false });
        }
    }

    pub(crate) fn on_disk_recovered(&mut self, out: &mut Effects<BlazingMq>) {
        self.node.is_disk_stalled = false;
        for peer in self.others_reached() {
            out.send_resting_on(RestsOn::Nothing, peer, Message::NodeStatus { is_available: true });
        }
    }

    // --- Administrators. -----------------------------------------------------------------------------------------

    pub(crate) fn on_asked_to_forget(&mut self, ticket: Ticket, out: &mut Effects<BlazingMq>) {
        if matches!(self.role_state, RoleState::Follower) && self.node.leader.is_some() {
            self.lose_leader(Reason::LeaderForgotten, out);
            self.wait_initially(out);
        }
        out.reply(ticket, Outcome::Done);
    }
}
