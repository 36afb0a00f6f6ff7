//! The connection whose end is the end of this process: [`keep`]. Hustings alone has it; etcd answers that it does not.
//!
//! The server revokes the session's lease when the kernel closes this connection. So it is closed by nobody else: it stands
//! apart from the channel for requests, which moves from member to member, and it ends here only when its lease is over. The
//! host ends all belief before its thread unwinds, for that closes it, too.
//!
//! One byte behind the member's answer says that this process keeps the connection from now on. Until then it may hang up, as it does
//! when a member does not answer in time; what it hangs up on ends nothing.
//!
//! When the connection breaks behind that byte (a *reset*, a kernel that gives it up), something claims that this process is gone, and
//! the server may have been told the same, or may be told later: the lease counts as lost at once. When the member merely ends it, the
//! lease stands, and another member is asked.

use super::http::{Dialled, dial};
use super::session::Session;
use http_body_util::Empty;
use hustings_api::Client;
use hyper::header::{AUTHORIZATION, CONNECTION, HOST, UPGRADE};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// Pause between two tries.
const RETRY: Duration = Duration::from_millis(200);
/// The same where there was none to be had: what stands there may be upgraded, or a proxy taken away.
const RETRY_REFUSED: Duration = Duration::from_secs(30);

/// The end of a tether.
enum End {
    /// The member ended it, or could not be reached: another one is asked.
    Member,
    /// Something says that this process is gone, or will say it.
    Broken,
    /// The lease is over.
    Lease,
    /// There is none to be had here, and why.
    Refused(String),
}

/// Keeps the session's lease tethered to this process, whichever lease it is.
pub(super) async fn keep(session: Arc<Session>) {
    let mut leases = session.lease.renewals();
    let mut told = String::new();
    loop {
        if leases.wait_for(|since| *since != 0).await.is_err() {
            return;
        }
        let Some(lease) = session.lease.held().map(|held| held.lease) else { continue };
        match hold(&session, lease).await {
            End::Member => tokio::time::sleep(RETRY).await,
            End::Lease => {}
            End::Broken => {
                tracing::warn!("the connection that stands for this process broke: its lease counts as lost");
            }
            End::Refused(why) => {
                if told != why {
                    tracing::warn!("a killed process is succeeded only when its lease ends by time: {why}");
                    told = why;
                }
                tokio::time::sleep(RETRY_REFUSED).await;
            }
        }
    }
}

/// Opens a tether for this lease and waits for its end.
async fn hold(session: &Session, lease: i64) -> End {
    let Some(client) = session.client() else { return End::Member };
    let mut leases = session.lease.renewals();
    let is_over = async {
        // The session has lost this lease: perhaps it has another one by now.
        let is_other = |since: &u64| *since == 0 || session.lease.held().is_none_or(|held| held.lease != lease);
        let _ = leases.wait_for(is_other).await;
    };
    tokio::select! {
        end = held(session, &client, lease) => end,
        () = is_over => End::Lease,
    }
}

async fn held(session: &Session, client: &Client, lease: i64) -> End {
    let opened = timeout(session.patience(), open(session, client, lease)).await;
    let mut stream = match opened {
        Ok(Ok(stream)) => stream,
        Ok(Err(end)) => return end,
        Err(_) => return End::Member,
    };
    let confirm = async {
        stream.write_all(b"\n").await?;
        stream.flush().await
    };
    // From here on an end of this side ends the lease, so no time is set for it.
    if confirm.await.is_err() {
        return broken(session, lease, stream);
    }
    let mut unread = [0; 64];
    loop {
        match stream.read(&mut unread).await {
            Ok(0) => return End::Member,
            Ok(_) => {}
            // In TLS a member that was killed says no good-bye, and its kernel ends the connection all the same.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return End::Member,
            // A member that was killed with words in its hands resets it, too: a lease too few is lost, and none too many is kept.
            Err(_) => return broken(session, lease, stream),
        }
    }
}

/// Loses the lease first. What is left of the connection ends when nobody can believe in it any more, for the member may take that end for
/// this process' own.
fn broken(session: &Session, lease: i64, stream: impl AsyncRead + Send + 'static) -> End {
    session.lose(lease);
    let lasts = session.longest();
    tokio::spawn(async move {
        tokio::time::sleep(lasts).await;
        drop(stream);
    });
    End::Broken
}

async fn open(
    session: &Session,
    client: &Client,
    lease: i64,
) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + use<>, End> {
    let dialled = dial(&session.reach, client.endpoint()).await;
    let Dialled { mut sender, driving, from, host } = dialled.map_err(|_| End::Member)?;
    let mut request = Request::get(format!("/v1/leases/{lease:x}/tether?from={from}"))
        .header(HOST, host)
        .header(CONNECTION, "upgrade")
        .header(UPGRADE, "hustings-tether");
    if let Some(token) = client.token() {
        request = request.header(AUTHORIZATION, token);
    }
    let request = request.body(Empty::<bytes::Bytes>::new()).map_err(|error| End::Refused(error.to_string()))?;
    let response = sender.send_request(request).await.map_err(|_| End::Member)?;
    match response.status() {
        StatusCode::SWITCHING_PROTOCOLS => {
            let upgraded = hyper::upgrade::on(response).await.map_err(|_| End::Member)?;
            Ok(TokioIo::new(upgraded))
        }
        StatusCode::GONE | StatusCode::SERVICE_UNAVAILABLE | StatusCode::UNAUTHORIZED => {
            driving.abort();
            Err(End::Member)
        }
        StatusCode::CONFLICT => Err(End::Refused("a proxy stands between this process and the store".to_owned())),
        status => Err(End::Refused(format!("the store does not know tethers: it answers {status}"))),
    }
}
