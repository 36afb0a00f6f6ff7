//! Values that do not stand in their version's allocation: [`Large`].
//!
//! ```text
//!   put ──► in memory, a slice of the entry in the log ──► a snapshot holds it: in that file ──► the next one does: in that
//! ```
//!
//! A store may hold more of them than the machine has memory: what is needed at all times is a length, a checksum and a place.
//! A snapshot writes every value anyway, so none is written twice for this, and nothing has to be collected: the place moves
//! from file to file, and a file that no value and no view names any more is closed. Views share the value, so they move with it.
//!
//! It deliberately has no error. A value that cannot be read back is gone on this member, as a log whose sync failed
//! (ADR 31): the process ends and says where, and the other members serve.
//!
//! Read next: [`crate::version`], which has one where its value is large.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hustings_core::SnapshotFile;

/// Length in bytes from which on a value is large. To read one back costs a call of the kernel and a copy: little beside sending it.
pub(crate) const LARGE_BYTES_MIN: usize = 4 << 10;

/// Bytes of a value's beginning that are in memory, too: most comparisons are decided by them.
const PREFIX_LENGTH: usize = 64;

/// A value that is large enough to be kept on file.
pub(crate) struct Large {
    length: u32,
    prefix: [u8; PREFIX_LENGTH],
    /// CRC32C, so that what the disk damages is never served.
    checksum: u32,
    home: Mutex<Home>,
}

enum Home {
    Memory(Bytes),
    File(Arc<dyn SnapshotFile>, u64),
}

/// A value, wherever it was.
pub(crate) enum Value<'v> {
    /// The value in its version's allocation.
    Packed(&'v [u8]),
    /// Read back, or shared.
    Large(Bytes),
}

impl Deref for Value<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Value::Packed(bytes) => bytes,
            Value::Large(bytes) => bytes,
        }
    }
}

impl Large {
    /// A large value in memory. The buffer is held, and with it what else stands in it.
    ///
    /// # Panics
    /// When it has 4 GiB, which no request has.
    pub(crate) fn in_memory(bytes: Bytes) -> Arc<Large> {
        Arc::new(Large::of(&bytes.clone(), Home::Memory(bytes)))
    }

    /// A large value on file, equal to `bytes`, which were just read from there, and are not kept.
    pub(crate) fn on_file(bytes: &[u8], file: Arc<dyn SnapshotFile>, offset: u64) -> Arc<Large> {
        Arc::new(Large::of(bytes, Home::File(file, offset)))
    }

    fn of(bytes: &[u8], home: Home) -> Large {
        let mut prefix = [0; PREFIX_LENGTH];
        prefix.copy_from_slice(&bytes[..PREFIX_LENGTH]);
        let length =
            u32::try_from(bytes.len()).expect("a request, and a block of a snapshot, is far smaller than 4 GiB");
        Large { length, prefix, checksum: crc32c::crc32c(bytes), home: Mutex::new(home) }
    }

    /// From now on it is read from there.
    pub(crate) fn move_to(&self, file: Arc<dyn SnapshotFile>, offset: u64) {
        let before = std::mem::replace(&mut *self.home(), Home::File(file, offset));
        // Freed without the lock.
        drop(before);
    }

    /// Length of the value, in bytes.
    pub(crate) fn length(&self) -> usize {
        self.length as usize
    }

    /// Whether reading it asks the disk.
    pub(crate) fn is_on_file(&self) -> bool {
        matches!(*self.home(), Home::File(..))
    }

    /// Whether it is `target`. Asks the disk only where length and checksum are those of `target`.
    pub(crate) fn is(&self, target: &[u8]) -> bool {
        !self.surely_differs(target) && self.bytes() == target
    }

    /// Compares the value with `target`. Asks the disk only where the beginning of both is the same.
    pub(crate) fn compare(&self, target: &[u8]) -> Ordering {
        self.compare_beginning(target).unwrap_or_else(|| (*self.bytes()).cmp(target))
    }

    /// Whether [`Large::is`], or else [`Large::compare`], needs its bytes, wherever they are.
    pub(crate) fn needs_bytes_for(&self, target: &[u8], is_equality: bool) -> bool {
        !if is_equality { self.surely_differs(target) } else { self.compare_beginning(target).is_some() }
    }

    fn surely_differs(&self, target: &[u8]) -> bool {
        target.len() != self.length()
            || self.prefix != target[..PREFIX_LENGTH]
            || self.checksum != crc32c::crc32c(target)
    }

    fn compare_beginning(&self, target: &[u8]) -> Option<Ordering> {
        let beginning = &target[..target.len().min(PREFIX_LENGTH)];
        match self.prefix[..beginning.len()].cmp(beginning) {
            // A target that is no longer than the beginning is shorter than this.
            Ordering::Equal => (target.len() <= PREFIX_LENGTH).then_some(Ordering::Greater),
            decided => Some(decided),
        }
    }

    /// Compares two large values.
    pub(crate) fn compare_with(&self, other: &Large) -> Ordering {
        self.prefix.cmp(&other.prefix).then_with(|| self.bytes().cmp(&other.bytes()))
    }

    /// Bytes of the value, from memory or from disk.
    ///
    /// # Panics
    /// When the disk does not give back what was written: see above.
    pub(crate) fn bytes(&self) -> Bytes {
        let (file, offset) = match &*self.home() {
            Home::Memory(bytes) => return bytes.clone(),
            Home::File(file, offset) => (file.clone(), *offset),
        };
        let length = self.length;
        match file.read(offset, self.length()) {
            Ok(bytes) if crc32c::crc32c(&bytes) == self.checksum => bytes,
            Ok(_) => panic!(
                "{file:?}: the {length} bytes at offset {offset} are not the value that was written there; the disk has \
                 damaged it: move the data directory away and let this node rejoin as a new member"
            ),
            Err(error) => panic!("{file:?}: the value of {length} bytes at offset {offset} cannot be read: {error}"),
        }
    }

    fn home(&self) -> MutexGuard<'_, Home> {
        // Nothing is done under it that could leave it half done.
        self.home.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for Large {
    fn eq(&self, other: &Large) -> bool {
        (self.length, self.checksum) == (other.length, other.checksum) && self.bytes() == other.bytes()
    }
}

impl Eq for Large {}

impl Hash for Large {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.length, self.checksum).hash(state);
    }
}

impl std::fmt::Debug for Large {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} bytes (checksum {:08x})", self.length, self.checksum)
    }
}
