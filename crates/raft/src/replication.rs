//! Replication: proposals become entries, entries become matched, matched becomes committed.
//!
//! Sources: Raft §5.3, §5.4.2; rules RA-1 to RA-9, RC-1 to RC-3, RF-1. The leader's own copy counts only once it is
//! durable, like everyone else's, so its disk and its followers' work at the same time:
//!
//! ```text
//!    leader    ──Put──┬─ Append ──► follower ──Put── fsync ── Matched ──┐
//!                     └─ fsync ── Matched (to itself) ──────────────────┴──► quorum: commit, apply, tell
//! ```

use crate::laboratory::Defect;
use crate::message::Message;
use crate::progress::{Progress, State};
use crate::raft::{Leader, Part, Raft, Timer};
use hustings_core::{
    Effects, Entry, EntryKind, Lsn, NodeId, Priority, Proposal, Reason, Record, Refusal, RestsOn, Term, Ticket,
};

impl Raft {
    // --- The leader appends. -------------------------------------------------------------------------------------

    pub(crate) fn on_propose(&mut self, proposals: Vec<Proposal>, out: &mut Effects<Raft>) {
        let mut is_any = false;
        for proposal in proposals {
            match self.refusal_of(&proposal) {
                Some(refusal) => out.refuse(Ticket::Proposal(proposal.origin), refusal),
                None => {
                    let lsn = Lsn { term: self.promise.term, index: self.log.last().index + 1 };
                    self.append_own(proposal.into_entry(lsn), out);
                    is_any = true;
                }
            }
        }
        if is_any {
            self.count_own_log(out);
            self.replicate(out);
        }
    }

    /// Why a proposal cannot be appended now (RF-1): definite, nothing was done.
    fn refusal_of(&self, proposal: &Proposal) -> Option<Refusal> {
        let Part::Leader(leader) = &self.part else { return Some(Refusal::NotLeader(self.leader)) };
        if leader.transfer.is_some() || self.priority == Priority::Never {
            // A caretaker leads only to hand over.
            return Some(Refusal::Transferring);
        }
        let size = proposal.payload.len();
        let is_too_much = leader.uncommitted_bytes.saturating_add(size) > self.limits.uncommitted_bytes_max;
        if size > 0 && leader.uncommitted_bytes > 0 && is_too_much {
            return Some(Refusal::Overloaded);
        }
        (proposal.kind == EntryKind::Membership).then(|| self.membership_refusal(leader, &proposal.payload)).flatten()
    }

    pub(crate) fn append_own(&mut self, entry: Entry, out: &mut Effects<Raft>) {
        let Part::Leader(leader) = &mut self.part else { unreachable!("only a leader appends its own entries") };
        leader.uncommitted_bytes += entry.payload.len();
        if entry.kind == EntryKind::Membership {
            leader.pending_change = entry.lsn.index;
        }
        self.log.append(entry.clone());
        out.persist(Record::Put(entry));
    }

    /// The leader's own acknowledgement, on its way through its own disk (RC-2).
    pub(crate) fn count_own_log(&mut self, out: &mut Effects<Raft>) {
        let (term, index) = (self.promise.term, self.log.last().index);
        out.send_resting_on(RestsOn::Entry(index), self.me, Message::Matched { term, index });
    }

    // --- The leader sends. ---------------------------------------------------------------------------------------

    /// Sends everybody what it still lacks, as far as its window allows.
    pub(crate) fn replicate(&mut self, out: &mut Effects<Raft>) {
        let Part::Leader(leader) = &self.part else { return };
        let peers: Vec<NodeId> = leader.progress.keys().copied().filter(|peer| *peer != self.me).collect();
        for peer in peers {
            self.send_entries_to(peer, out);
        }
    }

    /// RA-6: a probe at a time, or optimistically until the window is full; RA-7: a snapshot where entries are gone.
    pub(crate) fn send_entries_to(&mut self, peer: NodeId, out: &mut Effects<Raft>) {
        let (term, commit, limits) = (self.promise.term, self.commit, self.limits);
        let last = self.log.last().index;
        loop {
            let Part::Leader(leader) = &mut self.part else { return };
            let Some(progress) = leader.progress.get_mut(&peer) else { return };
            let is_paused = match &progress.state {
                State::Probe { is_paused } => *is_paused,
                State::Replicate(window) => {
                    let messages_max = progress.pace.min(limits.inflight_messages_max);
                    progress.next > last || window.is_full(messages_max, limits.inflight_bytes_max)
                }
                State::Snapshot { .. } => true,
            };
            if is_paused {
                return;
            }
            let Some(previous_term) =
                self.log.term_at(progress.next - 1).filter(|_| progress.next > self.log.base().index)
            else {
                return self.send_snapshot_to(peer, out);
            };
            let previous = Lsn { term: previous_term, index: progress.next - 1 };
            let entries = self.log.slice(progress.next, usize::MAX, limits.message_bytes_max);
            let is_probe = match &mut progress.state {
                State::Probe { is_paused } => {
                    *is_paused = true;
                    true
                }
                State::Replicate(window) => {
                    let bytes = entries.iter().map(Entry::cost).sum();
                    let end = entries.last().map_or(previous.index, |entry| entry.lsn.index);
                    window.add(end, bytes);
                    progress.next = end + 1;
                    false
                }
                State::Snapshot { .. } => unreachable!("a peer that fetches a snapshot is paused"),
            };
            let end = previous.index + entries.len() as u64;
            progress.told_commit = progress.told_commit.max(commit.min(end));
            // New entries rest on nothing: the followers' disks need not wait for this one's.
            let append = Message::Append { term, previous, entries, commit };
            out.send_resting_on(RestsOn::Nothing, peer, append);
            if is_probe {
                return;
            }
        }
    }

    /// An append without entries: finds a peer whose whole window was lost (RH-14).
    fn send_empty_to(&mut self, peer: NodeId, out: &mut Effects<Raft>) {
        let Part::Leader(leader) = &self.part else { return };
        let Some(progress) = leader.progress.get(&peer) else { return };
        let index = progress.next - 1;
        let Some(previous_term) = self.log.term_at(index) else {
            // All that was sent is lost, and by now compacted away.
            return self.send_snapshot_to(peer, out);
        };
        let (term, commit) = (self.promise.term, self.commit);
        let previous = Lsn { term: previous_term, index };
        let append = Message::Append { term, previous, entries: Vec::new(), commit };
        out.send_resting_on(RestsOn::Nothing, peer, append);
    }

    /// Tells a peer what of its log is committed, if that is news to it.
    fn tell_commit(&mut self, peer: NodeId, out: &mut Effects<Raft>) {
        let (term, commit) = (self.promise.term, self.commit);
        let Part::Leader(leader) = &mut self.part else { return };
        let Some(progress) = leader.progress.get_mut(&peer) else { return };
        let index = commit.min(progress.matched);
        if index > progress.told_commit {
            progress.told_commit = index;
            out.send_resting_on(RestsOn::Nothing, peer, Message::Commit { term, index });
        }
    }

    // --- Followers. ----------------------------------------------------------------------------------------------

    /// RA-1: only what is missing or conflicts is written; a duplicate or an older message changes nothing (RH-11).
    pub(crate) fn on_append(
        &mut self,
        from: NodeId,
        previous: Lsn,
        entries: Vec<Entry>,
        commit: u64,
        out: &mut Effects<Raft>,
    ) {
        let term = self.promise.term;
        if previous.index < self.commit {
            let index = self.commit;
            return self.acknowledge(from, index, out);
        }
        let is_unchecked = self.has(Defect::SkipsLogCheck) && previous.index <= self.log.last().index;
        if !self.log.has(previous) && !is_unchecked {
            let refused = previous.index;
            let (hint_index, hint_term) = self.log.last_at_most(refused, previous.term);
            let reply = Message::Rejected { term, index: refused, hint_index, hint_term };
            return out.send_resting_on(RestsOn::Promise, from, reply);
        }
        let end = previous.index + entries.len() as u64;
        let is_committed = |entry: &Entry| entry.lsn.index <= commit;
        let rest = entries.iter().position(|entry| !is_committed(entry)).unwrap_or(entries.len());
        let mut entries = entries;
        let later = entries.split_off(rest);
        // What is committed is recorded so before any later entry is: whoever holds a second change of membership knows
        // that the first is in force (RM-3).
        self.take_entries(from, entries, out);
        self.apply_through(commit.min(previous.index + rest as u64), out);
        self.take_entries(from, later, out);
        self.acknowledge(from, end, out);
    }

    /// Writes what is missing; what conflicts goes first.
    fn take_entries(&mut self, from: NodeId, entries: Vec<Entry>, out: &mut Effects<Raft>) {
        if let Some(first) = entries.first().filter(|_| self.has(Defect::TruncatesAlways))
            && first.lsn.index <= self.log.last().index
            && first.lsn.index > self.commit
        {
            self.log.truncate_from(first.lsn.index);
            out.persist(Record::TruncateFrom(first.lsn.index));
        }
        for entry in entries {
            match self.log.term_at(entry.lsn.index) {
                Some(known) if known == entry.lsn.term => {}
                Some(_) if self.has(Defect::KeepsConflicts) => {}
                Some(_) => {
                    assert!(
                        entry.lsn.index > self.commit,
                        "{from} would replace the committed entry {}: two histories exist",
                        entry.lsn.index
                    );
                    self.log.truncate_from(entry.lsn.index);
                    out.persist(Record::TruncateFrom(entry.lsn.index));
                    self.append_received(entry, out);
                }
                None => self.append_received(entry, out),
            }
        }
    }

    fn append_received(&mut self, entry: Entry, out: &mut Effects<Raft>) {
        self.log.append(entry.clone());
        out.persist(Record::Put(entry));
    }

    /// An acknowledgement rests on the entries that it names, and on the promise to this leader (RA-2).
    pub(crate) fn acknowledge(&mut self, leader: NodeId, index: u64, out: &mut Effects<Raft>) {
        let term = self.promise.term;
        let rests_on = if self.has(Defect::UnsyncedAcknowledgement) { RestsOn::Nothing } else { RestsOn::Entry(index) };
        out.send_resting_on(rests_on, leader, Message::Matched { term, index });
    }

    /// What the leader knows this node to hold is committed (RC-3). An index beyond the log is no leader's word.
    pub(crate) fn on_commit(&mut self, index: u64, out: &mut Effects<Raft>) {
        if index <= self.log.last().index && self.installing.is_none() {
            self.apply_through(index, out);
        }
    }

    pub(crate) fn on_heartbeat(&mut self, from: NodeId, commit: u64, position: u64, out: &mut Effects<Raft>) {
        self.on_commit(commit, out);
        let reply = Message::HeartbeatReply {
            term: self.promise.term,
            position,
            priority: self.priority,
            is_installing: self.installing.is_some(),
        };
        // An answer to a heartbeat confirms this leader's reign; a term that a crash could undo confirms nothing.
        out.send_resting_on(RestsOn::Promise, from, reply);
    }

    // --- The leader counts. --------------------------------------------------------------------------------------

    pub(crate) fn on_matched(&mut self, from: NodeId, index: u64, out: &mut Effects<Raft>) {
        let last = self.log.last().index;
        let first = self.log.first_index();
        let Part::Leader(leader) = &mut self.part else { return };
        let Some(progress) = leader.progress.get_mut(&from) else { return };
        progress.is_active = true;
        if index > last {
            // Nobody can match what this leader never wrote.
            return;
        }
        let is_news = progress.on_matched(index);
        match progress.state {
            // Also when the index was known: a caught-up peer that was probed flows again (RA-5).
            State::Probe { .. } if index == progress.matched => progress.become_replicate(),
            // Whatever snapshot was asked for, the log can go on from here (RH-15).
            State::Snapshot { .. } if progress.matched + 1 >= first => progress.become_replicate(),
            _ => {}
        }
        if is_news && self.advance_commit(out) {
            return;
        }
        if from != self.me {
            self.send_entries_to(from, out);
            self.tell_commit(from, out);
            self.on_peer_progressed(from, out);
        }
    }

    /// Commits what a quorum holds; says whether there was anything. A change of membership among it changes who is counted, so
    /// what comes behind is looked at again at once (RM-8): nobody else may ever acknowledge it.
    pub(crate) fn advance_commit(&mut self, out: &mut Effects<Raft>) -> bool {
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

    /// RC-1: the highest index beyond the commit that a quorum holds, if it is of this leader's own term (figure 8).
    fn index_reached(&self) -> Option<u64> {
        let Part::Leader(leader) = &self.part else { return None };
        let reached = self.deciding().reached(|id| leader.progress.get(&id).map_or(0, |peer| peer.matched));
        let reached = reached.min(self.log.last().index);
        let is_own = self.log.term_at(reached) == Some(self.promise.term) || self.has(Defect::CommitsOldTerms);
        (reached > self.commit && is_own).then_some(reached)
    }

    fn commit_through(&mut self, index: u64, out: &mut Effects<Raft>) {
        let committed = self.commit + 1..=index;
        let bytes: usize = committed.filter_map(|at| self.log.entry(at)).map(|entry| entry.payload.len()).sum();
        if let Part::Leader(leader) = &mut self.part {
            leader.uncommitted_bytes = leader.uncommitted_bytes.saturating_sub(bytes);
        }
        self.apply_through(index, out);
    }

    fn on_commit_advanced(&mut self, out: &mut Effects<Raft>) {
        let Part::Leader(leader) = &self.part else { return };
        let peers: Vec<NodeId> = leader.progress.keys().copied().filter(|peer| *peer != self.me).collect();
        for peer in peers {
            self.send_entries_to(peer, out);
            self.tell_commit(peer, out);
            self.on_peer_progressed(peer, out);
        }
        self.after_commit(out);
    }

    /// What waits for a commit: reads that came before the first own entry was committed, the end of a joint change.
    fn after_commit(&mut self, out: &mut Effects<Raft>) {
        self.release_early_reads(out);
        self.leave_joint_if_due(out);
        self.step_down_if_removed(out);
    }

    pub(crate) fn on_rejected(
        &mut self,
        from: NodeId,
        rejected: u64,
        hint_index: u64,
        hint_term: Option<Term>,
        out: &mut Effects<Raft>,
    ) {
        // RA-4: walk down from the follower's guess while the own term there is newer than the follower's.
        let candidate = match hint_term {
            Some(term) => self.log.last_at_most(hint_index, term).0,
            None => hint_index,
        };
        let Part::Leader(leader) = &mut self.part else { return };
        let Some(progress) = leader.progress.get_mut(&from) else { return };
        progress.is_active = true;
        if progress.on_rejected(rejected, candidate) {
            self.send_entries_to(from, out);
        }
    }

    // --- Heartbeats, and what they tell. -------------------------------------------------------------------------

    pub(crate) fn on_heartbeat_alarm(&mut self, out: &mut Effects<Raft>) {
        self.send_heartbeats(out);
        out.set_timer(Timer::Heartbeat, self.timing.heartbeat..=self.timing.heartbeat);
    }

    pub(crate) fn send_heartbeats(&mut self, out: &mut Effects<Raft>) {
        let Part::Leader(leader) = &self.part else { return };
        let peers: Vec<NodeId> = leader.progress.keys().copied().filter(|peer| *peer != self.me).collect();
        for peer in peers {
            self.send_heartbeat_to(peer, out);
        }
    }

    /// Rests on nothing: no heartbeat ever waits for a disk.
    pub(crate) fn send_heartbeat_to(&mut self, peer: NodeId, out: &mut Effects<Raft>) {
        let is_bold = self.has(Defect::CommitsUnmatched);
        let (term, commit) = (self.promise.term, self.commit);
        let Part::Leader(leader) = &mut self.part else { return };
        let Some(progress) = leader.progress.get_mut(&peer) else { return };
        let position = leader.reads.highest();
        let commit = if is_bold { commit } else { commit.min(progress.matched) };
        progress.told_commit = progress.told_commit.max(commit);
        out.send_resting_on(RestsOn::Nothing, peer, Message::Heartbeat { term, commit, position });
    }

    pub(crate) fn on_heartbeat_reply(
        &mut self,
        from: NodeId,
        position: u64,
        priority: Priority,
        is_installing: bool,
        out: &mut Effects<Raft>,
    ) {
        let last = self.log.last().index;
        let Part::Leader(leader) = &mut self.part else { return };
        let Leader { progress, reads, .. } = &mut **leader;
        let Some(peer) = progress.get_mut(&from) else { return };
        peer.is_active = true;
        peer.priority = priority;
        peer.position = peer.position.max(position.min(reads.highest()));
        peer.unpause();
        let is_window_stuck = match &peer.state {
            State::Snapshot { .. } if !is_installing => {
                // The offer was lost, or the peer was reborn without it.
                peer.become_probe(peer.matched + 1);
                false
            }
            State::Replicate(window) => peer.matched < last && !window.is_empty(),
            _ => false,
        };
        if is_window_stuck {
            self.send_empty_to(from, out);
        } else {
            self.send_entries_to(from, out);
        }
        self.tell_commit(from, out);
        self.confirm_reads(out);
        self.hand_over_as_caretaker(from, out);
    }

    /// RQ-1: a leader that no quorum answers steps down, so that nobody waits for it.
    pub(crate) fn on_quorum_check(&mut self, out: &mut Effects<Raft>) {
        let last = self.log.last().index;
        let me = self.me;
        let membership = self.membership.clone();
        let Part::Leader(leader) = &mut self.part else { return };
        let is_heard = |id: NodeId| id == me || leader.progress.get(&id).is_some_and(|peer| peer.is_active);
        let heard: Vec<NodeId> = membership.all_voters().filter(|id| is_heard(*id)).collect();
        let has_quorum = membership.verdict(|id| Some(is_heard(id))) == hustings_core::quorum::Verdict::Won;
        if self.options.check_quorum && !has_quorum {
            return self.become_follower(self.promise.term, None, Reason::QuorumLost(heard), out);
        }
        for peer in leader.progress.values_mut() {
            let is_ready = peer.is_active && peer.matched == last;
            peer.ready_checks = if is_ready { peer.ready_checks.saturating_add(1) } else { 0 };
            peer.is_active = false;
        }
        out.set_timer(Timer::QuorumCheck, self.timing.election_min..=self.timing.election_min);
        self.hand_over_to_preferred(out);
    }

    /// A fresh start for a peer that is new in the membership.
    pub(crate) fn welcome(leader: &mut Leader, peer: NodeId, last: u64) {
        leader.progress.entry(peer).or_insert_with(|| Progress::new(last));
    }
}
