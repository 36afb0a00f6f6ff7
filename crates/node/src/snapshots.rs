//! Two threads beside the loop: on one, snapshots are cut, fetched and loaded; the other reads them for peers, which must not
//! wait until a cut of gigabytes has ended.

use crate::config::OnFatal;
use crate::node::or_fatal;
use crate::timers::prefer_this_thread;
use bytes::Bytes;
use hustings_core::replica::ReplicaState;
use hustings_core::replica::SnapshotContents;
use hustings_core::replica::message::Position;
use hustings_core::{Lsn, NodeId, SnapshotFile, SnapshotReference, StateMachine};
use hustings_wal::{Disk, SnapshotReader, SnapshotStore, Stored, WalError, peers};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SendError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// Bytes of one chunk between peers: on a link of 8 Mbit/s a heartbeat waits 32 ms behind one. Fetchers ask for several ahead.
const CHUNK_BYTES: usize = 32 << 10;

/// Snapshot files kept: the one that the log names, and the one before it for a peer that is about to fetch that.
const KEPT: usize = 2;

/// Size from which on only the snapshot that the log names is kept: two of several gigabytes would take the disk that a third is cut on.
const KEPT_ALONE_BYTES: u64 = 1 << 30;

/// A snapshot that was read to its end and found sound is not read again to know that for this long.
const VERIFIED_FOR: Duration = Duration::from_secs(600);

/// A snapshot that a peer has read from is kept for this long after its last question, however many newer ones there are: where
/// snapshots are cut faster than one is fetched, no fetch would ever end.
const PINNED_FOR: Duration = Duration::from_secs(30);

/// While a peer fetches a snapshot of this size the next one waits: where the log behind it has gone when it has come, the peer would
/// have to begin again, and so for ever.
const LARGE_FETCH_BYTES: u64 = 64 << 20;

/// So often in a row; each time the log grows once more by what lets a snapshot be due.
const POSTPONED_MAX: u32 = 3;

/// Pause before the thread tries again to open a snapshot while too many files are open.
const DESCRIPTORS_PAUSE: Duration = Duration::from_millis(20);

/// A job that the loop gives the snapshot threads.
pub(crate) enum SnapshotJob<S: StateMachine> {
    Cut(SnapshotContents<S>),
    Digest(SnapshotContents<S>),
    Store {
        reference: SnapshotReference,
        offset: u64,
        bytes: Bytes,
    },
    Read {
        to: NodeId,
        lsn: Lsn,
        digest: u32,
        offset: u64,
    },
    Load(SnapshotReference),
    /// Write down how much of their logs other members have said to be durable.
    Remember(Vec<Position>),
    /// The record that names this one is durable: no older one can be needed after a crash.
    Prune(SnapshotReference),
    /// Drops a state that was replaced: that may free gigabytes, of memory and of disk.
    LetGo(S::View),
}

/// The loop's end of the queues of jobs.
pub(crate) struct SnapshotJobs<S: StateMachine> {
    others: Sender<SnapshotJob<S>>,
    reads: Sender<SnapshotJob<S>>,
}

impl<S: StateMachine> SnapshotJobs<S> {
    /// Hands a job to its thread.
    ///
    /// # Errors
    /// The thread has ended.
    pub(crate) fn send(&self, job: SnapshotJob<S>) -> Result<(), SendError<SnapshotJob<S>>> {
        match job {
            SnapshotJob::Read { .. } => self.reads.send(job),
            other => self.others.send(other),
        }
    }
}

/// The result of a job.
pub(crate) enum SnapshotNews<S: StateMachine> {
    Cut(SnapshotReference),
    /// The digest of the state behind this entry.
    Digest {
        index: u64,
        digest: u64,
    },
    /// There is no room for one now, or no descriptor; the log goes on, and the next one is tried when it is due.
    NotCut(String),
    Stored(Result<SnapshotReference, SnapshotReference>),
    /// A chunk of so many bytes is no longer held here: it was given to its file, or refused.
    ChunkStored(u64),
    ChunkRead {
        to: NodeId,
        lsn: Lsn,
        offset: u64,
        bytes: Option<Bytes>,
    },
    Loaded {
        lsn: Lsn,
        machine: Box<S>,
        state: ReplicaState,
    },
    /// What other members have said is not written down.
    NotRemembered(String),
    Failed(String),
}

/// Starts the threads that cut, read and store snapshots. The one that is given back ends after the other.
pub(crate) fn spawn<S: StateMachine>(
    store: SnapshotStore,
    files: Arc<dyn Disk>,
    news: UnboundedSender<SnapshotNews<S>>,
    on_fatal: OnFatal,
) -> std::io::Result<(SnapshotJobs<S>, std::thread::JoinHandle<()>)> {
    let (store, pins) = (Arc::new(store), Arc::<Mutex<Pins>>::default());
    let begin = |name: &str, before: Option<std::thread::JoinHandle<()>>| {
        let (jobs, arrivals) = std::sync::mpsc::channel();
        let (store, files, news, pins) = (store.clone(), files.clone(), news.clone(), pins.clone());
        let on_fatal = on_fatal.clone();
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            // A value that the disk does not give back ends the node (ADR 37).
            or_fatal(&on_fatal, || run(&store, &*files, &arrivals, &news, &pins));
            // Its panic was told where it happened.
            before.map(std::thread::JoinHandle::join);
        })?;
        Ok::<_, std::io::Error>((jobs, thread))
    };
    let (reads, reader) = begin("hustings-chunks", None)?;
    let (others, thread) = begin("hustings-snapshot", Some(reader))?;
    Ok((SnapshotJobs { others, reads }, thread))
}

fn run<S: StateMachine>(
    store: &SnapshotStore,
    files: &dyn Disk,
    arrivals: &Receiver<SnapshotJob<S>>,
    news: &UnboundedSender<SnapshotNews<S>>,
    pins: &Mutex<Pins>,
) {
    prefer_this_thread(10);
    // A panic while it is held leaves at worst one peer's last question out.
    let pins = || pins.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut newest, mut postponed) = (None::<SnapshotReference>, 0);
    let mut verified = None::<(Lsn, u32, Instant)>;
    while let Ok(job) = arrivals.recv() {
        let result = match job {
            SnapshotJob::Cut(_)
                if postponed < POSTPONED_MAX && pins().is_large_fetch(newest.as_ref(), Instant::now()) =>
            {
                postponed += 1;
                Ok(Some(SnapshotNews::NotCut(
                    "a member fetches the last one, which would take it up to the log".into(),
                )))
            }
            SnapshotJob::Cut(contents) => match cut(store, &contents) {
                Ok(reference) => {
                    (newest, postponed) = (Some(reference.clone()), 0);
                    Ok(Some(SnapshotNews::Cut(reference)))
                }
                Err(error) if error.is_shortage() => {
                    // The unfinished snapshot takes room that others need more.
                    store.discard(contents.lsn).map(|()| Some(SnapshotNews::NotCut(error.cause())))
                }
                Err(error) => Err(error),
            },
            SnapshotJob::Digest(contents) => {
                Ok(Some(SnapshotNews::Digest { index: contents.lsn.index, digest: contents.digest() }))
            }
            SnapshotJob::Store { reference, offset, bytes } => {
                let stored = store.store_chunk(&reference, offset, &bytes);
                if news.send(SnapshotNews::ChunkStored(bytes.len() as u64)).is_err() {
                    return;
                }
                match stored {
                    Ok(Stored::More) => Ok(None),
                    Ok(Stored::Complete) => Ok(Some(SnapshotNews::Stored(Ok(reference)))),
                    Ok(Stored::Corrupt) => {
                        tracing::warn!(
                            lsn = %reference.lsn,
                            "what was fetched is not the snapshot that was promised: its bytes have another digest; it is asked for again"
                        );
                        Ok(Some(SnapshotNews::Stored(Err(reference))))
                    }
                    // Not now: its leader offers it again.
                    Err(error) if error.is_shortage() => Ok(Some(SnapshotNews::Stored(Err(reference)))),
                    Err(error) => Err(error),
                }
            }
            SnapshotJob::Read { to, lsn, digest, offset } => {
                let now = Instant::now();
                let begins_again = pins().note(to, (lsn, digest), offset, now);
                let is_known = verified
                    .is_some_and(|(of, its, at)| (of, its) == (lsn, digest) && now.duration_since(at) < VERIFIED_FOR);
                // Perhaps the last time it was not what had been promised: a disk that gives back other bytes than were written would keep
                // every newcomer out, and nobody would know.
                let sound = match begins_again && !is_known {
                    true => store.verify(lsn, digest).map(|()| verified = Some((lsn, digest, now))),
                    false => Ok(()),
                };
                match sound.and_then(|()| store.read_chunk(lsn, digest, offset, CHUNK_BYTES)) {
                    Ok(bytes) => Ok(Some(SnapshotNews::ChunkRead { to, lsn, offset, bytes })),
                    // Not now: no answer, and its fetcher asks again.
                    Err(error) if error.is_for_want_of_descriptors() => Ok(None),
                    // An older one, which a peer had begun: it has the newer one.
                    Err(error) if !store.is_newest(lsn, digest) => {
                        tracing::warn!("{to} cannot go on with an older snapshot, and is given the newest: {error}");
                        Ok(Some(SnapshotNews::ChunkRead { to, lsn, offset, bytes: None }))
                    }
                    Err(error) => Err(error),
                }
            }
            SnapshotJob::Load(reference) => match on_a_thread_of_its_own(|| load_patiently(store, &reference)) {
                Ok((machine, state)) => {
                    newest = Some(reference.clone());
                    Ok(Some(SnapshotNews::Loaded { lsn: reference.lsn, machine: Box::new(machine), state }))
                }
                Err(why) => Ok(Some(SnapshotNews::Failed(why))),
            },
            SnapshotJob::Remember(positions) => {
                let written = peers::write_positions(files, &positions);
                Ok(written.err().map(|error| SnapshotNews::NotRemembered(error.to_string())))
            }
            SnapshotJob::Prune(reference) => match prune(store, &reference, &{ pins().clone() }, Instant::now()) {
                // Not now: the next one removes them too.
                Err(error) if error.is_shortage() => Ok(None),
                result => result.map(|()| None),
            },
            SnapshotJob::LetGo(state) => {
                drop(state);
                Ok(None)
            }
        };
        let result = result.unwrap_or_else(|error| Some(SnapshotNews::Failed(error.to_string())));
        if let Some(result) = result
            && news.send(result).is_err()
        {
            return;
        }
    }
}

/// The snapshot that each peer fetches, and when it last asked for a part.
#[derive(Clone, Default)]
struct Pins(BTreeMap<NodeId, Pin>);

#[derive(Clone, Copy)]
struct Pin {
    of: (Lsn, u32),
    asked: Instant,
}

impl Pins {
    /// A peer asks for the part of a snapshot that begins here; answers whether it begins with this one again.
    fn note(&mut self, peer: NodeId, of: (Lsn, u32), offset: u64, now: Instant) -> bool {
        let before = self.0.insert(peer, Pin { of, asked: now });
        offset == 0 && before.is_some_and(|before| before.of == of)
    }

    /// Whether a peer fetches this one, and it is so large that newer ones could come sooner than the end of it.
    fn is_large_fetch(&self, newest: Option<&SnapshotReference>, now: Instant) -> bool {
        newest.is_some_and(|newest| newest.bytes >= LARGE_FETCH_BYTES && self.hold((newest.lsn, newest.digest), now))
    }

    fn hold(&self, of: (Lsn, u32), now: Instant) -> bool {
        self.0.values().any(|pin| pin.of == of && now.duration_since(pin.asked) < PINNED_FOR)
    }
}

fn prune(store: &SnapshotStore, needed: &SnapshotReference, pins: &Pins, now: Instant) -> Result<(), WalError> {
    let kept = if needed.bytes < KEPT_ALONE_BYTES { KEPT } else { 1 };
    store.keep_newest_and(kept, needed, &|lsn, digest| pins.hold((lsn, digest), now))
}

fn cut<S: StateMachine>(store: &SnapshotStore, contents: &SnapshotContents<S>) -> Result<SnapshotReference, WalError> {
    let mut writer = store.writer(contents.lsn, contents.membership.clone())?;
    let mut result = Ok(());
    let once_durable = contents.encode_to_file(&mut |chunk| {
        if result.is_ok() {
            result = writer.write(&chunk);
        }
    });
    result?;
    let reference = writer.finish()?;
    if let Some(once_durable) = once_durable {
        match store.file(&reference) {
            Ok(file) => once_durable(&file),
            // All stays in memory until the next one.
            Err(error) if error.is_for_want_of_descriptors() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(reference)
}

/// Loads as [`load`] does, but waits while too many files are open: the log names this snapshot already, so there is no going on without.
fn load_patiently<S: StateMachine>(
    store: &SnapshotStore,
    reference: &SnapshotReference,
) -> Result<(S, ReplicaState), String> {
    loop {
        match open(store, reference) {
            Err(error) if error.is_for_want_of_descriptors() => std::thread::sleep(DESCRIPTORS_PAUSE),
            Err(error) => return Err(error.to_string()),
            Ok((reader, file)) => return decode(reader, &file),
        }
    }
}

/// A snapshot twice: as a stream, and as the file that parts of it may stay in.
fn open(
    store: &SnapshotStore,
    reference: &SnapshotReference,
) -> Result<(SnapshotReader, Arc<dyn SnapshotFile>), WalError> {
    let file = store.file(reference)?;
    Ok((store.stream(reference)?, file))
}

/// The state machine and the applied requests inside a stored snapshot.
pub(crate) fn load<S: StateMachine>(
    store: &SnapshotStore,
    reference: &SnapshotReference,
) -> Result<(S, ReplicaState), String> {
    on_a_thread_of_its_own(|| {
        let (reader, file) = open(store, reference).map_err(|error| error.to_string())?;
        decode(reader, &file)
    })
}

/// Does what takes much memory for a moment and waits for it. An allocator keeps what a thread has freed for that thread to use again; when
/// it ends, what it freed is given back. Where no thread can be had it is done here.
fn on_a_thread_of_its_own<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let mut work = Some(work);
    let mut done = None;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("hustings-load".into());
        let thread = thread.spawn_scoped(scope, || done = work.take().map(|work| work()));
        if let Err(panic) = thread.map_or(Ok(()), std::thread::ScopedJoinHandle::join) {
            // Its panic is the caller's.
            std::panic::resume_unwind(panic);
        }
    });
    match (done, work) {
        (Some(done), _) => done,
        (None, Some(work)) => work(),
        (None, None) => unreachable!("a thread that ended without a panic has done its work"),
    }
}

/// Reads as it goes: the file and what is in it are not in memory at the same time.
fn decode<S: StateMachine>(
    mut reader: SnapshotReader,
    file: &Arc<dyn SnapshotFile>,
) -> Result<(S, ReplicaState), String> {
    let decoded = SnapshotContents::decode_from_file(&mut reader, file);
    // A file that fails reads as if it ended, and one that is damaged may look like anything: its own word comes first.
    reader.finish().map_err(|error| error.to_string())?;
    decoded.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hustings_core::Membership;
    use hustings_wal::RealDisk;

    #[test]
    fn a_snapshot_that_is_being_fetched_outlives_newer_ones() {
        // Goal: a fetch that takes longer than some snapshots ends. Method: a peer reads from the first of six snapshots while
        // the others are cut; then it falls silent.
        let directory = tempfile::tempdir().expect("a directory");
        let disk = Arc::new(RealDisk::open(directory.path()).expect("it is ours"));
        let store = SnapshotStore::open(disk).expect("it is blank");
        let cut = |index| {
            let mut writer = store.writer(Lsn::new(1, index), Arc::new(Membership::of_voters([NodeId(1)]))).unwrap();
            writer.write(&[index as u8; 100]).unwrap();
            writer.finish().unwrap()
        };
        let first = cut(1);
        let is_held = || store.read_chunk(first.lsn, first.digest, 0, 10).unwrap().is_some();
        let (mut pins, begun) = (Pins::default(), Instant::now());
        assert!(!pins.note(NodeId(2), (first.lsn, first.digest), 0, begun));
        for index in 2..=5 {
            prune(&store, &cut(index), &pins, begun + Duration::from_secs(index)).unwrap();
            assert!(is_held(), "n2 fetches it, after {index} snapshots");
        }
        assert!(store.read_chunk(Lsn::new(1, 2), first.digest, 0, 10).unwrap().is_none());
        prune(&store, &cut(6), &pins, begun + PINNED_FOR).unwrap();
        assert!(!is_held(), "nobody has asked for long");
    }

    #[test]
    fn a_snapshot_that_is_fetched_again_from_its_beginning_is_verified_and_one_that_has_rotted_is_fatal() {
        // Goal: a source whose disk gives back other bytes than were written ends, and does not give them for ever (finding of a hostile
        // reader). Method: a byte in the middle is changed; a peer reads both parts, and begins again. Another one only begins.
        let directory = tempfile::tempdir().expect("a directory");
        let disk = Arc::new(RealDisk::open(directory.path()).expect("it is ours"));
        let store = SnapshotStore::open(disk.clone()).expect("it is blank");
        let mut writer = store.writer(Lsn::new(1, 1), Arc::new(Membership::of_voters([NodeId(1)]))).unwrap();
        writer.write(&vec![1; CHUNK_BYTES + 100]).unwrap();
        let of = writer.finish().unwrap();
        for file in std::fs::read_dir(directory.path()).unwrap().flatten() {
            let mut bytes = std::fs::read(file.path()).unwrap();
            if let Some(middle) = bytes.get_mut(CHUNK_BYTES / 2) {
                *middle ^= 1;
                std::fs::write(file.path(), bytes).unwrap();
            }
        }
        let (news, mut told) = tokio::sync::mpsc::unbounded_channel();
        let on_fatal: OnFatal = Arc::new(|why: &str| panic!("{why}"));
        let (jobs, thread) = spawn::<()>(store, disk, news, on_fatal).expect("a thread");
        let mut read = |to, offset| {
            let job = SnapshotJob::Read { to: NodeId(to), lsn: of.lsn, digest: of.digest, offset };
            jobs.send(job).expect("it runs");
            told.blocking_recv()
        };
        for (to, offset) in [(2, 0), (3, 0), (2, CHUNK_BYTES as u64)] {
            assert!(matches!(read(to, offset), Some(SnapshotNews::ChunkRead { bytes: Some(_), .. })));
        }
        assert!(matches!(read(2, 0), Some(SnapshotNews::Failed(why)) if why.contains("checksum")));
        drop(jobs);
        thread.join().expect("it ends");
    }

    #[test]
    fn an_older_snapshot_that_cannot_be_read_is_told_as_gone_and_the_newest_is_fatal() {
        // Goal: a peer that goes on with one that nobody needs any more ends nobody (finding of a hostile reader). Method: both of two
        // snapshots are damaged where their frames begin.
        let directory = tempfile::tempdir().expect("a directory");
        let disk = Arc::new(RealDisk::open(directory.path()).expect("it is ours"));
        let store = SnapshotStore::open(disk.clone()).expect("it is blank");
        let [older, newest] = [1, 2].map(|index| {
            let mut writer = store.writer(Lsn::new(1, index), Arc::new(Membership::of_voters([NodeId(1)]))).unwrap();
            writer.write(&[index as u8; 100]).unwrap();
            writer.finish().unwrap()
        });
        for file in std::fs::read_dir(directory.path()).unwrap().flatten() {
            if file.metadata().unwrap().len() > 100 {
                std::fs::write(file.path(), [7; 300]).unwrap();
            }
        }
        let (news, mut told) = tokio::sync::mpsc::unbounded_channel();
        let on_fatal: OnFatal = Arc::new(|why: &str| panic!("{why}"));
        let (jobs, thread) = spawn::<()>(store, disk, news, on_fatal).expect("a thread");
        let mut read = |of: &SnapshotReference| {
            let job = SnapshotJob::Read { to: NodeId(2), lsn: of.lsn, digest: of.digest, offset: 0 };
            jobs.send(job).expect("it runs");
            told.blocking_recv()
        };
        assert!(matches!(read(&older), Some(SnapshotNews::ChunkRead { bytes: None, .. })));
        assert!(matches!(read(&newest), Some(SnapshotNews::Failed(_))));
        drop(jobs);
        thread.join().expect("it ends");
    }
}
