//! A unix socket that serves few callers at once: [`BoundedListener`].

use std::io::Result;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::SocketAddr;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A socket with so many places: whoever comes when all are taken waits until somebody leaves.
pub(crate) struct BoundedListener {
    socket: UnixListener,
    places: Arc<Semaphore>,
}

impl BoundedListener {
    pub(crate) fn on(socket: UnixListener, places: usize) -> BoundedListener {
        BoundedListener { socket, places: Arc::new(Semaphore::new(places)) }
    }
}

impl axum::serve::Listener for BoundedListener {
    type Io = Caller;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Caller, SocketAddr) {
        let place = self.places.clone().acquire_owned().await.expect("nobody closes it");
        let (stream, address) = axum::serve::Listener::accept(&mut self.socket).await;
        (Caller { stream, _place: place }, address)
    }

    fn local_addr(&self) -> Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// A connection, and the place that it takes.
pub(crate) struct Caller {
    stream: UnixStream,
    _place: OwnedSemaphorePermit,
}

impl Caller {
    fn stream(self: Pin<&mut Self>) -> Pin<&mut UnixStream> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl AsyncRead for Caller {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        self.stream().poll_read(context, into)
    }
}

impl AsyncWrite for Caller {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        self.stream().poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.stream().poll_shutdown(context)
    }
}
