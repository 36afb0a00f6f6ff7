//! A crash after every record of an election, a hand-over, an append, a cut-back tail, a change of members and a snapshot, under
//! any protocol.
//!
//! A scene is rehearsed to count what each node writes; then it is played for every node and every number of records that reached
//! its disk, with nobody or anybody cut off, before and after; the node dies at once or lingers with a dead disk, noticed or not.
//! The stage's annals judge every step. In the end somebody serves and all hold the same.

use crate::{Direction, End, Options, Theatre, one};
use hustings_core::{Admin, Change, Cluster, Limits, MembershipChange, NodeId, Passage, Protocol as _, Role, Slots};
use std::panic::RefUnwindSafe;

/// The passing of time for a protocol on a stage without time.
pub trait Crashing: Direction {
    /// This node is the first to act on the silence of the leader, which these nodes do not hear any more.
    fn call(theatre: &mut Theatre<Self>, id: u64, among: &[u64]);

    /// Lets a round trip pass at this node: messages that wait for it, wait no more.
    fn pass(theatre: &mut Theatre<Self>, id: u64);
}

/// The scene in which a node dies.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scene {
    /// The first election: nobody has led yet.
    FirstElection,
    /// The leader is not heard any more.
    SecondElection,
    /// The leader is asked to hand over.
    HandOver,
    /// A client writes a command.
    Append,
    /// A leader that was cut off comes back with entries that were never committed.
    CutBack,
    /// A voter becomes a learner.
    Demotion,
    /// The same by way of a joint membership; not among [`SCENES`], because only Raft has those.
    JointDemotion,
    /// A follower that was cut off needs the leader's snapshot.
    Installation,
}

/// The scenes of all protocols, for tests that play each of them.
pub const SCENES: [Scene; 7] = [
    Scene::FirstElection,
    Scene::SecondElection,
    Scene::HandOver,
    Scene::Append,
    Scene::CutBack,
    Scene::Demotion,
    Scene::Installation,
];

const NODES: [u64; 3] = [1, 2, 3];
const NOBODY_OR_ANYBODY: [Option<u64>; 4] = [None, Some(1), Some(2), Some(3)];

/// The leader when the scene begins, and the others.
#[derive(Clone, Copy)]
struct Cast {
    leader: u64,
    first: u64,
    second: u64,
}

fn prepared<D: Crashing>(scene: Scene) -> (Theatre<D>, Cast) {
    let limits = Limits { trailing_entries: 0, ..Limits::default() };
    let mut theatre = Theatre::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::<D>::default());
    if scene == Scene::FirstElection {
        return (theatre, Cast { leader: 1, first: 2, second: 3 });
    }
    let leader = govern(&mut theatre, &NODES).expect("with all connected somebody serves");
    let mut others = NODES.into_iter().filter(|id| *id != leader);
    let cast = Cast { leader, first: others.next().expect("three"), second: others.next().expect("three") };
    match scene {
        Scene::CutBack => {
            theatre.isolate(leader);
            theatre.propose(leader, "lost");
            theatre.propose(leader, "lost as well");
            D::call(&mut theatre, cast.first, &[cast.first, cast.second]);
            (0..2).for_each(|_| go_on(&mut theatre));
            theatre.propose(cast.first, "instead");
            theatre.heal();
        }
        Scene::Installation => {
            theatre.isolate(cast.second);
            theatre.propose(leader, "a");
            theatre.propose(leader, "b");
            theatre.compact(leader);
            theatre.heal();
        }
        _ => {}
    }
    (theatre, cast)
}

/// Lets leaders speak, snapshots that are offered arrive, and round trips pass.
fn go_on<D: Crashing>(theatre: &mut Theatre<D>) {
    theatre.settle();
    for id in NODES {
        if !theatre.actor(id).is_dead {
            theatre.fire_if_armed(id, D::HEARTBEAT);
            theatre.settle();
        }
    }
    for id in NODES {
        if theatre.actor(id).fetching.is_some() && !theatre.actor(id).is_dead {
            theatre.finish_fetch(id);
        }
        D::pass(theatre, id);
    }
    theatre.settle();
}

/// The part in which somebody dies.
fn play<D: Crashing>(theatre: &mut Theatre<D>, scene: Scene, cast: Cast, cut_off: Option<u64>) {
    if let Some(id) = cut_off {
        theatre.isolate(id);
    }
    match scene {
        Scene::FirstElection => D::call(theatre, 1, &NODES),
        Scene::SecondElection => D::call(theatre, cast.first, &NODES),
        Scene::HandOver => {
            theatre.admin(cast.leader, Admin::Transfer(NodeId(cast.second)));
        }
        Scene::Append => {
            theatre.propose_quietly(cast.leader, "x");
        }
        Scene::Demotion => {
            theatre.change_quietly(cast.leader, &one(Change::AddLearner(NodeId(cast.second))));
        }
        Scene::JointDemotion => {
            let steps = vec![Change::AddLearner(NodeId(cast.first))];
            theatre.change_quietly(cast.leader, &MembershipChange { steps, passage: Passage::JointImplicit });
        }
        Scene::CutBack | Scene::Installation => {}
    }
    (0..3).for_each(|_| go_on(theatre));
}

/// One after the other calls an election, or speaks if it leads, until one of them commits.
fn govern<D: Crashing>(theatre: &mut Theatre<D>, among: &[u64]) -> Option<u64> {
    for round in 0..6 {
        for id in among {
            if theatre.role(*id) != Role::Leader {
                D::call(theatre, *id, among);
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

fn crash<D: Crashing>(scene: Scene, plan: &Crash) {
    let (mut theatre, cast) = prepared::<D>(scene);
    theatre.end_disk_after(plan.node, plan.records, plan.end);
    play(&mut theatre, scene, cast, plan.cut_off);
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
    // The node that was cut off tries first, with the view that it still has.
    let leader = govern(&mut theatre, &[then, first].concat()).expect("with all connected somebody serves");
    (0..3).for_each(|_| go_on(&mut theatre));
    // Where slots are independent, some may be left over behind the end that were accepted and never chosen.
    let end = |theatre: &Theatre<D>, id| (D::Protocol::SLOTS == Slots::InOrder).then(|| theatre.last(id));
    let (last, commit) = (end(&theatre, leader), theatre.commit(leader));
    for id in NODES {
        assert_eq!((end(&theatre, id), theatre.commit(id)), (last, commit), "n{id} holds what the leader holds");
    }
    let newest = theatre.annals.committed.keys().next_back().copied();
    assert_eq!(newest, Some(commit), "nothing that was ever applied is beyond what the leader holds");
}

/// Plays a scene with every crash; prints how many there were.
///
/// # Panics
/// When one of them breaks a promise, or nothing was written at all.
pub fn crash_after_any_record<D: Crashing + RefUnwindSafe>(scene: Scene) {
    let (mut tried, mut points) = (0, 0);
    for node in NODES {
        for cut_off in NOBODY_OR_ANYBODY {
            let (mut rehearsal, cast) = prepared::<D>(scene);
            let before = rehearsal.actor(node).written;
            play(&mut rehearsal, scene, cast, cut_off);
            let written = rehearsal.actor(node).written - before;
            points += written;
            for records in 0..=written {
                for cut_off_later in NOBODY_OR_ANYBODY {
                    for (end, is_noticed) in
                        [(End::AtOnce, false), (End::AtOnce, true), (End::Lingering, false), (End::Lingering, true)]
                    {
                        let plan = Crash { node, records, end, is_noticed, cut_off, cut_off_later };
                        let ended = std::panic::catch_unwind(|| crash::<D>(scene, &plan));
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
