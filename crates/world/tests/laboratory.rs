//! Goal: what a page draws is what happened: a message that is delayed comes later, a read tells what it saw, a recording begins
//! alike however long the run goes on. Method: short scripts under Raft and, for session links, ZAB.

use hustings_core::{NodeId, Protocol, Role};
use hustings_kv::KvStore;
use hustings_raft::Raft;
use hustings_world::recording::{Condition, LinkCondition};
use hustings_world::{Arrow, Script, World};
use hustings_zab::Zab;

const BEGINNING: &str = "cluster 3 seed 4\nload clients 0\nnetwork 20ms 20ms\nsettle 5s\n";

fn played<P: Protocol>(script: &str) -> World<P, KvStore> {
    let script = Script::parse(&format!("{BEGINNING}{script}")).expect("it can be read");
    let mut world = World::new(script.settings.clone(), P::Options::default()).expect("it begins well");
    world.start_recording();
    script.play(&mut world, |_, _| {}).expect("all properties hold");
    world
}

fn arrows<P: Protocol>(world: &World<P, KvStore>, from: NodeId, to: NodeId) -> Vec<Arrow> {
    world.journal.arrows.iter().filter(|arrow| (arrow.from, arrow.to) == (from, to)).cloned().collect()
}

/// The arrival at each of the others of the leader's first message after it was asked to write.
fn first_copies<P: Protocol>(script: &str) -> Vec<u64> {
    let world = played::<P>(script);
    let leader = world.leader().expect("somebody leads");
    let asked =
        world.journal.lines.iter().find(|(_, line)| line.to_string().contains("put a b")).expect("it was asked").0;
    let first = |to: NodeId| {
        let sent = arrows(&world, leader, to).into_iter().filter(|arrow| arrow.sent_at >= asked);
        sent.map(|arrow| arrow.arrived_at.expect("nothing is lost")).collect::<Vec<_>>()
    };
    let arrivals: Vec<Vec<u64>> = world.ids().filter(|id| *id != leader).map(first).collect();
    if P::LINKS == hustings_core::Links::Session {
        let in_order = |one: &Vec<u64>| one.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(arrivals.iter().all(in_order), "nothing overtakes what is delayed: {arrivals:?}");
    }
    arrivals.iter().map(|one| one[0] - asked).collect()
}

#[test]
fn a_message_that_is_delayed_comes_later_and_no_other_does() {
    for (usual, delayed) in [
        (
            first_copies::<Raft>("put a b\nwait 900ms"),
            first_copies::<Raft>("put a b\ndelay leader follower.1 300ms\nwait 900ms"),
        ),
        (
            first_copies::<Zab>("put a b\nwait 900ms"),
            first_copies::<Zab>("put a b\ndelay leader follower.1 300ms\nwait 900ms"),
        ),
    ] {
        assert_eq!(delayed[0], usual[0] + 300_000, "{usual:?} {delayed:?}");
        assert_eq!(delayed[1], usual[1], "{usual:?} {delayed:?}");
    }
}

#[test]
fn a_read_tells_what_it_saw() {
    let world = played::<Raft>("get greeting\nput greeting hello\nwait 1s\nget greeting at follower.1\nwait 1s");
    let told: Vec<String> = world.journal.lines.iter().map(|(_, line)| line.to_string()).collect();
    assert!(told.iter().any(|line| line.contains("there is no greeting")), "{told:#?}");
    assert!(told.iter().any(|line| line.contains("greeting is hello")), "{told:#?}");
}

#[test]
fn a_recording_shows_roles_logs_conditions_and_cuts() {
    let world = played::<Raft>("put a b\nwait 1s\ncrash leader\nisolate n1\nwait 1ms\nheal");
    let recording = world.recording.as_ref().expect("it records");
    let mut leads = recording.members.iter().filter(|(_, _, state)| state.role == Role::Leader);
    assert!(leads.clone().count() > 1, "the leader's log grows while it leads");
    let last = leads.next_back().expect("somebody led").2.clone();
    assert!(last.cells.len() >= 2 && last.commit == 2 && last.cells.iter().all(|cell| cell.is_durable), "{last:?}");
    assert!(recording.members.iter().any(|(_, _, state)| state.condition == Condition::Down));
    let cuts = recording.links.iter().filter(|(.., condition)| *condition == LinkCondition::Cut).count();
    let healed = recording.links.iter().filter(|(.., condition)| *condition == LinkCondition::Open).count();
    assert_eq!((cuts, healed), (4, 4));
}

/// Otherwise a page could not go on from what it has.
#[test]
fn a_longer_run_begins_as_the_shorter_one() {
    let (short, long) = (played::<Zab>("put a b\nwait 1s"), played::<Zab>("put a b\nwait 1s\ncrash leader\nwait 3s"));
    let end = short.now();
    let members = |world: &World<Zab, KvStore>| {
        let all = world.recording.as_ref().expect("it records").members.clone();
        all.into_iter().filter(|(at, ..)| *at < end).collect::<Vec<_>>()
    };
    assert!(members(&short).len() > 5);
    assert_eq!(members(&short), members(&long));
    let arrows = |world: &World<Zab, KvStore>| {
        let all =
            world.journal.arrows.iter().filter(|arrow| arrow.arrived_at.or(arrow.lost_at).is_some_and(|at| at < end));
        all.cloned().collect::<Vec<_>>()
    };
    assert_eq!(arrows(&short), arrows(&long));
}
