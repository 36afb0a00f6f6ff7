//! Carrying out a will at a store of several servers: what the wills of all such stores share.

use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Time that one server may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// Pause before the next one is asked.
const PAUSE: Duration = Duration::from_millis(100);
/// Time after which no server is asked any more.
const AT_MOST: Duration = Duration::from_secs(20);
/// Time after which a caller gives a will up: its last try has ended by then.
pub(crate) const GIVEN_UP_AFTER: Duration = Duration::from_secs(30);

/// Asking again and again, until an answer says that there is nothing more to do.
pub(super) struct Asking {
    until: Instant,
    tries: u32,
}

impl Asking {
    pub(super) fn begin() -> Asking {
        Asking { until: Instant::now() + AT_MOST, tries: 0 }
    }

    /// Whether to ask once more, after a pause unless it is the first time.
    pub(super) async fn goes_on(&mut self) -> bool {
        if self.tries > 0 {
            sleep(PAUSE).await;
        }
        self.tries += 1;
        Instant::now() < self.until
    }

    /// Time that one request of the present try may take: more once all servers may have been asked in vain.
    #[cfg(any(feature = "postgres", feature = "kubernetes"))]
    pub(super) fn patience(&self) -> Duration {
        PATIENCE * (1 + self.tries / 4).min(4)
    }
}
