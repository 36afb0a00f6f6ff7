//! What can be wrong with a database file.

use std::io;

/// Why a database cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BoltError {
    /// The source refuses.
    #[error("reading {length} bytes at offset {offset}: {source}")]
    Io {
        /// Where, in bytes from the beginning.
        offset: u64,
        /// How many.
        length: usize,
        /// Why.
        source: io::Error,
    },
    /// No meta page is one.
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
        /// The page.
        page: u64,
        /// What is wrong in it.
        what: &'static str,
    },
}
