//! `cargo xtask page-stores`: what the store keeps in memory, beside two page stores that would keep it on disk.
//!
//! ```text
//!   page-stores DIR                        both kinds of values, each store in a process of its own
//!   page-stores load STORE KEYS BYTES DIR  puts, 64 in a batch as the log commits them; what a crash leaves stands in the log
//!   page-stores read STORE KEYS BYTES DIR  opens what `load` has left, and reads keys by chance
//! ```
//!
//! The log is in front of each of them and makes puts durable, so no batch waits for the disk: every store is told to write all that it
//! has once for 64 MiB that were put, or, for ours, when a snapshot is due. Values are random, so that nobody compresses them.

use bytes::{Buf, Bytes};
use hustings_core::{Lsn, SnapshotError, SnapshotFile, StateMachine};
use hustings_kv::{Command as Request, KvStore, Put, Range};
use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const BATCH: u64 = 64;
const READS: u64 = 100_000;
/// Bytes that are put between two moments at which a store writes all that it has, and what a page store may keep in memory.
const INTERVAL_BYTES: u64 = 64 << 20;

/// Keys in the order in which they come: neighbours in time are no neighbours in the tree.
fn key(number: u64) -> String {
    format!("/k/{:016x}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// A sequence of numbers that looks random (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            std::iter::repeat_with(|| self.next().to_le_bytes()).take(length / 8 + 1).flatten().collect();
        bytes.truncate(length);
        bytes
    }
}

trait Store {
    fn put(&mut self, batch: Vec<(String, Vec<u8>)>) -> Outcome;
    /// Writes what it has, if it thinks that it is time.
    fn persist(&mut self) -> Outcome;
    /// Writes all that it has, so that no log is needed to open it.
    fn persist_all(&mut self) -> Outcome {
        self.persist()
    }
    fn length_of(&self, key: &str) -> Outcome<Option<usize>>;
}

/// The product's state machine: small values in memory, large ones in the file of the last snapshot.
struct Ours {
    store: KvStore,
    directory: PathBuf,
    index: u64,
    since_snapshot: u64,
    snapshot_bytes: u64,
}

#[derive(Debug)]
struct Snapshot(File);

impl SnapshotFile for Snapshot {
    fn read(&self, offset: u64, length: usize) -> Result<Bytes, SnapshotError> {
        let mut bytes = vec![0; length];
        self.0.read_exact_at(&mut bytes, offset).map_err(|error| SnapshotError { what: error.to_string() })?;
        Ok(bytes.into())
    }
}

impl Ours {
    fn open(directory: &Path) -> Outcome<Ours> {
        let path = directory.join("snapshot");
        let mut ours = Ours {
            store: KvStore::new(),
            directory: directory.to_owned(),
            index: 0,
            since_snapshot: 0,
            snapshot_bytes: 0,
        };
        if path.exists() {
            // Large values stay where they are. A member reads the file part by part; here it is read whole first.
            let bytes = std::fs::read(&path)?;
            let file: Arc<dyn SnapshotFile> = Arc::new(Snapshot(File::open(&path)?));
            ours.store = KvStore::decode_from_file(&mut &bytes[..], &file, 0)?;
        }
        Ok(ours)
    }

    fn snapshot(&mut self) -> Outcome {
        let path = self.directory.join("snapshot");
        let (new, view) = (self.directory.join("next"), self.store.freeze());
        let mut writer = BufWriter::with_capacity(1 << 20, File::create(&new)?);
        let (mut failed, mut length) = (None, 0);
        let durable = KvStore::encode_to_file(&view, &mut |bytes: Bytes| {
            length += bytes.remaining() as u64;
            failed = failed.take().or(writer.write_all(&bytes).err());
        });
        failed.map_or(Ok(()), Err)?;
        writer.into_inner().map_err(|error| error.into_error())?.sync_all()?;
        std::fs::rename(&new, &path)?;
        let file: Arc<dyn SnapshotFile> = Arc::new(Snapshot(File::open(&path)?));
        if let Some(durable) = durable {
            durable(&file, 0);
        }
        (self.since_snapshot, self.snapshot_bytes) = (0, length);
        Ok(())
    }
}

impl Store for Ours {
    fn put(&mut self, batch: Vec<(String, Vec<u8>)>) -> Outcome {
        for (key, value) in batch {
            self.index += 1;
            self.since_snapshot += value.len() as u64;
            let put = Put { key: key.into(), value: value.into(), ..Put::default() };
            let payload = Request::Put(put).to_payload();
            self.store.apply(Lsn::new(1, self.index), &payload).map_err(|error| format!("{error:?}"))?;
        }
        Ok(())
    }

    fn persist(&mut self) -> Outcome {
        // As a member of large values does. One with small values cuts more often, after 100,000 entries.
        if self.since_snapshot >= self.snapshot_bytes { self.snapshot() } else { Ok(()) }
    }

    fn persist_all(&mut self) -> Outcome {
        self.snapshot()
    }

    fn length_of(&self, key: &str) -> Outcome<Option<usize>> {
        let range = Range { key: Bytes::copy_from_slice(key.as_bytes()), ..Range::default() };
        let answer = self.store.view().range(&range).map_err(|error| format!("{error:?}"))?;
        Ok(answer.kvs.first().map(|pair| pair.value.len()))
    }
}

struct Redb(redb::Database);

const TABLE: redb::TableDefinition<&str, &[u8]> = redb::TableDefinition::new("keys");

impl Redb {
    fn write(&self, batch: Vec<(String, Vec<u8>)>, durability: redb::Durability) -> Outcome {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(durability)?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for (key, value) in &batch {
                table.insert(key.as_str(), value.as_slice())?;
            }
        }
        Ok(transaction.commit()?)
    }
}

impl Store for Redb {
    fn put(&mut self, batch: Vec<(String, Vec<u8>)>) -> Outcome {
        self.write(batch, redb::Durability::None)
    }

    fn persist(&mut self) -> Outcome {
        self.write(Vec::new(), redb::Durability::Immediate)
    }

    fn length_of(&self, key: &str) -> Outcome<Option<usize>> {
        use redb::ReadableDatabase;
        let table = self.0.begin_read()?.open_table(TABLE)?;
        Ok(table.get(key)?.map(|value| value.value().len()))
    }
}

struct Fjall {
    database: fjall::Database,
    keys: fjall::Keyspace,
}

impl Store for Fjall {
    fn put(&mut self, batch: Vec<(String, Vec<u8>)>) -> Outcome {
        let mut writes = self.database.batch();
        for (key, value) in batch {
            writes.insert(&self.keys, key, value);
        }
        Ok(writes.commit()?)
    }

    fn persist(&mut self) -> Outcome {
        Ok(self.database.persist(fjall::PersistMode::SyncAll)?)
    }

    fn length_of(&self, key: &str) -> Outcome<Option<usize>> {
        Ok(self.keys.get(key)?.map(|value| value.len()))
    }
}

fn open(store: &str, directory: &Path) -> Outcome<Box<dyn Store>> {
    let cache_bytes = INTERVAL_BYTES as usize;
    Ok(match store {
        "ours" => Box::new(Ours::open(directory)?),
        "redb" => Box::new(Redb(redb::Builder::new().set_cache_size(cache_bytes).create(directory.join("redb"))?)),
        "fjall" => {
            let database = fjall::Database::builder(directory.join("fjall")).cache_size(INTERVAL_BYTES).open()?;
            // Large values apart, as it recommends.
            let options = || {
                fjall::KeyspaceCreateOptions::default().with_kv_separation(Some(fjall::KvSeparationOptions::default()))
            };
            let keys = database.keyspace("keys", options)?;
            Box::new(Fjall { database, keys })
        }
        other => return Err(format!("no store is called {other}").into()),
    })
}

/// A number of a file of `/proc/self`, by its name there.
fn own(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn bytes_in(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => bytes_in(&entry.path()),
        // What it takes of the disk, not how long it says it is.
        _ => entry.metadata().map_or(0, |data| std::os::unix::fs::MetadataExt::blocks(&data) * 512),
    };
    entries.map(size).sum()
}

/// The median, the longest but one in a thousand, and the longest of them.
fn longest(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    format!("p50 {:.3} ms, p99.9 {:.3} ms, longest {:.0} ms", at(0.5), at(0.999), at(1.0))
}

fn load(store: &str, keys: u64, length: usize, directory: &Path) -> Outcome {
    let mut chance = Chance(7);
    let mut it = open(store, directory)?;
    let (begun, mut busy, mut times, mut since) = (Instant::now(), Duration::ZERO, Vec::new(), 0);
    let mut longest_write = Duration::ZERO;
    for first in (0..keys).step_by(BATCH as usize) {
        let last = keys.min(first + BATCH);
        let batch: Vec<(String, Vec<u8>)> = (first..last).map(|number| (key(number), chance.bytes(length))).collect();
        since += (last - first) * length as u64;
        let at = Instant::now();
        it.put(batch)?;
        times.push(at.elapsed());
        if since >= INTERVAL_BYTES {
            since = 0;
            let at = Instant::now();
            it.persist()?;
            longest_write = longest_write.max(at.elapsed());
        }
        busy += at.elapsed();
    }
    it.persist_all()?;
    let resident = own("status", "VmRSS:") >> 10;
    println!(
        "{store:6} load: {:.0} puts/s, {} in all; a batch of {BATCH}: {}; writing all took {longest_write:.0?} at most; resident {resident} MiB; written {} MiB",
        keys as f64 / busy.as_secs_f64(),
        format_args!("{:.1} s", begun.elapsed().as_secs_f64()),
        longest(&mut times),
        own("io", "wchar:") >> 20,
    );
    drop(it);
    println!("{store:6} on disk: {} MiB", bytes_in(directory) >> 20);
    Ok(())
}

fn read(store: &str, keys: u64, length: usize, directory: &Path) -> Outcome {
    let begun = Instant::now();
    let it = open(store, directory)?;
    let found = it.length_of(&key(0))?;
    let opened = begun.elapsed();
    let mut chance = Chance(11);
    let (begun, mut times) = (Instant::now(), Vec::new());
    for _ in 0..READS {
        let at = Instant::now();
        let found = it.length_of(&key(chance.next() % keys))?;
        times.push(at.elapsed());
        if found != Some(length) {
            return Err(format!("a value of {found:?} bytes in place of {length}").into());
        }
    }
    let rate = READS as f64 / begun.elapsed().as_secs_f64();
    println!(
        "{store:6} open: {:.3} s until the first answer ({}); {rate:.0} reads/s: {}; resident {} MiB",
        opened.as_secs_f64(),
        if found.is_some() { "found" } else { "lost" },
        longest(&mut times),
        own("status", "VmRSS:") >> 10,
    );
    Ok(())
}

/// Runs both, each store in processes of its own.
fn all(directory: &Path) -> Outcome {
    for (keys, length) in [(1_000_000_u64, 256_usize), (65_536, 16_384)] {
        println!("{keys} keys with values of {length} bytes");
        for store in ["ours", "redb", "fjall"] {
            let data = directory.join(format!("{store}-{length}"));
            if data.exists() {
                // Left by a run that was interrupted.
                std::fs::remove_dir_all(&data)?;
            }
            std::fs::create_dir_all(&data)?;
            for verb in ["load", "read"] {
                let mut again = Command::new(std::env::current_exe()?);
                let numbers = [keys.to_string(), length.to_string()];
                if !again.args([verb, store]).args(numbers).arg(&data).status()?.success() {
                    return Err(format!("{verb} of {store} failed").into());
                }
            }
            std::fs::remove_dir_all(&data)?;
        }
    }
    Ok(())
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["load", store, keys, length, directory] => load(store, keys.parse()?, length.parse()?, Path::new(directory)),
        ["read", store, keys, length, directory] => read(store, keys.parse()?, length.parse()?, Path::new(directory)),
        [directory] => all(Path::new(directory)),
        _ => {
            Err("usage: page-stores DIRECTORY | load STORE KEYS BYTES DIRECTORY | read STORE KEYS BYTES DIRECTORY"
                .into())
        }
    }
}
