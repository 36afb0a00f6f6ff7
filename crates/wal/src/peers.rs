//! Files that a member keeps beside its log, about others and about itself: `peers`, `rolled-back` and `witness`.
//!
//! `peers` is how much of their logs other members have said to be durable. It is a memory, not a promise: it is written from
//! time to time, replaced whole, and one that cannot be read is as good as none. `rolled-back` stands in a directory that others
//! have refused because it lacks what its member had acknowledged; while it stands there nobody opens the log.
//!
//! ```text
//!   peers         prefix ("HUSTPEER") │ positions
//!   rolled-back   why, as text
//!   witness       empty: from its first start on this member holds no state (ADR 40)
//! ```

use crate::disk::Disk;
use crate::error::WalError;
use crate::meta::FORMAT;
use crate::prefix::{self, Prefix};
use bytes::{Bytes, BytesMut};
use hustings_core::replica::message::Position;
use std::io;

const PEERS: &str = "peers";
const PEERS_TEMPORARY: &str = "wal-peers.tmp";
pub(crate) const ROLLED_BACK: &str = "rolled-back";
const ROLLED_BACK_TEMPORARY: &str = "wal-rolled-back.tmp";
const WITNESS: &str = "witness";
const WITNESS_TEMPORARY: &str = "wal-witness.tmp";
const MAGIC: &[u8; 8] = b"HUSTPEER";
/// Far above what a thousand members take.
const BYTES_MAX: u64 = 1 << 20;

/// Reads the positions that were remembered of others; empty when the file is absent.
///
/// # Errors
/// The file cannot be read, or is damaged: the caller goes on without a memory.
pub fn read_positions(disk: &dyn Disk) -> Result<Vec<Position>, WalError> {
    let Some(mut bytes) = read(disk, PEERS)? else { return Ok(Vec::new()) };
    let damaged = |what: &str| WalError::damaged(disk.location(PEERS), 0, what);
    let prefix = Prefix::take(MAGIC, &mut bytes).ok_or_else(|| damaged("it does not begin as such a file does"))?;
    if prefix.length != bytes.len() || !prefix.agrees_with(&bytes) {
        return Err(damaged("its checksum does not agree"));
    }
    Position::decode_all(bytes).map_err(|error| damaged(&error.to_string()))
}

/// Remembers these positions, durably.
///
/// # Errors
/// Whatever the disk refuses; what was there before stays.
pub fn write_positions(disk: &dyn Disk, positions: &[Position]) -> Result<(), WalError> {
    let mut bytes = BytesMut::new();
    prefix::put(MAGIC, FORMAT, &Position::encode_all(positions), &mut bytes);
    write(disk, PEERS_TEMPORARY, PEERS, &bytes)
}

/// Nobody opens this directory's log any more, for this reason.
///
/// # Errors
/// The disk refuses something.
pub fn mark_rolled_back(disk: &dyn Disk, why: &str) -> Result<(), WalError> {
    write(disk, ROLLED_BACK_TEMPORARY, ROLLED_BACK, why.as_bytes())
}

/// The reason why others have refused the directory; `None` if they have not.
pub(crate) fn rolled_back(disk: &dyn Disk) -> Result<Option<String>, WalError> {
    Ok(read(disk, ROLLED_BACK)?.map(|why| String::from_utf8_lossy(&why).into_owned()))
}

/// This directory is a witness's, whatever memberships its log has and will have: one that joins is offered the state before it has
/// applied that it is a member, and one that was removed is named by no membership any more.
///
/// # Errors
/// The disk refuses something.
pub fn mark_witness(disk: &dyn Disk) -> Result<(), WalError> {
    write(disk, WITNESS_TEMPORARY, WITNESS, b"")
}

/// Whether this directory is a witness's.
///
/// # Errors
/// The mark cannot be read.
pub fn is_witness(disk: &dyn Disk) -> Result<bool, WalError> {
    Ok(read(disk, WITNESS)?.is_some())
}

/// Refuses a directory that others have refused.
pub(crate) fn check_rolled_back(disk: &dyn Disk) -> Result<(), WalError> {
    match rolled_back(disk)? {
        None => Ok(()),
        Some(why) => Err(WalError::RolledBack { directory: disk.location(""), why }),
    }
}

fn read(disk: &dyn Disk, name: &str) -> Result<Option<Bytes>, WalError> {
    let io = |source| WalError::io("reading", disk.location(name), None, source);
    let file = match disk.open(name) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(io(source)),
    };
    let length = file.len().map_err(io)?.min(BYTES_MAX);
    let mut bytes = vec![0; usize::try_from(length).expect("a megabyte fits")];
    let count = file.read_at(0, &mut bytes).map_err(io)?;
    bytes.truncate(count);
    Ok(Some(bytes.into()))
}

fn write(disk: &dyn Disk, temporary: &str, name: &str, bytes: &[u8]) -> Result<(), WalError> {
    let io = |source| WalError::io("writing", disk.location(name), None, source);
    let file = disk.create(temporary, 0).map_err(io)?;
    file.write_at(0, bytes).map_err(io)?;
    file.sync_data().map_err(io)?;
    disk.rename(temporary, name).map_err(io)?;
    disk.sync_directory().map_err(io)
}
