//! Queues of candidates in the store: what elections and locks share.
//!
//! Source: etcd 3.5, `client/v3/concurrency` (`election.go`, `mutex.go`, `key.go`) and `server/etcdserver/api/v3election`,
//! `v3lock`. A candidate owns the key `name/lease-in-hex`; the queue is ordered by creation revision, and the first is in.
//!
//! Where etcd falls short, this does not (complaint 1 of its users): after each wait the candidate's own key is read again, at
//! the leader, so that nobody is told to lead whose lease ended meanwhile; a candidate that gives up leaves the queue by
//! itself, also when it was told an error while its key was on the way; and a call removes a key only as it wrote it itself,
//! so that a client may cancel and ask again with the same lease, anywhere. A lost leader ends no wait. One case is left: a call of which
//! nobody knew whether it wrote its key, that finds it there, with nobody before it, and whose client has gone by then, cannot tell it from
//! the key of another call of that client, which may lead. That key stays for as long as its lease, as at etcd.
//!
//! Read next: [`crate::services::election`], [`crate::services::lock`].

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::stream;
use hustings_api::EtcdError;
use hustings_api::client::prefix_end;
use hustings_api::etcdserverpb as pb;
use hustings_kv as kv;
use hustings_kv::queue::{self, Origin};
use hustings_kv::{Command, KeyValue, LeaseKeys, LeaseRevoke, Need, SortOrder, SortTarget, View};
use tonic::Status;

use crate::context::Context;
use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::error;
use crate::services::kv::SMALL_KEYS;
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

impl<B: Backend> Context<B> {
    /// The first in a queue, as it was at a revision; 0: as it is now.
    pub(crate) async fn first(&self, view: &View, prefix: &Bytes, revision: i64) -> Result<Option<KeyValue>, Status> {
        self.by_creation(view, prefix, SortOrder::Ascend, 0, revision).await
    }

    /// Whether nothing need be done for what stands on a lease, after this error: the server stops, or the lease is gone and takes along what
    /// stood on it.
    async fn goes_without(&self, lease: i64, status: &Status) -> bool {
        let view = self.read_local(&Caller::member(), Need::Nothing).await;
        let has_lease = view.map_or(true, |view| view.has_lease(lease));
        EtcdError::of(status) == Some(EtcdError::Stopped) || !has_lease
    }

    /// The last in a queue up to a creation revision.
    async fn last_before(
        &self,
        view: &View,
        prefix: &Bytes,
        max_create_revision: i64,
    ) -> Result<Option<KeyValue>, Status> {
        self.by_creation(view, prefix, SortOrder::Descend, max_create_revision, 0).await
    }

    /// One of those below a prefix, which may be many: the caller that names an election decides how many keys are looked at.
    async fn by_creation(
        &self,
        view: &View,
        prefix: &Bytes,
        order: SortOrder,
        max_create_revision: i64,
        revision: i64,
    ) -> Result<Option<KeyValue>, Status> {
        let range = kv::Range {
            key: prefix.clone(),
            range_end: prefix_end(prefix),
            limit: 1,
            revision,
            sort_order: order as i32,
            sort_target: SortTarget::Create as i32,
            max_create_revision,
            ..kv::Range::default()
        };
        let answer = match view.is_small(&range, SMALL_KEYS) {
            true => view.range(&range),
            false => {
                let view = view.clone();
                self.build(move || view.range(&range)).await?
            }
        };
        Ok(answer.map_err(error::of_store)?.kvs.pop())
    }
}

pub(crate) fn read_key(view: &View, key: &Bytes) -> Result<Option<KeyValue>, Status> {
    let range = kv::Range { key: key.clone(), ..kv::Range::default() };
    Ok(view.range(&range).map_err(error::of_store)?.kvs.pop())
}

/// A candidate's key in a queue, and the lease that it stands for.
#[derive(Clone)]
struct Standing {
    prefix: Bytes,
    key: Bytes,
    lease: i64,
    /// Value that is written into the key; `None`: an empty value into a new key, and an old key keeps its own.
    value: Option<Bytes>,
}

/// A key in a queue, as one call wrote it. Dropped before [`Place::keep`], it is given up.
///
/// [`kv::queue`] tells what it writes, and why it writes at all when it finds its key.
struct Place<B: Backend> {
    context: Arc<Context<B>>,
    caller: Caller,
    standing: Standing,
    place: queue::Place,
    is_kept: bool,
}

impl<B: Backend> Place<B> {
    /// Makes the key, or takes it over.
    ///
    /// In a task of its own, which waits for the outcome however long that takes: when the client goes or is told that the
    /// time is up while the write is on its way, the place that nobody takes gives itself up as soon as it is known.
    async fn take(context: &Arc<Context<B>>, caller: Caller, standing: Standing) -> Result<Place<B>, Status> {
        let permit = context.lingering.clone().try_acquire_owned();
        let permit = permit.map_err(|_| Status::from(EtcdError::TooManyRequests))?;
        let owned = context.clone();
        let taking = tokio::spawn(async move {
            let taken = Place::take_to_the_end(owned, caller, standing).await;
            drop(permit);
            taken
        });
        let before = context.node_status().leader;
        match tokio::time::timeout(context.options.request_timeout(), taking).await {
            Ok(Ok(taken)) => taken,
            Ok(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Ok(Err(_)) => Err(EtcdError::Stopped.into()),
            Err(_) => Err(context.timed_out(before)),
        }
    }

    async fn take_to_the_end(context: Arc<Context<B>>, caller: Caller, standing: Standing) -> Result<Place<B>, Status> {
        let Standing { key, lease, value, .. } = standing.clone();
        // Whether it may have been written already: only a call that knows when can give the place up, and to write once more tells.
        let mut is_unknown = false;
        let answer = loop {
            let stand = Command::Txn(queue::stand(&key, lease, value.clone()));
            match context.propose_growth_to_the_end(&caller, stand).await {
                Ok(answer) => break answer,
                Err(status) => {
                    is_unknown |= EtcdError::of(&status) == Some(EtcdError::LeaderChanged);
                    if !is_unknown || context.goes_without(lease, &status).await {
                        return Err(status);
                    }
                    tokio::time::sleep(context.options.timing.election_max).await;
                }
            }
        };
        let kv::Response::Txn(txn) = answer else { return Err(error::mismatch()) };
        let place = queue::place_in(txn).ok_or_else(error::mismatch)?;
        Ok(Place { context, caller, standing, place, is_kept: false })
    }

    /// The place is not given up any more.
    fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl<B: Backend> Drop for Place<B> {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        // Without a runtime everything ends; the lease will do the rest.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (context, standing, place) = (self.context.clone(), self.standing.clone(), self.place);
        // At once: a server that stops waits for those who have one.
        let permit = context.lingering.clone().try_acquire_owned();
        runtime.spawn(async move {
            // Where many places wait for this at once, they do it one after the other, before those who want one.
            let _permit = match permit {
                Ok(permit) => Ok(permit),
                Err(_) => context.lingering.clone().acquire_owned().await,
            };
            give_up_to_the_end(&context, &standing, place).await;
        });
    }
}

/// Removes a key if it is as this call wrote it, however often that is refused: its client may keep the lease alive for ever, and the key
/// would hold up the whole queue.
async fn give_up_to_the_end<B: Backend>(context: &Context<B>, standing: &Standing, place: queue::Place) {
    while let Err(status) = give_up(context, standing.clone(), place).await {
        if context.goes_without(standing.lease, &status).await {
            return;
        }
        tokio::time::sleep(context.options.timing.election_max).await;
    }
}

/// Removes a key if it is as this call wrote it, as soon as there is a leader.
async fn give_up<B: Backend>(context: &Context<B>, standing: Standing, place: queue::Place) -> Result<(), Status> {
    let Standing { prefix, key, .. } = standing;
    let queue::Place { revision, written, origin } = place;
    // A key that was written in the caller's name goes, even if the caller may not remove it by now.
    let member = Caller::member();
    if origin == Origin::Adopted {
        // The call that made the key may have told its client that it is in; while somebody stands before, it has not, and
        // it will write before it does.
        let view = context.read_to_the_end(&member, Need::Nothing).await?;
        let is_mine = read_key(&view, &key)?.is_some_and(|own| own.mod_revision == written);
        if !is_mine || context.last_before(&view, &prefix, revision - 1).await?.is_none() {
            return Ok(());
        }
    }
    context.propose_to_the_end(&member, Command::Txn(queue::leave(&key, written))).await.map(drop)
}

/// A lease that the server granted because the candidate brought none. Dropped before it is kept, it is revoked.
struct ImplicitLease<B: Backend> {
    context: Arc<Context<B>>,
    lease: i64,
    is_kept: bool,
}

impl<B: Backend> Drop for ImplicitLease<B> {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (context, lease) = (self.context.clone(), self.lease);
        runtime.spawn(async move {
            // A lease that cannot be revoked now ends by itself: nobody renews it.
            let _ = context.propose(&Caller::member(), Command::LeaseRevoke(LeaseRevoke { id: lease })).await;
        });
    }
}

/// A candidate on its way to the head of a queue. Dropped before [`Candidacy::keep`], its place is given up.
pub(crate) struct Candidacy<B: Backend> {
    place: Place<B>,
    implicit_lease: Option<ImplicitLease<B>>,
}

impl<B: Backend> Candidacy<B> {
    /// Enters the queue, or takes over the place that the lease has in it already, with a new value if one is given.
    pub(crate) async fn enter(
        context: &Arc<Context<B>>,
        caller: Caller,
        name: Bytes,
        lease: i64,
        value: Option<Bytes>,
    ) -> Result<Candidacy<B>, Status> {
        let prefix = prefix(&name);
        // The candidate must be allowed to see those who stand before it.
        context.require(&caller, Need::Read(&prefix, &prefix_end(&prefix))).await?;
        let implicit_lease = match lease {
            0 => {
                let (_, lease, ttl) = context.grant(&caller, 0, IMPLICIT_TTL).await?;
                context.metrics.on_implicit_lease();
                let name = name.escape_ascii();
                tracing::info!(%name, lease, ttl, "a candidate brought no lease: nobody will renew the one it gets");
                Some(ImplicitLease { context: context.clone(), lease, is_kept: false })
            }
            _ => None,
        };
        let lease = implicit_lease.as_ref().map_or(lease, |implicit| implicit.lease);
        let key = candidate_key(&prefix, lease);
        let place = Place::take(context, caller, Standing { prefix, key, lease, value }).await?;
        Ok(Candidacy { place, implicit_lease })
    }

    /// Key of the candidate in the queue.
    pub(crate) fn key(&self) -> Bytes {
        self.place.standing.key.clone()
    }

    /// The creation revision of the key: the fencing token.
    pub(crate) fn revision(&self) -> i64 {
        self.place.place.revision
    }

    /// The lease that the key lives on.
    pub(crate) fn lease(&self) -> i64 {
        self.place.standing.lease
    }

    /// Waits until nobody stands before, then makes sure that this candidate's key still stands. Answers the store's revision.
    ///
    /// The lease is renewed meanwhile, as etcd's sessions do.
    ///
    /// # Errors
    /// [`EtcdError::LeaseNotFound`] when the lease is gone.
    pub(crate) async fn wait(&mut self) -> Result<i64, Status> {
        let renewing = renew(self.place.context.clone(), self.place.caller.clone(), self.lease());
        let waiting = self.wait_for_turn();
        tokio::select! {
            outcome = waiting => outcome,
            status = renewing => Err(status),
        }
    }

    async fn wait_for_turn(&mut self) -> Result<i64, Status> {
        loop {
            let (context, caller) = (self.place.context.clone(), self.place.caller.clone());
            let Standing { prefix, key, lease, .. } = self.place.standing.clone();
            let view = context.read_to_the_end(&caller, Need::Read(&prefix, &prefix_end(&prefix))).await?;
            // A lease whose time is up counts as gone, although its keys may stand for some steps more.
            if !view.has_lease(lease) {
                return Err(EtcdError::LeaseNotFound.into());
            }
            let own = read_key(&view, &key)?.filter(|own| own.create_revision == self.place.place.revision);
            let Some(own) = own else {
                // Somebody deleted the key; the candidate wants to lead all the same.
                self.stand_again().await?;
                continue;
            };
            let Some(before) = context.last_before(&view, &prefix, self.place.place.revision - 1).await? else {
                if own.mod_revision == self.place.place.written {
                    return Ok(view.revision());
                }
                // Another call of this lease took the place over, and could give it up: not after this write. Where nobody
                // stood before, nobody does now.
                let revision = self.place.place.revision;
                self.stand_again().await?;
                if self.place.place.revision == revision {
                    return Ok(self.place.place.written);
                }
                continue;
            };
            // Level-triggered: after any change of either key, look again.
            let mut watching = Watching::new(context.clone(), caller, context.stream_end(false));
            for key in [before.key, key] {
                watching.create(pb::WatchCreateRequest {
                    key,
                    start_revision: view.revision() + 1,
                    filters: vec![pb::watch_create_request::FilterType::Noput as i32],
                    ..pb::WatchCreateRequest::default()
                });
            }
            drop(view);
            watching.await_events().await?;
        }
    }

    /// Makes the key again, or writes it again.
    async fn stand_again(&mut self) -> Result<(), Status> {
        let place = Place::take(&self.place.context, self.place.caller.clone(), self.place.standing.clone()).await?;
        // The key that the old write stood for is gone, or is the new one's.
        self.place.keep();
        self.place = place;
        Ok(())
    }

    /// The place is the client's from now on.
    pub(crate) fn keep(mut self) {
        self.place.keep();
        if let Some(lease) = &mut self.implicit_lease {
            lease.is_kept = true;
        }
    }
}

/// Renews a lease for as long as it is polled; completes when the lease is gone.
async fn renew<B: Backend>(context: Arc<Context<B>>, caller: Caller, lease: i64) -> Status {
    loop {
        match context.renew(&caller, lease).await {
            Ok(renewed) => match renewed.ttl {
                None => return EtcdError::LeaseNotFound.into(),
                Some(ttl) => {
                    let rounded_up = Duration::from_secs(ttl.unsigned_abs());
                    tokio::time::sleep(length_of(&context, lease).await.unwrap_or(rounded_up) / 3).await
                }
            },
            // The lease may live: the wait goes on as long as its key stands.
            Err(_) => tokio::time::sleep(context.options.timing.election_max).await,
        }
    }
}

/// The time for which a lease is granted, which may be a part of a second; a renewal tells whole ones.
async fn length_of<B: Backend>(context: &Context<B>, lease: i64) -> Option<Duration> {
    let view = context.read_local(&Caller::member(), Need::Nothing).await.ok()?;
    view.lease_time_to_live(lease, LeaseKeys::Omit).map(|lease| lease.granted)
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
