//! Nodes as values in virtual time: [`run`], and [`Subject`], a node that can be run so.
//!
//! The node is the same value that a process hosts, above a simulated disk: a sync takes a while, a killed node keeps what it
//! had written, and one whose power was cut only what it had synced. Equal settings give equal runs.

use super::history::History;
use super::report::Report;
use super::settings::Settings;
use super::{Bench, Order};
use crate::dice::Dice;
use crate::node::{Node, Output, Setup};
use crate::storage::Place;
use hustings_core::Protocol;
use hustings_wal::SimulatedDisk;
use hustings_wal::sim::Loss;
use std::collections::VecDeque;

/// Shortest and longest time of a sync, in microseconds.
const SYNC: (u64, u64) = (80, 2_000);

/// Something that takes lines and times and gives lines: a node.
pub trait Subject {
    /// Takes a line of its standard input.
    ///
    /// # Errors
    /// When it ends by itself.
    fn on_line(&mut self, now: u64, line: &str, out: &mut Output) -> Result<(), String>;
    /// Fires the timers that are due.
    ///
    /// # Errors
    /// When it ends by itself.
    fn on_time(&mut self, now: u64, out: &mut Output) -> Result<(), String>;
    /// Time at which it wants to be called next.
    fn next_timer(&self) -> Option<u64>;
    /// Whether an effect waits for its disk.
    fn wants_sync(&self) -> bool;
    /// Its disk has synced.
    ///
    /// # Errors
    /// When it ends by itself.
    fn sync(&mut self, now: u64, out: &mut Output) -> Result<(), String>;
}

impl<P: Protocol> Subject for Node<P> {
    fn on_line(&mut self, now: u64, line: &str, out: &mut Output) -> Result<(), String> {
        Node::on_line(self, now, line, out).map_err(|error| error.to_string())
    }

    fn on_time(&mut self, now: u64, out: &mut Output) -> Result<(), String> {
        Node::on_time(self, now, out).map_err(|error| error.to_string())
    }

    fn next_timer(&self) -> Option<u64> {
        Node::next_timer(self)
    }

    fn wants_sync(&self) -> bool {
        Node::wants_sync(self)
    }

    fn sync(&mut self, now: u64, out: &mut Output) -> Result<(), String> {
        Node::sync(self, now, out).map_err(|error| error.to_string())
    }
}

/// A process that is none.
struct Machine<N> {
    node: Option<N>,
    lives: u64,
    is_paused: bool,
    /// Lines that came while it was paused.
    stash: VecDeque<String>,
    synced_at: Option<u64>,
}

/// A run in which nodes come from a function: by their number and how often they have lived.
pub struct Simulation<N, F> {
    bench: Bench,
    make: F,
    machines: Vec<Machine<N>>,
    dice: Dice,
    now: u64,
    /// Lines for people that nodes wrote: time, node, line.
    pub notes: Vec<(u64, usize, String)>,
}

impl<N: Subject, F: FnMut(usize, u64, Option<Loss>) -> N> Simulation<N, F> {
    /// A run at its beginning. `make` is given what the end of the life before lost; `None` in the first.
    pub fn new(settings: Settings, make: F) -> Simulation<N, F> {
        let blank = |_| Machine { node: None, lives: 0, is_paused: false, stash: VecDeque::new(), synced_at: None };
        let machines = (0..settings.nodes).map(blank).collect();
        let dice = Dice::new(settings.seed, 5);
        Simulation { bench: Bench::new(settings), make, machines, dice, now: 0, notes: Vec::new() }
    }

    /// Runs until the bench says that it is over.
    pub fn run(mut self) -> (Report, History, Vec<(u64, usize, String)>) {
        let mut losses: Vec<Option<Loss>> = vec![None; self.machines.len()];
        loop {
            let orders: Vec<Order> = self.bench.take_orders().collect();
            for order in orders {
                self.carry_out(order, &mut losses);
            }
            if self.bench.is_over() {
                let (report, history) = self.bench.end();
                return (report, history, self.notes);
            }
            let timers = self.machines.iter().filter(|machine| !machine.is_paused).flat_map(|machine| {
                [machine.synced_at, machine.node.as_ref().and_then(Subject::next_timer)].into_iter().flatten()
            });
            let Some(next) = timers.chain(self.bench.next()).min() else {
                unreachable!("a bench that is not over wants to be told the time");
            };
            self.now = self.now.max(next);
            self.bench.on_time(self.now);
            let orders: Vec<Order> = self.bench.take_orders().collect();
            for order in orders {
                self.carry_out(order, &mut losses);
            }
            for at in 0..self.machines.len() {
                self.turn(at);
            }
        }
    }

    fn carry_out(&mut self, order: Order, losses: &mut [Option<Loss>]) {
        match order {
            Order::Start(at, _) => {
                let machine = &mut self.machines[at];
                machine.lives += 1;
                machine.is_paused = false;
                machine.node = Some((self.make)(at, machine.lives, losses[at]));
            }
            Order::Line(at, line) => {
                if self.machines[at].is_paused {
                    self.machines[at].stash.push_back(line);
                } else {
                    self.tell(at, |node, now, out| node.on_line(now, &line, out));
                }
            }
            Order::Kill(at, is_power) => {
                let machine = &mut self.machines[at];
                machine.node = None;
                machine.is_paused = false;
                machine.stash.clear();
                machine.synced_at = None;
                losses[at] = Some(if is_power { Loss::EachTorn } else { Loss::Nothing });
            }
            Order::Pause(at) => self.machines[at].is_paused = true,
            Order::Resume(at) => {
                self.machines[at].is_paused = false;
                while let Some(line) = self.machines[at].stash.pop_front() {
                    self.tell(at, |node, now, out| node.on_line(now, &line, out));
                }
            }
        }
    }

    /// Does what is due at one node: first its disk, then its timers.
    fn turn(&mut self, at: usize) {
        let (now, machine) = (self.now, &mut self.machines[at]);
        if machine.is_paused {
            return;
        }
        if machine.synced_at.is_some_and(|at| at <= now) {
            machine.synced_at = None;
            self.tell(at, |node, now, out| node.sync(now, out));
        }
        if self.machines[at].node.as_ref().and_then(Subject::next_timer).is_some_and(|at| at <= now) {
            self.tell(at, |node, now, out| node.on_time(now, out));
        }
    }

    fn tell(&mut self, at: usize, what: impl FnOnce(&mut N, u64, &mut Output) -> Result<(), String>) {
        let (now, machine) = (self.now, &mut self.machines[at]);
        let Some(node) = &mut machine.node else { return };
        let mut out = Output::default();
        let result = what(node, now, &mut out);
        if machine.synced_at.is_none() && node.wants_sync() {
            machine.synced_at = Some(now + self.dice.between(SYNC.0, SYNC.1));
        }
        self.notes.extend(out.notes.into_iter().map(|note| (now, at, note)));
        for line in out.lines {
            self.bench.on_line(now, at, &line);
        }
        if let Err(why) = result {
            self.machines[at].node = None;
            self.bench.on_exit(now, at, &why);
        }
    }
}

/// Runs nodes of our own with protocol `P`. `place` of the setup is not used: each node has a simulated disk.
pub fn run<P: Protocol>(settings: Settings, setup: &Setup<P>) -> (Report, History, Vec<(u64, usize, String)>) {
    let seed = settings.seed;
    let disks: Vec<SimulatedDisk> =
        (0..settings.nodes as u64).map(|node| SimulatedDisk::new(Dice::new(seed, 100 + node).throw())).collect();
    Simulation::new(settings, |node, life, loss| {
        let disk = &disks[node];
        if let Some(loss) = loss {
            disk.restart(loss);
        }
        let seed = Dice::new(seed, 200 + node as u64).throw().wrapping_add(life);
        Node::<P>::new(Setup {
            place: Place::Simulated(disk.clone()),
            may_resume: loss.is_some(),
            seed,
            ..setup.clone()
        })
    })
    .run()
}
