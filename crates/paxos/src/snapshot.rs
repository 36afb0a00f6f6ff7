//! Snapshots and compaction, for trimmed slots (TI-10).
//!
//! Absent in both sources, which trim by count and then have nothing to say (TH-8). The protocol knows a snapshot by
//! reference; its bytes are pulled between replicas (`docs/adr/0002`). What was accepted above it stays: an acceptor
//! forgets nothing.

use crate::journal::Journal;
use crate::message::Message;
use crate::paxos::Paxos;
use hustings_core::{Effect, Effects, Lsn, NodeId, Reason, Record, RestsOn, SnapshotReference};

impl Paxos {
    pub(crate) fn on_snapshot(&mut self, from: NodeId, reference: SnapshotReference, out: &mut Effects<Paxos>) {
        self.asked = None;
        if reference.lsn.index <= self.commit || self.installing.is_some() {
            return;
        }
        if self.reign().is_some() {
            // Nobody can tell any more in which ballots its slots were chosen, so this reign may be over (TF-2, and why:
            // [`crate::catch_up`]).
            self.back_down(Reason::HigherTerm(from), out);
        }
        self.installing = Some(reference.clone());
        out.push(Effect::FetchSnapshot { from, reference });
    }

    pub(crate) fn on_snapshot_ready(&mut self, reference: SnapshotReference, out: &mut Effects<Paxos>) {
        if self.installing.as_ref() != Some(&reference) {
            return;
        }
        let lsn = reference.lsn;
        if lsn.index <= self.commit {
            self.installing = None;
            return;
        }
        out.persist(Record::Snapshot(reference.clone()));
        let mut journal = Journal::after(lsn);
        self.journal.iter().filter(|entry| entry.lsn.index > lsn.index).for_each(|entry| journal.put(entry.clone()));
        self.journal = journal;
        self.commit = lsn.index;
        self.snapshot = Some(reference.clone());
        out.push(Effect::Restore(reference.clone()));
        self.adopt(reference.membership, lsn.index, out);
    }

    /// The next heartbeat leads to another request.
    pub(crate) fn on_snapshot_failed(&mut self, reference: SnapshotReference) {
        self.installing.take_if(|installing| *installing == reference);
    }

    pub(crate) fn on_snapshot_installed(&mut self, lsn: Lsn, out: &mut Effects<Paxos>) {
        if self.installing.take_if(|installing| installing.lsn == lsn).is_some()
            && let Some(leader) = self.leader.filter(|leader| *leader != self.me)
        {
            let request = Message::RetransmitRequest { committed: self.commit, promised: self.promise.term };
            out.send_resting_on(RestsOn::Nothing, leader, request);
        }
    }

    // --- Compaction. ---------------------------------------------------------------------------------------------

    /// The own state machine is safe in a snapshot: slots below may go, but for a tail that slow nodes may need.
    pub(crate) fn on_compact(&mut self, reference: SnapshotReference, out: &mut Effects<Paxos>) {
        if self.snapshot.as_ref().is_some_and(|known| reference.lsn.index <= known.lsn.index) {
            return;
        }
        assert!(reference.lsn.index <= self.commit, "a state machine holds only what is committed");
        out.persist(Record::Snapshot(reference.clone()));
        let through = reference.lsn.index.saturating_sub(self.limits.trailing_entries);
        self.snapshot = Some(reference);
        if through > self.journal.base().index
            && let Some(term) = self.journal.ballot_at(through)
        {
            self.journal.compact_through(Lsn { term, index: through });
        }
    }
}
