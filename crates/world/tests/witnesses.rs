//! Goal: with witnesses among the members, every property holds under every protocol (ADR 40). Method: seeds as everywhere, with one
//! witness of three members and two of five; `hustings simulate --witnesses N` goes further.

use hustings_blazingmq::BlazingMq;
use hustings_core::Protocol;
use hustings_core::laboratory::Defect;
use hustings_gmt2000::Gmt2000;
use hustings_kv::KvStore;
use hustings_paxos::Paxos;
use hustings_raft::Raft;
use hustings_world::Plants;
use hustings_world::seed::{Plan, Report, run};
use hustings_zab::Zab;

const SECOND: u64 = 1_000_000;
const SEEDS: u64 = 16;

fn ran<P: Protocol>(seed: u64, plants: Plants) -> Report {
    let nodes = [3, 5][seed as usize % 2];
    let plan = Plan::draw(seed, nodes, 60 * SECOND).with_witnesses(nodes / 2);
    run::<P, KvStore>(&plan, &P::Options::default(), plants, 0)
}

fn survives_with_witnesses<P: Protocol>() {
    let mut completed = 0;
    for seed in 1..=SEEDS {
        let report = ran::<P>(seed, Plants::default());
        assert_eq!(report.violation, None, "{} with seed {seed}", P::NAME);
        completed += report.counts.completed;
    }
    // A run that completed nothing has shown nothing (ADR 35).
    assert!(completed > SEEDS * 20, "{completed} operations");
}

#[test]
fn raft_survives_with_witnesses() {
    survives_with_witnesses::<Raft>();
}

#[test]
fn gmt2000_survives_with_witnesses() {
    survives_with_witnesses::<Gmt2000>();
}

#[test]
fn blazingmq_survives_with_witnesses() {
    survives_with_witnesses::<BlazingMq>();
}

#[test]
fn zab_survives_with_witnesses() {
    survives_with_witnesses::<Zab>();
}

#[test]
fn paxos_survives_with_witnesses() {
    survives_with_witnesses::<Paxos>();
}

/// The judge sees an empty state that reaches a member with data: this defect has a witness give its own snapshot to others.
#[test]
fn a_witness_that_gives_its_snapshot_away_is_convicted() {
    fn is_convicted<P: Protocol>() -> bool {
        let plants = Plants { defect: Some(Defect::WitnessGivesSnapshots), ..Plants::default() };
        (1..=200).any(|seed| ran::<P>(seed, plants).violation.is_some())
    }
    assert!(is_convicted::<Raft>(), "{}", Raft::NAME);
    assert!(is_convicted::<BlazingMq>(), "{}", BlazingMq::NAME);
}
