//! Keeping the highest token of a gate in a file that outlives the process and the machine: [`FileShelf`].
//!
//! The file is replaced as a whole: written beside it, synced, renamed over it, and the directory synced. So a crash leaves the old
//! token or the new one. One process has it at a time: two gates over one file would each let through what the other one refuses.

use hustings_lease::{Shelf, Token};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// The longest file that can hold a token, in bytes.
const LENGTH_MAX: u64 = 64;

/// The reason why a token is not in its file.
#[derive(Debug, thiserror::Error)]
pub enum FileShelfError {
    /// Another process has the gate.
    #[error(
        "{path} is locked: another process keeps its gate there; give each resource a file of its own, and one process"
    )]
    InUse {
        /// Path of the file that is locked.
        path: PathBuf,
    },
    /// The file holds something else than a token.
    #[error(
        "{path} holds no token: write the highest one that the resource has seen into it, such as 7 or 2.7; without the file \
         the gate would let everybody through"
    )]
    NoToken {
        /// Path of the file.
        path: PathBuf,
    },
    /// The disk refused to read, write or sync.
    #[error("{path} cannot be {what}")]
    Disk {
        /// Path of the file.
        path: PathBuf,
        /// The work that failed: `read`, `written` and so on.
        what: &'static str,
        /// The operating system's reason.
        source: io::Error,
    },
}

/// A shelf in a file, for resources that outlive their process.
///
/// A file that is not there is a gate that nobody has passed: deleting it lets everybody in again. Beside it stands
/// `NAME.lock`, which is locked as long as the shelf lives, and `NAME.new` while a token is written.
///
/// ```
/// use hustings_election::{FenceGate, FileShelf, Token};
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("billing.token");
/// let mut gate = FenceGate::open(FileShelf::open(&path)?)?;
/// assert!(gate.admit(Token::new(8)).is_ok());
/// drop(gate);
/// // After a restart of the resource the leader before is refused all the same.
/// let mut gate = FenceGate::open(FileShelf::open(&path)?)?;
/// assert!(gate.admit(Token::new(7)).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FileShelf {
    path: PathBuf,
    /// Locked until it is dropped.
    _lock: File,
}

impl FileShelf {
    /// The shelf in this file, whose directory must be there.
    ///
    /// # Errors
    /// Another process has it, or the directory cannot be written.
    pub fn open(path: impl Into<PathBuf>) -> Result<FileShelf, FileShelfError> {
        let path = path.into();
        let locked = beside(&path, "lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&locked);
        let lock = lock.map_err(|source| disk(&locked, "opened", source))?;
        match lock.try_lock() {
            Ok(()) => Ok(FileShelf { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(FileShelfError::InUse { path: locked }),
            Err(TryLockError::Error(source)) => Err(disk(&locked, "locked", source)),
        }
    }
}

impl Shelf for FileShelf {
    type Error = FileShelfError;

    fn load(&mut self) -> Result<Option<Token>, FileShelfError> {
        let mut text = String::new();
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(disk(&self.path, "read", source)),
        };
        match file.take(LENGTH_MAX + 1).read_to_string(&mut text) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => text.clear(),
            Err(source) => return Err(disk(&self.path, "read", source)),
        }
        text.trim().parse().map(Some).map_err(|_| FileShelfError::NoToken { path: self.path.clone() })
    }

    fn keep(&mut self, token: Token) -> Result<(), FileShelfError> {
        let new = beside(&self.path, "new");
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(format!("{token}\n").as_bytes())?;
            file.sync_data()
        });
        written.map_err(|source| disk(&new, "written", source))?;
        std::fs::rename(&new, &self.path).map_err(|source| disk(&self.path, "replaced", source))?;
        let directory = match self.path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|source| disk(directory, "synced", source))
    }
}

/// The file beside this one whose name has `.END` behind it.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(end);
    name.into()
}

fn disk(path: &Path, what: &'static str, source: io::Error) -> FileShelfError {
    FileShelfError::Disk { path: path.to_owned(), what, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hustings_lease::{Barred, FenceGate};

    #[test]
    fn a_gate_in_a_file_goes_on_where_it_stood() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("gate");
        let open = || FenceGate::open(FileShelf::open(&path).expect("nobody has it")).expect("it can be read");
        let mut gate = open();
        assert_eq!(gate.highest(), None);
        let (early, late) = (Token::new(7), Token { generation: 2, number: 1 });
        gate.admit(early).expect("the first");
        gate.admit(late).expect("a later one");
        drop(gate);
        // A crash while the next one was written leaves its beginning beside the file.
        std::fs::write(beside(&path, "new"), "9").expect("written");
        let mut gate = open();
        assert_eq!(gate.highest(), Some(late));
        assert!(matches!(gate.admit(early), Err(Barred::Late { highest, .. }) if highest == late));
        assert_eq!(std::fs::read_to_string(&path).expect("text"), "2.1\n");
    }

    #[test]
    fn one_process_has_it_and_what_is_no_token_is_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("gate");
        let mut shelf = FileShelf::open(&path).expect("nobody has it");
        let refused = FileShelf::open(&path).expect_err("it is in use");
        assert!(matches!(refused, FileShelfError::InUse { .. }), "{refused}");
        for torn in [&b""[..], b"x", b"7 8", b"\xff", &[b'1'; 200]] {
            std::fs::write(&path, torn).expect("written");
            let refused = shelf.load().expect_err("no token");
            assert!(refused.to_string().contains("holds no token: write the highest one"), "{refused}");
        }
    }

    #[test]
    fn a_token_that_is_not_kept_admits_nobody() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("gate");
        let mut gate = FenceGate::open(FileShelf::open(&path).expect("nobody has it")).expect("it can be read");
        gate.admit(Token::new(1)).expect("it is kept");
        // Nothing can be written where a directory stands.
        std::fs::create_dir(beside(&path, "new")).expect("made");
        let failed = gate.admit(Token::new(2)).expect_err("it is not kept");
        assert!(matches!(failed, Barred::Shelf(_)), "{failed}");
        assert_eq!(gate.highest(), Some(Token::new(1)));
    }
}
