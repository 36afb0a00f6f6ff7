//! The fate of the other members, where the old leader gave way because it heard no quorum.

use super::{Case, Cause, MISSED_MICROS, SILENT_MICROS, stood_still};
use crate::mark::Mark;
use crate::story::words::lasting;
use std::collections::BTreeMap;

impl Case<'_, '_> {
    /// When the old leader gave way because it heard no quorum, if it did.
    pub(super) fn alone(&self) -> Option<u64> {
        let is_alone = self.step_down_because().is_some_and(|because| because.contains("no quorum"));
        self.step_down().filter(|_| is_alone)
    }

    /// The deaths of others as a cause: links of the old leader were down when it gave way, and no process of those members ran.
    pub(super) fn death_of_others(&self) -> Option<Cause> {
        let until = self.alone()?;
        let ran = |name: &str| {
            let mut spans = self.line.lives_of(name).map(|life| self.line.span(life));
            spans.any(|(begun, ended)| begun <= until && until <= ended)
        };
        let voters = self.membership().map(|(voters, _)| voters);
        let votes = |name: &str| voters.is_none_or(|voters| voters.iter().any(|voter| voter == name));
        let lost = self.line.lost_links(until).into_iter().filter(|link| Some(link.life) == self.before.life);
        let missed = lost.filter(|link| !ran(link.peer) && votes(link.peer));
        let missed: Vec<_> = missed.map(|link| (link.peer.to_owned(), link.why.to_owned())).collect();
        // Those alone must leave it no quorum: one that died long ago explains nothing.
        let is_enough = voters.is_none_or(|voters| voters.len().saturating_sub(missed.len()) * 2 <= voters.len());
        (is_enough && !missed.is_empty()).then_some(Cause::QuorumLost { missed })
    }

    /// The silence of others as a cause, where nothing else is known of them.
    pub(super) fn silence_of_others(&self) -> Option<Cause> {
        let until = self.alone()?;
        let mut gave_way = self.line.of_life(self.before.life, until, until);
        let heard = gave_way.find_map(|seen| match seen.mark {
            Mark::Transition { heard, because, .. } if because.contains("no quorum") => Some(heard),
            _ => None,
        })?;
        let missed = heard.iter().filter(|heard| heard.silence_micros > MISSED_MICROS || !heard.is_linked);
        let missed =
            missed.map(|heard| (heard.peer.clone(), format!("not heard for {}", lasting(heard.silence_micros))));
        Some(Cause::QuorumLost { missed: missed.collect() })
    }

    /// The loops of other members as a cause: the old leader gave way because it heard no quorum, and they did not run.
    pub(super) fn stillness_of_others(&self) -> Vec<Cause> {
        let Some(until) = self.alone() else { return Vec::new() };
        let mut causes = Vec::new();
        for life in (0..self.line.lives.len()).filter(|life| Some(*life) != self.before.life) {
            // A pause is noted when it is over.
            let mut notes = self.line.of_life(Some(life), until, u64::MAX);
            causes.extend(notes.find_map(|seen| match seen.mark {
                Mark::Late { micros, waited_micros }
                    if *micros > SILENT_MICROS && seen.at.saturating_sub(*micros) < until =>
                {
                    Some(stood_still(self.line.name(life), *micros, *waited_micros))
                }
                _ => None,
            }));
        }
        causes
    }

    /// The loops of others as the reason why nobody led for so long: without those that stood still for most of that time, and without the
    /// old leader if it had ended or stood still, the rest was no majority.
    pub(super) fn stillness_meanwhile(&self, until: u64, is_old_leader_gone: bool) -> Vec<Cause> {
        let led = self.after.since_micros;
        let gap_micros = led.saturating_sub(until);
        let Some((voters, _)) = self.membership().filter(|_| gap_micros > SILENT_MICROS) else { return Vec::new() };
        let votes = |name: &str| voters.iter().any(|voter| voter == name);
        let mut still: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for seen in &self.line.seen {
            let Mark::Late { micros, waited_micros } = seen.mark else { continue };
            let common = seen.at.min(led).saturating_sub(seen.at.saturating_sub(*micros).max(until));
            let name = self.line.name(seen.life);
            if common * 2 > gap_micros && name != self.before.leader && votes(name) {
                // One stall may be noted twice, and only the first of both has what the thread waited for.
                let (longest, waited) = still.entry(name).or_default();
                (*longest, *waited) = ((*longest).max(*micros), waited.saturating_add(*waited_micros));
            }
        }
        let missing = still.len() + usize::from(is_old_leader_gone && votes(&self.before.leader));
        if voters.len().saturating_sub(missing) * 2 > voters.len() {
            return Vec::new();
        }
        still.into_iter().map(|(name, (micros, waited))| stood_still(name, micros, waited)).collect()
    }
}
