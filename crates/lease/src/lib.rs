//! Leader election for applications as a value: one [`Candidate`] per process, and a store that arbitrates.
//!
//! A service that wants one active process asks a linearizable store for a lease. This crate holds the rules: how long
//! a process may believe that it leads ([`timing`]), when it must stop, when it may release, and how resources refuse a
//! leader that comes too late ([`gate`]). It has no IO and no clock. A host sends the requests, records when each one
//! left, and fires the timers; [`schedule`] is the bookkeeping that every host needs.
//!
//! Source: "Leader and Followers" (patterns of distributed systems), small clusters that elect through a store;
//! `docs/leadership.md`.
//!
//! It deliberately has no drivers of real stores, no guard and no supervisor: those wait for sockets and clocks.
//!
//! Read next: [`token`], [`timing`], [`store`] (what is asked and what may be answered), [`candidate`] (the
//! rules), [`schedule`], [`gate`], [`history`]; [`store_model`] for tests of hosts; [`published`] for comparison,
//! [`stories`] for why, and [`laboratory`] for proofs that the judge convicts.

pub mod token;

pub mod timing;

pub mod store;

pub mod candidate;

pub mod handover;

pub mod schedule;

pub mod gate;

pub mod history;

pub mod store_model;

pub mod laboratory;

pub mod published;

pub mod stories;

pub use candidate::{Candidate, Change, Effect, Heir, Input, Loss, Name, Settings, Unstopped, Until, When, Why};
pub use gate::{Barred, FenceGate, Memory, Shelf};
pub use laboratory::Defect;
pub use schedule::Schedule;
pub use store::{Answer, Attempt, CandidateId, Note, Observation, Profile, Refusal, Request, Version};
pub use store_model::{Desk, StoreModel};
pub use timing::{Misfit, Timing};
pub use token::Token;

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
