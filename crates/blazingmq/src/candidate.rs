//! Proposals and support: rules 6 and 8 to 15 of `docs/protocols/rules`.
//!
//! Source: the article, "Updated Algorithm using Term". Support is given only for a term strictly above a node's
//! own, and giving it raises that: so the term alone says that this node has already voted, or proposed, in it (E5). `[OURS]`
//! It is durable before a proposal or a support leaves, which alone makes terms unique across crashes (E1, EL-8); a
//! refusal is answered and names the refuser's term; support counts only in its own term.

use crate::blazingmq::{BlazingMq, Kind, RoleState};
use crate::laboratory::Defect;
use crate::message::Message;
use hustings_core::quorum::Verdict;
use hustings_core::tally::Vote;
use hustings_core::{Effects, Lsn, NodeId, Reason, RestsOn, Term};

impl BlazingMq {
    /// Rules 8 to 11: a confirmed leader is stuck to, whatever the term (E6); otherwise a later term wins support.
    pub(crate) fn on_proposal(
        &mut self,
        from: NodeId,
        term: Term,
        is_transfer: bool,
        commit: Lsn,
        out: &mut Effects<BlazingMq>,
    ) {
        self.learn_commit(commit, out);
        let is_behind = !self.is_up_to_date_in_members(commit);
        // Without scouting this is where it shows.
        self.node.note_that_others_lack(self.node.leader.is_none() && is_behind && self.node.membership.is_voter(from));
        let is_bound = match &self.role_state {
            RoleState::Leader(leader) => leader.office.transfer.as_ref().is_none_or(|transfer| transfer.to != from),
            _ => self.node.leader.is_some(),
        };
        let is_free = !is_bound || (is_transfer && !self.is_leading());
        let may_repeat = self.has(Defect::SupportsTwice) && term == self.node.promise.term && !self.is_leading();
        let is_later = term > self.node.promise.term || may_repeat;
        if !is_free || !is_later || is_behind {
            if !self.options.as_published {
                let refusal = Message::Refusal { term: self.node.promise.term, proposed: term };
                out.send_resting_on(RestsOn::Nothing, from, refusal);
            }
            return;
        }
        self.support(from, term, out);
    }

    /// Rules 12 to 14. Deviation: a leader ignores support of a later term (rule 14 steps down); a node that is given such
    /// support has been in that term itself.
    pub(crate) fn on_support(&mut self, from: NodeId, term: Term, out: &mut Effects<BlazingMq>) {
        if term != self.node.promise.term {
            return;
        }
        let membership = self.node.membership.clone();
        match &mut self.role_state {
            RoleState::Candidate { tally } => {
                tally.forget_refusal(from);
                tally.record(from, Vote::Granted, &membership);
                self.settle_election(out);
            }
            RoleState::Leader(leader) => {
                leader.supporters.insert(from);
            }
            _ => {}
        }
    }

    /// `[OURS]` A refusal is an answer, and tells which term can be had.
    pub(crate) fn on_refusal(&mut self, from: NodeId, term: Term, proposed: Term, out: &mut Effects<BlazingMq>) {
        if !self.is_leading() {
            self.term_seen = self.term_seen.max(term);
        }
        let (own, membership) = (self.node.promise.term, self.node.membership.clone());
        let RoleState::Candidate { tally } = &mut self.role_state else { return };
        if proposed == own {
            tally.record(from, Vote::Refused, &membership);
            self.settle_election(out);
        }
    }

    /// Counts the supporters whose links are up (rule 26): a leader without a quorum of links stands down at once (rule 27).
    pub(crate) fn settle_election(&mut self, out: &mut Effects<BlazingMq>) {
        let RoleState::Candidate { tally } = &self.role_state else { return };
        let is_up = |id: &NodeId| !self.node.links_down.contains(id);
        let granted: Vec<NodeId> = tally.granted().into_iter().filter(is_up).collect();
        // Nobody leads before its own term is durable.
        if !tally.has_answer(self.node.me) {
            return;
        }
        let refused = tally.refused();
        let said = |id| (granted.contains(&id) || refused.contains(&id)).then(|| granted.contains(&id));
        let verdict = self.verdict(Kind::Vote, said);
        match verdict {
            Verdict::Won => self.become_leader(Reason::VoteWon(granted), out),
            Verdict::Lost => self.give_up(out),
            Verdict::Pending => self.hasten_if_all_answered(out),
        }
    }

    /// Rule 15: QUORUM_NOT_ACHIEVED; the term is kept.
    pub(crate) fn on_election_timer(&mut self, out: &mut Effects<BlazingMq>) {
        self.give_up(out);
    }
}
