//! Programs whose wall clock can be set, and nobody else's: [`WallClock`].

use super::{HUSTINGS, run};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Shows programs a wall clock that is off by the seconds in a file, which may change at any time.
const WALL_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile long *ahead;
__attribute__((constructor)) static void find(void) {
    void *map = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, open(getenv("WALL_CLOCK_AHEAD"), O_RDONLY), 0);
    if (map == MAP_FAILED) abort();
    ahead = map;
}
int clock_gettime(clockid_t clock, struct timespec *time) {
    long failed = syscall(SYS_clock_gettime, clock, time);
    if (!failed && clock == CLOCK_REALTIME && ahead) time->tv_sec += *ahead;
    return (int)failed;
}
"#;

/// A `hustings` whose wall clock is as far ahead as [`WallClock::set`] said last, also of processes that run already.
pub struct WallClock {
    directory: TempDir,
    program: PathBuf,
}

impl WallClock {
    pub fn begin() -> WallClock {
        let directory = tempfile::tempdir().expect("there is room");
        let [source, library, ahead, program] =
            ["clock.c", "clock.so", "ahead", "hustings"].map(|name| directory.path().join(name));
        std::fs::write(&source, WALL_CLOCK).expect("there is room");
        run(Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source])).ok();
        std::fs::write(&ahead, 0i64.to_ne_bytes()).expect("there is room");
        let (library, shown) = (library.display(), ahead.display());
        let script =
            format!("#!/bin/sh\nexport LD_PRELOAD='{library}' WALL_CLOCK_AHEAD='{shown}'\nexec '{HUSTINGS}' \"$@\"\n");
        std::fs::write(&program, script).expect("there is room");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
        WallClock { directory, program }
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    pub fn set(&self, seconds_ahead: i64) {
        let file = std::fs::OpenOptions::new().write(true).open(self.directory.path().join("ahead"));
        file.expect("it is there").write_all_at(&seconds_ahead.to_ne_bytes(), 0).expect("there is room");
    }
}
