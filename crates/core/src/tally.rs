//! The count of a vote: [`Tally`].

use crate::quorum::Verdict;
use crate::{Membership, NodeId};
use std::collections::BTreeMap;
use std::fmt;

/// The answers to one question, asked once: the first answer of each voter counts, duplicates and strangers do not.
///
/// A tally belongs to one campaign of one term; a new campaign starts a new tally, so late answers of an old one must
/// be recognised by their term before they get here (EL-03, EL-04).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tally {
    answers: BTreeMap<NodeId, bool>,
}

impl Tally {
    /// A count without any answer.
    pub fn new() -> Tally {
        Tally::default()
    }

    /// Takes in an answer; says whether it was counted.
    pub fn record(&mut self, from: NodeId, granted: Vote, membership: &Membership) -> bool {
        if !membership.is_voter(from) || self.answers.contains_key(&from) {
            return false;
        }
        self.answers.insert(from, granted == Vote::Granted);
        true
    }

    /// Takes back a refusal, because its voter may answer again; says whether there was one.
    pub fn forget_refusal(&mut self, from: NodeId) -> bool {
        let refused = self.answers.get(&from) == Some(&false);
        if refused {
            self.answers.remove(&from);
        }
        refused
    }

    /// The result under `membership`, as far as the answers so far decide it.
    pub fn verdict(&self, membership: &Membership) -> Verdict {
        membership.verdict(|id| self.answers.get(&id).copied())
    }

    /// Whether `node` has answered.
    pub fn has_answer(&self, node: NodeId) -> bool {
        self.answers.contains_key(&node)
    }

    /// Nodes that said yes.
    pub fn granted(&self) -> Vec<NodeId> {
        self.answers.iter().filter(|(_, granted)| **granted).map(|(id, _)| *id).collect()
    }

    /// Nodes that said no.
    pub fn refused(&self) -> Vec<NodeId> {
        self.answers.iter().filter(|(_, granted)| !**granted).map(|(id, _)| *id).collect()
    }
}

/// An answer to a candidate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Vote {
    /// The node said yes.
    Granted,
    /// The node said no.
    Refused,
}

impl fmt::Display for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Vote::Granted { "granted" } else { "refused" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_and_strangers_do_not_count() {
        let membership = Membership::of_voters((1..=3).map(NodeId));
        let mut tally = Tally::new();
        assert!(tally.record(NodeId(1), Vote::Granted, &membership));
        assert!(!tally.record(NodeId(1), Vote::Granted, &membership), "a duplicate");
        assert!(!tally.record(NodeId(9), Vote::Granted, &membership), "a stranger");
        assert_eq!(tally.verdict(&membership), Verdict::Pending);
        assert!(tally.record(NodeId(2), Vote::Refused, &membership));
        assert!(!tally.record(NodeId(2), Vote::Granted, &membership), "the first answer stands");
        assert!(tally.record(NodeId(3), Vote::Granted, &membership));
        assert_eq!(tally.verdict(&membership), Verdict::Won);
    }
}
