//! Goal: TRex Paxos holds in every world within small bounds, and its published form does not. Method: exhaustive exploration,
//! complete, and not vacuous.

use hustings_paxos::{Options, Paxos};
use hustings_world::every::{Bounds, Found, explore};

/// Explores without polls, which promise nothing and multiply the worlds; with few alarms.
fn explored(bounds: &Bounds, is_published: bool) -> Found {
    let options = Options { low_ball: false, as_published: is_published, ..Options::default() };
    let found = explore::<Paxos>(bounds, &options, 2, |_| {});
    println!("{bounds:?}\n{found:?}");
    found
}

fn happens(found: &Found, what: &str) {
    let count = found.sometimes.iter().find(|(name, _)| *name == what).map(|(_, count)| *count);
    assert!(count.is_some_and(|count| count > 0), "{what}: nowhere in {} worlds", found.states);
}

#[test]
fn one_counter_with_a_crash_and_a_proposal_is_safe() {
    let bounds = Bounds { terms: 1, proposals: 1, crashes: 1, alarms: 1, rings: 2, ..Bounds::default() };
    let found = explored(&bounds, false);
    assert!(found.violation.is_none(), "{:#?}", found.violation);
    assert_eq!(found.incomplete, None);
    happens(&found, "an entry is committed");
}

/// Goal: four voters are judged by Paxos' own quorums: three promise, and two that accept are enough. Method: the first 200,000
/// worlds of them; the shortest way to a commit is among the first 12,000.
#[test]
fn half_of_four_may_accept() {
    let found = explored(&Bounds { nodes: 4, terms: 1, alarms: 1, states_max: 200_000, ..Bounds::default() }, false);
    assert!(found.violation.is_none(), "{:#?}", found.violation);
    happens(&found, "an entry is committed");
}

/// TH-1: the old leader's message is refused with a higher promise, and it leads on above it, without what was chosen meanwhile.
#[test]
fn as_published_a_leader_above_a_promise_lacks_what_was_chosen() {
    let bounds = Bounds { terms: 3, proposals: 1, alarms: 1, ..Bounds::default() };
    let found = explored(&bounds, true);
    let (violation, trace) = found.violation.expect("a ballot raised without a prepare round asks nobody");
    assert_eq!(violation.property, "leader-completeness");
    assert!(trace.steps.len() <= 12, "{:#?}", trace.steps);
}
