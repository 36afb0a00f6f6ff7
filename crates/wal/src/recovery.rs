//! From bytes back to records: reading a log after a crash, and refusing a damaged one.
//!
//! Segments are read in order, sector by sector. Batches are taken in as long as each continues the one before. Where they
//! end, the rest of the segment is judged:
//!
//! ```text
//!   batch 7 │ batch 8 │ ✗ │ .. zeros ..              torn: 9 was never durable as far as anyone knows; zeroed
//!   batch 7 │ batch 8 │ ✗ │ batch 10 (synced 8) │    torn: 9 and 10 were written and not yet synced; zeroed
//!   batch 7 │ batch 8 │ ✗ │ batch 10 (synced 9) │    damage: 10 attests that 9 was durable; refused
//!   batch 7 │ .. zeros ..  (segment attests 8)       damage: 8 was durable, and the zeros that stood there are back; refused
//!   batch 7 │ rotten sector                          damage: it was written and is something else now; refused
//! ```
//!
//! Then everything that nobody attests is written again and synced: after a failed sync the operating system may show
//! bytes that are not on the disk, and the answers of a node after its rebirth must not rest on those.
//!
//! Source: ADR 32; ST-05, ST-11, ST-12. Read next: [`crate::wal`].

use crate::batch::{self, Head};
use crate::disk::{Disk, File};
use crate::error::WalError;
use crate::meta::{Meta, Start};
use crate::sector::{PAYLOAD, SECTOR, Seal, State};
use crate::segment::{self, ATTESTATION_SECTORS, FIRST_SECTOR, GOES_ON_IN, Header, Segment};
use bytes::BytesMut;
use hustings_core::{Durable, Entry, Lsn, Membership, Promise, Record, SnapshotReference};
use std::collections::VecDeque;
use std::ops::Range;

/// The state that was read from a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// The fold of its records.
    pub durable: Durable,
    /// The number drawn when the directory was created: another one is another disk.
    pub storage_incarnation: u64,
    /// Number of times that the directory was opened, this time included: 1 at creation.
    pub boots: u64,
    /// The last of its starts, this one included, the newest last.
    pub starts: Vec<Start>,
    /// The membership that it was created with.
    pub founding: Membership,
    /// Whether it was created just now.
    pub is_new: bool,
    /// Number of batches, the first one ever included: every batch that was durable once is among them.
    pub batches: u64,
    /// Bytes of writes that were cut by the crash; they were never acknowledged, and are gone now.
    pub torn_bytes: u64,
}

/// A segment that is full.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) sequence: u64,
    pub(crate) bytes: u64,
    /// The highest slot put into it.
    pub(crate) index_max: u64,
}

/// The log as found, ready to be continued.
pub(crate) struct Found {
    pub(crate) durable: Durable,
    pub(crate) sealed: VecDeque<Sealed>,
    pub(crate) current: Segment,
    pub(crate) current_index_max: u64,
    pub(crate) next_sector: u64,
    pub(crate) last_batch: u64,
    pub(crate) oldest: u64,
    pub(crate) torn_bytes: u64,
    /// Segments in the directory that the log does not need: leftovers of a removal.
    pub(crate) surplus: Vec<u64>,
    /// Torn writes, by segment.
    residues: Vec<(u64, Residue)>,
    /// The first sector of the current segment that no later batch attests.
    unattested: Option<u64>,
    /// The blank segment after the current one, made ahead of need.
    pub(crate) next: Option<Segment>,
}

/// The reason why a record cannot follow the durable ones (a broken protocol, or damage that no checksum saw); `None` if it can.
pub(crate) fn contradiction(durable: &Durable, record: &Record) -> Option<String> {
    match record {
        Record::Promise(next) if !durable.promise.may_become(next) => {
            Some(format!("the promise {:?} cannot become {next:?}", durable.promise))
        }
        Record::Established(term) if *term < durable.established => {
            Some(format!("the established term {} cannot become {term}", durable.established))
        }
        _ => {
            let Lsn { term, index } = place_of(record);
            // One that no message may bring a node to.
            let is_spent = !term.may_follow(term);
            let what = is_spent.then(|| format!("no cluster reaches term {term}"));
            what.or_else(|| (index == u64::MAX).then(|| format!("no log reaches slot {index}")))
        }
    }
}

/// The term and the slot that a record names; zeros where it names none.
fn place_of(record: &Record) -> Lsn {
    match record {
        Record::Promise(Promise { term, .. }) | Record::Established(term) => Lsn { term: *term, index: 0 },
        Record::Put(Entry { lsn, .. }) | Record::Snapshot(SnapshotReference { lsn, .. }) | Record::Committed(lsn) => {
            *lsn
        }
        Record::TruncateFrom(_) => Lsn::ZERO,
    }
}

/// Sectors that hold bytes of no batch.
#[derive(Debug)]
struct Residue {
    first: u64,
    last: u64,
}

/// A batch being put together.
struct Partial {
    number: u64,
    start: u64,
    head: Head,
    bytes: BytesMut,
    sectors: u64,
    taken: u64,
}

/// Takes sectors in, one after the other.
struct Reader {
    durable: Durable,
    last_batch: u64,
    oldest: u64,
    /// The last batch that some batch attests, and where that attestation stands.
    attested: u64,
    attested_at: (String, u64),
    /// The place where the log stopped, for the message if an attestation shows that it should not have.
    stop: Option<(String, u64, u64)>,
    /// Batches that nobody attests: number and first sector.
    unattested: VecDeque<(u64, u64)>,
    // Of the segment being read:
    location: String,
    partial: Option<Partial>,
    has_ended: bool,
    next_sector: u64,
    index_max: u64,
    has_batches: bool,
    residue: Option<Residue>,
    /// The segment in which the log goes on behind this one, as far as this one says.
    goes_on_in: u64,
}

impl Reader {
    fn new() -> Reader {
        Reader {
            durable: Durable::default(),
            last_batch: 0,
            oldest: 1,
            attested: 0,
            attested_at: (String::new(), 0),
            stop: None,
            unattested: VecDeque::new(),
            location: String::new(),
            partial: None,
            has_ended: false,
            next_sector: FIRST_SECTOR,
            index_max: 0,
            has_batches: false,
            residue: None,
            goes_on_in: 0,
        }
    }

    fn begin_segment(&mut self, location: String) {
        self.location = location;
        self.partial = None;
        self.has_ended = false;
        self.next_sector = FIRST_SECTOR;
        self.index_max = 0;
        self.has_batches = false;
        self.residue = None;
        self.goes_on_in = 0;
    }

    fn damaged(&self, sector: u64, what: impl Into<String>) -> WalError {
        WalError::damaged(self.location.clone(), sector * SECTOR as u64, what)
    }

    fn mark_residue(&mut self, sector: u64) {
        let residue = self.residue.get_or_insert(Residue { first: sector, last: sector });
        residue.last = sector;
    }

    /// The log does not go on here, at least not in this segment.
    fn end(&mut self, sector: u64) {
        if self.has_ended {
            return;
        }
        self.has_ended = true;
        self.stop = Some((self.location.clone(), sector * SECTOR as u64, self.last_batch));
        if let Some(partial) = self.partial.take() {
            self.mark_residue(partial.start);
            if sector > partial.start {
                self.mark_residue(sector - 1);
            }
        }
    }

    fn on_sector(&mut self, index: u64, sectors: u64, seal: Seal, sector: &[u8]) -> Result<(), WalError> {
        let (batch, position) = match seal.state(index, sector) {
            State::Rotten => {
                return Err(self.damaged(index, "the checksum of a sector does not agree"));
            }
            State::Blank => {
                self.end(index);
                return Ok(());
            }
            State::Unfinished => {
                self.end(index);
                self.mark_residue(index);
                return Ok(());
            }
            State::Valid { batch, position } => (batch, position),
        };
        let payload = &sector[..PAYLOAD];
        let head = (position == 0).then(|| Head::read(payload));
        if let Some(head) = head
            && head.synced > self.attested
        {
            self.attested = head.synced;
            self.attested_at = (self.location.clone(), index * SECTOR as u64);
        }
        if !self.has_ended && !self.continues(index, sectors, batch, position, head, payload)? {
            self.end(index);
        }
        if self.has_ended {
            if batch <= self.last_batch {
                return Err(self.damaged(index, format!("batch {batch} stands behind batch {}", self.last_batch)));
            }
            self.mark_residue(index);
        }
        Ok(())
    }

    /// Takes a valid sector in if it is the next one of the log.
    fn continues(
        &mut self,
        index: u64,
        sectors: u64,
        batch: u64,
        position: u32,
        head: Option<Head>,
        payload: &[u8],
    ) -> Result<bool, WalError> {
        match (&mut self.partial, head) {
            (None, Some(head)) if batch == self.last_batch + 1 => {
                let needed = batch::sectors_for(batch::HEAD + head.bytes as usize);
                if needed > sectors - index {
                    return Err(self.damaged(index, format!("batch {batch} does not fit its segment")));
                }
                let mut bytes = BytesMut::with_capacity(needed as usize * PAYLOAD);
                bytes.extend_from_slice(payload);
                self.partial = Some(Partial { number: batch, start: index, head, bytes, sectors: needed, taken: 1 });
            }
            (Some(partial), None) if batch == partial.number && u64::from(position) == partial.taken => {
                partial.bytes.extend_from_slice(payload);
                partial.taken += 1;
            }
            _ => return Ok(false),
        }
        if let Some(partial) = self.partial.take_if(|partial| partial.taken == partial.sectors) {
            self.on_batch(partial, index + 1)?;
        }
        Ok(true)
    }

    fn on_batch(&mut self, partial: Partial, next_sector: u64) -> Result<(), WalError> {
        let Partial { number, start, head, mut bytes, .. } = partial;
        bytes.truncate(batch::HEAD + head.bytes as usize);
        let records = bytes.freeze().slice(batch::HEAD..);
        for record in batch::records(number, head, records) {
            let (_, record) = record
                .map_err(|(offset, what)| self.damaged(start, format!("{what} (at {offset} in batch {number})")))?;
            if let Some(what) = contradiction(&self.durable, &record) {
                return Err(self.damaged(start, what));
            }
            if let Record::Put(entry) = &record {
                self.index_max = self.index_max.max(entry.lsn.index);
            }
            self.durable.absorb(record);
        }
        self.last_batch = number;
        self.oldest = self.oldest.max(head.oldest);
        while self.unattested.front().is_some_and(|(number, _)| *number <= self.attested) {
            self.unattested.pop_front();
        }
        self.unattested.push_back((number, start));
        self.has_batches = true;
        self.next_sector = next_sector;
        Ok(())
    }
}

/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

fn open_segment(disk: &dyn Disk, meta: &Meta, sequence: u64) -> Result<Segment, WalError> {
    let name = segment::name(sequence);
    let io = |action| {
        let location = disk.location(&name);
        move |source| WalError::io(action, location, None, source)
    };
    let file = disk.open(&name).map_err(io("opening"))?;
    let header = Header::read(disk, &name, &*file)?;
    meta.check(disk, &header.identity)?;
    let damaged = |what| WalError::damaged(disk.location(&name), 0, what);
    if header.sequence != sequence || header.storage_incarnation != meta.storage_incarnation {
        return Err(damaged(format!(
            "its header says segment {} of incarnation {:x}, where segment {sequence} of incarnation {:x} belongs",
            header.sequence, header.storage_incarnation, meta.storage_incarnation
        )));
    }
    let length = file.len().map_err(io("measuring"))?;
    if length != header.bytes || !length.is_multiple_of(SECTOR as u64) || length < FIRST_SECTOR * SECTOR as u64 {
        let what = format!("it is {length} bytes long and its header says {}", header.bytes);
        return Err(WalError::damaged(disk.location(&name), length.min(header.bytes), what));
    }
    Ok(Segment { name, header, file })
}

/// Reads the log of a directory whose creation was completed. Changes nothing: [`Found::settle`] does.
pub(crate) fn read(disk: &dyn Disk, meta: &Meta) -> Result<Found, WalError> {
    let names = disk.list().map_err(|source| WalError::io("listing", disk.location(""), None, source))?;
    let sequences: Vec<u64> = names.iter().filter_map(|name| segment::sequence(name)).collect();
    let missing = |sequence, what: String| WalError::Missing { file: disk.location(&segment::name(sequence)), what };
    let highest = sequences.last().copied().unwrap_or(0);
    if highest < meta.segment {
        return Err(missing(meta.segment, "the log was written to it when it was last opened".into()));
    }
    // The unbroken run that ends with the highest. Files below a gap must turn out not to be needed.
    let lowest = sequences.iter().rev().zip((0..=highest).rev()).take_while(|(found, wanted)| *found == wanted).last();
    let lowest = lowest.map_or(highest, |(found, _)| *found);
    let mut reader = Reader::new();
    let mut sealed = VecDeque::new();
    let mut last: Option<(Segment, Sealed, u64)> = None;
    let mut surplus: Vec<u64> = sequences.iter().copied().filter(|sequence| *sequence < lowest).collect();
    let mut residues = Vec::new();
    let mut next: Option<Segment> = None;
    for sequence in lowest..=highest {
        let segment = open_segment(disk, meta, sequence)?;
        reader.begin_segment(disk.location(&segment.name));
        let may_begin_here = sequence == lowest && lowest > 1;
        read_segment(disk, &segment, &mut reader, may_begin_here)?;
        if let Some(residue) = reader.residue.take() {
            residues.push((sequence, residue));
        }
        let bytes = segment.header.bytes;
        let found = (segment, Sealed { sequence, bytes, index_max: reader.index_max }, reader.next_sector);
        if reader.has_batches || last.is_none() {
            if let Some((_, full, _)) = last.replace(found) {
                sealed.push_back(full);
            }
            next = None;
        } else if next.is_none() {
            next = Some(found.0);
        } else {
            // Only one is ever made ahead of need.
            surplus.push(sequence);
        }
    }
    // A reader that only looks at a directory in use may have listed it before that file was made.
    if reader.goes_on_in > highest && disk.open(&segment::name(reader.goes_on_in)).is_err() {
        let (newest, gone) = (disk.location(&segment::name(highest)), reader.goes_on_in);
        return Err(missing(gone, format!("{newest} says that the log goes on in it")));
    }
    let Some((current, Sealed { index_max, .. }, next_sector)) = last else {
        return Err(missing(meta.segment.max(1), "the directory was created with it".into()));
    };
    if reader.attested > reader.last_batch {
        let (file, offset, batch) = reader.stop.unwrap_or_default();
        let (other, at) = reader.attested_at;
        let what = format!(
            "the log ends here with batch {batch}, but {other} attests at byte {at} that batch {} was durable",
            reader.attested
        );
        return Err(WalError::damaged(file, offset, what));
    }
    if lowest > reader.oldest {
        let what = match reader.last_batch {
            0 => "none that is left holds any of the log".to_owned(),
            _ => format!("the log needs all segments from {} on", reader.oldest),
        };
        return Err(missing(lowest - 1, what));
    }
    if current.header.sequence < meta.segment {
        let file = disk.location(&segment::name(meta.segment));
        return Err(WalError::damaged(file, FIRST_SECTOR * SECTOR as u64, "the batches that it held are gone"));
    }
    if reader.oldest > current.header.sequence {
        let what = format!("a batch says that the log needs no segment below {}, which is not there", reader.oldest);
        return Err(WalError::damaged(disk.location(&current.name), FIRST_SECTOR * SECTOR as u64, what));
    }
    let unattested = reader.unattested.iter().find(|(number, _)| *number > reader.attested);
    Ok(Found {
        sealed,
        current,
        current_index_max: index_max,
        next_sector,
        last_batch: reader.last_batch,
        oldest: reader.oldest,
        surplus,
        next,
        torn_bytes: residues.iter().map(|(_, residue)| (residue.last + 1 - residue.first) * SECTOR as u64).sum(),
        unattested: unattested.map(|(_, sector)| *sector),
        residues,
        durable: reader.durable,
    })
}

/// Reads the attestations of a segment, outside of its batches. One that cannot be read attests nothing: its write may have been cut.
fn read_attestations(disk: &dyn Disk, segment: &Segment, reader: &mut Reader) -> Result<(), WalError> {
    let seal = Seal::of(segment.header.storage_incarnation, segment.header.sequence);
    for index in ATTESTATION_SECTORS {
        let offset = index * SECTOR as u64;
        let mut sector = [0; SECTOR];
        let io = |source| WalError::io("reading", disk.location(&segment.name), Some(offset), source);
        segment.file.read_at(offset, &mut sector).map_err(io)?;
        let State::Valid { batch, position: 0 } = seal.state(index, &sector) else { continue };
        let goes_on_in = u64::from_le_bytes(sector[GOES_ON_IN].try_into().expect("eight bytes"));
        reader.goes_on_in = reader.goes_on_in.max(goes_on_in);
        if batch > reader.attested {
            reader.attested = batch;
            reader.attested_at = (disk.location(&segment.name), offset);
        }
    }
    Ok(())
}

fn read_segment(disk: &dyn Disk, segment: &Segment, reader: &mut Reader, may_begin_here: bool) -> Result<(), WalError> {
    let sectors = segment.sectors();
    read_attestations(disk, segment, reader)?;
    let seal = Seal::of(segment.header.storage_incarnation, segment.header.sequence);
    let mut buffer = vec![0; READ_BYTES.min((segment.header.bytes - FIRST_SECTOR * SECTOR as u64) as usize)];
    let mut index = FIRST_SECTOR;
    while index < sectors {
        let wanted = ((sectors - index) * SECTOR as u64).min(buffer.len() as u64) as usize;
        let offset = index * SECTOR as u64;
        let io = |source| WalError::io("reading", disk.location(&segment.name), Some(offset), source);
        let count = segment.file.read_at(offset, &mut buffer[..wanted]).map_err(io)?;
        if count < wanted {
            return Err(reader.damaged(index, "it ends early"));
        }
        for sector in buffer[..wanted].chunks_exact(SECTOR) {
            if may_begin_here
                && index == FIRST_SECTOR
                && let State::Valid { batch, position: 0 } = seal.state(index, sector)
            {
                // Segments below are gone: this one restates what they said, and the count goes on from here.
                reader.last_batch = batch.saturating_sub(1);
            }
            reader.on_sector(index, sectors, seal, sector)?;
            index += 1;
        }
    }
    reader.end(sectors);
    Ok(())
}

impl Found {
    /// Zeroes what was torn and writes again what nobody attests, so that all that was found is durable.
    pub(crate) fn settle(&self, disk: &dyn Disk) -> Result<(), WalError> {
        for (sequence, residue) in &self.residues {
            let end = residue.last + 1;
            if *sequence == self.current.header.sequence {
                rewrite(disk, &self.current.name, &*self.current.file, residue.first..end, With::Zeros)?;
            } else {
                let name = segment::name(*sequence);
                let file =
                    disk.open(&name).map_err(|error| WalError::io("opening", disk.location(&name), None, error))?;
                rewrite(disk, &name, &*file, residue.first..end, With::Zeros)?;
                sync(disk, &name, &*file)?;
            }
        }
        if let Some(first) = self.unattested {
            rewrite(disk, &self.current.name, &*self.current.file, first..self.next_sector, With::Itself)?;
        }
        sync(disk, &self.current.name, &*self.current.file)
    }
}

/// The bytes that sectors are overwritten with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum With {
    Zeros,
    Itself,
}

fn rewrite(disk: &dyn Disk, name: &str, file: &dyn File, sectors: Range<u64>, with: With) -> Result<(), WalError> {
    let io = |action, offset| move |source| WalError::io(action, disk.location(name), Some(offset), source);
    let end = sectors.end * SECTOR as u64;
    let mut offset = sectors.start * SECTOR as u64;
    let mut buffer = vec![0; READ_BYTES.min((end - offset) as usize)];
    while offset < end {
        let count = (end - offset).min(buffer.len() as u64) as usize;
        if with == With::Itself {
            file.read_at(offset, &mut buffer[..count]).map_err(io("reading", offset))?;
        }
        file.write_at(offset, &buffer[..count]).map_err(io("writing", offset))?;
        offset += count as u64;
    }
    Ok(())
}

fn sync(disk: &dyn Disk, name: &str, file: &dyn File) -> Result<(), WalError> {
    file.sync_data().map_err(|source| WalError::io("syncing", disk.location(name), None, source))
}
