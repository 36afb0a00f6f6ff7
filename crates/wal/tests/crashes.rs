//! A machine that stops at every single operation, in every way a disk can lose what was not synced.

mod support;

use hustings_core::Durable;
use hustings_wal::sim::{Faults, Loss, SimulatedDisk};
use hustings_wal::{Options, Preparation, Wal, WalError};
use std::sync::Arc;
use support::{Step, Workload, open};

/// The progress of a workload when its machine stopped.
#[derive(Debug)]
struct Reached {
    /// Steps whose records were synced, by what the log answered.
    acknowledged: usize,
    /// Records that were handed over at all.
    appended: usize,
}

/// Plays the workload from its `from`-th record on until it ends or the disk fails.
fn play(wal: &mut Wal, workload: &Workload, from: usize) -> (Reached, Result<(), WalError>) {
    let mut reached = Reached { acknowledged: from, appended: from };
    let mut index = 0;
    for step in &workload.steps {
        let result = match step {
            Step::Append(record) => {
                index += 1;
                if index <= from {
                    continue;
                }
                reached.appended = index;
                wal.append(record)
            }
            Step::Write => wal.write(),
            Step::Probe => wal.probe(),
            Step::Sync => wal.sync().map(|()| reached.acknowledged = reached.appended),
        };
        if let Err(error) = result {
            return (reached, Err(error));
        }
    }
    (reached, Ok(()))
}

/// Length of the prefix of the workload that was recovered; it must hold all that was acknowledged.
fn prefix(workload: &Workload, reached: &Reached, durable: &Durable, what: &str) -> usize {
    let states = workload.states();
    let may_be = reached.acknowledged..=reached.appended;
    may_be
        .clone()
        .rev()
        .find(|count| states[*count] == *durable)
        .unwrap_or_else(|| panic!("{what}: recovered is none of the prefixes {may_be:?}: {durable:#?}"))
}

#[test]
fn a_crash_at_any_operation_leaves_a_prefix_that_holds_all_that_was_acknowledged() {
    // Goal: ST-16, ST-17, RP-14. Method: stop the machine at every operation, lose what was not synced in several ways, recover,
    // stop the recovery too, then play the rest of the workload and end where a run without crashes ends.
    let workload = Workload::scripted();
    let calm = SimulatedDisk::new(1);
    let (mut wal, _) = open(&calm).unwrap();
    play(&mut wal, &workload, 0).1.unwrap();
    drop(wal);
    let operations = calm.operations();
    assert!(operations > 150, "the workload does {operations} operations");
    let (mut crashes, mut torn, mut ends) = (0, 0, std::collections::BTreeSet::new());
    for crash_at in 1..=operations {
        for (seed, loss) in
            [(0, Loss::Nothing), (1, Loss::Everything), (2, Loss::Each), (3, Loss::Each), (4, Loss::EachTorn)]
        {
            let what = format!("crash at {crash_at}, {loss:?}, seed {seed}");
            let disk = SimulatedDisk::new(crash_at * 8 + seed);
            disk.plan(Faults { crash_at: Some(crash_at), ..Faults::default() });
            let reached = match open(&disk) {
                Ok((mut wal, _)) => play(&mut wal, &workload, 0).0,
                Err(_) => Reached { acknowledged: 0, appended: 0 },
            };
            disk.restart(loss);
            // The recovery is stopped at some operation as well.
            let again = disk.operations() + 1 + (crash_at + seed) % 12;
            disk.plan(Faults { crash_at: Some(again), ..Faults::default() });
            drop(open(&disk));
            disk.restart(loss);
            let (mut wal, recovered) = open(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            let from = prefix(&workload, &reached, &recovered.durable, &what);
            torn += u64::from(recovered.torn_bytes > 0);
            ends.insert(from);
            // The recovered state is durable by itself, with nothing more written.
            drop(wal);
            disk.restart(Loss::Everything);
            let (again, recovered) = open(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(recovered.durable, workload.states()[from], "{what}: what recovery found did not last");
            wal = again;
            play(&mut wal, &workload, from).1.unwrap_or_else(|error| panic!("{what}: {error}"));
            drop(wal);
            disk.restart(Loss::Everything);
            let (_, recovered) = open(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(recovered.durable, *workload.states().last().unwrap(), "{what}");
            crashes += disk.injected();
        }
    }
    println!("{crashes} crashes over {operations} operations, {torn} torn tails, {} different ends", ends.len());
    assert!(crashes >= operations * 5 && torn > 10 && ends.len() > 20);
}

#[test]
fn a_batch_costs_one_write_and_one_sync() {
    let disk = SimulatedDisk::new(1);
    let (mut wal, _) = open(&disk).unwrap();
    for round in 0..4 {
        let before = disk.operations();
        for index in 1..=5 {
            wal.append(&support::put(1, round * 5 + index, 100)).unwrap();
        }
        assert_eq!(disk.operations(), before, "appending costs nothing");
        wal.sync().unwrap();
        assert_eq!(disk.operations(), before + 2);
        wal.sync().unwrap();
        assert_eq!(disk.operations(), before + 2, "nothing new, nothing to do");
    }
}

#[test]
fn a_failed_sync_poisons_the_log_and_its_batch_is_never_acknowledged() {
    // Goal: ST-05, ST-06. Method: fail every operation once, and from then on for ever; try again; restart only the process, whose
    // page cache shows what is not on the disk; then cut the power.
    let workload = Workload::scripted();
    let calm = SimulatedDisk::new(1);
    let (mut wal, _) = open(&calm).unwrap();
    let first = calm.operations() + 1;
    play(&mut wal, &workload, 0).1.unwrap();
    drop(wal);
    let mut poisoned = 0;
    for at in first..=calm.operations() {
        for is_for_ever in [false, true] {
            let disk = SimulatedDisk::new(at);
            let (mut wal, _) = open(&disk).unwrap();
            let (once, ever) = if is_for_ever { (None, Some(at)) } else { (Some(at), None) };
            disk.plan(Faults { fails_at: once, fails_from: ever, ..Faults::default() });
            let (reached, result) = play(&mut wal, &workload, 0);
            if result.is_err() {
                poisoned += 1;
                for result in [wal.sync(), wal.write(), wal.probe(), wal.append(&workload.first())] {
                    assert!(matches!(result, Err(WalError::Poisoned { .. })), "{result:?}");
                }
            }
            drop(wal);
            disk.restart(Loss::Nothing);
            let (wal, seen) = open(&disk).unwrap();
            let from = prefix(&workload, &reached, &seen.durable, &format!("failure at {at}"));
            drop(wal);
            disk.restart(Loss::Everything);
            let (_, left) = open(&disk).unwrap();
            assert_eq!(left.durable, workload.states()[from], "failure at {at}: what the rebirth saw did not last");
        }
    }
    println!("{poisoned} logs were poisoned");
    assert!(poisoned > 100);
}

#[test]
fn a_misdirected_write_is_refused_or_harmless() {
    // Goal: ST-14. Method: let every write land elsewhere in turn, crash, recover: an acknowledged record is found or its loss is seen.
    let workload = Workload::scripted();
    let calm = SimulatedDisk::new(1);
    let (mut wal, _) = open(&calm).unwrap();
    let first = calm.operations() + 1;
    play(&mut wal, &workload, 0).1.unwrap();
    drop(wal);
    let (mut refused, mut injected) = (0, 0);
    for at in first..=calm.operations() {
        let disk = SimulatedDisk::new(at);
        let (mut wal, _) = open(&disk).unwrap();
        disk.plan(Faults { misdirected_at: Some((at, 3)), ..Faults::default() });
        let (reached, result) = play(&mut wal, &workload, 0);
        drop(wal);
        injected += disk.injected();
        disk.restart(Loss::Everything);
        match open(&disk) {
            Err(_) => refused += 1,
            Ok((_, recovered)) if result.is_ok() => {
                prefix(&workload, &reached, &recovered.durable, &format!("misdirected at {at}"));
            }
            Ok(_) => {}
        }
    }
    println!("{injected} writes went astray, {refused} logs were refused");
    assert!(injected > 50 && refused > 10);
}

#[test]
fn a_full_disk_is_named_and_nothing_acknowledged_is_lost() {
    // Goal: ST-10. Method: leave room for the first segments only; write until it is said to be full; recover.
    let workload = Workload::scripted();
    for space in [40 << 10, 50 << 10, 70 << 10] {
        let disk = SimulatedDisk::new(space);
        let (mut wal, _) = open(&disk).unwrap();
        disk.plan(Faults { space_bytes: Some(space), ..Faults::default() });
        let (reached, result) = play(&mut wal, &workload, 0);
        let error = result.unwrap_err();
        assert!(error.is_full() && error.to_string().contains("free space"), "{error}");
        drop(wal);
        disk.restart(Loss::Each);
        let (_, recovered) = open(&disk).unwrap();
        prefix(&workload, &reached, &recovered.durable, "a full disk");
    }
}

#[test]
fn a_start_needs_no_room_on_a_full_disk() {
    // Goal: ST-10, a member that is restarted on a disk without a byte left comes up. Method: everything but the reserve is taken
    // away, twice, for the reserve must be there again; then without a reserve, which is told with the remedy.
    let disk = SimulatedDisk::new(1);
    let options = Options { reserve_bytes: 4 << 10, ..support::tiny() };
    let open = || Wal::open(Arc::new(disk.clone()), &support::identity(), &support::founding(), options.clone());
    let (mut wal, _) = open().unwrap();
    wal.append(&support::put(1, 1, 100)).unwrap();
    wal.sync().unwrap();
    drop(wal);
    // Less than there is: whatever takes room fails.
    disk.plan(Faults { space_bytes: Some(disk.used_bytes()), ..Faults::default() });
    for boots in 2..4 {
        let (mut wal, recovered) = open().unwrap();
        assert_eq!((recovered.boots, recovered.durable.entries.len()), (boots, 1));
        wal.probe().unwrap();
    }
    hustings_wal::Disk::remove(&disk, "reserve").unwrap();
    disk.plan(Faults { space_bytes: Some(disk.used_bytes()), ..Faults::default() });
    let error = open().unwrap_err();
    assert!(error.is_full() && error.to_string().contains("meta.tmp"), "{error}");
    assert!(error.to_string().contains("delete no file of the data directory"), "{error}");
}

#[test]
fn a_shortage_is_seen_before_it_stops_a_write() {
    // Goal: ST-10. Method: room for no second segment; the thread that makes it fails; space is freed; it is made after all.
    let disk = SimulatedDisk::new(1);
    let options = Options { preparation: Preparation::Background, ..support::tiny() };
    disk.plan(Faults { space_bytes: Some(20 << 10), ..Faults::default() });
    let open = || Wal::open(Arc::new(disk.clone()), &support::identity(), &support::founding(), options.clone());
    let (mut wal, _) = open().unwrap();
    let shortage = loop {
        match wal.shortage() {
            Some(shortage) => break shortage,
            None => std::thread::yield_now(),
        }
    };
    assert!(shortage.contains("the disk is full"), "{shortage}");
    assert!(wal.room() > 4096);
    wal.append(&support::put(1, 1, 100)).unwrap();
    wal.sync().unwrap();
    disk.plan(Faults::default());
    for index in 2..=100 {
        wal.append(&support::put(1, index, 600)).unwrap();
        wal.sync().unwrap();
    }
    drop(wal);
    assert_eq!(open().unwrap().1.durable.entries.len(), 100);
}

#[test]
fn a_log_that_needs_room_waits_for_it_and_goes_on() {
    // Goal: ST-10, a full disk ends no log that could go on. Method: another thread writes past the only segment that fits; it is
    // seen to wait there, nothing unwritten durable; then there is room.
    let disk = SimulatedDisk::new(1);
    let options = Options { preparation: Preparation::Background, ..support::tiny() };
    disk.plan(Faults { space_bytes: Some(20 << 10), ..Faults::default() });
    let (mut wal, _) =
        Wal::open(Arc::new(disk.clone()), &support::identity(), &support::founding(), options.clone()).unwrap();
    let durable = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (told, wait) = (durable.clone(), wal.wait());
    let writer = std::thread::spawn(move || {
        for index in 1..=100 {
            wal.append(&support::put(1, index, 600)).unwrap();
            wal.sync().unwrap();
            told.store(index, std::sync::atomic::Ordering::SeqCst);
        }
    });
    // It waits where the first segment ends: tries to make the next come and go, and nothing more gets durable.
    let tried = || disk.operations();
    let (mut before, mut reached) = (tried(), 0);
    let mut still = 0;
    while still < 5 {
        while tried() < before + 4 {
            assert!(!writer.is_finished(), "a log that needs room ends, or goes on without");
            std::thread::yield_now();
        }
        before = tried();
        let now = durable.load(std::sync::atomic::Ordering::SeqCst);
        still = if now == reached && now > 0 { still + 1 } else { 0 };
        reached = now;
    }
    assert!((1..100).contains(&reached) && !writer.is_finished(), "{reached} entries fit");
    assert!(
        wait.why().is_some_and(|why| why.contains("the disk is full")),
        "whoever does not wait is told why: {:?}",
        wait.why()
    );
    disk.plan(Faults::default());
    writer.join().unwrap();
    assert_eq!(wait.why(), None);
    let (_, recovered) =
        Wal::open(Arc::new(disk.clone()), &support::identity(), &support::founding(), options).unwrap();
    assert_eq!(recovered.durable.entries.len(), 100);
}

#[test]
fn a_snapshot_is_whole_or_absent_after_a_crash_at_any_operation() {
    // Goal: ST-16, ST-17. Method: stop the machine at every operation of cutting, fetching and removing snapshots.
    let founding = Arc::new(support::founding());
    let contents: Vec<u8> = (0..9000u32).map(|number| (number * 7) as u8).collect();
    let run = |disk: &SimulatedDisk| -> Result<Vec<_>, WalError> {
        let store = hustings_wal::SnapshotStore::open(Arc::new(disk.clone()))?;
        let mut done = Vec::new();
        let mut last = None;
        for round in 1..=3u64 {
            let mut writer = store.writer(hustings_core::Lsn::new(1, round * 10), founding.clone())?;
            writer.write(&contents[..3000 * round as usize])?;
            let cut = writer.finish()?;
            done.push(cut.clone());
            let fetched = hustings_core::SnapshotReference { lsn: hustings_core::Lsn::new(1, round * 10 + 5), ..cut };
            for (chunk, offset) in contents[..3000 * round as usize].chunks(1000).zip((0..).step_by(1000)) {
                if store.store_chunk(&fetched, offset, chunk)? == hustings_wal::Stored::Complete {
                    done.push(fetched.clone());
                }
            }
            store.keep_newest(2, &fetched)?;
            done.retain(|held| held.lsn.index >= fetched.lsn.index - 5);
            last = Some(fetched);
        }
        assert!(last.is_some());
        Ok(done)
    };
    let calm = SimulatedDisk::new(1);
    run(&calm).unwrap();
    let operations = calm.operations();
    for crash_at in 1..=operations {
        for loss in [Loss::Nothing, Loss::Everything, Loss::Each, Loss::EachTorn] {
            let disk = SimulatedDisk::new(crash_at);
            disk.plan(Faults { crash_at: Some(crash_at), ..Faults::default() });
            run(&disk).unwrap_err();
            disk.restart(loss);
            let store = hustings_wal::SnapshotStore::open(Arc::new(disk.clone())).unwrap();
            for (lsn, digest) in store.names().unwrap() {
                let bytes = 3000 * (lsn.index / 10);
                let reference = hustings_core::SnapshotReference { lsn, membership: founding.clone(), bytes, digest };
                assert_eq!(&store.load(&reference).unwrap()[..], &contents[..bytes as usize]);
            }
            run(&disk).unwrap();
        }
    }
    assert!(operations > 30, "{operations} operations");
}
