//! Goal: Raft holds in every world within small bounds. Method: exhaustive exploration, complete, and not vacuous.

use hustings_raft::{Options, Raft};
use hustings_world::every::{Bounds, Found, explore};

fn explored(bounds: &Bounds) -> Found {
    let options = Options { pre_vote: std::env::var("NOPRE").is_err(), ..Options::default() };
    let found = explore::<Raft>(bounds, &options, 2, |progress| {
        if std::env::var("LOUD").is_ok() {
            eprintln!("{progress:?}");
        }
    });
    println!("{bounds:?}\n{found:?}");
    assert!(found.violation.is_none(), "{:#?}", found.violation);
    found
}

#[test]
fn one_term_without_faults_is_safe() {
    let found = explored(&Bounds { terms: 1, proposals: 1, ..Bounds::default() });
    assert_eq!(found.incomplete, None);
    assert!(found.sometimes.iter().any(|(name, count)| *name == "an entry is committed" && *count > 0));
}

#[test]
fn one_term_with_a_crash_is_safe() {
    let found = explored(&Bounds { terms: 1, proposals: 1, crashes: 1, ..Bounds::default() });
    assert_eq!(found.incomplete, None);
}

#[test]
fn two_terms_without_a_crash_are_safe() {
    let found = explored(&Bounds { terms: 2, ..Bounds::default() });
    assert_eq!(found.incomplete, None);
}
