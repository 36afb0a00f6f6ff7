//! Counts of the renewals of a candidate's lease by their end, for its metrics: [`Renewals`].

use hustings_lease::Answer;
use std::sync::atomic::{AtomicU64, Ordering};

/// The renewals of a candidate since its process has it, by what the store said.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Renewals {
    /// The lease was extended.
    pub renewed: u64,
    /// The store said no.
    pub refused: u64,
    /// The store said that the lease is gone.
    pub gone: u64,
    /// Nobody answered in time.
    pub unanswered: u64,
}

/// The same, while they are counted.
#[derive(Default, Debug)]
pub(crate) struct RenewalCounters {
    renewed: AtomicU64,
    refused: AtomicU64,
    gone: AtomicU64,
    unanswered: AtomicU64,
}

impl RenewalCounters {
    /// Counts a renewal that had this answer.
    pub(crate) fn count(&self, answer: &Answer) {
        let counter = match answer {
            Answer::Renewed | Answer::Won(_) | Answer::Waiting(_) => &self.renewed,
            Answer::Refused(_) => &self.refused,
            Answer::Gone => &self.gone,
            Answer::Unknown => &self.unanswered,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> Renewals {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Renewals {
            renewed: count(&self.renewed),
            refused: count(&self.refused),
            gone: count(&self.gone),
            unanswered: count(&self.unanswered),
        }
    }
}
