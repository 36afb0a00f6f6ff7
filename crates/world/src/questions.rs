//! Questions that a scheduler may ask of a world: the leader, the running members, those that could serve.

use crate::digested::{Digested, Service};
use crate::liveness::{Reached, Voters};
use crate::machine::{Life, Machine};
use crate::world::World;
use hustings_core::options::Options as _;
use hustings_core::{Membership, NodeId, Priority, Protocol, Role};

impl<P: Protocol, S: Service> World<P, S> {
    /// Members, in order of their ids.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.machines.iter().map(|machine| machine.id)
    }

    /// Whether a member runs.
    pub fn life(&self, node: NodeId) -> Option<&Life> {
        Some(&self.machines.iter().find(|machine| machine.id == node)?.life)
    }

    /// The leader by its own word, in the highest term, among those that run.
    pub fn leader(&self) -> Option<NodeId> {
        let leads = |machine: &&Machine<P, S>| machine.replica.as_ref().is_some_and(|r| r.role() == Role::Leader);
        let term = |machine: &&Machine<P, S>| machine.replica.as_ref().map(|replica| replica.status().term);
        self.machines.iter().filter(leads).max_by_key(term).map(|machine| machine.id)
    }

    /// Number of changing operations that a member's disk has begun; `None` for a stranger.
    pub fn disk_operations(&self, node: NodeId) -> Option<u64> {
        Some(self.machines.iter().find(|machine| machine.id == node)?.disk.operations())
    }

    /// Bytes of all files on the disks of all members.
    pub fn disk_bytes(&self) -> u64 {
        self.machines.iter().map(|machine| machine.disk.used_bytes()).sum()
    }

    /// A replica, for inspection.
    pub fn replica(&self, node: NodeId) -> Option<&hustings_core::Replica<P, Digested<S>>> {
        self.machines.iter().find(|machine| machine.id == node)?.replica.as_ref()
    }

    /// Whether a quorum of the members in force runs on the disks that the cluster knows, and one of them may lead. The
    /// membership is read from the member that has applied the most.
    pub fn has_quorum(&self) -> bool {
        self.is_quorum(|_| true)
    }

    /// Whether those are a quorum whose own disks answer, who go on, and who hear and reach each other in time.
    pub(crate) fn has_quorum_beside_the_sick(&self) -> bool {
        let fit: Vec<usize> = (0..self.machines.len()).filter(|at| self.machines[*at].is_fit(&self.settings)).collect();
        let joins = |one: usize, other: usize| one == other || !self.network.is_hampered(one, other);
        // One may be sick, whatever it reaches, and all the others reach each other.
        let is_whole_without = |sick: usize| {
            let others = || fit.iter().filter(|at| **at != sick);
            others().all(|one| others().all(|other| joins(*one, *other)))
        };
        let all = self.machines.len();
        let is_sick = fit.iter().copied().chain([all]).find(|sick| is_whole_without(*sick));
        is_sick.is_some_and(|sick| self.is_quorum(|at| at != sick && fit.contains(&at)))
            || fit.iter().any(|at| self.is_centre(*at, &fit))
    }

    /// Whether a link of the leader takes longer than the others, one way or both.
    pub(crate) fn has_slow_leader(&self) -> bool {
        let is_slow = |one: usize| {
            (0..self.machines.len()).any(|other| self.network.is_slow(one, other) || self.network.is_slow(other, one))
        };
        self.leader().and_then(|leader| self.position(leader)).is_some_and(is_slow)
    }

    /// Whether a member stands here that could answer a client: fit, and neither removed nor still to come.
    pub(crate) fn could_answer(&self, at: usize) -> bool {
        let machine = &self.machines[at];
        let is_member = self.present_membership().is_some_and(|membership| membership.has(machine.id));
        is_member && machine.is_fit(&self.settings)
    }

    /// Whether three of four machines that run or may run are members: rivals ask them all in turn, also those that were removed.
    pub(crate) fn has_few_strangers(&self) -> bool {
        let membership = self.leader_position().and_then(|at| Some(self.machines[at].replica.as_ref()?.membership()));
        let is_member = |machine: &&Machine<P, S>| membership.is_some_and(|membership| membership.has(machine.id));
        self.machines.iter().filter(is_member).count() * 4 >= self.machines.len() * 3
    }

    /// The member of the leader's membership that has applied the least, by position, and how far it has got; `None` while nobody leads.
    pub(crate) fn lowest_applied(&self) -> Option<(usize, Reached)> {
        let membership = self.machines[self.leader_position()?].replica.as_ref()?.membership();
        let is_member = |machine: &Machine<P, S>| membership.has(machine.id) && !machine.is_stranger;
        let members = self.machines.iter().enumerate().filter(|(_, machine)| is_member(machine));
        let reached = members.filter_map(|(at, machine)| Some((at, Reached::of(machine.replica.as_ref()?))));
        reached.min_by_key(|(_, reached)| reached.applied)
    }

    /// How far the machines have got, by position.
    pub(crate) fn reached(&self) -> Vec<Reached> {
        let reached = |machine: &Machine<P, S>| machine.replica.as_ref().map_or_else(Reached::default, Reached::of);
        self.machines.iter().map(reached).collect()
    }

    /// Ends of the logs of those that vote by the leader's word; all 0 while nobody leads.
    pub(crate) fn voters(&self) -> Voters {
        let leader = self.leader_position().and_then(|at| self.machines[at].replica.as_ref());
        let Some(leader) = leader else { return Voters { lowest: 0, leader: 0 } };
        let last = |replica: &hustings_core::Replica<P, Digested<S>>| replica.status().last.index;
        let voters = self.machines.iter().filter(|machine| leader.membership().is_voter(machine.id));
        let lowest = voters.filter_map(|machine| machine.replica.as_ref()).map(last).min();
        Voters { lowest: lowest.unwrap_or(0), leader: last(leader) }
    }

    /// Last index that more than half of all members know to be committed.
    pub(crate) fn committed_by_most(&self) -> u64 {
        let commit = |machine: &Machine<P, S>| machine.replica.as_ref().map_or(0, |replica| replica.status().commit);
        let mut ends: Vec<u64> = self.machines.iter().map(commit).collect();
        ends.sort_unstable();
        ends[(ends.len() - 1) / 2]
    }

    /// Whether this member reaches a quorum and everybody of `fit` that anybody reaches, and none of them knows more: it can
    /// lead, even if all else is cut. A chain's middle and a star's hub are such.
    fn is_centre(&self, at: usize, fit: &[usize]) -> bool {
        let last = |at: usize| self.machines[at].replica.as_ref().map(|replica| replica.status().last);
        // ZAB's history of a later epoch is fresher though it be shorter; elsewhere no epochs are established.
        let established =
            |at: usize| self.judge.shadow(self.machines[at].id).map(|shadow| shadow.emitted().established);
        let epoch = |at: usize| established(at).max(last(at).map(|last| last.term));
        let is_covered = |peer: usize| last(peer) == last(at) || (epoch(peer), last(peer)) < (epoch(at), last(at));
        let joins = |one: usize, other: usize| one == other || !self.network.is_hampered(one, other);
        let is_lost = |peer: usize| fit.iter().all(|other| *other == peer || !joins(*other, peer));
        let is_whole = fit.iter().all(|peer| is_lost(*peer) || joins(at, *peer) && is_covered(*peer));
        is_whole
            && self.may_ever_lead(at)
            && self.is_voter(at)
            && self.is_quorum(|peer| fit.contains(&peer) && joins(at, peer))
    }

    /// Whether a member votes, by the membership of the member that has applied the most.
    fn is_voter(&self, at: usize) -> bool {
        let running = self.machines.iter().filter_map(|machine| machine.replica.as_ref());
        let newest = running.max_by_key(|replica| replica.applied());
        newest.is_some_and(|replica| replica.membership().is_voter(self.machines[at].id))
    }

    /// Whether the running members of which this holds are a quorum, by the membership that one of them has applied: a
    /// newer one that is known only beyond their reach is no use to them.
    fn is_quorum(&self, counts: impl Fn(usize) -> bool) -> bool {
        use hustings_core::quorum::Verdict;
        let counted = self.machines.iter().enumerate().filter(|(at, _)| counts(*at));
        let running = counted.filter_map(|(_, machine)| machine.replica.as_ref());
        let Some(newest) = running.max_by_key(|replica| replica.applied()) else { return false };
        let runs = |id: NodeId| {
            let at = self.position(id);
            let is_up = |at: usize| {
                let machine = &self.machines[at];
                machine.is_up() && !machine.is_paused && !machine.is_stranger && counts(at)
            };
            Some(at.is_some_and(is_up))
        };
        let may_lead = |at: usize| {
            let id = self.machines[at].id;
            self.may_ever_lead(at) && newest.membership().is_voter(id) && runs(id) == Some(true)
        };
        let needed = self.options.voters_to_serve(newest.membership().all_voters().count());
        let running = newest.membership().all_voters().filter(|id| runs(*id) == Some(true)).count();
        let is_enough = newest.membership().verdict(runs) == Verdict::Won && running >= needed;
        is_enough && (0..self.machines.len()).any(may_lead) && self.has_state_behind_tails(newest.membership(), &counts)
    }

    /// Whether for each running witness of which this holds a running member has the state behind its tail: where the only one that
    /// has it is away, nobody can serve (ADR 40). A learner, or a member that was removed, may have it and cannot lead with it.
    fn has_state_behind_tails(&self, membership: &Membership, counts: impl Fn(usize) -> bool) -> bool {
        let running = |is_witness: bool| {
            let voters = self.machines.iter().enumerate().filter(|(_, machine)| membership.is_voter(machine.id));
            let counted = voters.filter(|(at, _)| counts(*at));
            let replicas = counted.filter_map(|(_, machine)| machine.replica.as_ref());
            replicas.filter(move |replica| replica.is_witness() == is_witness)
        };
        let known = running(false).map(|replica| replica.status().commit).max().unwrap_or(0);
        running(true).all(|witness| witness.status().first_index <= known + 1)
    }

    /// Whether a member's operator lets it lead.
    pub(crate) fn may_ever_lead(&self, at: usize) -> bool {
        let priority = self.settings.priorities.get(at);
        priority.is_none_or(|priority| *priority != Priority::Never) && !self.settings.witnesses.contains(&at)
    }

    pub(crate) fn position(&self, node: NodeId) -> Option<usize> {
        self.machines.iter().position(|machine| machine.id == node)
    }

    /// A number that is equal for equal runs: what everybody is, holds and applied.
    pub fn fingerprint(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (self.now, self.counts.steps, self.counts.messages, self.counts.completed, self.order).hash(&mut hasher);
        for machine in &self.machines {
            (machine.id, machine.lives, machine.incarnation).hash(&mut hasher);
            if let Some(replica) = &machine.replica {
                (replica.status(), replica.applied(), replica.machine().digest()).hash(&mut hasher);
            }
        }
        hasher.finish()
    }
}
