//! Stories of members and who may lead them. Goal: no change of membership leads where nobody comes out again, and none
//! makes anything wait. Method: values in memory, priorities as an operator sets them.

mod support;

use hustings_core::{Change, Cluster, MembershipRefusal, NodeId, Priority, Refusal, Role};
use hustings_paxos::{Options, Timer};
use support::{Theatre, Verbs as _, ballot, cast, journal, one};

#[test]
fn the_last_voter_that_may_lead_stays() {
    // Goal: nothing is final that nobody could ever mend. Method: n1 and n2 must never lead, and say so.
    let mut theatre = cast(3);
    for id in [1, 2] {
        let never = Cluster { me: NodeId(id), priority: Priority::Never, ..Cluster::of(3, id) };
        theatre.enter_as(never, Default::default());
    }
    theatre.elect(3);
    theatre.heartbeat(3);
    let refused = theatre.change(3, &one(Change::Remove(NodeId(3))));
    assert!(matches!(theatre.refusal(3, refused), Some(Refusal::Membership(MembershipRefusal::NoVoters, _))));
    let fine = theatre.change(3, &one(Change::Remove(NodeId(1))));
    assert_eq!(theatre.refusal(3, fine), None);
}

#[test]
fn a_single_voter_that_must_never_lead_starts_and_does_not() {
    let never = Cluster { priority: Priority::Never, ..Cluster::of(1, 1) };
    let mut theatre = Theatre::new(never, Options::default());
    theatre.fire(1, Timer::Deadline);
    theatre.settle();
    assert_ne!(theatre.role(1), Role::Leader);
}

#[test]
fn one_that_cannot_lead_hears_what_is_committed_while_nobody_leads() {
    // Goal: found by a guided search: only a new voter may lead, and does not know that it votes; those that know may not lead, and say
    // nothing. Method: n3 may not lead either, and lacks a commit; nobody leads for two deadlines.
    let mut theatre = cast(3);
    let slots = [(1, ballot(1, 1), ""), (2, ballot(1, 1), "x")];
    for (id, committed) in [(1, 2), (2, 2), (3, 1)] {
        let never = Cluster { me: NodeId(id), priority: Priority::Never, ..Cluster::of(3, id) };
        theatre.enter_as(never, journal(ballot(1, 1), &slots, committed));
    }
    theatre.fire(3, Timer::Deadline);
    theatre.settle();
    assert_eq!((theatre.commit(3), theatre.leaders()), (2, vec![]));
    // A request that was lost is repeated.
    theatre.enter_as(
        Cluster { me: NodeId(3), priority: Priority::Never, ..Cluster::of(3, 3) },
        journal(ballot(1, 1), &slots, 1),
    );
    theatre.cut(1, 3);
    theatre.cut(2, 3);
    theatre.fire(3, Timer::Deadline);
    theatre.settle();
    theatre.heal();
    theatre.fire(3, Timer::Deadline);
    theatre.settle();
    assert_eq!(theatre.commit(3), 2);
}
