//! Goal: whoever starts, or is given a snapshot, holds the state once and not a second time beside it (H13). Method: 60 MB in values that
//! are too small to stay in the file; the most memory that a process ever had, above that of one that holds nothing.

use crate::snapshots_of_etcd::restored;
use crate::support::{hustings, join, program, text};
use hustings_api::Client;
use hustings_api::etcdserverpb as pb;
use hustings_testbed::{Cluster, get, memory_mib, wait_for};

const KEYS: usize = 20_000;
const KEYS_TOGETHER: usize = 100;
const BYTES: usize = 3_000;
const MIB: f64 = (1 << 20) as f64;

/// The most memory that a process had resident in its life, MiB.
fn peak_mib(cluster: &Cluster, position: usize) -> f64 {
    let pid = cluster.nodes[position].pid().expect("it runs");
    memory_mib(pid, "VmHWM").expect("Linux tells it")
}

/// Writes as many keys as go together, from this one on, with values that are not like each other.
async fn write(client: &Client, first: usize) {
    let put = |number: usize| pb::RequestOp {
        request: Some(pb::request_op::Request::RequestPut(pb::PutRequest {
            key: format!("key/{number:05}").into(),
            value: format!("{number} ").repeat(BYTES).into_bytes()[..BYTES].to_vec().into(),
            ..Default::default()
        })),
    };
    let success = (first..first + KEYS_TOGETHER).map(put).collect();
    let txn = pb::TxnRequest { success, ..Default::default() };
    client.kv().txn(txn).await.expect("they are written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_and_a_snapshot_that_is_given_hold_the_state_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let saved = directory.path().join("saved");
    let filled = Cluster::start(program(), 1).await.expect("a member starts");
    let empty_mib = peak_mib(&filled, 0);
    let client = Client::connect(&filled.endpoints()).await.expect("it answers");
    for first in (0..KEYS).step_by(KEYS_TOGETHER) {
        write(&client, first).await;
    }
    hustings(&["snapshot", "save", text(&saved), "--endpoints", &filled.nodes[0].client]).ok();

    // It begins with a snapshot of everything, and with no log.
    let mut cluster = restored(&saved, 1, &[]).await;
    let started_mib = peak_mib(&cluster, 0) - empty_mib;
    let joiner = join(&mut cluster);
    cluster.wait_until_serving(joiner).await.expect("it serves");
    let newcomer = Client::connect(&[&cluster.nodes[joiner].client]).await.expect("it answers");
    let last = format!("key/{:05}", KEYS - 1);
    wait_for("the newcomer to hold all", async || get(&newcomer, &last).await.ok()?).await.expect("it is given all");
    let given_mib = peak_mib(&cluster, joiner) - empty_mib;

    let data_mib = (KEYS * BYTES) as f64 / MIB;
    for (what, above_mib) in [("a start", started_mib), ("a snapshot that is given", given_mib)] {
        println!("{what}: at most {above_mib:.1} MiB above an empty member, for {data_mib:.1} MiB of values");
        assert!(above_mib > data_mib, "{what}: {above_mib} MiB cannot hold {data_mib} MiB");
        assert!(above_mib < 1.7 * data_mib, "{what}: {above_mib} MiB for {data_mib} MiB");
    }
}
