//! Goal: the judge can convict GMT-2000 too. Method: every defect that there is a name for is planted, one at a time.
//! Where somebody wrote a story for it that is played, also without the defect, and then holds; otherwise seeds or an
//! exhaustive search find it within a small budget. Prints who found what; `docs/planted-defects.md` keeps the table.

use crate::suite::{Conviction, by_every, by_story, convict_all};
use hustings_gmt2000::{Defect, Gmt2000, Options};
use hustings_world::every::Bounds;

macro_rules! story {
    ($name:literal, $options:expr) => {
        by_story::<Gmt2000>($name, include_str!(concat!("defects/", $name, ".txt")), $options)
    };
}

fn by_seeds(nodes: u64, from: u64, options: &Options) -> Option<Conviction> {
    crate::suite::by_seeds::<Gmt2000>(nodes, from, 60, options)
}

fn convict(defect: Defect, options: Options) -> Option<Conviction> {
    match defect {
        Defect::VotesTwice => {
            by_every::<Gmt2000>(&Bounds { terms: 1, crashes: 1, timers: 1, ..Bounds::default() }, &options)
        }
        Defect::CommitsOldTerms => story!("gmt2000-figure-8", &options),
        Defect::SkipsLogCheck => story!("gmt2000-forked-tail", &options),
        Defect::ChangesTogether => story!("gmt2000-hasty-changes", &options),
        Defect::ChangesBeforeOwnCommit => story!("gmt2000-hasty-new-leader", &options),
        Defect::CountsStaleVotes => by_seeds(5, 1, &options),
        _ => by_seeds(3, 1, &options),
    }
}

#[test]
fn every_planted_defect_of_gmt2000_is_convicted() {
    let options = |_, defect| Options { defect, ..Options::default() };
    convict_all::<Gmt2000, _>(&Defect::ALL, Defect::name, options, convict);
}
