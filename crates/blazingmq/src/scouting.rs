//! Scouting: would a proposal succeed? Asked before anybody is disturbed.
//!
//! Source: the article, "Solution: The ElectionScouting Request"; rules 3 to 7 of `docs/protocols/rules`. A scouting names the
//! term that would be proposed and raises none (E7); a node that follows a leader says no, so a node that was cut off deposes
//! nobody (EL-1, EL-2). The article's literal `selfNode < proposedNode` is an option for the laboratory (§1.7).
//!
//! `[OURS]` A round is told from the one before (EL-10); a no names the responder's term, so that the next round asks
//! for a term that can be had; a node that said no because of its leader answers again when it loses that leader; a
//! voter says no to one that is behind in memberships.

use crate::blazingmq::{BlazingMq, Kind, RoleState, Timer};
use crate::laboratory::Defect;
use crate::message::Message;
use hustings_core::quorum::Verdict;
use hustings_core::tally::Vote;
use hustings_core::{Effects, Lsn, NodeId, Outcome, Reason, Refusal, RestsOn, Term, Ticket};

impl BlazingMq {
    /// Scouts, or proposes at once where there is nobody to ask.
    pub(crate) fn seek_leadership(&mut self, because: Reason, out: &mut Effects<BlazingMq>) {
        if self.options.scouting && !self.node.is_alone() {
            self.become_scout(because, out);
        } else {
            self.become_candidate(because, false, out);
        }
    }

    pub(crate) fn on_asked_to_campaign(&mut self, ticket: Ticket, out: &mut Effects<BlazingMq>) {
        if self.is_leading() {
            return out.reply(ticket, Outcome::Done);
        }
        if !self.node.may_lead() {
            return out.refuse(ticket, Refusal::BadTransferee(self.node.me));
        }
        self.seek_leadership(Reason::Asked, out);
        out.reply(ticket, Outcome::Done);
    }

    /// The term that this node would propose.
    pub(crate) fn next_term(&self) -> Term {
        self.node.promise.term.max(self.term_seen).next()
    }

    /// `[OURS]` This node does not vote as far as it knows, or must never lead, and nobody leads. Those who know more say what is committed,
    /// or note that they hold what it lacks. Nothing is scouted: their answers count for nothing else.
    pub(crate) fn ask_who_votes(&mut self, out: &mut Effects<BlazingMq>) {
        if !self.options.scouting || !self.node.only_asks() {
            return;
        }
        // One that must never lead wants no leadership that another could lack anything for.
        let term = if self.node.membership.is_voter(self.node.me) { Term::ZERO } else { self.next_term() };
        let (round, commit) = (self.round, self.node.committed());
        for voter in self.node.other_voters() {
            out.send_resting_on(RestsOn::Nothing, voter, Message::Scouting { term, round, commit });
        }
    }

    /// A voter is back that could not be asked.
    pub(crate) fn ask_again(&mut self, peer: NodeId, out: &mut Effects<BlazingMq>) {
        let commit = self.node.committed();
        let question = match &self.role_state {
            RoleState::Scouting { term, tally } if !tally.has_answer(peer) => {
                Message::Scouting { term: *term, round: self.round, commit }
            }
            RoleState::Candidate { tally } if !tally.has_answer(peer) => {
                Message::Proposal { term: self.node.promise.term, is_transfer: false, commit }
            }
            _ => return,
        };
        if self.node.membership.is_voter(peer) {
            out.send_resting_on(RestsOn::Promise, peer, question);
        }
    }

    /// Rule 4: answers a scouting, and remembers it if a leader is in the way.
    pub(crate) fn on_scouting(
        &mut self,
        from: NodeId,
        term: Term,
        round: bool,
        commit: Lsn,
        out: &mut Effects<BlazingMq>,
    ) {
        self.learn_commit(commit, out);
        // Only of a question that is asked now: one that waited for the leader's end knows what its sender knew then.
        let is_behind = term > Term::ZERO && !self.is_up_to_date_in_members(commit);
        self.node.note_that_others_lack(self.node.leader.is_none() && is_behind && self.node.membership.is_voter(from));
        if matches!(self.role_state, RoleState::Follower) && self.node.leader.is_some() && term > self.node.promise.term
        {
            self.refused_scouts.insert(from, (term, round, commit));
        }
        self.answer_scouting(from, term, round, commit, out);
    }

    pub(crate) fn answer_scouting(
        &mut self,
        from: NodeId,
        term: Term,
        round: bool,
        commit: Lsn,
        out: &mut Effects<BlazingMq>,
    ) {
        let is_wanted = if self.options.seed_literal { self.node.me < from } else { term > self.node.promise.term };
        let is_behind = !self.is_up_to_date_in_members(commit);
        let will_vote = self.node.leader.is_none() && is_wanted && !is_behind;
        let reply =
            Message::ScoutingReply { term: self.node.promise.term, round, will_vote, commit: self.node.committed() };
        out.send_resting_on(RestsOn::Nothing, from, reply);
    }

    /// `[OURS]` Any node may lead, however old its ledger; but not by a membership two changes behind, for its quorums
    /// need not meet those of the present one (`docs/protocols/blazingmq.md`).
    pub(crate) fn is_up_to_date_in_members(&self, commit: Lsn) -> bool {
        commit.index >= self.node.membership_index || self.has(Defect::SupportsStaleMemberships)
    }

    /// Rule 5: counts an answer; with a quorum this node becomes a candidate.
    pub(crate) fn on_scouting_reply(
        &mut self,
        from: NodeId,
        term: Term,
        round: bool,
        will_vote: bool,
        commit: Lsn,
        out: &mut Effects<BlazingMq>,
    ) {
        self.learn_commit(commit, out);
        if !matches!(self.role_state, RoleState::Leader(_)) && term > self.term_seen {
            self.term_seen = term;
        }
        let membership = self.node.membership.clone();
        let is_this_round = round == self.round;
        let RoleState::Scouting { tally, .. } = &mut self.role_state else { return };
        if !is_this_round {
            return;
        }
        if will_vote {
            tally.forget_refusal(from);
        }
        tally.record(from, if will_vote { Vote::Granted } else { Vote::Refused }, &membership);
        self.settle_scouting(out);
    }

    pub(crate) fn settle_scouting(&mut self, out: &mut Effects<BlazingMq>) {
        let RoleState::Scouting { tally, .. } = &self.role_state else { return };
        let granted = tally.granted();
        let verdict = self.verdict(Kind::Vote, |id| match (granted.contains(&id), tally.has_answer(id)) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        });
        match verdict {
            Verdict::Won => self.become_candidate(Reason::PollWon(granted), false, out),
            // Right after a link-down a no is not final: its voter may be about to see the leader die.
            Verdict::Lost if self.eager_rounds == 0 => self.end_scouting(out),
            Verdict::Lost | Verdict::Pending => self.hasten_if_all_answered(out),
        }
    }

    /// All who can answer have answered, and that was not enough (rule 5 b): the next round comes after the random
    /// wait.
    pub(crate) fn hasten_if_all_answered(&mut self, out: &mut Effects<BlazingMq>) {
        let (RoleState::Scouting { tally, .. } | RoleState::Candidate { tally }) = &self.role_state else { return };
        let awaits =
            |voter: NodeId| voter != self.node.me && !self.node.links_down.contains(&voter) && !tally.has_answer(voter);
        if self.node.membership.all_voters().any(awaits) {
            return;
        }
        match &self.role_state {
            // A refusal may still be taken back: not at once, and not for a whole timeout either.
            RoleState::Scouting { .. } if self.eager_rounds > 0 => {
                out.set_timer(Timer::Scouting, self.node.timing.heartbeat / 2..=self.node.timing.heartbeat)
            }
            RoleState::Scouting { .. } => self.end_scouting(out),
            // This node's own support may be on its way to the disk.
            RoleState::Candidate { tally } if tally.has_answer(self.node.me) => self.give_up(out),
            _ => {}
        }
    }

    /// Rule 7: the scouting has taken too long, and ends.
    pub(crate) fn on_scouting_timer(&mut self, out: &mut Effects<BlazingMq>) {
        self.end_scouting(out);
    }
}
