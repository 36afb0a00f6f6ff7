//! The suites that every protocol has: everything within bounds, and the conviction of each planted defect. A protocol's own file
//! keeps its bounds, and its list of what finds which defect.

mod kept;

/// Runs each of these tests under every protocol. A sixth one is a line more here.
macro_rules! under_each_protocol {
    ($($title:ident: $test:ident;)+) => {$(
        mod $title {
            under_each_protocol! { @each $test, raft hustings_raft::Raft }
            under_each_protocol! { @each $test, gmt2000 hustings_gmt2000::Gmt2000 }
            under_each_protocol! { @each $test, blazingmq hustings_blazingmq::BlazingMq }
            under_each_protocol! { @each $test, zab hustings_zab::Zab }
            under_each_protocol! { @each $test, paxos hustings_paxos::Paxos }
        }
    )+};
    (@each $test:ident, $name:ident $protocol:ty) => {
        #[test]
        fn $name() {
            super::$test::<$protocol>();
        }
    };
}

/// Calls a function for every protocol.
macro_rules! with_each_protocol {
    ($run:ident($($argument:expr),*)) => {
        $run::<hustings_raft::Raft>($($argument),*);
        $run::<hustings_gmt2000::Gmt2000>($($argument),*);
        $run::<hustings_blazingmq::BlazingMq>($($argument),*);
        $run::<hustings_zab::Zab>($($argument),*);
        $run::<hustings_paxos::Paxos>($($argument),*);
    };
}

use hustings_core::Protocol;
use hustings_kv::KvStore;
use hustings_world::every::{Bounds, Found, explore};
use hustings_world::guided::find;
use hustings_world::seed::{Plan, run};
use hustings_world::{Plants, Script, World};
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const SECOND: u64 = 1_000_000;

/// A protocol that threads can search together.
pub trait Searched: Protocol<Options: Sync, Message: Send + Sync, Timer: Send + Sync> + Send + Sync {}

impl<P: Protocol<Options: Sync, Message: Send + Sync, Timer: Send + Sync> + Send + Sync> Searched for P {}

/// A defect was found.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Conviction {
    /// The scheduler that found it, in words.
    pub scheduler: String,
    /// The property that fell.
    pub property: String,
    /// The run, as a script, where it was drawn and not written down by somebody.
    pub script: Option<String>,
}

impl Conviction {
    /// By a scheduler of which nothing needs to be kept.
    pub fn new(scheduler: impl Into<String>, property: impl Into<String>) -> Conviction {
        Conviction { scheduler: scheduler.into(), property: property.into(), script: None }
    }

    /// By the run of this plan.
    pub fn of_plan(scheduler: impl Into<String>, property: impl Into<String>, plan: &Plan) -> Conviction {
        let script = plan.script(Vec::new()).to_string();
        Conviction { script: Some(script), ..Conviction::new(scheduler, property) }
    }
}

// --- Everything within bounds. -----------------------------------------------------------------------------------

/// Explores, and says what was found.
pub fn explored<P: Searched>(bounds: &Bounds, options: &P::Options) -> Found {
    let found = explore::<P>(bounds, options, 2, |_| true);
    println!("{bounds:?}\n{found:?}");
    found
}

/// Nothing within these bounds is unsafe, and all of it was seen.
pub fn holds<P: Searched>(bounds: &Bounds, options: &P::Options) -> Found {
    let found = explored::<P>(bounds, options);
    assert!(found.violation.is_none(), "{:#?}", found.violation);
    assert_eq!(found.incomplete, None);
    found
}

/// The search was not vacuous.
pub fn happens(found: &Found, what: &str) {
    let count = found.sometimes.iter().find(|(name, _)| *name == what).map(|(_, count)| *count);
    assert!(count.is_some_and(|count| count > 0), "{what}: nowhere in {} worlds", found.states);
}

/// This property falls in a shortest trace of so many steps.
pub fn falls(found: Found, property: &str, steps_max: usize) {
    let (violation, trace) = found.violation.unwrap_or_else(|| panic!("{property} holds in {} worlds", found.states));
    assert_eq!(violation.property, property);
    assert!(trace.steps.len() <= steps_max, "{:#?}", trace.steps);
}

// --- Convictions. ------------------------------------------------------------------------------------------------

/// A guided search, for a defect that neither the seeds nor its story find.
pub fn by_search<P: Searched>(options: &P::Options, plants: Plants) -> Option<Conviction> {
    let found = find::<P, KvStore>(options, plants)?;
    Some(Conviction::of_plan(found.scheduler, found.property, &found.plan))
}

/// So many seeds of these members, a minute each.
pub fn by_seeds<P: Searched>(nodes: u64, from: u64, seeds: u64, options: &P::Options) -> Option<Conviction> {
    (from..from + seeds).find_map(|seed| by_seed::<P>(seed, nodes, 60, options, Plants::default()))
}

/// One seed, for so many seconds.
pub fn by_seed<P: Searched>(
    seed: u64,
    nodes: u64,
    seconds: u64,
    options: &P::Options,
    plants: Plants,
) -> Option<Conviction> {
    let plan = Plan::draw(seed, nodes, seconds * SECOND);
    let (_, violation) = run::<P, KvStore>(&plan, options, plants, 0).violation?;
    Some(Conviction::of_plan(format!("seed {seed}, {nodes} members"), violation.property, &plan))
}

/// An exhaustive search by one thread.
pub fn by_every<P: Searched>(bounds: &Bounds, options: &P::Options) -> Option<Conviction> {
    let found = explore::<P>(bounds, options, 1, |_| true);
    let (violation, trace) = found.violation?;
    let worlds = found.states;
    Some(Conviction::new(format!("every: {} steps, {worlds} worlds", trace.steps.len()), violation.property))
}

/// Plays a story; the property that fell, and after how many commands.
pub fn played_by<P: Searched>(text: &str, options: &P::Options, plants: Plants) -> Option<(String, usize)> {
    let script = Script::parse(text).expect("the story is readable");
    let mut commands = 0;
    let verdict = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let mut world: World<P, KvStore> = World::planted(script.settings.clone(), options.clone(), plants)?;
        script.play(&mut world, |_, _| commands += 1)
    }));
    match verdict {
        Ok(Ok(())) => None,
        Ok(Err(violation)) => Some((violation.property.to_string(), commands)),
        Err(_) => Some(("assertions".into(), commands)),
    }
}

/// Plays a story over the usual store; the property that fell.
pub fn played<P: Searched>(text: &str, options: &P::Options) -> Option<String> {
    played_by::<P>(text, options, Plants::default()).map(|(property, _)| property)
}

/// A story, which is also played without the defect, and then holds.
pub fn by_story<P: Searched>(title: &str, text: &str, options: &P::Options) -> Option<Conviction> {
    let property = played::<P>(text, options);
    let property = property.unwrap_or_else(|| panic!("{title} convicts nobody any more: its moments have moved"));
    assert_eq!(played::<P>(text, &P::Options::default()), None, "{title} convicts a cluster without a defect");
    Some(Conviction::new(format!("script {title}"), property))
}

/// A story, which is also played without what is planted, and then holds; `None` where it convicts nobody.
pub fn by_story_planted<P: Searched>(
    title: &str,
    text: &str,
    options: &P::Options,
    plants: Plants,
) -> Option<Conviction> {
    let innocent = played_by::<P>(text, options, Plants::default());
    assert_eq!(innocent, None, "{title} convicts a cluster without a defect");
    let (property, _) = played_by::<P>(text, options, plants)?;
    Some(Conviction::new(format!("script {title}"), property))
}

/// Plants each of these defects, and prints who found what.
pub fn convict_all<P: Searched, D: Copy + Sync>(
    defects: &[D],
    name: impl Fn(D) -> &'static str + Sync,
    options: impl Fn(D, Option<D>) -> P::Options + Sync,
    convict: impl Fn(D, P::Options) -> Option<Conviction> + Sync,
) {
    let planted = |defect: D| options(defect, Some(defect));
    let play = |of: D, defect: Option<D>, text: &str| played::<P>(text, &options(of, defect));
    let missing = missed(P::NAME, defects, &name, play, |defect| {
        convict(defect, planted(defect)).or_else(|| by_search::<P>(&planted(defect), Plants::default()))
    });
    assert!(missing.is_empty(), "nothing finds {missing:?}");
}

/// Looks for each of these defects, prints who found what, and says what nothing found. The run that is kept of one is played
/// first. A run that convicts must hold where nothing is planted (`play` for a defect, without it): otherwise it found something else.
///
/// A defect may end in an assertion of a member: that is a finding, and not worth a backtrace each. The threads that look
/// have no names; those that judge have.
pub fn missed<D: Copy + Sync>(
    protocol: &str,
    defects: &[D],
    name: impl Fn(D) -> &'static str + Sync,
    play: impl Fn(D, Option<D>, &str) -> Option<String> + Sync,
    convict: impl Fn(D) -> Option<Conviction> + Sync,
) -> Vec<&'static str> {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name().is_some() || std::env::var_os("HUSTINGS_PANICS").is_some() {
            usual(panic);
        }
    }));
    let (next, found, guilty) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(defect) = defects.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let begun = Instant::now();
                    let kept = kept::Run::of(protocol, name(*defect));
                    let again = kept.played(|text| play(*defect, Some(*defect), text));
                    let conviction = again.or_else(|| kept.looked_for(|| convict(*defect)));
                    let script = conviction.as_ref().and_then(|conviction| conviction.script.as_deref());
                    if let Some(fell) = script.and_then(|script| play(*defect, None, script)) {
                        guilty.lock().expect("nobody panics here").push((name(*defect), fell));
                    }
                    let looked = (name(*defect), conviction, begun.elapsed().as_millis());
                    found.lock().expect("nobody panics here").push(looked);
                }
            });
        }
    });
    let mut found = found.into_inner().expect("all ended");
    found.sort();
    for (name, conviction, spent) in &found {
        let (scheduler, property) =
            conviction.as_ref().map_or(("nothing", ""), |found| (&found.scheduler, &found.property));
        println!("{name:<30} | {scheduler:<60} | {property:<22} | {spent:>5} ms");
    }
    let guilty = guilty.into_inner().expect("all ended");
    assert!(guilty.is_empty(), "these runs convict a cluster without a defect as well: {guilty:?}");
    found.into_iter().filter(|(_, conviction, _)| conviction.is_none()).map(|(name, ..)| name).collect()
}
