//! Changes of membership: joint where more than one voter changes, in force once committed and applied.
//!
//! Sources: Raft §6; dissertation ch. 4; rules RM-1 to RM-9, RV-1. Safe because a leader starts one change at a time and
//! only after an entry of its own term is committed, and because the record of a commit precedes every later entry: whoever
//! holds a second change knows that the first is in force.

use crate::laboratory::Defect;
use crate::message::Message;
use crate::raft::{Leader, Part, Raft};
use bytes::Bytes;
use hustings_core::{
    Change, Effects, Entry, EntryKind, Lsn, Membership, MembershipChange, MembershipRefusal, NodeId, Origin, Passage,
    Priority, Reason, Refusal, RestsOn, Stamp, Wire,
};
use std::sync::Arc;

impl Raft {
    /// Why a change cannot be appended now; definite.
    pub(crate) fn membership_refusal(&self, leader: &Leader, payload: &Bytes) -> Option<Refusal> {
        let refuse = |rule, what: String| Some(Refusal::Membership(rule, what));
        let change = match MembershipChange::decode(payload.clone()) {
            Ok(change) => change,
            Err(error) => return refuse(MembershipRefusal::NotFound, error.to_string()),
        };
        let is_early = self.commit < leader.first_own;
        if is_early && !self.has(Defect::ChangesBeforeOwnCommit) {
            return Some(Refusal::NotReady);
        }
        // Before its first own commit a leader does not know which changes of others are still to come.
        let is_hasty = self.has(Defect::ChangesTogether) || is_early;
        if leader.pending_change > self.commit && !is_hasty {
            return Some(Refusal::MembershipPending);
        }
        let refused = self.membership.refusal_of(&change, |id| self.is_caught_up(leader, id));
        let may_lead = |id: NodeId| self.may_ever_lead(leader, id);
        let next = self.membership.after(&change).and_then(|next| next.with_somebody_to_lead(may_lead));
        refused.or_else(|| next.err()).and_then(|error| refuse(error.kind, error.what))
    }

    /// Whether a member may lead, by what it said last; of one that was not heard yet, yes.
    fn may_ever_lead(&self, leader: &Leader, id: NodeId) -> bool {
        let priority =
            if id == self.me { Some(self.priority) } else { leader.progress.get(&id).map(|peer| peer.priority) };
        priority != Some(Priority::Never)
    }

    /// Nine tenths of what is committed, as etcd asks of a learner.
    fn is_caught_up(&self, leader: &Leader, id: NodeId) -> bool {
        leader.progress.get(&id).is_some_and(|peer| peer.matched.saturating_mul(10) >= self.commit.saturating_mul(9))
    }

    /// A committed change takes effect. One that cannot be made any more changes nothing, on every node alike.
    pub(crate) fn apply_membership(&mut self, entry: &Entry, out: &mut Effects<Raft>) {
        let change = MembershipChange::decode(entry.payload.clone());
        let Ok(next) = change
            .map_err(|error| error.to_string())
            .and_then(|change| self.membership.after(&change).map_err(|error| error.to_string()))
        else {
            return;
        };
        self.adopt(Arc::new(next), entry.lsn.index, out);
    }

    /// The membership from here on; a leader adjusts whom it sends to (RM-7, RM-8).
    pub(crate) fn adopt(&mut self, membership: Arc<Membership>, index: u64, out: &mut Effects<Raft>) {
        self.reconfigure(membership, index, out);
        let (term, last, commit, me) = (self.promise.term, self.log.last().index, self.commit, self.me);
        let Part::Leader(leader) = &mut self.part else { return };
        for peer in self.membership.everyone() {
            Raft::welcome(leader, peer, last);
        }
        let gone: Vec<NodeId> =
            leader.progress.keys().copied().filter(|peer| !self.membership.has(*peer) && *peer != me).collect();
        for peer in gone {
            // Whoever is removed should hear so: its last message tells it what is committed.
            let matched = leader.progress.remove(&peer).map_or(0, |progress| progress.matched);
            let index = commit.min(matched);
            out.send_resting_on(RestsOn::Nothing, peer, Message::Commit { term, index });
        }
        self.abort_transfer_to_strangers(out);
        // A smaller quorum may have confirmed already what a larger one had not (RR-5).
        self.confirm_reads(out);
    }

    /// The end of a joint change that ends by itself (RM-5); proposed by whoever leads once the change is applied.
    pub(crate) fn leave_joint_if_due(&mut self, out: &mut Effects<Raft>) {
        let Part::Leader(leader) = &self.part else { return };
        if self.membership.auto_leave && leader.pending_change <= self.commit && self.commit >= leader.first_own {
            self.append_change(MembershipChange::leave(), out);
        }
    }

    /// A learner that asked for a vote gets it once it has caught up (MB-06).
    pub(crate) fn promote_if_ready(&mut self, peer: NodeId, out: &mut Effects<Raft>) {
        let Part::Leader(leader) = &self.part else { return };
        let Some(member) = self.membership.members.get(&peer) else { return };
        let waits = member.wants_vote && self.membership.is_learner(peer) && !self.membership.is_joint();
        let is_ready =
            leader.progress.get(&peer).is_some_and(|progress| progress.matched >= leader.first_own.max(self.commit));
        let may_change = leader.pending_change <= self.commit && self.commit >= leader.first_own;
        if waits && is_ready && may_change && leader.transfer.is_none() {
            let described = hustings_core::Member { wants_vote: false, ..member.clone() };
            let steps = vec![Change::AddVoter(peer), Change::Describe(peer, described)];
            self.append_change(MembershipChange { steps, passage: Passage::Auto }, out);
        }
    }

    fn append_change(&mut self, change: MembershipChange, out: &mut Effects<Raft>) {
        let lsn = Lsn { term: self.promise.term, index: self.log.last().index + 1 };
        let kind = EntryKind::Membership;
        let entry = Entry { lsn, kind, origin: Origin::NOBODY, stamp: Stamp::NONE, payload: change.to_bytes() };
        self.append_own(entry, out);
        self.count_own_log(out);
        self.replicate(out);
    }

    /// A leader that is no voter any more leaves, and hands over so that nobody waits for a timeout (dissertation §4.2.2).
    pub(crate) fn step_down_if_removed(&mut self, out: &mut Effects<Raft>) {
        if matches!(self.part, Part::Leader(_)) && !self.membership.is_voter(self.me) {
            self.hand_over_and_follow(Reason::Removed, out);
        }
    }
}
