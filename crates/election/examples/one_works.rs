//! A service with several replicas of which one works. Start it three times, each with a name of its own, and kill the one
//! that works:
//!
//! ```sh
//! cargo run -p hustings-election --example one_works -- hustings://127.0.0.1:2379,127.0.0.1:2381,127.0.0.1:2383/billing a
//! ```
//!
//! The store may be another one: `etcd://HOST:2379/billing`, `zookeeper://HOST:2181/billing`, `consul://HOST:8500/billing`,
//! `postgres://USER@HOST/DATABASE/billing` or `kubernetes:///NAMESPACE/billing`.

use hustings_election::{Election, Lead, Named};
use std::error::Error;
use std::time::Duration;

/// Work that only the leader does: it cannot be called without the proof.
async fn work(lead: Lead<'_>) {
    loop {
        // Every write carries `lead.token()`, and is refused by its resource below a token seen there before.
        println!("working with {lead}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Waits until this process is told to end: at a terminal by Ctrl-C, by systemd and Kubernetes with SIGTERM.
async fn told_to_end() -> std::io::Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        interrupted = tokio::signal::ctrl_c() => interrupted,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(name)) = (arguments.next(), arguments.next()) else {
        return Err("usage: one_works URL NAME".into());
    };
    let election = Election::open(&url)?;
    let office = election.candidate(Named::new(&name));
    loop {
        println!("{name} stands for election");
        tokio::select! {
            leadership = office.campaign() => {
                let leadership = leadership?;
                tokio::select! {
                    // Dropped when all must have ended; the election is released after that, never before.
                    ended = leadership.run(work) => println!("{name} leads no more: {ended:?}"),
                    told = told_to_end() => {
                        told?;
                        // Without it a successor would wait until the lease ends.
                        leadership.resign("told to end").await;
                        election.close().await;
                        return Ok(());
                    }
                }
            }
            told = told_to_end() => {
                told?;
                election.close().await;
                return Ok(());
            }
        }
    }
}
