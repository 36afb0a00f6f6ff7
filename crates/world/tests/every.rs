//! Goal: Raft holds in every world within small bounds. Method: exhaustive exploration, complete, and not vacuous: what should
//! happen somewhere does.

use crate::suite::{explored, happens, holds};
use hustings_raft::{Options, Raft};
use hustings_world::every::Bounds;

/// Without the pre-vote: it promises nothing, and multiplies the worlds by a hundred.
const OURS: fn() -> Options = || Options { pre_vote: false, ..Options::default() };

/// Without the bound on timers it takes minutes: `hustings check --crashes 1 --proposals 1 --no-pre-vote`.
#[test]
fn one_term_with_a_crash_and_a_proposal_is_safe() {
    let bounds = Bounds { terms: 1, proposals: 1, crashes: 1, timers: 2, ..Bounds::default() };
    let found = holds::<Raft>(&bounds, &OURS());
    happens(&found, "an entry is committed");
    happens(&found, "somebody is down while somebody leads");
}

/// The same: `hustings check --terms 2 --no-pre-vote`.
#[test]
fn two_terms_without_a_crash_are_safe() {
    let found = holds::<Raft>(&Bounds { terms: 2, timers: 2, ..Bounds::default() }, &OURS());
    happens(&found, "an entry is committed");
    happens(&found, "two terms had leaders");
}

/// The same: `hustings check --nodes 4 --crashes 1 --timers 1 --no-pre-vote`, and with `--learners 1` in place of the fourth voter.
#[test]
fn four_voters_or_three_and_a_learner_are_explored_to_the_end() {
    for (nodes, learners) in [(4, 0), (3, 1)] {
        let bounds = Bounds { nodes, learners, terms: 1, crashes: 1, timers: 1, fair_every: 0, ..Bounds::default() };
        let found = holds::<Raft>(&bounds, &OURS());
        happens(&found, "somebody is down while somebody leads");
    }
}

#[test]
fn the_pre_vote_of_one_term_is_safe_as_far_as_a_million_worlds_reach() {
    let bounds = Bounds { terms: 1, proposals: 1, states_max: 1_000_000, ..Bounds::default() };
    let found = explored::<Raft>(&bounds, &Options::default());
    assert!(found.violation.is_none(), "{:#?}", found.violation);
    happens(&found, "somebody leads");
}
