//! The member that asks first when a leader falls silent: [`Succession`].
//!
//! Timers are drawn from a range so that followers do not ask at once. Drawn by two with equal chances, the shorter of two times lies a
//! third of the range above its beginning in the mean, and for so long nobody is asked whether the leader lives. Which member
//! asks first need not be left to chance: members know each other, and have an order. Its host draws for the first of them from the
//! beginning of the range, which is as long a silence as anybody must tolerate, and for the others from all of it.
//!
//! A host draws; a protocol sees only that a timer fired within the range that it asked for.

use crate::replica::ReplicaTimer;
use crate::{Membership, NodeId, Role, Transition};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The first in line draws from so many parts of the range's length ...
const FROM: u32 = 1;
/// ... to so many ...
const TO: u32 = 3;
/// ... of this many. The first part is left out: others that heard the leader a moment later must have missed it, too.
const PARTS: u32 = 32;

/// The leader that a node follows, or followed until it fell silent, as its host sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Succession {
    leader: Option<NodeId>,
}

impl Succession {
    /// Takes in what the node announces. One that has asked for the office waits like everybody else from then on: if the first in line
    /// cannot win, it must not always be the first again.
    pub fn note(&mut self, transition: &Transition) {
        if transition.to != Role::Follower {
            self.leader = None;
        } else if transition.leader.is_some() {
            self.leader = transition.leader;
        }
    }

    /// The part of `range` from which the node `me` draws this timer: the beginning, for a timer of the protocol, if it is the first of
    /// all voters after the leader; else all of it.
    pub fn part<T>(
        &self,
        timer: &ReplicaTimer<T>,
        range: RangeInclusive<Duration>,
        me: NodeId,
        membership: &Membership,
    ) -> RangeInclusive<Duration> {
        let is_of_protocol = matches!(timer, ReplicaTimer::Protocol(_));
        let is_first = self
            .leader
            .is_some_and(|leader| leader != me && membership.is_voter(me) && membership.rank_without(leader, me) == 0);
        let (low, spread) = (*range.start(), range.end().saturating_sub(*range.start()));
        match is_first && is_of_protocol {
            true => low + spread * FROM / PARTS..=low + spread * TO / PARTS,
            false => range,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lsn, Reason, Term};

    const MS: Duration = Duration::from_millis(1);

    fn to(role: Role, leader: Option<u64>) -> Transition {
        let (node, from, because) = (NodeId(2), Role::Follower, Reason::ElectionTimeout);
        Transition { node, from, to: role, term: Term(1), leader: leader.map(NodeId), lsn: Lsn::default(), because }
    }

    #[test]
    fn the_first_after_the_leader_draws_from_the_beginning_once() {
        // Goal: one member asks soon after the shortest timeout, and again only like everybody else.
        let membership = Membership::of_voters([NodeId(1), NodeId(2), NodeId(3)]);
        let (range, soon) = (300 * MS..=620 * MS, 310 * MS..=330 * MS);
        let part = |of: &Succession, me| of.part(&ReplicaTimer::Protocol(()), range.clone(), NodeId(me), &membership);
        let mut succession = Succession::default();
        assert_eq!(part(&succession, 2), range, "nobody led yet");
        succession.note(&to(Role::Follower, Some(1)));
        assert_eq!(
            (part(&succession, 2), part(&succession, 3)),
            (soon.clone(), range.clone()),
            "n2 is the first after n1"
        );
        succession.note(&to(Role::Follower, None));
        assert_eq!(part(&succession, 2), soon, "its leader fell silent, and it has not asked yet");
        succession.note(&to(Role::PreCandidate, None));
        assert_eq!(part(&succession, 2), range, "it has asked");
        succession.note(&to(Role::Follower, None));
        assert_eq!(part(&succession, 2), range, "in vain");
        succession.note(&to(Role::Follower, Some(3)));
        assert_eq!((part(&succession, 1), part(&succession, 2)), (soon, range.clone()), "n1 is the first after n3");
        assert_eq!(part(&succession, 3), range, "a leader does not succeed itself");
        assert_eq!(part(&succession, 4), range, "nor does a stranger");
    }

    #[test]
    fn times_that_are_fixed_and_the_replicas_own_stay_as_they_are() {
        let membership = Membership::of_voters([NodeId(1), NodeId(2)]);
        let succession = Succession { leader: Some(NodeId(1)) };
        let part = |timer, range| succession.part(&timer, range, NodeId(2), &membership);
        assert_eq!(part(ReplicaTimer::Protocol(()), 50 * MS..=50 * MS), 50 * MS..=50 * MS, "a heartbeat");
        assert_eq!(part(ReplicaTimer::Retry, 300 * MS..=600 * MS), 300 * MS..=600 * MS, "no business of the protocol");
    }
}
