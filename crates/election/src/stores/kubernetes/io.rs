//! The thread of a store's requests: [`Io`].

use std::sync::OnceLock;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

/// Carries out what may stand still for seconds, on a thread of its own: an engine has other candidates, and tells in time that a belief
/// has ended. `KUBECONFIG` may name a program that proves the user, and the client waits for it without giving its thread away.
#[derive(Default)]
pub(super) struct Io(OnceLock<Option<Runtime>>);

impl Io {
    /// The thread, begun when it is first needed; `None` where the system gives none.
    fn runtime(&self) -> Option<&Runtime> {
        let begin = || {
            let begun = Builder::new_multi_thread().worker_threads(1).thread_name("kubernetes").enable_all().build();
            begun.inspect_err(|error| tracing::warn!(%error, "no thread for requests to Kubernetes")).ok()
        };
        self.0.get_or_init(begin).as_ref()
    }

    /// Begins a work that nobody waits for.
    pub(super) fn begin(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = self.runtime() {
            runtime.spawn(work);
        }
    }

    /// Carries a work out; ends it when nobody waits for it any more. `None` if the thread is gone.
    pub(super) async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let mut works = JoinSet::new();
        works.spawn_on(work, self.runtime()?.handle());
        works.join_next().await?.ok()
    }
}

impl Drop for Io {
    /// Waits for nothing: a program that stands still would hold up the end of an engine.
    fn drop(&mut self) {
        if let Some(Some(runtime)) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
