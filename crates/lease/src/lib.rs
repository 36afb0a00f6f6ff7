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
//! A candidate asks for one thing at a time. Here the answers of the store are given by hand:
//!
//! ```
//! use hustings_lease::{Answer, Attempt, Candidate, CandidateId, Effect, Input, Profile, Request, Settings, Timing, Token};
//! use std::time::Duration;
//!
//! let timing = Timing::for_store(Duration::from_secs(10), &Profile::HUSTINGS);
//! let settings = Settings::new(CandidateId::named("a"), timing, Profile::HUSTINGS);
//! let (mut candidate, effects) = Candidate::start(settings).expect("the times fit");
//! assert!(effects.contains(&Effect::Ask(Attempt(1), Request::Look)));
//! // Nobody holds the election, so the candidate contends for it.
//! let effects = candidate.handle(Input::Answer(Attempt(1), Answer::Gone));
//! assert!(effects.contains(&Effect::Ask(Attempt(2), Request::Contend { over: None })));
//! // It has won, and may believe so for a time that counts from the moment at which its request left.
//! let effects = candidate.handle(Input::Answer(Attempt(2), Answer::Won(Token::new(7))));
//! let believes = |effect: &Effect| matches!(effect, Effect::Believe(token, until) if *token == Token::new(7) && until.attempt == Attempt(2));
//! assert!(effects.iter().any(believes));
//! ```
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
