//! The API server's HTTP: [`Api`].

use super::io::{Io, run};
use crate::stores::record::{Fault, Hints, Troubles};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hustings_tls::Obstacle;
use kube::client::Body;
use kube::{Client, Config};
use serde_json::Value;
use std::collections::BTreeSet;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// The longest answer that is read: a Lease is small, and what is larger is something else.
const LONGEST: usize = 4 * 1024 * 1024;
/// The first minor version of Kubernetes 1 that promises the order of resource versions.
const ORDERED_SINCE: u32 = 35;

/// One of several servers, asked over connections that are shared.
pub(super) struct Api {
    endpoints: Vec<String>,
    /// Time that one server may take before the next one is tried.
    patience: Duration,
    state: Arc<Mutex<State>>,
    hints: Hints,
    troubles: Troubles,
    io: Io,
}

#[derive(Default)]
struct State {
    client: Option<Client>,
    /// A client that is being made, which takes as long as the program that `KUBECONFIG` may name for the proof of the user.
    making: Option<watch::Receiver<Option<Made>>>,
    /// Number of the server's turn; it grows with each that is left.
    turn: usize,
    /// Once a server has answered as one, later troubles pass.
    has_opened: bool,
    warned: BTreeSet<String>,
}

/// A server's answer to a request about a Lease.
pub(super) enum Answered {
    Object(Value),
    Conflict,
    NotFound(String),
}

#[derive(Clone)]
enum Denied {
    ForNow(String),
    ForGood(Fault),
}

type Made = Result<Client, Denied>;

impl Api {
    /// A client of these servers, without TLS; of those that the environment names, if there are none.
    pub(super) fn new(endpoints: &[String], patience: Duration) -> Api {
        let shown = format!("kubernetes://{}", endpoints.join(","));
        let (state, hints, troubles) = (Arc::default(), Hints::default(), Troubles::of(shown));
        Api { endpoints: endpoints.to_vec(), patience, state, hints, troubles, io: Io::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn hints(&self) -> &Hints {
        &self.hints
    }

    pub(super) fn troubles(&self) -> &Troubles {
        &self.troubles
    }

    /// No answer came: the next request goes to the next server, over a new connection. Where the environment names the only one, the old
    /// connection stays in use until there is a new one: its proof of the user holds, and a program may take seconds to give another.
    pub(super) fn suspect(&self) {
        let mut state = self.state();
        state.turn += 1;
        if self.endpoints.is_empty() && state.client.is_some() {
            // Where there is no thread for it now, the next one that suspects it tries again.
            let _ = self.making(&mut state);
        } else {
            state.client = None;
        }
    }

    /// The server that is asked now.
    fn endpoint(&self) -> String {
        let turn = self.state().turn;
        match self.endpoints.is_empty() {
            true => "the cluster of the environment".to_owned(),
            false => self.endpoints[turn % self.endpoints.len()].clone(),
        }
    }

    /// Waits until a server has said which version it has.
    ///
    /// # Errors
    /// It lets nobody in who comes as we do; or the environment names none.
    pub(super) async fn open(&self) -> Result<(), Fault> {
        loop {
            if self.state().has_opened {
                return Ok(());
            }
            let endpoint = self.endpoint();
            let patience = self.patience.max(Duration::from_secs(1));
            let denied = match timeout(patience, self.ask_version(&endpoint)).await {
                Ok(Ok(())) => {
                    self.state().has_opened = true;
                    self.troubles.end();
                    // Earlier changes were not heard of.
                    self.hints.ring_all();
                    return Ok(());
                }
                Ok(Err(Denied::ForGood(Fault::Denied(why)))) => {
                    return Err(Fault::Denied(format!("{endpoint}: {why}")));
                }
                Ok(Err(Denied::ForGood(fault))) => return Err(Fault::Refused(format!("{endpoint}: {fault}"))),
                Ok(Err(Denied::ForNow(why))) => why,
                Err(_) => format!("no answer within {patience:?}"),
            };
            self.troubles.begin(&format!("{endpoint}: {denied}"));
            self.suspect();
            tokio::time::sleep(super::RETRY).await;
        }
    }

    async fn ask_version(&self, endpoint: &str) -> Result<(), Denied> {
        let client = self.client().await?;
        let (status, body) =
            self.send(&client, "GET", "/version", None).await.map_err(|fault| Denied::ForNow(fault.to_string()))?;
        let version: Option<Value> = serde_json::from_slice(&body).ok();
        let part = |name: &str| {
            let text = version.as_ref()?[name].as_str()?;
            text.trim_end_matches(|end: char| !end.is_ascii_digit()).parse::<u32>().ok()
        };
        match (status.as_u16(), part("major"), part("minor")) {
            (401, _, _) => {
                let why = format!("{status}: {}", message(&body));
                let why = format!("{why}; the identity comes from KUBECONFIG or the pod's service account");
                Err(Denied::ForGood(Fault::Denied(why)))
            }
            // A cluster may keep its version to itself: what counts is what may be done with Leases.
            (403, _, _) => {
                self.warn_once(format!(
                    "{endpoint} does not tell its version: before 1.{ORDERED_SINCE} Kubernetes does not promise that resource versions \
                     grow, of which tokens are made; with etcd as its store they do"
                ));
                Ok(())
            }
            (200, Some(major), Some(minor)) => {
                if (major, minor) < (1, ORDERED_SINCE) {
                    self.warn_once(format!(
                        "{endpoint} has Kubernetes {major}.{minor}: before 1.{ORDERED_SINCE} it does not promise that resource \
                         versions grow, of which tokens are made; with etcd as its store they do"
                    ));
                }
                Ok(())
            }
            _ => Err(Denied::ForNow(format!(
                "{status} to /version: this is no Kubernetes API server: {}",
                message(&body)
            ))),
        }
    }

    fn warn_once(&self, warning: String) {
        if self.state().warned.insert(warning.clone()) {
            tracing::warn!("{warning}");
        }
    }

    /// A client of the server whose turn it is. One is made at a time, and is used even where who asked for it waits no more.
    async fn client(&self) -> Made {
        let mut making = {
            let mut state = self.state();
            if let Some(client) = &state.client {
                return Ok(client.clone());
            }
            self.making(&mut state).map_err(|error| Denied::ForNow(no_thread(&error)))?
        };
        let made = making.wait_for(Option::is_some).await.ok().and_then(|made| made.clone());
        made.unwrap_or_else(|| {
            self.state().making = None;
            Err(Denied::ForNow("nobody makes a connection".to_owned()))
        })
    }

    /// The client that is being made, beside the engine, of the server whose turn it is; this begins it where none is.
    ///
    /// # Errors
    /// There is no thread for it now.
    fn making(&self, state: &mut State) -> std::io::Result<watch::Receiver<Option<Made>>> {
        if let Some(making) = &state.making {
            return Ok(making.clone());
        }
        let (io, turn) = (self.io.handle()?, state.turn);
        let (tell, making) = watch::channel(None);
        state.making = Some(making.clone());
        let (state, patience) = (self.state.clone(), self.patience);
        let named = (!self.endpoints.is_empty()).then(|| self.endpoints[turn % self.endpoints.len()].clone());
        io.spawn(async move {
            let made = make_client(named.as_deref(), patience).await;
            let mut state = lock(&state);
            state.making = None;
            if let Ok(client) = &made
                && (named.is_none() || state.turn == turn)
            {
                state.client = Some(client.clone());
            }
            drop(state);
            // Who asked for it may wait no more.
            let _ = tell.send(Some(made));
        });
        Ok(making)
    }

    /// Sends a request, beside the engine: a proof of the user that has ended is fetched anew first, by a program that may take its time.
    async fn respond(&self, client: &Client, request: Request<Body>) -> Result<Response<Body>, Fault> {
        let client = client.clone();
        let io = self.io.handle().map_err(|error| Fault::Unreachable(no_thread(&error)))?;
        match run(&io, async move { client.send(request).await }).await {
            Some(response) => response.map_err(|error| failed(&error)),
            None => Err(Fault::Unknown("the thread of its requests has ended".to_owned())),
        }
    }

    async fn send(
        &self,
        client: &Client,
        method: &str,
        path: &str,
        content: Option<&Value>,
    ) -> Result<(StatusCode, Bytes), Fault> {
        let request = request(method, path, content)?;
        let response = self.respond(client, request).await?;
        let (status, mut body) = (response.status(), response.into_body());
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Fault::Unknown(format!("the answer broke off: {error}")))?;
            bytes.extend_from_slice(frame.data_ref().map(|data| &data[..]).unwrap_or_default());
            if bytes.len() > LONGEST {
                return Err(Fault::Unknown(format!("an answer of more than {LONGEST} bytes: this is no Lease")));
            }
        }
        Ok((status, bytes.into()))
    }

    /// Asks about a Lease.
    pub(super) async fn ask(&self, method: &str, path: &str, content: Option<&Value>) -> Result<Answered, Fault> {
        let client = match self.client().await {
            Ok(client) => client,
            Err(Denied::ForNow(why)) => return Err(Fault::Unreachable(why)),
            Err(Denied::ForGood(fault)) => return Err(Fault::Unreachable(fault.to_string())),
        };
        let endpoint = self.endpoint();
        let (status, body) = match self.send(&client, method, path, content).await {
            Ok(answer) => answer,
            Err(fault) => {
                self.suspect();
                return Err(match fault {
                    Fault::Unreachable(why) => Fault::Unreachable(format!("{endpoint}: {why}")),
                    Fault::Unknown(why) => Fault::Unknown(format!("{endpoint}: {why}")),
                    refused => refused,
                });
            }
        };
        let object: Option<Value> = serde_json::from_slice(&body).ok();
        let kind = object.as_ref().and_then(|object| object["kind"].as_str());
        let words = || format!("{endpoint}: {method} {path}: {status}: {}", message(&body));
        match (status.as_u16(), kind, object.as_ref()) {
            (200..=299, Some("Lease"), Some(lease)) => Ok(Answered::Object(lease.clone())),
            (404, Some("Status"), _) => Ok(Answered::NotFound(words())),
            (409, Some("Status"), _) => Ok(Answered::Conflict),
            // Somebody else answers, or the server does not know itself what became of it.
            (200..=299 | 500.., _, _) => Err(Fault::Unknown(words())),
            (401, _, _) => Err(Fault::Denied(format!(
                "{}; the identity comes from KUBECONFIG or the pod's service account",
                words()
            ))),
            (403, _, _) => Err(Fault::Denied(format!(
                "{}; grant the verbs get, list, watch, create and update on leases.coordination.k8s.io",
                words()
            ))),
            _ => Err(Fault::Refused(words())),
        }
    }

    /// Calls at each event of a watch, until it ends; says why it ended.
    pub(super) async fn watch(&self, path: &str, mut heard: impl FnMut()) -> Result<(), Fault> {
        let client = match self.client().await {
            Ok(client) => client,
            Err(Denied::ForNow(why)) => return Err(Fault::Unreachable(why)),
            Err(Denied::ForGood(fault)) => return Err(Fault::Unreachable(fault.to_string())),
        };
        let response = self.respond(&client, request("GET", path, None)?).await?;
        let (status, mut body) = (response.status(), response.into_body());
        match status.as_u16() {
            200 => {}
            401 | 403 => {
                let endpoint = self.endpoint();
                self.warn_once(format!(
                    "{endpoint}: {status}: Leases may not be watched here, so a leader that resigns is succeeded only when others look again; grant the \
                     verb watch on leases.coordination.k8s.io"
                ));
                return Err(Fault::Denied(status.to_string()));
            }
            400..=499 => return Err(Fault::Refused(status.to_string())),
            _ => return Err(Fault::Unknown(status.to_string())),
        }
        let mut line = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Fault::Unknown(error.to_string()))?;
            for byte in frame.data_ref().map(|data| &data[..]).unwrap_or_default() {
                match byte {
                    b'\n' => {
                        // A whole object stands in it, which is read again: only what it is about counts here.
                        let event: Value = serde_json::from_slice(&line).unwrap_or_default();
                        line.clear();
                        match event["type"].as_str() {
                            Some("BOOKMARK") => {}
                            Some("ERROR") => return Err(Fault::Refused(event["object"]["message"].to_string())),
                            _ => heard(),
                        }
                    }
                    byte if line.len() < LONGEST => line.push(*byte),
                    _ => return Err(Fault::Refused("a line without an end".to_owned())),
                }
            }
        }
        Ok(())
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client of this server, without TLS; of the one that the environment names, if none is named.
async fn make_client(named: Option<&str>, patience: Duration) -> Made {
    let mut config = match named {
        None => Config::infer().await.map_err(|error| {
            let why = words(&error);
            Denied::ForGood(Fault::Refused(format!(
                "no cluster is known here: set KUBECONFIG, run in a pod, or name a host in the URL: {why}"
            )))
        })?,
        Some(endpoint) => {
            let uri = format!("http://{endpoint}");
            Config::new(uri.parse().map_err(|error| Denied::ForGood(Fault::Refused(format!("{uri}: {error}"))))?)
        }
    };
    // The candidate decides whether to ask again: it counts from when a request left.
    config.default_retry = false;
    config.connect_timeout = Some(patience);
    // A program that proves the user is waited for there and then: not on the thread of all requests.
    match tokio::task::spawn_blocking(move || Client::try_from(config)).await {
        Ok(made) => made.map_err(|error| Denied::ForGood(Fault::Refused(words(&error)))),
        Err(error) => Err(Denied::ForNow(format!("no connection is made: {error}"))),
    }
}

fn no_thread(error: &std::io::Error) -> String {
    format!("no thread for requests to Kubernetes: {error}")
}

fn request(method: &str, path: &str, content: Option<&Value>) -> Result<Request<Body>, Fault> {
    let content = content.map(|content| serde_json::to_vec(content).expect("a value is JSON")).unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::ACCEPT, "application/json")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(content));
    request.map_err(|error| Fault::Refused(format!("{path} cannot be asked for: {error}")))
}

/// A request that has no answer: it never left if nobody listens.
fn failed(error: &kube::Error) -> Fault {
    let mut source: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(layer) = source {
        let kind = layer.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        if kind == Some(std::io::ErrorKind::ConnectionRefused) {
            return Fault::Unreachable(words(error));
        }
        source = layer.source();
    }
    let remedy = match Obstacle::behind(error) {
        Some(Obstacle::UnknownCa) => "; its CA is not trusted here: name it as certificate-authority in KUBECONFIG",
        Some(Obstacle::OurCertificate) => {
            "; it asks for a certificate that it knows: name one as client-certificate, with client-key, in KUBECONFIG"
        }
        Some(Obstacle::NoTls) => "; it speaks no TLS on this port: is it http:// in KUBECONFIG?",
        None => "",
    };
    Fault::Unknown(format!("{}{remedy}", words(error)))
}

/// All that an error says: the outermost layer of it says little.
fn words(error: &(dyn Error + 'static)) -> String {
    let mut all = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let inner = error.to_string();
        if !all.contains(&inner) {
            all = format!("{all}: {inner}");
        }
        source = error.source();
    }
    all
}

/// Words of a refusal, in the API's form or in another one.
fn message(body: &[u8]) -> String {
    let status: Option<Value> = serde_json::from_slice(body).ok();
    let said = status.as_ref().and_then(|status| status["message"].as_str()).map(str::to_owned);
    said.unwrap_or_else(|| String::from_utf8_lossy(body).chars().take(200).collect())
}
