//! Linearizable reads: a round of answers by a quorum, under the present term, after the read came: [`Reads`], [`Reading`].
//!
//! A node that answers a heartbeat of a term has promised nobody a later one, so when a quorum answered, no later leader had
//! been elected when the read came. Rounds are the leader's own numbers and never a caller's: one used twice would let answers
//! to the first confirm the second on a deposed leader (RH-3). Source: dissertation §6.4; rules RR-1 to RR-5.

use super::Leads;
use crate::{Effect, Effects, NodeId, Protocol, Refusal, Ticket};
use std::collections::VecDeque;

/// Reads that wait for a quorum to confirm the leader.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Reads {
    /// Number of the newest round.
    round: u64,
    /// (round, ticket, the commit when it was asked for), oldest first.
    pending: VecDeque<(u64, Ticket, u64)>,
    /// Those that came before the leader's first own entry was committed: it does not know yet what is (RH-10).
    early: Vec<Ticket>,
}

impl Reads {
    /// The newest round, which a heartbeat asks to confirm.
    pub fn highest(&self) -> u64 {
        self.round
    }

    /// Begins a round: answers to heartbeats of earlier ones do not confirm it.
    pub fn begin_round(&mut self) {
        self.round += 1;
    }

    /// A read that came when `commit` was committed; it waits for a round of its own.
    pub fn ask(&mut self, ticket: Ticket, commit: u64) {
        self.begin_round();
        self.ask_in(self.round, ticket, commit);
    }

    /// A read that waits for this round, not below that of any read before it.
    pub fn ask_in(&mut self, round: u64, ticket: Ticket, commit: u64) {
        self.pending.push_back((round, ticket, commit));
    }

    /// Whether no read waits for a round.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Answers the reads whose round is confirmed, in order.
    pub fn confirm<P: Protocol>(&mut self, confirmed: u64, out: &mut Effects<P>) {
        let ready = self.pending.iter().take_while(|(round, _, _)| *round <= confirmed).count();
        for (_, ticket, index) in self.pending.drain(..ready) {
            out.push(Effect::ReadAt { ticket, index });
        }
    }

    /// The tickets of all reads that wait.
    pub fn into_tickets(self) -> impl Iterator<Item = Ticket> {
        self.early.into_iter().chain(self.pending.into_iter().map(|(_, ticket, _)| ticket))
    }

    /// Refuses all reads that wait, since this node leads no more: their clients ask another one.
    pub fn refuse_all<P: Protocol>(self, out: &mut Effects<P>) {
        self.into_tickets().for_each(|ticket| out.refuse(ticket, Refusal::NotLeader(None)));
    }
}

/// A leader's answers to reads, the same under every protocol.
pub trait Reading: Leads {
    /// A read came in under this ticket.
    fn on_read(&mut self, ticket: Ticket, out: &mut Effects<Self>) {
        if !self.is_reigning() {
            return out.refuse(ticket, Refusal::NotLeader(self.status().leader));
        }
        if self.waits_with_reads()
            && let Some((_, office)) = self.split()
        {
            return office.reads.early.push(ticket);
        }
        self.ask_for_round(ticket, out);
    }

    /// Answers the reads whose round a quorum has confirmed; says whether none is left. The leader confirms itself:
    /// what it promised is durable.
    fn confirm_reads(&mut self, out: &mut Effects<Self>) -> bool {
        let is_waiting = self.office().is_some_and(|office| !office.reads.is_empty());
        if !is_waiting {
            return true;
        }
        let confirmed = self.round_reached();
        let Some((_, office)) = self.split() else { return true };
        office.reads.confirm(confirmed, out);
        office.reads.is_empty()
    }

    /// The first own entry is committed: reads that came before are asked about now.
    fn release_early_reads(&mut self, out: &mut Effects<Self>) {
        if self.waits_with_reads() {
            return;
        }
        let Some((_, office)) = self.split() else { return };
        for ticket in std::mem::take(&mut office.reads.early) {
            self.on_read(ticket, out);
        }
    }

    /// The round that this node confirms: the leader itself the newest, another what it answered last.
    fn round_of(&self, id: NodeId) -> u64 {
        let Some(office) = self.office() else { return 0 };
        if id == self.node().me { self.own_round() } else { office.known(id).map_or(0, |known| known.round) }
    }
}

impl<P: Leads> Reading for P {}
