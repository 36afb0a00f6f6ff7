//! Raft's side of the leader code that all protocols share ([`hustings_core::leading`]), and its own part of it: joint
//! changes of membership, and the snapshot that a leader offers.
//!
//! Sources: Raft §6, §7; dissertation §3.10, ch. 4; rules RM-1 to RM-9, RS-1 to RS-3, RX-1 to RX-3, RA-7.

use crate::laboratory::Defect;
use crate::message::Message;
use crate::raft::{Raft, RoleState, Timer};
use hustings_core::leading::{
    Acknowledging, Following, Halves, Haste, InOrder, Leads, Node, Office, Progress, Reading, Replicating,
    SendsToMembers, Welcoming,
};
use hustings_core::{
    Effect, Effects, Entry, Log, Lsn, Membership, MembershipChange, MembershipError, NodeId, Reason, RestsOn, Ticket,
};

impl Leads for Raft {
    type Log = Log;
    type Peer = Progress;

    const TRANSFER_TIMER: Timer = Timer::Transfer;
    const PATIENCE_TIMER: Timer = Timer::Patience;

    fn node(&self) -> &Node {
        &self.node
    }

    fn node_mut(&mut self) -> &mut Node {
        &mut self.node
    }

    fn office(&self) -> Option<&Office<Progress>> {
        match &self.role_state {
            RoleState::Leader(office) => Some(office),
            _ => None,
        }
    }

    fn split(&mut self) -> Option<Halves<'_, Raft>> {
        match &mut self.role_state {
            RoleState::Leader(office) => Some((&mut self.node, office)),
            _ => None,
        }
    }

    fn membership_after(&self, change: &MembershipChange) -> Result<Membership, MembershipError> {
        self.node.membership.after(change)
    }

    fn is_hasty(&self, haste: Haste) -> bool {
        self.has(match haste {
            Haste::ReadsEarly => Defect::ReadsBeforeOwnCommit,
            Haste::ChangesEarly => Defect::ChangesBeforeOwnCommit,
            Haste::ChangesTogether => Defect::ChangesTogether,
        })
    }

    fn waits_with_reads(&self) -> bool {
        let is_planted = self.has(Defect::ReadsBeforeOwnCommit) || self.has(Defect::ReadsWithoutQuorum);
        !self.is_settled() && !is_planted
    }

    fn ask_for_round(&mut self, ticket: Ticket, out: &mut Effects<Raft>) {
        let (commit, is_stale) = (self.node.commit, self.has(Defect::ReadsByStaleAnswers));
        if self.has(Defect::ReadsWithoutQuorum) {
            return out.push(Effect::ReadAt { ticket, index: commit });
        }
        let RoleState::Leader(office) = &mut self.role_state else { return };
        match office.reads.highest() {
            round if round > 0 && is_stale => office.reads.ask_in(round, ticket, commit),
            _ => office.reads.ask(ticket, commit),
        }
        if !self.confirm_reads(out) {
            self.send_heartbeats(out);
        }
    }

    fn send_heartbeats(&mut self, out: &mut Effects<Raft>) {
        for peer in self.others() {
            self.send_heartbeat_to(peer, out);
        }
    }

    fn catch_up(&mut self, to: NodeId, out: &mut Effects<Raft>) {
        self.send_entries_to(to, out);
    }

    fn tell_successor(&mut self, to: NodeId, _: Reason, out: &mut Effects<Raft>) {
        out.send_resting_on(RestsOn::Nothing, to, Message::TimeoutNow { term: self.node.promise.term });
    }

    fn hand_over_and_follow(&mut self, because: Reason, out: &mut Effects<Raft>) {
        if let Some(successor) = self.best_successor() {
            self.tell_successor(successor, because.clone(), out);
        }
        self.become_follower(self.node.promise.term, None, because, out);
    }

    fn append_change(&mut self, change: MembershipChange, out: &mut Effects<Raft>) {
        self.write_change(&change, out);
    }

    fn adjust_peers(&mut self, out: &mut Effects<Raft>) {
        self.welcome_and_dismiss(out);
    }
}

impl SendsToMembers for Raft {
    fn newcomer(last: u64) -> Progress {
        Progress::new(last)
    }

    /// Its last message tells it what is committed.
    fn dismiss(&mut self, peer: NodeId, matched: u64, out: &mut Effects<Raft>) {
        let (term, index) = (self.node.promise.term, self.node.commit.min(matched));
        out.send_resting_on(RestsOn::Nothing, peer, Message::Commit { term, index });
    }
}

impl InOrder for Raft {
    fn spread(&mut self, out: &mut Effects<Raft>) {
        self.count_own_log(out);
        for peer in self.others() {
            self.send_entries_to(peer, out);
        }
    }

    fn index_reached(&self) -> u64 {
        self.office().map_or(0, |office| self.deciding().reached(|id| office.stored(id)))
    }

    fn may_commit(&self, index: u64) -> bool {
        self.node.log.term_at(index) == Some(self.node.promise.term) || self.has(Defect::CommitsOldTerms)
    }
}

impl Acknowledging for Raft {
    fn stored_message(&self, index: u64) -> Message {
        Message::Matched { term: self.node.promise.term, index }
    }

    fn snapshot_failed_message(&self, lsn: Lsn) -> Message {
        Message::SnapshotFailed { term: self.node.promise.term, lsn }
    }

    fn needs_snapshot(&self, lsn: Lsn) -> bool {
        let is_committed = lsn.index <= self.node.commit && !self.has(Defect::InstallsOldSnapshots);
        !is_committed && !self.node.log.has(lsn)
    }

    fn take_entries(&mut self, from: NodeId, mut entries: Vec<Entry>, out: &mut Effects<Raft>) {
        if self.has(Defect::TruncatesAlways)
            && let Some(first) = entries.first().map(|entry| entry.lsn.index)
            && (self.node.commit + 1..=self.node.log.last().index).contains(&first)
        {
            self.node.truncate_from(first, out);
        }
        if self.has(Defect::KeepsConflicts) {
            entries.retain(|entry| self.node.log.term_at(entry.lsn.index).is_none());
        }
        self.take_missing(from, entries, out);
    }
}

impl Raft {
    // --- The leader offers a snapshot. ---------------------------------------------------------------------------

    /// Offers the snapshot to a peer whose entries are compacted away, if it was heard lately (RA-7).
    pub(crate) fn send_snapshot_to(&mut self, peer: NodeId, out: &mut Effects<Raft>) {
        let Some(reference) = self.node.snapshot.clone() else {
            unreachable!("entries are compacted only below a snapshot");
        };
        let Some(progress) = self.progress_mut(peer).filter(|progress| progress.known.is_active) else { return };
        progress.become_fetch(reference.lsn.index);
        out.send_resting_on(RestsOn::Nothing, peer, Message::Snapshot { term: self.node.promise.term, reference });
    }

    // --- Joint changes. ------------------------------------------------------------------------------------------

    /// Proposes the end of a joint change that ends by itself (RM-5), at the leader of the day, once the change is applied.
    pub(crate) fn leave_joint_if_due(&mut self, out: &mut Effects<Raft>) {
        let Some(pending) = self.office().map(|office| office.pending_change) else { return };
        if self.node.membership.auto_leave && pending <= self.node.commit && self.is_settled() {
            self.append_change(MembershipChange::leave(), out);
        }
    }
}
