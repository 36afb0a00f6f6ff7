//! The members' digests at one entry, and what they say: [`Comparison`].

use hustings_core::{Membership, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// Who is named when members differ and none of their states is that of most of them.
pub(crate) const NOBODY_KNOWS: NodeId = NodeId(0);

/// Digests of the newest entry at which states were compared.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    index: u64,
    digests: BTreeMap<NodeId, u64>,
}

/// What a comparison found so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Finding {
    /// Too few have answered to say anything.
    Open,
    /// All who answered, and they are most, are in one state.
    Alike,
    /// These members differ from the state of most; or [`NOBODY_KNOWS`] which do.
    Differ(BTreeSet<NodeId>),
}

impl Comparison {
    /// A member tells its digest at an entry. Answers of earlier entries come too late.
    pub(crate) fn note(&mut self, member: NodeId, index: u64, digest: u64, membership: &Membership) -> Finding {
        if index < self.index || !membership.has(member) {
            return Finding::Open;
        }
        if index > self.index {
            self.index = index;
            self.digests.clear();
        }
        self.digests.insert(member, digest);
        self.finding(membership)
    }

    fn finding(&self, membership: &Membership) -> Finding {
        let members: BTreeSet<NodeId> = membership.everyone().collect();
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        self.digests.values().for_each(|digest| *counts.entry(*digest).or_default() += 1);
        let of_most = counts.iter().find(|(_, count)| **count * 2 > members.len()).map(|(digest, _)| *digest);
        match of_most {
            Some(_) if counts.len() == 1 => Finding::Alike,
            Some(most) => {
                let differing = self.digests.iter().filter(|(_, digest)| **digest != most).map(|(member, _)| *member);
                Finding::Differ(differing.collect())
            }
            None if members.iter().all(|member| self.digests.contains_key(member)) => {
                Finding::Differ([NOBODY_KNOWS].into())
            }
            None => Finding::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(comparison: &mut Comparison, voters: u64, member: u64, index: u64, digest: u64) -> Finding {
        comparison.note(NodeId(member), index, digest, &Membership::of_voters((1..=voters).map(NodeId)))
    }

    fn differ(members: &[u64]) -> Finding {
        Finding::Differ(members.iter().copied().map(NodeId).collect())
    }

    #[test]
    fn the_one_that_differs_from_most_is_named() {
        let mut comparison = Comparison::default();
        assert_eq!(note(&mut comparison, 3, 1, 10, 7), Finding::Open);
        assert_eq!(note(&mut comparison, 3, 2, 10, 8), Finding::Open, "either may be wrong");
        assert_eq!(note(&mut comparison, 3, 3, 10, 8), differ(&[1]), "the leader, too");
        assert_eq!(note(&mut comparison, 3, 1, 9, 8), Finding::Open, "too late");
        assert_eq!(note(&mut comparison, 3, 9, 10, 8), Finding::Open, "a stranger");
        assert_eq!(note(&mut comparison, 3, 2, 11, 8), Finding::Open, "a new entry");
        assert_eq!(note(&mut comparison, 3, 3, 11, 8), Finding::Alike, "one has not answered");
    }

    #[test]
    fn without_a_majority_nobody_knows_which_is_right() {
        let mut two = Comparison::default();
        assert_eq!(note(&mut two, 2, 1, 10, 7), Finding::Open);
        assert_eq!(note(&mut two, 2, 2, 10, 8), differ(&[0]));
        let mut one = Comparison::default();
        assert_eq!(note(&mut one, 1, 1, 10, 7), Finding::Alike);
    }
}
