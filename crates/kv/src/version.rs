//! A version of a key in one allocation.
//!
//! ```text
//!   count of holders · revision · lengths │ key │ value │ sub revision, age, count, lease as variable-length numbers
//! ```
//!
//! A store holds millions of them, and most numbers of a version are small: with five numbers of eight bytes, a key and a value that know
//! their own buffers, a version of 16 and 256 bytes took 450 in three allocations; packed it takes 320 in one. Key and value are slices of
//! the allocation, also for an answer: an answer that is kept keeps its version and no larger buffer. A large value stands elsewhere
//! ([`Large`]).
//!
//! It deliberately has no order: a place in history is a [`Revision`], a place in each order is told by [`crate::order`].

use bytes::Bytes;
use prost::encoding::{decode_varint, encode_varint};
use triomphe::ThinArc;

use std::sync::Arc;

use crate::{
    KeyValue,
    large::{LARGE_BYTES_MIN, Large, Value},
    store::Revision,
};

/// Four numbers of at most ten bytes each.
const TAIL_LENGTH_MAX: usize = 40;

/// The fields before the bytes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Head {
    /// The revision that wrote this version.
    main: i64,
    key_length: u32,
    /// Length of the variable-length numbers, which stand last.
    tail_length: u32,
    /// The value, where it is large: then none stands behind the key.
    large: Option<Arc<Large>>,
}

/// A version of a key, with its full place in history. Cloning it counts one more holder.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Version(ThinArc<Head, u8>);

/// The numbers of a version, beside key and value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Numbers {
    /// The revision that wrote it.
    pub(crate) main: i64,
    /// Number of the change in that revision, from 0.
    pub(crate) sub: i64,
    /// The revision that created the key; 0 in a tombstone.
    pub(crate) create_revision: i64,
    /// Number of writes of the key since it was created; 0 in a tombstone.
    pub(crate) count: i64,
    /// The lease that the key is attached to; 0 for none.
    pub(crate) lease: i64,
}

impl Version {
    /// Packs a version, which copies its key and value: the buffers that they come from may be large (a batch from a peer, a
    /// block of the log), and would stay for as long as one small key lives.
    ///
    /// # Panics
    /// When the key has 4 GiB, which no request has.
    pub(crate) fn new(key: &[u8], value: &[u8], numbers: Numbers) -> Version {
        match value.len() < LARGE_BYTES_MIN {
            true => Version::pack(key, value, None, numbers),
            false => Version::with_large(key, Large::in_memory(Bytes::copy_from_slice(value)), numbers),
        }
    }

    /// A version as [`Version::new`] makes it, but a large value is not copied: its buffer is held until a snapshot holds the
    /// value. For values of the log, which holds that buffer for about as long itself.
    pub(crate) fn holding(key: &[u8], value: &Bytes, numbers: Numbers) -> Version {
        match value.len() < LARGE_BYTES_MIN {
            true => Version::pack(key, value, None, numbers),
            false => Version::with_large(key, Large::in_memory(value.clone()), numbers),
        }
    }

    /// The same key and value with other numbers; a large value is shared.
    pub(crate) fn with_numbers(&self, numbers: Numbers) -> Version {
        match self.large() {
            Some(large) => Version::with_large(self.key(), large.clone(), numbers),
            None => Version::new(self.key(), &self.value(), numbers),
        }
    }

    /// A version with a large value, in memory or on file.
    pub(crate) fn with_large(key: &[u8], large: Arc<Large>, numbers: Numbers) -> Version {
        Version::pack(key, b"", Some(large), numbers)
    }

    fn pack(key: &[u8], value: &[u8], large: Option<Arc<Large>>, numbers: Numbers) -> Version {
        let Numbers { main, sub, create_revision, count, lease } = numbers;
        let mut bytes = Vec::with_capacity(key.len() + value.len() + TAIL_LENGTH_MAX);
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        // The age instead of the revision that created the key: small, and a tombstone, created at 0, comes back as it was.
        for number in [sub, main.wrapping_sub(create_revision), count, lease] {
            encode_varint(number as u64, &mut bytes);
        }
        let head = Head {
            main,
            key_length: u32::try_from(key.len()).expect("a request is far smaller than 4 GiB"),
            tail_length: (bytes.len() - key.len() - value.len()) as u32,
            large,
        };
        Version(ThinArc::from_header_and_slice(head, &bytes))
    }

    /// The version of a key as clients know it, and its place inside its revision; the value is copied unless it is kept elsewhere.
    pub(crate) fn of(kv: &KeyValue, sub: i64, large: Option<Arc<Large>>) -> Version {
        let numbers = Numbers {
            main: kv.mod_revision,
            sub,
            create_revision: kv.create_revision,
            count: kv.version,
            lease: kv.lease,
        };
        match large {
            Some(large) => Version::with_large(&kv.key, large, numbers),
            None => Version::new(&kv.key, &kv.value, numbers),
        }
    }

    fn head(&self) -> &Head {
        &self.0.header.header
    }

    /// Bytes of the key.
    pub(crate) fn key(&self) -> &[u8] {
        &self.0.slice[..self.head().key_length as usize]
    }

    /// The value of this version. Asks the disk where it is on file.
    pub(crate) fn value(&self) -> Value<'_> {
        match &self.head().large {
            Some(large) => Value::Large(large.bytes()),
            None => Value::Packed(&self.0.slice[self.head().key_length as usize..self.packed_length()]),
        }
    }

    /// Compares its value with bytes. Seldom asks the disk.
    pub(crate) fn compare_value(&self, target: &[u8]) -> std::cmp::Ordering {
        match self.large() {
            Some(large) => large.compare(target),
            None => (*self.value()).cmp(target),
        }
    }

    /// Whether its value is this. Seldom asks the disk for one that is another.
    pub(crate) fn has_value(&self, target: &[u8]) -> bool {
        match self.large() {
            Some(large) => large.is(target),
            None => *self.value() == *target,
        }
    }

    /// Compares the values of two versions. Seldom asks the disk.
    pub(crate) fn compare_values(&self, other: &Version) -> std::cmp::Ordering {
        match (self.large(), other.large()) {
            (Some(large), Some(other)) => large.compare_with(other),
            (Some(large), None) => large.compare(&other.value()),
            (None, _) => other.compare_value(&self.value()).reverse(),
        }
    }

    /// The value, where it is large.
    pub(crate) fn large(&self) -> Option<&Arc<Large>> {
        self.head().large.as_ref()
    }

    /// Whether the value can be had from the disk alone.
    pub(crate) fn is_on_file(&self) -> bool {
        self.large().is_some_and(|large| large.is_on_file())
    }

    /// Length of the value, in bytes.
    pub(crate) fn value_length(&self) -> usize {
        self.contents_length() - self.head().key_length as usize
    }

    /// Length of key and value together, in bytes.
    pub(crate) fn contents_length(&self) -> usize {
        self.packed_length() + self.large().map_or(0, |large| large.length())
    }

    /// Length of the key and the value that stands behind it, in bytes.
    fn packed_length(&self) -> usize {
        self.0.slice.len() - self.head().tail_length as usize
    }

    /// All its numbers, decoded.
    pub(crate) fn numbers(&self) -> Numbers {
        let mut tail = &self.0.slice[self.packed_length()..];
        let mut next = || decode_varint(&mut tail).expect("the numbers were packed here") as i64;
        let (sub, age, count, lease) = (next(), next(), next(), next());
        let main = self.head().main;
        Numbers { main, sub, create_revision: main.wrapping_sub(age), count, lease }
    }

    /// The revision that wrote this version.
    pub(crate) fn mod_revision(&self) -> i64 {
        self.head().main
    }

    /// The revision that created the key; 0 in a tombstone.
    pub(crate) fn create_revision(&self) -> i64 {
        self.numbers().create_revision
    }

    /// Number of writes of the key since it was created; 0 in a tombstone.
    pub(crate) fn count(&self) -> i64 {
        self.numbers().count
    }

    /// The lease that the key is attached to; 0 for none.
    pub(crate) fn lease(&self) -> i64 {
        self.numbers().lease
    }

    /// Whether this version says "deleted here".
    pub(crate) fn is_tombstone(&self) -> bool {
        self.count() == 0
    }

    /// Its place in history.
    pub(crate) fn revision(&self) -> Revision {
        Revision { main: self.head().main, sub: self.numbers().sub }
    }

    /// Key and value as clients see them, as slices of this version; a value on file is read from there.
    pub(crate) fn kv(&self) -> KeyValue {
        let contents = Bytes::from_owner(Contents(self.clone()));
        let value = match self.large() {
            Some(large) => large.bytes(),
            None => contents.slice(self.head().key_length as usize..),
        };
        KeyValue { value, ..self.numbers_with(contents) }
    }

    /// The key as clients see it, without the value.
    pub(crate) fn kv_without_value(&self) -> KeyValue {
        self.numbers_with(Bytes::from_owner(Contents(self.clone())))
    }

    /// The numbers, and the key, which `contents` begins with.
    fn numbers_with(&self, contents: Bytes) -> KeyValue {
        let Numbers { main, create_revision, count, lease, .. } = self.numbers();
        KeyValue {
            key: contents.slice(..self.head().key_length as usize),
            value: Bytes::new(),
            create_revision,
            mod_revision: main,
            version: count,
            lease,
        }
    }
}

impl std::fmt::Debug for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = self.key().escape_ascii().to_string();
        f.debug_struct("Version").field("key", &key).field("numbers", &self.numbers()).finish_non_exhaustive()
    }
}

/// Key and value of a version, for an answer.
struct Contents(Version);

impl AsRef<[u8]> for Contents {
    fn as_ref(&self) -> &[u8] {
        &self.0.0.slice[..self.0.packed_length()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_packed_comes_back(
            key in prop::collection::vec(any::<u8>(), 0..60),
            value in prop_oneof![
                4 => prop::collection::vec(any::<u8>(), 0..600),
                1 => prop::collection::vec(any::<u8>(), LARGE_BYTES_MIN - 2..LARGE_BYTES_MIN + 2),
            ],
            numbers in any::<[i64; 5]>(),
        ) {
            let [main, sub, create_revision, count, lease] = numbers;
            let numbers = Numbers { main, sub, create_revision, count, lease };
            let version = Version::new(&key, &value, numbers);
            prop_assert_eq!(version.numbers(), numbers);
            prop_assert_eq!((version.key(), &*version.value()), (&key[..], &value[..]));
            prop_assert_eq!(version.contents_length(), key.len() + value.len());
            prop_assert_eq!(version.value_length(), value.len());
            prop_assert_eq!(&Version::holding(&key, &Bytes::from(value), numbers), &version);
            let kv = version.kv();
            prop_assert_eq!(&Version::of(&kv, sub, None), &version);
            prop_assert_eq!(KeyValue { value: Bytes::new(), ..kv }, version.kv_without_value());
        }
    }

    #[test]
    fn an_answer_outlives_the_store_and_holds_its_version_alone() {
        let numbers = Numbers { main: 7, sub: 0, create_revision: 7, count: 1, lease: 0 };
        let version = Version::new(b"key", b"value", numbers);
        let kv = version.kv();
        drop(version);
        assert_eq!((&kv.key[..], &kv.value[..]), (&b"key"[..], &b"value"[..]));
    }

    #[test]
    fn a_version_of_16_and_256_bytes_fits_into_320() {
        let numbers = Numbers { main: 1_000_000, sub: 3, create_revision: 900_000, count: 200, lease: 0 };
        let version = Version::new(&[1; 16], &[2; 256], numbers);
        // The count of holders and the length, beside what is told here.
        assert!(size_of::<Head>() + version.0.slice.len() + 2 * size_of::<usize>() <= 320);
    }
}
