//! The durable log and snapshot store of a node: segments of checksummed records above a narrow disk seam.
//!
//! A node hands its [`Record`](hustings_core::Record)s to one [`Wal`], which writes them in batches, one `fdatasync` each, and
//! folds them back into a [`Durable`](hustings_core::Durable) after a crash. Its rules come from ADR 31 and ADR 32:
//!
//! - A file consists of sectors of 512 bytes, each sealed with a checksum bound to its place ([`sector`]). After a crash every
//!   sector is valid, unwritten or damaged, and the three are told apart: the unwritten end a log, damage refuses it.
//! - Every batch names the last batch that was durable when it was written ([`batch`]). That batch must be there: if it
//!   is not, the log is damaged and the node refuses to start; it never cuts off what it once acknowledged.
//! - An error is never retried. The [`Wal`] is poisoned, the process ends, and recovery rewrites what nobody attested.
//! - A segment begins with everything but entries restated, so that the segments below a snapshot can go ([`wal`]).
//!
//! ```text
//!   meta                       who this directory belongs to, its storage incarnation, how often it was opened
//!   wal-0000000000000007.seg   a segment: header page, attestations, batches of sealed sectors, zeros to the end
//!   snapshot-T-I-DIGEST.snap   a snapshot
//!   peers                      how much of their logs other members have said to be durable
//!   reserve                    nothing: room for the next start, should the disk be full by then
//!   rolled-back                others refused this directory: it lacks what its member has acknowledged
//!   forced-new-cluster         `--force-new-cluster` made this directory, of the cluster that it names
//!   *.tmp                      unfinished; removed at the next start
//!   LOCK                       held by the process that lives here
//! ```
//!
//! It deliberately keeps no index of entries (they live in memory since the last snapshot), it never maps
//! files into memory, and it does not repair: a damaged directory is refused and its node rejoins from its peers.
//!
//! A promise is kept from the moment at which it was synced, and a crash may take what was not:
//!
//! ```
//! use hustings_core::{ClusterId, Membership, NodeId, Promise, Record, Term};
//! use hustings_wal::{Identity, Options, SimulatedDisk, Wal};
//! use std::sync::Arc;
//!
//! let disk = Arc::new(SimulatedDisk::new(1));
//! let identity = Identity { cluster_id: ClusterId(1), node: NodeId(1), protocol: "raft".into() };
//! let founding = Membership::of_voters([NodeId(1)]);
//! let open = || Wal::open(disk.clone(), &identity, &founding, Options::default());
//!
//! let (mut wal, recovered) = open()?;
//! assert_eq!(recovered.durable.promise.term, Term::ZERO);
//! wal.append(&Record::Promise(Promise::vote(Term(3), NodeId(1))))?;
//! wal.sync()?;
//! // Never synced: nobody may have been told of it.
//! wal.append(&Record::Promise(Promise::vote(Term(4), NodeId(1))))?;
//! drop(wal);
//! let (_, recovered) = open()?;
//! assert_eq!(recovered.durable.promise.term, Term(3));
//! # Ok::<(), hustings_wal::WalError>(())
//! ```
//!
//! Read next: [`disk`], [`sector`], [`batch`], [`wal`], [`recovery`], [`snapshot`].

pub mod disk;
pub mod error;
pub mod real;

pub mod batch;
pub mod sector;

mod prefix;

pub mod meta;
pub mod peers;
pub mod segment;

mod prepare;
pub mod recovery;
pub mod reserve;
pub mod wal;

pub mod snapshot;
pub mod snapshot_file;

pub mod inspect;
pub mod survey;

pub mod sim;

pub use disk::{Disk, File};
pub use error::WalError;
pub use inspect::{Inspection, inspect};
pub use meta::{Identity, Peek, STARTS_MAX, Start, peek};
pub use prepare::Wait;
pub use real::RealDisk;
pub use recovery::Recovered;
pub use sim::SimulatedDisk;
pub use snapshot::{SnapshotStore, Stored};
pub use snapshot_file::{SnapshotReader, SnapshotWriter};
pub use survey::Survey;
pub use wal::{Options, Preparation, Wal};

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
