//! Playing a recorded life again: [`replay`].

use crate::fingerprint;
use crate::judge::digest_of;
use crate::mark::Mark;
use crate::mask::Zeroes;
use crate::picture::Picture;
use crate::ring::Recording;
use crate::shape::{Birth, Note, NoteKind, Told};
use hustings_core::protocol::{Effect, Effects, Input};
use hustings_core::{Entry, Protocol, Status, Term, Transition};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of playing a life again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replayed {
    /// Inputs that were played, and led to the same.
    pub steps: usize,
    /// The reason why the replay ended.
    pub end: End,
    /// Transitions that the value announced.
    pub transitions: Vec<Said>,
    /// Entries that the value applied.
    pub applied: Vec<Applied>,
    /// The first fall of its term or its commit index: before and after, each with the boot clock in microseconds and what it said.
    pub fallen: Option<((u64, String), (u64, String))>,
}

/// A transition, and what led to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// The boot clock at the input, in microseconds.
    pub at_micros: u64,
    /// Kind of the input.
    pub told: &'static str,
    /// The transition that was announced.
    pub transition: Transition,
}

/// An entry that was applied, and what led to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// The boot clock at the input, in microseconds.
    pub at_micros: u64,
    /// Kind of the input.
    pub told: &'static str,
    /// Index of the entry.
    pub index: u64,
    /// Two entries with the same one are the same, but for their terms.
    pub digest: u64,
    /// The entry's kind and content, for people.
    pub what: String,
}

/// The end of a replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// Everything that was recorded was said again.
    Same,
    /// The recording does not begin with a birth, or not with all of one: why.
    NoBeginning(String),
    /// Up to here everything was the same; then notes are missing.
    Gap {
        /// The boot clock there, in microseconds.
        at_micros: u64,
    },
    /// The value said something else.
    Differs {
        /// The boot clock at the input, in microseconds.
        at_micros: u64,
        /// Kind of the input.
        told: &'static str,
        /// The difference, in words.
        what: String,
    },
    /// The value reached an impossible state, as the node that was recorded did.
    Impossible {
        /// The boot clock at the input, in microseconds.
        at_micros: u64,
        /// The assertion that failed.
        what: String,
    },
}

/// Gives a value of this protocol what the recorded one was told.
pub fn replay<P: Protocol>(recording: &Recording, options: &P::Options) -> Replayed {
    play::<P>(recording, options, None, Answers::AsRecorded)
}

/// The same, and what is needed to draw it.
pub fn replay_with_picture<P: Protocol>(recording: &Recording, options: &P::Options) -> (Replayed, Picture) {
    with_picture::<P>(recording, options, Answers::AsRecorded)
}

/// Whether the value must answer as the recorded one did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answers {
    /// Or the replay ends.
    AsRecorded,
    /// It is another value, or was told less.
    Any,
}

pub(crate) fn with_picture<P: Protocol>(
    recording: &Recording,
    options: &P::Options,
    answers: Answers,
) -> (Replayed, Picture) {
    let mut picture = Picture::default();
    let replayed = play::<P>(recording, options, Some(&mut picture), answers);
    (replayed, picture)
}

fn play<P: Protocol>(
    recording: &Recording,
    options: &P::Options,
    picture: Option<&mut Picture>,
    answers: Answers,
) -> Replayed {
    let mut performer = Performer::<P>::new(options, answers, picture.is_some());
    for note in &recording.notes {
        if performer.perform(note).is_break() {
            break;
        }
    }
    if let Some(picture) = picture {
        *picture = std::mem::take(&mut performer.picture);
    }
    let has_begun = performer.playing.is_some();
    let mut replayed = performer.replayed;
    if replayed.end != End::Same {
        return replayed;
    }
    if !has_begun {
        replayed.end = End::NoBeginning("it holds nothing that a protocol was told".into());
    } else if !recording.damage.is_empty() {
        replayed.end = End::Gap { at_micros: recording.end_micros() };
    }
    replayed
}

/// One life that is played, note by note.
pub(crate) struct Performer<'a, P: Protocol> {
    options: &'a P::Options,
    answers: Answers,
    is_drawn: bool,
    zeroes: Zeroes,
    highest: Option<Standing>,
    playing: Option<Playing<P>>,
    pub(crate) replayed: Replayed,
    /// Blank unless it is drawn.
    pub(crate) picture: Picture,
}

impl<'a, P: Protocol> Performer<'a, P> {
    pub(crate) fn new(options: &'a P::Options, answers: Answers, is_drawn: bool) -> Performer<'a, P> {
        let replayed =
            Replayed { steps: 0, end: End::Same, transitions: Vec::new(), applied: Vec::new(), fallen: None };
        Performer {
            options,
            answers,
            is_drawn,
            zeroes: Zeroes::default(),
            highest: None,
            playing: None,
            replayed,
            picture: Picture::default(),
        }
    }

    fn expected(&self, answer: Option<u64>) -> Answer {
        if self.answers == Answers::Any { Answer::Any } else { Answer::Recorded(answer) }
    }

    fn ends(&mut self, end: End) -> ControlFlow<()> {
        self.replayed.end = end;
        ControlFlow::Break(())
    }

    /// Plays the next note; breaks where the life cannot be played any further, and its end says why.
    pub(crate) fn perform(&mut self, note: &Note) -> ControlFlow<()> {
        let at_micros = note.at_micros;
        match &note.kind {
            NoteKind::Birth(birth, answer) => self.is_born(at_micros, birth, *answer),
            NoteKind::Told(told, answer) => self.is_told(at_micros, told, *answer),
            NoteKind::Mark(Mark::Lost { .. }) => self.ends(End::Gap { at_micros }),
            NoteKind::Mark(_) | NoteKind::Life(_) => ControlFlow::Continue(()),
        }
    }

    fn is_born(&mut self, at_micros: u64, birth: &Birth, answer: u64) -> ControlFlow<()> {
        if birth.left_out() > 0 {
            return self
                .ends(End::NoBeginning(format!("it was born with {} entries that were not kept", birth.left_out())));
        }
        let (cluster, durable) = match birth.repeat(&mut self.zeroes) {
            Ok(parts) => parts,
            Err(error) => return self.ends(End::NoBeginning(error.to_string())),
        };
        let mut effects = Effects::new();
        let value = P::start(cluster, self.options.clone(), durable, &mut effects);
        let mut born = Playing { value, armed: BTreeSet::new() };
        if self.is_drawn {
            born.show(&effects, at_micros, &mut self.picture);
        }
        let expected = self.expected(Some(answer));
        if let Err(what) = born.hear(&effects, expected, (at_micros, "birth"), &mut self.replayed) {
            return self.ends(End::Differs { at_micros, told: "birth", what });
        }
        Standing::of(&born.value, (at_micros, "birth")).follow(&mut self.highest, &mut self.replayed);
        self.playing = Some(born);
        ControlFlow::Continue(())
    }

    fn is_told(&mut self, at_micros: u64, told: &Told, answer: Option<u64>) -> ControlFlow<()> {
        let expected = self.expected(answer);
        let Some(playing) = &mut self.playing else {
            return self.ends(End::NoBeginning("it begins in the middle of a life".into()));
        };
        let input = told.repeat::<P>(&mut self.zeroes, |fingerprint| playing.alarm(fingerprint));
        let input = match input {
            Ok(input) => input,
            Err(error) => {
                return self.ends(End::Differs { at_micros, told: told.word(), what: error.to_string() });
            }
        };
        if let (true, Input::Message { from, message }) = (self.is_drawn, &input) {
            self.picture.on_heard::<P>(at_micros, *from, message);
        }
        let mut effects = Effects::new();
        let stepped = catch_unwind(AssertUnwindSafe(|| {
            playing.value.step(input, &mut effects);
            playing.value.assert_invariants();
        }));
        if let Err(panic) = stepped {
            let what = panic.downcast_ref::<String>().cloned();
            let what = what.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            return self.ends(End::Impossible { at_micros, what: what.unwrap_or_default() });
        }
        if self.is_drawn {
            playing.show(&effects, at_micros, &mut self.picture);
        }
        if let Err(what) = playing.hear(&effects, expected, (at_micros, told.word()), &mut self.replayed) {
            return self.ends(End::Differs { at_micros, told: told.word(), what });
        }
        Standing::of(&playing.value, (at_micros, told.word())).follow(&mut self.highest, &mut self.replayed);
        self.replayed.steps += 1;
        ControlFlow::Continue(())
    }
}

/// What an answer is compared with.
enum Answer {
    /// The fingerprint of the recorded one; none when the recorded value did not return.
    Recorded(Option<u64>),
    Any,
}

struct Playing<P: Protocol> {
    value: P,
    /// Alarms that are armed, and so may ring.
    armed: BTreeSet<P::Timer>,
}

impl<P: Protocol> Playing<P> {
    fn alarm(&mut self, wanted: u64) -> Option<P::Timer> {
        let timer = self.armed.iter().find(|timer| fingerprint::of(*timer) == wanted).copied()?;
        self.armed.remove(&timer);
        Some(timer)
    }

    /// Adds what it says, and what it is, to a picture.
    fn show(&self, effects: &Effects<P>, at_micros: u64, picture: &mut Picture) {
        picture.answers.push((at_micros, fingerprint::of_effects(effects)));
        for effect in effects.as_slice() {
            match effect {
                Effect::Send { to, message, .. } => picture.on_said::<P>(at_micros, *to, message),
                Effect::Apply(entry) => picture.on_applied(entry.lsn.index),
                Effect::Persist(record) => picture.on_persisted(record),
                _ => {}
            }
        }
        picture.on_state(at_micros, &self.value.status());
    }

    fn hear(
        &mut self,
        effects: &Effects<P>,
        expected: Answer,
        (at_micros, told): (u64, &'static str),
        replayed: &mut Replayed,
    ) -> Result<(), String> {
        match expected {
            Answer::Any => {}
            Answer::Recorded(Some(recorded)) if recorded == fingerprint::of_effects(effects) => {}
            Answer::Recorded(Some(_)) => return Err(format!("the answer is another: {}", said(effects))),
            Answer::Recorded(None) => {
                return Err("the recorded value did not return from this, and this one did".into());
            }
        }
        for effect in effects.as_slice() {
            match effect {
                Effect::SetTimer { timer, .. } => drop(self.armed.insert(*timer)),
                Effect::CancelTimer(timer) => drop(self.armed.remove(timer)),
                Effect::Announce(transition) => {
                    replayed.transitions.push(Said { at_micros, told, transition: transition.clone() });
                }
                Effect::Apply(entry) => {
                    let Entry { lsn, kind, origin, payload, .. } = entry;
                    replayed.applied.push(Applied {
                        at_micros,
                        told,
                        index: lsn.index,
                        digest: digest_of(entry),
                        what: format!(
                            "{kind:?} of {} bytes (checksum {:02x?}) at {lsn}, proposal {} of {} in its boot {}",
                            payload.len(),
                            &payload[..payload.len().min(4)],
                            origin.sequence,
                            origin.node,
                            origin.incarnation
                        ),
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Term and commit of a value at some input.
struct Standing {
    at_micros: u64,
    told: &'static str,
    term: Term,
    commit: u64,
}

impl Standing {
    fn of<P: Protocol>(value: &P, (at_micros, told): (u64, &'static str)) -> Standing {
        let Status { term, commit, .. } = value.status();
        Standing { at_micros, told, term, commit }
    }

    /// Compares it with the one before, and takes its place.
    fn follow(self, before: &mut Option<Standing>, replayed: &mut Replayed) {
        if let Some(before) = before.as_ref().filter(|before| before.term > self.term || before.commit > self.commit)
            && replayed.fallen.is_none()
        {
            replayed.fallen = Some((before.fact(), self.fact()));
        }
        *before = Some(self);
    }

    fn fact(&self) -> (u64, String) {
        let Standing { at_micros, told, term, commit } = self;
        (*at_micros, format!("is in term {term} and has committed up to {commit}, told of a {told}"))
    }
}

/// An answer in one line, cut at a length for people.
fn said<P: Protocol>(effects: &Effects<P>) -> String {
    const CHARS_MAX: usize = 400;
    let text = format!("{:?}", effects.as_slice());
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
