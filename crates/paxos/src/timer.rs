//! The timers of TRex: [`Timer`].

/// The timers that TRex sets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// Nobody was heard for too long, or a poll or a prepare round got no answers (TF-3, TF-4, TR-6).
    Deadline,
    /// A quorum has answered a poll; the others had their round trip (TF-7).
    Grace,
    /// The leader sends its next heartbeat (TL-2).
    Heartbeat,
    /// The leader counts the members that it heard (TL-10).
    QuorumCheck,
    /// A hand-over took too long.
    Transfer,
    /// A period ends: hand-overs to preferred members and losses of leadership are forgotten bit by bit.
    Patience,
}
