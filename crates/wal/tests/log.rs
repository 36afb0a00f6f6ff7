//! The log on a real disk: what goes in comes out, and nothing else.

use bytes::{Buf as _, Bytes};
use hustings_core::{
    ClusterId, Durable, Entry, EntryKind, Lsn, Membership, NodeId, Origin, Promise, Record, SnapshotReference, Stamp,
    Term,
};
use hustings_wal::{
    Disk, File, Identity, Options, Preparation, RealDisk, Recovered, SnapshotStore, Stored, Wal, WalError,
    meta::{FORMAT, FORMAT_VERSIONED},
    peek,
};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn identity() -> Identity {
    Identity { cluster_id: ClusterId(0xC1), node: NodeId(1), protocol: "raft".into() }
}

fn founding() -> Membership {
    Membership::of_voters([NodeId(1), NodeId(2), NodeId(3)])
}

fn small() -> Options {
    Options { segment_bytes: 64 << 10, first_segment_bytes: 32 << 10, ..Options::default() }
}

fn open(directory: &Path) -> Result<(Wal, Recovered), WalError> {
    Wal::open(Arc::new(RealDisk::open(directory)?), &identity(), &founding(), small())
}

fn put(index: u64, payload: &[u8]) -> Record {
    let origin = Origin { node: NodeId(1), incarnation: 1, sequence: index };
    let payload = Bytes::copy_from_slice(payload);
    Record::Put(Entry { lsn: Lsn::new(1, index), kind: EntryKind::Command, origin, stamp: Stamp::NONE, payload })
}

#[test]
fn a_fresh_directory_is_created_and_boots_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("node");
    assert_eq!(peek(&path).unwrap(), None);
    let (wal, first) = open(&path).unwrap();
    assert!(first.is_new && first.boots == 1 && first.durable.is_blank() && first.founding == founding());
    drop(wal);
    let (_wal, second) = open(&path).unwrap();
    assert!(!second.is_new && second.boots == 2);
    assert_eq!(second.storage_incarnation, first.storage_incarnation);
    let peeked = peek(&path).unwrap().unwrap();
    assert_eq!((peeked.identity, peeked.boots), (identity(), 2));
}

#[test]
fn what_was_synced_is_recovered_over_many_segments() {
    let directory = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(directory.path()).unwrap();
    let mut expected = Durable::default();
    let mut append = |wal: &mut Wal, record: Record| {
        wal.append(&record).unwrap();
        expected.absorb(record);
    };
    append(&mut wal, Record::Promise(Promise::vote(Term(1), NodeId(2))));
    for index in 1..=600 {
        append(&mut wal, put(index, &[index as u8; 700]));
        append(&mut wal, Record::Committed(Lsn::new(1, index - 1)));
        if index % 7 == 0 {
            wal.sync().unwrap();
        }
    }
    append(&mut wal, Record::TruncateFrom(590));
    wal.sync().unwrap();
    drop(wal);
    let (_wal, recovered) = open(directory.path()).unwrap();
    assert_eq!(recovered.durable, expected);
    assert_eq!(recovered.torn_bytes, 0);
}

#[test]
fn a_record_larger_than_a_segment_gets_a_segment_of_its_size() {
    let directory = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(directory.path()).unwrap();
    for index in 1..=3 {
        wal.append(&put(index, &vec![7; 300 << 10])).unwrap();
        wal.sync().unwrap();
    }
    drop(wal);
    let (_wal, recovered) = open(directory.path()).unwrap();
    assert_eq!(recovered.durable.entries.len(), 3);
}

#[test]
fn segments_below_a_snapshot_go_and_the_promise_stays() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(RealDisk::open(directory.path()).unwrap());
    let snapshots = SnapshotStore::open(disk.clone()).unwrap();
    let (mut wal, _) = Wal::open(disk, &identity(), &founding(), small()).unwrap();
    let mut expected = Durable::default();
    let mut append = |wal: &mut Wal, record: Record| {
        wal.append(&record).unwrap();
        wal.sync().unwrap();
        expected.absorb(record);
    };
    append(&mut wal, Record::Promise(Promise::vote(Term(1), NodeId(2))));
    append(&mut wal, Record::Established(Term(1)));
    for index in 1..=1000 {
        append(&mut wal, put(index, &[1; 600]));
        if index % 100 == 0 {
            let mut writer = snapshots.writer(Lsn::new(1, index - 5), Arc::new(founding())).unwrap();
            writer.write(&vec![3; 1000]).unwrap();
            append(&mut wal, Record::Snapshot(writer.finish().unwrap()));
        }
    }
    assert!(wal.bytes() < 512 << 10, "a megabyte was written, and {} bytes are held", wal.bytes());
    drop((wal, snapshots));
    let (_wal, recovered) = open(directory.path()).unwrap();
    assert_eq!(recovered.durable, expected);
}

#[test]
fn a_directory_is_refused_to_a_second_process_and_to_strangers() {
    let directory = tempfile::tempdir().unwrap();
    let (wal, _) = open(directory.path()).unwrap();
    let error = open(directory.path()).unwrap_err().to_string();
    assert!(error.contains("in use by another process"), "{error}");
    drop(wal);
    let disk = Arc::new(RealDisk::open(directory.path()).unwrap());
    let stranger = Identity { node: NodeId(9), ..identity() };
    let error = Wal::open(disk, &stranger, &founding(), small()).unwrap_err().to_string();
    assert!(error.contains("n1") && error.contains("n9"), "{error}");
    open(directory.path()).unwrap();
}

#[test]
fn a_snapshot_is_cut_fetched_in_chunks_and_loaded() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = |directory: &Path| SnapshotStore::open(Arc::new(RealDisk::open(directory).unwrap())).unwrap();
    let (source, target) = (store(here.path()), store(there.path()));
    let bytes: Vec<u8> = (0..1_000_000u32).map(|number| number as u8).collect();
    let mut writer = source.writer(Lsn::new(3, 70), Arc::new(founding())).unwrap();
    bytes.chunks(1000).for_each(|chunk| writer.write(chunk).unwrap());
    let reference = writer.finish().unwrap();
    assert_eq!(&source.load(&reference).unwrap()[..], &bytes[..]);
    let mut offset = 0;
    loop {
        let chunk = source.read_chunk(reference.lsn, reference.digest, offset, 70_000).unwrap().unwrap();
        match target.store_chunk(&reference, offset, &chunk).unwrap() {
            Stored::More => offset += chunk.len() as u64,
            Stored::Complete => break,
            Stored::Corrupt => panic!("nothing was damaged on the way"),
        }
    }
    assert_eq!(&target.load(&reference).unwrap()[..], &bytes[..]);
    // The same as a stream.
    let mut reader = target.reader(&reference).unwrap();
    assert_eq!(reader.remaining(), bytes.len());
    let (first, rest) = bytes.split_at(700_001);
    assert_eq!(&reader.copy_to_bytes(700_001)[..], first);
    assert_eq!(&reader.copy_to_bytes(rest.len())[..], rest);
    assert!(!reader.has_remaining());
    reader.finish().unwrap();
    assert_eq!(target.read_chunk(Lsn::new(3, 71), reference.digest, 0, 10).unwrap(), None);
    for nowhere in [reference.bytes, reference.bytes + 1, 1 << 63, u64::MAX] {
        let chunk = target.read_chunk(reference.lsn, reference.digest, nowhere, 70_000).unwrap();
        assert_eq!(chunk, None, "a peer that asks for byte {nowhere} is told that there is none");
    }
}

#[test]
fn a_fetched_snapshot_that_is_not_what_was_promised_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let store = SnapshotStore::open(Arc::new(RealDisk::open(directory.path()).unwrap())).unwrap();
    let mut writer = store.writer(Lsn::new(3, 70), Arc::new(founding())).unwrap();
    writer.write(&[1; 3000]).unwrap();
    let cut = writer.finish().unwrap();
    let wanted = SnapshotReference { lsn: Lsn::new(3, 80), ..cut };
    let outcomes = |chunks: &[(u64, &[u8])]| -> Vec<Stored> {
        let stored: Vec<Stored> =
            chunks.iter().map(|(offset, bytes)| store.store_chunk(&wanted, *offset, bytes).unwrap()).collect();
        let names = std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().file_name());
        let left: Vec<_> = names.filter(|name| name.to_string_lossy().ends_with(".tmp")).collect();
        assert!(left.is_empty(), "nothing of it takes room: {left:?}");
        stored
    };
    assert_eq!(outcomes(&[(0, &[1; 1500]), (1500, &[2; 1500])]), [Stored::More, Stored::Corrupt], "other bytes");
    assert_eq!(outcomes(&[(0, &[1; 1500]), (1600, &[1; 1400])]), [Stored::More, Stored::Corrupt], "a gap");
    assert_eq!(outcomes(&[(0, &[1; 4000])]), [Stored::Corrupt], "too many bytes");
    assert_eq!(outcomes(&[(1500, &[1; 1500])]), [Stored::Corrupt], "no beginning");
    assert!(matches!(store.load(&wanted), Err(WalError::Missing { .. })));
    assert_eq!(outcomes(&[(0, &[1; 1500]), (1500, &[1; 1500])]), [Stored::More, Stored::Complete]);
    store.keep_newest(1, &wanted).unwrap();
    assert_eq!(store.names().unwrap(), [(wanted.lsn, wanted.digest)]);
}

#[test]
fn another_format_is_refused_by_name_with_the_way_over() {
    // Goal: a directory of another version. Method: a `meta` with its format and a checksum that agrees.
    let open_with_format = |format: u32| {
        let directory = tempfile::tempdir().unwrap();
        let body = b"fields of another time";
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&format.to_le_bytes()), body);
        let length = body.len() as u32;
        let meta = [b"HUSTMETA", &format.to_le_bytes()[..], &length.to_le_bytes(), &checksum.to_le_bytes(), body];
        std::fs::write(directory.path().join("meta"), meta.concat()).unwrap();
        open(directory.path()).unwrap_err()
    };
    let error = open_with_format(FORMAT_VERSIONED + 1);
    assert!(matches!(error, WalError::NewerFormat { found, .. } if found == FORMAT_VERSIONED + 1), "{error}");
    let error = open_with_format(FORMAT - 1);
    assert!(matches!(error, WalError::OlderFormat { found, .. } if found == FORMAT - 1), "{error}");
    assert!(error.to_string().contains("snapshot save"), "{error}");
}

/// The real disk of a process that has too many files open, for the next so many attempts to open one.
struct Crowded {
    disk: RealDisk,
    refusals: AtomicU32,
}

impl Crowded {
    fn refuse(&self) -> io::Result<()> {
        let left = self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left.is_ok() { Err(rustix::io::Errno::MFILE.into()) } else { Ok(()) }
    }
}

impl Disk for Crowded {
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn File>> {
        self.refuse()?;
        self.disk.create(name, bytes)
    }
    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        self.refuse()?;
        self.disk.open(name)
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }
    fn sync_directory(&self) -> io::Result<()> {
        self.disk.sync_directory()
    }
    fn fresh_number(&self) -> u64 {
        self.disk.fresh_number()
    }
    fn location(&self, name: &str) -> String {
        self.disk.location(name)
    }
}

#[test]
fn the_next_segment_waits_while_too_many_files_are_open() {
    // Goal: a log whose process has no descriptors left writes on as soon as it has. Method: the next attempts to make a
    // segment, more than the log would make by itself, are refused; write over several segments.
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(Crowded { disk: RealDisk::open(directory.path()).unwrap(), refusals: AtomicU32::new(0) });
    let (mut wal, _) = Wal::open(disk.clone(), &identity(), &founding(), small()).unwrap();
    for index in 1..=400 {
        if index % 50 == 0 && index <= 200 {
            disk.refusals.store(4, Ordering::SeqCst);
        }
        wal.append(&put(index, &[7; 600])).unwrap();
        wal.sync().unwrap();
    }
    assert_eq!(disk.refusals.load(Ordering::SeqCst), 0, "segments were asked for in vain");
}

#[test]
fn inline_preparation_needs_no_thread() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { preparation: Preparation::Inline, ..small() };
    let disk = Arc::new(RealDisk::open(directory.path()).unwrap());
    let (mut wal, _) = Wal::open(disk, &identity(), &founding(), options).unwrap();
    for index in 1..=300 {
        wal.append(&put(index, &[1; 600])).unwrap();
        wal.sync().unwrap();
        wal.probe().unwrap();
    }
    drop(wal);
    assert_eq!(open(directory.path()).unwrap().1.durable.entries.len(), 300);
}
