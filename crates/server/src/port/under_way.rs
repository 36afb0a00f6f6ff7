//! A call of gRPC between its head and that of its answer: [`UnderWay`].
//!
//! As at etcd, the time of a call with one request begins when that has come, however slowly its client sent it; and a call that its
//! client has given up is `Canceled`. Then nobody asks any more what becomes of it, and this value is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::header::HeaderMap;

use crate::context::Context;
use crate::context::backend::Backend;
use crate::context::metrics::Call;
use crate::port::tally::{self, CANCELED, Tally};

/// A call that was not answered yet; one of a method that does not exist is counted nowhere.
pub(crate) struct UnderWay<B: Backend> {
    context: Arc<Context<B>>,
    call: Option<Call>,
    /// Nanoseconds from its head until the last part of its request came.
    arrived: Arc<AtomicU64>,
}

impl<B: Backend> UnderWay<B> {
    /// The head of a call to this path has come.
    pub(crate) fn begin(context: Arc<Context<B>>, path: &str) -> UnderWay<B> {
        let call = context.metrics.on_call(path);
        UnderWay { context, call, arrived: Arc::default() }
    }

    /// Whether its client sends many requests, in a stream.
    pub(crate) fn is_stream(&self) -> bool {
        self.call.is_some_and(|call| call.kind() == "bidi_stream")
    }

    /// Counts the body of its request as it comes; the time of a call with many requests begins with its head.
    pub(crate) fn counts<T>(&self, body: T) -> Tally<T> {
        let since = self.call.filter(|call| call.kind() == "unary").map(|call| (call.begun(), self.arrived.clone()));
        Tally::received(body, self.context.metrics.clone(), since)
    }

    /// Takes the head of its answer; gives the call if its end stands behind messages.
    pub(crate) fn on_answer(mut self, headers: &HeaderMap) -> Option<Call> {
        let call = self.call.take()?;
        match tally::code_in(headers) {
            None if call.kind() != "unary" => return Some(call),
            code => self.end(call, code.unwrap_or(0)),
        }
        None
    }

    fn end(&self, call: Call, code: usize) {
        if call.kind() != "unary" {
            return self.context.metrics.on_answer(call, code);
        }
        let call = call.later_by(self.arrived.load(Ordering::Relaxed));
        let took = call.begun().elapsed();
        self.context.metrics.on_answer(call, code);
        self.context.slow.on_answer(call.method(), code, took);
        if code == 0 {
            self.context.metrics.on_request(took);
        }
    }
}

impl<B: Backend> Drop for UnderWay<B> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.end(call, CANCELED);
        }
    }
}
