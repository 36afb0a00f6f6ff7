//! Defects of what all protocols share, to be planted one at a time: [`Defect`]. For proofs that the judge convicts.
//!
//! Each was once in this code, was found by reading or by a week of misuse, and stands here as it was, one switch at the place
//! where it was mended. A defect comes in with [`crate::Cluster::defect`], which only a world sets: a server makes its
//! cluster itself, and neither its options nor its configuration have a word for it.

/// A planted defect of the shared half of a leader, or of the replica around every protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Defect {
    /// A change that shrinks the quorum commits nothing beyond itself: what the smaller quorum holds already waits for the
    /// next acknowledgement, which may never come (RM-8).
    CommitsOnce,
    /// A snapshot is asked of the same source for ever, though it answers nothing.
    PinsFetches,
    /// Leadership is handed to a preferred member again and again, though it never wins.
    InsistsOnPreference,
    /// A member that must never lead refuses others for want of what it holds, and never leads to give it to them.
    TakesNoCare,
    /// A change of members is admitted that leaves nobody who may lead.
    RemovesLastLeader,
    /// Time that passed and stands in no entry dies with the reign: a lease may never end.
    LosesTimeWithReigns,
    /// Entries carry the time since the entry before, not the time: slots of an isolated leader count it a second time.
    StampsDifferences,
    /// A witness gives others its snapshot, which holds no state, and does not say what it is.
    WitnessGivesSnapshots,
}

impl Defect {
    /// All defects that can be planted.
    pub const ALL: [Defect; 8] = [
        Defect::CommitsOnce,
        Defect::PinsFetches,
        Defect::InsistsOnPreference,
        Defect::TakesNoCare,
        Defect::RemovesLastLeader,
        Defect::LosesTimeWithReigns,
        Defect::StampsDifferences,
        Defect::WitnessGivesSnapshots,
    ];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Defect::CommitsOnce => "commits-once",
            Defect::PinsFetches => "pins-fetches",
            Defect::InsistsOnPreference => "insists-on-preference",
            Defect::TakesNoCare => "takes-no-care",
            Defect::RemovesLastLeader => "removes-last-leader",
            Defect::LosesTimeWithReigns => "loses-time-with-reigns",
            Defect::StampsDifferences => "stamps-differences",
            Defect::WitnessGivesSnapshots => "witness-gives-snapshots",
        }
    }

    /// The defect with this name.
    pub fn named(name: &str) -> Option<Defect> {
        Defect::ALL.into_iter().find(|defect| defect.name() == name)
    }
}
