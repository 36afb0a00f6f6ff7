//! The way into life of a replica: [`Birth`].

use super::{ApplyVersion, Policy, ReplicaState};
use crate::protocol::Protocol;
use crate::{Cluster, Durable, StateMachine};

/// Everything that a replica starts from.
#[derive(Clone, Debug)]
pub struct Birth<P: Protocol, S: StateMachine> {
    /// This node's id, the founding membership, timing and limits.
    pub cluster: Cluster,
    /// The protocol's switches.
    pub options: P::Options,
    /// The durable state, read back from the disk.
    pub recovered: Durable,
    /// The state inside the recovered snapshot, or a new one.
    pub machine: S,
    /// The state of an empty log.
    pub blank: S,
    /// Whether the host knows this member to be a witness, perhaps before its log says so.
    pub is_witness: bool,
    /// The replica's own state inside the recovered snapshot, or a new one.
    pub state: ReplicaState,
    /// The number of this life of the node: larger than that of every earlier life.
    pub incarnation: u64,
    /// Bounds after which a snapshot is cut.
    pub policy: Policy,
    /// The highest apply version that this build can, or is allowed to; at most [`StateMachine::VERSION_MAX`].
    pub can: ApplyVersion,
}
