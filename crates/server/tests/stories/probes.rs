//! Every method, every field that names something, every kind of caller: what must be refused is, in the right words, over
//! gRPC and JSON alike; and nothing else is.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::auth_client::AuthClient;
use hustings_core::ApplyVersion;
use hustings_kv as kv;
use hustings_kv::{Accounts, AccountsChange, AuthEnable, Command};
use hustings_server::{CommonName, ServerOptions};
use hustings_testbed::probes::{CALLERS, Caller, LEASES, PERMISSIONS, Proof, call, cases, post};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tonic::transport::{Channel, Endpoint};

use crate::probe_fields::Declared;
use crate::support::Served;

/// The name in the certificate that a connection from here shows: in these tests, an address is one.
fn name_of(peer: SocketAddr) -> Option<CommonName> {
    let name = match peer.ip() {
        ip if ip == IpAddr::from([127, 0, 0, 7]) => "root",
        ip if ip == IpAddr::from([127, 0, 0, 8]) => "reader",
        // A good certificate whose name is no user's.
        ip if ip == IpAddr::from([127, 0, 0, 9]) => "stranger",
        _ => return None,
    };
    Some(CommonName(name.to_owned()))
}

fn address_of(who: &Caller) -> IpAddr {
    match (who.proof, who.user) {
        (Proof::Certificate, "root") => [127, 0, 0, 7].into(),
        (Proof::Certificate, "reader") => [127, 0, 0, 8].into(),
        (Proof::Certificate, _) => [127, 0, 0, 9].into(),
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

/// Whether this is an error that only permissions are refused with.
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
    let mut refusing = BTreeSet::new();
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
        let base = format!("http://{}", served.address);
        for (transport, by_json) in [("gRPC", false), ("JSON", true)] {
            // The gateway takes no certificate, as in etcd: who shows one there is nobody.
            lay(&served);
            let is_nobody = by_json && who.proof == Proof::Certificate;
            let told = if is_nobody { CALLERS[0] } else { *who };
            for case in cases(place * 2 + usize::from(by_json)) {
                let expected = case.refusal_of(&told);
                if (by_json && case.path.is_empty()) || (case.is_fatal && expected.is_none()) {
                    continue;
                }
                probes += 1;
                if expected.is_some() {
                    refusing.insert(case.method.to_owned());
                }
                let outcome = match by_json {
                    true => post(&client, &base, &case, token.as_deref()).await,
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
    println!("{probes} probes of {} methods, {} failures", refusing.len(), failures.len());
    assert!(failures.is_empty(), "{} of {probes}:\n{}", failures.len(), failures[..failures.len().min(40)].join("\n"));
    assert!(probes >= 10_000, "only {probes} probes");
    // These methods anybody may call: whether the member lives, and who proves who it is.
    let open = ["/etcdserverpb.Auth/Authenticate", "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"];
    let untried: Vec<String> = Declared::read().methods.into_keys().filter(|name| !refusing.contains(name)).collect();
    assert_eq!(untried, open, "nobody is refused at these methods: try them in hustings_testbed::probes");
}
