//! The ledger in step: records, acknowledgements, commits. §2.7 of `docs/protocols/rules`.
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

use crate::blazingmq::{BlazingMq, Kind, Leader, RoleState, Timer};
use crate::message::Message;
use crate::peer::{Pace, Peer};
use hustings_core::leading::{Adopting, Following, HandingOver, Leads, Reading, Replicating};
use hustings_core::options::Options as _;
use hustings_core::quorum::Verdict;
use hustings_core::{Effects, Entry, Lsn, NodeId, Priority, Reason, RestsOn};
use std::sync::Arc;

impl BlazingMq {
    // --- The leader sends. ---------------------------------------------------------------------------------------

    pub(crate) fn others(&self) -> Vec<NodeId> {
        self.office().map_or(Vec::new(), |office| office.others(self.node.me))
    }

    pub(crate) fn peer_mut(&mut self, peer: NodeId) -> Option<&mut Peer> {
        self.split().and_then(|(_, office)| office.peers.get_mut(&peer))
    }

    /// A peer has this place in its ledger, durably: records flow from there if this leader has it too; otherwise the
    /// last common place is searched for below, or is compacted away.
    pub(crate) fn place_peer(&mut self, to: NodeId, place: Lsn, out: &mut Effects<BlazingMq>) {
        if !self.is_started() {
            return;
        }
        let has_it = self.node.log.has(place);
        let (index, found) = self.node.log.last_at_most(place.index, place.term);
        let Some(peer) = self.peer_mut(to) else { return };
        peer.known.is_active = true;
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
        let (term, commit) = (self.node.promise.term, self.node.commit);
        let Some(next) = self.peer(to).map(|peer| peer.next) else { return };
        let Some(previous) = self.node.log.place_before(next) else { return self.send_snapshot_to(to, out) };
        let entries = self.node.log.slice(next, usize::MAX, self.node.limits.message_bytes_max);
        out.send_resting_on(RestsOn::Nothing, to, Message::Records { term, previous, entries, commit });
    }

    /// Sends as many records as the window takes, or a snapshot where they are gone.
    pub(crate) fn send_records_to(&mut self, to: NodeId, out: &mut Effects<BlazingMq>) {
        let (term, commit, limits) = (self.node.promise.term, self.node.commit, self.node.limits);
        loop {
            let Some(peer) = self.peer(to) else { return };
            let next = peer.next;
            if peer.is_full(&limits) || next > self.node.log.last().index {
                return;
            }
            let Some(previous) = self.node.log.place_before(next) else { return self.send_snapshot_to(to, out) };
            let entries = self.node.log.slice(next, usize::MAX, limits.message_bytes_max);
            let end = previous.index + entries.len() as u64;
            let cost = entries.iter().map(Entry::cost).sum();
            let Some(peer) = self.peer_mut(to) else { return };
            peer.on_sent(end, cost);
            peer.told_commit = peer.told_commit.max(commit.min(end));
            // New records rest on nothing: the followers' disks need not wait for this one's. The record that they do rest on, the
            // term, is durable: nobody leads before its own is.
            out.send_resting_on(RestsOn::Nothing, to, Message::Records { term, previous, entries, commit });
        }
    }

    /// Tells a peer in step what of its ledger is committed, if that is news to it and no records carry the news.
    fn tell_commit(&mut self, to: NodeId, out: &mut Effects<BlazingMq>) {
        let (term, commit) = (self.node.promise.term, self.node.commit);
        let Some(peer) = self.peer_mut(to) else { return };
        let index = commit.min(peer.known.stored);
        if index <= peer.told_commit || !matches!(peer.pace, Pace::Flow(_)) {
            return;
        }
        peer.told_commit = index;
        if let Some(at) = self.node.log.term_at(index) {
            let previous = Lsn { term: at, index };
            out.send_resting_on(RestsOn::Nothing, to, Message::Records { term, previous, entries: Vec::new(), commit });
        }
    }

    pub(crate) fn on_heartbeat_timer(&mut self, out: &mut Effects<BlazingMq>) {
        self.send_heartbeats(out);
        out.set_timer(Timer::Heartbeat, self.node.timing.heartbeat..=self.node.timing.heartbeat);
    }

    /// Sends a heartbeat, which rests on nothing: no heartbeat ever waits for a disk.
    pub(crate) fn send_heartbeat_to(&mut self, to: NodeId, out: &mut Effects<BlazingMq>) {
        let (term, commit, is_active) =
            (self.node.promise.term, self.node.commit, self.role() == hustings_core::Role::Leader);
        let (round, last, is_caretaker) = (self.own_round(), self.node.log.last().index, self.is_caretaker());
        let Some((_, office)) = self.split() else { return };
        let (commit, asks) = office.peers.get_mut(&to).map_or((0, true), |peer| {
            let is_absent = peer.pace == Pace::Absent;
            let known = if is_absent { 0 } else { commit.min(peer.known.stored) };
            peer.told_commit = peer.told_commit.max(known);
            (known, peer.asks(round, last))
        });
        // Until it is healed, a leader wants to hear everybody.
        let asks = asks || is_caretaker || !is_active;
        out.send_resting_on(RestsOn::Nothing, to, Message::Heartbeat { term, round, commit, is_active, asks });
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
        if !self.options.is_laboratory()
            && let Some(because) = self.node.contradicted(from, previous, &entries)
        {
            self.lose_leader(because, out);
            return self.wait(out);
        }
        if end <= self.node.commit {
            return self.acknowledge(from, self.node.commit, out);
        }
        if previous.index < self.node.commit {
            // This node's committed records are in the leader's ledger too: the rest follows the commit.
            if entries.iter().any(|entry| entry.lsn.index == self.node.commit && entry.lsn != self.node.committed()) {
                // It is not, so this is no leader's ledger.
                return self.refuse_gap(from, previous, out);
            }
            let rest = entries.into_iter().filter(|entry| entry.lsn.index > self.node.commit).collect();
            self.take_committed_first(from, rest, commit, end, out);
            return self.acknowledge(from, end, out);
        }
        if !self.node.log.has(previous) {
            return self.refuse_gap(from, previous, out);
        }
        let is_bare = entries.is_empty();
        self.take_committed_first(from, entries, commit, end, out);
        if self.node.committed().term == self.node.promise.term {
            // §2.8, rule 11: a commit of this term heals.
            self.see_leader_active(out);
        }
        if !is_bare {
            self.acknowledge(from, end, out);
        }
    }

    fn refuse_gap(&mut self, leader: NodeId, previous: Lsn, out: &mut Effects<BlazingMq>) {
        if self.node.installing.is_some() {
            // The snapshot closes it.
            return;
        }
        let (index, found) = self.node.log.last_at_most(previous.index, previous.term);
        let hint = found.map_or(self.node.committed(), |term| Lsn { term, index });
        let hint = if hint.index < self.node.commit { self.node.committed() } else { hint };
        // Rests on the ledger that it speaks of.
        out.send(leader, Message::Gap { term: self.node.promise.term, hint });
    }

    // --- The leader counts. --------------------------------------------------------------------------------------

    pub(crate) fn on_ack(&mut self, from: NodeId, index: u64, out: &mut Effects<BlazingMq>) {
        let last = self.node.log.last().index;
        let Some(peer) = self.peer_mut(from) else { return };
        peer.known.is_active = true;
        if index > last {
            // Nobody can hold what this leader never wrote.
            return;
        }
        let is_news = peer.on_stored(index);
        match peer.pace {
            Pace::Probe => peer.become_flow(),
            Pace::Fetch { pending } if peer.known.stored >= pending => peer.become_flow(),
            _ => {}
        }
        if is_news && self.advance_commit(out) {
            return;
        }
        if from != self.node.me {
            self.serve_peer(from, out);
        }
    }

    fn serve_peer(&mut self, peer: NodeId, out: &mut Effects<BlazingMq>) {
        self.send_records_to(peer, out);
        self.tell_commit(peer, out);
        self.on_peer_progressed(peer, out);
    }

    /// Commits what a quorum holds, and does what waited for it; says whether there was anything.
    pub(crate) fn advance_commit(&mut self, out: &mut Effects<BlazingMq>) -> bool {
        let members = self.node.membership.clone();
        if !self.commit_reached(out) {
            return false;
        }
        self.become_active_if_started(out);
        if !Arc::ptr_eq(&members, &self.node.membership) {
            self.tend_partitions(out);
        }
        for peer in self.others() {
            self.serve_peer(peer, out);
        }
        self.release_early_reads(out);
        self.step_down_if_removed(out);
        true
    }

    pub(crate) fn on_heard(
        &mut self,
        from: NodeId,
        round: u64,
        priority: Priority,
        is_installing: bool,
        out: &mut Effects<BlazingMq>,
    ) {
        let RoleState::Leader(leader) = &mut self.role_state else { return };
        let Leader { office, supporters, lsns, .. } = &mut **leader;
        let Some(peer) = office.peers.get_mut(&from) else { return };
        peer.known.on_heard(round, office.reads.highest(), priority);
        supporters.insert(from);
        if !lsns.contains_key(&from) {
            // It follows, and registered when it was not a member yet: where its ledger ends is not known.
            let term = self.node.promise.term;
            out.send_resting_on(RestsOn::Promise, from, Message::LsnRequest { term });
        }
        let is_fetching = matches!(peer.pace, Pace::Fetch { .. });
        if is_fetching && !is_installing {
            // The offer was refused, or the peer was reborn without it.
            peer.become_probe(peer.known.stored + 1);
            self.probe(from, out);
        }
        self.confirm_reads(out);
        self.hand_over_as_caretaker(from, out);
    }

    /// `[OURS]` Check-quorum: a leader that no quorum answers steps down, so that nobody waits for it (§1.10/7).
    pub(crate) fn on_quorum_check(&mut self, out: &mut Effects<BlazingMq>) {
        let last = self.node.log.last().index;
        let Some(heard) = self.office().map(|office| office.heard(&self.node)) else { return };
        if self.verdict(Kind::Vote, |id| Some(heard.contains(&id))) != Verdict::Won {
            return self.step_down(Reason::QuorumLost(heard), out);
        }
        let Some((node, office)) = self.split() else { return };
        let wanted = office.begin_check(last);
        office.peers.values_mut().for_each(|peer| peer.end_check(wanted));
        out.set_timer(Timer::QuorumCheck, node.timing.election_min..=node.timing.election_min);
        self.tend_partitions(out);
        self.on_checked(out);
    }
}
