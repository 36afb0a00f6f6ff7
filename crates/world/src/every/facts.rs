//! The facts of a member that the judge of the exhaustive search needs: [`Facts`].

use super::local::Member;
use hustings_core::{Lsn, Membership, Protocol, Role, Term};
use hustings_properties::safety::{Logged, Placed, value_of};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The facts of a member that the judge needs, computed once.
pub struct Facts {
    pub term: Term,
    pub is_elected: bool,
    pub leads: bool,
    pub commit: u64,
    /// The index that it applied last, and a digest of its state; zeros at a witness, which has none, and while it is down.
    pub applied: (u64, u64),
    /// Entries on disk, by index (nothing is compacted here).
    pub log: Vec<(Lsn, Placed)>,
    pub membership: Arc<Membership>,
    pub is_up: bool,
    pub is_witness: bool,
}

impl Facts {
    pub fn of<P: Protocol>(member: &Member<P>) -> Facts {
        let mut log = Vec::new();
        let mut last = Lsn::ZERO;
        for entry in member.durable.entries.values() {
            let before = (last.index + 1 == entry.lsn.index).then_some(last.term);
            log.push((entry.lsn, Placed { value: value_of(entry), before }));
            last = entry.lsn;
        }
        match &member.replica {
            Some(replica) => {
                let status = replica.status();
                let state = {
                    let mut hasher = DefaultHasher::new();
                    replica.machine().hash(&mut hasher);
                    hasher.finish()
                };
                Facts {
                    term: status.term,
                    is_elected: matches!(status.role, Role::Leader | Role::Synchronizing),
                    leads: status.role == Role::Leader,
                    commit: status.commit,
                    applied: if replica.is_witness() { (0, 0) } else { (replica.applied().index, state) },
                    log,
                    membership: status.membership,
                    is_up: true,
                    is_witness: replica.is_witness(),
                }
            }
            None => Facts {
                term: member.durable.promise.term,
                is_elected: false,
                leads: false,
                commit: 0,
                applied: (0, 0),
                log,
                membership: Arc::default(),
                is_up: false,
                is_witness: false,
            },
        }
    }

    /// The entry at an index on disk.
    #[inline]
    pub fn at(&self, index: u64) -> Option<(Lsn, Placed)> {
        // Where nothing is missing below, an index is a position.
        let guess = self.log.get((index as usize).wrapping_sub(1));
        let is_it = |(lsn, _): &&(Lsn, Placed)| lsn.index == index;
        guess.filter(is_it).or_else(|| self.log.iter().find(is_it)).copied()
    }
}

impl Logged for Facts {
    fn covered(&self) -> u64 {
        0
    }

    fn place(&self, index: u64) -> Option<Lsn> {
        self.at(index).map(|(lsn, _)| lsn)
    }

    fn value(&self, place: Lsn) -> Option<u64> {
        self.at(place.index).filter(|(lsn, _)| *lsn == place).map(|(_, placed)| placed.value)
    }

    fn end(&self) -> Lsn {
        self.log.last().map_or(Lsn::ZERO, |(lsn, _)| *lsn)
    }
}
