//! Goal: every protocol survives what seeds draw. Method: swarms of faults in virtual time, every step judged; each run
//! repeated gives the same fingerprint. `HUSTINGS_SEEDS` and `HUSTINGS_SEED_MINUTES` make it longer.

use hustings_blazingmq::BlazingMq;
use hustings_core::Protocol;
use hustings_core::options::Options as _;
use hustings_gmt2000::Gmt2000;
use hustings_kv::KvStore;
use hustings_paxos::Paxos;
use hustings_raft::Raft;
use hustings_world::journal::Journal;
use hustings_world::seed::{Plan, Report, run};
use hustings_world::{Counts, Plants, Script, World};
use hustings_zab::Zab;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SECOND: u64 = 1_000_000;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn survived<P: Protocol>(seed: u64, nodes: u64, seconds: u64, options: &str) -> Report
where
    P::Options: Sync,
{
    survived_plan::<P>(&Plan::draw(seed, nodes, seconds * SECOND), seconds, options)
}

fn survived_plan<P: Protocol>(plan: &Plan, seconds: u64, options: &str) -> Report
where
    P::Options: Sync,
{
    let parsed = P::Options::parse(P::NAME, options).expect("options of this protocol");
    let report = run::<P, KvStore>(plan, &parsed, Plants::default(), 0);
    if let Some((at, violation)) = &report.violation {
        let lines = report.journal.lines.iter().rev().take(40).rev();
        let (nodes, seed) = (plan.settings.nodes, plan.settings.seed);
        let story: Vec<String> = lines.map(|(at, line)| format!("{at:>12} {line}")).collect();
        panic!(
            "{violation}\nafter {} ms; `hustings simulate --protocol {} --protocol-options \"{options}\" --nodes {nodes} \
             --seed {seed} --minutes {}` tells more\n{}",
            at / 1_000,
            P::NAME,
            seconds / 60,
            story.join("\n")
        );
    }
    report
}

/// Runs so many seeds of so many minutes each in two threads; prints what they consisted of.
fn storm<P: Protocol>(seeds: u64, minutes: u64, options: &str)
where
    P::Options: Sync,
{
    let (seeds, minutes) =
        (from_environment("HUSTINGS_SEEDS", seeds), from_environment("HUSTINGS_SEED_MINUTES", minutes));
    let (next, counts) = (AtomicU64::new(1), Mutex::new((Counts::default(), 0)));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > seeds {
                        return;
                    }
                    let report = survived::<P>(seed, [3, 5][seed as usize % 2], minutes * 60, options);
                    let mut counts = counts.lock().expect("nobody panics while counting");
                    counts.0.add(&report.counts);
                    counts.1 += report.simulated;
                }
            });
        }
    });
    let (counts, simulated) = counts.into_inner().expect("nobody panicked while counting");
    println!("{}: {seeds} seeds, {} simulated seconds\n{counts:?}", P::NAME, simulated / SECOND);
    // A run that injected nothing, completed nothing or elected nobody has shown nothing (ADR 35).
    assert!(counts.completed > seeds * 20 && counts.elections >= seeds, "{counts:?}");
    assert!(counts.faults.len() > 20 && counts.installs > 0 && counts.watched > 0, "{counts:?}");
}

#[test]
fn raft_survives_what_seeds_draw() {
    storm::<Raft>(150, 5, "");
}

#[test]
fn gmt2000_survives_what_seeds_draw() {
    storm::<Gmt2000>(150, 5, "");
}

#[test]
fn blazingmq_survives_what_seeds_draw() {
    storm::<BlazingMq>(150, 5, "partitions=3,placement=least-assigned");
}

#[test]
fn zab_survives_what_seeds_draw() {
    storm::<Zab>(150, 5, "");
}

#[test]
fn paxos_survives_what_seeds_draw() {
    storm::<Paxos>(150, 5, "");
}

/// Four of five promise, and two accept: what a majority holds is not asked for.
#[test]
fn paxos_with_quorums_of_its_own_survives_what_seeds_draw() {
    storm::<Paxos>(60, 5, "quorums=4/2");
}

/// Three votes and three copies are asked for, of three members also: a cluster without them owes nobody an answer.
#[test]
fn blazingmq_with_quorums_above_a_majority_survives_what_seeds_draw() {
    storm::<BlazingMq>(60, 5, "vote-quorum=3,commit-quorum=3");
}

/// Goal: what is committed may be applied later, in slices, while everything else goes on: order, reads, snapshots and leases bear it.
/// Method: seeds in which each member applies one command in a turn; the others' turns come between two of them.
#[test]
fn members_that_apply_one_command_in_a_turn_survive_what_seeds_draw() {
    fn storm<P: Protocol>()
    where
        P::Options: Sync,
    {
        let mut completed = 0;
        for seed in 1..=20 {
            let mut plan = Plan::draw(seed, [3, 5][seed as usize % 2], 120 * SECOND);
            plan.settings.policy.slice_cost = 1;
            completed += survived_plan::<P>(&plan, 120, "").counts.completed;
        }
        assert!(completed > 1_000, "{}: {completed} requests were answered", P::NAME);
    }
    with_each_protocol!(storm());
}

/// Each of so many seeds twice: the same run, and another one than that of nearly every other seed.
fn equal_seeds_give_equal_runs_of<P: Protocol>(seeds: u64, options: &str)
where
    P::Options: Sync,
{
    let mut seen = std::collections::BTreeSet::new();
    for seed in 1..=seeds {
        let print = || survived::<P>(seed, [3, 5][seed as usize % 2], 20, options).fingerprint;
        let first = print();
        assert_eq!(first, print(), "{}: seed {seed}", P::NAME);
        seen.insert(first);
    }
    assert!(seen.len() as u64 > seeds * 9 / 10, "{}: different seeds give different runs: {}", P::NAME, seen.len());
}

#[test]
fn equal_seeds_give_equal_runs() {
    equal_seeds_give_equal_runs_of::<Raft>(50, "");
    equal_seeds_give_equal_runs_of::<Gmt2000>(20, "");
    equal_seeds_give_equal_runs_of::<BlazingMq>(20, "partitions=3,placement=least-assigned");
    equal_seeds_give_equal_runs_of::<Zab>(20, "");
    equal_seeds_give_equal_runs_of::<Paxos>(20, "");
}

/// Goal: what a search prints as a script is the run that it found. Method: seeds with somebody sick at the end; their scripts are read
/// and played, and everything happens at the same times.
#[test]
fn the_script_of_a_seed_is_the_same_run() {
    fn is_the_same<P: Protocol>() {
        let plans = (1..60).map(|seed| Plan::draw(seed, 3, 10 * SECOND)).filter(|plan| !plan.sick.is_empty());
        for plan in plans.take(4) {
            let report = run::<P, KvStore>(&plan, &P::Options::default(), Plants::default(), 0);
            let script = Script::parse(&plan.script(Vec::new()).to_string()).expect("it is one");
            let mut world =
                World::<P, KvStore>::new(script.settings.clone(), P::Options::default()).expect("it begins");
            script.play(&mut world, |_, _| ()).expect("it is sound");
            let (seed, name) = (plan.settings.seed, P::NAME);
            let story = |journal: &Journal| -> Vec<String> {
                journal.lines.iter().map(|(at, line)| format!("{at} {line}")).collect()
            };
            let (played, found) = (story(&world.journal), story(&report.journal));
            let other = played.iter().zip(&found).find(|(played, found)| played != found);
            assert_eq!((other, played.len()), (None, found.len()), "{name} {seed}");
            assert_eq!((world.now(), world.counts.steps), (report.simulated, report.counts.steps), "{name} {seed}");
        }
    }
    with_each_protocol!(is_the_same());
}
