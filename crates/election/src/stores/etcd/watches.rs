//! All watches of a process on few streams: [`Watches`].
//!
//! A stream for each candidate would be thousands of them on one connection, and servers bound what a connection may hold.

use bytes::Bytes;
use hustings_api::Client;
use hustings_api::etcdserverpb::{
    WatchCancelRequest, WatchCreateRequest, WatchRequest, WatchResponse, watch_request::RequestUnion,
};
use hustings_api::mvccpb::Event;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tonic::metadata::MetadataValue;

/// Watches on one stream; servers take a thousand at the least.
const PER_STREAM_MAX: usize = 500;

/// The watches of a session.
#[derive(Default)]
pub(super) struct Watches {
    streams: Mutex<Vec<Arc<Stream>>>,
}

/// One stream, until it breaks.
struct Stream {
    /// `None` once it is broken.
    hearers: Mutex<Option<Hearers>>,
}

/// The hearers of a stream's watches. With them the stream ends at the server, too, and all that it holds there.
struct Hearers {
    requests: UnboundedSender<WatchRequest>,
    /// Never sent on: the stream's task ends when it is dropped.
    _end: oneshot::Sender<()>,
    by_watch: HashMap<i64, UnboundedSender<Vec<Event>>>,
    /// The last number that was given out.
    last: i64,
}

/// One watch: events until it is dropped, or until the stream breaks.
pub(super) struct Watching {
    stream: Arc<Stream>,
    id: i64,
    events: UnboundedReceiver<Vec<Event>>,
}

impl Watches {
    /// Watches a range of keys from a revision on. Whether the server agrees shows at the first event, or at the end.
    pub(super) fn open(&self, client: &Client, key: &str, range_end: Bytes, start_revision: i64) -> Watching {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|stream| stream.hearers().is_some());
        let (told, events) = unbounded_channel();
        let joined = streams.iter().find_map(|stream| Some((stream.clone(), stream.join(&told)?)));
        let (stream, id) = joined.unwrap_or_else(|| {
            let stream = Stream::open(client.clone());
            streams.push(stream.clone());
            // Without a number it has broken already, and the one who listens hears just that.
            let id = stream.join(&told).unwrap_or_default();
            (stream, id)
        });
        let create = WatchCreateRequest {
            key: key.to_owned().into(),
            range_end,
            start_revision,
            watch_id: id,
            ..WatchCreateRequest::default()
        };
        stream.ask(RequestUnion::CreateRequest(create));
        Watching { stream, id, events }
    }

    /// Starts new streams for later watches: the member of the old ones may be silent.
    pub(super) fn move_on(&self) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Stream {
    fn open(client: Client) -> Arc<Stream> {
        let (requests, outgoing) = unbounded_channel();
        let (end, ended) = oneshot::channel();
        let hearers = Hearers { requests, _end: end, by_watch: HashMap::new(), last: 0 };
        let stream = Arc::new(Stream { hearers: Mutex::new(Some(hearers)) });
        let weak = Arc::downgrade(&stream);
        let listening = async move {
            let outgoing = tokio_stream::wrappers::UnboundedReceiverStream::new(outgoing);
            let mut request = tonic::Request::new(outgoing);
            // A member that has lost its leader, and not its clients, ends the streams of those that insist on one; others just hear nothing.
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
            if let Ok(answers) = client.watch().watch(request).await {
                let mut answers = answers.into_inner();
                while let Ok(Some(answer)) = answers.message().await {
                    let Some(stream) = weak.upgrade() else { return };
                    stream.tell(answer);
                }
            }
            // A hearer is told that nothing more comes.
            weak.upgrade().inspect(|stream| *stream.hearers() = None);
        };
        tokio::spawn(async move {
            tokio::select! {
                () = listening => {}
                // Nobody has the stream any more, or a refusal has ended it: a server that just hears no more requests would go on with it.
                _ = ended => {}
            }
        });
        stream
    }

    fn hearers(&self) -> MutexGuard<'_, Option<Hearers>> {
        self.hearers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a new watch, if there is room for one.
    fn join(&self, told: &UnboundedSender<Vec<Event>>) -> Option<i64> {
        let mut hearers = self.hearers();
        let hearers = hearers.as_mut().filter(|hearers| hearers.by_watch.len() < PER_STREAM_MAX)?;
        hearers.last += 1;
        hearers.by_watch.insert(hearers.last, told.clone());
        Some(hearers.last)
    }

    fn ask(&self, request: RequestUnion) {
        // A stream that has broken needs no request: its hearers know.
        if let Some(hearers) = self.hearers().as_ref() {
            let _ = hearers.requests.send(WatchRequest { request_union: Some(request) });
        }
    }

    fn tell(&self, answer: WatchResponse) {
        let mut hearers = self.hearers();
        if answer.canceled {
            tracing::debug!(why = answer.cancel_reason, "a watch was cancelled");
        }
        if answer.canceled && answer.watch_id < 0 {
            // A refusal names no watch, and nobody knows who is meant: all go on elsewhere.
            *hearers = None;
            return;
        }
        let Some(Hearers { by_watch, .. }) = hearers.as_mut() else { return };
        if answer.canceled {
            // Its hearer learns of it by the end of its events.
            by_watch.remove(&answer.watch_id);
        } else if let Some(hearer) = by_watch.get(&answer.watch_id)
            && !answer.events.is_empty()
        {
            // One that has just been dropped cancels.
            let _ = hearer.send(answer.events);
        }
    }
}

impl Watching {
    /// The next events; `None` once nothing more comes.
    pub(super) async fn next(&mut self) -> Option<Vec<Event>> {
        self.events.recv().await
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let was_there =
            self.stream.hearers().as_mut().is_some_and(|hearers| hearers.by_watch.remove(&self.id).is_some());
        if was_there {
            self.stream.ask(RequestUnion::CancelRequest(WatchCancelRequest { watch_id: self.id }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reach::Reach;
    use super::*;
    use hustings_testbed::FakeEtcd;
    use std::time::Duration;

    async fn store() -> (FakeEtcd, Client) {
        let store = FakeEtcd::start(1).expect("a port is free");
        let election = crate::Election::open(&store.url(&[0], "billing")).expect("the URL is right");
        let client = Reach::new(election.store()).connect().await.expect("it accepts");
        (store, client)
    }

    async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
        let waited = tokio::time::timeout(Duration::from_secs(20), future).await;
        waited.unwrap_or_else(|_| panic!("{what}: not within 20 s"))
    }

    /// Goal: a stream on which a watch was refused holds nothing at the server. Method: one watch is heard, the next one is refused; both
    /// hear the end, and are still there, as the stream is, when the server has lost it.
    #[tokio::test]
    async fn a_stream_on_which_a_watch_was_refused_ends_at_the_server() {
        let (store, client) = store().await;
        let watches = Watches::default();
        let mut first = watches.open(&client, "a", Bytes::new(), 1);
        store.put("a", "1");
        in_time("an event", first.next()).await.expect("it is heard");
        store.refuse_watches(0);
        let mut second = watches.open(&client, "b", Bytes::new(), 1);
        assert!(Arc::ptr_eq(&first.stream, &second.stream));
        assert_eq!(in_time("the end of the refused", second.next()).await, None);
        assert_eq!(in_time("the end of the other", first.next()).await, None);
        in_time("the end at the server", store.until_unwatched(0)).await;
    }

    /// Goal: a stream that nobody has any more ends at the server, which goes on when it just hears no more requests. Method: its only
    /// watch is over already when it is dropped, as after a cancellation by the server, so that no answer is due.
    #[tokio::test]
    async fn a_stream_that_nobody_has_ends_at_the_server() {
        let (store, client) = store().await;
        let watches = Watches::default();
        let mut watching = watches.open(&client, "a", Bytes::new(), 1);
        store.put("a", "1");
        in_time("an event", watching.next()).await.expect("it is heard");
        watching.stream.hearers().as_mut().expect("it is whole").by_watch.clear();
        drop(watching);
        watches.move_on();
        in_time("the end at the server", store.until_unwatched(0)).await;
    }
}
