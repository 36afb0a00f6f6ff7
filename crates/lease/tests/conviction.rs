//! Goal: the judge convicts every planted defect, and finds nothing in what has none. Method: the same runs as in
//! `tenures.rs`, seeds from 0 on, no seed chosen by hand; the table says on which profile, in which run and why.

mod support;

use hustings_lease::store::Renewal;
use hustings_lease::{Defect, Profile};
use std::time::Duration;
use support::{Faults, Names, Setup, World, concerns};

/// A defect that more runs than these do not find is not found.
const MOST: u64 = 4_000;

struct Conviction {
    runs: u64,
    profile: &'static str,
    property: &'static str,
    what: String,
}

/// The first run that convicts; seeds go round these profiles.
fn convict(profiles: &[Profile], setup: Setup) -> Option<Conviction> {
    for run in 0..MOST {
        let profile = profiles[run as usize % profiles.len()];
        let seed = run / profiles.len() as u64;
        if let Err((violation, _)) = World::run(Setup { profile, seed, ..setup }) {
            let (property, what) = (violation.property, violation.what);
            return Some(Conviction { runs: run + 1, profile: profile.name, property, what });
        }
    }
    None
}

fn setup(faults: Faults) -> Setup {
    Setup {
        profile: Profile::HUSTINGS,
        faults,
        defect: None,
        taken_for: None,
        hosts: 3,
        names: Names::OfLives,
        seed: 0,
        is_told: false,
    }
}

#[test]
fn every_planted_defect_is_convicted() {
    println!("{:<24} {:>5}  {:<11} {:<18} what", "defect", "runs", "profile", "property");
    let mut free = Vec::new();
    for defect in Defect::ALL {
        let concerned: Vec<Profile> = Profile::ALL.into_iter().filter(|profile| concerns(defect, profile)).collect();
        // The note of a winner that never acted matters when it is hurried.
        let faults = if defect == Defect::ClearsWithoutHavingLed { Faults::Hasty } else { Faults::Assumed };
        match convict(&concerned, Setup { defect: Some(defect), ..setup(faults) }) {
            Some(Conviction { runs, profile, property, what }) => {
                println!("{:<24} {runs:>5}  {profile:<11} {property:<18} {what}", defect.name());
            }
            None => free.push(defect.name()),
        }
    }
    assert!(free.is_empty(), "not convicted in {MOST} runs: {free:?}");
}

#[test]
fn what_is_beyond_what_is_assumed_is_convicted_too() {
    for faults in [Faults::WildClocks, Faults::Deposed] {
        let found = convict(&Profile::ALL, setup(faults)).unwrap_or_else(|| panic!("{faults:?} was not convicted"));
        println!("{faults:?} is convicted after {} runs on {}: {}", found.runs, found.profile, found.what);
        assert_eq!(found.property, "one-believer", "{faults:?}");
    }
}

#[test]
fn a_store_that_is_taken_for_a_better_one_is_convicted() {
    let relayed = Profile::ZOOKEEPER;
    let too_much = [
        ("its renewals count at once", Profile { renewal: Renewal::Committed, ..relayed }),
        ("its leases never end early", Profile { hold_off: Duration::ZERO, ..relayed }),
    ];
    for (promise, taken_for) in too_much {
        let setup = Setup { taken_for: Some(taken_for), ..setup(Faults::Assumed) };
        let found = convict(&[relayed], setup).unwrap_or_else(|| panic!("not convicted: {promise}"));
        println!("\"{promise}\" is convicted after {} runs: {}: {}", found.runs, found.property, found.what);
    }
}
