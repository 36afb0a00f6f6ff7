//! The two sides of watchers' streams and the hub: the [`Hub`] that streams ask, the [`Outlet`] that it tells them through.
//!
//! All services share the hub's near end, so it stands here; the task at the other end, which looks at the store, is
//! [`crate::watch::hub`]. A queue is bounded in parcels and in bytes: what does not fit is parked ([`Overflow`]), and the stream
//! reads on by itself.
//!
//! Read next: [`crate::watch::hub`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hustings_kv::{Event, EventKind, KeyRange, KeyValue};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::context::memory::{Held, Memory};

/// Parcels that wait for one stream.
const PARCELS_MAX: usize = 128;

/// Bytes of events that wait for one stream; a parcel always fits into an empty queue.
const QUEUED_BYTES_MAX: usize = 4 << 20;

/// Bytes of an event beside its key and values.
const EVENT_BYTES: usize = size_of::<Event>() + size_of::<Change>();

/// Names one follower, for ever.
pub(crate) type Registration = u64;

/// An event, and what was there before where that was asked for. All who are told share both.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) event: Arc<Event>,
    pub(crate) previous: Option<Arc<KeyValue>>,
}

impl Change {
    fn bytes(&self) -> usize {
        let previous = self.previous.as_ref().map_or(0, |kv| kv.key.len() + kv.value.len());
        self.event.kv.key.len() + self.event.kv.value.len() + previous + EVENT_BYTES
    }
}

/// What each follower of a stream is told, in the order of the store: all that one revision changed stands in one of them.
pub(crate) type Deliveries = BTreeMap<Registration, Vec<Change>>;

/// News from the hub to a stream.
pub(crate) enum News {
    /// Keys of its followers have changed.
    Changes {
        /// The store's revision when the hub looked.
        revision: i64,
        /// What each follower is told.
        deliveries: Deliveries,
        /// Weight of this parcel in the queue, in bytes.
        bytes: usize,
        /// Share of the budget that it holds.
        held: Held,
    },
    /// Everything up to this revision has been told.
    Progress {
        /// The follower that is told; `None` for the whole stream.
        registration: Option<Registration>,
        /// The store's revision that is told.
        revision: i64,
    },
}

/// The followers that do not fit into a stream's queue, and the bytes that are in it.
#[derive(Default)]
pub(crate) struct Overflow {
    parked: std::sync::Mutex<Parked>,
    pub(crate) changed: Notify,
    queued_bytes: AtomicUsize,
}

/// The news that a full stream finds when it has read its queue.
#[derive(Default)]
pub(crate) struct Parked {
    /// Followers that lag, each with the revision to read on from.
    pub(crate) lagging: BTreeMap<Registration, i64>,
    /// Progress was asked for, and could not be told.
    pub(crate) wants_progress: bool,
}

impl Parked {
    /// Leaves a follower to itself from this revision on; from an earlier one, where that is parked already.
    pub(crate) fn lag(&mut self, registration: Registration, from: i64) {
        self.lagging.entry(registration).and_modify(|earlier| *earlier = from.min(*earlier)).or_insert(from);
    }
}

impl Overflow {
    /// Takes what is parked; `None` if nothing is.
    pub(crate) fn take(&self) -> Option<Parked> {
        let mut parked = self.lock();
        let is_empty = parked.lagging.is_empty() && !parked.wants_progress;
        (!is_empty).then(|| std::mem::take(&mut *parked))
    }

    /// Whether a follower lags.
    pub(crate) fn is_lagging(&self) -> bool {
        !self.lock().lagging.is_empty()
    }

    /// A parcel was taken out of the queue.
    pub(crate) fn on_taken(&self, bytes: usize) {
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn park(&self, change: impl FnOnce(&mut Parked)) {
        change(&mut self.lock());
        self.changed.notify_one();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Parked> {
        // Held for a push or a take only; neither panics.
        self.parked.lock().expect("nothing panics while the lock is held")
    }
}

/// The hub's side of a stream.
#[derive(Clone)]
pub(crate) struct Outlet {
    pub(crate) stream: u64,
    pub(crate) news: mpsc::Sender<News>,
    pub(crate) overflow: Arc<Overflow>,
    pub(crate) memory: Arc<Memory>,
}

/// The place in history from which a follower wants events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// With the next change.
    Next,
    /// At this revision, past or future.
    At(i64),
}

/// Kinds of events that a follower leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Filters {
    pub(crate) no_put: bool,
    pub(crate) no_delete: bool,
}

impl Filters {
    pub(crate) fn pass(self, event: &Event) -> bool {
        match event.kind {
            EventKind::Put => !self.no_put,
            EventKind::Delete => !self.no_delete,
        }
    }
}

/// A watcher's request for news of a range of keys.
#[derive(Clone)]
pub(crate) struct Follower {
    pub(crate) keys: KeyRange,
    /// The keys as they were asked for.
    pub(crate) bounds: (bytes::Bytes, bytes::Bytes),
    pub(crate) filters: Filters,
    pub(crate) wants_previous: bool,
    pub(crate) wants_progress: bool,
    pub(crate) outlet: Outlet,
}

/// The answer to a follower.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Followed {
    /// The store's revision when the hub looked.
    pub(crate) revision: i64,
    /// Whether the hub tells it everything from its start on; otherwise it must read on by itself and ask again.
    pub(crate) is_synced: bool,
}

/// A request of a stream to the hub.
pub(crate) enum Command {
    Follow { registration: Registration, follower: Follower, start: Start, reply: oneshot::Sender<Followed> },
    Progress { outlet: Outlet },
    Forget { registrations: Vec<Registration> },
}

/// The streams' handle to the hub.
pub(crate) struct Hub {
    // Unbounded, yet short: a stream waits for the answer before it asks again, and ends once.
    commands: mpsc::UnboundedSender<Command>,
    numbers: AtomicU64,
    memory: Arc<Memory>,
}

/// The hub's end of the commands.
pub(crate) struct Inbox(pub(crate) mpsc::UnboundedReceiver<Command>);

impl Hub {
    pub(crate) fn new(memory: Arc<Memory>) -> (Hub, Inbox) {
        let (commands, inbox) = mpsc::unbounded_channel();
        (Hub { commands, numbers: AtomicU64::new(1), memory }, Inbox(inbox))
    }

    /// A new stream's two ends.
    pub(crate) fn outlet(&self) -> (Outlet, mpsc::Receiver<News>) {
        let (news, inlet) = mpsc::channel(PARCELS_MAX);
        (Outlet { stream: self.number(), news, overflow: Arc::default(), memory: self.memory.clone() }, inlet)
    }

    /// Asks to be told of changes; `None` when the hub is gone. The owner that drops this must [`Hub::forget`] the registration.
    pub(crate) async fn follow(
        &self,
        registration: Registration,
        follower: Follower,
        start: Start,
    ) -> Option<Followed> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Follow { registration, follower, start, reply }).ok()?;
        answer.await.ok()
    }

    /// Asks how far the stream has come; the answer comes in the order of its news.
    pub(crate) fn ask_progress(&self, outlet: &Outlet) {
        // An error means that the hub is gone, and the stream with it soon.
        let _ = self.commands.send(Command::Progress { outlet: outlet.clone() });
    }

    pub(crate) fn forget(&self, registrations: Vec<Registration>) {
        let _ = self.commands.send(Command::Forget { registrations });
    }

    /// A number for a registration, given out once.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

/// Queues a parcel, or gives it back when the queue is full or gone.
pub(crate) fn send(outlet: &Outlet, revision: i64, deliveries: Deliveries) -> Result<(), Deliveries> {
    let bytes = deliveries.values().flatten().map(Change::bytes).sum();
    let queued = &outlet.overflow.queued_bytes;
    let before = queued.fetch_add(bytes, Ordering::Relaxed);
    let fits = before == 0 || before + bytes <= QUEUED_BYTES_MAX;
    // A follower that is not told for want of memory reads by itself, a little at a time.
    let refused = match outlet.memory.hold(bytes) {
        Ok(held) if fits => match outlet.news.try_send(News::Changes { revision, deliveries, bytes, held }) {
            Ok(()) => None,
            Err(mpsc::error::TrySendError::Full(news) | mpsc::error::TrySendError::Closed(news)) => match news {
                News::Changes { deliveries, .. } => Some(deliveries),
                News::Progress { .. } => None,
            },
        },
        _ => Some(deliveries),
    };
    match refused {
        None => Ok(()),
        Some(deliveries) => {
            queued.fetch_sub(bytes, Ordering::Relaxed);
            Err(deliveries)
        }
    }
}
