//! `GET /v1/cluster/events`: the cluster as server-sent events, for as long as somebody looks.
//!
//! ```text
//!   event: cluster      what GET /v1/cluster says, each second, and at once when this member's own state or a link of its changes
//!   event: elections    what GET /v1/elections says, every two to four seconds while it changes, as what is left of a lease does;
//!                       {"why": ...} for a user that may not read all keys
//!   event: refused      the caller may not look any more: a token ran out, a right was taken away; then the stream ends
//! ```

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use hustings_api::EtcdError;

use crate::context::Services;
use crate::context::backend::Backend;
use crate::http::body::Body;
use crate::http::dashboard::elections;
use crate::http::dashboard::gather::{Viewer, cluster, reached};
use crate::http::text;

/// Pause between two full reports when nothing happens.
const EVERY: Duration = Duration::from_secs(1);

/// However much happens, not more often.
const PAUSE: Duration = Duration::from_millis(100);

/// Begins a stream, if there are not too many.
pub(super) fn answer<B: Backend>(services: &Services<B>, viewer: Viewer) -> Response<Body> {
    let Ok(place) = services.viewers.clone().try_acquire_owned() else {
        let why = "too many pages are open at this member: close one, or look at another member\n";
        return text(StatusCode::TOO_MANY_REQUESTS, why.to_owned());
    };
    // Two: what a page has not read yet is old.
    let (sender, receiver) = mpsc::channel::<Bytes>(2);
    let services = services.clone();
    tokio::spawn(async move {
        tell(&services, &viewer, &sender).await;
        drop(place);
    });
    let frames = ReceiverStream::new(receiver).map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
    let mut response = Response::new(Body::new(StreamBody::new(frames)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Tells until nobody listens, the caller is refused, or the member stops.
async fn tell<B: Backend>(services: &Services<B>, viewer: &Viewer, sender: &mpsc::Sender<Bytes>) {
    let mut status = services.status_changes();
    let mut stream_end = services.stream_end(false);
    let mut told = Bytes::new();
    let mut elections_due = Instant::now();
    loop {
        let begun = Instant::now();
        let before = reached(services);
        let (kind, value) = match cluster(services, viewer).await {
            // The other members ask for the proof each time; this one has it from the beginning of the stream.
            _ if viewer.has_ended(services).await => {
                ("refused", json!({ "error": EtcdError::InvalidAuthToken.message() }))
            }
            Ok(value) => ("cluster", value),
            Err(refusal) => ("refused", json!({ "error": refusal.message() })),
        };
        if sender.send(event(kind, &value)).await.is_err() || kind == "refused" {
            return;
        }
        if begun >= elections_due {
            let now = elections::told(services, &viewer.caller).await;
            if now != told && sender.send(now.clone()).await.is_err() {
                return;
            }
            told = now;
            elections_due = begun + elections::EVERY;
        }
        tokio::select! {
            () = sleep_until(begun + EVERY) => {}
            () = until_links_change(services, before) => {}
            // The sender of the status lives as long as the node.
            Ok(()) = status.changed() => sleep_until(begun + PAUSE).await,
            () = sender.closed() => return,
            _ = stream_end.end() => return,
        }
        status.mark_unchanged();
    }
}

/// Waits until this member reaches others than before, for a pause at least.
async fn until_links_change<B: Backend>(services: &Services<B>, before: Vec<Option<bool>>) {
    sleep(PAUSE).await;
    while reached(services) == before {
        sleep(PAUSE).await;
    }
}

fn event(kind: &str, value: &Value) -> Bytes {
    event_of(kind, &value.to_string())
}

/// One event of the stream. JSON has neither `\n` nor `\r` in it, so it is one line of data; U+2028 ends no line here.
pub(super) fn event_of(kind: &str, json: &str) -> Bytes {
    format!("event: {kind}\ndata: {json}\n\n").into()
}
