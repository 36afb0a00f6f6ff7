//! GMT-2000's own part of the stage that all protocols share: the timers that make an election, and the records that
//! must be durable before a vote leaves.

#![allow(dead_code, unused_imports, reason = "each test file uses its own part of the support")]

use hustings_core::{Durable, Entry, Lsn, NodeId, Promise, Record, Term};
use hustings_gmt2000::{Gmt2000, Message, Options, Timer};
use hustings_stage::Direction;
pub use hustings_stage::{End, one};

pub struct Ours;

pub type Theatre = hustings_stage::Theatre<Ours>;

/// This many voters, n1 to nN, as they are by default.
pub fn cast(voters: u64) -> Theatre {
    Theatre::cast(voters)
}

impl Direction for Ours {
    type Protocol = Gmt2000;

    const HEARTBEAT: Timer = Timer::Heartbeat;

    fn is_published(options: &Options) -> bool {
        options.as_published
    }

    /// G2: one vote in each ballot, durable before it leaves.
    fn on_said(stage: &mut Theatre, id: u64, _: NodeId, message: &Message) {
        if let Message::Vote { ballot, choice, .. } = message
            && !stage.options.as_published
        {
            let durable = stage.actor(id).durable.promise;
            assert!(durable.term >= *ballot, "n{id} votes in {ballot} before that is durable");
            let voted = *stage.annals.votes.entry((id, ballot.0)).or_insert(choice.0);
            assert_eq!(voted, choice.0, "G2: n{id} voted twice in ballot {ballot}");
        }
    }
}

pub trait Verbs {
    fn vote(&self, id: u64) -> (u64, Option<u64>);
    /// A round trip passes everywhere.
    fn pass_round(&mut self);
    /// The leader has been silent for the shortest timeout, as these nodes know.
    fn silence(&mut self, ids: &[u64]);
    /// Nobody hears the leader, this node's watch ends first, and the election runs to its end.
    fn elect(&mut self, id: u64);
}

impl Verbs for Theatre {
    fn vote(&self, id: u64) -> (u64, Option<u64>) {
        let Promise { term, vote } = self.value(id).promise();
        (term.0, vote.map(|id| id.0))
    }

    fn pass_round(&mut self) {
        self.settle();
        for id in self.ids() {
            self.fire_if_armed(id, Timer::Round);
        }
        self.settle();
    }

    fn silence(&mut self, ids: &[u64]) {
        for id in ids {
            self.fire_if_armed(*id, Timer::Freshness);
        }
    }

    fn elect(&mut self, id: u64) {
        self.silence(&self.ids());
        self.fire(id, Timer::Watch);
        self.pass_round();
        self.pass_round();
    }
}

/// The disk of a node before the story begins: its ballot, and messages of these terms.
pub fn history(ballot: u64, vote: Option<u64>, terms: &[u64]) -> Durable {
    let promise = Promise { term: Term(ballot), vote: vote.map(NodeId) };
    let puts = (1..).zip(terms).map(|(index, term)| Record::Put(Entry::blank(Lsn::new(*term, index))));
    std::iter::once(Record::Promise(promise)).chain(puts).collect()
}

/// As the scenarios write it: messages up to (term, msg), all but the last of the term before.
pub fn seen(ballot: u64, term: u64, msg: u64) -> Durable {
    let terms: Vec<u64> = (1..=msg).map(|at| if at == msg { term } else { term - 1 }).collect();
    history(ballot, None, &terms)
}

pub fn is_elect(message: &Message) -> bool {
    matches!(message, Message::Elect { .. })
}

pub fn is_vote(message: &Message) -> bool {
    matches!(message, Message::Vote { .. })
}

pub fn is_lead(message: &Message) -> bool {
    matches!(message, Message::Lead { .. })
}
