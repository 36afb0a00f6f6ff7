//! Linearizable reads: a heartbeat that was sent after the read came, answered by an accept quorum.
//!
//! `[OURS]`: the sources read through the log. Whoever answers a heartbeat of a ballot has promised nobody higher; an
//! accept quorum of them meets every promise quorum, so no later leader had been elected when the read came. A leader
//! that has not recovered does not know what is committed: reads wait for that.

use crate::laboratory::Defect;
use crate::paxos::{Paxos, Stage};
use hustings_core::{Effect, Effects, Refusal, Ticket};
use std::collections::VecDeque;

/// Reads that wait for a quorum to confirm the leader.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Reads {
    /// (heartbeat, who asks, the commit when they asked), oldest first.
    pending: VecDeque<(u64, Ticket, u64)>,
    /// Those that came before this leader had recovered.
    early: Vec<Ticket>,
}

impl Reads {
    /// All who wait.
    pub fn into_tickets(self) -> impl Iterator<Item = Ticket> {
        self.early.into_iter().chain(self.pending.into_iter().map(|(_, ticket, _)| ticket))
    }
}

impl Paxos {
    pub(crate) fn on_read(&mut self, ticket: Ticket, out: &mut Effects<Paxos>) {
        let commit = self.commit;
        if self.leading().is_none() {
            return out.refuse(ticket, Refusal::NotLeader(self.leader));
        }
        let Some(reign) = self.reign_mut() else { return };
        if reign.stage != Stage::Leading {
            reign.reads.early.push(ticket);
            return;
        }
        // The next heartbeat, which leaves now.
        reign.reads.pending.push_back((reign.counter + 1, ticket, commit));
        self.send_heartbeats(out);
        self.confirm_reads(out);
    }

    /// Answers the reads whose heartbeat a quorum has answered. The leader answers itself: its own promise is durable.
    pub(crate) fn confirm_reads(&mut self, out: &mut Effects<Paxos>) {
        let Some(reign) = self.reign().filter(|reign| !reign.reads.pending.is_empty()) else { return };
        let own = reign.counter;
        let confirmed = if self.has(Defect::ReadsWithoutQuorum) { own } else { self.round_reached(own) };
        let Some(reign) = self.reign_mut() else { return };
        let ready = reign.reads.pending.iter().take_while(|(round, _, _)| *round <= confirmed).count();
        for (_, ticket, index) in reign.reads.pending.drain(..ready) {
            out.push(Effect::ReadAt { ticket, index });
        }
    }

    pub(crate) fn release_early_reads(&mut self, out: &mut Effects<Paxos>) {
        let Some(reign) = self.reign_mut().filter(|reign| reign.stage == Stage::Leading) else { return };
        for ticket in std::mem::take(&mut reign.reads.early) {
            self.on_read(ticket, out);
        }
    }
}
