//! Continues a world in which nothing more goes wrong: [`serves`]. The *eventually* property of the search.
//!
//! Bounds end a world long before anything must have happened in it. So liveness is asked in another way: from here on nobody
//! crashes, nothing is lost, timers fire in a fair order, and no bound counts; must a leader then have committed all of its log?
//! It must from everywhere, or somewhere the protocol has painted itself into a corner. One continuation is one witness: this
//! proves that a way out exists, not that every way leads out. Each costs thousands of steps, so a sample of worlds is asked.
//!
//! ```text
//!    any world ── members that are down start ── all messages arrive ── timers: the leader's, or else one member's after the other's ──►
//!    a leader, in the last term, has committed all that it holds
//! ```

use super::Bounds;
use super::local::{Content, InFlight, Input, Member};
use hustings_core::replica::ReplicaTimer;
use hustings_core::{NodeId, Protocol};
use hustings_properties::Violation;
use std::collections::VecDeque;

/// Times that somebody's timers fire before the search gives up.
const ROUNDS: usize = 200;
/// Times in a row that only a leader's timers fire; then everybody's do, for it may be one that nobody follows.
const PATIENCE: usize = 6;
/// Letters that one round may bring.
const LETTERS_MAX: usize = 20_000;

/// A world that is only continued, and never compared.
struct Continuation<'a, P: Protocol> {
    members: Vec<Member<P>>,
    in_flight: VecDeque<InFlight<P>>,
    bounds: Bounds,
    options: &'a P::Options,
}

/// Continues the world fairly until a leader has committed all that it holds.
///
/// # Errors
/// `eventually-serves` when nobody ever does, or the property that fell on the way.
pub fn serves<P: Protocol>(
    members: Vec<Member<P>>,
    in_flight: Vec<InFlight<P>>,
    bounds: &Bounds,
    options: &P::Options,
) -> Result<(), Violation> {
    let bounds = Bounds { terms: u64::MAX, fires: u8::MAX, timers: 0, link: 0, ..bounds.clone() };
    let mut world = Continuation { members, in_flight: in_flight.into(), bounds, options };
    for at in 0..world.members.len() {
        if world.members[at].replica.is_none() {
            world.step(at, &Input::Restart)?;
            let from = world.members[at].id;
            let others = (1..=world.members.len() as u64).map(NodeId).filter(|to| *to != from);
            world.in_flight.extend(others.map(|to| InFlight { from, to, content: Content::Up }));
        }
    }
    world.deliver()?;
    for round in 0..ROUNDS {
        if world.is_served() {
            return Ok(());
        }
        let leader = world.leader().filter(|_| round % (PATIENCE + 1) < PATIENCE);
        let at = leader.unwrap_or(round / 2 % world.members.len());
        let armed: Vec<ReplicaTimer<P::Timer>> = world.members[at].armed.iter().copied().collect();
        for timer in armed {
            if world.members[at].armed.contains(&timer) {
                world.step(at, &Input::Fire(timer))?;
                world.deliver()?;
            }
        }
    }
    let roles: Vec<String> = world.members.iter().map(describe).collect();
    Err(Violation::of(
        "eventually-serves",
        format!("nothing goes wrong any more, and nobody serves: {}", roles.join(", ")),
    ))
}

impl<P: Protocol> Continuation<'_, P> {
    fn step(&mut self, at: usize, input: &Input<P>) -> Result<(), Violation> {
        let outcomes = self.members[at].after(input, &self.bounds, self.options)?;
        if let Some(outcome) = outcomes.into_iter().find(|outcome| !outcome.has_crashed) {
            self.members[at] = outcome.member;
            self.in_flight.extend(outcome.in_flight);
        }
        Ok(())
    }

    fn deliver(&mut self) -> Result<(), Violation> {
        for _ in 0..LETTERS_MAX {
            let Some(message) = self.in_flight.pop_front() else { return Ok(()) };
            let at = self.members.iter().position(|member| member.id == message.to);
            if let Some(at) = at {
                self.step(at, &Input::Hear(message))?;
            }
        }
        Err(Violation::of("eventually-serves", "messages never end although no timer fires"))
    }

    /// Position of the leader of the highest term; `None` if nobody leads in it.
    fn leader(&self) -> Option<usize> {
        let last = self.members.iter().filter_map(|member| Some(member.replica.as_ref()?.status().term)).max()?;
        self.members.iter().position(|member| {
            member.leads() && member.replica.as_ref().is_some_and(|replica| replica.status().term == last)
        })
    }

    fn is_served(&self) -> bool {
        let leader = self.leader().and_then(|at| self.members[at].replica.as_ref());
        leader.is_some_and(|replica| {
            let status = replica.status();
            // A witness leads as a caretaker, until somebody with a state can.
            status.commit == status.last.index && !replica.is_witness()
        })
    }
}

fn describe<P: Protocol>(member: &Member<P>) -> String {
    match &member.replica {
        Some(replica) => {
            let status = replica.status();
            format!("{} {:?} in term {} with {} of {}", member.id, status.role, status.term, status.commit, status.last)
        }
        None => format!("{} is down", member.id),
    }
}
