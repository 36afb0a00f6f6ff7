//! Defects that can be planted in this protocol, one at a time: [`Defect`]. For proofs that the judge convicts.
//!
//! A defect is a value of [`crate::Options`] that only the laboratory sets: a server makes its options itself, and refuses any
//! that are for the laboratory ([`is_laboratory`](hustings_core::options::Options::is_laboratory)). Each stands for a mistake that somebody made.

/// A defect that can be planted in Raft.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Defect {
    /// A voter votes for everybody who asks in a term.
    VotesTwice,
    /// A voter does not look at the candidate's log (§5.4.1).
    VotesForStaleLogs,
    /// A vote is forgotten when its node steps down within the term (EL-02).
    ForgetsVoteOnStepDown,
    /// A candidate counts answers, not voters: one that arrives twice counts twice.
    CountsDuplicateVotes,
    /// Votes of an earlier campaign are counted in this one (EL-03, EL-04).
    CountsStaleVotes,
    /// An entry of an earlier term is committed by counting (figure 8, RC-1).
    CommitsOldTerms,
    /// A commit index is believed beyond what the leader knows this node to hold (RC-3).
    CommitsUnmatched,
    /// An acknowledgement of an earlier term is counted in this one (RH-19).
    CountsStaleAcknowledgements,
    /// The entries of an append replace everything behind their place, whether it differs or not (RH-11).
    TruncatesAlways,
    /// Whether the place before the entries matches is not checked (RA-1).
    SkipsLogCheck,
    /// A conflicting tail stays where it is.
    KeepsConflicts,
    /// Reads are answered before the leader has committed an entry of its own term (RH-10).
    ReadsBeforeOwnCommit,
    /// Reads are answered without asking a quorum (RR-1).
    ReadsWithoutQuorum,
    /// Reads are confirmed by answers to an earlier question (RH-3).
    ReadsByStaleAnswers,
    /// Changes of membership begin before the leader has committed an entry of its own term (RM-1).
    ChangesBeforeOwnCommit,
    /// A second change of membership begins before the first is applied (RM-2).
    ChangesTogether,
    /// A joint change is decided by the majority of all, not of both halves (RM-4).
    JointByUnion,
    /// A snapshot that is older than what is committed is installed (RS-1).
    InstallsOldSnapshots,
    /// A pre-vote raises the term (RLV-1).
    PreVoteRaisesTerm,
    /// A deposed leader goes on leading in the later term.
    LeadsOnInLaterTerms,
    /// A preferred member that could not win stands in the way of its equals for ever (RV-10).
    NeverYields,
    /// The only voter campaigns at its start, also when it must never lead.
    CampaignsAlone,
}

impl Defect {
    /// All defects that can be planted.
    pub const ALL: [Defect; 22] = [
        Defect::VotesTwice,
        Defect::VotesForStaleLogs,
        Defect::ForgetsVoteOnStepDown,
        Defect::CountsDuplicateVotes,
        Defect::CountsStaleVotes,
        Defect::CommitsOldTerms,
        Defect::CommitsUnmatched,
        Defect::CountsStaleAcknowledgements,
        Defect::TruncatesAlways,
        Defect::SkipsLogCheck,
        Defect::KeepsConflicts,
        Defect::ReadsBeforeOwnCommit,
        Defect::ReadsWithoutQuorum,
        Defect::ReadsByStaleAnswers,
        Defect::ChangesBeforeOwnCommit,
        Defect::ChangesTogether,
        Defect::JointByUnion,
        Defect::InstallsOldSnapshots,
        Defect::PreVoteRaisesTerm,
        Defect::LeadsOnInLaterTerms,
        Defect::NeverYields,
        Defect::CampaignsAlone,
    ];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Defect::VotesTwice => "votes-twice",
            Defect::VotesForStaleLogs => "votes-for-stale-logs",
            Defect::ForgetsVoteOnStepDown => "forgets-vote-on-step-down",
            Defect::CountsDuplicateVotes => "counts-duplicate-votes",
            Defect::CountsStaleVotes => "counts-stale-votes",
            Defect::CommitsOldTerms => "commits-old-terms",
            Defect::CommitsUnmatched => "commits-unmatched",
            Defect::CountsStaleAcknowledgements => "counts-stale-acknowledgements",
            Defect::TruncatesAlways => "truncates-always",
            Defect::SkipsLogCheck => "skips-log-check",
            Defect::KeepsConflicts => "keeps-conflicts",
            Defect::ReadsBeforeOwnCommit => "reads-before-own-commit",
            Defect::ReadsWithoutQuorum => "reads-without-quorum",
            Defect::ReadsByStaleAnswers => "reads-by-stale-answers",
            Defect::ChangesBeforeOwnCommit => "changes-before-own-commit",
            Defect::ChangesTogether => "changes-together",
            Defect::JointByUnion => "joint-by-union",
            Defect::InstallsOldSnapshots => "installs-old-snapshots",
            Defect::PreVoteRaisesTerm => "pre-vote-raises-term",
            Defect::LeadsOnInLaterTerms => "leads-on-in-later-terms",
            Defect::NeverYields => "never-yields",
            Defect::CampaignsAlone => "campaigns-alone",
        }
    }

    /// The defect with this name.
    pub fn named(name: &str) -> Option<Defect> {
        Defect::ALL.into_iter().find(|defect| defect.name() == name)
    }
}
