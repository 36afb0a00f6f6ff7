//! Goal: H8: a member that is behind gets a snapshot over slow links that break again and again, and then all that it lacks.

use hustings_core::{NodeId, Protocol};
use hustings_kv::KvStore;
use hustings_world::command::Command;
use hustings_world::{Script, World};

/// Seconds in which links break and nobody writes.
const SECONDS: u64 = 60;

/// Messages of 4 KiB, a state of 300 KB, a round trip of a quarter of a second: a snapshot takes several lives of a connection.
fn the_story(others: &str, end: &str) -> String {
    let head = "cluster 3 seed 8 snapshots 60 messages 4096 trailing 5\n\
                load clients 4 keys 100 pause 100ms values 3000 watchers 0 rivals 0\nsettle 5s\ntransfer n1\nwait 2s\n";
    let breaks = "wait 2s\nreset n1 n3\nreset n2 n3\n".repeat(SECONDS as usize / 2);
    let slow = "slow n3 all 100ms 150ms\nslow all n3 100ms 150ms\n";
    format!("{head}isolate n3\nwait 30s\n{others}heal\n{slow}{breaks}{end}expect same\n")
}

/// Plays it, and says of each snapshot that n3 loaded how many breaks came before it.
fn breaks_before_snapshots<P: Protocol>(others: &str, end: &str) -> Vec<u64> {
    let script = Script::parse(&the_story(others, end)).expect("a script");
    let mut world: World<P, KvStore> = World::new(script.settings.clone(), P::Options::default()).expect("a beginning");
    let (mut lacked, mut breaks) = (0, 0);
    let (mut loaded, mut snapshots) = (None, Vec::new());
    let played = script.play(&mut world, |command, world| {
        let applied = |id| world.replica(NodeId(id)).map_or(0, |replica| replica.applied().index);
        if matches!(command, Command::Heal) {
            lacked = applied(1) - applied(3);
            loaded = Some(world.counts.installs);
        }
        breaks += u64::from(matches!(command, Command::Reset(..)));
        if let Some(loaded) = &mut loaded {
            snapshots.extend((*loaded..world.counts.installs).map(|_| breaks));
            *loaded = world.counts.installs;
        }
    });
    played.unwrap_or_else(|violation| panic!("{}: {violation}\n{:#?}", P::NAME, world.journal.lines));
    assert!(lacked > 100, "{}: n3 lacked {lacked} entries", P::NAME);
    snapshots
}

fn a_snapshot_comes_in_spite_of_broken_links<P: Protocol>() {
    let snapshots = breaks_before_snapshots::<P>("pace 1h\nwait 1s\n", "");
    assert!(snapshots.first().is_some_and(|breaks| *breaks > 2), "{}: in pieces, over {snapshots:?} breaks", P::NAME);
}

/// Newer ones are cut faster than one is fetched: the one that was begun comes to its end all the same, and then another.
fn a_snapshot_comes_though_newer_ones_are_cut<P: Protocol>() {
    let snapshots = breaks_before_snapshots::<P>("", "pace 1h\nwait 1m\n");
    println!("{}: {snapshots:?}", P::NAME);
    let while_links_broke = snapshots.iter().filter(|breaks| **breaks < SECONDS).count();
    assert!(while_links_broke > 1, "{}: it loaded snapshots after {snapshots:?} breaks", P::NAME);
}

under_each_protocol! { a_snapshot_comes_over_links_that_break: a_snapshot_comes_in_spite_of_broken_links; }
under_each_protocol! { a_snapshot_comes_over_links_that_break_while_others_write: a_snapshot_comes_though_newer_ones_are_cut; }
