//! Goal: Raft survives what seeds draw. Method: swarms of faults in virtual time, every step judged; each run repeated gives
//! the same fingerprint.

use hustings_kv::KvStore;
use hustings_raft::{Options, Raft};
use hustings_world::seed::{Plan, Report, run};
use hustings_world::{Counts, Plants};

const SECOND: u64 = 1_000_000;

fn raft(seed: u64, nodes: u64, seconds: u64) -> Report {
    let plan = Plan::draw(seed, nodes, seconds * SECOND);
    run::<Raft, KvStore>(&plan, &Options::default(), Plants::default(), 0)
}

#[test]
fn raft_survives_what_seeds_draw() {
    let mut counts = Counts::default();
    let start = std::time::Instant::now();
    let mut simulated = 0;
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    for seed in std::env::var("FROM").map_or(1, |t| t.parse().expect("n"))..=seeds {
        let report = raft(seed, [3, 5][seed as usize % 2], 60);
        if let Some((at, violation)) = &report.violation {
            let story: Vec<String> =
                report.journal.lines.iter().rev().take(30).rev().map(|(at, line)| format!("{at:>10} {line}")).collect();
            panic!("seed {seed} after {} ms: {violation}\n{}", at / 1_000, story.join("\n"));
        }
        simulated += report.simulated;
        counts.add(&report.counts);
    }
    let took = start.elapsed();
    println!(
        "{counts:#?}\n{} simulated seconds in {took:?}: {:.0} times real time, {:.0} steps/s",
        simulated / SECOND,
        simulated as f64 / took.as_micros() as f64,
        counts.steps as f64 / took.as_secs_f64()
    );
    assert!(counts.completed > 1_000 && counts.elections > 40 && counts.faults.len() > 15, "{counts:?}");
}

#[test]
fn equal_seeds_give_equal_runs() {
    for seed in 1..=5 {
        assert_eq!(raft(seed, 3, 20).fingerprint, raft(seed, 3, 20).fingerprint, "seed {seed}");
    }
}
