//! Our own HTTP calls about leases and elections, for what etcd's API has no words for.
//!
//! ```text
//!   POST /v1/leases            {"ttl_millis": 300}         grants a lease that lives for less than a second
//!   POST /v1/leases/keepalive  {"ids": ["7f", "80"]}       renews many leases with one message, and one log entry
//!   POST /v1/revision          {"at_least": 1000000}       the revision goes on from there, where it is below
//!   GET  /v1/leases/ID/tether                              see [`crate::http::tether`]
//!   GET  /v1/elections[?name=NAME]                         name, holder, token, since when, why it moved last
//!   GET  /v1/recording                                     what this member was told, for `hustings why` and `replay`
//! ```
//!
//! Ids are in hex, as etcdctl prints them. A lease granted here is a lease like any other: etcd's calls renew, show and
//! revoke it, in whole seconds.
//!
//! An election is seen by the keys of its candidates: `NAME/<lease in hex>`, attached to that lease. So those of our library
//! and sidecar are told, and those of every client of etcd that uses its recipe; and what it costs grows with the keys that
//! hang on leases, not with the store. An election that is asked for by its name is told with what stands in its way, an entry
//! that nobody's lease ends, and when nobody leads any more.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hustings_api::client::prefix_end;
use hustings_core::ApplyVersion;
use hustings_kv::{
    Command, KeyValue, LeaseGrant, LeaseKeepAlive, LeaseKeys, Need, RaiseRevision, Range, Response as Applied,
    ShortLeaseGrant, View,
};
use hustings_lease::Token;
use hustings_lease::history::History;
use hustings_recorder::ring::{length_of_all, read_all};
use hyper::body::Body as HttpBody;
use hyper::header::AUTHORIZATION;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::error;
use crate::context::memory::{Held, Weight};
use crate::context::{Learner, Services};
use crate::http;
use crate::http::body::Body;
use crate::http::gateway::refuse;
use crate::http::hosts;
use crate::services::campaign::read_key;

/// The largest body of a call, bytes.
const BODY_MAX: usize = 1 << 20;

/// Most candidates that one answer looks at, so that it pins no more than some tens of megabytes.
const CANDIDATES_MAX: usize = 100_000;

/// First apply version in which leases live for milliseconds.
const SHORT_LEASES_FROM: ApplyVersion = ApplyVersion(2);

/// First apply version in which the revision may be raised.
const RAISES_FROM: ApplyVersion = ApplyVersion(3);

/// Most leases that one message renews.
const IDS_MAX: usize = 8_192;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Grant {
    ttl_millis: u64,
    #[serde(default)]
    id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeepAlive {
    ids: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raise {
    at_least: i64,
}

/// Answers `/v1/leases...` and `/v1/revision`.
pub(crate) async fn answer_leases<B: Backend, T>(services: &Services<B>, request: Request<T>) -> Response<Body>
where
    T: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    T::Error: std::error::Error + Send + Sync + 'static,
{
    let answered = move |Posted { caller, head, body }: Posted| async move {
        match head.uri.path() {
            "/v1/leases" => services.grant_short(&caller, read(&body)?).await,
            "/v1/revision" => services.raise_revision(&caller, read(&body)?).await,
            "/v1/leases/keepalive" => services.keep_many_alive(&caller, read(&body)?).await,
            path => Err(Status::not_found(format!(
                "{path} is no call: there are /v1/leases, /v1/leases/keepalive and /v1/revision"
            ))),
        }
    };
    answer_post(services, request, Learner::Refuses, BODY_MAX, answered).await
}

/// A call of ours that brings something, its caller known and its body within its bound.
pub(crate) struct Posted {
    pub(crate) caller: Caller,
    pub(crate) head: Parts,
    pub(crate) body: Bytes,
}

/// Answers a POST of at most `body_bytes_max`: refuses other methods and pages of somebody else, finds out who calls, and tells
/// as JSON what `answered` says.
pub(crate) async fn answer_post<B: Backend, T, A>(
    services: &Services<B>,
    request: Request<T>,
    learner: Learner,
    body_bytes_max: usize,
    answered: impl FnOnce(Posted) -> A,
) -> Response<Body>
where
    A: Future<Output = Result<Value, Status>>,
    T: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    T::Error: std::error::Error + Send + Sync + 'static,
{
    let (head, body) = request.into_parts();
    if head.method != Method::POST {
        return http::text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n".to_owned());
    }
    if let Some(refusal) = hosts::refusal(&head, &services.options) {
        return refusal;
    }
    let answer = async {
        let caller = admit(services, &head, learner).await?;
        // The body of a caller without a user is not read: what is wrong with it is told to users alone.
        services.require(&caller, Need::User).await?;
        let body = Limited::new(body, body_bytes_max).collect().await;
        let body = body.map_err(|why| Status::invalid_argument(format!("the request's body: {why}")))?.to_bytes();
        answered(Posted { caller, head, body }).await
    };
    match answer.await {
        Ok(value) => http::json(StatusCode::OK, &value),
        Err(status) => refuse(&status),
    }
}

/// Finds out who makes a call of ours: as etcd's calls do, by the header `Authorization` or the connection's certificate.
pub(crate) async fn admit<B: Backend>(
    services: &Services<B>,
    head: &Parts,
    learner: Learner,
) -> Result<Caller, Status> {
    let mut metadata = MetadataMap::new();
    if let Some(token) = head.headers.get(AUTHORIZATION).and_then(|token| token.to_str().ok()?.parse().ok()) {
        metadata.insert("authorization", token);
    }
    services.check(&metadata, learner)?;
    services.caller(&metadata, &head.extensions).await
}

/// Reads a body as JSON.
pub(crate) fn read<'a, Q: Deserialize<'a>>(body: &'a [u8]) -> Result<Q, Status> {
    serde_json::from_slice(body).map_err(|why| Status::invalid_argument(format!("the request's body: {why}")))
}

fn id_of(text: &str) -> Result<i64, Status> {
    let id = i64::from_str_radix(text, 16).ok().filter(|id| *id > 0);
    id.ok_or_else(|| Status::invalid_argument(format!("{text:?} is no lease: ids are in hex, as in 694d7e1c2a")))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl<B: Backend> Services<B> {
    async fn grant_short(&self, caller: &Caller, Grant { ttl_millis, id }: Grant) -> Result<Value, Status> {
        if ttl_millis == 0 {
            return Err(Status::invalid_argument("ttl_millis is at least 1"));
        }
        // As for whole seconds: a failover must end no lease.
        let length = Duration::from_millis(ttl_millis).max(self.options.timing.election_max.saturating_mul(3) / 2);
        let id = match id {
            Some(id) => id_of(&id)?,
            None => (rand::random::<i64>() & i64::MAX).max(1),
        };
        // While some member is of an older build, whole seconds are granted.
        let command = match self.node_status().version >= SHORT_LEASES_FROM {
            true => Command::ShortLeaseGrant(ShortLeaseGrant { id, ttl_millis: millis(length) }),
            false => {
                let ttl = i64::try_from(length.as_millis().div_ceil(1_000)).unwrap_or(i64::MAX);
                Command::LeaseGrant(LeaseGrant { id, ttl })
            }
        };
        let Applied::LeaseGrant { .. } = self.propose_growth(caller, command).await? else {
            return Err(error::mismatch());
        };
        let view = self.read_local(caller, Need::User).await?;
        let granted = view.lease_time_to_live(id, LeaseKeys::Omit).map_or(Duration::ZERO, |lease| lease.granted);
        Ok(json!({ "id": format!("{id:x}"), "ttl_millis": millis(granted) }))
    }

    /// Raises the revision of a store that is copied from another one: tokens that were given out there must not be given out again here.
    async fn raise_revision(&self, caller: &Caller, Raise { at_least }: Raise) -> Result<Value, Status> {
        if self.node_status().version < RAISES_FROM {
            return Err(Status::failed_precondition("some member is of an older build: upgrade all, then try again"));
        }
        if !(1..=RaiseRevision::MAX).contains(&at_least) {
            return Err(Status::invalid_argument(format!("at_least is 1 to {}", RaiseRevision::MAX)));
        }
        self.require(caller, Need::Root).await?;
        let raised = self.propose(caller, Command::RaiseRevision(RaiseRevision { revision: at_least })).await?;
        let Applied::Advance { revision } = raised else { return Err(error::mismatch()) };
        Ok(json!({ "revision": revision.to_string() }))
    }

    async fn keep_many_alive(&self, caller: &Caller, KeepAlive { ids }: KeepAlive) -> Result<Value, Status> {
        if ids.len() > IDS_MAX {
            return Err(Status::invalid_argument(format!("{} leases in one message: at most {IDS_MAX}", ids.len())));
        }
        let ids: Vec<i64> = ids.iter().map(|id| id_of(id)).collect::<Result<_, _>>()?;
        let renewed = self.propose(caller, Command::LeaseKeepAlive(LeaseKeepAlive { ids })).await?;
        let Applied::LeaseKeepAlive { renewed, .. } = renewed else { return Err(error::mismatch()) };
        let view = self.read_local(caller, Need::User).await?;
        let granted = |id| view.lease_time_to_live(id, LeaseKeys::Omit).map_or(0, |lease| millis(lease.granted));
        let leases: Vec<Value> = renewed
            .iter()
            .map(|(id, ttl)| json!({ "id": format!("{id:x}"), "ttl_millis": ttl.map_or(0, |_| granted(*id)) }))
            .collect();
        Ok(json!({ "leases": leases }))
    }
}

/// The value that our candidates write into their keys.
#[derive(Deserialize)]
struct Entry {
    id: String,
    #[serde(default)]
    value: String,
}

/// One election, as it is told.
#[derive(Serialize)]
pub(crate) struct ElectionStatus {
    name: String,
    /// Id of the leader; a stranger's value is told as it stands. `None` if nobody leads any more.
    holder: Option<String>,
    value: String,
    /// Token of the leadership, or of the last one.
    token: String,
    candidates: usize,
    /// The lease on which the leadership stands, in hex; 0 for an entry that no lease ends.
    lease: String,
    /// The lease's time to live, and what is left of it as far as this member knows.
    ttl_millis: u64,
    remaining_millis: u64,
    /// Moment at which it was won, by the winner's own clock, seconds since 1970; for people, nothing is decided by it.
    since_unix_seconds: Option<u64>,
    /// The end of the leadership before it, or of the last one; `None` if it is not told.
    because: Option<String>,
}

/// Answers `GET /v1/elections`: the elections of applications, with their holders.
pub(crate) async fn answer_elections<B: Backend>(
    services: &Services<B>,
    caller: &Caller,
    query: &str,
) -> Response<Body> {
    let name = query.split('&').find_map(|pair| pair.strip_prefix("name=")).map(str::to_owned);
    let told = async {
        // The keys of an election begin with its name; all elections are told to a user that may read everything.
        let (from, end) = match &name {
            Some(name) => (Bytes::copy_from_slice(name.as_bytes()), prefix_end(name.as_bytes())),
            None => (Bytes::from_static(b"\0"), Bytes::from_static(b"\0")),
        };
        let view = services.read(caller, Need::Read(&from, &end)).await?;
        services.build(move || elections(&view, name.as_deref())).await?
    };
    match told.await {
        Ok(elections) => http::json(StatusCode::OK, &json!({ "elections": elections })),
        Err(status) => refuse(&status),
    }
}

/// Answers `/v1/recording`: the files of this member's recorder, one after the other. Nothing that clients wrote is in them; but
/// all members and their addresses are.
pub(crate) async fn answer_recording<B: Backend>(services: &Services<B>, caller: &Caller) -> Response<Body> {
    let read = async {
        services.require(caller, Need::Root).await?;
        let directory = services.options.data_dir.as_ref().map(|directory| directory.join("recording"));
        let directory = directory.filter(|directory| directory.is_dir());
        let directory = directory
            .ok_or_else(|| Status::not_found("this member records nothing: it was started with --ring off"))?;
        let memory = services.memory.clone();
        let read = services.build(move || {
            let unreadable = |error| Status::internal(format!("the recording cannot be read: {error}"));
            // Before it is read, and until it is sent: it has as many bytes as `--ring-size` allows.
            let mut held = Held::nothing(&memory);
            held.resize(length_of_all(&directory).map_err(unreadable)?)?;
            let bytes = read_all(&directory).map_err(unreadable)?;
            held.resize(bytes.len())?;
            Ok::<_, Status>((Weight::holding(bytes.len(), held), bytes))
        });
        read.await?
    };
    match read.await {
        Ok((weight, bytes)) => {
            let mut response = http::respond(StatusCode::OK, "application/octet-stream", bytes.into());
            response.extensions_mut().insert(weight);
            response
        }
        Err(status) => refuse(&status),
    }
}

/// All elections that somebody stands for, by name; or the one that is asked for, also if somebody only did.
pub(crate) fn elections(view: &View, only: Option<&str>) -> Result<Vec<ElectionStatus>, Status> {
    let mut candidates: BTreeMap<String, Vec<KeyValue>> = BTreeMap::new();
    let mut seen = 0;
    for (lease, key) in view.leased_keys() {
        let Some(name) = election_of(key, lease).filter(|name| only.is_none_or(|only| only == *name)) else { continue };
        seen += 1;
        if seen > CANDIDATES_MAX {
            let why = format!("more than {CANDIDATES_MAX} candidates stand for election: ask for one with ?name=NAME");
            return Err(Status::resource_exhausted(why));
        }
        if let Some(kv) = read_key(view, &Bytes::copy_from_slice(key))? {
            candidates.entry(name.to_owned()).or_default().push(kv);
        }
    }
    if let Some(name) = only {
        let unleased = entries_without_lease(view, name)?;
        if !unleased.is_empty() {
            candidates.entry(name.to_owned()).or_default().extend(unleased);
        }
        if candidates.is_empty() {
            return Ok(vacancy(view, name)?.into_iter().collect());
        }
    }
    candidates.into_iter().map(|(name, keys)| told(view, name, keys)).collect()
}

/// Entries that no lease ends: they stand in the queue until somebody deletes them.
fn entries_without_lease(view: &View, name: &str) -> Result<Vec<KeyValue>, Status> {
    let prefix = Bytes::from(format!("{name}/"));
    let (range_end, limit) = (prefix_end(&prefix), i64::try_from(CANDIDATES_MAX).unwrap_or(i64::MAX));
    let range = Range { key: prefix.clone(), range_end, limit, keys_only: true, ..Range::default() };
    let keys = view.range(&range).map_err(error::of_store)?.kvs.into_iter();
    let is_entry = |key: &[u8]| !key.is_empty() && key.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let unleased = keys.filter(|kv| kv.lease == 0 && is_entry(&kv.key[prefix.len()..]));
    unleased.filter_map(|kv| read_key(view, &kv.key).transpose()).collect()
}

/// An election that somebody has led, and nobody stands for: its last leadership, and how that ended.
fn vacancy(view: &View, name: &str) -> Result<Option<ElectionStatus>, Status> {
    let history = History::parse(&text_at(view, &format!("{name}.history"))?.unwrap_or_default());
    let note = text_at(view, &format!("{name}.note"))?.and_then(|text| serde_json::from_str::<LastWords>(&text).ok());
    let Some(last) = history.tenures().next_back() else { return Ok(None) };
    let note = note.filter(|note| note.token == last.token.to_string());
    Ok(Some(ElectionStatus {
        name: name.to_owned(),
        holder: None,
        value: String::new(),
        token: last.token.to_string(),
        candidates: 0,
        lease: String::new(),
        ttl_millis: 0,
        remaining_millis: 0,
        since_unix_seconds: None,
        because: Some(note.map_or_else(|| "left no note".to_owned(), |note| note.because)),
    }))
}

/// A leader's last words, as our candidates write them.
#[derive(Deserialize)]
struct LastWords {
    token: String,
    because: String,
}

fn text_at(view: &View, key: &str) -> Result<Option<String>, Status> {
    let kv = read_key(view, &Bytes::copy_from_slice(key.as_bytes()))?;
    Ok(kv.and_then(|kv| String::from_utf8(kv.value.to_vec()).ok()))
}

/// The election for which this key stands, if it does.
fn election_of(key: &[u8], lease: i64) -> Option<&str> {
    let (name, entry) = std::str::from_utf8(key).ok()?.rsplit_once('/')?;
    (!name.is_empty() && i64::from_str_radix(entry, 16) == Ok(lease)).then_some(name)
}

fn told(view: &View, name: String, keys: Vec<KeyValue>) -> Result<ElectionStatus, Status> {
    let candidates = keys.len();
    let first = keys.into_iter().min_by_key(|kv| kv.create_revision).expect("an election is known by its candidates");
    let generation =
        text_at(view, &format!("{name}.generation"))?.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let token = Token { generation, number: first.create_revision.unsigned_abs() };
    let history = History::parse(&text_at(view, &format!("{name}.history"))?.unwrap_or_default());
    let tenure = history.tenures().rev().find(|tenure| tenure.token == token);
    let (holder, value) = match serde_json::from_slice::<Entry>(&first.value) {
        Ok(entry) => (entry.id, entry.value),
        Err(_) => (String::from_utf8_lossy(&first.value).into_owned(), String::new()),
    };
    let lease = view.lease_time_to_live(first.lease, LeaseKeys::Omit);
    Ok(ElectionStatus {
        name,
        holder: Some(holder),
        value,
        token: token.to_string(),
        candidates,
        lease: format!("{:x}", first.lease),
        ttl_millis: lease.as_ref().map_or(0, |lease| millis(lease.granted)),
        remaining_millis: lease.as_ref().map_or(0, |lease| millis(lease.remaining)),
        since_unix_seconds: tenure.and_then(|tenure| tenure.since_unix_seconds),
        because: tenure.map(|tenure| tenure.before.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stands_for_an_election_if_it_ends_in_its_own_lease() {
        assert_eq!(election_of(b"team/billing/7f", 0x7f), Some("team/billing"));
        assert_eq!(election_of(b"team/billing/7f", 0x80), None);
        assert_eq!(election_of(b"/7f", 0x7f), None);
        assert_eq!(election_of(b"config", 0x7f), None);
        assert_eq!(election_of(b"\xff/7f", 0x7f), None);
    }
}
