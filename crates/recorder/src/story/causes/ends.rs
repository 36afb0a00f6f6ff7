//! The end of an old leader's process, and what went before it.

use super::{
    AT_ONCE_MICROS, BrokenLink, CIRCUMSTANCE_MICROS, Case, Cause, ENDED_AFTER_MICROS, MISSED_MICROS, SILENT_MICROS,
};
use crate::mark::Mark;
use crate::story::endings::DIED;
use std::collections::BTreeSet;

impl Case<'_, '_> {
    /// The old leader's process noted nothing any more: when, and why.
    pub(super) fn end(&self) -> Option<(u64, Cause)> {
        let Some(own) = self.before.life else { return self.end_as_others_saw_it() };
        let (_, ended) = self.line.span(own);
        let next = self.line.next_life(own);
        let broken = self.broken_links(Some(ended));
        // A process that stands still notes nothing either: that it ended, its links say or the process that came after it.
        let is_seen_to_end = self.line.latest() > ended + ENDED_AFTER_MICROS && !broken.is_empty();
        let is_over = next.is_some() || is_seen_to_end || self.has_ended_with(&broken, ended);
        if !is_over || ended > self.after.since_micros {
            return None;
        }
        let until = self.gone(&broken).or_else(|| self.last_sign()).map_or(ended, |until| until.max(ended));
        let boot = |life: usize| &self.line.lives[life].life.boot_id;
        // One that was seen to die on a machine that lived was killed, wherever and however much later the next one began.
        let is_rebooted = next.is_some_and(|next| boot(next) != boot(own)) && !self.is_seen_to_die(&broken);
        let successor_begun = self.after.life.map_or(0, |life| self.line.span(life).0);
        // Of each member that ran lately a process ended at once with it, and no other one ran meanwhile.
        let has_ended_too = |name: &str| {
            let spans = self.line.lives_of(name).map(|life| self.line.span(life));
            let before: Vec<(u64, u64)> = spans.filter(|(begun, _)| *begun <= ended).collect();
            let at_once = |end: u64| end.abs_diff(ended) <= AT_ONCE_MICROS && end <= successor_begun;
            let was_gone = before.iter().all(|(_, end)| end + CIRCUMSTANCE_MICROS < ended);
            was_gone || before.iter().any(|(_, end)| at_once(*end))
        };
        let names: BTreeSet<&str> = (0..self.line.lives.len()).map(|life| self.line.name(life)).collect();
        let voters = self.membership().map_or(&[][..], |(voters, _)| voters);
        let is_known_of_all = voters.iter().all(|voter| names.contains(voter.as_str()));
        let is_everybody = successor_begun > ended && is_known_of_all && names.into_iter().all(has_ended_too);
        if is_everybody || is_rebooted {
            return Some((until, Cause::PowerLost { is_everybody }));
        }
        Some((until, self.killed(&broken)))
    }

    /// Without the old leader's own notes: a link said that it died, before the next one led; or all who followed it had ended. A link
    /// that ended for anything else may have been that of a leader that lives.
    fn end_as_others_saw_it(&self) -> Option<(u64, Cause)> {
        let broken = self.broken_links(None);
        match broken.iter().map(|link| link.at).min().filter(|_| self.is_seen_to_die(&broken)) {
            Some(first) => Some((first, self.killed(&broken))),
            None => {
                let until = self.end_of_all_followers()?;
                Some((until, Cause::Unknown { because: self.after.because.clone() }))
            }
        }
    }

    /// The last note of those who followed the old leader, if none of these processes ran when the next one was elected: from then on it led
    /// nobody, whatever became of it.
    fn end_of_all_followers(&self) -> Option<u64> {
        let follows = |life: usize| {
            let mut notes = self.line.of_life(Some(life), self.before.since_micros, self.after.since_micros);
            notes.any(|seen| match seen.mark {
                Mark::Transition { leader, .. } => leader.as_ref() == Some(&self.before.leader),
                _ => false,
            })
        };
        let ends = (0..self.line.lives.len()).filter(|life| follows(*life)).map(|life| self.line.span(life).1);
        let begun = self.after.life.map(|life| self.line.span(life).0)?;
        ends.max().filter(|until| *until < begun)
    }

    /// Whether one of these links said, before the next one led, that the old leader's process died. A machine that ends says nothing.
    fn is_seen_to_die(&self, broken: &[BrokenLink<'_>]) -> bool {
        broken.iter().any(|link| link.at <= self.after.since_micros && link.why.contains(DIED))
    }

    fn killed(&self, broken: &[BrokenLink<'_>]) -> Cause {
        let first = broken.iter().map(|link| link.at).min().unwrap_or(0);
        let seen =
            broken.iter().map(|link| (self.line.name(link.life).to_owned(), link.why.to_owned(), link.at - first));
        Cause::Killed { seen_by: seen.collect() }
    }

    /// The silence of an old leader that was missed for long before it was killed. A killed process is missed at once; one that was missed
    /// before stood still, or was cut off: then it went on to note what it was told.
    pub(super) fn silence_before_the_kill(&self) -> Option<Cause> {
        let (at, micros) = self.silence()?;
        // A successor that stood still itself for most of it has missed nobody.
        let own_stalls = self.stalls.iter().filter(|stall| Some(stall.life) == self.after.life);
        let common =
            own_stalls.map(|stall| stall.until.min(at).saturating_sub(stall.from.max(at.saturating_sub(micros))));
        if micros <= SILENT_MICROS || common.max().unwrap_or(0) * 2 > micros {
            return None;
        }
        let own = self.before.life.map(|life| self.line.span(life).1);
        let ran_until = own.unwrap_or(0);
        // From the end of its links on it is known to be gone, however long an election takes. Where nobody saw them end, its machine or
        // its network ended with it, and whether it stood still before, nobody knows.
        let gone = self.gone(&self.broken_links(own)).or_else(|| self.late_end(ran_until))?.max(ran_until);
        let heard = self.last_sign().unwrap_or(at.saturating_sub(micros));
        let silence_micros = gone.saturating_sub(heard);
        if silence_micros <= SILENT_MICROS {
            return None;
        }
        if own.is_none() {
            // Whether it stood still, only its own recording would show.
            return Some(Cause::Silent { deaf: self.after.leader.clone(), silence_micros });
        }
        if ran_until > at.saturating_sub(micros / 2) {
            return self.cut();
        }
        // It stood still until it was killed, longer than the one that missed it waited.
        let has_stood_still = gone - ran_until > SILENT_MICROS;
        has_stood_still.then(|| Cause::Paused { who: self.before.leader.clone(), micros: silence_micros })
    }

    /// When the process whose links these were ended: before the first saw it, and after the last could have seen it, for who stood still
    /// saw it late.
    fn gone(&self, broken: &[BrokenLink<'_>]) -> Option<u64> {
        let first = broken.iter().map(|link| link.at).min()?;
        broken.iter().map(|link| self.no_earlier(link.life, link.at)).max().map(|earliest| earliest.min(first))
    }

    /// The first end of a link to the old leader after its last note, though another leads by then: until it the process was there.
    fn late_end(&self, noted: u64) -> Option<u64> {
        let again = self.begins_again().unwrap_or(u64::MAX);
        let ends = self.line.seen.iter().filter(|seen| match seen.mark {
            Mark::LinkDown { peer, .. } => *peer == self.before.leader && (noted..again).contains(&seen.at),
            _ => false,
        });
        ends.map(|seen| self.no_earlier(seen.life, seen.at)).min()
    }

    /// When the old leader's process ended, where that is the cause and it noted it.
    pub(super) fn own_end(&self, causes: &[Cause]) -> Option<u64> {
        let is_own =
            causes.iter().any(|cause| matches!(cause, Cause::Stopped | Cause::Upgraded { .. } | Cause::Failed { .. }));
        let ended = self.before.life.filter(|_| is_own).map(|life| self.line.span(life).1)?;
        (ended <= self.after.since_micros).then_some(ended)
    }

    /// The earliest time at which something can have happened that a life noted at this time: what came while its loop did not run,
    /// it hears when it runs again.
    pub(super) fn no_earlier(&self, life: usize, at: u64) -> u64 {
        let stalls = self.stalls.iter().filter(|stall| stall.life == life);
        let around = stalls.filter(|stall| (stall.from..=stall.until + MISSED_MICROS).contains(&at));
        around.map(|stall| stall.from).min().unwrap_or(at)
    }

    /// Time when the old leader's next process began.
    pub(super) fn begins_again(&self) -> Option<u64> {
        let lives = self.line.lives_of(&self.before.leader);
        lives.map(|life| self.line.span(life).0).filter(|begun| *begun > self.before.since_micros).min()
    }
}
