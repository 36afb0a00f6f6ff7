//! Goal: TRex Paxos holds in every world within small bounds, and its published form does not. Method: exhaustive exploration,
//! complete, and not vacuous.

use crate::suite::{explored, falls, happens, holds};
use hustings_paxos::{Options, Paxos};
use hustings_world::every::Bounds;

/// Without polls, which promise nothing and multiply the worlds.
const OURS: fn() -> Options = || Options { low_ball: false, ..Options::default() };

#[test]
fn one_counter_with_a_crash_and_a_proposal_is_safe() {
    let bounds = Bounds { terms: 1, proposals: 1, crashes: 1, timers: 1, fires: 2, ..Bounds::default() };
    let found = holds::<Paxos>(&bounds, &OURS());
    happens(&found, "an entry is committed");
}

/// Goal: four voters are judged by Paxos' own quorums: three promise, and two that accept are enough. Method: the first 200,000
/// worlds of them; the shortest way to a commit is among the first 12,000.
#[test]
fn half_of_four_may_accept() {
    let bounds = Bounds { nodes: 4, terms: 1, timers: 1, states_max: 200_000, ..Bounds::default() };
    let found = explored::<Paxos>(&bounds, &OURS());
    assert!(found.violation.is_none(), "{:#?}", found.violation);
    happens(&found, "an entry is committed");
}

/// TH-1: the old leader's message is refused with a higher promise, and it leads on above it, without what was chosen meanwhile.
#[test]
fn as_published_a_leader_above_a_promise_lacks_what_was_chosen() {
    let bounds = Bounds { terms: 3, proposals: 1, timers: 1, ..Bounds::default() };
    // A ballot that is raised without a prepare round asks nobody.
    let found = explored::<Paxos>(&bounds, &Options { as_published: true, ..OURS() });
    falls(found, "leader-completeness", 12);
}
