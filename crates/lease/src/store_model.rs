//! A small linearizable store that plays every profile: [`StoreModel`], and the driver for it: [`Desk`].
//!
//! It is what the rules assume of a store, and no more: requests happen at one moment each, a lease ends by the store's
//! own clock (or by nobody's, where contenders observe; and a little early, where winners hold off), a change of its
//! leader lengthens leases. Real stores do more than that (they forget, are restored from a backup, are edited by hand,
//! renew leases after they were deposed): those are methods with that name, called on purpose.
//!
//! Times are microseconds of true time; the store's clock runs at a rate of its own.
//!
//! Source: `docs/leadership.md`, "Stores".

mod desk;

mod queue;

mod race;

pub use desk::Desk;

use crate::store::{Answer, CandidateId, Note, Observation, Profile, Renewal, Request, Version};
use crate::timing::micros;
use crate::token::Token;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const MILLION: i128 = 1_000_000;

/// A client's session with the store: its candidate, and which one of its sessions.
pub type Session = (CandidateId, u32);

/// A request with everything that its driver makes it conditional on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Command {
    /// The session that sent it.
    pub session: Session,
    /// The token that the candidate won last.
    pub token: Option<Token>,
    /// The connection over which it came; a command over a broken one does not happen.
    pub connection: u32,
    /// The request that the candidate's driver sent.
    pub request: Request,
}

/// The store's reply to a command.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reply {
    /// Observations that the candidate is told before the answer.
    pub observations: Vec<Observation>,
    /// The answer to the request.
    pub answer: Answer,
    /// The session has ended; the next one must have another number.
    pub is_session_over: bool,
}

/// An entry of a queue.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Entry {
    session: Session,
    token: Token,
}

/// The one record of a race.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Record {
    holder: Option<Session>,
    token: Token,
    version: Version,
}

/// A store with one election in it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StoreModel {
    profile: Profile,
    ttl: u64,
    /// Millionths by which its clock is faster than true time.
    rate: i32,
    /// Microseconds for which its clock has stood still.
    stalled: u64,
    generation: u32,
    revision: u64,
    /// End of each session, on the store's clock.
    sessions: BTreeMap<Session, u64>,
    over: BTreeSet<Session>,
    queue: Vec<Entry>,
    record: Option<Record>,
    note: Option<Note>,
    /// The entry that stood directly behind a holder when that took its own away, having stopped.
    clear: Option<Token>,
    /// Sessions that the member which clients are connected to has heard and not relayed.
    touched: BTreeSet<Session>,
    connection: u32,
    /// True time until which a deposed leader answers renewals that have no effect.
    deposed_until: u64,
    /// Microseconds by which a lease ends later than it must.
    lenience: u64,
    restarts_counter: bool,
    clears_for_ever: bool,
}

impl StoreModel {
    /// An empty store that plays this profile and grants this time to live, with a clock that is faster than true time
    /// by `rate` millionths.
    pub fn new(profile: Profile, ttl: Duration, rate: i32) -> StoreModel {
        StoreModel {
            profile,
            ttl: micros(ttl),
            rate,
            stalled: 0,
            generation: 0,
            revision: 0,
            sessions: BTreeMap::new(),
            over: BTreeSet::new(),
            queue: Vec::new(),
            record: None,
            note: None,
            clear: None,
            touched: BTreeSet::new(),
            connection: 0,
            deposed_until: 0,
            lenience: 0,
            restarts_counter: false,
            clears_for_ever: false,
        }
    }

    pub(crate) fn restart_counter(&mut self) {
        self.restarts_counter = true;
    }

    pub(crate) fn clear_for_ever(&mut self) {
        self.clears_for_ever = true;
    }

    /// Leases end this much later than they must (Consul: up to twice the time to live).
    pub fn be_lenient(&mut self, lenience: Duration) {
        self.lenience = micros(lenience);
    }

    /// Carries out the command, which arrives at true time `now`; `None` if its connection is broken.
    pub fn execute(&mut self, command: &Command, now: u64) -> Option<Reply> {
        self.expire(now);
        if command.connection < self.connection {
            return None;
        }
        let answer = match self.profile.is_queue() {
            true => self.execute_in_queue(command, now),
            false => self.execute_in_race(command, now),
        };
        Some(Reply {
            observations: self.observations(&command.session),
            answer,
            is_session_over: self.over.contains(&command.session),
        })
    }

    /// The observations of a watch of this session at this moment.
    pub fn observations(&self, session: &Session) -> Vec<Observation> {
        if self.profile.is_queue() { self.sights_of_queue(session) } else { self.sights_of_record() }
    }

    /// Changes whenever a watch has something new to see.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The candidates in the order of a queue.
    pub fn order(&self) -> Vec<CandidateId> {
        self.queue.iter().map(|entry| entry.session.0.clone()).collect()
    }

    /// Whether this session has an entry in the queue.
    pub fn has_entry(&self, session: &Session) -> bool {
        self.queue.iter().any(|entry| entry.session == *session)
    }

    /// True time at which the next lease ends; `None` if none will by itself.
    pub fn next_expiry(&self) -> Option<u64> {
        self.sessions.values().min().map(|end| self.true_time(*end))
    }

    /// Ends sessions that have expired.
    pub fn expire(&mut self, now: u64) {
        let clock = self.clock(now);
        let ended: Vec<Session> =
            self.sessions.iter().filter(|(_, end)| **end <= clock).map(|(session, _)| session.clone()).collect();
        for session in ended {
            self.end_session(&session);
        }
    }

    fn clock(&self, now: u64) -> u64 {
        let clock = i128::from(now) * (MILLION + i128::from(self.rate)) / MILLION - i128::from(self.stalled);
        u64::try_from(clock.max(0)).unwrap_or(u64::MAX)
    }

    fn true_time(&self, clock: u64) -> u64 {
        let time = (i128::from(clock) + i128::from(self.stalled) + 1) * MILLION / (MILLION + i128::from(self.rate)) + 1;
        u64::try_from(time.max(0)).unwrap_or(u64::MAX)
    }

    /// Opens the session, or extends it; says whether it lives.
    fn open_session(&mut self, session: &Session, now: u64) -> bool {
        if self.over.contains(session) {
            return false;
        }
        let end = self.clock(now).saturating_add(self.ttl + self.lenience).saturating_sub(self.softness());
        let lease = self.sessions.entry(session.clone()).or_insert(end);
        *lease = end.max(*lease);
        true
    }

    /// Microseconds by which a lease may end earlier than it must: a winner's hold-off makes up for it.
    fn softness(&self) -> u64 {
        micros(self.profile.hold_off) * 9 / 10
    }

    fn end_session(&mut self, session: &Session) {
        self.sessions.remove(session);
        self.touched.remove(session);
        self.over.insert(session.clone());
        self.leave_queue(session);
        self.leave_record(session);
        self.revision += 1;
    }

    /// A renewal of a session arrives; says whether it lives.
    fn extend(&mut self, session: &Session, now: u64) -> bool {
        if !self.sessions.contains_key(session) {
            return false;
        }
        match self.profile.renewal {
            Renewal::Relayed => {
                self.touched.insert(session.clone());
            }
            Renewal::LeaderMemory if now < self.deposed_until => {}
            Renewal::LeaderMemory | Renewal::Committed => {
                self.open_session(session, now);
            }
        }
        true
    }

    /// Relayed renewals: the member that clients are connected to tells the leader which sessions it has heard. To be
    /// called at least once per tick.
    pub fn relay(&mut self, now: u64) {
        self.expire(now);
        for session in std::mem::take(&mut self.touched) {
            self.open_session(&session, now);
        }
    }

    /// That member crashes with what it has not relayed; all connections break.
    pub fn lose_touches(&mut self) {
        self.touched.clear();
        self.connection += 1;
    }

    /// The connection that counts now.
    pub fn connection(&self) -> u32 {
        self.connection
    }

    /// Another member of the store leads after this gap: leases get longer, never shorter.
    pub fn change_leader(&mut self, now: u64, gap: Duration) {
        self.expire(now);
        match self.profile.renewal {
            Renewal::Committed => self.stalled += micros(gap),
            Renewal::LeaderMemory | Renewal::Relayed => {
                let sessions: Vec<Session> = self.sessions.keys().cloned().collect();
                for session in sessions {
                    self.open_session(&session, now);
                }
            }
        }
    }

    /// Beyond what is assumed: the leader of the store is deposed, leases run anew at its successor, and the old one
    /// answers renewals for this long, to no effect (etcd before 3.4.31 and 3.5.13).
    pub fn depose(&mut self, now: u64, window: Duration) {
        self.change_leader(now, Duration::ZERO);
        self.deposed_until = now + micros(window);
    }

    /// Beyond what is assumed: the store is what it was at an earlier time, from a backup, or from a replica that lacked
    /// the last writes. Sessions get their whole time again.
    pub fn restore(&mut self, earlier: &StoreModel, now: u64) {
        let (connection, stalled) = (self.connection + 1, self.stalled);
        *self = StoreModel { connection, stalled, ..earlier.clone() };
        let sessions: Vec<Session> = self.sessions.keys().cloned().collect();
        for session in sessions {
            self.open_session(&session, now);
        }
    }

    /// Raises the generation, as an operator does after a restore: tokens grow on from here. The entries of a queue
    /// have tokens of the generation before: they are removed with it, and their candidates enter anew.
    pub fn raise_generation(&mut self) {
        self.queue.clear();
        self.generation += 1;
        self.revision += 1;
    }

    /// Beyond what is assumed: somebody removes the holder's entry or the record by hand.
    pub fn delete(&mut self) {
        self.revision += 1;
        self.record = None;
        if !self.queue.is_empty() {
            self.queue.remove(0);
        }
    }

    /// Beyond what is assumed: a client that believes what it remembers clears any holder (client-go's
    /// release after a sleep).
    pub fn erase(&mut self) {
        self.revision += 1;
        let version = Version(self.revision);
        if let Some(record) = &mut self.record {
            record.holder = None;
            record.version = version;
        }
    }

    /// The number of the next tenure or entry.
    fn next_token(&mut self) -> Token {
        self.revision += 1;
        let number = match (self.restarts_counter, &self.record) {
            (false, _) => self.revision,
            (true, Some(record)) => record.token.number + 1,
            (true, None) => 1 + self.queue.iter().map(|entry| entry.token.number).max().unwrap_or(0),
        };
        Token { generation: self.generation, number }
    }
}
