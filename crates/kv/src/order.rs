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
    /// An owned copy of a place.
    type Mark: Clone;

    /// Place of a version.
    fn place(version: &Version) -> Self::Place<'_>;

    /// Copies the place of a version.
    fn mark(version: &Version) -> Self::Mark;

    /// The place directly behind that of a version: none is between them.
    fn mark_behind(version: &Version) -> Self::Mark;

    /// The revision at which a version came to its place, as far as it tells: for [`Tree`](crate::tree::Tree)s to recognise rows.
    fn age(version: &Version) -> i64;

    /// Compares the place of a version with this one.
    fn compare(version: &Version, place: Self::Place<'_>) -> Ordering;

    /// Compares a copied place with this one.
    fn compare_mark(mark: &Self::Mark, place: Self::Place<'_>) -> Ordering;

    /// How much the places of two versions have in common. All places between them have that in common with both.
    fn common(version: &Version, other: &Version) -> u32;

    /// Whether a place has so much in common with that of a version.
    fn is_alike(version: &Version, place: Self::Place<'_>, common: u32) -> bool;

    /// The part of a place that comes behind so much of it. Of two places that have so much in common, the lower one has no higher head.
    fn head(place: Self::Place<'_>, common: u32) -> u32;
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

    fn mark_behind(version: &Version) -> Key {
        Key::new(&[version.key(), b"\0"].concat())
    }

    /// A key keeps its place when it is written again.
    fn age(version: &Version) -> i64 {
        version.create_revision()
    }

    fn compare(version: &Version, place: &[u8]) -> Ordering {
        version.key().cmp(place)
    }

    fn compare_mark(mark: &Key, place: &[u8]) -> Ordering {
        mark.as_slice().cmp(place)
    }

    fn common(version: &Version, other: &Version) -> u32 {
        let equal = version.key().iter().zip(other.key()).take_while(|(byte, other)| byte == other);
        u32::try_from(equal.count()).expect("a request is far smaller than 4 GiB")
    }

    fn is_alike(version: &Version, place: &[u8], common: u32) -> bool {
        let common = common as usize;
        place.len() >= common && place[..common] == version.key()[..common]
    }

    fn head(place: &[u8], common: u32) -> u32 {
        let rest = place.get(common as usize..).unwrap_or_default();
        // A shorter key comes first, or is equal here.
        let mut head = [0; 4];
        let length = rest.len().min(head.len());
        head[..length].copy_from_slice(&rest[..length]);
        u32::from_be_bytes(head)
    }
}

/// The order of versions by their revision.
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

    fn mark_behind(version: &Version) -> Revision {
        let Revision { main, sub } = version.revision();
        Revision { main, sub: sub + 1 }
    }

    fn age(version: &Version) -> i64 {
        version.mod_revision()
    }

    fn compare(version: &Version, place: Revision) -> Ordering {
        // The other number of a revision has to be decoded, and is seldom asked for.
        version.mod_revision().cmp(&place.main).then_with(|| version.revision().sub.cmp(&place.sub))
    }

    fn compare_mark(mark: &Revision, place: Revision) -> Ordering {
        mark.cmp(&place)
    }

    /// 1 where the upper half of the main revision is the same.
    fn common(version: &Version, other: &Version) -> u32 {
        u32::from(halves(version.mod_revision()).0 == halves(other.mod_revision()).0)
    }

    fn is_alike(version: &Version, place: Revision, common: u32) -> bool {
        common == 0 || halves(version.mod_revision()).0 == halves(place.main).0
    }

    fn head(place: Revision, common: u32) -> u32 {
        let (upper, lower) = halves(place.main);
        if common == 0 { upper } else { lower }
    }
}

/// A number in two parts that are compared one after the other.
fn halves(number: i64) -> (u32, u32) {
    let in_order = number.cast_unsigned() ^ (1 << 63);
    ((in_order >> 32) as u32, in_order as u32)
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

    fn mark_behind(version: &Version) -> (Key, Revision) {
        (Key::new(version.key()), ByRevision::mark_behind(version))
    }

    fn age(version: &Version) -> i64 {
        version.mod_revision()
    }

    fn compare(version: &Version, (key, revision): (&[u8], Revision)) -> Ordering {
        ByKey::compare(version, key).then_with(|| ByRevision::compare(version, revision))
    }

    fn compare_mark((marked, at): &(Key, Revision), (key, revision): (&[u8], Revision)) -> Ordering {
        ByKey::compare_mark(marked, key).then_with(|| at.cmp(&revision))
    }

    fn common(version: &Version, other: &Version) -> u32 {
        ByKey::common(version, other)
    }

    fn is_alike(version: &Version, (key, _): (&[u8], Revision), common: u32) -> bool {
        ByKey::is_alike(version, key, common)
    }

    fn head((key, _): (&[u8], Revision), common: u32) -> u32 {
        ByKey::head(key, common)
    }
}
