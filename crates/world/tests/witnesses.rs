//! Goal: with witnesses among the members, every property holds under every protocol (ADR 40). Method: seeds as everywhere, with one
//! witness of three members and two of five, and all worlds of two members with data and a witness within small bounds;
//! `hustings simulate --witnesses N` and `hustings check --witnesses N` go further.

use crate::suite::{Searched, happens, holds};
use hustings_blazingmq::BlazingMq;
use hustings_core::Protocol;
use hustings_core::laboratory::Defect;
use hustings_gmt2000::Gmt2000;
use hustings_kv::KvStore;
use hustings_paxos::Paxos;
use hustings_raft::Raft;
use hustings_world::Plants;
use hustings_world::every::{Bounds, Found, explore};
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

under_each_protocol! { it_survives_with_witnesses: survives_with_witnesses; }

/// The judge sees an empty state that reaches a member with data: this defect has a witness give its own snapshot to others.
#[test]
fn a_witness_that_gives_its_snapshot_away_is_convicted() {
    fn is_convicted<P: Protocol>() -> bool {
        let plants = Plants { defect: Some(Defect::WitnessGivesSnapshots), ..Plants::default() };
        (1..=1_000).any(|seed| ran::<P>(seed, plants).violation.is_some())
    }
    assert!(is_convicted::<Raft>(), "{}", Raft::NAME);
    assert!(is_convicted::<BlazingMq>(), "{}", BlazingMq::NAME);
}

/// Every world of two members with data and a witness, with a crash; and from one in 500 of them a member with data serves in the end.
fn holds_in_every_world<P: Searched>(bounds: Bounds, options: &P::Options) -> Found {
    let found = holds::<P>(&Bounds { witnesses: 1, crashes: 1, fair_every: 500, ..bounds }, options);
    happens(&found, "an entry is committed");
    assert!(found.eventually > 1_000, "{found:?}");
    found
}

#[test]
fn raft_holds_in_every_world_with_a_witness() {
    let bounds = Bounds { terms: 2, proposals: 1, timers: 1, ..Bounds::default() };
    let found = holds_in_every_world::<Raft>(bounds, &hustings_raft::Options { pre_vote: false, ..Default::default() });
    happens(&found, "a witness leads");
}

#[test]
fn gmt2000_holds_in_every_world_with_a_witness() {
    let bounds = Bounds { terms: 1, timers: 1, ..Bounds::default() };
    holds_in_every_world::<Gmt2000>(bounds, &Default::default());
}

#[test]
fn blazingmq_holds_in_every_world_with_a_witness() {
    let bounds = Bounds { terms: 1, proposals: 1, timers: 1, ..Bounds::default() };
    let options = hustings_blazingmq::Options { scouting: false, ..Default::default() };
    holds_in_every_world::<BlazingMq>(bounds, &options);
}

#[test]
fn zab_holds_in_every_world_with_a_witness() {
    // No timer fires: what news of links starts is enough for a second leader.
    let bounds = Bounds { terms: 3, proposals: 1, fires: 0, ..Bounds::default() };
    let found = holds_in_every_world::<Zab>(bounds, &Default::default());
    happens(&found, "a witness leads");
}

#[test]
fn paxos_holds_in_every_world_with_a_witness() {
    let bounds = Bounds { terms: 1, proposals: 1, timers: 1, fires: 2, ..Bounds::default() };
    let options = hustings_paxos::Options { low_ball: false, ..Default::default() };
    holds_in_every_world::<Paxos>(bounds, &options);
}

/// The order in which threads look states up must not change what they find: on a session a message was put before an earlier one.
#[test]
fn one_thread_and_three_see_the_same_worlds() {
    let bounds = Bounds { terms: 2, proposals: 1, crashes: 1, fires: 0, witnesses: 1, ..Bounds::default() };
    let seen = |threads| {
        let found = explore::<Zab>(&bounds, &Default::default(), threads, |_| true);
        (found.states, found.transitions, found.depth)
    };
    assert_eq!(seen(1), seen(3));
}
