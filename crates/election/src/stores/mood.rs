//! A store's last refusal, so that each trouble is told once: [`Mood`].

use std::sync::{Mutex, PoisonError};

/// Tells a trouble when it begins or changes, and when it is over.
#[derive(Debug)]
pub(crate) struct Mood {
    store: String,
    trouble: Mutex<Option<String>>,
}

impl Mood {
    /// The mood of a store of this name.
    pub(crate) fn of(store: impl Into<String>) -> Mood {
        Mood { store: store.into(), trouble: Mutex::new(None) }
    }

    /// The store does not do what it was asked; it will be asked again.
    pub(crate) fn trouble(&self, why: &str) {
        let mut known = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_deref() != Some(why) {
            tracing::warn!(store = %self.store, %why, "no election can be held here for now; it is tried again");
            *known = Some(why.to_owned());
        }
    }

    /// The present trouble, in words; `None` while the store does what it is asked.
    #[cfg(any(feature = "postgres", feature = "kubernetes"))]
    pub(crate) fn now(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The store did what it was asked.
    pub(crate) fn well(&self) {
        let mut known = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = known.take() {
            tracing::info!(store = %self.store, because = %why, "the trouble is over");
        }
    }
}
