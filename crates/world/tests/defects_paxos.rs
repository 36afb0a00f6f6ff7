//! Goal: the judge can convict TRex Paxos too. Method: every defect that there is a name for is planted, one at a time. Where somebody
//! wrote a story for it that is played, also without the defect, and then holds; otherwise seeds find it within a small budget, as they
//! do the published form. Prints who found what; `docs/planted-defects.md` keeps the table.

use crate::suite::{Conviction, convict_all};
use hustings_paxos::{Defect, Options, Paxos};

fn by_seeds(nodes: u64, from: u64, options: &Options) -> Option<Conviction> {
    crate::suite::by_seeds::<Paxos>(nodes, from, 60, options)
}

fn by_story(title: &str, text: &str, options: &Options) -> Option<Conviction> {
    crate::suite::by_story::<Paxos>(title, text, options)
}

fn convict(defect: Defect, options: Options) -> Option<Conviction> {
    match defect {
        Defect::ProposesBehindChanges => {
            by_story("paxos-hasty-slot", include_str!("defects/paxos-hasty-slot.txt"), &options)
        }
        Defect::LeadsOnAfterLater => {
            by_story("learnt-commit", include_str!("../../../scenarios/learnt-commit/storm.txt"), &options)
        }
        Defect::ReadsWithoutQuorum => by_seeds(5, 1, &options),
        Defect::CommitsOldBallots => by_seeds(5, 1, &options),
        _ => by_seeds(3, 1, &options),
    }
}

#[test]
fn every_planted_defect_of_paxos_is_convicted() {
    let options = |_, defect| Options { defect, ..Options::default() };
    convict_all::<Paxos, _>(&Defect::ALL, Defect::name, options, convict);
}

/// TH-1 and TH-2 under seeds.
#[test]
fn as_published_what_was_committed_is_overwritten() {
    let options = Options { as_published: true, ..Options::default() };
    let found = by_seeds(3, 1, &options).or_else(|| by_seeds(5, 1, &options));
    println!("as published: {found:?}");
    assert!(found.is_some(), "both published versions break agreement");
}

/// TH-2 alone: the story plays its schedule (`docs/protocols/paxos.md`), and holds in the safe form.
#[test]
fn as_published_who_asks_to_catch_up_makes_a_leader_overwrite_what_was_decided() {
    let options = Options { as_published: true, ..Options::default() };
    let story = include_str!("defects/paxos-catch-up-raises-ballot.txt");
    let found = by_story("paxos-catch-up-raises-ballot", story, &options);
    assert_eq!(found.map(|found| found.property).as_deref(), Some("state-machine-safety"));
}
