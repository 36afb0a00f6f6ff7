//! The acceptor: accepts values, and commits slots that a leader says are committed. TA-5 to TA-8, TF-1, TF-2, TL-6.
//!
//! Slots come in any order and may leave holes. An accept of a ballot not below the promise is written together with
//! the promise that it implies, in one batch (TA-7, TH-9), and answered when both are durable (TI-2). A slot that is committed
//! here is never written again (TA-6). A leader below the promise is heard by nobody (TF-1 `[NORM]`, TH-16): its
//! commits commit nothing, and do not keep quiet.

use crate::Accept;
use crate::laboratory::Defect;
use crate::message::{Heartbeat, Message};
use crate::paxos::{Paxos, RoleState};
use hustings_core::leading::Leads;
use hustings_core::{Effects, NodeId, Reason, Record, RestsOn, Term};

/// Most slots beyond its commit that a leader proposes, and that an acceptor takes: a recovering leader fills every
/// hole up to the highest slot that anybody accepted, so that one number must not be without bounds.
pub(crate) const SLOTS_AHEAD_MAX: u64 = 1 << 16;

impl Paxos {
    pub(crate) fn on_accept(
        &mut self,
        from: NodeId,
        ballot: Term,
        accepts: Vec<Accept>,
        commit: u64,
        out: &mut Effects<Paxos>,
    ) {
        if ballot.node() != from.0 {
            return;
        }
        let is_lax = self.has(Defect::AcceptsOldBallots);
        if ballot < self.node.promise.term && !is_lax {
            // TA-5.
            let nack = Message::AcceptNack { ballot, promised: self.node.promise.term, committed: self.node.commit };
            return out.send_resting_on(RestsOn::Nothing, from, nack);
        }
        if ballot > self.node.promise.term && !accepts.is_empty() {
            // TA-7: the promise in the batch of the values.
            self.give_way_to_accept(from, ballot, out);
        }
        if ballot < self.node.promise.term {
            // Only with the defect: not even that leader is followed.
        } else {
            self.hear_leader(from, out);
        }
        if accepts.iter().any(|accept| accept.entry().lsn.index > self.node.commit + SLOTS_AHEAD_MAX) {
            // A node so far behind catches up first.
            return self.learn_commit(from, ballot, commit, out);
        }
        let first = accepts.first().map(|accept| accept.entry().lsn.index.max(self.node.commit + 1));
        let last = accepts.last().map(|accept| accept.entry().lsn.index);
        for accept in accepts {
            let entry = accept.into_entry();
            let held = self.node.log.ballot_at(entry.lsn.index);
            // TA-6, and what came twice.
            if entry.lsn.index > self.node.commit && held.is_none_or(|held| held < entry.lsn.term) {
                self.node.log.put(entry.clone());
                out.persist(Record::Put(entry));
            }
        }
        if let (Some(from_slot), Some(through)) = (first, last) {
            if from_slot <= through {
                let committed = self.node.commit;
                let ack = Message::AcceptAck { ballot, from: from_slot, through, committed };
                out.send(from, ack);
            } else {
                let nack =
                    Message::AcceptNack { ballot, promised: self.node.promise.term, committed: self.node.commit };
                out.send_resting_on(RestsOn::Nothing, from, nack);
            }
        }
        self.learn_commit(from, ballot, commit, out);
    }

    /// TF-2: slots that were accepted in this leader's ballot are chosen through here; the missing ones are asked for.
    fn learn_commit(&mut self, from: NodeId, ballot: Term, slot: u64, out: &mut Effects<Paxos>) {
        if slot <= self.node.commit || self.node.installing.is_some() {
            return;
        }
        let mut end = self.node.log.run_at(self.node.commit, slot, ballot);
        while self.has(Defect::CommitsOldBallots) && end < slot && self.node.log.slot(end + 1).is_some() {
            end += 1;
        }
        self.apply_through(end, out);
        if end < slot {
            self.ask_for_committed(from, out);
        }
    }

    /// TF-1, TL-6: takes a leader's heartbeat.
    pub(crate) fn on_commit(
        &mut self,
        from: NodeId,
        heartbeat: Heartbeat,
        slot: u64,
        stored: u64,
        asks: bool,
        out: &mut Effects<Paxos>,
    ) {
        let Heartbeat { ballot, counter } = heartbeat;
        if ballot.node() != from.0 || !self.heartbeat.may_become(heartbeat) {
            return;
        }
        if ballot < self.node.promise.term {
            let nack = Message::AcceptNack { ballot, promised: self.node.promise.term, committed: self.node.commit };
            return out.send_resting_on(RestsOn::Nothing, from, nack);
        }
        if heartbeat > self.heartbeat || self.node.leader == Some(from) {
            let is_fresh = heartbeat > self.heartbeat;
            self.heartbeat = self.heartbeat.max(heartbeat);
            if is_fresh {
                self.hear_leader(from, out);
            }
        } else if self.node.leader.is_none() && heartbeat == self.heartbeat {
            // A poll's answer told of it first: the leader is heard again all the same.
            self.hear_leader(from, out);
        }
        self.learn_commit(from, ballot, slot, out);
        let floor = slot.max(self.node.commit);
        let held = self.node.log.run_at(floor, u64::MAX, ballot);
        // A slot that is committed here and not there was another leader's, and is always news.
        if asks || self.node.commit > slot {
            let priority = self.node.said_priority();
            let ack = Message::CommitAck { ballot, counter, committed: self.node.commit, held, priority };
            out.send_resting_on(RestsOn::Nothing, from, ack);
        }
        let unknown = floor.max(stored) + 1;
        let through = if ballot == self.node.promise.term { held.max(unknown - 1) } else { unknown - 1 };
        if through >= unknown || self.node.commit > stored {
            // The leader does not know yet; the answer may have been lost.
            out.send(from, Message::AcceptAck { ballot, from: unknown, through, committed: self.node.commit });
        }
    }

    /// The disk does not answer: a leader gives way while its messages still do (ADR 31).
    pub(crate) fn on_disk_stalled(&mut self, out: &mut Effects<Paxos>) {
        self.node.is_disk_stalled = true;
        if self.reign().is_some() {
            self.hand_over_and_follow(Reason::DiskStalled, out);
        }
        if matches!(self.role_state, RoleState::Polling(_)) {
            // Its own promise would come when the disk does, and then against somebody who leads.
            self.back_down(Reason::DiskStalled, out);
        }
    }
}
