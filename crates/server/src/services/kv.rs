//! The store: Range, Put, DeleteRange, Txn, Compact.
//!
//! Source: etcd 3.5, `server/etcdserver/api/v3rpc/key.go`. A request is checked by the store's own rules, proposed (or read
//! from a view), and answered with the revision that the store says.
//!
//! Read next: [`crate::watch`].

use hustings_api::EtcdError;
use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::kv_server::Kv;
use hustings_kv as kv;
use hustings_kv::{Command, Compact, Need, Response as Applied, check_delete_range, check_put, check_range, check_txn};
use tonic::{Request, Response, Status};

use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::convert;
use crate::context::error;
use crate::context::memory::{Held, Weight, weighed};
use crate::context::{Learner, Services};

#[tonic::async_trait]
impl<B: Backend> Kv for Services<B> {
    async fn range(&self, request: Request<pb::RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
        let is_serializable = request.get_ref().serializable;
        let learner = if is_serializable { Learner::Serves } else { Learner::Refuses };
        let caller = self.admit(&request, learner).await?;
        let range = convert::range(request.into_inner());
        check_range(&range).map_err(error::of_check)?;
        let need = Need::Read(&range.key, &range.range_end);
        let view = match is_serializable {
            true => self.read_local(&caller, need).await?,
            false => self.read(&caller, need).await?,
        };
        if view.is_small(&range, SMALL_KEYS) {
            let selection = view.select(&range).map_err(error::of_store)?;
            // Before anything is read that is on file.
            let weight = self.weigh(selection_bytes(&selection))?;
            let response = match selection.asks_disk() {
                true => self.read_disk(move || selection.answer()).await?,
                false => selection.answer(),
            };
            return Ok(weighed(convert::range_response(self.header(response.revision), response), weight));
        }
        let memory = self.memory.clone();
        let built = self.build(move || {
            // Before it is built: what the list itself takes.
            let counted = view.range(&kv::Range { count_only: true, ..range.clone() }).map_err(error::of_store)?.count;
            let count = if range.limit > 0 { counted.min(range.limit) } else { counted };
            let held = memory.hold(usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(KEY_BYTES))?;
            if range.count_only {
                let response =
                    kv::RangeResponse { revision: view.revision(), count: counted, ..kv::RangeResponse::default() };
                let weight = Weight::of(&memory, 0)?;
                return Ok((response.revision, convert::range_response(None, response), weight));
            }
            let selection = view.select(&range).map_err(error::of_store)?;
            drop(held);
            // Before anything is read that is on file.
            let weight = Weight::of(&memory, selection_bytes(&selection))?;
            let response = selection.answer();
            Ok::<_, Status>((response.revision, convert::range_response(None, response), weight))
        });
        let (revision, response, weight) = built.await??;
        Ok(weighed(pb::RangeResponse { header: self.header(revision), ..response }, Some(weight)))
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let put = convert::put(request.into_inner());
        check_put(&put).map_err(error::of_check)?;
        let Applied::Put(response) = self.propose_growth(&caller, Command::Put(put)).await? else {
            return Err(error::mismatch());
        };
        let weight = self.weigh_done(response.prev_kv.as_ref().map_or(0, key_bytes))?;
        Ok(weighed(convert::put_response(self.header(response.revision), response), weight))
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let delete = convert::delete_range(request.into_inner());
        check_delete_range(&delete).map_err(error::of_check)?;
        let Applied::DeleteRange(response) = self.propose(&caller, Command::DeleteRange(delete)).await? else {
            return Err(error::mismatch());
        };
        let weight = self.weigh_done(response.prev_kvs.iter().map(key_bytes).sum())?;
        Ok(weighed(convert::delete_range_response(self.header(response.revision), response), weight))
    }

    async fn txn(&self, request: Request<pb::TxnRequest>) -> Result<Response<pb::TxnResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let is_serializable = is_serializable(request.get_ref());
        let txn = convert::txn(request.into_inner());
        check_txn(&txn, self.options.max_txn_ops).map_err(error::of_check)?;
        let foreseen = self.foresee(&caller, &txn).await?;
        let response = if txn.is_read_only() {
            let view = match is_serializable {
                true => self.read_local(&caller, Need::Txn(&txn)).await?,
                false => self.read(&caller, Need::Txn(&txn)).await?,
            };
            if is_small(&view, &txn) {
                view.read_txn(&txn).map_err(error::of_store)?
            } else {
                self.build(move || view.read_txn(&txn)).await?.map_err(error::of_store)?
            }
        } else {
            let may_grow = may_put(&txn);
            let command = Command::Txn(txn);
            let applied = match may_grow {
                true => self.propose_growth(&caller, command).await?,
                false => self.propose(&caller, command).await?,
            };
            let Applied::Txn(response) = applied else { return Err(error::mismatch()) };
            response
        };
        drop(foreseen);
        let weight = self.weigh_done(txn_bytes(&response))?;
        Ok(weighed(convert::txn_response(self.header(response.revision), response), weight))
    }

    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let pb::CompactionRequest { revision, physical } = request.into_inner();
        let applied = self.propose(&caller, Command::Compact(Compact { revision })).await?;
        let Applied::Compact { revision } = applied else { return Err(error::mismatch()) };
        if physical {
            self.await_removal().await?;
        }
        Ok(Response::new(pb::CompactionResponse { header: self.header(revision) }))
    }
}

/// An answer with up to this many keys is built where it was asked for.
pub(crate) const SMALL_KEYS: usize = 1_000;

/// A transaction that reads up to this many single keys is not weighed before it is done.
const FEW_KEYS: usize = 8;

/// Bytes of a key in an answer beside its own: in two lists, and encoded.
const KEY_BYTES: usize = 300;

/// Bytes of an operation's result beside its keys.
const RESULT_BYTES: usize = 64;

fn key_bytes(kv: &kv::KeyValue) -> usize {
    kv.key.len() + kv.value.len() + KEY_BYTES
}

fn selection_bytes(selection: &kv::Selection) -> usize {
    selection.bytes() + selection.keys() * KEY_BYTES
}

fn range_bytes(response: &kv::RangeResponse) -> usize {
    response.kvs.iter().map(key_bytes).sum()
}

fn txn_bytes(response: &kv::TxnResponse) -> usize {
    let result_bytes = |result: &kv::OperationResponse| match result {
        kv::OperationResponse::Range(range) => range_bytes(range),
        kv::OperationResponse::Put(put) => put.prev_kv.as_ref().map_or(0, key_bytes),
        kv::OperationResponse::DeleteRange(deleted) => deleted.prev_kvs.iter().map(key_bytes).sum(),
        kv::OperationResponse::Txn(inner) => txn_bytes(inner),
        kv::OperationResponse::Deferred(_) => 0,
    };
    response.results.iter().map(result_bytes).sum::<usize>() + response.results.len() * RESULT_BYTES
}

/// Whether a transaction compares and reads few keys, none of them on file.
fn is_small(view: &kv::View, txn: &kv::Txn) -> bool {
    let is_single = txn.compare.iter().all(|compare| compare.range_end.is_empty() && !compare.may_ask_disk());
    is_single
        && txn.success.iter().chain(&txn.failure).all(|operation| match &operation.request {
            // Many small ranges are small together only if most are single keys.
            Some(kv::Request::Range(range)) => {
                let is_in_memory = || !view.select(range).is_ok_and(|selection| selection.asks_disk());
                view.is_small(range, SMALL_KEYS / 100) && is_in_memory()
            }
            Some(kv::Request::Txn(inner)) => is_small(view, inner),
            _ => true,
        })
}

/// Whether it reads ranges of keys, or more than a few single ones.
fn reads_many(txn: &kv::Txn) -> bool {
    fn reads(txn: &kv::Txn) -> usize {
        let of = |operation: &kv::Operation| match &operation.request {
            Some(kv::Request::Range(range)) if range.range_end.is_empty() => 1,
            Some(kv::Request::Range(_)) => FEW_KEYS + 1,
            Some(kv::Request::Txn(inner)) => reads(inner),
            _ => 0,
        };
        txn.success.iter().chain(&txn.failure).map(of).sum()
    }
    reads(txn) > FEW_KEYS
}

/// Adds up what all ranges of a transaction would answer, on either branch, and holds it; stops where that is refused.
fn foresee(view: &kv::View, txn: &kv::Txn, bytes: &mut usize, held: &mut Held) -> Result<(), Status> {
    for operation in txn.success.iter().chain(&txn.failure) {
        match &operation.request {
            Some(kv::Request::Range(range)) if !range.count_only => {
                // One that cannot be read is refused later, with its own error.
                let counting = kv::Range { count_only: true, ..range.clone() };
                let Ok(counted) = view.range(&counting) else { continue };
                let count = if range.limit > 0 { counted.count.min(range.limit) } else { counted.count };
                let keys = usize::try_from(count).unwrap_or(usize::MAX);
                held.resize(bytes.saturating_add(keys.saturating_mul(KEY_BYTES)))?;
                let Ok(selection) = view.select(range) else { continue };
                *bytes = bytes.saturating_add(selection_bytes(&selection));
                held.resize(*bytes)?;
            }
            Some(kv::Request::Txn(inner)) => foresee(view, inner, bytes, held)?,
            _ => {}
        }
    }
    Ok(())
}

impl<B: Backend> Services<B> {
    /// Holds what an answer takes until it is sent, if that is worth counting.
    fn weigh(&self, bytes: usize) -> Result<Option<Weight>, Status> {
        Weight::if_large(&self.memory, bytes)
    }

    /// Holds what the answer to a transaction will take, as far as this member's state tells, while it is under way: a refusal
    /// must come before it is done.
    async fn foresee(&self, caller: &Caller, txn: &kv::Txn) -> Result<Option<Held>, Status> {
        if !reads_many(txn) {
            return Ok(None);
        }
        let view = self.read_local(caller, Need::Txn(txn)).await?;
        if is_small(&view, txn) {
            return Ok(None);
        }
        let (memory, txn) = (self.memory.clone(), txn.clone());
        let foreseeing = self.build(move || {
            let mut held = Held::nothing(&memory);
            foresee(&view, &txn, &mut 0, &mut held).map(|()| held)
        });
        foreseeing.await?.map(Some)
    }

    /// Weighs as [`Services::weigh`], for the answer to what is done: a refusal says that the outcome is unknown to the
    /// client, never that nothing happened.
    fn weigh_done(&self, bytes: usize) -> Result<Option<Weight>, Status> {
        self.weigh(bytes).map_err(|_| EtcdError::Timeout.into())
    }

    /// Pushes the removal of compacted history on until a step finds nothing more to remove.
    async fn await_removal(&self) -> Result<(), Status> {
        let mut held = self.read_local(&Caller::member(), Need::Nothing).await?.version_count();
        loop {
            self.push_on().await?;
            let now = self.read_local(&Caller::member(), Need::Nothing).await?.version_count();
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
