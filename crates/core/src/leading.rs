//! The state and behaviour that every protocol's node shares: the base of a member, and the part of a leader that is
//! not specific to its paper.
//!
//! A protocol holds two values, a [`Node`] and, while it leads, an [`Office`]; it shows them through [`Leads`], together with
//! what is specific to it. All the rest is here: rounds of reads ([`Reading`]), hand-over ([`HandingOver`]), the adoption of a
//! membership ([`Adopting`]); for logs in order also proposals and commits ([`Replicating`]), and for followers that
//! acknowledge entries and snapshots to the leader of their term ([`Following`]).
//!
//! ```text
//!    Leads ─────────────► Reading, HandingOver, Adopting, Bounded      all five
//!      └─ InOrder ──────► Replicating                                  all but Paxos
//!           └─ Acknowledging ► Following, with Progress over lossy links   Raft, GMT-2000, BlazingMQ
//! ```
//!
//! Deliberately absent is all that truly differs: elections, messages, timers, Paxos' journal and promises, ZAB's phases. How a
//! sixth protocol uses this: `docs/a-sixth-protocol.md`. Read next: [`node`], [`office`].

pub mod history;
pub mod node;
pub mod office;

pub mod hand_over;
pub mod reads;

pub mod adopting;

pub mod acknowledging;
pub mod in_order;
pub mod progress;

#[cfg(test)]
mod stories;

pub use acknowledging::{Acknowledging, Following};
pub use adopting::{Adopting, SendsToMembers, Welcoming};
pub use hand_over::HandingOver;
pub use history::History;
pub use in_order::{Bounded, InOrder, Replicating};
pub use node::{Node, RANK_STEP};
pub use office::{Asked, Known, Office, Transfer};
pub use progress::{Pace, Portion, Progress, Window};
pub use reads::{Reading, Reads};

use crate::{
    Effects, Membership, MembershipChange, MembershipError, NodeId, Patience, Priority, Protocol, Reason, Role, Status,
    Ticket, Transition,
};

/// A precaution that a leader skips, as a planted defect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Haste {
    /// Reads are answered before an entry of its own is committed.
    ReadsEarly,
    /// Changes of membership begin before an entry of its own is committed.
    ChangesEarly,
    /// A second change of membership begins before the first is in force.
    ChangesTogether,
}

/// The base and the leader's half of one value.
pub type Halves<'a, P> = (&'a mut Node<<P as Leads>::Log>, &'a mut Office<<P as Leads>::Peer>);

/// A protocol whose leader does what every leader does: where its parts are, and what only it can say.
pub trait Leads: Protocol {
    /// The type of the entries that it holds above its last snapshot.
    type Log: History;
    /// The type of what its leader knows about a follower.
    type Peer: AsRef<Known> + AsMut<Known>;

    /// The timer that ends a hand-over.
    const TRANSFER_TIMER: Self::Timer;
    /// The timer by which [`Patience`] with preferred members forgets.
    const PATIENCE_TIMER: Self::Timer;

    // --- Where things are. ---------------------------------------------------------------------------------------

    /// The base of this node, in every role.
    fn node(&self) -> &Node<Self::Log>;
    /// The base, to be changed.
    fn node_mut(&mut self) -> &mut Node<Self::Log>;
    /// The leader's half, while this node leads.
    fn office(&self) -> Option<&Office<Self::Peer>>;
    /// Base and leader's half, to be changed; `None` unless this node leads.
    fn split(&mut self) -> Option<Halves<'_, Self>>;

    // --- Questions that protocols answer differently. ------------------------------------------------------------

    /// Whether this leader accepts requests.
    fn is_reigning(&self) -> bool {
        self.office().is_some()
    }

    /// Whether this leader knows all that was committed before it, and nothing of others is under way.
    fn is_settled(&self) -> bool {
        self.office().is_some_and(|office| self.node().commit >= office.first_own)
    }

    /// Whether a leader that is asked to hand over is ready for it.
    fn may_transfer(&self) -> bool {
        true
    }

    /// Whether a caretaker may give way already: sooner than on request, where that may never become possible.
    fn may_give_way(&self) -> bool {
        self.may_transfer()
    }

    /// The last index that this leader has written.
    fn end(&self) -> u64 {
        self.node().log.last().index
    }

    /// Whether the entries that this follower stores count towards a quorum.
    fn is_in_sync(_: &Self::Peer) -> bool {
        true
    }

    /// The best follower to lead instead of this node.
    fn best_successor(&self) -> Option<NodeId> {
        self.office()?.best_successor(self.node(), |_| true)
    }

    /// The newest round of reads.
    fn own_round(&self) -> u64 {
        self.office().map_or(0, |office| office.reads.highest())
    }

    /// The round of reads that a quorum has confirmed.
    fn round_reached(&self) -> u64 {
        self.node().membership.reached(|id| self.round_of(id))
    }

    /// The membership after a change.
    ///
    /// # Errors
    /// The change cannot be made.
    fn membership_after(&self, change: &MembershipChange) -> Result<Membership, MembershipError> {
        self.node().membership.after_one(change)
    }

    /// The membership that a change would lead to, if this cluster may have it.
    ///
    /// # Errors
    /// It may not.
    fn permitted(&self, next: Membership) -> Result<Membership, MembershipError> {
        Ok(next)
    }

    /// Whether this defect is planted in the node.
    fn is_hasty(&self, _: Haste) -> bool {
        false
    }

    /// Whether a read must wait until the leader has committed an entry of its own.
    fn waits_with_reads(&self) -> bool {
        !self.is_settled() && !self.is_hasty(Haste::ReadsEarly)
    }

    // --- What protocols do differently. --------------------------------------------------------------------------

    /// A read waits for a round of answers from now on.
    fn ask_for_round(&mut self, ticket: Ticket, out: &mut Effects<Self>) {
        if let Some((node, office)) = self.split() {
            office.reads.ask(ticket, node.commit);
        }
        if !self.confirm_reads(out) {
            self.send_heartbeats(out);
        }
    }

    /// Asks everybody to confirm the newest round.
    fn send_heartbeats(&mut self, out: &mut Effects<Self>);

    /// Sends a follower what it lacks.
    fn catch_up(&mut self, to: NodeId, out: &mut Effects<Self>);

    /// Tells the successor, which stores everything, to take over.
    fn tell_successor(&mut self, to: NodeId, because: Reason, out: &mut Effects<Self>);

    /// Gives way without waiting: the best successor is told, and this node follows the winner.
    fn hand_over_and_follow(&mut self, because: Reason, out: &mut Effects<Self>);

    /// A change of membership that this leader makes by itself.
    fn append_change(&mut self, change: MembershipChange, out: &mut Effects<Self>);

    /// Another membership is in force: a leader adjusts the peers that it sends to. Where it sends to all members, as
    /// most do, that is [`Welcoming::welcome_and_dismiss`].
    fn adjust_peers(&mut self, out: &mut Effects<Self>);

    /// Announces what this node has become.
    fn announce(&mut self, from: Role, because: Reason, out: &mut Effects<Self>) {
        let Status { role: to, term, leader, last: lsn, .. } = self.status();
        if from == Role::Leader && to != Role::Leader {
            self.on_lost_leadership(&because);
        }
        match leader {
            Some(leader) if leader == self.node().me => self.remember(Patience::on_leads, out),
            Some(_) => self.remember(Patience::on_other_leads, out),
            None => {}
        }
        out.announce(Transition { node: self.node().me, from, to, term, leader, lsn, because });
    }

    /// This node leads no more. A preferred one notes it, unless that was an operator's wish or its history's end.
    fn on_lost_leadership(&mut self, because: &Reason) {
        let is_lost = matches!(
            because,
            Reason::HigherTerm(_) | Reason::LeaderHeard(_) | Reason::QuorumLost(_) | Reason::DiskStalled
        );
        let node = self.node_mut();
        if is_lost && node.priority() == Priority::Preferred {
            node.patience.on_lost();
        }
    }

    /// Something happened that is remembered of preferred members; as long as there is such a thing, steps of it are forgotten.
    fn remember(&mut self, happened: impl FnOnce(&mut Patience), out: &mut Effects<Self>) {
        let node = self.node_mut();
        let is_forgetting = node.patience.remembers();
        happened(&mut node.patience);
        if !is_forgetting && node.patience.remembers() {
            self.begin_period(out);
        }
    }

    /// A step of what is remembered of preferred members is forgotten at the end of this.
    fn begin_period(&mut self, out: &mut Effects<Self>) {
        let period = Patience::period(self.node().timing.election_min);
        out.set_timer(Self::PATIENCE_TIMER, period..=period);
    }
}
