//! A crash after every record of an election, a hand-over, an append, a cut-back tail, a change of members and a snapshot.
//!
//! Method: a scene is rehearsed to count what each node writes; then it is played for every node and every number of records
//! that reached its disk, with nobody or anybody cut off, before and after; the node dies at once or lingers with a dead disk,
//! noticed or not. The theatre's annals judge every step. In the end somebody serves and all hold the same.

mod support;

use hustings_core::{Admin, Change, Cluster, Limits, NodeId, Role};
use hustings_gmt2000::{Options, Timer};
use support::{End, Theatre, Verbs as _, one};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Scene {
    FirstElection,
    SecondElection,
    HandOver,
    Append,
    CutBack,
    Demotion,
    Installation,
}

const NODES: [u64; 3] = [1, 2, 3];
const NOBODY_OR_ANYBODY: [Option<u64>; 4] = [None, Some(1), Some(2), Some(3)];

fn prepared(scene: Scene) -> Theatre {
    let limits = Limits { trailing_entries: 0, ..Limits::default() };
    let mut theatre = Theatre::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    if scene == Scene::FirstElection {
        return theatre;
    }
    theatre.elect(1);
    theatre.propose(1, "before");
    match scene {
        Scene::CutBack => {
            theatre.isolate(1);
            theatre.propose(1, "lost");
            theatre.propose(1, "lost as well");
            theatre.silence(&[2, 3]);
            theatre.ring(2, Timer::Watch);
            theatre.pass_round();
            theatre.heal();
        }
        Scene::Installation => {
            theatre.isolate(3);
            theatre.propose(1, "a");
            theatre.propose(1, "b");
            theatre.compact(1);
            theatre.heal();
        }
        _ => {}
    }
    theatre
}

/// Whoever leads speaks; snapshots that are offered arrive; round trips pass.
fn go_on(theatre: &mut Theatre) {
    theatre.settle();
    for id in NODES {
        if theatre.role(id) == Role::Leader && !theatre.actor(id).is_dead {
            theatre.ring_if_armed(id, Timer::Heartbeat);
            theatre.settle();
        }
    }
    for id in NODES {
        if theatre.actor(id).fetching.is_some() && !theatre.actor(id).is_dead {
            theatre.finish_fetch(id);
        }
        theatre.ring_if_armed(id, Timer::Round);
    }
    theatre.settle();
}

/// The part in which somebody dies.
fn play(theatre: &mut Theatre, scene: Scene, cut_off: Option<u64>) {
    if let Some(id) = cut_off {
        theatre.isolate(id);
    }
    match scene {
        Scene::FirstElection => theatre.ring(1, Timer::Watch),
        Scene::SecondElection => {
            theatre.silence(&NODES);
            theatre.ring(2, Timer::Watch);
        }
        Scene::HandOver => drop(theatre.admin(1, Admin::Transfer(NodeId(3)))),
        Scene::Append => drop(theatre.propose_quietly(1, "x")),
        Scene::Demotion => drop(theatre.change_quietly(1, &one(Change::AddLearner(NodeId(3))))),
        Scene::CutBack | Scene::Installation => {}
    }
    (0..3).for_each(|_| go_on(theatre));
}

/// One after the other calls an election, or speaks if it leads, until one of them commits.
fn govern(theatre: &mut Theatre, among: &[u64]) -> Option<u64> {
    for round in 0..6 {
        for id in among {
            if theatre.role(*id) != Role::Leader {
                theatre.silence(among);
                theatre.ring_if_armed(*id, Timer::Watch);
                (0..3).for_each(|_| go_on(theatre));
            }
            if theatre.role(*id) == Role::Leader {
                theatre.propose(*id, &format!("round {round}"));
                go_on(theatre);
                if theatre.role(*id) == Role::Leader && theatre.commit(*id) == theatre.last(*id).index {
                    return Some(*id);
                }
            }
        }
    }
    None
}

#[derive(Debug)]
struct Crash {
    node: u64,
    records: usize,
    end: End,
    is_noticed: bool,
    cut_off: Option<u64>,
    cut_off_later: Option<u64>,
}

fn crash(scene: Scene, plan: &Crash) {
    let mut theatre = prepared(scene);
    theatre.end_disk_after(plan.node, plan.records, plan.end);
    play(&mut theatre, scene, plan.cut_off);
    theatre.heal();
    if let Some(id) = plan.cut_off_later {
        theatre.isolate(id);
    }
    theatre.restart(plan.node);
    if plan.is_noticed {
        for other in NODES.into_iter().filter(|id| *id != plan.node) {
            theatre.link_down(other, plan.node);
            theatre.link_up(other, plan.node);
        }
    }
    let (first, then): (Vec<u64>, Vec<u64>) = NODES.into_iter().partition(|id| Some(*id) != plan.cut_off_later);
    // Perhaps no two of them vote; then they wait.
    let _ = govern(&mut theatre, &first);
    theatre.heal();
    // Whoever was cut off tries first, with whatever it still believes.
    let leader = govern(&mut theatre, &[then, first].concat()).expect("with all connected somebody serves");
    (0..3).for_each(|_| go_on(&mut theatre));
    let (last, commit) = (theatre.last(leader), theatre.commit(leader));
    for id in NODES {
        assert_eq!((theatre.last(id), theatre.commit(id)), (last, commit), "n{id} holds what the leader holds");
    }
    let newest = theatre.annals.committed.keys().next_back().copied();
    assert_eq!(newest, Some(commit), "nothing that was ever applied is beyond what the leader holds");
}

#[test]
fn a_crash_after_any_record_breaks_no_promise() {
    let scenes = [
        Scene::FirstElection,
        Scene::SecondElection,
        Scene::HandOver,
        Scene::Append,
        Scene::CutBack,
        Scene::Demotion,
        Scene::Installation,
    ];
    for scene in scenes {
        let (mut tried, mut points) = (0, 0);
        for node in NODES {
            for cut_off in NOBODY_OR_ANYBODY {
                let mut rehearsal = prepared(scene);
                let before = rehearsal.actor(node).written;
                play(&mut rehearsal, scene, cut_off);
                let written = rehearsal.actor(node).written - before;
                points += written;
                for records in 0..=written {
                    for cut_off_later in NOBODY_OR_ANYBODY {
                        for (end, is_noticed) in
                            [(End::AtOnce, false), (End::AtOnce, true), (End::Lingering, false), (End::Lingering, true)]
                        {
                            let plan = Crash { node, records, end, is_noticed, cut_off, cut_off_later };
                            let ended = std::panic::catch_unwind(|| crash(scene, &plan));
                            assert!(ended.is_ok(), "{scene:?}, {written} records in the rehearsal: {plan:?}");
                            tried += 1;
                        }
                    }
                }
            }
        }
        println!("{scene:?}: {tried} crashes at {points} records");
        assert!(tried > 0 && points > 0, "{scene:?}: nothing was written, so nothing was tried");
    }
}
