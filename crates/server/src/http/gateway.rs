//! The JSON gateway: etcd's HTTP paths to the same services.
//!
//! Source: etcd 3.5's `google.api.http` annotations, grpc-gateway 1.16. A request is `POST /v3/...` with a JSON body; a
//! streamed answer is one line `{"result":...}` per message. `/v3beta` and `/v3alpha` name the same paths.
//!
//! Bodies are read as they come, so a watch can be asked for more while it runs; they are bounded.
//!
//! Read next: `hustings_api::json`, the mapping.

use std::future::Future;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{FutureExt, Stream, StreamExt, stream};
use http_body_util::{BodyExt, LengthLimitError, Limited, StreamBody};
use hustings_api::EtcdError;
use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::auth_server::Auth;
use hustings_api::etcdserverpb::cluster_server::Cluster;
use hustings_api::etcdserverpb::kv_server::Kv;
use hustings_api::etcdserverpb::lease_server::Lease;
use hustings_api::etcdserverpb::maintenance_server::Maintenance;
use hustings_api::json::{self, GatewayError};
use hustings_api::v3electionpb::election_server::Election;
use hustings_api::v3lockpb::lock_server::Lock;
use hyper::body::{Body as HttpBody, Frame};
use hyper::header::{AUTHORIZATION, HeaderMap};
use hyper::http::Extensions;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::json;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use crate::context::backend::Backend;
use crate::context::caller::{Caller, CommonName};
use crate::context::error;
use crate::context::memory::{Held, Weight};
use crate::context::permissions;
use crate::context::serving::StreamEnd;
use crate::context::{Learner, Services, insists_on_leader, off_the_loop};
use crate::http::body::Body;
use crate::http::hosts;
use crate::http::{respond, text};
use crate::services::election::observe;
use crate::services::lease::keep_alive;
use crate::watch::watch;

const JSON: &str = "application/json";

/// Paths that are answered by a stream of lines.
const STREAMS: [&str; 4] = ["watch", "lease/keepalive", "election/observe", "maintenance/snapshot"];

/// The gateway's part of a path; `None` when the path is not the gateway's.
pub(crate) fn route(path: &str) -> Option<&str> {
    ["/v3/", "/v3beta/", "/v3alpha/"].iter().find_map(|version| path.strip_prefix(version))
}

/// Whether a path's body is read for as long as the client likes.
pub(crate) fn reads_on(path: &str) -> bool {
    matches!(path, "watch" | "lease/keepalive")
}

/// Answers a request to the gateway.
pub(crate) async fn answer<B: Backend, T>(services: &Services<B>, request: Request<T>) -> Response<Body>
where
    T: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    T::Error: std::error::Error + Send + Sync + 'static,
{
    if request.method() != Method::POST {
        return text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n".to_owned());
    }
    let (head, body) = request.into_parts();
    if let Some(refusal) = hosts::refusal(&head, &services.options) {
        return refusal;
    }
    let deadline = match deadline_of(&head.headers) {
        Ok(Some(deadline)) => Instant::now().checked_add(deadline),
        Ok(None) => None,
        Err(status) => return refuse(&status),
    };
    let Some(deadline) = deadline else { return carry_out(services, head, body).await };
    let is_stream = STREAMS.contains(&route(head.uri.path()).unwrap_or_default());
    // A call that is dropped takes back what it had begun, as when its client hangs up.
    match tokio::time::timeout_at(deadline, carry_out(services, head, body)).await {
        Ok(answer) if is_stream => answer.map(|body| ending_at(deadline, body)),
        Ok(answer) => answer,
        Err(_) if is_stream => refuse_stream(&late()),
        Err(_) => refuse(&late()),
    }
}

fn late() -> Status {
    Status::deadline_exceeded("context deadline exceeded")
}

/// A stream of lines that ends with an error at this moment, if it has not ended by then.
fn ending_at(deadline: Instant, body: Body) -> Body {
    let frames = stream::unfold(Some(body), move |body| async move {
        let mut body = body?;
        match tokio::time::timeout_at(deadline, body.frame()).await {
            Ok(frame) => frame.map(|frame| (frame, Some(body))),
            Err(_) => Some((Ok(Frame::data(line(stream_error(&late())))), None)),
        }
    });
    Body::new(StreamBody::new(frames))
}

/// The time that a client gives its call: grpc-gateway's header, digits and a unit as in gRPC.
fn deadline_of(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(told) = headers.get("grpc-timeout") else { return Ok(None) };
    let told = told.to_str().unwrap_or("?");
    let refused = || Status::invalid_argument(format!("invalid grpc-timeout: {told}"));
    let unit = told.chars().next_back().filter(char::is_ascii).ok_or_else(refused)?;
    let number: u64 = told[..told.len() - 1].parse().map_err(|_| refused())?;
    let deadline = match unit {
        'H' => Duration::from_secs(number.saturating_mul(3_600)),
        'M' => Duration::from_secs(number.saturating_mul(60)),
        'S' => Duration::from_secs(number),
        'm' => Duration::from_millis(number),
        'u' => Duration::from_micros(number),
        'n' => Duration::from_nanos(number),
        _ => return Err(refused()),
    };
    Ok(Some(deadline))
}

/// Answers a call that has the right form.
async fn carry_out<B: Backend, T>(services: &Services<B>, mut head: Parts, body: T) -> Response<Body>
where
    T: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    T::Error: std::error::Error + Send + Sync + 'static,
{
    let path = route(head.uri.path()).unwrap_or("").to_owned();
    let Some(row) = permissions::of_path(&path) else { return text(StatusCode::NOT_FOUND, "Not Found\n".to_owned()) };
    // As in etcd, where the gateway is a client of its own: the certificate of a connection proves nothing here.
    head.extensions.remove::<CommonName>();
    let metadata = metadata(&head.headers);
    let is_concurrency = row.method.starts_with("/v3");
    if let Err(status) = services.pass(row, &mut head, &metadata).await {
        let is_stream = STREAMS.contains(&path.as_str());
        return if is_stream { refuse_stream(&status) } else { refuse_as(status, is_concurrency) };
    }
    // Base64 takes four bytes for three.
    let limit = services.options.max_request_bytes / 3 * 4 + 512 * 1024;
    let call = Call { is_concurrency, metadata, extensions: head.extensions, body, limit };
    let s = services;
    match path.as_str() {
        "kv/range" => call.unary(|request| Kv::range(s, request)).await,
        "kv/put" => call.unary(|request| Kv::put(s, request)).await,
        "kv/deleterange" => call.unary(|request| Kv::delete_range(s, request)).await,
        "kv/txn" => call.unary(|request| Kv::txn(s, request)).await,
        "kv/compaction" => call.unary(|request| Kv::compact(s, request)).await,
        "watch" => streamed(call.watch(s).await),
        "lease/grant" => call.unary(|request| Lease::lease_grant(s, request)).await,
        "lease/revoke" | "kv/lease/revoke" => call.unary(|request| Lease::lease_revoke(s, request)).await,
        "lease/keepalive" => streamed(call.keep_alive(s).await),
        "lease/timetolive" | "kv/lease/timetolive" => call.unary(|request| Lease::lease_time_to_live(s, request)).await,
        "lease/leases" | "kv/lease/leases" => call.unary(|request| Lease::lease_leases(s, request)).await,
        "cluster/member/add" => call.unary(|request| Cluster::member_add(s, request)).await,
        "cluster/member/remove" => call.unary(|request| Cluster::member_remove(s, request)).await,
        "cluster/member/update" => call.unary(|request| Cluster::member_update(s, request)).await,
        "cluster/member/list" => call.unary(|request| Cluster::member_list(s, request)).await,
        "cluster/member/promote" => call.unary(|request| Cluster::member_promote(s, request)).await,
        "maintenance/alarm" => call.unary(|request| Maintenance::alarm(s, request)).await,
        "maintenance/status" => call.unary(|request| Maintenance::status(s, request)).await,
        "maintenance/defragment" => call.unary(|request| Maintenance::defragment(s, request)).await,
        // etcd 3.5 declares one path for both digests, and serves the whole store's there.
        "maintenance/hash" => call.unary(|request| Maintenance::hash(s, request)).await,
        "maintenance/hashkv" => call.unary(|request| Maintenance::hash_kv(s, request)).await,
        "maintenance/snapshot" => call.streaming(|request| Maintenance::snapshot(s, request)).await,
        "maintenance/transfer-leadership" => call.unary(|request| Maintenance::move_leader(s, request)).await,
        "maintenance/downgrade" => call.unary(|request| Maintenance::downgrade(s, request)).await,
        "election/campaign" => call.unary(|request| Election::campaign(s, request)).await,
        "election/proclaim" => call.unary(|request| Election::proclaim(s, request)).await,
        "election/leader" => call.unary(|request| Election::leader(s, request)).await,
        "election/observe" => streamed(call.observe(s).await),
        "election/resign" => call.unary(|request| Election::resign(s, request)).await,
        "lock/lock" => call.unary(|request| Lock::lock(s, request)).await,
        "auth/enable" => call.unary(|request| Auth::auth_enable(s, request)).await,
        "auth/disable" => call.unary(|request| Auth::auth_disable(s, request)).await,
        "auth/status" => call.unary(|request| Auth::auth_status(s, request)).await,
        "auth/authenticate" => call.unary(|request| Auth::authenticate(s, request)).await,
        "auth/user/add" => call.unary(|request| Auth::user_add(s, request)).await,
        "auth/user/get" => call.unary(|request| Auth::user_get(s, request)).await,
        "auth/user/list" => call.unary(|request| Auth::user_list(s, request)).await,
        "auth/user/delete" => call.unary(|request| Auth::user_delete(s, request)).await,
        "auth/user/changepw" => call.unary(|request| Auth::user_change_password(s, request)).await,
        "auth/user/grant" => call.unary(|request| Auth::user_grant_role(s, request)).await,
        "auth/user/revoke" => call.unary(|request| Auth::user_revoke_role(s, request)).await,
        "auth/role/add" => call.unary(|request| Auth::role_add(s, request)).await,
        "auth/role/get" => call.unary(|request| Auth::role_get(s, request)).await,
        "auth/role/list" => call.unary(|request| Auth::role_list(s, request)).await,
        "auth/role/delete" => call.unary(|request| Auth::role_delete(s, request)).await,
        "auth/role/grant" => call.unary(|request| Auth::role_grant_permission(s, request)).await,
        "auth/role/revoke" => call.unary(|request| Auth::role_revoke_permission(s, request)).await,
        "lock/unlock" => call.unary(|request| Lock::unlock(s, request)).await,
        _ => text(StatusCode::NOT_FOUND, "Not Found\n".to_owned()),
    }
}

/// The headers that the gateway hands on: those that begin with `Grpc-Metadata-`, and the token in `Authorization`.
fn metadata(headers: &HeaderMap) -> MetadataMap {
    let mut handed_on = HeaderMap::new();
    for (name, value) in headers {
        let name = name
            .as_str()
            .strip_prefix("grpc-metadata-")
            .and_then(|name| name.parse::<hyper::header::HeaderName>().ok());
        if let Some(name) = name {
            handed_on.append(name, value.clone());
        }
    }
    if let Some(token) = headers.get(AUTHORIZATION) {
        handed_on.insert(AUTHORIZATION, token.clone());
    }
    MetadataMap::from_headers(handed_on)
}

/// A request on its way to a service.
struct Call<T> {
    /// It is for a lock or an election.
    is_concurrency: bool,
    metadata: MetadataMap,
    extensions: Extensions,
    body: T,
    /// Greatest size of a message, in bytes.
    limit: usize,
}

impl<T> Call<T>
where
    T: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    T::Error: std::error::Error + Send + Sync + 'static,
{
    /// One message in, one out.
    async fn unary<Q, A, F>(self, serve: impl FnOnce(tonic::Request<Q>) -> F) -> Response<Body>
    where
        Q: DeserializeOwned + Default,
        A: Serialize + Send + 'static,
        F: Future<Output = Result<tonic::Response<A>, Status>>,
    {
        let is_concurrency = self.is_concurrency;
        let answer = async {
            let request = self.request().await?;
            let (_, message, mut extensions) = serve(request).await?.into_parts();
            let weight = extensions.remove::<Weight>();
            let is_large = weight.is_some();
            let encode = move || json::encode(&message);
            let body = if is_large { off_the_loop(encode).await?? } else { encode()? };
            Ok((body, weight))
        };
        match answer.await {
            Ok((body, weight)) => {
                let mut response = respond(StatusCode::OK, JSON, body.into());
                if let Some(weight) = weight {
                    response.extensions_mut().insert(weight);
                }
                response
            }
            Err(status) => refuse_as(status, is_concurrency),
        }
    }

    /// One message in, many out.
    async fn streaming<Q, A, S, F>(self, serve: impl FnOnce(tonic::Request<Q>) -> F) -> Response<Body>
    where
        Q: DeserializeOwned + Default,
        A: Serialize + 'static,
        S: Stream<Item = Result<A, Status>> + Send + 'static,
        F: Future<Output = Result<tonic::Response<S>, Status>>,
    {
        // A request that cannot be read has not begun to be answered.
        let request = match self.request().await {
            Ok(request) => request,
            Err(status) => return refuse(&status),
        };
        match serve(request).await {
            Ok(answers) => lines(answers.into_inner()),
            Err(status) => refuse_stream(&status),
        }
    }

    /// Finds out who calls, as each service does for itself, and what ends the stream that is asked for.
    async fn admit<B: Backend>(&self, services: &Services<B>) -> Result<(Caller, StreamEnd), Status> {
        services.check(&self.metadata, Learner::Refuses)?;
        let caller = services.caller(&self.metadata, &self.extensions).await?;
        Ok((caller, services.stream_end(insists_on_leader(&self.metadata))))
    }

    async fn watch<B: Backend>(self, services: &Services<B>) -> Result<Response<Body>, Status> {
        let (caller, stream_end) = self.admit(services).await?;
        let requests = self.messages::<pb::WatchRequest, B>(services);
        Ok(lines(watch(services.0.clone(), caller, Box::pin(requests), stream_end)))
    }

    async fn keep_alive<B: Backend>(self, services: &Services<B>) -> Result<Response<Body>, Status> {
        let (caller, stream_end) = self.admit(services).await?;
        let requests = self.messages::<pb::LeaseKeepAliveRequest, B>(services);
        Ok(lines(keep_alive(services.0.clone(), caller, Box::pin(requests), stream_end)))
    }

    async fn observe<B: Backend>(self, services: &Services<B>) -> Result<Response<Body>, Status> {
        let (caller, stream_end) = self.admit(services).await?;
        Ok(match self.request::<hustings_api::v3electionpb::LeaderRequest>().await {
            Ok(request) => lines(observe(services.0.clone(), caller, &request.get_ref().name, stream_end)),
            Err(status) => refuse(&status),
        })
    }

    fn messages<M, B: Backend>(
        self,
        services: &Services<B>,
    ) -> impl Stream<Item = Result<M, Status>> + Send + use<M, T, B>
    where
        M: DeserializeOwned + Default + Send,
    {
        let (limit, patience) = (self.limit, services.options.body_timeout);
        messages(self.body, Held::nothing(&services.memory), limit, patience)
    }

    async fn request<Q: DeserializeOwned + Default>(self) -> Result<tonic::Request<Q>, Status> {
        let body = Limited::new(self.body, self.limit).collect().await.map_err(|error| of_body(&*error))?.to_bytes();
        let mut request = tonic::Request::new(json::decode(&body)?);
        *request.metadata_mut() = self.metadata;
        *request.extensions_mut() = self.extensions;
        Ok(request)
    }
}

/// Translates the reason why a body could not be read.
fn of_body(error: &(dyn std::error::Error + 'static)) -> Status {
    match error.downcast_ref::<Status>() {
        Some(status) => status.clone(),
        None if error.is::<LengthLimitError>() => EtcdError::RequestTooLarge.into(),
        None => Status::invalid_argument(format!("the request's body could not be read: {error}")),
    }
}

/// The messages of a body, each as soon as it is whole. What has come of the next ones is held in the budget.
fn messages<M, T>(body: T, held: Held, limit: usize, patience: Duration) -> impl Stream<Item = Result<M, Status>> + Send
where
    M: DeserializeOwned + Default + Send,
    T: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    T::Error: std::error::Error + Send + Sync + 'static,
{
    stream::unfold(Some((body, BytesMut::new(), Scan::default(), held)), move |state| async move {
        let (mut body, mut buffer, mut scan, mut held) = state?;
        loop {
            match scan.whole(&buffer) {
                Ok(Some(length)) => {
                    let value = buffer.split_to(length);
                    return Some(match json::decode(&value) {
                        Ok(message) => (Ok(message), Some((body, buffer, Scan::default(), held))),
                        Err(status) => (Err(status), None),
                    });
                }
                Ok(None) => {}
                Err(status) => return Some((Err(status), None)),
            }
            if buffer.len() > limit {
                return Some((Err(EtcdError::RequestTooLarge.into()), None));
            }
            if let Err(status) = held.resize(buffer.len()) {
                return Some((Err(status), None));
            }
            let frame = match body.frame().now_or_never() {
                Some(frame) => frame,
                None if !scan.is_begun() => body.frame().await,
                None => match tokio::time::timeout(patience, body.frame()).await {
                    Ok(frame) => frame,
                    Err(_) => return Some((Err(Status::deadline_exceeded("the message did not come in time")), None)),
                },
            };
            match frame {
                Some(Ok(frame)) => buffer.extend(frame.into_data().ok()),
                Some(Err(error)) => return Some((Err(of_body(&error)), None)),
                None if !scan.is_begun() => return None,
                None => return Some((Err(Status::invalid_argument("unexpected EOF")), None)),
            }
        }
    })
}

/// The search for the end of a JSON object that comes in pieces: each byte is looked at once, however many pieces there are.
#[derive(Default)]
struct Scan {
    /// Bytes that were looked at.
    seen: usize,
    /// Objects and lists that are open.
    depth: usize,
    is_string: bool,
    is_escaped: bool,
    /// Bytes that were parsed, which tells of an error before the end.
    parsed: usize,
}

impl Scan {
    fn is_begun(&self) -> bool {
        self.depth > 0
    }

    /// The length of the first object, if it is whole.
    fn whole(&mut self, buffer: &[u8]) -> Result<Option<usize>, Status> {
        while let Some(byte) = buffer.get(self.seen) {
            self.seen += 1;
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.is_string => self.is_escaped = true,
                b'"' => self.is_string = !self.is_string,
                _ if self.is_string => {}
                b'{' => self.depth += 1,
                b'[' if self.depth > 0 => self.depth += 1,
                b'}' | b']' if self.depth > 1 => self.depth -= 1,
                b'}' | b']' if self.depth == 1 => return Ok(Some(self.seen)),
                _ => {}
            }
            if self.depth == 0 && !byte.is_ascii_whitespace() {
                return Err(Status::invalid_argument("a message is a JSON object: it begins with {"));
            }
        }
        // As often as there is twice as much: what can never be an object is refused before its end.
        if self.seen > 2 * self.parsed {
            self.parsed = self.seen;
            check_begun(buffer)?;
        }
        Ok(None)
    }
}

/// Refuses bytes with which no JSON value begins.
fn check_begun(buffer: &[u8]) -> Result<(), Status> {
    let mut values = serde_json::Deserializer::from_slice(buffer).into_iter::<IgnoredAny>();
    match values.next() {
        Some(Err(error)) if !error.is_eof() => Err(Status::invalid_argument(error.to_string())),
        _ => Ok(()),
    }
}

fn line(mut text: Vec<u8>) -> Bytes {
    text.push(b'\n');
    text.into()
}

/// A stream of answers as lines.
fn lines<A: Serialize + 'static>(answers: impl Stream<Item = Result<A, Status>> + Send + 'static) -> Response<Body> {
    #[derive(Serialize)]
    struct Line<'a, A> {
        result: &'a A,
    }
    let frames = answers.map(|answer| {
        let line = answer
            .and_then(|message| json::encode(&Line { result: &message }))
            .unwrap_or_else(|status| stream_error(&status));
        Ok::<_, std::convert::Infallible>(Frame::data(self::line(line)))
    });
    let mut response = Response::new(Body::new(StreamBody::new(frames)));
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, hyper::header::HeaderValue::from_static(JSON));
    response
}

/// An error within a stream, as grpc-gateway tells it.
fn stream_error(status: &Status) -> Vec<u8> {
    let http = http_status(status);
    let error = json!({ "error": {
        "grpc_code": status.code() as i32,
        "http_code": http.as_u16(),
        "message": status.message(),
        "http_status": http.canonical_reason().unwrap_or(""),
    } });
    error.to_string().into_bytes()
}

fn http_status(status: &Status) -> StatusCode {
    StatusCode::from_u16(json::http_status(status.code())).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// The code of gRPC that an answer over HTTP was refused with: several have one status there. It is for the audit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused(pub(crate) Code);

/// An error as grpc-gateway tells it.
pub(crate) fn refuse(status: &Status) -> Response<Body> {
    let body = json::encode(&GatewayError::from(status)).unwrap_or_default();
    refuse_with(status, body)
}

/// A stream's answer, or its refusal.
fn streamed(answer: Result<Response<Body>, Status>) -> Response<Body> {
    answer.unwrap_or_else(|status| refuse_stream(&status))
}

/// As [`refuse`], of a call whose answer is a stream.
fn refuse_stream(status: &Status) -> Response<Body> {
    refuse_with(status, stream_error(status))
}

fn refuse_with(status: &Status, body: Vec<u8>) -> Response<Body> {
    let mut response = respond(http_status(status), JSON, body.into());
    response.extensions_mut().insert(Refused(status.code()));
    response
}

/// As [`refuse`]; a caller whom a lock or an election refuses hears what etcd says there, and the audit the code that it was.
fn refuse_as(status: Status, is_concurrency: bool) -> Response<Body> {
    if !is_concurrency {
        return refuse(&status);
    }
    let code = status.code();
    let mut response = refuse(&error::of_concurrency(status));
    response.extensions_mut().insert(Refused(code));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::memory::Memory;
    use proptest::prelude::*;

    const PATIENCE: Duration = Duration::from_secs(1);

    /// A part of a budget that is large enough.
    fn nothing() -> Held {
        Held::nothing(&Memory::new(1 << 30))
    }

    /// The messages in a body that comes in these pieces.
    fn messages_in(pieces: impl IntoIterator<Item = Bytes>, limit: usize) -> Vec<Result<pb::WatchRequest, Status>> {
        let frames: Vec<_> =
            pieces.into_iter().map(|piece| Ok::<_, std::convert::Infallible>(Frame::data(piece))).collect();
        let body = StreamBody::new(stream::iter(frames));
        let messages = Box::pin(messages::<pb::WatchRequest, _>(body, nothing(), limit, PATIENCE));
        messages.collect::<Vec<_>>().now_or_never().expect("all of the body is there")
    }

    /// Goal: a message that comes a byte at a time costs a look at each byte, and not a look at all of it for each. Method: a megabyte of
    /// quotation marks and braces within a string, which would take the square of that.
    #[test]
    fn a_message_in_very_many_pieces_is_read_once() {
        let key = r#"\"}]{["#.repeat(170_000);
        let text = Bytes::from(format!(r#"{{"create_request":{{"key":"{key}"}}}}"#));
        let found = messages_in((0..text.len()).map(|at| text.slice(at..=at)), 2 << 20);
        assert!(matches!(&found[..], [Err(status)] if status.code() == Code::InvalidArgument), "this is no base64");
    }

    /// Goal: what can never be a message is refused as soon as that shows, and not when the client's time is up.
    #[test]
    fn what_is_no_object_is_refused_at_once() {
        for text in ["[7", "7", "\"text", " {]", r#"{"create_request":7x"#] {
            let pieces = stream::iter([Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from(text)))]);
            let body = StreamBody::new(pieces.chain(stream::pending()));
            let found =
                Box::pin(messages::<pb::WatchRequest, _>(body, nothing(), 1_000, PATIENCE)).next().now_or_never();
            assert!(matches!(found, Some(Some(Err(_)))), "{text}");
        }
    }

    proptest! {
        /// Goal: bytes of any kind, cut anywhere, are a message, a wait for more, or a refusal; never a panic.
        #[test]
        fn any_body_is_read_or_refused(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..6)) {
            messages_in(chunks.into_iter().map(Bytes::from), 100);
        }

        /// Goal: messages are found however the network cuts them.
        #[test]
        fn messages_are_found_across_frames(cut in 0usize..80) {
            let text = br#"{"create_request":{"key":"YQ=="}} {"cancel_request":{"watch_id":"7"}} "#;
            let cut = cut.min(text.len());
            let chunks = [Bytes::from_static(text).slice(..cut), Bytes::from_static(text).slice(cut..)];
            let found = messages_in(chunks, 1_000);
            prop_assert_eq!(found.len(), 2);
            prop_assert!(found.iter().all(Result::is_ok));
        }
    }
}
