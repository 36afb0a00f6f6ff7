//! Elections among clients: Campaign, Proclaim, Leader, Observe, Resign.
//!
//! Source: etcd 3.5, `server/etcdserver/api/v3election/election.go` and `client/v3/concurrency/election.go`. The fencing token
//! of a leadership is the creation revision of its key: it grows with every leader.
//!
//! Read next: [`crate::services::campaign`], the queue; [`crate::services::lock`].

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use hustings_api::EtcdError;
use hustings_api::client::prefix_end;
use hustings_api::etcdserverpb as pb;
use hustings_api::mvccpb;
use hustings_api::mvccpb::event::EventType;
use hustings_api::v3electionpb as ep;
use hustings_api::v3electionpb::election_server::Election;
use hustings_kv as kv;
use hustings_kv::queue::created_at;
use hustings_kv::{Command, Need};
use tonic::{Request, Response, Status};

use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::convert;
use crate::context::error;
use crate::context::serving::StreamEnd;
use crate::context::{Context, Learner, Services, insists_on_leader};
use crate::services::campaign::{Candidacy, prefix};
use crate::watch::{Answers, Watching};

#[tonic::async_trait]
impl<B: Backend> Election for Services<B> {
    async fn campaign(&self, request: Request<ep::CampaignRequest>) -> Result<Response<ep::CampaignResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        // As in etcd, a request for one answer is not ended by the loss of the leader: it waits for the next.
        let mut stream_end = self.stream_end(false);
        let ep::CampaignRequest { name, lease, value } = request.into_inner();
        stream_end
            .or(async {
                let mut candidacy = Candidacy::enter(&self.0, caller, name.clone(), lease, Some(value)).await?;
                let revision = candidacy.wait().await?;
                let (key, rev, lease) = (candidacy.key(), candidacy.revision(), candidacy.lease());
                candidacy.keep();
                let leader = Some(ep::LeaderKey { name, key, rev, lease });
                Ok(Response::new(ep::CampaignResponse { header: self.header(revision), leader }))
            })
            .await
    }

    async fn proclaim(&self, request: Request<ep::ProclaimRequest>) -> Result<Response<ep::ProclaimResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let ep::ProclaimRequest { leader, value } = request.into_inner();
        let leader = leader.ok_or_else(|| Status::from(EtcdError::ElectionMissingLeader))?;
        let revision = self.proclaim_as(&caller, &leader.key, leader.rev, value).await?;
        Ok(Response::new(ep::ProclaimResponse { header: self.header(revision) }))
    }

    async fn leader(&self, request: Request<ep::LeaderRequest>) -> Result<Response<ep::LeaderResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let prefix = prefix(&request.get_ref().name);
        let view = self.read(&caller, Need::Read(&prefix, &prefix_end(&prefix))).await?;
        let leader = self.first(&view, &prefix, 0).await?;
        let leader = leader.ok_or_else(|| Status::from(EtcdError::ElectionNoLeader))?;
        let kv = Some(convert::key_value(leader));
        Ok(Response::new(ep::LeaderResponse { header: self.header(view.revision()), kv }))
    }

    type ObserveStream = Answers<ep::LeaderResponse>;

    async fn observe(&self, request: Request<ep::LeaderRequest>) -> Result<Response<Self::ObserveStream>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let stream_end = self.stream_end(insists_on_leader(request.metadata()));
        Ok(Response::new(observe(self.0.clone(), caller, &request.get_ref().name, stream_end)))
    }

    async fn resign(&self, request: Request<ep::ResignRequest>) -> Result<Response<ep::ResignResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let leader = request.into_inner().leader.ok_or_else(|| Status::from(EtcdError::ElectionMissingLeader))?;
        let delete = kv::DeleteRange { key: leader.key.clone(), ..kv::DeleteRange::default() };
        let txn = kv::Txn {
            compare: vec![created_at(&leader.key, leader.rev)],
            success: vec![kv::Request::DeleteRange(delete).into()],
            failure: Vec::new(),
        };
        // A leadership that is lost already is given up, too.
        let kv::Response::Txn(txn) = self.propose(&caller, Command::Txn(txn)).await? else {
            return Err(error::mismatch());
        };
        Ok(Response::new(ep::ResignResponse { header: self.header(txn.revision) }))
    }
}

impl<B: Backend> Context<B> {
    /// Replaces the value of a candidate's key, if it still stands.
    ///
    /// The key keeps the lease that it has: a leadership outlives its session by no word of the client's. Without a creation
    /// revision the guard would read "does not exist", and make a leader of any caller.
    async fn proclaim_as(&self, caller: &Caller, key: &Bytes, revision: i64, value: Bytes) -> Result<i64, Status> {
        if revision <= 0 {
            return Err(EtcdError::ElectionNotLeader.into());
        }
        let put = kv::Put { key: key.clone(), value, ignore_lease: true, ..kv::Put::default() };
        let txn = kv::Txn {
            compare: vec![created_at(key, revision)],
            success: vec![kv::Request::Put(put).into()],
            failure: Vec::new(),
        };
        let kv::Response::Txn(txn) = self.propose_growth(caller, Command::Txn(txn)).await? else {
            return Err(error::mismatch());
        };
        if txn.succeeded { Ok(txn.revision) } else { Err(EtcdError::ElectionNotLeader.into()) }
    }
}

/// Each leader, and each value that it proclaims, in order; also those whose reign is over when they are told.
pub(crate) fn observe<B: Backend>(
    context: Arc<Context<B>>,
    caller: Caller,
    name: &[u8],
    stream_end: StreamEnd,
) -> Answers<ep::LeaderResponse> {
    let watching = Watching::new(context.clone(), caller.clone(), context.stream_end(false));
    let observing = Observing {
        context,
        caller,
        stream_end,
        prefix: prefix(name),
        leader: None,
        revision: 0,
        watching,
        events: VecDeque::new(),
    };
    Box::pin(stream::unfold(Some(observing), |state| async move {
        let mut observing = state?;
        match observing.next().await {
            Ok(response) => Some((Ok(response), Some(observing))),
            Err(status) => Some((Err(status), None)),
        }
    }))
}

struct Observing<B: Backend> {
    context: Arc<Context<B>>,
    caller: Caller,
    stream_end: StreamEnd,
    prefix: Bytes,
    /// The key whose values are told.
    leader: Option<Bytes>,
    /// Revision up to which history was told; 0: nothing yet.
    revision: i64,
    /// All candidates, from there on.
    watching: Watching<B>,
    events: VecDeque<mvccpb::Event>,
}

impl<B: Backend> Observing<B> {
    async fn next(&mut self) -> Result<ep::LeaderResponse, Status> {
        if self.revision == 0
            && let Some(response) = self.begin().await?
        {
            return Ok(response);
        }
        loop {
            while let Some(event) = self.events.pop_front() {
                if let Some(response) = self.on_event(event).await? {
                    return Ok(response);
                }
            }
            let mut no_requests = stream::pending();
            let response = tokio::select! {
                response = self.watching.next(&mut no_requests) => response?,
                status = self.stream_end.end() => return Err(status),
            };
            self.events.extend(response.events);
            if response.canceled {
                // History was forgotten before it was told: begin again at the present.
                if let Some(response) = self.begin().await? {
                    return Ok(response);
                }
            }
        }
    }

    /// Reads who leads now, and watches all candidates from there on.
    async fn begin(&mut self) -> Result<Option<ep::LeaderResponse>, Status> {
        let end = prefix_end(&self.prefix);
        let view = self.context.read(&self.caller, Need::Read(&self.prefix, &end)).await?;
        self.revision = view.revision();
        self.events.clear();
        self.watching = Watching::new(self.context.clone(), self.caller.clone(), self.context.stream_end(false));
        self.watching.create(pb::WatchCreateRequest {
            key: self.prefix.clone(),
            range_end: prefix_end(&self.prefix),
            start_revision: self.revision + 1,
            ..pb::WatchCreateRequest::default()
        });
        let leader = self.context.first(&view, &self.prefix, 0).await?;
        self.leader = None;
        Ok(leader.map(|leader| self.tell(self.revision, convert::key_value(leader))))
    }

    fn tell(&mut self, revision: i64, kv: mvccpb::KeyValue) -> ep::LeaderResponse {
        self.leader = Some(kv.key.clone());
        ep::LeaderResponse { header: self.context.header(revision), kv: Some(kv) }
    }

    async fn on_event(&mut self, event: mvccpb::Event) -> Result<Option<ep::LeaderResponse>, Status> {
        let Some(kv) = event.kv else { return Ok(None) };
        self.revision = kv.mod_revision;
        let concerns_leader = self.leader.as_ref().is_none_or(|leader| *leader == kv.key);
        match event.r#type == EventType::Put as i32 {
            // The leader proclaims; or the first enters an empty queue.
            true if concerns_leader => Ok(Some(self.tell(kv.mod_revision, kv))),
            false if concerns_leader => self.succeed(kv.mod_revision).await,
            _ => Ok(None),
        }
    }

    /// The leader has left: the next in the queue of that moment leads, even if it has left since.
    async fn succeed(&mut self, revision: i64) -> Result<Option<ep::LeaderResponse>, Status> {
        self.leader = None;
        let end = prefix_end(&self.prefix);
        let view = self.context.read_local(&self.caller, Need::Read(&self.prefix, &end)).await?;
        if revision < view.compact_revision() {
            // The successor is not known any more. Nobody else may be named in the leader's place: begin again at the
            // present, and drop what was read.
            drop(view);
            return self.begin().await;
        }
        let leader = self.context.first(&view, &self.prefix, revision).await?;
        Ok(leader.map(|leader| self.tell(revision, convert::key_value(leader))))
    }
}
