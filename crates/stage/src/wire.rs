//! Properties of every message on the wire: arbitrary bytes never panic, damaged messages neither, messages come back.

use bytes::Bytes;
use hustings_core::Wire;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::fmt::Debug;

/// Tries this property on 2,000 values.
fn holds<S: Strategy>(values: &S, property: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() };
    if let Err(error) = TestRunner::new(config).run(values, property) {
        panic!("{error}");
    }
}

/// Decoding does not panic; what it accepts is stable.
fn is_stable<M: Wire + PartialEq + Debug>(bytes: Vec<u8>) -> Result<(), TestCaseError> {
    if let Ok(message) = M::decode(Bytes::from(bytes)) {
        prop_assert_eq!(M::decode(message.to_bytes()), Ok(message));
    }
    Ok(())
}

/// Noise is refused, or read as a message that comes back.
///
/// # Panics
/// When it does not hold.
pub fn arbitrary_bytes_never_panic<M: Wire + PartialEq + Debug>() {
    holds(&vec(any::<u8>(), 0..300), is_stable::<M>);
}

/// A byte that is flipped and an end that is lost are refused, or read as a message that comes back.
///
/// # Panics
/// When it does not hold.
pub fn damaged_messages_never_panic<M: Wire + PartialEq + Debug>(messages: impl Strategy<Value = M>) {
    let damaged = (messages, any::<prop::sample::Index>(), any::<u8>(), any::<prop::sample::Index>());
    holds(&damaged, |(message, at, flip, keep)| {
        let mut bytes = message.to_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        bytes.truncate(keep.index(bytes.len() + 1).max(at + 1));
        is_stable::<M>(bytes)
    });
}

/// Asserts that a message is equal after encoding and decoding.
///
/// # Panics
/// When it is not.
pub fn messages_come_back<M: Wire + PartialEq + Debug>(messages: impl Strategy<Value = M>) {
    holds(&messages, |message| {
        prop_assert_eq!(M::decode(message.to_bytes()), Ok(message));
        Ok(())
    });
}

/// These fields are refused, and the error says why.
///
/// # Panics
/// When they are read, or the error says something else.
pub fn refused<M: Wire + Debug>(fields: &[Vec<u8>], why: &str) {
    let error = M::decode(Bytes::from(fields.concat())).expect_err(why).to_string();
    assert!(error.contains(why), "`{error}` does not say `{why}`");
}

/// A protobuf field that holds a number.
pub fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

/// A protobuf field that holds bytes: a string, a message or packed numbers.
pub fn nested(field: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let seven = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            bytes.push(seven);
            return bytes;
        }
        bytes.push(seven | 0x80);
    }
}
