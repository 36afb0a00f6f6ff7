//! What a node counts for whoever watches it: [`Counters`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the sync histogram's buckets, in microseconds; the last bucket has none.
pub const SYNC_BUCKETS_MICROS: [u64; 14] =
    [100, 200, 400, 800, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 1_000_000];

/// Counters that only grow, cheap to bump from the loop and the disk thread.
#[derive(Debug, Default)]
pub struct Counters {
    /// Syncs by how long they took: bucket i holds those up to `SYNC_BUCKETS_MICROS[i]`, the last one the rest.
    pub syncs: [AtomicU64; SYNC_BUCKETS_MICROS.len() + 1],
    /// Microseconds spent in syncs.
    pub sync_micros: AtomicU64,
    /// The slowest hundredth of the last minute's round trips to peers, from loop to loop, in microseconds; 0 until known.
    pub round_trip_micros: AtomicU64,
    /// The slowest hundredth of the last minute's syncs, as its bucket's bound, in microseconds; 0 until known.
    pub flush_micros: AtomicU64,
    /// Changes of leader that this node saw.
    pub leader_changes: AtomicU64,
    /// Elections that this node won.
    pub elections_won: AtomicU64,
    /// Proposals by this node's clients.
    pub proposals: AtomicU64,
    /// Those of them that were applied.
    pub proposals_applied: AtomicU64,
    /// Those of them that were refused or whose outcome is unknown.
    pub proposals_failed: AtomicU64,
    /// Bytes sent to peers.
    pub peer_bytes_sent: AtomicU64,
    /// Bytes received from peers.
    pub peer_bytes_received: AtomicU64,
    /// Links refused or broken by what came over them.
    pub links_refused: AtomicU64,
    /// Snapshots cut.
    pub snapshots_cut: AtomicU64,
}

impl Counters {
    pub(crate) fn on_sync(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = SYNC_BUCKETS_MICROS.partition_point(|bound| *bound < micros);
        self.syncs[bucket].fetch_add(1, Ordering::Relaxed);
        self.sync_micros.fetch_add(micros, Ordering::Relaxed);
    }

    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
