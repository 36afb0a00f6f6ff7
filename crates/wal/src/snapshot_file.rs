//! A snapshot's file: written by [`SnapshotWriter`], read back by [`SnapshotReader`].
//!
//! ```text
//!   "HUSTSNAP" │ format u32 │ length u32 │ CRC32C u32 │ protobuf: place, membership
//!   the bytes
//!   length of the bytes u64 │ their CRC32C u32 │ CRC32C u32 of these twelve
//! ```

use crate::disk::{Disk, File};
use crate::error::WalError;
use crate::meta::FORMAT;
use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use hustings_core::{Lsn, Membership, SnapshotError, SnapshotFile, SnapshotReference, Wire as _};
use prost::Message as _;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"HUSTSNAP";
const PREFIX: usize = 20;
const TRAILER: usize = 16;
const HEADER_BYTES_MAX: usize = 16 << 20;
/// Bytes that are collected in memory before they are written.
const WRITE_BYTES: usize = 256 << 10;
/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;
/// Bytes that are written before they are synced: a snapshot must not stand as one long queue before the log's own syncs.
const SYNC_BYTES: u64 = 4 << 20;

#[derive(Clone, PartialEq, prost::Message)]
struct HeaderShape {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    index: u64,
    #[prost(bytes = "bytes", tag = "3")]
    membership: Bytes,
}

/// The name of a snapshot's file.
pub fn name(lsn: Lsn, digest: u32) -> String {
    format!("snapshot-{:016x}-{:016x}-{digest:08x}.snap", lsn.term.0, lsn.index)
}

/// Place and digest in a snapshot's name; `None` for other files.
pub fn parse_name(name: &str) -> Option<(Lsn, u32)> {
    let rest = name.strip_prefix("snapshot-")?.strip_suffix(".snap")?;
    let mut parts = rest.split('-');
    let mut hex = |digits| {
        let part = parts.next().filter(|part| part.len() == digits)?;
        u64::from_str_radix(part, 16).ok()
    };
    let (term, index, digest) = (hex(16)?, hex(16)?, hex(8)?);
    parts.next().is_none().then_some((Lsn::new(term, index), u32::try_from(digest).ok()?))
}

/// An open snapshot whose frame has been read.
pub(crate) struct Held {
    name: String,
    file: Box<dyn File>,
    /// Offset of the snapshot's bytes in the file.
    start: u64,
    pub(crate) reference: SnapshotReference,
}

impl Held {
    /// Reads header and trailer; the bytes between are not verified.
    pub(crate) fn read_frame(disk: &dyn Disk, name: String, file: Box<dyn File>) -> Result<Held, WalError> {
        let location = || disk.location(&name);
        let io = |offset| move |source| (offset, source);
        let refuse = |(offset, source)| WalError::io("reading", disk.location(&name), Some(offset), source);
        let damaged = |offset, what: &str| WalError::damaged(location(), offset, what);
        let length = file.len().map_err(io(0)).map_err(refuse)?;
        let mut prefix = [0; PREFIX];
        let count = file.read_at(0, &mut prefix).map_err(io(0)).map_err(refuse)?;
        let mut fields = &prefix[..];
        if count < PREFIX || fields[..8] != MAGIC[..] {
            return Err(damaged(0, "it does not begin as a snapshot does"));
        }
        fields.advance(8);
        let format = fields.get_u32_le();
        let header_length = fields.get_u32_le() as usize;
        let checksum = fields.get_u32_le();
        if header_length > HEADER_BYTES_MAX || (PREFIX + header_length + TRAILER) as u64 > length {
            return Err(damaged(12, "its header does not fit it"));
        }
        let start = (PREFIX + header_length) as u64;
        let mut header = vec![0; header_length];
        let count = file.read_at(PREFIX as u64, &mut header).map_err(io(PREFIX as u64)).map_err(refuse)?;
        let seed = crc32c::crc32c(&format.to_le_bytes());
        if count < header_length || crc32c::crc32c_append(seed, &header) != checksum {
            return Err(damaged(PREFIX as u64, "the checksum of its header does not agree"));
        }
        if format > FORMAT {
            return Err(WalError::NewerFormat { file: location(), found: format, supported: FORMAT });
        }
        let undecodable = |what: String| damaged(PREFIX as u64, &what);
        let shape = HeaderShape::decode(Bytes::from(header)).map_err(|error| undecodable(error.to_string()))?;
        let membership = Membership::decode(shape.membership).map_err(|error| undecodable(error.to_string()))?;
        let end = length - TRAILER as u64;
        let mut trailer = [0; TRAILER];
        let count = file.read_at(end, &mut trailer).map_err(io(end)).map_err(refuse)?;
        let mut fields = &trailer[..];
        let bytes = fields.get_u64_le();
        let digest = fields.get_u32_le();
        let agrees = count == TRAILER && crc32c::crc32c(&trailer[..12]) == fields.get_u32_le();
        if !agrees || bytes != end - start {
            return Err(damaged(end, "its trailer does not agree"));
        }
        let lsn = Lsn::new(shape.term, shape.index);
        let reference = SnapshotReference { lsn, membership: Arc::new(membership), bytes, digest };
        if parse_name(&name) != Some((lsn, digest)) {
            return Err(damaged(0, "its name is not that of its contents"));
        }
        Ok(Held { name, file, start, reference })
    }

    /// Reads all bytes and compares their checksum.
    pub(crate) fn verify(&self, disk: &dyn Disk) -> Result<(), WalError> {
        let total = self.reference.bytes;
        let mut buffer = vec![0; READ_BYTES.min(total as usize)];
        let mut digest = crc32c::crc32c(&[]);
        let mut offset = 0;
        while offset < total {
            let count = (total - offset).min(buffer.len() as u64) as usize;
            self.read(disk, offset, &mut buffer[..count])?;
            digest = crc32c::crc32c_append(digest, &buffer[..count]);
            offset += count as u64;
        }
        self.check_digest(disk, digest)
    }

    pub(crate) fn read(&self, disk: &dyn Disk, offset: u64, bytes: &mut [u8]) -> Result<(), WalError> {
        let offset = self.start + offset;
        let io = |source| WalError::io("reading", disk.location(&self.name), Some(offset), source);
        let count = self.file.read_at(offset, bytes).map_err(io)?;
        if count < bytes.len() {
            return Err(WalError::damaged(disk.location(&self.name), offset + count as u64, "it ends early"));
        }
        Ok(())
    }

    pub(crate) fn check_digest(&self, disk: &dyn Disk, digest: u32) -> Result<(), WalError> {
        if digest == self.reference.digest {
            return Ok(());
        }
        let what = format!("the checksum of its {} bytes does not agree", self.reference.bytes);
        Err(WalError::damaged(disk.location(&self.name), self.start, what))
    }
}

/// A snapshot that is open for reading parts of it.
pub(crate) struct OpenSnapshot {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) held: Held,
}

impl std::fmt::Debug for OpenSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.disk.location(&self.held.name))
    }
}

impl SnapshotFile for OpenSnapshot {
    fn read(&self, offset: u64, length: usize) -> Result<Bytes, SnapshotError> {
        let mut bytes = vec![0; length];
        self.held.read(&*self.disk, offset, &mut bytes).map_err(|error| SnapshotError { what: error.to_string() })?;
        Ok(bytes.into())
    }
}

/// A snapshot being read, a part at a time.
pub struct SnapshotReader {
    disk: Arc<dyn Disk>,
    held: Held,
    part: Bytes,
    /// Bytes not handed out yet, the part included.
    left: u64,
    /// CRC32C of the bytes that were read.
    digest: u32,
    failure: Option<WalError>,
}

impl std::fmt::Debug for SnapshotReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "snapshot through {}, {} bytes left", self.held.reference.lsn, self.left)
    }
}

impl SnapshotReader {
    pub(crate) fn begin(disk: Arc<dyn Disk>, held: Held) -> Result<SnapshotReader, WalError> {
        let left = held.reference.bytes;
        let digest = crc32c::crc32c(&[]);
        let mut reader = SnapshotReader { disk, held, part: Bytes::new(), left, digest, failure: None };
        reader.refill();
        match reader.failure.take() {
            None => Ok(reader),
            Some(error) => Err(error),
        }
    }

    /// Reads the next part. A [`Buf`] cannot fail, so where a read does zeros are handed out: they are nothing that was written, and
    /// [`SnapshotReader::finish`] says so.
    fn refill(&mut self) {
        if !self.part.is_empty() || self.left == 0 {
            return;
        }
        let mut part = vec![0; READ_BYTES.min(self.left as usize)];
        let offset = self.held.reference.bytes - self.left;
        if self.failure.is_none() {
            self.failure = self.held.read(&*self.disk, offset, &mut part).err();
        }
        self.digest = crc32c::crc32c_append(self.digest, &part);
        self.part = part.into();
    }

    /// Whether all of it could be read, and is what was written; reads the rest now.
    ///
    /// # Errors
    /// The first that a read had, or [`WalError::Damaged`].
    pub fn finish(mut self) -> Result<(), WalError> {
        while self.left > 0 && self.failure.is_none() {
            self.advance(self.part.len());
        }
        match self.failure {
            Some(error) => Err(error),
            None => self.held.check_digest(&*self.disk, self.digest),
        }
    }
}

impl Buf for SnapshotReader {
    fn remaining(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX)
    }

    fn chunk(&self) -> &[u8] {
        &self.part
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.remaining(), "no more is taken than remains");
        while count > 0 && self.left > 0 {
            let step = count.min(self.part.len());
            self.part.advance(step);
            self.left -= step as u64;
            count -= step;
            self.refill();
        }
    }
}

/// A snapshot that is being written.
pub struct SnapshotWriter {
    disk: Arc<dyn Disk>,
    temporary: String,
    file: Box<dyn File>,
    lsn: Lsn,
    membership: Arc<Membership>,
    /// Bytes that have not been written yet.
    buffer: BytesMut,
    offset: u64,
    unsynced: u64,
    bytes: u64,
    digest: u32,
}

impl std::fmt::Debug for SnapshotWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "snapshot through {}, {} bytes so far", self.lsn, self.bytes)
    }
}

impl SnapshotWriter {
    pub(crate) fn begin(
        disk: Arc<dyn Disk>,
        temporary: String,
        lsn: Lsn,
        membership: Arc<Membership>,
    ) -> Result<SnapshotWriter, WalError> {
        let file = disk.create(&temporary, 0);
        let file = file.map_err(|source| WalError::io("creating", disk.location(&temporary), None, source))?;
        let shape = HeaderShape { term: lsn.term.0, index: lsn.index, membership: membership.to_bytes() };
        let header = shape.encode_to_vec();
        assert!(header.len() <= HEADER_BYTES_MAX, "no membership is admitted that its reader would refuse");
        let mut buffer = BytesMut::with_capacity(WRITE_BYTES);
        buffer.put_slice(MAGIC);
        buffer.put_u32_le(FORMAT);
        buffer.put_u32_le(u32::try_from(header.len()).expect("a membership is far below 4 GiB"));
        buffer.put_u32_le(crc32c::crc32c_append(crc32c::crc32c(&FORMAT.to_le_bytes()), &header));
        buffer.put_slice(&header);
        let writer = SnapshotWriter {
            disk,
            temporary,
            file,
            lsn,
            membership,
            buffer,
            offset: 0,
            unsynced: 0,
            bytes: 0,
            digest: crc32c::crc32c(&[]),
        };
        Ok(writer)
    }

    /// Number of bytes appended so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// CRC32C of the bytes appended so far.
    pub fn digest(&self) -> u32 {
        self.digest
    }

    /// Appends the snapshot's next bytes.
    ///
    /// # Errors
    /// The disk refuses something.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), WalError> {
        self.digest = crc32c::crc32c_append(self.digest, bytes);
        self.bytes += bytes.len() as u64;
        self.buffer.put_slice(bytes);
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), WalError> {
        let offset = self.offset;
        let io = |action, source| WalError::io(action, self.disk.location(&self.temporary), Some(offset), source);
        self.file.write_at(offset, &self.buffer).map_err(|source| io("writing", source))?;
        self.offset += self.buffer.len() as u64;
        self.unsynced += self.buffer.len() as u64;
        if self.unsynced >= SYNC_BYTES {
            self.file.sync_data().map_err(|source| io("syncing", source))?;
            self.unsynced = 0;
        }
        self.buffer.clear();
        Ok(())
    }

    /// Completes the snapshot and makes it durable under its name.
    ///
    /// # Errors
    /// The disk refuses something.
    pub fn finish(mut self) -> Result<SnapshotReference, WalError> {
        let mut trailer = [0; TRAILER];
        trailer[..8].copy_from_slice(&self.bytes.to_le_bytes());
        trailer[8..12].copy_from_slice(&self.digest.to_le_bytes());
        let checksum = crc32c::crc32c(&trailer[..12]);
        trailer[12..].copy_from_slice(&checksum.to_le_bytes());
        self.buffer.put_slice(&trailer);
        self.flush()?;
        let name = name(self.lsn, self.digest);
        let io = |action, name: &str| {
            let location = self.disk.location(name);
            move |source| WalError::io(action, location, None, source)
        };
        self.file.sync_data().map_err(io("syncing", &self.temporary))?;
        self.disk.rename(&self.temporary, &name).map_err(io("renaming to", &name))?;
        self.disk.sync_directory().map_err(io("syncing the directory", ""))?;
        let SnapshotWriter { lsn, membership, bytes, digest, .. } = self;
        Ok(SnapshotReference { lsn, membership, bytes, digest })
    }
}
