//! Goal: a user who has nothing but curl can use everything.
//! Method: plain HTTP/1.1, written by hand onto a socket, against three real nodes.

use crate::support::{PATIENCE, address, http, program};
use hustings_testbed::Cluster;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

/// Base64 of "foo", "bar" and "baz".
const FOO: &str = "Zm9v";
const BAR: &str = "YmFy";
const BAZ: &str = "YmF6";

fn post(url: &str, path: &str, body: &Value) -> (u16, Value) {
    let (status, body) = http(url, "POST", path, &body.to_string());
    let value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {status}, {error}: {body}"));
    (status, value)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_is_enough() {
    let cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let (first, second) = (&cluster.nodes[0].client, &cluster.nodes[1].client);

    let (status, answer) = post(first, "/v3/kv/put", &json!({ "key": FOO, "value": BAR }));
    assert_eq!(status, 200, "{answer}");
    let revision: i64 =
        answer["header"]["revision"].as_str().expect("64-bit integers are strings").parse().expect("a number");
    let (_, answer) = post(second, "/v3/kv/range", &json!({ "key": FOO }));
    assert_eq!((&answer["kvs"][0]["value"], &answer["count"]), (&BAR.into(), &"1".into()), "{answer}");
    let txn = json!({
        "compare": [{ "key": FOO, "target": "VALUE", "result": "EQUAL", "value": BAR }],
        "success": [{ "requestPut": { "key": FOO, "value": BAZ } }],
    });
    assert_eq!(post(first, "/v3/kv/txn", &txn).1["succeeded"], true);
    let (_, granted) = post(second, "/v3/lease/grant", &json!({ "TTL": "600" }));
    assert_eq!(granted["TTL"], "600", "{granted}");
    let (status, _) = post(first, "/v3/lease/revoke", &json!({ "ID": granted["ID"] }));
    assert_eq!(status, 200);
    let (status, refused) = post(first, "/v3/lease/revoke", &json!({ "ID": granted["ID"] }));
    assert_eq!((status, &refused["code"]), (404, &5.into()), "{refused}");
    assert_eq!(refused["message"], "etcdserver: requested lease not found");
    assert_eq!(post(first, "/v3/kv/put", &json!({ "key": 7 })).0, 400);
    assert_eq!(http(first, "POST", "/v3/kv/put", "{").0, 400);
    assert_eq!(http(first, "POST", "/v3/kv/nothing", "{}").0, 404);

    let mut stream = TcpStream::connect(address(second)).expect("it accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let body = json!({ "create_request": { "key": FOO, "start_revision": revision } }).to_string();
    write!(stream, "POST /v3/watch HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        .expect("it reads");
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("it goes on"));
    let mut next = |wanted: &str| lines.find(|line| line.contains(wanted)).unwrap_or_else(|| panic!("no {wanted}"));
    next("\"created\":true");
    let past = next("\"events\"");
    assert!(past.contains(BAR), "{past}");
    if !past.contains(BAZ) {
        next(BAZ);
    }
    post(first, "/v3/kv/deleterange", &json!({ "key": FOO }));
    next("DELETE");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_and_metrics_tell_a_node_without_a_quorum_from_a_dead_one() {
    let mut cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let url = cluster.nodes[0].client.clone();
    let (_, version) = http(&url, "GET", "/version", "");
    assert!(version.contains("\"etcdserver\":\"3.5."), "{version}");
    for path in ["/health", "/livez", "/readyz"] {
        let (status, body) = http(&url, "GET", path, "");
        assert_eq!(status, 200, "{path}: {body}");
    }
    assert!(http(&url, "GET", "/health", "").1.contains("\"health\":\"true\""));
    let (status, metrics) = http(&url, "GET", "/metrics", "");
    assert!(status == 200 && metrics.contains("etcd_server_has_leader 1"), "{metrics}");
    let turns = |metrics: &str| {
        let count = metrics.lines().find_map(|line| line.strip_prefix("hustings_loop_turn_seconds_count "));
        count.expect("turns are told").parse::<u64>().expect("a number")
    };
    let before = turns(&metrics);
    post(&url, "/v3/kv/put", &json!({ "key": FOO, "value": FOO }));
    for name in ["waited", "long_turns", "long_turns_ran"] {
        assert!(metrics.contains(&format!("\nhustings_loop_{name}_seconds_total ")), "{name}: {metrics}");
    }
    let bounds = r#"hustings_loop_turn_seconds_bucket{le="0.05"}"#;
    assert!(metrics.lines().any(|line| line.starts_with(bounds)), "{metrics}");
    assert!(turns(&http(&url, "GET", "/metrics", "").1) > before, "the loop goes on, and its turns are counted");

    let (status, leader) = http(&url, "GET", "/v1/leader", "");
    let leader: Value = serde_json::from_str(&leader).expect("it is JSON");
    let position = cluster.leader().await.expect("a leader");
    assert_eq!((status, &leader["leader"]), (200, &cluster.nodes[position].name.clone().into()), "{leader}");
    let token = leader["fencing_token"].as_u64().expect("a number");
    cluster.kill(position);
    let survivor = (position + 1) % 3;
    let url = cluster.nodes[survivor].client.clone();
    cluster.wait_until_serving(survivor).await.expect("two of three serve");
    let (_, next) = http(&url, "GET", "/v1/leader", "");
    let next: Value = serde_json::from_str(&next).expect("it is JSON");
    assert!(next["fencing_token"].as_u64() > Some(token), "{next} after {token}");

    cluster.kill((position + 2) % 3);
    hustings_testbed::wait_for("the last one to miss its quorum", async || {
        (http(&url, "GET", "/health", "").0 == 503).then_some(())
    })
    .await
    .expect("it is not healthy");
    assert_eq!(http(&url, "GET", "/readyz", "").0, 503);
    assert_eq!(http(&url, "GET", "/livez", "").0, 200, "it lives, and a restart would not help");
}
