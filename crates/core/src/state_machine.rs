//! The replicated state as a value: what a log of commands is applied to.

use crate::Lsn;

/// Why snapshot bytes were refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotError {
    /// What is wrong and at which offset.
    pub what: String,
}

/// A deterministic state machine.
pub trait StateMachine: Clone + Eq + std::hash::Hash + std::fmt::Debug + Send + Sync + Sized + 'static {
    /// What a proposer gets back for its command.
    type Response: Clone + Eq + std::fmt::Debug + Send + 'static;
    /// An immutable view of the state: O(1) to take, cheap to clone, read and encoded off the replica's loop.
    type View: Clone + Send + Sync + 'static;
    /// Moves the log's clock; called before `apply` of the entry that carries it.
    fn advance(&mut self, elapsed: std::time::Duration);
    /// Applies one committed command. Deterministic; never panics on any payload.
    fn apply(&mut self, lsn: Lsn, payload: &bytes::Bytes) -> Self::Response;
    /// A view of the present state.
    fn freeze(&self) -> Self::View;
    /// Log time left until something falls due; zero when something is due already, None when nothing ever is.
    fn next_deadline(&self) -> Option<std::time::Duration>;
    /// Encodes a view as snapshot bytes, in pieces.
    fn encode(view: &Self::View, sink: &mut dyn FnMut(bytes::Bytes));
    /// Rebuilds the state from snapshot bytes; an error names what is wrong and at which offset.
    fn decode(snapshot: &mut dyn bytes::Buf) -> Result<Self, SnapshotError>;
}
