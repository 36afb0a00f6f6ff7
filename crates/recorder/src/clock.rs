//! One clock for all lives: the boot clock of each machine, told as the time that its wall clock showed last.

use crate::mark::Mark;
use crate::ring::{MICROS_MAX, Recording};
use crate::shape::{Life, Note, NoteKind};
use std::collections::BTreeMap;

/// Converts boot clocks to one time for all lives of a machine's start, in microseconds since 1970.
///
/// A wall clock can be set; the boot clock cannot. So what the lives of one start of a machine noted is compared by the boot clock, and
/// told as the wall clock went last: by the newest reading of the life that noted something last. Each file begins with one, and each
/// note that the clock was set has one; in those of earlier builds, the length of the step alone. Times that were told before a clock
/// was set are others afterwards.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    /// Wall clock less boot clock of each start of a machine, in microseconds. Lives that do not know theirs have none in common.
    ahead_micros: BTreeMap<String, i128>,
}

/// Wall clock less boot clock, in microseconds, when a file of a life was begun.
fn ahead_at_beginning_micros(life: &Life) -> i128 {
    i128::from(life.unix_micros) - i128::from(life.boot_micros)
}

/// Wall clock less boot clock, in microseconds, as a life knew it last.
fn ahead_at_end_micros(recording: &Recording) -> i128 {
    let known = |ahead: i128, note: &Note| match &note.kind {
        NoteKind::Life(life) => ahead_at_beginning_micros(life),
        NoteKind::Mark(Mark::WallClock { ahead_micros: Some(read), .. }) => i128::from(*read),
        NoteKind::Mark(Mark::WallClock { micros, ahead_micros: None }) => ahead + i128::from(*micros),
        _ => ahead,
    };
    recording.notes.iter().fold(ahead_at_beginning_micros(&recording.life), known)
}

impl Clock {
    /// Makes one of these lives. Whoever compares times gives it all of them at once.
    pub fn of<'a>(lives: impl IntoIterator<Item = &'a Recording>) -> Clock {
        let mut latest: BTreeMap<&str, &Recording> = BTreeMap::new();
        for recording in lives.into_iter().filter(|recording| !recording.life.boot_id.is_empty()) {
            let until = |recording: &Recording| (recording.end_micros(), recording.life.boot_micros);
            let known = latest.entry(&recording.life.boot_id).or_insert(recording);
            if until(known) < until(recording) {
                *known = recording;
            }
        }
        Clock {
            ahead_micros: latest
                .into_iter()
                .map(|(boot, known)| (boot.to_owned(), ahead_at_end_micros(known)))
                .collect(),
        }
    }

    /// Converts a reading of the boot clock of this life, both in microseconds: since 1970, at most [`MICROS_MAX`].
    pub fn unix_micros(&self, life: &Life, boot_micros: u64) -> u64 {
        let ahead = self.ahead_micros.get(&life.boot_id).copied();
        let ahead = ahead.unwrap_or_else(|| ahead_at_beginning_micros(life));
        u64::try_from(i128::from(boot_micros) + ahead).unwrap_or(0).min(MICROS_MAX)
    }
}
