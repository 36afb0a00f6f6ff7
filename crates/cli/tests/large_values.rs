//! Goal: what is larger than memory need not be in memory, and is as safe there.
//! Method: three real nodes cut a snapshot every 30 entries under values of 16 KiB, half of them written over; then each is
//! killed and started again. Every value is read on every node, before and after; and each node holds its snapshot open.

mod support;

use hustings_api::Client;
use hustings_testbed::{Cluster, Program, get, put, wait_for};

const KEYS: usize = 200;
const BYTES: usize = 16 << 10;

fn key(number: usize) -> String {
    format!("large/{number:03}")
}

/// A value that no other write has.
fn value(number: usize, round: usize) -> String {
    format!("{number}/{round} ").repeat(BYTES).chars().take(BYTES).collect()
}

/// The round in which a key was written last.
fn last_round(number: usize) -> usize {
    usize::from(number.is_multiple_of(2))
}

/// Whether a process holds a snapshot's file open.
fn holds_snapshot(pid: u32) -> bool {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs, and it is ours");
    let mut files = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    files.any(|file| file.to_string_lossy().contains(".snap"))
}

async fn read_everything(cluster: &Cluster) {
    for node in &cluster.nodes {
        let client = Client::connect(&[&node.client]).await.expect("it answers");
        for number in 0..KEYS {
            let found = wait_for("an answer", async || get(&client, &key(number)).await.ok()).await.expect("it serves");
            let (found, _) = found.expect("nothing was deleted");
            assert!(found == value(number, last_round(number)), "{} on {}", key(number), node.client);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_values_are_read_from_snapshots_and_survive_every_member() {
    let program = Program::hustings(env!("CARGO_BIN_EXE_hustings")).with(&["--snapshot-count", "30"]);
    let mut cluster = Cluster::start(program, 3).await.expect("three nodes start");
    let writer = Client::connect(&cluster.endpoints()).await.expect("somebody answers");
    for round in 0..2 {
        for number in (0..KEYS).filter(|number| round == 0 || last_round(*number) == 1) {
            wait_for("the write", async || put(&writer, &key(number), &value(number, round)).await.ok())
                .await
                .expect("all serve");
        }
    }
    read_everything(&cluster).await;
    for position in 0..cluster.nodes.len() {
        let pid = cluster.nodes[position].pid().expect("it runs");
        wait_for("a snapshot held open", async || holds_snapshot(pid).then_some(())).await.expect("it was cut");
        cluster.kill(position);
        cluster.start_node(position).expect("it starts again");
        cluster.wait_until_serving(position).await.expect("it serves");
        let pid = cluster.nodes[position].pid().expect("it runs");
        assert!(holds_snapshot(pid), "a start leaves the values where they are");
    }
    read_everything(&cluster).await;
    let hashes = cluster.hashes().await.expect("all answer");
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}
