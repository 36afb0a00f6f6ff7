//! TRex's own part of the stage that all protocols share: the records that must be durable before promises and accepts
//! leave, and the timers that make an election.

#![allow(dead_code, unused_imports, reason = "each test file uses its own part of the support")]

use bytes::Bytes;
use hustings_core::options::Options as _;
use hustings_core::{Durable, Entry, EntryKind, Lsn, NodeId, Origin, Promise, Record, Stamp, Term};
use hustings_paxos::{Message, Options, Paxos, Timer};
use hustings_stage::Direction;
pub use hustings_stage::{End, one};

pub struct Ours;

pub type Theatre = hustings_stage::Theatre<Ours>;

/// This many voters, n1 to nN, as they are by default.
pub fn cast(voters: u64) -> Theatre {
    Theatre::cast(voters)
}

impl Direction for Ours {
    type Protocol = Paxos;

    const HEARTBEAT: Timer = Timer::Heartbeat;
    const RESTARTS_ARE_SEEN: bool = true;

    fn is_published(options: &Options) -> bool {
        options.as_published
    }

    /// TI-6: ballots may differ.
    fn is_same(known: &Entry, entry: &Entry) -> bool {
        same_value(known, entry)
    }

    fn on_said(stage: &mut Theatre, id: u64, _: NodeId, message: &Message) {
        let durable = &stage.actor(id).durable;
        match message {
            // TI-1.
            Message::PrepareAck { ballot, .. } if !stage.options.is_laboratory() => {
                assert!(durable.promise.term >= *ballot, "n{id} promises {ballot} before that is durable (TI-1)");
            }
            // TI-2.
            Message::AcceptAck { ballot, from, through, committed } if !stage.options.is_laboratory() => {
                for slot in durable.snapshot_index() + 1..=*committed {
                    assert!(durable.entries.contains_key(&slot), "n{id} has committed slot {slot} on no disk");
                }
                for slot in *from..=*through {
                    let held = durable.entries.get(&slot).is_some_and(|entry| entry.lsn.term >= *ballot);
                    let is_chosen = slot <= durable.snapshot_index() || slot <= durable.committed.index;
                    assert!(held || is_chosen, "n{id} acknowledges slot {slot} before that is durable (TI-2)");
                }
            }
            // TI-5: a promise quorum first, of the whole history of what was said.
            Message::Accept { ballot, accepts, .. } if !accepts.is_empty() && !stage.options.is_laboratory() => {
                let promised = |who: &u64| {
                    stage.said.iter().any(|(from, _, said)| {
                        from == who && matches!(said, Message::PrepareAck { ballot: b, .. } if b == ballot)
                    })
                };
                let others = stage.actors.keys().filter(|who| **who != id && promised(who)).count();
                let dead = stage.graveyard.iter().filter(|who| promised(who)).count();
                let needed = stage.options.quorums.promises(stage.cluster.membership.voters.len());
                assert!(others + dead + 1 >= needed, "n{id} proposes in {ballot} without a promise quorum (TI-5)");
            }
            _ => {}
        }
    }
}

pub trait Verbs {
    fn ballot_of(&self, id: u64) -> u64;
    fn promised(&self, id: u64) -> Term;
    /// This node's deadline passes, and whatever comes of it runs to its end.
    fn elect(&mut self, id: u64);
    fn heartbeat_if_armed(&mut self, id: u64);
}

impl Verbs for Theatre {
    fn ballot_of(&self, id: u64) -> u64 {
        self.term(id)
    }

    fn promised(&self, id: u64) -> Term {
        self.value(id).promised()
    }

    fn elect(&mut self, id: u64) {
        self.fire(id, Timer::Deadline);
        self.settle();
        self.fire_if_armed(id, Timer::Grace);
        self.settle();
    }

    fn heartbeat_if_armed(&mut self, id: u64) {
        self.fire_if_armed(id, Timer::Heartbeat);
        self.settle();
    }
}

/// TI-6: ballots may differ.
pub fn same_value(one: &Entry, other: &Entry) -> bool {
    Entry { lsn: other.lsn, ..one.clone() } == *other && one.lsn.index == other.lsn.index
}

/// The ballot made of this counter and this node.
pub fn ballot(counter: u64, node: u64) -> Term {
    Term::packed(counter, node)
}

/// A journal with this promise, these accepted slots (index, ballot, text) and this commit.
pub fn journal(promise: Term, slots: &[(u64, Term, &str)], committed: u64) -> Durable {
    let put = |(index, term, text): &(u64, Term, &str)| {
        let payload = Bytes::copy_from_slice(text.as_bytes());
        let kind = if text.is_empty() { EntryKind::Blank } else { EntryKind::Command };
        let lsn = Lsn { term: *term, index: *index };
        Record::Put(Entry { lsn, kind, origin: Origin::NOBODY, stamp: Stamp::NONE, payload })
    };
    let at = slots.iter().find(|(index, _, _)| *index == committed);
    let commit = at.map(|(index, term, _)| Record::Committed(Lsn { term: *term, index: *index }));
    let promise = Record::Promise(Promise::without_vote(promise));
    std::iter::once(promise).chain(slots.iter().map(put)).chain(commit).collect()
}
