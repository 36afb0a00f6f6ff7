//! The vocabulary of Hustings and its one trait: *a protocol is a value; give it an input, it returns effects.*
//!
//! Five protocols stand on this crate and nothing else of ours. It has no clock, no randomness, no file, no socket, no
//! lock and no logger; the host of a protocol supplies all of those. Read the modules in the order below: the trait
//! first, then the words it speaks, then [`replica`], which is what every host really runs.
//!
//! A membership is a value as well, and a change of it gives the next one:
//!
//! ```
//! use hustings_core::{Change, Membership, NodeId};
//!
//! let three = Membership::of_voters([1, 2, 3].map(NodeId));
//! let four = three.after_simple(&[Change::AddVoter(NodeId(4))]).expect("one voter more at a time");
//! assert_eq!(four.voters.len(), 4);
//! // Two at once could elect two leaders: that takes a joint membership.
//! assert!(three.after_simple(&[Change::AddVoter(NodeId(4)), Change::AddVoter(NodeId(5))]).is_err());
//! ```
//!
//! Read next: `ARCHITECTURE.md`, then `crates/raft`.

pub mod protocol;

pub mod admission;
pub mod assignment;
pub mod cluster;
pub mod membership;
pub mod options;

pub mod lsn;
pub mod promise;
pub mod term;

pub mod durable;
pub mod log;

pub mod quorum;
pub mod tally;

pub mod preference;

pub mod status;
pub mod timing;

pub mod wire;

pub mod laboratory;
pub mod leading;
pub mod panics;

pub mod replica;

pub use assignment::{Assignment, Fenced};
pub use cluster::{Cluster, ClusterId, Limits, Member, NodeId, Priority};
pub use durable::{Durable, Record, SnapshotReference};
pub use log::{Entry, EntryKind, Log, Origin, Stamp};
pub use lsn::Lsn;
pub use membership::{Change, Membership, MembershipChange, MembershipError, MembershipRefusal, Passage};
pub use options::{OptionError, Switch};
pub use preference::Patience;
pub use promise::Promise;
pub use protocol::{
    Admin, DiskHealth, Effect, Effects, Input, LinkState, Links, Outcome, Proposal, Protocol, Refusal, RestsOn, Slots,
    Ticket,
};
pub use replica::replicated::Replicated;
pub use replica::state_machine::{self, OnceDurable, SnapshotError, SnapshotFile, StateMachine};
pub use replica::succession::Succession;
pub use replica::{ApplyVersion, Replica};
pub use status::{Contradiction, Reason, Role, Status, Transition};
pub use tally::Tally;
pub use term::Term;
pub use timing::Timing;
pub use wire::{Wire, WireError};

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
