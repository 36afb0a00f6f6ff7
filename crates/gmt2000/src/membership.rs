//! Changes of membership: one voter at a time, in force once committed and applied.
//!
//! `[OURS]`: the note has "N servers configured". Source of the rules: RM-1 to RM-9, house §3, `docs/adr/0001`. Safe because
//! memberships that follow each other share a member in any two majorities, because a leader starts one change at a time and
//! only after a message of its own term is committed, and because the record of a commit precedes every later message: whoever
//! holds a second change knows that the first is in force, and whoever does not is voted for by nobody who does (G3).

use crate::gmt2000::{Gmt2000, Leader, Part};
use crate::laboratory::Defect;
use crate::message::Message;
use bytes::Bytes;
use hustings_core::{
    Change, Effects, Entry, EntryKind, Lsn, Member, Membership, MembershipChange, MembershipRefusal, NodeId, Origin,
    Priority, Reason, Refusal, RestsOn, Stamp, Wire,
};
use std::sync::Arc;

impl Gmt2000 {
    /// Why a change cannot be written now; definite.
    pub(crate) fn membership_refusal(&self, leader: &Leader, payload: &Bytes) -> Option<Refusal> {
        let change = match MembershipChange::decode(payload.clone()) {
            Ok(change) => change,
            Err(error) => return Some(Refusal::Membership(MembershipRefusal::NotFound, error.to_string())),
        };
        let is_early = self.commit < leader.first_own;
        let is_hasty = is_early && self.has_defect(Defect::ChangesBeforeOwnCommit);
        if is_early && !is_hasty {
            return Some(Refusal::NotReady);
        }
        if leader.pending_change > self.commit && !is_hasty && !self.has_defect(Defect::ChangesTogether) {
            return Some(Refusal::MembershipPending);
        }
        let refused = self.membership.refusal_of(&change, |id| self.is_caught_up(leader, id));
        let may_lead = |id: NodeId| self.may_ever_lead(leader, id);
        let next = self.membership.after_one(&change).and_then(|next| next.with_somebody_to_lead(may_lead));
        let refused = refused.or_else(|| next.err());
        refused.map(|error| Refusal::Membership(error.kind, error.what))
    }

    /// Whether a member may lead, by what it said last; of one that was not heard yet, yes.
    fn may_ever_lead(&self, leader: &Leader, id: NodeId) -> bool {
        let priority =
            if id == self.me { Some(self.priority) } else { leader.peers.get(&id).map(|peer| peer.priority) };
        priority != Some(Priority::Never)
    }

    /// Nine tenths of what is committed, as etcd asks of a learner.
    fn is_caught_up(&self, leader: &Leader, id: NodeId) -> bool {
        leader.peers.get(&id).is_some_and(|peer| peer.stored.saturating_mul(10) >= self.commit.saturating_mul(9))
    }

    /// A committed change takes effect. One that cannot be made any more changes nothing, on every node alike.
    pub(crate) fn apply_membership(&mut self, entry: &Entry, out: &mut Effects<Gmt2000>) {
        let Ok(change) = MembershipChange::decode(entry.payload.clone()) else { return };
        if let Ok(next) = self.membership.after_one(&change) {
            self.adopt(Arc::new(next), entry.lsn.index, out);
        }
    }

    /// The membership from here on; a leader adjusts whom it sends to.
    pub(crate) fn adopt(&mut self, membership: Arc<Membership>, index: u64, out: &mut Effects<Gmt2000>) {
        self.reconfigure(membership, index, out);
        let (term, last, commit, me) = (self.promise.term, self.log.last().index, self.commit, self.me);
        let Part::Leader(leader) = &mut self.part else { return };
        for peer in self.membership.everyone() {
            Gmt2000::welcome(leader, peer, last);
        }
        let gone: Vec<NodeId> =
            leader.peers.keys().copied().filter(|peer| !self.membership.has(*peer) && *peer != me).collect();
        for peer in gone {
            let Some(stored) = leader.peers.remove(&peer).map(|peer| peer.stored) else { continue };
            // Whoever is removed should hear so: the last LEAD to it tells what is committed.
            let index = commit.min(stored);
            if let Some(at) = self.log.term_at(index) {
                let previous = Lsn { term: at, index };
                let lead = Message::Lead { term, previous, entries: Vec::new(), commit, round: None };
                out.send_resting_on(RestsOn::Nothing, peer, lead);
            }
        }
        self.abort_transfer_to_strangers(out);
        // A smaller majority may have confirmed already what a larger one had not.
        self.confirm_reads(out);
    }

    /// A learner that asked for a vote gets it once it has caught up (MB-06).
    pub(crate) fn promote_if_ready(&mut self, peer: NodeId, out: &mut Effects<Gmt2000>) {
        let Part::Leader(leader) = &self.part else { return };
        let Some(member) = self.membership.members.get(&peer) else { return };
        let waits = member.wants_vote && self.membership.is_learner(peer) && leader.transfer.is_none();
        let is_ready = leader.peers.get(&peer).is_some_and(|peer| peer.stored >= leader.first_own.max(self.commit));
        let may_change = leader.pending_change <= self.commit && self.commit >= leader.first_own;
        if !waits || !is_ready || !may_change {
            return;
        }
        let described = Member { wants_vote: false, ..member.clone() };
        let change = MembershipChange::of([Change::AddVoter(peer), Change::Describe(peer, described)]);
        let lsn = Lsn { term: self.promise.term, index: self.log.last().index + 1 };
        let (kind, payload) = (EntryKind::Membership, change.to_bytes());
        self.append_own(Entry { lsn, kind, origin: Origin::NOBODY, stamp: Stamp::NONE, payload }, out);
        self.count_own_log(out);
        self.send_to_all(out);
    }

    /// A leader that is no voter any more leaves, and hands over so that nobody waits for a timeout.
    pub(crate) fn step_down_if_removed(&mut self, out: &mut Effects<Gmt2000>) {
        if self.is_leading() && !self.membership.is_voter(self.me) {
            self.hand_over_and_follow(Reason::Removed, out);
        }
    }
}
