//! Long lives of one directory: many crashes in a row, at random moments of random workloads.

mod support;

use hustings_core::{Durable, Lsn, Promise, Record, SnapshotReference, Term};
use hustings_wal::sim::{Faults, Loss, SimulatedDisk};
use std::sync::Arc;
use support::{founding, open, put};

/// A generator for the test alone; equal seeds, equal stories.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Some record that a protocol in this state could emit.
fn record(state: &Durable, dice: &mut Dice) -> Record {
    let last = state.entries.keys().next_back().copied().unwrap_or(state.snapshot_index());
    let term = state.promise.term.0.max(1);
    match dice.below(20) {
        0 => Record::Promise(Promise::without_vote(Term(term + 1))),
        1 => Record::Established(Term(state.established.0.max(term))),
        2 if last > state.committed.index => {
            Record::TruncateFrom(state.committed.index + 1 + dice.below(last - state.committed.index))
        }
        3 | 4 if last > state.snapshot_index() => {
            let index = state.snapshot_index() + 1 + dice.below(last - state.snapshot_index());
            let (membership, lsn) = (Arc::new(founding()), Lsn::new(term, index));
            Record::Snapshot(SnapshotReference { lsn, membership, bytes: 1, digest: 1 })
        }
        5..=8 => Record::Committed(Lsn::new(
            term,
            state.committed.index + dice.below(last.saturating_sub(state.committed.index) + 1),
        )),
        // Holes are legal, and a slot may be filled again.
        9 => put(term, last + 1 + dice.below(3), 30),
        10 => put(term, (state.snapshot_index() + 1).max(last), 700),
        _ => put(term, last + 1, dice.below(1500) as usize),
    }
}

#[test]
fn a_directory_survives_a_hundred_crashes_in_a_row() {
    let (mut crashes, mut records, mut torn, mut segments) = (0, 0, 0, 0);
    for seed in 1..=12 {
        let mut dice = Dice(seed);
        let disk = SimulatedDisk::new(seed);
        let mut may_be = vec![Durable::default()];
        for life in 0..100 {
            let what = format!("seed {seed}, life {life}");
            disk.plan(Faults { crash_at: Some(disk.operations() + 1 + dice.below(60)), ..Faults::default() });
            if let Ok((mut wal, recovered)) = open(&disk) {
                let count = may_be.iter().filter(|state| **state == recovered.durable).count();
                assert!(count > 0, "{what}: recovered is none of {} states: {:#?}", may_be.len(), recovered.durable);
                torn += u64::from(recovered.torn_bytes > 0);
                // The recovered state is durable: nothing before can come back.
                may_be = vec![recovered.durable];
                loop {
                    let state = may_be.last().expect("never empty");
                    let next = record(state, &mut dice);
                    let mut after = state.clone();
                    after.absorb(next.clone());
                    may_be.push(after);
                    records += 1;
                    let synced = match dice.below(6) {
                        0 => wal.append(&next).and_then(|()| wal.write()).map(|()| false),
                        1 | 2 => wal.append(&next).and_then(|()| wal.sync()).map(|()| true),
                        3 => wal.append(&next).and_then(|()| wal.probe()).map(|()| false),
                        _ => wal.append(&next).map(|()| false),
                    };
                    match synced {
                        Ok(true) => drop(may_be.drain(..may_be.len() - 1)),
                        Ok(false) => {}
                        Err(_) => break,
                    }
                }
                segments = segments.max(wal.bytes() / (16 << 10));
            }
            let losses = [Loss::Nothing, Loss::Everything, Loss::Each, Loss::EachTorn];
            disk.restart(losses[dice.below(4) as usize]);
        }
        crashes += disk.injected();
    }
    println!("{crashes} crashes, {records} records, {torn} torn tails, up to {segments} segments held");
    assert!(crashes > 1000 && records > 10_000 && torn > 50 && segments > 1);
}
