//! Compaction: forgetting the history below a revision, a little at a time.
//!
//! After a compaction at R, reads and watches below R are refused at once. Versions that only they could see are then removed
//! over the next steps: each version that another one superseded at or before R, and each tombstone below R. The changes of R
//! itself stay until the next compaction, so that a watch can still start there (AP-02).
//!
//! A version becomes garbage through the change that superseded it. So the removal walks the changes between the last
//! compaction and this one, and for each forgets the version before it: the work is proportional to what was written, not to
//! what is stored, and each step does a bounded part of it ([`crate::Rules::changes_per_command`]). How far it is belongs to the state: all
//! members forget in the same steps.

use std::ops::Bound;

use crate::{KvError, View, store::Revision, version::Version};

impl View {
    /// Makes `revision` the oldest readable one.
    ///
    /// Errors: [`KvError::Compacted`] at or below the present compact revision, [`KvError::FutureRevision`] above the present.
    pub(crate) fn compact(&mut self, revision: i64) -> Result<(), KvError> {
        if revision <= self.compact_revision {
            return Err(KvError::Compacted { compact_revision: self.compact_revision });
        }
        if revision > self.revision {
            return Err(KvError::FutureRevision { revision: self.revision });
        }
        // From the last compaction's own revision on: what happened in it was spared so far. An older walk that is still
        // under way goes on, now to the new end.
        let start = Revision::first(self.compact_revision);
        self.cleaning = Some(self.cleaning.map_or(start, |under_way| under_way.min(start)));
        self.compact_revision = revision;
        Ok(())
    }

    /// Whether compacted history is left to remove.
    pub(crate) fn is_cleaning(&self) -> bool {
        self.cleaning.is_some()
    }

    /// Walks some changes and forgets what they superseded.
    /// Gives the number of changes that it looked at.
    pub(crate) fn clean(&mut self, changes: usize) -> usize {
        let Some(start) = self.cleaning else { return 0 };
        let end = Revision::last(self.compact_revision);
        let walked: Vec<Version> =
            self.history.range((Bound::Included(start), Bound::Included(end))).take(changes).cloned().collect();
        for version in &walked {
            self.clean_change(version);
        }
        self.cleaning = match walked.last() {
            Some(last) if walked.len() == changes => {
                let Revision { main, sub } = last.revision();
                Some(Revision { main, sub: sub + 1 })
            }
            _ => None,
        };
        walked.len()
    }

    /// Forgets the version before a change, and the change itself if it is an old tombstone.
    fn clean_change(&mut self, change: &Version) {
        let place = change.revision();
        let key = change.key();
        let before = (place.sub > 0).then(|| Revision { main: place.main, sub: place.sub - 1 });
        let before = before.unwrap_or(Revision::last(place.main - 1));
        if let Some(superseded) = self.past_version(key, before)
            && superseded.mod_revision() < self.compact_revision
        {
            let superseded = superseded.revision();
            self.forget(key, superseded);
        }
        if change.is_tombstone() && place.main < self.compact_revision {
            self.forget(key, place);
        }
    }

    /// Whether a version belongs to the history from the compact revision on, removed yet or not.
    pub(crate) fn is_retained(&self, version: &Version) -> bool {
        let place = version.revision();
        if place.main >= self.compact_revision {
            return true;
        }
        if version.is_tombstone() {
            return false;
        }
        let key = version.key();
        if self.live_version(key).is_some_and(|live| live.revision() == place) {
            return true;
        }
        let next_place = Revision { main: place.main, sub: place.sub + 1 };
        let next = self.past.first_from((key, next_place)).filter(|found| found.key() == key);
        let next = next.or_else(|| self.live_version(key));
        next.is_some_and(|next| next.mod_revision() > self.compact_revision)
    }
}
