//! The watchers of a world's load: each hears every change, in order and without a gap, wherever it is told.

use super::Load;
use crate::digested::Service;
use crate::world::World;
use hustings_core::Protocol;
use hustings_kv::KeyRange;
use hustings_properties::Violation;
use std::collections::BTreeMap;

/// Events that a watcher takes at a time.
const WATCH_LIMIT: usize = 256;

/// A stream of all changes.
#[derive(Clone, Debug)]
pub(super) struct Watcher {
    pub(super) at: usize,
    /// The next revision that it has not seen.
    pub(super) next: i64,
}

impl<P: Protocol, S: Service> World<P, S> {
    /// The member applied something: its watchers hear what changed. Revisions leave no gap: each has its events.
    pub(crate) fn feed_watchers(&mut self, at: usize) {
        for watcher in 0..self.load.watchers.len() {
            if self.load.watchers[watcher].at != at {
                // One whose member is gone goes on at another.
                if self.machines[self.load.watchers[watcher].at].is_up() {
                    continue;
                }
                self.load.watchers[watcher].at = at;
            }
            let Some(replica) = &self.machines[at].replica else { return };
            let view = replica.machine().inner().freeze();
            let view = S::look(&view);
            let mut next = self.load.watchers[watcher].next;
            let mut has_missed_history = false;
            while next <= view.revision() {
                let mut events = match view.events_since(next, &KeyRange::all(), WATCH_LIMIT) {
                    Ok(events) => events,
                    Err(mut compacted) => {
                        compacted.compact_revision += i64::from(self.machines[at].plants.compacts_beyond);
                        let (told, asked) = (compacted.compact_revision, self.load.compacted_max);
                        if told <= asked {
                            next = told;
                            has_missed_history = true;
                            continue;
                        }
                        let what = format!(
                            "a watcher from revision {next} is told that all below {told} was compacted, and nobody asked for more than {asked}"
                        );
                        self.verdict = Err(Violation::of("watch-without-gap", what));
                        return;
                    }
                };
                if std::mem::take(&mut has_missed_history) && self.machines[at].plants.drops_watch_event {
                    events.events.retain(|event| event.kv.mod_revision != next);
                }
                let verdict = self.load.watch(next, &events, &mut self.counts.watched);
                if let Err(violation) = verdict {
                    self.verdict = Err(violation);
                    return;
                }
                next = events.next_revision;
            }
            self.load.watchers[watcher].next = next;
        }
    }
}

impl Load {
    fn watch(&mut self, from: i64, events: &hustings_kv::Events, watched: &mut u64) -> Result<(), Violation> {
        use std::hash::{DefaultHasher, Hash, Hasher};
        // Revision 1 is the empty store.
        let mut revision = from.max(2) - 1;
        let mut by_revision: BTreeMap<i64, DefaultHasher> = BTreeMap::new();
        for event in &events.events {
            let at = event.kv.mod_revision;
            if at != revision && at != revision + 1 {
                let what = format!("a watcher that saw everything through revision {revision} is told of {at} next");
                return Err(Violation::of("watch-without-gap", what));
            }
            revision = at;
            event.hash(by_revision.entry(at).or_default());
            *watched += 1;
        }
        if revision + 1 < events.next_revision {
            let what = format!("a watcher saw revision {revision} last and is sent on to {}", events.next_revision);
            return Err(Violation::of("watch-without-gap", what));
        }
        for (revision, hasher) in by_revision {
            let digest = hasher.finish();
            if *self.events.entry(revision).or_insert(digest) != digest {
                let what = format!("two watchers are told different events of revision {revision}");
                return Err(Violation::of("watch-without-gap", what));
            }
        }
        Ok(())
    }
}
