//! The timers of BlazingMQ: [`Timer`].

/// The timers that BlazingMQ sets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// The initial wait and the random wait: nobody leads, and it is this node's turn to scout (rule 3).
    Wait,
    /// The leader, tentative or confirmed, was last heard too long ago (rule 23).
    Silence,
    /// The result of a scouting is due (rule 7).
    Scouting,
    /// The result of a proposal is due (rule 15).
    Election,
    /// The leader speaks (rule 24).
    Heartbeat,
    /// The leader counts the members that it heard.
    QuorumCheck,
    /// The watchdog of a new leader's healing (§2.6).
    Healing,
    /// A hand-over took too long.
    Transfer,
    /// A period ends: hand-overs to preferred members and losses of leadership are forgotten bit by bit.
    Patience,
}
