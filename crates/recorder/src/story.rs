//! Explanations of changes of leader: [`Story`], told from the recordings of as many members as there are.
//!
//! Method: each reign is a member's own note that it leads. Of two reigns in a row the end of the first is explained, from the
//! strongest evidence to the weakest: what the old leader noted itself (an operator's request, its disk, its end), that it noted
//! nothing any more, that its loop did not run, and last what the others missed of it.

use crate::clock::Clock;
use crate::mark::{Heard, Mark};
use crate::ring::Recording;
use crate::shape::NoteKind;
use hustings_core::{Role, Term};
use std::collections::{BTreeMap, BTreeSet};

mod causes;
mod endings;
mod words;

pub use causes::Cause;
pub use words::clock_time;
pub(crate) use words::of_mark;

/// A change of leader and its causes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Story {
    /// The reign before; `None` if none is known.
    pub before: Option<Reign>,
    /// The reign that began.
    pub after: Reign,
    /// The causes of the end of the reign before, the decisive one first; empty for a first leader.
    pub causes: Vec<Cause>,
    /// Time without a leader, in microseconds.
    pub gap_micros: u64,
    /// Time from when the new leader began to ask for votes until it led, in microseconds; `None` where it did not note both, or of a first
    /// leader.
    pub election_micros: Option<u64>,
    /// The end of the reign that began, in words, where nobody is noted to lead after it.
    pub ended: Option<String>,
    /// Notes of all members around the change, in order.
    pub evidence: Vec<Evidence>,
    /// Members whose recordings nobody has, by name: they are judged by what others saw.
    pub missing: BTreeSet<String>,
    /// Members whose recordings cannot be read in places, by name, and what the first of these is.
    pub damaged: BTreeMap<String, String>,
    /// Members of other clusters, by name, whose recordings are here: nothing of them is told.
    pub left_out: BTreeSet<String>,
    /// Members whose wall clock shows another time than the one that is told, by name, and how much more it shows, in microseconds.
    pub clocks: BTreeMap<String, i64>,
}

/// The leadership of one member in one term.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reign {
    /// Name of the leader.
    pub leader: String,
    /// The term of its leadership.
    pub term: Term,
    /// Begin of the reign, in microseconds since 1970.
    pub since_micros: u64,
    /// End of the reign, or of the time it could have led, in microseconds since 1970; `None`: as far as anybody noted it still does.
    pub until_micros: Option<u64>,
    /// The reason for which it was elected.
    pub because: String,
    /// Index of the recording that is its leader's own; `None` when only others noted it.
    pub(crate) life: Option<usize>,
}

impl Reign {
    /// Whether only others noted it: then it began, at the latest, when the first of them heard of it.
    pub fn is_heard_of(&self) -> bool {
        self.life.is_none()
    }
}

/// A note of a member, with its time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Evidence {
    /// Time of the note, in microseconds since 1970.
    pub at_micros: u64,
    /// Name of the member.
    pub member: String,
    /// The note, in words.
    pub what: String,
}

/// Time before the end of a reign and after the beginning of the next from which notes are shown, in microseconds.
const SHOWN_AROUND_MICROS: u64 = 3_000_000;
/// A wall clock that shows this much more or less than the time that is told is named: less is no trouble to anybody who compares it with a log.
const CLOCK_WRONG_MICROS: u64 = 20_000;
/// Most notes that are shown.
const SHOWN_MAX: usize = 40;

/// A mark, with who made it and when by one clock for all.
pub(crate) struct Seen<'a> {
    pub(crate) at: u64,
    pub(crate) life: usize,
    pub(crate) mark: &'a Mark,
}

/// A link that ended and did not come up again, as the life at one end noted it.
pub(crate) struct LostLink<'a> {
    pub(crate) life: usize,
    pub(crate) peer: &'a str,
    pub(crate) at: u64,
    pub(crate) why: &'a str,
}

/// All recordings on one time line.
pub(crate) struct Timeline<'a> {
    pub(crate) lives: Vec<&'a Recording>,
    pub(crate) seen: Vec<Seen<'a>>,
    clock: Clock,
}

impl<'a> Timeline<'a> {
    fn of(lives: Vec<&'a Recording>, clock: &Clock) -> Timeline<'a> {
        let mut line = Timeline { lives: lives.clone(), seen: Vec::new(), clock: clock.clone() };
        for (place, life) in lives.into_iter().enumerate() {
            for note in &life.notes {
                if let NoteKind::Mark(mark) = &note.kind
                    && !matches!(mark, Mark::Ran | Mark::PeerClock { .. })
                {
                    line.seen.push(Seen { at: line.at(place, note.at_micros), life: place, mark });
                }
            }
        }
        line.seen.sort_by_key(|seen| seen.at);
        line
    }

    /// The time of a boot clock's reading.
    pub(crate) fn at(&self, life: usize, boot_micros: u64) -> u64 {
        self.clock.unix_micros(&self.lives[life].life, boot_micros)
    }

    pub(crate) fn name(&self, life: usize) -> &'a str {
        &self.lives[life].life.name
    }

    /// Times when a life was begun, and when its last note was written.
    pub(crate) fn span(&self, life: usize) -> (u64, u64) {
        let recording = &self.lives[life];
        (self.at(life, recording.life.boot_micros), self.at(life, recording.end_micros()))
    }

    /// Notes of a life in a stretch of time, both ends included.
    pub(crate) fn of_life(
        &self,
        life: Option<usize>,
        from: u64,
        to: u64,
    ) -> impl DoubleEndedIterator<Item = &Seen<'a>> {
        self.seen.iter().filter(move |seen| Some(seen.life) == life && (from..=to).contains(&seen.at))
    }

    /// All lives of a member.
    pub(crate) fn lives_of<'s>(&'s self, name: &'s str) -> impl Iterator<Item = usize> + 's {
        (0..self.lives.len()).filter(move |life| self.name(*life) == name)
    }

    /// When anybody noted anything last.
    pub(crate) fn latest(&self) -> u64 {
        (0..self.lives.len()).map(|life| self.span(life).1).max().unwrap_or(0)
    }

    /// The links that are down at this time, by what the life at one end noted until then, ordered by life and peer. Two dials that cross
    /// are two links; of a link whose beginning has left the ring nothing but its end is known.
    pub(crate) fn lost_links(&self, until: u64) -> Vec<LostLink<'_>> {
        let mut links: BTreeMap<(usize, &str), (u32, Option<LostLink<'_>>)> = BTreeMap::new();
        for seen in self.seen.iter().take_while(|seen| seen.at <= until) {
            match seen.mark {
                Mark::LinkUp { peer } => {
                    let (up, lost) = links.entry((seen.life, peer)).or_default();
                    (*up, *lost) = (*up + 1, None);
                }
                Mark::LinkDown { peer, why } => {
                    let (up, lost) = links.entry((seen.life, peer)).or_default();
                    *up = up.saturating_sub(1);
                    *lost = (*up == 0).then_some(LostLink { life: seen.life, peer, at: seen.at, why });
                }
                _ => {}
            }
        }
        links.into_values().filter_map(|(_, lost)| lost).collect()
    }

    /// Time from when the leader of a reign last ceased to follow until it led.
    fn election_of(&self, reign: &Reign) -> Option<u64> {
        let asked = self.of_life(reign.life, 0, reign.since_micros).rev().find(|seen| match seen.mark {
            Mark::Transition { from, to, .. } => *from == Role::Follower && *to != Role::Follower,
            _ => false,
        })?;
        Some(reign.since_micros - asked.at)
    }

    /// The life of the same member that came after this one.
    pub(crate) fn next_life(&self, life: usize) -> Option<usize> {
        let (begun, _) = self.span(life);
        let same = self.lives_of(self.name(life));
        same.filter(|other| self.span(*other).0 > begun).min_by_key(|other| self.span(*other).0)
    }

    /// All reigns, in the order in which they began.
    fn reigns(&self) -> Vec<Reign> {
        let mut reigns = self.own_reigns();
        reigns.extend(self.reigns_of_others(&reigns));
        reigns.sort_by_key(|reign| reign.since_micros);
        reigns
    }

    /// Reigns that their leaders noted.
    fn own_reigns(&self) -> Vec<Reign> {
        let mut reigns: Vec<Reign> = Vec::new();
        let mut elected: BTreeMap<(usize, Term), &String> = BTreeMap::new();
        for seen in &self.seen {
            let Mark::Transition { from, to, term, because, .. } = seen.mark else { continue };
            if *to == Role::Synchronizing {
                elected.entry((seen.life, *term)).or_insert(because);
            }
            let open = reigns.iter_mut().find(|reign| reign.life == Some(seen.life) && reign.until_micros.is_none());
            match (from, to, open) {
                (_, Role::Leader, Some(open)) if open.term == *term => {}
                (_, to, open) => {
                    if let Some(open) = open {
                        open.until_micros = Some(seen.at);
                    }
                    if *to == Role::Leader {
                        // A leader that learns before it leads was elected before it had learnt.
                        let because = elected.remove(&(seen.life, *term)).unwrap_or(because);
                        reigns.push(Reign {
                            leader: self.name(seen.life).to_owned(),
                            term: *term,
                            since_micros: seen.at,
                            until_micros: None,
                            because: because.clone(),
                            life: Some(seen.life),
                        });
                    }
                }
            }
        }
        reigns
    }

    /// Reigns that only others noted: of members whose own recordings of that time nobody has. They know the name and the term.
    fn reigns_of_others(&self, own: &[Reign]) -> Vec<Reign> {
        let mut reigns: Vec<Reign> = Vec::new();
        for seen in &self.seen {
            let Mark::Transition { term, leader: Some(leader), .. } = seen.mark else { continue };
            let is_told = |reign: &Reign| reign.term == *term && reign.leader == *leader;
            let tells_itself = |life: usize| {
                let (begun, ended) = self.span(life);
                self.name(life) == leader && (begun..=ended).contains(&seen.at)
            };
            if own.iter().any(is_told)
                || reigns.iter().any(|reign| reign.term == *term)
                || (0..self.lives.len()).any(tells_itself)
            {
                continue;
            }
            reigns.push(Reign {
                leader: leader.clone(),
                term: *term,
                since_micros: seen.at,
                until_micros: None,
                because: "its own recording is not here".to_owned(),
                life: None,
            });
        }
        reigns
    }
}

impl Story {
    /// The last change of leader, or the last one that had begun at a time, in microseconds since 1970; `None` when nobody led.
    ///
    /// A life that was read twice counts once. Of recordings of several clusters those count whose change is the last.
    pub fn tell(lives: &[Recording], at_micros: Option<u64>) -> Option<Story> {
        let asked = at_micros.unwrap_or(u64::MAX);
        let clock = Clock::of(lives);
        let mut clusters: BTreeMap<u64, Vec<&Recording>> = BTreeMap::new();
        for life in Recording::distinct(lives) {
            clusters.entry(life.life.cluster_id).or_default().push(life);
        }
        let lines = clusters.into_values().map(|lives| {
            let line = Timeline::of(lives, &clock);
            let reigns = line.reigns();
            (reigns.iter().rposition(|reign| reign.since_micros <= asked), reigns, line)
        });
        let mut lines: Vec<_> = lines.collect();
        let told = (0..lines.len()).max_by_key(|told| {
            let (place, reigns, _) = &lines[*told];
            place.map(|place| reigns[place].since_micros)
        })?;
        let (place, mut reigns, line) = lines.swap_remove(told);
        let place = place?;
        let others = lines.iter().flat_map(|(_, _, line)| line.lives.iter());
        let left_out: BTreeSet<String> = others.map(|life| life.life.name.clone()).collect();
        let is_last = place + 1 == reigns.len();
        let mut after = reigns.remove(place);
        let ended = if is_last { line.end_of(&mut after) } else { None };
        let before = place.checked_sub(1).map(|place| reigns.remove(place));
        let Some(mut before) = before else {
            let evidence = evidence_of(&line, after.since_micros, &after, &ended);
            return Some(Story {
                before: None,
                after,
                causes: Vec::new(),
                gap_micros: 0,
                election_micros: None,
                ended,
                evidence,
                missing: missing(&line),
                damaged: damaged(&line),
                left_out,
                clocks: clocks(&line),
            });
        };
        let found = causes::of(&line, &before, &after);
        before.until_micros = Some(found.until_micros.min(after.since_micros));
        if let Some(life) = after.life
            && after.until_micros.is_none()
            && line.next_life(life).is_some()
        {
            after.until_micros = Some(line.span(life).1);
        }
        let gap_micros = after.since_micros.saturating_sub(before.until_micros.unwrap_or(after.since_micros));
        let election_micros = line.election_of(&after);
        let evidence = evidence_of(&line, found.since_micros.unwrap_or(after.since_micros), &after, &ended);
        let (causes, missing, damaged) = (found.causes, missing(&line), damaged(&line));
        Some(Story {
            before: Some(before),
            after,
            causes,
            gap_micros,
            election_micros,
            ended,
            evidence,
            missing,
            damaged,
            left_out,
            clocks: clocks(&line),
        })
    }

    /// The story in plain sentences.
    pub fn sentences(&self) -> Vec<String> {
        words::sentences(self)
    }
}

/// Names of members that were mentioned and whose recordings are not here.
fn missing(line: &Timeline<'_>) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for seen in &line.seen {
        match seen.mark {
            Mark::Transition { heard, .. } => named.extend(heard.iter().map(|Heard { peer, .. }| peer.clone())),
            Mark::Membership { voters, .. } => named = voters.iter().cloned().collect(),
            _ => {}
        }
    }
    for life in &line.lives {
        named.remove(&life.life.name);
        // One that was removed has no name to those that remain.
        named.remove(&format!("(id {})", life.life.member_id));
    }
    named
}

/// Members whose wall clock is wrong by what people would see, with how much more it shows; of the last life of each.
fn clocks(line: &Timeline<'_>) -> BTreeMap<String, i64> {
    let of = |life: &&Recording| (life.life.name.clone(), line.clock.wall_clock_ahead_micros(&life.life));
    let mut clocks: BTreeMap<String, i64> = line.lives.iter().map(of).collect();
    clocks.retain(|_, ahead| ahead.unsigned_abs() >= CLOCK_WRONG_MICROS);
    clocks
}

/// Names of members whose recordings are damaged, with the first damage of each.
fn damaged(line: &Timeline<'_>) -> BTreeMap<String, String> {
    let mut damaged = BTreeMap::new();
    for life in &line.lives {
        for damage in &life.damage {
            damaged.entry(life.life.name.clone()).or_insert_with(|| damage.what.clone());
        }
    }
    damaged
}

/// The notes around the change, and around the end of the reign that began, where nobody leads after it.
fn evidence_of(line: &Timeline<'_>, from: u64, after: &Reign, ended: &Option<String>) -> Vec<Evidence> {
    let mut all = evidence(line, from, after.since_micros);
    if let Some(until) = after.until_micros.filter(|_| ended.is_some()) {
        let mut more = evidence(line, until, until);
        more.retain(|evidence| !all.contains(evidence));
        all.extend(more);
        all.sort_by_key(|evidence| evidence.at_micros);
    }
    all
}

fn evidence(line: &Timeline<'_>, from: u64, to: u64) -> Vec<Evidence> {
    let shown = from.saturating_sub(SHOWN_AROUND_MICROS)..=to + SHOWN_AROUND_MICROS / 10;
    let mut evidence: Vec<Evidence> = line
        .seen
        .iter()
        .filter(|seen| shown.contains(&seen.at))
        .map(|seen| Evidence {
            at_micros: seen.at,
            member: line.name(seen.life).to_owned(),
            what: words::of_mark(seen.mark),
        })
        .collect();
    for life in 0..line.lives.len() {
        let (begun, ended) = line.span(life);
        let of =
            |at_micros, what: &str| Evidence { at_micros, member: line.name(life).to_owned(), what: what.to_owned() };
        if shown.contains(&begun) {
            evidence.push(of(begun, "its process begins"));
        }
        if shown.contains(&ended) && line.next_life(life).is_some() {
            evidence.push(of(ended, "this process notes nothing more"));
        }
    }
    evidence.sort_by_key(|evidence| evidence.at_micros);
    let surplus = evidence.len().saturating_sub(SHOWN_MAX);
    evidence.drain(..surplus);
    evidence
}
