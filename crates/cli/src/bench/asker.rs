//! One client: [`Asker`] sends one request at a time, and says which operation it was.

use super::choice::{Operation, PREFIX, Values, dice};
use super::recorder::Standing;
use super::settings::StoreWork;
use super::watch::Audience;
use crate::credentials::asked;
use bytes::Bytes;
use hustings_api::client::prefix_end;
use hustings_api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use hustings_api::etcdserverpb::kv_client::KvClient;
use hustings_api::etcdserverpb::lease_client::LeaseClient;
use hustings_api::etcdserverpb::request_op::Request;
use hustings_api::etcdserverpb::{
    Compare, DeleteRangeRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseKeepAliveResponse, PutRequest,
    RangeRequest, RequestOp, TxnRequest,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// The work that all clients of the store share.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) work: StoreWork,
    pub(super) values: Values,
    pub(super) seed: u64,
}

/// One client, of one kind.
pub(super) enum Asker {
    Store {
        kv: KvClient<Channel>,
        store: Arc<Store>,
    },
    /// Puts whose values say when they were due and sent.
    Teller {
        kv: KvClient<Channel>,
        audience: Arc<Audience>,
    },
    Grant {
        lease: LeaseClient<Channel>,
        ttl_seconds: i64,
    },
    KeepAlive(Box<KeepAlive>),
}

/// A stream of keep-alives: a request and its answer, and the next.
type Heart = (mpsc::Sender<LeaseKeepAliveRequest>, Streaming<LeaseKeepAliveResponse>);

/// A client that keeps one lease alive.
pub(super) struct KeepAlive {
    lease: LeaseClient<Channel>,
    id: i64,
    /// Absent before the first request, and after one without an answer: what comes late belongs to no request any more.
    heart: Option<Heart>,
}

impl KeepAlive {
    pub(super) fn new(lease: LeaseClient<Channel>, id: i64) -> KeepAlive {
        KeepAlive { lease, id, heart: None }
    }

    async fn beat(&mut self) -> Result<(), Status> {
        let request = LeaseKeepAliveRequest { id: self.id };
        let mut heart = match self.heart.take() {
            Some((requests, answers)) => {
                requests.send(request).await.map_err(|_| Status::unavailable("the keep-alive stream has ended"))?;
                (requests, answers)
            }
            None => {
                let (requests, queue) = mpsc::channel(1);
                // Sent before the stream is opened: a server may answer its opening with the first answer.
                requests.send(request).await.map_err(|_| Status::internal("the queue is held here"))?;
                let answers = self.lease.lease_keep_alive(asked(ReceiverStream::new(queue))).await?.into_inner();
                (requests, answers)
            }
        };
        let answer = heart.1.message().await?;
        let answer = answer.ok_or_else(|| Status::unavailable("the keep-alive stream has ended"))?;
        if answer.ttl <= 0 {
            return Err(Status::not_found("the lease has expired: --ttl is shorter than this client's pause"));
        }
        self.heart = Some(heart);
        Ok(())
    }
}

/// Says by its number which operation a request asks for, before there is an answer.
#[derive(Clone)]
pub(super) enum Naming {
    /// By the dice of each request.
    Mixed(Arc<Store>),
    Always(&'static str),
}

impl Naming {
    pub(super) fn of(&self, number: u64) -> &'static str {
        match self {
            Naming::Mixed(store) => store.work.mix.pick(&mut dice(store.seed, number)).name(),
            Naming::Always(name) => name,
        }
    }
}

impl Asker {
    pub(super) fn naming(&self) -> Naming {
        match self {
            Asker::Store { store, .. } => Naming::Mixed(store.clone()),
            Asker::Teller { .. } => Naming::Always("put"),
            Asker::Grant { .. } => Naming::Always("grant"),
            Asker::KeepAlive(_) => Naming::Always("keep-alive"),
        }
    }

    /// Whether its answers are the result.
    pub(super) fn standing(&self) -> Standing {
        if matches!(self, Asker::Teller { .. }) { Standing::Beside } else { Standing::Measured }
    }

    /// Sends the request of this number and waits for its answer; gives the operation.
    ///
    /// # Errors
    /// The server's error.
    pub(super) async fn ask(&mut self, number: u64, due: Duration, sent: Duration) -> Result<&'static str, Status> {
        match self {
            Asker::Store { kv, store } => store.ask(kv, number).await,
            Asker::Teller { kv, audience } => audience.tell(kv, number, due, sent).await,
            Asker::Grant { lease, ttl_seconds } => {
                let request = LeaseGrantRequest { ttl: *ttl_seconds, ..LeaseGrantRequest::default() };
                lease.lease_grant(asked(request)).await.map(|_| "grant")
            }
            Asker::KeepAlive(client) => client.beat().await.map(|()| "keep-alive"),
        }
    }
}

impl Store {
    async fn ask(&self, kv: &mut KvClient<Channel>, number: u64) -> Result<&'static str, Status> {
        let mut dice = dice(self.seed, number);
        let operation = self.work.mix.pick(&mut dice);
        let keys = &self.work.keys;
        let number = keys.pick(number, &mut dice);
        let key = keys.named(number);
        let serializable = self.work.is_serializable;
        let mut put = |key: Bytes| PutRequest { key, value: self.values.pick(&mut dice), ..PutRequest::default() };
        let is_found = match operation {
            Operation::Put => kv.put(asked(put(key))).await.map(|_| true)?,
            Operation::Get => {
                let request = RangeRequest { key, serializable, ..RangeRequest::default() };
                kv.range(asked(request)).await?.into_inner().count > 0
            }
            Operation::Range => {
                let limit = i64::try_from(self.work.range_keys).unwrap_or(i64::MAX);
                let range_end = prefix_end(PREFIX.as_bytes());
                let request = RangeRequest { key, range_end, limit, serializable, ..RangeRequest::default() };
                kv.range(asked(request)).await?.into_inner().count > 0
            }
            Operation::Delete => {
                let request = DeleteRangeRequest { key, ..DeleteRangeRequest::default() };
                kv.delete_range(asked(request)).await?.into_inner().deleted > 0
            }
            Operation::Txn => {
                let compare = vec![Compare {
                    result: CompareResult::Greater as i32,
                    target: CompareTarget::Version as i32,
                    key,
                    target_union: Some(TargetUnion::Version(0)),
                    ..Compare::default()
                }];
                let puts = (0..self.work.txn_operations).map(|further| put(keys.named(number + further)));
                let success = puts.map(|put| RequestOp { request: Some(Request::RequestPut(put)) }).collect();
                let request = TxnRequest { compare, success, ..TxnRequest::default() };
                kv.txn(asked(request)).await?.into_inner().succeeded
            }
        };
        Ok(if is_found { operation.name() } else { operation.name_in_vain() })
    }
}
