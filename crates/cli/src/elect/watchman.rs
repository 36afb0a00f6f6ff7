//! The questions that a command and its neighbours may ask the sidecar, over HTTP on a unix socket.
//!
//! | request | answer |
//! |---|---|
//! | `GET /leader` | 200 when this process leads, 503 elsewhere; id, token, for how long it is valid |
//! | `GET /events` | how it stands, then each transition, as server-sent events |
//! | `GET /metrics` | `hustings_leadership_*` |
//! | `POST /step-down` | 202, or 409 where nobody leads, or `to` does not wait; `{"because": "...", "to": "..."}` |
//! | `POST /health` | 204; `{"healthy": false}`, which counts until somebody says `true` |

use super::bounded_listener::BoundedListener;
use super::notify::Notify;
use super::telling::Telling;
use anyhow::{Context, Result};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::{StreamExt, stream};
use hustings_election::{Change, Election, Leadership, Loss, Office, Renewals, StoreError, Token, Validity};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Command;
use tokio::sync::{broadcast, mpsc, watch};
use tokio_stream::wrappers::BroadcastStream;

/// The wish of a caller that this tenure ends.
#[derive(Debug)]
pub(crate) struct Wish {
    /// The tenure that it is meant for: a later one hears nothing of it.
    pub(crate) token: Token,
    pub(crate) because: String,
    /// The candidate that shall lead next; `None` if the caller does not care.
    pub(crate) to: Option<String>,
}

/// Bytes of the path of a unix socket, which its address has room for beside the zero behind it.
pub(crate) const SOCKET_PATH_MAX: usize = 107;

/// Callers at once. One that reads nothing and says nothing holds a descriptor, and this process needs some to go on leading; the next
/// one waits.
const CALLERS_MAX: usize = 48;
/// Those of them that may hear of transitions, for as long as they like.
const HEARERS_MAX: usize = 32;

#[derive(Default)]
struct Progress {
    /// The tenure in which the command runs, until it is told to stop.
    tenure: Option<(Token, Validity)>,
    telling: Telling,
    /// The last transition in words.
    because: String,
    /// Transitions by their kind and, where something was lost, by its kind.
    transitions: BTreeMap<(&'static str, &'static str), u64>,
    /// The candidate whose renewals are counted.
    office: Option<Office>,
}

impl Progress {
    fn valid(&self) -> Option<(Token, Duration)> {
        let (token, validity) = self.tenure.as_ref()?;
        Some((*token, validity.remaining()?))
    }
}

/// The sidecar's state, as callers see it.
#[derive(Clone)]
pub(crate) struct Board {
    id: Arc<str>,
    election: Arc<str>,
    candidacy: Election,
    told: Arc<Mutex<Progress>>,
    events: broadcast::Sender<String>,
    wishes: mpsc::UnboundedSender<Wish>,
    /// The application's health, as a caller reported it last.
    health: Arc<watch::Sender<bool>>,
    notify: Arc<Notify>,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells systemd and all watchers of a change of the candidacy, and counts it for the metrics.
    pub(crate) fn told(&self, change: &Change) {
        let told = &mut self.lock();
        for change in told.telling.on_change(change) {
            self.tell(told, &change);
        }
    }

    fn tell(&self, told: &mut Progress, change: &Change) {
        self.notify.told(change);
        *told.transitions.entry((change.word(), change.loss().map_or("", Loss::word))).or_default() += 1;
        told.because = change.to_string();
        if let Change::Stops(token, _) | Change::Ends(token, _) = change {
            told.tenure.take_if(|(own, _)| own == token);
        }
        // Nobody may listen.
        let _ = self
            .events
            .send(json!({"id": *self.id, "election": *self.election, "change": change.to_string()}).to_string());
    }

    /// From now on the renewals of this candidate are told.
    pub(crate) fn counts(&self, office: Office) {
        self.lock().office = Some(office);
    }

    /// A tenure begins, and the command with it.
    pub(crate) fn leads(&self, leadership: &Leadership) {
        // Where it is over already, none begins.
        let Ok(lead) = leadership.lead() else { return };
        let told = &mut self.lock();
        let (counts, change) = told.telling.begin(lead.token());
        told.tenure = counts.then(|| (lead.token(), leadership.validity()));
        change.into_iter().for_each(|change| self.tell(told, &change));
    }

    fn valid(&self) -> Option<(Token, Duration)> {
        self.lock().valid()
    }

    /// The tenure, if this process leads, and the last transition in words; of one moment.
    fn stands(&self) -> (Option<(Token, Duration)>, String) {
        let told = self.lock();
        (told.valid(), told.because.clone())
    }

    /// The application's health, as callers report it; healthy until one has reported.
    pub(crate) fn health(&self) -> watch::Receiver<bool> {
        self.health.subscribe()
    }

    /// What a command beside the one that leads is told.
    pub(crate) fn environment(&self) -> BTreeMap<String, String> {
        let leads = if self.valid().is_some() { "true" } else { "false" };
        let told = [("HUSTINGS_ELECTION", &*self.election), ("HUSTINGS_ID", &*self.id), ("HUSTINGS_LEADS", leads)];
        told.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Tells a command, in its environment, whose sidecar asks and whether it leads.
    pub(crate) fn told_to(&self, mut command: Command) -> Command {
        command.envs(self.environment());
        // Of a sidecar around this one.
        command.env_remove(hustings_election::supervisor::SOCKET);
        command
    }
}

/// Serves on this socket, if there is one.
///
/// # Errors
/// The path is in use by a process that lives, or cannot be made.
pub(crate) async fn start(
    socket: Option<&Path>,
    id: &str,
    election: &Election,
    notify: Arc<Notify>,
) -> Result<(Board, mpsc::UnboundedReceiver<Wish>, Option<Listening>)> {
    let (wishes, wished) = mpsc::unbounded_channel();
    let board = Board {
        id: id.into(),
        election: election.name().into(),
        candidacy: election.clone(),
        told: Arc::default(),
        events: broadcast::Sender::new(64),
        wishes,
        health: Arc::new(watch::Sender::new(true)),
        notify,
    };
    if let Some(path) = socket {
        // One that stands still accepts nobody, and its queue may be full: the kernel says so at once to a caller that does not block.
        let is_in_use = match UnixStream::connect(path).await {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        };
        if is_in_use {
            anyhow::bail!("--listen unix:{}: another process listens there", path.display());
        }
        // A process that was killed may have left its socket behind.
        let is_socket = |path: &Path| {
            use std::os::unix::fs::FileTypeExt;
            std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
        };
        if is_socket(path) {
            std::fs::remove_file(path)?;
        } else if path.symlink_metadata().is_ok() {
            anyhow::bail!(
                "--listen unix:{}: what is there is no socket, and is not replaced: take it away, or give another path",
                path.display()
            );
        }
        let listener = UnixListener::bind(path).with_context(|| {
            let remedy =
                "the socket is made there: its directory must exist, and this user must be allowed to write in it";
            format!("--listen unix:{}: {remedy}", path.display())
        })?;
        // Only this user's processes may ask.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        let router = Router::new()
            .route("/leader", get(leader))
            .route("/events", get(events))
            .route("/metrics", get(metrics))
            .route("/step-down", post(step_down))
            .route("/health", post(health))
            .with_state(board.clone());
        tokio::spawn(async move {
            if let Err(error) = axum::serve(BoundedListener::on(listener, CALLERS_MAX), router).await {
                crate::logging::say(format_args!("--listen ends: {error}"));
            }
        });
    }
    Ok((board, wished, socket.map(|path| Listening { path: path.to_owned(), made: file_at(path) })))
}

/// A socket in the file system; gone when this is dropped.
pub(crate) struct Listening {
    path: PathBuf,
    /// The file that was made there.
    made: Option<(u64, u64)>,
}

/// Device and number of the file at a path.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|meta| (meta.dev(), meta.ino()))
}

impl Drop for Listening {
    fn drop(&mut self) {
        // Somebody may have taken it away, and another process may listen there by now. What is left the next one takes.
        if self.made.is_some() && file_at(&self.path) == self.made {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

async fn leader(State(board): State<Board>) -> Response {
    let (valid, because) = board.stands();
    match valid {
        Some((token, left)) => {
            let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            let body = json!({
                "leads": true, "id": *board.id, "election": *board.election, "token": token.to_string(),
                "valid_for_ms": millis, "because": because,
            });
            Json(body).into_response()
        }
        None => {
            let body = json!({"leads": false, "id": *board.id, "election": *board.election, "because": because});
            (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
        }
    }
}

async fn events(State(board): State<Board>) -> Response {
    if board.events.receiver_count() >= HEARERS_MAX {
        let why =
            format!("{HEARERS_MAX} listen already, which are all that may: ask GET /leader, or end one of them\n");
        return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    }
    let events = BroadcastStream::new(board.events.subscribe());
    // The first one says how it stands: who comes late need not ask twice. A change of this moment is told by both, and never by none.
    let (valid, change) = board.stands();
    let now =
        json!({"id": *board.id, "election": *board.election, "leads": valid.is_some(), "change": change}).to_string();
    let later = events.filter_map(async |event| event.ok());
    let told = stream::once(async { now }).chain(later).map(|event| Ok::<_, Infallible>(Event::default().data(event)));
    Sse::new(told).into_response()
}

async fn metrics(State(board): State<Board>) -> String {
    let held = board.valid();
    let (is_held, number, left) = held.map_or((0, 0, 0.0), |(token, left)| (1, token.number, left.as_secs_f64()));
    let mut page = format!(
        "# TYPE hustings_leadership_held gauge\nhustings_leadership_held {is_held}\n\
         # TYPE hustings_leadership_token gauge\nhustings_leadership_token {number}\n\
         # TYPE hustings_leadership_renew_margin_seconds gauge\nhustings_leadership_renew_margin_seconds {left:.3}\n\
         # TYPE hustings_leadership_transitions_total counter\n"
    );
    let told = board.lock();
    for ((change, because), count) in &told.transitions {
        // Text can always be written to.
        let _ = writeln!(
            page,
            "hustings_leadership_transitions_total{{change=\"{change}\",because=\"{because}\"}} {count}"
        );
    }
    let Renewals { renewed, refused, gone, unanswered } =
        told.office.as_ref().map(Office::renewals).unwrap_or_default();
    page.push_str("# TYPE hustings_leadership_renewals_total counter\n");
    for (result, count) in [("renewed", renewed), ("refused", refused), ("gone", gone), ("unanswered", unanswered)] {
        let _ = writeln!(page, "hustings_leadership_renewals_total{{result=\"{result}\"}} {count}");
    }
    page
}

async fn step_down(State(board): State<Board>, body: Bytes) -> Response {
    let Some((token, _)) = board.valid() else {
        let body =
            json!({"leads": false, "id": *board.id, "error": "this process does not lead: ask the one that does"});
        return (StatusCode::CONFLICT, Json(body)).into_response();
    };
    let body: Value = match serde_json::from_slice(&body) {
        Ok(body) => body,
        Err(_) if body.is_empty() => Value::Null,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("the body is no JSON: {error}\n")).into_response(),
    };
    if !body.is_null() && !body.is_object() {
        let why = "the body is no object: {\"because\": \"...\", \"to\": \"...\"}, either of them, or nothing\n";
        return (StatusCode::BAD_REQUEST, why).into_response();
    }
    if let Some(name) = ["to", "because"].into_iter().find(|name| !body[name].is_null() && !body[name].is_string()) {
        return (StatusCode::BAD_REQUEST, format!("{name:?} is no text: {}\n", body[name])).into_response();
    }
    let text = |name: &str| body[name].as_str().map(str::to_owned);
    let to = text("to");
    if to.as_deref() == Some(&*board.id) {
        return (StatusCode::CONFLICT, Json(json!({"leads": true, "error": "it leads already"}))).into_response();
    }
    if let Some(heir) = &to
        && let Err(StoreError::NotWaiting(why)) = board.candidacy.check_waits(heir).await
    {
        return (StatusCode::CONFLICT, Json(json!({"leads": true, "error": why}))).into_response();
    }
    let because = text("because").unwrap_or_else(|| "by its socket".to_owned());
    // A sidecar that ends needs no wish.
    let _ = board.wishes.send(Wish { token, because, to });
    StatusCode::ACCEPTED.into_response()
}

/// Whatever type the body says to be of: only this user's programs reach the socket, and `curl -d` calls JSON a form.
async fn health(State(board): State<Board>, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    match body["healthy"].as_bool() {
        Some(is_healthy) => {
            board.health.send_replace(is_healthy);
            StatusCode::NO_CONTENT.into_response()
        }
        None => (StatusCode::BAD_REQUEST, "say {\"healthy\": true} or false\n").into_response(),
    }
}
