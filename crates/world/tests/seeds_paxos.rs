//! Goal: TRex Paxos survives what seeds draw. Method: as in `seeds.rs`; a file of its own, for it is rebuilt often.
//! `HUSTINGS_SEED_FROM`, `HUSTINGS_SEEDS`, `HUSTINGS_SEED_MINUTES` and `HUSTINGS_NODES` choose others.

use hustings_kv::KvStore;
use hustings_paxos::{Options, Paxos};
use hustings_world::Plants;
use hustings_world::seed::{Plan, run};

const SECOND: u64 = 1_000_000;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn paxos_survives_what_seeds_draw() {
    let (from, seeds) = (from_environment("HUSTINGS_SEED_FROM", 1), from_environment("HUSTINGS_SEEDS", 10));
    let minutes = from_environment("HUSTINGS_SEED_MINUTES", 1);
    let mut failed = 0;
    for seed in from..from + seeds {
        let nodes = from_environment("HUSTINGS_NODES", [3, 5][seed as usize % 2]);
        let plan = Plan::draw(seed, nodes, minutes * 60 * SECOND);
        let report = run::<Paxos, KvStore>(&plan, &Options::default(), Plants::default(), 0);
        let Some((at, violation)) = &report.violation else { continue };
        failed += 1;
        let lines = report.journal.lines.iter().rev().take(40).rev();
        let story: Vec<String> = lines.map(|(at, line)| format!("{at:>12} {line}")).collect();
        eprintln!("seed {seed} of {nodes} nodes, after {} ms: {violation}\n{}", at / 1_000, story.join("\n"));
        if failed >= 3 {
            break;
        }
    }
    assert_eq!(failed, 0, "seeds failed");
}
