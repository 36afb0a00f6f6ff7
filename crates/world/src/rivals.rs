//! Rivals for one lock that lives on a lease: [`Rivals`].
//!
//! Each rival is granted a lease, creates the lock's key with it if the key is absent, and believes that it holds the lock until
//! the time to live has passed *on its own clock* since it sent the last request that was answered. The judge sees true time:
//! no two rivals may believe at once (`one-holder`, judged whenever one gains the lock or renews its lease), each holder's
//! fencing token, the revision that created the key, is above all earlier ones (`tokens-grow`), and a lease that nobody asked
//! for any more ends (`leases-end`).

use crate::dice::Dice;
use crate::load::Asked;
use crate::settings::Settings;
use crate::witness::Service;
use crate::world::{What, World};
use bytes::Bytes;
use hustings_core::{EntryKind, Protocol};
use hustings_kv::{
    Command, Compare, CompareTarget, Comparison, LeaseGrant, LeaseKeepAlive, LeaseKeys, LeaseRevoke, OperationResponse,
    Outcome, Put, Request, Response, Txn,
};
use hustings_properties::Violation;
use std::collections::BTreeSet;
use std::time::Duration;

/// The time to live, in seconds.
const TTL_SECONDS: i64 = 3;
/// What a holder leaves of it for clocks that run at other speeds than the leader's, in millionths.
const TRUST: u64 = 800_000;
/// How long a leader may let log time stand still while a lease lives, in microseconds, and a little more.
const STAMP_EVERY: u64 = 6_000_000;
const LOCK: &[u8] = b"lock";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Wants a lease.
    Idle,
    Granting,
    /// Has a lease, wants the lock.
    Leased,
    Locking,
    Holding,
    Renewing,
    Leaving,
}

#[derive(Clone, Debug)]
struct Rival {
    dice: Dice,
    stage: Stage,
    lease: i64,
    number: u64,
    sent_at: u64,
    /// Until when, in true time, it trusts its lease: counted from when it asked for what was answered.
    trusts_until: u64,
    /// Until when, in true time, it believes that it holds the lock.
    believes_until: u64,
    token: i64,
}

/// All rivals for the lock.
pub(crate) struct Rivals {
    rivals: Vec<Rival>,
    next_lease: i64,
    highest_token: i64,
}

impl Rivals {
    pub(crate) fn new(settings: &Settings) -> Rivals {
        let rival = |number| Rival {
            dice: Dice::new(settings.seed, 12, number),
            stage: Stage::Idle,
            lease: 0,
            number: 0,
            sent_at: 0,
            trusts_until: 0,
            believes_until: 0,
            token: 0,
        };
        Rivals { rivals: (0..settings.load.rivals).map(rival).collect(), next_lease: 1, highest_token: 0 }
    }
}

impl<P: Protocol, S: Service> World<P, S> {
    pub(crate) fn start_rivals(&mut self) {
        for rival in 0..self.load.rivals.rivals.len() {
            self.at(self.now + 1_000, What::Rival(rival));
        }
    }

    pub(crate) fn on_rival(&mut self, number: usize) {
        let now = self.now;
        let nodes = self.machines.len() as u64;
        let rivals = &mut self.load.rivals;
        let rival = &mut rivals.rivals[number];
        if matches!(rival.stage, Stage::Holding | Stage::Renewing) && rival.believes_until <= now {
            // It knows itself that it has lost the lock.
            rival.stage = Stage::Idle;
        }
        let command = match rival.stage {
            Stage::Idle | Stage::Granting => {
                rival.stage = Stage::Granting;
                rival.lease = rivals.next_lease;
                rivals.next_lease += 1;
                Command::LeaseGrant(LeaseGrant { id: rival.lease, ttl: TTL_SECONDS })
            }
            Stage::Leased | Stage::Locking => {
                rival.stage = Stage::Locking;
                let key = Bytes::from_static(LOCK);
                let compare = Compare {
                    comparison: Comparison::Equal as i32,
                    key: key.clone(),
                    range_end: Bytes::new(),
                    target: Some(CompareTarget::Version(0)),
                };
                let put = Put { key, value: Bytes::from(number.to_string()), lease: rival.lease, ..Put::default() };
                let success = vec![hustings_kv::Operation { request: Some(Request::Put(put)) }];
                Command::Txn(Txn { compare: vec![compare], success, failure: Vec::new() })
            }
            Stage::Holding if rival.dice.below(6) == 0 => {
                rival.stage = Stage::Leaving;
                // It stops believing before it asks.
                rival.believes_until = now;
                Command::LeaseRevoke(LeaseRevoke { id: rival.lease })
            }
            Stage::Holding | Stage::Renewing => {
                rival.stage = Stage::Renewing;
                Command::LeaseKeepAlive(LeaseKeepAlive { ids: vec![rival.lease] })
            }
            Stage::Leaving => {
                rival.stage = Stage::Idle;
                return self.at(now + 100_000, What::Rival(number));
            }
        };
        let rival = &mut self.load.rivals.rivals[number];
        rival.number += 1;
        rival.sent_at = now;
        let request = rival.number;
        let at = rival.dice.below(nodes) as usize;
        let again = now + 400_000 + rival.dice.below(400_000);
        self.at(again, What::Rival(number));
        if self.machines[at].is_up() && !self.machines[at].is_paused {
            self.propose(at, Asked::Rival(number, request), EntryKind::Command, command.to_payload());
        }
    }

    pub(crate) fn on_rival_answer(&mut self, number: usize, request: u64, outcome: Option<&Outcome>) {
        let now = self.now;
        let rival = &mut self.load.rivals.rivals[number];
        if rival.number != request {
            return;
        }
        let trusts_until = rival.sent_at + TTL_SECONDS as u64 * TRUST;
        match (rival.stage, outcome) {
            (Stage::Granting, Some(Ok(Response::LeaseGrant { .. }))) => {
                rival.stage = Stage::Leased;
                rival.trusts_until = trusts_until;
            }
            (Stage::Locking, Some(Ok(Response::Txn(txn)))) if txn.succeeded => {
                if let Some(OperationResponse::Put(put)) = txn.results.first() {
                    rival.token = put.revision;
                }
                rival.stage = Stage::Holding;
                // The lock does not renew the lease.
                rival.believes_until = rival.trusts_until;
                self.check_gain(number, now);
            }
            (Stage::Locking, Some(Err(_))) => rival.stage = Stage::Idle,
            (Stage::Renewing, Some(Ok(Response::LeaseKeepAlive { renewed, .. }))) => {
                if renewed.iter().any(|(_, ttl)| ttl.is_some()) {
                    rival.stage = Stage::Holding;
                    rival.trusts_until = trusts_until;
                    rival.believes_until = trusts_until;
                    self.check_alone(number, now);
                } else {
                    rival.stage = Stage::Idle;
                    rival.believes_until = now;
                }
            }
            _ => {}
        }
    }

    /// A rival got the lock.
    fn check_gain(&mut self, holder: usize, now: u64) {
        let rivals = &mut self.load.rivals;
        let (token, until) = (rivals.rivals[holder].token, rivals.rivals[holder].believes_until);
        if until <= now {
            // The answer came after the lease had run out: it holds nothing, and whoever holds the lock now has a later token.
            rivals.rivals[holder].stage = Stage::Idle;
            return;
        }
        self.counts.locks += 1;
        if token <= rivals.highest_token {
            let what = format!("the lock is given out with token {token} after {}", rivals.highest_token);
            self.verdict = Err(Violation::of("tokens-grow", what));
        }
        rivals.highest_token = token;
        self.check_alone(holder, now);
    }

    /// Nobody else believes that it holds the lock.
    fn check_alone(&mut self, holder: usize, now: u64) {
        let rivals = &self.load.rivals;
        let (token, until) = (rivals.rivals[holder].token, rivals.rivals[holder].believes_until);
        if until <= now {
            return;
        }
        for (other, rival) in rivals.rivals.iter().enumerate() {
            if other != holder && rival.believes_until > now {
                let what = format!(
                    "rival {holder} holds the lock with token {token} while rival {other} believes for another {} ms that \
                     it holds it with token {}",
                    (rival.believes_until - now) / 1_000,
                    rival.token
                );
                self.verdict = Err(Violation::of("one-holder", what));
                return;
            }
        }
    }

    /// Lets time pass, all being well, and finds leases that nobody renewed meanwhile and that live all the same. (What was
    /// asked for long ago may renew one late: a member hands it on when it finds a leader.)
    pub(crate) fn expect_leases_end(&mut self) -> Result<(), Violation> {
        if self.load.rivals.rivals.is_empty() {
            return Ok(());
        }
        // A lease's time, by the slowest clock; what a leader may leave unwritten; and an election.
        let patience = TTL_SECONDS as u64 * 1_000_000 * 10 / 9 + STAMP_EVERY + self.settings.election_max() * 2;
        let before = self.deadlines();
        let until = self.now + patience;
        while self.now < until {
            self.run_until(self.now + 100_000)?;
        }
        let lives = |(id, deadline): &(i64, Duration)| before.contains(&(*id, *deadline));
        match self.deadlines().into_iter().find(lives) {
            Some((id, deadline)) => Err(Violation::of(
                "leases-end",
                format!(
                    "lease {id} of {TTL_SECONDS} s was not renewed in {} s of peace, and it lives, its deadline at log time {deadline:?}",
                    patience / 1_000_000
                ),
            )),
            None => Ok(()),
        }
    }

    /// All leases and their deadlines in log time, as the leader has applied them.
    fn deadlines(&self) -> BTreeSet<(i64, Duration)> {
        let leader = self.leader_position().and_then(|at| self.machines[at].replica.as_ref());
        let Some(leader) = leader else { return BTreeSet::new() };
        let view = leader.machine().inner().freeze();
        let view = S::look(&view);
        let status = |id| view.lease_time_to_live(id, LeaseKeys::Omit);
        let deadline = |id| status(id).map(|status| (id, view.clock() + status.remaining));
        view.leases().into_iter().filter_map(deadline).collect()
    }
}
