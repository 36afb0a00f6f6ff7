//! The ledger in step: records, acknowledgements, commits. §2.7 of the protocol notes.
//!
//! ```text
//!    leader    ──Put──┬─ Records ──► follower ──Put── fsync ── Ack ──┐
//!                     └─ fsync ── Ack (to itself) ───────────────────┴──► a quorum: commit, apply, tell
//! ```
//!
//! `[OURS]` Acknowledgements are tied to nodes (CS-11) and to the term; each message of records names the place before
//! it, so that a gap is seen (CS-10); a commit covers everything before it, and is told with the next records or
//! heartbeat instead of a record of its own. A record commits by being counted only in the term in which it was
//! written; older ones commit with the term's start.

use crate::blazingmq::{BlazingMq, Kind, Leader, Part, Timer};
use crate::laboratory::Defect;
use crate::message::Message;
use crate::peer::Pace;
use hustings_core::quorum::Verdict;
use hustings_core::{
    Effects, Entry, EntryKind, Lsn, NodeId, Priority, Proposal, Reason, Record, Refusal, RestsOn, Ticket,
};
use std::sync::Arc;

impl BlazingMq {
    // --- The leader writes. --------------------------------------------------------------------------------------

    pub(crate) fn on_propose(&mut self, proposals: Vec<Proposal>, out: &mut Effects<BlazingMq>) {
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
            self.count_own_log(out);
            self.send_to_all(out);
        }
    }

    /// Why a proposal cannot be written now: definite, nothing was done. Only an active leader starts advisories
    /// (§2.8).
    fn refusal_of(&self, proposal: &Proposal) -> Option<Refusal> {
        let Part::Leader(leader) = &self.part else { return Some(Refusal::NotLeader(self.active_leader())) };
        if !self.is_started() {
            return Some(Refusal::NotReady);
        }
        if leader.transfer.is_some() || self.priority == Priority::Never {
            // A caretaker leads only to hand over.
            return Some(Refusal::Transferring);
        }
        let size = proposal.payload.len();
        let would_be = leader.uncommitted_bytes.saturating_add(size);
        if size > 0 && leader.uncommitted_bytes > 0 && would_be > self.limits.uncommitted_bytes_max {
            return Some(Refusal::Overloaded);
        }
        match proposal.kind {
            EntryKind::Membership => self.membership_refusal(leader, &proposal.payload),
            _ => None,
        }
    }

    pub(crate) fn append_own(&mut self, entry: Entry, out: &mut Effects<BlazingMq>) {
        let Part::Leader(leader) = &mut self.part else { unreachable!("only a leader writes records of its own") };
        leader.uncommitted_bytes += entry.payload.len();
        match entry.kind {
            EntryKind::Membership => leader.pending_change = entry.lsn.index,
            EntryKind::Protocol => leader.pending_primaries = entry.lsn.index,
            EntryKind::Blank | EntryKind::Command => {}
        }
        self.append(entry, out);
    }

    fn append(&mut self, entry: Entry, out: &mut Effects<BlazingMq>) {
        self.log.append(entry.clone());
        out.persist(Record::Put(entry));
    }

    /// The leader's own acknowledgement, on its way through its own disk.
    pub(crate) fn count_own_log(&mut self, out: &mut Effects<BlazingMq>) {
        let (term, index) = (self.promise.term, self.log.last().index);
        out.send_resting_on(RestsOn::Entry(index), self.me, Message::Ack { term, index });
    }

    // --- The leader sends. ---------------------------------------------------------------------------------------

    fn others(&self) -> Vec<NodeId> {
        match &self.part {
            Part::Leader(leader) => leader.peers.keys().copied().filter(|peer| *peer != self.me).collect(),
            _ => Vec::new(),
        }
    }

    /// Sends everybody what it still lacks, as far as its window allows.
    pub(crate) fn send_to_all(&mut self, out: &mut Effects<BlazingMq>) {
        for peer in self.others() {
            self.send_records_to(peer, out);
        }
    }

    /// A peer has this place in its ledger, durably: records flow from there if this leader has it too; otherwise the
    /// last common place is searched for below, or is compacted away.
    pub(crate) fn place_peer(&mut self, to: NodeId, place: Lsn, out: &mut Effects<BlazingMq>) {
        if !self.is_started() {
            return;
        }
        let has_it = self.log.has(place);
        let (index, found) = self.log.last_at_most(place.index, place.term);
        let Part::Leader(leader) = &mut self.part else { return };
        let Some(peer) = leader.peers.get_mut(&to) else { return };
        peer.is_active = true;
        if has_it {
            let is_news = peer.on_stored(place.index);
            peer.become_flow();
            if is_news && self.advance_commit(out) {
                return;
            }
            return self.serve_peer(to, out);
        }
        match found {
            Some(_) => {
                peer.become_probe(index + 1);
                self.probe(to, out);
            }
            None => self.send_snapshot_to(to, out),
        }
    }

    /// One message of records after the place that the peer may share.
    pub(crate) fn probe(&mut self, to: NodeId, out: &mut Effects<BlazingMq>) {
        let (term, commit) = (self.promise.term, self.commit);
        let Some(next) = self.peer(to).map(|peer| peer.next) else { return };
        let Some(previous) = self.place_before(next) else { return self.send_snapshot_to(to, out) };
        let entries = self.log.slice(next, usize::MAX, self.limits.message_bytes_max);
        out.send_resting_on(RestsOn::Nothing, to, Message::Records { term, previous, entries, commit });
    }

    /// As many records as the window takes, a snapshot where they are gone.
    pub(crate) fn send_records_to(&mut self, to: NodeId, out: &mut Effects<BlazingMq>) {
        let (term, commit, limits) = (self.promise.term, self.commit, self.limits);
        loop {
            let Some(peer) = self.peer(to) else { return };
            let next = peer.next;
            let is_full = peer.is_full(limits.inflight_messages_max, limits.inflight_bytes_max);
            if is_full || next > self.log.last().index {
                return;
            }
            let Some(previous) = self.place_before(next) else { return self.send_snapshot_to(to, out) };
            let entries = self.log.slice(next, usize::MAX, limits.message_bytes_max);
            let end = previous.index + entries.len() as u64;
            let cost = entries.iter().map(Entry::cost).sum();
            let Part::Leader(leader) = &mut self.part else { return };
            let Some(peer) = leader.peers.get_mut(&to) else { return };
            peer.on_sent(end, cost);
            peer.told_commit = peer.told_commit.max(commit.min(end));
            // New records rest on nothing: the followers' disks need not wait for this one's. What they do rest on, the
            // term, is durable: nobody leads before its own is.
            out.send_resting_on(RestsOn::Nothing, to, Message::Records { term, previous, entries, commit });
        }
    }

    /// The place before `index`; `None` when it is compacted away.
    fn place_before(&self, index: u64) -> Option<Lsn> {
        let before = index.checked_sub(1)?;
        self.log.term_at(before).map(|term| Lsn { term, index: before })
    }

    /// Tells a peer in step what of its ledger is committed, if that is news to it and no records carry the news.
    fn tell_commit(&mut self, to: NodeId, out: &mut Effects<BlazingMq>) {
        let (term, commit) = (self.promise.term, self.commit);
        let Part::Leader(leader) = &mut self.part else { return };
        let Some(peer) = leader.peers.get_mut(&to) else { return };
        let index = commit.min(peer.stored);
        if index <= peer.told_commit || !matches!(peer.pace, Pace::Flow { .. }) {
            return;
        }
        peer.told_commit = index;
        if let Some(at) = self.log.term_at(index) {
            let previous = Lsn { term: at, index };
            out.send_resting_on(RestsOn::Nothing, to, Message::Records { term, previous, entries: Vec::new(), commit });
        }
    }

    pub(crate) fn on_heartbeat_alarm(&mut self, out: &mut Effects<BlazingMq>) {
        self.send_heartbeats(out);
        out.set_timer(Timer::Heartbeat, self.timing.heartbeat..=self.timing.heartbeat);
    }

    /// Rule 24.
    pub(crate) fn send_heartbeats(&mut self, out: &mut Effects<BlazingMq>) {
        for peer in self.others() {
            self.send_heartbeat_to(peer, out);
        }
    }

    /// Rests on nothing: no heartbeat ever waits for a disk.
    pub(crate) fn send_heartbeat_to(&mut self, to: NodeId, out: &mut Effects<BlazingMq>) {
        let (term, commit, is_active) = (self.promise.term, self.commit, self.role() == hustings_core::Role::Leader);
        let Part::Leader(leader) = &mut self.part else { return };
        let round = leader.reads.highest();
        let commit = leader.peers.get_mut(&to).map_or(0, |peer| {
            let is_absent = peer.pace == Pace::Absent;
            let known = if is_absent { 0 } else { commit.min(peer.stored) };
            peer.told_commit = peer.told_commit.max(known);
            known
        });
        out.send_resting_on(RestsOn::Nothing, to, Message::Heartbeat { term, round, commit, is_active });
    }

    // --- Followers. ----------------------------------------------------------------------------------------------

    /// §2.7, rules 4 to 9, from the leader that this node follows.
    pub(crate) fn on_records(
        &mut self,
        from: NodeId,
        previous: Lsn,
        entries: Vec<Entry>,
        commit: u64,
        out: &mut Effects<BlazingMq>,
    ) {
        let end = previous.index + entries.len() as u64;
        if end <= self.commit {
            return self.acknowledge(from, self.commit, out);
        }
        if previous.index < self.commit {
            // What is committed here is in the leader's ledger too: the rest follows the commit.
            if entries.iter().any(|entry| entry.lsn.index == self.commit && entry.lsn != self.committed()) {
                // It is not, so this is no leader's ledger.
                return self.refuse_gap(from, previous, out);
            }
            let rest = entries.into_iter().filter(|entry| entry.lsn.index > self.commit).collect();
            self.take_committed_first(from, rest, commit, end, out);
            return self.acknowledge(from, end, out);
        }
        if !self.log.has(previous) {
            return self.refuse_gap(from, previous, out);
        }
        let is_bare = entries.is_empty();
        self.take_committed_first(from, entries, commit, end, out);
        if self.committed().term == self.promise.term {
            // §2.8, rule 11: a commit of this term heals.
            self.see_leader_active(out);
        }
        if !is_bare {
            self.acknowledge(from, end, out);
        }
    }

    /// What is committed is recorded so before any later record is: whoever holds a second change of membership knows
    /// that the first is in force.
    pub(crate) fn take_committed_first(
        &mut self,
        from: NodeId,
        mut entries: Vec<Entry>,
        commit: u64,
        end: u64,
        out: &mut Effects<BlazingMq>,
    ) {
        let later = entries.split_off(entries.iter().take_while(|entry| entry.lsn.index <= commit).count());
        let known = end - later.len() as u64;
        self.take_entries(from, entries, out);
        self.apply_through(commit.min(known), out);
        self.take_entries(from, later, out);
    }

    fn refuse_gap(&mut self, leader: NodeId, previous: Lsn, out: &mut Effects<BlazingMq>) {
        if self.installing.is_some() {
            // The snapshot closes it.
            return;
        }
        let (index, found) = self.log.last_at_most(previous.index, previous.term);
        let hint = found.map_or(self.committed(), |term| Lsn { term, index });
        let hint = if hint.index < self.commit { self.committed() } else { hint };
        // Rests on the ledger that it speaks of.
        out.send(leader, Message::Gap { term: self.promise.term, hint });
    }

    /// Writes what is missing; a tail that differs is cut back to the last common place first (C4, CS-5).
    fn take_entries(&mut self, from: NodeId, entries: Vec<Entry>, out: &mut Effects<BlazingMq>) {
        for entry in entries {
            let index = entry.lsn.index;
            match self.log.term_at(index) {
                Some(known) if known == entry.lsn.term => continue,
                Some(_) => {
                    assert!(index > self.commit, "{from} would replace the committed record {index}");
                    self.log.truncate_from(index);
                    out.persist(Record::TruncateFrom(index));
                }
                None => {}
            }
            self.append(entry, out);
        }
    }

    /// An acknowledgement rests on the records that it names, and on the term of this leader.
    pub(crate) fn acknowledge(&mut self, leader: NodeId, index: u64, out: &mut Effects<BlazingMq>) {
        let term = self.promise.term;
        let is_hasty = self.has(Defect::UnsyncedAcknowledgement);
        let rests_on = if is_hasty { RestsOn::Nothing } else { RestsOn::Entry(index) };
        out.send_resting_on(rests_on, leader, Message::Ack { term, index });
    }

    // --- The leader counts. --------------------------------------------------------------------------------------

    pub(crate) fn on_ack(&mut self, from: NodeId, index: u64, out: &mut Effects<BlazingMq>) {
        let last = self.log.last().index;
        let Part::Leader(leader) = &mut self.part else { return };
        let Some(peer) = leader.peers.get_mut(&from) else { return };
        peer.is_active = true;
        if index > last {
            // Nobody can hold what this leader never wrote.
            return;
        }
        let is_news = peer.on_stored(index);
        match peer.pace {
            Pace::Probe => peer.become_flow(),
            Pace::Fetch { pending } if peer.stored >= pending => peer.become_flow(),
            _ => {}
        }
        if is_news && self.advance_commit(out) {
            return;
        }
        if from != self.me {
            self.serve_peer(from, out);
        }
    }

    fn serve_peer(&mut self, peer: NodeId, out: &mut Effects<BlazingMq>) {
        self.send_records_to(peer, out);
        self.tell_commit(peer, out);
        self.on_peer_progressed(peer, out);
    }

    /// Commits what a quorum holds; says whether there was anything. A change of membership among it changes who is counted, so
    /// what comes behind is looked at again at once (RM-8): nobody else may ever acknowledge it.
    pub(crate) fn advance_commit(&mut self, out: &mut Effects<BlazingMq>) -> bool {
        let (before, members) = (self.commit, self.membership.clone());
        while let Some(index) = self.index_reached() {
            self.commit_through(index, out);
        }
        if self.commit == before {
            return false;
        }
        self.become_active_if_started(out);
        if !Arc::ptr_eq(&members, &self.membership) {
            self.tend_partitions(out);
        }
        self.on_commit_advanced(out);
        true
    }

    /// The highest index beyond the commit that a quorum holds, if it is of this leader's own term.
    fn index_reached(&self) -> Option<u64> {
        let Part::Leader(leader) = &self.part else { return None };
        let stored = |id: NodeId| leader.peers.get(&id).map_or(0, |peer| peer.stored);
        let mut reached = self.reached(Kind::Commit, stored).min(self.log.last().index);
        if self.has(Defect::CommitsAlone) {
            reached = reached.max(stored(self.me));
        }
        let is_own = self.log.term_at(reached) == Some(self.promise.term);
        (reached > self.commit && is_own).then_some(reached)
    }

    fn commit_through(&mut self, index: u64, out: &mut Effects<BlazingMq>) {
        let committed = self.commit + 1..=index;
        let bytes: usize = committed.filter_map(|at| self.log.entry(at)).map(|entry| entry.payload.len()).sum();
        if let Part::Leader(leader) = &mut self.part {
            leader.uncommitted_bytes = leader.uncommitted_bytes.saturating_sub(bytes);
        }
        self.apply_through(index, out);
    }

    fn on_commit_advanced(&mut self, out: &mut Effects<BlazingMq>) {
        for peer in self.others() {
            self.serve_peer(peer, out);
        }
        self.release_early_reads(out);
        self.step_down_if_removed(out);
    }

    pub(crate) fn on_heard(
        &mut self,
        from: NodeId,
        round: u64,
        priority: Priority,
        is_installing: bool,
        out: &mut Effects<BlazingMq>,
    ) {
        let Part::Leader(leader) = &mut self.part else { return };
        let Leader { peers, reads, supporters, lsns, .. } = &mut **leader;
        let Some(peer) = peers.get_mut(&from) else { return };
        peer.is_active = true;
        peer.priority = priority;
        peer.round = peer.round.max(round.min(reads.highest()));
        supporters.insert(from);
        if !lsns.contains_key(&from) {
            // It follows, and registered when it was not a member yet: where its ledger ends is not known.
            let term = self.promise.term;
            out.send_resting_on(RestsOn::Promise, from, Message::LsnRequest { term });
        }
        let is_fetching = matches!(peer.pace, Pace::Fetch { .. });
        if is_fetching && !is_installing {
            // The offer was refused, or the peer was reborn without it.
            peer.become_probe(peer.stored + 1);
            self.probe(from, out);
        }
        self.confirm_reads(out);
        self.hand_over_as_caretaker(from, out);
    }

    /// `[OURS]` Check-quorum: a leader that no quorum answers steps down, so that nobody waits for it (§1.10/7).
    pub(crate) fn on_quorum_check(&mut self, out: &mut Effects<BlazingMq>) {
        let (me, last) = (self.me, self.log.last().index);
        let Part::Leader(leader) = &self.part else { return };
        let is_heard = |id: NodeId| id == me || leader.peers.get(&id).is_some_and(|peer| peer.is_active);
        if self.verdict(Kind::Vote, |id| Some(is_heard(id))) != Verdict::Won {
            let heard = self.membership.all_voters().filter(|id| is_heard(*id)).collect();
            return self.step_down(Reason::QuorumLost(heard), out);
        }
        let Part::Leader(leader) = &mut self.part else { return };
        for peer in leader.peers.values_mut() {
            let is_ready = peer.is_active && peer.stored == last;
            peer.ready_checks = if is_ready { peer.ready_checks.saturating_add(1) } else { 0 };
            peer.end_check();
        }
        out.set_timer(Timer::QuorumCheck, self.timing.election_min..=self.timing.election_min);
        self.tend_partitions(out);
        self.hand_over_to_preferred(out);
    }
}
