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
//! recordings show who said it. A part of a script is played only if it could have happened: see `shortening.rs`.

use crate::fingerprint;
use crate::judge::{Conviction, judge};
use crate::mark::Mark;
use crate::picture::Picture;
use crate::replay::{Answers, End, Replayed, with_picture};
use crate::ring::Recording;
use crate::shape::{Life, Note, NoteKind, Told};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use hustings_core::{Protocol, Wire as _};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

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
    /// What was told to whom.
    pub steps: Vec<Step>,
}

/// A member is born, or told something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// Id of the member.
    pub member: u64,
    /// A [`NoteKind::Birth`] or [`NoteKind::Told`], with the time since the beginning in microseconds.
    pub note: Note,
}

/// A line that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ScriptError {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

/// What came of playing a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Played {
    /// The lives, each with what came of it. Their clocks count the script's steps, in place of microseconds.
    pub lives: Vec<(Recording, Replayed)>,
    /// What each of the lives said, heard and was.
    pub pictures: Vec<Picture>,
    /// What does not hold, each with the steps that show it.
    pub violations: Vec<Violation>,
}

/// Something that must not be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// One of [`crate::judge::PROPERTIES`], or `assertions` where a value reached an impossible state.
    pub property: &'static str,
    /// The facts, in words.
    pub facts: Vec<String>,
    /// The steps at which they became so.
    pub steps: Vec<usize>,
}

impl Step {
    pub(crate) fn is_birth(&self) -> bool {
        matches!(self.note.kind, NoteKind::Birth(..))
    }

    pub(crate) fn told(&self) -> Option<&Told> {
        match &self.note.kind {
            NoteKind::Told(told, _) => Some(told),
            _ => None,
        }
    }

    /// What kind of input it is, in one word, for people.
    pub fn word(&self) -> &'static str {
        self.told().map_or("birth", Told::word)
    }
}

/// What of a life can be played: from its birth to the first gap.
fn playable(recording: &Recording) -> Vec<&Note> {
    let begun = recording.notes.iter().skip_while(|note| !matches!(note.kind, NoteKind::Birth(..)));
    let whole = begun.take_while(|note| !matches!(note.kind, NoteKind::Mark(Mark::Lost { .. })));
    let notes: Vec<&Note> =
        whole.filter(|note| matches!(note.kind, NoteKind::Birth(..) | NoteKind::Told(..))).collect();
    let is_whole = |note: &Note| matches!(&note.kind, NoteKind::Birth(birth, _) if birth.left_out() == 0);
    if notes.first().is_some_and(|note| is_whole(note)) { notes } else { Vec::new() }
}

impl Script {
    /// All lives of the cluster of the first one, as a script. Lives whose beginning has gone are left out.
    pub fn of<P: Protocol>(lives: &[Recording], options: &P::Options) -> Script {
        let life = lives.first().map(|recording| recording.life.clone()).unwrap_or_default();
        let mut lives: Vec<&Recording> =
            lives.iter().filter(|recording| recording.life.cluster_id == life.cluster_id).collect();
        lives.sort_by_key(|recording| recording.unix_micros(recording.life.boot_micros));
        let begun = |recording: &&Recording| Some(recording.unix_micros(playable(recording).first()?.at_micros));
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
                let at_micros = recording.unix_micros(note.at_micros).saturating_sub(since_micros);
                let note = Note { at_micros, kind: note.kind.clone() };
                script.steps.push(Step { member: recording.life.member_id, note });
            }
        }
        script.put_in_order::<P>(options);
        script
    }

    /// Sorts steps by their times, but so that a message is heard after it was said: clocks of several machines differ.
    fn put_in_order<P: Protocol>(&mut self, options: &P::Options) {
        let talk = Talk::of::<P>(self, options);
        let mut waiting: BTreeMap<u64, VecDeque<usize>> = BTreeMap::new();
        for (index, step) in self.steps.iter().enumerate() {
            waiting.entry(step.member).or_default().push_back(index);
        }
        let mut said: BTreeMap<Saying, usize> = BTreeMap::new();
        let mut order = Vec::with_capacity(self.steps.len());
        while order.len() < self.steps.len() {
            let mut heads: Vec<usize> = waiting.values().filter_map(|steps| steps.front().copied()).collect();
            heads.sort_by_key(|index| self.steps[*index].note.at_micros);
            let is_ready = |index: &&usize| {
                talk.heard[**index].is_none_or(|heard| said.get(&heard).is_some_and(|count| *count > 0))
            };
            // What nobody is seen to have said was said by a life of which nothing is known.
            let Some(next) = heads.iter().find(is_ready).or(heads.first()).copied() else { break };
            if let Some(count) = talk.heard[next].and_then(|heard| said.get_mut(&heard)) {
                *count = count.saturating_sub(1);
            }
            for saying in &talk.said[next] {
                *said.entry(*saying).or_default() += 1;
            }
            waiting.entry(self.steps[next].member).or_default().pop_front();
            order.push(next);
        }
        self.steps = order.into_iter().map(|index| self.steps[index].clone()).collect();
    }

    /// These steps as lives, whose clocks count steps.
    pub(crate) fn lives(&self, kept: &[usize]) -> Vec<Recording> {
        let mut lives: Vec<Recording> = Vec::new();
        let mut last: BTreeMap<u64, usize> = BTreeMap::new();
        for index in kept {
            let Step { member, note } = &self.steps[*index];
            if let NoteKind::Birth(..) = note.kind {
                last.insert(*member, lives.len());
                let life = Life {
                    cluster_id: self.cluster_id,
                    member_id: *member,
                    name: self.names.get(member).cloned().unwrap_or_else(|| format!("n{member}")),
                    protocol: self.protocol.clone(),
                    options: self.options.clone(),
                    ..Life::default()
                };
                lives.push(Recording { life, notes: Vec::new(), damage: Vec::new() });
            }
            if let Some(recording) = last.get(member).and_then(|life| lives.get_mut(*life)) {
                recording.notes.push(Note { at_micros: *index as u64, kind: note.kind.clone() });
            }
        }
        lives
    }

    /// Plays it; answers need not be those that were recorded.
    pub fn play<P: Protocol>(&self, options: &P::Options) -> Played {
        let all: Vec<usize> = (0..self.steps.len()).collect();
        self.play_these::<P>(options, &all)
    }

    /// The steps at which a value says something else than what was recorded: the first of each life, with what it says.
    pub fn otherwise<P: Protocol>(&self, options: &P::Options) -> Vec<(usize, String)> {
        let all: Vec<usize> = (0..self.steps.len()).collect();
        let ends =
            self.lives(&all).into_iter().map(|life| with_picture::<P>(&life, options, Answers::AsRecorded).0.end);
        let differs = |end: End| match end {
            End::Differs { at_micros, what, .. } => Some((usize::try_from(at_micros).unwrap_or(usize::MAX), what)),
            _ => None,
        };
        ends.filter_map(differs).collect()
    }

    pub(crate) fn play_these<P: Protocol>(&self, options: &P::Options, kept: &[usize]) -> Played {
        let (mut lives, mut pictures) = (Vec::new(), Vec::new());
        for recording in self.lives(kept) {
            let (replayed, picture) = with_picture::<P>(&recording, options, Answers::Any);
            lives.push((recording, replayed));
            pictures.push(picture);
        }
        let step = |at_micros: u64| usize::try_from(at_micros).unwrap_or(usize::MAX);
        let mut violations = Vec::new();
        for Conviction { property, facts } in judge(&lives) {
            let steps = facts.iter().map(|fact| step(fact.at_micros)).collect();
            let facts = facts.iter().map(|fact| format!("{} {}", fact.member, fact.what)).collect();
            violations.push(Violation { property, facts, steps });
        }
        for (recording, replayed) in &lives {
            if let End::Impossible { at_micros, what } = &replayed.end {
                let facts = vec![format!("{} is in an impossible state: {what}", recording.life.name)];
                violations.push(Violation { property: "assertions", facts, steps: vec![step(*at_micros)] });
            }
        }
        violations.sort_by_key(|violation| violation.steps.iter().copied().max());
        Played { lives, pictures, violations }
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
        for (line, text) in (1..).zip(text.lines()) {
            let words: Vec<&str> = text.split('#').next().unwrap_or("").split_whitespace().collect();
            if words.is_empty() {
                if let Some(comment) = text.trim().strip_prefix('#').filter(|_| script.protocol.is_empty()) {
                    script.headline.push(comment.strip_prefix(' ').unwrap_or(comment).trim_end().to_owned());
                }
                continue;
            }
            script.take(&words).map_err(|what| ScriptError { line, what })?;
        }
        if script.protocol.is_empty() {
            return Err(ScriptError { line: 1, what: "it does not begin with `recorded PROTOCOL`".into() });
        }
        Ok(script)
    }

    fn take(&mut self, words: &[&str]) -> Result<(), String> {
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
            [member, at, word, note] => {
                let member = number(member)?;
                let bytes = STANDARD_NO_PAD.decode(note).map_err(|error| format!("no base64: {error}"))?;
                let note = Note::decode(bytes.into()).map_err(|error| error.to_string())?;
                if !matches!(note.kind, NoteKind::Birth(..) | NoteKind::Told(..)) {
                    return Err("this is nothing that a member was told".into());
                }
                let step = Step { member, note };
                if step.word() != *word || shown(step.note.at_micros) != *at {
                    return Err(format!("it is a {} at {}", step.word(), shown(step.note.at_micros)));
                }
                let is_born = step.is_birth() || self.steps.iter().any(|step| step.member == member);
                if !is_born {
                    return Err(format!("member {member} is told something before it is born"));
                }
                self.steps.push(step);
            }
            _ => {
                return Err("a line is `recorded`, `cluster`, `member`, or MEMBER SECONDS WORD NOTE".into());
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
            writeln!(f, "{} {} {} {note}", step.member, shown(step.note.at_micros), step.word())?;
        }
        Ok(())
    }
}

/// One member says something to another: from, to, and what by its fingerprint.
pub(crate) type Saying = (u64, u64, u64);

/// What was said and heard at each step of a script.
pub(crate) struct Talk {
    pub(crate) said: Vec<Vec<Saying>>,
    pub(crate) heard: Vec<Option<Saying>>,
    /// Of each life in order: its member, and what it wrote to its disk.
    pub(crate) persisted: Vec<(u64, u64)>,
}

impl Talk {
    pub(crate) fn of<P: Protocol>(script: &Script, options: &P::Options) -> Talk {
        let all: Vec<usize> = (0..script.steps.len()).collect();
        Talk::of_played(script, &script.play_these::<P>(options, &all))
    }

    pub(crate) fn of_played(script: &Script, played: &Played) -> Talk {
        let length = script.steps.len();
        let mut talk = Talk { said: vec![Vec::new(); length], heard: vec![None; length], persisted: Vec::new() };
        let place = |at_micros: u64| usize::try_from(at_micros).ok().filter(|place| *place < length);
        for ((recording, _), picture) in played.lives.iter().zip(&played.pictures) {
            let me = recording.life.member_id;
            for message in &picture.said {
                if let Some(place) = place(message.at_micros) {
                    talk.said[place].push((me, message.peer, message.fingerprint));
                }
            }
            for message in &picture.heard {
                if let Some(place) = place(message.at_micros) {
                    talk.heard[place] = Some((message.peer, me, message.fingerprint));
                }
            }
            talk.persisted.push((me, fingerprint::of(&picture.persisted)));
        }
        talk
    }
}
