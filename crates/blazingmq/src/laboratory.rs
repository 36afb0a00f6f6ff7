//! Defects that can be planted in this protocol, one at a time: [`Defect`]. For proofs that the judge convicts.
//!
//! A defect is a value of [`crate::Options`] that only the laboratory sets: a server makes its options itself, and
//! refuses any that are for the laboratory ([`is_laboratory`](hustings_core::options::Options::is_laboratory)). Each stands for a mistake that the
//! notes warn of.

/// A defect that can be planted in BlazingMQ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Defect {
    /// A node supports every proposal that is not below its term (E5).
    SupportsTwice,
    /// A new leader trusts its own ledger and collects no LSNs (§2.10, rule 4).
    LeadsWithoutLsns,
    /// A new leader pulls nothing although a follower is ahead (CS-2).
    KeepsOwnLedger,
    /// A new leader chooses among the LSNs that came first, without a quorum (§2.10, rule 2).
    SynchronizesWithoutQuorum,
    /// One acknowledgement commits, as with the one quorum knob for everything at 1 (CS-9).
    CommitsAlone,
    /// Reads are answered without asking a quorum (§1.10, 7).
    ReadsWithoutQuorum,
    /// A second change of membership begins before the first is applied.
    ChangesTogether,
    /// A node that is behind in memberships is supported all the same.
    SupportsStaleMemberships,
    /// A partition goes to another primary under the lease of the one before (§3.6, P1).
    KeepsLeases,
    /// A leader whose source is lost in the middle of a pull reckons with where its own ledger ended before.
    TrustsStalePlace,
}

impl Defect {
    /// All defects that can be planted.
    pub const ALL: [Defect; 10] = [
        Defect::SupportsTwice,
        Defect::LeadsWithoutLsns,
        Defect::KeepsOwnLedger,
        Defect::SynchronizesWithoutQuorum,
        Defect::CommitsAlone,
        Defect::ReadsWithoutQuorum,
        Defect::ChangesTogether,
        Defect::SupportsStaleMemberships,
        Defect::KeepsLeases,
        Defect::TrustsStalePlace,
    ];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Defect::SupportsTwice => "supports-twice",
            Defect::LeadsWithoutLsns => "leads-without-lsns",
            Defect::KeepsOwnLedger => "keeps-own-ledger",
            Defect::SynchronizesWithoutQuorum => "synchronizes-without-quorum",
            Defect::CommitsAlone => "commits-alone",
            Defect::ReadsWithoutQuorum => "reads-without-quorum",
            Defect::ChangesTogether => "changes-together",
            Defect::SupportsStaleMemberships => "supports-stale-memberships",
            Defect::KeepsLeases => "keeps-leases",
            Defect::TrustsStalePlace => "trusts-stale-place",
        }
    }

    /// The defect with this name.
    pub fn named(name: &str) -> Option<Defect> {
        Defect::ALL.into_iter().find(|defect| defect.name() == name)
    }
}
