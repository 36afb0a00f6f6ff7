//! A node's disk: the production log and snapshot store, on a directory or in memory: [`Storage`].
//!
//! Memory is a [`SimulatedDisk`] without faults, so that a node runs the same code with and without a data directory.

use hustings_core::replica::ReplicaState;
use hustings_core::replica::SnapshotContents;
use hustings_core::{ClusterId, Lsn, Membership, NodeId, Record, SnapshotReference, StateMachine};
use hustings_wal::{Disk, Identity, Options, Preparation, RealDisk, Recovered, SimulatedDisk, SnapshotStore, Stored};
use hustings_wal::{Wal, WalError};
use std::path::PathBuf;
use std::sync::Arc;

/// A store of JSON values of a test run is small.
const SEGMENT_BYTES: u64 = 1 << 20;
const MEMORY_SEGMENT_BYTES: u64 = 64 << 10;
const CHUNK_BYTES: usize = 64 << 10;
const SNAPSHOTS_KEPT: usize = 3;

/// The place where a node keeps what it must not forget.
#[derive(Clone, Debug)]
pub enum Place {
    /// In memory: when the process ends, the node is gone and must not come back.
    Memory,
    /// In a directory of its own, named after the node, below this one.
    Below(PathBuf),
    /// On this disk, which a simulation owns.
    Simulated(SimulatedDisk),
}

/// An operation that the disk could not do; the node cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The log or the snapshot store refused.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// There is an earlier run's data, and nobody asked to go on with it.
    #[error("{0} holds the data of an earlier run: remove it, or give --resume to go on with it")]
    Stale(String),
    /// The directory would not stand below the given one.
    #[error("the node id {0:?} cannot name a directory")]
    Name(String),
    /// A snapshot is not what it should be.
    #[error("a snapshot cannot be used: {0}")]
    Snapshot(String),
}

/// The disk of a running node.
pub struct Storage {
    wal: Wal,
    snapshots: SnapshotStore,
}

impl Storage {
    /// Opens a node's disk; `may_resume` is whether an earlier life's data may be there (MP-2).
    ///
    /// # Errors
    /// When the place cannot be used or holds what it should not.
    pub fn open(
        place: &Place,
        name: &str,
        node: NodeId,
        cluster_id: ClusterId,
        protocol: &str,
        founding: &Membership,
        may_resume: bool,
    ) -> Result<(Storage, Recovered), StorageError> {
        let in_memory = |disk: SimulatedDisk| -> (Arc<dyn Disk>, Options) {
            let options = Options {
                segment_bytes: MEMORY_SEGMENT_BYTES,
                first_segment_bytes: MEMORY_SEGMENT_BYTES,
                preparation: Preparation::Inline,
                ..Options::default()
            };
            (Arc::new(disk), options)
        };
        let (disk, options) = match place {
            Place::Memory => in_memory(SimulatedDisk::new(0)),
            Place::Simulated(disk) => in_memory(disk.clone()),
            Place::Below(directory) => {
                let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
                if name.is_empty() || !name.chars().all(is_plain) {
                    return Err(StorageError::Name(name.into()));
                }
                let directory = directory.join(name);
                let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(&directory)?);
                let options =
                    Options { segment_bytes: SEGMENT_BYTES, first_segment_bytes: SEGMENT_BYTES, ..Options::default() };
                (disk, options)
            }
        };
        let location = disk.location("");
        let identity = Identity { cluster_id, node, protocol: protocol.into() };
        let is_used = disk.list().is_ok_and(|names| names.iter().any(|name| name == hustings_wal::meta::META));
        if is_used && !may_resume {
            return Err(StorageError::Stale(location));
        }
        let (wal, recovered) = Wal::open(disk.clone(), &identity, founding, options)?;
        let snapshots = SnapshotStore::open(disk)?;
        Ok((Storage { wal, snapshots }, recovered))
    }

    /// Hands a record over; it is written, not yet durable.
    pub fn append(&mut self, record: &Record) -> Result<(), StorageError> {
        Ok(self.wal.append(record)?)
    }

    /// Hands the operating system what was appended.
    pub fn write(&mut self) -> Result<(), StorageError> {
        Ok(self.wal.write()?)
    }

    /// Makes everything appended so far durable.
    pub fn sync(&mut self) -> Result<(), StorageError> {
        Ok(self.wal.sync()?)
    }

    /// Stores a snapshot of this node's state.
    pub fn cut<S: StateMachine>(&self, contents: &SnapshotContents<S>) -> Result<SnapshotReference, StorageError> {
        let mut writer = self.snapshots.writer(contents.lsn, contents.membership.clone())?;
        let mut result = Ok(());
        contents.encode(&mut |chunk| {
            if result.is_ok() {
                result = writer.write(&chunk);
            }
        });
        result?;
        let reference = writer.finish()?;
        self.snapshots.keep_newest(SNAPSHOTS_KEPT, &reference)?;
        Ok(reference)
    }

    /// Stores a chunk of a peer's snapshot; says when it is complete.
    pub fn store_chunk(
        &self,
        reference: &SnapshotReference,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Stored, StorageError> {
        Ok(self.snapshots.store_chunk(reference, offset, bytes)?)
    }

    /// A chunk for a peer; `None` when this snapshot is not held.
    pub fn read_chunk(&self, lsn: Lsn, digest: u32, offset: u64) -> Result<Option<bytes::Bytes>, StorageError> {
        Ok(self.snapshots.read_chunk(lsn, digest, offset, CHUNK_BYTES)?)
    }

    /// The state machine and the sessions inside a stored snapshot.
    pub fn load<S: StateMachine>(&self, reference: &SnapshotReference) -> Result<(S, ReplicaState), StorageError> {
        let mut bytes = self.snapshots.load(reference)?;
        SnapshotContents::decode(&mut bytes).map_err(|error| StorageError::Snapshot(error.to_string()))
    }
}
