//! SNAP by reference, and compaction.
//!
//! ZooKeeper streams the whole tree to a follower that is too far behind (§5.9 rule 5). `[OURS]` The protocol knows a snapshot by
//! reference; its bytes are pulled between replicas (`docs/adr/0002`), and everything behind it follows as a DIFF.

use crate::message::Message;
use crate::zab::{Part, Phase, Zab};
use hustings_core::{Effect, Effects, Log, Lsn, NodeId, Record, RestsOn, SnapshotReference};

impl Zab {
    // --- The leader offers. --------------------------------------------------------------------------------------

    pub(crate) fn send_snapshot_to(&mut self, to: NodeId, out: &mut Effects<Zab>) {
        let epoch = self.promise.term;
        let Some(reference) = self.snapshot.clone() else {
            unreachable!("entries are compacted only below a snapshot");
        };
        let Part::Leading(leading) = &mut self.part else { return };
        let Some(learner) = leading.learners.get_mut(&to) else { return };
        let connection = learner.connection;
        learner.inflight.clear();
        learner.fetching = Some(reference.lsn.index);
        learner.next = learner.next.max(reference.lsn.index + 1);
        out.send_resting_on(RestsOn::Nothing, to, Message::Snapshot { connection, epoch, reference });
    }

    // --- A follower fetches and installs. ------------------------------------------------------------------------

    pub(crate) fn on_snapshot(&mut self, from: NodeId, reference: SnapshotReference, out: &mut Effects<Zab>) {
        let lsn = reference.lsn;
        if lsn.index <= self.commit || self.log.has(lsn) {
            // The log is longer than it seemed. What stands behind is not the leader's, unless it was said to be.
            self.apply_through(lsn.index, out);
            let is_synchronizing =
                matches!(&self.part, Part::Following(following) if following.phase == Phase::Synchronization);
            if is_synchronizing && self.commit < self.log.last().index {
                self.log.truncate_from(self.commit + 1);
                out.persist(Record::TruncateFrom(self.commit + 1));
            }
            return self.acknowledge(from, lsn.index, out);
        }
        if self.fetching.is_none() && self.restoring.is_none() {
            self.fetching = Some(reference.clone());
            out.push(Effect::FetchSnapshot { from, reference });
        }
    }

    pub(crate) fn on_snapshot_ready(&mut self, reference: SnapshotReference, out: &mut Effects<Zab>) {
        // Of a connection that has ended, nothing is asked any more.
        if self.fetching.take_if(|fetching| *fetching == reference).is_none() {
            return;
        }
        let lsn = reference.lsn;
        let Part::Following(following) = &self.part else { unreachable!("leaving forgets what is fetched") };
        let leader = following.leader;
        // The snapshot first: a crash between the two must not lose what this node has acknowledged below it.
        out.persist(Record::Snapshot(reference.clone()));
        out.persist(Record::TruncateFrom(lsn.index + 1));
        self.log = Log::after(lsn);
        self.commit = lsn.index;
        self.snapshot = Some(reference.clone());
        self.restoring = Some(lsn);
        out.push(Effect::Restore(reference.clone()));
        self.adopt(reference.membership, lsn.index, out);
        let ack = Message::Ack { connection: self.connection, epoch: self.promise.term, index: lsn.index };
        out.send(leader, ack);
        if self.is_retired() {
            self.retire(out);
        }
    }

    /// Its owner is gone or has a newer one: the next PONG says that nothing is being installed, and another is offered.
    pub(crate) fn on_snapshot_failed(&mut self, reference: &SnapshotReference) {
        self.fetching.take_if(|fetching| fetching == reference);
    }

    pub(crate) fn on_snapshot_installed(&mut self, lsn: Lsn, out: &mut Effects<Zab>) {
        if self.restoring.take_if(|restoring| *restoring == lsn).is_some() {
            // It may lead again.
            self.look_again(out);
        }
    }

    // --- Compaction. ---------------------------------------------------------------------------------------------

    /// The own state machine is safe in a snapshot: the log below may go, but for a tail that slow followers may need.
    pub(crate) fn on_compact(&mut self, reference: SnapshotReference, out: &mut Effects<Zab>) {
        if self.snapshot.as_ref().is_some_and(|known| reference.lsn.index <= known.lsn.index) {
            return;
        }
        assert!(reference.lsn.index <= self.commit, "a state machine holds only what is committed");
        out.persist(Record::Snapshot(reference.clone()));
        let through = reference.lsn.index.saturating_sub(self.limits.trailing_entries);
        self.snapshot = Some(reference);
        if through > self.log.base().index {
            self.log.compact_through(through);
        }
    }
}
