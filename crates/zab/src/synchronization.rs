//! Synchronisation: every follower is brought to the leader's history, and a quorum of them makes it everybody's.
//!
//! Source: the ZAB paper, phase 2; §5.9 of `docs/protocols/rules`, whose rule numbers these are.
//!
//! ```text
//!    leader ── DIFF | TRUNC(zxid) | SNAP(reference) ──► follower      the modes of rules 1 to 5
//!           ── PROPOSAL ... ──────────────────────────►   Put ...     what it lacks, in windows
//!           ── NEWLEADER(epoch) ──────────────────────►   Established(epoch), then, once all that is durable:
//!           ◄──────────────────────── ACK(NEWLEADER) ──
//!           ── UPTODATE ──────────────────────────────►   it serves
//! ```
//!
//! The order of records is the lesson of many lost writes (§5.12): first the history, then the epoch that vouches for it, then
//! the acknowledgement. It is the order of emission here, so no crash can come between in another one.
//!
//! The place to cut back to is exact and needs no guessing: an entry of epoch e exists only where a quorum has taken the history
//! with which e began, so every later leader has it, and two logs agree up to the leader's last entry that is not above the
//! follower's end.

use crate::laboratory::Defect;
use crate::learner::{Learner, Stage};
use crate::message::Message;
use crate::zab::{Phase, RoleState, Zab};
use hustings_core::leading::{HandingOver, Leads, Office};
use hustings_core::options::Options as _;
use hustings_core::quorum::Verdict;
use hustings_core::{Effects, Entry, Lsn, NodeId, Reason, RestsOn};

impl Zab {
    // --- The leader. ---------------------------------------------------------------------------------------------

    /// Rules 1 to 5: sends this follower what it needs: DIFF, TRUNC or SNAP, then entries.
    pub(crate) fn synchronize(&mut self, to: NodeId, out: &mut Effects<Zab>) {
        let (epoch, end) = (self.node.promise.term, self.node.log.last().index);
        let RoleState::Leading(leading) = &mut self.role_state else { return };
        let Some(learner) = leading.office.peers.get_mut(&to) else { return };
        let (connection, last) = (learner.connection, learner.last);
        learner.stage = Stage::Syncing { end };
        learner.known.stored = 0;
        if self.node.log.has(last) {
            learner.next = last.index + 1;
            out.send_resting_on(RestsOn::Nothing, to, Message::Diff { connection, epoch });
        } else if let (index, Some(term)) = self.node.log.last_at_most(last.index, last.term) {
            learner.next = index + 1;
            let truncate = Message::Truncate { connection, epoch, to: Lsn { term, index } };
            out.send_resting_on(RestsOn::Nothing, to, truncate);
        } else {
            // The common place is compacted away.
            return self.send_snapshot_to(to, out);
        }
        self.serve(to, out);
    }

    /// Sends a follower what it lacks, as far as its window allows; behind the history of the epoch comes NEWLEADER (rule 7).
    pub(crate) fn serve(&mut self, to: NodeId, out: &mut Effects<Zab>) {
        let (epoch, commit, limits, me) = (self.node.promise.term, self.node.commit, self.node.limits, self.node.me);
        loop {
            let RoleState::Leading(leading) = &mut self.role_state else { return };
            let Some(learner) = leading.office.peers.get_mut(&to) else { return };
            if to == me || !learner.is_forwarded() || learner.fetching.is_some() {
                return;
            }
            let connection = learner.connection;
            if matches!(learner.stage, Stage::Syncing { end } if learner.next > end) {
                learner.stage = Stage::Told { end: learner.next - 1 };
                out.send_resting_on(RestsOn::Nothing, to, Message::NewLeader { connection, epoch });
            }
            let is_served = learner.next > self.node.log.last().index;
            if is_served || learner.is_full(&limits) {
                return;
            }
            let before = learner.next - 1;
            let Some(term) = self.node.log.term_at(before) else { return self.send_snapshot_to(to, out) };
            let previous = Lsn { term, index: before };
            let entries = self.node.log.slice(learner.next, usize::MAX, limits.message_bytes_max);
            let end = before + entries.len() as u64;
            learner.on_sent(end, entries.iter().map(Entry::cost).sum());
            learner.told_commit = learner.told_commit.max(commit.min(end));
            // Proposals rest on nothing: the followers' disks need not wait for this one's. The record that they do rest on, the epoch,
            // is durable: nobody synchronises before its own promise is.
            let proposal = Message::Proposal { connection, epoch, previous, entries, commit };
            out.send_resting_on(RestsOn::Nothing, to, proposal);
        }
    }

    /// Rule 10: a learner holds the leader's history; with a quorum of them the leader serves.
    pub(crate) fn on_ack_new_leader(&mut self, from: NodeId, index: u64, out: &mut Effects<Zab>) {
        let last = self.node.log.last().index;
        let RoleState::Leading(leading) = &mut self.role_state else { return };
        let Some(learner) = leading.office.peers.get_mut(&from) else { return };
        let Stage::Told { end } = learner.stage else { return };
        if index > last {
            return;
        }
        if index < end {
            // It took NEWLEADER for the end of less than it stands behind: this connection is no session any more.
            let connection = learner.connection;
            leading.office.peers.remove(&from);
            return self.say_goodbye(from, connection, out);
        }
        learner.stage = Stage::Synced;
        learner.on_stored(index);
        match leading.phase {
            Phase::Discovery => unreachable!("nobody is told before a quorum has promised"),
            Phase::Synchronization => {
                self.count_synced(out);
                self.give_way_unsettled(from, out);
            }
            Phase::Broadcast => {
                self.tell_up_to_date(from, out);
                self.on_progress(from, out);
            }
        }
    }

    fn count_synced(&mut self, out: &mut Effects<Zab>) {
        let RoleState::Leading(leading) = &self.role_state else { return };
        let learners = &leading.office.peers;
        let is_synced = |id: NodeId| learners.get(&id).is_some_and(|learner| learner.is_synced());
        if self.node.membership.verdict(|id| Some(is_synced(id))) == Verdict::Won && is_synced(self.node.me) {
            let by = self.node.membership.all_voters().filter(|id| is_synced(*id)).collect();
            self.become_leader(by, out);
        }
    }

    /// `[OURS]` A caretaker that synchronises gives way to the first follower that has its history and may lead, before a quorum has it: for
    /// that it may need one that lacks more than a witness can give, and the successor can.
    pub(crate) fn give_way_unsettled(&mut self, to: NodeId, out: &mut Effects<Zab>) {
        let Some(office) = self.unsettled_care() else { return };
        let may = |learner: &Learner| learner.is_synced() && self.node.may_succeed(to, &learner.known);
        if office.peers.get(&to).is_some_and(may) {
            self.tell_successor(to, Reason::Preferred(to), out);
        }
    }

    /// `[OURS]` The same at a check, where nobody that may lead has that history: one that must never lead either can give the state.
    pub(crate) fn give_care_away_unsettled(&mut self, out: &mut Effects<Zab>) {
        let Some(office) = self.unsettled_care() else { return };
        let synced = office.peers.iter().filter(|(_, learner)| learner.is_synced() && learner.known.ready_checks > 0);
        let able: Vec<NodeId> = synced.map(|(id, _)| *id).filter(|id| self.node.may_take_care(*id)).collect();
        if let Some(to) = self.node.patience.next_in_care(&able) {
            self.tell_successor(to, Reason::Preferred(to), out);
        }
    }

    /// The office of a caretaker that synchronises, and whose history no quorum has yet.
    fn unsettled_care(&self) -> Option<&Office<Learner>> {
        match &self.role_state {
            RoleState::Leading(leading) if leading.phase == Phase::Synchronization && self.is_caretaker() => {
                Some(&leading.office)
            }
            _ => None,
        }
    }

    pub(crate) fn tell_up_to_date(&mut self, to: NodeId, out: &mut Effects<Zab>) {
        let (epoch, commit, me) = (self.node.promise.term, self.node.commit, self.node.me);
        let RoleState::Leading(leading) = &mut self.role_state else { return };
        let Some(learner) = leading.office.peers.get_mut(&to).filter(|_| to != me) else { return };
        let commit = commit.min(learner.next - 1);
        learner.told_commit = learner.told_commit.max(commit);
        let connection = learner.connection;
        out.send_resting_on(RestsOn::Nothing, to, Message::UpToDate { connection, epoch, commit });
    }

    // --- The follower. -------------------------------------------------------------------------------------------

    pub(crate) fn is_synchronizing(&self) -> bool {
        matches!(&self.role_state, RoleState::Following(following) if following.phase == Phase::Synchronization)
    }

    /// Does nothing: this log is a beginning of the leader's.
    pub(crate) fn on_diff(&mut self, _: &mut Effects<Zab>) {}

    /// Rule 8: cuts off entries that the leader never had.
    pub(crate) fn on_truncate(&mut self, to: Lsn, out: &mut Effects<Zab>) {
        if !self.is_synchronizing() || self.has_defect(Defect::KeepsTail) {
            return;
        }
        if !self.node.log.has(to) || to.index < self.node.commit {
            assert!(!self.options.is_laboratory(), "what a planted defect led to is a finding, and not looked over");
            // A leader that cuts off what is committed has been left behind by a later one, whose commit came here by
            // another way. And no leader that knows this log cuts it back to what it lacks.
            let because = self.contradicted_by_truncation(to).unwrap_or(Reason::Fresher(self.node.me));
            return self.become_looking(because, out);
        }
        if to.index < self.node.log.last().index {
            self.node.truncate_from(to.index + 1, out);
        }
    }

    /// `[OURS]` A leader whose history was established later, and lacks what is committed here, was left behind or is of another history.
    fn contradicted_by_truncation(&mut self, to: Lsn) -> Option<Reason> {
        let RoleState::Following(following) = &self.role_state else { return None };
        let (by, ours) = (following.leader, self.node.committed());
        let is_later = following.vote.epoch > ours.term && to.index < ours.index && self.node.log.has(to);
        is_later.then(|| self.node.note_contradiction(by, ours, to))
    }

    /// Rule 9: the history is here; then the epoch, then the acknowledgement that rests on both.
    pub(crate) fn on_new_leader(&mut self, from: NodeId, out: &mut Effects<Zab>) {
        let (epoch, connection, index) = (self.node.promise.term, self.connection, self.node.log.last().index);
        if !self.is_synchronizing() || self.fetching.is_some() {
            return;
        }
        self.establish(epoch, out);
        if let RoleState::Following(following) = &mut self.role_state {
            following.vote.epoch = epoch;
        }
        let ack = Message::AckNewLeader { connection, epoch, index };
        let is_hasty = self.has_defect(Defect::UnsyncedNewLeaderAck);
        out.send_resting_on(if is_hasty { RestsOn::Nothing } else { RestsOn::LastRecord }, from, ack);
    }

    /// Rule 11: the leader serves, and so does this follower.
    pub(crate) fn on_up_to_date(&mut self, from: NodeId, commit: u64, out: &mut Effects<Zab>) {
        if !matches!(self.role_state, RoleState::Following(_)) {
            return;
        }
        self.become_serving(from, out);
        self.on_commit(commit, out);
    }
}
