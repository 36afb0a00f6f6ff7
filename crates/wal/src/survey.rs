//! A data directory that no node lives in, read without changing it: [`Survey`].
//!
//! For an operator who makes a new cluster of what is left of an old one. Unlike [`mod@crate::inspect`] it holds the
//! directory's lock, so that nobody begins to live there meanwhile, and refuses damage instead of going on behind it.
//! Unlike [`crate::Wal::open`] it writes nothing: no start is counted, no torn tail is zeroed, no leftover is removed.

use crate::disk::Disk;
use crate::error::WalError;
use crate::meta::{META, Meta, Peek};
use crate::peers;
use crate::real::RealDisk;
use crate::recovery;
use crate::segment;
use crate::snapshot::SnapshotStore;
use hustings_core::replica::message::Position;
use hustings_core::{ApplyVersion, Durable};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory of a member, read while it does not run. It is locked as long as this value lives.
#[derive(Debug)]
pub struct Survey {
    /// Path of the data directory.
    pub directory: PathBuf,
    /// The content of the file `meta`.
    pub peek: Peek,
    /// The fold of its records.
    pub durable: Durable,
    /// Number of batches in its log.
    pub batches: u64,
    /// Bytes of writes that were cut; they were never acknowledged.
    pub torn_bytes: u64,
    /// Positions of other members' logs, as they had said that they are durable. Empty also when the file cannot be read.
    pub positions: Vec<Position>,
    /// The reason why other members refused the directory: it lacks what its member had acknowledged. `None` if they did not.
    pub refused_by_others: Option<String>,
    /// Whether it is a witness's, which has the tail of a log and no state.
    pub is_witness: bool,
    disk: Arc<RealDisk>,
}

impl Survey {
    /// Reads a directory for a build that can apply entries by versions up to `can`; `None` when it is absent or holds no member.
    ///
    /// # Errors
    /// [`WalError::InUse`] while a process lives there, [`WalError::NewerRules`], damage to the log or to the snapshot that it
    /// names, and whatever the disk refuses.
    pub fn of(directory: &Path, can: ApplyVersion) -> Result<Option<Survey>, WalError> {
        let Some(disk) = RealDisk::open_unchanged(directory)? else { return Ok(None) };
        let Some(meta) = Meta::read(&disk)? else {
            let names = disk.list().map_err(|error| WalError::io("listing", disk.location(""), None, error))?;
            let orphan = names.iter().find(|name| segment::sequence(name).is_some() || name.ends_with(".snap"));
            let what = |orphan| format!("{} stands in the same directory and belongs to a node", disk.location(orphan));
            return orphan
                .map_or(Ok(None), |orphan| Err(WalError::Missing { file: disk.location(META), what: what(orphan) }));
        };
        if meta.boots == 0 {
            // Its creation was cut short: nothing was ever recorded.
            return Ok(None);
        }
        meta.check_version(&disk, can)?;
        let found = recovery::read(&disk, &meta)?;
        let survey = Survey {
            directory: directory.to_path_buf(),
            durable: found.durable,
            batches: found.last_batch,
            torn_bytes: found.torn_bytes,
            positions: peers::read_positions(&disk).unwrap_or_default(),
            refused_by_others: peers::rolled_back(&disk)?,
            is_witness: peers::is_witness(&disk)?,
            peek: meta.peek(),
            disk: Arc::new(disk),
        };
        if let Some(reference) = &survey.durable.snapshot {
            survey.snapshots().reader(reference)?;
        }
        Ok(Some(survey))
    }

    /// The directory's snapshots, for reading.
    pub fn snapshots(&self) -> SnapshotStore {
        SnapshotStore::for_reading(self.disk.clone())
    }
}
