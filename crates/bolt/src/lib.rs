//! bbolt database files, the format of etcd's snapshots: read from any source, and written in one pass.
//!
//! ```text
//!   page 0  meta      root of the buckets, number of pages, checksum
//!   page 1  meta      an older or equal one: whichever is valid and newer counts
//!   page 2  freelist  empty, when written here
//!   page 3  leaf and branch pages, in the order in which they are filled
//! ```
//!
//! Source: bbolt 1.3, `page.go`, `bucket.go`, `db.go`. The numbers of a file are those of the machine that wrote it; only
//! little-endian files are read.
//!
//! [`Database`] walks the buckets of a file page by page and trusts nothing that it reads: each page is visited once, no length is
//! believed beyond the bytes that are there, and keys must ascend. [`Writer`] needs no more memory than a page for each level of
//! the tree: it is run twice over the same entries, first to count pages, then to write them.
//!
//! Deliberately absent: transactions, changes in place, nested buckets other than those of the root, and the list of free pages.
//!
//! A file is trusted in nothing:
//!
//! ```
//! use hustings_bolt::Database;
//!
//! let garbage = bytes::Bytes::from(vec![7; 8_192]);
//! assert!(Database::open(garbage, 8_192).is_err());
//! ```
//!
//! Read on in the order of the modules.

mod page;

mod error;

mod source;

pub mod read;

pub mod write;

pub use error::BoltError;
pub use read::{Database, Entries};
pub use source::Source;
pub use write::{Layout, Writer};

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
