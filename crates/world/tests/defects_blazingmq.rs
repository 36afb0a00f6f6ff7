//! Goal: the judge can convict BlazingMQ too. Method: every defect that there is a name for is planted, one at a time, and a
//! scheduler finds it within a small budget. Prints who found what; `docs/planted-defects.md` keeps the table.

use hustings_blazingmq::{BlazingMq, Defect, Options};
use hustings_kv::KvStore;
use hustings_world::Plants;
use hustings_world::every::{Bounds, explore};
use hustings_world::guided::find;
use hustings_world::seed::{Plan, run};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const SECOND: u64 = 1_000_000;

/// Number of seeds, a minute each.
const SEEDS: u64 = 40;

/// No search of this length has reached it; a story of the ledger holds it,
/// `a_leader_whose_source_dies_in_mid_pull_goes_on_from_where_its_ledger_ends`.
const NOT_REACHED: Defect = Defect::TrustsStalePlace;

/// The scheduler that found a defect, and the property that fell.
type Conviction = (String, String);

/// A guided search, for a defect that neither the seeds nor its story find.
fn by_search(options: &Options) -> Option<Conviction> {
    find::<BlazingMq, KvStore>(options, Plants::default()).map(|found| (found.scheduler, found.property.to_string()))
}

fn by_seeds(nodes: u64, from: u64, options: &Options) -> Option<Conviction> {
    (from..from + SEEDS).find_map(|seed| {
        let plan = Plan::draw(seed, nodes, 60 * SECOND);
        let (_, violation) = run::<BlazingMq, KvStore>(&plan, options, Plants::default(), 0).violation?;
        Some((format!("seed {seed}, {nodes} members"), violation.property.to_string()))
    })
}

fn by_every(bounds: &Bounds, options: &Options) -> Option<Conviction> {
    let options = Options { scouting: false, ..options.clone() };
    let found = explore::<BlazingMq>(bounds, &options, 1, |_| {});
    let (violation, trace) = found.violation?;
    let worlds = found.states;
    Some((format!("every: {} steps, {worlds} worlds", trace.steps.len()), violation.property.to_string()))
}

fn convict(defect: Defect) -> Option<Conviction> {
    let options = Options { defect: Some(defect), ..Options::default() };
    match defect {
        Defect::SupportsTwice => by_every(&Bounds { terms: 1, alarms: 2, ..Bounds::default() }, &options),
        // Far seeds were looked for once; what finds a defect again is what keeps this short.
        Defect::ReadsWithoutQuorum => by_seeds(3, 640, &options),
        Defect::ChangesTogether => by_seeds(3, 665, &options),
        Defect::SupportsStaleMemberships => by_seeds(3, 700, &options),
        Defect::SynchronizesWithoutQuorum => by_seeds(5, 1, &options),
        Defect::KeepsLeases => by_seeds(3, 1, &Options { partitions: 3, ..options }),
        _ => by_seeds(3, 1, &options),
    }
}

#[test]
fn every_planted_defect_of_blazingmq_is_convicted() {
    // A defect may end in an assertion of a member: that is a finding, and not worth a backtrace each. The threads that look
    // have no names; this one has.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name().is_some() || std::env::var_os("HUSTINGS_PANICS").is_some() {
            usual(panic);
        }
    }));
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(defect) = Defect::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let search = || by_search(&Options { defect: Some(*defect), ..Options::default() });
                    // Each run in vain would be searched to its end; `hustings convict` looks longer than this could.
                    let is_sought = *defect != NOT_REACHED;
                    let conviction = convict(*defect).or_else(|| is_sought.then(search).flatten());
                    found.lock().expect("nobody panics here").push((defect.name(), conviction));
                }
            });
        }
    });
    let mut found = found.into_inner().expect("all ended");
    found.sort();
    for (name, conviction) in &found {
        println!("{name:<30} | {conviction:?}");
    }
    let is_missing = |(name, who): &&(&str, Option<Conviction>)| who.is_none() && *name != NOT_REACHED.name();
    let missing: Vec<&str> = found.iter().filter(is_missing).map(|(name, _)| *name).collect();
    assert!(missing.is_empty(), "nothing finds {missing:?}");
}
