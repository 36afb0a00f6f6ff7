//! BlazingMQ's side of the leader code that all protocols share ([`hustings_core::leading`]), and its own part of
//! hand-over, snapshots and changes of membership.
//!
//! `[OURS]`: BlazingMQ's nodes are configured, its operators force a leader by the size of the quorum, and it sends its
//! whole state, which is small, as a record that is additive (§2.9); here a snapshot replaces the state.
//!
//! Changes of membership are of one voter at a time. They are safe because memberships that follow each other share a member in
//! any two majorities, because a leader starts one change at a time and only after the start of its own term is committed, and
//! because the record of a commit precedes every later record: a node that holds a second change knows that the first is in
//! force. Any node may lead, however old its ledger, so nothing else would keep one from leading by a membership two changes
//! old: nobody supports a node that does not know of a change that is in force here.
//!
//! A successor, once it holds everything, proposes in the leader's name, and nobody sticks to that leader; the old leader
//! supports it like everybody else.

use crate::blazingmq::{BlazingMq, Kind, RoleState, Timer};
use crate::healing::Stage;
use crate::laboratory::Defect;
use crate::message::Message;
use crate::options::Quorums;
use crate::peer::{Pace, Peer};
use hustings_core::leading::{
    Acknowledging, Adopting, Following, Halves, Haste, InOrder, Leads, Node, Office, Reading, Replicating,
    SendsToMembers, Welcoming,
};
use hustings_core::{
    Effects, Entry, EntryKind, Log, Lsn, Membership, MembershipChange, MembershipError, MembershipRefusal, NodeId,
    Reason, RestsOn,
};

impl Leads for BlazingMq {
    type Log = Log;
    type Peer = Peer;

    const TRANSFER_TIMER: Timer = Timer::Transfer;
    const PATIENCE_TIMER: Timer = Timer::Patience;

    fn node(&self) -> &Node {
        &self.node
    }

    fn node_mut(&mut self) -> &mut Node {
        &mut self.node
    }

    fn office(&self) -> Option<&Office<Peer>> {
        match &self.role_state {
            RoleState::Leader(leader) => Some(&leader.office),
            _ => None,
        }
    }

    fn split(&mut self) -> Option<Halves<'_, BlazingMq>> {
        match &mut self.role_state {
            RoleState::Leader(leader) => Some((&mut self.node, &mut leader.office)),
            _ => None,
        }
    }

    fn may_transfer(&self) -> bool {
        matches!(&self.role_state, RoleState::Leader(leader) if leader.stage == Stage::Active)
    }

    /// From the start of its term on: a caretaker whose start needs one that lacks a state would wait for it for ever.
    fn may_give_way(&self) -> bool {
        self.is_started()
    }

    fn best_successor(&self) -> Option<NodeId> {
        self.office()?.best_successor(&self.node, |id| !self.unavailable.contains(&id))
    }

    fn round_reached(&self) -> u64 {
        if self.has(Defect::ReadsWithoutQuorum) {
            return self.own_round();
        }
        self.reached(Kind::Vote, |id| self.round_of(id))
    }

    /// Below as many voters as the operator's quorums ask for nobody would be elected, or nothing committed, ever again.
    fn permitted(&self, next: Membership) -> Result<Membership, MembershipError> {
        let Quorums { vote, sync, commit } = self.options.quorums;
        let (voters, needed) = (next.voters.len(), vote.max(sync).max(commit));
        if voters >= needed || voters >= self.node.membership.voters.len() {
            return Ok(next);
        }
        let what = format!("{voters} voters would be left, and the quorums of this cluster ask for {needed}");
        Err(MembershipError { kind: MembershipRefusal::NoVoters, what })
    }

    fn is_hasty(&self, haste: Haste) -> bool {
        haste == Haste::ChangesTogether && self.has(Defect::ChangesTogether)
    }

    /// Rule 24: sends everybody a heartbeat.
    fn send_heartbeats(&mut self, out: &mut Effects<BlazingMq>) {
        for peer in self.others() {
            self.send_heartbeat_to(peer, out);
        }
    }

    fn catch_up(&mut self, to: NodeId, out: &mut Effects<BlazingMq>) {
        self.send_records_to(to, out);
    }

    fn tell_successor(&mut self, to: NodeId, _: Reason, out: &mut Effects<BlazingMq>) {
        out.send_resting_on(RestsOn::Nothing, to, Message::Handover { term: self.node.promise.term });
    }

    /// Without a successor everybody is told.
    fn hand_over_and_follow(&mut self, because: Reason, out: &mut Effects<BlazingMq>) {
        let Some(successor) = self.best_successor() else { return self.step_down(because, out) };
        self.tell_successor(successor, because.clone(), out);
        self.give_way(because, out);
    }

    fn append_change(&mut self, change: MembershipChange, out: &mut Effects<BlazingMq>) {
        self.write_change(&change, out);
    }

    fn adjust_peers(&mut self, out: &mut Effects<BlazingMq>) {
        self.welcome_and_dismiss(out);
    }
}

impl SendsToMembers for BlazingMq {
    fn newcomer(_: u64) -> Peer {
        Peer::new()
    }

    /// The last records to it tell what is committed.
    fn dismiss(&mut self, peer: NodeId, stored: u64, out: &mut Effects<BlazingMq>) {
        let (term, commit) = (self.node.promise.term, self.node.commit);
        let index = commit.min(stored);
        if let Some(at) = self.node.log.term_at(index) {
            let previous = Lsn { term: at, index };
            let records = Message::Records { term, previous, entries: Vec::new(), commit };
            out.send_resting_on(RestsOn::Nothing, peer, records);
        }
    }
}

impl InOrder for BlazingMq {
    /// Only a leader whose term has started writes (§2.8).
    fn own_refusal(&self) -> Option<hustings_core::Refusal> {
        (!self.is_started()).then_some(hustings_core::Refusal::NotReady)
    }

    fn on_own_entry(&mut self, entry: &Entry) {
        if let RoleState::Leader(leader) = &mut self.role_state
            && entry.kind == EntryKind::Protocol
        {
            leader.pending_primaries = entry.lsn.index;
        }
    }

    fn spread(&mut self, out: &mut Effects<BlazingMq>) {
        self.count_own_log(out);
        for peer in self.others() {
            self.send_records_to(peer, out);
        }
    }

    fn index_reached(&self) -> u64 {
        let stored = |id: NodeId| self.office().map_or(0, |office| office.stored(id));
        let alone = if self.has(Defect::CommitsAlone) { stored(self.node.me) } else { 0 };
        self.reached(Kind::Commit, stored).max(alone)
    }

    fn on_committed(&mut self, entry: &Entry, out: &mut Effects<BlazingMq>) {
        match entry.kind {
            EntryKind::Membership => self.apply_membership(entry, out),
            EntryKind::Protocol => self.apply_primaries(entry, out),
            EntryKind::Blank | EntryKind::Command => {}
        }
    }
}

impl Acknowledging for BlazingMq {
    fn stored_message(&self, index: u64) -> Message {
        Message::Ack { term: self.node.promise.term, index }
    }

    fn snapshot_failed_message(&self, lsn: Lsn) -> Message {
        Message::SnapshotFailed { term: self.node.promise.term, lsn }
    }

    fn after_snapshot(&mut self, out: &mut Effects<BlazingMq>) {
        self.resume_pull(out);
    }

    fn after_failed_snapshot(&mut self, out: &mut Effects<BlazingMq>) {
        self.give_up_source(out);
    }
}

impl BlazingMq {
    /// Offers the snapshot to a peer whose records are compacted away.
    pub(crate) fn send_snapshot_to(&mut self, to: NodeId, out: &mut Effects<BlazingMq>) {
        let Some(reference) = self.node.snapshot.clone() else {
            unreachable!("records are compacted only below a snapshot");
        };
        let Some(peer) = self.peer_mut(to) else { return };
        peer.become_fetch(reference.lsn.index);
        out.send_resting_on(RestsOn::Nothing, to, Message::Snapshot { term: self.node.promise.term, reference });
    }

    /// The peer could not have the snapshot: the answer to the next heartbeat leads to another offer, which avoids a
    /// tight loop. The peer ignored records sent during the fetch.
    pub(crate) fn on_snapshot_refused(&mut self, from: NodeId, out: &mut Effects<BlazingMq>) {
        let Some(peer) = self.peer_mut(from) else { return };
        peer.known.is_active = true;
        if peer.pace == Pace::Probe {
            self.probe(from, out);
        }
    }

    /// The leader hands over to this node.
    pub(crate) fn on_handover(&mut self, from: NodeId, out: &mut Effects<BlazingMq>) {
        self.node.note_hand_over(from);
        if self.node.may_lead() {
            self.become_candidate(Reason::Transfer(from), true, out);
        }
    }
}
