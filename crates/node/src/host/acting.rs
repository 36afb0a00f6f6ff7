//! The way out of the loop: it does what its replica wants, and hands on at the end of a turn what the turn has produced.

use super::{Host, Proposer};
use crate::counters::Counters;
use crate::handle::{Applied, Readable, RequestError};
use crate::snapshots::SnapshotJob;
use hustings_core::protocol::DiskHealth;
use hustings_core::replica::{Action, Event, RecordNumber, ReplicaMessage, RequestId};
use hustings_core::{NodeId, Protocol, Record, StateMachine};
use std::sync::Arc;
use tokio::time::Instant;

/// Bytes that a forwarded proposal takes in a frame besides its payload, at most.
const FORWARD_OVERHEAD_BYTES: usize = 64;

/// Whether this action answers a caller that waits.
fn is_answer<P: Protocol, S: StateMachine>(action: &Action<P, S>) -> bool {
    matches!(
        action,
        Action::Applied { .. }
            | Action::Reconfigured { .. }
            | Action::Refused { .. }
            | Action::Unknown { .. }
            | Action::Readable { .. }
            | Action::Unreadable { .. }
            | Action::AdminEnded { .. }
    )
}

/// Hands a message on, in parts where proposals that wait together do not fit into one frame: each fits alone.
fn within_frames<M>(message: ReplicaMessage<M>, frame_bytes_max: usize, mut put: impl FnMut(ReplicaMessage<M>)) {
    let ReplicaMessage::Forward { incarnation, requests } = message else { return put(message) };
    let (mut part, mut bytes) = (Vec::new(), 0);
    for request in requests {
        let more = request.payload.len() + FORWARD_OVERHEAD_BYTES;
        if bytes + more > frame_bytes_max && !part.is_empty() {
            put(ReplicaMessage::Forward { incarnation, requests: std::mem::take(&mut part) });
            bytes = 0;
        }
        bytes += more;
        part.push(request);
    }
    put(ReplicaMessage::Forward { incarnation, requests: part });
}

impl<P: Protocol, S: StateMachine> Host<P, S> {
    /// Ends the link to a member that was removed, which hears so at its next handshake; until then its last messages leave.
    pub(super) fn end_if_removed(&self, peer: NodeId) {
        let is_removed = self.wiring.gatekeeper.borrow().membership.has_removed(peer);
        if let Some(link) = self.links.get(&peer).filter(|_| is_removed) {
            link.outbox.end();
        }
    }

    /// Does what the replica wants, in order; records are collected for one batch per turn.
    pub(super) fn act(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        let mut is_status_told = false;
        for action in actions.drain(..) {
            match &action {
                Action::Stop { .. } => self.tell_transitions(),
                // A client that has an answer finds the status that it came from: its membership, and what is applied.
                action if is_answer(action) && !is_status_told => {
                    self.tell_status();
                    is_status_told = true;
                }
                _ => {}
            }
            match action {
                Action::Persist(number, record) => self.persist(number, record),
                Action::Send(to, message) => {
                    if let Some(link) = self.links.get(&to) {
                        let bytes_max = self.wiring.links.frame_bytes_max;
                        within_frames(message, bytes_max, |message| link.outbox.put(message));
                    }
                }
                Action::SetTimer(timer, after) => {
                    let (me, membership) = (self.replica.me(), self.replica.membership());
                    let after = self.succession.part(&timer, after, me, membership);
                    self.timers.arm(timer, &after, Instant::now());
                }
                Action::CancelTimer(timer) => self.timers.disarm(timer),
                Action::Applied { request, lsn, response } => {
                    Counters::add(&self.wiring.counters.proposals_applied, 1);
                    if let Some(Proposer::Client(answer)) = self.proposers.remove(&request) {
                        let _ = answer.send(Ok(Applied { lsn, response }));
                    }
                }
                Action::Reconfigured { request, membership } => match self.proposers.remove(&request) {
                    Some(Proposer::Operator(answer)) => drop(answer.send(Ok(membership))),
                    _ => self.describing.go_on(),
                },
                Action::Refused { request, refusal } => self.fail(request, RequestError::Refused(refusal)),
                Action::Unknown { request } => self.fail(request, RequestError::Unknown),
                Action::Readable { requests, applied, view } => {
                    for request in requests {
                        if let Some(answer) = self.readers.remove(&request) {
                            let _ = answer.send(Ok(Readable { applied, view: view.0.0.clone() }));
                        }
                    }
                }
                Action::Unreadable { requests } => self.refuse_reads(&requests),
                Action::AdminEnded { request, outcome } => {
                    if let Some(answer) = self.admins.remove(&request) {
                        let _ = answer.send(outcome);
                    }
                }
                Action::Announce(transition) => self.on_transition(transition),
                Action::Version(version) => self.on_version(version),
                Action::Digest(contents) => self.on_digest_wanted(contents),
                Action::Stop { why } => {
                    (self.wiring.on_fatal)(&why);
                    self.has_ended = true;
                }
                Action::Membership(membership) => {
                    self.wiring.gatekeeper.borrow_mut().membership = membership;
                    self.links.keys().for_each(|peer| self.end_if_removed(*peer));
                    self.wiring.links.follow_membership();
                    self.mark_membership();
                }
                Action::CutSnapshot(contents) => self.hand_to_snapshots(SnapshotJob::Cut(contents)),
                Action::StoreChunk { reference, offset, bytes } => {
                    self.hand_to_snapshots(SnapshotJob::Store { reference, offset, bytes });
                }
                Action::ReadChunk { to, lsn, digest, offset } => {
                    self.hand_to_snapshots(SnapshotJob::Read { to, lsn, digest, offset });
                }
                Action::LoadSnapshot(reference) => self.hand_to_snapshots(SnapshotJob::Load(reference)),
            }
        }
        // Keep the allocation for the next step.
        self.actions = actions;
    }

    /// Adds a record to the turn's batch. Of commit indexes in a row only the last says anything.
    pub(super) fn persist(&mut self, number: RecordNumber, record: Record) {
        if let Record::Snapshot(reference) = &record {
            self.unpruned = Some((number, reference.clone()));
        }
        match self.batch.last_mut() {
            Some(last) if !last.1.wants_sync() && !record.wants_sync() => *last = (number, record),
            _ => self.batch.push((number, record)),
        }
    }

    /// Hands the records of this turn to the disk thread.
    ///
    /// A commit index alone stays behind and rides with the next record that asks for a sync: to wake the disk thread for it
    /// would cost a put a second write, and every node a wake-up.
    pub(super) fn write_batch(&mut self) {
        if self.batch.iter().any(|(_, record)| record.wants_sync()) {
            self.hand_over_batch();
        }
    }

    pub(super) fn hand_over_batch(&mut self) {
        if !self.batch.is_empty() {
            self.wiring.disk.write(std::mem::take(&mut self.batch));
        }
    }

    pub(super) fn hand_to_snapshots(&mut self, job: SnapshotJob<S>) {
        if self.wiring.snapshot_jobs.send(job).is_err() {
            (self.wiring.on_fatal)("the snapshot thread is gone");
            self.has_ended = true;
        }
    }

    pub(super) fn fail(&mut self, request: RequestId, error: RequestError) {
        Counters::add(&self.wiring.counters.proposals_failed, 1);
        match self.proposers.remove(&request) {
            Some(Proposer::Reconciliation) => self.describing.give_way(),
            Some(proposer) => proposer.fail(error),
            None => {}
        }
    }

    /// Hands on what this turn has produced: bytes to peers, records to the disk, status to watchers.
    pub(super) fn turn_out(&mut self) {
        if self.has_ended {
            return;
        }
        // First: what it leads to leaves with this turn.
        self.watch_disk();
        self.act();
        if self.describing.is_due(self.replica.applied().index) {
            self.reconcile();
            self.act();
        }
        self.tell_position();
        // Peers first: what they do with it takes longer than the way to the disk thread, which may preempt this one.
        for link in self.links.values() {
            link.outbox.flush();
        }
        self.write_batch();
        self.tell_transitions();
        self.tell_status();
        // After the status: whoever is woken by this looks there, and is not woken again.
        let applied = self.replica.applied().index;
        if applied != self.told_applied {
            self.told_applied = applied;
            self.wiring.applied.send_replace(applied);
        }
    }

    pub(super) fn tell_status(&mut self) {
        let status = self.replica.status();
        let applied = self.replica.applied();
        let is_disk_healthy = !self.is_disk_stalled;
        let version = self.replica.version();
        let contradiction = self.replica.contradiction();
        self.tell_preference(status.is_suspended);
        let told = self.wiring.status.borrow();
        // Where the log is changes with every put: it can be looked at, and nobody is woken for it.
        let has_moved = told.last != status.last || told.commit != status.commit || told.applied != applied;
        let is_news = told.role != status.role
            || told.term != status.term
            || told.leader != status.leader
            || told.is_disk_healthy != is_disk_healthy
            || told.contradiction != contradiction
            || told.is_suspended != status.is_suspended
            || told.version != version
            || told.differing != self.integrity.differing
            || told.compared_at != self.integrity.compared_at
            || !Arc::ptr_eq(&told.membership, &status.membership);
        drop(told);
        // Nobody else writes it. Every request looks at it, and a lock to write would hold them all up for nothing.
        if !has_moved && !is_news {
            return;
        }
        self.wiring.status.send_if_modified(|told| {
            told.last = status.last;
            told.commit = status.commit;
            told.applied = applied;
            if is_news {
                told.role = status.role;
                told.term = status.term;
                told.leader = status.leader;
                told.is_disk_healthy = is_disk_healthy;
                told.contradiction = contradiction;
                told.is_suspended = status.is_suspended;
                told.version = version;
                told.differing.clone_from(&self.integrity.differing);
                told.compared_at = self.integrity.compared_at;
                told.membership = status.membership;
            }
            is_news
        });
    }

    pub(super) fn watch_disk(&mut self) {
        let is_stalled = self.wiring.disk.busy.busy_for() > self.wiring.disk_stall_after;
        if is_stalled != self.is_disk_stalled {
            self.is_disk_stalled = is_stalled;
            let health = if is_stalled { DiskHealth::Stalled } else { DiskHealth::Recovered };
            self.mark_disk(health);
            let node = self.own_name();
            match (self.wiring.disk.wait.why(), health) {
                (Some(why), DiskHealth::Stalled) => tracing::error!(
                    node,
                    "the disk {health:?}: a write waits for the log's next segment, {why}; it goes on by itself once there is room, and reads of this member's own state go on meanwhile"
                ),
                _ => tracing::warn!(node, "the disk {health:?}"),
            }
            self.step(Event::Health(health));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use hustings_core::EntryKind;
    use hustings_core::replica::message::ForwardedRequest;

    #[test]
    fn proposals_that_wait_together_leave_in_frames_that_are_taken() {
        // Goal: found in a story under load: two commands, each of which fits into a frame, were forwarded in one that did not.
        let request = |sequence| {
            let payload = Bytes::from(vec![0; 400]);
            ForwardedRequest { sequence, kind: EntryKind::Command, payload }
        };
        let message = ReplicaMessage::<()>::Forward { incarnation: 3, requests: (0..5).map(request).collect() };
        let mut parts = Vec::new();
        within_frames(message, 1_000, |part| match part {
            ReplicaMessage::Forward { incarnation: 3, requests } => {
                parts.push(requests.iter().map(|request| request.sequence).collect::<Vec<_>>());
            }
            _ => panic!("another message"),
        });
        assert_eq!(parts, [vec![0, 1], vec![2, 3], vec![4]]);
    }
}
