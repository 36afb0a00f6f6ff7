//! LEAD: proposals become messages, messages are acknowledged, what a majority acknowledged is committed.
//!
//! Source: the note of 2000 says that LEAD messages are numbered (term, msg), serve as heartbeats and disseminate state; the
//! rest is `[OURS]`, §4.8 of the protocol notes. A LEAD carries the place of the message before, so that gaps are seen and
//! refused. The leader's own copy counts only once it is durable, like everyone else's, so all disks work at the same time:
//!
//! ```text
//!    leader    ──Put──┬─ LEAD ──► follower ──Put── fsync ── Stored ──┐
//!                     └─ fsync ── Stored (to itself) ────────────────┴──► majority: commit, apply, tell
//! ```
//!
//! A message commits when a majority stored it *in the term in which it was sent*; older ones commit with the first own one.
//! Otherwise a message could be committed by counting and yet be cut back by a leader that saw a later term (Raft, figure 8).

use crate::gmt2000::{Gmt2000, Leader, Part, Timer};
use crate::laboratory::Defect;
use crate::message::Message;
use crate::peer::{Pace, Peer};
use hustings_core::quorum::Verdict;
use hustings_core::{
    Effects, Entry, EntryKind, Lsn, NodeId, Priority, Proposal, Reason, Record, Refusal, RestsOn, Term, Ticket,
};

impl Gmt2000 {
    // --- The leader writes. --------------------------------------------------------------------------------------

    pub(crate) fn on_propose(&mut self, proposals: Vec<Proposal>, out: &mut Effects<Gmt2000>) {
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

    /// Why a proposal cannot be written now: definite, nothing was done.
    fn refusal_of(&self, proposal: &Proposal) -> Option<Refusal> {
        let Part::Leader(leader) = &self.part else { return Some(Refusal::NotLeader(self.leader)) };
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

    pub(crate) fn append_own(&mut self, entry: Entry, out: &mut Effects<Gmt2000>) {
        let Part::Leader(leader) = &mut self.part else { unreachable!("only a leader writes messages of its own") };
        leader.uncommitted_bytes += entry.payload.len();
        if entry.kind == EntryKind::Membership {
            leader.pending_change = entry.lsn.index;
        }
        self.append(entry, out);
    }

    fn append(&mut self, entry: Entry, out: &mut Effects<Gmt2000>) {
        self.log.append(entry.clone());
        out.persist(Record::Put(entry));
    }

    /// The leader's own acknowledgement, on its way through its own disk.
    pub(crate) fn count_own_log(&mut self, out: &mut Effects<Gmt2000>) {
        let (term, index) = (self.promise.term, self.log.last().index);
        out.send_resting_on(RestsOn::Entry(index), self.me, Message::Stored { term, index });
    }

    // --- The leader sends. ---------------------------------------------------------------------------------------

    fn others(&self) -> Vec<NodeId> {
        match &self.part {
            Part::Leader(leader) => leader.peers.keys().copied().filter(|peer| *peer != self.me).collect(),
            _ => Vec::new(),
        }
    }

    /// Sends everybody what it still lacks, as far as its window allows.
    pub(crate) fn send_to_all(&mut self, out: &mut Effects<Gmt2000>) {
        for peer in self.others() {
            self.send_entries_to(peer, out);
        }
    }

    /// One LEAD with entries while probing, as many as the window takes while in step, a snapshot where entries are gone.
    pub(crate) fn send_entries_to(&mut self, to: NodeId, out: &mut Effects<Gmt2000>) {
        let (term, commit, limits) = (self.promise.term, self.commit, self.limits);
        loop {
            let Part::Leader(leader) = &mut self.part else { return };
            let Some(peer) = leader.peers.get_mut(&to) else { return };
            let is_served = matches!(peer.pace, Pace::Flow { .. }) && peer.next > self.log.last().index;
            if is_served || peer.is_full(limits.inflight_messages_max, limits.inflight_bytes_max) {
                return;
            }
            let Some(previous) = self.log.place_before(peer.next) else { return self.send_snapshot_to(to, out) };
            let entries = self.log.slice(peer.next, usize::MAX, limits.message_bytes_max);
            let end = previous.index + entries.len() as u64;
            peer.on_sent(end, entries.iter().map(Entry::cost).sum());
            peer.told_commit = peer.told_commit.max(commit.min(end));
            // New entries rest on nothing: the followers' disks need not wait for this one's. What they do rest on, the
            // ballot, is durable: nobody leads before its own vote is.
            let lead = Message::Lead { term, previous, entries, commit, round: None };
            out.send_resting_on(RestsOn::Nothing, to, lead);
            if matches!(self.peer(to).map(|peer| &peer.pace), Some(Pace::Probe { .. })) {
                return;
            }
        }
    }

    /// A LEAD without entries; with a round it is a heartbeat and wants an answer. Rests on nothing: no heartbeat ever waits
    /// for a disk.
    fn send_empty_to(&mut self, to: NodeId, round: Option<u64>, out: &mut Effects<Gmt2000>) {
        let (term, commit) = (self.promise.term, self.commit);
        let Part::Leader(leader) = &mut self.part else { return };
        let Some(peer) = leader.peers.get_mut(&to) else { return };
        // Where the place is compacted away the peer needs a snapshot, and every log agrees on what is before the first.
        let previous = self.log.place_before(peer.next).unwrap_or(Lsn::ZERO);
        peer.told_commit = peer.told_commit.max(commit.min(previous.index));
        let lead = Message::Lead { term, previous, entries: Vec::new(), commit, round };
        out.send_resting_on(RestsOn::Nothing, to, lead);
    }

    /// Tells a peer in step what of its log is committed, if that is news to it and no entries carry the news.
    fn tell_commit(&mut self, to: NodeId, out: &mut Effects<Gmt2000>) {
        let Some(peer) = self.peer(to) else { return };
        let is_news = self.commit.min(peer.stored) > peer.told_commit;
        if is_news && matches!(peer.pace, Pace::Flow { .. }) {
            self.send_empty_to(to, None, out);
        }
    }

    pub(crate) fn on_heartbeat_alarm(&mut self, out: &mut Effects<Gmt2000>) {
        self.send_heartbeats(out);
        self.watch_own_heartbeat_as_published(out);
        out.set_timer(Timer::Heartbeat, self.timing.heartbeat..=self.timing.heartbeat);
    }

    /// Rule 11: at least one LEAD per interval.
    pub(crate) fn send_heartbeats(&mut self, out: &mut Effects<Gmt2000>) {
        for peer in self.others() {
            self.send_heartbeat_to(peer, out);
        }
    }

    pub(crate) fn send_heartbeat_to(&mut self, to: NodeId, out: &mut Effects<Gmt2000>) {
        if let Part::Leader(leader) = &self.part {
            let round = leader.reads.highest();
            self.send_empty_to(to, Some(round), out);
        }
    }

    // --- Followers. ----------------------------------------------------------------------------------------------

    pub(crate) fn on_lead(
        &mut self,
        from: NodeId,
        previous: Lsn,
        mut entries: Vec<Entry>,
        commit: u64,
        round: Option<u64>,
        out: &mut Effects<Gmt2000>,
    ) {
        if let Some(round) = round {
            self.answer_heartbeat(from, round, out);
        }
        if previous.index < self.commit {
            // What is committed here is in the leader's log; the rest of this message comes again, from there on.
            return self.acknowledge(from, self.commit, out);
        }
        let is_trusting = self.has_defect(Defect::SkipsLogCheck) && previous.index <= self.log.last().index;
        if !self.log.has(previous) && !is_trusting {
            return self.refuse_gap(from, previous, out);
        }
        let is_bare = entries.is_empty() && round.is_none();
        let end = previous.index + entries.len() as u64;
        let later = entries.split_off(entries.iter().take_while(|entry| entry.lsn.index <= commit).count());
        // What is committed is recorded so before any later entry is: whoever holds a second change of membership knows that
        // the first is in force.
        self.take_entries(from, entries, out);
        self.apply_through(commit.min(end - later.len() as u64), out);
        self.take_entries(from, later, out);
        if !is_bare {
            self.acknowledge(from, end, out);
        }
    }

    /// An answer confirms this leader's reign: its sender has voted in no later ballot. It rests on the ballot, which is durable
    /// but for the first answer to a new leader.
    fn answer_heartbeat(&mut self, leader: NodeId, round: u64, out: &mut Effects<Gmt2000>) {
        let priority = if self.may_lead() { self.priority } else { Priority::Never };
        let is_installing = self.installing.is_some();
        let heard = Message::Heard { term: self.promise.term, round, priority, is_installing };
        out.send_resting_on(RestsOn::Promise, leader, heard);
    }

    fn refuse_gap(&mut self, leader: NodeId, previous: Lsn, out: &mut Effects<Gmt2000>) {
        if self.installing.is_some() {
            // The snapshot closes it.
            return;
        }
        let (hint_index, hint_term) = self.log.last_at_most(previous.index, previous.term);
        let gap = Message::Gap { term: self.promise.term, index: previous.index, hint_index, hint_term };
        out.send_resting_on(RestsOn::Promise, leader, gap);
    }

    /// Writes what is missing; a tail that differs is cut back to the last matching message first.
    fn take_entries(&mut self, from: NodeId, entries: Vec<Entry>, out: &mut Effects<Gmt2000>) {
        for entry in entries {
            let index = entry.lsn.index;
            match self.log.term_at(index) {
                Some(known) if known == entry.lsn.term => continue,
                Some(_) => {
                    assert!(index > self.commit, "{from} would replace the committed message {index}");
                    self.log.truncate_from(index);
                    out.persist(Record::TruncateFrom(index));
                }
                None => {}
            }
            self.append(entry, out);
        }
    }

    /// An acknowledgement rests on the messages that it names, and on the ballot of this leader.
    pub(crate) fn acknowledge(&mut self, leader: NodeId, index: u64, out: &mut Effects<Gmt2000>) {
        let term = self.promise.term;
        let is_hasty = self.has_defect(Defect::UnsyncedAcknowledgement);
        let rests_on = if is_hasty { RestsOn::Nothing } else { RestsOn::Entry(index) };
        out.send_resting_on(rests_on, leader, Message::Stored { term, index });
    }

    // --- The leader counts. --------------------------------------------------------------------------------------

    pub(crate) fn on_stored(&mut self, from: NodeId, index: u64, out: &mut Effects<Gmt2000>) {
        let (last, first) = (self.log.last().index, self.log.first_index());
        let Part::Leader(leader) = &mut self.part else { return };
        let Some(peer) = leader.peers.get_mut(&from) else { return };
        peer.is_active = true;
        if index > last {
            // Nobody can store what this leader never wrote.
            return;
        }
        let is_news = peer.on_stored(index);
        match peer.pace {
            Pace::Probe { .. } => peer.become_flow(),
            // Whatever snapshot was offered, the log can go on from here; or it was compacted further meanwhile, and a newer
            // one is offered next.
            Pace::Fetch { pending } if peer.stored + 1 >= first || peer.stored >= pending => peer.become_flow(),
            _ => {}
        }
        if is_news && self.advance_commit(out) {
            return;
        }
        if from != self.me {
            self.serve_peer(from, out);
        }
    }

    fn serve_peer(&mut self, peer: NodeId, out: &mut Effects<Gmt2000>) {
        self.send_entries_to(peer, out);
        self.tell_commit(peer, out);
        self.on_peer_progressed(peer, out);
    }

    /// Commits what a majority stored; says whether there was anything. A change of membership among it changes who is
    /// counted, so what comes behind is looked at again at once (RM-8): nobody else may ever acknowledge it.
    pub(crate) fn advance_commit(&mut self, out: &mut Effects<Gmt2000>) -> bool {
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

    /// The highest index beyond the commit that a majority stored, if it is of this leader's own term.
    fn index_reached(&self) -> Option<u64> {
        let Part::Leader(leader) = &self.part else { return None };
        let reached = self.membership.reached(|id| leader.peers.get(&id).map_or(0, |peer| peer.stored));
        let reached = reached.min(self.log.last().index);
        let is_own = self.log.term_at(reached) == Some(self.promise.term) || self.has_defect(Defect::CommitsOldTerms);
        (reached > self.commit && is_own).then_some(reached)
    }

    fn commit_through(&mut self, index: u64, out: &mut Effects<Gmt2000>) {
        let committed = self.commit + 1..=index;
        let bytes: usize = committed.filter_map(|at| self.log.entry(at)).map(|entry| entry.payload.len()).sum();
        if let Part::Leader(leader) = &mut self.part {
            leader.uncommitted_bytes = leader.uncommitted_bytes.saturating_sub(bytes);
        }
        self.apply_through(index, out);
    }

    fn on_commit_advanced(&mut self, out: &mut Effects<Gmt2000>) {
        for peer in self.others() {
            self.serve_peer(peer, out);
        }
        self.release_early_reads(out);
        self.step_down_if_removed(out);
    }

    pub(crate) fn on_gap(
        &mut self,
        from: NodeId,
        refused: u64,
        hint_index: u64,
        hint_term: Option<Term>,
        out: &mut Effects<Gmt2000>,
    ) {
        // Down from the follower's guess, while the own message there is of a later term than the follower's.
        let guess = hint_term.map_or(hint_index, |term| self.log.last_at_most(hint_index, term).0);
        let Part::Leader(leader) = &mut self.part else { return };
        let Some(peer) = leader.peers.get_mut(&from) else { return };
        peer.is_active = true;
        if peer.on_gap(refused, guess) {
            self.send_entries_to(from, out);
        }
    }

    pub(crate) fn on_heard(
        &mut self,
        from: NodeId,
        round: u64,
        priority: Priority,
        is_installing: bool,
        out: &mut Effects<Gmt2000>,
    ) {
        let Part::Leader(leader) = &mut self.part else { return };
        let Leader { peers, reads, .. } = &mut **leader;
        let Some(peer) = peers.get_mut(&from) else { return };
        peer.is_active = true;
        peer.priority = priority;
        peer.round = peer.round.max(round.min(reads.highest()));
        let is_fetching = matches!(peer.pace, Pace::Fetch { .. });
        // All that was sent is lost, and by now compacted away: no heartbeat can name the place that it should stand behind.
        let is_left_behind = !is_fetching && self.log.place_before(peer.next).is_none();
        if is_left_behind || (is_fetching && !is_installing) {
            // Or: the offer was lost, or the peer was reborn without it.
            peer.become_probe(peer.stored + 1);
            self.send_entries_to(from, out);
        }
        self.confirm_reads(out);
        self.hand_over_as_caretaker(from, out);
    }

    /// `[OURS]` A leader that no majority answers steps down, so that nobody waits for it.
    pub(crate) fn on_quorum_check(&mut self, out: &mut Effects<Gmt2000>) {
        let (me, last, membership) = (self.me, self.log.last().index, self.membership.clone());
        let Part::Leader(leader) = &mut self.part else { return };
        let is_heard = |id: NodeId| id == me || leader.peers.get(&id).is_some_and(|peer| peer.is_active);
        let has_majority = membership.verdict(|id| Some(is_heard(id))) == Verdict::Won;
        if !has_majority && self.published.is_none() {
            let heard = membership.all_voters().filter(|id| is_heard(*id)).collect();
            return self.become_follower(self.promise.term, None, Reason::QuorumLost(heard), out);
        }
        for peer in leader.peers.values_mut() {
            let is_ready = peer.is_active && peer.stored == last;
            peer.ready_checks = if is_ready { peer.ready_checks.saturating_add(1) } else { 0 };
            peer.is_active = false;
        }
        out.set_timer(Timer::QuorumCheck, self.timing.election_min..=self.timing.election_min);
        self.hand_over_to_preferred(out);
    }

    /// A fresh start for a peer that is new in the membership.
    pub(crate) fn welcome(leader: &mut Leader, peer: NodeId, last: u64) {
        leader.peers.entry(peer).or_insert_with(|| Peer::new(last));
    }
}
