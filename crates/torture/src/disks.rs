//! The file system under a node: [`Disk`], an ext4 in a file, mounted through a loop device. Needs root.
//!
//! Freezing is `fsfreeze`; a power cut is the file system's own shutdown without flushing its journal (`EXT4_IOC_SHUTDOWN`,
//! flag 2): what was synced survives the next mount, what was not is lost, and everything fails in between. The call is made
//! by perl, which every Debian has, since unsafe code is forbidden here.

use anyhow::{Context, Result, bail};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Size of a disk, in bytes.
const DISK_BYTES: u64 = 160 << 20;
/// Bytes that a file system may refuse of the room that it says it has.
const STEP_BYTES: u64 = 64 << 10;
const SHUT_DOWN: &str =
    r#"open(my $d, "<", $ARGV[0]) or die "$!"; my $how = pack("L", 2); ioctl($d, 0x8004587d, $how) or die "$!";"#;

/// A file system of one node; unmounted when dropped.
pub struct Disk {
    image: PathBuf,
    mount: PathBuf,
    is_frozen: bool,
    /// Something takes the room.
    is_full: bool,
    /// It had to stay full while it was frozen: even the removal of a file waits there.
    empties_at_thaw: bool,
    /// The power is gone: everything fails until it is mounted again.
    is_cut: bool,
}

/// Runs a tool that must be there.
pub(crate) fn tool(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}: install its package"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

impl Disk {
    /// Makes and mounts one named `name` in `directory`.
    pub fn create(directory: &Path, name: &str) -> Result<Disk> {
        if !rustix::process::geteuid().is_root() {
            bail!("disks of their own need root, to mount them: leave disk-freeze, disk-full and power-cut out");
        }
        let image = directory.join(format!("{name}.ext4"));
        let mount = directory.join(name);
        std::fs::create_dir(&mount)?;
        std::fs::File::create(&image)?.set_len(DISK_BYTES)?;
        tool(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image))?;
        let mut disk = Disk { image, mount, is_frozen: false, is_full: false, empties_at_thaw: false, is_cut: true };
        disk.mount()?;
        Ok(disk)
    }

    /// Directory of the node's data.
    pub fn data_dir(&self) -> PathBuf {
        self.mount.join("data")
    }

    fn mount(&mut self) -> Result<()> {
        tool(Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(&self.image).arg(&self.mount))?;
        self.is_cut = false;
        Ok(())
    }

    /// Whether nothing can be read or written until it is mounted again.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Every write waits from now on.
    pub fn freeze(&mut self) -> Result<()> {
        if !self.is_frozen && !self.is_cut {
            tool(Command::new("fsfreeze").arg("-f").arg(&self.mount))?;
            self.is_frozen = true;
        }
        Ok(())
    }

    /// Lets writes go on.
    pub fn thaw(&mut self) -> Result<()> {
        if self.is_frozen {
            tool(Command::new("fsfreeze").arg("-u").arg(&self.mount))?;
            self.is_frozen = false;
        }
        if self.empties_at_thaw { self.empty() } else { Ok(()) }
    }

    /// Fills the disk until only so many bytes are left.
    pub fn fill(&mut self, left: u64) -> Result<()> {
        if self.is_cut || self.is_frozen {
            return Ok(());
        }
        self.is_full = true;
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(self.ballast(), flags, Mode::RUSR | Mode::WUSR)?;
        let room = rustix::fs::statvfs(&self.mount)?;
        let mut bytes = (room.f_bavail * room.f_frsize).saturating_sub(left);
        while bytes > 0 && rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes).is_err() {
            bytes = bytes.saturating_sub(STEP_BYTES);
        }
        Ok(())
    }

    /// There is room again.
    pub fn empty(&mut self) -> Result<()> {
        self.empties_at_thaw = self.is_full && (self.is_frozen || self.is_cut);
        if self.is_full && !self.empties_at_thaw {
            self.is_full = false;
            // A power cut may have taken the file, for it was never synced.
            if self.ballast().exists() {
                std::fs::remove_file(self.ballast())?;
            }
        }
        Ok(())
    }

    fn ballast(&self) -> PathBuf {
        self.mount.join("ballast")
    }

    /// Cuts the power: what was not synced is lost.
    pub fn cut_power(&mut self) -> Result<()> {
        if !self.is_cut {
            self.thaw()?;
            tool(Command::new("perl").arg("-e").arg(SHUT_DOWN).arg(&self.mount))?;
            self.is_cut = true;
        }
        Ok(())
    }

    /// The power is back; nobody may live on the disk now.
    pub fn restore_power(&mut self) -> Result<()> {
        if self.is_cut {
            tool(Command::new("umount").arg(&self.mount))?;
            self.mount()?;
        }
        if self.empties_at_thaw { self.empty() } else { Ok(()) }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A failure here is left to the caller, which has been told why by then.
        let _ = self.thaw();
        let _ = tool(Command::new("umount").arg("-l").arg(&self.mount));
    }
}
