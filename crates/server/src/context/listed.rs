//! What all open pages are told alike, kept until it is due again.

use bytes::Bytes;
use tokio::time::Instant;
use tonic::Status;

/// What the last look found, or why it found nothing.
pub(crate) struct Listed {
    pub(crate) due: Instant,
    pub(crate) told: Result<Bytes, Status>,
}
