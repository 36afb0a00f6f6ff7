//! The map of what a run reached: [`Coverage`].
//!
//! After each step a few facts about it are hashed into a map of bits: what the member was and became, what it heard, what it
//! did; which two things it heard one after the other; and, whenever somebody changes role, how all members stand to each other
//! (roles, terms, logs, commits, disks), and how far their histories have parted. A run that sets a bit which no run before it set
//! has reached something new.
//!
//! It knows no protocol: variants of messages, timers, records and reasons are told apart by their discriminants.

use hustings_core::replica::{Action, Event, ReplicaMessage};
use hustings_core::{Protocol, StateMachine, Status, Term};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;

/// Bits of the map. A search of 30,000 runs reaches some 1.4 million facts: with few bits for them it would take the new for the old.
const BITS: usize = 1 << 22;
/// Differences in terms and logs beyond this one are not told apart.
const FAR: u64 = 3;

/// A map of what was reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coverage {
    words: Vec<u64>,
    /// The kind of event that each member heard last, hashed.
    last_heard: Vec<u64>,
}

impl Default for Coverage {
    fn default() -> Coverage {
        Coverage { words: vec![0; BITS / 64], last_heard: Vec::new() }
    }
}

/// The hash of a value.
fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A hash of the kind of event that a member hears.
pub(crate) fn kind_of<P: Protocol, S: StateMachine>(event: &Event<P, S>) -> u64 {
    let mut hasher = DefaultHasher::new();
    discriminant(event).hash(&mut hasher);
    match event {
        Event::Peer { message, .. } => kind_of_message(message).hash(&mut hasher),
        Event::Timer(timer) => timer.hash(&mut hasher),
        Event::Link { state, .. } => state.hash(&mut hasher),
        Event::Admin { admin, .. } => discriminant(admin).hash(&mut hasher),
        Event::Health(health) => health.hash(&mut hasher),
        _ => {}
    }
    hasher.finish()
}

fn kind_of_message<M>(message: &ReplicaMessage<M>) -> u64 {
    match message {
        ReplicaMessage::Protocol(message) => hash_of(&discriminant(message)),
        ReplicaMessage::ForwardRefused { refusal, .. } => hash_of(&(discriminant(message), discriminant(refusal))),
        _ => hash_of(&discriminant(message)),
    }
}

/// A hash of the kinds of a member's actions, in order; repeats in a row count once.
fn kinds_of_actions<P: Protocol, S: StateMachine>(actions: &[Action<P, S>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut last = 0;
    for action in actions {
        let kind = match action {
            Action::Persist(_, record) => hash_of(&(1, discriminant(record))),
            Action::Send(_, message) => hash_of(&(2, kind_of_message(message))),
            Action::SetTimer(timer, _) => hash_of(&(3, timer)),
            Action::CancelTimer(timer) => hash_of(&(4, timer)),
            Action::Refused { refusal, .. } => hash_of(&(5, discriminant(refusal))),
            Action::Announce(transition) => {
                hash_of(&(6, transition.from, transition.to, discriminant(&transition.because)))
            }
            other => hash_of(&(7, discriminant(other))),
        };
        if kind != last {
            kind.hash(&mut hasher);
            last = kind;
        }
    }
    hasher.finish()
}

/// One member's state, as others may see it.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) status: Option<Status>,
    /// Facts that the world knows and the member does not (paused, stalled, removed), as bits.
    pub(crate) condition: u8,
}

/// A hash of how far the members' histories have parted: of each one that runs, in which of the reigns in which their logs end its
/// own one ends, counted from the latest, and how many entries it has beyond what any of them knows to be committed.
fn histories(members: &[Standing]) -> u64 {
    let known = || members.iter().filter_map(|member| member.status.as_ref());
    let reigns: BTreeSet<Term> = known().map(|status| status.last.term).collect();
    let commit = known().map(|status| status.commit).max().unwrap_or_default();
    let mut ends: Vec<(usize, u64)> = known()
        .map(|status| {
            let later = reigns.range(status.last.term..).count();
            (later, status.last.index.saturating_sub(commit).min(FAR))
        })
        .collect();
    ends.sort_unstable();
    hash_of(&("histories", ends))
}

impl Coverage {
    fn set(&mut self, fact: u64) {
        let bit = fact as usize % BITS;
        self.words[bit / 64] |= 1 << (bit % 64);
    }

    /// One step of a member: what it was, what it heard, what it did, what it became.
    pub(crate) fn on_step<P: Protocol, S: StateMachine>(
        &mut self,
        at: usize,
        before: &Status,
        heard: u64,
        after: &Status,
        actions: &[Action<P, S>],
    ) {
        if self.last_heard.len() <= at {
            self.last_heard.resize(at + 1, 0);
        }
        let did = kinds_of_actions(actions);
        let knew = (before.leader.is_some(), before.commit == before.last.index);
        self.set(hash_of(&(before.role, knew, heard, did, after.role)));
        let previous = std::mem::replace(&mut self.last_heard[at], heard);
        self.set(hash_of(&(previous, heard, before.role, after.role)));
    }

    /// Sets the fact of how all members stand to each other at a moment that matters.
    pub(crate) fn on_moment(&mut self, what: u64, members: &[Standing]) {
        let known = || members.iter().filter_map(|member| member.status.as_ref());
        let term = known().map(|status| status.term).max();
        let last = known().map(|status| status.last).max();
        let commit = known().map(|status| status.commit).max();
        let mut standings: Vec<u64> = members
            .iter()
            .map(|member| match &member.status {
                None => hash_of(&member.condition),
                Some(status) => hash_of(&(
                    member.condition,
                    status.role,
                    Some(status.term) == term,
                    Some(status.last) == last,
                    last.map_or(0, |last| (last.index.saturating_sub(status.last.index)).min(FAR)),
                    commit.map_or(0, |commit| (commit - status.commit).min(FAR)),
                )),
            })
            .collect();
        // Ids do not matter, only how the members stand.
        standings.sort_unstable();
        self.set(hash_of(&(what, standings)));
        self.set(histories(members));
    }

    /// Takes in what another run reached; answers how much of it is new.
    pub fn add(&mut self, other: &Coverage) -> u32 {
        let mut fresh = 0;
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            fresh += (theirs & !*mine).count_ones();
            *mine |= theirs;
        }
        fresh
    }

    /// Number of bits that are set.
    pub fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }
}
