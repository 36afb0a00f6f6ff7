//! The watch hub: one task that reads what happened, once, and tells those whom it concerns.
//!
//! ```text
//!    applied ──► view ──► events since the last look ──► index ──► one parcel per stream
//!                                                          │
//!                       full stream: "you lag from here" ──┘
//! ```
//!
//! Source: etcd 3.5, `server/storage/mvcc/watchable_store.go`, with views in the place of its channels. The hub never
//! waits for a reader. A stream whose queue is full is told from which revision on it must read by itself
//! ([`crate::watch`]); nothing is lost, for history is in the store. While nobody watches, the hub looks at nothing; while
//! nothing is applied, it sleeps: watches have no timers.
//!
//! Read next: [`crate::index`], whom an event concerns.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hustings_kv::{Event, EventKind, KeyRange, KeyValue, Need, Portion, View};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use crate::backend::Backend;
use crate::caller::Caller;
use crate::context::Context;
use crate::index::Index;
use crate::memory::{Held, Memory};

/// Parcels that wait for one stream.
const PARCELS_MAX: usize = 128;

/// Bytes of events that wait for one stream; a parcel always fits into an empty queue.
const QUEUED_BYTES_MAX: usize = 4 << 20;

/// What is read from the store in one step, and told in one answer.
pub(crate) const STEP: Portion = Portion { events: 1_000, bytes: 1 << 20 };

/// What an event takes beside its key and values.
const EVENT_BYTES: usize = size_of::<Event>() + size_of::<Change>();

/// Commands taken together: one look at the store serves them all.
const COMMANDS_PER_STEP: usize = 1_024;

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

/// What the hub tells a stream.
pub(crate) enum News {
    /// Something happened.
    Changes {
        /// The store's revision when the hub looked.
        revision: i64,
        /// Per follower, in the order of the store.
        deliveries: Vec<(Registration, Vec<Change>)>,
        /// What this parcel weighs in the queue.
        bytes: usize,
        /// What it holds of the budget.
        held: Held,
    },
    /// Everything up to this revision has been told.
    Progress {
        /// Whom: one follower, or the whole stream.
        registration: Option<Registration>,
        /// The store's revision.
        revision: i64,
    },
}

/// What does not fit into a stream's queue, and how much is in it.
#[derive(Default)]
pub(crate) struct Overflow {
    parked: std::sync::Mutex<Parked>,
    pub(crate) changed: Notify,
    queued_bytes: AtomicUsize,
}

/// What a full stream finds when it has read its queue.
#[derive(Default)]
pub(crate) struct Parked {
    /// Followers that lag, each with the revision to read on from.
    pub(crate) lagging: Vec<(Registration, i64)>,
    /// Progress was asked for, and could not be told.
    pub(crate) wants_progress: bool,
}

impl Overflow {
    /// Takes what is parked; `None` if nothing is.
    pub(crate) fn take(&self) -> Option<Parked> {
        let mut parked = self.lock();
        let is_empty = parked.lagging.is_empty() && !parked.wants_progress;
        (!is_empty).then(|| std::mem::take(&mut *parked))
    }

    /// Whether somebody lags.
    pub(crate) fn is_lagging(&self) -> bool {
        !self.lock().lagging.is_empty()
    }

    /// A parcel was taken out of the queue.
    pub(crate) fn on_taken(&self, bytes: usize) {
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn park(&self, change: impl FnOnce(&mut Parked)) {
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
    stream: u64,
    news: mpsc::Sender<News>,
    pub(crate) overflow: Arc<Overflow>,
    memory: Arc<Memory>,
}

/// From where on a follower wants events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// From the next one on.
    Next,
    /// From this revision on, past or future.
    At(i64),
}

/// Which kinds of events a follower leaves out.
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

/// Who wants to hear of which keys.
#[derive(Clone)]
pub(crate) struct Follower {
    pub(crate) keys: KeyRange,
    /// The same keys, as they were asked for.
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

enum Command {
    Follow { registration: Registration, follower: Follower, start: Start, reply: oneshot::Sender<Followed> },
    Progress { outlet: Outlet },
    Forget { registrations: Vec<Registration> },
}

/// What streams hold of the hub.
pub(crate) struct Hub {
    // Unbounded, yet short: a stream waits for the answer before it asks again, and ends once.
    commands: mpsc::UnboundedSender<Command>,
    numbers: AtomicU64,
    memory: Arc<Memory>,
}

/// What the hub's task holds.
pub(crate) struct Inbox(mpsc::UnboundedReceiver<Command>);

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

    /// Asks to be told of changes; `None` when the hub is gone. Who drops this must [`Hub::forget`] the registration.
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

/// A follower that hears everything.
struct Synced {
    follower: Follower,
    /// Nothing below is told.
    min_revision: i64,
    /// Whether it heard something since the last round of progress.
    is_fresh: bool,
}

/// What was read for a stream and not yet sent.
struct Outbox {
    outlet: Outlet,
    deliveries: Vec<(Registration, Vec<Change>)>,
}

/// The hub's own state.
struct Telling {
    revision: i64,
    synced: HashMap<Registration, Synced>,
    index: Index,
    outboxes: BTreeMap<u64, Outbox>,
    /// How many followers want rounds of progress.
    progress_followers: usize,
}

/// Runs the hub until the node or the server stops.
pub(crate) async fn run<B: Backend>(context: Arc<Context<B>>, inbox: Inbox) {
    let Inbox(mut inbox) = inbox;
    let mut applied = context.applied_changes();
    let interval = context.options.progress_notify_interval;
    let mut telling = Telling {
        revision: 0,
        synced: HashMap::new(),
        index: Index::default(),
        outboxes: BTreeMap::new(),
        progress_followers: 0,
    };
    let mut next_round = Instant::now() + interval;
    let mut commands = Vec::new();
    loop {
        let has_followers = !telling.synced.is_empty();
        let wants_rounds = telling.progress_followers > 0;
        tokio::select! {
            received = inbox.recv_many(&mut commands, COMMANDS_PER_STEP) => if received == 0 { return },
            changed = applied.changed(), if has_followers => if changed.is_err() { return },
            () = tokio::time::sleep_until(next_round), if wants_rounds => {
                telling.tell_progress();
                next_round = Instant::now() + interval;
                continue;
            }
        }
        if !wants_rounds {
            next_round = Instant::now() + interval;
        }
        let only_forgets = commands.iter().all(|command| matches!(command, Command::Forget { .. }));
        if has_followers || !only_forgets {
            let Ok(view) = context.read_local(&Caller::member(), Need::Nothing).await else { return };
            // Before anything is told that the view holds.
            context.recent.see(&view);
            telling.catch_up(&view);
            for command in commands.drain(..) {
                telling.on_command(command, &view);
            }
        } else {
            commands.clear();
        }
    }
}

impl Telling {
    /// Tells everything that happened since the last look.
    fn catch_up(&mut self, view: &View) {
        if self.synced.is_empty() {
            self.revision = self.revision.max(view.revision());
        }
        while self.revision < view.revision() {
            let Ok(step) = view.events_within(self.revision + 1, &KeyRange::all(), STEP) else {
                // Compacted before it was told: whoever wants it learns so by reading.
                self.lag_all();
                self.revision = view.revision();
                return;
            };
            for event in step.events {
                self.on_event(Arc::new(event), view);
            }
            self.revision = step.next_revision - 1;
            self.flush();
        }
    }

    fn on_event(&mut self, event: Arc<Event>, view: &View) {
        let Telling { synced, index, outboxes, .. } = self;
        let mut previous: Option<Option<Arc<KeyValue>>> = None;
        index.for_each(&event.kv.key, |registration| {
            let Some(entry) = synced.get_mut(&registration) else { return };
            let follower = &entry.follower;
            if event.kv.mod_revision < entry.min_revision || !follower.filters.pass(&event) {
                return;
            }
            entry.is_fresh = true;
            let previous = match follower.wants_previous {
                true => previous.get_or_insert_with(|| view.prev_kv(&event).map(Arc::new)).clone(),
                false => None,
            };
            let outbox = outboxes
                .entry(follower.outlet.stream)
                .or_insert_with(|| Outbox { outlet: follower.outlet.clone(), deliveries: Vec::new() });
            push(&mut outbox.deliveries, registration, Change { event: event.clone(), previous });
        });
    }

    /// Sends what was read; who cannot take it lags from its first event on.
    fn flush(&mut self) {
        while let Some((_, Outbox { outlet, deliveries })) = self.outboxes.pop_first() {
            if let Err(deliveries) = send(&outlet, self.revision, deliveries) {
                let mut lagging = Vec::with_capacity(deliveries.len());
                for (registration, changes) in deliveries {
                    self.forget(registration);
                    lagging.extend(changes.first().map(|first| (registration, first.event.kv.mod_revision)));
                }
                outlet.overflow.park(|parked| parked.lagging.append(&mut lagging));
            }
        }
    }

    fn lag_all(&mut self) {
        for (registration, synced) in std::mem::take(&mut self.synced) {
            let from = synced.min_revision.max(self.revision + 1);
            synced.follower.outlet.overflow.park(|parked| parked.lagging.push((registration, from)));
        }
        self.index = Index::default();
        self.progress_followers = 0;
    }

    fn on_command(&mut self, command: Command, view: &View) {
        match command {
            Command::Follow { registration, follower, start, reply } => {
                let is_synced = self.follow(registration, follower, start, view);
                // Whoever does not wait for the answer sends its Forget behind this.
                let _ = reply.send(Followed { revision: self.revision, is_synced });
            }
            Command::Progress { outlet } => {
                let progress = News::Progress { registration: None, revision: self.revision };
                if outlet.news.try_send(progress).is_err() {
                    outlet.overflow.park(|parked| parked.wants_progress = true);
                }
            }
            Command::Forget { registrations } => registrations.into_iter().for_each(|id| self.forget(id)),
        }
    }

    /// Registers a follower, telling it what it missed if that is little; otherwise leaves it to itself.
    fn follow(&mut self, registration: Registration, follower: Follower, start: Start, view: &View) -> bool {
        let min_revision = match start {
            Start::Next => self.revision + 1,
            Start::At(revision) => revision,
        };
        if min_revision <= self.revision {
            let Ok(missed) = view.events_within(min_revision, &follower.keys, STEP) else { return false };
            if missed.next_revision <= self.revision {
                return false;
            }
            let changes = changes(missed.events, &follower, view);
            if !changes.is_empty() && send(&follower.outlet, self.revision, vec![(registration, changes)]).is_err() {
                return false;
            }
        }
        self.index.insert(registration, &follower.bounds);
        self.progress_followers += usize::from(follower.wants_progress);
        self.synced.insert(registration, Synced { follower, min_revision, is_fresh: false });
        true
    }

    fn forget(&mut self, registration: Registration) {
        if let Some(synced) = self.synced.remove(&registration) {
            self.index.remove(registration, &synced.follower.bounds);
            self.progress_followers -= usize::from(synced.follower.wants_progress);
        }
    }

    /// Tells those who asked for it that nothing happened. Who cannot take it has enough to read.
    fn tell_progress(&mut self) {
        for (registration, synced) in &mut self.synced {
            let is_fresh = std::mem::take(&mut synced.is_fresh);
            if synced.follower.wants_progress && !is_fresh && synced.min_revision <= self.revision + 1 {
                let registration = Some(*registration);
                let _ = synced.follower.outlet.news.try_send(News::Progress { registration, revision: self.revision });
            }
        }
    }
}

/// The events that a follower wants, with what was there before if it wants that.
pub(crate) fn changes(events: Vec<Event>, follower: &Follower, view: &View) -> Vec<Change> {
    let with_previous = |event: Event| {
        let previous = if follower.wants_previous { view.prev_kv(&event).map(Arc::new) } else { None };
        Change { event: Arc::new(event), previous }
    };
    events.into_iter().filter(|event| follower.filters.pass(event)).map(with_previous).collect()
}

fn push(deliveries: &mut Vec<(Registration, Vec<Change>)>, registration: Registration, change: Change) {
    // Looking from the end finds the follower at once when few of a stream's followers are concerned, which is the rule.
    match deliveries.iter_mut().rev().take(8).find(|(to, _)| *to == registration) {
        Some((_, changes)) => changes.push(change),
        None => deliveries.push((registration, vec![change])),
    }
}

/// Queues a parcel, or gives it back when the queue is full or gone.
fn send(
    outlet: &Outlet,
    revision: i64,
    deliveries: Vec<(Registration, Vec<Change>)>,
) -> Result<(), Vec<(Registration, Vec<Change>)>> {
    let bytes = deliveries.iter().flat_map(|(_, changes)| changes).map(Change::bytes).sum();
    let queued = &outlet.overflow.queued_bytes;
    let before = queued.fetch_add(bytes, Ordering::Relaxed);
    let fits = before == 0 || before + bytes <= QUEUED_BYTES_MAX;
    // Who is not told for want of memory reads by itself, a little at a time.
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
