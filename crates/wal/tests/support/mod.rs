//! A workload with everything in it, and the state that each of its prefixes leaves.

#![allow(dead_code, reason = "each test binary uses its part")]

use bytes::Bytes;
use hustings_core::{
    ClusterId, Durable, Entry, EntryKind, Lsn, Membership, NodeId, Origin, Promise, Record, SnapshotReference, Stamp,
    Term,
};
use hustings_wal::{Identity, Options, Preparation, Recovered, SimulatedDisk, Wal, WalError};
use std::sync::Arc;

pub fn identity() -> Identity {
    Identity { cluster_id: ClusterId(0xC1), node: NodeId(1), protocol: "raft".into() }
}

pub fn founding() -> Membership {
    Membership::of_voters([NodeId(1), NodeId(2), NodeId(3)])
}

/// Segments of 16 sectors for batches, so that a small workload crosses many.
pub fn tiny() -> Options {
    Options {
        segment_bytes: 16 << 10,
        first_segment_bytes: 16 << 10,
        batch_bytes_max: 6000,
        preparation: Preparation::Inline,
        ..Options::default()
    }
}

pub fn open(disk: &SimulatedDisk) -> Result<(Wal, Recovered), WalError> {
    Wal::open(Arc::new(disk.clone()), &identity(), &founding(), tiny())
}

pub enum Step {
    Append(Record),
    Write,
    Probe,
    Sync,
}

pub struct Workload {
    pub steps: Vec<Step>,
    states: Vec<Durable>,
}

pub fn put(term: u64, index: u64, length: usize) -> Record {
    let origin = Origin { node: NodeId(1), incarnation: 1, sequence: index };
    // Zeros too: a sector that is meant to be zero must not look unwritten.
    let payload = if index.is_multiple_of(3) { vec![0; length] } else { vec![(index * 31) as u8; length] };
    let payload = Bytes::from(payload);
    Record::Put(Entry {
        lsn: Lsn::new(term, index),
        kind: EntryKind::Command,
        origin,
        stamp: Stamp { term: Term(term), micros: 7 },
        payload,
    })
}

fn snapshot(term: u64, index: u64) -> Record {
    let membership = Arc::new(founding());
    Record::Snapshot(SnapshotReference { lsn: Lsn::new(term, index), membership, bytes: 10, digest: 99 })
}

impl Workload {
    /// Three reigns: votes, entries of all sizes, commits, truncations, snapshots, in batches synced and unsynced.
    pub fn scripted() -> Workload {
        let mut steps = Vec::new();
        let mut index = 0;
        for term in 1..=3 {
            steps.push(Step::Append(Record::Promise(Promise::without_vote(Term(term)))));
            steps.push(Step::Sync);
            steps.push(Step::Append(Record::Promise(Promise::vote(Term(term), NodeId(term)))));
            steps.push(Step::Append(Record::Established(Term(term))));
            steps.push(Step::Sync);
            for round in 1..=9usize {
                for length in [10, 200 * round, 700] {
                    index += 1;
                    steps.push(Step::Append(put(term, index, length)));
                    if round % 3 == 0 {
                        steps.push(Step::Write);
                    }
                }
                steps.push(Step::Append(Record::Committed(Lsn::new(term, index - 2))));
                steps.push(if round % 4 == 0 { Step::Probe } else { Step::Sync });
                if round == 5 {
                    steps.push(Step::Append(snapshot(term, index - 4)));
                    steps.push(Step::Write);
                }
            }
            steps.push(Step::Append(Record::TruncateFrom(index)));
            index -= 1;
            steps.push(Step::Append(snapshot(term, index - 3)));
            steps.push(Step::Sync);
            index += 1;
            steps.push(Step::Append(put(term, index, 9000)));
            steps.push(Step::Sync);
        }
        Workload::of(steps)
    }

    pub fn of(steps: Vec<Step>) -> Workload {
        let mut states = vec![Durable::default()];
        for step in &steps {
            if let Step::Append(record) = step {
                let mut next = states.last().expect("never empty").clone();
                next.absorb(record.clone());
                states.push(next);
            }
        }
        Workload { steps, states }
    }

    /// The state after each number of records.
    pub fn states(&self) -> &[Durable] {
        &self.states
    }

    pub fn first(&self) -> Record {
        let first = self.steps.iter().find_map(|step| match step {
            Step::Append(record) => Some(record.clone()),
            _ => None,
        });
        first.expect("a workload has records")
    }

    /// Plays everything on a fresh disk; the log is closed in good order.
    pub fn played(&self) -> SimulatedDisk {
        let disk = SimulatedDisk::new(1);
        let (mut wal, _) = open(&disk).expect("a calm disk");
        for step in &self.steps {
            match step {
                Step::Append(record) => wal.append(record),
                Step::Write => wal.write(),
                Step::Probe => wal.probe(),
                Step::Sync => wal.sync(),
            }
            .expect("a calm disk");
        }
        disk
    }
}
