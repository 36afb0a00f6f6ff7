//! Goal: the case that log-freshness protocols lose. Five members; the leader is gone; only n5 reaches a quorum, and n5 is behind. A
//! protocol that lets only the freshest log lead has no leader until the network heals. One that elects first and learns what it missed
//! from its quorum serves within five seconds. Neither loses anything. Method: the storm `constrained-election`, watched.

use hustings_blazingmq::BlazingMq;
use hustings_core::Protocol;
use hustings_gmt2000::Gmt2000;
use hustings_kv::KvStore;
use hustings_paxos::Paxos;
use hustings_raft::Raft;
use hustings_world::command::Command;
use hustings_world::{Script, World};
use hustings_zab::Zab;

const SECOND: u64 = 1_000_000;
const STORM: &str = include_str!("../../../scenarios/constrained-election/storm.txt");

/// Plays the storm; gives back what was committed between five and ten seconds after the leader had gone, while the network was
/// constrained. Everything that must hold anyhow is judged with it.
fn committed_meanwhile<P: Protocol>() -> u64 {
    let script = Script::parse(STORM).expect("the storm can be read");
    let mut world: World<P, KvStore> =
        World::new(script.settings.clone(), P::Options::default()).expect("a world begins");
    let mut committed = None;
    let mut is_marked = false;
    for command in &script.commands {
        if is_marked && let Command::Wait(micros) = command {
            world.run_until(world.now() + 5 * SECOND).expect("all holds");
            let before = world.highest_applied();
            world.run_until(world.now() + micros - 5 * SECOND).expect("all holds");
            committed = Some(world.highest_applied() - before);
            is_marked = false;
            continue;
        }
        is_marked = matches!(command, Command::Mark);
        world.apply(command).expect("all holds, and in the end all are the same");
    }
    hustings_properties::check(&world.history()).expect("what clients saw is linearizable");
    committed.expect("the storm waits after its mark")
}

#[test]
fn raft_waits_for_the_network() {
    assert_eq!(committed_meanwhile::<Raft>(), 0);
}

#[test]
fn zab_waits_for_the_network() {
    assert_eq!(committed_meanwhile::<Zab>(), 0);
}

#[test]
fn gmt_2000_waits_for_the_network() {
    assert_eq!(committed_meanwhile::<Gmt2000>(), 0);
}

#[test]
fn blazingmq_leads_first_and_learns_afterwards() {
    assert!(committed_meanwhile::<BlazingMq>() > 50);
}

#[test]
fn paxos_learns_from_its_promises_what_it_missed() {
    assert!(committed_meanwhile::<Paxos>() > 50);
}
