//! Changes of membership: one voter at a time, in force once committed and applied.
//!
//! `[OURS]`: the sources are configured (the JVM rewrite sketches eras). Source of the rules: RM-1 to RM-9, house §3,
//! `docs/adr/0001`. Safe because a change fences its slots ([`crate::recover`]): nothing behind it is proposed before
//! it is in force at the leader, and then only under promises of a quorum of the new membership.

use crate::laboratory::Defect;
use crate::message::Message;
use crate::paxos::{Part, Paxos, Reign, Stage};
use bytes::Bytes;
use hustings_core::{
    Change, Effects, Entry, EntryKind, Lsn, Member, Membership, MembershipChange, MembershipRefusal, NodeId, Origin,
    Priority, Reason, Refusal, RestsOn, Stamp, Wire,
};
use std::sync::Arc;

impl Paxos {
    /// Why a change cannot be written now; definite.
    pub(crate) fn membership_refusal(&self, reign: &Reign, payload: &Bytes) -> Option<Refusal> {
        let change = match MembershipChange::decode(payload.clone()) {
            Ok(change) => change,
            Err(error) => return Some(Refusal::Membership(MembershipRefusal::NotFound, error.to_string())),
        };
        if self.commit < reign.first_own {
            return Some(Refusal::NotReady);
        }
        if reign.fence > self.commit && !self.has(Defect::ProposesBehindChanges) {
            return Some(Refusal::MembershipPending);
        }
        let refused = self.membership.refusal_of(&change, |id| self.is_caught_up(reign, id));
        let may_lead = |id: NodeId| self.may_ever_lead(reign, id);
        let next = self.membership.after_one(&change).and_then(|next| next.with_somebody_to_lead(may_lead));
        let refused = refused.or_else(|| next.err());
        refused.map(|error| Refusal::Membership(error.kind, error.what))
    }

    /// Whether a member may lead, by what it said last; of one that was not heard yet, yes.
    fn may_ever_lead(&self, reign: &Reign, id: NodeId) -> bool {
        let priority = if id == self.me { Some(self.priority) } else { reign.peers.get(&id).map(|peer| peer.priority) };
        priority != Some(Priority::Never)
    }

    /// Nine tenths of what is committed, as etcd asks of a learner.
    fn is_caught_up(&self, reign: &Reign, id: NodeId) -> bool {
        reign.peers.get(&id).is_some_and(|peer| peer.stored.saturating_mul(10) >= self.commit.saturating_mul(9))
    }

    /// Whether a slot may be committed as far as its successors' voters are concerned: a change must be held, with
    /// everything before it, by somebody of each promise quorum of the membership that it makes, or that membership
    /// would not know what it decided.
    pub(crate) fn is_secured(&self, slot: u64) -> bool {
        let change = self.journal.slot(slot).filter(|entry| entry.kind == EntryKind::Membership);
        let Some(entry) = change else { return true };
        let Ok(change) = MembershipChange::decode(entry.payload.clone()) else { return true };
        let (Ok(next), Some(reign)) = (self.membership.after_one(&change), self.reign()) else { return true };
        let voters = next.all_voters().count();
        let needed = voters + 1 - self.options.quorums.promises(voters);
        let has_voted = reign.votes.get(&slot).is_some_and(|votes| votes.contains(&self.me));
        let holds = |id: NodeId| match id == self.me {
            true => has_voted,
            false => reign.peers.get(&id).is_some_and(|peer| peer.stored >= slot),
        };
        next.all_voters().filter(|id| holds(*id)).count() >= needed
    }

    /// A committed change takes effect. One that cannot be made any more changes nothing, on every node alike.
    pub(crate) fn apply_membership(&mut self, entry: &Entry, out: &mut Effects<Paxos>) {
        let Ok(change) = MembershipChange::decode(entry.payload.clone()) else { return };
        if let Ok(next) = self.membership.after_one(&change) {
            self.adopt(Arc::new(next), entry.lsn.index, out);
        }
    }

    /// The membership from here on; a leader adjusts whom it sends to, and asks new voters for their promises.
    pub(crate) fn adopt(&mut self, membership: Arc<Membership>, index: u64, out: &mut Effects<Paxos>) {
        self.reconfigure(membership, index, out);
        let (commit, me) = (self.commit, self.me);
        let Part::Reign(reign) = &mut self.part else { return };
        for peer in self.membership.everyone() {
            reign.peers.entry(peer).or_default();
        }
        let gone: Vec<NodeId> =
            reign.peers.keys().copied().filter(|peer| !self.membership.has(*peer) && *peer != me).collect();
        let ballot = reign.ballot;
        for peer in gone {
            reign.peers.remove(&peer);
            // Whoever is removed should hear so: what is committed here tells it.
            let news = Message::Accept { ballot, accepts: Vec::new(), commit };
            out.send_resting_on(RestsOn::Nothing, peer, news);
        }
        for voter in self.other_voters() {
            self.send_prepare_to(voter, out);
        }
        self.abort_transfer_to_strangers(out);
        // A smaller quorum may have confirmed already what a larger one had not.
        self.confirm_reads(out);
    }

    /// A learner that asked for a vote gets it once it has caught up (MB-06).
    pub(crate) fn promote_if_ready(&mut self, peer: NodeId, out: &mut Effects<Paxos>) {
        let Some(reign) = self.reign().filter(|reign| reign.stage == Stage::Leading) else { return };
        let Some(member) = self.membership.members.get(&peer) else { return };
        let waits = member.wants_vote && self.membership.is_learner(peer) && reign.transfer.is_none();
        let is_ready = reign.peers.get(&peer).is_some_and(|peer| peer.stored >= self.commit);
        if !waits || !is_ready || reign.fence > self.commit {
            return;
        }
        let described = Member { wants_vote: false, ..member.clone() };
        let change = MembershipChange::of([Change::AddVoter(peer), Change::Describe(peer, described)]);
        let (kind, payload) = (EntryKind::Membership, change.to_bytes());
        let first = reign.end + 1;
        let value = Entry { lsn: Lsn::ZERO, kind, origin: Origin::NOBODY, stamp: Stamp::NONE, payload };
        if self.propose_own(value, out) {
            self.count_own_accepts(first, out);
            self.send_to_all(out);
        }
    }

    /// A leader that is no voter any more leaves, and hands over so that nobody waits for a timeout.
    pub(crate) fn step_down_if_removed(&mut self, out: &mut Effects<Paxos>) {
        if self.leading().is_some() && !self.membership.is_voter(self.me) {
            self.hand_over_and_follow(Reason::Removed, out);
        }
    }
}
