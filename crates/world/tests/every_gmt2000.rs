//! Goal: GMT-2000, made safe, holds in every world within small bounds, and its published form does not. Method:
//! exhaustive exploration, complete, and not vacuous.

use crate::suite::{explored, falls, happens, holds};
use hustings_gmt2000::{Gmt2000, Options};
use hustings_world::every::Bounds;

/// Both together are 69 million worlds, for which `hustings check --protocol gmt2000 --crashes 1 --proposals 1 --timers 1 --fair 0` takes
/// minutes.
#[test]
fn one_term_with_a_crash_is_safe() {
    let found = holds::<Gmt2000>(&Bounds { terms: 1, crashes: 1, timers: 1, ..Bounds::default() }, &Options::default());
    happens(&found, "an entry is committed");
    happens(&found, "somebody is down while somebody leads");
}

#[test]
fn one_term_with_a_proposal_is_safe() {
    let bounds = Bounds { terms: 1, proposals: 1, timers: 1, ..Bounds::default() };
    happens(&holds::<Gmt2000>(&bounds, &Options::default()), "an entry is committed");
}

#[test]
fn as_published_two_servers_lead_one_term_without_a_crash() {
    // GM-4.
    let found = explored::<Gmt2000>(&Bounds { terms: 2, fires: 2, ..Bounds::default() }, &Options::PUBLISHED);
    falls(found, "one-leader-per-term", 10);
}
