//! Goal: no acknowledged write is ever lost, whichever node dies at whatever moment, and no revision is used twice. Method:
//! three real processes under load; `kill -9` of a node chosen by a counter, again and again; then every acknowledged write
//! is read back, key by key, and all nodes' hashes are compared. `HUSTINGS_KILLS=100` makes it long.

use hustings_api::Client;
use hustings_testbed::{Cluster, Program, get, put, wait_for};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const WRITERS: usize = 4;

struct Acknowledged {
    value: u64,
    revision: i64,
}

/// Writes after which a writer goes on to the next node: else all would gather, in time, at one that is never killed.
const STAY: u64 = 40;

/// Writes its own keys, one after the other, at a node that answers; remembers what was acknowledged.
async fn writer(
    number: usize,
    endpoints: Vec<String>,
    stop: Arc<AtomicBool>,
    progress: Arc<AtomicU64>,
) -> (BTreeMap<String, Acknowledged>, u64) {
    let mut acknowledged = BTreeMap::new();
    let (mut value, mut failures, mut position) = (0, 0, number);
    let mut client = None;
    while !stop.load(Ordering::Relaxed) {
        value += 1;
        let Some(connected) = &client else {
            position += 1;
            client = Client::connect(&[&endpoints[position % endpoints.len()]]).await.ok();
            continue;
        };
        let key = format!("writer/{number}/{}", value % 50);
        let text = value.to_string();
        let writing = tokio::time::timeout(std::time::Duration::from_secs(10), put(connected, &key, &text));
        match writing.await {
            Ok(Ok(revision)) => {
                progress.fetch_add(1, Ordering::Relaxed);
                acknowledged.insert(key, Acknowledged { value, revision });
                if value % STAY == 0 {
                    client = None;
                }
            }
            _ => {
                // Perhaps done: what is read later may be this value or the one before.
                failures += 1;
                client = None;
            }
        }
    }
    (acknowledged, failures)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_is_lost_whoever_dies() {
    let protocol = std::env::var("HUSTINGS_PROTOCOL").unwrap_or_else(|_| "raft".into());
    kill_and_check(&protocol, 8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_is_lost_under_gmt2000() {
    kill_and_check("gmt2000", 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_is_lost_under_blazingmq() {
    kill_and_check("blazingmq", 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_is_lost_under_zab() {
    kill_and_check("zab", 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_is_lost_under_paxos() {
    kill_and_check("paxos", 4).await;
}

/// Makes as many kills as `HUSTINGS_KILLS` says, else `kills`, and checks what is left.
async fn kill_and_check(protocol: &str, kills: usize) {
    let kills: usize = std::env::var("HUSTINGS_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(kills);
    let program =
        Program::hustings(env!("CARGO_BIN_EXE_hustings")).with(&["--protocol", protocol, "--snapshot-count", "2000"]);
    let mut cluster = Cluster::start(program, 3).await.expect("three nodes start");
    let (stop, progress) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| tokio::spawn(writer(number, cluster.endpoints(), stop.clone(), progress.clone())))
        .collect();
    let mut leaders_killed = 0;
    for round in 0..kills {
        let before = progress.load(Ordering::Relaxed);
        wait_for("writes to go on", async || (progress.load(Ordering::Relaxed) > before + 200).then_some(()))
            .await
            .expect("service goes on between kills");
        let leader = cluster.leader().await.expect("a leader");
        let victim = if round % 2 == 0 { leader } else { (leader + round) % 3 };
        leaders_killed += usize::from(victim == leader);
        cluster.kill(victim);
        let before = progress.load(Ordering::Relaxed);
        wait_for("two of three to serve", async || (progress.load(Ordering::Relaxed) > before + 50).then_some(()))
            .await
            .expect("service goes on without one node");
        cluster.start_node(victim).expect("it starts again");
        cluster.wait_until_serving(victim).await.expect("it comes back");
    }
    stop.store(true, Ordering::Relaxed);
    let (mut checked, mut failures) = (0, 0);
    let client = Client::connect(&cluster.endpoints()).await.expect("a node answers");
    let mut revisions = BTreeMap::new();
    for writer in writers {
        let (acknowledged, failed) = writer.await.expect("a writer does not panic");
        failures += failed;
        for (key, Acknowledged { value, revision }) in acknowledged {
            let (found, found_revision) =
                get(&client, &key).await.expect("a read").expect("an acknowledged key is there");
            let found: u64 = found.parse().expect("a number was written");
            assert!(
                found >= value && found_revision >= revision,
                "{key}: acknowledged {value} at {revision}, found {found} at {found_revision}"
            );
            if let Some(other) = revisions.insert(revision, key.clone()) {
                panic!("revision {revision} was given to {other} and to {key}");
            }
            checked += 1;
        }
    }
    let hashes = cluster.hashes().await.expect("all nodes answer");
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "the nodes differ: {hashes:?}");
    assert_eq!(hashes.len(), 3);
    let writes = progress.load(Ordering::Relaxed);
    println!(
        "{protocol}: injected {kills} kills ({leaders_killed} of the leader); {writes} writes acknowledged, {failures} without an answer, {checked} keys read back; revision {}",
        hashes[0].1
    );
    assert!(
        kills == 0 || (leaders_killed > 0 && writes > 0 && checked > 0),
        "nothing was injected or nothing was written"
    );
}
