//! Raft as a value: elections, replication, reads, transfer, membership and snapshots.
//!
//! Implements Ongaro's dissertation (ch. 3-6, 9.6, 10.2) with the extensions that years of production added to it: PreVote
//! with CheckQuorum, leader stickiness, fast back-tracking, flow control, ReadIndex by internal positions, learners, joint
//! membership applied when committed, commit knowledge on vote traffic, priorities. Rule tags (RT, RV, RA, …) are those of
//! `docs/protocols/raft.md`.
//!
//! Deliberately absent: lease reads (they need bounded clocks), append-time membership, group commit.
//!
//! What to read next, in the order of the paper: [`raft`] (the value and its one dispatcher), [`election`],
//! [`replication`], [`progress`], [`read`], [`transfer`], [`membership`], [`snapshot`], [`message`]; [`laboratory`] plants defects for proofs.

pub mod election;
pub mod laboratory;
pub mod membership;
pub mod message;
pub mod progress;
pub mod raft;
pub mod read;
pub mod replication;
pub mod snapshot;
pub mod transfer;

pub use laboratory::Defect;
pub use message::{Message, VoteReply, VoteRequest};
pub use raft::{Options, Raft, Timer};
