//! Goal: the judge can convict. Method: defects are planted one at a time, every one that there is a name for, and one of the
//! three schedulers finds each within a small budget. Prints who found what; `docs/planted-defects.md` keeps the table.

use crate::suite::{Conviction, by_search, missed, played_by};
use hustings_core::Protocol as _;
use hustings_kv::KvStore;
use hustings_raft::{Defect, Options, Raft};
use hustings_world::Plants;
use hustings_world::every::{Bounds, explore};
use hustings_world::seed::{Plan, run, shrink};

const SECOND: u64 = 1_000_000;
/// Runs that looking for a shorter story may take.
const SHRINK_TRIES: u32 = 12;

/// The search that looks for a defect, and its bounds.
enum Search {
    /// These seeds, a minute each, of three and of five members in turn.
    Seeds(u64, u64),
    /// All that can happen to three members within bounds, without the pre-vote.
    Every(Bounds),
    /// A story that somebody wrote down, and its text; perhaps without pre-vote and stickiness.
    Script(&'static str, &'static str, Form),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Usual,
    Published,
}

macro_rules! story {
    ($name:literal, $form:expr) => {
        Search::Script($name, include_str!(concat!("defects/", $name, ".txt")), $form)
    };
}

/// The search that finds this defect; seeds unless another is named here.
fn search_for(name: &str) -> Search {
    match name {
        "forgets-vote-on-step-down" => {
            Search::Every(Bounds { terms: 1, crashes: 1, notices: true, ..Bounds::default() })
        }
        "commits-old-terms" => story!("figure-8", Form::Published),
        "counts-stale-acknowledgements" => story!("stale-acknowledgement", Form::Published),
        "changes-before-own-commit" => story!("hasty-new-leader", Form::Published),
        "changes-together" => story!("hasty-changes", Form::Published),
        "joint-by-union" => story!("half-a-joint-change", Form::Published),
        "skips-log-check" => story!("forked-tail", Form::Usual),
        "drops-watch-event" | "compacts-beyond" => story!("compacted-watcher", Form::Usual),
        "commits-unmatched" => Search::Every(Bounds { terms: 2, ..Bounds::default() }),
        _ => Search::Seeds(1, 150),
    }
}

fn by_seeds(first: u64, last: u64, options: &Options, plants: Plants) -> Option<Conviction> {
    (first..=last).find_map(|seed| {
        let nodes = [3, 5][seed as usize % 2];
        let plan = Plan::draw(seed, nodes, 60 * SECOND);
        let (_, violation) = run::<Raft, KvStore>(&plan, options, plants, 0).violation?;
        let short = shrink::<Raft, KvStore>(&plan, options, plants, &violation, SHRINK_TRIES);
        let length = format!("{} of {} faults", short.faults.len(), plan.faults.len());
        let scheduler = format!("seed {seed}, {nodes} members: {length}");
        Some(Conviction::of_plan(scheduler, violation.property, &short))
    })
}

fn by_every(bounds: &Bounds, options: &Options) -> Option<Conviction> {
    let options = Options { pre_vote: false, ..options.clone() };
    let found = explore::<Raft>(bounds, &options, 1, |_| true);
    let (violation, trace) = found.violation?;
    let Bounds { terms, crashes, proposals, .. } = bounds;
    let length = format!("{} steps, {} worlds", trace.steps.len(), found.states);
    let scheduler = format!("every: terms {terms}, crashes {crashes}, proposals {proposals}: {length}");
    Some(Conviction::new(scheduler, violation.property))
}

/// Plays a story; the property that fell, and after how many commands.
fn played(text: &str, form: Form, options: &Options, plants: Plants) -> Option<(String, usize)> {
    let is_usual = form == Form::Usual;
    let options = Options { pre_vote: is_usual, check_quorum: is_usual, ..options.clone() };
    played_by::<Raft>(text, &options, plants)
}

fn search(name: &str, options: &Options, plants: Plants) -> Option<Conviction> {
    match search_for(name) {
        Search::Seeds(first, last) => {
            by_seeds(first, last, options, plants).or_else(|| by_search::<Raft>(options, plants))
        }
        Search::Every(bounds) => by_every(&bounds, options),
        Search::Script(title, text, form) => {
            let innocent = played(text, form, &Options::default(), Plants::default());
            assert_eq!(innocent, None, "{title} convicts a cluster without a defect");
            let (property, commands) = played(text, form, options, plants)?;
            Some(Conviction::new(format!("script {title}: {commands} commands"), property))
        }
    }
}

/// The options and plants of this defect.
fn planted(name: &str) -> (Options, Plants) {
    let defect = Defect::named(name);
    let plants = if defect.is_some() { Plants::default() } else { Plants::named(name).expect("it has a name") };
    (Options { defect, ..Options::default() }, plants)
}

fn convict(name: &str) -> Option<Conviction> {
    let (options, plants) = planted(name);
    search(name, &options, plants)
}

#[test]
fn every_planted_defect_is_convicted() {
    let mut names: Vec<&'static str> = Defect::ALL.iter().map(|defect| defect.name()).collect();
    names.extend(Plants::NAMES);
    let only = std::env::var("HUSTINGS_DEFECT").ok();
    names.retain(|name| only.as_deref().is_none_or(|only| only == *name));
    let play = |_, name: Option<&str>, text: &str| {
        let (options, plants) = name.map_or_else(Default::default, planted);
        played_by::<Raft>(text, &options, plants).map(|(property, _)| property)
    };
    let missing = missed(Raft::NAME, &names, |name| name, play, convict);
    assert!(missing.is_empty(), "nothing finds {missing:?}");
}
