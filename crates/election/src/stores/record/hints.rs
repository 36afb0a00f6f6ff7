//! Hints that a record has changed: [`Hints`]. They may be lost, doubled or wrong, and cost no more than a read.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The candidates that want to hear of changes, by election.
#[derive(Default)]
pub(crate) struct Hints {
    elections: Mutex<BTreeMap<String, watch::Sender<()>>>,
}

impl Hints {
    fn elections(&self) -> MutexGuard<'_, BTreeMap<String, watch::Sender<()>>> {
        self.elections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hints of an election from now on; one that comes between two waits is not lost.
    pub(crate) fn of(&self, election: &str) -> watch::Receiver<()> {
        let mut elections = self.elections();
        elections.retain(|_, hints| hints.receiver_count() > 0);
        elections.entry(election.to_owned()).or_default().subscribe()
    }

    /// Whether somebody wants to hear of changes of this record.
    pub(crate) fn are_heard(&self, election: &str) -> bool {
        self.elections().get(election).is_some_and(|hints| hints.receiver_count() > 0)
    }

    /// Waits for a moment at which nobody listens. It may have passed when this returns: ask whether they [are heard](Hints::are_heard).
    pub(crate) async fn until_unheard(&self, election: &str) {
        let hints = self.elections().get(election).cloned();
        if let Some(hints) = hints {
            hints.closed().await;
        }
    }

    /// Passes on a hint that this record has changed.
    pub(crate) fn ring(&self, election: &str) {
        if let Some(hints) = self.elections().get(election) {
            hints.send_replace(());
        }
    }

    /// Hints at every election: changes in the meantime were not heard.
    pub(crate) fn ring_all(&self) {
        for hints in self.elections().values() {
            hints.send_replace(());
        }
    }
}
