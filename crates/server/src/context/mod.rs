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
use std::time::Instant;

use hustings_api::EtcdError;
use hustings_api::etcdserverpb::ResponseHeader;
use hustings_core::{Admin, Membership, MembershipChange};
use hustings_kv::Need;
use hustings_node::{Happening, NodeStatus, RequestError};
use tokio::sync::{Semaphore, broadcast, watch};
use tonic::Status;

use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::following::{Hub, Inbox};
use crate::context::listed::Listed;
use crate::context::memory::Memory;
use crate::context::metrics::Metrics;
use crate::context::options::ServerOptions;
use crate::context::password::Passwords;
use crate::context::quota::Quota;
pub(crate) use crate::context::readiness::{Learner, insists_on_leader};
use crate::context::recent::Recent;
use crate::context::renewals::{Renewals, Waiting};
use crate::context::room::Room;
use crate::context::serving::{Serving, StreamEnd};
use crate::context::slow::SlowCalls;
use crate::context::story::Story;
use crate::context::token::Tokens;

pub mod options;

pub mod backend;

mod proposals;

mod reads;

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

mod room;

pub(crate) mod listed;

pub(crate) mod slow;

pub mod metrics;

/// Places in queues that may be on their way, to a queue or out of it, at a time: without a leader they wait.
pub(crate) const LINGERING_MAX: u32 = 4_096;

/// Large answers that are built at a time.
const LARGE_MAX: usize = 2;

/// Values on file that are read at a time, each by a thread: more wait for a disk that does not answer, and are refused.
const DISK_READS_MAX: usize = 32;

/// Snapshots that are streamed at a time.
const SNAPSHOTS_MAX: usize = 4;

/// Pages of the dashboard that are open at a time; each asks all members once a second.
const VIEWERS_MAX: usize = 64;

/// Bytes of pages and metrics that were asked for and that nobody takes.
const PAGES_BYTES_MAX: u64 = 32 << 20;

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
    /// What pages, metrics and health may hold that nobody takes: apart from clients, for operators ask when nothing is left for those.
    pub(crate) pages: Arc<Memory>,
    /// Pages of the dashboard that may be open.
    pub(crate) viewers: Arc<Semaphore>,
    /// The latest changes of role, term or leader at this member.
    pub(crate) story: Story,
    /// Free bytes on the disk.
    pub(crate) room: Room,
    /// What pages are told of elections.
    pub(crate) listed: tokio::sync::Mutex<Option<Listed>>,
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
            lingering: Arc::new(Semaphore::new(LINGERING_MAX as usize)),
            costly: Semaphore::new(1),
            large: Arc::new(Semaphore::new(LARGE_MAX)),
            disk_reads: Arc::new(Semaphore::new(DISK_READS_MAX)),
            snapshots: Arc::new(Semaphore::new(SNAPSHOTS_MAX)),
            memory,
            pages: Memory::new(PAGES_BYTES_MAX),
            viewers: Arc::new(Semaphore::new(VIEWERS_MAX)),
            story,
            room: Room::default(),
            listed: tokio::sync::Mutex::new(None),
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

/// Runs what takes long where it holds nobody up.
pub(crate) async fn off_the_loop<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Ok(result),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(EtcdError::Stopped.into()),
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
