//! Rivals for one lock that lives on a lease: [`Rivals`].
//!
//! Each rival is granted a lease, stands in a queue as clients of a server do ([`hustings_kv::queue`]), and once it is the first
//! believes that it holds the lock until the time to live has passed *on its own clock* since it sent the last request that was
//! answered. Now and then it gives a call up while it waits, and asks again with the same lease, mostly at another member; what
//! the call that was given up had written, its member removes later, as a server does that notices late.
//!
//! The judge sees true time: no two rivals may believe at once (`one-holder`, judged whenever one gains the lock or renews its
//! lease), each holder's fencing token, the revision that created its key, is above all earlier ones (`tokens-grow`), and a lease
//! that nobody asked for any more ends (`leases-end`).

use crate::command::{self, Target};
use crate::dice::Dice;
use crate::digested::Service;
use crate::load::Asked;
use crate::machine::Plants;
use crate::plants;
use crate::settings::Settings;
use crate::world::{EventKind, World};
use bytes::Bytes;
use hustings_core::Protocol;
use hustings_kv::queue::{self, Origin, Place};
use hustings_kv::{
    Command, LeaseGrant, LeaseKeepAlive, LeaseKeys, LeaseRevoke, OperationResponse, Outcome, Range, Request, Response,
    SortOrder, SortTarget, Txn, TxnResponse,
};
use hustings_properties::Violation;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// The time to live, in seconds.
const TTL_SECONDS: i64 = 3;
/// Share of a lease's time that its holder trusts, in millionths: clocks may run at other speeds than the leader's.
const TRUST: u64 = 800_000;
/// A rival that waits renews its lease when it would trust it no longer than this, in microseconds.
const RENEWED_BEFORE: u64 = 1_300_000;
/// Longest time that a leader may let log time stand still while a lease lives, in microseconds, and a little more.
const STAMP_EVERY: u64 = 6_000_000;
/// Time that a leader is given to commit what was asked for before leases are to end, in microseconds.
const WORKED_OFF_WITHIN: u64 = 120_000_000;
/// Microseconds between two hand-overs of leadership while leases run out.
const HAND_OVER_EVERY: u64 = 1_300_000;
/// Time that a member takes to notice that a client has given a call up, in microseconds.
const NOTICED: (u64, u64) = (1_000, 3_000_000);
const QUEUE: &[u8] = b"lock/";
const QUEUE_END: &[u8] = b"lock0";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It wants a lease.
    Idle,
    Granting,
    /// It has a lease, and wants a place in the queue.
    Leased,
    Standing,
    /// It has a place, and asks whether it is the first.
    Waiting,
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
    /// End of its trust in its lease, in true time: counted from when it asked for what was answered.
    trusts_until: u64,
    /// End of its belief that it holds the lock, in true time.
    believes_until: u64,
    token: i64,
    /// The place in the queue of its present call.
    place: Option<Place>,
    /// Requests of calls that were given up before they were answered, and their leases.
    abandoned: Vec<(u64, i64)>,
    /// Leases and places that calls which were given up have written, to be removed in this order.
    left: VecDeque<(i64, Place)>,
}

/// Whether leadership is handed on while leases run out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandsOver {
    Yes,
    No,
}

/// All rivals for the lock.
pub(crate) struct Rivals {
    rivals: Vec<Rival>,
    next_lease: i64,
    highest_token: i64,
    requests: Requests,
}

/// Requests of all rivals together.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Requests {
    /// Those to members that could answer.
    pub(crate) asked: u64,
    /// Those that were answered before their rival asked again.
    pub(crate) in_time: u64,
    /// Those that were answered after that: their answers are not taken.
    pub(crate) late: u64,
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
            place: None,
            abandoned: Vec::new(),
            left: VecDeque::new(),
        };
        Rivals {
            rivals: (0..settings.load.rivals).map(rival).collect(),
            next_lease: 1,
            highest_token: 0,
            requests: Requests::default(),
        }
    }
}

/// The key of the rival that stands with this lease.
fn key_of(lease: i64) -> Bytes {
    Bytes::from([QUEUE, format!("{lease:x}").as_bytes()].concat())
}

/// "Who is the first, and is my key as I left it?"
fn question(lease: i64) -> Txn {
    let first = Range {
        key: Bytes::from_static(QUEUE),
        range_end: Bytes::from_static(QUEUE_END),
        limit: 1,
        sort_order: SortOrder::Ascend as i32,
        sort_target: SortTarget::Create as i32,
        ..Range::default()
    };
    let own = Range { key: key_of(lease), ..Range::default() };
    let success = vec![Request::Range(first).into(), Request::Range(own).into()];
    Txn { compare: Vec::new(), success, failure: Vec::new() }
}

impl<P: Protocol, S: Service> World<P, S> {
    pub(crate) fn start_rivals(&mut self) {
        for rival in 0..self.load.rivals.rivals.len() {
            self.at(self.now + 1_000, EventKind::Rival(rival));
        }
    }

    pub(crate) fn on_rival(&mut self, number: usize) {
        let (now, lacks_trace) = (self.now, self.plants().adopts_without_trace);
        let nodes = self.machines.len() as u64;
        if self.load_is_over() {
            return;
        }
        let rivals = &mut self.load.rivals;
        let rival = &mut rivals.rivals[number];
        if matches!(rival.stage, Stage::Holding | Stage::Renewing) && rival.believes_until <= now {
            // It knows itself that it has lost the lock.
            rival.stage = Stage::Idle;
        }
        if rival.stage == Stage::Waiting && rival.trusts_until <= now {
            rival.stage = Stage::Idle;
        }
        let gives_up = rival.stage == Stage::Waiting && rival.dice.below(4) == 0;
        let renews = rival.trusts_until < now + RENEWED_BEFORE;
        let command = match rival.stage {
            Stage::Idle | Stage::Granting => {
                rival.stage = Stage::Granting;
                rival.lease = rivals.next_lease;
                rivals.next_lease += 1;
                Command::LeaseGrant(LeaseGrant { id: rival.lease, ttl: TTL_SECONDS })
            }
            Stage::Leased | Stage::Standing => self.stand(number, lacks_trace),
            Stage::Waiting if gives_up => self.stand(number, lacks_trace),
            Stage::Waiting if renews => Command::LeaseKeepAlive(LeaseKeepAlive { ids: vec![rival.lease] }),
            Stage::Waiting => Command::Txn(question(rival.lease)),
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
                return self.at(now + 100_000, EventKind::Rival(number));
            }
        };
        let rival = &mut self.load.rivals.rivals[number];
        rival.number += 1;
        rival.sent_at = now;
        let request = rival.number;
        let at = rival.dice.below(nodes) as usize;
        let again = now + 300_000 + rival.dice.below(400_000);
        self.load.rivals.requests.asked += u64::from(self.could_answer(at));
        self.at(again, EventKind::Rival(number));
        self.ask_member(at, Asked::Rival(number, request), &command);
    }

    /// A new call; the one before, if there is one, is given up.
    fn stand(&mut self, number: usize, lacks_trace: bool) -> Command {
        let rival = &mut self.load.rivals.rivals[number];
        match rival.place.take() {
            Some(place) => self.give_up_later(number, place),
            None if rival.stage == Stage::Standing => rival.abandoned.push((rival.number, rival.lease)),
            None => {}
        }
        let rival = &mut self.load.rivals.rivals[number];
        rival.stage = Stage::Standing;
        let stand = queue::stand(&key_of(rival.lease), rival.lease, Some(Bytes::from(number.to_string())));
        Command::Txn(if lacks_trace { plants::without_trace(stand) } else { stand })
    }

    /// The member notices in a while that nobody waits for the call any more.
    fn give_up_later(&mut self, number: usize, place: Place) {
        let rival = &mut self.load.rivals.rivals[number];
        rival.left.push_back((rival.lease, place));
        let noticed = self.now + rival.dice.between(NOTICED.0, NOTICED.1);
        self.at(noticed, EventKind::Forsaken(number));
    }

    /// A member removes what a call wrote that was given up, if it may.
    pub(crate) fn on_forsaken(&mut self, number: usize) {
        let (nodes, lacks_trace) = (self.machines.len() as u64, self.plants().adopts_without_trace);
        let rival = &mut self.load.rivals.rivals[number];
        let Some((lease, place)) = rival.left.pop_front() else { return };
        let key = key_of(lease);
        let leave = match place.origin {
            _ if lacks_trace => plants::leave_as_created(&key, place.revision),
            Origin::Made => queue::leave(&key, place.written),
            // The call that made the key may have told its client that it is in, and nobody is asked here.
            Origin::Adopted => return,
        };
        let at = rival.dice.below(nodes) as usize;
        // Nobody waits for the answer.
        self.ask_member(at, Asked::Rival(number, 0), &Command::Txn(leave));
    }

    pub(crate) fn on_rival_answer(&mut self, number: usize, request: u64, outcome: Option<&Outcome>) {
        let now = self.now;
        let Rivals { rivals, requests, .. } = &mut self.load.rivals;
        let rival = &mut rivals[number];
        if rival.number != request {
            requests.late += u64::from(outcome.is_some());
            return self.on_late_answer(number, request, outcome);
        }
        let trusts_until = rival.sent_at + TTL_SECONDS as u64 * TRUST;
        requests.in_time += u64::from(outcome.is_some());
        match (rival.stage, outcome) {
            (Stage::Granting, Some(Ok(Response::LeaseGrant { .. }))) => {
                rival.stage = Stage::Leased;
                rival.place = None;
                rival.trusts_until = trusts_until;
            }
            (Stage::Standing, Some(Ok(Response::Txn(txn)))) => {
                rival.place = queue::place_in(txn.clone());
                rival.stage = Stage::Waiting;
            }
            (Stage::Waiting, Some(Ok(Response::Txn(txn)))) => self.on_told(number, txn.clone()),
            (Stage::Standing | Stage::Waiting, Some(Err(_))) => rival.stage = Stage::Idle,
            (Stage::Waiting | Stage::Renewing, Some(Ok(Response::LeaseKeepAlive { renewed, .. }))) => {
                if renewed.iter().all(|(_, ttl)| ttl.is_none()) {
                    rival.stage = Stage::Idle;
                    rival.believes_until = now;
                    return;
                }
                rival.trusts_until = trusts_until;
                if rival.stage == Stage::Renewing {
                    rival.stage = Stage::Holding;
                    rival.believes_until = trusts_until;
                    self.check_alone(number, now);
                }
            }
            _ => {}
        }
    }

    /// A call that was given up is answered: what it wrote is removed in a while.
    fn on_late_answer(&mut self, number: usize, request: u64, outcome: Option<&Outcome>) {
        let rival = &mut self.load.rivals.rivals[number];
        let Some(position) = rival.abandoned.iter().position(|(abandoned, _)| *abandoned == request) else { return };
        let (_, lease) = rival.abandoned.swap_remove(position);
        if let Some(Ok(Response::Txn(txn))) = outcome
            && let Some(place) = queue::place_in(txn.clone())
            && lease == rival.lease
        {
            self.give_up_later(number, place);
        }
    }

    /// Whether it is the first, and its key as its present call left it.
    fn on_told(&mut self, number: usize, txn: TxnResponse) {
        let (now, Plants { adopts_without_trace: lacks_trace, counts_versions, .. }) = (self.now, self.plants());
        let rival = &mut self.load.rivals.rivals[number];
        let Ok(Response::Txn(txn)) = Response::Txn(txn).answered() else { return };
        let [OperationResponse::Range(first), OperationResponse::Range(own)] = txn.results.as_slice() else { return };
        let Some(place) = rival.place else { return };
        let Some(own) = own.kvs.first().filter(|own| own.create_revision == place.revision) else {
            // Somebody removed its key: it stands again.
            rival.place = None;
            rival.stage = Stage::Leased;
            return;
        };
        if first.kvs.first().is_none_or(|first| first.key != own.key) {
            return;
        }
        if own.mod_revision != place.written && !lacks_trace {
            // Another call of this lease took the place over, and could give it up: not after this one has written again.
            rival.place = None;
            rival.stage = Stage::Leased;
            return;
        }
        rival.token = if counts_versions { own.version } else { place.revision };
        rival.place = None;
        rival.stage = Stage::Holding;
        // The lock does not renew the lease.
        rival.believes_until = rival.trusts_until;
        self.check_gain(number, now);
    }

    /// A rival got the lock.
    fn check_gain(&mut self, holder: usize, now: u64) {
        let rivals = &mut self.load.rivals;
        let (token, until) = (rivals.rivals[holder].token, rivals.rivals[holder].believes_until);
        if until <= now {
            // The answer came after the lease had run out: it holds nothing, and the present holder of the lock has a later token.
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

    /// Checks that nobody else believes that it holds the lock.
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
    pub(crate) fn expect_leases_end(&mut self, hands_over: HandsOver) -> Result<(), Violation> {
        if self.load.rivals.rivals.is_empty() {
            return Ok(());
        }
        self.work_off()?;
        // A lease's time, by the slowest clock; what a leader may leave unwritten; and an election.
        let patience = TTL_SECONDS as u64 * 1_000_000 * 10 / 9 + STAMP_EVERY + self.settings.election_max() * 2;
        let before = self.deadlines();
        let until = self.now + patience;
        while self.now < until {
            if hands_over == HandsOver::Yes {
                self.apply(&command::Command::Resign(Target::Leader))?;
            }
            self.run_until(self.now + HAND_OVER_EVERY)?;
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

    /// Lets the leader commit what it holds now, if it can: log time is read as entries are proposed, and moves on as they are applied.
    fn work_off(&mut self) -> Result<(), Violation> {
        let Some(leader) = self.leader() else { return Ok(()) };
        let status = |world: &Self| world.replica(leader).map(|replica| replica.status());
        let Some(end) = status(self).map(|status| status.last.index) else { return Ok(()) };
        let until = self.now + WORKED_OFF_WITHIN;
        while self.now < until && status(self).is_some_and(|status| status.commit < end) {
            self.run_until(self.now + HAND_OVER_EVERY)?;
        }
        Ok(())
    }

    /// Requests of all rivals until now.
    pub(crate) fn rivals_requests(&self) -> Requests {
        self.load.rivals.requests
    }

    /// Whether a rival has come to hold the lock, or was told that it holds it still, by a question that it asked after that moment.
    pub(crate) fn is_lock_held_since(&self, moment: u64) -> bool {
        let asked_later = moment + TTL_SECONDS as u64 * TRUST;
        self.load.rivals.rivals.iter().any(|rival| rival.believes_until > asked_later)
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
