//! A node's counters for its observers: [`Counters`], and of each peer [`PeerCounters`].

use crate::cut::Cut;
use crate::reach::{PeerReach, Reach};
use hustings_core::NodeId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Upper bounds of a peer's round trips, in microseconds: etcd's; the last bucket has none.
pub const ROUND_TRIP_BUCKETS_MICROS: [u64; 16] = [
    100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 102_400, 204_800, 409_600, 819_200, 1_638_400,
    3_276_800,
];

/// Counters of one peer, since this process began.
#[derive(Debug, Default)]
pub struct PeerCounters {
    /// Bytes sent to it.
    pub bytes_sent: AtomicU64,
    /// Bytes received from it.
    pub bytes_received: AtomicU64,
    /// Times that it could not be reached, or that a link to it broke.
    pub send_failures: AtomicU64,
    /// Round trips from loop to loop by how long they took: bucket i holds those up to `ROUND_TRIP_BUCKETS_MICROS[i]`, the last
    /// one the rest.
    pub round_trips: [AtomicU64; ROUND_TRIP_BUCKETS_MICROS.len() + 1],
    /// Microseconds of all round trips.
    pub round_trip_micros: AtomicU64,
    /// State of the way to it.
    pub reach: PeerReach,
}

impl PeerCounters {
    pub(crate) fn on_round_trip(&self, micros: u64) {
        observe(&ROUND_TRIP_BUCKETS_MICROS, &self.round_trips, &self.round_trip_micros, micros);
    }
}

/// Counts in a histogram: in the first bucket whose bound is not exceeded, or in the last one.
fn observe(bounds: &[u64], buckets: &[AtomicU64], sum: &AtomicU64, micros: u64) {
    buckets[bounds.partition_point(|bound| *bound < micros)].fetch_add(1, Ordering::Relaxed);
    sum.fetch_add(micros, Ordering::Relaxed);
}

/// The duration in microseconds, the largest number if it has more.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Upper bounds of the sync histogram's buckets, in microseconds; the last bucket has none.
pub const SYNC_BUCKETS_MICROS: [u64; 14] =
    [100, 200, 400, 800, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 1_000_000];

/// Upper bounds of the buckets of the loop's turns, in microseconds; the last bucket has none.
pub const TURN_BUCKETS_MICROS: [u64; 9] = [500, 1_000, 5_000, 10_000, 20_000, 50_000, 100_000, 250_000, 1_000_000];

/// Counters that only grow, cheap to bump from the loop and the disk thread.
#[derive(Debug, Default)]
pub struct Counters {
    /// Syncs by how long they took: bucket i holds those up to `SYNC_BUCKETS_MICROS[i]`, the last one the rest.
    pub syncs: [AtomicU64; SYNC_BUCKETS_MICROS.len() + 1],
    /// Microseconds spent in syncs.
    pub sync_micros: AtomicU64,
    /// The slowest of the last minute's round trips to peers but for one in twenty, from loop to loop, in microseconds; 0 until known.
    pub round_trip_micros: AtomicU64,
    /// The slowest hundredth of the last minute's syncs, as its bucket's bound, in microseconds; 0 until known.
    pub flush_micros: AtomicU64,
    /// Whether there is no room on the disk for the log's next segment.
    pub is_log_short: AtomicBool,
    /// Changes of leader that this node saw.
    pub leader_changes: AtomicU64,
    /// Elections that this node won.
    pub elections_won: AtomicU64,
    /// Proposals by this node's clients.
    pub proposals: AtomicU64,
    /// Proposals of those that were applied.
    pub proposals_applied: AtomicU64,
    /// Proposals of those that were refused or whose outcome is unknown.
    pub proposals_failed: AtomicU64,
    /// Bytes sent to peers.
    pub peer_bytes_sent: AtomicU64,
    /// Bytes received from peers.
    pub peer_bytes_received: AtomicU64,
    /// Links refused or broken by what came over them.
    pub links_refused: AtomicU64,
    /// Times that this node led and its loop ran 50 ms or more after it was due, as a rule for a heartbeat.
    pub heartbeats_late: AtomicU64,
    /// Times that one turn of the loop, which applies entries among other things, took 50 ms or more.
    pub turns_long: AtomicU64,
    /// Microseconds that those turns took together.
    pub turns_long_micros: AtomicU64,
    /// Microseconds of them in which the loop was on a processor.
    pub turns_long_ran_micros: AtomicU64,
    /// Turns of the loop by how long they took: bucket i holds those up to `TURN_BUCKETS_MICROS[i]`, the last one the rest.
    pub turns: [AtomicU64; TURN_BUCKETS_MICROS.len() + 1],
    /// Microseconds of all turns of the loop.
    pub turn_micros: AtomicU64,
    /// Microseconds that the loop was ready to run and had no processor, as of half a second ago; 0 where the kernel does not say.
    pub loop_waited_micros: AtomicU64,
    /// Snapshots that this node cut.
    pub snapshots_cut: AtomicU64,
    /// Whether somebody has pulled this member's cable.
    pub cut: Cut,
    /// Counters of each member that was dialled or heard; locked when a link begins, and by readers.
    peers: Mutex<BTreeMap<NodeId, Arc<PeerCounters>>>,
}

impl Counters {
    /// Counters of a peer; they are made when first asked for.
    pub(crate) fn of_peer(&self, peer: NodeId) -> Arc<PeerCounters> {
        self.peers.lock().expect("nobody panics while holding it").entry(peer).or_default().clone()
    }

    /// Forgets the counters of peers that are gone for good.
    pub(crate) fn forget_peers(&self, is_gone: impl Fn(NodeId) -> bool) {
        self.peers.lock().expect("nobody panics while holding it").retain(|peer, _| !is_gone(*peer));
    }

    /// Counters of each peer, by id.
    ///
    /// # Panics
    /// Never: nobody panics while holding the lock.
    pub fn peers(&self) -> Vec<(NodeId, Arc<PeerCounters>)> {
        let peers = self.peers.lock().expect("nobody panics while holding it");
        peers.iter().map(|(peer, counters)| (*peer, counters.clone())).collect()
    }

    /// The state of the way to a peer, and the time since it was last heard.
    ///
    /// # Panics
    /// Never: nobody panics while holding the lock.
    pub fn reach_of(&self, peer: NodeId) -> (Reach, Duration) {
        let known = self.peers.lock().expect("nobody panics while holding it").get(&peer).cloned();
        // Asking about a member that is gone brings it back for nobody.
        known.unwrap_or_default().reach.look()
    }

    pub(crate) fn on_sync(&self, took: Duration) {
        observe(&SYNC_BUCKETS_MICROS, &self.syncs, &self.sync_micros, micros(took));
    }

    /// Counts a turn of the loop.
    pub(crate) fn on_turn(&self, took: Duration) {
        observe(&TURN_BUCKETS_MICROS, &self.turns, &self.turn_micros, micros(took));
    }

    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_counts_in_the_bucket_whose_bound_it_does_not_exceed() {
        let counters = Counters::default();
        for bound in TURN_BUCKETS_MICROS {
            counters.on_turn(Duration::from_micros(bound));
        }
        counters.on_turn(Duration::from_secs(2));
        let counts = counters.turns.each_ref().map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [1; TURN_BUCKETS_MICROS.len() + 1]);
        let sum = TURN_BUCKETS_MICROS.iter().sum::<u64>() + 2_000_000;
        assert_eq!(counters.turn_micros.load(Ordering::Relaxed), sum);
    }
}
