//! A batch: the records that one write carries, and its attestation of those before.
//!
//! ```text
//!   sector 0                                    sector 1 ..
//!   ├─ synced ─┼─ oldest ─┼─ bytes ─┼─ count ─┼─ record ─┼─ record ──.. zeros ─┤
//!
//!   record:  length u32 │ CRC32C u32, bound to the batch │ encoded record
//! ```
//!
//! `synced` is the number of the last batch that was durable when this one was written: an attestation that everything up to
//! there must be found. `oldest` is the first segment that is still needed, so that a missing one is noticed.

use crate::sector::{PAYLOAD, POSITION_MAX, SECTOR, Seal};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use hustings_core::{Record, Wire as _};

/// Size of a head, in bytes.
pub const HEAD: usize = 24;
/// Bytes in front of each record.
pub const FRAME: usize = 8;
/// The most that a batch can hold, head and frames included.
pub const BYTES_MAX: u64 = (1 << 30) - (1 << 20);
const _: () = assert!(BYTES_MAX / (PAYLOAD as u64) < POSITION_MAX as u64);

/// The fixed part of a batch, before its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// The last batch that was durable when this one was written.
    pub synced: u64,
    /// The first segment that was still needed.
    pub oldest: u64,
    /// Bytes of all records with their frames.
    pub bytes: u32,
    /// Number of records in the batch.
    pub count: u32,
}

impl Head {
    /// Writes the head into its place at the front of a batch.
    pub fn put(&self, mut place: &mut [u8]) {
        place.put_u64_le(self.synced);
        place.put_u64_le(self.oldest);
        place.put_u32_le(self.bytes);
        place.put_u32_le(self.count);
    }

    /// Reads the head from the payload of a batch's first sector.
    pub fn read(mut payload: &[u8]) -> Head {
        Head {
            synced: payload.get_u64_le(),
            oldest: payload.get_u64_le(),
            bytes: payload.get_u32_le(),
            count: payload.get_u32_le(),
        }
    }
}

/// Number of sectors that a batch of this many bytes (head included) takes.
pub fn sectors_for(bytes: usize) -> u64 {
    bytes.div_ceil(PAYLOAD) as u64
}

fn checksum(batch: u64, encoded: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&batch.to_le_bytes()), encoded)
}

/// Appends a record of the batch with this number.
pub fn put_record(record: &Record, batch: u64, out: &mut BytesMut) {
    let frame = out.len();
    out.put_bytes(0, FRAME);
    record.encode(out);
    let encoded = &out[frame + FRAME..];
    let length = u32::try_from(encoded.len()).expect("a record is bounded by its batch, below 2^30");
    let checksum = checksum(batch, encoded);
    out[frame..frame + 4].copy_from_slice(&length.to_le_bytes());
    out[frame + 4..frame + FRAME].copy_from_slice(&checksum.to_le_bytes());
}

/// Reads the records of a complete batch; payloads stay slices of `bytes`.
///
/// # Errors
/// The offset of the record in `bytes` and what is wrong with it. Never panics and allocates nothing beyond the records.
pub fn records(
    number: u64,
    head: Head,
    bytes: Bytes,
) -> impl Iterator<Item = Result<(usize, Record), (usize, String)>> {
    let total = bytes.len();
    let mut rest = bytes;
    let mut left = head.count;
    let mut is_broken = false;
    std::iter::from_fn(move || {
        if is_broken {
            return None;
        }
        let offset = total - rest.len();
        if left == 0 {
            is_broken = true;
            let surplus = rest.len();
            return (surplus > 0).then(|| Err((offset, format!("{surplus} bytes behind the last record"))));
        }
        left -= 1;
        let read = read_record(number, &mut rest);
        is_broken = read.is_err();
        Some(read.map(|record| (offset, record)).map_err(|what| (offset, what)))
    })
}

fn read_record(batch: u64, rest: &mut Bytes) -> Result<Record, String> {
    if rest.len() < FRAME {
        return Err("a record's frame does not fit its batch".into());
    }
    let length = rest.get_u32_le() as usize;
    let expected = rest.get_u32_le();
    if length > rest.len() {
        return Err(format!("a record of {length} bytes does not fit its batch"));
    }
    let encoded = rest.split_to(length);
    if checksum(batch, &encoded) != expected {
        return Err("a record's checksum does not agree".into());
    }
    Record::decode(encoded).map_err(|error| error.to_string())
}

/// Seals the bytes of a batch into sectors that will stand from `index` on; `out` is reused and holds nothing else.
pub fn seal(seal: Seal, index: u64, number: u64, bytes: &[u8], out: &mut Vec<u8>) {
    let sectors = bytes.len().div_ceil(PAYLOAD);
    out.clear();
    out.resize(sectors * SECTOR, 0);
    for (position, (sector, payload)) in out.chunks_exact_mut(SECTOR).zip(bytes.chunks(PAYLOAD)).enumerate() {
        sector[..payload.len()].copy_from_slice(payload);
        let position = u32::try_from(position).expect("a batch has fewer than 2^24 sectors");
        seal.close(index + u64::from(position), number, position, sector);
    }
}
