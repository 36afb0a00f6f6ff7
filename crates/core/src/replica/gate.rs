//! Order is the durability barrier: [`Gate`] holds an effect back until the record it rests on is durable.

use super::RecordNumber;
use crate::protocol::{Links, Protocol, RestsOn};
use crate::{Entry, Membership, NodeId, Record, SnapshotReference};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// An effect that may have to wait.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Gated<P: Protocol> {
    /// A message to a peer.
    Send(NodeId, P::Message),
    /// A committed entry, to be applied.
    Apply(Entry),
    /// A membership that takes effect, by the entry at this index; 0 at birth.
    Reconfigure(Arc<Membership>, u64),
    /// A snapshot that replaces the state machine.
    Restore(SnapshotReference),
}

/// Numbers records, resolves what effects rest on, and keeps those that must wait, in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Gate<P: Protocol> {
    emitted: RecordNumber,
    durable: RecordNumber,
    /// The last record that asks for a sync.
    last: RecordNumber,
    promise: RecordNumber,
    /// The last truncation or snapshot: the log's shape rests on it.
    shape: RecordNumber,
    /// (index, record) of slots not durable yet, in order of emission.
    puts: VecDeque<(u64, RecordNumber)>,
    /// Whether those slots follow each other, each once: then a slot is found by its index.
    puts_are_in_order: bool,
    /// The record on which the last application rests: applications never overtake each other.
    applications: RecordNumber,
    /// For session links: the record on which the last message to a peer rests; messages never overtake each other there.
    sessions: BTreeMap<NodeId, RecordNumber>,
    waiting: VecDeque<(RecordNumber, Gated<P>)>,
}

impl<P: Protocol> Gate<P> {
    /// A gate at which nothing waits.
    pub fn new() -> Gate<P> {
        Gate {
            emitted: 0,
            durable: 0,
            last: 0,
            promise: 0,
            shape: 0,
            puts: VecDeque::new(),
            puts_are_in_order: true,
            applications: 0,
            sessions: BTreeMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// The number of a record that is emitted now.
    pub fn number(&mut self, record: &Record) -> RecordNumber {
        self.emitted += 1;
        if record.wants_sync() {
            self.last = self.emitted;
        }
        match record {
            Record::Promise(_) | Record::Established(_) => self.promise = self.emitted,
            Record::Put(entry) => {
                let index = entry.lsn.index;
                let follows = |(last, _): &(u64, RecordNumber)| last.checked_add(1) == Some(index);
                self.puts_are_in_order = match self.puts.back() {
                    Some(last) => self.puts_are_in_order && follows(last),
                    None => true,
                };
                self.puts.push_back((index, self.emitted));
            }
            Record::TruncateFrom(index) => {
                self.shape = self.emitted;
                self.puts.retain(|(slot, _)| slot < index);
            }
            Record::Snapshot(_) => self.shape = self.emitted,
            Record::Committed(_) => {}
        }
        self.emitted
    }

    fn resolve(&self, rests_on: RestsOn) -> RecordNumber {
        match rests_on {
            RestsOn::LastRecord => self.last,
            RestsOn::Promise => self.promise,
            RestsOn::Entry(index) => self.promise.max(self.shape).max(self.put_of(index)),
            RestsOn::Nothing => 0,
        }
    }

    /// The last record that filled the slot, or 0 when it is durable.
    fn put_of(&self, index: u64) -> RecordNumber {
        // Slots are mostly filled in order, so the place is known; otherwise the latest wins.
        if self.puts_are_in_order {
            let first = self.puts.front().map_or(index, |(first, _)| *first);
            let place = index.checked_sub(first).and_then(|offset| usize::try_from(offset).ok());
            return place.and_then(|place| self.puts.get(place)).map_or(0, |(_, number)| *number);
        }
        self.puts.iter().rev().find(|(slot, _)| *slot == index).map_or(0, |(_, number)| *number)
    }

    fn pass(&mut self, rests_on: RecordNumber, gated: Gated<P>) -> Option<Gated<P>> {
        if rests_on <= self.durable {
            return Some(gated);
        }
        self.waiting.push_back((rests_on, gated));
        None
    }

    /// Gives the message back when it may leave now; keeps it otherwise.
    pub fn send(&mut self, to: NodeId, message: P::Message, rests_on: RestsOn) -> Option<Gated<P>> {
        let mut number = self.resolve(rests_on);
        if P::LINKS == Links::Session {
            let before = self.sessions.entry(to).or_default();
            number = number.max(*before);
            *before = number;
        }
        self.pass(number, Gated::Send(to, message))
    }

    /// Gives the committed entry back when it may be applied now; keeps it otherwise.
    pub fn apply(&mut self, entry: Entry) -> Option<Gated<P>> {
        let number = self.resolve(RestsOn::Entry(entry.lsn.index));
        self.pass_in_order(number, Gated::Apply(entry))
    }

    /// Gives the membership back when it takes effect now; keeps it otherwise.
    pub fn reconfigure(&mut self, membership: Arc<Membership>, index: u64) -> Option<Gated<P>> {
        let number = self.resolve(RestsOn::Entry(index));
        self.pass_in_order(number, Gated::Reconfigure(membership, index))
    }

    /// Gives the snapshot back when it may be loaded now; keeps it otherwise.
    pub fn restore(&mut self, reference: SnapshotReference) -> Option<Gated<P>> {
        self.pass_in_order(self.resolve(RestsOn::LastRecord), Gated::Restore(reference))
    }

    fn pass_in_order(&mut self, number: RecordNumber, gated: Gated<P>) -> Option<Gated<P>> {
        self.applications = self.applications.max(number);
        self.pass(self.applications, gated)
    }

    /// Begins to count from 1 again, if nothing is on its way to the disk and nothing waits.
    pub(super) fn forget_numbers(&mut self) {
        if self.waiting.is_empty() && self.durable == self.emitted {
            *self = Gate::new();
        }
    }

    /// All records up to `number` are durable: gives back what waited for no more than that, in order.
    ///
    /// # Panics
    /// When the host claims durability for a record that was never emitted.
    pub fn on_durable(&mut self, number: RecordNumber) -> Vec<Gated<P>> {
        assert!(number <= self.emitted, "record {number} was never emitted, only {}", self.emitted);
        self.durable = self.durable.max(number);
        while self.puts.front().is_some_and(|(_, put)| *put <= self.durable) {
            self.puts.pop_front();
        }
        let mut free = Vec::with_capacity(self.waiting.len());
        let mut rest = VecDeque::new();
        for (rests_on, gated) in self.waiting.drain(..) {
            if rests_on <= number { free.push(gated) } else { rest.push_back((rests_on, gated)) }
        }
        self.waiting = rest;
        free
    }
}

impl<P: Protocol> Default for Gate<P> {
    fn default() -> Gate<P> {
        Gate::new()
    }
}
