//! One clock for all lives: the boot clock of each machine, told as the time that its wall clock showed last.

use crate::mark::Mark;
use crate::ring::{MICROS_MAX, Recording};
use crate::shape::{Life, NoteKind};
use std::collections::BTreeMap;

/// Converts boot clocks to one time for all lives of a machine's start, in microseconds since 1970.
///
/// A wall clock can be set; the boot clock cannot. So what the lives of one start of a machine noted is compared by the boot clock, and
/// told as the wall clock went last: of the newest life, from its beginning on, with each step that it noted since. Times that were told
/// before a clock was set are told otherwise afterwards.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    /// Wall clock less boot clock of each start of a machine, in microseconds.
    ahead_micros: BTreeMap<String, i128>,
}

impl Clock {
    /// The clock of these lives. Whoever compares times must give it all of them at once.
    pub fn of<'a>(lives: impl IntoIterator<Item = &'a Recording>) -> Clock {
        let mut newest: BTreeMap<&str, &Recording> = BTreeMap::new();
        for recording in lives {
            let known = newest.entry(&recording.life.boot_id).or_insert(recording);
            if known.life.boot_micros < recording.life.boot_micros {
                *known = recording;
            }
        }
        let ahead = |recording: &Recording| {
            let steps = recording.notes.iter().filter_map(|note| match note.kind {
                NoteKind::Mark(Mark::WallClock { micros }) if note.at_micros >= recording.life.boot_micros => {
                    Some(i128::from(micros))
                }
                _ => None,
            });
            i128::from(recording.life.unix_micros) - i128::from(recording.life.boot_micros) + steps.sum::<i128>()
        };
        Clock {
            ahead_micros: newest.into_iter().map(|(boot, recording)| (boot.to_owned(), ahead(recording))).collect(),
        }
    }

    /// Converts a reading of the boot clock of this life, both in microseconds: since 1970, at most [`MICROS_MAX`].
    pub fn unix_micros(&self, life: &Life, boot_micros: u64) -> u64 {
        let own = || i128::from(life.unix_micros) - i128::from(life.boot_micros);
        let ahead = self.ahead_micros.get(&life.boot_id).copied().unwrap_or_else(own);
        u64::try_from(i128::from(boot_micros) + ahead).unwrap_or(0).min(MICROS_MAX)
    }
}
