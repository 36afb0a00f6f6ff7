//! One clock for all lives: the boot clocks of their machines, as far as members have compared them, told as the time that most of the
//! wall clocks showed last.

use crate::mark::Mark;
use crate::ring::{MICROS_MAX, Recording};
use crate::shape::{Life, Note, NoteKind};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Converts boot clocks to one time for all lives, in microseconds since 1970.
///
/// A wall clock can be set, and is wrong on many a machine; the boot clock cannot be set. So what the lives of one start of a machine noted
/// is compared by the boot clock, and told as the wall clock went last: by the newest reading of the life that noted something last. Each
/// file begins with one, and each note that the clock was set has one; in those of earlier builds, the length of the step alone. Times
/// that were told before a clock was set are others afterwards.
///
/// What lives of several machines noted is compared by what they found out about each other's boot clocks ([`Mark::PeerClock`]): each knows
/// how far its own is ahead of a peer's, and by how long a message was under way less. Both together give the difference to half a round
/// trip. Of several wall clocks the one in the middle is believed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    /// The time less the boot clock of each start of a machine, in microseconds. Lives that do not know theirs have none in common.
    ahead_micros: BTreeMap<String, i128>,
    /// Wall clock less boot clock of each of them, in microseconds.
    own_ahead_micros: BTreeMap<String, i128>,
}

/// Time by which a life may have been begun earlier, or have gone on longer, than its file says.
const AROUND_A_LIFE_MICROS: i128 = 10_000_000;

/// How far the boot clock of the first machine is ahead of that of the second at most, in microseconds.
type Bounds<'a> = BTreeMap<(&'a str, &'a str), i128>;

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

/// What members noted of each other's boot clocks last. A peer is the life of that name that ran when its clock showed this.
fn bounds_of<'a>(lives: &[&'a Recording]) -> Bounds<'a> {
    let mut latest: BTreeMap<(&str, &str), (u64, i128)> = BTreeMap::new();
    for recording in lives {
        let here = recording.life.boot_id.as_str();
        for note in &recording.notes {
            let NoteKind::Mark(Mark::PeerClock { peer, ahead_micros }) = &note.kind else { continue };
            let ahead = i128::from(*ahead_micros);
            let read = i128::from(note.at_micros) - ahead;
            let ran = |other: &&&Recording| {
                let begun = i128::from(other.life.boot_micros) - AROUND_A_LIFE_MICROS;
                let ended = i128::from(other.end_micros()) + AROUND_A_LIFE_MICROS;
                other.life.name == *peer && (begun..=ended).contains(&read)
            };
            let there = lives.iter().find(ran).map_or("", |other| other.life.boot_id.as_str());
            if there.is_empty() || there == here {
                continue;
            }
            let known = latest.entry((here, there)).or_insert((note.at_micros, ahead));
            if known.0 <= note.at_micros {
                *known = (note.at_micros, ahead);
            }
        }
    }
    latest.into_iter().map(|(pair, (_, ahead))| (pair, ahead)).collect()
}

/// How far the boot clock of the first machine is ahead of that of the second, in microseconds; `None` where neither has noted it.
fn difference(bounds: &Bounds<'_>, own: &BTreeMap<&str, i128>, first: &str, second: &str) -> Option<i128> {
    let by_wall_clocks = own.get(second)? - own.get(first)?;
    Some(match (bounds.get(&(first, second)), bounds.get(&(second, first))) {
        (Some(most), Some(least)) => (most - least) / 2,
        // One direction alone has the way of a message in it: wall clocks are believed as far as it lets them.
        (Some(most), None) => by_wall_clocks.min(*most),
        (None, Some(least)) => by_wall_clocks.max(-least),
        (None, None) => return None,
    })
}

/// The time less the boot clock of each machine, in microseconds: those that are known to each other show one time, which is that of the
/// wall clock in the middle.
fn agreed(bounds: &Bounds<'_>, own: &BTreeMap<&str, i128>) -> BTreeMap<String, i128> {
    let mut agreed = BTreeMap::new();
    for first in own.keys() {
        if agreed.contains_key(*first) {
            continue;
        }
        // Time less boot clock, but for the same number of microseconds at all of them.
        let mut reached: BTreeMap<&str, i128> = BTreeMap::from([(*first, 0)]);
        let mut waiting = VecDeque::from([*first]);
        while let Some(machine) = waiting.pop_front() {
            let others: BTreeSet<&str> = own.keys().copied().filter(|other| !reached.contains_key(other)).collect();
            for other in others {
                if let Some(ahead) = difference(bounds, own, other, machine) {
                    reached.insert(other, reached[machine] - ahead);
                    waiting.push_back(other);
                }
            }
        }
        let mut wall: Vec<i128> = reached.iter().map(|(machine, ahead)| own[machine] - ahead).collect();
        wall.sort_unstable();
        let middle = wall[(wall.len() - 1) / 2];
        agreed.extend(reached.into_iter().map(|(machine, ahead)| (machine.to_owned(), ahead + middle)));
    }
    agreed
}

impl Clock {
    /// Makes one of these lives. Whoever compares times gives it all of them at once.
    pub fn of<'a>(lives: impl IntoIterator<Item = &'a Recording>) -> Clock {
        let lives: Vec<&Recording> = lives.into_iter().filter(|recording| !recording.life.boot_id.is_empty()).collect();
        let mut latest: BTreeMap<&str, &Recording> = BTreeMap::new();
        for recording in lives.iter().copied() {
            let until = |recording: &Recording| (recording.end_micros(), recording.life.boot_micros);
            let known = latest.entry(&recording.life.boot_id).or_insert(recording);
            if until(known) < until(recording) {
                *known = recording;
            }
        }
        let own = latest.into_iter().map(|(boot, known)| (boot, ahead_at_end_micros(known))).collect();
        Clock {
            ahead_micros: agreed(&bounds_of(&lives), &own),
            own_ahead_micros: own.into_iter().map(|(boot, ahead)| (boot.to_owned(), ahead)).collect(),
        }
    }

    /// Converts a reading of the boot clock of this life, both in microseconds: since 1970, at most [`MICROS_MAX`].
    pub fn unix_micros(&self, life: &Life, boot_micros: u64) -> u64 {
        let ahead = self.ahead_micros.get(&life.boot_id).copied();
        let ahead = ahead.unwrap_or_else(|| ahead_at_beginning_micros(life));
        u64::try_from(i128::from(boot_micros) + ahead).unwrap_or(0).min(MICROS_MAX)
    }

    /// How much more than the time that is told the wall clock of this life's machine showed last, in microseconds; less below 0.
    pub fn wall_clock_ahead_micros(&self, life: &Life) -> i64 {
        let ahead = |of: &BTreeMap<String, i128>| of.get(&life.boot_id).copied().unwrap_or_default();
        let ahead = ahead(&self.own_ahead_micros) - ahead(&self.ahead_micros);
        i64::try_from(ahead).unwrap_or(if ahead > 0 { i64::MAX } else { i64::MIN })
    }
}
