//! The identity of a data directory: [`Identity`], [`Peek`], the file `meta`.
//!
//! The file is replaced whole (temporary file, sync, rename, directory sync), so that after a crash it is the old one or the
//! new one. It exists before any segment does; without it, segments are refused and never adopted.
//!
//! ```text
//!   prefix ("HUSTMETA") │ protobuf
//! ```

use crate::disk::Disk;
use crate::error::WalError;
use crate::prefix::{self, PREFIX, Prefix};
use crate::real::RealDisk;
use crate::reserve;
use bytes::{Bytes, BytesMut};
use hustings_core::{ApplyVersion, ClusterId, Membership, NodeId, Wire as _};
use prost::Message as _;
use std::io;
use std::path::Path;

/// The name of the file.
pub const META: &str = "meta";
const META_TEMPORARY: &str = "meta.tmp";
/// The format of data directories that this version reads and writes, while entries are applied by the first apply version.
///
/// 2: entries carry absolute readings of the log's clock. Format 1 carried differences, which could count twice.
pub const FORMAT: u32 = 2;
/// Format of this file, and of nothing else, once the log has asked for a higher apply version: builds that know of
/// none refuse the directory by it, and the others by the version that it says.
pub const FORMAT_VERSIONED: u32 = 3;
const MAGIC: &[u8; 8] = b"HUSTMETA";
/// Far more often than any directory is opened.
const BOOTS_MAX: u64 = 1 << 48;
/// A membership of hundreds of members stays far below.
const META_BYTES_MAX: u64 = 16 << 20;

/// The owner of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Id of the cluster.
    pub cluster_id: ClusterId,
    /// Id of the member.
    pub node: NodeId,
    /// Name of the protocol: the records of one mean nothing to another.
    pub protocol: String,
}

/// The content of `meta` that others may see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peek {
    /// The owner of the directory.
    pub identity: Identity,
    /// The membership that it was created with.
    pub founding: Membership,
    /// The number drawn at its creation.
    pub storage_incarnation: u64,
    /// Number of times that it was opened.
    pub boots: u64,
    /// The highest apply version that its log has asked for.
    pub version: ApplyVersion,
}

/// Starts that a directory remembers. A member that was away for more is known by numbers alone.
pub const STARTS_MAX: usize = 32;

/// One start of a directory, as `meta` and greetings hold it: it tells a directory's own past from that of a copy, whatever was
/// written since.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Start {
    /// Its number, from 1.
    #[prost(uint64, tag = "1")]
    pub boots: u64,
    /// Drawn at that start.
    #[prost(fixed64, tag = "2")]
    pub process: u64,
    /// Batches of the log that were durable when it began.
    #[prost(uint64, tag = "3")]
    pub born_with: u64,
}

/// The contents of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Meta {
    pub(crate) identity: Identity,
    pub(crate) founding: Membership,
    pub(crate) storage_incarnation: u64,
    /// 0 while the directory is being created: it holds nothing yet.
    pub(crate) boots: u64,
    /// The last starts, the newest last.
    pub(crate) starts: Vec<Start>,
    /// The segment that was written to when the directory was last opened: it must be there.
    pub(crate) segment: u64,
    /// The highest apply version that the log has asked for; written before the record that does.
    pub(crate) version: ApplyVersion,
}

#[derive(Clone, PartialEq, prost::Message)]
struct MetaShape {
    #[prost(uint64, tag = "1")]
    cluster_id: u64,
    #[prost(uint64, tag = "2")]
    node: u64,
    #[prost(string, tag = "3")]
    protocol: String,
    #[prost(bytes = "bytes", tag = "4")]
    founding: Bytes,
    #[prost(uint64, tag = "5")]
    storage_incarnation: u64,
    #[prost(uint64, tag = "6")]
    boots: u64,
    #[prost(uint64, tag = "7")]
    segment: u64,
    /// Left out for the first.
    #[prost(uint32, tag = "8")]
    version: u32,
    #[prost(message, repeated, tag = "9")]
    starts: Vec<Start>,
    /// Zeros in place of the starts to come: on a full disk the next one needs no more room than this one.
    #[prost(bytes = "bytes", tag = "10")]
    padding: Bytes,
}

/// The most bytes that the last starts take.
const STARTS_BYTES: usize = STARTS_MAX * 33;

impl Meta {
    /// The part of it that others may see.
    pub(crate) fn peek(self) -> Peek {
        let Meta { identity, founding, storage_incarnation, boots, version, .. } = self;
        Peek { identity, founding, storage_incarnation, boots, version }
    }

    /// Reads the file; `None` when it is absent.
    pub(crate) fn read(disk: &dyn Disk) -> Result<Option<Meta>, WalError> {
        let location = || disk.location(META);
        let file = match disk.open(META) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(WalError::io("opening", location(), None, source)),
        };
        let io = |source| WalError::io("reading", location(), Some(0), source);
        let damaged = |offset, what: &str| WalError::damaged(location(), offset, what);
        let length = file.len().map_err(io)?;
        if length > META_BYTES_MAX || length < PREFIX as u64 {
            return Err(damaged(0, "its length is impossible"));
        }
        let mut bytes = vec![0; length as usize];
        let count = file.read_at(0, &mut bytes).map_err(io)?;
        bytes.truncate(count);
        let mut bytes = Bytes::from(bytes);
        let Some(prefix) = Prefix::take(MAGIC, &mut bytes) else {
            return Err(damaged(0, "it does not begin as such a file does"));
        };
        if bytes.len() != prefix.length || !prefix.agrees_with(&bytes) {
            return Err(damaged(16, "its checksum does not agree"));
        }
        if prefix.format != FORMAT_VERSIONED {
            check_format(location(), prefix.format)?;
        }
        let shape = MetaShape::decode(bytes).map_err(|error| damaged(PREFIX as u64, &error.to_string()))?;
        if shape.boots > BOOTS_MAX {
            return Err(damaged(PREFIX as u64, "no directory is opened as often as it says"));
        }
        let founding =
            Membership::decode(shape.founding).map_err(|error| damaged(PREFIX as u64, &error.to_string()))?;
        Ok(Some(Meta {
            identity: Identity {
                cluster_id: ClusterId(shape.cluster_id),
                node: NodeId(shape.node),
                protocol: shape.protocol,
            },
            founding,
            storage_incarnation: shape.storage_incarnation,
            boots: shape.boots,
            starts: shape.starts,
            segment: shape.segment,
            version: ApplyVersion(shape.version.max(1)),
        }))
    }

    /// Replaces the file, durably. On a full disk the reserve is given back for it; the caller sets it aside again.
    pub(crate) fn write(&self, disk: &dyn Disk) -> Result<(), WalError> {
        match self.try_to_write(disk) {
            // Nothing that failed is tried again: what follows writes another file from its beginning. A sync that failed for want
            // of room stays what it is.
            Err(WalError::Full { action: "creating" | "writing", .. }) if reserve::give_back(disk) => {
                self.try_to_write(disk)
            }
            outcome => outcome,
        }
    }

    fn try_to_write(&self, disk: &dyn Disk) -> Result<(), WalError> {
        let is_first = self.version == ApplyVersion::FIRST;
        // Each with its tag and its length.
        let taken: usize = self.starts.iter().map(|start| start.encoded_len() + 2).sum();
        let shape = MetaShape {
            cluster_id: self.identity.cluster_id.0,
            node: self.identity.node.0,
            protocol: self.identity.protocol.clone(),
            founding: self.founding.to_bytes(),
            storage_incarnation: self.storage_incarnation,
            boots: self.boots,
            starts: self.starts.clone(),
            padding: vec![0; STARTS_BYTES.saturating_sub(taken)].into(),
            segment: self.segment,
            version: if is_first { 0 } else { self.version.0 },
        };
        let body = shape.encode_to_vec();
        assert!(
            (body.len() + PREFIX) as u64 <= META_BYTES_MAX,
            "no membership is admitted that its reader would refuse"
        );
        let mut bytes = BytesMut::with_capacity(PREFIX + body.len());
        prefix::put(MAGIC, if is_first { FORMAT } else { FORMAT_VERSIONED }, &body, &mut bytes);
        let io = |action, name| move |source| WalError::io(action, disk.location(name), None, source);
        let file = disk.create(META_TEMPORARY, 0).map_err(io("creating", META_TEMPORARY))?;
        file.write_at(0, &bytes).map_err(io("writing", META_TEMPORARY))?;
        file.sync_data().map_err(io("syncing", META_TEMPORARY))?;
        disk.rename(META_TEMPORARY, META).map_err(io("renaming to", META))?;
        disk.sync_directory().map_err(io("syncing the directory", ""))
    }

    /// Refuses a directory whose log may need a newer build.
    pub(crate) fn check_version(&self, disk: &dyn Disk, can: ApplyVersion) -> Result<(), WalError> {
        if self.version <= can {
            return Ok(());
        }
        Err(WalError::NewerRules { directory: disk.location(""), found: self.version, supported: can })
    }

    /// Refuses a directory that belongs to something else.
    pub(crate) fn check(&self, disk: &dyn Disk, configured: &Identity) -> Result<(), WalError> {
        let Identity { cluster_id, node, protocol } = &self.identity;
        let differs = [
            ("cluster", cluster_id.to_string(), configured.cluster_id.to_string()),
            ("node", node.to_string(), configured.node.to_string()),
            ("protocol", protocol.clone(), configured.protocol.clone()),
        ];
        match differs.into_iter().find(|(_, found, configured)| found != configured) {
            None => Ok(()),
            Some((what, found, configured)) => {
                Err(WalError::Foreign { directory: disk.location(""), what, found, configured })
            }
        }
    }
}

/// Refuses files that another version wrote in another format.
pub(crate) fn check_format(file: String, found: u32) -> Result<(), WalError> {
    match found {
        FORMAT => Ok(()),
        newer if newer > FORMAT => Err(WalError::NewerFormat { file, found, supported: FORMAT }),
        _ => Err(WalError::OlderFormat { file, found, supported: FORMAT }),
    }
}

/// Reads `meta` without locking or changing the directory; `None` when it is absent or blank.
///
/// # Errors
/// Damage, a newer format, or an operating system that refuses to read.
pub fn peek(directory: &Path) -> Result<Option<Peek>, WalError> {
    let Some(disk) = RealDisk::open_read_only(directory)? else { return Ok(None) };
    // A directory whose creation was cut short holds nothing yet.
    let meta = Meta::read(&disk)?.filter(|meta| meta.boots > 0);
    Ok(meta.map(Meta::peek))
}
