//! How much room there is on the disk, asked without waiting for it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time in which a file system tells its room.
const PATIENCE: Duration = Duration::from_millis(100);

/// Room on the disk as it was last told: a file system that does not answer keeps one thread, and nobody who asks.
#[derive(Clone, Default)]
pub(crate) struct Room(Arc<Looked>);

#[derive(Default)]
struct Looked {
    told: Mutex<Option<(u64, u64)>>,
    is_under_way: AtomicBool,
}

impl Room {
    /// Free bytes for this process, and all; `None` where there is no directory, or none has told yet.
    pub(crate) async fn look(&self, directory: Option<&Path>) -> Option<(u64, u64)> {
        let directory = directory?.to_owned();
        if !self.0.is_under_way.swap(true, Ordering::AcqRel) {
            let looked = self.0.clone();
            let look = tokio::task::spawn_blocking(move || {
                *looked.told.lock().unwrap_or_else(PoisonError::into_inner) = room_on(&directory);
                looked.is_under_way.store(false, Ordering::Release);
            });
            // What it says later is told to whoever asks then.
            let _ = tokio::time::timeout(PATIENCE, look).await;
        }
        *self.0.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Free bytes for this process, and all, where the data lives.
fn room_on(directory: &Path) -> Option<(u64, u64)> {
    let disk = rustix::fs::statvfs(directory).ok()?;
    Some((disk.f_bavail.saturating_mul(disk.f_frsize), disk.f_blocks.saturating_mul(disk.f_frsize)))
}
