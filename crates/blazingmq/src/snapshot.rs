//! Snapshots and compaction: the state transfer to whoever is behind the log.
//!
//! `[OURS]`: BlazingMQ sends its whole state, which is small, as a record. Here the protocol knows a snapshot by
//! reference; its bytes are pulled between replicas (`docs/adr/0002`), and it replaces the state (§2.9: applying one is
//! additive there).

use crate::blazingmq::{BlazingMq, Part};
use crate::message::Message;
use crate::peer::Pace;
use hustings_core::{Effect, Effects, Log, Lsn, NodeId, Record, RestsOn, SnapshotReference};

impl BlazingMq {
    // --- The leader offers. --------------------------------------------------------------------------------------

    /// What the peer needs is compacted away: it is offered the snapshot, if it was heard lately.
    pub(crate) fn send_snapshot_to(&mut self, to: NodeId, out: &mut Effects<BlazingMq>) {
        let term = self.promise.term;
        let Some(reference) = self.snapshot.clone() else {
            unreachable!("records are compacted only below a snapshot");
        };
        let Part::Leader(leader) = &mut self.part else { return };
        let Some(peer) = leader.peers.get_mut(&to) else { return };
        peer.become_fetch(reference.lsn.index);
        out.send_resting_on(RestsOn::Nothing, to, Message::Snapshot { term, reference });
    }

    /// The peer could not have it: the next heartbeat's answer leads to another offer, so that no loop is tight. What
    /// was sent while it fetched it has ignored.
    pub(crate) fn on_snapshot_refused(&mut self, from: NodeId, out: &mut Effects<BlazingMq>) {
        let Part::Leader(leader) = &mut self.part else { return };
        let Some(peer) = leader.peers.get_mut(&from) else { return };
        peer.is_active = true;
        if peer.pace == Pace::Probe {
            self.probe(from, out);
        }
    }

    // --- A follower fetches and installs. ------------------------------------------------------------------------

    pub(crate) fn on_snapshot(&mut self, from: NodeId, reference: SnapshotReference, out: &mut Effects<BlazingMq>) {
        let lsn = reference.lsn;
        if lsn.index <= self.commit || self.log.has(lsn) {
            // The log is longer than it seemed: only the commit may be news.
            self.apply_through(lsn.index, out);
            return self.acknowledge(from, self.commit, out);
        }
        self.fetch(from, reference, out);
    }

    pub(crate) fn fetch(&mut self, from: NodeId, reference: SnapshotReference, out: &mut Effects<BlazingMq>) {
        if self.installing.is_none() {
            self.installing = Some(reference.clone());
            out.push(Effect::FetchSnapshot { from, reference });
        }
    }

    pub(crate) fn on_snapshot_ready(&mut self, reference: SnapshotReference, out: &mut Effects<BlazingMq>) {
        if self.installing.as_ref() != Some(&reference) {
            return;
        }
        let lsn = reference.lsn;
        if lsn.index <= self.commit || self.log.has(lsn) {
            // The log came while the snapshot did.
            self.installing = None;
            self.apply_through(lsn.index, out);
            return self.resume_pull(out);
        }
        // The snapshot first: a crash between the two must not lose what this node has acknowledged below it.
        out.persist(Record::Snapshot(reference.clone()));
        out.persist(Record::TruncateFrom(lsn.index + 1));
        self.log = Log::after(lsn);
        self.commit = lsn.index;
        self.snapshot = Some(reference.clone());
        out.push(Effect::Restore(reference.clone()));
        self.adopt(reference.membership, lsn.index, out);
        if let Some(leader) = self.leader.filter(|leader| *leader != self.me) {
            out.send(leader, Message::Ack { term: self.promise.term, index: lsn.index });
        }
    }

    pub(crate) fn on_snapshot_failed(&mut self, reference: SnapshotReference, out: &mut Effects<BlazingMq>) {
        if self.installing.take_if(|installing| *installing == reference).is_none() {
            return;
        }
        if let Some(leader) = self.leader.filter(|leader| *leader != self.me) {
            let reply = Message::SnapshotFailed { term: self.promise.term, lsn: reference.lsn };
            out.send_resting_on(RestsOn::Nothing, leader, reply);
        }
        self.give_up_source(out);
    }

    pub(crate) fn on_snapshot_installed(&mut self, lsn: Lsn, out: &mut Effects<BlazingMq>) {
        if self.installing.take_if(|installing| installing.lsn == lsn).is_some() {
            self.resume_pull(out);
        }
    }

    // --- Compaction. ---------------------------------------------------------------------------------------------

    /// The own state machine is safe in a snapshot: the log below may go, but for a tail that slow followers may need.
    pub(crate) fn on_compact(&mut self, reference: SnapshotReference, out: &mut Effects<BlazingMq>) {
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
