//! Huge pages for a member that holds much, and none for one that holds little.
//!
//! When a process is killed the kernel frees its memory first and closes its sockets afterwards: only then do clients learn that
//! it is dead, and peers without a lifeline. A gigabyte in pages of 4 KiB takes it some 70 ms, in pages of 2 MiB about three. But each thread of an idle
//! member touches a little here and there, and in huge pages that would be twice its memory. So they are held back until the
//! member has grown; what it takes from then on comes in huge pages, and the kernel joins the older ones by and by.
//!
//! ```text
//!   serve ──► pages of 4 KiB only ──► the same program again, its allocator told ──► 16 MiB held ──► huge pages
//! ```
//!
//! The program begins a second time because the allocator reads its settings, and takes its first memory, before `main`: it
//! must give memory back in whole huge pages, for what is given back in smaller pieces splits them.
//!
//! Source: prctl(2), `PR_SET_THP_DISABLE`; madvise(2), `MADV_HUGEPAGE`, which the allocator says of all its memory. A system
//! whose `/sys/kernel/mm/transparent_hugepage/enabled` is `never` has none, and fails over more slowly the more it holds.
//! Decision record 23 has the figures.

use std::env::{args_os, current_exe, var_os};
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::param::page_size;
use rustix::thread::disable_transparent_huge_pages;

/// The allocator's setting, and the sign that this program has begun again: 2 is "in whole huge pages only", 0 is none at all.
const ALLOCATOR: &str = "MIMALLOC_ALLOW_THP";

/// A member that holds more memory of its own has grown. An idle one holds about half of it; freeing it takes a millisecond.
const GROWN_BYTES: u64 = 16 << 20;

/// Pause between two looks at how much a member holds while it starts: it may read its store from disk, half a gigabyte in a second.
const LOOK_INTERVAL_AT_START: Duration = Duration::from_millis(5);

/// Pause between two later looks: it grows as fast as clients write. Five looks a second were a seventh of what an idle member does.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Holds huge pages back: the first thing that a member does. Returns only in the program that has begun again, or where that
/// cannot be.
pub(crate) fn hold_back() {
    if var_os(ALLOCATOR).is_some() || disable_transparent_huge_pages(true).is_err() {
        return;
    }
    let mut arguments = args_os();
    let own_name = arguments.next().unwrap_or_default();
    let Ok(program) = current_exe() else {
        let _ = disable_transparent_huge_pages(false);
        return;
    };
    // An upgrade may have put another file in its place, or none: then the one that runs, by another name.
    let program = if program.exists() { called(&own_name, program) } else { PathBuf::from("/proc/self/exe") };
    let mut again = Command::new(program);
    // It returns only if it fails; then the member runs as the system has it.
    let _ = again.arg0(&own_name).args(arguments).env(ALLOCATOR, "2").exec();
    let _ = disable_transparent_huge_pages(false);
}

/// The program by the path that it was called by, a link perhaps: that is the name that the system shows.
fn called(own_name: &OsStr, program: PathBuf) -> PathBuf {
    let path = Path::new(own_name);
    let is_it = path.is_absolute() && path.canonicalize().is_ok_and(|found| found == program);
    if is_it { path.to_owned() } else { program }
}

/// Lets them come once the member has grown; looks from a thread of its own, often until the start is dropped.
#[must_use]
pub(crate) fn come_with_size() -> Start {
    let start = Start(Arc::new(AtomicBool::new(true)));
    if var_os(ALLOCATOR).is_none_or(|value| value != "2") {
        return start;
    }
    let is_starting = start.0.clone();
    let watching = std::thread::Builder::new().name("hustings-pages".into()).spawn(move || {
        while own_bytes() < GROWN_BYTES {
            let is_starting = is_starting.load(Ordering::Relaxed);
            std::thread::sleep(if is_starting { LOOK_INTERVAL_AT_START } else { LOOK_INTERVAL });
        }
        let _ = disable_transparent_huge_pages(false);
    });
    // Without the thread there are none: the member serves all the same.
    drop(watching);
    start
}

/// A member that has not read its store yet.
pub(crate) struct Start(Arc<AtomicBool>);

impl Drop for Start {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Memory of this process that no file stands behind, bytes; 0 where the system does not say.
fn own_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = statm.split(' ').skip(1).map(|pages| pages.parse::<u64>().unwrap_or(0));
    let (resident, of_files) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    resident.saturating_sub(of_files) * page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_begins_again_by_the_path_that_it_was_called_by() {
        let program = current_exe().expect("the test has a path");
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("etcd");
        std::os::unix::fs::symlink(&program, &link).expect("a link");
        assert_eq!(called(link.as_os_str(), program.clone()), link);
        for other in ["etcd", "/bin/true", "", "/nowhere"] {
            assert_eq!(called(OsStr::new(other), program.clone()), program, "{other}");
        }
    }

    #[test]
    fn the_system_says_how_much_a_process_holds() {
        let held = vec![1_u8; 8 << 20];
        assert!(own_bytes() >= held.len() as u64);
    }
}
