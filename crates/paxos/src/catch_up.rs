//! Catching up: a node asks for committed slots, and any node that has them gives them. TX-1, TX-2.
//!
//! `[NORM]` An answer holds committed slots alone; what is in flight the leader sends again itself. A request below
//! what is retained is answered with a snapshot's name (`docs/adr/0002`), never with silence. Learning raises no
//! promise, and answers raise no ballot (TH-2).
//!
//! `[OURS]` A leader that learns what a *later* ballot chose leads no more. A follower commits what it accepted in its
//! leader's ballot as far as that leader says (TF-2), which is right only while the leader's commits are of its own
//! ballot or earlier ones: what a later ballot chose in a slot may differ from what this leader proposed there. The
//! shortest story: n1 alone gives n2 a value for slot 2; a later leader chooses another one there; n1 learns that,
//! announces "committed through 2" in its old ballot, and n2 commits what it has.

use crate::laboratory::Defect;
use crate::message::Message;
use crate::paxos::{Paxos, Stage};
use hustings_core::leading::{Adopting, Reading};
use hustings_core::options::Options as _;
use hustings_core::{Effects, Entry, NodeId, Reason, Record, RestsOn, Term};

/// This node's knowledge of its own disk, which it asks only when a window has been committed since.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct OwnDisk {
    /// The commit when a request was last sent by way of the disk. It still waits there if this is above `reached`.
    asked: u64,
    /// Everything through here is known to be durable.
    reached: u64,
}

impl Paxos {
    /// Once per heartbeat and source: a lost request is repeated, and no loop is tight.
    ///
    /// `[OURS]` What is learnt waits in memory for this node's disk. If that may be more than a leader's window, the request goes to this
    /// node itself first, behind everything that is being written: [`Paxos::on_disk_reached`] sends it on.
    pub(crate) fn ask_for_committed(&mut self, from: NodeId, out: &mut Effects<Paxos>) {
        if self.node.installing.is_some() || self.asked == Some((from, self.heartbeat)) {
            return;
        }
        self.asked = Some((from, self.heartbeat));
        let committed = self.node.commit;
        let request = Message::RetransmitRequest { committed, promised: self.node.promise.term };
        if !self.may_be_behind_disk() {
            return out.send_resting_on(RestsOn::Nothing, from, request);
        }
        if self.disk.asked <= self.disk.reached {
            self.disk.asked = committed;
            out.send(self.node.me, request);
        }
    }

    /// The request that waited for the disk: everything through `committed` is durable here, and the source can be asked for more.
    pub(crate) fn on_disk_reached(&mut self, committed: u64, out: &mut Effects<Paxos>) {
        self.disk.reached = self.disk.reached.max(committed);
        if let Some((from, _)) = self.asked.take() {
            self.ask_for_committed(from, out);
        }
    }

    /// Whether more than a leader's window of committed slots is not known to be durable.
    fn may_be_behind_disk(&self) -> bool {
        self.node.log.is_longer_than(self.node.limits.inflight_bytes_max, self.disk.reached, self.node.commit)
    }

    /// TX-1: any role answers. Committed slots are durable with a quorum, whether they are here or not.
    pub(crate) fn on_retransmit_request(
        &mut self,
        from: NodeId,
        committed: u64,
        promised: Term,
        out: &mut Effects<Paxos>,
    ) {
        if let Some(ballot) = self.leading().map(|reign| reign.ballot)
            && promised > ballot
        {
            if self.options.as_published {
                self.raise_for_catch_up_as_published(promised, out);
            } else {
                // It is lost to this ballot, as if it had refused an accept.
                self.on_refused(from, ballot, promised, out);
            }
        }
        if committed < self.node.log.base().index {
            let Some(reference) = self.node.snapshot.clone() else {
                unreachable!("slots are compacted only below a snapshot");
            };
            return out.send_resting_on(RestsOn::Nothing, from, Message::Snapshot { reference });
        }
        if committed < self.node.commit {
            let (bytes_max, overlap) = (self.node.limits.message_bytes_max, self.node.log.slot(committed));
            let room = bytes_max.saturating_sub(overlap.map_or(0, Entry::cost));
            let (mut entries, _) = self.node.log.slice(committed + 1, self.node.commit, room);
            let taken: usize = entries.iter().map(Entry::cost).sum();
            if let Some(overlap) = overlap.filter(|_| taken <= room) {
                entries.insert(0, overlap.clone());
            }
            let response = Message::RetransmitResponse { entries, committed: self.node.commit };
            out.send_resting_on(RestsOn::Nothing, from, response);
        }
    }

    /// TX-2: values before the commit, the commit before its application is visible.
    pub(crate) fn on_retransmit_response(
        &mut self,
        from: NodeId,
        entries: Vec<Entry>,
        committed: u64,
        out: &mut Effects<Paxos>,
    ) {
        self.asked = None;
        if self.node.installing.is_some() {
            return;
        }
        if let Some(because) = self.contradicted(from, &entries) {
            return self.stand_aside(because, out);
        }
        // Every entry counts: ballots do not grow from slot to slot.
        let highest = entries.iter().map(|entry| entry.lsn.term).max().unwrap_or_default();
        self.ballot_seen = self.ballot_seen.max(highest);
        if self.reign().is_some_and(|reign| highest > reign.ballot) && !self.leads_on_after_later() {
            self.back_down(Reason::HigherTerm(from), out);
        }
        let mut end = self.node.commit;
        for entry in entries {
            let index = entry.lsn.index;
            if index <= end {
                continue;
            }
            if index != end + 1 {
                break;
            }
            end = index;
            // A value accepted in a higher ballot than the one in which the slot was chosen is the same value: it keeps
            // its ballot (TI-3).
            if self.node.log.ballot_at(index).is_none_or(|held| held < entry.lsn.term) {
                self.node.log.put(entry.clone());
                out.persist(Record::Put(entry));
            }
        }
        let is_news = end > self.node.commit;
        self.apply_through(end, out);
        if is_news {
            self.on_learnt(out);
            if committed > self.node.commit {
                self.ask_for_committed(from, out);
            }
        }
    }

    /// `[OURS]` An answer begins with the last slot that is committed here, where it has room: one value is chosen in it, or two histories
    /// exist.
    fn contradicted(&mut self, by: NodeId, entries: &[Entry]) -> Option<Reason> {
        let theirs = entries.first().filter(|entry| entry.lsn.index == self.node.commit)?;
        let ours = self.node.log.slot(self.node.commit)?;
        let value = |entry: &Entry| (entry.kind, entry.origin, entry.payload.clone());
        if value(ours) == value(theirs) || self.options.is_laboratory() {
            return None;
        }
        let ours = ours.lsn;
        Some(self.node.note_two_histories(by, ours, theirs.lsn))
    }

    /// Whether a defect is planted that lets a reign outlive what it learns.
    pub(crate) fn leads_on_after_later(&self) -> bool {
        self.has(Defect::LeadsOnAfterLater) || self.has(Defect::ProposesBehindChanges)
    }

    /// Follows up on slots that were learnt while this node recovers: they are not in flight any more.
    pub(crate) fn on_learnt(&mut self, out: &mut Effects<Paxos>) {
        if self.reign().is_none() {
            return;
        }
        self.forget_committed();
        self.become_leading_if_recovered(out);
        self.resume_recovery(out);
        if self.reign().is_some_and(|reign| reign.stage != Stage::Preparing) {
            self.advance_commit(out);
        }
        self.release_early_reads(out);
        self.step_down_if_removed(out);
    }
}
