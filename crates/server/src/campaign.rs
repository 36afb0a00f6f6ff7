//! Queues of candidates in the store: what elections and locks share.
//!
//! Source: etcd 3.5, `client/v3/concurrency` (`election.go`, `mutex.go`, `key.go`) and `server/etcdserver/api/v3election`,
//! `v3lock`. A candidate owns the key `name/lease-in-hex`; the queue is ordered by creation revision, and the first is in.
//!
//! Where etcd falls short, this does not (complaint 1 of its users): after each wait the candidate's own key is read again, at
//! the leader, so that nobody is told to lead whose lease ended meanwhile; a candidate that gives up leaves the queue by
//! itself; and only keys that this call has made are removed by it.
//!
//! Read next: [`crate::election`], [`crate::lock`].

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::stream;
use hustings_api::EtcdError;
use hustings_api::client::prefix_end;
use hustings_api::etcdserverpb as pb;
use hustings_kv as kv;
use hustings_kv::{Command, CompareTarget, Comparison, KeyValue, LeaseRevoke, SortOrder, SortTarget, View};
use tonic::Status;

use crate::backend::Backend;
use crate::context::Context;
use crate::error;
use crate::watch::Watching;

/// The lifetime of a lease that the server grants because the candidate brought none, seconds; as in etcd.
const IMPLICIT_TTL: i64 = 60;

/// The keys of all candidates begin with this.
pub(crate) fn prefix(name: &[u8]) -> Bytes {
    let mut prefix = BytesMut::with_capacity(name.len() + 1);
    prefix.put_slice(name);
    prefix.put_u8(b'/');
    prefix.freeze()
}

fn candidate_key(prefix: &[u8], lease: i64) -> Bytes {
    let mut key = BytesMut::with_capacity(prefix.len() + 16);
    key.put_slice(prefix);
    key.put_slice(format!("{lease:x}").as_bytes());
    key.freeze()
}

/// "This key was created at this revision, and is the same still"; 0: it does not exist.
pub(crate) fn created_at(key: &Bytes, revision: i64) -> kv::Compare {
    let target = Some(CompareTarget::Create(revision));
    kv::Compare { comparison: Comparison::Equal as i32, key: key.clone(), range_end: Bytes::new(), target }
}

/// The first in a queue, as it was at a revision; 0: as it is now.
pub(crate) fn first(view: &View, prefix: &Bytes, revision: i64) -> Result<Option<KeyValue>, Status> {
    by_creation(view, prefix, SortOrder::Ascend, 0, revision)
}

/// The last in a queue up to a creation revision.
fn last_before(view: &View, prefix: &Bytes, max_create_revision: i64) -> Result<Option<KeyValue>, Status> {
    by_creation(view, prefix, SortOrder::Descend, max_create_revision, 0)
}

fn by_creation(
    view: &View,
    prefix: &Bytes,
    order: SortOrder,
    max: i64,
    revision: i64,
) -> Result<Option<KeyValue>, Status> {
    let range = kv::Range {
        key: prefix.clone(),
        range_end: prefix_end(prefix),
        limit: 1,
        revision,
        sort_order: order as i32,
        sort_target: SortTarget::Create as i32,
        max_create_revision: max,
        ..kv::Range::default()
    };
    Ok(view.range(&range).map_err(error::of_store)?.kvs.pop())
}

pub(crate) fn read_key(view: &View, key: &Bytes) -> Result<Option<KeyValue>, Status> {
    let range = kv::Range { key: key.clone(), ..kv::Range::default() };
    Ok(view.range(&range).map_err(error::of_store)?.kvs.pop())
}

/// A place in a queue. Dropped before [`Candidacy::keep`], it is given up.
pub(crate) struct Candidacy<B: Backend> {
    context: Arc<Context<B>>,
    prefix: Bytes,
    pub(crate) key: Bytes,
    /// The creation revision of the key: the place in the queue, and the fencing token.
    pub(crate) revision: i64,
    pub(crate) lease: i64,
    /// The value that stands in the key.
    pub(crate) value: Bytes,
    /// This call has made the key, so it may remove it.
    is_own: bool,
    /// This call has granted the lease, so it may end it.
    is_lease_own: bool,
}

impl<B: Backend> Candidacy<B> {
    /// Enters the queue, or finds the place that the lease has in it already.
    ///
    /// In a task of its own: when the client goes while the entry is on its way, the task ends all the same, and the
    /// candidacy that nobody takes gives itself up.
    pub(crate) async fn enter(
        context: &Arc<Context<B>>,
        name: Bytes,
        lease: i64,
        value: Bytes,
    ) -> Result<Candidacy<B>, Status> {
        let entering = tokio::spawn(Candidacy::enter_to_the_end(context.clone(), name, lease, value));
        match entering.await {
            Ok(entered) => entered,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(EtcdError::Stopped.into()),
        }
    }

    async fn enter_to_the_end(
        context: Arc<Context<B>>,
        name: Bytes,
        lease: i64,
        value: Bytes,
    ) -> Result<Candidacy<B>, Status> {
        let is_lease_own = lease == 0;
        let lease = match lease {
            0 => {
                let (_, lease, ttl) = context.grant(0, IMPLICIT_TTL).await?;
                context.metrics.on_implicit_lease();
                let name = name.escape_ascii();
                tracing::info!(%name, lease, ttl, "a candidate brought no lease: nobody will renew the one it gets");
                lease
            }
            lease => lease,
        };
        let prefix = prefix(&name);
        let key = candidate_key(&prefix, lease);
        let mut candidacy = Candidacy { context, prefix, key, revision: 0, lease, value, is_own: false, is_lease_own };
        candidacy.stand().await?;
        Ok(candidacy)
    }

    /// Makes the key, or finds it.
    async fn stand(&mut self) -> Result<(), Status> {
        let (key, value) = (self.key.clone(), self.value.clone());
        let put = kv::Put { key: key.clone(), value, lease: self.lease, ..kv::Put::default() };
        let txn = kv::Txn {
            compare: vec![created_at(&key, 0)],
            success: vec![kv::Request::Put(put).into()],
            failure: vec![kv::Request::Range(kv::Range { key, ..kv::Range::default() }).into()],
        };
        let kv::Response::Txn(mut txn) = self.context.propose_growth(Command::Txn(txn)).await? else {
            return Err(error::mismatch());
        };
        self.is_own = txn.succeeded;
        self.revision = match txn.results.pop() {
            Some(kv::OperationResponse::Range(mut range)) => {
                let found = range.kvs.pop().ok_or_else(error::mismatch)?;
                self.value = found.value;
                found.create_revision
            }
            _ => txn.revision,
        };
        Ok(())
    }

    /// Waits until nobody stands before, then makes sure that the own key still stands. Answers the store's revision.
    ///
    /// The lease is renewed meanwhile, as etcd's sessions do; `None` when the key is gone, and with it the place.
    pub(crate) async fn wait(&self) -> Result<Option<i64>, Status> {
        let renewing = renew(self.context.clone(), self.lease);
        let waiting = self.wait_for_turn();
        tokio::select! {
            outcome = waiting => outcome,
            status = renewing => Err(status),
        }
    }

    async fn wait_for_turn(&self) -> Result<Option<i64>, Status> {
        loop {
            let view = self.context.read().await?;
            let own = read_key(&view, &self.key)?;
            if own.is_none_or(|own| own.create_revision != self.revision) {
                return Ok(None);
            }
            let Some(before) = last_before(&view, &self.prefix, self.revision - 1)? else {
                return Ok(Some(view.revision()));
            };
            // Level-triggered: whatever happens to either key, look again.
            let mut watching = Watching::new(self.context.clone(), self.context.omen(false));
            for key in [before.key, self.key.clone()] {
                watching.create(pb::WatchCreateRequest {
                    key,
                    start_revision: view.revision() + 1,
                    filters: vec![pb::watch_create_request::FilterType::Noput as i32],
                    ..pb::WatchCreateRequest::default()
                });
            }
            watching.await_events().await?;
        }
    }

    /// The place is the client's from now on.
    pub(crate) fn keep(mut self) {
        self.is_own = false;
        self.is_lease_own = false;
    }
}

impl<B: Backend> Drop for Candidacy<B> {
    /// Gives up what this call made: the client has gone, or is told an error.
    fn drop(&mut self) {
        if !self.is_own && !self.is_lease_own {
            return;
        }
        // Without a runtime everything ends; the lease will do the rest.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (context, key, revision, lease) = (self.context.clone(), self.key.clone(), self.revision, self.lease);
        let (is_own, is_lease_own) = (self.is_own, self.is_lease_own);
        runtime.spawn(async move {
            // What cannot be removed now goes with its lease.
            if is_own {
                let guard = created_at(&key, revision);
                let delete = kv::Request::DeleteRange(kv::DeleteRange { key, ..kv::DeleteRange::default() });
                let txn = kv::Txn { compare: vec![guard], success: vec![delete.into()], failure: Vec::new() };
                let _ = context.propose(Command::Txn(txn)).await;
            }
            if is_lease_own {
                let _ = context.propose(Command::LeaseRevoke(LeaseRevoke { id: lease })).await;
            }
        });
    }
}

/// Renews a lease for as long as it is polled; completes when the lease is gone.
async fn renew<B: Backend>(context: Arc<Context<B>>, lease: i64) -> Status {
    loop {
        match context.renewals.renew(lease).await {
            Ok(renewed) => match renewed.ttl {
                None => return EtcdError::LeaseNotFound.into(),
                Some(ttl) => {
                    tokio::time::sleep(Duration::from_millis(ttl.unsigned_abs().saturating_mul(1_000) / 3)).await
                }
            },
            // The lease may live: the wait goes on as long as its key stands.
            Err(_) => tokio::time::sleep(context.options.timing.election_max).await,
        }
    }
}

impl<B: Backend> Watching<B> {
    /// Waits for the first event of any of the watchers, or for the news that its history is gone.
    async fn await_events(&mut self) -> Result<(), Status> {
        let mut no_requests = stream::pending();
        loop {
            let response = self.next(&mut no_requests).await?;
            if !response.events.is_empty() || response.canceled {
                return Ok(());
            }
        }
    }
}
