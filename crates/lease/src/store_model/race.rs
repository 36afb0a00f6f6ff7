//! One record that the first candidate to come takes: Consul's key, a Kubernetes Lease, a row.

use super::{Command, Record, Session, StoreModel};
use crate::store::{Answer, Note, Observation, Refusal, Request, Version};
use std::time::Duration;

impl StoreModel {
    pub(super) fn execute_in_race(&mut self, command: &Command, now: u64) -> Answer {
        match &command.request {
            Request::Contend { .. } if !self.profile.is_observed() => self.acquire(&command.session, now),
            Request::Contend { over } => self.swap(&command.session, *over),
            Request::Renew => self.renew(command, now),
            Request::Release(note) => {
                self.vacate(command, note);
                Answer::Gone
            }
            Request::Look => self.holding(&command.session),
        }
    }

    fn holder(&self) -> Option<&Session> {
        self.record.as_ref()?.holder.as_ref()
    }

    /// Takes what nobody holds, where the store ends leases.
    fn acquire(&mut self, session: &Session, now: u64) -> Answer {
        if !self.open_session(session, now) {
            return Answer::Gone;
        }
        match self.holder() {
            None => self.take(session),
            Some(holder) if holder == session => self.holding(session),
            Some(_) => Answer::Waiting(None),
        }
    }

    /// Takes exactly the version that was named, where contenders observe.
    fn swap(&mut self, session: &Session, over: Option<Version>) -> Answer {
        if self.record.as_ref().map(|record| record.version) != over {
            return Answer::Refused(Refusal::Conflict);
        }
        self.take(session)
    }

    fn take(&mut self, session: &Session) -> Answer {
        let token = self.next_token();
        self.record = Some(Record { holder: Some(session.clone()), token, version: Version(self.revision) });
        self.note = None;
        Answer::Won(token)
    }

    fn renew(&mut self, command: &Command, now: u64) -> Answer {
        if !self.profile.is_observed() && !self.extend(&command.session, now) {
            return Answer::Gone;
        }
        let is_observed = self.profile.is_observed();
        match &mut self.record {
            Some(record) if record.holder.as_ref() == Some(&command.session) && command.token == Some(record.token) => {
                if is_observed {
                    self.revision += 1;
                    record.version = Version(self.revision);
                }
                Answer::Renewed
            }
            Some(record) if record.holder.is_some() => Answer::Waiting(None),
            _ => Answer::Gone,
        }
    }

    fn vacate(&mut self, command: &Command, note: &Note) {
        let is_held = self.record.as_ref().is_some_and(|record| {
            record.holder.as_ref() == Some(&command.session) && command.token == Some(record.token)
        });
        if is_held {
            self.note = Some(note.clone());
            self.empty();
        }
        if self.sessions.contains_key(&command.session) {
            self.end_session(&command.session);
        }
    }

    fn empty(&mut self) {
        self.revision += 1;
        let version = Version(self.revision);
        match &mut self.record {
            Some(_) if self.restarts_counter => self.record = None,
            Some(record) => {
                record.holder = None;
                record.version = version;
            }
            None => {}
        }
    }

    /// Makes the record vacant if a session held it that has ended.
    pub(super) fn leave_record(&mut self, session: &Session) {
        if self.holder() == Some(session) {
            self.note = None;
            self.empty();
        }
    }

    fn holding(&self, session: &Session) -> Answer {
        match &self.record {
            Some(record) if record.holder.as_ref() == Some(session) => Answer::Won(record.token),
            Some(record) if record.holder.is_some() => Answer::Waiting(None),
            _ => Answer::Gone,
        }
    }

    pub(super) fn sights_of_record(&self) -> Vec<Observation> {
        let version = self.record.as_ref().map(|record| record.version).filter(|_| self.profile.is_observed());
        match &self.record {
            Some(Record { holder: Some((by, _)), token, version }) => {
                let ttl = Some(Duration::from_micros(self.ttl)).filter(|_| self.profile.is_observed());
                vec![Observation::Held { by: by.clone(), token: *token, version: *version, ttl }]
            }
            _ => vec![Observation::Vacant { version, note: self.note.clone() }],
        }
    }
}
