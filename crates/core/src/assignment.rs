//! Primaries of an application's partitions, and the leases under which they work: [`Assignment`], [`Fenced`].
//!
//! An application cut into partitions needs one node per partition that may write, the *primary*, and a way for
//! everybody else to tell a primary from one that was replaced and does not know it yet: the *lease id*, which grows
//! whenever a partition goes to another node. Both stand in the replicated [`Membership`], so they are in every
//! snapshot and every status; protocols that assign partitions (BlazingMQ) write them, all others leave them empty.
//!
//! A lease id is a fencing token: a node that receives work in the name of a partition asks [`Membership::admits`], and
//! refuses work under an older lease. Source: `docs/protocols/rules/blazingmq.md`, §3.1, §3.3, P1, P2; `docs/adr/0007`.

use crate::{Membership, NodeId};
use std::collections::BTreeMap;
use std::fmt;

/// The primary of a partition and its lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Assignment {
    /// The one node that may write.
    pub primary: NodeId,
    /// Grows with every other primary, from 1; never used again.
    pub lease: u64,
}

impl fmt::Display for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.primary, self.lease)
    }
}

/// The reason why work in the name of a partition is refused: definite, nothing was done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fenced {
    /// Number of the partition, from 0.
    pub partition: u32,
    /// The assignment under which the work came.
    pub claimed: Assignment,
    /// The assignment that is in force here; `None` when the partition was never assigned.
    pub known: Option<Assignment>,
}

impl fmt::Display for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fenced { partition, claimed: Assignment { primary, lease }, known } = self;
        write!(f, "{primary} is not primary of partition {partition} under lease {lease}: ")?;
        match known {
            Some(known) => write!(f, "{} is, under lease {}", known.primary, known.lease),
            None => f.write_str("it was never assigned"),
        }
    }
}

impl std::error::Error for Fenced {}

impl Membership {
    /// The membership in which these nodes are primaries. A node that is named again keeps its lease; another node gets
    /// the next (§3.1, rule 1). Partitions that are not named stay as they are: a lease is never forgotten, so none is
    /// used twice.
    #[must_use]
    pub fn with_primaries(&self, named: &BTreeMap<u32, NodeId>) -> Membership {
        let mut next = self.clone();
        for (partition, primary) in named {
            let before = self.assignments.get(partition);
            let lease = match before {
                Some(before) if before.primary == *primary => before.lease,
                Some(before) => before.lease + 1,
                None => 1,
            };
            next.assignments.insert(*partition, Assignment { primary: *primary, lease });
        }
        next
    }

    /// Whether both memberships are the same but for their primaries.
    pub fn decides_as(&self, other: &Membership) -> bool {
        let Membership { voters, outgoing, learners, learners_next, auto_leave, members, next_id, assignments: _ } =
            self;
        (voters, outgoing, learners, learners_next)
            == (&other.voters, &other.outgoing, &other.learners, &other.learners_next)
            && (auto_leave, members, next_id) == (&other.auto_leave, &other.members, &other.next_id)
    }

    /// Whether `claimed` may work for the partition, as far as this membership knows. A newer lease than is known is
    /// admitted: its bearer has heard of it first. Of a partition that was never assigned here nothing is known, not
    /// even that it exists: its bearer asks again later.
    ///
    /// # Errors
    /// The lease is over, or is another node's (§3.3: dropped and answered REFUSED).
    pub fn admits(&self, partition: u32, claimed: Assignment) -> Result<(), Fenced> {
        let known = self.assignments.get(&partition).copied();
        match known {
            Some(known) if claimed.lease > known.lease || claimed == known => Ok(()),
            known => Err(Fenced { partition, claimed, known }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Membership {
        Membership::of_voters([NodeId(1), NodeId(2), NodeId(3)])
    }

    fn named(pairs: &[(u32, u64)]) -> BTreeMap<u32, NodeId> {
        pairs.iter().map(|(partition, node)| (*partition, NodeId(*node))).collect()
    }

    fn claim(node: u64, lease: u64) -> Assignment {
        Assignment { primary: NodeId(node), lease }
    }

    #[test]
    fn whoever_is_named_again_keeps_its_lease_and_another_gets_the_next() {
        let first = three().with_primaries(&named(&[(0, 1), (1, 2)]));
        let second = first.with_primaries(&named(&[(0, 1), (1, 3)]));
        assert_eq!(second.assignments, [(0, claim(1, 1)), (1, claim(3, 2))].into_iter().collect());
        let third = second.with_primaries(&named(&[(1, 2)]));
        assert_eq!(third.assignments, [(0, claim(1, 1)), (1, claim(2, 3))].into_iter().collect());
    }

    #[test]
    fn pt_5_an_old_lease_is_refused_in_words_that_name_the_new_one() {
        let membership = three().with_primaries(&named(&[(3, 1)])).with_primaries(&named(&[(3, 2)]));
        assert_eq!(membership.admits(3, claim(2, 2)), Ok(()));
        let refusal = membership.admits(3, claim(1, 1)).expect_err("its lease is over");
        assert_eq!(refusal.to_string(), "n1 is not primary of partition 3 under lease 1: n2 is, under lease 2");
        membership.admits(3, claim(1, 2)).expect_err("the same lease with another primary (§3.3)");
        assert_eq!(membership.admits(3, claim(1, 3)), Ok(()), "its bearer has heard of it first");
        membership.admits(4, claim(1, 1)).expect_err("nobody is primary of what was never assigned");
    }

    #[test]
    fn primaries_decide_nothing() {
        let membership = three();
        assert!(membership.with_primaries(&named(&[(0, 1)])).decides_as(&membership));
        assert!(!Membership::of_voters([NodeId(1), NodeId(2)]).decides_as(&membership));
    }
}
