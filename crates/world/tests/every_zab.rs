//! Goal: ZAB holds in every world within small bounds. Method: exhaustive exploration, complete, and not vacuous. Its published
//! form needs two crashes, which is more than a test should explore: `docs/protocols/zab.md` has the bound and the shortest trace, and
//! `zab_defects.rs` convicts it by a story.

use hustings_world::every::{Bounds, Found, explore};
use hustings_zab::{Options, Zab};

fn explored(bounds: &Bounds) -> Found {
    let found = explore::<Zab>(bounds, &Options::default(), 2, |_| {});
    println!("{bounds:?}\n{found:?}");
    assert!(found.violation.is_none(), "{:#?}", found.violation);
    assert_eq!(found.incomplete, None);
    found
}

fn happens(found: &Found, what: &str) {
    let count = found.sometimes.iter().find(|(name, _)| *name == what).map(|(_, count)| *count);
    assert!(count.is_some_and(|count| count > 0), "{what}: nowhere in {} worlds", found.states);
}

#[test]
fn two_terms_with_a_crash_and_a_proposal_are_safe() {
    // No alarm rings: what news of links starts is enough for a second leader.
    let found = explored(&Bounds { terms: 2, proposals: 1, crashes: 1, rings: 0, ..Bounds::default() });
    happens(&found, "an entry is committed");
    happens(&found, "two terms had leaders");
    happens(&found, "somebody is down while somebody leads");
}

#[test]
fn one_term_with_an_alarm_at_each_member_is_safe() {
    let found = explored(&Bounds { terms: 1, alarms: 1, ..Bounds::default() });
    happens(&found, "somebody leads");
}
