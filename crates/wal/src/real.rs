//! A directory of the operating system: [`RealDisk`].
//!
//! Everything hangs on one descriptor of the directory, so that a directory that is moved or replaced behind our back does not
//! split the log. Symbolic links are not followed, files are 0600, the directory is 0700.

use crate::disk::{Disk, File};
use crate::error::WalError;
use rustix::fs::{self, FallocateFlags, FlockOperation, Mode, OFlags};
use std::fs::File as StdFile;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};

/// The name of the lock file.
pub const LOCK: &str = "LOCK";

/// A directory of the operating system, locked against other processes as long as the value lives.
#[derive(Debug)]
pub struct RealDisk {
    path: PathBuf,
    directory: StdFile,
    access: Access,
}

/// The operations that are allowed on the directory.
#[derive(Debug)]
enum Access {
    /// Reading and writing; the descriptor holds the lock.
    Exclusive { _lock: StdFile },
    /// Reading only: beside the holder of the lock, or holding it where there is a lock file.
    ReadOnly { _lock: Option<StdFile> },
}

impl RealDisk {
    /// Opens the directory, creating it (0700) when it is absent, and locks it.
    ///
    /// # Errors
    /// [`WalError::InUse`] when another process (or another value in this one) holds it.
    pub fn open(directory: &Path) -> Result<RealDisk, WalError> {
        let io = |action| move |source| WalError::io(action, directory.display().to_string(), None, source);
        if !directory.exists() {
            create_durably(directory).map_err(io("creating the directory"))?;
        }
        let handle = open_directory(directory).map_err(io("opening the directory"))?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = fs::openat(&handle, LOCK, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| WalError::io("opening", directory.join(LOCK).display().to_string(), None, errno.into()))?;
        let mut lock = lock_now(StdFile::from(lock), directory)?;
        let note = lock.set_len(0).and_then(|()| lock.write_all(format!("{}\n", std::process::id()).as_bytes()));
        let noted =
            note.map_err(|source| WalError::io("writing", directory.join(LOCK).display().to_string(), None, source));
        match noted {
            // The holder's pid is a courtesy, and a full disk no reason not to take the lock.
            Err(error) if !error.is_full() => return Err(error),
            _ => {}
        }
        Ok(RealDisk { path: directory.to_path_buf(), directory: handle, access: Access::Exclusive { _lock: lock } })
    }

    /// Opens the directory for reading only, beside a process that lives in it; `None` when it is absent.
    pub fn open_read_only(directory: &Path) -> Result<Option<RealDisk>, WalError> {
        match open_directory(directory) {
            Ok(handle) => Ok(Some(RealDisk {
                path: directory.to_path_buf(),
                directory: handle,
                access: Access::ReadOnly { _lock: None },
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(WalError::io("opening the directory", directory.display().to_string(), None, source)),
        }
    }

    /// Opens the directory for reading only and locks it, without a trace in it; `None` when it is absent. One that was copied
    /// without its lock file has nobody to exclude.
    ///
    /// # Errors
    /// [`WalError::InUse`] when another process (or another value in this one) holds it.
    pub fn open_unchanged(directory: &Path) -> Result<Option<RealDisk>, WalError> {
        let Some(disk) = RealDisk::open_read_only(directory)? else { return Ok(None) };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = match fs::openat(&disk.directory, LOCK, flags, Mode::empty()) {
            Ok(lock) => Some(lock_now(StdFile::from(lock), directory)?),
            Err(rustix::io::Errno::NOENT) => None,
            Err(errno) => {
                return Err(WalError::io("opening", directory.join(LOCK).display().to_string(), None, errno.into()));
            }
        };
        Ok(Some(RealDisk { access: Access::ReadOnly { _lock: lock }, ..disk }))
    }

    fn check_writable(&self) -> io::Result<()> {
        match self.access {
            Access::Exclusive { .. } => Ok(()),
            Access::ReadOnly { .. } => Err(io::Error::new(io::ErrorKind::PermissionDenied, "opened for reading only")),
        }
    }
}

/// Locks the lock file, or says who holds it.
fn lock_now(mut lock: StdFile, directory: &Path) -> Result<StdFile, WalError> {
    match fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            // The holder's pid is a courtesy; a lock file that cannot be read is no reason to say less than "in use".
            let _ = lock.read_to_string(&mut pid);
            let holder = pid.trim().parse::<u32>().map_or(String::new(), |pid| format!(" (pid {pid})"));
            Err(WalError::InUse { directory: directory.display().to_string(), holder })
        }
        Err(errno) => Err(WalError::io("locking", directory.join(LOCK).display().to_string(), None, errno.into())),
    }
}

fn open_directory(directory: &Path) -> io::Result<StdFile> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(StdFile::from(fs::open(directory, flags, Mode::empty())?))
}

/// Creates the directory and makes its name durable in its parent: a data directory that vanishes with a power cut would come
/// back blank, and its node would vote twice.
fn create_durably(directory: &Path) -> io::Result<()> {
    let parent = match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !parent.exists() {
        create_durably(parent)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    open_directory(parent)?.sync_all()
}

impl Disk for RealDisk {
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn File>> {
        self.check_writable()?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = StdFile::from(fs::openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR)?);
        if bytes > 0 {
            match fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
                Ok(()) => {}
                // A filesystem without it sets nothing aside; the zeros that are written next do.
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => file.set_len(bytes)?,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Box::new(RealFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        let access = if self.check_writable().is_ok() { OFlags::RDWR } else { OFlags::RDONLY };
        // Not blocking: a named pipe planted in the directory must not hang the start.
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = StdFile::from(fs::openat(&self.directory, name, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(Box::new(RealFile(file)))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.directory)? {
            // A name that is not UTF-8 is none of ours.
            if let Ok(name) = entry?.file_name().to_str() {
                names.push(name.to_owned());
            }
        }
        names.retain(|name| name != "." && name != ".." && name != LOCK);
        names.sort();
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check_writable()?;
        Ok(fs::renameat(&self.directory, from, &self.directory, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.check_writable()?;
        Ok(fs::unlinkat(&self.directory, name, fs::AtFlags::empty())?)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn fresh_number(&self) -> u64 {
        rand::random()
    }

    fn location(&self, name: &str) -> String {
        if name.is_empty() { self.path.display().to_string() } else { self.path.join(name).display().to_string() }
    }
}

/// An open file of the operating system.
#[derive(Debug)]
struct RealFile(StdFile);

impl File for RealFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}
