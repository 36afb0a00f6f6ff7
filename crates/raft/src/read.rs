//! Linearizable reads: ReadIndex by an internal position counter.
//!
//! Sources: dissertation §6.4; rules RR-1, RR-2, RR-5. Positions are the leader's own and never come from a caller: a
//! caller's context, used twice, would let answers to the first confirm the second on a deposed leader (RH-3).

use crate::laboratory::Defect;
use crate::progress::Progress;
use crate::raft::{Leader, Part, Raft};
use hustings_core::{Effect, Effects, NodeId, Refusal, Ticket};
use std::collections::{BTreeMap, VecDeque};

/// Reads that wait for a quorum to confirm the leader.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Reads {
    /// The position of the newest.
    position: u64,
    /// (position, who asks, the commit when they asked), oldest first.
    pending: VecDeque<(u64, Ticket, u64)>,
    /// Those that came before the leader's first own entry was committed (RH-10).
    early: Vec<Ticket>,
}

impl Reads {
    /// The highest position not confirmed yet; the last one when all are.
    pub fn highest(&self) -> u64 {
        self.position
    }

    /// All who wait.
    pub fn into_tickets(self) -> impl Iterator<Item = Ticket> {
        self.early.into_iter().chain(self.pending.into_iter().map(|(_, ticket, _)| ticket))
    }
}

impl Raft {
    pub(crate) fn on_read(&mut self, ticket: Ticket, out: &mut Effects<Raft>) {
        let commit = self.commit;
        let defect = self.options.defect;
        let Part::Leader(leader) = &mut self.part else {
            return out.refuse(ticket, Refusal::NotLeader(self.leader));
        };
        if defect == Some(Defect::ReadsWithoutQuorum) {
            return out.push(Effect::ReadAt { ticket, index: commit });
        }
        if commit < leader.first_own && defect != Some(Defect::ReadsBeforeOwnCommit) {
            // A new leader does not know yet what is committed (RH-10, and RH-8 for a single voter).
            leader.reads.early.push(ticket);
            return;
        }
        if leader.reads.position == 0 || defect != Some(Defect::ReadsByStaleAnswers) {
            leader.reads.position += 1;
        }
        leader.reads.pending.push_back((leader.reads.position, ticket, commit));
        if !self.confirm_reads(out) {
            self.send_heartbeats(out);
        }
    }

    /// Releases, in order, the reads that a quorum has confirmed; says whether none is left.
    pub(crate) fn confirm_reads(&mut self, out: &mut Effects<Raft>) -> bool {
        let me = self.me;
        let Part::Leader(leader) = &mut self.part else { return true };
        let Leader { reads, progress, .. } = &mut **leader;
        if reads.pending.is_empty() {
            return true;
        }
        let own = reads.position;
        let confirmed = self.membership.reached(|id| position_of(progress, id, me, own));
        while let Some((position, ticket, index)) = reads.pending.front().cloned()
            && position <= confirmed
        {
            reads.pending.pop_front();
            out.push(Effect::ReadAt { ticket, index });
        }
        reads.pending.is_empty()
    }

    pub(crate) fn release_early_reads(&mut self, out: &mut Effects<Raft>) {
        let commit = self.commit;
        let Part::Leader(leader) = &mut self.part else { return };
        if commit < leader.first_own || leader.reads.early.is_empty() {
            return;
        }
        for ticket in std::mem::take(&mut leader.reads.early) {
            self.on_read(ticket, out);
        }
    }
}

/// The leader confirms itself; a leader that is no voter does not count at all, since nobody asks for its vote.
fn position_of(progress: &BTreeMap<NodeId, Progress>, id: NodeId, me: NodeId, own: u64) -> u64 {
    if id == me { own } else { progress.get(&id).map_or(0, |peer| peer.position) }
}
