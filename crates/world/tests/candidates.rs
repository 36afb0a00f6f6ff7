//! Goal: candidates for an election keep their promises over the members' own store, whatever happens to members and candidates,
//! and the judge convicts candidates that do not. Method: seeds, under each protocol; then defects planted in the candidates,
//! those that show where pauses of seconds meet elections of seconds. All fourteen fall in `hustings-lease`'s own world.

use hustings_core::{Limits, Protocol};
use hustings_kv::KvStore;
use hustings_lease::Defect;
use hustings_properties::Violation;
use hustings_raft::Raft;
use hustings_world::Plants;
use hustings_world::seed::{Plan, Report, run};

const SAFETY: u64 = 40_000_000;

/// A run with three candidates, and with rivals as the seed draws them.
fn played<P: Protocol>(seed: u64, plants: Plants) -> Report {
    let mut plan = Plan::draw(seed, 3, SAFETY);
    plan.settings.load.candidates = 3;
    plan.settings.limits = Limits { trailing_entries: plan.settings.limits.trailing_entries, ..Limits::default() };
    run::<P, KvStore>(&plan, &P::Options::default(), plants, 0)
}

/// Number of seeds; more by `CANDIDATE_SEEDS`.
fn seeds() -> u64 {
    std::env::var("CANDIDATE_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(20)
}

fn hold<P: Protocol>() {
    let (name, mut tenures) = (P::NAME, 0);
    for seed in 1..=seeds() {
        let report = played::<P>(seed, Plants::default());
        assert_eq!(report.violation, None, "{name}, seed {seed}");
        tenures += report.counts.tenures;
    }
    println!("{name}: {} runs, {tenures} tenures", seeds());
    assert!(tenures > seeds(), "somebody leads, and another one after it");
}

under_each_protocol! { candidates_keep_their_promises: hold; }

#[test]
fn candidates_with_defects_are_convicted() {
    for (defect, property) in [
        (Defect::IgnoresTheRateError, "one-believer"),
        (Defect::ReleasesEarly, "one-believer"),
        (Defect::RenewsUnhealthy, "dead-work-leads"),
    ] {
        let plants = Plants { candidate: Some(defect), ..Plants::default() };
        let falls = |(_, violation): (u64, Violation)| violation.property == property;
        let convicts = |seed: &u64| played::<Raft>(*seed, plants).violation.is_some_and(falls);
        let seed = (1..=400).find(convicts);
        println!("{}: {property} falls at seed {seed:?}", defect.name());
        assert!(seed.is_some(), "nobody convicts {}", defect.name());
    }
}
