//! Bytes that earlier builds wrote, and what they mean: read by the tests of each crate that has a format.
//!
//! `golden/GENERATION/NAME.txt` has one line per sample: its kind, its bytes in hexadecimal, and the value as `Debug` shows it. Every
//! build must read all generations, and write the newest one as it stands there. Nothing that stands there is ever changed: what
//! changes a format adds a generation (`cargo xtask golden GENERATION`), and a new kind adds lines.

use bytes::Bytes;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::{Path, PathBuf};

/// Values that are drawn, so that each kind is among them.
const DRAWN: usize = 4_000;
/// Samples of each kind, and how long they may be.
const SAMPLES: usize = 2;
const BYTES_MAX: usize = 600;

/// Fields that a later generation, of this number, added to a format, with the value that bytes without them stand for.
const ADDED: [(&str, u32, &str); 5] = [
    ("blazingmq-messages", 2, ", asks: true"),
    ("paxos-messages", 2, ", asks: true"),
    ("greetings", 3, ", is_of_another_directory: false"),
    ("greetings", 4, ", starts: []"),
    ("greetings", 5, ", lifeline: b\"\""),
];

/// The folder of all generations.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden")
}

/// All generations that there are, oldest first.
pub fn generations() -> Vec<u32> {
    let entries = std::fs::read_dir(folder()).expect("the folder is in the repository").flatten();
    let mut numbers: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// The generation that is to be written, if one is.
pub fn wanted() -> Option<u32> {
    let text = std::env::var("HUSTINGS_GOLDEN").ok()?;
    Some(text.parse().expect("HUSTINGS_GOLDEN is the number of a generation"))
}

/// Bytes as hexadecimal text.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of what [`hex`] wrote.
pub fn unhex(text: &str) -> Bytes {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal")).collect()
}

/// The first word of a value's `Debug`, with the words of what is directly inside it while those are alone.
fn kind_of(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    text.split(|character: char| !character.is_alphanumeric()).next().unwrap_or_default().to_string()
}

/// Checks, or writes, the samples called `name`.
///
/// # Panics
/// When a sample means something else, or is written in another way.
pub fn check<T: Debug>(
    name: &str,
    values: impl Strategy<Value = T>,
    encode: impl Fn(&T) -> Bytes,
    decode: impl Fn(Bytes) -> Result<T, String>,
) {
    let mut runner = TestRunner::deterministic();
    let mut drawn: BTreeMap<String, Vec<T>> = BTreeMap::new();
    for _ in 0..DRAWN {
        let value = values.new_tree(&mut runner).expect("values can be drawn").current();
        let of_kind = drawn.entry(kind_of(&value)).or_default();
        if of_kind.len() < SAMPLES && encode(&value).len() <= BYTES_MAX {
            of_kind.push(value);
        }
    }
    let file = |generation: u32| folder().join(generation.to_string()).join(format!("{name}.txt"));
    if let Some(generation) = wanted() {
        add(&file(generation), &drawn, &encode);
    }
    let all = generations();
    let newest = all.iter().rev().find(|generation| file(**generation).exists()).copied();
    let newest =
        newest.unwrap_or_else(|| panic!("no samples of {name}: write them with `cargo xtask golden GENERATION`"));
    for generation in all.into_iter().filter(|generation| file(*generation).exists()) {
        let text = std::fs::read_to_string(file(generation)).expect("it can be read");
        let mut kinds = BTreeSet::new();
        for line in text.lines() {
            let mut columns = line.splitn(3, '\t');
            let mut column = || columns.next().expect("three columns");
            let (kind, bytes, shown) = (column(), column(), column());
            let value = decode(unhex(bytes))
                .unwrap_or_else(|error| panic!("{name} of generation {generation}: {error}\n{line}"));
            let mut meant = format!("{value:?}");
            for (.., field) in ADDED.iter().filter(|(of, added, _)| *of == name && generation < *added) {
                meant = meant.replace(field, "");
            }
            assert_eq!(meant, shown, "{name} of generation {generation} means something else now");
            if generation == newest {
                assert_eq!(
                    hex(&encode(&value)),
                    bytes,
                    "{name} is written in another way now: that needs a generation\n{shown}"
                );
            }
            kinds.insert(kind.to_string());
        }
        if generation == newest {
            let missing: Vec<&String> = drawn.keys().filter(|kind| !kinds.contains(*kind)).collect();
            assert!(
                missing.is_empty(),
                "no samples of {missing:?} among {name}: add them with `cargo xtask golden {generation}`"
            );
        }
    }
}

/// Adds samples of kinds that have none, and changes nothing.
fn add<T: Debug>(file: &Path, drawn: &BTreeMap<String, Vec<T>>, encode: impl Fn(&T) -> Bytes) {
    let mut text = std::fs::read_to_string(file).unwrap_or_default();
    let there: BTreeSet<String> = text.lines().filter_map(|line| Some(line.split_once('\t')?.0.to_string())).collect();
    for (kind, values) in drawn.iter().filter(|(kind, _)| !there.contains(*kind)) {
        for value in values {
            text.push_str(&format!("{kind}\t{}\t{value:?}\n", hex(&encode(value))));
        }
    }
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("it can be made");
    std::fs::write(file, text).expect("it can be written");
}
