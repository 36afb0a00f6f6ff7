//! A cable that can be pulled: [`Cut`].
//!
//! Cut off, a member neither hears its peers nor is heard by them: what arrives is held back, and what it says waits, as on a
//! network that delivers nothing. No connection breaks, so nobody is told. Healed, everything goes on in its order.
//!
//! It is there for people who want to see what a cluster does then, and is used by nobody else.

use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// Whether a member is cut off from all its peers.
#[derive(Debug, Default)]
pub struct Cut {
    is_cut: AtomicBool,
    healed: Notify,
}

impl Cut {
    /// Whether it is cut off now.
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Cuts the member off, or heals it.
    pub fn set(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
        if !is_cut {
            self.healed.notify_waiters();
        }
    }

    /// Waits while it is cut off.
    pub(crate) async fn healed(&self) {
        while self.is_cut() {
            let healed = self.healed.notified();
            tokio::pin!(healed);
            // Before the look: a healing between the two is not missed.
            healed.as_mut().enable();
            if !self.is_cut() {
                return;
            }
            healed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn whoever_waits_goes_on_when_it_is_healed() {
        let cut = Arc::new(Cut::default());
        cut.healed().await;
        cut.set(true);
        let waiting = tokio::spawn({
            let cut = cut.clone();
            async move { cut.healed().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished() && cut.is_cut());
        cut.set(false);
        assert!(waiting.await.is_ok());
    }
}
