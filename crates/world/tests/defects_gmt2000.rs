//! Goal: the judge can convict GMT-2000 too. Method: every defect that there is a name for is planted, one at a time.
//! Where somebody wrote a story for it that is played, also without the defect, and then holds; otherwise seeds or an
//! exhaustive search find it within a small budget. Prints who found what; `docs/planted-defects.md` keeps the table.

use hustings_gmt2000::{Defect, Gmt2000, Options};
use hustings_kv::KvStore;
use hustings_world::every::{Bounds, explore};
use hustings_world::guided::find;
use hustings_world::seed::{Plan, run};
use hustings_world::{Plants, Script, World};
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const SECOND: u64 = 1_000_000;

/// Number of seeds, a minute each.
const SEEDS: u64 = 60;

/// The scheduler that found a defect, and the property that fell.
type Conviction = (String, String);

/// A guided search, for a defect that neither the seeds nor its story find.
fn by_search(options: &Options) -> Option<Conviction> {
    find::<Gmt2000, KvStore>(options, Plants::default()).map(|found| (found.scheduler, found.property.to_string()))
}

fn by_seeds(nodes: u64, from: u64, options: &Options) -> Option<Conviction> {
    (from..from + SEEDS).find_map(|seed| {
        let plan = Plan::draw(seed, nodes, 60 * SECOND);
        let (_, violation) = run::<Gmt2000, KvStore>(&plan, options, Plants::default(), 0).violation?;
        Some((format!("seed {seed}, {nodes} members"), violation.property.to_string()))
    })
}

fn by_every(bounds: &Bounds, options: &Options) -> Option<Conviction> {
    let found = explore::<Gmt2000>(bounds, options, 1, |_| {});
    let (violation, trace) = found.violation?;
    let worlds = found.states;
    Some((format!("every: {} steps, {worlds} worlds", trace.steps.len()), violation.property.to_string()))
}

/// Plays a story; the property that fell.
fn played(text: &str, options: &Options) -> Option<String> {
    let script = Script::parse(text).expect("the story is readable");
    let verdict = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let mut world: World<Gmt2000, KvStore> = World::new(script.settings.clone(), options.clone())?;
        script.play(&mut world, |_, _| {})
    }));
    match verdict {
        Ok(Ok(())) => None,
        Ok(Err(violation)) => Some(violation.property.to_string()),
        Err(_) => Some("assertions".into()),
    }
}

fn by_story(title: &str, text: &str, options: &Options) -> Option<Conviction> {
    let property = played(text, options)?;
    assert_eq!(played(text, &Options::default()), None, "{title} convicts a cluster without a defect");
    Some((format!("script {title}"), property))
}

macro_rules! story {
    ($name:literal, $options:expr) => {
        by_story($name, include_str!(concat!("defects/", $name, ".txt")), $options)
    };
}

fn convict(defect: Defect) -> Option<Conviction> {
    let options = Options { defect: Some(defect), ..Options::default() };
    match defect {
        Defect::VotesTwice => by_every(&Bounds { terms: 1, crashes: 1, alarms: 1, ..Bounds::default() }, &options),
        Defect::CommitsOldTerms => story!("gmt2000-figure-8", &options),
        Defect::SkipsLogCheck => story!("gmt2000-forked-tail", &options),
        Defect::ChangesTogether => story!("gmt2000-hasty-changes", &options),
        Defect::ChangesBeforeOwnCommit => story!("gmt2000-hasty-new-leader", &options),
        // A far seed was looked for once; what finds a defect again is what keeps this short.
        Defect::ReadsWithoutQuorum => by_seeds(5, 70, &options),
        Defect::CountsStaleVotes => by_seeds(5, 1, &options),
        _ => by_seeds(3, 1, &options),
    }
}

#[test]
fn every_planted_defect_of_gmt2000_is_convicted() {
    // A defect may end in an assertion of a member: that is a finding, and not worth a backtrace each. The threads
    // that look have no names; this one has.
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
                    let conviction = convict(*defect).or_else(search);
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
    let missing: Vec<&str> = found.iter().filter(|(_, who)| who.is_none()).map(|(name, _)| *name).collect();
    assert!(missing.is_empty(), "nothing finds {missing:?}");
}
