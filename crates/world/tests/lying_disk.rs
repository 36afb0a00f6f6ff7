//! Goal: a disk that says it has synced, and has not, costs its member and nothing else. Method: a third member's disk lies while
//! clients write; then its process ends, or the power goes.

use hustings_core::{NodeId, Protocol};
use hustings_kv::KvStore;
use hustings_world::{Script, World};

/// Plays a story of three members in which `then` follows after the third one's disk has lied of some entries.
fn played<P: Protocol>(then: &str) -> World<P, KvStore> {
    let puts: String = (0..20).map(|number| format!("put key{number} {number}\n")).collect();
    let head = "cluster 3 seed 5\nload clients 0 watchers 0 rivals 0\nsettle 6s\ntransfer n1\nwait 2s\n";
    let text = format!("{head}disk n3 lie\n{puts}wait 1s\nexpect same\n{then}");
    let script = Script::parse(&text).expect("a script");
    let mut world: World<P, KvStore> = World::new(script.settings.clone(), P::Options::default()).expect("a beginning");
    let played = script.play(&mut world, |_, _| {});
    played.unwrap_or_else(|violation| panic!("{}: {violation}\n{:#?}", P::NAME, world.journal.lines));
    world
}

fn who_has_lost_its_word_is_replaced<P: Protocol>() {
    let lost = "power-off n3\nput while-it-is-away 1\nwait 1s\nrestart n3\nwait 1s\nexpect refused n3\n";
    let world =
        played::<P>(&format!("{lost}remove n3\nwait 2s\njoin\nwait 12s\nput afterwards 1\nwait 1s\nexpect same\n"));
    let newcomer = world.replica(NodeId(4)).expect("it runs");
    assert!(newcomer.status().commit > 0, "{}: it has taken the place", P::NAME);
    assert!(!newcomer.membership().has(NodeId(3)), "{}: the liar is gone", P::NAME);
}

fn a_process_that_ends_loses_nothing<P: Protocol>() {
    let world = played::<P>("crash n3\nwait 1s\nrestart n3\nwait 6s\nput afterwards 1\nwait 1s\nexpect same\n");
    assert!(world.replica(NodeId(3)).is_some(), "{}: it goes on", P::NAME);
}

fn who_keeps_its_word_again_is_believed<P: Protocol>() {
    let cut = "disk n3 recover\nput honest 1\nwait 1s\npower-off n3\nwait 1s\nrestart n3\nwait 6s\n";
    let world = played::<P>(&format!("{cut}put afterwards 1\nwait 1s\nexpect same\n"));
    assert!(world.replica(NodeId(3)).is_some(), "{}: it has lost nothing", P::NAME);
}

under_each_protocol! { a_member_whose_disk_has_lied_is_replaced_when_the_power_goes: who_has_lost_its_word_is_replaced; }

under_each_protocol! { a_disk_that_keeps_its_word_again_is_believed: who_keeps_its_word_again_is_believed; }

under_each_protocol! { a_disk_that_lies_costs_nothing_while_the_power_stays: a_process_that_ends_loses_nothing; }
