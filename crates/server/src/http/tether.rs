//! A lease that ends with its owner's process: [`hold`].
//!
//! `GET /v1/leases/<id in hex>/tether?from=<IP:PORT>` with `Upgrade: hustings-tether` is answered 101, and then nothing is said
//! on the connection but one byte of the owner, whichever: it has read the answer, and keeps the connection from now on for as long
//! as it believes. When the owner's kernel closes it behind that byte, because the process is gone, the lease is revoked at once: its
//! keys vanish after one commit instead of a time to live. An owner that gave up waiting for the answer hangs up too, and lives on; it
//! has not said the byte.
//!
//! Two things do not end the lease: a connection that *this* side gives up (a member that stops or dies, a peer that is
//! silent), and anything that stands in between. The owner says the address of its own end; if this member sees another one,
//! a proxy or an address translation is in between, whose end says nothing about the owner, and the tether is refused.
//!
//! Other servers do not know the path and answer 404, so asking for it is always safe. The duties of an owner stand in
//! `docs/leadership.md`: all that acts under the lease dies with the process, and it never closes the connection before its
//! belief has ended.
//!
//! Read next: `hustings_election`'s `stores::etcd::tether`, the owner's side.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hustings_kv::{Command, LeaseRevoke, Need};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tonic::{Code, Status};

use crate::context::backend::Backend;
use crate::context::caller::{Caller, CommonName};
use crate::context::metrics::Metrics;
use crate::context::{Context, Learner, Services};
use crate::http::body::Body;
use crate::http::own::admit;
use crate::http::text;

/// Name of the upgrade.
pub(crate) const PROTOCOL: &str = "hustings-tether";

/// Pause between two looks of a tether whether its lease is there still.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// The parts of a connection that a tether takes over from it.
#[derive(Clone)]
pub(crate) struct Line {
    /// The other end, as this member sees it.
    pub(crate) peer: SocketAddr,
    /// Name in the certificate that the other end has shown; `None` if it has shown none.
    pub(crate) name: Option<CommonName>,
    pub(crate) stopped: watch::Receiver<bool>,
    /// The connection's place among those that may be open.
    pub(crate) slot: Arc<OwnedSemaphorePermit>,
}

/// The lease in a path, if the path asks for a tether.
pub(crate) fn lease_of(path: &str) -> Option<&str> {
    path.strip_prefix("/v1/leases/")?.strip_suffix("/tether")
}

/// Answers a request for a tether.
pub(crate) async fn answer<B: Backend>(services: &Services<B>, mut request: Request<Incoming>) -> Response<Body> {
    let refuse = |status, why: String| text(status, why + "\n");
    let bad = |why: &str| refuse(StatusCode::BAD_REQUEST, why.to_owned());
    let lease = lease_of(request.uri().path()).and_then(|id| i64::from_str_radix(id, 16).ok());
    let Some(lease) = lease else { return bad("a tether names its lease in hex, as in /v1/leases/694d7e1c2a/tether") };
    let from = request.uri().query().unwrap_or("").split('&').find_map(|pair| pair.strip_prefix("from="));
    let Some(from) = from.and_then(|from| from.parse::<SocketAddr>().ok()) else {
        return bad("a tether says the address of its owner's end, as in ?from=10.0.0.7:51234");
    };
    if request.headers().get(UPGRADE).is_none_or(|protocol| protocol != PROTOCOL) {
        return bad("a tether is asked for with the headers `Connection: upgrade` and `Upgrade: hustings-tether`");
    }
    let Some(line) = request.extensions_mut().remove::<Line>() else {
        return bad("a tether is a connection of its own, over HTTP/1.1");
    };
    if (from.ip().to_canonical(), from.port()) != (line.peer.ip().to_canonical(), line.peer.port()) {
        let why = format!(
            "the owner's end is {from}, and this member sees {}: something stands between, whose end is not the owner's",
            line.peer
        );
        return refuse(StatusCode::CONFLICT, why);
    }
    let (head, body) = request.into_parts();
    // A tether ends its lease.
    let admitted = async {
        let caller = admit(services, &head, Learner::Serves).await?;
        let view = services.read(&caller, Need::WriteLease(lease)).await?;
        Ok::<_, Status>((caller, view.has_lease(lease)))
    };
    let caller = match admitted.await {
        Ok((caller, true)) => caller,
        Ok((_, false)) => return refuse(StatusCode::GONE, format!("there is no lease {lease:x}")),
        Err(status) => {
            let code = match status.code() {
                Code::PermissionDenied => StatusCode::FORBIDDEN,
                Code::Unauthenticated | Code::InvalidArgument => StatusCode::UNAUTHORIZED,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            return refuse(code, status.message().to_owned());
        }
    };
    let request = Request::from_parts(head, body);
    let context = services.0.clone();
    tokio::spawn(async move {
        if let Ok(upgraded) = hyper::upgrade::on(request).await
            && hold(&context, lease, TokioIo::new(upgraded), line.stopped).await
        {
            tracing::info!(lease = format!("{lease:x}"), "the process that owns this lease is gone: it ends");
            // Without a leader the lease ends by its time.
            let _ = context.propose(&caller, Command::LeaseRevoke(LeaseRevoke { id: lease })).await;
        }
        drop(line.slot);
    });
    let mut response = Response::new(Body::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
    response
}

/// Waits for the end of the connection; true when it was the owner's kernel that ended it, and the owner had said that it stays.
async fn hold<B: Backend>(
    context: &Context<B>,
    lease: i64,
    stream: impl AsyncRead + Unpin,
    mut stopped: watch::Receiver<bool>,
) -> bool {
    let mut ended = pin!(ended_by_owner(stream, || TetherGauge::of(&context.metrics)));
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    loop {
        tokio::select! {
            is_owner = &mut ended => return is_owner,
            _ = look.tick() => match context.read_local(&Caller::member(), Need::Nothing).await {
                Ok(view) if !view.has_lease(lease) => return false,
                _ => {}
            },
            _ = stopped.changed() => return false,
        }
    }
}

/// Waits for the end of the connection, and counts it from the moment at which the owner says that it stays.
async fn ended_by_owner<C>(mut stream: impl AsyncRead + Unpin, count: impl Fn() -> C) -> bool {
    let (mut unread, mut counted) = ([0; 64], None);
    loop {
        match is_end_of_owner(&stream.read(&mut unread).await) {
            Some(is_owner) => return is_owner && counted.is_some(),
            None if counted.is_none() => counted = Some(count()),
            None => {}
        }
    }
}

/// A tether among those that the metrics tell, for as long as this lives.
struct TetherGauge<'a>(&'a Metrics);

impl TetherGauge<'_> {
    fn of(metrics: &Metrics) -> TetherGauge<'_> {
        metrics.on_tether(1);
        TetherGauge(metrics)
    }
}

impl Drop for TetherGauge<'_> {
    fn drop(&mut self) {
        self.0.on_tether(-1);
    }
}

/// Whether the owner is gone; `None`: the connection stands.
fn is_end_of_owner(read: &std::io::Result<usize>) -> Option<bool> {
    match read {
        Ok(0) => Some(true),
        Ok(_) => None,
        // In TLS a process that is gone says no good-bye: its end is one that was not expected.
        Err(error) => Some(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only what the owner's kernel says ends a lease. Method: every end that a connection can have.
    #[test]
    fn a_silent_owner_is_not_a_dead_one() {
        let failed = |kind: ErrorKind| is_end_of_owner(&Err(kind.into()));
        assert_eq!(is_end_of_owner(&Ok(0)), Some(true));
        assert_eq!(failed(ErrorKind::ConnectionReset), Some(true));
        assert_eq!(failed(ErrorKind::UnexpectedEof), Some(true));
        for kind in [ErrorKind::TimedOut, ErrorKind::HostUnreachable, ErrorKind::BrokenPipe, ErrorKind::Other] {
            assert_eq!(failed(kind), Some(false), "{kind}");
        }
        assert_eq!(is_end_of_owner(&Ok(3)), None);
    }

    /// Goal: an owner that has not read the answer does not count as one by hanging up. Method: with its byte and without.
    #[tokio::test]
    async fn only_who_has_said_that_it_stays_ends_a_lease_by_its_end() {
        for (said, ends) in [(&b""[..], false), (b"\n", true), (b"what it likes", true)] {
            assert_eq!(ended_by_owner(said, || ()).await, ends, "{said:?}");
        }
    }

    #[test]
    fn a_path_names_its_lease() {
        assert_eq!(lease_of("/v1/leases/7f/tether"), Some("7f"));
        assert_eq!(lease_of("/v1/leases/7f"), None);
    }
}
