//! Every method, every field that names something, every kind of caller: what must be refused is, in the right words, over
//! gRPC and JSON alike; and nothing else is.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::auth_client::AuthClient;
use hustings_core::ApplyVersion;
use hustings_kv as kv;
use hustings_kv::{Accounts, AccountsChange, AuthEnable, Command};
use hustings_server::{CommonName, ServerOptions};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tonic::transport::{Channel, Endpoint};

use crate::probe_cases::{CALLERS, Case, LEASES, PERMISSIONS, Proof, Want, Who, cases};
use crate::probe_wire::{call, refusal_in};
use crate::support::Served;

/// Whose certificate a connection from here shows: in these tests, an address is one.
fn name_of(peer: SocketAddr) -> Option<CommonName> {
    let name = match peer.ip() {
        ip if ip == IpAddr::from([127, 0, 0, 7]) => "root",
        ip if ip == IpAddr::from([127, 0, 0, 8]) => "reader",
        _ => return None,
    };
    Some(CommonName(name.to_owned()))
}

fn address_of(who: &Who) -> IpAddr {
    match (who.proof, who.user) {
        (Proof::Certificate, "root") => [127, 0, 0, 7].into(),
        (Proof::Certificate, _) => [127, 0, 0, 8].into(),
        _ => [127, 0, 0, 1].into(),
    }
}

fn change(served: &Served, change: AccountsChange) {
    served.double.apply_now(&Command::Accounts(Accounts { change: Some(change) }));
}

/// Lays the leases and their keys, where callers who may have taken them away.
fn lay(served: &Served) {
    for (id, keys) in LEASES {
        if !served.double.view().has_lease(id) {
            served.double.apply_now(&Command::LeaseGrant(kv::LeaseGrant { id, ttl: 10_000 }));
        }
        for key in keys {
            let put = kv::Put { key: (*key).into(), value: "v".into(), lease: id, ..Default::default() };
            served.double.apply_now(&Command::Put(put));
        }
    }
}

/// A store with users, keys and leases, where users count.
pub async fn guarded() -> Served {
    let options = ServerOptions { bcrypt_cost: 4, ..ServerOptions::default() };
    let served = Served::start_naming(options, Arc::new(name_of)).await;
    served.double.adopt(ApplyVersion(3));
    for user in ["root", "norole", "other", "reader", "writer", "both"] {
        let hash = Bytes::from(bcrypt::hash(user, 4).unwrap());
        change(&served, AccountsChange::UserAdd(kv::UserPassword { name: user.into(), hash, no_password: false }));
        if user != "norole" {
            change(&served, AccountsChange::RoleAdd(kv::Named { name: user.into() }));
            let granted = kv::UserRole { user: user.into(), role: user.into() };
            change(&served, AccountsChange::UserGrantRole(granted));
        }
    }
    for (role, kind, key, range_end) in PERMISSIONS {
        let permission = Some(kv::Permission { kind: kind as i32, key: key.into(), range_end: range_end.into() });
        change(&served, AccountsChange::RoleGrant(kv::RolePermission { role: role.into(), permission }));
    }
    lay(&served);
    change(&served, AccountsChange::Enable(AuthEnable { token_key: "a key of the test".into() }));
    served
}

pub async fn channel_from(served: &Served, from: IpAddr) -> Channel {
    let endpoint: Endpoint = format!("http://{}", served.address).parse().unwrap();
    endpoint.local_address(Some(from)).connect().await.unwrap()
}

pub async fn token_of(channel: &Channel, user: &str) -> String {
    let request = pb::AuthenticateRequest { name: user.into(), password: user.into() };
    AuthClient::new(channel.clone()).authenticate(request).await.unwrap().into_inner().token
}

/// Makes one call through the gateway; as [`call`].
async fn post(
    client: &HttpClient<HttpConnector, Full<Bytes>>,
    served: &Served,
    case: &Case,
    token: Option<&str>,
) -> (i32, String) {
    let uri = format!("http://{}/v3/{}", served.address, case.path);
    let mut request = hyper::Request::post(uri).header("content-type", "application/json");
    if let Some(token) = token {
        request = request.header("authorization", token);
    }
    let request = request.body(Full::new(Bytes::from(case.json.clone()))).unwrap();
    let answer = client.request(request).await.unwrap();
    let is_ok = answer.status().is_success();
    let mut body = answer.into_body();
    let is_stream = matches!(case.path, "watch" | "election/observe" | "lease/keepalive");
    let wait = match case.path {
        "election/observe" => Duration::from_millis(50),
        _ => Duration::from_secs(10),
    };
    let said = match is_ok && is_stream {
        true => match tokio::time::timeout(wait, body.frame()).await {
            Ok(frame) => frame.map(|frame| frame.unwrap().into_data().unwrap()).unwrap_or_default(),
            Err(_) => return (0, String::new()),
        },
        false => body.collect().await.unwrap().to_bytes(),
    };
    if is_ok && !is_stream {
        return (0, String::new());
    }
    let said: serde_json::Value = serde_json::from_slice(&said).unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    if !is_ok {
        return (said["code"].as_i64().unwrap_or(-1) as i32, text(&said["message"]));
    }
    if let Some(code) = said["error"]["grpc_code"].as_i64() {
        return (code as i32, text(&said["error"]["message"]));
    }
    match said["result"]["cancel_reason"].as_str() {
        Some(reason) => refusal_in(reason),
        None => (0, String::new()),
    }
}

/// What only permissions are refused with.
fn is_of_permissions(code: i32, text: &str) -> bool {
    matches!(code, 7 | 16)
        || matches!(text, "etcdserver: user name is empty" | "etcdserver: permission denied")
        || text == "etcdserver: revision of auth store is old"
}

fn differs(is_observe: bool, expected: Option<(i32, &str)>, (code, text): &(i32, String)) -> bool {
    match expected {
        // A stream that is refused in its course has the store's code, one that is refused at its start that of elections.
        Some((_, words)) if is_observe => !matches!(code, 2 | 3 | 7 | 16) || text != words,
        Some((wanted, words)) => *code != wanted || text != words,
        None => is_of_permissions(*code, text),
    }
}

/// Goal: no call slips by. Method: over 10,000 probes; the expectation comes from rules of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_method_refuses_whom_it_must() {
    let served = guarded().await;
    let mut failures = Vec::new();
    let mut methods = BTreeSet::new();
    let mut probes = 0;
    for (place, who) in CALLERS.iter().enumerate() {
        let channel = channel_from(&served, address_of(who)).await;
        let token = match who.proof {
            Proof::Token => Some(token_of(&channel, who.user).await),
            Proof::Wrong => Some("forged.token".to_owned()),
            _ => None,
        };
        let mut connector = HttpConnector::new();
        connector.set_local_address(Some(address_of(who)));
        let client = HttpClient::builder(TokioExecutor::new()).build(connector);
        for (transport, by_json) in [("gRPC", false), ("JSON", true)] {
            // The gateway takes no certificate, as in etcd: who shows one there is nobody.
            lay(&served);
            let is_nobody = by_json && who.proof == Proof::Certificate;
            let told = if is_nobody { CALLERS[0] } else { *who };
            for case in cases(place * 2 + usize::from(by_json)) {
                methods.insert(case.method);
                let expected = case.refusal_of(&told);
                if (by_json && case.path.is_empty()) || (case.is_fatal && expected.is_none()) {
                    continue;
                }
                probes += 1;
                let outcome = match by_json {
                    true => post(&client, &served, &case, token.as_deref()).await,
                    false => call(&channel, &case, token.as_deref()).await,
                };
                if differs(case.method.ends_with("Observe"), expected, &outcome) {
                    let who = who.label;
                    failures.push(format!(
                        "{who}, {transport}, {} {}: {outcome:?}, not {expected:?}",
                        case.method, case.label
                    ));
                }
            }
        }
    }
    println!("{probes} probes of {} methods, {} failures", methods.len(), failures.len());
    assert!(failures.is_empty(), "{} of {probes}:\n{}", failures.len(), failures[..failures.len().min(40)].join("\n"));
    assert!(probes >= 10_000, "only {probes} probes");
    // Health asks nobody, and has no form in JSON.
    assert_eq!(methods.len(), declared_methods() - 2, "a method is not tried");
}

/// How many methods the protos declare.
fn declared_methods() -> usize {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/proto");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
    files.map(|text| text.lines().filter(|line| line.trim().starts_with("rpc ")).count()).sum()
}

/// Goal: whatever a request can name is tried. Method: the fields of the protos that name keys, leases, users or roles.
#[test]
fn every_field_that_names_something_is_tried() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/proto");
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let mut message = "";
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix("message ") {
                message = name.trim_end_matches([' ', '{', '}']);
            }
            let is_asked = message.ends_with("Request") || ["Compare", "LeaderKey", "Permission"].contains(&message);
            let field = line.strip_prefix("bytes ").or(line.strip_prefix("int64 ")).or(line.strip_prefix("string "));
            let name = field.and_then(|field| field.split_whitespace().next()).unwrap_or_default();
            let names = ["key", "range_end", "name", "user", "role", "lease", "ID"];
            if is_asked && names.contains(&name) && !message.contains("Health") {
                found.insert(format!("{message}.{name}"));
            }
        }
    }
    // What `probe_cases` sets, and beside it what has an effect on nothing but a comparison, or on who asks.
    let tried = [
        "AuthRoleAddRequest.name",
        "AuthRoleDeleteRequest.role",
        "AuthRoleGetRequest.role",
        "AuthRoleGrantPermissionRequest.name",
        "AuthRoleRevokePermissionRequest.key",
        "AuthRoleRevokePermissionRequest.range_end",
        "AuthRoleRevokePermissionRequest.role",
        "AuthUserAddRequest.name",
        "AuthUserChangePasswordRequest.name",
        "AuthUserDeleteRequest.name",
        "AuthUserGetRequest.name",
        "AuthUserGrantRoleRequest.role",
        "AuthUserGrantRoleRequest.user",
        "AuthUserRevokeRoleRequest.name",
        "AuthUserRevokeRoleRequest.role",
        "AuthenticateRequest.name",
        "CampaignRequest.lease",
        "CampaignRequest.name",
        "Compare.key",
        "Compare.lease",
        "Compare.range_end",
        "DeleteRangeRequest.key",
        "DeleteRangeRequest.range_end",
        "LeaderKey.key",
        "LeaderKey.lease",
        "LeaderKey.name",
        "LeaderRequest.name",
        "LeaseGrantRequest.ID",
        "LeaseKeepAliveRequest.ID",
        "LeaseRevokeRequest.ID",
        "LeaseTimeToLiveRequest.ID",
        "LockRequest.lease",
        "LockRequest.name",
        "Permission.key",
        "Permission.range_end",
        "PutRequest.key",
        "PutRequest.lease",
        "RangeRequest.key",
        "RangeRequest.range_end",
        "UnlockRequest.key",
        "WatchCreateRequest.key",
        "WatchCreateRequest.range_end",
    ];
    assert_eq!(found, tried.into_iter().map(str::to_owned).collect());
    assert!(cases(0).iter().any(|case| case.want == Want::Root));
}
