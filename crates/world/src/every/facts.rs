//! The facts of a member that the judge of the exhaustive search needs: [`Facts`].

use super::local::Member;
use hustings_core::{Entry, Lsn, Membership, Protocol, Role, Slots};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The facts of a member that the judge needs, computed once.
pub struct Facts {
    pub term: u64,
    pub is_elected: bool,
    pub leads: bool,
    pub commit: u64,
    pub applied: (u64, u64),
    /// Entries on disk, with digests, by index from 1 (nothing is compacted here).
    pub log: Vec<(Lsn, u64)>,
    pub membership: Arc<Membership>,
    pub is_up: bool,
}

impl Facts {
    pub fn of<P: Protocol>(member: &Member<P>) -> Facts {
        let log = member.durable.entries.values().map(|entry| {
            let mut hasher = DefaultHasher::new();
            let Entry { lsn, kind, origin, stamp, payload } = entry;
            (lsn.index, kind, origin, stamp, payload).hash(&mut hasher);
            (*lsn, hasher.finish())
        });
        let log: Vec<_> = log.collect();
        match &member.replica {
            Some(replica) => {
                let status = replica.status();
                let state = {
                    let mut hasher = DefaultHasher::new();
                    replica.machine().hash(&mut hasher);
                    hasher.finish()
                };
                Facts {
                    term: status.term.0,
                    is_elected: matches!(status.role, Role::Leader | Role::Synchronizing),
                    leads: status.role == Role::Leader,
                    commit: status.commit,
                    applied: (replica.applied().index, state),
                    log,
                    membership: status.membership,
                    is_up: true,
                }
            }
            None => Facts {
                term: member.durable.promise.term.0,
                is_elected: false,
                leads: false,
                commit: 0,
                applied: (0, 0),
                log,
                membership: Arc::default(),
                is_up: false,
            },
        }
    }

    /// The entry at an index on disk, with its digest.
    pub fn at(&self, index: u64) -> Option<(Lsn, u64)> {
        self.log.iter().find(|(lsn, _)| lsn.index == index).copied()
    }

    /// Whether it knows what was chosen, in any term.
    pub fn knows<P: Protocol>(&self, chosen: (Lsn, u64)) -> bool {
        let is_same = self.at(chosen.0.index).is_some_and(|(_, its)| its == chosen.1);
        self.holds::<P>(chosen) || (P::SLOTS == Slots::Independent && is_same)
    }

    /// Whether it holds what was chosen: the place, or its value in a later term where slots are filled by themselves.
    pub fn holds<P: Protocol>(&self, (lsn, value): (Lsn, u64)) -> bool {
        self.at(lsn.index).is_some_and(|(held, its)| match P::SLOTS {
            Slots::InOrder => held == lsn,
            Slots::Independent => held.term >= lsn.term && its == value,
        })
    }
}
