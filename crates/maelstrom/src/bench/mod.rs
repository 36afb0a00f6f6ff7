//! A bench for Maelstrom nodes, as a value: [`Bench`]. Lines of nodes and the time go in, [`Order`]s come out.
//!
//! It is all clients, the network between nodes, the nemeses and the history; its driver owns the nodes: real processes
//! ([`processes`]) or values in virtual time ([`virtual_time`]). Equal seeds and equal lines give equal orders.
//!
//! ```text
//!    start, init ──► load with faults ──► faults end, clients finish ──► every node must serve again ──► judge
//! ```
//!
//! Source: `docs/protocols/rules/maelstrom.md`, MB-1 to MB-8. What it deliberately does not do: it offers no services
//! (`lin-kv` and the others) to the nodes, and it does not shrink.
//!
//! Read next: [`settings`], then [`report`].

pub mod history;
pub mod load;
pub mod nemesis;
pub mod network;
pub mod processes;
pub mod report;
pub mod settings;
pub mod virtual_time;

use crate::dice::Dice;
use crate::envelope::{Body, Envelope, body, is_definite};
use history::{End, History, Operation};
use load::Load;
use nemesis::{Move, Schedule};
use network::{Flight, Network};
use report::Report;
use serde_json::{Value, json};
use settings::{SECOND, Settings, Workload};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Longest time that a node may take to answer `init` (MN-1), and to serve again when all faults are over (MI-4).
const INIT_PATIENCE: u64 = 10 * SECOND;
const RECOVERY: u64 = 10 * SECOND;
/// Longest time that the tool may take from one node to the next until it knows it.
const REGISTRATION_MAX: u64 = SECOND / 2;
/// Interval at which a node that does not serve yet is asked again.
const ASK_AGAIN: u64 = SECOND / 2;

/// An order of the bench to the driver of the nodes.
#[derive(Clone, PartialEq, Debug)]
pub enum Order {
    /// Start this process; the flag says whether it is its first life.
    Start(usize, bool),
    /// Give this line to the node.
    Line(usize, String),
    /// Kill the process; with `true` its power is cut, and what it had not synced is gone.
    Kill(usize, bool),
    /// Stop the process, without ending it.
    Pause(usize),
    /// Let the process go on.
    Resume(usize),
}

/// The reason why a client waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    Init(usize),
    Topology(usize),
    Operation(usize, usize),
}

#[derive(Clone, Debug)]
struct Ask {
    purpose: Purpose,
    has_reply: bool,
}

#[derive(Clone, Debug)]
struct Client {
    id: String,
    process: u64,
    node: usize,
    next_msg: i64,
    /// The operation under way, and when the client gives up.
    busy: Option<(usize, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Down,
    /// Its `init_ok` must come by then.
    Starting(u64),
    Up,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Starting,
    Load {
        until: u64,
    },
    /// No new operations, no faults; those under way end.
    Draining,
    /// The load is over: every node must serve.
    Settling {
        not_before: u64,
        until: u64,
    },
    Over,
}

/// A run that is under way.
pub struct Bench {
    settings: Settings,
    phase: Phase,
    network: Network,
    load: Load,
    schedule: Option<Schedule>,
    dice: Dice,
    lives: Vec<Life>,
    /// Nodes that the bench does not know yet, in order, with the time at which it gets to know and starts each.
    unknown: VecDeque<(u64, usize)>,
    is_paused: Vec<bool>,
    has_topology: Vec<bool>,
    /// One per thread, then one per node for the end.
    clients: Vec<Client>,
    next_client: u64,
    next_process: u64,
    asks: BTreeMap<(String, i64), Ask>,
    client_ids: BTreeSet<String>,
    next_operation_at: u64,
    next_final_at: u64,
    serves: Vec<bool>,
    history: History,
    orders: VecDeque<Order>,
    report: Report,
}

impl Bench {
    /// A run at its beginning; its first orders start the nodes.
    ///
    /// # Panics
    /// When the settings do not pass their own check.
    pub fn new(settings: Settings) -> Bench {
        assert_eq!(settings.check(), Ok(()), "settings are checked where they are made");
        let (nodes, seed) = (settings.nodes, settings.seed);
        let mut bench = Bench {
            phase: Phase::Starting,
            network: Network::new(nodes, settings.latency, settings.distribution, Dice::new(seed, 1)),
            load: Load::new(&settings, Dice::new(seed, 2)),
            schedule: None,
            dice: Dice::new(seed, 3),
            lives: vec![Life::Down; nodes],
            unknown: VecDeque::new(),
            is_paused: vec![false; nodes],
            has_topology: vec![false; nodes],
            clients: Vec::new(),
            next_client: 0,
            next_process: 0,
            asks: BTreeMap::new(),
            client_ids: BTreeSet::new(),
            next_operation_at: 0,
            next_final_at: 0,
            serves: vec![false; nodes],
            history: History::default(),
            orders: VecDeque::new(),
            report: Report::new(&settings),
            settings,
        };
        for thread in 0..bench.settings.concurrency + nodes {
            let is_final = thread >= bench.settings.concurrency;
            let node = if is_final { thread - bench.settings.concurrency } else { thread % nodes };
            let (id, process) = (bench.open_client(), bench.number_process());
            bench.clients.push(Client { id, process, node, next_msg: 1, busy: None });
        }
        // One after the other, as the genuine tool does it; how far apart is a matter of its machine.
        let mut dice = Dice::new(seed, 6);
        let mut at = 0;
        for node in 0..nodes {
            bench.unknown.push_back((at, node));
            at += dice.between(0, REGISTRATION_MAX);
        }
        bench.register(0);
        bench
    }

    /// Time at which the bench wants to be called next; `None` when the run is over.
    pub fn next(&self) -> Option<u64> {
        if self.phase == Phase::Over {
            return None;
        }
        let phase = match self.phase {
            Phase::Load { until } => until.min(self.next_operation_at),
            Phase::Settling { .. } => self.next_final_at,
            Phase::Starting | Phase::Draining | Phase::Over => u64::MAX,
        };
        let starts = self.lives.iter().filter_map(|life| match life {
            Life::Starting(until) => Some(*until),
            Life::Down | Life::Up => None,
        });
        let registration = self.unknown.front().map(|(at, _)| *at);
        let clients = self.clients.iter().filter_map(|client| client.busy.map(|(_, until)| until));
        let schedule = self.schedule.as_ref().and_then(Schedule::next);
        starts.chain(registration).chain(clients).chain(schedule).chain(self.network.next()).chain([phase]).min()
    }

    /// The orders that were not taken yet, in order.
    pub fn take_orders(&mut self) -> impl Iterator<Item = Order> {
        std::mem::take(&mut self.orders).into_iter()
    }

    /// Whether the run is over.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Judges the run; gives the report, and the history that it was judged by.
    pub fn end(mut self) -> (Report, History) {
        self.report.traffic = self.network.traffic;
        self.report.judge(self.settings.workload, &self.history);
        (self.report, self.history)
    }

    fn is_known(&self, node: usize) -> bool {
        self.unknown.iter().all(|(_, unknown)| *unknown != node)
    }

    /// Gets to know and starts the nodes whose time has come.
    fn register(&mut self, now: u64) {
        while let Some((_, node)) = self.unknown.front().filter(|(at, _)| *at <= now).copied() {
            self.unknown.pop_front();
            self.start(now, node, true);
        }
    }

    // --- Nodes. --------------------------------------------------------------------------------------------------

    fn start(&mut self, now: u64, node: usize, is_first: bool) {
        self.lives[node] = Life::Starting(now + INIT_PATIENCE);
        self.is_paused[node] = false;
        self.orders.push_back(Order::Start(node, is_first));
        let names: Vec<String> = (0..self.settings.nodes).map(|node| format!("n{node}")).collect();
        let client = self.open_client();
        let init = json!({"type": "init", "node_id": names[node], "node_ids": names});
        self.ask(now, client, 1, node, body(init), Purpose::Init(node));
    }

    /// A process ended that should not have.
    pub fn on_exit(&mut self, now: u64, node: usize, how: &str) {
        if self.lives[node] != Life::Down {
            self.lives[node] = Life::Down;
            self.fail(now, format!("n{node} ended by itself: {how}"));
        }
    }

    /// The run cannot go on.
    fn fail(&mut self, now: u64, what: String) {
        self.note(now, what.clone());
        self.report.breakdowns.push(what);
        self.phase = Phase::Over;
    }

    fn note(&mut self, now: u64, what: String) {
        let place = self.history.place();
        self.history.faults.push((now, place, what));
    }

    fn carry_out(&mut self, now: u64, what: Move) {
        self.note(now, what.to_string());
        if let Some(kind) = what.kind() {
            *self.report.faults.entry(kind.into()).or_default() += 1;
        }
        match what {
            Move::Cut(by, _, refused) => {
                refused.into_iter().enumerate().for_each(|(to, from)| self.network.refuse(by, to, from))
            }
            Move::Heal(by) => self.network.heal(by),
            Move::Kill(nodes, is_power) => {
                for node in nodes {
                    if self.lives[node] != Life::Down {
                        self.lives[node] = Life::Down;
                        self.is_paused[node] = false;
                        self.orders.push_back(Order::Kill(node, is_power));
                    }
                }
            }
            Move::Restart(nodes) => {
                for node in nodes {
                    if self.lives[node] == Life::Down {
                        self.start(now, node, false);
                    }
                }
            }
            Move::Pause(nodes) => {
                for node in nodes {
                    if self.lives[node] == Life::Up && !self.is_paused[node] {
                        self.is_paused[node] = true;
                        self.orders.push_back(Order::Pause(node));
                    }
                }
            }
            Move::Resume(nodes) => {
                for node in nodes {
                    if std::mem::take(&mut self.is_paused[node]) {
                        self.orders.push_back(Order::Resume(node));
                    }
                }
            }
            Move::Lose(part) => self.network.loss = part,
            Move::Double(part) => self.network.duplication = part,
        }
    }

    // --- Lines. --------------------------------------------------------------------------------------------------

    /// A node printed a line. A line that would silence it in the genuine tool (MP-6) is a violation here. A line that was printed
    /// before a kill and is read after it counts: it had reached the pipe.
    pub fn on_line(&mut self, now: u64, node: usize, line: &str) {
        let envelope = match Envelope::parse(line) {
            Ok(envelope) => envelope,
            Err(why) => return self.report.violate("lines", format!("n{node} printed {line:?}, which is {why}")),
        };
        if self.node_named(&envelope.src).is_none() {
            return self.report.violate("lines", format!("n{node} speaks as {:?}, which nobody is", envelope.src));
        }
        if let Some(to) = self.node_named(&envelope.dest) {
            if !self.is_known(to) {
                let what = format!("n{node} speaks to n{to} before the tool knows it, and would not be heard again");
                return self.report.violate("lines", what);
            }
            let line = envelope.line();
            return self.network.send(now, to, Flight { from: Some(node), line });
        }
        if !self.client_ids.contains(&envelope.dest) {
            return self.report.violate("lines", format!("n{node} speaks to {:?}, which nobody is", envelope.dest));
        }
        self.on_reply(now, node, envelope);
    }

    fn node_named(&self, name: &str) -> Option<usize> {
        name.strip_prefix('n')?.parse().ok().filter(|node| *node < self.settings.nodes && format!("n{node}") == name)
    }

    fn on_reply(&mut self, now: u64, node: usize, envelope: Envelope) {
        let Some(asked) = envelope.in_reply_to() else {
            return self.report.violate("replies", format!("n{node} told {} something unasked", envelope.dest));
        };
        let Some(ask) = self.asks.get_mut(&(envelope.dest.clone(), asked)) else {
            return self
                .report
                .violate("replies", format!("n{node} answered {} to {asked}, never asked", envelope.dest));
        };
        if std::mem::replace(&mut ask.has_reply, true) {
            let what = format!("n{node} answered {} to {asked} a second time: {:?}", envelope.dest, envelope.body);
            return self.report.violate("replies", what);
        }
        match ask.purpose {
            Purpose::Init(of) if envelope.kind() == "init_ok" => {
                if matches!(self.lives[of], Life::Starting(_)) {
                    self.lives[of] = Life::Up;
                    self.on_started(now, of);
                }
            }
            Purpose::Init(of) => {
                let text = envelope.body.get("text").and_then(Value::as_str).unwrap_or(envelope.kind());
                self.fail(now, format!("n{of} could not be initialised: {text}"));
            }
            Purpose::Topology(of) => {
                self.has_topology[of] = true;
                self.begin_load(now);
            }
            Purpose::Operation(thread, operation) => self.on_answer(now, thread, operation, envelope.body),
        }
    }

    fn on_started(&mut self, now: u64, node: usize) {
        if self.settings.workload == Workload::Broadcast && !self.has_topology[node] {
            let name = |node: usize| format!("n{node}");
            let others = |node| (0..self.settings.nodes).filter(|other| *other != node).map(name).collect::<Vec<_>>();
            let topology: BTreeMap<String, Vec<String>> =
                (0..self.settings.nodes).map(|node| (name(node), others(node))).collect();
            let client = self.open_client();
            let request = body(json!({"type": "topology", "topology": topology}));
            return self.ask(now, client, 1, node, request, Purpose::Topology(node));
        }
        self.has_topology[node] = true;
        self.begin_load(now);
    }

    fn begin_load(&mut self, now: u64) {
        let is_ready = self.lives.iter().all(|life| *life == Life::Up) && self.has_topology.iter().all(|has| *has);
        if self.phase != Phase::Starting || !is_ready {
            return;
        }
        self.phase = Phase::Load { until: now + self.settings.time_limit };
        self.next_operation_at = if self.settings.rate > 0.0 { now } else { u64::MAX };
        self.schedule = Some(Schedule::new(&self.settings, now, Dice::new(self.settings.seed, 4)));
    }

    // --- Clients. ------------------------------------------------------------------------------------------------

    fn open_client(&mut self) -> String {
        let id = format!("c{}", self.next_client);
        self.next_client += 1;
        self.client_ids.insert(id.clone());
        id
    }

    fn number_process(&mut self) -> u64 {
        self.next_process += 1;
        self.next_process - 1
    }

    fn ask(&mut self, now: u64, client: String, msg_id: i64, node: usize, mut request: Body, purpose: Purpose) {
        request.insert("msg_id".into(), json!(msg_id));
        let line = Envelope { src: client.clone(), dest: format!("n{node}"), body: request }.line();
        self.asks.insert((client, msg_id), Ask { purpose, has_reply: false });
        self.network.send(now, node, Flight { from: None, line });
    }

    fn invoke(&mut self, now: u64, thread: usize) {
        let is_final = thread >= self.settings.concurrency;
        let process = self.clients[thread].process;
        let request = if is_final { self.load.last() } else { self.load.next(thread, process) };
        let until = now + self.settings.patience();
        let invoked = self.history.place();
        let operation = self.history.operations.len();
        let client = &mut self.clients[thread];
        client.busy = Some((operation, until));
        let (id, msg_id, node) = (client.id.clone(), client.next_msg, client.node);
        client.next_msg += 1;
        self.history.operations.push(Operation {
            process,
            node,
            request: request.clone(),
            invoked_at: now,
            invoked,
            end: None,
            late: None,
            is_final,
        });
        self.ask(now, id, msg_id, node, request, Purpose::Operation(thread, operation));
    }

    /// Interprets an answer (MX-1).
    fn on_answer(&mut self, now: u64, thread: usize, operation: usize, reply: Body) {
        let asked = &self.history.operations[operation];
        let is_idempotent = asked.function() == "read";
        let end = if reply.get("type").and_then(Value::as_str) == Some("error") {
            let code = reply.get("code").and_then(Value::as_i64);
            let text = reply.get("text").and_then(Value::as_str).unwrap_or_default().to_string();
            match code {
                Some(code) if is_definite(code) || is_idempotent => End::Fail(code, text),
                Some(code) => End::Info(format!("error {code}: {text}")),
                None => {
                    let what = format!("n{} answered with an error that has no code: {reply:?}", asked.node);
                    self.report.violate("replies", what);
                    End::Info("an error without a code".into())
                }
            }
        } else if let Err(why) = load::shape(self.settings.workload, &asked.request, &reply) {
            self.report.violate("replies", format!("n{}: {why}", asked.node));
            End::Info(why)
        } else {
            End::Ok(reply)
        };
        let place = self.history.place();
        let ended = &mut self.history.operations[operation];
        if ended.end.is_some() {
            ended.late = Some((now, place, end));
            self.report.late += 1;
            return;
        }
        ended.end = Some((now, place, end.clone()));
        self.on_ended(now, thread, &end);
    }

    fn on_ended(&mut self, now: u64, thread: usize, end: &End) {
        self.clients[thread].busy = None;
        if matches!(end, End::Info(_)) {
            let process = self.number_process();
            self.clients[thread].process = process;
            // MP-7: these workloads close the client, the others use it on.
            let keeps = [Workload::LinKv, Workload::TxnListAppend, Workload::TxnRwRegister, Workload::UniqueIds];
            if !keeps.contains(&self.settings.workload) {
                let id = self.open_client();
                self.clients[thread].id = id;
            }
        }
        if let Some(node) = thread.checked_sub(self.settings.concurrency) {
            self.serves[node] |= match end {
                End::Ok(_) => true,
                // A key that was never written answers so, and that is an answer.
                End::Fail(code, _) => *code == crate::envelope::code::ABSENT,
                End::Info(_) => false,
            };
            if !self.serves[node] {
                self.next_final_at = self.next_final_at.max(now + ASK_AGAIN);
            }
        }
    }

    fn give_up(&mut self, now: u64) {
        for thread in 0..self.clients.len() {
            let Some((operation, until)) = self.clients[thread].busy else { continue };
            if until > now {
                continue;
            }
            let place = self.history.place();
            // Of a read nobody needs to know whether it happened (MX-1).
            let is_read = self.history.operations[operation].function() == "read";
            let end = if is_read { End::Fail(0, "no answer".into()) } else { End::Info("no answer".into()) };
            self.history.operations[operation].end = Some((now, place, end.clone()));
            self.on_ended(now, thread, &end);
        }
    }

    // --- Time. ---------------------------------------------------------------------------------------------------

    /// Lets everything happen that is due.
    pub fn on_time(&mut self, now: u64) {
        if self.phase == Phase::Over {
            return;
        }
        self.register(now);
        self.deliver(now);
        for node in 0..self.settings.nodes {
            if matches!(self.lives[node], Life::Starting(until) if until <= now) {
                return self.fail(now, format!("n{node} did not answer `init` within ten seconds"));
            }
        }
        self.give_up(now);
        while let Some(what) = self.schedule.as_mut().and_then(|schedule| schedule.due(now)) {
            self.carry_out(now, what);
        }
        self.on_phase(now);
    }

    fn deliver(&mut self, now: u64) {
        while let Some((to, flight)) = self.network.arrived(now) {
            if self.lives[to] != Life::Down {
                self.orders.push_back(Order::Line(to, flight.line));
            }
        }
    }

    fn on_phase(&mut self, now: u64) {
        match self.phase {
            Phase::Load { until } if now >= until => {
                self.phase = Phase::Draining;
                let last = self.schedule.take().map(|mut schedule| schedule.end()).unwrap_or_default();
                last.into_iter().for_each(|what| self.carry_out(now, what));
                self.on_phase(now);
            }
            Phase::Load { .. } if now >= self.next_operation_at => {
                let threads = self.settings.concurrency;
                let free: Vec<usize> = (0..threads).filter(|thread| self.clients[*thread].busy.is_none()).collect();
                if free.is_empty() {
                    // Looked at again soon; what is late is not made up for.
                    self.next_operation_at = now + SECOND / 1_000;
                    return;
                }
                let thread = free[self.dice.index(free.len())];
                let gap = (2.0 * SECOND as f64 / self.settings.rate) as u64;
                self.next_operation_at = now + self.dice.between(0, gap);
                self.invoke(now, thread);
                self.deliver(now);
            }
            Phase::Draining if self.clients.iter().all(|client| client.busy.is_none()) => {
                // Nodes without consensus get the genuine tool's ten seconds to spread what they know.
                let spreads = [Workload::Broadcast, Workload::GSet, Workload::PnCounter];
                let wait = if spreads.contains(&self.settings.workload) { RECOVERY } else { 0 };
                self.phase = Phase::Settling { not_before: now + wait, until: now + wait + RECOVERY };
                self.next_final_at = now + wait;
            }
            Phase::Settling { not_before, until } if now >= not_before && now >= self.next_final_at => {
                let mute: Vec<usize> = (0..self.settings.nodes).filter(|node| !self.serves[*node]).collect();
                let is_waiting = self.clients.iter().any(|client| client.busy.is_some());
                if (mute.is_empty() || now >= until) && !is_waiting {
                    for node in mute {
                        let what = format!("n{node} did not serve within ten seconds after all faults had ended");
                        self.report.violate("recovery", what);
                    }
                    self.phase = Phase::Over;
                    return;
                }
                self.next_final_at = now + ASK_AGAIN / 10;
                if now < until {
                    for node in mute {
                        let thread = self.settings.concurrency + node;
                        if self.clients[thread].busy.is_none() {
                            self.invoke(now, thread);
                        }
                    }
                    self.deliver(now);
                }
            }
            _ => {}
        }
    }
}
