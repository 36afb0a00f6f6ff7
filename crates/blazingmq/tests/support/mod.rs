//! BlazingMQ's own part of the stage that all protocols share: links are sessions, whose ends everybody sees; the
//! timers that make an election, and the records that must be durable before support leaves.

#![allow(dead_code, unused_imports, reason = "each test file uses its own part of the support")]

use hustings_blazingmq::{BlazingMq, Message, Options, Timer};
use hustings_core::options::Options as _;
use hustings_core::{Durable, Entry, Lsn, NodeId, Promise, Record, Role, Term};
use hustings_stage::Direction;
pub use hustings_stage::{End, one};

pub struct Ours;

pub type Theatre = hustings_stage::Theatre<Ours>;

/// This many voters, n1 to nN, as they are by default.
pub fn cast(voters: u64) -> Theatre {
    Theatre::cast(voters)
}

impl Direction for Ours {
    type Protocol = BlazingMq;

    const HEARTBEAT: Timer = Timer::Heartbeat;
    /// E1 holds from the election on, and not only once the leader is healed.
    const REIGNS: &'static [Role] = &[Role::Leader, Role::Synchronizing];
    const RESTARTS_ARE_SEEN: bool = true;
    const CUTS_END_SESSIONS: bool = true;

    fn is_published(options: &Options) -> bool {
        options.as_published
    }

    /// E5: support for one in each term, durable before it leaves.
    fn on_said(stage: &mut Theatre, id: u64, to: NodeId, message: &Message) {
        if let Message::Support { term } = message
            && !stage.options.is_laboratory()
        {
            let durable = stage.actor(id).durable.promise;
            assert!(durable.term >= *term, "n{id} supports in {term} before that is durable");
            if durable.term == *term && durable.vote == Some(to) {
                let supported = *stage.annals.votes.entry((id, term.0)).or_insert(to.0);
                assert_eq!(supported, to.0, "E5: n{id} supported two in term {term}");
            }
        }
    }
}

pub trait Verbs {
    fn promise(&self, id: u64) -> (u64, Option<u64>);
    /// The leader that a node follows, healed or not; `None` if it follows none.
    fn follows(&self, id: u64) -> Option<u64>;
    /// Nobody hears the leader any more, and all notice.
    fn silence(&mut self, ids: &[u64]);
    /// Nobody hears the leader, this node's wait ends first, and the election and healing run to their end.
    fn elect(&mut self, id: u64);
}

impl Verbs for Theatre {
    fn promise(&self, id: u64) -> (u64, Option<u64>) {
        let Promise { term, vote } = self.value(id).promise();
        (term.0, vote.map(|id| id.0))
    }

    fn follows(&self, id: u64) -> Option<u64> {
        self.value(id).follows().map(|id| id.0)
    }

    fn silence(&mut self, ids: &[u64]) {
        for id in ids {
            self.fire_if_armed(*id, Timer::Silence);
        }
    }

    fn elect(&mut self, id: u64) {
        let ids = self.ids();
        self.silence(&ids);
        self.fire(id, Timer::Wait);
        self.settle();
    }
}

/// The disk of a node before the story begins: its term, and records of these terms.
pub fn history(term: u64, terms: &[u64]) -> Durable {
    let promise = Promise::without_vote(Term(term));
    let puts = (1..).zip(terms).map(|(index, term)| Record::Put(Entry::blank(Lsn::new(*term, index))));
    std::iter::once(Record::Promise(promise)).chain(puts).collect()
}
