//! The search for files in the bytes of a recording, and for the notes in each: [`read_lives`].
//!
//! A recording comes from other members and in bug reports, so it may have been made up, and every look through it comes to an end.

use super::{FILES_MAX, MAGIC, MICROS_MAX, Recording};
use crate::lasting;
use crate::shape::{Life, Note, NoteKind};
use bytes::{Buf, Bytes};
use hustings_core::Wire;

/// Longest encoded note, in bytes: a birth with all entries that are kept.
const NOTE_BYTES_MAX: usize = 64 << 20;
/// Most files of one kind that are read of one member: a ring has [`FILES_MAX`], and a story compares each life with each other.
const FILES_READ_MAX: usize = 16 * FILES_MAX;
/// The bytes of a recording are searched and checked so many times at most. Of one that was written each is searched and checked once, and
/// searched once more where it lies in a damaged note.
const SEARCHES_MAX: usize = 16;

/// The lives in the files that begin with this name, the oldest first.
pub(super) fn read_lives(bytes: &Bytes, magic: &'static [u8; 8]) -> Vec<Recording> {
    let mut lives: Vec<Recording> = Vec::new();
    let mut search = Search::of(bytes, magic);
    search.read(&mut lives);
    if search.is_used_up()
        && let Some(life) = lives.last_mut()
    {
        let what = "more than any member writes must be searched here: what comes after this is left out";
        life.damaged(search.reached, what.to_owned());
    }
    lives
}

/// The end of a file.
struct FileRead {
    /// Offset behind its last whole note.
    end: usize,
    /// Whether it ends in the middle of a note.
    is_cut_off: bool,
}

/// One look through the bytes of a recording for the files that begin with a name. It comes to an end however they were made up: notes
/// that say to be long may lie one in the other, and each is checked to its end.
struct Search<'a> {
    bytes: &'a Bytes,
    magic: &'static [u8; 8],
    /// Bytes that may still be searched and checked.
    bytes_left: usize,
    files_left: usize,
    /// Offset of the last file that was begun.
    reached: usize,
}

impl Search<'_> {
    fn of<'a>(bytes: &'a Bytes, magic: &'static [u8; 8]) -> Search<'a> {
        let bytes_left = bytes.len().saturating_mul(SEARCHES_MAX);
        Search { bytes, magic, bytes_left, files_left: FILES_READ_MAX, reached: 0 }
    }

    fn is_used_up(&self) -> bool {
        self.bytes_left == 0 || self.files_left == 0
    }

    fn spend(&mut self, bytes: usize) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
    }

    /// Adds the notes of all files to the lives, as far as it may.
    fn read(&mut self, lives: &mut Vec<Recording>) {
        let mut start = self.find(0);
        let mut is_cut_off = false;
        while let Some(at) = start.filter(|_| !self.is_used_up()) {
            let read = self.read_file(at, is_cut_off, lives);
            is_cut_off = read.is_cut_off;
            start = match self.bytes[read.end..].starts_with(self.magic) {
                // Also where its first note is damaged: that something was here must be known.
                true => Some(read.end),
                false => self.find(read.end),
            };
        }
    }

    /// Offset of the next file's beginning, from here on.
    fn find(&mut self, from: usize) -> Option<usize> {
        self.find_before(self.magic, from, self.bytes.len())
    }

    /// Offset of the first beginning of a file between two offsets: its name, and the life that wrote it. The name alone may stand in a
    /// note, in an error or a setting.
    fn find_before(&mut self, magic: &[u8; 8], mut from: usize, to: usize) -> Option<usize> {
        let end = self.bytes.len().min(to.saturating_add(magic.len() - 1));
        while !self.is_used_up() {
            let searched = self.bytes.get(from..end)?;
            let place = searched.windows(magic.len()).position(|window| window == magic);
            self.spend(place.unwrap_or(searched.len()));
            let at = from + place?;
            let first = self.next_note(&mut self.bytes.slice(at + magic.len()..));
            if matches!(first, Ok(Some(Note { kind: NoteKind::Life(_), .. }))) {
                return Some(at);
            }
            from = at + 1;
        }
        None
    }

    /// Takes a note off; `None` where no whole one is left.
    fn next_note(&mut self, rest: &mut Bytes) -> Result<Option<Note>, Unread> {
        let before = rest.len();
        let note = next_note(rest);
        self.spend(match &note {
            Ok(_) => before - rest.len(),
            Err(unread) => unread.end,
        });
        note
    }

    /// Whether a file begins within a note that cannot be read, so that the note was cut off: it says to have so many bytes from `end` on.
    fn is_cut_off_at(&mut self, end: usize, claimed: usize) -> bool {
        // The last note of the marks may be read while it is written anew.
        let may_be_torn = self.magic == lasting::MAGIC;
        let to = end + claimed + usize::from(may_be_torn);
        [MAGIC, lasting::MAGIC].iter().any(|magic| self.find_before(magic, end, to).is_some())
    }

    /// Adds the notes of the file that begins here to the lives. Takes whether the file before it ended in the middle of a note.
    fn read_file(&mut self, begin: usize, was_cut_off: bool, lives: &mut Vec<Recording>) -> FileRead {
        (self.reached, self.files_left) = (begin, self.files_left - 1);
        let offset = begin + self.magic.len();
        let begins_a_file = |rest: &Bytes| rest.starts_with(MAGIC) || rest.starts_with(lasting::MAGIC);
        let mut rest = self.bytes.slice(offset..);
        let mut is_first = true;
        // No note is as long as the name of the next file would say.
        while !rest.is_empty() && (is_first || !begins_a_file(&rest)) {
            let end = self.bytes.len() - rest.len();
            let note = match self.next_note(&mut rest) {
                Ok(Some(note)) => note,
                // Written by a process that was killed, or cut off while it was read.
                Ok(None) => return FileRead { end, is_cut_off: true },
                // The next file begins within it: it was cut off as well.
                Err(Unread { end: claimed, .. }) if self.is_cut_off_at(end, claimed) => {
                    return FileRead { end, is_cut_off: true };
                }
                Err(Unread { what, .. }) => {
                    if let Some(life) = lives.last_mut() {
                        life.damaged(end, what);
                    }
                    return FileRead { end: end + 1, is_cut_off: false };
                }
            };
            match (is_first, note.kind) {
                (true, NoteKind::Life(life)) => {
                    if lives.last().is_some_and(|last| life.is_continued && last.life.is_same_process(&life)) {
                        // Where the process went on, the file before this one was whole once.
                        if let Some(life) = lives.last_mut().filter(|_| was_cut_off) {
                            life.damaged(offset, "the file before it ends in the middle of a note".to_owned());
                        }
                        if let Some(before) = lives.last_mut() {
                            before.goes_on(life);
                        }
                    } else {
                        lives.push(Recording { life, notes: Vec::new(), damage: Vec::new() });
                    }
                }
                // A file that nobody wrote so.
                (true, _) => return FileRead { end, is_cut_off: was_cut_off },
                (false, kind) => {
                    if let Some(life) = lives.last_mut() {
                        life.notes.push(Note { at_micros: note.at_micros, kind });
                    }
                }
            }
            is_first = false;
        }
        FileRead { end: self.bytes.len() - rest.len(), is_cut_off: false }
    }
}

/// A note that cannot be read.
struct Unread {
    /// The damage, in words.
    what: String,
    /// Bytes that it says to have, with its head.
    end: usize,
}

fn next_note(rest: &mut Bytes) -> Result<Option<Note>, Unread> {
    const HEAD: usize = 8;
    if rest.len() < HEAD {
        return Ok(None);
    }
    let mut head = rest.slice(..HEAD);
    let (length, digest) = (head.get_u32_le() as usize, head.get_u32_le());
    if length > NOTE_BYTES_MAX {
        return Err(Unread { what: format!("a note of {length} bytes"), end: HEAD });
    }
    let end = HEAD + length;
    if rest.len() < end {
        return Ok(None);
    }
    let body = rest.slice(HEAD..end);
    let unread = |what: String| Unread { what, end };
    if crc32c::crc32c(&body) != digest {
        return Err(unread("its checksum is another".into()));
    }
    let note = Note::decode(body).map_err(|error| unread(error.to_string()))?;
    let is_a_time = |life: &Life| life.boot_micros <= MICROS_MAX && life.unix_micros <= MICROS_MAX;
    if note.at_micros > MICROS_MAX || matches!(&note.kind, NoteKind::Life(life) if !is_a_time(life)) {
        return Err(unread("a time that no clock shows".into()));
    }
    rest.advance(end);
    Ok(Some(note))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mark::Mark;
    use crate::ring::{Ring, read_all};
    use crate::tape::put_note;
    use bytes::BytesMut;

    /// A file with nothing but the life that wrote it, and the head of a note whose checksum is wrong, which says to be so long.
    fn file_with_a_damaged_note(number: u64, claimed: u32) -> BytesMut {
        let life = Life { name: "n1".into(), boot_micros: number, unix_micros: number, ..Life::default() };
        let mut file = BytesMut::from(&MAGIC[..]);
        put_note(&mut file, &Note { at_micros: number, kind: NoteKind::Life(life) });
        file.extend_from_slice(&claimed.to_le_bytes());
        file.extend_from_slice(&[0xff; 4]);
        file
    }

    fn recording_of(files: usize, claimed: u32) -> Bytes {
        let files = (0..files as u64).flat_map(|number| file_with_a_damaged_note(number, claimed));
        files.chain(std::iter::repeat_n(0, 1 << 20)).collect()
    }

    /// The number of lives in these bytes, and of bytes that were searched and checked for them.
    fn read_counting(bytes: &Bytes) -> (usize, usize) {
        let mut search = Search::of(bytes, MAGIC);
        let (all, mut lives) = (search.bytes_left, Vec::new());
        search.read(&mut lives);
        (lives.len(), all - search.bytes_left)
    }

    /// Goal: found by a hostile reader: for each damaged note all that followed it was searched, so a recording that was made up kept `why`
    /// busy for hours. Method: a thousand files with a damaged note each, before a megabyte of nothing; and a ring that was really written.
    #[test]
    fn a_damaged_note_is_searched_and_not_what_follows_it() {
        let bytes = recording_of(1_000, 0);
        let (lives, searched) = read_counting(&bytes);
        assert_eq!(lives, 1_000);
        assert!(searched < 3 * bytes.len(), "{searched} of {}", bytes.len());

        let directory = tempfile::tempdir().expect("there is room");
        let mut ring = Ring::begin(directory.path(), MAGIC, Life::default(), 1 << 20).expect("it can be");
        let mut note = BytesMut::new();
        let mark = Mark::LinkUp { peer: "x".repeat(1_000) };
        put_note(&mut note, &Note { at_micros: 1, kind: NoteKind::Mark(mark) });
        (0..2_000).for_each(|_| ring.write(&note));
        let bytes = Bytes::from(read_all(directory.path()).expect("it is there"));
        assert!(bytes.len() > 1 << 19, "{}", bytes.len());
        let (lives, searched) = read_counting(&bytes);
        assert_eq!(lives, 1);
        assert!(searched < 3 * bytes.len(), "{searched} of {}", bytes.len());
    }

    /// Goal: reading comes to an end, and what was left out is told. Method: notes that say to be a megabyte long and lie one in the other,
    /// each of which is checked to its end; and more files than any member has.
    #[test]
    fn a_recording_that_was_made_up_is_read_as_far_as_is_reasonable() {
        for (bytes, lives_max) in
            [(recording_of(1_000, 1 << 20), 100), (recording_of(2 * FILES_READ_MAX, 0), FILES_READ_MAX + 1)]
        {
            let lives = Recording::read(bytes);
            assert!(lives.len() < lives_max, "{}", lives.len());
            let told = lives.last().and_then(|life| life.damage.last()).expect("it is damaged");
            assert!(told.what.contains("what comes after this is left out"), "{told:?}");
        }
    }
}
