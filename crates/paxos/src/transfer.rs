//! Handing leadership over: on request, to a preferred member, or because this node should not lead any more.
//!
//! `[OURS]`: absent in the sources. The successor, once it holds everything, takes over without a poll; the old leader
//! promises its ballot like everybody else, and any node may lead, so nothing else is asked of it. While a hand-over is
//! under way no proposal of clients is accepted; after an election timeout it is given up and the old leader serves on.

use crate::message::Message;
use crate::paxos::{Paxos, Stage, Timer};
use hustings_core::{Effects, NodeId, Outcome, Priority, Reason, Refusal, RestsOn, Term, Ticket};
use std::cmp::Reverse;

/// A hand-over under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Transfer {
    /// To whom.
    pub to: NodeId,
    /// Whether it was told to take over.
    pub is_told: bool,
}

impl Paxos {
    pub(crate) fn on_asked_to_transfer(&mut self, ticket: Ticket, to: NodeId, out: &mut Effects<Paxos>) {
        let (me, known) = (self.me, self.leader);
        let is_able = self.membership.voters.contains(&to) && !self.links_down.contains(&to);
        let Some(reign) = self.reign_mut() else {
            return out.refuse(ticket, Refusal::NotLeader(known));
        };
        if to == me {
            // Handing over to oneself takes back what is under way.
            if reign.transfer.take().is_some() {
                out.cancel_timer(Timer::Transfer);
            }
            self.refuse_transfer(out);
            return out.reply(ticket, Outcome::Done);
        }
        if reign.stage != Stage::Leading {
            return out.refuse(ticket, Refusal::NotReady);
        }
        let may_lead = reign.peers.get(&to).is_some_and(|peer| peer.priority != Priority::Never);
        if !is_able || !may_lead {
            return out.refuse(ticket, Refusal::BadTransferee(to));
        }
        if reign.transfer.as_ref().is_none_or(|transfer| transfer.to != to) {
            self.refuse_transfer(out);
            self.start_transfer(to, out);
        }
        // Asked twice for the same: the alarm is not put off, and the earlier one hears that it was asked again.
        if let Some((_, earlier)) = self.transfer_ticket.replace((to, ticket)) {
            out.refuse(earlier, Refusal::TransferTimedOut);
        }
    }

    pub(crate) fn on_asked_to_resign(&mut self, ticket: Ticket, out: &mut Effects<Paxos>) {
        if self.leading().is_none() {
            return out.reply(ticket, Outcome::Done);
        }
        match self.best_successor() {
            Some(to) => self.on_asked_to_transfer(ticket, to, out),
            None => out.refuse(ticket, Refusal::NotLeader(None)),
        }
    }

    fn start_transfer(&mut self, to: NodeId, out: &mut Effects<Paxos>) {
        let Some(reign) = self.reign_mut() else { return };
        reign.transfer = Some(Transfer { to, is_told: false });
        out.set_timer(Timer::Transfer, self.timing.election_min..=self.timing.election_min);
        self.send_accepts_to(to, out);
        self.tell_successor_if_ready(to, out);
    }

    /// A peer's acknowledgement came: a successor that stores everything is told; a learner that does is promoted.
    pub(crate) fn on_peer_progressed(&mut self, peer: NodeId, out: &mut Effects<Paxos>) {
        self.tell_successor_if_ready(peer, out);
        self.promote_if_ready(peer, out);
    }

    fn tell_successor_if_ready(&mut self, peer: NodeId, out: &mut Effects<Paxos>) {
        let Some(reign) = self.reign_mut() else { return };
        let (ballot, end) = (reign.ballot, reign.end);
        let is_ready = reign.peers.get(&peer).is_some_and(|peer| peer.stored >= end);
        if let Some(transfer) = reign.transfer.as_mut().filter(|transfer| transfer.to == peer && !transfer.is_told)
            && is_ready
        {
            transfer.is_told = true;
            out.send_resting_on(RestsOn::Nothing, peer, Message::Handover { ballot });
        }
    }

    /// The leader hands over to this node.
    pub(crate) fn on_handover(&mut self, from: NodeId, ballot: Term, out: &mut Effects<Paxos>) {
        let is_current = ballot >= self.promise.term && ballot.node() == from.0;
        if is_current && self.reign().is_none() && self.may_lead() {
            self.take_over(Reason::Transfer(from), out);
        }
    }

    pub(crate) fn on_transfer_alarm(&mut self, out: &mut Effects<Paxos>) {
        if let Some(reign) = self.reign_mut() {
            reign.transfer = None;
        }
        // Also when the old leader follows already: its successor may have died on the way.
        self.refuse_transfer(out);
    }

    /// The successor is no longer one to lead.
    pub(crate) fn abort_transfer_to_strangers(&mut self, out: &mut Effects<Paxos>) {
        let voters = self.membership.voters.clone();
        let Some(reign) = self.reign_mut() else { return };
        if reign.transfer.take_if(|transfer| !voters.contains(&transfer.to)).is_some() {
            out.cancel_timer(Timer::Transfer);
            self.refuse_transfer(out);
        }
    }

    fn refuse_transfer(&mut self, out: &mut Effects<Paxos>) {
        if let Some((_, ticket)) = self.transfer_ticket.take() {
            out.refuse(ticket, Refusal::TransferTimedOut);
        }
    }

    /// A new leader is known: whoever asked for a hand-over hears whether it is the one.
    pub(crate) fn end_transfer(&mut self, out: &mut Effects<Paxos>) {
        let Some(leader) = self.leader else { return };
        self.patience.on_leader(leader);
        if let Some((to, ticket)) = self.transfer_ticket.take() {
            let outcome = if leader == to { Outcome::Done } else { Outcome::Refused(Refusal::TransferTimedOut) };
            out.reply(ticket, outcome);
        }
    }

    /// The reachable voter that is furthest and most wanted.
    fn best_successor(&self) -> Option<NodeId> {
        let reign = self.reign()?;
        let ranked = self.membership.voters.iter().filter_map(|id| {
            let peer = reign.peers.get(id).filter(|peer| peer.priority != Priority::Never && peer.stored > 0)?;
            let is_able = *id != self.me && !self.links_down.contains(id);
            is_able.then_some(((peer.stored, peer.priority, Reverse(*id)), *id))
        });
        ranked.max().map(|(_, id)| id)
    }

    /// Gives way without waiting: the best successor takes over, this node follows whoever wins.
    pub(crate) fn hand_over_and_follow(&mut self, because: Reason, out: &mut Effects<Paxos>) {
        if let (Some(successor), Some(ballot)) = (self.best_successor(), self.leading().map(|reign| reign.ballot)) {
            out.send_resting_on(RestsOn::Nothing, successor, Message::Handover { ballot });
        }
        self.back_down(because, out);
    }

    /// Leadership returns to a preferred member once it has been caught up and heard for a while.
    pub(crate) fn hand_over_to_preferred(&mut self, out: &mut Effects<Paxos>) {
        let Some(reign) = self.reign() else { return };
        if reign.transfer.is_some() || reign.stage != Stage::Leading || self.priority == Priority::Preferred {
            return;
        }
        let is_better = |id: &NodeId| {
            let peer = reign.peers.get(id);
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
}
