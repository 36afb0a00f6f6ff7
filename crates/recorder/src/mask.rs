//! Payloads without what clients wrote: [`hide`] keeps a length and a checksum, [`Zeroes::show`] makes something as long again.
//!
//! No protocol looks into a command, so a value that is told zeroes instead says the same. Short ones begin with their checksum, so
//! that two that were different are. Changes of membership and what is the protocol's own business are kept as they are: there
//! it does look.

use bytes::{Bytes, BytesMut};
use hustings_core::{EntryKind, WireError};

/// The longest payload that is taken for one: longer ones do not fit into a frame.
const LENGTH_MAX: usize = 1 << 30;

/// Length in bytes up to which a payload is shown with its checksum, in memory of its own; longer ones share theirs.
const MARKED_BYTES_MAX: usize = 256;

/// A payload's length and CRC32C in eight bytes, in place of the payload; empty ones stay.
pub fn hide(kind: EntryKind, payload: &mut Bytes) {
    if kind != EntryKind::Command || payload.is_empty() {
        return;
    }
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut kept = [0; 8];
    kept[..4].copy_from_slice(&length.to_le_bytes());
    kept[4..].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    *payload = Bytes::copy_from_slice(&kept);
}

/// Zeroes as long as what was hidden: slices of one buffer, which grows with the longest.
#[derive(Default)]
pub struct Zeroes(Bytes);

impl Zeroes {
    /// A payload as long as the hidden one.
    ///
    /// # Errors
    /// These eight bytes were not made by [`hide`].
    pub fn show(&mut self, kind: EntryKind, payload: &mut Bytes) -> Result<(), WireError> {
        if kind != EntryKind::Command || payload.is_empty() {
            return Ok(());
        }
        let length = payload.first_chunk().map(|length| u32::from_le_bytes(*length) as usize);
        let length = length.filter(|length| payload.len() == 8 && *length <= LENGTH_MAX);
        let length = length.ok_or_else(|| WireError("a payload that no recorder has hidden".into()))?;
        if length <= MARKED_BYTES_MAX {
            let mut shown = vec![0; length];
            let marked = length.min(4);
            shown[..marked].copy_from_slice(&payload[4..][..marked]);
            *payload = shown.into();
            return Ok(());
        }
        if self.0.len() < length {
            self.0 = BytesMut::zeroed(length.next_power_of_two()).freeze();
        }
        *payload = self.0.slice(..length);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_as_long_afterwards_and_says_nothing() {
        let mut zeroes = Zeroes::default();
        for length in [0, 1, 7, 8, 9, 100_000, 3] {
            let mut payload = Bytes::from(vec![b'!'; length]);
            hide(EntryKind::Command, &mut payload);
            assert!(!payload.contains(&b'!') && payload.len() <= 8, "{payload:?}");
            zeroes.show(EntryKind::Command, &mut payload).expect("it was hidden");
            assert!(payload.len() == length && payload.iter().skip(4).all(|byte| *byte == 0));
        }
    }

    #[test]
    fn short_commands_that_were_different_are() {
        let shown = |text: &'static [u8]| {
            let mut payload = Bytes::from_static(text);
            hide(EntryKind::Command, &mut payload);
            Zeroes::default().show(EntryKind::Command, &mut payload).expect("it was hidden");
            payload
        };
        assert_eq!(shown(b"one"), shown(b"one"));
        assert_ne!(shown(b"one"), shown(b"two"));
    }

    #[test]
    fn what_a_protocol_looks_into_stays() {
        for kind in [EntryKind::Membership, EntryKind::Protocol, EntryKind::Blank] {
            let mut payload = Bytes::from_static(b"n4 joins");
            hide(kind, &mut payload);
            Zeroes::default().show(kind, &mut payload).expect("it was not hidden");
            assert_eq!(payload, &b"n4 joins"[..]);
        }
    }

    #[test]
    fn a_length_that_nothing_has_is_refused() {
        let mut zeroes = Zeroes::default();
        for bytes in [&[0xff; 8][..], b"short", b"longer than eight"] {
            zeroes.show(EntryKind::Command, &mut Bytes::copy_from_slice(bytes)).expect_err("nobody hid that");
        }
    }
}
