//! Events from outside the ensemble: links that come and go, the disk, administrators.

use crate::zab::{RoleState, Zab};
use hustings_core::leading::Leads;
use hustings_core::{Effects, NodeId, Outcome, Reason, Refusal, Ticket};

impl Zab {
    pub(crate) fn on_link_up(&mut self, peer: NodeId, out: &mut Effects<Zab>) {
        self.on_sign_of_life(peer, out);
        // §5.3: the last message is said again on a new link.
        self.notify(peer, out);
    }

    /// Takes a peer that speaks for connected, whatever was presumed.
    pub(crate) fn on_sign_of_life(&mut self, peer: NodeId, out: &mut Effects<Zab>) {
        self.unmet.remove(&peer);
        if self.node.links_down.remove(&peer) {
            self.on_link_up_while_looking(out);
        }
    }

    /// A connection that never came is as good as one that went down.
    pub(crate) fn give_up_the_unmet(&mut self, out: &mut Effects<Zab>) {
        for peer in std::mem::take(&mut self.unmet) {
            self.on_link_down(peer, out);
        }
    }

    pub(crate) fn on_link_down(&mut self, peer: NodeId, out: &mut Effects<Zab>) {
        let could_lead = self.may_lead();
        self.unmet.remove(&peer);
        self.node.links_down.insert(peer);
        match &mut self.role_state {
            RoleState::Looking(_) => self.on_link_down_while_looking(peer, could_lead, out),
            RoleState::Following(following) if following.leader == peer => {
                self.become_looking(Reason::LinkDown(peer), out)
            }
            RoleState::Following(_) => {}
            RoleState::Leading(leading) => {
                leading.office.peers.remove(&peer);
            }
        }
    }

    /// The disk does not answer: a leader gives way while its messages still do (ADR 31). One that never came to lead does not propose
    /// itself for a while when the disk answers again: it would be elected again, by its rank or its id, and stall at its first write.
    pub(crate) fn on_disk_stalled(&mut self, out: &mut Effects<Zab>) {
        self.node.is_disk_stalled = true;
        if self.is_leading() {
            self.note_whether_in_vain();
            self.hand_over_and_follow(Reason::DiskStalled, out);
        } else {
            self.look_again(out);
        }
    }

    pub(crate) fn on_disk_recovered(&mut self, out: &mut Effects<Zab>) {
        self.node.is_disk_stalled = false;
        self.look_again(out);
    }

    pub(crate) fn on_asked_to_campaign(&mut self, ticket: Ticket, out: &mut Effects<Zab>) {
        if self.is_serving() {
            return out.reply(ticket, Outcome::Done);
        }
        if !self.may_lead() {
            return out.refuse(ticket, Refusal::BadTransferee(self.node.me));
        }
        if matches!(self.role_state, RoleState::Following(_)) {
            self.become_looking(Reason::Asked, out);
        }
        out.reply(ticket, Outcome::Done);
    }

    pub(crate) fn on_asked_to_forget(&mut self, ticket: Ticket, out: &mut Effects<Zab>) {
        // On leaders and on those who look it changes nothing.
        if matches!(self.role_state, RoleState::Following(_)) && self.node.leader.is_some() {
            self.become_looking(Reason::LeaderForgotten, out);
        }
        out.reply(ticket, Outcome::Done);
    }
}
