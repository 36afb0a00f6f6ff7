//! Bodies of gRPC, counted for metrics: their bytes, and how streams end ([`Tally`]).
//!
//! A stream's code stands in the trailers behind its last message. A stream that is dropped before them was cancelled by its
//! client, or by the end of its connection, which etcd counts as `Canceled`, too.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::header::HeaderMap;

use crate::context::metrics::{Call, Metrics};

/// gRPC's code of what its client gave up.
pub(crate) const CANCELED: usize = 1;

/// gRPC's code of what nobody knows a better one for.
const UNKNOWN: usize = 2;

/// Direction of a body.
enum Way {
    /// From a client: a request; with the beginning of its call, and where to note the nanoseconds until its last part came.
    In(Option<(Instant, Arc<AtomicU64>)>),
    /// To a client: an answer; of a stream, with the call whose end is still to be counted.
    Out(Option<Call>),
}

/// A body whose bytes are counted as they pass.
pub(crate) struct Tally<T> {
    body: T,
    metrics: Arc<Metrics>,
    way: Way,
}

impl<T> Tally<T> {
    /// Counts a request's body, and notes how long after the beginning of its call it came.
    pub(crate) fn received(body: T, metrics: Arc<Metrics>, since: Option<(Instant, Arc<AtomicU64>)>) -> Tally<T> {
        Tally { body, metrics, way: Way::In(since) }
    }

    /// An answer's body; of a stream with its call, whose end it counts.
    pub(crate) fn sent(body: T, metrics: Arc<Metrics>, stream: Option<Call>) -> Tally<T> {
        Tally { body, metrics, way: Way::Out(stream) }
    }

    fn on_end(&mut self, code: usize) {
        if let Way::Out(call @ Some(_)) = &mut self.way
            && let Some(call) = call.take()
        {
            self.metrics.on_answer(call, code);
        }
    }
}

/// gRPC's code in headers or trailers.
pub(crate) fn code_in(headers: &HeaderMap) -> Option<usize> {
    Some(headers.get("grpc-status")?.to_str().ok().and_then(|code| code.parse().ok()).unwrap_or(UNKNOWN))
}

impl<T: HttpBody<Data = Bytes> + Unpin> HttpBody for Tally<T> {
    type Data = Bytes;
    type Error = T::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, T::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            if let Some(data) = frame.data_ref() {
                let counter = match &self.way {
                    Way::In(_) => &self.metrics.received_bytes,
                    Way::Out(_) => &self.metrics.sent_bytes,
                };
                counter.fetch_add(data.len() as u64, Ordering::Relaxed);
                if let Way::In(Some((begun, arrived))) = &self.way {
                    let nanoseconds = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    arrived.store(nanoseconds, Ordering::Relaxed);
                }
            } else if let Some(code) = frame.trailers_ref().and_then(code_in) {
                self.on_end(code);
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<T> Drop for Tally<T> {
    fn drop(&mut self) {
        self.on_end(CANCELED);
    }
}
