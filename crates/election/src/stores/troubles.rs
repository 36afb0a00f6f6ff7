//! A store's last refusal, so that each trouble is told once: [`Troubles`].

use crate::observe::StoreError;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Pause between two tries to reach a store.
const RETRY: Duration = Duration::from_millis(100);
/// Pause after a store does not admit the user, and did before.
const DENIED_RETRY: Duration = Duration::from_secs(2);
/// Time for which a store may be silent before that is told: where its leader changes, that passes.
const SILENCE: Duration = Duration::from_secs(2);

/// Tells a trouble when it begins or changes, and when it is over.
#[derive(Debug)]
pub(crate) struct Troubles {
    store: String,
    trouble: Mutex<Option<String>>,
    silent_since: Mutex<Option<Instant>>,
}

impl Troubles {
    /// No trouble yet, of a store of this name.
    pub(crate) fn of(store: impl Into<String>) -> Troubles {
        Troubles { store: store.into(), trouble: Mutex::new(None), silent_since: Mutex::new(None) }
    }

    /// The store does not do what it was asked; it will be asked again.
    pub(crate) fn begin(&self, why: &str) {
        let mut known = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_deref() != Some(why) {
            tracing::warn!(store = %self.store, %why, "no election can be held here for now; it is tried again");
            *known = Some(why.to_owned());
        }
    }

    /// A reader has looked: gives what it is to return, or `None` after the pause before the next look.
    pub(crate) async fn after_look<T>(
        &self,
        has_shown: &mut bool,
        seen: Result<T, StoreError>,
    ) -> Option<Result<T, StoreError>> {
        match seen {
            Ok(seen) => {
                *has_shown = true;
                self.end();
                return Some(Ok(seen));
            }
            Err(StoreError::Denied(why)) if !*has_shown => return Some(Err(StoreError::Denied(why))),
            Err(StoreError::Denied(why)) => {
                self.begin(&why);
                tokio::time::sleep(DENIED_RETRY).await;
            }
            Err(why) => {
                self.silence(&why.to_string());
                tokio::time::sleep(RETRY).await;
            }
        }
        None
    }

    /// The store gives no answer that can be used. That is told once, where it lasts: each member has other words for it.
    fn silence(&self, why: &str) {
        tracing::debug!(%why, "an election cannot be observed");
        let mut since = self.silent_since.lock().unwrap_or_else(PoisonError::into_inner);
        let lasts = since.get_or_insert_with(Instant::now).elapsed() >= SILENCE;
        let mut known = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if lasts && known.is_none() {
            tracing::warn!(store = %self.store, %why, "the election cannot be observed for now; it is tried again");
            *known = Some(why.to_owned());
        }
    }

    /// The present trouble, in words; `None` while the store does what it is asked.
    #[cfg(any(feature = "postgres", feature = "kubernetes"))]
    pub(crate) fn now(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The store did what it was asked.
    pub(crate) fn end(&self) {
        *self.silent_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let mut known = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = known.take() {
            tracing::info!(store = %self.store, because = %why, "the trouble is over");
        }
    }
}
