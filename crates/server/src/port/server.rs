//! The port: connections, and which service a request is for.
//!
//! ```text
//!   listener ──► TLS? ──► first bytes ──► HTTP/2 ──► /package.Service/Method ──► gRPC services
//!                                    └──► HTTP/1.1 ─► /v3/..., /health, /metrics, /v1/...
//! ```
//!
//! gRPC wants HTTP/2 with prior knowledge, everything else comes over either. A request goes from hyper to its service
//! through one flat match; no router, no layers, so that a put costs what tonic costs and no more.
//!
//! Everything is bounded: connections, streams on each, the time to the first bytes, headers and bodies, header lists, and
//! the bytes that all clients together make this member hold ([`crate::context::memory`]).
//! While users count, a request passes [`crate::context::permissions`] on its way to its service, and has a line in the audit.
//!
//! Read next: [`crate::port`], [`crate::http`], [`crate::http::gateway`].

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hustings_api::etcdserverpb::auth_server::AuthServer;
use hustings_api::etcdserverpb::cluster_server::ClusterServer;
use hustings_api::etcdserverpb::kv_server::KvServer;
use hustings_api::etcdserverpb::lease_server::LeaseServer;
use hustings_api::etcdserverpb::maintenance_server::MaintenanceServer;
use hustings_api::etcdserverpb::watch_server::WatchServer;
use hustings_api::health::health_server::HealthServer;
use hustings_api::inside::InsideListener;
use hustings_api::v3electionpb::election_server::ElectionServer;
use hustings_api::v3lockpb::lock_server::LockServer;
use hustings_kv::KvStore;
use hustings_node::Handle;
use hyper::Version;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tonic::codegen::Service;
use tonic::metadata::MetadataMap;

use crate::context::audit::Trail;
use crate::context::backend::Backend;
use crate::context::caller::CommonName;
use crate::context::error;
use crate::context::metrics::Metrics;
use crate::context::options::ServerOptions;
use crate::context::permissions;
use crate::context::quota;
use crate::context::renewals;
use crate::context::serving;
use crate::context::story;
use crate::context::{Context, Inboxes, LINGERING_MAX, Services};
use crate::http;
use crate::http::access::Access;
use crate::http::body::{self, Body, Metered, Shape};
use crate::http::dashboard;
use crate::http::gateway::{self, Refused};
use crate::http::own;
use crate::http::tether;
use crate::port::aside;
use crate::port::authority::Repaired;
use crate::port::begun::{Begun, Preface};
use crate::port::tally::Tally;
use crate::port::under_way::UnderWay;
use crate::port::{ClientStream, Door, Port};
use crate::services::accounts::Peer;
use crate::services::cluster;
use crate::services::compaction;
use crate::services::integrity;
use crate::watch::hub;

/// Bytes that gRPC adds to a request: the same room that etcd leaves.
const GRPC_OVERHEAD_BYTES: usize = 512 * 1024;

/// Pause after the system refused to accept (no descriptors left): trying at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The etcd v3 API of one member.
pub struct Server<B> {
    context: Arc<Context<B>>,
    inboxes: Inboxes,
    metrics_ports: Vec<Port>,
    inside: Option<InsideListener>,
    name_of: Option<NameOf>,
}

/// The name that a connection has proven, by its other end.
pub type NameOf = Arc<dyn Fn(SocketAddr) -> Option<CommonName> + Send + Sync>;

impl<B: Backend> Server<B> {
    /// A server over a running node; [`Server::serve`] makes it answer.
    pub fn new(backend: B, options: ServerOptions) -> Server<B> {
        let (context, inboxes) = Context::new(backend, options);
        Server { context: Arc::new(context), inboxes, metrics_ports: Vec::new(), inside: None, name_of: None }
    }

    /// Answers metrics and health, and nothing else, on these ports, too.
    #[must_use]
    pub fn with_metrics_on(mut self, ports: Vec<impl Into<Port>>) -> Server<B> {
        self.metrics_ports = ports.into_iter().map(Into::into).collect();
        self
    }

    /// Answers callers inside this process, too: see [`hustings_api::inside`].
    #[must_use]
    pub fn open_inside(self, listener: InsideListener) -> Server<B> {
        Server { inside: Some(listener), ..self }
    }

    /// Takes the name in the certificate that a connection has shown from something in front of the ports that knows it: the
    /// user of that name calls then, without a token.
    #[must_use]
    pub fn naming(self, name_of: NameOf) -> Server<B> {
        Server { name_of: Some(name_of), ..self }
    }

    /// The server's counters; the program that hosts the node feeds them what only the node knows.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.context.metrics.clone()
    }

    /// Serves these ports until `shutdown` completes: then accepts nothing more, lets open requests end within
    /// [`ServerOptions::grace`], and returns.
    ///
    /// # Panics
    /// When one of its own tasks panicked: a half-alive server is worse than none.
    pub async fn serve(self, ports: Vec<impl Into<Port>>, shutdown: impl Future<Output = ()>) {
        let (stop, stopped) = watch::channel(false);
        let slots = Arc::new(Semaphore::new(self.context.options.connections_max));
        let mut tasks = JoinSet::new();
        tasks.spawn(quota::keep(self.context.clone()));
        tasks.spawn(integrity::keep(self.context.clone()));
        tasks.spawn(compaction::keep(self.context.clone()));
        tasks.spawn(serving::keep(self.context.clone()));
        tasks.spawn(story::keep(self.context.clone()));
        tasks.spawn(cluster::announce(self.context.clone()));
        tasks.spawn(hub::run(self.context.clone(), self.inboxes.hub));
        tasks.spawn(renewals::run(self.context.clone(), self.inboxes.renewals));
        let services = Arc::new(Services(self.context.clone()));
        for port in ports {
            tasks.spawn(accept(port.into(), self.name_of.clone(), services.clone(), slots.clone(), stopped.clone()));
        }
        if let Some(listener) = self.inside {
            tasks.spawn(accept_inside(listener, services.clone(), slots.clone(), stopped.clone()));
        }
        for port in self.metrics_ports {
            tasks.spawn(aside::accept(port, services.clone(), stopped.clone()));
        }
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                Some(ended) = tasks.join_next() => {
                    if let Err(error) = ended && error.is_panic() {
                        std::panic::resume_unwind(error.into_panic());
                    }
                }
            }
        }
        // An error means that every task has ended already.
        let _ = stop.send(true);
        self.context.serving.send_modify(|serving| serving.is_stopping = true);
        let all = u32::try_from(self.context.options.connections_max).unwrap_or(u32::MAX);
        let deadline = Instant::now() + self.context.options.grace;
        // A connection that does not end in time is dropped with its task's runtime; nothing is lost but its answer.
        let _ = tokio::time::timeout_at(deadline.into(), slots.acquire_many(all)).await;
        self.context.story.settle().await;
        // Calls that waited for a lock have ended with their connections, and give up their places. One that cannot be given up now, for
        // nobody leads, stays for as long as its lease.
        let _ = tokio::time::timeout_at(deadline.into(), self.context.lingering.acquire_many(LINGERING_MAX)).await;
    }
}

/// A future that can be waited for on any thread.
type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Server<Handle<KvStore>> {
    /// [`Server::serve`] for the store that members have. It is compiled with this crate and not once more with each program
    /// that calls it, which takes minutes.
    pub fn serve_boxed(self, ports: Vec<Port>, shutdown: Boxed) -> Boxed {
        Box::pin(self.serve(ports, shutdown))
    }
}

/// Accepts connections until told to stop.
async fn accept<B: Backend>(
    Port { listener, tls, names_users }: Port,
    name_of: Option<NameOf>,
    services: Arc<Services<B>>,
    slots: Arc<Semaphore>,
    mut stopped: watch::Receiver<bool>,
) {
    let door = Door::new(tls, names_users);
    let mut is_refusing = false;
    loop {
        // The semaphore is never closed; were it, there would be nobody left to serve.
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                is_refusing = false;
                let (services, door) = (services.clone(), door.clone());
                let name = name_of.as_ref().and_then(|name_of| name_of(peer));
                let line = tether::Line { peer, name, stopped: stopped.clone(), slot: Arc::new(slot) };
                tokio::spawn(async move {
                    services.metrics.on_connection(1);
                    converse(stream, &door, services.clone(), line).await;
                    services.metrics.on_connection(-1);
                });
            }
            Err(error) => {
                // Once for as long as it lasts: the line is tried again twenty times a second.
                if !std::mem::replace(&mut is_refusing, true) {
                    tracing::warn!(%error, "clients' connections cannot be accepted now");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Accepts connections from inside of this process until told to stop.
async fn accept_inside<B: Backend>(
    mut listener: InsideListener,
    services: Arc<Services<B>>,
    slots: Arc<Semaphore>,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => return,
        };
        let Some(stream) = accepted else { return };
        let services = services.clone();
        let peer = SocketAddr::from(([127, 0, 0, 1], 0));
        let line = tether::Line { peer, name: None, stopped: stopped.clone(), slot: Arc::new(slot) };
        tokio::spawn(async move {
            services.metrics.on_connection(1);
            let begun = tokio::time::timeout(services.options.header_timeout, Begun::by(ClientStream::Inside(stream)));
            if let Ok(Ok((preface, stream))) = begun.await {
                talk(preface, stream, services.clone(), line).await;
            }
            services.metrics.on_connection(-1);
        });
    }
}

/// Sets what the system shall do for a client's connection; a connection that refuses serves without.
fn watch_over(stream: &TcpStream, options: &ServerOptions) {
    // Without it an answer would wait for the acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    // A peer that vanished without a word (power, cable) is noticed although nobody writes, and although what is written is
    // never acknowledged: a waiting Lock renews its lease for as long as its connection stands.
    let (idle, patience) = (options.keep_alive_interval, options.keep_alive_timeout);
    if idle.is_zero() {
        return;
    }
    // What is longer the kernel refuses, and would keep its own.
    let longest = Duration::from_secs(32_767);
    let every = (patience / 4).clamp(Duration::from_secs(1), longest);
    let probes = socket2::TcpKeepalive::new().with_time(idle.min(longest)).with_interval(every);
    let socket = socket2::SockRef::from(stream);
    let _ = socket.set_tcp_keepalive(&probes.with_retries(4));
    let milliseconds = Duration::from_millis(i32::MAX.unsigned_abs().into());
    let _ = socket.set_tcp_user_timeout(Some((idle + patience).min(milliseconds)));
}

/// Serves one connection to its end. Errors end it and nothing else: strangers may say what they like.
async fn converse<B: Backend>(stream: TcpStream, door: &Door, services: Arc<Services<B>>, mut line: tether::Line) {
    let mut stopped = line.stopped.clone();
    watch_over(&stream, &services.options);
    let patience = services.options.header_timeout;
    let begun = tokio::time::timeout(patience, async {
        let (stream, shown) = door.enter(stream, line.peer).await?;
        let (preface, stream) = Begun::by(stream).await.ok()?;
        Some((preface, stream, shown))
    });
    let (preface, stream, shown) = tokio::select! {
        begun = begun => match begun {
            Ok(Some(begun)) => begun,
            Ok(None) | Err(_) => return,
        },
        _ = stopped.changed() => return,
    };
    if let Some(shown) = shown.filter(|_| door.names_users()) {
        line.name = Some(CommonName(shown.common_name));
    }
    talk(preface, stream, services, line).await;
}

/// Answers on one connection to its end.
async fn talk<B: Backend>(preface: Preface, stream: Begun, services: Arc<Services<B>>, line: tether::Line) {
    let mut stopped = line.stopped.clone();
    let (options, patience) = (&services.options, services.options.header_timeout);
    let ended = match preface {
        Preface::Http2 => {
            let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .max_concurrent_streams(options.streams_per_connection_max)
                .initial_stream_window_size(1 << 20)
                .initial_connection_window_size(4 << 20)
                .max_header_list_size(16 << 10)
                .max_send_buf_size(1 << 20)
                .keep_alive_interval(Some(options.keep_alive_interval).filter(|interval| !interval.is_zero()))
                .keep_alive_timeout(options.keep_alive_timeout);
            let (peer, name) = (Peer(line.peer.ip()), line.name.clone());
            let service = service_fn(|mut request: hyper::Request<Incoming>| {
                tell_peer(&mut request, peer, name.as_ref());
                answer(services.clone(), request)
            });
            let connection = builder.serve_connection(TokioIo::new(Repaired::new(stream)), service);
            tokio::pin!(connection);
            tokio::select! {
                ended = connection.as_mut() => ended,
                _ = stopped.changed() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        }
        Preface::Http1 => {
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(patience).max_buf_size(64 << 10);
            let (peer, name) = (Peer(line.peer.ip()), line.name.clone());
            let service = service_fn(|mut request: hyper::Request<Incoming>| {
                // Only a connection that speaks HTTP/1.1 can become something else.
                tell_peer(&mut request, peer, name.as_ref());
                if tether::lease_of(request.uri().path()).is_some() {
                    request.extensions_mut().insert(line.clone());
                }
                answer(services.clone(), request)
            });
            let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
            tokio::pin!(connection);
            tokio::select! {
                ended = connection.as_mut() => ended,
                _ = stopped.changed() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a client's connection ended");
    }
}

/// Adds the other end's address and name to a request, for those who judge it.
fn tell_peer(request: &mut hyper::Request<Incoming>, peer: Peer, name: Option<&CommonName>) {
    if let Some(name) = name {
        request.extensions_mut().insert(name.clone());
    }
    if request.uri().path().ends_with("uthenticate") {
        request.extensions_mut().insert(peer);
    }
}

/// Bytes that a request counts for beside its head: the stream, its task and what reads its body.
const REQUEST_BYTES: usize = 16 << 10;

/// Bytes that a head counts for: it stands in the connection's table and in the request, and parts of it in what is made of it.
fn cost_of_head(request: &hyper::Request<Incoming>) -> usize {
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 64).sum::<usize>();
    REQUEST_BYTES + 6 * (fields + request.uri().path().len())
}

/// Characters of a method that its line in the audit log tells; all that there are have fewer.
const METHOD_MAX: usize = 100;

/// Answers one request of a client.
async fn answer<B: Backend>(
    services: Arc<Services<B>>,
    mut request: hyper::Request<Incoming>,
) -> Result<hyper::Response<Body>, Infallible> {
    if !services.users_count() {
        return serve(services, request).await;
    }
    let trail = Arc::new(Trail::default());
    request.extensions_mut().insert(trail.clone());
    // What has a longer path is no method.
    let method: String = request.uri().path().chars().take(METHOD_MAX).collect();
    let response = serve(services, request).await?;
    trail.tell(&method, code_of(&response) as i32);
    Ok(response)
}

/// The code of gRPC that an answer stands for: the one that it was refused with, the one in its headers, or the one that the gateway would
/// tell by this status of HTTP.
fn code_of(response: &hyper::Response<Body>) -> tonic::Code {
    if let Some(Refused(code)) = response.extensions().get() {
        return *code;
    }
    let told = response.headers().get("grpc-status").and_then(|code| code.to_str().ok()?.parse().ok());
    if let Some(code) = told {
        return tonic::Code::from_i32(code);
    }
    match response.status().as_u16() {
        101 | 200..300 => tonic::Code::Ok,
        400 => tonic::Code::InvalidArgument,
        401 => tonic::Code::Unauthenticated,
        403 => tonic::Code::PermissionDenied,
        404 | 410 => tonic::Code::NotFound,
        405 => tonic::Code::Unimplemented,
        409 => tonic::Code::FailedPrecondition,
        503 => tonic::Code::Unavailable,
        _ => tonic::Code::Unknown,
    }
}

/// Hands a request to its service. The head of a call is held of the budget until its answer begins: a client may send heads in any
/// number and never a body. Metrics and health are told whatever is held.
async fn serve<B: Backend>(
    services: Arc<Services<B>>,
    request: hyper::Request<Incoming>,
) -> Result<hyper::Response<Body>, Infallible> {
    let cost = cost_of_head(&request);
    let path = request.uri().path();
    let service = path.get(1..).and_then(|path| path.split_once('/')).map_or("", |(service, _)| service);
    let (memory, patience) = (services.memory.clone(), services.options.body_timeout);
    // The packages of gRPC have a dot in their names, paths of HTTP have none before their second part.
    if !service.contains('.') || !is_grpc(&request) {
        let access = match Access::of(&services.options, &request) {
            Access::Answered(response) => return Ok(*response),
            open => open,
        };
        return Ok(access.mark(match gateway::route(path) {
            Some(path) => match memory.hold(cost) {
                Ok(_held) => {
                    let shape = if gateway::reads_on(path) { Shape::Lines } else { Shape::Whole };
                    let request = request.map(|body| Metered::new(body, shape, &memory, patience));
                    body::send(gateway::answer(&services, request).await, &memory)
                }
                Err(status) => gateway::refuse(&status),
            },
            None if tether::lease_of(path).is_some() => tether::answer(&services, request).await,
            None if path.starts_with("/v1/leases") || path == "/v1/revision" => {
                own::answer_leases(&services, request).await
            }
            None if dashboard::order::is_order(path) => dashboard::order::answer(&services, request).await,
            // Operators ask for these when no room is left for clients.
            None => body::send(http::answer(&services, request).await, &services.pages),
        }));
    }
    let _held = match memory.hold(cost) {
        Ok(held) => held,
        Err(status) => return Ok(status.into_http()),
    };
    let context = services.0.clone();
    let call = UnderWay::begin(context.clone(), path);
    let is_concurrency = path.starts_with("/v3");
    let shape = if call.is_stream() { Shape::Stream } else { Shape::Whole };
    let request = request.map(|body| Metered::new(call.counts(body), shape, &memory, patience));
    let response = as_etcd(dispatch(services, request).await?, is_concurrency);
    let streamed = call.on_answer(response.headers());
    let response = body::send(response, &memory);
    Ok(response.map(|body| Body::new(Tally::sent(body, context.metrics.clone(), streamed))))
}

/// Whether a request is one of gRPC by its form, as etcd asks for it. Over HTTP/1.1, or as plain text, a page of anybody could have its
/// reader's browser send one without leave.
fn is_grpc(request: &hyper::Request<Incoming>) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    request.version() == Version::HTTP_2 && kind.starts_with(b"application/grpc")
}

/// Mends the two answers in which tonic differs from etcd: a message beyond the transport's limit, whose code is
/// `OutOfRange` there and gRPC's everywhere else `ResourceExhausted`; and callers that a lock or an election refuses.
fn as_etcd(response: hyper::Response<Body>, is_concurrency: bool) -> hyper::Response<Body> {
    let code = response.headers().get("grpc-status").and_then(|code| code.to_str().ok()).unwrap_or("0");
    if !matches!(code, "3" | "7" | "11" | "16") {
        return response;
    }
    let Some(status) = tonic::Status::from_header_map(response.headers()) else { return response };
    if status.code() == tonic::Code::OutOfRange {
        if !status.message().contains("decoded message length too large") {
            return response;
        }
        let text = "grpc: received message larger than max";
        return tonic::Status::resource_exhausted(text).into_http();
    }
    if !is_concurrency {
        return response;
    }
    let code = status.code();
    let mut refused = error::of_concurrency(status).into_http();
    refused.extensions_mut().insert(Refused(code));
    refused
}

async fn dispatch<B: Backend>(
    services: Arc<Services<B>>,
    request: hyper::Request<Metered<Tally<Incoming>>>,
) -> Result<hyper::Response<Body>, Infallible> {
    let limit = services.options.max_request_bytes + GRPC_OVERHEAD_BYTES;
    let path = request.uri().path();
    let Some(row) = permissions::of_method(path) else {
        let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or(("", ""));
        let is_known = permissions::TABLE.iter().any(|row| row.method[1..].split('/').next() == Some(service));
        let text = match is_known {
            true => format!("unknown method {method} for service {service}"),
            false => format!("unknown service {service}"),
        };
        return Ok(tonic::Status::unimplemented(text).into_http());
    };
    let (mut head, body) = request.into_parts();
    let metadata = MetadataMap::from_headers(match services.users_count() {
        true => head.headers.clone(),
        false => HeaderMap::new(),
    });
    if let Err(status) = services.pass(row, &mut head, &metadata).await {
        return Ok(status.into_http());
    }
    let request = hyper::Request::from_parts(head, body);
    let path = request.uri().path();
    let (service, _) = path.trim_start_matches('/').split_once('/').unwrap_or(("", ""));
    match service {
        "etcdserverpb.KV" => KvServer::from_arc(services).max_decoding_message_size(limit).call(request).await,
        "etcdserverpb.Auth" => AuthServer::from_arc(services).max_decoding_message_size(limit).call(request).await,
        "etcdserverpb.Watch" => WatchServer::from_arc(services).max_decoding_message_size(limit).call(request).await,
        "etcdserverpb.Lease" => LeaseServer::from_arc(services).max_decoding_message_size(limit).call(request).await,
        "etcdserverpb.Cluster" => {
            ClusterServer::from_arc(services).max_decoding_message_size(limit).call(request).await
        }
        "etcdserverpb.Maintenance" => {
            MaintenanceServer::from_arc(services).max_decoding_message_size(limit).call(request).await
        }
        "v3electionpb.Election" => {
            ElectionServer::from_arc(services).max_decoding_message_size(limit).call(request).await
        }
        "v3lockpb.Lock" => LockServer::from_arc(services).max_decoding_message_size(limit).call(request).await,
        "grpc.health.v1.Health" => {
            HealthServer::from_arc(services).max_decoding_message_size(limit).call(request).await
        }
        _ => Ok(tonic::Status::unimplemented(format!("unknown service {service}")).into_http()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// Goal: a client that vanishes without a word is noticed by the system, whether or not somebody writes to it.
    #[tokio::test]
    async fn the_system_watches_over_clients() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (_client, (stream, _)) = (client.expect("connected"), accepted.expect("accepted"));
        watch_over(&stream, &ServerOptions::default());
        let socket = socket2::SockRef::from(&stream);
        assert!(socket.keepalive().expect("readable"));
        assert_eq!(socket.tcp_user_timeout().expect("readable"), Some(Duration::from_secs(50)));
    }
}
