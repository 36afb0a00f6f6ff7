//! Placeholder of the vocabulary, replaced on merge.

pub mod state_machine;
pub use state_machine::{SnapshotError, StateMachine};

/// Number of a reign.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Term(pub u64);

/// Where in history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Lsn {
    /// The reign.
    pub term: Term,
    /// The position.
    pub index: u64,
}
