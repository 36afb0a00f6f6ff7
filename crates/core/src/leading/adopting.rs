//! Changes of membership at a leader, and the adoption of what is committed: [`Adopting`].
//!
//! A change is in force once committed and applied. A leader starts one at a time, and only after an entry of its own
//! term is committed, because before that it does not know which changes of others are still to come. Sources: RM-1 to
//! RM-9; `docs/adr/0001`.

use super::{HandingOver, Haste, Known, Leads, Reading};
use crate::laboratory::Defect;
use crate::{
    Change, Effects, Entry, Member, Membership, MembershipChange, MembershipRefusal, NodeId, Priority, Reason, Refusal,
    Wire,
};
use bytes::Bytes;
use std::sync::Arc;

/// Changes of membership, the same under every protocol.
pub trait Adopting: Leads {
    /// The reason why a change cannot be written now (definite), or `None`.
    fn membership_refusal(&self, payload: &Bytes) -> Option<Refusal> {
        let change = match MembershipChange::decode(payload.clone()) {
            Ok(change) => change,
            Err(error) => return Some(Refusal::Membership(MembershipRefusal::NotFound, error.to_string())),
        };
        let (node, office) = (self.node(), self.office()?);
        let is_early = node.commit < office.first_own;
        if is_early && !self.is_hasty(Haste::ChangesEarly) {
            return Some(Refusal::NotReady);
        }
        let is_hasty = is_early || self.is_hasty(Haste::ChangesTogether);
        if office.pending_change > node.commit && !is_hasty {
            return Some(Refusal::MembershipPending);
        }
        let refused = node.membership.refusal_of(&change, |id| self.is_caught_up(id));
        let next =
            self.membership_after(&change).and_then(|next| next.with_somebody_to_lead(|id| self.may_ever_lead(id)));
        let refused = refused.or_else(|| next.and_then(|next| self.permitted(next)).err());
        refused.map(|error| Refusal::Membership(error.kind, error.what))
    }

    /// Whether a member may lead, by the last priority it reported. A member that has reported none to this leader yet
    /// may be one that must not lead; one that is only about to be added may.
    fn may_ever_lead(&self, id: NodeId) -> bool {
        let node = self.node();
        let known = self.office().and_then(|office| office.known(id));
        node.has_defect(Defect::RemovesLastLeader)
            || match known {
                _ if id == node.me => node.priority() != Priority::Never,
                Some(known) => known.has_said && known.priority != Priority::Never,
                None => !node.membership.has(id),
            }
    }

    /// Nine tenths of what is committed, as etcd asks of a learner.
    fn is_caught_up(&self, id: NodeId) -> bool {
        let commit = self.node().commit;
        let is_near = |stored: u64| stored.saturating_mul(10) >= commit.saturating_mul(9);
        let peer = self.office().and_then(|office| office.peers.get(&id));
        peer.is_some_and(|peer| Self::is_in_sync(peer) && is_near(peer.as_ref().stored))
    }

    /// A committed change takes effect. One that cannot be made any more changes nothing, on every node alike.
    fn apply_membership(&mut self, entry: &Entry, out: &mut Effects<Self>) {
        let Ok(change) = MembershipChange::decode(entry.payload.clone()) else { return };
        if let Ok(next) = self.membership_after(&change) {
            self.adopt(Arc::new(next), entry.lsn.index, out);
        }
    }

    /// Adopts the membership that holds from here on; a leader adjusts the peers that it sends to (RM-7, RM-8).
    fn adopt(&mut self, membership: Arc<Membership>, index: u64, out: &mut Effects<Self>) {
        self.node_mut().reconfigure(membership, index, out);
        self.adjust_peers(out);
        self.abort_transfer_to_strangers(out);
        // A smaller quorum may have confirmed already what a larger one had not (RR-5).
        self.confirm_reads(out);
    }

    /// A learner that asked for a vote gets it once it has caught up (MB-06), if it lives as far as the leader can know: as a voter that is
    /// dead it would make the quorum larger, and perhaps too large for those who live.
    fn promote_if_ready(&mut self, peer: NodeId, out: &mut Effects<Self>) {
        let (node, is_settled) = (self.node(), self.is_settled());
        let Some(office) = self.office() else { return };
        let Some(member) = node.membership.members.get(&peer) else { return };
        let waits = member.wants_vote && node.membership.is_learner(peer) && !node.membership.is_joint();
        // One that does not hold yet what made it a learner would not know, as a voter, that it is a member.
        let wanted = office.first_own.max(office.pending_change).max(node.commit.min(office.end_at_check));
        let is_alive = |known: &Known| (known.is_active || known.ready_checks > 0) && !node.links_down.contains(&peer);
        let is_ready = office
            .peers
            .get(&peer)
            .is_some_and(|peer| Self::is_in_sync(peer) && peer.as_ref().stored >= wanted && is_alive(peer.as_ref()));
        let may_change = office.pending_change <= node.commit && is_settled;
        if waits && is_ready && may_change && office.transfer.is_none() {
            let described = Member { wants_vote: false, ..member.clone() };
            let change = MembershipChange::of([Change::AddVoter(peer), Change::Describe(peer, described)]);
            // A witness waits while too few hold data beside it.
            if node.membership.after(&change).is_ok() {
                self.append_change(change, out);
            }
        }
    }

    /// A leader that is no voter any more leaves, and hands over so that nobody waits for a timeout (dissertation
    /// §4.2.2).
    fn step_down_if_removed(&mut self, out: &mut Effects<Self>) {
        if self.is_reigning() && !self.node().membership.is_voter(self.node().me) {
            self.hand_over_and_follow(Reason::Removed, out);
        }
    }
}

impl<P: Leads> Adopting for P {}

/// A leader that sends to all members.
pub trait SendsToMembers: Leads {
    /// A follower that is new in the membership; the log ends at `last`.
    fn newcomer(last: u64) -> Self::Peer;

    /// The last word to a member that was removed, and stores this much: it should hear so.
    fn dismiss(&mut self, peer: NodeId, stored: u64, out: &mut Effects<Self>);
}

/// The peers that such a leader sends to.
pub trait Welcoming: SendsToMembers {
    /// Sends to those who are new, and to those who are gone no more; they should hear so.
    fn welcome_and_dismiss(&mut self, out: &mut Effects<Self>) {
        let end = self.end();
        let Some((node, office)) = self.split() else { return };
        for peer in node.membership.everyone() {
            office.peers.entry(peer).or_insert_with(|| Self::newcomer(end));
        }
        let is_gone = |peer: &NodeId| !node.membership.has(*peer) && *peer != node.me;
        let gone: Vec<NodeId> = office.peers.keys().copied().filter(is_gone).collect();
        for peer in gone {
            let Some((_, office)) = self.split() else { return };
            let stored = office.peers.remove(&peer).map_or(0, |peer| peer.as_ref().stored);
            self.dismiss(peer, stored, out);
        }
    }
}

impl<P: SendsToMembers> Welcoming for P {}
