//! A whole cluster as one value, and its schedulers: a script, a seed, every possibility.
//!
//! The members of a world are the production code: replicas above logs on simulated disks ([`machine`]). The world around them
//! is virtual: time, network, disks, clients ([`world`]). Each command to it is a line of text ([`command`]), whether a person
//! decides it ([`script`]) or a seed ([`seed`]). After every step the judge of `hustings-properties` looks at what is new.
//!
//! It knows no protocol: everything is generic over [`hustings_core::Protocol`].
//!
//! A run that a seed draws, faults and all, is the same each time:
//!
//! ```
//! use hustings_kv::KvStore;
//! use hustings_raft::{Options, Raft};
//! use hustings_world::seed::run;
//! use hustings_world::{Plan, Plants};
//!
//! let plan = Plan::draw(7, 3, 5_000_000);
//! let play = || run::<Raft, KvStore>(&plan, &Options::default(), Plants::default(), 0);
//! let report = play();
//! assert!(report.violation.is_none(), "{:?}", report.violation);
//! assert!(report.counts.completed > 0);
//! assert_eq!(play().fingerprint, report.fingerprint);
//! ```
//!
//! Read next: [`world`].

pub mod command;
pub mod dice;
pub mod digested;
mod drawing;
pub mod journal;
mod judged;
pub mod network;
pub mod settings;

pub mod acting;
mod coverage;
pub mod machine;
pub mod world;

mod candidates;
pub mod faults;
pub mod load;
pub mod parse;
pub mod plants;
mod rivals;

pub mod grammar;
pub mod graphs;
pub mod guided;
pub mod laboratory;
mod liveness;
mod operator;
mod questions;
pub mod recording;
pub mod regions;
pub mod script;
pub mod seed;
mod sickness;
mod under_way;

pub mod every;

pub use command::{Command, DiskFault, Expectation, Target};
pub use coverage::Coverage;
pub use digested::{Digested, Service, StoreDefect};
pub use hustings_core::panics;
pub use journal::{Arrow, Counts, Journal, Line};
pub use judged::JUDGED;
pub use machine::{Life, Plants};
pub use network::Quality;
pub use recording::Recording;
pub use script::{Script, ScriptError};
pub use seed::{Plan, Report};
pub use settings::{DiskPace, LoadSettings, Settings};
pub use world::World;

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
