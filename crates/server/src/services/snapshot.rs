//! A snapshot as a file: what `Maintenance.Snapshot` streams, and how to read it back.
//!
//! It is a database of bbolt with etcd 3.5's buckets, closed by its SHA-256, as etcd's own: `etcdctl snapshot status` and
//! `etcdutl snapshot restore` read it, and a snapshot of etcd is read here.
//!
//! ```text
//!   alarm auth authRoles authUsers cluster key lease members members_removed meta     as in etcd
//!   hustings                                                                          what etcd has no place for
//!   SHA-256 of everything before (32)
//! ```
//!
//! The keys stand once, in `key`. The bucket `hustings`, which etcd passes over, has the rest of the state in the store's own
//! encoding (the log's clock, the ends of leases, the revisions of users) and a digest of all other buckets. Where etcd went on from
//! such a file the digest does not fit any more, and the file is etcd's.
//!
//! Files of the first format ([`first_format`]) are still read.
//!
//! Read next: [`schema`], [`write`], [`read`], [`crate::services::maintenance`].

use std::io;

use bytes::Bytes;
use hustings_bolt::{BoltError, Database, Source};
use hustings_core::wire::NUMBER_MAX;
use hustings_core::{SnapshotError, Term};
use hustings_kv::KvStore;
use sha2::{Digest, Sha256};

mod first_format;
mod read;
mod schema;
pub(crate) mod write;

const BLOCK_BYTES: u64 = 512;
const DIGEST_BYTES: u64 = 32;

/// Bytes of a file that are hashed at once.
const PART_BYTES: u64 = 256 << 10;

/// Limit of a file's index: what a log counts from there on stays below what any member reads.
const INDEX_MAX: u64 = NUMBER_MAX / 2;

/// Whether a file must end with the digest of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DigestCheck {
    /// It must, and the digest must fit.
    Required,
    /// It need not, and the digest is not looked at: a file copied out of a data directory of etcd has none.
    Skipped,
}

/// The maker of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A member of a cluster of Hustings.
    Hustings {
        /// Id of the cluster.
        cluster_id: u64,
        /// Id of the member.
        member_id: u64,
    },
    /// A member of an etcd cluster.
    Etcd {
        /// Its cluster's version; empty when the file does not say.
        version: String,
    },
}

/// A snapshot that was read and found whole.
#[derive(Debug)]
pub struct Snapshot {
    /// The maker of the snapshot.
    pub origin: Origin,
    /// The term of the last entry in it.
    pub term: u64,
    /// The index of the last entry in it.
    pub index: u64,
    /// The store that the snapshot holds.
    pub store: KvStore,
    /// The length of the file, bytes.
    pub file_bytes: u64,
    /// SHA-256 of the whole file.
    pub digest: [u8; 32],
    /// Notes for the person who restores it.
    pub notes: Vec<String>,
}

/// Bytes that are no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotFileError {
    /// A file of another kind.
    #[error("this is no snapshot of Hustings or etcd: it does not begin as one")]
    NotASnapshot,
    /// Made by a newer version.
    #[error("the snapshot has format {found}, and this program reads up to format {known}: use a newer one")]
    NewerFormat {
        /// Format of the file.
        found: u32,
        /// The last one that is known.
        known: u32,
    },
    /// Made by a version of etcd that nobody has tried.
    #[error(
        "the snapshot is one of etcd with storage version {0:?}, and those of 3.5 to 3.7 are read here: copy the keys and leases of \
         the running etcd with `hustings import --from-etcd`, or update hustings"
    )]
    StorageVersion(String),
    /// Cut off, or with something behind.
    #[error("the snapshot has {found} bytes where its head says {expected}: it was not copied whole")]
    Length {
        /// Number that the file has.
        found: u64,
        /// Number that it should have.
        expected: u64,
    },
    /// A database that is not closed by a digest.
    #[error(
        "the snapshot has no SHA-256 at its end: it was not copied whole: take another copy; only a file out of a data directory of etcd \
         (member/snap/db) has none, and is read with --skip-hash-check"
    )]
    NoDigest,
    /// Changed since it was made.
    #[error("the snapshot's digest does not match its bytes: it was damaged on the way; take another copy")]
    Digest,
    /// Pages that are damaged.
    #[error(transparent)]
    Bolt(#[from] BoltError),
    /// Contents that are none of etcd's, or contradict each other.
    #[error("the snapshot is damaged in the bucket {bucket:?}, key {key}: {what}; take another copy")]
    Entry {
        /// Name of the bucket.
        bucket: &'static str,
        /// The entry's key, printable.
        key: String,
        /// The damage, in words.
        what: String,
    },
    /// A state that cannot be.
    #[error("the snapshot's state is damaged: {0}; take another copy")]
    State(SnapshotError),
    /// It cannot be read.
    #[error("the snapshot cannot be read: {0}")]
    Io(io::Error),
}

impl From<SnapshotError> for SnapshotFileError {
    fn from(error: SnapshotError) -> SnapshotFileError {
        SnapshotFileError::State(error)
    }
}

impl From<io::Error> for SnapshotFileError {
    fn from(error: io::Error) -> SnapshotFileError {
        SnapshotFileError::Io(error)
    }
}

/// Reads a snapshot of Hustings or etcd that takes the first `length` bytes of a source: a part at a time, so that little more
/// memory is needed than the state takes.
///
/// # Errors
/// When the file is no snapshot, is cut off, or was changed.
pub fn read_snapshot(source: &impl Source, length: u64, check: DigestCheck) -> Result<Snapshot, SnapshotFileError> {
    if first_format::is_one(source, length)? {
        return first_format::read(source, length);
    }
    let has_digest = length % BLOCK_BYTES == DIGEST_BYTES;
    let contents = if has_digest { length - DIGEST_BYTES } else { length };
    let database = match Database::open(source, contents) {
        Ok(database) => Ok(database),
        Err(BoltError::NotADatabase) => return Err(SnapshotFileError::NotASnapshot),
        Err(error @ BoltError::Version(_)) => return Err(error.into()),
        Err(error) => Err(error),
    };
    // Before what the pages say: where bytes were lost, that they were is what has to be said.
    if check == DigestCheck::Required && !has_digest {
        return Err(match database {
            Err(error @ BoltError::CutOff { .. }) => error.into(),
            _ => SnapshotFileError::NoDigest,
        });
    }
    let (of_contents, digest) = hash(source, contents, length)?;
    if check == DigestCheck::Required {
        let mut told = [0; DIGEST_BYTES as usize];
        source.read_at(contents, &mut told)?;
        if told != of_contents {
            return Err(SnapshotFileError::Digest);
        }
    }
    let loaded = read::load(&database?)?;
    let read::Loaded { origin, term, index, store, mut notes } = loaded;
    if !has_digest && matches!(origin, Origin::Etcd { .. }) {
        notes.push(
            "a file out of a data directory lacks what stands in etcd's log alone: if that etcd did not end by itself, start \
             it again and save a snapshot"
                .to_owned(),
        );
    }
    in_range(term, index)?;
    Ok(Snapshot { origin, term, index, store, file_bytes: length, digest, notes })
}

/// Refuses numbers that a new cluster could not go on from: a member that is added begins at no term, and follows no higher one.
fn in_range(term: u64, index: u64) -> Result<(), SnapshotFileError> {
    if Term::ZERO.may_follow(Term(term)) && index <= INDEX_MAX {
        return Ok(());
    }
    let what = format!("the place {term}:{index} in a log is out of range");
    Err(SnapshotFileError::State(SnapshotError { what }))
}

/// SHA-256 of the first `contents` bytes, and of all of them.
fn hash(source: &impl Source, contents: u64, length: u64) -> Result<([u8; 32], [u8; 32]), SnapshotFileError> {
    let mut digest = Sha256::new();
    let mut of_contents = [0; 32];
    let mut part = vec![0; PART_BYTES.min(length) as usize];
    let mut offset = 0;
    for end in [contents, length] {
        while offset < end {
            let bytes = (end - offset).min(PART_BYTES) as usize;
            source.read_at(offset, &mut part[..bytes])?;
            digest.update(&part[..bytes]);
            offset += bytes as u64;
        }
        if end == contents {
            of_contents = digest.clone().finalize().into();
        }
    }
    Ok((of_contents, digest.finalize().into()))
}

/// Bytes of a source as one piece.
fn whole(source: &impl Source, length: u64) -> Result<Bytes, SnapshotFileError> {
    let length = usize::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    let mut bytes = vec![0; length];
    source.read_at(0, &mut bytes)?;
    Ok(bytes.into())
}

#[cfg(test)]
mod stories;
