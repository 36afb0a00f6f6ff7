//! Majorities, joint majorities and flexible quorums, with three-valued verdicts.
//!
//! Imports nothing of ours on purpose: the arithmetic on which all safety rests can be read and tested alone.
//! Sources: Raft §5.2 and §6 (joint consensus); etcd/raft `quorum` tables; Flexible Paxos (Howard et al. 2016).

use std::collections::BTreeSet;
use std::str::FromStr;

/// The result of a vote as far as the answers so far decide it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// A quorum said yes: no later answer changes that.
    Won,
    /// So many said no that a quorum of yes is impossible.
    Lost,
    /// Undecided: it depends on later answers.
    Pending,
}

/// Votes needed for a majority of `members`: n/2 + 1.
pub const fn majority(members: usize) -> usize {
    members / 2 + 1
}

/// Whether so many of `voters` may be witnesses, which hold no data: fewer than half, so that whatever decides includes a member
/// that holds it. None always may.
pub const fn may_be_witnesses(witnesses: usize, voters: usize) -> bool {
    witnesses == 0 || voters.saturating_sub(witnesses) >= majority(voters)
}

/// The verdict of a group in which `needed` must say yes. An empty group is won: it has nothing to object.
fn verdict_of<Id: Copy>(
    group: impl ExactSizeIterator<Item = Id>,
    needed: usize,
    answer: impl Fn(Id) -> Option<bool>,
) -> Verdict {
    let members = group.len();
    if members == 0 {
        return Verdict::Won;
    }
    let (mut yes, mut no) = (0, 0);
    for id in group {
        match answer(id) {
            Some(true) => yes += 1,
            Some(false) => no += 1,
            None => {}
        }
    }
    match (yes >= needed, members - no < needed) {
        (true, _) => Verdict::Won,
        (_, true) => Verdict::Lost,
        _ => Verdict::Pending,
    }
}

/// The highest value that `needed` members of a group have reached; `u64::MAX` for an empty group, which holds nothing
/// back.
fn reached_in<Id: Copy>(group: impl ExactSizeIterator<Item = Id>, needed: usize, value: impl Fn(Id) -> u64) -> u64 {
    let members = group.len();
    if members == 0 {
        return u64::MAX;
    }
    assert!(needed >= 1 && needed <= members, "{needed} of {members} is no quorum");
    // Clusters are small and this runs for every acknowledgement: a stack array spares an allocation.
    let mut few = [0u64; 16];
    let mut many = Vec::new();
    let values: &mut [u64] = if members <= few.len() {
        &mut few[..members]
    } else {
        many.resize(members, 0);
        &mut many
    };
    for (slot, id) in values.iter_mut().zip(group) {
        *slot = value(id);
    }
    values.sort_unstable_by(|a, b| b.cmp(a));
    values[needed - 1]
}

/// The verdict of a majority of `group`.
pub fn majority_verdict<Id: Ord + Copy>(group: &BTreeSet<Id>, answer: impl Fn(Id) -> Option<bool>) -> Verdict {
    verdict_of(group.iter().copied(), majority(group.len()), answer)
}

/// The highest value that a majority of `group` has reached; `u64::MAX` for an empty group.
pub fn majority_reached<Id: Ord + Copy>(group: &BTreeSet<Id>, value: impl Fn(Id) -> u64) -> u64 {
    reached_in(group.iter().copied(), majority(group.len()), value)
}

/// The verdict of both halves of a joint membership: both must be won, one lost half loses (RV-6).
pub fn joint_verdict<Id: Ord + Copy>(
    incoming: &BTreeSet<Id>,
    outgoing: &BTreeSet<Id>,
    answer: impl Fn(Id) -> Option<bool>,
) -> Verdict {
    match (majority_verdict(incoming, &answer), majority_verdict(outgoing, &answer)) {
        (Verdict::Won, Verdict::Won) => Verdict::Won,
        (Verdict::Lost, _) | (_, Verdict::Lost) => Verdict::Lost,
        _ => Verdict::Pending,
    }
}

/// The highest value that majorities of both halves have reached; `u64::MAX` when both are empty.
pub fn joint_reached<Id: Ord + Copy>(
    incoming: &BTreeSet<Id>,
    outgoing: &BTreeSet<Id>,
    value: impl Fn(Id) -> u64,
) -> u64 {
    majority_reached(incoming, &value).min(majority_reached(outgoing, &value))
}

/// The numbers of voters that must promise and that must accept. Every choice makes the two meet: P + A > N.
///
/// Source: Howard et al. 2016; the even-nodes optimisation of TRex (`docs/protocols/rules/paxos.md`, §1.6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Quorums {
    /// A majority promises; half of an even cluster accepts (the even-nodes optimisation). `[OURS]` From four voters
    /// on: half of two is one disk.
    #[default]
    EvenNodes,
    /// A majority must promise, and a majority must accept.
    Majority,
    /// Fixed numbers of promises and accepts, wherever they are safe for the number of voters; elsewhere a majority for
    /// both.
    Flexible {
        /// Number of promises needed.
        promise: usize,
        /// Number of accepts needed.
        accept: usize,
    },
}

impl Quorums {
    /// Promises needed of this many voters.
    pub fn promises(self, voters: usize) -> usize {
        match self {
            Quorums::Flexible { promise, accept } if do_meet(voters, promise, accept) => promise,
            _ => majority(voters),
        }
    }

    /// Accepts needed of this many voters.
    pub fn accepts(self, voters: usize) -> usize {
        match self {
            Quorums::EvenNodes if voters >= 4 => voters.div_ceil(2),
            Quorums::Flexible { promise, accept } if do_meet(voters, promise, accept) => accept,
            _ => majority(voters),
        }
    }
}

impl FromStr for Quorums {
    type Err = ();

    /// `even-nodes`, `majority`, or `4/2`: four promises, two accepts.
    fn from_str(text: &str) -> Result<Quorums, ()> {
        match (text, text.split_once('/')) {
            ("even-nodes", _) => Ok(Quorums::EvenNodes),
            ("majority", _) => Ok(Quorums::Majority),
            (_, Some((promise, accept))) => match (promise.parse(), accept.parse()) {
                (Ok(promise @ 1..), Ok(accept @ 1..)) => Ok(Quorums::Flexible { promise, accept }),
                _ => Err(()),
            },
            _ => Err(()),
        }
    }
}

/// Whether every `promise` and every `accept` of this many voters have one in common, each is possible and neither is empty.
fn do_meet(voters: usize, promise: usize, accept: usize) -> bool {
    let possible = (1..=voters).contains(&promise) && (1..=voters).contains(&accept);
    possible && promise + accept > voters
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(ids: &[u64]) -> BTreeSet<u64> {
        ids.iter().copied().collect()
    }

    #[test]
    fn a_majority_of_every_size_is_more_than_half() {
        // MB-14: 1, 2, 4, 7, 9 and all between.
        for members in 1..=9 {
            assert!(2 * majority(members) > members);
            assert!(2 * (majority(members) - 1) <= members);
            for witnesses in 0..=members + 1 {
                let is_fewer_than_half = witnesses == 0 || 2 * witnesses < members;
                assert_eq!(may_be_witnesses(witnesses, members), is_fewer_than_half, "{witnesses} of {members}");
            }
        }
    }

    #[test]
    fn quorums_of_every_choice_meet() {
        for voters in 1..=9 {
            for promise in 0..=9 {
                for accept in 0..=9 {
                    for quorums in [Quorums::EvenNodes, Quorums::Majority, Quorums::Flexible { promise, accept }] {
                        let (p, a) = (quorums.promises(voters), quorums.accepts(voters));
                        assert!(p + a > voters && p <= voters && a <= voters && a > 0, "{quorums:?} of {voters}");
                    }
                }
            }
        }
        assert_eq!((Quorums::EvenNodes.promises(4), Quorums::EvenNodes.accepts(4)), (3, 2));
    }

    /// The result of counting by hand: the largest n such that a majority has a value of at least n.
    fn naive(group: &BTreeSet<u64>, value: &dyn Fn(u64) -> u64) -> u64 {
        let candidates = group.iter().map(|id| value(*id));
        let supported = |n: &u64| group.iter().filter(|id| value(**id) >= *n).count() > group.len() / 2;
        candidates.filter(supported).max().unwrap_or(u64::MAX)
    }

    #[test]
    fn reached_agrees_with_counting_by_hand() {
        // Every assignment of values 0..4 to groups of up to 5 members.
        for members in 0..=5u32 {
            let ids: BTreeSet<u64> = (1..=u64::from(members)).collect();
            for code in 0..4u64.pow(members) {
                let value = |id: u64| code / 4u64.pow(u32::try_from(id - 1).unwrap()) % 4;
                assert_eq!(majority_reached(&ids, value), naive(&ids, &value));
                assert_eq!(joint_reached(&ids, &BTreeSet::new(), value), naive(&ids, &value), "joint with nothing");
                assert_eq!(joint_reached(&ids, &ids, value), naive(&ids, &value), "joint with itself");
            }
        }
    }

    #[test]
    fn a_joint_result_does_not_depend_on_the_order_of_the_halves() {
        let (one, two) = (group(&[1, 2, 3]), group(&[3, 4, 5, 6]));
        for code in 0..3u64.pow(6) {
            let value = |id: u64| code / 3u64.pow(u32::try_from(id - 1).unwrap()) % 3;
            let answer = |id: u64| [None, Some(false), Some(true)][usize::try_from(value(id)).unwrap()];
            assert_eq!(joint_reached(&one, &two, value), joint_reached(&two, &one, value));
            assert_eq!(joint_verdict(&one, &two, answer), joint_verdict(&two, &one, answer));
        }
    }

    #[test]
    fn a_verdict_once_given_is_final() {
        let nodes = group(&[1, 2, 3, 4]);
        for code in 0..3u64.pow(4) {
            let vote = |id: u64| {
                [None, Some(false), Some(true)]
                    [usize::try_from(code / 3u64.pow(u32::try_from(id - 1).unwrap()) % 3).unwrap()]
            };
            let before = majority_verdict(&nodes, vote);
            if before == Verdict::Pending {
                continue;
            }
            for late in [true, false] {
                assert_eq!(majority_verdict(&nodes, |id| vote(id).or(Some(late))), before);
            }
        }
    }
}
