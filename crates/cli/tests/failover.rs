//! Goal: service goes on when the leader leaves politely, when it falls silent, and nobody reads the past meanwhile.
//! Method: three real processes; SIGTERM, SIGSTOP and SIGCONT to the leader; our own client and watch.

mod support;

use hustings_api::Client;
use hustings_testbed::{Cluster, get, put, wait_for};
use std::process::Command;
use std::time::Duration;
use support::{HUSTINGS, PROTOCOLS, Running, program};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_told_to_stop_hands_over_first() {
    for protocol in PROTOCOLS {
        hands_over_before_it_stops(protocol).await;
    }
}

async fn hands_over_before_it_stops(protocol: &str) {
    let program = program().with(&["--protocol", protocol]);
    let mut cluster = Cluster::start(program, 3).await.expect("three nodes start");
    let leader = cluster.leader().await.expect("a leader");
    let other = (leader + 1) % 3;
    let client = Client::connect(&[&cluster.nodes[other].client]).await.expect("it answers");
    put(&client, "before", "1").await.expect("it is written");
    cluster.terminate(leader).expect("it ends");
    put(&client, "after", "2").await.expect("the very next write succeeds");
    let next = cluster.leader().await.expect("a leader");
    assert_ne!(next, leader, "{protocol}");
    let log = std::fs::read_to_string(&cluster.nodes[next].log).expect("it has a log");
    // A leader of ZAB sends everybody into an election at once, with its heir as the vote (`best_successor` in zab/src/leading.rs).
    let because = if protocol == "zab" { "leads no more" } else { "hands over" };
    assert!(log.contains(because), "{protocol}: the election was a hand-over: {log}");
    cluster.start_node(leader).expect("it starts");
    cluster.wait_until_serving(leader).await.expect("it serves");
    assert_eq!(cluster.hashes().await.expect("all answer").len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_wakes_after_its_reign_serves_nothing_stale() {
    for protocol in PROTOCOLS {
        serves_nothing_stale_when_it_wakes(protocol).await;
    }
}

async fn serves_nothing_stale_when_it_wakes(protocol: &str) {
    let cluster = Cluster::start(program().with(&["--protocol", protocol]), 3).await.expect("three nodes start");
    let leader = cluster.leader().await.expect("a leader");
    let sleeper = Client::connect(&[&cluster.nodes[leader].client]).await.expect("it answers");
    put(&sleeper, "key", "old").await.expect("it is written");
    cluster.nodes[leader].pause().expect("it falls asleep");
    let survivors: Vec<String> =
        cluster.nodes.iter().enumerate().filter(|(at, _)| *at != leader).map(|(_, node)| node.client.clone()).collect();
    wait_for("the others to elect and to write", async || {
        let client = Client::connect(&survivors).await.ok()?;
        let writing = tokio::time::timeout(Duration::from_secs(1), put(&client, "key", "new")).await;
        writing.ok()?.ok()
    })
    .await
    .expect("two of three serve");
    // Begun after the new value was acknowledged, asked of the one that sleeps, answered when it wakes. (A read begun before
    // might rightly see the old value.)
    let asleep = tokio::spawn(async move {
        let found = tokio::time::timeout(Duration::from_secs(20), get(&sleeper, "key")).await;
        (sleeper, found)
    });
    cluster.nodes[leader].resume().expect("it wakes");
    let (sleeper, found) = asleep.await.expect("it does not panic");
    if let Ok(Ok(found)) = found {
        assert_eq!(found.map(|(value, _)| value), Some("new".into()), "a stale linearizable read under {protocol}");
    }
    cluster.wait_until_serving(leader).await.expect("it follows");
    let found = get(&sleeper, "key").await.expect("a read").map(|(value, _)| value);
    assert_eq!(found, Some("new".into()));
    assert_ne!(cluster.leader().await.expect("a leader"), leader, "who slept follows under {protocol}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_elsewhere_without_a_gap_or_a_repetition() {
    let mut cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let leader = cluster.leader().await.expect("a leader");
    let mut order = cluster.endpoints();
    order.rotate_left(leader);
    let watch = ["watch", "--prefix", "watched/", "-o", "json", "--endpoints", &order.join(",")];
    let mut watch = Running::start(Command::new(HUSTINGS).args(watch).args(["--rev", "1"]));
    let client = Client::connect(&[&order[1]]).await.expect("it answers");
    for number in 0..20 {
        put(&client, &format!("watched/{number:02}"), "x").await.expect("it is written");
    }
    watch.line_with("watched/19");
    cluster.kill(leader);
    for number in 20..40 {
        let key = format!("watched/{number}");
        wait_for("the write", async || put(&client, &key, "x").await.ok()).await.expect("two of three serve");
    }
    watch.line_with("watched/39");
    let keys = watch.seen.iter().map(|line| {
        let event: serde_json::Value = serde_json::from_str(line).expect("it is JSON");
        (
            event["kv"]["mod_revision"].as_i64().expect("a number"),
            event["kv"]["key"].as_str().expect("text").to_string(),
        )
    });
    let keys: Vec<(i64, String)> = keys.collect();
    assert!(keys.windows(2).all(|pair| pair[0].0 < pair[1].0), "each revision once, in order: {keys:?}");
    let distinct: std::collections::BTreeSet<&str> = keys.iter().map(|(_, key)| key.as_str()).collect();
    assert_eq!(distinct.len(), 40, "none is missing");
}
