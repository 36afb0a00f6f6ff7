//! The 64-bit fingerprint of a protocol's answer: [`of_effects`]. Answers that differ in anything but the contents of
//! payloads have different ones, but for one chance in 2^64 or so; the same build always makes the same of the same.

use hustings_core::Protocol;
use hustings_core::protocol::{Effect, Effects};
use std::hash::{Hash, Hasher};

/// The fingerprint of an answer.
pub(crate) fn of_effects<P: Protocol>(effects: &Effects<P>) -> u64 {
    let mut shape = Shape::default();
    for effect in effects.as_slice() {
        match effect {
            Effect::Persist(record) => (0u8, record).hash(&mut shape),
            Effect::Send { to, message, rests_on } => (1u8, to, message, rests_on).hash(&mut shape),
            Effect::Apply(entry) => (2u8, entry).hash(&mut shape),
            Effect::Restore(reference) => (3u8, reference).hash(&mut shape),
            Effect::FetchSnapshot { from, reference } => (4u8, from, reference).hash(&mut shape),
            Effect::ReadAt { ticket, index } => (5u8, ticket, index).hash(&mut shape),
            Effect::Reply { ticket, outcome } => (6u8, ticket, outcome).hash(&mut shape),
            Effect::SetTimer { timer, after } => (7u8, timer, after).hash(&mut shape),
            Effect::CancelTimer(timer) => (8u8, timer).hash(&mut shape),
            Effect::Announce(transition) => (9u8, transition).hash(&mut shape),
            Effect::Reconfigure { membership, index } => (10u8, membership, index).hash(&mut shape),
        }
    }
    shape.finish()
}

/// The fingerprint of one thing: a timer's name.
pub(crate) fn of<T: Hash>(thing: &T) -> u64 {
    let mut shape = Shape::default();
    thing.hash(&mut shape);
    shape.finish()
}

/// A hasher that takes numbers, and of bytes how many there are.
#[derive(Default)]
struct Shape(u64);

impl Shape {
    fn mix(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
    }
}

impl Hasher for Shape {
    fn finish(&self) -> u64 {
        self.0
    }

    /// Payloads come this way, and names: their lengths count.
    fn write(&mut self, bytes: &[u8]) {
        self.mix(bytes.len() as u64);
    }

    fn write_u8(&mut self, number: u8) {
        self.mix(number.into());
    }

    fn write_u16(&mut self, number: u16) {
        self.mix(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.mix(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.mix(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.mix(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.mix(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use hustings_core::{Entry, EntryKind, Lsn, Record};

    fn put(term: u64, index: u64, payload: &'static [u8]) -> Record {
        let entry = Entry {
            kind: EntryKind::Command,
            payload: Bytes::from_static(payload),
            ..Entry::blank(Lsn::new(term, index))
        };
        Record::Put(entry)
    }

    #[test]
    fn payloads_count_by_their_length_and_numbers_by_their_value() {
        assert_eq!(of(&put(1, 2, b"abc")), of(&put(1, 2, b"xyz")));
        let all = [put(1, 2, b"abc"), put(2, 1, b"abc"), put(1, 2, b"ab"), put(1, 3, b"abc"), Record::TruncateFrom(2)];
        let fingerprints: std::collections::BTreeSet<_> = all.iter().map(of).collect();
        assert_eq!(fingerprints.len(), all.len());
    }
}
