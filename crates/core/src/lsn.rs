//! Places in history: [`Lsn`].

use crate::Term;
use std::fmt;

/// A place in history: the term that wrote an entry and the entry's index in the one global, contiguous log.
///
/// `Ord` is the freshness rule of the protocols that have one ("at least as up to date", Raft §5.4.1; ZAB's zxid order;
/// BlazingMQ's leader sequence number): term first, then index. Paxos has no such rule and never compares.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn {
    /// The reign that wrote the entry.
    pub term: Term,
    /// Position in the log, from 1; 0 is "before the first entry".
    pub index: u64,
}

impl Lsn {
    /// The place before the first entry.
    pub const ZERO: Lsn = Lsn { term: Term::ZERO, index: 0 };

    /// The place with this term and index.
    pub const fn new(term: u64, index: u64) -> Lsn {
        Lsn { term: Term(term), index }
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.term, self.index)
    }
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.term, self.index)
    }
}
