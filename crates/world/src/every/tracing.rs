//! A trace of the checker as a picture: [`Tracing`]. A step takes a second, for time has no other meaning there.

use super::local::{Content, Member};
use super::state::{Space, WorldState};
use crate::journal::{Arrow, Journal, Line};
use crate::recording::{Cell, Condition, MemberState, Recording};
use hustings_core::{NodeId, Protocol, Role};
use std::collections::BTreeMap;

/// Microseconds that a step is drawn as.
pub const STEP: u64 = 1_000_000;

/// The picture of a trace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tracing {
    /// Steps as lines, messages as arrows.
    pub journal: Journal,
    /// Members' states after each step.
    pub recording: Recording,
    /// Messages under way, as the step is called that delivers them, and when they were first seen.
    under_way: BTreeMap<String, u64>,
}

fn state_of<P: Protocol>(member: &Member<P>) -> MemberState {
    let cells = member.durable.entries.values().map(|entry| Cell {
        index: entry.lsn.index,
        term: entry.lsn.term,
        is_durable: true,
    });
    let cells = cells.collect();
    let snapshot = member.durable.snapshot_index();
    match &member.replica {
        Some(replica) => {
            let status = replica.status();
            let (role, term, leader, commit) = (status.role, status.term, status.leader, status.commit);
            let applied = replica.applied().index;
            MemberState { condition: Condition::Up, role, term, leader, commit, applied, snapshot, cells }
        }
        None => MemberState {
            condition: Condition::Down,
            role: Role::Follower,
            term: member.durable.promise.term,
            leader: None,
            commit: 0,
            applied: 0,
            snapshot,
            cells,
        },
    }
}

/// The member that a word like `n2` names.
fn member_in(word: Option<&str>) -> Option<NodeId> {
    word?.strip_prefix('n')?.parse().ok().map(NodeId)
}

/// The name of the kind of a message, as it is written in a step.
fn kind_of(what: &str) -> String {
    let inner = what.strip_prefix("Protocol(").unwrap_or(what);
    inner.chars().take_while(|letter| letter.is_alphanumeric()).collect()
}

impl Tracing {
    /// Notes a step before it is taken.
    pub(super) fn step(&mut self, at: u64, line: &str) {
        let mut words = line.splitn(4, ' ');
        let noted = match (words.next(), member_in(words.next()), words.next(), words.next()) {
            (Some("deliver"), Some(from), to, Some(what)) => {
                let to = member_in(to).unwrap_or(from);
                let base = line.split(", and n").next().unwrap_or(line);
                let sent_at = self.under_way.get(base).copied().unwrap_or(at.saturating_sub(STEP));
                let kind = kind_of(what);
                self.journal.arrows.push(Arrow { from, to, sent_at, arrived_at: Some(at), lost_at: None, kind });
                Line::Message { from, to, what: what.to_owned() }
            }
            (Some("crash" | "restart" | "link-down" | "link-up"), ..) => Line::Fault(line.to_owned()),
            (Some(verb), Some(member), what, _) => Line::Host(member, format!("{verb} {}", what.unwrap_or_default())),
            _ => Line::Fault(line.to_owned()),
        };
        self.journal.note(at, noted);
    }

    /// Notes what members are now, and what is under way between them.
    pub(super) fn look<P: Protocol>(&mut self, at: u64, space: &Space<P>, row: &WorldState) {
        for number in row.members.iter() {
            let member = space.members.value(*number);
            self.recording.note_member(at, member.id, state_of(&member));
        }
        let in_flight = row.in_flight.iter().filter_map(|number| {
            let sent = space.in_flight.value(*number);
            match &sent.content {
                Content::Message(message) => Some(format!("deliver {} {} {message:?}", sent.from, sent.to)),
                Content::Down | Content::Up => None,
            }
        });
        let in_flight: Vec<String> = in_flight.collect();
        self.under_way.retain(|known, _| in_flight.contains(known));
        for message in in_flight {
            self.under_way.entry(message).or_insert(at);
        }
    }
}
