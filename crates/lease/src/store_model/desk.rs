//! The driver of a [`super::StoreModel`]: [`Desk`].

use super::{Command, Reply};
use crate::store::{Answer, CandidateId, Observation, Profile, Request};
use crate::token::Token;

/// The state of a driver for one candidate: its session, and the token that it won.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Desk {
    id: CandidateId,
    profile: Profile,
    session: u32,
    token: Option<Token>,
    /// In a queue: token of the entry that the store last told of.
    entry: Option<Token>,
    connection: u32,
}

impl Desk {
    /// The driver of this candidate.
    pub fn new(id: CandidateId, profile: Profile, connection: u32) -> Desk {
        Desk { id, profile, session: 0, token: None, entry: None, connection }
    }

    /// The candidate's present session: its id, and the number of the session.
    pub fn session(&self) -> super::Session {
        (self.id.clone(), self.session)
    }

    /// Translates a request, with the conditions that the driver adds.
    pub fn command(&self, request: Request) -> Command {
        Command { session: self.session(), token: self.token, connection: self.connection, request }
    }

    /// Takes the reply to a command of the session of now: what the candidate is told, in order.
    pub fn on_reply(&mut self, command: &Command, reply: Reply) -> (Vec<Observation>, Answer) {
        if command.session == self.session() {
            match reply.answer {
                Answer::Won(token) => (self.token, self.entry) = (Some(token), Some(token)),
                Answer::Waiting(Some(token)) => self.entry = Some(token),
                _ => {}
            }
            // Where there are no sessions, a name is for life.
            if reply.is_session_over && !self.profile.is_observed() {
                (self.session, self.entry) = (self.session + 1, None);
            }
        }
        (reply.observations, reply.answer)
    }

    /// Goes on with a new connection.
    pub fn reconnect(&mut self, connection: u32) {
        self.connection = self.connection.max(connection);
    }

    /// In a queue: the entry that the store last told of, which is to be watched.
    pub fn entry(&self) -> Option<Token> {
        self.entry
    }
}
