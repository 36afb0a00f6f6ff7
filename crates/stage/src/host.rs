//! A host's part: records become durable, and effects that rest on them leave.

use crate::{Direction, End, Theatre};
use hustings_core::replica::gate::Gated;
use hustings_core::{Effect, Effects, Input};

impl<D: Direction> Theatre<D> {
    pub(crate) fn carry_out(&mut self, id: u64, effects: Effects<D::Protocol>) {
        for effect in effects {
            let actor = self.actors.get_mut(&id).expect("an actor");
            let free = match effect {
                Effect::Persist(record) => {
                    actor.records.push(record.clone());
                    let number = actor.gate.number(&record);
                    match actor.end {
                        Some((after, End::AtOnce)) if actor.written == after => {
                            actor.is_dead = true;
                            return;
                        }
                        Some((after, End::Lingering)) if actor.written == after => actor.is_disk_held = true,
                        _ => {}
                    }
                    actor.unsynced.push_back((number, record));
                    if !actor.is_disk_held {
                        self.sync(id);
                    }
                    continue;
                }
                Effect::Send { to, message, rests_on } => actor.gate.send(to, message, rests_on),
                Effect::Apply(entry) => actor.gate.apply(entry),
                Effect::Reconfigure { membership, index } => actor.gate.reconfigure(membership, index),
                Effect::Restore(reference) => actor.gate.restore(reference),
                Effect::FetchSnapshot { reference, .. } => {
                    actor.fetching = Some(reference);
                    None
                }
                Effect::ReadAt { ticket, index } => {
                    actor.reads.push((ticket, index));
                    None
                }
                Effect::Reply { ticket, outcome } => {
                    actor.replies.push((ticket, outcome));
                    None
                }
                Effect::SetTimer { timer, .. } => {
                    actor.armed.insert(timer);
                    None
                }
                Effect::CancelTimer(timer) => {
                    actor.armed.remove(&timer);
                    None
                }
                Effect::Announce(transition) => {
                    if D::REIGNS.contains(&transition.to) {
                        let reign = self.annals.reigns.entry(transition.term.0).or_default();
                        reign.insert(id);
                        let is_published = D::is_published(&self.options);
                        assert!(is_published || reign.len() == 1, "two leaders of a term: {reign:?}");
                    }
                    actor.transitions.push(transition);
                    None
                }
            };
            if let Some(gated) = free {
                self.release(id, gated);
            }
        }
    }

    pub(crate) fn sync(&mut self, id: u64) {
        self.sync_up_to(id, usize::MAX);
    }

    /// This many of the records that wait, or all that there are, become durable.
    pub(crate) fn sync_up_to(&mut self, id: u64, count: usize) {
        let actor = self.actors.get_mut(&id).expect("an actor");
        let mut last = 0;
        let count = count.min(actor.unsynced.len());
        for (number, record) in actor.unsynced.drain(..count) {
            actor.durable.absorb(record);
            actor.written += 1;
            last = number;
        }
        for gated in actor.gate.on_durable(last) {
            self.release(id, gated);
        }
    }

    fn release(&mut self, id: u64, gated: Gated<D::Protocol>) {
        match gated {
            Gated::Send(to, message) => {
                D::on_said(self, id, to, &message);
                if to.0 == id && D::HEARS_ITSELF_LAST {
                    return self.actor_mut(id).own.push_back(message);
                }
                if to.0 == id {
                    return self.step(id, Input::Message { from: to, message });
                }
                self.said.push((id, to.0, message.clone()));
                self.table.push_back((id, to.0, message));
            }
            Gated::Apply(entry) => {
                let known = self.annals.committed.entry(entry.lsn.index).or_insert_with(|| entry.clone());
                assert!(
                    D::is_published(&self.options) || D::is_same(known, &entry),
                    "n{id} applies {entry:?} where {known:?} was applied before"
                );
                self.actor_mut(id).applied.push(entry);
            }
            Gated::Reconfigure(..) => {}
            Gated::Restore(reference) => self.actor_mut(id).restored = Some(reference),
        }
    }
}
