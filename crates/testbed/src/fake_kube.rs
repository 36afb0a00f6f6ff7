//! A Kubernetes API server for Leases that lives in this process: [`FakeKube`].
//!
//! It does what a real one does with `coordination.k8s.io/v1` Leases: optimistic concurrency (409), an update that changes
//! nothing gives no new version, watches with bookmarks and `410 Expired`, micro times that are refused when they are none. And
//! what a real one does on a bad day, when it is told to: it is silent, slow, forgetful (stale reads), refuses, or does what it
//! was asked and loses the answer.
//!
//! Source: `k8s.io/kubernetes` 1.36, `pkg/registry/coordination/lease`, `pkg/apis/coordination/validation`.

mod leases;

use crate::free_listener;
use anyhow::Result;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use leases::Leases;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

/// The server's faults and demands.
#[derive(Clone, Debug)]
pub struct Faults {
    /// The version that it says it has.
    pub version: (&'static str, &'static str),
    /// Bearer token of the only client that is let in; others get 401.
    pub token: Option<String>,
    /// Verbs that nobody may: 403.
    pub forbidden: Vec<&'static str>,
    /// Every request to Leases is answered with this status.
    pub refuse: Option<u16>,
    /// Number of writes that are done, and answered with 504 as if they had timed out.
    pub lose_answers: u32,
    /// A read of one Lease gives what it was so many versions of the store ago. No real server does that.
    pub stale: u64,
    /// Every answer takes this long.
    pub latency: Duration,
    /// What is asked about Leases is never answered, as by a server that has lost its own store; its version is.
    pub is_cut_off: bool,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            version: ("1", "36"),
            token: None,
            forbidden: Vec::new(),
            refuse: None,
            lose_answers: 0,
            stale: 0,
            latency: Duration::ZERO,
            is_cut_off: false,
        }
    }
}

/// A server at a port of 127.0.0.1, without TLS, as `kubectl proxy` gives it.
pub struct FakeKube {
    /// Port on which it listens.
    pub port: u16,
    shared: Arc<Shared>,
    serving: tokio::task::JoinHandle<()>,
}

struct Shared {
    leases: Mutex<Leases>,
    /// The version of the store; watches wait for it to grow.
    revision: watch::Sender<u64>,
    faults: Mutex<Faults>,
    is_silent: watch::Sender<bool>,
    /// Grows when all watches are to end.
    watches: watch::Sender<u64>,
    asked: Mutex<BTreeMap<String, u64>>,
}

impl FakeKube {
    /// Starts one that has the namespaces `default` and `team`.
    ///
    /// # Errors
    /// No port is free.
    pub fn start() -> Result<FakeKube> {
        let listener = free_listener()?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            leases: Mutex::new(Leases::default()),
            revision: watch::Sender::new(leases::FIRST),
            faults: Mutex::default(),
            is_silent: watch::Sender::new(false),
            watches: watch::Sender::new(0),
            asked: Mutex::default(),
        });
        let router = axum::Router::new().fallback(answer).with_state(shared.clone());
        let serving = tokio::spawn(async move {
            // It ends with the task.
            let _ = axum::serve(listener, router).await;
        });
        Ok(FakeKube { port, shared, serving })
    }

    /// The URL of a Lease of the namespace `default` there.
    pub fn url(&self, name: &str) -> String {
        format!("kubernetes://127.0.0.1:{}/default/{name}", self.port)
    }

    /// Changes what it does wrong.
    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut lock(&self.shared.faults));
    }

    /// From now on no request is answered, nor any answer sent that is due.
    pub fn pause(&self) {
        self.shared.is_silent.send_replace(true);
    }

    /// It answers again, also what was asked meanwhile.
    pub fn resume(&self) {
        self.shared.is_silent.send_replace(false);
    }

    /// All watches end, and the history of changes is forgotten: who resumes gets 410.
    pub fn compact(&self) {
        lock(&self.shared.leases).compact();
        self.shared.watches.send_modify(|count| *count += 1);
    }

    /// A Lease of the namespace `default` as it is.
    pub fn lease(&self, name: &str) -> Option<Value> {
        lock(&self.shared.leases).of("default", name).cloned()
    }

    /// Writes a Lease of the namespace `default` as another client would, whatever its version; makes it if it is missing.
    ///
    /// # Panics
    /// When a server would refuse it.
    pub fn edit(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let revision = {
            let mut leases = lock(&self.shared.leases);
            let known = leases.of("default", name).cloned();
            let mut lease = known.clone().unwrap_or_else(|| {
                json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {}})
            });
            change(&mut lease);
            let done = match known {
                Some(_) => leases.replace("default", name, lease),
                None => leases.create("default", lease),
            };
            done.expect("a server would take it");
            leases.revision()
        };
        self.shared.revision.send_replace(revision);
    }

    /// Another client deletes a Lease of the namespace `default`.
    ///
    /// # Panics
    /// When there is none.
    pub fn delete(&self, name: &str) {
        let revision = {
            let mut leases = lock(&self.shared.leases);
            leases.delete("default", name, &Value::Null).expect("it is there");
            leases.revision()
        };
        self.shared.revision.send_replace(revision);
    }

    /// Number of watches that are open.
    pub fn open_watches(&self) -> usize {
        self.shared.watches.receiver_count()
    }

    /// Number of requests of a verb (`get`, `update`, ...) that have come.
    pub fn asked(&self, verb: &str) -> u64 {
        lock(&self.shared.asked).get(verb).copied().unwrap_or_default()
    }
}

impl Drop for FakeKube {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The answer with which a request is refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: u16,
    reason: &'static str,
    message: String,
}

impl Refusal {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { code, reason, message: message.into() }
    }

    /// The refusal as the API tells it.
    fn status(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        })
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let code = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (code, axum::Json(self.status())).into_response()
    }
}

async fn spoken(shared: &Shared) {
    let mut is_silent = shared.is_silent.subscribe();
    // The sender lives as long as the server.
    let _ = is_silent.wait_for(|is_silent| !is_silent).await;
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    spoken(&shared).await;
    let faults = lock(&shared.faults).clone();
    tokio::time::sleep(faults.latency).await;
    if faults.is_cut_off && uri.path() != "/version" {
        std::future::pending::<()>().await;
    }
    let answered = respond(&shared, &faults, &method, &uri, &headers, &body).unwrap_or_else(Refusal::into_response);
    spoken(&shared).await;
    answered
}

/// The values of a query, without any decoding but that of `=`.
fn query(uri: &Uri) -> BTreeMap<&str, String> {
    let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name, value.replace("%3D", "=").replace("%3d", "="))).collect()
}

fn respond(
    shared: &Arc<Shared>,
    faults: &Faults,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Response, Refusal> {
    if let Some(token) = &faults.token {
        let said = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        if said != Some(&format!("Bearer {token}")) {
            return Err(Refusal::new(401, "Unauthorized", "Unauthorized"));
        }
    }
    let parts: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
    let (namespace, name) = match parts.as_slice() {
        ["version"] if faults.forbidden.contains(&"version") => {
            return Err(Refusal::new(403, "Forbidden", "User \"test\" cannot get path \"/version\""));
        }
        ["version"] => {
            let (major, minor) = faults.version;
            return Ok(axum::Json(json!({"major": major, "minor": minor})).into_response());
        }
        ["apis", "coordination.k8s.io", "v1", "namespaces", namespace, "leases"] => (*namespace, None),
        ["apis", "coordination.k8s.io", "v1", "namespaces", namespace, "leases", name] => (*namespace, Some(*name)),
        _ => return Err(Refusal::new(404, "NotFound", "the server could not find the requested resource")),
    };
    let query = query(uri);
    let verb = match (method, name) {
        (&Method::GET, None) if query.get("watch").is_some_and(|value| value != "0" && value != "false") => "watch",
        (&Method::GET, None) => "list",
        (&Method::GET, Some(_)) => "get",
        (&Method::POST, None) => "create",
        (&Method::PUT, Some(_)) => "update",
        (&Method::PATCH, Some(_)) => "patch",
        (&Method::DELETE, Some(_)) => "delete",
        _ => return Err(Refusal::new(405, "MethodNotAllowed", "the server does not allow this method")),
    };
    *lock(&shared.asked).entry(verb.to_owned()).or_default() += 1;
    if faults.forbidden.contains(&verb) {
        let message = format!(
            "leases.coordination.k8s.io {:?} is forbidden: User \"test\" cannot {verb} resource \"leases\" in API group \
             \"coordination.k8s.io\" in the namespace {namespace:?}",
            name.unwrap_or_default()
        );
        return Err(Refusal::new(403, "Forbidden", message));
    }
    if let Some(code) = faults.refuse {
        return Err(Refusal::new(code, "InternalError", "told to refuse"));
    }
    if verb == "watch" {
        return watching(shared, namespace, &query);
    }
    let content = match body.is_empty() {
        true => Value::Null,
        false => serde_json::from_slice(body).map_err(|error| Refusal::new(400, "BadRequest", error.to_string()))?,
    };
    let name = name.unwrap_or_default();
    let (code, object) = {
        let mut leases = lock(&shared.leases);
        let done = match verb {
            "list" => (200, leases.list(namespace, query.get("fieldSelector").map(String::as_str))),
            "get" => (200, leases.get(namespace, name, faults.stale)?),
            "create" => (201, leases.create(namespace, content)?),
            "update" => (200, leases.update(namespace, name, content)?),
            "patch" => (200, leases.patch(namespace, name, &content)?),
            _ => (200, leases.delete(namespace, name, &content)?),
        };
        shared.revision.send_replace(leases.revision());
        done
    };
    let is_write = !matches!(verb, "list" | "get");
    if is_write && faults.lose_answers > 0 {
        lock(&shared.faults).lose_answers -= 1;
        return Err(Refusal::new(504, "Timeout", "request did not complete within requested timeout"));
    }
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::OK);
    Ok((code, axum::Json(object)).into_response())
}

/// A stream of changes from a version on, a line each.
fn watching(shared: &Arc<Shared>, namespace: &str, query: &BTreeMap<&str, String>) -> Result<Response, Refusal> {
    let name =
        query.get("fieldSelector").and_then(|selector| selector.strip_prefix("metadata.name=")).map(str::to_owned);
    let from = match query.get("resourceVersion").map(String::as_str).unwrap_or_default() {
        "" | "0" => None,
        text => {
            Some(text.parse::<u64>().map_err(|_| Refusal::new(400, "BadRequest", "Invalid value: resourceVersion"))?)
        }
    };
    let wants_bookmarks = query.get("allowWatchBookmarks").is_some_and(|value| value == "true" || value == "1");
    let (lines, outgoing) = mpsc::channel::<Result<Bytes, std::io::Error>>(64);
    let (shared, namespace) = (shared.clone(), namespace.to_owned());
    tokio::spawn(async move {
        let (mut revision, mut watches) = (shared.revision.subscribe(), shared.watches.subscribe());
        let mut seen = from;
        loop {
            let told = lock(&shared.leases).events(&namespace, name.as_deref(), seen);
            let now = *revision.borrow_and_update();
            spoken(&shared).await;
            let (events, is_over) = match told {
                Ok(events) => (events, false),
                Err(refusal) => (vec![json!({"type": "ERROR", "object": refusal.status()})], true),
            };
            let bookmark = json!({"type": "BOOKMARK", "object": {
                "kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"resourceVersion": now.to_string()}}});
            let bookmark = (wants_bookmarks && events.is_empty()).then_some(bookmark);
            for event in events.into_iter().chain(bookmark) {
                if lines.send(Ok(format!("{event}\n").into())).await.is_err() {
                    return;
                }
            }
            if is_over {
                return;
            }
            seen = Some(now);
            tokio::select! {
                _ = revision.changed() => {}
                _ = watches.changed() => return,
                () = lines.closed() => return,
            }
        }
    });
    let kind = [(header::CONTENT_TYPE, "application/json")];
    Ok((kind, Body::from_stream(ReceiverStream::new(outgoing))).into_response())
}
