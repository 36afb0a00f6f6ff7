//! The watch hub: one task that reads each event once, and tells the watchers that it concerns.
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
//! Read next: [`crate::watch::index`], which finds those watchers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use hustings_api::EtcdError;
use hustings_kv::{Event, KeyRange, KeyValue, Need, Portion, View};
use tokio::time::Instant;

use crate::context::Context;
use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::following::{
    Change, Command, Deliveries, Followed, Follower, Inbox, News, Outlet, Overflow, Registration, Start, send,
};
use crate::watch::index::Index;

/// Limit of a portion that is read from the store in one step, and told in one answer.
pub(crate) const STEP: Portion = Portion { events: 1_000, bytes: 1 << 20 };

/// Pause of the hub before it asks again a loop that did not answer.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Commands taken together: one look at the store serves them all.
const COMMANDS_PER_STEP: usize = 1_024;

/// A follower that hears everything.
struct Synced {
    follower: Follower,
    /// First revision that the follower is told.
    min_revision: i64,
    /// Whether it heard something since the last round of progress.
    is_fresh: bool,
}

/// Changes that were read for a stream and not yet sent.
struct Outbox {
    outlet: Outlet,
    deliveries: Deliveries,
}

/// The hub's own state.
#[derive(Default)]
struct HubState {
    revision: i64,
    synced: HashMap<Registration, Synced>,
    index: Index,
    outboxes: BTreeMap<u64, Outbox>,
    /// Number of followers that want rounds of progress.
    progress_followers: usize,
}

/// Runs the hub until the node or the server stops.
pub(crate) async fn run<B: Backend>(context: Arc<Context<B>>, inbox: Inbox) {
    let Inbox(mut inbox) = inbox;
    let mut applied = context.applied_changes();
    let interval = context.options.progress_notify_interval;
    let mut telling = HubState::default();
    let mut next_round = Instant::now() + interval;
    let mut commands = Vec::new();
    // Commands that were taken and wait for a look at the store.
    let mut pending = false;
    loop {
        let has_followers = !telling.synced.is_empty();
        let wants_rounds = telling.progress_followers > 0;
        tokio::select! {
            () = std::future::ready(()), if pending => {}
            received = inbox.recv_many(&mut commands, COMMANDS_PER_STEP), if !pending => if received == 0 { return },
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
            let view = match context.read_local(&Caller::member(), Need::Nothing).await {
                Ok(view) => view,
                Err(status) if EtcdError::of(&status) == Some(EtcdError::Stopped) => return,
                // The loop does not answer now, perhaps for its disk. The events are told when it does.
                Err(_) => {
                    tokio::time::sleep(AGAIN_AFTER).await;
                    if has_followers {
                        applied.mark_changed();
                    }
                    pending = !commands.is_empty();
                    continue;
                }
            };
            pending = false;
            // Before anything is told that the view holds.
            context.recent.see(&view);
            telling.catch_up(&view);
            for command in commands.drain(..) {
                telling.on_command(command, &view);
            }
        } else {
            commands.clear();
            pending = false;
        }
    }
}

impl HubState {
    /// Tells everything that happened since the last look.
    fn catch_up(&mut self, view: &View) {
        if self.synced.is_empty() {
            self.revision = self.revision.max(view.revision());
        }
        while self.revision < view.revision() {
            let Ok(step) = view.select_events(self.revision + 1, &KeyRange::all(), STEP) else {
                // Compacted before it was told: watchers that want it learn so by reading.
                self.lag_all();
                self.revision = view.revision();
                return;
            };
            let next_revision = step.next_revision();
            for event in step.each() {
                match event.asks_disk() {
                    true => self.lag_concerned(event.key(), event.mod_revision()),
                    false => self.on_event(Arc::new(event.read()), view),
                }
            }
            self.revision = next_revision - 1;
            self.flush();
            if self.synced.is_empty() {
                self.revision = self.revision.max(view.revision());
            }
        }
    }

    /// An event is on file, as all are that a snapshot brought: this task waits for no disk, so followers of that key read by
    /// themselves.
    fn lag_concerned(&mut self, key: &[u8], revision: i64) {
        let mut concerned = Vec::new();
        self.index.for_each(key, |registration| {
            let is_told = |synced: &Synced| revision >= synced.min_revision;
            concerned.extend(self.synced.get(&registration).is_some_and(is_told).then_some(registration));
        });
        self.lag(concerned, revision);
    }

    fn on_event(&mut self, event: Arc<Event>, view: &View) {
        let HubState { synced, index, outboxes, .. } = self;
        let mut previous: Option<Option<Arc<KeyValue>>> = None;
        // This task waits for no disk: followers that need a value on file read it on their own stream.
        let (mut lagging, mut is_on_file) = (Vec::new(), None);
        index.for_each(&event.kv.key, |registration| {
            let Some(entry) = synced.get_mut(&registration) else { return };
            let follower = &entry.follower;
            if event.kv.mod_revision < entry.min_revision || !follower.filters.pass(&event) {
                return;
            }
            let asks_disk = || view.asks_disk_before(&event.kv.key, event.kv.mod_revision);
            if follower.wants_previous && *is_on_file.get_or_insert_with(asks_disk) {
                lagging.push(registration);
                return;
            }
            entry.is_fresh = true;
            let previous = match follower.wants_previous {
                true => previous.get_or_insert_with(|| view.prev_kv(&event).map(Arc::new)).clone(),
                false => None,
            };
            let outbox = outboxes
                .entry(follower.outlet.stream)
                .or_insert_with(|| Outbox { outlet: follower.outlet.clone(), deliveries: Deliveries::new() });
            outbox.deliveries.entry(registration).or_default().push(Change { event: event.clone(), previous });
        });
        self.lag(lagging, event.kv.mod_revision);
    }

    /// Leaves followers to themselves. Each reads on from its first event that was not sent: that of this revision, or an earlier one that
    /// waits to be sent. One pass for all of a stream, which may have a hundred thousand.
    fn lag(&mut self, registrations: Vec<Registration>, revision: i64) {
        let mut streams: BTreeMap<u64, (Arc<Overflow>, BTreeMap<Registration, i64>)> = BTreeMap::new();
        for registration in registrations {
            let Some(Synced { follower, .. }) = self.synced.get(&registration) else { continue };
            let Outlet { stream, overflow, .. } = &follower.outlet;
            let (_, lagging) = streams.entry(*stream).or_insert_with(|| (overflow.clone(), BTreeMap::new()));
            lagging.insert(registration, revision);
        }
        for (stream, (overflow, mut lagging)) in streams {
            if let Some(outbox) = self.outboxes.get_mut(&stream) {
                outbox.deliveries.retain(|to, changes| {
                    let Some(from) = lagging.get_mut(to) else { return true };
                    *from = changes.first().map_or(*from, |first| first.event.kv.mod_revision.min(*from));
                    false
                });
                if outbox.deliveries.is_empty() {
                    self.outboxes.remove(&stream);
                }
            }
            lagging.keys().for_each(|registration| self.forget(*registration));
            overflow.park(|parked| lagging.into_iter().for_each(|(registration, from)| parked.lag(registration, from)));
        }
    }

    /// Sends the events that were read. A watcher whose queue is full lags from the first event that it did not get.
    fn flush(&mut self) {
        while let Some((_, Outbox { outlet, deliveries })) = self.outboxes.pop_first() {
            if let Err(deliveries) = send(&outlet, self.revision, deliveries) {
                deliveries.keys().for_each(|registration| self.forget(*registration));
                outlet.overflow.park(|parked| {
                    for (registration, changes) in deliveries {
                        changes
                            .first()
                            .into_iter()
                            .for_each(|first| parked.lag(registration, first.event.kv.mod_revision));
                    }
                });
            }
        }
    }

    fn lag_all(&mut self) {
        for (registration, synced) in std::mem::take(&mut self.synced) {
            let from = synced.min_revision.max(self.revision + 1);
            synced.follower.outlet.overflow.park(|parked| parked.lag(registration, from));
        }
        self.index = Index::default();
        self.progress_followers = 0;
    }

    fn on_command(&mut self, command: Command, view: &View) {
        match command {
            Command::Follow { registration, follower, start, reply } => {
                let is_synced = self.follow(registration, follower, start, view);
                // A stream that does not wait for the answer sends its Forget behind this.
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
            let Ok(missed) = view.select_events(min_revision, &follower.keys, STEP) else { return false };
            let asks_disk = missed.asks_disk(follower.wants_previous.then_some(view));
            if missed.next_revision() <= self.revision || asks_disk {
                return false;
            }
            let changes = changes(missed.read().events, &follower, view);
            if !changes.is_empty()
                && send(&follower.outlet, self.revision, Deliveries::from([(registration, changes)])).is_err()
            {
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

    /// Tells those who asked for it that nothing happened. A stream that cannot take it has enough to read.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::following::{Filters, Hub};
    use crate::context::memory::Memory;
    use crate::watch::event;
    use bytes::Bytes;
    use hustings_core::{Lsn, StateMachine as _};
    use hustings_kv::{Command, KvStore, Put, Txn};
    use tokio::sync::mpsc;

    /// Goal: what is held for watchers does not grow with their number. Method: one watches a key, two the keys around it and what was
    /// there before, each on a stream of its own; the key is put twice.
    #[test]
    fn watchers_that_hear_the_same_event_share_it() {
        let (hub, _inbox) = Hub::new(Memory::new(u64::MAX));
        let (mut store, mut telling) = (KvStore::new(), HubState::default());
        let mut inlets = Vec::new();
        for (registration, (key, end, wants_previous)) in
            (1..).zip([("key", "", false), ("k", "l", true), ("a", "z", true)])
        {
            let (outlet, inlet) = hub.outlet();
            inlets.push(inlet);
            let follower = Follower { wants_previous, ..follower((key, end), outlet) };
            assert!(telling.follow(registration, follower, Start::Next, &store.freeze()));
        }
        for index in 1..=2 {
            store.apply(Lsn::new(1, index), &Command::Put(put("key")).to_payload()).unwrap();
            telling.catch_up(&store.freeze());
        }
        let told: Vec<Change> = inlets.iter_mut().map(second_change).collect();
        assert!(told.iter().all(|change| Arc::ptr_eq(&change.event, &told[0].event)), "one event for all");
        assert!(told[0].previous.is_none(), "it did not ask what was there");
        let previous: Vec<_> = told.iter().filter_map(|change| change.previous.as_ref()).collect();
        assert!(previous.len() == 2 && Arc::ptr_eq(previous[0], previous[1]), "and one of what was there before");
        // All are held until they are compared: what was given back could be given out again.
        let answers: Vec<_> = told.into_iter().map(event).collect();
        let values = answers.iter().map(|answer| answer.kv.as_ref().expect("a put has a value").value.as_ptr());
        assert!(values.collect::<Vec<_>>().windows(2).all(|two| two[0] == two[1]), "also in the answers");
    }

    fn follower((key, end): (&'static str, &'static str), outlet: Outlet) -> Follower {
        let bounds = (Bytes::from(key), Bytes::from(end));
        let keys = KeyRange::new(bounds.0.clone(), bounds.1.clone());
        let filters = Filters::default();
        Follower { keys, bounds, filters, wants_previous: false, wants_progress: false, outlet }
    }

    fn put(key: &'static str) -> Put {
        Put { key: key.into(), value: vec![7; 1_000].into(), ..Put::default() }
    }

    /// A store, the hub, and one stream with so many followers of all keys that begin with k, numbered from 1.
    fn stream_with(followers: u64) -> (KvStore, HubState, mpsc::Receiver<News>, Outlet) {
        let (hub, _inbox) = Hub::new(Memory::new(u64::MAX));
        let (store, mut telling) = (KvStore::new(), HubState::default());
        let (outlet, inlet) = hub.outlet();
        for registration in 1..=followers {
            let follower = follower(("k", "l"), outlet.clone());
            assert!(telling.follow(registration, follower, Start::Next, &store.freeze()));
        }
        (store, telling, inlet, outlet)
    }

    /// Goal: what one transaction changed comes together to each watcher, as etcd promises. Method: many watch on one stream.
    #[test]
    fn what_one_revision_changed_comes_in_one_answer_to_each_of_many() {
        let (mut store, mut telling, mut inlet, _outlet) = stream_with(20);
        let success = ["k1", "k2", "k3"].map(|key| hustings_kv::Request::Put(put(key)).into()).into();
        store.apply(Lsn::new(1, 1), &Command::Txn(Txn { success, ..Txn::default() }).to_payload()).unwrap();
        telling.catch_up(&store.freeze());
        let News::Changes { deliveries, .. } = inlet.try_recv().unwrap() else { panic!("these are no changes") };
        let told: Vec<(Registration, usize)> = deliveries.iter().map(|(to, changes)| (*to, changes.len())).collect();
        assert_eq!(told, (1..=20).map(|registration| (registration, 3)).collect::<Vec<_>>());
    }

    /// Goal: who is left to himself reads on from the first event that he was not told. Method: twenty watch on a stream that takes
    /// nothing more; two puts are found in one look.
    #[test]
    fn each_of_many_on_a_full_stream_reads_on_from_the_first_event_that_it_missed() {
        let (mut store, mut telling, _inlet, outlet) = stream_with(20);
        while outlet.news.try_send(News::Progress { registration: None, revision: 1 }).is_ok() {}
        for index in 1..=2 {
            store.apply(Lsn::new(1, index), &Command::Put(put("k")).to_payload()).unwrap();
        }
        telling.catch_up(&store.freeze());
        let parked = outlet.overflow.take().expect("the stream is full").lagging;
        assert_eq!(
            parked,
            (1..=20).map(|registration| (registration, 2)).collect(),
            "each once, from the first of both"
        );
    }

    /// The second of two changes that a stream with one follower was told.
    fn second_change(inlet: &mut mpsc::Receiver<News>) -> Change {
        let changes = std::iter::from_fn(|| inlet.try_recv().ok()).flat_map(|news| match news {
            News::Changes { deliveries, .. } => deliveries.into_values().flatten().collect(),
            News::Progress { .. } => Vec::new(),
        });
        let told: Vec<Change> = changes.collect();
        assert_eq!(told.len(), 2, "both puts");
        told[1].clone()
    }
}
