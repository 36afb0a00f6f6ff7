//! Mutual exclusion among clients: Lock, Unlock.
//!
//! Source: etcd 3.5, `server/etcdserver/api/v3lock/lock.go` and `client/v3/concurrency/mutex.go`. A lock alone protects
//! nothing from a holder that sleeps (failure AP-11): the fencing token is the creation revision of the key that is answered.
//!
//! Read next: [`crate::campaign`].

use bytes::Bytes;
use hustings_api::EtcdError;
use hustings_api::v3lockpb as lp;
use hustings_api::v3lockpb::lock_server::Lock;
use hustings_kv as kv;
use hustings_kv::Command;
use tonic::{Request, Response, Status};

use crate::backend::Backend;
use crate::campaign::Candidacy;
use crate::context::{Learner, Services, insists_on_leader};
use crate::error;

#[tonic::async_trait]
impl<B: Backend> Lock for Services<B> {
    async fn lock(&self, request: Request<lp::LockRequest>) -> Result<Response<lp::LockResponse>, Status> {
        self.check(request.metadata(), Learner::Refuses)?;
        let mut omen = self.omen(insists_on_leader(request.metadata()));
        let lp::LockRequest { name, lease } = request.into_inner();
        omen.or(async {
            let candidacy = Candidacy::enter(&self.0, name, lease, Bytes::new()).await?;
            let revision = match candidacy.wait().await {
                Ok(Some(revision)) => revision,
                Ok(None) => return Err(EtcdError::LockSessionExpired.into()),
                Err(status) if EtcdError::of(&status) == Some(EtcdError::LeaseNotFound) => {
                    return Err(EtcdError::LockSessionExpired.into());
                }
                Err(status) => return Err(status),
            };
            let key = candidacy.key.clone();
            candidacy.keep();
            Ok(Response::new(lp::LockResponse { header: self.header(revision), key }))
        })
        .await
    }

    async fn unlock(&self, request: Request<lp::UnlockRequest>) -> Result<Response<lp::UnlockResponse>, Status> {
        self.check(request.metadata(), Learner::Refuses)?;
        let delete = kv::DeleteRange { key: request.into_inner().key, ..kv::DeleteRange::default() };
        kv::check_delete_range(&delete).map_err(error::of_check)?;
        let kv::Response::DeleteRange(deleted) = self.propose(Command::DeleteRange(delete)).await? else {
            return Err(error::mismatch());
        };
        Ok(Response::new(lp::UnlockResponse { header: self.header(deleted.revision) }))
    }
}
