//! Goal: ST-10: a disk without room for a snapshot ends nobody; the next one is cut when there is room again.

use hustings_core::NodeId;
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
