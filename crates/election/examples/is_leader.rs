//! The cost of asking whether one leads, beside a mutex and the runtime's clock. Goal: work that acts as the leader can ask before
//! each step. Method: five rounds of each, medians; the leader holds a Lease of an API server in this process.
//!
//! `cargo run --release -p hustings-election --example is_leader`

use hustings_election::{Election, Named};
use hustings_testbed::FakeKube;
use std::hint::black_box;
use std::sync::Mutex;
use std::time::Instant;

const CALLS: u32 = 5_000_000;

/// Nanoseconds of one call, the median of five rounds.
fn nanos(mut call: impl FnMut() -> bool) -> f64 {
    let mut rounds = [0.0; 5];
    for round in &mut rounds {
        let begun = Instant::now();
        let yes = (0..CALLS).filter(|_| black_box(call())).count();
        assert_eq!(yes, CALLS as usize, "it leads all the time");
        *round = begun.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS);
    }
    rounds.sort_by(f64::total_cmp);
    rounds[2]
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = FakeKube::start()?;
    let leadership = Election::open(&server.url("billing"))?.candidate(Named::new("a")).campaign().await?;
    let (flag, begun) = (Mutex::new(true), Instant::now());
    println!("is_leader()                 {:6.1} ns", nanos(|| leadership.is_leader()));
    println!("lead().is_ok()              {:6.1} ns", nanos(|| leadership.lead().is_ok()));
    println!("a mutex that nobody wants   {:6.1} ns", nanos(|| *flag.lock().unwrap_or_else(|held| held.into_inner())));
    println!("Instant::now()              {:6.1} ns", nanos(|| Instant::now() >= begun));
    leadership.resign("measured").await;
    Ok(())
}
