//! The evidence of the links to an old leader on how it ended.

use super::{BrokenLink, Case, MISSED_MICROS, SILENT_MICROS, TOGETHER_MICROS};
use crate::mark::Mark;
use hustings_core::Role;
use std::collections::BTreeSet;

impl Case<'_, '_> {
    /// The last time before the next one led at which anybody heard the old leader.
    pub(super) fn last_sign(&self) -> Option<u64> {
        let reign = self.before.since_micros..=self.after.since_micros.min(self.begins_again().unwrap_or(u64::MAX));
        // A member that never had a link to it says how long ago it began.
        let mut linked = BTreeSet::new();
        let signs = self.line.seen.iter().filter_map(|seen| match seen.mark {
            Mark::LinkUp { peer } | Mark::LinkDown { peer, .. } if *peer == self.before.leader => {
                linked.insert(seen.life);
                None
            }
            Mark::Transition { heard, .. } => {
                let heard = heard.iter().find(|heard| heard.peer == self.before.leader)?;
                let at = seen.at.saturating_sub(heard.silence_micros);
                let is_sign = (heard.is_linked || linked.contains(&seen.life)) && reign.contains(&at);
                is_sign.then(|| self.no_earlier(seen.life, at))
            }
            _ => None,
        });
        signs.max()
    }

    /// The links to the old leader that ended with it: after anybody heard it last and after its own last note, where that is known.
    /// Of the links of one member the last counts: one that came up again, or of two dials that cross, had ended for something else.
    pub(super) fn broken_links(&self, ended: Option<u64>) -> Vec<BrokenLink<'_>> {
        let again = self.begins_again().unwrap_or(u64::MAX);
        let next_led = self.after.since_micros;
        // Clocks of several machines differ, and messages of one moment are not read at once.
        let last_sign = self.last_sign().map_or(0, |at| at.saturating_sub(MISSED_MICROS));
        let last_note = ended.map_or(0, |ended| ended.saturating_sub(TOGETHER_MICROS));
        let from = self.before.since_micros.max(last_sign).max(last_note);
        let to = next_led.max(ended.unwrap_or(next_led) + TOGETHER_MICROS);
        let shown = self.line.seen.iter().filter(|seen| (from..=to).contains(&seen.at) && seen.at < again);
        let mut broken: Vec<BrokenLink<'_>> = Vec::new();
        for seen in shown {
            let (Mark::LinkUp { peer } | Mark::LinkDown { peer, .. }) = seen.mark else { continue };
            if *peer != self.before.leader {
                continue;
            }
            if seen.at <= next_led {
                broken.retain(|link| self.line.name(link.life) != self.line.name(seen.life));
            }
            if let Mark::LinkDown { why, .. } = seen.mark {
                broken.push(BrokenLink { life: seen.life, why, at: seen.at });
            }
        }
        broken
    }

    /// Whether the old leader's process ended with its last note, though the others noted nothing for long after it: it was heard, the new
    /// leader's link and that of another member to it ended later than that note, and it noted no end of a link, as it would if it lived.
    ///
    /// One link is not enough: recordings are fetched one after the other, and a living leader's may have been fetched before.
    pub(super) fn has_ended_with(&self, broken: &[BrokenLink<'_>], ended: u64) -> bool {
        let before_the_next = broken.iter().filter(|link| link.at > ended && link.at <= self.after.since_micros);
        let lives: BTreeSet<usize> = before_the_next.map(|link| link.life).collect();
        let is_heard = self.silence().is_some_and(|(_, silence_micros)| silence_micros <= SILENT_MICROS);
        is_heard && lives.len() > 1 && self.after.life.is_some_and(|life| lives.contains(&life))
    }

    /// The reason that the new leader noted for the end of its link to the old one, if it asked for votes for that: also where the link
    /// came up again before it led.
    pub(super) fn ended_link(&self) -> Option<String> {
        let elected = self.elected();
        self.last_end_of_its_link(elected.saturating_sub(SILENT_MICROS), elected)
    }

    /// The same of an old leader whose own notes are not here, if it was heard until its link ended and the new one moved only then: one
    /// that says that it leads no more may end its links soon afterwards.
    pub(super) fn ended_link_of_one_unseen(&self, heard: u64) -> Option<String> {
        let led = self.after.since_micros;
        let from = heard.saturating_sub(MISSED_MICROS);
        let moves = |mark: &Mark| matches!(mark, Mark::Transition { to, .. } if *to != Role::Follower);
        let mut moved = self.line.of_life(self.after.life, from, led).filter(|seen| moves(seen.mark));
        let moved = moved.next().map_or(led, |seen| seen.at);
        self.last_end_of_its_link(from, moved.min(heard + SILENT_MICROS))
    }

    fn last_end_of_its_link(&self, from: u64, to: u64) -> Option<String> {
        let said = self.line.of_life(self.after.life, from, to);
        let mut ends = said.filter_map(|seen| match seen.mark {
            Mark::LinkDown { peer, why } if *peer == self.before.leader => Some(why.clone()),
            _ => None,
        });
        ends.next_back()
    }
}
