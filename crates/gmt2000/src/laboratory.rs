//! Defects that can be planted in this protocol, one at a time: [`Defect`]. For proofs that the judge convicts.
//!
//! A defect is a value of [`crate::Options`] that only the laboratory sets: a server makes its options itself, and
//! refuses any that are for the laboratory ([`is_laboratory`](hustings_core::options::Options::is_laboratory)). Each stands for a mistake that somebody
//! made or could make with the note of 2000 in hand; the note itself, to the letter, is [`crate::published`].

/// A defect that can be planted in GMT-2000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Defect {
    /// A late ELECT of a ballot makes a voter of it vote again (G2, GM-4).
    VotesTwice,
    /// A voter does not look at how far a claim goes, and votes for one below its own log (G3).
    VotesBelowOwnLog,
    /// The old leader, if it is alive, is chosen whatever its claim, as the note's rule 7 has it (§4.8).
    PrefersOldLeader,
    /// Votes of an earlier ballot go to the board of this one (§4.6).
    CountsStaleVotes,
    /// Whether the message before a LEAD's is the same one is not checked, only that there is one (§4.8).
    SkipsLogCheck,
    /// A message of an earlier term is committed by counting (§4.8, figure 8 of Raft).
    CommitsOldTerms,
    /// Reads are answered without asking a quorum.
    ReadsWithoutQuorum,
    /// Reads are answered by a new leader that does not know yet what is committed.
    ReadsBeforeOwnCommit,
    /// A second change of membership begins before the first is in force.
    ChangesTogether,
    /// Changes of membership begin before a new leader has committed a message of its own, one upon the other.
    ChangesBeforeOwnCommit,
    /// Neither old honours nor a preference yield to a node that hears a majority: the centre of a star votes for a leaf that cannot win.
    NeverYields,
}

impl Defect {
    /// All defects that can be planted.
    pub const ALL: [Defect; 11] = [
        Defect::VotesTwice,
        Defect::VotesBelowOwnLog,
        Defect::PrefersOldLeader,
        Defect::CountsStaleVotes,
        Defect::SkipsLogCheck,
        Defect::CommitsOldTerms,
        Defect::ReadsWithoutQuorum,
        Defect::ReadsBeforeOwnCommit,
        Defect::ChangesTogether,
        Defect::ChangesBeforeOwnCommit,
        Defect::NeverYields,
    ];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Defect::VotesTwice => "votes-twice",
            Defect::VotesBelowOwnLog => "votes-below-own-log",
            Defect::PrefersOldLeader => "prefers-old-leader",
            Defect::CountsStaleVotes => "counts-stale-votes",
            Defect::SkipsLogCheck => "skips-log-check",
            Defect::CommitsOldTerms => "commits-old-terms",
            Defect::ReadsWithoutQuorum => "reads-without-quorum",
            Defect::ReadsBeforeOwnCommit => "reads-before-own-commit",
            Defect::ChangesTogether => "changes-together",
            Defect::ChangesBeforeOwnCommit => "changes-before-own-commit",
            Defect::NeverYields => "never-yields",
        }
    }

    /// The defect with this name.
    pub fn named(name: &str) -> Option<Defect> {
        Defect::ALL.into_iter().find(|defect| defect.name() == name)
    }
}
