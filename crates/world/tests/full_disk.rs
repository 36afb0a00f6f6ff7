//! Goal: ST-10: a disk without room for a snapshot ends nobody; the next one is cut when there is room again.

use hustings_core::{NodeId, Protocol};
use hustings_kv::KvStore;
use hustings_raft::{Options, Raft};
use hustings_world::{Script, World};

#[test]
fn a_snapshot_that_finds_no_room_ends_nobody() {
    let puts: String = (0..20).map(|number| format!("put key{number} {number}\n")).collect();
    let head = "cluster 3 seed 5 snapshots 12 trailing 2\nload clients 0 watchers 0 rivals 0\nsettle 6s\n";
    let text = format!("{head}disk all full 0\n{puts}wait 2s\ndisk all roomy\n{puts}wait 2s\nexpect same\n");
    let script = Script::parse(&text).expect("a script");
    let mut world: World<Raft, KvStore> = World::new(script.settings.clone(), Options::default()).expect("a beginning");
    let mut cut_before = None;
    let played = script.play(&mut world, |command, world| {
        if command.to_string() == "disk all roomy" {
            cut_before = Some(world.counts.snapshots);
        }
    });
    played.unwrap_or_else(|violation| panic!("{violation}\n{:#?}", world.journal.lines));
    for id in 1..=3 {
        assert!(world.replica(NodeId(id)).is_some(), "n{id} runs: {:#?}", world.journal.lines);
        assert_eq!(
            world.replica(NodeId(id)).map(|replica| replica.status().term.0),
            Some(1),
            "nobody had to be replaced"
        );
    }
    assert!(
        cut_before.is_some_and(|before| world.counts.snapshots > before),
        "there is room again: {:?}",
        world.counts
    );
}

/// Goal: a member without room for a snapshot that it fetches lives on, and gets it once there is room. Method: it is cut off while the
/// others write and cut snapshots, and its disk is full when it comes back.
fn a_fetch_ends_when_there_is_room<P: Protocol>() {
    let puts: String = (0..40).map(|number| format!("put key{} {number}\n", number % 10)).collect();
    let head = "cluster 3 seed 5 snapshots 8 trailing 2\nload clients 0 watchers 0 rivals 0\nsettle 6s\n";
    let text = format!(
        "{head}transfer n1\nwait 2s\n{puts}isolate n3\n{puts}wait 2s\ndisk n3 full 0\nheal\nwait 3s\ndisk n3 roomy\nwait 12s\nexpect same\n"
    );
    let script = Script::parse(&text).expect("a script");
    let mut world: World<P, KvStore> = World::new(script.settings.clone(), P::Options::default()).expect("a beginning");
    let mut behind = None;
    let played = script.play(&mut world, |command, world| {
        if command.to_string() == "disk n3 roomy" {
            let applied = |id| world.replica(NodeId(id)).map_or(0, |replica| replica.applied().index);
            behind = Some(applied(1).max(applied(2)).saturating_sub(applied(3)));
            assert_eq!(world.counts.installs, 0, "{}: nothing was fetched without room", P::NAME);
        }
    });
    played.unwrap_or_else(|violation| panic!("{}: {violation}\n{:#?}", P::NAME, world.journal.lines));
    assert!(behind.is_some_and(|entries| entries > 20), "{}: without room it lacked {behind:?} entries", P::NAME);
    assert!(world.counts.installs > 0, "{}: what it lacked was in a snapshot: {:?}", P::NAME, world.counts);
    assert!(world.replica(NodeId(3)).is_some(), "{}: it lives on: {:#?}", P::NAME, world.journal.lines);
}

under_each_protocol! { a_fetch_that_finds_no_room_ends_once_there_is_some: a_fetch_ends_when_there_is_room; }
