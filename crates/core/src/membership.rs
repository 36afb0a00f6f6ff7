//! The members, how they vote, and how that changes: [`Membership`], [`MembershipChange`].
//!
//! One rule for all protocols (ADR 1): a change takes effect when committed and applied; a leader starts one at a
//! time; no node campaigns while it knows of a committed change that it has not applied. Joint changes are Raft's (§6);
//! the others move one voter at a time. Sources: RM-1 to RM-9 in `docs/protocols/rules`; etcd/raft `confchange`.

use crate::quorum::{self, Verdict};
use crate::{Assignment, Member, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The members and how they vote.
///
/// Invariants: learners and voters never intersect; `learners_next` are outgoing voters; outside a joint change
/// `outgoing` and `learners_next` are empty and `auto_leave` is false; ids are never reused, so `next_id` is above all
/// ever given out.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Membership {
    /// Voters (the incoming half while joint).
    pub voters: BTreeSet<NodeId>,
    /// The old voters while a joint change is under way: decisions need a majority of them too.
    pub outgoing: BTreeSet<NodeId>,
    /// Members that receive the whole log but do not vote.
    pub learners: BTreeSet<NodeId>,
    /// Outgoing voters that become learners when the joint change is left.
    pub learners_next: BTreeSet<NodeId>,
    /// Whether the leader leaves the joint state by itself.
    pub auto_leave: bool,
    /// Names and addresses of all members, by id.
    pub members: BTreeMap<NodeId, Member>,
    /// The id that the next member will get.
    pub next_id: u64,
    /// Primaries of the application's partitions, where the protocol assigns them.
    pub assignments: BTreeMap<u32, Assignment>,
}

/// One step of a change.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Change {
    /// Adds a voter, or promotes a learner.
    AddVoter(NodeId),
    /// Adds a learner, or demotes a voter.
    AddLearner(NodeId),
    /// Removes a member of either kind.
    Remove(NodeId),
    /// Sets the name and addresses of a member; changes no quorum.
    Describe(NodeId, Member),
}

/// The way from the old membership to the new.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Passage {
    /// Directly when at most one step concerns quorums, else joint with automatic leave.
    Auto,
    /// Through a joint membership that the leader leaves by itself.
    JointImplicit,
    /// Joint, left by a [`Passage::Leave`].
    JointExplicit,
    /// Leaves the joint membership that is in force.
    Leave,
}

/// A change of membership: the payload of an [`crate::EntryKind::Membership`] entry.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MembershipChange {
    /// The steps, taken in order.
    pub steps: Vec<Change>,
    /// The way from the old membership to the new.
    pub passage: Passage,
}

impl MembershipChange {
    /// These steps, passing as [`Passage::Auto`] says.
    pub fn of(steps: impl IntoIterator<Item = Change>) -> MembershipChange {
        MembershipChange { steps: steps.into_iter().collect(), passage: Passage::Auto }
    }

    /// The end of a joint change.
    pub fn leave() -> MembershipChange {
        MembershipChange { steps: Vec::new(), passage: Passage::Leave }
    }
}

/// The reason why a change cannot be made: definite, nothing was done.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MembershipError {
    /// The rule that refuses the change.
    pub kind: MembershipRefusal,
    /// In words, with the ids.
    pub what: String,
}

/// The rule that refuses a change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MembershipRefusal {
    /// Nobody would be left to decide, or to lead.
    NoVoters,
    /// More than one voter would change without a joint phase.
    NotSimple,
    /// The change under way must be left first.
    AlreadyJoint,
    /// There is nothing to leave.
    NotJoint,
    /// The id is not a member's.
    NotFound,
    /// The id was a member's once, or is one already; the peer URL is another's.
    Taken,
    /// The one to be promoted is a voter already.
    NotLearner,
    /// The one to be promoted is too far behind.
    NotReady,
    /// Witnesses are fewer than half of the voters, and a member stays what it was added as.
    Witness,
    /// Names and addresses would not fit where a membership must fit: snapshots, handshakes, a node's identity.
    TooLarge,
}

impl fmt::Display for MembershipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what.fmt(f)
    }
}

impl std::error::Error for MembershipError {}

fn refuse<T>(kind: MembershipRefusal, what: impl Into<String>) -> Result<T, MembershipError> {
    Err(MembershipError { kind, what: what.into() })
}

impl Membership {
    /// These voters, nobody else, without names: for tests and simulations.
    pub fn of_voters(voters: impl IntoIterator<Item = NodeId>) -> Membership {
        let voters: BTreeSet<NodeId> = voters.into_iter().collect();
        let members = voters.iter().map(|id| (*id, Member { name: id.to_string(), ..Member::default() })).collect();
        let next_id = voters.last().map_or(1, |id| id.0 + 1);
        Membership { voters, members, next_id, ..Membership::default() }
    }

    /// Founding members with their names and addresses, all voters; ids are given in the order of names, from 1.
    pub fn founded_by(founders: impl IntoIterator<Item = Member>) -> Membership {
        let mut founders: Vec<Member> = founders.into_iter().collect();
        founders.sort_by(|a, b| a.name.cmp(&b.name));
        let members: BTreeMap<NodeId, Member> = (1..).map(NodeId).zip(founders).collect();
        let next_id = members.len() as u64 + 1;
        Membership { voters: members.keys().copied().collect(), members, next_id, ..Membership::default() }
    }

    /// Whether a joint change is under way.
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Whether `id` votes, in either half.
    pub fn is_voter(&self, id: NodeId) -> bool {
        self.voters.contains(&id) || self.outgoing.contains(&id)
    }

    /// Whether `id` only listens.
    pub fn is_learner(&self, id: NodeId) -> bool {
        self.learners.contains(&id)
    }

    /// Whether `id` is a member that holds no state (ADR 40).
    pub fn is_witness(&self, id: NodeId) -> bool {
        self.members.get(&id).is_some_and(|member| member.is_witness)
    }

    /// Whether `id` is a voter or learner, in either half.
    pub fn has(&self, id: NodeId) -> bool {
        self.is_voter(id) || self.is_learner(id)
    }

    /// Whether `id` was a member once and is none any more: no id is given twice.
    pub fn has_removed(&self, id: NodeId) -> bool {
        id.0 < self.next_id && !self.has(id)
    }

    /// All who receive the log, in order.
    pub fn everyone(&self) -> impl Iterator<Item = NodeId> + '_ {
        let mut all: Vec<NodeId> = self.voters.iter().chain(&self.outgoing).chain(&self.learners).copied().collect();
        all.sort_unstable();
        all.dedup();
        all.into_iter()
    }

    /// All who vote, in order.
    pub fn all_voters(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.voters.union(&self.outgoing).copied()
    }

    /// Whether answers that were counted under `earlier` count under this membership too: the same members vote, each of the same kind and
    /// with the storage that it was bound to. Names, addresses and learners may differ.
    pub fn votes_as(&self, earlier: &Membership) -> bool {
        let is_same = |id: NodeId| match (self.members.get(&id), earlier.members.get(&id)) {
            (Some(now), Some(then)) => {
                let is_bound_anew =
                    then.storage_incarnation.is_some() && then.storage_incarnation != now.storage_incarnation;
                now.is_witness == then.is_witness && !is_bound_anew
            }
            (now, then) => now.is_none() && then.is_none(),
        };
        self.voters == earlier.voters && self.outgoing == earlier.outgoing && self.all_voters().all(is_same)
    }

    /// The result of a vote as far as the answers so far decide it.
    pub fn verdict(&self, answer: impl Fn(NodeId) -> Option<bool>) -> Verdict {
        if self.outgoing.is_empty() {
            quorum::majority_verdict(&self.voters, answer)
        } else {
            quorum::joint_verdict(&self.voters, &self.outgoing, answer)
        }
    }

    /// The highest value that a quorum has reached.
    pub fn reached(&self, value: impl Fn(NodeId) -> u64) -> u64 {
        if self.outgoing.is_empty() {
            quorum::majority_reached(&self.voters, value)
        } else {
            quorum::joint_reached(&self.voters, &self.outgoing, value)
        }
    }

    /// The name of a member or, when it has none, its id: as `(id 2)` where others have names, since `n2` may be one of them.
    pub fn name_of(&self, id: NodeId) -> String {
        match self.members.get(&id) {
            Some(member) if !member.name.is_empty() => member.name.clone(),
            _ if self.members.values().any(|member| !member.name.is_empty()) => format!("(id {:x})", id.0),
            _ => id.to_string(),
        }
    }

    /// The membership after `change`, or the reason why it cannot be made. `self` stays as it is.
    pub fn after(&self, change: &MembershipChange) -> Result<Membership, MembershipError> {
        let concerning_quorums = change.steps.iter().filter(|step| !matches!(step, Change::Describe(..))).count();
        match change.passage {
            Passage::Leave => self.after_leaving(),
            Passage::Auto if concerning_quorums <= 1 => self.after_simple(&change.steps),
            Passage::Auto | Passage::JointImplicit => self.after_entering(&change.steps, true),
            Passage::JointExplicit => self.after_entering(&change.steps, false),
        }
    }

    /// At most one voter differs, and no joint change is under way (RM-4).
    pub fn after_simple(&self, steps: &[Change]) -> Result<Membership, MembershipError> {
        if self.is_joint() && steps.iter().any(|step| !matches!(step, Change::Describe(..))) {
            return refuse(MembershipRefusal::AlreadyJoint, "a joint change is under way: it must be left first");
        }
        let mut next = self.clone();
        next.take(steps)?;
        if self.voters.symmetric_difference(&next.voters).count() > 1 {
            return refuse(MembershipRefusal::NotSimple, "more than one voter changed without a joint phase");
        }
        next.assert_invariants();
        Ok(next)
    }

    /// The old voters stay as the outgoing half; the steps change the incoming one (RM-4).
    pub fn after_entering(&self, steps: &[Change], auto_leave: bool) -> Result<Membership, MembershipError> {
        if self.is_joint() {
            return refuse(MembershipRefusal::AlreadyJoint, "a joint change is under way: it must be left first");
        }
        if self.voters.is_empty() {
            return refuse(MembershipRefusal::NoVoters, "a membership without voters cannot enter a joint change");
        }
        let mut next = Membership { outgoing: self.voters.clone(), auto_leave, ..self.clone() };
        next.take(steps)?;
        next.assert_invariants();
        Ok(next)
    }

    /// The membership without its outgoing half; those waiting to become learners become them (RM-6).
    pub fn after_leaving(&self) -> Result<Membership, MembershipError> {
        if !self.is_joint() {
            return refuse(MembershipRefusal::NotJoint, "there is no joint change to leave");
        }
        let mut next = self.clone();
        next.outgoing.clear();
        next.auto_leave = false;
        next.learners.append(&mut next.learners_next);
        next.forget_strangers();
        next.assert_invariants();
        Ok(next)
    }

    fn take(&mut self, steps: &[Change]) -> Result<(), MembershipError> {
        let before = self.clone();
        for step in steps {
            match step {
                Change::AddVoter(NodeId(u64::MAX)) | Change::AddLearner(NodeId(u64::MAX)) => {
                    return refuse(MembershipRefusal::Taken, "ids are counted up, and none would come after this one");
                }
                Change::AddVoter(id) => self.make_voter(*id),
                Change::AddLearner(id) => self.make_learner(*id),
                Change::Remove(id) => self.remove(*id),
                Change::Describe(id, member) => {
                    self.members.insert(*id, member.clone());
                }
            }
        }
        self.forget_strangers();
        if self.voters.is_empty() {
            return refuse(MembershipRefusal::NoVoters, "the change would remove all voters");
        }
        self.check_witnesses(&before)
    }

    /// Witnesses are fewer than half of the voters, so that whatever decides includes a member that holds the state; and a member
    /// stays what it began as (ADR 40).
    fn check_witnesses(&self, before: &Membership) -> Result<(), MembershipError> {
        let changed = self.members.iter().find(|(id, member)| {
            before.members.get(id).is_some_and(|known| before.has(**id) && known.is_witness != member.is_witness)
        });
        if let Some((id, _)) = changed {
            let what =
                format!("{} was added as what it is: a witness stays one, and nobody becomes one", self.name_of(*id));
            return refuse(MembershipRefusal::Witness, what);
        }
        let (witnesses, voters) = (self.voters.iter().filter(|id| self.is_witness(**id)).count(), self.voters.len());
        if !quorum::may_be_witnesses(witnesses, voters) {
            let what = format!(
                "{witnesses} of {voters} voters would be witnesses, which hold no data: they must be fewer than half. Add a member that holds data first, or remove the witness"
            );
            return refuse(MembershipRefusal::Witness, what);
        }
        Ok(())
    }

    fn make_voter(&mut self, id: NodeId) {
        self.learners.remove(&id);
        self.learners_next.remove(&id);
        self.voters.insert(id);
        self.introduce(id);
    }

    fn make_learner(&mut self, id: NodeId) {
        self.voters.remove(&id);
        // An outgoing voter still votes: it becomes a learner when the joint change is left, and keeps its progress.
        if self.outgoing.contains(&id) {
            self.learners_next.insert(id);
        } else {
            self.learners.insert(id);
        }
        self.introduce(id);
    }

    fn remove(&mut self, id: NodeId) {
        self.voters.remove(&id);
        self.learners.remove(&id);
        self.learners_next.remove(&id);
    }

    fn introduce(&mut self, id: NodeId) {
        self.members.entry(id).or_default();
        self.next_id = self.next_id.max(id.0 + 1);
    }

    /// Names and addresses live as long as their member.
    fn forget_strangers(&mut self) {
        let Membership { voters, outgoing, learners, learners_next, members, .. } = self;
        members.retain(|id, _| {
            voters.contains(id) || outgoing.contains(id) || learners.contains(id) || learners_next.contains(id)
        });
    }

    /// Asserts the invariants of every membership.
    ///
    /// # Panics
    /// When one of them is violated.
    pub fn assert_invariants(&self) {
        assert!(self.voters.is_disjoint(&self.learners), "learners do not vote");
        assert!(self.outgoing.is_disjoint(&self.learners), "an outgoing voter is not a learner yet");
        assert!(self.learners_next.is_subset(&self.outgoing), "only outgoing voters wait to become learners");
        assert!(self.is_joint() || !self.auto_leave, "only a joint membership is left");
        assert!(self.members.keys().next_back().is_none_or(|id| id.0 < self.next_id), "ids are never reused");
    }
}

impl fmt::Display for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |ids: &BTreeSet<NodeId>| ids.iter().map(|id| self.name_of(*id)).collect::<Vec<_>>().join(" ");
        write!(f, "voters {{{}}}", names(&self.voters))?;
        if self.is_joint() {
            write!(f, " and {{{}}}", names(&self.outgoing))?;
        }
        if !self.learners.is_empty() {
            write!(f, " learners {{{}}}", names(&self.learners))?;
        }
        if !self.learners_next.is_empty() {
            write!(f, " next {{{}}}", names(&self.learners_next))?;
        }
        for (partition, assignment) in &self.assignments {
            write!(f, " p{partition}={assignment}")?;
        }
        Ok(())
    }
}
