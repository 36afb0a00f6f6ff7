//! The published form, and defects that can be planted, one at a time: [`Defect`]. For proofs that the judge convicts.
//!
//! Both are values of [`crate::Options`] that only the laboratory sets: a server makes its options itself, and refuses
//! any that are for the laboratory ([`is_laboratory`](hustings_core::options::Options::is_laboratory)). Each defect stands for a mistake that
//! `docs/protocols/rules` warns of.

use crate::paxos::{Options, Paxos, Stage};
use crate::{Accept, ballot};
use hustings_core::{Effects, Entry, Lsn, NodeId, Promise, Record, Term};

/// Proof that this value runs as published: without it no accept is made up.
#[derive(Clone, Copy, Debug)]
pub struct Published(());

impl Options {
    fn published(&self) -> Option<Published> {
        self.as_published.then_some(Published(()))
    }
}

/// A defect that can be planted in TRex.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Defect {
    /// Accepts below the promise are taken (TA-5).
    AcceptsOldBallots,
    /// A new leader fills recovered slots with no-ops instead of what its promise quorum accepted (TR-3 b).
    IgnoresAccepted,
    /// A value that a follower accepted in any ballot counts as chosen once its leader has committed that slot (TF-2).
    CommitsOldBallots,
    /// One promise less than a quorum is enough (TI-5).
    RecoversWithoutQuorum,
    /// The leader's own accept commits (TL-5).
    CommitsAlone,
    /// A node promises a slot that it has committed all the same, and says that it accepted nothing there (TA-4, TI-10,
    /// TH-8).
    ForgetsCommitted,
    /// Reads are answered without asking anybody (TL-10).
    ReadsWithoutQuorum,
    /// Slots behind a change of membership are proposed before it is in force; and as in [`Defect::LeadsOnAfterLater`],
    /// for a leader that gives way to what it learns cannot count by a membership of a later ballot.
    ProposesBehindChanges,
    /// A leader that learns what a later ballot chose leads on, and announces it in its own (TF-2).
    LeadsOnAfterLater,
}

impl Defect {
    /// All defects that can be planted.
    pub const ALL: [Defect; 9] = [
        Defect::AcceptsOldBallots,
        Defect::IgnoresAccepted,
        Defect::CommitsOldBallots,
        Defect::RecoversWithoutQuorum,
        Defect::CommitsAlone,
        Defect::ForgetsCommitted,
        Defect::ReadsWithoutQuorum,
        Defect::ProposesBehindChanges,
        Defect::LeadsOnAfterLater,
    ];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Defect::AcceptsOldBallots => "accepts-old-ballots",
            Defect::IgnoresAccepted => "ignores-accepted",
            Defect::CommitsOldBallots => "commits-old-ballots",
            Defect::RecoversWithoutQuorum => "recovers-without-quorum",
            Defect::CommitsAlone => "commits-alone",
            Defect::ForgetsCommitted => "forgets-committed",
            Defect::ReadsWithoutQuorum => "reads-without-quorum",
            Defect::ProposesBehindChanges => "proposes-behind-changes",
            Defect::LeadsOnAfterLater => "leads-on-after-later",
        }
    }

    /// The defect with this name.
    pub fn named(name: &str) -> Option<Defect> {
        Defect::ALL.into_iter().find(|defect| defect.name() == name)
    }
}

impl Paxos {
    /// TH-1: as published (Scala, `ResendHandler`), a leader whose accepts were refused for a higher promise proposes
    /// the same values above it, and asks nobody first. (There it waits for a timeout before.) Says whether it did.
    pub(crate) fn reissue_as_published(&mut self, seen: Term, out: &mut Effects<Paxos>) -> bool {
        let Some(published) = self.options.published() else { return false };
        self.raise_as_published(published, seen, out)
    }

    /// TH-2: as published (JVM, `Catchup`), a leader that is asked by a node with a higher promise raises its own above
    /// it, and uses it for the next slots without a prepare.
    pub(crate) fn raise_for_catch_up_as_published(&mut self, seen: Term, out: &mut Effects<Paxos>) {
        let Some(published) = self.options.published() else { return };
        self.raise_as_published(published, seen, out);
    }

    fn raise_as_published(&mut self, published: Published, seen: Term, out: &mut Effects<Paxos>) -> bool {
        let me = self.node.me;
        let Some(reign) = self.reign().filter(|reign| reign.stage != Stage::Preparing && seen > reign.ballot) else {
            return false;
        };
        let end = reign.end;
        let values: Vec<Entry> = reign.proposed.values().map(|accept| accept.entry().clone()).collect();
        let term = ballot::ballot_above(seen, me);
        self.node.promise = Promise::without_vote(term);
        out.persist(Record::Promise(self.node.promise));
        let commit = self.node.commit;
        let everybody: Vec<NodeId> = self.node.membership.everyone().collect();
        let Some(reign) = self.reign_mut() else { return false };
        reign.forge_promises(term, commit + 1, everybody);
        reign.end = end;
        for value in values {
            let index = value.lsn.index;
            let accept = Accept::forged(published, Entry { lsn: Lsn { term, index }, ..value });
            self.propose(accept, out);
        }
        self.count_own_accepts(commit + 1, out);
        self.announce_raised_ballot(seen, out);
        self.send_to_all(out);
        true
    }
}
