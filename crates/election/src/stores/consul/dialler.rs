//! Connections for requests over HTTP/1.1, in TLS or not: [`Dialler`].

use crate::address::Security;
use crate::wire::{Stream, Wire};
use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::timeout;
use tower::Service;

/// Time that an agent may take to accept, and to shake hands.
const PATIENCE: Duration = Duration::from_secs(1);

/// Opens connections to agents.
#[derive(Clone)]
pub(super) struct Dialler(Arc<Wire>);

impl Dialler {
    pub(super) fn new(security: &Security) -> Dialler {
        Dialler(Arc::new(Wire::new(security, "consul", &["http/1.1"])))
    }

    /// Reads the files that TLS needs.
    pub(super) fn check(&self) -> Result<(), String> {
        self.0.connector().map(drop)
    }
}

impl Service<Uri> for Dialler {
    type Response = Dialled;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Dialled>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let wire = self.0.clone();
        Box::pin(async move {
            let endpoint = to.authority().map(|authority| authority.as_str()).unwrap_or_default();
            let dialled = timeout(PATIENCE, wire.dial(endpoint)).await;
            let stream =
                dialled.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "it does not accept in time"))??;
            Ok(Dialled(TokioIo::new(stream)))
        })
    }
}

/// An open connection to an agent.
pub(super) struct Dialled(TokioIo<Stream>);

impl Connection for Dialled {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Dialled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for Dialled {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
