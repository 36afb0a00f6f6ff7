//! Questions of a story to its nodes.

use crate::{Actor, Direction, Message, Theatre, Timer};
use hustings_core::leading::{History as _, Leads as _};
use hustings_core::{EntryKind, Lsn, Membership, Origin, Outcome, Protocol as _, Refusal, Role, Ticket};
use std::sync::Arc;

impl<D: Direction> Theatre<D> {
    /// All who live, in order.
    pub fn ids(&self) -> Vec<u64> {
        self.actors.keys().copied().collect()
    }

    /// The node of this id, which must be alive.
    pub fn actor(&self, id: u64) -> &Actor<D> {
        &self.actors[&id]
    }

    /// A node that lives, to be changed.
    pub fn actor_mut(&mut self, id: u64) -> &mut Actor<D> {
        self.actors.get_mut(&id).expect("an actor of this theatre")
    }

    /// The protocol value of a node.
    pub fn value(&self, id: u64) -> &D::Protocol {
        &self.actors[&id].value
    }

    /// The role that a node plays.
    pub fn role(&self, id: u64) -> Role {
        self.value(id).status().role
    }

    /// The term that it is in.
    pub fn term(&self, id: u64) -> u64 {
        self.value(id).status().term.0
    }

    /// The highest index that it knows to be committed.
    pub fn commit(&self, id: u64) -> u64 {
        self.value(id).status().commit
    }

    /// The last entry of its log.
    pub fn last(&self, id: u64) -> Lsn {
        self.value(id).status().last
    }

    /// The terms of the entries that it holds above its last snapshot.
    pub fn terms(&self, id: u64) -> Vec<u64> {
        let log = &self.value(id).node().log;
        (log.base().index + 1..=log.last().index).filter_map(|index| log.term_at(index)).map(|term| term.0).collect()
    }

    /// The membership that is in force at a node.
    pub fn membership(&self, id: u64) -> Arc<Membership> {
        self.value(id).status().membership
    }

    /// Number of records that wait for its disk.
    pub fn unsynced(&self, id: u64) -> usize {
        self.actor(id).unsynced.len()
    }

    /// The leader that requests may go to, in its view.
    pub fn leader_of(&self, id: u64) -> Option<u64> {
        self.value(id).status().leader.map(|id| id.0)
    }

    /// All who say that they lead.
    pub fn leaders(&self) -> Vec<u64> {
        self.ids().into_iter().filter(|id| self.role(*id) == Role::Leader).collect()
    }

    /// The only one who says that it leads.
    ///
    /// # Panics
    /// When nobody leads, or several do.
    pub fn leader(&self) -> u64 {
        let leaders = self.leaders();
        assert_eq!(leaders.len(), 1, "exactly one leader, not {leaders:?}");
        leaders[0]
    }

    /// Whether a timer is set.
    pub fn is_armed(&self, id: u64, timer: Timer<D>) -> bool {
        self.actor(id).armed.contains(&timer)
    }

    /// Number of messages of this kind that a node sent.
    pub fn count(&self, from: u64, is_it: impl Fn(&Message<D>) -> bool) -> usize {
        self.said.iter().filter(|(who, _, what)| *who == from && is_it(what)).count()
    }

    /// The last answer to a ticket.
    pub fn outcome(&self, id: u64, ticket: Ticket) -> Option<&Outcome> {
        self.actor(id).replies.iter().rev().find(|(answered, _)| *answered == ticket).map(|(_, outcome)| outcome)
    }

    /// The refusal of a proposal, if it was refused.
    pub fn refusal(&self, id: u64, origin: Origin) -> Option<Refusal> {
        match self.outcome(id, Ticket::Proposal(origin)) {
            Some(Outcome::Refused(refusal)) => Some(refusal.clone()),
            _ => None,
        }
    }

    /// The index at which a read may be served, if it is confirmed.
    pub fn read_index(&self, id: u64, ticket: Ticket) -> Option<u64> {
        self.actor(id).reads.iter().find(|(answered, _)| *answered == ticket).map(|(_, index)| *index)
    }

    /// Commands that a node applied, as text.
    pub fn lines(&self, id: u64) -> Vec<String> {
        let commands = self.actor(id).applied.iter().filter(|entry| entry.kind == EntryKind::Command);
        commands.map(|entry| String::from_utf8_lossy(&entry.payload).into_owned()).collect()
    }
}
