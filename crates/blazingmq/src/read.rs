//! Linearizable reads: a round of answers by a majority, under the present term, after the read came.
//!
//! `[OURS]`: BlazingMQ has no linearizable reads. Whoever answers a heartbeat of a term has supported nobody in a later
//! one, so when a majority answered, no later leader had been elected when the read came. Rounds are the leader's own
//! numbers and never a caller's: one used twice would let answers to the first confirm the second on a deposed leader.

use crate::blazingmq::{BlazingMq, Kind, Leader, Part};
use crate::laboratory::Defect;
use hustings_core::{Effect, Effects, Refusal, Ticket};
use std::collections::VecDeque;

/// Reads that wait for a majority to confirm the leader.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Reads {
    /// The newest round.
    round: u64,
    /// (round, who asks, the commit when they asked), oldest first.
    pending: VecDeque<(u64, Ticket, u64)>,
    /// Those that came before the leader's first own message was committed: it does not know yet what is.
    early: Vec<Ticket>,
}

impl Reads {
    /// The newest round, which a heartbeat asks to confirm.
    pub fn highest(&self) -> u64 {
        self.round
    }

    /// All who wait.
    pub fn into_tickets(self) -> impl Iterator<Item = Ticket> {
        self.early.into_iter().chain(self.pending.into_iter().map(|(_, ticket, _)| ticket))
    }
}

impl BlazingMq {
    pub(crate) fn on_read(&mut self, ticket: Ticket, out: &mut Effects<BlazingMq>) {
        let commit = self.commit;
        let Part::Leader(leader) = &mut self.part else {
            return out.refuse(ticket, Refusal::NotLeader(self.active_leader()));
        };
        if commit < leader.first_own {
            leader.reads.early.push(ticket);
            return;
        }
        leader.reads.round += 1;
        leader.reads.pending.push_back((leader.reads.round, ticket, commit));
        if !self.confirm_reads(out) {
            self.send_heartbeats(out);
        }
    }

    /// Answers the reads whose round a majority has confirmed; says whether none is left. The leader confirms itself:
    /// its own term is durable.
    pub(crate) fn confirm_reads(&mut self, out: &mut Effects<BlazingMq>) -> bool {
        let me = self.me;
        let Part::Leader(leader) = &self.part else { return true };
        let Leader { peers, reads, .. } = &**leader;
        if reads.pending.is_empty() {
            return true;
        }
        let own = reads.round;
        let round_of = |id| if id == me { own } else { peers.get(&id).map_or(0, |peer| peer.round) };
        let is_trusting = self.has(Defect::ReadsWithoutQuorum);
        let confirmed = if is_trusting { own } else { self.reached(Kind::Vote, round_of) };
        let Part::Leader(leader) = &mut self.part else { return true };
        let reads = &mut leader.reads;
        let ready = reads.pending.iter().take_while(|(round, _, _)| *round <= confirmed).count();
        for (_, ticket, index) in reads.pending.drain(..ready) {
            out.push(Effect::ReadAt { ticket, index });
        }
        reads.pending.is_empty()
    }

    pub(crate) fn release_early_reads(&mut self, out: &mut Effects<BlazingMq>) {
        let commit = self.commit;
        let Part::Leader(leader) = &mut self.part else { return };
        if commit < leader.first_own {
            return;
        }
        for ticket in std::mem::take(&mut leader.reads.early) {
            self.on_read(ticket, out);
        }
    }
}
