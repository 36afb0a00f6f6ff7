//! Defects that can be planted in this protocol, one at a time: [`Defect`]. For proofs that the judge convicts.
//!
//! A defect is a value of [`crate::Options`] that only the laboratory sets: a server makes its options itself, and refuses any
//! that are for the laboratory ([`is_laboratory`](hustings_core::options::Options::is_laboratory)). Each stands for a mistake that somebody made.

/// A defect that can be planted in ZAB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Defect {
    /// A follower that accepted an epoch from one leader promises it to a second one (ZB-9).
    PromisesTwice,
    /// A leader takes the next epoch without asking anybody (§5.12: fast leader election alone elects candidates).
    SkipsDiscovery,
    /// A leader goes on although a follower of its discovery knows more (§5.8 rule 6).
    IgnoresFresherFollowers,
    /// Freshness is the length of the log, whatever its epochs (EL-15).
    ElectsLongestLog,
    /// A leader serves as soon as its epoch is promised, before a quorum has its history (§5.12).
    ServesBeforeNewLeaderQuorum,
    /// currentEpoch is written before the history that it vouches for (ZOOKEEPER-4643).
    EpochBeforeEntries,
    /// NEWLEADER is acknowledged before the history is on disk (ZOOKEEPER-4646).
    UnsyncedNewLeaderAck,
    /// TRUNC is not obeyed: entries that the leader never had stay (ZB-6).
    KeepsTail,
    /// Reads are answered without asking a quorum.
    ReadsWithoutQuorum,
    /// Two changes of membership are under way together.
    ChangesTogether,
    /// A leader that would cut off what this node knows to be committed is not left, but held to be impossible.
    TruncatesCommitted,
}

impl Defect {
    /// All defects that can be planted.
    pub const ALL: [Defect; 11] = [
        Defect::PromisesTwice,
        Defect::SkipsDiscovery,
        Defect::IgnoresFresherFollowers,
        Defect::ElectsLongestLog,
        Defect::ServesBeforeNewLeaderQuorum,
        Defect::EpochBeforeEntries,
        Defect::UnsyncedNewLeaderAck,
        Defect::KeepsTail,
        Defect::ReadsWithoutQuorum,
        Defect::ChangesTogether,
        Defect::TruncatesCommitted,
    ];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Defect::PromisesTwice => "promises-twice",
            Defect::SkipsDiscovery => "skips-discovery",
            Defect::IgnoresFresherFollowers => "ignores-fresher-followers",
            Defect::ElectsLongestLog => "elects-longest-log",
            Defect::ServesBeforeNewLeaderQuorum => "serves-before-new-leader-quorum",
            Defect::EpochBeforeEntries => "epoch-before-entries",
            Defect::UnsyncedNewLeaderAck => "unsynced-new-leader-ack",
            Defect::KeepsTail => "keeps-tail",
            Defect::ReadsWithoutQuorum => "reads-without-quorum",
            Defect::ChangesTogether => "changes-together",
            Defect::TruncatesCommitted => "truncates-committed",
        }
    }

    /// The defect with this name.
    pub fn named(name: &str) -> Option<Defect> {
        Defect::ALL.into_iter().find(|defect| defect.name() == name)
    }
}
