//! A real process on a real disk, killed in the middle of its work.

mod support;

use hustings_wal::{Options, RealDisk, Wal, WalError};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use support::{founding, identity, put};

const DIRECTORY: &str = "HUSTINGS_WAL_TEST_DIRECTORY";

fn options() -> Options {
    Options { segment_bytes: 256 << 10, first_segment_bytes: 32 << 10, ..Options::default() }
}

fn length_of(index: u64) -> usize {
    (index * 37 % 900) as usize
}

/// Not a story of its own: the process that the stories below start and kill. Alone it has nothing to do.
#[test]
fn a_child_appends_until_it_is_killed() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let disk = Arc::new(RealDisk::open(Path::new(&directory)).unwrap());
    let (mut wal, recovered) = Wal::open(disk, &identity(), &founding(), options()).unwrap();
    let mut index = recovered.durable.entries.len() as u64;
    loop {
        for _ in 0..=index % 5 {
            index += 1;
            wal.append(&put(1, index, length_of(index))).unwrap();
        }
        wal.sync().unwrap();
        eprintln!("acknowledged {index}");
    }
}

fn child(directory: &Path) -> (Child, impl Iterator<Item = u64> + use<>) {
    let mut child = Command::new(std::env::current_exe().expect("a test knows its own file"))
        .args(["--exact", "a_child_appends_until_it_is_killed", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a test starts itself");
    let lines = BufReader::new(child.stderr.take().expect("its output is piped")).lines().map_while(Result::ok);
    (child, lines.filter_map(|line| line.strip_prefix("acknowledged ")?.parse().ok()))
}

#[test]
fn a_killed_process_loses_nothing_that_it_acknowledged() {
    // Goal: RP-14. Method: kill the process after a different number of acknowledgements each time, twenty times over one directory.
    let directory = tempfile::tempdir().unwrap();
    let mut held = 0;
    for round in 0..20 {
        let (mut child, mut acknowledged) = child(directory.path());
        let mut last = acknowledged.nth(round * 7 % 30).expect("the child acknowledges");
        child.kill().unwrap();
        child.wait().unwrap();
        // Acknowledgements that it still gave before it died count as well.
        last = acknowledged.last().unwrap_or(last);
        let disk = Arc::new(RealDisk::open(directory.path()).unwrap());
        let (_wal, recovered) = Wal::open(disk, &identity(), &founding(), options()).unwrap();
        let entries = recovered.durable.entries;
        assert!(entries.len() as u64 >= last, "round {round}: {last} acknowledged, {} found", entries.len());
        for (number, entry) in (1..).zip(entries.values()) {
            assert_eq!(entry.lsn.index, number);
            assert_eq!(entry.payload.len(), length_of(number));
        }
        held = entries.len();
    }
    assert!(held > 200, "{held} entries");
}

#[test]
fn a_directory_in_use_is_refused_and_its_owner_is_not_disturbed() {
    // Goal: ST-20.
    let directory = tempfile::tempdir().unwrap();
    let (mut child, mut acknowledged) = child(directory.path());
    acknowledged.next().expect("the child acknowledges");
    let error = RealDisk::open(directory.path()).unwrap_err();
    assert!(matches!(error, WalError::InUse { .. }));
    assert!(error.to_string().contains(&format!("(pid {})", child.id())), "{error}");
    // Looking is allowed, and finds it at work.
    assert_eq!(hustings_wal::peek(directory.path()).unwrap().unwrap().boots, 1);
    assert!(hustings_wal::inspect(directory.path()).unwrap().count() > 3);
    acknowledged.nth(3).expect("the child goes on");
    child.kill().unwrap();
    child.wait().unwrap();
}
