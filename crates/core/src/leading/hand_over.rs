//! Handing leadership over: on request, to a preferred member, or because this node should not lead any more.
//!
//! The successor is told to take over once it stores everything. While a hand-over is under way no proposal is accepted;
//! after an election timeout it is given up and the old leader serves on. How a successor takes over, and how an old
//! leader gives way, is each protocol's own. Source: dissertation §3.10; rules RX-1 to RX-3.

use super::{Adopting, Leads, Transfer};
use crate::laboratory::Defect;
use crate::{Effects, Membership, NodeId, Outcome, Priority, Reason, Refusal, Ticket};

/// Quorum checks for which a caretaker does nothing but look for somebody to take over: one that may lead may be cut off from it, or ended,
/// and what it waits for never come.
const CARE_CHECKS_MAX: u8 = 8;

/// A leader's part in a hand-over, the same under every protocol.
pub trait HandingOver: Leads {
    /// An administrator wants `to` to lead.
    fn on_asked_to_transfer(&mut self, ticket: Ticket, to: NodeId, out: &mut Effects<Self>) {
        let (leader, is_ready) = (self.status().leader, self.may_transfer());
        let Some((node, office)) = self.split() else { return out.refuse(ticket, Refusal::NotLeader(leader)) };
        if to == node.me {
            // Handing over to oneself takes back what is under way (RX-1).
            if office.transfer.take().is_some() {
                out.cancel_timer(Self::TRANSFER_TIMER);
            }
            node.refuse_transfer(out);
            return out.reply(ticket, Outcome::Done);
        }
        if !is_ready {
            return out.refuse(ticket, Refusal::NotReady);
        }
        if !office.known(to).is_some_and(|known| node.may_succeed(to, known)) {
            return out.refuse(ticket, Refusal::BadTransferee(to));
        }
        let is_new = office.transfer.as_ref().is_none_or(|transfer| transfer.to != to);
        if is_new {
            node.refuse_transfer(out);
        }
        // Asked twice for the same: the timer is not put off, and the earlier one hears that it was asked again.
        if let Some((_, earlier)) = node.transfer_ticket.replace((to, ticket)) {
            out.refuse(earlier, Refusal::TransferTimedOut);
        }
        node.patience.on_asked_away();
        if is_new {
            self.start_transfer(to, Reason::Asked, out);
        }
    }

    /// An administrator wants somebody else to lead.
    fn on_asked_to_resign(&mut self, ticket: Ticket, out: &mut Effects<Self>) {
        if !self.is_reigning() {
            return out.reply(ticket, Outcome::Done);
        }
        match self.best_successor() {
            Some(to) => self.on_asked_to_transfer(ticket, to, out),
            None => out.refuse(ticket, Refusal::NotLeader(None)),
        }
    }

    /// `to` takes over as soon as it stores everything.
    fn start_transfer(&mut self, to: NodeId, because: Reason, out: &mut Effects<Self>) {
        let Some((node, office)) = self.split() else { return };
        office.transfer = Some(Transfer { to, is_told: false, because });
        out.set_timer(Self::TRANSFER_TIMER, node.timing.election_min..=node.timing.election_min);
        self.catch_up(to, out);
        self.tell_successor_if_ready(to, out);
    }

    /// A follower's acknowledgement came: a successor that stores everything is told; a learner that does is promoted.
    fn on_peer_progressed(&mut self, peer: NodeId, out: &mut Effects<Self>) {
        self.tell_successor_if_ready(peer, out);
        self.promote_if_ready(peer, out);
    }

    /// The successor takes over, if it stores everything and was not told yet.
    fn tell_successor_if_ready(&mut self, peer: NodeId, out: &mut Effects<Self>) {
        let is_ready = self.has_everything(peer);
        let Some((_, office)) = self.split() else { return };
        let Some(transfer) = office.transfer.as_mut().filter(|it| it.to == peer && !it.is_told && is_ready) else {
            return;
        };
        transfer.is_told = true;
        let because = transfer.because.clone();
        self.tell_successor(peer, because, out);
    }

    /// The hand-over took too long.
    fn on_transfer_timer(&mut self, out: &mut Effects<Self>) {
        if let Some((_, office)) = self.split() {
            office.transfer = None;
        }
        // Also when the old leader follows already: its successor may have died on the way.
        self.node_mut().refuse_transfer(out);
    }

    /// The successor is no longer one to lead (RX-3).
    fn abort_transfer_to_strangers(&mut self, out: &mut Effects<Self>) {
        let Some((node, office)) = self.split() else { return };
        if office.transfer.take_if(|transfer| !node.membership.is_voter(transfer.to)).is_some() {
            out.cancel_timer(Self::TRANSFER_TIMER);
            node.refuse_transfer(out);
        }
    }

    /// A quorum was heard between two checks: what waited for such a moment happens. A learner may have caught up while its promotion
    /// could not begin, and nothing else comes from it once nobody writes.
    fn on_checked(&mut self, out: &mut Effects<Self>) {
        let learners: Vec<NodeId> = self.node().membership.learners.iter().copied().collect();
        for learner in learners {
            self.promote_if_ready(learner, out);
        }
        self.count_care();
        self.hand_over_to_preferred(out);
        self.hand_care_over(out);
    }

    /// Leadership returns to a preferred member once it has been caught up and heard for a while.
    fn hand_over_to_preferred(&mut self, out: &mut Effects<Self>) {
        let is_settled = self.is_settled();
        let Some((node, office)) = self.split() else { return };
        if office.transfer.is_some() || !is_settled || node.priority() == Priority::Preferred {
            return;
        }
        let is_better = |id: NodeId| {
            id != node.me
                && office.known(id).is_some_and(|known| {
                    known.priority == Priority::Preferred && known.ready_checks >= node.patience.checks_wanted(id)
                })
        };
        if let Some(to) = node.membership.voters.iter().copied().find(|id| is_better(*id)) {
            if !node.has_defect(Defect::InsistsOnPreference) {
                // One that ends without its taking over must not be followed by another at the next check.
                office.peers.get_mut(&to).into_iter().for_each(|peer| peer.as_mut().ready_checks = 0);
                self.remember(|patience| patience.on_handed_over(to), out);
            }
            self.start_transfer(to, Reason::Preferred(to), out);
        }
    }

    /// A step of what preferred members were handed and lost is forgotten.
    fn on_patience_timer(&mut self, out: &mut Effects<Self>) {
        let patience = &mut self.node_mut().patience;
        patience.forget_a_step();
        if patience.remembers() {
            self.begin_period(out);
        }
    }

    /// A caretaker hands over to the first that has caught up, also where its own entries are not committed yet: for that it may need
    /// one that lacks more than it can give, and the successor can. While it stands in, it writes, and nobody has everything: then one
    /// that has kept up gets what it lacks in the hand-over.
    fn hand_over_as_caretaker(&mut self, peer: NodeId, out: &mut Effects<Self>) {
        let (node, Some(office)) = (self.node(), self.office()) else { return };
        let keeps_up = office.known(peer).is_some_and(|known| known.ready_checks > 0);
        let is_ready = self.has_everything(peer) || (self.stands_in() && keeps_up);
        let may_succeed = |id: NodeId| office.known(id).is_some_and(|known| node.may_succeed(id, known));
        let is_busy = office.transfer.as_ref().is_some_and(|transfer| may_succeed(transfer.to));
        if !is_busy && self.may_give_care() && is_ready && may_succeed(peer) && self.has_been_ready(peer) {
            self.give_care_to(peer, out);
        }
    }

    /// Whether this caretaker has waited for `peer` as long as earlier hand-overs demand. A witness waits for nobody unless another can take
    /// care in its place: it does not serve meanwhile.
    fn has_been_ready(&self, peer: NodeId) -> bool {
        let (node, known) = (self.node(), self.office().and_then(|office| office.known(peer)));
        let checks_wanted = node.patience.checks_wanted_by_caretaker(peer);
        let waits = self.stands_in() || (node.membership.is_witness(node.me) && !self.next_caretakers().is_empty());
        !waits || known.is_some_and(|known| known.ready_checks >= checks_wanted)
    }

    /// A caretaker hands over, and remembers it: one that comes to nothing, or to a reign that does not last, must not be followed by
    /// another at once.
    fn give_care_to(&mut self, peer: NodeId, out: &mut Effects<Self>) {
        if let Some((_, office)) = self.split() {
            office.peers.get_mut(&peer).into_iter().for_each(|peer| peer.as_mut().ready_checks = 0);
        }
        self.remember(|patience| patience.on_handed_over(peer), out);
        self.start_transfer(peer, Reason::Preferred(peer), out);
    }

    /// The voters to which this witness can give its care: they hold the state and everything that was written, and were heard at the
    /// last check.
    fn next_caretakers(&self) -> Vec<NodeId> {
        let Some(office) = self.office() else { return Vec::new() };
        let is_heard = |id: NodeId| office.known(id).is_some_and(|known| known.ready_checks > 0);
        let may = |id: &NodeId| self.has_everything(*id) && is_heard(*id) && self.node().may_take_care(*id);
        let Membership { voters, outgoing, .. } = &*self.node().membership;
        voters.iter().chain(outgoing).copied().filter(may).collect()
    }

    /// Nobody that may lead has caught up with this witness between two checks, perhaps because a state is needed that it cannot give.
    /// One that holds the state takes care in its place: one that must never lead or, last, one that leaves with the change under way. It
    /// leads as a voter of the old half, and hands over when that half is gone.
    fn hand_care_over(&mut self, out: &mut Effects<Self>) {
        let Some(office) = self.office() else { return };
        if office.transfer.is_some() || !self.may_give_care() {
            return;
        }
        let next = self.next_caretakers();
        if let Some(to) = self.node_mut().patience.next_in_care(&next) {
            self.start_transfer(to, Reason::Preferred(to), out);
        }
    }

    /// A check of a caretaker ends: it has waited for somebody to take over for so long.
    fn count_care(&mut self) {
        let is_able = self.is_caretaker() && !self.node().membership.is_witness(self.node().me);
        if let Some((_, office)) = self.split().filter(|_| is_able) {
            office.care_checks = (office.care_checks + 1).min(CARE_CHECKS_MAX);
        }
    }

    /// Whether this node leads only until a follower that may has everything: each answer can be the one.
    fn is_caretaker(&self) -> bool {
        self.node().priority() == Priority::Never
    }

    /// Whether this caretaker serves like any leader: it has handed over, and leads still, or again; or nobody could take over for long.
    /// Better one that must never lead than nobody. A witness has no state, and cannot.
    fn stands_in(&self) -> bool {
        let node = self.node();
        let is_able = self.is_caretaker() && !node.membership.is_witness(node.me);
        let has_waited = self.office().is_some_and(|office| office.care_checks >= CARE_CHECKS_MAX);
        is_able && (node.patience.has_handed_over() || has_waited) && !node.has_defect(Defect::InsistsOnPreference)
    }

    /// Whether this node is a caretaker that could give way now, if there is somebody to take over.
    fn may_give_care(&self) -> bool {
        self.is_caretaker() && self.is_reigning() && self.may_give_way()
    }

    /// Whether a follower stores all that this leader has written.
    fn has_everything(&self, peer: NodeId) -> bool {
        let end = self.end();
        let Some(office) = self.office() else { return false };
        office.peers.get(&peer).is_some_and(|it| Self::is_in_sync(it) && it.as_ref().stored >= end)
    }
}

impl<P: Leads> HandingOver for P {}
