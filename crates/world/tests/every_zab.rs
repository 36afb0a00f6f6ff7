//! Goal: ZAB holds in every world within small bounds. Method: exhaustive exploration, complete, and not vacuous. Its published
//! form needs two crashes, which is more than a test should explore: `docs/protocols/zab.md` has the bound and the shortest trace, and
//! `defects_zab.rs` convicts it by a story.

use crate::suite::{happens, holds};
use hustings_world::every::Bounds;
use hustings_zab::{Options, Zab};

#[test]
fn two_terms_with_a_crash_and_a_proposal_are_safe() {
    // No timer fires: what news of links starts is enough for a second leader.
    let found = holds::<Zab>(
        &Bounds { terms: 2, proposals: 1, crashes: 1, fires: 0, ..Bounds::default() },
        &Options::default(),
    );
    happens(&found, "an entry is committed");
    happens(&found, "two terms had leaders");
    happens(&found, "somebody is down while somebody leads");
}

#[test]
fn one_term_with_an_timer_at_each_member_is_safe() {
    let found = holds::<Zab>(&Bounds { terms: 1, timers: 1, ..Bounds::default() }, &Options::default());
    happens(&found, "somebody leads");
}
