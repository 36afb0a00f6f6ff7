//! Notes in memory that wait for the thread that writes them: [`Tape`], and that thread: [`Recorder`].
//!
//! A note is copied into memory, at most [`WAITING_BYTES_MAX`] of them, and its writer goes on. The thread writes what is there
//! every [`WRITE_EVERY`], and at once when something is noted that will be asked for: a transition, a stop, an end. Notes in a
//! file survive the process; of a process that is killed the last fraction of a second of routine is missing.

use crate::lasting::{LastingMarks, is_lasting};
use crate::mark::Mark;
use crate::ring::{MAGIC, Ring};
use crate::shape::{Birth, Life, Note, NoteKind, RecordedInput};
use bytes::{BufMut, BytesMut};
use hustings_core::Wire;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Longest time that a routine note waits for its way to a file.
const WRITE_EVERY: Duration = Duration::from_millis(250);
/// More waiting bytes than this are written at once.
const WRITE_BYTES: usize = 256 << 10;
/// Most bytes that wait in memory while no file can be written; later notes are counted and lost.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// Longest time that the end of a node waits for its last notes.
const SETTLE_WITHIN: Duration = Duration::from_millis(300);
/// How often both clocks are read for one moment, at most.
const TRIES_FOR_BOTH: usize = 8;

/// A handle with which anybody can note something.
#[derive(Clone, Debug)]
pub struct Tape(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Something is to be written.
    wanted: Condvar,
    /// The thread has written its notes.
    written: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: BytesMut,
    /// The marks among them once more.
    marks: BytesMut,
    /// Notes that found no room.
    lost: u64,
    is_urgent: bool,
    /// The thread sleeps until somebody wakes it.
    is_asleep: bool,
    /// The thread is writing what it took.
    is_writing: bool,
    has_ended: bool,
    /// The input that the protocol has not answered: the one it panicked at, if it never does.
    unanswered: Option<RecordedInput>,
}

/// The tapes of this process that have files.
static TAPES: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Notes a panic on every tape, with the last input of its protocol, and waits until it is written; never for long. For
/// the hook that is called when a thread panics, and ends the process.
pub fn note_panic(why: &str) {
    let Ok(tapes) = TAPES.try_lock() else { return };
    for tape in tapes.iter().filter_map(Weak::upgrade).map(Tape) {
        // A thread that panics while holding the lock has nothing more to say.
        let Ok(mut waiting) = tape.0.waiting.try_lock() else { continue };
        let told = waiting.unanswered.take();
        drop(waiting);
        if let Some(told) = told {
            tape.note(NoteKind::Told(told, None), false);
        }
        tape.mark(Mark::Ended { why: why.to_owned() });
        tape.settle();
    }
}

/// Microseconds since the machine was started, time in suspend included.
pub fn boot_micros() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let micros = u64::try_from(now.tv_nsec / 1_000).unwrap_or(0);
    seconds.saturating_mul(1_000_000).saturating_add(micros)
}

/// Microseconds since 1970, by the wall clock.
pub fn unix_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Both clocks as of one moment: [`boot_micros`] and [`unix_micros`].
///
/// A thread can be put aside between two readings. So the wall clock is read between two readings of the boot clock, and of several
/// tries the one counts whose two lie closest.
pub fn both_clocks_micros() -> (u64, u64) {
    let mut closest = (u64::MAX, 0, 0);
    for _ in 0..TRIES_FOR_BOTH {
        let (before, wall, after) = (boot_micros(), unix_micros(), boot_micros());
        let apart = after.saturating_sub(before);
        closest = closest.min((apart, before + apart / 2, wall));
        if apart <= 1 {
            break;
        }
    }
    let (_, boot, wall) = closest;
    (boot, wall)
}

/// Appends a frame: length and CRC32C of the note, and the note.
pub(crate) fn put_note(out: &mut BytesMut, note: &Note) {
    let start = out.len();
    out.put_u64_le(0);
    note.encode(out);
    let body = &out[start + 8..];
    let length = u32::try_from(body.len()).expect("a note is far shorter than 4 GiB");
    let digest = crc32c::crc32c(body);
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&digest.to_le_bytes());
}

impl Default for Tape {
    fn default() -> Tape {
        Tape::new()
    }
}

impl Tape {
    /// A tape that keeps what is noted in memory until [`Recorder::start`] gives it files.
    pub fn new() -> Tape {
        Tape(Arc::new(Shared { waiting: Mutex::default(), wanted: Condvar::new(), written: Condvar::new() }))
    }

    /// Stops keeping notes: there is nobody who writes them.
    pub fn end(&self) {
        let mut waiting = self.lock();
        waiting.has_ended = true;
        waiting.bytes.clear();
        waiting.marks.clear();
        self.0.wanted.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // A panic while it is held leaves at worst half a frame, which readers pass over.
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, kind: NoteKind, is_urgent: bool) {
        let note = Note { at_micros: boot_micros(), kind };
        let mut waiting = self.lock();
        if waiting.has_ended {
            return;
        }
        if waiting.bytes.len() + waiting.marks.len() > WAITING_BYTES_MAX {
            waiting.lost += 1;
            return;
        }
        if waiting.lost > 0 {
            let mark = Mark::Lost { count: std::mem::take(&mut waiting.lost) };
            let lost = Note { at_micros: note.at_micros, kind: NoteKind::Mark(mark) };
            put_note(&mut waiting.bytes, &lost);
            put_note(&mut waiting.marks, &lost);
        }
        put_note(&mut waiting.bytes, &note);
        if matches!(&note.kind, NoteKind::Mark(mark) if is_lasting(mark)) {
            put_note(&mut waiting.marks, &note);
        }
        waiting.is_urgent |= is_urgent;
        // A thread that waits for the time to pass need not be woken, unless it is urgent.
        if std::mem::take(&mut waiting.is_asleep) || is_urgent || waiting.bytes.len() > WRITE_BYTES {
            self.0.wanted.notify_one();
        }
    }

    /// Notes what the host saw.
    pub fn mark(&self, mark: Mark) {
        let is_urgent = matches!(
            mark,
            Mark::Transition { .. }
                | Mark::Membership { .. }
                | Mark::Stopping
                | Mark::Ended { .. }
                | Mark::Asked { .. }
                | Mark::DiskStalled { .. }
        );
        self.note(NoteKind::Mark(mark), is_urgent);
    }

    pub(crate) fn write_birth(&self, birth: Birth, answer: u64) {
        self.note(NoteKind::Birth(birth, answer), false);
    }

    /// Holds the input that the protocol is about to get.
    pub(crate) fn begin(&self, told: RecordedInput) {
        self.lock().unanswered = Some(told);
    }

    /// Notes the pending input with the fingerprint of its answer.
    pub(crate) fn complete(&self, answer: u64) {
        let told = self.lock().unanswered.take();
        if let Some(told) = told {
            self.note(NoteKind::Told(told, Some(answer)), false);
        }
    }

    /// Waits until everything is in a file, but not for a disk that does not answer.
    pub fn settle(&self) {
        let until = Instant::now() + SETTLE_WITHIN;
        let mut waiting = self.lock();
        while !waiting.has_ended && (!waiting.bytes.is_empty() || waiting.is_writing) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            waiting.is_urgent = true;
            self.0.wanted.notify_one();
            let woken = self.0.written.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Puts the next bytes for a file into `taken`; returns whether there are any, which is so until the end. The bytes that `taken` held
    /// have been written: its memory takes the notes after these, so that memory which is in the cache already is used again.
    fn take<'a>(&'a self, taken: &mut BytesMut, marks: &mut BytesMut) -> bool {
        for written in [&mut *taken, marks] {
            written.clear();
            if written.capacity() > 2 * WRITE_BYTES {
                *written = BytesMut::new();
            }
        }
        let mut waiting = self.lock();
        waiting.is_writing = false;
        self.0.written.notify_all();
        let pause = |waiting: MutexGuard<'a, Waiting>| {
            let can_wait =
                |waiting: &mut Waiting| !waiting.is_urgent && !waiting.has_ended && waiting.bytes.len() <= WRITE_BYTES;
            let woken = self.0.wanted.wait_timeout_while(waiting, WRITE_EVERY, can_wait);
            woken.unwrap_or_else(PoisonError::into_inner).0
        };
        // Where something is noted again and again, as heartbeats are, nobody wakes this thread: it looks.
        waiting = pause(waiting);
        while waiting.bytes.is_empty() {
            if waiting.has_ended {
                return false;
            }
            waiting.is_asleep = true;
            let woken = self.0.wanted.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            waiting = pause(woken);
        }
        waiting.is_urgent = false;
        waiting.is_writing = true;
        std::mem::swap(&mut waiting.bytes, taken);
        std::mem::swap(&mut waiting.marks, marks);
        true
    }
}

/// Writes a tape into the ring of a directory, until it is dropped.
#[derive(Debug)]
pub struct Recorder {
    tape: Tape,
}

impl Recorder {
    /// Begins to record what is noted on `tape` in `directory`, which is made; together its files hold `bytes_max` at most, and the
    /// oldest are removed.
    ///
    /// # Errors
    /// The directory cannot be made or written. Once it runs, a file that cannot be written is told in the log, and no more.
    pub fn start(tape: Tape, directory: &Path, life: Life, bytes_max: u64) -> io::Result<Recorder> {
        // The ring first, which makes room: a full disk costs no more than the marks.
        let mut ring = Ring::begin(directory, MAGIC, life.clone(), LastingMarks::rest_of(bytes_max))?;
        let mut lasting = LastingMarks::begin(directory, life, bytes_max);
        let taken = tape.clone();
        std::thread::Builder::new().name("hustings-record".into()).spawn(move || {
            let (mut bytes, mut marks) = (BytesMut::new(), BytesMut::new());
            while taken.take(&mut bytes, &mut marks) {
                ring.write(&bytes);
                lasting.write(&marks);
            }
        })?;
        let mut tapes = TAPES.lock().unwrap_or_else(PoisonError::into_inner);
        tapes.retain(|tape| tape.strong_count() > 0);
        tapes.push(Arc::downgrade(&tape.0));
        drop(tapes);
        Ok(Recorder { tape })
    }

    /// The tape on which to note something.
    pub fn tape(&self) -> Tape {
        self.tape.clone()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.tape.settle();
        self.tape.lock().has_ended = true;
        self.tape.0.wanted.notify_one();
    }
}
