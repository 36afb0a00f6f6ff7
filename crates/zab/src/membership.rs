//! Changes of membership: one voter at a time, in force once committed and applied.
//!
//! `[OURS]`: ZooKeeper's reconfiguration passes through both old and new quorums; here memberships that follow each other share a
//! member in any two majorities. Source of the rules: RM-1 to RM-9, house §3, `docs/adr/0001`. Safe because a leader starts one
//! change at a time and only once all of its history is committed, and because the record of a commit precedes every later
//! entry: whoever holds a second change knows that the first is in force, and whoever does not is refused by everyone who does
//! (§5.8 rule 6).

use crate::laboratory::Defect;
use crate::zab::{Leading, Part, Zab};
use bytes::Bytes;
use hustings_core::{
    Change, Effects, Entry, EntryKind, Lsn, Member, Membership, MembershipChange, MembershipRefusal, NodeId, Origin,
    Priority, Reason, Refusal, Stamp, Wire,
};
use std::sync::Arc;

impl Zab {
    /// Why a change cannot be written now; definite.
    pub(crate) fn membership_refusal(&self, leading: &Leading, payload: &Bytes) -> Option<Refusal> {
        let change = match MembershipChange::decode(payload.clone()) {
            Ok(change) => change,
            Err(error) => return Some(Refusal::Membership(MembershipRefusal::NotFound, error.to_string())),
        };
        // Everything with which the epoch began was committed before this node served, so only an own change can be pending.
        if leading.pending_change > self.commit && !self.has_defect(Defect::ChangesTogether) {
            return Some(Refusal::MembershipPending);
        }
        let refused = self.membership.refusal_of(&change, |id| self.is_caught_up(leading, id));
        let may_lead = |id: NodeId| self.may_ever_lead(leading, id);
        let next = self.membership.after_one(&change).and_then(|next| next.with_somebody_to_lead(may_lead));
        let refused = refused.or_else(|| next.err());
        refused.map(|error| Refusal::Membership(error.kind, error.what))
    }

    /// Whether a member may lead, by what it said last; of one that was not heard yet, yes.
    fn may_ever_lead(&self, leading: &Leading, id: NodeId) -> bool {
        let priority =
            if id == self.me { Some(self.priority) } else { leading.learners.get(&id).map(|learner| learner.priority) };
        priority != Some(Priority::Never)
    }

    /// Nine tenths of what is committed, as etcd asks of a learner.
    fn is_caught_up(&self, leading: &Leading, id: NodeId) -> bool {
        let is_near = |stored: u64| stored.saturating_mul(10) >= self.commit.saturating_mul(9);
        leading.learners.get(&id).is_some_and(|learner| learner.is_synced() && is_near(learner.stored))
    }

    /// A committed change takes effect. One that cannot be made any more changes nothing, on every node alike.
    pub(crate) fn apply_membership(&mut self, entry: &Entry, out: &mut Effects<Zab>) {
        let Ok(change) = MembershipChange::decode(entry.payload.clone()) else { return };
        if let Ok(next) = self.membership.after_one(&change) {
            self.adopt(Arc::new(next), entry.lsn.index, out);
        }
    }

    /// The membership from here on. Whoever was removed stays connected until it has heard so, and then leaves by itself.
    pub(crate) fn adopt(&mut self, membership: Arc<Membership>, index: u64, out: &mut Effects<Zab>) {
        self.reconfigure(membership, index, out);
        self.abort_transfer_to_strangers(out);
        // A smaller majority may have confirmed already what a larger one had not.
        self.confirm_reads(out);
    }

    /// An observer that asked for a vote gets it once it has caught up (MB-06).
    pub(crate) fn promote_if_ready(&mut self, learner: NodeId, out: &mut Effects<Zab>) {
        if !self.is_serving() {
            return;
        }
        let Part::Leading(leading) = &self.part else { unreachable!("only a leader serves") };
        let Some(member) = self.membership.members.get(&learner) else { return };
        let waits = member.wants_vote && self.membership.is_learner(learner) && leading.transfer.is_none();
        let is_ready = leading.learners.get(&learner).is_some_and(|l| l.is_synced() && l.stored >= self.commit);
        if !waits || !is_ready || leading.pending_change > self.commit {
            return;
        }
        let described = Member { wants_vote: false, ..member.clone() };
        let change = MembershipChange::of([Change::AddVoter(learner), Change::Describe(learner, described)]);
        let lsn = Lsn { term: self.promise.term, index: self.log.last().index + 1 };
        let (kind, payload) = (EntryKind::Membership, change.to_bytes());
        self.append_own(Entry { lsn, kind, origin: Origin::NOBODY, stamp: Stamp::NONE, payload }, out);
        self.forward(out);
    }

    /// A leader that is no voter any more leaves, and hands over so that nobody waits for a timeout.
    pub(crate) fn step_down_if_removed(&mut self, out: &mut Effects<Zab>) {
        if self.is_leading() && !self.membership.is_voter(self.me) {
            self.hand_over(Reason::Removed, out);
        }
    }
}
