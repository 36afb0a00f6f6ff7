//! The state that all services share: the store behind deadlines, headers, and the signals that end streams.
//!
//! Nothing here is locked across an await. The hot path takes one glance at the node's status for the check and one for
//! the header; everything else is the request's own.
//!
//! The lowest of the server's rooms: what stands here knows no service, no path and no connection.
//!
//! Read next: [`crate::services::kv`], the services' simplest.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use hustings_api::EtcdError;
use hustings_api::etcdserverpb::ResponseHeader;
use hustings_core::{Admin, Membership, MembershipChange};
use hustings_kv::{Advance, COST_MAX, Command, KvError, Need, Response, View};
use hustings_node::{Happening, NodeStatus, Readable, RequestError};
use tokio::sync::{Semaphore, SemaphorePermit, broadcast, watch};
use tonic::Status;

use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::following::{Hub, Inbox};
use crate::context::memory::Memory;
use crate::context::metrics::Metrics;
use crate::context::options::ServerOptions;
use crate::context::password::Passwords;
use crate::context::quota::{Quota, Room};
pub(crate) use crate::context::readiness::{Learner, insists_on_leader};
use crate::context::recent::Recent;
use crate::context::renewals::{Renewals, Waiting};
use crate::context::serving::{Serving, StreamEnd};
use crate::context::slow::SlowCalls;
use crate::context::story::Story;
use crate::context::token::Tokens;

pub mod options;

pub mod backend;

pub(crate) mod version;

pub(crate) mod error;

pub(crate) mod convert;

pub(crate) mod audit;

pub(crate) mod caller;

pub(crate) mod token;

pub(crate) mod jwt;

pub(crate) mod password;

pub(crate) mod permissions;

pub(crate) mod recent;

pub(crate) mod quota;

pub(crate) mod readiness;

pub(crate) mod memory;

pub(crate) mod serving;

pub(crate) mod following;

pub(crate) mod renewals;

pub(crate) mod story;

pub(crate) mod slow;

pub mod metrics;

/// Places in queues that may be on their way, to a queue or out of it, at a time: without a leader they wait.
const LINGERING_MAX: usize = 4_096;

/// Large answers that are built at a time.
const LARGE_MAX: usize = 2;

/// Previous values of no more bytes than this are read beside other answers.
const FEW_BYTES: usize = 4 << 20;

/// Values on file that are read at a time, each by a thread: more wait for a disk that does not answer, and are refused.
const DISK_READS_MAX: usize = 32;

/// Snapshots that are streamed at a time.
const SNAPSHOTS_MAX: usize = 4;

/// Pages of the dashboard that are open at a time; each asks all members once a second.
const VIEWERS_MAX: usize = 64;

/// Bytes that a proposal holds beside its payload.
const PROPOSAL_BYTES: usize = 512;

/// Greatest cost of a command that need not wait for its turn, in the store's visits: some 0.2 milliseconds.
const CHEAP_COST_MAX: u64 = 2_000;

/// The state that all services share.
pub(crate) struct Context<B> {
    /// Reached through the methods below only, each of which wants to know who asks.
    backend: B,
    /// Users and roles of the latest view.
    pub(crate) recent: Recent,
    pub(crate) tokens: Tokens,
    pub(crate) passwords: Passwords,
    pub(crate) options: ServerOptions,
    pub(crate) cluster_id: u64,
    pub(crate) member_id: u64,
    pub(crate) quota: Quota,
    pub(crate) hub: Hub,
    pub(crate) renewals: Renewals,
    pub(crate) serving: watch::Sender<Serving>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) slow: SlowCalls,
    /// Places in queues that are being written or given up, which goes on when the client has gone.
    pub(crate) lingering: Arc<Semaphore>,
    /// The one turn for commands that cost much.
    costly: Semaphore,
    /// Turns for answers that may be large.
    large: Arc<Semaphore>,
    /// Turns for reads of values that are on file.
    disk_reads: Arc<Semaphore>,
    /// Snapshots that may be streamed; each has a thread.
    pub(crate) snapshots: Arc<Semaphore>,
    /// The budget for what clients may make this member hold.
    pub(crate) memory: Arc<Memory>,
    /// Pages of the dashboard that may be open.
    pub(crate) viewers: Arc<Semaphore>,
    /// The latest changes of role, term or leader at this member.
    pub(crate) story: Story,
    /// Moment at which this process began to serve.
    pub(crate) begun: Instant,
}

/// The receiving ends for the server's own tasks.
pub(crate) struct Inboxes {
    pub(crate) hub: Inbox,
    pub(crate) renewals: Waiting,
}

impl<B: Backend> Context<B> {
    pub(crate) fn new(backend: B, options: ServerOptions) -> (Context<B>, Inboxes) {
        let status = backend.status();
        let quota = Quota::new(options.quota_backend_bytes);
        let memory = Memory::new(options.memory_limit_bytes);
        let (hub, inbox) = Hub::new(memory.clone());
        let (renewals, waiting) = Renewals::new();
        let serving = watch::channel(Serving::default()).0;
        let (cluster_id, member_id) = (status.cluster_id.0, status.me.0);
        let tokens = Tokens::new(options.auth_token_ttl, options.jwt.clone());
        let passwords = Passwords::new(options.bcrypt_cost);
        let story = Story::in_directory(options.data_dir.as_deref());
        let slow = SlowCalls::new(options.slow_after);
        let metrics = match options.has_histograms_of_calls {
            true => Metrics::default().with_histograms_of_calls(),
            false => Metrics::default(),
        };
        let context = Context {
            backend,
            recent: Recent::new(),
            tokens,
            passwords,
            options,
            cluster_id,
            member_id,
            quota,
            hub,
            renewals,
            serving,
            metrics: Arc::new(metrics),
            slow,
            lingering: Arc::new(Semaphore::new(LINGERING_MAX)),
            costly: Semaphore::new(1),
            large: Arc::new(Semaphore::new(LARGE_MAX)),
            disk_reads: Arc::new(Semaphore::new(DISK_READS_MAX)),
            snapshots: Arc::new(Semaphore::new(SNAPSHOTS_MAX)),
            memory,
            viewers: Arc::new(Semaphore::new(VIEWERS_MAX)),
            story,
            begun: Instant::now(),
        };
        (context, Inboxes { hub: inbox, renewals: waiting })
    }

    /// The header of an answer that knows its revision.
    pub(crate) fn header(&self, revision: i64) -> Option<ResponseHeader> {
        let raft_term = self.backend.status().term.0;
        Some(ResponseHeader { cluster_id: self.cluster_id, member_id: self.member_id, revision, raft_term })
    }

    /// Finds out who calls, after [`Context::check`]: what every method begins with.
    pub(crate) async fn admit<T>(&self, request: &tonic::Request<T>, learner: Learner) -> Result<Caller, Status> {
        self.check(request.metadata(), learner)?;
        self.caller(request.metadata(), request.extensions()).await
    }

    /// Proposes a command and waits for its result, within bounds.
    pub(crate) async fn propose(&self, caller: &Caller, command: Command) -> Result<Response, Status> {
        let payload = self.payload(caller, &command).await?;
        let _held = self.memory.hold(payload.len() + PROPOSAL_BYTES)?;
        let _turn = self.turn(&command).await?;
        drop(command);
        self.propose_payload(caller, payload).await
    }

    /// Proposes a command that makes the store grow: as [`Context::propose`], if the quota admits it.
    pub(crate) async fn propose_growth(&self, caller: &Caller, command: Command) -> Result<Response, Status> {
        let payload = self.payload(caller, &command).await?;
        let _held = self.memory.hold(payload.len() + PROPOSAL_BYTES)?;
        let room = self.room(payload.len()).await?;
        let _turn = self.turn(&command).await?;
        drop(command);
        let response = self.propose_payload(caller, payload).await?;
        room.fill();
        Ok(response)
    }

    /// Room in the store for a proposal. A refusal looks at the store first: space may have been freed since the last look.
    async fn room(&self, payload_bytes: usize) -> Result<Room<'_>, Status> {
        // At once: a fast client fills what is left of the log before the alarm is applied.
        if self.metrics.is_log_short() {
            return Err(EtcdError::NoSpace.into());
        }
        if let Ok(room) = self.quota.admit(payload_bytes) {
            return Ok(room);
        }
        let view = self.view_local().await?;
        self.quota.look(&view);
        self.quota.admit(payload_bytes)
    }

    /// A turn for a command that costs much when it is applied: this member has one such command under way at a time, so that
    /// no batch of entries holds the loop for long. A command that would be refused anyway is refused here, without an entry.
    async fn turn(&self, command: &Command) -> Result<Option<SemaphorePermit<'_>>, Status> {
        if !command.may_cost_much() {
            return Ok(None);
        }
        let view = self.view_local().await?;
        let is_cheap = match command.may_ask_disk() {
            false => view.cost(command, CHEAP_COST_MAX).is_ok(),
            true => {
                let command = command.clone();
                self.read_disk(move || view.cost(&command, CHEAP_COST_MAX).is_ok()).await?
            }
        };
        if is_cheap {
            return Ok(None);
        }
        // The semaphore is never closed.
        let turn = tokio::time::timeout(self.options.request_timeout(), self.costly.acquire()).await;
        let Ok(Ok(turn)) = turn else { return Err(EtcdError::TooManyRequests.into()) };
        let (view, command) = (self.view_local().await?, command.clone());
        let cost = off_the_loop(move || view.cost(&command, COST_MAX)).await?;
        cost.map_err(error::of_store)?;
        Ok(Some(turn))
    }

    /// The bytes of a command, with its caller, if both may go further.
    async fn payload(&self, caller: &Caller, command: &Command) -> Result<Bytes, Status> {
        if let Some(trail) = caller.trail() {
            trail.on_command(command);
        }
        self.judge(caller, command).await?;
        let payload = command.to_payload_by(caller.proof());
        if payload.len() > self.options.max_request_bytes {
            return Err(EtcdError::RequestTooLarge.into());
        }
        Ok(payload)
    }

    /// Refuses a command that its caller may not have applied, before it costs an entry. Where it is applied it is judged
    /// again, by the state of that moment.
    async fn judge(&self, caller: &Caller, command: &Command) -> Result<(), Status> {
        if !self.users_count() && caller.proof().is_none() {
            return Ok(());
        }
        if self.recent.decide(|users| users.surely_permits(caller.proof(), command).then_some(())).is_some() {
            return Ok(());
        }
        let view = self.view_local().await?;
        self.recent.see(&view);
        if view.judge(caller.proof(), command).is_ok() {
            return Ok(());
        }
        drop(view);
        // The local view may lag: ask the store itself.
        let judged = self.view().await?.permit_command(caller.proof(), command);
        judged.map_err(error::of_accounts)
    }

    async fn propose_payload(&self, caller: &Caller, payload: Bytes) -> Result<Response, Status> {
        // Dropped with the request when the client gives up.
        let pending = Pending::count(&self.metrics);
        let nobody_led = self.backend.status().leader.is_none();
        let outcome = self.within(self.backend.propose(payload)).await;
        drop(pending);
        if outcome.is_err() {
            self.metrics.proposals_failed.inc();
        }
        // As etcd says of a proposal that waited for a leader in vain; its code there is `Unknown`, which tells clients less.
        if nobody_led && outcome.as_ref().is_err_and(|status| EtcdError::of(status) == Some(EtcdError::Timeout)) {
            return Err(Status::deadline_exceeded("context deadline exceeded"));
        }
        let response = outcome?.response.map_err(|why| self.refused(why))?;
        note_revision(caller, response.revision());
        self.answered(response).await
    }

    /// Translates the store's refusal of a command; if it is for its caller, then users or roles have changed.
    fn refused(&self, why: KvError) -> Status {
        if matches!(why, KvError::Accounts(_)) {
            self.recent.expire();
        }
        error::of_store(why)
    }

    /// Carries out the reads of a transaction that applying it put off: here, where a client waits for them.
    async fn answered(&self, response: Response) -> Result<Response, Status> {
        if !response.is_deferred() {
            return Ok(response);
        }
        // The transaction is done: no error from here on may say that it is not.
        let (bytes, has_ranges) = (response.deferred_bytes(), response.has_deferred_ranges());
        let memory = self.memory.clone();
        let build = move || {
            // Previous values are held now; values that are read beside them were foreseen.
            let held = memory.hold(bytes)?;
            let answered = response.answered().map_err(error::of_store)?;
            Ok::<_, Status>((answered, held))
        };
        // A few values must not wait for those who list everything.
        let built = match bytes <= FEW_BYTES && !has_ranges {
            true => self.read_disk(build).await,
            false => self.build(build).await,
        };
        let built = built.and_then(|built| built).map_err(|_| Status::from(EtcdError::Timeout));
        built.map(|(answered, _held)| answered)
    }

    /// Reads values that are on file: off the client threads, which must not wait for a disk, and a bounded number at a time.
    pub(crate) async fn read_disk<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        self.with_turn(&self.disk_reads, read).await
    }

    /// Builds an answer that may be large: off the client threads, and few at a time.
    pub(crate) async fn build<T: Send + 'static>(
        &self,
        build: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        // The semaphore is never closed.
        self.with_turn(&self.large, build).await
    }

    /// Runs on a thread of its own once there is a turn, which ends with the work: who asked may be gone by then.
    async fn with_turn<T: Send + 'static>(
        &self,
        turns: &Arc<Semaphore>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        // The semaphore is never closed.
        let turn = tokio::time::timeout(self.options.request_timeout(), turns.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else { return Err(EtcdError::TooManyRequests.into()) };
        off_the_loop(move || {
            let _turn = turn;
            work()
        })
        .await
    }

    /// Lets work of the store that goes in steps go on by a step; one at a time, for steps cost much. Answers the revision.
    pub(crate) async fn push_on(&self) -> Result<i64, Status> {
        let _turn = self.costly.acquire().await.map_err(|_| Status::from(EtcdError::Stopped))?;
        match self.propose(&Caller::member(), Command::Advance(Advance {})).await? {
            Response::Advance { revision } => Ok(revision),
            _ => Err(error::mismatch()),
        }
    }

    /// Proposes as [`Context::propose`], without a bound in time: the caller bounds how many may wait.
    pub(crate) async fn propose_to_the_end(&self, caller: &Caller, command: Command) -> Result<Response, Status> {
        let payload = self.payload(caller, &command).await?;
        let _held = self.memory.hold(payload.len() + PROPOSAL_BYTES)?;
        self.propose_payload_to_the_end(caller, payload).await
    }

    /// Proposes as [`Context::propose_growth`], without a bound in time: the caller bounds how many may wait.
    pub(crate) async fn propose_growth_to_the_end(
        &self,
        caller: &Caller,
        command: Command,
    ) -> Result<Response, Status> {
        let payload = self.payload(caller, &command).await?;
        let _held = self.memory.hold(payload.len() + PROPOSAL_BYTES)?;
        let room = self.room(payload.len()).await?;
        let response = self.propose_payload_to_the_end(caller, payload).await?;
        room.fill();
        Ok(response)
    }

    async fn propose_payload_to_the_end(&self, caller: &Caller, payload: Bytes) -> Result<Response, Status> {
        let pending = Pending::count(&self.metrics);
        let outcome = self.backend.propose(payload).await;
        drop(pending);
        if outcome.is_err() {
            self.metrics.proposals_failed.inc();
        }
        let response = outcome.map_err(error::of_request)?.response.map_err(|why| self.refused(why))?;
        note_revision(caller, response.revision());
        self.answered(response).await
    }

    /// Reads as [`Context::read`], but waits until there is a leader; an error means that it is refused, or that the node stops.
    pub(crate) async fn read_to_the_end(&self, caller: &Caller, need: Need<'_>) -> Result<View, Status> {
        loop {
            match self.backend.read().await {
                Ok(readable) => return self.permitted(caller, need, readable.view),
                Err(RequestError::Stopped) => return Err(EtcdError::Stopped.into()),
                Err(_) => tokio::time::sleep(self.options.timing.election_max).await,
            }
        }
    }

    /// A view for a linearizable read, if the caller may have what it needs.
    pub(crate) async fn read(&self, caller: &Caller, need: Need<'_>) -> Result<View, Status> {
        let view = self.view().await?;
        self.permitted(caller, need, view)
    }

    /// A view for a serializable read, if the caller may have what it needs.
    pub(crate) async fn read_local(&self, caller: &Caller, need: Need<'_>) -> Result<View, Status> {
        Ok(self.read_local_at(caller, need).await?.view)
    }

    /// Reads as [`Context::read_local`], and gives the place in the log, too.
    pub(crate) async fn read_local_at(&self, caller: &Caller, need: Need<'_>) -> Result<Readable<View>, Status> {
        let readable = self.within(self.backend.read_local()).await?;
        self.recent.see(&readable.view);
        if readable.view.permit(caller.proof(), need).is_err() {
            // The local view may lag: ask the store itself.
            self.read(caller, need).await?;
        }
        note(caller, need, readable.view.revision());
        Ok(readable)
    }

    fn permitted(&self, caller: &Caller, need: Need<'_>, view: View) -> Result<View, Status> {
        self.recent.see(&view);
        note(caller, need, view.revision());
        match view.permit(caller.proof(), need) {
            Ok(()) => Ok(view),
            Err(refusal) => Err(error::of_accounts(refusal)),
        }
    }

    async fn view(&self) -> Result<View, Status> {
        Ok(self.within(self.backend.read()).await?.view)
    }

    async fn view_local(&self) -> Result<View, Status> {
        Ok(self.within(self.backend.read_local()).await?.view)
    }

    /// Whether users count, as far as this member has looked.
    pub(crate) fn users_count(&self) -> bool {
        self.recent.users_count()
    }

    /// Refuses a caller without a right that concerns no key.
    pub(crate) async fn require(&self, caller: &Caller, need: Need<'_>) -> Result<(), Status> {
        if self.is_witness() {
            // Only what it does by itself: it cannot tell who else may.
            let is_own = caller.proof().is_some_and(|proof| proof.is_member);
            return if is_own { Ok(()) } else { Err(error::is_witness()) };
        }
        self.read_local(caller, need).await.map(drop)
    }

    /// The member as it sees itself.
    pub(crate) fn node_status(&self) -> NodeStatus {
        self.backend.status()
    }

    /// Follows the status; the latest wins.
    pub(crate) fn status_changes(&self) -> watch::Receiver<NodeStatus> {
        self.backend.status_changes()
    }

    /// Follows the index of the last applied entry; the latest wins.
    pub(crate) fn applied_changes(&self) -> watch::Receiver<u64> {
        self.backend.applied_changes()
    }

    /// Every transition from now on.
    pub(crate) fn happenings(&self) -> broadcast::Receiver<Happening> {
        self.backend.happenings()
    }

    /// Changes the membership, which root may; the outer error is the caller's.
    pub(crate) async fn change_membership(
        &self,
        caller: &Caller,
        change: MembershipChange,
    ) -> Result<Result<Arc<Membership>, RequestError>, Status> {
        self.require(caller, Need::Root).await?;
        Ok(self.backend.change_membership(change).await)
    }

    /// Asks the protocol itself for something, which root may.
    pub(crate) async fn admin(&self, caller: &Caller, admin: Admin) -> Result<(), Status> {
        self.require(caller, Need::Root).await?;
        self.within(self.backend.admin(admin)).await
    }

    /// Bounds a request to the node in time and tells its errors as etcd does.
    pub(crate) async fn within<T>(&self, request: impl Future<Output = Result<T, RequestError>>) -> Result<T, Status> {
        let before = self.backend.status().leader;
        match tokio::time::timeout(self.options.request_timeout(), request).await {
            Ok(outcome) => outcome.map_err(error::of_request),
            Err(_) => Err(self.timed_out(before)),
        }
    }

    /// The error of a request whose time is up: as in etcd, a lost leader is named only where another has come.
    pub(crate) fn timed_out(&self, before: Option<hustings_core::NodeId>) -> Status {
        match (before, self.backend.status().leader) {
            (before, Some(now)) if before != Some(now) => EtcdError::TimeoutDueToLeaderFail.into(),
            _ => EtcdError::Timeout.into(),
        }
    }

    /// A stream's watch on the signals that end it.
    pub(crate) fn stream_end(&self, insists_on_leader: bool) -> StreamEnd {
        StreamEnd::new(self.serving.subscribe(), insists_on_leader)
    }

    /// Whether this member leads.
    pub(crate) fn is_leader(status: &NodeStatus) -> bool {
        status.leader == Some(status.me)
    }
}

fn note(caller: &Caller, need: Need<'_>, revision: i64) {
    if let Some(trail) = caller.trail() {
        trail.on_need(need);
        trail.on_revision(revision);
    }
}

fn note_revision(caller: &Caller, revision: i64) {
    if let Some(trail) = caller.trail() {
        trail.on_revision(revision);
    }
}

/// Runs what takes long where it holds nobody up.
pub(crate) async fn off_the_loop<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Ok(result),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(EtcdError::Stopped.into()),
    }
}

/// A proposal under way, counted for as long as it is.
struct Pending<'m>(&'m Metrics);

impl<'m> Pending<'m> {
    fn count(metrics: &'m Metrics) -> Pending<'m> {
        metrics.proposals_pending.fetch_add(1, Ordering::Relaxed);
        Pending(metrics)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.proposals_pending.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The services: one value that implements all of the API's traits over the shared context.
pub(crate) struct Services<B>(pub(crate) Arc<Context<B>>);

impl<B> Clone for Services<B> {
    fn clone(&self) -> Services<B> {
        Services(self.0.clone())
    }
}

impl<B> std::ops::Deref for Services<B> {
    type Target = Context<B>;

    fn deref(&self) -> &Context<B> {
        &self.0
    }
}
