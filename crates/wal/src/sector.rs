//! A sector: 512 bytes that are sealed to their place, and the states in which a crash can leave it.
//!
//! A disk writes sectors whole. A segment is all zeros before its first use, so after a crash each of its sectors holds either
//! zeros or what was written. That makes three states, and a fourth for disks that break a sector:
//!
//! ```text
//!    0                                             496          504        508        512
//!    ├──────────── payload ────────────────────────┼─ batch ────┼─ position ┼─ CRC32C ─┤
//!
//!    Valid       the checksum agrees
//!    Blank       all zeros: never written, or its write was lost
//!    Unfinished  a checksum of zeros behind other bytes: its write was cut
//!    Rotten      anything else: it was written once and is no longer what was written
//! ```
//!
//! The checksum covers the storage's incarnation, the segment's sequence and the sector's index, so that a sector of another
//! directory, of an earlier use of the segment or written to the wrong place (ST-14) is rotten, not valid. It is last,
//! and always has at least two bits set: no single flipped bit makes a valid sector look unwritten.

/// Size of a sector, in bytes.
pub const SECTOR: usize = 512;
/// Bytes of a sector that carry payload.
pub const PAYLOAD: usize = SECTOR - TRAILER;
const TRAILER: usize = 16;
/// Far more than anyone will write; a number beyond was never given out.
const BATCH_MAX: u64 = 1 << 56;
/// Marks a trailer in the high byte of its position.
const MARK: u32 = 0x5A << 24;
/// The highest position of a sector in its batch.
pub const POSITION_MAX: u32 = (1 << 24) - 1;

/// The start of every checksum of one segment, which binds it to its directory and sequence.
#[derive(Clone, Copy, Debug)]
pub struct Seal(u32);

/// The state of a sector after a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It holds the bytes that were written here.
    Valid {
        /// Number of the batch that it belongs to.
        batch: u64,
        /// Its position in that batch, from 0.
        position: u32,
    },
    /// Never written, or its write was lost.
    Blank,
    /// Its write was cut inside the sector.
    Unfinished,
    /// No longer what was written here.
    Rotten,
}

impl Seal {
    /// The seal of the segment with this sequence in the directory with this storage incarnation.
    pub fn of(storage_incarnation: u64, sequence: u64) -> Seal {
        let seed = crc32c::crc32c(&storage_incarnation.to_le_bytes());
        Seal(crc32c::crc32c_append(seed, &sequence.to_le_bytes()))
    }

    fn checksum(self, index: u64, sector: &[u8]) -> u32 {
        let seed = crc32c::crc32c_append(self.0, &index.to_le_bytes());
        let checksum = crc32c::crc32c_append(seed, &sector[..SECTOR - 4]);
        if checksum.count_ones() < 2 { !checksum } else { checksum }
    }

    /// Writes the trailer of the sector that will stand at `index` in its segment; the payload must be in place.
    ///
    /// # Panics
    /// When `sector` is not [`SECTOR`] bytes long, or the position above [`POSITION_MAX`].
    pub fn close(self, index: u64, batch: u64, position: u32, sector: &mut [u8]) {
        assert!(position <= POSITION_MAX, "a batch is bounded far below its last position");
        sector[PAYLOAD..PAYLOAD + 8].copy_from_slice(&batch.to_le_bytes());
        sector[PAYLOAD + 8..PAYLOAD + 12].copy_from_slice(&(MARK | position).to_le_bytes());
        let checksum = self.checksum(index, sector);
        sector[PAYLOAD + 12..].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Judges the sector at `index`.
    ///
    /// # Panics
    /// When `sector` is not [`SECTOR`] bytes long.
    pub fn state(self, index: u64, sector: &[u8]) -> State {
        let (payload, trailer) = sector.split_at(PAYLOAD);
        if trailer[12..] == [0; 4] {
            let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
            return if is_zero(payload) && is_zero(trailer) { State::Blank } else { State::Unfinished };
        }
        let word = |from: usize| u32::from_le_bytes(trailer[from..from + 4].try_into().expect("four bytes"));
        let position = word(8);
        if word(12) != self.checksum(index, sector) || position & !POSITION_MAX != MARK {
            return State::Rotten;
        }
        let batch = u64::from(word(0)) | u64::from(word(4)) << 32;
        if batch == 0 || batch > BATCH_MAX {
            return State::Rotten;
        }
        State::Valid { batch, position: position & POSITION_MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed() -> [u8; SECTOR] {
        let mut sector = [0; SECTOR];
        sector[..5].copy_from_slice(b"hello");
        Seal::of(7, 3).close(20, 9, 1, &mut sector);
        sector
    }

    #[test]
    fn every_flipped_bit_of_a_written_sector_is_rot() {
        for bit in 0..SECTOR * 8 {
            let mut sector = sealed();
            sector[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Seal::of(7, 3).state(20, &sector), State::Rotten, "bit {bit}");
        }
    }

    #[test]
    fn a_sector_is_valid_only_in_its_place() {
        assert_eq!(Seal::of(7, 3).state(20, &sealed()), State::Valid { batch: 9, position: 1 });
        assert_eq!(Seal::of(7, 3).state(21, &sealed()), State::Rotten, "another place");
        assert_eq!(Seal::of(7, 4).state(20, &sealed()), State::Rotten, "another use of the segment");
        assert_eq!(Seal::of(8, 3).state(20, &sealed()), State::Rotten, "another directory");
    }

    #[test]
    fn a_write_that_was_cut_is_not_rot() {
        for length in (0..SECTOR).step_by(4) {
            let mut sector = sealed();
            sector[length..].fill(0);
            let expected = if length == 0 { State::Blank } else { State::Unfinished };
            assert_eq!(Seal::of(7, 3).state(20, &sector), expected, "cut after {length} bytes");
        }
    }
}
