//! The first bytes of a connection: which HTTP it speaks.
//!
//! HTTP/2 with prior knowledge begins with 24 fixed bytes (RFC 9113 §3.4); anything else is taken for HTTP/1.1, whose
//! parser refuses what is neither. The bytes that were looked at are given back in front of the rest.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use crate::port::ClientStream;
use crate::port::ahead::{Ahead, ReadAhead};

const HTTP2: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The version of HTTP that a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Preface {
    /// HTTP/2 with prior knowledge.
    Http2,
    /// HTTP/1.1, or bytes that are no HTTP, which are refused as such.
    Http1,
}

/// The first bytes, as they were looked at.
pub(crate) struct Head {
    bytes: [u8; HTTP2.len()],
    /// Range of the bytes that are still to be read.
    unread: Range<usize>,
}

/// A connection whose first bytes have been looked at.
pub(crate) type Begun = ReadAhead<ClientStream, Head>;

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
        Ok((preface, ReadAhead::of(stream, Head { bytes: head, unread: 0..length })))
    }
}

impl Ahead<ClientStream> for Head {
    fn poll_read(
        &mut self,
        stream: &mut ClientStream,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            return Pin::new(stream).poll_read(context, buffer);
        }
        let start = self.unread.start;
        let end = self.unread.end.min(start + buffer.remaining());
        buffer.put_slice(&self.bytes[start..end]);
        self.unread.start = end;
        Poll::Ready(Ok(()))
    }
}
