//! The bytes on their way to a peer: an [`Outbox`], bounded, which the loop writes to the socket itself while the peer takes them.

use crate::counters::{Counters, PeerCounters};
use crate::frame::{LinkError, put_frame};
use crate::peer_stream::Writing;
use bytes::{Buf, BytesMut};
use hustings_core::replica::ReplicaMessage;
use hustings_core::{NodeId, Wire};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;

/// Bytes that may wait for a slow peer; beyond, its link is cut and it starts over, so that memory is bounded.
const OUTBOX_BYTES_MAX: usize = 128 << 20;
/// Outbox memory that is kept for the next messages once all is sent.
const OUTBOX_KEPT_MAX: usize = 4 << 20;

/// Bytes on their way to a peer.
pub(crate) struct Outbox {
    buffer: RefCell<BytesMut>,
    writing: Writing,
    counters: Arc<Counters>,
    pub(super) of_peer: Arc<PeerCounters>,
    /// The writer task has something to do: bytes that did not leave at once, or the end.
    needs_writer: Notify,
    pub(super) is_closed: Cell<bool>,
    is_ending: Cell<bool>,
}

/// The part of an outbox's bytes that was written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flushed {
    All,
    /// The peer reads slowly: the rest waits until the socket takes more.
    Some,
}

impl Outbox {
    pub(super) fn new(writing: Writing, counters: Arc<Counters>, peer: NodeId) -> Rc<Outbox> {
        let of_peer = counters.of_peer(peer);
        Rc::new(Outbox {
            buffer: RefCell::new(BytesMut::new()),
            writing,
            counters,
            of_peer,
            needs_writer: Notify::new(),
            is_closed: Cell::new(false),
            is_ending: Cell::new(false),
        })
    }

    /// The peer answered a question of the link; the round trip took this many microseconds.
    pub(crate) fn on_round_trip(&self, micros: u64) {
        self.of_peer.on_round_trip(micros);
    }

    /// Queues a message until [`Outbox::flush`]; a peer that cannot keep up loses its link.
    pub(crate) fn put<M: Wire>(&self, message: &ReplicaMessage<M>) {
        if self.is_closed.get() {
            return;
        }
        let mut buffer = self.buffer.borrow_mut();
        put_frame(&mut buffer, |out| message.encode(out));
        if buffer.len() > OUTBOX_BYTES_MAX {
            drop(buffer);
            self.close();
        }
    }

    /// Sends what is queued as far as the peer takes it now, and leaves the rest to the writer task.
    pub(crate) fn flush(&self) {
        // The writer task meets the same error and tells it.
        if !matches!(self.try_write(), Ok(Flushed::All)) {
            self.needs_writer.notify_one();
        }
    }

    fn try_write(&self) -> io::Result<Flushed> {
        if self.counters.cut.is_cut() {
            return Ok(Flushed::Some);
        }
        let mut buffer = self.buffer.borrow_mut();
        while !buffer.is_empty() {
            let written = match self.writing.try_write(&buffer) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Flushed::Some),
                Err(error) => return Err(error),
            };
            Counters::add(&self.counters.peer_bytes_sent, written as u64);
            Counters::add(&self.of_peer.bytes_sent, written as u64);
            match written == buffer.len() {
                true if buffer.capacity() > OUTBOX_KEPT_MAX => *buffer = BytesMut::new(),
                true => buffer.clear(),
                false => buffer.advance(written),
            }
        }
        match self.writing.try_flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Flushed::Some),
            flushed => flushed.map(|()| Flushed::All),
        }
    }

    /// Ends the link once what is queued in this turn has left: the last word to a peer that was removed.
    pub(crate) fn end(&self) {
        self.is_ending.set(true);
        self.needs_writer.notify_one();
    }

    /// Ends the link and drops what was not sent.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        self.buffer.borrow_mut().clear();
        self.needs_writer.notify_one();
    }

    /// Writes what the loop could not until the link ends.
    pub(super) async fn write(&self) -> Result<(), LinkError> {
        loop {
            if self.is_closed.get() {
                return Err(LinkError::Closed);
            }
            match self.try_write()? {
                Flushed::All if self.is_ending.get() => return Err(LinkError::Closed),
                Flushed::All => self.needs_writer.notified().await,
                Flushed::Some if self.counters.cut.is_cut() => tokio::select! {
                    () = self.counters.cut.healed() => {}
                    () = self.needs_writer.notified() => {}
                },
                // A link that is closed meanwhile ends at once, not when its peer reads on.
                Flushed::Some => tokio::select! {
                    ready = self.writing.writable() => ready?,
                    () = self.needs_writer.notified() => {}
                },
            }
        }
    }
}
