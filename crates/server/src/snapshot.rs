//! A snapshot as a file: what `Maintenance.Snapshot` streams, and how to read it back.
//!
//! ```text
//!   head (512)  body  zeros to a multiple of 512  SHA-256 of everything before (32)
//!
//!   head: magic (8)  format (4)  zero (4)  cluster (8)  member (8)  term (8)  index (8)  revision (8)  body bytes (8)  zeros
//! ```
//!
//! Numbers are little-endian; the body is the store's own encoding. The length is 32 more than a multiple of 512: by that
//! `etcdctl snapshot save` knows that a digest stands at the end.
//!
//! Read next: [`crate::maintenance`].

use bytes::{Buf, BufMut, Bytes, BytesMut};
use sha2::{Digest, Sha256};

const MAGIC: &[u8; 8] = b"hust-snp";
const FORMAT: u32 = 1;
const BLOCK_BYTES: usize = 512;
const DIGEST_BYTES: usize = 32;

/// What a snapshot is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotHead {
    /// The cluster.
    pub cluster_id: u64,
    /// The member that made it.
    pub member_id: u64,
    /// The term of the last entry in it.
    pub term: u64,
    /// The index of the last entry in it.
    pub index: u64,
    /// The store's revision.
    pub revision: i64,
    /// The length of the store's encoding.
    pub body_bytes: u64,
}

/// Bytes that are no snapshot.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SnapshotFileError {
    /// Too short, or of another kind.
    #[error("this is no snapshot of Hustings: it does not begin as one")]
    NotASnapshot,
    /// Made by a newer version.
    #[error("the snapshot has format {0}, and this program reads up to format {FORMAT}: use a newer one")]
    NewerFormat(u32),
    /// Cut off, or with something behind.
    #[error("the snapshot has {found} bytes where its head says {expected}: it was not copied whole")]
    Length {
        /// How many there are.
        found: u64,
        /// How many there should be.
        expected: u64,
    },
    /// Changed since it was made.
    #[error("the snapshot's digest does not match its bytes: it was damaged on the way")]
    Digest,
}

impl SnapshotHead {
    /// The length of the whole file, in bytes.
    pub fn file_bytes(&self) -> u64 {
        BLOCK_BYTES as u64 + self.body_bytes + self.padding_bytes() + DIGEST_BYTES as u64
    }

    fn padding_bytes(&self) -> u64 {
        self.body_bytes.next_multiple_of(BLOCK_BYTES as u64) - self.body_bytes
    }

    fn encode(&self) -> Bytes {
        let mut head = BytesMut::with_capacity(BLOCK_BYTES);
        head.put_slice(MAGIC);
        head.put_u32_le(FORMAT);
        head.put_u32_le(0);
        for number in [self.cluster_id, self.member_id, self.term, self.index] {
            head.put_u64_le(number);
        }
        head.put_i64_le(self.revision);
        head.put_u64_le(self.body_bytes);
        head.put_bytes(0, BLOCK_BYTES - head.len());
        head.freeze()
    }
}

/// Writes a snapshot, a part at a time.
pub(crate) struct SnapshotWriter {
    head: SnapshotHead,
    digest: Sha256,
}

impl SnapshotWriter {
    /// Begins a snapshot; the first part comes back.
    pub(crate) fn begin(head: SnapshotHead) -> (SnapshotWriter, Bytes) {
        let part = head.encode();
        let mut digest = Sha256::new();
        digest.update(&part);
        (SnapshotWriter { head, digest }, part)
    }

    /// Takes note of a part of the body.
    pub(crate) fn on_body(&mut self, part: &[u8]) {
        self.digest.update(part);
    }

    /// The last part.
    pub(crate) fn end(mut self) -> Bytes {
        let mut part = BytesMut::zeroed(self.head.padding_bytes() as usize);
        self.digest.update(&part);
        part.put_slice(&self.digest.finalize());
        part.freeze()
    }
}

/// Reads a snapshot file: what it is of, and the store's encoding.
///
/// # Errors
/// When it is none, is not whole, or was changed.
pub fn read_snapshot(file: &Bytes) -> Result<(SnapshotHead, Bytes), SnapshotFileError> {
    let mut head = file.get(..BLOCK_BYTES).ok_or(SnapshotFileError::NotASnapshot)?;
    if head.copy_to_bytes(MAGIC.len()) != MAGIC[..] {
        return Err(SnapshotFileError::NotASnapshot);
    }
    let format = head.get_u32_le();
    if format > FORMAT {
        return Err(SnapshotFileError::NewerFormat(format));
    }
    head.advance(4);
    let head = SnapshotHead {
        cluster_id: head.get_u64_le(),
        member_id: head.get_u64_le(),
        term: head.get_u64_le(),
        index: head.get_u64_le(),
        revision: head.get_i64_le(),
        body_bytes: head.get_u64_le(),
    };
    let found = file.len() as u64;
    // A length that no file has must not be reckoned with.
    let expected = if head.body_bytes > found { u64::MAX } else { head.file_bytes() };
    if found != expected {
        return Err(SnapshotFileError::Length { found, expected });
    }
    let (content, digest) = file.split_at(file.len() - DIGEST_BYTES);
    if Sha256::digest(content)[..] != *digest {
        return Err(SnapshotFileError::Digest);
    }
    Ok((head, file.slice(BLOCK_BYTES..BLOCK_BYTES + head.body_bytes as usize)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(body: &[u8]) -> (SnapshotHead, Bytes) {
        let head =
            SnapshotHead { cluster_id: 1, member_id: 2, term: 3, index: 4, revision: 5, body_bytes: body.len() as u64 };
        let (mut writer, first) = SnapshotWriter::begin(head);
        let mut file = BytesMut::from(&first[..]);
        writer.on_body(body);
        file.put_slice(body);
        file.put_slice(&writer.end());
        (head, file.freeze())
    }

    proptest! {
        /// Goal: what is written is read, and its length is what etcdctl looks for.
        #[test]
        fn a_snapshot_is_read_back(body in proptest::collection::vec(any::<u8>(), 0..2_000)) {
            let (head, file) = file(&body);
            prop_assert_eq!(file.len() % 512, 32);
            prop_assert_eq!(file.len() as u64, head.file_bytes());
            prop_assert_eq!(read_snapshot(&file), Ok((head, Bytes::from(body))));
        }

        /// Goal: no byte can change, and none can be missing, without being noticed; garbage is refused.
        #[test]
        fn a_damaged_snapshot_is_refused(body in proptest::collection::vec(any::<u8>(), 0..600), place: prop::sample::Index, garbage in proptest::collection::vec(any::<u8>(), 0..1_200)) {
            let (_, whole) = file(&body);
            let mut damaged = whole.to_vec();
            damaged[place.index(whole.len())] ^= 1;
            prop_assert!(read_snapshot(&damaged.into()).is_err());
            prop_assert!(read_snapshot(&whole.slice(..place.index(whole.len()))).is_err());
            prop_assert!(read_snapshot(&garbage.into()).is_err());
        }
    }
}
