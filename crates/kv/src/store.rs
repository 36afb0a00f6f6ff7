//! The store: every version of every key, under three orders.
//!
//! ```text
//!   live      key            → newest version, if the key exists        reads of the present
//!   past      key, revision  → older versions and tombstones            reads of an older revision
//!   history   revision       → every version and tombstone              watches, compaction, hashes, snapshots
//! ```
//!
//! `live` and `past` are disjoint, and together they are `history`. All are persistent trees ([`crate::tree`]): a [`View`] is the struct
//! itself, cloned, which copies a handful of roots; while a view lives, a write copies the few tree nodes on its path.
//! Three orders cost three insertions for an overwrite, and buy that nothing ever scans: a read of the present walks past no
//! tombstones, a tailing watch reads only what it delivers, a compaction visits only what changed since the last one.
//!
//! Implements etcd 3.5's MVCC: a revision is (main, sub); a transaction takes one main revision if it changes anything, and
//! each change in it takes the next sub revision; the store starts at main revision 1; a deletion leaves a tombstone; a
//! deletion of nothing takes no revision.
//!
//! It deliberately decides nothing: ranges are read in [`crate::range`], transactions run in [`crate::txn`].

use std::{borrow::Borrow, sync::Arc, time::Duration};

use bytes::Bytes;
use hustings_core::ApplyVersion;
use imbl::{OrdMap, OrdSet};

use crate::{
    Alarm, Rules,
    lease::{Lease, ttl_duration},
    order::{ByKey, ByKeyAndRevision, ByRevision},
    range::KeyRange,
    rules::version_with,
    tree::Tree,
    users::Users,
    version::{Numbers, Version},
};

/// The bytes that a version costs beside its key and value: the version itself, and its places in the trees. An estimate,
/// part of the replicated state (a quota alarm may follow from it), so not to be changed without a new snapshot format.
const OVERHEAD_BYTES: u64 = 256;

/// A place in the store's history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Revision {
    /// Revision of the transaction.
    pub(crate) main: i64,
    /// Number of the change in it, from 0.
    pub(crate) sub: i64,
}

impl Revision {
    /// The first place of a main revision.
    pub(crate) fn first(main: i64) -> Revision {
        Revision { main, sub: 0 }
    }

    /// The place behind the last one of a main revision.
    pub(crate) fn last(main: i64) -> Revision {
        Revision { main, sub: i64::MAX }
    }
}

/// Bytes that a lease counts for in [`View::size_bytes`], about what it takes: nobody need ever end one.
const LEASE_BYTES: u64 = 256;

/// Bytes that a version counts for in [`View::size_bytes`].
fn charge(version: &Version) -> u64 {
    version.contents_length() as u64 + OVERHEAD_BYTES
}

/// The longest key that stands in a tree node itself.
const INLINE_BYTES: usize = 30;

/// A copy of a key: in the inner nodes of trees, and beside leases.
///
/// Short keys stand in the node: a search compares without following a pointer, and copying a node touches no reference count of theirs.
#[derive(Clone)]
pub(crate) enum Key {
    /// A key of at most [`INLINE_BYTES`], the rest zero.
    Short { length: u8, bytes: [u8; INLINE_BYTES] },
    /// Anything longer is shared.
    Long(Arc<[u8]>),
}

impl Key {
    pub(crate) fn new(key: &[u8]) -> Key {
        if key.len() > INLINE_BYTES {
            return Key::Long(key.into());
        }
        let mut bytes = [0; INLINE_BYTES];
        bytes[..key.len()].copy_from_slice(key);
        Key::Short { length: key.len() as u8, bytes }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Key::Short { length, bytes } => &bytes[..usize::from(*length)],
            Key::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> std::cmp::Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.as_slice()
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.as_slice().escape_ascii())
    }
}

/// The state of the store at one moment, immutable: what reads, watches and snapshots look at.
///
/// Cloning copies a handful of pointers. A view that is kept keeps its version of the state in memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct View {
    /// The present main revision.
    pub(crate) revision: i64,
    /// The oldest readable main revision; -1 before the first compaction, as in etcd.
    pub(crate) compact_revision: i64,
    /// Place at which the removal of compacted history goes on; `None` when it is complete.
    pub(crate) cleaning: Option<Revision>,
    pub(crate) live: Tree<ByKey>,
    pub(crate) past: Tree<ByKeyAndRevision>,
    pub(crate) history: Tree<ByRevision>,
    pub(crate) leases: OrdMap<i64, Lease>,
    /// (lease, key) for each existing key with a lease.
    pub(crate) attached: OrdSet<(i64, Key)>,
    pub(crate) alarms: OrdSet<Alarm>,
    pub(crate) size_bytes: u64,
    /// The log's clock: the sum of all elapsed times that its entries carried.
    pub(crate) clock: Duration,
    /// Users and roles of the store.
    pub(crate) users: Users,
    /// The numbers by which commands are applied.
    pub(crate) rules: &'static Rules,
}

impl View {
    pub(crate) fn empty(rules: &'static Rules) -> View {
        View {
            revision: 1,
            compact_revision: -1,
            cleaning: None,
            live: Tree::new(),
            past: Tree::new(),
            history: Tree::new(),
            leases: OrdMap::new(),
            attached: OrdSet::new(),
            alarms: OrdSet::new(),
            size_bytes: 0,
            clock: Duration::ZERO,
            users: Users::default(),
            rules,
        }
    }

    /// The present revision; 1 in a new store.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// The oldest revision that can be read; -1 before the first compaction, as in etcd.
    pub fn compact_revision(&self) -> i64 {
        self.compact_revision
    }

    /// An estimate of the memory that live and historical data and leases take, in bytes; equal on all members.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes + self.leases.len() as u64 * LEASE_BYTES
    }

    /// Number of keys that exist.
    pub fn key_count(&self) -> usize {
        self.live.len()
    }

    /// Number of versions and tombstones that are held, live ones included.
    pub fn version_count(&self) -> usize {
        self.history.len()
    }

    /// The alarms that stand, by member and kind.
    pub fn alarms(&self) -> Vec<Alarm> {
        self.alarms.iter().copied().collect()
    }

    /// The first apply version whose rules have room for all that is in this state. A build that knows only earlier ones would pass over
    /// leases of milliseconds, and users, in silence.
    pub fn version_needed(&self) -> ApplyVersion {
        let has_short_leases = self.leases.values().any(|lease| lease.length != ttl_duration(lease.ttl));
        version_with(has_short_leases, self.users != Users::default())
    }

    pub(crate) fn has_alarm(&self, kind: crate::AlarmKind) -> bool {
        self.alarms.iter().any(|alarm| alarm.kind == kind)
    }

    /// The newest version or tombstone of a key at or before a place in its past; not looking at the live one.
    pub(crate) fn past_version(&self, key: &[u8], at: Revision) -> Option<&Version> {
        self.past.last_until((key, at)).filter(|found| found.key() == key)
    }

    /// Adds what a change wrote to the history.
    fn record(&mut self, version: &Version) {
        self.size_bytes += charge(version);
        let replaced = self.history.insert(version.clone());
        assert!(replaced.is_none(), "a revision is used once");
    }

    /// Moves a version that is no longer the newest, or a tombstone, into the past.
    pub(crate) fn bury(&mut self, version: Version) {
        self.past.insert(version);
    }

    /// Removes a version from past and history, for good.
    pub(crate) fn forget(&mut self, key: &[u8], revision: Revision) {
        if let Some(version) = self.past.remove((key, revision)) {
            self.history.remove(revision);
            self.size_bytes -= charge(&version);
        }
    }

    /// Takes over a version read from a snapshot; versions come in the order of their revisions.
    pub(crate) fn restore(&mut self, version: Version) {
        self.record(&version);
        let superseded = match version.is_tombstone() {
            true => {
                let superseded = self.live.remove(version.key());
                self.bury(version);
                superseded
            }
            false => self.live.insert(version),
        };
        if let Some(superseded) = superseded {
            self.bury(superseded);
        }
    }
}

/// Changes the store inside one main revision, which is taken when something changes.
pub(crate) struct Writer<'v> {
    view: &'v mut View,
    next: Revision,
}

impl<'v> Writer<'v> {
    pub(crate) fn new(view: &'v mut View) -> Writer<'v> {
        let next = Revision::first(view.revision + 1);
        Writer { view, next }
    }

    /// The state with the changes made so far.
    pub(crate) fn view(&self) -> &View {
        self.view
    }

    /// The present revision: the new one as soon as something has changed.
    pub(crate) fn revision(&self) -> i64 {
        self.view.revision + i64::from(self.next.sub > 0)
    }

    /// Ends the transaction and answers the present revision.
    pub(crate) fn finish(self) -> i64 {
        self.view.revision = self.revision();
        self.view.revision
    }

    /// Writes a key; what was there before is returned. The lease must exist.
    ///
    /// Key and value are copied, but for a large value ([`Version::holding`]).
    pub(crate) fn put(&mut self, key: &[u8], value: &Bytes, lease: i64) -> Option<Version> {
        self.write(key, lease, |numbers| Version::holding(key, value, numbers))
    }

    /// Writes the value of a version again; it is not read where it is large.
    pub(crate) fn put_again(&mut self, kept: &Version, lease: i64) -> Option<Version> {
        self.write(kept.key(), lease, |numbers| kept.with_numbers(numbers))
    }

    fn write(&mut self, key: &[u8], lease: i64, version: impl FnOnce(Numbers) -> Version) -> Option<Version> {
        let Revision { main, sub } = self.next;
        let new = Numbers { main, sub, create_revision: main, count: 1, lease };
        // One search for both: what is there, and the place where its successor goes.
        let (written, superseded) = match self.view.live.get_mut(key) {
            Some(place) => {
                let Numbers { create_revision, count, .. } = place.numbers();
                let written = version(Numbers { create_revision, count: count + 1, ..new });
                let superseded = std::mem::replace(place, written.clone());
                (written, Some(superseded))
            }
            None => {
                let written = version(new);
                self.view.live.insert(written.clone());
                (written, None)
            }
        };
        self.view.record(&written);
        self.next.sub += 1;
        let old_lease = superseded.as_ref().map_or(0, |old| old.lease());
        if old_lease != lease {
            self.detach(old_lease, key);
            self.attach(lease, key);
        }
        if let Some(superseded) = &superseded {
            self.view.bury(superseded.clone());
        }
        superseded
    }

    /// Deletes the keys of a range, in their order; what was there is returned.
    pub(crate) fn delete_range(&mut self, range: &KeyRange) -> Vec<Version> {
        let mut deleted = Vec::new();
        if range.is_single() {
            deleted.extend(self.view.live.get(range.key()).cloned());
        } else if let Some(bounds) = range.bounds() {
            deleted.extend(self.view.live.range(bounds).cloned());
        }
        for version in &deleted {
            self.delete(version);
        }
        deleted
    }

    fn delete(&mut self, version: &Version) {
        let Revision { main, sub } = self.next;
        let numbers = Numbers { main, sub, create_revision: 0, count: 0, lease: 0 };
        let tombstone = Version::new(version.key(), b"", numbers);
        self.view.record(&tombstone);
        self.next.sub += 1;
        self.view.live.remove(version.key());
        self.view.bury(version.clone());
        self.view.bury(tombstone);
        self.detach(version.lease(), version.key());
    }

    fn attach(&mut self, lease: i64, key: &[u8]) {
        if lease != 0 {
            self.view.attached.insert((lease, Key::new(key)));
        }
    }

    fn detach(&mut self, lease: i64, key: &[u8]) {
        if lease != 0 {
            self.view.attached.remove(&(lease, Key::new(key)));
        }
    }
}
