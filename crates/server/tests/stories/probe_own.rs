//! Our own calls over HTTP (`/v1/...`, `/debug/vars`), by callers that may do little: each is told what the table in
//! `docs/users-and-roles.md` gives it, and refused in etcd's words otherwise.

use std::net::IpAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpSocket;

use crate::own::ask_for_tether;
use crate::probes::{channel_from, guarded, token_of};
use crate::support::Served;

/// The right that a call needs.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Want {
    User,
    /// Read `r/...`.
    Reader,
    /// Write all keys of lease 101, which are in `r/...`.
    Writer,
    Root,
}

/// Every call of ours: method, path, body, what it needs.
const CALLS: [(&str, &str, &str, Want); 16] = [
    ("GET", "/v1/leader", "", Want::User),
    ("GET", "/v1/status", "", Want::User),
    ("GET", "/v1/report", "", Want::User),
    ("GET", "/v1/cluster", "", Want::User),
    ("GET", "/v1/cluster/events", "", Want::User),
    ("GET", "/debug/vars", "", Want::User),
    ("GET", "/v1/elections", "", Want::Root),
    ("GET", "/v1/elections?name=r/e", "", Want::Reader),
    ("GET", "/v1/elections?name=zz", "", Want::Root),
    ("GET", "/v1/recording", "", Want::Root),
    ("POST", "/v1/leases", r#"{"ttl_millis": 300}"#, Want::User),
    ("POST", "/v1/leases/keepalive", r#"{"ids": ["65"]}"#, Want::Writer),
    ("POST", "/v1/leases/keepalive", r#"{"ids": ["65", "69"]}"#, Want::Root),
    ("POST", "/v1/revision", r#"{"at_least": 7}"#, Want::Root),
    ("POST", "/v1/transfer", r#"{"member": "no such member"}"#, Want::Root),
    ("POST", "/v1/workbench", r#"{"verb": "kill", "member": "n1"}"#, Want::Root),
];

/// Caller, address (in these tests one is a certificate), user whose token it shows, the rights that it has.
const CALLERS: [(&str, u8, Option<&str>, &[Want]); 9] = [
    ("nobody", 1, None, &[]),
    ("a foreign certificate", 9, None, &[]),
    ("a forged token", 1, Some("forged.token"), &[]),
    ("no role", 1, Some("norole"), &[Want::User]),
    ("another range", 1, Some("other"), &[Want::User]),
    ("a reader", 1, Some("reader"), &[Want::User, Want::Reader]),
    ("a reader by certificate", 8, None, &[Want::User, Want::Reader]),
    ("a writer", 1, Some("writer"), &[Want::User, Want::Writer]),
    ("root by certificate", 7, None, &[Want::User, Want::Reader, Want::Writer, Want::Root]),
];

/// A caller that shows a token or a certificate.
struct By {
    client: HttpClient<HttpConnector, Full<Bytes>>,
    token: Option<String>,
}

impl By {
    async fn of(served: &Served, address: u8, user: Option<&str>) -> By {
        let address = IpAddr::from([127, 0, 0, address]);
        let mut connector = HttpConnector::new();
        connector.set_local_address(Some(address));
        let token = match user {
            Some(user) if !user.contains('.') => Some(token_of(&channel_from(served, address).await, user).await),
            forged => forged.map(str::to_owned),
        };
        By { client: HttpClient::builder(TokioExecutor::new()).build(connector), token }
    }

    /// The status of the answer and the words of a refusal. Of a stream the first event counts.
    async fn ask(&self, served: &Served, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut request = hyper::Request::builder().method(method).uri(format!("http://{}{path}", served.address));
        if let Some(token) = &self.token {
            request = request.header("authorization", token);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
        let answer = self.client.request(request).await.unwrap();
        let status = answer.status().as_u16();
        let mut body = answer.into_body();
        let said = match path.ends_with("/events") && status == 200 {
            true => body.frame().await.unwrap().unwrap().into_data().unwrap(),
            false => body.collect().await.unwrap().to_bytes(),
        };
        (status, String::from_utf8_lossy(&said).into_owned())
    }
}

/// The refusal of a caller that lacks what a call needs.
fn refusal(label: &str) -> (u16, &'static str) {
    match label {
        "nobody" => (400, "etcdserver: user name is empty"),
        "a forged token" => (401, "etcdserver: invalid auth token"),
        _ => (403, "etcdserver: permission denied"),
    }
}

/// Goal: no call of ours tells, or does for, a weak caller what it may not. Method: every call by every caller; a call that is
/// permitted may fail for another reason, but not for want of a right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_of_ours_refuses_whom_it_must() {
    let served = guarded().await;
    let mut failures = Vec::new();
    for (label, address, user, has) in CALLERS {
        let by = By::of(&served, address, user).await;
        for (method, path, body, want) in CALLS {
            let (status, said) = by.ask(&served, method, path, body).await;
            let is_as_it_should = match has.contains(&want) {
                true => !matches!(status, 401 | 403) && !said.contains("user name is empty"),
                false => {
                    let (wanted, words) = refusal(label);
                    status == wanted && said.contains(words)
                }
            };
            if !is_as_it_should {
                failures.push(format!("{label}: {method} {path}, which needs {want:?}: {status} {said}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Goal: a caller without a user learns nothing from a call but that it is refused, and changes nothing. Method: bodies that are
/// wrong, whose faults are told to users.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_body_is_told_to_users_alone() {
    let served = guarded().await;
    let (proposals, leases) = (served.double.proposals(), served.double.view().leases().len());
    let by_user = By::of(&served, 1, Some("norole")).await;
    for (path, body, fault) in [
        ("/v1/leases", "no JSON", "the request's body"),
        ("/v1/leases", r#"{"ttl_millis": 0}"#, "ttl_millis is at least 1"),
        ("/v1/leases/keepalive", r#"{"ids": ["-1"]}"#, "ids are in hex"),
        ("/v1/leases/else", "{}", "is no call"),
    ] {
        for (label, address, user) in
            [("nobody", 1, None), ("a foreign certificate", 9, None), ("a forged token", 1, Some("forged.token"))]
        {
            let by = By::of(&served, address, user).await;
            let (status, said) = by.ask(&served, "POST", path, body).await;
            let (wanted, words) = refusal(label);
            assert!(status == wanted && said.contains(words), "{label} {path} {body}: {status} {said}");
        }
        let (_, said) = by_user.ask(&served, "POST", path, body).await;
        assert!(said.contains(fault), "a user, {path} {body}: {said}");
    }
    assert_eq!((served.double.proposals(), served.double.view().leases().len()), (proposals, leases));
}

/// Goal: nobody holds a tether on a lease whose keys it may not write, for its end would end them. Method: every caller asks for one,
/// on the lease whose key is in `r/...` and on one with a key elsewhere; those that are refused hang up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tether_is_held_by_whoever_may_write_the_keys() {
    let served = guarded().await;
    // The end of one that is held would end the lease for those after it.
    let mut held = Vec::new();
    for (label, address, user, has) in CALLERS {
        let by = By::of(&served, address, user).await;
        for (lease, want) in [("65", Want::Writer), ("69", Want::Root)] {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind((IpAddr::from([127, 0, 0, address]), 0).into()).unwrap();
            let mut stream = socket.connect(served.address.parse().unwrap()).await.unwrap();
            let from = stream.local_addr().unwrap().to_string();
            let token = by.token.as_ref().map_or(String::new(), |token| format!("authorization: {token}\r\n"));
            let answer = ask_for_tether(&mut stream, lease, &from, &token).await;
            let wanted = match (has.contains(&want), label) {
                (true, _) => "HTTP/1.1 101",
                (false, "nobody" | "a forged token") => "HTTP/1.1 401",
                (false, _) => "HTTP/1.1 403",
            };
            assert!(answer.starts_with(wanted), "{label}, lease {lease}: {answer}");
            if has.contains(&want) {
                held.push(stream);
            }
        }
    }
    for lease in [0x65, 0x69] {
        assert!(served.double.view().has_lease(lease), "a caller that was refused has ended lease {lease:x}");
    }
    assert_eq!(held.len(), 3, "the writer holds one, root both");
}
