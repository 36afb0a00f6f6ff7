//! A store's last refusal to a candidate, so that it is told once: [`LastRefusal`].

use hustings_lease::{Answer, Refusal};
use std::sync::{Mutex, PoisonError};

/// The words of the last refusal; nothing while the store does what it is asked.
#[derive(Debug, Default)]
pub(crate) struct LastRefusal(Mutex<Option<String>>);

impl LastRefusal {
    /// Says so, once as long as it is the same.
    pub(crate) fn tell(&self, election: &str, why: String) -> Answer {
        self.tell_that(election, "nobody can be elected", why)
    }

    /// Says that this follows from it.
    pub(crate) fn tell_that(&self, election: &str, what: &str, why: String) -> Answer {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref() != Some(&why) {
            tracing::warn!(%election, "{what}: {why}");
            *known = Some(why.clone());
        }
        Answer::Refused(Refusal::Other(why))
    }

    /// The store did what it was asked.
    pub(crate) fn is_over(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
