//! The three orders of versions: what a place is in each, and how a version is compared with it.

use std::cmp::Ordering;

use crate::{
    store::{Key, Revision},
    version::Version,
};

/// An order of versions.
pub(crate) trait Order {
    /// Where a version stands, borrowed from it or from who asks.
    type Place<'p>: Copy;
    /// The same for as long as a tree needs it.
    type Mark: Clone;

    /// Place of a version.
    fn place(version: &Version) -> Self::Place<'_>;

    /// Keeps the place of a version.
    fn mark(version: &Version) -> Self::Mark;

    /// Compares the place of a version with this one.
    fn compare(version: &Version, place: Self::Place<'_>) -> Ordering;

    /// Compares a place that was kept with this one.
    fn compare_mark(mark: &Self::Mark, place: Self::Place<'_>) -> Ordering;
}

/// By key alone: one version of each.
pub(crate) enum ByKey {}

impl Order for ByKey {
    type Place<'p> = &'p [u8];
    type Mark = Key;

    fn place(version: &Version) -> &[u8] {
        version.key()
    }

    fn mark(version: &Version) -> Key {
        Key::new(version.key())
    }

    fn compare(version: &Version, place: &[u8]) -> Ordering {
        version.key().cmp(place)
    }

    fn compare_mark(mark: &Key, place: &[u8]) -> Ordering {
        mark.as_slice().cmp(place)
    }
}

/// By revision.
pub(crate) enum ByRevision {}

impl Order for ByRevision {
    type Place<'p> = Revision;
    type Mark = Revision;

    fn place(version: &Version) -> Revision {
        version.revision()
    }

    fn mark(version: &Version) -> Revision {
        version.revision()
    }

    fn compare(version: &Version, place: Revision) -> Ordering {
        // The other number of a revision has to be decoded, and is seldom asked for.
        version.mod_revision().cmp(&place.main).then_with(|| version.revision().sub.cmp(&place.sub))
    }

    fn compare_mark(mark: &Revision, place: Revision) -> Ordering {
        mark.cmp(&place)
    }
}

/// By key, and by revision among those of one key.
pub(crate) enum ByKeyAndRevision {}

impl Order for ByKeyAndRevision {
    type Place<'p> = (&'p [u8], Revision);
    type Mark = (Key, Revision);

    fn place(version: &Version) -> (&[u8], Revision) {
        (version.key(), version.revision())
    }

    fn mark(version: &Version) -> (Key, Revision) {
        (Key::new(version.key()), version.revision())
    }

    fn compare(version: &Version, (key, revision): (&[u8], Revision)) -> Ordering {
        ByKey::compare(version, key).then_with(|| ByRevision::compare(version, revision))
    }

    fn compare_mark((marked, at): &(Key, Revision), (key, revision): (&[u8], Revision)) -> Ordering {
        ByKey::compare_mark(marked, key).then_with(|| at.cmp(&revision))
    }
}
