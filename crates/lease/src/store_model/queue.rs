//! A queue of entries, the first of which holds: etcd's keys on leases, ZooKeeper's sequential nodes.

use super::{Command, Entry, Session, StoreModel};
use crate::store::{Answer, Note, Observation, Renewal, Request};

impl StoreModel {
    pub(super) fn execute_in_queue(&mut self, command: &Command, now: u64) -> Answer {
        let session = &command.session;
        match &command.request {
            Request::Contend { .. } => self.enqueue(session, now),
            Request::Renew if self.extend(session, now) => Answer::Renewed,
            Request::Renew => Answer::Gone,
            Request::Release(note) => {
                self.dequeue(session, note);
                Answer::Gone
            }
            Request::Look => self.place(session),
        }
    }

    fn enqueue(&mut self, session: &Session, now: u64) -> Answer {
        if !self.open_session(session, now) {
            return Answer::Gone;
        }
        let has_entry = self.queue.iter().any(|entry| entry.session == *session);
        // A key on a lease is one, however often it is put; a sequential node is another one each time.
        if !has_entry || self.profile.renewal == Renewal::Relayed {
            let token = self.next_token();
            self.queue.push(Entry { session: session.clone(), token });
        }
        let own = self.queue.iter().rposition(|entry| entry.session == *session).expect("it was there or is put");
        let token = self.queue[own].token;
        if own == 0 { Answer::Won(token) } else { Answer::Waiting(Some(token)) }
    }

    fn dequeue(&mut self, session: &Session, note: &Note) {
        let was_first = self.is_first(session);
        let next = self.queue.get(1).map(|entry| entry.token);
        if was_first && note.has_stopped && self.queue.first().is_some_and(|own| own.token == note.token) {
            self.clear = next;
        }
        if self.sessions.contains_key(session) {
            self.end_session(session);
        }
        // A holder's note counts, not that of a candidate which only waited.
        if was_first {
            self.note = Some(note.clone());
        }
    }

    fn is_first(&self, session: &Session) -> bool {
        self.queue.first().is_some_and(|entry| entry.session == *session)
    }

    /// Removes the entries of a session that has ended.
    pub(super) fn leave_queue(&mut self, session: &Session) {
        if self.is_first(session) {
            self.note = None;
        }
        self.queue.retain(|entry| entry.session != *session);
    }

    fn place(&self, session: &Session) -> Answer {
        match self.queue.iter().position(|entry| entry.session == *session) {
            Some(0) => Answer::Won(self.queue[0].token),
            Some(own) => Answer::Waiting(Some(self.queue[own].token)),
            None => Answer::Gone,
        }
    }

    pub(super) fn sights_of_queue(&self, session: &Session) -> Vec<Observation> {
        match self.queue.first() {
            Some(first) if first.session == *session => {
                let is_clear = self.clear == Some(first.token) || self.clears_for_ever && self.clear.is_some();
                vec![Observation::Turn { token: first.token, note: self.note.clone(), is_clear }]
            }
            _ => Vec::new(),
        }
    }
}
