//! Replication: a leader's appends, a follower's answers, and the count of both.
//!
//! Sources: Raft §5.3, §5.4.2; rules RA-1 to RA-9, RC-1 to RC-3. How proposals become entries and entries are committed is
//! the same under all protocols with a log in order ([`hustings_core::leading::Replicating`]).

use crate::laboratory::Defect;
use crate::message::Message;
use crate::raft::{Raft, RoleState, Timer};
use hustings_core::leading::{Adopting, Following, HandingOver, Leads, Pace, Portion, Progress, Reading, Replicating};
use hustings_core::options::Options as _;
use hustings_core::{Effects, Entry, Lsn, NodeId, Priority, Reason, RestsOn, Term};

impl Raft {
    // --- The leader sends. ---------------------------------------------------------------------------------------

    /// Every peer that this leader sends to.
    pub(crate) fn others(&self) -> Vec<NodeId> {
        self.office().map_or(Vec::new(), |office| office.others(self.node.me))
    }

    pub(crate) fn progress_mut(&mut self, peer: NodeId) -> Option<&mut Progress> {
        match &mut self.role_state {
            RoleState::Leader(office) => office.peers.get_mut(&peer),
            _ => None,
        }
    }

    /// RA-6: a probe at a time, or optimistically until the window is full; RA-7: a snapshot where entries are gone.
    pub(crate) fn send_entries_to(&mut self, peer: NodeId, out: &mut Effects<Raft>) {
        let (term, commit) = (self.node.promise.term, self.node.commit);
        loop {
            let Some((node, office)) = self.split() else { return };
            let progress = office.peers.get_mut(&peer);
            match progress.and_then(|progress| progress.next_portion(&node.log, commit, &node.limits)) {
                None => return,
                Some(Portion::Snapshot) => return self.send_snapshot_to(peer, out),
                Some(Portion::Entries { previous, entries, is_probe }) => {
                    // New entries rest on nothing: the followers' disks need not wait for this one's.
                    let append = Message::Append { term, previous, entries, commit };
                    out.send_resting_on(RestsOn::Nothing, peer, append);
                    if is_probe {
                        return;
                    }
                }
            }
        }
    }

    /// Sends an append without entries, to find a peer whose whole window was lost (RH-14).
    fn send_empty_to(&mut self, peer: NodeId, out: &mut Effects<Raft>) {
        let Some(progress) = self.progress_of(peer) else { return };
        let Some(previous) = self.node.log.place_before(progress.next) else {
            // All that was sent is lost, and by now compacted away.
            return self.send_snapshot_to(peer, out);
        };
        let (term, commit) = (self.node.promise.term, self.node.commit);
        let append = Message::Append { term, previous, entries: Vec::new(), commit };
        out.send_resting_on(RestsOn::Nothing, peer, append);
    }

    /// Tells a peer what of its log is committed, if that is news to it.
    fn tell_commit(&mut self, peer: NodeId, out: &mut Effects<Raft>) {
        let (term, commit) = (self.node.promise.term, self.node.commit);
        let Some(progress) = self.progress_mut(peer) else { return };
        let index = commit.min(progress.known.stored);
        if index > progress.told_commit {
            progress.told_commit = index;
            out.send_resting_on(RestsOn::Nothing, peer, Message::Commit { term, index });
        }
    }

    // --- Followers. ----------------------------------------------------------------------------------------------

    /// RA-1: only missing or conflicting entries are written; a duplicate or an older message changes nothing (RH-11).
    pub(crate) fn on_append(
        &mut self,
        from: NodeId,
        previous: Lsn,
        entries: Vec<Entry>,
        commit: u64,
        out: &mut Effects<Raft>,
    ) {
        if !self.options.is_laboratory()
            && let Some(because) = self.node.contradicted(from, previous, &entries)
        {
            return self.become_follower(self.node.promise.term, None, because, out);
        }
        if previous.index < self.node.commit {
            return self.acknowledge(from, self.node.commit, out);
        }
        let is_unchecked = self.has(Defect::SkipsLogCheck) && previous.index <= self.node.log.last().index;
        if !self.node.log.has(previous) && !is_unchecked {
            let (term, refused) = (self.node.promise.term, previous.index);
            let (hint_index, hint_term) = self.node.log.last_at_most(refused, previous.term);
            let reply = Message::Rejected { term, index: refused, hint_index, hint_term };
            return out.send_resting_on(RestsOn::Promise, from, reply);
        }
        let end = previous.index + entries.len() as u64;
        self.take_committed_first(from, entries, commit, end, out);
        self.acknowledge(from, end, out);
    }

    /// The leader knows this node to hold this index, and it is committed (RC-3). An index beyond the log is no leader's word.
    pub(crate) fn on_commit(&mut self, index: u64, out: &mut Effects<Raft>) {
        if index <= self.node.log.last().index && self.node.installing.is_none() {
            self.apply_through(index, out);
        }
    }

    pub(crate) fn on_heartbeat(&mut self, from: NodeId, commit: u64, position: u64, out: &mut Effects<Raft>) {
        self.on_commit(commit, out);
        let reply = Message::HeartbeatReply {
            term: self.node.promise.term,
            position,
            priority: self.node.priority(),
            is_installing: self.node.installing.is_some(),
        };
        // An answer to a heartbeat confirms this leader's reign; a term that a crash could undo confirms nothing.
        out.send_resting_on(RestsOn::Promise, from, reply);
    }

    // --- The leader counts. --------------------------------------------------------------------------------------

    pub(crate) fn on_matched(&mut self, from: NodeId, index: u64, out: &mut Effects<Raft>) {
        let (last, first) = (self.node.log.last().index, self.node.log.first_index());
        let Some(progress) = self.progress_mut(from) else { return };
        progress.known.is_active = true;
        if index > last {
            // Nobody can match what this leader never wrote.
            return;
        }
        let is_news = progress.on_stored(index);
        match progress.pace {
            // Also when the index was known: a caught-up peer that was probed flows again (RA-5).
            Pace::Probe { .. } if index == progress.known.stored => progress.become_flow(),
            // The log can go on from here, whichever snapshot was asked for (RH-15).
            Pace::Fetch { .. } if progress.known.stored + 1 >= first => progress.become_flow(),
            _ => {}
        }
        if is_news && self.advance_commit(out) {
            return;
        }
        if from != self.node.me {
            self.serve_peer(from, out);
        }
    }

    fn serve_peer(&mut self, peer: NodeId, out: &mut Effects<Raft>) {
        self.send_entries_to(peer, out);
        self.tell_commit(peer, out);
        self.on_peer_progressed(peer, out);
    }

    /// Commits what a quorum holds, and does what waited for it; says whether there was anything.
    pub(crate) fn advance_commit(&mut self, out: &mut Effects<Raft>) -> bool {
        if !self.commit_reached(out) {
            return false;
        }
        for peer in self.others() {
            self.serve_peer(peer, out);
        }
        self.release_early_reads(out);
        self.leave_joint_if_due(out);
        self.step_down_if_removed(out);
        true
    }

    pub(crate) fn on_rejected(
        &mut self,
        from: NodeId,
        rejected: u64,
        hint_index: u64,
        hint_term: Option<Term>,
        out: &mut Effects<Raft>,
    ) {
        // RA-4: walk down from the follower's guess while this log's term there is newer than the follower's.
        let candidate = hint_term.map_or(hint_index, |term| self.node.log.last_at_most(hint_index, term).0);
        let Some(progress) = self.progress_mut(from) else { return };
        progress.known.is_active = true;
        if probe_below(progress, rejected, candidate) {
            self.send_entries_to(from, out);
        }
    }

    // --- Heartbeats, and what they tell. -------------------------------------------------------------------------

    pub(crate) fn on_heartbeat_timer(&mut self, out: &mut Effects<Raft>) {
        self.send_heartbeats(out);
        out.set_timer(Timer::Heartbeat, self.node.timing.heartbeat..=self.node.timing.heartbeat);
    }

    /// Sends a heartbeat, which rests on nothing: no heartbeat ever waits for a disk.
    pub(crate) fn send_heartbeat_to(&mut self, peer: NodeId, out: &mut Effects<Raft>) {
        let (is_bold, is_caretaker) = (self.has(Defect::CommitsUnmatched), self.is_caretaker());
        let (term, commit, position) = (self.node.promise.term, self.node.commit, self.own_round());
        let last = self.node.log.last().index;
        let Some(progress) = self.progress_mut(peer) else { return };
        let commit = if is_bold { commit } else { commit.min(progress.known.stored) };
        progress.told_commit = progress.told_commit.max(commit);
        let message = match progress.asks(position, last) || is_caretaker {
            true => Message::Heartbeat { term, commit, position },
            // A sign of life to which nobody answers.
            false => Message::Commit { term, index: commit },
        };
        out.send_resting_on(RestsOn::Nothing, peer, message);
    }

    pub(crate) fn on_heartbeat_reply(
        &mut self,
        from: NodeId,
        position: u64,
        priority: Priority,
        is_installing: bool,
        out: &mut Effects<Raft>,
    ) {
        let (last, highest) = (self.node.log.last().index, self.own_round());
        let Some(progress) = self.progress_mut(from) else { return };
        progress.known.on_heard(position, highest, priority);
        progress.unpause();
        let is_window_stuck = match &progress.pace {
            Pace::Fetch { .. } if !is_installing => {
                // The offer was lost, or the peer was reborn without it.
                progress.become_probe(progress.known.stored + 1);
                false
            }
            Pace::Flow(window) => progress.known.stored < last && !window.is_empty(),
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
        let (last, checks) = (self.node.log.last().index, self.options.check_quorum);
        let Some((node, office)) = self.split() else { return };
        let heard = office.heard(node);
        if checks && !node.is_quorum(&heard) {
            return self.become_follower(self.node.promise.term, None, Reason::QuorumLost(heard), out);
        }
        office.end_check(last);
        out.set_timer(Timer::QuorumCheck, node.timing.election_min..=node.timing.election_min);
        self.on_checked(out);
    }
}

/// The peer refused entries after `rejected`; `candidate` is the leader's guess of the last agreement (RA-4). Says whether
/// the refusal was news: stale ones change nothing.
fn probe_below(peer: &mut Progress, rejected: u64, candidate: u64) -> bool {
    match peer.pace {
        Pace::Flow(_) if rejected > peer.known.stored => {
            peer.become_probe(peer.known.stored + 1);
            peer.in_flight_max = 1;
            true
        }
        Pace::Probe { .. } if Some(rejected) == peer.next.checked_sub(1) => {
            let before = peer.next;
            peer.become_probe(rejected.min(candidate.saturating_add(1)));
            // It lacks what it once acknowledged: asking again at the speed of the link would not bring it back.
            peer.pace = Pace::Probe { is_paused: peer.next == before };
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_refusal_messages_flow_one_by_one_and_each_acknowledgement_lets_one_more_go() {
        let mut peer = Progress::new(10);
        peer.become_flow();
        assert!(probe_below(&mut peer, 7, 3));
        assert_eq!(peer.in_flight_max, 1);
        assert!(peer.on_stored(1));
        assert!(!peer.on_stored(1), "the same acknowledgement again is no news");
        assert_eq!(peer.in_flight_max, 2);
    }

    #[test]
    fn a_peer_that_lost_what_it_acknowledged_is_asked_once_a_heartbeat() {
        let mut peer = Progress::new(10);
        assert!(peer.on_stored(10));
        peer.become_probe(11);
        assert!(probe_below(&mut peer, 10, 4));
        assert_eq!(peer.pace, Pace::Probe { is_paused: true });
        peer.unpause();
        assert_eq!(peer.pace, Pace::Probe { is_paused: false });
    }
}
