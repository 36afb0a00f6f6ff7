//! Goal: GMT-2000, made safe, holds in every world within small bounds, and its published form does not. Method:
//! exhaustive exploration, complete, and not vacuous.

use hustings_gmt2000::{Gmt2000, Options};
use hustings_world::every::{Bounds, Found, explore};

fn explored(bounds: &Bounds, options: &Options) -> Found {
    let found = explore::<Gmt2000>(bounds, options, 2, |_| {});
    println!("{bounds:?}\n{found:?}");
    found
}

fn holds(bounds: &Bounds) -> Found {
    let found = explored(bounds, &Options::default());
    assert!(found.violation.is_none(), "{:#?}", found.violation);
    assert_eq!(found.incomplete, None);
    found
}

fn happens(found: &Found, what: &str) {
    let count = found.sometimes.iter().find(|(name, _)| *name == what).map(|(_, count)| *count);
    assert!(count.is_some_and(|count| count > 0), "{what}: nowhere in {} worlds", found.states);
}

#[test]
fn one_term_with_a_crash_and_a_proposal_is_safe() {
    let found = holds(&Bounds { terms: 1, proposals: 1, crashes: 1, alarms: 1, ..Bounds::default() });
    happens(&found, "an entry is committed");
    happens(&found, "somebody is down while somebody leads");
}

#[test]
fn as_published_two_servers_lead_one_term_without_a_crash() {
    let found = explored(&Bounds { terms: 2, rings: 2, ..Bounds::default() }, &Options::PUBLISHED);
    let (violation, trace) = found.violation.expect("the published form elects two leaders (GM-4)");
    assert_eq!(violation.property, "one-leader-per-term");
    assert_eq!(trace.steps.len(), 10, "{:#?}", trace.steps);
}
