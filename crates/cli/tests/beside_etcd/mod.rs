//! Goal: whatever is asked, the store answers as etcd does. Method: requests as chance makes them, to a real node and to the real etcd
//! 3.5.1, one after the other; every answer and every event is compared. More of them, from other seeds:
//!
//! `HUSTINGS_BESIDE_ROUNDS=200 HUSTINGS_BESIDE_SEED=1000 cargo test -p hustings --test stories beside_etcd:: -- --nocapture`

mod requests;
mod sides;

use crate::support::{etcd, program};
use requests::{Asked, Drawing};
use sides::Side;

/// Requests of a round.
const REQUESTS: usize = 150;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|why| panic!("{name}={text}: {why}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_asked_is_answered_as_etcd_answers() {
    let first = number("HUSTINGS_BESIDE_SEED", 1);
    let mut counts = Counts::default();
    let mut wrong = Vec::new();
    for seed in first..first + number("HUSTINGS_BESIDE_ROUNDS", 6) {
        wrong.extend(round(seed, &mut counts).await.err());
    }
    let Counts { answers, refusals, watches } = counts;
    println!("{answers} answers, {refusals} refusals among them, and {watches} watches are the same");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(refusals > answers / 50 && watches > 0, "{answers} answers, {refusals} refusals, {watches} watches");
}

/// Counts of equal answers.
#[derive(Default)]
struct Counts {
    answers: usize,
    refusals: usize,
    watches: usize,
}

/// Asks both servers the same, and says where they differ first.
async fn round(seed: u64, counts: &mut Counts) -> Result<(), String> {
    let (mut ours, mut theirs) = (Side::start(program()).await, Side::start(etcd()).await);
    let mut drawing = Drawing::new(seed);
    let mut said = Vec::new();
    for step in 0..REQUESTS {
        let asked = drawing.asked();
        // Whether a compaction overtakes a watch that still catches up is chance.
        if matches!(asked, Asked::Compact(_)) || step + 1 == REQUESTS {
            counts.watches += watched(seed, &mut ours, &mut theirs, &mut drawing).await?;
        }
        let (our, their) = (ours.ask(&asked).await, theirs.ask(&asked).await);
        said.push(format!("  {step}: {asked:?}"));
        if our != their {
            let before = said[said.len().saturating_sub(12)..].join("\n");
            return Err(format!("seed {seed}:\n{before}\n  ours:   {}\n  etcd's: {}", our.text, their.text));
        }
        counts.answers += 1;
        counts.refusals += usize::from(our.revision == 0 && !matches!(asked, Asked::Watch(_)));
        if our.revision > 0 {
            drawing.revision = our.revision;
            match &asked {
                Asked::Grant(grant) => drawing.leases.push(grant.id),
                Asked::Revoke(revoke) => drawing.leases.retain(|lease| *lease != revoke.id),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Closes all watches of both, and compares what they were told.
async fn watched(seed: u64, ours: &mut Side, theirs: &mut Side, drawing: &mut Drawing) -> Result<usize, String> {
    let (our, their) = (ours.close_watches().await, theirs.close_watches().await);
    for (our, their) in our.iter().zip(&their) {
        if our != their {
            return Err(format!("seed {seed}, a watch:\n  ours: {}\n  etcd's: {}", our.text, their.text));
        }
        drawing.revision = drawing.revision.max(our.revision);
    }
    Ok(our.len())
}
