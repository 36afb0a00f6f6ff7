//! The thread of a store's requests: [`Io`].

use std::io::{Error, Result};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Carries out what may stand still for seconds, on a thread of its own: an engine has other candidates, and tells in time that a belief
/// has ended. What holds up even this thread is for [`tokio::task::spawn_blocking`] there.
#[derive(Default)]
pub(super) struct Io(Mutex<Option<Running>>);

/// The thread, which lives for as long as somebody holds this. It ends without waiting for anything: a program that stands still would
/// hold up the end of an engine.
struct Running {
    handle: Handle,
    _is_held: oneshot::Sender<()>,
}

impl Io {
    /// The thread, begun when it is first needed.
    ///
    /// # Errors
    /// The system gives none now; it may later.
    pub(super) fn handle(&self) -> Result<Handle> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*running {
            return Ok(running.handle.clone());
        }
        let begun = Running::begin()?;
        Ok(running.insert(begun).handle.clone())
    }
}

impl Running {
    fn begin() -> Result<Running> {
        let (tell, begun) = mpsc::channel();
        let (is_held, until_left) = oneshot::channel::<()>();
        thread::Builder::new().name("kubernetes".to_owned()).spawn(move || {
            // Made here: where there is no thread, it would be dropped within the caller's runtime, and that panics.
            let runtime = match Builder::new_current_thread().thread_name("kubernetes").enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(tell.send(Err(error))),
            };
            let _ = tell.send(Ok(runtime.handle().clone()));
            let _ = runtime.block_on(until_left);
            runtime.shutdown_background();
        })?;
        let handle = begun.recv().unwrap_or_else(|_| Err(Error::other("its thread has ended")))?;
        Ok(Running { handle, _is_held: is_held })
    }
}

/// Carries a work out there; ends it when nobody waits for it any more. `None` if the thread is gone.
pub(super) async fn run<T: Send + 'static>(io: &Handle, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
    let mut works = JoinSet::new();
    works.spawn_on(work, io);
    works.join_next().await?.ok()
}
