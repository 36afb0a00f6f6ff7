//! The first bytes of a file in the data directory: [`Prefix`].
//!
//! ```text
//!   magic (8 bytes) │ format u32 │ body's length u32 │ CRC32C of format and body u32 │ body
//! ```
//!
//! Shared by [`crate::meta`] and [`crate::segment`]. Snapshot files begin and end in a way of their own
//! ([`crate::snapshot_file`]).

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

/// Bytes in front of the body.
pub(crate) const PREFIX: usize = 20;

/// The fields in front of a body, behind the magic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Prefix {
    pub(crate) format: u32,
    /// Length of the body, in bytes.
    pub(crate) length: usize,
    checksum: u32,
}

impl Prefix {
    /// Takes the prefix off; `None` when the file is shorter, or begins otherwise.
    pub(crate) fn take(magic: &[u8; 8], bytes: &mut Bytes) -> Option<Prefix> {
        if bytes.len() < PREFIX || bytes.split_to(magic.len()) != magic[..] {
            return None;
        }
        let (format, length, checksum) = (bytes.get_u32_le(), bytes.get_u32_le(), bytes.get_u32_le());
        Some(Prefix { format, length: length as usize, checksum })
    }

    /// Whether this body has the checksum that the prefix names.
    pub(crate) fn agrees_with(&self, body: &[u8]) -> bool {
        checksum(self.format, body) == self.checksum
    }
}

/// Writes prefix and body in this format.
pub(crate) fn put(magic: &[u8; 8], format: u32, body: &[u8], out: &mut BytesMut) {
    out.put_slice(magic);
    out.put_u32_le(format);
    out.put_u32_le(u32::try_from(body.len()).expect("a header or a membership is far below 4 GiB"));
    out.put_u32_le(checksum(format, body));
    out.put_slice(body);
}

fn checksum(format: u32, body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&format.to_le_bytes()), body)
}
