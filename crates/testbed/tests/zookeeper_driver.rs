//! Goal: what `measure compare` says of ZooKeeper was really done by a ZooKeeper.
//! Method: a real server alone; each load once, for a second; the server's own report of its nodes and transactions is compared with
//! what the driver says that was answered.

use hustings_testbed::Zookeeper;
use serde_json::Value;
use std::process::Command;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The server's report of itself: the number of its last transaction, and that of its nodes.
async fn told(zookeeper: &Zookeeper) -> (u64, u64) {
    let mut stream = tokio::net::TcpStream::connect(zookeeper.host(0)).await.expect("it listens");
    stream.write_all(b"srvr").await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it answers");
    let field = |name: &str| {
        let value = answer.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}{answer}"));
        value.trim_start_matches("0x").to_owned()
    };
    let transaction = u64::from_str_radix(&field("Zxid: "), 16).expect("a number in hex");
    (transaction, field("Node count: ").parse().expect("a number"))
}

fn driven(verb: &str, hosts: &str) -> Value {
    let line = ["drive-zookeeper", verb, "--hosts", hosts, "--clients", "40", "--seconds", "1"];
    let ended = Command::new(env!("CARGO_BIN_EXE_measure")).args(line).output().expect("it runs");
    assert!(ended.status.success(), "{ended:?}");
    serde_json::from_slice(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_driver_of_zookeeper_asks_what_it_says() {
    let zookeeper = Zookeeper::start_to_be_measured(1).await.expect("it starts");
    let report = driven("put", &zookeeper.hosts());
    let answered = report["answered"].as_u64().unwrap_or(0);
    let (after_puts, nodes) = told(&zookeeper).await;
    assert!(answered > 0 && report["errors"] == 0, "{report}");
    assert_eq!(report["connections"], 2, "{report}");
    assert!(nodes > 10_000, "every key is there: {nodes}");
    // 10,001 nodes were created, and warming up put as well.
    assert!(after_puts - 10_001 >= answered, "{after_puts} transactions: {report}");
    for verb in ["get", "local-get"] {
        let report = driven(verb, &zookeeper.hosts());
        assert!(report["answered"].as_u64() > Some(0) && report["errors"] == 0, "{verb}: {report}");
        assert!(report["p50_ms"].as_f64() > Some(0.0) && report["p50_ms"].as_f64() <= report["max_ms"].as_f64());
    }
    let (after_gets, _) = told(&zookeeper).await;
    // Keys that are there already are refused as transactions of their own; a put would make thousands more of them.
    assert!(after_gets - after_puts < 2 * 10_001 + 100, "reads write nothing: {after_puts}, then {after_gets}");
}
