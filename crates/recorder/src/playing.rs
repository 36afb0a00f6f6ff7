//! Playing a script: [`Script::play`].
//!
//! Members are told what stands in it, as far as it can be: a message that nobody has sent, a timer that is not set, a snapshot that
//! was not asked for are not told. A run that is convicted must have been possible, so these are left out:
//!
//! - an impossible state after the first input that was answered otherwise than it was recorded;
//! - whatever rests on a process that began with something else on its disk than the one before it has written here.

use crate::clock::Clock;
use crate::judge::{Conviction, judge};
use crate::ordering::{Message, Traffic};
use crate::picture::Picture;
use crate::replay::{Answers, End, Performer, Replayed, with_picture};
use crate::ring::Recording;
use crate::script::{Script, Step};
use crate::shape::{Note, NoteKind};
use hustings_core::Protocol;
use std::collections::BTreeMap;

/// The property that no value reaches an impossible state.
pub(crate) const ASSERTIONS: &str = "assertions";

/// The result of playing a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Played {
    /// The lives, each with what came of it. Their clocks count the script's steps, in place of microseconds.
    pub lives: Vec<(Recording, Replayed)>,
    /// Messages and states of each of the lives.
    pub pictures: Vec<Picture>,
    /// Steps that were left out, each with the reason.
    pub not_told: Vec<(usize, &'static str)>,
    /// Births at which something else is on the disk than the life before wrote, which was told or answered otherwise than recorded.
    pub births_otherwise: Vec<usize>,
    /// Violations of properties, each with the steps that show it.
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

impl Violation {
    /// Whether the other one is the same fault, perhaps at another time: the same property, and for an assertion the same one.
    pub(crate) fn is_alike(&self, other: &Violation) -> bool {
        let words =
            |violation: &Violation| violation.facts.join(" ").replace(|letter: char| letter.is_ascii_digit(), "");
        self.property == other.property && (self.property != ASSERTIONS || words(self) == words(other))
    }
}

/// A life of the script while it is played.
struct Living<'a, P: Protocol> {
    recording: Recording,
    performer: Performer<'a, P>,
    has_ended: bool,
    /// Whether it was told all, and has answered all, as it was recorded.
    is_as_recorded: bool,
}

impl Script {
    /// Plays it; answers need not be those that were recorded.
    pub fn play<P: Protocol>(&self, options: &P::Options) -> Played {
        let all: Vec<usize> = (0..self.steps.len()).collect();
        let mut played = self.play_these::<P>(options, &all);
        if played.violations.is_empty() {
            return played;
        }
        let first = self.otherwise::<P>(options).into_iter().map(|(step, _)| step).min();
        let traffic = self.traffic(&played);
        let Played { violations, births_otherwise, .. } = &mut played;
        violations.retain(|violation| {
            let is_after = |first: usize| violation.steps.iter().any(|step| *step > first);
            let is_after_another_answer = violation.property == ASSERTIONS && first.is_some_and(is_after);
            let past = self.past_of(&traffic, &violation.steps);
            let rests_on_a_strange_disk = births_otherwise.iter().any(|birth| past.binary_search(birth).is_ok());
            !is_after_another_answer && !rests_on_a_strange_disk
        });
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

    /// Messages and writes of lives that were played together.
    pub(crate) fn traffic(&self, played: &Played) -> Traffic {
        let members = played.lives.iter().map(|(recording, _)| recording.life.member_id);
        Traffic::of(self.steps.len(), members.zip(&played.pictures))
    }

    /// Plays these steps, in order.
    pub(crate) fn play_these<P: Protocol>(&self, options: &P::Options, kept: &[usize]) -> Played {
        let mut lives: Vec<Living<P>> = Vec::new();
        let mut last: BTreeMap<u64, usize> = BTreeMap::new();
        let mut sent: BTreeMap<Message, usize> = BTreeMap::new();
        let (mut not_told, mut births_otherwise) = (Vec::new(), Vec::new());
        for index in kept {
            let step = &self.steps[*index];
            if let NoteKind::Birth(birth, _) = &step.note.kind {
                let before = last.insert(step.member, lives.len()).and_then(|life| lives.get(life));
                if before.is_some_and(|life| !life.is_as_recorded && !life.performer.has_written(birth)) {
                    births_otherwise.push(*index);
                }
                let recording = Recording { life: self.life(step.member), notes: Vec::new(), damage: Vec::new() };
                let performer = Performer::new(options, Answers::Any, true);
                lives.push(Living { recording, performer, has_ended: false, is_as_recorded: true });
            }
            let Some(life) = last.get(&step.member).and_then(|life| lives.get_mut(*life)) else { continue };
            if let Some(reason) = life.cannot_be_told(step, &mut sent) {
                life.is_as_recorded = false;
                not_told.push((*index, reason));
                continue;
            }
            for message in life.tell(*index, step) {
                *sent.entry(message).or_default() += 1;
            }
        }
        let mut played =
            Played { lives: Vec::new(), pictures: Vec::new(), not_told, births_otherwise, violations: Vec::new() };
        for Living { recording, performer, .. } in lives {
            played.lives.push((recording, performer.replayed));
            played.pictures.push(performer.picture);
        }
        played.violations = violations(&played.lives);
        played
    }
}

impl<P: Protocol> Living<'_, P> {
    /// Why this cannot be told to it; a message that can is taken from those that were sent.
    fn cannot_be_told(&self, step: &Step, sent: &mut BTreeMap<Message, usize>) -> Option<&'static str> {
        if self.has_ended {
            return Some("its life has ended here");
        }
        let told = step.told()?;
        if let Some((from, what)) = told.heard::<P>() {
            match sent.get_mut(&(from, step.member, what)).filter(|count| **count > 0) {
                Some(count) => *count -= 1,
                None if step.is_unseen => {}
                None => return Some("nobody has sent it here"),
            }
        }
        self.performer.cannot_be_told(told)
    }

    /// Tells it, and returns what it sends.
    fn tell(&mut self, index: usize, step: &Step) -> Vec<Message> {
        let note = Note { at_micros: index as u64, kind: step.note.kind.clone() };
        let (known, answers) = (self.performer.picture.said.len(), self.performer.picture.answers.len());
        self.has_ended = self.performer.perform(&note).is_break();
        let answer = self.performer.picture.answers.get(answers).map(|(_, answer)| *answer);
        self.is_as_recorded &= answer == step.answer();
        self.recording.notes.push(note);
        let sent = self.performer.picture.said[known..].iter();
        sent.map(|message| (step.member, message.peer, message.fingerprint)).collect()
    }
}

/// Violations of properties over all lives, the one that is seen first before the others.
fn violations(lives: &[(Recording, Replayed)]) -> Vec<Violation> {
    let step = |at_micros: u64| usize::try_from(at_micros).unwrap_or(usize::MAX);
    let mut violations = Vec::new();
    // Their clocks count steps, and nobody sets them.
    for Conviction { property, facts } in judge(lives, &Clock::default()) {
        let steps = facts.iter().map(|fact| step(fact.at_micros)).collect();
        let facts = facts.iter().map(|fact| format!("{} {}", fact.member, fact.what)).collect();
        violations.push(Violation { property, facts, steps });
    }
    for (recording, replayed) in lives {
        if let End::Impossible { at_micros, what } = &replayed.end {
            let facts = vec![format!("{} is in an impossible state: {what}", recording.life.name)];
            violations.push(Violation { property: ASSERTIONS, facts, steps: vec![step(*at_micros)] });
        }
    }
    violations.sort_by_key(|violation| violation.steps.iter().copied().max());
    violations
}
