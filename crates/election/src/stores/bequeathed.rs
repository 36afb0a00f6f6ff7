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
    has_asked: bool,
}

impl Asking {
    pub(super) fn begin() -> Asking {
        Asking { until: Instant::now() + AT_MOST, has_asked: false }
    }

    /// Whether to ask once more, after a pause unless it is the first time.
    pub(super) async fn goes_on(&mut self) -> bool {
        if std::mem::replace(&mut self.has_asked, true) {
            sleep(PAUSE).await;
        }
        Instant::now() < self.until
    }
}
