//! A protocol that is listened to: [`Recorded`].

use crate::fingerprint;
use crate::shape;
use crate::tape::Tape;
use hustings_core::options::{Options, Switch};
use hustings_core::protocol::{Effect, Effects, Input, Links, Slots};
use hustings_core::quorum::Quorums;
use hustings_core::{Cluster, Contradiction, Durable, Lsn, Protocol, Status, Term};
use std::hash::{Hash, Hasher};

/// A protocol with a tape, on which everything is written that it is told. Equal and hashed as the protocol inside.
#[derive(Clone, Debug)]
pub struct Recorded<P> {
    inner: P,
    tape: Option<Tape>,
}

impl<P: PartialEq> PartialEq for Recorded<P> {
    fn eq(&self, other: &Recorded<P>) -> bool {
        self.inner == other.inner
    }
}

impl<P: Eq> Eq for Recorded<P> {}

impl<P: Hash> Hash for Recorded<P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

/// The protocol's options, and where it is recorded; without a tape it is not.
#[derive(Clone, Debug, Default)]
pub struct RecordedOptions<O> {
    /// The options of the protocol inside.
    pub inner: O,
    /// The tape on which it is recorded; `None` if it is not.
    pub tape: Option<Tape>,
}

impl<O: Options> Options for RecordedOptions<O> {
    const SWITCHES: &'static [Switch] = O::SWITCHES;

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        self.inner.set(name, value)
    }

    fn is_laboratory(&self) -> bool {
        self.inner.is_laboratory()
    }

    fn quorums(&self) -> Quorums {
        self.inner.quorums()
    }

    fn voters_to_serve(&self, voters: usize) -> usize {
        self.inner.voters_to_serve(voters)
    }

    fn variant(&self) -> Option<String> {
        self.inner.variant()
    }
}

impl<P: Protocol> Protocol for Recorded<P> {
    type Message = P::Message;
    type Timer = P::Timer;
    type Options = RecordedOptions<P::Options>;

    const NAME: &'static str = P::NAME;
    const LINKS: Links = P::LINKS;
    const SYMMETRIC: bool = P::SYMMETRIC;
    const SLOTS: Slots = P::SLOTS;

    fn start(cluster: Cluster, options: Self::Options, recovered: Durable, out: &mut Effects<Self>) -> Self {
        let RecordedOptions { inner: options, tape } = options;
        let birth = tape.as_ref().map(|_| shape::birth(&cluster, &recovered));
        let mut effects = Effects::new();
        let inner = P::start(cluster, options, recovered, &mut effects);
        if let (Some(tape), Some(birth)) = (&tape, birth) {
            tape.write_birth(birth, fingerprint::of_effects(&effects));
        }
        pass_on(effects, out);
        Recorded { inner, tape }
    }

    fn step(&mut self, input: Input<Self>, out: &mut Effects<Self>) {
        let input = unwrapped(input);
        if let Some(tape) = &self.tape {
            tape.begin(shape::told(&input));
        }
        let mut effects = Effects::new();
        self.inner.step(input, &mut effects);
        if let Some(tape) = &self.tape {
            tape.complete(fingerprint::of_effects(&effects));
        }
        pass_on(effects, out);
    }

    fn status(&self) -> Status {
        self.inner.status()
    }

    fn freshness(held: &Durable) -> (Term, Lsn) {
        P::freshness(held)
    }

    fn contradiction(&self) -> Option<Contradiction> {
        self.inner.contradiction()
    }

    fn overdue_commit(&self) -> Option<u64> {
        self.inner.overdue_commit()
    }

    fn assert_invariants(&self) {
        self.inner.assert_invariants();
    }
}

fn unwrapped<P: Protocol>(input: Input<Recorded<P>>) -> Input<P> {
    match input {
        Input::Message { from, message } => Input::Message { from, message },
        Input::Timer(timer) => Input::Timer(timer),
        Input::Link { peer, state } => Input::Link { peer, state },
        Input::Propose(proposals) => Input::Propose(proposals),
        Input::Read { ticket } => Input::Read { ticket },
        Input::Compact(reference) => Input::Compact(reference),
        Input::SnapshotReady(reference) => Input::SnapshotReady(reference),
        Input::SnapshotFailed(reference) => Input::SnapshotFailed(reference),
        Input::SnapshotInstalled(lsn) => Input::SnapshotInstalled(lsn),
        Input::Admin { ticket, request } => Input::Admin { ticket, request },
        Input::Retime(timing) => Input::Retime(timing),
        Input::Health(health) => Input::Health(health),
    }
}

fn pass_on<P: Protocol>(effects: Effects<P>, out: &mut Effects<Recorded<P>>) {
    for effect in effects {
        out.push(match effect {
            Effect::Persist(record) => Effect::Persist(record),
            Effect::Send { to, message, rests_on } => Effect::Send { to, message, rests_on },
            Effect::Apply(entry) => Effect::Apply(entry),
            Effect::Restore(reference) => Effect::Restore(reference),
            Effect::FetchSnapshot { from, reference } => Effect::FetchSnapshot { from, reference },
            Effect::ReadAt { ticket, index } => Effect::ReadAt { ticket, index },
            Effect::Reply { ticket, outcome } => Effect::Reply { ticket, outcome },
            Effect::SetTimer { timer, after } => Effect::SetTimer { timer, after },
            Effect::CancelTimer(timer) => Effect::CancelTimer(timer),
            Effect::Announce(transition) => Effect::Announce(transition),
            Effect::Reconfigure { membership, index } => Effect::Reconfigure { membership, index },
        });
    }
}
