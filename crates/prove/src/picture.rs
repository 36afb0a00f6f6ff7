//! A run as JSON, for the laboratory's page and for the pages that `--report` writes.
//!
//! Times are microseconds from the beginning. Lists are rows of numbers, for a run has many of them:
//!
//! | list | a row |
//! |---|---|
//! | `members` | at, member, condition (0 up, 1 paused, 2 disk stalled, 3 down, 4 refused), role (0 follower to 4 leader), term, leader or 0, commit, applied, index of the snapshot, cells as [index, term, durable or not, ...] |
//! | `links` | at, from, to, condition (0 open, 1 slow, 2 cut) |
//! | `messages` | from, to, sent, ended, lost or not, place of its kind in `kinds` |
//! | `lines` | at, class (`role`, `fault`, `host`), member or 0, text |
//! | `steps` | at, the command |

use hustings_core::{NodeId, Role};
use hustings_properties::Violation;
use hustings_world::recording::{Condition, LinkCondition, MemberState};
use hustings_world::{Arrow, Journal, Line, Recording};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A run that was played.
pub(crate) struct Run<'a> {
    /// The protocol, and in which form, for people.
    pub(crate) subject: String,
    /// Whether a term is a counter and a node.
    pub(crate) packs_terms: bool,
    /// Number of founding members.
    pub(crate) nodes: u64,
    /// Moment up to which it was played, in microseconds.
    pub(crate) end: u64,
    pub(crate) journal: &'a Journal,
    pub(crate) recording: Option<&'a Recording>,
    /// The property that fell, and when.
    pub(crate) violation: Option<(u64, Violation)>,
    /// Commands, and when each was begun.
    pub(crate) steps: Vec<(u64, String)>,
    /// The reason why it was not played further; `None` if it was played as far as asked.
    pub(crate) stopped: Option<String>,
    /// The meaning of a second.
    pub(crate) time: Time,
}

/// The meaning of a picture's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Time {
    /// Virtual time of the world.
    Virtual,
    /// Each second is a step of a trace, which knows no time.
    Steps,
}

/// Moment at which the message arrived or was lost; of one that did neither, when it was sent.
fn ended(arrow: &Arrow) -> u64 {
    arrow.arrived_at.or(arrow.lost_at).unwrap_or(arrow.sent_at)
}

fn member_row((at, member, state): &(u64, NodeId, MemberState)) -> Value {
    let condition = match state.condition {
        Condition::Up => 0,
        Condition::Paused => 1,
        Condition::Stalled => 2,
        Condition::Down => 3,
        Condition::Refused => 4,
    };
    let role = match state.role {
        Role::Follower => 0,
        Role::PreCandidate => 1,
        Role::Candidate => 2,
        Role::Synchronizing => 3,
        Role::Leader => 4,
    };
    let cells: Vec<u64> =
        state.cells.iter().flat_map(|cell| [cell.index, cell.term.0, u64::from(cell.is_durable)]).collect();
    let leader = state.leader.map_or(0, |leader| leader.0);
    let MemberState { term, commit, applied, snapshot, .. } = state;
    json!([at, member.0, condition, role, term.0, leader, commit, applied, snapshot, cells])
}

fn link_row((at, one, other, condition): &(u64, NodeId, NodeId, LinkCondition)) -> Value {
    let condition = match condition {
        LinkCondition::Open => 0,
        LinkCondition::Slow => 1,
        LinkCondition::Cut => 2,
    };
    json!([at, one.0, other.0, condition])
}

fn line_row((at, line): &(u64, Line)) -> Value {
    let (class, member) = match line {
        Line::Transition(transition) => ("role", transition.node.0),
        Line::Fault(_) => ("fault", 0),
        Line::Host(member, _) => ("host", member.0),
        Line::Message { from, .. } => ("message", from.0),
    };
    json!([at, class, member, line.to_string()])
}

impl Run<'_> {
    /// The last part of the run, with what members and links were when it began.
    pub(crate) fn json_of_end(&self, from: u64) -> Value {
        let mut told = self.json(from);
        let Some(recording) = self.recording else { return told };
        let mut before = BTreeMap::new();
        for (_, member, state) in recording.members.iter().filter(|(at, ..)| *at < from) {
            before.insert(member, member_row(&(from, *member, state.clone())));
        }
        let mut links = BTreeMap::new();
        for (_, one, other, condition) in recording.links.iter().filter(|(at, ..)| *at < from) {
            links.insert((one, other), link_row(&(from, *one, *other, *condition)));
        }
        for (list, rows) in
            [("members", before.into_values().collect::<Vec<_>>()), ("links", links.into_values().collect())]
        {
            if let Some(told) = told[list].as_array_mut() {
                told.splice(0..0, rows);
            }
        }
        told
    }

    /// Everything from this moment on, as JSON: a page that has what was before can go on with it.
    pub(crate) fn json(&self, from: u64) -> Value {
        let mut kinds: Vec<&str> = Vec::new();
        let mut messages = Vec::new();
        for arrow in self.journal.arrows.iter().filter(|arrow| ended(arrow) >= from) {
            let kind = kinds.iter().position(|kind| *kind == arrow.kind).unwrap_or_else(|| {
                kinds.push(&arrow.kind);
                kinds.len() - 1
            });
            let is_lost = u8::from(arrow.arrived_at.is_none());
            messages.push(json!([arrow.from.0, arrow.to.0, arrow.sent_at, ended(arrow), is_lost, kind]));
        }
        let recorded = self.recording.map(|recording| recording.members.as_slice()).unwrap_or_default();
        let members: Vec<Value> = recorded.iter().filter(|(at, ..)| *at >= from).map(member_row).collect();
        let links = self.recording.map(|recording| recording.links.as_slice()).unwrap_or_default();
        let links = links.iter().filter(|(at, ..)| *at >= from).map(link_row);
        let lines = self.journal.lines.iter().filter(|(at, _)| *at >= from).map(line_row);
        let violation = self
            .violation
            .as_ref()
            .map(|(at, violation)| json!({ "at": at, "property": violation.property, "what": violation.what }));
        json!({
            "subject": self.subject, "packsTerms": self.packs_terms, "nodes": self.nodes, "from": from, "end": self.end,
            "members": members, "links": links.collect::<Vec<_>>(), "messages": messages, "kinds": kinds,
            "lines": lines.collect::<Vec<_>>(), "violation": violation, "stopped": self.stopped,
            "isTrace": self.time == Time::Steps,
            "steps": self.steps.iter().map(|(at, line)| json!([at, line])).collect::<Vec<_>>(),
        })
    }
}
