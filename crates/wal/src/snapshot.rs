//! Snapshots as files: [`SnapshotStore`].
//!
//! A snapshot is written to a temporary file, closed with a trailer, synced and renamed, and the directory is synced; only then
//! may a record refer to it. So a name that ends in `.snap` is a whole snapshot or damage, and never a part of one (ST-16).
//!
//! The name carries the digest besides the place: a snapshot fetched from a peer never takes the name of one that was cut here.
//!
//! Read next: [`crate::snapshot_file`].

use crate::disk::Disk;
use crate::error::WalError;
use crate::snapshot_file::{Held, OpenSnapshot, SnapshotReader, SnapshotWriter, name, parse_name};
use bytes::Bytes;
use hustings_core::{Lsn, Membership, SnapshotFile, SnapshotReference};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const FETCHED: &str = "snapshot-fetched.tmp";

/// The name of a snapshot that is being cut.
fn temporary(lsn: Lsn) -> String {
    format!("snapshot-{:016x}-{:016x}.tmp", lsn.term.0, lsn.index)
}

/// The result of storing a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// The chunk is stored; more are to come.
    More,
    /// It was the last chunk; the snapshot is complete, verified and durable.
    Complete,
    /// The bytes that arrived are not the snapshot; all of them are forgotten.
    Corrupt,
}

/// The snapshots of one directory.
pub struct SnapshotStore {
    disk: Arc<dyn Disk>,
    fetch: Mutex<Option<(SnapshotReference, SnapshotWriter)>>,
}

impl std::fmt::Debug for SnapshotStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "snapshots at {}", self.disk.location(""))
    }
}

impl SnapshotStore {
    /// Opens the store and removes files that a crash left unfinished.
    ///
    /// # Errors
    /// The disk refuses something.
    pub fn open(disk: Arc<dyn Disk>) -> Result<SnapshotStore, WalError> {
        let store = SnapshotStore { disk, fetch: Mutex::new(None) };
        for name in store.list()? {
            if name.starts_with("snapshot-") && name.ends_with(".tmp") {
                store.disk.remove(&name).map_err(store.io("removing", &name, None))?;
            }
        }
        Ok(store)
    }

    /// The store of a directory that is not to be changed: what a crash left unfinished stays.
    pub(crate) fn for_reading(disk: Arc<dyn Disk>) -> SnapshotStore {
        SnapshotStore { disk, fetch: Mutex::new(None) }
    }

    /// Begins a snapshot that is cut here.
    ///
    /// # Errors
    /// The disk refuses something.
    pub fn writer(&self, lsn: Lsn, membership: Arc<Membership>) -> Result<SnapshotWriter, WalError> {
        SnapshotWriter::begin(self.disk.clone(), temporary(lsn), lsn, membership)
    }

    /// Removes what was written of a snapshot that was begun here and could not be finished, for want of room (ST-10).
    ///
    /// # Errors
    /// The disk refuses something.
    pub fn discard(&self, lsn: Lsn) -> Result<(), WalError> {
        let name = temporary(lsn);
        match self.disk.remove(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.io("removing", &name, None)(error)),
            _ => Ok(()),
        }
    }

    /// Stores the next chunk of a snapshot that is fetched from a peer; chunks arrive in order, the one at offset 0 begins it.
    ///
    /// # Errors
    /// The disk refuses something. Chunks that do not fit are [`Stored::Corrupt`], not errors: they are a peer's doing.
    pub fn store_chunk(&self, reference: &SnapshotReference, offset: u64, bytes: &[u8]) -> Result<Stored, WalError> {
        let stored = self.take_chunk(reference, offset, bytes);
        if !matches!(stored, Ok(Stored::More | Stored::Complete)) {
            // The part of it that was written takes room that others need more. One that cannot be removed goes at the next start.
            let _ = self.disk.remove(FETCHED);
        }
        stored
    }

    fn take_chunk(&self, reference: &SnapshotReference, offset: u64, bytes: &[u8]) -> Result<Stored, WalError> {
        let mut fetch = self.fetch();
        if offset == 0 {
            *fetch = None;
            let (disk, membership) = (self.disk.clone(), reference.membership.clone());
            let writer = SnapshotWriter::begin(disk, FETCHED.into(), reference.lsn, membership)?;
            *fetch = Some((reference.clone(), writer));
        }
        // Taken out: whatever fails below, the rest of this snapshot is not wanted any more.
        let Some((expected, mut writer)) = fetch.take() else { return Ok(Stored::Corrupt) };
        let end = offset.saturating_add(bytes.len() as u64);
        if expected != *reference || writer.bytes() != offset || end > reference.bytes {
            return Ok(Stored::Corrupt);
        }
        writer.write(bytes)?;
        if end < reference.bytes {
            *fetch = Some((expected, writer));
            return Ok(Stored::More);
        }
        if writer.digest() != reference.digest {
            return Ok(Stored::Corrupt);
        }
        writer.finish()?;
        Ok(Stored::Complete)
    }

    /// Up to `bytes_max` bytes of a snapshot from `offset` on, for a peer that fetches it; `None` when it is not held any more.
    /// The peer verifies the whole by its digest.
    ///
    /// # Errors
    /// Damage to the file's frame, or whatever the disk refuses.
    pub fn read_chunk(&self, lsn: Lsn, digest: u32, offset: u64, bytes_max: usize) -> Result<Option<Bytes>, WalError> {
        let Some(held) = self.held(lsn, digest)?.filter(|held| offset < held.reference.bytes) else {
            // Not held any more, or a place that it does not have: the asking peer begins again.
            return Ok(None);
        };
        let count = held.reference.bytes.saturating_sub(offset).min(bytes_max as u64);
        let mut bytes = vec![0; count as usize];
        held.read(&*self.disk, offset, &mut bytes)?;
        Ok(Some(bytes.into()))
    }

    /// Reads all of a snapshot and compares its digest; one that is not held any more has none.
    ///
    /// # Errors
    /// [`WalError::Damaged`], or whatever the disk refuses.
    pub fn verify(&self, lsn: Lsn, digest: u32) -> Result<(), WalError> {
        self.held(lsn, digest)?.map_or(Ok(()), |held| held.verify(&*self.disk))
    }

    /// Whether this is the newest one that is held, as far as names can be read: the one that peers are offered.
    pub fn is_newest(&self, lsn: Lsn, digest: u32) -> bool {
        self.names().is_ok_and(|names| names.last() == Some(&(lsn, digest)))
    }

    /// All bytes of a snapshot, verified.
    ///
    /// # Errors
    /// [`WalError::Missing`], [`WalError::Damaged`], or whatever the disk refuses.
    pub fn load(&self, reference: &SnapshotReference) -> Result<Bytes, WalError> {
        let held = self.held_as(reference)?;
        let mut bytes = vec![0; reference.bytes as usize];
        held.read(&*self.disk, 0, &mut bytes)?;
        held.check_digest(&*self.disk, crc32c::crc32c(&bytes))?;
        Ok(bytes.into())
    }

    /// The bytes of a snapshot as a stream, which is read once: whether they are what was written is known when
    /// [`SnapshotReader::finish`] has said so, and what was made of them before that is worth nothing if it did not.
    ///
    /// # Errors
    /// [`WalError::Missing`], damage to the file's frame, or whatever the disk refuses.
    pub fn stream(&self, reference: &SnapshotReference) -> Result<SnapshotReader, WalError> {
        SnapshotReader::begin(self.disk.clone(), self.held_as(reference)?)
    }

    /// The same, verified before the first byte is handed out, which reads it twice.
    ///
    /// # Errors
    /// [`WalError::Missing`], [`WalError::Damaged`], or whatever the disk refuses.
    pub fn reader(&self, reference: &SnapshotReference) -> Result<SnapshotReader, WalError> {
        let held = self.held_as(reference)?;
        held.verify(&*self.disk)?;
        SnapshotReader::begin(self.disk.clone(), held)
    }

    /// The file of a snapshot, to be read from as long as it is held: also when it is removed here, and its room in the directory
    /// is free only when nobody holds it any more.
    ///
    /// # Errors
    /// [`WalError::Missing`], [`WalError::Damaged`], or whatever the disk refuses.
    pub fn file(&self, reference: &SnapshotReference) -> Result<Arc<dyn SnapshotFile>, WalError> {
        let held = self.held_as(reference)?;
        Ok(Arc::new(OpenSnapshot { disk: self.disk.clone(), held }))
    }

    /// Removes snapshots but the `count` newest, `needed`, and those above it.
    ///
    /// # Errors
    /// The disk refuses something.
    pub fn keep_newest(&self, count: usize, needed: &SnapshotReference) -> Result<(), WalError> {
        self.keep_newest_and(count, needed, &|_, _| false)
    }

    /// As [`SnapshotStore::keep_newest`], and keeps those that are pinned, by place and digest.
    ///
    /// # Errors
    /// The disk refuses something.
    pub fn keep_newest_and(
        &self,
        count: usize,
        needed: &SnapshotReference,
        is_pinned: &dyn Fn(Lsn, u32) -> bool,
    ) -> Result<(), WalError> {
        let mut held: Vec<_> = self.list()?.into_iter().filter_map(|name| Some((parse_name(&name)?, name))).collect();
        held.sort_by_key(|((lsn, _), _)| std::cmp::Reverse((lsn.index, lsn.term)));
        let unneeded = held.into_iter().skip(count).filter(|((lsn, digest), _)| {
            let is_needed = lsn.index > needed.lsn.index || (*lsn, *digest) == (needed.lsn, needed.digest);
            !is_needed && !is_pinned(*lsn, *digest)
        });
        let mut is_changed = false;
        for (_, name) in unneeded {
            self.disk.remove(&name).map_err(self.io("removing", &name, None))?;
            is_changed = true;
        }
        if is_changed {
            self.disk.sync_directory().map_err(self.io("syncing the directory", "", None))?;
        }
        Ok(())
    }

    /// The snapshots held, newest last, by what their names say.
    ///
    /// # Errors
    /// The disk refuses something.
    pub fn names(&self) -> Result<Vec<(Lsn, u32)>, WalError> {
        let mut held: Vec<_> = self.list()?.iter().filter_map(|name| parse_name(name)).collect();
        held.sort_by_key(|(lsn, _)| (lsn.index, lsn.term));
        Ok(held)
    }

    fn fetch(&self) -> MutexGuard<'_, Option<(SnapshotReference, SnapshotWriter)>> {
        // A panic while storing ends the process; should a host go on, the chunks in order decide, not the lock.
        self.fetch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list(&self) -> Result<Vec<String>, WalError> {
        self.disk.list().map_err(self.io("listing", "", None))
    }

    fn io(&self, action: &'static str, name: &str, offset: Option<u64>) -> impl FnOnce(io::Error) -> WalError {
        let location = self.disk.location(name);
        move |source| WalError::io(action, location, offset, source)
    }

    fn held(&self, lsn: Lsn, digest: u32) -> Result<Option<Held>, WalError> {
        let name = name(lsn, digest);
        let file = match self.disk.open(&name) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(self.io("opening", &name, None)(source)),
        };
        Held::read_frame(&*self.disk, name, file).map(Some)
    }

    fn held_as(&self, reference: &SnapshotReference) -> Result<Held, WalError> {
        let name = name(reference.lsn, reference.digest);
        let what = || format!("the log refers to the snapshot through {}", reference.lsn);
        let held = self.held(reference.lsn, reference.digest)?;
        let held = held.ok_or_else(|| WalError::Missing { file: self.disk.location(&name), what: what() })?;
        if held.reference != *reference {
            return Err(WalError::damaged(
                self.disk.location(&name),
                0,
                "it is another snapshot than the log refers to",
            ));
        }
        Ok(held)
    }
}
