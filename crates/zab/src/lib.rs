//! ZAB as a value: ZooKeeper's atomic broadcast, with its fast leader election.
//!
//! Implements the ZAB paper (Junqueira, Reed, Serafini, DSN 2011) as ZooKeeper's code does it (§5 of `docs/protocols/rules`): servers
//! that look for a leader exchange votes until a quorum agrees; the one chosen collects promises for a new epoch (discovery),
//! brings a quorum to its own history (synchronisation), and only then serves (broadcast). The additions of this crate are marked
//! `[OURS]` in `docs/protocols/zab.md`: members that change, snapshots by reference, windows, linearizable reads, hand-over and
//! priorities. [`Options::as_published`] takes the repaired order of records at NEWLEADER away again, for the laboratory.
//!
//! Deliberately absent: joint changes of membership (one voter at a time), local reads by followers, the oracle of two nodes.
//!
//! Three values elect a leader. The host of this example delivers every message at once, its disks never fail, and the two short timers of
//! an election fire when nothing is under way:
//!
//! ```
//! use hustings_core::{Cluster, Durable, Effect, Effects, Input, LinkState, NodeId, Protocol, Role};
//! use hustings_zab::{Options, Timer, Zab};
//! use std::collections::{BTreeSet, VecDeque};
//!
//! let ids = [1, 2, 3].map(NodeId);
//! let start = |me: NodeId| Zab::start(Cluster::of(3, me.0), Options::default(), Durable::default(), &mut Effects::new());
//! let mut nodes = ids.map(start);
//! let mut inputs = VecDeque::new();
//! for me in ids {
//!     let others = ids.into_iter().filter(|peer| *peer != me);
//!     inputs.extend(others.map(|peer| (me, Input::Link { peer, state: LinkState::Up })));
//! }
//! let mut armed = BTreeSet::new();
//! loop {
//!     let fired = |(me, timer)| (me, Input::Timer(timer));
//!     let Some((me, input)) = inputs.pop_front().or_else(|| armed.pop_first().map(fired)) else { break };
//!     let mut effects = Effects::new();
//!     nodes[me.0 as usize - 1].step(input, &mut effects);
//!     for effect in effects {
//!         match effect {
//!             Effect::Send { to, message, .. } => inputs.push_back((to, Input::Message { from: me, message })),
//!             Effect::SetTimer { timer: timer @ (Timer::Speak | Timer::Finalize), .. } => drop(armed.insert((me, timer))),
//!             Effect::CancelTimer(timer) => drop(armed.remove(&(me, timer))),
//!             _ => {}
//!         }
//!     }
//! }
//! // Of equal histories, that of the largest id wins.
//! assert_eq!(nodes[2].status().role, Role::Leader);
//! assert!(nodes.iter().all(|node| node.status().leader == Some(NodeId(3))));
//! ```
//!
//! Read next, in the order of the phases: [`zab`] (the value and its dispatcher), [`roles`] (its moves), [`vote`],
//! [`election`], [`discovery`],
//! [`synchronization`], [`broadcast`]; then [`learner`], [`leading`], [`surroundings`], [`message`]; and [`laboratory`], the defects that
//! can be planted on purpose. The code that it shares with the other protocols is in [`hustings_core::leading`].

pub mod roles;
pub mod timer;
pub mod zab;

pub mod election;
pub mod vote;

pub mod discovery;

pub mod synchronization;

pub mod broadcast;
pub mod leading;
pub mod learner;

pub mod surroundings;

pub mod message;
pub mod options;

pub mod laboratory;

pub use laboratory::Defect;
pub use message::{Message, Notification};
pub use options::Options;
pub use vote::{ServerState, Standing, Vote};
pub use zab::{Timer, Zab};

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
