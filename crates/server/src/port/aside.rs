//! Listeners of their own for those who watch over a member: metrics and health, and nothing else.
//!
//! Source: etcd 3.5, `--listen-metrics-urls`. They have their own few connections, so that a probe gets through where
//! clients have taken all, and a network that may only measure reaches no key.
//!
//! Deliberately absent: HTTP/2, and all of the API.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Semaphore, watch};

use crate::context::Services;
use crate::context::backend::Backend;
use crate::http;
use crate::http::body::Body;
use crate::port::{ClientStream, Door, Port};

/// Connections open at a time on one such listener.
const CONNECTIONS_MAX: usize = 64;

/// Pause after the system refused to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Whether a path is answered here.
fn is_answered(path: &str) -> bool {
    matches!(path, "/metrics" | "/health" | "/livez" | "/readyz")
        || path.starts_with("/livez/")
        || path.starts_with("/readyz/")
}

/// Accepts connections until told to stop.
pub(crate) async fn accept<B: Backend>(
    Port { listener, tls, .. }: Port,
    services: Arc<Services<B>>,
    mut stopped: watch::Receiver<bool>,
) {
    let door = Door::new(tls, false);
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // The semaphore is never closed.
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => return,
        };
        let Ok((stream, from)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (services, stopped, door) = (services.clone(), stopped.clone(), door.clone());
        tokio::spawn(async move {
            let patience = services.options.header_timeout;
            if let Ok(Some((stream, _))) = tokio::time::timeout(patience, door.enter(stream, from)).await {
                converse(stream, services, stopped).await;
            }
            drop(slot);
        });
    }
}

/// Serves one connection to its end, in HTTP/1.1.
async fn converse<B: Backend>(stream: ClientStream, services: Arc<Services<B>>, mut stopped: watch::Receiver<bool>) {
    let patience = services.options.header_timeout;
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(patience).max_buf_size(64 << 10);
    let service = service_fn(|request| answer(services.clone(), request));
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection for metrics ended");
    }
}

async fn answer<B: Backend>(
    services: Arc<Services<B>>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    if !is_answered(request.uri().path()) {
        return Ok(http::text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()));
    }
    Ok(http::answer(&services, request).await)
}
