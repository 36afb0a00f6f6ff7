//! The timers of GMT-2000: [`Timer`].

/// The timers that GMT-2000 sets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// The elector's timer while it is WATCHING: nobody was heard, or the last election led to nothing.
    Watch,
    /// The elector's timer while it is VOTING: a round trip has passed since its ELECT.
    Round,
    /// The leader was last heard exactly the shortest election timeout ago: from now on an ELECT moves this node.
    Freshness,
    /// The leader sends its next LEAD.
    Heartbeat,
    /// The leader counts the members that it heard.
    QuorumCheck,
    /// A hand-over took too long.
    Transfer,
    /// A period ends: hand-overs to preferred members and losses of leadership are forgotten bit by bit.
    Patience,
}
