//! ZAB's side of the leader code that all protocols share ([`hustings_core::leading`]), and its own part of hand-over
//! and of SNAP by reference.
//!
//! `[OURS]`: ZooKeeper reads locally and offers `sync`; its reconfiguration passes through both old and new quorums; it streams
//! the whole tree to a follower that is too far behind (§5.9 rule 5); and ZAB has no hand-over.
//!
//! Here memberships that follow each other share a member in any two majorities. That is safe because a leader starts
//! one change at a time and only once all of its history is committed, and because the record of a commit precedes
//! every later entry: a node that holds a second change knows that the first is in force, and one that does not is
//! refused by everyone who does (§5.8 rule 6). A successor, once it holds everything, is told so, and then the leader
//! resigns: everybody looks for a leader at once, and among equal histories the successor's vote is the best.

use crate::laboratory::Defect;
use crate::learner::Learner;
use crate::message::Message;
use crate::zab::{Phase, RoleState, Timer, Zab};
use hustings_core::leading::{
    Adopting, Halves, HandingOver, Haste, InOrder, Leads, Node, Office, Reading, Replicating,
};
use hustings_core::{
    Effect, Effects, Log, Lsn, MembershipChange, NodeId, Priority, Reason, Refusal, RestsOn, SnapshotReference, Ticket,
};

impl Leads for Zab {
    type Log = Log;
    type Peer = Learner;

    const TRANSFER_TIMER: Timer = Timer::Transfer;
    const PATIENCE_TIMER: Timer = Timer::Patience;

    fn node(&self) -> &Node {
        &self.node
    }

    fn node_mut(&mut self) -> &mut Node {
        &mut self.node
    }

    /// The office of a leader that serves; everything with which its epoch began is committed then.
    fn office(&self) -> Option<&Office<Learner>> {
        match &self.role_state {
            RoleState::Leading(leading) if leading.phase == Phase::Broadcast => Some(&leading.office),
            _ => None,
        }
    }

    fn split(&mut self) -> Option<Halves<'_, Zab>> {
        match &mut self.role_state {
            RoleState::Leading(leading) if leading.phase == Phase::Broadcast => {
                Some((&mut self.node, &mut leading.office))
            }
            _ => None,
        }
    }

    fn is_in_sync(learner: &Learner) -> bool {
        learner.is_synced()
    }

    /// The synchronised voter with the longest log, and of several the one with the highest priority; ties go to the largest id.
    fn best_successor(&self) -> Option<NodeId> {
        let RoleState::Leading(leading) = &self.role_state else { return None };
        let others = self.node.membership.voters.iter().filter(|id| **id != self.node.me);
        let ranked = others.filter_map(|id| {
            let learner = leading.office.peers.get(id).filter(|learner| learner.is_synced())?;
            let (stored, priority) = (learner.known.stored, learner.known.priority);
            (priority != Priority::Never).then_some(((stored, priority, *id), *id))
        });
        ranked.max().map(|(_, id)| id)
    }

    fn is_hasty(&self, haste: Haste) -> bool {
        haste == Haste::ChangesTogether && self.has_defect(Defect::ChangesTogether)
    }

    fn ask_for_round(&mut self, ticket: Ticket, out: &mut Effects<Zab>) {
        let (commit, is_lonely) = (self.node.commit, self.has_defect(Defect::ReadsWithoutQuorum));
        match self.split() {
            Some((_, office)) if !is_lonely => office.reads.ask(ticket, commit),
            _ => return out.push(Effect::ReadAt { ticket, index: commit }),
        }
        if !self.confirm_reads(out) {
            self.send_heartbeats(out);
        }
    }

    /// PING, to all who are being synchronised or are. Rests on nothing: it never waits for a disk. `[OURS]` A follower whose
    /// answer nobody needs is told what is committed instead: a sign of life to which it does not answer.
    fn send_heartbeats(&mut self, out: &mut Effects<Zab>) {
        let (epoch, me) = (self.node.promise.term, self.node.me);
        let asks_all = self.is_caretaker() || !self.is_serving();
        let (last, committed) = (self.node.log.last().index, self.node.commit);
        let RoleState::Leading(leading) = &mut self.role_state else { return };
        let round = leading.office.reads.highest();
        for (to, learner) in leading.office.peers.iter_mut().filter(|(id, _)| **id != me) {
            if !learner.is_forwarded() {
                continue;
            }
            let connection = learner.connection;
            let message = if learner.asks(round, last) || asks_all {
                Message::Ping { connection, epoch, round }
            } else {
                let commit = committed.min(learner.next - 1);
                learner.told_commit = learner.told_commit.max(commit);
                Message::Commit { connection, epoch, commit }
            };
            out.send_resting_on(RestsOn::Nothing, *to, message);
        }
    }

    /// Sends nothing: the entries that a learner lacks are on their way on its connection.
    fn catch_up(&mut self, _: NodeId, _: &mut Effects<Zab>) {}

    /// The successor hears of it before it hears that the leader resigned.
    fn tell_successor(&mut self, successor: NodeId, because: Reason, out: &mut Effects<Zab>) {
        let epoch = self.node.promise.term;
        let RoleState::Leading(leading) = &self.role_state else { return };
        if let Some(learner) = leading.office.peers.get(&successor) {
            let handover = Message::Handover { connection: learner.connection, epoch };
            out.send_resting_on(RestsOn::Nothing, successor, handover);
        }
        self.hand_over_to(successor, because, out);
    }

    fn hand_over_and_follow(&mut self, because: Reason, out: &mut Effects<Zab>) {
        match self.best_successor() {
            Some(successor) => self.tell_successor(successor, because, out),
            None => self.become_looking(because, out),
        }
    }

    fn append_change(&mut self, change: MembershipChange, out: &mut Effects<Zab>) {
        self.write_change(&change, out);
    }

    /// Does nothing: a removed member stays connected until it has heard so, and then leaves by itself.
    fn adjust_peers(&mut self, _: &mut Effects<Zab>) {}
}

impl InOrder for Zab {
    fn own_refusal(&self) -> Option<Refusal> {
        self.has_spent_counter().then_some(Refusal::Transferring)
    }

    /// Sends new entries to everybody; and to itself, on the way through its own disk.
    fn spread(&mut self, out: &mut Effects<Zab>) {
        let (epoch, index) = (self.node.promise.term, self.node.log.last().index);
        out.send_resting_on(RestsOn::Entry(index), self.node.me, Message::Ack { connection: 0, epoch, index });
        for learner in self.learners() {
            self.serve(learner, out);
        }
    }

    fn index_reached(&self) -> u64 {
        let counted = |id| self.learner(id).map_or(0, Learner::counted);
        self.node.membership.reached(counted)
    }

    /// Everything in a leader's log is its own to commit: a quorum holds the history with which its epoch began.
    fn may_commit(&self, _: u64) -> bool {
        true
    }
}

impl Zab {
    /// The leader resigns in this node's favour.
    pub(crate) fn on_handover(&mut self, from: NodeId) {
        self.node.note_hand_over(from);
        self.is_successor = self.may_lead();
    }

    // --- SNAP. ---------------------------------------------------------------------------------------------------

    pub(crate) fn send_snapshot_to(&mut self, to: NodeId, out: &mut Effects<Zab>) {
        let epoch = self.node.promise.term;
        let Some(reference) = self.node.snapshot.clone() else {
            unreachable!("entries are compacted only below a snapshot");
        };
        let Some(learner) = self.learner_mut(to) else { return };
        learner.become_fetch(reference.lsn.index);
        let connection = learner.connection;
        out.send_resting_on(RestsOn::Nothing, to, Message::Snapshot { connection, epoch, reference });
    }

    pub(crate) fn on_snapshot(&mut self, from: NodeId, reference: SnapshotReference, out: &mut Effects<Zab>) {
        let lsn = reference.lsn;
        if self.node.has_covered(lsn) {
            // The log is longer than it seemed. Entries behind are not the leader's, unless they were said to be.
            self.apply_through(lsn.index, out);
            if self.is_synchronizing() && self.node.commit < self.node.log.last().index {
                self.node.truncate_from(self.node.commit + 1, out);
            }
            return self.acknowledge(from, lsn.index, out);
        }
        if self.fetching.is_none() && self.node.installing.is_none() {
            self.fetching = Some(reference.clone());
            out.push(Effect::FetchSnapshot { from, reference });
        }
    }

    pub(crate) fn on_snapshot_ready(&mut self, reference: SnapshotReference, out: &mut Effects<Zab>) {
        // Of a connection that has ended, nothing is asked any more. By its place: a witness writes one of its own instead of fetching
        // this one's bytes (ADR 40); or through an earlier one, which had been begun, and the next PONG asks for what follows it.
        if self.fetching.take_if(|fetching| reference.lsn.index <= fetching.lsn.index).is_none() {
            return;
        }
        let RoleState::Following(following) = &self.role_state else { unreachable!("leaving forgets what is fetched") };
        let (leader, index, membership) = (following.leader, reference.lsn.index, reference.membership.clone());
        if self.node.has_covered(reference.lsn) {
            // The log came to this place on an earlier connection.
            return self.on_snapshot(leader, reference, out);
        }
        self.node.installing = Some(reference.clone());
        self.node.install(reference, out);
        self.adopt(membership, index, out);
        out.send(leader, Message::Ack { connection: self.connection, epoch: self.node.promise.term, index });
        if self.is_retired() {
            self.retire(out);
        }
    }

    /// Its owner is gone or has a newer one: the next PONG says that nothing is being installed, and another is offered.
    pub(crate) fn on_snapshot_failed(&mut self, reference: &SnapshotReference) {
        self.fetching.take_if(|fetching| fetching == reference);
    }

    pub(crate) fn on_snapshot_installed(&mut self, lsn: Lsn, out: &mut Effects<Zab>) {
        if self.node.end_install(lsn) {
            // It may lead again.
            self.look_again(out);
        }
    }
}
