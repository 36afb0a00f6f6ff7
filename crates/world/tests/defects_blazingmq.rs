//! Goal: the judge can convict BlazingMQ too. Method: every defect that there is a name for is planted, one at a time, and a
//! story convicts it, or a scheduler finds it within a small budget. Prints who found what; `docs/planted-defects.md` keeps the table.

use crate::suite::{Conviction, by_every, by_story, convict_all};
use hustings_blazingmq::{BlazingMq, Defect, Options};
use hustings_world::every::Bounds;

fn by_seeds(nodes: u64, from: u64, options: &Options) -> Option<Conviction> {
    crate::suite::by_seeds::<BlazingMq>(nodes, from, 40, options)
}

fn convict(defect: Defect, options: Options) -> Option<Conviction> {
    match defect {
        Defect::SupportsTwice => {
            let options = Options { scouting: false, ..options };
            by_every::<BlazingMq>(&Bounds { terms: 1, timers: 2, ..Bounds::default() }, &options)
        }
        Defect::TrustsStalePlace => {
            let story = include_str!("defects/blazingmq-stale-place.txt");
            by_story::<BlazingMq>("blazingmq-stale-place", story, &options)
        }
        Defect::SynchronizesWithoutQuorum => by_seeds(5, 1, &options),
        _ => by_seeds(3, 1, &options),
    }
}

#[test]
fn every_planted_defect_of_blazingmq_is_convicted() {
    let options = |of, defect| {
        let partitions = if of == Defect::KeepsLeases { 3 } else { Options::default().partitions };
        Options { defect, partitions, ..Options::default() }
    };
    convict_all::<BlazingMq, _>(&Defect::ALL, Defect::name, options, convict);
}
