//! The thread of a store's requests: [`Io`].

use crate::own_thread;
use std::io::Result;
use std::sync::{Mutex, PoisonError};
use tokio::runtime::Handle;
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
        let (is_held, until_left) = oneshot::channel::<()>();
        let handle = own_thread::begin("kubernetes", move |runtime| {
            let _ = runtime.block_on(until_left);
            runtime.shutdown_background();
        })?;
        Ok(Running { handle, _is_held: is_held })
    }
}

/// Carries a work out there; ends it when nobody waits for it any more. `None` if the thread is gone.
pub(super) async fn run<T: Send + 'static>(io: &Handle, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
    let mut works = JoinSet::new();
    works.spawn_on(work, io);
    works.join_next().await?.ok()
}
