//! Every possibility: all that can happen to a small cluster within stated bounds.
//!
//! The members are the production [`hustings_core::Replica`]; a disk is the fold of its records, time is a timer that is armed
//! and may fire at any moment, and the network is a set: a sent message may arrive at any later time, in any order, or never.
//! How many messages one link holds is a bound like the others: beyond it the oldest is lost. (For protocols with session links
//! it is a queue per direction that a crash empties, and what it holds is back-pressure: no step adds to a full one that is not
//! an answer.) A step is atomic with its sync; a crash may come after *any prefix* of the records that a step writes, and then
//! exactly those messages have left that rested on no more.
//!
//! It is fast because members are many times fewer than worlds. Each member state and each message is stored once and known by
//! a number; a world is a short row of numbers; and what an input does to a member is computed once and then looked up
//! ([`local`]). So a step of the search costs a few table lookups, however much the protocol costs.
//!
//! - [`local`]: one member, one input, all ways in which the step can end;
//! - [`table`]: members and messages by number, shared by all threads;
//! - [`state`]: a world as a row of numbers, its successors, and what is judged;
//! - [`mod@replay`]: a trace as a script, and [`tracing`]: as a picture;
//! - [`fair`]: what comes of a world when nothing more goes wrong;
//! - [`mod@explore`]: breadth first, so that the first trace found is a shortest one.
//!
//! It deliberately does not judge every fair continuation (one is tried), cut snapshots, or rename nodes (no protocol here is
//! symmetric: link-down elections and ties go by id).

pub mod explore;
mod facts;
pub mod fair;
pub mod local;
pub mod replay;
pub mod state;
pub mod table;
pub mod tracing;

pub use explore::{Found, Progress, Trace, explore};
pub use local::Ledger;
pub use replay::{Replayed, bounds_of, header, replay};

use hustings_core::laboratory::Defect;
use hustings_core::quorum::may_be_witnesses;
use hustings_core::{Cluster, Membership, NodeId};
use std::sync::Arc;

/// Bounds of an exhaustive search: what may happen, and how often.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bounds {
    /// Number of voters at the beginning.
    pub nodes: u64,
    /// Number of learners, which receive the log and do not vote; their ids follow those of the voters.
    pub learners: u64,
    /// Number of voters that hold no state, the last ones; fewer than half.
    pub witnesses: u64,
    /// Greatest term: a step that leads above it is not taken.
    pub terms: u64,
    /// Crashes, all members together.
    pub crashes: u8,
    /// Proposals, each made at a leader.
    pub proposals: u8,
    /// Times that each timer may fire at each member in one life.
    pub fires: u8,
    /// Times that timers may fire at each member in one life, all of them together; 0 is no limit. Protocols with many timers
    /// need it: which of them fired is part of a member's state.
    pub timers: u8,
    /// Whether peers may hear of a crash (link down), besides not hearing of it.
    pub notices: bool,
    /// Messages under way from one member to another at most; one more, and the oldest of them is lost. 0 is no limit.
    pub link: usize,
    /// Whether a message may arrive more than once.
    pub duplicates: bool,
    /// One of so many worlds is continued fairly, to see that somebody serves in the end; 0 asks none.
    pub fair_every: u64,
    /// Worlds at most; 0 is no limit.
    pub states_max: u64,
    /// Bytes of memory at most that visited worlds and those to be expanded may take.
    pub bytes_max: u64,
    /// A defect of what all protocols share, planted in every member.
    pub defect: Option<Defect>,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            nodes: 3,
            learners: 0,
            witnesses: 0,
            terms: 1,
            crashes: 0,
            proposals: 0,
            fires: 1,
            timers: 0,
            notices: false,
            link: 1,
            duplicates: false,
            fair_every: 0,
            states_max: 0,
            bytes_max: 16 << 30,
            defect: None,
        }
    }
}

impl Bounds {
    /// Ids of all members, voters first.
    pub fn members(&self) -> impl Iterator<Item = NodeId> {
        (1..=self.nodes + self.learners).map(NodeId)
    }

    /// Whether there is a voter, witnesses are fewer than half, and no more than nine members are there: beyond, nothing can be explored.
    pub fn has_members_to_explore(&self) -> bool {
        let is_of_few = self.nodes > 0 && self.nodes.saturating_add(self.learners) <= 9;
        is_of_few && self.witnesses <= self.nodes && may_be_witnesses(self.witnesses as usize, self.nodes as usize)
    }

    /// The cluster as this member sees it.
    fn cluster(&self, me: NodeId) -> Cluster {
        let mut membership = Membership::of_voters(self.members());
        membership.learners = membership.voters.split_off(&NodeId(self.nodes + 1));
        for witness in self.nodes - self.witnesses + 1..=self.nodes {
            membership.members.entry(NodeId(witness)).or_default().is_witness = true;
        }
        Cluster { membership: Arc::new(membership), defect: self.defect, ..Cluster::of(self.nodes, me.0) }
    }
}
