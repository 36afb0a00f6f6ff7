//! The few calls of Consul's API that an election needs: [`Consul`].

use super::dialler::Dialler;
use crate::address::{Secret, Security, StoreAddress};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hustings_tls::Obstacle;
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The longest answer that is read; a value has 512 KiB at most.
const BODY_MAX: usize = 4 << 20;

/// Flags with which Consul's own programs mark the keys that they lock, and which they expect there.
const LOCK_FLAGS: u64 = 0x2ddc_cbc0_58a5_0c18;

/// A way to a cluster: one of its agents, and the next one when that is silent.
pub(super) struct Consul {
    place: Place,
    current: AtomicUsize,
    token: Option<Secret>,
    dialler: Dialler,
    client: Client<Dialler, Full<Bytes>>,
}

/// The addresses of agents, and their TLS settings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    endpoints: Vec<String>,
    security: Security,
}

impl Place {
    pub(crate) fn of(address: &StoreAddress) -> Place {
        Place { endpoints: address.endpoints.clone(), security: address.security.clone() }
    }
}

/// The reason why there is no answer, or none that was hoped for; in words that name the agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// The request never left.
    Unreachable(String),
    /// The request was perhaps done: there was no answer.
    Unknown(String),
    /// It was not done.
    Refused(String),
    /// It was not done: the servers grant no session with such a time to live.
    Untimely(String),
    /// The request was not done: the user may not.
    Denied(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failure::Unreachable(why)
        | Failure::Unknown(why)
        | Failure::Refused(why)
        | Failure::Untimely(why)
        | Failure::Denied(why)) = self;
        why.fmt(f)
    }
}

struct Reply {
    status: StatusCode,
    /// Index of the state that was read; only answers of Consul to reads have it.
    index: Option<u64>,
    body: Bytes,
    from: String,
}

/// A key with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) key: String,
    pub(super) value: Vec<u8>,
    /// The session that locks it.
    pub(super) session: Option<String>,
    /// The index of the write that made it what it is.
    pub(super) index: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Kv {
    key: String,
    value: Option<String>,
    session: Option<String>,
    modify_index: u64,
}

/// The answer to a transaction that reads.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Read {
    results: Option<Vec<ReadOne>>,
}

#[derive(Deserialize)]
struct ReadOne {
    #[serde(rename = "KV")]
    kv: Kv,
}

/// The answer to a read that waits for a change.
pub(super) struct Awaited {
    pub(super) found: Option<Found>,
    pub(super) index: u64,
}

impl Consul {
    /// The token is the environment's.
    pub(super) fn new(place: &Place) -> Consul {
        let dialler = Dialler::new(&place.security);
        let token = std::env::var("CONSUL_HTTP_TOKEN").ok().filter(|token| !token.is_empty()).map(Secret);
        let client = Client::builder(TokioExecutor::new()).build(dialler.clone());
        Consul { place: place.clone(), current: AtomicUsize::new(0), token, dialler, client }
    }

    /// Reads the files that TLS needs.
    ///
    /// # Errors
    /// One cannot be read or is not what it should be.
    pub(super) fn check(&self) -> Result<(), String> {
        self.dialler.check()
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn endpoints(&self) -> &[String] {
        &self.place.endpoints
    }

    /// The agent that is asked now is silent: the next one.
    pub(super) fn move_on(&self) {
        self.current.fetch_add(1, Ordering::Relaxed);
    }

    async fn call(&self, method: Method, path: &str, body: Vec<u8>) -> Result<Reply, Failure> {
        let endpoints = self.endpoints();
        let endpoint = &endpoints[self.current.load(Ordering::Relaxed) % endpoints.len()];
        let scheme = if self.place.security.tls().is_some() { "https" } else { "http" };
        let mut request = Request::builder().method(method).uri(format!("{scheme}://{endpoint}/v1/{path}"));
        if let Some(Secret(token)) = &self.token {
            request = request.header("X-Consul-Token", token.as_str());
        }
        let request = request.body(Full::new(body.into()));
        let request = request.map_err(|error| {
            Failure::Refused(format!("{endpoint}: not a request: {error}; see the URL and CONSUL_HTTP_TOKEN"))
        })?;
        let answered = self.client.request(request).await.map_err(|error| {
            self.move_on();
            let remedy = match Obstacle::behind(&error) {
                Some(Obstacle::OurCertificate) => {
                    "; it asks for a certificate that it knows: give cert=FILE and key=FILE behind the `?` of its URL, or \
                     CONSUL_CLIENT_CERT and CONSUL_CLIENT_KEY"
                }
                // The others are told by the handshake itself.
                _ if is_no_http(&error) => {
                    "; what answers there speaks no HTTP: give the agent's HTTP address, whose port is 8500 unless its configuration \
                     says otherwise, and `?tls` behind the URL where it speaks TLS"
                }
                _ => "",
            };
            let why = format!("{endpoint}: {}{remedy}", causes(&error));
            if error.is_connect() { Failure::Unreachable(why) } else { Failure::Unknown(why) }
        })?;
        let (head, body) = answered.into_parts();
        let body = Limited::new(body, BODY_MAX).collect().await;
        let body = body.map_err(|error| {
            self.move_on();
            Failure::Unknown(format!("{endpoint}: {error}"))
        })?;
        let body = body.to_bytes();
        let says = || {
            let text = String::from_utf8_lossy(&body).chars().take(200).collect::<String>();
            format!("{endpoint} answers {}: {}", head.status.as_u16(), text.trim())
        };
        match head.status.as_u16() {
            // The answer is a 500, as for what passes: its words alone tell, and end with what is granted.
            400.. if String::from_utf8_lossy(&body).contains("Invalid Session TTL") => {
                return Err(Failure::Untimely(says()));
            }
            // Too much was asked of this agent, or of the servers: that passes.
            429 | 500.. => {
                self.move_on();
                return Err(Failure::Unknown(says()));
            }
            401 | 403 => {
                let whose = if self.token.is_some() { "the token in" } else { "no token is in" };
                return Err(Failure::Denied(format!(
                    "{}; {whose} CONSUL_HTTP_TOKEN: it needs session:write and key:write",
                    says()
                )));
            }
            // An agent whose port speaks TLS says this.
            400 if String::from_utf8_lossy(&body).contains("to an HTTPS server") => {
                return Err(Failure::Refused(format!(
                    "{}; say so: `?cacert=FILE` behind the store's URL, or CONSUL_HTTP_SSL=true with CONSUL_CACERT",
                    says()
                )));
            }
            400 | 413 => return Err(Failure::Refused(says())),
            _ => {}
        }
        let index = head.headers.get("X-Consul-Index").and_then(|index| index.to_str().ok()?.parse().ok());
        Ok(Reply { status: head.status, index, body, from: endpoint.clone() })
    }

    /// Opens a session; gives its id.
    pub(super) async fn create_session(&self, ttl: Duration) -> Result<String, Failure> {
        let body = json!({
            "Name": "hustings",
            "TTL": format!("{}ms", ttl.as_millis()),
            "LockDelay": "0s",
            "Behavior": "release",
            // The second is what 1.7 and later call the first.
            "Checks": [],
            "NodeChecks": [],
        });
        let reply = self.call(Method::PUT, "session/create", body.to_string().into()).await?;
        let id = serde_json::from_slice::<Value>(&reply.body)
            .ok()
            .and_then(|answer| Some(answer["ID"].as_str()?.to_owned()));
        id.filter(|_| reply.status.is_success()).ok_or_else(|| reply.stranger())
    }

    /// Whether the session is there still, and is extended.
    pub(super) async fn renew_session(&self, id: &str) -> Result<bool, Failure> {
        let reply = self.call(Method::PUT, &format!("session/renew/{id}"), Vec::new()).await?;
        match reply.status {
            // A path that something else does not know is no session that has gone.
            StatusCode::NOT_FOUND if reply.body.starts_with(b"Session id") => Ok(false),
            StatusCode::OK if is_json(&reply.body) => Ok(true),
            _ => Err(reply.stranger()),
        }
    }

    pub(super) async fn destroy_session(&self, id: &str) -> Result<(), Failure> {
        self.call(Method::PUT, &format!("session/destroy/{id}"), Vec::new()).await.map(drop)
    }

    /// Reads a key, linearizably.
    pub(super) async fn get(&self, key: &str) -> Result<Option<Found>, Failure> {
        let found = self.read(&format!("kv/{}?consistent", escaped(key))).await?.0;
        Ok(found.into_iter().next())
    }

    /// Reads these keys in one step, linearizably; those that are there are found.
    pub(super) async fn get_each(&self, keys: &[&str]) -> Result<Vec<Found>, Failure> {
        let reads: Vec<Value> = keys.iter().map(|key| Op::Find { key }.to_json()).collect();
        // Consul writes no entry to its log for operations that all read.
        let reply = self.call(Method::PUT, "txn?consistent", Value::from(reads).to_string().into()).await?;
        let answer: Read = serde_json::from_slice(&reply.body).map_err(|_| reply.stranger())?;
        let found: Option<Vec<Found>> = answer.results.into_iter().flatten().map(|one| one.kv.into_found()).collect();
        let found = found.ok_or_else(|| reply.stranger())?;
        Ok(found.into_iter().filter(|found| keys.contains(&found.key.as_str())).collect())
    }

    /// Reads a key once it has another index than this one, or this much time has passed; at once for 0.
    pub(super) async fn get_after(&self, key: &str, index: u64, wait: Duration) -> Result<Awaited, Failure> {
        let path = format!("kv/{}?consistent&index={index}&wait={}ms", escaped(key), wait.as_millis());
        let (found, index) = self.read(&path).await?;
        Ok(Awaited { found: found.into_iter().next(), index })
    }

    async fn read(&self, path: &str) -> Result<(Vec<Found>, u64), Failure> {
        let reply = self.call(Method::GET, path, Vec::new()).await?;
        let index = reply.index.ok_or_else(|| reply.stranger())?;
        if reply.status == StatusCode::NOT_FOUND {
            return Ok((Vec::new(), index));
        }
        let kvs: Vec<Kv> = serde_json::from_slice(&reply.body).map_err(|_| reply.stranger())?;
        let found: Option<Vec<Found>> = kvs.into_iter().map(Kv::into_found).collect();
        Ok((found.ok_or_else(|| reply.stranger())?, index))
    }

    /// All of these, or none: the index of the write, or which operation failed and why.
    pub(super) async fn transact(&self, operations: &[Op<'_>]) -> Result<Result<u64, (usize, String)>, Failure> {
        let body: Vec<Value> = operations.iter().map(|operation| operation.to_json()).collect();
        let reply = self.call(Method::PUT, "txn", Value::from(body).to_string().into()).await?;
        let answer: Value = serde_json::from_slice(&reply.body).map_err(|_| reply.stranger())?;
        if reply.status == StatusCode::CONFLICT {
            let first = &answer["Errors"][0];
            let place = first["OpIndex"].as_u64().and_then(|place| usize::try_from(place).ok());
            let place = place.ok_or_else(|| reply.stranger())?;
            return Ok(Err((place, first["What"].as_str().unwrap_or_default().to_owned())));
        }
        let results = answer["Results"].as_array().ok_or_else(|| reply.stranger())?;
        Ok(Ok(results.last().and_then(|last| last["KV"]["ModifyIndex"].as_u64()).unwrap_or(0)))
    }

    /// The agent's version, if it tells.
    pub(super) async fn version(&self) -> Option<String> {
        let reply = self.call(Method::GET, "agent/self", Vec::new()).await.ok()?;
        let answer: Value = serde_json::from_slice(&reply.body).ok()?;
        Some(answer["Config"]["Version"].as_str()?.to_owned())
    }
}

impl Reply {
    fn stranger(&self) -> Failure {
        Failure::Unknown(format!("{}: what answers there is no Consul", self.from))
    }
}

impl Kv {
    fn into_found(self) -> Option<Found> {
        let value = BASE64_STANDARD.decode(self.value.unwrap_or_default()).ok()?;
        let session = self.session.filter(|session| !session.is_empty());
        Some(Found { key: self.key, value, session, index: self.modify_index })
    }
}

/// One operation of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op<'a> {
    /// The key has this index, or, for 0, is not there.
    Check {
        key: &'a str,
        index: u64,
    },
    /// Reads the key, and those that begin with it: a transaction that reads one alone fails where it is not there.
    Find {
        key: &'a str,
    },
    Set {
        key: &'a str,
        value: &'a [u8],
    },
    /// Writes if the key has this index, or, for 0, is not there.
    Swap {
        key: &'a str,
        value: &'a [u8],
        index: u64,
    },
    Delete {
        key: &'a str,
    },
    Lock {
        key: &'a str,
        value: &'a [u8],
        session: &'a str,
    },
    Unlock {
        key: &'a str,
        session: &'a str,
    },
}

impl Op<'_> {
    fn to_json(self) -> Value {
        let encoded = |value: &[u8]| BASE64_STANDARD.encode(value);
        let kv = match self {
            Op::Check { key, index: 0 } => json!({ "Verb": "check-not-exists", "Key": key }),
            Op::Check { key, index } => json!({ "Verb": "check-index", "Key": key, "Index": index }),
            Op::Find { key } => json!({ "Verb": "get-tree", "Key": key }),
            Op::Set { key, value } => json!({ "Verb": "set", "Key": key, "Value": encoded(value) }),
            Op::Swap { key, value, index } => {
                json!({ "Verb": "cas", "Key": key, "Value": encoded(value), "Index": index })
            }
            Op::Delete { key } => json!({ "Verb": "delete", "Key": key }),
            Op::Lock { key, value, session } => {
                json!({
                    "Verb": "lock", "Key": key, "Value": encoded(value), "Session": session, "Flags": LOCK_FLAGS,
                })
            }
            Op::Unlock { key, session } => json!({
                "Verb": "unlock", "Key": key, "Session": session, "Flags": LOCK_FLAGS,
            }),
        };
        json!({ "KV": kv })
    }
}

fn is_json(body: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok()
}

/// A key as a part of a URL.
fn escaped(key: &str) -> String {
    key.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => text.push(char::from(byte)),
            _ => text += &format!("%{byte:02X}"),
        }
        text
    })
}

/// An error with what caused it: the outermost alone says little.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// Whether what was answered is no HTTP at all.
fn is_no_http(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_part_of_a_url_whatever_it_holds() {
        assert_eq!(escaped("team/billing-1.note"), "team/billing-1.note");
        assert_eq!(escaped("a b?c=ü%"), "a%20b%3Fc%3D%C3%BC%25");
    }

    #[test]
    fn operations_are_what_the_api_says() {
        let absent = Op::Check { key: "a", index: 0 }.to_json();
        assert_eq!(absent, json!({ "KV": { "Verb": "check-not-exists", "Key": "a" } }));
        let lock = Op::Lock { key: "a", value: b"x", session: "s" }.to_json();
        assert_eq!((&lock["KV"]["Verb"], &lock["KV"]["Value"]), (&json!("lock"), &json!("eA==")));
    }
}
