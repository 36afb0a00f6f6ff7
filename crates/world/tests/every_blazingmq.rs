//! Goal: BlazingMQ holds in every world within small bounds, and its published form does not. Method: exhaustive exploration,
//! complete, and not vacuous.

use hustings_blazingmq::{BlazingMq, Options};
use hustings_world::every::{Bounds, Found, explore};

/// Explores without scouting, which promises nothing and multiplies the worlds; with few alarms, of which it has eight.
fn explored(bounds: &Bounds, is_published: bool) -> Found {
    let options = Options { scouting: false, as_published: is_published, ..Options::default() };
    let found = explore::<BlazingMq>(bounds, &options, 2, |_| {});
    println!("{bounds:?}\n{found:?}");
    found
}

fn happens(found: &Found, what: &str) {
    let count = found.sometimes.iter().find(|(name, _)| *name == what).map(|(_, count)| *count);
    assert!(count.is_some_and(|count| count > 0), "{what}: nowhere in {} worlds", found.states);
}

#[test]
fn one_term_with_a_crash_and_a_proposal_is_safe() {
    let found = explored(&Bounds { terms: 1, proposals: 1, crashes: 1, alarms: 1, ..Bounds::default() }, false);
    assert!(found.violation.is_none(), "{:#?}", found.violation);
    assert_eq!(found.incomplete, None);
    happens(&found, "an entry is committed");
    happens(&found, "somebody is down while somebody leads");
}

#[test]
fn two_alarms_each_are_safe() {
    let found = explored(&Bounds { terms: 1, alarms: 2, ..Bounds::default() }, false);
    assert!(found.violation.is_none(), "{:#?}", found.violation);
    assert_eq!(found.incomplete, None);
    happens(&found, "an entry is committed");
}

#[test]
fn as_published_a_crash_makes_two_leaders_of_one_term() {
    let found = explored(&Bounds { terms: 1, crashes: 1, alarms: 1, ..Bounds::default() }, true);
    let (violation, trace) = found.violation.expect("the published form forgets whom it supported");
    assert_eq!(violation.property, "one-leader-per-term");
    assert!(trace.steps.len() <= 12, "{:#?}", trace.steps);
}
