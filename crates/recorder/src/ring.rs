//! The files of a recording: [`Ring`] writes them, [`Recording`] is what is read of one life.
//!
//! A ring is a directory of numbered files, the newest of which grows; when all of them would hold more than they may,
//! the oldest goes. Each begins with [`MAGIC`] and the [`Life`] that wrote it, so that files can be read alone, or one
//! after the other as one. An unfinished or damaged note ends that file, and nothing else. What stays when files go is in
//! [`crate::lasting`].

use crate::lasting;
use crate::mark::Mark;
use crate::shape::{Life, Note, NoteKind};
use crate::tape::{boot_micros, both_clocks_micros, put_note};
use bytes::{Buf, Bytes, BytesMut};
use hustings_core::Wire;
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// First bytes of each file: a name, and the version of the format.
pub(crate) const MAGIC: &[u8; 8] = b"HUSTREC1";
/// A ring consists of so many files once it is full, so that at most a small part of the past goes at a time.
const PARTS: u64 = 8;
/// And of so many when many short lives were written.
const FILES_MAX: usize = 64;
/// Longest encoded note, in bytes: a birth with all entries that are kept.
const NOTE_BYTES_MAX: usize = 64 << 20;
/// The latest time that a clock shows, in microseconds: the end of the year 9999. Beyond it there is no date, and sums overflow.
pub const MICROS_MAX: u64 = 253_402_300_799_999_999;
/// Most bytes that are read of one member: rings are smaller by far, and whatever else a path names may have no end.
const READ_BYTES_MAX: u64 = 1 << 30;
/// Pause after a file could not be written, before the next is tried.
const PAUSE: Duration = Duration::from_secs(1);

/// The files of one directory, and the life that writes.
pub(crate) struct Ring {
    directory: PathBuf,
    magic: &'static [u8; 8],
    life: Life,
    bytes_max: u64,
    /// Number and length, the oldest first.
    files: VecDeque<(u64, u64)>,
    current: Option<File>,
    /// Beginning of the time in which notes cannot be written.
    is_broken_since: Option<Instant>,
    has_begun: bool,
    /// Bytes at the end of the newest file that the next ones replace.
    provisional_bytes: usize,
}

fn name_of(number: u64) -> String {
    format!("{number:010}")
}

impl Ring {
    pub(crate) fn begin(directory: &Path, magic: &'static [u8; 8], life: Life, bytes_max: u64) -> io::Result<Ring> {
        let mut ring = Ring::of(directory, magic, life, bytes_max)?;
        ring.open()?;
        Ok(ring)
    }

    /// The same, which tries again later where its first file cannot be written.
    pub(crate) fn begin_if_possible(
        directory: &Path,
        magic: &'static [u8; 8],
        life: Life,
        bytes_max: u64,
    ) -> io::Result<Ring> {
        let mut ring = Ring::of(directory, magic, life, bytes_max)?;
        let _ = ring.open();
        Ok(ring)
    }

    fn of(directory: &Path, magic: &'static [u8; 8], life: Life, bytes_max: u64) -> io::Result<Ring> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let files = files_in(directory)?.into_iter().collect();
        let directory = directory.to_owned();
        Ok(Ring {
            directory,
            magic,
            life,
            bytes_max,
            files,
            current: None,
            is_broken_since: None,
            has_begun: false,
            provisional_bytes: 0,
        })
    }

    /// Begins the next file, and removes the oldest that there is no room for.
    fn open(&mut self) -> io::Result<()> {
        let number = self.files.back().map_or(1, |(number, _)| number + 1);
        let part = self.bytes_max / PARTS;
        while self.files.iter().map(|(_, length)| length).sum::<u64>() + part > self.bytes_max
            || self.files.len() >= FILES_MAX
        {
            let Some((oldest, _)) = self.files.pop_front() else { break };
            match fs::remove_file(self.directory.join(name_of(oldest))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let path = self.directory.join(name_of(number));
        let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?;
        let (boot_micros, unix_micros) = both_clocks_micros();
        let life = Life { boot_micros, unix_micros, is_continued: self.has_begun, ..self.life.clone() };
        let mut bytes = BytesMut::from(&self.magic[..]);
        put_note(&mut bytes, &Note { at_micros: boot_micros, kind: NoteKind::Life(life) });
        self.files.push_back((number, 0));
        self.provisional_bytes = 0;
        self.append(&file, &bytes)?;
        self.current = Some(file);
        self.has_begun = true;
        Ok(())
    }

    /// Writes at the end of the newest file, in place of what is there provisionally.
    fn append(&mut self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        let replaced = std::mem::take(&mut self.provisional_bytes);
        let Some((_, length)) = self.files.back_mut() else { return Ok(()) };
        *length -= replaced as u64;
        if replaced > 0 {
            file.seek(SeekFrom::Start(*length))?;
        }
        file.write_all(bytes)?;
        *length += bytes.len() as u64;
        if bytes.len() < replaced { file.set_len(*length) } else { Ok(()) }
    }

    /// Writes whole notes that those of the next call replace.
    pub(crate) fn write_provisionally(&mut self, bytes: &[u8]) {
        self.write(bytes);
        if self.is_broken_since.is_none() {
            self.provisional_bytes = bytes.len();
        }
    }

    /// Writes whole notes. Notes that cannot be written are lost, and that is said once.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        if self.is_broken_since.is_some_and(|since| since.elapsed() < PAUSE) {
            return;
        }
        match self.try_write(bytes) {
            Ok(()) => self.is_broken_since = None,
            Err(error) => {
                if self.is_broken_since.is_none() {
                    tracing::warn!(
                        directory = %self.directory.display(),
                        "what happens is not recorded for now: {error}; nothing else depends on it"
                    );
                }
                self.is_broken_since = Some(Instant::now());
                // There may be half a note at its end.
                self.current = None;
            }
        }
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = self.files.back().map_or(0, |(_, length)| *length);
        let was_broken = self.is_broken_since.is_some();
        if self.current.is_none() || length > 0 && length + bytes.len() as u64 > self.bytes_max / PARTS {
            self.open()?;
        }
        let Some(file) = self.current.take() else { return Ok(()) };
        if was_broken {
            let mut mark = BytesMut::new();
            let lost = NoteKind::Mark(Mark::Lost { count: 0 });
            put_note(&mut mark, &Note { at_micros: boot_micros(), kind: lost });
            self.append(&file, &mark)?;
        }
        self.append(&file, bytes)?;
        self.current = Some(file);
        Ok(())
    }
}

/// Numbers and lengths of the files in a ring's directory, in order; whatever else is there is none of them.
fn files_in(directory: &Path) -> io::Result<Vec<(u64, u64)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if let Some(number) = name.to_str().filter(|name| name.len() == 10).and_then(|name| name.parse().ok()) {
            files.push((number, entry.metadata()?.len()));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// The content of a directory as it is sent to a reader: its files, one after the other, the lasting marks first.
///
/// # Errors
/// The directory or a file cannot be read.
pub fn read_all(directory: &Path) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    for directory in directories_of(directory) {
        read_files(&directory, &mut all)?;
    }
    Ok(all)
}

/// The directories of a recording, that of the lasting marks first, if there is one.
fn directories_of(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let marks = Some(directory.join(lasting::DIRECTORY)).filter(|marks| marks.is_dir());
    marks.into_iter().chain([directory.to_path_buf()])
}

/// The number of bytes that [`read_all`] would read now.
///
/// # Errors
/// As [`read_all`].
pub fn length_of_all(directory: &Path) -> io::Result<usize> {
    let mut bytes = 0;
    for directory in directories_of(directory) {
        bytes += files_in(&directory)?.iter().map(|(_, length)| length).sum::<u64>();
    }
    Ok(usize::try_from(bytes.min(READ_BYTES_MAX)).unwrap_or(usize::MAX))
}

fn read_files(directory: &Path, all: &mut Vec<u8>) -> io::Result<()> {
    for (number, _) in files_in(directory)? {
        let path = directory.join(name_of(number));
        match read_bounded(&path, READ_BYTES_MAX.saturating_sub(all.len() as u64)) {
            // The ring went on meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            read => {
                all.extend(read.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", name_of(number))))?)
            }
        }
    }
    Ok(())
}

/// Reads a file, unless it is none or has more bytes than these: a pipe would be waited for, and a device has no end.
fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > bytes_max {
        true => Err(io::Error::other(format!("a recording of more than {READ_BYTES_MAX} bytes is read by nobody"))),
        false => Ok(bytes),
    }
}

/// The reason why there is nothing to read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// A file or directory cannot be read.
    #[error("{path}: it cannot be read: {error}")]
    Unreadable {
        /// Path of the file or directory.
        path: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The file or directory is something else.
    #[error(
        "{0}: this is no recording of a member; one is in DATA-DIR/recording, unless it ran with `--ring off`, or what GET /v1/recording answers"
    )]
    NoRecording(String),
}

/// A place where notes of a file cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Bytes from the beginning of what was read.
    pub offset: usize,
    /// The damage, in words.
    pub what: String,
}

/// The notes of one life of one member, as far as they are left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recording {
    /// The member and the process that wrote them.
    pub life: Life,
    /// The notes, in order.
    pub notes: Vec<Note>,
    /// Places where notes are missing that cannot be read. An unfinished last note is none: a killed process leaves one.
    pub damage: Vec<Damage>,
}

impl Recording {
    /// The lives in a ring's directory, in a data directory, or in a file of what a member answered; the oldest first.
    ///
    /// # Errors
    /// It cannot be read, or is no recording.
    pub fn open(path: &Path) -> Result<Vec<Recording>, RecordingError> {
        Recording::open_with_bytes(path).map(|(lives, _)| lives)
    }

    /// The same, with the bytes that were read.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn open_with_bytes(path: &Path) -> Result<(Vec<Recording>, Bytes), RecordingError> {
        let name = path.display().to_string();
        let unreadable = |error| RecordingError::Unreadable { path: name.clone(), error };
        let within = path.join("recording");
        let bytes = match fs::metadata(path).map_err(unreadable)?.is_dir() {
            true if within.is_dir() => read_all(&within).map_err(unreadable)?,
            true => read_all(path).map_err(unreadable)?,
            false => read_bounded(path, READ_BYTES_MAX).map_err(unreadable)?,
        };
        let bytes = Bytes::from(bytes);
        let lives = Recording::read(bytes.clone());
        if lives.is_empty() { Err(RecordingError::NoRecording(name)) } else { Ok((lives, bytes)) }
    }

    /// The lives in these bytes, the oldest first. Never fails: what cannot be read is damage.
    pub fn read(bytes: Bytes) -> Vec<Recording> {
        let marks = read_lives(&bytes, lasting::MAGIC);
        lasting::join(marks, read_lives(&bytes, MAGIC))
    }

    /// Those that are the same life, read in two ways, once: what was noted last is in the longer one.
    pub fn distinct(lives: &[Recording]) -> Vec<&Recording> {
        let mut distinct: Vec<&Recording> = Vec::new();
        for life in lives {
            let place = distinct.iter().position(|other| other.is_same_life(life));
            match place {
                Some(place) if distinct[place].reach() < life.reach() => distinct[place] = life,
                Some(_) => {}
                None => distinct.push(life),
            }
        }
        distinct
    }

    /// Whether both are of one process, at one time: containers give each of their processes the same number.
    pub(crate) fn is_same_life(&self, other: &Recording) -> bool {
        let overlap = |one: &Recording, two: &Recording| one.life.boot_micros <= two.end_micros();
        self.life.is_same_process(&other.life) && overlap(self, other) && overlap(other, self)
    }

    fn reach(&self) -> (u64, usize) {
        (self.end_micros(), self.notes.len())
    }

    /// The life goes on in another file, which begins with a later reading of both clocks. Notes that had waited for that file are older
    /// than it, so this one stands at the time of the last note before.
    pub(crate) fn goes_on(&mut self, life: Life) {
        self.notes.push(Note { at_micros: self.end_micros(), kind: NoteKind::Life(life) });
    }

    /// Notes are missing here: a replay of the life must not go on beyond it.
    fn damaged(&mut self, offset: usize, what: String) {
        self.damage.push(Damage { offset, what });
        let lost = NoteKind::Mark(Mark::Lost { count: 0 });
        self.notes.push(Note { at_micros: self.end_micros(), kind: lost });
    }

    /// Time of the last note, by the boot clock, in microseconds.
    pub fn end_micros(&self) -> u64 {
        self.notes.last().map_or(self.life.boot_micros, |note| note.at_micros)
    }
}

/// The lives in the files that begin with this name, the oldest first.
fn read_lives(bytes: &Bytes, magic: &[u8; 8]) -> Vec<Recording> {
    let mut lives: Vec<Recording> = Vec::new();
    let mut start = find_file(bytes, magic, 0);
    let mut is_cut_off = false;
    while let Some(at) = start {
        let read = read_file(bytes, magic, at, is_cut_off, &mut lives);
        is_cut_off = read.is_cut_off;
        start = match bytes[read.end..].starts_with(magic) {
            // Also where its first note is damaged: that something was here must be known.
            true => Some(read.end),
            false => find_file(bytes, magic, read.end),
        };
    }
    lives
}

/// Offset of the next file's beginning, from here on: its name, and the life that wrote it. The name alone may stand in a note, in an
/// error or a setting.
fn find_file(bytes: &Bytes, magic: &[u8; 8], from: usize) -> Option<usize> {
    let places = bytes.get(from..)?.windows(magic.len()).enumerate().filter(|(_, window)| window == magic);
    let is_file = |at: &usize| {
        let first = next_note(&mut bytes.slice(at + magic.len()..));
        matches!(first, Ok(Some(Note { kind: NoteKind::Life(_), .. })))
    };
    places.map(|(place, _)| from + place).find(is_file)
}

/// The end of a file.
struct FileRead {
    /// Offset behind its last whole note.
    end: usize,
    /// Whether it ends in the middle of a note.
    is_cut_off: bool,
}

/// Adds the notes of the file that begins here to the lives. Takes whether the file before it ended in the middle of a note.
fn read_file(bytes: &Bytes, magic: &[u8; 8], begin: usize, was_cut_off: bool, lives: &mut Vec<Recording>) -> FileRead {
    let offset = begin + magic.len();
    let begins_a_file = |rest: &Bytes| rest.starts_with(MAGIC) || rest.starts_with(lasting::MAGIC);
    // The last note of the marks may be read while it is written anew.
    let may_be_torn = magic == lasting::MAGIC;
    let is_cut_off_at = |end: usize, claimed: usize| {
        let is_within = |next: usize| next < end + claimed || may_be_torn && next == end + claimed;
        [MAGIC, lasting::MAGIC].iter().any(|magic| find_file(bytes, magic, end).is_some_and(is_within))
    };
    let mut rest = bytes.slice(offset..);
    let mut is_first = true;
    // No note is as long as the name of the next file would say.
    while !rest.is_empty() && (is_first || !begins_a_file(&rest)) {
        let end = bytes.len() - rest.len();
        let note = match next_note(&mut rest) {
            Ok(Some(note)) => note,
            // Written by a process that was killed, or cut off while it was read.
            Ok(None) => return FileRead { end, is_cut_off: true },
            // The next file begins within it: it was cut off as well.
            Err(Unread { end: claimed, .. }) if is_cut_off_at(end, claimed) => {
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
    FileRead { end: bytes.len() - rest.len(), is_cut_off: false }
}

/// A note that cannot be read.
struct Unread {
    /// The damage, in words.
    what: String,
    /// Bytes that it says to have, with its head.
    end: usize,
}

/// Takes a note off; `None` where no whole one is left.
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
