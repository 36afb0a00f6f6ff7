//! The files of a recording: [`Ring`] writes them, [`Recording`] is what is read of one life.
//!
//! A ring is a directory of numbered files, the newest of which grows; when all of them would hold more than they may,
//! the oldest goes. Each begins with [`MAGIC`] and the [`Life`] that wrote it, so that files can be read alone, or one
//! after the other as one. An unfinished or damaged note ends that file, and nothing else.

use crate::mark::Mark;
use crate::shape::{Life, Note, NoteKind};
use crate::tape::{boot_micros, put_note, unix_micros};
use bytes::{Buf, Bytes, BytesMut};
use hustings_core::Wire;
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// First bytes of each file: a name, and the version of the format.
const MAGIC: &[u8; 8] = b"HUSTREC1";
/// A ring consists of so many files once it is full, so that at most a small part of the past goes at a time.
const PARTS: u64 = 8;
/// And of so many when many short lives were written.
const FILES_MAX: usize = 64;
/// Longest encoded note, in bytes: a birth with all entries that are kept.
const NOTE_BYTES_MAX: usize = 64 << 20;
/// Pause after a file could not be written, before the next is tried.
const PAUSE: Duration = Duration::from_secs(1);

/// The files of one directory, and the life that writes.
pub(crate) struct Ring {
    directory: PathBuf,
    life: Life,
    bytes_max: u64,
    /// Number and length, the oldest first.
    files: VecDeque<(u64, u64)>,
    current: Option<File>,
    /// Bytes that could not be written since the last file.
    is_broken_since: Option<Instant>,
    has_begun: bool,
}

fn name_of(number: u64) -> String {
    format!("{number:010}")
}

impl Ring {
    pub(crate) fn begin(directory: &Path, life: Life, bytes_max: u64) -> io::Result<Ring> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let files = files_in(directory)?.into_iter().collect();
        let directory = directory.to_owned();
        let mut ring =
            Ring { directory, life, bytes_max, files, current: None, is_broken_since: None, has_begun: false };
        ring.open()?;
        Ok(ring)
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
        let mut file = OpenOptions::new().create_new(true).append(true).mode(0o600).open(path)?;
        let (boot_micros, unix_micros) = (boot_micros(), unix_micros());
        let life = Life { boot_micros, unix_micros, is_continued: self.has_begun, ..self.life.clone() };
        let mut bytes = BytesMut::from(&MAGIC[..]);
        put_note(&mut bytes, &Note { at_micros: boot_micros, kind: NoteKind::Life(life) });
        self.files.push_back((number, 0));
        file.write_all(&bytes)?;
        self.grow(bytes.len());
        self.current = Some(file);
        self.has_begun = true;
        Ok(())
    }

    fn grow(&mut self, bytes: usize) {
        if let Some((_, length)) = self.files.back_mut() {
            *length += bytes as u64;
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
        let Some(file) = &mut self.current else { return Ok(()) };
        if was_broken {
            let mut mark = BytesMut::new();
            let lost = NoteKind::Mark(Mark::Lost { count: 0 });
            put_note(&mut mark, &Note { at_micros: boot_micros(), kind: lost });
            file.write_all(&mark)?;
        }
        file.write_all(bytes)?;
        self.grow(bytes.len());
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

/// The content of a directory as it is sent to a reader: its files, one after the other.
///
/// # Errors
/// The directory or a file cannot be read.
pub fn read_all(directory: &Path) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    for (number, _) in files_in(directory)? {
        match fs::read(directory.join(name_of(number))) {
            // The ring went on meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            read => all.extend(read?),
        }
    }
    Ok(all)
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
    #[error("{0}: this is no recording of a member; one is in DATA-DIR/recording, or what GET /v1/recording answers")]
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
            false => fs::read(path).map_err(unreadable)?,
        };
        let bytes = Bytes::from(bytes);
        let lives = Recording::read(bytes.clone());
        if lives.is_empty() { Err(RecordingError::NoRecording(name)) } else { Ok((lives, bytes)) }
    }

    /// The lives in these bytes, the oldest first. Never fails: what cannot be read is damage.
    pub fn read(bytes: Bytes) -> Vec<Recording> {
        let mut lives: Vec<Recording> = Vec::new();
        let mut start = find(&bytes, 0);
        let mut is_cut_off = false;
        while let Some(at) = start {
            let end = find(&bytes, at + MAGIC.len()).unwrap_or(bytes.len());
            let file = bytes.slice(at + MAGIC.len()..end);
            is_cut_off = read_file(&file, at + MAGIC.len(), is_cut_off, &mut lives);
            start = (end < bytes.len()).then_some(end);
        }
        lives
    }

    /// Converts a time of this life to the wall clock as it went when the life began, in microseconds since 1970.
    pub fn unix_micros(&self, at_micros: u64) -> u64 {
        let Life { boot_micros, unix_micros, .. } = self.life;
        (unix_micros + at_micros).saturating_sub(boot_micros)
    }

    /// Notes are missing here: whoever plays the life again must not go on beyond it.
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

/// Offset of the next file's beginning; `None` if there is none.
fn find(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(MAGIC.len()).position(|window| window == MAGIC).map(|place| from + place)
}

/// Adds the notes of a file to the lives. Takes whether the file before it ended in the middle of a note, and returns whether this
/// one does.
fn read_file(file: &Bytes, offset: usize, was_cut_off: bool, lives: &mut Vec<Recording>) -> bool {
    let mut rest = file.clone();
    let mut is_first = true;
    while !rest.is_empty() {
        let at = offset + (file.len() - rest.len());
        let note = match next_note(&mut rest) {
            Ok(Some(note)) => note,
            // Written by a process that was killed, or cut off while it was read.
            Ok(None) => return true,
            Err(what) => {
                if let Some(life) = lives.last_mut() {
                    life.damaged(at, what);
                }
                return false;
            }
        };
        match (is_first, note.kind) {
            (true, NoteKind::Life(life)) => {
                let is_next = |last: &Recording| {
                    let same = |life: &Life| (life.member_id, life.process_id, life.boot_id.clone());
                    life.is_continued && same(&last.life) == same(&life)
                };
                if lives.last().is_some_and(is_next) {
                    // Where the process went on, the file before this one was whole once.
                    if let Some(life) = lives.last_mut().filter(|_| was_cut_off) {
                        life.damaged(offset, "the file before it ends in the middle of a note".to_owned());
                    }
                } else {
                    lives.push(Recording { life, notes: Vec::new(), damage: Vec::new() });
                }
            }
            // A file that nobody wrote so.
            (true, _) => return was_cut_off,
            (false, kind) => {
                if let Some(life) = lives.last_mut() {
                    life.notes.push(Note { at_micros: note.at_micros, kind });
                }
            }
        }
        is_first = false;
    }
    false
}

/// Takes a note off; `None` where no whole one is left.
fn next_note(rest: &mut Bytes) -> Result<Option<Note>, String> {
    if rest.len() < 8 {
        return Ok(None);
    }
    let mut head = rest.slice(..8);
    let (length, digest) = (head.get_u32_le() as usize, head.get_u32_le());
    if length > NOTE_BYTES_MAX {
        return Err(format!("a note of {length} bytes"));
    }
    if rest.len() < 8 + length {
        return Ok(None);
    }
    let body = rest.slice(8..8 + length);
    if crc32c::crc32c(&body) != digest {
        return Err("its checksum is another".into());
    }
    rest.advance(8 + length);
    Note::decode(body).map(Some).map_err(|error| error.to_string())
}
