//! Committed entries that are not applied yet: [`Backlog`].
//!
//! Much may be committed at once: all that a member missed while it was away, or commands that cost tens of milliseconds each. To apply
//! it in one go would hold up heartbeats and votes, which the same thread sends. So it is applied in slices, and between two of them
//! the host hears its peers, its timers and its disk. Order is kept: while anything waits here, whatever comes later waits behind it.

use super::gate::Gated;
use crate::{Entry, Membership, Protocol, SnapshotReference};
use std::collections::VecDeque;
use std::sync::Arc;

/// Cost that one slice may spend unless a policy says otherwise, in the units of [`crate::StateMachine::last_cost`]: some eight
/// milliseconds. The command that exceeds it is the last one of its slice.
pub const SLICE_COST: u64 = 80_000;

/// A slice may cost one [`SLICE_COST`] more for each time that this many applications wait.
const MUCH: usize = 512;
/// The most that a slice grows to, in slices.
const SLICES_MAX: usize = 3;

/// Applications that wait: for the next slice, or for a snapshot that is being loaded.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Backlog {
    waiting: VecDeque<Application>,
    /// Cost of a whole slice, and the part of this one that is not spent.
    slice: u64,
    left: u64,
}

/// An application as plain data, so that the value needs no protocol parameter.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Application {
    Apply(Entry),
    Reconfigure(Arc<Membership>, u64),
    Restore(SnapshotReference),
}

impl Backlog {
    pub(super) fn new(slice: u64) -> Backlog {
        Backlog { waiting: VecDeque::new(), slice, left: slice }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether an application that comes now waits: for those before it, or for the next slice.
    pub(super) fn must_wait(&self) -> bool {
        self.left == 0 || !self.waiting.is_empty()
    }

    /// Takes a cost out of the slice.
    pub(super) fn spend(&mut self, cost: u64) {
        self.left = self.left.saturating_sub(cost);
    }

    /// Begins the next slice: a longer one while much waits, so that applying keeps up with whatever comes.
    pub(super) fn begin_slice(&mut self) {
        let times = (1 + self.waiting.len() / MUCH).min(SLICES_MAX);
        self.left = self.slice.saturating_mul(times as u64);
    }

    /// Number of applications that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Keeps an application behind those that wait already.
    ///
    /// # Panics
    /// Given a message, which waits for nothing here.
    pub(super) fn push<P: Protocol>(&mut self, gated: Gated<P>) {
        self.waiting.push_back(match gated {
            Gated::Apply(entry) => Application::Apply(entry),
            Gated::Reconfigure(membership, index) => Application::Reconfigure(membership, index),
            Gated::Restore(reference) => Application::Restore(reference),
            Gated::Send(..) => unreachable!("messages never wait for applications"),
        });
    }

    /// The application that is next, if this slice has something left.
    pub(super) fn next<P: Protocol>(&mut self) -> Option<Gated<P>> {
        if self.left == 0 {
            return None;
        }
        Some(match self.waiting.pop_front()? {
            Application::Apply(entry) => Gated::Apply(entry),
            Application::Reconfigure(membership, index) => Gated::Reconfigure(membership, index),
            Application::Restore(reference) => Gated::Restore(reference),
        })
    }
}
