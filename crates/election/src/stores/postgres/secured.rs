//! TLS for the driver of PostgreSQL's protocol: [`Securing`].

use crate::wire::Stream;
use hustings_tls::Connector;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

/// Shakes hands with the server that is dialled.
#[derive(Clone)]
pub(super) struct Securing {
    /// The connector; without one, TLS is not wanted, and so never asked for here.
    pub(super) connector: Option<Connector>,
    pub(super) host: String,
}

impl MakeTlsConnect<Socket> for Securing {
    type Stream = Secured;
    type TlsConnect = Securing;
    type Error = io::Error;

    fn make_tls_connect(&mut self, _: &str) -> io::Result<Securing> {
        Ok(self.clone())
    }
}

impl TlsConnect<Socket> for Securing {
    type Stream = Secured;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Secured>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move {
            let connector = self.connector.ok_or_else(|| io::Error::other("TLS was not asked for"))?;
            let (stream, _) = connector.connect(&self.host, stream).await?;
            Ok(Secured(Box::new(stream)))
        })
    }
}

/// A connection in TLS.
pub(super) struct Secured(Stream);

impl TlsStream for Secured {
    /// None: the server's certificate is what proves who it is.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Secured {
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
