//! Properties that must hold over the lives of all members: [`judge`]. Faults of one life alone are found by [`mod@crate::replay`].
//!
//! | property | says |
//! |---|---|
//! | `one-leader-per-term` | at most one member leads a term, over all lives |
//! | `never-backwards` | term and commit do not fall within a life |
//! | `state-machine-safety` | no two lives commit different entries at one index: kind, proposer, stamp, length and checksum are compared |
//!
//! The names are those of `hustings_properties::Chronicle`, which judges simulated runs and sees what became durable, too. Lives of
//! different clusters are judged apart. Of a life that cannot be played from its beginning only the notes of its host are judged.

use crate::clock::Clock;
use crate::mark::Mark;
use crate::replay::Replayed;
use crate::ring::Recording;
use crate::shape::NoteKind;
use hustings_core::{Entry, Role, Term};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The properties that are judged.
pub const PROPERTIES: [&str; 3] = ["one-leader-per-term", "never-backwards", "state-machine-safety"];

/// A statement of a member, and the input at which it was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fact {
    /// Name of the member.
    pub member: String,
    /// Time of the statement, in microseconds since 1970.
    pub at_micros: u64,
    /// The statement, and the input before it, where that is known.
    pub what: String,
}

/// Two facts that cannot both be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conviction {
    /// Name of the property that does not hold: one of [`PROPERTIES`].
    pub property: &'static str,
    /// The two, in the order in which they were found.
    pub facts: [Fact; 2],
}

/// Digest of the part of an entry that must be the same wherever it is committed. Its term need not: where slots are
/// chosen one by one, a later term may commit the same again.
pub(crate) fn digest_of(entry: &Entry) -> u64 {
    let Entry { lsn, kind, origin, stamp, payload } = entry;
    let mut hasher = DefaultHasher::new();
    // The checksum stands at the beginning of what is shown of a payload.
    let checksum = &payload[..payload.len().min(4)];
    (lsn.index, kind, origin, stamp, payload.len(), checksum).hash(&mut hasher);
    hasher.finish()
}

/// Judges lives that were played again; each term and each index is convicted once. The clock is that of all lives, also of those that
/// could not be played.
pub fn judge(lives: &[(Recording, Replayed)], clock: &Clock) -> Vec<Conviction> {
    let mut convictions = Vec::new();
    let mut leaders: BTreeMap<(u64, Term), (u64, Fact)> = BTreeMap::new();
    let mut committed: BTreeMap<(u64, u64), (u64, Fact)> = BTreeMap::new();
    for (recording, replayed) in lives {
        let life = &recording.life;
        let fact = |at_micros: u64, what: String| Fact {
            member: life.name.clone(),
            at_micros: clock.unix_micros(life, at_micros),
            what,
        };
        let mut convict = |property: &'static str, facts: [Fact; 2]| {
            if !convictions.iter().any(|known: &Conviction| known.property == property && known.facts[0] == facts[0]) {
                convictions.push(Conviction { property, facts });
            }
        };
        for (term, leads) in elections(recording, replayed, &fact) {
            let first = leaders.entry((life.cluster_id, term)).or_insert_with(|| (life.member_id, leads.clone()));
            if first.0 != life.member_id {
                convict("one-leader-per-term", [first.1.clone(), leads]);
            }
        }
        if let Some((before, after)) = &replayed.fallen {
            let facts = [before, after].map(|(at_micros, what)| fact(*at_micros, what.clone()));
            convict("never-backwards", facts);
        }
        for applied in &replayed.applied {
            let what = || {
                fact(
                    applied.at_micros,
                    format!("commits {} at index {}, told of a {}", applied.what, applied.index, applied.told),
                )
            };
            let first = committed.entry((life.cluster_id, applied.index)).or_insert_with(|| (applied.digest, what()));
            if first.0 != applied.digest {
                convict("state-machine-safety", [first.1.clone(), what()]);
            }
        }
    }
    convictions
}

/// The elections of a life: from what the value said when it was played, or else from what its host noted.
fn elections(recording: &Recording, replayed: &Replayed, fact: &impl Fn(u64, String) -> Fact) -> Vec<(Term, Fact)> {
    let is_elected = |role: Role| matches!(role, Role::Leader | Role::Synchronizing);
    let mut elections = Vec::new();
    for said in replayed.transitions.iter().filter(|said| is_elected(said.transition.to)) {
        let (transition, told) = (&said.transition, said.told);
        let what = format!("leads term {} because {}, told of a {told}", transition.term, transition.because);
        elections.push((transition.term, fact(said.at_micros, what)));
    }
    for note in &recording.notes {
        if let NoteKind::Mark(Mark::Transition { to, term, because, .. }) = &note.kind
            && is_elected(*to)
        {
            elections.push((*term, fact(note.at_micros, format!("leads term {term} because {because}"))));
        }
    }
    elections
}
