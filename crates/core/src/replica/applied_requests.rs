//! At most once: [`AppliedRequests`] recognises second copies of a proposal when they are applied.
//!
//! A forward that was lost with its leader may be sent again, because whichever copy is applied second changes nothing.
//! Part of every snapshot: a node that forgot which proposals it has applied could apply one twice.
//!
//! A proposal that was lost leaves a gap, above which every later number has to be remembered. When its origin waits for it no
//! longer, it says so in the log ([`settled`]) and the gap closes on all members at the same entry.
//! Source: Raft dissertation §6.3, with origins instead of registered clients.

use crate::{NodeId, Origin};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// The farthest apart that two proposals of one origin may be applied in the wrong order. Below this window nothing can
/// be told apart any more, and a proposal that old ends unknown instead of being applied perhaps twice.
const WINDOW: usize = 65_536;

/// The most that [`AppliedRequests::to_parts`] gives of one.
pub(super) const ABOVE_MAX: usize = WINDOW + 1;

/// After this many numbers above a gap its origin looks whether it can be closed.
const GAP: usize = 256;

/// The payload of a blank by which an origin says that it waits for nothing up to here any more.
pub fn settled(through: u64) -> Bytes {
    Bytes::copy_from_slice(&through.to_le_bytes())
}

/// Last number up to which such a blank's origin waits for nothing; `None` for every other blank.
fn settled_through(payload: &[u8]) -> Option<u64> {
    payload.try_into().ok().map(u64::from_le_bytes)
}

/// The proposals of each node's latest life that have been applied.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct AppliedRequests {
    by_node: BTreeMap<NodeId, Life>,
}

/// Requests of one life of a node that were applied.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Life {
    incarnation: u64,
    /// All up to here are applied, or too old to be.
    through: u64,
    /// Numbers above `through` that are applied.
    above: BTreeSet<u64>,
}

impl AppliedRequests {
    /// A table in which nothing was applied yet.
    pub fn new() -> AppliedRequests {
        AppliedRequests::default()
    }

    /// Whether this is the first copy; if so it is remembered. Entries of nobody are always first.
    pub fn admit(&mut self, origin: Origin) -> bool {
        if origin == Origin::NOBODY {
            return true;
        }
        let life = self.by_node.entry(origin.node).or_default();
        if origin.incarnation < life.incarnation {
            return false;
        }
        if origin.incarnation > life.incarnation {
            *life = Life { incarnation: origin.incarnation, ..Life::default() };
        }
        life.admit(origin.sequence)
    }

    /// Whether a proposal is applied (or too old to be told).
    pub fn contains(&self, origin: Origin) -> bool {
        self.by_node.get(&origin.node).is_some_and(|life| {
            origin.incarnation < life.incarnation
                || (origin.incarnation == life.incarnation && life.contains(origin.sequence))
        })
    }

    /// Whether a multiple of [`GAP`] numbers is remembered above a gap in this life of a node: true once per that many.
    pub fn has_gap(&self, node: NodeId, incarnation: u64) -> bool {
        let life = self.by_node.get(&node).filter(|life| life.incarnation == incarnation);
        life.is_some_and(|life| !life.above.is_empty() && life.above.len().is_multiple_of(GAP))
    }

    /// Last number up to which all of this life of a node are applied, or too old to be.
    pub fn through(&self, node: NodeId, incarnation: u64) -> u64 {
        let life = self.by_node.get(&node).filter(|life| life.incarnation == incarnation);
        life.map_or(0, |life| life.through)
    }

    /// Applies a blank. If its origin says in it that it waits for nothing up to a number, what comes of that still is ignored
    /// like a second copy. Total: what does not read so, or is not of the latest life, changes nothing.
    pub fn on_blank(&mut self, origin: Origin, payload: &[u8]) {
        let life = self.by_node.get_mut(&origin.node).filter(|life| life.incarnation == origin.incarnation);
        if let (Some(life), Some(through)) = (life, settled_through(payload)) {
            life.settle(through);
        }
    }

    /// The table as numbers, for snapshots: (node, incarnation, through, above).
    pub fn to_parts(&self) -> impl Iterator<Item = (u64, u64, u64, Vec<u64>)> + '_ {
        self.by_node
            .iter()
            .map(|(node, life)| (node.0, life.incarnation, life.through, life.above.iter().copied().collect()))
    }

    /// The table from its numbers, as a snapshot has them.
    pub fn from_parts(parts: impl IntoIterator<Item = (u64, u64, u64, Vec<u64>)>) -> AppliedRequests {
        let life = |(node, incarnation, through, above): (u64, u64, u64, Vec<u64>)| {
            (NodeId(node), Life { incarnation, through, above: above.into_iter().collect() })
        };
        AppliedRequests { by_node: parts.into_iter().map(life).collect() }
    }
}

impl Life {
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
        self.close_up();
        true
    }

    fn settle(&mut self, through: u64) {
        self.through = self.through.max(through);
        self.above.retain(|sequence| *sequence > self.through);
        self.close_up();
    }

    /// Moves `through` up over numbers that follow without a gap.
    fn close_up(&mut self) {
        while let Some(sequence) = self.above.first().copied().filter(|sequence| self.is_next(*sequence)) {
            self.above.pop_first();
            self.through = sequence;
        }
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
        let mut applied = AppliedRequests::new();
        for sequence in [1, 3, 2, 5] {
            assert!(applied.admit(origin(1, sequence)));
        }
        for sequence in [1, 2, 3, 5] {
            assert!(!applied.admit(origin(1, sequence)));
        }
        assert!(applied.admit(origin(1, 4)));
        assert_eq!(applied.to_parts().next(), Some((1, 1, 5, vec![])));
    }

    #[test]
    fn a_gap_closes_when_its_origin_waits_no_longer() {
        let mut applied = AppliedRequests::new();
        for sequence in [1, 3, 4, 6] {
            assert!(applied.admit(origin(1, sequence)));
        }
        for (incarnation, payload) in [(1, &[][..]), (1, &[9; 7]), (2, &settled(4)), (0, &settled(4))] {
            applied.on_blank(origin(incarnation, 0), payload);
            assert_eq!(applied.to_parts().next(), Some((1, 1, 1, vec![3, 4, 6])), "nothing is said by that");
        }
        applied.on_blank(origin(1, 0), &settled(2));
        assert_eq!(applied.to_parts().next(), Some((1, 1, 4, vec![6])));
        assert!(!applied.admit(origin(1, 2)), "nobody waits for it");
        assert!(applied.admit(origin(1, 5)));
        applied.on_blank(origin(1, 0), &settled(u64::MAX));
        assert_eq!(applied.to_parts().next(), Some((1, 1, u64::MAX, vec![])), "no number is too large");
    }

    #[test]
    fn a_copy_from_an_earlier_life_is_recognised() {
        let mut applied = AppliedRequests::new();
        assert!(applied.admit(origin(1, 7)));
        assert!(applied.admit(origin(2, 1)));
        assert!(!applied.admit(origin(1, 8)));
    }

    #[test]
    fn what_falls_below_the_window_counts_as_a_copy() {
        let mut applied = AppliedRequests::new();
        for sequence in 2..=WINDOW as u64 + 2 {
            assert!(applied.admit(origin(1, sequence)));
        }
        assert!(!applied.admit(origin(1, 1)));
    }

    #[test]
    fn the_largest_numbers_are_numbers_like_others() {
        // Goal: a panic at apply cannot be restarted away. Method: a full window that ends at the last number.
        let mut applied = AppliedRequests::new();
        for sequence in u64::MAX - WINDOW as u64..=u64::MAX {
            assert!(applied.admit(origin(1, sequence)));
        }
        assert!(!applied.admit(origin(1, u64::MAX)) && !applied.admit(origin(1, 1)));
        assert_eq!(applied.to_parts().next(), Some((1, 1, u64::MAX, vec![])));
    }

    #[test]
    fn sessions_survive_a_snapshot() {
        let mut applied = AppliedRequests::new();
        for sequence in [1, 2, 4, 9] {
            applied.admit(origin(3, sequence));
        }
        let parts: Vec<_> = applied.to_parts().collect();
        assert_eq!(AppliedRequests::from_parts(parts), applied);
    }
}
