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
/// how far its own is ahead of a peer's at most, for a message was under way as well. Where wall clocks contradict that, they are corrected
/// as far as they must be: by two machines that know each other, to a round trip. Of several wall clocks those are believed that agree
/// with most others, or where no two agree the one in the middle.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    /// The time less the boot clock of each start of a machine, in microseconds. Lives that do not know theirs have none in common.
    ahead_micros: BTreeMap<String, i128>,
    /// Wall clock less boot clock of each of them, in microseconds.
    own_ahead_micros: BTreeMap<String, i128>,
}

/// Time by which a life may have been begun earlier, or have gone on longer, than its file says.
const AROUND_A_LIFE_MICROS: i128 = 10_000_000;
/// Wall clocks that are so near to each other agree.
const AGREES_MICROS: i128 = 20_000;

/// How far the boot clock of one machine is ahead of that of another at most, and when that was noted by the wall clock there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Bound {
    noted_at_micros: i128,
    ahead_micros: i128,
}

/// For each start of a machine those that it has looked at, or that have looked at it.
type Sights<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Pair>>;

/// What two starts of machines know of each other.
#[derive(Clone, Copy, Default, Debug)]
struct Pair {
    /// How far the first is ahead of the second at most.
    most: Option<Bound>,
    /// How far the second is ahead of the first at most.
    most_back: Option<Bound>,
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

/// What members noted of each other's boot clocks last. A peer is the life of that name and cluster that ran when its clock showed this;
/// where several starts of a machine fit, for each counts from zero, the one whose wall clock is nearest then. That is another one only where
/// a wall clock is wrong by more than half of the time between two starts.
fn sights_of<'a>(lives: &[&'a Recording], own: &BTreeMap<&'a str, i128>) -> Sights<'a> {
    let mut by_name: BTreeMap<(u64, &str), Vec<&Recording>> = BTreeMap::new();
    for recording in lives {
        by_name.entry((recording.life.cluster_id, &recording.life.name)).or_default().push(recording);
    }
    let mut sights: Sights<'a> = BTreeMap::new();
    for recording in lives {
        let here = recording.life.boot_id.as_str();
        for note in &recording.notes {
            let NoteKind::Mark(Mark::PeerClock { peer, ahead_micros }) = &note.kind else { continue };
            let noted_at_micros = i128::from(note.at_micros) + own[here];
            let bound = Bound { noted_at_micros, ahead_micros: i128::from(*ahead_micros) };
            let read = i128::from(note.at_micros) - bound.ahead_micros;
            let ran = |other: &&&&'a Recording| {
                let begun = i128::from(other.life.boot_micros) - AROUND_A_LIFE_MICROS;
                let ended = i128::from(other.end_micros()) + AROUND_A_LIFE_MICROS;
                // Of one whose beginning has gone nobody knows how long it had run.
                (other.life.is_continued || begun <= read) && read <= ended
            };
            let apart =
                |other: &&&'a Recording| (read + own[other.life.boot_id.as_str()] - noted_at_micros).unsigned_abs();
            let of_peer = by_name.get(&(recording.life.cluster_id, peer.as_str())).into_iter().flatten();
            let Some(there) = of_peer.filter(|other| ran(&other)).min_by_key(|other| apart(other)) else { continue };
            let there = there.life.boot_id.as_str();
            if there == here {
                continue;
            }
            let most = &mut sights.entry(here).or_default().entry(there).or_default().most;
            *most = (*most).max(Some(bound));
            let back = &mut sights.entry(there).or_default().entry(here).or_default().most_back;
            *back = (*back).max(Some(bound));
        }
    }
    sights
}

impl Pair {
    fn is_of_both(&self) -> bool {
        self.most.is_some() && self.most_back.is_some()
    }

    /// How far the boot clock of the first is ahead of that of the second, in microseconds: as the wall clocks have it, as far as what was
    /// noted lets them.
    fn ahead_micros(&self, by_wall_clocks: i128) -> i128 {
        let (most, least) = (self.most, self.most_back);
        let (at_most, at_least) = (most.map(|bound| bound.ahead_micros), least.map(|bound| -bound.ahead_micros));
        match (at_most, at_least) {
            // A clock has stood still since one of both: the later note is true.
            (Some(at_most), Some(at_least)) if at_least > at_most => {
                let is_later = most.map(|bound| bound.noted_at_micros) >= least.map(|bound| bound.noted_at_micros);
                if is_later { by_wall_clocks.min(at_most) } else { by_wall_clocks.max(at_least) }
            }
            _ => by_wall_clocks.min(at_most.unwrap_or(i128::MAX)).max(at_least.unwrap_or(i128::MIN)),
        }
    }
}

/// The time less the boot clock of each machine that can be reached from the first one, in microseconds; for all of them the same number
/// less. What two know of each other is taken before what one alone knows.
fn reached_from<'a>(first: &'a str, sights: &Sights<'a>, own: &BTreeMap<&'a str, i128>) -> BTreeMap<&'a str, i128> {
    let mut reached: BTreeMap<&str, i128> = BTreeMap::from([(first, 0)]);
    let mut waiting = [VecDeque::from([first]), VecDeque::new()];
    while let Some((machine, of_both)) =
        waiting[0].pop_front().map(|machine| (machine, true)).or_else(|| Some((waiting[1].pop_front()?, false)))
    {
        for (other, pair) in sights.get(machine).into_iter().flatten() {
            if !reached.contains_key(other) && pair.is_of_both() >= of_both {
                let ahead = pair.ahead_micros(own[other] - own[machine]);
                reached.insert(other, reached[machine] + ahead);
                waiting[0].push_back(other);
            }
        }
        if of_both {
            waiting[1].push_back(machine);
        }
    }
    reached
}

/// The time less the boot clock of each machine, in microseconds: those that are known to each other show one time.
fn agreed<'a>(lives: &[&'a Recording], own: &BTreeMap<&'a str, i128>) -> BTreeMap<String, i128> {
    let sights = sights_of(lives, own);
    // The start of each member's machine that noted something last: each member has one voice.
    let mut voices: BTreeMap<(u64, &str), (i128, &str)> = BTreeMap::new();
    for recording in lives {
        let boot = recording.life.boot_id.as_str();
        let until = (i128::from(recording.end_micros()) + own[boot], boot);
        let known = voices.entry((recording.life.cluster_id, &recording.life.name)).or_insert(until);
        *known = (*known).max(until);
    }
    let voices: BTreeSet<&str> = voices.into_values().map(|(_, boot)| boot).collect();
    let mut agreed = BTreeMap::new();
    for first in own.keys() {
        if agreed.contains_key(*first) {
            continue;
        }
        let reached = reached_from(first, &sights, own);
        // What each wall clock shows, by the time of the first machine's boot clock.
        let shown = |machine: &&str| own[machine] - reached[machine];
        let mut wall: Vec<i128> = reached.keys().filter(|machine| voices.contains(*machine)).map(&shown).collect();
        if wall.is_empty() {
            wall = reached.keys().map(shown).collect();
        }
        wall.sort_unstable();
        let middle = wall[(wall.len() - 1) / 2];
        let alike = |one: i128| wall.iter().filter(|other| (one - **other).abs() <= AGREES_MICROS).count();
        // Of equally many, the one nearest to the middle.
        let believed = wall.iter().copied().max_by_key(|one| (alike(*one), -(one - middle).abs())).unwrap_or(middle);
        agreed.extend(reached.into_iter().map(|(machine, ahead)| (machine.to_owned(), ahead + believed)));
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
        let own: BTreeMap<&str, i128> =
            latest.into_iter().map(|(boot, known)| (boot, ahead_at_end_micros(known))).collect();
        Clock {
            ahead_micros: agreed(&lives, &own),
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
