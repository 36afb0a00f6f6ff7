//! Broadcast: proposals in zxid order, acknowledged once they are durable, committed by a quorum.
//!
//! Source: the ZAB paper, phase 3; §5.10 of the protocol notes, whose rule numbers these are.
//!
//! ```text
//!    leader   ──Put──┬─ PROPOSAL ──► follower ──Put── fsync ── ACK ──┐
//!                    └─ fsync ── ACK (to itself) ────────────────────┴──► quorum: commit, apply, COMMIT
//! ```
//!
//! Links are sessions: what is sent arrives in order or the connection ends, and with it the learner. So nothing is sent again;
//! a follower that missed something comes back through discovery. `[OURS]` One PROPOSAL carries as many entries as a message
//! may hold and the commit index, and the window bounds how much is on its way.

use crate::laboratory::Defect;
use crate::message::Message;
use crate::zab::{Part, Phase, Timer, Zab};
use hustings_core::options::Options as _;
use hustings_core::quorum::Verdict;
use hustings_core::{
    Effects, Entry, EntryKind, Lsn, NodeId, Priority, Proposal, Reason, Record, Refusal, RestsOn, Ticket,
};

impl Zab {
    // --- The leader writes. --------------------------------------------------------------------------------------

    /// Rule 1.
    pub(crate) fn on_propose(&mut self, proposals: Vec<Proposal>, out: &mut Effects<Zab>) {
        let before = self.log.last().index;
        for proposal in proposals {
            if let Some(refusal) = self.refusal_of(&proposal) {
                out.refuse(Ticket::Proposal(proposal.origin), refusal);
                continue;
            }
            let lsn = Lsn { term: self.promise.term, index: self.log.last().index + 1 };
            self.append_own(proposal.into_entry(lsn), out);
        }
        if self.log.last().index > before {
            self.forward(out);
        }
    }

    /// Why a proposal cannot be written now: definite, nothing was done.
    fn refusal_of(&self, proposal: &Proposal) -> Option<Refusal> {
        let Part::Leading(leading) = &self.part else { return Some(Refusal::NotLeader(self.leader)) };
        if leading.phase != Phase::Broadcast {
            return Some(Refusal::NotLeader(None));
        }
        // A caretaker leads only to hand over.
        if leading.transfer.is_some() || self.has_spent_counter() || self.priority == Priority::Never {
            return Some(Refusal::Transferring);
        }
        let size = proposal.payload.len();
        let would_be = leading.uncommitted_bytes.saturating_add(size);
        if size > 0 && leading.uncommitted_bytes > 0 && would_be > self.limits.uncommitted_bytes_max {
            return Some(Refusal::Overloaded);
        }
        match proposal.kind {
            EntryKind::Membership => self.membership_refusal(leading, &proposal.payload),
            _ => None,
        }
    }

    /// The counter of a zxid: how many entries this epoch has.
    pub fn counter(&self) -> u64 {
        match &self.part {
            Part::Leading(leading) => self.log.last().index - leading.epoch_start,
            _ => 0,
        }
    }

    fn has_spent_counter(&self) -> bool {
        self.counter() >= u64::from(self.options.counter_max)
    }

    pub(crate) fn append_own(&mut self, entry: Entry, out: &mut Effects<Zab>) {
        let Part::Leading(leading) = &mut self.part else { unreachable!("only a leader proposes") };
        leading.uncommitted_bytes += entry.payload.len();
        if entry.kind == EntryKind::Membership {
            leading.pending_change = entry.lsn.index;
        }
        self.append(entry, out);
    }

    fn append(&mut self, entry: Entry, out: &mut Effects<Zab>) {
        self.log.append(entry.clone());
        out.persist(Record::Put(entry));
    }

    /// To everybody; and to itself, on its way through its own disk.
    pub(crate) fn forward(&mut self, out: &mut Effects<Zab>) {
        let (epoch, index) = (self.promise.term, self.log.last().index);
        let is_hasty = self.has_defect(Defect::CountsOwnCopyAtOnce);
        let rests_on = if is_hasty { RestsOn::Nothing } else { RestsOn::Entry(index) };
        out.send_resting_on(rests_on, self.me, Message::Ack { connection: 0, epoch, index });
        for learner in self.learners() {
            self.serve(learner, out);
        }
    }

    /// Everybody who is connected, but for this node itself.
    pub(crate) fn learners(&self) -> Vec<NodeId> {
        match &self.part {
            Part::Leading(leading) => leading.learners.keys().copied().filter(|id| *id != self.me).collect(),
            _ => Vec::new(),
        }
    }

    // --- Followers. ----------------------------------------------------------------------------------------------

    /// Rule 2; in synchronisation the same, and counted only behind NEWLEADER.
    pub(crate) fn on_proposal(
        &mut self,
        from: NodeId,
        previous: Lsn,
        mut entries: Vec<Entry>,
        commit: u64,
        out: &mut Effects<Zab>,
    ) {
        if self.fetching.is_some() {
            return;
        }
        let keeps_tail = self.has_defect(Defect::KeepsTail);
        if !keeps_tail && previous.index >= self.commit && !self.log.has(previous) {
            // Not what follows: this connection is no session any more.
            return self.become_looking(Reason::LinkDown(from), out);
        }
        let end = previous.index + entries.len() as u64;
        let later = entries.split_off(entries.iter().take_while(|entry| entry.lsn.index <= commit).count());
        // What is committed is recorded so before any later entry is: whoever holds a second change of membership knows that
        // the first is in force.
        if entries.iter().chain(&later).any(|entry| self.contradicts(entry)) {
            assert!(!self.options.is_laboratory(), "what a planted defect led to is a finding, and not looked over");
            // Two logs with one history, and an entry of which they disagree: this is no leader's.
            return self.become_looking(Reason::LinkDown(from), out);
        }
        self.take_entries(entries, out);
        self.on_commit(commit.min(end - later.len() as u64), out);
        self.take_entries(later, out);
        if matches!(self.part, Part::Following(_)) {
            self.acknowledge(from, end, out);
        }
    }

    /// Whether this log holds something else in the entry's place.
    fn contradicts(&self, entry: &Entry) -> bool {
        let known = self.log.term_at(entry.lsn.index);
        known.is_some_and(|known| known != entry.lsn.term) && !self.has_defect(Defect::KeepsTail)
    }

    fn take_entries(&mut self, entries: Vec<Entry>, out: &mut Effects<Zab>) {
        let last = self.log.last().index;
        for entry in entries.into_iter().filter(|entry| entry.lsn.index > last) {
            self.append(entry, out);
        }
    }

    /// An acknowledgement rests on the entries that it names, and on the epoch.
    pub(crate) fn acknowledge(&mut self, leader: NodeId, index: u64, out: &mut Effects<Zab>) {
        let ack = Message::Ack { connection: self.connection, epoch: self.promise.term, index };
        let is_hasty = self.has_defect(Defect::UnsyncedAcknowledgement);
        out.send_resting_on(if is_hasty { RestsOn::Nothing } else { RestsOn::Entry(index) }, leader, ack);
    }

    /// Rule 4: in order, and never beyond what came before it.
    pub(crate) fn on_commit(&mut self, commit: u64, out: &mut Effects<Zab>) {
        self.apply_through(commit.min(self.log.last().index), out);
        if self.is_retired() {
            self.retire(out);
        }
    }

    // --- The leader counts. --------------------------------------------------------------------------------------

    pub(crate) fn on_ack(&mut self, from: NodeId, index: u64, out: &mut Effects<Zab>) {
        let last = self.log.last().index;
        let Part::Leading(leading) = &mut self.part else { return };
        let Some(learner) = leading.learners.get_mut(&from) else { return };
        // Nobody can hold what this leader never wrote.
        if index <= last {
            learner.on_stored(index);
            self.on_progress(from, out);
        }
    }

    /// Rule 3.
    pub(crate) fn on_progress(&mut self, from: NodeId, out: &mut Effects<Zab>) {
        if self.advance_commit(out) {
            return;
        }
        self.serve_and_tell(from, out);
    }

    fn serve_and_tell(&mut self, to: NodeId, out: &mut Effects<Zab>) {
        if to != self.me {
            self.serve(to, out);
            self.tell_commit(to, out);
            self.on_learner_progressed(to, out);
        }
    }

    /// Commits what a quorum holds; says whether there was anything. A change of membership among it changes who is counted, so
    /// what comes behind is looked at again at once (RM-8): nobody else may ever acknowledge it.
    pub(crate) fn advance_commit(&mut self, out: &mut Effects<Zab>) -> bool {
        let before = self.commit;
        while let Some(index) = self.index_reached() {
            self.commit_through(index, out);
        }
        if self.commit == before {
            return false;
        }
        self.on_commit_advanced(out);
        true
    }

    /// The highest index beyond the commit that a quorum of synchronised servers holds.
    fn index_reached(&self) -> Option<u64> {
        let Part::Leading(leading) = &self.part else { return None };
        let learners = &leading.learners;
        let reached = self.membership.reached(|id| learners.get(&id).map_or(0, |learner| learner.counted()));
        let reached = reached.min(self.log.last().index);
        (leading.phase == Phase::Broadcast && reached > self.commit).then_some(reached)
    }

    fn commit_through(&mut self, index: u64, out: &mut Effects<Zab>) {
        let committed = self.commit + 1..=index;
        let bytes: usize = committed.filter_map(|at| self.log.entry(at)).map(|entry| entry.payload.len()).sum();
        if let Part::Leading(leading) = &mut self.part {
            leading.uncommitted_bytes = leading.uncommitted_bytes.saturating_sub(bytes);
        }
        self.apply_through(index, out);
    }

    fn on_commit_advanced(&mut self, out: &mut Effects<Zab>) {
        for learner in self.learners() {
            self.serve_and_tell(learner, out);
        }
        self.step_down_if_removed(out);
        self.resign_if_counter_is_spent(out);
    }

    /// Tells a follower what of its log is committed, if that is news to it and no entries carried the news.
    fn tell_commit(&mut self, to: NodeId, out: &mut Effects<Zab>) {
        let (epoch, commit) = (self.promise.term, self.commit);
        let Part::Leading(leading) = &mut self.part else { return };
        let Some(learner) = leading.learners.get_mut(&to) else { return };
        let commit = commit.min(learner.next - 1);
        if learner.is_synced() && learner.fetching.is_none() && commit > learner.told_commit {
            learner.told_commit = commit;
            let connection = learner.connection;
            out.send_resting_on(RestsOn::Nothing, to, Message::Commit { connection, epoch, commit });
        }
    }

    /// Rule 5: no zxid is ever used twice. The next epoch counts from zero again (ZB-11).
    fn resign_if_counter_is_spent(&mut self, out: &mut Effects<Zab>) {
        if self.is_serving() && self.has_spent_counter() && self.commit == self.log.last().index {
            self.become_looking(Reason::CounterSpent, out);
        }
    }

    // --- Pings. --------------------------------------------------------------------------------------------------

    pub(crate) fn on_ping_alarm(&mut self, out: &mut Effects<Zab>) {
        self.send_pings(out);
        self.invite(out);
        out.set_timer(Timer::Ping, self.timing.heartbeat..=self.timing.heartbeat);
    }

    /// PING, to all who are being synchronised or are. Rests on nothing: it never waits for a disk.
    pub(crate) fn send_pings(&mut self, out: &mut Effects<Zab>) {
        let (epoch, me) = (self.promise.term, self.me);
        let Part::Leading(leading) = &self.part else { return };
        let round = leading.reads.highest();
        for (to, learner) in leading.learners.iter().filter(|(id, learner)| **id != me && learner.is_forwarded()) {
            let connection = learner.connection;
            out.send_resting_on(RestsOn::Nothing, *to, Message::Ping { connection, epoch, round });
        }
    }

    /// `[OURS]` Members that are not connected hear that there is a leader, also those that it has never heard of.
    pub(crate) fn invite(&mut self, out: &mut Effects<Zab>) {
        let Part::Leading(leading) = &self.part else { return };
        let is_stranger = |id: &NodeId| !leading.learners.contains_key(id) && !self.links_down.contains(id);
        for member in self.membership.everyone().filter(is_stranger) {
            self.notify(member, out);
        }
    }

    /// An answer confirms this leader's reign: its sender has accepted no later epoch.
    pub(crate) fn on_ping(&mut self, from: NodeId, round: u64, out: &mut Effects<Zab>) {
        let priority = if self.may_lead() { self.priority } else { Priority::Never };
        let is_installing = self.fetching.is_some() || self.restoring.is_some();
        let (connection, epoch) = (self.connection, self.promise.term);
        let pong = Message::Pong { connection, epoch, round, priority, is_installing };
        out.send_resting_on(RestsOn::Promise, from, pong);
    }

    pub(crate) fn on_pong(
        &mut self,
        from: NodeId,
        round: u64,
        priority: Priority,
        is_installing: bool,
        out: &mut Effects<Zab>,
    ) {
        let Part::Leading(leading) = &mut self.part else { return };
        let highest = leading.reads.highest();
        let Some(learner) = leading.learners.get_mut(&from) else { return };
        learner.priority = priority;
        learner.round = learner.round.max(round.min(highest));
        if learner.fetching.is_some() && !is_installing {
            // It could not have the snapshot that it was offered: another one, or the same again.
            learner.fetching = None;
            learner.next = learner.stored + 1;
            self.send_snapshot_to(from, out);
        }
        self.confirm_reads(out);
        self.hand_over_as_caretaker(from, out);
    }

    /// A leader that no quorum answers resigns, so that nobody waits for it (§5.7); and a follower that does not answer is
    /// let go, as one whose socket timed out.
    pub(crate) fn on_quorum_check(&mut self, out: &mut Effects<Zab>) {
        let (me, last, membership) = (self.me, self.log.last().index, self.membership.clone());
        let Part::Leading(leading) = &mut self.part else { unreachable!("leaving cancels the alarm") };
        let is_heard = |id: NodeId| id == me || leading.learners.get(&id).is_some_and(|learner| learner.is_active);
        if membership.verdict(|id| Some(is_heard(id))) != Verdict::Won {
            let heard = membership.all_voters().filter(|id| is_heard(*id)).collect();
            return self.become_looking(Reason::QuorumLost(heard), out);
        }
        let mut silent = Vec::new();
        for (id, learner) in leading.learners.iter_mut().filter(|(id, _)| **id != me) {
            let is_ready = learner.is_active && learner.is_synced() && learner.stored == last;
            learner.ready_checks = if is_ready { learner.ready_checks.saturating_add(1) } else { 0 };
            if !std::mem::take(&mut learner.is_active) {
                silent.push((*id, learner.connection));
            }
        }
        for (id, _) in &silent {
            leading.learners.remove(id);
        }
        for (id, connection) in silent {
            self.say_goodbye(id, connection, out);
        }
        out.set_timer(Timer::QuorumCheck, self.timing.election_min..=self.timing.election_min);
        self.hand_over_to_preferred(out);
    }

    // --- Commit, the same for leaders and followers. -------------------------------------------------------------

    /// Everything through `index` is committed: it is applied, in order; a membership among it takes effect.
    pub(crate) fn apply_through(&mut self, index: u64, out: &mut Effects<Zab>) {
        if index <= self.commit {
            return;
        }
        assert!(index <= self.log.last().index, "a commit beyond the log: a quorum holds what this node lost");
        let first = self.commit + 1;
        self.commit = index;
        // Before any later entry, so that whoever holds a second change of membership knows that the first is in force.
        out.persist(Record::Committed(self.committed()));
        for index in first..=index {
            let entry = self.log.entry(index).expect("entries above the compaction point are held").clone();
            if entry.kind == EntryKind::Membership {
                self.apply_membership(&entry, out);
            }
            out.apply(entry);
        }
    }
}
