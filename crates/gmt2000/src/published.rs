//! The elector and the candidate exactly as the note of 2000 has them. For the laboratory: **not safe**.
//!
//! Source: the note of 2000; rules 1 to 11 and the decisions of §4.4. No ballots: an ELECT belongs to no election, and a vote
//! excludes no other. Nothing about elections survives a restart. A winner leads the term after the one that its voters saw:
//!
//! ```text
//!    n1: ELECT, votes n1     n2: ELECT, votes n2     n3 hears n1's ELECT, votes n1 ──► n1 leads term 1 with {n1 n3}
//!                                                    n3 hears n2's, delayed, votes n2 ──► n2 leads term 1 with {n2 n3}
//! ```
//!
//! Log, acknowledgements and commit below are this crate's, so that the defect can be watched down to a lost write. The parts that the
//! note does not have are off: link-down, early votes, the quorum check.

use crate::gmt2000::{Gmt2000, RoleState};
use crate::message::{Claim, Message};
use hustings_core::quorum::Verdict;
use hustings_core::{Effects, Lsn, NodeId, Promise, Reason, RestsOn, Term};
use std::collections::BTreeMap;

/// The state of the note's two machines.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Published {
    /// ELECTOR: whether it is VOTING, else WATCHING; also of a leader.
    pub(crate) is_voting: bool,
    /// ELECTOR: the claims heard, by node.
    pub(crate) slate: BTreeMap<NodeId, Lsn>,
    /// CANDIDATE: the latest vote of each server for this one.
    board: BTreeMap<NodeId, Lsn>,
    /// The last leader that this server knows of.
    old_leader: Option<NodeId>,
}

impl Gmt2000 {
    pub(crate) fn is_voting_as_published(&self) -> bool {
        self.published.as_ref().is_some_and(|published| published.is_voting)
    }

    /// The last message seen: the term of the last leader heard, and where the log ends.
    pub(crate) fn last_seen(&self) -> Lsn {
        Lsn { term: self.node.promise.term, index: self.node.log.last().index }
    }

    /// Rule 4: the leader was silent for too long, so this server starts VOTING.
    pub(crate) fn on_watch_timer_as_published(&mut self, out: &mut Effects<Gmt2000>) {
        self.become_voting_as_published(Reason::ElectionTimeout, out);
    }

    /// Rules 3 and 6: another server's ELECT is noted, and a WATCHING server starts VOTING.
    pub(crate) fn on_elect_as_published(&mut self, from: NodeId, claim: Claim, out: &mut Effects<Gmt2000>) {
        let Some(published) = &mut self.published else { return };
        published.slate.insert(from, claim.last);
        if !published.is_voting {
            self.become_voting_as_published(Reason::HigherTerm(from), out);
        }
    }

    /// Rule 7, and rule 1 again. §4.4 b: the old leader is alive if its claim is on the slate.
    pub(crate) fn on_round_timer_as_published(&mut self, out: &mut Effects<Gmt2000>) {
        let from = self.role();
        let Some(published) = &mut self.published else { return };
        if !published.is_voting {
            return;
        }
        published.is_voting = false;
        let slate = std::mem::take(&mut published.slate);
        let latest = slate.iter().max_by_key(|(id, last)| (**last, std::cmp::Reverse(**id))).map(|(id, _)| *id);
        let Some(choice) = published.old_leader.filter(|leader| slate.contains_key(leader)).or(latest) else { return };
        let claim = slate[&choice];
        self.become_watching_as_published(from, slate.into_keys().collect(), out);
        if choice == self.node.me {
            // §4.4 e: a vote for itself is local.
            self.on_vote_as_published(self.node.me, claim, out);
        } else {
            let vote = Message::Vote { ballot: Term::ZERO, choice, claim };
            out.send_resting_on(RestsOn::Nothing, choice, vote);
        }
    }

    /// Rule 10; §4.4 f: identical votes name the same (term, msg), and §4.4 a: the next term is the winner's.
    pub(crate) fn on_vote_as_published(&mut self, from: NodeId, claim: Lsn, out: &mut Effects<Gmt2000>) {
        let is_leading = self.is_leading();
        let Some(published) = self.published.as_mut().filter(|_| !is_leading) else { return };
        published.board.insert(from, claim);
        let is_identical = |id: NodeId| published.board.get(&id) == Some(&claim);
        if self.node.membership.verdict(|id| is_identical(id).then_some(true)) != Verdict::Won {
            return;
        }
        let voters = published.board.keys().copied().filter(|id| is_identical(*id)).collect();
        published.board.clear();
        published.old_leader = Some(self.node.me);
        // Not even its own log is looked at: only the votes count.
        let term = claim.term.next().max(self.node.log.last().term.next());
        self.node.promise = Promise::without_vote(term);
        self.become_leader(Reason::VoteWon(voters), out);
        self.watch(out);
    }

    /// Rules 8 and 9: a LEAD that is not obsolete clears the board. The note's VOTING does not hear it (§4.4 d): ended by a LEAD,
    /// it would begin again with the next ELECT, and answer every ELECT with its own as fast as the leader speaks (seed 47).
    /// The bound of one ELECT and one VOTE per round trip is what the note says of itself.
    pub(crate) fn hear_leader_as_published(&mut self) {
        if let Some(published) = &mut self.published {
            published.board.clear();
            published.old_leader = self.node.leader;
        }
    }

    /// A leader's elector hears its own LEADs.
    pub(crate) fn watch_own_heartbeat_as_published(&mut self, out: &mut Effects<Gmt2000>) {
        if self.published.as_ref().is_some_and(|published| !published.is_voting)
            && matches!(self.role_state, RoleState::Leader(_))
        {
            self.watch(out);
        }
    }
}
