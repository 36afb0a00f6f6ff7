//! The network of a world that is a row of numbers: what a step takes from it and puts on it.

use super::{Explorer, Known, WorldState};
use crate::every::local::{Content, InFlight};
use hustings_core::{Links, NodeId, Protocol};

impl<P: Protocol> Explorer<'_, P> {
    pub(super) fn letters_after(
        &mut self,
        row: &WorldState,
        at: usize,
        delivered: Option<usize>,
        known: &Known,
        is_start: bool,
    ) -> Box<[u32]> {
        let is_session = P::LINKS == Links::Session;
        let keeps = self.space.bounds.duplicates && !is_session;
        let mut in_flight: Vec<u32> = Vec::with_capacity(row.in_flight.len() + known.in_flight.len());
        for (position, message) in row.in_flight.iter().enumerate() {
            let is_gone = Some(position) == delivered && !keeps;
            let to = usize::from(self.ends(*message).1);
            // A crash ends the sessions of its member: what was under way to it is lost.
            let is_cut = is_session && known.has_crashed && to == at;
            if !is_gone && !is_cut {
                in_flight.push(*message);
            }
        }
        for message in known.in_flight.iter() {
            // No session leads to a member that is down.
            let to = usize::from(self.ends(*message).1);
            let is_lost = is_session && to < row.members.len() && to != at && !self.facts(row.members[to]).is_up;
            if !is_lost {
                self.post(&mut in_flight, *message);
            }
        }
        let notices = self.space.bounds.notices || is_session;
        if notices && (known.has_crashed || is_start) {
            let id = NodeId(at as u64 + 1);
            for peer in (0..row.members.len()).filter(|peer| *peer != at) {
                let content = if known.has_crashed { Content::Down } else { Content::Up };
                let message = InFlight { from: id, to: NodeId(peer as u64 + 1), content };
                let message = self.space.in_flight.number(message);
                self.post(&mut in_flight, message);
            }
        }
        // The order between links means nothing; on one link it stays. The ends of all of them were asked for above: one whose ends this
        // thread had not looked up would go to the front, past what was sent before it.
        in_flight.sort_by_key(|message| self.recipients[message]);
        in_flight.into()
    }

    /// Whether a step puts a message on a session that holds as many as it may: the bound is back-pressure there, for nothing
    /// may be dropped. An answer has one place more, or two members that write to each other would wait for ever.
    pub(super) fn would_overfill(&mut self, row: &WorldState, delivered: Option<usize>, in_flight: &[u32]) -> bool {
        let limit = self.space.bounds.link;
        if limit == 0 {
            return false;
        }
        let limit = limit + usize::from(delivered.is_some());
        in_flight.iter().any(|message| {
            let ends = self.ends(*message);
            let others = (0..row.in_flight.len()).filter(|position| Some(*position) != delivered);
            let same = others.map(|position| row.in_flight[position]).filter(|other| self.ends(*other) == ends);
            let same: Vec<u32> = same.collect();
            same.iter()
                .filter(|other| matches!(self.space.in_flight.value(**other).content, Content::Message(_)))
                .count()
                >= limit
        })
    }

    /// Puts a message behind those of the same link. In a set it stands once; a full link loses its oldest.
    fn post(&mut self, in_flight: &mut Vec<u32>, message: u32) {
        let ends = self.ends(message);
        let is_session = P::LINKS == Links::Session;
        if !is_session && in_flight.contains(&message) {
            return;
        }
        let limit = self.space.bounds.link;
        if limit > 0 && !is_session {
            let same: Vec<usize> = (0..in_flight.len()).filter(|at| self.ends(in_flight[*at]) == ends).collect();
            if same.len() >= limit {
                in_flight.remove(same[0]);
            }
        }
        in_flight.push(message);
    }
}
