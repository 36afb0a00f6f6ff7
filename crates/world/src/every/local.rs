//! One member, one input, all ways in which the step can end: [`Member`], [`Outcome`].

use super::Bounds;
use crate::panics::caught;
use bytes::{Buf, Bytes};
use hustings_core::protocol::LinkState;
use hustings_core::replica::ReplicaState;
use hustings_core::replica::{Action, Birth, Event, Policy, ReplicaMessage, ReplicaTimer, Request};
use hustings_core::{
    Durable, EntryKind, Lsn, NodeId, Protocol, Record, Replica, Role, Slots, SnapshotError, StateMachine, Term,
};
use hustings_properties::Violation;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// The smallest state machine with a memory: what was applied, as one number.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ledger(u64);

/// Lower bound of the number of reigns up to this one, itself included: of packed terms the counter.
pub fn reign<P: Protocol>(term: Term) -> u64 {
    match P::SLOTS {
        Slots::InOrder => term.0,
        Slots::Independent => term.counter(),
    }
}

impl StateMachine for Ledger {
    type Response = u64;
    type View = u64;

    fn advance(&mut self, _: Duration) {}

    fn apply(&mut self, lsn: Lsn, payload: &Bytes) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.0, lsn.index, payload).hash(&mut hasher);
        self.0 = hasher.finish();
        self.0
    }

    fn freeze(&self) -> u64 {
        self.0
    }

    fn next_deadline(&self) -> Option<Duration> {
        None
    }

    fn encode(view: &u64, sink: &mut dyn FnMut(Bytes)) {
        sink(Bytes::copy_from_slice(&view.to_le_bytes()));
    }

    fn decode(snapshot: &mut dyn Buf) -> Result<Ledger, SnapshotError> {
        let short = |_| SnapshotError { what: "it is cut off".into() };
        Ok(Ledger(snapshot.try_get_u64_le().map_err(short)?))
    }
}

/// An input to a member.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input<P: Protocol> {
    /// A message from the network arrives.
    Hear(InFlight<P>),
    /// An armed timer fires.
    Fire(ReplicaTimer<P::Timer>),
    /// A client proposes, for the n-th time.
    Propose(u8),
    /// The process ends, between steps.
    Crash,
    /// The process starts again from its disk.
    Restart,
}

/// A message in flight, or news of a connection.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InFlight<P: Protocol> {
    /// The member that sent it, or whose connection it is news of.
    pub from: NodeId,
    /// The member that it goes to.
    pub to: NodeId,
    /// The message itself, or the news.
    pub content: Content<P::Message>,
}

/// The content of a [`InFlight`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Content<M> {
    /// A message between replicas.
    Message(ReplicaMessage<M>),
    /// The connection to the sender is gone.
    Down,
    /// It is there again.
    Up,
}

/// A member of a world that is a row of numbers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Member<P: Protocol> {
    /// The member's id, from 1.
    pub id: NodeId,
    /// The running replica; `None` while it is down.
    pub replica: Option<Replica<P, Ledger>>,
    /// The contents of its disk.
    pub durable: Durable,
    /// The timers that are armed.
    pub armed: BTreeSet<ReplicaTimer<P::Timer>>,
    /// Number of times that each bounded timer fired in this life.
    pub fires: BTreeMap<ReplicaTimer<P::Timer>, u8>,
    /// Number of its starts.
    pub lives: u64,
    /// Proposals that it made in this life.
    pub proposed: u64,
}

/// One way in which a step can end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome<P: Protocol> {
    /// The member's state after the step.
    pub member: Member<P>,
    /// Messages that it has sent by then.
    pub in_flight: Vec<InFlight<P>>,
    /// Whether it crashed on the way.
    pub has_crashed: bool,
}

/// A step under way: what happened so far.
struct Step<P: Protocol> {
    member: Member<P>,
    replica: Replica<P, Ledger>,
    in_flight: Vec<InFlight<P>>,
}

impl<P: Protocol> Member<P> {
    /// A member before its first start.
    pub fn unborn(id: NodeId) -> Member<P> {
        Member {
            id,
            replica: None,
            durable: Durable::default(),
            armed: BTreeSet::new(),
            fires: BTreeMap::new(),
            lives: 0,
            proposed: 0,
        }
    }

    /// Whether it leads, by its own word.
    pub fn leads(&self) -> bool {
        self.replica.as_ref().is_some_and(|replica| replica.role() == Role::Leader)
    }

    /// Whether clients may propose to it: it leads, and holds the state.
    pub fn takes_proposals(&self) -> bool {
        self.leads() && self.replica.as_ref().is_some_and(|replica| !replica.is_witness())
    }

    /// Whether a timer that is armed may fire within the bounds.
    pub fn may_fire(&self, timer: &ReplicaTimer<P::Timer>, bounds: &Bounds) -> bool {
        let all: u32 = self.fires.values().map(|fired| u32::from(*fired)).sum();
        self.armed.contains(timer)
            && self.fires.get(timer).copied().unwrap_or(0) < bounds.fires
            && (bounds.timers == 0 || all < u32::from(bounds.timers))
    }

    /// All ways in which this input can end; none when the term would leave the bounds.
    ///
    /// # Errors
    /// An assertion of the protocol that does not hold.
    pub fn after(&self, input: &Input<P>, bounds: &Bounds, options: &P::Options) -> Result<Vec<Outcome<P>>, Violation> {
        match input {
            Input::Crash => Ok(vec![Outcome { member: self.crashed(), in_flight: Vec::new(), has_crashed: true }]),
            _ => caught(|| self.steps(input, bounds, options)).map_err(|words| Violation::of("assertions", words)),
        }
    }

    fn crashed(&self) -> Member<P> {
        Member { replica: None, armed: BTreeSet::new(), fires: BTreeMap::new(), proposed: 0, ..self.clone() }
    }

    fn birth(&self, bounds: &Bounds, options: &P::Options) -> Birth<P, Ledger> {
        Birth {
            cluster: bounds.cluster(self.id),
            options: options.clone(),
            recovered: self.durable.clone(),
            machine: Ledger::default(),
            blank: Ledger::default(),
            is_witness: false,
            state: ReplicaState::default(),
            incarnation: self.lives + 1,
            policy: Policy { entries_max: u64::MAX, bytes_max: u64::MAX, log_bytes_max: u64::MAX, ..Policy::default() },
            can: hustings_core::ApplyVersion::FIRST,
        }
    }

    fn steps(&self, input: &Input<P>, bounds: &Bounds, options: &P::Options) -> Vec<Outcome<P>> {
        let mut member = self.clone();
        let mut actions = Vec::new();
        let replica = match input {
            Input::Restart => {
                let replica = Replica::start(self.birth(bounds, options), &mut actions);
                member.lives += 1;
                replica
            }
            _ => {
                let Some(mut replica) = member.replica.take() else { return Vec::new() };
                replica.step(member.event(input, bounds), &mut actions);
                replica
            }
        };
        let mut outcomes = Vec::new();
        let mut step = Step { member, replica, in_flight: Vec::new() };
        loop {
            let records = step.take(actions);
            if records.is_empty() {
                break;
            }
            // A crash after any prefix of what is written now.
            for count in 0..records.len() {
                outcomes.push(step.crashed_after(&records[..count]));
            }
            let last = records.last().map_or(0, |(number, _)| *number);
            for (_, record) in records {
                step.member.durable.absorb(record);
            }
            actions = Vec::new();
            step.replica.step(Event::Durable(last), &mut actions);
        }
        let Step { mut member, mut replica, in_flight } = step;
        if reign::<P>(replica.status().term) > bounds.terms {
            return Vec::new();
        }
        replica.forget_numbers();
        member.replica = Some(replica);
        outcomes.push(Outcome { member, in_flight, has_crashed: false });
        outcomes
    }

    fn event(&mut self, input: &Input<P>, bounds: &Bounds) -> Event<P, Ledger> {
        match input {
            Input::Hear(heard) => {
                let peer = heard.from;
                match &heard.content {
                    Content::Message(message) => Event::Peer { from: peer, message: message.clone() },
                    Content::Down => Event::Link { peer, state: LinkState::Down },
                    Content::Up => Event::Link { peer, state: LinkState::Up },
                }
            }
            Input::Fire(timer) => {
                self.armed.remove(timer);
                if bounds.fires < u8::MAX {
                    let fired = self.fires.entry(*timer).or_default();
                    *fired = (*fired + 1).min(bounds.fires);
                }
                Event::Timer(*timer)
            }
            Input::Propose(number) => {
                self.proposed += 1;
                let payload = Bytes::copy_from_slice(&[*number]);
                Event::Propose(vec![Request { id: self.proposed, kind: EntryKind::Command, payload }])
            }
            Input::Crash | Input::Restart => unreachable!("a crash is no step, and a start is made by the caller"),
        }
    }
}

impl<P: Protocol> Step<P> {
    /// Takes actions in; gives back what has to be written.
    fn take(&mut self, actions: Vec<Action<P, Ledger>>) -> Vec<(u64, Record)> {
        let mut records = Vec::new();
        for action in actions {
            match action {
                Action::Persist(number, record) => records.push((number, record)),
                Action::Send(to, message) => {
                    let content = Content::Message(message);
                    self.in_flight.push(InFlight { from: self.member.id, to, content });
                }
                Action::SetTimer(timer, _) => drop(self.member.armed.insert(timer)),
                Action::CancelTimer(timer) => drop(self.member.armed.remove(&timer)),
                _ => {}
            }
        }
        records
    }

    /// The member as it is found when it crashes with only these records on disk: gone is what rested on more.
    fn crashed_after(&self, records: &[(u64, Record)]) -> Outcome<P> {
        let mut in_flight = self.in_flight.clone();
        let mut member = self.member.crashed();
        if let Some((last, _)) = records.last() {
            let mut replica = self.replica.clone();
            let mut actions = Vec::new();
            replica.step(Event::Durable(*last), &mut actions);
            for action in actions {
                if let Action::Send(to, message) = action {
                    in_flight.push(InFlight { from: member.id, to, content: Content::Message(message) });
                }
            }
            for (_, record) in records {
                member.durable.absorb(record.clone());
            }
        }
        Outcome { member, in_flight, has_crashed: true }
    }
}
