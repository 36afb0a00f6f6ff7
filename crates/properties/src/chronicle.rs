//! The history of a cluster, and the properties that must hold over all of it: [`Chronicle`].
//!
//! A world tells it the records that each member emits, those that became durable, the members' statuses, and crashes.
//! Each call costs what is new. It reads only public status, announced transitions and records, so it knows no
//! protocol; properties that do not hold of a protocol by design are switched off by name in [`Rules`]. The predicates that the
//! exhaustive checker asks as well stand in [`crate::safety`].
//!
//! | property | says |
//! |---|---|
//! | `one-leader-per-term` | over the whole history, at most one node leads a term (RI-1, G1, OLT) |
//! | `leader-appends-only` | a leader never overwrites or removes entries of its log (RI-2) |
//! | `log-matching` | the same place holds the same entry, after the same entry, everywhere (RI-3) |
//! | `leader-completeness` | a leader of a term holds all that was committed in earlier terms (RI-4) |
//! | `state-machine-safety` | nobody commits another entry at an index that was committed (RI-5); equal logs give equal states |
//! | `commit-on-quorum` | what is committed is durable on a quorum when it is committed, and on somebody of every quorum after each restart |
//! | `promises-stay` | terms of promises only grow, and a vote stays for its term (RI-8) |
//! | `votes-are-durable` | a node that is named as having voted for a leader has that promise on disk |
//! | `history-is-durable` | a node that is named as holding a leader's history has it on disk through its end |
//! | `durable-survives` | a restart brings back all that was reported durable, and nothing that was never written |
//! | `never-backwards` | term and commit do not fall within a life |
//! | `tokens-grow` | terms grow along what is committed: a later fencing token is a larger one |
//! | `one-primary-per-lease` | over the whole history, a lease of a partition names one primary, and leases do not fall (P1, P2) |
//! | `one-outcome` | a refused proposal is never committed |

use crate::Violation;
use crate::safety::{Committed, Logged, Placed, Rules, check_leader, check_state, value_of};
use crate::shadow::{Fold, Shadow};
use hustings_core::{Durable, Lsn, Membership, NodeId, Origin, Reason, Record, Role, Status, Term, Transition};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The facts about one entry that are the same in every log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Facts {
    /// Its content, and the entry before it where it was first seen.
    placed: Placed,
    origin: Origin,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Seen {
    shadow: Shadow,
    status: Option<Status>,
    role: Role,
    /// Its disk has damaged what was on it, or may have: it may come back with less than was reported durable.
    is_excused: bool,
    /// All that it had durable when its disk lost some of that: others may have its word for it, and act upon that later.
    lost: Vec<Fold>,
}

impl Seen {
    /// Whether a disk of its holds this, or did when others heard of it.
    fn has_held(&self, is_held: impl Fn(&Fold) -> bool) -> bool {
        is_held(self.shadow.durable()) || self.lost.iter().any(is_held)
    }
}

impl Default for Seen {
    fn default() -> Seen {
        Seen { shadow: Shadow::default(), status: None, role: Role::Follower, is_excused: false, lost: Vec::new() }
    }
}

/// A log of records without payloads, and the payloads' digests.
struct Log<'a> {
    fold: &'a Fold,
    entries: &'a BTreeMap<Lsn, Facts>,
}

impl Logged for Log<'_> {
    fn covered(&self) -> u64 {
        self.fold.snapshot.index
    }

    fn place(&self, index: u64) -> Option<Lsn> {
        self.fold.slots.get(&index).copied()
    }

    fn value(&self, place: Lsn) -> Option<u64> {
        self.entries.get(&place).map(|facts| facts.placed.value)
    }

    fn end(&self) -> Lsn {
        self.fold.last()
    }
}

/// The history of one cluster.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Chronicle {
    rules: Rules,
    members: BTreeMap<NodeId, Seen>,
    leaders: BTreeMap<Term, NodeId>,
    entries: BTreeMap<Lsn, Facts>,
    /// Committed entries by index, from 1.
    committed: Vec<Committed>,
    membership: Option<Arc<Membership>>,
    /// Digest of the state after an index, as the first member to apply it had it.
    states: BTreeMap<u64, u64>,
    refused: BTreeSet<Origin>,
    chosen: BTreeSet<Origin>,
    /// The primary of a partition under a lease.
    primaries: BTreeMap<(u32, u64), NodeId>,
}

/// P1 and P2 of `docs/protocols/rules/blazingmq.md`; within a life, a node's view of a lease only moves on.
fn judge_primaries(
    primaries: &mut BTreeMap<(u32, u64), NodeId>,
    node: NodeId,
    before: Option<&Membership>,
    membership: &Membership,
) -> Result<(), Violation> {
    for (partition, assignment) in &membership.assignments {
        let holder = *primaries.entry((*partition, assignment.lease)).or_insert(assignment.primary);
        let earlier = before.and_then(|before| before.assignments.get(partition));
        if holder != assignment.primary || earlier.is_some_and(|earlier| earlier.lease > assignment.lease) {
            let what = format!(
                "{node} sees partition {partition} with {assignment}, where that lease was {holder}'s, and it saw {earlier:?} before"
            );
            return Err(Violation::of("one-primary-per-lease", what));
        }
    }
    Ok(())
}

impl Chronicle {
    /// A history in which nothing happened yet.
    pub fn new(rules: Rules) -> Chronicle {
        Chronicle {
            rules,
            members: BTreeMap::new(),
            leaders: BTreeMap::new(),
            entries: BTreeMap::new(),
            committed: Vec::new(),
            membership: None,
            states: BTreeMap::new(),
            refused: BTreeSet::new(),
            chosen: BTreeSet::new(),
            primaries: BTreeMap::new(),
        }
    }

    /// The leader of each term.
    pub fn leaders(&self) -> &BTreeMap<Term, NodeId> {
        &self.leaders
    }

    /// The highest index that anybody committed.
    pub fn committed(&self) -> u64 {
        self.committed.len() as u64
    }

    /// The records that a member wrote; `None` of a stranger.
    pub fn shadow(&self, node: NodeId) -> Option<&Shadow> {
        Some(&self.members.get(&node)?.shadow)
    }

    fn seen(&mut self, node: NodeId) -> &mut Seen {
        self.members.entry(node).or_default()
    }

    /// A member emitted a record.
    ///
    /// # Errors
    /// `leader-appends-only`, `promises-stay`, `log-matching`.
    pub fn on_record(&mut self, node: NodeId, number: u64, record: &Record) -> Result<(), Violation> {
        let rules = self.rules;
        let seen = self.members.entry(node).or_default();
        let log = seen.shadow.emitted();
        if rules.leader_appends_only && seen.role == Role::Leader {
            let last = log.last().index;
            let hit = match record {
                Record::Put(entry) => (entry.lsn.index <= last).then_some(("overwrote", entry.lsn.index)),
                Record::TruncateFrom(index) => (*index <= last).then_some(("removed", *index)),
                _ => None,
            };
            if let Some((verb, index)) = hit {
                let what = format!("{node} leads and {verb} index {index} of a log that ends at {last}");
                return Err(Violation::of("leader-appends-only", what));
            }
        }
        if let Record::Promise(promise) = record {
            let before = seen.shadow.emitted().promise;
            if !before.may_become(promise) {
                let what = format!("{node} promised {before:?} and promises {promise:?} now");
                return Err(Violation::of("promises-stay", what));
            }
        }
        if let Record::Put(entry) = record {
            let before = match entry.lsn.index {
                1 => Some(Term::ZERO),
                index => log.slot(index - 1).map(|lsn| lsn.term),
            };
            let placed = Placed { value: value_of(entry), before };
            let known = self.entries.entry(entry.lsn).or_insert(Facts { placed, origin: entry.origin });
            rules.check_same_entry(node, entry.lsn, placed, ("somebody else did", known.placed))?;
        }
        seen.shadow.on_record(number, record);
        Ok(())
    }

    /// A member was told that its records up to this number are durable.
    pub fn on_durable(&mut self, node: NodeId, number: u64) {
        self.seen(node).shadow.on_durable(number);
    }

    /// A member's disk was replaced by a new one: it starts from nothing. What it promised counts where others heard it before.
    pub fn on_wiped(&mut self, node: NodeId) {
        let seen = self.seen(node);
        let mut lost = std::mem::take(&mut seen.lost);
        lost.push(seen.shadow.durable().clone());
        *seen = Seen { lost, ..Seen::default() };
    }

    /// Whether what this member has come back with is less than it had said to be durable, or something else.
    pub fn brings_back_less(&self, node: NodeId, recovered: &Durable) -> bool {
        self.members.get(&node).is_some_and(|seen| seen.shadow.clone().on_restart(node, recovered).is_err())
    }

    /// A member's disk has damaged something: it may come back with less than was reported durable.
    pub fn excuse(&mut self, node: NodeId) {
        self.seen(node).is_excused = true;
    }

    /// A member came back with this on its disk.
    ///
    /// # Errors
    /// `durable-survives`, `commit-on-quorum`.
    pub fn on_restart(&mut self, node: NodeId, recovered: &Durable) -> Result<(), Violation> {
        let is_judged = self.rules.durable_survives;
        let seen = self.seen(node);
        seen.status = None;
        seen.role = Role::Follower;
        let held = (seen.is_excused || !is_judged).then(|| seen.shadow.durable().clone());
        if let Err(violation) = seen.shadow.on_restart(node, recovered) {
            let Some(held) = held else { return Err(violation) };
            seen.lost.push(held);
        }
        self.check_quorum_holds_the_end()
    }

    /// A member announced a transition.
    ///
    /// # Errors
    /// `one-leader-per-term`, `leader-completeness`, `votes-are-durable`, `history-is-durable`.
    pub fn on_transition(&mut self, transition: &Transition) -> Result<(), Violation> {
        let Transition { node, to, term, because, .. } = transition;
        let was = std::mem::replace(&mut self.seen(*node).role, *to);
        let is_elected = matches!(to, Role::Leader | Role::Synchronizing);
        if !is_elected || was == *to {
            return Ok(());
        }
        check_leader(&mut self.leaders, *term, *node)
            .map_err(|two| Violation { what: format!("{}, because {because}", two.what), ..two })?;
        match because {
            // A published form may write down neither name nor term; where slots are chosen one by one a promise names nobody.
            Reason::VoteWon(voters) if self.rules.votes_are_promises || !self.rules.terms_are_places => {
                self.check_votes(*node, *term, voters, self.rules.votes_are_promises)?;
            }
            Reason::Promised(voters) => self.check_votes(*node, *term, voters, false)?,
            Reason::Synchronized(holders) => self.check_history(*node, *term, holders)?,
            _ => {}
        }
        if *to == Role::Leader { self.check_complete(*node, *term) } else { Ok(()) }
    }

    fn log<'a>(&'a self, fold: &'a Fold) -> Log<'a> {
        Log { fold, entries: &self.entries }
    }

    /// Whether a member has this committed entry on disk, or had it when its disk lost it.
    fn has_on_disk(&self, node: NodeId, committed: Committed) -> bool {
        let seen = self.members.get(&node);
        seen.is_some_and(|seen| seen.has_held(|fold| self.rules.is_held(&self.log(fold), committed)))
    }

    /// The named members that are known.
    fn known<'a>(&'a self, named: &'a [NodeId]) -> impl Iterator<Item = (NodeId, &'a Seen)> {
        named.iter().filter_map(|id| self.members.get(id).map(|seen| (*id, seen)))
    }

    /// A node that voted for the leader, or promised its term to anybody, has that on disk.
    fn check_votes(&self, leader: NodeId, term: Term, voters: &[NodeId], is_by_name: bool) -> Result<(), Violation> {
        let is_kept = |fold: &Fold| {
            fold.promise.term > term || fold.promise.term == term && (!is_by_name || fold.promise.vote == Some(leader))
        };
        for (voter, seen) in self.known(voters) {
            if !seen.has_held(is_kept) {
                let promise = seen.shadow.durable().promise;
                let what = format!("{leader} leads term {term} by the word of {voter}, whose disk says {promise:?}");
                return Err(Violation::of("votes-are-durable", what));
            }
        }
        Ok(())
    }

    /// Every node that is said to hold the leader's history has the end of its log on disk.
    fn check_history(&self, leader: NodeId, term: Term, holders: &[NodeId]) -> Result<(), Violation> {
        let Some(end) = self.members.get(&leader).map(|seen| seen.shadow.emitted().last()) else { return Ok(()) };
        for (holder, seen) in self.known(holders) {
            if !seen.has_held(|fold| fold.holds(end)) {
                let has = seen.shadow.durable().last();
                let what = format!(
                    "{leader} leads term {term} with a history through {end}; {holder} is to hold it, and its disk ends at {has}"
                );
                return Err(Violation::of("history-is-durable", what));
            }
        }
        Ok(())
    }

    fn check_complete(&self, leader: NodeId, term: Term) -> Result<(), Violation> {
        let Some(seen) = self.members.get(&leader) else { return Ok(()) };
        self.rules.check_complete(leader, term, &self.log(seen.shadow.emitted()), &self.committed)
    }

    /// A member took a step and is now this, with the state of its machine as a digest after what it applied.
    ///
    /// # Errors
    /// `never-backwards`, `state-machine-safety`, `commit-on-quorum`, `tokens-grow`, `one-primary-per-lease`, `one-outcome`.
    pub fn on_status(&mut self, node: NodeId, status: &Status, state: Option<(u64, u64)>) -> Result<(), Violation> {
        if let Some((applied, digest)) = state {
            check_state(&mut self.states, node, applied, digest)?;
        }
        let seen = self.members.entry(node).or_default();
        // The membership by which it decided: a change among its new commits may have taken effect since.
        let decided = seen.status.as_ref().map(|before| before.membership.clone());
        if decided.as_ref().is_none_or(|before| !Arc::ptr_eq(before, &status.membership)) {
            judge_primaries(&mut self.primaries, node, decided.as_deref(), &status.membership)?;
        }
        let before = match &mut seen.status {
            Some(before) => {
                if status.term < before.term || status.commit < before.commit {
                    let what = format!(
                        "{node} was in term {} with commit {} and is in term {} with commit {}",
                        before.term, before.commit, status.term, status.commit
                    );
                    return Err(Violation::of("never-backwards", what));
                }
                let commit = before.commit;
                if *before != *status {
                    before.clone_from(status);
                }
                commit
            }
            none => {
                *none = Some(status.clone());
                0
            }
        };
        if status.commit > before { self.on_commit(node, before, decided, status) } else { Ok(()) }
    }

    fn on_commit(
        &mut self,
        node: NodeId,
        before: u64,
        decided: Option<Arc<Membership>>,
        status: &Status,
    ) -> Result<(), Violation> {
        let known = self.committed();
        let seen = &self.members[&node];
        let log = seen.shadow.emitted();
        let commit = status.commit;
        for index in (before.max(log.snapshot.index) + 1)..=commit.min(known) {
            if let Some(mine) = log.slot(index) {
                let mine = (mine, self.log(log).value(mine));
                self.rules.check_agreement(node, mine, self.committed[index as usize - 1])?;
            }
        }
        let mut fresh = Vec::new();
        for index in known + 1..=commit {
            let Some(lsn) = log.slot(index) else {
                let what =
                    format!("{node} says that index {index} is committed, and neither holds it nor does anybody");
                return Err(Violation::of("commit-on-quorum", what));
            };
            fresh.push(lsn);
        }
        for lsn in &fresh {
            let last = self.committed.last().map_or(Term::ZERO, |committed| committed.lsn.term);
            if lsn.term < last && self.rules.terms_are_places {
                let what = format!("{lsn} is committed after an entry of term {last}");
                return Err(Violation::of("tokens-grow", what));
            }
            let facts = self.entries.get(lsn);
            let value = facts.map_or(0, |facts| facts.placed.value);
            self.committed.push(Committed { lsn: *lsn, value, reign: status.term });
            let origin = facts.map_or(Origin::NOBODY, |facts| facts.origin);
            if origin != Origin::NOBODY {
                self.chosen.insert(origin);
                if self.refused.contains(&origin) {
                    let what =
                        format!("{lsn} is committed, and its client was told that it never would be ({origin:?})");
                    return Err(Violation::of("one-outcome", what));
                }
            }
        }
        if fresh.is_empty() {
            return Ok(());
        }
        self.membership = Some(status.membership.clone());
        // Of a log that is a chain whoever holds the last one holds all.
        let judged = if self.rules.log_matching { 1 } else { fresh.len() };
        for committed in &self.committed[self.committed.len() - judged..] {
            let memberships = [Some(&*status.membership), decided.as_deref()];
            let holds = |id| self.has_on_disk(id, *committed);
            self.rules.check_on_quorum(node, committed.lsn, memberships.into_iter().flatten(), holds)?;
        }
        Ok(())
    }

    fn check_quorum_holds_the_end(&self) -> Result<(), Violation> {
        let Some(membership) = &self.membership else { return Ok(()) };
        let judged = if self.rules.log_matching { 1 } else { self.committed.len() };
        let mut judged = self.committed[self.committed.len().saturating_sub(judged)..].iter();
        let lost = judged.find(|committed| self.rules.is_lost(membership, |id| !self.has_on_disk(id, **committed)));
        let Some(Committed { lsn, .. }) = lost else { return Ok(()) };
        let what = format!("{lsn} was committed, and a quorum of {:?} has it on no disk", membership.voters);
        Err(Violation::of("commit-on-quorum", what))
    }

    /// A client was told that its proposal was definitely not done.
    ///
    /// # Errors
    /// `one-outcome`.
    pub fn on_refused(&mut self, origin: Origin) -> Result<(), Violation> {
        self.refused.insert(origin);
        if !self.chosen.contains(&origin) {
            return Ok(());
        }
        Err(Violation::of(
            "one-outcome",
            format!("{origin:?} is committed, and its client is told that it never will be"),
        ))
    }
}
