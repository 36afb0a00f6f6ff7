//! The remains of a member are read without a trace, and only while nobody lives there.

mod support;

use hustings_core::ApplyVersion;
use hustings_wal::{RealDisk, Survey, Wal, WalError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

fn open(path: &Path) -> Result<Wal, WalError> {
    let disk = Arc::new(RealDisk::open(path)?);
    Ok(Wal::open(disk, &support::identity(), &support::founding(), support::tiny())?.0)
}

/// Every file, its bytes and when it was last written.
fn traces(path: &Path) -> Vec<(PathBuf, Vec<u8>, SystemTime)> {
    let mut traces: Vec<_> =
        std::fs::read_dir(path).expect("it is there").map(|entry| entry.expect("it is there").path()).collect();
    traces.sort();
    let of = |path: PathBuf| {
        let (bytes, written) = (
            std::fs::read(&path).expect("it is there"),
            path.metadata().expect("it is there").modified().expect("it is there"),
        );
        (path, bytes, written)
    };
    traces.into_iter().map(of).collect()
}

#[test]
fn a_survey_leaves_no_trace_and_says_what_a_start_would_recover() {
    // Goal: the last disk of a cluster is not touched. Method: survey a directory with entries and a torn tail; compare every file.
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("n1");
    let mut wal = open(&path).unwrap();
    for index in 1..=40 {
        wal.append(&support::put(1, index, 600)).unwrap();
        wal.sync().unwrap();
    }
    drop(wal);
    std::fs::write(path.join("wal-next.tmp"), "half").unwrap();
    let before = traces(&path);
    let survey = Survey::of(&path, ApplyVersion::FIRST).unwrap().expect("a member lived there");
    assert_eq!((survey.durable.entries.len(), survey.peek.boots), (40, 1));
    assert!(matches!(open(&path), Err(WalError::InUse { .. })), "nobody begins to live there meanwhile");
    assert!(matches!(Survey::of(&path, ApplyVersion::FIRST), Err(WalError::InUse { .. })));
    drop(survey);
    assert_eq!(traces(&path), before);

    let newer = place.path().join("newer");
    let mut wal = open(&newer).unwrap();
    wal.need_version(ApplyVersion(9)).unwrap();
    drop(wal);
    let refused = Survey::of(&newer, ApplyVersion(8)).expect_err("its entries mean something else").to_string();
    assert!(refused.contains("needs apply version 9") && refused.contains("a newer one"), "{refused}");

    let lives = open(&path).unwrap();
    let refused = Survey::of(&path, ApplyVersion::FIRST).expect_err("somebody lives there").to_string();
    assert!(refused.contains(&format!("(pid {})", std::process::id())), "{refused}");
    drop(lives);
    assert!(Survey::of(&place.path().join("absent"), ApplyVersion::FIRST).unwrap().is_none());
    std::fs::create_dir(place.path().join("empty")).unwrap();
    assert!(Survey::of(&place.path().join("empty"), ApplyVersion::FIRST).unwrap().is_none());
}
