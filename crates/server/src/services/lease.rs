//! Leases: Grant, Revoke, KeepAlive, TimeToLive, Leases.
//!
//! Source: etcd 3.5, `server/etcdserver/api/v3rpc/lease.go` and `server/lease/lessor.go`. Deadlines are readings of the log's
//! clock, so what is left of a lease is asked through the log, too: an entry brings the clock up to now.
//!
//! Read next: [`crate::context::renewals`].

use std::sync::Arc;

use futures::{Stream, StreamExt, stream};
use hustings_api::EtcdError;
use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::lease_server::Lease;
use hustings_kv::{Command, LeaseGrant, LeaseKeepAlive, LeaseKeys, LeaseRevoke, Need, Response as Applied};
use tonic::{Request, Response, Status};

use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::error;
use crate::context::memory::{Weight, weighed};
use crate::context::renewals::Renewed;
use crate::context::serving::StreamEnd;
use crate::context::{Context, Learner, Services, insists_on_leader};
use crate::watch::Answers;

/// Bytes that a key of a lease takes in an answer beside its own, in memory and encoded.
const KEY_BYTES: usize = 64;
/// Bytes that a lease's id takes in an answer, in memory and encoded.
const LEASE_BYTES: usize = 32;

/// Most draws of another id when one is taken: it never is, among 2^63.
const DRAWS_MAX: usize = 8;

#[tonic::async_trait]
impl<B: Backend> Lease for Services<B> {
    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let pb::LeaseGrantRequest { ttl, id } = request.into_inner();
        let (revision, id, ttl) = self.grant(&caller, id, ttl).await?;
        Ok(Response::new(pb::LeaseGrantResponse { header: self.header(revision), id, ttl, error: String::new() }))
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let id = request.into_inner().id;
        let revoked = self.propose(&caller, Command::LeaseRevoke(LeaseRevoke { id })).await?;
        let Applied::LeaseRevoke { mut revision } = revoked else { return Err(error::mismatch()) };
        // A lease with very many keys loses them in steps; a caller that is told that it is revoked finds none.
        loop {
            let view = self.read_local(&Caller::member(), Need::Nothing).await?;
            if !view.is_lease_ending(id) {
                break;
            }
            drop(view);
            revision = self.push_on().await?;
        }
        Ok(Response::new(pb::LeaseRevokeResponse { header: self.header(revision) }))
    }

    type LeaseKeepAliveStream = Answers<pb::LeaseKeepAliveResponse>;

    async fn lease_keep_alive(
        &self,
        request: Request<tonic::Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let stream_end = self.stream_end(insists_on_leader(request.metadata()));
        Ok(Response::new(keep_alive(self.0.clone(), caller, request.into_inner(), stream_end)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let pb::LeaseTimeToLiveRequest { id, keys } = request.into_inner();
        // An entry brings the log's clock up to now; one that renews nothing does nothing else.
        let need = if keys { Need::ReadLease(id) } else { Need::User };
        self.require(&caller, need).await?;
        self.propose(&caller, Command::LeaseKeepAlive(LeaseKeepAlive { ids: Vec::new() })).await?;
        let view = self.read_local(&caller, need).await?;
        let header = self.header(view.revision());
        let memory = self.memory.clone();
        let (found, weight) = match keys {
            true => {
                let list = move || {
                    let found = view.lease_time_to_live(id, LeaseKeys::List);
                    let listed = found.iter().flat_map(|lease| &lease.keys);
                    let bytes = listed.map(|key| key.len() + KEY_BYTES).sum();
                    let weight = Weight::if_large(&memory, bytes)?;
                    Ok::<_, Status>((found, weight))
                };
                self.build(list).await??
            }
            false => (view.lease_time_to_live(id, LeaseKeys::Omit), None),
        };
        let response = match found {
            Some(lease) => pb::LeaseTimeToLiveResponse {
                header,
                id,
                ttl: i64::try_from(lease.remaining.as_secs()).unwrap_or(i64::MAX),
                granted_ttl: lease.granted_ttl,
                keys: lease.keys,
            },
            None => pb::LeaseTimeToLiveResponse { header, id, ttl: -1, ..pb::LeaseTimeToLiveResponse::default() },
        };
        Ok(weighed(response, weight))
    }

    async fn lease_leases(
        &self,
        request: Request<pb::LeaseLeasesRequest>,
    ) -> Result<Response<pb::LeaseLeasesResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let view = self.read(&caller, Need::User).await?;
        let header = self.header(view.revision());
        let (proof, memory) = (caller.proof().cloned(), self.memory.clone());
        // As etcd from CVE-2026-33413 on: a caller that may see a lease may see its keys.
        let list = move || {
            let leases = view.leases();
            let may_see_all = view.permit(proof.as_ref(), Need::Root).is_ok();
            let may_see = |id: i64| view.permit(proof.as_ref(), Need::ReadLease(id));
            if !may_see_all {
                leases.iter().try_for_each(|id| may_see(*id)).map_err(error::of_accounts)?;
            }
            let weight = Weight::if_large(&memory, leases.len() * LEASE_BYTES)?;
            Ok::<_, Status>((leases.into_iter().map(|id| pb::LeaseStatus { id }).collect(), weight))
        };
        let (leases, weight): (Vec<pb::LeaseStatus>, _) = self.build(list).await??;
        Ok(weighed(pb::LeaseLeasesResponse { header, leases }, weight))
    }
}

/// The answers to a stream of keep-alives, one for each, in order; ends with the requests.
pub(crate) fn keep_alive<B: Backend>(
    context: Arc<Context<B>>,
    caller: Caller,
    requests: impl Stream<Item = Result<pb::LeaseKeepAliveRequest, Status>> + Send + Unpin + 'static,
    stream_end: StreamEnd,
) -> Answers<pb::LeaseKeepAliveResponse> {
    Box::pin(stream::unfold(Some((context, caller, requests, stream_end)), |state| async move {
        let (context, caller, mut requests, mut stream_end) = state?;
        let next = async {
            match requests.next().await {
                None => Ok(None),
                Some(request) => context.keep_alive(&caller, request?.id).await.map(Some),
            }
        };
        match stream_end.or(next).await {
            Ok(None) => None,
            Ok(Some(response)) => Some((Ok(response), Some((context, caller, requests, stream_end)))),
            Err(status) => {
                if let Some(trail) = caller.trail().filter(|_| context.users_count()) {
                    trail.tell("/etcdserverpb.Lease/LeaseKeepAlive renew", status.code() as i32);
                }
                Some((Err(status), None))
            }
        }
    }))
}

impl<B: Backend> Context<B> {
    /// Renews a lease; one that does not exist is answered with no time to live.
    pub(crate) async fn keep_alive(&self, caller: &Caller, id: i64) -> Result<pb::LeaseKeepAliveResponse, Status> {
        let renewed = self.renew(caller, id).await?;
        let header = self.header(renewed.revision);
        Ok(pb::LeaseKeepAliveResponse { header, id, ttl: renewed.ttl.unwrap_or(0) })
    }

    /// Renews a lease on which no key hangs that the caller may not write.
    pub(crate) async fn renew(&self, caller: &Caller, id: i64) -> Result<Renewed, Status> {
        if self.users_count() || caller.proof().is_some() {
            self.require(caller, Need::WriteLease(id)).await?;
        }
        self.renewals.renew(caller, id).await
    }

    /// Grants a lease; id 0 draws one. Answers revision, id and time to live.
    pub(crate) async fn grant(&self, caller: &Caller, id: i64, ttl: i64) -> Result<(i64, i64, i64), Status> {
        let ttl = ttl.max(self.options.lease_ttl_min());
        let mut last = Status::from(EtcdError::LeaseExists);
        for _ in 0..DRAWS_MAX {
            // Positive, so that clients may print and parse it as they like.
            let drawn = if id == 0 { rand::random::<i64>() & i64::MAX } else { id };
            if drawn == 0 {
                continue;
            }
            let command = Command::LeaseGrant(LeaseGrant { id: drawn, ttl });
            match self.propose_growth(caller, command).await {
                Ok(Applied::LeaseGrant { revision, id, ttl }) => return Ok((revision, id, ttl)),
                Ok(_) => return Err(error::mismatch()),
                Err(status) if id == 0 && EtcdError::of(&status) == Some(EtcdError::LeaseExists) => last = status,
                Err(status) => return Err(status),
            }
        }
        Err(last)
    }
}
