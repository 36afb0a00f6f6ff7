//! Handing leadership over: on request, to a preferred member, or because this node should not lead any more.
//!
//! Source: dissertation §3.10; rules RX-1 to RX-3. While a hand-over is under way no proposal is accepted; after an election
//! timeout it is given up and the old leader serves on.

use crate::message::Message;
use crate::raft::{Part, Raft, Timer};
use hustings_core::{Effects, NodeId, Outcome, Priority, Reason, Refusal, RestsOn, Ticket};

/// A hand-over under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Transfer {
    /// To whom.
    pub to: NodeId,
    /// Whether it was told to campaign.
    pub is_told: bool,
}

impl Raft {
    pub(crate) fn on_asked_to_transfer(&mut self, ticket: Ticket, to: NodeId, out: &mut Effects<Raft>) {
        let Part::Leader(leader) = &mut self.part else {
            return out.refuse(ticket, Refusal::NotLeader(self.leader));
        };
        if to == self.me {
            // Handing over to oneself takes back what is under way (RX-1).
            if leader.transfer.take().is_some() {
                out.cancel_timer(Timer::Transfer);
            }
            self.refuse_transfer(Refusal::TransferTimedOut, out);
            return out.reply(ticket, Outcome::Done);
        }
        let may_lead = leader.progress.get(&to).is_some_and(|peer| peer.priority != Priority::Never);
        if !self.membership.voters.contains(&to) || !may_lead || self.links_down.contains(&to) {
            return out.refuse(ticket, Refusal::BadTransferee(to));
        }
        let is_same = leader.transfer.as_ref().is_some_and(|transfer| transfer.to == to);
        if !is_same {
            self.refuse_transfer(Refusal::TransferTimedOut, out);
            self.start_transfer(to, out);
        }
        // Asked twice for the same: the timer is not extended, and both hear the end.
        if let Some((_, earlier)) = self.transfer_ticket.replace((to, ticket)) {
            out.refuse(earlier, Refusal::TransferTimedOut);
        }
    }

    pub(crate) fn on_asked_to_resign(&mut self, ticket: Ticket, out: &mut Effects<Raft>) {
        if !matches!(self.part, Part::Leader(_)) {
            return out.reply(ticket, Outcome::Done);
        }
        match self.best_successor() {
            Some(to) => self.on_asked_to_transfer(ticket, to, out),
            None => out.refuse(ticket, Refusal::NotLeader(None)),
        }
    }

    fn start_transfer(&mut self, to: NodeId, out: &mut Effects<Raft>) {
        let Part::Leader(leader) = &mut self.part else { return };
        leader.transfer = Some(Transfer { to, is_told: false });
        out.set_timer(Timer::Transfer, self.timing.election_min..=self.timing.election_min);
        self.send_entries_to(to, out);
        self.tell_transferee_if_ready(to, out);
    }

    /// A peer's acknowledgement arrived: a transferee that holds everything campaigns; a learner that does is promoted.
    pub(crate) fn on_peer_progressed(&mut self, peer: NodeId, out: &mut Effects<Raft>) {
        self.tell_transferee_if_ready(peer, out);
        self.promote_if_ready(peer, out);
    }

    fn tell_transferee_if_ready(&mut self, peer: NodeId, out: &mut Effects<Raft>) {
        let (term, last) = (self.promise.term, self.log.last().index);
        let Part::Leader(leader) = &mut self.part else { return };
        let Some(transfer) = leader.transfer.as_mut().filter(|transfer| transfer.to == peer && !transfer.is_told)
        else {
            return;
        };
        if leader.progress.get(&peer).is_some_and(|progress| progress.matched == last) {
            transfer.is_told = true;
            out.send_resting_on(RestsOn::Nothing, peer, Message::TimeoutNow { term });
        }
    }

    pub(crate) fn on_transfer_alarm(&mut self, out: &mut Effects<Raft>) {
        if let Part::Leader(leader) = &mut self.part {
            leader.transfer = None;
        }
        // Also when the old leader follows already: its successor may have died on the way.
        self.refuse_transfer(Refusal::TransferTimedOut, out);
    }

    /// The target is no longer one to lead (RX-3).
    pub(crate) fn abort_transfer_to_strangers(&mut self, out: &mut Effects<Raft>) {
        let voters = self.membership.voters.clone();
        let Part::Leader(leader) = &mut self.part else { return };
        if leader.transfer.take_if(|transfer| !voters.contains(&transfer.to)).is_some() {
            out.cancel_timer(Timer::Transfer);
            self.refuse_transfer(Refusal::TransferTimedOut, out);
        }
    }

    fn refuse_transfer(&mut self, refusal: Refusal, out: &mut Effects<Raft>) {
        if let Some((_, ticket)) = self.transfer_ticket.take() {
            out.refuse(ticket, refusal);
        }
    }

    /// A new leader is known: whoever asked for a hand-over hears whether it is the one.
    pub(crate) fn end_transfer(&mut self, out: &mut Effects<Raft>) {
        let Some(leader) = self.leader else { return };
        self.patience.on_leader(leader);
        if let Some((to, ticket)) = self.transfer_ticket.take() {
            let outcome = if leader == to { Outcome::Done } else { Outcome::Refused(Refusal::TransferTimedOut) };
            out.reply(ticket, outcome);
        }
    }

    /// The reachable voter that is furthest and most wanted.
    fn best_successor(&self) -> Option<NodeId> {
        let Part::Leader(leader) = &self.part else { return None };
        let is_able = |id: &NodeId| {
            let peer = leader.progress.get(id);
            *id != self.me
                && !self.links_down.contains(id)
                && peer.is_some_and(|peer| peer.priority != Priority::Never && peer.matched > 0)
        };
        self.membership
            .voters
            .iter()
            .copied()
            .filter(is_able)
            .max_by_key(|id| leader.progress.get(id).map(|peer| (peer.matched, peer.priority, std::cmp::Reverse(*id))))
    }

    /// Gives way without waiting: the best successor campaigns, this node follows whoever wins.
    pub(crate) fn hand_over_and_follow(&mut self, because: Reason, out: &mut Effects<Raft>) {
        let term = self.promise.term;
        if let Some(successor) = self.best_successor() {
            out.send_resting_on(RestsOn::Nothing, successor, Message::TimeoutNow { term });
        }
        self.become_follower(term, None, because, out);
    }

    /// Leadership returns to a preferred member once it has been caught up and heard for a while.
    pub(crate) fn hand_over_to_preferred(&mut self, out: &mut Effects<Raft>) {
        let Part::Leader(leader) = &self.part else { return };
        if leader.transfer.is_some() || self.commit < leader.first_own {
            return;
        }
        let is_better = |id: &NodeId| {
            leader.progress.get(id).is_some_and(|peer| {
                peer.priority > self.priority
                    && peer.priority == Priority::Preferred
                    && peer.ready_checks >= self.patience.checks_wanted(*id)
            })
        };
        if let Some(to) = self.membership.voters.iter().copied().find(|id| *id != self.me && is_better(id)) {
            self.patience.on_handed_over(to);
            self.start_transfer(to, out);
        }
    }
    /// A caretaker hands over to the first that has caught up.
    pub(crate) fn hand_over_as_caretaker(&mut self, peer: NodeId, out: &mut Effects<Raft>) {
        let Part::Leader(leader) = &self.part else { return };
        if self.priority != Priority::Never || leader.transfer.is_some() || self.commit < leader.first_own {
            return;
        }
        let last = self.log.last().index;
        let is_ready =
            leader.progress.get(&peer).is_some_and(|peer| peer.priority != Priority::Never && peer.matched == last);
        if is_ready && self.membership.voters.contains(&peer) && !self.links_down.contains(&peer) {
            self.start_transfer(peer, out);
        }
    }
}
