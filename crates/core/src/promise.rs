//! Election state that must survive a crash: [`Promise`].

use crate::{NodeId, Term};

/// A durable promise: help nobody of an older term, and in this one nobody but `vote`.
///
/// One record, one checksum, one sync: a term without its vote would be the classic amnesia (EL-01, EL-02).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Promise {
    /// The highest term this node has promised to respect.
    pub term: Term,
    /// The node that got this node's vote in that term; `None` if none was given yet.
    pub vote: Option<NodeId>,
}

impl Promise {
    /// A promise to respect `term` that has not been given to anyone yet.
    pub const fn without_vote(term: Term) -> Promise {
        Promise { term, vote: None }
    }

    /// A vote for `candidate` in `term`.
    pub const fn vote(term: Term, candidate: NodeId) -> Promise {
        Promise { term, vote: Some(candidate) }
    }

    /// Whether `next` may replace `self`: terms only grow, and a vote, once given, stays for its term.
    pub fn may_become(&self, next: &Promise) -> bool {
        next.term > self.term || (next.term == self.term && (self.vote.is_none() || self.vote == next.vote))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vote_is_kept_within_its_term_and_cleared_only_by_a_later_one() {
        let voted = Promise::vote(Term(3), NodeId(1));
        assert!(voted.may_become(&voted));
        assert!(!voted.may_become(&Promise::vote(Term(3), NodeId(2))));
        assert!(!voted.may_become(&Promise::without_vote(Term(3))));
        assert!(!voted.may_become(&Promise::vote(Term(2), NodeId(1))));
        assert!(voted.may_become(&Promise::without_vote(Term(4))));
    }
}
