//! The log is the clock of leases: a leader stamps what it proposes, and where no proposal comes in time a blank carries it.
//!
//! [`super::clock`] tells what a reading means, and why no lease ends early by it.

use super::{Action, Replica, ReplicaTimer};
use crate::protocol::{Input, Proposal, Protocol};
use crate::{EntryKind, Origin, Role, StateMachine};
use bytes::Bytes;
use std::time::Duration;

/// The least time between two advances of the log's clock for nothing but a deadline.
const DEADLINE_WAIT_MIN: Duration = Duration::from_millis(1);

/// Longest time that the log's clock may stand still while a lease lives: time that is in no entry is lost when all
/// members that counted it restart.
const STAMP_EVERY: Duration = Duration::from_secs(5);

/// State of the deadline timer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum DeadlineTimer {
    Disarmed,
    /// It will fire at this log time.
    At(u64),
    /// It fired: a blank is on its way that carries the time, and nothing needs arming until it is applied.
    Advancing,
}

impl<P: Protocol, S: StateMachine> Replica<P, S> {
    /// A proposal as the leader puts it into the log. Each carries the clock's reading: a lease that it grants counts
    /// from there.
    pub(super) fn stamp(&mut self, origin: Origin, kind: EntryKind, payload: Bytes) -> Proposal {
        Proposal { origin, kind, stamp: self.clock.stamp(), payload }
    }

    pub(super) fn propose(&mut self, proposals: Vec<Proposal>, out: &mut Vec<Action<P, S>>) {
        self.feed(Input::Propose(proposals), out);
    }

    pub(super) fn arm_deadline(&mut self, out: &mut Vec<Action<P, S>>) {
        if self.role != Role::Leader || self.deadline == DeadlineTimer::Advancing {
            return;
        }
        let Some(left) = self.machine.next_deadline() else { return };
        let left_micros = u64::try_from(left.min(STAMP_EVERY).as_micros()).expect("seconds in microseconds fit");
        let due = self.clock.applied().micros.saturating_add(left_micros);
        // A later deadline is found when the timer fires early; only an earlier one needs arming again.
        if matches!(self.deadline, DeadlineTimer::At(armed) if armed <= due) {
            return;
        }
        self.deadline = DeadlineTimer::At(due);
        // Never zero: a leader that refuses for a moment (a hand-over) is not asked again in a tight loop.
        let wait =
            Duration::from_micros(left_micros.saturating_sub(self.clock.unapplied_micros())).max(DEADLINE_WAIT_MIN);
        out.push(Action::SetTimer(ReplicaTimer::Deadline, wait..=wait));
    }

    pub(super) fn on_deadline(&mut self, out: &mut Vec<Action<P, S>>) {
        self.deadline = DeadlineTimer::Disarmed;
        let Some(left) = self.machine.next_deadline() else { return };
        if self.role == Role::Leader
            && left.min(STAMP_EVERY) <= Duration::from_micros(self.clock.unapplied_micros())
            && self.clock.now_micros() > 0
        {
            // Nothing else moves the log, so a blank carries the time; applying it arms the next deadline.
            self.deadline = DeadlineTimer::Advancing;
            let advance = self.stamp(Origin::NOBODY, EntryKind::Blank, Bytes::new());
            self.propose(vec![advance], out);
        } else {
            self.arm_deadline(out);
        }
    }
}
