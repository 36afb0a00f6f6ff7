//! Goal: Raft holds in every world within small bounds. Method: exhaustive exploration, complete, and not vacuous: what should
//! happen somewhere does.

use hustings_raft::{Options, Raft};
use hustings_world::every::{Bounds, Found, explore};

fn explored(bounds: &Bounds) -> Found {
    // Without the pre-vote: it promises nothing, and multiplies the worlds by a hundred.
    let options = Options { pre_vote: false, ..Options::default() };
    let found = explore::<Raft>(bounds, &options, 2, |_| {});
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
fn one_term_with_a_crash_and_a_proposal_is_safe() {
    let found = explored(&Bounds { terms: 1, proposals: 1, crashes: 1, ..Bounds::default() });
    happens(&found, "an entry is committed");
    happens(&found, "somebody is down while somebody leads");
}

#[test]
fn two_terms_without_a_crash_are_safe() {
    let found = explored(&Bounds { terms: 2, ..Bounds::default() });
    happens(&found, "an entry is committed");
    happens(&found, "two terms had leaders");
}

#[test]
fn the_pre_vote_of_one_term_is_safe_as_far_as_a_million_worlds_reach() {
    let bounds = Bounds { terms: 1, proposals: 1, states_max: 1_000_000, ..Bounds::default() };
    let found = explore::<Raft>(&bounds, &Options::default(), 2, |_| {});
    assert!(found.violation.is_none(), "{:#?}", found.violation);
    happens(&found, "somebody leads");
}
