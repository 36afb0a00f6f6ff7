//! A cluster of one member in this process, for tests of a copy: [`Fake`].
//!
//! It holds leases that end only when a test ends them, answers a page as slowly as it is told, and never tells a watch anything.

use super::side::Side;
use hustings_api::Client;
use hustings_api::client::Options;
use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::kv_server::{Kv, KvServer};
use hustings_api::etcdserverpb::lease_server::{Lease, LeaseServer};
use hustings_api::etcdserverpb::watch_server::{Watch, WatchServer};
use hustings_api::inside::Inside;
use hustings_api::mvccpb::KeyValue;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// The member; clones are the same one.
#[derive(Clone, Default)]
pub(super) struct Fake(Arc<State>);

#[derive(Default)]
struct State {
    /// Granted seconds of each lease.
    leases: Mutex<BTreeMap<i64, i64>>,
    /// Keys that a range has, all of them one after the other, and the time that each of them takes on its way.
    keys: Mutex<(i64, Duration)>,
    /// Whether it lists no lease though there are some.
    lags: AtomicBool,
    /// Watches that were asked for, and those of them that insist on a leader.
    watches: AtomicU64,
    insisting: AtomicU64,
    /// Whether no watch comes through, as behind a proxy without streams.
    refuses_watches: AtomicBool,
}

impl Fake {
    /// This cluster as a side of a copy.
    pub(super) async fn side(&self, called: &'static str) -> Side {
        let (inside, mut listener) = Inside::new();
        let router = tonic::transport::Server::builder()
            .add_service(KvServer::new(self.clone()))
            .add_service(LeaseServer::new(self.clone()))
            .add_service(WatchServer::new(self.clone()));
        let (sender, incoming) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(visitor) = listener.accept().await {
                let _ = sender.send(Ok::<_, std::io::Error>(visitor));
            }
        });
        tokio::spawn(router.serve_with_incoming(UnboundedReceiverStream::new(incoming)));
        let options = Options { inside: Some(inside), ..Options::default() };
        let client = Client::connect_with(&["127.0.0.1:1"], options).await.expect("it is in this process");
        Side::new(called, client, "--user", None).await.expect("nobody need say who asks")
    }

    /// Looks at the leases, or changes them.
    pub(super) fn leases<T>(&self, change: impl FnOnce(&mut BTreeMap<i64, i64>) -> T) -> T {
        change(&mut self.0.leases.lock().expect("nobody panics while holding it"))
    }

    /// From now on it lists no lease, as a member that is far behind.
    pub(super) fn lag(&self) {
        self.0.lags.store(true, Ordering::SeqCst);
    }

    /// From now on no watch comes through.
    pub(super) fn refuse_watches(&self) {
        self.0.refuses_watches.store(true, Ordering::SeqCst);
    }

    /// From now on a range has so many keys, each of which takes so long on its way.
    pub(super) fn hold(&self, keys: i64, each: Duration) {
        *self.0.keys.lock().expect("nobody panics while holding it") = (keys, each);
    }

    /// Number of watches that were asked for, and of those of them that insist on a leader.
    pub(super) fn watches(&self) -> (u64, u64) {
        (self.0.watches.load(Ordering::SeqCst), self.0.insisting.load(Ordering::SeqCst))
    }
}

#[tonic::async_trait]
impl Kv for Fake {
    async fn range(&self, request: Request<pb::RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
        let asked = request.into_inner();
        let (keys, each) = *self.0.keys.lock().expect("nobody panics while holding it");
        let name = |number: i64| format!("{number:08}").into_bytes();
        let from = (0..keys).find(|number| name(*number) >= asked.key.to_vec()).unwrap_or(keys);
        let count = if asked.range_end.is_empty() { 0 } else { (keys - from).min(asked.limit) };
        tokio::time::sleep(each * u32::try_from(count).unwrap_or(0)).await;
        let kvs = (from..from + count).map(|number| KeyValue { key: name(number).into(), ..KeyValue::default() });
        let more = from + count < keys;
        Ok(Response::new(pb::RangeResponse { kvs: kvs.collect(), more, count, ..Default::default() }))
    }

    async fn put(&self, _: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        Err(Status::unimplemented("no test asks for it"))
    }

    async fn delete_range(
        &self,
        _: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        Err(Status::unimplemented("no test asks for it"))
    }

    async fn txn(&self, _: Request<pb::TxnRequest>) -> Result<Response<pb::TxnResponse>, Status> {
        Err(Status::unimplemented("no test asks for it"))
    }

    async fn compact(&self, _: Request<pb::CompactionRequest>) -> Result<Response<pb::CompactionResponse>, Status> {
        Err(Status::unimplemented("no test asks for it"))
    }
}

#[tonic::async_trait]
impl Lease for Fake {
    type LeaseKeepAliveStream = UnboundedReceiverStream<Result<pb::LeaseKeepAliveResponse, Status>>;

    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        let pb::LeaseGrantRequest { id, ttl } = request.into_inner();
        self.leases(|leases| leases.insert(id, ttl));
        Ok(Response::new(pb::LeaseGrantResponse { id, ttl, ..Default::default() }))
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        self.leases(|leases| leases.remove(&request.get_ref().id));
        Ok(Response::new(pb::LeaseRevokeResponse::default()))
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let (fake, mut asked) = (self.clone(), request.into_inner());
        let (sender, answers) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(pb::LeaseKeepAliveRequest { id })) = asked.message().await {
                let ttl = fake.leases(|leases| leases.get(&id).copied().unwrap_or(0));
                let _ = sender.send(Ok(pb::LeaseKeepAliveResponse { id, ttl, ..Default::default() }));
            }
        });
        Ok(Response::new(UnboundedReceiverStream::new(answers)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        let id = request.get_ref().id;
        let ttl = self.leases(|leases| leases.get(&id).copied().unwrap_or(-1));
        Ok(Response::new(pb::LeaseTimeToLiveResponse { id, ttl, granted_ttl: ttl, ..Default::default() }))
    }

    async fn lease_leases(
        &self,
        _: Request<pb::LeaseLeasesRequest>,
    ) -> Result<Response<pb::LeaseLeasesResponse>, Status> {
        let lags = self.0.lags.load(Ordering::SeqCst);
        let leases = self.leases(|leases| leases.keys().map(|id| pb::LeaseStatus { id: *id }).collect());
        Ok(Response::new(pb::LeaseLeasesResponse {
            leases: if lags { Vec::new() } else { leases },
            ..Default::default()
        }))
    }
}

#[tonic::async_trait]
impl Watch for Fake {
    type WatchStream = UnboundedReceiverStream<Result<pb::WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.0.watches.fetch_add(1, Ordering::SeqCst);
        if self.0.refuses_watches.load(Ordering::SeqCst) {
            return Err(Status::unimplemented("no streams here"));
        }
        let insists = request.metadata().get("hasleader").is_some_and(|value| value == "true");
        self.0.insisting.fetch_add(u64::from(insists), Ordering::SeqCst);
        let (sender, answers) = mpsc::unbounded_channel();
        let mut asked = request.into_inner();
        tokio::spawn(async move {
            // It lives as long as its client does, and says nothing.
            while let Ok(Some(_)) = asked.message().await {}
            drop(sender);
        });
        Ok(Response::new(UnboundedReceiverStream::new(answers)))
    }
}
