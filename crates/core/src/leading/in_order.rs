//! A log that grows entry by entry: proposals become entries, and what a quorum holds is committed: [`InOrder`],
//! [`Replicating`].
//!
//! The leader's own copy counts only once it is durable, like everyone else's, so its disk and its followers' work at the
//! same time:
//!
//! ```text
//!    leader    ──Put──┬─ entries ──► follower ──Put── fsync ── stored ──┐
//!                     └─ fsync ── stored (to itself) ───────────────────┴──► quorum: commit, apply, tell
//! ```
//!
//! Sources: Raft §5.3; rules RC-1 to RC-3, RF-1, RM-8.

use super::{Adopting, HandingOver, Leads, Node};
use crate::laboratory::Defect;
use crate::{Effects, Entry, EntryKind, Log, MembershipChange, Origin, Proposal, Record, Refusal, Stamp, Ticket};

/// The part of a protocol with a log in order that is its own.
pub trait InOrder: Leads<Log = Log> {
    /// The protocol's own reason why nothing can be written now; `None` if there is none.
    fn own_refusal(&self) -> Option<Refusal> {
        None
    }

    /// An entry of this leader's own is about to be written.
    fn on_own_entry(&mut self, _: &Entry) {}

    /// Entries were written: everybody is sent them, and this node itself, on the way through its own disk, their count.
    fn spread(&mut self, out: &mut Effects<Self>);

    /// The highest index that a quorum holds; it may be committed already, or not be this leader's to commit.
    fn index_reached(&self) -> u64;

    /// Whether a leader may commit this index by counting: one of its own term (Raft §5.4.2, figure 8).
    fn may_commit(&self, index: u64) -> bool {
        self.node().log.term_at(index) == Some(self.node().promise.term)
    }

    /// An entry is committed, and about to be applied.
    fn on_committed(&mut self, entry: &Entry, out: &mut Effects<Self>) {
        if entry.kind == EntryKind::Membership {
            self.apply_membership(entry, out);
        }
    }
}

/// Appending to such a log and committing it.
pub trait Replicating: InOrder {
    /// Proposals, in the order in which they shall stand in the log.
    fn on_propose(&mut self, proposals: Vec<Proposal>, out: &mut Effects<Self>) {
        let before = self.node().log.last().index;
        for proposal in proposals {
            if let Some(refusal) = self.refusal_of(&proposal) {
                out.refuse(Ticket::Proposal(proposal.origin), refusal);
                continue;
            }
            let lsn = self.node().next_lsn();
            self.append_own(proposal.into_entry(lsn), out);
        }
        if self.node().log.last().index > before {
            self.spread(out);
        }
    }

    /// The reason why a proposal cannot be written now (RF-1), or `None`: definite, nothing was done.
    fn refusal_of(&self, proposal: &Proposal) -> Option<Refusal> {
        if self.office().is_none() {
            return Some(Refusal::NotLeader(self.status().leader));
        }
        self.own_refusal().or_else(|| self.common_refusal(proposal))
    }

    /// An entry of this leader's own, behind the last.
    ///
    /// # Panics
    /// When this node does not lead.
    fn append_own(&mut self, entry: Entry, out: &mut Effects<Self>) {
        self.on_own_entry(&entry);
        let Some((node, office)) = self.split() else { unreachable!("only a leader writes entries of its own") };
        office.uncommitted_bytes += entry.payload.len();
        if entry.kind == EntryKind::Membership {
            office.pending_change = entry.lsn.index;
        }
        node.append(entry, out);
    }

    /// A change of membership that this leader makes by itself.
    fn write_change(&mut self, change: &MembershipChange, out: &mut Effects<Self>) {
        let (lsn, kind, payload) = (self.node().next_lsn(), EntryKind::Membership, crate::Wire::to_bytes(change));
        self.append_own(Entry { lsn, kind, origin: Origin::NOBODY, stamp: Stamp::NONE, payload }, out);
        self.spread(out);
    }

    /// Commits what a quorum holds; says whether there was anything. A change of membership among it changes who is
    /// counted, so what comes behind is looked at again at once (RM-8): nobody else may ever acknowledge it.
    fn commit_reached(&mut self, out: &mut Effects<Self>) -> bool {
        let before = self.node().commit;
        while let Some(index) = self.committable() {
            let node = self.node();
            let bytes = payload_bytes(node, node.commit + 1, index);
            if let Some((_, office)) = self.split() {
                office.uncommitted_bytes = office.uncommitted_bytes.saturating_sub(bytes);
            }
            self.apply_through(index, out);
            if self.node().has_defect(Defect::CommitsOnce) {
                break;
            }
        }
        self.node().commit > before
    }

    /// RC-1: the highest index that a quorum holds beyond the commit, if this leader may commit it.
    fn committable(&self) -> Option<u64> {
        self.office()?;
        let reached = self.index_reached().min(self.node().log.last().index);
        (reached > self.node().commit && self.may_commit(reached)).then_some(reached)
    }

    /// Everything through `index` is committed: it is applied, in order; a membership among it takes effect (RM-1). The
    /// same for leaders and followers.
    ///
    /// # Panics
    /// When `index` is beyond the log: a quorum then holds what this node lost.
    fn apply_through(&mut self, index: u64, out: &mut Effects<Self>) {
        let node = self.node_mut();
        if index <= node.commit {
            return;
        }
        assert!(index <= node.log.last().index, "a commit beyond the log: a quorum holds what this node lost");
        let first = node.commit + 1;
        node.commit = index;
        node.contradiction = None;
        // Before any later entry, so that a node that holds a second change of membership knows that the first is in
        // force (RM-3).
        out.persist(Record::Committed(node.committed()));
        for index in first..=index {
            let entry = self.node().log.entry(index).expect("entries above the compaction point are held").clone();
            self.on_committed(&entry, out);
            out.apply(entry);
        }
    }
}

impl<P: InOrder> Replicating for P {}

/// Bytes of the payloads of `from..=through`.
fn payload_bytes(node: &Node<Log>, from: u64, through: u64) -> usize {
    (from..=through).filter_map(|at| node.log.entry(at)).map(|entry| entry.payload.len()).sum()
}

/// Refusals of proposals that are the same under every protocol, in order or not.
pub trait Bounded: Leads {
    /// While leadership is handed over, or when too much is outstanding; or a change that cannot be made.
    fn common_refusal(&self, proposal: &Proposal) -> Option<Refusal> {
        let (node, office) = (self.node(), self.office()?);
        if office.transfer.is_some() || (self.is_caretaker() && !self.stands_in()) {
            // A caretaker leads only to hand over, until that was in vain.
            return Some(Refusal::Transferring);
        }
        let size = proposal.payload.len();
        let would_be = office.uncommitted_bytes.saturating_add(size);
        if size > 0 && office.uncommitted_bytes > 0 && would_be > node.limits.uncommitted_bytes_max {
            return Some(Refusal::Overloaded);
        }
        match proposal.kind {
            EntryKind::Membership => self.membership_refusal(&proposal.payload),
            _ => None,
        }
    }
}

impl<P: Leads> Bounded for P {}
