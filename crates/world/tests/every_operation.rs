//! Goal: PR-08 and ST-16: a crash at every I/O operation of one write, one election, one snapshot and one change of membership
//! loses nothing and stops nobody. Method: each scene is rehearsed to count what each member's disk does; then it is played
//! again for every member and every operation, with the power gone at that operation; afterwards all come back, hold the same,
//! and every step of all of it was judged.

use hustings_core::{NodeId, Protocol};
use hustings_kv::KvStore;
use hustings_world::{Command, DiskFault, Line, Script, Target, World};

const HEAD: &str =
    "cluster 3 seed 5 snapshots 12 trailing 2\nload clients 0 watchers 1 rivals 0\nsettle 6s\nput before x\nwait 1s\n";
const SCENES: [(&str, &str); 4] = [
    ("a write", "put key value\nwait 500ms\n"),
    ("an election", "transfer follower.1\nwait 1s\n"),
    (
        "a snapshot",
        "put a 1\nput b 2\nput c 3\nput d 4\nput e 5\nput f 6\nput g 7\nput h 8\nput i 9\nput j 10\nwait 1s\n",
    ),
    ("a change of membership", "join\nwait 2s\n"),
];

fn begun<P: Protocol>() -> World<P, KvStore> {
    let script = Script::parse(HEAD).expect("the head is a script");
    let mut world = World::new(script.settings.clone(), P::Options::default()).expect("a beginning");
    script.play(&mut world, |_, _| {}).expect("nothing goes wrong before anything does");
    world
}

fn play<P: Protocol>(world: &mut World<P, KvStore>, lines: &str, what: &str) {
    for line in lines.lines() {
        let command = Command::parse(line).expect("a command");
        world.apply(&command).unwrap_or_else(|violation| panic!("{what}: {violation}\n{:#?}", world.journal.lines));
    }
}

fn every_operation<P: Protocol>() {
    for (name, scene) in SCENES {
        let mut crashes = 0;
        for id in 1..=3 {
            let mut rehearsal = begun::<P>();
            let before = rehearsal.disk_operations(NodeId(id)).expect("a member");
            play(&mut rehearsal, scene, name);
            let operations = rehearsal.disk_operations(NodeId(id)).expect("a member") - before;
            for operation in 1..=operations {
                let what =
                    format!("{}, {name}: n{id} loses its power at operation {operation} of {operations}", P::NAME);
                let mut world = begun::<P>();
                let fault = Command::Disk(Target::Node(id), DiskFault::CrashAt(operation));
                world.apply(&fault).expect("a plan is no fault yet");
                play(&mut world, scene, &what);
                let ended =
                    |line: &Line| matches!(line, Line::Host(node, told) if node.0 == id && told.starts_with("ends"));
                assert!(world.journal.lines.iter().any(|(_, line)| ended(line)), "{what}: the power stayed on");
                play(&mut world, "restart all\nwait 3s\nput after y\nwait 1s\nsettle 10s\nexpect same\n", &what);
                crashes += 1;
            }
        }
        println!("{}, {name}: {crashes} crashes", P::NAME);
        assert!(crashes >= 3, "{name}: the disks did nothing, so nothing was tried");
    }
}

under_each_protocol! { it_bears_a_crash_at_every_operation: every_operation; }
