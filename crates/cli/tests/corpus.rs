//! Goal: no bytes make a reader panic (BI-01, BI-03, BI-06). Method: the targets of `fuzz/`, over the corpus that is kept there and
//! over a few hundred changes of each file; equal builds make equal changes.

#[path = "../../../fuzz/targets.rs"]
mod targets;

use std::collections::BTreeMap;
use std::path::Path;

/// Numbers that look drawn, and are the same in each run.
struct Numbers(u64);

impl Numbers {
    /// A number below this one.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }
}

/// Number of changes of each file.
const CHANGES: usize = 300;

/// A file with one to four changes: bits, bytes, pieces that go, come twice, or come from another file.
fn changed(file: &[u8], other: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(bytes.len());
        match numbers.below(6) {
            _ if bytes.is_empty() => bytes.extend_from_slice(other),
            0 => bytes[at] ^= 1 << numbers.below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][numbers.below(5)],
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..(at + 1 + numbers.below(8)).min(bytes.len()))),
            4 => {
                let piece = bytes[at..(at + 1 + numbers.below(16)).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let from = numbers.below(other.len());
                let piece = other[from..(from + 1 + numbers.below(32)).min(other.len())].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

/// Runs a target over its corpus; gives how often it ran.
fn run(name: &str, target: fn(&[u8])) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = std::fs::read_dir(&folder).expect("the corpus is in the repository").flatten();
    let corpus: BTreeMap<String, Vec<u8>> = entries
        .map(|entry| {
            (entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).expect("it is read"))
        })
        .collect();
    assert!(corpus.len() >= 5, "the corpus of {name} has only {} files", corpus.len());
    let files: Vec<&Vec<u8>> = corpus.values().collect();
    let mut numbers = Numbers(corpus.len() as u64);
    for file in &files {
        target(file);
        for _ in 0..CHANGES {
            let bytes = changed(file, files[numbers.below(files.len())], &mut numbers);
            let ended = std::panic::catch_unwind(|| target(&bytes));
            if ended.is_err() {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                panic!("`{name}` panicked over these bytes; keep them in {}: {hex}", folder.display());
            }
        }
    }
    files.len() * (CHANGES + 1)
}

#[test]
fn messages_of_strangers_end_nobody() {
    assert!(run("messages", targets::messages) > 5_000);
}

#[test]
fn commands_that_nobody_wrote_are_refused() {
    assert!(run("commands", targets::commands) > 3_000);
}

#[test]
fn a_damaged_database_is_refused_or_read() {
    assert!(run("bolt", targets::bolt) > 1_500);
}

#[test]
fn a_body_that_is_no_json_is_refused() {
    assert!(run("json", targets::json) > 1_500);
}

#[test]
fn a_script_that_is_damaged_is_refused_or_read() {
    assert!(run("scripts", targets::scripts) > 1_500);
}

#[test]
fn a_recording_that_is_damaged_is_told_and_replayed_as_far_as_it_goes() {
    assert!(run("recordings", targets::recordings) > 1_500);
}

#[test]
fn changes_are_many_and_the_same_each_time() {
    let made = |seed| {
        let mut numbers = Numbers(seed);
        (0..100).map(|_| changed(b"0123456789", b"abcdefghij", &mut numbers)).collect::<Vec<_>>()
    };
    assert_eq!(made(1), made(1));
    assert!(made(1).iter().collect::<std::collections::BTreeSet<_>>().len() > 80);
}
