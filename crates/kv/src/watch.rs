//! The reads of a watch hub: the events between two revisions.
//!
//! A hub keeps, per watch, the next revision to deliver, and reads "from there to the present" out of frozen views. Nothing
//! here is registered anywhere, so nothing is lost when a watcher is slow: it reads on where it stopped, or learns that the
//! history it needs has been compacted.
//!
//! Boundary values, as in etcd 3.5 (failures AP-03 and AP-06): start 0 means "from the next revision" ([`View::watch_start`]),
//! a start in the future delivers nothing below itself, a negative start asks for all history and works until the first
//! compaction. A watch may start at the compact revision itself: everything that happened in that revision is still there,
//! tombstones included (AP-02; etcd before 3.5.22 lost those).
//!
//! Read next: [`crate::compact`], which decides what is still there.

use std::ops::Bound;

use crate::{KeyValue, View, range::KeyRange, store::Revision, version::Version};

/// Changes of history that a call looks through, per event asked for, before it answers with what it has.
const EXAMINED_PER_EVENT: usize = 16;

/// The least history that a call may look through.
const EXAMINED_MIN: usize = 1024;

/// The kind of a change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EventKind {
    /// The key was written.
    Put,
    /// It was deleted, or its lease ended.
    Delete,
}

/// One change of one key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Event {
    /// Kind of the change.
    pub kind: EventKind,
    /// The key as written; of a deletion only the key and the revision are set.
    pub kv: KeyValue,
}

impl Event {
    fn of(version: &Version) -> Event {
        let kind = if version.is_tombstone() { EventKind::Delete } else { EventKind::Put };
        Event { kind, kv: version.kv() }
    }
}

/// A part of history, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Events {
    /// The events, by revision and by their order within it; all events of a revision or none.
    pub events: Vec<Event>,
    /// Revision from which to read on: everything below was looked at. Above the view's revision when nothing is left.
    pub next_revision: i64,
}

/// A part of history, in order, as it was found: values may be on file.
#[derive(Clone, Debug)]
pub struct UnreadEvents {
    versions: Vec<Version>,
    next_revision: i64,
}

impl UnreadEvents {
    /// Revision from which to read on: see [`Events::next_revision`].
    pub fn next_revision(&self) -> i64 {
        self.next_revision
    }

    /// Whether reading the events asks the disk, or with `view` what was there before each of them.
    pub fn asks_disk(&self, view: Option<&View>) -> bool {
        let asks_before =
            |version: &Version| view.is_some_and(|view| view.asks_disk_before(version.key(), version.mod_revision()));
        self.versions.iter().any(|version| version.is_on_file() || asks_before(version))
    }

    /// The events one by one.
    pub fn each(self) -> impl Iterator<Item = UnreadEvent> {
        self.versions.into_iter().map(UnreadEvent)
    }

    /// Reads the values. May take long where it asks the disk: not for a task that others wait for.
    pub fn read(self) -> Events {
        Events { events: self.versions.iter().map(Event::of).collect(), next_revision: self.next_revision }
    }
}

/// One change of one key, as it was found.
#[derive(Clone, Debug)]
pub struct UnreadEvent(Version);

impl UnreadEvent {
    /// Key of the change.
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// The revision that wrote it.
    pub fn mod_revision(&self) -> i64 {
        self.0.mod_revision()
    }

    /// Whether reading it asks the disk.
    pub fn asks_disk(&self) -> bool {
        self.0.is_on_file()
    }

    /// Reads the values of the change, from the disk where they are large.
    pub fn read(&self) -> Event {
        Event::of(&self.0)
    }
}

/// The size of a part of history that is answered at a time; one revision is never split, so an answer can be larger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Portion {
    /// Number of events after which the portion ends.
    pub events: usize,
    /// Bytes of keys and values.
    pub bytes: usize,
}

impl Portion {
    fn is_full(self, events: usize, bytes: usize) -> bool {
        events >= self.events.max(1) || bytes >= self.bytes.max(1)
    }
}

/// The history asked for is gone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[error("the events before revision {compact_revision} have been compacted")]
pub struct Compacted {
    /// The oldest revision that a watch can start from.
    pub compact_revision: i64,
}

impl View {
    /// The revision at which a watch begins that asks for `start_revision`: 0 means the next revision.
    pub fn watch_start(&self, start_revision: i64) -> i64 {
        if start_revision == 0 { self.revision + 1 } else { start_revision }
    }

    /// The events of a range of keys from a revision on, about `limit` of them.
    ///
    /// The events of one revision are never split, so a large transaction can exceed the limit. The call looks through a
    /// bounded part of history; call again from `next_revision` until that is above [`View::revision`]. An answer can be
    /// without events and yet not the last. Costs O(log n + what is looked at); for a single key only its own versions are.
    ///
    /// Errors: [`Compacted`] when `from` lies below the compact revision.
    pub fn events_since(&self, from: i64, keys: &KeyRange, limit: usize) -> Result<Events, Compacted> {
        self.events_within(from, keys, Portion { events: limit, bytes: usize::MAX })
    }

    /// Reads as [`View::events_since`], about as much as the portion says.
    ///
    /// # Errors
    /// [`Compacted`] when `from` lies below the compact revision.
    pub fn events_within(&self, from: i64, keys: &KeyRange, portion: Portion) -> Result<Events, Compacted> {
        self.select_events(from, keys, portion).map(UnreadEvents::read)
    }

    /// Finds what [`View::events_within`] would give, and reads no value.
    ///
    /// # Errors
    /// [`Compacted`] when `from` lies below the compact revision.
    pub fn select_events(&self, from: i64, keys: &KeyRange, portion: Portion) -> Result<UnreadEvents, Compacted> {
        if from < self.compact_revision {
            return Err(Compacted { compact_revision: self.compact_revision });
        }
        if from > self.revision {
            return Ok(UnreadEvents { versions: Vec::new(), next_revision: from });
        }
        match keys.is_single() {
            true => Ok(self.events_of_key(from, keys.key(), portion)),
            false => Ok(self.events_of_range(from, keys, portion)),
        }
    }

    /// Whether [`View::prev_kv`] of an event asks the disk.
    pub fn asks_disk_before(&self, key: &[u8], revision: i64) -> bool {
        self.past_version(key, Revision::last(revision - 1)).is_some_and(Version::is_on_file)
    }

    /// The key as it was before an event; `None` when it did not exist, or when that is compacted. A key that is deleted and
    /// written in one transaction begins anew: that put has nothing before it, as in etcd.
    pub fn prev_kv(&self, event: &Event) -> Option<KeyValue> {
        if event.kind == EventKind::Put && event.kv.create_revision == event.kv.mod_revision {
            return None;
        }
        let before = event.kv.mod_revision - 1;
        if before < self.compact_revision {
            return None;
        }
        let version = self.past_version(&event.kv.key, Revision::last(before))?;
        (!version.is_tombstone()).then(|| version.kv())
    }

    fn events_of_range(&self, from: i64, keys: &KeyRange, portion: Portion) -> UnreadEvents {
        let examined_max = portion.events.saturating_mul(EXAMINED_PER_EVENT).max(EXAMINED_MIN);
        let mut versions = Vec::new();
        let mut bytes = 0;
        let mut last_main = from;
        let history = self.history.range((Bound::Included(Revision::first(from)), Bound::Unbounded));
        for (examined, version) in history.enumerate() {
            let main = version.mod_revision();
            let may_stop = main != last_main;
            if may_stop && (portion.is_full(versions.len(), bytes) || examined >= examined_max) {
                return UnreadEvents { versions, next_revision: main };
            }
            last_main = main;
            if keys.contains(version.key()) {
                bytes += version.contents_length();
                versions.push(version.clone());
            }
        }
        UnreadEvents { versions, next_revision: self.revision + 1 }
    }

    fn events_of_key(&self, from: i64, key: &[u8], portion: Portion) -> UnreadEvents {
        let start = Bound::Included((key, Revision::first(from)));
        let end = Bound::Included((key, Revision::last(i64::MAX)));
        let past = self.past.range((start, end));
        let live = self.live_version(key).filter(|version| version.mod_revision() >= from);
        let mut versions: Vec<Version> = Vec::new();
        let mut bytes = 0;
        for version in past.chain(live) {
            let revision = version.mod_revision();
            let is_new = versions.last().is_some_and(|version| version.mod_revision() != revision);
            if portion.is_full(versions.len(), bytes) && is_new {
                return UnreadEvents { versions, next_revision: revision };
            }
            bytes += version.contents_length();
            versions.push(version.clone());
        }
        UnreadEvents { versions, next_revision: self.revision + 1 }
    }
}
