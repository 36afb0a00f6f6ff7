//! GMT-2000 as a value: the smallest of the five protocols, made safe, durable and servable.
//!
//! Implements "A Leader Election Algorithm" (gmt, 2000): two small machines per server, an ELECTOR that picks and a
//! CANDIDATE that counts, and three messages, ELECT, VOTE and LEAD. The text elects; it says nothing of commit, of disks or of
//! restarts, and as written it can elect two leaders in one term. The additions of this crate are marked `[OURS]` in
//! `docs/protocols/gmt2000.md`: ballots with one durable vote each, a log under LEAD, acknowledgements, reads, transfer,
//! membership and snapshots. [`Options::as_published`] takes the additions to the election away again, for the laboratory.
//!
//! Deliberately absent: joint changes of membership (one voter at a time), lease reads, a pre-vote (ELECT promises
//! nothing and is its own pre-vote).
//!
//! Three values elect a leader. The host of this example delivers every message at once, its disks never fail, and the two timers of an
//! election fire at n1:
//!
//! ```
//! use hustings_core::{Cluster, Durable, Effect, Effects, Input, NodeId, Protocol, Role};
//! use hustings_gmt2000::{Gmt2000, Options, Timer};
//! use std::collections::VecDeque;
//!
//! let start = |me| Gmt2000::start(Cluster::of(3, me), Options::default(), Durable::default(), &mut Effects::new());
//! let mut nodes = [1, 2, 3].map(start);
//! for timer in [Timer::Watch, Timer::Round] {
//!     let mut inputs = VecDeque::from([(NodeId(1), Input::Timer(timer))]);
//!     while let Some((me, input)) = inputs.pop_front() {
//!         let mut effects = Effects::new();
//!         nodes[me.0 as usize - 1].step(input, &mut effects);
//!         for effect in effects {
//!             if let Effect::Send { to, message, .. } = effect {
//!                 inputs.push_back((to, Input::Message { from: me, message }));
//!             }
//!         }
//!     }
//! }
//! assert_eq!(nodes[0].status().role, Role::Leader);
//! assert!(nodes.iter().all(|node| node.status().leader == Some(NodeId(1))));
//! ```
//!
//! Read next, in the order of the text: [`gmt2000`] (the value and its dispatcher), [`roles`] (its moves), [`elector`], [`candidate`],
//! [`lead`], [`leading`], [`message`]; [`published`], for comparison, and [`laboratory`], for proofs that the judge convicts.
//! [`hustings_core::leading`] has the part that all protocols share.

pub mod gmt2000;
pub mod roles;
pub mod timer;

pub mod candidate;
pub mod elector;

pub mod lead;
pub mod leading;

pub mod message;
pub mod options;

pub mod laboratory;
pub mod published;

pub use gmt2000::{Gmt2000, Options, Timer};
pub use laboratory::Defect;
pub use message::{Claim, Message};

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
