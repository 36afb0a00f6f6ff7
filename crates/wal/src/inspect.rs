//! The content of a data directory, for people: [`inspect`].
//!
//! Reads beside a process that lives there, takes no lock, changes nothing, and goes on behind damage. While the node
//! runs, its last batch may be seen half written.

use crate::batch::{self, Head};
use crate::disk::Disk;
use crate::error::WalError;
use crate::meta::{META, Meta, Peek};
use crate::peers;
use crate::real::RealDisk;
use crate::recovery;
use crate::sector::{PAYLOAD, SECTOR, Seal, State};
use crate::segment::{self, FIRST_SECTOR, Header};
use crate::snapshot_file::{self, Held};
use bytes::BytesMut;
use hustings_core::{Durable, Lsn, Record, SnapshotReference};
use std::path::Path;

/// One thing found in a data directory.
#[derive(Debug)]
pub enum Inspection {
    /// The content of the file `meta`.
    Meta(Peek),
    /// A segment begins; the batches that follow are in it.
    Segment {
        /// Path of the segment.
        file: String,
        /// The content of its header.
        header: Header,
    },
    /// A whole batch, all checksums good.
    Batch {
        /// Offset in the segment, in bytes.
        offset: u64,
        /// Number of the batch.
        number: u64,
        /// The content of its head.
        head: Head,
    },
    /// A record of the batch before, its checksum good.
    Record {
        /// Offset in the batch's records, in bytes.
        offset: usize,
        /// The record, decoded from its bytes.
        record: Record,
    },
    /// Sectors that hold no whole batch and are not rotten: a write that was cut, or is under way.
    Torn {
        /// Offset in the segment, in bytes.
        offset: u64,
        /// Length of the stretch, in bytes.
        bytes: u64,
    },
    /// Zeros, where nothing was written yet.
    Blank {
        /// Offset in the segment, in bytes.
        offset: u64,
        /// Length of the stretch, in bytes.
        bytes: u64,
    },
    /// A snapshot, its checksum good.
    Snapshot {
        /// Path of the snapshot.
        file: String,
        /// Its place, length and checksum.
        reference: SnapshotReference,
    },
    /// A snapshot whose bytes are not what they were. Only one that the log refers to is missed when a node starts here.
    DamagedSnapshot {
        /// Path of the snapshot.
        file: String,
        /// The place that its name says.
        lsn: Lsn,
        /// The checksum that its name says.
        digest: u32,
        /// The error in it.
        error: WalError,
    },
    /// Other members refused the directory, for this reason: no node starts on it any more.
    RolledBack {
        /// The reason that they gave, with the remedy.
        why: String,
    },
    /// A file that is none of these, or unfinished.
    Other {
        /// Path of the file.
        file: String,
    },
    /// Something that is not as it should be; reading goes on behind it.
    Bad(WalError),
    /// The state that a node which starts here would recover, before it zeroes what is torn.
    Verdict(Box<Durable>),
}

/// Looks through a data directory, file by file; nothing when it is absent.
///
/// # Errors
/// When the directory cannot be read at all. Whatever is wrong inside is an [`Inspection::Bad`].
pub fn inspect(directory: &Path) -> Result<impl Iterator<Item = Inspection> + use<>, WalError> {
    let disk = RealDisk::open_read_only(directory)?;
    let names = match &disk {
        Some(disk) => disk.list().map_err(|error| WalError::io("listing", disk.location(""), None, error))?,
        None => Vec::new(),
    };
    let disk = disk.map(std::sync::Arc::new);
    let last = disk.clone();
    let files = names.into_iter().flat_map(move |name| disk.as_deref().map_or(Vec::new(), |disk| look_at(disk, &name)));
    let verdict = std::iter::once_with(move || last.as_deref().and_then(|disk| verdict(disk))).flatten();
    Ok(files.chain(verdict))
}

/// The same on any disk.
pub fn inspect_disk(disk: &dyn Disk) -> Result<Vec<Inspection>, WalError> {
    let names = disk.list().map_err(|error| WalError::io("listing", disk.location(""), None, error))?;
    let mut found: Vec<Inspection> = names.iter().flat_map(|name| look_at(disk, name)).collect();
    found.extend(verdict(disk));
    Ok(found)
}

/// The result that recovery would have. Damage that the walk has named already is not named again.
fn verdict(disk: &dyn Disk) -> Option<Inspection> {
    let meta = Meta::read(disk).ok()??;
    match recovery::read(disk, &meta) {
        Ok(found) => Some(Inspection::Verdict(Box::new(found.durable))),
        Err(error) => Some(Inspection::Bad(error)),
    }
}

fn look_at(disk: &dyn Disk, name: &str) -> Vec<Inspection> {
    let mut found = Vec::new();
    let looked = if name == META {
        look_at_meta(disk, &mut found)
    } else if name == peers::ROLLED_BACK {
        peers::rolled_back(disk).map(|why| found.extend(why.map(|why| Inspection::RolledBack { why })))
    } else if let Some(sequence) = segment::sequence(name) {
        look_at_segment(disk, name, sequence, &mut found)
    } else if let Some((lsn, digest)) = snapshot_file::parse_name(name) {
        let file = disk.location(name);
        match look_at_snapshot(disk, name, &mut found) {
            Err(error @ WalError::Damaged { .. }) => {
                found.push(Inspection::DamagedSnapshot { file, lsn, digest, error });
            }
            Err(error) => found.push(Inspection::Bad(error)),
            Ok(()) => {}
        }
        Ok(())
    } else {
        found.push(Inspection::Other { file: disk.location(name) });
        Ok(())
    };
    found.extend(looked.err().map(Inspection::Bad));
    found
}

fn look_at_meta(disk: &dyn Disk, found: &mut Vec<Inspection>) -> Result<(), WalError> {
    if let Some(meta) = Meta::read(disk)? {
        found.push(Inspection::Meta(meta.peek()));
    }
    Ok(())
}

fn look_at_snapshot(disk: &dyn Disk, name: &str, found: &mut Vec<Inspection>) -> Result<(), WalError> {
    let file = disk.open(name).map_err(|error| WalError::io("opening", disk.location(name), None, error))?;
    let held = Held::read_frame(disk, name.to_owned(), file)?;
    held.verify(disk)?;
    found.push(Inspection::Snapshot { file: disk.location(name), reference: held.reference });
    Ok(())
}

fn look_at_segment(disk: &dyn Disk, name: &str, sequence: u64, found: &mut Vec<Inspection>) -> Result<(), WalError> {
    let location = disk.location(name);
    let io = |action, source| WalError::io(action, disk.location(name), None, source);
    let file = disk.open(name).map_err(|source| io("opening", source))?;
    let header = Header::read(disk, name, &*file)?;
    let seal = Seal::of(header.storage_incarnation, sequence);
    let length = file.len().map_err(|source| io("measuring", source))?;
    if length != header.bytes {
        let what = format!("it is {length} bytes long and its header says {}", header.bytes);
        found.push(Inspection::Bad(WalError::damaged(location.clone(), length.min(header.bytes), what)));
    }
    found.push(Inspection::Segment { file: location.clone(), header });
    let mut walk = Walk { location, found, batch: None };
    let mut sector = [0; SECTOR];
    for index in FIRST_SECTOR..length / SECTOR as u64 {
        let count = file.read_at(index * SECTOR as u64, &mut sector).map_err(|source| io("reading", source))?;
        if count == SECTOR {
            walk.on_sector(index, seal.state(index, &sector), &sector[..PAYLOAD]);
        }
    }
    walk.abandon();
    Ok(())
}

/// Goes through the sectors of a segment.
struct Walk<'a> {
    location: String,
    found: &'a mut Vec<Inspection>,
    batch: Option<(u64, u64, Head, BytesMut)>,
}

impl Walk<'_> {
    fn on_sector(&mut self, index: u64, state: State, payload: &[u8]) {
        let offset = index * SECTOR as u64;
        match (state, &mut self.batch) {
            (State::Valid { batch, position }, Some((start, number, _, bytes)))
                if batch == *number && index - *start == u64::from(position) =>
            {
                bytes.extend_from_slice(payload);
            }
            (State::Valid { batch, position: 0 }, _) => {
                self.abandon();
                self.batch = Some((index, batch, Head::read(payload), BytesMut::from(payload)));
            }
            (State::Valid { .. } | State::Unfinished, _) => {
                self.abandon();
                self.stretch(offset, SECTOR as u64, |offset, bytes| Inspection::Torn { offset, bytes });
            }
            (State::Blank, _) => {
                self.abandon();
                self.stretch(offset, SECTOR as u64, |offset, bytes| Inspection::Blank { offset, bytes });
            }
            (State::Rotten, _) => {
                self.abandon();
                let what = "the checksum of a sector does not agree";
                self.found.push(Inspection::Bad(WalError::damaged(self.location.clone(), offset, what)));
            }
        }
        self.complete();
    }

    /// Reports the batch when all of it is there.
    fn complete(&mut self) {
        let whole = |(_, _, head, bytes): &mut (u64, u64, Head, BytesMut)| {
            bytes.len() as u64 >= batch::sectors_for(batch::HEAD + head.bytes as usize) * PAYLOAD as u64
        };
        let Some((start, number, head, mut bytes)) = self.batch.take_if(whole) else { return };
        let offset = start * SECTOR as u64;
        bytes.truncate(batch::HEAD + head.bytes as usize);
        self.found.push(Inspection::Batch { offset, number, head });
        for record in batch::records(number, head, bytes.freeze().slice(batch::HEAD..)) {
            self.found.push(match record {
                Ok((offset, record)) => Inspection::Record { offset, record },
                Err((at, what)) => {
                    let what = format!("{what} (at {at} in batch {number})");
                    Inspection::Bad(WalError::damaged(self.location.clone(), offset, what))
                }
            });
        }
    }

    /// Reports the sectors of a batch that was begun and is not whole as torn.
    fn abandon(&mut self) {
        if let Some((start, _, _, bytes)) = self.batch.take() {
            let length = (bytes.len() / PAYLOAD * SECTOR) as u64;
            self.stretch(start * SECTOR as u64, length, |offset, bytes| Inspection::Torn { offset, bytes });
        }
    }

    /// Reports a stretch, joined with the one before when that is of the same kind.
    fn stretch(&mut self, offset: u64, bytes: u64, kind: fn(u64, u64) -> Inspection) {
        let next = kind(offset, bytes);
        let (begun, length) = match (self.found.last_mut(), &next) {
            (Some(Inspection::Torn { offset, bytes }), Inspection::Torn { .. })
            | (Some(Inspection::Blank { offset, bytes }), Inspection::Blank { .. }) => (offset, bytes),
            _ => return self.found.push(next),
        };
        debug_assert!(*begun + *length == offset, "stretches are joined without gaps");
        *length += bytes;
    }
}
