//! Goal: two members with data and a witness serve like three members, and nobody takes the witness for one that has data. Method: real
//! processes under every protocol; members are killed, disks deleted, and what was acknowledged is read again.

use crate::support::{HUSTINGS, PROTOCOLS, Running, hustings, program};
use hustings_api::Client;
use hustings_testbed::{Cluster, get, put, wait_for};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const KEYS: usize = 20;

/// Two members with data, n1 and n2, and the witness n3 as a voter.
async fn two_and_a_witness(protocol: &str) -> Cluster {
    let mut cluster = Cluster::start(program().with(&["--protocol", protocol]), 2).await.expect("two nodes start");
    let witness = cluster.start_joiner().expect("ports are free");
    let (peer, endpoint) = (cluster.nodes[witness].peer.clone(), cluster.nodes[0].client.clone());
    let token = added(&peer, &endpoint).expect("somebody leads");
    cluster.join_with(witness, &["--join-token", &token]).expect("it starts");
    until_it_votes(&endpoint).await;
    cluster
}

/// Adds the witness, and gives the token with which it is to begin; `None` while nobody leads.
fn added(peer: &str, endpoint: &str) -> Option<String> {
    let arguments = ["member", "add", "n3", "--witness", "--peer-urls", peer, "--endpoints", endpoint, "-o", "json"];
    let shown: Value = serde_json::from_str(&hustings(&arguments).stdout).ok()?;
    shown["added"]["join_token"].as_str().map(str::to_owned)
}

async fn until_it_votes(endpoint: &str) {
    wait_for("the witness to vote", async || {
        let listed = hustings(&["member", "list", "-o", "json", "--endpoints", endpoint]);
        let listed: Value = serde_json::from_str(&listed.stdout).ok()?;
        let is_voter =
            |member: &Value| member["name"] == "n3" && member["is_witness"] == true && member["is_learner"] == false;
        listed["members"].as_array()?.iter().any(is_voter).then_some(())
    })
    .await
    .expect("it is promoted");
}

async fn write_all(client: &Client, prefix: &str) {
    for number in 0..KEYS {
        let key = format!("{prefix}/{number}");
        // Its leader may be gone: nothing is acknowledged until another one leads.
        wait_for("a write to be acknowledged", async || put(client, &key, "kept").await.ok())
            .await
            .expect("somebody leads");
    }
}

async fn read_all(client: &Client, prefix: &str) {
    for number in 0..KEYS {
        let key = format!("{prefix}/{number}");
        let found =
            wait_for("a read to be served", async || get(client, &key).await.ok()).await.expect("somebody leads");
        assert!(found.is_some_and(|(value, _)| value == "kept"), "{key} was acknowledged and is gone");
    }
}

async fn client_of(cluster: &Cluster, positions: &[usize]) -> Client {
    let endpoints: Vec<String> = positions.iter().map(|at| cluster.nodes[*at].client.clone()).collect();
    wait_for("a node to answer", async || Client::connect(&endpoints).await.ok()).await.expect("a node answers")
}

/// Two members with data, both killed, and a witness that runs and alone has what the second to die had acknowledged last. Gives the
/// positions of that one and of the other.
async fn what_the_witness_alone_has(protocol: &str) -> (Cluster, usize, usize) {
    let mut cluster = two_and_a_witness(protocol).await;
    let leader = cluster.leader().await.expect("somebody leads");
    assert!(leader < 2, "{protocol}: a witness does not lead");
    let other = 1 - leader;
    let client = client_of(&cluster, &[leader]).await;
    write_all(&client, "both").await;
    cluster.kill(other);
    write_all(&client, "beside the witness").await;
    cluster.kill(leader);
    (cluster, leader, other)
}

async fn nothing_is_lost_with_either_member_that_holds_data(protocol: &str) {
    let (mut cluster, _, other) = what_the_witness_alone_has(protocol).await;
    cluster.start_node(other).expect("it starts");
    let client = client_of(&cluster, &[other]).await;
    read_all(&client, "both").await;
    read_all(&client, "beside the witness").await;
    write_all(&client, "afterwards").await;
    assert_eq!(cluster.leader().await.expect("somebody leads"), other, "{protocol}");
    if protocol == "raft" {
        // There the witness has led meanwhile, and nobody is told that a preferred member came.
        let running = [2, other].map(|at| cluster.nodes[at].client.clone()).join(",");
        let told = hustings(&["why", "-o", "json", "--endpoints", &running]).ok();
        let told: Value = serde_json::from_str(&told).expect("it is JSON");
        assert_eq!((&told["before"]["leader"], &told["causes"][0]), (&"n3".into(), &"caretaker".into()), "{told:#}");
        let said = hustings(&["why", "--endpoints", &running]).ok();
        assert!(said.contains("it is a witness, which leads as a caretaker"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_with_either_member_that_holds_data_under_every_protocol() {
    for protocol in PROTOCOLS {
        nothing_is_lost_with_either_member_that_holds_data(protocol).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_witness_serves_no_client_and_says_so() {
    let mut cluster = two_and_a_witness("raft").await;
    let (witness, endpoints) = (cluster.nodes[2].client.clone(), cluster.endpoints().join(","));
    let file = cluster.directory().join("state.snap");
    for refused in [
        &["put", "key", "value"][..],
        &["get", "key", "--serializable"],
        &["compact", "1"],
        &["member", "list"],
        &["snapshot", "save", file.to_str().expect("paths here are text")],
    ] {
        let ended = hustings(&[refused, &["--endpoints", &witness]].concat());
        assert_ne!(ended.code, Some(0), "{refused:?}: {ended:?}");
        assert!(ended.stderr.contains("this member is a witness"), "{refused:?}: {ended:?}");
    }
    // A client that observes an election there hears what is wrong.
    let store = format!("hustings://{}", witness.trim_start_matches("http://"));
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" 2>&1", HUSTINGS, "observe", "billing", "--store", &store]);
    let told = Running::start(&mut command).line_with("the election cannot be observed for now");
    assert!(told.contains("this member is a witness"), "{told}");
    // A client that knows the others, too, is served; and the witness says how it is.
    hustings(&["put", "key", "value", "--endpoints", &endpoints]).ok();
    let status: Value =
        serde_json::from_str(&hustings(&["status", "-o", "json", "--endpoints", &endpoints]).ok()).expect("JSON");
    let roles: Vec<&str> =
        status["members"].as_array().expect("a list").iter().filter_map(|it| it["role"].as_str()).collect();
    assert!(roles.contains(&"witness") && status["healthy"] == true, "{status}");
    // A member with data must not go while the witness would be half of what is left.
    let refused = hustings(&["member", "remove", "n1", "--endpoints", &endpoints]).failed();
    assert!(refused.contains("fewer than half") && refused.contains("remove the witness"), "{refused}");
    // It is the same after a restart.
    cluster.terminate(2).expect("it ends");
    cluster.start_node(2).expect("it starts");
    wait_for("the witness to refuse again", async || {
        let ended = hustings(&["get", "key", "--endpoints", &witness]);
        ended.stderr.contains("this member is a witness").then_some(())
    })
    .await
    .expect("it is a witness still");
}

/// Goal: a witness is never sent the state, not even before its log says that it is one. Method: the log before it joined is gone, so
/// what is offered to it is a snapshot of before; then it is removed, and its directory is given to `recover`.
async fn a_witness_joins_behind_a_snapshot_and_is_nobody_s_heir(protocol: &str) {
    let arguments = ["--protocol", protocol, "--snapshot-count", "20"];
    let mut cluster = Cluster::start(program().with(&arguments), 2).await.expect("two nodes start");
    let client = client_of(&cluster, &[0, 1]).await;
    write_all(&client, "secret").await;
    write_all(&client, "secret").await;
    // What is kept behind a snapshot for slow members is gone with the processes.
    for position in 0..2 {
        cluster.terminate(position).expect("it ends");
    }
    for position in 0..2 {
        cluster.start_node(position).expect("it starts");
    }
    let witness = cluster.start_joiner().expect("ports are free");
    let (peer, endpoint) = (cluster.nodes[witness].peer.clone(), cluster.nodes[0].client.clone());
    let token = wait_for("the witness to be added", async || added(&peer, &endpoint)).await.expect("somebody leads");
    cluster.join_with(witness, &["--join-token", &token]).expect("it starts");
    until_it_votes(&endpoint).await;
    let directory = cluster.nodes[witness].data_dir.clone();
    assert!(has_snapshot(&directory), "{protocol}: the log before it joined was gone");
    assert!(!holds(&directory.join("."), b"secret/1", "snap"), "{protocol}: it was sent the state");
    hustings(&["member", "remove", "n3", "--endpoints", &endpoint]).ok();
    cluster.wait_for_end(witness).expect("it ends by itself");
    for position in 0..2 {
        cluster.kill(position);
    }
    let path = |at: usize| cluster.nodes[at].data_dir.to_str().expect("paths here are text").to_owned();
    let alone = hustings(&["recover", &path(2), "--lost", "n1,n2"]).failed();
    assert!(alone.contains("votes and holds no data"), "{protocol}: {alone}");
    let said = hustings(&["recover", &path(2), &path(0), &path(1), "-o", "json"]);
    let shown: Value =
        serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{protocol}: {error}: {said:?}"));
    assert_eq!(shown["recovery"]["keys"], KEYS, "{protocol}: {shown}");
}

fn has_snapshot(directory: &Path) -> bool {
    let names = std::fs::read_dir(directory).expect("it is there").flatten().map(|entry| entry.file_name());
    names.into_iter().any(|name| name.to_string_lossy().ends_with(".snap"))
}

/// Whether a file whose name ends so holds these bytes.
fn holds(directory: &Path, wanted: &[u8], ending: &str) -> bool {
    let files = std::fs::read_dir(directory).expect("it is there").flatten();
    let ends = files.filter(|entry| entry.file_name().to_string_lossy().ends_with(ending));
    ends.map(|entry| std::fs::read(entry.path()).expect("it is readable"))
        .any(|bytes| bytes.windows(wanted.len()).any(|window| window == wanted))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_witness_joins_behind_a_snapshot_and_is_nobody_s_heir_under_every_protocol() {
    for protocol in PROTOCOLS {
        a_witness_joins_behind_a_snapshot_and_is_nobody_s_heir(protocol).await;
    }
}

async fn what_a_witness_holds_is_recovered(protocol: &str) {
    let (mut cluster, leader, other) = what_the_witness_alone_has(protocol).await;
    cluster.kill(2);
    std::fs::remove_dir_all(&cluster.nodes[leader].data_dir).expect("its disk is gone");
    let path = |at: usize| cluster.nodes[at].data_dir.to_str().expect("paths here are text").to_owned();
    let alone = hustings(&["recover", &path(2)]).failed();
    assert!(alone.contains("votes and holds no data"), "{protocol}: {alone}");
    let new = cluster.directory().join("recovered");
    let new = new.to_str().expect("paths here are text");
    let lost = cluster.nodes[leader].name.clone();
    let arguments = ["recover", &path(other), &path(2), "--lost", &lost, "--into", new];
    // They are a quorum, and would go on by themselves: the one that has all of it leads as a caretaker until the other has it.
    let refused = hustings(&arguments).failed();
    assert!(refused.contains("a quorum is here"), "{protocol}: {refused}");
    hustings(&[&arguments[..], &["--even-with-quorum"]].concat()).ok();
    let mut alone = Cluster::prepare(program().with(&["--protocol", protocol]), 1).expect("ports are free");
    alone.nodes[0].name = cluster.nodes[other].name.clone();
    alone.nodes[0].data_dir = new.into();
    alone.start_node(0).expect("it starts");
    alone.wait_until_serving(0).await.expect("it serves");
    let client = client_of(&alone, &[0]).await;
    read_all(&client, "both").await;
    read_all(&client, "beside the witness").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_a_witness_holds_is_recovered_under_every_protocol() {
    for protocol in PROTOCOLS {
        what_a_witness_holds_is_recovered(protocol).await;
    }
}
