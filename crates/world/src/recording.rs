//! A run as a picture needs it: what every member was and held, from when on, and which links were cut: [`Recording`].
//!
//! A world that records ([`World::start_recording`]) looks at a member after each step and writes down what differs from
//! before. A world that does not record pays for one comparison per step. Which way messages went is in the journal's arrows.
//!
//! It deliberately knows nothing of pages: a drawing program decides what a role looks like.

use crate::digested::Service;
use crate::machine::{Life, Machine};
use crate::world::World;
use hustings_core::{NodeId, Protocol, Role, Term};
use std::collections::BTreeMap;

/// Number of entries from the end of a log that are written down.
pub const CELLS: usize = 14;
/// Messages are all written down.
const ALL_ARROWS: usize = usize::MAX / 4;

/// The condition of a member's process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Condition {
    /// The process runs, and its disk answers.
    #[default]
    Up,
    /// It stands still, and will go on.
    Paused,
    /// It runs, and its disk does not answer.
    Stalled,
    /// The process has ended.
    Down,
    /// It refuses its disk.
    Refused,
}

/// An entry of a log, without its contents.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cell {
    /// Its place, from 1.
    pub index: u64,
    /// The term in which it was written.
    pub term: Term,
    /// Whether the member's disk holds it.
    pub is_durable: bool,
}

/// A member's state and what it holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberState {
    /// The condition of its process.
    pub condition: Condition,
    /// Its role; of one that does not run, its last one was lost with it.
    pub role: Role,
    /// The highest term that the member knows.
    pub term: Term,
    /// The leader that it follows; `None` if it knows of none.
    pub leader: Option<NodeId>,
    /// The highest index that it knows to be committed.
    pub commit: u64,
    /// The last index that it has applied.
    pub applied: u64,
    /// The index that its snapshot covers; 0 without one.
    pub snapshot: u64,
    /// The end of its log.
    pub cells: Vec<Cell>,
}

/// The condition of one direction of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum LinkCondition {
    /// Messages pass, as fast as elsewhere.
    #[default]
    Open,
    /// They pass, and take longer than elsewhere.
    Slow,
    /// All messages in this direction are lost.
    Cut,
}

/// The changes of a run, each with its moment in microseconds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recording {
    /// Members, in order of time: each line stands until the member's next.
    pub members: Vec<(u64, NodeId, MemberState)>,
    /// Directions of links, likewise: from, to.
    pub links: Vec<(u64, NodeId, NodeId, LinkCondition)>,
    latest_members: BTreeMap<NodeId, MemberState>,
    latest_links: BTreeMap<(NodeId, NodeId), LinkCondition>,
}

impl Recording {
    pub(crate) fn note_member(&mut self, now: u64, member: NodeId, state: MemberState) {
        if self.latest_members.get(&member) == Some(&state) {
            return;
        }
        self.latest_members.insert(member, state.clone());
        match self.members.last_mut() {
            // Several things may happen in one microsecond; the last one counts.
            Some((at, last, known)) if *at == now && *last == member => *known = state,
            _ => self.members.push((now, member, state)),
        }
    }

    fn note_link(&mut self, now: u64, from: NodeId, to: NodeId, condition: LinkCondition) {
        if self.latest_links.get(&(from, to)).copied().unwrap_or_default() != condition {
            self.latest_links.insert((from, to), condition);
            self.links.push((now, from, to, condition));
        }
    }
}

impl<P: Protocol, S: Service> World<P, S> {
    /// Writes down from now on what members are, and which way all messages go.
    pub fn start_recording(&mut self) {
        self.journal.arrows_max = self.journal.arrows_max.max(ALL_ARROWS);
        self.recording = Some(Box::default());
        self.record_members();
        self.record_links();
    }

    /// Notes what differs from before at a member, if this world records.
    pub(crate) fn record_member(&mut self, at: usize) {
        let Some(mut recording) = self.recording.take() else { return };
        recording.note_member(self.now, self.machines[at].id, self.state_of(&self.machines[at]));
        self.recording = Some(recording);
    }

    /// Records all members, after a command.
    pub(crate) fn record_members(&mut self) {
        if self.recording.is_some() {
            (0..self.machines.len()).for_each(|at| self.record_member(at));
        }
    }

    /// Records all links; only a command changes them.
    pub(crate) fn record_links(&mut self) {
        let Some(mut recording) = self.recording.take() else { return };
        for from in 0..self.machines.len() {
            for to in (0..self.machines.len()).filter(|to| *to != from) {
                let condition = match (self.network.is_cut(from, to), self.network.is_slow(from, to)) {
                    (true, _) => LinkCondition::Cut,
                    (false, true) => LinkCondition::Slow,
                    (false, false) => LinkCondition::Open,
                };
                recording.note_link(self.now, self.machines[from].id, self.machines[to].id, condition);
            }
        }
        self.recording = Some(recording);
    }

    fn state_of(&self, machine: &Machine<P, S>) -> MemberState {
        let condition = match &machine.life {
            Life::Refused(_) => Condition::Refused,
            Life::Down => Condition::Down,
            Life::Up if machine.is_paused => Condition::Paused,
            Life::Up if machine.is_stalled => Condition::Stalled,
            Life::Up => Condition::Up,
        };
        let (cells, snapshot, promised) = match self.judge.shadow(machine.id) {
            Some(shadow) => {
                let (emitted, durable) = (shadow.emitted(), shadow.durable());
                let newest = emitted.slots.values().rev().take(CELLS).map(|lsn| Cell {
                    index: lsn.index,
                    term: lsn.term,
                    is_durable: durable.slot(lsn.index) == Some(*lsn),
                });
                let mut cells: Vec<Cell> = newest.collect();
                cells.reverse();
                (cells, emitted.snapshot.index, durable.promise.term)
            }
            None => (Vec::new(), 0, Term::ZERO),
        };
        match &machine.replica {
            Some(replica) => {
                let status = replica.status();
                MemberState {
                    condition,
                    role: status.role,
                    term: status.term,
                    leader: status.leader,
                    commit: status.commit,
                    applied: replica.applied().index,
                    snapshot,
                    cells,
                }
            }
            None => MemberState {
                condition,
                role: Role::Follower,
                term: promised,
                leader: None,
                commit: 0,
                applied: 0,
                snapshot,
                cells,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_as_it_was_is_written_down_once() {
        let state = |term| MemberState {
            condition: Condition::Up,
            role: Role::Follower,
            term: Term(term),
            leader: None,
            commit: 0,
            applied: 0,
            snapshot: 0,
            cells: Vec::new(),
        };
        let mut recording = Recording::default();
        for (at, term) in [(1, 1), (2, 1), (3, 2), (3, 3)] {
            recording.note_member(at, NodeId(1), state(term));
        }
        let told: Vec<(u64, u64)> = recording.members.iter().map(|(at, _, state)| (*at, state.term.0)).collect();
        assert_eq!(told, [(1, 1), (3, 3)]);
        for (at, condition) in [(1, LinkCondition::Open), (2, LinkCondition::Cut), (3, LinkCondition::Cut)] {
            recording.note_link(at, NodeId(1), NodeId(2), condition);
        }
        assert_eq!(recording.links, [(2, NodeId(1), NodeId(2), LinkCondition::Cut)]);
    }
}
