//! What a life said, heard and was, for whoever draws it: [`Picture`], filled while the life is played again.

use crate::fingerprint;
use hustings_core::{NodeId, Protocol, Record, Role, Status};
use std::fmt::{self, Debug, Write as _};

/// One life as a picture needs it. Times are the boot clock, in microseconds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Picture {
    /// What it said to others.
    pub said: Vec<Message>,
    /// What it was told by others.
    pub heard: Vec<Message>,
    /// What it was, from when on; a line for each change.
    pub states: Vec<State>,
    /// Two lives that wrote the same to their disks have the same one.
    pub persisted: u64,
    applied: u64,
}

/// A message at one of its ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// When it was said, or heard.
    pub at_micros: u64,
    /// The member at the other end.
    pub peer: u64,
    /// What kind it is, as the protocol calls it.
    pub kind: String,
    /// Both ends of a message have the same one; so have two that say the same.
    pub fingerprint: u64,
}

/// What a life was from a moment on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// Since when.
    pub at_micros: u64,
    /// Its role.
    pub role: Role,
    /// Its term.
    pub term: u64,
    /// Whom it follows; itself when it leads.
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
