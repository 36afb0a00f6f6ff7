//! Votes and their order: [`Vote`].
//!
//! Source: §5.3 of `docs/protocols/rules`. "Newer wins": the epoch of the candidate's history, then its last zxid, then its id; a
//! candidate of weight 0 never wins.

use hustings_core::{Lsn, NodeId, Priority, Term};

/// The state of a server, as its notifications say (§5.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ServerState {
    /// It looks for a leader.
    Looking,
    /// It follows a leader.
    Following,
    /// It leads, or is about to.
    Leading,
}

/// A candidate's standing as a leader. `[OURS]`, between the zxid and the id: it never outweighs a longer history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Standing {
    /// Weight 0: it never wins. Of a learner, of one told never to lead, of one that cannot lead now.
    Never,
    /// An ordinary voter, neither preferred nor excluded.
    Normal,
    /// A voter preferred by its operator.
    Preferred,
    /// The last leader handed over to it.
    Successor,
}

impl From<Priority> for Standing {
    fn from(priority: Priority) -> Standing {
        match priority {
            Priority::Never => Standing::Never,
            Priority::Normal => Standing::Normal,
            Priority::Preferred => Standing::Preferred,
        }
    }
}

/// A proposed leader, and why it should be the one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Vote {
    /// The server that is proposed as leader.
    pub leader: NodeId,
    /// Its currentEpoch: the newest leader whose history it holds.
    pub epoch: Term,
    /// Last zxid of the candidate's history.
    pub last: Lsn,
    /// The candidate's standing as a leader.
    pub standing: Standing,
}

impl Vote {
    /// `[OURS]` What a server says that could lead and came to nothing, to have those take care that must never lead: a vote for nobody. No
    /// server has the id 0, so nobody has it for his own; and there is no lesser one, so nobody takes it for a better one.
    pub(crate) const FOR_CARE: Vote =
        Vote { leader: NodeId(0), epoch: Term::ZERO, last: Lsn::ZERO, standing: Standing::Never };

    /// Whether this vote supersedes the other.
    pub fn is_better_than(&self, other: &Vote) -> bool {
        let rank = |vote: &Vote| (vote.is_eligible(), vote.epoch, vote.last, vote.standing, vote.leader);
        rank(self) > rank(other)
    }

    /// Whether its candidate may win at all.
    pub fn is_eligible(&self) -> bool {
        self.standing != Standing::Never
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vote(leader: u64, epoch: u64, last: (u64, u64)) -> Vote {
        let last = Lsn::new(last.0, last.1);
        Vote { leader: NodeId(leader), epoch: Term(epoch), last, standing: Standing::Normal }
    }

    #[test]
    fn the_epoch_comes_first_then_the_zxid_then_the_id() {
        assert!(vote(1, 4, (3, 1)).is_better_than(&vote(2, 3, (3, 9))));
        assert!(vote(1, 4, (4, 9)).is_better_than(&vote(2, 4, (4, 5))));
        assert!(vote(2, 4, (4, 5)).is_better_than(&vote(1, 4, (4, 5))));
        assert!(!vote(2, 4, (4, 5)).is_better_than(&vote(2, 4, (4, 5))));
    }

    #[test]
    fn weight_0_never_wins_and_a_preference_never_outweighs_a_history() {
        let never = Vote { standing: Standing::Never, ..vote(3, 9, (9, 9)) };
        assert!(vote(1, 0, (0, 0)).is_better_than(&never));
        let preferred = Vote { standing: Standing::Preferred, ..vote(1, 4, (4, 5)) };
        assert!(preferred.is_better_than(&vote(2, 4, (4, 5))));
        assert!(vote(2, 4, (4, 6)).is_better_than(&preferred));
    }
}
