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
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

mod search;

use search::read_lives;

/// First bytes of each file: a name, and the version of the format.
pub(crate) const MAGIC: &[u8; 8] = b"HUSTREC1";
/// A ring consists of so many files once it is full, so that at most a small part of the past goes at a time.
const PARTS: u64 = 8;
/// And of so many when many short lives were written.
const FILES_MAX: usize = 64;
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
