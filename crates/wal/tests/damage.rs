//! Damage: bits are flipped and files cut off, and a log is recovered exactly or refused.

mod support;

use bytes::Buf as _;
use hustings_core::{Durable, Lsn, Record, Term};
use hustings_wal::sim::{Faults, Loss, SimulatedDisk};
use hustings_wal::{Disk as _, Inspection, Options, SnapshotStore, Wal, WalError, inspect::inspect_disk};
use proptest::prelude::*;
use std::sync::Arc;
use support::{Step, Workload, open, put};

/// Three batches in a small directory, closed in good order.
fn modest() -> Workload {
    let mut steps = vec![Step::Append(Record::Promise(hustings_core::Promise::without_vote(Term(1)))), Step::Sync];
    for index in 1..=6 {
        steps.push(Step::Append(put(1, index, 150 * index as usize)));
        if index % 2 == 0 {
            steps.push(Step::Append(Record::Committed(Lsn::new(1, index - 1))));
            steps.push(Step::Sync);
        }
    }
    Workload::of(steps)
}

/// Opens a damaged copy; it must be exact or refused, and a refused one must be unchanged.
fn judge(disk: &SimulatedDisk, exact: &Durable, what: &str) -> bool {
    let contents = || -> Vec<_> {
        let names = disk.list().expect("a calm disk lists its files");
        names.into_iter().map(|name| disk.contents(&name)).collect()
    };
    let before = contents();
    match open(disk) {
        Ok((_, recovered)) => {
            assert_eq!(recovered.durable, *exact, "{what}: another state was recovered");
            true
        }
        Err(error) => {
            assert!(before == contents(), "{what}: refused with {error}, but changed");
            assert!(error.to_string().contains("simulated:"), "{what}: {error} names no file");
            false
        }
    }
}

#[test]
fn every_flipped_bit_is_harmless_or_refused() {
    // Goal: ST-12. Method: flip bits of a closed directory one by one: all of `meta`, of the headers and of the batches; a sample of
    // the pages that hold nothing.
    let workload = modest();
    let disk = workload.played();
    let exact = workload.states().last().unwrap();
    let (mut exacts, mut refusals) = (0, 0);
    for name in disk.list().unwrap() {
        let contents = disk.contents(&name).unwrap();
        for bit in 0..contents.len() * 8 {
            let page = &contents[bit / 8 / 512 * 512..contents.len().min(bit / 8 / 512 * 512 + 512)];
            if page.iter().all(|byte| *byte == 0) && bit % 29 != 0 {
                continue;
            }
            let copy = disk.fork(1);
            copy.flip(&name, bit);
            if judge(&copy, exact, &format!("bit {bit} of {name}")) { exacts += 1 } else { refusals += 1 }
        }
    }
    println!("{refusals} flipped bits were refused, {exacts} were harmless");
    assert!(refusals > 20_000 && exacts > 1000);
}

/// A file that begins with a prefix, with this behind its body and checksums that agree.
fn extended(contents: &[u8], more: &[u8]) -> Vec<u8> {
    let (prefix, body) = contents.split_at(20);
    let body = [body, more].concat();
    let length = u32::try_from(body.len()).expect("it is short");
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&prefix[8..12]), &body);
    [&prefix[..12], &length.to_le_bytes(), &checksum.to_le_bytes(), &body].concat()
}

#[test]
fn impossible_numbers_are_damage_also_where_checksums_agree() {
    // Goal: a file that somebody made up ends no process. Method: the highest number stands for the starts of a directory, for the
    // length of a snapshot, and in records.
    let disk = modest().played();
    let opened = |disk: &SimulatedDisk| open(disk).map(drop).expect_err("it is refused").to_string();
    let meta = disk.contents("meta").unwrap();
    // Field 6; the last one that is read counts.
    let boots = [&[6 << 3], &[0xff; 9][..], &[1]].concat();
    let copy = disk.fork(1);
    copy.damage("meta", extended(&meta, &boots));
    let said = opened(&copy);
    assert!(said.contains("meta is damaged") && said.contains("opened as often"), "{said}");
    copy.damage("meta", extended(&meta, &[6 << 3, 1]));
    open(&copy).map(drop).expect("only the number was wrong");

    let copy = disk.fork(1);
    let store = SnapshotStore::open(Arc::new(copy.clone())).unwrap();
    let mut writer = store.writer(Lsn::new(1, 3), Arc::default()).unwrap();
    writer.write(b"state").unwrap();
    let reference = writer.finish().unwrap();
    let name = hustings_wal::snapshot_file::name(reference.lsn, reference.digest);
    let mut contents = copy.contents(&name).unwrap();
    let trailer = contents.len() - 16;
    contents[trailer..trailer + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    let checksum = crc32c::crc32c(&contents[trailer..trailer + 12]);
    contents[trailer + 12..].copy_from_slice(&checksum.to_le_bytes());
    copy.damage(&name, contents);
    let said = store.verify(reference.lsn, reference.digest).expect_err("it is refused").to_string();
    assert!(said.contains("its trailer does not agree"), "{said}");

    let most = Lsn::new(u64::MAX, 7);
    let records = [
        Record::Promise(hustings_core::Promise::without_vote(most.term)),
        Record::Established(most.term),
        put(u64::MAX, 7, 1),
        put(1, u64::MAX, 1),
        Record::Committed(Lsn::new(1, u64::MAX)),
    ];
    for record in records {
        let (mut wal, _) = open(&disk.fork(1)).expect("it is whole");
        let said = wal.append(&record).expect_err("it is refused").to_string();
        assert!(said.contains("no cluster reaches term") || said.contains("no log reaches slot"), "{said}");
    }
}

#[test]
fn a_file_cut_at_any_byte_or_missing_is_refused() {
    // Goal: ST-11. A segment has its length from birth: one that is shorter was cut by somebody, and what was acknowledged may be gone.
    let workload = Workload::scripted();
    let disk = workload.played();
    let exact = workload.states().last().unwrap();
    for name in disk.list().unwrap() {
        let contents = disk.contents(&name).unwrap();
        for length in (0..contents.len()).step_by(3) {
            let copy = disk.fork(1);
            copy.damage(&name, contents[..length].to_vec());
            let is_exact = judge(&copy, exact, &format!("{name} cut at {length}"));
            assert_eq!(is_exact, name.ends_with(".tmp"), "{name} cut at {length}");
        }
        let copy = disk.fork(1);
        copy.remove(&name).unwrap();
        copy.sync_directory().unwrap();
        assert_eq!(judge(&copy, exact, &format!("{name} missing")), name.ends_with(".tmp"), "{name} missing");
    }
}

#[test]
fn an_unacknowledged_batch_cut_at_any_word_is_discarded_and_never_comes_back() {
    // Goal: ST-11. Method: write a batch without syncing it, let only its first bytes reach the disk, for every number of bytes; recover,
    // write another batch in its place, recover again.
    let workload = modest();
    let disk = workload.played();
    let acknowledged = workload.states().last().unwrap();
    let (mut wal, _) = open(&disk).unwrap();
    let segment = "wal-0000000000000001.seg";
    let before = disk.contents(segment).unwrap();
    let record = put(1, 7, 1200);
    wal.append(&record).unwrap();
    wal.write().unwrap();
    drop(wal);
    let after = disk.contents(segment).unwrap();
    let first = (0..after.len()).find(|at| before[*at] != after[*at]).unwrap() / 512 * 512;
    let mut written = acknowledged.clone();
    written.absorb(record);
    let (mut discarded, mut kept) = (0, 0);
    for length in (0..=2048).step_by(4) {
        let mut contents = before.clone();
        contents[first..first + length].copy_from_slice(&after[first..first + length]);
        let copy = disk.fork(1);
        copy.damage(segment, contents);
        let (mut wal, recovered) = open(&copy).unwrap_or_else(|error| panic!("cut after {length}: {error}"));
        if recovered.durable == *acknowledged {
            discarded += 1;
            assert_eq!(recovered.torn_bytes > 0, after[first..first + length].iter().any(|byte| *byte != 0));
        } else {
            kept += 1;
            assert_eq!(recovered.durable, written);
        }
        let mut expected = recovered.durable;
        let next = put(2, expected.entries.len() as u64 + 1, 10);
        wal.append(&next).unwrap();
        wal.sync().unwrap();
        expected.absorb(next);
        drop(wal);
        copy.restart(Loss::Everything);
        assert_eq!(open(&copy).unwrap().1.durable, expected);
    }
    println!("{discarded} times discarded, {kept} times whole");
    assert!(discarded > 300 && kept > 0);
}

#[test]
fn a_bit_that_rots_while_it_is_read_is_refused_or_harmless() {
    let workload = modest();
    let disk = workload.played();
    let exact = workload.states().last().unwrap();
    let mut injected = 0;
    for read in 1..=12 {
        for seed in 0..40 {
            let copy = disk.fork(seed);
            copy.plan(Faults { rots_read: Some(read), ..Faults::default() });
            if let Ok((_, recovered)) = open(&copy) {
                assert_eq!(recovered.durable, *exact, "read {read}, seed {seed}");
            }
            injected += copy.injected();
        }
    }
    assert!(injected > 100, "{injected} reads rotted");
}

#[test]
fn a_segment_of_another_directory_or_time_is_refused() {
    // Goal: ST-14, ST-15. Method: put segments into each other's place.
    let workload = Workload::scripted();
    let (disk, exact) = (workload.played(), workload.states().last().unwrap());
    let names: Vec<_> = disk.list().unwrap().into_iter().filter(|name| name.ends_with(".seg")).collect();
    assert!(names.len() >= 2, "{names:?}");
    let other = disk.fork(1);
    other.damage(&names[0], disk.contents(&names[1]).unwrap());
    assert!(!judge(&other, exact, "a segment in another's place"));
    let stranger = SimulatedDisk::new(77);
    drop(open(&stranger).unwrap());
    let other = disk.fork(1);
    other.damage(&names[0], stranger.contents("wal-0000000000000001.seg").unwrap());
    assert!(!judge(&other, exact, "a segment of another directory"));
    let bare = SimulatedDisk::new(5);
    bare.damage(&names[0], disk.contents(&names[0]).unwrap());
    assert!(matches!(open(&bare).unwrap_err(), WalError::Missing { .. }), "segments without a meta file");
}

#[test]
fn a_synced_batch_that_vanished_is_refused_when_a_later_one_attests_it() {
    // Goal: ADR 32; ST-15. Method: a disk lied and a batch reads as the zeros that stood there before; each batch in turn.
    let workload = modest();
    let (disk, exact) = (workload.played(), workload.states().last().unwrap());
    let name = "wal-0000000000000001.seg";
    let batches: Vec<(u64, u64)> = inspect_disk(&disk)
        .unwrap()
        .iter()
        .filter_map(|one| {
            if let Inspection::Batch { offset, head, .. } = one { Some((*offset, u64::from(head.bytes))) } else { None }
        })
        .collect();
    assert_eq!(batches.len(), 4);
    for (offset, bytes) in &batches[..3] {
        let copy = disk.fork(1);
        let mut contents = disk.contents(name).unwrap();
        let end = offset + hustings_wal::batch::sectors_for(hustings_wal::batch::HEAD + *bytes as usize) * 512;
        contents[*offset as usize..end as usize].fill(0);
        copy.damage(name, contents);
        let error = open(&copy).unwrap_err().to_string();
        assert!(
            error.contains(name) && error.contains(&format!("byte {offset}")) && error.contains("attests"),
            "{error}"
        );
        assert!(!judge(&copy, exact, "a batch that vanished"));
    }
}

#[test]
fn a_synced_tail_that_vanished_is_refused() {
    // Goal: ADR 32. Method: 300 batches, each synced, in one segment; its last ones become zeros again. An idle log
    // has attested all of them, a busy one all but the last 64.
    let options = || Options { segment_bytes: 1 << 20, first_segment_bytes: 1 << 20, ..support::tiny() };
    let open =
        |disk: &SimulatedDisk| Wal::open(Arc::new(disk.clone()), &support::identity(), &support::founding(), options());
    let (idle, busy) = (SimulatedDisk::new(1), SimulatedDisk::new(1));
    for disk in [&idle, &busy] {
        let (mut wal, _) = open(disk).unwrap();
        for index in 1..=300 {
            wal.append(&put(1, index, 100)).unwrap();
            wal.sync().unwrap();
        }
    }
    let (mut wal, recovered) = open(&idle).unwrap();
    assert_eq!(recovered.durable.entries.len(), 300);
    wal.probe().unwrap();
    drop(wal);
    let name = "wal-0000000000000001.seg";
    let offsets: Vec<u64> = inspect_disk(&idle)
        .unwrap()
        .iter()
        .filter_map(|one| if let Inspection::Batch { offset, .. } = one { Some(*offset) } else { None })
        .collect();
    let without = |disk: &SimulatedDisk, batches: usize| {
        let copy = disk.fork(1);
        let mut contents = disk.contents(name).unwrap();
        contents[offsets[offsets.len() - batches] as usize..].fill(0);
        copy.damage(name, contents);
        open(&copy).map(|(_, recovered)| recovered.durable.entries.len())
    };
    for lost in [1, 2, 63, 64, 65, 299] {
        let error = without(&idle, lost).expect_err("it was durable").to_string();
        assert!(error.contains("attests"), "{error}");
    }
    for lost in [128, 200, 299] {
        let error = without(&busy, lost).expect_err("it was durable").to_string();
        assert!(error.contains("attests"), "{error}");
    }
}

#[test]
fn a_log_whose_newest_segments_were_deleted_is_refused() {
    // Goal: nobody takes what is left for an older, whole log. Method: a log of some segments that was opened once; its last one is
    // deleted, the last two, and so on; the files that were made ahead of need as well, or not.
    let disk = SimulatedDisk::new(1);
    let (mut wal, _) = open(&disk).unwrap();
    for index in 1..=60 {
        wal.append(&put(1, index, 1_500)).unwrap();
        wal.sync().unwrap();
    }
    drop(wal);
    let mut segments: Vec<String> = disk.list().unwrap().into_iter().filter(|name| name.ends_with(".seg")).collect();
    segments.sort();
    assert!(segments.len() >= 4, "{segments:?}");
    for kept in 1..segments.len() {
        let copy = disk.fork(1);
        for gone in &segments[kept..] {
            copy.remove(gone).unwrap();
        }
        copy.sync_directory().unwrap();
        let error = open(&copy).map(|(_, recovered)| recovered.durable.entries.len()).expect_err("entries are gone");
        assert!(matches!(error, WalError::Missing { .. }), "{error}");
        let (next, said) = (&segments[kept], error.to_string());
        assert!(said.contains(next.as_str()) && said.contains("says that the log goes on in it"), "{said}");
    }
    assert_eq!(open(&disk).unwrap().1.durable.entries.len(), 60);
}

#[test]
fn lengths_that_lie_under_good_checksums_are_refused() {
    // Goal: BI-06. Method: seal a batch whose head, then one whose record, claims four gigabytes.
    use hustings_wal::batch::{HEAD, Head, seal};
    use hustings_wal::segment::Header;
    let disk = modest().played();
    let name = "wal-0000000000000001.seg";
    let header = Header::read(&disk, name, &*disk.open(name).unwrap()).unwrap();
    let place = inspect_disk(&disk).unwrap().iter().find_map(|one| match one {
        Inspection::Blank { offset, .. } => Some(*offset),
        _ => None,
    });
    let place = place.unwrap();
    let ours = hustings_wal::sector::Seal::of(header.storage_incarnation, 1);
    for (bytes, record) in [(u32::MAX, 4), (12, u32::MAX), (12, 4), (3, 0)] {
        let mut batch = vec![0; HEAD + 12];
        Head { synced: 4, oldest: 1, bytes, count: u32::MAX }.put(&mut batch[..HEAD]);
        batch[HEAD..HEAD + 4].copy_from_slice(&record.to_le_bytes());
        let mut sectors = Vec::new();
        seal(ours, place / 512, 5, &batch, &mut sectors);
        let copy = disk.fork(1);
        let mut contents = disk.contents(name).unwrap();
        contents[place as usize..place as usize + sectors.len()].copy_from_slice(&sectors);
        copy.damage(name, contents);
        let error = open(&copy).unwrap_err().to_string();
        assert!(error.contains(&format!("{name} is damaged at byte {place}")), "{error}");
    }
}

#[test]
fn every_flipped_bit_of_a_snapshot_is_refused() {
    let disk = SimulatedDisk::new(1);
    let store = SnapshotStore::open(Arc::new(disk.clone())).unwrap();
    let mut writer = store.writer(Lsn::new(1, 9), Arc::new(support::founding())).unwrap();
    writer.write(&[5; 700]).unwrap();
    let reference = writer.finish().unwrap();
    let name = disk.list().unwrap().remove(0);
    for bit in 0..disk.contents(&name).unwrap().len() * 8 {
        let copy = disk.fork(1);
        copy.flip(&name, bit);
        let store = SnapshotStore::open(Arc::new(copy)).unwrap();
        assert!(store.load(&reference).is_err() && store.reader(&reference).is_err(), "bit {bit}");
        let streamed = store.stream(&reference).and_then(|mut stream| {
            stream.advance(100);
            stream.finish()
        });
        assert!(streamed.is_err(), "bit {bit}, in a stream that is not read to its end");
    }
}

#[test]
fn an_inspection_tells_all_and_names_the_damage() {
    let workload = modest();
    let disk = workload.played();
    let exact = workload.states().last().unwrap();
    let records = |found: &[Inspection]| found.iter().filter(|one| matches!(one, Inspection::Record { .. })).count();
    let found = inspect_disk(&disk).unwrap();
    assert_eq!(records(&found), workload.states().len() - 1);
    assert!(matches!(found.last(), Some(Inspection::Verdict(durable)) if **durable == *exact), "{found:#?}");
    assert!(!found.iter().any(|one| matches!(one, Inspection::Bad(_))));
    hustings_wal::peers::mark_rolled_back(&disk, "it is older").unwrap();
    let told = |one: &Inspection| matches!(one, Inspection::RolledBack { why } if why == "it is older");
    assert!(inspect_disk(&disk).unwrap().iter().any(told), "no node starts on it");
    disk.flip("wal-0000000000000001.seg", (8192 + 700) * 8);
    let found = inspect_disk(&disk).unwrap();
    let bad: Vec<_> =
        found.iter().filter_map(|one| if let Inspection::Bad(error) = one { Some(error) } else { None }).collect();
    assert_eq!(bad.len(), 2, "the walk and the verdict: {found:#?}");
    assert!(bad[0].to_string().contains("wal-0000000000000001.seg is damaged at byte 8704"), "{}", bad[0]);
    assert!(records(&found) > 0, "it goes on behind the damage");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// BI-06: mutated files of any kind never make opening panic, nor inspecting, and never lead to another state.
    #[test]
    fn mutated_files_never_panic(
        mutations in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>(), 1usize..40), 1..8),
        cut in prop::option::of((any::<prop::sample::Index>(), any::<prop::sample::Index>())),
    ) {
        let workload = modest();
        let disk = workload.played();
        let names = disk.list().unwrap();
        for (file, at, byte, length) in mutations {
            let name = file.get(&names);
            let mut contents = disk.contents(name).unwrap();
            let start = at.index(contents.len());
            let end = (start + length).min(contents.len());
            // A stretch that became zeros is what a crash leaves of an unsynced write; only other bytes are damage for sure.
            contents[start..end].fill(byte | 1);
            disk.damage(name, contents);
        }
        if let Some((file, at)) = cut {
            let name = file.get(&names);
            let contents = disk.contents(name).unwrap();
            let length = at.index(contents.len());
            disk.damage(name, contents[..length].to_vec());
        }
        let inspected = inspect_disk(&disk);
        prop_assert!(inspected.is_ok());
        judge(&disk, workload.states().last().unwrap(), "mutated");
    }

    /// BI-06: files of random bytes under our names.
    #[test]
    fn random_files_never_panic(
        meta in prop::collection::vec(any::<u8>(), 0..200),
        segment in prop::collection::vec(any::<u8>(), 0..10_000),
        snapshot in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let disk = SimulatedDisk::new(1);
        disk.damage("meta", [b"HUSTMETA", &meta[..]].concat());
        disk.damage("wal-0000000000000001.seg", [b"HUSTWALS", &segment[..]].concat());
        disk.damage("snapshot-0000000000000001-0000000000000001-00000000.snap", [b"HUSTSNAP", &snapshot[..]].concat());
        prop_assert!(open(&disk).is_err());
        prop_assert!(inspect_disk(&disk).is_ok());
        let store = SnapshotStore::open(Arc::new(disk)).unwrap();
        prop_assert!(store.read_chunk(Lsn::new(1, 1), 0, 0, 1 << 30).is_err());
    }
}
