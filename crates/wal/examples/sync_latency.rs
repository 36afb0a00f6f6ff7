//! Measures the time of a durable write: this log beside a plain growing file, in the same directory and run.
//!
//! `cargo run -p hustings-wal --example sync_latency [DIRECTORY]`; prints microseconds, asserts nothing.

use bytes::Bytes;
use hustings_core::{ClusterId, Entry, EntryKind, Lsn, Membership, NodeId, Origin, Record, Stamp};
use hustings_wal::{Identity, Options, RealDisk, Wal};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SAMPLES: usize = 1000;

fn put(index: u64) -> Record {
    let origin = Origin { node: NodeId(1), incarnation: 1, sequence: index };
    let payload = Bytes::from(vec![index as u8; 256]);
    Record::Put(Entry { lsn: Lsn::new(1, index), kind: EntryKind::Command, origin, stamp: Stamp::NONE, payload })
}

fn report(what: &str, mut samples: Vec<Duration>) {
    samples.sort();
    let micros = |quantile: usize| samples[(samples.len() - 1) * quantile / 1000].as_micros();
    println!("{what:<52} p50 {:>6} us   p99 {:>6} us   worst {:>7} us", micros(500), micros(990), micros(1000));
}

fn measure(mut work: impl FnMut() -> std::io::Result<()>) -> std::io::Result<Vec<Duration>> {
    let mut samples = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let start = Instant::now();
        work()?;
        samples.push(start.elapsed());
    }
    Ok(samples)
}

fn plain(directory: &Path, batch: usize) -> std::io::Result<Vec<Duration>> {
    let mut file = std::fs::File::create(directory.join(format!("plain-{batch}")))?;
    let bytes = vec![7; 300 * batch];
    measure(|| {
        file.write_all(&bytes)?;
        file.sync_data()
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let temporary = std::env::temp_dir().join(format!("hustings-sync-latency-{}", std::process::id()));
    let directory = std::env::args().nth(1).map_or(temporary, PathBuf::from);
    std::fs::create_dir_all(&directory)?;
    let identity = Identity { cluster_id: ClusterId(1), node: NodeId(1), protocol: "raft".into() };
    let start = Instant::now();
    let disk = Arc::new(RealDisk::open(&directory.join("log"))?);
    let founding = Membership::of_voters([NodeId(1)]);
    let (mut wal, _) = Wal::open(disk, &identity, &founding, Options::default())?;
    println!("{:<52} {:>10} us", "a fresh log", start.elapsed().as_micros());
    let mut index = 0;
    // Turn about, so that whatever else the machine does meets all of them.
    for round in 1..=3 {
        for batch in [1, 64] {
            let samples = measure(|| {
                for _ in 0..batch {
                    index += 1;
                    wal.append(&put(index)).map_err(std::io::Error::other)?;
                }
                wal.sync().map_err(std::io::Error::other)
            })?;
            report(&format!("round {round}: this log, {batch} records of 256 B a sync"), samples);
            report(
                &format!("round {round}: a growing file, {batch} writes of 300 B a sync"),
                plain(&directory, batch)?,
            );
        }
        report(&format!("round {round}: probe"), measure(|| wal.probe().map_err(std::io::Error::other))?);
    }
    let start = Instant::now();
    let count = 200_000;
    for _ in 0..count {
        index += 1;
        wal.append(&put(index))?;
    }
    wal.write()?;
    let each = start.elapsed().as_nanos() / count;
    println!("{:<52} {each:>10} ns", "append and write, per record, synced at rotations only");
    drop(wal);
    let start = Instant::now();
    let disk = Arc::new(RealDisk::open(&directory.join("log"))?);
    let (wal, recovered) = Wal::open(disk, &identity, &founding, Options::default())?;
    let entries = recovered.durable.entries.len();
    println!("{:<52} {:>10} us", format!("recovery of {entries} entries"), start.elapsed().as_micros());
    drop(wal);
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
