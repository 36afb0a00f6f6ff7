//! One candidate at Hustings or etcd: [`EtcdSeat`].
//!
//! Every answer that shows the queue starts a watch behind its revision, with those who stand before this candidate then. So
//! no departure is missed, and the successor needs no further question.

mod view;

use self::view::{View, follow};
use super::keys::{Names, generation_of, standing, token_of};
use super::reach::{is_denial, lacks_proof};
use super::requests::{entries, is_created, is_last_written, one, put};
use super::session::Session;
use crate::clock::boot_micros;
use crate::seat::{NoAnswer, Seat, Sitter};
use crate::stores::history::{Beginning, Writing, Written, until_written};
use crate::stores::refusal::LastRefusal;
use crate::stores::written::{Entry, no_number, note_of, note_to_bytes};
use crate::will::{StoreWill, Will};
use bytes::Bytes;
use hustings_api::Client;
use hustings_api::etcdserverpb::request_op::Request as Op;
use hustings_api::etcdserverpb::response_op::Response as Done;
use hustings_api::etcdserverpb::{DeleteRangeRequest, PutRequest, RequestOp, TxnRequest, TxnResponse};
use hustings_api::mvccpb::KeyValue;
use hustings_lease::{Answer, Attempt, Input, Note, Observation, Refusal, Request, Token, Version, Why};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;

/// The seat of a candidate at etcd.
pub(super) struct EtcdSeat {
    shared: Arc<Shared>,
    /// Moment from which the last attempt's lease counts.
    counted_from: u64,
    writing: Option<Writing>,
}

struct Shared {
    session: Arc<Session>,
    sitter: Sitter,
    names: Names,
    refusal: LastRefusal,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The lease on which this candidate's entry stands, and the entry's token.
    entry: Option<(i64, Token)>,
    /// The token of the tenure that this candidate was told of last; it may be over.
    tenure: Option<Token>,
    /// The attempt that was asked last, renewals apart.
    asked: Option<Attempt>,
    fence: Fence,
    /// The note that was there before this candidate won, and since when it knows of a leader.
    note: Option<Note>,
    seen_at_micros: u64,
    watcher: Option<JoinHandle<()>>,
}

impl Drop for State {
    fn drop(&mut self) {
        self.watcher.take().inspect(JoinHandle::abort);
    }
}

/// The state of a lease's fence: a request to stand does nothing once that was written again.
#[derive(Clone, Copy, Default)]
struct Fence {
    lease: i64,
    /// The revision that wrote it last; 0 if it is not there.
    revision: i64,
    /// A request to stand had no answer, and may still be done.
    is_needed: bool,
}

/// The keys of an election at a revision.
struct Queue {
    revision: i64,
    /// Entries in the order of their creation.
    entries: Vec<KeyValue>,
    note: Option<Note>,
    /// `None` when what stands there cannot be read.
    generation: Option<u32>,
    /// The revision that wrote the generation; entries before it are of another one.
    raised_at: i64,
    /// The revision that wrote the fence of the lease that was asked for; 0 if it is not there.
    fence: i64,
}

impl EtcdSeat {
    pub(super) fn new(session: Arc<Session>, sitter: Sitter) -> EtcdSeat {
        let names = Names::of(&sitter.election);
        let shared = Shared { session, sitter, names, refusal: LastRefusal::default(), state: Mutex::default() };
        EtcdSeat { shared: Arc::new(shared), counted_from: 0, writing: None }
    }
}

impl Drop for EtcdSeat {
    fn drop(&mut self) {
        self.shared.state().watcher.take().inspect(JoinHandle::abort);
        self.shared.session.lease.remove(self.shared.sitter.line.key);
    }
}

impl Seat for EtcdSeat {
    fn ask(&mut self, attempt: Attempt, request: Request) -> u64 {
        let shared = self.shared.clone();
        if matches!(request, Request::Renew) {
            let renewal = shared.session.lease.renewal_after(self.counted_from);
            self.counted_from = renewal.0;
            tokio::spawn(async move {
                let own = || shared.state().entry.map(|(lease, _)| lease);
                let answer = shared.session.lease.renewed(renewal, shared.sitter.patience, own).await;
                shared.sitter.line.answer(attempt, answer);
            });
            return renewal.0;
        }
        // The lease is the session's: it counts from the session's last renewal, which left before this request.
        let (lease, from) = shared.session.lease.footing();
        self.counted_from = self.counted_from.max(from);
        shared.state().asked = Some(attempt);
        tokio::spawn(async move {
            let answer = shared.carry_out(attempt, request, lease).await;
            shared.sitter.line.answer(attempt, answer);
        });
        from
    }

    fn watch(&mut self) {
        // Each answer that shows the queue starts one; before the first there is nothing to watch for.
    }

    fn will(&self, token: Token) -> Option<Will> {
        let (lease, _) = self.shared.state().entry.filter(|(_, own)| *own == token)?;
        if self.shared.session.reach.inside.is_some() {
            // A process that outlives this one cannot ask its member.
            return None;
        }
        let (reach, election) = (self.shared.session.reach.complete(), self.shared.sitter.election.clone());
        Some(Will::new(token, StoreWill::Etcd(super::Will { reach, election, lease })))
    }

    fn won(&mut self, token: Token) {
        self.shared.state().tenure = Some(token);
        let shared = self.shared.clone();
        let won = {
            let state = shared.state();
            Beginning::now(token, state.note.clone(), state.seen_at_micros)
        };
        self.writing = Some(until_written(&self.shared.sitter, won, move |won| {
            let shared = shared.clone();
            async move {
                let Some(client) = shared.session.client() else { return Written::Again };
                let mut tried = shared.write_history(&client, &won).await;
                if tried.as_ref().is_err_and(lacks_proof) && shared.session.reach.authenticate(&client).await.is_ok() {
                    tried = shared.write_history(&client, &won).await;
                }
                Written::of(tried, |status| is_denial(status).then(|| status.message().to_owned()))
            }
        }));
    }
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, on the lease that was there when the request was asked for.
    async fn carry_out(self: &Arc<Shared>, attempt: Attempt, request: Request, lease: Option<i64>) -> Answer {
        let Some(client) = self.session.client() else { return Answer::Refused(Refusal::Unreachable) };
        let asked = async {
            if self.state().asked != Some(attempt) {
                // Its turn came late: what was asked since then counts on it never having left.
                return Ok(Answer::Refused(Refusal::Unreachable));
            }
            let answer = self.ask(&request, &client, lease).await;
            // The proof of the user has ended or is too old, or users count only since this session began: nothing was done yet.
            let is_unproven = answer.as_ref().is_err_and(lacks_proof);
            match is_unproven && self.session.reach.authenticate(&client).await.is_ok() {
                true => self.ask(&request, &client, lease).await,
                false => answer,
            }
        };
        match self.sitter.in_turn(&request, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(status)) => self.failed(&status, lease),
            Err(none) => {
                if none == NoAnswer::Late {
                    self.session.lease.suspect();
                }
                none.answer()
            }
        }
    }

    async fn ask(
        self: &Arc<Shared>,
        request: &Request,
        client: &Client,
        lease: Option<i64>,
    ) -> Result<Answer, tonic::Status> {
        match request {
            Request::Contend { .. } => self.contend(client, lease).await,
            Request::Look => self.look(client).await,
            Request::Release(note) => self.release(client, note).await,
            Request::Renew => unreachable!("renewals are the session's"),
        }
    }

    fn failed(&self, status: &tonic::Status, lease: Option<i64>) -> Answer {
        if is_denial(status) {
            let election = &self.sitter.election;
            let needs = format!("let root execute: hustings role grant-permission ROLE readwrite {election} --prefix");
            let why = format!("{election}: {}", self.session.reach.denial(status, &needs));
            self.sitter.line.denied(&why);
            return Answer::Refused(Refusal::Other(why));
        }
        match status.code() {
            tonic::Code::NotFound => {
                // The lease on which the entry was to stand; the session may have another one by now.
                lease.inspect(|lease| self.session.lose(*lease));
                Answer::Refused(Refusal::Other(status.message().to_owned()))
            }
            tonic::Code::InvalidArgument
            | tonic::Code::PermissionDenied
            | tonic::Code::Unauthenticated
            | tonic::Code::ResourceExhausted
            | tonic::Code::FailedPrecondition => self.refusal.tell(&self.sitter.election, status.message().to_owned()),
            _ => {
                self.session.lease.suspect();
                Answer::Unknown
            }
        }
    }

    /// The reads that show the whole election, and a lease's fence.
    fn reads(&self, lease: Option<i64>) -> Vec<RequestOp> {
        let fence = lease.map(|lease| one(&self.names.fence(lease)));
        [entries(&self.names, 0), one(&self.names.note), one(&self.names.generation)]
            .into_iter()
            .chain(fence)
            .map(|range| RequestOp { request: Some(Op::RequestRange(range)) })
            .collect()
    }

    async fn contend(self: &Arc<Shared>, client: &Client, lease: Option<i64>) -> Result<Answer, tonic::Status> {
        let Some(lease) = lease.filter(|lease| self.session.lease.is_held(lease)) else {
            return Ok(Answer::Refused(Refusal::Unreachable));
        };
        let key = self.names.entry(lease);
        let Sitter { id, priority, value, .. } = &self.sitter;
        let value = Entry::new(id, *priority, value).to_bytes().into();
        let put = PutRequest { key: key.clone().into(), value, lease, ..PutRequest::default() };
        let mut success = vec![RequestOp { request: Some(Op::RequestPut(put)) }];
        success.extend(self.reads(Some(lease)));
        let fence = {
            let mut state = self.state();
            let known = Some(state.fence).filter(|fence| fence.lease == lease).unwrap_or_default();
            state.fence = Fence { lease, is_needed: true, ..known };
            known.revision
        };
        let compare = vec![is_created(&key, 0), is_last_written(&self.names.fence(lease), fence)];
        let txn = TxnRequest { compare, success, failure: self.reads(Some(lease)) };
        let mut queue = Queue::of(client.kv().txn(txn).await?.into_inner(), &self.names);
        self.state().fence = Fence { lease, revision: queue.fence, is_needed: false };
        self.leave_old_generation(&mut queue, client, lease).await?;
        Ok(self.take_in(queue, lease))
    }

    /// The tenure that stands on this entry; `None` if this candidate does not lead by it.
    fn tenure_of(&self, entry: &KeyValue) -> Option<Token> {
        self.state().tenure.filter(|tenure| tenure.number == entry.create_revision.unsigned_abs())
    }

    /// Deletes this candidate's entry if it stood before the generation was raised: its token would be none of this generation.
    async fn leave_old_generation(&self, queue: &mut Queue, client: &Client, lease: i64) -> Result<(), tonic::Status> {
        let Some(place) = queue.old(&self.names.entry(lease)) else { return Ok(()) };
        let old = token_of(0, &queue.entries[place]);
        client.kv().txn(release_of(&self.names, lease, old, None)).await?;
        queue.entries.remove(place);
        Ok(())
    }

    async fn look(self: &Arc<Shared>, client: &Client) -> Result<Answer, tonic::Status> {
        let lease =
            self.state().entry.map(|(lease, _)| lease).or_else(|| self.session.lease.held().map(|held| held.lease));
        // An entry that is not there, and may come: not after this. Otherwise such an entry would stay for as long as the session lives, and
        // lead nobody.
        let fenced =
            Some(self.state().fence).filter(|fence| fence.is_needed && self.session.lease.is_held(&fence.lease));
        let lease = fenced.map(|fence| fence.lease).or(lease);
        let fence = fenced.map(|Fence { lease, .. }| {
            let key = self.names.fence(lease).into();
            RequestOp { request: Some(Op::RequestPut(PutRequest { key, lease, ..PutRequest::default() })) }
        });
        // No comparison, and no read is serializable: as linearizable as one read.
        let success = fence.into_iter().chain(self.reads(lease)).collect();
        let txn = TxnRequest { success, ..TxnRequest::default() };
        let mut queue = Queue::of(client.kv().txn(txn).await?.into_inner(), &self.names);
        let Some(lease) = lease else { return Ok(Answer::Gone) };
        self.state().fence = Fence { lease, revision: queue.fence, is_needed: false };
        if let Some(old) = queue.old(&self.names.entry(lease)).and_then(|old| self.tenure_of(&queue.entries[old])) {
            // Its work ends first, and what it holds is released last.
            let why = Why::Asked("the generation of its token was raised".to_owned());
            self.sitter.line.input(Input::StandDown(why));
            return Ok(Answer::Won(old));
        }
        self.leave_old_generation(&mut queue, client, lease).await?;
        match (queue.entries.first(), queue.generation) {
            (Some(first), Some(generation)) => self.sitter.line.saw(Observation::Held {
                by: standing(first).id,
                token: token_of(generation, first),
                version: Version(first.mod_revision.unsigned_abs()),
                ttl: None,
            }),
            _ => self.sitter.line.saw(Observation::Vacant { version: None, note: queue.note.clone() }),
        }
        Ok(self.take_in(queue, lease))
    }

    /// Takes this candidate's place from a queue, and watches from there on: at the member that the session is at by now, which may be another
    /// one than that which was asked.
    fn take_in(self: &Arc<Shared>, queue: Queue, lease: i64) -> Answer {
        let Some(generation) = queue.generation else {
            return self.refusal.tell(&self.sitter.election, no_number(&self.names.generation, &self.sitter.election));
        };
        let key = self.names.entry(lease);
        let place = queue.entries.iter().position(|entry| entry.key == key);
        let mut state = self.state();
        state.note.clone_from(&queue.note);
        state.watcher.take().inspect(JoinHandle::abort);
        let Some(place) = place else {
            state.entry = None;
            return Answer::Gone;
        };
        // Nothing ends such an entry, and a candidate behind it would wait for ever.
        match queue.entries[..place].iter().find(|entry| entry.lease == 0) {
            Some(foreign) => {
                let (key, election) = (String::from_utf8_lossy(&foreign.key), &self.sitter.election);
                let why = format!(
                    "{key} stands before this candidate and hangs on no lease, so that it never ends: delete that key, or all \
                     entries with `hustings elect {election} --raise`"
                );
                let _ = self.refusal.tell(election, why);
            }
            None => self.refusal.is_over(),
        }
        let token = token_of(generation, &queue.entries[place]);
        state.entry = Some((lease, token));
        state.seen_at_micros = boot_micros();
        let revision = queue.revision;
        let view = View::of(queue, place, token);
        let is_first = view.is_first();
        self.sitter.line.saw(view.roster());
        // Where there is no way to the store, all look again once there is one.
        state.watcher = self.session.client().map(|client| {
            // From the note to the last entry; what lies between and is of another election is passed over.
            let (from, end) = (format!("{}.", self.sitter.election), self.names.entries_end());
            let watching = self.session.watches.open(&client, &from, end, revision.saturating_add(1));
            tokio::spawn(follow(self.clone(), watching, view))
        });
        if is_first { Answer::Won(token) } else { Answer::Waiting(Some(token)) }
    }

    async fn release(&self, client: &Client, note: &Note) -> Result<Answer, tonic::Status> {
        let Some((lease, token)) = self.state().entry else { return Ok(Answer::Gone) };
        // A candidate that only waited leaves no note.
        let note = (note.token == token).then(|| note_to_bytes(note).into());
        let has_note = note.is_some();
        match client.kv().txn(release_of(&self.names, lease, token, note)).await {
            // A store that is full takes nothing new, and lets go all the same.
            Err(status) if has_note && status.code() == tonic::Code::ResourceExhausted => {
                client.kv().txn(release_of(&self.names, lease, token, None)).await?;
            }
            answer => drop(answer?),
        }
        let mut state = self.state();
        state.entry = None;
        state.watcher.take().inspect(JoinHandle::abort);
        Ok(Answer::Gone)
    }

    /// Whether it stands there; otherwise something else was written meanwhile.
    async fn write_history(&self, client: &Client, won: &Beginning) -> Result<bool, tonic::Status> {
        let kv = client.kv().range(one(&self.names.history)).await?.into_inner().kvs.into_iter().next();
        let there = kv.as_ref().map_or(&[][..], |kv| &kv.value);
        let text = self.sitter.history_with(there, won);
        let compare = is_last_written(&self.names.history, kv.map_or(0, |kv| kv.mod_revision));
        let success = vec![put(&self.names.history, text)];
        let txn = TxnRequest { compare: vec![compare], success, failure: Vec::new() };
        Ok(client.kv().txn(txn).await?.into_inner().succeeded)
    }
}

/// Takes exactly this entry away. The note comes before the deletion: an observer that sees the holder leave has seen why.
pub(super) fn release_of(names: &Names, lease: i64, token: Token, note: Option<Bytes>) -> TxnRequest {
    let key = names.entry(lease);
    let created = i64::try_from(token.number).unwrap_or(i64::MAX);
    let delete = DeleteRangeRequest { key: key.clone().into(), ..DeleteRangeRequest::default() };
    let left = note.map(|value| put(&names.note, value));
    let gone = RequestOp { request: Some(Op::RequestDeleteRange(delete)) };
    let success = left.into_iter().chain([gone]).collect();
    TxnRequest { compare: vec![is_created(&key, created)], success, failure: Vec::new() }
}

impl Queue {
    fn of(response: TxnResponse, names: &Names) -> Queue {
        let revision = response.header.map_or(0, |header| header.revision);
        let ranges = response.responses.into_iter().filter_map(|one| match one.response {
            Some(Done::ResponseRange(range)) => Some(range.kvs),
            _ => None,
        });
        let mut ranges = ranges.collect::<Vec<_>>().into_iter();
        let mut entries = ranges.next().unwrap_or_default();
        entries.retain(|entry| names.is_entry(&entry.key));
        entries.sort_by_key(|entry| entry.create_revision);
        let note = ranges.next().and_then(|kvs| note_of(&kvs.first()?.value));
        let generations = ranges.next().unwrap_or_default();
        let raised_at = generations.first().map_or(0, |kv| kv.mod_revision);
        let fence = ranges.next().and_then(|kvs| Some(kvs.first()?.mod_revision)).unwrap_or(0);
        Queue { revision, entries, note, generation: generation_of(generations.first()), raised_at, fence }
    }

    /// Place of this entry, if it was there before the generation was raised.
    fn old(&self, key: &str) -> Option<usize> {
        self.entries.iter().position(|entry| entry.key == key && entry.create_revision < self.raised_at)
    }
}

#[cfg(test)]
mod tests {
    use super::super::reach::Reach;
    use super::super::session;
    use super::*;
    use crate::seat::testing::{answer, sitter};
    use crate::seat::{DriverEvent, Turns, UNDER_WAY_MAX};
    use hustings_api::etcdserverpb::{LeaseGrantRequest, LeaseRevokeRequest};
    use hustings_lease::CandidateId;
    use hustings_testbed::FakeEtcd;
    use std::future::{pending, ready};
    use std::time::Duration;

    /// Goal: a candidate counts from no later a moment than its store does. Method: it asks to stand while there is no lease, and waits for
    /// its turn; meanwhile a lease is granted that was asked for earlier.
    #[tokio::test]
    async fn a_request_stands_on_no_lease_that_comes_after_it_was_asked_for() {
        let store = FakeEtcd::start(1).expect("a port is free");
        let election = crate::Election::open(&store.url(&[0], "billing")).expect("the URL is right");
        let long = Duration::from_secs(60);
        let session = Arc::new(Session::new(Reach::new(election.store()), long));
        session::connect(&session).await.expect("it accepts");
        let turns = Turns::new();
        let (sitter, mut told) = sitter("billing", long, turns.clone());
        let mut seat = EtcdSeat::new(session.clone(), sitter);
        let others: Vec<_> = (0..UNDER_WAY_MAX)
            .map(|_| {
                let turns = turns.clone();
                tokio::spawn(async move { turns.take(long, pending::<()>()).await })
            })
            .collect();
        while turns.take(Duration::from_millis(1), ready(())).await.is_ok() {}
        let asked_for = boot_micros();
        let client = session.client().expect("it is connected");
        let granted = client.lease().lease_grant(LeaseGrantRequest { ttl: 60, id: 0 }).await.expect("it is granted");
        let from = seat.ask(Attempt(1), Request::Contend { over: None });
        session.lease.granted(granted.into_inner().id, asked_for);
        others[0].abort();
        let early = answer(&mut told).await;
        assert!(from > asked_for && early == Answer::Refused(Refusal::Unreachable), "{early:?} counts too long");
        assert_eq!(seat.ask(Attempt(2), Request::Contend { over: None }), asked_for);
        let then = answer(&mut told).await;
        assert!(matches!(then, Answer::Won(_)), "{then:?}");
        others.iter().for_each(JoinHandle::abort);
    }

    /// Goal: of a thousand candidates that wait, none looks at all the others whenever one comes; whose turn it is knows them. Method: one
    /// that waits behind another, a third that comes, and the first that leaves.
    #[tokio::test]
    async fn who_waits_is_told_of_the_others_when_its_turn_comes() {
        let store = FakeEtcd::start(1).expect("a port is free");
        let election = crate::Election::open(&store.url(&[0], "billing")).expect("the URL is right");
        let long = Duration::from_secs(60);
        let session = Arc::new(Session::new(Reach::new(election.store()), long));
        session::connect(&session).await.expect("it accepts");
        let client = session.client().expect("it is connected");
        let names = Names::of("billing");
        let stands = async |lease: i64| {
            let request = LeaseGrantRequest { ttl: 60, id: lease };
            client.lease().lease_grant(request).await.expect("it is granted");
            let value = Entry::new(&CandidateId::named(format!("of-{lease}")), 0, "").to_bytes().into();
            let put = PutRequest { key: names.entry(lease).into(), value, lease, ..PutRequest::default() };
            client.kv().put(put).await.expect("it is written");
        };
        let leaves = async |lease: i64| {
            let request = LeaseRevokeRequest { id: lease };
            client.lease().lease_revoke(request).await.expect("it is revoked");
        };

        stands(1).await;
        let granted = client.lease().lease_grant(LeaseGrantRequest { ttl: 60, id: 2 }).await.expect("it is granted");
        session.lease.granted(granted.into_inner().id, boot_micros());
        let (sitter, mut told) = sitter("billing", long, Turns::new());
        let mut seat = EtcdSeat::new(session, sitter);
        seat.ask(Attempt(1), Request::Contend { over: None });
        assert!(matches!(answer(&mut told).await, Answer::Waiting(Some(_))));
        stands(3).await;
        stands(4).await;
        leaves(4).await;
        leaves(1).await;

        let turn = tokio::time::timeout(long, told.recv()).await.expect("it hears the first one leave");
        assert!(
            matches!(turn, Some(DriverEvent::For(_, Input::Seen(Observation::Turn { .. })))),
            "{turn:?} came first"
        );
        let roster = tokio::time::timeout(long, told.recv()).await.expect("it is told who stands");
        let Some(DriverEvent::For(_, Input::Seen(Observation::Roster(standings)))) = roster else {
            panic!("{roster:?} tells nobody")
        };
        let others: Vec<_> = standings.iter().map(|standing| &*standing.id.0).collect();
        assert_eq!(others, ["a", "of-3"]);
    }
}
