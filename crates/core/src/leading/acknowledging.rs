//! Followers that acknowledge what they store to the leader of their term: [`Acknowledging`], [`Following`].
//!
//! The shape of Raft, GMT-2000 and BlazingMQ: messages carry the place before their entries, and a follower that has that place
//! takes the entries it lacks. (In ZAB a connection is a session of its own, and Paxos' slots stand each for itself.)
//! Sources: Raft §5.3, §7; rules RA-1, RA-2, RS-1, RS-2.

use super::{Adopting, InOrder, Replicating};
use crate::{Effects, Entry, Lsn, NodeId, RestsOn, SnapshotReference};

/// The two messages that a protocol has for it, and what it does beside.
pub trait Acknowledging: InOrder {
    /// My log equals the leader's up to `index`, durably.
    fn stored_message(&self, index: u64) -> Self::Message;

    /// The snapshot through this place cannot be had: offer another.
    fn snapshot_failed_message(&self, lsn: Lsn) -> Self::Message;

    /// Whether a snapshot through this place brings anything.
    fn needs_snapshot(&self, lsn: Lsn) -> bool {
        !self.node().has_covered(lsn)
    }

    /// Entries that follow a place of this log are written, as far as they are missing.
    fn take_entries(&mut self, from: NodeId, entries: Vec<Entry>, out: &mut Effects<Self>) {
        self.take_missing(from, entries, out);
    }

    /// The log came while the snapshot did, or the snapshot is installed: what waited for it goes on.
    fn after_snapshot(&mut self, _: &mut Effects<Self>) {}

    /// The snapshot cannot be had.
    fn after_failed_snapshot(&mut self, _: &mut Effects<Self>) {}
}

/// The behaviour of such a follower.
pub trait Following: Acknowledging {
    /// An acknowledgement rests on the entries that it names, and on the promise to this leader (RA-2).
    fn acknowledge(&mut self, leader: NodeId, index: u64, out: &mut Effects<Self>) {
        out.send_resting_on(RestsOn::Entry(index), leader, self.stored_message(index));
    }

    /// The leader's own acknowledgement, on its way through its own disk (RC-2).
    fn count_own_log(&mut self, out: &mut Effects<Self>) {
        let index = self.node().log.last().index;
        out.send_resting_on(RestsOn::Entry(index), self.node().me, self.stored_message(index));
    }

    /// Takes entries that follow a place of this log, through `end`. The commit is recorded before any later entry is:
    /// a node that holds a second change of membership knows that the first is in force (RM-3).
    fn take_committed_first(
        &mut self,
        from: NodeId,
        mut entries: Vec<Entry>,
        commit: u64,
        end: u64,
        out: &mut Effects<Self>,
    ) {
        let later = entries.split_off(entries.iter().take_while(|entry| entry.lsn.index <= commit).count());
        let known = end - later.len() as u64;
        self.take_entries(from, entries, out);
        self.apply_through(commit.min(known), out);
        self.take_entries(from, later, out);
    }

    /// Writes the entries that are missing; a tail that differs is cut back to the last common place first.
    ///
    /// # Panics
    /// When a committed entry would be replaced: two histories exist.
    fn take_missing(&mut self, from: NodeId, entries: Vec<Entry>, out: &mut Effects<Self>) {
        for entry in entries {
            let (node, index) = (self.node_mut(), entry.lsn.index);
            match node.log.term_at(index) {
                Some(known) if known == entry.lsn.term => continue,
                Some(_) => {
                    assert!(
                        index > node.commit,
                        "{from} would replace the committed entry {index}: two histories exist"
                    );
                    node.truncate_from(index, out);
                }
                None => {}
            }
            node.append(entry, out);
        }
    }

    /// The entries this node needs are compacted away at the leader: it fetches the snapshot, unless it has all of it (RS-1).
    ///
    /// Deviation: RS-1 refuses a membership without this node too, since etcd's leader cuts a snapshot when somebody
    /// needs it. Ours offers the last one it cut; a newcomer's is mostly from before it was added, and refusing that
    /// would keep it out until the next. All entries of a snapshot are committed, so taking it is safe: the entry that adds
    /// this node follows.
    fn on_snapshot(&mut self, from: NodeId, reference: SnapshotReference, out: &mut Effects<Self>) {
        if !self.needs_snapshot(reference.lsn) {
            // The log is longer than it seemed: only the commit may be news.
            self.apply_through(reference.lsn.index, out);
            let commit = self.node().commit;
            return self.acknowledge(from, commit, out);
        }
        self.node_mut().fetch(from, reference, out);
    }

    /// It is complete and durable.
    fn on_snapshot_ready(&mut self, reference: SnapshotReference, out: &mut Effects<Self>) {
        if !self.node_mut().take_ready(&reference) {
            return;
        }
        let (lsn, membership) = (reference.lsn, reference.membership.clone());
        if !self.needs_snapshot(lsn) {
            // The log came while the snapshot did.
            self.node_mut().installing = None;
            self.apply_through(lsn.index, out);
            return self.after_snapshot(out);
        }
        self.node_mut().install(reference, out);
        self.adopt(membership, lsn.index, out);
        if let Some(leader) = self.node().other_leader() {
            out.send(leader, self.stored_message(lsn.index));
        }
    }

    /// Its owner is gone or has a newer one: the leader hears so, and offers another.
    fn on_snapshot_failed(&mut self, reference: SnapshotReference, out: &mut Effects<Self>) {
        if self.node_mut().installing.take_if(|installing| *installing == reference).is_none() {
            return;
        }
        if let Some(leader) = self.node().other_leader() {
            out.send_resting_on(RestsOn::Nothing, leader, self.snapshot_failed_message(reference.lsn));
        }
        self.after_failed_snapshot(out);
    }

    /// The state machine has been rebuilt from it.
    fn on_snapshot_installed(&mut self, lsn: Lsn, out: &mut Effects<Self>) {
        if self.node_mut().end_install(lsn) {
            self.after_snapshot(out);
        }
    }
}

impl<P: Acknowledging> Following for P {}
