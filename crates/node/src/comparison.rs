//! The members' digests at one entry, and what they say: [`Comparison`].

use hustings_core::{Membership, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// Named in place of a member when members differ and none of their states is that of most of them.
pub(crate) const NOBODY_KNOWS: NodeId = NodeId(0);

/// Digests of the newest entry at which states were compared.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    index: u64,
    digests: BTreeMap<NodeId, u64>,
    /// Members that differed when they last answered.
    differing: BTreeSet<NodeId>,
}

/// The result of a comparison so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Finding {
    /// Too few have answered to say anything.
    Open,
    /// These members, and [`NOBODY_KNOWS`] which of those who answered, differ from the state of most; empty: all who answered,
    /// and they are most, are in one state. A member that differed before and has not answered differs still.
    Differ(BTreeSet<NodeId>),
}

impl Comparison {
    /// A member tells its digest at an entry. Answers of earlier entries come too late.
    pub(crate) fn note(&mut self, member: NodeId, index: u64, digest: u64, membership: &Membership) -> Finding {
        if index < self.index || !membership.has(member) {
            return Finding::Open;
        }
        let members: BTreeSet<NodeId> = membership.everyone().collect();
        if index > self.index {
            // The member that could have said which of them is right has not answered yet, and may never: that they differ is sure all the
            // same.
            let is_left_open = self.differing_of_those_who_answered(&members).is_none() && self.are_several();
            self.index = index;
            self.digests.clear();
            if is_left_open {
                self.digests.insert(member, digest);
                self.differing.insert(NOBODY_KNOWS);
                return Finding::Differ(self.differing.clone());
            }
        }
        self.digests.insert(member, digest);
        let Some(differing) = self.differing_of_those_who_answered(&members) else { return Finding::Open };
        let has_answered = |member: &NodeId| match *member {
            NOBODY_KNOWS => members.iter().all(|member| self.digests.contains_key(member)),
            member => !members.contains(&member) || self.digests.contains_key(&member),
        };
        self.differing.retain(|member| !has_answered(member));
        self.differing.extend(differing);
        Finding::Differ(self.differing.clone())
    }

    /// Whether those who answered are in several states.
    fn are_several(&self) -> bool {
        let mut digests = self.digests.values();
        digests.next().is_some_and(|first| digests.any(|digest| digest != first))
    }

    /// `None`: too few have answered to say.
    fn differing_of_those_who_answered(&self, members: &BTreeSet<NodeId>) -> Option<BTreeSet<NodeId>> {
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        self.digests.values().for_each(|digest| *counts.entry(*digest).or_default() += 1);
        let of_most = counts.iter().find(|(_, count)| **count * 2 > members.len()).map(|(digest, _)| *digest);
        match of_most {
            Some(most) => {
                Some(self.digests.iter().filter(|(_, digest)| **digest != most).map(|(member, _)| *member).collect())
            }
            None => members.iter().all(|member| self.digests.contains_key(member)).then(|| [NOBODY_KNOWS].into()),
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
        assert_eq!(note(&mut comparison, 3, 3, 11, 8), differ(&[1]), "it has not answered, so it is not cured");
        assert_eq!(note(&mut comparison, 3, 1, 11, 8), differ(&[]), "it was cured");
    }

    #[test]
    fn without_a_majority_nobody_knows_which_is_right() {
        let mut two = Comparison::default();
        assert_eq!(note(&mut two, 2, 1, 10, 7), Finding::Open);
        assert_eq!(note(&mut two, 2, 2, 10, 8), differ(&[0]));
        assert_eq!(note(&mut two, 2, 2, 11, 8), Finding::Open);
        assert_eq!(note(&mut two, 2, 1, 11, 8), differ(&[]), "both are in one state again");
        let mut one = Comparison::default();
        assert_eq!(note(&mut one, 1, 1, 10, 7), differ(&[]));
    }

    /// Goal: two that differ are told although the third one, which would say which of them is right, never answers. Method: it is away for
    /// one comparison, and for a second; then it is back.
    #[test]
    fn two_that_differ_are_told_while_the_third_is_away() {
        let mut comparison = Comparison::default();
        assert_eq!(note(&mut comparison, 3, 1, 10, 7), Finding::Open);
        assert_eq!(note(&mut comparison, 3, 2, 10, 8), Finding::Open, "the third may answer yet");
        assert_eq!(note(&mut comparison, 3, 1, 20, 7), differ(&[0]), "it has not");
        assert_eq!(note(&mut comparison, 3, 2, 20, 8), Finding::Open);
        assert_eq!(note(&mut comparison, 3, 3, 20, 8), differ(&[1]), "now it is known which");
        // One that is alone to answer differs from nobody.
        let mut alone = Comparison::default();
        assert_eq!(
            [10, 20, 30].map(|index| note(&mut alone, 3, 1, index, index)),
            [Finding::Open, Finding::Open, Finding::Open]
        );
    }

    #[test]
    fn who_differed_and_was_removed_is_forgotten() {
        let mut comparison = Comparison::default();
        for (member, digest) in [(1, 7), (2, 8), (3, 8)] {
            note(&mut comparison, 3, member, 10, digest);
        }
        let rest = Membership::of_voters([NodeId(2), NodeId(3)]);
        assert_eq!(comparison.note(NodeId(2), 11, 8, &rest), Finding::Open);
        assert_eq!(comparison.note(NodeId(3), 11, 8, &rest), differ(&[]));
    }
}
