//! Linearizable reads: a round of answers by a majority, under the present ballot, after the read came.
//!
//! `[OURS]`: the note has no reads. Whoever answers a heartbeat of ballot b has voted in no later one, so when a majority
//! answered, no later leader had been elected when the read came. Rounds are the leader's own numbers and never a caller's:
//! one used twice would let answers to the first confirm the second on a deposed leader.

use crate::gmt2000::{Gmt2000, Leader, Part};
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

impl Gmt2000 {
    pub(crate) fn on_read(&mut self, ticket: Ticket, out: &mut Effects<Gmt2000>) {
        let commit = self.commit;
        let is_hasty = self.has_defect(Defect::ReadsBeforeOwnCommit);
        let is_lonely = self.has_defect(Defect::ReadsWithoutQuorum);
        let Part::Leader(leader) = &mut self.part else {
            return out.refuse(ticket, Refusal::NotLeader(self.leader));
        };
        if commit < leader.first_own && !is_hasty {
            leader.reads.early.push(ticket);
            return;
        }
        if is_lonely {
            return out.push(Effect::ReadAt { ticket, index: commit });
        }
        leader.reads.round += 1;
        leader.reads.pending.push_back((leader.reads.round, ticket, commit));
        if !self.confirm_reads(out) {
            self.send_heartbeats(out);
        }
    }

    /// Answers the reads whose round a majority has confirmed; says whether none is left. The leader confirms itself: its own
    /// vote is durable.
    pub(crate) fn confirm_reads(&mut self, out: &mut Effects<Gmt2000>) -> bool {
        let me = self.me;
        let Part::Leader(leader) = &mut self.part else { return true };
        let Leader { peers, reads, .. } = &mut **leader;
        if reads.pending.is_empty() {
            return true;
        }
        let own = reads.round;
        let round_of = |id| if id == me { own } else { peers.get(&id).map_or(0, |peer| peer.round) };
        let confirmed = self.membership.reached(round_of);
        let ready = reads.pending.iter().take_while(|(round, _, _)| *round <= confirmed).count();
        for (_, ticket, index) in reads.pending.drain(..ready) {
            out.push(Effect::ReadAt { ticket, index });
        }
        reads.pending.is_empty()
    }

    pub(crate) fn release_early_reads(&mut self, out: &mut Effects<Gmt2000>) {
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
