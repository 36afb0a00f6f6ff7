//! The store: Range, Put, DeleteRange, Txn, Compact.
//!
//! Source: etcd 3.5, `server/etcdserver/api/v3rpc/key.go`. A request is checked by the store's own rules, proposed (or read
//! from a view), and answered with the revision that the store says.
//!
//! Read next: [`crate::watch`].

use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::kv_server::Kv;
use hustings_kv::{
    Advance, Command, Compact, Response as Applied, check_delete_range, check_put, check_range, check_txn,
};
use tonic::{Request, Response, Status};

use crate::backend::Backend;
use crate::context::{Learner, Services};
use crate::convert;
use crate::error;

#[tonic::async_trait]
impl<B: Backend> Kv for Services<B> {
    async fn range(&self, request: Request<pb::RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
        let is_serializable = request.get_ref().serializable;
        let learner = if is_serializable { Learner::Serves } else { Learner::Refuses };
        self.check(request.metadata(), learner)?;
        let range = convert::range(request.into_inner());
        check_range(&range).map_err(error::of_check)?;
        let view = if is_serializable { self.read_local().await? } else { self.read().await? };
        let response = view.range(&range).map_err(error::of_store)?;
        Ok(Response::new(convert::range_response(self.header(response.revision), response)))
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        self.check(request.metadata(), Learner::Refuses)?;
        let put = convert::put(request.into_inner());
        check_put(&put).map_err(error::of_check)?;
        let Applied::Put(response) = self.propose_growth(Command::Put(put)).await? else {
            return Err(error::mismatch());
        };
        Ok(Response::new(convert::put_response(self.header(response.revision), response)))
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        self.check(request.metadata(), Learner::Refuses)?;
        let delete = convert::delete_range(request.into_inner());
        check_delete_range(&delete).map_err(error::of_check)?;
        let Applied::DeleteRange(response) = self.propose(Command::DeleteRange(delete)).await? else {
            return Err(error::mismatch());
        };
        Ok(Response::new(convert::delete_range_response(self.header(response.revision), response)))
    }

    async fn txn(&self, request: Request<pb::TxnRequest>) -> Result<Response<pb::TxnResponse>, Status> {
        self.check(request.metadata(), Learner::Refuses)?;
        let is_serializable = is_serializable(request.get_ref());
        let txn = convert::txn(request.into_inner());
        check_txn(&txn, self.options.max_txn_ops).map_err(error::of_check)?;
        let response = if txn.is_read_only() {
            let view = if is_serializable { self.read_local().await? } else { self.read().await? };
            view.read_txn(&txn).map_err(error::of_store)?
        } else {
            let may_grow = may_put(&txn);
            let command = Command::Txn(txn);
            let applied = if may_grow { self.propose_growth(command).await? } else { self.propose(command).await? };
            let Applied::Txn(response) = applied else { return Err(error::mismatch()) };
            response
        };
        Ok(Response::new(convert::txn_response(self.header(response.revision), response)))
    }

    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        self.check(request.metadata(), Learner::Refuses)?;
        let pb::CompactionRequest { revision, physical } = request.into_inner();
        let applied = self.propose(Command::Compact(Compact { revision })).await?;
        let Applied::Compact { revision } = applied else { return Err(error::mismatch()) };
        if physical {
            self.await_removal().await?;
        }
        Ok(Response::new(pb::CompactionResponse { header: self.header(revision) }))
    }
}

impl<B: Backend> Services<B> {
    /// Pushes the removal of compacted history on until a step finds nothing more to remove.
    async fn await_removal(&self) -> Result<(), Status> {
        let mut held = self.read_local().await?.version_count();
        loop {
            self.propose(Command::Advance(Advance {})).await?;
            let now = self.read_local().await?.version_count();
            if now >= held {
                return Ok(());
            }
            held = now;
        }
    }
}

/// Whether a transaction may be answered from this member's state: it reads, and all its reads say that they may be stale.
///
/// Deviation: etcd also answers a transaction without any operation from its own state. That is how its clients ask
/// "am I still the owner?" before they act; no read in it has said that the answer may be old.
fn is_serializable(txn: &pb::TxnRequest) -> bool {
    use pb::request_op::Request::{RequestRange, RequestTxn};
    let operations = || txn.success.iter().chain(&txn.failure);
    operations().next().is_some()
        && operations().all(|operation| match &operation.request {
            Some(RequestRange(range)) => range.serializable,
            Some(RequestTxn(inner)) => is_serializable(inner),
            _ => false,
        })
}

/// Whether some branch puts, so that a full store must refuse it.
fn may_put(txn: &hustings_kv::Txn) -> bool {
    use hustings_kv::Request::{Put, Txn};
    txn.success.iter().chain(&txn.failure).any(|operation| match &operation.request {
        Some(Put(_)) => true,
        Some(Txn(inner)) => may_put(inner),
        _ => false,
    })
}
