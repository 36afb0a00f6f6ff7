//! The narrow seam to the disk: [`Disk`] and [`File`].
//!
//! All file access of this crate goes through these two traits, so that a simulated disk can take the real one's place and
//! crash it at every operation. Names are plain: no separators, all in one directory.
//!
//! Read next: [`crate::real`].

use std::io;

/// A directory of files, as the log uses it.
pub trait Disk: Send + Sync + 'static {
    /// Creates the file, or empties it if it exists, `bytes` long and reading as zeros. Space is set aside, but only bytes
    /// that were written and synced are sure to be there after a crash.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn File>>;

    /// Opens a file that exists.
    fn open(&self, name: &str) -> io::Result<Box<dyn File>>;

    /// The names of all files, in ascending order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Gives a file another name, replacing what had it. Durable after [`Disk::sync_directory`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Durable after [`Disk::sync_directory`].
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes creations, renames and removals durable.
    fn sync_directory(&self) -> io::Result<()>;

    /// A number that was never drawn before: random at the real disk, from a seed in a simulation.
    fn fresh_number(&self) -> u64;

    /// Full path of a file, for messages; with an empty name that of the directory itself.
    fn location(&self, name: &str) -> String;
}

/// One open file. Its methods take `&self`: callers coordinate writes themselves.
pub trait File: Send + Sync {
    /// Fills `buffer` from `offset` on; fewer bytes only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`, growing the file if need be.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes all bytes written so far durable, and the length with them. An error means that nobody knows what is on the disk.
    fn sync_data(&self) -> io::Result<()>;

    /// Length of the file, in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}
