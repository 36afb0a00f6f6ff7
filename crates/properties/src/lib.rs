//! Properties that must always hold, written once for all protocols.
//!
//! A cluster is judged from outside: by the statuses of its members, by the records they write, and by the answers that
//! clients got. Nothing here knows a protocol, a network or a clock.
//!
//! - [`safety`]: what is unsafe, as pure functions over logs and disks;
//! - [`chronicle`]: elections, logs and commits, over the whole history of a cluster;
//! - [`history`]: operations of clients, and [`linearizability`], which judges them;
//! - [`lease_clock`]: no lease ends before its time;
//! - [`tenures`]: an application has one leader, and what comes too late is refused;
//! - [`by_configurations`]: the same judgement by another algorithm, slow and simple, against which the fast one is tested.
//!
//! A property is a function that says what it saw when it does not hold:
//!
//! ```
//! use hustings_core::{NodeId, Term};
//! use hustings_properties::safety::check_leader;
//! use std::collections::BTreeMap;
//!
//! let mut leaders = BTreeMap::new();
//! assert_eq!(check_leader(&mut leaders, Term(1), NodeId(1)), Ok(()));
//! assert_eq!(check_leader(&mut leaders, Term(2), NodeId(2)), Ok(()));
//! let violation = check_leader(&mut leaders, Term(1), NodeId(2)).expect_err("n1 was elected in this term");
//! assert_eq!(violation.property, "one-leader-per-term");
//! ```
//!
//! Read next: [`chronicle`].

pub mod by_configurations;
pub mod chronicle;
pub mod history;
pub mod lease_clock;
pub mod linearizability;
pub mod safety;
pub mod shadow;
pub mod tenures;

pub use chronicle::Chronicle;
pub use history::{Act, Operation, Value};
pub use lease_clock::LeaseClock;
pub use linearizability::{Nonlinearizable, check};
pub use safety::Rules;
pub use tenures::Tenures;

/// A property that does not hold, and how one sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Violation {
    /// Name of the property, as in the documentation.
    pub property: &'static str,
    /// The observation that violates it, with nodes, terms and indexes.
    pub what: String,
}

impl Violation {
    /// A violation of `property`.
    pub fn of(property: &'static str, what: impl Into<String>) -> Violation {
        Violation { property, what: what.into() }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.property, self.what)
    }
}

impl std::error::Error for Violation {}

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
