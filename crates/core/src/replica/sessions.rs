//! At most once: [`Sessions`] recognises second copies of a proposal when they are applied.
//!
//! A forward that was lost with its leader may be sent again, because whichever copy is applied second changes nothing.
//! Part of every snapshot: a node that forgot which proposals it has applied could apply one twice.
//! Source: Raft dissertation §6.3, with origins instead of registered clients.

use crate::{NodeId, Origin};
use std::collections::{BTreeMap, BTreeSet};

/// How far apart two proposals of one origin may be applied in the wrong order. Below this window nothing can be told
/// apart any more, and a proposal that old ends unknown instead of being applied perhaps twice.
const WINDOW: usize = 65_536;

/// Which proposals of each node's latest life have been applied.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Sessions {
    by_node: BTreeMap<NodeId, Session>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Session {
    incarnation: u64,
    /// All up to here are applied, or too old to be.
    through: u64,
    /// Applied ones above.
    above: BTreeSet<u64>,
}

impl Sessions {
    /// Nothing was applied yet.
    pub fn new() -> Sessions {
        Sessions::default()
    }

    /// Whether this is the first copy; if so it is remembered. Entries of nobody are always first.
    pub fn admit(&mut self, origin: Origin) -> bool {
        if origin == Origin::NOBODY {
            return true;
        }
        let session = self.by_node.entry(origin.node).or_default();
        if origin.incarnation < session.incarnation {
            return false;
        }
        if origin.incarnation > session.incarnation {
            *session = Session { incarnation: origin.incarnation, ..Session::default() };
        }
        session.admit(origin.sequence)
    }

    /// Whether a proposal is applied (or too old to be told).
    pub fn contains(&self, origin: Origin) -> bool {
        self.by_node.get(&origin.node).is_some_and(|session| {
            origin.incarnation < session.incarnation
                || (origin.incarnation == session.incarnation && session.contains(origin.sequence))
        })
    }

    /// The sessions as numbers, for snapshots: (node, incarnation, through, above).
    pub fn to_parts(&self) -> impl Iterator<Item = (u64, u64, u64, Vec<u64>)> + '_ {
        self.by_node.iter().map(|(node, session)| {
            (node.0, session.incarnation, session.through, session.above.iter().copied().collect())
        })
    }

    /// The sessions from numbers.
    pub fn from_parts(parts: impl IntoIterator<Item = (u64, u64, u64, Vec<u64>)>) -> Sessions {
        let session = |(node, incarnation, through, above): (u64, u64, u64, Vec<u64>)| {
            (NodeId(node), Session { incarnation, through, above: above.into_iter().collect() })
        };
        Sessions { by_node: parts.into_iter().map(session).collect() }
    }
}

impl Session {
    fn contains(&self, sequence: u64) -> bool {
        sequence <= self.through || self.above.contains(&sequence)
    }

    fn admit(&mut self, sequence: u64) -> bool {
        if self.contains(sequence) {
            return false;
        }
        if self.is_next(sequence) && self.above.is_empty() {
            self.through = sequence;
            return true;
        }
        self.above.insert(sequence);
        if self.above.len() > WINDOW {
            self.through = self.above.pop_first().expect("the window is not empty");
        }
        while let Some(sequence) = self.above.first().copied().filter(|sequence| self.is_next(*sequence)) {
            self.above.pop_first();
            self.through = sequence;
        }
        true
    }

    /// Total, since what the log holds is applied again at every start: there is nothing behind the last number.
    fn is_next(&self, sequence: u64) -> bool {
        self.through.checked_add(1) == Some(sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(incarnation: u64, sequence: u64) -> Origin {
        Origin { node: NodeId(1), incarnation, sequence }
    }

    #[test]
    fn a_second_copy_is_recognised_in_any_order() {
        let mut sessions = Sessions::new();
        for sequence in [1, 3, 2, 5] {
            assert!(sessions.admit(origin(1, sequence)));
        }
        for sequence in [1, 2, 3, 5] {
            assert!(!sessions.admit(origin(1, sequence)));
        }
        assert!(sessions.admit(origin(1, 4)));
        assert_eq!(sessions.to_parts().next(), Some((1, 1, 5, vec![])));
    }

    #[test]
    fn a_copy_from_an_earlier_life_is_recognised() {
        let mut sessions = Sessions::new();
        assert!(sessions.admit(origin(1, 7)));
        assert!(sessions.admit(origin(2, 1)));
        assert!(!sessions.admit(origin(1, 8)));
    }

    #[test]
    fn what_falls_below_the_window_counts_as_a_copy() {
        let mut sessions = Sessions::new();
        for sequence in 2..=WINDOW as u64 + 2 {
            assert!(sessions.admit(origin(1, sequence)));
        }
        assert!(!sessions.admit(origin(1, 1)));
    }

    #[test]
    fn the_largest_numbers_are_numbers_like_others() {
        // Goal: H1, a panic at apply cannot be restarted away. Method: a full window that ends at the last number.
        let mut sessions = Sessions::new();
        for sequence in u64::MAX - WINDOW as u64..=u64::MAX {
            assert!(sessions.admit(origin(1, sequence)));
        }
        assert!(!sessions.admit(origin(1, u64::MAX)) && !sessions.admit(origin(1, 1)));
        assert_eq!(sessions.to_parts().next(), Some((1, 1, u64::MAX, vec![])));
    }

    #[test]
    fn sessions_survive_a_snapshot() {
        let mut sessions = Sessions::new();
        for sequence in [1, 2, 4, 9] {
            sessions.admit(origin(3, sequence));
        }
        let parts: Vec<_> = sessions.to_parts().collect();
        assert_eq!(Sessions::from_parts(parts), sessions);
    }
}
