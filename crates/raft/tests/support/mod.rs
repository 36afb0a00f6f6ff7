//! Raft's own part of the stage that all protocols share: the timers that make an election, and the promise that must be
//! durable before a vote leaves.

#![allow(dead_code, unused_imports, reason = "each test file uses its own part of the support")]

use hustings_core::{Durable, Entry, Lsn, NodeId, Promise, Record, Role, Term};
use hustings_raft::{Message, Options, Raft, Timer};
use hustings_stage::Direction;
pub use hustings_stage::{End, one};

pub struct Ours;

pub type Theatre = hustings_stage::Theatre<Ours>;

/// This many voters, n1 to nN, as they are by default.
pub fn cast(voters: u64) -> Theatre {
    Theatre::cast(voters)
}

impl Direction for Ours {
    type Protocol = Raft;

    const HEARTBEAT: Timer = Timer::Heartbeat;

    /// The annals (RI-1, RI-5, RI-8) are never to be contradicted, whatever the options.
    fn is_published(_: &Options) -> bool {
        false
    }

    /// RI-8: one vote in each term, durable before it leaves.
    fn on_said(theatre: &mut Theatre, id: u64, to: NodeId, message: &Message) {
        if let Message::VoteReply(reply) = message
            && reply.is_granted
        {
            let term = reply.campaign;
            let voted = *theatre.annals.votes.entry((id, term.0)).or_insert(to.0);
            assert_eq!(voted, to.0, "n{id} voted twice in term {term} (RI-8)");
            let durable = theatre.actor(id).durable.promise;
            let is_durable = durable.term > term || durable == Promise::vote(term, to);
            assert!(is_durable, "n{id} votes for {to} in term {term} before that is durable");
        }
    }
}

pub trait Verbs {
    /// The shortest election timeout passes at this node without a word from the leader.
    fn forget_freshness(&mut self, id: u64);
    /// Every node's stickiness ends, this one campaigns, and all is delivered.
    fn elect(&mut self, id: u64);
}

impl Verbs for Theatre {
    fn forget_freshness(&mut self, id: u64) {
        self.fire_if_armed(id, Timer::Stickiness);
    }

    fn elect(&mut self, id: u64) {
        self.ids().into_iter().for_each(|other| self.forget_freshness(other));
        self.fire(id, Timer::Election);
        self.settle();
        assert_eq!(self.role(id), Role::Leader, "n{id} was to lead: {:?}", self.actor(id).transitions.last());
    }
}

/// The disk of a node before the story begins: a promise, and entries of these terms.
pub fn history(term: u64, vote: Option<u64>, terms: &[u64]) -> Durable {
    let promise = Promise { term: Term(term), vote: vote.map(NodeId) };
    let puts = (1..).zip(terms).map(|(index, term)| Record::Put(Entry::blank(Lsn::new(*term, index))));
    std::iter::once(Record::Promise(promise)).chain(puts).collect()
}
