//! LEAD: proposals become messages, messages are acknowledged, and commit once a majority has acknowledged them.
//!
//! Source: the note of 2000 says that LEAD messages are numbered (term, msg), serve as heartbeats and disseminate state; the
//! rest is `[OURS]`, §4.8 of `docs/protocols/rules`. A LEAD carries the place of the message before, so that gaps are seen and
//! refused. The leader's own copy counts only once it is durable, like everyone else's, so all disks work at the same time:
//!
//! ```text
//!    leader    ──Put──┬─ LEAD ──► follower ──Put── fsync ── Stored ──┐
//!                     └─ fsync ── Stored (to itself) ────────────────┴──► majority: commit, apply, tell
//! ```
//!
//! A message commits when a majority stored it *in the term in which it was sent*; older ones commit with the first own one.
//! Otherwise a message could be committed by counting and yet be cut back by a leader that saw a later term (Raft, figure 8).

use crate::gmt2000::{Gmt2000, RoleState, Timer};
use crate::laboratory::Defect;
use crate::message::Message;
use hustings_core::leading::{Adopting, Following, HandingOver, Leads, Pace, Portion, Progress, Reading, Replicating};
use hustings_core::{Effects, Entry, Lsn, NodeId, Priority, Reason, RestsOn, Term};

impl Gmt2000 {
    // --- The leader sends. ---------------------------------------------------------------------------------------

    pub(crate) fn others(&self) -> Vec<NodeId> {
        self.office().map_or(Vec::new(), |office| office.others(self.node.me))
    }

    pub(crate) fn peer_mut(&mut self, peer: NodeId) -> Option<&mut Progress> {
        match &mut self.role_state {
            RoleState::Leader(office) => office.peers.get_mut(&peer),
            _ => None,
        }
    }

    /// One LEAD with entries while probing, as many as the window takes while in step, a snapshot where entries are gone.
    pub(crate) fn send_entries_to(&mut self, to: NodeId, out: &mut Effects<Gmt2000>) {
        let (term, commit) = (self.node.promise.term, self.node.commit);
        loop {
            let Some((node, office)) = self.split() else { return };
            let peer = office.peers.get_mut(&to);
            match peer.and_then(|peer| peer.next_portion(&node.log, commit, &node.limits)) {
                None => return,
                Some(Portion::Snapshot) => return self.send_snapshot_to(to, out),
                Some(Portion::Entries { previous, entries, is_probe }) => {
                    // New entries rest on nothing: the followers' disks need not wait for this one's. The record that they do rest
                    // on, the ballot, is durable: nobody leads before its own vote is.
                    let lead = Message::Lead { term, previous, entries, commit, round: None };
                    out.send_resting_on(RestsOn::Nothing, to, lead);
                    if is_probe {
                        return;
                    }
                }
            }
        }
    }

    /// A LEAD without entries; with a round it is a heartbeat and wants an answer. Rests on nothing: no heartbeat ever waits
    /// for a disk.
    fn send_empty_to(&mut self, to: NodeId, round: Option<u64>, out: &mut Effects<Gmt2000>) {
        let (term, commit) = (self.node.promise.term, self.node.commit);
        let Some((node, office)) = self.split() else { return };
        let Some(peer) = office.peers.get_mut(&to) else { return };
        // Where the place is compacted away the peer needs a snapshot, and every log agrees on what is before the first.
        let previous = node.log.place_before(peer.next).unwrap_or(Lsn::ZERO);
        peer.told_commit = peer.told_commit.max(commit.min(previous.index));
        let lead = Message::Lead { term, previous, entries: Vec::new(), commit, round };
        out.send_resting_on(RestsOn::Nothing, to, lead);
    }

    /// Tells a peer in step what of its log is committed, if that is news to it and no entries carry the news.
    fn tell_commit(&mut self, to: NodeId, out: &mut Effects<Gmt2000>) {
        let Some(peer) = self.peer(to) else { return };
        let is_news = self.node.commit.min(peer.known.stored) > peer.told_commit;
        if is_news && matches!(peer.pace, Pace::Flow(_)) {
            self.send_empty_to(to, None, out);
        }
    }

    pub(crate) fn on_heartbeat_timer(&mut self, out: &mut Effects<Gmt2000>) {
        self.send_heartbeats(out);
        self.watch_own_heartbeat_as_published(out);
        out.set_timer(Timer::Heartbeat, self.node.timing.heartbeat..=self.node.timing.heartbeat);
    }

    pub(crate) fn send_heartbeat_to(&mut self, to: NodeId, out: &mut Effects<Gmt2000>) {
        let (round, last, is_caretaker) = (self.own_round(), self.node.log.last().index, self.is_caretaker());
        let asks = self.peer_mut(to).is_none_or(|peer| peer.asks(round, last)) || is_caretaker;
        self.send_empty_to(to, asks.then_some(round), out);
    }

    // --- Followers. ----------------------------------------------------------------------------------------------

    pub(crate) fn on_lead(
        &mut self,
        from: NodeId,
        previous: Lsn,
        entries: Vec<Entry>,
        commit: u64,
        round: Option<u64>,
        out: &mut Effects<Gmt2000>,
    ) {
        if !self.is_laboratory()
            && let Some(because) = self.node.contradicted(from, previous, &entries)
        {
            return self.become_follower(self.node.promise.term, None, because, out);
        }
        if let Some(round) = round {
            self.answer_heartbeat(from, round, out);
        }
        if previous.index < self.node.commit {
            // The commit of this node is in the leader's log; the rest of this message comes again, from there on.
            return self.acknowledge(from, self.node.commit, out);
        }
        let is_trusting = self.has_defect(Defect::SkipsLogCheck) && previous.index <= self.node.log.last().index;
        if !self.node.log.has(previous) && !is_trusting {
            return self.refuse_gap(from, previous, out);
        }
        let is_bare = entries.is_empty() && round.is_none();
        let end = previous.index + entries.len() as u64;
        self.take_committed_first(from, entries, commit, end, out);
        if !is_bare {
            self.acknowledge(from, end, out);
        }
    }

    /// An answer confirms this leader's reign: its sender has voted in no later ballot. It rests on the ballot, which is durable
    /// but for the first answer to a new leader.
    fn answer_heartbeat(&mut self, leader: NodeId, round: u64, out: &mut Effects<Gmt2000>) {
        let (priority, is_installing) = (self.node.said_priority(), self.node.installing.is_some());
        let heard = Message::Heard { term: self.node.promise.term, round, priority, is_installing };
        out.send_resting_on(RestsOn::Promise, leader, heard);
    }

    fn refuse_gap(&mut self, leader: NodeId, previous: Lsn, out: &mut Effects<Gmt2000>) {
        if self.node.installing.is_some() {
            // The snapshot closes it.
            return;
        }
        let (hint_index, hint_term) = self.node.log.last_at_most(previous.index, previous.term);
        let gap = Message::Gap { term: self.node.promise.term, index: previous.index, hint_index, hint_term };
        out.send_resting_on(RestsOn::Promise, leader, gap);
    }

    // --- The leader counts. --------------------------------------------------------------------------------------

    pub(crate) fn on_stored(&mut self, from: NodeId, index: u64, out: &mut Effects<Gmt2000>) {
        let (last, first) = (self.node.log.last().index, self.node.log.first_index());
        let Some(peer) = self.peer_mut(from) else { return };
        peer.known.is_active = true;
        if index > last {
            // Nobody can store what this leader never wrote.
            return;
        }
        let is_news = peer.on_stored(index);
        match peer.pace {
            Pace::Probe { .. } => peer.become_flow(),
            // The log can go on from here, whichever snapshot was offered.
            Pace::Fetch { .. } if peer.known.stored + 1 >= first => peer.become_flow(),
            _ => {}
        }
        if is_news && self.advance_commit(out) {
            return;
        }
        if from != self.node.me {
            self.serve_peer(from, out);
        }
    }

    fn serve_peer(&mut self, peer: NodeId, out: &mut Effects<Gmt2000>) {
        self.send_entries_to(peer, out);
        self.tell_commit(peer, out);
        self.on_peer_progressed(peer, out);
    }

    /// Commits what a majority stored, and does what waited for it; says whether there was anything.
    pub(crate) fn advance_commit(&mut self, out: &mut Effects<Gmt2000>) -> bool {
        if !self.commit_reached(out) {
            return false;
        }
        for peer in self.others() {
            self.serve_peer(peer, out);
        }
        self.release_early_reads(out);
        self.step_down_if_removed(out);
        true
    }

    pub(crate) fn on_gap(
        &mut self,
        from: NodeId,
        refused: u64,
        hint_index: u64,
        hint_term: Option<Term>,
        out: &mut Effects<Gmt2000>,
    ) {
        // Down from the follower's guess, while this log's message there is of a later term than the follower's.
        let guess = hint_term.map_or(hint_index, |term| self.node.log.last_at_most(hint_index, term).0);
        let Some(peer) = self.peer_mut(from) else { return };
        peer.known.is_active = true;
        if probe_below(peer, refused, guess) {
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
        let highest = self.own_round();
        let Some((node, office)) = self.split() else { return };
        let Some(peer) = office.peers.get_mut(&from) else { return };
        peer.known.on_heard(round, highest, priority);
        let is_fetching = matches!(peer.pace, Pace::Fetch { .. });
        // All that was sent is lost, and by now compacted away: no heartbeat can name the place that it should stand behind.
        let is_left_behind = !is_fetching && node.log.place_before(peer.next).is_none();
        if is_left_behind || (is_fetching && !is_installing) {
            // Or: the offer was lost, or the peer was reborn without it.
            peer.become_probe(peer.known.stored + 1);
            self.send_entries_to(from, out);
        }
        self.confirm_reads(out);
        self.hand_over_as_caretaker(from, out);
    }

    /// `[OURS]` A leader that no majority answers steps down, so that nobody waits for it.
    pub(crate) fn on_quorum_check(&mut self, out: &mut Effects<Gmt2000>) {
        let (last, is_ours) = (self.node.log.last().index, self.published.is_none());
        let Some((node, office)) = self.split() else { return };
        let heard = office.heard(node);
        if is_ours && !node.is_quorum(&heard) {
            return self.become_follower(self.node.promise.term, None, Reason::QuorumLost(heard), out);
        }
        office.end_check(last);
        out.set_timer(Timer::QuorumCheck, node.timing.election_min..=node.timing.election_min);
        self.on_checked(out);
    }
}

/// The peer lacks the message at `refused`; `guess` is where the logs may agree. Says whether the news counted.
fn probe_below(peer: &mut Progress, refused: u64, guess: u64) -> bool {
    let is_flowing = matches!(peer.pace, Pace::Flow(_));
    let is_probed = matches!(peer.pace, Pace::Probe { .. }) && Some(refused) == peer.next.checked_sub(1);
    let is_news = refused > peer.known.stored && (is_flowing || is_probed);
    if is_flowing && is_news {
        peer.in_flight_max = 1;
    }
    if is_news {
        peer.become_probe(refused.min(guess.saturating_add(1)));
    }
    is_news
}
