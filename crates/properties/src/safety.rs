//! The predicates of safety, written once: pure functions over logs, disks and the past.
//!
//! Two judges call them. [`crate::Chronicle`] follows one history step by step and costs what is new; the exhaustive checker
//! (`hustings-world`, module `every`) asks them of each world. A judge decides what is asked and when; whether the answer is a
//! violation is decided here.
//!
//! | predicate | property |
//! |---|---|
//! | [`check_leader`] | `one-leader-per-term` |
//! | [`check_state`], [`Rules::check_agreement`] | `state-machine-safety` |
//! | [`Rules::check_same_entry`] | `log-matching` |
//! | [`Rules::check_complete`] | `leader-completeness` |
//! | [`Rules::check_on_quorum`], [`Rules::is_lost`] | `commit-on-quorum` |
//!
//! Read next: [`crate::chronicle`].

use crate::Violation;
use hustings_core::options::Options;
use hustings_core::quorum::{Quorums, Verdict};
use hustings_core::{Entry, Lsn, Membership, NodeId, Protocol, Slots, Term};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Place;
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The properties that depend on the protocol. All hold unless it says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rules {
    /// Equal places imply equal entries and equal histories before them. (Paxos chooses slot by slot.)
    pub log_matching: bool,
    /// A restart brings back all that was reported durable; switched off where a defect of disks is to show what follows from it.
    pub durable_survives: bool,
    /// A leader's log only grows.
    pub leader_appends_only: bool,
    /// A vote is the `vote` of a durable [`hustings_core::Promise`]; otherwise its term alone is the vote.
    pub votes_are_promises: bool,
    /// A slot is committed in one term, and terms grow along the log. Otherwise a slot may be committed again in a later term, or
    /// by another node in an earlier one, with the same value.
    pub terms_are_places: bool,
    /// Numbers of voters that must promise a term, and that must hold an entry before it is committed.
    pub quorums: Quorums,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            log_matching: true,
            durable_survives: true,
            leader_appends_only: true,
            votes_are_promises: true,
            terms_are_places: true,
            quorums: Quorums::Majority,
        }
    }
}

/// An entry that was committed, and the reign in which it was.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Committed {
    /// The place in which it was first committed.
    pub lsn: Lsn,
    /// Digest of its content, by [`value_of`].
    pub value: u64,
    /// The term of the member that committed it first.
    pub reign: Term,
}

/// An entry of a log, as it is compared with the same place in another log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Placed {
    /// Digest of its content, by [`value_of`].
    pub value: u64,
    /// The term of the entry before it, [`Term::ZERO`] before the first; `None` behind a hole.
    pub before: Option<Term>,
}

/// A log, as far as it is judged.
pub trait Logged {
    /// The last index that a snapshot covers; 0 without one.
    fn covered(&self) -> u64;

    /// The place of the entry at an index above the snapshot.
    fn place(&self, index: u64) -> Option<Lsn>;

    /// Digest of the entry at this place, by [`value_of`]; `None` if it is not known.
    fn value(&self, place: Lsn) -> Option<u64>;

    /// The end of the log.
    fn end(&self) -> Lsn;
}

/// Digest of an entry's content, whatever term it was written in.
pub fn value_of(entry: &Entry) -> u64 {
    let Entry { lsn, kind, origin, stamp, payload } = entry;
    let mut hasher = DefaultHasher::new();
    (lsn.index, kind, origin, stamp, payload).hash(&mut hasher);
    hasher.finish()
}

/// `one-leader-per-term`: a node is elected in this term, and nobody else was before. Notes who was first.
///
/// # Errors
/// Somebody else led the term.
pub fn check_leader(leaders: &mut BTreeMap<Term, NodeId>, term: Term, node: NodeId) -> Result<(), Violation> {
    let first = *leaders.entry(term).or_insert(node);
    if first == node {
        return Ok(());
    }
    Err(Violation::of("one-leader-per-term", format!("{first} led term {term}, and now {node} does")))
}

/// `state-machine-safety`: members that applied as much are in the same state. Notes the state of the member that came first.
///
/// # Errors
/// The state differs.
pub fn check_state(states: &mut BTreeMap<u64, u64>, node: NodeId, applied: u64, state: u64) -> Result<(), Violation> {
    match states.entry(applied) {
        Place::Vacant(vacant) => drop(vacant.insert(state)),
        Place::Occupied(known) if *known.get() == state => {}
        Place::Occupied(_) => {
            let what = format!("{node} applied everything through {applied} and is in another state than others were");
            return Err(Violation::of("state-machine-safety", what));
        }
    }
    Ok(())
}

impl Rules {
    /// These rules for a protocol with these options.
    #[must_use]
    pub fn of<P: Protocol>(self, options: &P::Options) -> Rules {
        Rules { quorums: options.quorums(), ..self.of_slots(P::SLOTS) }
    }

    /// The part of these rules that holds for logs that are filled like this. (Paxos chooses slot by slot: agreement is
    /// by value, a promise names nobody, and a place still names one value, TI-4.)
    #[must_use]
    pub fn of_slots(self, slots: Slots) -> Rules {
        match slots {
            Slots::InOrder => self,
            Slots::Independent => Rules {
                log_matching: false,
                leader_appends_only: false,
                votes_are_promises: false,
                terms_are_places: false,
                ..self
            },
        }
    }

    /// `log-matching`: a node holds at `lsn` what another holds there, after the same entry where logs are chains.
    ///
    /// # Errors
    /// It holds another entry, or the same one after another.
    #[inline]
    pub fn check_same_entry(
        self,
        node: NodeId,
        lsn: Lsn,
        mine: Placed,
        (other, theirs): (impl Display, Placed),
    ) -> Result<(), Violation> {
        let is_same_before = mine.before.is_none() || theirs.before.is_none() || mine.before == theirs.before;
        if mine.value == theirs.value && (is_same_before || !self.log_matching) {
            return Ok(());
        }
        let what = format!("{node} holds another entry at {lsn}, or the same after another one, than {other}");
        Err(Violation::of("log-matching", what))
    }

    /// Whether a log holds this committed entry: the place, or its value in a later term where a slot may have several.
    #[inline]
    pub fn is_held(self, log: &impl Logged, committed: Committed) -> bool {
        let Committed { lsn, value, .. } = committed;
        if lsn.index <= log.covered() {
            return true;
        }
        log.place(lsn.index).is_some_and(|held| match self.terms_are_places {
            true => held == lsn,
            false => held.term >= lsn.term && log.value(held) == Some(value),
        })
    }

    /// Whether a log lacks nothing of this committed entry. A slot may have been chosen in several terms, always with the
    /// same value: a log with an earlier one knows it.
    fn is_known(self, log: &impl Logged, committed: Committed) -> bool {
        let value = || log.place(committed.lsn.index).and_then(|held| log.value(held));
        self.is_held(log, committed) || (!self.terms_are_places && value() == Some(committed.value))
    }

    /// `leader-completeness`: the log of the leader of a term knows all that was committed in earlier reigns.
    ///
    /// # Errors
    /// It lacks an entry.
    #[inline]
    pub fn check_complete(
        self,
        leader: NodeId,
        term: Term,
        log: &impl Logged,
        committed: &[Committed],
    ) -> Result<(), Violation> {
        let above = committed.get(log.covered() as usize..).unwrap_or_default();
        let lacks = |committed: &&Committed| committed.reign < term && !self.is_known(log, **committed);
        let Some(Committed { lsn, .. }) = above.iter().find(lacks) else { return Ok(()) };
        let end = log.end();
        let what =
            format!("{leader} leads term {term} with a log that ends at {end} and lacks {lsn}, which is committed");
        Err(Violation::of("leader-completeness", what))
    }

    /// `state-machine-safety`: a node commits at an index what was committed there: the place, or the value where a slot may
    /// be chosen in several terms.
    ///
    /// # Errors
    /// It commits another entry.
    #[inline]
    pub fn check_agreement(
        self,
        node: NodeId,
        mine: (Lsn, Option<u64>),
        committed: Committed,
    ) -> Result<(), Violation> {
        let (lsn, value) = mine;
        let is_other = match self.terms_are_places {
            true => lsn != committed.lsn,
            false => value.is_some_and(|value| value != committed.value),
        };
        if !is_other {
            return Ok(());
        }
        let what = format!("{node} commits {lsn} at index {}, where {} was committed", lsn.index, committed.lsn);
        Err(Violation::of("state-machine-safety", what))
    }

    /// `commit-on-quorum`: when a node commits an entry, a quorum holds it on disk. One of these memberships is enough: a
    /// change of membership may be among what was just committed.
    ///
    /// # Errors
    /// No quorum holds it.
    pub fn check_on_quorum<'a>(
        self,
        node: NodeId,
        lsn: Lsn,
        memberships: impl IntoIterator<Item = &'a Membership>,
        holds: impl Fn(NodeId) -> bool,
    ) -> Result<(), Violation> {
        let mut voters = None;
        for membership in memberships {
            let is_held = match self.quorums {
                Quorums::Majority => membership.verdict(|id| Some(holds(id))) == Verdict::Won,
                quorums => count(membership, &holds) >= quorums.accepts(membership.all_voters().count()),
            };
            if is_held {
                return Ok(());
            }
            voters.get_or_insert(&membership.voters);
        }
        let voters = voters.into_iter().flatten().collect::<Vec<_>>();
        let what = format!("{node} commits {lsn}, which no quorum of {voters:?} holds on disk");
        Err(Violation::of("commit-on-quorum", what))
    }

    /// Whether so many lack an entry that a leader may be elected without it. Weaker than "no quorum holds it", since the
    /// membership may have changed after the commit.
    pub fn is_lost(self, membership: &Membership, lacks: impl Fn(NodeId) -> bool) -> bool {
        match self.quorums {
            Quorums::Majority => membership.verdict(|id| Some(lacks(id))) == Verdict::Won,
            quorums => count(membership, &lacks) >= quorums.promises(membership.all_voters().count()),
        }
    }
}

fn count(membership: &Membership, is_so: impl Fn(NodeId) -> bool) -> usize {
    membership.all_voters().filter(|id| is_so(*id)).count()
}
