//! A thread with a runtime of its own: [`begin`].

use std::io::{Error, Result};
use std::sync::mpsc;
use std::thread;
use tokio::runtime::{Builder, Handle, Runtime};

/// Begins a thread that does this with a runtime of its own, and gives the way to it.
///
/// The runtime is made there: where there is no thread, one that was made here would be dropped within the caller's, and that panics.
///
/// # Errors
/// No thread, or no descriptor.
pub(crate) fn begin(name: &str, work: impl FnOnce(Runtime) + Send + 'static) -> Result<Handle> {
    let (tell, begun) = mpsc::channel();
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                let _ = tell.send(Ok(runtime.handle().clone()));
                work(runtime);
            }
            Err(error) => drop(tell.send(Err(error))),
        }
    })?;
    begun.recv().unwrap_or_else(|_| Err(Error::other("its thread has ended")))
}
