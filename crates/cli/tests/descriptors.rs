//! Goal: a member whose clients hold all that may be open goes on cutting snapshots, writing its log and serving.
//! Method: one real node with a low limit of open files and more clients than that; a limit that falls below what is open.

use crate::support::HUSTINGS;
use hustings_api::Client;
use hustings_testbed::{Cluster, Program, put, wait_for};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A node whose shell set this limit before it started it.
async fn start(limit: &str) -> (Cluster, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let script = directory.path().join("limited");
    std::fs::write(&script, format!("#!/bin/sh\nulimit {limit}\nexec {HUSTINGS} \"$@\"\n")).expect("written");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).expect("its owner may");
    let program = Program::hustings(script).with(&["--snapshot-count", "20"]);
    (Cluster::start(program, 1).await.expect("a node starts"), directory)
}

/// The newest snapshot by name; names grow with what is covered.
fn newest_snapshot(data_dir: &Path) -> Option<String> {
    let names = std::fs::read_dir(data_dir).expect("it lives there").map(|entry| entry.expect("readable").file_name());
    names.filter_map(|name| name.into_string().ok()).filter(|name| name.ends_with(".snap")).max()
}

/// Writes until a snapshot is cut that was not there before.
async fn write_until_a_snapshot_is_cut(client: &Client, cluster: &mut Cluster) {
    let before = newest_snapshot(&cluster.nodes[0].data_dir);
    wait_for("a snapshot", async || {
        put(client, "key", "value").await.ok();
        assert_eq!(cluster.has_ended(0).expect("an own child"), None, "it ended");
        newest_snapshot(&cluster.nodes[0].data_dir).filter(|newest| Some(newest) != before.as_ref())
    })
    .await
    .expect("one is cut");
}

#[tokio::test]
async fn clients_leave_a_node_what_it_needs() {
    let (mut cluster, _directory) = start("-n 128").await;
    let client = Client::connect(&cluster.endpoints()).await.expect("it serves");
    put(&client, "key", "value").await.expect("it is written");
    let address = crate::support::address(&cluster.nodes[0].client).to_string();
    let idle: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(&address).expect("the backlog takes it")).collect();
    write_until_a_snapshot_is_cut(&client, &mut cluster).await;
    write_until_a_snapshot_is_cut(&client, &mut cluster).await;
    drop(idle);
    Client::connect(&cluster.endpoints()).await.expect("who waited is served");
}

#[tokio::test]
async fn a_node_may_open_what_its_system_allows() {
    let (cluster, _directory) = start("-S -n 64").await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", cluster.nodes[0].pid().expect("it runs")));
    let limits = limits.expect("an own child can be looked at");
    let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("Linux says it");
    let mut words = files.split_whitespace().skip(3);
    assert_eq!(words.next(), words.next(), "{files}");
}

#[tokio::test]
async fn a_node_that_can_open_nothing_writes_on_and_recovers() {
    let (mut cluster, _directory) = start("-n 512").await;
    let client = Client::connect(&cluster.endpoints()).await.expect("it serves");
    put(&client, "key", "value").await.expect("it is written");
    let pid = cluster.nodes[0].pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).expect("it runs");
    let before = prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(3), maximum: Some(512) });
    let before = before.expect("an own child's limit can be set");
    // Three snapshots are due meanwhile.
    for number in 0..60 {
        put(&client, &format!("key/{number}"), "value").await.expect("what is open already suffices to write");
    }
    prlimit(Some(pid), Resource::Nofile, before).expect("as it was");
    write_until_a_snapshot_is_cut(&client, &mut cluster).await;
    Client::connect(&cluster.endpoints()).await.expect("new clients are served");
}
