//! A crash after every record of an election, an append, a change of membership and a snapshot's installation.
//!
//! Goal: `raft_crash_points`. Method: a scene is played once to count what each node writes; then again for every node and
//! every number of records that reached its disk. The sequel of a crash is played in all ways that matter on three nodes: which
//! node is cut off during the scene, which while the others go on, whether anybody hears of the crash, whether the node dies at
//! once or lingers with a dead disk. Every step is checked against the stage's chronicle: one leader per term (RI-1), committed
//! prefixes agree (RI-5), one vote per term (RI-8). At the end a leader serves and everybody holds the same.

mod support;

use hustings_core::{Change, Cluster, Limits, Lsn, MembershipChange, NodeId, Passage, Role, Term};
use hustings_raft::{Message, Options, Timer};
use support::{End, Stage, stage};

#[derive(Clone, Copy, Debug)]
enum Scene {
    Election,
    SecondElection,
    Append,
    Overwrite,
    SimpleChange,
    JointChange,
    Install,
}

fn prepared(scene: Scene) -> Stage {
    let limits = Limits { trailing_entries: 0, ..Limits::default() };
    let mut stage = Stage::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    if matches!(scene, Scene::Election) {
        return stage;
    }
    stage.elect(1);
    stage.propose(1, "before");
    match scene {
        Scene::Install => {
            stage.isolate(3);
            stage.propose(1, "a");
            stage.propose(1, "b");
            stage.compact(1);
            stage.heal();
        }
        Scene::Overwrite => {
            // n2 holds a tail that nobody else has: it will have to go.
            stage.elect(2);
            stage.isolate(2);
            stage.propose(2, "lost a");
            stage.propose(2, "lost b");
            stage.elect_among(&[1, 3]);
            stage.heal();
        }
        _ => {}
    }
    stage
}

/// The part during which somebody dies.
fn play(stage: &mut Stage, scene: Scene, cut_off: Option<u64>) {
    if let Some(id) = cut_off {
        stage.isolate(id);
    }
    let demote = |id: u64, passage| MembershipChange { steps: vec![Change::AddLearner(NodeId(id))], passage };
    match scene {
        Scene::Election => stage.fire(1, Timer::Election),
        Scene::SecondElection => {
            (1..=3).for_each(|id| stage.forget_freshness(id));
            stage.fire(2, Timer::Election);
        }
        Scene::Append => drop(stage.propose_quietly(1, "x")),
        Scene::Overwrite => {}
        Scene::SimpleChange => drop(stage.change_quietly(1, demote(3, Passage::Auto))),
        Scene::JointChange => drop(stage.change_quietly(1, demote(2, Passage::JointImplicit))),
        Scene::Install => {}
    }
    stage.settle();
    for _ in 0..2 {
        stage.leaders_speak();
    }
}

/// One node after the other campaigns, or speaks if it leads, until one of them commits.
fn govern(stage: &mut Stage, among: &[u64]) -> Option<u64> {
    for round in 0..4 {
        for id in among {
            among.iter().for_each(|id| stage.forget_freshness(*id));
            if stage.role(*id) != Role::Leader && stage.is_armed(*id, Timer::Election) {
                stage.fire(*id, Timer::Election);
                stage.settle();
            }
            stage.leaders_speak();
            if stage.role(*id) == Role::Leader {
                stage.propose(*id, &format!("round {round}"));
                if stage.role(*id) == Role::Leader && stage.commit(*id) == stage.last(*id).index {
                    return Some(*id);
                }
            }
        }
    }
    None
}

impl Stage {
    fn elect_among(&mut self, among: &[u64]) {
        govern(self, among).expect("a majority elects");
    }

    /// Leaders send a heartbeat; snapshots that are offered arrive.
    fn leaders_speak(&mut self) {
        for id in 1..=3 {
            if self.role(id) == Role::Leader && !self.member(id).is_dead {
                self.heartbeat(id);
            }
        }
        for id in 1..=3 {
            if self.member(id).fetching.is_some() && !self.member(id).is_dead {
                self.finish_fetch(id);
                self.settle();
            }
        }
    }
}

const NODES: [u64; 3] = [1, 2, 3];
const CUTS: [Option<u64>; 4] = [None, Some(1), Some(2), Some(3)];

struct Crash {
    node: u64,
    records: usize,
    end: End,
    is_noticed: bool,
    cut_off: Option<u64>,
    cut_off_later: Option<u64>,
}

fn crash(scene: Scene, crash: &Crash) {
    let mut stage = prepared(scene);
    stage.end_disk_after(crash.node, crash.records, crash.end);
    play(&mut stage, scene, crash.cut_off);
    stage.heal();
    if let Some(id) = crash.cut_off_later {
        stage.isolate(id);
    }
    stage.restart(crash.node);
    if crash.is_noticed {
        for other in NODES.into_iter().filter(|id| *id != crash.node) {
            stage.link_down(other, crash.node);
            let up = hustings_core::Input::Link { peer: NodeId(crash.node), state: hustings_core::LinkState::Up };
            stage.input(other, up);
        }
    }
    let (first, then): (Vec<u64>, Vec<u64>) = NODES.into_iter().partition(|id| Some(*id) != crash.cut_off_later);
    // Perhaps no two of them are voters; then they wait.
    let _ = govern(&mut stage, &first);
    stage.heal();
    // The node that was cut off tries first, with the view that it still has.
    let leader = govern(&mut stage, &[then, first].concat()).expect("with all connected somebody serves");
    for _ in 0..3 {
        stage.leaders_speak();
    }
    let (last, commit) = (stage.last(leader), stage.commit(leader));
    for id in NODES {
        assert_eq!((stage.last(id), stage.commit(id)), (last, commit), "n{id} holds what the leader holds");
    }
    let newest = stage.chronicle.committed.keys().next_back().copied();
    assert_eq!(newest, Some(commit), "nothing that was ever applied is beyond what the leader holds");
}

#[test]
fn a_crash_after_any_record_breaks_no_promise() {
    let scenes = [
        Scene::Election,
        Scene::SecondElection,
        Scene::Append,
        Scene::Overwrite,
        Scene::SimpleChange,
        Scene::JointChange,
        Scene::Install,
    ];
    for scene in scenes {
        let mut tried = 0;
        let mut points = 0;
        for node in NODES {
            for cut_off in CUTS {
                let mut rehearsal = prepared(scene);
                let before = rehearsal.member(node).written;
                play(&mut rehearsal, scene, cut_off);
                let written = rehearsal.member(node).written - before;
                points += written;
                for records in 0..=written {
                    for cut_off_later in CUTS {
                        for (end, is_noticed) in
                            [(End::AtOnce, false), (End::AtOnce, true), (End::Lingering, false), (End::Lingering, true)]
                        {
                            let plan = Crash { node, records, end, is_noticed, cut_off, cut_off_later };
                            let what = format!(
                                "{scene:?}: n{node} {end:?} after {records} of {written} records, noticed {is_noticed}, \
                                 n{cut_off:?} cut off, then n{cut_off_later:?}"
                            );
                            let ended = std::panic::catch_unwind(|| crash(scene, &plan));
                            assert!(ended.is_ok(), "{what}");
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

#[test]
fn an_own_acknowledgement_from_an_earlier_term_counts_for_nothing() {
    // Goal: RH-7, RH-19, the leader's side. Method: n1 leads term 1, is deposed, leads term 3; its disk is held, one follower
    // has the new entry; now the acknowledgement of an entry at the same index, written in term 1, comes late.
    let mut stage = stage(3);
    stage.elect(1);
    stage.elect(2);
    stage.elect(1);
    assert_eq!(stage.term(1), 3);
    stage.isolate(3);
    stage.hold_disk(1);
    stage.propose(1, "x");
    let (last, commit) = (stage.last(1).index, stage.commit(1));
    assert_eq!(commit + 1, last, "one of three holds it durably");
    for term in [1, 2] {
        stage.deliver(1, 1, Message::Matched { term: Term(term), index: last });
        assert_eq!(stage.commit(1), commit, "written in term {term}, and perhaps overwritten since");
    }
    stage.release_disk(1);
    stage.settle();
    assert_eq!(stage.commit(1), last);
}

#[test]
fn an_acknowledgement_waits_for_the_copy_of_its_own_term() {
    // Goal: `raft_async_append_aba`, RH-7, the follower's side. Method: n3's disk is held while leaders of terms 1, 2 and 3
    // write the same index one after the other; then its records become durable one by one.
    let mut stage = stage(3);
    stage.elect(1);
    stage.take_messages();
    stage.hold_disk(3);
    let entry = |term| hustings_core::Entry::blank(Lsn::new(term, 2));
    let previous = Lsn::new(1, 1);
    for (term, leader) in [(1, 1), (2, 2), (3, 1)] {
        let append = Message::Append { term: Term(term), previous, entries: vec![entry(term)], commit: 1 };
        stage.deliver(leader, 3, append);
    }
    let acknowledged = |stage: &mut Stage| {
        let said = stage.take_messages();
        said.into_iter().filter_map(|(_, _, message)| match message {
            Message::Matched { term, index: 2 } => Some(term.0),
            _ => None,
        })
    };
    let mut told = Vec::new();
    let mut steps = 0;
    while stage.unsynced(3) > 0 {
        stage.sync_one(3);
        steps += 1;
        let holds = stage.member(3).durable.entries.get(&2).map(|entry| entry.lsn.term.0);
        for term in acknowledged(&mut stage) {
            assert_eq!(holds, Some(term), "it acknowledges what it holds");
            told.push(term);
        }
    }
    assert!(steps >= 5, "an entry, a promise, a truncation and an entry for each later term: {steps}");
    assert_eq!(told.last(), Some(&3));
}
