//! Changes of membership: one voter at a time, in force once committed and applied.
//!
//! `[OURS]`: BlazingMQ's nodes are configured. Source of the rules: RM-1 to RM-9, house §3, `docs/adr/0001`. Safe
//! because memberships that follow each other share a member in any two majorities, because a leader starts one change
//! at a time and only after the start of its own term is committed, and because the record of a commit precedes every
//! later record: whoever holds a second change knows that the first is in force. Any node may lead, however old its
//! ledger, so nothing else would keep one from leading by a membership two changes old: nobody supports a node that
//! does not know of a change that is in force here.

use crate::blazingmq::{BlazingMq, Leader, Part};
use crate::laboratory::Defect;
use crate::message::Message;
use crate::options::Quorums;
use bytes::Bytes;
use hustings_core::{
    Change, Effects, Entry, EntryKind, Lsn, Member, Membership, MembershipChange, MembershipError, MembershipRefusal,
    NodeId, Origin, Priority, Reason, Refusal, RestsOn, Stamp, Wire,
};
use std::sync::Arc;

impl BlazingMq {
    /// Why a change cannot be written now; definite.
    pub(crate) fn membership_refusal(&self, leader: &Leader, payload: &Bytes) -> Option<Refusal> {
        let change = match MembershipChange::decode(payload.clone()) {
            Ok(change) => change,
            Err(error) => return Some(Refusal::Membership(MembershipRefusal::NotFound, error.to_string())),
        };
        if self.commit < leader.first_own {
            return Some(Refusal::NotReady);
        }
        if leader.pending_change > self.commit && !self.has(Defect::ChangesTogether) {
            return Some(Refusal::MembershipPending);
        }
        let refused = self.membership.refusal_of(&change, |id| self.is_caught_up(leader, id));
        let may_lead = |id: NodeId| self.may_ever_lead(leader, id);
        let next = self
            .membership
            .after_one(&change)
            .and_then(|next| next.with_somebody_to_lead(may_lead))
            .and_then(|next| self.with_enough_voters(next));
        let refused = refused.or_else(|| next.err());
        refused.map(|error| Refusal::Membership(error.kind, error.what))
    }

    /// Whether a member may lead, by what it said last; of one that was not heard yet, yes.
    fn may_ever_lead(&self, leader: &Leader, id: NodeId) -> bool {
        let priority =
            if id == self.me { Some(self.priority) } else { leader.peers.get(&id).map(|peer| peer.priority) };
        priority != Some(Priority::Never)
    }

    /// The membership, if it has as many voters as the operator's quorums ask for: below that nobody would be elected, or
    /// nothing committed, ever again.
    fn with_enough_voters(&self, next: Membership) -> Result<Membership, MembershipError> {
        let Quorums { vote, sync, commit } = self.options.quorums;
        let (voters, needed) = (next.voters.len(), vote.max(sync).max(commit));
        if voters >= needed || voters >= self.membership.voters.len() {
            return Ok(next);
        }
        let what = format!("{voters} voters would be left, and the quorums of this cluster ask for {needed}");
        Err(MembershipError { kind: MembershipRefusal::NoVoters, what })
    }

    /// Nine tenths of what is committed, as etcd asks of a learner.
    fn is_caught_up(&self, leader: &Leader, id: NodeId) -> bool {
        leader.peers.get(&id).is_some_and(|peer| peer.stored.saturating_mul(10) >= self.commit.saturating_mul(9))
    }

    /// A committed change takes effect. One that cannot be made any more changes nothing, on every node alike.
    pub(crate) fn apply_membership(&mut self, entry: &Entry, out: &mut Effects<BlazingMq>) {
        let Ok(change) = MembershipChange::decode(entry.payload.clone()) else { return };
        if let Ok(next) = self.membership.after_one(&change) {
            self.adopt(Arc::new(next), entry.lsn.index, out);
        }
    }

    /// The membership from here on; a leader adjusts whom it sends to.
    pub(crate) fn adopt(&mut self, membership: Arc<Membership>, index: u64, out: &mut Effects<BlazingMq>) {
        if !membership.decides_as(&self.membership) {
            self.membership_index = index;
        }
        self.reconfigure(membership, index, out);
        let (term, commit, me) = (self.promise.term, self.commit, self.me);
        let Part::Leader(leader) = &mut self.part else { return };
        for peer in self.membership.everyone() {
            leader.peers.entry(peer).or_default();
        }
        let gone: Vec<NodeId> =
            leader.peers.keys().copied().filter(|peer| !self.membership.has(*peer) && *peer != me).collect();
        for peer in gone {
            let Some(stored) = leader.peers.remove(&peer).map(|peer| peer.stored) else { continue };
            // Whoever is removed should hear so: the last records to it tell what is committed.
            let index = commit.min(stored);
            if let Some(at) = self.log.term_at(index) {
                let previous = Lsn { term: at, index };
                let records = Message::Records { term, previous, entries: Vec::new(), commit };
                out.send_resting_on(RestsOn::Nothing, peer, records);
            }
        }
        self.abort_transfer_to_strangers(out);
        // A smaller majority may have confirmed already what a larger one had not.
        self.confirm_reads(out);
    }

    /// A learner that asked for a vote gets it once it has caught up (MB-06).
    pub(crate) fn promote_if_ready(&mut self, peer: NodeId, out: &mut Effects<BlazingMq>) {
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
    pub(crate) fn step_down_if_removed(&mut self, out: &mut Effects<BlazingMq>) {
        if self.is_leading() && !self.membership.is_voter(self.me) {
            self.hand_over_and_follow(Reason::Removed, out);
        }
    }
}
