//! The JSON gateway and plain HTTP, as curl would speak to them.

// Helpers of tests fail as tests do.

use crate::probes::guarded;
use crate::support::{Behaviour, Served, grant};
use hustings_api::etcdserverpb::PutRequest;
use hustings_server::ServerOptions;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// One request on a connection of its own; status and body.
pub async fn speak(served: &Served, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(&served.address).await.unwrap();
    let length = body.len();
    let request =
        format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    (head[9..12].parse().unwrap(), body.to_owned())
}

/// Waits until this line is in the metrics.
async fn metrics_tell(served: &Served, line: &str) {
    let heard = async { while !speak(served, "GET", "/metrics", "").await.1.lines().any(|told| told == line) {} };
    assert!(tokio::time::timeout(Duration::from_secs(30), heard).await.is_ok(), "never told: {line}");
}

pub async fn post(served: &Served, path: &str, body: Value) -> (u16, Value) {
    let (status, body) = speak(served, "POST", path, &body.to_string()).await;
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

/// Goal: the store through JSON, with etcd's shapes: base64, integers as strings, defaults left out.
#[tokio::test]
async fn the_store_speaks_json() {
    let served = Served::start().await;
    let (status, put) = post(&served, "/v3/kv/put", json!({ "key": "YQ==", "value": "MQ==" })).await;
    let header = json!({ "cluster_id": "193", "member_id": "1", "revision": "2", "raft_term": "7" });
    assert_eq!((status, put), (200, json!({ "header": header })));
    let (_, range) = post(&served, "/v3beta/kv/range", json!({ "key": "YQ==" })).await;
    let kv = json!({ "key": "YQ==", "create_revision": "2", "mod_revision": "2", "version": "1", "value": "MQ==" });
    assert_eq!(range, json!({ "header": header, "kvs": [kv], "count": "1" }));
    let txn = json!({
        "compare": [{ "key": "YQ==", "target": "VERSION", "result": "EQUAL", "version": "1" }],
        "success": [{ "requestDeleteRange": { "key": "YQ==" } }],
    });
    let (_, txn) = post(&served, "/v3/kv/txn", txn).await;
    assert_eq!((&txn["succeeded"], &txn["header"]["revision"]), (&json!(true), &json!("3")));
    assert_eq!(txn["responses"][0]["response_delete_range"]["deleted"], "1");
    assert_eq!(post(&served, "/v3/kv/deleterange", json!({ "key": "YQ==" })).await.0, 200);
    assert_eq!(post(&served, "/v3/kv/compaction", json!({ "revision": "3" })).await.0, 200);
}

/// Goal: a client says how long its call may take, in grpc-gateway's header. Method: nobody takes a proposal; times that are over, that
/// are none, and one in which a read is answered.
#[tokio::test]
async fn a_call_ends_in_the_time_that_its_client_gives_it() {
    let served = Served::start().await;
    served.double.be(Behaviour::Hesitant);
    let body = r#"{"key":"YQ==","value":"MQ=="}"#;
    for (path, told, status) in [
        ("kv/put", "50m", 504),
        ("kv/put", "1n", 504),
        ("kv/put", "1", 400),
        ("kv/put", "xx", 400),
        ("kv/put", "", 400),
        ("kv/range", "1H", 200),
    ] {
        let length = body.len();
        let request = format!(
            "POST /v3/{path} HTTP/1.1\r\nhost: x\r\ngrpc-timeout: {told}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        let mut stream = TcpStream::connect(&served.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer[9..12], status.to_string(), "{told:?}: {answer}");
        assert!(status != 504 || answer.contains("context deadline exceeded"), "{answer}");
    }
}

/// Goal: that time ends streams, too. Method: a watch of which nothing is heard.
#[tokio::test]
async fn a_stream_ends_in_the_time_that_its_client_gives_it() {
    let served = Served::start().await;
    let body = r#"{"create_request":{"key":"YQ=="}}"#;
    let length = body.len();
    let head = "POST /v3/watch HTTP/1.1\r\nhost: x\r\ngrpc-timeout: 2S\r\nconnection: close";
    let request = format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}");
    let mut stream = TcpStream::connect(&served.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (created, ended) = (r#""created":true"#, r#""grpc_code":4,"http_code":504,"http_status":"Gateway Timeout""#);
    assert!(answer.contains(created) && answer.contains(ended), "{answer}");
}

/// Goal: a stream of requests goes on for as long as its client likes, and costs no more than one of them. Method: renewals which together
/// are larger than any one request may be.
#[tokio::test]
async fn many_small_messages_are_no_large_one() {
    let served = Served::start_with(ServerOptions { max_request_bytes: 1 << 10, ..ServerOptions::default() }).await;
    grant(&served, 0x41).await;
    let (mut reading, mut writing) = TcpStream::connect(&served.address).await.unwrap().into_split();
    let head =
        "POST /v3/lease/keepalive HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    writing.write_all(head.as_bytes()).await.unwrap();
    let message = format!("{{\"ID\":\"65\"}}{}", " ".repeat(900));
    let chunk = format!("{:x}\r\n{message}\r\n", message.len());
    let writes = tokio::spawn(async move {
        for _ in 0..1_000 {
            writing.write_all(chunk.as_bytes()).await.unwrap();
        }
        writing.write_all(b"0\r\n\r\n").await.unwrap();
        writing
    });
    let mut answer = String::new();
    reading.read_to_string(&mut answer).await.unwrap();
    drop(writes.await.unwrap());
    assert_eq!(answer.matches(r#""TTL":"60""#).count(), 1_000, "{}", &answer[answer.len().saturating_sub(400)..]);
}

/// Goal: a call whose answer is a stream is refused in the form of one, as by grpc-gateway; what cannot be read is not. Method: nobody asks
/// where users count; a body that ends too early.
#[tokio::test]
async fn a_stream_is_refused_in_the_form_of_one() {
    let text = "etcdserver: user name is empty";
    let of_stream = json!({ "error": {
        "grpc_code": 3, "http_code": 400, "message": text, "http_status": "Bad Request",
    } });
    let served = guarded().await;
    for path in ["maintenance/snapshot", "watch", "lease/keepalive", "election/observe"] {
        assert_eq!(post(&served, &format!("/v3/{path}"), json!({})).await, (400, of_stream.clone()), "{path}");
    }
    let plain = json!({ "error": text, "code": 3, "message": text });
    assert_eq!(post(&served, "/v3/maintenance/status", json!({})).await, (400, plain));
    let served = Served::start().await;
    for path in ["maintenance/snapshot", "election/observe"] {
        let (status, said) = speak(&served, "POST", &format!("/v3/{path}"), "{\"na").await;
        assert!(status == 400 && said.starts_with("{\"error\":\"") && said.contains("\"code\":3"), "{path}: {said}");
    }
}

/// Goal: errors have etcd's body and status.
#[tokio::test]
async fn errors_are_etcds_in_json() {
    let served = Served::start().await;
    let (status, error) = post(&served, "/v3/kv/put", json!({})).await;
    let text = "etcdserver: key is not provided";
    assert_eq!((status, error), (400, json!({ "error": text, "code": 3, "message": text })));
    let (status, error) = post(&served, "/v3/lease/revoke", json!({ "ID": "7" })).await;
    assert_eq!((status, &error["error"]), (404, &json!("etcdserver: requested lease not found")));
    served.double.be(Behaviour::Refusing(None));
    assert_eq!(post(&served, "/v3/kv/put", json!({ "key": "YQ==" })).await.0, 429);
    served.double.declare(|status| status.leader = None);
    assert_eq!(post(&served, "/v3/nowhere", json!({})).await.0, 404);
    assert_eq!(speak(&served, "GET", "/v3/kv/put", "").await.0, 405);
    assert_eq!(speak(&served, "POST", "/v3/kv/put", "{\"key\":").await.0, 400);
}

/// Goal: every path of etcd's gateway leads to its service.
#[tokio::test]
async fn every_path_leads_somewhere() {
    let served = Served::start().await;
    for path in ["grant", "revoke", "timetolive", "leases"] {
        assert!(matches!(post(&served, &format!("/v3/lease/{path}"), json!({})).await.0, 200 | 404), "{path}");
    }
    for path in ["kv/lease/revoke", "kv/lease/timetolive", "kv/lease/leases", "maintenance/status", "maintenance/alarm"]
    {
        let (_, body) = post(&served, &format!("/v3/{path}"), json!({ "ID": 1 })).await;
        assert!(body.is_object(), "{path}: {body}");
    }
    for path in ["add", "remove", "update", "list", "promote"] {
        assert!(post(&served, &format!("/v3/cluster/member/{path}"), json!({})).await.1.is_object(), "{path}");
    }
    for path in ["hash", "hashkv", "defragment", "transfer-leadership", "downgrade"] {
        assert!(post(&served, &format!("/v3/maintenance/{path}"), json!({})).await.1.is_object(), "{path}");
    }
    let (_, status) = post(&served, "/v3/maintenance/status", json!({})).await;
    assert_eq!((&status["version"], &status["leader"]), (&json!("3.5.21"), &json!("1")));
    let (status, leader) = post(&served, "/v3/election/campaign", json!({ "name": "YQ==", "value": "MQ==" })).await;
    assert!(status == 200 && leader["leader"]["rev"] == "2", "{leader}");
    assert_eq!(post(&served, "/v3/election/leader", json!({ "name": "YQ==" })).await.1["kv"]["value"], "MQ==");
    let proclaim = json!({ "leader": leader["leader"], "value": "Mg==" });
    assert_eq!(post(&served, "/v3/election/proclaim", proclaim).await.0, 200);
    assert_eq!(post(&served, "/v3/election/resign", json!({ "leader": leader["leader"] })).await.0, 200);
    let (_, lock) = post(&served, "/v3/lock/lock", json!({ "name": "bG9jaw==" })).await;
    assert_eq!(post(&served, "/v3/lock/unlock", json!({ "key": lock["key"] })).await.0, 200);
}

/// Goal: streams are lines; a watch may be asked for more while it runs.
#[tokio::test]
async fn streams_are_lines() {
    let served = Served::start().await;
    let mut stream = TcpStream::connect(&served.address).await.unwrap();
    stream.write_all(b"POST /v3/watch HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
    let say = |key: &str| {
        let message = json!({ "create_request": { "key": key } }).to_string();
        format!("{:x}\r\n{message}\r\n", message.len())
    };
    stream.write_all(say("YQ==").as_bytes()).await.unwrap();
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    let mut next = async || loop {
        let line = lines.next_line().await.unwrap().expect("the stream goes on");
        if line.starts_with("{\"result\"") {
            return serde_json::from_str::<Value>(&line).unwrap()["result"].clone();
        }
    };
    assert_eq!(next().await["created"], true);
    write.write_all(say("Yg==").as_bytes()).await.unwrap();
    let second = next().await;
    assert_eq!((&second["created"], &second["watch_id"]), (&json!(true), &json!("1")));
    let put = PutRequest { key: "b".into(), ..PutRequest::default() };
    served.client().await.kv().put(put).await.unwrap();
    let told = next().await;
    assert_eq!((&told["watch_id"], &told["events"][0]["kv"]["key"]), (&json!("1"), &json!("Yg==")));

    let (_, granted) = post(&served, "/v3/lease/grant", json!({ "TTL": 9 })).await;
    let (status, kept) = post(&served, "/v3/lease/keepalive", json!({ "ID": granted["ID"] })).await;
    let kept = kept.as_str().map(str::to_owned).unwrap_or(kept.to_string());
    assert!(status == 200 && kept.contains("\"TTL\":\"9\""), "{kept}");
}

/// Goal: version, health and who leads, in the shapes that probes and clients read.
#[tokio::test]
async fn plain_http_tells_how_it_stands() {
    let served = Served::start().await;
    let get = async |path| speak(&served, "GET", path, "").await;
    let (status, version) = get("/version").await;
    let expected = json!({ "etcdserver": "3.5.21", "etcdcluster": "3.5.0" });
    assert_eq!((status, serde_json::from_str::<Value>(&version).unwrap()), (200, expected));
    assert_eq!(get("/health").await, (200, r#"{"health":"true","reason":""}"#.to_owned()));
    assert_eq!(get("/livez").await, (200, "ok\n".to_owned()));
    let verbose = "[+]data_corruption ok\n[+]serializable_read ok\n[+]linearizable_read ok\nok\n";
    assert_eq!(get("/readyz?verbose").await, (200, verbose.to_owned()));
    let leader: Value = serde_json::from_str(&get("/v1/leader").await.1).unwrap();
    let expected = json!({
        "term": 7, "leader": "n1", "leader_id": 1, "fencing_token": 7, "lsn": "7:0", "is_self": true, "is_confirmed": true,
    });
    assert_eq!(leader, expected);
    served.double.declare(|status| status.leader = Some(hustings_core::NodeId(2)));
    let heard: Value = serde_json::from_str(&get("/v1/leader").await.1).unwrap();
    assert_eq!((&heard["is_self"], &heard["is_confirmed"]), (&json!(false), &json!(false)));
    served.double.declare(|status| status.leader = Some(hustings_core::NodeId(1)));
    assert_eq!(get("/nothing").await.0, 404);
    assert_eq!(speak(&served, "DELETE", "/health", "").await.0, 405);

    served.double.declare(|status| status.leader = None);
    assert_eq!(get("/health").await, (503, r#"{"health":"false","reason":"RAFT NO LEADER"}"#.to_owned()));
    assert_eq!(get("/health?serializable=true").await.0, 200);
    assert_eq!(get("/livez").await.0, 200, "no quorum is no reason to be killed");
    assert_eq!(get("/v1/leader").await.0, 503);
}

/// Goal: metrics under our names and etcd's, counting what happened.
#[tokio::test]
async fn metrics_have_our_names_and_etcds() {
    let served = Served::start().await;
    let mut kv = served.client().await.kv();
    kv.put(PutRequest { key: "a".into(), ..PutRequest::default() }).await.unwrap();
    kv.put(PutRequest::default()).await.unwrap_err();
    served.metrics.on_fsync(Duration::from_millis(3));
    let (status, text) = speak(&served, "GET", "/metrics", "").await;
    assert_eq!(status, 200);
    let put = r#"grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary""#;
    for line in [
        "etcd_server_has_leader 1",
        "etcd_server_is_leader 1",
        "etcd_server_proposals_applied_total 1",
        "etcd_server_proposals_pending 0",
        r#"etcd_disk_wal_fsync_duration_seconds_bucket{le="0.004"} 1"#,
        "hustings_term 7",
        "hustings_wal_fsync_duration_seconds_count 1",
        &format!("grpc_server_started_total{{{put}}} 2"),
        &format!(r#"grpc_server_handled_total{{grpc_code="OK",{put}}} 1"#),
        &format!(r#"grpc_server_handled_total{{grpc_code="InvalidArgument",{put}}} 1"#),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in:\n{text}");
    }
}

/// Goal: a call that its client gives up is counted, and timed, as at etcd. Method: nobody decides on a put; once it has begun its client
/// drops it.
#[tokio::test]
async fn a_call_that_is_given_up_is_counted_as_canceled() {
    let options = ServerOptions { has_histograms_of_calls: true, ..ServerOptions::default() };
    let served = Served::start_with(options).await;
    let mut kv = served.client().await.kv();
    served.double.be(Behaviour::Silent);
    let told = async |line: &str| metrics_tell(&served, line).await;
    let of = r#"grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary""#;
    let begun = format!("grpc_server_started_total{{{of}}} 1");
    let story = async {
        tokio::select! {
            outcome = kv.put(PutRequest { key: "a".into(), ..PutRequest::default() }) => panic!("{outcome:?}"),
            () = told(&begun) => {}
        }
        told(&format!(r#"grpc_server_handled_total{{grpc_code="Canceled",{of}}} 1"#)).await;
        told(&format!("grpc_server_handling_seconds_count{{{of}}} 1")).await;
    };
    tokio::time::timeout(Duration::from_secs(30), story).await.expect("it is told");
}

/// Goal: what an operator must be woken for is in the metrics: the same member that is elected anew, each alarm, a disk that hangs, a
/// log without room to grow. Method: a member that goes through all of it.
#[tokio::test]
async fn what_an_operator_is_woken_for_is_told_in_metrics() {
    let served = Served::start().await;
    let told = async |line: &str| metrics_tell(&served, line).await;
    told("hustings_leader_changes_total 1").await;
    for changes in 2..=4 {
        served.double.declare(|status| (status.leader, status.term) = (None, status.term.next()));
        served.double.declare(|status| status.leader = Some(status.me));
        told(&format!("hustings_leader_changes_total {changes}")).await;
        told(&format!("etcd_server_leader_changes_seen_total {changes}")).await;
    }
    for quiet in ["hustings_alarm{kind=\"NOSPACE\"} 0", "hustings_disk_stalled 0", "hustings_log_short 0"] {
        told(quiet).await;
    }
    let raise = |kind: hustings_kv::AlarmKind, raise: bool| {
        let change = hustings_kv::AlarmChange { raise, member: 1, kind: kind as i32 };
        served.double.apply_now(&hustings_kv::Command::Alarm(change));
    };
    raise(hustings_kv::AlarmKind::Corrupt, true);
    told("hustings_alarm{kind=\"CORRUPT\"} 1").await;
    told("hustings_alarm{kind=\"NOSPACE\"} 0").await;
    raise(hustings_kv::AlarmKind::Corrupt, false);
    told("hustings_alarm{kind=\"CORRUPT\"} 0").await;
    served.double.declare(|status| status.is_disk_healthy = false);
    told("hustings_disk_stalled 1").await;
}
