//! Room that is set aside for a start: the file `reserve`.
//!
//! Each start writes `meta` anew beside the old one, and on a disk that others have filled to the last byte there is no room for
//! that. So a little room is kept in a file, given back for this write alone, and set aside again as soon as there is some.
//!
//! Source: ST-10; ADR 26.

use crate::disk::Disk;

/// The name of the file.
pub const RESERVE: &str = "reserve";

/// Bytes that a member sets aside: `meta` many times over, and nobody misses them.
pub const RESERVE_BYTES: u64 = 64 << 10;

/// Sets so much aside, if it is not. Without room for it there is none until the next time.
pub(crate) fn keep(disk: &dyn Disk, bytes: u64) {
    let is_kept = || disk.open(RESERVE).and_then(|file| file.len()).is_ok_and(|length| length >= bytes);
    if bytes > 0 && !is_kept() && disk.create(RESERVE, bytes).is_err() {
        // An empty file would keep nothing; whether it goes changes nothing either.
        let _ = disk.remove(RESERVE);
    }
}

/// Gives it back, so that others may take it; false when there is none.
pub(crate) fn give_back(disk: &dyn Disk) -> bool {
    // File systems with a journal give out what was freed once that is durable.
    disk.remove(RESERVE).and_then(|()| disk.sync_directory()).is_ok()
}
