//! Goal: what clients saw of a cluster that was broken on purpose has an explanation, and nothing acknowledged is lost.
//! Method: the torturer, for half a minute and with every fault that needs no root, on real processes behind its proxies.
//! The disk's faults need root: `xtask/torture-disks.sh`. Longer runs: `docs/torture.md`.

use hustings_torture::plan::plan;
use hustings_torture::{Kind, Logs, Torture, run};
use std::time::Duration;

const SECONDS: u64 = 32;

async fn nothing_is_lost(protocol: &str, nodes: usize, seed: u64) {
    let script = plan(seed, nodes, SECONDS, Kind::WITHOUT_ROOT).expect("every kind fits");
    let torture = Torture {
        binary: env!("CARGO_BIN_EXE_hustings").into(),
        protocol: protocol.into(),
        nodes,
        length: Duration::from_secs(SECONDS),
        seed,
        clients: 6,
        keys: 8,
        script,
        ballast: 0,
        newer: None,
        logs: Logs::Remove,
    };
    let mut story = Vec::new();
    let report = run(&torture, &mut |line| story.push(line.to_string())).await;
    let story = story.join("\n");
    let report = report.unwrap_or_else(|error| panic!("the run could not be made: {error:#}\n{story}"));
    println!("{protocol}, {nodes} nodes, seed {seed}:\n{report}");
    assert!(report.violations.is_empty(), "{story}\n{report}");
    assert!(report.replayed.0 >= nodes, "hardly a life was played again: {report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_when_processes_and_links_of_a_raft_cluster_break() {
    nothing_is_lost("raft", 3, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_when_processes_and_links_of_a_gmt2000_cluster_break() {
    nothing_is_lost("gmt2000", 3, 8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_when_processes_and_links_of_a_blazingmq_cluster_break() {
    nothing_is_lost("blazingmq", 3, 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_when_processes_and_links_of_a_zab_cluster_break() {
    nothing_is_lost("zab", 3, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_when_processes_and_links_of_a_paxos_cluster_break() {
    nothing_is_lost("paxos", 3, 2).await;
}
