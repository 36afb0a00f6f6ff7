//! Raft as a value: elections, replication, reads, transfer, membership and snapshots.
//!
//! Implements Ongaro's dissertation (ch. 3-6, 9.6, 10.2) with the extensions that years of production added to it: PreVote
//! with CheckQuorum, leader stickiness, fast back-tracking, flow control, ReadIndex by internal positions, learners, joint
//! membership applied when committed, commit knowledge on vote traffic, priorities. Rule tags (RT, RV, RA, …) are those of
//! `docs/protocols/raft.md`.
//!
//! Deliberately absent: lease reads (they need bounded clocks), append-time membership, group commit.
//!
//! Three values elect a leader. The host of this example delivers every message at once, its disks never fail, and one election timer
//! fires:
//!
//! ```
//! use hustings_core::{Cluster, Durable, Effect, Effects, Input, NodeId, Protocol, Role};
//! use hustings_raft::{Options, Raft, Timer};
//! use std::collections::VecDeque;
//!
//! let start = |me| Raft::start(Cluster::of(3, me), Options::default(), Durable::default(), &mut Effects::new());
//! let mut nodes = [1, 2, 3].map(start);
//! let mut inputs = VecDeque::from([(NodeId(1), Input::Timer(Timer::Election))]);
//! while let Some((me, input)) = inputs.pop_front() {
//!     let mut effects = Effects::new();
//!     nodes[me.0 as usize - 1].step(input, &mut effects);
//!     for effect in effects {
//!         if let Effect::Send { to, message, .. } = effect {
//!             inputs.push_back((to, Input::Message { from: me, message }));
//!         }
//!     }
//! }
//! assert_eq!(nodes[0].status().role, Role::Leader);
//! assert!(nodes.iter().all(|node| node.status().leader == Some(NodeId(1))));
//! ```
//!
//! Read next, in the order of the paper: [`raft`] (the value and its one dispatcher), [`roles`] (its moves), [`election`],
//! [`replication`], [`leading`], [`message`]; [`laboratory`] plants defects for proofs. The code that Raft shares with the other
//! protocols is in [`hustings_core::leading`].

pub mod election;
pub mod laboratory;
pub mod leading;
pub mod message;
pub mod options;
pub mod raft;
pub mod replication;
pub mod roles;
pub mod timer;

pub use laboratory::Defect;
pub use message::{Message, VoteReply, VoteRequest};
pub use raft::{Options, Raft, Timer};

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
