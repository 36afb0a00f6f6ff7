//! A life played again: [`replay`].

use crate::fingerprint;
use crate::mask::Zeroes;
use crate::ring::Recording;
use crate::shape::{Mark, NoteKind};
use hustings_core::protocol::{Effect, Effects};
use hustings_core::{Protocol, Transition};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What came of playing a life again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replayed {
    /// Inputs that were played, and led to the same.
    pub steps: usize,
    /// How that ended.
    pub end: End,
    /// What the value announced, each with the boot clock at its input, in microseconds.
    pub transitions: Vec<(u64, Transition)>,
}

/// How a replay ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// All that was recorded was said again.
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
        /// What kind of input.
        told: &'static str,
        /// What differs.
        what: String,
    },
    /// The value reached an impossible state, as the node that was recorded did.
    Impossible {
        /// The boot clock at the input, in microseconds.
        at_micros: u64,
        /// What was asserted.
        what: String,
    },
}

/// Gives a value of this protocol what the recorded one was told.
pub fn replay<P: Protocol>(recording: &Recording, options: &P::Options) -> Replayed {
    let mut zeroes = Zeroes::default();
    let mut replayed = Replayed { steps: 0, end: End::Same, transitions: Vec::new() };
    let mut playing: Option<Playing<P>> = None;
    for note in &recording.notes {
        let at_micros = note.at_micros;
        match &note.kind {
            NoteKind::Birth(birth, answer) => {
                if birth.left_out() > 0 {
                    let what = format!("it was born with {} entries that were not kept", birth.left_out());
                    replayed.end = End::NoBeginning(what);
                    return replayed;
                }
                let (cluster, durable) = match birth.repeat(&mut zeroes) {
                    Ok(parts) => parts,
                    Err(error) => {
                        replayed.end = End::NoBeginning(error.to_string());
                        return replayed;
                    }
                };
                let mut effects = Effects::new();
                let value = P::start(cluster, options.clone(), durable, &mut effects);
                let mut born = Playing { value, armed: BTreeSet::new() };
                if let Err(what) = born.hear(&effects, Some(*answer), at_micros, &mut replayed) {
                    replayed.end = End::Differs { at_micros, told: "birth", what };
                    return replayed;
                }
                playing = Some(born);
            }
            NoteKind::Told(told, answer) => {
                let Some(playing) = &mut playing else {
                    replayed.end = End::NoBeginning("it begins in the middle of a life".into());
                    return replayed;
                };
                let played = told
                    .repeat::<P>(&mut zeroes, |fingerprint| playing.alarm(fingerprint))
                    .map_err(|error| error.to_string())
                    .map(|input| {
                        let mut effects = Effects::new();
                        let stepped = catch_unwind(AssertUnwindSafe(|| {
                            playing.value.step(input, &mut effects);
                            playing.value.assert_invariants();
                        }));
                        (effects, stepped)
                    });
                let heard = match played {
                    Ok((_, Err(panic))) => {
                        let what = panic.downcast_ref::<String>().cloned();
                        let what = what.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                        replayed.end = End::Impossible { at_micros, what: what.unwrap_or_default() };
                        return replayed;
                    }
                    Ok((effects, Ok(()))) => playing.hear(&effects, *answer, at_micros, &mut replayed),
                    Err(what) => Err(what),
                };
                if let Err(what) = heard {
                    replayed.end = End::Differs { at_micros, told: told.word(), what };
                    return replayed;
                }
                replayed.steps += 1;
            }
            NoteKind::Mark(Mark::Lost { .. }) => {
                replayed.end = End::Gap { at_micros };
                return replayed;
            }
            NoteKind::Mark(_) | NoteKind::Life(_) => {}
        }
    }
    if playing.is_none() {
        replayed.end = End::NoBeginning("it holds nothing that a protocol was told".into());
    } else if !recording.damage.is_empty() {
        replayed.end = End::Gap { at_micros: recording.end_micros() };
    }
    replayed
}

struct Playing<P: Protocol> {
    value: P,
    /// Alarms that may ring.
    armed: BTreeSet<P::Timer>,
}

impl<P: Protocol> Playing<P> {
    fn alarm(&mut self, wanted: u64) -> Option<P::Timer> {
        let timer = self.armed.iter().find(|timer| fingerprint::of(*timer) == wanted).copied()?;
        self.armed.remove(&timer);
        Some(timer)
    }

    fn hear(
        &mut self,
        effects: &Effects<P>,
        recorded: Option<u64>,
        at_micros: u64,
        replayed: &mut Replayed,
    ) -> Result<(), String> {
        for effect in effects.as_slice() {
            match effect {
                Effect::SetTimer { timer, .. } => drop(self.armed.insert(*timer)),
                Effect::CancelTimer(timer) => drop(self.armed.remove(timer)),
                Effect::Announce(transition) => replayed.transitions.push((at_micros, transition.clone())),
                _ => {}
            }
        }
        match recorded {
            Some(recorded) if recorded == fingerprint::of_effects(effects) => Ok(()),
            Some(_) => Err(format!("the answer is another: {}", said(effects))),
            None => Err("the recorded value did not return from this, and this one did".into()),
        }
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
