//! Recorded lives as a script, which can be read, kept, cut down and played: [`Script`].
//!
//! ```text
//! # one-leader-per-term does not hold
//! recorded raft
//! cluster 82a211c0ccc3d45 since 1795389004646000
//! member 1 n1
//! 1 0.000000 birth CAESBA...     # in term 0
//! 2 0.004512 message GgQIARIA... # AppendEntries of n1
//! ```
//!
//! Each line tells one member one thing. The lines stand in an order in which nothing is heard before it was said, as far as the
//! recordings show who said it (`ordering.rs`). Playing it: `playing.rs`; the part of it that shows a violation: `shortening.rs`.

use crate::clock::Clock;
use crate::mark::Mark;
use crate::ring::Recording;
use crate::shape::{Life, Note, NoteKind, RecordedInput};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use hustings_core::{Protocol, Wire as _};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Every line that such a script may have: its form, an example and what it says. `docs/scripts.md` has them as a table.
pub const GRAMMAR: [[&str; 3]; 4] = [
    [
        "recorded PROTOCOL [OPTIONS]",
        "recorded raft",
        "the first line: the protocol of the members, and its options as `--protocol-options` has them",
    ],
    [
        "cluster ID since MICROSECONDS",
        "cluster 87292fa9f0e05b since 1795955676344668",
        "id of the cluster in hex, and the time since 1970 from which seconds below count",
    ],
    ["member ID NAME", "member 2 n2", "name of a member; below it has its id"],
    [
        "ID SECONDS KIND NOTE [unseen]",
        "2 0.012940 link CIxlIgYIAxABIAEpAAAAAAAAAAA",
        "this member is told something of this kind; the note is what was recorded, in base64. `unseen`: the recording of whoever said it is missing",
    ],
];

/// Lives of one cluster, as what each member was told, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    /// Comment at its top: what the script shows.
    pub headline: Vec<String>,
    /// Protocol and options, as [`Life::protocol`] and [`Life::options`] have them.
    pub protocol: String,
    /// Options, as `--protocol-options` takes them; empty without any.
    pub options: String,
    /// Id of the cluster.
    pub cluster_id: u64,
    /// The beginning, in microseconds since 1970; steps count from here.
    pub since_micros: u64,
    /// Names of the members, by id.
    pub names: BTreeMap<u64, String>,
    /// Each input, with the member that it was told to.
    pub steps: Vec<Step>,
}

/// A member is born, or told something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// Id of the member.
    pub member: u64,
    /// A [`NoteKind::Birth`] or [`NoteKind::Told`], with the time since the beginning in microseconds.
    pub note: Note,
    /// Whether nobody is seen to have said the message, or to have cut the snapshot: the recording that tells of it is missing.
    pub is_unseen: bool,
}

/// A line that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ScriptError {
    /// Number of the line, from 1.
    pub line: usize,
    /// The fault, in words.
    pub what: String,
}

impl Step {
    pub(crate) fn is_birth(&self) -> bool {
        matches!(self.note.kind, NoteKind::Birth(..))
    }

    pub(crate) fn told(&self) -> Option<&RecordedInput> {
        match &self.note.kind {
            NoteKind::Told(told, _) => Some(told),
            _ => None,
        }
    }

    /// Fingerprint of the recorded answer; `None` where the value did not return.
    pub(crate) fn answer(&self) -> Option<u64> {
        match &self.note.kind {
            NoteKind::Told(_, answer) => *answer,
            NoteKind::Birth(_, answer) => Some(*answer),
            _ => None,
        }
    }

    /// The same step with the fingerprint of another answer; without one the value did not return.
    pub(crate) fn answered(&self, answer: Option<&u64>) -> Step {
        let kind = match &self.note.kind {
            NoteKind::Told(told, _) => NoteKind::Told(told.clone(), answer.copied()),
            NoteKind::Birth(birth, known) => NoteKind::Birth(birth.clone(), answer.copied().unwrap_or(*known)),
            other => other.clone(),
        };
        Step { note: Note { kind, ..self.note.clone() }, ..*self }
    }

    /// Kind of the input in one word, for people.
    pub fn word(&self) -> &'static str {
        self.told().map_or("birth", RecordedInput::word)
    }
}

/// The part of a life that can be played: from its birth to the first gap.
fn playable(recording: &Recording) -> Vec<&Note> {
    let begun = recording.notes.iter().skip_while(|note| !matches!(note.kind, NoteKind::Birth(..)));
    let whole = begun.take_while(|note| !matches!(note.kind, NoteKind::Mark(Mark::Lost { .. })));
    let notes: Vec<&Note> =
        whole.filter(|note| matches!(note.kind, NoteKind::Birth(..) | NoteKind::Told(..))).collect();
    let is_whole = |note: &Note| matches!(&note.kind, NoteKind::Birth(birth, _) if birth.left_out() == 0);
    if notes.first().is_some_and(|note| is_whole(note)) { notes } else { Vec::new() }
}

/// Lives of each member as one followed the other. Those of one start of the machine by its boot clock; and else as they stand in the
/// ring, for a wall clock can be set back.
fn in_order(mut lives: Vec<&Recording>) -> Vec<&Recording> {
    let mut boots: BTreeMap<(u64, &str), usize> = BTreeMap::new();
    for recording in &lives {
        let place = boots.len();
        boots.entry((recording.life.member_id, &recording.life.boot_id)).or_insert(place);
    }
    lives.sort_by_key(|recording| {
        let Life { member_id, boot_id, boot_micros, .. } = &recording.life;
        (*member_id, boots.get(&(*member_id, boot_id.as_str())).copied(), *boot_micros)
    });
    lives
}

impl Script {
    /// All lives of the cluster of the first one, as a script. Lives whose beginning has gone are left out.
    pub fn of<P: Protocol>(lives: &[Recording], options: &P::Options) -> Script {
        let clock = Clock::of(lives);
        let life = lives.first().map(|recording| recording.life.clone()).unwrap_or_default();
        let of_cluster = lives.iter().filter(|recording| recording.life.cluster_id == life.cluster_id);
        let lives = in_order(of_cluster.collect());
        let begun =
            |recording: &&Recording| Some(clock.unix_micros(&recording.life, playable(recording).first()?.at_micros));
        let since_micros = lives.iter().filter_map(begun).min().unwrap_or(0);
        let mut script = Script {
            headline: Vec::new(),
            protocol: life.protocol,
            options: life.options,
            cluster_id: life.cluster_id,
            since_micros,
            names: BTreeMap::new(),
            steps: Vec::new(),
        };
        for recording in lives {
            script.names.insert(recording.life.member_id, recording.life.name.clone());
            for note in playable(recording) {
                let at_micros = clock.unix_micros(&recording.life, note.at_micros).saturating_sub(since_micros);
                let note = Note { at_micros, kind: note.kind.clone() };
                script.steps.push(Step { member: recording.life.member_id, note, is_unseen: false });
            }
        }
        script.put_in_order::<P>(options);
        script
    }

    pub(crate) fn life(&self, member: u64) -> Life {
        Life {
            cluster_id: self.cluster_id,
            member_id: member,
            name: self.names.get(&member).cloned().unwrap_or_else(|| format!("n{member}")),
            protocol: self.protocol.clone(),
            options: self.options.clone(),
            ..Life::default()
        }
    }

    /// All steps as lives, whose clocks count steps.
    pub(crate) fn lives(&self) -> Vec<Recording> {
        let mut lives: Vec<Recording> = Vec::new();
        let mut last: BTreeMap<u64, usize> = BTreeMap::new();
        for (index, Step { member, note, .. }) in self.steps.iter().enumerate() {
            if let NoteKind::Birth(..) = note.kind {
                last.insert(*member, lives.len());
                lives.push(Recording { life: self.life(*member), notes: Vec::new(), damage: Vec::new() });
            }
            if let Some(recording) = last.get(member).and_then(|life| lives.get_mut(*life)) {
                recording.notes.push(Note { at_micros: index as u64, kind: note.kind.clone() });
            }
        }
        lives
    }

    /// A script, from what [`fmt::Display`] wrote.
    ///
    /// # Errors
    /// The first line that is wrong, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Script, ScriptError> {
        let mut script = Script {
            headline: Vec::new(),
            protocol: String::new(),
            options: String::new(),
            cluster_id: 0,
            since_micros: 0,
            names: BTreeMap::new(),
            steps: Vec::new(),
        };
        let mut born = BTreeSet::new();
        for (line, text) in (1..).zip(text.lines()) {
            let words: Vec<&str> = text.split('#').next().unwrap_or("").split_whitespace().collect();
            if words.is_empty() {
                if let Some(comment) = text.trim().strip_prefix('#').filter(|_| script.protocol.is_empty()) {
                    script.headline.push(comment.strip_prefix(' ').unwrap_or(comment).trim_end().to_owned());
                }
                continue;
            }
            script.take(&words, &mut born).map_err(|what| ScriptError { line, what })?;
        }
        if script.protocol.is_empty() {
            return Err(ScriptError { line: 1, what: "it does not begin with `recorded PROTOCOL`".into() });
        }
        Ok(script)
    }

    fn take(&mut self, words: &[&str], born: &mut BTreeSet<u64>) -> Result<(), String> {
        match words {
            ["recorded", protocol, options @ ..] => {
                self.protocol = (*protocol).to_owned();
                self.options = options.join(" ");
            }
            ["cluster", id, "since", micros] => {
                self.cluster_id = u64::from_str_radix(id, 16).map_err(|_| format!("`{id}` is no id in hex"))?;
                self.since_micros = micros.parse().map_err(|_| format!("`{micros}` are no microseconds"))?;
            }
            ["member", id, name @ ..] => {
                self.names.insert(number(id)?, name.join(" "));
            }
            [member, at, word, note, unseen @ ..] => {
                let is_unseen = match unseen {
                    [] => false,
                    ["unseen"] => true,
                    _ => return Err(format!("`{}` is one word too many", unseen.join(" "))),
                };
                let member = number(member)?;
                let bytes = STANDARD_NO_PAD.decode(note).map_err(|error| format!("no base64: {error}"))?;
                let note = Note::decode(bytes.into()).map_err(|error| error.to_string())?;
                if !matches!(note.kind, NoteKind::Birth(..) | NoteKind::Told(..)) {
                    return Err("this is nothing that a member was told".into());
                }
                let step = Step { member, note, is_unseen };
                if step.word() != *word || shown(step.note.at_micros) != *at {
                    return Err(format!("it is a {} at {}", step.word(), shown(step.note.at_micros)));
                }
                if step.is_birth() {
                    born.insert(member);
                }
                if !born.contains(&member) {
                    return Err(format!("member {member} is told something before it is born"));
                }
                self.steps.push(step);
            }
            _ => {
                return Err("a line is `recorded`, `cluster`, `member`, or MEMBER SECONDS WORD NOTE [unseen]".into());
            }
        }
        Ok(())
    }
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("`{word}` is no number of a member"))
}

/// Seconds with six digits.
fn shown(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.headline {
            writeln!(f, "# {line}")?;
        }
        writeln!(f, "recorded {}", format!("{} {}", self.protocol, self.options).trim_end())?;
        writeln!(f, "cluster {:x} since {}", self.cluster_id, self.since_micros)?;
        for (id, name) in &self.names {
            writeln!(f, "member {id} {name}")?;
        }
        for step in &self.steps {
            let note = STANDARD_NO_PAD.encode(step.note.to_bytes());
            let unseen = if step.is_unseen { " unseen" } else { "" };
            writeln!(f, "{} {} {} {note}{unseen}", step.member, shown(step.note.at_micros), step.word())?;
        }
        Ok(())
    }
}
