//! The delay from a put to its event: values say when their put was due and sent, and watchers in this same process read it
//! back. One clock, so nothing need be synchronised.

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
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// Bytes of the stamp at the beginning of a value: when its put was due and when it was sent, in nanoseconds of the run.
const STAMP_BYTES: usize = 16;

/// The keys and values that writers and watchers share.
#[derive(Debug)]
pub(super) struct Audience {
    keys: Keys,
    values: Values,
    seed: u64,
    watchers: u64,
    /// Events of acknowledged puts, one for each watcher of the key.
    owed: AtomicU64,
    arrived: AtomicU64,
    has_arrived: Notify,
}

impl Audience {
    pub(super) fn new(watchers: u64, keys: Keys, values: Values, seed: u64) -> Arc<Audience> {
        let (owed, arrived) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Audience { keys, values, seed, watchers, owed, arrived, has_arrived: Notify::new() })
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
        for time in [due, sent] {
            value.put_u64(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        }
        value.put_slice(filling.get(STAMP_BYTES..).unwrap_or_default());
        let request = PutRequest { key: self.keys.named(key), value: value.freeze(), ..PutRequest::default() };
        kv.put(asked(request)).await?;
        self.owed.fetch_add(self.watchers_of(key), Ordering::Relaxed);
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
                if self.arrived.load(Ordering::Acquire) >= self.owed.load(Ordering::Acquire) {
                    return;
                }
                arriving.await;
            }
        };
        if tokio::time::timeout(patience, all_here).await.is_ok() {
            return;
        }
        let owed = self.owed.load(Ordering::Acquire);
        let missing = owed.saturating_sub(self.arrived.load(Ordering::Acquire));
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
        run.record(position, |recorder| {
            for stamp in answer.events.iter().filter_map(|event| stamp_of(&event.kv.as_ref()?.value)) {
                recorder.answered("event", Timing { due: stamp.0, sent: stamp.1, done }, Standing::Measured);
            }
        });
        audience.arrived.fetch_add(answer.events.len() as u64, Ordering::Release);
        audience.has_arrived.notify_one();
    };
    drop(watches.requests);
    let now = run.now();
    let Failure { kind, status } = failure(ended);
    run.record(position, |recorder| {
        recorder.failed("event", Timing { due: now, sent: now, done: now }, Failure { kind, status })
    });
}

/// Reads when the put of this value was due, and sent; `None` if it is no stamp.
fn stamp_of(value: &[u8]) -> Option<(Duration, Duration)> {
    let time = |from: usize| {
        let bytes: [u8; 8] = value.get(from..from + 8)?.try_into().ok()?;
        Some(Duration::from_nanos(u64::from_be_bytes(bytes)))
    };
    Some((time(0)?, time(8)?))
}
