//! A store that speaks etcd's calls and lives in this process: [`FakeEtcd`]. One or more members share its keys.
//!
//! It does what elections ask of a real one: transactions, leases, watches. And what a real one does on a bad day, when it is told to: a
//! member that takes calls and carries them out later, also when the caller has given up; one that has lost its peers, and whose watches are
//! silent; leases that are granted for longer or shorter than they were asked for. Leases end only when they are told to.

mod keys;

use crate::free_listener;
use anyhow::Result;
use bytes::Bytes;
use hustings_api::etcdserverpb::kv_server::{Kv, KvServer};
use hustings_api::etcdserverpb::lease_server::{Lease, LeaseServer};
use hustings_api::etcdserverpb::request_op::Request as Op;
use hustings_api::etcdserverpb::watch_request::RequestUnion;
use hustings_api::etcdserverpb::watch_server::{Watch, WatchServer};
use hustings_api::etcdserverpb::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, LeaseGrantRequest,
    LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseLeasesRequest, LeaseLeasesResponse,
    LeaseRevokeRequest, LeaseRevokeResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, PutRequest, PutResponse,
    RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest, WatchResponse,
};
use keys::{Keys, is_within};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::{Request, Response, Status, Streaming};

/// A call that a member can be told to take and not to carry out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Call {
    /// A lease is asked for.
    Grant,
    /// A lease is renewed.
    KeepAlive,
    /// A transaction that writes on a condition, and puts a key on a lease: a candidate contends.
    Contend,
    /// A transaction without a condition: a candidate looks.
    Look,
    /// A transaction of any other form.
    Other,
}

/// The answer to a lease that is asked for: the longest and the shortest time to live, in seconds.
type Granted = (i64, i64);

/// A store of one or more members.
pub struct FakeEtcd {
    shared: Arc<Shared>,
    members: Vec<Member>,
    endpoints: Vec<String>,
    serving: Vec<JoinHandle<()>>,
}

struct Shared {
    keys: Mutex<Keys>,
    /// The revision of now.
    changed: watch::Sender<i64>,
    granted: Mutex<Granted>,
}

/// One member, as its services have it.
#[derive(Clone)]
struct Member {
    shared: Arc<Shared>,
    /// Calls that are taken and not carried out.
    held: watch::Sender<BTreeSet<Call>>,
    /// Number of calls of each kind that have come, and of those that were carried out.
    come: watch::Sender<BTreeMap<Call, (u64, u64)>>,
    has_leader: watch::Sender<bool>,
    refuses_watches: Arc<AtomicBool>,
}

impl FakeEtcd {
    /// A store of so many members, each at a port of 127.0.0.1.
    ///
    /// # Errors
    /// No port is free.
    pub fn start(members: usize) -> Result<FakeEtcd> {
        let granted = Mutex::new((i64::MAX, 0));
        let shared = Arc::new(Shared { keys: Mutex::default(), changed: watch::Sender::new(0), granted });
        let (mut all, mut endpoints, mut serving) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..members {
            let listener = free_listener()?;
            listener.set_nonblocking(true)?;
            endpoints.push(listener.local_addr()?.to_string());
            let incoming = TcpListenerStream::new(tokio::net::TcpListener::from_std(listener)?);
            let member = Member {
                shared: shared.clone(),
                held: watch::Sender::default(),
                come: watch::Sender::default(),
                has_leader: watch::Sender::new(true),
                refuses_watches: Arc::default(),
            };
            let router = tonic::transport::Server::builder()
                .add_service(KvServer::new(member.clone()))
                .add_service(LeaseServer::new(member.clone()))
                .add_service(WatchServer::new(member.clone()));
            serving.push(tokio::spawn(async move {
                let _ = router.serve_with_incoming(incoming).await;
            }));
            all.push(member);
        }
        Ok(FakeEtcd { shared, members: all, endpoints, serving })
    }

    /// URL of a member.
    pub fn endpoint(&self, member: usize) -> String {
        format!("http://{}", self.endpoints[member])
    }

    /// Name of an election in this store, at these members.
    pub fn url(&self, members: &[usize], election: &str) -> String {
        let hosts: Vec<&str> = members.iter().map(|member| self.endpoints[*member].as_str()).collect();
        format!("hustings://{}/{election}", hosts.join(","))
    }

    /// From now on a member takes these calls and does not carry them out.
    pub fn hold(&self, member: usize, calls: &[Call]) {
        self.members[member].held.send_modify(|held| held.extend(calls));
    }

    /// A member carries out whatever comes; returns once it has carried out all that it held.
    pub async fn let_go(&self, member: usize) {
        self.members[member].held.send_modify(BTreeSet::clear);
        let mut come = self.members[member].come.subscribe();
        // The member lives as long as this store.
        let _ = come.wait_for(|come| come.values().all(|(come, done)| come == done)).await;
    }

    /// Number of calls of this kind that have come to a member.
    pub fn come(&self, member: usize, call: Call) -> u64 {
        self.members[member].come.borrow().get(&call).map_or(0, |(come, _)| *come)
    }

    /// Waits until more calls of this kind have come to a member than so many.
    pub async fn more_than(&self, member: usize, call: Call, count: u64) {
        let mut come = self.members[member].come.subscribe();
        // The member lives as long as this store.
        let _ = come.wait_for(|come| come.get(&call).is_some_and(|(come, _)| *come > count)).await;
    }

    /// Number of calls of this kind that a member has carried out.
    pub fn done(&self, member: usize, call: Call) -> u64 {
        self.members[member].come.borrow().get(&call).map_or(0, |(_, done)| *done)
    }

    /// Waits until a member has carried out more calls of this kind than so many.
    pub async fn done_more_than(&self, member: usize, call: Call, count: u64) {
        let mut come = self.members[member].come.subscribe();
        // The member lives as long as this store.
        let _ = come.wait_for(|come| come.get(&call).is_some_and(|(_, done)| *done > count)).await;
    }

    /// A member has lost its peers, and not its clients: its watches tell nothing, and end for those that insist on a leader.
    pub fn lose_leader(&self, member: usize) {
        self.members[member].has_leader.send_replace(false);
    }

    /// From now on a member refuses each new watch, and names none in its answer.
    pub fn refuse_watches(&self, member: usize) {
        self.members[member].refuses_watches.store(true, Ordering::SeqCst);
    }

    /// Waits until a member has no stream of watches.
    pub async fn until_unwatched(&self, member: usize) {
        // Each stream looks whether there is a leader.
        self.members[member].has_leader.closed().await;
    }

    /// From now on leases are granted for at least and at most so many seconds.
    pub fn grant(&self, least: i64, most: i64) {
        *self.shared.granted.lock().unwrap_or_else(PoisonError::into_inner) = (most, least);
    }

    /// Ends all leases at once; the latest first, so that nobody has its turn by the end of another one.
    pub fn end_leases(&self) {
        self.shared.with(|keys| keys.leases().into_iter().rev().for_each(|lease| keys.revoke(lease)));
    }

    /// Writes a key as somebody else would.
    pub fn put(&self, key: &str, value: &str) {
        let put = PutRequest { key: key.to_owned().into(), value: value.to_owned().into(), ..PutRequest::default() };
        let success = vec![RequestOp { request: Some(Op::RequestPut(put)) }];
        let txn = TxnRequest { success, ..TxnRequest::default() };
        // It names no lease, so that nothing is refused.
        let _ = self.shared.with(|keys| keys.txn(txn));
    }

    /// The keys that begin so, and at which revision each was created.
    pub fn keys(&self, prefix: &str) -> Vec<(String, i64)> {
        let end = hustings_api::client::prefix_end(prefix.as_bytes());
        let asked = RangeRequest { key: prefix.to_owned().into(), range_end: end, ..RangeRequest::default() };
        let found = self.shared.keys().range(&asked).kvs;
        found.into_iter().map(|kv| (String::from_utf8_lossy(&kv.key).into_owned(), kv.create_revision)).collect()
    }
}

impl Drop for FakeEtcd {
    fn drop(&mut self) {
        self.serving.iter().for_each(JoinHandle::abort);
    }
}

impl Shared {
    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to the keys, and tells the watches.
    fn with<T>(&self, change: impl FnOnce(&mut Keys) -> T) -> T {
        let mut keys = self.keys();
        let done = change(&mut keys);
        self.changed.send_replace(keys.revision);
        done
    }
}

impl Member {
    /// Carries a call out once it is not held any more, also when its caller has given up.
    async fn take<T: Send + 'static>(
        &self,
        call: Call,
        change: impl FnOnce(&mut Keys) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let member = self.clone();
        let mut held = self.held.subscribe();
        self.come.send_modify(|come| come.entry(call).or_default().0 += 1);
        let done = tokio::spawn(async move {
            // The member lives as long as this task.
            let _ = held.wait_for(|held| !held.contains(&call)).await;
            let done = member.shared.with(change);
            member.come.send_modify(|come| come.entry(call).or_default().1 += 1);
            done
        });
        done.await.map_err(|error| Status::internal(error.to_string()))
    }
}

fn kind_of(txn: &TxnRequest) -> Call {
    let is_leased = |operation: &RequestOp| matches!(&operation.request, Some(Op::RequestPut(put)) if put.lease != 0);
    match txn.compare.is_empty() {
        true => Call::Look,
        false if txn.success.iter().any(is_leased) => Call::Contend,
        false => Call::Other,
    }
}

#[tonic::async_trait]
impl Kv for Member {
    async fn range(&self, request: Request<RangeRequest>) -> Result<Response<RangeResponse>, Status> {
        Ok(Response::new(self.shared.keys().range(request.get_ref())))
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let success = vec![RequestOp { request: Some(Op::RequestPut(request.into_inner())) }];
        self.shared.with(|keys| keys.txn(TxnRequest { success, ..TxnRequest::default() }))?;
        Ok(Response::new(PutResponse::default()))
    }

    async fn delete_range(&self, _: Request<DeleteRangeRequest>) -> Result<Response<DeleteRangeResponse>, Status> {
        Err(Status::unimplemented("no election asks for it"))
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        let txn = request.into_inner();
        self.take(kind_of(&txn), |keys| keys.txn(txn)).await?.map(Response::new)
    }

    async fn compact(&self, _: Request<CompactionRequest>) -> Result<Response<CompactionResponse>, Status> {
        Err(Status::unimplemented("no election asks for it"))
    }
}

#[tonic::async_trait]
impl Lease for Member {
    type LeaseKeepAliveStream = UnboundedReceiverStream<Result<LeaseKeepAliveResponse, Status>>;

    async fn lease_grant(&self, request: Request<LeaseGrantRequest>) -> Result<Response<LeaseGrantResponse>, Status> {
        let id = self.take(Call::Grant, Keys::grant).await?;
        let (most, least) = *self.shared.granted.lock().unwrap_or_else(PoisonError::into_inner);
        let ttl = request.get_ref().ttl.max(least).min(most);
        Ok(Response::new(LeaseGrantResponse { id, ttl, ..LeaseGrantResponse::default() }))
    }

    async fn lease_revoke(
        &self,
        request: Request<LeaseRevokeRequest>,
    ) -> Result<Response<LeaseRevokeResponse>, Status> {
        self.shared.with(|keys| keys.revoke(request.get_ref().id));
        Ok(Response::new(LeaseRevokeResponse::default()))
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let (member, mut asked) = (self.clone(), request.into_inner());
        let (sender, answers) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(LeaseKeepAliveRequest { id })) = asked.message().await {
                let Ok(is_alive) = member.take(Call::KeepAlive, move |keys| keys.is_alive(id)).await else { return };
                let ttl = if is_alive { 1 } else { 0 };
                let answer = LeaseKeepAliveResponse { id, ttl, ..LeaseKeepAliveResponse::default() };
                if sender.send(Ok(answer)).is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(UnboundedReceiverStream::new(answers)))
    }

    async fn lease_time_to_live(
        &self,
        _: Request<LeaseTimeToLiveRequest>,
    ) -> Result<Response<LeaseTimeToLiveResponse>, Status> {
        Err(Status::unimplemented("no election asks for it"))
    }

    async fn lease_leases(&self, _: Request<LeaseLeasesRequest>) -> Result<Response<LeaseLeasesResponse>, Status> {
        Err(Status::unimplemented("no election asks for it"))
    }
}

/// The watches of one stream.
struct Watched {
    member: Member,
    /// The range of each, and the next revision that it is told of.
    watches: BTreeMap<i64, (Bytes, Bytes, i64)>,
    sender: mpsc::UnboundedSender<Result<WatchResponse, Status>>,
}

impl Watched {
    fn ask(&mut self, request: WatchRequest) {
        let answer = match request.request_union {
            Some(RequestUnion::CreateRequest(_)) if self.member.refuses_watches.load(Ordering::SeqCst) => {
                WatchResponse { watch_id: -1, created: true, canceled: true, ..WatchResponse::default() }
            }
            Some(RequestUnion::CreateRequest(WatchCreateRequest {
                key, range_end, start_revision, watch_id, ..
            })) => {
                self.watches.insert(watch_id, (key, range_end, start_revision));
                WatchResponse { watch_id, created: true, ..WatchResponse::default() }
            }
            Some(RequestUnion::CancelRequest(cancel)) => {
                self.watches.remove(&cancel.watch_id);
                WatchResponse { watch_id: cancel.watch_id, canceled: true, ..WatchResponse::default() }
            }
            _ => return,
        };
        // A client that has gone needs no answer.
        let _ = self.sender.send(Ok(answer));
    }

    fn tell(&mut self) {
        let keys = self.member.shared.keys();
        for (watch_id, (from, end, next)) in &mut self.watches {
            let is_news = |(revision, event): &&(i64, hustings_api::mvccpb::Event)| {
                revision >= next && event.kv.as_ref().is_some_and(|kv| is_within(&kv.key, from, end))
            };
            let events: Vec<_> = keys.events.iter().filter(is_news).map(|(_, event)| event.clone()).collect();
            *next = (*next).max(keys.revision + 1);
            if !events.is_empty() {
                let told = WatchResponse { header: keys.header(), watch_id: *watch_id, events, ..Default::default() };
                let _ = self.sender.send(Ok(told));
            }
        }
    }
}

#[tonic::async_trait]
impl Watch for Member {
    type WatchStream = UnboundedReceiverStream<Result<WatchResponse, Status>>;

    async fn watch(&self, request: Request<Streaming<WatchRequest>>) -> Result<Response<Self::WatchStream>, Status> {
        let insists = request.metadata().get("hasleader").is_some_and(|value| value == "true");
        let mut asked = request.into_inner();
        let (sender, answers) = mpsc::unbounded_channel();
        let (mut changed, mut has_leader) = (self.shared.changed.subscribe(), self.has_leader.subscribe());
        let mut watched = Watched { member: self.clone(), watches: BTreeMap::new(), sender: sender.clone() };
        tokio::spawn(async move {
            let mut asks = true;
            loop {
                if *has_leader.borrow() {
                    watched.tell();
                } else if insists {
                    let _ = watched.sender.send(Err(Status::unavailable("etcdserver: no leader")));
                    return;
                }
                tokio::select! {
                    request = asked.message(), if asks => match request {
                        Ok(Some(request)) => watched.ask(request),
                        // A client that asks for no more is still told, as etcd does.
                        Ok(None) => asks = false,
                        Err(_) => return,
                    },
                    () = sender.closed() => return,
                    _ = changed.changed() => {}
                    _ = has_leader.changed() => {}
                }
            }
        });
        Ok(Response::new(UnboundedReceiverStream::new(answers)))
    }
}
