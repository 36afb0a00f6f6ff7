//! Reads: keys, ranges of keys, at the present or an older revision.
//!
//! Implements etcd 3.5's `Range`, quirks included: `count` counts the whole range, without regard to limit and filters;
//! filters and orders look at the whole range before the limit cuts, but an order target without an order sorts after the
//! cut; `more` is about the cut alone; `count_only` answers no `more`.
//!
//! A single key is one search. A limited range at the present, without filter or order, visits no more than its answer: all of it is
//! counted by two searches. An older revision costs one search per key of the range.
//!
//! Read next: [`crate::txn`], ranges inside transactions.

use std::ops::Bound;

use bytes::Bytes;

use crate::{KvError, Range, RangeResponse, SortOrder, SortTarget, View, store::Revision, version::Version};

/// A key, or the keys from one on up to another, in etcd's notation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KeyRange {
    key: Bytes,
    end: Bytes,
}

/// Bounds of a search in a tree of keys.
type Bounds<'r> = (Bound<&'r [u8]>, Bound<&'r [u8]>);

impl KeyRange {
    /// The range as requests write it: an empty `range_end` means the key alone, `"\0"` everything from the key on, anything
    /// else is the first key that is out. An end at or below the key makes an empty range.
    pub fn new(key: Bytes, range_end: Bytes) -> KeyRange {
        KeyRange { key, end: range_end }
    }

    /// The range of all keys.
    pub fn all() -> KeyRange {
        KeyRange { key: Bytes::from_static(b"\0"), end: Bytes::from_static(b"\0") }
    }

    /// Whether a key lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self.is_single() {
            true => key == self.key,
            false => key >= &self.key[..] && (self.is_open() || key < &self.end[..]),
        }
    }

    /// Whether the range is one key.
    pub fn is_single(&self) -> bool {
        self.end.is_empty()
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    fn is_open(&self) -> bool {
        self.end == b"\0"[..]
    }

    /// The bounds of a range of keys; `None` when it is empty. Not for a single key.
    pub(crate) fn bounds(&self) -> Option<Bounds<'_>> {
        if self.is_open() {
            return Some((Bound::Included(&self.key), Bound::Unbounded));
        }
        (self.key < self.end).then_some((Bound::Included(&self.key[..]), Bound::Excluded(&self.end[..])))
    }
}

/// The result of a read, found and not yet read: values may be on file.
#[derive(Clone, Debug)]
pub struct Selection {
    revision: i64,
    count: i64,
    more: bool,
    versions: Vec<Version>,
    has_values: bool,
}

impl Selection {
    /// Number of keys that will be told.
    pub fn keys(&self) -> usize {
        self.versions.len()
    }

    /// Bytes of keys and values that will be told.
    pub fn bytes(&self) -> usize {
        let told = if self.has_values { Version::contents_length } else { |version: &Version| version.key().len() };
        self.versions.iter().map(told).sum()
    }

    /// Whether reading them asks the disk.
    pub fn asks_disk(&self) -> bool {
        self.has_values && self.versions.iter().any(Version::is_on_file)
    }

    /// Reads the values. May take long where it asks the disk: not for the loop.
    pub fn answer(self) -> RangeResponse {
        let told = if self.has_values { Version::kv } else { Version::kv_without_value };
        let Selection { revision, count, more, versions, .. } = self;
        RangeResponse { revision, kvs: versions.iter().map(told).collect(), more, count }
    }
}

/// The keys found, and how many there are beside them.
struct Found<'v> {
    versions: Vec<&'v Version>,
    count: usize,
}

impl View {
    /// Reads a key or a range of keys.
    ///
    /// Errors: [`KvError::EmptyKey`], [`KvError::FutureRevision`], [`KvError::Compacted`].
    pub fn range(&self, range: &Range) -> Result<RangeResponse, KvError> {
        self.range_at(range, self.revision)
    }

    /// Whether answering a read looks at no more keys than this. Visits none.
    pub fn is_small(&self, range: &Range, keys: usize) -> bool {
        if range.range_end.is_empty() || self.history.len() <= keys {
            return true;
        }
        // Equal beginnings of values that are on file are told apart by reading.
        if range.sort_target == i32::from(SortTarget::Value) {
            return false;
        }
        let is_present = range.revision <= 0 || range.revision >= self.revision;
        let keys_between = KeyRange::new(range.key.clone(), range.range_end.clone());
        is_present && keys_between.bounds().is_none_or(|bounds| self.live.count(bounds) <= keys)
    }

    /// Whether a read of one key asks the disk for its value.
    pub(crate) fn is_on_file(&self, range: &Range, present: i64) -> bool {
        let revision = if range.revision > 0 { range.revision } else { present };
        let keys = KeyRange::new(range.key.clone(), Bytes::new());
        !range.count_only
            && self.find(&keys, revision, present, Some(1)).versions.iter().any(|found| found.is_on_file())
    }

    /// Finds what [`View::range`] would answer, and reads no value.
    ///
    /// # Errors
    /// As [`View::range`].
    pub fn select(&self, range: &Range) -> Result<Selection, KvError> {
        self.select_at(range, self.revision)
    }

    /// Reads as [`View::range`], with the revision that a transaction under way has reached.
    pub(crate) fn range_at(&self, range: &Range, present: i64) -> Result<RangeResponse, KvError> {
        self.select_at(range, present).map(Selection::answer)
    }

    fn select_at(&self, range: &Range, present: i64) -> Result<Selection, KvError> {
        self.check_readable(range, present)?;
        let revision = if range.revision > 0 { range.revision } else { present };
        let keys = KeyRange::new(range.key.clone(), range.range_end.clone());
        if range.count_only {
            let count = self.find(&keys, revision, present, Some(0)).count as i64;
            let versions = Vec::new();
            return Ok(Selection { revision: present, count, more: false, versions, has_values: false });
        }

        let order = SortOrder::try_from(range.sort_order).unwrap_or(SortOrder::None);
        let target = SortTarget::try_from(range.sort_target).unwrap_or(SortTarget::Key);
        let limit = usize::try_from(range.limit).ok().filter(|limit| *limit > 0);
        let looks_at_all = has_filter(range) || (order != SortOrder::None && !is_natural(order, target));
        // One more than the limit tells whether there is more.
        let wanted = if looks_at_all { None } else { limit.map(|limit| limit.saturating_add(1)) };
        let Found { mut versions, count } = self.find(&keys, revision, present, wanted);
        if has_filter(range) {
            versions.retain(|version| passes_filters(range, version));
        }
        sort(&mut versions, order, target);
        let more = limit.is_some_and(|limit| versions.len() > limit);
        versions.truncate(limit.unwrap_or(usize::MAX));

        let versions = versions.into_iter().cloned().collect();
        Ok(Selection { revision: present, count: count as i64, more, versions, has_values: !range.keys_only })
    }

    /// Whether a range can be answered at all.
    pub(crate) fn check_readable(&self, range: &Range, present: i64) -> Result<(), KvError> {
        if range.key.is_empty() {
            return Err(KvError::EmptyKey);
        }
        if range.revision > present {
            return Err(KvError::FutureRevision { revision: present });
        }
        if range.revision > 0 && range.revision < self.compact_revision {
            return Err(KvError::Compacted { compact_revision: self.compact_revision });
        }
        Ok(())
    }

    /// The existing version of one key.
    pub(crate) fn live_version(&self, key: &[u8]) -> Option<&Version> {
        self.live.get(key)
    }

    /// The existing versions of a range at the present.
    pub(crate) fn live_versions<'v>(&'v self, keys: &'v KeyRange) -> impl Iterator<Item = &'v Version> {
        let single = keys.is_single().then(|| self.live.get(keys.key())).flatten();
        let bounds = if keys.is_single() { None } else { keys.bounds() };
        single.into_iter().chain(bounds.into_iter().flat_map(|bounds| self.live.range(bounds)))
    }

    /// The versions of a range at a revision, at most `wanted` of them, and the count of all.
    fn find(&self, keys: &KeyRange, revision: i64, present: i64, wanted: Option<usize>) -> Found<'_> {
        let wanted = wanted.unwrap_or(usize::MAX);
        let mut found = Found { versions: Vec::new(), count: 0 };
        let mut take = |version| {
            if found.versions.len() < wanted {
                found.versions.push(version);
            }
            found.count += 1;
        };
        if keys.is_single() {
            let version = match revision >= present {
                true => self.live_version(keys.key()),
                false => self.version_at(keys.key(), revision),
            };
            version.map(&mut take);
        } else if let Some(bounds) = keys.bounds() {
            if revision < present {
                self.visit_at(bounds, revision, take);
            } else {
                let between = self.live.range(bounds);
                found.count = between.len();
                found.versions.extend(between.take(wanted));
            }
        }
        found
    }

    /// The version of a key that existed at a revision.
    fn version_at(&self, key: &[u8], revision: i64) -> Option<&Version> {
        if let Some(version) = self.live.get(key)
            && version.mod_revision() <= revision
        {
            return Some(version);
        }
        let version = self.past_version(key, Revision::last(revision))?;
        (!version.is_tombstone()).then_some(version)
    }

    /// Visits the versions of a range that existed at an older revision, by key.
    fn visit_at<'v>(&'v self, bounds: Bounds<'_>, revision: i64, mut visit: impl FnMut(&'v Version)) {
        // Keys that exist now and keys that only have a past are two sorted lists: merge them.
        let (start, end) = bounds;
        let (Bound::Included(start) | Bound::Excluded(start)) = start else { return };
        let is_in = |key: &&[u8]| match end {
            Bound::Excluded(end) => *key < end,
            _ => true,
        };
        let mut living = self.live.range(bounds).map(Version::key).peekable();
        let seek = |key: &[u8], at: Revision| self.past.first_from((key, at)).map(Version::key).filter(is_in);
        let mut gone = seek(start, Revision::first(i64::MIN));
        loop {
            let key = match (living.peek(), gone) {
                (None, None) => return,
                (Some(living), Some(gone)) => (*living).min(gone),
                (Some(living), None) => living,
                (None, Some(gone)) => gone,
            };
            if let Some(version) = self.version_at(key, revision) {
                visit(version);
            }
            if gone == Some(key) {
                gone = seek(key, Revision::last(i64::MAX));
            }
            if living.peek() == Some(&key) {
                living.next();
            }
        }
    }
}

/// Whether an order is the one that the store has anyway.
fn is_natural(order: SortOrder, target: SortTarget) -> bool {
    target == SortTarget::Key && order == SortOrder::Ascend
}

fn has_filter(range: &Range) -> bool {
    let bounds = [range.min_mod_revision, range.max_mod_revision, range.min_create_revision, range.max_create_revision];
    bounds.iter().any(|bound| *bound != 0)
}

fn passes_filters(range: &Range, version: &Version) -> bool {
    let at_least = |revision: i64, bound: i64| bound == 0 || revision >= bound;
    let at_most = |revision: i64, bound: i64| bound == 0 || revision <= bound;
    at_least(version.mod_revision(), range.min_mod_revision)
        && at_most(version.mod_revision(), range.max_mod_revision)
        && at_least(version.create_revision(), range.min_create_revision)
        && at_most(version.create_revision(), range.max_create_revision)
}

/// Sorts by the target; equal ones stay in the order of their keys (etcd leaves that open).
fn sort(versions: &mut [&Version], order: SortOrder, target: SortTarget) {
    if target == SortTarget::Key && order != SortOrder::Descend {
        return;
    }
    let compare = |a: &Version, b: &Version| match target {
        SortTarget::Key => a.key().cmp(b.key()),
        SortTarget::Version => a.count().cmp(&b.count()),
        SortTarget::Create => a.create_revision().cmp(&b.create_revision()),
        SortTarget::Mod => a.mod_revision().cmp(&b.mod_revision()),
        SortTarget::Value => a.compare_values(b),
    };
    // A target without an order means ascending.
    match order {
        SortOrder::Descend => versions.sort_by(|a, b| compare(b, a)),
        _ => versions.sort_by(|a, b| compare(a, b)),
    }
}
