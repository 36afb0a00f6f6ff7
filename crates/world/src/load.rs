//! The operations of a world's clients, and the answers they see: [`Load`].
//!
//! Clients read, write, delete and compare-and-set a few keys; every value is written once, so that what is seen names who
//! wrote it. Watchers follow all changes. Both choose a member, and another one when it does not answer. Their observations go to
//! the judges of `hustings-properties`.

mod pending;
mod watchers;

use crate::dice::Dice;
use crate::digested::Service;
use crate::settings::{LoadSettings, Settings};
use crate::world::{EventKind, World};
use bytes::Bytes;
use hustings_core::replica::{Event, Request};
use hustings_core::{EntryKind, Membership, NodeId, Protocol, Refusal};
use hustings_kv::{
    Command, Compact, Compare, CompareTarget, Comparison, DeleteRange, Outcome, Put, Range, Response, Txn, View,
};
use hustings_properties::{Act, Operation, Value, Violation};
use pending::{Pending, Wish};
use std::collections::BTreeMap;
use watchers::Watcher;

/// The asker of a request at a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Asked {
    /// A client, with the number of its operation.
    Client(usize, u64),
    /// A rival for the lock, with the number of its request.
    Rival(usize, u64),
    /// A candidate for the election, with the number of its request.
    Candidate(usize, u64),
    /// The operator, for a change of membership.
    Operator,
    /// A read by the operator: its place among those that were made.
    Reader(usize),
}

#[derive(Clone, Debug)]
struct Client {
    dice: Dice,
    pending: Option<Pending>,
    done: u64,
    /// Its last sight of each key: the best guess for a compare-and-set.
    seen: BTreeMap<u64, Value>,
    home: usize,
}

/// Start of the time in which clients have been waiting and none was served: a client that loses patience and asks again still waits.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    since: Option<u64>,
}

impl Waiting {
    fn begin(&mut self, now: u64) {
        self.since.get_or_insert(now);
    }

    /// Somebody was served: how long nobody had been.
    fn end(&mut self, now: u64, do_others_wait: bool) -> u64 {
        let gap = self.since.map_or(0, |since| now - since);
        self.since = do_others_wait.then_some(now);
        gap
    }
}

/// The clients of a world.
pub struct Load {
    settings: LoadSettings,
    clients: Vec<Client>,
    watchers: Vec<Watcher>,
    /// Digest of the events of each revision, as the first watcher saw them.
    events: BTreeMap<i64, u64>,
    /// Operations of clients, with their results.
    pub(crate) history: Vec<Operation>,
    next_value: u64,
    /// Operations of any kind.
    served: Waiting,
    /// Commits, while somebody wants to write: reads may go on where nothing commits.
    committed: Waiting,
    /// The highest commit that any member knew of.
    commit: u64,
    is_over: bool,
    /// Whether clients ask nobody but members.
    is_peace: bool,
    revision: i64,
    /// The highest revision up to which anybody asked for compaction.
    pub(crate) compacted_max: i64,
    dice: Dice,
    /// The mean pause of clients now, in microseconds.
    pace: u64,
    /// Keys that the operator read.
    pub(crate) keys_read: Vec<Bytes>,
    pub(crate) rivals: crate::rivals::Rivals,
    pub(crate) candidates: crate::candidates::Candidates,
}

/// The pause after an operation that was refused or got no answer, in microseconds.
const AFTER_REFUSAL: (u64, u64) = (5_000, 50_000);
/// One operation in so many asks for the compaction of history.
const COMPACT_EVERY: u64 = 150;
/// Revisions that a compaction leaves.
const COMPACT_KEEPS: i64 = 60;

fn key_of(key: u64) -> Bytes {
    Bytes::from(format!("key/{key}"))
}

/// A number, and so many bytes behind it.
fn value_of(value: u64, padding: u64) -> Bytes {
    let mut bytes = value.to_be_bytes().to_vec();
    bytes.resize(bytes.len() + padding as usize, b'.');
    bytes.into()
}

fn value_from(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).fold(0, |value, byte| value << 8 | u64::from(*byte))
}

impl Load {
    pub(crate) fn new(settings: &Settings, plants: crate::Plants) -> Load {
        let nodes = settings.nodes as usize;
        let client = |number| Client {
            dice: Dice::new(settings.seed, 10, number),
            pending: None,
            done: 0,
            seen: BTreeMap::new(),
            home: number as usize % nodes,
        };
        Load {
            settings: settings.load,
            clients: (0..settings.load.clients).map(client).collect(),
            watchers: (0..settings.load.watchers).map(|at| Watcher { at: at as usize % nodes, next: 1 }).collect(),
            events: BTreeMap::new(),
            history: Vec::new(),
            next_value: 0,
            served: Waiting::default(),
            committed: Waiting::default(),
            commit: 0,
            is_over: false,
            is_peace: false,
            revision: 0,
            compacted_max: 0,
            dice: Dice::new(settings.seed, 11, 0),
            pace: settings.load.pause,
            keys_read: Vec::new(),
            rivals: crate::rivals::Rivals::new(settings),
            candidates: crate::candidates::Candidates::new(settings, plants.candidate),
        }
    }

    /// Clients that wait at another machine than these, with the numbers of their operations.
    pub(crate) fn waiting_beyond(&self, machines: &[usize]) -> Vec<(usize, u64)> {
        let waits = |(client, state): (usize, &Client)| {
            let pending = state.pending.as_ref().filter(|pending| !machines.contains(&pending.at))?;
            Some((client, pending.number))
        };
        self.clients.iter().enumerate().filter_map(waits).collect()
    }

    /// Clients ask nobody but members from now on, where anybody knows who they are.
    pub(crate) fn begin_peace(&mut self) {
        self.is_peace = true;
    }

    /// Operations of clients so far, with their results; one without an answer is perhaps done.
    pub fn history(&self) -> Vec<Operation> {
        let mut history = self.history.clone();
        for (number, client) in (0..).zip(&self.clients) {
            history.extend(client.pending.as_ref().and_then(|pending| pending.perhaps(number)));
        }
        history
    }

    /// Start of the current outage as clients see it; `None` if nobody waits.
    pub(crate) fn waiting_since(&self) -> Option<u64> {
        match (self.served.since, self.committed.since) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    fn command(&mut self, key: u64, wish: Wish) -> Option<Command> {
        let (key, padding) = (key_of(key), self.settings.value_bytes);
        let value_of = |value| value_of(value, padding);
        Some(match wish {
            Wish::Read => return None,
            Wish::Write(value) => Command::Put(Put { key, value: value_of(value), ..Put::default() }),
            Wish::Delete => Command::DeleteRange(DeleteRange { key, ..DeleteRange::default() }),
            Wish::Swap(from, to) => {
                let target = match from {
                    Some(from) => CompareTarget::Value(value_of(from)),
                    None => CompareTarget::Version(0),
                };
                let compare = Compare {
                    comparison: Comparison::Equal as i32,
                    key: key.clone(),
                    range_end: Bytes::new(),
                    target: Some(target),
                };
                let put = Put { key: key.clone(), value: value_of(to), ..Put::default() };
                let range = Range { key, ..Range::default() };
                let step = |request| hustings_kv::Operation { request: Some(request) };
                Command::Txn(Txn {
                    compare: vec![compare],
                    success: vec![step(hustings_kv::Request::Put(put))],
                    failure: vec![step(hustings_kv::Request::Range(range))],
                })
            }
        })
    }
}

impl<P: Protocol, S: Service> World<P, S> {
    pub(crate) fn start_load(&mut self) {
        for client in 0..self.load.clients.len() {
            let after = self.load.clients[client].dice.below(self.load.settings.pause.max(1));
            self.at(after, EventKind::Client(client));
        }
        self.start_rivals();
        self.start_candidates();
    }

    /// Clients begin nothing new from now on.
    pub fn end_load(&mut self) {
        self.load.is_over = true;
        (self.load.served, self.load.committed) = (Waiting::default(), Waiting::default());
    }

    /// Whether nobody wants anything any more.
    pub(crate) fn load_is_over(&self) -> bool {
        self.load.is_over
    }

    /// Sets the average pause of clients from now on; 0: as at first. A client that rests for longer than that begins again soon.
    pub(crate) fn set_pace(&mut self, pause: u64) {
        let pause = if pause == 0 { self.load.settings.pause } else { pause };
        let is_livelier = pause < self.load.pace;
        self.load.pace = pause;
        if !is_livelier {
            return;
        }
        for client in 0..self.load.clients.len() {
            let after = self.load.clients[client].dice.below(pause * 2 + 1);
            self.at(self.now + after, EventKind::Client(client));
        }
    }

    /// Whether every client has its answer, or gave up.
    pub fn is_load_settled(&self) -> bool {
        self.load.clients.iter().all(|client| client.pending.is_none())
    }

    /// Operations of clients so far, with their results.
    pub fn history(&self) -> Vec<Operation> {
        self.load.history()
    }

    // --- Clients. ------------------------------------------------------------------------------------------------

    pub(crate) fn on_client(&mut self, client: usize) {
        let (now, nodes) = (self.now, self.machines.len());
        if self.load.is_over || self.load.clients[client].pending.is_some() {
            return;
        }
        let settings = self.load.settings;
        let own = client % self.settings.nodes as usize;
        let state = &mut self.load.clients[client];
        if settings.stays && self.machines[own].is_open() {
            state.home = own;
        }
        if !self.machines[state.home].is_open() || (!settings.stays && state.dice.below(20) == 0) {
            state.home = state.dice.below(nodes as u64) as usize;
        }
        let home = state.home;
        let home = if self.load.is_peace { self.home_in_peace(home) } else { home };
        let state = &mut self.load.clients[client];
        state.home = home;
        let key = state.dice.below(settings.keys);
        let wish = match state.dice.below(10) {
            0..=3 => Wish::Read,
            4..=6 => Wish::Write(self.load.next_value),
            7..=8 => Wish::Swap(state.seen.get(&key).copied().flatten(), self.load.next_value),
            _ => Wish::Delete,
        };
        self.load.next_value += 1;
        self.load.served.begin(now);
        if wish != Wish::Read {
            self.load.committed.begin(now);
        }
        let state = &mut self.load.clients[client];
        state.done += 1;
        let number = state.done;
        let at = state.home;
        state.pending = Some(Pending { number, key, wish, invoked: now, at, request: None });
        self.at(now + settings.patience, EventKind::Patience(client, number));
        self.at(now + 50, EventKind::Call(at, client, number));
    }

    /// A member, where this is none and anybody knows one.
    fn home_in_peace(&self, home: usize) -> usize {
        let known = self.known_members();
        if known.is_empty() || known.contains(&home) { home } else { known[home % known.len()] }
    }

    /// The request reaches the member.
    pub(crate) fn on_call(&mut self, at: usize, client: usize, number: u64) {
        if self.is_stashed(at, EventKind::Call(at, client, number)) {
            return;
        }
        let Some(pending) = self.load.clients[client].pending.clone().filter(|pending| pending.number == number) else {
            return;
        };
        if !self.machines[at].is_open() {
            // The connection is refused: nothing was done.
            self.load.clients[client].pending = None;
            return self.pause_then_next(client, true);
        }
        let command = self.load.command(pending.key, pending.wish);
        let asked = Asked::Client(client, number);
        let request = match command {
            Some(command) => self.propose(at, asked, EntryKind::Command, command.to_payload()),
            None => self.read(at, asked),
        };
        if let Some(pending) = &mut self.load.clients[client].pending
            && pending.number == number
        {
            pending.request = Some(request);
        }
        if self.load.dice.below(COMPACT_EVERY) == 0 && self.load.revision > COMPACT_KEEPS {
            let revision = self.load.revision - COMPACT_KEEPS;
            self.load.compacted_max = self.load.compacted_max.max(revision);
            let compact = Command::Compact(Compact { revision });
            self.propose(at, Asked::Operator, EntryKind::Command, compact.to_payload());
        }
    }

    /// Asks a member for a command; one that does not go on does not hear it.
    pub(crate) fn ask_member(&mut self, at: usize, asked: Asked, command: &Command) {
        if self.machines[at].is_up() && !self.machines[at].is_paused {
            self.propose(at, asked, EntryKind::Command, command.to_payload());
        }
    }

    /// The machines of members, as clients know them who ask for the list now and then.
    pub(crate) fn known_members(&self) -> Vec<usize> {
        let members = self.present_membership();
        let is_member = |at: &usize| members.as_ref().is_some_and(|members| members.has(self.machines[*at].id));
        (0..self.machines.len()).filter(is_member).collect()
    }

    pub(crate) fn propose(&mut self, at: usize, asked: Asked, kind: EntryKind, payload: Bytes) -> u64 {
        let machine = &mut self.machines[at];
        let id = machine.next_proposal;
        machine.next_proposal += 1;
        machine.proposals.insert(id, asked);
        self.step(at, Event::Propose(vec![Request { id, kind, payload }]));
        id
    }

    pub(crate) fn read(&mut self, at: usize, asked: Asked) -> u64 {
        let machine = &mut self.machines[at];
        let id = machine.next_read;
        machine.next_read += 1;
        machine.reads.insert(id, asked);
        self.step(at, Event::Read(vec![id]));
        id
    }

    pub(crate) fn on_patience(&mut self, client: usize, number: u64) {
        let is_waiting = |pending: &Pending| pending.number == number;
        let Some(pending) = self.load.clients[client].pending.take_if(|pending| is_waiting(pending)) else { return };
        let at = pending.at;
        if let Some(request) = pending.request
            && self.machines[at].is_up()
            && !self.machines[at].is_paused
            && pending.wish != Wish::Read
        {
            self.machines[at].proposals.remove(&request);
            self.step(at, Event::Abandon(request));
        }
        self.end_indefinite(client, &pending);
    }

    fn end_indefinite(&mut self, client: usize, pending: &Pending) {
        self.counts.indefinite += 1;
        self.load.history.extend(pending.perhaps(client as u64));
        // Somebody who got no answer tries elsewhere, most often where members are.
        let known = self.known_members();
        let nodes = self.machines.len() as u64;
        let state = &mut self.load.clients[client];
        let anywhere = state.dice.below(nodes) as usize;
        let is_lost = known.is_empty() || state.dice.below(4) == 0;
        state.home = if is_lost { anywhere } else { known[state.dice.below(known.len() as u64) as usize] };
        if self.load.is_peace && state.home == pending.at && !self.load.settings.stays {
            // A client that is judged by its answers does not ask the same member in vain again.
            state.home = known.iter().copied().find(|at| *at != pending.at).unwrap_or(state.home);
        }
        self.pause_then_next(client, true);
    }

    fn pause_then_next(&mut self, client: usize, was_refused: bool) {
        let pace = self.load.pace;
        let dice = &mut self.load.clients[client].dice;
        let pause = match was_refused {
            true => dice.between(AFTER_REFUSAL.0, AFTER_REFUSAL.1),
            false => dice.below(pace * 2 + 1),
        };
        self.at(self.now + pause, EventKind::Client(client));
    }

    fn end_definite(&mut self, client: usize, pending: &Pending, act: Act) {
        let now = self.now;
        let operation = pending.saw(client as u64, now, act);
        let seen = match act {
            Act::Read(value) | Act::Write(value) | Act::Swap { to: value, .. } => Some(value),
            Act::Mismatch { saw, .. } => saw,
        };
        if let Some(seen) = seen {
            self.load.clients[client].seen.insert(pending.key, seen);
        }
        self.load.history.push(operation);
        self.counts.completed += 1;
        let others_wait = self.load.clients.iter().any(|client| client.pending.is_some());
        let gap = self.load.served.end(now, others_wait);
        if gap > self.settings.election_max() {
            self.counts.unavailable += gap;
        }
        self.counts.outage_max = self.counts.outage_max.max(gap);
        self.pause_then_next(client, false);
    }

    /// Some member knows of a later commit than anybody before: clients that want to write are being served, somewhere.
    pub(crate) fn on_commit(&mut self, commit: u64) {
        if commit > self.load.commit {
            self.load.commit = commit;
            let wants_to_write = |client: &Client| client.pending.as_ref().is_some_and(|own| own.wish != Wish::Read);
            let do_others_wait = self.load.clients.iter().any(wants_to_write);
            let gap = self.load.committed.end(self.now, do_others_wait);
            self.counts.outage_max = self.counts.outage_max.max(gap);
        }
    }

    fn take_pending(&mut self, client: usize, number: u64) -> Option<Pending> {
        self.load.clients[client].pending.take_if(|pending| pending.number == number)
    }

    pub(crate) fn on_applied(&mut self, at: usize, request: u64, outcome: &Outcome) {
        match self.machines[at].proposals.remove(&request) {
            Some(Asked::Client(client, number)) => {
                let Some(pending) = self.take_pending(client, number) else { return };
                if let Ok(Response::Put(put)) = outcome {
                    self.load.revision = self.load.revision.max(put.revision);
                }
                match pending.act_of(outcome) {
                    Ok(act) => self.end_definite(client, &pending, act),
                    Err(what) => self.verdict = Err(Violation::of("answers-fit", what)),
                }
            }
            Some(Asked::Rival(rival, number)) => self.on_rival_answer(rival, number, Some(outcome)),
            Some(Asked::Candidate(candidate, number)) => self.on_candidate_answer(candidate, number, Some(outcome)),
            Some(Asked::Operator | Asked::Reader(_)) | None => {}
        }
    }

    pub(crate) fn on_refused(&mut self, at: usize, request: u64, _: &Refusal) {
        match self.machines[at].proposals.remove(&request) {
            Some(Asked::Client(client, number)) => {
                if self.take_pending(client, number).is_some() {
                    self.counts.refused += 1;
                    self.pause_then_next(client, true);
                }
            }
            Some(Asked::Rival(rival, number)) => self.on_rival_answer(rival, number, None),
            Some(Asked::Candidate(candidate, number)) => self.on_candidate_answer(candidate, number, None),
            Some(Asked::Operator | Asked::Reader(_)) | None => {}
        }
    }

    pub(crate) fn on_unknown(&mut self, at: usize, request: u64) {
        if let Some(asked) = self.machines[at].proposals.remove(&request) {
            self.on_lost_answer(asked);
        }
    }

    /// The answer is lost: nobody will ever hear how this ended.
    pub(crate) fn on_lost_answer(&mut self, asked: Asked) {
        match asked {
            Asked::Client(client, number) => {
                if let Some(pending) = self.take_pending(client, number) {
                    self.end_indefinite(client, &pending);
                }
            }
            Asked::Rival(rival, number) => self.on_rival_answer(rival, number, None),
            Asked::Candidate(candidate, number) => self.on_candidate_answer(candidate, number, None),
            Asked::Operator | Asked::Reader(_) => {}
        }
    }

    pub(crate) fn on_readable(&mut self, at: usize, request: u64, view: &View) {
        let (client, number) = match self.machines[at].reads.remove(&request) {
            Some(Asked::Client(client, number)) => (client, number),
            Some(Asked::Reader(place)) => return self.tell_operator(at, place, view),
            _ => return,
        };
        let Some(pending) = self.take_pending(client, number) else { return };
        let range = Range { key: key_of(pending.key), ..Range::default() };
        match view.range(&range) {
            Ok(answer) => {
                let saw = answer.kvs.first().map(|kv| value_from(&kv.value));
                self.end_definite(client, &pending, Act::Read(saw));
            }
            Err(error) => self.verdict = Err(Violation::of("answers-fit", format!("a read is answered with {error}"))),
        }
    }

    /// A witness was asked what it holds: an operator hears that it holds nothing.
    pub(crate) fn on_unreadable(&mut self, at: usize, request: u64) {
        let asked = self.machines[at].reads.remove(&request);
        assert!(matches!(asked, Some(Asked::Reader(_)) | None), "clients ask members that hold data");
        let what = "answers its operator: it is a witness, and holds no state".to_owned();
        self.journal.note(self.now, crate::journal::Line::Host(self.machines[at].id, what));
    }

    pub(crate) fn on_reconfigured(&mut self, at: usize, request: u64, membership: &Membership) {
        self.machines[at].proposals.remove(&request);
        let voters: Vec<NodeId> = membership.all_voters().collect();
        let id = self.machines[at].id;
        self.journal.note(self.now, crate::journal::Line::Host(id, format!("answers its operator: voters {voters:?}")));
    }
}
