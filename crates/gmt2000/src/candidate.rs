//! The CANDIDATE: the tally board, and the way to leadership.
//!
//! Source: the note of 2000, "CANDIDATE state machine"; rules 8 to 11, §4.6 and §4.8 of `docs/protocols/rules`.
//!
//! Why the winner of a ballot holds everything that is committed: its log ends at the claim that a majority voted for, and
//! none of them voted for less than it held itself (G3). After its vote no voter acknowledges anything of an earlier ballot, so
//! what a majority acknowledged before meets the winner's majority in a node whose claim, and thus the winner's, covers it.
//!
//! `[OURS]` Two conditions keep one reign per ballot even across crashes:
//!
//! - Votes must be *identical* to the present end of the log. A claim promises nothing, so a crash may undo the log that it
//!   boasts of; then the votes that it drew are for a claim that is no more.
//! - The winner's own vote, for any node, must be durable *in this life*. A node reborn in a ballot has voted in it and does
//!   not vote again, so it cannot lead it a second time, perhaps without the messages that it sent in its first reign.

use crate::gmt2000::Gmt2000;
use crate::laboratory::Defect;
use hustings_core::quorum::Verdict;
use hustings_core::{Effects, Lsn, NodeId, Reason, Term};

impl Gmt2000 {
    /// Rule 10: the vote goes to the board of its ballot, and of no other. It may come before this node's own.
    pub(crate) fn on_vote(&mut self, from: NodeId, ballot: Term, claim: Lsn, out: &mut Effects<Gmt2000>) {
        let is_present = ballot == self.ballot.number || self.has_defect(Defect::CountsStaleVotes);
        if is_present && !self.is_leading() {
            self.ballot.board.entry(from).or_insert(claim);
            self.count_votes(out);
            // It may be what this node's own vote waits for.
            self.settle_slate(out);
        }
    }

    /// This node's own vote is durable.
    pub(crate) fn on_own_vote(&mut self, choice: NodeId, claim: Lsn, out: &mut Effects<Gmt2000>) {
        if self.ballot.number != self.node.promise.term || self.is_leading() {
            return;
        }
        self.ballot.is_vote_durable = true;
        if choice == self.node.me {
            self.ballot.board.insert(self.node.me, claim);
        }
        self.count_votes(out);
    }

    /// Whether this node voted for itself and waits for the others.
    pub(crate) fn is_awaiting_votes(&self) -> bool {
        self.node.leader.is_none()
            && self.ballot.is_claimed
            && self.ballot.number == self.node.promise.term
            && self.node.promise.vote == Some(self.node.me)
    }

    fn count_votes(&mut self, out: &mut Effects<Gmt2000>) {
        let is_open = self.ballot.number == self.node.promise.term && self.node.leader.is_none();
        if !is_open || !self.ballot.is_vote_durable || !self.node.may_lead() {
            return;
        }
        let last = self.node.log.last();
        let is_identical = |id: NodeId| self.ballot.board.get(&id) == Some(&last);
        if self.node.membership.verdict(|id| is_identical(id).then_some(true)) == Verdict::Won {
            let voters = self.ballot.board.keys().copied().filter(|id| is_identical(*id)).collect();
            self.become_leader(Reason::VoteWon(voters), out);
        }
    }
}
