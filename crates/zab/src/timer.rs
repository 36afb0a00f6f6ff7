//! The timers of ZAB: [`Timer`].

/// The timers that ZAB sets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// Looking, and no quorum agrees: send this node's vote again.
    Resend,
    /// The vote has changed, and there are many to tell.
    Speak,
    /// finalizeWait: a quorum agrees, and a better vote may still come.
    Finalize,
    /// Leading, and not enough followers came or promised: initLimit.
    InitLimit,
    /// The leader was silent: syncLimit.
    Silence,
    /// The leader was last heard exactly the shortest election timeout ago: from now on a voter that looks moves this node.
    Freshness,
    /// The leader sends a PING: half a tick.
    Ping,
    /// The leader counts the learners that it heard: a tick.
    QuorumCheck,
    /// A hand-over took too long.
    Transfer,
    /// A period ends: hand-overs to preferred members and losses of leadership are forgotten bit by bit.
    Patience,
}
