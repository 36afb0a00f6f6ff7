//! Handing leadership over: on request, to a preferred member, or because this node should not lead any more.
//!
//! `[OURS]`: BlazingMQ's operators force a leader by tricks with quorums (§6). Here the successor, once it holds
//! everything, proposes in the leader's name, and nobody sticks to that leader; the old leader supports it like
//! everybody else. While a hand-over is under way no proposal of clients is accepted; after an election timeout it is
//! given up and the old leader serves on.

use crate::blazingmq::{BlazingMq, Part, Timer};
use crate::healing::Stage;
use crate::message::Message;
use hustings_core::{Effects, NodeId, Outcome, Priority, Reason, Refusal, RestsOn, Ticket};
use std::cmp::Reverse;

/// A hand-over under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Transfer {
    /// To whom.
    pub to: NodeId,
    /// Whether it was told to take over.
    pub is_told: bool,
}

impl BlazingMq {
    pub(crate) fn on_asked_to_transfer(&mut self, ticket: Ticket, to: NodeId, out: &mut Effects<BlazingMq>) {
        let Part::Leader(leader) = &mut self.part else {
            return out.refuse(ticket, Refusal::NotLeader(self.active_leader()));
        };
        if to == self.me {
            // Handing over to oneself takes back what is under way.
            if leader.transfer.take().is_some() {
                out.cancel_timer(Timer::Transfer);
            }
            self.refuse_transfer(out);
            return out.reply(ticket, Outcome::Done);
        }
        if leader.stage != Stage::Active {
            return out.refuse(ticket, Refusal::NotReady);
        }
        let may_lead = leader.peers.get(&to).is_some_and(|peer| peer.priority != Priority::Never);
        if !self.membership.voters.contains(&to) || !may_lead || self.links_down.contains(&to) {
            return out.refuse(ticket, Refusal::BadTransferee(to));
        }
        if leader.transfer.as_ref().is_none_or(|transfer| transfer.to != to) {
            self.refuse_transfer(out);
            self.start_transfer(to, out);
        }
        // Asked twice for the same: the alarm is not put off, and the earlier one hears that it was asked again.
        if let Some((_, earlier)) = self.transfer_ticket.replace((to, ticket)) {
            out.refuse(earlier, Refusal::TransferTimedOut);
        }
    }

    pub(crate) fn on_asked_to_resign(&mut self, ticket: Ticket, out: &mut Effects<BlazingMq>) {
        if !self.is_leading() {
            return out.reply(ticket, Outcome::Done);
        }
        match self.best_successor() {
            Some(to) => self.on_asked_to_transfer(ticket, to, out),
            None => out.refuse(ticket, Refusal::NotLeader(None)),
        }
    }

    fn start_transfer(&mut self, to: NodeId, out: &mut Effects<BlazingMq>) {
        let Part::Leader(leader) = &mut self.part else { return };
        leader.transfer = Some(Transfer { to, is_told: false });
        out.set_timer(Timer::Transfer, self.timing.election_min..=self.timing.election_min);
        self.send_records_to(to, out);
        self.tell_successor_if_ready(to, out);
    }

    /// A peer's acknowledgement came: a successor that stores everything is told; a learner that does is promoted.
    pub(crate) fn on_peer_progressed(&mut self, peer: NodeId, out: &mut Effects<BlazingMq>) {
        self.tell_successor_if_ready(peer, out);
        self.promote_if_ready(peer, out);
    }

    fn tell_successor_if_ready(&mut self, peer: NodeId, out: &mut Effects<BlazingMq>) {
        let (term, last) = (self.promise.term, self.log.last().index);
        let Part::Leader(leader) = &mut self.part else { return };
        let is_ready = leader.peers.get(&peer).is_some_and(|peer| peer.stored == last);
        if let Some(transfer) = leader.transfer.as_mut().filter(|transfer| transfer.to == peer && !transfer.is_told)
            && is_ready
        {
            transfer.is_told = true;
            out.send_resting_on(RestsOn::Nothing, peer, Message::Handover { term });
        }
    }

    /// The leader hands over to this node.
    pub(crate) fn on_handover(&mut self, from: NodeId, out: &mut Effects<BlazingMq>) {
        if self.may_lead() {
            self.become_candidate(Reason::Transfer(from), true, out);
        }
    }

    pub(crate) fn on_transfer_alarm(&mut self, out: &mut Effects<BlazingMq>) {
        if let Part::Leader(leader) = &mut self.part {
            leader.transfer = None;
        }
        // Also when the old leader follows already: its successor may have died on the way.
        self.refuse_transfer(out);
    }

    /// The successor is no longer one to lead.
    pub(crate) fn abort_transfer_to_strangers(&mut self, out: &mut Effects<BlazingMq>) {
        let voters = &self.membership.voters;
        let Part::Leader(leader) = &mut self.part else { return };
        if leader.transfer.take_if(|transfer| !voters.contains(&transfer.to)).is_some() {
            out.cancel_timer(Timer::Transfer);
            self.refuse_transfer(out);
        }
    }

    fn refuse_transfer(&mut self, out: &mut Effects<BlazingMq>) {
        if let Some((_, ticket)) = self.transfer_ticket.take() {
            out.refuse(ticket, Refusal::TransferTimedOut);
        }
    }

    /// A new leader is known: whoever asked for a hand-over hears whether it is the one.
    pub(crate) fn end_transfer(&mut self, out: &mut Effects<BlazingMq>) {
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
        let ranked = self.membership.voters.iter().filter_map(|id| {
            let peer = leader.peers.get(id).filter(|peer| peer.priority != Priority::Never && peer.stored > 0)?;
            let is_able = *id != self.me && !self.links_down.contains(id) && !self.unavailable.contains(id);
            is_able.then_some(((peer.stored, peer.priority, Reverse(*id)), *id))
        });
        ranked.max().map(|(_, id)| id)
    }

    /// Gives way without waiting: the best successor proposes, this node follows whoever wins. Without one everybody is
    /// told.
    pub(crate) fn hand_over_and_follow(&mut self, because: Reason, out: &mut Effects<BlazingMq>) {
        let term = self.promise.term;
        let Some(successor) = self.best_successor() else { return self.step_down(because, out) };
        let from = self.role();
        out.send_resting_on(RestsOn::Nothing, successor, Message::Handover { term });
        self.leave_part(out);
        self.announce(from, because, out);
        self.wait_initially(out);
    }

    /// Leadership returns to a preferred member once it has been caught up and heard for a while.
    pub(crate) fn hand_over_to_preferred(&mut self, out: &mut Effects<BlazingMq>) {
        let Part::Leader(leader) = &self.part else { return };
        if leader.transfer.is_some() || self.commit < leader.first_own || self.priority == Priority::Preferred {
            return;
        }
        let is_better = |id: &NodeId| {
            let peer = leader.peers.get(id);
            peer.is_some_and(|peer| {
                peer.priority == Priority::Preferred && peer.ready_checks >= self.patience.checks_wanted(*id)
            })
        };
        let better = self.membership.voters.iter().copied().find(|id| *id != self.me && is_better(id));
        if let Some(to) = better {
            self.patience.on_handed_over(to);
            self.start_transfer(to, out);
        }
    }
    /// A caretaker hands over to the first that has caught up.
    pub(crate) fn hand_over_as_caretaker(&mut self, peer: NodeId, out: &mut Effects<BlazingMq>) {
        let Part::Leader(leader) = &self.part else { return };
        if self.priority != Priority::Never || leader.transfer.is_some() || self.commit < leader.first_own {
            return;
        }
        let last = self.log.last().index;
        let is_ready =
            leader.peers.get(&peer).is_some_and(|peer| peer.priority != Priority::Never && peer.stored == last);
        if is_ready && self.membership.voters.contains(&peer) && !self.links_down.contains(&peer) {
            self.start_transfer(peer, out);
        }
    }
}
