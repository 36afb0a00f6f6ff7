//! The queue as one that stands in it follows it: [`View`].

use super::{Queue, Shared};
use crate::clock::boot_micros;
use crate::stores::etcd::keys::standing;
use crate::stores::etcd::watches::Watching;
use crate::stores::written::{note_of, wish_for};
use bytes::Bytes;
use hustings_api::mvccpb::{KeyValue, event::EventType};
use hustings_lease::candidate::HEIR_TIME;
use hustings_lease::store::Standing;
use hustings_lease::{Note, Observation, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The queue as a watcher knows it.
pub(super) struct View {
    own: Bytes,
    token: Token,
    /// Entries before this candidate's.
    ahead: BTreeSet<Bytes>,
    /// All entries, with the revisions that created them.
    entries: BTreeMap<Bytes, (i64, Standing)>,
    note: Option<Note>,
    /// Moment at which the note was left, where that was seen: one that was there before is of an earlier leader than the present one.
    left_at_micros: Option<u64>,
}

/// Follows the election until the stream breaks.
pub(super) async fn follow(shared: Arc<Shared>, watching: Watching, mut view: View) {
    if watch(&shared, watching, &mut view).await.is_none() {
        shared.session.lease.suspect();
        tokio::time::sleep(Duration::from_millis(10)).await;
        shared.sitter.line.saw(Observation::Interrupted);
    }
}

async fn watch(shared: &Shared, mut watching: Watching, view: &mut View) -> Option<()> {
    loop {
        for event in watching.next().await? {
            let is_deleted = event.r#type() == EventType::Delete;
            let Some(kv) = event.kv else { continue };
            if kv.key == shared.names.note {
                view.note = note_of(&kv.value);
                view.left_at_micros = Some(boot_micros());
                shared.state().note.clone_from(&view.note);
            } else if kv.key == shared.names.wish && !is_deleted {
                view.on_wish(shared, &kv);
            } else if kv.key == shared.names.generation {
                // A look tells whether this candidate's entry is of the new one.
                shared.sitter.line.saw(Observation::Interrupted);
            } else if shared.names.is_entry(&kv.key) {
                view.on_entry(shared, kv, is_deleted);
            }
        }
    }
}

impl View {
    /// The view of the candidate at this place of a queue, by this token.
    pub(super) fn of(queue: Queue, place: usize, token: Token) -> View {
        View {
            own: queue.entries[place].key.clone(),
            token,
            ahead: queue.entries[..place].iter().map(|entry| entry.key.clone()).collect(),
            entries: queue
                .entries
                .iter()
                .map(|entry| (entry.key.clone(), (entry.create_revision, standing(entry))))
                .collect(),
            note: queue.note,
            left_at_micros: None,
        }
    }

    /// Whether nobody stands before it.
    pub(super) fn is_first(&self) -> bool {
        self.ahead.is_empty()
    }

    /// Hears an operator's wish to the leader with this token.
    fn on_wish(&self, shared: &Shared, kv: &KeyValue) {
        if self.is_first()
            && let Some(input) = wish_for(self.token, &kv.value)
        {
            shared.sitter.line.input(input);
        }
    }

    fn on_entry(&mut self, shared: &Shared, kv: KeyValue, is_deleted: bool) {
        let line = &shared.sitter.line;
        if !is_deleted {
            let standing = standing(&kv);
            self.entries.insert(kv.key, (kv.create_revision, standing));
        } else if kv.key == self.own {
            self.entries.remove(&kv.key);
            line.saw(Observation::EntryGone(self.token));
        } else {
            self.entries.remove(&kv.key);
            let was_waiting = !self.is_first();
            self.ahead.remove(&kv.key);
            if was_waiting && self.is_first() {
                // Those before this one may have let the heir pass meanwhile; after that time it is a later leader that has gone.
                let is_fresh = |at: u64| Duration::from_micros(boot_micros().saturating_sub(at)) <= HEIR_TIME;
                let note = self.note.clone().filter(|_| self.left_at_micros.is_some_and(is_fresh));
                line.saw(Observation::Turn { token: self.token, note, is_clear: false });
            }
        }
        // Who waits knows that it is not alone, and needs no more: of a thousand that wait, each would look at all whenever one comes.
        if self.is_first() {
            line.saw(self.roster());
        }
    }

    /// All that stand, in the order in which they came.
    pub(super) fn roster(&self) -> Observation {
        let mut entries: Vec<_> = self.entries.values().collect();
        entries.sort_by_key(|(created, _)| *created);
        Observation::Roster(entries.into_iter().map(|(_, standing)| standing.clone()).collect())
    }
}
