//! The number of a reign: [`Term`].

use std::fmt;

/// The number of a reign; it only grows, and it names at most one leader.
///
/// Raft's term, ZAB's epoch, BlazingMQ's elector term, GMT-2000's ballot and Paxos' ballot are all this word. Where a
/// protocol's own number can repeat at two nodes (Paxos), the term packs counter and node: [`Term::packed`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Term(pub u64);

/// The most by which a single message may raise a term. A peer that asks for more is broken or hostile ("term jump" in
/// `docs/protocols/rules/failures.md`): honouring it would spend the number space, and a term that cannot grow any more
/// can never elect again.
const LEAP_MAX: u64 = 1 << 40;

/// Bits of a packed term that name the node.
const NODE_BITS: u32 = 16;

impl Term {
    /// The term before any election.
    pub const ZERO: Term = Term(0);

    /// The term after this one.
    ///
    /// # Panics
    /// When the number space is spent; [`Term::may_follow`] keeps messages from bringing that about.
    #[must_use]
    pub fn next(self) -> Term {
        Term(self.0.checked_add(1).expect("terms are bounded by may_follow, far below 2^64"))
    }

    /// Whether a message may bring a node from term `self` to `other`: lower terms always, higher ones within a sane
    /// leap.
    pub fn may_follow(self, other: Term) -> bool {
        other.0.saturating_sub(self.0) <= LEAP_MAX && other.0 < u64::MAX - LEAP_MAX
    }

    /// A ballot as a term: ordered by counter, then node. `node` must be below 65,536 and `counter` below 2^48.
    ///
    /// # Panics
    /// When either is out of range.
    pub fn packed(counter: u64, node: u64) -> Term {
        assert!(node < 1 << NODE_BITS, "a packed term has {NODE_BITS} bits for the node, and {node} needs more");
        assert!(counter < 1 << (64 - NODE_BITS), "a packed term has 48 bits for the counter");
        Term(counter << NODE_BITS | node)
    }

    /// The counter of a packed term.
    pub fn counter(self) -> u64 {
        self.0 >> NODE_BITS
    }

    /// The node of a packed term.
    pub fn node(self) -> u64 {
        self.0 & ((1 << NODE_BITS) - 1)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_term_orders_by_counter_then_node() {
        assert!(Term::packed(2, 1) > Term::packed(1, 65_535));
        assert!(Term::packed(2, 3) > Term::packed(2, 2));
        assert_eq!((Term::packed(7, 3).counter(), Term::packed(7, 3).node()), (7, 3));
    }

    #[test]
    fn an_absurd_leap_is_refused_and_a_sane_one_is_not() {
        assert!(Term(5).may_follow(Term(6)));
        assert!(Term(5).may_follow(Term(2)));
        assert!(!Term(5).may_follow(Term(u64::MAX)));
        assert!(!Term(5).may_follow(Term((1 << 63) - 1)));
    }
}
