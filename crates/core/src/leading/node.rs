//! The base of a member under every protocol, whether it leads or not: [`Node`].

use super::{History, Known};
use crate::laboratory::Defect;
use crate::quorum::Verdict;
use crate::{
    Cluster, Contradiction, Durable, Effect, Effects, Entry, Limits, Log, Lsn, Membership, NodeId, Outcome, Patience,
    Priority, Promise, Protocol, Reason, Record, Refusal, Role, SnapshotReference, Status, Term, Ticket, Timing,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Most bytes of entries that stay in memory below a snapshot, however few entries those are.
const TRAILING_BYTES_MAX: usize = 256 << 20;

/// Between two ranks' campaigns after a link-down: longer than the election itself, so that the first usually ends it.
pub const RANK_STEP: Duration = Duration::from_millis(4);

/// The base of every protocol's value: who this node is, what it holds, and what it knows of its leader and its links.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Node<L = Log> {
    /// This node's id, unique in its cluster and never reused.
    pub me: NodeId,
    /// Heartbeat interval and election timeout range in force.
    pub timing: Timing,
    /// The operator's preference for or against this node as leader; [`Node::priority`] says what counts now.
    configured: Priority,
    /// Bounds on messages and memory.
    pub limits: Limits,
    /// The highest term promised, with the vote in it where the protocol has votes.
    pub promise: Promise,
    /// The entries that it holds above its last snapshot.
    pub log: L,
    /// The highest index that it knows to be committed; all of it is applied.
    pub commit: u64,
    /// The last snapshot that is durable here.
    pub snapshot: Option<SnapshotReference>,
    /// The membership in force, from the last change applied.
    pub membership: Arc<Membership>,
    /// The leader that it follows; itself when leading; `None` if it knows none.
    pub leader: Option<NodeId>,
    /// Peers whose connection is known to be gone.
    pub links_down: BTreeSet<NodeId>,
    /// The snapshot that is being fetched or installed: no candidacy, no new one (RS-2).
    pub installing: Option<SnapshotReference>,
    /// The successor of the hand-over that was asked for, and the ticket that waits to hear how it ends.
    pub transfer_ticket: Option<(NodeId, Ticket)>,
    /// Whether this node, which must never lead, leads all the same until another has caught up: it holds what those
    /// who may lead lack, and nobody gives entries without leading.
    pub is_caretaker: bool,
    /// Whether it has noted that the others lack what it holds (entries, or that a member votes), with nobody leading since.
    pub has_noted_that_others_lack: bool,
    /// The last change of who votes that is in force here stands at this index or below.
    pub membership_index: u64,
    /// Memory of hand-overs to preferred members, and of this member's own losses of leadership.
    pub patience: Patience,
    /// Whether writes to the disk no longer become durable.
    pub is_disk_stalled: bool,
    /// Another member's entry where one is committed here; forgotten when more is committed.
    pub contradiction: Option<Contradiction>,
    /// A planted defect, in the laboratory.
    pub defect: Option<Defect>,
}

impl Node<Log> {
    /// A node that is born with what was durable, and the index through which a recorded commit says that it is
    /// committed: a lower bound (RH-9).
    ///
    /// Records that a crash in the middle of a step left without a predecessor were never acknowledged, and are cut off.
    pub fn recover<P: Protocol>(cluster: Cluster, recovered: Durable, out: &mut Effects<P>) -> (Node<Log>, u64) {
        let Durable { promise, snapshot, entries, committed, established: _ } = recovered;
        let mut log = Log::after(snapshot.as_ref().map_or(Lsn::ZERO, |reference| reference.lsn));
        for entry in entries.into_values() {
            let last = log.last();
            if entry.lsn.index != last.index + 1 || entry.lsn.term < last.term {
                out.persist(Record::TruncateFrom(entry.lsn.index));
                break;
            }
            log.append(entry);
        }
        let recorded = committed.index.min(log.last().index);
        (Node::new(cluster, promise, log, snapshot), recorded)
    }

    /// The place of the next entry of this node's own term.
    pub fn next_lsn(&self) -> Lsn {
        Lsn { term: self.promise.term, index: self.log.last().index + 1 }
    }

    /// The next entry is in the log, and on its way to the disk.
    pub fn append<P: Protocol>(&mut self, entry: Entry, out: &mut Effects<P>) {
        self.log.append(entry.clone());
        out.persist(Record::Put(entry));
    }

    /// The entry at `index` and all behind it are gone.
    pub fn truncate_from<P: Protocol>(&mut self, index: u64, out: &mut Effects<P>) {
        self.log.truncate_from(index);
        out.persist(Record::TruncateFrom(index));
    }

    /// Whether the leader of this term shows, with entries behind this place, another entry where one is committed here; `None` if not, else
    /// it is noted, and the reason not to follow it. It can commit nothing with this node, and must not count it: not even what is
    /// committed here.
    pub fn contradicted(&mut self, by: NodeId, previous: Lsn, entries: &[Entry]) -> Option<Reason> {
        if previous.index > self.commit {
            return None;
        }
        let mut shown = std::iter::once(previous).chain(entries.iter().map(|entry| entry.lsn));
        let of_this_log = |theirs: Lsn| {
            let term = self.log.term_at(theirs.index).filter(|_| theirs.index <= self.commit)?;
            let ours = Lsn { term, index: theirs.index };
            (ours != theirs).then_some((ours, theirs))
        };
        let (ours, theirs) = shown.find_map(of_this_log)?;
        Some(self.note_contradiction(by, ours, theirs))
    }

    /// Whether this leader of this term contradicted what is committed here: nothing that it says in that term is answered.
    pub fn is_contradicted_by(&self, leader: NodeId, term: Term) -> bool {
        // One of an earlier term is answered with the present one, as everybody is.
        let is_present = term == self.promise.term;
        is_present && self.contradiction.is_some_and(|found| (found.by, found.term) == (leader, term))
    }

    /// Bytes of what stands behind the commit.
    pub fn uncommitted_bytes(&self) -> usize {
        // From the end: an election must not cost more where the log is long.
        let uncommitted = self.log.iter().rev().take_while(|entry| entry.lsn.index > self.commit);
        uncommitted.map(|entry| entry.payload.len()).sum()
    }
}

impl<L: History> Node<L> {
    /// A node that holds this, and follows nobody. The snapshot's membership supersedes the founding one.
    pub fn new(cluster: Cluster, promise: Promise, log: L, snapshot: Option<SnapshotReference>) -> Node<L> {
        let Cluster { me, membership, timing, priority, limits, defect } = cluster;
        let founding = membership;
        let membership = snapshot.as_ref().map_or(founding.clone(), |reference| reference.membership.clone());
        // Below a snapshot nobody knows where the last change stood: if there was one, it may be the end.
        let membership_index = if membership.decides_as(&founding) { 0 } else { log.base().index };
        Node {
            me,
            timing,
            configured: priority,
            limits,
            promise,
            commit: log.base().index,
            log,
            membership,
            snapshot,
            leader: None,
            links_down: BTreeSet::new(),
            installing: None,
            transfer_ticket: None,
            is_caretaker: false,
            has_noted_that_others_lack: false,
            membership_index,
            patience: Patience::new(),
            is_disk_stalled: false,
            contradiction: None,
            defect,
        }
    }

    // --- Questions. ----------------------------------------------------------------------------------------------

    /// The status of this node in this role; `leader` is the node that requests may go to.
    pub fn status(&self, role: Role, leader: Option<NodeId>) -> Status {
        Status {
            role,
            term: self.promise.term,
            leader,
            last: self.log.last(),
            commit: self.commit,
            first_index: self.log.base().index + 1,
            is_suspended: self.is_suspended(),
            membership: self.membership.clone(),
        }
    }

    /// The place of the commit.
    ///
    /// # Panics
    /// When nothing is held there: what is committed is held, or is the compaction point.
    pub fn committed(&self) -> Lsn {
        let term = self.log.term_at(self.commit).expect("the commit is at or above the compaction point");
        Lsn { term, index: self.commit }
    }

    /// Notes a contradiction with a member of this term; the reason not to follow that member.
    pub fn note_contradiction(&mut self, by: NodeId, ours: Lsn, theirs: Lsn) -> Reason {
        self.note(Contradiction { by, term: self.promise.term, ours, theirs, is_certain: false })
    }

    /// The same where both entries are committed.
    pub fn note_two_histories(&mut self, by: NodeId, ours: Lsn, theirs: Lsn) -> Reason {
        self.note(Contradiction { by, term: self.promise.term, ours, theirs, is_certain: true })
    }

    fn note(&mut self, found: Contradiction) -> Reason {
        self.contradiction = Some(found);
        Reason::Contradicted(found)
    }

    /// Whether this defect is planted in the node.
    pub fn has_defect(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// Whether this node is the only voter.
    pub fn is_alone(&self) -> bool {
        self.membership.is_voter(self.me) && self.membership.all_voters().count() == 1
    }

    /// The preference for or against this node as leader, as it counts now. A witness leads as a caretaker at most: it can give
    /// entries to others, and no state (ADR 40). A preferred node that loses leadership again and again is preferred no more for a while:
    /// it would be handed leadership as soon as it answers, and lose it at the next stall of its disk or its machine, for ever.
    pub fn priority(&self) -> Priority {
        match self.configured {
            _ if self.membership.is_witness(self.me) => Priority::Never,
            Priority::Preferred if self.is_suspended() => Priority::Normal,
            configured => configured,
        }
    }

    /// Whether this node, preferred by its operator, is preferred no more for a while.
    fn is_suspended(&self) -> bool {
        let is_preferred = self.configured == Priority::Preferred && !self.membership.is_witness(self.me);
        is_preferred && self.patience.is_suspended() && !self.has_defect(Defect::InsistsOnPreference)
    }

    /// Whether this node may lead (RV-1): a voter, willing, able to write, with a complete state machine.
    pub fn may_lead(&self) -> bool {
        self.membership.is_voter(self.me)
            && (self.priority() != Priority::Never || self.is_caretaker)
            && self.installing.is_none()
            && !self.is_disk_stalled
    }

    /// The priority that this node reports: [`Priority::Never`] while it cannot lead.
    pub fn said_priority(&self) -> Priority {
        if self.may_lead() { self.priority() } else { Priority::Never }
    }

    /// The leader, if it is another node.
    pub fn other_leader(&self) -> Option<NodeId> {
        self.leader.filter(|leader| *leader != self.me)
    }

    /// All voters but this node.
    pub fn other_voters(&self) -> Vec<NodeId> {
        self.membership.all_voters().filter(|voter| *voter != self.me).collect()
    }

    /// The delay before this node campaigns when the link to the leader drops: survivors ask in the order of their
    /// rank, preferred ones at once, so no jitter is needed.
    pub fn turn_after(&self, dead: NodeId) -> Duration {
        let is_first = self.priority() == Priority::Preferred;
        RANK_STEP * if is_first { 0 } else { self.membership.rank_without(dead, self.me) }
    }

    /// Makes this node a caretaker: elected, it leads although it must never lead, since the others lack entries that it holds.
    pub fn take_care(&mut self) {
        self.is_caretaker = !self.has_defect(Defect::TakesNoCare);
    }

    /// Whether `member`, of which the leader knows this, may lead after it: a voter, willing, within reach.
    pub fn may_succeed(&self, member: NodeId, known: &Known) -> bool {
        let is_willing = known.priority != Priority::Never && !self.links_down.contains(&member);
        is_willing && member != self.me && self.membership.voters.contains(&member)
    }

    /// Whether `member`, of which this caretaker knows that, may take care in its place: it holds the state that a witness cannot give, and
    /// may never lead, or no more once the change under way has ended.
    pub fn may_take_care(&self, member: NodeId) -> bool {
        let holds_state = self.membership.is_voter(member) && !self.membership.is_witness(member);
        self.membership.is_witness(self.me) && holds_state && !self.links_down.contains(&member)
    }

    /// Notes that `from` hands leadership over to this node. A witness does so as well where this one must never lead: then it leads as
    /// a caretaker.
    pub fn note_hand_over(&mut self, from: NodeId) {
        if self.membership.is_witness(from) && self.could_take_care() {
            self.take_care();
        }
    }

    /// Whether this node must never lead and holds a state, so that it could lead as a caretaker where somebody asks for it.
    pub fn could_take_care(&self) -> bool {
        !self.membership.is_witness(self.me) && self.priority() == Priority::Never
    }

    /// Whether this voter, which has heard of this commit, may not know that it votes, or may not know with whom.
    pub fn may_not_know_that_it_votes(&self, voter: NodeId, commit: Lsn) -> bool {
        self.membership.is_voter(voter) && commit.index < self.membership_index
    }

    /// Notes that the others lack what only this node holds, if it is one that must never lead: where nobody else comes to lead, it leads as
    /// a caretaker.
    pub fn note_that_others_lack(&mut self, they_do: bool) {
        self.has_noted_that_others_lack |= they_do && self.priority() == Priority::Never;
    }

    /// Whether this node asks the others where nobody leads, and seeks nothing: a learner or a newcomer, which perhaps votes already and was
    /// not told; or a voter that must never lead, which perhaps holds a change of members and does not know that it is committed.
    pub fn only_asks(&self) -> bool {
        let is_to_vote = self.membership.is_learner(self.me) || self.me.0 >= self.membership.next_id;
        let must_not_lead = self.membership.is_voter(self.me) && self.priority() == Priority::Never;
        (is_to_vote || (must_not_lead && !self.is_caretaker)) && self.installing.is_none()
    }

    /// Whether these nodes are a quorum.
    pub fn is_quorum(&self, nodes: &[NodeId]) -> bool {
        self.membership.verdict(|id| Some(nodes.contains(&id))) == Verdict::Won
    }

    /// Whether a snapshot through `lsn` brings nothing: its end is committed here, or in the log.
    pub fn has_covered(&self, lsn: Lsn) -> bool {
        lsn.index <= self.commit || self.log.has(lsn)
    }

    /// Asserts the invariants of every node.
    ///
    /// # Panics
    /// When one of them is violated.
    pub fn assert_invariants(&self) {
        assert!(self.log.base().index <= self.commit, "only what is committed is compacted");
        assert!(self.log.term_at(self.commit).is_some(), "what is committed is in the log");
    }

    // --- Membership. ---------------------------------------------------------------------------------------------

    /// This membership is in force, by the entry or snapshot at `index`.
    pub fn reconfigure<P: Protocol>(&mut self, membership: Arc<Membership>, index: u64, out: &mut Effects<P>) {
        if !membership.decides_as(&self.membership) {
            self.membership_index = index;
        }
        self.membership = membership.clone();
        out.push(Effect::Reconfigure { membership, index });
    }

    // --- Snapshots. ----------------------------------------------------------------------------------------------

    /// Asks `from` for a snapshot, one at a time.
    pub fn fetch<P: Protocol>(&mut self, from: NodeId, reference: SnapshotReference, out: &mut Effects<P>) {
        if self.installing.is_none() {
            self.installing = Some(reference.clone());
            out.push(Effect::FetchSnapshot { from, reference });
        }
    }

    /// A snapshot is complete; says whether it was asked for, or one through a later place: an earlier one that had been begun is
    /// fetched to its end (finding H8), and what is between them is asked for again. By its place and not by its bytes: a witness
    /// writes one of its own (ADR 40).
    pub fn take_ready(&mut self, reference: &SnapshotReference) -> bool {
        match &mut self.installing {
            Some(installing) if reference.lsn.index <= installing.lsn.index => {
                *installing = reference.clone();
                true
            }
            _ => false,
        }
    }

    /// A snapshot that is complete replaces the history up to its end.
    ///
    /// The snapshot is recorded first: a crash between the two records must not lose what this node has acknowledged
    /// below it.
    pub fn install<P: Protocol>(&mut self, reference: SnapshotReference, out: &mut Effects<P>) {
        out.persist(Record::Snapshot(reference.clone()));
        if let Some(cut) = self.log.restart_after(reference.lsn) {
            out.persist(cut);
        }
        self.commit = reference.lsn.index;
        self.contradiction = None;
        self.snapshot = Some(reference.clone());
        out.push(Effect::Restore(reference));
    }

    /// The snapshot through `lsn` is installed, or cannot be had; says whether it was awaited.
    pub fn end_install(&mut self, lsn: Lsn) -> bool {
        self.installing.take_if(|installing| installing.lsn == lsn).is_some()
    }

    /// This node's state machine is safe in a snapshot: the log below may go, but for a tail that slow nodes may need.
    /// It holds at most [`Limits::trailing_entries`](crate::Limits::trailing_entries), and at most 256 MiB.
    ///
    /// # Panics
    /// When the snapshot holds what is not committed (RS-3).
    pub fn on_compact<P: Protocol>(&mut self, reference: SnapshotReference, out: &mut Effects<P>) {
        if self.snapshot.as_ref().is_some_and(|known| reference.lsn.index <= known.lsn.index) {
            return;
        }
        assert!(reference.lsn.index <= self.commit, "a state machine holds only what is committed (RS-3)");
        out.persist(Record::Snapshot(reference.clone()));
        let snapshot = reference.lsn.index;
        let beyond = self.log.beyond(snapshot, TRAILING_BYTES_MAX);
        let through = snapshot.saturating_sub(self.limits.trailing_entries).max(beyond);
        self.snapshot = Some(reference);
        if through > self.log.base().index {
            self.log.compact_through(through);
        }
    }

    // --- Who asked for a hand-over. ------------------------------------------------------------------------------

    /// The hand-over that somebody waits for is given up.
    pub fn refuse_transfer<P: Protocol>(&mut self, out: &mut Effects<P>) {
        if let Some((_, ticket)) = self.transfer_ticket.take() {
            out.refuse(ticket, Refusal::TransferTimedOut);
        }
    }

    /// A new leader is known: the requester of a hand-over hears whether it is the one.
    pub fn end_transfer<P: Protocol>(&mut self, out: &mut Effects<P>) {
        let Some(leader) = self.leader else { return };
        if let Some((to, ticket)) = self.transfer_ticket.take() {
            let outcome = if leader == to { Outcome::Done } else { Outcome::Refused(Refusal::TransferTimedOut) };
            out.reply(ticket, outcome);
        }
    }
}
