//! One budget of bytes for everything that clients make this member hold: [`Memory`].
//!
//! Bodies on their way in, proposals without an outcome, large answers on their way out and events that wait for watchers
//! all draw on it. A request that does not fit is refused at once with `ResourceExhausted`: a refusal costs a client a
//! moment, a process that the system kills costs the cluster a member. `docs/memory.md` says what each request can cost.
//!
//! Not counted: the store itself (that is `--quota-backend-bytes`), and what a request of a few hundred bytes makes; those
//! are bounded by counts (connections, streams on each).
//!
//! Read next: [`crate::http::body`], which counts bodies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hustings_api::EtcdError;
use tonic::{Response, Status};

/// An answer up to this size holds nothing of the budget: there are as many as there are streams.
pub(crate) const SMALL_BYTES: usize = 16 << 10;

/// The budget of memory for clients.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: u64,
    used: AtomicU64,
}

/// A part of the budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    memory: Arc<Memory>,
    bytes: u64,
}

impl Memory {
    pub(crate) fn new(limit: u64) -> Arc<Memory> {
        Arc::new(Memory { limit, used: AtomicU64::new(0) })
    }

    /// Takes this many bytes out of the budget.
    ///
    /// # Errors
    /// `ResourceExhausted` when they are not there.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Result<Held, Status> {
        let mut held = Held::nothing(self);
        held.resize(bytes)?;
        Ok(held)
    }

    /// Bytes that are held now.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

impl Held {
    pub(crate) fn nothing(memory: &Arc<Memory>) -> Held {
        Held { memory: memory.clone(), bytes: 0 }
    }

    /// Holds more or less from now on; holds what it held when that is refused.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), Status> {
        let bytes = bytes as u64;
        let used = &self.memory.used;
        match bytes.checked_sub(self.bytes) {
            None => {
                used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
            }
            Some(more) => {
                let after = used.fetch_add(more, Ordering::Relaxed).saturating_add(more);
                if after > self.memory.limit {
                    used.fetch_sub(more, Ordering::Relaxed);
                    return Err(EtcdError::TooManyRequests.into());
                }
            }
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The share of the budget that an answer holds on its way from a service to the connection: an extension of the response.
#[derive(Clone, Debug)]
pub(crate) struct Weight {
    pub(crate) bytes: usize,
    pub(crate) held: Arc<Held>,
}

impl Weight {
    /// Holds the memory of an answer of this many bytes until it is sent.
    pub(crate) fn of(memory: &Arc<Memory>, bytes: usize) -> Result<Weight, Status> {
        Ok(Weight::holding(bytes, memory.hold(bytes)?))
    }

    /// Keeps what is held for an answer of this many bytes until it is sent.
    pub(crate) fn holding(bytes: usize, held: Held) -> Weight {
        Weight { bytes, held: Arc::new(held) }
    }

    /// The same, if that is worth counting.
    pub(crate) fn if_large(memory: &Arc<Memory>, bytes: usize) -> Result<Option<Weight>, Status> {
        if bytes <= SMALL_BYTES { Ok(None) } else { Weight::of(memory, bytes).map(Some) }
    }
}

/// An answer with what it holds of the budget until it is sent.
pub(crate) fn weighed<T>(message: T, weight: Option<Weight>) -> Response<T> {
    let mut response = Response::new(message);
    if let Some(weight) = weight {
        response.extensions_mut().insert(weight);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is held is counted once, given back once, and never above the limit.
    #[test]
    fn what_is_held_is_given_back() {
        let memory = Memory::new(100);
        let mut first = memory.hold(60).expect("there is room");
        assert!(memory.hold(50).is_err());
        assert_eq!(memory.used(), 60, "a refusal holds nothing");
        let second = memory.hold(40).expect("there is room");
        assert!(first.resize(61).is_err());
        first.resize(10).expect("less is always possible");
        assert_eq!(memory.used(), 50);
        drop((first, second));
        assert_eq!(memory.used(), 0);
    }
}
