//! Goal: nodes and directories of different protocols never meet, and a user that mixes them reads both names. Method: every
//! ordered pair of protocols: a directory written under one and opened under the other, a cluster in which each node runs
//! another protocol, a cluster with one node that does, and a newcomer that does.

use crate::support::{Ended, HUSTINGS, PROTOCOLS, hustings, program, run, wait_for_line};
use hustings_api::Client;
use hustings_api::etcdserverpb::MemberAddRequest;
use hustings_testbed::{Cluster, free_port, get, put};
use std::path::Path;
use std::process::Command;

/// `serve` of one member alone, under this protocol, on ports that are free.
fn serve(data: &Path, protocol: &str) -> Ended {
    let url = || format!("http://127.0.0.1:{}", free_port().expect("a port is free"));
    let mut command = Command::new(HUSTINGS);
    command.args(["serve", "--log-format", "json", "--name", "n1", "--protocol", protocol, "--data-dir"]).arg(data);
    run(command.args(["--listen-client-urls", &url(), "--listen-peer-urls", &url()]))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_of_one_protocol_is_refused_by_every_other_and_left_alone() {
    for written_under in PROTOCOLS {
        let mut cluster =
            Cluster::start(program().with(&["--protocol", written_under]), 1).await.expect("a node starts");
        let client = Client::connect(&cluster.endpoints()).await.expect("it answers");
        put(&client, "written", written_under).await.expect("it is written");
        cluster.terminate(0).expect("it ends");
        for opened_under in PROTOCOLS.into_iter().filter(|other| *other != written_under) {
            let refused = serve(&cluster.nodes[0].data_dir, opened_under);
            assert_eq!(refused.code, Some(1), "{refused:?}");
            for words in [
                format!("belongs to protocol {written_under}"),
                format!("configured for protocol {opened_under}"),
                cluster.nodes[0].data_dir.display().to_string(),
            ] {
                assert!(refused.stderr.contains(&words), "no {words:?} in {refused:?}");
            }
        }
        cluster.start_node(0).expect("it starts");
        cluster.wait_until_serving(0).await.expect("nothing was lost by asking");
        let client = Client::connect(&cluster.endpoints()).await.expect("it answers");
        let found = get(&client, "written").await.expect("a read").map(|(value, _)| value);
        assert_eq!(found.as_deref(), Some(written_under));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_nodes_of_five_protocols_refuse_each_other_and_elect_nobody() {
    let mut cluster = Cluster::prepare(program(), 5).expect("ports are free");
    for (position, protocol) in PROTOCOLS.iter().enumerate() {
        cluster.start_node_with(position, &["--protocol", protocol]).expect("it starts");
    }
    for (position, mine) in PROTOCOLS.iter().enumerate() {
        for theirs in PROTOCOLS.iter().filter(|theirs| *theirs != mine) {
            // Each dials the other, so each is told.
            let heard = format!("this cluster runs `{theirs}` and n{} was started with `{mine}`", position + 1);
            wait_for_line(&cluster.nodes[position].log, &heard).await;
        }
    }
    let status = hustings(&["status", "--endpoints", &cluster.endpoints().join(",")]);
    assert_eq!(status.code, Some(4), "nobody leads: {status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_of_another_protocol_is_told_so_and_the_others_serve() {
    for (position, protocol) in PROTOCOLS.iter().enumerate() {
        let other = PROTOCOLS[(position + 1) % PROTOCOLS.len()];
        let mut cluster = Cluster::prepare(program(), 3).expect("ports are free");
        for node in 0..2 {
            cluster.start_node_with(node, &["--protocol", protocol]).expect("it starts");
        }
        cluster.start_node_with(2, &["--protocol", other]).expect("it starts");
        let told = format!("this cluster runs `{protocol}` and n3 was started with `{other}`");
        wait_for_line(&cluster.nodes[2].log, &told).await;
        cluster.wait_until_serving(0).await.expect("two of three serve");
        let client = Client::connect(&[&cluster.nodes[0].client]).await.expect("it answers");
        put(&client, "among", "ourselves").await.expect("two of three serve");
        cluster.kill(2);
        std::fs::remove_dir_all(&cluster.nodes[2].data_dir).expect("it can be removed");

        // A newcomer asks before it has a directory, and is refused before it gets one.
        let joiner = cluster.start_joiner().expect("a port is free");
        let peer_urls = vec![cluster.nodes[joiner].peer.clone()];
        let add = MemberAddRequest { peer_urls, is_learner: true };
        client.cluster().member_add(add).await.expect("it is added");
        cluster.join_with(joiner, &["--protocol", other]).expect("it starts");
        assert_eq!(cluster.wait_for_end(joiner).expect("it ends"), Some(1));
        let said = std::fs::read_to_string(&cluster.nodes[joiner].log).expect("it has a log");
        let told = format!("this cluster runs `{protocol}` and n4 was started with `{other}`");
        assert!(said.contains(&told), "{said}");
        assert!(!cluster.nodes[joiner].data_dir.join("meta").exists(), "it made itself a directory");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quorums_of_ones_own_are_for_the_life_of_a_cluster() {
    // Goal: two accepts of five meet four promises and not three, also those that were given before a restart. Method: a directory
    // written with quorums 4/2 is opened without, and a cluster in which one of two runs with them.
    let own = ["--protocol", "paxos", "--protocol-options", "quorums=4/2"];
    let mut cluster = Cluster::start(program().with(&own), 1).await.expect("a node starts");
    cluster.terminate(0).expect("it ends");
    let refused = serve(&cluster.nodes[0].data_dir, "paxos");
    for words in ["belongs to protocol paxos quorums=4/2", "configured for protocol paxos"] {
        assert!(refused.stderr.contains(words), "no {words:?} in {refused:?}");
    }
    let mut pair = Cluster::prepare(program(), 2).expect("ports are free");
    pair.start_node_with(0, &own).expect("it starts");
    pair.start_node_with(1, &["--protocol", "paxos", "--protocol-options", "quorums=majority"]).expect("it starts");
    wait_for_line(&pair.nodes[1].log, "this cluster runs `paxos quorums=4/2` and n2 was started with `paxos`").await;
}
