//! Rivals for one lock and one election, of the real servers: [`Rivals`].
//!
//! ```text
//!    lease ─► Lock at n1 ... given up ─► Lock at n2, the same lease ─► told ─► token ─► writes under guard ─► Unlock
//!      ▲                                                                                    │
//!      └───────────────────── it ends by itself ◄── not a word more ◄───────────────────────┘
//! ```
//!
//! A rival stands in a queue on a lease that it renews at another member than the one it waits at. By its dice it gives a call
//! up, which is dropped on the way, and asks again with the same lease at the next member: that is finding L1, and what those
//! calls leave behind must take nothing from the one that is answered. When it is told that it is in, it does what a careful
//! client does: it takes the creation revision of its key as its token, and writes in transactions that compare it.
//!
//! Convicted here, on the spot: a lock that is gone while its holder did not give it up and its lease surely lives; a lease that
//! is gone before its time. The rest is compared at the end ([`crate::tenures`]).

use crate::clients::{Outcome, is_definite};
use crate::onlookers::{ANSWER_TIMEOUT, Endpoints, RENEW_EVERY, TTL, grant, renew};
use crate::tenures::{self, Queue, Tenure, Write};
use crate::verdict::Events;
use anyhow::Result;
use bytes::Bytes;
use hustings_api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use hustings_api::etcdserverpb::request_op::Request;
use hustings_api::etcdserverpb::{
    Compare, LeaseTimeToLiveRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse,
};
use hustings_api::v3electionpb::{CampaignRequest, LeaderKey, ProclaimRequest, ResignRequest};
use hustings_api::v3lockpb::{LockRequest, UnlockRequest};
use hustings_api::{Client, EtcdError};
use hustings_properties::Violation;
use hustings_testbed::{PATIENCE, wait_for};
use hustings_world::dice::Dice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tonic::Status;

/// Number of rivals that stand side by side.
const RIVALS: u64 = 5;
/// Time that a rival waits before it asks itself whether to wait on, in milliseconds.
const WAIT_MS: (u64, u64) = (5, 250);
/// Chance, in a million, that it gives the call up then.
const GIVES_UP: u32 = 500_000;
/// Chance, in a million, that this is noticed late, and by how many milliseconds.
const NOTICED_LATE: u32 = 500_000;
const NOTICED_MS: (u64, u64) = (0, 3_000);
/// Time that it holds what it got, its pause between two writes, and that before it asks again, in milliseconds.
const HELD_MS: (u64, u64) = (20, 500);
const WRITE_MS: (u64, u64) = (5, 60);
const PAUSE_MS: (u64, u64) = (1, 60);
/// Chance, in a million, that it asks again with the same lease after it has given up what it had.
const STAYS: u32 = 600_000;
/// Chance, in a million, that it says nothing when it goes: its lease has to end.
const GOES_SILENT: u32 = 100_000;
/// Chance, in a million, that a leader proclaims before a write.
const PROCLAIMS: u32 = 200_000;
/// Bits of a value that count a rival's own writes.
const SEQUENCE_BITS: u32 = 32;
/// Once everything is whole, somebody is in within this time: what nobody renews ends, and members serve.
const HAD_AGAIN: Duration = TTL.saturating_add(PATIENCE);

/// Counts of the acts of all rivals.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rivalry {
    /// Calls of `Lock` and `Campaign`.
    pub calls: u64,
    /// Calls that were given up and repeated with the same lease at another member.
    pub repeated: u64,
    /// Tenures of lock holders and of leaders.
    pub tenures: (usize, usize),
    /// Writes of holders that were done.
    pub writes: usize,
    /// Time until both the lock and the election were had again, once everything was whole.
    pub had_again_in: Duration,
}

/// A rival's knowledge of its own place.
#[derive(Default)]
struct Record {
    calls: u64,
    repeated: u64,
    tenures: Vec<Tenure>,
    writes: Vec<Write>,
    /// Leases that were granted.
    leases: Vec<i64>,
    violations: Vec<Violation>,
}

impl Record {
    fn absorb(&mut self, other: Record) {
        self.calls += other.calls;
        self.repeated += other.repeated;
        self.tenures.extend(other.tenures);
        self.writes.extend(other.writes);
        self.leases.extend(other.leases);
        self.violations.extend(other.violations);
    }
}

/// The rivals, until they are stopped.
pub struct Rivals {
    seed: u64,
    endpoints: Vec<String>,
    begun: Instant,
    has_stopped: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Record>>,
}

impl Rivals {
    /// They begin, each at a member of its own.
    pub fn start(seed: u64, endpoints: &[String], begun: Instant) -> Rivals {
        let has_stopped = Arc::new(AtomicBool::new(false));
        let mut rivals = Rivals { seed, endpoints: endpoints.to_vec(), begun, has_stopped, tasks: Vec::new() };
        rivals.tasks = (0..RIVALS).map(|number| tokio::spawn(rivals.rival(number).compete())).collect();
        rivals
    }

    fn rival(&self, number: u64) -> Rival {
        Rival {
            number,
            dice: Dice::new(self.seed, u64::from_be_bytes(*b"a rival!"), number),
            endpoints: Endpoints::at(&self.endpoints, number as usize),
            begun: self.begun,
            has_stopped: self.has_stopped.clone(),
            written: 0,
            record: Record::default(),
        }
    }

    /// Everything is whole: the rivals vanish without a word, and one more must get what they wanted. Then nobody stands in
    /// a queue any more.
    ///
    /// # Errors
    /// When the run could not be made; what did not hold is in the end.
    pub async fn end(mut self, client: &Client) -> Result<End> {
        self.has_stopped.store(true, Ordering::Relaxed);
        let mut record = Record::default();
        for task in std::mem::take(&mut self.tasks) {
            record.absorb(task.await?);
        }
        self.has_stopped = Arc::new(AtomicBool::new(false));
        let (mut last, whole) = (self.rival(RIVALS), Instant::now());
        for queue in Queue::ALL {
            if timeout(HAD_AGAIN, last.succeed(queue)).await.is_err() {
                let what = format!("nobody got the {queue:?} within {HAD_AGAIN:?} after everything was whole");
                last.record.violations.push(Violation::of("what was held is had again", what));
            }
        }
        let had_again_in = whole.elapsed();
        record.absorb(last.record);
        for id in &record.leases {
            let ended = wait_for("a lease whose rival is gone to end", async || {
                let question = LeaseTimeToLiveRequest { id: *id, keys: true };
                let answer = client.lease().lease_time_to_live(question).await.ok()?.into_inner();
                (answer.ttl <= 0 && answer.keys.is_empty()).then_some(())
            });
            if let Err(error) = ended.await {
                record.violations.push(Violation::of("leases end", format!("lease {id}: {error:#}")));
            }
        }
        Ok(End { record, had_again_in })
    }
}

/// The acts of all rivals, when all is over.
pub struct End {
    record: Record,
    had_again_in: Duration,
}

impl End {
    /// Compares what the rivals believed with `events`, what a member tells.
    pub fn judge(self, events: &Events) -> (Rivalry, Vec<Violation>) {
        let Record { calls, repeated, tenures, writes, mut violations, .. } = self.record;
        violations.extend(tenures::judge(&tenures, &writes, events));
        let of = |queue| tenures.iter().filter(|tenure| tenure.queue == queue).count();
        let rivalry = Rivalry {
            calls,
            repeated,
            tenures: (of(Queue::Lock), of(Queue::Election)),
            writes: writes.iter().filter(|write| matches!(write.outcome, Outcome::Done(_))).count(),
            had_again_in: self.had_again_in,
        };
        (rivalry, violations)
    }
}

struct Rival {
    number: u64,
    dice: Dice,
    endpoints: Endpoints,
    begun: Instant,
    has_stopped: Arc<AtomicBool>,
    written: u64,
    record: Record,
}

/// The word that the answer to a write under guard has on the key that guards it.
enum Guard {
    Stands,
    Gone,
    Unknown,
}

/// The key with which a rival was told that it is in, and the moment when.
struct Place {
    leader: LeaderKey,
    began: u64,
}

impl Rival {
    async fn compete(mut self) -> Record {
        // A lease stands in one queue at most, so that each of its ends is one change.
        let mut ready: Option<(Queue, Lease)> = None;
        while !self.has_stopped() {
            self.pause(PAUSE_MS).await;
            let (queue, lease) = match ready.take() {
                Some(ready) => ready,
                None => {
                    let Some(lease) = self.granted().await else { continue };
                    (Queue::ALL[(self.number as usize + self.record.leases.len()) % 2], lease)
                }
            };
            let is_free = match self.ask(queue, &lease).await {
                Some(place) => self.hold(queue, &lease, place).await,
                None => false,
            };
            match is_free && lease.is_sure() && self.dice.chance(STAYS) {
                true => ready = Some((queue, lease)),
                false => self.record.violations.extend(lease.forget().await),
            }
        }
        if let Some((_, lease)) = ready {
            self.record.violations.extend(lease.forget().await);
        }
        self.record
    }

    /// Asks until it has been in once.
    async fn succeed(&mut self, queue: Queue) {
        loop {
            if let Some(lease) = self.granted().await {
                let place = self.ask(queue, &lease).await;
                if let Some(place) = place {
                    self.hold(queue, &lease, place).await;
                    self.record.violations.extend(lease.forget().await);
                    return;
                }
                self.record.violations.extend(lease.forget().await);
            }
        }
    }

    fn has_stopped(&self) -> bool {
        self.has_stopped.load(Ordering::Relaxed)
    }

    fn now(&self) -> u64 {
        micros_since(self.begun)
    }

    async fn pause(&mut self, (low, high): (u64, u64)) {
        let pause = self.dice.between(low, high);
        sleep(Duration::from_millis(pause)).await;
    }

    async fn granted(&mut self) -> Option<Lease> {
        let Some(client) = self.endpoints.next().await else {
            self.pause(PAUSE_MS).await;
            return None;
        };
        let sent = self.now();
        let id = timeout(ANSWER_TIMEOUT, grant(&client)).await.ok()?.ok()?;
        self.record.leases.push(id);
        Some(Lease::keep(id, sent, self.endpoints.clone(), self.begun))
    }

    /// Asks at one member after the other, always with the same lease; `None` when the lease is perhaps gone, or all is over.
    async fn ask(&mut self, queue: Queue, lease: &Lease) -> Option<Place> {
        let (mut next, mut was_given_up) = (None, false);
        while !self.has_stopped() && lease.is_sure() {
            if next.is_none() {
                next = self.endpoints.next().await;
            }
            let Some(client) = next.take() else {
                self.pause(PAUSE_MS).await;
                continue;
            };
            self.record.calls += 1;
            self.record.repeated += u64::from(was_given_up);
            let mut call = Box::pin(stand(client.clone(), queue, lease.id, self.number));
            let answer = loop {
                let wait = Duration::from_millis(self.dice.between(WAIT_MS.0, WAIT_MS.1));
                match timeout(wait, &mut call).await {
                    Ok(answer) => break Some(answer),
                    Err(_) if self.has_stopped() || !lease.is_sure() || self.dice.chance(GIVES_UP) => break None,
                    Err(_) => {}
                }
            };
            was_given_up = answer.is_none();
            match answer {
                None => {
                    // The way to the next member is open before: what the call leaves behind meets the one that follows.
                    next = self.endpoints.next().await;
                    self.give_up(call);
                }
                Some(Ok(leader)) => {
                    let began = self.now();
                    let token =
                        if queue == Queue::Lock { self.token(client, lease, &leader.key).await? } else { leader.rev };
                    return Some(Place { leader: LeaderKey { rev: token, ..leader }, began });
                }
                Some(Err(status)) if is_session_over(&status) => {
                    if lease.is_sure() {
                        let what =
                            format!("rival {} was told \"{}\" of lease {:x}", self.number, status.message(), lease.id);
                        self.record.violations.push(Violation::of("leases live", what));
                    }
                    return None;
                }
                Some(Err(_)) => self.pause(PAUSE_MS).await,
            }
        }
        None
    }

    /// Drops a call, now or later: a member may be slow to notice, and its word may come when nobody listens.
    fn give_up(&mut self, call: impl Future + Send + 'static) {
        if self.dice.chance(NOTICED_LATE) {
            let noticed = Duration::from_millis(self.dice.between(NOTICED_MS.0, NOTICED_MS.1));
            tokio::spawn(async move {
                sleep(noticed).await;
                drop(call);
            });
        }
    }

    /// The token of a lock, which its answer does not tell: the creation revision of its key.
    async fn token(&mut self, client: Client, lease: &Lease, key: &Bytes) -> Option<i64> {
        let mut client = Some(client);
        while lease.is_sure() {
            let Some(connected) = &client else {
                self.pause(PAUSE_MS).await;
                client = self.endpoints.next().await;
                continue;
            };
            let range = RangeRequest { key: key.clone(), ..RangeRequest::default() };
            match timeout(ANSWER_TIMEOUT, connected.kv().range(range)).await {
                Ok(Ok(answer)) => match answer.into_inner().kvs.first() {
                    Some(own) => return Some(own.create_revision),
                    None => {
                        self.miss(Queue::Lock, lease, "it was told that it is in, and its key was not there");
                        return None;
                    }
                },
                _ => client = None,
            }
        }
        None
    }

    /// Does what a holder does, until it gives up what it has or may have lost it; whether the lease stands in no queue now.
    async fn hold(&mut self, queue: Queue, lease: &Lease, place: Place) -> bool {
        let Place { leader, began } = place;
        let until = self.now() + self.dice.between(HELD_MS.0, HELD_MS.1) * 1_000;
        let (mut client, mut holds) = (None, true);
        while holds && lease.is_sure() && !self.has_stopped() && self.now() < until {
            let Some(connected) = &client else {
                self.pause(PAUSE_MS).await;
                client = self.endpoints.next().await;
                continue;
            };
            if queue == Queue::Election && self.dice.chance(PROCLAIMS) {
                holds = self.proclaim(connected, lease, &leader).await;
            }
            match self.write(connected, queue, &leader).await {
                Guard::Stands => {}
                Guard::Gone => {
                    holds = false;
                    self.miss(queue, lease, &format!("its write with token {} was refused", leader.rev));
                }
                Guard::Unknown => client = None,
            }
            self.pause(WRITE_MS).await;
        }
        // It stops believing before it says so.
        let ended = lease.sure_until().min(self.now());
        self.record.tenures.push(Tenure { queue, rival: self.number, token: leader.rev, began, ended });
        if self.has_stopped() || !lease.is_sure() || self.dice.chance(GOES_SILENT) {
            return false;
        }
        let Some(client) = self.endpoints.next().await else { return false };
        let leaving = async {
            match queue {
                Queue::Lock => client.lock().unlock(UnlockRequest { key: leader.key.clone() }).await.map(drop),
                Queue::Election => client.election().resign(ResignRequest { leader: Some(leader) }).await.map(drop),
            }
        };
        // After any other end the request may still be on its way, and would hit what the lease gets next.
        matches!(timeout(ANSWER_TIMEOUT, leaving).await, Ok(Ok(())))
    }

    /// Its place is gone, though nobody gave it up: whether that may be, its lease tells.
    fn miss(&mut self, queue: Queue, lease: &Lease, how: &str) {
        if let Some(early) = lease.sure_until().checked_sub(self.now()).filter(|early| *early > 0) {
            let (rival, id) = (self.number, lease.id);
            let what = format!("rival {rival}, {queue:?}, lease {id:x}, alive for another {} ms: {how}", early / 1_000);
            self.record.violations.push(Violation::of("what is given stands as long as its lease", what));
        }
    }

    /// Proclaims; `false` if it is no leader.
    async fn proclaim(&mut self, client: &Client, lease: &Lease, leader: &LeaderKey) -> bool {
        let request = ProclaimRequest { leader: Some(leader.clone()), value: self.number.to_string().into() };
        let answer = timeout(ANSWER_TIMEOUT, client.election().proclaim(request)).await;
        let is_refused = answer.is_ok_and(|answer| {
            answer.is_err_and(|status| EtcdError::of(&status) == Some(EtcdError::ElectionNotLeader))
        });
        if is_refused {
            self.miss(Queue::Election, lease, "it proclaimed and was told that it does not lead");
        }
        !is_refused
    }

    /// Writes if its key is the one that it was told of.
    async fn write(&mut self, client: &Client, queue: Queue, leader: &LeaderKey) -> Guard {
        self.written += 1;
        let value = self.number << SEQUENCE_BITS | self.written;
        let put = PutRequest { key: queue.guarded().into(), value: value.to_string().into(), ..PutRequest::default() };
        let guard = Compare {
            result: CompareResult::Equal as i32,
            key: leader.key.clone(),
            target: CompareTarget::Create as i32,
            target_union: Some(TargetUnion::CreateRevision(leader.rev)),
            ..Compare::default()
        };
        let txn = TxnRequest {
            compare: vec![guard],
            success: vec![RequestOp { request: Some(Request::RequestPut(put)) }],
            failure: Vec::new(),
        };
        let (outcome, guard) = match timeout(ANSWER_TIMEOUT, client.kv().txn(txn)).await {
            Ok(Ok(answer)) => match answer.into_inner() {
                TxnResponse { succeeded: true, header, .. } => {
                    (Outcome::Done(header.unwrap_or_default().revision), Guard::Stands)
                }
                _ => (Outcome::Refused, Guard::Gone),
            },
            Ok(Err(status)) if is_definite(&status) => (Outcome::Refused, Guard::Unknown),
            _ => (Outcome::Unknown, Guard::Unknown),
        };
        self.record.writes.push(Write { queue, rival: self.number, token: leader.rev, value, outcome });
        guard
    }
}

fn micros_since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// Whether a call was told that its lease is gone.
fn is_session_over(status: &Status) -> bool {
    matches!(EtcdError::of(status), Some(EtcdError::LeaseNotFound | EtcdError::LockSessionExpired))
}

/// Asks to be in; a lock's answer has no creation revision.
async fn stand(client: Client, queue: Queue, lease: i64, rival: u64) -> Result<LeaderKey, Status> {
    let name = Bytes::from(queue.name());
    match queue {
        Queue::Lock => {
            let answer = client.lock().lock(LockRequest { name: name.clone(), lease }).await?.into_inner();
            Ok(LeaderKey { name, key: answer.key, rev: 0, lease })
        }
        Queue::Election => {
            let request = CampaignRequest { name, lease, value: rival.to_string().into() };
            let answer = client.election().campaign(request).await?.into_inner();
            answer.leader.ok_or_else(|| Status::internal("the answer names no leader"))
        }
    }
}

/// A lease that is renewed for as long as its rival has it.
struct Lease {
    id: i64,
    begun: Instant,
    /// It lives until then at least: its time, counted from when the last answered renewal was sent.
    sure_until: Arc<AtomicU64>,
    renewing: JoinHandle<Option<Violation>>,
}

impl Lease {
    fn keep(id: i64, granted: u64, endpoints: Endpoints, begun: Instant) -> Lease {
        let sure_until = Arc::new(AtomicU64::new(granted + TTL.as_micros() as u64));
        let renewing = tokio::spawn(keep_alive(id, endpoints, begun, sure_until.clone()));
        Lease { id, begun, sure_until, renewing }
    }

    fn sure_until(&self) -> u64 {
        self.sure_until.load(Ordering::Relaxed)
    }

    fn is_sure(&self) -> bool {
        micros_since(self.begun) < self.sure_until()
    }

    /// Ends the renewals; gives what was wrong in them.
    async fn forget(self) -> Option<Violation> {
        self.renewing.abort();
        // One that was ended before it found anything has found nothing.
        self.renewing.await.ok().flatten()
    }
}

/// Renews until the lease is gone.
async fn keep_alive(
    id: i64,
    mut endpoints: Endpoints,
    begun: Instant,
    sure_until: Arc<AtomicU64>,
) -> Option<Violation> {
    let mut client = None;
    loop {
        sleep(RENEW_EVERY).await;
        if client.is_none() {
            client = endpoints.next().await;
        }
        let Some(connected) = &client else { continue };
        let sent = micros_since(begun);
        match timeout(ANSWER_TIMEOUT, renew(connected, id)).await {
            Ok(Ok(true)) => _ = sure_until.fetch_max(sent + TTL.as_micros() as u64, Ordering::Relaxed),
            Ok(Ok(false)) => {
                let early =
                    sure_until.load(Ordering::Relaxed).checked_sub(micros_since(begun)).filter(|early| *early > 0);
                return early.map(|early| {
                    let what = format!("rival's lease {id:x} was gone {} ms before its time", early / 1_000);
                    Violation::of("leases live", what)
                });
            }
            _ => client = None,
        }
    }
}
