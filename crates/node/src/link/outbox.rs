//! Messages on their way to a peer: an [`Outbox`], bounded, which the loop writes to the socket itself while the peer takes it.
//!
//! Messages become bytes a little ahead of the socket. A member that comes back is sent 32 MiB of entries at once: as bytes, in
//! memory that the kernel must clear first, they once kept the loop from its heartbeats for up to a second.

use crate::counters::{Counters, PeerCounters};
use crate::frame::{LinkError, put_frame};
use crate::peer_stream::Writing;
use bytes::{Buf, BytesMut};
use hustings_core::replica::ReplicaMessage;
use hustings_core::{NodeId, Wire};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;

/// Bytes that may wait for a slow peer; beyond, its link is cut and it starts over, so that memory is bounded.
const OUTBOX_BYTES_MAX: usize = 128 << 20;
/// With so many bytes on their way no forwarded command follows them: it is sent again soon, for nobody answers it. So whatever clients send,
/// what a protocol says is never far behind it, and the link is not cut for it.
const BEFORE_FORWARDS_MAX: usize = 32 << 20;
/// Outbox memory that is kept for the next messages once all is sent.
const OUTBOX_KEPT_MAX: usize = 4 << 20;
/// With as many bytes ahead of the socket, further messages wait as they are.
const ENCODED_BYTES_MAX: usize = 256 << 10;
/// Bytes that are written before the loop and the other links have their turn.
const TURN_BYTES_MAX: usize = 1 << 20;
/// Bytes that each entry of a message takes besides its payload, about.
const OVERHEAD_BYTES: usize = 96;

/// Messages on their way to a peer.
pub(crate) struct Outbox {
    /// The bytes that the socket takes next.
    buffer: RefCell<BytesMut>,
    /// The messages behind it.
    waiting: RefCell<VecDeque<Waiting>>,
    waiting_bytes: Cell<usize>,
    writing: Writing,
    counters: Arc<Counters>,
    pub(crate) of_peer: Arc<PeerCounters>,
    /// The writer task has something to do: bytes that did not leave at once, or the end.
    needs_writer: Notify,
    pub(super) is_closed: Cell<bool>,
    is_ending: Cell<bool>,
}

/// A message that is not encoded yet.
struct Waiting {
    /// About as many bytes as it takes.
    bytes: usize,
    encode: Box<dyn FnOnce(&mut BytesMut)>,
}

/// The part of an outbox's bytes that was written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flushed {
    All,
    /// The peer reads slowly: the rest waits until the socket takes more.
    Some,
    /// As much as one turn may write: the rest waits for the next.
    Portion,
}

/// About as many bytes as a message takes while it waits.
fn held_by<M: Wire>(message: &mut ReplicaMessage<M>) -> usize {
    let mut bytes = size_of::<ReplicaMessage<M>>() + size_of::<Waiting>();
    match message {
        ReplicaMessage::Protocol(message) => {
            message.visit_payloads(&mut |_, payload| bytes += OVERHEAD_BYTES + payload.len());
        }
        ReplicaMessage::Forward { requests, .. } => {
            bytes += requests.iter().map(|request| OVERHEAD_BYTES + request.payload.len()).sum::<usize>();
        }
        ReplicaMessage::Chunk { bytes: part, .. } => bytes += part.len(),
        ReplicaMessage::Durable(positions) => bytes += positions.len() * OVERHEAD_BYTES,
        ReplicaMessage::ForwardRefused { .. }
        | ReplicaMessage::AskRead { .. }
        | ReplicaMessage::ReadAt { .. }
        | ReplicaMessage::ReadRefused { .. }
        | ReplicaMessage::AskChunk { .. }
        | ReplicaMessage::ChunkGone { .. }
        | ReplicaMessage::Ping { .. }
        | ReplicaMessage::Pong { .. }
        | ReplicaMessage::Digest { .. } => {}
    }
    bytes
}

impl Outbox {
    pub(super) fn new(writing: Writing, counters: Arc<Counters>, peer: NodeId) -> Rc<Outbox> {
        let of_peer = counters.of_peer(peer);
        Rc::new(Outbox {
            buffer: RefCell::new(BytesMut::new()),
            waiting: RefCell::default(),
            waiting_bytes: Cell::new(0),
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
    pub(crate) fn put<M: Wire + 'static>(&self, mut message: ReplicaMessage<M>) {
        if self.is_closed.get() {
            return;
        }
        let (mut buffer, mut waiting) = (self.buffer.borrow_mut(), self.waiting.borrow_mut());
        let is_forward = matches!(message, ReplicaMessage::Forward { .. });
        if is_forward && buffer.len() + self.waiting_bytes.get() > BEFORE_FORWARDS_MAX {
            return;
        }
        if waiting.is_empty() && buffer.len() < ENCODED_BYTES_MAX {
            put_frame(&mut buffer, |out| message.encode(out));
        } else {
            let bytes = held_by(&mut message);
            self.waiting_bytes.update(|waiting| waiting + bytes);
            let encode = Box::new(move |out: &mut BytesMut| put_frame(out, |out| message.encode(out)));
            waiting.push_back(Waiting { bytes, encode });
        }
        if buffer.len() + self.waiting_bytes.get() > OUTBOX_BYTES_MAX {
            drop((buffer, waiting));
            self.close();
        }
    }

    /// Sends what is queued as far as the peer takes it now and one turn may, and leaves the rest to the writer task.
    pub(crate) fn flush(&self) {
        // The writer task meets the same error and tells it.
        if !matches!(self.try_write(TURN_BYTES_MAX), Ok(Flushed::All)) {
            self.needs_writer.notify_one();
        }
    }

    /// Sends what is queued as far as the peer takes it, for a node that has no further turn.
    pub(crate) fn flush_last(&self) {
        // A peer whose link fails does without the last words.
        let _ = self.try_write(usize::MAX);
    }

    fn try_write(&self, bytes_max: usize) -> io::Result<Flushed> {
        if self.counters.cut.is_cut() {
            return Ok(Flushed::Some);
        }
        let mut buffer = self.buffer.borrow_mut();
        let mut left = bytes_max;
        loop {
            self.encode_next(&mut buffer);
            if buffer.is_empty() {
                break;
            }
            if left == 0 {
                return Ok(Flushed::Portion);
            }
            let portion = &buffer[..buffer.len().min(left)];
            let written = match self.writing.try_write(portion) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Flushed::Some),
                Err(error) => return Err(error),
            };
            left -= written;
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

    /// Encodes waiting messages, once all bytes before them are written.
    fn encode_next(&self, buffer: &mut BytesMut) {
        if !buffer.is_empty() {
            return;
        }
        while buffer.len() < ENCODED_BYTES_MAX
            && let Some(next) = self.waiting.borrow_mut().pop_front()
        {
            self.waiting_bytes.update(|waiting| waiting - next.bytes);
            (next.encode)(buffer);
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
        self.waiting.borrow_mut().clear();
        self.waiting_bytes.set(0);
        self.needs_writer.notify_one();
    }

    /// Writes what the loop could not until the link ends.
    pub(super) async fn write(&self) -> Result<(), LinkError> {
        loop {
            if self.is_closed.get() {
                return Err(LinkError::Closed);
            }
            match self.try_write(TURN_BYTES_MAX)? {
                Flushed::All if self.is_ending.get() => return Err(LinkError::Closed),
                Flushed::All => self.needs_writer.notified().await,
                Flushed::Portion => tokio::task::yield_now().await,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::take_frame;
    use bytes::Bytes;
    use hustings_core::replica::message::ForwardedRequest;
    use hustings_core::{EntryKind, Lsn, WireError};
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    const PART_BYTES: usize = 1 << 20;

    /// A protocol that says nothing.
    #[derive(Clone, PartialEq, Debug)]
    enum Silent {}

    impl Wire for Silent {
        fn encode(&self, _: &mut BytesMut) {
            match *self {}
        }

        fn decode(_: Bytes) -> Result<Silent, WireError> {
            Err(WireError("nothing is said".to_owned()))
        }
    }

    fn part(number: u64) -> ReplicaMessage<Silent> {
        ReplicaMessage::Chunk { lsn: Lsn::default(), offset: number, bytes: Bytes::from(vec![0; PART_BYTES]) }
    }

    async fn outbox() -> (Rc<Outbox>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (peer, _) = listener.accept().await.unwrap();
        let (_, writing) = own.into_split();
        (Outbox::new(Writing::Plain(writing), Arc::default(), NodeId(2)), peer)
    }

    #[tokio::test]
    async fn a_backlog_leaves_in_portions_and_in_order() {
        // Goal: found by measuring: 32 MiB for a member that came back were encoded, and written, in one turn of the loop.
        let (outbox, mut peer) = outbox().await;
        (0..32).for_each(|number| outbox.put(part(number)));
        outbox.put(ReplicaMessage::<Silent>::Ping { sent_micros: 32 });
        assert!(outbox.buffer.borrow().len() < ENCODED_BYTES_MAX + PART_BYTES + 100, "the rest is not encoded yet");
        assert!(outbox.try_write(PART_BYTES / 2).unwrap() != Flushed::All, "no more leaves than was asked for");
        let sent = outbox.of_peer.bytes_sent.load(std::sync::atomic::Ordering::Relaxed);
        assert!(sent > 0 && sent <= PART_BYTES as u64 / 2, "{sent}");
        let reading = async {
            let (mut buffer, mut numbers) = (BytesMut::new(), Vec::new());
            while numbers.len() < 33 {
                assert!(peer.read_buf(&mut buffer).await.unwrap() > 0);
                while let Some(frame) = take_frame(&mut buffer, 2 * PART_BYTES).unwrap() {
                    numbers.push(match ReplicaMessage::<Silent>::decode(frame).unwrap() {
                        ReplicaMessage::Chunk { offset, .. } => offset,
                        ReplicaMessage::Ping { sent_micros } => sent_micros,
                        _ => panic!("another message"),
                    });
                }
            }
            numbers
        };
        tokio::select! {
            ended = outbox.write() => panic!("the link goes on: {ended:?}"),
            numbers = reading => assert_eq!(numbers, (0..33).collect::<Vec<_>>()),
        }
        assert_eq!(outbox.waiting_bytes.get(), 0);
    }

    #[tokio::test]
    async fn forwarded_commands_cut_no_link_however_many_they_are() {
        // Goal: clients that send more than a link takes end nothing (finding of a hostile reader: 128 MiB of commands, sent again when a leader
        // was heard, cut the link to it each time). Method: 200 commands of a megabyte, then what a protocol says; nobody reads.
        let (outbox, _peer) = outbox().await;
        for sequence in 0..200 {
            let payload = Bytes::from(vec![0; PART_BYTES]);
            let requests = vec![ForwardedRequest { sequence, kind: EntryKind::Command, payload }];
            outbox.put(ReplicaMessage::<Silent>::Forward { incarnation: 1, requests });
        }
        outbox.put(ReplicaMessage::<Silent>::Ping { sent_micros: 1 });
        let on_their_way = outbox.buffer.borrow().len() + outbox.waiting_bytes.get();
        assert!((30 << 20..40 << 20).contains(&on_their_way), "{on_their_way} bytes");
        assert!(!outbox.is_closed.get());
    }

    #[tokio::test]
    async fn a_peer_that_reads_nothing_loses_its_link_and_what_waits_for_it() {
        let (outbox, _peer) = outbox().await;
        let fits = OUTBOX_BYTES_MAX / (PART_BYTES + 1_000);
        (0..fits as u64).for_each(|number| outbox.put(part(number)));
        assert!(!outbox.is_closed.get());
        (0..2).for_each(|number| outbox.put(part(number)));
        assert!(outbox.is_closed.get());
        assert_eq!((outbox.waiting.borrow().len(), outbox.waiting_bytes.get()), (0, 0));
    }
}
