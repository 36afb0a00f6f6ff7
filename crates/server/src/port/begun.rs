//! The first bytes of a connection: which HTTP it speaks.
//!
//! HTTP/2 with prior knowledge begins with 24 fixed bytes (RFC 9113 §3.4); anything else is taken for HTTP/1.1, whose
//! parser refuses what is neither. The bytes that were looked at are given back in front of the rest.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use crate::port::ClientStream;

const HTTP2: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Which HTTP a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Preface {
    /// With prior knowledge.
    Http2,
    /// Or garbage.
    Http1,
}

/// A connection whose first bytes have been looked at.
pub(crate) struct Begun {
    head: [u8; HTTP2.len()],
    /// Which bytes of the head are still to be read.
    unread: std::ops::Range<usize>,
    stream: ClientStream,
}

impl Begun {
    /// Waits for as many bytes as tell the two apart. The caller bounds the time.
    pub(crate) async fn by(mut stream: ClientStream) -> io::Result<(Preface, Begun)> {
        let mut head = [0; HTTP2.len()];
        let mut length = 0;
        while head[..length] == HTTP2[..length] && length < HTTP2.len() {
            match stream.read(&mut head[length..]).await? {
                0 => break,
                read => length += read,
            }
        }
        let preface = if head == *HTTP2 { Preface::Http2 } else { Preface::Http1 };
        Ok((preface, Begun { head, unread: 0..length, stream }))
    }
}

impl AsyncRead for Begun {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let start = self.unread.start;
        let end = self.unread.end.min(start + buffer.remaining());
        buffer.put_slice(&self.head[start..end]);
        self.unread.start = end;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Begun {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
