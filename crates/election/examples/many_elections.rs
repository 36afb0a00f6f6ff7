//! One process that stands for many elections over one session, and says now and then how many it leads.
//! `cargo xtask many-elections` starts thirty of them.
//!
//! ```sh
//! cargo run -p hustings-election --example many_elections -- hustings://127.0.0.1:2379/service-1 1000 replica-a
//! ```

use hustings_election::{Election, Named, StoreAddress};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, count, name] = arguments.as_slice() else { return Err("usage: many_elections URL COUNT NAME".into()) };
    let (store, prefix) = StoreAddress::parse(url)?;
    let prefix = prefix.ok_or("the URL names no election to begin with")?;
    let leads = Arc::new(AtomicUsize::new(0));
    for number in 0..count.parse::<usize>()? {
        let election = Election::of(store.clone(), &format!("{prefix}-{number}"))?.ttl(Duration::from_secs(10));
        let office = election.candidate(Named::new(name));
        let leads = leads.clone();
        tokio::spawn(async move {
            while let Ok(leadership) = office.campaign().await {
                leads.fetch_add(1, Ordering::Relaxed);
                leadership.lost().await;
                leads.fetch_sub(1, Ordering::Relaxed);
            }
        });
    }
    let mut told = usize::MAX;
    loop {
        let now = leads.load(Ordering::Relaxed);
        if std::mem::replace(&mut told, now) != now {
            println!("{name} leads {now}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
