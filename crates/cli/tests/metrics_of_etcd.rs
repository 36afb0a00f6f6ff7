//! Goal: etcd's dashboard and alerts see this server as they see etcd, and what they see happened.
//! Method: the names that the dashboard and the alerts of Debian's `etcd-server` use, read from three real nodes of either
//! program after the same load.

use crate::support::{etcd, http, program};
use hustings_testbed::{Cluster, Program, put, wait_for};
use std::collections::{BTreeMap, BTreeSet};

/// Out of `op-guide/grafana.json` and `op-guide/etcd3_alert.rules.yml`, but for those that no etcd 3 exports; and what
/// `etcdctl check datascale` and the alerts of 3.5 read.
const NAMES: [&str; 24] = [
    "etcd_disk_backend_commit_duration_seconds_bucket",
    "etcd_disk_wal_fsync_duration_seconds_bucket",
    "etcd_mvcc_db_total_size_in_bytes",
    "etcd_mvcc_db_total_size_in_use_in_bytes",
    "etcd_network_client_grpc_received_bytes_total",
    "etcd_network_client_grpc_sent_bytes_total",
    "etcd_network_peer_received_bytes_total",
    "etcd_network_peer_round_trip_time_seconds_bucket",
    "etcd_network_peer_sent_bytes_total",
    "etcd_network_peer_sent_failures_total",
    "etcd_server_has_leader",
    "etcd_server_heartbeat_send_failures_total",
    "etcd_server_leader_changes_seen_total",
    "etcd_server_proposals_applied_total",
    "etcd_server_proposals_committed_total",
    "etcd_server_proposals_failed_total",
    "etcd_server_proposals_pending",
    "etcd_server_quota_backend_bytes",
    "grpc_server_handled_total",
    "grpc_server_handling_seconds_bucket",
    "grpc_server_started_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
];

/// The samples of a member: name with labels, and value.
fn samples(url: &str) -> BTreeMap<String, f64> {
    let (status, text) = http(url, "GET", "/metrics", "");
    assert_eq!(status, 200, "{url}");
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_string(), value.parse().ok()?))
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect()
}

/// The names of a sample's labels.
fn labels_of(sample: &str) -> BTreeSet<&str> {
    let labels = sample.split_once('{').map_or("", |(_, labels)| labels.trim_end_matches('}'));
    labels.split(',').filter_map(|label| Some(label.split_once('=')?.0)).collect()
}

fn sum_of(samples: &BTreeMap<String, f64>, name: &str, label: &str) -> f64 {
    samples.iter().filter(|(key, _)| key.split('{').next() == Some(name) && key.contains(label)).map(|(_, at)| at).sum()
}

/// Three nodes that wrote, watched to an end, and lost one; what the leader tells once all of it can be seen.
async fn told_by_a_leader(program: Program) -> BTreeMap<String, f64> {
    let mut cluster = Cluster::start(program, 3).await.expect("three nodes start");
    let leader = cluster.leader().await.expect("one leads");
    let url = cluster.nodes[leader].client.clone();
    let client = hustings_api::Client::connect(&[&url]).await.expect("it is there");
    for number in 0..20 {
        put(&client, &format!("k{number}"), "value").await.expect("written");
    }
    let mut watch = client.watch();
    let create = hustings_api::etcdserverpb::WatchCreateRequest { key: "k1".into(), ..Default::default() };
    let request = hustings_api::etcdserverpb::WatchRequest {
        request_union: Some(hustings_api::etcdserverpb::watch_request::RequestUnion::CreateRequest(create)),
    };
    let (requests, stream) = tokio::sync::mpsc::channel(1);
    requests.send(request).await.expect("it is heard");
    let stream = tokio_stream::wrappers::ReceiverStream::new(stream);
    let mut answers = watch.watch(stream).await.expect("it is watched").into_inner();
    answers.message().await.expect("an answer").expect("it is made");
    drop((requests, answers));
    cluster.kill((leader + 1) % 3);
    let seen = wait_for("the lost peer, the watch's end and round trips are told", async || {
        let samples = samples(&url);
        let is_told = sum_of(&samples, "etcd_network_peer_sent_failures_total", "To=") > 0.0
            && sum_of(&samples, "grpc_server_handled_total", "grpc_method=\"Watch\"") > 0.0
            && sum_of(&samples, "etcd_network_peer_round_trip_time_seconds_count", "To=") > 0.0;
        is_told.then_some(samples)
    });
    seen.await.expect("all of it is counted")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_dashboard_and_alerts_read_is_there_with_etcds_labels_and_counts_what_happened() {
    let extensive = ["--metrics=extensive"];
    let theirs = told_by_a_leader(etcd().with(&extensive)).await;
    let ours = told_by_a_leader(program().with(&extensive)).await;
    let labels = |samples: &BTreeMap<String, f64>, name: &str| -> Option<BTreeSet<String>> {
        let (sample, _) = samples.iter().find(|(sample, _)| sample.split('{').next() == Some(name))?;
        Some(labels_of(sample).into_iter().map(str::to_owned).collect())
    };
    for name in NAMES {
        let theirs = labels(&theirs, name).unwrap_or_else(|| panic!("etcd does not tell {name}: the list is wrong"));
        assert_eq!(labels(&ours, name), Some(theirs), "{name}");
    }
    for name in [
        "etcd_network_peer_sent_bytes_total",
        "etcd_network_peer_received_bytes_total",
        "etcd_network_client_grpc_received_bytes_total",
        "etcd_network_client_grpc_sent_bytes_total",
        "etcd_server_quota_backend_bytes",
        "etcd_disk_wal_fsync_duration_seconds_count",
        "process_resident_memory_bytes",
    ] {
        assert!(sum_of(&ours, name, "") > 0.0, "{name} counts nothing");
    }
    let puts = "grpc_method=\"Put\"";
    assert!(sum_of(&ours, "grpc_server_handled_total", puts) >= 20.0, "every put is counted once");
    let bounds = |samples: &BTreeMap<String, f64>| -> BTreeSet<String> {
        let of_puts = |key: &&String| key.starts_with("grpc_server_handling_seconds_bucket") && key.contains(puts);
        let bound = |key: &String| key.split("le=\"").nth(1).and_then(|rest| Some(rest.split_once('"')?.0.to_owned()));
        samples.keys().filter(of_puts).filter_map(bound).collect()
    };
    assert_eq!(bounds(&ours), bounds(&theirs));
    assert_eq!(bounds(&ours).len(), 12, "{:?}", bounds(&ours));
    let timed = |method: &str| sum_of(&ours, "grpc_server_handling_seconds_count", method);
    assert_eq!(timed(puts), sum_of(&ours, "grpc_server_handled_total", puts), "every put is timed once");
    assert!(timed("grpc_method=\"Watch\"") > 0.0, "a stream is timed when it ends");
}
