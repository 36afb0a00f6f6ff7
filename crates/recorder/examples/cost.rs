//! Nanoseconds that the recorder adds to each put: three Raft values on one thread, with their recordings in files and without.
//!
//! `cargo run --release -p hustings-recorder --example cost [seconds]`
//!
//! So many commands of 256 bytes are in flight, given to the leader together when the ones before are applied. Rounds with and without
//! recorder alternate, and the medians of five are compared. The threads that write the files are not in it.

use bytes::Bytes;
use hustings_core::protocol::{Effect, Effects, Input, Proposal, Protocol};
use hustings_core::{Cluster, Durable, EntryKind, Lsn, NodeId, Origin, Role, SnapshotReference, Stamp};
use hustings_raft::{Message, Raft, Timer};
use hustings_recorder::{Life, Recorded, RecordedOptions, Recorder, Tape};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const PAYLOAD_BYTES: usize = 256;
const RING_BYTES: u64 = 16 << 20;

struct Stage {
    members: Vec<Recorded<Raft>>,
    links: VecDeque<(usize, usize, Message)>,
    effects: Effects<Recorded<Raft>>,
    /// Commands that the leader applied.
    applied: u64,
}

impl Stage {
    fn step(&mut self, member: usize, input: Input<Recorded<Raft>>) {
        self.members[member].step(input, &mut self.effects);
        for effect in self.effects.drain() {
            match effect {
                Effect::Send { to, message, .. } => {
                    let to = usize::try_from(to.0).expect("three members") - 1;
                    self.links.push_back((member, to, message));
                }
                Effect::Apply(entry) if entry.kind == EntryKind::Command => self.applied += u64::from(member == 0),
                _ => {}
            }
        }
    }

    fn settle(&mut self) {
        while let Some((from, to, message)) = self.links.pop_front() {
            self.step(to, Input::Message { from: NodeId(from as u64 + 1), message });
        }
    }

    fn compact(&mut self) {
        for member in 0..3 {
            let status = self.members[member].status();
            let lsn = Lsn { term: status.term, index: status.commit };
            let reference = SnapshotReference { lsn, membership: status.membership, bytes: 0, digest: 0 };
            self.step(member, Input::Compact(reference));
        }
    }
}

/// Nanoseconds per put over `run`, with the members recorded in this directory, if there is one.
fn measure(run: Duration, in_flight: u64, directory: Option<&std::path::Path>) -> f64 {
    let mut stage = Stage { members: Vec::new(), links: VecDeque::new(), effects: Effects::new(), applied: 0 };
    let mut recorders = Vec::new();
    for id in 1..=3 {
        let mut cluster = Cluster::of(3, id);
        cluster.limits.trailing_entries = 1_000;
        let tape = directory.map(|directory| {
            let tape = Tape::new();
            let life = Life { member_id: id, ..Life::default() };
            let recorder = Recorder::start(tape.clone(), &directory.join(format!("n{id}")), life, RING_BYTES);
            recorders.push(recorder.expect("the directory can be written"));
            tape
        });
        let options = RecordedOptions { tape, ..RecordedOptions::default() };
        stage.members.push(Recorded::start(cluster, options, Durable::default(), &mut Effects::new()));
    }
    stage.step(0, Input::Timer(Timer::Election));
    stage.settle();
    assert_eq!(stage.members[0].status().role, Role::Leader);
    let payload = Bytes::from(vec![7; PAYLOAD_BYTES]);
    let (mut sequence, mut compacted) = (0, 0);
    let begun = Instant::now();
    while begun.elapsed() < run {
        let proposals = (0..in_flight).map(|_| {
            sequence += 1;
            let origin = Origin { node: NodeId(1), incarnation: 1, sequence };
            Proposal { origin, kind: EntryKind::Command, stamp: Stamp::NONE, payload: payload.clone() }
        });
        let proposals = proposals.collect();
        stage.step(0, Input::Propose(proposals));
        stage.settle();
        assert_eq!(stage.applied, sequence, "all is applied before the next");
        if stage.applied - compacted > 100_000 {
            compacted = stage.applied;
            stage.compact();
        }
    }
    begun.elapsed().as_secs_f64() * 1e9 / stage.applied as f64
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    let run = Duration::from_secs(seconds);
    println!("| in flight | ns a put without | with | more, of three members together |\n|---|---|---|---|");
    for in_flight in [1, 4, 16, 64, 256] {
        let directory = std::env::temp_dir().join(format!("hustings-recorder-cost-{}", std::process::id()));
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            without.push(measure(run, in_flight, None));
            with.push(measure(run, in_flight, Some(&directory)));
            // A new directory for each: what an earlier round left would be removed in a later one.
            if let Err(error) = std::fs::remove_dir_all(&directory) {
                eprintln!("{}: {error}; remove it yourself", directory.display());
            }
        }
        let (without, with) = (median(without), median(with));
        println!("| {in_flight} | {without:.0} | {with:.0} | {:.0} |", with - without);
    }
}
