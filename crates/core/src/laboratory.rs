//! Defects of what all protocols share, to be planted one at a time: [`Defect`]. For proofs that the judge convicts.
//!
//! Most were once in this code, were found by reading or by a week of misuse, and stand here as they were, one switch at the place
//! where each was mended. The last four are made from outside, of the effects of any protocol: a message leaves before what it
//! rests on is on disk. A defect comes in with [`crate::Cluster::defect`], which only a world sets: a server makes its
//! cluster itself, and neither its options nor its configuration have a word for it.

use crate::RestsOn;

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
    /// Messages to others that rest on a promise leave before it is on disk: votes, support, promises (EL-01, TI-1).
    UnsyncedPromises,
    /// Messages to others that rest on entries leave before these are on disk: acknowledgements (RA-2).
    UnsyncedEntries,
    /// Messages to others that rest on all that was written leave before it is on disk: what boasts of a log as well as of a promise.
    UnsyncedRecords,
    /// A node's word to itself, by which it counts its own vote or its own copy, does not wait for its disk (RC-2).
    CountsItselfAtOnce,
}

impl Defect {
    /// All defects that can be planted.
    pub const ALL: [Defect; 12] = [
        Defect::CommitsOnce,
        Defect::PinsFetches,
        Defect::InsistsOnPreference,
        Defect::TakesNoCare,
        Defect::RemovesLastLeader,
        Defect::LosesTimeWithReigns,
        Defect::StampsDifferences,
        Defect::WitnessGivesSnapshots,
        Defect::UnsyncedPromises,
        Defect::UnsyncedEntries,
        Defect::UnsyncedRecords,
        Defect::CountsItselfAtOnce,
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
            Defect::UnsyncedPromises => "unsynced-promises",
            Defect::UnsyncedEntries => "unsynced-entries",
            Defect::UnsyncedRecords => "unsynced-records",
            Defect::CountsItselfAtOnce => "counts-itself-at-once",
        }
    }

    /// Whether a message leaves before what it rests on is on disk: one to the node itself, or one to others.
    pub fn sends_early(self, is_to_itself: bool, rests_on: RestsOn) -> bool {
        match self {
            Defect::UnsyncedPromises => !is_to_itself && rests_on == RestsOn::Promise,
            Defect::UnsyncedEntries => !is_to_itself && matches!(rests_on, RestsOn::Entry(_)),
            Defect::UnsyncedRecords => !is_to_itself && rests_on == RestsOn::LastRecord,
            Defect::CountsItselfAtOnce => is_to_itself,
            _ => false,
        }
    }

    /// The defect with this name.
    pub fn named(name: &str) -> Option<Defect> {
        Defect::ALL.into_iter().find(|defect| defect.name() == name)
    }
}
