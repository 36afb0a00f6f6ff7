//! Goal: every property that is judged can fall under every protocol. Method: for each of them a defect is planted
//! (`hustings_world::JUDGED`); seeds of a minute look for a run in which this property falls, then a search that goes on after other
//! findings. A run that took long to find is kept, and played first; none of them may convict where nothing is planted.

use crate::suite::{Conviction, Searched, missed, played_by};
use hustings_blazingmq::BlazingMq;
use hustings_core::Slots;
use hustings_gmt2000::Gmt2000;
use hustings_kv::KvStore;
use hustings_paxos::Paxos;
use hustings_raft::Raft;
use hustings_world::guided::Search;
use hustings_world::seed::{Plan, run};
use hustings_world::{JUDGED, Plants};
use hustings_zab::Zab;

const SECOND: u64 = 1_000_000;
const SEEDS: u64 = 30;
/// Microseconds of faults in each run of a search.
const SAFETY: u64 = 20 * SECOND;
const RUNS: u64 = 3_000;

/// A property, and what is planted to make it fall.
#[derive(Clone)]
struct Cell<P: Searched> {
    property: &'static str,
    /// The protocol's options, with its own defect if it is one, and without.
    options: P::Options,
    sound: P::Options,
    plants: Plants,
}

impl<P: Searched> Cell<P> {
    fn of(property: &'static str, defect: &str) -> Cell<P> {
        let plants = Plants::named(defect).unwrap_or_else(|| panic!("there is no defect {defect}"));
        Cell { property, options: P::Options::default(), sound: P::Options::default(), plants }
    }

    /// One property hides another: a second vote is convicted before it makes a second leader, and a log that a restart shortened before
    /// its member leads. So half of the runs ask nothing of votes, and half of restarts.
    fn by_seeds(&self) -> Option<Conviction> {
        (1..=SEEDS).find_map(|seed| {
            let nodes = [3, 5][seed as usize % 2];
            let mut plan = Plan::draw(seed, nodes, 60 * SECOND);
            plan.settings.rules.votes_are_promises = seed % 4 < 2;
            plan.settings.rules.durable_survives = seed % 8 < 4;
            let (_, violation) = run::<P, KvStore>(&plan, &self.options, self.plants, 0).violation?;
            self.convicts(format!("seed {seed}, {nodes} members"), violation.property, &plan)
        })
    }

    fn by_search(&self) -> Option<Conviction> {
        let mut searches = [3, 5].map(|nodes| Search::new(1, nodes, SAFETY));
        (1..=RUNS).find_map(|number| {
            searches.iter_mut().find_map(|search| {
                let (plan, report) = search.step::<P, KvStore>(&self.options, self.plants);
                let (_, violation) = report.violation?;
                self.convicts(format!("run {number} of a search"), violation.property, &plan)
            })
        })
    }

    fn convicts(&self, scheduler: String, property: &str, plan: &Plan) -> Option<Conviction> {
        (property == self.property).then(|| Conviction::of_plan(scheduler, property, plan))
    }

    /// The property, if it is the one that falls in this run.
    fn played(&self, text: &str) -> Option<String> {
        let (property, _) = played_by::<P>(text, &self.options, self.plants)?;
        (property == self.property).then_some(property)
    }

    /// Whatever falls in this run where nothing is planted.
    fn played_soundly(&self, text: &str) -> Option<String> {
        played_by::<P>(text, &self.sound, Plants::default()).map(|(property, _)| property)
    }
}

/// Judged where logs are filled in order: by counting what is held, and by leaders that only append.
const IN_ORDER: [(&str, &str); 2] =
    [("commits-what-is-held", "commits-once"), ("leader-appends-only", "writes-entries-again")];

/// Every property falls: those that are judged under all protocols, those of logs that are filled in order, and these.
fn all_fall<P: Searched>(own: Vec<Cell<P>>) {
    let is_other = |property: &str| own.iter().all(|cell| cell.property != property);
    let in_order = IN_ORDER.into_iter().filter(|_| P::SLOTS == Slots::InOrder);
    let shared = JUDGED.into_iter().chain(in_order).filter(|(property, _)| is_other(property));
    let cells: Vec<Cell<P>> =
        shared.map(|(property, defect)| Cell::of(property, defect)).chain(own.iter().cloned()).collect();
    let places: Vec<usize> = (0..cells.len()).collect();
    let play = |of: usize, at: Option<usize>, text: &str| match at {
        Some(at) => cells[at].played(text),
        None => cells[of].played_soundly(text),
    };
    let name = |at: usize| cells[at].property;
    let missing = missed(P::NAME, &places, name, play, |at| cells[at].by_seeds().or_else(|| cells[at].by_search()));
    assert!(missing.is_empty(), "nothing makes {missing:?} fall under {}", P::NAME);
}

#[test]
fn every_property_can_fall_under_raft() {
    all_fall::<Raft>(Vec::new());
}

#[test]
fn every_property_can_fall_under_gmt2000() {
    all_fall::<Gmt2000>(Vec::new());
}

#[test]
fn every_property_can_fall_under_blazingmq() {
    use hustings_blazingmq::{Defect, Options};
    let sound = Options { partitions: 3, ..Options::default() };
    let options = Options { defect: Some(Defect::KeepsLeases), ..sound.clone() };
    all_fall::<BlazingMq>(vec![Cell { property: "one-primary-per-lease", options, sound, plants: Plants::default() }]);
}

#[test]
fn every_property_can_fall_under_zab() {
    use hustings_zab::{Defect, Options};
    let sound = Options::default();
    let options = Options { defect: Some(Defect::KeepsTail), ..sound.clone() };
    all_fall::<Zab>(vec![
        // Promises rest there on all that was written.
        Cell::of("votes-are-durable", "unsynced-records"),
        Cell {
            property: "state-machine-safety",
            options: options.clone(),
            sound: sound.clone(),
            plants: Plants::default(),
        },
        Cell { property: "history-is-durable", options, sound, plants: Plants::default() },
    ]);
}

#[test]
fn every_property_can_fall_under_paxos() {
    all_fall::<Paxos>(vec![Cell::of("state-machine-safety", "writes-entries-again")]);
}
