//! The delay from a put to its event: values say of which run and which put they are, and when that was due and sent, and watchers in this
//! same process read it back. One clock, so nothing need be synchronised. What others write to the same keys is passed over.

use super::choice::{Keys, Values, dice};
use super::load::{Run, failure};
use super::recorder::{Failure, Standing, Timing};
use crate::credentials::asked;
use anyhow::{Context, Result, bail};
use bytes::{BufMut, Bytes, BytesMut};
use hustings_api::etcdserverpb::kv_client::KvClient;
use hustings_api::etcdserverpb::watch_client::WatchClient;
use hustings_api::etcdserverpb::watch_request::RequestUnion;
use hustings_api::etcdserverpb::{PutRequest, WatchCreateRequest, WatchRequest, WatchResponse};
use hustings_api::mvccpb::Event;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// Bytes of the stamp at the beginning of a value.
const STAMP_BYTES: usize = 32;

/// The stamp of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    /// Number that tells this run from all others.
    run: u64,
    /// Number of the put.
    number: u64,
    /// Times at which the put was due and sent, counted from the beginning of the run.
    due: Duration,
    sent: Duration,
}

impl Stamp {
    fn write(self, value: &mut BytesMut) {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        for part in [self.run, self.number, nanoseconds(self.due), nanoseconds(self.sent)] {
            value.put_u64(part);
        }
    }

    /// The stamp of a value of this run; `None` for what others have written.
    fn read(value: &[u8], run: u64) -> Option<Stamp> {
        let part = |from: usize| Some(u64::from_be_bytes(value.get(from..from + 8)?.try_into().ok()?));
        let stamp = Stamp {
            run: part(0)?,
            number: part(8)?,
            due: Duration::from_nanos(part(16)?),
            sent: Duration::from_nanos(part(24)?),
        };
        (stamp.run == run).then_some(stamp)
    }
}

/// Events that are owed of acknowledged puts.
#[derive(Debug, Default)]
struct Ledger {
    /// Of each put the events that are owed, less those that have arrived; without those that are even. Events may come before the
    /// acknowledgement, and also of puts that are never acknowledged.
    open: HashMap<u64, i64>,
    /// Events that were owed in all.
    owed: u64,
    missing: u64,
}

impl Ledger {
    fn add(&mut self, number: u64, events: i64) {
        let before = self.open.get(&number).copied().unwrap_or(0);
        let now = before + events;
        if now == 0 {
            self.open.remove(&number);
        } else {
            self.open.insert(number, now);
        }
        self.missing = self.missing + now.max(0).unsigned_abs() - before.max(0).unsigned_abs();
    }

    /// A put was acknowledged that so many watchers hear of.
    fn owe(&mut self, number: u64, watchers: u64) {
        self.owed += watchers;
        self.add(number, i64::try_from(watchers).unwrap_or(i64::MAX));
    }

    /// An event of a put has arrived at one watcher.
    fn arrived(&mut self, number: u64) {
        self.add(number, -1);
    }
}

/// The keys and values that writers and watchers share.
#[derive(Debug)]
pub(super) struct Audience {
    keys: Keys,
    values: Values,
    seed: u64,
    watchers: u64,
    /// Number that tells this run from all others.
    run: u64,
    ledger: Mutex<Ledger>,
    has_arrived: Notify,
}

impl Audience {
    pub(super) fn new(watchers: u64, keys: Keys, values: Values, seed: u64) -> Arc<Audience> {
        let (run, ledger, has_arrived) = (rand::random(), Mutex::default(), Notify::new());
        Arc::new(Audience { keys, values, seed, watchers, run, ledger, has_arrived })
    }

    /// Does something with the ledger, which is whole after every call.
    fn with_ledger<T>(&self, look: impl FnOnce(&mut Ledger) -> T) -> T {
        look(&mut self.ledger.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Number of watchers of this key: watcher n watches key n, and so on from the first key again.
    fn watchers_of(&self, key: u64) -> u64 {
        self.watchers / self.keys.count + u64::from(key < self.watchers % self.keys.count)
    }

    /// Puts, in a value that says when.
    pub(super) async fn tell(
        &self,
        kv: &mut KvClient<Channel>,
        number: u64,
        due: Duration,
        sent: Duration,
    ) -> Result<&'static str, Status> {
        let mut dice = dice(self.seed, number);
        let key = self.keys.pick(number, &mut dice);
        let filling = self.values.pick(&mut dice);
        let mut value = BytesMut::with_capacity(filling.len().max(STAMP_BYTES));
        Stamp { run: self.run, number, due, sent }.write(&mut value);
        value.put_slice(filling.get(STAMP_BYTES..).unwrap_or_default());
        let request = PutRequest { key: self.keys.named(key), value: value.freeze(), ..PutRequest::default() };
        kv.put(asked(request)).await?;
        self.with_ledger(|ledger| ledger.owe(number, self.watchers_of(key)));
        Ok("put")
    }

    /// Opens a watch for each watcher, spread over the connections, and waits until all are there.
    ///
    /// # Errors
    /// A watch is refused.
    pub(super) async fn open(&self, channels: &[Channel]) -> Result<Vec<Watches>> {
        let mut streams = Vec::new();
        for (position, channel) in channels.iter().enumerate() {
            let own = (0..self.watchers).filter(|watcher| *watcher % channels.len() as u64 == position as u64);
            let keys: Vec<Bytes> = own.map(|watcher| self.keys.named(watcher % self.keys.count)).collect();
            if !keys.is_empty() {
                streams.push(open(channel.clone(), keys).await?);
            }
        }
        Ok(streams)
    }

    /// Listens for the events of this run.
    pub(super) fn listen(self: &Arc<Self>, run: &Arc<Run>, streams: Vec<Watches>) {
        for (position, watches) in streams.into_iter().enumerate() {
            tokio::spawn(listen(position, watches, self.clone(), run.clone()));
        }
    }

    /// Waits until every event that is owed has arrived, and writes down those that have not in time.
    pub(super) async fn settle(&self, run: &Run, patience: Duration) {
        let all_here = async {
            loop {
                let arriving = self.has_arrived.notified();
                if self.with_ledger(|ledger| ledger.missing) == 0 {
                    return;
                }
                arriving.await;
            }
        };
        if tokio::time::timeout(patience, all_here).await.is_ok() {
            return;
        }
        let (missing, owed) = self.with_ledger(|ledger| (ledger.missing, ledger.owed));
        run.record(0, |recorder| {
            let status =
                Status::deadline_exceeded(format!("{missing} of {owed} events did not come within {patience:?}"));
            *recorder.errors.entry("event missing").or_default() += missing;
            recorder.first_error.get_or_insert(status);
        });
    }
}

/// Watches; the sender keeps the stream open.
pub(super) struct Watches {
    requests: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
}

/// Opens these watches on one stream, and waits until each is there.
async fn open(channel: Channel, keys: Vec<Bytes>) -> Result<Watches> {
    let (requests, queue) = mpsc::channel(keys.len());
    let count = keys.len();
    for key in keys {
        let create = WatchCreateRequest { key, ..WatchCreateRequest::default() };
        let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        requests.send(request).await.context("the queue is held here")?;
    }
    let mut client = WatchClient::new(channel).max_decoding_message_size(usize::MAX);
    let opening = client.watch(asked(ReceiverStream::new(queue))).await;
    let mut answers = opening.map_err(|status| crate::output::from_status(&status))?.into_inner();
    let mut open = 0;
    while open < count {
        let answer = answers.message().await.map_err(|status| crate::output::from_status(&status))?;
        let answer = answer.context("the watch stream ended before all watches were there")?;
        if answer.canceled {
            bail!("a watch is refused: {}", answer.cancel_reason);
        }
        open += usize::from(answer.created);
    }
    Ok(Watches { requests, answers })
}

async fn listen(position: usize, mut watches: Watches, audience: Arc<Audience>, run: Arc<Run>) {
    let ended = loop {
        let answer = match watches.answers.message().await {
            Ok(Some(answer)) => answer,
            Ok(None) => break Status::unavailable("a watch stream has ended"),
            Err(status) => break status,
        };
        let done = run.now();
        let stamp_of = |event: &Event| Stamp::read(&event.kv.as_ref()?.value, audience.run);
        let stamps: Vec<Stamp> = answer.events.iter().filter_map(stamp_of).collect();
        run.record(position, |recorder| {
            for Stamp { due, sent, .. } in stamps.iter().copied() {
                recorder.answered("event", Timing { due, sent, done }, Standing::Measured);
            }
        });
        audience.with_ledger(|ledger| stamps.iter().for_each(|stamp| ledger.arrived(stamp.number)));
        audience.has_arrived.notify_one();
    };
    drop(watches.requests);
    let now = run.now();
    let Failure { kind, status } = failure(ended);
    run.record(position, |recorder| {
        recorder.failed("event", Timing { due: now, sent: now, done: now }, Failure { kind, status })
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_by_its_own_run_alone() {
        let stamp = Stamp { run: 1, number: 2, due: Duration::from_secs(3), sent: Duration::from_nanos(4) };
        let mut value = BytesMut::new();
        stamp.write(&mut value);
        assert_eq!(value.len(), STAMP_BYTES);
        value.put_slice(b"filling");
        assert_eq!(Stamp::read(&value, 1), Some(stamp));
        assert_eq!(Stamp::read(&value, 9), None, "another run wrote it");
        assert_eq!(Stamp::read(&value[..STAMP_BYTES - 1], 1), None, "nobody of us wrote it");
    }

    /// Goal: an event that is missing is told, whatever else has come. Method: of two puts one is heard of twice too often and the other
    /// one never; an unacknowledged one is heard of as well.
    #[test]
    fn no_event_stands_in_for_another_one() {
        let mut ledger = Ledger::default();
        ledger.arrived(1);
        ledger.owe(1, 2);
        assert_eq!((ledger.missing, ledger.owed), (1, 2));
        ledger.owe(2, 2);
        for number in [1, 1, 1, 3] {
            ledger.arrived(number);
        }
        assert_eq!((ledger.missing, ledger.owed), (2, 4), "those of the second");
        ledger.arrived(2);
        ledger.arrived(2);
        assert_eq!(ledger.missing, 0);
    }
}
