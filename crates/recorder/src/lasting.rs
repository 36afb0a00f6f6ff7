//! The marks of a member beside its ring, where routine does not push them out: what happened, long after it did.
//!
//! A busy member fills its ring within a minute, for each message of its protocol is in it. Marks are few: they alone go into
//! a second, small ring as well, so that a change of leader can be told days later. Each life there ends with [`Mark::Ran`], which moves
//! on as long as the process runs.

use crate::mark::Mark;
use crate::ring::{Recording, Ring};
use crate::shape::{Life, Note, NoteKind};
use crate::tape::{boot_micros, put_note};
use bytes::BytesMut;
use std::path::Path;

/// First bytes of each file: a name, and the version of the format.
pub(crate) const MAGIC: &[u8; 8] = b"HUSTMRK1";
/// The marks' directory, within that of the ring.
pub(crate) const DIRECTORY: &str = "marks";
/// The marks take this part of what a recording may hold.
const SHARE: u64 = 8;

/// A loop or a disk that was slow for less than this explains nothing, and would push out what does.
const SLOW_MICROS: u64 = 100_000;
/// So far apart two threads may have read the clock for notes that they wrote in the other order.
const DISORDER_MICROS: u64 = 1_000;

/// Whether a mark outlives the ring.
pub(crate) fn is_lasting(mark: &Mark) -> bool {
    match mark {
        Mark::SlowSync { micros } | Mark::Late { micros, .. } => *micros >= SLOW_MICROS,
        _ => true,
    }
}

/// Writes a member's marks.
pub(crate) struct LastingMarks(Option<Ring>);

impl LastingMarks {
    /// The part of a recording that the ring has for itself.
    pub(crate) fn rest_of(bytes_max: u64) -> u64 {
        bytes_max - bytes_max / SHARE
    }

    /// Begins in the directory of a ring; both together hold `bytes_max`. Where that cannot be, the ring alone tells what happens.
    pub(crate) fn begin(directory: &Path, life: Life, bytes_max: u64) -> LastingMarks {
        let directory = directory.join(DIRECTORY);
        let ring = Ring::begin_if_possible(&directory, MAGIC, life, bytes_max / SHARE).inspect_err(|error| {
            tracing::warn!(directory = %directory.display(), "what happens is not recorded for long: {error}");
        });
        LastingMarks(ring.ok())
    }

    /// Writes these marks, if any, and that the process runs.
    pub(crate) fn write(&mut self, marks: &[u8]) {
        let Some(ring) = &mut self.0 else { return };
        if !marks.is_empty() {
            ring.write(marks);
        }
        let mut ran = BytesMut::new();
        put_note(&mut ran, &Note { at_micros: boot_micros(), kind: NoteKind::Mark(Mark::Ran) });
        ring.write_provisionally(&ran);
    }
}

/// Puts the marks of lives before what rings still have of them; lives that no ring has any more come first.
pub(crate) fn join(marks: Vec<Recording>, mut lives: Vec<Recording>) -> Vec<Recording> {
    let mut gone = Vec::new();
    for marked in marks {
        match lives.iter_mut().find(|life| life.is_same_life(&marked)) {
            Some(life) if life.life.is_continued && marked.life.boot_micros < life.life.boot_micros => {
                put_before(life, marked);
            }
            // Its ring has all of it, or more.
            Some(_) => {}
            None => gone.push(marked),
        }
    }
    gone.append(&mut lives);
    gone
}

/// Puts marks before the notes of a life whose beginning its ring has lost.
fn put_before(life: &mut Recording, mut marked: Recording) {
    let opened = life.life.boot_micros;
    // Notes waited for the file that they are in.
    let begun = life.notes.first().map_or(opened, |first| first.at_micros.min(opened));
    let until = begun.saturating_add(DISORDER_MICROS);
    // Twice as far, for these may be in disorder as well.
    let is_near = |note: &&Note| note.at_micros <= until.saturating_add(DISORDER_MICROS);
    let seam: Vec<&Note> = life.notes.iter().take_while(is_near).collect();
    // A gap among the marks is none in what the protocol was told.
    let is_routine = |note: &Note| matches!(note.kind, NoteKind::Mark(Mark::Ran | Mark::Lost { .. }));
    marked.notes.retain(|note| note.at_micros <= until && !is_routine(note) && !seam.contains(&note));
    marked.goes_on(life.life.clone());
    marked.notes.append(&mut life.notes);
    marked.damage.append(&mut life.damage);
    marked.life.is_continued = true;
    *life = marked;
}
