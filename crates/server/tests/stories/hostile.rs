//! Strangers: garbage, floods and malice on the client port. The server answers or hangs up, and serves on.

// Helpers of tests fail as tests do.

use crate::support::{Behaviour, Served};
use hustings_api::client::{self, Options};
use hustings_api::etcdserverpb::{
    LeaseGrantRequest, LeaseLeasesRequest, LeaseTimeToLiveRequest, PutRequest, RangeRequest, RequestOp,
    SnapshotRequest, TxnRequest, request_op,
};
use hustings_api::{Client, EtcdError};
use hustings_server::ServerOptions;
use hustings_tls::Trust;
use std::convert::Infallible;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

async fn assert_serves(served: &Served) {
    let put = PutRequest { key: "a".into(), ..PutRequest::default() };
    served.client().await.kv().put(put).await.expect("the server serves on");
}

/// Says something and hears the answer to its end.
async fn say(served: &Served, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(&served.address).await.unwrap();
    // The server may hang up before everything is said, and then hear of it by a reset.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

/// Goal: garbage ends its own connection and nothing else.
#[tokio::test]
async fn garbage_ends_its_own_connection() {
    let served = Served::start().await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let with_preface = |frames: &[u8]| [&preface[..], frames].concat();
    let mut noise = Vec::new();
    let mut state = 1u64;
    for _ in 0..20_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        noise.push((state >> 56) as u8);
    }
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00"[..],
        b"PRI * HTTP/2.0\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v3/kv/put HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999\r\n\r\n",
        &noise,
        &with_preface(&noise),
        &with_preface(&[0xff; 64]),
        &with_preface(&[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 1, 5, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff]),
    ] {
        let _ = say(&served, bytes).await;
        assert_serves(&served).await;
    }
}

/// Goal: a body that is no message, or a frame that lies about its length, gets an error of its own.
#[tokio::test]
async fn malformed_messages_are_refused() {
    let served = Served::start().await;
    let cut_short = in_http2(&served, "/etcdserverpb.KV/Put", "application/grpc", b"\0\xff\xff\xff\xffabcd").await;
    assert!(cut_short.status() == 200 && cut_short.headers().get("grpc-status").is_some_and(|code| code != "0"));
    let unknown = in_http2(&served, "/etcdserverpb.Auth/Guess", "application/grpc", b"").await;
    assert_eq!(unknown.headers()["grpc-status"], "12", "{unknown:?}");
    assert_serves(&served).await;
}

/// Goal: too large a request is refused, in either wire format, before it is kept.
#[tokio::test]
async fn oversized_requests_are_refused() {
    let served = Served::start_with(ServerOptions { max_request_bytes: 10_000, ..ServerOptions::default() }).await;
    let mut kv = served.client().await.kv();
    let put = |bytes: usize| PutRequest { key: "a".into(), value: vec![0; bytes].into(), ..PutRequest::default() };
    let refused = kv.put(put(20_000)).await.unwrap_err();
    assert_eq!(EtcdError::of(&refused), Some(EtcdError::RequestTooLarge));
    let refused = kv.put(put(5_000_000)).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused}");
    let body = "x".repeat(2_000_000);
    let request = format!("POST /v3/kv/put HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let answer = String::from_utf8_lossy(&say(&served, request.as_bytes()).await).into_owned();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    assert_serves(&served).await;
}

/// Goal: nesting without end is refused, not followed.
#[tokio::test]
async fn deep_nesting_is_refused() {
    let served = Served::start().await;
    let mut txn = TxnRequest::default();
    for _ in 0..40 {
        let inner = RequestOp { request: Some(request_op::Request::RequestTxn(txn)) };
        txn = TxnRequest { success: vec![inner], ..TxnRequest::default() };
    }
    let refused = served.client().await.kv().txn(txn.clone()).await.unwrap_err();
    assert_eq!(EtcdError::of(&refused), Some(EtcdError::TooManyOps));
    for _ in 0..100 {
        let inner = RequestOp { request: Some(request_op::Request::RequestTxn(txn)) };
        txn = TxnRequest { success: vec![inner], ..TxnRequest::default() };
    }
    assert!(served.client().await.kv().txn(txn).await.is_err());
    for path in ["kv/txn", "watch"] {
        let body = "{\"success\":[{\"request_txn\":".repeat(50_000);
        let request = format!(
            "POST /v3/{path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = say(&served, request.as_bytes()).await;
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1"), "{}", answer.escape_ascii());
    }
    assert_serves(&served).await;
}

/// Goal: who connects and says nothing is let go.
#[tokio::test(start_paused = true)]
async fn silence_is_not_waited_for() {
    let served = Served::start().await;
    for beginning in [&b""[..], b"PRI * HT", b"POST /v3/kv/put HTTP/1.1\r\nhost"] {
        let mut stream = TcpStream::connect(&served.address).await.unwrap();
        stream.write_all(beginning).await.unwrap();
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "{} is waited for", beginning.escape_ascii());
    }
}

/// Goal: a stranger who connects to a port that speaks TLS and goes no further is let go in time, and keeps nobody waiting (etcd's
/// GHSA-6vch-q96h-7gc3). Method: a hundred stop at each step before the first request; a client is served before their time is over.
#[tokio::test(start_paused = true)]
async fn a_handshake_that_stalls_is_not_waited_for() {
    // A record of TLS that announces a ClientHello of 512 bytes, and how much of it each stranger says.
    let mut hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec();
    hello.resize(300, 7);
    let options = ServerOptions::default();
    let (patience, served) = (options.header_timeout, Served::start_in_tls(options).await);
    let credulous = client::tls(Trust::Anybody, None).unwrap();
    let begun = Instant::now();
    let mut silent = Vec::new();
    for said in [0, 1, 5, 300].repeat(25) {
        let mut stream = TcpStream::connect(&served.address).await.unwrap();
        stream.write_all(&hello[..said]).await.unwrap();
        silent.push((said, stream));
    }
    let stream = TcpStream::connect(&served.address).await.unwrap();
    let (mut shaken, _) = credulous.connect("127.0.0.1", stream).await.unwrap();

    let options = Options { tls: Some(credulous), ..Options::default() };
    let client = Client::connect_with(&[format!("https://{}", served.address)], options).await.unwrap();
    client.kv().put(PutRequest { key: "a".into(), ..PutRequest::default() }).await.unwrap();
    assert!(begun.elapsed() < patience, "nobody was waited for: {:?}", begun.elapsed());
    for (said, mut stream) in silent {
        let ended = tokio::time::timeout(2 * patience, stream.read_to_end(&mut Vec::new())).await;
        assert!(ended.is_ok(), "one that says {said} bytes is waited for");
    }
    let ended = tokio::time::timeout(2 * patience, shaken.read_to_end(&mut Vec::new())).await;
    assert!(ended.is_ok(), "one that has shaken hands and asks nothing is waited for");
}

/// Goal: connections beyond the limit wait until others end.
#[tokio::test]
async fn connections_are_bounded() {
    let served = Served::start_with(ServerOptions { connections_max: 2, ..ServerOptions::default() }).await;
    let range = || RangeRequest { key: "a".into(), ..RangeRequest::default() };
    let (first, second) = (served.client().await, served.client().await);
    first.kv().range(range()).await.unwrap();
    second.kv().range(range()).await.unwrap();
    let third = served.client().await;
    let mut kv = third.kv();
    let waiting = tokio::spawn(async move { kv.range(range()).await });
    first.kv().range(range()).await.unwrap();
    assert!(!waiting.is_finished());
    drop(first);
    waiting.await.unwrap().unwrap();
}

/// Bytes that are held for clients now, as the metrics tell it.
async fn held(served: &Served) -> u64 {
    let page = say(served, b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    let page = String::from_utf8_lossy(&page).into_owned();
    let line = page.lines().find_map(|line| line.strip_prefix("hustings_memory_held_bytes "));
    line.expect("the metric is there").trim().parse().unwrap()
}

/// Goal: what waits for a leader is bounded in bytes: above the budget a request is refused at once, and all is given back.
#[tokio::test]
async fn proposals_that_wait_are_bounded_in_bytes() {
    let served = Served::start_with(ServerOptions { memory_limit_bytes: 10 << 20, ..ServerOptions::default() }).await;
    served.double.be(Behaviour::Frozen);
    let client = served.client().await;
    let put = |number: usize| {
        let mut kv = client.kv();
        let key = format!("k{number}").into();
        async move { kv.put(PutRequest { key, value: vec![0; 1 << 20].into(), ..PutRequest::default() }).await }
    };
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..20 {
        waiting.spawn(put(number));
    }
    // Only who is refused comes back while the member is frozen.
    for _ in 0..11 {
        let refused = waiting.join_next().await.unwrap().unwrap().unwrap_err();
        assert_eq!(EtcdError::of(&refused), Some(EtcdError::TooManyRequests));
    }
    assert!(held(&served).await <= 10 << 20);
    served.double.be(Behaviour::Willing);
    while let Some(done) = waiting.join_next().await {
        assert!(done.unwrap().is_ok());
    }
    assert_eq!(held(&served).await, 0);
    assert_serves(&served).await;
}

/// Goal: bodies that never end are counted, and end with their time.
#[tokio::test(start_paused = true)]
async fn unfinished_bodies_are_counted_and_end() {
    let served = Served::start_with(ServerOptions { memory_limit_bytes: 1 << 20, ..ServerOptions::default() }).await;
    let mut open = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(&served.address).await.unwrap();
        stream.write_all(b"POST /v3/kv/put HTTP/1.1\r\nhost: x\r\ncontent-length: 200000\r\n\r\n").await.unwrap();
        // The caller is refused and hung up on.
        let _ = stream.write_all(&vec![b' '; 100_000]).await;
        open.push(stream);
    }
    let mut answers = Vec::new();
    for mut stream in open {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        answers.push(String::from_utf8_lossy(&answer).into_owned());
    }
    let late = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 504")).count();
    let refused = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 429") || answer.is_empty()).count();
    assert!(late >= 5 && refused >= 5 && late + refused == 20, "{late} were late, {refused} refused: {answers:?}");
    assert_eq!(held(&served).await, 0);
}

/// Goal: heads in any number, whose bodies never come, are bounded by the budget, and end with their time. Method: as many as one connection
/// may have, of twelve kilobytes each, which nobody has to prove anything for.
#[tokio::test(start_paused = true)]
async fn heads_without_bodies_are_counted_and_end() {
    let served = Served::start_with(ServerOptions { memory_limit_bytes: 1 << 20, ..ServerOptions::default() }).await;
    let stream = TcpStream::connect(&served.address).await.unwrap();
    let (executor, stream) = (hyper_util::rt::TokioExecutor::new(), hyper_util::rt::TokioIo::new(stream));
    let (sender, connection) = hyper::client::conn::http2::handshake(executor, stream).await.unwrap();
    tokio::spawn(connection);
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let mut sender = sender.clone();
        let path = format!("http://{}/etcdserverpb.Auth/Authenticate", served.address);
        let request = hyper::Request::post(path).header("content-type", "application/grpc").header("te", "trailers");
        let request = request.header("x-filler", "f".repeat(12_000));
        let body = http_body_util::StreamBody::new(futures::stream::pending::<
            Result<hyper::body::Frame<bytes::Bytes>, Infallible>,
        >());
        asking.spawn(async move {
            let answer = sender.send_request(request.body(body).unwrap()).await.unwrap();
            answer.headers().get("grpc-status").map(|code| code.to_str().unwrap().to_owned()).unwrap_or_default()
        });
    }
    let codes = asking.join_all().await;
    let refused = codes.iter().filter(|code| *code == "8").count();
    assert!((60..100).contains(&refused), "{refused} of 100 were refused: {codes:?}");
    assert_eq!(held(&served).await, 0);
}

/// Goal: a message that begins must come in time, also where the next may take as long as it likes.
#[tokio::test(start_paused = true)]
async fn an_unfinished_message_of_a_stream_ends_it() {
    let served = Served::start().await;
    let mut stream = TcpStream::connect(&served.address).await.unwrap();
    let head = b"POST /v3/watch HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 500\r\n\r\n{\"create";
    stream.write_all(head).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("did not come in time"), "{}", answer.escape_ascii());
}

/// Goal: a large answer comes whole; one above the budget is refused, and holds nothing afterwards.
#[tokio::test]
async fn large_answers_are_bounded_in_bytes() {
    let served = Served::start_with(ServerOptions { memory_limit_bytes: 8 << 20, ..ServerOptions::default() }).await;
    for number in 0..5_000 {
        let (key, value) = (format!("k{number:05}").into(), vec![b'v'; 1_000].into());
        served.double.apply_now(&hustings_kv::Command::Put(hustings_kv::Put { key, value, ..Default::default() }));
    }
    let mut kv = served.client().await.kv().max_decoding_message_size(100 << 20);
    let all = RangeRequest { key: "k".into(), range_end: "l".into(), ..RangeRequest::default() };
    let answer = kv.range(all.clone()).await.unwrap().into_inner();
    assert_eq!((answer.count, answer.kvs.len(), answer.kvs[4_999].value.len()), (5_000, 5_000, 1_000));
    let body = r#"{"key":"aw==","range_end":"bA=="}"#;
    let request = format!(
        "POST /v3/kv/range HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(&served.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(
        answer.len() > 5_000_000 && String::from_utf8_lossy(&answer).contains("\"count\":\"5000\"}"),
        "{} bytes",
        answer.len()
    );

    for number in 5_000..7_000 {
        let (key, value) = (format!("k{number:05}").into(), vec![b'v'; 1_000].into());
        served.double.apply_now(&hustings_kv::Command::Put(hustings_kv::Put { key, value, ..Default::default() }));
    }
    let refused = kv.range(all.clone()).await.unwrap_err();
    assert_eq!(EtcdError::of(&refused), Some(EtcdError::TooManyRequests));
    let count = kv.range(RangeRequest { count_only: true, ..all }).await.unwrap().into_inner().count;
    assert_eq!(count, 7_000);
    assert_eq!(held(&served).await, 0);
}

/// Goal: answers about leases stand in the budget as those about keys do.
#[tokio::test]
async fn answers_about_leases_are_bounded_in_bytes() {
    let served = Served::start_with(ServerOptions { memory_limit_bytes: 1 << 20, ..ServerOptions::default() }).await;
    let mut lease = served.client().await.lease();
    lease.lease_grant(LeaseGrantRequest { id: 7, ttl: 60 }).await.unwrap();
    for number in 0..10_000 {
        let put = hustings_kv::Put { key: format!("k{number:099}").into(), lease: 7, ..Default::default() };
        served.double.apply_now(&hustings_kv::Command::Put(put));
    }
    let refused = lease.lease_time_to_live(LeaseTimeToLiveRequest { id: 7, keys: true }).await.unwrap_err();
    assert_eq!(EtcdError::of(&refused), Some(EtcdError::TooManyRequests));
    let told = lease.lease_time_to_live(LeaseTimeToLiveRequest { id: 7, keys: false }).await.unwrap().into_inner();
    assert_eq!((told.granted_ttl, told.keys.len()), (60, 0));
    for id in 1_000..41_000 {
        served.double.apply_now(&hustings_kv::Command::LeaseGrant(hustings_kv::LeaseGrant { id, ttl: 60 }));
    }
    let refused = lease.lease_leases(LeaseLeasesRequest {}).await.unwrap_err();
    assert_eq!(EtcdError::of(&refused), Some(EtcdError::TooManyRequests));
    assert_eq!(held(&served).await, 0);
}

/// Goal: a client that asks for snapshots and does not read them keeps nobody else from a backup. Method: as many as are streamed at a
/// time, none of them read, and one more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_a_snapshot_that_takes_nothing_is_given_up() {
    let options = ServerOptions { part_timeout: Duration::from_secs(5), ..ServerOptions::default() };
    let served = Served::start_with(options).await;
    for number in 0..40 {
        let (key, value) = (format!("k{number:05}").into(), vec![b'v'; 1 << 20].into());
        served.double.apply_now(&hustings_kv::Command::Put(hustings_kv::Put { key, value, ..Default::default() }));
    }
    // Each by a connection of its own: what is not read fills the window of all that share it.
    let ask = async || {
        let client = served.client().await;
        client.maintenance().snapshot(SnapshotRequest {}).await.map(tonic::Response::into_inner)
    };
    let mut idle = Vec::new();
    for _ in 0..4 {
        idle.push(ask().await.unwrap());
    }
    assert_eq!(EtcdError::of(&ask().await.unwrap_err()), Some(EtcdError::TooManyRequests));
    let served_again = async {
        loop {
            match ask().await {
                Ok(stream) => break stream,
                Err(status) => assert_eq!(EtcdError::of(&status), Some(EtcdError::TooManyRequests)),
            }
        }
    };
    let mut whole = tokio::time::timeout(Duration::from_secs(30), served_again).await.expect("a turn comes");
    let mut last = None;
    let reading = async {
        while let Some(part) = whole.message().await.unwrap() {
            last = Some(part.remaining_bytes);
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reading).await.expect("it ends");
    assert_eq!(last, Some(0), "it is read to its end");
    let given_up = loop {
        match idle[0].message().await {
            Ok(part) => assert!(part.is_some(), "it does not end as if it were whole"),
            Err(status) => break status,
        }
    };
    assert_eq!(given_up.code(), tonic::Code::DeadlineExceeded, "{given_up}");
}

/// Goal: a transaction whose ranges would answer more than the budget is refused before it is done.
#[tokio::test]
async fn a_transaction_that_would_answer_too_much_is_refused_before_it_is_done() {
    let served = Served::start_with(ServerOptions { memory_limit_bytes: 2 << 20, ..ServerOptions::default() }).await;
    for number in 0..1_000 {
        let (key, value) = (format!("k{number:05}").into(), vec![b'v'; 100].into());
        served.double.apply_now(&hustings_kv::Command::Put(hustings_kv::Put { key, value, ..Default::default() }));
    }
    let mut kv = served.client().await.kv();
    let all = RangeRequest { key: "k".into(), range_end: "l".into(), ..RangeRequest::default() };
    let ranges = |count| {
        let put = PutRequest { key: "done".into(), ..PutRequest::default() };
        let range = RequestOp { request: Some(request_op::Request::RequestRange(all.clone())) };
        let mut success = vec![RequestOp { request: Some(request_op::Request::RequestPut(put)) }];
        success.extend(vec![range; count]);
        TxnRequest { success, ..TxnRequest::default() }
    };
    let refused = kv.txn(ranges(100)).await.unwrap_err();
    assert_eq!(EtcdError::of(&refused), Some(EtcdError::TooManyRequests));
    assert_eq!(served.double.view().key_count(), 1_000, "nothing was done");
    assert_eq!(kv.txn(ranges(2)).await.unwrap().into_inner().responses.len(), 3);
    assert_eq!((served.double.view().key_count(), held(&served).await), (1_001, 0));
}

/// A request over HTTP/2, whatever it says that its body is.
async fn in_http2(served: &Served, path: &str, kind: &str, body: &'static [u8]) -> hyper::Response<()> {
    let stream = TcpStream::connect(&served.address).await.unwrap();
    let (executor, stream) = (hyper_util::rt::TokioExecutor::new(), hyper_util::rt::TokioIo::new(stream));
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, stream).await.unwrap();
    tokio::spawn(connection);
    let request = hyper::Request::post(format!("http://{}{path}", served.address)).header("content-type", kind);
    let body = http_body_util::Full::new(bytes::Bytes::from_static(body));
    sender.send_request(request.body(body).unwrap()).await.unwrap().map(drop)
}

/// Goal: what a browser sends for any page without leave is no gRPC: a page that its reader has open by chance writes nothing. Method: the
/// right message in the forms that need no leave, over HTTP/1.1 and over HTTP/2; and in its own.
#[tokio::test]
async fn grpc_is_heard_in_its_own_form_alone() {
    const PUT: &[u8] = b"\0\0\0\0\x06\x0a\x01a\x12\x01b";
    let (served, path) = (Served::start().await, "/etcdserverpb.KV/Put");
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/grpc"] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost:2379\r\ncontent-type: {kind}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            PUT.len()
        );
        let answer = say(&served, &[head.as_bytes(), PUT].concat()).await;
        assert!(answer.starts_with(b"HTTP/1.1 404"), "{kind}: {}", answer.escape_ascii());
    }
    for kind in ["text/plain", "multipart/form-data", "application/json"] {
        assert_eq!(in_http2(&served, path, kind, PUT).await.status(), 404, "{kind}");
    }
    assert_eq!(served.double.view().key_count(), 0);
    assert_eq!(in_http2(&served, path, "application/grpc", PUT).await.status(), 200);
    assert_eq!(served.double.view().key_count(), 1);
}

/// Goal: a page of another origin, which a user of this port has open by chance, writes nothing.
#[tokio::test]
async fn a_foreign_page_writes_nothing() {
    let served = Served::start().await;
    let post = |headers: &str| {
        let body = r#"{"key":"YQ==","value":"MQ=="}"#;
        let length = body.len();
        format!(
            "POST /v3/kv/put HTTP/1.1\r\nhost: localhost:2379\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    };
    for foreign in [
        "origin: http://evil.example\r\n",
        "origin: http://me:2379\r\n",
        "origin: null\r\n",
        "sec-fetch-site: cross-site\r\n",
    ] {
        let answer = say(&served, post(foreign).as_bytes()).await;
        assert!(answer.starts_with(b"HTTP/1.1 403"), "{foreign}: {}", answer.escape_ascii());
    }
    assert_eq!(served.double.view().key_count(), 0);
    for own in [
        "",
        "origin: http://localhost:2379\r\ncontent-type: application/json\r\n",
        "content-type: application/x-www-form-urlencoded\r\n",
    ] {
        assert!(say(&served, post(own).as_bytes()).await.starts_with(b"HTTP/1.1 200"), "{own}");
    }
}
