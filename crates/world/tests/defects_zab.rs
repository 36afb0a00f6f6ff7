//! Goal: the judge convicts every defect that can be planted in ZAB. Method: a story where somebody wrote one for it, which is also
//! played without the defect, and then holds; otherwise seeds of two minutes, of three and of five members in turn, of which the
//! first that falls is told. `docs/planted-defects.md` keeps the table.

use crate::suite::{Conviction, convict_all, played};
use hustings_world::Plants;
use hustings_world::every::{bounds_of, replay};
use hustings_zab::{Defect, Options, Zab};

const SEEDS: u64 = 100;
const SECONDS: u64 = 120;

fn by_story(title: &str, text: &str, options: &Options) -> Option<Conviction> {
    crate::suite::by_story::<Zab>(title, text, options)
}

fn convict(defect: Defect, options: Options) -> Option<Conviction> {
    match defect {
        Defect::PromisesTwice => {
            by_story("zab-promised-twice", include_str!("defects/zab-promised-twice.txt"), &options)
        }
        Defect::IgnoresFresherFollowers => {
            by_story("zab-stale-leader", include_str!("defects/zab-stale-leader.txt"), &options)
        }
        Defect::UnsyncedNewLeaderAck => {
            by_story("zab-hasty-new-leader", include_str!("defects/zab-hasty-new-leader.txt"), &options)
        }
        Defect::ChangesTogether => {
            by_story("zab-hasty-changes", include_str!("defects/zab-hasty-changes.txt"), &options)
        }
        Defect::TruncatesCommitted => {
            by_story("zab-truncates-committed", include_str!("defects/zab-truncates-committed.txt"), &options)
        }
        _ => by_seeds(&options),
    }
}

fn by_seeds(options: &Options) -> Option<Conviction> {
    (1..=SEEDS).find_map(|seed| {
        crate::suite::by_seed::<Zab>(seed, [3, 5][seed as usize % 2], SECONDS, options, Plants::default())
    })
}

#[test]
fn every_planted_defect_of_zab_is_convicted() {
    let options = |_, defect| Options { defect, ..Options::default() };
    convict_all::<Zab, _>(&Defect::ALL, Defect::name, options, convict);
}

/// ZOOKEEPER-4643, by the shortest trace that the exhaustive search found; it takes too long to find it again here.
#[test]
fn zab_as_published_elects_a_leader_that_vouches_for_a_history_it_never_had() {
    let text = include_str!("defects/zab-epoch-before-entries.txt");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let (header, steps) = lines.split_first().expect("a trace has a header");
    let bounds = bounds_of(header).expect("the header is one of a trace");
    let replayed = replay::<Zab>(&bounds, &Options::PUBLISHED, steps).expect("every step can happen");
    assert_eq!(replayed.steps.len(), 49, "the whole trace was played");
    println!("{:?}", replayed.violation);
    assert_eq!(replayed.violation.map(|violation| violation.property), Some("assertions"));
    // In the safe form the epoch is vouched for with its history, so the trace cannot be followed to its end.
    let safe = replay::<Zab>(&bounds, &Options::default(), steps);
    println!("{safe:?}");
    assert!(safe.is_err_and(|why| why.contains("cannot happen here")), "the safe form comes there as well");
}

#[test]
fn zab_as_published_loses_what_was_committed() {
    let text = include_str!("defects/zab-hasty-new-leader.txt");
    assert_eq!(played::<Zab>(text, &Options::PUBLISHED).as_deref(), Some("leader-completeness"));
}
