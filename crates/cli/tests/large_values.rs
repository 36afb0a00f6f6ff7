//! Goal: what is larger than memory need not be in memory, and is as safe there.
//! Method: three real nodes cut a snapshot every 30 entries under values of 16 KiB, half of them written over; then each is
//! killed and started again. Every value is read on every node, before and after; and each node holds its snapshot open.

use hustings_api::Client;
use hustings_api::etcdserverpb::watch_request::RequestUnion;
use hustings_api::etcdserverpb::{DeleteRangeRequest, WatchCreateRequest, WatchRequest};
use hustings_testbed::{Cluster, PATIENCE, Program, get, put, wait_for};

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

/// Goal: who watches large values being written over sees each with what was there before, in order, although that is on file by
/// then; and so does who deletes them. Method: a watch of all keys with `prev_kv`, on each of three nodes, beside snapshots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_there_before_is_told_from_the_file() {
    const FEW: usize = 60;
    let program = Program::hustings(env!("CARGO_BIN_EXE_hustings")).with(&["--snapshot-count", "20"]);
    let cluster = Cluster::start(program, 3).await.expect("three nodes start");
    let writer = Client::connect(&cluster.endpoints()).await.expect("somebody answers");
    let mut revision = 0;
    for number in 0..FEW {
        revision = put(&writer, &key(number), &value(number, 0)).await.expect("all serve");
    }
    let watchers: Vec<_> = cluster.nodes.iter().map(|node| tokio::spawn(follow(node.client.clone(), FEW))).collect();
    for node in &cluster.nodes {
        let pid = node.pid().expect("it runs");
        wait_for("a snapshot held open", async || holds_snapshot(pid).then_some(())).await.expect("it was cut");
    }
    for number in 0..FEW {
        assert_eq!(
            put(&writer, &key(number), &value(number, 1)).await.expect("all serve"),
            revision + 1 + number as i64
        );
    }
    for watcher in watchers {
        let seen = tokio::time::timeout(PATIENCE, watcher).await.expect("it ends").expect("no panic");
        for (number, (before, after)) in seen.into_iter().enumerate() {
            assert!(before == value(number, 0) && after == value(number, 1), "{}", key(number));
        }
    }
    let all = DeleteRangeRequest { key: "large/".into(), range_end: "large0".into(), prev_kv: true };
    let deleted = writer.kv().delete_range(all).await.expect("it is done").into_inner();
    assert_eq!((deleted.deleted, deleted.prev_kvs.len()), (FEW as i64, FEW));
    for (number, kv) in deleted.prev_kvs.into_iter().enumerate() {
        assert!(kv.value == value(number, 1), "{}", key(number));
    }
}

/// Follows all keys from the first write on; gives of each that is written over what it was and what it is.
async fn follow(endpoint: String, count: usize) -> Vec<(String, String)> {
    let client = Client::connect(&[&endpoint]).await.expect("it answers");
    let create = WatchCreateRequest {
        key: "large/".into(),
        range_end: "large0".into(),
        start_revision: 1,
        prev_kv: true,
        ..WatchCreateRequest::default()
    };
    let (requests, queue) = tokio::sync::mpsc::channel(1);
    let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    requests.send(create).await.expect("the stream begins below");
    let mut answers = client
        .watch()
        .watch(tokio_stream::wrappers::ReceiverStream::new(queue))
        .await
        .expect("it watches")
        .into_inner();
    let (mut seen, mut last) = (Vec::new(), 0);
    while seen.len() < count {
        let answer = answers.message().await.expect("it goes on").expect("nobody ends it");
        assert!(!answer.canceled, "{answer:?}");
        for event in answer.events {
            let kv = event.kv.expect("an event is of a key");
            assert!(kv.mod_revision > last, "in order, and none twice");
            last = kv.mod_revision;
            if let Some(before) = event.prev_kv {
                let text = |bytes: bytes::Bytes| String::from_utf8_lossy(&bytes).into_owned();
                seen.push((text(before.value), text(kv.value)));
            }
        }
    }
    seen
}
