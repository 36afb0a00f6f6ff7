//! Bodies, counted: what comes in ([`Metered`]), and what goes out ([`send`]).
//!
//! ```text
//!   connection ──► Metered: bytes of the unfinished message are held, and must be whole in time ──► service
//!   connection ◄── large answers: built and encoded off the client threads, held until they are sent ◄── service
//! ```
//!
//! Of a stream of gRPC's messages, whose frames are walked (a byte, a length, a message), only the one that is still coming
//! counts. Any other body counts as a whole, until the service has read it.
//!
//! Read next: [`crate::port::server`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body_util::{BodyExt, StreamBody};
use hyper::HeaderMap;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::header::CONTENT_TYPE;
use tokio::sync::mpsc;
use tokio::time::Sleep;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::context::memory::{Held, Memory, SMALL_BYTES, Weight};
use crate::context::off_the_loop;

/// The body of every answer.
pub(crate) type Body = tonic::body::Body;

/// Bytes in front of a message of gRPC.
const HEAD: usize = 5;

/// Size of an answer, in bytes, from which on it is encoded off the client threads.
const LARGE_BYTES: usize = 1 << 20;

/// Such an answer is sent in parts of this many bytes.
const PART_BYTES: usize = 64 << 10;

/// Parts that wait for the connection.
const PARTS_MAX: usize = 4;

/// The way in which a body is cut into messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// One message: all of it must come in time.
    Whole,
    /// Messages of gRPC: the next whenever the client likes, but then in time.
    Stream,
    /// Messages of JSON, read as they come: the first must begin in time, the rest is the gateway's.
    Lines,
}

/// A request's body, whose unfinished message is counted and must be whole in time.
pub(crate) struct Metered<T> {
    body: T,
    shape: Shape,
    held: Held,
    /// Bytes of the message that is coming.
    come: usize,
    head: [u8; HEAD],
    patience: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
    has_ended: bool,
}

impl<T> Metered<T> {
    pub(crate) fn new(body: T, shape: Shape, memory: &Arc<Memory>, patience: Duration) -> Metered<T> {
        let held = Held::nothing(memory);
        Metered { body, shape, held, come: 0, head: [0; HEAD], patience, deadline: None, has_ended: false }
    }

    /// Whether something is missing that must come in time.
    fn is_due(&self) -> bool {
        !self.has_ended
            && match self.shape {
                Shape::Whole => true,
                Shape::Stream => self.come > 0,
                Shape::Lines => self.come == 0,
            }
    }

    /// Takes note of bytes that came.
    fn on_data(&mut self, mut data: &[u8]) -> Result<(), Status> {
        if self.shape != Shape::Stream {
            self.come += data.len();
            // Of a stream the gateway holds what it has read of the next message: here the latest piece counts, until the next one comes.
            let held = if self.shape == Shape::Lines { data.len() } else { self.come };
            return self.held.resize(held);
        }
        while !data.is_empty() {
            if self.come < HEAD {
                let taken = data.len().min(HEAD - self.come);
                self.head[self.come..self.come + taken].copy_from_slice(&data[..taken]);
                self.come += taken;
                data = &data[taken..];
            }
            if self.come >= HEAD {
                let [_, length @ ..] = self.head;
                let whole = HEAD + u32::from_be_bytes(length) as usize;
                let taken = data.len().min(whole - self.come);
                self.come += taken;
                data = &data[taken..];
                if self.come == whole {
                    // The decoder answers for it from now on.
                    self.come = 0;
                    self.deadline = None;
                }
            }
        }
        self.held.resize(self.come)
    }
}

impl<T> HttpBody for Metered<T>
where
    T: HttpBody<Data = Bytes> + Unpin,
    T::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let frame = match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending if this.is_due() => {
                // Most bodies are there with their head and never need the alarm.
                let patience = this.patience;
                let deadline = this.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
                ready!(deadline.as_mut().poll(cx));
                this.has_ended = true;
                return Poll::Ready(Some(Err(Status::deadline_exceeded("the request's body did not come in time"))));
            }
            Poll::Pending => return Poll::Pending,
        };
        Poll::Ready(match frame {
            None => {
                this.has_ended = true;
                None
            }
            Some(Err(error)) => Some(Err(Status::from_error(error.into()))),
            Some(Ok(frame)) => match frame.data_ref().map_or(Ok(()), |data| this.on_data(data)) {
                Ok(()) => Some(Ok(frame)),
                Err(status) => {
                    this.has_ended = true;
                    Some(Err(status))
                }
            },
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Sends an answer: one that is large is encoded off the client threads, in parts, and is held until the last part has gone. Of one that
/// nobody has weighed each large part is held until it has gone ([`Weighing`]).
pub(crate) fn send(mut response: hyper::Response<Body>, memory: &Arc<Memory>) -> hyper::Response<Body> {
    let Some(Weight { bytes, held }) = response.extensions_mut().remove::<Weight>() else {
        let is_grpc =
            response.headers().get(CONTENT_TYPE).is_some_and(|told| told.as_bytes().starts_with(b"application/grpc"));
        return response.map(|body| Body::new(Weighing { body, memory: memory.clone(), is_grpc, has_ended: false }));
    };
    if bytes < LARGE_BYTES {
        return response.map(|body| {
            Body::new(body.map_frame(move |frame| {
                // Kept as long as this closure is: as long as the body.
                let _ = &held;
                frame
            }))
        });
    }
    response.map(|body| {
        let (parts, sent) = mpsc::channel(PARTS_MAX);
        tokio::spawn(async move {
            let _held = held;
            send_large(body, &parts).await;
        });
        Body::new(StreamBody::new(ReceiverStream::new(sent)))
    })
}

/// A body whose large parts draw on the budget, each until the connection has sent it: a client that reads nothing would have them all
/// kept for nothing.
struct Weighing {
    body: Body,
    memory: Arc<Memory>,
    is_grpc: bool,
    has_ended: bool,
}

/// Bytes, and what they hold of the budget as long as anybody has them.
struct HeldBytes {
    bytes: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Weighing {
    /// The part with what it holds; the end of the answer where there is no room for it.
    fn weigh(&mut self, bytes: Bytes) -> Result<Frame<Bytes>, Status> {
        match self.memory.hold(bytes.len()) {
            Ok(held) => Ok(Frame::data(Bytes::from_owner(HeldBytes { bytes, _held: held }))),
            Err(status) => {
                self.has_ended = true;
                let mut trailers = HeaderMap::new();
                match self.is_grpc && status.add_header(&mut trailers).is_ok() {
                    true => Ok(Frame::trailers(trailers)),
                    false => Err(status),
                }
            }
        }
    }
}

impl HttpBody for Weighing {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let is_large = |frame: &Frame<Bytes>| frame.data_ref().is_some_and(|data| data.len() > SMALL_BYTES);
        Poll::Ready(match frame {
            Some(Ok(frame)) if is_large(&frame) => frame.into_data().ok().map(|data| self.weigh(data)),
            frame => frame,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The parts of a body on their way to the connection.
type Parts = mpsc::Sender<Result<Frame<Bytes>, Status>>;

/// Sends a body to its end, or until nobody reads it any more.
async fn send_large(mut body: Body, parts: &Parts) {
    // The first look at it encodes it, which takes long: not on a thread that others wait for.
    let runtime = tokio::runtime::Handle::current();
    let encoding = off_the_loop(move || runtime.block_on(async move { (body.frame().await, body) }));
    let Ok((mut next, mut body)) = encoding.await else { return };
    while let Some(frame) = next {
        let is_sent = match frame.map(Frame::into_data) {
            Ok(Ok(data)) => send_in_parts(parts, data).await,
            Ok(Err(other)) => parts.send(Ok(other)).await.is_ok(),
            Err(status) => parts.send(Err(status)).await.is_ok(),
        };
        if !is_sent {
            return;
        }
        next = body.frame().await;
    }
}

async fn send_in_parts(parts: &Parts, mut data: Bytes) -> bool {
    while data.has_remaining() {
        let part = data.split_to(data.len().min(PART_BYTES));
        if parts.send(Ok(Frame::data(part))).await.is_err() {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt, StreamExt};

    type Source = mpsc::Sender<Bytes>;

    /// A body that comes as the test likes.
    fn body(
        shape: Shape,
        memory: &Arc<Memory>,
    ) -> (Source, Metered<impl HttpBody<Data = Bytes, Error = Status> + Unpin>) {
        let (source, frames) = mpsc::channel(10);
        let body = StreamBody::new(ReceiverStream::new(frames).map(|bytes| Ok::<_, Status>(Frame::data(bytes))));
        (source, Metered::new(body, shape, memory, Duration::from_secs(30)))
    }

    /// A message of gRPC with this many bytes.
    fn message(bytes: usize) -> Vec<u8> {
        [&[0][..], &(bytes as u32).to_be_bytes(), &vec![7; bytes]].concat()
    }

    /// Goal: of a stream only the message that is coming counts, however the network cuts it.
    #[tokio::test]
    async fn an_unfinished_message_counts_until_it_is_whole() {
        for cut in 1..40 {
            let memory = Memory::new(100);
            let (source, mut body) = body(Shape::Stream, &memory);
            let both = [message(20), message(10)].concat();
            // The first message ends at 25, the second at 40.
            let coming = if cut < 25 { cut } else { cut - 25 };
            for (part, coming) in [(&both[..cut], coming), (&both[cut..], 0)] {
                source.try_send(Bytes::copy_from_slice(part)).expect("room");
                body.frame().await.expect("a frame").expect("within the budget");
                assert_eq!(memory.used(), coming as u64, "cut at {cut}");
            }
        }
    }

    /// Goal: what is one message counts as a whole until it is dropped, and above the budget it is refused.
    #[tokio::test]
    async fn a_whole_body_counts_and_is_refused_above_the_budget() {
        let memory = Memory::new(100);
        let (source, mut whole) = body(Shape::Whole, &memory);
        for _ in 0..3 {
            source.try_send(Bytes::from(vec![0; 40])).expect("room");
        }
        assert!(whole.frame().await.expect("a frame").is_ok());
        assert!(whole.frame().await.expect("a frame").is_ok());
        assert_eq!(memory.used(), 80);
        let refused = whole.frame().await.expect("a frame").expect_err("above the budget");
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        drop(whole);
        assert_eq!(memory.used(), 0);
    }

    /// Goal: what nobody weighed draws on the budget while the client has not taken it, and above it the call ends with the reason.
    /// Method: three answers of 20,000 bytes; the budget has room for two.
    #[tokio::test]
    async fn large_answers_that_nobody_takes_are_counted_and_refused_above_the_budget() {
        let memory = Memory::new(50_000);
        let answer = |kind: &'static str| {
            let whole = http_body_util::Full::new(Bytes::from(vec![7; 20_000])).map_err(|never| match never {});
            let mut response = hyper::Response::new(Body::new(whole));
            response.headers_mut().insert(CONTENT_TYPE, kind.parse().expect("this is a header"));
            send(response, &memory).into_body()
        };
        let mut taken = Vec::new();
        for _ in 0..2 {
            taken.push(answer("application/grpc").frame().await.expect("a frame").expect("there is room"));
        }
        assert_eq!(memory.used(), 40_000, "also when the body has ended");
        let mut refused = answer("application/grpc");
        let trailers =
            refused.frame().await.expect("a frame").expect("an end").into_trailers().expect("these are trailers");
        assert_eq!(trailers["grpc-status"], "8");
        assert!(refused.frame().await.is_none());
        assert!(answer("application/json").frame().await.expect("a frame").is_err());
        drop(taken);
        assert_eq!(memory.used(), 0);
    }

    /// Goal: what has begun must come in time; between messages a stream may take as long as it likes.
    #[tokio::test(start_paused = true)]
    async fn what_has_begun_must_come_in_time() {
        let memory = Memory::new(1_000);
        for (shape, sent, is_due) in [
            (Shape::Whole, vec![], true),
            (Shape::Whole, vec![0; 10], true),
            (Shape::Stream, vec![], false),
            (Shape::Stream, message(10), false),
            (Shape::Stream, message(10)[..12].to_vec(), true),
            (Shape::Lines, vec![], true),
            (Shape::Lines, vec![b'{'], false),
        ] {
            let (source, mut body) = body(shape, &memory);
            if !sent.is_empty() {
                source.try_send(sent.clone().into()).expect("room");
                body.frame().await.expect("a frame").expect("within the budget");
            }
            assert!(body.frame().now_or_never().is_none());
            let ended = tokio::time::timeout(Duration::from_secs(3_600), body.frame()).await;
            match ended {
                Ok(Some(Err(status))) => assert!(is_due && status.code() == tonic::Code::DeadlineExceeded),
                Err(_) => assert!(!is_due, "{shape:?} with {sent:?} came to no end"),
                Ok(other) => panic!("{shape:?} with {sent:?} ended with {other:?}"),
            }
        }
    }
}
