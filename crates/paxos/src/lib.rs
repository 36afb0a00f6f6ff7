//! TRex: Multi-Paxos with a stable leader as a value. A poll that promises nothing comes before every ballot, and
//! values come from the promise quorum, so any node may lead, whatever its journal holds.
//!
//! Implements the article on TRex ("Leader Elections", by Simon Massey) with the rules of the reference implementations,
//! `docs/protocols/rules/paxos.md`: both published code bases contain a rule that breaks agreement (TH-1, TH-2), so
//! every `[NORM]` repair is the default here, and [`Options::as_published`] takes back the two that matter most, for the
//! laboratory.
//!
//! Deliberately absent: joint changes of membership (one voter at a time), lease reads, weights, eras in ballots.
//!
//! Three values elect a leader. The host of this example delivers every message at once, its disks never fail, and one deadline passes:
//!
//! ```
//! use hustings_core::{Cluster, Durable, Effect, Effects, Input, NodeId, Protocol, Role};
//! use hustings_paxos::{Options, Paxos, Timer};
//! use std::collections::VecDeque;
//!
//! let start = |me| Paxos::start(Cluster::of(3, me), Options::default(), Durable::default(), &mut Effects::new());
//! let mut nodes = [1, 2, 3].map(start);
//! let mut inputs = VecDeque::from([(NodeId(1), Input::Timer(Timer::Deadline))]);
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
//! Read next, in the order of the texts: [`paxos`] (the value and its dispatcher), [`roles`] (its moves), [`ballot`] (quorums,
//! promises, and why an [`Accept`] cannot be made up), [`journal`], [`low_ball`], [`recover`], [`acceptor`], [`lead`],
//! [`peer`], [`catch_up`], [`leading`], [`message`]; and [`laboratory`], for comparison. The code that it shares with the other
//! protocols is in [`hustings_core::leading`].

pub mod paxos;
pub mod roles;
pub mod timer;

pub mod ballot;
pub mod journal;

pub mod low_ball;
pub mod recover;

pub mod acceptor;
pub mod catch_up;
pub mod lead;
pub mod leading;
pub mod peer;

pub mod message;
pub mod options;

pub mod laboratory;

pub use ballot::Accept;
pub use laboratory::Defect;
pub use message::Message;
pub use paxos::{Options, Paxos, Timer};

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
