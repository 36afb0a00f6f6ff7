//! Pauses between tries in vain: [`Pauses`].

use std::time::Duration;

/// The pauses between tries that fail one after the other: each is twice as long as the one before, up to the longest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pauses {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Pauses {
    pub(crate) fn new(first: Duration, longest: Duration) -> Pauses {
        Pauses { first, longest, next: first }
    }

    /// A try has failed: waits before the next one.
    pub(crate) async fn wait(&mut self) {
        self.wait_at_most(self.longest).await;
    }

    /// As [`Pauses::wait`], where another pause is the longest this time.
    pub(crate) async fn wait_at_most(&mut self, longest: Duration) {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest.max(self.first));
        tokio::time::sleep(pause.min(longest)).await;
    }

    /// A try has succeeded.
    #[cfg(any(feature = "consul", feature = "kubernetes"))]
    pub(crate) fn end(&mut self) {
        self.next = self.first;
    }
}
