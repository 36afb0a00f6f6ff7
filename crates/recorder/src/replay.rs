//! Playing a recorded life again: [`replay`].

use crate::fingerprint;
use crate::judge::digest_of;
use crate::mark::Mark;
use crate::mask::Zeroes;
use crate::picture::Picture;
use crate::ring::Recording;
use crate::shape::{Birth, HostInput, Note, NoteKind, RecordedInput};
use hustings_core::panics::caught;
use hustings_core::protocol::{Effect, Effects, Input};
use hustings_core::{Durable, Entry, Lsn, Protocol, SnapshotReference, Status, Term, Transition};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

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
            NoteKind::Birth(birth, answer) => self.on_birth(at_micros, birth, *answer),
            NoteKind::Told(told, answer) => self.on_told(at_micros, told, *answer),
            NoteKind::Mark(Mark::Lost { .. }) => self.ends(End::Gap { at_micros }),
            NoteKind::Mark(_) | NoteKind::Life(_) => ControlFlow::Continue(()),
        }
    }

    /// Why no host tells it this now.
    pub(crate) fn cannot_be_told(&self, told: &RecordedInput) -> Option<&'static str> {
        let playing = self.playing.as_ref()?;
        let reference = || told.reference();
        let can_be = match told.host_input() {
            HostInput::Timer(wanted) => playing.armed.iter().any(|timer| fingerprint::of(timer) == wanted),
            HostInput::Compact => reference().is_none_or(|reference| reference.lsn.index <= playing.applied),
            HostInput::Fetched => reference().is_none_or(|reference| playing.fetched.contains(&reference)),
            HostInput::Installed(lsn) => playing.restored.contains(&lsn),
            HostInput::Other => true,
        };
        (!can_be).then(|| told.host_input().reason())
    }

    /// Whether the life has written to its disk what this one finds there.
    pub(crate) fn has_written(&self, birth: &Birth) -> bool {
        let written = self.playing.as_ref().map(|playing| &playing.durable);
        let found = caught(|| birth.repeat(&mut Zeroes::default()));
        matches!((written, found), (Some(written), Ok(Ok((_, found)))) if *written == found)
    }

    fn on_birth(&mut self, at_micros: u64, birth: &Birth, answer: u64) -> ControlFlow<()> {
        if birth.left_out() > 0 {
            return self
                .ends(End::NoBeginning(format!("it was born with {} entries that were not kept", birth.left_out())));
        }
        let repeated = caught(|| birth.repeat(&mut self.zeroes).map_err(|error| error.to_string()));
        let (cluster, durable) = match repeated.and_then(|parts| parts) {
            Ok(parts) => parts,
            Err(what) => return self.ends(End::NoBeginning(what)),
        };
        let mut effects = Effects::new();
        let started = caught(|| {
            let value = P::start(cluster, self.options.clone(), durable.clone(), &mut effects);
            value.assert_invariants();
            let status = value.status();
            (value, status)
        });
        let (value, status) = match started {
            Ok(started) => started,
            Err(what) => return self.ends(End::Impossible { at_micros, what }),
        };
        let mut born = Playing::of(value, if self.is_drawn { durable } else { Durable::default() });
        if self.is_drawn {
            show(&effects, at_micros, &status, &mut self.picture);
        }
        if self.is_drawn
            && let Err(what) = born.write(&effects)
        {
            return self.ends(End::Impossible { at_micros, what });
        }
        let expected = self.expected(Some(answer));
        if let Err(what) = born.hear(&effects, expected, (at_micros, "birth"), &mut self.replayed) {
            return self.ends(End::Differs { at_micros, told: "birth", what });
        }
        Standing::of(&status, (at_micros, "birth")).follow(&mut self.highest, &mut self.replayed);
        self.playing = Some(born);
        ControlFlow::Continue(())
    }

    fn on_told(&mut self, at_micros: u64, told: &RecordedInput, answer: Option<u64>) -> ControlFlow<()> {
        let expected = self.expected(answer);
        let Some(playing) = &mut self.playing else {
            return self.ends(End::NoBeginning("it begins in the middle of a life".into()));
        };
        let zeroes = &mut self.zeroes;
        let repeated =
            caught(|| told.repeat::<P>(zeroes, |wanted| playing.timer(wanted)).map_err(|error| error.to_string()));
        let input = match repeated.and_then(|input| input) {
            Ok(input) => input,
            Err(what) => return self.ends(End::Differs { at_micros, told: told.word(), what }),
        };
        if let (true, Input::Message { from, message }) = (self.is_drawn, &input) {
            self.picture.on_heard::<P>(at_micros, *from, message);
        }
        let mut effects = Effects::new();
        let stepped = caught(|| {
            playing.value.step(input, &mut effects);
            playing.value.assert_invariants();
            playing.value.status()
        });
        let status = match stepped {
            Ok(status) => status,
            Err(what) => return self.ends(End::Impossible { at_micros, what }),
        };
        if self.is_drawn {
            show(&effects, at_micros, &status, &mut self.picture);
        }
        if self.is_drawn
            && let Err(what) = playing.write(&effects)
        {
            return self.ends(End::Impossible { at_micros, what });
        }
        if let Err(what) = playing.hear(&effects, expected, (at_micros, told.word()), &mut self.replayed) {
            return self.ends(End::Differs { at_micros, told: told.word(), what });
        }
        Standing::of(&status, (at_micros, told.word())).follow(&mut self.highest, &mut self.replayed);
        self.replayed.steps += 1;
        ControlFlow::Continue(())
    }
}

/// The answer that a replayed one is compared with.
enum Answer {
    /// The fingerprint of the recorded one; none when the recorded value did not return.
    Recorded(Option<u64>),
    Any,
}

struct Playing<P: Protocol> {
    value: P,
    /// Timers that are armed, and so may fire.
    armed: BTreeSet<P::Timer>,
    /// The last index that was applied or restored.
    applied: u64,
    /// Snapshots that were asked for, and places that were restored.
    fetched: Vec<SnapshotReference>,
    restored: BTreeSet<Lsn>,
    /// Its disk, when everything that it has written is there. Kept only where it is drawn.
    durable: Durable,
}

impl<P: Protocol> Playing<P> {
    fn of(value: P, durable: Durable) -> Playing<P> {
        let applied = durable.snapshot_index();
        Playing { value, armed: BTreeSet::new(), applied, fetched: Vec::new(), restored: BTreeSet::new(), durable }
    }

    fn timer(&mut self, wanted: u64) -> Option<P::Timer> {
        let timer = self.armed.iter().find(|timer| fingerprint::of(*timer) == wanted).copied()?;
        self.armed.remove(&timer);
        Some(timer)
    }

    /// Writes what it persists to its disk; a promise that is taken back is an impossible state.
    fn write(&mut self, effects: &Effects<P>) -> Result<(), String> {
        caught(|| {
            for effect in effects.as_slice() {
                if let Effect::Persist(record) = effect {
                    self.durable.absorb(record.clone());
                }
            }
        })
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
                Effect::FetchSnapshot { reference, .. } => self.fetched.push(reference.clone()),
                Effect::Restore(reference) => {
                    self.applied = self.applied.max(reference.lsn.index);
                    self.restored.insert(reference.lsn);
                }
                Effect::Announce(transition) => {
                    replayed.transitions.push(Said { at_micros, told, transition: transition.clone() });
                }
                Effect::Apply(entry) => {
                    let Entry { lsn, kind, origin, payload, .. } = entry;
                    self.applied = self.applied.max(lsn.index);
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

/// Adds what a value says, and what it is, to a picture.
fn show<P: Protocol>(effects: &Effects<P>, at_micros: u64, status: &Status, picture: &mut Picture) {
    picture.answers.push((at_micros, fingerprint::of_effects(effects)));
    for effect in effects.as_slice() {
        match effect {
            Effect::Send { to, message, .. } => picture.on_said::<P>(at_micros, *to, message),
            Effect::Apply(entry) => picture.on_applied(entry.lsn.index),
            Effect::Persist(record) => picture.on_persisted(record),
            _ => {}
        }
    }
    picture.on_state(at_micros, status);
}

/// Term and commit of a value at some input.
struct Standing {
    at_micros: u64,
    told: &'static str,
    term: Term,
    commit: u64,
}

impl Standing {
    fn of(status: &Status, (at_micros, told): (u64, &'static str)) -> Standing {
        let Status { term, commit, .. } = status;
        Standing { at_micros, told, term: *term, commit: *commit }
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
