//! The faults of a database file.

use std::io;

/// The reason why a database cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BoltError {
    /// The source cannot be read there.
    #[error("reading {length} bytes at offset {offset}: {error}")]
    Io {
        /// Offset of the read, in bytes from the beginning.
        offset: u64,
        /// Number of bytes that were wanted.
        length: usize,
        /// Error of the source.
        error: io::Error,
    },
    /// Neither of the first two pages is a meta page.
    #[error("this is no bbolt database: neither of its first two pages describes one")]
    NotADatabase,
    /// Written by another bbolt.
    #[error("the bbolt database has version {0}, and version 2 is read here: save it with etcd 3.5")]
    Version(u32),
    /// Fewer bytes than its meta page says.
    #[error("the bbolt database has {found} bytes where its meta page says {expected}: it was not copied whole")]
    CutOff {
        /// Bytes that are there.
        found: u64,
        /// Bytes that there should be.
        expected: u64,
    },
    /// Contents that contradict each other.
    #[error("the bbolt database is damaged in page {page}: {what}; take another copy")]
    Damaged {
        /// Number of the page.
        page: u64,
        /// The fault in the page.
        what: &'static str,
    },
}
