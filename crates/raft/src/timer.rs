//! The alarms of Raft: [`Timer`].

/// The alarms that Raft sets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// Nobody was heard: campaign.
    Election,
    /// The leader was last heard exactly the shortest election timeout ago: stickiness ends (RV-3).
    Stickiness,
    /// The leader speaks.
    Heartbeat,
    /// The leader counts whom it heard (RQ-1).
    QuorumCheck,
    /// A hand-over took too long (RX-3).
    Transfer,
}
