//! A data directory of an earlier build is read by this one, and means the same; this build writes it byte by byte as it stands
//! there.

use bytes::Bytes;
use hustings_core::replica::message::Position;
use hustings_core::{
    ClusterId, Entry, EntryKind, Lsn, Member, Membership, MembershipChange, NodeId, Origin, Promise, Record, Stamp,
    Term, Wire,
};
use hustings_stage::golden;
use hustings_wal::{Disk, File, Identity, Options, Preparation, RealDisk, SnapshotStore, Wal, peers};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The files that belong to a generation; `LOCK` does not.
const FILES: [&str; 4] = ["meta", "peers", "snapshot-", "wal-"];

/// A real disk that draws no numbers.
struct Fixed(RealDisk);

impl Disk for Fixed {
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn File>> {
        self.0.create(name, bytes)
    }
    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        self.0.open(name)
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
    fn sync_directory(&self) -> io::Result<()> {
        self.0.sync_directory()
    }
    fn fresh_number(&self) -> u64 {
        0x5707_a6e5
    }
    fn location(&self, name: &str) -> String {
        self.0.location(name)
    }
}

fn identity() -> Identity {
    Identity { cluster_id: ClusterId(0xC1), node: NodeId(1), protocol: "raft".into() }
}

fn founding() -> Membership {
    let member =
        |name: &str| Member { name: name.into(), peer_urls: vec![format!("http://{name}:2380")], ..Member::default() };
    Membership::founded_by(["a", "b", "c"].map(member))
}

fn open(disk: Arc<dyn Disk>) -> (Wal, hustings_wal::Recovered) {
    let (segment_bytes, preparation) = (16 << 10, Preparation::Inline);
    let options = Options { segment_bytes, first_segment_bytes: segment_bytes, preparation, ..Options::default() };
    Wal::open(disk, &identity(), &founding(), options).expect("it is read")
}

fn entry(index: u64, kind: EntryKind, payload: Bytes) -> Record {
    let origin = Origin { node: NodeId(2), incarnation: 3, sequence: index };
    let stamp = Stamp { term: Term(2), micros: 1_000 * index };
    Record::Put(Entry { lsn: Lsn::new(2, index), kind, origin, stamp, payload })
}

/// A directory with every kind of record, a snapshot, and what is known of peers.
fn write(directory: &Path) {
    let disk: Arc<dyn Disk> = Arc::new(Fixed(RealDisk::open(directory).expect("a directory")));
    let (mut wal, _) = open(disk.clone());
    let store = SnapshotStore::open(disk.clone()).expect("it is blank");
    let mut writer = store.writer(Lsn::new(1, 3), Arc::new(founding())).expect("there is room");
    writer.write(b"the state of a machine").expect("there is room");
    let reference = writer.finish().expect("there is room");
    let change = MembershipChange::leave().to_bytes();
    let records = [
        Record::Promise(Promise::vote(Term(2), NodeId(3))),
        Record::Established(Term(1)),
        Record::Snapshot(reference),
        entry(4, EntryKind::Command, Bytes::from_static(b"a command")),
        entry(5, EntryKind::Membership, change),
        Record::Put(Entry::blank(Lsn::new(2, 6))),
        entry(7, EntryKind::Protocol, Bytes::from_static(b"its own")),
        Record::TruncateFrom(7),
        Record::Committed(Lsn::new(2, 5)),
        Record::Put(Entry::blank(Lsn::new(2, 7))),
    ];
    for record in records {
        wal.append(&record).expect("there is room");
        wal.sync().expect("there is room");
    }
    let position = Position { node: NodeId(2), storage: 9, boots: 3, process: 5, born_with: 700, batches: 812 };
    peers::write_positions(&*disk, &[position]).expect("there is room");
}

/// Generation from which on a directory remembers its starts.
const REMEMBERS_STARTS: u32 = 4;

/// The content of a directory of this generation, in words.
fn listing(directory: &Path, generation: u32) -> String {
    let disk: Arc<dyn Disk> = Arc::new(Fixed(RealDisk::open(directory).expect("a directory")));
    let (_wal, mut recovered) = open(disk.clone());
    if generation < REMEMBERS_STARTS {
        assert_eq!(recovered.starts.len(), 1, "the one that has just begun");
        recovered.starts.clear();
    }
    let store = SnapshotStore::open(disk.clone()).expect("it is read");
    let reference = recovered.durable.snapshot.clone().expect("it holds one");
    let state = store.load(&reference).expect("it is whole");
    let positions = peers::read_positions(&*disk).expect("it is whole");
    let state = std::io::read_to_string(bytes::Buf::reader(state)).expect("text");
    let recovered = format!("{recovered:#?}");
    let recovered = if generation < REMEMBERS_STARTS { recovered.replace("    starts: [],\n", "") } else { recovered };
    format!("{recovered}\n{state:?}\n{positions:#?}\n")
}

fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(directory).expect("it is there").flatten();
    let mut files: Vec<(String, Vec<u8>)> = entries
        .map(|entry| (entry.file_name().into_string().expect("text"), std::fs::read(entry.path()).expect("a file")))
        .filter(|(name, _)| FILES.iter().any(|begin| name.starts_with(begin)) && !name.ends_with(".tmp"))
        .collect();
    files.sort();
    files
}

fn copy(files: &[(String, Vec<u8>)], to: &Path) {
    std::fs::create_dir_all(to).expect("it can be made");
    for (name, bytes) in files {
        std::fs::write(to.join(name), bytes).expect("there is room");
    }
}

#[test]
fn directories_of_earlier_builds_mean_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let written = directory.path().join("written");
    write(&written);
    let written = files(&written);
    assert_eq!(written.len(), FILES.len(), "{:?}", written.iter().map(|(name, _)| name).collect::<Vec<_>>());
    let folder = |generation: u32| golden::folder().join(generation.to_string()).join("directory");
    if let Some(generation) = golden::wanted().filter(|generation| !folder(*generation).exists()) {
        copy(&written, &folder(generation));
        let read = directory.path().join("read once");
        copy(&written, &read);
        std::fs::write(folder(generation).join("listing.txt"), listing(&read, generation)).expect("it can be written");
    }
    let all: Vec<u32> = golden::generations().into_iter().filter(|generation| folder(*generation).exists()).collect();
    let newest = *all.last().expect("there is one: `cargo xtask golden GENERATION` writes it");
    for generation in all {
        let found = files(&folder(generation));
        let read = directory.path().join(generation.to_string());
        copy(&found, &read);
        let listed = std::fs::read_to_string(folder(generation).join("listing.txt")).expect("it is there");
        assert_eq!(listing(&read, generation), listed, "a directory of generation {generation}");
        if generation == newest {
            let names = |files: &[(String, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
            assert_eq!(names(&found), names(&written));
            for ((name, before), (_, now)) in found.iter().zip(&written) {
                assert!(before == now, "{name} is written in another way now: that needs a generation");
            }
        }
    }
}
