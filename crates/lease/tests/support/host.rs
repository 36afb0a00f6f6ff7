//! One host: a candidate, its clock, its driver and its application.

use hustings_lease::store_model::{Command, Reply};
use hustings_lease::{Attempt, Candidate, CandidateId, Desk, Input, Observation, Schedule, Settings, Token};
use std::collections::VecDeque;

/// A host's clock: it runs on while the machine is suspended, unless the defect says otherwise.
#[derive(Clone, Debug)]
pub struct Clock {
    pub rate: i64,
    pub offset: u64,
    /// Microseconds for which it stood still.
    pub stood: u64,
    pub stands_since: Option<u64>,
}

impl Clock {
    pub fn read(&self, now: u64) -> u64 {
        let now = self.stands_since.unwrap_or(now) - self.stood;
        self.offset + (i128::from(now) * i128::from(1_000_000 + self.rate) / 1_000_000) as u64
    }

    /// The true time at which it reads this at the latest.
    pub fn true_time(&self, at: u64) -> u64 {
        let since = i128::from(at.saturating_sub(self.offset)) + 1;
        (since * 1_000_000 / i128::from(1_000_000 + self.rate)) as u64 + 1 + self.stood
    }
}

/// A delivery that waits for a host.
#[derive(Clone, Debug)]
pub enum Delivery {
    Reply(Attempt, Command, Reply),
    Sights(Vec<Observation>),
    /// The connection was replaced by this one.
    Interrupted(u32),
    Local(Input),
}

/// The work of the application in a tenure.
#[derive(Clone, Debug)]
pub struct Work {
    pub token: Token,
    pub is_stopped: bool,
}

pub struct Host {
    pub settings: Settings,
    pub life: u32,
    pub candidate: Candidate,
    pub schedule: Schedule,
    pub clock: Clock,
    pub desk: Desk,
    pub is_up: bool,
    pub asleep_until: Option<u64>,
    pub cut_until: u64,
    pub inbox: VecDeque<Delivery>,
    pub open: Option<Attempt>,
    pub is_watching: bool,
    pub work: Option<Work>,
    pub is_healthy: bool,
    /// Whether the application hangs: it stops nothing, and hears nothing.
    pub is_hung: bool,
    /// Requests over one connection arrive in their order.
    pub last_arrival: u64,
    pub wakes_at: u64,
}

impl Host {
    pub fn named(number: usize, life: u32) -> CandidateId {
        CandidateId::named(format!("{number}/{life}"))
    }

    pub fn is_awake(&self) -> bool {
        self.is_up && self.asleep_until.is_none()
    }

    pub fn believes(&self, now: u64) -> Option<Token> {
        self.schedule.believes(self.clock.read(now)).filter(|_| self.is_up)
    }
}
