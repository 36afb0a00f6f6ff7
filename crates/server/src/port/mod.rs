//! A port for clients, with TLS or without: [`Port`].
//!
//! The first byte tells which of the two a client speaks, before anything is answered. A client that speaks the wrong one is
//! told so, as far as it can be told, and so is the operator: once for as long as it goes on, with a count.
//!
//! The highest of the server's rooms; [`server`] joins the others.
//!
//! Read next: [`crate::port::begun`], which HTTP is spoken on top.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use hustings_node::Complaints;
use hustings_tls::{Acceptor, Certificate, end_answered};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;

pub(crate) mod ahead;

pub(crate) mod begun;

pub(crate) mod authority;

pub(crate) mod tally;

pub(crate) mod under_way;

pub(crate) mod aside;

pub mod server;

/// The first byte of a handshake in TLS.
const HANDSHAKE: u8 = 0x16;
/// Answer to HTTP on a port in TLS, as Go's servers give it, and so etcd.
const HTTP_TO_HTTPS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// A port that clients connect to.
pub struct Port {
    /// Socket that accepts them.
    pub listener: TcpListener,
    /// TLS of the port; `None` if it speaks in the clear.
    pub tls: Option<Acceptor>,
    /// Whether the common name of a client's certificate is the user that calls, where it gives no token.
    pub names_users: bool,
}

impl From<TcpListener> for Port {
    fn from(listener: TcpListener) -> Port {
        Port { listener, tls: None, names_users: false }
    }
}

/// A client's connection, with or without TLS.
pub(crate) enum ClientStream {
    /// A connection in the clear.
    Plain(TcpStream),
    /// A connection that is encrypted with TLS.
    Tls(Box<TlsStream<TcpStream>>),
    /// A connection from inside of this process.
    Inside(DuplexStream),
}

/// The checks of a port on those who come: TLS, names, and log lines about those it turns away.
pub(crate) struct Door {
    tls: Option<Acceptor>,
    names_users: bool,
    complaints: Mutex<Complaints>,
}

impl Door {
    pub(crate) fn new(tls: Option<Acceptor>, names_users: bool) -> Arc<Door> {
        Arc::new(Door { tls, names_users, complaints: Mutex::new(Complaints::new("a client")) })
    }

    /// Whether the common name of a certificate is a user.
    pub(crate) fn names_users(&self) -> bool {
        self.names_users
    }

    /// Lets a client in: the stream, and whose certificate it showed. The caller bounds the time.
    pub(crate) async fn enter(
        &self,
        mut stream: TcpStream,
        from: SocketAddr,
    ) -> Option<(ClientStream, Option<Certificate>)> {
        let mut first = [0];
        let speaks_tls = stream.peek(&mut first).await.ok()? == 1 && first[0] == HANDSHAKE;
        match (&self.tls, speaks_tls) {
            (None, false) => Some((ClientStream::Plain(stream), None)),
            (Some(tls), true) => match tls.accept(stream).await {
                Ok((stream, shown)) => Some((ClientStream::Tls(Box::new(stream)), shown)),
                Err(error) => {
                    self.turn_away(from, &error.to_string());
                    None
                }
            },
            (Some(_), false) => {
                self.turn_away(from, "it speaks no TLS, which this port asks for: give it https:// and the CA");
                // One that has gone already does not hear it.
                let _ = stream.write_all(HTTP_TO_HTTPS).await;
                end_answered(stream).await;
                None
            }
            (None, true) => {
                self.turn_away(
                    from,
                    "it speaks TLS, and this port does not: give it http://, or this member --cert-file",
                );
                None
            }
        }
    }

    fn turn_away(&self, from: SocketAddr, why: &str) {
        // Nobody panics while holding it.
        self.complaints.lock().unwrap_or_else(PoisonError::into_inner).tell(from, why);
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ClientStream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            ClientStream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
            ClientStream::Inside(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            ClientStream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            ClientStream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
            ClientStream::Inside(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            ClientStream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            ClientStream::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            ClientStream::Inside(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            ClientStream::Plain(stream) => stream.is_write_vectored(),
            ClientStream::Tls(stream) => stream.is_write_vectored(),
            ClientStream::Inside(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ClientStream::Plain(stream) => Pin::new(stream).poll_flush(context),
            ClientStream::Tls(stream) => Pin::new(stream).poll_flush(context),
            ClientStream::Inside(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ClientStream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            ClientStream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            ClientStream::Inside(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
