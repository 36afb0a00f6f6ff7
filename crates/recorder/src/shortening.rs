//! Shortens a script to steps that still show its violation: [`Script::shortened`].
//!
//! A part of a script stands for a run that could have happened:
//!
//! - what is heard was said before, at a step that is kept;
//! - a snapshot that is ready was cut, at a step that is kept;
//! - a life that a later one of the same member follows wrote to its disk what it had written, for there the later one begins;
//! - every timer that fires was set, a snapshot is cut of what was applied, and one that arrives was asked for;
//! - no value reaches an impossible state on the way, but for the one that is shown.
//!
//! The steps that led to the violation are such a part. Under a protocol that tolerates loss and reordering ([`Links::Any`]) steps
//! are left out of it, too, as long as the same property falls; where a loss is the end of a link, what was not heard is not left
//! out.

use crate::ordering::Traffic;
use crate::playing::{ASSERTIONS, Violation};
use crate::replay::End;
use crate::script::{Script, Step};
use hustings_core::Protocol;
use hustings_core::protocol::Links;
use std::collections::BTreeMap;

/// So many steps are played at most while one script is cut down.
const STEPS_MAX: usize = 2_000_000;

struct Search<'a, P: Protocol> {
    script: &'a Script,
    options: &'a P::Options,
    violation: &'a Violation,
    /// Of each member what its lives wrote, but for the last one.
    persisted: BTreeMap<u64, Vec<u64>>,
    /// Of each step at which a snapshot is ready, the step at which it was cut.
    snapshots: Vec<Option<Option<usize>>>,
    steps_left: usize,
}

impl Script {
    /// Number of steps at which something is heard that nobody is seen to say, or a snapshot is ready that nobody is seen to cut:
    /// recordings that tell of it are missing.
    pub fn unseen(&self) -> usize {
        self.steps.iter().filter(|step| step.is_unseen).count()
    }

    /// A part of it that shows the first violation, with the violation in its headline; `None` when everything holds.
    pub fn shortened<P: Protocol>(&self, options: &P::Options) -> Option<Script> {
        let played = self.play::<P>(options);
        let violation = played.violations.first()?;
        let (snapshots, steps_left) = (self.snapshots(), STEPS_MAX);
        let kept = self.past_of(&self.traffic(&played), &violation.steps);
        let persisted = persisted(&self.traffic(&self.play_these::<P>(options, &kept)));
        let mut search = Search::<P> { script: self, options, violation, persisted, snapshots, steps_left };
        let kept = match P::LINKS {
            Links::Any if search.violated_by(&kept).is_some() => search.without_the_rest(kept),
            _ => kept,
        };
        let shown = search.violated_by(&kept).unwrap_or_else(|| violation.clone());
        let answers = self.play_these::<P>(options, &kept).pictures.into_iter().flat_map(|picture| picture.answers);
        let answers: BTreeMap<u64, u64> = answers.collect();
        let mut headline = vec![format!("{} does not hold", shown.property)];
        headline.extend(shown.facts.iter().map(|fact| format!("  {fact}")));
        if P::LINKS == Links::Any && search.has_given_up(kept.len()) {
            headline.push(format!("More could perhaps be left out: the search ended after {STEPS_MAX} played steps."));
        }
        // Told less, the members answer otherwise than they did: these answers are the script's.
        let steps: Vec<Step> =
            kept.iter().map(|index| self.steps[*index].answered(answers.get(&(*index as u64)))).collect();
        let names = self.names.iter().filter(|(id, _)| steps.iter().any(|step| step.member == **id));
        let names = names.map(|(id, name)| (*id, name.clone())).collect();
        Some(Script { headline, steps, names, ..self.clone() })
    }
}

impl<P: Protocol> Search<'_, P> {
    /// Whether what is left of the budget plays no script of this length any more.
    fn has_given_up(&self, length: usize) -> bool {
        self.steps_left <= length
    }

    /// How these steps violate the property, if they could have happened.
    fn violated_by(&self, kept: &[usize]) -> Option<Violation> {
        let played = self.script.play_these::<P>(self.options, kept);
        let could_be = played.lives.iter().all(|(_, replayed)| match &replayed.end {
            End::Same => true,
            End::Impossible { .. } => self.violation.property == ASSERTIONS,
            _ => false,
        });
        let is_cut = |index: &usize| match self.snapshots[*index] {
            Some(Some(cut)) => kept.binary_search(&cut).is_ok(),
            _ => true,
        };
        if !could_be
            || !played.not_told.is_empty()
            || !kept.iter().all(is_cut)
            || persisted(&self.script.traffic(&played)) != self.persisted
        {
            return None;
        }
        played.violations.into_iter().find(|violation| violation.is_alike(self.violation))
    }

    /// Leaves out what can be left out: halves, quarters, and so on down to single steps, until nothing more goes.
    fn without_the_rest(&mut self, mut kept: Vec<usize>) -> Vec<usize> {
        let mut size = kept.len().div_ceil(2);
        while size > 0 {
            let before = kept.len();
            // From the end: what came late explains least.
            let mut end = kept.len();
            while end > 0 && !self.has_given_up(kept.len()) {
                let start = end.saturating_sub(size);
                let is_fixed = |place: usize| self.script.steps[kept[place]].is_birth();
                let fewer: Vec<usize> = (0..kept.len())
                    .filter(|place| !(start..end).contains(place) || is_fixed(*place))
                    .map(|place| kept[place])
                    .collect();
                end = start;
                if fewer.len() == kept.len() {
                    continue;
                }
                self.steps_left -= fewer.len();
                if self.violated_by(&fewer).is_some() {
                    kept = fewer;
                    end = end.min(kept.len());
                }
            }
            size = match size {
                1 if kept.len() < before => 1,
                1 => 0,
                _ => size / 2,
            };
        }
        kept
    }
}

/// Of each member what its lives wrote, but for the last one.
fn persisted(traffic: &Traffic) -> BTreeMap<u64, Vec<u64>> {
    let mut persisted: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (member, wrote) in &traffic.persisted {
        persisted.entry(*member).or_default().push(*wrote);
    }
    for lives in persisted.values_mut() {
        lives.pop();
    }
    persisted
}
