//! A disk in memory that breaks on command: [`SimulatedDisk`].
//!
//! It keeps apart, as a real one does, the bytes that processes see (the page cache) and those that survive a power cut. A
//! crash at any operation loses unsynced sectors and unsynced directory entries, each by itself, from a seed. A failed sync
//! behaves as on Linux: the pages count as clean from then on, later syncs succeed and bring nothing back, and reads go on
//! showing bytes that are not on the disk (ST-05). All of it is deterministic: equal seeds and equal calls give equal disks.
//!
//! It deliberately takes no time: a world that wants slow disks delays the calls.
//!
//! Source: `docs/protocols/rules/failures.md`, ST-01 to ST-17. Read next: `tests/crashes.rs`.

use crate::disk::{Disk, File};
use crate::sector::SECTOR;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The operations that go wrong. Operations are counted from 1; only those that change something count.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// The machine stops at this operation: it may have happened or not, and nothing answers until the restart.
    pub crash_at: Option<u64>,
    /// This operation fails with an I/O error.
    pub fails_at: Option<u64>,
    /// Every operation from this one on fails with an I/O error.
    pub fails_from: Option<u64>,
    /// This operation, if it is a write, lands so many sectors further on.
    pub misdirected_at: Option<(u64, u64)>,
    /// This read (reads are counted by themselves) has one bit flipped, chosen by the seed.
    pub rots_read: Option<u64>,
    /// Bytes that all files together may have.
    pub space_bytes: Option<u64>,
}

/// The part of the unsynced bytes that a restart loses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// It loses nothing: the process was killed, and the machine and its page cache live on.
    Nothing,
    /// It loses everything: a power cut just after a long silence of the disk.
    Everything,
    /// Each sector and each directory entry by itself, from the seed.
    Each,
    /// As [`Loss::Each`], and a sector that was all zeros may also be cut inside. (Disks overwrite sectors whole; this goes beyond
    /// what they do, as far as the log bears it.)
    EachTorn,
}

/// A disk in memory; clones share it.
#[derive(Clone)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

#[derive(Clone, Default)]
struct State {
    seed: u64,
    faults: Faults,
    operations: u64,
    reads: u64,
    injected: u64,
    /// Of these, those after which something else stands on the disk, or was read, than was written.
    damaged: u64,
    is_off: bool,
    /// Syncs succeed and do nothing.
    lies: bool,
    /// Files opened before the last restart answer nothing any more.
    life: u64,
    next_inode: u64,
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    unsynced_names: Vec<NameChange>,
}

type SectorBytes = [u8; SECTOR];

#[derive(Clone, Default)]
struct Inode {
    /// The bytes that processes see.
    bytes: Vec<u8>,
    durable_length: usize,
    /// Sectors on the disk that differ from `bytes`, and that the next sync will change.
    dirty: BTreeMap<usize, SectorBytes>,
    /// Sectors on the disk that differ from `bytes`, and that no sync will change, for one has failed.
    forsaken: BTreeMap<usize, SectorBytes>,
}

#[derive(Clone)]
enum NameChange {
    Set { name: String, inode: u64 },
    Move { from: String, to: String, inode: u64 },
    Clear { name: String },
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<String, u64>) {
        match self {
            NameChange::Set { name, inode } => drop(names.insert(name, inode)),
            NameChange::Move { from, to, inode } => {
                names.remove(&from);
                names.insert(to, inode);
            }
            NameChange::Clear { name } => drop(names.remove(&name)),
        }
    }
}

/// The result of the operation that is being counted.
enum DiskOutcome {
    Happens,
    /// It may have happened; the caller sees an error, as everybody does from now on.
    IsTheLast,
    Fails,
}

impl State {
    /// Draws with SplitMix64: all that is needed here is that seeds differ.
    fn draw(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn check_on(&self, life: u64) -> io::Result<()> {
        if self.is_off || self.life != life {
            return Err(io::Error::other("the simulated machine is off"));
        }
        Ok(())
    }

    fn count(&mut self, life: u64) -> io::Result<DiskOutcome> {
        self.check_on(life)?;
        self.operations += 1;
        let now = Some(self.operations);
        if self.faults.crash_at == now {
            self.injected += 1;
            self.is_off = true;
            return Ok(DiskOutcome::IsTheLast);
        }
        if self.faults.fails_at == now || self.faults.fails_from.is_some_and(|from| from <= self.operations) {
            self.injected += 1;
            return Ok(DiskOutcome::Fails);
        }
        Ok(DiskOutcome::Happens)
    }

    /// Answers an operation that has been carried out as far as its outcome wants.
    fn answer<T>(outcome: DiskOutcome, value: T) -> io::Result<T> {
        match outcome {
            DiskOutcome::Happens => Ok(value),
            DiskOutcome::IsTheLast => Err(io::Error::other("the simulated machine is off")),
            DiskOutcome::Fails => Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())),
        }
    }

    fn change_name(&mut self, change: NameChange) {
        change.clone().apply(&mut self.names);
        self.unsynced_names.push(change);
    }

    fn inode(&mut self, name: &str) -> io::Result<u64> {
        self.names.get(name).copied().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn has_room(&self, more: u64) -> io::Result<()> {
        let used: u64 = self.names.values().map(|inode| self.inodes[inode].bytes.len() as u64).sum();
        match self.faults.space_bytes {
            Some(space) if used + more > space => Err(io::Error::from(io::ErrorKind::StorageFull)),
            _ => Ok(()),
        }
    }

    fn lose(&mut self, loss: Loss) {
        let changes = std::mem::take(&mut self.unsynced_names);
        let mut names = std::mem::take(&mut self.durable_names);
        for change in changes {
            if loss != Loss::Everything && self.draw().is_multiple_of(2) {
                change.apply(&mut names);
            }
        }
        let mut inodes = std::mem::take(&mut self.inodes);
        inodes.retain(|number, _| names.values().any(|inode| inode == number));
        for inode in inodes.values_mut() {
            self.lose_of(inode, loss);
        }
        self.inodes = inodes;
        self.names = names.clone();
        self.durable_names = names;
    }

    fn lose_of(&mut self, inode: &mut Inode, loss: Loss) {
        for (sector, old) in std::mem::take(&mut inode.forsaken) {
            inode.put_back(sector, &old, SECTOR);
        }
        for (sector, old) in std::mem::take(&mut inode.dirty) {
            let coin = self.draw();
            match loss {
                Loss::Each | Loss::EachTorn if coin.is_multiple_of(2) => {}
                // A prefix of the new bytes arrived, the rest is what was there.
                Loss::EachTorn if coin % 8 == 1 && old.iter().all(|byte| *byte == 0) => {
                    // At a word, as copies to and from a device are.
                    let cut = (coin >> 32) as usize % (SECTOR / 4) * 4;
                    let mut mixed = old;
                    let start = sector * SECTOR;
                    let end = (start + cut).min(inode.bytes.len());
                    mixed[..end.saturating_sub(start)].copy_from_slice(&inode.bytes[start..end.max(start)]);
                    inode.put_back(sector, &mixed, SECTOR);
                }
                _ => inode.put_back(sector, &old, SECTOR),
            }
        }
        let length = inode.bytes.len();
        if length > inode.durable_length {
            let more = (length - inode.durable_length) as u64;
            let kept = if loss == Loss::Everything { 0 } else { self.draw() % (more + 1) };
            inode.bytes.truncate(inode.durable_length + kept as usize);
        }
        inode.durable_length = inode.bytes.len();
    }
}

impl Inode {
    fn put_back(&mut self, sector: usize, old: &SectorBytes, count: usize) {
        let start = (sector * SECTOR).min(self.bytes.len());
        let end = (start + count).min(self.bytes.len());
        self.bytes[start..end].copy_from_slice(&old[..end - start]);
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        for sector in offset / SECTOR..end.div_ceil(SECTOR) {
            if let Some(old) = self.forsaken.remove(&sector) {
                // The sector on the disk stays as it was before the sync that failed; the next sync may change it.
                self.dirty.insert(sector, old);
            } else if !self.dirty.contains_key(&sector) {
                let mut old = [0; SECTOR];
                let start = sector * SECTOR;
                let stop = (start + SECTOR).min(self.bytes.len());
                old[..stop - start].copy_from_slice(&self.bytes[start..stop]);
                self.dirty.insert(sector, old);
            }
        }
        self.bytes[offset..end].copy_from_slice(bytes);
    }
}

impl std::fmt::Debug for SimulatedDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        write!(f, "simulated disk with {} files after {} operations", state.names.len(), state.operations)
    }
}

impl SimulatedDisk {
    /// A blank disk whose chances come from `seed`.
    pub fn new(seed: u64) -> SimulatedDisk {
        SimulatedDisk(Arc::new(Mutex::new(State { seed, ..State::default() })))
    }

    /// A disk of its own that is what this one is now, with chances from `seed`.
    #[must_use]
    pub fn fork(&self, seed: u64) -> SimulatedDisk {
        let state = State { seed, ..self.state().clone() };
        SimulatedDisk(Arc::new(Mutex::new(state)))
    }

    /// Sets the faults that happen from now on.
    pub fn plan(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Number of operations that change something, begun since the disk was made.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// From now on syncs of files succeed and do nothing, or do again what they say (ST-04).
    pub fn lie(&self, lies: bool) {
        self.state().lies = lies;
    }

    /// All that was written is on the disk from now on, as when the cache of a controller that had lied is written out.
    pub fn flush(&self) {
        for inode in self.state().inodes.values_mut() {
            inode.dirty.clear();
            inode.durable_length = inode.bytes.len();
        }
    }

    /// Number of reads, begun since the disk was made.
    pub fn reads(&self) -> u64 {
        self.state().reads
    }

    /// Bytes of all files together.
    pub fn used_bytes(&self) -> u64 {
        let state = self.state();
        state.names.values().map(|inode| state.inodes[inode].bytes.len() as u64).sum()
    }

    /// Whether the machine stopped, as [`Faults::crash_at`] wanted.
    pub fn is_off(&self) -> bool {
        self.state().is_off
    }

    /// Number of faults that really happened: a test that injected none has shown nothing.
    pub fn injected(&self) -> u64 {
        self.state().injected
    }

    /// Whether something else stands on it, or was read, than was written: what was synced may not come back.
    pub fn is_damaged(&self) -> bool {
        self.state().damaged > 0
    }

    /// Starts the machine (or only the process) again. Files opened before answer nothing any more, and faults are over.
    pub fn restart(&self, loss: Loss) {
        let mut state = self.state();
        if loss != Loss::Nothing {
            state.lose(loss);
        }
        state.is_off = false;
        state.life += 1;
        state.faults = Faults::default();
    }

    /// The content of a file as processes see it; `None` when it is absent.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        Some(state.inodes[state.names.get(name)?].bytes.clone())
    }

    /// Replaces what a file holds, durably, creating it if need be: damage by somebody else.
    pub fn damage(&self, name: &str, contents: Vec<u8>) {
        let mut state = self.state();
        let inode = match state.names.get(name) {
            Some(inode) => *inode,
            None => {
                state.next_inode += 1;
                let number = state.next_inode;
                state.names.insert(name.into(), number);
                state.durable_names.insert(name.into(), number);
                number
            }
        };
        let durable_length = contents.len();
        state.inodes.insert(inode, Inode { bytes: contents, durable_length, ..Inode::default() });
    }

    /// Flips one bit of a file, durably.
    ///
    /// # Panics
    /// When the file has no such bit.
    pub fn flip(&self, name: &str, bit: usize) {
        let mut state = self.state();
        let inode = state.inode(name).expect("a bit of a file that exists");
        let inode = state.inodes.get_mut(&inode).expect("names lead to files");
        inode.bytes[bit / 8] ^= 1 << (bit % 8);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self, inode: u64, life: u64) -> Box<dyn File> {
        Box::new(SimulatedFile { disk: self.clone(), inode, life })
    }
}

impl Disk for SimulatedDisk {
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn File>> {
        let mut state = self.state();
        let life = state.life;
        let outcome = state.count(life)?;
        if matches!(outcome, DiskOutcome::Fails) {
            return State::answer(outcome, ()).map(|()| unreachable!("a failing operation answers with its error"));
        }
        state.has_room(bytes)?;
        state.next_inode += 1;
        let number = state.next_inode;
        state.inodes.insert(number, Inode { bytes: vec![0; bytes as usize], ..Inode::default() });
        state.change_name(NameChange::Set { name: name.into(), inode: number });
        State::answer(outcome, self.opened(number, life))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        let mut state = self.state();
        state.check_on(state.life)?;
        let inode = state.inode(name)?;
        Ok(self.opened(inode, state.life))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.state();
        state.check_on(state.life)?;
        Ok(state.names.keys().cloned().collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        let life = state.life;
        let outcome = state.count(life)?;
        if !matches!(outcome, DiskOutcome::Fails) {
            let inode = state.inode(from)?;
            state.change_name(NameChange::Move { from: from.into(), to: to.into(), inode });
        }
        State::answer(outcome, ())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        let life = state.life;
        let outcome = state.count(life)?;
        if !matches!(outcome, DiskOutcome::Fails) {
            state.inode(name)?;
            state.change_name(NameChange::Clear { name: name.into() });
        }
        State::answer(outcome, ())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.state();
        let life = state.life;
        let outcome = state.count(life)?;
        if matches!(outcome, DiskOutcome::Happens) {
            state.unsynced_names.clear();
            state.durable_names = state.names.clone();
        }
        State::answer(outcome, ())
    }

    fn fresh_number(&self) -> u64 {
        self.state().draw()
    }

    fn location(&self, name: &str) -> String {
        format!("simulated:{name}")
    }
}

/// A file of a simulated disk.
struct SimulatedFile {
    disk: SimulatedDisk,
    inode: u64,
    life: u64,
}

/// The error of operations on a file that no name leads to any more; nobody is expected to hold one.
fn gone() -> io::Error {
    io::Error::other("the simulated file is gone")
}

impl File for SimulatedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.disk.state();
        state.check_on(self.life)?;
        state.reads += 1;
        let rots = state.faults.rots_read == Some(state.reads);
        let coin = if rots { state.draw() } else { 0 };
        let bytes = &state.inodes.get(&self.inode).ok_or_else(gone)?.bytes;
        let start = usize::try_from(offset).map_or(bytes.len(), |offset| offset.min(bytes.len()));
        let count = buffer.len().min(bytes.len() - start);
        buffer[..count].copy_from_slice(&bytes[start..start + count]);
        if rots && count > 0 {
            let bit = coin as usize % (count * 8);
            buffer[bit / 8] ^= 1 << (bit % 8);
            (state.injected, state.damaged) = (state.injected + 1, state.damaged + 1);
        }
        Ok(count)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        let outcome = state.count(self.life)?;
        if !matches!(outcome, DiskOutcome::Fails) {
            let astray = match state.faults.misdirected_at {
                Some((operation, sectors)) if operation == state.operations => {
                    (state.injected, state.damaged) = (state.injected + 1, state.damaged + 1);
                    sectors * SECTOR as u64
                }
                _ => 0,
            };
            let offset = (offset + astray) as usize;
            let length = state.inodes.get(&self.inode).ok_or_else(gone)?.bytes.len();
            state.has_room((offset + bytes.len()).saturating_sub(length) as u64)?;
            state.inodes.get_mut(&self.inode).ok_or_else(gone)?.write(offset, bytes);
        }
        State::answer(outcome, ())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        let outcome = state.count(self.life)?;
        if state.lies && matches!(outcome, DiskOutcome::Happens) {
            return Ok(());
        }
        let inode = state.inodes.get_mut(&self.inode).ok_or_else(gone)?;
        match outcome {
            DiskOutcome::Happens => {
                inode.dirty.clear();
                inode.durable_length = inode.bytes.len();
            }
            DiskOutcome::Fails => {
                let mut dirty = std::mem::take(&mut inode.dirty);
                inode.forsaken.append(&mut dirty);
            }
            DiskOutcome::IsTheLast => {}
        }
        State::answer(outcome, ())
    }

    fn len(&self) -> io::Result<u64> {
        let state = self.disk.state();
        state.check_on(self.life)?;
        Ok(state.inodes.get(&self.inode).ok_or_else(gone)?.bytes.len() as u64)
    }
}
