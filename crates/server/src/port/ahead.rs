//! A connection of which something was read before its present reader: [`ReadAhead`]. Written bytes go straight through.
//!
//! Read next: [`crate::port::begun`] and [`crate::port::authority`], which look ahead.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The bytes that were read ahead, and how the reading goes on.
pub(crate) trait Ahead<S> {
    /// Reads as [`AsyncRead::poll_read`], of `stream` behind what is held here.
    fn poll_read(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>>;
}

/// A connection with what was read ahead of it.
pub(crate) struct ReadAhead<S, A> {
    stream: S,
    ahead: A,
}

impl<S, A: Ahead<S>> ReadAhead<S, A> {
    pub(crate) fn of(stream: S, ahead: A) -> ReadAhead<S, A> {
        ReadAhead { stream, ahead }
    }
}

impl<S: Unpin, A: Ahead<S> + Unpin> AsyncRead for ReadAhead<S, A> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let ReadAhead { stream, ahead } = &mut *self;
        ahead.poll_read(stream, context, buffer)
    }
}

impl<S: AsyncWrite + Unpin, A: Unpin> AsyncWrite for ReadAhead<S, A> {
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
