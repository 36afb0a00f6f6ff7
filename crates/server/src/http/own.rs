//! Our own HTTP calls about leases, the revision and recordings, for what etcd's API has no words for.
//!
//! ```text
//!   POST /v1/leases            {"ttl_millis": 300}         grants a lease that lives for less than a second
//!   POST /v1/leases/keepalive  {"ids": ["7f", "80"]}       renews many leases with one message, and one log entry
//!   POST /v1/revision          {"at_least": 1000000}       the revision goes on from there, where it is below
//!   GET  /v1/leases/ID/tether                              see [`crate::http::tether`]
//!   GET  /v1/recording                                     what this member was told, for `hustings why` and `replay`
//! ```
//!
//! Ids are in hex, as etcdctl prints them. A lease granted here is a lease like any other: etcd's calls renew, show and
//! revoke it, in whole seconds.
//!
//! Read next: [`crate::http::elections`], what is told of elections.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hustings_core::ApplyVersion;
use hustings_kv::{
    Command, LeaseGrant, LeaseKeepAlive, LeaseKeys, Need, RaiseRevision, Response as Applied, ShortLeaseGrant,
};
use hustings_recorder::ring::{length_of_all, read_all};
use hyper::body::Body as HttpBody;
use hyper::header::AUTHORIZATION;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde::Deserialize;
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

/// The largest body of a call, bytes.
const BODY_MAX: usize = 1 << 20;

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

pub(crate) fn millis(time: Duration) -> u64 {
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

/// Answers `/v1/recording`: the files of this member's recorder, one after the other. Nothing that clients wrote is in them; but
/// all members and their addresses are.
pub(crate) async fn answer_recording<B: Backend>(services: &Services<B>, caller: &Caller) -> Response<Body> {
    let read = async {
        services.require(caller, Need::Root).await?;
        let nothing = || Status::not_found("this member records nothing: it was started with --ring off");
        let directory = services.options.data_dir.as_ref().map(|directory| directory.join("recording"));
        let directory = directory.ok_or_else(nothing)?;
        let memory = services.memory.clone();
        let read = services.build(move || {
            if !directory.is_dir() {
                return Err(nothing());
            }
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
