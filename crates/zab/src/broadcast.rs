//! Broadcast: proposals in zxid order, acknowledged once they are durable, committed by a quorum.
//!
//! Source: the ZAB paper, phase 3; §5.10 of `docs/protocols/rules`, whose rule numbers these are.
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
use crate::zab::{Lost, Phase, RoleState, Timer, Zab};
use hustings_core::leading::{Adopting, HandingOver, Leads, Reading, Replicating};
use hustings_core::options::Options as _;
use hustings_core::{Effects, Entry, Lsn, NodeId, Priority, Reason, RestsOn};

/// Most connections per voter that end in silence, one after the other, while nothing is committed, before the leader resigns.
const LOST_MAX: usize = 2;

impl Zab {
    // --- The leader writes. --------------------------------------------------------------------------------------

    /// The counter of a zxid: how many entries this epoch has.
    pub fn counter(&self) -> u64 {
        match &self.role_state {
            RoleState::Leading(leading) => self.node.log.last().index - leading.epoch_start,
            _ => 0,
        }
    }

    pub(crate) fn has_spent_counter(&self) -> bool {
        self.counter() >= u64::from(self.options.counter_max)
    }

    /// Everybody who is connected, but for this node itself.
    pub(crate) fn learners(&self) -> Vec<NodeId> {
        match &self.role_state {
            RoleState::Leading(leading) => leading.office.others(self.node.me),
            _ => Vec::new(),
        }
    }

    // --- Followers. ----------------------------------------------------------------------------------------------

    /// Rule 2: writes the entries and acknowledges them; in synchronisation the same, and counted only behind NEWLEADER.
    pub(crate) fn on_proposal(
        &mut self,
        from: NodeId,
        previous: Lsn,
        mut entries: Vec<Entry>,
        commit: u64,
        out: &mut Effects<Zab>,
    ) {
        // On a session, an entry behind SNAP says that the leader waits for no snapshot any more: what it sent SNAP for came late.
        self.fetching = None;
        if !self.options.is_laboratory()
            && let Some(because) = self.node.contradicted(from, previous, &entries)
        {
            return self.become_looking(because, out);
        }
        if previous.index >= self.node.commit && !self.node.log.has(previous) && !self.has_defect(Defect::KeepsTail) {
            // Not what follows: this connection is no session any more.
            return self.become_looking(Reason::LinkDown(from), out);
        }
        let end = previous.index + entries.len() as u64;
        let later = entries.split_off(entries.iter().take_while(|entry| entry.lsn.index <= commit).count());
        // The commit is recorded before any later entry is: a node that holds a second change of membership knows that
        // the first is in force.
        if entries.iter().chain(&later).any(|entry| self.contradicts(entry)) {
            assert!(!self.options.is_laboratory(), "what a planted defect led to is a finding, and not looked over");
            // Two logs with one history, and an entry of which they disagree: this is no leader's.
            return self.become_looking(Reason::LinkDown(from), out);
        }
        self.take_entries(entries, out);
        self.on_commit(commit.min(end - later.len() as u64), out);
        self.take_entries(later, out);
        if matches!(self.role_state, RoleState::Following(_)) {
            self.acknowledge(from, end, out);
        }
    }

    /// Whether this log holds another entry in the same place.
    fn contradicts(&self, entry: &Entry) -> bool {
        let known = self.node.log.term_at(entry.lsn.index);
        known.is_some_and(|known| known != entry.lsn.term) && !self.has_defect(Defect::KeepsTail)
    }

    fn take_entries(&mut self, entries: Vec<Entry>, out: &mut Effects<Zab>) {
        let last = self.node.log.last().index;
        for entry in entries.into_iter().filter(|entry| entry.lsn.index > last) {
            self.node.append(entry, out);
        }
    }

    /// An acknowledgement rests on the entries that it names, and on the epoch.
    pub(crate) fn acknowledge(&mut self, leader: NodeId, index: u64, out: &mut Effects<Zab>) {
        let ack = Message::Ack { connection: self.connection, epoch: self.node.promise.term, index };
        out.send_resting_on(RestsOn::Entry(index), leader, ack);
    }

    /// Rule 4: commits in order, and never beyond the end of this log.
    pub(crate) fn on_commit(&mut self, commit: u64, out: &mut Effects<Zab>) {
        self.apply_through(commit.min(self.node.log.last().index), out);
        if self.is_retired() {
            self.retire(out);
        }
    }

    // --- The leader counts. --------------------------------------------------------------------------------------

    pub(crate) fn on_ack(&mut self, from: NodeId, index: u64, out: &mut Effects<Zab>) {
        let last = self.node.log.last().index;
        let Some(learner) = self.learner_mut(from) else { return };
        // Nobody can hold what this leader never wrote.
        if index <= last {
            learner.on_stored(index);
            self.on_progress(from, out);
        }
    }

    /// Rule 3: a learner has stored more; commits if a quorum has, and sends it more.
    pub(crate) fn on_progress(&mut self, from: NodeId, out: &mut Effects<Zab>) {
        if self.advance_commit(out) {
            return;
        }
        self.serve_and_tell(from, out);
    }

    fn serve_and_tell(&mut self, to: NodeId, out: &mut Effects<Zab>) {
        if to != self.node.me {
            self.serve(to, out);
            self.tell_commit(to, out);
            self.on_peer_progressed(to, out);
        }
    }

    /// Commits what a quorum of synchronised servers holds, and does what waited for it; says whether there was anything.
    pub(crate) fn advance_commit(&mut self, out: &mut Effects<Zab>) -> bool {
        if !self.commit_reached(out) {
            return false;
        }
        for learner in self.learners() {
            self.serve_and_tell(learner, out);
        }
        self.step_down_if_removed(out);
        self.resign_if_counter_is_spent(out);
        true
    }

    /// Tells a follower what of its log is committed, if that is news to it and no entries carried the news.
    fn tell_commit(&mut self, to: NodeId, out: &mut Effects<Zab>) {
        let (epoch, commit) = (self.node.promise.term, self.node.commit);
        let Some(learner) = self.learner_mut(to) else { return };
        let commit = commit.min(learner.next - 1);
        if learner.is_synced() && learner.fetching.is_none() && commit > learner.told_commit {
            learner.told_commit = commit;
            let connection = learner.connection;
            out.send_resting_on(RestsOn::Nothing, to, Message::Commit { connection, epoch, commit });
        }
    }

    /// Rule 5: no zxid is ever used twice. The next epoch counts from zero again (ZB-11).
    fn resign_if_counter_is_spent(&mut self, out: &mut Effects<Zab>) {
        if self.is_serving() && self.has_spent_counter() && self.node.commit == self.node.log.last().index {
            self.become_looking(Reason::CounterSpent, out);
        }
    }

    // --- Pings. --------------------------------------------------------------------------------------------------

    pub(crate) fn on_ping_timer(&mut self, out: &mut Effects<Zab>) {
        self.send_heartbeats(out);
        self.invite(out);
        out.set_timer(Timer::Ping, self.node.timing.heartbeat..=self.node.timing.heartbeat);
    }

    /// `[OURS]` Members that are not connected hear that there is a leader, also those that it has never heard of.
    pub(crate) fn invite(&mut self, out: &mut Effects<Zab>) {
        let RoleState::Leading(leading) = &self.role_state else { return };
        let is_stranger = |id: &NodeId| !leading.office.peers.contains_key(id) && !self.node.links_down.contains(id);
        for member in self.node.membership.everyone().filter(is_stranger) {
            self.notify(member, out);
        }
    }

    /// An answer confirms this leader's reign: its sender has accepted no later epoch.
    pub(crate) fn on_ping(&mut self, from: NodeId, round: u64, out: &mut Effects<Zab>) {
        let priority = self.said_priority();
        let is_installing = self.fetching.is_some() || self.node.installing.is_some();
        let (connection, epoch) = (self.connection, self.node.promise.term);
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
        let highest = self.own_round();
        let Some(learner) = self.learner_mut(from) else { return };
        learner.known.on_heard(round, highest, priority);
        if learner.fetching.is_some() && !is_installing {
            // It could not have the snapshot that was offered, or has an earlier one: the entries behind it, if they are still here, or
            // another one, or the same again.
            learner.fetching = None;
            learner.next = learner.known.stored + 1;
            self.serve(from, out);
        }
        self.confirm_reads(out);
        self.hand_over_as_caretaker(from, out);
        self.give_way_unsettled(from, out);
    }

    /// Number of connections that may end in silence while nothing is committed.
    pub(crate) fn lost_max(&self) -> usize {
        self.node.membership.all_voters().count() * LOST_MAX
    }

    /// A leader that no quorum answers resigns; and a follower that does not answer is
    /// let go, as one whose socket timed out.
    pub(crate) fn on_quorum_check(&mut self, out: &mut Effects<Zab>) {
        let (me, last, commit) = (self.node.me, self.node.log.last().index, self.node.commit);
        let (lost_max, is_caretaker) = (self.lost_max(), self.is_caretaker());
        let RoleState::Leading(leading) = &mut self.role_state else { unreachable!("leaving cancels the timer") };
        let heard = leading.office.heard(&self.node);
        if !self.node.is_quorum(&heard) {
            return self.give_up_leading(heard, out);
        }
        let mut silent = Vec::new();
        let wanted = leading.office.begin_check(last);
        for (id, learner) in leading.office.peers.iter_mut().filter(|(id, _)| **id != me) {
            let keeps_up = learner.is_synced() && learner.known.stored >= wanted;
            if !learner.known.end_check(keeps_up) {
                silent.push((*id, learner.connection));
            }
        }
        for (id, _) in &silent {
            leading.office.peers.remove(id);
        }
        let is_done = leading.phase == Phase::Broadcast && commit == last;
        let goes_on = leading.lost.commit == commit && !is_done;
        // Of a learner nobody needs an answer.
        let voters = silent.iter().filter(|(id, _)| self.node.membership.is_voter(*id)).count();
        let connections = if goes_on { leading.lost.connections + voters } else { 0 };
        leading.lost = Lost { commit, connections: connections.min(lost_max + 1) };
        let is_in_vain = connections > lost_max && !is_caretaker && !self.options.as_published;
        for (id, connection) in silent {
            self.say_goodbye(id, connection, out);
        }
        if is_in_vain {
            // `[OURS]` Followers come, are heard too late and go before they have acknowledged anything, so slow are this leader's links. A
            // quorum is heard at any time, and nothing is ever committed. Others may be closer to each other.
            return self.give_up_leading(heard, out);
        }
        out.set_timer(Timer::QuorumCheck, self.node.timing.election_min..=self.node.timing.election_min);
        self.on_checked(out);
        self.give_care_away_unsettled(out);
    }
}
