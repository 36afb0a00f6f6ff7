//! Goal: one command shows who leads and how far everybody is, and says in its exit code whether anybody leads.
//! Method: three real nodes; all asked through one, then with two of them dead.

mod support;

use hustings_api::Client;
use hustings_testbed::{Cluster, put, wait_for};
use serde_json::Value;
use support::{PROTOCOLS, hustings, program};

fn status(endpoints: &str) -> (Option<i32>, Vec<Value>) {
    let ended = hustings(&["status", "-o", "json", "--endpoints", endpoints]);
    let rows = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (ended.code, rows)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_shows_every_node_as_it_is() {
    for protocol in PROTOCOLS {
        is_shown_as_it_is(protocol).await;
    }
}

async fn is_shown_as_it_is(protocol: &str) {
    let program = program().with(&["--protocol", protocol]);
    let mut cluster = Cluster::start(program, 3).await.expect("three nodes start");
    let client = Client::connect(&cluster.endpoints()).await.expect("a node answers");
    put(&client, "a", "b").await.expect("it is written");
    cluster.hashes().await.expect("all have applied the same");
    let leader = cluster.leader().await.expect("a leader");
    // One endpoint is enough once the members have said where clients reach them.
    let rows = wait_for("all members to be described", async || {
        let (code, rows) = status(&cluster.nodes[0].client);
        (code == Some(0) && rows.len() == 3).then_some(rows)
    })
    .await
    .expect("all are shown");
    for (row, node) in rows.iter().zip(&cluster.nodes) {
        let role = if node.name == cluster.nodes[leader].name { "leader" } else { "follower" };
        assert_eq!(row["name"], node.name, "{row}");
        assert_eq!(row["endpoint"], node.client, "{row}");
        assert_eq!(row["pid"].as_u64(), node.pid().map(u64::from), "{row}");
        assert_eq!(
            (&row["role"], &row["healthy"], &row["protocol"]),
            (&role.into(), &true.into(), &protocol.into()),
            "{row}"
        );
        assert_eq!(row["leader"], cluster.nodes[leader].name, "{row}");
        assert!(row["term"].as_u64() >= Some(1) && row["commit"].as_u64() >= row["applied"].as_u64(), "{row}");
        assert!(row["applied"].as_u64() >= Some(1), "{row}");
    }
    let table = hustings(&["status", "--endpoints", &cluster.nodes[0].client]).ok();
    assert!(table.contains("leader") && table.contains("follower") && table.contains("n3"), "{table}");

    let endpoints = cluster.endpoints().join(",");
    cluster.kill(leader);
    cluster.kill((leader + 1) % 3);
    let rows = wait_for("the last one to know that nobody leads", async || {
        let (code, rows) = status(&endpoints);
        (code == Some(4)).then_some(rows)
    })
    .await
    .expect("it steps down");
    assert_eq!(rows.iter().filter(|row| row["role"] == "unreachable").count(), 2, "{rows:?}");
    let last = &rows[(leader + 2) % 3];
    assert!(last["leader"].is_null() && last["role"] != "leader", "{last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_shows_who_is_primary_of_which_partition() {
    // Goal: PT-1 with processes. Method: three partitions over three nodes; the primary of one dies, and another gets it under a
    // higher lease.
    let options = ["--protocol", "blazingmq", "--protocol-options", "partitions=3,placement=least-assigned"];
    let mut cluster = Cluster::start(program().with(&options), 3).await.expect("three nodes start");
    let partitions = |at: usize, cluster: &Cluster| {
        let (_, rows) = status(&cluster.endpoints().join(","));
        rows[at]["partitions"].as_array().cloned().unwrap_or_default()
    };
    let before = wait_for("every partition to have a primary", async || {
        let rows = partitions(0, &cluster);
        (rows.len() == 3).then_some(rows)
    })
    .await
    .expect("all are assigned");
    let names: std::collections::BTreeSet<String> = before.iter().map(|row| row["primary"].to_string()).collect();
    assert_eq!(names.len(), 3, "one each: {before:?}");
    let victim = (0..3).find(|at| before[1]["primary"] == cluster.nodes[*at].name).expect("a member is primary");
    let lease = before[1]["lease"].as_u64().expect("a lease is a number");
    cluster.kill(victim);
    let after = wait_for("another primary", async || {
        let rows = partitions((victim + 1) % 3, &cluster);
        rows.get(1).filter(|row| row["primary"] != before[1]["primary"]).cloned()
    })
    .await
    .expect("it is replaced");
    assert_eq!(after["lease"].as_u64(), Some(lease + 1), "{after}");
}
