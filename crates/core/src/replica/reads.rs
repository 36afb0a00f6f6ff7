//! Linearizable reads: one barrier for many, at the leader, wherever the clients are.
//!
//! Reads that arrive while a barrier is under way wait for the next one: a barrier asked for before a read began proves
//! nothing about it. Numbers are never used twice, so an answer to an old attempt confirms nothing (RH-3).

use super::{Action, Replica, ReplicaMessage, RequestId, View, ViewOf};
use crate::protocol::{Input, Protocol, Ticket};
use crate::{Role, StateMachine};
use std::collections::{BTreeMap, BTreeSet};

/// Barriers of one life before the numbers of the next would be reached.
const LIFE_SHIFT: u32 = 40;

/// The barrier under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Barrier {
    number: u64,
    reads: Vec<RequestId>,
    /// Whether a retry timer has passed since it was asked for.
    overdue: bool,
}

/// Reads on their way to being served.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reads {
    /// Reads that wait for the next barrier.
    waiting: Vec<RequestId>,
    barrier: Option<Barrier>,
    next_number: u64,
    /// Confirmed, by the index that must be applied first.
    confirmed: BTreeMap<u64, Vec<RequestId>>,
}

impl Reads {
    /// Numbers of different lives differ, so that an answer to an earlier life confirms nothing (RH-3).
    pub(super) fn new(incarnation: u64) -> Reads {
        let next_number = (incarnation << LIFE_SHIFT) + 1;
        Reads { waiting: Vec::new(), barrier: None, next_number, confirmed: BTreeMap::new() }
    }

    pub(super) fn is_asking(&self) -> bool {
        self.barrier.is_some() || !self.waiting.is_empty()
    }

    /// Forgets these reads; says whether the barrier under way ends with that, because it was asked for on behalf of them alone.
    fn forget(&mut self, gone: &BTreeSet<RequestId>) -> bool {
        let forget_in = |reads: &mut Vec<RequestId>| {
            reads.retain(|request| !gone.contains(request));
            !reads.is_empty()
        };
        forget_in(&mut self.waiting);
        self.confirmed.retain(|_, reads| forget_in(reads));
        self.barrier.take_if(|barrier| !forget_in(&mut barrier.reads)).is_some()
    }
}

impl<P: Protocol, S: StateMachine> Replica<P, S> {
    pub(super) fn on_read(&mut self, requests: Vec<RequestId>, out: &mut Vec<Action<P, S>>) {
        if self.is_witness {
            return self.refuse_reads(requests, out);
        }
        self.reads.waiting.extend(requests);
        self.raise_barrier(out);
    }

    /// Nobody waits for these any more. Hosts bound the reads that somebody waits for: without this the others would add up for as long
    /// as no barrier is confirmed, and one step would see to all of them when one is.
    pub(super) fn abandon_reads(&mut self, gone: &BTreeSet<RequestId>, out: &mut Vec<Action<P, S>>) {
        if self.reads.forget(gone) {
            self.raise_barrier(out);
        }
    }

    /// Asks the leader for a barrier, unless one is under way or nobody waits.
    fn raise_barrier(&mut self, out: &mut Vec<Action<P, S>>) {
        if self.reads.barrier.is_some() || self.reads.waiting.is_empty() {
            return;
        }
        let Some(leader) = self.leader else { return self.arm_retry(out) };
        if leader == self.me && self.role != Role::Leader {
            // It synchronises, and asks itself when it leads.
            return self.arm_retry(out);
        }
        let number = self.reads.next_number;
        self.reads.next_number += 1;
        let reads = std::mem::take(&mut self.reads.waiting);
        self.reads.barrier = Some(Barrier { number, reads, overdue: false });
        if leader == self.me {
            self.feed(Input::Read { ticket: Ticket::Read { node: self.me, number } }, out);
        } else {
            out.push(Action::Send(leader, ReplicaMessage::AskRead { number }));
        }
        if self.reads.barrier.is_some() {
            self.arm_retry(out);
        }
    }

    /// The protocol confirmed a barrier: of this node's readers, or of a follower's.
    pub(super) fn on_read_at(&mut self, ticket: Ticket, index: u64, out: &mut Vec<Action<P, S>>) {
        let Ticket::Read { node, number } = ticket else { unreachable!("only reads are confirmed at an index") };
        if node == self.me {
            self.on_barrier(number, index, out);
        } else {
            out.push(Action::Send(node, ReplicaMessage::ReadAt { number, index }));
        }
    }

    pub(super) fn on_barrier(&mut self, number: u64, index: u64, out: &mut Vec<Action<P, S>>) {
        let Some(barrier) = self.reads.barrier.take_if(|barrier| barrier.number == number) else { return };
        self.reads.confirmed.entry(index).or_default().extend(barrier.reads);
        self.serve_reads(out);
        self.raise_barrier(out);
    }

    /// The one asked does not lead, or not yet: the next leader, or the retry timer, asks again.
    pub(super) fn on_barrier_refused(&mut self, number: u64, out: &mut Vec<Action<P, S>>) {
        let Some(barrier) = self.reads.barrier.take_if(|barrier| barrier.number == number) else { return };
        self.reads.waiting.extend(barrier.reads);
        self.arm_retry(out);
    }

    /// A new leader: what the old one was asked is asked again, under a new number.
    pub(super) fn ask_again(&mut self, out: &mut Vec<Action<P, S>>) {
        if let Some(barrier) = self.reads.barrier.take() {
            self.reads.waiting.extend(barrier.reads);
        }
        self.raise_barrier(out);
    }

    pub(super) fn ask_again_if_overdue(&mut self, out: &mut Vec<Action<P, S>>) {
        match &mut self.reads.barrier {
            Some(barrier) if !barrier.overdue => barrier.overdue = true,
            _ => self.ask_again(out),
        }
    }

    /// Serves what is confirmed and applied, from one view.
    pub(super) fn serve_reads(&mut self, out: &mut Vec<Action<P, S>>) {
        let applied = self.applied;
        if self.reads.confirmed.first_key_value().is_none_or(|(index, _)| *index > applied.index) {
            return;
        }
        let later = self.reads.confirmed.split_off(&(applied.index + 1));
        let ready = std::mem::replace(&mut self.reads.confirmed, later);
        let requests: Vec<RequestId> = ready.into_values().flatten().collect();
        if self.is_witness {
            return self.refuse_reads(requests, out);
        }
        let view = ViewOf(View(self.machine.freeze()));
        out.push(Action::Readable { requests, applied, view });
    }
}
