//! The fate of the other members, where the old leader gave way because it heard no quorum.

use super::{Case, Cause, MISSED_MICROS, SILENT_MICROS, stood_still};
use crate::mark::Mark;
use crate::story::words::lasting;

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

    /// The reason why nobody led for so long: without those that stood still or were gone for most of that time, and without the old leader if
    /// it had ended or stood still, the rest was no majority.
    pub(super) fn missing_meanwhile(&self, until: u64, is_old_leader_gone: bool) -> Vec<Cause> {
        let led = self.after.since_micros;
        let gap_micros = led.saturating_sub(until);
        let Some((voters, _)) = self.membership().filter(|_| gap_micros > SILENT_MICROS) else { return Vec::new() };
        let others = || voters.iter().filter(|voter| **voter != self.before.leader);
        let still = others().filter_map(|voter| self.stillness_of(voter, until, gap_micros));
        let away = others().filter_map(|voter| self.absence_of(voter, until, gap_micros));
        let missing: Vec<Cause> = still.chain(away).collect();
        let is_voter_gone = is_old_leader_gone && voters.contains(&self.before.leader);
        let left = voters.len().saturating_sub(missing.len() + usize::from(is_voter_gone));
        if left * 2 > voters.len() { Vec::new() } else { missing }
    }

    /// That a member stood still for most of the time in which nobody led.
    fn stillness_of(&self, name: &str, until: u64, gap_micros: u64) -> Option<Cause> {
        let mut still: Option<(u64, u64)> = None;
        for seen in self.line.seen.iter().filter(|seen| self.line.name(seen.life) == name) {
            let Mark::Late { micros, waited_micros } = seen.mark else { continue };
            let from = seen.at.saturating_sub(*micros).max(until);
            let common = seen.at.min(self.after.since_micros).saturating_sub(from);
            if common * 2 > gap_micros {
                // One stall may be noted twice, and only the first of both has what the thread waited for.
                let (longest, waited) = still.unwrap_or_default();
                still = Some((longest.max(*micros), waited.saturating_add(*waited_micros)));
            }
        }
        still.map(|(micros, waited)| stood_still(name, micros, waited))
    }

    /// That no process of a member ran for most of the time in which nobody led. One whose recording ends counts if another one came after
    /// it, or if a link to it was down.
    fn absence_of(&self, name: &str, until: u64, gap_micros: u64) -> Option<Cause> {
        let led = self.after.since_micros;
        let last = self.line.lives_of(name).filter(|life| self.line.span(*life).0 <= until);
        let last = last.max_by_key(|life| self.line.span(*life).0)?;
        let begun_again = self.line.next_life(last).map(|next| self.line.span(next).0);
        let is_lost = || self.line.lost_links(led).iter().any(|link| link.peer == name);
        let back = begun_again.or_else(|| is_lost().then_some(led))?.min(led);
        let micros = back.saturating_sub(self.line.span(last).1.max(until));
        (micros * 2 > gap_micros).then(|| Cause::Away { who: name.to_owned(), micros })
    }
}
