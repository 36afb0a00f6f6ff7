//! Linearizable reads: a round of PINGs answered by a quorum that has promised no later epoch.
//!
//! `[OURS]`: ZooKeeper reads locally and offers `sync`. Whoever answers a PING of epoch e has accepted no later epoch, so when a
//! quorum answered, no later leader had its promises when the read came. Rounds are the leader's own numbers and never a
//! caller's: one used twice would let answers to the first confirm the second on a deposed leader.

use crate::laboratory::Defect;
use crate::zab::{Part, Zab};
use hustings_core::{Effect, Effects, Refusal, Ticket};
use std::collections::VecDeque;

/// Reads that wait for a quorum to confirm the leader.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Reads {
    /// The newest round.
    round: u64,
    /// (round, who asks, the commit when they asked), oldest first.
    pending: VecDeque<(u64, Ticket, u64)>,
}

impl Reads {
    /// The newest round, which a PING asks to confirm.
    pub fn highest(&self) -> u64 {
        self.round
    }

    /// All who wait.
    pub fn into_tickets(self) -> impl Iterator<Item = Ticket> {
        self.pending.into_iter().map(|(_, ticket, _)| ticket)
    }
}

impl Zab {
    pub(crate) fn on_read(&mut self, ticket: Ticket, out: &mut Effects<Zab>) {
        let commit = self.commit;
        if !self.is_serving() {
            return out.refuse(ticket, Refusal::NotLeader(self.leader));
        }
        if self.has_defect(Defect::ReadsWithoutQuorum) {
            return out.push(Effect::ReadAt { ticket, index: commit });
        }
        let Part::Leading(leading) = &mut self.part else { unreachable!("only a leader serves") };
        leading.reads.round += 1;
        leading.reads.pending.push_back((leading.reads.round, ticket, commit));
        if !self.confirm_reads(out) {
            self.send_pings(out);
        }
    }

    /// Answers the reads whose round a quorum has confirmed; says whether none is left. The leader confirms itself: its own
    /// promise is durable.
    pub(crate) fn confirm_reads(&mut self, out: &mut Effects<Zab>) -> bool {
        let me = self.me;
        let Part::Leading(leading) = &mut self.part else { return true };
        if leading.reads.pending.is_empty() {
            return true;
        }
        let own = leading.reads.round;
        let learners = &leading.learners;
        let round_of = |id| if id == me { own } else { learners.get(&id).map_or(0, |learner| learner.round) };
        let confirmed = self.membership.reached(round_of);
        let reads = &mut leading.reads;
        let ready = reads.pending.iter().take_while(|(round, _, _)| *round <= confirmed).count();
        for (_, ticket, index) in reads.pending.drain(..ready) {
            out.push(Effect::ReadAt { ticket, index });
        }
        reads.pending.is_empty()
    }
}
