//! Our own calls about leases and elections, as any HTTP client would speak them.

// Helpers of tests fail as tests do.

use crate::gateway::{post, speak};
use crate::support::{Served, grant};
use hustings_api::etcdserverpb::PutRequest;
use hustings_core::ApplyVersion;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn stand(served: &Served, key: &str, value: &str, lease: i64) -> i64 {
    let put = PutRequest { key: key.to_owned().into(), value: value.to_owned().into(), lease, ..PutRequest::default() };
    served.client().await.kv().put(put).await.unwrap().into_inner().header.unwrap().revision
}

/// Goal: leases below a second, granted and renewed, many with one message.
#[tokio::test]
async fn leases_live_for_milliseconds() {
    let served = Served::start().await;
    let (_, whole) = post(&served, "/v1/leases", json!({ "ttl_millis": 1_500, "id": "6" })).await;
    assert_eq!(whole, json!({ "id": "6", "ttl_millis": 2_000 }), "a member of an older build cannot count finer");
    served.double.adopt(ApplyVersion(2));
    let (status, short) = post(&served, "/v1/leases", json!({ "ttl_millis": 1_500, "id": "7" })).await;
    assert_eq!((status, short), (200, json!({ "id": "7", "ttl_millis": 1_500 })));
    let (_, drawn) = post(&served, "/v1/leases", json!({ "ttl_millis": 1 })).await;
    let least = drawn["ttl_millis"].as_u64().unwrap();
    assert!((300..1_000).contains(&least), "no shorter than a failover, and below a second: {least}");
    served.double.pass(Duration::from_millis(1_400));
    let proposals = served.double.proposals();
    let (_, kept) = post(&served, "/v1/leases/keepalive", json!({ "ids": ["6", "7", "99"] })).await;
    let lease = |id: &str, ttl_millis: u64| json!({ "id": id, "ttl_millis": ttl_millis });
    assert_eq!(kept, json!({ "leases": [lease("6", 2_000), lease("7", 1_500), lease("99", 0)] }));
    assert_eq!(served.double.proposals(), proposals + 1, "one entry renews them all");
    served.double.pass(Duration::from_millis(1_499));
    assert!(served.double.view().has_lease(7));
    served.double.pass(Duration::from_millis(1));
    assert!(!served.double.view().has_lease(7) && served.double.view().has_lease(6));
}

/// Goal: a store that is copied from another one gives out nothing twice. Method: its revision is raised, and raised again
/// to less.
#[tokio::test]
async fn the_revision_goes_on_from_where_another_store_has_come() {
    let served = Served::start().await;
    let (early, _) = post(&served, "/v1/revision", json!({ "at_least": 1_000 })).await;
    assert_eq!(early, 400, "some member could not apply it");
    served.double.adopt(ApplyVersion(3));
    let (_, raised) = post(&served, "/v1/revision", json!({ "at_least": 1_000 })).await;
    assert_eq!(raised, json!({ "revision": "1000" }));
    let (_, again) = post(&served, "/v1/revision", json!({ "at_least": 10 })).await;
    assert_eq!(again, json!({ "revision": "1000" }), "it never falls");
    for wrong in [0, -1, i64::MAX] {
        assert_eq!(post(&served, "/v1/revision", json!({ "at_least": wrong })).await.0, 400, "{wrong}");
    }
}

/// Goal: what is wrong is named, and nothing is granted.
#[tokio::test]
async fn what_is_wrong_with_a_call_is_named() {
    let served = Served::start().await;
    let refused = async |path: &str, body: Value| {
        let (status, answer) = post(&served, path, body).await;
        (status, answer["error"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(refused("/v1/leases", json!({ "ttl_millis": 0 })).await, (400, "ttl_millis is at least 1".to_owned()));
    assert!(refused("/v1/leases", json!({ "ttl": 3 })).await.1.contains("unknown field `ttl`"));
    assert!(refused("/v1/leases", json!({ "ttl_millis": 5, "id": "x" })).await.1.contains("\"x\" is no lease"));
    assert!(refused("/v1/leases/keepalive", json!({ "ids": ["-1"] })).await.1.contains("ids are in hex"));
    let many = vec!["7"; 8_193];
    assert!(refused("/v1/leases/keepalive", json!({ "ids": many })).await.1.contains("at most 8192"));
    assert_eq!(refused("/v1/leases/else", json!({})).await.0, 404);
    assert_eq!(speak(&served, "GET", "/v1/leases", "").await.0, 405);
    assert!(served.double.view().leases().is_empty());
}

/// Goal: who leads what, since when, and why it moved last; strangers' elections too.
#[tokio::test]
async fn elections_are_told() {
    let served = Served::start().await;
    for id in [0x7f, 0x80, 0x81] {
        grant(&served, id).await;
    }
    stand(&served, "billing.generation", "2", 0).await;
    let token = stand(&served, "billing/7f", r#"{"hustings":1,"id":"a","value":"10.0.0.1:80"}"#, 0x7f).await;
    stand(&served, "billing/80", r#"{"hustings":1,"id":"b"}"#, 0x80).await;
    let line = format!("2.{token}\ta\tnoted\tleaving: deploy\t1700000000\n");
    stand(&served, "billing.history", &line, 0).await;
    let other = stand(&served, "team/reports/81", "somebody", 0x81).await;
    stand(&served, "config", "no election", 0x81).await;
    let billing = json!({
        "name": "billing", "holder": "a", "value": "10.0.0.1:80", "token": format!("2.{token}"), "candidates": 2,
        "lease": "7f", "ttl_millis": 60_000, "remaining_millis": 60_000, "since_unix_seconds": 1_700_000_000_u64, "because": "leaving: deploy",
    });
    let reports = json!({
        "name": "team/reports", "holder": "somebody", "value": "", "token": other.to_string(), "candidates": 1,
        "lease": "81", "ttl_millis": 60_000, "remaining_millis": 60_000, "since_unix_seconds": null, "because": null,
    });
    let told = async |path: &str| -> Value { serde_json::from_str(&speak(&served, "GET", path, "").await.1).unwrap() };
    assert_eq!(told("/v1/elections").await, json!({ "elections": [billing, reports] }));
    assert_eq!(told("/v1/elections?name=team/reports").await, json!({ "elections": [reports] }));
    assert_eq!(told("/v1/elections?name=nobody").await, json!({ "elections": [] }));
}

/// Goal: an election that is asked for by its name is told when nobody leads any more, with the last words of the last leader, and
/// when a key that no lease ends stands in its way. Method: a history with a note of its last leader, then with an older one; and
/// a key of somebody who knows nothing of elections.
#[tokio::test]
async fn an_election_is_told_when_nobody_leads_it_and_when_a_foreign_key_does() {
    let served = Served::start().await;
    stand(&served, "billing.history", "7\ta\tfirst\t\n", 0).await;
    let told = async || -> Value {
        let told = speak(&served, "GET", "/v1/elections?name=billing", "").await.1;
        serde_json::from_str::<Value>(&told).unwrap()["elections"][0].take()
    };
    stand(&served, "billing.note", r#"{"token":"7","because":"leaving: told to stop"}"#, 0).await;
    let ended = told().await;
    assert_eq!((&ended["holder"], &ended["token"], &ended["candidates"]), (&Value::Null, &json!("7"), &json!(0)));
    assert_eq!(ended["because"], "leaving: told to stop");
    stand(&served, "billing.note", r#"{"token":"5","because":"of somebody before"}"#, 0).await;
    assert_eq!(told().await["because"], "left no note");
    stand(&served, "billing/else", "no entry", 0).await;
    stand(&served, "billing/123", "x", 0).await;
    let blocked = told().await;
    assert_eq!((&blocked["holder"], &blocked["lease"], &blocked["candidates"]), (&json!("x"), &json!("0"), &json!(1)));
}

/// Asks for a tether of this lease, and says that its own end is `from`.
async fn tether(served: &Served, lease: &str, from: Option<&str>) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(&served.address).await.unwrap();
    let own = stream.local_addr().unwrap().to_string();
    let answer = ask_for_tether(&mut stream, lease, from.unwrap_or(&own), "").await;
    if answer.starts_with("HTTP/1.1 101") {
        stream.write_all(b"\n").await.unwrap();
    }
    (stream, answer)
}

fn tether_request(lease: &str, from: &str, headers: &str) -> String {
    format!(
        "GET /v1/leases/{lease}/tether?from={from} HTTP/1.1\r\nhost: x\r\n{headers}connection: upgrade\r\nupgrade: hustings-tether\r\n\r\n"
    )
}

/// Asks for a tether on this connection, with these further headers; gives what is answered at first.
pub(crate) async fn ask_for_tether(stream: &mut TcpStream, lease: &str, from: &str, headers: &str) -> String {
    stream.write_all(tether_request(lease, from, headers).as_bytes()).await.unwrap();
    let mut answer = vec![0; 1_024];
    let length = stream.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

/// Waits until the lease is gone, by the proposal that ends it.
async fn until_gone(served: &Served, lease: i64) {
    let gone = async {
        while served.double.view().has_lease(lease) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("the lease ends");
}

/// Goal: the end of the owner's connection ends its lease; its silence does not, nor does somebody else's end.
#[tokio::test]
async fn a_lease_ends_with_its_owner() {
    let served = Served::start().await;
    for id in [7, 8] {
        grant(&served, id).await;
    }
    let (owner, answer) = tether(&served, "7", None).await;
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    let (other, _) = tether(&served, "8", None).await;
    assert_eq!(served.double.view().leases().len(), 2);
    drop(owner);
    until_gone(&served, 7).await;
    assert!(served.double.view().has_lease(8), "another one's lease stands");
    // A reset is an end as well: what was sent and never read makes one.
    socket2::SockRef::from(&other).set_linger(Some(Duration::ZERO)).unwrap();
    drop(other);
    until_gone(&served, 8).await;
}

/// Goal: found by a hostile reader: an owner that gives up waiting for the answer of a member that stands still, and holds on at another
/// one, does not lose its lease when that member goes on. Method: it hangs up behind its request, and behind the answer; another one
/// after it that confirms ends its own lease.
#[tokio::test]
async fn who_has_not_confirmed_a_tether_ends_nothing_by_hanging_up() {
    let served = Served::start().await;
    grant(&served, 7).await;
    for reads in [false, true] {
        let mut stream = TcpStream::connect(&served.address).await.unwrap();
        let own = stream.local_addr().unwrap().to_string();
        match reads {
            true => drop(ask_for_tether(&mut stream, "7", &own, "").await),
            false => stream.write_all(tether_request("7", &own, "").as_bytes()).await.unwrap(),
        }
        drop(stream);
    }
    // One that does confirm, and hangs up after them: what they could do would be done by then.
    grant(&served, 8).await;
    drop(tether(&served, "8", None).await);
    until_gone(&served, 8).await;
    assert!(served.double.view().has_lease(7), "the owner of this one lives");
}

/// Goal: a member that stops ends no lease. Method: stop it, while the owner holds on.
#[tokio::test]
async fn a_member_that_stops_ends_no_lease() {
    let served = Served::start().await;
    grant(&served, 7).await;
    let (mut owner, _) = tether(&served, "7", None).await;
    let counted = async { while !speak(&served, "GET", "/metrics", "").await.1.contains("\nhustings_tethers 1") {} };
    tokio::time::timeout(Duration::from_secs(10), counted).await.expect("the member has read the owner's byte");
    let double = served.double.clone();
    served.stop().await;
    assert_eq!(owner.read(&mut [0; 8]).await.unwrap(), 0, "the member ended the connection");
    assert!(double.view().has_lease(7));
}

/// Goal: a tether that could lie is refused. Method: through something that stands between, for a lease that is not there,
/// and in the wrong words.
#[tokio::test]
async fn a_tether_that_could_lie_is_refused() {
    let served = Served::start().await;
    grant(&served, 7).await;
    let refused = async |lease: &str, from: Option<&str>| {
        let (stream, answer) = tether(&served, lease, from).await;
        drop(stream);
        answer
    };
    let between = refused("7", Some("10.9.9.9:4711")).await;
    assert!(between.starts_with("HTTP/1.1 409") && between.contains("something stands between"), "{between}");
    assert!(refused("99", None).await.starts_with("HTTP/1.1 410"));
    assert!(refused("zz", None).await.starts_with("HTTP/1.1 400"));
    assert!(refused("7", Some("nowhere")).await.starts_with("HTTP/1.1 400"));
    let plain = speak(&served, "GET", "/v1/leases/7/tether?from=10.9.9.9:4711", "").await;
    assert!(plain.0 == 400 && plain.1.contains("Upgrade: hustings-tether"), "{plain:?}");
    assert!(served.double.view().has_lease(7), "none of them ended the lease");
}
