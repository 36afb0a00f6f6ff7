//! A life in pictures: its messages and states, for a drawing, filled while the life is played again: [`Picture`].

use crate::fingerprint;
use hustings_core::{NodeId, Protocol, Record, Role, Status};
use std::fmt::{self, Debug, Write as _};

/// One life as a picture needs it. Times are the boot clock, in microseconds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Picture {
    /// Messages that it sent to others.
    pub said: Vec<Message>,
    /// Messages that it got from others.
    pub heard: Vec<Message>,
    /// The states it was in; one for each change.
    pub states: Vec<State>,
    /// Fingerprint of each answer, with its time.
    pub answers: Vec<(u64, u64)>,
    /// Two lives that wrote the same to their disks have the same one.
    pub persisted: u64,
    applied: u64,
}

/// A message at one of its ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Time of sending or hearing, by this end's boot clock.
    pub at_micros: u64,
    /// The member at the other end.
    pub peer: u64,
    /// Kind of the message, as the protocol calls it.
    pub kind: String,
    /// Both ends of a message have the same one; so have two that say the same.
    pub fingerprint: u64,
}

/// The state of a life from a moment on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// Begin of this state.
    pub at_micros: u64,
    /// The role it plays.
    pub role: Role,
    /// The term it is in.
    pub term: u64,
    /// The leader it follows; itself when it leads.
    pub leader: Option<u64>,
    /// The highest index that it knew to be committed.
    pub commit: u64,
    /// The last index that it had applied.
    pub applied: u64,
}

/// The first word of what `Debug` says, without writing the rest.
struct FirstWord(String);

impl fmt::Write for FirstWord {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if !character.is_alphanumeric() {
                return Err(fmt::Error);
            }
            self.0.push(character);
        }
        Ok(())
    }
}

fn message<M: Debug + std::hash::Hash>(at_micros: u64, peer: NodeId, message: &M) -> Message {
    let mut kind = FirstWord(String::new());
    // It ends with an error where the first word does.
    let _ = write!(kind, "{message:?}");
    Message { at_micros, peer: peer.0, kind: kind.0, fingerprint: fingerprint::of(message) }
}

impl Picture {
    pub(crate) fn on_said<P: Protocol>(&mut self, at_micros: u64, to: NodeId, said: &P::Message) {
        self.said.push(message(at_micros, to, said));
    }

    pub(crate) fn on_heard<P: Protocol>(&mut self, at_micros: u64, from: NodeId, heard: &P::Message) {
        self.heard.push(message(at_micros, from, heard));
    }

    pub(crate) fn on_applied(&mut self, index: u64) {
        self.applied = index;
    }

    pub(crate) fn on_persisted(&mut self, record: &Record) {
        self.persisted = fingerprint::of(&(self.persisted, record));
    }

    pub(crate) fn on_state(&mut self, at_micros: u64, status: &Status) {
        let Status { role, term, leader, commit, .. } = status;
        let leader = leader.map(|leader| leader.0);
        let state = State { at_micros, role: *role, term: term.0, leader, commit: *commit, applied: self.applied };
        let is_news = self.states.last().is_none_or(|last| State { at_micros, ..last.clone() } != state);
        if is_news {
            self.states.push(state);
        }
    }
}
