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

use crate::judge::{Conviction, judge};
use crate::mark::Mark;
use crate::picture::Picture;
use crate::replay::{Answers, End, Performer, Replayed, with_picture};
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
    /// Whether nobody is seen to have said the message, or to have cut the snapshot: the recording that tells of it is missing.
    pub is_unseen: bool,
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
    /// Steps that were left out, because nobody had said what is heard at them.
    pub unsaid: Vec<usize>,
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

    /// The same step with the fingerprint of another answer; without one the value did not return.
    pub(crate) fn answered(&self, answer: Option<&u64>) -> Step {
        let kind = match &self.note.kind {
            NoteKind::Told(told, _) => NoteKind::Told(told.clone(), answer.copied()),
            NoteKind::Birth(birth, known) => NoteKind::Birth(birth.clone(), answer.copied().unwrap_or(*known)),
            other => other.clone(),
        };
        Step { note: Note { kind, ..self.note.clone() }, ..*self }
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
                script.steps.push(Step { member: recording.life.member_id, note, is_unseen: false });
            }
        }
        script.put_in_order::<P>(options);
        script
    }

    /// Sorts steps by their times, but so that a message is heard after it was said: clocks of several machines differ.
    fn put_in_order<P: Protocol>(&mut self, options: &P::Options) {
        let lives = self.lives();
        let pictures: Vec<Picture> =
            lives.iter().map(|life| with_picture::<P>(life, options, Answers::Any).1).collect();
        let members = lives.iter().map(|recording| recording.life.member_id);
        let talk = Talk::of(self.steps.len(), members.zip(&pictures));
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
            let ready = heads.iter().find(is_ready).copied();
            // What nobody is seen to have said was said by a life of which nothing is known.
            let Some(next) = ready.or(heads.first().copied()) else { break };
            self.steps[next].is_unseen = ready.is_none();
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
        for index in 0..self.steps.len() {
            self.steps[index].is_unseen |= self.snapshot_at(index) == Some(None);
        }
    }

    /// The step at which the snapshot was cut that is ready at this one; the inner `None` where nobody is seen to cut it.
    pub(crate) fn snapshot_at(&self, index: usize) -> Option<Option<usize>> {
        let ready = self.steps[index].told()?.ready_snapshot()?;
        Some(self.steps[..index].iter().rposition(|step| step.told().and_then(Told::cut_snapshot) == Some(ready)))
    }

    fn life(&self, member: u64) -> Life {
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
    fn lives(&self) -> Vec<Recording> {
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

    /// Plays it; answers need not be those that were recorded. Where one is not, members are told from then on what would not have been
    /// said, so an impossible state that comes later shows nothing and is left out.
    pub fn play<P: Protocol>(&self, options: &P::Options) -> Played {
        let all: Vec<usize> = (0..self.steps.len()).collect();
        let mut played = self.play_these::<P>(options, &all);
        let is_impossible = |violation: &Violation| violation.property == "assertions";
        if played.violations.iter().any(is_impossible)
            && let Some(first) = self.otherwise::<P>(options).into_iter().map(|(step, _)| step).min()
        {
            played
                .violations
                .retain(|violation| !is_impossible(violation) || violation.steps.iter().all(|step| *step <= first));
        }
        played
    }

    /// The steps at which a value says something else than what was recorded: the first of each life, with what it says.
    pub fn otherwise<P: Protocol>(&self, options: &P::Options) -> Vec<(usize, String)> {
        let ends = self.lives().into_iter().map(|life| with_picture::<P>(&life, options, Answers::AsRecorded).0.end);
        let differs = |end: End| match end {
            End::Differs { at_micros, what, .. } => Some((usize::try_from(at_micros).unwrap_or(usize::MAX), what)),
            _ => None,
        };
        ends.filter_map(differs).collect()
    }

    /// Plays these steps, in order. What nobody said is not told, but where the script says so.
    pub(crate) fn play_these<P: Protocol>(&self, options: &P::Options, kept: &[usize]) -> Played {
        let mut lives: Vec<(Recording, Performer<P>, bool)> = Vec::new();
        let mut last: BTreeMap<u64, usize> = BTreeMap::new();
        let mut said: BTreeMap<Saying, usize> = BTreeMap::new();
        let mut unsaid = Vec::new();
        for index in kept {
            let step = &self.steps[*index];
            if step.is_birth() {
                last.insert(step.member, lives.len());
                let recording = Recording { life: self.life(step.member), notes: Vec::new(), damage: Vec::new() };
                lives.push((recording, Performer::new(options, Answers::Any, true), false));
            }
            let Some((recording, performer, has_ended)) = last.get(&step.member).and_then(|life| lives.get_mut(*life))
            else {
                continue;
            };
            if *has_ended {
                continue;
            }
            if let Some((from, what)) = step.told().and_then(Told::heard::<P>) {
                match said.get_mut(&(from, step.member, what)).filter(|count| **count > 0) {
                    Some(count) => *count -= 1,
                    None if step.is_unseen => {}
                    None => {
                        unsaid.push(*index);
                        continue;
                    }
                }
            }
            let note = Note { at_micros: *index as u64, kind: step.note.kind.clone() };
            let known = performer.picture.said.len();
            *has_ended = performer.perform(&note).is_break();
            for message in &performer.picture.said[known..] {
                *said.entry((step.member, message.peer, message.fingerprint)).or_default() += 1;
            }
            recording.notes.push(note);
        }
        let mut played = Played { lives: Vec::new(), pictures: Vec::new(), unsaid, violations: Vec::new() };
        for (recording, performer, _) in lives {
            played.lives.push((recording, performer.replayed));
            played.pictures.push(performer.picture);
        }
        played.violations = violations(&played.lives);
        played
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
                let is_born = step.is_birth() || self.steps.iter().any(|step| step.member == member);
                if !is_born {
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
    /// Of lives that were played, each by itself or together.
    pub(crate) fn of<'a>(steps: usize, lives: impl Iterator<Item = (u64, &'a Picture)>) -> Talk {
        let mut talk = Talk { said: vec![Vec::new(); steps], heard: vec![None; steps], persisted: Vec::new() };
        let place = |at_micros: u64| usize::try_from(at_micros).ok().filter(|place| *place < steps);
        for (me, picture) in lives {
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
            talk.persisted.push((me, picture.persisted));
        }
        talk
    }
}

/// What does not hold, by what is seen first.
fn violations(lives: &[(Recording, Replayed)]) -> Vec<Violation> {
    let step = |at_micros: u64| usize::try_from(at_micros).unwrap_or(usize::MAX);
    let mut violations = Vec::new();
    for Conviction { property, facts } in judge(lives) {
        let steps = facts.iter().map(|fact| step(fact.at_micros)).collect();
        let facts = facts.iter().map(|fact| format!("{} {}", fact.member, fact.what)).collect();
        violations.push(Violation { property, facts, steps });
    }
    for (recording, replayed) in lives {
        if let End::Impossible { at_micros, what } = &replayed.end {
            let facts = vec![format!("{} is in an impossible state: {what}", recording.life.name)];
            violations.push(Violation { property: "assertions", facts, steps: vec![step(*at_micros)] });
        }
    }
    violations.sort_by_key(|violation| violation.steps.iter().copied().max());
    violations
}
