//! Goal: BlazingMQ holds in every world within small bounds, and its published form does not. Method: exhaustive exploration,
//! complete, and not vacuous.

use crate::suite::{explored, falls, happens, holds};
use hustings_blazingmq::{BlazingMq, Options};
use hustings_world::every::Bounds;

/// Without scouting, which promises nothing and multiplies the worlds. Of timers, of which it has eight, few fire.
const OURS: fn() -> Options = || Options { scouting: false, ..Options::default() };

#[test]
fn one_term_with_a_crash_and_a_proposal_is_safe() {
    let found =
        holds::<BlazingMq>(&Bounds { terms: 1, proposals: 1, crashes: 1, timers: 1, ..Bounds::default() }, &OURS());
    happens(&found, "an entry is committed");
    happens(&found, "somebody is down while somebody leads");
}

#[test]
fn two_timers_each_are_safe() {
    let found = holds::<BlazingMq>(&Bounds { terms: 1, timers: 2, ..Bounds::default() }, &OURS());
    happens(&found, "an entry is committed");
}

#[test]
fn as_published_a_crash_makes_two_leaders_of_one_term() {
    let bounds = Bounds { terms: 1, crashes: 1, timers: 1, ..Bounds::default() };
    let found = explored::<BlazingMq>(&bounds, &Options { as_published: true, ..OURS() });
    // It forgets whom it supported.
    falls(found, "one-leader-per-term", 12);
}
