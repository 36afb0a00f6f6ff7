//! The timers of Raft: [`Timer`].

/// The timers that Raft sets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// No leader was heard for an election timeout: campaign.
    Election,
    /// The leader was last heard exactly the shortest election timeout ago: stickiness ends (RV-3).
    Stickiness,
    /// The leader sends its next heartbeat.
    Heartbeat,
    /// The leader counts the members that it heard (RQ-1).
    QuorumCheck,
    /// A hand-over took too long (RX-3).
    Transfer,
    /// A period ends: hand-overs to preferred members and losses of leadership are forgotten bit by bit.
    Patience,
}
