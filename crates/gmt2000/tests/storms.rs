//! Seeded storms: messages are lost, delayed, repeated, nodes crash and disks are held, and no guarantee is ever
//! broken; when it is over a leader serves.
//!
//! Method: a seed decides what happens next, from all that may: a message arrives, out of order, or is lost or comes twice; any
//! armed timer fires; a node dies with what its disk had not taken; disks are held and let go; links break and are seen to;
//! clients propose and read, administrators hand over, members change, snapshots are cut. The theatre's annals judge every step
//! (one leader per term, one vote per ballot, one history); reads are judged here. Then all heals, and service must be back.

mod support;

use hustings_core::{
    Admin, Change, Cluster, DiskHealth, Durable, Input, Limits, MembershipChange, NodeId, Protocol, Role, Ticket,
};
use hustings_gmt2000::{Options, Timer};
use std::collections::{BTreeMap, BTreeSet};
use support::{Theatre, Verbs as _, one};

/// A small generator of numbers: the same seed gives the same storm on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % sides
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())]
    }
}

/// Counts of a storm's events.
#[derive(Default, Debug)]
struct Tally {
    deaths: usize,
    losses: usize,
    reigns: usize,
    applied: usize,
    reads: usize,
    changes: usize,
    fetches: usize,
}

struct Storm {
    theatre: Theatre,
    dice: Dice,
    /// The highest index applied anywhere when a read came.
    floors: BTreeMap<(u64, Ticket), u64>,
    cut_off: BTreeSet<(u64, u64)>,
    tally: Tally,
    number: u64,
}

impl Storm {
    fn new(seed: u64, voters: u64, options: Options) -> Storm {
        let limits = Limits { trailing_entries: seed % 3, ..Limits::default() };
        let theatre = Theatre::new(Cluster { limits, ..Cluster::of(voters, 1) }, options);
        let dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Storm { theatre, dice, floors: BTreeMap::new(), cut_off: BTreeSet::new(), tally: Tally::default(), number: 0 }
    }

    fn anybody(&mut self) -> u64 {
        let ids = self.theatre.ids();
        self.dice.pick(&ids)
    }

    fn step(&mut self) {
        let id = self.anybody();
        match self.dice.roll(100) {
            0..55 => self.deliver_any(),
            55..75 => self.ring_any(id),
            75..82 => {
                self.number += 1;
                let text = self.number.to_string();
                self.theatre.propose_quietly(id, &text);
            }
            82..85 => self.read(id),
            85..87 => self.die(id),
            87..89 => self.theatre.hold_disk(id),
            89..92 => self.theatre.release_disk(id),
            92..94 => self.toggle_link(id),
            94 => {
                let to = self.anybody();
                self.theatre.admin(id, Admin::Transfer(NodeId(to)));
            }
            95 => drop(self.theatre.admin(id, Admin::Campaign)),
            96 => self.change_members(id),
            97 => self.compact(id),
            98 => {
                let health = self.dice.pick(&[DiskHealth::Stalled, DiskHealth::Recovered]);
                self.theatre.input(id, Input::Health(health));
            }
            _ => self.finish_fetch(id),
        }
        self.judge_reads();
    }

    fn deliver_any(&mut self) {
        if self.theatre.table.is_empty() {
            return;
        }
        // Mostly in order, or nothing would ever be agreed upon.
        let at = if self.dice.roll(3) == 0 { self.dice.roll(self.theatre.table.len()) } else { 0 };
        let (from, to, message) = self.theatre.table.remove(at).expect("it is on the table");
        let fate = self.dice.roll(20);
        if fate == 0 || self.cut_off.contains(&(from, to)) {
            self.tally.losses += 1;
            return;
        }
        if fate == 1 {
            self.theatre.table.push_back((from, to, message.clone()));
        }
        self.theatre.deliver(from, to, message);
    }

    fn ring_any(&mut self, id: u64) {
        let armed: Vec<Timer> = self.theatre.actor(id).armed.iter().copied().collect();
        if !armed.is_empty() {
            let timer = self.dice.pick(&armed);
            self.theatre.fire(id, timer);
        }
    }

    fn read(&mut self, id: u64) {
        self.number += 1;
        let floor = self.theatre.annals.committed.keys().next_back().copied().unwrap_or(0);
        self.floors.insert((id, Ticket::Read { node: NodeId(id), number: self.number }), floor);
        self.theatre.read(id, self.number);
    }

    /// Reads that were confirmed see everything that was applied anywhere when they came.
    fn judge_reads(&mut self) {
        for id in self.theatre.ids() {
            for (ticket, index) in std::mem::take(&mut self.theatre.actors.get_mut(&id).expect("an actor").reads) {
                let floor = self.floors[&(id, ticket)];
                assert!(index >= floor, "n{id} reads at {index}, and {floor} was applied before it asked");
                self.tally.reads += 1;
            }
        }
    }

    fn die(&mut self, id: u64) {
        self.tally.deaths += 1;
        self.tally.applied += self.theatre.actor(id).applied.len();
        self.theatre.restart(id);
        if self.dice.roll(2) == 0 {
            for other in self.theatre.ids().into_iter().filter(|other| *other != id) {
                self.theatre.link_down(other, id);
                self.theatre.link_up(other, id);
            }
        }
    }

    fn toggle_link(&mut self, id: u64) {
        let other = self.anybody();
        if other == id {
            return;
        }
        let is_seen = self.dice.roll(2) == 0;
        if self.cut_off.remove(&(id, other)) {
            self.theatre.link_up(id, other);
        } else {
            self.cut_off.insert((id, other));
            if is_seen {
                self.theatre.link_down(id, other);
            }
        }
    }

    /// n4 comes and goes, as learner or voter; n3 is demoted and comes back. Two steps at once are refused.
    fn change_members(&mut self, id: u64) {
        let membership = self.theatre.value(id).status().membership;
        let three = NodeId(3);
        let newcomer = NodeId(membership.next_id);
        let change = match self.dice.roll(5) {
            0 => one(Change::AddLearner(three)),
            1 => one(Change::AddVoter(three)),
            2 => one(Change::AddVoter(newcomer)),
            3 => one(Change::Remove(NodeId(membership.next_id - 1))),
            _ => MembershipChange::of([Change::Remove(NodeId(1)), Change::Remove(NodeId(2))]),
        };
        let is_large = membership.voters.len() > 4 || newcomer.0 > 8;
        let removes_founder = change.steps.iter().any(|step| matches!(step, Change::Remove(NodeId(1..=3))));
        if change.steps.len() == 1 && ((is_large && change.steps == [Change::AddVoter(newcomer)]) || removes_founder) {
            return;
        }
        self.tally.changes += 1;
        self.theatre.change_quietly(id, &change);
        if change.steps == [Change::AddVoter(newcomer)] && !self.theatre.actors.contains_key(&newcomer.0) {
            self.theatre.enter(newcomer.0, Durable::default());
        }
    }

    fn compact(&mut self, id: u64) {
        // A host cuts snapshots of what it has applied, and what it has applied is durable.
        let applied = self.theatre.actor(id).applied.last().map_or(0, |entry| entry.lsn.index);
        if applied > 0 && applied == self.theatre.commit(id) && self.theatre.actor(id).fetching.is_none() {
            self.theatre.compact(id);
        }
    }

    fn finish_fetch(&mut self, id: u64) {
        if let Some(reference) = self.theatre.actors.get_mut(&id).expect("an actor").fetching.take() {
            self.tally.fetches += 1;
            let lsn = reference.lsn;
            let is_lost = self.dice.roll(4) == 0;
            if is_lost {
                return self.theatre.input(id, Input::SnapshotFailed(reference));
            }
            self.theatre.input(id, Input::SnapshotReady(reference));
            self.theatre.input(id, Input::SnapshotInstalled(lsn));
        }
    }

    /// All faults end; within a few timeouts a leader serves, and all nodes hold the same.
    fn calm(&mut self) {
        self.cut_off.clear();
        for id in self.theatre.ids() {
            self.theatre.release_disk(id);
            self.theatre.input(id, Input::Health(DiskHealth::Recovered));
            for other in self.theatre.ids().into_iter().filter(|other| *other != id) {
                self.theatre.link_up(id, other);
            }
        }
        for _ in 0..60 {
            self.theatre.settle();
            for id in self.theatre.ids() {
                if self.theatre.actor(id).fetching.is_some() {
                    self.theatre.finish_fetch(id);
                }
                // A leader speaks thrice within the shortest timeout of its followers.
                for _ in 0..3 {
                    self.theatre.fire_if_armed(id, Timer::Heartbeat);
                    self.theatre.settle();
                }
            }
            for id in self.theatre.ids() {
                self.theatre.fire_if_armed(id, Timer::Round);
                self.theatre.fire_if_armed(id, Timer::Transfer);
                self.theatre.fire_if_armed(id, Timer::QuorumCheck);
                self.theatre.settle();
            }
            if self.has_settled() {
                return;
            }
            let idle: Vec<u64> = self.theatre.ids().into_iter().filter(|id| self.is_without_leader(*id)).collect();
            self.theatre.silence(&idle);
            if !idle.is_empty() {
                let id = self.dice.pick(&idle);
                self.theatre.fire_if_armed(id, Timer::Watch);
            }
        }
        let said: Vec<_> = self.theatre.ids().iter().map(|id| (*id, self.theatre.value(*id).status())).collect();
        panic!("no service after the storm: {said:#?}");
    }

    /// Nobody leads, or not in a way that this node could follow.
    fn is_without_leader(&self, id: u64) -> bool {
        let leader = self.theatre.leader_of(id);
        leader.is_none_or(|leader| {
            self.theatre.actors.get(&leader).is_none_or(|_| self.theatre.role(leader) != Role::Leader)
        })
    }

    fn has_settled(&mut self) -> bool {
        let [leader] = self.theatre.leaders()[..] else { return false };
        let before = self.theatre.commit(leader);
        self.theatre.propose(leader, "calm");
        self.theatre.heartbeat(leader);
        let commit = self.theatre.commit(leader);
        let membership = self.theatre.value(leader).status().membership;
        let mut voters = membership.all_voters();
        commit > before
            && voters.all(|voter| {
                self.theatre.actors.contains_key(&voter.0)
                    && (self.theatre.last(voter.0), self.theatre.commit(voter.0)) == (self.theatre.last(leader), commit)
            })
    }
}

fn storm(seed: u64, voters: u64, steps: usize) -> Tally {
    let mut storm = Storm::new(seed, voters, Options::default());
    for _ in 0..steps {
        storm.step();
    }
    storm.calm();
    storm.tally.reigns = storm.theatre.annals.reigns.len();
    storm.tally.applied += storm.theatre.actors.values().map(|actor| actor.applied.len()).sum::<usize>();
    storm.tally
}

#[test]
fn no_storm_contradicts_what_must_hold_and_service_returns() {
    let seeds: u64 = std::env::var("HUSTINGS_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(600);
    let mut total = Tally::default();
    for seed in 1..=seeds {
        let voters = [3, 3, 5][seed as usize % 3];
        let ended = std::panic::catch_unwind(|| storm(seed, voters, 600));
        let tally = ended.unwrap_or_else(|_| panic!("seed {seed} with {voters} voters"));
        total.deaths += tally.deaths;
        total.losses += tally.losses;
        total.reigns += tally.reigns;
        total.applied += tally.applied;
        total.reads += tally.reads;
        total.changes += tally.changes;
        total.fetches += tally.fetches;
    }
    println!("{seeds} seeds: {total:?}");
    let Tally { deaths, losses, reigns, applied, reads, changes, fetches } = total;
    assert!([deaths, losses, reigns, applied, reads, changes, fetches].iter().all(|count| *count > 0), "{total:?}");
}

#[test]
fn the_published_form_is_convicted_by_seeds() {
    // Goal: the same storms find G1 broken as published, in a calm sea: nobody dies, only messages and timers come as they may.
    let mut convicted = Vec::new();
    for seed in 1..=200 {
        let mut storm = Storm::new(seed, 3, Options::PUBLISHED);
        for step in 0..300 {
            let id = storm.anybody();
            if storm.dice.roll(4) == 0 {
                storm.ring_any(id);
            } else if !storm.theatre.table.is_empty() {
                let at = storm.dice.roll(storm.theatre.table.len());
                let (from, to, message) = storm.theatre.table.remove(at).expect("it is on the table");
                storm.theatre.deliver(from, to, message);
            }
            if storm.theatre.annals.reigns.values().any(|reign| reign.len() > 1) {
                convicted.push((step, seed));
                break;
            }
        }
    }
    let shortest = convicted.iter().min().expect("some seed shows two leaders in one term");
    println!(
        "{} of 200 seeds show two leaders in one term; the shortest is {shortest:?} (step, seed)",
        convicted.len()
    );
}
