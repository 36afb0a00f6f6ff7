//! The end of the last reign that there is, where nobody is noted to lead after it.

use super::{LostLink, Reign, Timeline};
use crate::mark::Mark;
use hustings_core::Role;
use std::collections::{BTreeMap, BTreeSet};

/// If others noted something for so long after a process's last note, it notes nothing any more.
const NOTED_SINCE_MICROS: u64 = 1_000_000;
/// The reason of a link that ended because its peer died.
pub(super) const DIED: &str = "process has died";

impl Timeline<'_> {
    /// How the last reign that there was ended, if it did: its leader noted so, or others show that its process ended.
    pub(super) fn end_of(&self, reign: &mut Reign) -> Option<String> {
        let (until, why) = match reign.life {
            Some(life) => self.own_end_of(reign, life),
            None => self.end_as_others_saw_it(reign),
        }?;
        reign.until_micros = Some(until);
        Some(why)
    }

    fn own_end_of(&self, reign: &Reign, life: usize) -> Option<(u64, String)> {
        let (_, noted) = self.span(life);
        if let Some(until) = reign.until_micros {
            let mut gave_way = self.of_life(Some(life), until, until);
            return gave_way.find_map(|seen| match seen.mark {
                Mark::Transition { from: Role::Leader, because, .. } => {
                    Some((until, format!("it gave way: {because}")))
                }
                _ => None,
            });
        }
        let mut notes = self.of_life(Some(life), reign.since_micros, noted).rev();
        let own = notes.find_map(|seen| match seen.mark {
            Mark::Ended { why } => Some(format!("its process ended itself: {why}")),
            Mark::Stopping => Some("its process was told to stop".to_owned()),
            _ => None,
        });
        if let Some(why) = own {
            return Some((noted, why));
        }
        // Recordings are read one after the other: one link that ended after its last note may be that of a living leader.
        let lost = self.lost_links_to(&reign.leader, noted);
        let names: BTreeSet<&str> = lost.iter().map(|link| self.name(link.life)).collect();
        let is_shown = names.len() > 1 || lost.iter().any(|link| link.why.contains(DIED));
        if let Some(first) =
            lost.iter().min_by_key(|link| link.at).filter(|_| is_shown && self.latest() > noted + NOTED_SINCE_MICROS)
        {
            return Some((
                first.at,
                format!("its process ended: {} saw its link end ({})", self.name(first.life), first.why),
            ));
        }
        self.next_life(life).map(|_| (noted, "its process ended, and another one began".to_owned()))
    }

    /// Without the leader's own notes: a link says that it died, or those who followed it and do so no more leave it no quorum.
    fn end_as_others_saw_it(&self, reign: &Reign) -> Option<(u64, String)> {
        let mut last_lives: BTreeMap<&str, usize> = BTreeMap::new();
        for life in 0..self.lives.len() {
            let last = last_lives.entry(self.name(life)).or_insert(life);
            if self.span(life).0 > self.span(*last).0 {
                *last = life;
            }
        }
        let mut lost = Vec::new();
        for (name, life) in &last_lives {
            let (mut follows, mut ended) = (false, None);
            for seen in self.of_life(Some(*life), reign.since_micros, u64::MAX) {
                let Mark::Transition { leader, because, .. } = seen.mark else { continue };
                let still = leader.as_ref() == Some(&reign.leader);
                if follows && !still {
                    ended = Some((seen.at, format!("{name} followed it no more: {because}")));
                }
                follows = still;
            }
            if follows {
                return None;
            }
            lost.extend(ended);
        }
        let voters = self.seen.iter().rev().find_map(|seen| match seen.mark {
            Mark::Membership { voters, .. } => Some(voters.len()),
            _ => None,
        });
        let has_no_quorum = voters.is_some_and(|voters| (voters - lost.len().min(voters)) * 2 <= voters);
        let has_died = self.lost_links_to(&reign.leader, reign.since_micros).iter().any(|link| link.why.contains(DIED));
        lost.into_iter().min().filter(|_| has_no_quorum || has_died)
    }

    /// The links to a member that ended from this time on and are down in what their own members noted last.
    fn lost_links_to(&self, peer: &str, from: u64) -> Vec<LostLink<'_>> {
        let mut lost = self.lost_links(u64::MAX);
        lost.retain(|link| link.peer == peer && link.at >= from);
        lost
    }
}
