//! The other paths of etcd's HTTP port, for clients, pages and probes, compared with etcd 3.5.1.

use crate::gateway::{post, speak};
use crate::support::Served;
use hustings_server::ServerOptions;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The head of an answer, in lower case, to a request with these headers.
async fn head_of(served: &Served, method: &str, host: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(&served.address).await.unwrap();
    let request = format!(
        "{method} /v3/kv/range HTTP/1.1\r\nhost: {host}\r\n{headers}connection: close\r\ncontent-length: 16\r\n\r\n{{\"key\":\"YQ==\"}}  "
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split("\r\n\r\n").next().unwrap_or_default().to_lowercase()
}

async fn with_origins(origins: &[&str]) -> Served {
    let origins = origins.iter().map(|origin| (*origin).to_string()).collect();
    Served::start_with(ServerOptions { origins, ..ServerOptions::default() }).await
}

/// Goal: a browser is told that a page may call only where its origin was named; with `*`, as etcd has it by default, all are.
#[tokio::test]
async fn pages_of_named_origins_may_call_and_others_may_not() {
    let own = with_origins(&[]).await;
    let preflight = head_of(&own, "OPTIONS", "me:2379", "origin: http://page.example\r\n").await;
    assert!(preflight.starts_with("http/1.1 200") && !preflight.contains("access-control"), "{preflight}");
    assert!(head_of(&own, "POST", "me:2379", "origin: http://page.example\r\n").await.starts_with("http/1.1 403"));

    let named = with_origins(&["http://page.example"]).await;
    for method in ["OPTIONS", "POST"] {
        let head =
            head_of(&named, method, "me:2379", "origin: http://Page.example\r\nsec-fetch-site: cross-site\r\n").await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert!(head.contains("access-control-allow-origin: http://page.example\r\n"), "{head}");
        assert!(head.contains("access-control-allow-methods: post, get, options, put, delete"), "{head}");
        assert!(head.contains("access-control-allow-headers: accept, content-type, authorization"), "{head}");
        assert!(head.contains("vary: origin"), "{head}");
    }
    let other = head_of(&named, "POST", "me:2379", "origin: http://page.example.evil\r\n").await;
    assert!(other.starts_with("http/1.1 403") && !other.contains("access-control"), "{other}");

    let all = with_origins(&["*"]).await;
    for headers in ["origin: http://page.example\r\n", "origin: null\r\n", "sec-fetch-site: cross-site\r\n", ""] {
        let head = head_of(&all, "POST", "me:2379", headers).await;
        assert!(
            head.starts_with("http/1.1 200") && head.contains("access-control-allow-origin: *"),
            "{headers}: {head}"
        );
    }
}

/// Goal: a page that makes its own name point to this server is refused where the names are known.
#[tokio::test]
async fn requests_for_other_names_are_misdirected() {
    let hosts = vec!["me".to_string(), "::1".to_string()];
    let served = Served::start_with(ServerOptions { hosts, ..ServerOptions::default() }).await;
    for host in ["me:2379", "me", "[::1]:2379"] {
        assert!(head_of(&served, "POST", host, "").await.starts_with("http/1.1 200"), "{host}");
    }
    assert!(head_of(&served, "POST", "evil.example:2379", "").await.starts_with("http/1.1 421"));
    let served = Served::start().await;
    assert!(head_of(&served, "POST", "evil.example:2379", "").await.starts_with("http/1.1 200"), "by default all are");
}

/// Goal: `hash` is of the whole store, at any revision; `hashkv` is of the keys.
#[tokio::test]
async fn the_two_digests_have_paths_of_their_own() {
    let served = Served::start().await;
    let (status, whole) = post(&served, "/v3/maintenance/hash", json!({ "revision": 99 })).await;
    assert!(status == 200 && whole["hash"].is_number() && whole["compact_revision"].is_null(), "{whole}");
    let (status, keys) = post(&served, "/v3/maintenance/hashkv", json!({ "revision": 99 })).await;
    assert!(status == 400 && keys["message"].as_str().is_some_and(|text| text.contains("future revision")), "{keys}");
}

/// Goal: whether the version below could be gone down to is answered as by etcd; going there is not.
#[tokio::test]
async fn the_version_below_is_valid_and_no_other_is() {
    let served = Served::start().await;
    let ask = async |action: &str, version: &str| {
        post(&served, "/v3/maintenance/downgrade", json!({ "action": action, "version": version })).await
    };
    for version in ["3.4", "3.4.0", "3.4.18"] {
        let (status, answer) = ask("VALIDATE", version).await;
        assert_eq!((status, &answer["version"]), (200, &json!("3.5.0")), "{version}");
    }
    for (action, version, text) in [
        ("VALIDATE", "3.3.0", "etcdserver: invalid downgrade target version"),
        ("VALIDATE", "3.5.0", "etcdserver: invalid downgrade target version"),
        ("VALIDATE", "3", "etcdserver: wrong downgrade target version format"),
        ("ENABLE", "3.4.0", "etcdserver: invalid downgrade target version"),
        ("CANCEL", "", "etcdserver: no inflight downgrade job"),
    ] {
        let (status, answer) = ask(action, version).await;
        assert_eq!((status, &answer["message"]), (400, &json!(text)), "{action} {version}");
    }
}

/// Goal: what Go programs export as variables is there, as far as it means something.
#[tokio::test]
async fn variables_are_exported_as_by_go() {
    let served = Served::start().await;
    let (status, body) = speak(&served, "GET", "/debug/vars", "").await;
    let variables: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 200);
    assert!(variables["cmdline"].as_array().is_some_and(|line| !line.is_empty()), "{variables}");
    assert!(variables["file_descriptor_limit"].as_u64() > Some(10), "{variables}");
    assert!(variables["memstats"]["Alloc"].as_u64() > Some(1 << 20), "{variables}");
    assert_eq!(variables["raft.status"]["raftState"], "StateLeader");
}
