//! Watch: streams of watchers, each hearing every event from its start on, in order, once.
//!
//! Source: etcd 3.5, `server/etcdserver/api/v3rpc/watch.go`. A stream is a value that is asked for its next answer, in
//! the end by HTTP/2's flow control: for a client that does not read, nothing is read from the store.
//!
//! ```text
//!              created                 all read, hub agrees
//!    request ──────────► behind ────────────────────────────► synced
//!                          ▲  reads views by itself              │  the hub tells
//!                          └─────────────────────────────────────┘
//!                                      queue was full
//! ```
//!
//! Why order holds: a watcher is with the hub or reads by itself, never both; parcels that were queued before it fell
//! behind are delivered before it reads (see [`Watching::next`]).
//!
//! Read next: [`crate::watch::hub`].

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, stream};
use hustings_api::EtcdError;
use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::watch_create_request::FilterType;
use hustings_api::etcdserverpb::watch_request::RequestUnion;
use hustings_api::etcdserverpb::watch_server::Watch;
use hustings_api::mvccpb;
use hustings_kv::{EventKind, KeyRange, Need, Users};
use prost::Message;
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};

use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::convert;
use crate::context::error;
use crate::context::following::{Change, Filters, Follower, News, Outlet, Registration, Start};
use crate::context::memory::Held;
use crate::context::serving::StreamEnd;
use crate::context::{Context, Learner, Services, insists_on_leader};
use crate::watch::hub::STEP;

pub(crate) mod hub;

mod index;
mod intervals;

/// The id in answers that concern the whole stream, or a watcher that was never made.
const NO_WATCHER: i64 = -1;

/// Watchers on one stream.
const WATCHERS_MAX: usize = 100_000;

/// Bytes at which a fragmented answer is cut: a request's greatest size and the room that gRPC takes, as in etcd.
fn fragment_bytes_max(max_request_bytes: usize) -> usize {
    max_request_bytes + 512 * 1024
}

/// A stream of answers.
pub(crate) type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl<B: Backend> Watch for Services<B> {
    type WatchStream = Answers<pb::WatchResponse>;

    async fn watch(
        &self,
        request: Request<tonic::Streaming<pb::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let stream_end = self.stream_end(insists_on_leader(request.metadata()));
        Ok(Response::new(watch(self.0.clone(), caller, request.into_inner(), stream_end)))
    }
}

/// The answers to a stream of requests. The stream outlives the last request: a client may close its half.
pub(crate) fn watch<B: Backend>(
    context: Arc<Context<B>>,
    caller: Caller,
    requests: impl Stream<Item = Result<pb::WatchRequest, Status>> + Send + Unpin + 'static,
    stream_end: StreamEnd,
) -> Answers<pb::WatchResponse> {
    let watching = Watching::new(context, caller, stream_end);
    let requests = requests.chain(stream::pending());
    let state = Some((watching, requests));
    Box::pin(stream::unfold(state, |state| async move {
        let (mut watching, mut requests) = state?;
        match watching.next(&mut requests).await {
            Ok(response) => Some((Ok(response), Some((watching, requests)))),
            Err(status) => Some((Err(status), None)),
        }
    }))
}

/// The reason for a watcher's refusal, as etcd's clients read it.
fn reason_of(status: &Status) -> String {
    format!("rpc error: code = {:?} desc = {}", status.code(), status.message())
}

/// Bytes that a watcher takes beside its keys: 10^5 of them took 1,030 each.
const WATCHER_BYTES: usize = 1_024;

/// One watcher of a stream.
struct Watcher {
    /// Its keys, in the budget as long as it is there.
    _held: Held,
    registration: Option<Registration>,
    follower: Follower,
    fragment: bool,
    /// Whether it waits for its turn to read on.
    is_behind: bool,
    /// Revision from which to read on while behind.
    next: i64,
}

/// The watchers of one stream.
pub(crate) struct Watching<B: Backend> {
    context: Arc<Context<B>>,
    caller: Caller,
    /// Users and roles; each change of theirs is looked at before anything more is told.
    users: tokio::sync::watch::Receiver<Users>,
    stream_end: StreamEnd,
    outlet: Outlet,
    news: mpsc::Receiver<News>,
    watchers: BTreeMap<i64, Watcher>,
    registered: HashMap<Registration, i64>,
    next_id: i64,
    ready: VecDeque<pb::WatchResponse>,
    /// Watchers that wait for their turn to read on, and some that were cancelled meanwhile.
    behind: VecDeque<i64>,
    wants_progress: bool,
    /// Watchers that the server itself asks for.
    asked: VecDeque<pb::WatchCreateRequest>,
}

impl<B: Backend> Drop for Watching<B> {
    fn drop(&mut self) {
        if !self.registered.is_empty() {
            self.context.hub.forget(self.registered.keys().copied().collect());
        }
    }
}

impl<B: Backend> Watching<B> {
    pub(crate) fn new(context: Arc<Context<B>>, caller: Caller, stream_end: StreamEnd) -> Watching<B> {
        let (outlet, news) = context.hub.outlet();
        let users = context.recent.subscribe();
        Watching {
            context,
            caller,
            users,
            stream_end,
            outlet,
            news,
            watchers: BTreeMap::new(),
            registered: HashMap::new(),
            next_id: 0,
            ready: VecDeque::new(),
            behind: VecDeque::new(),
            wants_progress: false,
            asked: VecDeque::new(),
        }
    }

    /// Makes a watcher for the server's own use, when the next answer is asked for.
    pub(crate) fn create(&mut self, create: pb::WatchCreateRequest) {
        self.asked.push_back(create);
    }

    /// The next answer; an error ends the stream.
    pub(crate) async fn next(
        &mut self,
        requests: &mut (impl Stream<Item = Result<pb::WatchRequest, Status>> + Unpin),
    ) -> Result<pb::WatchResponse, Status> {
        loop {
            if self.users.has_changed().unwrap_or(false) {
                self.on_users();
            }
            if let Some(response) = self.ready.pop_front() {
                return Ok(response);
            }
            if let Some(create) = self.asked.pop_front() {
                // Bounded by their number; and a client that waits by them would look again at once if they were refused.
                self.on_create(create, Held::nothing(&self.outlet.memory)).await?;
                continue;
            }
            if let Some(Some(request)) = requests.next().now_or_never() {
                self.on_request(request?).await?;
                continue;
            }
            if let Ok(news) = self.news.try_recv() {
                self.on_news(news);
                continue;
            }
            // News for a lagging watcher from before it fell behind may have been queued since the line above: the queue
            // is emptied once more before anybody reads on from there.
            if self.take_overflow() {
                continue;
            }
            if let Some(id) = self.behind.pop_front() {
                self.read_on(id).await?;
                continue;
            }
            if std::mem::take(&mut self.wants_progress) {
                self.context.hub.ask_progress(&self.outlet);
            }
            let overflow = self.outlet.overflow.clone();
            tokio::select! {
                Some(request) = requests.next() => self.on_request(request?).await?,
                Some(news) = self.news.recv() => self.on_news(news),
                () = overflow.changed.notified() => {}
                // A change is looked at where the loop begins.
                Ok(()) = self.users.changed() => self.on_users(),
                status = self.stream_end.end() => return Err(status),
            }
        }
    }

    pub(crate) async fn on_request(&mut self, request: pb::WatchRequest) -> Result<(), Status> {
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => {
                let bytes = create.key.len() + create.range_end.len() + WATCHER_BYTES;
                match self.outlet.memory.hold(bytes) {
                    Ok(held) => self.on_create(create, held).await,
                    Err(_) => self.refuse(EtcdError::TooManyRequests.message()).await,
                }
            }
            Some(RequestUnion::CancelRequest(cancel)) => self.on_cancel(cancel.watch_id).await,
            Some(RequestUnion::ProgressRequest(_)) => {
                self.wants_progress = true;
                Ok(())
            }
            // A request that asks for nothing is ignored, as in etcd.
            None => Ok(()),
        }
    }

    /// Answers that a watcher is not made, and why.
    async fn refuse(&mut self, reason: &str) -> Result<(), Status> {
        let revision = self.revision().await?;
        self.ready.push_back(pb::WatchResponse {
            header: self.context.header(revision),
            watch_id: NO_WATCHER,
            created: true,
            canceled: true,
            cancel_reason: reason.to_owned(),
            ..pb::WatchResponse::default()
        });
        Ok(())
    }

    async fn on_create(&mut self, create: pb::WatchCreateRequest, held: Held) -> Result<(), Status> {
        // Copies: slices would keep the frame that they came in.
        let key = if create.key.is_empty() { Bytes::from_static(b"\0") } else { Bytes::copy_from_slice(&create.key) };
        let end = Bytes::copy_from_slice(&create.range_end);
        let is_empty_range = !end.is_empty() && end[..] != [0] && end <= key;
        let id = match create.watch_id {
            0 => self.free_id(),
            given => given,
        };
        let is_wanted = self.context.users_count() || self.caller.proof().is_some();
        let permitted = match is_wanted {
            true => self.context.read_local(&self.caller, Need::Read(&key, &end)).await.map(drop),
            false => Ok(()),
        };
        if let Some(trail) = self.caller.trail() {
            let code = permitted.as_ref().err().map_or(0, |status| status.code() as i32);
            trail.tell("/etcdserverpb.Watch/Watch create", code);
        }
        if let Err(status) = &permitted
            && status.code() == tonic::Code::Unavailable
        {
            return permitted;
        }
        let denied = permitted.err().map(|status| reason_of(&status));
        let refusal = match () {
            () if denied.is_some() => denied.as_deref(),
            () if is_empty_range => Some("mvcc: watcher range is empty"),
            () if self.watchers.contains_key(&id) => Some("mvcc: duplicate watch ID provided on the WatchStream"),
            () if self.watchers.len() >= WATCHERS_MAX => Some(EtcdError::TooManyRequests.message()),
            () => None,
        };
        if let Some(reason) = refusal {
            return self.refuse(reason).await;
        }
        let follower = Follower {
            keys: KeyRange::new(key.clone(), end.clone()),
            bounds: (key, end),
            filters: Filters {
                no_put: create.filters.contains(&(FilterType::Noput as i32)),
                no_delete: create.filters.contains(&(FilterType::Nodelete as i32)),
            },
            wants_previous: create.prev_kv,
            wants_progress: create.progress_notify,
            outlet: self.outlet.clone(),
        };
        let start = if create.start_revision == 0 { Start::Next } else { Start::At(create.start_revision) };
        let (fragment, next) = (create.fragment, create.start_revision);
        let watcher = Watcher { _held: held, registration: None, follower, fragment, is_behind: false, next };
        self.watchers.insert(id, watcher);
        let revision = self.follow(id, start).await?;
        self.ready.push_back(pb::WatchResponse {
            header: self.context.header(revision),
            watch_id: id,
            created: true,
            ..pb::WatchResponse::default()
        });
        Ok(())
    }

    /// The next id that is free; a client may have taken some.
    fn free_id(&mut self) -> i64 {
        while self.watchers.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        self.next_id - 1
    }

    /// Cancels a watcher; one that does not exist is not answered, as in etcd.
    async fn on_cancel(&mut self, id: i64) -> Result<(), Status> {
        let Some(watcher) = self.watchers.remove(&id) else { return Ok(()) };
        if let Some(registration) = watcher.registration {
            self.registered.remove(&registration);
            self.context.hub.forget(vec![registration]);
        }
        self.forget_cancelled();
        let revision = self.revision().await?;
        self.ready.push_back(pb::WatchResponse {
            header: self.context.header(revision),
            watch_id: id,
            canceled: true,
            ..pb::WatchResponse::default()
        });
        Ok(())
    }

    /// Hands a watcher to the hub; it stays behind when the hub leaves it to itself. Answers the store's revision.
    async fn follow(&mut self, id: i64, start: Start) -> Result<i64, Status> {
        let Some(watcher) = self.watchers.get_mut(&id) else { return Ok(0) };
        let registration = self.context.hub.number();
        // Before it is known to the hub, so that dropping the stream here forgets it there.
        self.registered.insert(registration, id);
        let followed = self.context.hub.follow(registration, watcher.follower.clone(), start).await;
        let Some(followed) = followed else { return Err(EtcdError::Stopped.into()) };
        if followed.is_synced {
            watcher.registration = Some(registration);
        } else {
            self.registered.remove(&registration);
            self.fall_behind(id);
        }
        Ok(followed.revision)
    }

    /// Has a watcher read on when its turn comes.
    fn fall_behind(&mut self, id: i64) {
        if let Some(watcher) = self.watchers.get_mut(&id)
            && !std::mem::replace(&mut watcher.is_behind, true)
        {
            self.behind.push_back(id);
        }
    }

    async fn revision(&self) -> Result<i64, Status> {
        Ok(self.context.read_local(&Caller::member(), Need::Nothing).await?.revision())
    }

    /// Users or roles have changed: a watcher that may not read any more what it watches is told so, and nothing else.
    fn on_users(&mut self) {
        let users = self.users.borrow_and_update().clone();
        let ids: Vec<i64> = self.watchers.keys().copied().collect();
        let denied: BTreeSet<i64> = ids.into_iter().filter(|id| self.cancel_if_denied(*id, &users)).collect();
        // Answers that were ready for it are not told any more.
        self.ready.retain(|ready| ready.canceled || !denied.contains(&ready.watch_id));
    }

    fn cancel_if_denied(&mut self, id: i64, users: &Users) -> bool {
        let Some(watcher) = self.watchers.get(&id) else { return false };
        let (key, end) = &watcher.follower.bounds;
        let Err(refusal) = users.permit_read(self.caller.proof(), key, end) else { return false };
        let registration = watcher.registration;
        self.watchers.remove(&id);
        if let Some(registration) = registration {
            self.registered.remove(&registration);
            self.context.hub.forget(vec![registration]);
        }
        self.forget_cancelled();
        self.ready.push_back(pb::WatchResponse {
            header: self.context.header(0),
            watch_id: id,
            canceled: true,
            cancel_reason: reason_of(&error::of_accounts(refusal)),
            ..pb::WatchResponse::default()
        });
        true
    }

    fn on_news(&mut self, news: News) {
        // The hub tells of users before it tells of what was written after they changed.
        if self.users.has_changed().unwrap_or(false) {
            self.on_users();
        }
        match news {
            News::Changes { revision, deliveries, bytes, held } => {
                // The parcel becomes an answer, of which there is one at a time.
                drop(held);
                self.outlet.overflow.on_taken(bytes);
                for (registration, changes) in deliveries {
                    // A watcher that was cancelled in the meantime hears nothing more.
                    if let Some(id) = self.registered.get(&registration) {
                        self.tell(*id, revision, changes);
                    }
                }
            }
            // A watcher that lags has not heard everything up to there: ask again when it has.
            News::Progress { registration: None, revision } => {
                if self.behind.is_empty() && !self.outlet.overflow.is_lagging() {
                    self.tell_progress(NO_WATCHER, revision);
                } else {
                    self.wants_progress = true;
                }
            }
            News::Progress { registration: Some(registration), revision } => {
                if let Some(id) = self.registered.get(&registration) {
                    self.tell_progress(*id, revision);
                }
            }
        }
    }

    fn tell_progress(&mut self, watch_id: i64, revision: i64) {
        let header = self.context.header(revision);
        self.ready.push_back(pb::WatchResponse { header, watch_id, ..pb::WatchResponse::default() });
    }

    /// Takes over the watchers that the hub gave up; says whether there was anything.
    fn take_overflow(&mut self) -> bool {
        let Some(parked) = self.outlet.overflow.take() else { return false };
        self.wants_progress |= parked.wants_progress;
        for (registration, from) in parked.lagging {
            let Some(id) = self.registered.get(&registration).copied() else { continue };
            if let Some(watcher) = self.watchers.get_mut(&id) {
                watcher.next = from;
            }
            self.fall_behind(id);
        }
        true
    }

    /// Forgets watchers that were cancelled before their turn, once they are more than half: a look at all for each would cost a stream of
    /// very many their square.
    fn forget_cancelled(&mut self) {
        if self.behind.len() > 2 * self.watchers.len() + 64 {
            let mut waiting: BTreeSet<i64> = BTreeSet::new();
            let watchers = &self.watchers;
            self.behind.retain(|id| watchers.get(id).is_some_and(|watcher| watcher.is_behind) && waiting.insert(*id));
        }
    }

    /// Reads a part of what a watcher is behind.
    async fn read_on(&mut self, id: i64) -> Result<(), Status> {
        if !self.watchers.get(&id).is_some_and(|watcher| watcher.is_behind) {
            return Ok(());
        }
        let view = self.context.read_local(&Caller::member(), Need::Nothing).await?;
        if self.cancel_if_denied(id, view.users()) {
            return Ok(());
        }
        let Some(watcher) = self.watchers.get_mut(&id) else { return Ok(()) };
        watcher.is_behind = false;
        if let Some(registration) = watcher.registration.take() {
            self.registered.remove(&registration);
        }
        let revision = view.revision();
        let (next, follower) = (watcher.next, watcher.follower.clone());
        let step = match view.select_events(next, &follower.keys, STEP) {
            Ok(step) => step,
            Err(compacted) => {
                self.watchers.remove(&id);
                self.ready.push_back(pb::WatchResponse {
                    header: self.context.header(revision),
                    watch_id: id,
                    canceled: true,
                    compact_revision: compacted.compact_revision,
                    ..pb::WatchResponse::default()
                });
                return Ok(());
            }
        };
        let next = step.next_revision();
        let asks_disk = step.asks_disk(follower.wants_previous.then_some(&view));
        let read = move || hub::changes(step.read().events, &follower, &view);
        let changes = match asks_disk {
            false => read(),
            true => match self.context.read_disk(read).await {
                Ok(changes) => changes,
                // Too many wait for the disk: it is tried again, for a watcher is not ended by a slow disk.
                Err(status) if EtcdError::of(&status) == Some(EtcdError::TooManyRequests) => {
                    self.fall_behind(id);
                    return Ok(());
                }
                Err(status) => return Err(status),
            },
        };
        // It may have been cancelled meanwhile.
        let Some(watcher) = self.watchers.get_mut(&id) else { return Ok(()) };
        watcher.next = next;
        self.tell(id, revision, changes);
        if next > revision {
            self.follow(id, Start::At(next)).await?;
        } else {
            self.fall_behind(id);
        }
        Ok(())
    }

    /// Queues a watcher's events, fragmented if it asked for that and they are many.
    fn tell(&mut self, id: i64, revision: i64, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        let events: Vec<mvccpb::Event> = changes.into_iter().map(event).collect();
        let header = self.context.header(revision);
        let whole = pb::WatchResponse { header, watch_id: id, events, ..pb::WatchResponse::default() };
        let limit = fragment_bytes_max(self.context.options.max_request_bytes);
        match self.watchers.get(&id) {
            Some(watcher) if watcher.fragment && whole.encoded_len() >= limit => {
                self.ready.extend(fragments(whole, limit));
            }
            _ => self.ready.push_back(whole),
        }
    }
}

/// Cuts an answer so that each part stays below the limit where its single events do.
fn fragments(whole: pb::WatchResponse, limit: usize) -> Vec<pb::WatchResponse> {
    let pb::WatchResponse { header, watch_id, events, .. } = whole;
    let empty = || pb::WatchResponse { header, watch_id, fragment: true, ..pb::WatchResponse::default() };
    let mut parts = Vec::new();
    let mut part = empty();
    let mut bytes = 0;
    for event in events {
        let length = event.encoded_len() + 8;
        if !part.events.is_empty() && bytes + length >= limit {
            parts.push(std::mem::replace(&mut part, empty()));
            bytes = 0;
        }
        bytes += length;
        part.events.push(event);
    }
    part.fragment = false;
    parts.push(part);
    parts
}

fn event(change: Change) -> mvccpb::Event {
    let kind = match change.event.kind {
        EventKind::Put => mvccpb::event::EventType::Put,
        EventKind::Delete => mvccpb::event::EventType::Delete,
    };
    mvccpb::Event {
        r#type: kind as i32,
        kv: Some(convert::key_value(change.event.kv.clone())),
        prev_kv: change.previous.map(|previous| convert::key_value(Arc::unwrap_or_clone(previous))),
    }
}
