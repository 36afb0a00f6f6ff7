//! Snapshots and compaction.
//!
//! Sources: Raft §7; rules RS-1 to RS-3, RA-7. The protocol knows a snapshot by reference; its bytes are pulled between
//! replicas (see `hustings_core::replica::snapshots`).

use crate::laboratory::Defect;
use crate::message::Message;
use crate::progress::State;
use crate::raft::{Part, Raft};
use hustings_core::{Effect, Effects, Log, Lsn, NodeId, Record, RestsOn, SnapshotReference};

impl Raft {
    // --- The leader offers. --------------------------------------------------------------------------------------

    /// What the peer needs is compacted away: it is offered the snapshot, if it was heard lately (RA-7).
    pub(crate) fn send_snapshot_to(&mut self, peer: NodeId, out: &mut Effects<Raft>) {
        let term = self.promise.term;
        let Some(reference) = self.snapshot.clone() else {
            unreachable!("entries are compacted only below a snapshot");
        };
        let Part::Leader(leader) = &mut self.part else { return };
        let Some(progress) = leader.progress.get_mut(&peer) else { return };
        if !progress.is_active {
            return;
        }
        progress.become_snapshot(reference.lsn.index);
        out.send_resting_on(RestsOn::Nothing, peer, Message::Snapshot { term, reference });
    }

    /// The peer could not have it: it is probed again, and offered a newer one if it still needs one.
    pub(crate) fn on_snapshot_refused(&mut self, from: NodeId, lsn: Lsn) {
        let Part::Leader(leader) = &mut self.part else { return };
        let Some(progress) = leader.progress.get_mut(&from) else { return };
        progress.is_active = true;
        if matches!(progress.state, State::Snapshot { pending } if pending == lsn.index) {
            progress.become_probe(progress.matched + 1);
            if let State::Probe { is_paused } = &mut progress.state {
                // Not in a tight loop: the next heartbeat's answer lets it go.
                *is_paused = true;
            }
        }
    }

    // --- A follower fetches and installs. ------------------------------------------------------------------------

    pub(crate) fn on_snapshot(&mut self, from: NodeId, reference: SnapshotReference, out: &mut Effects<Raft>) {
        if self.is_needless(&reference) {
            let index = self.commit;
            return self.acknowledge(from, index, out);
        }
        if self.log.has(reference.lsn) {
            // The log is longer than it seemed: only the commit is news.
            self.apply_through(reference.lsn.index, out);
            let index = self.commit;
            return self.acknowledge(from, index, out);
        }
        if self.installing.is_none() {
            self.installing = Some(reference.clone());
            out.push(Effect::FetchSnapshot { from, reference });
        }
    }

    /// Older than what is committed here (RS-1).
    ///
    /// Deviation: RS-1 refuses a membership without this node too, since etcd's leader cuts a snapshot when somebody needs
    /// it. Ours offers the last one it cut; a newcomer's is mostly from before it was added, and refusing that would keep
    /// it out until the next. What a snapshot holds is committed, so taking it is safe: the entry that adds this node follows.
    fn is_needless(&self, reference: &SnapshotReference) -> bool {
        reference.lsn.index <= self.commit && !self.has(Defect::InstallsOldSnapshots)
    }

    pub(crate) fn on_snapshot_ready(&mut self, reference: SnapshotReference, out: &mut Effects<Raft>) {
        if self.installing.as_ref() != Some(&reference) {
            return;
        }
        if self.is_needless(&reference) || self.log.has(reference.lsn) {
            // The log came while the snapshot did.
            self.installing = None;
            if self.log.has(reference.lsn) {
                self.apply_through(reference.lsn.index, out);
            }
            return;
        }
        let lsn = reference.lsn;
        // The snapshot first: a crash between the two must not lose what this node has acknowledged below it.
        out.persist(Record::Snapshot(reference.clone()));
        out.persist(Record::TruncateFrom(lsn.index + 1));
        self.log = Log::after(lsn);
        self.commit = lsn.index;
        self.snapshot = Some(reference.clone());
        out.push(Effect::Restore(reference.clone()));
        self.adopt(reference.membership.clone(), lsn.index, out);
        if let Some(leader) = self.leader.filter(|leader| *leader != self.me) {
            let (term, index) = (self.promise.term, lsn.index);
            out.send(leader, Message::Matched { term, index });
        }
    }

    pub(crate) fn on_snapshot_failed(&mut self, reference: SnapshotReference, out: &mut Effects<Raft>) {
        if self.installing.take_if(|installing| *installing == reference).is_none() {
            return;
        }
        if let Some(leader) = self.leader.filter(|leader| *leader != self.me) {
            let reply = Message::SnapshotFailed { term: self.promise.term, lsn: reference.lsn };
            out.send_resting_on(RestsOn::Nothing, leader, reply);
        }
    }

    pub(crate) fn on_snapshot_installed(&mut self, lsn: Lsn) {
        self.installing.take_if(|installing| installing.lsn == lsn);
    }

    // --- Compaction. ---------------------------------------------------------------------------------------------

    /// The own state machine is safe in a snapshot: the log below may go, but for a tail that slow followers may need.
    pub(crate) fn on_compact(&mut self, reference: SnapshotReference, out: &mut Effects<Raft>) {
        let known = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.lsn.index);
        if reference.lsn.index <= known {
            return;
        }
        assert!(reference.lsn.index <= self.commit, "a state machine holds only what is committed (RS-3)");
        out.persist(Record::Snapshot(reference.clone()));
        let through = reference.lsn.index.saturating_sub(self.limits.trailing_entries);
        self.snapshot = Some(reference);
        if through > self.log.base().index {
            self.log.compact_through(through);
        }
    }
}
