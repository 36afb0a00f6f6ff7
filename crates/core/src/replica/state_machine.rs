//! The replicated application: [`StateMachine`].

use super::ApplyVersion;
use super::digests::Digest;
use crate::Lsn;
use bytes::{Buf, Bytes};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// Snapshot bytes that cannot be a state machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotError {
    /// The damage and the offset at which it was found.
    pub what: String,
}

impl std::fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the snapshot cannot be read: {}", self.what)
    }
}

impl std::error::Error for SnapshotError {}

/// The bytes of a snapshot on disk, readable for as long as somebody holds this, also when newer snapshots have taken its place.
/// [`Debug`] names the file.
pub trait SnapshotFile: Debug + Send + Sync {
    /// Reads `length` bytes from `offset` on, counted from the snapshot's first byte. They are not verified: the reader
    /// of a part knows what it must be.
    ///
    /// # Errors
    /// Whatever the disk refuses, and an end before those bytes.
    fn read(&self, offset: u64, length: usize) -> Result<Bytes, SnapshotError>;
}

/// Callback for when an encoded view is durable in a file: given that file and the place in it where the view begins.
pub type OnceDurable = Box<dyn FnOnce(&Arc<dyn SnapshotFile>, u64)>;

/// A deterministic machine: equal commands in equal order give equal states on every member.
///
/// It sees no clock. Time reaches it through [`StateMachine::advance`]: the log carries the leader's elapsed time, so
/// that every member expires the same lease at the same entry (ADR 3).
pub trait StateMachine: Clone + Eq + Hash + Debug + Send + Sync + Sized + 'static {
    /// The answer to a command that its proposer gets.
    type Response: Clone + Eq + Debug + Send + 'static;
    /// An immutable view of the state: O(1) to take, cheap to clone, read and encoded off the replica's loop.
    type View: Clone + Send + Sync + 'static;

    /// The highest version of its rules that this build can compute by.
    ///
    /// Whatever decides what [`StateMachine::apply`] or [`StateMachine::advance`] do, limits and shares included, belongs to a
    /// version: a build that changes any of it raises this number and keeps the old rules beside the new ones.
    const VERSION_MAX: ApplyVersion = ApplyVersion::FIRST;

    /// From here on computes by the rules of this version, which is at most [`StateMachine::VERSION_MAX`]; called at birth, when a
    /// snapshot is loaded and where the log raises it.
    fn adopt(&mut self, _version: ApplyVersion) {}

    /// Takes over from the state machine that this one replaces what no snapshot can hold, a closure for example; called once, after
    /// [`StateMachine::decode`] and before anything else. At a start, `before` is the state of an empty log. The default takes nothing.
    fn inherit(&mut self, _before: &Self) {}

    /// Moves the log's clock; called before `apply` of the entry that carries the time.
    fn advance(&mut self, elapsed: Duration);

    /// Applies one committed command. Never panics: malformed bytes give an error response and change nothing.
    ///
    /// It runs on the loop that carries heartbeats and votes, on every member, the leader first: one that takes an election timeout stops
    /// the cluster for as long. Keep it within milliseconds, and spread larger work over several commands.
    fn apply(&mut self, lsn: Lsn, payload: &Bytes) -> Self::Response;

    /// Cost of the last command, or of the last advance, in units of some 0.1 microseconds. A host lets its peers and timers have their turn when commands
    /// have cost [`SLICE_COST`](super::backlog::SLICE_COST) together. The default is that of a small write.
    fn last_cost(&self) -> u64 {
        40
    }

    /// The state as it is now.
    fn freeze(&self) -> Self::View;

    /// Log time left until something falls due; zero when something is due already, `None` when nothing ever is.
    fn next_deadline(&self) -> Option<Duration>;

    /// Encodes a view as snapshot bytes, handing successive chunks to `sink`.
    fn encode(view: &Self::View, sink: &mut dyn FnMut(Bytes));

    /// As [`StateMachine::encode`], for a file: what comes back is called when the file is durable, and from then on the state may
    /// leave large parts there instead of in memory. The default keeps all in memory.
    fn encode_to_file(view: &Self::View, sink: &mut dyn FnMut(Bytes)) -> Option<OnceDurable> {
        Self::encode(view, sink);
        None
    }

    /// A digest of a view, to compare members by: equal states must have equal digests, whatever build they run on. The default
    /// digests the encoding; a build that changes its encoding below a new apply version must not use it.
    fn digest(view: &Self::View) -> u64 {
        let mut digest = Digest::new();
        Self::encode(view, &mut |chunk| digest.write(&chunk));
        digest.finish()
    }

    /// Rebuilds the state from snapshot bytes; an error names what is wrong and at which offset.
    fn decode(snapshot: &mut dyn Buf) -> Result<Self, SnapshotError>;

    /// As [`StateMachine::decode`], of bytes that are those of `file` from `_start` on: large parts may stay there. The default keeps
    /// all in memory.
    fn decode_from_file(
        snapshot: &mut dyn Buf,
        _file: &Arc<dyn SnapshotFile>,
        _start: u64,
    ) -> Result<Self, SnapshotError> {
        Self::decode(snapshot)
    }
}

/// No state at all: for a cluster that only elects its leader. Commands are committed in one order, and change nothing.
impl StateMachine for () {
    type Response = ();
    type View = ();

    fn advance(&mut self, _: Duration) {}

    fn apply(&mut self, _: Lsn, _: &Bytes) {}

    fn freeze(&self) {}

    fn next_deadline(&self) -> Option<Duration> {
        None
    }

    fn encode((): &(), _: &mut dyn FnMut(Bytes)) {}

    fn decode(snapshot: &mut dyn Buf) -> Result<(), SnapshotError> {
        match snapshot.remaining() {
            0 => Ok(()),
            left => Err(SnapshotError { what: format!("it holds {left} bytes of a state, and this cluster has none") }),
        }
    }
}
