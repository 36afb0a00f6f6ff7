//! The durable log of a node: [`Wal`].
//!
//! Records collect in memory, [`Wal::write`] turns them into one batch with one write, [`Wal::sync`] makes it durable with one
//! `fdatasync` of a file whose blocks exist already. The next segment is made ahead of need on another thread.
//!
//! ```text
//!   append ─► pending ──write──► current segment ──sync──► durable ─► segments below the snapshot go to be used again
//!                                     │ full: sync, take the next, restate promise, term, commit and snapshot
//! ```
//!
//! A segment's first batch restates all that is not an entry. So a segment is needed only while it holds a slot above the
//! snapshot. The first needed one is named in every batch; segments below go once such a batch is durable, so that recovery
//! knows a removed segment from a lost one.
//!
//! It deliberately does not retry: after any error it is poisoned (ADR 31; ST-05).

use crate::batch::{self, Head};
use crate::disk::Disk;
use crate::error::WalError;
use crate::meta::{Identity, META, Meta, STARTS_MAX, Start};
use crate::peers;
use crate::prepare::{Preparer, Wait};
use crate::recovery::{self, Found, Recovered, Sealed};
use crate::reserve;
use crate::sector::{SECTOR, Seal};
use crate::segment::{self, ATTESTATION_SECTORS, FIRST_SECTOR, GOES_ON_IN, Header, SEGMENT_BYTES_MIN, Segment};
use bytes::{BufMut as _, BytesMut};
use hustings_core::replica::versions::version_wanted_by;
use hustings_core::{ApplyVersion, Durable, Membership, Promise, Record, Term};
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of durable batches after which that is written down outside of them: rarely enough that it costs nothing.
const ATTESTED_EVERY: u64 = 64;

/// The place where segments are made ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preparation {
    /// On a thread of its own, ahead of need.
    Background,
    /// By the caller, at the moment of need: no thread, every run alike.
    Inline,
}

/// The layout of the log's files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Length of a segment in bytes, at least 16 KiB; rounded up to whole sectors.
    pub segment_bytes: u64,
    /// Length of the first segment in bytes; each next one is four times as long, up to `segment_bytes`, so that a young node
    /// starts in milliseconds.
    pub first_segment_bytes: u64,
    /// Records are written without waiting for [`Wal::write`] when so many bytes of them are pending.
    pub batch_bytes_max: usize,
    /// The place where segments are made ready.
    pub preparation: Preparation,
    /// The highest apply version that the opener of the log can apply.
    pub version_max: ApplyVersion,
    /// The storage incarnation of a directory that is made now; drawn by the disk where none is given. Never 0.
    pub storage_incarnation: Option<u64>,
    /// Bytes that are set aside for a start on a full disk; 0: none. A member takes [`crate::reserve::RESERVE_BYTES`].
    pub reserve_bytes: u64,
}

impl Default for Options {
    /// 16 MiB segments after a first one of 1 MiB, batches up to 1 MiB, prepared in the background.
    ///
    /// Larger ones spare nothing: each is zeroed before it is used, and one is made ahead.
    fn default() -> Options {
        Options {
            segment_bytes: 16 << 20,
            first_segment_bytes: 1 << 20,
            batch_bytes_max: 1 << 20,
            preparation: Preparation::Background,
            version_max: ApplyVersion::FIRST,
            storage_incarnation: None,
            reserve_bytes: 0,
        }
    }
}

impl Options {
    /// Length of the segment with this sequence.
    fn bytes_of(&self, sequence: u64) -> u64 {
        let shift = u32::try_from(sequence.saturating_sub(1)).unwrap_or(u32::MAX).saturating_mul(2).min(32);
        let grown = self.first_segment_bytes.saturating_mul(1 << shift);
        grown.min(self.segment_bytes).max(SEGMENT_BYTES_MIN).next_multiple_of(SECTOR as u64)
    }
}

/// The durable log of one node.
pub struct Wal {
    disk: Arc<dyn Disk>,
    options: Options,
    meta: Meta,
    preparer: Preparer,
    sealed: VecDeque<Sealed>,
    current: Segment,
    seal: Seal,
    /// Highest slot put into the current segment.
    index_max: u64,
    next_sector: u64,
    /// Number of the last batch written.
    last_batch: u64,
    /// Number of the last batch known to be durable.
    synced: u64,
    /// The first segment that is still needed, and what of that was written.
    oldest: u64,
    oldest_written: u64,
    /// Everything that is not an entry, with the pending records and before them.
    scalars: Durable,
    scalars_before: Durable,
    /// A head's room, then the records of the next batch.
    pending: BytesMut,
    pending_count: u32,
    pending_index_max: u64,
    /// The sealed sectors of the last batch: kept for its allocation.
    sectors: Vec<u8>,
    /// Number of attestations written, and the last batch that they attest.
    attestations: u64,
    attested: u64,
    poison: Option<String>,
}

// A thread of its own writes the log, and any thread reads snapshots.
const _: () = {
    const fn may_move_to_a_thread<T: Send>() {}
    const fn may_be_shared_by_threads<T: Send + Sync>() {}
    may_move_to_a_thread::<Wal>();
    may_be_shared_by_threads::<crate::SnapshotStore>();
};

impl std::fmt::Debug for Wal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "log at {}, batch {}, durable through {}", self.current.name, self.last_batch, self.synced)
    }
}

impl Wal {
    /// Opens the log in a directory: creates it when the directory is blank, recovers it otherwise. Everything in
    /// [`Recovered`] is durable when this returns.
    ///
    /// # Errors
    /// A directory of another cluster, node, protocol or of a newer format; a damaged or incomplete one; and whatever the disk
    /// refuses. A refused directory is unchanged.
    pub fn open(
        disk: Arc<dyn Disk>,
        identity: &Identity,
        founding: &Membership,
        options: Options,
    ) -> Result<(Wal, Recovered), WalError> {
        peers::check_rolled_back(&*disk)?;
        let meta = Meta::read(&*disk)?;
        let names = list(&*disk)?;
        let (mut meta, is_new) = match meta {
            Some(meta) if meta.boots > 0 => (meta, false),
            // Its creation was cut short: nothing was ever recorded, and it is created again.
            Some(_) => (create(&*disk, &names, identity, founding, &options)?, true),
            None => match names.iter().find(|name| segment::sequence(name).is_some() || name.ends_with(".snap")) {
                None => (create(&*disk, &names, identity, founding, &options)?, true),
                Some(orphan) => {
                    let what = format!("{} stands in the same directory and belongs to a node", disk.location(orphan));
                    return Err(WalError::Missing { file: disk.location(META), what });
                }
            },
        };
        meta.check(&*disk, identity)?;
        meta.check_version(&*disk, options.version_max)?;
        let found = recovery::read(&*disk, &meta)?;
        if !is_new {
            found.settle(&*disk)?;
        }
        // Listed anew: creation has removed some of them.
        remove_all(&*disk, list(&*disk)?.iter().filter(|name| segment::is_temporary(name)))?;
        meta.boots += 1;
        meta.starts.push(Start { boots: meta.boots, process: disk.fresh_number(), born_with: found.last_batch });
        meta.starts.drain(..meta.starts.len().saturating_sub(STARTS_MAX));
        meta.segment = found.current.header.sequence;
        meta.write(&*disk)?;
        reserve::keep(&*disk, options.reserve_bytes);
        let recovered = Recovered {
            durable: found.durable.clone(),
            storage_incarnation: meta.storage_incarnation,
            boots: meta.boots,
            starts: meta.starts.clone(),
            founding: meta.founding.clone(),
            is_new,
            batches: found.last_batch,
            torn_bytes: found.torn_bytes,
        };
        Ok((Wal::resume(disk, options, meta, found)?, recovered))
    }

    fn resume(disk: Arc<dyn Disk>, options: Options, meta: Meta, found: Found) -> Result<Wal, WalError> {
        let surplus: Vec<String> = found.surplus.iter().rev().map(|sequence| segment::name(*sequence)).collect();
        remove_all(&*disk, surplus.iter())?;
        let mut preparer = Preparer::new(disk.clone(), options.preparation)?;
        let mut scalars = found.durable;
        scalars.entries.clear();
        let seal = Seal::of(meta.storage_incarnation, found.current.header.sequence);
        let oldest = found.oldest;
        let mut sealed = found.sealed;
        let unneeded = sealed.partition_point(|old| old.sequence < oldest);
        for old in sealed.drain(..unneeded) {
            preparer.retire(segment::name(old.sequence), old.bytes);
        }
        let mut pending = BytesMut::with_capacity(options.batch_bytes_max.min(1 << 16));
        pending.put_bytes(0, batch::HEAD);
        let mut wal = Wal {
            meta,
            seal,
            index_max: found.current_index_max,
            next_sector: found.next_sector,
            last_batch: found.last_batch,
            synced: found.last_batch,
            oldest,
            oldest_written: oldest,
            scalars_before: scalars.clone(),
            scalars,
            pending,
            pending_count: 0,
            pending_index_max: 0,
            sectors: Vec::new(),
            attestations: 0,
            attested: 0,
            poison: None,
            disk,
            options,
            preparer,
            sealed,
            current: found.current,
        };
        wal.find_oldest();
        match found.next {
            Some(next) => wal.preparer.adopt(next),
            None => wal.preparer.ask(wal.header(wal.current.header.sequence + 1)),
        }
        Ok(wal)
    }

    /// Takes the next record into the pending batch. Writes only when the batch has become large.
    ///
    /// # Errors
    /// [`WalError::Contradiction`] for a record that no correct protocol emits; [`WalError::Poisoned`]; and those of
    /// [`Wal::write`].
    pub fn append(&mut self, record: &Record) -> Result<(), WalError> {
        self.unless_poisoned(|wal| wal.take_in(record))
    }

    fn take_in(&mut self, record: &Record) -> Result<(), WalError> {
        if let Some(what) = recovery::contradiction(&self.scalars, record) {
            return Err(WalError::Contradiction { directory: self.disk.location(""), what });
        }
        if self.pending_count == 0 {
            self.scalars_before.clone_from(&self.scalars);
        }
        batch::put_record(record, self.last_batch + 1, &mut self.pending);
        self.pending_count += 1;
        match record {
            Record::Put(entry) => {
                self.pending_index_max = self.pending_index_max.max(entry.lsn.index);
                // First the directory says so, then the record does.
                self.mark(version_wanted_by(entry).unwrap_or_default())?;
            }
            Record::TruncateFrom(_) => {}
            other => self.scalars.absorb(other.clone()),
        }
        let bytes = self.pending.len() as u64;
        if bytes > batch::BYTES_MAX {
            let file = self.disk.location(&self.current.name);
            return Err(WalError::TooLarge { what: "a batch", file, bytes, bytes_max: batch::BYTES_MAX });
        }
        if self.pending.len() >= self.options.batch_bytes_max { self.write_pending() } else { Ok(()) }
    }

    /// The directory is opened from now on only by builds that can apply this version; durable when this returns.
    ///
    /// # Errors
    /// Whatever the disk refuses; from then on the log is poisoned.
    pub fn need_version(&mut self, version: ApplyVersion) -> Result<(), WalError> {
        self.unless_poisoned(|wal| wal.mark(version))
    }

    fn mark(&mut self, version: ApplyVersion) -> Result<(), WalError> {
        if version <= self.meta.version {
            return Ok(());
        }
        self.meta.version = version;
        self.meta.write(&*self.disk)?;
        reserve::keep(&*self.disk, self.options.reserve_bytes);
        Ok(())
    }

    /// Number of batches that are known to be durable, since the directory was created. It only grows, whatever a
    /// protocol truncates or replaces: a directory that is opened with fewer than were once durable has lost some.
    pub fn durable_batches(&self) -> u64 {
        self.synced
    }

    /// Writes the pending batch without making it durable.
    ///
    /// # Errors
    /// Whatever the disk refuses; from then on the log is poisoned.
    pub fn write(&mut self) -> Result<(), WalError> {
        self.unless_poisoned(Wal::write_pending)
    }

    /// Makes everything appended so far durable: one write, one `fdatasync`; nothing when nothing is new.
    ///
    /// # Errors
    /// Whatever the disk refuses; from then on the log is poisoned, and what was appended since the last success is *perhaps*
    /// durable: end the process and recover.
    pub fn sync(&mut self) -> Result<(), WalError> {
        self.unless_poisoned(|wal| {
            wal.write_pending()?;
            if wal.synced < wal.last_batch {
                wal.sync_current()?;
                wal.retire_unneeded();
                wal.find_oldest();
            }
            // Durable with the next sync: no batch waits for it.
            if wal.synced - wal.attested >= ATTESTED_EVERY {
                wal.attest(None)?;
            }
            Ok(())
        })
    }

    /// A tiny durable write that shows that the disk answers, and attests what was durable. The log does not grow.
    ///
    /// # Errors
    /// Whatever the disk refuses; from then on the log is poisoned.
    pub fn probe(&mut self) -> Result<(), WalError> {
        self.unless_poisoned(|wal| {
            wal.attest(None)?;
            wal.sync_current()
        })
    }

    /// Writes down outside of the batches how far they are durable, so that a tail that was durable and vanished is not taken
    /// for one that was cut. Two places take turns: a crash may spoil the one that is being written. The last attestation of a segment
    /// names the one in which the log goes on: without it, a log whose newest segments somebody deleted would look like an older one.
    fn attest(&mut self, goes_on_in: Option<u64>) -> Result<(), WalError> {
        self.attestations += 1;
        let index = ATTESTATION_SECTORS.start + self.attestations % 2;
        let mut sector = [0; SECTOR];
        sector[..8].copy_from_slice(&self.attestations.to_le_bytes());
        sector[GOES_ON_IN].copy_from_slice(&goes_on_in.unwrap_or(0).to_le_bytes());
        self.seal.close(index, self.synced, 0, &mut sector);
        let offset = index * SECTOR as u64;
        self.current.file.write_at(offset, &sector).map_err(|source| self.io("attesting", Some(offset), source))?;
        self.attested = self.synced;
        Ok(())
    }

    /// The number drawn when the directory was created.
    pub fn storage_incarnation(&self) -> u64 {
        self.meta.storage_incarnation
    }

    /// Bytes of all segments that the log holds now.
    pub fn bytes(&self) -> u64 {
        self.sealed.iter().map(|old| old.bytes).sum::<u64>() + self.current.header.bytes
    }

    /// Bytes left in the current segment: writes that fit need no more space from the file system.
    pub fn room(&self) -> u64 {
        (self.current.sectors() - self.next_sector) * SECTOR as u64
    }

    /// The reason why the segment after the current one could not be made ready so far; `None` while all is well. What
    /// fits into [`Wal::room`] can still be written: time to refuse what grows the log, before a write fails for good
    /// (ST-10). Asks for the segment again, so call it now and then, for example with [`Wal::probe`].
    pub fn shortage(&mut self) -> Option<String> {
        let failure = self.preparer.failure()?.cause();
        self.preparer.ask(self.header(self.current.header.sequence + 1));
        Some(failure)
    }

    /// Why a write waits for the log's next segment, for a thread that does not wait with it. [`Wal::shortage`] says so sooner, while
    /// there is room to write in; a log that grows faster than anybody asks has none.
    pub fn wait(&self) -> Wait {
        self.preparer.wait()
    }

    /// Whether the segment after the current one is ready: there is room for as much again. Ask [`Wal::shortage`] first.
    pub fn is_next_ready(&self) -> bool {
        self.preparer.is_ready()
    }

    fn unless_poisoned<T>(&mut self, work: impl FnOnce(&mut Wal) -> Result<T, WalError>) -> Result<T, WalError> {
        if let Some(first) = &self.poison {
            return Err(WalError::Poisoned { directory: self.disk.location(""), first: first.clone() });
        }
        let result = work(self);
        if let Err(error) = &result {
            self.poison = Some(error.to_string());
        }
        result
    }

    fn io(&self, action: &'static str, offset: Option<u64>, source: std::io::Error) -> WalError {
        WalError::io(action, self.disk.location(&self.current.name), offset, source)
    }

    fn header(&self, sequence: u64) -> Header {
        Header {
            identity: self.meta.identity.clone(),
            storage_incarnation: self.meta.storage_incarnation,
            sequence,
            bytes: self.options.bytes_of(sequence),
        }
    }

    fn write_pending(&mut self) -> Result<(), WalError> {
        if self.pending_count == 0 {
            return Ok(());
        }
        let fits = |wal: &Wal, bytes| batch::sectors_for(bytes) <= wal.current.sectors() - wal.next_sector;
        let is_first = self.next_sector == FIRST_SECTOR;
        if is_first || !fits(self, self.pending.len()) {
            let restated = self.restate();
            if !is_first || !fits(self, self.pending.len()) {
                self.rotate()?;
            }
            self.pending_count += restated;
        }
        let number = self.last_batch + 1;
        let bytes = u32::try_from(self.pending.len() - batch::HEAD).expect("a batch is bounded below 2^30");
        let head = Head { synced: self.synced, oldest: self.oldest, bytes, count: self.pending_count };
        head.put(&mut self.pending[..batch::HEAD]);
        batch::seal(self.seal, self.next_sector, number, &self.pending, &mut self.sectors);
        let offset = self.next_sector * SECTOR as u64;
        self.current.file.write_at(offset, &self.sectors).map_err(|source| self.io("writing", Some(offset), source))?;
        self.next_sector += (self.sectors.len() / SECTOR) as u64;
        self.last_batch = number;
        self.oldest_written = self.oldest;
        self.index_max = self.index_max.max(self.pending_index_max);
        self.pending_index_max = 0;
        self.pending_count = 0;
        self.pending.truncate(batch::HEAD);
        Ok(())
    }

    /// Puts all that is not an entry, as it was before the pending records, in front of them. Returns how many records.
    fn restate(&mut self) -> u32 {
        let mut whole = BytesMut::with_capacity(self.pending.len() + 1024);
        whole.put_bytes(0, batch::HEAD);
        let records = restated(&self.scalars_before);
        for record in &records {
            batch::put_record(record, self.last_batch + 1, &mut whole);
        }
        whole.extend_from_slice(&self.pending[batch::HEAD..]);
        self.pending = whole;
        u32::try_from(records.len()).expect("four at most")
    }

    /// Goes on in the next segment. Nothing unsynced stays behind, so a log is only ever torn in its last segment.
    fn rotate(&mut self) -> Result<(), WalError> {
        if self.synced == 0 {
            self.sync_current()?;
        }
        let sequence = self.current.header.sequence + 1;
        let mut header = self.header(sequence);
        let needed = (FIRST_SECTOR + batch::sectors_for(self.pending.len())) * SECTOR as u64;
        header.bytes = header.bytes.max(needed);
        let next = self.preparer.take(&header)?;
        // It is there durably before it is named, and named before anything in it can be acknowledged.
        // Where nothing was written before, there is nothing to attest.
        if self.synced > 0 {
            self.attest(Some(sequence))?;
            self.sync_current()?;
        }
        let full = std::mem::replace(&mut self.current, next);
        self.sealed.push_back(Sealed {
            sequence: full.header.sequence,
            bytes: full.header.bytes,
            index_max: self.index_max,
        });
        self.seal = Seal::of(self.meta.storage_incarnation, sequence);
        self.index_max = 0;
        self.next_sector = FIRST_SECTOR;
        self.preparer.ask(self.header(sequence + 1));
        // Where a start had to use it up, there may be room again.
        reserve::keep(&*self.disk, self.options.reserve_bytes);
        Ok(())
    }

    fn sync_current(&mut self) -> Result<(), WalError> {
        self.current.file.sync_data().map_err(|source| self.io("syncing", None, source))?;
        self.synced = self.last_batch;
        Ok(())
    }

    /// Segments below the first that a durable batch calls needed go to be used again.
    fn retire_unneeded(&mut self) {
        let unneeded = self.sealed.partition_point(|old| old.sequence < self.oldest_written);
        for old in self.sealed.drain(..unneeded) {
            self.preparer.retire(segment::name(old.sequence), old.bytes);
        }
    }

    /// The first segment with a slot above the snapshot, or the current one.
    fn find_oldest(&mut self) {
        let covered = self.scalars.snapshot_index();
        let needed = self.sealed.iter().find(|old| old.index_max > covered);
        self.oldest = needed.map_or(self.current.header.sequence, |old| old.sequence).max(self.oldest);
    }
}

/// Everything that is not an entry, as records whose fold it is.
fn restated(scalars: &Durable) -> Vec<Record> {
    let mut records = Vec::new();
    if scalars.promise != Promise::default() {
        records.push(Record::Promise(scalars.promise));
    }
    if scalars.established != Term::ZERO {
        records.push(Record::Established(scalars.established));
    }
    // The commit before the snapshot: only in this order is their fold exactly what it was.
    if scalars.committed.index > 0 {
        records.push(Record::Committed(scalars.committed));
    }
    if let Some(reference) = &scalars.snapshot {
        records.push(Record::Snapshot(reference.clone()));
    }
    records
}

fn list(disk: &dyn Disk) -> Result<Vec<String>, WalError> {
    disk.list().map_err(|source| WalError::io("listing", disk.location(""), None, source))
}

fn remove_all<'a>(disk: &dyn Disk, names: impl Iterator<Item = &'a String>) -> Result<(), WalError> {
    let mut count = 0;
    for name in names {
        disk.remove(name).map_err(|source| WalError::io("removing", disk.location(name), None, source))?;
        count += 1;
    }
    if count == 0 {
        return Ok(());
    }
    disk.sync_directory().map_err(|source| WalError::io("syncing the directory", disk.location(""), None, source))
}

/// Creates the log in a blank directory: identity first, so that a segment is never without one.
fn create(
    disk: &dyn Disk,
    names: &[String],
    identity: &Identity,
    founding: &Membership,
    options: &Options,
) -> Result<Meta, WalError> {
    let is_ours = |name: &&String| segment::sequence(name).is_some() || segment::is_temporary(name);
    remove_all(disk, names.iter().filter(is_ours))?;
    let drawn = || std::iter::repeat_with(|| disk.fresh_number()).find(|number| *number != 0);
    let storage_incarnation = options.storage_incarnation.filter(|given| *given != 0).or_else(drawn);
    let storage_incarnation = storage_incarnation.expect("a disk draws other numbers than 0, too");
    let meta = Meta {
        identity: identity.clone(),
        founding: founding.clone(),
        storage_incarnation,
        boots: 0,
        starts: Vec::new(),
        segment: 1,
        version: ApplyVersion::FIRST,
    };
    meta.write(disk)?;
    let header = Header { identity: identity.clone(), storage_incarnation, sequence: 1, bytes: options.bytes_of(1) };
    Segment::make(disk, &header, None, &|| false)?;
    Ok(meta)
}
