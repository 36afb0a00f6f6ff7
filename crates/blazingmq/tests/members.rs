//! Stories of members and who may lead them. Goal: no change of membership leads where nobody comes out again, and none
//! makes anything wait. Method: values in memory, priorities as an operator sets them.

mod support;

use hustings_blazingmq::{Message, Options, Quorums, Timer};
use hustings_core::{Change, Cluster, MembershipRefusal, NodeId, Priority, Refusal, Role};
use support::{Theatre, Verbs as _, cast, one};

#[test]
fn what_stands_behind_a_removal_commits_with_it() {
    // Goal: RM-8. Method: of two, n2 acknowledges its own removal and nothing behind it; n1 alone decides from then on.
    let mut theatre = cast(2);
    theatre.elect(1);
    theatre.change_quietly(1, &one(Change::Remove(NodeId(2))));
    theatre.propose_quietly(1, "behind");
    theatre.pick(1, 2, |said| matches!(said, Message::Records { entries, .. } if entries.len() == 1));
    theatre.table.retain(|(from, _, _)| *from == 2);
    theatre.settle();
    assert_eq!((theatre.commit(1), theatre.lines(1)), (theatre.last(1).index, vec!["behind".to_string()]));
}

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
    theatre.fire(1, Timer::Wait);
    theatre.settle();
    assert_ne!(theatre.role(1), Role::Leader);
}

#[test]
fn a_removal_below_the_operators_quorums_is_refused() {
    // Goal: what needs three voters keeps three. Method: every copy of three commits; one is to go.
    let quorums = Quorums { commit: 3, ..Quorums::default() };
    let mut theatre = Theatre::new(Cluster::of(3, 1), Options { quorums, ..Options::default() });
    theatre.elect(1);
    let refused = theatre.change(1, &one(Change::Remove(NodeId(3))));
    assert!(matches!(theatre.refusal(1, refused), Some(Refusal::Membership(MembershipRefusal::NoVoters, _))));
    theatre.propose(1, "served");
    assert_eq!(theatre.lines(1), ["served"]);
}
