//! The order of a script: nothing is received before it was sent, whatever the clocks of several machines say.

use crate::picture::Picture;
use crate::replay::{Answers, with_picture};
use crate::script::Script;
use crate::shape::RecordedInput;
use bytes::Bytes;
use hustings_core::Protocol;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A message of one member to another: sender, receiver, and content by its fingerprint.
pub(crate) type Message = (u64, u64, u64);

/// The messages that were sent and received at each step of a script.
pub(crate) struct Traffic {
    pub(crate) sent: Vec<Vec<Message>>,
    pub(crate) received: Vec<Option<Message>>,
    /// Of each life in order: its member, and what it wrote to its disk.
    pub(crate) persisted: Vec<(u64, u64)>,
}

impl Traffic {
    /// Of lives that were played, each by itself or together.
    pub(crate) fn of<'a>(steps: usize, lives: impl Iterator<Item = (u64, &'a Picture)>) -> Traffic {
        let mut traffic = Traffic { sent: vec![Vec::new(); steps], received: vec![None; steps], persisted: Vec::new() };
        let place = |at_micros: u64| usize::try_from(at_micros).ok().filter(|place| *place < steps);
        for (me, picture) in lives {
            for message in &picture.said {
                if let Some(place) = place(message.at_micros) {
                    traffic.sent[place].push((me, message.peer, message.fingerprint));
                }
            }
            for message in &picture.heard {
                if let Some(place) = place(message.at_micros) {
                    traffic.received[place] = Some((message.peer, me, message.fingerprint));
                }
            }
            traffic.persisted.push((me, picture.persisted));
        }
        traffic
    }
}

/// Number of times that each message was counted.
#[derive(Default)]
struct Counts(BTreeMap<Message, usize>);

impl Counts {
    fn add(&mut self, message: Message) {
        *self.0.entry(message).or_default() += 1;
    }

    fn has(&self, message: &Message) -> bool {
        self.0.get(message).is_some_and(|count| *count > 0)
    }

    fn take(&mut self, message: &Message) {
        if let Some(count) = self.0.get_mut(message) {
            *count = count.saturating_sub(1);
        }
    }
}

impl Script {
    /// Sorts steps by their times, but so that a message is received after it was sent: clocks of several machines differ.
    pub(crate) fn put_in_order<P: Protocol>(&mut self, options: &P::Options) {
        let lives = self.lives();
        let pictures: Vec<Picture> =
            lives.iter().map(|life| with_picture::<P>(life, options, Answers::Any).1).collect();
        let members = lives.iter().map(|recording| recording.life.member_id);
        let traffic = Traffic::of(self.steps.len(), members.zip(&pictures));
        let mut waiting: BTreeMap<u64, VecDeque<usize>> = BTreeMap::new();
        for (index, step) in self.steps.iter().enumerate() {
            waiting.entry(step.member).or_default().push_back(index);
        }
        let (mut sent, mut still_to_be_sent) = (Counts::default(), Counts::default());
        traffic.sent.iter().flatten().for_each(|message| still_to_be_sent.add(*message));
        let mut order = Vec::with_capacity(self.steps.len());
        while order.len() < self.steps.len() {
            let mut heads: Vec<usize> = waiting.values().filter_map(|steps| steps.front().copied()).collect();
            heads.sort_by_key(|index| self.steps[*index].note.at_micros);
            let is_ready = |index: &&usize| traffic.received[**index].is_none_or(|message| sent.has(&message));
            let is_never_sent =
                |index: &&usize| traffic.received[**index].is_some_and(|message| !still_to_be_sent.has(&message));
            let ready = heads.iter().find(is_ready).copied();
            // A message that no step sends was sent by a life of which nothing is known.
            let unseen = || heads.iter().find(is_never_sent).or(heads.first()).copied();
            let Some(next) = ready.or_else(unseen) else { break };
            self.steps[next].is_unseen = ready.is_none();
            if let Some(message) = traffic.received[next] {
                sent.take(&message);
            }
            for message in &traffic.sent[next] {
                sent.add(*message);
                still_to_be_sent.take(message);
            }
            waiting.entry(self.steps[next].member).or_default().pop_front();
            order.push(next);
        }
        self.steps = order.into_iter().map(|index| self.steps[index].clone()).collect();
        let cuts = self.snapshots();
        for (step, cut) in self.steps.iter_mut().zip(cuts) {
            step.is_unseen |= cut == Some(None);
        }
    }

    /// Of each step at which a snapshot is ready, the step at which it was cut; the inner `None` where nobody is seen to cut it.
    pub(crate) fn snapshots(&self) -> Vec<Option<Option<usize>>> {
        let mut cuts: BTreeMap<&Bytes, usize> = BTreeMap::new();
        let mut snapshots = Vec::with_capacity(self.steps.len());
        for (index, step) in self.steps.iter().enumerate() {
            if let Some(cut) = step.told().and_then(RecordedInput::cut_snapshot) {
                cuts.insert(cut, index);
            }
            let ready = step.told().and_then(RecordedInput::ready_snapshot);
            snapshots.push(ready.map(|reference| cuts.get(reference).copied()));
        }
        snapshots
    }

    /// These steps and all that they rest on: those before them in the same life and, of what was received, those that led to its
    /// sending.
    pub(crate) fn past_of(&self, traffic: &Traffic, steps: &[usize]) -> Vec<usize> {
        let snapshots = self.snapshots();
        let mut open: BTreeMap<Message, VecDeque<usize>> = BTreeMap::new();
        let mut last: BTreeMap<u64, usize> = BTreeMap::new();
        let mut before: Vec<Vec<usize>> = Vec::with_capacity(self.steps.len());
        for (index, step) in self.steps.iter().enumerate() {
            let mut rests_on: Vec<usize> = last.insert(step.member, index).into_iter().collect();
            let sender = traffic.received[index].and_then(|message| open.get_mut(&message)?.pop_front());
            rests_on.extend(sender);
            rests_on.extend(snapshots[index].flatten());
            for message in &traffic.sent[index] {
                open.entry(*message).or_default().push_back(index);
            }
            before.push(rests_on);
        }
        let mut past = BTreeSet::new();
        let mut waiting = steps.to_vec();
        while let Some(index) = waiting.pop() {
            if let Some(rests_on) = before.get(index)
                && past.insert(index)
            {
                waiting.extend(rests_on);
            }
        }
        past.into_iter().collect()
    }
}
