//! Recordings as a space-time page: what members were and what they said to each other around the last change of leader.
//!
//! A message is an arrow from the life that said it to the life that was told it; what nobody was told ends as lost. Times of
//! members on several machines are those of their wall clocks, so an arrow between them may seem to go back; it is drawn upright.

use crate::prove;
use anyhow::Result;
use hustings_core::Role;
use hustings_recorder::judge::Conviction;
use hustings_recorder::picture::{Message, Picture};
use hustings_recorder::story::Story;
use hustings_recorder::{Clock, Mark, NoteKind, Recording};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

/// Time that is shown before the end of a reign and after the beginning of the next, in microseconds; without a change, the last
/// part of the recording.
const BEFORE_MICROS: u64 = 3_000_000;
const AFTER_MICROS: u64 = 1_000_000;
const LAST_MICROS: u64 = 8_000_000;

/// The members in order of their names: the picture numbers them.
struct Lanes<'a>(BTreeMap<(&'a str, u64), u64>);

impl<'a> Lanes<'a> {
    fn of(lives: &'a [(Recording, Picture)]) -> Lanes<'a> {
        let mut lanes: BTreeMap<(&str, u64), u64> =
            lives.iter().map(|(recording, _)| ((recording.life.name.as_str(), recording.life.member_id), 0)).collect();
        lanes.values_mut().zip(1..).for_each(|(lane, number)| *lane = number);
        Lanes(lanes)
    }

    fn of_life(&self, recording: &Recording) -> u64 {
        self.of_member(recording.life.member_id).unwrap_or(0)
    }

    fn of_member(&self, member: u64) -> Option<u64> {
        self.0.iter().find(|((_, id), _)| *id == member).map(|(_, lane)| *lane)
    }

    /// `n1 is db-a` for each whose name is another.
    fn legend(&self) -> Vec<String> {
        let others = self.0.iter().filter(|((name, _), lane)| *name != format!("n{lane}"));
        others.map(|((name, _), lane)| format!("n{lane} is {name}")).collect()
    }
}

/// Writes the page.
///
/// # Errors
/// The file cannot be written.
pub(super) fn draw(
    path: &Path,
    lives: &[(Recording, Picture)],
    all: &[Recording],
    convictions: &[Conviction],
) -> Result<()> {
    let lanes = Lanes::of(lives);
    let clock = Clock::of(all);
    let latest = lives
        .iter()
        .map(|(recording, _)| clock.unix_micros(&recording.life, recording.end_micros()))
        .max()
        .unwrap_or(0);
    let story = Story::tell(all, None);
    let accused = convictions.first().map(|conviction| conviction.facts[1].at_micros);
    let (from, to) = match (accused, &story) {
        (Some(at), _) => (at.saturating_sub(BEFORE_MICROS), at + AFTER_MICROS),
        (None, Some(Story { before: Some(before), after, .. })) => {
            let until = before.until_micros.unwrap_or(after.since_micros);
            (until.saturating_sub(BEFORE_MICROS), after.since_micros + AFTER_MICROS)
        }
        _ => (latest.saturating_sub(LAST_MICROS), latest),
    };
    let to = to.min(latest);
    let mut kinds: Vec<String> = Vec::new();
    let mut run = json!({
        "subject": lives.first().map_or("", |(recording, _)| recording.life.protocol.as_str()),
        "packsTerms": lives.first().is_some_and(|(recording, _)| recording.life.protocol == "paxos"),
        "nodes": lanes.0.len(), "from": 0, "end": to.saturating_sub(from),
        "members": members(lives, &lanes, &clock, from, to),
        "links": [], "messages": messages(lives, &lanes, &clock, from, to, &mut kinds),
        "lines": lines(lives, &lanes, &clock, from, to),
        "violation": convictions.first().map(|conviction| json!({
            "at": conviction.facts[1].at_micros.saturating_sub(from).min(to.saturating_sub(from)), "property": conviction.property,
            "what": conviction.facts.each_ref().map(|fact| format!("{} {}", fact.member, fact.what)).join("; "),
        })),
        "stopped": null, "isTrace": false, "steps": [],
    });
    run["kinds"] = kinds.into();
    let told = story.map(|story| story.sentences().join("\n")).unwrap_or_default();
    let mut headline = vec!["What members recorded".to_owned()];
    headline.extend(lanes.legend());
    prove::write_page(path, &headline.join(" · "), &run, &told)
}

fn number_of(role: Role) -> u64 {
    match role {
        Role::Follower => 0,
        Role::PreCandidate => 1,
        Role::Candidate => 2,
        Role::Synchronizing => 3,
        Role::Leader => 4,
    }
}

/// The states of each member, in order; the one before the picture begins stands at its beginning.
fn members(lives: &[(Recording, Picture)], lanes: &Lanes<'_>, clock: &Clock, from: u64, to: u64) -> Vec<Value> {
    const UP: u64 = 0;
    const PAUSED: u64 = 1;
    const DOWN: u64 = 3;
    let mut rows: Vec<(u64, u64, [u64; 6])> = Vec::new();
    for (recording, picture) in lives {
        let lane = lanes.of_life(recording);
        let at = |boot: u64| clock.unix_micros(&recording.life, boot);
        let mut last = [UP, 0, 0, 0, 0, 0];
        let mut marks: Vec<(u64, u64)> = vec![(at(recording.life.boot_micros), UP)];
        for note in &recording.notes {
            if let NoteKind::Mark(Mark::Late { micros, .. }) = &note.kind {
                marks.extend([(at(note.at_micros.saturating_sub(*micros)), PAUSED), (at(note.at_micros), UP)]);
            }
        }
        let end = at(recording.end_micros());
        let comes_again = lives.iter().any(|(other, _)| {
            other.life.member_id == recording.life.member_id && other.life.boot_micros > recording.life.boot_micros
        });
        // One that goes on until the others end has not ended.
        if comes_again || end + AFTER_MICROS < to {
            marks.push((end, DOWN));
        }
        let mut changes: Vec<(u64, Option<u64>, Option<[u64; 5]>)> =
            marks.into_iter().map(|(at, condition)| (at, Some(condition), None)).collect();
        changes.extend(picture.states.iter().map(|state| {
            let leader = state.leader.and_then(|leader| lanes.of_member(leader)).unwrap_or(0);
            let is = [number_of(state.role), state.term, leader, state.commit, state.applied];
            (at(state.at_micros), None, Some(is))
        }));
        changes.sort_by_key(|(at, ..)| *at);
        for (at, condition, is) in changes {
            last[0] = condition.unwrap_or(last[0]);
            if let Some(is) = is {
                last[1..].copy_from_slice(&is);
            }
            rows.push((at, lane, last));
        }
    }
    rows.sort_by_key(|(at, ..)| *at);
    let mut before = BTreeMap::new();
    for (_, lane, is) in rows.iter().filter(|(at, ..)| *at < from) {
        before.insert(*lane, *is);
    }
    let first = before.into_iter().map(|(lane, is)| (from, lane, is));
    let shown = rows.iter().copied().filter(|(at, ..)| (from..=to).contains(at));
    first
        .chain(shown)
        .map(|(at, lane, [condition, role, term, leader, commit, applied])| {
            json!([at - from, lane, condition, role, term, leader, commit, applied, 0, []])
        })
        .collect()
}

/// The messages, with sender and recipient: one that was heard is the oldest one with the same content that was sent.
fn messages(
    lives: &[(Recording, Picture)],
    lanes: &Lanes<'_>,
    clock: &Clock,
    from: u64,
    to: u64,
    kinds: &mut Vec<String>,
) -> Vec<Value> {
    let mut heard: BTreeMap<(u64, u64, u64), VecDeque<u64>> = BTreeMap::new();
    let mut said: Vec<(u64, u64, &Message)> = Vec::new();
    for (recording, picture) in lives {
        let me = recording.life.member_id;
        for message in &picture.heard {
            let ends = (message.peer, me, message.fingerprint);
            heard.entry(ends).or_default().push_back(clock.unix_micros(&recording.life, message.at_micros));
        }
        said.extend(
            picture.said.iter().map(|message| (clock.unix_micros(&recording.life, message.at_micros), me, message)),
        );
    }
    for times in heard.values_mut() {
        times.make_contiguous().sort_unstable();
    }
    said.sort_by_key(|(at, ..)| *at);
    let mut rows = Vec::new();
    for (at, me, message) in said {
        let times = heard.get_mut(&(me, message.peer, message.fingerprint));
        // A message that was heard before it was sent was sent by a life whose recording has gone.
        let arrived = times.and_then(|times| {
            while times.front().is_some_and(|time| *time < at) {
                times.pop_front();
            }
            times.pop_front()
        });
        let ended = arrived.unwrap_or(at);
        let (Some(sender), Some(receiver)) = (lanes.of_member(me), lanes.of_member(message.peer)) else { continue };
        if sender == receiver || ended < from || at > to {
            continue;
        }
        let kind = kinds.iter().position(|kind| *kind == message.kind).unwrap_or_else(|| {
            kinds.push(message.kind.clone());
            kinds.len() - 1
        });
        let is_lost = u8::from(arrived.is_none());
        rows.push(json!([sender, receiver, at.saturating_sub(from), ended - from, is_lost, kind]));
    }
    rows
}

/// The notes of the hosts, as lines of text.
fn lines(lives: &[(Recording, Picture)], lanes: &Lanes<'_>, clock: &Clock, from: u64, to: u64) -> Vec<Value> {
    let mut lines = Vec::new();
    for (recording, _) in lives {
        let lane = lanes.of_life(recording);
        for note in &recording.notes {
            let NoteKind::Mark(mark) = &note.kind else { continue };
            let class = match mark {
                Mark::Transition { .. } => "role",
                Mark::Late { .. } | Mark::DiskStalled { .. } | Mark::Stopping | Mark::Ended { .. } => "fault",
                _ => "host",
            };
            let at = clock.unix_micros(&recording.life, note.at_micros);
            if (from..=to).contains(&at) {
                lines.push((
                    at,
                    json!([at - from, class, lane, format!("{} {}", recording.life.name, mark.in_words())]),
                ));
            }
        }
    }
    lines.sort_by_key(|(at, _)| *at);
    lines.into_iter().map(|(_, line)| line).collect()
}
