//! What of a script shows a violation: [`Script::shortened`].
//!
//! A part of a script stands for a run that could have happened:
//!
//! - what is heard was said before, at a step that is kept;
//! - a snapshot that is ready was cut, at a step that is kept;
//! - a life that a later one of the same member follows wrote to its disk what it had written, for there the later one begins;
//! - every alarm that rings was set, and no value reaches an impossible state on the way.
//!
//! The steps that led to the violation are such a part. Under a protocol that tolerates loss and reordering ([`Links::Any`]) steps
//! are left out of it, too, as long as the same property falls; where a loss is the end of a link, what was not heard is not left
//! out.

use crate::replay::End;
use crate::script::{Played, Script, Step, Talk, Violation};
use hustings_core::Protocol;
use hustings_core::protocol::Links;
use std::collections::{BTreeMap, BTreeSet};

/// So many steps are played at most while one script is cut down.
const STEPS_MAX: usize = 2_000_000;

struct Search<'a, P: Protocol> {
    script: &'a Script,
    options: &'a P::Options,
    property: &'static str,
    /// Of each member what its lives wrote, but for the last one.
    persisted: BTreeMap<u64, Vec<u64>>,
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
        let all: Vec<usize> = (0..self.steps.len()).collect();
        let played = self.play_these::<P>(options, &all);
        let violation = played.violations.first()?;
        let (property, steps_left) = (violation.property, STEPS_MAX);
        let mut search = Search::<P> { script: self, options, property, persisted: BTreeMap::new(), steps_left };
        let kept = search.past_of(&played, violation);
        search.persisted = persisted(&talk(self, &self.play_these::<P>(options, &kept)));
        let kept = match P::LINKS {
            Links::Any if search.violated_by(&kept).is_some() => search.without_the_rest(kept),
            _ => kept,
        };
        let violation = search.violated_by(&kept).unwrap_or_else(|| violation.clone());
        let answers = self.play_these::<P>(options, &kept).pictures.into_iter().flat_map(|picture| picture.answers);
        let answers: BTreeMap<u64, u64> = answers.collect();
        let mut headline = vec![format!("{} does not hold", violation.property)];
        headline.extend(violation.facts.iter().map(|fact| format!("  {fact}")));
        // Told less, the members answer otherwise than they did: these answers are the script's.
        let steps: Vec<Step> =
            kept.iter().map(|index| self.steps[*index].answered(answers.get(&(*index as u64)))).collect();
        let names = self.names.iter().filter(|(id, _)| steps.iter().any(|step| step.member == **id));
        let names = names.map(|(id, name)| (*id, name.clone())).collect();
        Some(Script { headline, steps, names, ..self.clone() })
    }
}

fn talk(script: &Script, played: &Played) -> Talk {
    let members = played.lives.iter().map(|(recording, _)| recording.life.member_id);
    Talk::of(script.steps.len(), members.zip(&played.pictures))
}

impl<P: Protocol> Search<'_, P> {
    /// The steps that led to a violation: those before it in the same life and, of what was heard, those that led to its saying.
    fn past_of(&self, played: &Played, violation: &Violation) -> Vec<usize> {
        let talk = talk(self.script, played);
        let mut open: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        let mut last: BTreeMap<u64, usize> = BTreeMap::new();
        // What each step rests on.
        let mut before: Vec<Vec<usize>> = Vec::with_capacity(self.script.steps.len());
        for (index, step) in self.script.steps.iter().enumerate() {
            let mut rests_on: Vec<usize> = last.insert(step.member, index).into_iter().collect();
            if let Some(heard) = talk.heard[index]
                && let Some(sayings) = open.get_mut(&heard).filter(|sayings| !sayings.is_empty())
            {
                rests_on.push(sayings.remove(0));
            }
            rests_on.extend(self.script.snapshot_at(index).flatten());
            for saying in &talk.said[index] {
                open.entry(*saying).or_default().push(index);
            }
            before.push(rests_on);
        }
        let mut past = BTreeSet::new();
        let mut waiting = violation.steps.clone();
        while let Some(index) = waiting.pop() {
            if let Some(rests_on) = before.get(index)
                && past.insert(index)
            {
                waiting.extend(rests_on);
            }
        }
        past.into_iter().collect()
    }

    /// How these steps violate the property, if they could have happened.
    fn violated_by(&self, kept: &[usize]) -> Option<Violation> {
        let played = self.script.play_these::<P>(self.options, kept);
        let could_be = played.lives.iter().all(|(_, replayed)| match &replayed.end {
            End::Same => true,
            End::Impossible { .. } => self.property == "assertions",
            _ => false,
        });
        if !could_be {
            return None;
        }
        let is_cut = |index: &usize| match self.script.snapshot_at(*index) {
            Some(Some(cut)) => kept.binary_search(&cut).is_ok(),
            _ => true,
        };
        if !played.unsaid.is_empty()
            || !kept.iter().all(is_cut)
            || persisted(&talk(self.script, &played)) != self.persisted
        {
            return None;
        }
        played.violations.into_iter().find(|violation| violation.property == self.property)
    }

    /// Leaves out what can be left out: halves, quarters, and so on down to single steps, until nothing more goes.
    fn without_the_rest(&mut self, mut kept: Vec<usize>) -> Vec<usize> {
        let mut size = kept.len().div_ceil(2);
        while size > 0 {
            let before = kept.len();
            // From the end: what came late explains least.
            let mut end = kept.len();
            while end > 0 && self.steps_left > kept.len() {
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
fn persisted(talk: &Talk) -> BTreeMap<u64, Vec<u64>> {
    let mut persisted: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (member, wrote) in &talk.persisted {
        persisted.entry(*member).or_default().push(*wrote);
    }
    for lives in persisted.values_mut() {
        lives.pop();
    }
    persisted
}
