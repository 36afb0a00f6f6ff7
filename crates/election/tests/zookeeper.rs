//! Goal: an election at ZooKeeper has one leader at most, tokens grow, and nobody waits for longer than it must.
//! Method: the real server, alone or three of them, with a tick of 0.2 s; what everybody must pass, and what only this store does.
#![cfg(feature = "zookeeper")]

mod stories;

use hustings_testbed::Zookeeper;
use std::time::Duration;
use stories::{an_operator_is_heard, everybody_has_its_turn, one_leads_after_the_other};

const TICK: Duration = Duration::from_millis(200);
const TTL: Duration = Duration::from_secs(3);
const WORDS: &str = "4lw.commands.whitelist=*";

async fn alone() -> Zookeeper {
    Zookeeper::start(1, TICK, WORDS).await.expect("it starts")
}

fn url(zookeeper: &Zookeeper, name: &str) -> String {
    format!("zookeeper://{}/{name}", zookeeper.hosts())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stories_of_every_store() {
    let zookeeper = alone().await;
    one_leads_after_the_other(&url(&zookeeper, "team/billing"), TTL).await;
    everybody_has_its_turn(&url(&zookeeper, "turns"), TTL, 4).await;
    an_operator_is_heard(&url(&zookeeper, "heard"), TTL).await;
}
