//! The first format of snapshots, which is read and no longer written.
//!
//! ```text
//!   head (512)  body  zeros to a multiple of 512  SHA-256 of everything before (32)
//!
//!   head: magic (8)  format (4)  zero (4)  cluster (8)  member (8)  term (8)  index (8)  revision (8)  body bytes (8)  zeros
//! ```
//!
//! Numbers are little-endian; the body is the store's own encoding.

use bytes::Buf;
use hustings_bolt::Source;
use hustings_core::StateMachine;
use hustings_kv::KvStore;
use sha2::{Digest, Sha256};

use super::{BLOCK_BYTES, DIGEST_BYTES, Origin, Snapshot, SnapshotFileError, in_range, whole};

const MAGIC: &[u8; 8] = b"hust-snp";
const FORMAT: u32 = 1;

/// Whether a file begins as one of these.
pub(super) fn is_one(source: &impl Source, length: u64) -> Result<bool, SnapshotFileError> {
    let mut magic = [0; MAGIC.len()];
    if length < BLOCK_BYTES {
        return Ok(false);
    }
    source.read_at(0, &mut magic)?;
    Ok(magic == *MAGIC)
}

/// Reads a file that [`is_one`].
pub(super) fn read(source: &impl Source, length: u64) -> Result<Snapshot, SnapshotFileError> {
    let file = whole(source, length)?;
    let mut head = &file[MAGIC.len()..BLOCK_BYTES as usize];
    let format = head.get_u32_le();
    if format != FORMAT {
        return Err(SnapshotFileError::NewerFormat { found: format, known: FORMAT });
    }
    head.advance(4);
    let (cluster_id, member_id) = (head.get_u64_le(), head.get_u64_le());
    let (term, index) = (head.get_u64_le(), head.get_u64_le());
    let _revision = head.get_i64_le();
    let body_bytes = head.get_u64_le();
    // A length that no file has must not be reckoned with.
    let expected = match body_bytes > length {
        true => u64::MAX,
        false => BLOCK_BYTES + body_bytes.next_multiple_of(BLOCK_BYTES) + DIGEST_BYTES,
    };
    if length != expected {
        return Err(SnapshotFileError::Length { found: length, expected });
    }
    let (contents, digest) = file.split_at(file.len() - DIGEST_BYTES as usize);
    if Sha256::digest(contents)[..] != *digest {
        return Err(SnapshotFileError::Digest);
    }
    in_range(term, index)?;
    let mut body = file.slice(BLOCK_BYTES as usize..(BLOCK_BYTES + body_bytes) as usize);
    let store = KvStore::decode(&mut body)?;
    let digest = Sha256::digest(&file).into();
    let origin = Origin::Hustings { cluster_id, member_id };
    Ok(Snapshot { origin, term, index, store, file_bytes: length, digest, notes: Vec::new() })
}
