//! BlazingMQ's elector and cluster-state ledger as a value: any node may win an election, and learns afterwards what it
//! missed.
//!
//! Implements "Leader Election and State Machine Replication in BlazingMQ" (Bloomberg) with the rules of the reference
//! implementation, `docs/protocols/rules/blazingmq.md`: an elector that scouts before it proposes and sticks to a leader
//! that it hears, and a ledger whose new leader collects the LSNs of a quorum, pulls what it lacks from the most
//! up-to-date follower, and starts its term on top. Parts that are not safe or not live there are repaired by default (`[OURS]`
//! in `docs/protocols/blazingmq.md`); [`Options::as_published`] takes the repair that matters most away again, for the
//! laboratory.
//!
//! Deliberately absent: joint changes of membership (one voter at a time), lease reads, the workflow without a state
//! machine for healing, and the storage of partitions (§3): only who leads what is replicated here.
//!
//! Three values elect a leader. The host of this example delivers every message at once, its disks never fail, and the wait of n1 ends
//! first:
//!
//! ```
//! use hustings_core::{Cluster, Durable, Effect, Effects, Input, NodeId, Protocol, Role};
//! use hustings_blazingmq::{BlazingMq, Options, Timer};
//! use std::collections::VecDeque;
//!
//! let start = |me| BlazingMq::start(Cluster::of(3, me), Options::default(), Durable::default(), &mut Effects::new());
//! let mut nodes = [1, 2, 3].map(start);
//! let mut inputs = VecDeque::from([(NodeId(1), Input::Timer(Timer::Wait))]);
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
//! Read next, in the order of the article: [`blazingmq`] (the value and its dispatcher), [`roles`] (its moves), [`elector`],
//! [`scouting`], [`candidate`], [`healing`], [`ledger`], [`peer`], [`leading`], [`partitions`], [`message`]; and
//! [`laboratory`], for comparison. The code that it shares with the other protocols is in [`hustings_core::leading`].

pub mod blazingmq;
pub mod roles;
pub mod timer;

pub mod candidate;
pub mod elector;
pub mod scouting;

pub mod healing;
pub mod leading;
pub mod ledger;
pub mod peer;

pub mod partitions;

pub mod message;
pub mod options;

pub mod laboratory;

pub use blazingmq::{BlazingMq, Timer};
pub use healing::Healing;
pub use laboratory::Defect;
pub use message::Message;
pub use options::{Options, Quorums};
pub use partitions::{NodeHealth, Partition, Placement};

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
