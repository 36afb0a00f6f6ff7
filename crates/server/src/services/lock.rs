//! Mutual exclusion among clients: Lock, Unlock.
//!
//! Source: etcd 3.5, `server/etcdserver/api/v3lock/lock.go` and `client/v3/concurrency/mutex.go`. A lock alone protects
//! nothing from a holder that sleeps (failure AP-11): the fencing token is the creation revision of the key that is answered.
//!
//! Read next: [`crate::services::campaign`].

use hustings_api::EtcdError;
use hustings_api::v3lockpb as lp;
use hustings_api::v3lockpb::lock_server::Lock;
use hustings_kv as kv;
use hustings_kv::queue::created_at;
use hustings_kv::{Command, Need};
use tonic::{Request, Response, Status};

use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::error;
use crate::context::{Learner, Services};
use crate::services::campaign::{Candidacy, read_key};

#[tonic::async_trait]
impl<B: Backend> Lock for Services<B> {
    async fn lock(&self, request: Request<lp::LockRequest>) -> Result<Response<lp::LockResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        // As in etcd, a request for one answer is not ended by the loss of the leader: it waits for the next.
        let mut stream_end = self.stream_end(false);
        let lp::LockRequest { name, lease } = request.into_inner();
        stream_end
            .or(async {
                let mut candidacy = Candidacy::enter(&self.0, caller, name, lease, None).await?;
                let revision = candidacy.wait().await.map_err(|status| match EtcdError::of(&status) {
                    Some(EtcdError::LeaseNotFound) => EtcdError::LockSessionExpired.into(),
                    _ => status,
                })?;
                let key = candidacy.key();
                candidacy.keep();
                Ok(Response::new(lp::LockResponse { header: self.header(revision), key }))
            })
            .await
    }

    async fn unlock(&self, request: Request<lp::UnlockRequest>) -> Result<Response<lp::UnlockResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let key = request.into_inner().key;
        let delete = kv::DeleteRange { key: key.clone(), ..kv::DeleteRange::default() };
        kv::check_delete_range(&delete).map_err(error::of_check)?;
        // The key names the lease and not the holding: a request that waits on its way to the log must not end a later
        // holding. So the holding that stands now is named. A caller that may delete the key may unlock, whether it may read
        // it or not: so from here on this member acts for it.
        let view = self.read(&caller, Need::Write(&key, b"")).await?;
        let member = Caller::member();
        let Some(held) = read_key(&view, &key)? else {
            return Ok(Response::new(lp::UnlockResponse { header: self.header(view.revision()) }));
        };
        let txn = kv::Txn {
            compare: vec![created_at(&key, held.create_revision)],
            success: vec![kv::Request::DeleteRange(delete).into()],
            failure: Vec::new(),
        };
        let kv::Response::Txn(txn) = self.propose(&member, Command::Txn(txn)).await? else {
            return Err(error::mismatch());
        };
        Ok(Response::new(lp::UnlockResponse { header: self.header(txn.revision) }))
    }
}
