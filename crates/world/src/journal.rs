//! The story of a run for people: [`Journal`], and in numbers: [`Counts`].

use hustings_core::{NodeId, Role, Transition};
use std::collections::BTreeMap;
use std::fmt;

/// Something that people read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    /// A protocol's own word.
    Transition(Transition),
    /// A fault, as the script says it.
    Fault(String),
    /// News of a host: a node that ended, a disk that was refused.
    Host(NodeId, String),
    /// A message, where a transcript shows messages.
    Message {
        /// The member that sent the message.
        from: NodeId,
        /// The member that the message is for.
        to: NodeId,
        /// The message, in words.
        what: String,
    },
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Transition(transition) => transition.fmt(f),
            Line::Fault(what) => write!(f, "> {what}"),
            Line::Host(node, what) => write!(f, "{node} {what}"),
            Line::Message { from, to, what } => write!(f, "{from} → {to}  {what}"),
        }
    }
}

/// A message's way, for a diagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrow {
    /// The member that sent the message.
    pub from: NodeId,
    /// The member that the message is for.
    pub to: NodeId,
    /// Moment of sending, in microseconds.
    pub sent_at: u64,
    /// Moment of its arrival, past or to come; `None` when it was lost.
    pub arrived_at: Option<u64>,
    /// Moment at which it was lost; `None` when it arrived.
    pub lost_at: Option<u64>,
    /// The name of its kind.
    pub kind: String,
}

/// The lines and arrows that are kept of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Journal {
    /// Lines in order, each with its microsecond.
    pub lines: Vec<(u64, Line)>,
    /// Whether messages are written down as lines too.
    pub shows_messages: bool,
    /// Number of the last messages that are written down as arrows, at least; 0 for none.
    pub arrows_max: usize,
    /// Messages, for a diagram.
    pub arrows: Vec<Arrow>,
    /// Arrows that were dropped before those: an arrow's number counts them.
    dropped: usize,
}

impl Journal {
    pub(crate) fn note(&mut self, now: u64, line: Line) {
        self.lines.push((now, line));
    }

    /// Keeps an arrow; gives it a number.
    pub(crate) fn draw(&mut self, arrow: Arrow) -> usize {
        if self.arrows.len() >= self.arrows_max.saturating_mul(2) {
            // The end of a story is what is looked at.
            self.arrows.drain(..self.arrows_max);
            self.dropped += self.arrows_max;
        }
        self.arrows.push(arrow);
        self.dropped + self.arrows.len() - 1
    }

    fn arrow_mut(&mut self, number: Option<usize>) -> Option<&mut Arrow> {
        self.arrows.get_mut(number?.checked_sub(self.dropped)?)
    }

    /// Draws the arrow of a message that arrives twice once more.
    pub(crate) fn second_copy(&mut self, number: Option<usize>, at: u64) -> Option<usize> {
        let first = self.arrow_mut(number)?.clone();
        Some(self.draw(Arrow { arrived_at: Some(at), lost_at: None, ..first }))
    }

    /// Sets when the message of this arrow arrives, whatever was thought before.
    pub(crate) fn arrow_arrives(&mut self, number: Option<usize>, at: u64) {
        if let Some(arrow) = self.arrow_mut(number) {
            (arrow.arrived_at, arrow.lost_at) = (Some(at), None);
        }
    }

    /// The message of this arrow was lost then, on its way or where it came to.
    pub(crate) fn arrow_is_lost(&mut self, number: Option<usize>, at: u64) {
        if let Some(arrow) = self.arrow_mut(number) {
            (arrow.arrived_at, arrow.lost_at) = (None, Some(at));
        }
    }
}

/// Numbers of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Inputs that replicas took.
    pub steps: u64,
    /// Events of all kinds.
    pub events: u64,
    /// Messages that members sent.
    pub messages: u64,
    /// Their bytes on the wire, where a world weighs its messages.
    pub bytes: u64,
    /// Messages lost on the way.
    pub lost: u64,
    /// Syncs that disks finished.
    pub syncs: u64,
    /// Operations of clients that ended well.
    pub completed: u64,
    /// Operations that were definitely refused.
    pub refused: u64,
    /// Operations that nobody knows the end of.
    pub indefinite: u64,
    /// Times that somebody became leader.
    pub elections: u64,
    /// Campaigns that members began.
    pub campaigns: u64,
    /// Snapshots that members cut.
    pub snapshots: u64,
    /// Snapshots loaded from a peer.
    pub installs: u64,
    /// Times that a rival got the lock.
    pub locks: u64,
    /// Tenures of candidates that began.
    pub tenures: u64,
    /// Events that watchers were told.
    pub watched: u64,
    /// Faults by their first word.
    pub faults: BTreeMap<String, u64>,
    /// The longest time, in microseconds, in which no client's operation ended well, or none that changes something, although
    /// one was wanted; a client that loses patience and asks again goes on waiting.
    pub outage_max: u64,
    /// All time in which no client's operation ended well although one was wanted, in gaps longer than an election timeout.
    pub unavailable: u64,
}

impl Counts {
    pub(crate) fn on_transition(&mut self, transition: &Transition) {
        match transition.to {
            Role::Leader if transition.from != Role::Leader => self.elections += 1,
            Role::Candidate | Role::PreCandidate if transition.from == Role::Follower => self.campaigns += 1,
            _ => {}
        }
    }

    /// Takes in the counts of another run.
    pub fn add(&mut self, other: &Counts) {
        self.steps += other.steps;
        self.events += other.events;
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.lost += other.lost;
        self.syncs += other.syncs;
        self.completed += other.completed;
        self.refused += other.refused;
        self.indefinite += other.indefinite;
        self.elections += other.elections;
        self.campaigns += other.campaigns;
        self.snapshots += other.snapshots;
        self.installs += other.installs;
        self.locks += other.locks;
        self.tenures += other.tenures;
        self.watched += other.watched;
        for (fault, count) in &other.faults {
            *self.faults.entry(fault.clone()).or_default() += count;
        }
        self.outage_max = self.outage_max.max(other.outage_max);
        self.unavailable += other.unavailable;
    }
}
