//! The low-ball poll: whether there is a leader that only this node does not hear. TF-1, TF-3 to TF-7.
//!
//! Source: the article, "low-ball prepares": a node that hears no leader first sends a prepare with a ballot that
//! nobody can promise, and reads the refusals. *Strong evidence*: somebody has committed more. *Weak evidence*:
//! somebody saw a newer heartbeat. The *reachability check*: without answers of a promise quorum nothing happens at all
//! (TI-9). The poll changes nobody's promise (TI-8).
//!
//! `[NORM]` Polls are numbered (TH-5); heartbeats are (ballot, counter), no clocks (TH-6); the leader answers that it
//! leads (TH-4); a decision waits for everybody reachable, or for a grace. `[OURS]` When the leader's link drops, its
//! followers poll at once, in the order of ranks: not heartbeats count then, which nobody has missed yet, but which
//! others have lost the leader; those that have not are asked to say so as soon as they have.

use crate::message::{Heartbeat, Message, Says};
use crate::paxos::{Paxos, RoleState, Stage, Timer};
use hustings_core::leading::RANK_STEP;
use hustings_core::{Effects, NodeId, Outcome, Priority, Reason, Refusal, RestsOn, Term, Ticket};
use std::collections::BTreeMap;

/// Polls after a link-down that follow each other quickly; then the usual pace.
const EAGER_ROUNDS: u8 = 5;

/// A poll that is under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Poll {
    /// Number of the poll, unique at this node in this life.
    pub id: u64,
    /// Whether this node polls because the leader's link dropped.
    pub is_early: bool,
    /// The answers, by responder.
    pub answers: BTreeMap<NodeId, Answer>,
}

/// An answer to a poll.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Answer {
    /// The newest heartbeat that the responder has seen.
    pub heartbeat: Heartbeat,
    /// Its word on its leader.
    pub says: Says,
    /// It has committed everything through here.
    pub committed: u64,
}

impl Paxos {
    // --- The deadline. -------------------------------------------------------------------------------------------

    /// Drawn afresh each time (§1.5). Preferred nodes wait less.
    pub(crate) fn set_deadline(&self, out: &mut Effects<Paxos>) {
        let (shortest, longest) = (self.node.timing.election_min, self.node.timing.election_max);
        let spread = longest.saturating_sub(shortest);
        let longest = if self.node.priority() == Priority::Preferred { shortest + spread / 4 } else { longest };
        out.set_timer(Timer::Deadline, shortest..=longest);
    }

    pub(crate) fn on_deadline(&mut self, out: &mut Effects<Paxos>) {
        match &self.role_state {
            // TF-3, TF-4.
            RoleState::Follower if self.node.may_lead() => self.seek_leadership(out),
            RoleState::Polling(_) if self.node.may_lead() => {
                // TF-4. Perhaps too few answered because this node does not know yet who votes.
                self.ask_those_ahead(out);
                self.seek_leadership(out);
            }
            RoleState::Follower | RoleState::Polling(_) => {
                if self.node.leader.is_none() {
                    self.ask_what_is_committed(out);
                }
                self.lose_leader(Reason::ElectionTimeout, out);
                self.set_deadline(out);
            }
            RoleState::Reign(reign) if reign.stage == Stage::Preparing => self.on_prepare_deadline(out),
            RoleState::Reign(_) => {}
        }
    }

    /// `[OURS]` This node cannot lead, and nobody leads: perhaps because it does not know yet that it votes. A poll tells it.
    fn ask_what_is_committed(&mut self, out: &mut Effects<Paxos>) {
        if !matches!(self.role_state, RoleState::Follower) || !self.options.low_ball {
            return;
        }
        self.poll += 1;
        // Questions that were asked before may be lost.
        self.asked = None;
        for voter in self.node.other_voters() {
            out.send_resting_on(RestsOn::Nothing, voter, Message::LowBall { poll: self.poll });
        }
    }

    fn seek_leadership(&mut self, out: &mut Effects<Paxos>) {
        // This node's own id stands for a leader of which only others said that it is gone.
        let gone = self.lost_leader.filter(|leader| *leader != self.node.me);
        let because = gone.map_or(Reason::ElectionTimeout, Reason::LinkDown);
        self.asked = None;
        self.lose_leader(because.clone(), out);
        if self.options.low_ball { self.become_polling(because, out) } else { self.take_over(because, out) }
    }

    // --- The poll. -----------------------------------------------------------------------------------------------

    /// TA-1: every low-ball prepare ends in a refusal, and changes nothing (TI-8).
    pub(crate) fn on_low_ball(&mut self, from: NodeId, poll: u64, out: &mut Effects<Paxos>) {
        self.answer_poll(from, poll, out);
    }

    pub(crate) fn answer_poll(&mut self, to: NodeId, poll: u64, out: &mut Effects<Paxos>) {
        let says = match &self.role_state {
            // TH-4: live, for a leader without a quorum stands down (TL-10).
            RoleState::Reign(reign) if reign.stage != Stage::Preparing => Says::Leads,
            _ if self.node.leader.is_some() => Says::Hears,
            _ => Says::Silent,
        };
        if says == Says::Hears {
            self.told_polls.insert(to, poll);
        }
        let (promised, committed, heartbeat) = (self.node.promise.term, self.node.commit, self.heartbeat);
        let nack = Message::LowBallNack { poll, promised, committed, heartbeat, says };
        out.send_resting_on(RestsOn::Nothing, to, nack);
        if says == Says::Leads {
            self.send_heartbeat_to(to, out);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one message")]
    pub(crate) fn on_low_ball_nack(
        &mut self,
        from: NodeId,
        poll: u64,
        promised: Term,
        committed: u64,
        heartbeat: Heartbeat,
        says: Says,
        out: &mut Effects<Paxos>,
    ) {
        self.ballot_seen = self.ballot_seen.max(promised);
        let is_plausible = self.heartbeat.may_become(heartbeat);
        let is_asking =
            matches!(self.role_state, RoleState::Follower) && poll == self.poll && self.node.leader.is_none();
        if is_asking && !self.node.may_lead() && committed > self.node.commit {
            return self.ask_for_committed(from, out);
        }
        let RoleState::Polling(mine) = &mut self.role_state else { return };
        if mine.id != poll || !is_plausible {
            // TH-5: of an earlier poll.
            return;
        }
        let is_early = mine.is_early;
        mine.answers.insert(from, Answer { heartbeat, says, committed });
        if committed > self.node.commit && !self.is_stale_evidence(from, committed, says) {
            // TF-5: strong evidence; one answer is enough, from any node.
            self.evidence.insert(from, committed);
            self.stay(vec![from], out);
            if is_early && says != Says::Leads {
                self.poll_again_soon(out);
            }
            return self.ask_for_committed(from, out);
        }
        if says == Says::Leads && !self.node.links_down.contains(&from) {
            self.heartbeat = self.heartbeat.max(heartbeat);
            return self.stay(vec![from], out);
        }
        self.settle_poll(false, out);
    }

    /// `[OURS]` Whether this member hears nobody and has committed nothing since it was strong evidence: there is no leader behind what it
    /// shows. It may be unable to give its slots away: its disk hangs, and only a snapshot holds them. What it committed was
    /// accepted by a quorum, and a promise quorum reports that.
    fn is_stale_evidence(&self, by: NodeId, committed: u64, says: Says) -> bool {
        says == Says::Silent && self.evidence.get(&by).is_some_and(|shown| *shown >= committed)
    }

    pub(crate) fn on_grace(&mut self, out: &mut Effects<Paxos>) {
        self.settle_poll(true, out);
    }

    /// TF-6, TF-7: decides whether to take over or to stay, once the answers allow it.
    pub(crate) fn settle_poll(&mut self, is_grace_over: bool, out: &mut Effects<Paxos>) {
        let RoleState::Polling(poll) = &self.role_state else { return };
        let (me, needed) = (self.node.me, self.promises_needed());
        let answer = |id: NodeId| poll.answers.get(&id);
        // A member that hears too few to commit anything leads nobody, however few promises are needed.
        let heard_needed = needed.max(self.accepts_needed());
        if self.count_voters(|id| id == me || answer(id).is_some()) < heard_needed {
            return;
        }
        let is_evidence = |id: NodeId| {
            answer(id).is_some_and(|Answer { heartbeat, says, .. }| {
                let is_newer = poll.is_early || *heartbeat > self.heartbeat;
                *says == Says::Leads || (*says == Says::Hears && is_newer)
            })
        };
        let witnesses: Vec<NodeId> = self.node.membership.all_voters().filter(|id| is_evidence(*id)).collect();
        // A member that has committed more promises nothing for the slots that this node lacks.
        let can_promise =
            |id: NodeId| id == me || answer(id).is_some_and(|answer| answer.committed <= self.node.commit);
        // The one more stands for the leader itself, hidden behind the broken link.
        let must_stay = !witnesses.is_empty() && witnesses.len() + 1 >= needed;
        if poll.is_early {
            let lost = self.count_voters(|id| can_promise(id) && !is_evidence(id));
            if lost >= heard_needed && !must_stay {
                self.win_poll(out);
            }
            // Otherwise a node that still hears the leader may be the next to lose it, and says so.
            return;
        }
        let has_everybody =
            self.count_voters(|id| id == me || answer(id).is_some() || self.node.links_down.contains(&id));
        if !is_grace_over && has_everybody < self.node.membership.all_voters().count() {
            let grace = self.node.timing.heartbeat / 4;
            return out.set_timer(Timer::Grace, grace..=grace);
        }
        if must_stay {
            let newest = poll.answers.values().map(|answer| answer.heartbeat).max().unwrap_or_default();
            self.heartbeat = self.heartbeat.max(newest);
            return self.stay(witnesses, out);
        }
        if self.count_voters(can_promise) < needed {
            return self.wait_for_those_ahead(out);
        }
        self.win_poll(out);
    }

    /// `[OURS]` No quorum could promise without members that have committed more: what they have comes first, however long it takes.
    fn wait_for_those_ahead(&mut self, out: &mut Effects<Paxos>) {
        self.ask_those_ahead(out);
        let ahead = self.those_ahead();
        self.stay(ahead, out);
    }

    /// The members whose answers to the poll showed a later commit than this node's.
    fn those_ahead(&self) -> Vec<NodeId> {
        let RoleState::Polling(poll) = &self.role_state else { return Vec::new() };
        let ahead = poll.answers.iter().filter(|(_, answer)| answer.committed > self.node.commit);
        ahead.map(|(member, _)| *member).collect()
    }

    fn ask_those_ahead(&mut self, out: &mut Effects<Paxos>) {
        for member in self.those_ahead() {
            self.ask_for_committed(member, out);
        }
    }

    fn win_poll(&mut self, out: &mut Effects<Paxos>) {
        let RoleState::Polling(poll) = &self.role_state else { return };
        let mut voters: Vec<NodeId> = poll.answers.keys().copied().collect();
        if !self.node.may_lead() {
            // Since it asked it was demoted, or has a snapshot to install.
            return self.back_down(Reason::PollLost { granted: voters, refused: vec![self.node.me] }, out);
        }
        voters.push(self.node.me);
        voters.sort_unstable();
        self.take_over(Reason::PollWon(voters), out);
    }

    /// There is a leader: this node follows, and waits for another deadline.
    fn stay(&mut self, refused: Vec<NodeId>, out: &mut Effects<Paxos>) {
        let RoleState::Polling(poll) = &self.role_state else { return };
        let granted = poll.answers.keys().copied().filter(|id| !refused.contains(id)).collect();
        self.lost_leader = None;
        self.back_down(Reason::PollLost { granted, refused }, out);
    }

    /// The leader is gone, and only what it committed last was missing here.
    fn poll_again_soon(&mut self, out: &mut Effects<Paxos>) {
        self.lost_leader = Some(self.node.me);
        out.set_timer(Timer::Deadline, RANK_STEP..=RANK_STEP * 2);
    }

    // --- Links. --------------------------------------------------------------------------------------------------

    pub(crate) fn on_link_up(&mut self, peer: NodeId, out: &mut Effects<Paxos>) {
        self.node.links_down.remove(&peer);
        let commit = self.node.commit;
        match &mut self.role_state {
            RoleState::Reign(reign) if reign.stage != Stage::Preparing => {
                // Messages under way may be lost.
                if let Some(peer) = reign.office.peers.get_mut(&peer) {
                    peer.on_link_up(commit + 1);
                }
                self.send_heartbeat_to(peer, out);
                self.send_accepts_to(peer, out);
            }
            RoleState::Reign(_) => self.send_prepare_to(peer, out),
            RoleState::Polling(poll) => {
                let poll = poll.id;
                out.send_resting_on(RestsOn::Nothing, peer, Message::LowBall { poll });
            }
            RoleState::Follower => {}
        }
    }

    pub(crate) fn on_link_down(&mut self, peer: NodeId, out: &mut Effects<Paxos>) {
        self.node.links_down.insert(peer);
        self.told_polls.remove(&peer);
        if self.asked.is_some_and(|(from, _)| from == peer) {
            self.asked = None;
        }
        match &self.role_state {
            RoleState::Reign(reign) if reign.stage != Stage::Preparing => {
                // TL-10, as soon as it is certain.
                if self.count_voters(|id| !self.node.links_down.contains(&id)) < self.voters_needed() {
                    let heard =
                        self.node.membership.all_voters().filter(|id| !self.node.links_down.contains(id)).collect();
                    self.back_down(Reason::QuorumLost(heard), out);
                }
            }
            RoleState::Follower if self.node.leader == Some(peer) => {
                self.eager_rounds = EAGER_ROUNDS;
                self.lost_leader = Some(peer);
                self.lose_leader(Reason::LinkDown(peer), out);
                let start = self.node.turn_after(peer);
                out.set_timer(Timer::Deadline, start..=start);
            }
            RoleState::Polling(_) => self.settle_poll(false, out),
            RoleState::Reign(_) | RoleState::Follower => {}
        }
    }

    pub(crate) fn on_asked_to_forget(&mut self, ticket: Ticket, out: &mut Effects<Paxos>) {
        if matches!(self.role_state, RoleState::Follower) {
            self.lose_leader(Reason::LeaderForgotten, out);
            self.set_deadline(out);
        }
        out.reply(ticket, Outcome::Done);
    }

    pub(crate) fn on_asked_to_campaign(&mut self, ticket: Ticket, out: &mut Effects<Paxos>) {
        if !self.node.may_lead() {
            return out.refuse(ticket, Refusal::BadTransferee(self.node.me));
        }
        if self.reign().is_none() {
            self.seek_leadership(out);
        }
        out.reply(ticket, Outcome::Done);
    }
}
