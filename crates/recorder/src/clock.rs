//! One clock for all lives: the boot clock of each machine, told as the time that its wall clock showed last.

use crate::mark::Mark;
use crate::ring::{MICROS_MAX, Recording};
use crate::shape::{Life, Note, NoteKind};
use std::collections::BTreeMap;

/// Converts boot clocks to one time for all lives of a machine's start, in microseconds since 1970.
///
/// A wall clock can be set; the boot clock cannot. So what the lives of one start of a machine noted is compared by the boot clock, and
/// told as the wall clock went last: by the newest reading of the life that noted something last, with each step that it noted since
/// that reading. Times that were told before a clock was set are others afterwards.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    /// Wall clock less boot clock of each start of a machine, in microseconds. Lives that do not know theirs have none in common.
    ahead_micros: BTreeMap<String, i128>,
}

/// Both clocks, read at one moment.
#[derive(Clone, Copy)]
struct Reading {
    boot_micros: u64,
    unix_micros: u64,
}

impl Reading {
    fn of(life: &Life) -> Reading {
        Reading { boot_micros: life.boot_micros, unix_micros: life.unix_micros }
    }

    /// The newest of a life: files in which it went on begin with one as well.
    fn newest(recording: &Recording) -> Reading {
        let later = recording.notes.iter().rev().find_map(|note| match &note.kind {
            NoteKind::Life(life) => Some(Reading::of(life)),
            _ => None,
        });
        later.unwrap_or_else(|| Reading::of(&recording.life))
    }

    fn ahead_micros(self) -> i128 {
        i128::from(self.unix_micros) - i128::from(self.boot_micros)
    }
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
        let ahead = |recording: &Recording| {
            let reading = Reading::newest(recording);
            let step = |note: &Note| match note.kind {
                NoteKind::Mark(Mark::WallClock { micros }) if note.at_micros >= reading.boot_micros => {
                    i128::from(micros)
                }
                _ => 0,
            };
            reading.ahead_micros() + recording.notes.iter().map(step).sum::<i128>()
        };
        Clock {
            ahead_micros: latest.into_iter().map(|(boot, recording)| (boot.to_owned(), ahead(recording))).collect(),
        }
    }

    /// Converts a reading of the boot clock of this life, both in microseconds: since 1970, at most [`MICROS_MAX`].
    pub fn unix_micros(&self, life: &Life, boot_micros: u64) -> u64 {
        let ahead = self.ahead_micros.get(&life.boot_id).copied();
        let ahead = ahead.unwrap_or_else(|| Reading::of(life).ahead_micros());
        u64::try_from(i128::from(boot_micros) + ahead).unwrap_or(0).min(MICROS_MAX)
    }
}
