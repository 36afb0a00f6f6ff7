//! Entries per second through three Raft values on one thread: no disk, no network, no encoding.
//!
//! `cargo run --release -p hustings-raft --example throughput [seconds]`
//!
//! A client keeps 256 proposals of 256 bytes in flight, given to the leader in batches of what was applied; an entry counts
//! when the leader applies it. Records are durable at once, so what is measured is the protocol.

use bytes::Bytes;
use hustings_core::protocol::{Effect, Effects, Input, Proposal, Protocol};
use hustings_core::{Cluster, Durable, EntryKind, NodeId, Origin, Role, Stamp};
use hustings_raft::{Message, Raft, Timer};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const IN_FLIGHT: u64 = 256;
const PAYLOAD_BYTES: usize = 256;

struct Stage {
    rafts: Vec<Raft>,
    bag: VecDeque<(usize, usize, Message)>,
    effects: Effects<Raft>,
    /// Commands that the leader applied.
    applied: u64,
    /// Number of commands that at least one node has applied.
    applied_anywhere: u64,
}

impl Stage {
    fn step(&mut self, position: usize, input: Input<Raft>) {
        self.rafts[position].step(input, &mut self.effects);
        let mut own = VecDeque::new();
        loop {
            for effect in self.effects.drain() {
                match effect {
                    Effect::Send { to, message, .. } if to.0 == position as u64 + 1 => own.push_back(message),
                    Effect::Send { to, message, .. } => {
                        let to = usize::try_from(to.0).expect("three nodes") - 1;
                        self.bag.push_back((position, to, message));
                    }
                    Effect::Apply(entry) if entry.kind == EntryKind::Command => {
                        self.applied_anywhere += 1;
                        self.applied += u64::from(position == 0);
                    }
                    _ => {}
                }
            }
            let Some(message) = own.pop_front() else { return };
            let from = NodeId(position as u64 + 1);
            self.rafts[position].step(Input::Message { from, message }, &mut self.effects);
        }
    }

    fn settle(&mut self) {
        while let Some((from, to, message)) = self.bag.pop_front() {
            let from = NodeId(from as u64 + 1);
            self.step(to, Input::Message { from, message });
        }
    }
}

/// Entries per second over `run`.
fn measure(run: Duration) -> f64 {
    let mut stage =
        Stage { rafts: Vec::new(), bag: VecDeque::new(), effects: Effects::new(), applied: 0, applied_anywhere: 0 };
    for id in 1..=3 {
        let mut cluster = Cluster::of(3, id);
        cluster.limits.trailing_entries = 1_000;
        let mut out = Effects::new();
        stage.rafts.push(Raft::start(cluster, Default::default(), Durable::default(), &mut out));
    }
    stage.step(0, Input::Timer(Timer::Election));
    stage.settle();
    assert_eq!(stage.rafts[0].status().role, Role::Leader);
    let payload = Bytes::from(vec![7; PAYLOAD_BYTES]);
    let (mut sequence, mut compacted) = (0, 0);
    let begun = Instant::now();
    while begun.elapsed() < run {
        let free = IN_FLIGHT - (sequence - stage.applied);
        let proposals = (0..free).map(|_| {
            sequence += 1;
            let origin = Origin { node: NodeId(1), incarnation: 1, sequence };
            Proposal { origin, kind: EntryKind::Command, stamp: Stamp::NONE, payload: payload.clone() }
        });
        let proposals = proposals.collect();
        stage.step(0, Input::Propose(proposals));
        stage.settle();
        if stage.applied - compacted > 100_000 {
            // As a host does when a snapshot is due: the log in memory stays bounded.
            compacted = stage.applied;
            for position in 0..3 {
                let status = stage.rafts[position].status();
                let term = stage.rafts[position].log().term_at(status.commit).expect("the commit is in the log");
                let lsn = hustings_core::Lsn { term, index: status.commit };
                let membership = status.membership;
                let reference = hustings_core::SnapshotReference { lsn, membership, bytes: 0, digest: 0 };
                stage.step(position, Input::Compact(reference));
            }
        }
    }
    let elapsed = begun.elapsed();
    assert!(stage.applied_anywhere >= 3 * stage.applied - 2 * IN_FLIGHT, "the followers apply too");
    stage.applied as f64 / elapsed.as_secs_f64()
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2);
    let mut rates: Vec<f64> = (0..5).map(|_| measure(Duration::from_secs(seconds))).collect();
    rates.sort_by(f64::total_cmp);
    println!(
        "raft, 3 values, one thread, {PAYLOAD_BYTES} B, {IN_FLIGHT} in flight: median {:.2} M entries/s of 5 (worst {:.2}, best {:.2})",
        rates[2] / 1e6,
        rates[0] / 1e6,
        rates[4] / 1e6
    );
}
