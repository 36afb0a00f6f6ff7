//! The network of a world that is a row of numbers: what a step takes from it and puts on it.

use super::{Explorer, Known, Row};
use crate::every::local::{Content, Letter};
use hustings_core::{Links, NodeId, Protocol};

impl<P: Protocol> Explorer<'_, P> {
    pub(super) fn letters_after(
        &mut self,
        row: &Row,
        at: usize,
        delivered: Option<usize>,
        known: &Known,
        is_start: bool,
    ) -> Box<[u32]> {
        let is_session = P::LINKS == Links::Session;
        let keeps = self.space.bounds.duplicates && !is_session;
        let mut letters: Vec<u32> = Vec::with_capacity(row.letters.len() + known.letters.len());
        for (position, letter) in row.letters.iter().enumerate() {
            let is_gone = Some(position) == delivered && !keeps;
            // A crash ends the sessions of its member: what was under way to it is lost.
            let is_cut = is_session && known.has_crashed && usize::from(self.ends(*letter).1) == at;
            if !is_gone && !is_cut {
                letters.push(*letter);
            }
        }
        for letter in known.letters.iter() {
            // No session leads to a member that is down.
            let to = usize::from(self.ends(*letter).1);
            let is_lost = is_session && to < row.members.len() && to != at && !self.facts(row.members[to]).is_up;
            if !is_lost {
                self.post(&mut letters, *letter);
            }
        }
        let notices = self.space.bounds.notices || is_session;
        if notices && (known.has_crashed || is_start) {
            let id = NodeId(at as u64 + 1);
            for peer in (0..row.members.len()).filter(|peer| *peer != at) {
                let content = if known.has_crashed { Content::Down } else { Content::Up };
                let letter = Letter { from: id, to: NodeId(peer as u64 + 1), content };
                let letter = self.space.letters.number(letter);
                self.post(&mut letters, letter);
            }
        }
        // The order between links means nothing.
        letters.sort_by_key(|letter| self.recipients.get(letter).copied());
        letters.into()
    }

    /// Whether a step puts a message on a session that holds as many as it may: the bound is back-pressure there, for nothing
    /// may be dropped. An answer has one place more, or two members that write to each other would wait for ever.
    pub(super) fn would_overfill(&mut self, row: &Row, delivered: Option<usize>, letters: &[u32]) -> bool {
        let limit = self.space.bounds.link;
        if limit == 0 {
            return false;
        }
        let limit = limit + usize::from(delivered.is_some());
        letters.iter().any(|letter| {
            let ends = self.ends(*letter);
            let others = (0..row.letters.len()).filter(|position| Some(*position) != delivered);
            let same = others.map(|position| row.letters[position]).filter(|other| self.ends(*other) == ends);
            let same: Vec<u32> = same.collect();
            same.iter().filter(|other| matches!(self.space.letters.value(**other).content, Content::Message(_))).count()
                >= limit
        })
    }

    /// Puts a letter behind those of the same link. In a set it stands once; a full link loses its oldest.
    fn post(&mut self, letters: &mut Vec<u32>, letter: u32) {
        let ends = self.ends(letter);
        let is_session = P::LINKS == Links::Session;
        if !is_session && letters.contains(&letter) {
            return;
        }
        let limit = self.space.bounds.link;
        if limit > 0 && !is_session {
            let same: Vec<usize> = (0..letters.len()).filter(|at| self.ends(letters[*at]) == ends).collect();
            if same.len() >= limit {
                letters.remove(same[0]);
            }
        }
        letters.push(letter);
    }
}
