//! Handing leadership over: on request, to a preferred member, or because this node should not lead any more.
//!
//! `[OURS]`: ZAB has no hand-over. The successor, once it holds everything, is told so, and then the leader resigns: everybody
//! looks for a leader at once, and among equal histories the successor's vote is the best. While a hand-over is under way no
//! proposal is accepted; after an election timeout it is given up and the old leader serves on.

use crate::message::Message;
use crate::zab::{Part, Timer, Zab};
use hustings_core::{Effects, NodeId, Outcome, Priority, Reason, Refusal, RestsOn, Ticket};

/// A hand-over under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Transfer {
    /// To whom.
    pub to: NodeId,
    /// Why.
    pub because: Reason,
}

impl Zab {
    pub(crate) fn on_asked_to_transfer(&mut self, ticket: Ticket, to: NodeId, out: &mut Effects<Zab>) {
        if !self.is_serving() {
            return out.refuse(ticket, Refusal::NotLeader(self.leader));
        }
        let Part::Leading(leading) = &mut self.part else { unreachable!("only a leader serves") };
        if to == self.me {
            // Handing over to oneself takes back what is under way.
            if leading.transfer.take().is_some() {
                out.cancel_timer(Timer::Transfer);
            }
            self.refuse_transfer(out);
            return out.reply(ticket, Outcome::Done);
        }
        let may_lead = leading.learners.get(&to).is_some_and(|learner| learner.priority != Priority::Never);
        if !self.membership.voters.contains(&to) || !may_lead {
            return out.refuse(ticket, Refusal::BadTransferee(to));
        }
        let is_new = leading.transfer.as_ref().is_none_or(|transfer| transfer.to != to);
        if is_new {
            self.refuse_transfer(out);
        }
        // Asked twice for the same: the alarm is not put off, and the earlier one hears that it was asked again.
        if let Some((_, earlier)) = self.transfer_ticket.replace((to, ticket)) {
            out.refuse(earlier, Refusal::TransferTimedOut);
        }
        if is_new {
            self.start_transfer(to, Reason::Asked, out);
        }
    }

    pub(crate) fn on_asked_to_resign(&mut self, ticket: Ticket, out: &mut Effects<Zab>) {
        if !self.is_serving() {
            return out.reply(ticket, Outcome::Done);
        }
        match self.best_successor() {
            Some(to) => self.on_asked_to_transfer(ticket, to, out),
            None => out.refuse(ticket, Refusal::NotLeader(None)),
        }
    }

    fn start_transfer(&mut self, to: NodeId, because: Reason, out: &mut Effects<Zab>) {
        let Part::Leading(leading) = &mut self.part else { return };
        leading.transfer = Some(Transfer { to, because });
        out.set_timer(Timer::Transfer, self.timing.election_min..=self.timing.election_min);
        self.resign_if_successor_is_ready(to, out);
    }

    /// A learner's acknowledgement came: a successor that holds everything takes over; an observer that does is promoted.
    pub(crate) fn on_learner_progressed(&mut self, learner: NodeId, out: &mut Effects<Zab>) {
        self.resign_if_successor_is_ready(learner, out);
        self.promote_if_ready(learner, out);
    }

    fn resign_if_successor_is_ready(&mut self, learner: NodeId, out: &mut Effects<Zab>) {
        let last = self.log.last().index;
        let Part::Leading(leading) = &self.part else { return };
        let is_ready = leading.learners.get(&learner).is_some_and(|known| known.is_synced() && known.stored == last);
        let Some(transfer) = leading.transfer.as_ref().filter(|transfer| transfer.to == learner && is_ready) else {
            return;
        };
        let because = transfer.because.clone();
        self.resign_in_favour_of(learner, because, out);
    }

    /// The successor hears of it before it hears that the leader resigned.
    fn resign_in_favour_of(&mut self, successor: NodeId, because: Reason, out: &mut Effects<Zab>) {
        let epoch = self.promise.term;
        let Part::Leading(leading) = &self.part else { return };
        if let Some(learner) = leading.learners.get(&successor) {
            let handover = Message::Handover { connection: learner.connection, epoch };
            out.send_resting_on(RestsOn::Nothing, successor, handover);
        }
        self.become_looking(because, out);
    }

    /// The leader resigns in this node's favour.
    pub(crate) fn on_handover(&mut self, _: &mut Effects<Zab>) {
        self.is_successor = self.may_lead();
    }

    pub(crate) fn on_transfer_alarm(&mut self, out: &mut Effects<Zab>) {
        if let Part::Leading(leading) = &mut self.part {
            leading.transfer = None;
        }
        // Also when the old leader follows already: its successor may have died on the way.
        self.refuse_transfer(out);
    }

    /// The successor is no longer one to lead.
    pub(crate) fn abort_transfer_to_strangers(&mut self, out: &mut Effects<Zab>) {
        let voters = &self.membership.voters;
        let Part::Leading(leading) = &mut self.part else { return };
        if leading.transfer.take_if(|transfer| !voters.contains(&transfer.to)).is_some() {
            out.cancel_timer(Timer::Transfer);
            self.refuse_transfer(out);
        }
    }

    fn refuse_transfer(&mut self, out: &mut Effects<Zab>) {
        if let Some((_, ticket)) = self.transfer_ticket.take() {
            out.refuse(ticket, Refusal::TransferTimedOut);
        }
    }

    /// A new leader is known: whoever asked for a hand-over hears whether it is the one.
    pub(crate) fn end_transfer(&mut self, out: &mut Effects<Zab>) {
        let Some(leader) = self.leader else { return };
        self.patience.on_leader(leader);
        if let Some((to, ticket)) = self.transfer_ticket.take() {
            let outcome = if leader == to { Outcome::Done } else { Outcome::Refused(Refusal::TransferTimedOut) };
            out.reply(ticket, outcome);
        }
    }

    /// The synchronised voter that is furthest and most wanted.
    fn best_successor(&self) -> Option<NodeId> {
        let Part::Leading(leading) = &self.part else { return None };
        let ranked = self.membership.voters.iter().filter(|id| **id != self.me).filter_map(|id| {
            let learner = leading.learners.get(id).filter(|l| l.is_synced() && l.priority != Priority::Never)?;
            Some(((learner.stored, learner.priority, *id), *id))
        });
        ranked.max().map(|(_, id)| id)
    }

    /// Gives way without waiting: the best successor is told, and everybody looks for a leader.
    pub(crate) fn hand_over(&mut self, because: Reason, out: &mut Effects<Zab>) {
        match self.best_successor() {
            Some(successor) => self.resign_in_favour_of(successor, because, out),
            None => self.become_looking(because, out),
        }
    }

    /// Leadership returns to a preferred member once it has been caught up and heard for a while.
    pub(crate) fn hand_over_to_preferred(&mut self, out: &mut Effects<Zab>) {
        if !self.is_serving() || self.priority == Priority::Preferred {
            return;
        }
        let Part::Leading(leading) = &self.part else { return };
        let is_better = |id: &NodeId| {
            let learner = leading.learners.get(id);
            learner.is_some_and(|learner| {
                learner.priority == Priority::Preferred && learner.ready_checks >= self.patience.checks_wanted(*id)
            })
        };
        let better = self.membership.voters.iter().copied().find(|id| *id != self.me && is_better(id));
        if let Some(to) = better.filter(|_| leading.transfer.is_none()) {
            self.patience.on_handed_over(to);
            self.start_transfer(to, Reason::Preferred(to), out);
        }
    }
    /// A caretaker hands over to the first that has caught up.
    pub(crate) fn hand_over_as_caretaker(&mut self, peer: NodeId, out: &mut Effects<Zab>) {
        let Part::Leading(leading) = &self.part else { return };
        if self.priority != Priority::Never || leading.transfer.is_some() || !self.is_serving() {
            return;
        }
        let last = self.log.last().index;
        let is_ready = leading
            .learners
            .get(&peer)
            .is_some_and(|peer| peer.priority != Priority::Never && peer.is_synced() && peer.stored == last);
        if is_ready && self.membership.voters.contains(&peer) && !self.links_down.contains(&peer) {
            self.start_transfer(peer, Reason::Preferred(peer), out);
        }
    }
}
