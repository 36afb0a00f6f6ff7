//! A control group for a command: all that it starts, however it hides, stays in there. [`Cage`].
//!
//! ```text
//!   own group ─┬─ sidecar, warden
//!              └─ hustings-run-PID-TIME ── COMMAND and all that comes of it ◄── cgroup.kill: all of them, at once
//! ```
//!
//! A process leaves its process group and its session as it likes, and its parent by ending it; its control group it leaves only
//! with the rights of its maker. Needs version 2 of control groups, and the right to make one below its own: root, or a unit of
//! systemd with `Delegate=yes`.

use serde::{Deserialize, Serialize};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Pause between two looks at whether it is empty.
const LOOK_AGAIN: Duration = Duration::from_micros(500);

/// A control group, which is there until [`Cage::remove`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cage {
    directory: PathBuf,
}

impl Cage {
    /// Makes one below the control group of this process.
    ///
    /// # Errors
    /// There are no control groups of version 2, or this process may not make one.
    pub fn new() -> Result<Cage> {
        let own = own_directory(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)
            .ok_or_else(|| Error::other("control groups of version 2 are not mounted"))?;
        let name = format!("hustings-run-{}-{}", std::process::id(), crate::clock::boot_micros());
        let cage = Cage { directory: own.join(name) };
        std::fs::create_dir(&cage.directory).map_err(|error| in_file(&cage.directory, &error))?;
        if !cage.directory.join("cgroup.kill").exists() {
            cage.remove();
            return Err(Error::other("this kernel's control groups cannot be killed: Linux 5.14 or later can"));
        }
        Ok(cage)
    }

    /// One that another process has made.
    pub(super) fn at(directory: impl Into<PathBuf>) -> Cage {
        Cage { directory: directory.into() }
    }

    /// Directory of the control group.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Puts this process into it.
    pub(super) fn enter(&self) -> Result<()> {
        self.write("cgroup.procs", "0")
    }

    /// Kills all that is in it, at once. A process that is dead already, or there no more, is no error.
    pub fn kill(&self) {
        let _ = self.write("cgroup.kill", "1");
    }

    /// Whether nobody in it lives; true as well once it is gone, and false where the kernel does not say.
    pub fn is_empty(&self) -> bool {
        match std::fs::read_to_string(self.directory.join("cgroup.events")) {
            Ok(events) => !events.lines().any(|line| line == "populated 1"),
            // One that is taken away while its file is open says ENODEV.
            Err(error) => {
                error.kind() == ErrorKind::NotFound
                    || error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
            }
        }
    }

    /// Kills until nobody in it lives.
    pub(super) fn end(&self) {
        while !self.is_empty() {
            self.kill();
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Takes it away, if it is empty.
    pub fn remove(&self) {
        // A later process takes it away, or nobody: an empty one costs nothing.
        let _ = std::fs::remove_dir(&self.directory);
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.directory.join(file);
        std::fs::write(&path, text).map_err(|error| in_file(&path, &error))
    }
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| in_file(Path::new(path), &error))
}

fn in_file(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The directory of this process' control group, from what the kernel says of mounts and of the process.
fn own_directory(mounts: &str, groups: &str) -> Option<PathBuf> {
    let (root, mounted_at) = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split_whitespace().skip(3);
        after.starts_with("cgroup2 ").then_some((fields.next()?, fields.next()?))
    })?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    // In a container the mount may show a part of the tree only.
    let below = Path::new(own).strip_prefix(root).or_else(|_| Path::new(own).strip_prefix("/")).ok()?;
    Some(Path::new(mounted_at).join(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_control_group_is_found_where_it_is_mounted() {
        let mounts = "30 20 0:26 / /sys rw - sysfs sysfs rw\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let found = |mounts: &str, groups: &str| own_directory(mounts, groups);
        assert_eq!(found(mounts, "9:name=systemd:/x\n0::/\n"), Some("/sys/fs/cgroup/unified/".into()));
        let unit = "0::/system.slice/billing.service\n";
        assert_eq!(found(mounts, unit), Some("/sys/fs/cgroup/unified/system.slice/billing.service".into()));
        let part = "41 31 0:38 /docker/7f /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(found(part, "0::/docker/7f/unit\n"), Some("/sys/fs/cgroup/unit".into()));
        assert_eq!(found("1 2 0:1 / /sys/fs/cgroup rw - cgroup cgroup rw,memory\n", "4:memory:/x\n"), None);
    }

    #[test]
    fn one_that_cannot_be_looked_into_is_not_taken_for_empty() {
        let place = tempfile::tempdir().expect("a place");
        let cage = Cage::at(place.path().join("group"));
        assert!(cage.is_empty(), "it is gone");
        // A directory in the place of the file: reading it fails, and not because it is gone.
        std::fs::create_dir_all(cage.directory().join("cgroup.events")).expect("there is room");
        assert!(!cage.is_empty(), "nobody knows");
    }
}
