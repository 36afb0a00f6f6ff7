//! A runtime on its way to its own thread: [`Detached`].

use std::io::Result;
use tokio::runtime::{Builder, Handle, Runtime};

/// A runtime of one thread, until that thread takes it. Where there is none it may be dropped anywhere, also within another runtime, in which
/// a program that embeds a node may well start it: dropping a [`Runtime`] there panics.
pub(crate) struct Detached(Option<Runtime>);

impl Detached {
    pub(crate) fn new() -> Result<Detached> {
        Ok(Detached(Some(Builder::new_current_thread().enable_all().build()?)))
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.0.as_ref().expect("it is taken once, by value").handle()
    }

    /// The runtime, for the thread that runs it.
    pub(crate) fn take(mut self) -> Runtime {
        self.0.take().expect("it is taken once, by value")
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a node that gets no thread is an error of its start, also within a runtime. Method: it is dropped there, as a closure is that no
    /// thread ever ran.
    #[tokio::test]
    async fn a_runtime_without_a_thread_may_be_dropped_within_another() {
        let detached = Detached::new().expect("the system has a descriptor");
        let handle = detached.handle().clone();
        let work = handle.spawn(std::future::pending::<()>());
        drop(move || detached.take());
        assert!(work.await.is_err_and(|error| error.is_cancelled()));
    }
}
